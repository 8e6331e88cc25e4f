"""The common part of the golden files of recurrent language models: 20 batches, state carried from one to the next, SGD
with clipping of the global norm."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from golden_file import save

STEPS, LR, CLIP = 20, 1.0, 0.5


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
