"""The executors' part of a read: they read the ranges of a part from the bookies themselves."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence

from fencepost.api.client import SyncClient
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.loops import LOOPS, WORTH
from fencepost.ledger.client.reading import EntryBatch
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.errors import DigestMismatchError, NoSuchEntryError, NoSuchLedgerError, ReadError, StoreError
from fencepost.ledger.kernels import ready
from fencepost.ledger.rules.metadata import LedgerMetadata, end_of
from fencepost.spark.ledgers.options import ReadOptions
from fencepost.spark.ledgers.parts import Range

PREFETCH, PREFETCH_BYTES = 9_000, 32 * 1024 * 1024
"""Entries, and bytes, that are asked for ahead. A bookie of BookKeeper refuses reads while 10,000 wait for the thread
that a ledger has there (``maxPendingReadRequestsPerThread``).
"""

WAITS = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds that are waited when bookies do not answer or are asked for too much at once, and half as much is asked for
each time. A task fails that has come no further by then.
"""

MANY = 50_000
"""Entries of a part, for which the compiled loops are waited for."""

PATIENCE = 5.0
"""Seconds that they are waited for, at most: they may have to be compiled."""

LOST = (NoSuchLedgerError, NoSuchEntryError, DigestMismatchError)
"""Errors that say that data are gone: the ledger was deleted, or no bookie has an entry, or none an undamaged copy."""

_STORES: dict[tuple[int, str], SyncClient] = {}
"""The connections of this process, which later tasks use too."""


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
    """An error that says that data are gone, and how to go on without them."""
    return type(error)(f"{error}. Set option failOnDataLoss to false to go on without what is gone")


def read(options: ReadOptions, part: Sequence[Range]) -> Iterator[tuple[Range, LedgerMetadata, EntryBatch]]:
    """The entries of a part in batches, each with the range that it is of and the metadata of the ledger. Raises
    :class:`StoreError`.
    """
    _get_loops_ready(sum(each.last - each.first + 1 for each in part))
    yield from store_at(options.metadata).iterate(lambda store: batches(store, options, part))


def _get_loops_ready(entries: int) -> None:
    """Have the compiled loops of the client loaded, and wait for them if they will be worth it: until then it is slow,
    and holds them up.
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
    for each in part:
        try:
            async for metadata, batch in _entries(store, options, each):
                yield each, metadata, batch
        except LOST as error:
            if options.fail_on_data_loss:
                raise lost(error) from None


async def _entries(
    store: LedgerClient, options: ReadOptions, wanted: Range
) -> AsyncIterator[tuple[LedgerMetadata, EntryBatch]]:
    """The entries of a range in batches. Those of other tasks may be more than bookies bear: they are asked again, for
    less.
    """
    first, last, prefetch = wanted.first, wanted.last, PREFETCH
    failed_at, waits = first, [*WAITS]
    while first <= last:
        opening = store.open_ledger(
            wanted.ledger, password=options.password, prefetch=prefetch, prefetch_bytes=PREFETCH_BYTES, confirmed=last
        )
        async with opening as reader:
            try:
                async for batch in reader.read_batches(first, last):
                    yield reader.metadata, batch
                    first += len(batch)
            except (NoSuchEntryError, DigestMismatchError):
                if options.fail_on_data_loss:
                    raise
                end = end_of(reader.metadata)
                last = last if end is None else min(last, end)
                first += 1  # all before it were read
            except ReadError:
                if first > failed_at:  # it goes on, if slowly
                    failed_at, waits = first, [*WAITS]
                if not waits:
                    raise
                await asyncio.sleep(waits.pop(0))
                prefetch = max(1, prefetch // 2)
