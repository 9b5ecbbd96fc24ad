"""Replication: which entries a bookie should have, and how another one takes the place of a bookie that is gone.

What is said here of a fragment holds if its end is settled: if the ledger is closed, or another fragment follows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fencepost.store.rules.metadata import LedgerMetadata, LedgerStatus


def is_settled(metadata: LedgerMetadata, fragment: int) -> bool:
    """Whether a fragment, by its place in the metadata, has an end that does not change any more."""
    return metadata.status is LedgerStatus.CLOSED or fragment + 1 < len(metadata.fragments)


def span(metadata: LedgerMetadata, fragment: int) -> range:
    """The entries of a settled fragment."""
    ends = [following.first_entry_id for following in metadata.fragments[fragment + 1 : fragment + 2]]
    if metadata.status is LedgerStatus.CLOSED:
        ends.append(metadata.last_entry + 1)
    first = metadata.fragments[fragment].first_entry_id
    return range(first, max(first, min(ends)))


def fragments_on(metadata: LedgerMetadata, bookie: str) -> list[int]:
    """The fragments that have a bookie in their ensemble, by their places."""
    return [place for place, fragment in enumerate(metadata.fragments) if bookie in fragment.ensemble]


def replacement(ensemble: Collection[str], candidates: Iterable[str]) -> str | None:
    """The bookie that takes the place of one that is gone: the first candidate that is not in the ensemble; None if there is none."""
    return next((each for each in candidates if each not in ensemble), None)


def with_replacement(metadata: LedgerMetadata, fragment: int, gone: str, new: str) -> LedgerMetadata:
    """The metadata in which a bookie stands in the place of another in one fragment, so that the others keep their entries.

    To be written only when the new one has all entries that the other one should have.
    """
    found = metadata.fragments[fragment]
    ensemble: Sequence[Any] = tuple(new if each == gone else each for each in found.ensemble)
    fragments = (*metadata.fragments[:fragment], found.replace(ensemble=ensemble), *metadata.fragments[fragment + 1 :])
    return metadata.replace(fragments=fragments)
