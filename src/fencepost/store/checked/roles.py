"""The roles of the store themselves: what its clients and its bookies run, explored state by state.

Nothing is written again here. There is the very :class:`fencepost.store.roles.writer.Writer`, a
:class:`fencepost.store.roles.recoverer.Recoverer` for each client that recovers the ledger, and a
:class:`fencepost.store.roles.bookie.Bookie` for each bookie. Every step gives one of them an event, or lets the world
around it go on. `store` says the same by the rules alone; here the order counts in which the roles call them, with
their own requests and answers under way.

The world is a driver's. What goes over a connection comes in its order, several adds at once or one after another. A
connection that breaks loses the answers on their way; requests may still come. A journal becomes durable up to any
record, and a crash leaves a bookie any beginning of what was not durable yet. A write of metadata is done at one time
and answered at another, or not answered. A client that crashes is one that does nothing more.

A bookie counts the records of its journal. Here it counts from those that are durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    action,
    actor,
    configuration,
    constant,
    initial,
    invariant,
    model_values,
    one_of,
    per_key,
    require,
    state,
)
from fencepost.protocols.protections import switched_on
from fencepost.store.entries import Digests, Entry
from fencepost.store.messages import NO_ENTRY_YET, AddEntry, AddEntryResponse, Request, Response
from fencepost.store.records import EntryAdded, LacWritten, Record
from fencepost.store.roles import interface as role
from fencepost.store.roles.bookie import Bookie
from fencepost.store.roles.recoverer import Recoverer, RecovererSettings
from fencepost.store.roles.requests import grouped
from fencepost.store.roles.writer import Writer, WriterSettings, WriterStatus
from fencepost.store.rules.codes import Code
from fencepost.store.rules.ensembles import fragment_of, is_committed, is_in_write_set, write_set
from fencepost.store.rules.metadata import DigestType, LedgerMetadata, LedgerStatus, end_of, takes_update
from fencepost.store.rules.protections import Protections

LEDGER = 1
WRITER = ModelValue("w")
"""The client that creates the ledger."""

DIGESTS = Digests(DigestType.DUMMY, b"")

NOBODY = -1
"""The connection of requests that nobody waits for."""

CREATE, CLOSE, RECOVER, APPEND = 1, 2, 3, 4
"""The tokens of calls. Appends have the numbers from the last one on."""


ONE_COPY: Mapping[str, Any] = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
STRIPED: Mapping[str, Any] = {"ensemble_size": 2, "write_quorum": 1, "ack_quorum": 1}


class Wire:
    """What is under way between a client and a bookie, in order, with its number.

    ``late``: requests of a connection that is broken, which may still come. ``awaited``: the number of each request
    that the client waits for, and the entry that it adds. ``is_broken``: the client does not know yet that the
    connection is.
    """

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self.requests: tuple[tuple[int, Request], ...] = ()
        self.late: tuple[tuple[int, Request], ...] = ()
        self.answers: tuple[tuple[int, Response], ...] = ()
        self.awaited: tuple[tuple[int, int | None], ...] = ()
        self.is_broken = False


class Desk:
    """What is under way between a client and the metadata service, and what its caller knows.

    ``late``: operations that are done later, if at all, which the client has given up. ``confirmed``: the last entry
    that the caller knows to be safe. ``results``: of calls.
    """

    def __init__(self) -> None:
        self.operations: tuple[role.Effect, ...] = ()
        self.late: tuple[role.Effect, ...] = ()
        self.answers: tuple[role.MetadataAnswer, ...] = ()
        self.timers: frozenset[Any] = frozenset()
        self.confirmed = NO_ENTRY_YET
        self.results: tuple[role.Result, ...] = ()


class Disk:
    """A bookie's disk: the records that are durable, as few as tell the same, and those of the journal that are not, in
    order.
    """

    def __init__(self) -> None:
        self.durable: tuple[Record, ...] = ()
        self.unsynced: tuple[Record, ...] = ()


def clients(protocol: StoreRoles) -> tuple[ModelValue, ...]:
    """All who have connections to bookies."""
    return (WRITER, *protocol.recoverers)


def made_durable(durable: tuple[Record, ...], records: Sequence[Record]) -> tuple[Record, ...]:
    """What a disk tells with these records: one of each kind, and of each entry the last one."""
    known: dict[tuple[str, int], Record] = {}
    lac = NO_ENTRY_YET
    for record in (*durable, *records):
        if isinstance(record, EntryAdded):
            known["entry", record.entry_id] = msgspec.structs.replace(record, recovery=False)
        else:
            known[type(record).__name__, 0] = record
        if isinstance(record, EntryAdded | LacWritten):
            lac = max(lac, record.lac)
    if lac > NO_ENTRY_YET:
        known[LacWritten.__name__, 0] = LacWritten(LEDGER, lac, b"")
    return tuple(known[key] for key in sorted(known))


def data_of(entry_id: int) -> bytes:
    """The data of an entry: one byte."""
    return bytes([entry_id])


def entries_of(records: Iterable[Record]) -> dict[int, bytes]:
    """The entries that records tell of, by their ids."""
    return {record.entry_id: record.body for record in records if isinstance(record, EntryAdded)}


class StoreRoles(Protocol):
    """The life of one ledger, by the roles that run: its writer, clients that recover it, and bookies."""

    name: ClassVar[str] = "store-roles"

    bookies: tuple[ModelValue, ...] = model_values("b", 2, "the bookies that are available")
    recoverers: tuple[ModelValue, ...] = model_values("r", 0, "the clients that recover the ledger")
    ensemble_size: int = constant(2, "bookies that entries are striped over")
    write_quorum: int = constant(2, "bookies that an entry is sent to")
    ack_quorum: int = constant(2, "bookies that must confirm an entry before it is committed")
    entries: int = constant(2, "entries that are appended")
    in_flight: int = constant(2, "entries that the writer sends before the first of them is confirmed")
    closing: bool = constant(True, "whether the writer is asked to close the ledger")
    breaks: int = constant(0, "how often a connection breaks, all together")
    crashes: int = constant(0, "how often a bookie crashes")
    lost_answers: int = constant(0, "operations on metadata that are not answered, done or not, or yet to be done")
    reads_in_flight: int = constant(1, "entries that a recovery reads at once")

    confirmations_withdrawn: bool = constant(True, "whether a bookie that leaves the ensemble no longer counts")
    confirmed_in_order: bool = constant(True, "whether the LAC passes an entry only after all before it")
    lac_waits_for_change: bool = constant(True, "whether the LAC stands still while the ensemble is being changed")

    writer: Writer = actor(lambda protocol: Writer(LEDGER, protocol.writer_settings, protocol.protections))
    recoverer: PerKey[ModelValue, Recoverer] = per_key(
        recoverers, actor(lambda protocol, r: Recoverer(LEDGER, protocol.recoverer_settings, protocol.protections))
    )
    bookie: PerKey[ModelValue, Bookie] = per_key(bookies, actor(lambda protocol, b: Bookie(protocol.protections)))
    disk: PerKey[ModelValue, Disk] = per_key(bookies, actor(lambda protocol, b: Disk()))
    desk: PerKey[ModelValue, Desk] = per_key(clients, actor(lambda protocol, c: Desk()))
    wire: PerKey[ModelValue, PerKey[ModelValue, Wire]] = per_key(
        clients, per_key(bookies, actor(lambda protocol, c, b: Wire(clients(protocol).index(c))))
    )
    metadata: LedgerMetadata | None = state(None, held_by="metadata")
    version: int = state(0, held_by="metadata")
    tokens: tuple[int, ...] = state(())
    """The token of each entry that was appended."""
    is_asked_to_close: bool = state(False)
    broken: int = state(0)
    crashed: int = state(0)
    unanswered: int = state(0)

    configurations = {
        "default": configuration(doc="a writer with two entries, and two bookies that both must confirm"),
        "replaced": configuration(bookies=3, breaks=1, doc="as the default, and another bookie to change to"),
        "one-of-two": configuration(bookies=3, ack_quorum=1, breaks=1, doc="the same, and one confirmation is enough"),
        "twice-replaced": configuration(
            bookies=3, entries=1, breaks=2, lost_answers=1, doc="one entry; two bookies fail, and an answer is lost"
        ),
        "striped": configuration(**STRIPED, bookies=3, breaks=1, doc="each entry on one of two bookies"),
        "crash": configuration(crashes=1, doc="as the default, and a bookie crashes"),
        "confirmations-kept": configuration(
            "confirmed_entries_are_durable",
            "a bookie that has left the ensemble counts",
            bookies=3,
            breaks=1,
            confirmations_withdrawn=False,
        ),
        "confirmed-out-of-order": configuration(
            "confirmed_entries_are_durable",
            "the LAC passes an entry that is not confirmed",
            **STRIPED,
            confirmed_in_order=False,
        ),
        "lac-runs-ahead": configuration(
            "confirmed_entries_are_durable",
            "the LAC goes on while the ensemble is being changed",
            **ONE_COPY,
            breaks=1,
            lac_waits_for_change=False,
        ),
    }

    @property
    def protections(self) -> Protections:
        """The protections that are switched on."""
        return switched_on(self, Protections)

    @property
    def writer_settings(self) -> WriterSettings:
        """How the ledger is written."""
        return WriterSettings(
            self.ensemble_size,
            self.write_quorum,
            self.ack_quorum,
            digest_type=DigestType.DUMMY,
            creation_token=1,
            in_flight_limit=self.in_flight,
        )

    @property
    def recoverer_settings(self) -> RecovererSettings:
        """How the ledger is recovered."""
        return RecovererSettings(in_flight_limit=self.reads_in_flight)

    @initial
    def the_writer_is_called(self) -> None:
        """The writer knows the bookies, and is called to create the ledger."""
        names = tuple(b.name for b in self.bookies)
        for c in clients(self):
            self._give(c, role.BookiesChanged(names))
        self._give(WRITER, role.Call(CREATE, "create"))

    # -- the roles and their drivers -----------------------------------------------------------------------------------

    def _give(self, c: ModelValue, event: role.Event) -> None:
        """A client takes an event, and its driver does what comes of it."""
        client: role.Role = self.writer if c == WRITER else self.recoverer[c]
        for effect in client.receive(event, 0):
            self._do(c, effect)

    def _do(self, c: ModelValue, effect: role.Effect) -> None:
        desk = self.desk[c]
        match effect:
            case role.SendAdds():
                for at in range(len(effect.adds)):
                    entry_id = effect.adds.first + at
                    if is_in_write_set(effect.place, entry_id, effect.ensemble_size, effect.write_quorum):
                        self._send(c, effect.bookie, effect.attempt, effect.adds[at], entry_id)
            case role.Send():
                self._send(c, effect.bookie, effect.txn, effect.request)
            case role.CreateMetadata() | role.ReadMetadata() | role.WriteMetadata():
                desk.operations = (*desk.operations, effect)
            case role.SetTimer():
                desk.timers = desk.timers | {effect.key}
            case role.Confirmed():
                assert effect.entry_id > desk.confirmed, "it confirms nothing new"
                desk.confirmed = effect.entry_id
            case role.Result():
                desk.results = (*desk.results, effect)
            case _:
                raise AssertionError(f"it wants something done that nobody does: {effect}")

    def _send(self, c: ModelValue, name: str, txn: int, request: Request, entry_id: int | None = None) -> None:
        wire = self.wire[c][self._bookie_called(name)]
        wire.awaited = (*wire.awaited, (txn, entry_id))
        if not wire.is_broken:
            wire.requests = (*wire.requests, (txn, request))

    def _bookie_called(self, name: str) -> ModelValue:
        return next(b for b in self.bookies if b.name == name)

    def _ask(self, b: ModelValue, event: role.Event) -> None:
        """A bookie takes an event, and its driver does what comes of it. Its disk finds entries at once."""
        disk, events = self.disk[b], deque([event])
        while events:
            for effect in self.bookie[b].receive(events.popleft(), 0):
                match effect:
                    case role.Journal():
                        disk.unsynced = (*disk.unsynced, effect.record)
                    case role.JournalAdds():
                        records = [record for adds in effect.adds for record in adds.records()]  # type: ignore[attr-defined]
                        disk.unsynced = (*disk.unsynced, *records)
                    case role.LookUp():
                        events.append(self._found(b, effect))
                    case role.Answer():
                        self._answer(b, effect.connection, effect.txn, effect.response)
                    case role.AnswerAdds():
                        for adds in effect.adds:
                            for txn, response in adds.responses(effect.code):  # type: ignore[attr-defined]
                                self._answer(b, effect.connection, txn, response)
                    case _:
                        raise AssertionError(f"it wants something done that nobody does: {effect}")

    def _found(self, b: ModelValue, effect: role.LookUp) -> role.Found:
        entries = self._entries(b)
        entry_id = max(entries, default=NO_ENTRY_YET) if effect.entry_id == NO_ENTRY_YET else effect.entry_id
        code = Code.OK if entry_id in entries else Code.NO_ENTRY
        return role.Found(effect.number, code, entry_id, entries.get(entry_id))

    def _entries(self, b: ModelValue) -> dict[int, bytes]:
        """The entries that a bookie has, be they durable or not."""
        return entries_of((*self.disk[b].durable, *self.disk[b].unsynced))

    def _answer(self, b: ModelValue, connection: int, txn: int, response: Response) -> None:
        """An answer is on its way, unless its connection is gone."""
        if connection == NOBODY:
            return
        wire = self.wire[clients(self)[connection % len(clients(self))]][b]
        if wire.connection == connection:
            wire.answers = (*wire.answers, (txn, response))

    # -- callers -------------------------------------------------------------------------------------------------------

    @action
    def append(self) -> None:
        """Somebody appends entries, one or all that are left at once."""
        first = len(self.tokens)
        require(first < self.entries)
        require(self.writer.status is WriterStatus.OPEN)
        left = self.entries - first
        count = one_of((1, left) if left > 1 else (1,))
        self.tokens = (*self.tokens, *(APPEND + first,) * count)
        self._give(WRITER, role.Append(APPEND + first, tuple(data_of(first + at) for at in range(count))))

    @action
    def close(self) -> None:
        """Somebody wants the ledger closed."""
        require(self.closing)
        require(not self.is_asked_to_close)
        require(self.writer.status not in (WriterStatus.NEW, WriterStatus.CREATING))
        self.is_asked_to_close = True
        self._give(WRITER, role.Call(CLOSE, "close"))

    # -- connections ---------------------------------------------------------------------------------------------------

    @action(c=clients, b=bookies, by="b")
    def request_comes(self, c: ModelValue, b: ModelValue) -> None:
        """A request comes to a bookie, or several adds come at once."""
        wire = self.wire[c][b]
        taken, wire.requests = self._come_together(wire.requests)
        self._take(b, wire.connection, taken)

    @action(c=clients, b=bookies, by="b")
    def late_request_comes(self, c: ModelValue, b: ModelValue) -> None:
        """The same over a connection that is broken."""
        wire = self.wire[c][b]
        taken, wire.late = self._come_together(wire.late)
        self._take(b, NOBODY, taken)

    def _come_together(self, requests: tuple[tuple[int, Request], ...]) -> tuple[Any, Any]:
        """The requests that come together, and those that come later."""
        require(len(requests) > 0)
        adds = 0
        while adds < len(requests) and isinstance(requests[adds][1], AddEntry):
            adds += 1
        count = one_of(range(1, max(adds, 1) + 1))
        return requests[:count], requests[count:]

    def _take(self, b: ModelValue, connection: int, requests: Sequence[Any]) -> None:
        if isinstance(requests[0][1], AddEntry):
            for adds in grouped(requests):
                self._ask(b, role.AskedToAdd(connection, adds))
        else:
            for txn, request in requests:
                self._ask(b, role.Asked(connection, txn, request))

    @action(b=bookies, c=clients, by="c")
    def answer_comes(self, b: ModelValue, c: ModelValue) -> None:
        """An answer comes to a client, or several answers to adds that are alike."""
        wire = self.wire[c][b]
        require(len(wire.answers) > 0)
        txn, response = wire.answers[0]
        if not isinstance(response, AddEntryResponse):
            wire.answers, wire.awaited = wire.answers[1:], _without(wire.awaited, (txn, None))
            self._give(c, role.Received(txn, b.name, response))
            return
        alike = 1
        while alike < len(wire.answers) and _are_alike(wire.answers[0], wire.answers[alike]):
            alike += 1
        count = one_of(range(1, alike + 1))
        entry_ids = tuple(answer.entry_id for _, answer in wire.answers[:count])  # type: ignore[union-attr]
        wire.answers = wire.answers[count:]
        for entry_id in entry_ids:
            wire.awaited = _without(wire.awaited, (txn, entry_id))
        self._give(c, role.AddsAnswered(b.name, entry_ids, response.code, txn))

    @action(c=clients, b=bookies)
    def connection_breaks(self, c: ModelValue, b: ModelValue) -> None:
        """A connection breaks over which somebody waits for an answer. Some of the requests may still come."""
        wire = self.wire[c][b]
        require(self.broken < self.breaks)
        require(len(wire.awaited) > 0)
        require(not wire.is_broken)
        self.broken += 1
        wire.late = (*wire.late, *wire.requests[: one_of(range(len(wire.requests) + 1))])
        wire.connection += len(clients(self))
        self._break(wire)

    def _break(self, wire: Wire) -> None:
        wire.requests = wire.answers = ()
        wire.is_broken = True

    @action(c=clients, b=bookies)
    def client_notices(self, c: ModelValue, b: ModelValue) -> None:
        """A client notices that a connection is broken: nothing that it has asked over it will be answered."""
        wire = self.wire[c][b]
        require(wire.is_broken)
        awaited, wire.awaited, wire.is_broken = wire.awaited, (), False
        adds: dict[int, tuple[int, ...]] = {}
        for txn, entry_id in awaited:
            if entry_id is not None:
                adds[txn] = (*adds.get(txn, ()), entry_id)
        for attempt, entry_ids in adds.items():
            self._give(c, role.AddsAnswered(b.name, entry_ids, None, attempt))
        for txn, entry_id in awaited:
            if entry_id is None:
                self._give(c, role.Unanswered(txn, b.name))
        self._give(c, role.Disconnected(b.name))

    # -- bookies -------------------------------------------------------------------------------------------------------

    @action(b=bookies)
    def journal_is_synced(self, b: ModelValue) -> None:
        """The journal of a bookie is durable up to one of its records."""
        disk = self.disk[b]
        require(len(disk.unsynced) > 0)
        synced = one_of(range(1, len(disk.unsynced) + 1))
        disk.durable = made_durable(disk.durable, disk.unsynced[:synced])
        disk.unsynced = disk.unsynced[synced:]
        self._ask(b, role.JournalSynced(synced))
        self._count_from(b, synced)

    def _count_from(self, b: ModelValue, synced: int) -> None:
        """Let a bookie count the records of its journal from the last that is durable."""
        bookie = self.bookie[b]
        bookie.position -= synced
        bookie.synced = 0
        bookie.waiting = deque((position - synced, answer) for position, answer in bookie.waiting)
        bookie.batches = deque((position - synced, adds) for position, adds in bookie.batches)
        bookie.unsynced = {
            number: deque((position - synced, adds) for position, adds in of_ledger)
            for number, of_ledger in bookie.unsynced.items()
        }
        bookie.ledgers = {
            number: msgspec.structs.replace(ledger, position=max(0, ledger.position - synced))
            for number, ledger in bookie.ledgers.items()
        }

    @action(b=bookies)
    def bookie_crashes(self, b: ModelValue) -> None:
        """A bookie crashes, and is back with what was durable, and perhaps more of its journal."""
        require(self.crashed < self.crashes)
        self.crashed += 1
        disk = self.disk[b]
        disk.durable = made_durable(disk.durable, disk.unsynced[: one_of(range(len(disk.unsynced) + 1))])
        disk.unsynced = ()
        for c in clients(self):
            wire = self.wire[c][b]
            wire.late = ()
            if wire.awaited:
                self._break(wire)
        self.bookie[b] = Bookie(self.protections)
        for record in disk.durable:
            told = LacWritten(LEDGER, record.lac, b"") if isinstance(record, EntryAdded) else record
            self._ask(b, role.Replayed(told))

    # -- the metadata service ------------------------------------------------------------------------------------------

    def _carried_out(self, operation: role.Effect) -> tuple[role.Outcome, int, LedgerMetadata | None]:
        """Carry out an operation; its outcome, and the version and the metadata that go with that."""
        match operation:
            case role.CreateMetadata():
                if self.metadata is not None:
                    return role.Outcome.EXISTS, -1, None
                self.metadata, self.version = operation.metadata, 0
                return role.Outcome.OK, 0, None
            case role.WriteMetadata():
                if not takes_update(operation.version, self.version, self.protections):
                    return role.Outcome.BAD_VERSION, -1, None
                self.metadata, self.version = operation.metadata, self.version + 1
                return role.Outcome.OK, self.version, None
            case _:
                if self.metadata is None:
                    return role.Outcome.NO_LEDGER, -1, None
                return role.Outcome.OK, self.version, self.metadata

    @action(c=clients, by="metadata")
    def metadata_are_asked(self, c: ModelValue) -> None:
        """The metadata service does what a client wants; the answer comes, or is lost."""
        desk = self.desk[c]
        require(len(desk.operations) > 0)
        operation, desk.operations = desk.operations[0], desk.operations[1:]
        outcome, version, metadata = self._carried_out(operation)
        answer = role.MetadataAnswer(operation.txn, outcome, version, metadata)  # type: ignore[attr-defined]
        if one_of((False, True) if self.unanswered < self.lost_answers else (False,)):
            self.unanswered += 1
            answer = role.MetadataAnswer(answer.txn, role.Outcome.UNKNOWN)
        desk.answers = (*desk.answers, answer)

    @action(c=clients)
    def operation_is_given_up(self, c: ModelValue) -> None:
        """The session of a client is lost before an operation is done. It is done yet, or never."""
        desk = self.desk[c]
        require(self.unanswered < self.lost_answers)
        require(len(desk.operations) > 0)
        self.unanswered += 1
        operation, desk.operations = desk.operations[0], desk.operations[1:]
        if not isinstance(operation, role.ReadMetadata):
            desk.late = (*desk.late, operation)
        desk.answers = (*desk.answers, role.MetadataAnswer(operation.txn, role.Outcome.UNKNOWN))  # type: ignore[attr-defined]

    @action(c=clients, by="metadata")
    def late_operation_is_done(self, c: ModelValue) -> None:
        """The metadata service does what a client has given up."""
        desk = self.desk[c]
        require(len(desk.late) > 0)
        operation, desk.late = desk.late[0], desk.late[1:]
        self._carried_out(operation)

    @action(c=clients)
    def metadata_come(self, c: ModelValue) -> None:
        """A client gets the answer of the metadata service."""
        desk = self.desk[c]
        require(len(desk.answers) > 0)
        answer, desk.answers = desk.answers[0], desk.answers[1:]
        self._give(c, answer)

    @action(c=clients)
    def timer_fires(self, c: ModelValue) -> None:
        """The time of a client's timer has come."""
        desk = self.desk[c]
        key = one_of(desk.timers)
        desk.timers = desk.timers - {key}
        self._give(c, role.TimerFired(key))

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _copies(self, metadata: LedgerMetadata, entry_id: int) -> int:
        """On how many of its bookies an entry is durable, as far as the metadata tell."""
        ensemble = tuple(fragment_of(metadata.fragments, entry_id).ensemble)
        asked = [self._bookie_called(name) for name in write_set(entry_id, ensemble, self.write_quorum)]
        return sum(entry_id in entries_of(self.disk[b].durable) for b in asked)

    @invariant(entry_id=lambda protocol: range(protocol.entries))
    def confirmed_entries_are_durable(self, entry_id: int) -> bool:
        """An entry that was confirmed to the caller is durable on an ack quorum of its bookies, and no end of the
        ledger is ahead of it.
        """
        if self.desk[WRITER].confirmed < entry_id:
            return True
        metadata = self.metadata
        assert metadata is not None
        end = end_of(metadata)
        return is_committed(self._copies(metadata, entry_id), self.ack_quorum) and (end is None or end >= entry_id)

    @invariant(entry_id=lambda protocol: range(protocol.entries))
    def closed_ledgers_are_whole(self, entry_id: int) -> bool:
        """Every entry of a closed ledger is durable on an ack quorum of its bookies."""
        metadata = self.metadata
        if metadata is None or metadata.status is not LedgerStatus.CLOSED or metadata.last_entry < entry_id:
            return True
        return is_committed(self._copies(metadata, entry_id), self.ack_quorum)

    @invariant
    def closed_ledgers_have_their_length(self) -> bool:
        """A closed ledger has as many bytes as its entries have."""
        metadata = self.metadata
        return metadata is None or end_of(metadata) is None or metadata.length == metadata.last_entry + 1

    @invariant
    def the_writer_knows_where_it_has_closed(self) -> bool:
        """A ledger that its writer has closed ends at the last entry that was confirmed, as its caller is told."""
        told = [result.value for result in self.desk[WRITER].results if result.token == CLOSE and not result.error]
        end = None if self.metadata is None else end_of(self.metadata)
        return not told or told == [end] == [self.desk[WRITER].confirmed]

    @invariant
    def every_append_is_answered(self) -> bool:
        """When the writer has ended, each entry is confirmed, or its caller knows that it may be lost; and no call has
        two answers.
        """
        desk, status = self.desk[WRITER], self.writer.status
        told = [result.token for result in desk.results]
        failed = {result.token for result in desk.results if result.error}
        has_ended = status in (WriterStatus.CLOSED, WriterStatus.FAILED)
        left = self.tokens[desk.confirmed + 1 :] if has_ended else ()
        return len({*told}) == len(told) and failed >= {*left}

    @invariant
    def the_limit_is_kept(self) -> bool:
        """The writer has no more entries under way than it may."""
        return self.writer.adds.pushed - self.writer.adds.confirmed <= self.in_flight

    @invariant(b=bookies)
    def bookies_have_what_was_appended(self, b: ModelValue) -> bool:
        """An entry that a bookie has is one that the writer was given, under its id."""
        return all(
            _is_entry(DIGESTS.open_entry(body, LEDGER, entry_id), entry_id)
            for entry_id, body in self._entries(b).items()
        )

    @invariant(c=clients, b=bookies)
    def answers_tell_what_is_durable(self, c: ModelValue, b: ModelValue) -> bool:
        """What a bookie tells a client is durable."""
        durable = self.disk[b].durable
        entries = entries_of(durable)
        for _, response in self.wire[c][b].answers:
            if isinstance(response, AddEntryResponse) and response.code is Code.OK and response.entry_id not in entries:
                return False
        return True

    @invariant(c=clients)
    def who_waits_is_answered(self, c: ModelValue) -> bool:
        """A client that waits for the metadata service, or for bookies, has asked."""
        desk = self.desk[c]
        asks_service = len(desk.operations) + len(desk.answers) + len(desk.timers) > 0
        asks_bookies = any(self.wire[c][b].awaited for b in self.bookies)
        writer = self.writer
        if writer.changing_ensemble or writer.status in (WriterStatus.CREATING, WriterStatus.CLOSING):
            return asks_service
        return asks_bookies or not (writer.adds.pending or writer.status is WriterStatus.DRAINING)


def _is_entry(entry: Entry | None, entry_id: int) -> bool:
    return entry is not None and (entry.data, entry.length) == (data_of(entry_id), entry_id + 1)


def _without(awaited: tuple[Any, ...], one: Any) -> tuple[Any, ...]:
    place = awaited.index(one)
    return awaited[:place] + awaited[place + 1 :]


def _are_alike(one: tuple[int, Response], other: tuple[int, Response]) -> bool:
    """Whether two answers are to adds of the same attempt, with the same code."""
    (attempt, first), (other_attempt, second) = one, other
    are_adds = isinstance(first, AddEntryResponse) and isinstance(second, AddEntryResponse)
    return are_adds and (attempt, first.code) == (other_attempt, second.code)
