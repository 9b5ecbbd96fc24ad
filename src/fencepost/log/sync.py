"""Logs for synchronous code: the same operations by the same names, which wait by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from fencepost.log.batches import Batches, Part, PartWriter
from fencepost.log.chain import Chain
from fencepost.log.cursors import Cursor
from fencepost.log.log import Log, LogView
from fencepost.log.position import EARLIEST, Position
from fencepost.log.reader import At, LogBatch, LogEntry, LogReader
from fencepost.log.writer import LogWriter
from fencepost.store.client.sync import Loop
from fencepost.store.client.writer import Data


class SyncLogWriter:
    """See :class:`.LogWriter`."""

    def __init__(self, loop: Loop, writer: LogWriter) -> None:
        self._loop = loop
        self._writer = writer

    @property
    def is_leader(self) -> bool:
        """See :attr:`.LogWriter.is_leader`."""
        return self._writer.is_leader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._loop.wait(self._writer.__aexit__(kind, error, traceback))

    def append(self, data: Data, key: bytes | None = None) -> Position:
        """See :meth:`.LogWriter.append`."""
        return self._loop.wait(self._writer.append(data, key))

    def append_many(self, entries: Iterable[Data]) -> list[Position]:
        """See :meth:`.LogWriter.append_many`. The entries are drawn in the thread of the loop."""
        assert not isinstance(entries, AsyncIterable)
        return self._loop.wait(self._writer.append_many(entries))

    def lead(self, wait: float | None = None) -> None:
        """See :meth:`.LogWriter.lead`."""
        self._loop.wait(self._writer.lead(wait))

    def roll_over(self) -> None:
        """See :meth:`.LogWriter.roll_over`."""
        self._loop.wait(self._writer.roll_over())

    def seal(self) -> None:
        """See :meth:`.LogWriter.seal`."""
        self._loop.wait(self._writer.seal())

    def close(self) -> None:
        """See :meth:`.LogWriter.close`."""
        self._loop.wait(self._writer.close())


class SyncCursor:
    """See :class:`.Cursor`."""

    def __init__(self, loop: Loop, cursor: Cursor) -> None:
        self._loop = loop
        self._cursor = cursor
        self.name = cursor.name
        """The cursor."""

    @property
    def position(self) -> Position:
        """See :attr:`.Cursor.position`."""
        return self._cursor.position

    def read(self, follow: bool = True, **options: Any) -> Iterator[LogEntry]:
        """See :meth:`.Cursor.read`."""
        return self._loop.iterate(self._cursor.read(follow, **options))

    def acknowledge(self, *positions: Position) -> None:
        """See :meth:`.Cursor.acknowledge`."""
        self._loop.wait(self._cursor.acknowledge(*positions))

    def acknowledge_up_to(self, position: Position) -> None:
        """See :meth:`.Cursor.acknowledge_up_to`."""
        self._loop.wait(self._cursor.acknowledge_up_to(position))

    def move(self, position: Position) -> None:
        """See :meth:`.Cursor.move`."""
        self._loop.wait(self._cursor.move(position))


class SyncPartWriter:
    """See :class:`.PartWriter`."""

    def __init__(self, loop: Loop, part: PartWriter) -> None:
        self._loop = loop
        self._part = part

    def append(self, data: Iterable[bytes], keys: Sequence[bytes | None] | None = None) -> None:
        """See :meth:`.PartWriter.append`."""
        self._loop.wait(self._part.append(data, keys))

    def close(self) -> Part:
        """See :meth:`.PartWriter.close`."""
        return self._loop.wait(self._part.close())

    def discard(self) -> None:
        """See :meth:`.PartWriter.discard`."""
        self._loop.wait(self._part.discard())


class SyncBatches:
    """See :class:`.Batches`."""

    def __init__(self, loop: Loop, batches: Batches) -> None:
        self._loop = loop
        self._batches = batches

    def part(self, number: int, ledger_bytes: int = 1 << 30) -> SyncPartWriter:
        """See :meth:`.Batches.part`."""
        return SyncPartWriter(self._loop, self._batches.part(number, ledger_bytes))

    def has(self, number: int) -> bool:
        """See :meth:`.Batches.has`."""
        return self._loop.wait(self._batches.has(number))

    def attach(self, number: int, parts: Sequence[Part], *, wait: float = 60.0) -> bool:
        """See :meth:`.Batches.attach`."""
        return self._loop.wait(self._batches.attach(number, parts, wait=wait))

    def withdraw(self, number: int) -> None:
        """See :meth:`.Batches.withdraw`."""
        self._loop.wait(self._batches.withdraw(number))


class SyncLog:
    """See :class:`.Log`."""

    def __init__(self, loop: Loop, log: Log) -> None:
        self._loop = loop
        self._log = log
        self.name = log.name
        """Its name."""

    def create(self, **options: Any) -> None:
        """See :meth:`.Log.create`."""
        self._loop.wait(self._log.create(**options))

    def writer(self, **options: Any) -> SyncLogWriter:
        """See :meth:`.Log.writer`."""
        return SyncLogWriter(self._loop, self._loop.wait(self._log.writer(**options).opened()))

    def batches(self, writer: str, *, remembered: bool = True) -> SyncBatches:
        """See :meth:`.Log.batches`."""
        return SyncBatches(self._loop, self._log.batches(writer, remembered=remembered))

    def read(self, at: At = EARLIEST, **options: Any) -> Iterator[LogEntry]:
        """The entries, as a reader has them that :meth:`.Log.reader` gives."""
        return self._loop.iterate(_closing(self._log.reader(at, **options)))

    def read_batches(self, at: At = EARLIEST, **options: Any) -> Iterator[LogBatch]:
        """The same in batches; see :meth:`.LogReader.read_batches`."""
        return self._loop.iterate(_closing_batches(self._log.reader(at, **options)), 4)

    def cursor(self, name: str, *, at: At = EARLIEST) -> SyncCursor:
        """See :meth:`.Log.cursor`."""
        return SyncCursor(self._loop, self._loop.wait(self._log.cursor(name, at=at).opened()))

    def find(self, at: At) -> Position:
        """See :meth:`.Log.find`."""
        return self._loop.wait(self._log.find(at))

    def delete_cursor(self, name: str) -> None:
        """See :meth:`.Log.delete_cursor`."""
        self._loop.wait(self._log.delete_cursor(name))

    def chain(self) -> Chain:
        """See :meth:`.Log.chain`."""
        return self._loop.wait(self._log.chain())

    def show(self) -> LogView:
        """See :meth:`.Log.show`."""
        return self._loop.wait(self._log.show())

    def trim(
        self,
        *,
        before: Position | datetime | int | None = None,
        keep: int | timedelta | None = None,
        keep_unread: bool = False,
    ) -> tuple[int, ...]:
        """See :meth:`.Log.trim`."""
        return self._loop.wait(self._log.trim(before=before, keep=keep, keep_unread=keep_unread))

    def delete(self) -> int:
        """See :meth:`.Log.delete`."""
        return self._loop.wait(self._log.delete())

    def seal(self) -> None:
        """See :meth:`.Log.seal`."""
        self._loop.wait(self._log.seal())


async def _closing(reader: LogReader) -> AsyncIterator[LogEntry]:
    async with reader:
        async for entry in reader:
            yield entry


async def _closing_batches(reader: LogReader) -> AsyncIterator[LogBatch]:
    async with reader:
        async for batch in reader.read_batches():
            yield batch
