"""The driver's part of a read: it looks up the ledgers and their readable entries. It reads only single entries, and of
an object only the manifest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from fencepost.errors import OptionError
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.reader import LedgerReader
from fencepost.ledger.errors import NoSuchEntryError, NoSuchLedgerError, ReadError
from fencepost.ledger.rules.metadata import LedgerMetadata, end_of
from fencepost.log.objects import ObjectReader
from fencepost.spark.ledgers.filters import ANY, Wanted
from fencepost.spark.ledgers.offsets import Offsets, moved, shares, stop_within
from fencepost.spark.ledgers.options import Offset, ReadOptions
from fencepost.spark.ledgers.parts import Range, Span, parts
from fencepost.spark.ledgers.reading import lost, offloaded

AT_ONCE = 64
"""The most ledgers that are looked up at once."""

MANY = 10_000
"""If an open ledger has more entries than this, the driver checks their size before it divides them."""


class Ledgers:
    """The ledgers of a query. The driver keeps open ledgers open, and fences none."""

    def __init__(self, store: LedgerClient, options: ReadOptions) -> None:
        self.store = store
        self.options = options
        self._readers: dict[int, LedgerReader] = {}
        """Readers of ledgers that were not closed at the last look-up."""
        self._closed: dict[int, LedgerMetadata] = {}
        self._objects: dict[int, ObjectReader] = {}
        """Of ledgers that bookies could not give. No chunk of theirs is read."""
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def close(self) -> None:
        """Close all readers."""
        for reader in self._readers.values():
            await reader.close()
        self._readers.clear()

    # -- looking up ---------------------------------------------------------------------------------------------------

    async def present(self) -> list[int]:
        """The ledgers that the options name, in order: all single ones, and the existing ones of each range."""
        ledgers = {run.first for run in self.options.runs if run.is_one}
        ranges = [run for run in self.options.runs if not run.is_one]
        if ranges:
            async for ledger in self.store.list_ledgers():
                if any(run.first <= ledger <= run.last for run in ranges):
                    ledgers.add(ledger)
        return sorted(ledgers)

    async def available(self, ledgers: Iterable[int], known: Offsets | None = None) -> Offsets:
        """The entry of each ledger before which all can be read; closed ledgers are among ``ended``.

        Ledgers that have ended in the ``known`` offsets are skipped. Raises :class:`NoSuchLedgerError` for a deleted
        ledger; with ``failOnDataLoss`` false, it ends at its known entry.
        """
        known = known or Offsets()
        wanted = [ledger for ledger in ledgers if ledger not in known.ended]
        stops = await asyncio.gather(*(self._look_up(ledger, known) for ledger in wanted))
        by_ledger = dict(zip(wanted, stops, strict=True))
        ended = {ledger: stop for ledger, (stop, has_ended) in by_ledger.items() if has_ended}
        return Offsets(
            {ledger: stop for ledger, (stop, has_ended) in by_ledger.items() if not has_ended}, {**known.ended, **ended}
        )

    async def _look_up(self, ledger: int, known: Offsets) -> tuple[int, bool]:
        try:
            stop, has_ended = await self.stop_of(ledger)
        except NoSuchLedgerError as error:
            if self.options.fail_on_data_loss:
                raise lost(error) from None
            return known.stop(ledger), True
        if stop < known.stop(ledger):
            if has_ended and self.options.fail_on_data_loss:
                raise lost(
                    NoSuchEntryError(f"ledger {ledger} has {stop} entries, and {known.stop(ledger)} were read of it")
                )
            stop = known.stop(ledger)
        return stop, has_ended

    async def stop_of(self, ledger: int) -> tuple[int, bool]:
        """The entry before which all of a ledger can be read, and whether it is closed there. Raises as
        :meth:`metadata`.
        """
        async with self._at_once:
            metadata = await self.metadata(ledger)
            end = end_of(metadata)
            if end is not None:
                return end + 1, True
            return await self._readers[ledger].read_last_add_confirmed() + 1, self._readers[ledger].is_closed

    async def metadata(self, ledger: int) -> LedgerMetadata:
        """The metadata of a ledger. An open ledger gets a reader. Raises :class:`NoSuchLedgerError` and
        :class:`UnauthorizedAccessError`.
        """
        if ledger in self._closed:
            return self._closed[ledger]
        if ledger not in self._readers:
            try:
                self._readers[ledger] = await self.store.open_ledger(ledger, password=self.options.password)
            except NoSuchLedgerError:
                if not await self._is_offloaded(ledger):
                    raise
                self._closed[ledger] = self._objects[ledger].metadata
                return self._closed[ledger]
        metadata = self._readers[ledger].metadata
        if end_of(metadata) is not None:
            await self._readers.pop(ledger).close()
            self._closed[ledger] = metadata
        return metadata

    async def _is_offloaded(self, ledger: int) -> bool:
        """Whether a ledger that bookies could not give has an object. Opens it."""
        if ledger not in self._objects:
            found = await offloaded(self.store, self.options, ledger)
            if found is None:
                return False
            self._objects[ledger] = found
        return True

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def at(self, offset: Offset) -> Offsets:
        """The offsets of a query that begins at ``offset``."""
        available = await self.available(await self.present())
        stops = {ledger: offset.of(ledger, stop) for ledger, stop in available.all().items()}
        _must_be_there("startingOffsets", stops, available)
        return moved(Offsets(), available, stops)

    async def limited(
        self, start: Offsets, available: Offsets, max_entries: int | None, max_bytes: int | None
    ) -> Offsets:
        """The offsets after one batch from ``start`` on. A batch has at most ``max_entries`` entries and ``max_bytes``
        bytes of data, but at least one entry.
        """
        stops = {ledger: stop for ledger, stop in available.all().items() if stop > start.stop(ledger)}
        if max_entries is not None:
            counts = shares({ledger: stop - start.stop(ledger) for ledger, stop in stops.items()}, max_entries)
            stops = {ledger: start.stop(ledger) + count for ledger, count in counts.items()}
        if max_bytes is not None:
            stops = await self._within(start, stops, max_bytes)
        return moved(start, available, {**{ledger: start.stop(ledger) for ledger in available.all()}, **stops})

    async def _within(self, start: Offsets, stops: Mapping[int, int], max_bytes: int) -> dict[int, int]:
        before = await self._all({ledger: self.length_before(ledger, start.stop(ledger)) for ledger in stops})
        after = await self._all({ledger: self.length_before(ledger, stop) for ledger, stop in stops.items()})
        room = shares({ledger: after[ledger] - before[ledger] for ledger in stops}, max_bytes)
        within = {
            ledger: stop_within(
                start.stop(ledger),
                stop,
                room[ledger],
                before[ledger],
                lambda entry, ledger=ledger: self.length_before(ledger, entry + 1),  # type: ignore[misc]
            )
            for ledger, stop in stops.items()
        }
        limits = await self._all(within)
        moving = [ledger for ledger, stop in stops.items() if stop > start.stop(ledger)]
        if moving and all(limits[ledger] == start.stop(ledger) for ledger in moving):
            limits[moving[0]] += 1  # a larger entry is a batch of its own
        return limits

    async def _all(self, works: Mapping[int, Coroutine[Any, Any, int]]) -> dict[int, int]:
        return dict(zip(works, await asyncio.gather(*works.values()), strict=True))

    async def length_before(self, ledger: int, entry: int) -> int:
        """The bytes of data before an entry of a ledger, from the metadata or the previous entry's header; of an
        object, see :meth:`.ObjectReader.length_before`.
        """
        if entry == 0:
            return 0
        metadata = await self.metadata(ledger)
        if end_of(metadata) == entry - 1:
            return metadata.length
        if ledger not in self._objects:
            try:
                async with (
                    self._at_once,
                    self.store.open_ledger(ledger, password=self.options.password, confirmed=entry - 1) as reader,
                ):
                    async for batch in reader.read_batches(entry - 1, entry - 1):
                        assert batch.lengths is not None, "the entry was read"
                        return int(batch.lengths[0])
            except (NoSuchLedgerError, NoSuchEntryError, ReadError):
                if not await self._is_offloaded(ledger):
                    raise
        return self._objects[ledger].length_before(entry)

    # -- partitions ----------------------------------------------------------------------------------------------------

    async def parts(
        self, starts: Mapping[int, int], stops: Mapping[int, int], ledgers: Wanted = ANY, entries: Wanted = ANY
    ) -> list[tuple[Range, ...]]:
        """The partitions for each ledger from its start (0 by default) to before its stop, without entries that the
        query does not need.
        """
        spans = []
        for ledger, stop in sorted(stops.items()):
            if ledgers.has(ledger):
                first, stop = entries.within(starts.get(ledger, 0), stop)
                if first < stop:
                    spans.append(self.span(ledger, first, stop))
        present = await asyncio.gather(*spans)
        return parts([span for span in present if span is not None], self.options.partition_bytes)

    async def span(self, ledger: int, first: int, stop: int, created: int = 0) -> Span | None:
        """Entries of a ledger, with what is needed to divide them; None if the ledger was deleted and
        ``failOnDataLoss`` is false. ``created``: see :class:`.Range`.
        """
        try:
            async with self._at_once:
                metadata = await self.metadata(ledger)
            end = end_of(metadata)
            mean = 0
            if end is not None:
                mean = metadata.length // (end + 1) if end >= 0 else 0
            elif stop - first >= MANY:
                mean = await self.length_before(ledger, stop) // stop
        except NoSuchLedgerError as error:
            if self.options.fail_on_data_loss:
                raise lost(error) from None
            return None
        return Span(ledger, first, stop, [each.first_entry_id for each in metadata.fragments], mean, created)


def _must_be_there(name: str, stops: Mapping[int, int], available: Offsets) -> None:
    for ledger, stop in stops.items():
        if stop > available.stop(ledger):
            raise OptionError(
                f"option {name} has entry {stop} of ledger {ledger}, of which the entries before"
                f" {available.stop(ledger)} can be read"
            )


def behind(start: str, end: str) -> str:
    """The error of a query that begins after it ends."""
    return f"option startingOffsets is {start}, behind endingOffsets, {end}: begin where the query ends, or before"


async def batch(store: LedgerClient, options: ReadOptions, ledgers: Wanted, entries: Wanted) -> list[tuple[Range, ...]]:
    """The partitions of a batch query: all entries that can be read when it begins.

    Raises :class:`fencepost.OptionError` for offsets beyond them, and :class:`StoreError`.
    """
    looked_at = Ledgers(store, options)
    try:
        present = [ledger for ledger in await looked_at.present() if ledgers.has(ledger)]
        available = await looked_at.available(present)
        starts = {ledger: options.start.of(ledger, stop) for ledger, stop in available.all().items()}
        stops = available.all()
        _must_be_there("startingOffsets", starts, available)
        if options.end is not None:
            stops = {ledger: options.end.of(ledger, stop) for ledger, stop in stops.items()}
            _must_be_there("endingOffsets", stops, available)
            for ledger, stop in stops.items():
                if stop < starts[ledger]:
                    raise OptionError(behind(f"entry {starts[ledger]} of ledger {ledger}", f"entry {stop}"))
        return await looked_at.parts(starts, stops, ledgers, entries)
    finally:
        await looked_at.close()
