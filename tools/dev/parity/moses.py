#!/usr/bin/env python3
"""Golden values for the Moses tokenizer and detokenizer, made by sacremoses (pip install sacremoses).

moses.py OUT [MULTI30K]   writes OUT/moses_cases.tsv: language, options, line, tokens, detokenized tokens; and, if the
folder of the corpus is given, OUT/moses_multi30k.tsv: file, SHA-256 of its tokens and of their detokenized text.
"""
import hashlib
import pathlib
import sys

from sacremoses import MosesDetokenizer, MosesTokenizer

CASES = {
    "en": [
        "A man in an orange hat starring at something.",
        "It's John's dog, isn't it? They'll say: \"don't!\"",
        "The Joneses' house; the '90s, rock 'n' roll, o'clock.",
        "'Quoted' and ''double'' and ```ticks` ``both''.",
        "Dr. Smith vs. Mr. Jones, No. 5 and No. five, pp. 12-14, Art. 3, e.g. this, i.e. that.",
        "U.S. troops in the U.K. left at 5 p.m. on Jan. 3.",
        "He works at Widget Inc. She left. then he left.",
        "Wait... what?.. No.... yes.",
        "...start and end...",
        "1,000,000 people, 3.14, 5,a, a,5, 1,,2, ,x, 7,",
        "well-known state-of-the-art -- dash - and-- so--on -5 5- --",
        "$5.00 (about \u20ac4) [or \u00a33] {\u00a5500} <b>bold</b> & | more",
        "a@b.com http://example.org/x?y=1&z=2 #tag @me 50% 3\u00bd 10\u00b0C",
        "caf\u00e9 na\u00efve \u00bd \u2167 \u0661\u0662 e\u0301 \u00aa \u00ba x\u00b2",
        "tabs\tand\u00a0nbsp \u2003wide   spaces ",
        "\u201ccurly\u201d \u2018single\u2019 don\u2019t \u201elow\u201c \u2026 \u2013 \u2014",
        "a 's 's' s' '' ' 9's 9'x x'9 '9 9' a'b'c'd",
        "\u4e2d\u6587 and \ud55c\uad6d\uc5b4 and \u3072\u3089\u304c\u306a \u0438 \u0440\u0443\u0441\u0441\u043a\u0438\u0439.",
        "Emoji \U0001f600\U0001f1e9\U0001f1ea and \U0001d400 math.",
        "ends with apostrophe.'",
        "ends with quote.\"",
        "(He said so.) [yes.] 'He did.'",
        ".", "..", "...", ",", "'", "\"", "-", "", " ", "a", ".'", "a.", "A.", "I.", "x.y.", "x.y.z", ".a", ". a",
        "a. b", "a. B", "no. 5", "No. 5.", "No.5", "Nos. 5", "v. Dr", "Ph. D.", "&amp; &lt; &#91; &quot;",
        "I have 3 dogs.They bark.", "What?!", "Oh!!!", "\\back\\slash", "under_score", "a/b and/or",
        "@-@ and a @-@ b @-@ @-@ c", "it ' s", "' s", "say ' hello ' to \" them \" now",
    ],
    "de": [
        "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
        "Zwei junge wei\u00dfe M\u00e4nner sind im Freien in der N\u00e4he vieler B\u00fcsche.",
        "Das kostet ca. 3.000,50 \u20ac bzw. 5 Mio. Dollar, z.B. am 3. Oktober 1990 um 12.30 Uhr.",
        "Am 24. Dezember, dem 100. Tag, im XX. Jahrhundert und im XXI. Jahrhundert.",
        "Er sagte: \u201eDas geht\u2019s so nicht!\u201c und ging's an.",
        "Hans' Hund, Kai\u2019s Katze, 's ist kalt, wie geht's?",
        "Nr. 5, Str. 7, usw. Und so weiter, u.a. auch, d.h. ja, vgl. S. 3 ff. dort.",
        "E-Mail-Adresse, 20-j\u00e4hrig, Gro\u00df- und Kleinschreibung, \u00dcber-\u00c4rger",
        "\u00bbSo\u00ab oder \u00abso\u00bb, (etwa) [hier] \u2026",
        "i. v. xii. XII. xxi. a. Z. \u00e4. \u00c4. 9. 99. 100. 07.",
        "Wirklich?! Ja... Nein.... ", "o.\u00e4. u.\u00e4. c.-\u00e0-d. k.o. Dr. med. Prof. Dr. h.c. M\u00fcller",
        ".", "'", "3.", "Ende.'", "", "sagt \" ja \" und ' nein '", "5 % und 10\u00b0",
    ],
    "fr": [
        "Deux jeunes hommes blancs sont dehors pr\u00e8s de buissons.",
        "L'homme qu'il a vu aujourd'hui n'est pas d'ici, c'est s\u00fbr.",
        "Qu'est-ce que c'est ? C\u2019est l\u2019\u00e9t\u00e9 : il fait 30 \u00b0C !",
        "Il a dit : \u00ab\u00a0Bonjour\u00a0\u00bb ; puis il est parti\u2026",
        "M. Dupont, Mme. Durand, p. ex. ici, etc. et c.-\u00e0-d. cela, n\u00b0 5, art. 3, fig. 2.",
        "1 000,50 \u20ac ou 3,14 ; 50 % de l'ONU, 'cit\u00e9' et ''double''.",
        "Va-t-il ? Peut-\u00eatre... Voil\u00e0.... L'\u0153uvre d'Ariane, l'\u00eele",
        "quelqu'un d'autre l' autre l'' x'9 9'x 'a a' presqu'\u00eele",
        "J.-C. av. J.-C., S.A.R.L., T.S.V.P. a. b. \u00e9. \u00c9.",
        "l' homme d' ici , qu' il l' \u00e9t\u00e9 ! ( bon ) ?", ".", "'", "l'", "", "aujourd' hui \" cit\u00e9 \" % ;",
    ],
}


def clean(text):
    return text.replace("\\", "\\\\").replace("\t", "\\t")


def main():
    out = pathlib.Path(sys.argv[1])
    rows = ["# language, options (a: aggressive dashes, e: escape), line, tokens, detokenized; made by tools/dev/parity/moses.py"]
    for language, lines in CASES.items():
        tokenizer, detokenizer = MosesTokenizer(language), MosesDetokenizer(language)
        for line in lines:
            for options in ("-", "ae"):
                tokens = tokenizer.tokenize(line, aggressive_dash_splits="a" in options, escape="e" in options)
                text = detokenizer.detokenize(tokens)
                # Also treats the same line as tokens: the detokenizer then gets input that no tokenizer produces.
                as_tokens = detokenizer.detokenize(line.split()) if options == "-" else ""
                rows.append("\t".join(clean(x) for x in (language, options, line, " ".join(tokens), text, as_tokens)))
    (out / "moses_cases.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    if len(sys.argv) < 3:
        return
    rows = []
    for path in sorted(pathlib.Path(sys.argv[2]).glob("*.??")):
        language = path.suffix[1:]
        tokenizer, detokenizer = MosesTokenizer(language), MosesDetokenizer(language)
        tokens, texts = hashlib.sha256(), hashlib.sha256()
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            words = tokenizer.tokenize(line, escape=False)
            tokens.update((" ".join(words) + "\n").encode())
            texts.update((detokenizer.detokenize(words) + "\n").encode())
        rows.append("\t".join((path.name, tokens.hexdigest(), texts.hexdigest())))
    (out / "moses_multi30k.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
