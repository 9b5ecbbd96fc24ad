"""The records of a bookie's journal. Replaying them in order rebuilds the bookie's state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fencepost.ledger.entries import runs_of


class JournalRecord(msgspec.Struct, frozen=True, gc=False):
    """Something about a ledger that a bookie must not forget."""

    ledger: int


class EntryAdded(JournalRecord, frozen=True, gc=False):
    """An entry was stored. ``lac`` is the one in its body. ``recovery``: a recovery or a repair sent it. The journal
    does not keep that.
    """

    entry_id: int
    lac: int
    body: bytes
    recovery: bool = False


class MasterKeyLearnt(JournalRecord, frozen=True, gc=False):
    """The first key received for a ledger. Later requests must present the same key."""

    master_key: bytes


class LedgerFenced(JournalRecord, frozen=True, gc=False):
    """The ledger takes no more entries from its owner."""


class LacWritten(JournalRecord, frozen=True, gc=False):
    """An explicit LAC was received. ``body`` is the LAC with its digest."""

    lac: int
    body: bytes


class LimboChanged(JournalRecord, frozen=True, gc=False):
    """The ledger went into limbo because entries of it may be lost (BP-46), or left it."""

    limbo: bool


Record = EntryAdded | MasterKeyLearnt | LedgerFenced | LacWritten | LimboChanged


def recovered(records: Iterable[Record]) -> dict[int, dict[str, Any]]:
    """The fields of a trace for records that a journal still held after a crash. The records may never have been
    synced.

    For each ledger: its added entries, as runs, and whether it was fenced or put in limbo.
    """
    found: dict[int, dict[str, Any]] = {}
    for record in records:
        of_ledger = found.setdefault(record.ledger, {"entries": [], "fenced": False, "limbo": False})
        if type(record) is EntryAdded:
            of_ledger["entries"].append(record.entry_id)
        elif type(record) is LedgerFenced:
            of_ledger["fenced"] = True
        elif type(record) is LimboChanged:
            of_ledger["limbo"] = record.limbo
    return {ledger: {**fields, "entries": runs_of(sorted(fields["entries"]))} for ledger, fields in found.items()}
