"""The files of a table: plain Parquet, ``part-00001.parquet`` and so on, all with one schema.

A file gets such a name when it is complete. Until then it has a unique name that readers ignore, so that the remains of
a killed process or a retried task are not part of the table. The columns are final only at the end, but other processes
write files earlier. A file that lacks a column, or has one of another kind, is rewritten then
(:meth:`TableLocation.rewrite`).
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
"""Rows in a row group."""
FILE_ROWS = 1 << 22
"""Rows in a full file."""

UNFINISHED = "_"
"""The prefix of the names of files that are not part of the table."""

FINGERPRINTS = {"states": ("fingerprint", "parent"), "edges": ("source", "target")}
"""The columns of each table that hold hashes. They do not compress, and few values occur twice."""
RISING = {"states": "fingerprint", "edges": "source"}
"""The one of them by which rows are mostly sorted, so that delta encoding takes less space."""


class Part(File, frozen=True):
    """A file of rows that is complete except for its name. ``order``: its position among the files written at the same
    time.
    """

    order: int


class TableLocation:
    """The location of one table's files. It can be sent to other processes."""

    def __init__(self, storage: Storage, table: str) -> None:
        self.storage = storage.below(table)
        self.table = table

    def open(self, name: str, schema: Any) -> PartWriter:
        """Open a file for tables with this schema."""
        plain = FINGERPRINTS[self.table]
        flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
        encoded = [path for field in schema if field.name not in plain for path in _leaves(field.name, field.type)]
        compression = {**dict.fromkeys(encoded, "zstd"), **dict.fromkeys(plain, "none")}
        files, folder = self.storage.arrow()
        stream = DigestedStream(files.open_output_stream(f"{folder}/{name}"))
        # No statistics for lists: no reader skips rows by them, and they take time to compute.
        writer = pq.ParquetWriter(
            pa.PythonFile(stream, "w"), schema, use_dictionary=encoded or False, compression=compression,
            write_statistics=flat,
            column_encoding={RISING[self.table]: "DELTA_BINARY_PACKED"}, write_page_checksum=True,
        )  # fmt: skip
        return PartWriter(name, writer, stream)

    def write(self, order: int, blocks: Iterable[Any]) -> Part | None:
        """Write tables of one schema as a new file. Without tables, write nothing and return None."""
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
        """Rewrite a file with columns of these kinds."""
        files, folder = self.storage.arrow()
        with pq.ParquetFile(f"{folder}/{name}", filesystem=files) as old:
            part = self.write(
                order, (rewritten(old.read_row_group(group), kinds) for group in range(old.num_row_groups))
            )
        assert part is not None
        return part

    def rewritten(self, file: File) -> File | None:
        """The file that :meth:`rewrite` made from ``file``. None if the content is anything else."""
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
    """A file-like object for pyarrow that keeps a running digest and byte count."""

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
        """Flush to the operating system."""
        self.stream.flush()

    def tell(self) -> int:
        """The number of bytes so far."""
        return self.bytes

    def close(self) -> None:
        """Close the stream."""
        self.stream.close()

    @property
    def closed(self) -> bool:
        """Whether the stream is closed."""
        return bool(self.stream.closed)


class PartWriter:
    """A file of a table being written, under its temporary name."""

    def __init__(self, name: str, writer: Any, stream: DigestedStream) -> None:
        self.name = name
        self.rows = 0
        self._writer = writer
        self._stream = stream

    @property
    def is_open(self) -> bool:
        """Whether rows can still be written."""
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
    """The paths of the Parquet columns that store one column."""
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
    """A unique name for a file that is not part of the table yet."""
    return f"{UNFINISHED}{uuid.uuid4().hex}.part"


@contextmanager
def writing(directory: object) -> Iterator[None]:
    """Turn an error of the disk into :class:`SystemFailure`, with one line of text."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise SystemFailure(f"the state space cannot be written to {directory}: {reason(error)}") from error


class Files:
    """The files of one table, managed by the driver of a search.

    The driver writes rows (:meth:`write`), or takes files that other processes wrote (:meth:`take`). A thread encodes
    and writes a block while the next one is prepared. The next call raises any error of that thread.
    """

    def __init__(self, place: TableLocation) -> None:
        self.place = place
        self.listed: list[File] = []
        self._kinds: list[Kinds | None] = []  # of each file, None if not read yet
        self._file: PartWriter | None = None
        self._open: Kinds = {}  # of the columns of the open file
        self._in_file = 0
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None
        self._writing = Lock()  # held while the file is in use

    @property
    def rows(self) -> int:
        """The number of rows in all files, including the open one."""
        return sum(file.rows for file in self.listed) + self._in_file

    def write(self, kinds: Kinds, table: Any) -> None:
        """Add rows with columns of these kinds, which must be those of the open file, if any. A full file is followed
        by a new one.
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
        """Add files that other processes wrote with columns of these kinds: all of them, or none if the disk fails."""
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
        """Complete the open file."""
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
        """Discard the open file."""
        file, self._file, self._in_file = self._file, None, 0
        # An interrupt may come at any time, even before the executor has registered the thread that it must wait for.
        with self._writing, suppress(OSError, pa.ArrowException):  # a full disk fails here too
            if file is not None:
                file.close()
        self._thread.shutdown(cancel_futures=True)

    def stand(self, files: Iterable[File]) -> None:
        """Reset the list to these files, which are its first ones."""
        self.listed = list(files)
        self._kinds = [*self._kinds[: len(self.listed)], *[None] * (len(self.listed) - len(self._kinds))]

    def sweep(self) -> None:
        """Remove every file that is not listed."""
        kept = {file.name for file in self.listed}
        for name in self.place.storage.names():
            if name not in kept:
                self.place.storage.remove(name)

    def damage(self) -> str | None:
        """The damage of a listed file, or None. A file may have been rewritten with other columns before the search
        stopped: then the list is updated.
        """
        sizes = self.place.storage.sizes()
        for number, file in enumerate(self.listed):
            if file.name not in sizes:
                return f"there is no {self.place.storage.place}/{file.name}"
            actual: File | None = file
            if sizes[file.name] != file.bytes:
                actual = self.place.rewritten(file)
            elif not self.place.storage.is_remote and self.place.storage.digest(file.name) != file.digest:
                actual = None
            if actual is None:
                return f"{self.place.storage.place}/{file.name} is not what was written"
            self.listed[number] = actual
        return None

    def stale(self, kinds: Kinds) -> list[tuple[int, str]]:
        """The number and the name of each file whose columns are not of these kinds."""
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
        """Replace file number ``part.order`` with its version from :meth:`TableLocation.rewrite`."""
        old = self.listed[part.order]
        self.place.storage.rename(part.name, old.name)
        self.listed[part.order], self._kinds[part.order] = File(old.name, part.rows, part.bytes, part.digest), kinds

    def finish(self, kinds: Kinds, metadata: dict[bytes, bytes]) -> None:
        """Complete the table with columns of these final kinds. Writes an empty file if there is none, so that readers
        find the schema.
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
