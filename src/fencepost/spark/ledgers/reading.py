"""What an executor does: it reads the ranges of a part from the bookies themselves."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence

from fencepost.spark.ledgers.options import ReadOptions
from fencepost.spark.ledgers.parts import Range
from fencepost.store.client.loops import LOOPS, WORTH
from fencepost.store.client.reading import EntryBatch
from fencepost.store.client.settings import ClientSettings
from fencepost.store.client.store import Store
from fencepost.store.client.sync import SyncStore
from fencepost.store.errors import DigestMismatchError, NoSuchEntryError, NoSuchLedgerError, StoreError
from fencepost.store.rows import ready
from fencepost.store.rules.metadata import LedgerMetadata, end_of

PREFETCH, PREFETCH_BYTES = 30_000, 32 * 1024 * 1024
"""Entries, and bytes, that are asked for ahead."""

MANY = 50_000
"""Entries of a part, for which the compiled loops are waited for."""

PATIENCE = 5.0
"""Seconds that they are waited for, at most: they may have to be compiled."""

LOST = (NoSuchLedgerError, NoSuchEntryError, DigestMismatchError)
"""Errors that say that data are gone: the ledger was deleted, or no bookie has an entry, or none an undamaged copy."""

_STORES: dict[tuple[int, str], SyncStore] = {}
"""The connections of this process, which later tasks use too."""


def store_at(metadata: str) -> SyncStore:
    """The connection of this process to a cluster. Raises :class:`fencepost.OptionError` and :class:`StoreError`, which name the option."""
    key = os.getpid(), metadata
    if key not in _STORES:
        try:
            _STORES[key] = SyncStore.connect(metadata, ClientSettings())
        except StoreError as error:
            raise type(error)(f"option metadata: {error}") from None
    return _STORES[key]


def lost(error: StoreError) -> StoreError:
    """An error that says that data are gone, and how to go on without them."""
    return type(error)(f"{error}. Set option failOnDataLoss to false to go on without what is gone")


def read(options: ReadOptions, part: Sequence[Range]) -> Iterator[tuple[Range, LedgerMetadata, EntryBatch]]:
    """The entries of a part in batches, each with the range that it is of and the metadata of the ledger. Raises :class:`StoreError`."""
    _get_loops_ready(sum(each.last - each.first + 1 for each in part))
    yield from store_at(options.metadata).iterate(lambda store: batches(store, options, part))


def _get_loops_ready(entries: int) -> None:
    """Have the compiled loops of the client loaded, and wait for them if they will be worth it: until then it is slow, and holds them up."""
    if entries >= WORTH:
        LOOPS.carried(WORTH)
    if entries >= MANY and os.environ.get(ready.ENVIRONMENT) != "plain":
        end = time.monotonic() + PATIENCE
        while LOOPS.module is None and time.monotonic() < end:
            time.sleep(0.01)


async def batches(
    store: Store, options: ReadOptions, part: Sequence[Range]
) -> AsyncIterator[tuple[Range, LedgerMetadata, EntryBatch]]:
    """See :func:`read`."""
    for each in part:
        try:
            opening = store.open_ledger(
                each.ledger,
                password=options.password,
                prefetch=PREFETCH,
                prefetch_bytes=PREFETCH_BYTES,
                confirmed=each.last,
            )
            async with opening as reader:
                first, last = each.first, each.last
                while first <= last:
                    try:
                        async for batch in reader.read_batches(first, last):
                            yield each, reader.metadata, batch
                            first += len(batch)
                    except (NoSuchEntryError, DigestMismatchError):
                        if options.fail_on_data_loss:
                            raise
                        end = end_of(reader.metadata)
                        last = last if end is None else min(last, end)
                        first += 1  # all before it were read
        except LOST as error:
            if options.fail_on_data_loss:
                raise lost(error) from None
