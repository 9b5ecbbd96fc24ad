"""The source of a protocol: all of its author's code that it can reach, by any kind of import, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.language.loading import SHIPPED, load, shipped
from fencepost.language.source import source_digest

PROTOCOL = """
import json
import os.path

import numpy

import beside
import sourced.inner.deep
from fencepost import Protocol, action, invariant, require, state
from sourced import helper as renamed, not_a_module
from varied import Base


class Counts(Base):
    @action
    def count(self) -> None:
        import late
        from importlib import import_module

        if self.n:
            from spaces.below import later
        import_module("named.by_text")
        require(self.n < 3)
        self.n += 1
"""

REACHED = {
    "main.py": PROTOCOL,
    "varied.py": "from fencepost import Protocol, state\n\n\nclass Base(Protocol):\n    n: int = state(0)\n",
    "beside.py": "from beside_too import LIMIT\n",
    "beside_too.py": "LIMIT = 3\n",
    "sourced/__init__.py": "not_a_module = 3\n",
    "sourced/helper.py": "def unused():\n    from . import sibling\n",
    "sourced/sibling.py": "from .inner import *\nfrom ..beyond import nothing\n",
    "sourced/inner/__init__.py": "__all__ = ['by_star']\n",
    "sourced/inner/by_star.py": "from ..cousin import name\n",
    "sourced/inner/deep.py": "",
    "sourced/cousin.py": "name = 1\n",
    "late.py": "import main\n",
    "spaces/below/later.py": "",
    "named/by_text.py": "",
}

OTHERS = {"other.py": "", "sourced/other.py": "", "spaces/below/other.py": "", "main.txt": ""}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {**REACHED, **OTHERS}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    # Another test may have imported modules of these names.
    for name in ("beside", "beside_too", "varied", "sourced", "sourced.helper", "sourced.inner", "sourced.inner.deep"):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_every_file_that_can_be_imported_and_no_other(folder: Path) -> None:
    protocol = load(str(folder / "main.py"))()
    before = source_digest(protocol)
    assert source_digest(protocol) == before
    for name, text in REACHED.items():
        (folder / name).write_text(text + "# changed\n")
        assert source_digest(protocol) != before, name
        (folder / name).write_text(text)
    for name in OTHERS:
        (folder / name).write_text("# changed\n")
    assert source_digest(protocol) == before


def test_files_that_change_places(folder: Path) -> None:
    protocol = load(str(folder / "main.py"))()
    before = source_digest(protocol)
    (folder / "late.py").write_text(REACHED["named/by_text.py"])
    (folder / "named/by_text.py").write_text(REACHED["late.py"])
    assert source_digest(protocol) != before


def test_what_is_imported_by_then_makes_no_difference(folder: Path) -> None:
    protocol = load(str(folder / "main.py"))()
    before = source_digest(protocol)
    for name in ("late", "sourced.helper", "spaces.below.later", "named.by_text"):
        __import__(name)
    assert source_digest(protocol) == before


def test_each_shipped_protocol_has_a_digest_of_its_own() -> None:
    assert len({source_digest(shipped(name)()) for name in SHIPPED}) == len(SHIPPED)
