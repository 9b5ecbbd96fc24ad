"""Pieces of Python's syntax tree, with places of TLA+ files."""

from __future__ import annotations

import ast as py
from collections.abc import Iterable, Sequence
from typing import TypeVar

from fencepost.tla.ast import Place

P = TypeVar("P", py.expr, py.stmt)

LINES = 1 << 20
"""Lines of a file other than the code object's own are numbered from a multiple of this."""


def name(text: str) -> py.Name:
    return py.Name(text, py.Load())


def constant(value: bool | int | str | None) -> py.Constant:
    return py.Constant(value)


def call(function: str | py.expr, *arguments: py.expr) -> py.Call:
    return py.Call(name(function) if isinstance(function, str) else function, list(arguments), [])


def parameters(names: Iterable[str]) -> py.arguments:
    return py.arguments([], [py.arg(each) for each in names], None, [], [], None, [])


def function(names: Iterable[str], body: py.expr) -> py.Lambda:
    """``lambda names: body``."""
    return py.Lambda(parameters(names), body)


def definition(title: str, names: Iterable[str], body: list[py.stmt]) -> py.FunctionDef:
    return py.FunctionDef(title, parameters(names), body, [], None, None)


def assigned(title: str, value: py.expr) -> py.Assign:
    return py.Assign([py.Name(title, py.Store())], value)


def either(parts: Sequence[py.expr]) -> py.expr:
    return parts[0] if len(parts) == 1 else py.BoolOp(py.Or(), list(parts))


def every(parts: Sequence[py.expr]) -> py.expr:
    return parts[0] if len(parts) == 1 else py.BoolOp(py.And(), list(parts))


def negated(part: py.expr) -> py.expr:
    return py.UnaryOp(py.Not(), part)


def same(one: py.expr, other: py.expr) -> py.expr:
    return py.Compare(one, [py.Is()], [other])


def tuple_of(parts: Iterable[py.expr]) -> py.Tuple:
    return py.Tuple(list(parts), py.Load())


def item(of: py.expr, number: int) -> py.Subscript:
    return py.Subscript(of, constant(number), py.Load())


def placed(piece: P, place: Place, first_line: int) -> P:
    """The piece, with a place. ``first_line`` is what the lines of its file are counted from."""
    piece.lineno, piece.end_lineno = first_line + place.line, first_line + place.end_line
    piece.col_offset, piece.end_col_offset = place.column - 1, place.end_column
    return piece


def free_names(pieces: Iterable[py.AST], among: set[str]) -> list[str]:
    """The names of ``among`` that are used, and not bound."""
    used: dict[str, None] = {}
    bound: set[str] = set()
    for each in (part for piece in pieces for part in py.walk(piece)):
        if isinstance(each, py.Name) and isinstance(each.ctx, py.Load):
            used[each.id] = None
        elif isinstance(each, py.Name):
            bound.add(each.id)
        elif isinstance(each, py.arg):
            bound.add(each.arg)
        elif isinstance(each, py.FunctionDef):
            bound.add(each.name)
    return [each for each in used if each in among and each not in bound]
