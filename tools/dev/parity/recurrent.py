#!/usr/bin/env python3
"""Golden values for tests/models: LSTM, multiplicative LSTM and recurrent highway network as language models in PyTorch, fp32 on the
CPU.

Writes tests/models/golden/recurrent.safetensors, for each case with the weights before training ("param.<lmx name>"), 20 batches, and the
results of PyTorch: logits, loss, gradients and state of the first batch, then the losses of 20 steps of SGD with clipping of
the global norm; state is carried from batch to batch. The LSTM is PyTorch's own. lmx has one bias where PyTorch has two: bias_hh is 0 and
not trained, so that both models are the same function of the same parameters. The others are loops of single operations. In
weight-normalised cases the matrices are PyTorch's torch.nn.utils.weight_norm of v and g.

usage: tools/dev/parity/recurrent.py        (needs torch; the tests themselves need no Python)
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from golden_file import save

STEPS, LR, CLIP = 20, 1.0, 0.5
VOCAB, EMBED, CELLS, LAYERS = 40, 7, 12, 2


def record(case, params, forward, vocab, batch=3, steps=5, **metadata):
    """Initialises `params` (by their lmx names) uniformly, trains them and saves the case. forward(ids (B, T), state) returns
    features (B, T, P) and the next state, a dict from lmx's names to tensors (B, .); the first state is None."""
    for name, p in params.items():
        # The lengths of normalised rows must be positive.
        nn.init.uniform_(p, *((0.5, 1.5) if name.endswith("_g") else (-0.5, 0.5)))
    inputs, targets = torch.randint(0, vocab, (STEPS, batch, steps)), torch.randint(0, vocab, (STEPS, batch, steps))
    numpy = lambda t: t.detach().numpy().copy()
    named = lambda n, t: numpy(t.flatten() if n.endswith("_g") else t)  # PyTorch's g is (N, 1)
    tensors = {"param." + n: named(n, p) for n, p in params.items()}
    tensors["inputs"], tensors["targets"] = inputs.numpy().astype(np.int32), targets.numpy().astype(np.int32)
    optimizer = torch.optim.SGD(params.values(), LR)
    state, losses = None, []
    for i in range(STEPS):
        features, state = forward(inputs[i], state)
        state = {n: s.detach() for n, s in state.items()}
        logits = F.linear(features, params["softmax.weight"], params["softmax.bias"]).flatten(0, 1)
        loss = F.cross_entropy(logits, targets[i].flatten())
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if i == 0:
            tensors["logits"] = numpy(logits)
            tensors.update({"grad." + n: named(n, p.grad) for n, p in params.items()})
            tensors.update({"state." + n: numpy(s) for n, s in state.items()})
        nn.utils.clip_grad_norm_(params.values(), CLIP)
        optimizer.step()
    tensors["losses"] = np.array(losses, dtype=np.float32)
    save("recurrent", tensors, dict(torch=torch.__version__, lr=str(LR), clip=str(CLIP), vocab=str(vocab), **{k: str(v) for k, v in metadata.items()}), case)
    print(case, [round(x, 4) for x in losses[:3]], "...", round(losses[-1], 4))


def lstm(case, layers, proj, vocab=40, embed=7, cells=12):
    torch.manual_seed(1)
    out = proj or cells
    embedding, layer, softmax = nn.Embedding(vocab, embed), nn.LSTM(embed, cells, layers, proj_size=proj, batch_first=True), nn.Linear(out, vocab)
    params = {"embedding.weight": embedding.weight, "softmax.weight": softmax.weight, "softmax.bias": softmax.bias}
    for l in range(layers):
        p = f"lstm.{l}."
        params[p + "weight_ih"], params[p + "weight_hh"] = getattr(layer, f"weight_ih_l{l}"), getattr(layer, f"weight_hh_l{l}")
        params[p + "bias"] = getattr(layer, f"bias_ih_l{l}")
        if proj:
            params[p + "weight_hr"] = getattr(layer, f"weight_hr_l{l}")
        nn.init.zeros_(getattr(layer, f"bias_hh_l{l}")).requires_grad_(False)

    def forward(ids, state):
        pair = state and tuple(torch.stack([state[f"lstm.{l}.{part}"] for l in range(layers)]) for part in "hc")
        y, (h, c) = layer(embedding(ids), pair)
        return y, {f"lstm.{l}.{part}": s[l] for l in range(layers) for part, s in (("h", h), ("c", c))}

    record(case, params, forward, vocab, layers=layers, cells=cells, projection=proj, embedding=embed)


class Weights(nn.Module):
    """Matrices of a layer by lmx's names. Normalised ones consist of v and g instead of w."""

    def __init__(self, shapes, normed):
        super().__init__()
        self.parts = nn.ModuleDict()
        self.normed = normed
        for name, (rows, cols) in shapes.items():
            part = nn.Linear(cols, rows, bias=False)
            self.parts[name.replace(".", "/")] = nn.utils.weight_norm(part) if normed else part

    def __getitem__(self, name):
        return self.parts[name.replace(".", "/")]

    def params(self, prefix):
        out = {}
        for name, part in self.parts.items():
            name = prefix + name.replace("/", ".")
            if self.normed:
                out[name + "_v"], out[name + "_g"] = part.weight_v, part.weight_g
            else:
                out[name] = part.weight
        return out


def table(out):
    return {"embedding.weight": nn.Parameter(torch.empty(VOCAB, EMBED)), "softmax.weight": nn.Parameter(torch.empty(VOCAB, out)),
            "softmax.bias": nn.Parameter(torch.empty(VOCAB))}


def mlstm(case, normed):
    torch.manual_seed(1)
    params, layers = table(CELLS), []
    for l in range(LAYERS):
        inputs = EMBED if l == 0 else CELLS
        w = Weights(dict(weight_mx=(CELLS, inputs), weight_mh=(CELLS, CELLS), weight_x=(4 * CELLS, inputs), weight_m=(4 * CELLS, CELLS)), normed)
        bias = nn.Parameter(torch.empty(4 * CELLS))
        layers.append((w, bias))
        params.update({**w.params(f"mlstm.{l}."), f"mlstm.{l}.bias": bias})

    def forward(ids, state):
        x = F.embedding(ids, params["embedding.weight"])
        after = {}
        for l, (w, bias) in enumerate(layers):
            zero = torch.zeros(len(ids), CELLS)
            h, c = (state[f"mlstm.{l}.h"], state[f"mlstm.{l}.c"]) if state else (zero, zero)
            outputs = []
            for t in range(ids.shape[1]):
                m = w["weight_mx"](x[:, t]) * w["weight_mh"](h)
                i, f, g, o = (w["weight_x"](x[:, t]) + w["weight_m"](m) + bias).chunk(4, 1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
                outputs.append(h)
            x = torch.stack(outputs, 1)
            after[f"mlstm.{l}.h"], after[f"mlstm.{l}.c"] = h, c
        return x, after

    record(case, params, forward, VOCAB, layers=LAYERS, cells=CELLS, embedding=EMBED)


def rhn(case, coupled, depth=3, normed=False, transform_bias=0):
    torch.manual_seed(1)
    blocks = 2 if coupled else 3
    params, layers = table(CELLS), []
    for l in range(LAYERS):
        inputs = EMBED if l == 0 else CELLS
        w = Weights({"weight_x": (blocks * CELLS, inputs), **{f"weight_s.{d}": (blocks * CELLS, CELLS) for d in range(depth)}}, normed)
        bias = [nn.Parameter(torch.empty(blocks * CELLS)) for _ in range(depth)]
        layers.append((w, bias))
        params.update({**w.params(f"rhn.{l}."), **{f"rhn.{l}.bias.{d}": b for d, b in enumerate(bias)}})

    def forward(ids, state):
        x = F.embedding(ids, params["embedding.weight"])
        after = {}
        for l, (w, bias) in enumerate(layers):
            s = state[f"rhn.{l}.s"] if state else torch.zeros(len(ids), CELLS)
            outputs = []
            for t in range(ids.shape[1]):
                for d in range(depth):
                    z = w[f"weight_s.{d}"](s) + bias[d]
                    if d == 0:
                        z = z + w["weight_x"](x[:, t])
                    z = z.chunk(blocks, 1)
                    gate = torch.sigmoid(z[1] + transform_bias)
                    s = torch.tanh(z[0]) * gate + s * (1 - gate if coupled else torch.sigmoid(z[2] - transform_bias))
                outputs.append(s)
            x = torch.stack(outputs, 1)
            after[f"rhn.{l}.s"] = s
        return x, after

    record(case, params, forward, VOCAB, layers=LAYERS, cells=CELLS, depth=depth, embedding=EMBED)


lstm("lstm_projection", layers=1, proj=6)
lstm("lstm_two_layers", layers=2, proj=6)
lstm("lstm_plain", layers=1, proj=0)
mlstm("mlstm_plain", normed=False)
mlstm("mlstm_weight_norm", normed=True)
rhn("rhn_coupled", coupled=True)
rhn("rhn_free", coupled=False)
rhn("rhn_weight_norm", coupled=False, normed=True, transform_bias=-2)
