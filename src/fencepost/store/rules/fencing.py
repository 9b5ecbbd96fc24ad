"""Fencing: which bookies are fenced, and when so many are that the owner can commit nothing more, or can not be fenced
off.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from fencepost.store.rules.codes import NEGATIVES, Code, Verdict
from fencepost.store.rules.ensembles import Ensemble, coverage
from fencepost.store.rules.protections import ALL, Protections

B = TypeVar("B")


def answer_to_fence(*, key_matches: bool, protections: Protections = ALL) -> Code:
    """Whether a bookie takes a read as one that fences. It need not have heard of the ledger before."""
    return Code.OK if key_matches or not protections.keys_are_checked else Code.UNAUTHORIZED


def is_fenced_by_read(asked_to_fence: bool, protections: Protections = ALL, *, is_of_last_entry: bool = False) -> bool:
    """Whether a read fences the ledger: if it asks for that. The read of the last entry, with which a recovery begins,
    always did; those of single entries that follow it did not before BookKeeper 4.14.
    """
    return asked_to_fence and (is_of_last_entry or protections.recovery_reads_fence)


def says_fenced(code: Code | None) -> bool:
    """Whether the answer to a fencing read says that the bookie is fenced: that it lacks entries is no hindrance; None:
    no answer.

    A ledger in limbo is fenced too, but counts as little as elsewhere, as it does for the Java client.
    """
    return code is Code.OK or code in NEGATIVES


def fencing(
    fenced: Collection[B],
    failed: Collection[B],
    ensemble: Ensemble[B],
    write_quorum: int,
    ack_quorum: int,
    protections: Protections = ALL,
) -> Verdict:
    """Whether fencing is complete (``POSITIVE``), can not be any more with those that ``failed`` (``UNKNOWN``), or
    waits.
    """
    if not protections.fencing_covers_ensemble and fenced:
        return Verdict.POSITIVE
    return coverage(fenced, failed, ensemble, write_quorum, ack_quorum)
