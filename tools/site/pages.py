#!/usr/bin/env python3
"""pages.py OUT: writes OUT/pages, the pages of the repository as mkdocs reads them, and OUT/mkdocs.yml.

README.md is the first page, and docs/README.md gives the order of the others. A link to a file or folder of the repository that is no
page becomes a link to a page with its text. The pages themselves are written for the repository: no mark of mkdocs is in them.
"""
import json
import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = Path(sys.argv[1]).resolve()
PAGES = OUT / "pages"
NAMES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "docs/README.md": "pages.md"}
sources = set()  # files and folders that pages link to


def place_of(path):
    """The name of a file of the repository below PAGES."""
    if path in NAMES:
        return NAMES[path]
    if path.startswith("docs/"):
        return path[len("docs/"):]
    sources.add(path)
    return f"source/{path}.md"


def with_links(text, path, place):
    def link(match):
        target, mark, anchor = match[1].partition("#")
        if "://" in target or not target:
            return match[0]
        there = place_of(os.path.normpath(os.path.join(os.path.dirname(path), target)))
        return f"]({os.path.relpath(there, os.path.dirname(place) or '.')}{mark}{anchor})"
    text = re.sub(r"\[([\w-]+)\.md\]\(", r"[\1](", text)
    parts = re.split(r"(^```.*?^```$|`[^`\n]*`)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else re.sub(r"\]\(([^)\s]+)\)", link, part) for i, part in enumerate(parts))


def with_comments_above(block):
    """Commands with comments beside them: in a block that is wider than the site, the comments are above the commands."""
    lines = block.split("\n")
    if max(map(len, lines)) <= 92:
        return block
    return "\n".join(re.sub(r"^(\S.*?\S) {2,}(# .*)$", r"\2\n\1", line) for line in lines)


def with_blocks(text):
    text = re.sub(r"^```(\w+) (\S+)$", r'```\1 title="\2"', text, flags=re.M)
    return re.sub(r"^```(?:sh|)\n.*?^```$", lambda m: with_comments_above(m[0]), text, flags=re.M | re.S)


def write(place, text):
    (PAGES / place).parent.mkdir(parents=True, exist_ok=True)
    (PAGES / place).write_text(text)


def write_page(path, sections):
    """In the search, pages for users come first, but for the list of errors, which has every word."""
    place = place_of(path)
    late = (*sections["Papers"], *sections["Internals"], "errors.md")
    boost = 0.5 if place in late else 1 if place in sections["Reference"] else 2
    write(place, f"---\nsearch:\n  boost: {boost}\n---\n" + with_blocks(with_links((ROOT / path).read_text(), path, place)))


def write_source(path):
    """A page with the text of a file, or of the files of a folder. The search leaves it out."""
    files = [ROOT / path] if (ROOT / path).is_file() else sorted(f for f in (ROOT / path).iterdir() if f.is_file())
    kinds = {".cc": "cpp", ".h": "cpp", ".yaml": "yaml", ".cff": "yaml", ".toml": "toml", ".txt": "cmake"}
    blocks = [f"````{kinds.get(f.suffix, 'text')} title=\"{f.relative_to(ROOT)}\"\n{f.read_text()}\n````\n" for f in files]
    write(f"source/{path}.md", "\n".join(["---\nsearch:\n  exclude: true\n---", f"# {path}\n", *blocks]))


def navigation():
    """The sections of docs/README.md with the pages that their tables list, in this order. A page that only the text of a row names
    follows the page of the row."""
    rows = [(title, [re.findall(r"\]\(([^)]+\.md)\)", cell) for cell in line.split(" | ", 1)])
            for title, _, body in (s.partition("\n") for s in re.split(r"^## ", (ROOT / "docs/README.md").read_text(), flags=re.M)[1:])
            for line in body.splitlines() if line.startswith("| [") or line.startswith("| history")]
    listed = {place for _, (first, _) in rows for place in first}
    sections = {"Start": [{"lmx": "index.md"}]}
    for title, (first, text) in rows:
        section = sections.setdefault(title.split()[0], [])
        section += first + [place for place in dict.fromkeys(text) if place not in listed]
        listed.update(text)
    sections["Guides"].append({"A report": "quickstart.html"})
    if shutil.which("doxygen"):
        sections["Reference"].append({"SDK": "api/index.html"})
    sections["Internals"] += ["contributing.md", "changelog.md", "pages.md"]
    return sections


def main():
    sections = navigation()
    for path in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", *(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))):
        write_page(path, sections)
    for path in sorted(sources):
        write_source(path)
    shutil.copytree(ROOT / "docs/images", PAGES / "images")
    for name in ("site.css", "iframe-worker.js"):
        shutil.copy(ROOT / "tools/site" / name, PAGES)
    settings = (ROOT / "tools/site/mkdocs.yml").read_text()
    places = {"docs_dir": str(PAGES), "site_dir": str(OUT / "site"), "nav": [{title: pages} for title, pages in sections.items()]}
    (OUT / "mkdocs.yml").write_text(settings + "".join(f"{key}: {json.dumps(value)}\n" for key, value in places.items()))


main()
