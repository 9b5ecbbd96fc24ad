"""Roles connected in memory: a small loop carries their effects out in the order in which they arise.

Everything is delivered at once and in order, unless a test holds it back, drops it or answers it. Time passes only when
nothing else is left to do.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from ledger.singly import asked, found, replayed, singly

from fencepost.ledger.messages import ReadEntry
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.roles import interface as i
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.roles.reading import Answers
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import is_in_write_set
from fencepost.ledger.rules.metadata import takes_update
from fencepost.ledger.rules.protections import ALL, Protections

Drop = Callable[[str, str, Any], bool]
"""Whether a message from one end to another is lost. The client then learns that it gets no answer."""


class Cluster:
    """Bookies, a metadata service and clients. ``results`` has the result of each call, by token."""

    def __init__(self, bookies: Iterable[str], protections: Protections = ALL) -> None:
        self.protections = protections
        self.bookies = {name: Bookie(protections) for name in bookies}
        self.journals: dict[str, list[Any]] = {name: [] for name in self.bookies}
        self.durable: dict[str, list[Any]] = {name: [] for name in self.bookies}
        self.entries: dict[str, dict[tuple[int, int], bytes]] = {name: {} for name in self.bookies}
        self.metadata: dict[int, tuple[Any, int]] = {}
        self.watches: list[tuple[Any, int]] = []
        self.clients: list[Any] = []
        self.results: dict[int, i.Result] = {}
        self.confirmed: list[int] = []
        """The last confirmed entry of each notice about appended batches."""
        self.down: set[str] = set()
        self.drop: Drop = lambda source, target, message: False
        self.lose_metadata_answers = 0
        self.syncs = True
        self.now = 0
        self.tokens = count(1)
        self.events: deque[tuple[Any, i.Event]] = deque()
        self.adds: dict[int, tuple[int, int]] = {}
        """The entry and the attempt of each add, by its number, which is negative."""
        self.asked: dict[int, tuple[int, Any]] = {}
        """The numbers and requests of plain reads, by the identity of their events. ``reading``: the one of the current
        event. ``looked_up``: the numbers of the reads that bookies have begun.
        """
        self.reading: tuple[int, Any] | None = None
        self.looked_up: dict[tuple[Bookie, int], int] = {}
        self.reads: dict[int, tuple[Any, int, int]] = {}
        """The reader, the reading and the entry of each request of a reading, by its number, which is negative."""
        self.data: dict[int, dict[int, bytes]] = {}
        """The entries that each reading has received."""
        self.singly: dict[int, int] = {}
        """The token of the result of each entry that is wanted alone."""
        self.timers: list[tuple[int, int, Any, Any]] = []
        self.order = count()
        self.batched = count(1)

    def add(self, client: Any) -> Any:
        """Add a client to the cluster."""
        self.clients.append(client)
        self.give(client, i.BookiesChanged(tuple(b for b in self.bookies if b not in self.down)))
        return client

    def call(self, client: Any, operation: str, *arguments: Any) -> int:
        """Call an operation of a client and carry out its effects. Returns the token of the call."""
        token = next(self.tokens)
        self.give(client, i.Call(token, operation, arguments))
        return token

    def value(self, client: Any, operation: str, *arguments: Any) -> Any:
        """The result of a call. Lets time pass if necessary."""
        token = self.call(client, operation, *arguments)
        while token not in self.results:
            self.wait()
        result = self.results[token]
        assert not result.error, result
        return result.value

    def append(self, client: Any, *entries: bytes) -> int:
        """Append entries at once. Returns the token under which an error is reported."""
        token = next(self.tokens)
        self.give(client, i.Append(token, entries))
        return token

    def appended(self, client: Any, *entries: bytes) -> range:
        """Append entries at once and wait until they are confirmed. Returns their ids."""
        first, token = client.adds.pushed + 1, self.append(client, *entries)
        while client.adds.confirmed < first + len(entries) - 1:
            assert token not in self.results, self.results[token]
            self.wait()
        return range(first, first + len(entries))

    def read(self, reader: Any, entry_id: int, singly: bool = False) -> int:
        """Make a reader read an entry. Returns the token of the result."""
        token = next(self.tokens)
        if singly:
            self.singly[entry_id] = token
            self.give(reader, i.WantEntries([entry_id]))
        else:
            self.give(reader, i.ReadEntries(token, entry_id, entry_id))
        return token

    def data_of(self, reader: Any, entry_id: int, singly: bool = False) -> bytes:
        """The data of an entry. Lets time pass if necessary."""
        token = self.read(reader, entry_id, singly)
        while token not in self.results:
            self.wait()
        result = self.results[token]
        assert not result.error, result
        data: bytes = result.value
        return data

    def error(self, token: int) -> str:
        """Why a call failed."""
        return self.results[token].error

    def crash(self, name: str) -> None:
        """Kill a bookie. It loses what is not synced."""
        self.down.add(name)
        for client in self.clients:
            self.events.append((client, i.BookiesChanged(tuple(b for b in self.bookies if b not in self.down))))
        self.run()

    def restart(self, name: str) -> None:
        """Restart a bookie from its journal."""
        self.durable[name] += self.journals[name][: self.bookies[name].synced]
        self.down.discard(name)
        self.bookies[name], self.entries[name], self.journals[name] = Bookie(self.protections), {}, []
        for record in self.durable[name]:
            if type(record) is EntryAdded:
                self.entries[name][record.ledger, record.entry_id] = record.body
            self.bookies[name].receive(replayed(record), self.now)

    def give(self, role: Any, event: i.Event) -> None:
        """Deliver an event, and carry out everything that follows."""
        self.events.append((role, event))
        self.run()

    def run(self) -> None:
        """Carry out everything that is due now."""
        while self.events:
            role, event = self.events.popleft()
            self.happen(role, event)

    def happen(self, role: Any, event: i.Event) -> None:
        """Deliver one event."""
        self.reading = self.asked.pop(id(event), None)
        for effect in role.receive(event, self.now):
            for each in singly(effect):
                self.carry_out(role, each)

    def wait(self) -> None:
        """Let time pass up to the next timer."""
        assert self.timers, "nothing will happen any more"
        self.now, _, role, key = heapq.heappop(self.timers)
        self.give(role, i.TimerFired(key))

    def carry_out(self, role: Any, effect: Any) -> None:
        kind = type(effect)
        if kind is i.Send:
            self.send(role, effect)
        elif kind is i.SendAdds:
            self.send_adds(role, effect)
        elif kind is i.SendReads:
            for entry_id in effect.entry_ids:
                txn = -next(self.batched)
                self.reads[txn] = role, effect.reading, entry_id
                self.send(role, i.Send(txn, effect.bookie, ReadEntry(role.ledger, entry_id)))
        elif kind is i.ReadOver:
            token = effect.token if effect.token > 0 else self.singly.pop(effect.stop)
            value = None if effect.error else self.data[effect.token][effect.stop - 1]
            assert token not in self.results, "a call is answered once"
            self.results[token] = i.Result(token, value, effect.error)
        elif kind is i.Confirmed:
            self.confirmed.append(effect.entry_id)
        elif kind is i.Answer:
            self.answer(role, effect)
        elif kind is i.Result:
            assert effect.token not in self.results, "a call is answered once"
            self.results[effect.token] = effect
        elif kind is i.SetTimer:
            heapq.heappush(self.timers, (self.now + effect.delay, next(self.order), role, effect.key))
        elif kind in (i.CreateMetadata, i.ReadMetadata, i.WriteMetadata):
            self.serve_metadata(role, effect)
        else:
            self.serve_bookie(role, effect)

    def name_of(self, bookie: Any) -> str:
        return next(name for name, role in self.bookies.items() if role is bookie)

    def send(self, client: Any, effect: i.Send) -> None:
        if effect.bookie in self.down or self.drop("client", effect.bookie, effect.request):
            self.events.append((client, self.unanswered_by(effect.txn, effect.bookie)))
        else:
            connection = self.clients.index(client)
            event = asked(connection, effect.txn, effect.request)
            if type(event) is i.ReadsArrived:
                self.asked[id(event)] = effect.txn, effect.request
            self.events.append((self.bookies[effect.bookie], event))

    def answer(self, bookie: Any, effect: i.Answer) -> None:
        name, client = self.name_of(bookie), self.clients[effect.connection]
        if self.drop(name, "client", effect.response):
            self.events.append((client, self.unanswered_by(effect.txn, name)))
        elif effect.txn in self.adds:
            self.events.append((client, self.adds_answered(effect.txn, name, effect.response.code)))
        elif effect.txn in self.reads:
            self.events.append((client, self.read_answered(effect.txn, name, effect.response)))
        else:
            self.events.append((client, i.Received(effect.txn, name, effect.response)))

    def send_adds(self, client: Any, effect: i.SendAdds) -> None:
        """Send the adds of a batch one at a time, and answer them so."""
        for at in range(len(effect.adds)):
            request = effect.adds[at]
            if is_in_write_set(effect.place, request.entry_id, effect.ensemble_size, effect.write_quorum):
                txn = -next(self.batched)
                self.adds[txn] = request.entry_id, effect.attempt
                self.send(client, i.Send(txn, effect.bookie, request))

    def unanswered_by(self, txn: int, name: str) -> i.Event:
        """The event for a client whose request gets no answer."""
        if txn in self.reads:
            return self.read_answered(txn, name, None)
        return self.adds_answered(txn, name, None) if txn in self.adds else i.Unanswered(txn, name)

    def adds_answered(self, txn: int, name: str, code: Code | None) -> i.Event:
        """The event for a client whose add was answered."""
        entry_id, attempt = self.adds.pop(txn)
        return i.AddsAnswered(name, [entry_id], code, attempt)

    def read_answered(self, txn: int, name: str, response: Any) -> i.Event:
        """The event for a reader when one request of a reading is answered."""
        reader, reading, entry_id = self.reads.pop(txn)
        answers = Answers()
        entry = answers.add(reader.digests, reading, name, (reader.ledger, entry_id), response)
        if entry is not None and reading > 0:
            self.data.setdefault(reading, {})[entry_id] = entry.data
        elif entry is not None and entry_id in self.singly:
            token = self.singly.pop(entry_id)
            self.results[token] = i.Result(token, entry.data)
        (event,) = answers.taken()
        return event

    def serve_bookie(self, bookie: Any, effect: Any) -> None:
        name = self.name_of(bookie)
        if type(effect) is i.Journal:
            self.journals[name].append(effect.record)
            assert len(self.journals[name]) == effect.position
            if type(effect.record) is EntryAdded:
                self.entries[name][effect.record.ledger, effect.record.entry_id] = effect.record.body
            if self.syncs:
                self.events.append((bookie, i.JournalSynced(effect.position)))
        elif type(effect) is i.LookUpReads:
            assert self.reading is not None
            txn, request = self.reading
            self.looked_up[bookie, effect.number] = txn
            body = self.entries[name].get((request.ledger, request.entry_id))
            code = Code.NO_ENTRY if body is None else Code.OK
            self.events.append((bookie, found(effect, request.ledger, code, (txn, request.entry_id, body))))
        elif type(effect) is i.LookUp:
            ids = [entry_id for ledger, entry_id in self.entries[name] if ledger == effect.ledger]
            wanted = max(ids, default=-1) if effect.entry_id == -1 else effect.entry_id
            body = self.entries[name].get((effect.ledger, wanted))
            code = Code.NO_ENTRY if body is None else Code.OK
            self.events.append((bookie, i.Found(effect.number, code, wanted, body)))

    def serve_metadata(self, client: Any, effect: Any) -> None:
        metadata, version = self.metadata.get(effect.ledger, (None, -1))
        outcome, read = i.Outcome.OK, None
        if type(effect) is i.CreateMetadata:
            if metadata is not None:
                outcome = i.Outcome.EXISTS
            else:
                version = self.change_metadata(effect, 0)
        elif metadata is None:
            outcome = i.Outcome.NO_LEDGER
        elif type(effect) is i.ReadMetadata:
            read = metadata
            if effect.watch:
                self.watches.append((client, effect.ledger))
        elif takes_update(effect.version, version, self.protections):
            version = self.change_metadata(effect, version + 1)
        else:
            outcome = i.Outcome.BAD_VERSION
        if type(effect) is not i.ReadMetadata and self.lose_metadata_answers:
            self.lose_metadata_answers -= 1
            outcome, read = i.Outcome.UNKNOWN, None
        self.events.append((client, i.MetadataAnswer(effect.txn, outcome, version, read)))

    def change_metadata(self, effect: Any, version: int) -> int:
        self.metadata[effect.ledger] = (effect.metadata, version)
        self.tell_watchers(effect.ledger)
        return version

    def tell_watchers(self, ledger: int) -> None:
        told = [watch for watch in self.watches if watch[1] == ledger]
        self.watches = [watch for watch in self.watches if watch[1] != ledger]
        self.events.extend((client, i.MetadataChanged(ledger)) for client, _ in told)
