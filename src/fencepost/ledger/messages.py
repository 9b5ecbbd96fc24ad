"""The messages of clients and bookies: the operations of BookKeeper's wire protocol, without its encoding.

The bytes of an entry begin with ledger, entry id, LAC and length (see :mod:`fencepost.ledger.entries`). A bookie reads
the first three, which :class:`AddEntry` has as fields, and stores the rest unread. Entry ids start at 0. A LAC of -1
means that nothing is confirmed.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from fencepost.ledger.rules.codes import Code

NO_ENTRY_YET = -1
"""The LAC of a ledger with nothing confirmed. As the entry id of a read: the last entry."""


LAST_ENTRY = (1 << 63) - 2
"""The largest id of an entry. The next id still fits in eight bytes."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A request or a response about one ledger."""

    ledger: int


class BookieMessage(msgspec.Struct, frozen=True, gc=False):
    """A request or a response about the bookie or the connection. ``ledger`` is an id that no ledger has."""

    ledger: ClassVar[int] = -1


class AddEntry(Message, frozen=True, gc=False):
    """Store an entry. ``recovery``: store it even if the ledger is fenced. ``deferred_sync``: answer before it is
    durable.
    """

    entry_id: int
    lac: int
    body: bytes
    master_key: bytes
    recovery: bool = False
    deferred_sync: bool = False


class AddEntryResponse(Message, frozen=True, gc=False):
    """Whether the entry is stored, and is durable unless the request had ``deferred_sync``."""

    entry_id: int
    code: Code


class ReadEntry(Message, frozen=True, gc=False):
    """Send an entry, or with entry id -1 the last one. ``fence``: also refuse the owner's adds from now on. Needs the
    master key.

    ``previous_lac``: a long poll, answered once the LAC exceeds it or after ``wait`` microseconds. With ``piggyback``,
    which goes with entry id -1, the answer is the entry after ``previous_lac`` if that is confirmed. Otherwise it is
    the requested entry.
    """

    entry_id: int
    fence: bool = False
    master_key: bytes | None = None
    previous_lac: int | None = None
    wait: int = 0
    piggyback: bool = True


class ReadEntryResponse(Message, frozen=True, gc=False):
    """The requested entry if the code is OK, and the highest LAC that the bookie has learnt.

    ``entry_id`` is the requested id, -1 for the last entry. After a long poll it is the id of the entry in ``body``, if
    there is one.
    """

    entry_id: int
    code: Code
    lac: int = NO_ENTRY_YET
    body: bytes | None = None


class ReadLac(Message, frozen=True, gc=False):
    """Send what the bookie knows about the LAC."""


class ReadLacResponse(Message, frozen=True, gc=False):
    """The explicit LAC, as it was received, and the last entry, which carries a LAC. Both have their writer's
    digest.
    """

    code: Code
    lac_body: bytes | None = None
    last_entry: bytes | None = None


class WriteLac(Message, frozen=True, gc=False):
    """An explicit LAC, sent because no entry follows to carry it. ``body`` is the LAC with its digest."""

    lac: int
    body: bytes
    master_key: bytes


class WriteLacResponse(Message, frozen=True, gc=False):
    """Whether the bookie has stored the LAC."""

    code: Code


class ForceLedger(Message, frozen=True, gc=False):
    """Answer once all entries added to the ledger so far are durable."""


class ForceLedgerResponse(Message, frozen=True, gc=False):
    """All entries added to the ledger before the request are durable."""

    code: Code


class BatchRead(Message, frozen=True, gc=False):
    """Send consecutive entries from ``entry_id`` up to the first gap: at most ``max_count`` entries, and at most
    ``max_size`` bytes of response, but always the first entry. Zero or less: the bookie's own limit. ``fence`` as in
    :class:`ReadEntry`.
    """

    entry_id: int
    max_count: int = 0
    max_size: int = 0
    fence: bool = False
    master_key: bytes | None = None


class BatchReadResponse(Message, frozen=True, gc=False):
    """The bodies of consecutive entries from ``entry_id``, the first requested id. Empty unless the code is OK."""

    entry_id: int
    code: Code
    bodies: tuple[bytes, ...] = ()


class ListEntries(Message, frozen=True, gc=False):
    """List the entries of the ledger that the bookie has."""


class ListEntriesResponse(Message, frozen=True, gc=False):
    """The entries that the bookie has, as runs of a first and a last id: ascending and not adjacent."""

    code: Code
    runs: tuple[tuple[int, int], ...] = ()


class GetBookieInfo(BookieMessage, frozen=True, gc=False):
    """Send the size of the bookie's disks, if ``total``, and their free space, if ``free``."""

    total: bool = True
    free: bool = True


class GetBookieInfoResponse(BookieMessage, frozen=True, gc=False):
    """The requested sizes, in bytes."""

    code: Code
    total: int | None = None
    free: int | None = None


class Auth(BookieMessage, frozen=True, gc=False):
    """One step of an authentication by a plug-in."""

    plugin: str
    payload: bytes = b""


class AuthResponse(BookieMessage, frozen=True, gc=False):
    """The other side's step. A bookie without plug-ins answers :data:`NO_AUTHENTICATION`: it needs none."""

    code: Code
    plugin: str
    payload: bytes = b""


NO_AUTHENTICATION = "AuthDisabledPlugin"
SASL = "sasl"
"""BookKeeper's plug-in for SASL. Service and host name of its server are always ``bookkeeper``."""
SASL_NAME = "bookkeeper"


class StartTls(BookieMessage, frozen=True, gc=False):
    """Continue under TLS. After the response, the client's next bytes start the handshake."""


class StartTlsResponse(BookieMessage, frozen=True, gc=False):
    """Whether the bookie continues under TLS."""

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
