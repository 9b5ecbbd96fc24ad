"""Reads the English of pages, docstrings and comments: python tests/docs/prose.py [PATH ...]

Says where a phrase of ``prose.toml`` stands, where a sentence is longer than :data:`LONGEST` words, and what proselint
finds. Code, tables and quotations are not read.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from proselint.checks import __register__
from proselint.config import Config
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = Path(__file__).resolve().parents[2]
WORDS = tomllib.loads((Path(__file__).parent / "prose.toml").read_text())
PHRASES = [(re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE), advice) for phrase, advice in WORDS["instead"].items()]
STRING_OR_COMMENT = re.compile(
    r"""(\"{3}|'{3})(?:\\.|.)*?\1|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#[^\n]*""", re.DOTALL
)
"""Strings are found, too, since a number sign in one begins no comment."""
LONGEST = 40
"""Words of a sentence that is read aloud in one breath, and then some."""


class Paragraph(NamedTuple):
    """Some prose of a file: the number of its first line, and its lines."""

    line: int
    text: str


def prose(path: Path) -> Iterator[Paragraph]:
    """The prose of a page, or of a file of Python."""
    text = path.read_text()
    if path.suffix == ".md":
        yield from _of_page(text)
        return
    for node in _statements(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from _paragraphs(node.lineno, inspect.cleandoc(node.value.value))
    line, read = 1, 0
    for found in STRING_OR_COMMENT.finditer(text):
        if found[0].startswith("#") and not found[0].startswith(("# type:", "# noqa", "# fmt:", "# --")):
            line, read = line + text.count("\n", read, found.start()), found.start()
            yield Paragraph(line, found[0].lstrip("# "))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements in a module or a statement, and those in them."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        for each in getattr(node, part, ()):
            yield each
            yield from _statements(each)


def _of_page(text: str) -> Iterator[Paragraph]:
    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    yield from _paragraphs(1, re.sub(r"^```.*?^```$|^ *\|.*?$|^#.*?$", blank, text, flags=re.M | re.S))


def _paragraphs(line: int, text: str) -> Iterator[Paragraph]:
    """Parts between blank lines; each item of a list is one of its own. Indented blocks, of code, are none."""
    for part in re.finditer(r"(?:[^\n]*\S[^\n]*(?:\n|$))+", text):
        at = line + text.count("\n", 0, part.start())
        for item in re.split(r"\n(?=\s*(?:[-*]|\d+\.) )", part[0]):
            if not re.match(r"    | *(?:\$|>>>)", item) and "===" not in item:
                yield Paragraph(at, item)
            at += item.count("\n") + 1


def plain(text: str) -> str:
    """Text without what is code or quoted."""
    text = re.sub(r"``[^`]*``|`[^`]*`|:\w+:`[^`]*`", "X", text)
    text = re.sub(r"\]\([^)]*\)|https?://\S+", "]", text)
    return re.sub(r"\s+", " ", text).strip()


def sentences(text: str) -> list[str]:
    """The sentences of a paragraph. A semicolon and a colon end one, too: they are where a reader breathes."""
    return re.split(r"(?<=[;:])\s+|(?<=[.?!])[)*\"']* +(?=[\"'(*A-Z\[`]|X\b)", plain(text))


def complaints(path: Path) -> Iterator[tuple[int, str]]:
    """What is to be said about the prose of a file, each with its line."""
    paragraphs = [(line, text, plain(text)) for line, text in prose(path)]
    # A call of proselint takes long, however short the text is: paragraphs are checked where their file has something.
    whole = "\n\n".join(read for _, _, read in paragraphs)
    to_check = any(any(check.check(f"\n{whole}\n")) for check in CHECKS)
    for line, text, read in paragraphs:
        for phrase, advice in PHRASES:
            for found in phrase.finditer(read):
                yield line, f"{found[0]!r}: {advice}"
        for sentence in sentences(text):
            if len(words := sentence.split()) > LONGEST:
                yield line, f"a sentence of {len(words)} words: {' '.join(words[:8])} ..."
        for result in LintFile(source=str(path), content=read).lint(CONFIG) if to_check and read else ():
            yield line, f"{result.check_result.message} ({result.check_result.check_path})"


CHECKS = [check for check in __register__ if any(check.matches_partial(name) for name in WORDS["proselint"])]
CheckRegistry().register_many(tuple(CHECKS))
CONFIG = Config(max_errors=10, checks=dict.fromkeys(WORDS["proselint"], True))


def listed(given: list[Path]) -> list[str]:
    """The pages and Python files in these folders or of these names that git knows; without any, all of them."""
    found = subprocess.run(
        ["git", "ls-files", "--full-name", *map(str, given)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in found.stdout.splitlines() if name.endswith((".md", ".py"))]


if __name__ == "__main__":
    given = [Path(each).absolute() for each in sys.argv[1:]]
    found = 0
    for name in listed(given):
        for line, complaint in complaints(ROOT / name):
            print(f"{name}:{line}: {complaint}")
            found += 1
    sys.exit(f"{found} to be said in plainer words" if found else 0)
