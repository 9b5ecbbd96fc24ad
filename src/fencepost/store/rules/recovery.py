"""Recovery: where it starts, what it reads and writes with what, and when it may close the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from fencepost.store.rules.codes import Verdict
from fencepost.store.rules.protections import ALL, Protections

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
