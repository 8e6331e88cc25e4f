#!/usr/bin/env python3
"""Golden values for data.preprocess puri: the results of Python's re, html, str.split and unidecode for artificial reviews.

Needs unidecode. Writes tests/data/golden/puri_clean.json.
"""
import html
import json
import pathlib
import re

import unidecode

CASES = [
    "plain text", "  many   spaces\tand\u00a0others ", "<b>bold</b> and<br />lines<br/>", "a < b > c", "5 &lt; 6 &amp;&amp; 7 &gt; 2",
    "caf\u00e9 na\u00efve \u00e6on \u00d8re \u00df \u0141\u00f3d\u017a \u010capek \u00c5ngstr\u00f6m \u00deor \u00f0",
    "\u201cquoted\u201d \u2018it\u2019s\u2019 \u2014 dash \u2013 \u2026 \u2022", "\u20ac5 \u00a320 \u00a53 10\u00a2", "30\u00b0C \u00b1 2 \u00d7 3 \u00bd \u00bc",
    "\u00a9 \u00ae \u2122", "x\u00b2 + y\u00b3", "&eacute; &Eacute &copy; &copy &notit; &notin; &nosuch; &", "&#233; &#xE9; &#150; &#0; &#x110000; &#7; &#xZZ; &#",
    "AT&T Q&A &ampquot;", "&quot;x&quot; &apos;y&apos; &nbsp;z", "&amp;lt;b&amp;gt; stays", "\u041c\u043e\u0441\u043a\u0432\u0430", "\u0391\u03b8\u03ae\u03bd\u03b1",
    "\u5317\u4eac", "\u6771 \u4eac", "\uc11c\uc6b8", "\u3072\u3089\u304c\u306a", "\u30ab\u30bf\u30ab\u30ca", "smile \U0001f600 end", "zero\u200bwidth soft\u00adhyphen",
    "\ufb01ne \ufb02ow", "\uff21\uff22\uff23", "a\u0301 combining", "line one\nline two\r\nthree", "\u2190 \u2192 \u2264 \u2265", "\u2116 5", "<a href='x'>link</a>&hellip;",
    "I paid $5.99 &mdash; worth it!!!!!!", "tab\there", "\u2028separated\u2029", "\u00bfQu\u00e9? \u00a1No!", "\u00abguillemets\u00bb", "<", ">", "<>", "&;", "&#;",
    "&lang;x&rang;", "&frac12; &Yuml; &thetasym; &euro;", "O\u2019Brien\u02bcs", "\u0130stanbul \u0131\u015f\u0131k \u011f",
]


def clean(text):
    text = re.sub(r"<.*?>", " ", text)
    return "\n " + " ".join(html.unescape(unidecode.unidecode(text)).split()) + " "


def main():
    path = pathlib.Path(__file__).resolve().parents[3] / "tests/data/golden/puri_clean.json"
    rows = [[c, clean(c) if clean(c) != "\n  " else ""] for c in CASES]
    path.write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


if __name__ == "__main__":
    main()
