#!/usr/bin/env python3
"""Golden values for tests/models: an LSTM language model in PyTorch, fp32 on the CPU.

Writes tests/models/golden/recurrent.safetensors, for each case with the weights before training ("param.<lmx name>"), 20 batches, and the
results of PyTorch: logits, loss, gradients and state of the first batch, then the losses of 20 steps of SGD with clipping of
the global norm; state is carried from batch to batch. lmx has one bias where PyTorch has two: bias_hh is 0 and not trained, so that
both models are the same function of the same parameters.

usage: tools/parity/lstm.py        (needs torch; the tests themselves need no Python)
"""
import torch
import torch.nn as nn

from recurrent_case import record


def make(case, layers, proj, vocab=40, embed=7, cells=12):
    torch.manual_seed(1)
    out = proj or cells
    embedding, lstm, softmax = nn.Embedding(vocab, embed), nn.LSTM(embed, cells, layers, proj_size=proj, batch_first=True), nn.Linear(out, vocab)
    params = {"embedding.weight": embedding.weight, "softmax.weight": softmax.weight, "softmax.bias": softmax.bias}
    for l in range(layers):
        p = f"lstm.{l}."
        params[p + "weight_ih"], params[p + "weight_hh"] = getattr(lstm, f"weight_ih_l{l}"), getattr(lstm, f"weight_hh_l{l}")
        params[p + "bias"] = getattr(lstm, f"bias_ih_l{l}")
        if proj:
            params[p + "weight_hr"] = getattr(lstm, f"weight_hr_l{l}")
        nn.init.zeros_(getattr(lstm, f"bias_hh_l{l}")).requires_grad_(False)

    def forward(ids, state):
        pair = state and tuple(torch.stack([state[f"lstm.{l}.{part}"] for l in range(layers)]) for part in "hc")
        y, (h, c) = lstm(embedding(ids), pair)
        return y, {f"lstm.{l}.{part}": s[l] for l in range(layers) for part, s in (("h", h), ("c", c))}

    record(case, params, forward, vocab, layers=layers, cells=cells, projection=proj, embedding=embed)


make("lstm_projection", layers=1, proj=6)
make("lstm_two_layers", layers=2, proj=6)
make("lstm_plain", layers=1, proj=0)
