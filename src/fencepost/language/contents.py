"""The contents of a value: its model values, which can be exchanged, and its classes. Also the contents of cells."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from types import CellType
from typing import Any

from fencepost.language.values import Foreign, Map, ModelValue, Record, Set, Value


class Permutation(dict[ModelValue, ModelValue]):
    """A permutation, from model value to model value, without fixed points. ``images``: what a language keeps of the
    images of values.
    """

    def __init__(self, of: Mapping[ModelValue, ModelValue]) -> None:
        super().__init__(of)
        self.images: dict[bytes, Any] = {}


def permute(value: Value, swap: Mapping[ModelValue, ModelValue]) -> Value:
    """The value with model values exchanged throughout, as ``swap`` maps them."""
    if isinstance(value, ModelValue):
        return swap.get(value, value)
    if isinstance(value, tuple):
        return tuple(permute(v, swap) for v in value)
    if isinstance(value, frozenset):
        return Set(permute(v, swap) for v in frozenset.__iter__(value))
    if isinstance(value, Record):
        return value.replace(**{n: permute(getattr(value, n), swap) for n in value._fields})
    if isinstance(value, Map):
        return Map({permute(k, swap): permute(v, swap) for k, v in value.items()})
    if isinstance(value, Foreign):
        return value.permuted(swap)
    return value


def _parts(value: Value) -> Iterator[Value]:
    """The direct parts of a value."""
    if isinstance(value, (tuple, frozenset)):
        yield from value
    elif isinstance(value, Record):
        yield from (getattr(value, name) for name in value._fields)
    elif isinstance(value, Map):
        for item in value.items():
            yield from item
    elif isinstance(value, Foreign):
        python = value.python()
        if isinstance(python, ModelValue):
            yield python
        yield from python.values() if isinstance(python, dict) else _parts(python)


def model_values_in(value: Value) -> Iterator[ModelValue]:
    """Every model value in a value, at any depth."""
    if isinstance(value, ModelValue):
        yield value
    for part in _parts(value):
        yield from model_values_in(part)


def classes_in(value: Value) -> Iterator[type]:
    """Every class whose name appears in the encoding of a value or of the path of a slot."""
    if isinstance(value, type):
        yield value
    elif isinstance(value, (enum.Enum, Record)):
        yield type(value)
    for part in _parts(value):
        yield from classes_in(part)


def content_of(cell: CellType) -> Any:
    """The content of a closure's cell. None if nothing was assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
