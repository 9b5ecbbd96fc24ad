"""The reader of a log: it reads ledger after ledger, and waits for new entries."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Self

import msgspec

from fencepost.errors import OptionError, SystemFailure
from fencepost.ledger.client import arguments
from fencepost.ledger.client.reader import LedgerReader
from fencepost.ledger.client.reading import EntryBatch
from fencepost.ledger.errors import NoSuchEntryError, NoSuchLedgerError, ReadError
from fencepost.log import offload_rules, rules
from fencepost.log.chain import EARLIEST, Chain, End, Position
from fencepost.log.entries import Frames, time_of
from fencepost.log.errors import LogFormatError, LogTrimmedError
from fencepost.log.metadata import LogNodes
from fencepost.log.objects import ObjectReader, open_object

if TYPE_CHECKING:
    from fencepost.ledger.client.client import LedgerClient

_log = logging.getLogger("fencepost.log")

At = Position | End | datetime | int
"""Where to begin: a position, an end of the log, or a time, as a :class:`datetime` or in milliseconds since 1970."""


_GONE = (NoSuchLedgerError, NoSuchEntryError, ReadError, SystemFailure)
"""Errors of a ledger that is not where it was."""


class OnTrimmed(enum.Enum):
    """What a reader does at a position that was trimmed, or whose ledger is missing."""

    RAISE = "raise"
    SKIP = "skip"
    """Go on with the next existing entry. A missing ledger is reported by a warning."""


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of a log: its position, data, optional key, and the time of its append in milliseconds since 1970."""

    position: Position
    data: bytes
    key: bytes | None
    time: int


class LogBatch:
    """Consecutive entries of one ledger of a log, beginning at ``first``.

    ``frames`` holds them in one block, without an object for each: see :class:`.Frames`. Iteration creates the objects.
    """

    __slots__ = ("first", "frames", "ledger")

    def __init__(self, ledger: int, created: int, batch: EntryBatch) -> None:
        self.ledger = ledger
        self.first = batch.first
        self.frames = Frames(batch.data, batch.offsets, created)

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def next(self) -> Position:
        """The position after the last of these entries."""
        return Position(self.ledger, self.first + len(self.frames))

    def __iter__(self) -> Iterator[LogEntry]:
        ledger = self.ledger
        for entry_id, (time, key, data) in enumerate(self.frames, self.first):
            yield LogEntry(Position(ledger, entry_id), data, key, time)

    def __repr__(self) -> str:
        return f"<entries {self.first} to {self.first + len(self) - 1} of ledger {self.ledger}>"


class LogReader:
    """Reads a log from a position on: ``async for entry in reader``. It does not disturb writers or other readers.

    With ``follow`` it waits for new entries, and ends when the log is sealed and read to its end. Without, it ends when
    it reaches the end of the log.
    """

    def __init__(
        self,
        store: LedgerClient,
        nodes: LogNodes,
        password: bytes,
        at: At,
        follow: bool,
        on_trimmed: OnTrimmed,
        prefetch: int,
        prefetch_bytes: int,
    ) -> None:
        self._store = store
        self._nodes = nodes
        self._password = password
        self._at = at
        self._follow = follow
        self._on_trimmed = on_trimmed
        self._prefetch = prefetch
        self._prefetch_bytes = prefetch_bytes
        self._chain = Chain()
        self._changed = asyncio.Event()
        self._place = -1
        """The place of the current ledger among all ledgers that the log has ever had."""
        self._ledger: LedgerReader | ObjectReader | None = None
        """The open reader of the current ledger, if there is one."""
        self._tried: int | None = None
        """The attempt whose object of the current ledger was tried; None: bookies were asked."""
        self._left_bookies: int | None = None
        """The ledger that bookies could not give, and that is offloaded."""
        self.position: Position | None = None
        """The entry that comes next. None while the log has no ledger yet."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading."""
        await self._leave()

    async def _leave(self) -> None:
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            await ledger.close()

    def __repr__(self) -> str:
        return f"<reader of the log {self._nodes.name}, at {self.position}>"

    # -- entries -------------------------------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[LogEntry]:
        async with aclosing(self.read_batches()) as batches:
            async for batch in batches:
                for entry in batch:
                    yield entry

    async def read_batches(self) -> AsyncGenerator[LogBatch, None]:
        """Read entries in batches, each in one block of memory, without an object for each entry.

        Raises :class:`LogTrimmedError` at a position that was trimmed, :class:`MissingLedgerError` at one whose ledger
        was deleted while the log still has it, :class:`LogFormatError` for bytes that are not a log entry, and what
        :class:`LedgerReader` raises.
        """
        while await self.locate():
            assert self.position is not None
            self._place = self._place_of(self.position.ledger)
            created = self._chain.created(self.position.ledger)
            try:
                reader = await self._opened(self.position.ledger)
                if not reader.is_closed and self._chain.index(reader.id) is not None and reader.id != self._chain.last:
                    raise LogFormatError(
                        f"ledger {reader.id} of the log {self._nodes.name} is open, though another follows it in the"
                        " list: its writer broke the protocol of logs, and the end of the ledger is unknown"
                    )
                async with aclosing(await self._entries(reader, self.position.entry)) as batches:
                    async for each in batches:
                        batch = LogBatch(reader.id, created, each)
                        self.position = batch.next
                        yield batch
            except _GONE as error:
                await self._leave()
                ledger = self.position.ledger
                if (await self._read_chain()).index(ledger) is None:
                    self._skip(error)
                    continue
                if self._is_elsewhere(ledger):
                    continue
                if not isinstance(error, NoSuchLedgerError):
                    raise
                self._skip_missing(ledger)
            await self._leave()
            if not await self._go_on():
                return

    def _is_elsewhere(self, ledger: int) -> bool:
        """Whether a ledger that was not found where it was is offloaded by now, according to the chain just read."""
        is_elsewhere = not offload_rules.is_lost(self._tried, self._chain.attempt_of(ledger))
        if is_elsewhere:
            self._left_bookies = ledger
        return is_elsewhere

    async def _entries(self, reader: LedgerReader | ObjectReader, first: int) -> AsyncGenerator[EntryBatch, None]:
        """Read a ledger to its end, or to the last entry that is confirmed now if the reader does not follow."""
        if (
            isinstance(reader, ObjectReader)
            or self._follow
            or reader.id != self._chain.last
            or reader.id != (await self._read_chain()).last
        ):
            return reader.tail_batches(first)
        last = await reader.read_last_add_confirmed()
        return reader.read_batches(first, max(first - 1, last))

    async def _opened(self, ledger: int) -> LedgerReader | ObjectReader:
        """Open a ledger: on the bookies as long as they have it, or else its object."""
        if self._ledger is None:
            self._tried = None
            attempt = self._chain.attempt_of(ledger)
            if attempt is None or ledger != self._left_bookies:
                try:
                    self._ledger = await self._store.open_ledger(
                        ledger, password=self._password, prefetch=self._prefetch, prefetch_bytes=self._prefetch_bytes
                    )
                    return self._ledger
                except NoSuchLedgerError:
                    if attempt is None:
                        raise
            assert attempt is not None
            self._tried = attempt
            self._ledger = await open_object(self._nodes, ledger, attempt, self._password)
        return self._ledger

    # -- moving between ledgers ----------------------------------------------------------------------------------------

    async def locate(self) -> bool:
        """Find the position to begin at. Returns False if the log ends without a ledger."""
        while self.position is None:
            chain = await self._read_chain()
            if chain.links:
                self.position = await self._first_position(chain)
            elif chain.sealed or not self._follow:
                return False
            else:
                await self._changed.wait()
        return True

    async def _first_position(self, chain: Chain) -> Position:
        """The position to begin at, in a log that has a ledger."""
        first, at = Position(chain.links[0].ledger, 0), self._at
        if isinstance(at, Position):
            if chain.index(at.ledger) is not None:
                return at
            self._at = EARLIEST
            if self._on_trimmed is OnTrimmed.SKIP:
                return first
            raise self._trimmed(at)
        if at is EARLIEST:
            return first
        if isinstance(at, End):
            place = len(chain.links) - 1
        else:
            place = rules.place_of_time(chain, milliseconds(at))
        ledger = chain.links[place].ledger
        try:
            reader = await self._opened(ledger)
            if isinstance(at, End):
                return Position(ledger, await reader.read_last_add_confirmed() + 1)
            return await self._at_time(chain, place, reader, milliseconds(at))
        except _GONE as error:
            await self._leave()
            found = await self._read_chain()
            if found.links and (found.index(ledger) is None or self._is_elsewhere(ledger)):
                return await self._first_position(found)
            if isinstance(error, NoSuchLedgerError):  # reading it will raise the error
                return Position(ledger, 0)
            raise

    async def _at_time(self, chain: Chain, place: int, reader: LedgerReader | ObjectReader, time: int) -> Position:
        """The first entry of this time or later. The chain has the ledger; a binary search finds the entry."""
        end = await reader.read_last_add_confirmed() + 1
        search = rules.Search(0, end)
        while (probe := search.probe) is not None:
            header = time_of(await reader.read_entry(probe))
            search = search.probed(rules.entry_time(header, chain.links[place].created), time)
        if search.low == end and place + 1 < len(chain.links):
            await self._leave()
            return Position(chain.links[place + 1].ledger, 0)
        return Position(reader.id, search.low)

    async def _go_on(self) -> bool:
        """Go to the next ledger, once there is one. Returns whether there is more to read."""
        assert self.position is not None
        ledger, place = self.position.ledger, self._place
        onward = rules.follows(self._chain, ledger)
        while onward is rules.Onward.WAIT:
            if not self._follow:
                return False
            onward = rules.follows(await self._read_chain(), ledger)
            if onward is rules.Onward.WAIT:
                await self._changed.wait()
        if onward is rules.Onward.END:
            return False
        if onward is not rules.Onward.TRIMMED:
            assert isinstance(onward, int)
            self.position = Position(onward, 0)
        elif self._chain.trimmed <= place + 1:  # it was trimmed after it was read to its end, and its successor was not
            self.position = Position(self._chain.links[place + 1 - self._chain.trimmed].ledger, 0)
        else:
            self._skip(None)
        return True

    def _place_of(self, ledger: int) -> int:
        """The place of a ledger among all ledgers that the log has ever had."""
        index = self._chain.index(ledger)
        return self._place if index is None else self._chain.trimmed + index

    async def _read_chain(self) -> Chain:
        changed = self._changed = asyncio.Event()
        self._chain, _ = await self._nodes.read(lambda _: changed.set())
        return self._chain

    def _skip(self, error: Exception | None) -> None:
        """The current ledger was trimmed: skip to the first ledger of the log, or raise."""
        assert self.position is not None
        if self._on_trimmed is OnTrimmed.RAISE:
            raise self._trimmed(self.position) from error
        self.position = Position(self._chain.links[0].ledger, 0)

    def _skip_missing(self, ledger: int) -> None:
        """The current ledger was deleted, but not trimmed: skip it with a warning, or raise."""
        if self._on_trimmed is OnTrimmed.RAISE:
            raise self._nodes.lost(self._chain, [ledger], "begin behind them, or skip what is gone") from None
        _log.warning("%s", self._nodes.lost(self._chain, [ledger], "they are skipped"))

    def _trimmed(self, at: Position) -> LogTrimmedError:
        return LogTrimmedError(
            f"ledger {at.ledger} is not in the log {self._nodes.name}: position {at} was trimmed, or was never there; "
            "begin elsewhere, or skip what was trimmed"
        )


def milliseconds(time: datetime | int) -> int:
    """A time in milliseconds since 1970. Raises :class:`OptionError` for a datetime without a time zone."""
    if not isinstance(time, datetime):
        return arguments.whole("the time", time, 0)
    if time.tzinfo is None:
        raise OptionError(f"{time.isoformat()} has no time zone: give one, as in datetime.now(timezone.utc)")
    return int(time.timestamp() * 1000)
