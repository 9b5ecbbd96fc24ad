"""Auditing: who the auditor is, when it publishes the ledgers of a lost bookie, and how long a failed repair pauses.

These are the rules of BookKeeper's ``Auditor``, ``ZkLedgerAuditorManager`` and ``ReplicationWorker`` (4.17), so that
auditors and workers of both implementations can coexist. One rule differs: a bookie already lost when an auditor starts
gets the same delay as any other.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

from fencepost.language.values import Record

VOTE = "V_"
"""The prefix of the names of votes, before their numbers."""

_DOUBLINGS = 5
"""How many times the pause of a ledger doubles after failed repairs."""


class Due(enum.Enum):
    """When the ledgers of lost bookies are published."""

    NOTHING = "nothing"
    """No bookie was lost since the last audit."""
    LATER = "later"
    """One bookie is lost, and may come back within the delay."""
    NOW = "now"


class Watched(Record):
    """What an auditor knows. ``known``: bookies that should be registered. ``waiting``: lost bookies that are not
    audited yet.
    """

    known: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()


def seen(watched: Watched, registered: Collection[str], delay: float) -> tuple[Watched, Due]:
    """An auditor's next step, given the registered bookies. It delays for one lost bookie, but not for several at
    once.
    """
    known = watched.known | frozenset(registered)
    waiting = (watched.waiting | known).difference(registered)
    watched = Watched(known=known - waiting, waiting=waiting)
    if not waiting:
        return watched, Due.NOTHING
    return watched, Due.NOW if delay <= 0 or len(waiting) > 1 else Due.LATER


def audited(watched: Watched) -> Watched:
    """The ledgers of all lost bookies are published. Nothing more is done about these bookies until they come back."""
    return Watched(known=watched.known)


def is_asked_for(delay: float, before: float) -> bool:
    """Whether setting the delay requests an immediate audit: yes if it is zero or unchanged."""
    return delay <= 0 or delay == before


def in_order(votes: Iterable[str]) -> list[str]:
    """Votes for an auditor, oldest first. The oldest vote's node is the auditor. Each other node waits for the vote
    before its own.
    """
    return sorted((vote for vote in votes if vote.startswith(VOTE)), key=lambda vote: int(vote.removeprefix(VOTE)))


def rest(failures: int, longest: float) -> float:
    """How long to pause a ledger whose repair has failed ``failures`` times, at least once."""
    return float(longest / 2**_DOUBLINGS * 2 ** min(failures - 1, _DOUBLINGS))
