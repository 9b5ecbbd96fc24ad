"""Cursors: how far a consumer has read a log, stored by name in the metadata service.

A cursor has a position before which everything is acknowledged, and the entries after it that were acknowledged one by
one. In its bytes a number is a varint: seven bits a byte, lowest first.

=========  =======================================================================================
bytes      what
=========  =======================================================================================
1          the format: 1
number     the ledger of the position
number     the entry of the position
number     how many ledgers have entries that were acknowledged one by one, and for each:
number     its id
number     how many runs of entries it has, and for each:
number     entries between it and the run before it (from entry 0 for the first)
number     its length, less one
=========  =======================================================================================
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import msgspec

from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.errors import BadVersionError, NoSuchLedgerError
from fencepost.ledger.rules.metadata import end_of
from fencepost.ledger.wire.varint import varint
from fencepost.log.chain import EARLIEST, LARGEST, Chain, Position
from fencepost.log.errors import CursorFullError, LogFormatError, LogTrimmedError, NoSuchCursorError
from fencepost.log.metadata import LogNodes
from fencepost.log.reader import LogEntry, LogReader

FORMAT = 1
LIMIT = 10_000
"""The most runs of entries that are acknowledged one by one. They take up to some 60 KB."""

Runs = tuple[tuple[int, int], ...]
"""First and last entries of each run, ascending, with a gap between any two runs."""


class Acknowledged(msgspec.Struct, frozen=True):
    """The acknowledged entries: all before ``before``, and these runs of entries of later ledgers."""

    before: Position
    runs: dict[int, Runs] = {}

    def count(self) -> int:
        """The number of runs."""
        return sum(map(len, self.runs.values()))

    def has(self, position: Position) -> bool:
        """Return whether an entry was acknowledged one by one."""
        runs = self.runs.get(position.ledger, ())
        at = bisect_right(runs, (position.entry, LARGEST)) - 1
        return at >= 0 and position.entry <= runs[at][1]


def bytes_of(acknowledged: Acknowledged) -> bytes:
    """Encode the acknowledged entries."""
    before = acknowledged.before
    parts = [bytes((FORMAT,)), *map(varint, (before.ledger, before.entry, len(acknowledged.runs)))]
    for ledger, runs in acknowledged.runs.items():
        parts += (varint(ledger), varint(len(runs)))
        end = 0
        for first, last in runs:
            parts += (varint(first - end), varint(last - first))
            end = last + 1
    return b"".join(parts)


def acknowledged_of(data: bytes) -> Acknowledged:
    """Decode the acknowledged entries of a cursor. Raises :class:`LogFormatError` for other bytes."""
    if not data or data[0] != FORMAT:
        raise LogFormatError(f"a cursor has format {FORMAT}, not {data[0] if data else 'no bytes'}")
    numbers = _numbers(data)
    try:
        before = Position(numbers.pop(), numbers.pop())
        runs: dict[int, Runs] = {}
        for _ in range(numbers.pop()):
            ledger, end = numbers.pop(), 0
            some: list[tuple[int, int]] = []
            for _ in range(numbers.pop()):
                first = end + numbers.pop()
                last = first + numbers.pop()
                if last > LARGEST or (some and first == end):
                    raise LogFormatError("a cursor has invalid runs of entries")
                some.append((first, last))
                end = last + 1
            if ledger in runs or not some:
                raise LogFormatError("a cursor has a ledger twice, or one without entries")
            runs[ledger] = tuple(some)
    except IndexError:
        raise LogFormatError("a cursor ends too early") from None
    if numbers:
        raise LogFormatError(f"a cursor goes on after its end, with {len(numbers)} numbers")
    return Acknowledged(before, runs)


def _numbers(data: bytes) -> list[int]:
    """The numbers of a cursor, the last one first."""
    numbers: list[int] = []
    number = shift = 0
    for byte in data[1:]:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            if number > LARGEST:
                raise LogFormatError("a cursor has a number of more than 63 bits")
            numbers.append(number)
            number = shift = 0
        elif shift > 63:
            raise LogFormatError("a cursor has a number of more than 63 bits")
    if shift:
        raise LogFormatError("a cursor ends too early")
    return numbers[::-1]


# -- changes ----------------------------------------------------------------------------------------------------------


def with_one(known: Acknowledged, position: Position, chain: Chain) -> Acknowledged:
    """Acknowledge one more entry. A trimmed or acknowledged one changes nothing."""
    place = chain.place(position)
    known = in_chain(known, chain)
    before = chain.place(known.before)
    if place is None or before is None or place < before or known.has(position):
        return known
    runs = _with_run(known.runs.get(position.ledger, ()), position.entry, position.entry)
    return _advanced(Acknowledged(known.before, {**known.runs, position.ledger: runs}))


def with_all_to(known: Acknowledged, position: Position, chain: Chain) -> Acknowledged:
    """Acknowledge all entries up to and including one."""
    place = chain.place(position)
    known = in_chain(known, chain)
    before = chain.place(known.before)
    if place is None or before is None or place < before:
        return known
    return in_chain(msgspec.structs.replace(known, before=Position(position.ledger, position.entry + 1)), chain)


def in_chain(known: Acknowledged, chain: Chain) -> Acknowledged:
    """Drop runs of ledgers that were trimmed, and runs before the position."""
    if not chain.links:
        return known
    before = known.before
    index = chain.index(before.ledger)
    if index is None:
        index, before = 0, Position(chain.links[0].ledger, 0)
    later = {link.ledger for link in chain.links[index + 1 :]}
    runs = {ledger: some for ledger, some in known.runs.items() if ledger in later}
    here = tuple(
        (max(first, before.entry), last) for first, last in known.runs.get(before.ledger, ()) if last >= before.entry
    )
    if here:
        runs[before.ledger] = here
    return _advanced(Acknowledged(before, runs))


def _advanced(known: Acknowledged) -> Acknowledged:
    """Move the position over the run that begins at it, if there is one."""
    runs = known.runs.get(known.before.ledger, ())
    if not runs or runs[0][0] > known.before.entry:
        return known
    others = {ledger: some for ledger, some in known.runs.items() if ledger != known.before.ledger}
    if runs[1:]:
        others[known.before.ledger] = runs[1:]
    return Acknowledged(Position(known.before.ledger, runs[0][1] + 1), others)


def _with_run(runs: Runs, first: int, last: int) -> Runs:
    """Add a run of entries that are in none of the others."""
    at = bisect_right(runs, (first, last))
    start, stop = at, at
    if start and runs[start - 1][1] == first - 1:
        start -= 1
        first = runs[start][0]
    if stop < len(runs) and runs[stop][0] == last + 1:
        last = runs[stop][1]
        stop += 1
    return (*runs[:start], (first, last), *runs[stop:])


# -- the handle -------------------------------------------------------------------------------------------------------

_Change = Callable[[Acknowledged, Chain], Acknowledged]


class Cursor:
    """A named position of a reader in a log. Several processes may use it at once: their acknowledgements add up.

    Acknowledgements that are made at once go to the metadata service together.
    """

    def __init__(self, store: LedgerClient, nodes: LogNodes, name: str, reader: Callable[..., LogReader]) -> None:
        self.name = name
        """The name of the cursor."""
        self.limit = LIMIT
        """The most runs of entries that may be acknowledged one by one."""
        self._store = store
        self._reader = reader
        """Creates a reader of the log, see :meth:`.Log.reader`."""
        self._nodes = nodes
        self._known = Acknowledged(Position(0, 0))
        self._version = -1
        self._chain = Chain()
        self._waiting: list[tuple[_Change, asyncio.Future[None]]] = []
        self._writing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close: acknowledgements are stored when they return."""

    def __repr__(self) -> str:
        return f"<cursor {self.name} of the log {self._nodes.name}, at {self.position}>"

    @property
    def position(self) -> Position:
        """The first entry that may not be acknowledged. All entries before it are."""
        return self._known.before

    @property
    def acknowledged(self) -> dict[int, Runs]:
        """The entries after :attr:`position` that are acknowledged one by one: first and last entry of each run, by
        ledger.
        """
        return self._known.runs

    def is_acknowledged(self, position: Position) -> bool:
        """Return whether an entry is acknowledged, as far as this handle knows. Trimmed entries are."""
        place, before = self._chain.place(position), self._chain.place(self._known.before)
        return place is None or before is None or place < before or self._known.has(position)

    async def read(self, follow: bool = True, **options: Any) -> AsyncIterator[LogEntry]:
        """Read the entries that are not acknowledged, from :attr:`position` on. Takes the options of
        :meth:`.Log.reader`.
        """
        self._chain, _ = await self._nodes.read()
        # The log had no ledger yet.
        is_new = self._chain.index(self.position.ledger) is None and not self._chain.trimmed
        async with self._reader(EARLIEST if is_new else self.position, follow=follow, **options) as reader:
            async for entry in reader:
                if not self._known.has(entry.position):
                    yield entry

    async def acknowledge(self, *positions: Position) -> None:
        """Acknowledge entries one by one. They are stored when this returns.

        Raises :class:`CursorFullError` if there would be too many separate runs of acknowledged entries, and
        :class:`NoSuchCursorError` if the cursor was deleted.
        """

        def change(known: Acknowledged, chain: Chain) -> Acknowledged:
            for position in positions:
                known = with_one(known, position, chain)
            return known

        await self._commit(change, positions)

    async def acknowledge_up_to(self, position: Position) -> None:
        """Acknowledge an entry and all before it. Raises as :meth:`acknowledge`."""
        await self._commit(lambda known, chain: with_all_to(known, position, chain), (position,))

    async def move(self, position: Position) -> None:
        """Move to a position, forwards or back: everything before it is acknowledged, and nothing else.

        Raises :class:`LogTrimmedError` if its ledger is not in the log, and as :meth:`acknowledge`.
        """

        def change(known: Acknowledged, chain: Chain) -> Acknowledged:
            if chain.index(position.ledger) is None:
                raise LogTrimmedError(
                    f"ledger {position.ledger} is not in the log {self._nodes.name}: a cursor cannot be there"
                )
            return Acknowledged(position)

        await self._commit(change, (position,))

    # -- storing it ----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read what is stored."""
        node = await self._nodes.read_cursor(self.name)
        if node is None:
            raise NoSuchCursorError(f"the log {self._nodes.name} has no cursor {self.name}: it was deleted")
        self._known, self._version = acknowledged_of(node.data), node.version

    async def _see(self, positions: tuple[Position, ...] = ()) -> None:
        """Read the chain again unless it has these positions."""
        if not self._chain.links or any(self._chain.index(each.ledger) is None for each in positions):
            self._chain, _ = await self._nodes.read()

    async def _commit(self, change: _Change, positions: tuple[Position, ...]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, done))
        async with self._writing:
            if not done.done():
                await self._see(positions)
                waiting, self._waiting = self._waiting, []
                try:
                    await self._write(waiting)
                except asyncio.CancelledError:  # a cancelled caller does not stop the others
                    self._waiting = [
                        each for each in waiting if not each[1].done() and each[1] is not done
                    ] + self._waiting
                    raise
                except Exception as error:
                    for _, future in waiting:
                        if not future.done():
                            future.set_exception(error)
        await done

    async def _write(self, waiting: list[tuple[_Change, asyncio.Future[None]]]) -> None:
        """Write the waiting changes, and complete their futures."""
        while True:
            known = self._known
            for change, done in waiting:
                if done.done():
                    continue
                try:
                    known = self._within_limit(change(known, self._chain))
                except (CursorFullError, LogTrimmedError) as error:
                    done.set_exception(error)
            known = await self._through_ends(known)
            if known != self._known:
                try:
                    self._version = await self._nodes.write_cursor(
                        self.name, bytes_of(known), self._version, self._chain
                    )
                except BadVersionError:  # another process acknowledged something
                    await self.load()
                    continue
                self._known = known
            for _, done in waiting:
                if not done.done():
                    done.set_result(None)
            return

    def _within_limit(self, known: Acknowledged) -> Acknowledged:
        if known.count() > self.limit:
            raise CursorFullError(
                f"the cursor {self.name} of the log {self._nodes.name} would have {known.count():,} runs of entries"
                f" that are acknowledged one by one, and {self.limit:,} are taken: acknowledge those before them"
            )
        return known

    async def _through_ends(self, known: Acknowledged) -> Acknowledged:
        """Move the position to the next ledger where it is at the end of one, if entries of later ledgers are
        acknowledged one by one.
        """
        while known.runs and known.before.ledger not in known.runs and known.before.ledger != self._chain.last:
            try:
                end = end_of(await self._store.ledger_metadata(known.before.ledger))
            except NoSuchLedgerError:
                return known
            index = self._chain.index(known.before.ledger)
            if end is None or index is None or known.before.entry <= end:
                return known
            known = in_chain(Acknowledged(Position(self._chain.links[index + 1].ledger, 0), known.runs), self._chain)
        return known
