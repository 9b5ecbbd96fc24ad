"""Quorums and ensembles: which bookies an entry is sent to, and which sets of bookies suffice. Also changes of
ensemble: which are allowed, how they change the fragments, and which entries must be resent to whom.

The quorums are those of BookKeeper's replication protocol and its specification (``BookKeeperProtocol.tla``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from typing import Any, TypeVar

from fencepost.language.values import Record
from fencepost.ledger.rules.codes import Verdict
from fencepost.ledger.rules.protections import ALL, Protections

B = TypeVar("B")

# -- quorums ---------------------------------------------------------------------------------------------------------

Ensemble = Sequence[B] | Set[B]
"""The bookies of a fragment. Their order matters only if the ensemble is larger than the write quorum; otherwise a set
will do.
"""


def are_quorums(ensemble_size: int, write_quorum: int, ack_quorum: int) -> bool:
    """Whether a ledger can have these: at least one bookie confirms, and only bookies that were sent the entry."""
    return 1 <= ack_quorum <= write_quorum <= ensemble_size


def write_set(entry_id: int, ensemble: Ensemble[B], write_quorum: int) -> Ensemble[B]:
    """The bookies that an entry is sent to: a write quorum of the ensemble, starting one bookie later for each entry.

    If the write quorum is the whole ensemble, the result is the ensemble as given, which may then be a set.
    """
    size = len(ensemble)
    if write_quorum == size:
        return ensemble
    assert isinstance(ensemble, Sequence), "entries are striped over bookies that have an order"
    return tuple(ensemble[(entry_id + place) % size] for place in range(write_quorum))


def is_in_write_set(place: int, entry_id: int, ensemble_size: int, write_quorum: int) -> bool:
    """Whether the bookie at index ``place`` of the ensemble is sent an entry: :func:`write_set` with numbers."""
    return (place - entry_id) % ensemble_size < write_quorum


def is_committed(confirmations: int, ack_quorum: int) -> bool:
    """Whether an entry with this many confirmations is committed, once all before it are."""
    return confirmations >= ack_quorum


def covers(members: Collection[B], cohort: Collection[B], ack_quorum: int) -> bool:
    """Whether every ack quorum within the cohort contains one of ``members`` (quorum coverage)."""
    return sum(b not in members for b in cohort) < ack_quorum


def covers_ensemble(members: Collection[B], ensemble: Ensemble[B], write_quorum: int, ack_quorum: int) -> bool:
    """Whether every ack quorum of every write set of the ensemble contains one of ``members`` (ensemble coverage).

    The specification requires this of the whole ensemble at once. An entry lives in one write set, so this is as safe,
    and needs fewer bookies when entries are striped. The Java client does the same.
    """
    return all(
        covers(members, write_set(entry_id, ensemble, write_quorum), ack_quorum)
        for entry_id in (range(1) if write_quorum == len(ensemble) else range(len(ensemble)))
    )


def has_ack_quorums(members: Collection[B], ensemble: Ensemble[B], write_quorum: int, ack_quorum: int) -> bool:
    """Whether every write set of the ensemble has an ack quorum of ``members``, so that any entry can be confirmed."""
    return all(
        is_committed(sum(b in members for b in write_set(entry_id, ensemble, write_quorum)), ack_quorum)
        for entry_id in range(len(ensemble))
    )


def coverage(
    members: Collection[B], failed: Collection[B], ensemble: Ensemble[B], write_quorum: int, ack_quorum: int
) -> Verdict:
    """Whether ``members`` cover the ensemble (``POSITIVE``), cannot cover it without those that ``failed``
    (``UNKNOWN``), or still may (``WAITING``).
    """
    if covers_ensemble(members, ensemble, write_quorum, ack_quorum):
        return Verdict.POSITIVE
    others = [b for b in ensemble if b not in failed]
    return Verdict.WAITING if covers_ensemble(others, ensemble, write_quorum, ack_quorum) else Verdict.UNKNOWN


# -- ensembles -------------------------------------------------------------------------------------------------------


class Fragment(Record):
    """A run of entries on one ensemble, from ``first_entry_id`` to the entry before the next fragment."""

    first_entry_id: int
    ensemble: tuple[Any, ...]


F = TypeVar("F", bound=Fragment)


def fragment_of(fragments: Sequence[F], entry_id: int) -> F:
    """The fragment of an entry: the last one that starts at or before it. ``fragments`` are in order."""
    return next(f for f in reversed(fragments) if f.first_entry_id <= entry_id)


def needs_change(ensemble: Collection[B], failed: Collection[B]) -> bool:
    """Whether a bookie of the ensemble has failed."""
    return any(b in failed for b in ensemble)


def may_be_committed(missed_by: int, write_quorum: int, ack_quorum: int) -> bool:
    """Whether an entry can still be committed if ``missed_by`` bookies of its write set failed to confirm it and cannot
    be replaced.

    The others have confirmed it or still may. Only failures on this entry count, not those on earlier entries. The Java
    client decides the same if it is configured to delay ensemble changes; otherwise it gives up.
    """
    return is_committed(write_quorum - missed_by, ack_quorum)


def with_ensemble(fragments: tuple[F, ...], ensemble: tuple[Any, ...], first_entry_id: int) -> tuple[F, ...]:
    """The fragments after a change of ensemble from ``first_entry_id``, the entry after the LAC.

    It replaces the last fragment's ensemble if nothing of that fragment is confirmed. Otherwise it starts a new
    fragment. Raises ``ValueError`` if it would start before the last fragment, since that would move confirmed entries.
    """
    last = fragments[-1]
    if first_entry_id < last.first_entry_id:
        raise ValueError(
            f"a fragment cannot begin at entry {first_entry_id}, before the last one at {last.first_entry_id}"
        )
    kept = fragments[:-1] if first_entry_id == last.first_entry_id else fragments
    return (*kept, last.replace(first_entry_id=first_entry_id, ensemble=ensemble))


def still_confirmed(confirmed: frozenset[B], replaced: Collection[B], protections: Protections = ALL) -> frozenset[B]:
    """The bookies whose confirmation of an uncommitted entry still counts after a replacement: not the replaced
    ones.
    """
    return frozenset(confirmed) - frozenset(replaced) if protections.confirmations_withdrawn else confirmed


def newly_asked(entry_id: int, before: Ensemble[B], after: Ensemble[B], write_quorum: int) -> list[B]:
    """The bookies that an entry must be sent to after a change of ensemble: those new in its write set."""
    had = write_set(entry_id, before, write_quorum)
    return [b for b in write_set(entry_id, after, write_quorum) if b not in had]
