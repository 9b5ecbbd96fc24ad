"""Recovery: where it starts, what it still has to write, and when it may close the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from fencepost.store.rules.protections import ALL, Protections

B = TypeVar("B")


def confirmed_before(lacs: Iterable[int], first_entry_of_fragment: int, protections: Protections = ALL) -> int:
    """The last entry that recovery takes for confirmed without reading it: it reads from the next one on.

    That is the highest LAC of any bookie, and at least the end of the last fragment but one: an older fragment ends only
    where everything before is committed, and its bookies are not asked.
    """
    start = first_entry_of_fragment - 1
    return max([*lacs, start]) if protections.recovery_starts_at_fragment else max(lacs, default=start)


def may_close(end_known: bool, unconfirmed: Collection[int], protections: Protections = ALL) -> bool:
    """Whether recovery may close the ledger: it knows the end, and all that it read has an ack quorum."""
    return end_known and (not unconfirmed or not protections.write_back_before_close)
