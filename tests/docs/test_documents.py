"""Nothing in the documents is invented: code comes from files that are run, and links lead somewhere."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.documents import DOCS, EXAMPLES, ROOT, Block, blocks, documents, is_excerpt

import fencepost
from fencepost import errors
from fencepost.cli.arguments import Parser
from fencepost.cli.main import COMMANDS
from fencepost.language.loading import load
from fencepost.report.json import data

PROTOCOLS = ROOT / "src" / "fencepost" / "protocols"
SOURCES = {"python": "*.py", "tla": "*.tla"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("block", [b for d in documents() for b in blocks(d, *SOURCES)], ids=str)
def test_code_is_taken_from_an_example(block: Block) -> None:
    files = [f for folder in (EXAMPLES, PROTOCOLS) for f in sorted(folder.rglob(SOURCES[block.language]))]
    assert any(is_excerpt(block.text, f.read_text()) for f in files), f"in no example:\n{block.text}"


@pytest.mark.parametrize("document", documents(), ids=lambda d: d.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        page = (document.parent / path) if path else document
        assert page.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in anchors(page), f"{document.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as a forge makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_an_excerpt_is_told_from_what_is_none() -> None:
    source = "class A:\n    def f(self):\n        x = 1\n\n        y = 2\n        z = 3\n"
    assert is_excerpt("def f(self):\n    x = 1\n", source)
    assert is_excerpt("x = 1\n\ny = 2\n", source)
    assert is_excerpt("x = 1\n# ...\nz = 3\n", source)
    assert not is_excerpt("x = 1\nz = 3\n", source), "lines left out without an elision"
    assert not is_excerpt("z = 3\n# ...\nx = 1\n", source), "in another order"
    assert not is_excerpt("def f(self):\nx = 1\n", source), "at two indentations"
    assert not is_excerpt("x = 2\n", source)


def test_every_example_is_shown() -> None:
    text = "".join(d.read_text() for d in documents())
    for example in sorted(p.name for p in EXAMPLES.iterdir() if p.suffix in (".py", ".tla")):
        assert example in text, f"{example} is in no document"


def test_the_index_has_every_page() -> None:
    index = (DOCS / "index.md").read_text()
    for page in DOCS.rglob("*.md"):
        assert str(page.relative_to(DOCS)) in index or page.name == "index.md", f"{page.name} is not in docs/index.md"


def test_files_that_the_house_is_explained_with_are_there() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page))
    assert len(named) > 30
    assert not [
        name for name in named if not any((root / name).exists() for root in (ROOT, ROOT / "src" / "fencepost"))
    ]


# -- references are complete ------------------------------------------------------------------------------------------


def test_the_language_page_names_everything_public() -> None:
    page = (DOCS / "check/language.md").read_text()
    missing = [name for name in fencepost.__all__ if f"`{name}" not in page]
    assert not missing


@pytest.mark.parametrize(
    "public",
    (
        "Result Violation Witness ActionCount Options SearchOptions EmbeddedOptions SparkOptions SimulationOptions"
        " Progress Trace Step Envelope Network"
    ).split(),
)
def test_the_language_page_names_every_attribute(public: str) -> None:
    page = (DOCS / "check/language.md").read_text()
    kind = getattr(fencepost, public)
    names = {n for n in (*inspect.get_annotations(kind), *dir(kind)) if not n.startswith("_")}
    assert not {n for n in names if not re.search(rf"`{n}\b", page)}


def test_the_command_line_page_has_every_option_and_no_other() -> None:
    page = (DOCS / "command-line.md").read_text()
    parsers = []
    for name in COMMANDS.keys() - {"query", "witness", "diff"}:  # which the page of states describes
        parsers.append(Parser())
        importlib.import_module(f"fencepost.cli.commands.{name.replace('-', '_')}").add_options(parsers[-1])
    actions = [action for each in parsers for action in all_actions(each)]
    options = {option for action in actions for option in action.option_strings} | {"--debug"}
    described = set(re.findall(r"^\| `(-\w+|--[\w-]+)", page, flags=re.M)) | set(
        re.findall(r"^\| `-h`, `(--help)`", page, flags=re.M)
    )
    assert described == options


def all_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """What can be typed, also after the commands of a command."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from all_actions(each)


def test_the_command_line_page_has_every_exit_code_and_no_other() -> None:
    page = (DOCS / "command-line.md").read_text()
    described = {int(code) for code in re.findall(r"^\| (\d+) \|", page, flags=re.M)}
    assert described == {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int)}


def test_the_command_line_page_has_every_field_of_the_json_and_no_other() -> None:
    section = (DOCS / "command-line.md").read_text().split("### JSON")[1].split("### ITF")[0]
    result, trace = section.split("A `trace` is a list")
    violated = fencepost.check(load(str(EXAMPLES / "lost_update.py"))(), engine="reference")
    written = data(violated)
    assert first_column(result) == set(written)
    assert first_column(trace) == set(written["violation"]["trace"][1])
    assert {"kind", "name", "trace"} == set(written["violation"])


def first_column(section: str) -> set[str]:
    """The names in the first column of a table."""
    return {name for row in re.findall(r"^\|([^|]*)\|", section, flags=re.M) for name in re.findall(r"`(\w+)`", row)}
