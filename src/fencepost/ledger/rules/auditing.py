"""Auditing: who is the auditor, when it publishes the ledgers of a bookie that is lost, and how long a failed repair
rests.

The rules of BookKeeper's ``Auditor``, ``ZkLedgerAuditorManager`` and ``ReplicationWorker`` (4.17), so that auditors
and workers of both kinds can take turns. One departs: a bookie that is found lost when an auditor begins is waited for
as long as any other.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

from fencepost.language.values import Record

VOTE = "V_"
"""How the names of votes begin, before their numbers."""

_DOUBLINGS = 5
"""So often the time doubles that a ledger rests after a failed repair."""


class Due(enum.Enum):
    """When the ledgers of lost bookies are published."""

    NOTHING = "nothing"
    """No bookie is lost that was not audited yet."""
    LATER = "later"
    """One is, and may come back within the delay."""
    NOW = "now"


class Watched(Record):
    """An auditor's knowledge of bookies. ``known``: bookies that should be registered; ``waiting``: bookies that are
    lost and not audited yet."""

    known: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()


def seen(watched: Watched, registered: Collection[str], delay: float) -> tuple[Watched, Due]:
    """The next step of an auditor when these bookies are registered. It waits for one lost bookie; not for several at
    once."""
    known = watched.known | frozenset(registered)
    waiting = (watched.waiting | known).difference(registered)
    watched = Watched(known=known - waiting, waiting=waiting)
    if not waiting:
        return watched, Due.NOTHING
    return watched, Due.NOW if delay <= 0 or len(waiting) > 1 else Due.LATER


def audited(watched: Watched) -> Watched:
    """The ledgers of all lost bookies are published: nothing more follows from them until they have been back."""
    return Watched(known=watched.known)


def is_asked_for(delay: float, before: float) -> bool:
    """Whether somebody who sets the delay asks for an audit at once: by none, and by the one that it has already."""
    return delay <= 0 or delay == before


def in_order(votes: Iterable[str]) -> list[str]:
    """Votes for an auditor, the oldest first. Whoever has cast that is the auditor; each of the others waits for the
    one before its own."""
    return sorted((vote for vote in votes if vote.startswith(VOTE)), key=lambda vote: int(vote.removeprefix(VOTE)))


def rest(failures: int, longest: float) -> float:
    """How long nobody tries a ledger again whose repair has failed so many times, the first time included."""
    return float(longest / 2**_DOUBLINGS * 2 ** min(failures - 1, _DOUBLINGS))
