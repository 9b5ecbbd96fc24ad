"""Fencing: which bookies are fenced, and when so many are that the owner can commit nothing more, or cannot be fenced
off. And the recovery that follows: where it starts, what it reads and writes with what, and when it may close the
ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from fencepost.ledger.rules.codes import NEGATIVES, Code, Verdict
from fencepost.ledger.rules.ensembles import Ensemble, coverage
from fencepost.ledger.rules.protections import ALL, Protections

B = TypeVar("B")


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
    """Whether fencing is complete (``POSITIVE``), cannot be any more with those that ``failed`` (``UNKNOWN``), or
    waits.
    """
    if not protections.fencing_covers_ensemble and fenced:
        return Verdict.POSITIVE
    return coverage(fenced, failed, ensemble, write_quorum, ack_quorum)


E = TypeVar("E")


def confirmed_before(lacs: Iterable[int], first_entry_of_fragment: int, protections: Protections = ALL) -> int:
    """The last entry that is known to be confirmed without reading it: a recovery reads from the next one on.

    That is the highest LAC of any bookie, and at least the end of the last fragment but one: an older fragment ends
    only where everything before is committed, and its bookies are not asked.
    """
    start = first_entry_of_fragment - 1
    return max([*lacs, start]) if protections.recovery_starts_at_fragment else max(lacs, default=start)


def may_read_ahead(entry_id: int, decided: int, in_flight_limit: int) -> bool:
    """Whether recovery may read an entry while those after ``decided``, the last that it has found, are still being
    read.
    """
    return entry_id - decided <= in_flight_limit


def ensemble_to_read(began_with: E, current: E, protections: Protections = ALL) -> E:
    """The ensemble that recovery reads from: the one that it began with. The bookies it has replaced since hold what it
    must find.
    """
    return began_with if protections.recovery_reads_stay else current


def keeps_fragments(protections: Protections = ALL) -> bool:
    """Whether recovery keeps its changes of ensemble to itself until it closes: others must read where the owner has
    written.
    """
    return protections.recovery_keeps_fragments


def lac_to_carry(began_at: int, confirmed: int, protections: Protections = ALL) -> int:
    """The LAC that goes out with the entries that recovery writes back: the one that it began at.

    What it has confirmed since is confirmed only once it closes: the Java client tells of it before, and a reader that
    believes it may read what another recovery cuts off.
    """
    return began_at if protections.recovery_freezes_lac else confirmed


def may_close(end_known: bool, unconfirmed: Collection[int], protections: Protections = ALL) -> bool:
    """Whether recovery may close the ledger: it knows the end, and all that it read has an ack quorum."""
    return end_known and (not unconfirmed or not protections.write_back_before_close)


def is_end(verdict: Verdict) -> bool:
    """Whether the recovery read of an entry says that the ledger ends before it."""
    return verdict is Verdict.NEGATIVE
