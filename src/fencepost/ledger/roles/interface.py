"""The events and effects of a role: what happens to it, and what it wants done.

A driver delivers events one at a time, in the order in which they happen, and carries out effects in the order it
receives them. A client's request has a number, ``txn``. Its answer, failure or timer carries the same number.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from fencepost.ledger.messages import NO_ENTRY_YET, AddEntry, Request, Response
from fencepost.ledger.records import Record
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.metadata import LedgerMetadata
from fencepost.ledger.rules.placement import ANYWHERE, Placement, Unplaced


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happened."""


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Something to be done."""


class Role(Protocol):
    """A state machine. Only events cause effects."""

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Take an event at a time in microseconds, which never decreases. Gives the effects in order."""


# -- timers, for every role -------------------------------------------------------------------------------------------


class SetTimer(Effect, frozen=True, gc=False):
    """Deliver a :class:`TimerFired` with ``key`` after ``delay`` microseconds, plus a random part of ``jitter`` drawn
    by the driver. It may be up to ``slack`` later, so that timers of several roles fire together.

    A role ignores timers that it no longer waits for.
    """

    key: Any
    delay: int
    jitter: int = 0
    slack: int = 0


class TimerFired(Event, frozen=True, gc=False):
    """A timer fired."""

    key: Any


# -- traces, for every role -------------------------------------------------------------------------------------------


class Trace(Effect, frozen=True, gc=False):
    """Record an action of the role in the trace. Its position among the effects is where the action takes effect.

    ``action`` is the action's name in the protocol, if it has one. ``ledger`` is None for actions about all ledgers.
    ``connection``: the one over which a bookie received the request. A role has this effect only if it was created with
    ``traces``. Drivers only record it.
    """

    action: str
    ledger: int | None
    fields: dict[str, Any]
    connection: int | None = None


class OfLedger:
    """The common part of client roles: the role's ledger, and its trace."""

    ledger: int
    traces: bool

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def _trace(self, effects: list[Effect], action: str, fields: dict[str, Any]) -> None:
        if self.traces:
            effects.append(Trace(action, self.ledger, fields))


# -- a client and its bookies -----------------------------------------------------------------------------------------


class Send(Effect, frozen=True, gc=False):
    """Send a request to a bookie. Exactly one :class:`Received` or :class:`Unanswered` with this ``txn`` must
    follow.
    """

    txn: int
    bookie: str
    request: Request


class Received(Event, frozen=True, gc=False):
    """A bookie answered."""

    txn: int
    bookie: str
    response: Response


class Unanswered(Event, frozen=True, gc=False):
    """A bookie did not answer in time, or the connection broke. It may or may not have carried out the request."""

    txn: int
    bookie: str


class AddBatch(Protocol):
    """Adds of consecutive entries of one ledger, from ``first``."""

    first: int

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> AddEntry:
        """One of the adds as a request."""

    def length(self, index: int) -> int:
        """Bytes of data in the ledger up to and including one of the entries."""


class SendAdds(Effect, frozen=True, gc=False):
    """Send the adds of a batch that belong to the bookie at ``place`` in the ensemble. Each entry must come back once,
    in an :class:`AddsAnswered` with the same ``attempt``.
    """

    bookie: str
    adds: AddBatch
    place: int
    ensemble_size: int
    write_quorum: int
    attempt: int = 0


class AddsAnswered(Event, frozen=True, gc=False):
    """A bookie gave the adds of these entries the same answer. None: it did not answer in time, or the connection
    broke.
    """

    bookie: str
    entry_ids: Sequence[int]
    code: Code | None
    attempt: int = 0


class SendReads(Effect, frozen=True, gc=False):
    """Request entries of a reading from a bookie. Each entry must come back once, in a :class:`ReadsAnswered`."""

    reading: int
    bookie: str
    entry_ids: Sequence[int]


class ReadsAnswered(Event, frozen=True, gc=False):
    """A bookie gave the reads of these entries the same answer. None: it did not answer in time, or the connection
    broke.

    With OK the driver holds the data, and ``lac`` is the highest LAC received with them. ``is_damaged``: the bookie's
    data are no copies of the entries.
    """

    reading: int
    bookie: str
    entry_ids: Sequence[int]
    code: Code | None
    is_damaged: bool = False
    lac: int = NO_ENTRY_YET


class Disconnected(Event, frozen=True, gc=False):
    """The connection to a bookie was lost. This event comes before anything is sent over the next connection.

    The bookie may have restarted, and may have lost what was not durable.
    """

    bookie: str


# -- a client and the metadata service --------------------------------------------------------------------------------


class CreateMetadata(Effect, frozen=True, gc=False):
    """Create the metadata of a new ledger. A :class:`MetadataAnswer` follows."""

    txn: int
    ledger: int
    metadata: LedgerMetadata


class ReadMetadata(Effect, frozen=True, gc=False):
    """Read the metadata of a ledger. ``watch``: send one notification when they change."""

    txn: int
    ledger: int
    watch: bool = False


class WriteMetadata(Effect, frozen=True, gc=False):
    """Replace the metadata of a ledger if they still have this version."""

    txn: int
    ledger: int
    metadata: LedgerMetadata
    version: int


class Outcome(enum.Enum):
    """How an operation on metadata ended."""

    OK = "ok"
    NO_LEDGER = "no ledger"
    EXISTS = "exists"
    BAD_VERSION = "bad version"
    UNKNOWN = "unknown"
    """The connection or the session was lost. The operation may have been done, or may still be done."""


class MetadataAnswer(Event, frozen=True, gc=False):
    """The outcome of an operation on metadata. OK comes with the version, and with the metadata if they were read."""

    txn: int
    outcome: Outcome
    version: int = -1
    metadata: LedgerMetadata | None = None


class MetadataChanged(Event, frozen=True, gc=False):
    """The metadata of a watched ledger have changed. There is no further notification until they are read again."""

    ledger: int


class BookiesChanged(Event, frozen=True, gc=False):
    """The registered writable bookies, in order of preference. ``suspects``: those that have failed this client of
    late.
    """

    bookies: tuple[str, ...]
    suspects: frozenset[str] = frozenset()
    placement: Placement = ANYWHERE


class SessionExpired(Event, frozen=True, gc=False):
    """The session with the metadata service expired. Its watches are gone, and the driver opens a new session.

    Operations in progress are answered separately, with :attr:`Outcome.UNKNOWN`.
    """


# -- a client and its caller ------------------------------------------------------------------------------------------


class Call(Event, frozen=True, gc=False):
    """The caller starts an operation. The :class:`Result` has the same ``token``."""

    token: int
    operation: str
    arguments: tuple[Any, ...] = ()


class Append(Event, frozen=True, gc=False):
    """The caller appends entries. :class:`Confirmed` reports the confirmed ones. A :class:`Result` with the ``token``
    reports an error, if there is one.
    """

    token: int
    entries: Sequence[bytes]


class Confirmed(Effect, frozen=True, gc=False):
    """The entries from :class:`Append` are confirmed up to ``entry_id``. ``length``: bytes of data in the ledger up to
    there.
    """

    entry_id: int
    length: int


class Error(enum.StrEnum):
    """Why a call failed, as the name of BookKeeper's exception, and what else is known after a colon. Empty for
    success.
    """

    NONE = ""
    LEDGER_EXISTS = "LedgerExistException"
    NO_LEDGER = "NoSuchLedgerExistsException"
    NO_ENTRY = "NoSuchEntryException"
    NOT_ENOUGH_BOOKIES = "NotEnoughBookiesException"
    PLACEMENT_UNMET = "NotEnoughBookiesException: placement unmet"
    """There is no ensemble that is as the placement asks."""
    PLACEMENT_UNKNOWN = "NotEnoughBookiesException: placement unknown"
    """The search for such an ensemble came to its limit."""
    LEDGER_CLOSED = "LedgerClosedException"
    LEDGER_FENCED = "LedgerFencedException"
    UNAUTHORIZED = "UnauthorizedAccessException"
    WRITE_FAILED = "WriteException"
    READ_FAILED = "ReadException"
    RECOVERY_FAILED = "LedgerRecoveryException"
    DATA_UNKNOWN = "DataUnknownException"
    """Too many bookies cannot say whether they have an entry, so it is unknown whether the entry was committed."""
    DIGEST_MISMATCH = "DigestMatchException"
    """Every copy of an entry is damaged."""
    BAD_CALL = "IllegalOpException"


PLACING = {
    Unplaced.TOO_FEW: Error.NOT_ENOUGH_BOOKIES,
    Unplaced.UNMET: Error.PLACEMENT_UNMET,
    Unplaced.UNKNOWN: Error.PLACEMENT_UNKNOWN,
}
"""The errors of a call that needs an ensemble, by what its search has found out."""


class Result(Effect, frozen=True, gc=False):
    """The outcome of a call."""

    token: int
    value: Any = None
    error: Error = Error.NONE


class ReadEntries(Event, frozen=True, gc=False):
    """The caller wants the entries from ``first`` to ``last`` inclusive. One :class:`ReadOver` with the ``token``,
    which is above 0, must follow.
    """

    token: int
    first: int
    last: int


class WantEntries(Event, frozen=True, gc=False):
    """Callers want single entries, none of them wanted before. Each entry ends with its data, or with a
    :class:`ReadOver` of its own.
    """

    entry_ids: Sequence[int]


class ForgetReads(Event, frozen=True, gc=False):
    """The entries of a token are no longer wanted. 0: all single entries."""

    token: int


class ReadOver(Effect, frozen=True, gc=False):
    """A read ended. With a ``token`` above 0, the entries before ``stop`` have arrived, and with an ``error`` the entry
    ``stop`` cannot be read. Otherwise ``stop`` is a single entry that cannot be read.
    """

    token: int
    stop: int
    error: Error


# -- a bookie, its clients and its disk -------------------------------------------------------------------------------


class RequestArrived(Event, frozen=True, gc=False):
    """A request arrived that is neither an add nor a plain read: for those see :class:`AddsArrived` and
    :class:`ReadsArrived`.
    """

    connection: int
    txn: int
    request: Request


class Answer(Effect, frozen=True, gc=False):
    """Answer a request over its connection. Ignored if the connection is gone."""

    connection: int
    txn: int
    response: Response


class Adds(Protocol):
    """Adds of one ledger that arrived together, with the same master key and flags. ``lac`` is the highest LAC in them.

    The driver holds the entries. The role knows their number and their order.
    """

    @property
    def ledger(self) -> int: ...

    @property
    def master_key(self) -> bytes: ...

    @property
    def recovery(self) -> bool: ...

    @property
    def deferred_sync(self) -> bool: ...

    @property
    def lac(self) -> int: ...

    @property
    def low(self) -> int:
        """The lowest entry id."""

    @property
    def high(self) -> int:
        """The highest entry id."""

    def __len__(self) -> int:
        """The number of adds."""

    def entry_ids(self) -> Sequence[int]:
        """The ids of the added entries, in order."""

    def last_place(self, entry_id: int) -> int:
        """The index of the last add of an entry, -1 if there is none."""


class AddsArrived(Event, frozen=True, gc=False):
    """Consecutive adds arrived over a connection. Each of ``adds`` has those of one ledger. The outcome is the same as
    if each arrived alone.
    """

    connection: int
    adds: tuple[Adds, ...]


class AnswerAdds(Effect, frozen=True, gc=False):
    """Answer all of these adds over their connection. Ignored if the connection is gone."""

    connection: int
    adds: tuple[Adds, ...]
    code: Code


class Reads(Protocol):
    """Plain reads of one ledger that arrived together and have the same code. They have no fence and no long poll. The
    driver holds the data.
    """

    low: int
    """The lowest entry id."""
    high: int
    """The highest entry id."""

    def __len__(self) -> int:
        """The number of reads."""

    def entry_ids(self) -> list[int]:
        """The ids of the entries, in order."""

    def only(self, which: list[int]) -> Reads:
        """The reads at some indices."""


class ReadsArrived(Event, frozen=True, gc=False):
    """``count`` consecutive plain reads arrived over a connection. The outcome is the same as if each arrived alone."""

    connection: int
    count: int


class LookUpReads(Effect, frozen=True, gc=False):
    """Look up the entries of the first ``count`` reads. :class:`ReadsFound` follow for all of them. The remaining reads
    are answered ``TOO_MANY_REQUESTS``.
    """

    number: int
    connection: int
    count: int


class ReadsFound(Event, frozen=True, gc=False):
    """The outcome of some look-ups of a :class:`LookUpReads`, of one ledger and with one code."""

    number: int
    ledger: int
    code: Code
    reads: Reads


class AnswerReads(Effect, frozen=True, gc=False):
    """Answer all of these reads over their connection, with the entries if the code is OK. Ignored if the connection is
    gone.
    """

    connection: int
    reads: Reads
    code: Code
    lac: int


class ConnectionClosed(Event, frozen=True, gc=False):
    """A connection is gone. Its requests need no answers."""

    connection: int


class Journal(Effect, frozen=True, gc=False):
    """Append a record to the journal. ``position`` counts this process's records from 1. They become durable in this
    order.
    """

    position: int
    record: Record


class JournalAdds(Effect, frozen=True, gc=False):
    """Append the entries of these adds to the journal, the last one at ``position``, and store them for
    :class:`LookUp`. An entry replaces an earlier one with its id. The entries become durable together.
    """

    position: int
    adds: tuple[Adds, ...]


class Replayed(Event, frozen=True, gc=False):
    """A journal record from before the process started. Records are replayed in order, before any other event. The
    driver keeps the entries in them. For an entry it replays only the LAC, as a
    :class:`fencepost.ledger.records.LacWritten` without a body.
    """

    record: Record


class JournalSynced(Event, frozen=True, gc=False):
    """All records up to ``position`` are durable."""

    position: int


class JournalFailed(Event, frozen=True, gc=False):
    """A write or a sync of the journal failed. The bookie must stop, because its state may never become durable."""


class LookUp(Effect, frozen=True, gc=False):
    """Look up an entry, or with entry id -1 the last entry of the ledger. A :class:`Found` follows."""

    number: int
    ledger: int
    entry_id: int


class Found(Event, frozen=True, gc=False):
    """The outcome of a look-up: OK with the entry, ``NO_ENTRY``, or ``IO_ERROR`` for an entry that should exist but
    cannot be read.
    """

    number: int
    code: Code
    entry_id: int = -1
    body: bytes | None = None


class LookUpBatch(Effect, frozen=True, gc=False):
    """Look up consecutive entries, as :func:`fencepost.ledger.rules.reading.batch` does. A :class:`BatchFound`
    follows.
    """

    number: int
    ledger: int
    entry_id: int
    max_count: int
    max_size: int


class BatchFound(Event, frozen=True, gc=False):
    """The outcome of a batch: OK with at least one entry, or the code for the first entry."""

    number: int
    code: Code
    bodies: tuple[bytes, ...] = ()


class FindRuns(Effect, frozen=True, gc=False):
    """List the stored entries of a ledger. A :class:`RunsFound` follows."""

    number: int
    ledger: int


class RunsFound(Event, frozen=True, gc=False):
    """The stored entries, as runs of a first and a last id: ascending and not adjacent. ``IO_ERROR``: they cannot be
    listed.
    """

    number: int
    code: Code
    runs: tuple[tuple[int, int], ...] = ()


class Measure(Effect, frozen=True, gc=False):
    """Measure the size and the free space of the disks with entries. A :class:`Measured` follows."""

    number: int


class Measured(Event, frozen=True, gc=False):
    """The size and the free space of the disks, in bytes."""

    number: int
    total: int
    free: int


class Forget(Effect, frozen=True, gc=False):
    """Delete everything of a deleted ledger. :class:`LookUp` no longer finds its entries."""

    ledger: int


class Stop(Effect, frozen=True, gc=False):
    """The role cannot continue, for this reason. The process exits."""

    reason: str
