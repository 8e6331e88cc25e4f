#!/usr/bin/env python3
"""The form of tests/config/more_cases.yaml. Needs PyYAML, and no Hydra.

    python3 tools/dev/parity/case_file.py FILE     prints the cases of a file in this form

The files of a case are written once if other cases have the same ones. Files that many cases have among others are in the
map `shared`, and a case merges them. Each case is written in flow style, in lines of at most 120 columns.
"""
import re
import sys

import yaml

HEAD = """\
# Composition cases of lmx's own, in the form of its conformance suite. tools/dev/parity/config_cases.py writes the
# expectations, which are the results of Hydra 1.3, except for cases with `by: hand`.
format: 1
"""
COLUMNS = 120


class Dumper(yaml.SafeDumper):
    """Writes a text in quotes if YAML 1.2 reads another type than PyYAML, for example 1e3, and line breaks as \\n."""

    def represent_text(self, text):
        numeric = re.fullmatch(r"[-+.]?[0-9][-+0-9_.eExobXOBa-fA-F:]*", text)
        return self.represent_scalar("tag:yaml.org,2002:str", text, style='"' if "\n" in text else "'" if numeric else None)


Dumper.add_representer(str, Dumper.represent_text)


def scalar(value):
    text = yaml.dump([value], Dumper=Dumper, default_flow_style=True, allow_unicode=True, width=10**9)
    return text.rstrip("\n")[1:-1]


def pieces(value):
    """The words of a value in flow style. A line may end after each of them."""
    if isinstance(value, dict):
        return mapping({name: pieces(entry) for name, entry in value.items()})
    if isinstance(value, (list, tuple)):
        return sequence("[]", [pieces(entry) for entry in value])
    return [scalar(value)]


def mapping(entries):
    """The words of a mapping; `entries` has the words of each value."""
    return sequence("{}", [[f"{scalar(name)}: {words[0]}", *words[1:]] for name, words in entries.items()])


def sequence(brackets, entries):
    words = [word for entry in entries for word in [*entry[:-1], entry[-1] + ","]] or [","]
    words[0] = brackets[0] + words[0]
    words[-1] = words[-1][:-1] + brackets[1]
    return words


def files_words(files, shared):
    """The words of a case's files. It merges each map of `shared` whose files it has."""
    merged = [name for name, part in shared.items() if part.items() <= files.items()]
    words = pieces({path: text for path, text in files.items() if not any(path in shared[name] for name in merged)})
    return [f"{{<<: [{', '.join('*' + name for name in merged)}],", words[0][1:], *words[1:]] if merged else words


def lines_of(words, begin="  -"):
    """The words of an entry of the list, in as few lines as possible."""
    lines = [begin]
    for word in words:
        if len(lines[-1]) + 1 + len(word) <= COLUMNS:
            lines[-1] += " " + word
        else:
            lines.append("    " + word)
    return lines


def text_of(suite):
    """The whole file. The first case with the same files as others has them with an anchor."""
    cases, shared = suite["cases"], suite.get("shared", {})
    keys = [tuple(case["files"].items()) for case in cases]
    anchors = {}
    lines = ["shared:"] if shared else []
    for name, files in shared.items():
        lines += lines_of(pieces(files), f"  {name}: &{name}")
    lines.append("cases:")
    for case, key in zip(cases, keys):
        entries = {name: pieces(value) for name, value in case.items()} | {"files": files_words(case["files"], shared)}
        if key in anchors:
            entries["files"] = [f"*{anchors[key]}"]
        elif keys.count(key) > 1:
            anchors[key] = f"files{len(anchors) + 1}"
            entries["files"][0] = f"&{anchors[key]} {entries['files'][0]}"
        lines += lines_of(mapping(entries))
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(text_of(yaml.safe_load(file)), end="")
