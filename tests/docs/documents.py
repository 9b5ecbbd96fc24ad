"""The documents as data: their code blocks, their links, and the commands they show."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from patience import PATIENCE

from fencepost.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

ELISION = {"# ...", "\\* ..."}
"""A line in a block that stands for omitted lines of the file."""


def documents() -> list[Path]:
    """Every page of the documentation, and those beside it."""
    beside = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    return [*beside, *sorted(DOCS.rglob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced block of a document: its language, its text, and the line that opens it."""

    document: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(document: Path, *languages: str) -> list[Block]:
    """The fenced blocks of ``document`` in these languages, in order."""
    text = document.read_text()
    found = [Block(document, text.count("\n", 0, m.start()) + 1, m.group(1), m.group(2)) for m in FENCE.finditer(text)]
    return [b for b in found if b.language in languages]


def is_excerpt(block: str, source: str) -> bool:
    """Whether the lines of ``block`` are in ``source``, in order and at one indentation, with nothing left out but
    elisions.
    """
    lines = source.splitlines()
    indents = {len(line) - len(line.lstrip()) for line in lines if line.strip()}
    return any(_stands_in(_chunks(block), _outdented(lines, indent)) for indent in indents)


def _outdented(lines: list[str], indent: int) -> list[str | None]:
    """The lines without the indentation ``indent``. None for lines indented less."""
    return ["" if not line.strip() else line[indent:] if not line[:indent].strip() else None for line in lines]


def _stands_in(chunks: list[list[str]], lines: list[str | None]) -> bool:
    at: int | None = 0
    for chunk in chunks:
        if at is not None:
            at = _find(chunk, lines, at)
    return at is not None


def _chunks(block: str) -> list[list[str]]:
    chunks: list[list[str]] = [[]]
    for line in block.rstrip("\n").split("\n"):
        if line.strip() in ELISION:
            chunks.append([])
        else:
            chunks[-1].append(line)
    return [_trimmed(c) for c in chunks if _trimmed(c)]


def _trimmed(chunk: list[str]) -> list[str]:
    while chunk and not chunk[0].strip():
        chunk = chunk[1:]
    while chunk and not chunk[-1].strip():
        chunk = chunk[:-1]
    return chunk


def _find(chunk: list[str], lines: list[str | None], start: int) -> int | None:
    for at in range(start, len(lines) - len(chunk) + 1):
        if lines[at : at + len(chunk)] == chunk:
            return at + len(chunk)
    return None


@dataclass(frozen=True)
class Command:
    """A command of a console block, with what the document says it prints."""

    block: Block
    line: str
    output: str


def commands(block: Block) -> list[Command]:
    """The commands of a block: what begins with ``$ ``, up to the end of the line that closes its quotes, each with the
    lines up to the next one.
    """
    found: list[Command] = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        while _is_open(line) and output:
            more, _, output = output.partition("\n")
            line += f"\n{more}"
        found.append(Command(block, line, output))
    return found


def _is_open(line: str) -> bool:
    try:
        shlex.split(line)
    except ValueError:
        return True
    return False


def run(document: Path) -> Iterator[tuple[Command, str]]:
    """Run the commands of a page one after the other, in one copy of ``docs/examples``, as a reader of the page does.
    Returns each with its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"), dirs_exist_ok=True)
        for block in blocks(document, "console"):
            for command in commands(block):
                yield command, _run(command.line, folder)


PLAIN = re.compile(r"fencepost (?:check|show|list) (?!.*--resume)[^;|<>&$]*")
"""A command that needs no shell, no Spark, and no fresh process, as going on from a checkpoint does: the classes of its
values are found by their module's name, which several examples may have borne by then.
"""

ENVIRONMENT = {"COLUMNS": "100", "NO_COLOR": "1", "PYTEST_PLUGINS": "fencepost.testing.plugin", "CI": ""}
"""What a reader's terminal is. `CI` is unset: pytest leaves its summary's lines whole where it is set."""

PATH = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]


def _run(line: str, folder: str) -> str:
    if PLAIN.fullmatch(line):
        return _run_here(line, folder)
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(PATH), "PYTHONHASHSEED": "0"}
    python = shlex.quote(sys.executable)
    line = re.sub(r"(^|&& |; )(fencepost|pytest)\b", rf"\1{python} -m \2", re.sub(r"^python\b", python, line))
    done = subprocess.run(
        line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    return done.stdout + done.stderr


def _run_here(line: str, folder: str) -> str:
    """The output of a command run in this process, which has already loaded the modules that a process takes a second
    to load.
    """
    out, err = io.StringIO(), io.StringIO()
    before, path, modules = os.getcwd(), list(sys.path), set(sys.modules)
    os.chdir(folder)
    try:
        with mock.patch.dict(os.environ, ENVIRONMENT), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(shlex.split(line)[1:])
    finally:
        os.chdir(before)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(folder):
                del sys.modules[name]
    return out.getvalue() + err.getvalue()


# -- what a command prints, and what a document shows of it ------------------------------------------------------------

VARIES = [
    (re.compile(r"^( *(?:time|peak memory|Python calls) ).*$", re.MULTILINE), r"\1"),
    (re.compile(r"[\d.,]+(?: million| billion)? a second"), "a second"),
    (re.compile(r"\b(passed|failed|deselected) in [\d.]+s(?: \([\d:]+\))?"), r"\1"),
    (re.compile(r"\.py:\d+"), ".py"),
    (re.compile(r" {2,}"), "  "),
]
"""Patterns that differ from run to run, and their replacements for the comparison."""


def same(shown: str) -> str:
    """``shown`` without the parts that differ from run to run."""
    for pattern, instead in VARIES:
        shown = pattern.sub(instead, shown)
    return shown.strip()


def selected(printed: str, shown: str) -> str:
    """What a document shows of ``printed``: the paragraphs that begin with the same words, or everything if it shows
    nothing.

    ``...`` stands for paragraphs that are left out or, inside one, for lines. Raises LookupError if a paragraph is
    gone.
    """
    if not shown.strip():
        return printed
    ahead = iter(_paragraphs(printed))
    chosen = []
    for paragraph in _paragraphs(shown):
        if paragraph.strip() != "...":
            real = next((p for p in ahead if _first_word(p) == _first_word(paragraph)), None)
            if real is None:
                raise LookupError(
                    f"nothing that begins with {_first_word(paragraph)} is printed, but this is:\n{printed}"
                )
            paragraph = _shortened(real.split("\n"), paragraph.split("\n"))
        chosen.append(paragraph)
    return "\n\n".join(chosen) + "\n"


def _first_word(paragraph: str) -> str:
    found = re.search(r"\w+|\S+", paragraph)
    return found[0] if found else ""


def _shortened(real: list[str], shown: list[str]) -> str:
    elided = [i for i, line in enumerate(shown) if line.strip() == "..."]
    if not elided:
        return "\n".join(real)
    after = len(shown) - elided[0] - 1
    return "\n".join([*real[: elided[0]], shown[elided[0]], *(real[-after:] if after else [])])


def _paragraphs(text: str) -> list[str]:
    return [p.strip("\n") for p in re.split(r"\n\s*\n", text) if p.strip()]
