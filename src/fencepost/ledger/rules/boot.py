"""Booting: whether a bookie may have lost what it confirmed, and what it owes its ledgers then (BP-46).

A bookie that may have lost entries or fences marks its ledgers ahead of its first answer (phase one), and gets back
what it lacks while it serves (phase two). The order of phase one counts: first that a repair is under way, then the
marks of the ledgers, then the cookie and the mark of this run. A crash in between begins it anew.
"""

from __future__ import annotations

import enum

from fencepost.language.values import Record
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.ledger.rules.protections import ALL, Protections


class Run(Record):
    """How a bookie runs, as it records durably ahead of its first answer; or, once it has flushed everything, that it
    has ended cleanly.

    ``journals_adds``: whether an add is in the journal, and the journal synced, before it is confirmed.
    """

    journals_adds: bool
    ended_cleanly: bool = False


CLEAN_END = Run(journals_adds=False, ended_cleanly=True)
"""The record of a bookie that has ended cleanly, or has never run."""


class Step(enum.Enum):
    """The steps of a boot. Each is durable before the next one is begun."""

    BEGIN_REPAIR = "begin repair"
    """Note in all directories that entries may be missing, ahead of any file that comes of the repair."""
    OPEN_STORAGE = "open storage"
    """Take up what is in the directories: from now on there are files in them."""
    MARK_LEDGERS = "mark ledgers"
    """Phase one."""
    STAMP_COOKIES = "stamp cookies"
    """Stamp new cookies into all directories, and then into the metadata: the bookie counts as one that has all
    directories.
    """
    NOTE_RUN = "note run"
    """Note how it runs from now on, in place of how it ran before."""
    SERVE = "serve"
    """Take connections, and register."""


class Mark(enum.Enum):
    """The mark that a bookie that may have lost entries puts on a ledger before it answers any request."""

    LIMBO = "limbo"
    """Fence it, and never say that an entry is lacking: the ledger is not closed, and its end is still to be found."""
    FENCE = "fence"
    """Take no adds of a writer, which knows less than the metadata do: the ledger is closed."""
    NOTHING = "nothing"
    """The ledger has never been on this bookie."""


def may_have_lost_adds(run: Run | None) -> bool:
    """Whether adds that the last run has confirmed may be gone: it ended uncleanly, and its journal did not have them
    all.

    A record that is missing or cannot be read (None) says neither: only a record of a clean end is one.
    """
    return run is None or not (run.ended_cleanly or run.journals_adds)


def steps_of_boot(
    *, has_lost_directory: bool, last_run: Run | None, protections: Protections = ALL
) -> tuple[Step, ...]:
    """The steps of a boot, in order: with phase one, if it has lost a directory, or may have lost adds.

    What makes it do that is there until all ledgers are marked: a directory without the cookie, or the note of the last
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
    """The mark that a bookie that may have lost entries puts on a ledger.

    BP-46 marks the ledgers that are not closed. A closed one is fenced too: else a bookie that has lost that it was
    fenced would take the adds of a writer that was away (scenario 1). It needs no limbo, since its end is in the
    metadata.
    """
    if not any(bookie in fragment.ensemble for fragment in metadata.fragments):
        return Mark.NOTHING
    if metadata.status is not LedgerStatus.CLOSED and protections.boot_enters_limbo:
        return Mark.LIMBO
    return Mark.FENCE if protections.boot_fences else Mark.NOTHING


def may_leave_limbo(status: LedgerStatus, lacking: int) -> bool:
    """Whether a ledger leaves limbo: its end is fixed, and the bookie lacks none of the entries that belong to it."""
    return status is LedgerStatus.CLOSED and not lacking
