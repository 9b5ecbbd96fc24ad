"""Which rooms import which: arrows run one way, from what a user asks for down to what everything rests on."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import fencepost

SOURCE = Path(fencepost.__file__).parent

FLOORS = (
    ("errors", "version"),
    ("files", "text"),
    ("connections",),
    ("language",),
    ("semantics",),
    ("behaviours",),
    ("checker",),
    ("states",),
    ("traces",),
    ("report",),
    ("simulation",),
    ("ledger",),
    ("log", "quorum"),
    ("metadata", "protocols"),
    ("api",),
    ("spark", "world"),
    ("explorer",),
    ("cli",),
)
"""The rooms, from what everything rests on up to what a user asks for. A room imports those of floors below its own."""

FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room_of(module: str) -> str:
    """The room of a module: the folder of the package that it is in, or the file."""
    return module.removeprefix("fencepost").strip(".").partition(".")[0]


def test_every_folder_and_file_is_on_a_floor() -> None:
    there = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there == {*FLOOR, "__init__", "__main__"}


def test_rooms_import_only_those_of_floors_below() -> None:
    """But for the package itself, which imports whatever it gives, and which protocols are written with."""
    up = {
        f"{name} imports {other}"
        for name, others in arrows().items()
        for other in others
        if (here := room_of(name)) in FLOOR and (there := room_of(other)) in FLOOR
        if here != there and FLOOR[here] <= FLOOR[there]
    }
    assert not up


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
    own = ("store", "log", "quorum")  # over the rules that run
    files = [file for file in (SOURCE / "protocols").rglob("*.py") if file.parent.name not in (*own, "model_testing")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    taken = {
        (node.module, name.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if str(node.module).startswith(("fencepost.log", "fencepost.quorum", "fencepost.ledger"))
    }
    assert taken == {("fencepost.ledger.rules.metadata", "LedgerStatus")}


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
