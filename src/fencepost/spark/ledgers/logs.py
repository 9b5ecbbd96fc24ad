"""Queries of logs: the ledgers of a log in order, and offsets in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec

from fencepost.errors import OptionError, SystemFailure
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.errors import NoSuchEntryError, NoSuchLedgerError
from fencepost.log import log as logs
from fencepost.log.chain import EARLIEST, Chain, End, Position
from fencepost.log.cursors import Cursor, acknowledged_of
from fencepost.log.errors import LogTrimmedError, NoSuchLogError
from fencepost.log.metadata import LogNodes
from fencepost.spark.ledgers.filters import ANY, Wanted
from fencepost.spark.ledgers.offsets import FORMAT, Count, stop_within
from fencepost.spark.ledgers.options import ReadOptions
from fencepost.spark.ledgers.parts import Range, parts
from fencepost.spark.ledgers.planning import AT_ONCE, Ledgers, behind
from fencepost.spark.ledgers.reading import lost
from fencepost.spark.ledgers.stream import Stream

NONE = -1
"""The ledger of an offset before the first ledger of a log."""


class LogOffset(msgspec.Struct, frozen=True):
    """A query has read all ledgers before number ``place`` in the life of the log, and the entries before ``entry`` of
    that one. ``ended``: that ledger is closed and has no more.
    """

    place: Annotated[int, msgspec.Meta(ge=NONE)]
    ledger: Annotated[int, msgspec.Meta(ge=NONE)]
    entry: Count
    ended: bool = False

    def to_json(self, log: str) -> dict[str, Any]:
        """The content for Spark's checkpoint."""
        return {"format": FORMAT, "log": log, **msgspec.structs.asdict(self)}

    @classmethod
    def of_json(cls, content: Any, log: str) -> LogOffset:
        """Parse the content of :meth:`to_json`. Raises :class:`fencepost.SystemFailure` for other content, and for
        another log.
        """
        try:
            if (content["format"], content["log"]) != (FORMAT, log):
                raise ValueError
            return msgspec.convert(content, cls)
        except (KeyError, TypeError, ValueError, msgspec.ValidationError):
            raise SystemFailure(
                f"the checkpoint has offsets that are not of log {log} or not of this version, {str(content)[:80]!r}:"
                " begin with another checkpointLocation"
            ) from None


class Piece(msgspec.Struct, frozen=True):
    """The entries of a log's ledger from ``first`` to before ``stop``. ``ended``: the ledger is closed at ``stop``.
    ``created``: see :class:`.Range`.
    """

    place: int
    ledger: int
    first: int
    stop: int
    ended: bool
    created: int

    def read_to(self, stop: int) -> LogOffset:
        """The offset of a query that has read the ledger up to ``stop``."""
        return LogOffset(self.place, self.ledger, stop, self.ended and stop == self.stop)


class Log:
    """A log, as the driver sees it."""

    def __init__(self, store: LedgerClient, options: ReadOptions) -> None:
        assert options.log is not None
        self.name = options.log
        self.options = options
        self.nodes = LogNodes(store.metadata, self.name)
        self.ledgers = Ledgers(store, options)

    async def chain(self) -> Chain:
        """Its ledgers. Raises :class:`NoSuchLogError`."""
        try:
            return (await self.nodes.read())[0]
        except NoSuchLogError as error:
            raise NoSuchLogError(f"option log: {error}") from None

    async def at(self, option: str, where: Position | End) -> LogOffset:
        """The offset where an option has a query begin or end. Raises :class:`fencepost.OptionError` if the place is
        not in the log.
        """
        chain = await self.chain()
        if where is EARLIEST or (isinstance(where, End) and not chain.links):
            return LogOffset(chain.trimmed - 1, NONE, 0, ended=True)
        ledger = where.ledger if isinstance(where, Position) else chain.links[-1].ledger
        index = chain.index(ledger)
        if index is None:
            raise OptionError(f"option {option} is {where}: ledger {ledger} is not in log {self.name}")
        stop, ended = await self._stop_of(ledger, chain)
        entry = where.entry if isinstance(where, Position) else stop
        if entry > stop:
            raise OptionError(f"option {option} is {where}: of ledger {ledger} the entries before {stop} can be read")
        return LogOffset(chain.trimmed + index, ledger, entry, ended and entry == stop)

    async def start(self) -> LogOffset:
        """The first offset of a query without a checkpoint: its cursor's if it has one, or else that of the option
        ``startingOffsets``.

        Raises :class:`LogTrimmedError` if the log was trimmed past the cursor, unless ``failOnDataLoss`` is false.
        """
        name = self.options.cursor
        node = None if name is None else await self.nodes.read_cursor(name)
        if node is None:
            return await self.at("startingOffsets", self.options.log_start)
        before = acknowledged_of(node.data).before
        chain = await self.chain()
        index = chain.index(before.ledger)
        if index is None:
            if chain.trimmed and self.options.fail_on_data_loss:
                raise lost(
                    LogTrimmedError(
                        f"option cursor: log {self.name} was trimmed behind {before}, where cursor {name} is"
                    )
                )
            return await self.at("cursor", EARLIEST)
        stop, ended = await self._stop_of(before.ledger, chain)
        entry = min(before.entry, stop) if ended else before.entry
        return LogOffset(chain.trimmed + index, before.ledger, entry, ended and entry == stop)

    async def pieces(self, start: LogOffset, end: LogOffset | None = None) -> AsyncIterator[Piece]:
        """The entries from ``start`` on, ledger by ledger; up to ``end`` if that is not None. Entries before ``end``
        are confirmed.

        Raises :class:`LogTrimmedError` and others if some of these entries are gone, unless ``failOnDataLoss`` is
        false; and :class:`fencepost.SystemFailure` if the log was replaced by another.
        """
        chain = await self.chain()
        index = start.place - chain.trimmed
        if index >= len(chain.links) or (0 <= index and start.ledger not in (NONE, chain.links[index].ledger)):
            raise SystemFailure(
                f"log {self.name} is not the log that was read: it does not have ledger {start.ledger} at"
                f" place {start.place}. Begin with another checkpointLocation"
            )
        first = start.entry
        if start.ended:
            index, first = index + 1, 0
        if index < 0:
            if self.options.fail_on_data_loss:
                raise lost(
                    LogTrimmedError(
                        f"log {self.name} was trimmed behind {start.ledger}:{start.entry}, up to which it was read"
                    )
                )
            index, first = 0, 0
        stop_at = len(chain.links) if end is None else min(len(chain.links), end.place - chain.trimmed + 1)
        for some in range(index, stop_at, AT_ONCE):
            links = [chain.links[at].ledger for at in range(some, min(some + AT_ONCE, stop_at))]
            stops = await asyncio.gather(*(self._stop_of(each, chain) for each in links))
            for at, (ledger, (stop, ended)) in enumerate(zip(links, stops, strict=True), some):
                place = chain.trimmed + at
                if end is not None and place == end.place:
                    stop, ended = end.entry, end.ended
                if stop < first:
                    if ended and self.options.fail_on_data_loss:
                        raise lost(NoSuchEntryError(f"ledger {ledger} has {stop} entries, and {first} were read of it"))
                    stop = first
                yield Piece(place, ledger, first, stop, ended, chain.links[at].created)
                if not ended:
                    return
                first = 0

    async def _stop_of(self, ledger: int, chain: Chain) -> tuple[int, bool]:
        try:
            return await self.ledgers.stop_of(ledger)
        except NoSuchLedgerError:
            if self.options.fail_on_data_loss:
                raise lost(self.nodes.lost(chain, [ledger])) from None
            return 0, True

    async def after(
        self, start: LogOffset, cap: LogOffset | None, max_entries: int | None, max_bytes: int | None
    ) -> LogOffset:
        """The offset after one batch from ``start`` on. A batch has at most ``max_entries`` entries and ``max_bytes``
        bytes, but at least one entry, and does not pass the ``cap``.
        """
        offset, read = start, 0
        if cap is not None and (cap.place, cap.entry, cap.ended) <= (start.place, start.entry, start.ended):
            return start
        async for piece in self.pieces(start, cap):
            stop = piece.stop
            if max_entries is not None:
                stop = min(stop, piece.first + max_entries - read)
            if max_bytes is not None and stop > piece.first:
                before = await self.ledgers.length_before(piece.ledger, piece.first)
                after = await self.ledgers.length_before(piece.ledger, stop)
                if after - before > max_bytes:
                    stop = await stop_within(
                        piece.first,
                        stop,
                        max_bytes,
                        before,
                        lambda entry, ledger=piece.ledger: self.ledgers.length_before(ledger, entry + 1),  # type: ignore[misc]
                    )
                    if stop == piece.first and not read:  # a larger entry is a batch of its own
                        stop += 1
                    after = await self.ledgers.length_before(piece.ledger, stop)
                max_bytes = max(0, max_bytes - (after - before))
            read += stop - piece.first
            offset = piece.read_to(stop)
            if stop < piece.stop:
                break
        return offset

    async def parts(
        self, start: LogOffset, end: LogOffset, ledgers: Wanted = ANY, entries: Wanted = ANY
    ) -> list[tuple[Range, ...]]:
        """The partitions from ``start`` to ``end``, without entries that the query does not need."""
        wanted = []
        async for piece in self.pieces(start, end):
            first, stop = entries.within(piece.first, piece.stop)
            if ledgers.has(piece.ledger) and first < stop:
                wanted.append(self.ledgers.span(piece.ledger, first, stop, piece.created))
        spans = await asyncio.gather(*wanted)
        return parts([span for span in spans if span is not None], self.options.partition_bytes)

    async def end(self, start: LogOffset) -> LogOffset:
        """The offset after all entries that are confirmed now."""
        return await self.after(start, None, None, None)


async def batch(store: LedgerClient, options: ReadOptions, ledgers: Wanted, entries: Wanted) -> list[tuple[Range, ...]]:
    """The partitions of a batch query. Raises as :func:`fencepost.spark.ledgers.planning.batch`."""
    log = Log(store, options)
    try:
        start = await log.start()
        end = (
            await log.end(start) if isinstance(options.log_end, End) else await log.at("endingOffsets", options.log_end)
        )
        if (end.place, end.entry) < (start.place, start.entry):
            # The end of a ledger is the beginning of the next one. A cursor may have passed the end.
            if options.cursor is None and await log.parts(end, start):
                raise OptionError(behind(str(options.log_start), str(options.log_end)))
            return []
        return await log.parts(start, end, ledgers, entries)
    finally:
        await log.ledgers.close()


class LogStream(Stream):
    """A streaming query of a log."""

    async def _begin(self, store: LedgerClient) -> Ledgers:
        self.log = Log(store, self.options)
        self.log_cap: LogOffset | None = None
        self.cursor: Cursor | None = None
        return self.log.ledgers

    def begin(self) -> dict[str, Any]:
        """See :class:`Stream`."""

        async def begin(_: LedgerClient) -> LogOffset:
            if self.options.cursor is not None:
                await self._opened_cursor(self.options.log_start)
            return await self.log.start()

        return self.store.run(begin).to_json(self.log.name)

    async def _opened_cursor(self, at: Position | End) -> Cursor:
        """Open the cursor; if there is none, create it at this place."""
        assert self.options.cursor is not None
        if self.cursor is None:
            log = logs.Log(self.log.ledgers.store, self.log.name, self.options.password)
            self.cursor = await log.cursor(self.options.cursor, at=at)
        return self.cursor

    def committed(self, end: dict[str, Any]) -> None:
        """Move the cursor to the end of a committed batch, but never back."""
        offset = LogOffset.of_json(end, self.log.name)

        async def move(_: LedgerClient) -> None:
            if offset.ledger != NONE:
                cursor = await self._opened_cursor(EARLIEST)
                # Before the first entry: acknowledge up to the previous position.
                await cursor.acknowledge_up_to(Position(offset.ledger, offset.entry - 1))

        if self.options.cursor is not None:
            self.store.run(move)

    def end_at_present(self) -> None:
        """See :class:`Stream`."""

        async def latest(_: LedgerClient) -> LogOffset:
            chain = await self.log.chain()
            before_last = LogOffset(chain.length - 2, NONE, 0, ended=True)
            return await self.log.end(before_last) if chain.links else LogOffset(chain.length - 1, NONE, 0, ended=True)

        self.log_cap = self.store.run(latest)

    def after(self, start: dict[str, Any], max_entries: int | None, max_bytes: int | None) -> dict[str, Any]:
        """See :class:`Stream`."""
        self.pause()
        offset = LogOffset.of_json(start, self.log.name)
        after = self.store.run(lambda _: self.log.after(offset, self.log_cap, max_entries, max_bytes))
        self.seen = after.to_json(self.log.name)
        return self.seen

    def parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Range, ...]]:
        """See :class:`Stream`."""
        begins, ends = (LogOffset.of_json(each, self.log.name) for each in (start, end))
        return self.store.run(lambda _: self.log.parts(begins, ends))
