"""Replication: the entries that a bookie should have, and how another bookie replaces one that is gone.

Functions of a fragment hold for closed fragments: the ledger is closed, or another fragment follows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

from fencepost.ledger.rules.ensembles import fragment_of, is_in_write_set, write_set
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus

B = TypeVar("B")


def is_closed_fragment(metadata: LedgerMetadata, fragment: int) -> bool:
    """Whether a fragment, by its place in the metadata, has an end that does not change any more."""
    return metadata.status is LedgerStatus.CLOSED or fragment + 1 < len(metadata.fragments)


def span(metadata: LedgerMetadata, fragment: int) -> range:
    """The entries of a closed fragment."""
    ends = [following.first_entry_id for following in metadata.fragments[fragment + 1 : fragment + 2]]
    if metadata.status is LedgerStatus.CLOSED:
        ends.append(metadata.last_entry + 1)
    first = metadata.fragments[fragment].first_entry_id
    return range(first, max(first, min(ends)))


def belonging(metadata: LedgerMetadata, bookie: object) -> list[int]:
    """The entries of a closed ledger that a bookie should have, in order."""
    found: list[int] = []
    for fragment in fragments_on(metadata, bookie):
        ensemble = tuple(metadata.fragments[fragment].ensemble)
        place, quorum = ensemble.index(bookie), metadata.write_quorum
        found += (each for each in span(metadata, fragment) if is_in_write_set(place, each, len(ensemble), quorum))
    return found


def fragments_on(metadata: LedgerMetadata, bookie: object) -> list[int]:
    """The fragments that have a bookie in their ensemble, by their places."""
    return [place for place, fragment in enumerate(metadata.fragments) if bookie in fragment.ensemble]


def lost(metadata: LedgerMetadata, registered: Collection[str]) -> frozenset[str]:
    """The bookies in the ensembles of a ledger that are not registered. A ledger is under-replicated if there are
    any."""
    return frozenset(each for fragment in metadata.fragments for each in fragment.ensemble if each not in registered)


def waits_for_end(metadata: LedgerMetadata, gone: Collection[str]) -> bool:
    """Whether a ledger has to be closed before everything that was on bookies that are gone is elsewhere.

    An open ledger of which the last fragment has one of them: its writer may replace it, and is given some time to do
    so. A ledger in recovery: it is closed on condition of its version, so that a change of its fragments would make
    whoever recovers it begin anew.
    """
    if metadata.status is LedgerStatus.CLOSED:
        return False
    fragments = metadata.fragments if metadata.status is LedgerStatus.IN_RECOVERY else metadata.fragments[-1:]
    return any(each in gone for fragment in fragments for each in fragment.ensemble)


def replaceable(metadata: LedgerMetadata, gone: Collection[str]) -> list[tuple[int, str]]:
    """The copies that can be replaced now: places of closed fragments, each with a bookie in its ensemble that is
    gone."""
    if metadata.status is LedgerStatus.IN_RECOVERY:
        return []
    return [
        (place, each)
        for place, fragment in enumerate(metadata.fragments)
        if is_closed_fragment(metadata, place)
        for each in dict.fromkeys(fragment.ensemble)
        if each in gone
    ]


def sources(metadata: LedgerMetadata, entry_id: int, without: B, gone: Collection[B] = ()) -> tuple[B, ...]:
    """The bookies that an entry is asked of to be copied, in order: those of its write set ``without`` the one that
    lacks it, the ``gone`` last."""
    ensemble = tuple(fragment_of(metadata.fragments, entry_id).ensemble)
    several = write_set(entry_id, ensemble, metadata.write_quorum)
    return tuple(sorted((each for each in several if each != without), key=lambda each: each in gone))


def replacement(ensemble: Collection[str], candidates: Iterable[str]) -> str | None:
    """The bookie that takes the place of one that is gone: the first candidate that is not in the ensemble; None if
    there is none."""
    return next((each for each in candidates if each not in ensemble), None)


def with_replacement(metadata: LedgerMetadata, fragment: int, gone: str, new: str) -> LedgerMetadata:
    """The metadata in which a bookie stands in the place of another in one fragment, so that the others keep their
    entries.

    To be written only when the new one has all entries that the other one should have.
    """
    found = metadata.fragments[fragment]
    ensemble: Sequence[Any] = tuple(new if each == gone else each for each in found.ensemble)
    fragments = (*metadata.fragments[:fragment], found.replace(ensemble=ensemble), *metadata.fragments[fragment + 1 :])
    return metadata.replace(fragments=fragments)
