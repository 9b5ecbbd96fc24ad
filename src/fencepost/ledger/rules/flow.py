"""Flow: from which of its connections a bookie reads on, so that neither one client nor all together take its
memory.
"""

from __future__ import annotations

SHARE = 64 * 1024
"""Bytes that a connection may have in flight whatever others have."""


def reads_on(in_flight: int, limit: int, is_reading: bool) -> bool:
    """Whether a connection is read from, by one thing that it has in flight, of which there is a limit: below it, and
    once that was reached, only when half is done.
    """
    return in_flight < limit if is_reading else in_flight <= limit // 2


def is_crowded(in_flight: int, limit: int, was_crowded: bool) -> bool:
    """Whether all connections together have too much in flight: from the limit on, until a quarter is done."""
    return in_flight >= limit if not was_crowded else in_flight > limit - limit // 4


def waits_for_others(in_flight: int, crowded: bool) -> bool:
    """Whether a connection is not read from because all together have too much in flight: only one that has its share
    of it.
    """
    return crowded and in_flight > SHARE
