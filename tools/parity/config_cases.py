#!/usr/bin/env python3
"""Writes tests/config/more_cases.yaml: composition cases with the results of Hydra 1.3 as expectations.

    python3 -m venv venv && venv/bin/pip install hydra-core==1.3.5
    venv/bin/python tools/parity/config_cases.py > tests/config/more_cases.yaml

The cases are defined in config_case_list.py and config_value_cases.py, the form of the file in case_file.py.
"""
import itertools
import os
import sys
import tempfile

import case_file
from config_value_cases import CASES
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf


def trees(cfg):
    plain = OmegaConf.to_container(cfg, resolve=False)
    try:
        resolved = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=False)
    except Exception as e:
        return plain, e
    return plain, resolved


def hydra_expect(folder, args, env):
    os.environ.update(env)
    GlobalHydra.instance().clear()
    multirun = "-m" in args
    args = [a for a in args if a != "-m"]
    with initialize_config_dir(version_base="1.3", config_dir=os.path.join(folder, "conf")):
        if not multirun:
            plain, resolved = trees(compose("config", overrides=args))
            if isinstance(resolved, Exception):
                raise resolved
            return {"config": plain, **({} if plain == resolved else {"resolved": resolved})}
        parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
        batches = BasicSweeper.split_arguments(parser.parse_overrides(args), None)
        jobs = []
        for overrides in itertools.chain.from_iterable(batches):
            plain, resolved = trees(compose("config", overrides=overrides))
            jobs.append({"overrides": overrides, "config": plain, **({} if plain == resolved else {"resolved": resolved})})
        return {"jobs": jobs}


def main():
    out = []
    for id, title, files, args, o in CASES:
        entry = {"id": id, "title": title, "stance": o.get("stance", "same")}
        for key in ("schema", "env", "access"):
            if key in o:
                entry[key] = o[key]
        entry["files"] = dict(files)
        entry["args"] = args
        if "raw_expect" in o:
            entry["expect"] = o["raw_expect"]
        elif o.get("skip_hydra"):
            entry["expect"] = {"error": {"code": "error", "mentions": o["mentions"]}}
        else:
            with tempfile.TemporaryDirectory() as folder:
                for name, text in files.items():
                    path = os.path.join(folder, name)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    open(path, "w").write(text)
                try:
                    entry["expect"] = hydra_expect(folder, args, o.get("env", {}))
                    if "mentions" in o and "expect" not in o and o.get("stance") != "stricter":
                        print(f"{id}: Hydra accepts it: {entry['expect']}", file=sys.stderr)
                except Exception as e:
                    if "mentions" not in o:
                        print(f"{id}: Hydra refuses it: {e}", file=sys.stderr)
                    entry["expect"] = {"error": {"code": type(e).__name__, "mentions": o.get("mentions", [])}}
            entry["expect"] = o.get("expect", entry["expect"])
        out.append(entry)
    print(case_file.text_of(out), end="")


main()
