"""The files of a table: plain Parquet, ``part-00001.parquet`` and so on, all of one schema.

A file gets such a name when it is complete. Until then it has one that no reader looks at, and which nobody else
writes: what a process that was killed, or a task that was tried again, has left behind is no part of the table.

The columns are only certain at the end, before which other processes have written files. One that lacks a
column, or has one of another kind, is then written again (:meth:`Place.rewrite`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fencepost.errors import SystemFailure
from fencepost.files.digest import running
from fencepost.files.storage import Storage, reason
from fencepost.states.columns import Kinds, kinds_of, rewritten, schema_of
from fencepost.states.manifest import File

BLOCK = 1 << 17
"""Rows that are written together: a row group."""
FILE_ROWS = 1 << 22
"""Rows after which a file is full."""

UNFINISHED = "_"
"""The beginning of the names of files that are no part of the table."""

FINGERPRINTS = {"states": ("fingerprint", "parent"), "edges": ("source", "target")}
"""The columns of each table that hold random numbers: there is nothing to compress, and few values are there twice."""
RISING = {"states": "fingerprint", "edges": "source"}
"""The one of them by which rows are in order for the most part, so that differences take less room than numbers."""


class Part(File, frozen=True):
    """A file of rows that is complete but for its name. ``order``: its place among those that were written at the same
    time.
    """

    order: int


class Place:
    """Where the files of one table are. It goes to other processes as it is."""

    def __init__(self, storage: Storage, table: str) -> None:
        self.storage = storage.below(table)
        self.table = table

    def open(self, name: str, schema: Any) -> PartWriter:
        """A file to write tables with this schema to."""
        plain = FINGERPRINTS[self.table]
        flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
        encoded = [path for field in schema if field.name not in plain for path in _leaves(field.name, field.type)]
        compression = {**dict.fromkeys(encoded, "zstd"), **dict.fromkeys(plain, "none")}
        files, folder = self.storage.arrow()
        stream = DigestedStream(files.open_output_stream(f"{folder}/{name}"))
        # No reader skips rows by the least and the greatest element of lists, which take time to find.
        writer = pq.ParquetWriter(
            pa.PythonFile(stream, "w"), schema, use_dictionary=encoded or False, compression=compression,
            write_statistics=flat,
            column_encoding={RISING[self.table]: "DELTA_BINARY_PACKED"}, write_page_checksum=True,
        )  # fmt: skip
        return PartWriter(name, writer, stream)

    def write(self, order: int, blocks: Iterable[Any]) -> Part | None:
        """Write tables of one schema as a new file; nothing if there are none."""
        file = None
        try:
            for block in blocks:
                file = file or self.open(fresh_name(), block.schema)
                file.write(block)
        finally:
            if file is not None:
                file.close()
        return file.part(order) if file is not None else None

    def rewrite(self, order: int, name: str, kinds: Kinds) -> Part:
        """Write a file anew, with columns of these kinds."""
        files, folder = self.storage.arrow()
        with pq.ParquetFile(f"{folder}/{name}", filesystem=files) as old:
            part = self.write(
                order, (rewritten(old.read_row_group(group), kinds) for group in range(old.num_row_groups))
            )
        assert part is not None
        return part

    def rewritten(self, file: File) -> File | None:
        """The file that :meth:`rewrite` made of one; None if it holds something else."""
        files, folder = self.storage.arrow()
        path = f"{folder}/{file.name}"
        try:
            with pq.ParquetFile(path, filesystem=files, page_checksum_verification=True) as whole:
                rows = sum(block.num_rows for block in whole.iter_batches())
        except (OSError, pa.ArrowException):
            return None
        digest = self.storage.digest(file.name)
        if rows != file.rows or digest is None:
            return None
        return File(file.name, rows, int(files.get_file_info(path).size), digest)

    def kinds(self, name: str) -> Kinds:
        """The kinds of the columns of a file."""
        files, folder = self.storage.arrow()
        return kinds_of(pq.read_schema(f"{folder}/{name}", filesystem=files))


class DigestedStream:
    """A stream to a file, with a running digest and the number of all bytes that went through it. pyarrow takes it for
    a file.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.digest = running()
        self.bytes = 0

    def write(self, data: Any) -> int:
        """Write bytes."""
        self.stream.write(data)
        self.digest.update(data)
        self.bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """Bytes that were written are out of this process."""
        self.stream.flush()

    def tell(self) -> int:
        """The number of bytes so far."""
        return self.bytes

    def close(self) -> None:
        """Nothing more is written."""
        self.stream.close()

    @property
    def closed(self) -> bool:
        """Whether the stream is closed."""
        return bool(self.stream.closed)


class PartWriter:
    """A file of a table that is being written, under the name that it has until it is complete."""

    def __init__(self, name: str, writer: Any, stream: DigestedStream) -> None:
        self.name = name
        self.rows = 0
        self._writer = writer
        self._stream = stream

    @property
    def is_open(self) -> bool:
        """Whether more can be written."""
        return bool(self._writer.is_open)

    def write(self, table: Any) -> None:
        """Add rows."""
        self._writer.write_table(table, row_group_size=BLOCK)
        self.rows += table.num_rows

    def close(self) -> None:
        """Complete the file."""
        try:
            self._writer.close()
        finally:
            self._stream.close()

    def part(self, order: int) -> Part:
        """The file, once it is closed."""
        return Part(self.name, self.rows, self._stream.bytes, self._stream.digest.hexdigest(), order)


def _leaves(path: str, type: Any) -> list[str]:
    """The columns of a Parquet file, by their paths, that one column consists of."""
    if pa.types.is_struct(type):
        parts = [(field.name, field.type) for field in type]
    elif pa.types.is_map(type):
        parts = [("key_value.key", type.key_type), ("key_value.value", type.item_type)]
    elif pa.types.is_list(type):
        parts = [("list.element", type.value_type)]
    else:
        return [path]
    return [leaf for name, part in parts for leaf in _leaves(f"{path}.{name}", part)]


def fresh_name() -> str:
    """A name for a file that is no part of the table yet."""
    return f"{UNFINISHED}{uuid.uuid4().hex}.part"


@contextmanager
def writing(directory: object) -> Iterator[None]:
    """Says in one line what the disk refuses while a state space is written."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise SystemFailure(f"the state space cannot be written to {directory}: {reason(error)}") from error


class Files:
    """The files of one table, as the driver of a search keeps them.

    It writes rows itself (:meth:`write`), or takes files that others wrote (:meth:`take`). One thread encodes and
    writes a block while the next is laid out; what goes wrong there is raised by the next call.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.listed: list[File] = []
        self._kinds: list[Kinds | None] = []  # of each file, None if they are yet to be looked up
        self._file: PartWriter | None = None
        self._open: Kinds = {}  # of the columns of the file that is being written
        self._in_file = 0
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None
        self._writing = Lock()  # held by whoever uses the file

    @property
    def rows(self) -> int:
        """How many there are in all files, the one included that is being written."""
        return sum(file.rows for file in self.listed) + self._in_file

    def write(self, kinds: Kinds, table: Any) -> None:
        """Add rows, with columns of these kinds, which are those of the file that is open, if one is. A new one is
        begun when it is full.
        """
        if self._file is None or self._in_file >= FILE_ROWS:
            self.close()
            self._open = kinds
            self._file = self.place.open(fresh_name(), table.schema)
        self._wait()
        self._last = self._thread.submit(self._append, self._file, table)
        self._in_file += table.num_rows

    def _append(self, file: PartWriter, table: Any) -> None:
        with self._writing:
            if file.is_open:
                file.write(table)

    def take(self, kinds: Kinds, parts: Iterable[Part]) -> None:
        """Add files that other processes wrote, with columns of these kinds: all of them, or none if the disk refuses
        one.
        """
        self.close()
        taken = [(part, _named(n, part)) for n, part in enumerate(sorted(parts, key=lambda p: p.order), self._next)]
        for part, file in taken:
            self.place.storage.rename(part.name, file.name)
        self.listed += [file for _, file in taken]
        self._kinds += [kinds] * len(taken)

    @property
    def _next(self) -> int:
        return len(self.listed) + 1

    def _wait(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Complete the file that is being written."""
        if self._file is None:
            return
        self._wait()
        file, self._file = self._file, None
        file.close()
        part = _named(self._next, file.part(0))
        self.place.storage.rename(file.name, part.name)
        self.listed.append(part)
        self._kinds.append(self._open)
        self._in_file = 0

    def abandon(self) -> None:
        """Let go of the file that is being written: it will not be needed."""
        file, self._file, self._in_file = self._file, None, 0
        # An interrupt may come at any time, even before the executor knows of the thread that it has started and could
        # wait for it.
        with self._writing, suppress(OSError, pa.ArrowException):  # a full disk takes no ending either
            if file is not None:
                file.close()
        self._thread.shutdown(cancel_futures=True)

    def stand(self, files: Iterable[File]) -> None:
        """Speak of these files alone, which are the first ones."""
        self.listed = list(files)
        self._kinds = [*self._kinds[: len(self.listed)], *[None] * (len(self.listed) - len(self._kinds))]

    def sweep(self) -> None:
        """Remove every file but those spoken of."""
        kept = {file.name for file in self.listed}
        for name in self.place.storage.names():
            if name not in kept:
                self.place.storage.remove(name)

    def damage(self) -> str | None:
        """The damage of a file that is spoken of, if there is any. A file may have been written again, with other
        columns, before the end.
        """
        sizes = self.place.storage.sizes()
        for number, file in enumerate(self.listed):
            if file.name not in sizes:
                return f"there is no {self.place.storage.place}/{file.name}"
            found: File | None = file
            if sizes[file.name] != file.bytes:
                found = self.place.rewritten(file)
            elif not self.place.storage.is_remote and self.place.storage.digest(file.name) != file.digest:
                found = None
            if found is None:
                return f"{self.place.storage.place}/{file.name} is not what was written"
            self.listed[number] = found
        return None

    def stale(self, kinds: Kinds) -> list[tuple[int, str]]:
        """The files whose columns are not of these kinds: the number of each, and what it is called."""
        for place, held in enumerate(self._kinds):
            if held is None:
                self._kinds[place] = self.place.kinds(self.listed[place].name)
        wanted = list(kinds.items())
        return [
            (n, self.listed[n].name)
            for n, held in enumerate(self._kinds)
            if held is not None and list(held.items()) != wanted
        ]

    def replace(self, kinds: Kinds, part: Part) -> None:
        """Put a file that :meth:`Place.rewrite` wrote, ``order`` telling of which, in the place of that one."""
        old = self.listed[part.order]
        self.place.storage.rename(part.name, old.name)
        self.listed[part.order], self._kinds[part.order] = File(old.name, part.rows, part.bytes, part.digest), kinds

    def finish(self, kinds: Kinds, metadata: dict[bytes, bytes]) -> None:
        """Complete the table, whose columns have turned out to be of these kinds. There is at least one file, so that
        any reader knows them.
        """
        self.close()
        self._thread.shutdown()
        for number, name in self.stale(kinds):
            self.replace(kinds, self.place.rewrite(number, name, kinds))
        if not self.listed:
            empty = self.place.open(fresh_name(), schema_of(kinds, metadata))
            empty.close()
            self.take(kinds, [empty.part(0)])
        for name in self.place.storage.names():
            if name.startswith(UNFINISHED):
                self.place.storage.remove(name)


def _named(number: int, part: Part) -> File:
    """The n-th file of a table."""
    return File(part_name(number), part.rows, part.bytes, part.digest)


def part_name(number: int) -> str:
    """The name of the n-th file of a table."""
    return f"part-{number:05}.parquet"
