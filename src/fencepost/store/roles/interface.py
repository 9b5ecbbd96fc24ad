"""What happens to a role and what it wants done: its events and its effects.

Whoever drives a role gives it events one at a time, in the order in which they happen, and carries its effects out in the order in which
they are given. A request of a client is known by its number, ``txn``, on which the answer, the failure or the timer comes back.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from fencepost.store.messages import Request, Response
from fencepost.store.rules.codes import Code


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happened."""


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Something to be done."""


class Role(Protocol):
    """A state machine. It does nothing by itself: it has effects when something happens to it."""

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Take an event at a time in microseconds, which never goes back; what is to be done about it, in order."""
        ...


# -- timers, for every role -------------------------------------------------------------------------------------------


class SetTimer(Effect, frozen=True, gc=False):
    """Give back ``key`` as a :class:`TimerFired` in ``delay`` microseconds. A role ignores timers that it no longer waits for."""

    key: Any
    delay: int


class TimerFired(Event, frozen=True, gc=False):
    """The time of a timer has come."""

    key: Any


# -- a client and its bookies -----------------------------------------------------------------------------------------


class Send(Effect, frozen=True, gc=False):
    """Send a request to a bookie; exactly one :class:`Received` or :class:`Unanswered` with this ``txn`` is to come of it."""

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


# -- a client and the metadata service --------------------------------------------------------------------------------


class CreateMetadata(Effect, frozen=True, gc=False):
    """Create the metadata of a ledger that has none; a :class:`MetadataAnswer` comes back."""

    txn: int
    ledger: int
    metadata: Any


class ReadMetadata(Effect, frozen=True, gc=False):
    """Read the metadata of a ledger; with ``watch``, tell once when they change."""

    txn: int
    ledger: int
    watch: bool = False


class WriteMetadata(Effect, frozen=True, gc=False):
    """Replace the metadata of a ledger if their version is still this one."""

    txn: int
    ledger: int
    metadata: Any
    version: int


class MetadataResult(msgspec.Struct, frozen=True, gc=False):
    """How an operation on metadata ended: one of ``"ok"``, ``"no ledger"``, ``"exists"``, ``"bad version"``, ``"unknown"``.

    ``"unknown"``: the connection was lost, and whether it was done is not known.
    """

    outcome: str
    metadata: Any = None
    version: int = -1


class MetadataAnswer(Event, frozen=True, gc=False):
    """What came of an operation on the metadata service."""

    txn: int
    result: MetadataResult


class MetadataChanged(Event, frozen=True, gc=False):
    """The metadata of a ledger that were read with a watch have changed; there is no other notice before they are read again."""

    ledger: int


class BookiesChanged(Event, frozen=True, gc=False):
    """The bookies that are registered as writable, in the order in which to choose among them."""

    bookies: tuple[str, ...]


class SessionExpired(Event, frozen=True, gc=False):
    """The session with the metadata service is over: its watches are gone. A new one is opened by the driver."""


# -- a client and its caller ------------------------------------------------------------------------------------------


class Call(Event, frozen=True, gc=False):
    """The caller asks for something, by name and arguments; the answer has the same ``token``."""

    token: int
    operation: str
    arguments: tuple[Any, ...] = ()


class Result(Effect, frozen=True, gc=False):
    """What came of a call. ``error`` is the name of an exception of BookKeeper, empty if there is none."""

    token: int
    value: Any = None
    error: str = ""


# -- a bookie, its clients and its disk -------------------------------------------------------------------------------


class Asked(Event, frozen=True, gc=False):
    """A request came over a connection."""

    connection: int
    txn: int
    request: Request


class Answer(Effect, frozen=True, gc=False):
    """Answer a request over the connection it came by; nothing happens if that is gone."""

    connection: int
    txn: int
    response: Response


class Journal(Effect, frozen=True, gc=False):
    """Append a record to the journal. ``position`` counts records from 1; they become durable in that order."""

    position: int
    record: Any


class JournalSynced(Event, frozen=True, gc=False):
    """All records up to ``position`` are durable."""

    position: int


class JournalFailed(Event, frozen=True, gc=False):
    """A write or a sync of the journal failed. The bookie must not go on: what it holds may never become durable."""


class Store(Effect, frozen=True, gc=False):
    """Keep an entry where :class:`LookUp` finds it from now on; a second one with the same id replaces it."""

    ledger: int
    entry_id: int
    body: bytes


class LookUp(Effect, frozen=True, gc=False):
    """Find an entry, or, with entry id -1, the last of the ledger; a :class:`Found` comes back."""

    number: int
    ledger: int
    entry_id: int


class Found(Event, frozen=True, gc=False):
    """What a look-up came to. OK with the entry, ``NO_ENTRY``, or ``IO_ERROR``: it should be there and can not be read."""

    number: int
    code: Code
    entry_id: int = -1
    body: bytes | None = None


class Stop(Effect, frozen=True, gc=False):
    """The role can not go on, for this reason: the process ends."""

    reason: str
