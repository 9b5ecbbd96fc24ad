"""How traces of the store conform to the protocol: the steps of each event of bookies, clients and the metadata
service.

The protocol is :class:`fencepost.protocols.store.running.RunningStore`. Its entry ids and versions begin at 1, where
those of the store begin at 0. A client of the protocol is one attempt of a role: a recovery that restarts is another
client.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, ClassVar, TypeAlias, TypeVar

from fencepost.language.protocol import Protocol
from fencepost.language.values import ModelValue, Value, show
from fencepost.ledger.messages import NO_ENTRY_YET
from fencepost.ledger.rules.boot import Mark
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.protocols.bookkeeper.monitor import Monitor
from fencepost.protocols.store.running import Force, MetadataWrite, RunningStore
from fencepost.protocols.store.store import Answer, Update
from fencepost.traces.packed import Chosen
from fencepost.traces.validation.conformance import (
    Conformance,
    Event,
    NotCovered,
    Objection,
    by_action,
    known,
    rounded,
)
from fencepost.traces.validation.steps import Has, Like, Step, like
from fencepost.traces.validation.traces import each_change_once

T = TypeVar("T")

Client: TypeAlias = tuple[str, int, str, int]
"""A client of the protocol: node, incarnation, actor, attempt."""

Connection: TypeAlias = tuple[str, str]
"""A connection as both ends know it: the bookie, and the client's address. One address may be connected to several
bookies.
"""

Reading: TypeAlias = tuple[str, int, str]
"""A reader: node, incarnation, actor."""

EventKey: TypeAlias = tuple[str, int, int]
"""An event: node, incarnation, number."""

MOST_SAID = 16_384
"""The most things that are kept to be shared."""

MOST_CLIENTS = 1_000
"""The most clients that a protocol can have."""

WRITES = (
    "client_adopts_ledger",
    "client_creates_ledger",
    "client_changes_ensemble",
    "client_closes_ledger",
    "client_starts_recovery",
    "client_keeps_ensemble",
    "recovery_client_closes_ledger",
    "recovery_client_changes_ensemble",
)
"""The events that write metadata, with the version that they replace. A recovery does not publish its ensemble changes:
then there is no version.
"""


class _Bookies(dict[str, Any]):
    """The bookies of the protocol, by their names in a trace."""

    def __missing__(self, name: str) -> Any:
        raise NotCovered(f"{name} is named, and is no bookie of the ledger")


class _AddsTo(Has, frozen=True):
    """Matches metadata by the ensemble that entries are added to."""

    def matches(self, value: Any) -> bool:
        """Whether the last fragment of these metadata has this ensemble."""
        return value is not None and value.fragments[-1].ensemble == self.value

    def __str__(self) -> str:
        return f"entries are added to {show(self.value)}"


class StoreConformance(Conformance):
    """One ledger in one run."""

    name: ClassVar[str] = "store"
    protocol: ClassVar[type[Protocol]] = RunningStore
    subjects: ClassVar[str] = r"\d+"

    def __init__(self, subject: str, events: Sequence[Event]) -> None:
        super().__init__(subject, events := each_change_once(events))
        self.kinds: dict[str, str] = {}
        self.bookies: dict[str, int] = {}
        self.clients: dict[Client, int] = {}
        self.attempts: Counter[tuple[str, int, str]] = Counter()
        self.client_of: dict[EventKey, Client] = {}
        self.followers: dict[Reading, int] = {}
        self.reading_nodes: set[tuple[str, int]] = set()
        """Incarnations of clients whose readers are traced."""
        self.ended: set[Client] = set()
        self.owners: set[Client] = set()
        self.begun: dict[Client, int] = {}
        """The number of the first event of each client; ``over``: of the event after which it adds no more entries."""
        self.over: dict[Client, int] = {}
        self.volatile: dict[tuple[str, int], list[int]] = defaultdict(list)
        """Entries that an incarnation of a bookie has confirmed, and that the next one does not have."""
        self.of_client: dict[Client, list[Event]] = {}
        """The events of clients about the metadata, in order."""
        self.last_of: dict[Client, Event] = {}
        self.next_of: dict[EventKey, str] = {}
        """The next action of a client right after it has read the metadata, or has resent entries."""
        self.last_entry = self.last_read = -1
        self.deferring: set[Client] = set()
        """The owners whose entries are confirmed before they are durable."""
        self.forces = 0
        self.quorums = (0, 0, 0)
        self.is_deleted = False
        self.durable: dict[tuple[str, int], int | None] = {}
        """The position up to which the journal of each incarnation of a bookie became durable; None if it is not
        traced.
        """
        self.recovered: dict[tuple[str, int], Mapping[str, Any]] = {}
        self.left: dict[tuple[str, int], Mapping[str, Any]] = {}
        """The entries that an incarnation of a bookie that may have lost entries still has when it restarts."""
        self.noting: set[str] = set()
        """The bookies that record how they run; ``serving``: their incarnations that have answered a request about the
        ledger.
        """
        self.serving: set[tuple[str, int]] = set()
        self.first_life: dict[str, int] = {}
        """The incarnation in which a bookie first handled the ledger; ``answered``: all in which it answered requests
        about it.
        """
        self.answered: set[tuple[str, int]] = set()
        self.event_counts: Counter[tuple[str, int]] = Counter()
        """The number of events of each incarnation."""
        self.connections: dict[tuple[str, int, str], list[tuple[int, int, Connection]]] = defaultdict(list)
        """The connections of each incarnation of a client to each bookie, after their first and last events."""
        self.looks_since = False
        """Whether bookies tell since when they have looked for an entry."""
        self.senders: dict[tuple[Any, ...], tuple[tuple[Client, int | None], ...]] = {}
        """Who has sent a message each time, with the LAC in an add as it was first sent; None if it is resent. For a
        force, its number.
        """
        self.said: dict[Any, Any] = {}
        """One of equal things: much is said several times in a row. Keys tell apart what Python takes for equal."""
        self.received: dict[tuple[Any, ...], int] = defaultdict(int)
        """How often a message was received; not of adds that were sent once."""
        creations = []
        for event in events:
            self._note(event)
            if event.action == "client_creates_ledger":
                creations.append(event)
        # The first writer of the ledger, and its first ensemble, get the first names, so that similar traces lead to
        # the same states.
        for event in chain(creations, (event for event in events if event.action != "client_creates_ledger")):
            self._name(event)
        self.added_last: dict[tuple[str, int], int] = {}
        self.added_again: set[tuple[str, int, int]] = set()
        """Entries that a bookie has added or copied in a later incarnation too, by node, id and that."""
        self.copied_late: set[tuple[str, int, int, int]] = set()
        """Entries that a bookie has copied although a client had added them meanwhile, by event and id."""
        self.outlived: set[tuple[str, int, int]] = set()
        """Entries that a bookie has added in one incarnation, by node, id and that, and sent in a later one without
        having added or copied them again.
        """
        for event in events:
            self._look(event)
        del self.added_last
        self.clients = {client: place for place, client in enumerate(sorted(self.clients, key=self._rank))}
        self._collect_senders()
        self.writes = self._writes()
        self.owners_of_connection: dict[Connection, dict[tuple[str, int], None]] = defaultdict(dict)
        """The owners of a connection to a bookie. Ports are reused, so over time several owners have a connection of
        one name.
        """
        for (node, incarnation, _), held in self.connections.items():
            for _, _, connection in held:
                self.owners_of_connection[connection][node, incarnation] = None
        self.lac_learnt = self._lac_learnt()

    # -- looking ahead -----------------------------------------------------------------------------------------------

    def _note(self, event: Event) -> None:
        """Note what an event tells alone."""
        life, action, parameters = (event.node, event.incarnation), event.action, event.parameters
        self.event_counts[life] += 1
        self.looks_since = self.looks_since or "since" in parameters
        if event.subject is not None:
            check_form(event)
            if action == "metadata_deleted":
                self.is_deleted = True
            elif action == "bookie_may_lack_entries":
                self.left[life] = parameters
        if action == "journal_synced":
            self.durable[life] = max(self.durable.get(life) or 0, parameters["position"])
        elif action == "started":
            self.kinds[event.node] = parameters["kind"]
            if parameters["kind"] == "bookie":
                self.durable.setdefault(life, 0)
        elif action == "connected":
            held = self.connections[*life, parameters["bookie"]]
            held.append((event.seq, 1 << 62, (parameters["bookie"], parameters["connection"])))
        elif action == "disconnected":
            held = self.connections[*life, parameters["bookie"]]
            for place, (begin, _, connection) in enumerate(held):
                if connection[1] == parameters["connection"]:
                    held[place] = (begin, event.seq, connection)
        elif action == "bookie_recovers":
            self.recovered[life] = parameters
        elif action == "bookie_notes_run":
            self.noting.add(event.node)

    def _name(self, event: Event) -> None:
        """Number the bookies that an event names."""
        metadata = event.parameters.get("metadata") if event.subject is not None else None
        if metadata is not None:
            for _, ensemble in metadata["fragments"]:
                for bookie in ensemble:
                    self.bookies.setdefault(bookie, len(self.bookies))
            self.quorums = (metadata["ensemble_size"], metadata["write_quorum"], metadata["ack_quorum"])
        if event.subject is not None and event.action.startswith(_BY_BOOKIE):
            self.bookies.setdefault(event.parameters["bookie"], len(self.bookies))
        if event.subject is not None and self.kinds.get(event.node) == "bookie":
            self.bookies.setdefault(event.node, len(self.bookies))
            if "connection" in event.parameters:
                known = self.first_life.get(event.node, event.incarnation)
                self.first_life[event.node] = min(known, event.incarnation)
                self.answered.add((event.node, event.incarnation))

    def _rank(self, client: Client) -> tuple[Any, ...]:
        """The order of clients: owners come first."""
        return (client not in self.owners, client)

    def _look(self, event: Event) -> None:
        parameters = event.parameters
        if event.subject is None:
            return
        if event.action in ("bookie_sends_add_confirmed_response", "bookie_copies_entry"):
            for entry_id in _entries(event):
                before = self.added_last.get((event.node, entry_id), 0)
                if 0 < before < event.incarnation:
                    self.added_again.add((event.node, entry_id, event.incarnation))
                elif before == event.incarnation and event.action == "bookie_copies_entry":
                    self.copied_late.add((*event.place, entry_id))
                self.added_last[event.node, entry_id] = event.incarnation
        elif event.action == "bookie_sends_read_response" and parameters["code"] == "OK":
            for entry_id in _entries(event):
                self._shown(event, entry_id)
        elif event.action == "bookie_sends_fencing_read_lac_response" and parameters["entry"] is not None:
            self._shown(event, parameters["entry"])
        if event.action.startswith("reader_"):
            self.followers.setdefault((event.node, event.incarnation, event.actor), len(self.followers))
            self.reading_nodes.add((event.node, event.incarnation))
            return
        if event.node not in self.kinds or self.kinds[event.node] == "client":
            self._enter_client(event)
        if event.action == "client_sends_add_entry_requests":
            if parameters.get("deferred_sync"):
                self.deferring.add(self.client_of[event.place])
            self.last_entry = max([self.last_entry, *(last for _, last in parameters["entries"])])
        elif event.action == "client_forces_ledger":
            self.forces = max(self.forces, parameters["force"])
        elif event.action == "client_sends_recovery_read_requests":
            self.last_read = max(self.last_read, parameters["entry"])

    def _shown(self, event: Event, entry_id: int) -> None:
        added = self.added_last.get((event.node, entry_id), event.incarnation)
        if added < event.incarnation:
            self.outlived.add((event.node, entry_id, added))

    def _enter_client(self, event: Event) -> None:
        who = (event.node, event.incarnation, event.actor)
        attempt = self.attempts[who]
        creates_anew = event.action == "client_creates_ledger" and (*who, attempt) in self.ended
        if not attempt or creates_anew or event.action == "client_opens_ledger":
            attempt = self.attempts[who] = attempt + 1
        client = (*who, attempt)
        self.clients.setdefault(client, len(self.clients))
        self.begun.setdefault(client, event.seq)
        if event.action in ("client_ends", "client_closes_ledger"):
            self.over.setdefault(client, event.seq)
        if event.action == "client_ends":
            self.ended.add(client)
        elif event.action in ("client_creates_ledger", "client_adopts_ledger"):
            self.owners.add(client)
        self.client_of[event.place] = client
        before = self.last_of.get(client)
        if before is not None and before.action in _TURNS:
            self.next_of[before.place] = event.action
        self.last_of[client] = event
        if event.action in WRITES or event.action in _TELL_METADATA or event.action in _RESENDS:
            self.of_client.setdefault(client, []).append(event)

    def _collect_senders(self) -> None:
        """Collect the senders of each request on each connection, in order: bookies know connections only."""
        for event in self.events:
            if event.subject is not None and event.action in _SENT:
                client, lac = self.client_of[event.place], event.parameters.get("lac")
                for message in self._sends(event):
                    sent = (client, event.parameters.get("force") if message[1] == "force" else lac)
                    self.senders[message] = (*self.senders.get(message, ()), self._one_of(sent))

    def _lac_learnt(self) -> dict[EventKey, list[tuple[Any, ...]]]:
        """Readers learn LACs from owners: for each event in which the LAC of an owner moves, the readers that learn
        that LAC next.
        """
        moved: list[tuple[int, EventKey]] = []
        for event in self.events:
            if event.action in ("client_confirms", "client_receives_force_response"):
                place = event.place
                if (self.client_of[place] in self.deferring) == (event.action != "client_confirms"):
                    moved.append((event.parameters["lac"], place))
        moved.sort(key=lambda each: each[0])
        lacs = [lac for lac, _ in moved]
        found: dict[EventKey, list[tuple[Any, ...]]] = defaultdict(list)
        for event in self.events:
            if event.action == "reader_learns_lac":
                at = bisect_left(lacs, event.parameters["lac"])
                if at < len(moved):
                    found[moved[at][1]].append(("lac", *event.place))
        return found

    def _connection(self, event: Event, bookie: str) -> Connection:
        """The connection that carries the request of an event: the open one, or the next."""
        for _, end, connection in self.connections[event.node, event.incarnation, bookie]:
            if end > event.seq:
                return connection
        return bookie, ""

    def _writes(self) -> dict[int, list[Event]]:
        """The writes of metadata that clients have sent, by the version that each would make."""
        found: dict[int, list[Event]] = {}
        for events in self.of_client.values():
            for event in events:
                if _is_write(event):
                    found.setdefault(event.parameters["version"] + 1, []).append(event)
        return found

    # -- the protocol ------------------------------------------------------------------------------------------------

    def constants(self) -> Mapping[str, Any]:
        """See :class:`Conformance`."""
        ensemble_size, write_quorum, ack_quorum = self.quorums
        if not ensemble_size and not self.is_untouched():
            raise NotCovered("no metadata of the ledger are in the trace")
        if len(self.clients) >= MOST_CLIENTS:
            raise NotCovered(
                f"{len(self.clients):,} attempts of clients are about the ledger: fewer than {MOST_CLIENTS:,} can be"
                " followed"
            )
        entries = rounded(max(self.last_entry, self.last_read, 63) + 1, 8)
        return {
            "bookies": rounded(max(len(self.bookies), ensemble_size), 8),
            "clients": min(rounded(len(self.clients) + 1, 8), MOST_CLIENTS),
            "followers": rounded(len(self.followers), 8) if self.followers else 0,
            "ensemble_size": ensemble_size or 1,
            "write_quorum": write_quorum or 1,
            "ack_quorum": ack_quorum or 1,
            "send_limit": entries,
            "inflight_limit": entries,
            "reads_in_flight": entries,
            "crashes": -1,
            "failures": -1,
            "deferred_sync": bool(self.deferring),
            "force_limit": rounded(self.forces, 8),
            "power_losses": -1,
        }

    def hidden(self, protocol: Protocol) -> Iterable[Step]:
        """Nothing: these traces report every step."""
        return ()

    def bind(self, protocol: Protocol) -> None:
        """See :class:`Conformance`."""
        assert isinstance(protocol, RunningStore)
        self.follower_limit = protocol.readable_ids[-1] - 1
        self.b = _Bookies({name: protocol.bookies[place] for name, place in self.bookies.items()})
        self.c = {client: protocol.clients[place] for client, place in self.clients.items()}
        self.unseen = protocol.clients[len(self.clients)]
        self.f = {reading: protocol.followers[place] for reading, place in self.followers.items()}

    @classmethod
    def is_over(cls, events: Sequence[Event]) -> bool:
        """See :class:`Conformance`."""
        return any(
            event.action in ("metadata_written", *_TELL_METADATA)
            and (event.parameters.get("metadata") or _NO_METADATA)["state"] == "CLOSED"
            for event in events
        )

    @classmethod
    def still_needed(cls, events: Sequence[Event]) -> Iterable[Event]:
        """See :class:`Conformance`. Of the durable positions of journals, only the last matters."""
        farthest: dict[tuple[str, int], Event] = {}
        for event in events:
            if event.action == "journal_synced":
                life = (event.node, event.incarnation)
                if life not in farthest or farthest[life].parameters["position"] < event.parameters["position"]:
                    farthest[life] = event
        return [
            event
            for event in events
            if event.action != "journal_synced" or farthest[event.node, event.incarnation] is event
        ]

    def in_order(self) -> Sequence[Event]:
        """Order the events. A bookie looks up an entry at any time: one that it does not find may have been added
        before it answers.
        """
        if not self.looks_since:
            return self.events
        places = array("q")
        moved: dict[int, list[int]] = {}
        since: dict[tuple[str, int, int], list[tuple[int, int]]] = defaultdict(list)
        for number, event in enumerate(self.events):
            at = len(places)
            if event.action == "bookie_sends_read_response" and "since" in event.parameters:
                for entry_id in _entries(event):
                    added = since.get((event.node, event.incarnation, entry_id), ())
                    at = min([at, *(place for position, place in added if position > event.parameters["since"])])
            elif event.action == "bookie_sends_add_confirmed_response" and event.subject is not None:
                for entry_id in _entries(event):
                    key = (event.node, event.incarnation, entry_id)
                    since[key].append((event.parameters["position"], at))
            if at == len(places):
                places.append(number)
            else:
                moved.setdefault(at, []).append(number)
        ordered = array("q", (each for at, place in enumerate(places) for each in (*moved.get(at, ()), place)))
        return Chosen(self.events, ordered)

    def objections(self) -> Iterable[Objection]:
        """Those of the published protocol, which shares no rule with the store. ``running-store`` runs its rules."""
        return Monitor(self.events).objections

    def is_untouched(self) -> bool:
        """See :class:`Conformance`. Clients have tried to create the ledger and failed, or have looked for it and found
        none, and bookies have been asked for its entries and know no such ledger.
        """
        of_ledger = (event for event in self.events if event.subject is not None)
        first = next(of_ledger, None)
        return first is not None and all(
            event.action in ("client_creates_ledger", "client_ends")
            or (event.action in _TELL_METADATA and event.parameters["metadata"] is None)
            or (event.action == "bookie_sends_read_response" and event.parameters["code"] == "NO_LEDGER")
            for event in chain((first,), of_ledger)
        )

    def names(self) -> Mapping[str, str]:
        """See :class:`Conformance`."""
        clients = {str(self.c[client]): " ".join(map(str, client)) for client in self.clients}
        clients |= {str(self.f[reading]): " ".join(map(str, reading)) for reading in self.followers}
        return {**{str(value): name for name, value in self.b.items()}, **clients}

    def steps(self, event: Event) -> Iterable[Step]:
        """See :class:`Conformance`."""
        if event.subject is None:
            return self._of_all_ledgers(event)
        steps = _STEPS.get(event.action)
        return (*self._serves(event), *(() if steps is None else steps(self, event)))

    def _about(self, *parameters: tuple[str, ModelValue]) -> tuple[tuple[str, ModelValue], ...]:
        """Parameters of a step."""
        return self._one_of(parameters)

    def _of_entry(self, entry_id: int, **fields: Value) -> tuple[int, Like]:
        """The picks of an entry, and of a message about it with these fields."""
        key = (entry_id, *fields, *fields.values())
        known: tuple[int, Like] | None = self.said.get(key)
        return known or self._one_of((entry_id + 1, like(**fields)), key)

    def _one_of(self, made: T, key: Any = None) -> T:
        """One of the equal things that are made lately."""
        if len(self.said) >= MOST_SAID:
            self.said.clear()
        one: T = self.said.setdefault(made if key is None else key, made)
        return one

    def _client(self, event: Event) -> ModelValue:
        return self.c[self.client_of[event.place]]

    def _sends(self, event: Event) -> list[tuple[Any, ...]]:
        """The requests that an event sends, as both ends know them: the connection, the kind, and the content."""
        kind = _SENT.get(event.action)
        parameters = event.parameters
        if kind == "again":
            connection = self._connection(event, parameters["bookie"])
            recovery = event.action.startswith("recovery")
            return [(connection, "add", entry_id, recovery) for entry_id in _entries(event)]
        if kind == "add":
            recovery = event.action in ("client_writes_back_entry", "recovery_client_sends_pending_add_op")
            ensemble, before = parameters["ensemble"], parameters.get("before", ())
            by_bookie = {bookie: self._connection(event, bookie) for bookie in ensemble}
            return [
                (by_bookie[bookie], "add", entry_id, recovery)
                for entry_id in _entries(event)
                for bookie in _write_set(entry_id, ensemble, self.quorums[1])
                if bookie not in _write_set(entry_id, before, self.quorums[1])
            ]
        if kind == "fence":
            if not self._has_marked(event):
                return []
            return [(self._connection(event, b), "fence") for b in parameters["metadata"]["fragments"][-1][1]]
        if kind == "force":
            return [(self._connection(event, b), kind) for b in parameters["bookies"]]
        if kind in ("read", "length"):
            return [(self._connection(event, b), kind, parameters["entry"]) for b in parameters["bookies"]]
        return []

    def _by_entry(self, event: Event) -> Mapping[int, tuple[Any, ...]]:
        """The adds that an event sends, by their entries."""
        found: dict[int, list[Any]] = defaultdict(list)
        for message in self._sends(event):
            found[message[2]].append(message)
        return {entry_id: tuple(messages) for entry_id, messages in found.items()}

    def _has_marked(self, event: Event) -> bool:
        """Whether a client learns that it has marked the ledger, and fences it."""
        if not event.parameters["written"]:
            return False
        begun = self._last_write(event)
        return begun is not None and begun.action == "client_starts_recovery"

    def _sender(self, event: Event, message: tuple[Any, ...]) -> ModelValue | None:
        """The client that has sent a request that a bookie has received."""
        senders = self.senders.get(message)
        if not senders:
            return None
        if len(senders) == 1 and message[1] == "add":
            return self.c[senders[0][0]]
        place = min(self.received[message], len(senders) - 1)
        self.received[message] += 1
        return self.c[senders[place][0]]

    def _lac_sent(self, message: tuple[Any, ...], ahead: int = 0) -> int | None:
        """The LAC in an add that a bookie receives next, or ``ahead`` of others, if that is known."""
        sent = self.senders.get(message)
        return sent[min(self.received.get(message, 0) + ahead, len(sent) - 1)][1] if sent else None

    def _is_highest_lac(self, event: Event) -> bool:
        """Whether the LAC that a bookie reports is the highest of adds that have arrived together, as far as their LACs
        are known.
        """
        connection, recovery = _connection_of(event), event.parameters["recovery"]
        seen: Counter[int] = Counter()
        sent: list[int | None] = []
        for entry_id in _entries(event):
            sent.append(self._lac_sent((connection, "add", entry_id, recovery), seen[entry_id]))
            seen[entry_id] += 1
        highest, reported = max((lac for lac in sent if lac is not None), default=None), event.parameters["lac"]
        return highest is None or highest == reported or (None in sent and highest < reported)

    # -- bookies -----------------------------------------------------------------------------------------------------

    def _was_durable(self, event: Event) -> bool:
        """Whether the records of a step of a bookie were proven to be in its journal, before a crash may have
        happened.
        """
        durable = self.durable.get((event.node, event.incarnation))
        return durable is None or event.parameters["position"] <= durable

    def _next_life(self, event: Event) -> tuple[str, int]:
        """The next incarnation of a bookie that came as far as tracing what it found."""
        incarnation = event.incarnation + 1
        while (event.node, incarnation) not in self.recovered and self.event_counts[event.node, incarnation] == 1:
            incarnation += 1
        return event.node, incarnation

    def _survived(self, event: Event) -> Mapping[str, Any]:
        """The records that a bookie found in its journal after a crash, although they had not been synced. It may have
        ended before it traced them.
        """
        return self.recovered.get(self._next_life(event), _NOTHING)

    def _is_left(self, event: Event, entry_id: int) -> bool:
        """Whether a bookie that comes back as one that may have lost entries still has one that it had added or copied
        before. What it had when it came back says nothing about that, if it has answered requests in between, or has
        added or copied the entry again.
        """
        lives = (life for node, life in self.left if node == event.node and life > event.incarnation)
        later = min(lives, default=0)
        between = range(event.incarnation + 1, later)
        if not later or any((event.node, life) in self.answered for life in between):
            return False
        if any((event.node, entry_id, life) in self.added_again for life in between):
            return False
        return any(first <= entry_id <= last for first, last in self.left[event.node, later]["entries"])

    def _bookie_adds(self, event: Event) -> Iterator[Step]:
        b, recovery = self.b[event.node], event.parameters["recovery"]
        is_confirmed = event.action == "bookie_sends_add_confirmed_response"
        is_durable = self._was_durable(event)
        is_highest = is_confirmed and self._is_highest_lac(event)
        survived = set() if is_durable or not is_confirmed else {*_ids(self._survived(event)["entries"])}
        for entry_id in _entries(event):
            message = (_connection_of(event), "add", entry_id, recovery)
            lac = self._lac_sent(message)
            c = self._sender(event, message)
            if c is None:
                yield self._unasked(event, message, f"adds entry {entry_id}")
                continue
            shown = (
                event.node,
                entry_id,
                event.incarnation,
            ) in self.outlived  # a checkpoint was faster than the journal
            lives_on = is_durable or (
                is_confirmed and (shown or entry_id in survived or self._is_left(event, entry_id))
            )
            if not lives_on and is_confirmed and not recovery and self.deferring:
                self.volatile[event.node, event.incarnation].append(entry_id)
            elif not lives_on:
                yield Step(None, receives=message)  # as if it had never arrived
                continue
            told: dict[str, Value] = {"entry__id": entry_id + 1, "recovery": recovery}
            if is_confirmed and lac is not None:
                told["lac"] = (lac if is_highest else event.parameters["lac"]) + 1
            yield Step(
                event.action,
                self._about(("b", b), ("c", c)),
                self._of_entry(entry_id, **told),
                receives=message,
                sends=(("added", event.node, c, entry_id, recovery, is_confirmed),),
            )

    def _bookie_forces(self, event: Event) -> Iterator[Step]:
        message = (_connection_of(event), "force")
        number = self._lac_sent(message)
        c = self._sender(event, message)
        if c is None:
            yield self._unasked(event, message, "is asked to force the ledger")
        elif not self._was_durable(event):
            yield Step(None, receives=message)
        else:
            sends = (("forced", event.node, c, number),)
            yield Step(event.action, (("b", self.b[event.node]), ("c", c)), (number,), receives=message, sends=sends)

    def _serves(self, event: Event) -> Iterator[Step]:
        """A bookie records how it runs before it answers any request. A bookie that has never recorded it keeps no
        record of its runs.
        """
        life = (event.node, event.incarnation)
        if event.node in self.noting and life not in self.serving and "connection" in event.parameters:
            self.serving.add(life)
            yield Step(None, receives=("run noted", *life))

    def _of_all_ledgers(self, event: Event) -> Iterator[Step]:
        """The boots of bookies; and with deferred sync, when bookies lose what is not durable, and when connections to
        them end.
        """
        life = (event.node, event.incarnation)
        if event.action == "bookie_notes_run":
            yield Step(None, sends=(("run noted", *life),))
        elif event.action == "bookie_stamps_cookies":
            knew = self.first_life.get(event.node, event.incarnation) < event.incarnation
            if knew and not self.is_deleted:  # no longer counts as one that has lost data
                yield Step(None, receives=("marked", *life))
        elif self.deferring:
            yield from self._of_deferred(event)

    def _of_deferred(self, event: Event) -> Iterator[Step]:
        if event.action == "started" and event.node in self.b and event.incarnation > 1:
            b = self.b[event.node]
            yield Step("bookie_loses_power", (("b", b),))
            for entry_id in dict.fromkeys(self.volatile.pop((event.node, event.incarnation - 1), ())):
                yield Step("bookie_loses_entry", (("b", b),), (entry_id + 1,))
        elif event.action == "disconnected" and event.parameters["bookie"] in self.b:
            for client in self.deferring:
                if client[:2] == (event.node, event.incarnation) and self.begun[client] < event.seq < self.over.get(
                    client, 1 << 62
                ):
                    yield Step(
                        "client_loses_connection", (("c", self.c[client]), ("b", self.b[event.parameters["bookie"]]))
                    )

    def _unasked(self, event: Event, message: tuple[Any, ...], what: str) -> Step:
        """A bookie does something that no request in the trace asks for. The trace of a client may be missing."""
        if any(connection == message[0] for known in self.connections.values() for _, _, connection in known):
            return Step(event.action, (("b", self.b[event.node]),), receives=message)
        raise NotCovered(
            f"{event.node} {event.seq} {what}, which nobody has sent over connection {message[0][1]}, of which no"
            " client tells"
        )

    def _bookie_refuses(self, event: Event) -> Iterator[Step]:
        """An add that is refused for another reason than a fence counts as lost."""
        for entry_id in _entries(event):
            message = (_connection_of(event), "add", entry_id, event.parameters["recovery"])
            if self._sender(event, message) is not None:
                yield Step(None, receives=message)

    def _bookie_fenced(self, event: Event) -> Iterator[Step]:
        if not self._was_durable(event) and not self._survived(event)["fenced"]:
            return
        entry_id = event.parameters["entry"]
        message = (_connection_of(event), "fence") if entry_id < 0 else (_connection_of(event), "read", entry_id)
        senders = self.senders.get(message)
        if senders:
            c = self.c[senders[min(self.received[message], len(senders) - 1)][0]]
            yield Step("bookie_is_fenced", (("b", self.b[event.node]), ("c", c)), (entry_id + 1,))
        else:
            yield self._unasked(event, message, "is fenced by a read")

    def _bookie_fencing_read(self, event: Event) -> Iterator[Step]:
        message = (_connection_of(event), "fence")
        c = self._sender(event, message)
        lac = event.parameters["lac"]
        if c is None:
            return
        if event.parameters["code"] not in _CERTAIN or not self._was_durable(event):
            yield Step(None, receives=message)
        else:
            # An id that no entry can have is damage, which the client detects by the digest.
            reported = lac + 1 if lac is not None and lac <= self.last_entry and lac >= -1 else 0
            yield Step(
                event.action,
                (("b", self.b[event.node]), ("c", c)),
                (*ANY_MESSAGE, reported),
                receives=message,
                sends=(("fenced", event.node, c),),
                before=self._fenced(event),
            )

    def _fenced(self, event: Event) -> tuple[tuple[tuple[Any, ...], Value], ...]:
        """A bookie traces that a read fences it before it traces the answer."""
        return ((("bookie", self.b[event.node], "fenced"), True),)

    def _bookie_reads(self, event: Event) -> Iterator[Step]:
        b, code = self.b[event.node], event.parameters["code"]
        found = code == "OK"
        is_certain = code in _CERTAIN and self._was_durable(event)
        for entry_id in _entries(event):
            if entry_id == NO_ENTRY_YET:  # the last entry, which the protocol's clients never ask for without fencing
                continue
            if not event.parameters["fence"] and not self._is_asked_to_fence(event, entry_id):
                if entry_id <= self.last_entry and is_certain:
                    readers = self._may_be_asked_by(event, entry_id)
                    action = "bookie_answers_reader" if readers else "bookie_answers_read"
                    sends = tuple(("shown", event.node, reader, entry_id, found) for reader in readers)
                    yield Step(action, (("b", b),), (entry_id + 1, found), sends=sends)
                continue
            message = (_connection_of(event), "read", entry_id)
            c = self._sender(event, message)
            if c is not None and not is_certain:
                yield Step(None, receives=message)
            elif c is not None:
                wanted = (
                    like(entry_id=entry_id + 1, entry__id=entry_id + 1)
                    if found
                    else like(entry_id=entry_id + 1, entry=None)
                )
                yield Step(
                    event.action,
                    (("b", b), ("c", c)),
                    (entry_id + 1, like(fence=event.parameters["fence"])),
                    receives=message,
                    sends=(("read", event.node, c, entry_id, found),),
                    before=self._fenced(event),
                    tells=(("send", wanted),),
                )

    def _may_be_asked_by(self, event: Event, entry_id: int) -> list[tuple[str, int]]:
        """The clients whose reader may have asked a bookie, among those whose readers are traced."""
        connection = _connection_of(event)
        if (connection, "length", entry_id) in self.senders:
            return []
        owners = self.owners_of_connection.get(connection, ())
        return [client for client in owners if client in self.reading_nodes]

    def _is_asked_to_fence(self, event: Event, entry_id: int) -> bool:
        """Whether a bookie's answer is to a recovery read, however the bookie traces it."""
        connection = _connection_of(event)
        message = (connection, "read", entry_id)
        sent = len(self.senders.get(message, ())) > self.received[message]
        return sent and (connection, "length", entry_id) not in self.senders

    def _bookie_may_lack(self, event: Event) -> Iterator[Step]:
        """A bookie comes back, and finds its remaining entries. The ledger is marked when it answers a request, if it
        ever does.
        """
        b, mark = self.b[event.node], known(Mark, event, "mark")
        fenced = mark is not Mark.NOTHING or event.parameters["fenced"]
        limbo = mark is Mark.LIMBO or event.parameters["limbo"]
        about = (("b", b), ("mark", mark), ("fenced", fenced), ("limbo", limbo))
        yield Step("bookie_may_lack_entries", about, sends=(("marked", event.node, event.incarnation),))
        for entry_id in _entries(event):
            yield Step("bookie_finds_entry", (("b", b),), (entry_id + 1,))

    def _bookie_copies(self, event: Event) -> Iterator[Step]:
        is_durable = self._was_durable(event)
        survived = set() if is_durable else {*_ids(self._survived(event)["entries"])}
        for entry_id in _entries(event):
            if (*event.place, entry_id) in self.copied_late:
                continue
            if is_durable or entry_id in survived or self._is_left(event, entry_id):
                yield Step("bookie_copies_entry", (("b", self.b[event.node]),), (entry_id + 1,))

    def _bookie_limbo(self, event: Event) -> Iterator[Step]:
        if event.action == "bookie_crashes" and (event.node, event.incarnation) in self.left:
            return  # the loss is traced already
        found = self.left.get(self._next_life(event)) or self._survived(event)
        if self._was_durable(event) or found["limbo"] == (event.action == "bookie_crashes"):
            yield Step(event.action, (("b", self.b[event.node]),))

    def _bookie_wiped(self, event: Event) -> Iterator[Step]:
        yield Step(event.action, (("b", self.b[event.node]),))

    # -- metadata ----------------------------------------------------------------------------------------------------

    def _metadata(self, metadata: Mapping[str, Any]) -> LedgerMetadata:
        return LedgerMetadata(
            metadata["ensemble_size"],
            metadata["write_quorum"],
            metadata["ack_quorum"],
            tuple(Fragment(first + 1, self._ensemble(ensemble)) for first, ensemble in metadata["fragments"]),
            LedgerStatus[metadata["state"]],
            metadata["last_entry"] + 1 if metadata["state"] == "CLOSED" else -1,
        )

    def _ensemble(self, ensemble: Sequence[str]) -> tuple[ModelValue, ...]:
        """An ensemble in the protocol. Its entry ids are higher by one, so the bookies are rotated by one position."""
        return tuple(self.b[bookie] for bookie in (*ensemble[-1:], *ensemble[:-1]))

    def _metadata_written(self, event: Event) -> Iterator[Step]:
        version = event.parameters["version"]
        writes = ("metadata", version)
        if version == 0 and 0 not in self.writes:
            yield from self._created_unseen(writes)
            return
        other, named = self._writer_of(event), event.parameters.get("client")
        if named not in (None, other.node):
            yield Step(event.action, wrong=f"{named} has not sent these metadata, and {other.node} has")
            return
        metadata = other.parameters["metadata"]
        c, sent = self._client(other), ("write", other.place)
        after = ((("meta", "version"), version + 1),)
        if version == 0:
            created = tuple(self._metadata(metadata).fragments[0].ensemble)
            yield Step("client_creates_ledger", (("c", c),), created, receives=sent, writes=writes, after=after)
            return
        is_heard = self._is_heard(other)
        expected = other.parameters["version"] + 1
        picks = (like(metadata=self._metadata(metadata), version=expected), Answer.WRITTEN if is_heard else Answer.LOST)
        yield Step("metadata_written", (("c", c),), picks, receives=sent, writes=writes, after=after)

    def _created_unseen(self, writes: tuple[str, int]) -> Iterator[Step]:
        """An untraced client has created the ledger, as the first clients that have read it show."""
        seen = [
            event.parameters["metadata"]
            for events in self.of_client.values()
            for event in events
            if event.parameters.get("version") == 0 and event.parameters["metadata"] is not None
        ]
        if not seen:
            raise NotCovered("nobody whose trace there is has created the ledger, or has seen it as it was then")
        ensemble = tuple(self._metadata(seen[0]).fragments[0].ensemble)
        yield Step("client_creates_ledger", (("c", self.unseen),), ensemble, writes=writes)

    def _writer_of(self, written: Event) -> Event:
        """The event of a client that has written a version of the metadata. Of the clients that sent it, this is the
        one that the service names, or that got that answer, or that got none.
        """
        version, metadata = written.parameters["version"], written.parameters.get("metadata")
        node = written.parameters.get("client")
        found = [
            event
            for events in self.writes.values()
            for event in events
            if (metadata is None or event.parameters["metadata"] == metadata)
            and (event.parameters["version"] + 1 == version or event.node == node)
        ]
        if not found:
            raise NotCovered(f"nobody has written version {version} of the metadata")
        # The named client has written them, even if it was to make another version: then the protocol refuses that.
        return min(
            found,
            key=lambda event: (
                event.node != node,
                event.parameters["version"] + 1 != version,
                not self._is_heard(event),
            ),
        )

    def _is_heard(self, write: Event) -> bool:
        """Whether the client learns from the answer that its write was done."""
        version = write.parameters["version"] + 1
        for event in self._later(write):
            if event.action == "client_receives_metadata":
                return bool(event.parameters["written"]) and event.parameters["version"] == version
        return False

    def _client_writes(self, event: Event) -> Iterator[Step]:
        c, sends = self._client(event), (("write", event.place),)
        if event.action == "client_creates_ledger":
            yield Step(None, sends=sends)
            return
        if event.action == "client_changes_ensemble":
            yield from self._gives_up(event, c)
            yield Step(event.action, (("c", c),), self._replacements(event), sends=sends, after=self._offers(event, c))
        else:
            may_skip = self._writes_again(event)
            reads = ("metadata", event.parameters["version"]) if event.action == "client_adopts_ledger" else None
            yield Step(
                event.action, (("c", c),), sends=sends, reads=reads, after=self._offers(event, c), may_skip=may_skip
            )

    def _offers(self, event: Event, c: ModelValue) -> tuple[tuple[tuple[Any, ...], Has], ...]:
        """The condition that a client has sent these metadata, to replace those of this version."""
        write = MetadataWrite(self._metadata(event.parameters["metadata"]), event.parameters["version"] + 1)
        return ((("writes", c), Has(write)),)

    def _are(self, event: Event) -> tuple[tuple[tuple[Any, ...], Value], ...]:
        """The condition that the metadata are as a client has read them."""
        version, metadata = event.parameters["version"], event.parameters["metadata"]
        if metadata is None:
            return () if self.is_deleted else ((("meta", "metadata"), None),)
        return ((("meta", "version"), version + 1), (("meta", "metadata"), self._metadata(metadata)))

    def _writes_again(self, write: Event) -> bool:
        """Whether a client repeats a write whose answer it did not get."""
        return any(event.action == write.action for event in self._earlier(write))

    def _gives_up(self, event: Event, c: ModelValue) -> Iterator[Step]:
        """The bookies that an ensemble change replaces have failed. Those that an earlier change was to replace, and
        this one does not, work again.
        """
        ensemble = event.parameters["metadata"]["fragments"][-1][1]
        for bookie in self._given_up(event):
            if bookie in ensemble:
                yield Step("client_finds_bookie_working", (("c", c), ("b", self.b[bookie])), may_skip=True)
        for bookie in self._ensemble_before(event):
            if bookie not in ensemble:
                yield Step("client_gives_up_on_add", (("c", c), ("b", self.b[bookie])), may_skip=True)

    def _given_up(self, change: Event) -> Sequence[str]:
        """The bookies that the last ensemble change was to replace, unless the client learned that it was done."""
        ensemble = self._ensemble_before(change)
        for event in self._earlier(change):
            if event.action == "client_receives_metadata" and event.parameters["written"]:
                break
            if event.action in _CHANGES:
                kept = event.parameters["metadata"]["fragments"][-1][1]
                return tuple(bookie for bookie in ensemble if bookie not in kept)
        return ()

    def _replacements(self, event: Event) -> tuple[ModelValue, ...]:
        """The bookies that are new in an ensemble, by their positions."""
        before = self._ensemble(self._ensemble_before(event))
        after = self._ensemble(event.parameters["metadata"]["fragments"][-1][1])
        return tuple(b for b in after if b not in before)

    def _ensemble_before(self, change: Event) -> Sequence[str]:
        """The ensemble of a client before it changes it."""
        for event in self._earlier(change):
            if event.action in _RESENDS:
                return tuple(event.parameters["ensemble"])
            if event.action in _TELL_METADATA and event.parameters["metadata"] is not None:
                return tuple(event.parameters["metadata"]["fragments"][-1][1])
        return ()

    def _client_receives_metadata(self, event: Event) -> Iterator[Step]:
        version = ("metadata", event.parameters["version"])
        begun = self._last_write(event)
        if begun is None or begun.action == "client_creates_ledger":
            yield Step(None, reads=version, after=self._are(event))
            return
        sends, c = tuple(self._sends(event)), self._client(event)
        before: tuple[tuple[tuple[Any, ...], Value], ...] = self._are(event)
        if event.parameters["written"]:
            written = Update(
                self._metadata(event.parameters["metadata"]), event.parameters["version"] + 1, Answer.WRITTEN
            )
            before = ((("client", c, "update"), written),)
        yield Step("client_receives_metadata", (("c", c),), sends=sends, reads=version, before=before)
        yield from self._goes_on(event)

    def _goes_on(self, event: Event) -> Iterator[Step]:
        """The owner goes on after an ensemble change, once it has resent what was necessary."""
        client = self.client_of[event.place]
        if self.next_of.get(event.place) not in _STILL_CHANGING:
            yield Step("client_goes_on", (("c", self.c[client]),), may_skip=True)

    def _last_write(self, event: Event) -> Event | None:
        return next((other for other in self._earlier(event) if _is_write(other)), None)

    def _earlier(self, event: Event) -> Iterator[Event]:
        """The events of a client about the metadata before an event, the last first."""
        events, place = self._of_client(event)
        return reversed(events[:place])

    def _later(self, event: Event) -> Iterator[Event]:
        """The events of a client about the metadata after an event."""
        events, place = self._of_client(event)
        return (other for other in islice(events, place, None) if other.seq > event.seq)

    def _of_client(self, event: Event) -> tuple[list[Event], int]:
        events = self.of_client.get(self.client_of[event.place], [])
        return events, bisect_left(events, event.seq, key=lambda other: other.seq)

    def _client_opens(self, event: Event) -> Iterator[Step]:
        version = ("metadata", event.parameters["version"])
        metadata = event.parameters["metadata"]
        if metadata is None or metadata["state"] == "CLOSED":
            yield Step(None, reads=version, after=self._are(event))
        else:
            yield Step("client_opens_ledger", (("c", self._client(event)),), reads=version, before=self._are(event))

    # -- clients -----------------------------------------------------------------------------------------------------

    def _client_sends_adds(self, event: Event) -> Iterator[Step]:
        c = self._client(event)
        who, sent, before = self._about(("c", c)), self._by_entry(event), self._adds_to(event)
        for entry_id in _entries(event):
            sends = sent[entry_id]
            after: tuple[tuple[tuple[Any, ...], Value], ...] = ((("client", c, "lap"), entry_id + 1),)
            if event.action == "client_writes_back_entry":
                after = ()
            tells = (("send", like(entry__id=entry_id + 1, lac=event.parameters["lac"] + 1)),)
            to = self._write_set(entry_id, event.parameters["ensemble"])
            yield Step(event.action, who, sends=sends, before=before, after=after, to=to, tells=tells)

    def _adds_to(self, event: Event) -> tuple[tuple[tuple[Any, ...], Value | Has], ...]:
        """The condition that a client adds entries to the ensemble that it tells."""
        return ((("client", self._client(event), "seen"), _AddsTo(self._ensemble(event.parameters["ensemble"]))),)

    def _write_set(self, entry_id: int, ensemble: Sequence[str]) -> frozenset[Value]:
        return self._one_of(frozenset(self.b[bookie] for bookie in _write_set(entry_id, ensemble, self.quorums[1])))

    def _client_resends(self, event: Event) -> Iterator[Step]:
        c = self._client(event)
        sent = self._by_entry(event)
        for entry_id in _entries(event):
            sends = sent.get(entry_id, ())
            before = self._write_set(entry_id, event.parameters["before"])
            to = self._write_set(entry_id, event.parameters["ensemble"]) - before
            wanted = (like(entry__id=entry_id + 1),)
            yield Step(event.action, (("c", c),), wanted, sends=sends, before=self._adds_to(event), to=to)
        yield from self._goes_on(event)

    def _client_sends_again(self, event: Event) -> Iterator[Step]:
        who = (("c", self._client(event)), ("b", self.b[event.parameters["bookie"]]))
        sent = self._by_entry(event)
        for entry_id in _entries(event):
            yield Step("client_sends_add_again", who, (like(entry__id=entry_id + 1),), sends=sent[entry_id])

    def _client_receives_adds(self, event: Event) -> Iterator[Step]:
        c, bookie = self._client(event), event.parameters["bookie"]
        success = event.action != "client_receives_add_fenced_response"
        recovery = event.action.startswith("recovery")
        who = self._about(("c", c), ("b", self.b[bookie]))
        for number, entry_id in enumerate(_entries(event)):
            yield Step(
                event.action,
                who,
                self._of_entry(entry_id, success=success),
                receives=("added", bookie, c, entry_id, recovery, success),
                may_skip=success or number > 0,
            )

    def _client_forces(self, event: Event) -> Iterator[Step]:
        c, number = self._client(event), event.parameters["force"]
        to = frozenset(self.b[bookie] for bookie in event.parameters["bookies"])
        tells = (("send", like(number=number)),)
        after = ((("force", c, number), Force(event.parameters["entry"] + 1)),)
        yield Step(event.action, (("c", c),), sends=tuple(self._sends(event)), to=to, tells=tells, after=after)

    def _client_receives_force(self, event: Event) -> Iterator[Step]:
        c, bookie, number = self._client(event), event.parameters["bookie"], event.parameters["force"]
        after = ((("forced", c), event.parameters["lac"] + 1),)
        receives = ("forced", bookie, c, number)
        sends = tuple(self.lac_learnt.get(event.place, ()))
        yield Step(
            event.action, (("c", c), ("b", self.b[bookie])), (number,), receives=receives, sends=sends, after=after
        )

    def _client_confirms(self, event: Event) -> Iterator[Step]:
        c = self._client(event)
        sends = tuple(self.lac_learnt.get(event.place, ()))
        yield Step(None, sends=sends, after=((("client", c, "lac"), event.parameters["lac"] + 1),))

    # -- readers -----------------------------------------------------------------------------------------------------

    def _follower(self, event: Event) -> ModelValue:
        return self.f[event.node, event.incarnation, event.actor]

    def _reader_reads_metadata(self, event: Event) -> Iterator[Step]:
        reads, are = ("metadata", event.parameters["version"]), self._are(event)
        yield Step(event.action, (("f", self._follower(event)),), reads=reads, before=are)

    def _reader_learns_lac(self, event: Event) -> Iterator[Step]:
        receives = ("lac", *event.place)
        yield Step(event.action, (("f", self._follower(event)),), (event.parameters["lac"] + 1,), receives=receives)

    def _reader_receives_answer(self, event: Event) -> Iterator[Step]:
        f, bookie, found = self._follower(event), event.parameters["bookie"], event.action == "reader_receives_entry"
        for entry_id in _entries(event):
            receives = ("shown", bookie, (event.node, event.incarnation), entry_id, found)
            yield Step(event.action, (("f", f), ("b", self.b[bookie])), (entry_id + 1,), receives=receives)

    def _reader_finds(self, event: Event) -> Iterator[Step]:
        entry_id = event.parameters["entry"]
        if event.action == "reader_finds_end":
            entry_id = min(entry_id, self.follower_limit)
        yield Step(event.action, (("f", self._follower(event)),), (entry_id + 1,))

    def _client_fenced(self, event: Event) -> Iterator[Step]:
        c, bookie, lac = self._client(event), event.parameters["bookie"], event.parameters["lac"]
        picks = (*ANY_MESSAGE, 0 if lac is None else lac + 1)
        yield Step(event.action, (("c", c), ("b", self.b[bookie])), picks, receives=("fenced", bookie, c))

    def _client_sends_reads(self, event: Event) -> Iterator[Step]:
        c, entry_id = self._client(event), event.parameters["entry"]
        to = frozenset(self.b[bookie] for bookie in event.parameters["bookies"])
        after = ((("client", c, "last_read"), entry_id + 1),)
        yield Step(event.action, (("c", c),), sends=tuple(self._sends(event)), after=after, to=to)

    def _client_receives_read(self, event: Event) -> Iterator[Step]:
        c, bookie, entry_id = self._client(event), event.parameters["bookie"], event.parameters["entry"]
        found = event.parameters["found"]
        yield Step(
            event.action,
            (("c", c), ("b", self.b[bookie])),
            (entry_id + 1, like(entry__id=entry_id + 1) if found else like(entry=None)),
            receives=("read", bookie, c, entry_id, found),
            may_skip=found,
        )

    def _client_fails_read(self, event: Event) -> Iterator[Step]:
        c, bookie, entry_id = self._client(event), event.parameters["bookie"], event.parameters["entry"]
        yield Step(event.action, (("c", c), ("b", self.b[bookie])), (entry_id + 1,), may_skip=True)

    def _recovery_changes(self, event: Event) -> Iterator[Step]:
        c, place = self._client(event), event.place
        metadata = self._metadata(event.parameters["metadata"])
        yield from self._gives_up(event, c)
        sends = (("write", place),) if event.parameters["version"] is not None else ()
        after: tuple[tuple[tuple[Any, ...], Value | Has], ...] = ((("client", c, "seen"), metadata),)
        if sends:  # no recovery of the protocol does that
            after = self._offers(event, c)
        yield Step(event.action, (("c", c),), self._replacements(event), sends=sends, after=after)


_BY_BOOKIE = (
    "client_receives_add_",
    "client_receives_recovery_",
    "client_receives_fencing_",
    "recovery_client_receives_",
)
"""How the names of events begin in which a client tells what a bookie has answered. A bookie that is in no ensemble
counts as one of the store: then the protocol refuses the answer.
"""

ANY_MESSAGE: tuple[Like, ...] = (Like(()),)

_SENT: Mapping[str, str] = {
    "client_sends_add_entry_requests": "add",
    "client_resends_pending_add_op": "add",
    "client_writes_back_entry": "add",
    "recovery_client_sends_pending_add_op": "add",
    "client_sends_add_again": "again",
    "recovery_client_sends_add_again": "again",
    "client_receives_metadata": "fence",
    "client_sends_recovery_read_requests": "read",
    "client_reads_length": "length",
    "client_forces_ledger": "force",
}

_STEPS: Mapping[str, Callable[[StoreConformance, Event], Iterable[Step]]] = by_action(
    {
        "bookie_sends_add_confirmed_response bookie_sends_add_fenced_response": StoreConformance._bookie_adds,
        "bookie_refuses_add": StoreConformance._bookie_refuses,
        "bookie_forces_ledger": StoreConformance._bookie_forces,
        "bookie_is_fenced": StoreConformance._bookie_fenced,
        "bookie_sends_fencing_read_lac_response": StoreConformance._bookie_fencing_read,
        "bookie_sends_read_response": StoreConformance._bookie_reads,
        "bookie_may_lack_entries": StoreConformance._bookie_may_lack,
        "bookie_copies_entry": StoreConformance._bookie_copies,
        "bookie_crashes bookie_leaves_limbo": StoreConformance._bookie_limbo,
        "bookie_is_wiped": StoreConformance._bookie_wiped,
        "metadata_written": StoreConformance._metadata_written,
        "client_creates_ledger client_adopts_ledger client_changes_ensemble client_keeps_ensemble "
        "client_closes_ledger client_starts_recovery recovery_client_closes_ledger": StoreConformance._client_writes,
        "client_receives_metadata": StoreConformance._client_receives_metadata,
        "client_opens_ledger": StoreConformance._client_opens,
        "client_sends_add_entry_requests client_writes_back_entry": StoreConformance._client_sends_adds,
        "client_resends_pending_add_op recovery_client_sends_pending_add_op": StoreConformance._client_resends,
        "client_receives_add_confirmed_response client_receives_add_fenced_response "
        "recovery_client_receives_add_confirmed_response": StoreConformance._client_receives_adds,
        "client_sends_add_again recovery_client_sends_add_again": StoreConformance._client_sends_again,
        "client_confirms": StoreConformance._client_confirms,
        "client_forces_ledger": StoreConformance._client_forces,
        "client_receives_force_response": StoreConformance._client_receives_force,
        "client_receives_fencing_read_lac_response": StoreConformance._client_fenced,
        "client_sends_recovery_read_requests": StoreConformance._client_sends_reads,
        "client_receives_recovery_read_response": StoreConformance._client_receives_read,
        "client_gives_up_on_read": StoreConformance._client_fails_read,
        "recovery_client_changes_ensemble": StoreConformance._recovery_changes,
        "reader_reads_metadata": StoreConformance._reader_reads_metadata,
        "reader_learns_lac": StoreConformance._reader_learns_lac,
        "reader_receives_entry reader_receives_no_entry": StoreConformance._reader_receives_answer,
        "reader_finds_no_entry reader_finds_end": StoreConformance._reader_finds,
    }
)


_CHANGES = ("client_changes_ensemble", "recovery_client_changes_ensemble")

_STILL_CHANGING = ("client_resends_pending_add_op", "client_changes_ensemble", "client_keeps_ensemble", "client_ends")
"""The actions of an owner before its LAC moves on after an ensemble change, or when it fails in the middle of one."""

_RESENDS = ("client_resends_pending_add_op", "recovery_client_sends_pending_add_op")

_TURNS = ("client_receives_metadata", *_RESENDS)
"""The actions after which an owner may go on."""

_TELL_METADATA = ("client_receives_metadata", "client_opens_ledger", "client_creates_ledger")

_NO_METADATA: Mapping[str, Any] = {"state": None}
"""Instead of metadata, for a metadata service that traces versions only, and for a client that has found none."""

_CERTAIN = ("OK", "NO_ENTRY", "NO_LEDGER")
"""Codes that say whether the entry exists."""

_NOTHING: Mapping[str, Any] = {"entries": (), "fenced": False, "limbo": False}


def check_form(event: Event) -> None:
    """Raises :class:`NotCovered` if the entries or the metadata that an event tells have another form."""
    metadata = event.parameters.get("metadata") or _NO_METADATA
    what, form = "", ""
    if not all(len(run) == 2 and run[0] <= run[1] for run in event.parameters.get("entries") or ()):
        what, form = "entries", "pairs of a first and a last entry"
    elif metadata is not _NO_METADATA and not _are_fragments(metadata["fragments"]):
        what, form = "fragments", "pairs of a first entry and an ensemble"
    elif metadata["state"] is not None and metadata["state"] not in LedgerStatus.__members__:
        what, form = "metadata", f"in one of the states {', '.join(LedgerStatus.__members__)}"
    if what:
        raise NotCovered(f"{event.node} {event.seq} {event.action} has {what} that are not {form}")


def _are_fragments(fragments: Sequence[Any]) -> bool:
    return bool(fragments) and all(len(fragment) == 2 for fragment in fragments)


def _ids(runs: Iterable[Sequence[int]]) -> Iterator[int]:
    for first, last in runs:
        yield from range(first, last + 1)


def _is_write(event: Event) -> bool:
    return event.action in WRITES and event.subject is not None and event.parameters["version"] is not None


def _connection_of(event: Event) -> Connection:
    """The connection over which a bookie has received what it answers."""
    return event.node, event.parameters["connection"]


def _entries(event: Event) -> Iterator[int]:
    return _ids(event.parameters["entries"])


def _write_set(entry_id: int, ensemble: Sequence[str], write_quorum: int) -> list[str]:
    """The bookies that an entry is sent to; none without an ensemble."""
    return [ensemble[(entry_id + place) % len(ensemble)] for place in range(write_quorum)] if ensemble else []
