"""The persistent state of a ledger at a bookie, apart from its entries."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fencepost.ledger.messages import NO_ENTRY_YET
from fencepost.ledger.records import EntryAdded, LacWritten, LedgerFenced, LimboChanged, MasterKeyLearnt, Record
from fencepost.ledger.rules.adding import lac_of_bookie


class LedgerState(msgspec.Struct, array_like=True):
    """The state of a ledger after its records. ``explicit_lac``: the LAC in ``lac_body``."""

    ledger: int
    master_key: bytes | None = None
    fenced: bool = False
    limbo: bool = False
    lac: int = NO_ENTRY_YET
    explicit_lac: int = NO_ENTRY_YET
    lac_body: bytes | None = None

    def apply(self, record: Record) -> None:
        """Apply a record, as the role does on replay."""
        if type(record) is EntryAdded:
            self.lac = lac_of_bookie(self.lac, record.lac)
        elif type(record) is MasterKeyLearnt:
            self.master_key = record.master_key
        elif type(record) is LedgerFenced:
            self.fenced = True
        elif type(record) is LimboChanged:
            self.limbo = record.limbo
        elif type(record) is LacWritten and record.lac > self.lac:
            self.lac = self.explicit_lac = record.lac
            self.lac_body = record.body

    def records(self) -> Iterator[Record]:
        """Records that recreate this state. There is always at least one, so that a replay learns of the ledger."""
        yield LimboChanged(self.ledger, self.limbo)
        if self.master_key is not None:
            yield MasterKeyLearnt(self.ledger, self.master_key)
        if self.fenced:
            yield LedgerFenced(self.ledger)
        if self.lac_body is not None:
            yield LacWritten(self.ledger, self.explicit_lac, self.lac_body)
        if self.lac > self.explicit_lac:
            yield LacWritten(self.ledger, self.lac, b"")
