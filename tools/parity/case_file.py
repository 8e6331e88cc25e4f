#!/usr/bin/env python3
"""The form of tests/config/more_cases.yaml. Needs PyYAML, and no Hydra.

    python3 tools/parity/case_file.py FILE     prints the cases of a file in this form

The files of a case are written once if other cases have the same ones. Mappings and lists are written in flow style, in
lines of at most 120 columns.
"""
import re
import sys

import yaml

HEAD = """\
# Composition cases of lmx's own, in the form of its conformance suite; tools/parity/config_cases.py writes them, with
# expectations from Hydra 1.3 (those of schemas by hand).
format: 1
cases:
"""
COLUMNS = 120


class Dumper(yaml.SafeDumper):
    """Writes a text in quotes if YAML 1.2 reads another type than PyYAML, for example 1e3."""

    def represent_text(self, text):
        numeric = re.fullmatch(r"[-+.]?[0-9][-+0-9_.eExobXOBa-fA-F:]*", text)
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="'" if numeric else None)


Dumper.add_representer(str, Dumper.represent_text)


def scalar(value):
    text = yaml.dump([value], Dumper=Dumper, default_flow_style=True, allow_unicode=True, width=10**9)
    return text.rstrip("\n")[1:-1]


def pieces(value):
    """The words of a value in flow style. A line may end after each of them."""
    if not isinstance(value, (dict, list, tuple)):
        return [scalar(value)]
    brackets = "{}" if isinstance(value, dict) else "[]"
    words = []
    for entry in value.items() if isinstance(value, dict) else value:
        if words:
            words[-1] += ","
        if isinstance(value, dict):
            first, *more = pieces(entry[1])
            words += [f"{scalar(entry[0])}: {first}", *more]
        else:
            words += pieces(entry)
    if not words:
        return [brackets]
    words[0] = brackets[0] + words[0]
    words[-1] += brackets[1]
    return words


def lines_of(start, value):
    """`start` and the value, in as few lines as possible."""
    lines = [start]
    indent = " " * (len(start) - len(start.lstrip()) + 2)
    for word in pieces(value):
        if len(lines[-1]) + 1 + len(word) <= COLUMNS:
            lines[-1] += " " + word
        else:
            lines.append(indent + word)
    return lines


def lines_of_result(expect):
    lines = lines_of("    expect:", expect)
    if len(lines) == 1:
        return lines
    lines = ["    expect:"]
    for name, value in expect.items():
        if name == "jobs":
            lines.append("      jobs:")
            for job in value:
                lines += lines_of("        -", job)
        else:
            lines += lines_of(f"      {name}:", value)
    return lines


def is_block(text):
    """Whether a text is written line by line. Others, such as one that begins with a blank, are written in quotes."""
    return re.fullmatch(r"[!-~][ -~\n]*[ -~]\n", text) is not None


def lines_of_files(files):
    lines = []
    for name, text in files.items():
        key = f"      {scalar(name)}:"
        if is_block(text):
            lines.append(f"{key} |")
            lines += [f"        {line}" if line else "" for line in text[:-1].split("\n")]
        else:
            lines.append(f"{key} {scalar(text)}")
    return lines


def text_of(cases):
    """The whole file. The first case with the same files as others has them with an anchor."""
    keys = [tuple(case["files"].items()) for case in cases]
    anchors = {}
    lines = []
    for case, key in zip(cases, keys):
        lines.append(f"  - id: {scalar(case['id'])}")
        for name, value in case.items():
            if name == "id":
                continue
            if name == "expect":
                lines += lines_of_result(value)
            elif name != "files":
                lines += lines_of(f"    {name}:", value)
            elif key in anchors:
                lines.append(f"    files: *{anchors[key]}")
            elif keys.count(key) == 1:
                lines += ["    files:", *lines_of_files(value)]
            else:
                anchors[key] = f"files{len(anchors) + 1}"
                lines += [f"    files: &{anchors[key]}", *lines_of_files(value)]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(text_of(yaml.safe_load(file)["cases"]), end="")
