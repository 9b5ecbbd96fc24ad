"""Booting: whether a bookie may have lost what it confirmed, and what it owes its ledgers then (BP-46).

A bookie that may have lost entries or fences marks its ledgers ahead of its first answer (phase one), and gets back what it lacks while it
serves (phase two). The order of phase one counts: first that a repair is under way, then the marks of the ledgers, then the cookie and the
mark of this run. A crash in between begins it anew.
"""

from __future__ import annotations

import enum

from fencepost.spec.values import Record
from fencepost.store.rules.metadata import LedgerMetadata, LedgerStatus


class Run(Record):
    """How a bookie runs, as it notes durably ahead of its first answer, until a shutdown that has flushed everything.

    ``journals_adds``: whether an add is in the journal, and the journal synced, before it is confirmed.
    """

    journals_adds: bool


class Mark(enum.Enum):
    """What a bookie that may have lost something owes a ledger before it answers anybody."""

    LIMBO = "limbo"
    """Fence it, and never say that an entry is lacking: the ledger is not closed, and its end is still to be found."""
    FENCE = "fence"
    """Take no adds of a writer, which knows less than the metadata do: the ledger is closed."""
    NOTHING = "nothing"
    """The ledger has never been on this bookie."""


def was_unclean(run: Run | None) -> bool:
    """Whether the last run has ended without flushing everything, given what is noted of it; None: nothing is."""
    return run is not None


def may_have_lost_adds(run: Run | None) -> bool:
    """Whether adds that the last run has confirmed may be gone: it ended uncleanly, and its journal did not have them all."""
    return run is not None and not run.journals_adds


def mark_of(metadata: LedgerMetadata, bookie: str) -> Mark:
    """What a bookie that may have lost something owes a ledger.

    BP-46 marks the ledgers that are not closed. A closed one is fenced too: else a bookie that has lost that it was fenced would take the adds
    of a writer that was away (scenario 1). It needs no limbo, since its end is in the metadata.
    """
    if not any(bookie in fragment.ensemble for fragment in metadata.fragments):
        return Mark.NOTHING
    return Mark.FENCE if metadata.status is LedgerStatus.CLOSED else Mark.LIMBO


def may_leave_limbo(status: LedgerStatus, lacking: int) -> bool:
    """Whether a ledger leaves limbo: its end is settled, and the bookie lacks none of the entries that belong to it."""
    return status is LedgerStatus.CLOSED and not lacking
