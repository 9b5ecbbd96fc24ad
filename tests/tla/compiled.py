"""Expressions of a module that is written in a test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fencepost.tla import ast, modules
from fencepost.tla.actions import ActionCompiler
from fencepost.tla.compiler import Compiled
from fencepost.tla.symbols import Defined
from fencepost.tla.values import Value, show

HEAD = "---- MODULE Test ----\nEXTENDS Integers, Sequences, FiniteSets, TLC\nVARIABLES x, y\n"


class Texts:
    """A module with the given definitions, as a file of a folder. ``x`` and ``y`` are its variables."""

    def __init__(self, folder: Path, definitions: str) -> None:
        path = folder / "Test.tla"
        path.write_text(f"{HEAD}{definitions}\n====\n")
        self.specification = modules.load(path)
        names = [each.name for each in self.specification.variables]
        self.compiler = ActionCompiler({}, names)

    def defined(self, name: str) -> tuple[ast.Expression, Defined]:
        symbol = self.specification.definitions[name]
        assert not isinstance(symbol.body, ast.Function)
        return symbol.body, symbol

    def compiled(self, name: str) -> Compiled:
        body, symbol = self.defined(name)
        return self.compiler.expression(body, symbol.scope)

    def value(self, name: str, now: tuple[Value, ...] = (1, 2), then: tuple[Value, ...] = (3, 4)) -> Value:
        return self.compiled(name)(now, then)

    def shown(self, name: str) -> str:
        return show(self.value(name))


def module_of(folder: Path, expressions: Iterable[str], definitions: str = "") -> Texts:
    """A module in which ``Test0``, ``Test1``... are expressions."""
    tests = "\n".join(f"Test{number} == {each}" for number, each in enumerate(expressions))
    return Texts(folder, f"{definitions}\n{tests}")
