#!/usr/bin/env python3
"""reader_test.py BUILD_FOLDER CLASS: a class of tests of tools/python/lmx, on folders that the built lmx writes.

Exit code 77: every test of the class was skipped, because the interpreter lacks a package.
"""
import importlib.util
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv[1]).resolve()
sys.path.insert(0, str(SOURCES / "tools/python"))
import lmx  # noqa: E402

TINY = """
data: {name: synthetic, vocab_size: 60, train_tokens: 3000, valid_tokens: 300, test_tokens: 200, branching: 8, classes: 6}
batcher: {name: tbptt, sequence_length: 6}
batch: {global: 8}
model: {name: lstm, embedding: 12, cells: 16}
optimizer: {name: adam, lr: 1e-2}
train: {steps: 12, log_every: 4, eval_every: 6}
checkpoint: {every: 6}
threads: 1
"""
EXPERIMENT = """
title: Perplexities
paper: Nobody 2018
place: Table 1
scales: {desk: {recipe: tiny.yaml}}
axes:
  rate: {low: [optimizer.lr=1e-3], high: []}
  cells: [8, 16]
  seed: [1, 2]
average: [seed]
overrides: ["model.cells=${cells}", "seed=${seed}"]
measures:
  ppl: {key: ppl, paper: {low-8: 100}, comparable: always}
  lr: {split: train, key: lr, only: {rate: high}}
checks: [{claim: "a higher rate is better", ascending: ["ppl[high, cells=16]", "ppl[low, cells=16]"]}]
"""


def has(*packages):
    missing = [p for p in packages if importlib.util.find_spec(p) is None]
    return unittest.skipIf(missing, f"{sys.executable} lacks {', '.join(missing)}")


class Folders(unittest.TestCase):
    """A new folder with a recipe for each class."""

    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory(prefix="lmx_python_")
        cls.addClassCleanup(cls._folder.cleanup)
        cls.folder = Path(cls._folder.name)
        cls.write("tiny.yaml", TINY)

    @classmethod
    def write(cls, name, content):
        path = cls.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    @classmethod
    def lmx(cls, *words, folder=None):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "LMX_CACHE_DIR": str(cls.folder / "cache")}
        return subprocess.run([BUILD / "bin/lmx", *words], cwd=folder or cls.folder, env=environment, check=True,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout

    @classmethod
    def train(cls, name, *more):
        cls.lmx("run", "tiny.yaml", f"run.dir={name}", *more)
        return cls.folder / name

    def refused(self, function, *parts):
        with self.assertRaises(lmx.LmxError) as caught:
            function()
        for part in parts:
            self.assertIn(part, str(caught.exception))


class Reader(Folders):
    """The standard library alone."""

    def test_a_run_has_its_status_provenance_and_records(self):
        run = lmx.Run(self.train("run"))
        self.assertEqual((run.status["state"], run.status["step"]), ("done", 12))
        self.assertEqual(run.provenance[0]["command_line"][1:3], ["run", "tiny.yaml"])
        self.assertEqual([r["step"] for r in run.records("train")], [4, 8, 12])
        self.assertEqual([r["step"] for r in run.metrics("valid", frame="list")], [6, 12])
        self.assertEqual([r["rank"] for r in run.records("rank")], [0, 0, 0])
        self.assertEqual(len(run.records()), 8)
        self.assertEqual((run.checkpoints(), run.checkpoint("best").name), ([6, 12], "step-12"))
        self.assertEqual(run.checkpoint(6), self.folder / "run/checkpoints/step-6")
        (self.folder / "run/status.json").unlink()
        self.assertEqual(run.status, {})
        [row] = lmx.runs(self.folder / "run", frame="list")
        report = json.loads(self.lmx("report", "run", "--json"))
        self.assertEqual((row["state"], row["best_step"], row["best_ppl"]), (None, 12, report["best"]["ppl"]))
        self.assertEqual((row["train_ppl"], row["valid_ppl"]), (report["train"]["ppl"], report["valid"]["ppl"]))

    def records(self, name, *lines, end="\n"):
        self.write(f"{name}/metrics.jsonl", "\n".join(lines) + end)
        return lmx.Run(self.folder / name)

    def test_texts_that_are_no_numbers_in_json_become_numbers(self):
        run = self.records("nan", '{"step":1,"split":"valid","ppl":"NaN","list":["Infinity","-Infinity"]}',
                           '{"step":2,"split":"valid","ppl":7}', '{"step":2,"split":"valid","BLEU":12.5}')
        self.assertTrue(math.isnan(run.records()[0]["ppl"]))
        self.assertEqual(run.records()[0]["list"], [math.inf, -math.inf])
        [row] = lmx.runs(run.folder, frame="list")  # a NaN is not the best, and a record may have no perplexity
        self.assertEqual((row["best_step"], row["best_ppl"], row["BLEU"], row["train_ppl"]), (2, 7, 12.5, None))

    def test_only_the_last_line_may_be_incomplete(self):
        good, cut = '{"step":1,"split":"train","ppl":3}', '{"step":2,"spl'
        self.assertEqual(len(self.records("cut", good, cut, end="").records()), 1)
        for name, line in (("broken", cut), ("other", '{"step":2}'), ("list", "[1]")):
            self.refused(self.records(name, good, line, good).records, f"{name}/metrics.jsonl:2 is damaged")

    def test_runs_are_searched_as_by_the_report(self):
        for name in ("all/b", "all/deep/a", "all/.hidden/c", "all/b/inside"):
            self.records(name, '{"step":3,"split":"train","ppl":4}')
        self.records("all/damaged", "x")
        (self.folder / "all/link").symlink_to(self.folder / "all/b")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows = lmx.runs(self.folder / "all", frame="list")
        self.assertEqual([row["run"] for row in rows], [str(self.folder / name) for name in ("all/b", "all/deep/a")])
        self.assertIn("all/damaged is left out", str(caught[0].message))

    def test_a_sweep_has_its_points_and_their_records(self):
        self.lmx("sweep", "tiny.yaml", "optimizer.lr=1e-3,1e-2", "precision=fp32,bf16", "--seeds", "2", "--out", "sweep")
        sweep = lmx.Sweep(self.folder / "sweep")
        points = sweep.points(frame="list")
        table = json.loads(self.lmx("report", "sweep", "--json"))["configurations"]
        for i, entry in enumerate(table):
            own = [p for p in points if p["configuration"] == i]
            self.assertEqual([p["value"] for p in own], entry["values"])
            self.assertEqual([p["outcome"] for p in own], ["done", "done"])
            self.assertEqual({p["precision"] for p in own}, {entry["place"]["precision"]})
        self.assertEqual({p["optimizer.lr"] for p in points}, {1e-3, 1e-2})
        self.assertEqual([p["seed"] for p in points], [1, 2] * 4)
        records = sweep.metrics("valid", frame="list")
        self.assertEqual(len(records), 16)
        self.assertEqual({r["ppl"] for r in records if r["step"] == 12}, {p["value"] for p in points})
        self.assertEqual(sweep.run(points[1]["point"]).records("valid")[-1]["ppl"], points[1]["value"])
        self.assertEqual(sweep.request["metric"], "valid ppl")
        self.refused(lambda: sweep.run("0-precision=fp32"), "has no point '0-precision=fp32'", "did you mean '0-")

    def test_the_journal_of_a_sweep_says_how_points_stand(self):
        plan = {"request": {}, "axes": [{"name": "a", "values": ["x", "1"]}],
                "points": [{"id": f"{i}-a", "place": [a], "configuration": i} for i, a in enumerate("x1y2z")]}
        events = [{"event": "start", "point": "0-a"},
                  {"event": "end", "point": "0-a", "outcome": "paused", "step": 5, "value": 9.0, "seconds": 1.5},
                  {"event": "end", "point": "1-a", "outcome": "paused", "step": 5, "value": "NaN", "seconds": 1.0},
                  {"event": "rung", "step": 5, "stopped": ["1-a"]},
                  {"event": "submitting", "batch": 1, "name": "n", "tasks": []},
                  {"event": "end", "point": "0-a", "outcome": "done", "step": 9, "value": 8.0, "seconds": 2.0},
                  {"event": "value", "point": "0-a", "value": 3.0}, {"event": "start", "point": "2-a"},
                  {"event": "end", "point": "3-a", "outcome": "failed", "step": 0, "seconds": 0, "reason": "why"},
                  {"event": "end", "point": "4-a", "outcome": "failed", "step": 2, "seconds": 0},
                  {"event": "start", "point": "4-a"}]
        self.write("journal/sweep.json", json.dumps(plan))
        self.write("journal/journal.jsonl", "".join(json.dumps(e) + "\n" for e in events))
        points = lmx.Sweep(self.folder / "journal").points(frame="list")
        self.assertEqual([p["outcome"] for p in points], ["done", "stopped", "waiting", "failed", "waiting"])
        self.assertEqual((points[0]["value"], points[0]["seconds"], points[0]["step"]), (3.0, 3.5, 9))
        self.assertEqual((points[3]["reason"], points[4]["value"]), ("why", None))
        self.assertEqual([p["a"] for p in points], list("x1y2z"))  # texts, because some are no numbers

    def test_a_plan_has_a_row_for_each_number_of_ranks(self):
        self.lmx("plan", "tiny.yaml", "--machine", "desk_10gbe", "--ranks", "1,4", "--out", "plan.json")
        rows = lmx.plan(self.folder / "plan.json", frame="list")
        self.assertEqual([row["ranks"] for row in rows], [1, 4])
        own = json.loads((self.folder / "plan.json").read_text())[1]
        self.assertEqual(rows[1]["memory/gradients"], own["memory"]["gradients"])
        self.assertEqual(rows[1]["step_s"], own["step_s"])

    def test_an_experiment_has_cells_rows_and_verdicts(self):
        self.write("rates.yaml", EXPERIMENT)
        self.lmx("experiment", "run", "rates.yaml", "--out", "experiment")
        experiment = lmx.Experiment(self.folder / "experiment")
        cells = {c["cell"]: c for c in experiment.cells(frame="list")}
        self.assertEqual((len(cells), cells["low-8-2"]["cells"], cells["low-8-2"]["state"]), (8, 8, "done"))
        rows = {(r["rate"], r["cells"], r["measure"]): r for r in experiment.rows(frame="list")}
        self.assertEqual(len(rows), 6)
        row = rows["low", 8, "ppl"]
        self.assertAlmostEqual(row["mean"], sum(cells[f"low-8-{s}"]["measured/ppl"] for s in (1, 2)) / 2)
        self.assertEqual((row["row"], row["runs"], row["origin"], row["paper"]), ("low-8", 2, "measured", "100"))
        self.assertIsNone(rows["high", 16, "lr"]["paper"])
        self.assertEqual(experiment.comparisons(frame="list")[0]["cell"], "low-8")
        self.assertEqual(experiment.verdicts(frame="list")[0]["claim"], "a higher rate is better")
        self.assertEqual(experiment.run("low-8-2").records("valid")[-1]["ppl"], cells["low-8-2"]["measured/ppl"])
        self.assertEqual(lmx.Experiment(self.folder / "experiment/results.json").results["paper"], "Nobody 2018")
        results = json.loads((self.folder / "experiment/results.json").read_text())
        results["cells"][0]["same_as"] = "high-16-2"
        self.write("experiment/results.json", json.dumps(results))
        self.assertEqual(lmx.Experiment(experiment.folder).run("low-8-1").folder.name, "high-16-2")
        self.refused(lambda: experiment.run("low-8-3"), "has no cell 'low-8-3' (did you mean 'low-8-")

    def test_errors_name_the_file_and_the_nearest_name(self):
        run = self.records("wrong/there", '{"step":1,"split":"train","ppl":3}')
        self.refused(lambda: lmx.Run(self.folder / "wrong/thera"), "wrong/thera does not exist (did you mean 'there'?)")
        self.refused(lambda: lmx.Run(self.folder / "wrong"), "wrong/metrics.jsonl does not exist")
        self.refused(lambda: run.metrics("trian"), "metrics.jsonl has no split 'trian' (did you mean 'train'?); there are: ")
        self.refused(lambda: run.metrics(frame="panda"), "no kind of frame 'panda' (did you mean 'pandas'?)")
        self.refused(run.checkpoint, "wrong/there has no checkpoint")
        self.refused(lambda: run.provenance, "there/provenance.json does not exist")
        self.refused(lambda: lmx.Sweep(self.folder / "wrong"), "wrong/sweep.json does not exist")
        self.write("wrong/sweep.json", "{}")
        self.refused(lambda: lmx.Sweep(self.folder / "wrong"), "sweep.json is damaged: it lacks 'request'")
        self.refused(lambda: lmx.plan(self.write("wrong/plan.json", '{"ranks": 1}')), "plan.json is no plan")
        self.refused(lambda: lmx.plan(self.write("wrong/plan.json", '{"ran')), "plan.json is damaged: ")
        self.refused(lambda: lmx.Experiment(self.folder / "wrong/plan.json"), "plan.json is damaged")
        self.refused(lambda: lmx.Experiment(self.folder / "wrong/sweep.json"), "holds no results of an experiment")
        self.refused(lambda: lmx.runs(self.folder / "wrang"), "wrang does not exist (did you mean 'wrong'?)")
        self.refused(lambda: lmx.runs(self.folder / "tiny.yaml"), "tiny.yaml is no folder")

    def test_a_missing_package_is_named(self):
        code = "import sys; sys.modules['pandas'] = None; import lmx; lmx.plan(sys.argv[1])"
        plan = self.write("package/plan.json", '[{"ranks": 1}]')
        result = subprocess.run([sys.executable, "-c", code, plan], text=True, stderr=subprocess.PIPE,
                                env={**os.environ, "PYTHONPATH": str(SOURCES / "tools/python")})
        self.assertIn("LmxError: frame='pandas' needs the package pandas: pip install pandas", result.stderr)


@has("numpy")
class Arrays(Folders):
    def tensors(self, header, data=b"", name="t.safetensors"):
        text = json.dumps(header).encode() if isinstance(header, dict) else header
        return lmx.tensors(self.write(name, struct.pack("<Q", len(text)) + text + data))

    def test_weights_are_those_of_the_checkpoint(self):
        run = lmx.Run(self.train("run"))
        weights = run.weights("best")
        self.assertEqual(weights["embedding.weight"].shape, (60, 12))
        content = (run.checkpoint("best") / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        for name, entry in json.loads(content[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + offset for offset in entry["data_offsets"])
                self.assertEqual(weights[name].tobytes(), content[begin:end])
        self.assertFalse((run.weights(6)["softmax.weight"] == weights["softmax.weight"]).all())
        self.assertEqual(run.weights(file="train_state")["optimizer/embedding.weight.exp_avg"].shape, (60, 12))
        self.refused(lambda: run.weights(7), "has no checkpoint '7'", "there are: last, best, 6, 12")
        self.refused(lambda: run.weights("bset"), "no checkpoint 'bset' (did you mean 'best'?)")
        self.refused(lambda: run.weights(file="train_stat"), "did you mean 'train_state.safetensors'?")

    def test_every_type_is_read(self):
        values = self.tensors({"__metadata__": {"format": "pt"},
                               "b": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [0, 4]},
                               "i": {"dtype": "I64", "shape": [1], "data_offsets": [4, 12]},
                               "h": {"dtype": "F16", "shape": [], "data_offsets": [12, 14]},
                               "none": {"dtype": "F32", "shape": [0, 3], "data_offsets": [14, 14]}},
                              struct.pack("<HHqe", 0x3FC0, 0xFF80, -7, 0.5))
        self.assertEqual(values["b"].tolist(), [[1.5], [-math.inf]])
        self.assertEqual((values["i"].tolist(), values["h"].tolist(), values["none"].shape), ([-7], 0.5, (0, 3)))

    def test_a_damaged_file_is_refused(self):
        def entry(dtype="F32", shape=(2,), end=8):
            return {"w": {"dtype": dtype, "shape": list(shape), "data_offsets": [0, end]}}
        self.refused(lambda: self.tensors(b"{", b""), "t.safetensors is no intact safetensors file")
        self.refused(lambda: self.tensors({"w": {"dtype": "F32"}}), "its header cannot be read")
        self.refused(lambda: lmx.tensors(self.write("long", struct.pack("<Q", 1 << 60))), "its header cannot be read")
        self.refused(lambda: self.tensors(entry(), b"1234"), "4 bytes of data, and its header describes 8")
        self.refused(lambda: self.tensors(entry(shape=(3,)), bytes(8)), "'w' (3,) F32 does not fill its 8 bytes")
        self.refused(lambda: self.tensors(entry("F8_E4M3", (8,)), bytes(8)), "type F8_E4M3, which is not supported")


@has("pandas", "polars", "yaml")
class Frames(Folders):
    def test_frames_of_both_kinds_have_the_same_values(self):
        run = lmx.Run(self.train("run"))
        for split in ("train", "valid", "rank"):
            pandas, polars = run.metrics(split), run.metrics(split, frame="polars")
            self.assertEqual(list(pandas.columns), polars.columns)
            rows = pandas.astype(object).where(pandas.notna(), None).to_dict("records")
            self.assertEqual(rows, polars.to_dicts())
        self.write("mixed/metrics.jsonl", '{"step":1,"split":"train","a":1}\n{"step":2,"split":"train","a":2.5,"b":"NaN"}\n')
        mixed = lmx.Run(self.folder / "mixed")
        self.assertEqual(mixed.metrics(frame="polars")["a"].to_list(), [1.0, 2.5])
        self.assertEqual(mixed.metrics()["b"].isna().tolist(), [True, True])

    def test_the_configuration_has_numbers(self):
        config = lmx.Run(self.train("config", "optimizer.eps=1e-7")).config
        self.assertEqual((config["optimizer"]["eps"], config["optimizer"]["lr"]), (1e-7, 0.01))  # no texts
        self.assertEqual((config["model"]["cells"], config["stop"]["when"], config["deterministic"]), (16, "", True))

    def test_runs_may_have_columns_of_settings(self):
        for name, lr in (("grid/a", 1e-3), ("grid/b", 2e-3)):
            self.train(name, f"optimizer.lr={lr}")
        table = lmx.runs(self.folder / "grid", settings=["optimizer.lr"])
        self.assertEqual(table["optimizer.lr"].tolist(), [1e-3, 2e-3])
        self.refused(lambda: lmx.runs(self.folder / "grid", settings=["optimizer.rl"]), "did you mean 'optimizer.lr'?")


@has("pandas", "numpy", "matplotlib", "yaml")
class Document(Folders):
    def test_every_command_and_example_of_the_page_works(self):
        page = (SOURCES / "docs/python.md").read_text()
        (self.folder / "recipes").symlink_to(SOURCES / "recipes")
        blocks = re.findall(r"^```(sh|python|text)\n(.*?)^```$", page, re.M | re.S)
        self.assertGreater(len([b for kind, b in blocks if kind == "python"]), 6)
        code = "".join(f"import subprocess; subprocess.run({b!r}, shell=True, check=True)\n" if kind == "sh" else b
                       for kind, b in blocks if kind != "text")
        environment = {**os.environ, "MPLBACKEND": "pdf", "PYTHONPATH": str(SOURCES / "tools/python"),
                       "PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}"}
        result = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=self.folder, env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 0, result.stderr)
        for kind, text in blocks:
            if kind == "text":
                self.assertIn(text.strip(), result.stdout)
        self.assertTrue((self.folder / "learning_rates.pdf").read_bytes().startswith(b"%PDF"))


def exit_code(result):
    skipped = result.skipped and len(result.skipped) >= result.testsRun
    return 77 if skipped else 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(exit_code(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result))
