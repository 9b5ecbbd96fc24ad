"""The contents of a value: the model values in it, which can be exchanged for others, and its classes; and of cells."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from types import CellType
from typing import Any

from fencepost.language.values import Map, ModelValue, Record, Set, Value


def permute(value: Value, swap: Mapping[ModelValue, ModelValue]) -> Value:
    """The value with model values exchanged for others, wherever in it they stand; ``swap`` says which for which."""
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
    return value


def _parts(value: Value) -> Iterator[Value]:
    """The values that a value is made of."""
    if isinstance(value, (tuple, frozenset)):
        yield from value
    elif isinstance(value, Record):
        yield from (getattr(value, name) for name in value._fields)
    elif isinstance(value, Map):
        for item in value.items():
            yield from item


def model_values_in(value: Value) -> Iterator[ModelValue]:
    """Every model value that stands somewhere in a value."""
    if isinstance(value, ModelValue):
        yield value
    for part in _parts(value):
        yield from model_values_in(part)


def classes_in(value: Value) -> Iterator[type]:
    """Every class by whose name something in a value, or in the path of a slot, is encoded."""
    if isinstance(value, type):
        yield value
    elif isinstance(value, (enum.Enum, Record)):
        yield type(value)
    for part in _parts(value):
        yield from classes_in(part)


def content_of(cell: CellType) -> Any:
    """What a function's own variable of an outer function holds; None if nothing was assigned to it yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
