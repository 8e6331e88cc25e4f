#!/usr/bin/env python3
"""trackers_test.py BUILD_FOLDER CLASS: what `lmx report --to` writes, read by the programs for which it is written.

Exit code 77: the interpreter lacks their packages.
"""
import os
import sys
import unittest
import zlib
from pathlib import Path

from reader_test import Folders, exit_code, has, lmx

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # from version 3.7 on, MLflow asks for it


class Exported(Folders):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_ = lmx.Run(cls.train("words/first"))
        cls.folder.joinpath("out").mkdir()

    def export(self, program):
        os.chdir(self.folder / "out")  # where the files go
        self.addCleanup(os.chdir, "/")
        self.lmx("report", str(self.run_.folder), "--to", program, folder=Path.cwd())

    def values(self, split, key):
        return [(r["step"], r[key]) for r in self.run_.records(split)]


@has("mlflow", "pandas")
class Mlflow(Exported):
    def test_mlflow_reads_the_run(self):
        import mlflow
        self.export("mlflow")
        mlflow.set_tracking_uri(Path("mlruns").resolve().as_uri())
        [row] = mlflow.search_runs(experiment_names=["words"]).to_dict("records")
        self.assertEqual((row["status"], row["tags.mlflow.runName"], row["params.optimizer.lr"]), ("FINISHED", "first", "0.01"))
        self.assertEqual(row["metrics.valid/ppl"], self.values("valid", "ppl")[-1][1])
        client = mlflow.MlflowClient()
        for split, key in (("train", "ppl"), ("train", "grad_norm"), ("valid", "nll_nat")):
            history = client.get_metric_history(row["run_id"], f"{split}/{key}")
            self.assertEqual([(m.step, m.value) for m in history], self.values(split, key))
        mlflow.set_experiment("words")  # MLflow can write to the store, too
        with mlflow.start_run():
            mlflow.log_metric("loss", 1)
        self.export("mlflow")
        self.assertEqual(len(mlflow.search_runs(experiment_names=["words"])), 2)


@has("wandb")
class Wandb(Exported):
    def test_wandb_reads_the_records(self):
        from wandb.proto import wandb_internal_pb2 as messages
        self.export("wandb")
        [file] = Path("wandb").glob("offline-run-*/run-*.wandb")
        content, at, rows = file.read_bytes(), 7, []
        while at < len(content):  # a short run has one block
            size = int.from_bytes(content[at + 4:at + 6], "little")
            end = at + 7 + size
            self.assertEqual(int.from_bytes(content[at:at + 4], "little"), zlib.crc32(content[at + 6:end]))
            record = messages.Record.FromString(content[at + 7:end])
            self.assertEqual(record.SerializeToString(), content[at + 7:end])  # as protobuf writes it
            kind, at = record.WhichOneof("record_type"), end
            if kind == "history":
                rows.append({item.nested_key[0]: float(item.value_json) for item in record.history.item})
            elif kind == "run":
                self.assertEqual((record.run.project, record.run.display_name), ("words", "first"))
        self.assertEqual(kind, "exit")
        self.assertEqual([(r["_step"], r["train/ppl"]) for r in rows if "train/ppl" in r], self.values("train", "ppl"))
        self.assertEqual([(r["_step"], r["valid/ppl"]) for r in rows if "valid/ppl" in r], self.values("valid", "ppl"))


if __name__ == "__main__":
    sys.exit(exit_code(unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result))
