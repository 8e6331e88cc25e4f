#!/usr/bin/env python3
"""Training steps of JAX, tuned by hand for CPUs, on the workloads of `lmx bench`: the peer of README's table.

    python -m venv peers && peers/bin/pip install "jax[cpu]==0.10.2"             the version that the tuning was measured with
    peers/bin/python tools/dev/peers/jax_bench.py                                    every workload, fp32 and bf16
    peers/bin/python tools/dev/peers/jax_bench.py --precision fp32 char_rhn          one of them
    peers/bin/python tools/dev/peers/jax_bench.py --check                            compares its backward passes with JAX's own
    python3 tools/dev/peers/jax_bench.py --scale paper --precision bf16 char_rhn     on a GPU, with the sizes of `lmx bench --scale paper`
    tools/lmx bench word_lstm --precision fp32                                   lmx, in the same sitting

Prints a JSON line for each workload and precision, with the fields of torch_bench.py. The models, their sizes, dropout, clipping and
optimizers are those of torch_bench.py, and the step contains the same work: drawing the batch, forward, backward, clipping and the
update. bf16 keeps parameters and activations in float32, rounds the inputs of each matrix product to bfloat16 and accumulates in
float32. XLA compiles in the first step, which is not counted; this takes seconds. jax_ops.py contains most of the tuning.
"""
import argparse
import json
import math
import os
import resource
import statistics
import sys
import time
from dataclasses import dataclass, replace
from functools import partial

import jax
import numpy as np
from jax import numpy as jnp
from jax import tree
from jax.nn import logsumexp, relu, silu, softmax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from jax_optimizers import Adam, RowSparseSgd, table_rows, with_rows
from jax_ops import Dropout, Products, as_columns, layer_norm, lstm_core, mlstm_core, rhn_core, rms_norm, smoothed_cross_entropy


# Workloads. Each has an optimizer and these methods: params(normal) draws initial parameters; batch(random) draws a batch; ids(batch)
# returns, for each table, the ids of the rows that the batch uses; loss(o, params, rows, batch), with the products `o`; tokens(), the
# targets of a step; macs(), the multiply-adds of a forward pass in products with weights. Sizes are fields, because --check sets small
# ones.


def flat(ids):
    """(B, T) -> (T * B), the order of as_columns."""
    return ids.T.reshape(-1)


def uniform_ids(random, vocab, *shape):
    return random.integers(0, vocab, shape, np.int32)


def zipf_ids(random, vocab, *shape):
    """P(id k) ~ 1 / (k + 1), as words in a text."""
    return np.minimum((vocab + 1.0) ** random.random(shape) - 1, vocab - 1).astype(np.int32)


@dataclass
class WordLstm:
    """Patwary et al. 2018: LSTM with projection, sampled softmax over log-uniform candidates with logQ correction."""
    vocab: int = 100_000
    width: int = 512
    cells: int = 2048
    samples: int = 1024
    sequences: int = 32
    steps: int = 20

    optimizer = RowSparseSgd(0.2)

    def params(self, normal):
        width, gates = self.width, 4 * self.cells
        lstm = {"wx": normal(width, gates), "wh": normal(width, gates), "bx": normal(gates), "bh": normal(gates),
                "wr": normal(self.cells, width)}
        return {"embedding": normal(self.vocab, width), "output": normal(self.vocab, width), "bias": jnp.zeros(self.vocab),
                "lstm": lstm}

    def batch(self, random):
        draw = partial(zipf_ids, random, self.vocab)
        return {"inputs": draw(self.sequences, self.steps), "targets": draw(self.sequences, self.steps),
                "candidates": draw(self.samples)}

    def ids(self, batch):
        words = jnp.concatenate([flat(batch["targets"]), batch["candidates"]])  # one gather and one update for both
        return {"embedding": flat(batch["inputs"]), "output": words, "bias": words}

    def log_expected_count(self, words):
        return jnp.log(jnp.log((words + 2.0) / (words + 1.0)) / math.log(self.vocab + 1) * self.samples)

    def loss(self, o, p, rows, batch):
        targets, candidates, lstm = flat(batch["targets"]), batch["candidates"], p["lstm"]
        projections = o.matmul(rows["embedding"], lstm["wx"])
        hidden = as_columns(lstm_core(o, self.steps)(lstm["wh"], lstm["wr"], lstm["bx"] + lstm["bh"], projections))
        output, bias, n = rows["output"], rows["bias"] - self.log_expected_count(self.ids(batch)["output"]), len(targets)
        true = (hidden * output[:n].T).sum(0) + bias[:n]
        drawn = o.matmul(output[n:], hidden) + bias[n:, None]  # (samples, T * B)
        drawn = jnp.where(candidates[:, None] == targets, -1e4, drawn)  # accidental hits
        return (jnp.logaddexp(logsumexp(drawn, 0), true) - true).mean()

    def tokens(self):
        return self.sequences * self.steps

    def macs(self):
        return self.tokens() * (2 * self.width * 4 * self.cells + self.cells * self.width + self.width * (self.samples + 1))


class CharModel:
    """The common part of both character models: an embedding, a cell over time, a full softmax."""

    def params(self, normal):
        # The output weight is (V, N), because weight @ states needs no other layout of the states.
        output = {"weight": normal(self.vocab, self.hidden), "bias": normal(self.vocab)}
        return {"embedding": normal(self.vocab, self.width), "output": output, "cell": self.cell(normal)}

    def batch(self, random):
        draw = partial(uniform_ids, random, self.vocab, self.sequences, self.steps)
        return {"inputs": draw(), "targets": draw()}

    def ids(self, batch):
        return {"embedding": flat(batch["inputs"])}

    def loss(self, o, p, rows, batch):
        hidden = as_columns(self.states(o, p["cell"], rows["embedding"]))
        logits = o.matmul(p["output"]["weight"], hidden) + p["output"]["bias"][:, None]  # (V, T * B)
        # A sum and not a gather: the gradient of a gather is a scatter, which XLA does not compute in the loop of the softmax.
        hit = jnp.where(jnp.arange(self.vocab)[:, None] == flat(batch["targets"]), logits, 0).sum(0)
        return (logsumexp(logits, 0) - hit).mean()

    def tokens(self):
        return self.sequences * self.steps

    def macs(self):
        return self.tokens() * (self.cell_macs() + self.hidden * self.vocab)


@dataclass
class CharRhn(CharModel):
    """Zilly et al. 2016, Patwary et al. 2018: s' = h t + s (1 - t), ten times per character; the first one also uses the input."""
    vocab: int = 98
    width: int = 512
    hidden: int = 512
    depth: int = 10
    sequences: int = 32
    steps: int = 50

    optimizer = Adam(1e-3)

    def cell(self, normal):
        both, layers = 2 * self.hidden, range(self.depth)
        return {"input": normal(self.width, both), "input_bias": normal(both),
                "weights": [normal(self.hidden, both) for _ in layers], "biases": [normal(both) for _ in layers]}

    def states(self, o, p, embedded):
        return rhn_core(o, self.steps)(p["weights"], p["biases"], o.matmul(embedded, p["input"]) + p["input_bias"])

    def cell_macs(self):
        return 2 * self.hidden * (self.width + self.depth * self.hidden)


@dataclass
class CharMlstm(CharModel):
    """Krause et al. 2016, Puri et al. 2018: the LSTM's gates use m = (W_mx x) * (W_mh h); weight norm on all four matrices."""
    vocab: int = 256
    width: int = 64
    hidden: int = 1024
    sequences: int = 32
    steps: int = 64

    optimizer = Adam(5e-4)

    def cell(self, normal):
        def normed(*shape):  # (in, out), a gain for each output
            v = normal(*shape)
            return {"v": v, "g": jnp.sqrt((v * v).sum(0))}

        width, hidden = self.width, self.hidden
        return {"mh": normed(hidden, hidden), "m": normed(hidden, 4 * hidden), "mx": normed(width, hidden),
                "x": normed(width, 4 * hidden), "bias": normal(4 * hidden)}

    def states(self, o, p, embedded):
        gain = {name: p[name]["g"] / jnp.sqrt((p[name]["v"] ** 2).sum(0)) for name in ("mh", "m", "mx", "x")}
        project = lambda name: o.matmul(embedded, p[name]["v"] * gain[name])
        return mlstm_core(o, self.steps)(p["mh"]["v"], p["m"]["v"], gain["mh"], gain["m"], p["bias"], project("mx"), project("x"))

    def cell_macs(self):
        return 5 * self.hidden * (self.width + self.hidden)


@dataclass
class NmtTransformer:
    """Vaswani et al. 2017, base, as torch.nn.Transformer: drops residual branches, attention weights and the FFN's activations."""
    vocab: int = 32_000
    d: int = 512
    ffn: int = 2048
    heads: int = 8
    layers: int = 6
    pairs: int = 64
    source: int = 24
    target: int = 26

    optimizer = Adam(5e-4, 0.9, 0.98, clipped=False)

    def params(self, normal):
        d, ffn = self.d, self.ffn
        norm = lambda: {"scale": jnp.ones(d), "shift": jnp.zeros(d)}
        attention = lambda: {"qkv": normal(d, 3 * d), "qkv_bias": normal(3 * d), "out": normal(d, d), "out_bias": normal(d),
                             "norm": norm()}
        # `down` is (d, ffn): its gradient is gradient^T @ hidden, so that Products.transposed copies d columns instead of ffn.
        layer = lambda count: {"attentions": [attention() for _ in range(count)], "up": normal(d, ffn), "up_bias": normal(ffn),
                               "down": normal(d, ffn), "down_bias": normal(d), "norm": norm()}
        stack = lambda count: {"layers": [layer(count) for _ in range(self.layers)], "norm": norm()}
        return {"embedding": normal(self.vocab, d), "encoder": stack(1), "decoder": stack(2)}

    def batch(self, random):
        draw = lambda length: uniform_ids(random, self.vocab, self.pairs, length)
        return {"source": draw(self.source), "inputs": draw(self.target), "targets": draw(self.target),
                "seed": random.integers(2**32, dtype=np.uint32)}

    def ids(self, batch):
        return {"embedding": jnp.concatenate([batch["source"].reshape(-1), batch["inputs"].reshape(-1)])}

    def loss(self, o, p, rows, batch):
        drop = Dropout(0.1, batch["seed"])
        source, inputs = jnp.split(rows["embedding"] * math.sqrt(self.d), [self.pairs * self.source])
        causal = jnp.where(jnp.tri(self.target, dtype=bool), 0.0, -jnp.inf)
        memory = self.stack(o, drop, p["encoder"], source, [(None, 0)])
        hidden = self.stack(o, drop, p["decoder"], inputs, [(None, causal), (memory, 0)])
        return smoothed_cross_entropy(o, 0.1)(p["embedding"], hidden, batch["targets"].reshape(-1))

    def stack(self, o, drop, p, x, attended):
        """`attended` has, for each attention of a layer, the sequence that it reads (None: x itself) and its mask."""
        for layer in p["layers"]:
            for attention, (memory, mask) in zip(layer["attentions"], attended):
                x = layer_norm(x + self.attend(o, drop, attention, x, memory, mask), attention["norm"])
            hidden = drop(relu(o.matmul(x, layer["up"]) + layer["up_bias"]))
            x = layer_norm(x + drop(o.matmul_nt(hidden, layer["down"]) + layer["down_bias"]), layer["norm"])
        return layer_norm(x, p["norm"])

    def attend(self, o, drop, p, x, memory, mask):
        head = self.d // self.heads

        def project(z, first, last):  # to the thirds of qkv from first to last, in one product
            columns = slice(first * self.d, last * self.d)
            return jnp.split(o.matmul(z, p["qkv"][:, columns]) + p["qkv_bias"][columns], last - first, 1)

        by_head = lambda z: z.reshape(self.pairs, -1, self.heads, head).swapaxes(1, 2)
        q, k, v = project(x, 0, 3) if memory is None else project(x, 0, 1) + project(memory, 1, 3)
        weights = drop(softmax(o.matmul_nt(by_head(q), by_head(k)) * head**-0.5 + mask, -1))
        return drop(o.matmul(o.matmul(weights, by_head(v)).swapaxes(1, 2).reshape(-1, self.d), p["out"]) + p["out_bias"])

    def tokens(self):
        return self.pairs * self.target

    def macs(self):
        encoder = self.layers * (4 * self.d**2 + 2 * self.d * self.ffn)
        decoder = self.layers * (8 * self.d**2 + 2 * self.d * self.ffn) + self.d * self.vocab
        return self.pairs * (self.source * encoder + self.target * decoder)


@dataclass
class Gpt:
    """A decoder of the kind of Llama: RMS normalisation, rotary positions, grouped queries, SwiGLU, one table of words."""
    vocab: int = 8192
    d: int = 384
    ffn: int = 1024
    heads: int = 6
    kv_heads: int = 2
    layers: int = 6
    sequences: int = 8
    steps: int = 256

    optimizer = Adam(6e-4, 0.9, 0.95, decay=0.1)
    batch, tokens = CharModel.batch, CharModel.tokens

    def params(self, normal):
        d, qkv = self.d, (self.heads + 2 * self.kv_heads) * (self.d // self.heads)
        # `down` is (d, ffn), as in NmtTransformer. `up` has the gates, then the values.
        layer = lambda: {"attention_norm": jnp.ones(d), "qkv": normal(d, qkv), "out": normal(d, d), "ffn_norm": jnp.ones(d),
                         "up": normal(d, 2 * self.ffn), "down": normal(d, self.ffn)}
        return {"embedding": normal(self.vocab, d), "layers": [layer() for _ in range(self.layers)], "norm": jnp.ones(d)}

    def ids(self, batch):
        return {"embedding": batch["inputs"].reshape(-1)}

    def loss(self, o, p, rows, batch):
        x = rows["embedding"]
        for layer in p["layers"]:
            x = x + self.attend(o, layer, rms_norm(x, layer["attention_norm"]))
            gates, values = jnp.split(o.matmul(rms_norm(x, layer["ffn_norm"]), layer["up"]), 2, 1)
            x = x + o.matmul_nt(silu(gates) * values, layer["down"])
        return smoothed_cross_entropy(o, 0.0)(p["embedding"], rms_norm(x, p["norm"]), batch["targets"].reshape(-1))

    def attend(self, o, p, x):
        size, group = self.d // self.heads, self.heads // self.kv_heads
        by_head = o.matmul(x, p["qkv"]).reshape(self.sequences, self.steps, -1, size).swapaxes(1, 2)
        turned, v = jnp.split(by_head, [self.heads + self.kv_heads], 1)
        angles = np.arange(self.steps)[:, None] * 10000.0 ** (-np.arange(size // 2) / (size // 2))
        cosines, sines = (jnp.asarray(f(angles), x.dtype) for f in (np.cos, np.sin))
        first, second = jnp.split(turned, 2, 3)
        turned = jnp.concatenate([first * cosines - second * sines, first * sines + second * cosines], 3)
        q, k = jnp.split(turned, [self.heads], 1)
        q = q.reshape(self.sequences, self.kv_heads, group * self.steps, size)
        causal = jnp.tile(jnp.where(jnp.tri(self.steps, dtype=bool), 0.0, -jnp.inf), (group, 1))
        weights = softmax(o.matmul_nt(q, k) * size**-0.5 + causal, -1)
        y = o.matmul(weights, v).reshape(self.sequences, self.heads, self.steps, size)
        return o.matmul(y.swapaxes(1, 2).reshape(-1, self.d), p["out"])

    def macs(self):
        layer = self.d**2 * (2 * self.heads + 2 * self.kv_heads) // self.heads + 3 * self.d * self.ffn
        return self.tokens() * (self.layers * layer + self.d * self.vocab)


WORKLOADS = {"word_lstm": WordLstm, "char_rhn": CharRhn, "char_mlstm": CharMlstm, "nmt_transformer": NmtTransformer, "gpt": Gpt}
PAPER = {"word_lstm": WordLstm(sequences=128), "char_rhn": CharRhn(width=1792, hidden=1792, sequences=128, steps=150),
         "char_mlstm": CharMlstm(hidden=4096, sequences=128, steps=256),
         "nmt_transformer": NmtTransformer(d=1024, ffn=4096, heads=16, pairs=192, source=27, target=27),
         "gpt": Gpt(vocab=50_304, d=768, ffn=2048, heads=12, kv_heads=4, layers=12, sequences=16, steps=1024)}
TINY = {"word_lstm": WordLstm(23, 6, 5, 9, 3, 4), "char_rhn": CharRhn(11, 6, 5, 3, 3, 4), "char_mlstm": CharMlstm(11, 6, 5, 3, 4),
        "nmt_transformer": NmtTransformer(13, 8, 12, 2, 2, 3, 4, 5), "gpt": Gpt(13, 8, 12, 4, 2, 2, 3, 5)}


def initial_params(workload):
    random = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(random.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5))

    return workload.params(normal)


def loss_and_gradients(workload, products, params, batch):
    """Returns the loss, its gradients with respect to the parameters, and those with respect to the rows that ids() names.

    The second are separate because they are much smaller than gradients of whole tables.
    """
    loss = lambda params, rows: workload.loss(products, params, rows, batch)
    value, gradients = jax.value_and_grad(loss, (0, 1))(params, table_rows(params, workload.ids(batch)))
    return value, *gradients


def median_step(workload, products, steps, ranks):
    """`workload`: of one rank, a device of this process. Each rank has all parameters, and a part of the batch."""
    mesh = Mesh(np.array(jax.devices()[:ranks]), ("rank",))

    def step(state, batch):
        batch = tree.map(lambda all_of_rank: all_of_rank[0], batch)
        loss, dense, rows = loss_and_gradients(workload, products, state["params"], batch)
        ids = workload.ids(batch)
        if ranks > 1:
            gather = partial(jax.lax.all_gather, axis_name="rank", tiled=True)
            dense, ids = jax.lax.pmean(dense, "rank"), tree.map(gather, ids)
            rows = tree.map(lambda of_rank: gather(of_rank) / ranks, rows)
        return workload.optimizer.update(state, ids, dense, rows), loss[None]

    # One call for the whole step, which updates parameters and moments in place.
    spread = jax.shard_map(step, mesh=mesh, in_specs=(P(), P("rank")), out_specs=(P(), P("rank")), check_vma=False)
    call = jax.jit(spread, donate_argnums=0)
    random, seconds = np.random.default_rng(1), []
    state = jax.device_put(workload.optimizer.start(initial_params(workload)), NamedSharding(mesh, P()))
    for _ in range(3 + steps):  # three to compile and to warm up
        start = time.perf_counter()
        batch = tree.map(lambda *of_ranks: np.stack(of_ranks), *(workload.batch(random) for _ in range(ranks)))
        state, _ = jax.block_until_ready(call(state, batch))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[3:]), sum(p.size for p in tree.leaves(state["params"]))


def measure(name, precision, args):
    workload = TINY[name] if args.quick else PAPER[name] if args.scale == "paper" else WORKLOADS[name]()
    products = Products(jnp.bfloat16 if precision == "bf16" else jnp.float32)
    part = "pairs" if name == "nmt_transformer" else "sequences"
    of_rank = replace(workload, **{part: getattr(workload, part) // args.ranks})
    step, params = median_step(of_rank, products, args.steps, args.ranks)
    return {"peer": f"jax {jax.__version__}", "workload": name, "scale": "quick" if args.quick else args.scale, "precision": precision,
            "mode": "jit", "device": jax.default_backend(), "ranks": args.ranks,
            "threads": args.threads or len(os.sched_getaffinity(0)), "params": params, "step_s": round(step, 5),
            "tokens_per_s": round(workload.tokens() / step, 1), "gflops": round(6 * workload.macs() / step / 1e9, 1),
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def check(names):
    """Compares the gradients of tiny workloads with those of JAX's own differentiation of the same forward passes.

    Prints the largest relative error of a parameter's gradient. float64 makes the comparison exact. bf16 is compared as well, because
    only its scans store packed arrays; the two backward passes round to eight bits at different places.
    """
    jax.config.update("jax_enable_x64", True)
    passed = True
    for name in names:
        workload = TINY[name]
        params, batch = initial_params(workload), workload.batch(np.random.default_rng(1))

        def by_hand(products, params):
            _, dense, rows = loss_and_gradients(workload, products, params, batch)
            return with_rows(dense, workload.ids(batch), rows)

        def by_jax(products, params):
            return jax.grad(lambda p: workload.loss(products, p, table_rows(p, workload.ids(batch)), batch))(params)

        relative = lambda got, want: float(jnp.linalg.norm(got - want) / jnp.linalg.norm(want))
        for precision, dtype, tolerance in (("fp64", jnp.float64, 1e-10), ("bf16", jnp.bfloat16, 0.05)):
            products, plain = Products(dtype), Products(dtype, by_hand=False)
            typed = tree.map(lambda p: p.astype(products.result), params)
            errors = tree.map(relative, jax.jit(partial(by_hand, products))(typed), jax.jit(partial(by_jax, plain))(typed))
            good = all(error <= tolerance for error in tree.leaves(errors))  # NaN fails
            passed = passed and good
            print(json.dumps({"workload": name, "precision": precision, "gradient_error": max(tree.leaves(errors)),
                              "tolerance": tolerance, "passed": good}))
    return passed


def restart_with_malloc_settings():
    """Lets malloc keep freed memory, in huge pages: page faults took a quarter of a step of word_lstm without these settings.

    malloc reads them when a process starts, so the process executes itself again, unless the environment has settings already.
    """
    settings = ["hugetlb=1", "mmap_max=0", "arena_max=1", "trim_threshold=64000000000", "top_pad=268435456"]
    if "GLIBC_TUNABLES" not in os.environ:
        os.environ["GLIBC_TUNABLES"] = ":".join(f"glibc.malloc.{setting}" for setting in settings)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"{', '.join(WORKLOADS)}; all of them without one")
    parser.add_argument("--precision", choices=["fp32", "bf16", "all"], default="all")
    parser.add_argument("--scale", choices=["cpu", "paper"], default="cpu", help="paper: the sizes of the papers, for a GPU")
    parser.add_argument("--quick", action="store_true", help="tiny models")
    parser.add_argument("--threads", type=int, help="all cores without it")
    parser.add_argument("--ranks", type=int, default=1, help="devices of this process, each with its part of the batch")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--check", action="store_true", help="compare gradients with JAX's own differentiation; measure nothing")
    args = parser.parse_args()
    if unknown := set(args.workloads) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    if args.check:
        return 0 if check(args.workloads or WORKLOADS) else 1
    if args.scale == "cpu":
        restart_with_malloc_settings()
    elif jax.default_backend() != "gpu":
        parser.error("JAX finds no GPU")
    if args.ranks > 1:
        jax.config.update("jax_num_cpu_devices", args.ranks)
    if args.threads:
        os.environ["NPROC"] = str(args.threads)  # the size of XLA's thread pool
    for name in args.workloads or WORKLOADS:
        for precision in ["fp32", "bf16"] if args.precision == "all" else [args.precision]:
            print(json.dumps(measure(name, precision, args)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
