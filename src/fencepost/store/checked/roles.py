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
    state,
)
from fencepost.protocols.protections import switched_on
from fencepost.store.entries import Digests, Entry, master_key
from fencepost.store.messages import NO_ENTRY_YET, AddEntry, AddEntryResponse, ReadEntryResponse, Request, Response
from fencepost.store.records import EntryAdded, JournalRecord, LacWritten, LedgerFenced
from fencepost.store.roles import interface as role
from fencepost.store.roles.bookie import Bookie
from fencepost.store.roles.recoverer import Recoverer, RecovererSettings, RecoveryStatus
from fencepost.store.roles.requests import AddRequests, FoundRequests, grouped, is_plain_read
from fencepost.store.roles.writer import Writer, WriterSettings, WriterStatus
from fencepost.store.rules.boot import Mark, mark_of
from fencepost.store.rules.codes import Code
from fencepost.store.rules.ensembles import covers_ensemble, fragment_of, is_committed, is_in_write_set, write_set
from fencepost.store.rules.metadata import DigestType, LedgerMetadata, LedgerStatus, end_of, takes_update
from fencepost.store.rules.protections import Protections

LEDGER = 1
WRITER = ModelValue("w")
"""The client that creates the ledger."""

DIGESTS = Digests(DigestType.DUMMY, b"")

STRANGER = -1
"""The connection of somebody who is no client of the ledger."""

CREATE, CLOSE, RECOVER, MARK, APPEND = 1, 2, 3, 4, 5
"""The tokens of calls. Appends have the numbers from the last one on."""


ONE_COPY: Mapping[str, Any] = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1}
ONE_BOOKIE: Mapping[str, Any] = {"bookies": 1, **ONE_COPY}
STRIPED: Mapping[str, Any] = {"ensemble_size": 2, "write_quorum": 1, "ack_quorum": 1}
RECOVERED: Mapping[str, Any] = {"recoverers": 1, "entries": 1}

LOSS, DURABLE = "confirmed_entries_are_in_the_ledger", "confirmed_entries_are_durable"


class Start(enum.Enum):
    """What has happened at the beginning."""

    FRESH = "nothing: the writer is called to create the ledger"
    ABANDONED = "the writer has sent all entries, which have come to the first bookie alone, and does nothing more"


class Awaited(Record):
    """A request that a client waits for: its number on the wire, that of the client's role, and the entry that it
    adds.
    """

    number: int
    txn: int
    entry_id: int | None


class Wire:
    """What is under way between a client and a bookie, in order, by numbers.

    ``sent``: the number of the last request. ``late``: requests of a connection that is broken, which may still come.
    ``is_broken``: the client does not know yet that its connection is.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.requests: tuple[tuple[int, Request], ...] = ()
        self.late: tuple[tuple[int, Request], ...] = ()
        self.answers: tuple[tuple[int, Response], ...] = ()
        self.awaited: tuple[Awaited, ...] = ()
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
        self.durable: tuple[JournalRecord, ...] = ()
        self.unsynced: tuple[JournalRecord, ...] = ()


def clients(protocol: StoreRoles) -> tuple[ModelValue, ...]:
    """All who have connections to bookies."""
    return (WRITER, *protocol.recoverers)


def made_durable(durable: tuple[JournalRecord, ...], records: Sequence[JournalRecord]) -> tuple[JournalRecord, ...]:
    """What a disk tells with these records: one of each kind, and of each entry the last one."""
    known: dict[tuple[str, int], JournalRecord] = {}
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


def entries_of(records: Iterable[JournalRecord]) -> dict[int, bytes]:
    """The entries that records tell of, by their ids."""
    return {record.entry_id: record.body for record in records if isinstance(record, EntryAdded)}


class StoreRoles(Protocol):
    """The life of one ledger, by the roles that run: its writer, clients that recover it, and bookies."""

    name: ClassVar[str] = "store-roles"

    bookies: tuple[ModelValue, ...] = model_values("b", 2, "the bookies that are available")
    recoverers: tuple[ModelValue, ...] = model_values("r", 0, "the clients that recover the ledger")
    start: Start = constant(Start.FRESH, "what has happened at the beginning")
    ensemble_size: int = constant(2, "bookies that entries are striped over")
    write_quorum: int = constant(2, "bookies that an entry is sent to")
    ack_quorum: int = constant(2, "bookies that must confirm an entry before it is committed")
    entries: int = constant(2, "entries that are appended")
    in_flight: int = constant(2, "entries that the writer sends before the first of them is confirmed")
    closing: bool = constant(True, "whether the writer is asked to close the ledger")
    breaks: int = constant(0, "how often a connection breaks, all together")
    timeouts: int = constant(0, "how many requests are given up, over connections that do not break")
    crashes: int = constant(0, "how often a bookie crashes")
    losses: int = constant(0, "how often a bookie loses its disk, and comes back in limbo")
    strangers: int = constant(0, "entries that somebody without the key wants added")
    lost_answers: int = constant(0, "operations on metadata that are not answered, done or not, or yet to be done")
    reads_in_flight: int = constant(1, "entries that a recovery reads at once")
    restarts: int = constant(0, "how often a recovery that was overtaken begins anew")

    fenced_bookies_refuse: bool = constant(True, "whether a fenced bookie takes recovery adds alone")
    fencing_covers_ensemble: bool = constant(
        True, "whether recovery reads only once every ack quorum of the ensemble has a fenced bookie"
    )
    recovery_reads_fence: bool = constant(True, "whether recovery reads fence the ledger too")
    recovery_starts_at_fragment: bool = constant(
        True, "whether recovery starts at the current fragment at the earliest"
    )
    recovery_reads_stay: bool = constant(True, "whether all recovery reads go to the ensemble that recovery began with")
    recovery_keeps_fragments: bool = constant(
        True, "whether recovery keeps new fragments to itself until it closes the ledger"
    )
    negatives_cover_quorum: bool = constant(
        True, "whether an entry is given up only if too many bookies lack it for it to be committed"
    )
    write_back_before_close: bool = constant(
        True, "whether recovery closes only when all that it read has an ack quorum again"
    )
    conditional_updates: bool = constant(True, "whether metadata are replaced only if nobody else has changed them")
    confirmations_withdrawn: bool = constant(True, "whether a bookie that leaves the ensemble no longer counts")
    confirmed_in_order: bool = constant(True, "whether the LAC passes an entry only after all before it")
    lac_waits_for_change: bool = constant(True, "whether the LAC stands still while the ensemble is being changed")
    recovery_freezes_lac: bool = constant(True, "whether recovery writes carry the LAC that recovery began with")
    keys_are_checked: bool = constant(True, "whether an add with another master key is refused")
    limbo_is_unknown: bool = constant(True, "whether a bookie in limbo does not say that it lacks an entry")
    boot_fences: bool = constant(True, "whether a bookie that has lost its disk fences the ledger before it serves")
    boot_enters_limbo: bool = constant(True, "whether the ledger is in limbo then")

    writer: Writer = actor(lambda protocol: Writer(LEDGER, protocol.writer_settings, protocol.protections))
    recoverer: PerKey[ModelValue, Recoverer] = per_key(
        recoverers, actor(lambda protocol, r: Recoverer(LEDGER, protocol.recoverer_settings, protocol.protections))
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
    """The token of each entry that was appended."""
    is_asked_to_close: bool = state(False)
    broken: int = state(0)
    given_up: int = state(0)
    crashed: int = state(0)
    lost: int = state(0)
    strange: int = state(0)
    unanswered: int = state(0)
    restarted: int = state(0)

    configurations = {
        "default": configuration(doc="a writer with two entries, and two bookies that both must confirm"),
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
        "recovered-and-crash": configuration(**RECOVERED, crashes=1, doc="as recovered, and a bookie crashes"),
        "recovered-unanswered": configuration(
            **ONE_BOOKIE, **RECOVERED, lost_answers=2, doc="one bookie; the metadata service leaves two unanswered"
        ),
        "reads-ahead": configuration(
            **ONE_BOOKIE, recoverers=1, reads_in_flight=2, doc="one bookie; a recovery reads two entries at once"
        ),
        "striped-and-recovered": configuration(
            **STRIPED,
            start=Start.ABANDONED,
            recoverers=1,
            entries=3,
            doc="three entries that are striped and recovered",
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
        "stranger": configuration(**ONE_BOOKIE, **RECOVERED, strangers=1, doc="somebody without the key adds an entry"),
        "fenced-bookies-add": configuration(
            LOSS, "a bookie that is fenced takes entries of the writer", **RECOVERED, fenced_bookies_refuse=False
        ),
        "one-bookie-fenced": configuration(
            "recoveries_read_when_the_writer_is_fenced_off",
            "recovery reads when one bookie is fenced",
            **RECOVERED,
            ack_quorum=1,
            fencing_covers_ensemble=False,
        ),
        "reads-without-fencing": configuration(
            LOSS, "a bookie changes its mind", **RECOVERED, breaks=1, recovery_reads_fence=False
        ),
        "starts-at-the-lac": configuration(
            LOSS,
            "recovery believes a bookie that came late",
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
            "recovery tells of its ensemble before the entries are there",
            **ONE_COPY,
            **RECOVERED,
            breaks=1,
            recovery_keeps_fragments=False,
        ),
        "hasty-negatives": configuration(
            LOSS,
            "recovery takes one bookie's word that there is no such entry",
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
            "metadata are replaced whoever has changed them",
            **ONE_BOOKIE,
            **RECOVERED,
            conditional_updates=False,
        ),
        "confirmations-kept": configuration(
            DURABLE, "a bookie that has left the ensemble counts", bookies=3, breaks=1, confirmations_withdrawn=False
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
            "a recovery tells of what it has confirmed before it closes: a large one",
            start=Start.ABANDONED,
            recoverers=2,
            recovery_freezes_lac=False,
        ),
        "keys-not-checked": configuration(
            "bookies_have_what_was_appended",
            "a bookie takes the entry of somebody else",
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
        """The writer knows the bookies, and is called to create the ledger; what follows is up to ``start``."""
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
        wire.sent += 1
        wire.awaited = (*wire.awaited, Awaited(wire.sent, txn, entry_id))
        if not wire.is_broken:
            wire.requests = (*wire.requests, (wire.sent, request))

    def _bookie_called(self, name: str) -> ModelValue:
        return next(b for b in self.bookies if b.name == name)

    def _ask(self, b: ModelValue, event: role.Event, reads: Sequence[Any] = ()) -> None:
        """A bookie takes an event, perhaps that some plain ``reads`` came, and its driver does what comes of it. Its
        disk finds entries at once.
        """
        disk, events = self.disk[b], deque([event])
        while events:
            for effect in self.bookie[b].receive(events.popleft(), 0):
                match effect:
                    case role.Journal():
                        disk.unsynced = (*disk.unsynced, effect.record)
                    case role.JournalAdds():
                        records = [record for adds in effect.adds for record in adds.records()]  # type: ignore[attr-defined]
                        disk.unsynced = (*disk.unsynced, *records)
                    case role.Result():
                        assert not effect.error, "it does not do what it is called for"
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
                        raise AssertionError(f"it wants something done that nobody does: {effect}")

    def _found(self, b: ModelValue, effect: role.LookUp) -> role.Found:
        entries = self._entries(b)
        entry_id = max(entries, default=NO_ENTRY_YET) if effect.entry_id == NO_ENTRY_YET else effect.entry_id
        code = Code.OK if entry_id in entries else Code.NO_ENTRY
        return role.Found(effect.number, code, entry_id, entries.get(entry_id))

    def _reads_found(self, b: ModelValue, effect: role.LookUpReads, reads: Sequence[Any]) -> list[role.ReadsFound]:
        """What is found of plain reads, first of those that a bookie has."""
        assert len(reads) == effect.count, "it refuses some"
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
        """The entries that a bookie has, be they durable or not."""
        return entries_of((*self.disk[b].durable, *self.disk[b].unsynced))

    def _answer(self, b: ModelValue, connection: int, number: int, response: Response) -> None:
        """An answer is on its way, if somebody waits for it and there is a connection."""
        if connection == STRANGER:
            return
        wire = self.wire[clients(self)[connection]][b]
        if not wire.is_broken and any(one.number == number for one in wire.awaited):
            wire.answers = (*wire.answers, (number, response))

    # -- callers -------------------------------------------------------------------------------------------------------

    @action
    def append(self) -> None:
        """Somebody appends entries, one or all that are left at once."""
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
        """Somebody wants the ledger closed."""
        require(self.closing and self.start is Start.FRESH)
        require(not self.is_asked_to_close)
        require(self.writer.status not in (WriterStatus.NEW, WriterStatus.CREATING))
        self.is_asked_to_close = True
        self._give(WRITER, role.Call(CLOSE, "close"))

    @action(r=recoverers)
    def recover(self, r: ModelValue) -> None:
        """Somebody wants the ledger recovered."""
        require(self.metadata is not None)
        require(self.recoverer[r].status is RecoveryStatus.IDLE)
        require(not self.desk[r].results)
        self._give(r, role.Call(RECOVER, "recover"))

    # -- connections ---------------------------------------------------------------------------------------------------

    @action(c=clients, b=bookies, by="b")
    def request_comes(self, c: ModelValue, b: ModelValue) -> None:
        """A request comes to a bookie, or several adds come at once."""
        wire = self.wire[c][b]
        taken, wire.requests = self._come_together(wire.requests)
        self._take(c, b, taken)

    @action(c=clients, b=bookies, by="b")
    def late_request_comes(self, c: ModelValue, b: ModelValue) -> None:
        """The same over a connection that is broken."""
        wire = self.wire[c][b]
        taken, wire.late = self._come_together(wire.late)
        self._take(c, b, taken)

    def _come_together(self, requests: tuple[tuple[int, Request], ...]) -> tuple[Any, Any]:
        """The requests that come together, and those that come later."""
        require(len(requests) > 0)
        alike = 1
        if _kind(requests[0]) is not None:
            while alike < len(requests) and _kind(requests[0]) is _kind(requests[alike]):
                alike += 1
        count = one_of(range(1, alike + 1))
        return requests[:count], requests[count:]

    def _take(self, c: ModelValue, b: ModelValue, requests: Sequence[Any]) -> None:
        connection, kind = clients(self).index(c), _kind(requests[0])
        if kind is role.AskedToAdd:
            for adds in grouped(requests):
                self._ask(b, role.AskedToAdd(connection, adds))
        elif kind is role.AskedToRead:
            self._ask(b, role.AskedToRead(connection, len(requests)), requests)
        else:
            self._ask(b, role.Asked(connection, *requests[0]))

    @action(b=bookies, c=clients, by="c")
    def answer_comes(self, b: ModelValue, c: ModelValue) -> None:
        """An answer comes to a client, or several answers to adds that are alike."""
        wire = self.wire[c][b]
        require(len(wire.answers) > 0)
        asked = {one.number: one for one in wire.awaited}
        alike = 1
        while alike < len(wire.answers) and _are_alike(asked, wire.answers[0], wire.answers[alike]):
            alike += 1
        count = one_of(range(1, alike + 1))
        _, response = wire.answers[0]
        answered = tuple(asked[number] for number, _ in wire.answers[:count])
        wire.answers = wire.answers[count:]
        wire.awaited = tuple(one for one in wire.awaited if one not in answered)
        if isinstance(response, AddEntryResponse):
            self._answered(c, b, answered, response.code)
        else:
            self._give(c, role.Received(answered[0].txn, b.name, response))

    def _answered(self, c: ModelValue, b: ModelValue, adds: Sequence[Awaited], code: Code | None) -> None:
        """A bookie has answered adds of one attempt, or has not."""
        entry_ids = tuple(one.entry_id for one in adds if one.entry_id is not None)
        self._give(c, role.AddsAnswered(b.name, entry_ids, code, adds[0].txn))

    def _unanswered(self, c: ModelValue, b: ModelValue, awaited: Sequence[Awaited]) -> None:
        """A client gives up waiting."""
        for is_add, some in groupby(awaited, lambda one: one.entry_id is not None):
            if is_add:
                for _, adds in groupby(some, lambda one: one.txn):
                    self._answered(c, b, [*adds], None)
            else:
                for one in some:
                    self._give(c, role.Unanswered(one.txn, b.name))

    @action(c=clients, b=bookies)
    def request_is_given_up(self, c: ModelValue, b: ModelValue) -> None:
        """A client waits for an answer no more, which may come too late, and may have been on its way."""
        wire = self.wire[c][b]
        require(self.given_up < self.timeouts)
        self.given_up += 1
        one = one_of(wire.awaited)
        wire.awaited = tuple(other for other in wire.awaited if other != one)
        wire.answers = tuple(answer for answer in wire.answers if answer[0] != one.number)
        self._unanswered(c, b, (one,))

    @action(c=clients, b=bookies)
    def connection_breaks(self, c: ModelValue, b: ModelValue) -> None:
        """A connection breaks over which somebody waits for an answer. Some of the requests may still come."""
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
        """A client notices that a connection is broken: nothing that it has asked over it will be answered."""
        wire = self.wire[c][b]
        require(wire.is_broken)
        awaited, wire.awaited, wire.is_broken = wire.awaited, (), False
        self._unanswered(c, b, awaited)
        self._give(c, role.Disconnected(b.name))

    # -- bookies -------------------------------------------------------------------------------------------------------

    @action(b=bookies)
    def journal_is_synced(self, b: ModelValue) -> None:
        """The journal of a bookie is durable up to one of its records."""
        disk = self.disk[b]
        require(len(disk.unsynced) > 0)
        self._sync(b, one_of(range(1, len(disk.unsynced) + 1)))

    def _sync(self, b: ModelValue, synced: int) -> None:
        disk = self.disk[b]
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
        self._restart(b)
        for record in disk.durable:
            told = LacWritten(LEDGER, record.lac, b"") if isinstance(record, EntryAdded) else record
            self._ask(b, role.Replayed(told))  # type: ignore[arg-type]

    def _restart(self, b: ModelValue) -> None:
        """A bookie begins anew, and what was on its way to it is lost."""
        self.disk[b].unsynced = ()
        for c in clients(self):
            wire = self.wire[c][b]
            wire.late = ()
            if wire.awaited:
                self._break(wire)
        self.bookie[b] = Bookie(self.protections)

    @action(b=bookies)
    def bookie_loses_its_disk(self, b: ModelValue) -> None:
        """A bookie crashes, and is back with an empty disk. The ledger is marked before it serves."""
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
    def stranger_adds(self, b: ModelValue) -> None:
        """Somebody who does not have the key wants a bookie to store an entry."""
        require(self.strange < self.strangers)
        require(LEDGER in self.bookie[b].ledgers)
        self.strange += 1
        body = DIGESTS.entry_body(Entry(LEDGER, 0, NO_ENTRY_YET, 1, b"?"))
        add = AddEntry(LEDGER, 0, NO_ENTRY_YET, body, master_key(b"?"))
        self._ask(b, role.AskedToAdd(STRANGER, (AddRequests(((1, add),)),)))

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
        if key[0] == "restart":
            require(self.restarted < self.restarts)
            self.restarted += 1
        desk.timers = desk.timers - {key}
        self._give(c, role.TimerFired(key))

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _copies(self, metadata: LedgerMetadata, entry_id: int) -> int:
        """On how many of its bookies an entry is durable, as far as the metadata tell."""
        ensemble = tuple(fragment_of(metadata.fragments, entry_id).ensemble)
        asked = [self._bookie_called(name) for name in write_set(entry_id, ensemble, self.write_quorum)]
        return sum(entry_id in entries_of(self.disk[b].durable) for b in asked)

    @invariant
    def confirmed_entries_are_in_the_ledger(self) -> bool:
        """A closed ledger has every entry that was confirmed to the caller."""
        end = None if self.metadata is None else end_of(self.metadata)
        return end is None or end >= self.desk[WRITER].confirmed

    @invariant(entry_id=lambda protocol: range(protocol.entries), when=lambda protocol: not protocol.losses)
    def confirmed_entries_are_durable(self, entry_id: int) -> bool:
        """An entry that was confirmed to the caller is durable on an ack quorum of its bookies, as long as no disk is
        lost.
        """
        if self.desk[WRITER].confirmed < entry_id:
            return True
        assert self.metadata is not None
        return is_committed(self._copies(self.metadata, entry_id), self.ack_quorum)

    @invariant(entry_id=lambda protocol: range(protocol.entries), when=lambda protocol: not protocol.losses)
    def closed_ledgers_are_whole(self, entry_id: int) -> bool:
        """Every entry of a closed ledger is durable on an ack quorum of its bookies, as long as no disk is lost."""
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
        entries = entries_of(self.disk[b].durable)
        for _, response in self.wire[c][b].answers:
            if isinstance(response, AddEntryResponse):
                if response.code is Code.FENCED and not self._is_fenced(b):
                    return False
                if response.code is Code.OK and response.entry_id not in entries:
                    return False
            elif isinstance(response, ReadEntryResponse) and response.code is Code.OK:
                entry = DIGESTS.open_entry(response.body, LEDGER)
                if entry is None or entry.entry_id not in entries:
                    return False
        return True

    def _is_fenced(self, b: ModelValue) -> bool:
        """Whether it is durable that a bookie is fenced."""
        return LedgerFenced(LEDGER) in self.disk[b].durable

    @invariant(r=recoverers)
    def recoveries_read_when_the_writer_is_fenced_off(self, r: ModelValue) -> bool:
        """A recovery reads only once bookies that are not fenced cannot make an ack quorum of any write set."""
        recoverer = self.recoverer[r]
        if recoverer.status not in (RecoveryStatus.READING, RecoveryStatus.CLOSING):
            return True
        fenced = [b.name for b in self.bookies if self._is_fenced(b)]
        return covers_ensemble(fenced, recoverer.ensemble, self.write_quorum, self.ack_quorum)

    @invariant(r=recoverers)
    def recoveries_know_the_end(self, r: ModelValue) -> bool:
        """Who has recovered the ledger is told how it is closed."""
        told = [result.value for result in self.desk[r].results if not result.error]
        return not told or (told == [self.metadata] and told[0].status is LedgerStatus.CLOSED)

    @invariant(b=bookies)
    def no_lac_beyond_the_end(self, b: ModelValue) -> bool:
        """No bookie has learnt a LAC beyond the end of a closed ledger: a reader would believe it, and read entries
        that are cut off.
        """
        end = None if self.metadata is None else end_of(self.metadata)
        ledger = self.bookie[b].ledgers.get(LEDGER)
        return end is None or ledger is None or ledger.lac <= end

    @invariant(c=clients)
    def who_waits_is_answered(self, c: ModelValue) -> bool:
        """A client that waits for the metadata service, or for bookies, has asked."""
        desk = self.desk[c]
        asks_service = len(desk.operations) + len(desk.answers) + len(desk.timers) > 0
        asks_bookies = any(self.wire[c][b].awaited for b in self.bookies)
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
    """The event of requests that come together; None for those that come by themselves."""
    _, request = numbered
    if isinstance(request, AddEntry):
        return role.AskedToAdd
    return role.AskedToRead if is_plain_read(request) else None


def _are_alike(asked: Mapping[int, Awaited], one: tuple[int, Response], other: tuple[int, Response]) -> bool:
    """Whether two answers are to adds of the same attempt, with the same code."""
    (number, first), (other_number, second) = one, other
    if not isinstance(first, AddEntryResponse) or not isinstance(second, AddEntryResponse):
        return False
    return first.code is second.code and asked[number].txn == asked[other_number].txn
