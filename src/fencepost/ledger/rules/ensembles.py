"""Quorums and ensembles: which bookies an entry is sent to, and which sets of bookies are enough; which change of an
ensemble is allowed, what it does to the fragments, and who still has to be sent what.

Quorums are those of the BookKeeper replication protocol and its specification (``BookKeeperProtocol.tla``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from typing import Any, TypeVar

from fencepost.language.values import Record
from fencepost.ledger.rules.codes import Verdict
from fencepost.ledger.rules.protections import ALL, Protections

B = TypeVar("B")

# -- quorums ---------------------------------------------------------------------------------------------------------

Ensemble = Sequence[B] | Set[B]
"""The bookies of a fragment. Their order counts where the ensemble is larger than the write quorum; where it is not, a
set will do.
"""


def are_quorums(ensemble_size: int, write_quorum: int, ack_quorum: int) -> bool:
    """Whether a ledger can have these: somebody confirms, and nobody who was not asked."""
    return 1 <= ack_quorum <= write_quorum <= ensemble_size


def write_set(entry_id: int, ensemble: Ensemble[B], write_quorum: int) -> Ensemble[B]:
    """The bookies that an entry is sent to: a write quorum of the ensemble, each entry beginning one bookie further on.

    Where the write quorum is the ensemble, that is all of it, in its own order, and a set does as well as a sequence.
    """
    size = len(ensemble)
    if write_quorum == size:
        return ensemble
    assert isinstance(ensemble, Sequence), "entries are striped over bookies that have an order"
    return tuple(ensemble[(entry_id + place) % size] for place in range(write_quorum))


def is_in_write_set(place: int, entry_id: int, ensemble_size: int, write_quorum: int) -> bool:
    """Whether the bookie at this place of the ensemble is one that an entry is sent to: :func:`write_set` by
    numbers.
    """
    return (place - entry_id) % ensemble_size < write_quorum


def is_committed(confirmations: int, ack_quorum: int) -> bool:
    """Whether so many bookies have confirmed an entry that it is committed, once all before it are."""
    return confirmations >= ack_quorum


def covers(members: Collection[B], cohort: Collection[B], ack_quorum: int) -> bool:
    """Whether every ack quorum that the cohort can form has one of ``members`` in it (quorum coverage)."""
    return sum(b not in members for b in cohort) < ack_quorum


def covers_ensemble(members: Collection[B], ensemble: Ensemble[B], write_quorum: int, ack_quorum: int) -> bool:
    """Whether every ack quorum of any write set of the ensemble has one of ``members`` in it (ensemble coverage).

    The specification asks it of the whole ensemble at once. An entry lives in one write set, so this is as safe, and
    needs fewer bookies where entries are striped; the Java client asks the same.
    """
    return all(
        covers(members, write_set(entry_id, ensemble, write_quorum), ack_quorum)
        for entry_id in (range(1) if write_quorum == len(ensemble) else range(len(ensemble)))
    )


def coverage(
    members: Collection[B], failed: Collection[B], ensemble: Ensemble[B], write_quorum: int, ack_quorum: int
) -> Verdict:
    """Whether ``members`` cover the ensemble (``POSITIVE``), cannot come to without those that ``failed``
    (``UNKNOWN``), or may yet.
    """
    if covers_ensemble(members, ensemble, write_quorum, ack_quorum):
        return Verdict.POSITIVE
    others = [b for b in ensemble if b not in failed]
    return Verdict.WAITING if covers_ensemble(others, ensemble, write_quorum, ack_quorum) else Verdict.UNKNOWN


# -- ensembles -------------------------------------------------------------------------------------------------------


class Fragment(Record):
    """A run of entries on one ensemble, from ``first_entry_id`` to the entry before the next fragment."""

    first_entry_id: int
    ensemble: Ensemble[Any]


F = TypeVar("F", bound=Fragment)


def fragment_of(fragments: Sequence[F], entry_id: int) -> F:
    """The fragment that an entry is in: the last that starts at or before it. ``fragments`` are in order."""
    return next(f for f in reversed(fragments) if f.first_entry_id <= entry_id)


def chosen(candidates: Iterable[B], size: int) -> tuple[B, ...] | None:
    """The ensemble of a new ledger: the first candidates; None if they are too few."""
    ensemble = tuple(dict.fromkeys(candidates))[:size]
    return ensemble if len(ensemble) == size else None


def needs_change(ensemble: Collection[B], failed: Collection[B]) -> bool:
    """Whether a bookie of the ensemble has failed."""
    return any(b in failed for b in ensemble)


def replaced(ensemble: Sequence[B], failed: Collection[B], candidates: Iterable[B]) -> tuple[B, ...] | None:
    """The ensemble in which the first candidates that are not in it stand where the failed bookies stood; None if they
    are too few.

    Bookies that did not fail keep their places, so that they keep their entries.
    """
    fresh = iter([b for b in dict.fromkeys(candidates) if b not in ensemble and b not in failed])
    changed = tuple(next(fresh, None) if b in failed else b for b in ensemble)
    return None if None in changed else changed  # type: ignore[return-value]


def may_be_committed(missed_by: int, write_quorum: int, ack_quorum: int) -> bool:
    """Whether an entry can be committed that so many bookies of its write set have failed to confirm, and that there
    are no others for.

    Those that are left have confirmed it, or may yet: the failed bookies are those of this entry alone, not those
    of entries before. The Java client decides the same, where it is configured to delay changes of ensemble; otherwise
    it gives up.
    """
    return is_committed(write_quorum - missed_by, ack_quorum)


def preferred(candidates: Iterable[B], failed_before: Collection[B]) -> list[B]:
    """The candidates for an ensemble in the order to take them: who has failed this client before comes last."""
    return sorted(candidates, key=lambda b: b in failed_before)


def with_ensemble(fragments: tuple[F, ...], ensemble: Ensemble[Any], first_entry_id: int) -> tuple[F, ...]:
    """The fragments after a change of ensemble that holds from ``first_entry_id`` on, the entry after the LAC.

    It replaces the ensemble of the last fragment if nothing of that is confirmed, and begins a new one otherwise.
    Raises ``ValueError`` if it would begin before the last fragment: what is confirmed there would change its place.
    """
    last = fragments[-1]
    if first_entry_id < last.first_entry_id:
        raise ValueError(
            f"a fragment cannot begin at entry {first_entry_id}, before the last one at {last.first_entry_id}"
        )
    kept = fragments[:-1] if first_entry_id == last.first_entry_id else fragments
    return (*kept, last.replace(first_entry_id=first_entry_id, ensemble=ensemble))


def still_confirmed(confirmed: frozenset[B], replaced: Collection[B], protections: Protections = ALL) -> frozenset[B]:
    """The bookies that count as having confirmed an uncommitted entry after bookies were replaced: those that left do
    not.
    """
    return frozenset(confirmed) - frozenset(replaced) if protections.confirmations_withdrawn else confirmed


def newly_asked(entry_id: int, before: Ensemble[B], after: Ensemble[B], write_quorum: int) -> list[B]:
    """The bookies that an entry has to be sent to after a change of ensemble: in its write set now, and not before."""
    had = write_set(entry_id, before, write_quorum)
    return [b for b in write_set(entry_id, after, write_quorum) if b not in had]
