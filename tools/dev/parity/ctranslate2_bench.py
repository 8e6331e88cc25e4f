#!/usr/bin/env python3
"""Compares `lmx translate` with CTranslate2: the same weights, sentences and search, in alternating measurements.

Reads a run of the model `transformer` (post- or pre-norm, any sharing of tables), writes its parameters as a CTranslate2 model, and
translates the test split of the run's data with both, each time in a separate process. The seconds are those of translation;
loading is not counted on either side. lmx reads and writes text, CTranslate2 reads and writes subwords.
Prints one JSON line: tokens per second of each measurement, their ratio, CPU seconds (more reliable than elapsed time if other programs
run; for lmx minus those of an empty input), the number of equal translations, and BLEU of one side with the other as reference.

usage: ctranslate2_bench.py RUN [--lmx build/bin/lmx] [--length 25] [--rounds 3]
needs: pip install ctranslate2 numpy sentencepiece sacrebleu
"""
import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import golden_file

EOS = 1  # lmx: <unk> is 0, </s> is 1
ROOT = pathlib.Path(__file__).resolve().parents[3]


# ---- lmx's files

def read_safetensors(path):
    tensors, _ = golden_file.read(path)
    for name, (dtype, _, _) in tensors.items():
        if dtype != "F32":
            sys.exit(f"{path}: {name} is {dtype}, F32 expected")
    return {name: np.frombuffer(content, np.float32).reshape(shape) for name, (_, shape, content) in tensors.items()}


def read_shard(path):
    """Reads sentences of ids, including </s>: a 64-byte header, then i32."""
    data = path.read_bytes()
    if data[:8] != b"LMXTOK\r\n":
        sys.exit(f"{path}: no shard of lmx")
    ids = np.frombuffer(data, np.int32, offset=64)
    return [s.tolist() for s in np.split(ids, np.flatnonzero(ids == EOS) + 1) if len(s)]


def model_config(run):
    """The keys of `model:` in a run's config.yaml, which contains all keys."""
    text = re.search(r"^model:\n((?:  .*\n)+)", (run / "config.yaml").read_text(), re.M).group(1)
    values = dict(re.findall(r"^  (\w+): (\S+)", text, re.M))
    if values.pop("name") != "transformer":
        sys.exit(f"{run}: its model is no transformer")
    return {k: int(v) if v.isdigit() else v for k, v in values.items()}


def checkpoint_of(run, which):
    steps = sorted(int(p.name[5:]) for p in (run / "checkpoints").glob("step-*"))
    return run / "checkpoints" / f"step-{steps[-1] if which == 'last' else which}"


# ---- conversion

def positions(count, d):
    """fairseq's sinusoids, as in plugins/models/transformer/network.cc: computed in f64, rounded once."""
    half = d // 2
    angles = np.arange(count)[:, None] * np.exp(-np.log(10000.0) / max(1, half - 1) * np.arange(half))
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


def convert(params, model, folder, longest):
    import ctranslate2
    from ctranslate2.specs import TransformerSpec

    spec = TransformerSpec.from_config((model["encoder_layers"], model["decoder_layers"]), model["heads"], pre_norm=model["norm"] == "pre")

    def linear(to, name):
        to.weight, to.bias = params[name + ".weight"], params[name + ".bias"]

    def norm(to, name):
        to.gamma, to.beta = params[name + ".gain"], params[name + ".bias"]

    shared = params.get("embedding.weight")
    target = shared if shared is not None else params["decoder.embedding.weight"]
    source = shared if shared is not None else params["encoder.embedding.weight"]
    for side, table in ((spec.encoder, source), (spec.decoder, target)):
        (side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings).weight = table
        side.scale_embeddings = True  # by sqrt(d)
        side.position_encodings.encodings = positions(longest, model["d"])
    spec.decoder.projection.weight = params.get("softmax.weight", target)
    if "softmax.bias" in params:
        spec.decoder.projection.bias = params["softmax.bias"]
    for side, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        for i, layer in enumerate(side.layer):
            p = f"{name}.{i}."
            linear(layer.self_attention.linear[0], p + "self.qkv")
            linear(layer.self_attention.linear[1], p + "self.out")
            norm(layer.self_attention.layer_norm, p + "self.norm")
            if name == "decoder":
                linear(layer.attention.linear[0], p + "cross.q")
                linear(layer.attention.linear[1], p + "cross.kv")
                linear(layer.attention.linear[2], p + "cross.out")
                norm(layer.attention.layer_norm, p + "cross.norm")
            linear(layer.ffn.linear_0, p + "ffn.in")
            linear(layer.ffn.linear_1, p + "ffn.out")
            norm(layer.ffn.layer_norm, p + "ffn.norm")
        if model["norm"] == "pre":
            norm(side.layer_norm, name + ".norm")
    words = ["<unk>", "</s>"] + [str(i) for i in range(2, len(target))]  # a subword's name is its id
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token = spec.config.decoder_start_token = "</s>"
    spec.config.layer_norm_epsilon = 1e-5
    spec.validate()
    spec.optimize(quantization=None)
    folder.mkdir()
    spec.save(str(folder))
    return ctranslate2.__version__


# ---- the two sides

def word_of(i):
    return "</s>" if i == EOS else "<unk>" if i == 0 else str(i)


def penalties(o):
    kind, _, alpha = o.length_penalty.partition(":")
    return float(alpha) if kind == "fairseq" else 0.0


def ct2_worker(o):
    """Runs one timed translation in this process and prints its results as JSON."""
    import ctranslate2

    sentences = [[word_of(i) for i in s] for s in json.loads(pathlib.Path(o.sentences).read_text())]
    translator = ctranslate2.Translator(o.model, device="cpu", compute_type="float32", inter_threads=1, intra_threads=o.threads)
    lengths = dict(min_decoding_length=o.length, max_decoding_length=o.length) if o.length else dict(max_decoding_length=256)
    begin, cpu = time.perf_counter(), process_seconds()
    results = translator.translate_batch(sentences, beam_size=o.beam, max_batch_size=o.batch, batch_type="examples",
                                         length_penalty=penalties(o), return_scores=True, disable_unk=True, **lengths)
    seconds = time.perf_counter() - begin
    found = [[int(w) for w in r.hypotheses[0] if w != "</s>"] for r in results]
    json.dump({"seconds": seconds, "ids": found, "cpu_seconds": process_seconds() - cpu}, sys.stdout)


def process_seconds():
    times = os.times()
    return times.user + times.system


def output_of(command, threads):
    out = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    if out.returncode != 0:
        sys.exit(f"{command[0]} ended with {out.returncode}: {out.stderr}")
    return out


def run_ct2(o, model, sentences):
    out = output_of([sys.executable, __file__, "--worker", str(model), "--sentences", str(sentences), *search_options(o)],
                    o.threads)
    return json.loads(out.stdout)


def search_options(o):
    return ["--beam", str(o.beam), "--batch", str(o.batch), "--threads", str(o.threads), "--length", str(o.length),
            "--length-penalty", o.length_penalty]


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_lmx(o, text, output):
    before = cpu_of_children()
    lengths = ["--min-length", str(o.length), "--max-length", f"0,{o.length}"] if o.length else ["--max-length", "0,256"]
    out = output_of([o.lmx, "translate", o.run, "--checkpoint", o.checkpoint, "--input", str(text), "--output", str(output),
                     "--beam", str(o.beam), "--batch", str(o.batch), "--length-penalty", o.length_penalty, "--tokenized", "--stats",
                     *lengths], o.threads)
    tokens, seconds = re.search(r"sentences, (\d+) tokens in ([\d.]+) s", out.stderr).groups()
    return {"tokens": int(tokens), "seconds": float(seconds), "cpu_seconds": cpu_of_children() - before}


def cpu_name():
    found = re.search(r"^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return found.group(1) if found else "unknown"


def compare(o):
    import sacrebleu
    import sentencepiece

    run = pathlib.Path(o.run)
    model = model_config(run)
    params = read_safetensors(checkpoint_of(run, o.checkpoint) / "model.safetensors")
    data = pathlib.Path(o.data or json.loads((run / "provenance.json").read_text())["starts"][-1]["data"]["directory"])
    sentences = read_shard(data / "test.source.bin")[:o.sentences_at_most]
    lines = (data / "test.source.txt").read_text().split("\n")[:len(sentences)]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        version = convert(params, model, folder / "ct2", 1 + max(300, o.length, max(map(len, sentences))))
        (folder / "sentences.json").write_text(json.dumps(sentences))
        (folder / "in.txt").write_text("".join(line + "\n" for line in lines))
        (folder / "empty.txt").write_text("")
        loading = min(run_lmx(o, folder / "empty.txt", folder / "out.txt")["cpu_seconds"] for _ in range(2))
        ours, theirs = [], []
        for _ in range(o.rounds):
            ours.append(run_lmx(o, folder / "in.txt", folder / "out.txt"))
            theirs.append(run_ct2(o, folder / "ct2", folder / "sentences.json"))
        written = (folder / "out.txt").read_text().split("\n")[:len(lines)]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(run / "subwords.model"))
    expected = [pieces.decode(ids) for ids in theirs[0]["ids"]]
    equal = sum(a.split() == b.split() for a, b in zip(written, expected))
    bleu = sacrebleu.corpus_bleu(written, [expected], tokenize="none", force=True).score
    tokens = sum(len(ids) + 1 for ids in theirs[0]["ids"])
    lmx_speed = [r["tokens"] / r["seconds"] for r in ours]
    ct2_speed = [tokens / r["seconds"] for r in theirs]
    line = {"cpu": cpu_name(), "threads": o.threads, "model": {k: model[k] for k in ("d", "ffn", "heads", "encoder_layers", "decoder_layers", "norm")},
            "vocabulary": len(next(v for k, v in params.items() if k.endswith("embedding.weight"))), "ctranslate2": version,
            "sentences": len(lines), "beam": o.beam, "batch": o.batch, "length": o.length or "free",
            "tokens": {"lmx": ours[0]["tokens"], "ctranslate2": tokens},
            "lmx_tokens_per_s": [round(x, 1) for x in lmx_speed], "ctranslate2_tokens_per_s": [round(x, 1) for x in ct2_speed],
            "lmx_cpu_s": [round(r["cpu_seconds"] - loading, 2) for r in ours],
            "ctranslate2_cpu_s": [round(r["cpu_seconds"], 2) for r in theirs],
            "ratio": round(statistics.median(lmx_speed) / statistics.median(ct2_speed), 3),
            "equal": round(equal / len(lines), 4), "bleu_of_one_by_the_other": round(bleu, 2)}
    print(json.dumps(line))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("run", nargs="?", help="a translation run's folder")
    p.add_argument("--lmx", default=str(ROOT / "build/bin/lmx"))
    p.add_argument("--data", help="the prepared data; default: what the run was trained on, by its provenance.json")
    p.add_argument("--checkpoint", default="last", help="last, or a step")
    p.add_argument("--beam", type=int, default=4)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--threads", type=int, default=2, help="of CTranslate2; lmx takes `threads` of the run's recipe")
    p.add_argument("--length-penalty", default="fairseq:0.6", help="fairseq:A or none")
    p.add_argument("--length", type=int, default=0, help="tokens of every translation, so that an untrained model's work is equal; 0: free")
    p.add_argument("--sentences-at-most", type=int, default=1000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--worker", dest="model", help=argparse.SUPPRESS)
    p.add_argument("--sentences", help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.model:
        return ct2_worker(o)
    if not o.run:
        p.error("RUN is missing")
    compare(o)


main()
