"""The files of a table: plain Parquet, ``part-00001.parquet`` and so on, of which ``part-00000.parquet`` has all columns and no rows.

A file gets such a name when it is complete. Until then it has one that no reader looks at, and which nobody else writes: what a process
that was killed, or a task that was tried again, has left behind is no part of the table.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from fencepost.errors import SystemFailure
from fencepost.states.columns import TEXT, TYPES, coded, dictionary
from fencepost.storage import Storage, reason

BLOCK = 1 << 17
"""Rows that are written together: a row group."""
FILE_ROWS = 1 << 22
"""Rows after which a file is full."""

UNFINISHED = "_"
"""What the name of a file begins with that is no part of the table."""

FINGERPRINTS = {"states": ("fingerprint", "parent"), "edges": ("source", "target")}
"""The columns of each table that hold random numbers: there is nothing to compress, and no value is there twice."""

Kinds = Mapping[str, str]


class Part(msgspec.Struct, frozen=True):
    """A file of rows that is complete but for its name. ``order``: its place among those that were written at the same time."""

    name: str
    rows: int
    order: int


class Place:
    """Where the files of one table are. It goes to other processes as it is."""

    def __init__(self, storage: Storage, table: str) -> None:
        self.storage = storage.below(table)
        self.table = table

    def open(self, name: str, schema: Any) -> Any:
        """A file to write tables with this schema to."""
        plain = FINGERPRINTS[self.table]
        encoded = [name for name in schema.names if name not in plain]
        compression = {name: "none" if name in plain else "snappy" for name in schema.names}
        files, folder = self.storage.arrow()
        return pq.ParquetWriter(f"{folder}/{name}", schema, filesystem=files, use_dictionary=encoded or False, compression=compression)

    def write(self, order: int, blocks: Iterable[Any]) -> Part | None:
        """Write tables of one schema as a new file; nothing if there are none."""
        name, rows, file = fresh_name(), 0, None
        try:
            for block in blocks:
                file = file or self.open(name, block.schema)
                file.write_table(block, row_group_size=BLOCK)
                rows += block.num_rows
        finally:
            if file is not None:
                file.close()
        return Part(name, rows, order) if file is not None else None

    def write_as_text(self, name: str, changed: Iterable[str]) -> str:
        """Write a file anew, in which these columns are text; what it is called."""
        fresh = fresh_name()
        files, folder = self.storage.arrow()
        with pq.ParquetFile(f"{folder}/{name}", filesystem=files) as old:
            schema = old.schema_arrow
            for column in changed:
                schema = schema.set(schema.get_field_index(column), pa.field(column, TEXT))
            with self.open(fresh, schema) as file:
                for group in range(old.num_row_groups):
                    table = old.read_row_group(group)
                    for column in changed:
                        codes, texts = dictionary(table.column(column).to_pylist())
                        table = table.set_column(table.schema.get_field_index(column), pa.field(column, TEXT), coded(codes, texts))
                    file.write_table(table)
        return fresh

    def kinds(self, name: str) -> Kinds:
        """The kinds of the columns of a file."""
        files, folder = self.storage.arrow()
        schema = pq.read_schema(f"{folder}/{name}", filesystem=files)
        return {name: next(kind for kind, type in TYPES.items() if type == schema.field(name).type) for name in schema.names}


def fresh_name() -> str:
    """A name for a file that is no part of the table yet."""
    return f"{UNFINISHED}{uuid.uuid4().hex}.part"


@contextmanager
def writing(directory: object) -> Iterator[None]:
    """Says in one line what the disk refuses while a state space is written."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise SystemFailure(f"the state space can not be written to {directory}: {reason(error)}") from error


class Files:
    """The files of one table, as the driver of a search keeps them.

    It writes rows itself (:meth:`write`), or takes files that others wrote (:meth:`take`). One thread encodes and writes a block while
    the next is explored and laid out; what goes wrong there is raised by the next call.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.rows = 0
        self._parts: list[Kinds | None] = []  # of each file, None if it is yet to be looked up
        self._file: Any = None
        self._name = ""
        self._kinds: Kinds = {}
        self._in_file = 0
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    @property
    def count(self) -> int:
        """How many there are, the one without rows not counted."""
        return len(self._parts)

    def write(self, kinds: Kinds, table: Any) -> None:
        """Add rows, with columns of these kinds. A new file is begun when the columns change, or when one is full."""
        if self._file is None or self._in_file >= FILE_ROWS or kinds != self._kinds:
            self.close()
            self._name, self._kinds, self._in_file = fresh_name(), kinds, 0
            self._file = self.place.open(self._name, table.schema)
        self._wait()
        self._last = self._thread.submit(self._file.write_table, table, row_group_size=BLOCK)
        self._in_file += table.num_rows
        self.rows += table.num_rows

    def take(self, kinds: Kinds, parts: Iterable[Part]) -> None:
        """Add files that other processes wrote, with columns of these kinds: all of them, or none if the disk refuses one."""
        self.close()
        taken = sorted(parts, key=lambda part: part.order)
        for number, part in enumerate(taken, len(self._parts) + 1):
            self.place.storage.rename(part.name, part_name(number))
        self._parts += [kinds] * len(taken)
        self.rows += sum(part.rows for part in taken)

    def _wait(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Complete the file that is being written."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            self._wait()
        finally:
            file.close()
        self.place.storage.rename(self._name, part_name(len(self._parts) + 1))
        self._parts.append(self._kinds)

    def abandon(self) -> None:
        """Let go of the file that is being written: it will not be needed."""
        file, self._file = self._file, None
        with suppress(OSError, pa.ArrowException):  # a full disk takes no ending either
            try:
                self._wait()
            finally:
                if file is not None:
                    file.close()
        self._thread.shutdown()

    def stand(self, count: int, rows: int) -> None:
        """Speak of the first ``count`` files alone, which have so many rows."""
        self._parts = [*self._parts[:count], *[None] * (count - len(self._parts))]
        self.rows = rows

    def sweep(self) -> None:
        """Remove every file but those spoken of."""
        kept = set(self.names)
        for name in self.place.storage.names():
            if name not in kept:
                self.place.storage.remove(name)

    @property
    def names(self) -> list[str]:
        """What the files are called."""
        return [part_name(number) for number in range(1, len(self._parts) + 1)]

    def stale(self, kinds: Kinds) -> dict[str, list[str]]:
        """The files that do not have columns of these kinds, with the columns: they have to become text."""
        found = {}
        for place, name in enumerate(self.names):
            held = self._parts[place]
            if held is None:
                held = self._parts[place] = self.place.kinds(name)
            changed = [column for column, kind in held.items() if kind != kinds[column]]
            if changed:
                found[name] = changed
        return found

    def replace(self, name: str, fresh: str) -> None:
        """Put a file that :meth:`Place.write_as_text` wrote in the place of the one that it was made of."""
        self.place.storage.rename(fresh, name)
        self._parts[self.names.index(name)] = None

    def finish(self, kinds: Kinds, metadata: dict[bytes, bytes]) -> None:
        """Complete the table, whose columns have turned out to be of these kinds.

        A first file without rows has them all, for readers that take the columns of the first file for those of all.
        """
        self.close()
        self._thread.shutdown()
        for name, changed in self.stale(kinds).items():
            self.replace(name, self.place.write_as_text(name, changed))
        schema = pa.schema([(name, TYPES[kind]) for name, kind in kinds.items()], metadata=metadata)
        empty = fresh_name()
        with self.place.open(empty, schema) as file:
            file.write_table(schema.empty_table())
        self.place.storage.rename(empty, part_name(0))
        for name in self.place.storage.names():
            if name.startswith(UNFINISHED):
                self.place.storage.remove(name)


def part_name(number: int) -> str:
    """What the n-th file of a table is called."""
    return f"part-{number:05}.parquet"
