"""The handle of a ledger's writer: it appends entries and closes the ledger."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterable, Iterable, Sequence
from itertools import chain, islice
from typing import Any, Protocol, Self

from fencepost.errors import OptionError
from fencepost.store.client.calls import error_of
from fencepost.store.client.driver import Actor, Driver
from fencepost.store.client.loops import LOOPS, RowLoops
from fencepost.store.errors import IllegalOperationError, LedgerClosedError, StoreError, UnauthorizedAccessError
from fencepost.store.messages import NO_ENTRY_YET, ReadEntry
from fencepost.store.roles.interface import Confirmed, Error, Result
from fencepost.store.roles.writer import Writer, WriterSettings
from fencepost.store.rules.codes import Code
from fencepost.store.rules.metadata import LedgerMetadata, current_ensemble

Data = bytes | bytearray | memoryview

OVERHEAD = 1024
"""Bytes of a frame besides the data of an entry, at most."""

ASKING = 1.0
"""Seconds that a bookie is waited for that is asked about a new ledger, at most."""

_AT_ONCE = 1024
"""Entries that are taken at once from a caller that appends many."""


class LedgerWriter:
    """A ledger that this client has created, and is the only one to append to.

    Appends are confirmed in their order. At most ``in_flight`` entries and ``in_flight_bytes`` bytes are under way; a
    caller that appends more waits. Use it as a context manager, or :meth:`close` it: a ledger that nobody closes is
    recovered by the next who opens it so.
    """

    def __init__(self, driver: Driver, ledger: int, settings: WriterSettings, in_flight_bytes: int) -> None:
        self.id = ledger
        """The ledger."""
        self._driver = driver
        self._role = Writer(ledger, settings, loops=RowLoops(LOOPS), traces=driver.trace is not None)
        self._in_flight_limit = settings.in_flight_limit
        self._in_flight_bytes_limit = in_flight_bytes
        self._largest = driver.settings.frame_limit - OVERHEAD
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        """The callers that wait for room, and the sizes of their entries."""
        self._entries: list[bytes] = []
        """The entries that were appended in this turn of the loop."""
        self._sinks: list[Any] = []
        """For each of these entries the future, or the appends waited for together, that takes its outcome."""
        self._entries_size = 0
        self._is_pushing = False
        self._batches: dict[int, _Batch] = {}
        """Entries that are not confirmed, in their order, by the numbers of the calls that they went by."""
        self._last_confirmed = -1
        """The last entry that was reported as confirmed."""
        self._confirmed_length = 0
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._error: StoreError | None = None
        """Why the writer can not go on, though its ledger is not closed."""
        self._new_future = driver.loop.create_future
        self._actor = Actor(driver, self._role, self._result, self._failed, self._confirmed)

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata of the ledger, as this writer last wrote or read them."""
        return self._role.view.known()

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that is confirmed, together with all before it; -1 if none is."""
        return self._role.lac

    @property
    def length(self) -> int:
        """Bytes of data that were appended, confirmed or not."""
        return self._role.length + self._entries_size

    @property
    def in_flight(self) -> int:
        """Entries that are not confirmed yet."""
        return self._in_flight

    def __repr__(self) -> str:
        return f"<ledger {self.id}, last add confirmed {self.last_add_confirmed}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            with contextlib.suppress(StoreError):  # the error that is under way says more
                await self.close()

    # -- appending -----------------------------------------------------------------------------------------------------

    async def append(self, data: Data) -> int:
        """Append an entry; its id, once it is confirmed: an ack quorum of bookies has it, and all entries before it.

        Raises :class:`LedgerFencedError`, :class:`NotEnoughBookiesError`, :class:`WriteError` or another
        :class:`StoreError`; the entry may be in the ledger or not then, and likewise when the append is cancelled while
        it waits.
        """
        self._driver.must_work()
        if type(data) is not bytes:
            data = copied(data)
        size = len(data)
        if not self._has_room(size):
            await self._room(size)
        else:
            self._reserve(size)
        future: asyncio.Future[int] = self._new_future()
        self._put(data, size, future)
        return await future

    def submit(self, data: Data) -> asyncio.Future[int]:
        """Append an entry without waiting for room; the future has what :meth:`append` gives or raises.

        It is for whoever limits by other means what is under way, as all of it is in memory.
        """
        self._driver.must_work()
        if type(data) is not bytes:
            data = copied(data)
        size = len(data)
        self._reserve(size)
        future: asyncio.Future[int] = self._new_future()
        self._put(data, size, future)
        return future

    def submit_many(self, entries: list[bytes], sink: Sink) -> None:
        """Append entries without waiting for room; ``sink`` hears what comes of each, for which see :class:`Sink`.

        It is for whoever limits by other means what is under way. Raises :class:`IllegalOperationError` if one is too
        large; none is sent then.
        """
        if not entries:
            return
        sizes = [*map(len, entries)]
        if max(sizes) > self._largest:
            raise self._too_large(max(sizes))
        size = sum(sizes)
        self._in_flight += len(entries)
        self._in_flight_bytes += size
        self._push()
        self._give(_Batch(entries, size, sink))

    async def append_many(self, entries: Iterable[Data] | AsyncIterable[Data]) -> list[int]:
        """Append entries one after another, many under way at once; their ids, once all are confirmed.

        Raises as :meth:`append`, at the first that fails. Those up to :attr:`last_add_confirmed` are in the ledger
        then.
        """
        several = self.several()
        if isinstance(entries, AsyncIterable):
            async for data in entries:
                if not await self._send_one_of(several, data):
                    break
        else:
            drawn = (data if type(data) is bytes else copied(data) for data in entries)
            goes_on = True
            while goes_on:
                some: list[bytes] = []
                try:
                    some.extend(islice(drawn, self._worth_drawing(several)))
                finally:  # what came before an error is sent
                    goes_on = await self.send_some_of(several, some) and bool(some)
        return await several.ids()

    def several(self) -> _Several:
        """For appends that are waited for together."""
        return _Several(self._driver.loop)

    async def _send_one_of(self, several: _Several, data: Data) -> bool:
        """Send one of several entries, unless an earlier one has failed."""
        self._driver.must_work()
        if type(data) is not bytes:
            data = copied(data)
        size = len(data)
        if not self._has_room(size):
            await self._room(size)
        else:
            self._reserve(size)
        if several.error is not None:
            self._release(1, size)
            return False
        several.missing += 1
        self._put(data, size, several)
        return True

    def _worth_drawing(self, several: _Several) -> int:
        """How many of several entries to take at once: not many more than can be sent now."""
        free, free_bytes = self._in_flight_limit - self._in_flight, self._in_flight_bytes_limit - self._in_flight_bytes
        return max(1, min(free, _AT_ONCE, free_bytes // max(1, several.mean)))

    async def send_some_of(self, several: _Several, entries: list[bytes]) -> bool:
        """Send some of several entries as there is room for them, unless an earlier one has failed."""
        self._driver.must_work()
        at, sizes = 0, [*map(len, entries)]
        several.mean = sum(sizes) // max(1, len(sizes))
        while at < len(entries):
            size = sizes[at]
            if size > self._largest:
                raise self._too_large(size)
            if not self._has_room(size):
                await self._room(size)
            else:
                self._reserve(size)
            if several.error is not None:
                self._release(1, size)
                return False
            stop, more = (at + 1, 0) if self._waiting else self._fitting(sizes, at + 1)
            self._in_flight += stop - at - 1
            self._in_flight_bytes += more
            several.missing += stop - at
            self._push()
            self._give(_Batch(entries[at:stop], size + more, several))
            at = stop
        return several.error is None

    def _fitting(self, sizes: list[int], at: int) -> tuple[int, int]:
        """Up to where entries of these sizes fit besides what is under way, and their bytes."""
        some = sizes[at : at + self._in_flight_limit - self._in_flight]
        free, total = self._in_flight_bytes_limit - self._in_flight_bytes, sum(some)
        if total <= free and max(some, default=0) <= self._largest:
            return at + len(some), total
        total = 0
        for size in some:
            if total + size > free or size > self._largest:
                break
            total += size
            at += 1
        return at, total

    def _put(self, data: bytes, size: int, sink: Any) -> None:
        """Append an entry for which room is reserved, together with all that are appended in this turn of the loop."""
        if size > self._largest:
            self._release(1, size)
            raise self._too_large(size)
        if self._actor.is_closed:
            self._release(1, size)
            raise self._closed()
        self._entries.append(data)
        self._sinks.append(sink)
        self._entries_size += size
        if self._in_flight == 1:  # there is nothing to wait for
            self._push()
        elif not self._is_pushing:
            self._is_pushing = True
            self._driver.loop.call_soon(self._push)

    def _too_large(self, size: int) -> IllegalOperationError:
        return IllegalOperationError(f"an entry of {size:,} bytes is too large: at most {self._largest:,} are taken")

    def _push(self) -> None:
        """Send what has been appended one by one."""
        self._is_pushing = False
        if self._entries:
            batch = _Batch(self._entries, self._entries_size, self._sinks)
            self._entries, self._sinks, self._entries_size = [], [], 0
            self._give(batch)

    def _give(self, batch: _Batch) -> None:
        """Have entries sent for which room is reserved."""
        actor = self._actor
        if actor.is_closed:
            self._give_back(batch, self._closed())
            return
        self._batches[actor.calls + 1] = batch  # the role may answer before its call returns
        entries, batch.entries = batch.entries, ()
        actor.append(entries)

    def _confirmed(self, confirmed: Confirmed) -> None:
        """Entries are confirmed: complete the appends, in their order."""
        entry_id, self._last_confirmed = self._last_confirmed + 1, confirmed.entry_id
        size, self._confirmed_length = confirmed.length - self._confirmed_length, confirmed.length
        missing, left = confirmed.entry_id - entry_id + 1, size
        self._in_flight -= missing
        self._in_flight_bytes -= size
        over = []
        for token, batch in self._batches.items():
            if not missing:
                break
            number, some = (batch.left, batch.size) if batch.left <= missing else (missing, left)
            batch.confirm(entry_id, number, some)
            entry_id, missing, left = entry_id + number, missing - number, left - some
            if not batch.left:
                over.append(token)
        for token in over:
            del self._batches[token]
        self._let_in()

    def _give_back(self, batch: _Batch, error: StoreError) -> None:
        """The rest of the entries will not be confirmed."""
        batch.fail(error)
        self._release(batch.left, batch.size)

    # -- room ----------------------------------------------------------------------------------------------------------

    def _has_room(self, size: int) -> bool:
        """Whether an entry may be sent before all who wait. A large one may if it is alone."""
        return not self._waiting and self._fits(size)

    def _fits(self, size: int) -> bool:
        in_flight = self._in_flight
        if in_flight >= self._in_flight_limit:
            return False
        return self._in_flight_bytes + size <= self._in_flight_bytes_limit or not in_flight

    def _reserve(self, size: int) -> None:
        self._in_flight += 1
        self._in_flight_bytes += size

    def _release(self, entries: int, size: int) -> None:
        self._in_flight -= entries
        self._in_flight_bytes -= size
        self._let_in()

    def _let_in(self) -> None:
        """Give room to those who wait for it, as far as there is some."""
        while self._waiting and self._fits(self._waiting[0][1]):
            turn, wanted = self._waiting.popleft()
            if not turn.done():
                self._reserve(wanted)
                turn.set_result(None)

    async def _room(self, size: int) -> None:
        """Wait in line until room is reserved."""
        turn: asyncio.Future[None] = self._driver.loop.create_future()
        self._waiting.append((turn, size))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(1, size)
            raise

    # -- force and close -----------------------------------------------------------------------------------------------

    async def force(self) -> int:
        """Make all that is confirmed durable on every bookie of the ensemble, and confirm it to readers; gives the last
        add confirmed.

        It is needed only where a ledger was created with ``deferred_sync``. Raises :class:`WriteError`.
        """
        return int(await self._ask("force"))

    async def close(self) -> int:
        """Wait for the appends that are under way, and close the ledger; gives its last entry, -1 if it is empty.

        After :class:`NotEnoughBookiesError` or :class:`WriteError` the ledger is closed at its last add confirmed.
        Raises :class:`LedgerFencedError` if somebody else recovers the ledger: it ends where that ends it. It can be
        called again.
        """
        if not self._actor.is_closed or self._error is not None:
            await self._ask("close")
            self._actor.close()
        return self.last_add_confirmed

    def release(self, error: StoreError | None = None) -> None:
        """Write no more, and leave the ledger as it is: another client may adopt or recover it. With an ``error`` the
        appends that are under way fail with it.
        """
        if error is None:
            self._actor.close()
        else:
            self._actor.fail(error)

    async def begin(self, operation: str) -> None:
        """``create`` the ledger, or ``adopt`` it: :class:`fencepost.store.client.store.Store` does it once."""
        try:
            await self._ask(operation)
        except BaseException:
            self._actor.close()
            raise

    async def known_to(self) -> str | None:
        """A bookie of the new ledger that knows its id already, if one says so. None is waited for longer than
        :data:`ASKING`. They are asked for its last entry, which changes nothing: when Java's bookies are asked for the
        LAC of a ledger that they do not know, they fail readers who come after its first entry.
        """
        ask, request = self._driver.ask, ReadEntry(self.id, NO_ENTRY_YET)
        asked = {asyncio.ensure_future(ask(each, request)): each for each in current_ensemble(self.metadata)}
        answered, _ = await asyncio.wait(asked, timeout=ASKING)
        codes = {asked[each]: response.code for each in answered if (response := each.result()) is not None}
        return next((bookie for bookie, code in codes.items() if code in (Code.OK, Code.NO_ENTRY)), None)

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def _ask(self, operation: str) -> Any:
        self._driver.must_work()
        self._push()
        if self._actor.is_closed:
            raise self._closed()
        future: asyncio.Future[Any] = self._new_future()
        self._calls[self._actor.calls + 1] = future  # the role may answer before its call returns
        self._actor.call(operation)
        return await self._driver.patiently(future)

    def _closed(self) -> StoreError:
        return self._error or LedgerClosedError(f"ledger {self.id} is closed")

    def _result(self, result: Result) -> None:
        batch = self._batches.pop(result.token, None)
        if batch is not None:
            is_strange = result.error is Error.UNAUTHORIZED  # its password is that in the metadata
            self._give_back(batch, strange(self.id) if is_strange else error_of(result.error, self.id))
            return
        future = self._calls.pop(result.token)
        if future.done():
            return
        if result.error:
            future.set_exception(error_of(result.error, self.id))
        else:
            future.set_result(result.value)

    def _failed(self, error: StoreError) -> None:
        """Nothing comes of the calls that are under way, and nobody who waits for room gets it."""
        self._error = error
        self._push()
        calls, self._calls = self._calls, {}
        batches, self._batches = self._batches, {}
        for batch in batches.values():
            self._give_back(batch, error)  # the owner of the room gets the error when it is used
        for future in calls.values():
            if not future.done():
                future.set_exception(error)


REFUSED = (
    "bookies refuse entries of ledger {ledger}: one is larger than they take (nettyMaxFrameSizeBytes), or they know the"
    " ledger by another key than its writer's"
)


def strange(ledger: int, bookie: str = "", then: str = "create one with another id") -> UnauthorizedAccessError:
    """The error that a bookie knew the id of a new ledger before it was created, or that bookies refuse its writer's
    entries.
    """
    return UnauthorizedAccessError(
        f"{f'bookie {bookie} knows ledger {ledger} already' if bookie else REFUSED.format(ledger=ledger)}:"
        " somebody wrote to this id or fenced it before the ledger was created, or had a ledger of this id that was"
        f" deleted; {then}"
    )


def copied(data: Data) -> bytes:
    """Data that may change are copied when they are drawn. Raises :class:`fencepost.OptionError` for what is no
    bytes.
    """
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise OptionError(f"an entry is of type {type(data).__name__}: give bytes") from None


class Sink(Protocol):
    """Hears what comes of entries that were appended together. It does nothing with the ledger meanwhile."""

    def confirm(self, first: int, number: int) -> None:
        """So many of them are confirmed, the next ones in their order, with ids from ``first`` on."""

    def fail(self, error: StoreError, number: int) -> None:
        """The last so many of them will not be confirmed by this writer."""


class _Batch:
    """Entries that were appended together: how many are not confirmed, with how many bytes, and who is notified of
    them."""

    __slots__ = ("confirmed", "entries", "left", "sinks", "size")

    def __init__(self, entries: Sequence[bytes], size: int, sinks: list[Any] | Sink) -> None:
        self.entries = entries
        self.left = len(entries)
        self.size = size
        self.sinks = sinks
        self.confirmed = 0

    def confirm(self, entry_id: int, number: int, size: int) -> None:
        """The next entries are confirmed, with ids from this one on."""
        self.left -= number
        self.size -= size
        sinks, start = self.sinks, self.confirmed
        self.confirmed += number
        if not isinstance(sinks, list):
            sinks.confirm(entry_id, number)
            return
        for sink in sinks if number == len(sinks) else sinks[start : start + number]:
            if not sink.done():
                sink.set_result(entry_id)
            entry_id += 1

    def fail(self, error: StoreError) -> None:
        """The entries that are left will not be confirmed."""
        sinks = self.sinks
        if not isinstance(sinks, list):
            sinks.fail(error, self.left)
            return
        for sink in sinks[self.confirmed :]:
            if not sink.done():
                sink.set_exception(error)


class Together:
    """Appends that are waited for together. ``missing``: how many of them are not confirmed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.missing = 0
        self.error: StoreError | None = None
        self.over: asyncio.Future[None] | None = None

    def fail(self, error: StoreError, number: int) -> None:
        """So many appends have failed, and all after them will."""
        self.error = self.error or error
        self._fewer(number)

    def _fewer(self, number: int) -> None:
        self.missing -= number
        if not self.missing and self.over is not None and not self.over.done():
            self.over.set_result(None)

    async def _all_over(self) -> None:
        """Wait until nothing is missing. Raises if an append has failed."""
        if self.missing:
            self.over = self.loop.create_future()
            await self.over
        if self.error is not None:
            raise self.error


class _Several(Together):
    """It takes what comes of each append as a future would, and of many at once. ``mean``: the bytes of one, lately."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.mean = 1024
        self.confirmed: list[range] = []

    def done(self) -> bool:
        """Every result is taken."""
        return False

    def set_result(self, entry_id: int) -> None:
        """An append is confirmed."""
        self.confirm(entry_id, 1)

    def set_exception(self, error: StoreError) -> None:
        """An append has failed, and all after it will."""
        self.fail(error, 1)

    def confirm(self, first: int, number: int) -> None:
        """Appends are confirmed that have ids from ``first`` on."""
        if self.confirmed and self.confirmed[-1].stop == first:
            self.confirmed[-1] = range(self.confirmed[-1].start, first + number)
        else:
            self.confirmed.append(range(first, first + number))
        self._fewer(number)

    async def ids(self) -> list[int]:
        """The entries, once nothing is missing."""
        await self._all_over()
        return [*chain.from_iterable(self.confirmed)]
