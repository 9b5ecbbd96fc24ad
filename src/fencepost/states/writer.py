"""Writes the explored space down as Parquet, level by level, while it is explored.

What a file holds is decided when it is written: parts of the state may appear later, and so may values of another type. A file
lacks the columns of which nothing is known yet; what is missing reads as null. A part that appears late is null as long as it holds
its default, so that this is true of it. A part that turns out to hold values of several types is text in the end, and the few
files in which it was something else are written again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fencepost.compiler.tables import Array
from fencepost.errors import SystemFailure
from fencepost.spec.context import Slot
from fencepost.spec.values import Value, show
from fencepost.states.manifest import EDGES, FIXED, NAME, Manifest, about
from fencepost.step import Stepper
from fencepost.trace.words import kind_of

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    raise SystemFailure("--states needs pyarrow: pip install 'fencepost[spark]'") from None

BLOCK = 1 << 17
"""Rows that are written together: a row group."""
FILE_ROWS = 1 << 22
"""Rows after which a file is full."""
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
            codes, texts = _dictionary([self.plain[number] for number in present.tolist()])
        else:
            if self._lookup is None:
                self._lookup = _dictionary(self.plain)
            codes, texts = self._lookup
        return _coded(codes[ids], texts)

    def _numbers(self) -> tuple[Array, Array | None]:
        if self._lookup is None:
            missing = np.array([value is None for value in self.plain])
            values: Array = np.array([value or 0 for value in self.plain], DTYPES[self.kind or "int"])
            self._lookup = (values, missing if missing.any() else None)
        return self._lookup


def _dictionary(values: Sequence[Plain]) -> tuple[Array, Any]:
    """For each value its place among the different texts, or -1; and those texts."""
    places: dict[str, int] = {}
    codes = [-1 if value is None else places.setdefault(str(as_text(value)), len(places)) for value in values]
    return np.array(codes, np.int32), pa.array(list(places), pa.string())


def _coded(codes: Array, texts: Any) -> Any:
    missing = codes < 0
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=missing if missing.any() else None), texts)


class Files:
    """The files of one table. A new one is begun when the columns change, or when one is full.

    One thread encodes and writes a block while the next is explored and laid out; what goes wrong there is raised by the next call.
    """

    def __init__(self, folder: Path, fixed: Sequence[str], metadata: dict[bytes, bytes]) -> None:
        self.folder = folder
        self.metadata = metadata
        self.rows = 0
        self._plain = list(fixed)
        self._written: list[tuple[Path, Any]] = []
        self._file: Any = None
        self._schema: Any = None
        self._in_file = 0
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None
        folder.mkdir()

    def write(self, columns: dict[str, Any]) -> None:
        """Add rows."""
        table = pa.table(columns).replace_schema_metadata(self.metadata)
        if self._file is None or self._in_file >= FILE_ROWS or not table.schema.equals(self._schema):
            self.close()
            path = self.folder / f"part-{len(self._written) + 1:05}.parquet"
            self._schema, self._in_file = table.schema, 0
            self._written.append((path, table.schema))
            self._file = self._open(path, table.schema)
        self._wait()
        self._last = self._thread.submit(self._file.write_table, table, row_group_size=BLOCK)
        self._in_file += table.num_rows
        self.rows += table.num_rows

    def _open(self, path: Path, schema: Any) -> Any:
        # Fingerprints are random numbers: there is nothing to compress, and no value is there twice.
        dictionary = [name for name in schema.names if name not in self._plain]
        compression = {name: "none" if name in self._plain else "snappy" for name in schema.names}
        return pq.ParquetWriter(path, schema, use_dictionary=dictionary or False, compression=compression)

    def _wait(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Complete the file that is being written."""
        file, self._file = self._file, None
        try:
            self._wait()
        finally:
            if file is not None:
                file.close()

    def abandon(self) -> None:
        """Let go of the file that is being written: it will not be needed."""
        with suppress(OSError, pa.ArrowException):  # a full disk takes no ending either
            self.close()
        self._thread.shutdown()

    def finish(self, types: dict[str, Any]) -> None:
        """Complete the table, whose columns have turned out to be these.

        A first file without rows has them all, for readers that take the columns of the first file for those of all.
        """
        self.close()
        self._thread.shutdown()
        for path, schema in self._written:
            changed = [name for name in schema.names if schema.field(name).type != types[name]]
            if changed:
                self._write_again(path, changed)
        schema = pa.schema(list(types.items()), metadata=self.metadata)
        with self._open(self.folder / "part-00000.parquet", schema) as file:
            file.write_table(schema.empty_table())

    def _write_again(self, path: Path, changed: list[str]) -> None:
        """Make columns of a file text."""
        stale = path.with_suffix(".stale")
        path.rename(stale)
        with pq.ParquetFile(stale) as old:
            schema = old.schema_arrow
            for name in changed:
                schema = schema.set(schema.get_field_index(name), pa.field(name, TEXT))
            with self._open(path, schema) as file:
                for group in range(old.num_row_groups):
                    table = old.read_row_group(group)
                    for name in changed:
                        codes, texts = _dictionary(table.column(name).to_pylist())
                        table = table.set_column(table.schema.get_field_index(name), pa.field(name, TEXT), _coded(codes, texts))
                    file.write_table(table)
        stale.unlink()


class Writer:
    """A state space being written to a directory, which must not hold anything yet.

    Raises :class:`fencepost.SystemFailure` when the disk does not take it; what was written until then is removed.
    """

    def __init__(self, stepper: Stepper, directory: Path, edges: bool) -> None:
        self.stepper = stepper
        self.directory = directory
        self.about = about(stepper.protocol)
        self.depth = 0
        self.columns: list[Column] = []
        self.known = len(stepper.store.slots)
        # By number of root, among which are properties too: they lead nowhere, and are no value of these columns.
        self._actions, self._action_texts = _dictionary([root.name if root.kind == "action" else None for root in stepper.roots])
        self._parameters, self._parameter_texts = _dictionary(
            [parameters_text(root.parameters) if root.kind == "action" else None for root in stepper.roots]
        )
        metadata = {b"fencepost": json.dumps(self.about, ensure_ascii=False).encode()}
        self._made = False
        with self._disk():
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise SystemFailure(f"--states {directory} holds files already: name a new directory or an empty one")
            self._made = True
            self.states = Files(directory / "states", ("fingerprint", "parent"), metadata)
            self.edges = Files(directory / "edges", ("source", "target"), metadata) if edges else None

    def _disk(self) -> Any:
        return _Disk(self)

    def add_level(self, blocks: Iterator[tuple[Array, Array | None, Array | None, Array]]) -> None:
        """The next level, in the order of fingerprints, in blocks: the fingerprints, those of the parents and the numbers of the
        roots that led here (none for initial states), and the rows.
        """
        self.depth += 1
        self._learn()
        with self._disk():
            for fingerprints, parents, roots, rows in blocks:
                n = len(fingerprints)
                columns = {
                    "fingerprint": pa.array(fingerprints.view(np.int64)),
                    "depth": pa.array(np.full(n, self.depth)),
                    "parent": pa.nulls(n, pa.int64()) if parents is None else pa.array(parents.view(np.int64)),
                    **self._taken(np.full(n, -1) if roots is None else roots),
                }
                cells = np.ascontiguousarray(rows.T)
                for index, column in enumerate(self.columns):
                    if column.kind is not None:
                        columns[column.name] = column.array(cells[index] if index < len(cells) else np.zeros(n, np.uint8))
                self.states.write(columns)

    def add_edges(self, sources: Array, targets: Array, roots: Array) -> None:
        """Steps, by the fingerprints they go from and to and the numbers of their roots."""
        assert self.edges is not None
        with self._disk():
            for begin in range(0, len(sources), BLOCK):
                block = slice(begin, begin + BLOCK)
                self.edges.write(
                    {
                        "source": pa.array(sources[block].view(np.int64)),
                        "target": pa.array(targets[block].view(np.int64)),
                        **self._taken(roots[block].astype(np.int64)),
                    }
                )

    def _taken(self, roots: Array) -> dict[str, Any]:
        # Number -1 is the last one: no action.
        actions, parameters = (np.append(codes, np.int32(-1))[roots] for codes in (self._actions, self._parameters))
        return {"action": _coded(actions, self._action_texts), "parameters": _coded(parameters, self._parameter_texts)}

    def _learn(self) -> None:
        store = self.stepper.store
        for index in range(len(self.columns), len(store.slots)):
            self.columns.append(self._column(store.slots[index], index >= self.known))
        for column, values in zip(self.columns, store.values, strict=True):
            column.learn(values)

    def _column(self, slot: Slot, late: bool) -> Column:
        taken = {*FIXED, *(column.name for column in self.columns)}
        name = slot.name
        while name in taken:
            name += "_"
        return Column(name, kind_of(self.stepper.protocol, slot) == "cell", late)

    def finish(self, complete: bool, ended: str | None) -> Manifest:
        """Complete the directory. ``ended``: what ended the search, unless it was ``complete``."""
        self._learn()
        early, late = self.columns[: self.known], sorted(self.columns[self.known :], key=lambda column: column.name)
        kinds = {column.name: column.kind or "text" for column in (*early, *(c for c in late if c.kind is not None))}
        manifest = Manifest(
            **self.about, complete=complete, ended=ended, states=self.states.rows,
            edges=None if self.edges is None else self.edges.rows, depth=self.depth, columns={**FIXED, **kinds},
        )  # fmt: skip
        with self._disk():
            self.states.finish({name: TYPES[kind] for name, kind in manifest.columns.items()})
            if self.edges is not None:
                self.edges.finish({name: TYPES[kind] for name, kind in EDGES.items()})
            fresh = self.directory / f"{NAME}.new"
            fresh.write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
            os.replace(fresh, self.directory / NAME)
        return manifest

    def discard(self) -> None:
        """Remove what was written."""
        if not self._made:
            return
        for files in (self.states, self.edges) if hasattr(self, "edges") else ():
            if files is not None:
                files.abandon()
        for table in ("states", "edges"):
            shutil.rmtree(self.directory / table, ignore_errors=True)


class _Disk:
    """Turns what the disk refuses into one line, and leaves nothing half written."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, (OSError, pa.ArrowException)):
            self.writer.discard()
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise SystemFailure(f"the state space can not be written to {self.writer.directory}: {reason}") from error


def parameters_text(parameters: dict[str, Value]) -> str:
    """The parameters of an action as the column ``parameters`` has them: ``b=b1, e=2``."""
    return ", ".join(f"{name}={show(value)}" for name, value in parameters.items())
