"""Values as Parquet has them: shredded into leaves.

Parquet keeps nested values as Dremel does. A column is as many **leaves** as it has parts without parts. Each leaf has an entry for every
place at which a value could be: a **definition level**, which tells how many of the optional and repeated fields on the way there are
present, a **repetition level**, which tells in which list a new element begins, and the value itself, if all is present.
See https://parquet.apache.org/docs/file-format/nestedencoding/ .

The columns of a state space have few different values, in many rows. So every value is shredded once, and the rows are gathered from the
pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fencepost.compiler.tables import Array
from fencepost.states.kinds import Kind, Plain, is_keyed_by_parts

ENCODERS: dict[str, Callable[..., bytes]] = {
    "int": struct.Struct("<q").pack,
    "float": struct.Struct("<d").pack,
    "bool": struct.Struct("<?").pack,
    "text": str.encode,
}
"""A value without parts as the bytes that Parquet has for it, by its kind."""


@dataclass(frozen=True)
class Field:
    """A field of a schema: ``shape`` is ``int``, ``bool``, ``float``, ``text``, ``struct``, ``list`` or ``map``.

    ``optional``: whether it may be null. ``parts`` are the fields of a struct, the element of a list, the key and the value of a map.
    """

    name: str
    shape: str
    optional: bool = True
    parts: tuple[Field, ...] = ()


def field_of(name: str, kind: Kind, values: Sequence[Plain] | None = None) -> Field:
    """The field for values of a kind. ``values`` are all that it will ever hold, and what is null in none of them is not optional; if they
    are not given, anything may be null.
    """
    optional = values is None or any(value is None for value in values)
    present = None if values is None else [value for value in values if value is not None]
    if not isinstance(kind, dict):
        return Field(name, kind or "text", optional)
    if "struct" in kind:
        parts = [field_of(part, of, present and [value[part] for value in present]) for part, of in kind["struct"].items()]
        return Field(name, "struct", optional, tuple(parts))
    if "map" in kind:
        entries = None if present is None else [entry for value in present for entry in value]
        keys, held = (field_of(part, of, entries and [entry[n] for entry in entries]) for n, (part, of) in enumerate(zip(("key", "value"), kind["map"], strict=True)))
        if is_keyed_by_parts(kind):
            return Field(name, "list", optional, (Field("element", "struct", entries is None, (keys, held)),))
        return Field(name, "map", optional, (Field(keys.name, keys.shape, False), held))
    elements = None if present is None else [part for value in present for part in value]
    return Field(name, "list", optional, (field_of("element", kind.get("set", kind.get("list")), elements),))


@dataclass(frozen=True)
class Pieces:
    """Numbers in a row, some of them for each value: those of value ``v`` are ``numbers[begins[v]:begins[v + 1]]``."""

    begins: Array
    numbers: Array

    @property
    def key(self) -> tuple[bytes, bytes]:
        """Equal pieces have equal keys."""
        return self.begins.tobytes(), self.numbers.tobytes()


@dataclass(frozen=True)
class Leaf:
    """A leaf of a column. ``definition`` and ``repetition`` are its highest levels."""

    path: tuple[str, ...]
    shape: str
    definition: int
    repetition: int


@dataclass(frozen=True)
class Shreds:
    """Of some values what one leaf has: the levels, and which of the ``distinct`` bytes each value that is present consists of."""

    leaf: Leaf
    definitions: Pieces
    repetitions: Pieces
    codes: Pieces
    distinct: list[bytes]


class _Builder:
    """Takes the entries of one leaf, value after value."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self._encode = ENCODERS[leaf.shape]
        self._levels: list[int] = []
        self._repetitions: list[int] = []
        self._codes: list[int] = []
        self._places: dict[bytes, int] = {}
        self._level_begins, self._code_begins = [0], [0]

    def add(self, value: Plain, repetition: int) -> None:
        self.skip(self.leaf.definition, repetition)
        self._codes.append(self._places.setdefault(self._encode(value), len(self._places)))

    def skip(self, level: int, repetition: int) -> None:
        self._levels.append(level)
        self._repetitions.append(repetition)

    def end(self) -> None:
        """A value is complete."""
        self._level_begins.append(len(self._levels))
        self._code_begins.append(len(self._codes))

    def shreds(self) -> Shreds:
        definitions, repetitions = (_pieces(self._level_begins, levels) for levels in (self._levels, self._repetitions))
        return Shreds(self.leaf, definitions, repetitions, _pieces(self._code_begins, self._codes), list(self._places))


def _pieces(begins: list[int], numbers: list[int]) -> Pieces:
    return Pieces(np.array(begins, np.int64), np.array(numbers, np.uint32))


_Emit = Callable[[Plain, int], None]
"""Puts a value into the leaves of a field. It begins in the list that the number, a repetition level, says."""


def _emitter(field: Field, path: tuple[str, ...], definition: int, repetition: int, leaves: list[_Builder]) -> _Emit:
    """``definition`` and ``repetition`` are the highest levels of what the field is in. Its leaves are added to ``leaves``."""
    first, above = len(leaves), definition
    definition += field.optional

    def missing(level: int, begins_in: int) -> None:
        for leaf in own:
            leaf.skip(level, begins_in)

    def struct_of(parts: Iterable[Field], path: tuple[str, ...], definition: int, repetition: int) -> _Emit:
        emitters = [_emitter(part, (*path, part.name), definition, repetition, leaves) for part in parts]

        def emit(value: Plain, begins_in: int) -> None:
            for part, held in zip(emitters, value.values() if isinstance(value, dict) else value, strict=True):
                part(held, begins_in)

        return emit

    emit: _Emit
    if field.shape == "struct":
        emit = struct_of(field.parts, path, definition, repetition)
    elif field.shape in ("list", "map"):
        if field.shape == "map":
            element = struct_of(field.parts, (*path, "key_value"), definition + 1, repetition + 1)
        else:
            element = _emitter(field.parts[0], (*path, "list", "element"), definition + 1, repetition + 1, leaves)

        def emit(value: Plain, begins_in: int) -> None:
            if not value:
                missing(definition, begins_in)
            for part in value:
                element(part, begins_in)
                begins_in = repetition + 1

    else:
        leaves.append(_Builder(Leaf(path, field.shape, definition, repetition)))
        emit = leaves[-1].add
    own = leaves[first:]
    if not field.optional:
        return emit

    def optional(value: Plain, begins_in: int) -> None:
        if value is None:
            missing(above, begins_in)
        else:
            emit(value, begins_in)

    return optional


def shredded(field: Field, values: Iterable[Plain]) -> list[Shreds]:
    """Values of a field, each shredded into all leaves of it."""
    leaves: list[_Builder] = []
    emit = _emitter(field, (field.name,), 0, 0, leaves)
    for value in values:
        emit(value, 0)
        for leaf in leaves:
            leaf.end()
    return [leaf.shreds() for leaf in leaves]


def leaves_of(field: Field) -> list[Leaf]:
    """The leaves of a field."""
    return [shreds.leaf for shreds in shredded(field, ())]
