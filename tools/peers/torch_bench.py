#!/usr/bin/env python3
"""Training steps of PyTorch on the workloads of `lmx bench`: the peer of README's table.

    python -m venv peers && peers/bin/pip install torch
    peers/bin/python tools/peers/torch_bench.py                                  every workload, fp32 and bf16, eager mode
    peers/bin/python tools/peers/torch_bench.py --compile char_rhn char_mlstm    torch.compile
    peers/bin/python tools/peers/torch_bench.py --device cuda --scale paper --mode cell char_rhn    on a GPU
    tools/lmx bench word_lstm --precision fp32                                   lmx, in the same sitting

Prints a JSON line for each workload and precision, with the fields of `lmx bench`: median seconds of an optimizer step, tokens a
second, GFLOP/s of the products with weights (6 x multiply-adds of a forward pass), the number of parameters, and the peak memory of
the process so far. The step contains drawing the batch, forward, backward, clipping and the update, as lmx's does.
torch.compile does not take sparse gradients, so `word_lstm` runs in eager mode only. On a GPU the optimizers are fused, except with
sparse gradients; the modes are: eager; compile, the whole model; reduce-overhead, the same with CUDA graphs; cell, one time step of a
recurrent model with CUDA graphs off, because its states are inputs of the next step.
"""
import argparse
import json
import math
import resource
import statistics
import time
from dataclasses import dataclass
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Workload:
    model: nn.Module
    batch: Callable  # () -> the arguments of the model, whose result is the loss
    tokens: int  # a step's targets
    macs: int  # multiply-adds of a forward pass, in products with weights
    optimizer: torch.optim.Optimizer
    clipped: bool  # the global norm of the dense gradients is clipped to 1


def fused(optimizer, parameters, *args, **options):
    """On a GPU one kernel updates many parameters."""
    return optimizer(parameters, *args, fused=torch.get_default_device().type == "cuda", **options)


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

    def forward(self, inputs, targets):
        hidden = self.lstm(self.embedding(inputs))[0].flatten(0, 1)  # (B * T, D)
        targets = targets.flatten()
        candidates = zipf_ids(self.VOCAB, self.SAMPLES)
        true = (hidden * self.rows(targets)).sum(-1) + self.bias(targets)[:, 0] - self.log_expected_count(targets)
        drawn = hidden @ self.rows(candidates).t() + self.bias(candidates)[:, 0] - self.log_expected_count(candidates)
        drawn = drawn.masked_fill(candidates == targets[:, None], -1e4)  # accidental hits
        logits = torch.cat([true[:, None], drawn], 1).float()
        return F.cross_entropy(logits, torch.zeros_like(targets))

    @classmethod
    def workload(cls):
        model, tokens = cls(), cls.BATCH * cls.STEPS
        macs = tokens * (2 * cls.WIDTH * 4 * cls.CELLS + cls.CELLS * cls.WIDTH + cls.WIDTH * (cls.SAMPLES + 1))
        draw = lambda: zipf_ids(cls.VOCAB, cls.BATCH, cls.STEPS)
        return Workload(model, lambda: (draw(), draw()), tokens, macs, torch.optim.SGD(model.parameters(), 0.2), True)


class CharModel(nn.Module):
    """The common part of both character models: an embedding, a cell over time, a full softmax."""

    def __init__(self, vocab, width, hidden):
        super().__init__()
        self.embedding, self.output = nn.Embedding(vocab, width), nn.Linear(hidden, vocab)
        self.hidden = hidden

    def forward(self, inputs, targets):
        states = torch.stack(self.states(self.embedding(inputs)), 1)  # (B, T, D)
        return F.cross_entropy(self.output(states).float().flatten(0, 1), targets.flatten())

    def workload(self, vocab, batch, steps, macs, rate):
        tokens = batch * steps
        draw = lambda: ids(vocab, batch, steps)
        return Workload(self, lambda: (draw(), draw()), tokens, tokens * (macs + self.hidden * vocab),
                        fused(torch.optim.Adam, self.parameters(), rate), True)


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
            state = self.cell(projected[:, t], state)
            states.append(state)
        return states

    def cell(self, projected, state):
        for depth, layer in enumerate(self.layers):
            h, gate = (layer(state) + (projected if depth == 0 else 0)).chunk(2, 1)
            gate = gate.sigmoid()
            state = h.tanh() * gate + state * (1 - gate)
        return state

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
                h, c = self.cell(gates[:, t], factors[:, t], h, c)
                states.append(h)
        return states

    def cell(self, gates, factors, h, c):
        i, f, o, u = (gates + self.m(factors * self.mh(h))).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * u.tanh()
        return o.sigmoid() * c.tanh(), c

    @classmethod
    def make(cls):
        return cls().workload(cls.VOCAB, cls.BATCH, cls.STEPS, 5 * cls.HIDDEN * (cls.WIDTH + cls.HIDDEN), 5e-4)


class NmtTransformer(nn.Module):
    """Vaswani et al. 2017: nn.Transformer drops residual branches, attention weights and the FFN's activations."""
    VOCAB, D, FFN, HEADS, LAYERS, PAIRS, SOURCE, TARGET = 32_000, 512, 2048, 8, 6, 64, 24, 26

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
        macs = cls.PAIRS * (cls.SOURCE * encoder + cls.TARGET * decoder)
        draw = lambda length: ids(cls.VOCAB, cls.PAIRS, length)
        optimizer = fused(torch.optim.Adam, model.parameters(), 5e-4, betas=(0.9, 0.98), eps=1e-8)
        return Workload(model, lambda: (draw(cls.SOURCE), draw(cls.TARGET), draw(cls.TARGET)), cls.PAIRS * cls.TARGET, macs,
                        optimizer, False)


WORKLOADS = {"word_lstm": WordLstm.workload, "char_rhn": CharRhn.make, "char_mlstm": CharMlstm.make,
             "nmt_transformer": NmtTransformer.workload}


# The sizes of `lmx bench --scale paper`.
PAPER = {WordLstm: {"BATCH": 128}, CharRhn: {"HIDDEN": 1792, "BATCH": 128, "STEPS": 150}, CharMlstm: {"HIDDEN": 4096, "BATCH": 128, "STEPS": 256},
         NmtTransformer: {"D": 1024, "FFN": 4096, "HEADS": 16, "PAIRS": 192, "SOURCE": 27, "TARGET": 27}}


def compiled(model, mode):
    if mode == "cell":
        model.cell = torch.compile(model.cell)
    return torch.compile(model, mode="reduce-overhead" if mode == "reduce-overhead" else "default") if mode in ("compile", "reduce-overhead") else model


def median_step(workload, precision, mode, device, steps):
    forward = compiled(workload.model, mode)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    seconds = []
    for _ in range(3 + steps):  # three to warm up
        wait()
        start = time.perf_counter()
        workload.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            loss = forward(*workload.batch())
        loss.backward()
        if workload.clipped:
            nn.utils.clip_grad_norm_([p for p in workload.model.parameters() if p.grad is not None and not p.grad.is_sparse], 1.0)
        workload.optimizer.step()
        wait()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[3:])


def measure(name, precision, args):
    torch.manual_seed(0)
    workload = WORKLOADS[name]()
    line = {"peer": f"torch {torch.__version__}", "workload": name, "scale": args.scale, "precision": precision, "mode": args.mode,
            "device": args.device, "threads": torch.get_num_threads(), "params": sum(p.numel() for p in workload.model.parameters())}
    if args.mode == "cell" and not hasattr(workload.model, "cell"):
        return {**line, "error": "the model has no cell of its own"}
    try:
        step = median_step(workload, precision, args.mode, args.device, args.steps)
    except RuntimeError as error:  # a mode that PyTorch cannot run is a result as well
        return {**line, "error": str(error).splitlines()[0]}
    return {**line, "step_s": round(step, 5), "tokens_per_s": round(workload.tokens / step, 1),
            "gflops": round(6 * workload.macs / step / 1e9, 1),
            **({"peak_gpu_mb": torch.cuda.max_memory_allocated() // 2**20} if args.device == "cuda" else {}),
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"{', '.join(WORKLOADS)}; all of them without one")
    parser.add_argument("--precision", choices=["fp32", "bf16", "all"], default="all")
    parser.add_argument("--mode", choices=["eager", "compile", "reduce-overhead", "cell"], default="eager")
    parser.add_argument("--compile", dest="mode", action="store_const", const="compile", help="--mode compile")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--scale", choices=["cpu", "paper"], default="cpu", help="paper: the sizes of the papers, for a GPU")
    parser.add_argument("--tf32", action="store_true", help="fp32 products on tensor cores, rounded to TF32 (lmx: tf32=true)")
    parser.add_argument("--threads", type=int, help="all cores without it")
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    if unknown := set(args.workloads) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.tf32:
        torch.set_float32_matmul_precision("high")
    torch.set_default_device(args.device)
    for workload, sizes in PAPER.items() if args.scale == "paper" else ():
        for size, value in sizes.items():
            setattr(workload, size, value)
    for name in args.workloads or WORKLOADS:
        for precision in ["fp32", "bf16"] if args.precision == "all" else [args.precision]:
            print(json.dumps(measure(name, precision, args)), flush=True)


if __name__ == "__main__":
    main()
