"""Flow control: which connections a bookie reads from, so that neither one client nor all of them exhaust its
memory.
"""

from __future__ import annotations

SHARE = 64 * 1024
"""Bytes in flight that every connection may have, whatever the others have."""


def reads_on(in_flight: int, limit: int, is_reading: bool) -> bool:
    """Whether to read from a connection, given its number of something in flight and the limit. It stops at the limit
    and resumes at half of it.
    """
    return in_flight < limit if is_reading else in_flight <= limit // 2


def is_crowded(in_flight: int, limit: int, was_crowded: bool) -> bool:
    """Whether all connections together have too much in flight: from the limit down to three quarters of it."""
    return in_flight >= limit if not was_crowded else in_flight > limit - limit // 4


def waits_for_others(in_flight: int, crowded: bool) -> bool:
    """Whether to stop reading from a connection because all together have too much in flight. Only those over their
    share stop.
    """
    return crowded and in_flight > SHARE
