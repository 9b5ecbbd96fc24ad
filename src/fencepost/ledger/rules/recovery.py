"""Fencing and recovery. Fencing: which bookies are fenced, and when enough are that the owner can commit nothing more.
Recovery: where it starts, which ensemble it reads, which LAC it writes, and when it may close the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from fencepost.ledger.rules.codes import NEGATIVES, Code, Verdict
from fencepost.ledger.rules.ensembles import Ensemble, coverage
from fencepost.ledger.rules.protections import ALL, Protections

B = TypeVar("B")


def is_fenced_by_read(asked_to_fence: bool, protections: Protections = ALL, *, is_of_last_entry: bool = False) -> bool:
    """Whether a read fences the ledger: if it asks to. The read of the last entry, which starts a recovery, always did.
    The reads of single entries that follow did not before BookKeeper 4.14.
    """
    return asked_to_fence and (is_of_last_entry or protections.recovery_reads_fence)


def says_fenced(code: Code | None) -> bool:
    """Whether the answer to a fencing read shows that the bookie is fenced, even if it lacks entries. None: no answer.

    A ledger in limbo is fenced too, but does not count here, nor with the Java client.
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
    """Whether fencing is complete (``POSITIVE``), cannot complete without those that ``failed`` (``UNKNOWN``), or is
    waiting.
    """
    if not protections.fencing_covers_ensemble and fenced:
        return Verdict.POSITIVE
    return coverage(fenced, failed, ensemble, write_quorum, ack_quorum)


E = TypeVar("E")


def confirmed_before(lacs: Iterable[int], first_entry_of_fragment: int, protections: Protections = ALL) -> int:
    """The last entry known to be confirmed without reading it. A recovery reads from the next one on.

    It is the highest LAC of any bookie, but at least the end of the fragment before the last. A fragment ends only
    where everything before is committed, and the bookies of older fragments are not asked.
    """
    start = first_entry_of_fragment - 1
    return max([*lacs, start]) if protections.recovery_starts_at_fragment else max(lacs, default=start)


def may_read_ahead(entry_id: int, decided: int, in_flight_limit: int) -> bool:
    """Whether recovery may read an entry while earlier ones after ``decided``, the last one found, are still being
    read.
    """
    return entry_id - decided <= in_flight_limit


def ensemble_to_read(began_with: E, current: E, protections: Protections = ALL) -> E:
    """The ensemble that recovery reads from: the one it began with. Bookies that it has replaced since may hold entries
    that it must find.
    """
    return began_with if protections.recovery_reads_stay else current


def keeps_fragments(protections: Protections = ALL) -> bool:
    """Whether recovery keeps its ensemble changes unpublished until it closes. Other clients must read where the owner
    wrote.
    """
    return protections.recovery_keeps_fragments


def lac_to_carry(began_at: int, confirmed: int, protections: Protections = ALL) -> int:
    """The LAC in the entries that recovery writes back: the one that it began at.

    Its later confirmations count only once it closes. The Java client sends them before, and a reader may then read an
    entry that another recovery cuts off.
    """
    return began_at if protections.recovery_freezes_lac else confirmed


def may_close(end_known: bool, unconfirmed: Collection[int], protections: Protections = ALL) -> bool:
    """Whether recovery may close the ledger: it knows the end, and every entry it read has an ack quorum."""
    return end_known and (not unconfirmed or not protections.write_back_before_close)


def is_end(verdict: Verdict) -> bool:
    """Whether the recovery read of an entry shows that the ledger ends before it."""
    return verdict is Verdict.NEGATIVE
