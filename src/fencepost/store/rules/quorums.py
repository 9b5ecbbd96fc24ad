"""Quorums: the bookies that an entry is sent to, and the sets of bookies that are enough.

From the BookKeeper replication protocol and its specification (``BookKeeperProtocol.tla``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from typing import TypeVar

from fencepost.store.rules.codes import Verdict

B = TypeVar("B")

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
    """Whether ``members`` cover the ensemble (``POSITIVE``), can not come to without those that ``failed``
    (``UNKNOWN``), or may yet.
    """
    if covers_ensemble(members, ensemble, write_quorum, ack_quorum):
        return Verdict.POSITIVE
    others = [b for b in ensemble if b not in failed]
    return Verdict.WAITING if covers_ensemble(others, ensemble, write_quorum, ack_quorum) else Verdict.UNKNOWN
