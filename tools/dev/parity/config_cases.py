#!/usr/bin/env python3
"""Writes the results of Hydra 1.3 into tests/config/more_cases.yaml, as the expectations of its composition cases.

    python3 -m venv venv && venv/bin/pip install hydra-core==1.3.5
    venv/bin/python tools/dev/parity/config_cases.py

A new case needs no `expect`; if Hydra must refuse it, `expect: {error: {mentions: [...]}}` has the words that lmx's message
must contain. The expectations of cases with `by: hand` are kept.
"""
import itertools
import os
import pathlib
import sys
import tempfile

import case_file
import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

CASES = pathlib.Path(__file__).resolve().parents[3] / "tests/config/more_cases.yaml"


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


def expectation(case):
    mentions = case.get("expect", {}).get("error", {}).get("mentions", [])
    with tempfile.TemporaryDirectory() as folder:
        for name, text in case["files"].items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").write(text)
        try:
            expect = hydra_expect(folder, case["args"], case.get("env", {}))
            if mentions:
                print(f"{case['id']}: Hydra accepts it: {expect}", file=sys.stderr)
            return expect
        except Exception as e:
            if not mentions:
                print(f"{case['id']}: Hydra refuses it: {e}", file=sys.stderr)
            return {"error": {"code": type(e).__name__, "mentions": mentions}}


def main():
    suite = yaml.safe_load(CASES.read_text())
    for case in suite["cases"]:
        if case.get("by") == "hand":
            continue
        expect = expectation(case)
        if expect != case.get("expect"):  # the order of merged keys differs between runs of OmegaConf
            case["expect"] = expect
    CASES.write_text(case_file.text_of(suite))


main()
