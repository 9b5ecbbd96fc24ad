"""The events of a role and its effects: what happens to it, and what it wants done.

Whoever drives a role gives it events one at a time, in the order in which they happen, and carries its effects out in
the order in which they are given. A request of a client is known by its number, ``txn``, on which the answer, the
failure or the timer comes back.
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


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happened."""


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Something to be done."""


class Role(Protocol):
    """A state machine. It does nothing by itself: it has effects when something happens to it."""

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Take an event at a time in microseconds, which never goes back; what is to be done about it, in order."""


# -- timers, for every role -------------------------------------------------------------------------------------------


class SetTimer(Effect, frozen=True, gc=False):
    """Give back ``key`` as a :class:`TimerFired` in ``delay`` microseconds, and up to ``jitter`` more, as the driver
    draws.

    A role ignores timers that it no longer waits for.
    """

    key: Any
    delay: int
    jitter: int = 0


class TimerFired(Event, frozen=True, gc=False):
    """The time of a timer has come."""

    key: Any


# -- traces, for every role -------------------------------------------------------------------------------------------


class Trace(Effect, frozen=True, gc=False):
    """Write to the trace that the role has done something, at the place among its effects where that takes effect.

    ``action`` is its name in the protocol, if it has one; ``ledger`` is None for what concerns all of them.
    ``connection``: the one by which a bookie was asked. Roles have this effect only if they are made with ``traces``;
    whoever carries it out does nothing else with it.
    """

    action: str
    ledger: int | None
    fields: dict[str, Any]
    connection: int | None = None


class OfLedger:
    """The common part of the roles of clients: the ledger that each is about, and that it can say what it does."""

    ledger: int
    traces: bool

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def _trace(self, effects: list[Effect], action: str, fields: dict[str, Any]) -> None:
        if self.traces:
            effects.append(Trace(action, self.ledger, fields))


# -- a client and its bookies -----------------------------------------------------------------------------------------


class Send(Effect, frozen=True, gc=False):
    """Send a request to a bookie; exactly one :class:`Received` or :class:`Unanswered` with this ``txn`` is to come of
    it.
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
    """A bookie did not answer in time, or the connection to it broke. Whether it did what was asked is not known."""

    txn: int
    bookie: str


class AddBatch(Protocol):
    """Adds of entries of one ledger that follow one another from ``first`` on."""

    first: int

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> AddEntry:
        """One of them as a request."""

    def length(self, index: int) -> int:
        """Bytes of data of the ledger up to and including one of the entries."""


class SendAdds(Effect, frozen=True, gc=False):
    """Send the adds of a batch that are for the bookie at this place of the ensemble; each of their entries is to come
    back once in an :class:`AddsAnswered` with the same ``attempt``.
    """

    bookie: str
    adds: AddBatch
    place: int
    ensemble_size: int
    write_quorum: int
    attempt: int = 0


class AddsAnswered(Event, frozen=True, gc=False):
    """A bookie gave the same answer to the adds of some entries, or (None) did not answer in time, or the connection to
    it broke.
    """

    bookie: str
    entry_ids: Sequence[int]
    code: Code | None
    attempt: int = 0


class SendReads(Effect, frozen=True, gc=False):
    """Ask a bookie for entries of a reading; each of them is to come back once in a :class:`ReadsAnswered`."""

    reading: int
    bookie: str
    entry_ids: Sequence[int]


class ReadsAnswered(Event, frozen=True, gc=False):
    """A bookie gave the same answer to the reads of some entries of a reading, or (None) did not answer in time, or the
    connection to it broke. OK with the entries, the driver has their data, and ``lac`` is the highest that came along;
    or what came ``is_damaged``: it is no copy of them.
    """

    reading: int
    bookie: str
    entry_ids: Sequence[int]
    code: Code | None
    is_damaged: bool = False
    lac: int = NO_ENTRY_YET


class Disconnected(Event, frozen=True, gc=False):
    """The connection to a bookie is gone; comes before anything is sent over the next one.

    The bookie may be started anew by then, and may have forgotten what it had not made durable.
    """

    bookie: str


# -- a client and the metadata service --------------------------------------------------------------------------------


class CreateMetadata(Effect, frozen=True, gc=False):
    """Create the metadata of a ledger that has none; a :class:`MetadataAnswer` comes back."""

    txn: int
    ledger: int
    metadata: LedgerMetadata


class ReadMetadata(Effect, frozen=True, gc=False):
    """Read the metadata of a ledger; with ``watch``, tell once when they change."""

    txn: int
    ledger: int
    watch: bool = False


class WriteMetadata(Effect, frozen=True, gc=False):
    """Replace the metadata of a ledger if their version is still this one."""

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
    """The connection or the session was lost, and whether it was done, or will yet be, is not known."""


class MetadataAnswer(Event, frozen=True, gc=False):
    """The outcome of an operation on the metadata service: after OK the version, and the metadata if they were read."""

    txn: int
    outcome: Outcome
    version: int = -1
    metadata: LedgerMetadata | None = None


class MetadataChanged(Event, frozen=True, gc=False):
    """The metadata of a ledger that were read with a watch have changed; there is no other notice before they are read
    again.
    """

    ledger: int


class BookiesChanged(Event, frozen=True, gc=False):
    """The bookies that are registered as writable, in the order in which to choose among them."""

    bookies: tuple[str, ...]


class SessionExpired(Event, frozen=True, gc=False):
    """The session with the metadata service is over: its watches are gone, and the driver opens another.

    Operations that were under way have an answer of their own, :attr:`Outcome.UNKNOWN`.
    """


# -- a client and its caller ------------------------------------------------------------------------------------------


class Call(Event, frozen=True, gc=False):
    """The caller asks for something, by name and arguments; the answer has the same ``token``."""

    token: int
    operation: str
    arguments: tuple[Any, ...] = ()


class Append(Event, frozen=True, gc=False):
    """The caller appends entries. What is confirmed of them comes as :class:`Confirmed`, and an error, if there is one,
    with the ``token``.
    """

    token: int
    entries: Sequence[bytes]


class Confirmed(Effect, frozen=True, gc=False):
    """Entries that were appended by :class:`Append` are confirmed up to this one, at which the ledger has so many bytes
    of data.
    """

    entry_id: int
    length: int


class Error(enum.StrEnum):
    """Why a call failed, by the names of BookKeeper's exceptions; empty if it did not."""

    NONE = ""
    LEDGER_EXISTS = "LedgerExistException"
    NO_LEDGER = "NoSuchLedgerExistsException"
    NO_ENTRY = "NoSuchEntryException"
    NOT_ENOUGH_BOOKIES = "NotEnoughBookiesException"
    LEDGER_CLOSED = "LedgerClosedException"
    LEDGER_FENCED = "LedgerFencedException"
    UNAUTHORIZED = "UnauthorizedAccessException"
    WRITE_FAILED = "WriteException"
    READ_FAILED = "ReadException"
    RECOVERY_FAILED = "LedgerRecoveryException"
    DATA_UNKNOWN = "DataUnknownException"
    """Too many bookies could not say whether they have an entry: whether it was committed cannot be known now."""
    DIGEST_MISMATCH = "DigestMatchException"
    """No copy of an entry is undamaged."""
    BAD_CALL = "IllegalOpException"


class Result(Effect, frozen=True, gc=False):
    """The outcome of a call."""

    token: int
    value: Any = None
    error: Error = Error.NONE


class ReadEntries(Event, frozen=True, gc=False):
    """The caller wants the entries from ``first`` to ``last``, both included. What comes of it is one
    :class:`ReadOver` with the ``token``, a number above 0.
    """

    token: int
    first: int
    last: int


class WantEntries(Event, frozen=True, gc=False):
    """Callers want entries, each by itself, none of which is wanted so already. What comes of one is its data, or a
    :class:`ReadOver` of it alone.
    """

    entry_ids: Sequence[int]


class ForgetReads(Event, frozen=True, gc=False):
    """Nobody wants the entries of a token any more, or (0) those that were wanted by themselves."""

    token: int


class ReadOver(Effect, frozen=True, gc=False):
    """The entries that were wanted together are there, up to before ``stop``: that one cannot be had, if there is an
    ``error``. With a ``token`` that is not above 0: so it is with ``stop``, which was wanted by itself.
    """

    token: int
    stop: int
    error: Error


# -- a bookie, its clients and its disk -------------------------------------------------------------------------------


class Asked(Event, frozen=True, gc=False):
    """A request came over a connection that is neither an add nor a plain read: for those see :class:`AskedToAdd` and
    :class:`AskedToRead`.
    """

    connection: int
    txn: int
    request: Request


class Answer(Effect, frozen=True, gc=False):
    """Answer a request over the connection it came by; nothing happens if that is gone."""

    connection: int
    txn: int
    response: Response


class Adds(Protocol):
    """Adds of one ledger that came together, with the same master key and flags. ``lac`` is the highest that they
    carry.

    The entries themselves are the driver's: the role knows how many they are, and where among them one is.
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
        """The lowest id of an entry among them."""

    @property
    def high(self) -> int:
        """The highest id."""

    def __len__(self) -> int:
        """The number of adds."""

    def entry_ids(self) -> Sequence[int]:
        """The entries that are added, in order."""

    def last_place(self, entry_id: int) -> int:
        """The place among them of the last add of an entry, -1 if there is none."""


class AskedToAdd(Event, frozen=True, gc=False):
    """Adds came over a connection one after another; those of a ledger are one of ``adds``. What comes of them is what
    would come of each by itself.
    """

    connection: int
    adds: tuple[Adds, ...]


class AnswerAdds(Effect, frozen=True, gc=False):
    """Answer every one of these adds over the connection they came by; nothing happens if that is gone."""

    connection: int
    adds: tuple[Adds, ...]
    code: Code


class Reads(Protocol):
    """Plain reads of one ledger that came together, without fences and long polls, and have come to one code. What was
    found is the driver's.
    """

    low: int
    """The lowest id of an entry that is read."""
    high: int
    """The highest id."""

    def __len__(self) -> int:
        """The number of reads."""

    def entry_ids(self) -> list[int]:
        """The entries that are read, in order."""

    def only(self, which: list[int]) -> Reads:
        """Those at some places among them."""


class AskedToRead(Event, frozen=True, gc=False):
    """So many plain reads came over a connection one after another. What comes of them is what would come of each by
    itself.
    """

    connection: int
    count: int


class LookUpReads(Effect, frozen=True, gc=False):
    """Find the entries of the first ``count`` reads of those that were asked for; :class:`ReadsFound` come back until
    all of them have. The reads after them are answered ``TOO_MANY_REQUESTS``.
    """

    number: int
    connection: int
    count: int


class ReadsFound(Event, frozen=True, gc=False):
    """The outcome of some of the look-ups of a :class:`LookUpReads`, of one ledger and with one code."""

    number: int
    ledger: int
    code: Code
    reads: Reads


class AnswerReads(Effect, frozen=True, gc=False):
    """Answer every one of these reads over the connection they came by, with what was found if the code is OK; nothing
    happens if that is gone.
    """

    connection: int
    reads: Reads
    code: Code
    lac: int


class ConnectionClosed(Event, frozen=True, gc=False):
    """A connection is gone: whatever came by it need not be answered."""

    connection: int


class Journal(Effect, frozen=True, gc=False):
    """Append a record to the journal. ``position`` counts the records of this process from 1; they become durable in
    that order.
    """

    position: int
    record: Record


class JournalAdds(Effect, frozen=True, gc=False):
    """Append the entries of these adds to the journal, one after another, the last one at ``position``, and keep them
    where :class:`LookUp` finds them from now on: each replaces what was there with its id. They become durable
    together.
    """

    position: int
    adds: tuple[Adds, ...]


class Replayed(Event, frozen=True, gc=False):
    """A record that the journal holds since before the process began. They are replayed in their order, ahead of
    everything else. Whoever replays them keeps the entries that are there; of these it tells the LACs alone, as
    :class:`fencepost.ledger.records.LacWritten` without a body.
    """

    record: Record


class JournalSynced(Event, frozen=True, gc=False):
    """All records up to ``position`` are durable."""

    position: int


class JournalFailed(Event, frozen=True, gc=False):
    """A write or a sync of the journal failed. The bookie must not go on: what it holds may never become durable."""


class LookUp(Effect, frozen=True, gc=False):
    """Find an entry, or, with entry id -1, the last of the ledger; a :class:`Found` comes back."""

    number: int
    ledger: int
    entry_id: int


class Found(Event, frozen=True, gc=False):
    """The outcome of a look-up. OK with the entry, ``NO_ENTRY``, or ``IO_ERROR``: it should be there and cannot be
    read.
    """

    number: int
    code: Code
    entry_id: int = -1
    body: bytes | None = None


class LookUpBatch(Effect, frozen=True, gc=False):
    """Find entries one after another, as :func:`fencepost.ledger.rules.reading.batch` does; a :class:`BatchFound` comes
    back.
    """

    number: int
    ledger: int
    entry_id: int
    max_count: int
    max_size: int


class BatchFound(Event, frozen=True, gc=False):
    """The outcome of the look-ups of a batch. OK with one entry at least, or the code of the first."""

    number: int
    code: Code
    bodies: tuple[bytes, ...] = ()


class FindRuns(Effect, frozen=True, gc=False):
    """Find which entries of a ledger there are; a :class:`RunsFound` comes back."""

    number: int
    ledger: int


class RunsFound(Event, frozen=True, gc=False):
    """The entries that there are, as runs from a first to a last id, ascending and not adjacent. ``IO_ERROR``: that
    cannot be read.
    """

    number: int
    code: Code
    runs: tuple[tuple[int, int], ...] = ()


class Measure(Effect, frozen=True, gc=False):
    """Find how large the disks with entries are and how much of them is free; a :class:`Measured` comes back."""

    number: int


class Measured(Event, frozen=True, gc=False):
    """The size of the disks and what is free of it, in bytes."""

    number: int
    total: int
    free: int


class Forget(Effect, frozen=True, gc=False):
    """Keep nothing of a ledger any more, which was deleted: :class:`LookUp` finds none of the entries stored before."""

    ledger: int


class Stop(Effect, frozen=True, gc=False):
    """The role cannot go on, for this reason: the process ends."""

    reason: str
