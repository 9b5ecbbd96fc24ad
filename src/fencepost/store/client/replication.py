"""Copies entries from bookies that have them to one that should: what belongs to a bookie, where it is had from, and how one replaces another."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fencepost.store.client.store import Store
from fencepost.store.entries import Digests, master_key
from fencepost.store.errors import BadVersionError, NotEnoughBookiesError, ReadError, WriteError
from fencepost.store.messages import AddEntry, AddEntryResponse, ReadEntry, ReadEntryResponse
from fencepost.store.rules.codes import Code
from fencepost.store.rules.ensembles import fragment_of
from fencepost.store.rules.metadata import LedgerMetadata
from fencepost.store.rules.quorums import is_in_write_set, write_set
from fencepost.store.rules.replication import fragments_on, is_settled, replacement, span, with_replacement

AT_ONCE = 100
"""Entries that are copied at once."""


def belonging(metadata: LedgerMetadata, fragment: int, bookie: str) -> NDArray[np.int64]:
    """The entries of a settled fragment that a bookie of its ensemble should have, in order."""
    entries = span(metadata, fragment)
    ids = np.arange(entries.start, entries.stop, dtype=np.int64)
    ensemble = tuple(metadata.fragments[fragment].ensemble)
    belong: NDArray[np.bool_] = is_in_write_set(ensemble.index(bookie), ids, len(ensemble), metadata.write_quorum)  # type: ignore
    return ids[belong]


class Pace:
    """Lets so many bytes a second through."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._next = 0.0

    async def take(self, size: int) -> None:
        """Wait until so many more bytes may be copied."""
        now = time.monotonic()
        start = max(now, self._next)
        self._next = start + size / self._rate
        if start > now:
            await asyncio.sleep(start - now)


@dataclass
class Copied:
    """What was copied so far. ``lacking``: entries that no bookie could give, undamaged."""

    entries: int = 0
    bytes: int = 0
    lacking: int = 0


class Copier:
    """Copies entries of one ledger, with its digests and from its write sets, at a pace."""

    def __init__(self, store: Store, ledger: int, metadata: LedgerMetadata, pace: Pace, copied: Copied) -> None:
        self.store = store
        self.ledger = ledger
        self.metadata = metadata
        self.pace = pace
        self.copied = copied
        self._digests = Digests(metadata.digest_type, metadata.password or b"")

    async def copy(
        self, entries: NDArray[np.int64], without: str, put: Callable[[int, int, bytes], Awaitable[object]]
    ) -> int:
        """Get entries from the bookies of their write sets ``without`` one, and ``put`` each: its id, its LAC and its body. Gives how many could not be had."""
        lacking = 0
        for first in range(0, len(entries), AT_ONCE):
            some = (self._copy(int(entry_id), without, put) for entry_id in entries[first : first + AT_ONCE])
            lacking += (await asyncio.gather(*some)).count(False)
        self.copied.lacking += lacking
        return lacking

    async def _copy(self, entry_id: int, without: str, put: Callable[[int, int, bytes], Awaitable[object]]) -> bool:
        ensemble = tuple(fragment_of(self.metadata.fragments, entry_id).ensemble)
        for bookie in write_set(entry_id, ensemble, self.metadata.write_quorum):
            if bookie == without:
                continue
            response = await self.store.ask(bookie, ReadEntry(self.ledger, entry_id))
            body = response.body if isinstance(response, ReadEntryResponse) else None
            entry = self._digests.open_entry(body, self.ledger, entry_id)
            if entry is not None and body is not None:
                await self.pace.take(len(body))
                await put(entry_id, entry.lac, body)
                self.copied.entries += 1
                self.copied.bytes += len(body)
                return True
        return False


async def replace(store: Store, ledger: int, gone: str, pace: Pace, copied: Copied) -> int:
    """Give a ledger another bookie wherever one that is gone stands in its ensembles, with all entries that belong there; gives in how many
    fragments. A ledger of which the last fragment has it is closed first, by a recovery.

    Raises :class:`ReadError` if an entry can not be had, :class:`WriteError` if the other bookie does not take it,
    :class:`NotEnoughBookiesError` if there is none, and what :meth:`Store.recover_ledger` raises.
    """
    replaced = 0
    while True:
        found = await store.metadata.read_ledger(ledger)
        metadata = found.metadata
        left = fragments_on(metadata, gone)
        if not left:
            return replaced
        if not is_settled(metadata, left[0]):
            await store.recover_ledger(ledger, password=metadata.password or b"")
            continue
        new = await _copied_to_another(store, ledger, metadata, left[0], gone, pace, copied)
        try:
            await store.metadata.write_ledger(ledger, with_replacement(metadata, left[0], gone, new), found.version)
        except BadVersionError:  # its writer has changed an ensemble, or somebody else repairs it: what was copied does no harm
            continue
        replaced += 1


async def _copied_to_another(
    store: Store, ledger: int, metadata: LedgerMetadata, fragment: int, gone: str, pace: Pace, copied: Copied
) -> str:
    """Copy what belongs to a bookie that is gone to another one, which it gives."""
    bookies = (await store.bookies()).writable
    new = replacement((*metadata.fragments[fragment].ensemble, gone), random.sample(bookies, len(bookies)))
    if new is None:
        raise NotEnoughBookiesError(f"there is no bookie that could take the place of {gone} in ledger {ledger}: start another one")
    key = master_key(metadata.password or b"")

    async def put(entry_id: int, lac: int, body: bytes) -> None:
        response = await store.ask(new, AddEntry(ledger, entry_id, lac, body, key, recovery=True))
        if not isinstance(response, AddEntryResponse) or response.code is not Code.OK:
            raise WriteError(f"bookie {new} does not take entries of ledger {ledger} now")

    lacking = await Copier(store, ledger, metadata, pace, copied).copy(belonging(metadata, fragment, gone), gone, put)
    if lacking:
        raise ReadError(f"{lacking} entries of ledger {ledger} can not be had from any bookie now")
    return new

