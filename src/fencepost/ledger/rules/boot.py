"""Booting: whether a bookie may have lost what it confirmed, and how it then repairs its ledgers (BP-46).

A bookie that may have lost entries or fences marks its ledgers before its first answer (phase one), and restores
missing entries while it serves (phase two). The order in phase one matters: first record that a repair is running, then
mark the ledgers, then stamp the cookies and record this run. After a crash it starts over.
"""

from __future__ import annotations

import enum

from fencepost.language.values import Record
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.ledger.rules.protections import ALL, Protections


class Run(Record):
    """A record of how a bookie runs, made durable before its first answer, or that it has shut down cleanly, after it
    flushed everything.

    ``journals_adds``: whether adds are in the journal, and the journal is synced, before they are confirmed.
    """

    journals_adds: bool
    ended_cleanly: bool = False


CLEAN_END = Run(journals_adds=False, ended_cleanly=True)
"""The record of a bookie that has shut down cleanly, or has never run."""


class Step(enum.Enum):
    """The steps of a boot. Each is durable before the next begins."""

    BEGIN_REPAIR = "begin repair"
    """Record in all directories that entries may be missing, before the repair writes any file."""
    OPEN_STORAGE = "open storage"
    """Open the storage in the directories. From now on they contain files."""
    MARK_LEDGERS = "mark ledgers"
    """Phase one."""
    STAMP_COOKIES = "stamp cookies"
    """Stamp new cookies into all directories, then into the metadata. From now on the bookie counts as having all
    directories.
    """
    NOTE_RUN = "note run"
    """Record how the bookie runs from now on, replacing the record of the last run."""
    SERVE = "serve"
    """Accept connections, and register."""


class Mark(enum.Enum):
    """How a bookie that may have lost entries marks a ledger before it answers any request."""

    LIMBO = "limbo"
    """Fence the ledger and never answer that an entry is missing. The ledger is open, and its end is still unknown."""
    FENCE = "fence"
    """Refuse adds of a writer that does not know that the ledger is closed."""
    NOTHING = "nothing"
    """The ledger never used this bookie."""


def may_have_lost_adds(run: Run | None) -> bool:
    """Whether adds confirmed by the last run may be lost: it did not shut down cleanly, and not all adds were in its
    journal.

    A missing or unreadable record (None) proves neither, so adds may be lost.
    """
    return run is None or not (run.ended_cleanly or run.journals_adds)


def steps_of_boot(
    *, has_lost_directory: bool, last_run: Run | None, protections: Protections = ALL
) -> tuple[Step, ...]:
    """The steps of a boot, in order. They include phase one if the bookie has lost a directory or may have lost adds.

    The evidence for that stays until all ledgers are marked: a directory without a cookie, or the record of the last
    run.
    """
    steps = [Step.OPEN_STORAGE]
    if has_lost_directory or may_have_lost_adds(last_run):
        steps = [Step.BEGIN_REPAIR, Step.OPEN_STORAGE, Step.MARK_LEDGERS]
    if has_lost_directory:
        steps.insert(3 if protections.cookies_follow_marks else 2, Step.STAMP_COOKIES)
    last = (Step.NOTE_RUN, Step.SERVE)
    return (*steps, *(last if protections.run_precedes_answers else reversed(last)))


def mark_of(metadata: LedgerMetadata, bookie: object, protections: Protections = ALL) -> Mark:
    """How a bookie that may have lost entries marks a ledger.

    BP-46 marks the open ledgers. A closed one is fenced too. Otherwise a bookie that has lost its fence would take adds
    of a writer that was away (scenario 1). It needs no limbo, since the metadata have its end.
    """
    if not any(bookie in fragment.ensemble for fragment in metadata.fragments):
        return Mark.NOTHING
    if metadata.status is not LedgerStatus.CLOSED and protections.boot_enters_limbo:
        return Mark.LIMBO
    return Mark.FENCE if protections.boot_fences else Mark.NOTHING


def may_leave_limbo(status: LedgerStatus, lacking: int) -> bool:
    """Whether a ledger leaves limbo: its end is fixed, and the bookie has all its entries of it."""
    return status is LedgerStatus.CLOSED and not lacking
