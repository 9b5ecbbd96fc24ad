"""Auditing: who the auditor is, when it publishes the ledgers of a lost bookie, and how long a failed repair pauses.

These are the rules of BookKeeper's ``Auditor``, ``ZkLedgerAuditorManager`` and ``ReplicationWorker`` (4.17), so that
auditors and workers of both implementations can coexist. Two rules differ: a bookie already lost when an auditor starts
gets the same delay as any other, and the mark of a locked ledger is written again (:func:`to_publish`).
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from fencepost.language.values import Record

B = TypeVar("B")

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


def met(watched: Watched, registered: Collection[str]) -> Watched:
    """What an auditor knows when these bookies are registered, even if it is in the middle of an audit. One that stops
    again before the audit ends is lost anew: the audit may have passed its ledgers while it was registered.
    """
    return watched.replace(known=watched.known | frozenset(registered))


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


def to_publish(published: Sequence[B] | None, missing: Collection[B], is_locked: bool) -> tuple[B, ...] | None:
    """The bookies that the mark of an under-replicated ledger must name, given those that it names; None if it stays as
    it is. ``published`` is None if there is no mark.

    The mark of a locked ledger is written even if it stays the same, so that its version grows: its worker may have
    seen all bookies registered before this loss, and must not remove it. BookKeeper's auditor leaves it as it is.
    """
    news = tuple(sorted(frozenset(missing).difference(published or ())))  # type: ignore[type-var]
    return (*(published or ()), *news) if news or is_locked or published is None else None


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
