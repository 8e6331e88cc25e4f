#!/usr/bin/env python3
"""Compares log-likelihoods of given translations in lmx with those of the export (`lmx export`) in CTranslate2 or transformers.

usage: tools/parity/export_translation.py RUN FOLDER SRC TGT
       (needs sentencepiece, and ctranslate2, or torch and transformers, by the format of FOLDER)

SRC and TGT are prepared text: words separated by spaces, as the run splits them into subwords.
"""
import pathlib
import sys

import sentencepiece

from export_case import compare, score, words_of

run, folder, source, target = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
subwords = sentencepiece.SentencePieceProcessor(str(pathlib.Path(run) / "subwords.model"))
pairs = [[subwords.encode(line.strip(), out_type=str) for line in open(path, encoding="utf-8")] for path in (source, target)]

if (folder / "model.bin").exists():
    import ctranslate2

    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    found = [sum(scored.log_probs) for scored in translator.score_batch(*pairs)]
else:
    import torch
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(folder).eval()
    numbers = {word: i for i, word in enumerate(words_of(run))}
    ids_of = lambda pieces: torch.tensor([[numbers.get(piece, 0) for piece in pieces] + [1]])
    found = []
    with torch.no_grad():
        for left, right in zip(*pairs):
            goal = ids_of(right)
            inputs = torch.cat([torch.tensor([[1]]), goal[:, :-1]], dim=1)
            logits = model(input_ids=ids_of(left), decoder_input_ids=inputs).logits.double()
            found.append(logits.log_softmax(-1).gather(2, goal[:, :, None]).sum().item())
compare(score(run, source, target), found)
