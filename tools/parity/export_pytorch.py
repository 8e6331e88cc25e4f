#!/usr/bin/env python3
"""Compares the log-likelihoods of a word language model in lmx with those of its export (`lmx export`) in PyTorch.

usage: tools/parity/export_pytorch.py RUN FOLDER TEXT     (needs torch, safetensors; for GPT-2's layout also transformers)

FOLDER was written by --to pytorch, or by --to huggingface for a decoder. Each line of TEXT has words separated by spaces.
"""
import importlib.util
import json
import pathlib
import sys

import torch

from export_case import compare, score, words_of

run, folder, text = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
if json.loads((folder / "config.json").read_text()).get("model_type") == "gpt2":
    from transformers import GPT2LMHeadModel

    gpt2 = GPT2LMHeadModel.from_pretrained(folder).eval()
    logits_of = lambda ids: gpt2(ids).logits
else:
    spec = importlib.util.spec_from_file_location("lmx_model", folder / "lmx_model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model, _ = module.load(folder)
    logits_of = lambda ids: model(ids)[0]

numbers = {word: i for i, word in enumerate(words_of(run))}
found = []
with torch.no_grad():
    for line in open(text, encoding="utf-8"):
        ids = torch.tensor([[1] + [numbers.get(word, 0) for word in line.split()] + [1]])
        log_probabilities = logits_of(ids[:, :-1]).double().log_softmax(-1)
        found.append(log_probabilities.gather(2, ids[:, 1:, None]).sum().item())
compare(score(run, text), found)
