#!/usr/bin/env python3
"""Training steps of PyTorch on a CPU, on the workloads of `lmx bench`: the peer of README's table. torch_graph.py measures a GPU.

    python -m venv peers && peers/bin/pip install torch
    peers/bin/python tools/dev/peers/torch_bench.py                                  every workload, fp32 and bf16, eager mode
    peers/bin/python tools/dev/peers/torch_bench.py --compile char_rhn char_mlstm    torch.compile
    peers/bin/python tools/dev/peers/torch_bench.py --ranks 2 gpt word_lstm          DistributedDataParallel over Gloo, 2 processes
    tools/lmx bench word_lstm --precision fp32                                   lmx, in the same sitting

Prints a JSON line for each workload and precision, with the fields of `lmx bench`: median seconds of an optimizer step, tokens a
second, GFLOP/s of the products with weights (6 x multiply-adds of a forward pass), the number of parameters, and the peak memory of
the process so far. The step contains drawing the batch, forward, backward, clipping and the update, as lmx's does.
torch.compile does not take sparse gradients, so `word_lstm` runs in eager mode only.

With --ranks N, N processes of this host divide the sequences and the threads of a step, and the slowest one's time counts.
"""
import argparse
import json
import math
import os
import resource
import statistics
import time
from dataclasses import dataclass
from typing import Callable

import torch
from torch import distributed, multiprocessing, nn
from torch.nn import functional as F


@dataclass
class Workload:
    model: nn.Module
    batch: Callable  # () -> the arguments of the model, whose result is the loss
    tokens: int  # a step's targets
    macs: int  # multiply-adds of a forward pass, in products with weights
    optimizer: torch.optim.Optimizer
    clipped: bool  # the global norm of the dense gradients is clipped to 1

    def train(self, forward, precision, device):
        """A whole step. `forward` is the model or its compiled form. Returns the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            loss = forward(*self.batch())
        loss.backward()
        self.update()
        return loss.detach()

    def update(self):
        if self.clipped:
            nn.utils.clip_grad_norm_([p for p in self.model.parameters() if p.grad is not None and not p.grad.is_sparse], 1.0)
        self.optimizer.step()


def adam(parameters, rate, kind=torch.optim.Adam, **options):
    """On a GPU, one kernel updates many parameters, and a CUDA graph may contain it."""
    on_gpu = torch.get_default_device().type == "cuda"
    return kind(parameters, rate, fused=on_gpu, capturable=on_gpu, **options)


def ids(vocab, *shape):
    return torch.randint(0, vocab, shape)


def zipf_ids(vocab, *shape):
    """P(id k) ~ 1 / (k + 1), as words in a text."""
    return ((vocab + 1.0) ** torch.rand(*shape) - 1).long().clamp_(max=vocab - 1)


class WordLstm(nn.Module):
    """Patwary et al. 2018: LSTM with projection, sampled softmax over log-uniform candidates with logQ correction."""
    VOCAB, WIDTH, CELLS, SAMPLES, BATCH, STEPS = 100_000, 512, 2048, 1024, 32, 20

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(self.VOCAB, self.WIDTH, sparse=True)
        self.lstm = nn.LSTM(self.WIDTH, self.CELLS, proj_size=self.WIDTH, batch_first=True)
        self.rows = nn.Embedding(self.VOCAB, self.WIDTH, sparse=True)  # of the softmax; only gathered rows get gradients
        self.bias = nn.Embedding(self.VOCAB, 1, sparse=True)

    def log_expected_count(self, words):
        words = words.float()
        return torch.log(torch.log((words + 2) / (words + 1)) / math.log(self.VOCAB + 1) * self.SAMPLES)

    def forward(self, inputs, targets, candidates):
        hidden = self.lstm(self.embedding(inputs))[0].flatten(0, 1)  # (B * T, D)
        gathered = lambda words: (words, self.rows(words), self.bias(words))
        return self.loss(hidden, gathered(targets.flatten()), gathered(candidates))

    def loss(self, hidden, true, drawn):
        """true, drawn: (ids, their rows of the softmax, their biases) of the targets and of the candidates."""
        (targets, rows, bias), (candidates, drawn_rows, drawn_bias) = true, drawn
        true = (hidden * rows).sum(-1) + bias[:, 0] - self.log_expected_count(targets)
        drawn = hidden @ drawn_rows.t() + drawn_bias[:, 0] - self.log_expected_count(candidates)
        drawn = drawn.masked_fill(candidates == targets[:, None], -1e4)  # accidental hits
        logits = torch.cat([true[:, None], drawn], 1).float()
        return F.cross_entropy(logits, torch.zeros_like(targets))

    @classmethod
    def workload(cls):
        model, tokens = cls(), cls.BATCH * cls.STEPS
        macs = tokens * (2 * cls.WIDTH * 4 * cls.CELLS + cls.CELLS * cls.WIDTH + cls.WIDTH * (cls.SAMPLES + 1))
        draw = lambda: zipf_ids(cls.VOCAB, cls.BATCH, cls.STEPS)
        batch = lambda: (draw(), draw(), zipf_ids(cls.VOCAB, cls.SAMPLES))
        return Workload(model, batch, tokens, macs, torch.optim.SGD(model.parameters(), 0.2), True)


class CharModel(nn.Module):
    """The common part of both character models: an embedding, a cell over time, a full softmax."""

    def __init__(self, vocab, width, hidden):
        super().__init__()
        self.embedding, self.output = nn.Embedding(vocab, width), nn.Linear(hidden, vocab)
        self.hidden = hidden

    def forward(self, inputs, targets):
        states = self.states(self.embedding(inputs))  # (B, T, D)
        return F.cross_entropy(self.output(states).float().flatten(0, 1), targets.flatten())

    def workload(self, vocab, batch, steps, macs, rate):
        tokens = batch * steps
        draw = lambda: ids(vocab, batch, steps)
        return Workload(self, lambda: (draw(), draw()), tokens, tokens * (macs + self.hidden * vocab),
                        adam(self.parameters(), rate), True)


class CharRhn(CharModel):
    """Zilly et al. 2016, Patwary et al. 2018: s' = h t + s (1 - t), ten times per character; the first one also uses the input."""
    VOCAB, HIDDEN, DEPTH, BATCH, STEPS = 98, 512, 10, 32, 50

    def __init__(self):
        super().__init__(self.VOCAB, self.HIDDEN, self.HIDDEN)
        self.input = nn.Linear(self.HIDDEN, 2 * self.HIDDEN)
        self.layers = nn.ModuleList(nn.Linear(self.HIDDEN, 2 * self.HIDDEN) for _ in range(self.DEPTH))

    def states(self, embedded):
        projected = self.input(embedded)
        state, states = projected.new_zeros(len(embedded), self.hidden), []
        for t in range(embedded.shape[1]):
            for depth, layer in enumerate(self.layers):
                h, gate = (layer(state) + (projected[:, t] if depth == 0 else 0)).chunk(2, 1)
                gate = gate.sigmoid()
                state = h.tanh() * gate + state * (1 - gate)
            states.append(state)
        return torch.stack(states, 1)

    @classmethod
    def make(cls):
        return cls().workload(cls.VOCAB, cls.BATCH, cls.STEPS, cls.HIDDEN * 2 * cls.HIDDEN * (cls.DEPTH + 1), 1e-3)


class CharMlstm(CharModel):
    """Krause et al. 2016, Puri et al. 2018: the LSTM's gates use m = (W_mx x) * (W_mh h); weight norm on all four matrices."""
    VOCAB, WIDTH, HIDDEN, BATCH, STEPS = 256, 64, 1024, 32, 64

    def __init__(self):
        super().__init__(self.VOCAB, self.WIDTH, self.HIDDEN)
        norm = nn.utils.parametrizations.weight_norm
        self.x, self.mx = norm(nn.Linear(self.WIDTH, 4 * self.HIDDEN)), norm(nn.Linear(self.WIDTH, self.HIDDEN, bias=False))
        self.m = norm(nn.Linear(self.HIDDEN, 4 * self.HIDDEN, bias=False))
        self.mh = norm(nn.Linear(self.HIDDEN, self.HIDDEN, bias=False))

    def states(self, embedded):
        gates, factors = self.x(embedded), self.mx(embedded)
        with torch.nn.utils.parametrize.cached():  # the four matrices are normalised once a step
            h = c = gates.new_zeros(len(embedded), self.hidden)
            states = []
            for t in range(embedded.shape[1]):
                i, f, o, u = (gates[:, t] + self.m(factors[:, t] * self.mh(h))).chunk(4, 1)
                c = f.sigmoid() * c + i.sigmoid() * u.tanh()
                h = o.sigmoid() * c.tanh()
                states.append(h)
        return torch.stack(states, 1)

    @classmethod
    def make(cls):
        return cls().workload(cls.VOCAB, cls.BATCH, cls.STEPS, 5 * cls.HIDDEN * (cls.WIDTH + cls.HIDDEN), 5e-4)


class NmtTransformer(nn.Module):
    """Vaswani et al. 2017: nn.Transformer drops residual branches, attention weights and the FFN's activations."""
    VOCAB, D, FFN, HEADS, LAYERS, BATCH, SOURCE, TARGET = 32_000, 512, 2048, 8, 6, 64, 24, 26

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(self.VOCAB, self.D)
        self.transformer = nn.Transformer(self.D, self.HEADS, self.LAYERS, self.LAYERS, self.FFN, 0.1, batch_first=True)

    def forward(self, source, inputs, targets):
        causal = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1])
        scale = math.sqrt(self.D)
        hidden = self.transformer(self.embedding(source) * scale, self.embedding(inputs) * scale, tgt_mask=causal)
        logits = hidden @ self.embedding.weight.t()
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), label_smoothing=0.1)

    @classmethod
    def workload(cls):
        model = cls()
        encoder = cls.LAYERS * (4 * cls.D**2 + 2 * cls.D * cls.FFN)
        decoder = cls.LAYERS * (8 * cls.D**2 + 2 * cls.D * cls.FFN) + cls.D * cls.VOCAB
        macs = cls.BATCH * (cls.SOURCE * encoder + cls.TARGET * decoder)
        draw = lambda length: ids(cls.VOCAB, cls.BATCH, length)
        optimizer = adam(model.parameters(), 5e-4, betas=(0.9, 0.98), eps=1e-8)
        return Workload(model, lambda: (draw(cls.SOURCE), draw(cls.TARGET), draw(cls.TARGET)), cls.BATCH * cls.TARGET, macs,
                        optimizer, False)


class GptLayer(nn.Module):
    def __init__(self, d, heads, kv_heads, ffn):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, d // heads
        self.attention_norm, self.ffn_norm = nn.RMSNorm(d, 1e-6), nn.RMSNorm(d, 1e-6)
        self.qkv = nn.Linear(d, (heads + 2 * kv_heads) * self.size, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 2 * ffn, bias=False), nn.Linear(ffn, d, bias=False)  # up: the gates, then the values

    def forward(self, x, cosines, sines):
        by_head = self.qkv(self.attention_norm(x)).unflatten(2, (-1, self.size)).transpose(1, 2)
        turned, v = by_head.split([self.heads + self.kv_heads, self.kv_heads], 1)
        first, second = turned.chunk(2, 3)
        turned = torch.cat([first * cosines - second * sines, first * sines + second * cosines], 3)
        q, k = turned.to(v.dtype).split([self.heads, self.kv_heads], 1)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        gate, value = self.up(self.ffn_norm(x)).chunk(2, 2)
        return x + self.down(F.silu(gate) * value)


class Gpt(nn.Module):
    """A decoder of the kind of Llama: RMS normalisation, rotary positions, grouped queries, SwiGLU, one table of words."""
    VOCAB, D, FFN, HEADS, KV_HEADS, LAYERS, BATCH, STEPS = 8192, 384, 1024, 6, 2, 6, 8, 256

    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(self.VOCAB, self.D), nn.RMSNorm(self.D, 1e-6)
        nn.init.normal_(self.embedding.weight, 0, 0.02)
        self.layers = nn.ModuleList(GptLayer(self.D, self.HEADS, self.KV_HEADS, self.FFN) for _ in range(self.LAYERS))
        half = self.D // self.HEADS // 2
        angles = torch.arange(self.STEPS)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())

    def forward(self, inputs, targets):
        x = self.embedding(inputs)
        for layer in self.layers:
            x = layer(x, self.cosines, self.sines)
        logits = self.norm(x) @ self.embedding.weight.t()
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    @classmethod
    def workload(cls):
        model, tokens, d = cls(), cls.BATCH * cls.STEPS, cls.D
        layer = d * d * (2 + 2 * cls.KV_HEADS / cls.HEADS) + 3 * d * cls.FFN
        draw = lambda: ids(cls.VOCAB, cls.BATCH, cls.STEPS)
        optimizer = adam(model.parameters(), 6e-4, torch.optim.AdamW, betas=(0.9, 0.95), weight_decay=0.1)
        return Workload(model, lambda: (draw(), draw()), tokens, int(tokens * (cls.LAYERS * layer + d * cls.VOCAB)), optimizer, True)


WORKLOADS = {"word_lstm": WordLstm.workload, "char_rhn": CharRhn.make, "char_mlstm": CharMlstm.make,
             "nmt_transformer": NmtTransformer.workload, "gpt": Gpt.workload}


def median_seconds(step, steps):
    """The median time of `step`, which returns when all its work is done."""
    seconds = []
    for _ in range(3 + steps):  # three to warm up
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[3:])


def result(workload, name, seconds, **details):
    return {"peer": f"torch {torch.__version__}", "workload": name, **details,
            "params": sum(p.numel() for p in workload.model.parameters()), "step_s": round(seconds, 5),
            "tokens_per_s": round(workload.tokens / seconds, 1), "gflops": round(6 * workload.macs / seconds / 1e9, 1),
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def measure(name, precision, args):
    make, ranks = WORKLOADS[name], args.ranks
    torch.manual_seed(distributed.get_rank() if ranks > 1 else 0)
    workload = make()
    forward = nn.parallel.DistributedDataParallel(workload.model, gradient_as_bucket_view=True) if ranks > 1 else workload.model
    forward = torch.compile(forward) if args.mode == "compile" else forward
    details = {"precision": precision, "mode": args.mode, "device": "cpu", "threads": torch.get_num_threads(), "ranks": ranks}
    try:
        seconds = torch.tensor(median_seconds(lambda: workload.train(forward, precision, "cpu"), args.steps))
    except RuntimeError as error:  # a mode that PyTorch cannot run is a result as well
        return {"peer": f"torch {torch.__version__}", "workload": name, **details, "error": str(error).splitlines()[0]}
    if ranks > 1:
        distributed.all_reduce(seconds, distributed.ReduceOp.MAX)
        workload.tokens, workload.macs = workload.tokens * ranks, workload.macs * ranks
    return result(workload, name, seconds.item(), **details)


def measure_all(rank, args):
    torch.set_num_threads(args.threads)
    if args.ranks > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29417")
        distributed.init_process_group("gloo", rank=rank, world_size=args.ranks)
    for make in WORKLOADS.values():
        make.__self__.BATCH //= args.ranks  # of this process
    for name in args.workloads or WORKLOADS:
        for precision in ["fp32", "bf16"] if args.precision == "all" else [args.precision]:
            line = json.dumps(measure(name, precision, args))
            if rank == 0:
                print(line, flush=True)
    if args.ranks > 1:
        distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"{', '.join(WORKLOADS)}; all of them without one")
    parser.add_argument("--precision", choices=["fp32", "bf16", "all"], default="all")
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--compile", dest="mode", action="store_const", const="compile", help="--mode compile")
    parser.add_argument("--ranks", type=int, default=1, help="processes, each with its part of the batch")
    parser.add_argument("--threads", type=int, help="of a process; all cores, divided by the ranks, without it")
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    if unknown := set(args.workloads) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    args.threads = args.threads or max(1, torch.get_num_threads() // args.ranks)
    if args.ranks > 1:
        multiprocessing.spawn(measure_all, (args,), args.ranks)
    else:
        measure_all(0, args)


if __name__ == "__main__":
    main()
