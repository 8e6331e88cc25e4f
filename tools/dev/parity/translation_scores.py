#!/usr/bin/env python3
"""Scores of sacreBLEU (PyPI: sacrebleu) other than corpus BLEU and chrF, for tests/data/translation_scores_test.cc:

    tools/dev/parity/translation_scores.py tests/data/golden/translation_scores.json

Sentence scores with effective order, TER, bootstrap intervals and both paired tests, on the corpora of bleu.py and on artificial
systems whose words differ from their reference: swapped, moved, missing or doubled. Also numbers of NumPy's generator.
"""
import json
import random
import sys

import numpy as np
from sacrebleu import __version__
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest, _bootstrap_resample, estimate_ci

from bleu import CORPORA

VOCABULARY = ("the a of to and in is was for on that with as it at by from this be or an are not have had but were they which one all "
              "we there their would will each about how up out them then she many some so these other into has more her two like him").split()


def sentence(rng):
    words = [rng.choice(VOCABULARY) for _ in range(rng.randint(1, 24))]
    return " ".join(words).capitalize() + rng.choice([".", "!", " ?", ""])


def spoil(rng, line, rate):
    words = line.split()
    for _ in range(max(1, int(len(words) * rate))):
        i, j = rng.randrange(len(words)), rng.randrange(len(words))
        what = rng.random()
        if what < 0.3:
            words[i] = rng.choice(VOCABULARY)
        elif what < 0.6:  # a phrase moves
            n = rng.randint(1, 4)
            phrase = words[i:i + n]
            del words[i:i + n]
            words[j:j] = phrase
        elif what < 0.8 and len(words) > 1:
            del words[i]
        else:
            words.insert(j, words[i])
    return " ".join(words)


def corpus(seed, lines, rates, references=1):
    rng = random.Random(seed)
    reference = [sentence(rng) for _ in range(lines)]
    others = [[spoil(rng, s, 0.2) for s in reference] for _ in range(references - 1)]
    return {"references": [reference, *others], "systems": [[spoil(rng, s, rate) for s in reference] for rate in rates]}


METRICS = {"bleu": lambda: BLEU(effective_order=False), "bleu lower": lambda: BLEU(lowercase=True), "chrf": lambda: CHRF(),
           "chrf++": lambda: CHRF(word_order=2), "ter": lambda: TER(), "ter cased": lambda: TER(case_sensitive=True)}


def sentence_scores(hypothesis, references):
    columns = [list(column) for column in zip(*references)]
    effective, rate = BLEU(effective_order=True, force=True), TER()
    return {"bleu": [effective.sentence_score(h, r).score for h, r in zip(hypothesis, columns)],
            "chrf": [CHRF().sentence_score(h, r).score for h, r in zip(hypothesis, columns)],
            "ter": [rate.sentence_score(h, r).score for h, r in zip(hypothesis, columns)],
            "ter corpus": TER().corpus_score(hypothesis, references).score,
            "effective corpus": BLEU(effective_order=True, force=True).corpus_score(hypothesis, references).score}


def tests(made):
    for name, make in METRICS.items():
        for kind, samples in [("bs", 200), ("ar", 300)]:
            systems = [(f"system {i}", lines) for i, lines in enumerate(made["systems"])]
            signatures, scores = PairedTest(systems, {"m": make()}, made["references"], test_type=kind, n_samples=samples)()
            (label, signature), = signatures.items()
            yield {"metric": name, "test": kind, "samples": samples, "signature": str(signature).split("|version")[0],
                   "results": [{"score": r.score, "p": r.p_value, "mean": r.mean, "ci": r.ci} for r in scores[label]]}


def plain(value):
    return value.item() if hasattr(value, "item") else str(value)


def main():
    cases = [{"name": n, "hypothesis": h, "references": r, "scores": sentence_scores(h, r)} for n, (h, r) in CORPORA.items()]
    for seed in range(3):
        made = corpus(seed, 20, [0.5], references=1 + seed % 2)
        cases.append({"name": f"made {seed}", "hypothesis": made["systems"][0], "references": made["references"],
                      "scores": sentence_scores(made["systems"][0], made["references"])})
    long = corpus(7, 2, [0.6])
    long = {k: [[" ".join(c * 6 for c in lines)] for lines in v] for k, v in long.items()}  # beyond the beam and the shifts' limits
    cases.append({"name": "long lines", "hypothesis": long["systems"][0], "references": long["references"],
                  "scores": sentence_scores(long["systems"][0], long["references"])})
    compared = []
    for seed, lines, rates, references in [(11, 60, [0.2, 0.25, 0.6], 1), (12, 33, [0.3, 0.3], 2)]:
        made = corpus(seed, lines, rates, references)
        compared.append({**made, "tests": list(tests(made))})
    rng = np.random.default_rng(12345)
    numbers = {"seed": 12345, "below": [[n, rng.choice(n, size=20).tolist()] for n in [10, 3, 1000, 2**31 + 5, 1]],
               "bits": rng.integers(2, size=70, dtype=bool).tolist(), "after": rng.choice(7, size=5).tolist(),
               "wide seed": 2**40 + 17, "wide": np.random.default_rng(2**40 + 17).choice(1000, size=10).tolist()}
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"sacrebleu": __version__, "numpy": np.__version__, "numbers": numbers, "cases": cases, "compared": compared}, out,
                  ensure_ascii=False, default=plain)
        out.write("\n")


if __name__ == "__main__":
    main()
