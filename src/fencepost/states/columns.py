"""The columns of a table: what the numbers of values, of a state's parts and of actions, are for a reader.

Only the driver of a search can tell what a number stands for. What it has told is plain values, which go to other processes as they are:
whoever has the columns turns rows of numbers into rows that anything can read, and needs no protocol.

Parts of the state may appear later, and so may values of another kind. A part that appears late
is null as long as it holds its default, so that this is true of the states before it. The columns are certain at the end: see `spool`
for states that wait until then, and `files` for those that other processes have written before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    is_keyed_by_parts,
    merged,
    plain,
    to_column,
)
from fencepost.states.manifest import EDGES, FIXED, about
from fencepost.step import Stepper
from fencepost.step.state import Store
from fencepost.trace.words import kind_of

try:
    import pyarrow as pa
except ImportError:
    raise OptionError("states needs pyarrow, which is not installed: pip install 'fencepost[spark]'") from None

FEW = 1 << 12
"""Values of a part of the state up to which all of them go into every dictionary."""

TEXT = pa.dictionary(pa.int32(), pa.string())
SCALARS = {"int": pa.int64(), "bool": pa.bool_(), "float": pa.float64()}

ABOUT, KINDS = b"fencepost", b"fencepost.columns"
"""What the metadata of a file is called: what :class:`fencepost.states.manifest.About` says, and the kinds of the columns."""

Kinds = dict[str, Kind]


def arrow_type(kind: Kind, text: Any = TEXT) -> Any:
    """The type of a column. ``text``: that of text, which is a dictionary unless it is a part of other values."""
    if not isinstance(kind, dict):
        return SCALARS.get(str(kind), text)
    if "struct" in kind:
        return pa.struct([(name, arrow_type(part, pa.string())) for name, part in kind["struct"].items()])
    if is_keyed_by_parts(kind):
        return pa.list_(pa.struct([(name, arrow_type(part, pa.string())) for name, part in zip(("key", "value"), kind["map"], strict=True)]))
    if "map" in kind:
        return pa.map_(*(arrow_type(part, pa.string()) for part in kind["map"]))
    return pa.list_(arrow_type(kind.get("set", kind.get("list")), pa.string()))


def schema_of(kinds: Kinds, metadata: dict[bytes, bytes]) -> Any:
    """The schema of a file with columns of these kinds."""
    fields = [(name, arrow_type(kind)) for name, kind in kinds.items()]
    return pa.schema(fields, metadata={**metadata, KINDS: json.dumps(kinds, ensure_ascii=False).encode()})


def kinds_of(schema: Any) -> Kinds:
    """The kinds of the columns of a file."""
    found: Kinds = json.loads(schema.metadata[KINDS])
    return found


def rewritten(table: Any, kinds: Kinds) -> Any:
    """Rows of a file with columns of these kinds: its own, or kinds that theirs were merged to, and columns that it lacks, which are null."""
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
        self._lookup: tuple[Array | None, Any] | None = None

    def learn(self, values: Sequence[Value]) -> None:
        """Take in the values that were numbered since."""
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

    def array(self, ids: Array) -> Any:
        """The column for these numbers of values."""
        if len(self.plain) > FEW and str(self.kind) not in SCALARS:
            present, ids = np.unique(ids, return_inverse=True)
            lookup = self._values([self.plain[number] for number in present.tolist()])
        else:
            lookup = self._lookup = self._lookup or self._values(self.plain)
        codes, values = lookup
        return values.take(pa.array(ids)) if codes is None else coded(codes[ids], values)

    def _values(self, values: Sequence[tuple[Kind, Plain]]) -> tuple[Array | None, Any]:
        """Values as a column holds them; those of text with the place of each among them."""
        found = [converted(value, kind, self.kind) for kind, value in values]
        if self.kind in (None, "text"):
            return dictionary(found)
        return None, pa.array([to_column(value, self.kind) for value in found], arrow_type(self.kind))


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
        self._actions, self._action_texts = dictionary([root.name if root else None for root in steps])
        self._parameters, self._parameter_texts = dictionary([parameters_text(root.parameters) if root else None for root in steps])

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

    def states(self, depths: int | Array, fingerprints: Array, parents: Array, roots: Array, rows: Array) -> Any:
        """States as a table: by their depths, their fingerprints, those of the parents and the numbers of the roots that led here
        (-1 for initial states, which have no parents), and the numbers of their values, of which later slots may be missing.
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
                columns[part.name] = part.array(cells[index] if index < len(cells) else np.zeros(n, np.uint8))
        return pa.table([columns[name] for name in self.kinds], schema=schema_of(self.kinds, self.metadata))

    def edges(self, sources: Array, targets: Array, roots: Array) -> Any:
        """Steps as a table, by the fingerprints they go from and to and the numbers of their roots."""
        ends = {"source": pa.array(sources.view(np.int64)), "target": pa.array(targets.view(np.int64))}
        columns = {**ends, **self._taken(roots.astype(np.int64))}
        return pa.table([columns[name] for name in EDGES], schema=schema_of(dict(EDGES), self.metadata))

    def _taken(self, roots: Array) -> dict[str, Any]:
        # Number -1 is the last one: no action.
        actions, parameters = (np.append(codes, np.int32(-1))[roots] for codes in (self._actions, self._parameters))
        return {"action": coded(actions, self._action_texts), "parameters": coded(parameters, self._parameter_texts)}
