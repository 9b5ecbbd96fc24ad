"""Events as Parquet. This module needs PyArrow. Other modules of the package import it only when they need it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fencepost.traces.event import COLUMNS, TraceError, TraceEvent
from fencepost.traces.spool import Origin, Row

SCHEMA = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("node", pa.string(), nullable=False),
        pa.field("incarnation", pa.int32(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("actor", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("subject", pa.string()),
        pa.field("parameters", pa.string(), nullable=False),
        pa.field("state", pa.string()),
    ]
)

BATCH = 65_536
"""Events per write or read."""

ROWS = 4_096
"""Rows of other columns per read. They become Python's objects at once."""


class File:
    """A Parquet file of events. It gets its name once it is complete. Use it as a context manager: an error leaves no
    file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hidden = path.with_name(f".{path.name}.new")
        self._sink = pa.OSFile(str(self._hidden), "wb")
        self._writer = pq.ParquetWriter(
            self._sink, SCHEMA, compression="zstd", use_dictionary=True, write_page_checksum=True, store_schema=False
        )
        self._waiting: list[Any] = []
        self._rows = 0

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, *others: object) -> None:
        if kind is not None:
            self.discard()
            return
        try:
            self._write()
            self._writer.close()
            self._sink.close()
            with open(self._hidden, "rb") as file:
                os.fsync(file.fileno())
            os.replace(self._hidden, self.path)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Close and remove the unfinished file."""
        for end in (self._writer.close, self._sink.close, self._hidden.unlink):
            with contextlib.suppress(Exception):
                end()

    def add(self, run: Any, node: Any, incarnation: Any, rows: Sequence[Row]) -> None:
        """Add events. Each of ``run``, ``node`` and ``incarnation`` is one value for all events, or a list."""
        count = len(rows)
        columns = [
            pa.array(held, field.type) if isinstance(held, list) else pa.repeat(pa.scalar(held, field.type), count)
            for held, field in zip((run, node, incarnation), SCHEMA, strict=False)
        ]
        for place, field in enumerate(list(SCHEMA)[3:]):
            values = [row[place] for row in rows]
            # JSON bytes are UTF-8 already: a view avoids decoding them.
            columns.append(
                pa.array(values, pa.binary()).view(pa.string()) if place >= 4 else pa.array(values, field.type)
            )
        self._waiting.append(pa.table(columns, schema=SCHEMA))
        self._rows += count
        if self._rows >= BATCH:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting, self._rows = [], 0


def write(path: Path, origin: Origin, rows: Iterable[Sequence[Row]]) -> None:
    """Write the events of one part, batch by batch. Raises ``OSError`` if a write fails."""
    with File(path) as file:
        for some in rows:
            file.add(origin.run, origin.node, origin.incarnation, some)


def _opened(path: Path) -> Any:
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path} cannot be read: {_line(error)}") from error


def missing_column(path: Path) -> str:
    """The first column of traces that a file does not have; empty if it is a trace. Raises :class:`TraceError` if it
    cannot be read.
    """
    with _opened(path) as file:
        return next((name for name in COLUMNS if name not in file.schema_arrow.names), "")


def require(path: Path) -> None:
    """Raises :class:`TraceError` if a file is no trace or cannot be read."""
    if missing := missing_column(path):
        raise TraceError(
            f"{path} is no trace: it has no column {missing}; a conformance whose `read` maps its rows can read it"
        )


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file of any columns. A time in nanoseconds is their number since 1970, since Python's has none.
    Raises :class:`TraceError` if the file cannot be read.
    """
    with _opened(path) as file:
        schema = file.schema_arrow
        if again := [name for name in schema.names if schema.names.count(name) > 1]:
            raise TraceError(f"{path}: two columns have the name {again[0]!r}")
        exact = pa.schema([field.with_type(pa.int64()) if _is_fine(field.type) else field for field in schema])
        try:
            for batch in file.iter_batches(ROWS):
                yield from pa.Table.from_batches([batch]).cast(exact).to_pylist()
        except (pa.ArrowException, OSError, ValueError, ArithmeticError, LookupError) as error:  # no such day, or zone
            raise TraceError(f"{path} cannot be read: {_line(error)}") from error


def _is_fine(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "ns"


def tables(path: Path) -> Iterator[pa.Table]:
    """The events of a file in batches. Raises :class:`TraceError` if it is not a trace or cannot be read."""
    require(path)
    file = _opened(path)
    try:
        for batch in file.iter_batches(BATCH, columns=list(COLUMNS)):
            found = pa.Table.from_batches([batch]).select(list(COLUMNS))
            yield found if found.schema.equals(SCHEMA) else _cast(found)
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path} cannot be read: {_line(error)}") from error
    finally:
        file.close()


def _cast(found: pa.Table) -> pa.Table:
    """Another writer's table with the column types of traces. Raises ``ArrowException`` if it cannot be cast."""
    for field in SCHEMA:
        if not field.nullable and found.column(field.name).null_count:
            raise pa.ArrowInvalid(f"the column {field.name} has nulls")
    return pa.table([found.column(field.name).cast(field.type) for field in SCHEMA], schema=SCHEMA)


def events(path: Path) -> Iterator[TraceEvent]:
    """The events of a file. Raises as :func:`tables`."""
    for found in tables(path):
        try:
            columns = [_values(found.column(name), name in _FEW) for name in COLUMNS]
        except ValueError as error:  # texts that are no UTF-8
            raise TraceError(f"{path} cannot be read: {_line(error)}") from error
        yield from map(TraceEvent, *columns)


_FEW = frozenset(("run", "node", "actor", "action", "subject"))
"""Columns with few different values. Events share the objects."""


def _values(column: pa.ChunkedArray, are_few: bool) -> list[Any]:
    if not are_few:
        return column.to_pylist()  # type: ignore[no-any-return]
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return list(map(encoded.dictionary.to_pylist().__getitem__, encoded.indices.to_pylist()))


def table_of(found: Sequence[TraceEvent]) -> pa.Table:
    """Events as a table."""
    return pa.table(
        [pa.array([getattr(event, field.name) for event in found], field.type) for field in SCHEMA], schema=SCHEMA
    )


def _line(error: BaseException) -> str:
    line = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {line}" if isinstance(error, LookupError) else line
