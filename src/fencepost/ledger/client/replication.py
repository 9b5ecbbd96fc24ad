"""Copies entries to a bookie that should have them: finds what is missing and who has it, and replaces one bookie by
another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.entries import Digests, master_key
from fencepost.ledger.errors import BadVersionError, NotEnoughBookiesError, ReadError, WriteError
from fencepost.ledger.messages import AddEntry, AddEntryResponse, ReadEntry, ReadEntryResponse
from fencepost.ledger.metadata.racks import placement_of
from fencepost.ledger.rules.codes import NEGATIVES, Code
from fencepost.ledger.rules.ensembles import is_in_write_set
from fencepost.ledger.rules.metadata import LedgerMetadata
from fencepost.ledger.rules.placement import Placement, Unplaced, replacement, told, unmet
from fencepost.ledger.rules.replication import (
    better,
    quorums_of,
    replaceable,
    sources,
    span,
    waits_for_end,
    with_replacement,
)

AT_ONCE = 32
"""The number of entries copied at once. It is small so that the repaired bookie can answer other requests in
between.
"""


def belonging_of_fragment(metadata: LedgerMetadata, fragment: int, bookie: str) -> NDArray[np.int64]:
    """The entries of a closed fragment that a bookie of its ensemble should have, in order."""
    entries = span(metadata, fragment)
    ids = np.arange(entries.start, entries.stop, dtype=np.int64)
    ensemble = tuple(metadata.fragments[fragment].ensemble)
    belong: NDArray[np.bool_] = is_in_write_set(ensemble.index(bookie), ids, len(ensemble), metadata.write_quorum)  # type: ignore
    return ids[belong]


class Pace:
    """Limits copying to ``rate`` bytes a second."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._next = 0.0

    async def take(self, size: int) -> None:
        """Wait until ``size`` more bytes may be copied."""
        now = time.monotonic()
        start = max(now, self._next)
        self._next = start + size / self._rate
        if start > now:
            await asyncio.sleep(start - now)


@dataclass
class Copied:
    """Counts of entries copied so far. ``lacking``: entries without an intact copy on any bookie."""

    entries: int = 0
    bytes: int = 0
    lacking: int = 0


@dataclass
class Copier:
    """Copies entries of one ledger from the bookies of their write sets, at a limited pace. ``gone``: bookies to ask
    last.
    """

    store: LedgerClient
    ledger: int
    metadata: LedgerMetadata
    pace: Pace
    copied: Copied
    _: KW_ONLY
    gone: Collection[str] = ()
    at_once: int = AT_ONCE

    def __post_init__(self) -> None:
        self._digests = Digests(self.metadata.digest_type, self.metadata.password or b"")

    async def copy(
        self, entries: NDArray[np.int64], without: str, put: Callable[[int, int, bytes], Awaitable[object]]
    ) -> int:
        """Read entries from the bookies of their write sets other than ``without``. Calls ``put`` for each with its id,
        LAC and body. Gives how many could not be read.
        """
        left = iter(entries.tolist())

        async def copy_on() -> int:
            lacking = 0
            for entry_id in left:
                lacking += not await self._copy(entry_id, without, put)
            return lacking

        tasks = [asyncio.create_task(copy_on()) for _ in range(min(self.at_once, len(entries)))]
        try:
            lacking = sum(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.copied.lacking += lacking
        return lacking

    async def _copy(self, entry_id: int, without: str, put: Callable[[int, int, bytes], Awaitable[object]]) -> bool:
        for bookie in sources(self.metadata, entry_id, without, self.gone):
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


async def replace(store: LedgerClient, ledger: int, gone: str, pace: Pace, copied: Copied) -> int:
    """Replace a lost bookie in all ensembles of a ledger, with all entries that belong there. Gives the number of
    replacements. If the last fragment has the bookie and is open, the ledger is first closed by a recovery.

    Raises what :func:`replace_fragments` and :meth:`LedgerClient.recover_ledger` raise.
    """
    replaced = 0
    while True:
        metadata = await store.ledger_metadata(ledger)
        if waits_for_end(metadata, (gone,)):
            await store.recover_ledger(ledger, password=metadata.password or b"")
        replaced += await replace_fragments(store, ledger, (gone,), pace, copied)
        if gone not in {
            each for fragment in (await store.ledger_metadata(ledger)).fragments for each in fragment.ensemble
        }:
            return replaced


async def replace_fragments(
    store: LedgerClient, ledger: int, gone: Collection[str], pace: Pace, copied: Copied, at_once: int = AT_ONCE
) -> int:
    """Replace each lost bookie in the closed fragments of a ledger, with all entries that belong there. Gives the
    number of replacements.

    The metadata change fragment by fragment, each once its new bookie has all entries, so an interrupted repair resumes
    where it stopped. Raises :class:`ReadError` if an entry cannot be read, :class:`WriteError` if the new bookie does
    not store it, and :class:`NotEnoughBookiesError` if there is no other bookie.
    """

    def choose(metadata: LedgerMetadata, bookies: list[str], placement: Placement) -> _Change | None:
        left = replaceable(metadata, gone)
        if not left:
            return None
        (place, lost), *_ = left
        ensemble = metadata.fragments[place].ensemble
        new = replacement(ensemble, lost, gone, bookies, quorums_of(metadata), placement)
        if isinstance(new, Unplaced):
            problem = f"there is no bookie that could take the place of {lost} in ledger {ledger}: start another one"
            if new is not Unplaced.TOO_FEW:
                problem += f", or set racks (fencepost bookie rack), as {unmet(placement.policy)} must be met:"
                problem += f" {told(new)}"
            raise NotEnoughBookiesError(problem, new)
        return place, lost, new

    return await _change_fragments(store, ledger, choose, gone, pace, copied, at_once)


async def spread_fragments(store: LedgerClient, ledger: int, pace: Pace, copied: Copied, at_once: int = AT_ONCE) -> int:
    """Move entries of closed fragments to other bookies, as far as that brings them into more racks, zones and regions,
    up to the minimum. Gives the number of replacements. Raises :class:`ReadError` and :class:`WriteError`.
    """
    return await _change_fragments(store, ledger, better, (), pace, copied, at_once)


_Change = tuple[int, str, str]
"""A fragment by its index, a bookie of its ensemble, and the one that takes its place."""


async def _change_fragments(
    store: LedgerClient,
    ledger: int,
    choose: Callable[[LedgerMetadata, list[str], Placement], _Change | None],
    gone: Collection[str],
    pace: Pace,
    copied: Copied,
    at_once: int,
) -> int:
    """Replace bookies in closed fragments until nothing is chosen any more. ``choose`` takes the metadata, the writable
    bookies in random order, and the placement.
    """
    changed = 0
    while True:
        found, bookies = await store.metadata.read_ledger(ledger), await store.bookies()
        placement = placement_of(bookies.placement(store.policy), found.metadata.custom_metadata)
        change = choose(found.metadata, store.driver.mixed(bookies.writable), placement)
        if change is None:
            return changed
        place, old, new = change
        copier = Copier(store, ledger, found.metadata, pace, copied, gone=gone, at_once=at_once)
        await _copy_all(copier, place, old, new)
        try:
            await store.metadata.write_ledger(ledger, with_replacement(found.metadata, place, old, new), found.version)
        # The writer changed an ensemble, or another repair is running. The copies do no harm.
        except BadVersionError:
            continue
        changed += 1


async def refill(
    store: LedgerClient,
    ledger: int,
    metadata: LedgerMetadata,
    place: int,
    bookie: str,
    pace: Pace,
    copied: Copied,
    at_once: int = AT_ONCE,
) -> None:
    """Copy all entries of a closed fragment that belong to a bookie to that bookie, which has lost some. Raises
    :class:`ReadError` or :class:`WriteError`.
    """
    await _copy_all(Copier(store, ledger, metadata, pace, copied, at_once=at_once), place, bookie, bookie)


async def has_ends(store: LedgerClient, ledger: int, metadata: LedgerMetadata, place: int, bookie: str) -> bool | None:
    """Whether a bookie has intact copies of the first and the last entry of a closed fragment that belong to it; None
    if that is unknown now.

    BookKeeper's ``LedgerChecker`` checks these two by default.
    """
    digests = Digests(metadata.digest_type, metadata.password or b"")
    entries = belonging_of_fragment(metadata, place, bookie)
    is_known = True
    for entry_id in dict.fromkeys(int(each) for each in entries[[0, -1] if len(entries) else []]):
        response = await store.ask(bookie, ReadEntry(ledger, entry_id))
        if isinstance(response, ReadEntryResponse) and response.code is Code.OK:
            if digests.open_entry(response.body, ledger, entry_id) is None:
                return False
        elif isinstance(response, ReadEntryResponse) and response.code in NEGATIVES:
            return False
        else:
            is_known = False
    return True if is_known else None


async def _copy_all(copier: Copier, place: int, lost: str, new: str) -> None:
    """Copy the entries of a bookie in a closed fragment to another one, or to the same one."""
    store, ledger, metadata = copier.store, copier.ledger, copier.metadata
    key = master_key(metadata.password or b"")

    async def put(entry_id: int, lac: int, body: bytes) -> None:
        response = await store.ask(new, AddEntry(ledger, entry_id, lac, body, key, recovery=True))
        if not isinstance(response, AddEntryResponse) or response.code is not Code.OK:
            raise WriteError(f"bookie {new} does not take entries of ledger {ledger} now")

    without = lost if lost in copier.gone else new  # a bookie that is only moved from still has its entries
    lacking = await copier.copy(belonging_of_fragment(metadata, place, lost), without, put)
    if lacking:
        raise ReadError(f"{lacking} entries of ledger {ledger} cannot be had from any bookie now")
