"""Rules, transitions and roles of a quorum import nothing that does I/O, reads a clock or draws random numbers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fencepost.quorum

ROOM = Path(fencepost.quorum.__file__).parent
PURE = [*sorted(ROOM.glob("*.py")), *sorted((ROOM / "roles").glob("*.py"))]
ALLOWED = {
    "__future__", "bisect", "collections.abc", "enum", "itertools", "msgspec", "operator", "typing",
    "fencepost.language.values",
}  # fmt: skip


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.stem)
def test_what_decides_is_pure(path: Path) -> None:
    inner = {name for name in imported(path) if name.startswith("fencepost.quorum")}
    assert imported(path) - inner <= ALLOWED
    assert not any(name.startswith(("fencepost.quorum.simulation", "fencepost.protocols.quorum")) for name in inner)


def test_kafkas_format_knows_nothing_of_a_quorum_and_no_replica_of_kafka() -> None:
    def ours(path: Path) -> set[str]:
        return {name for name in imported(path) if name.startswith("fencepost")}

    assert ours(ROOM / "kafka" / "schema.py") == set()
    assert ours(ROOM / "kafka" / "messages.py") == {"fencepost.quorum.kafka.schema"}
    inner = [path for path in ROOM.rglob("*.py") if path.parent.name != "kafka"]
    assert not any(name.startswith("fencepost.quorum.kafka") for path in inner for name in ours(path))


def test_rules_know_nothing_of_messages_and_roles() -> None:
    assert {name for name in imported(ROOM / "rules.py") if name.startswith("fencepost")} == {
        "fencepost.quorum.transitions",
        "fencepost.language.values",
    }
