"""Rooms import only from floors below their own."""

from __future__ import annotations

import ast

from house import FLOOR, PICTURE, SOURCE, arrows, picture, room_of


def test_every_folder_and_file_is_on_a_floor() -> None:
    there = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there == {*FLOOR, "__init__", "__main__"}


def test_rooms_import_only_those_of_floors_below() -> None:
    """Except for the package itself: it imports what it exports, and protocols import it."""
    up = {
        f"{name} imports {other}"
        for name, others in arrows().items()
        for other in others
        if (here := room_of(name)) in FLOOR and (there := room_of(other)) in FLOOR
        if here != there and FLOOR[here] <= FLOOR[there]
    }
    assert not up


def test_published_protocols_share_no_code_with_what_is_checked_against_them() -> None:
    """Except for the names of statuses, which decide nothing."""
    own = ("store", "log", "quorum")  # over the rules that run
    files = [file for file in (SOURCE / "protocols").rglob("*.py") if file.parent.name not in own]
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


def test_the_picture_is_of_this_house() -> None:
    assert PICTURE.read_text() == picture(), "run tests/house.py"
