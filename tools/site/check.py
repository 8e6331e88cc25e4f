#!/usr/bin/env python3
"""check.py SITE: fails if a link of the site is dead, or if its search does not find the pages that answer questions of a new user."""
import html
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

SITE = Path(sys.argv[1]).resolve()
# What a new user types, and the page with the answer, which has to be among the first three.
QUESTIONS = {"resume an interrupted run": "training.html", "out of memory": "memory.html", "train on my own text": "tutorial.html",
             "several seeds": "sweeps.html", "write a model plugin": "plugins-model.html", "top-k": "compressors.html",
             "how do I translate a file?": "translation.html"}


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(path.read_text(errors="replace"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.names.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def dead_links():
    pages = {path: Page(path) for path in SITE.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            if not there.exists():
                yield f"{path.relative_to(SITE)}: {link} has no file"
            elif parts.fragment and there in pages and path.parts[-2] != "api" and unquote(parts.fragment) not in pages[there].names:
                yield f"{path.relative_to(SITE)}: {link} has no anchor"


def found(browser, question):
    """The pages that the search lists first, in a browser that opens the site from the disk."""
    with tempfile.TemporaryDirectory() as profile:
        page = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu",
                               f"--user-data-dir={profile}", "--virtual-time-budget=20000", "--dump-dom",
                               f"file://{SITE}/index.html?q={quote(question)}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    links = re.findall(r'<a href="([^"]*)" class="md-search-result__link', page)
    return list(dict.fromkeys(urlsplit(html.unescape(link)).path.rsplit("/", 1)[-1] for link in links))


def main():
    mistakes = list(dead_links())
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    for question, page in QUESTIONS.items() if browser else ():
        pages = found(browser, question)
        if page not in pages[:3]:
            mistakes.append(f"the search for '{question}' lists {', '.join(pages[:3]) or 'nothing'}, and not {page}, among the first three")
    for mistake in mistakes:
        print(f"tools/docs: {mistake}", file=sys.stderr)
    sys.exit(bool(mistakes))


main()
