"""The environment of a simulated cluster's processes: time, a network, a metadata service and a judge."""

from __future__ import annotations

import enum
import hashlib
from typing import Any, Protocol

import msgspec

from fencepost.language.values import Record, show
from fencepost.ledger.entries import Digests
from fencepost.ledger.kernels.requests import AddBatch, ReadResults
from fencepost.ledger.kernels.results import CODE
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.roles.interface import AddsArrived, Effect, Event, ReadsFound, Role, Trace
from fencepost.ledger.roles.requests import AddRequests
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.cookies import Cookie
from fencepost.ledger.rules.metadata import DigestType
from fencepost.ledger.simulation import metadata, network
from fencepost.ledger.simulation.case import Case, asked_of
from fencepost.ledger.simulation.judge import Judge, Violation
from fencepost.ledger.simulation.story import Story
from fencepost.ledger.simulation.wire import VERSION_2
from fencepost.simulation.schedule import Schedule
from fencepost.simulation.trace import SimTrace

SLOW_MESSAGES = 0.06
"""The share of slow messages, if there are delays."""

UNSTEADY = 0.15
"""The share of metadata operations whose connection breaks, if answers get lost."""


def _plain(value: Any) -> Any:
    """Encode values that are not plain data."""
    if isinstance(value, Record):
        return show(value)
    if isinstance(value, AddRequests):
        return _adds(value)
    if isinstance(value, enum.Enum):
        return value.name
    raise TypeError(f"{type(value).__name__} has no canonical bytes")


def _canonical(event: Event) -> Any:
    """An event in a form that does not depend on whether the loops are used."""
    if type(event) is AddsArrived:
        return event.connection, [_adds(adds) for adds in event.adds]
    if type(event) is ReadsFound:
        return event.number, event.ledger, event.code, _reads(event.reads)
    return event


def _adds(adds: Any) -> tuple[Any, ...]:
    """The common fields of adds, and the number and entry of each."""
    if type(adds) is AddBatch:
        numbers = adds.requests[:, :2].tolist()
    else:
        numbers = [(txn, request.entry_id) for txn, request in adds.requests]
    flags = adds.recovery, adds.deferred_sync
    return adds.ledger, adds.master_key, *flags, adds.lac, adds.low, adds.high, numbers


def _reads(reads: Any) -> Any:
    """The number and entry of each read, and the body found."""
    if type(reads) is not ReadResults:
        return reads.reads
    found, rows = reads.found, reads.places.tolist()
    is_ok = found.table[rows[0], CODE] == Code.OK.value
    numbers = reads.requests[reads.places, :2].tolist()
    return [(*of, found.body(row) if is_ok else None) for of, row in zip(numbers, rows, strict=True)]


_ENCODE = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic").encode


class Client(network.Client, metadata.Client, Protocol):
    """A client's process."""

    def crash(self) -> None:
        """The process dies."""


class StoreEnvironment:
    """The environment of a run's processes. :class:`fencepost.ledger.simulation.cluster.Cluster` adds the bookies."""

    network_name = "network"
    collections = 0.3
    """The share of checkpoints after which a bookie collects garbage."""

    def __init__(self, case: Case, story: Story | None, trace: SimTrace | None) -> None:
        self.case = case
        self.story = story
        self.trace = trace or SimTrace()
        self.schedule = Schedule()
        self.judge = self.new_judge()
        self.digests = Digests(DigestType.CRC32, b"")  # until there is a ledger
        self.events = 0
        self._hash = hashlib.blake2b(digest_size=8)
        self.clients: list[Client] = []
        self.network = self.new_network()
        self.metadata = self.new_metadata()
        self.by_rows = story is None and case.stream("loops").random() < 0.5
        """Whether bookies and writers use the compiled loops, once loaded. This does not change the run."""
        self.cookies: dict[str, Cookie] = {}
        """The cookies of bookies in the metadata service."""

    # -- its parts ----------------------------------------------------------------------------------------------------

    def new_judge(self) -> Judge:
        """The judge of the run."""
        return Judge(self.case.promises, asked_of(self.case.placed, self.case.placement))

    def new_network(self) -> network.SimNetwork:
        """The network between clients and bookies."""
        slow = SLOW_MESSAGES if "delays" in self.case.faults else 0.0
        version_2 = self.case.stream("wire").random() < VERSION_2
        random = self.case.stream("network")
        return network.SimNetwork(self.schedule, random, self.story, slow, version_2, self.trace)

    def new_metadata(self) -> metadata.SimMetadata:
        """The metadata service."""
        unsteady = UNSTEADY if "lost_answers" in self.case.faults else 0.0
        return metadata.SimMetadata(
            self.schedule,
            self.case.stream("metadata"),
            self.judge,
            self.story,
            self.case.protections,
            unsteady,
            self.trace,
            self.case.placement,
        )

    # -- used by processes --------------------------------------------------------------------------------------------

    def receive(self, who: str, role: Role, event: Event) -> list[Effect]:
        """Pass an event to a role. A role is affected only by this."""
        now = self.schedule.now
        self.events += 1
        self._hash.update(_ENCODE((now, who, type(event).__name__, _canonical(event))))
        if self.story is not None:
            self.story.happens(now, who, event)
        try:
            effects = role.receive(event, now)
        except Violation:  # raised by a program that acts as its own role
            raise
        except Exception as error:
            raise Violation("sanity", f"{who} raises {type(error).__name__}: {error}") from error
        if self.story is not None:
            self.story.became(who, vars(role), effects)
        return effects

    def happened(self, who: str, what: str) -> None:
        """Record something that is not an event of a role, such as a crash or a fault."""
        self._hash.update(_ENCODE((self.schedule.now, who, what)))
        if self.story is not None:
            self.story.happens(self.schedule.now, who, what)
            self.story.add_line(what)

    def role_did(self, who: str, effect: Trace, connection: str | None = None) -> None:
        """Record a role's trace effect."""
        parameters = effect.fields if connection is None else {**effect.fields, "connection": connection}
        self.trace.node_did(who, effect.action, parameters, None if effect.ledger is None else str(effect.ledger))

    def entry_durable(self, bookie: str, record: EntryAdded) -> None:
        """An entry is on a bookie's disk."""
        entry = self.digests.open_entry(record.body, record.ledger, record.entry_id)
        if entry is not None:
            self.judge.stored(bookie, record.ledger, record.entry_id, entry.data)

    def bookie_gone(self, name: str) -> None:
        """A bookie is down. After a while, the metadata service notices, and the bookie is restarted."""
        raise NotImplementedError

    def may_hurt(self, name: str) -> bool:
        """Whether a bookie may lose its memory."""
        raise NotImplementedError
