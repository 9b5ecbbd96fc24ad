"""The columns of a table: they convert numbers of values, of parts of the state and of actions to readable data.

Only the driver of a search knows the value of each number. It converts the values to plain ones, which other processes
can receive. With the columns, a process converts rows of numbers to readable rows, and needs no protocol.

Parts of the state may appear late, and so may values of another kind. A late part is null while it holds its default,
so that earlier states need no change. The columns are final only at the end. `spool` holds states until then, and
`files` rewrites those that other processes wrote earlier.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fencepost.behaviours.formatting import kind_of
from fencepost.checker.compiler.arrays import Array
from fencepost.errors import OptionError, how_to_install
from fencepost.language.values import Value
from fencepost.semantics import Stepper
from fencepost.semantics.state import ValueTable
from fencepost.states.kinds import (
    Kind,
    Plain,
    agree,
    converted,
    from_column,
    is_keyed_by_parts,
    merged,
    plain,
    to_column,
)
from fencepost.states.manifest import EDGES, FIXED, about

try:
    import pyarrow as pa
except ImportError:
    raise OptionError(f"states needs pyarrow, which is not installed: {how_to_install('query')}") from None

FEW = 1 << 12
"""If a part of the state has at most this many values, they are converted once for all blocks of rows."""

STRING = pa.string()
TEXT = pa.dictionary(pa.int32(), STRING)
"""The type of a text column. As a part of other values, text is a :data:`STRING`."""
SCALARS = {"int": pa.int64(), "bool": pa.bool_(), "float": pa.float64()}

ABOUT, KINDS = b"fencepost", b"fencepost.columns"
"""The keys of a file's metadata: the content of :class:`fencepost.states.manifest.About`, and the kinds of the columns.
"""

Kinds = dict[str, Kind]


def field_of(name: str, kind: Kind, values: Sequence[Plain] | None = None, text: Any = STRING) -> Any:
    """The field for values of a kind. ``values`` are all values that it will ever hold. A part that is null in none of
    them is not nullable. Without ``values`` every part is nullable.
    """
    nullable = values is None or any(value is None for value in values)
    present = None if values is None else [value for value in values if value is not None]
    if not isinstance(kind, dict):
        return pa.field(name, SCALARS.get(str(kind), text), nullable)
    if "struct" in kind:
        return pa.field(
            name, pa.struct([field_of(part, of, _each(present, part)) for part, of in kind["struct"].items()]), nullable
        )
    parts = None if present is None else [part for value in present for part in value]
    if "map" not in kind:
        return pa.field(name, pa.list_(field_of("element", kind.get("set", kind.get("list")), parts)), nullable)
    key, value = (
        field_of(called, of, _each(parts, n))
        for n, (called, of) in enumerate(zip(("key", "value"), kind["map"], strict=True))
    )
    if is_keyed_by_parts(kind):
        return pa.field(name, pa.list_(pa.field("element", pa.struct([key, value]), parts is None)), nullable)
    return pa.field(name, pa.map_(key.with_nullable(False), value), nullable)


def _each(values: Sequence[Plain] | None, part: Any) -> list[Plain] | None:
    return None if values is None else [value[part] for value in values]


def schema_of(kinds: Kinds, metadata: dict[bytes, bytes], fields: Sequence[Any] = ()) -> Any:
    """The schema of a file with columns of these kinds. ``fields``: fields that replace the fully nullable ones."""
    known = {field.name: field for field in fields}
    whole = [known.get(name) or field_of(name, kind, text=TEXT) for name, kind in kinds.items()]
    return pa.schema(whole, metadata={**metadata, KINDS: json.dumps(kinds, ensure_ascii=False).encode()})


def kinds_of(schema: Any) -> Kinds:
    """The kinds of the columns of a file."""
    kinds: Kinds = json.loads(schema.metadata[KINDS])
    return kinds


def rewritten(table: Any, kinds: Kinds) -> Any:
    """Rows of a file, converted to columns of these kinds: its own kinds, or kinds merged from them. Missing columns
    are null.
    """
    held, schema = kinds_of(table.schema), schema_of(kinds, {ABOUT: table.schema.metadata[ABOUT]})
    columns = []
    for field in schema:
        if field.name not in held:
            columns.append(pa.nulls(table.num_rows, field.type))
        elif table.schema.field(field.name).type == field.type:
            columns.append(table.column(field.name))
        elif agree(held[field.name], kinds[field.name]):
            columns.append(completed(table.column(field.name).combine_chunks(), field.type))
        else:
            before, after = held[field.name], kinds[field.name]
            values = [
                converted(from_column(value, before), before, after) for value in table.column(field.name).to_pylist()
            ]
            columns.append(
                coded(*dictionary(values))
                if after == "text"
                else pa.array([to_column(v, after) for v in values], field.type)
            )
    return pa.table(columns, schema=schema)


def completed(array: Any, kind: Any) -> Any:
    """An array cast to this type. The types may differ only in parts that hold nothing but nulls, or nothing at all."""
    if array.type == kind:
        return array
    missing = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        parts = [completed(array.field(n), part.type) for n, part in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=missing)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        keys, values = completed(array.keys, kind.key_type), completed(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, values, type=kind, mask=missing)
    if pa.types.is_list(kind) and (pa.types.is_list(array.type) or pa.types.is_map(array.type)):
        return pa.ListArray.from_arrays(
            array.offsets, completed(array.values, kind.value_type), type=kind, mask=missing
        )
    return pa.nulls(len(array), kind)


class Column:
    """One part of the state. ``late``: it appeared during the search, and is null while it holds its default."""

    def __init__(self, name: str, is_cell: bool, late: bool) -> None:
        self.name = name
        self.is_cell = is_cell
        self.late = late
        self.kind: Kind = None
        self.plain: list[tuple[Kind, Plain]] = []
        self._lookup: tuple[Any, Any] | None = None

    def learn(self, values: Sequence[Value]) -> None:
        """Add the values that were numbered since the last call."""
        if len(values) == len(self.plain):
            return
        for number in range(len(self.plain), len(values)):
            kind, value = (None, None) if self.late and number == 0 else self._read(values[number])
            self.plain.append((kind, value))
            self.kind = merged(self.kind, kind)
        self._lookup = None

    def _read(self, value: Any) -> tuple[Kind, Plain]:
        if not self.is_cell:
            return plain(value)
        return plain(value[0]) if value else (None, None)

    def field(self) -> Any:
        """The field for the current values. Parts that are null in none of them are not nullable."""
        return field_of(self.name, self.kind, self._converted(self.plain), TEXT)

    def array(self, field: Any, ids: Array) -> Any:
        """The column for these numbers of values."""
        if len(self.plain) > FEW:
            present, ids = np.unique(ids, return_inverse=True)
            return gathered(self._values(field, [self.plain[number] for number in present.tolist()]), ids)
        if self._lookup is None or self._lookup[0] != field:
            self._lookup = field, self._values(field, self.plain)
        return gathered(self._lookup[1], ids)

    def _values(self, field: Any, values: Iterable[tuple[Kind, Plain]]) -> Any:
        """Values as an array of the column."""
        plain_values = self._converted(values)
        if field.type == TEXT:
            return coded(*dictionary(plain_values))
        return pa.array([to_column(value, self.kind) for value in plain_values], field.type)

    def _converted(self, values: Iterable[tuple[Kind, Plain]]) -> list[Plain]:
        return [converted(value, kind, self.kind) for kind, value in values]


def dictionary(values: Sequence[str | None]) -> tuple[Array, Any]:
    """For each text its index among the distinct texts, or -1 for None. And the distinct texts."""
    places: dict[str, int] = {}
    codes = [-1 if value is None else places.setdefault(value, len(places)) for value in values]
    return np.array(codes, np.int32), pa.array(list(places), pa.string())


def coded(codes: Array, texts: Any) -> Any:
    """A column of text from the index of each row's text, or -1 for null."""
    missing = codes < 0
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=missing if missing.any() else None), texts)


def gathered(values: Any, numbers: Array) -> Any:
    """An array of the values with these numbers."""
    return values.take(pa.array(numbers))


class Columns:
    """The columns of both tables of a search.

    ``metadata`` goes into every file. ``kinds`` are the kinds of the columns of ``states`` known so far, in order.
    """

    def __init__(self, stepper: Stepper) -> None:
        self.about = about(stepper.protocol)
        self.metadata = {ABOUT: json.dumps(self.about, ensure_ascii=False).encode()}
        self.kinds: Kinds = dict(FIXED)
        self._known = len(stepper.store.slots)
        self._parts: list[Column] = []
        # Indexed by number of root. Properties are roots too, but are no values of these columns.
        steps = [root if root.kind == "action" else None for root in stepper.roots]
        self._no_step = len(steps)
        texts_by_column = {
            "action": [root.name if root else None for root in steps],
            "parameters": [root.declared.shown(root.parameters) if root else None for root in steps],
        }
        self._taken_by_root = {name: coded(*dictionary([*texts, None])) for name, texts in texts_by_column.items()}

    @property
    def version(self) -> int:
        """A number that grows with every new part or value."""
        return sum(1 + len(part.plain) for part in self._parts)

    def learn(self, store: ValueTable) -> None:
        """Add the parts and the values that were numbered since the last call."""
        for index in range(len(self._parts), len(store.slots)):
            slot, taken = store.slots[index], {*FIXED, *(part.name for part in self._parts)}
            name = slot.name
            while name in taken:
                name += "_"
            self._parts.append(Column(name, kind_of(store.protocol, slot) == "cell", index >= self._known))
        for part, values in zip(self._parts, store.values, strict=True):
            part.learn(values)
        early, late = self._parts[: self._known], sorted(self._parts[self._known :], key=lambda part: part.name)
        known = [*early, *(part for part in late if part.kind is not None)]
        # A part that only ever held None is text.
        self.kinds = {**FIXED, **{part.name: part.kind or "text" for part in known}}

    def fields(self) -> list[Any]:
        """The fields of the parts of the state, for a table with only the values known so far."""
        return [part.field() for part in self._parts if part.name in self.kinds]

    def schema(self, fields: Sequence[Any] = ()) -> Any:
        """The schema of ``states`` known so far. ``fields``: final fields of the parts."""
        return schema_of(self.kinds, self.metadata, fields)

    def states(
        self, schema: Any, depths: int | Array, fingerprints: Array, parents: Array, roots: Array, rows: Array
    ) -> Any:
        """States as a table. ``parents`` are fingerprints, and ``roots`` are the numbers of the actions that led to the
        states: -1 for initial states, which have no parents. ``rows`` are numbers of values, and may lack late slots.
        """
        n = len(fingerprints)
        columns = {
            "fingerprint": pa.array(fingerprints.view(np.int64)),
            "depth": pa.array(np.broadcast_to(np.int64(depths), n)),
            "parent": pa.array(parents.view(np.int64), mask=roots < 0),
            **self._taken(roots),
        }
        cells = np.ascontiguousarray(rows.T)
        for index, part in enumerate(self._parts):
            if part.name in self.kinds:
                columns[part.name] = part.array(
                    schema.field(part.name), cells[index] if index < len(cells) else np.zeros(n, np.uint8)
                )
        return pa.table([columns[name] for name in schema.names], schema=schema)

    def edges(self, sources: Array, targets: Array, roots: Array) -> Any:
        """Steps as a table, from the fingerprints of their sources and targets and the numbers of their roots."""
        columns = {
            "source": pa.array(sources.view(np.int64)),
            "target": pa.array(targets.view(np.int64)),
            **self._taken(roots),
        }
        return pa.table([columns[name] for name in EDGES], schema=schema_of(dict(EDGES), self.metadata))

    def _taken(self, roots: Array) -> dict[str, Any]:
        numbers = np.where(roots < 0, self._no_step, roots)
        return {name: gathered(texts, numbers) for name, texts in self._taken_by_root.items()}
