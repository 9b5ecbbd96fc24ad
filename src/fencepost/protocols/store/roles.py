"""The roles of the store themselves: the classes that its clients and bookies run, explored state by state.

The roles are not modelled again. The protocol holds a :class:`fencepost.ledger.roles.writer.Writer`, a
:class:`fencepost.ledger.roles.recoverer.Recoverer` for each client that recovers the ledger, a
:class:`fencepost.ledger.roles.reader.Reader` for each that reads it, and a
:class:`fencepost.ledger.roles.bookie.Bookie` for each bookie. Every step gives one of them an event, or moves the world
around it. `store` covers the same by the rules alone; this protocol adds the order in which the roles call them, and
their own requests and answers in flight.

The protocol plays the drivers of the roles, and the world around them. Messages on a connection arrive in order,
several adds at once or one by one. A connection that breaks loses the answers in flight; requests may still arrive. A
journal becomes durable up to any record, and after a crash a bookie may still have any prefix of what was not durable
yet. A write of metadata is done at one time and answered at another, or not answered. A client that crashes does
nothing more. There is no clock: a timer that is set may fire at any time, and a reader may consider any bookie late.

A bookie numbers its journal records and look-ups. To keep the state small, the protocol renumbers them: records from
the last durable one, and look-ups from the last waiting long poll.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar

import msgspec

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    Record,
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
    sometimes,
    state,
    step_invariant,
)
from fencepost.ledger.entries import Digests, Entry, master_key
from fencepost.ledger.messages import (
    NO_ENTRY_YET,
    AddEntry,
    AddEntryResponse,
    ReadEntry,
    ReadEntryResponse,
    Request,
    Response,
)
from fencepost.ledger.records import EntryAdded, JournalRecord, LacWritten, LedgerFenced
from fencepost.ledger.roles import interface as role
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.roles.reader import Reader, ReaderSettings, ReaderStatus
from fencepost.ledger.roles.reading import Answers
from fencepost.ledger.roles.recoverer import Recoverer, RecovererSettings, RecoveryStatus
from fencepost.ledger.roles.requests import AddRequests, FoundRequests, grouped, is_plain_read
from fencepost.ledger.roles.writer import Writer, WriterSettings, WriterStatus
from fencepost.ledger.rules.boot import Mark, mark_of
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import covers_ensemble, fragment_of, is_committed, is_in_write_set, write_set
from fencepost.ledger.rules.metadata import DigestType, LedgerMetadata, LedgerStatus, end_of, takes_update
from fencepost.protocols.store.protections import Protected

LEDGER = 1
WRITER = ModelValue("w")
"""The client that creates the ledger."""

DIGESTS = Digests(DigestType.DUMMY, b"")

STRANGER = -1
"""The connection of a sender that is not a client of the ledger."""

CREATE, CLOSE, RECOVER, MARK, OPEN, FILL, APPEND, ASK, FORCE, WAIT = 1, 2, 3, 4, 5, 6, 10, 20, 30, 40
"""The tokens of calls. A call that can be repeated adds a number to its token."""


ONE_COPY: Mapping[str, Any] = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
ONE_BOOKIE: Mapping[str, Any] = {"bookies": 1, **ONE_COPY}
STRIPED: Mapping[str, Any] = {"ensemble_size": 2, "write_quorum": 1, "ack_quorum": 1}
RECOVERED: Mapping[str, Any] = {"recoverers": 1, "entries": 1}
"""Constants that several configurations share."""

LOSS, DURABLE = "confirmed_entries_are_in_the_ledger", "confirmed_entries_are_durable"
"""Invariants that several configurations violate."""


class Start(enum.Enum):
    """What has happened before the initial state."""

    FRESH = "nothing: the writer is called to create the ledger"
    ABANDONED = (
        "the writer has sent all entries, only the first bookie has received them, and the writer does nothing more"
    )


class Kind(enum.Enum):
    """The kinds of requests, by how their answers reach a role."""

    ADD = "with other adds"
    READ = "with other reads"
    OTHER = "by itself"


class Awaited(Record):
    """A request whose answer a client waits for. ``number``: its number on the wire. ``txn``: the number by which the
    client's role knows it. ``entry_id``: the entry that it adds or reads.
    """

    number: int
    kind: Kind
    txn: int
    entry_id: int = NO_ENTRY_YET


class Wire:
    """The messages in flight between a client and a bookie, in order and numbered.

    ``sent``: the number of the last request. ``late``: requests of a broken connection that may still arrive.
    ``is_broken``: the connection is broken, and the client does not know it yet.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.requests: tuple[tuple[int, Request], ...] = ()
        self.late: tuple[tuple[int, Request], ...] = ()
        self.answers: tuple[tuple[int, Response], ...] = ()
        self.awaited: tuple[Awaited, ...] = ()
        self.is_broken = False


class Desk:
    """The operations in flight between a client and the metadata service, and what the client's caller knows.

    ``late``: operations that the client has given up, and that may still be done. ``confirmed``: the last entry that
    the caller knows to be safe. ``results``: those of calls. ``watches``: whether the client watches the metadata.
    ``is_notified``: whether a notification of a change is on its way to it.

    Of a reader: ``reads``: its reads of several entries in flight, each with the last entry that was readable when it
    began. ``found``: the entries that it has read. ``denies``: the entries that it has reported as missing.
    """

    def __init__(self) -> None:
        self.operations: tuple[role.Effect, ...] = ()
        self.late: tuple[role.Effect, ...] = ()
        self.answers: tuple[role.MetadataAnswer, ...] = ()
        self.timers: frozenset[Any] = frozenset()
        self.confirmed = NO_ENTRY_YET
        self.results: tuple[role.Result, ...] = ()
        self.watches = self.is_notified = False
        self.reads: frozenset[tuple[int, int]] = frozenset()
        self.found: frozenset[int] = frozenset()
        self.denies: frozenset[int] = frozenset()


class Disk:
    """A bookie's disk: the durable records, reduced to a minimum, and the journal records that are not durable, in
    order. ``timers``: those of its long polls.
    """

    def __init__(self) -> None:
        self.durable: tuple[JournalRecord, ...] = ()
        self.unsynced: tuple[JournalRecord, ...] = ()
        self.timers: frozenset[tuple[int, int]] = frozenset()


def clients(protocol: StoreRoles) -> tuple[ModelValue, ...]:
    """All clients that have connections to bookies."""
    return (WRITER, *protocol.recoverers, *protocol.readers)


def made_durable(durable: tuple[JournalRecord, ...], records: Sequence[JournalRecord]) -> tuple[JournalRecord, ...]:
    """The durable records, reduced to a minimum: one of each kind, the last one of each entry, and the highest LACs."""
    known: dict[tuple[str, int], JournalRecord] = {}
    for record in (*durable, *records):
        if isinstance(record, EntryAdded):
            known["entry", record.entry_id] = msgspec.structs.replace(record, recovery=False)
        if isinstance(record, EntryAdded | LacWritten):
            written = LacWritten(LEDGER, record.lac, b"" if isinstance(record, EntryAdded) else record.body)
            key = ("LAC with a body" if written.body else "LAC of entries"), 0
            highest = known.get(key)
            if written.lac > (highest.lac if isinstance(highest, LacWritten) else NO_ENTRY_YET):
                known[key] = written
        else:
            known[type(record).__name__, 0] = record
    return tuple(known[key] for key in sorted(known))


def data_of(entry_id: int) -> bytes:
    """The data of an entry: one byte."""
    return bytes([entry_id])


def entries_of(records: Iterable[JournalRecord]) -> dict[int, bytes]:
    """The entries in these records, by their ids."""
    return {record.entry_id: record.body for record in records if isinstance(record, EntryAdded)}


class StoreRoles(Protected, Protocol):
    """The life of one ledger, by the roles of the store: its writer, clients that recover it or read it, and
    bookies.
    """

    name: ClassVar[str] = "store-roles"

    bookies: tuple[ModelValue, ...] = model_values("b", 2, "the bookies that are available")
    recoverers: tuple[ModelValue, ...] = model_values("c", 0, "the clients that recover the ledger")
    readers: tuple[ModelValue, ...] = model_values("r", 0, "the clients that read the ledger")
    start: Start = constant(Start.FRESH, "what has happened before the initial state")
    ensemble_size: int = constant(2, "bookies that entries are striped over")
    write_quorum: int = constant(2, "bookies that an entry is sent to")
    ack_quorum: int = constant(2, "bookies that must confirm an entry before it is committed")
    entries: int = constant(2, "entries that are appended")
    in_flight: int = constant(2, "entries that the writer sends before the first of them is confirmed")
    closing: bool = constant(True, "whether the writer is asked to close the ledger")
    breaks: int = constant(0, "how often connections break, in total")
    timeouts: int = constant(0, "how many requests are given up, over connections that do not break")
    crashes: int = constant(0, "how often a bookie crashes")
    losses: int = constant(0, "how often a bookie loses its disk, and comes back in limbo")
    full: int = constant(0, "how often a bookie runs out of space, and accepts nothing more from the writer")
    strangers: int = constant(0, "entries that a sender without the key adds")
    lost_answers: int = constant(0, "operations on metadata that are not answered, done or not, or yet to be done")
    reads_in_flight: int = constant(1, "entries that a recovery reads at once")
    reads: int = constant(1, "how often a reader reads all entries")
    polls: int = constant(0, "how often a reader that waits for the next entry asks for it")
    questions: int = constant(0, "how often a reader asks for the LAC again")
    deferred_sync: bool = constant(False, "whether entries are confirmed before they are durable, and forced")
    explicit_lac: bool = constant(False, "whether the LAC is also sent alone, where no entry follows")
    forces: int = constant(0, "how often the writer is asked to force the confirmed entries")
    restarts: int = constant(0, "how often a recovery that was overtaken restarts")

    keys_are_checked: bool = constant(True, "whether an add with another master key is refused")
    boot_fences: bool = constant(True, "whether a bookie that has lost its disk fences the ledger before it serves")
    boot_enters_limbo: bool = constant(True, "whether the ledger is in limbo there")

    writer: Writer = actor(lambda protocol: Writer(LEDGER, protocol.writer_settings, protocol.protections))
    recoverer: PerKey[ModelValue, Recoverer] = per_key(
        recoverers, actor(lambda protocol, c: Recoverer(LEDGER, protocol.recoverer_settings, protocol.protections))
    )
    reader: PerKey[ModelValue, Reader] = per_key(
        readers, actor(lambda protocol, r: Reader(LEDGER, protocol.reader_settings, protocol.protections))
    )
    bookie: PerKey[ModelValue, Bookie] = per_key(bookies, actor(lambda protocol, b: Bookie(protocol.protections)))
    disk: PerKey[ModelValue, Disk] = per_key(bookies, actor(lambda protocol, b: Disk()))
    desk: PerKey[ModelValue, Desk] = per_key(clients, actor(lambda protocol, c: Desk()))
    wire: PerKey[ModelValue, PerKey[ModelValue, Wire]] = per_key(
        clients, per_key(bookies, actor(lambda protocol, c, b: Wire()))
    )
    metadata: LedgerMetadata | None = state(None, held_by="metadata")
    version: int = state(0, held_by="metadata")
    tokens: tuple[int, ...] = state(())
    """The token of each appended entry."""
    is_asked_to_close: bool = state(False)
    broken: int = state(0)
    given_up: int = state(0)
    crashed: int = state(0)
    lost: int = state(0)
    strange: int = state(0)
    filled: int = state(0)
    unanswered: int = state(0)
    restarted: int = state(0)
    forced: int = state(0)
    read_by: PerKey[ModelValue, int] = per_key(readers, 0)
    asked_by: PerKey[ModelValue, int] = per_key(readers, 0)

    configurations = {
        "default": configuration(doc="a writer with two entries, and two bookies that both must confirm"),
        "no-room": configuration(**ONE_BOOKIE, in_flight=1, doc="one bookie, and room for one entry in flight"),
        "replaced": configuration(bookies=3, breaks=1, doc="as the default, and another bookie to change to"),
        "one-of-two": configuration(bookies=3, ack_quorum=1, breaks=1, doc="the same, and one confirmation is enough"),
        "given-up": configuration(bookies=3, timeouts=1, doc="the same as replaced, and the answer comes too late"),
        "twice-replaced": configuration(
            bookies=3, entries=1, breaks=2, lost_answers=1, doc="one entry; two bookies fail, and an answer is lost"
        ),
        "striped": configuration(**STRIPED, bookies=3, breaks=1, doc="each entry on one of two bookies"),
        "crash": configuration(crashes=1, doc="as the default, and a bookie crashes"),
        "recovered": configuration(**RECOVERED, doc="one entry, and a client that recovers the ledger"),
        "recovered-one-of-two": configuration(
            **RECOVERED, ack_quorum=1, timeouts=1, doc="the same, one confirmation is enough, and an answer is late"
        ),
        "recovered-and-replaced": configuration(
            **ONE_COPY, recoverers=1, breaks=1, doc="one copy of two entries, and another bookie to change to"
        ),
        "recovered-two-entries": configuration(recoverers=1, doc="as recovered, and two entries: a large one"),
        "recovered-and-crash": configuration(**RECOVERED, crashes=1, doc="as recovered, and a bookie crashes"),
        "recovered-unanswered": configuration(
            **ONE_BOOKIE,
            **RECOVERED,
            lost_answers=2,
            doc="one bookie; the metadata service leaves two operations unanswered",
        ),
        "reads-ahead": configuration(
            **ONE_BOOKIE, recoverers=1, reads_in_flight=2, doc="one bookie; a recovery reads two entries at once"
        ),
        "striped-and-recovered": configuration(
            **STRIPED, recoverers=1, doc="each of two entries on one of two bookies, and a recovery"
        ),
        "copies-striped": configuration(
            start=Start.ABANDONED,
            bookies=3,
            ensemble_size=3,
            ack_quorum=1,
            entries=3,
            in_flight=3,
            recoverers=1,
            doc="two copies of three entries, striped over three bookies, one of which has its copies",
        ),
        "recovery-replaces": configuration(
            start=Start.ABANDONED, recoverers=1, bookies=3, timeouts=1, doc="a recovery that takes another bookie"
        ),
        "overtaken": configuration(
            **ONE_BOOKIE, recoverers=2, entries=1, restarts=1, doc="one bookie; a recovery overtakes another"
        ),
        "two-recoveries": configuration(
            start=Start.ABANDONED, recoverers=2, entries=1, doc="two recoveries of what two bookies have: a large one"
        ),
        "limbo": configuration(**RECOVERED, ack_quorum=1, losses=1, doc="a bookie loses its disk"),
        "full": configuration(
            **RECOVERED,
            bookies=3,
            full=1,
            doc="one entry; a bookie is full, and is replaced, or takes it from a recovery",
        ),
        "deferred": configuration(
            deferred_sync=True, forces=2, crashes=1, doc="entries are confirmed before they are durable, and forced"
        ),
        "deferred-and-recovered": configuration(
            **ONE_BOOKIE,
            recoverers=1,
            deferred_sync=True,
            forces=1,
            crashes=1,
            doc="the same on one bookie, and a recovery",
        ),
        "reader": configuration(readers=1, doc="as the default, and a client reads meanwhile"),
        "reader-of-one-of-two": configuration(
            readers=1, entries=1, ack_quorum=1, timeouts=1, doc="one entry, which a bookie that is asked may lack"
        ),
        "reader-of-fragments": configuration(
            **ONE_COPY, readers=1, breaks=1, doc="a client reads what is written to one bookie, and then to another"
        ),
        "reader-and-recovery": configuration(
            **ONE_BOOKIE, recoverers=1, readers=1, doc="one bookie; a client reads, and another recovers the ledger"
        ),
        "long-polls": configuration(**ONE_BOOKIE, readers=1, reads=0, polls=2, doc="a client waits for the next entry"),
        "explicit-lac": configuration(
            **ONE_BOOKIE,
            readers=1,
            entries=1,
            questions=1,
            explicit_lac=True,
            crashes=1,
            doc="one entry on one bookie, whose LAC is sent alone",
        ),
        "stranger": configuration(**ONE_BOOKIE, **RECOVERED, strangers=1, doc="a sender without the key adds an entry"),
        "fenced-bookies-add": configuration(
            LOSS, "a fenced bookie accepts entries of the writer", **RECOVERED, fenced_bookies_refuse=False
        ),
        "one-bookie-fenced": configuration(
            "recoveries_read_when_the_writer_is_fenced_off",
            "recovery reads when one bookie is fenced",
            **RECOVERED,
            ack_quorum=1,
            fencing_covers_ensemble=False,
        ),
        "reads-without-fencing": configuration(
            LOSS, "a bookie stores an entry after denying it", **RECOVERED, breaks=1, recovery_reads_fence=False
        ),
        "starts-at-the-lac": configuration(
            LOSS,
            "recovery trusts the LAC of a bookie that joined late",
            **ONE_COPY,
            recoverers=1,
            breaks=1,
            recovery_starts_at_fragment=False,
        ),
        "reads-move-on": configuration(
            LOSS,
            "recovery reads from the ensemble that it has changed to",
            **ONE_COPY,
            recoverers=1,
            entries=3,
            in_flight=3,
            closing=False,
            timeouts=1,
            recovery_reads_stay=False,
        ),
        "fragments-at-once": configuration(
            DURABLE,
            "recovery publishes its ensemble before the entries are there",
            **ONE_COPY,
            **RECOVERED,
            breaks=1,
            recovery_keeps_fragments=False,
        ),
        "hasty-negatives": configuration(
            LOSS,
            "recovery accepts one bookie's answer that there is no such entry",
            **RECOVERED,
            ack_quorum=1,
            negatives_cover_quorum=False,
        ),
        "closes-before-writing-back": configuration(
            "closed_ledgers_are_whole",
            "recovery closes before entries have an ack quorum",
            **RECOVERED,
            write_back_before_close=False,
        ),
        "unconditional-updates": configuration(
            "the_writer_knows_where_it_has_closed",
            "metadata are replaced even if somebody has changed them",
            **ONE_BOOKIE,
            **RECOVERED,
            conditional_updates=False,
        ),
        "confirmations-kept": configuration(
            DURABLE,
            "a bookie that has left the ensemble still counts",
            bookies=3,
            breaks=1,
            confirmations_withdrawn=False,
        ),
        "confirmed-out-of-order": configuration(
            DURABLE, "the LAC passes an entry that is not confirmed", **STRIPED, confirmed_in_order=False
        ),
        "lac-runs-ahead": configuration(
            DURABLE,
            "the LAC goes on while the ensemble is being changed",
            **ONE_COPY,
            breaks=1,
            lac_waits_for_change=False,
        ),
        "lac-of-recovery": configuration(
            "no_lac_beyond_the_end",
            "a recovery sends its LAC before it closes the ledger: a large one",
            start=Start.ABANDONED,
            recoverers=2,
            recovery_freezes_lac=False,
        ),
        "keys-not-checked": configuration(
            "bookies_have_what_was_appended",
            "a bookie stores an entry of a sender without the key",
            **ONE_BOOKIE,
            strangers=1,
            keys_are_checked=False,
        ),
        "limbo-denies": configuration(
            LOSS,
            "a bookie in limbo says that it has no such entry",
            **RECOVERED,
            ack_quorum=1,
            losses=1,
            limbo_is_unknown=False,
        ),
        "boot-does-not-fence": configuration(
            "recoveries_read_when_the_writer_is_fenced_off",
            "a bookie that has lost its disk forgets that it was fenced",
            **ONE_BOOKIE,
            **RECOVERED,
            losses=1,
            boot_fences=False,
        ),
        "boot-without-limbo": configuration(
            LOSS,
            "a bookie that has lost an entry says that there is none",
            **RECOVERED,
            ack_quorum=1,
            losses=1,
            boot_enters_limbo=False,
        ),
    }

    @property
    def writer_settings(self) -> WriterSettings:
        """The settings of the writer."""
        return WriterSettings(
            self.ensemble_size,
            self.write_quorum,
            self.ack_quorum,
            digest_type=DigestType.DUMMY,
            creation_token=1,
            in_flight_limit=self.in_flight,
            deferred_sync=self.deferred_sync,
            explicit_lac_interval=int(self.explicit_lac),
        )

    @property
    def recoverer_settings(self) -> RecovererSettings:
        """The settings of recoveries."""
        return RecovererSettings(in_flight_limit=self.reads_in_flight)

    @property
    def reader_settings(self) -> ReaderSettings:
        """The settings of readers. Everything happens at time 0, so a reader may consider any bookie late at any
        time.
        """
        return ReaderSettings(speculation_delay=0, poll_wait=int(self.polls > 0))

    @initial
    def the_writer_is_called(self) -> None:
        """The writer knows the bookies, and is called to create the ledger. ``start`` decides what follows."""
        names = tuple(b.name for b in self.bookies)
        for c in clients(self):
            self._give(c, role.BookiesChanged(names))
        self._give(WRITER, role.Call(CREATE, "create"))
        if self.start is Start.ABANDONED:
            self.metadata_are_asked(WRITER)
            self.metadata_come(WRITER)
            self._append(self.entries)
            first = self.bookies[0]
            self._take(WRITER, first, self.wire[WRITER][first].requests)
            self._sync(first, len(self.disk[first].unsynced))
            for b in self.bookies:
                self.wire[WRITER][b] = Wire()

    # -- the roles and their drivers -----------------------------------------------------------------------------------

    def _give(self, c: ModelValue, event: role.Event) -> None:
        """Give a client an event, and carry out the effects."""
        for effect in self._role(c).receive(event, 0):
            self._do(c, effect)

    def _role(self, c: ModelValue) -> role.Role:
        if c == WRITER:
            return self.writer
        return self.recoverer[c] if c in self.recoverers else self.reader[c]

    def _do(self, c: ModelValue, effect: role.Effect) -> None:
        desk = self.desk[c]
        match effect:
            case role.SendAdds():
                for at in range(len(effect.adds)):
                    entry_id = effect.adds.first + at
                    if is_in_write_set(effect.place, entry_id, effect.ensemble_size, effect.write_quorum):
                        self._send(c, effect.bookie, effect.adds[at], Kind.ADD, effect.attempt, entry_id)
            case role.SendReads():
                for entry_id in effect.entry_ids:
                    self._send(c, effect.bookie, ReadEntry(LEDGER, entry_id), Kind.READ, effect.reading, entry_id)
            case role.Send():
                self._send(c, effect.bookie, effect.request, Kind.OTHER, effect.txn)
            case role.CreateMetadata() | role.ReadMetadata() | role.WriteMetadata():
                desk.operations = (*desk.operations, effect)
            case role.SetTimer():
                desk.timers = desk.timers | {effect.key}
            case role.ReadOver():
                self._read_ends(c, effect)
            case role.Confirmed():
                assert effect.entry_id > desk.confirmed, "the writer confirms nothing new"
                desk.confirmed = effect.entry_id
            case role.Result():
                if effect.token >= WAIT:
                    self._wait_ends(c, effect)
                else:
                    desk.results = (*desk.results, effect)
            case _:
                raise AssertionError(f"unknown effect: {effect}")

    def _read_ends(self, r: ModelValue, effect: role.ReadOver) -> None:
        """A read ends: all its entries have arrived, or those before one that cannot be read."""
        desk, readable = self.desk[r], self._readable(r)
        if effect.token > 0:
            assert desk.found >= {*range(effect.stop)}, "the reader reports entries that have not arrived"
            ((_, readable),) = over = {one for one in desk.reads if one[0] == effect.token}
            desk.reads = desk.reads - over
        if effect.error is role.Error.NO_ENTRY:
            desk.denies = desk.denies | {effect.stop}
        elif effect.error and not (self.broken or self.given_up or self.crashed or self.lost):
            assert effect.stop > readable, "the reader fails without a reason"

    def _readable(self, r: ModelValue) -> int:
        """The last entry that a reader considers readable."""
        reader = self.reader[r]
        return max(reader.lac, NO_ENTRY_YET if reader.end is None else reader.end)

    def _wait_ends(self, r: ModelValue, result: role.Result) -> None:
        """A wait for an entry ends: the entry can be read, or came with the answer, or will never exist."""
        entry_id = result.token - WAIT
        if result.value is None:
            assert self.metadata is not None and end_of(self.metadata) is not None, (
                "the reader ends a ledger that is not closed"
            )
        elif result.value is not True:
            assert result.value == data_of(entry_id), "the reader returns data that was not written"
            self.desk[r].found = self.desk[r].found | {entry_id}

    def _send(
        self, c: ModelValue, name: str, request: Request, kind: Kind, txn: int, entry_id: int = NO_ENTRY_YET
    ) -> None:
        wire = self.wire[c][self._bookie_called(name)]
        wire.sent += 1
        wire.awaited = (*wire.awaited, Awaited(wire.sent, kind, txn, entry_id))
        if not wire.is_broken:
            wire.requests = (*wire.requests, (wire.sent, request))

    def _bookie_called(self, name: str) -> ModelValue:
        return next(b for b in self.bookies if b.name == name)

    def _ask(self, b: ModelValue, event: role.Event, reads: Sequence[Any] = ()) -> None:
        """Give a bookie an event, and carry out the effects. ``reads``: the plain reads that the event announces. Its
        disk finds entries at once.
        """
        disk, events = self.disk[b], deque([event])
        while events:
            for effect in self.bookie[b].receive(events.popleft(), 0):
                match effect:
                    case role.Journal():
                        disk.unsynced = (*disk.unsynced, effect.record)
                        assert effect.position == len(disk.unsynced), "the bookie miscounts its records"
                    case role.JournalAdds():
                        records = [record for adds in effect.adds for record in adds.records()]  # type: ignore[attr-defined]
                        disk.unsynced = (*disk.unsynced, *records)
                        assert effect.position == len(disk.unsynced), "the bookie miscounts its records"
                    case role.SetTimer():
                        disk.timers = disk.timers | {effect.key}
                    case role.Result():
                        assert not effect.error, "the call fails"
                    case role.LookUp():
                        events.append(self._found(b, effect))
                    case role.LookUpReads():
                        events.extend(self._reads_found(b, effect, reads))
                    case role.AnswerReads():
                        for txn, response in effect.reads.responses(effect.code, effect.lac):  # type: ignore[attr-defined]
                            self._answer(b, effect.connection, txn, response)
                    case role.Answer():
                        self._answer(b, effect.connection, effect.txn, effect.response)
                    case role.AnswerAdds():
                        for adds in effect.adds:
                            for txn, response in adds.responses(effect.code):  # type: ignore[attr-defined]
                                self._answer(b, effect.connection, txn, response)
                    case _:
                        raise AssertionError(f"unknown effect: {effect}")

        self._renumber_look_ups(b)

    def _renumber_look_ups(self, b: ModelValue) -> None:
        """Renumber a bookie's look-ups from the last long poll, and drop the timers of polls that have ended."""
        bookie, disk = self.bookie[b], self.disk[b]
        last = max(bookie.polls, default=0)
        if bookie.number != last:
            bookie.number = last
        disk.timers = frozenset(key for key in disk.timers if key[1] in bookie.polls)

    def _found(self, b: ModelValue, effect: role.LookUp) -> role.Found:
        entries = self._entries(b)
        entry_id = max(entries, default=NO_ENTRY_YET) if effect.entry_id == NO_ENTRY_YET else effect.entry_id
        code = Code.OK if entry_id in entries else Code.NO_ENTRY
        return role.Found(effect.number, code, entry_id, entries.get(entry_id))

    def _reads_found(self, b: ModelValue, effect: role.LookUpReads, reads: Sequence[Any]) -> list[role.ReadsFound]:
        """The results of plain reads, grouped by code."""
        assert len(reads) == effect.count, "the bookie refuses some reads"
        found: dict[Code, list[tuple[int, int, bytes | None]]] = {}
        entries = self._entries(b)
        for txn, request in reads:
            body = entries.get(request.entry_id)
            code = Code.NO_ENTRY if body is None else Code.OK
            found.setdefault(code, []).append((txn, request.entry_id, body))
        return [
            role.ReadsFound(effect.number, LEDGER, code, FoundRequests(LEDGER, some)) for code, some in found.items()
        ]

    def _entries(self, b: ModelValue) -> dict[int, bytes]:
        """The entries that a bookie has, durable or not."""
        return entries_of((*self.disk[b].durable, *self.disk[b].unsynced))

    def _answer(self, b: ModelValue, connection: int, number: int, response: Response) -> None:
        """Send an answer, if a client waits for it and the connection is not broken."""
        if connection == STRANGER:
            return
        wire = self.wire[clients(self)[connection]][b]
        if not wire.is_broken and any(one.number == number for one in wire.awaited):
            wire.answers = (*wire.answers, (number, response))

    # -- callers -------------------------------------------------------------------------------------------------------

    @action
    def append(self) -> None:
        """A caller appends entries, one, or all that are left at once."""
        first = len(self.tokens)
        require(first < self.entries)
        require(self.writer.status is WriterStatus.OPEN)
        left = self.entries - first
        self._append(one_of((1, left) if left > 1 else (1,)))

    def _append(self, count: int) -> None:
        first = len(self.tokens)
        self.tokens = (*self.tokens, *(APPEND + first,) * count)
        self._give(WRITER, role.Append(APPEND + first, tuple(data_of(first + at) for at in range(count))))

    @action
    def close(self) -> None:
        """A caller closes the ledger."""
        require(self.closing and self.start is Start.FRESH)
        require(not self.is_asked_to_close)
        require(self.writer.status not in (WriterStatus.NEW, WriterStatus.CREATING))
        self.is_asked_to_close = True
        self._give(WRITER, role.Call(CLOSE, "close"))

    @action(c=recoverers)
    def recover(self, c: ModelValue) -> None:
        """A caller recovers the ledger."""
        require(self.metadata is not None)
        require(self.recoverer[c].status is RecoveryStatus.IDLE)
        require(not self.desk[c].results)
        self._give(c, role.Call(RECOVER, "recover"))

    @action
    def force(self) -> None:
        """A caller forces the confirmed entries to be durable."""
        require(self.forces > 0)
        require(self.writer.status is WriterStatus.OPEN)
        require(self.writer.adds.confirmed > self.writer.lac)
        require(len(self.writer.forces) == 0 and self.forced < self.forces)
        self.forced += 1
        self._give(WRITER, role.Call(FORCE + self.forced, "force"))

    @action(r=readers)
    def open(self, r: ModelValue) -> None:
        """A caller opens the ledger to read it."""
        require(self.metadata is not None)
        require(self.reader[r].status is ReaderStatus.NEW)
        self._give(r, role.Call(OPEN, "open"))

    @action(r=readers)
    def read(self, r: ModelValue) -> None:
        """A caller reads all entries, together or one by one, whether or not they can be read."""
        require(self.read_by[r] < self.reads)
        require(self.reader[r].status is ReaderStatus.OPEN)
        self.read_by[r] += 1
        if one_of((True, False)):
            self.desk[r].reads = self.desk[r].reads | {(self.read_by[r], self._readable(r))}
            self._give(r, role.ReadEntries(self.read_by[r], 0, self.entries - 1))
        else:
            self._give(r, role.WantEntries(tuple(range(self.entries))))

    @action(r=readers)
    def ask_for_lac(self, r: ModelValue) -> None:
        """A caller asks how far the ledger can be read now."""
        require(self.asked_by[r] < self.questions)
        require(self.reader[r].status is ReaderStatus.OPEN)
        self.asked_by[r] += 1
        self._give(r, role.Call(ASK + self.asked_by[r], "lac"))

    @action(r=readers)
    def wait_for_entry(self, r: ModelValue) -> None:
        """A caller waits for the entry after the last readable one."""
        reader = self.reader[r]
        require(reader.polled < self.polls)
        require(reader.status is ReaderStatus.OPEN)
        require(reader.end is None)
        require(len(reader.tails) == 0)
        self._give(r, role.Call(WAIT + reader.lac + 1, "tail", (reader.lac + 1,)))

    @action(r=readers)
    def change_is_told(self, r: ModelValue) -> None:
        """A reader that watches the metadata is notified that they have changed."""
        desk = self.desk[r]
        require(desk.is_notified)
        desk.is_notified = False
        self._give(r, role.MetadataChanged(LEDGER))

    # -- connections ---------------------------------------------------------------------------------------------------

    @action(c=clients, b=bookies, by="b")
    def request_comes(self, c: ModelValue, b: ModelValue) -> None:
        """A request arrives at a bookie, or several adds at once."""
        wire = self.wire[c][b]
        taken, wire.requests = self._arriving_together(wire.requests)
        self._take(c, b, taken)

    @action(c=clients, b=bookies, by="b")
    def late_request_comes(self, c: ModelValue, b: ModelValue) -> None:
        """The same over a broken connection."""
        wire = self.wire[c][b]
        taken, wire.late = self._arriving_together(wire.late)
        self._take(c, b, taken)

    def _arriving_together(self, requests: tuple[tuple[int, Request], ...]) -> tuple[Any, Any]:
        """The requests that arrive together, and those that arrive later."""
        require(len(requests) > 0)
        alike = 1
        if _kind(requests[0]) is not None:
            while alike < len(requests) and _kind(requests[0]) is _kind(requests[alike]):
                alike += 1
        count = one_of(range(1, alike + 1))
        return requests[:count], requests[count:]

    def _take(self, c: ModelValue, b: ModelValue, requests: Sequence[Any]) -> None:
        connection, kind = clients(self).index(c), _kind(requests[0])
        if kind is role.AddsArrived:
            for adds in grouped(requests):
                self._ask(b, role.AddsArrived(connection, adds))
        elif kind is role.ReadsArrived:
            self._ask(b, role.ReadsArrived(connection, len(requests)), requests)
        else:
            self._ask(b, role.RequestArrived(connection, *requests[0]))

    @action(b=bookies, c=clients, by="c")
    def answer_comes(self, b: ModelValue, c: ModelValue) -> None:
        """An answer arrives at a client, or several similar answers to adds."""
        wire = self.wire[c][b]
        require(len(wire.answers) > 0)
        asked = {one.number: one for one in wire.awaited}
        alike = 1
        while alike < len(wire.answers) and _are_alike(asked, wire.answers[0], wire.answers[alike]):
            alike += 1
        count = one_of(range(1, alike + 1))
        taken, wire.answers = wire.answers[:count], wire.answers[count:]
        answered = [(asked[number], response) for number, response in taken]
        wire.awaited = tuple(one for one in wire.awaited if all(one != other for other, _ in answered))
        self._answered(c, b, answered)

    def _answered(self, c: ModelValue, b: ModelValue, answered: Sequence[tuple[Awaited, Response | None]]) -> None:
        """Deliver similar answers of a bookie to a client. None instead of an answer means that the client gives up
        waiting.
        """
        first, response = answered[0]
        if first.kind is Kind.ADD:
            entry_ids = tuple(one.entry_id for one, _ in answered)
            code = response.code if isinstance(response, AddEntryResponse) else None
            self._give(c, role.AddsAnswered(b.name, entry_ids, code, first.txn))
        elif first.kind is Kind.READ:
            self._reads_answered(c, b, answered)
        elif response is None:
            self._give(c, role.Unanswered(first.txn, b.name))
        else:
            self._give(c, role.Received(first.txn, b.name, response))

    def _reads_answered(self, r: ModelValue, b: ModelValue, answered: Sequence[tuple[Awaited, Any]]) -> None:
        desk, answers = self.desk[r], Answers()
        for one, response in answered:
            entry = answers.add(self.reader[r].digests, one.txn, b.name, (LEDGER, one.entry_id), response)
            if entry is not None:
                assert _is_entry(entry, one.entry_id), "the reader returns data that was not written"
                desk.found = desk.found | {one.entry_id}
        for event in answers.taken():
            self._give(r, event)

    def _unanswered(self, c: ModelValue, b: ModelValue, awaited: Sequence[Awaited]) -> None:
        """A client gives up waiting for some requests."""
        for (kind, _), some in groupby(awaited, lambda one: (one.kind, one.txn)):
            together = [(one, None) for one in some]
            assert kind is not Kind.OTHER or len(together) == 1
            self._answered(c, b, together)

    @action(c=clients, b=bookies)
    def request_is_given_up(self, c: ModelValue, b: ModelValue) -> None:
        """A client gives up a request. The answer may have been in flight, or may arrive too late."""
        wire = self.wire[c][b]
        require(self.given_up < self.timeouts)
        self.given_up += 1
        one = one_of(wire.awaited)
        wire.awaited = tuple(other for other in wire.awaited if other != one)
        wire.answers = tuple(answer for answer in wire.answers if answer[0] != one.number)
        self._unanswered(c, b, (one,))

    @action(c=clients, b=bookies)
    def connection_breaks(self, c: ModelValue, b: ModelValue) -> None:
        """A connection breaks while a client waits for an answer. Some of the requests may still arrive."""
        wire = self.wire[c][b]
        require(self.broken < self.breaks)
        require(len(wire.awaited) > 0)
        require(not wire.is_broken)
        self.broken += 1
        wire.late = (*wire.late, *wire.requests[: one_of(range(len(wire.requests) + 1))])
        self._break(wire)

    def _break(self, wire: Wire) -> None:
        wire.requests = wire.answers = ()
        wire.is_broken = True

    @action(c=clients, b=bookies)
    def client_notices(self, c: ModelValue, b: ModelValue) -> None:
        """A client notices that a connection is broken: its requests will not be answered."""
        wire = self.wire[c][b]
        require(wire.is_broken)
        awaited, wire.awaited, wire.is_broken = wire.awaited, (), False
        self._give(c, role.Disconnected(b.name))
        self._unanswered(c, b, awaited)

    # -- bookies -------------------------------------------------------------------------------------------------------

    @action(b=bookies)
    def journal_is_synced(self, b: ModelValue) -> None:
        """The journal of a bookie becomes durable up to one of its records."""
        disk = self.disk[b]
        require(len(disk.unsynced) > 0)
        self._sync(b, one_of(range(1, len(disk.unsynced) + 1)))

    def _sync(self, b: ModelValue, synced: int) -> None:
        disk = self.disk[b]
        disk.durable = made_durable(disk.durable, disk.unsynced[:synced])
        disk.unsynced = disk.unsynced[synced:]
        self._ask(b, role.JournalSynced(synced))
        self._renumber_records(b, synced)

    def _renumber_records(self, b: ModelValue, synced: int) -> None:
        """Renumber the journal records of a bookie from the last durable one."""
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
    def poll_is_over(self, b: ModelValue) -> None:
        """A long poll at a bookie times out."""
        self._ask(b, role.TimerFired(one_of(self.disk[b].timers)))

    @action(b=bookies)
    def bookie_crashes(self, b: ModelValue) -> None:
        """A bookie crashes, and comes back with what was durable, and perhaps more of its journal."""
        require(self.crashed < self.crashes)
        self.crashed += 1
        disk = self.disk[b]
        disk.durable = made_durable(disk.durable, disk.unsynced[: one_of(range(len(disk.unsynced) + 1))])
        self._restart(b)
        for record in disk.durable:
            replayed = LacWritten(LEDGER, record.lac, b"") if isinstance(record, EntryAdded) else record
            self._ask(b, role.Replayed(replayed))  # type: ignore[arg-type]

    def _restart(self, b: ModelValue) -> None:
        """Restart a bookie. Messages to it are lost."""
        self.disk[b].unsynced = ()
        for c in clients(self):
            wire = self.wire[c][b]
            wire.late = ()
            if wire.sent:
                self._break(wire)
        self.bookie[b] = Bookie(self.protections)

    @action(b=bookies)
    def bookie_loses_its_disk(self, b: ModelValue) -> None:
        """A bookie crashes, and comes back with an empty disk. The ledger is marked before it serves."""
        require(self.lost < self.losses)
        require(len(self.disk[b].durable) > 0)
        self.lost += 1
        self.disk[b].durable = ()
        self._restart(b)
        assert self.metadata is not None
        mark = mark_of(self.metadata, b.name, self.protections)
        if mark is not Mark.NOTHING:
            self._ask(b, role.Call(MARK, "enter limbo" if mark is Mark.LIMBO else "fence", (LEDGER,)))
        if self.disk[b].unsynced:
            self._sync(b, len(self.disk[b].unsynced))

    @action(b=bookies)
    def bookie_is_full(self, b: ModelValue) -> None:
        """A bookie runs out of space and reserves the rest for recoveries."""
        require(self.filled < self.full)
        self.filled += 1
        self._ask(b, role.Call(FILL, "read only", (True,)))

    @action(b=bookies)
    def stranger_adds(self, b: ModelValue) -> None:
        """A sender without the key asks a bookie to store an entry."""
        require(self.strange < self.strangers)
        require(LEDGER in self.bookie[b].ledgers)
        self.strange += 1
        body = DIGESTS.entry_body(Entry(LEDGER, 0, NO_ENTRY_YET, 1, b"?"))
        add = AddEntry(LEDGER, 0, NO_ENTRY_YET, body, master_key(b"?"))
        self._ask(b, role.AddsArrived(STRANGER, (AddRequests(((1, add),)),)))

    # -- the metadata service ------------------------------------------------------------------------------------------

    def _carried_out(self, operation: role.Effect) -> tuple[role.Outcome, int, LedgerMetadata | None]:
        """Carry out an operation. Return its outcome, and the version and metadata that go with it."""
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
                self._notify()
                return role.Outcome.OK, self.version, None
            case _:
                if self.metadata is None:
                    return role.Outcome.NO_LEDGER, -1, None
                return role.Outcome.OK, self.version, self.metadata

    def _notify(self) -> None:
        """Notify the clients that watch the metadata of a change."""
        for r in self.readers:
            desk = self.desk[r]
            if desk.watches:
                desk.watches, desk.is_notified = False, True

    @action(c=clients, by="metadata")
    def metadata_are_asked(self, c: ModelValue) -> None:
        """The metadata service carries out an operation of a client. The answer is sent, or lost."""
        desk = self.desk[c]
        require(len(desk.operations) > 0)
        operation, desk.operations = desk.operations[0], desk.operations[1:]
        if isinstance(operation, role.ReadMetadata) and operation.watch:
            desk.watches = True
        outcome, version, metadata = self._carried_out(operation)
        answer = role.MetadataAnswer(operation.txn, outcome, version, metadata)  # type: ignore[attr-defined]
        if one_of((False, True) if self.unanswered < self.lost_answers else (False,)):
            self.unanswered += 1
            answer = role.MetadataAnswer(answer.txn, role.Outcome.UNKNOWN)
        desk.answers = (*desk.answers, answer)

    @action(c=clients)
    def operation_is_given_up(self, c: ModelValue) -> None:
        """The session of a client is lost before an operation is done. The operation is done later, or never."""
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
        """The metadata service carries out an operation that the client has given up."""
        desk = self.desk[c]
        require(len(desk.late) > 0)
        operation, desk.late = desk.late[0], desk.late[1:]
        self._carried_out(operation)

    @action(c=clients)
    def metadata_come(self, c: ModelValue) -> None:
        """A client receives the answer of the metadata service."""
        desk = self.desk[c]
        require(len(desk.answers) > 0)
        answer, desk.answers = desk.answers[0], desk.answers[1:]
        self._give(c, answer)

    @action(c=clients)
    def timer_fires(self, c: ModelValue) -> None:
        """A client's timer fires."""
        desk = self.desk[c]
        key = one_of(desk.timers)
        if key[0] == "restart":
            require(self.restarted < self.restarts)
            self.restarted += 1
        elif key[0] == "poll":
            require(self.reader[c].polled < self.polls)
        desk.timers = desk.timers - {key}
        self._give(c, role.TimerFired(key))

    # -- what must be possible -----------------------------------------------------------------------------------------

    @sometimes(c=recoverers)
    def recoveries_keep_entries(self, c: ModelValue) -> bool:
        """A recovery can close the ledger with an entry that it has found."""
        reported = [result.value for result in self.desk[c].results if not result.error]
        return not self.is_asked_to_close and any(metadata.last_entry >= 0 for metadata in reported)

    @sometimes(r=readers)
    def readers_find_entries(self, r: ModelValue) -> bool:
        """A reader can find an entry."""
        return len(self.desk[r].found) > 0

    @sometimes(when=lambda protocol: protocol.closing and protocol.start is Start.FRESH)
    def writers_close(self) -> bool:
        """The writer can close the ledger after all entries."""
        ends = [result.value for result in self.desk[WRITER].results if result.token == CLOSE and not result.error]
        return ends == [self.entries - 1]

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _copies(self, metadata: LedgerMetadata, entry_id: int) -> int:
        """The number of a ledger's bookies, according to the metadata, on which an entry is durable."""
        ensemble = tuple(fragment_of(metadata.fragments, entry_id).ensemble)
        asked = [self._bookie_called(name) for name in write_set(entry_id, ensemble, self.write_quorum)]
        return sum(entry_id in entries_of(self.disk[b].durable) for b in asked)

    @invariant
    def confirmed_entries_are_in_the_ledger(self) -> bool:
        """A closed ledger has every entry that was confirmed to the caller."""
        end = None if self.metadata is None else end_of(self.metadata)
        return end is None or end >= self._safe()

    def _safe(self) -> int:
        """The last entry that the caller knows to be safe: confirmed, or, with deferred sync, forced."""
        desk = self.desk[WRITER]
        if not self.deferred_sync:
            return desk.confirmed
        ends = [result for result in desk.results if result.token == CLOSE or result.token > FORCE]
        return max((result.value for result in ends if not result.error), default=NO_ENTRY_YET)

    @invariant(entry_id=lambda protocol: range(protocol.entries), when=lambda protocol: not protocol.losses)
    def confirmed_entries_are_durable(self, entry_id: int) -> bool:
        """An entry that was confirmed to the caller is durable on an ack quorum of its bookies, unless a disk is
        lost.
        """
        if self._safe() < entry_id:
            return True
        assert self.metadata is not None
        return is_committed(self._copies(self.metadata, entry_id), self.ack_quorum)

    @invariant(entry_id=lambda protocol: range(protocol.entries), when=lambda protocol: not protocol.losses)
    def closed_ledgers_are_whole(self, entry_id: int) -> bool:
        """Every entry of a closed ledger is durable on an ack quorum of its bookies, unless a disk is lost."""
        metadata = self.metadata
        if metadata is None or metadata.status is not LedgerStatus.CLOSED or metadata.last_entry < entry_id:
            return True
        return is_committed(self._copies(metadata, entry_id), self.ack_quorum)

    @invariant
    def closed_ledgers_have_their_length(self) -> bool:
        """The length of a closed ledger is the sum of the bytes of its entries."""
        metadata = self.metadata
        return metadata is None or end_of(metadata) is None or metadata.length == metadata.last_entry + 1

    @invariant
    def the_writer_knows_where_it_has_closed(self) -> bool:
        """A ledger that its writer has closed ends at the last confirmed entry, and its caller gets that end."""
        ends = [result.value for result in self.desk[WRITER].results if result.token == CLOSE and not result.error]
        end = None if self.metadata is None else end_of(self.metadata)
        return not ends or ends == [end] == [self._safe()]

    @invariant
    def every_append_is_answered(self) -> bool:
        """When the writer has ended, each entry is confirmed, or its caller knows that it may be lost. No call has two
        answers.
        """
        desk, status = self.desk[WRITER], self.writer.status
        answered = [result.token for result in desk.results]
        failed = {result.token for result in desk.results if result.error}
        has_ended = status in (WriterStatus.CLOSED, WriterStatus.FAILED)
        left = self.tokens[desk.confirmed + 1 :] if has_ended else ()
        return len({*answered}) == len(answered) and failed >= {*left}

    @invariant
    def the_limit_is_kept(self) -> bool:
        """The writer has no more entries in flight than its limit."""
        return self.writer.adds.pushed - self.writer.adds.confirmed <= self.in_flight

    @invariant(b=bookies)
    def bookies_have_what_was_appended(self, b: ModelValue) -> bool:
        """Every entry that a bookie has was appended to the writer, under its id."""
        return all(
            _is_entry(DIGESTS.open_entry(body, LEDGER, entry_id), entry_id)
            for entry_id, body in self._entries(b).items()
        )

    @invariant(c=clients, b=bookies)
    def answers_tell_what_is_durable(self, c: ModelValue, b: ModelValue) -> bool:
        """What a bookie reports to a client is durable."""
        entries = entries_of(self.disk[b].durable)
        for _, response in self.wire[c][b].answers:
            if isinstance(response, AddEntryResponse):
                if response.code is Code.FENCED and not self._is_fenced(b):
                    return False
                if response.code is Code.OK and response.entry_id not in entries and not self.deferred_sync:
                    return False
            elif isinstance(response, ReadEntryResponse) and response.body is not None:
                entry = DIGESTS.open_entry(response.body, LEDGER)
                if entry is None or entry.entry_id not in entries:
                    return False
        return True

    def _is_fenced(self, b: ModelValue) -> bool:
        """Whether the fence of a bookie is durable."""
        return LedgerFenced(LEDGER) in self.disk[b].durable

    @invariant(c=recoverers)
    def recoveries_read_when_the_writer_is_fenced_off(self, c: ModelValue) -> bool:
        """A recovery starts to read only once the bookies that are not fenced cannot form an ack quorum of any write
        set.
        """
        recoverer = self.recoverer[c]
        if recoverer.status not in (RecoveryStatus.READING, RecoveryStatus.CLOSING):
            return True
        fenced = [b.name for b in self.bookies if self._is_fenced(b)]
        return covers_ensemble(fenced, recoverer.ensemble, self.write_quorum, self.ack_quorum)

    @invariant(c=recoverers)
    def recoveries_know_the_end(self, c: ModelValue) -> bool:
        """A recovery reports the end that the ledger was closed at."""
        reported = [result.value for result in self.desk[c].results if not result.error]
        return not reported or (reported == [self.metadata] and reported[0].status is LedgerStatus.CLOSED)

    @invariant(b=bookies)
    def no_lac_beyond_the_end(self, b: ModelValue) -> bool:
        """No bookie has a LAC beyond the end of a closed ledger: a reader would trust it, and read entries that are cut
        off.
        """
        end = None if self.metadata is None else end_of(self.metadata)
        ledger = self.bookie[b].ledgers.get(LEDGER)
        return end is None or ledger is None or ledger.lac <= end

    @invariant(r=readers)
    def readers_find_what_is_confirmed(self, r: ModelValue) -> bool:
        """No reader gets "no such entry" for a confirmed entry. Readers ask only for entries that they consider
        confirmed.
        """
        return len(self.desk[r].denies) == 0

    @invariant(r=readers)
    def no_dirty_reads(self, r: ModelValue) -> bool:
        """An entry that a reader has read is not cut off when the ledger is closed."""
        end = None if self.metadata is None else end_of(self.metadata)
        return end is None or all(entry_id <= end for entry_id in self.desk[r].found)

    @step_invariant(b=bookies)
    def no_lac_of_a_bookie_falls(self, after: StoreRoles, b: ModelValue) -> bool:
        """A bookie never reports a lower LAC to a reader than before, unless the bookie has restarted."""
        if after.crashed > self.crashed or after.lost > self.lost:
            return True
        before, now = (each.bookie[b].ledgers.get(LEDGER) for each in (self, after))
        return before is None or (now is not None and now.lac >= before.lac)

    @invariant(c=clients)
    def who_waits_is_answered(self, c: ModelValue) -> bool:
        """A client that waits for the metadata service, or for bookies, has sent its request."""
        desk = self.desk[c]
        asks_service = len(desk.operations) + len(desk.answers) + len(desk.timers) > 0
        asks_bookies = any(self.wire[c][b].awaited for b in self.bookies)
        if c in self.readers:
            reader = self.reader[c]
            if reader.readings.under_way:
                return asks_bookies or len(desk.operations) + len(desk.answers) > 0
            return asks_service or asks_bookies or not (reader.opens or reader.lac_reads or reader.readings.wanted)
        if c != WRITER:
            status = self.recoverer[c].status
            if status in (RecoveryStatus.FENCING, RecoveryStatus.READING):
                return asks_bookies
            return asks_service or status is RecoveryStatus.IDLE
        writer = self.writer
        if writer.changing_ensemble or writer.status in (WriterStatus.CREATING, WriterStatus.CLOSING):
            return asks_service
        is_there = self.start is Start.FRESH
        return asks_bookies or not (is_there and (writer.adds.pending or writer.status is WriterStatus.DRAINING))


def _is_entry(entry: Entry | None, entry_id: int) -> bool:
    return entry is not None and (entry.data, entry.length) == (data_of(entry_id), entry_id + 1)


def _kind(numbered: tuple[int, Request]) -> type[role.Event] | None:
    """The event of requests that may arrive together, or None for those that arrive alone."""
    _, request = numbered
    if isinstance(request, AddEntry):
        return role.AddsArrived
    return role.ReadsArrived if is_plain_read(request) else None


def _are_alike(asked: Mapping[int, Awaited], one: tuple[int, Response], other: tuple[int, Response]) -> bool:
    """Whether two answers may arrive together: to adds, or to reads that a role knows by the same number."""
    (number, first), (other_number, second) = one, other
    if asked[number].kind is Kind.OTHER or asked[number].kind is not asked[other_number].kind:
        return False
    return asked[number].txn == asked[other_number].txn and first.code is second.code
