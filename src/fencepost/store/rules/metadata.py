"""Metadata: the life of a ledger in the metadata service, and what a client does when somebody else was faster.

Every change replaces the metadata that a client has seen and is conditional on their version.
"""

from __future__ import annotations

import enum

from fencepost.store.rules.protections import ALL, Protections


class LedgerStatus(enum.Enum):
    """The status of a ledger in the metadata service."""

    OPEN = "open"
    IN_RECOVERY = "in recovery"
    CLOSED = "closed"


class Next(enum.Enum):
    """What a client does about a change that it wants, given the metadata as they are."""

    WRITE = "write"
    """Replace the metadata, on condition of their version."""
    DONE = "done"
    """The change was made: by an earlier attempt whose answer was lost, or by somebody else to the same end."""
    GIVE_UP = "give up"
    """The ledger belongs to somebody else now."""


def takes_update(expected: int, actual: int, protections: Protections = ALL) -> bool:
    """Whether the metadata service takes a conditional update."""
    return expected == actual or not protections.conditional_updates


def to_change_ensemble(status: LedgerStatus, has_failed_bookies: bool) -> Next:
    """The owner wants its failed bookies out of the ensemble. In recovery the ledger is no longer its own."""
    if status is not LedgerStatus.OPEN:
        return Next.GIVE_UP
    return Next.WRITE if has_failed_bookies else Next.DONE


def to_close(status: LedgerStatus, ends_there: bool) -> Next:
    """The owner wants to close its ledger at its LAC; ``ends_there``: the ledger is closed at just that entry.

    The Java client also closes a ledger that somebody is recovering. That is not needed, and the specification forbids it.
    """
    if status is LedgerStatus.OPEN:
        return Next.WRITE
    return Next.DONE if status is LedgerStatus.CLOSED and ends_there else Next.GIVE_UP


def to_start_recovery(status: LedgerStatus) -> Next:
    """A client wants to recover a ledger. It writes even if somebody else is recovering, who then can not close it any more.

    ``DONE`` if the ledger is closed and there is nothing to recover.
    """
    return Next.DONE if status is LedgerStatus.CLOSED else Next.WRITE


def to_close_recovered(status: LedgerStatus, is_own_version: bool, protections: Protections = ALL) -> Next:
    """A recovery wants to close the ledger at the end it found. It gives up if anybody changed the metadata since it began.

    Whoever changed them has closed the ledger, or recovers it and was told of other entries; it is safe to begin anew.
    """
    if status is LedgerStatus.IN_RECOVERY and (is_own_version or not protections.conditional_updates):
        return Next.WRITE
    return Next.GIVE_UP
