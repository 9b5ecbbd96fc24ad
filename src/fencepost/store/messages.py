"""What clients and bookies say to each other: the operations of BookKeeper's wire protocol, without its encoding.

An entry is sent and stored as bytes that begin with ledger, entry id, LAC and length (see :mod:`fencepost.store.entries`); a bookie looks
at the first three, which :class:`AddEntry` has as fields, and takes the rest as it is. Ids of entries count from 0 and a LAC of -1
means that nothing is confirmed.
"""

from __future__ import annotations

import msgspec

from fencepost.store.rules.codes import Code

NO_ENTRY_YET = -1
"""The LAC of a ledger of which nothing is confirmed; as the entry id of a read: the last entry that there is."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A request or a response about one ledger."""

    ledger: int


class AddEntry(Message, frozen=True, gc=False):
    """Store an entry. ``recovery``: a fenced bookie takes it too. ``deferred_sync``: answer before it is durable."""

    entry_id: int
    lac: int
    body: bytes
    master_key: bytes
    recovery: bool = False
    deferred_sync: bool = False


class AddEntryResponse(Message, frozen=True, gc=False):
    """Whether the entry is stored, and durable unless ``deferred_sync`` was asked for."""

    entry_id: int
    code: Code


class ReadEntry(Message, frozen=True, gc=False):
    """Send an entry, or with entry id -1 the last one that there is. ``fence``: and take nothing more from the owner; needs the master key.

    ``previous_lac``: a long poll, with entry id -1. It is answered once the LAC is beyond it, with the entry after it, or after
    ``wait`` microseconds without one.
    """

    entry_id: int
    fence: bool = False
    master_key: bytes | None = None
    previous_lac: int | None = None
    wait: int = 0


class ReadEntryResponse(Message, frozen=True, gc=False):
    """The entry that was asked for, if the code is OK; and the highest LAC that the bookie was told."""

    entry_id: int
    code: Code
    lac: int = NO_ENTRY_YET
    body: bytes | None = None


class ReadLac(Message, frozen=True, gc=False):
    """Tell what there is of the LAC."""


class ReadLacResponse(Message, frozen=True, gc=False):
    """The LAC that was told by itself, as it came, and the last entry, which carries one: each with the digest of whoever wrote it."""

    code: Code
    lac_body: bytes | None = None
    last_entry: bytes | None = None


class WriteLac(Message, frozen=True, gc=False):
    """The LAC, told by itself because no entry comes to carry it; ``body`` is the LAC with its digest."""

    lac: int
    body: bytes
    master_key: bytes


class WriteLacResponse(Message, frozen=True, gc=False):
    """Whether the bookie has taken the LAC."""

    code: Code


class ForceLedger(Message, frozen=True, gc=False):
    """Answer when all that was added of the ledger so far is durable."""


class ForceLedgerResponse(Message, frozen=True, gc=False):
    """All that had been added of the ledger when this was asked is durable."""

    code: Code


Request = AddEntry | ReadEntry | ReadLac | WriteLac | ForceLedger
Response = AddEntryResponse | ReadEntryResponse | ReadLacResponse | WriteLacResponse | ForceLedgerResponse
