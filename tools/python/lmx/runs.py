"""Runs: status, configuration, provenance, records and checkpoints. docs/run-files.md describes the files."""
import os
import re
import warnings
from pathlib import Path

from .files import LmxError, choose, flat, json_lines, json_of, nearest, package, table, text_of
from .tensors import tensors

_SPLITS = ("train", "valid", "test", "rank", "change")


class Run:
    """The folder of a run. LmxError: it is none."""

    def __init__(self, folder):
        self.folder = Path(folder)
        if not (self.folder / "metrics.jsonl").is_file():
            text_of(self.folder / "metrics.jsonl")  # says what is missing
            raise LmxError(f"{self.folder} is no folder of a run")

    def __repr__(self):
        return f"lmx.Run({str(self.folder)!r})"

    @property
    def status(self):
        """`state`, `step` and so on as a dict; empty if lmx has not written status.json."""
        path = self.folder / "status.json"
        return json_of(path) if path.exists() else {}

    @property
    def provenance(self):
        """The list of starts, each a dict: command line, versions, host, hashes."""
        return json_of(self.folder / "provenance.json")["starts"]

    @property
    def config(self):
        """The recipe with every default, as nested dicts. Needs PyYAML."""
        path = self.folder / "config.yaml"
        yaml = package("yaml", "Run.config", "pyyaml")
        loader = type("Loader", (yaml.SafeLoader,), {})
        # For YAML 1.1, 1e-04 is a text.
        loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d[\d.]*e[-+]?\d+$"), "-+0123456789")
        try:
            return yaml.load(text_of(path), loader)
        except yaml.YAMLError as e:
            raise LmxError(f"{path} is damaged: {e}") from e

    def records(self, split=None):
        """The records of metrics.jsonl as dicts: all, or those of a split (train, valid, test, rank, change)."""
        path = self.folder / "metrics.jsonl"
        found = list(json_lines(path, ("step", "split")))
        if split is None:
            return found
        choose(split, dict.fromkeys((*_SPLITS, *(r["split"] for r in found))), f"{path} has no split")
        return [r for r in found if r["split"] == split]

    def metrics(self, split="train", frame="pandas"):
        """The records of a split as a table, with a row for each record."""
        return table(self.records(split), frame)

    def checkpoints(self):
        """The steps of the checkpoints, in ascending order."""
        steps = [p.name[5:] for p in (self.folder / "checkpoints").glob("step-*")]
        return sorted(int(s) for s in steps if s.isdigit())

    def checkpoint(self, which="last"):
        """The folder of a checkpoint: "last", "best" (the lowest validation perplexity) or a step."""
        steps = self.checkpoints()
        if not steps:
            raise LmxError(f"{self.folder} has no checkpoint")
        last = self.folder / "checkpoints" / f"step-{steps[-1]}"
        step = which
        if which == "last":
            step = steps[-1]
        elif which == "best":
            step = int(json_of(last / "state.json")["numbers"].get("best_step", -1))
        if step not in steps:
            raise LmxError(f"{self.folder} has no checkpoint '{which}'{nearest(which, ['last', 'best', *steps])}; "
                           f"there are: last, best, {', '.join(map(str, steps))}")
        return last.with_name(f"step-{step}")

    def weights(self, which="last", file="model"):
        """The tensors of a checkpoint as numpy arrays by name: the parameters, or those of another file, such as
        "train_state" (state of the optimizer, averages) or "rank-0"."""
        return tensors(self.checkpoint(which) / f"{file}.safetensors")


def _run_folders(top):
    """The folders with metrics.jsonl below `top`, as `lmx report` finds them: not in hidden folders, links or runs."""
    if not Path(top).is_dir():
        text_of(top)
        raise LmxError(f"{top} is no folder")
    for folder, names, files in os.walk(top):
        names[:] = sorted(n for n in names if not n.startswith("."))
        if "metrics.jsonl" in files:
            names.clear()
            yield Path(folder)


def _summary(run):
    records = run.records()
    train = [r for r in records if r["split"] == "train"]
    valid = [r for r in records if r["split"] == "valid" and "ppl" in r]  # a record of BLEU alone has none
    best = min((r for r in valid if r["ppl"] == r["ppl"]), key=lambda r: r["ppl"], default={})
    return {"run": str(run.folder), "state": run.status.get("state"), "step": max((r["step"] for r in records), default=0),
            "train_ppl": train[-1].get("ppl") if train else None, "valid_ppl": valid[-1]["ppl"] if valid else None,
            "best_step": best.get("step"), "best_ppl": best.get("ppl"),
            "BLEU": next((r["BLEU"] for r in reversed(records) if "BLEU" in r), None)}


def runs(*folders, settings=(), frame="pandas"):
    """One row for each run below the folders: state, last step, perplexities, BLEU, and the values of the keys
    `settings` of its configuration, such as ["optimizer.lr"]. A run that cannot be read is left out with a warning."""
    rows, keys = [], {}
    for folder in (f for top in folders for f in _run_folders(top)):
        try:
            run = Run(folder)
            config = flat(run.config, separator=".") if settings else {}
            rows.append({**_summary(run), **{key: config.get(key) for key in settings}})
            keys.update(config)
        except LmxError as e:
            warnings.warn(f"run {folder} is left out: {e}", stacklevel=2)
    for key in settings if rows else ():
        choose(key, keys, "no run has the key")
    return table(rows, frame)
