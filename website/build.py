"""Makes the site: the documents, a reference from docstrings, and pages of the shipped defects.

    python -m website.build [FOLDER]     by default build/site

The pages are the documents of the repository as they are. They lie as in the repository, so that relative links work on
a code host and here. A link to a file of code leads to a page that shows it. What leads nowhere ends the build, and so
does a page that would load something from another host.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from website.defects import defects

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "website"

BESIDE = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "editors/vscode/README.md")
"""The documents beside the folder of all others."""

INDEX = "docs/index.md"
"""The page whose sections are those of the navigation."""

LANGUAGES = {".py": "python", ".tla": "tla", ".pml": "text", ".cfg": "text", ".toml": "toml", ".yml": "yaml"}

LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")

REFERENCE = {
    "Protocols and checks": ("fencepost",),
    "Linearizability": ("fencepost.language.linearizability",),
    "Testing": ("fencepost.testing",),
    "Traces": ("fencepost.traces",),
    "Conformances": ("fencepost.traces.validation",),
    "The store's client": (
        "fencepost.api.client", "fencepost.ledger.client.client", "fencepost.ledger.client.writer",
        "fencepost.ledger.client.reader", "fencepost.ledger.client.settings", "fencepost.ledger.errors",
    ),
    "Logs": ("fencepost.log", "fencepost.log.log", "fencepost.log.writer", "fencepost.log.reader",
             "fencepost.log.cursors", "fencepost.log.errors"),
    "Simulated worlds": ("fencepost.world.world",),
    "Spark": ("fencepost.spark",),
}  # fmt: skip
"""The pages of the reference, and the modules on each."""


# -- the pages --------------------------------------------------------------------------------------------------------


def documents() -> list[str]:
    """Every document, by its path in the repository."""
    return [*BESIDE, *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]


def lay_out(folder: Path) -> None:
    """Write the sources of all pages to an empty folder."""
    shown: set[str] = set()
    for name in documents():
        text, linked = with_links((ROOT / name).read_text(), name)
        shown |= linked
        put(folder / at_home(name), text)
    for name in shown:
        put(folder / f"{name}.md" if (ROOT / name).is_file() else folder / name / "files.md", code(name))
    shutil.copytree(ROOT / "docs/images", folder / "docs/images", ignore=shutil.ignore_patterns("*.py"))
    for title, modules in REFERENCE.items():
        put(folder / "reference" / f"{modules[0]}.rst", reference(title, modules))
    pages = [f"{those[0]}.rst" for those in REFERENCE.values()]
    listed = "".join(f"- [{title}]({those[0]}.rst)\n" for title, those in REFERENCE.items())
    put(folder / "reference/index.md", f"# Reference\n\n{listed}\n{contents('', pages)}")
    put(folder / "defects/index.md", defects(folder / "_defects"))
    with open(folder / "index.md", "a") as home:
        home.write("\n" + navigation((ROOT / INDEX).read_text()))


def put(path: Path, text: str) -> None:
    """Write a file, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def at_home(name: str) -> str:
    """The name of a page in the site: the README is where a reader begins."""
    return "index.md" if name == "README.md" else name


def with_links(text: str, name: str) -> tuple[str, set[str]]:
    """A document with links to pages that show code and folders, and their paths in the repository."""
    shown: set[str] = set()

    def led(match: re.Match[str]) -> str:
        target = match[1]
        path = os.path.normpath(f"{os.path.dirname(name)}/{target}".lstrip("/"))
        if "://" in target:
            return target
        if path == "README.md":
            return os.path.join(os.path.dirname(target), "index.md")
        if (ROOT / path).is_dir():
            shown.update([path, *(str(each.relative_to(ROOT)) for each in files(ROOT / path))])
            return f"{target}/files.md"
        if (ROOT / path).suffix in LANGUAGES and (ROOT / path).is_file():
            shown.add(path)
            return f"{target}.md"
        return target

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [LINK.sub(led, part) for part in parts[::2]]
    return "".join(parts), shown


def files(folder: Path) -> list[Path]:
    """The files of code in a folder."""
    return sorted(each for each in folder.iterdir() if each.suffix in LANGUAGES)


def code(name: str) -> str:
    """The page of a file, or of a folder with files of code."""
    path = ROOT / name
    head = f"---\norphan: true\n---\n\n# `{name}`\n\n"
    if path.is_dir():
        return head + "\n".join(f"- [`{each.name}`]({each.name}.md)" for each in files(path)) + "\n"
    return f"{head}````{LANGUAGES[path.suffix]}\n{path.read_text()}````\n"


def navigation(index: str) -> str:
    """The tables of contents: a section for each of the index, then what only the site has."""
    tables: list[str] = []
    seen: set[str] = set()  # a page stands where the index has it first
    for section in index.split("\n## "):
        title, _, body = section.partition("\n")
        pages = dict.fromkeys(f"docs/{link}" for link in LINK.findall(body) if link.endswith(".md"))
        tables.append(contents(title.lstrip("# "), [page for page in pages if page not in seen]))
        seen.update(pages)
    tables.append(contents("And", ["defects/index.md", "reference/index.md", INDEX, *BESIDE[1:]]))
    return "\n".join(tables)


def contents(title: str, pages: list[str]) -> str:
    """A table of contents, which is shown beside the pages."""
    options = f":caption: {title}\n" * bool(title) + ":hidden:\n"
    return "```{toctree}\n" + options + "".join(f"\n{page}" for page in pages) + "\n```\n"


def reference(title: str, modules: tuple[str, ...]) -> str:
    """A page of the reference, in reStructuredText, as docstrings are."""
    text = f"{title}\n{'=' * len(title)}\n"
    for module in modules:
        importlib.import_module(module)
        text += f"\n.. automodule:: {module}\n   :members:\n   :show-inheritance:\n"
    return text


# -- the site ---------------------------------------------------------------------------------------------------------


def build(site: Path) -> None:
    """Make the site in a folder, which is replaced. Raises SystemExit if a link leads nowhere, or a page would load
    something from another host.
    """
    with tempfile.TemporaryDirectory() as made:
        source, html = Path(made, "source"), Path(made, "html")
        source.mkdir()
        lay_out(source)
        command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--jobs", "auto"]
        command += ["-c", str(HERE), "-d", f"{made}/kept", str(source), str(html)]
        if subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}).returncode:
            raise SystemExit("the site is not made: see above")
        shutil.copytree(source / "_defects", html / "defects", dirs_exist_ok=True)
        wrong = [*misled(html)]
        if wrong:
            raise SystemExit("\n".join(wrong))
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(html, site, ignore=shutil.ignore_patterns(".buildinfo*", "objects.inv"))


class Page(HTMLParser):
    """What a page has: ``links`` to other pages, what it ``loads``, and its ``anchors``."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, given: list[tuple[str, str | None]]) -> None:
        attributes = {name: value for name, value in given if value is not None}
        self.anchors.update(attributes[name] for name in ("id", "name") if name in attributes)
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        elif tag == "link" and "href" in attributes and attributes.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(attributes["href"])
        elif "src" in attributes:
            self.loads.append(attributes["src"])


def misled(html: Path) -> Iterator[str]:
    """What is wrong with the pages in a folder: a link within the site that leads nowhere, or something that a page
    loads from elsewhere.
    """
    pages = {path: Page(path.read_text()) for path in sorted(html.rglob("*.html"))}
    for path, page in pages.items():
        here = path.relative_to(html)
        for link in page.loads:
            if link.startswith(("data:", "#")):
                continue
            if re.match(r"\w+:|//", link):
                yield f"{here} loads {link} from elsewhere"
            elif not (path.parent / link.partition("?")[0]).exists():
                yield f"{here} loads {link}, which is missing"
        for link in page.links:
            target, _, anchor = link.partition("#")
            if re.match(r"\w+:|//", target):
                continue
            to = (path.parent / target).resolve() if target else path
            if not to.is_file():
                yield f"{here} links to {link}"
            elif anchor and to in pages and anchor not in pages[to].anchors:
                yield f"{here} links to {link}: there is no such place"
    for path in html.rglob("*.css"):
        for link in re.findall(r"""url\(\s*["']?([^)"']+)""", path.read_text()):
            if re.match(r"https?:|//", link):
                yield f"{path.relative_to(html)} loads {link} from elsewhere"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the site.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build/site")
    build(parser.parse_args().folder.resolve())
