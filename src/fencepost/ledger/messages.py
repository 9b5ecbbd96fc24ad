"""The messages of clients and bookies: the operations of BookKeeper's wire protocol, without its encoding.

An entry is sent and stored as bytes that begin with ledger, entry id, LAC and length (see
:mod:`fencepost.ledger.entries`); a bookie looks at the first three, which :class:`AddEntry` has as fields, and takes
the rest as it is. Ids of entries count from 0 and a LAC of -1 means that nothing is confirmed.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from fencepost.ledger.rules.codes import Code

NO_ENTRY_YET = -1
"""The LAC of a ledger of which nothing is confirmed; as the entry id of a read: the last entry that there is."""


LAST_ENTRY = (1 << 63) - 2
"""The largest id that an entry can have: the one after it is still a number of eight bytes."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A request or a response about one ledger."""

    ledger: int


class BookieMessage(msgspec.Struct, frozen=True, gc=False):
    """A request or a response about the bookie or the connection. ``ledger`` is the id that no ledger has."""

    ledger: ClassVar[int] = -1


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
    """Send an entry, or with entry id -1 the last one that there is. ``fence``: and take nothing more from the owner;
    needs the master key.

    ``previous_lac``: a long poll. It is answered once the LAC is beyond it, or after ``wait`` microseconds: with
    ``piggyback``, which goes with entry id -1, by the entry after it if that is confirmed, and else by the entry that
    is asked for.
    """

    entry_id: int
    fence: bool = False
    master_key: bytes | None = None
    previous_lac: int | None = None
    wait: int = 0
    piggyback: bool = True


class ReadEntryResponse(Message, frozen=True, gc=False):
    """The entry that was asked for, if the code is OK; and the highest LAC that the bookie has learnt.

    ``entry_id`` is the one that was asked for, -1 for the last; after a long poll it is that of the entry in ``body``,
    if one came along.
    """

    entry_id: int
    code: Code
    lac: int = NO_ENTRY_YET
    body: bytes | None = None


class ReadLac(Message, frozen=True, gc=False):
    """Tell what there is of the LAC."""


class ReadLacResponse(Message, frozen=True, gc=False):
    """The explicit LAC, as it was received, and the last entry, which carries a LAC: each with the digest of its
    writer.
    """

    code: Code
    lac_body: bytes | None = None
    last_entry: bytes | None = None


class WriteLac(Message, frozen=True, gc=False):
    """The explicit LAC, sent because no entry comes to carry it; ``body`` is the LAC with its digest."""

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


class BatchRead(Message, frozen=True, gc=False):
    """Send the entries from ``entry_id`` on, without a gap: the first, and more while they are no more than
    ``max_count`` and the response takes no more than ``max_size`` bytes; zero or less: as many, and as much, as the
    bookie allows. ``fence`` as in :class:`ReadEntry`.
    """

    entry_id: int
    max_count: int = 0
    max_size: int = 0
    fence: bool = False
    master_key: bytes | None = None


class BatchReadResponse(Message, frozen=True, gc=False):
    """The bodies of entries one after another from ``entry_id`` on, the first that was asked for; none unless the code
    is OK.
    """

    entry_id: int
    code: Code
    bodies: tuple[bytes, ...] = ()


class ListEntries(Message, frozen=True, gc=False):
    """Tell which entries of the ledger there are."""


class ListEntriesResponse(Message, frozen=True, gc=False):
    """The entries that there are, as runs from a first to a last id, ascending and not adjacent."""

    code: Code
    runs: tuple[tuple[int, int], ...] = ()


class GetBookieInfo(BookieMessage, frozen=True, gc=False):
    """Tell how large the bookie's disks are, if ``total``, and how much of them is free, if ``free``."""

    total: bool = True
    free: bool = True


class GetBookieInfoResponse(BookieMessage, frozen=True, gc=False):
    """The sizes that were asked for, in bytes."""

    code: Code
    total: int | None = None
    free: int | None = None


class Auth(BookieMessage, frozen=True, gc=False):
    """A step of an authentication by a plug-in."""

    plugin: str
    payload: bytes = b""


class AuthResponse(BookieMessage, frozen=True, gc=False):
    """The other side's step. A bookie without plug-ins says by :data:`NO_AUTHENTICATION` that it needs none."""

    code: Code
    plugin: str
    payload: bytes = b""


NO_AUTHENTICATION = "AuthDisabledPlugin"
SASL = "sasl"
"""BookKeeper's plug-in for SASL. Both names of its server are ``bookkeeper``, whatever the host is."""
SASL_NAME = "bookkeeper"


class StartTls(BookieMessage, frozen=True, gc=False):
    """Go on under TLS: after the response, the next bytes are the client's first of the handshake."""


class StartTlsResponse(BookieMessage, frozen=True, gc=False):
    """Whether the bookie goes on under TLS."""

    code: Code


Request = (
    AddEntry | ReadEntry | BatchRead | ReadLac | WriteLac | ForceLedger | ListEntries | GetBookieInfo | Auth | StartTls
)
Response = (
    AddEntryResponse
    | ReadEntryResponse
    | BatchReadResponse
    | ReadLacResponse
    | WriteLacResponse
    | ForceLedgerResponse
    | ListEntriesResponse
    | GetBookieInfoResponse
    | AuthResponse
    | StartTlsResponse
)
