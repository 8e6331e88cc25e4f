#!/usr/bin/env python3
"""Training steps of PyTorch on a GPU, on the workloads of `lmx bench --scale paper`, in bf16: the peer of docs/gpu.md.

    python3 tools/dev/peers/torch_graph.py                     every workload
    python3 tools/dev/peers/torch_graph.py char_rhn --quick    a tiny model, to test the flow
    python3 tools/dev/peers/torch_graph.py --check             compares the hand-written parts with torch_bench.py; needs no GPU

Prints a JSON line for each workload, with the fields of torch_bench.py, whose models, losses and optimizers these are. The whole step
is one CUDA graph: drawing the batch, forward, backward, clipping and the update; then the host reads the loss. The loops of the
character models have hand-written backward passes that compute the gradient of each weight as one product after the loop, and their
pointwise parts are compiled. The LSTM is cuDNN's. The two Transformers are compiled as a whole.
"""
import argparse
import copy
import json
import math
import sys
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from torch_bench import CharMlstm, CharRhn, Gpt, NmtTransformer, WordLstm, median_seconds, result

# Axes: T (time), B (sequences of a batch), N (units), L (layers of a time step). The pointwise functions write the operands of the next
# products into arrays of all time steps, so that no kernel copies them. A compiled function does not write to an array that it reads.
compiled = partial(torch.compile, dynamic=False)


@compiled
def rhn_step(z, bias, state, rounded):
    """z (B, 2N): the product with the weight. Writes the next state into `rounded`; returns it in fp32, h and the gate."""
    h, gate = (z + bias).chunk(2, 1)
    h, gate = h.tanh(), gate.sigmoid()
    state = h * gate + state * (1 - gate)
    rounded.copy_(state)
    return state, h.to(z.dtype), gate.to(z.dtype)


@compiled
def rhn_step_back(carried, product, h, gate, state, dz):
    """The gradient of the next state is carried + product. Writes that of z; returns the part of that of `state` not due to z."""
    gradient = carried + product
    h, gate, state = (x.to(gradient.dtype) for x in (h, gate, state))
    dz.copy_(torch.cat([gradient * gate * (1 - h * h), gradient * (h - state) * gate * (1 - gate)], 1))
    return gradient * (1 - gate)


class RhnLoop(torch.autograd.Function):
    """CharRhn's states (T, B, N) from projected inputs (T, B, 2N), biases (L, 2N) and weights, L times (2N, N)."""

    @staticmethod
    def forward(ctx, projected, biases, *weights):
        steps, batch, both = projected.shape
        inputs = projected.new_zeros(len(weights), steps + 1, batch, both // 2)  # of the layers: each one writes that of the next one
        state, ctx.activations = biases.new_zeros(batch, both // 2), []
        for t in range(steps):
            for layer, weight in enumerate(weights):
                last = layer + 1 == len(weights)
                z = torch.addmm(projected[t], inputs[0, t], weight.t()) if layer == 0 else inputs[layer, t] @ weight.t()
                state, *activations = rhn_step(z, biases[layer], state, inputs[0, t + 1] if last else inputs[layer + 1, t])
                ctx.activations.append(activations)
        ctx.save_for_backward(inputs, biases, *weights)
        return inputs[0, 1:].clone()

    @staticmethod
    def backward(ctx, gradient):
        # PyTorch calls this in another thread, where set_default_device() has no effect: each tensor names its device.
        inputs, biases, *weights = ctx.saved_tensors
        gradient = gradient.contiguous()
        layers, steps, batch, units = len(weights), *gradient.shape
        dz = gradient.new_empty(layers, steps, batch, 2 * units)
        carried, product = biases.new_zeros(batch, units), gradient[-1]
        for t in reversed(range(steps)):
            for layer in reversed(range(layers)):
                activations = ctx.activations[t * layers + layer]
                carried = rhn_step_back(carried, product, *activations, inputs[layer, t], dz[layer, t])
                if layer > 0:
                    product = dz[layer, t] @ weights[layer]
                elif t > 0:
                    product = torch.addmm(gradient[t - 1], dz[0, t], weights[0])
        of_weights = [d.flatten(0, 1).t() @ x[:-1].flatten(0, 1) for d, x in zip(dz, inputs)]
        return dz[0], dz.sum((1, 2), dtype=biases.dtype), *of_weights


class Rhn(CharRhn):
    HIDDEN, BATCH, STEPS = 1792, 128, 150

    def states(self, embedded):
        projected = self.input(embedded.transpose(0, 1))
        weights = [layer.weight.to(projected.dtype) for layer in self.layers]
        return RhnLoop.apply(projected, torch.stack([layer.bias for layer in self.layers]), *weights).transpose(0, 1)


@compiled
def lstm_step(z, x, cell, rounded):
    """z (B, 4N): the product with the weight, x: the projected input. Writes the state into `rounded`; returns the cell and the gates."""
    i, f, o, u = (z.to(cell.dtype) + x).chunk(4, 1)
    i, f, o, u = i.sigmoid(), f.sigmoid(), o.sigmoid(), u.tanh()
    cell = f * cell + i * u
    rounded.copy_(o * cell.tanh())
    return cell, torch.cat([i, f, o, u], 1).to(z.dtype)


@compiled
def lstm_step_back(dstate, dcell, gates, before, after, dz):
    """before, after: the cells around the step. Writes the gradient of z; returns that of the cell before."""
    i, f, o, u = gates.to(dcell.dtype).chunk(4, 1)
    tanh = after.tanh()
    dcell = dcell + dstate * o * (1 - tanh * tanh)
    dz.copy_(torch.cat([dcell * u * i * (1 - i), dcell * before * f * (1 - f), dstate * tanh * o * (1 - o), dcell * i * (1 - u * u)], 1))
    return dcell * f


@compiled
def product_back(gradient, hidden, factor, dhidden, dfactor):
    """Writes the gradients of both factors of hidden * factor."""
    dhidden.copy_(gradient * factor)
    dfactor.copy_(gradient * hidden)


class MlstmLoop(torch.autograd.Function):
    """CharMlstm's states (T, B, N) from projected inputs (T, B, 4N), factors (T, B, N) and the weights W_mh (N, N) and W_m (4N, N)."""

    @staticmethod
    def forward(ctx, projected, factors, w_mh, w_m):
        steps, batch, units = factors.shape
        states, inputs = factors.new_zeros(steps + 1, batch, units), torch.empty_like(factors)
        ctx.cells = [factors.new_zeros(batch, units, dtype=torch.promote_types(factors.dtype, torch.float32))]
        ctx.hidden, ctx.gates = [], []
        for t in range(steps):
            hidden = states[t] @ w_mh.t()
            torch.mul(hidden, factors[t], out=inputs[t])
            cell, gates = lstm_step(inputs[t] @ w_m.t(), projected[t], ctx.cells[t], states[t + 1])
            for saved, value in ((ctx.hidden, hidden), (ctx.cells, cell), (ctx.gates, gates)):
                saved.append(value)
        ctx.save_for_backward(factors, states, inputs, w_mh, w_m)
        return states[1:].clone()

    @staticmethod
    def backward(ctx, gradient):
        factors, states, inputs, w_mh, w_m = ctx.saved_tensors
        gradient = gradient.contiguous()
        steps, batch, units = gradient.shape
        dz = gradient.new_empty(steps, batch, 4 * units)
        dhidden, dfactors = torch.empty_like(factors), torch.empty_like(factors)
        dstate, dcell = gradient[-1], torch.zeros_like(ctx.cells[0])
        for t in reversed(range(steps)):
            dcell = lstm_step_back(dstate, dcell, ctx.gates[t], ctx.cells[t], ctx.cells[t + 1], dz[t])
            product_back(dz[t] @ w_m, ctx.hidden[t], factors[t], dhidden[t], dfactors[t])
            if t > 0:
                dstate = torch.addmm(gradient[t - 1], dhidden[t], w_mh)
        return (dz, dfactors, dhidden.flatten(0, 1).t() @ states[:-1].flatten(0, 1),
                dz.flatten(0, 1).t() @ inputs.flatten(0, 1))


@compiled
def normalised(gain, v, dtype):
    """Weight norm (Salimans and Kingma 2016): gain * v / |v|, for each row."""
    return (v * (gain / v.norm(dim=1, keepdim=True))).to(dtype)


class Mlstm(CharMlstm):
    HIDDEN, BATCH, STEPS = 4096, 128, 256

    def states(self, embedded):
        embedded = embedded.transpose(0, 1)
        projected, factors = self.x(embedded), self.mx(embedded)
        weight = lambda layer: normalised(*layer.parametrizations.weight.parameters(), factors.dtype)
        return MlstmLoop.apply(projected, factors, weight(self.mh), weight(self.m)).transpose(0, 1)


class Nmt(NmtTransformer):
    """The layers of nn.Transformer without its two last norms, because nn.MultiheadAttention copies its operands more often."""
    D, FFN, HEADS, BATCH, SOURCE, TARGET = 1024, 4096, 16, 192, 27, 27

    def __init__(self):
        nn.Module.__init__(self)
        d, ffn, layers = self.D, self.FFN, range(self.LAYERS)
        attention = lambda: nn.ModuleDict({"q": nn.Linear(d, d), "kv": nn.Linear(d, 2 * d), "out": nn.Linear(d, d),
                                           "norm": nn.LayerNorm(d)})
        wide = lambda: {"up": nn.Linear(d, ffn), "down": nn.Linear(ffn, d), "norm": nn.LayerNorm(d)}
        self.embedding = nn.Embedding(self.VOCAB, d)
        self.encoder = nn.ModuleList(nn.ModuleDict({"self": attention(), **wide()}) for _ in layers)
        self.decoder = nn.ModuleList(nn.ModuleDict({"self": attention(), "source": attention(), **wide()}) for _ in layers)

    def attend(self, p, x, memory, causal=False):
        q = p["q"](x).unflatten(2, (self.HEADS, -1)).transpose(1, 2)
        k, v = p["kv"](memory).unflatten(2, (2, self.HEADS, -1)).permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=causal)
        return p["norm"](x + F.dropout(p["out"](read.transpose(1, 2).flatten(2)), 0.1))

    def feed_forward(self, p, x):
        return p["norm"](x + F.dropout(p["down"](F.dropout(F.relu(p["up"](x)), 0.1)), 0.1))

    def forward(self, source, inputs, targets):
        memory, x = (self.embedding(ids) * math.sqrt(self.D) for ids in (source, inputs))
        for layer in self.encoder:
            memory = self.feed_forward(layer, self.attend(layer["self"], memory, memory))
        for layer in self.decoder:
            x = self.attend(layer["self"], x, x, causal=True)
            x = self.feed_forward(layer, self.attend(layer["source"], x, memory))
        logits = x @ self.embedding.weight.t()
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), label_smoothing=0.1)


class Word(WordLstm):
    BATCH = 128


def word_step(workload, dtype=torch.bfloat16):
    """The function of a step. In place of sparse gradients, the gathered rows have gradients, which are added to the tables. cuDNN
    computes with a copy of the LSTM's parameters in `dtype`, which is rounded after each update."""
    model, loss = workload.model, compiled(workload.model.loss)
    rounded = copy.deepcopy(model.lstm).to(dtype)
    rounded.batch_first = False
    rate = workload.optimizer.param_groups[0]["lr"]

    def step():
        inputs, targets, candidates = workload.batch()
        words, n = torch.cat([targets.t().flatten(), candidates]), targets.numel()
        uses = [(model.embedding.weight, inputs.t().flatten()), (model.rows.weight, words), (model.bias.weight, words)]
        gathered = [table.detach()[ids].requires_grad_() for table, ids in uses]
        hidden = rounded(gathered[0].unflatten(0, (model.STEPS, -1)).to(dtype))[0].flatten(0, 1)
        with torch.autocast(hidden.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            value = loss(hidden, *zip(*(x.split([n, len(candidates)]) for x in (words, *gathered[1:]))))
        gradients = torch.autograd.grad(value, [*gathered, *rounded.parameters()])
        for p, gradient in zip(model.lstm.parameters(), gradients[len(uses):]):
            p.grad = gradient.to(p.dtype)
        workload.update()
        with torch.no_grad():
            torch._foreach_copy_(list(rounded.parameters()), list(model.lstm.parameters()))
            for (table, ids), gradient in zip(uses, gradients):
                table.index_add_(0, ids, gradient, alpha=-rate)
        return value.detach()

    return step


class GraphGpt(Gpt):
    VOCAB, D, FFN, HEADS, KV_HEADS, LAYERS, BATCH, STEPS = 50_304, 768, 2048, 12, 4, 12, 16, 1024


WORKLOADS = {"word_lstm": Word.workload, "char_rhn": Rhn.make, "char_mlstm": Mlstm.make, "nmt_transformer": Nmt.workload,
             "gpt": GraphGpt.workload}

TINY = {Word: {"VOCAB": 50, "WIDTH": 8, "CELLS": 16, "SAMPLES": 9, "BATCH": 4, "STEPS": 5},
        Rhn: {"VOCAB": 11, "HIDDEN": 16, "DEPTH": 3, "BATCH": 4, "STEPS": 5},
        Mlstm: {"VOCAB": 11, "WIDTH": 8, "HIDDEN": 16, "BATCH": 4, "STEPS": 5},
        Nmt: {"VOCAB": 32, "D": 16, "FFN": 32, "HEADS": 2, "LAYERS": 2, "BATCH": 3, "SOURCE": 5, "TARGET": 4},
        GraphGpt: {"VOCAB": 32, "D": 16, "FFN": 32, "HEADS": 2, "KV_HEADS": 1, "LAYERS": 2, "BATCH": 3, "STEPS": 5}}


def make_tiny():
    for workload, sizes in TINY.items():
        for size, value in sizes.items():
            setattr(workload, size, value)


def step_of(workload):
    if isinstance(workload.model, Word):
        return word_step(workload)
    if not isinstance(workload.model, (Nmt, Gpt)):
        return partial(workload.train, workload.model, "bf16", "cuda")

    @compiled
    def forward(*batch):  # with autocast inside, the compiler sees the roundings of the weights
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return workload.model(*batch)

    return partial(workload.train, forward, "fp32", "cuda")


def captured(step):
    """A function that replays `step` as a CUDA graph, and returns its loss when the GPU has computed it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # compiles, and makes what a graph must not allocate
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss.item()

    return replay


def measure(name, args):
    torch.manual_seed(0)
    workload = WORKLOADS[name]()
    replay = captured(step_of(workload))
    seconds = median_seconds(replay, args.steps)
    if not math.isfinite(loss := replay()):
        raise RuntimeError(f"the loss of {name} is {loss}")
    return result(workload, name, seconds, scale="quick" if args.quick else "paper", precision="bf16", mode="CUDA graph",
                  device="cuda", peak_gpu_mb=torch.cuda.max_memory_allocated() // 2**20)


def gradients_of(workload, states, batch, precision):
    workload.model.states = states
    workload.optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        workload.model(*batch).backward()
    return [p.grad.clone() for p in workload.model.parameters()]


def loops_and_autograd(model, precision):
    """The gradients of a character model by its loop, and those of its base class by autograd."""
    workload = model.make()
    batch, plain = workload.batch(), partial(model.__base__.states, workload.model)
    return [gradients_of(workload, states, batch, precision) for states in (workload.model.states, plain)]


def word_steps():
    """The changes of the parameters in a step of word_step(), and in one of torch_bench.py."""
    graph, plain = (workload := Word.workload()), copy.deepcopy(workload)
    start, batch = copy.deepcopy(list(graph.model.parameters())), graph.batch()
    graph.batch = plain.batch = lambda: batch
    word_step(graph, torch.float64)()
    plain.train(plain.model, "fp64", "cpu")
    return [[(p - s).detach() for p, s in zip(w.model.parameters(), start)] for w in (graph, plain)]


def check():
    """Compares the hand-written parts with torch_bench.py, for tiny sizes on the CPU, without compiling. Prints the largest relative
    error of a parameter. fp64 makes the comparison exact; the two computations in bf16 round at different places."""
    torch.compiler.set_stance("force_eager")
    make_tiny()
    tolerances, passed = {"fp64": 1e-10, "bf16": 0.05}, True
    cases = [("word_lstm", "fp64", word_steps)]
    cases += [(name, precision, partial(loops_and_autograd, model, precision))
              for name, model in (("char_rhn", Rhn), ("char_mlstm", Mlstm)) for precision in tolerances]
    for name, precision, compare in cases:
        tolerance = tolerances[precision]
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64 if precision == "fp64" else torch.float32)
        error = max(float((got - want).norm() / want.norm()) for got, want in zip(*compare()))
        good = error <= tolerance  # NaN fails
        passed = passed and good
        print(json.dumps({"workload": name, "precision": precision, "error": error, "tolerance": tolerance, "passed": good}))
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"{', '.join(WORKLOADS)}; all of them without one")
    parser.add_argument("--quick", action="store_true", help="tiny models")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--check", action="store_true", help="compare hand-written parts with torch_bench.py; measure nothing")
    args = parser.parse_args()
    if unknown := set(args.workloads) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    if args.check:
        return 0 if check() else 1
    if not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU")
    if args.quick:
        make_tiny()
    torch.set_default_device("cuda")
    for name in args.workloads or WORKLOADS:
        print(json.dumps(measure(name, args)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
