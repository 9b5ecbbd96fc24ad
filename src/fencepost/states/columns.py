"""The columns of a table: what the numbers of values, of a state's parts and of actions, are for a reader.

Only the driver of a search can tell what a number stands for. What it has told is plain values, which go to other processes as they are:
whoever has the columns turns rows of numbers into rows that anything can read, and needs no protocol.

Parts of the state may appear later, and so may values of another kind. A part that appears late
is null as long as it holds its default, so that this is true of the states before it. The columns are certain at the end: see `spool`
for states that wait until then, and `files` for those that other processes have written before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fencepost.compiler.tables import Array
from fencepost.errors import OptionError
from fencepost.spec.values import Value, show
from fencepost.states.kinds import (
    Kind,
    Plain,
    agree,
    converted,
    from_column,
    merged,
    plain,
    to_column,
)
from fencepost.states.manifest import EDGES, FIXED, about
from fencepost.states.shredding import Field, Shreds, field_of, leaves_of, shredded
from fencepost.step import Stepper
from fencepost.step.state import Store
from fencepost.trace.words import kind_of

try:
    import pyarrow as pa
except ImportError:
    raise OptionError("states needs pyarrow, which is not installed: pip install 'fencepost[spark]'") from None

from fencepost.states.parquet import Coded, Numbers, RowGroup, Schema

FEW = 1 << 12
"""Values of a part of the state up to which all of them go into every dictionary, and are shredded once for all."""

TEXT = pa.dictionary(pa.int32(), pa.string())
SCALARS = {"int": pa.int64(), "bool": pa.bool_(), "float": pa.float64()}

ABOUT, KINDS = b"fencepost", b"fencepost.columns"
"""What the metadata of a file is called: what :class:`fencepost.states.manifest.About` says, and the kinds of the columns."""

Kinds = dict[str, Kind]


def arrow_type(kind: Kind, text: Any = TEXT) -> Any:
    """The type of a column in which anything may be null. ``text``: that of text, which is a dictionary unless it is a part of other values."""
    return type_of(field_of("", kind), text)


def type_of(field: Field, text: Any = TEXT) -> Any:
    """The type that Arrow has for a field."""
    if not field.parts:
        return SCALARS.get(field.shape, text)
    parts = [pa.field(part.name, type_of(part, pa.string()), part.optional) for part in field.parts]
    if field.shape == "struct":
        return pa.struct(parts)
    return pa.map_(*parts) if field.shape == "map" else pa.list_(*parts)


def schema_of(kinds: Kinds, metadata: dict[bytes, bytes], fields: Sequence[Field] = ()) -> Schema:
    """The schema of a file with columns of these kinds. ``fields``: those in which not everything may be null."""
    known = {field.name: field for field in fields}
    whole = tuple(known.get(name) or field_of(name, kind) for name, kind in kinds.items())
    told = {**metadata, KINDS: json.dumps(kinds, ensure_ascii=False).encode()}
    return Schema(whole, pa.schema([pa.field(field.name, type_of(field), field.optional) for field in whole], metadata=told))


def kinds_of(schema: Any) -> Kinds:
    """The kinds of the columns of a file."""
    found: Kinds = json.loads(schema.metadata[KINDS])
    return found


def rewritten(table: Any, kinds: Kinds) -> Any:
    """Rows of a file with columns of these kinds: its own, or kinds that theirs were merged to, and columns that it lacks, which are null."""
    held, schema = kinds_of(table.schema), schema_of(kinds, {ABOUT: table.schema.metadata[ABOUT]}).arrow
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
            values = [converted(from_column(value, before), before, after) for value in table.column(field.name).to_pylist()]
            columns.append(coded(*dictionary(values)) if after == "text" else pa.array([to_column(v, after) for v in values], field.type))
    return pa.table(columns, schema=schema)


def completed(array: Any, kind: Any) -> Any:
    """An array as one of this type, which it differs from only where it holds nothing but nulls, or nothing at all."""
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
        return pa.ListArray.from_arrays(array.offsets, completed(array.values, kind.value_type), type=kind, mask=missing)
    return pa.nulls(len(array), kind)


def parameters_text(parameters: dict[str, Value]) -> str:
    """The parameters of an action as the column ``parameters`` has them: ``b=b1, e=2``."""
    return ", ".join(f"{name}={show(value)}" for name, value in parameters.items())


class Column:
    """One part of the state. ``late``: it appeared while exploring, and is null as long as it holds its default."""

    def __init__(self, name: str, is_cell: bool, late: bool) -> None:
        self.name = name
        self.is_cell = is_cell
        self.late = late
        self.kind: Kind = None
        self.plain: list[tuple[Kind, Plain]] = []
        self._leaves: tuple[Field, list[Shreds]] | None = None

    def learn(self, values: Sequence[Value]) -> None:
        """Take in the values that were numbered since."""
        if len(values) == len(self.plain):
            return
        for number in range(len(self.plain), len(values)):
            kind, value = (None, None) if self.late and number == 0 else self._read(values[number])
            self.plain.append((kind, value))
            self.kind = merged(self.kind, kind)
        self._leaves = None

    def _read(self, value: Any) -> tuple[Kind, Plain]:
        if not self.is_cell:
            return plain(value)
        return plain(value[0]) if value else (None, None)

    def field(self) -> Field:
        """The field for the values that there are: what is null in none of them is not optional."""
        return field_of(self.name, self.kind, self._converted(self.plain))

    def coded(self, field: Field, ids: Array) -> Coded:
        """The column for these numbers of values."""
        if len(self.plain) > FEW:
            present, ids = np.unique(ids, return_inverse=True)
            return Coded(ids, shredded(field, self._converted([self.plain[number] for number in present.tolist()])))
        if self._leaves is None or self._leaves[0] != field:
            self._leaves = field, shredded(field, self._converted(self.plain))
        return Coded(ids, self._leaves[1])

    def _converted(self, values: Iterable[tuple[Kind, Plain]]) -> list[Plain]:
        return [converted(value, kind, self.kind) for kind, value in values]


def dictionary(values: Sequence[str | None]) -> tuple[Array, Any]:
    """For each text its place among the different ones, or -1; and those texts."""
    places: dict[str, int] = {}
    codes = [-1 if value is None else places.setdefault(value, len(places)) for value in values]
    return np.array(codes, np.int32), pa.array(list(places), pa.string())


def coded(codes: Array, texts: Any) -> Any:
    """A column of text: for each row the place of its text, or -1."""
    missing = codes < 0
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=missing if missing.any() else None), texts)


class Columns:
    """The columns of both tables of a search.

    ``metadata`` goes into every file; ``kinds`` are the kinds of the columns of ``states``, as far as they are known, in their order.
    """

    def __init__(self, stepper: Stepper) -> None:
        self.about = about(stepper.protocol)
        self.metadata = {ABOUT: json.dumps(self.about, ensure_ascii=False).encode()}
        self.kinds: Kinds = dict(FIXED)
        self._known = len(stepper.store.slots)
        self._parts: list[Column] = []
        # By number of root, among which are properties too: they lead nowhere, and are no value of these columns.
        steps = [root if root.kind == "action" else None for root in stepper.roots]
        self._no_step = len(steps)
        told = {
            "action": [root.name if root else None for root in steps],
            "parameters": [parameters_text(root.parameters) if root else None for root in steps],
        }
        self._taken_by_root = {name: shredded(field_of(name, "text"), [*texts, None]) for name, texts in told.items()}

    @property
    def version(self) -> int:
        """It grows with all that is learned."""
        return sum(1 + len(part.plain) for part in self._parts)

    def learn(self, store: Store) -> None:
        """Take in the parts and the values that were numbered since."""
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
        # A part that never held anything but None is text.
        self.kinds = {**FIXED, **{part.name: part.kind or "text" for part in known}}

    def fields(self) -> list[Field]:
        """The fields of the parts of the state, for a table that has no other values than those that are known."""
        return [part.field() for part in self._parts if part.name in self.kinds]

    def schema(self, fields: Sequence[Field] = ()) -> Schema:
        """The schema of ``states``, as far as it is known. ``fields``: what is certain of the parts."""
        return schema_of(self.kinds, self.metadata, fields)

    def states(self, schema: Schema, depths: int | Array, fingerprints: Array, parents: Array, roots: Array, rows: Array) -> RowGroup:
        """States as rows of the table: by their depths, their fingerprints, those of the parents and the numbers of the roots that led here
        (-1 for initial states, which have no parents), and the numbers of their values, of which later slots may be missing.
        """
        n, fields = len(fingerprints), {field.name: field for field in schema.fields}
        columns: dict[str, Numbers | Coded] = {
            "fingerprint": _numbers("fingerprint", fingerprints, rising=True),
            "depth": _depth(np.broadcast_to(np.int64(depths), n)),
            "parent": _numbers("parent", parents, roots < 0),
            **self._taken(roots),
        }
        cells = np.ascontiguousarray(rows.T)
        for index, part in enumerate(self._parts):
            if part.name in fields:
                columns[part.name] = part.coded(fields[part.name], cells[index] if index < len(cells) else np.zeros(n, np.uint8))
        return RowGroup(schema, n, [columns[field.name] for field in schema.fields])

    def edges(self, sources: Array, targets: Array, roots: Array) -> RowGroup:
        """Steps as rows of the table, by the fingerprints they go from and to and the numbers of their roots."""
        columns: dict[str, Numbers | Coded] = {"source": _numbers("source", sources), "target": _numbers("target", targets), **self._taken(roots)}
        return RowGroup(schema_of(dict(EDGES), self.metadata), len(sources), [columns[name] for name in EDGES])

    def _taken(self, roots: Array) -> dict[str, Numbers | Coded]:
        ids = np.where(roots < 0, self._no_step, roots)
        return {name: Coded(ids, leaves) for name, leaves in self._taken_by_root.items()}


def _numbers(name: str, fingerprints: Array, missing: Array | None = None, rising: bool = False) -> Numbers:
    (leaf,) = leaves_of(field_of(name, "int"))
    return Numbers(leaf, fingerprints.view(np.int64), missing, rising)


def _depth(depths: Array) -> Coded:
    least = int(depths.min())
    return Coded(depths - least, shredded(field_of("depth", "int"), range(least, int(depths.max()) + 1)))
