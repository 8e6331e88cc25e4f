#!/usr/bin/env python3
"""Golden values for tests/models: Transformers made of PyTorch's layers, fp32 on the CPU.

Writes tests/models/golden/transformer.safetensors, for each case with the weights before training ("param.<lmx name>"), 20 batches of sentences of
different lengths, and the results of PyTorch: logits, smoothed loss and gradients of the first batch, then the losses of 20
steps of SGD with clipping of the global norm. PyTorch pads its sentences and masks the padding; the file contains no padding: the
sentences of all batches follow each other in "source", "inputs" and "targets", with their lengths as (20, B).

usage: tools/dev/parity/transformer.py        (needs torch; the tests themselves need no Python)
"""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from golden_file import save

STEPS, LR, CLIP, SMOOTHING = 20, 0.5, 0.5, 0.1
VOCAB, D, HEADS, FFN, BATCH = 40, 12, 3, 20, 4


def positions(n):
    """fairseq's sinusoids; the first position is 0."""
    half = D // 2
    angles = torch.arange(n, dtype=torch.float64)[:, None] * torch.exp(-math.log(10000) / (half - 1) * torch.arange(half, dtype=torch.float64))
    return torch.cat([angles.sin(), angles.cos()], 1).float()


class Model(nn.Module):
    def __init__(self, encoder, decoder, norm, share):
        super().__init__()
        pre = norm == "pre"
        args = dict(d_model=D, nhead=HEADS, dim_feedforward=FFN, dropout=0.0, batch_first=True, norm_first=pre)
        self.encoder = nn.ModuleList(nn.TransformerEncoderLayer(**args) for _ in range(encoder))
        # A layer of a language model is an encoder layer with a causal mask.
        layer = nn.TransformerDecoderLayer if encoder else nn.TransformerEncoderLayer
        self.decoder = nn.ModuleList(layer(**args) for _ in range(decoder))
        self.norms = nn.ModuleDict({"encoder": nn.LayerNorm(D), "decoder": nn.LayerNorm(D)}) if pre else None
        self.target = nn.Embedding(VOCAB, D)
        self.source = (self.target if share == "all" else nn.Embedding(VOCAB, D)) if encoder else None
        self.output = nn.Linear(D, VOCAB, bias=False)
        if share != "none":
            self.output.weight = self.target.weight
        self.share = share

    def embed(self, table, ids):
        return table(ids) * math.sqrt(D) + positions(ids.shape[1])

    def forward(self, source, source_pad, inputs, pad):
        causal = torch.ones(inputs.shape[1], inputs.shape[1]).triu(1).bool()
        y = self.embed(self.target, inputs)
        if self.encoder:
            x = self.embed(self.source, source)
            for layer in self.encoder:
                x = layer(x, src_key_padding_mask=source_pad)
            if self.norms:
                x = self.norms["encoder"](x)
            for layer in self.decoder:
                y = layer(y, x, tgt_mask=causal, tgt_key_padding_mask=pad, memory_key_padding_mask=source_pad)
        else:
            for layer in self.decoder:
                y = layer(y, src_mask=causal, src_key_padding_mask=pad)
        if self.norms:
            y = self.norms["decoder"](y)
        return self.output(y)

    def named(self, of=lambda p: p):
        """Returns of(parameter), the value or the gradient of each parameter, by lmx's names."""
        out = {}
        if self.encoder and self.share != "all":
            out["encoder.embedding.weight"] = of(self.source.weight)
        apart = self.encoder and self.share != "all"
        out["decoder.embedding.weight" if apart else "embedding.weight"] = of(self.target.weight)
        if self.share == "none":
            out["softmax.weight"] = of(self.output.weight)
        for side, layers in (("encoder", self.encoder), ("decoder", self.decoder)):
            for l, layer in enumerate(layers):
                p = f"{side}.{l}."
                linears = {"self.out": layer.self_attn.out_proj, "ffn.in": layer.linear1, "ffn.out": layer.linear2, "self.norm": layer.norm1}
                out[p + "self.qkv.weight"], out[p + "self.qkv.bias"] = of(layer.self_attn.in_proj_weight), of(layer.self_attn.in_proj_bias)
                if hasattr(layer, "multihead_attn"):
                    w, b = of(layer.multihead_attn.in_proj_weight), of(layer.multihead_attn.in_proj_bias)
                    out[p + "cross.q.weight"], out[p + "cross.kv.weight"] = w[:D], w[D:]
                    out[p + "cross.q.bias"], out[p + "cross.kv.bias"] = b[:D], b[D:]
                    linears |= {"cross.out": layer.multihead_attn.out_proj, "cross.norm": layer.norm2, "ffn.norm": layer.norm3}
                else:
                    linears["ffn.norm"] = layer.norm2
                for name, module in linears.items():
                    weight = "gain" if name.endswith("norm") else "weight"
                    out[p + f"{name}.{weight}"], out[p + f"{name}.bias"] = of(module.weight), of(module.bias)
        if self.norms:
            for side in ("encoder", "decoder") if self.encoder else ("decoder",):
                out[side + ".norm.gain"], out[side + ".norm.bias"] = of(self.norms[side].weight), of(self.norms[side].bias)
        return out


def padded(sentences):
    ids = nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=0)
    lengths = torch.tensor([len(s) for s in sentences])
    return ids, torch.arange(ids.shape[1])[None] >= lengths[:, None]


def make(case, encoder, decoder, norm, share):
    torch.manual_seed(1)
    model = Model(encoder, decoder, norm, share)
    for p in model.parameters():
        nn.init.uniform_(p, -0.5, 0.5)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):  # gains around 1: small ones would leave all rows, and gradients, alike
            module.weight.data += 1
    numpy = lambda t: t.detach().numpy().copy()
    tensors = {"param." + n: numpy(p) for n, p in model.named().items()}
    sentences = lambda low, high: [torch.randint(0, VOCAB, (int(n),)) for n in torch.randint(low, high, (BATCH,))]
    source = [sentences(1, 9) for _ in range(STEPS)]
    inputs = [sentences(1, 8) for _ in range(STEPS)]
    targets = [[torch.randint(0, VOCAB, s.shape) for s in batch] for batch in inputs]
    flat = lambda batches: torch.cat([s for batch in batches for s in batch]).numpy().astype(np.int32)
    lengths = lambda batches: np.array([[len(s) for s in batch] for batch in batches], dtype=np.int32)
    tensors |= {"inputs": flat(inputs), "targets": flat(targets), "lengths": lengths(inputs)}
    if encoder:
        tensors |= {"source": flat(source), "source_lengths": lengths(source)}
    optimizer = torch.optim.SGD(model.parameters(), LR)
    losses = []
    for i in range(STEPS):
        (x, x_pad), (y, y_pad) = padded(source[i]), padded(inputs[i])
        logits = model(x, x_pad, y, y_pad)[~y_pad]
        loss = F.cross_entropy(logits, torch.cat(targets[i]), label_smoothing=SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if i == 0:
            tensors["logits"] = numpy(logits)
            tensors |= {"grad." + n: numpy(g) for n, g in model.named(lambda p: p.grad).items()}
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    tensors["losses"] = np.array(losses, dtype=np.float32)
    save("transformer", tensors, dict(torch=torch.__version__, lr=str(LR), clip=str(CLIP), smoothing=str(SMOOTHING), d=str(D), heads=str(HEADS),
                                      ffn=str(FFN), vocab=str(VOCAB), encoder=str(encoder), decoder=str(decoder), norm=norm, share=share), case)
    print(case, [round(x, 4) for x in losses[:3]], "...", round(losses[-1], 4))


make("transformer_post_all", 2, 2, "post", "all")
make("transformer_pre_none", 1, 2, "pre", "none")
make("transformer_post_decoder", 2, 1, "post", "decoder")
make("transformer_language_model", 0, 2, "post", "all")
