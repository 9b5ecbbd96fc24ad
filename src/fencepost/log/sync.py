"""Logs for synchronous code: the same operations under the same names, as blocking calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from fencepost.ledger.client.sync import Loop, SyncAppender, Waiting, opens, waits
from fencepost.log.batches import Batches, PartWriter
from fencepost.log.chain import EARLIEST, Position
from fencepost.log.cursors import Cursor
from fencepost.log.log import Log
from fencepost.log.reader import At, LogBatch, LogEntry, LogReader
from fencepost.log.writer import LogWriter


class SyncLogWriter(SyncAppender[LogWriter, Position]):
    """See :class:`.LogWriter`."""

    append = waits(LogWriter.append)
    lead = waits(LogWriter.lead)
    roll_over = waits(LogWriter.roll_over)
    seal = waits(LogWriter.seal)
    close = waits(LogWriter.close)

    @property
    def is_leader(self) -> bool:
        """See :attr:`.LogWriter.is_leader`."""
        return self._of.is_leader


class SyncCursor(Waiting[Cursor]):
    """See :class:`.Cursor`."""

    def __init__(self, loop: Loop, cursor: Cursor) -> None:
        super().__init__(loop, cursor)
        self.name = cursor.name
        """The name of the cursor."""

    acknowledge = waits(Cursor.acknowledge)
    acknowledge_up_to = waits(Cursor.acknowledge_up_to)
    move = waits(Cursor.move)

    @property
    def position(self) -> Position:
        """See :attr:`.Cursor.position`."""
        return self._of.position

    def read(self, follow: bool = True, **options: Any) -> Iterator[LogEntry]:
        """See :meth:`.Cursor.read`."""
        return self._loop.iterate(self._of.read(follow, **options))


class SyncPartWriter(Waiting[PartWriter]):
    """See :class:`.PartWriter`."""

    append = waits(PartWriter.append)
    close = waits(PartWriter.close)
    discard = waits(PartWriter.discard)


class SyncBatches(Waiting[Batches]):
    """See :class:`.Batches`."""

    has = waits(Batches.has)
    attach = waits(Batches.attach)
    withdraw = waits(Batches.withdraw)

    def part(self, number: int, ledger_bytes: int = 1 << 30) -> SyncPartWriter:
        """See :meth:`.Batches.part`."""
        return SyncPartWriter(self._loop, self._of.part(number, ledger_bytes))


class SyncLog(Waiting[Log]):
    """See :class:`.Log`."""

    def __init__(self, loop: Loop, log: Log) -> None:
        super().__init__(loop, log)
        self.name = log.name
        """Its name."""

    create = waits(Log.create)
    writer = opens(Log.writer, SyncLogWriter)
    cursor = opens(Log.cursor, SyncCursor)
    find = waits(Log.find)
    delete_cursor = waits(Log.delete_cursor)
    chain = waits(Log.chain)
    show = waits(Log.show)
    trim = waits(Log.trim)
    offload = waits(Log.offload)
    delete = waits(Log.delete)
    seal = waits(Log.seal)

    def batches(self, writer: str, *, remembered: bool = True) -> SyncBatches:
        """See :meth:`.Log.batches`."""
        return SyncBatches(self._loop, self._of.batches(writer, remembered=remembered))

    def read(self, at: At = EARLIEST, **options: Any) -> Iterator[LogEntry]:
        """Read entries, as the reader of :meth:`.Log.reader` does."""
        return self._loop.iterate(_closing(self._of.reader(at, **options)))

    def read_batches(self, at: At = EARLIEST, **options: Any) -> Iterator[LogBatch]:
        """Read entries in batches; see :meth:`.LogReader.read_batches`."""
        return self._loop.iterate(_closing_batches(self._of.reader(at, **options)), 4)


async def _closing(reader: LogReader) -> AsyncIterator[LogEntry]:
    async with reader:
        async for entry in reader:
            yield entry


async def _closing_batches(reader: LogReader) -> AsyncIterator[LogBatch]:
    async with reader:
        async for batch in reader.read_batches():
            yield batch
