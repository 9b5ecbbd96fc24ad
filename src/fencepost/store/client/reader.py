"""The handle of whoever reads a ledger."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Self

import msgspec

from fencepost.store.client.calls import Calls
from fencepost.store.client.driver import Driver
from fencepost.store.errors import NoSuchEntryError
from fencepost.store.roles.reader import Reader, ReaderSettings
from fencepost.store.rules.metadata import LedgerMetadata


class LedgerEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of a ledger: its id, which counts from 0, and its data."""

    id: int
    data: bytes


class LedgerReader:
    """A ledger that is read, by as many as like. It does not hinder whoever writes it.

    ``prefetch`` entries and ``prefetch_bytes`` bytes are asked for ahead of whoever reads.
    """

    def __init__(self, driver: Driver, ledger: int, settings: ReaderSettings, prefetch: int, prefetch_bytes: int) -> None:
        self.id = ledger
        """The ledger."""
        self._role = Reader(ledger, settings)
        self._calls = Calls(driver, ledger, self._role)
        self._prefetch = prefetch
        self._prefetch_bytes = prefetch_bytes

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata of the ledger, as this reader last read them."""
        return self._role.view.known()

    @property
    def is_closed(self) -> bool:
        """Whether the ledger is known to be closed: it has an end, and nothing is added to it."""
        return self._role.end is not None

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that is known to be confirmed, the last of all if the ledger is closed; -1 if there is none."""
        return self._role.lac if self._role.end is None else self._role.end

    def __repr__(self) -> str:
        return f"<reader of ledger {self.id}, last add confirmed {self.last_add_confirmed}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Read no more. The ledger stays as it is."""
        self._calls.close()

    async def _open(self) -> None:
        try:
            await self._calls.ask("open")
        except BaseException:
            self._calls.close()
            raise

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read_last_add_confirmed(self) -> int:
        """Ask the bookies for the last entry that is confirmed; gives the last of all if the ledger is closed. It never falls.

        Raises :class:`ReadError` if too few bookies answer.
        """
        await self._calls.ask("lac")
        return self.last_add_confirmed

    async def read_entry(self, entry_id: int) -> bytes:
        """The data of one entry. Raises as :meth:`read`."""
        await self._up_to(entry_id)
        data: bytes = await self._calls.ask("read", entry_id)
        return data

    async def read(self, first: int = 0, last: int | None = None) -> AsyncIterator[LedgerEntry]:
        """The entries from ``first`` to ``last``, both included, in their order; by default to the last that is confirmed now.

        Raises :class:`NoSuchEntryError` for entries that are not there or not confirmed, :class:`ReadError` if too few bookies answer,
        and :class:`DigestMismatchError` if every copy of an entry is damaged.
        """
        if first < 0:
            raise NoSuchEntryError(f"there is no entry {first}: entries count from 0")
        if last is None:
            last = await self.read_last_add_confirmed()
        else:
            await self._up_to(last)
        waiting: deque[asyncio.Future[bytes]] = deque()
        size, ahead = 1024, first
        try:
            for entry_id in range(first, last + 1):
                window = min(self._prefetch, max(1, self._prefetch_bytes // size))
                while ahead <= last and len(waiting) < window:
                    waiting.append(self._calls.start("read", ahead))
                    ahead += 1
                data = await self._calls.driver.patiently(waiting.popleft())
                size = max(1, (7 * size + len(data)) // 8, len(data) // 4)
                yield LedgerEntry(entry_id, data)
        finally:
            for future in waiting:
                future.cancel()

    async def tail(self, first: int = 0) -> AsyncIterator[LedgerEntry]:
        """The entries from ``first`` on, each as soon as it is confirmed, until the ledger is closed and all are read.

        Raises as :meth:`read`, and :class:`NoSuchLedgerError` when the ledger is deleted.
        """
        if first < 0:
            raise NoSuchEntryError(f"there is no entry {first}: entries count from 0")
        while True:
            if first <= self.last_add_confirmed:
                async for entry in self.read(first, self.last_add_confirmed):
                    yield entry
                    first = entry.id + 1
            data = await self._calls.start("tail", first)
            if data is None:
                return
            yield LedgerEntry(first, data)
            first += 1

    async def _up_to(self, last: int) -> None:
        """Make sure that an entry can be read."""
        if last > self.last_add_confirmed and last > await self.read_last_add_confirmed():
            known = self.last_add_confirmed
            beyond = f"ends at entry {known}" if self.is_closed else f"is confirmed up to entry {known} now"
            raise NoSuchEntryError(f"ledger {self.id} has no entry {last}: it {beyond}")
