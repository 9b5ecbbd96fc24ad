"""Replication: the entries that a bookie should have, and how another bookie replaces a lost one.

Functions of a fragment hold for closed fragments: the ledger is closed, or another fragment follows.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from fencepost.ledger.rules.ensembles import (
    covers_ensemble,
    fragment_of,
    has_ack_quorums,
    is_in_write_set,
    write_set,
)
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.ledger.rules.placement import ANYWHERE, Placement, Quorums, Spread, Unplaced, move, replaced, spread

B = TypeVar("B")


def is_closed_fragment(metadata: LedgerMetadata, fragment: int) -> bool:
    """Whether a fragment, by its index in the metadata, has an end that no longer changes."""
    return metadata.status is LedgerStatus.CLOSED or fragment + 1 < len(metadata.fragments)


def quorums_of(metadata: LedgerMetadata) -> Quorums:
    """The quorums of a ledger."""
    return metadata.write_quorum, metadata.ack_quorum


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
    """The indices of the fragments that have a bookie in their ensemble."""
    return [place for place, fragment in enumerate(metadata.fragments) if bookie in fragment.ensemble]


def lost(metadata: LedgerMetadata, registered: Collection[str]) -> frozenset[str]:
    """The bookies in the ensembles of a ledger that are not registered. If there are any, the ledger is
    under-replicated.
    """
    return frozenset(each for fragment in metadata.fragments for each in fragment.ensemble if each not in registered)


def waits_for_end(metadata: LedgerMetadata, gone: Collection[str]) -> bool:
    """Whether a ledger must be closed before all entries of lost bookies can be copied elsewhere.

    If an open ledger's last fragment has a lost bookie, its writer gets some time to replace it. A ledger in recovery
    is closed conditionally on its version, so a change of its fragments would make the recovery start over.
    """
    if metadata.status is LedgerStatus.CLOSED:
        return False
    fragments = metadata.fragments if metadata.status is LedgerStatus.IN_RECOVERY else metadata.fragments[-1:]
    return any(each in gone for fragment in fragments for each in fragment.ensemble)


def replaceable(metadata: LedgerMetadata, gone: Collection[str]) -> list[tuple[int, str]]:
    """The replicas that can be replaced now: indices of closed fragments, each with a lost bookie of its ensemble."""
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
    """The bookies that may have a copy of an entry, in the order to ask: its write set ``without`` the one that lacks
    it, with the ``gone`` last.
    """
    ensemble = tuple(fragment_of(metadata.fragments, entry_id).ensemble)
    several = write_set(entry_id, ensemble, metadata.write_quorum)
    return tuple(sorted((each for each in several if each != without), key=lambda each: each in gone))


def with_replacement(metadata: LedgerMetadata, fragment: int, gone: str, new: str) -> LedgerMetadata:
    """The metadata with one bookie replaced by another in one fragment. The others keep their positions, and so their
    entries.

    Write them only once the new bookie has all entries of the replaced one.
    """
    found = metadata.fragments[fragment]
    ensemble: Sequence[Any] = tuple(new if each == gone else each for each in found.ensemble)
    fragments = (*metadata.fragments[:fragment], found.replace(ensemble=ensemble), *metadata.fragments[fragment + 1 :])
    return metadata.replace(fragments=fragments)


def misplaced(metadata: LedgerMetadata, placement: Placement) -> list[tuple[int, Spread]]:
    """The fragments of a ledger, by their indices, in which an entry is or would be in fewer racks, zones or regions
    than the minimum, and how far each is spread.
    """
    several = [
        (place, spread(fragment.ensemble, quorums_of(metadata), placement))
        for place, fragment in enumerate(metadata.fragments)
        if not is_closed_fragment(metadata, place) or span(metadata, place)
    ]
    return [(place, found) for place, found in several if found.lacking]


def better(metadata: LedgerMetadata, candidates: Sequence[str], placement: Placement) -> tuple[int, str, str] | None:
    """A closed fragment, a bookie of its ensemble, and the candidate that should take its place so that entries are in
    more racks, zones or regions; None if nothing is lacking there, or no candidate helps.
    """
    for place, _ in misplaced(metadata, placement):
        if is_closed_fragment(metadata, place) and metadata.status is not LedgerStatus.IN_RECOVERY:
            found = move(metadata.fragments[place].ensemble, candidates, quorums_of(metadata), placement)
            if found is not None:
                return place, *found
    return None


# -- whether a bookie may stop -----------------------------------------------------------------------------------------


class Risk(enum.Enum):
    """What happens to a fragment if a bookie stops."""

    UNREADABLE = "unreadable"
    """All bookies of an ack quorum are away, so an acknowledged entry may be on none that serves. A recovery cannot
    close the ledger either.
    """
    UNWRITABLE = "unwritable"
    """Its writer, or a recovery, has no ack quorum that serves, and too few others to take their places."""
    MISPLACED = "misplaced"
    """So it is, and the others would leave entries in fewer racks, zones or regions than is enforced."""
    UNKNOWN = "unknown"
    """So it is, and the search for others came to its limit."""


_RISKS = {
    Unplaced.TOO_FEW: Risk.UNWRITABLE,
    Unplaced.UNMET: Risk.MISPLACED,
    Unplaced.UNKNOWN: Risk.UNKNOWN,
}


def risks(
    metadata: LedgerMetadata,
    bookie: B,
    serving: Collection[B],
    writable: Collection[B],
    placement: Placement = ANYWHERE,
) -> list[tuple[int, Risk]]:
    """What a ledger loses if a bookie stops: indices of fragments that have it, with the risk of each.

    ``serving``: the bookies that serve and have what they should of this ledger. ``writable``: those that take the
    entries of others. Either may contain the one that stops.
    """
    others = [each for each in serving if each != bookie]
    found: list[tuple[int, Risk]] = []
    for place in fragments_on(metadata, bookie):
        ensemble = tuple(metadata.fragments[place].ensemble)
        is_closed = is_closed_fragment(metadata, place)
        if is_closed and not span(metadata, place):
            continue
        if not covers_ensemble(others, ensemble, metadata.write_quorum, metadata.ack_quorum):
            found.append((place, Risk.UNREADABLE))
        elif not is_closed and not has_ack_quorums(others, ensemble, metadata.write_quorum, metadata.ack_quorum):
            away = [each for each in ensemble if each not in others]
            changed = replaced(ensemble, away, writable, quorums_of(metadata), placement)
            if isinstance(changed, Unplaced):
                found.append((place, _RISKS[changed]))
    return found
