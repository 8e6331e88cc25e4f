"""Sweeps, plans and experiments. docs/sweeps.md, docs/plan.md and docs/experiments.md describe them."""
from pathlib import Path

from .files import LmxError, choose, flat, json_lines, json_of, table, with_numbers
from .runs import Run

class Sweep:
    """The folder of a sweep. Its points may still run."""

    def __init__(self, folder):
        self.folder = Path(folder)
        plan = json_of(self.folder / "sweep.json")
        try:
            self.request = plan["request"]  # recipe, overrides, seeds, metric, ...
            names = [axis["name"] for axis in plan["axes"]]
            places = with_numbers([dict(zip(names, point["place"])) for point in plan["points"]])
            self._points = {p["id"]: (place, p["configuration"]) for p, place in zip(plan["points"], places)}
        except (KeyError, TypeError) as e:
            raise LmxError(f"{self.folder / 'sweep.json'} is damaged: it lacks {e}") from e

    def run(self, point):
        """The run of a point, such as "0-lr=1e-3-seed=1"."""
        choose(point, self._points, f"{self.folder} has no point")
        return Run(self.folder / "points" / point)

    def points(self, frame="pandas"):
        """One row for each point: its axes, its configuration (points that differ in their seed share one), its outcome
        (docs/sweeps.md; "waiting" if it has none yet), and step, value of the metric and seconds of the training."""
        empty = {"outcome": "waiting", "step": None, "value": None, "seconds": None, "reason": None}
        rows = {point: {"point": point, **place, "configuration": configuration, **empty}
                for point, (place, configuration) in self._points.items()}
        path = self.folder / "journal.jsonl"
        for event in json_lines(path, ["event"]) if path.exists() else ():
            row = rows.get(event.get("point"), {})
            if event["event"] == "start":
                row["outcome"] = "waiting"
            elif event["event"] == "end":
                row.update({key: event.get(key) for key in ("outcome", "step", "value", "reason")},
                           seconds=(row["seconds"] or 0) + event["seconds"])
            elif event["event"] == "value":
                row["value"] = event.get("value")
            for point in event.get("stopped", ()):
                rows[point]["outcome"] = "stopped"
        return table(list(rows.values()), frame)

    def metrics(self, split="train", frame="pandas"):
        """The records of all points that have begun, each with its point and its axes."""
        begun = [p for p in self._points if (self.folder / "points" / p / "metrics.jsonl").exists()]
        return table([{"point": p, **self._points[p][0], **record} for p in begun
                       for record in self.run(p).records(split)], frame)


def plan(path, frame="pandas"):
    """The rows of `lmx plan ... --out FILE.json`, with the keys of docs/json.md: one for each variant and number of
    ranks. Memory by class is in columns such as "memory/parameters"."""
    rows = json_of(path)
    if not isinstance(rows, list) or not all(isinstance(r, dict) and "ranks" in r for r in rows):
        raise LmxError(f"{path} is no plan: `lmx plan ... --out FILE.json` writes one")
    return table([flat(row) for row in rows], frame)


class Experiment:
    """The results of an experiment: the folder that it ran in, or a results.json. Missing numbers are None."""

    def __init__(self, path):
        path = Path(path)
        path = path / "results.json" if path.is_dir() else path
        self.folder = path.parent
        self.results = json_of(path)  # everything, with the keys of docs/json.md
        if not isinstance(self.results, dict) or not {"cells", "rows", "verdicts"} <= self.results.keys():
            raise LmxError(f"{path} holds no results of an experiment")

    def _with_axes(self, entries):
        places = with_numbers([e.get("place", {}) for e in entries])
        return [(e, place) for e, place in zip(entries, places)]

    def cells(self, frame="pandas"):
        """One row for each cell: its axes, its state, and its numbers in columns such as "measured/ppl"."""
        kinds = ("measured", "planned", "formula")
        return table([{"cell": cell["id"], **place, "state": cell["state"], "reason": cell.get("reason"),
                        **flat({kind: cell[kind] for kind in kinds if cell.get(kind)})}
                       for cell, place in self._with_axes(self.results["cells"])], frame)

    def rows(self, frame="pandas"):
        """The table of the experiment, with one row for each row and measure: its axes, measure, mean, spread (standard
        deviation), number of runs, origin (measured, planned, formula), and the paper's number as text."""
        empty = dict.fromkeys(("mean", "spread", "runs", "origin", "paper"))
        return table([{"row": "-".join(row["labels"]), **place, "measure": measure, **empty, **numbers}
                       for row, place in self._with_axes(self.results["rows"])
                       for measure, numbers in row["measures"].items()], frame)

    def comparisons(self, frame="pandas"):
        """One row for each of the paper's numbers: ours beside it, the distance and the verdict."""
        return table(self.results["comparisons"], frame)

    def verdicts(self, frame="pandas"):
        """One row for each claim: expected, measured, verdict and its reason, and p-values where a test was made."""
        return table(self.results["verdicts"], frame)

    def run(self, cell):
        """The run of a cell; cells with equal recipes share one."""
        cells = {c["id"]: c for c in self.results["cells"]}
        found = cells[choose(cell, cells, f"{self.folder} has no cell")]
        return Run(self.folder / "cells" / found.get("same_as", cell))
