"""The handle of whoever has created a ledger: it appends to it and closes it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterable, Iterable
from typing import Any, Self

from fencepost.store.client.driver import Actor, Driver
from fencepost.store.client.outcomes import error_of
from fencepost.store.errors import IllegalOperationError, LedgerClosedError, StoreError
from fencepost.store.roles.interface import Result
from fencepost.store.roles.writer import Writer, WriterSettings
from fencepost.store.rules.metadata import LedgerMetadata

Data = bytes | bytearray | memoryview

_OVERHEAD = 1024
"""Bytes of a frame besides the data of an entry, at most."""


class LedgerWriter:
    """A ledger that this client has created, and is the only one to append to.

    Appends are confirmed in their order. At most ``in_flight`` entries and ``in_flight_bytes`` bytes are under way; whoever appends more
    waits. Use it as a context manager, or :meth:`close` it: a ledger that nobody closes is recovered by the next who opens it so.
    """

    def __init__(self, driver: Driver, ledger: int, settings: WriterSettings, in_flight_bytes: int) -> None:
        self.id = ledger
        """The ledger."""
        self._driver = driver
        self._role = Writer(ledger, settings)
        self._in_flight_limit = settings.in_flight_limit
        self._in_flight_bytes_limit = in_flight_bytes
        self._largest = driver.settings.frame_limit - _OVERHEAD
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        """Those who wait for room, and the sizes of their entries."""
        self._sinks: dict[int, tuple[Any, int | None]] = {}
        """Who is told what comes of a call, a future or several appends; and the size of the entry if it is an append."""
        self._error: StoreError | None = None
        """Why the writer can not go on, though its ledger is not closed."""
        self._actor = Actor(driver, self._role, self._result, self._failed)

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
        return self._role.length

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

        Raises :class:`LedgerFencedError`, :class:`NotEnoughBookiesError`, :class:`WriteError` or another :class:`StoreError`; the entry may
        be in the ledger or not then, and likewise when the append is cancelled while it waits.
        """
        size = len(data)
        if not self._has_room(size):
            await self._room(size)
        else:
            self._reserve(size)
        future: asyncio.Future[int] = self._driver.loop.create_future()
        self._send(data, size, future)
        return await future

    def submit(self, data: Data) -> asyncio.Future[int]:
        """Append an entry without waiting for room; the future has what :meth:`append` gives or raises.

        It is for whoever limits by other means what is under way, as all of it is in memory.
        """
        size = len(data)
        self._reserve(size)
        future: asyncio.Future[int] = self._driver.loop.create_future()
        self._send(data, size, future)
        return future

    async def append_many(self, entries: Iterable[Data] | AsyncIterable[Data]) -> list[int]:
        """Append entries one after another, many under way at once; their ids, once all are confirmed.

        Raises as :meth:`append`, at the first that fails. Those up to :attr:`last_add_confirmed` are in the ledger then.
        """
        several = _Several(self._driver.loop)
        if isinstance(entries, AsyncIterable):
            async for data in entries:
                if not await self._send_one_of(several, data):
                    break
        else:
            for data in entries:
                if not await self._send_one_of(several, data):
                    break
        return await several.ids()

    async def _send_one_of(self, several: _Several, data: Data) -> bool:
        """Send one of several entries, unless an earlier one has failed."""
        size = len(data)
        if not self._has_room(size):
            await self._room(size)
        else:
            self._reserve(size)
        if several.error is not None:
            self._release(size)
            return False
        several.missing += 1
        self._send(data, size, several)
        return True

    def _send(self, data: Data, size: int, sink: Any) -> None:
        """Append an entry for which room is reserved."""
        if size > self._largest:
            self._release(size)
            raise IllegalOperationError(f"an entry of {size:,} bytes is too large: at most {self._largest:,} are taken")
        self._call(sink, size, "append", data if type(data) is bytes else bytes(data))

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

    def _release(self, size: int) -> None:
        self._in_flight -= 1
        self._in_flight_bytes -= size
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
                self._release(size)
            raise

    # -- force and close -----------------------------------------------------------------------------------------------

    async def force(self) -> int:
        """Make all that is confirmed durable on every bookie of the ensemble, and confirm it to readers; gives the last add confirmed.

        It is needed only where a ledger was created with ``deferred_sync``. Raises :class:`WriteError`.
        """
        return int(await self._ask("force"))

    async def close(self) -> int:
        """Wait for the appends that are under way, and close the ledger; gives its last entry, -1 if it is empty.

        After :class:`NotEnoughBookiesError` or :class:`WriteError` the ledger is closed at its last add confirmed. Raises
        :class:`LedgerFencedError` if somebody else recovers the ledger: it ends where that ends it. It can be called again.
        """
        if not self._actor.is_closed or self._error is not None:
            await self._ask("close")
            self._actor.close()
        return self.last_add_confirmed

    async def _begin(self, operation: str) -> None:
        """Create the ledger, or adopt it."""
        try:
            await self._ask(operation)
        except BaseException:
            self._actor.close()
            raise

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def _ask(self, operation: str) -> Any:
        future: asyncio.Future[Any] = self._driver.loop.create_future()
        self._call(future, None, operation)
        return await self._driver.patiently(future)

    def _call(self, sink: Any, size: int | None, operation: str, *arguments: Any) -> None:
        actor = self._actor
        if actor.is_closed:
            if size is not None:
                self._release(size)
            raise self._error or LedgerClosedError(f"ledger {self.id} is closed")
        self._sinks[actor.calls + 1] = (sink, size)  # the role may answer before its call returns
        actor.call(operation, *arguments)

    def _result(self, result: Result) -> None:
        sink, size = self._sinks.pop(result.token)
        if size is not None:
            self._release(size)
        if sink.done():
            return
        if result.error:
            sink.set_exception(error_of(result.error, self.id))
        else:
            sink.set_result(result.value)


    def _failed(self, error: StoreError) -> None:
        """Nothing comes of the calls that are under way, and nobody who waits for room gets it."""
        self._error = error
        sinks, self._sinks = self._sinks, {}
        for sink, size in sinks.values():
            if size is not None:
                self._release(size)  # whoever gets the room is told when he uses it
            if not sink.done():
                sink.set_exception(error)


class _Several:
    """Appends that are waited for together. It takes what comes of each as a future would."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.missing = 0
        self.confirmed: list[int] = []
        self.error: StoreError | None = None
        self.over: asyncio.Future[None] | None = None

    def done(self) -> bool:
        """Every result is taken."""
        return False

    def set_result(self, entry_id: int) -> None:
        """An append is confirmed."""
        self.confirmed.append(entry_id)
        self._one_less()

    def set_exception(self, error: StoreError) -> None:
        """An append has failed, and all after it will."""
        self.error = self.error or error
        self._one_less()

    def _one_less(self) -> None:
        self.missing -= 1
        if not self.missing and self.over is not None and not self.over.done():
            self.over.set_result(None)

    async def ids(self) -> list[int]:
        """The entries, once nothing is missing."""
        if self.missing:
            self.over = self.loop.create_future()
            await self.over
        if self.error is not None:
            raise self.error
        return self.confirmed
