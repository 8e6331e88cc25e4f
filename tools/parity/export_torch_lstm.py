#!/usr/bin/env python3
"""Loads the tensors of an LSTM run into torch.nn.LSTM as docs/models.md describes; compares log-likelihoods of lmx and PyTorch.

usage: tools/parity/export_torch_lstm.py RUN MODEL.safetensors TEXT     (needs torch, safetensors)
"""
import sys

import torch
from safetensors.torch import load_file

from export_case import compare, score, words_of

run, file, text = sys.argv[1:]
tensors = load_file(file)
layers = sum(name.endswith("weight_ih") for name in tensors)
projection = tensors["lstm.0.weight_hr"].shape[0] if "lstm.0.weight_hr" in tensors else 0
lstm = torch.nn.LSTM(tensors["embedding.weight"].shape[1], tensors["lstm.0.bias"].shape[0] // 4, layers, proj_size=projection,
                     batch_first=True)
with torch.no_grad():
    for i in range(layers):
        getattr(lstm, f"weight_ih_l{i}").copy_(tensors[f"lstm.{i}.weight_ih"])
        getattr(lstm, f"weight_hh_l{i}").copy_(tensors[f"lstm.{i}.weight_hh"])
        getattr(lstm, f"bias_ih_l{i}").copy_(tensors[f"lstm.{i}.bias"])
        getattr(lstm, f"bias_hh_l{i}").zero_()
        if projection:
            getattr(lstm, f"weight_hr_l{i}").copy_(tensors[f"lstm.{i}.weight_hr"])
    numbers = {word: i for i, word in enumerate(words_of(run))}
    table = tensors.get("softmax.weight", tensors["embedding.weight"])
    found = []
    for line in open(text, encoding="utf-8"):
        ids = torch.tensor([[1] + [numbers.get(word, 0) for word in line.split()] + [1]])
        features, _ = lstm(torch.nn.functional.embedding(ids[:, :-1], tensors["embedding.weight"]))
        logits = torch.nn.functional.linear(features, table, tensors.get("softmax.bias")).double()
        found.append(logits.log_softmax(-1).gather(2, ids[:, 1:, None]).sum().item())
compare(score(run, text), found)
