"""The executors' part of a read: they read the ranges of a part directly from the bookies, or from the objects of
offloaded ledgers.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence

from fencepost.api.client import SyncClient
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.loops import LOOPS, WORTH
from fencepost.ledger.client.reader import LedgerReader
from fencepost.ledger.client.reading import EntryBatch
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.errors import DigestMismatchError, NoSuchEntryError, NoSuchLedgerError, ReadError, StoreError
from fencepost.ledger.kernels import ready
from fencepost.ledger.rules.metadata import LedgerMetadata, end_of
from fencepost.log.metadata import LogNodes
from fencepost.log.objects import ObjectReader, object_of
from fencepost.spark.ledgers.options import ReadOptions
from fencepost.spark.ledgers.parts import Range

PREFETCH, PREFETCH_BYTES = 9_000, 32 * 1024 * 1024
"""The most entries and bytes to request ahead. A bookie of BookKeeper refuses reads while 10,000 wait for the thread of
a ledger (``maxPendingReadRequestsPerThread``).
"""

WAITS = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds to wait when bookies do not answer or refuse reads. Each retry halves the requests in flight. A task that
makes no progress in all of them fails.
"""

MANY = 50_000
"""The number of entries in a part for which it pays to wait for the compiled loops."""

PATIENCE = 5.0
"""The most seconds to wait for them: they may have to be compiled."""

LOST = (NoSuchLedgerError, NoSuchEntryError, DigestMismatchError)
"""Errors that mean lost data: the ledger was deleted, or no bookie has the entry undamaged."""

_STORES: dict[tuple[int, str], SyncClient] = {}
"""The connections of this process, which later tasks reuse."""


def store_at(metadata: str) -> SyncClient:
    """The connection of this process to a cluster. Raises :class:`fencepost.OptionError` and :class:`StoreError`, which
    name the option.
    """
    key = os.getpid(), metadata
    if key not in _STORES:
        try:
            _STORES[key] = SyncClient.connect(metadata, ClientSettings.of_environment())
        except StoreError as error:
            raise type(error)(f"option metadata: {error}") from None
    return _STORES[key]


def lost(error: StoreError) -> StoreError:
    """An error of lost data, with advice how to go on without them."""
    return type(error)(f"{error}. Set option failOnDataLoss to false to go on without what is gone")


def read(options: ReadOptions, part: Sequence[Range]) -> Iterator[tuple[Range, LedgerMetadata, EntryBatch]]:
    """Read the entries of a part in batches, each with its range and the ledger's metadata. Raises
    :class:`StoreError`.
    """
    _get_loops_ready(sum(each.last - each.first + 1 for each in part))
    yield from store_at(options.metadata).iterate(lambda store: batches(store, options, part))


def _get_loops_ready(entries: int) -> None:
    """Load the compiled loops of the client, and wait for them if the part is large enough. Without them the client is
    slow, and slows their compilation down.
    """
    if entries >= WORTH:
        LOOPS.carried(WORTH)
    if entries >= MANY and os.environ.get(ready.ENVIRONMENT) != "plain":
        end = time.monotonic() + PATIENCE
        while LOOPS.module is None and time.monotonic() < end:
            time.sleep(0.01)


async def batches(
    store: LedgerClient, options: ReadOptions, part: Sequence[Range]
) -> AsyncIterator[tuple[Range, LedgerMetadata, EntryBatch]]:
    """See :func:`read`."""
    opened: LedgerReader | ObjectReader | None = None
    for each in part:
        if not isinstance(opened, ObjectReader) or opened.id != each.ledger:
            opened = None
        try:
            async for reader, batch in _entries(store, options, each, opened):
                opened = reader
                yield each, reader.metadata, batch
        except LOST as error:
            if options.fail_on_data_loss:
                raise lost(error) from None


async def offloaded(store: LedgerClient, options: ReadOptions, ledger: int) -> ObjectReader | None:
    """Open the object of a ledger that bookies could not give; None if it is not offloaded. Raises as
    :func:`.open_object`.
    """
    if options.log is None:
        return None
    return await object_of(LogNodes(store.metadata, options.log), ledger, options.password.encode())


async def _entries(
    store: LedgerClient, options: ReadOptions, wanted: Range, opened: ObjectReader | None
) -> AsyncIterator[tuple[LedgerReader | ObjectReader, EntryBatch]]:
    """Read the entries of a range in batches, each with its reader: from the ``opened`` object; or from the bookies,
    and from the object what they cannot give. Other tasks may overload the bookies, so requests are repeated with fewer
    in flight.
    """
    first, last, prefetch = wanted.first, wanted.last, PREFETCH
    failed_at, waits = first, [*WAITS]
    end: int | None = None
    while first <= last:
        if opened is not None:
            async for batch in opened.read_batches(first, last):
                yield opened, batch
            return
        opening = store.open_ledger(
            wanted.ledger, password=options.password, prefetch=prefetch, prefetch_bytes=PREFETCH_BYTES, confirmed=last
        )
        try:
            async with opening as reader:
                end = end_of(reader.metadata)
                async for batch in reader.read_batches(first, last):
                    yield reader, batch
                    first += len(batch)
        except (*LOST, ReadError) as error:
            opened = await offloaded(store, options, wanted.ledger)
            if opened is not None:
                continue
            if isinstance(error, ReadError):
                if first > failed_at:  # slow progress is progress
                    failed_at, waits = first, [*WAITS]
                if not waits:
                    raise
                await asyncio.sleep(waits.pop(0))
                prefetch = max(1, prefetch // 2)
            elif options.fail_on_data_loss or isinstance(error, NoSuchLedgerError):
                raise
            else:
                last = last if end is None else min(last, end)
                first += 1  # all before it were read
