"""Which rooms import which: arrows run one way, from what a user asks for down to what everything rests on."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

import fencepost

SOURCE = Path(fencepost.__file__).parent

ABOVE = {
    "storage": ("compiler", "engines", "spec", "step"),
    "numbers": ("errors", "report", "spec", "step"),
    "step": ("compiler", "engines", "findings", "liveness", "report", "result", "states", "trace"),
    "liveness": ("compiler", "engines", "findings", "report", "result", "states"),
    "compiler": ("engines", "findings", "report", "result", "states", "trace"),
    "trace": ("engines", "spark", "findings", "report", "result", "states"),
    "engines": ("check", "spark", "findings", "report", "result", "states"),
    "findings": ("check", "report", "result", "states"),
    "states": ("check", "findings", "report", "result"),
    "report": ("check", "spark", "result"),
    "result": ("check",),
    "store": ("client", "log", "metadata_service", "quorum", "world"),
    "log": ("client", "metadata_service", "quorum", "spark", "world"),
    "metadata_service": ("client", "log", "world"),
    "quorum": ("client", "log", "metadata_service", "world"),
    "simulation": ("client", "log", "metadata_service", "quorum", "spark", "world"),
    "tracing": ("client", "conform", "log", "metadata_service", "quorum", "spark", "store"),
    "client": ("conform", "metadata_service", "quorum", "spark", "world"),
}
"""For each room those above it, none of which it may import. The command line is above all."""


def imported(room: str) -> set[str]:
    """The rooms that one imports, wherever it does: within functions, and for the types of annotations alone."""
    files = [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").exists() else sorted((SOURCE / room).rglob("*.py"))
    found = set()
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text()))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fencepost"):
            _, _, module = str(node.module).partition(".")
            found |= {module.split(".")[0]} if module else {name.name for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("fencepost.")}
    assert files, room
    return found - {room}


@pytest.mark.parametrize("room", ABOVE)
def test_no_room_imports_one_above_it(room: str) -> None:
    assert not imported(room) & {*ABOVE[room], "cli", "commands", "explorer", "progress"}


def name_of(path: Path) -> str:
    """The module of a file."""
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def arrows() -> dict[str, set[str]]:
    """Which files import which, wherever they do, by the names of their modules."""
    modules = {name_of(path): path for path in SOURCE.rglob("*.py")}
    found: dict[str, set[str]] = {}
    for name, path in modules.items():
        imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        given = {(str(node.module), alias.name) for node in imports for alias in node.names}
        found[name] = {f"{module}.{each}" if f"{module}.{each}" in modules else module for module, each in given}
        found[name] = found[name] & {*modules} - {name}
    return found


def test_published_protocols_share_no_code_with_what_is_checked_against_them() -> None:
    """But for the names of statuses, which decide nothing."""
    nodes = [node for file in (SOURCE / "protocols").rglob("*.py") for node in ast.walk(ast.parse(file.read_text()))]
    taken = {
        (node.module, name.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if str(node.module).startswith(("fencepost.log", "fencepost.quorum", "fencepost.store"))
    }
    assert taken == {("fencepost.store.rules.metadata", "LedgerStatus")}


def test_no_file_reaches_itself_by_imports() -> None:
    graph = arrows()
    for start in graph:
        reached: set[str] = set()
        waiting = [*graph[start]]
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += graph[name]
        assert start not in reached, f"{start} imports itself by way of others"
