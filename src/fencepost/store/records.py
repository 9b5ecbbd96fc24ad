"""What a bookie writes to its journal, one record after another, and what it was is rebuilt from them in that order."""

from __future__ import annotations

import msgspec


class JournalRecord(msgspec.Struct, frozen=True, gc=False):
    """Something that a bookie may not forget about a ledger."""

    ledger: int


class EntryAdded(JournalRecord, frozen=True, gc=False):
    """An entry was stored; ``lac`` is the one in its body."""

    entry_id: int
    lac: int
    body: bytes


class MasterKeyLearnt(JournalRecord, frozen=True, gc=False):
    """The first key that came for a ledger is the one that it is asked for from then on."""

    master_key: bytes


class LedgerFenced(JournalRecord, frozen=True, gc=False):
    """The ledger takes nothing more from its owner."""


class LacWritten(JournalRecord, frozen=True, gc=False):
    """The LAC was told by itself; ``body`` is the LAC with its digest."""

    lac: int
    body: bytes


class LimboChanged(JournalRecord, frozen=True, gc=False):
    """The ledger was put in limbo, since entries of it may be lost (BP-46), or is whole again."""

    limbo: bool


Record = EntryAdded | MasterKeyLearnt | LedgerFenced | LacWritten | LimboChanged
