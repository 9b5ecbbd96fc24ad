"""The columns of a table: what the numbers of values, of a state's parts and of actions, are for a reader.

Only the driver of a search can tell what a number stands for. What it has told is plain values, which go to other processes as they are:
whoever has the columns turns rows of numbers into rows that anything can read, and needs no protocol.

Parts of the state may appear later, and so may values of another type. A column of which nothing is known yet is left out: what is missing
reads as null. A part that appears late is null as long as it holds its default, so that this is true of it. A part that turns out to
hold values of several types is text in the end, and the few files in which it was something else are written again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fencepost.compiler.tables import Array
from fencepost.errors import SystemFailure
from fencepost.spec.values import Value, show
from fencepost.states.manifest import FIXED, about
from fencepost.step import Stepper
from fencepost.step.state import Store
from fencepost.trace.words import kind_of

try:
    import pyarrow as pa
except ImportError:
    raise SystemFailure("--states needs pyarrow: pip install 'fencepost[spark]'") from None

FEW = 1 << 12
"""Values of a part of the state up to which all of them go into every dictionary."""

TEXT = pa.dictionary(pa.int32(), pa.string())
TYPES = {"int": pa.int64(), "bool": pa.bool_(), "float": pa.float64(), "text": TEXT}
DTYPES = {"int": np.int64, "bool": np.bool_, "float": np.float64}

Plain = bool | int | float | str | None


def readable(value: Value) -> Plain:
    """A value as a column holds it: numbers, booleans and strings as such, None as null, others as their printed form."""
    plain: Plain = value
    if value is None or type(value) in (bool, float, str) or (type(value) is int and -(1 << 63) <= value < 1 << 63):
        return plain
    return show(value)


def kind_of_plain(value: Plain) -> str | None:
    """The kind of column that a value asks for; None if it goes into any."""
    return None if value is None else {bool: "bool", int: "int", float: "float", str: "text"}[type(value)]


def as_text(value: Plain) -> str | None:
    """A value in a column of text."""
    return value if value is None or isinstance(value, str) else show(value)


def parameters_text(parameters: dict[str, Value]) -> str:
    """The parameters of an action as the column ``parameters`` has them: ``b=b1, e=2``."""
    return ", ".join(f"{name}={show(value)}" for name, value in parameters.items())


class Column:
    """One part of the state. ``late``: it appeared while exploring, and is null as long as it holds its default."""

    def __init__(self, name: str, is_cell: bool, late: bool) -> None:
        self.name = name
        self.is_cell = is_cell
        self.late = late
        self.kind: str | None = None
        self.plain: list[Plain] = []
        self._lookup: tuple[Array, Any] | None = None

    def learn(self, values: Sequence[Value]) -> None:
        """Take in the values that were numbered since."""
        if len(values) == len(self.plain):
            return
        for number in range(len(self.plain), len(values)):
            plain = None if self.late and number == 0 else self._read(values[number])
            self.plain.append(plain)
            kind = kind_of_plain(plain)
            if kind is not None:
                self.kind = kind if self.kind in (None, kind) else "text"
        self._lookup = None

    def _read(self, value: Any) -> Plain:
        if not self.is_cell:
            return readable(value)
        return readable(value[0]) if value else None

    def array(self, ids: Array) -> Any:
        """The column for these numbers of values."""
        if self.kind != "text":
            values, missing = self._numbers()
            return pa.array(values[ids], mask=missing[ids] if missing is not None else None)
        if len(self.plain) > FEW:
            present, ids = np.unique(ids, return_inverse=True)
            codes, texts = dictionary([self.plain[number] for number in present.tolist()])
        else:
            if self._lookup is None:
                self._lookup = dictionary(self.plain)
            codes, texts = self._lookup
        return coded(codes[ids], texts)

    def _numbers(self) -> tuple[Array, Array | None]:
        if self._lookup is None:
            missing = np.array([value is None for value in self.plain])
            values: Array = np.array([value or 0 for value in self.plain], DTYPES[self.kind or "int"])
            self._lookup = (values, missing if missing.any() else None)
        return self._lookup


def dictionary(values: Sequence[Plain]) -> tuple[Array, Any]:
    """For each value its place among the different texts, or -1; and those texts."""
    places: dict[str, int] = {}
    codes = [-1 if value is None else places.setdefault(str(as_text(value)), len(places)) for value in values]
    return np.array(codes, np.int32), pa.array(list(places), pa.string())


def coded(codes: Array, texts: Any) -> Any:
    """A column of text: for each row the place of its text, or -1."""
    missing = codes < 0
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=missing if missing.any() else None), texts)


class Columns:
    """The columns of both tables of a search.

    ``metadata`` goes into every file; ``kinds`` are the kinds of the columns of ``states`` that something is known of.
    """

    def __init__(self, stepper: Stepper) -> None:
        self.about = about(stepper.protocol)
        self.metadata = {b"fencepost": json.dumps(self.about, ensure_ascii=False).encode()}
        self.kinds: dict[str, str] = dict(FIXED)
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
        self.kinds = {**FIXED, **{part.name: part.kind for part in self._parts if part.kind is not None}}

    def final_kinds(self) -> dict[str, str]:
        """The kinds of the columns of ``states`` at the end of a search, in their order."""
        early, late = self._parts[: self._known], sorted(self._parts[self._known :], key=lambda part: part.name)
        kinds = {part.name: part.kind or "text" for part in (*early, *(part for part in late if part.kind is not None))}
        return {**FIXED, **kinds}

    def states(self, depth: int, fingerprints: Array, parents: Array | None, roots: Array | None, rows: Array) -> Any:
        """States of a level as a table: by their fingerprints, those of the parents and the numbers of the roots that led here
        (none for initial states), and the numbers of their values, of which later slots may be missing.
        """
        n = len(fingerprints)
        columns = {
            "fingerprint": pa.array(fingerprints.view(np.int64)),
            "depth": pa.array(np.full(n, depth)),
            "parent": pa.nulls(n, pa.int64()) if parents is None else pa.array(parents.view(np.int64)),
            **self._taken(np.full(n, -1) if roots is None else roots),
        }
        cells = np.ascontiguousarray(rows.T)
        for index, part in enumerate(self._parts):
            if part.kind is not None:
                columns[part.name] = part.array(cells[index] if index < len(cells) else np.zeros(n, np.uint8))
        return pa.table(columns).replace_schema_metadata(self.metadata)

    def edges(self, sources: Array, targets: Array, roots: Array) -> Any:
        """Steps as a table, by the fingerprints they go from and to and the numbers of their roots."""
        ends = {"source": pa.array(sources.view(np.int64)), "target": pa.array(targets.view(np.int64))}
        return pa.table({**ends, **self._taken(roots.astype(np.int64))}).replace_schema_metadata(self.metadata)

    def _taken(self, roots: Array) -> dict[str, Any]:
        # Number -1 is the last one: no action.
        actions, parameters = (np.append(codes, np.int32(-1))[roots] for codes in (self._actions, self._parameters))
        return {"action": coded(actions, self._action_texts), "parameters": coded(parameters, self._parameter_texts)}
