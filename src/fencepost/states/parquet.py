"""Parquet, written from numbers.

A row group is a number for each row and column, which says which of a few values stands there; the values are shredded before
(:mod:`fencepost.states.shredding`). So no value is built for any row, none is hashed, and what leaves have in common is encoded once.
What is written follows https://parquet.apache.org/docs/file-format/ : pages of version 1, a dictionary for every leaf but those
of numbers that are all different and of booleans. Levels and places in dictionaries are one run: repeated if all are the same, and packed
bits otherwise, which compress better than many short runs.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fencepost.compiler.tables import Array
from fencepost.states.packing import DELTAS, GROUP, pack, pack_deltas
from fencepost.states.shredding import Field, Leaf, Pieces, Shreds, leaves_of

BOOLEAN, INT64, DOUBLE, BYTE_ARRAY = 0, 2, 5, 6
PHYSICAL = {"int": INT64, "bool": BOOLEAN, "float": DOUBLE, "text": BYTE_ARRAY}
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
PLAIN, RLE, DELTA_BINARY_PACKED, RLE_DICTIONARY = 0, 3, 5, 8
UNCOMPRESSED, ZSTD = 0, 6
DATA_PAGE, DICTIONARY_PAGE = 0, 2
CONVERTED = {"text": 0, "map": 1, "list": 3}
LOGICAL = {"text": 1, "map": 2, "list": 3}
"""The numbers that the format has for all this."""

MAGIC = b"PAR1"


# -- Thrift's compact protocol ----------------------------------------------------------------------------------------

Struct = Mapping[int, Any]
"""What Thrift calls a struct, by the numbers of its fields: :class:`I32`, int (of 64 bits), bytes, text, a list of one of these, or a struct.
A field that is None is left out."""


class I32(int):
    """A number of 32 bits."""


def thrift(fields: Struct) -> bytes:
    """A struct."""
    told, last = bytearray(), 0
    for number, value in fields.items():
        if value is not None:
            told += bytes(((number - last) << 4 | _type(value),)) + _content(value)
            last = number
    return bytes(told) + b"\0"


def _type(value: Any) -> int:
    if isinstance(value, int):
        return 5 if isinstance(value, I32) else 6
    return 8 if isinstance(value, (bytes, str)) else 9 if isinstance(value, list) else 12


def _content(value: Any) -> bytes:
    if isinstance(value, int):
        return varint((value << 1 ^ value >> 63) & (1 << 64) - 1)
    if isinstance(value, (bytes, str)):
        text = value.encode() if isinstance(value, str) else value
        return varint(len(text)) + text
    if isinstance(value, list):
        kind = _type(value[0]) if value else 12
        begin = bytes((len(value) << 4 | kind,)) if len(value) < 15 else bytes((0xF0 | kind,)) + varint(len(value))
        return begin + b"".join(map(_content, value))
    return thrift(value)


def varint(number: int) -> bytes:
    """A number, 7 bits in a byte, the lowest first."""
    told = bytearray()
    while number > 0x7F:
        told.append(number & 0x7F | 0x80)
        number >>= 7
    told.append(number)
    return bytes(told)


# -- Schemas ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Schema:
    """The columns of a file. ``arrow`` is the same for Arrow, whose types readers that know them restore; its metadata goes into the file."""

    fields: tuple[Field, ...]
    arrow: Any


def _elements(field: Field) -> Iterator[Struct]:
    """A field as the footer lists it: each node before those that it is made of."""
    repetition, converted, logical = I32(field.optional), CONVERTED.get(field.shape), LOGICAL.get(field.shape)
    annotated: Struct = {6: converted if converted is None else I32(converted), 10: None if logical is None else {logical: {}}}
    if not field.parts:
        yield {1: I32(PHYSICAL[field.shape]), 3: repetition, 4: field.name, **annotated}
        return
    if field.shape == "struct":
        yield {3: repetition, 4: field.name, 5: I32(len(field.parts))}
    else:
        yield {3: repetition, 4: field.name, 5: I32(1), **annotated}
        yield {3: I32(REPEATED), 4: "key_value" if field.shape == "map" else "list", 5: I32(len(field.parts))}
    for part in field.parts:
        yield from _elements(part)


# -- Row groups -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """A column of whole numbers of 64 bits that differ: no dictionary, no compression. ``missing`` says which are null.

    ``rising``: whether most of them, taken without a sign, are in order, so that their differences take less room.
    """

    leaf: Leaf
    values: Array
    missing: Array | None = None
    rising: bool = False


@dataclass(frozen=True)
class Coded:
    """A column of few different values: which one stands in each row, and the leaves of all of them."""

    ids: Array
    leaves: Sequence[Shreds]


@dataclass(frozen=True)
class RowGroup:
    """Rows of one schema, which are encoded together."""

    schema: Schema
    rows: int
    columns: Sequence[Numbers | Coded]


@dataclass(frozen=True)
class Chunk:
    """What a row group has of one leaf: its pages, and what the footer says of them, but for where they are."""

    leaf: Leaf
    codec: int
    encodings: list[int]
    entries: int
    plain: int
    dictionary: bytes
    data: bytes
    statistics: Struct | None


@dataclass(frozen=True)
class Encoded:
    """A row group that is ready to be written."""

    rows: int
    chunks: list[Chunk]


def encoded(group: RowGroup) -> Encoded:
    """The pages of a row group. Other threads go on meanwhile."""
    codec = pa.Codec("zstd")
    chunks: list[Chunk] = []
    for column in group.columns:
        if isinstance(column, Numbers):
            chunks.append(_chunk_of_numbers(column))
        else:
            chunks += _chunks_of_codes(column, codec)
    return Encoded(group.rows, chunks)


def _chunk_of_numbers(column: Numbers) -> Chunk:
    rows, held = len(column.values), column.values
    present = None if column.missing is None else ~column.missing
    if present is not None:
        held = held[present]
    levels = b""
    if column.leaf.definition:
        there = np.ones(1, np.uint8) if present is None or present.all() else present.view(np.uint8)
        levels = _sized(_run(rows, there, 1, lambda: np.packbits(there, bitorder="little").tobytes()))
    encoding = DELTA_BINARY_PACKED if column.rising else PLAIN
    data = levels + (_deltas(held) if column.rising else held.astype("<i8").tobytes())
    statistics = {3: rows - len(held), **({5: held.max().tobytes(), 6: held.min().tobytes()} if len(held) else {})}
    header = _data_page(len(data), len(data), rows, encoding)
    plain = len(header) + len(data)
    return Chunk(column.leaf, UNCOMPRESSED, [RLE, encoding], rows, plain, b"", header + data, statistics)


def _deltas(values: Array) -> bytes:
    """Numbers as their differences."""
    begin = varint(DELTAS) + varint(DELTAS // GROUP) + varint(len(values)) + _content(int(values[0]) if len(values) else 0)
    room = np.zeros(len(values) * 8 + (len(values) // DELTAS + 1) * (10 + 4 + DELTAS * 8), np.uint8)
    return begin + room[: pack_deltas(values, room)].tobytes()


def _chunks_of_codes(column: Coded, codec: Any) -> Iterator[Chunk]:
    leaves = column.leaves
    counts = np.bincount(column.ids, minlength=len(leaves[0].codes.begins) - 1)
    gather = _Gather(column.ids.astype(np.uint32), counts)
    pages: dict[Any, tuple[bytes, int]] = {}
    for shreds in leaves:
        leaf, flat = shreds.leaf, not shreds.leaf.repetition and len(shreds.leaf.path) == 1
        entries, values = gather.count(shreds.definitions), gather.count(shreds.codes)
        coded = leaf.shape != "bool"
        # Parts of the same values often have the same levels and places, with other dictionaries.
        width = _width(len(shreds.distinct) - 1)
        # Compression is by bytes, which no number should straddle.
        width = next((even for even in (1, 2, 4, 8) if width <= even), width)
        same = (coded, width, leaf.definition, leaf.repetition, shreds.definitions.key, shreds.repetitions.key, shreds.codes.key)
        if same not in pages:
            levels = [(pieces, highest) for pieces, highest in ((shreds.repetitions, leaf.repetition), (shreds.definitions, leaf.definition)) if highest]
            parts = [_sized(gather.run(pieces, entries, _width(highest))) for pieces, highest in levels]
            if coded:
                parts.append(bytes((width,)) + gather.run(shreds.codes, values, width))
            else:
                parts.append(gather.packed(_truths(shreds), values, 1))
            content = b"".join(parts)
            packed = codec.compress(content, asbytes=True)
            header = _data_page(len(content), len(packed), entries, RLE_DICTIONARY if coded else PLAIN)
            pages[same] = header + packed, len(header) + len(content)
        data, plain = pages[same]
        dictionary = b""
        if coded:
            content = _plain(leaf, shreds.distinct)
            packed = codec.compress(content, asbytes=True)
            header = thrift({1: I32(DICTIONARY_PAGE), 2: I32(len(content)), 3: I32(len(packed)), 7: {1: I32(len(shreds.distinct)), 2: I32(PLAIN)}})
            dictionary, plain = header + packed, plain + len(header) + len(content)
        statistics = _statistics(shreds, gather.counts, entries - values) if flat else None
        yield Chunk(leaf, ZSTD, [RLE, PLAIN, RLE_DICTIONARY] if coded else [RLE, PLAIN], entries, plain, dictionary, data, statistics)


def _truths(shreds: Shreds) -> Pieces:
    """Booleans have no dictionary: their values instead of their places in one."""
    values = np.array([value != b"\0" for value in shreds.distinct], np.uint32)
    return Pieces(shreds.codes.begins, values[shreds.codes.numbers])


@dataclass(frozen=True)
class _Gather:
    """Gathers pieces of values: ``ids`` says which values, ``counts`` how often there is each."""

    ids: Array
    counts: Array

    def count(self, pieces: Pieces) -> int:
        """How many numbers that are."""
        return int(self.counts @ np.diff(pieces.begins))

    def packed(self, pieces: Pieces, count: int, width: int) -> bytes:
        """The numbers, of so many bits each, in groups of eight."""
        room = np.zeros((count + 7) // 8 * width, np.uint8)
        pack(self.ids, pieces.begins, pieces.numbers, width, room)
        return room.tobytes()

    def run(self, pieces: Pieces, count: int, width: int) -> bytes:
        """The numbers as one run."""
        present = pieces.numbers[np.repeat(self.counts > 0, np.diff(pieces.begins))]
        return _run(count, present, width, lambda: self.packed(pieces, count, width))


def _run(count: int, present: Array, width: int, packed: Callable[[], bytes]) -> bytes:
    """``count`` numbers of so many bits as one run: the one that is ``present``, repeated, or if there are several, as they are ``packed``."""
    if not count:
        return b""
    if (present == present[0]).all():
        return varint(count << 1) + int(present[0]).to_bytes((width + 7) // 8, "little")
    return varint((count + 7) // 8 << 1 | 1) + packed()


def _width(highest: int) -> int:
    """The bits that it takes to tell numbers up to ``highest`` apart."""
    return max(1, highest.bit_length())


def _sized(run: bytes) -> bytes:
    return len(run).to_bytes(4, "little") + run


def _data_page(plain: int, packed: int, entries: int, encoding: int) -> bytes:
    """The header of a page of data."""
    return thrift({1: I32(DATA_PAGE), 2: I32(plain), 3: I32(packed), 5: {1: I32(entries), 2: I32(encoding), 3: I32(RLE), 4: I32(RLE)}})


def _plain(leaf: Leaf, values: Iterable[bytes]) -> bytes:
    if leaf.shape != "text":
        return b"".join(values)
    return b"".join(len(value).to_bytes(4, "little") + value for value in values)


def _statistics(shreds: Shreds, counts: Array, missing: int) -> Struct:
    """By which readers skip row groups: how many are null, and the least and the greatest whole number."""
    there = shreds.codes.numbers[np.repeat(counts > 0, np.diff(shreds.codes.begins))]
    if shreds.leaf.shape != "int" or not len(there):
        return {3: missing}
    numbers = np.frombuffer(b"".join(shreds.distinct), "<i8")[there]
    return {3: missing, 5: numbers.max().tobytes(), 6: numbers.min().tobytes()}


# -- Files ------------------------------------------------------------------------------------------------------------


class ParquetFile:
    """A file that is being written to a stream of bytes, row group by row group."""

    def __init__(self, stream: Any, schema: Schema, by: str) -> None:
        self.schema = schema
        self.rows = 0
        self._stream = stream
        self._by = by
        self._groups: list[Struct] = []
        self._at = 0
        self._put(MAGIC)

    def _put(self, content: bytes) -> int:
        """Where it begins."""
        at = self._at
        self._stream.write(content)
        self._at += len(content)
        return at

    def write(self, group: Encoded) -> None:
        """Add a row group."""
        begin, columns = self._at, []
        for chunk in group.chunks:
            dictionary = self._put(chunk.dictionary) if chunk.dictionary else None
            data = self._put(chunk.data)
            size = len(chunk.dictionary) + len(chunk.data)
            told = {
                1: I32(PHYSICAL[chunk.leaf.shape]), 2: [I32(encoding) for encoding in chunk.encodings], 3: list(chunk.leaf.path), 4: I32(chunk.codec),
                5: chunk.entries, 6: chunk.plain, 7: size, 9: data, 11: dictionary, 12: chunk.statistics,
            }  # fmt: skip
            columns.append({2: data if dictionary is None else dictionary, 3: told})
        plain = sum(chunk.plain for chunk in group.chunks)
        self._groups.append({1: columns, 2: plain, 3: group.rows, 5: begin, 6: self._at - begin})
        self.rows += group.rows

    def close(self) -> None:
        """Complete the file, and close the stream."""
        try:
            self._put(self._footer())
        finally:
            self._stream.close()

    def _footer(self) -> bytes:
        fields = self.schema.fields
        root = {4: "schema", 5: I32(len(fields))}
        metadata = {**(self.schema.arrow.metadata or {}), b"ARROW:schema": base64.b64encode(self.schema.arrow.serialize())}
        footer = thrift({
            1: I32(2), 2: [root, *(element for field in fields for element in _elements(field))], 3: self.rows, 4: self._groups,
            5: [{1: key, 2: value} for key, value in metadata.items()], 6: self._by,
            7: [{1: {}} for field in fields for _ in leaves_of(field)],
        })  # fmt: skip
        return footer + len(footer).to_bytes(4, "little") + MAGIC
