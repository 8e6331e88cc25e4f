#!/usr/bin/env python3
"""site_test.py BUILD_FOLDER CLASS: the pages that tools/docs gives to mkdocs. The standard library alone."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2]


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmx_site_")
        cls.addClassCleanup(folder.cleanup)
        cls.out = Path(folder.name)
        subprocess.run([sys.executable, "-B", SOURCES / "tools/site/pages.py", cls.out], check=True)
        cls.pages = {str(p.relative_to(cls.out / "pages")): p.read_text() for p in cls.out.glob("pages/**/*.md")}
        nav = json.loads(re.search(r"^nav: (.*)$", (cls.out / "mkdocs.yml").read_text(), re.M)[1])
        cls.nav = {title: pages for section in nav for title, pages in section.items()}

    def test_the_navigation_has_every_page_once(self):
        self.assertEqual(list(self.nav), ["Start", "Guides", "Reference", "Papers", "Internals"])
        listed = [p if isinstance(p, str) else next(iter(p.values())) for pages in self.nav.values() for p in pages]
        own = [p for p in self.pages if not p.startswith("source/")]
        self.assertEqual(sorted(p for p in listed if p.endswith(".md")), sorted(own))
        self.assertIn("plugins-sync.md", self.nav["Guides"])  # only the text of a row names it

    def test_every_link_has_its_file(self):
        for place, text in self.pages.items():
            prose = re.sub(r"^(```+).*?^\1$|`[^`\n]*`", "", text, flags=re.M | re.S)
            for target in re.findall(r"\]\(([^)\s]+)\)", prose):
                if "://" not in target and not target.startswith("#"):
                    there = os.path.normpath(os.path.join(os.path.dirname(place), target.split("#")[0]))
                    self.assertTrue((self.out / "pages" / there).exists(), f"{place}: {target}")

    def test_files_of_the_repository_become_pages(self):
        self.assertIn((SOURCES / "recipes/quickstart.yaml").read_text(), self.pages["source/recipes/quickstart.yaml.md"])
        self.assertIn("CMakeLists.txt", self.pages["source/tests/consumer/plugin.md"])

    def test_blocks_are_those_of_mkdocs(self):
        for place, text in self.pages.items():
            self.assertNotRegex(text, r"(?m)^```\w+ [\w.]+$", place)
        self.assertIn('```cpp title="cube.cc"\n', "".join(self.pages.values()))
        self.assertIn("\n# 2 x 2 configurations, 3 seeds each\nlmx sweep recipes/quickstart.yaml", self.pages["sweeps.md"])

    @unittest.skipUnless(shutil.which("doxygen"), "doxygen is not installed")
    def test_doxygen_describes_each_public_header(self):
        settings = (SOURCES / "tools/site/Doxyfile").read_text() + f"OUTPUT_DIRECTORY = {self.out}\n"
        made = subprocess.run(["doxygen", "-q", "-"], input=settings, cwd=SOURCES, capture_output=True, text=True)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        pages = {name: re.sub("<.*?>", "", (self.out / f"api/{name}.html").read_text()) for name in ("files", "namespaces")}
        self.assertIn("(Dean et al. 2012", pages["files"])  # the whole first sentence
        self.assertNotRegex(pages["namespaces"], "&lt; *namespace")  # the comment behind the end of one
        self.assertEqual([p.name for p in self.out.glob("api/*.html") if str(SOURCES) in p.read_text(errors="replace")], [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
