"""The handle of a reader of a ledger."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Self

from fencepost.ledger.client import arguments
from fencepost.ledger.client.calls import Calls, error_of
from fencepost.ledger.client.driver import Driver
from fencepost.ledger.client.loops import LOOPS
from fencepost.ledger.client.reading import EntryBatch, LedgerEntry, Readings, ReadRange
from fencepost.ledger.errors import NoSuchEntryError, StoreError
from fencepost.ledger.roles.interface import Error
from fencepost.ledger.roles.reader import Reader, ReaderSettings
from fencepost.ledger.rules.metadata import LedgerMetadata, end_of
from fencepost.text.notebook import table

_USUAL = 1024
"""The assumed size of an entry in bytes before any was read."""
_BATCH = 1 << 20
"""The most bytes of a batch. Small batches reuse memory sooner and stay in the processor's caches."""
_FEW = 64
"""Entries requested together from one bookie, even if others could share the work."""


class LedgerReader:
    """An open ledger for reading. A ledger may have many readers, and they do not disturb the writer.

    ``prefetch`` entries and ``prefetch_bytes`` bytes are requested ahead of the caller.
    """

    def __init__(
        self, driver: Driver, ledger: int, settings: ReaderSettings, prefetch: int, prefetch_bytes: int
    ) -> None:
        self.id = ledger
        """The ledger."""
        self._role = Reader(ledger, settings, traces=driver.trace is not None)
        self._calls = Calls(driver, ledger, self._role)
        self._readings = Readings(self._calls, self._role)
        self._driver = driver
        self._readable = -1
        """Entries up to this one can be read by rows."""
        self._calls.on_failure.append(self._ended)
        self._prefetch = prefetch
        self._prefetch_bytes = prefetch_bytes

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata, as this reader last read them. Raises :class:`NoSuchLedgerError` once the ledger is
        deleted.
        """
        known = self._role.view.metadata
        if known is None:
            raise error_of(Error.NO_LEDGER, self.id)
        return known

    @property
    def is_closed(self) -> bool:
        """Whether the ledger is known to be closed: it has an end, and nothing more is added."""
        return end_of(self.metadata) is not None

    @property
    def last_add_confirmed(self) -> int:
        """The last entry known to be confirmed. For a closed ledger this is its last entry. -1 if there is none."""
        end = end_of(self.metadata)
        return self._role.lac if end is None else end

    def __repr__(self) -> str:
        return f"<reader of ledger {self.id}, last add confirmed {self.last_add_confirmed}>"

    def _repr_html_(self) -> str:
        """For a notebook: what is known of the ledger now, without asking any bookie."""
        known = self.metadata
        bookies = ", ".join(map(str, known.fragments[-1].ensemble)) if known.fragments else ""
        rows = [
            ("status", known.status.name.lower()),
            ("last add confirmed", f"{self.last_add_confirmed:,}"),
            ("bytes", f"{known.length:,}" if self.is_closed else "not known until it is closed"),
            ("ensemble, write and ack quorum", f"{known.ensemble_size}, {known.write_quorum}, {known.ack_quorum}"),
            ("digest", known.digest_type.name),
            ("fragments", f"{len(known.fragments):,}, the last one on {bookies}"),
        ]
        return table(f"Ledger {self.id}", rows)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading. The ledger is unchanged."""
        self._calls.close()

    def _ended(self, error: StoreError) -> None:
        self._readable = -1

    async def open(self) -> None:
        """Read the ledger's metadata. :class:`fencepost.ledger.client.client.LedgerClient` calls this once."""
        try:
            await self._calls.ask("open")
        except BaseException:
            self._calls.close()
            raise

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read_last_add_confirmed(self) -> int:
        """Ask the bookies for the last confirmed entry, or give the last entry of a closed ledger. The result never
        decreases.

        Raises :class:`ReadError` if too few bookies answer.
        """
        await self._calls.ask("lac")
        return self.last_add_confirmed

    async def read_entry(self, entry_id: int) -> bytes:
        """The data of one entry. Raises as :meth:`read` does."""
        if type(entry_id) is not int:
            entry_id = arguments.whole("entry_id", entry_id, 0)
        if entry_id < 0:
            raise NoSuchEntryError(f"there is no entry {entry_id}: entries count from 0")
        if 0 <= entry_id <= self._readable and self._driver.unreachable_since is None:
            return await self._readings.want(entry_id)
        known = self.last_add_confirmed
        if entry_id > known:
            await self._up_to(entry_id)
            known = self.last_add_confirmed
        self._calls.require_open()
        if LOOPS.module is None:
            LOOPS.carried(1)
        else:
            self._readable = known
        found: bytes = await self._driver.patiently(self._readings.want(entry_id))
        return found

    async def read(self, first: int = 0, last: int | None = None) -> AsyncGenerator[LedgerEntry, None]:
        """The entries from ``first`` to ``last`` inclusive, in order. By default ``last`` is the last entry confirmed
        now.

        Raises :class:`NoSuchEntryError` for entries that do not exist or are not confirmed, :class:`ReadError` if too
        few bookies answer, and :class:`DigestMismatchError` if every copy of an entry is damaged.
        """
        async with aclosing(self.read_batches(first, last)) as batches:
            async for batch in batches:
                for entry_id, data in enumerate(batch, batch.first):
                    yield LedgerEntry(entry_id, data)

    async def read_batches(self, first: int = 0, last: int | None = None) -> AsyncGenerator[EntryBatch, None]:
        """The entries of :meth:`read` in batches, each in one block of memory without an object per entry. Raises as
        :meth:`read` does.
        """
        first = arguments.whole("first", first, -arguments.LARGEST)
        last = None if last is None else arguments.whole("last", last, -arguments.LARGEST)
        if first < 0:
            raise NoSuchEntryError(f"there is no entry {first}: entries count from 0")
        if last is None:
            last = await self.read_last_add_confirmed()
        else:
            await self._up_to(last)
        waiting: deque[tuple[int, ReadRange]] = deque()
        ahead, in_flight, mean = first, 0, self._mean()
        try:
            while first <= last:
                most = min(self._prefetch, max(1, self._prefetch_bytes // mean))
                while ahead <= last and in_flight < most:
                    # leave a share for every bookie
                    share = max(_FEW, (last - ahead + 1) // (2 * self.metadata.write_quorum))
                    number = min(most - in_flight, max(1, most // 3), max(1, _BATCH // mean), share)
                    stop = self._stop(ahead, last, number)
                    self._calls.require_open()
                    waiting.append((stop - ahead, self._readings.read(ahead, stop - 1, mean)))
                    in_flight += stop - ahead
                    ahead = stop
                number, read_range = waiting[0]
                batch, error = await self._driver.patiently(read_range.batch)
                waiting.popleft()
                in_flight -= number
                first += number
                if batch is not None:
                    lately = len(batch.data) // len(batch)
                    mean = max(1, (3 * mean + lately) // 4, lately // 2)
                    yield batch
                if error is not None:
                    raise error
        finally:
            for _, read_range in waiting:
                read_range.cancel()

    def _mean(self) -> int:
        """The mean size of an entry in bytes, from the metadata of a closed ledger."""
        last = end_of(self.metadata)
        return _USUAL if last is None or last < 0 else max(1, self.metadata.length // (last + 1))

    def _stop(self, first: int, last: int, number: int) -> int:
        """The entry before which a batch from ``first`` ends. A batch stays within one fragment."""
        fragments = self.metadata.fragments
        stop = min(last + 1, first + number)
        for fragment in reversed(fragments):
            if fragment.first_entry_id <= first:
                break
            stop = min(stop, fragment.first_entry_id)
        return stop

    async def tail(self, first: int = 0) -> AsyncGenerator[LedgerEntry, None]:
        """The entries from ``first``, each as soon as it is confirmed, until the ledger is closed and all are read.

        Raises as :meth:`read` does, and :class:`NoSuchLedgerError` when the ledger is deleted.
        """
        async with aclosing(self.tail_batches(first)) as batches:
            async for batch in batches:
                for entry_id, data in enumerate(batch, batch.first):
                    yield LedgerEntry(entry_id, data)

    async def tail_batches(self, first: int = 0) -> AsyncGenerator[EntryBatch, None]:
        """The entries of :meth:`tail`, in batches as those of :meth:`read_batches`. Raises as :meth:`tail` does."""
        first = arguments.whole("first", first, -arguments.LARGEST)
        if first < 0:
            raise NoSuchEntryError(f"there is no entry {first}: entries count from 0")
        while True:
            if first <= self.last_add_confirmed:
                is_all = self.is_closed
                async with aclosing(self.read_batches(first, self.last_add_confirmed)) as batches:
                    async for batch in batches:
                        yield batch
                        first += len(batch)
                if is_all:  # the ledger may be deleted by now
                    return
            found = await self._calls.start("tail", first)
            if found is None:
                return
            if found is not True:  # the entry came with the notice that it is confirmed
                yield EntryBatch(first, memoryview(found), memoryview(array("q", (0, len(found)))))
                first += 1

    async def _up_to(self, last: int) -> None:
        """Raise :class:`NoSuchEntryError` unless an entry can be read."""
        if last > self.last_add_confirmed and last > await self.read_last_add_confirmed():
            known = self.last_add_confirmed
            beyond = f"ends at entry {known}" if self.is_closed else f"is confirmed up to entry {known} now"
            raise NoSuchEntryError(f"ledger {self.id} has no entry {last}: it {beyond}")
