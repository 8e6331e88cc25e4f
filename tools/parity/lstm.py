#!/usr/bin/env python3
"""Golden values for tests/models: an LSTM language model in PyTorch, fp32 on the CPU.

Writes tests/models/golden/<case>.safetensors with the weights before training ("param.<lmx name>"), 20 batches, and what
PyTorch makes of them: logits, loss and gradients of the first batch, then the losses of 20 steps of SGD with the global norm
clipped, state carried from batch to batch. PyTorch's two biases are one in lmx: weights start with bias_hh = 0, and bias_hh
is not trained, so that both models are the same function of the same parameters.

usage: tools/parity/lstm.py        (needs torch; the tests themselves need no Python)
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from golden_file import save

STEPS, LR, CLIP = 20, 1.0, 0.5


def make(case, layers, proj, vocab=40, embed=7, cells=12, batch=3, steps=5):
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
    for p in params.values():
        nn.init.uniform_(p, -0.5, 0.5)
    inputs = torch.randint(0, vocab, (STEPS, batch, steps))
    targets = torch.randint(0, vocab, (STEPS, batch, steps))
    numpy = lambda t: t.detach().numpy().copy()
    tensors = {"param." + n: numpy(p) for n, p in params.items()}
    tensors["inputs"], tensors["targets"] = inputs.numpy().astype(np.int32), targets.numpy().astype(np.int32)
    optimizer = torch.optim.SGD(params.values(), LR)
    state, losses = None, []
    for i in range(STEPS):
        h, state = lstm(embedding(inputs[i]), state)
        state = tuple(s.detach() for s in state)
        logits = softmax(h).flatten(0, 1)
        loss = F.cross_entropy(logits, targets[i].flatten())
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if i == 0:
            tensors["logits"] = numpy(logits)
            tensors.update({"grad." + n: numpy(p.grad) for n, p in params.items()})
            tensors["state_h"], tensors["state_c"] = numpy(state[0]), numpy(state[1])  # (layers, B, .)
        nn.utils.clip_grad_norm_(params.values(), CLIP)
        optimizer.step()
    tensors["losses"] = np.array(losses, dtype=np.float32)
    save(case, tensors, dict(torch=torch.__version__, lr=str(LR), clip=str(CLIP), layers=str(layers), cells=str(cells),
                             projection=str(proj), embedding=str(embed), vocab=str(vocab)))
    print(case, [round(x, 4) for x in losses[:3]], "...", round(losses[-1], 4))


make("lstm_projection", layers=1, proj=6)
make("lstm_two_layers", layers=2, proj=6)
make("lstm_plain", layers=1, proj=0)
