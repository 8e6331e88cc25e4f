#!/usr/bin/env python3
"""Scores of sacreBLEU (PyPI: sacrebleu) for tests/data/translation_scores_test.cc:
tools/dev/parity/bleu.py tests/data/golden/bleu.json

Eighteen small corpora, each scored with every tokenizer, every smoothing, both cases, chrF and chrF++. Lower case is compared only for
characters with a single lower-case form: Python's lower() converts some into two characters, and a sigma depending on its position.
"""
import json
import sys

from sacrebleu import __version__
from sacrebleu.metrics import BLEU, CHRF

EN = ["The cat sat on the mat, didn't it?", "It costs $3,500.75 (about 2.5% more) in 1999-2000.",
      "A well-known state-of-the-art method; \"quoted\" & more.", "Hello world!", "the the the the the"]
HYP = ["The cat sat on a mat, didn't it?", "It costs $3,500.75 (some 2.5% more) in 1999-2001.",
       "A well-known state of the art method; 'quoted' & more.", "Hello, world", "the cat"]
DE = ["Der schnelle braune Fuchs springt über den faulen Hund.", "Straßenbahn-Haltestelle: 12.30 Uhr – Abfahrt!",
      "„Guten Tag“, sagte er – und ging 3 km/h schnell.", "Größe: 1,5 m² bzw. ½ Tüte für 5€."]
DE_HYP = ["Der flinke braune Fuchs springt über den trägen Hund.", "Straßenbahn Haltestelle: 12.30 Uhr - Abfahrt !",
          "„Guten Tag“, sagte sie – und ging 3 km/h schnell.", "Größe: 1,5 m² oder ½ Tüte für 5 €."]
ZH = ["我们今天去北京参观了长城，非常开心。", "他在2018年买了iPhone X，花了8,000元！", "机器翻译（MT）很有用。"]
ZH_HYP = ["我们今天到北京参观长城，很开心。", "2018年他买了一部iPhone X，花8,000元！", "机器翻译(MT)是很有用的。"]
ODD = ["&quot;a &amp; b&quot; &lt;skipped&gt; <skipped> x", "a\u00a0b\u2003c  d\te ", " -5 --- 10.-20,30 .5. ,,x..",
       "ﬁne Ça été naïve ÉCOLE ΣΑΣΑ", "1.000,50 und 7. Tag 7 .", "x²+y³=z⁴ ~`^_{}|\\[]"]
ODD_HYP = ["\"a & b\" x", "a b c d e", "-5 --- 10.-20,30 .5. ,x..", "ﬁne ça été naive école σασα", "1.000,50 und 7 Tag 7.",
           "x²+y³ = z⁴ ~`^_{}|[]"]
CORPORA = {
    "english": (HYP, [EN]), "german": (DE_HYP, [DE]), "chinese": (ZH_HYP, [ZH]), "odd characters": (ODD_HYP, [ODD]),
    "the same": (EN, [EN]), "nothing shared": (["x y z w v", "q"], [["a b c d e", "r"]]),
    "empty lines": (["", HYP[0], "", HYP[2]], [[EN[0], EN[0], "", EN[2]]]), "an empty hypothesis": (["", ""], [EN[:2]]),
    "empty references": (HYP[:2], [["", ""]]), "one word": (["Hello"], [["Hello"]]), "two words": (["a b", "c d"], [["a b", "c e"]]),
    "too short": ([s[: len(s) // 2] for s in EN], [EN]), "too long": ([s + " " + s for s in EN], [EN]),
    "two references": (HYP, [EN, ["A cat sat on the mat, didn't he?", "It costs $3,500 in 1999.", "Known.", "Hello, world!",
                                  "the cat the"]]),
    "three references": (DE_HYP, [DE, DE_HYP[::-1], [""] + DE[1:]]),
    "equally near references": (["a b c d e"], [["a b c d"], ["a b c d e f"]]),
    "two Chinese references": (ZH_HYP, [ZH, ZH[::-1]]), "one letter": (["a"], [["b"]]),
}


def scores(hypothesis, references):
    for tokenizer in ["13a", "intl", "char", "zh", "none"]:
        for smoothing, value in [("exp", None), ("floor", None), ("floor", 0.5), ("add-k", None), ("add-k", 2), ("none", None)]:
            for lower in [False, True] if smoothing == "exp" else [False]:
                metric = BLEU(tokenize=tokenizer, smooth_method=smoothing, smooth_value=value, lowercase=lower, force=True)
                s = metric.corpus_score(hypothesis, references)
                yield {"metric": "bleu", "tokenizer": tokenizer, "smoothing": smoothing, "value": value, "lower": lower,
                       "score": s.score,
                       "text": s.format(signature="x").removeprefix("BLEU|x = "),
                       "signature": str(metric.get_signature()).split("|version")[0]}
    for words in [0, 1, 2]:
        for lower in [False, True]:
            metric = CHRF(word_order=words, lowercase=lower)
            s = metric.corpus_score(hypothesis, references)
            yield {"metric": "chrf", "words": words, "lower": lower, "score": s.score, "name": s.name,
                   "signature": str(metric.get_signature()).split("|version")[0]}


def main():
    cases = [{"name": name, "hypothesis": h, "references": r, "scores": list(scores(h, r))} for name, (h, r) in CORPORA.items()]
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write('{"made_by": "sacrebleu %s", "cases": [\n' % __version__)
        f.write(",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases) + "\n]}\n")


main()
