"""Rules and roles, and the modules they import, do no input or output, read no clock and draw no random numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencepost

SOURCE = Path(fencepost.__file__).parent.parent

FOR_RULES = {"__future__", "typing", "enum", "collections", "collections.abc", "fencepost.language.values"}
FOR_ROLES = FOR_RULES | {
    "array",
    "dataclasses",
    "itertools",
    "struct",
    "zlib",
    "hashlib",
    "hmac",
    "msgspec",
    "google_crc32c",
    "fencepost.errors",
}
FORBIDDEN_NAMES = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint", "id", "hash"}
"""Builtins that do input or output, or differ between processes."""


def path_of(module: str) -> Path:
    path = SOURCE / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports(module: str) -> Iterator[str]:
    """Every module that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path_of(module).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if node.module.startswith("fencepost") and path_of(inner).exists() else node.module


def modules_of(package: str) -> list[str]:
    folder = path_of(package).parent
    return [package if path.stem == "__init__" else f"{package}.{path.stem}" for path in sorted(folder.glob("*.py"))]


def reached_from(package: str) -> set[str]:
    """The modules of a package and, transitively, those of the store that they import."""
    reached: set[str] = set()
    waiting = modules_of(package)
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += [name for name in imports(module) if name.startswith("fencepost.ledger")]
    return reached


@pytest.mark.parametrize("module", modules_of("fencepost.ledger.rules"))
def test_a_rule_imports_types_values_and_other_rules(module: str) -> None:
    assert {name for name in imports(module) if not name.startswith("fencepost.ledger.rules.")} <= FOR_RULES


def test_what_roles_are_made_of_does_no_input_or_output() -> None:
    reached = reached_from("fencepost.ledger.roles")
    assert {"fencepost.ledger.roles.bookie", "fencepost.ledger.rules.adding", "fencepost.ledger.messages"} <= reached
    for module in reached:
        others = {name for name in imports(module) if name not in reached}
        assert others <= FOR_ROLES, module


def test_nothing_is_called_that_needs_no_import() -> None:
    for module in reached_from("fencepost.ledger.roles") | reached_from("fencepost.ledger.rules"):
        tree = ast.parse(path_of(module).read_text())
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & FORBIDDEN_NAMES, module


def test_values_import_no_input_or_output_either() -> None:
    allowed = FOR_RULES | {
        "dataclasses",
        "functools",
        "inspect",
        "itertools",
        "math",
        "operator",
        "struct",
        "weakref",
        "zlib",
        "fencepost.errors",
        "fencepost.text.plain",
    }
    assert set(imports("fencepost.language.values")) <= allowed
