"""Fencing: when so many bookies are fenced that the owner can commit nothing more, or can no longer be fenced off."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from fencepost.store.rules.codes import Verdict
from fencepost.store.rules.protections import ALL, Protections
from fencepost.store.rules.quorums import Ensemble, covers_ensemble

B = TypeVar("B")


def fencing(
    fenced: Collection[B],
    failed: Collection[B],
    ensemble: Ensemble[B],
    write_quorum: int,
    ack_quorum: int,
    protections: Protections = ALL,
) -> Verdict:
    """Whether fencing is complete (``POSITIVE``), can not be any more with those that ``failed`` (``UNKNOWN``), or waits."""
    if not protections.fencing_covers_ensemble and fenced:
        return Verdict.POSITIVE
    if covers_ensemble(fenced, ensemble, write_quorum, ack_quorum):
        return Verdict.POSITIVE
    reachable = [b for b in ensemble if b not in failed]
    return Verdict.WAITING if covers_ensemble(reachable, ensemble, write_quorum, ack_quorum) else Verdict.UNKNOWN


def is_fenced_by_read(asked_to_fence: bool, protections: Protections = ALL) -> bool:
    """Whether a read of an entry fences the ledger: if it asks for it, as the reads of a recovery do."""
    return asked_to_fence and protections.recovery_reads_fence
