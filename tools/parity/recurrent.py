#!/usr/bin/env python3
"""Golden values for tests/models: the multiplicative LSTM and the recurrent highway network in PyTorch, fp32 on the CPU, as loops
of single operations. tools/parity/lstm.py describes the files. In weight-normalised cases the matrices are PyTorch's
torch.nn.utils.weight_norm of v and g.

usage: tools/parity/recurrent.py        (needs torch; the tests themselves need no Python)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from recurrent_case import record

VOCAB, EMBED, CELLS, LAYERS = 40, 7, 12, 2


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


mlstm("mlstm_plain", normed=False)
mlstm("mlstm_weight_norm", normed=True)
rhn("rhn_coupled", coupled=True)
rhn("rhn_free", coupled=False)
rhn("rhn_weight_norm", coupled=False, normed=True, transform_bias=-2)
