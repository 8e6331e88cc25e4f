#!/usr/bin/env python3
"""Training steps of `lmx run` whose ranks are processes of this host, beside `torch_bench.py --ranks N`.

    tools/dev/peers/lmx_ranks.py --ranks 2                             every workload, fp32 and bf16, over comm=gloo
    tools/dev/peers/lmx_ranks.py --ranks 2 --precision fp32 word_lstm sync=allgather comm=mpi        with overrides for each run
    peers/bin/python tools/dev/peers/torch_bench.py --ranks 2 word_lstm gpt

The workloads are those of `lmx bench`, on random words. Prints a JSON line for each, with the median seconds of a step and the part
of it in which all ranks waited for messages.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
CHARS = ["shakespeare.yaml", "~schedule.warmup", "~schedule.min_lr", "~model.d", "~model.ffn", "~model.dropout",
         "~optimizer.weight_decay", "optimizer=adam", "clip=1", "loss.bias=true", "sync=allreduce", "batch.global=32"]
WORKLOADS = {
    "word_lstm": ["patwary_word_wire.yaml", "data.vocab_size=100_000", "batch.global=32", "loss.bias=true", "~loss.normalize",
                  "sync=unique", "clip=[{params: '^lstm\\.', norm: 1}]"],
    "char_rhn": CHARS + ["data.vocab_size=98", "batcher.sequence_length=50", "model=rhn", "model.embedding=512", "model.cells=512",
                         "model.depth=10"],
    "char_mlstm": CHARS + ["data.vocab_size=256", "batcher.sequence_length=64", "model=mlstm", "model.embedding=64",
                           "model.cells=1024", "model.weight_norm='mlstm\\..*'"],
    "gpt": ["gpt_tinyshakespeare.yaml", "data.vocab_size=8192", "batcher.sequence_length=256", "batch.global=8", "model.layers=6",
            "model.d=384", "model.heads=6", "model.kv_heads=2", "model.ffn=1024", "model.dropout=0", "~schedule.warmup",
            "~schedule.min_lr"],
}


def measure(name, precision, args):
    recipe, *overrides = WORKLOADS[name]
    with tempfile.TemporaryDirectory() as parent:
        folder = os.path.join(parent, "run")
        command = [args.lmx, "run", os.path.join(ROOT, "recipes", recipe), "data=synthetic", "schedule=constant", *overrides,
                   f"precision={precision}", f"train.steps={args.steps + 3}", "train.log_every=1", "train.eval_every=0",
                   "run.tensorboard=false", "run.dir=" + folder,
                   *(["comm=gloo", f"comm.ranks={args.ranks}"] if args.ranks > 1 else ["comm=self"]), *args.override]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{ended.stderr}")
        with open(os.path.join(folder, "metrics.jsonl")) as lines:
            records = [r for r in map(json.loads, lines) if r["split"] == "train"][3:]
    median = lambda key: round(statistics.median(r.get(key, 0) for r in records), 5)
    return {"lmx": "run", "workload": name, "precision": precision, "ranks": args.ranks, "step_s": median("step_s"),
            "exposed_s": median("comm_exposed_s")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORKLOAD|KEY=VALUE", help=f"{', '.join(WORKLOADS)}; all of them without one")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--precision", choices=["fp32", "bf16", "all"], default="all")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lmx", default=os.path.join(ROOT, "build/bin/lmx"))
    args = parser.parse_args()
    names = [w for w in args.words if "=" not in w]
    args.override = [w for w in args.words if "=" in w]
    if unknown := set(names) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    for name in names or WORKLOADS:
        for precision in ["fp32", "bf16"] if args.precision == "all" else [args.precision]:
            print(json.dumps(measure(name, precision, args)), flush=True)


if __name__ == "__main__":
    main()
