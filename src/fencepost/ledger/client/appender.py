"""Appends entries for the writers of ledgers and of logs: limits entries in flight, batches them, and completes each
caller's appends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, Protocol, Self, TypeVar

from fencepost.errors import OptionError
from fencepost.ledger.client.driver import Driver
from fencepost.ledger.errors import IllegalOperationError, StoreError

Data = bytes | bytearray | memoryview
Location = TypeVar("Location")
"""What identifies an entry: its id in a ledger, or its position in a log."""

OVERHEAD = 1024
"""The most bytes that a frame has besides the data of an entry."""

_SHARE = 8
"""A caller that appends many and waits for room waits for this part of all room, or for as much as it needs. Then it
takes all room that there is. What is sent together costs less.
"""

_AT_ONCE = 1024
"""The most entries taken at once from a caller that appends many."""


class Appender(Generic[Location]):
    """The common part of the writers of a ledger and of a log.

    Appends are confirmed in order. At most ``in_flight`` entries and ``in_flight_bytes`` bytes are in flight; beyond
    that, callers wait. Entries appended in one turn of the loop, or in one call, are sent together.
    """

    def __init__(self, driver: Driver, in_flight: int, in_flight_bytes: int) -> None:
        self._driver = driver
        self._largest = driver.settings.frame_limit - OVERHEAD
        self._in_flight_limit = in_flight
        self._in_flight_bytes_limit = in_flight_bytes
        self._in_flight = self._in_flight_bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int, int]] = deque()
        """Callers waiting for room, each with the bytes and the number of its entries."""
        self._entries: list[bytes] = []
        """Entries appended in this turn of the loop."""
        self._sinks: list[Any] = []
        """For each of these entries: the future, or the :class:`AppendGroup`, that takes its outcome."""
        self._entries_size = 0
        self._is_pushing = False
        self._batches: deque[Batch] = deque()
        """Unconfirmed batches, in order."""
        self._new_future = driver.loop.create_future

    # -- what a writer does in its own way -----------------------------------------------------------------------------

    def _place(self, ledger: int, entry: int) -> Location:
        """The caller's name for an entry of a ledger."""
        raise NotImplementedError

    def _refusal(self) -> StoreError | None:
        """Why appends are refused, or None."""
        raise NotImplementedError

    def _send(self, batch: Batch, entries: list[bytes]) -> None:
        """Send the entries of a batch."""
        raise NotImplementedError

    async def close(self) -> Any:
        """Wait for the appends in flight, then stop."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            with contextlib.suppress(StoreError):  # the first error says more
                await self.close()

    @property
    def in_flight(self) -> int:
        """The number of entries not yet confirmed."""
        return self._in_flight

    # -- appending -----------------------------------------------------------------------------------------------------

    async def append_many(self, entries: Iterable[Data] | AsyncIterable[Data]) -> list[Location]:
        """Append entries one after another, with many in flight at once. Gives what ``append`` gives for each, once all
        are confirmed.

        Raises as ``append`` does, at the first that fails. All entries before that one are confirmed.
        """
        group = self.group()
        if isinstance(entries, AsyncIterable):
            async for data in entries:
                if not await self._send_one_of(group, copied(data)):
                    break
        else:
            drawn = map(copied, entries)
            goes_on = True
            while goes_on and (some := [*islice(drawn, 1)]):
                await self._wait_for_turn(len(some[0]))
                try:
                    some.extend(islice(drawn, self._worth_drawing(group) - 1))
                finally:  # entries drawn before an error are still sent
                    goes_on = await self.send_some_of(group, some, is_turn=True)
        await group.over()
        return group.places()

    def group(self) -> AppendGroup[Location]:
        """A collector for appends that are waited for together."""
        return AppendGroup(self)

    async def _send_one_of(self, group: AppendGroup[Location], entry: bytes) -> bool:
        """Send one entry, unless an earlier one has failed. Gives whether it was sent."""
        size = len(entry)
        if not self._try_reserve(size):
            await self._wait_for_room(size)
        if group.error is not None:
            self._release(1, size)
            return False
        group.missing += 1
        self._put(entry, size, group)
        return True

    def _worth_drawing(self, group: AppendGroup[Location]) -> int:
        """How many entries to draw at once: about as many as can be sent now."""
        free, free_bytes = self._in_flight_limit - self._in_flight, self._in_flight_bytes_limit - self._in_flight_bytes
        return max(1, min(free, _AT_ONCE, free_bytes // max(1, group.mean)))

    async def send_some_of(self, group: AppendGroup[Location], entries: list[bytes], is_turn: bool = False) -> bool:
        """Send entries as room becomes free, unless an earlier one has failed. Gives whether none has failed.
        ``is_turn``: it is this caller's turn, see :meth:`_wait_for_turn`.
        """
        at, sizes = 0, [*map(len, entries)]
        group.mean = sum(sizes) // max(1, len(sizes))
        while at < len(entries):
            stop, size = at + 1, sizes[at]
            if is_turn:
                self._reserve(size)
            elif not self._try_reserve(size):
                stop, more = self._fitting(sizes, stop, self._share - 1, self._in_flight_bytes_limit // _SHARE - size)
                size += more
                await self._wait_for_room(size, stop - at)
            is_turn = False
            if group.error is not None:
                self._release(stop - at, size)
                return False
            free = self._in_flight_bytes_limit - self._in_flight_bytes
            end, more = self._fitting(sizes, stop, self._in_flight_limit - self._in_flight, free)
            self._reserve(more, end - stop)
            group.missing += end - at
            self._push()
            self._send_batch(entries[at:end], size + more, group)
            at = end
            self._admit_waiting()
        return group.error is None

    def _fitting(self, sizes: list[int], at: int, entries: int, free: int) -> tuple[int, int]:
        """The index of the first entry from ``at`` that does not fit, and the total size of those before it. There is
        room for ``entries``, of ``free`` bytes.
        """
        some = sizes[at : at + max(0, entries)]
        total = sum(some)
        if total <= free and max(some, default=0) <= self._largest:
            return at + len(some), total
        total = 0
        for size in some:
            if total + size > free or size > self._largest:
                break
            total += size
            at += 1
        return at, total

    def _put_one(self, entry: bytes) -> asyncio.Future[Location]:
        """Append an entry whose room is reserved. The future gives its place once it is confirmed."""
        future: asyncio.Future[Location] = self._new_future()
        self._put(entry, len(entry), future)
        return future

    def _put(self, entry: bytes, size: int, sink: Any) -> None:
        """Append an entry whose room is reserved. It is sent at once if nothing else is in flight, otherwise with all
        entries of this turn of the loop.
        """
        self._entries.append(entry)
        self._sinks.append(sink)
        self._entries_size += size
        if self._in_flight == 1:
            self._push()
        elif not self._is_pushing:
            self._is_pushing = True
            self._driver.loop.call_soon(self._push)

    def _push(self) -> None:
        """Send the entries appended one by one."""
        self._is_pushing = False
        if self._entries:
            entries, size, sinks = self._entries, self._entries_size, self._sinks
            self._entries, self._sinks, self._entries_size = [], [], 0
            self._send_batch(entries, size, sinks)

    def _send_batch(self, entries: list[bytes], size: int, sinks: list[Any] | Sink) -> None:
        """Send entries whose room is reserved."""
        batch, refusal = Batch(len(entries), size, sinks), self._refusal()
        if refusal is None:
            self._batches.append(batch)
            self._send(batch, entries)
        else:
            self._fail_batch(batch, refusal)

    # -- what comes of them --------------------------------------------------------------------------------------------

    def _confirm(self, ledger: int, entry: int, count: int, size: int) -> None:
        """The next ``count`` entries, of ``size`` bytes, are confirmed: complete their appends in order."""
        for batch, number in self._next(count, size):
            batch.confirm(self, ledger, entry, number)
            entry += number
        self._admit_waiting()

    def _fail(self, count: int, size: int, error: StoreError) -> None:
        """The next ``count`` entries, of ``size`` bytes, will not be confirmed."""
        for batch, number in self._next(count, size):
            batch.fail(error, number)
        self._admit_waiting()

    def _next(self, count: int, size: int) -> Iterator[tuple[Batch, int]]:
        """Remove the next ``count`` entries, of ``size`` bytes. Gives each batch with the number of its entries among
        them.
        """
        self._in_flight -= count
        self._in_flight_bytes -= size
        while count and self._batches:
            batch = self._batches[0]
            number, some = (batch.left, batch.size) if batch.left <= count else (count, size)
            batch.size -= some
            if number == batch.left:
                self._batches.popleft()
            count, size = count - number, size - some
            yield batch, number

    def _fail_batch(self, batch: Batch, error: StoreError) -> None:
        """Fail the rest of a batch."""
        left = batch.left
        batch.fail(error, left)
        self._release(left, batch.size)

    def _fail_all(self, error: StoreError) -> None:
        """Fail everything in flight."""
        batches, self._batches = self._batches, deque()
        for batch in batches:
            self._fail_batch(batch, error)

    # -- room ----------------------------------------------------------------------------------------------------------

    @property
    def _share(self) -> int:
        """The most entries for which a caller waits that appends many."""
        return max(1, self._in_flight_limit // _SHARE)

    def _try_reserve(self, size: int) -> bool:
        """Reserve room for an entry. False if it has to wait in the queue. Raises if the entry is too large."""
        if not self._may_go(size):
            return False
        self._in_flight += 1
        self._in_flight_bytes += size
        return True

    def _may_go(self, size: int) -> bool:
        """Whether an entry need not wait. Raises if it is too large."""
        self._driver.must_work()
        if size > self._largest:
            raise IllegalOperationError(f"an entry of {size:,} bytes is too large: at most {self._largest:,} are taken")
        return not self._waiting and self._fits(size)

    def _fits(self, size: int, entries: int = 1) -> bool:
        """Whether there is room for entries of ``size`` bytes. An entry over the limit fits if it is alone."""
        in_flight = self._in_flight
        if in_flight + entries > self._in_flight_limit:
            return False
        return self._in_flight_bytes + size <= self._in_flight_bytes_limit or not in_flight

    def _reserve(self, size: int, entries: int = 1) -> None:
        self._in_flight += entries
        self._in_flight_bytes += size

    def _release(self, entries: int, size: int) -> None:
        self._in_flight -= entries
        self._in_flight_bytes -= size
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        """Give free room to waiting callers. One that appends many may take all of the rest: then the next one waits
        until it has taken it.
        """
        while self._waiting and self._fits(self._waiting[0][1], self._waiting[0][2]):
            turn, size, entries = self._waiting.popleft()
            if not turn.done():
                self._reserve(size, entries)
                turn.set_result(None)
                if 1 < self._share <= entries:
                    break

    async def _wait_for_turn(self, size: int) -> None:
        """Wait until a caller that appends many, first an entry of ``size`` bytes, may send some. It does so at once,
        so their room is not reserved. Raises if the entry is too large.
        """
        if not self._may_go(size):
            entries, total = self._share, max(size, self._in_flight_bytes_limit // _SHARE)
            await self._wait_for_room(total, entries)
            self._reserve(-total, -entries)

    async def _wait_for_room(self, size: int, entries: int = 1) -> None:
        """Wait in the queue until room is reserved for some entries, of ``size`` bytes together."""
        turn: asyncio.Future[None] = self._driver.loop.create_future()
        self._waiting.append((turn, size, entries))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(entries, size)
            raise


def copied(data: Data) -> bytes:
    """Data as bytes: copied if they might change. Raises :class:`fencepost.OptionError` for anything but bytes."""
    if type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise OptionError(f"an entry is of type {type(data).__name__}: give bytes") from None


class Sink(Protocol):
    """Receives the outcome of entries appended together. It must not call their writer meanwhile."""

    def confirm(self, ledger: int, first: int, number: int) -> None:
        """The next ``number`` entries are confirmed, in order, with ids from ``first`` in a ledger."""

    def fail(self, error: StoreError, number: int) -> None:
        """The next ``number`` entries will not be confirmed by this writer."""


class Batch:
    """Entries appended together. ``left`` of them, of ``size`` bytes, are not confirmed. ``sinks``: one sink for all,
    or a future or a :class:`AppendGroup` for each entry.
    """

    __slots__ = ("left", "sinks", "size", "token")

    def __init__(self, left: int, size: int, sinks: list[Any] | Sink) -> None:
        self.left = left
        self.size = size
        self.sinks = sinks
        self.token = 0
        """The number of the call that sent them, if there is one."""

    def confirm(self, appender: Appender[Any], ledger: int, entry: int, number: int) -> None:
        """The next entries are confirmed, with ids from ``entry``."""
        sinks = self.sinks
        if not isinstance(sinks, list):
            self.left -= number
            sinks.confirm(ledger, entry, number)
            return
        for sink in self._of_next(sinks, number):
            if type(sink) is AppendGroup:
                sink.confirm(ledger, entry, 1)
            elif not sink.done():
                sink.set_result(appender._place(ledger, entry))
            entry += 1

    def fail(self, error: StoreError, number: int) -> None:
        """The next entries will not be confirmed."""
        sinks = self.sinks
        if not isinstance(sinks, list):
            self.left -= number
            sinks.fail(error, number)
            return
        for sink in self._of_next(sinks, number):
            if type(sink) is AppendGroup:
                sink.fail(error, 1)
            elif not sink.done():
                sink.set_exception(error)

    def _of_next(self, sinks: list[Any], number: int) -> list[Any]:
        """The sinks of the next entries."""
        start = len(sinks) - self.left
        self.left -= number
        return sinks if number == len(sinks) else sinks[start : start + number]


class AppendGroup(Generic[Location]):
    """A sink for appends that are waited for together. ``missing``: how many are not confirmed yet. ``mean``: the
    recent mean size of an entry, in bytes.
    """

    def __init__(self, appender: Appender[Location]) -> None:
        self.missing = 0
        self.mean = 1024
        self.error: StoreError | None = None
        self.confirmed: list[tuple[int, range]] = []
        """The confirmed entries, by ledger."""
        self._appender = appender
        self._over: asyncio.Future[None] | None = None

    def confirm(self, ledger: int, first: int, number: int) -> None:
        """``number`` appends are confirmed, with ids from ``first``."""
        last, entries = self.confirmed[-1] if self.confirmed else (-1, range(0))
        if last == ledger and entries.stop == first:
            self.confirmed[-1] = ledger, range(entries.start, first + number)
        else:
            self.confirmed.append((ledger, range(first, first + number)))
        self._fewer(number)

    def fail(self, error: StoreError, number: int) -> None:
        """``number`` appends have failed, and all later ones will."""
        self.error = self.error or error
        self._fewer(number)

    def _fewer(self, number: int) -> None:
        self.missing -= number
        if not self.missing and self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def over(self) -> None:
        """Wait until no append is missing. Raises if one has failed."""
        if self.missing:
            self._over = self._appender._driver.loop.create_future()
            await self._over
        if self.error is not None:
            raise self.error

    def places(self) -> list[Location]:
        """The callers' names for the confirmed entries."""
        place = self._appender._place
        return [place(ledger, entry) for ledger, entries in self.confirmed for entry in entries]

    @property
    def ends(self) -> tuple[Location, Location] | None:
        """The first and the last confirmed entry; None if there are none."""
        if not self.confirmed:
            return None
        (first, entries), (last, others) = self.confirmed[0], self.confirmed[-1]
        return self._appender._place(first, entries[0]), self._appender._place(last, others[-1])
