"""A client's process: carries out what its role wants over the network and the metadata service, until it crashes; and
adds and reads by the batch, as it makes them: the simulator's twin of what drivers do for many entries at once.

Each entry of a batch is a request of its own on its way, with a number from ``FIRST_TXN`` on. The answers of a bookie
to adds in quick succession are delivered together.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, groupby
from random import Random
from typing import Any

from fencepost.store.messages import NO_ENTRY_YET, ReadEntry, ReadEntryResponse, Response
from fencepost.store.roles.interface import (
    AddsAnswered,
    Append,
    Call,
    Confirmed,
    CreateMetadata,
    Disconnected,
    Effect,
    EntriesRead,
    Event,
    ReadMetadata,
    ReadOn,
    Received,
    Result,
    Role,
    Send,
    SendAdds,
    SetTimer,
    TimerFired,
    Trace,
    Unanswered,
    WriteMetadata,
)
from fencepost.store.roles.reader import Reader
from fencepost.store.rules.codes import Code
from fencepost.store.rules.ensembles import fragment_of, is_in_write_set, write_set
from fencepost.store.rules.reading import (
    ReadOutcome,
    next_to_ask,
    order_to_ask,
    outcome_of_read,
    place_to_ask,
)
from fencepost.store.sim.environment import Environment
from fencepost.store.sim.network import Connection

FIRST_TXN = 1 << 40

TOGETHER = 300
"""Microseconds in which the answers of a bookie are delivered together, at most."""


class ClientProcess:
    """One client with one role. ``results`` takes what comes of its calls, and ``confirmed`` how far entries are that
    were appended by the batch.
    """

    def __init__(
        self,
        name: str,
        environment: Environment,
        random: Random,
        role: Role,
        results: Callable[[Result], None],
        confirmed: Callable[[int], None] = lambda entry_id: None,
    ) -> None:
        self.name = name
        self.environment = environment
        self.random = random.random
        self.role = role
        self.results = results
        self.confirmed = confirmed
        self.alive = True
        self.connections: dict[str, Connection] = {}
        self.calls = 0
        self.batches = Batches(self)
        self.expected: dict[int, Callable[[Result], None]] = {}
        """The receivers of results by calls, other than ``results``."""
        self._carry: dict[type[Effect], Callable[[Any], None]] = {
            Send: self._send,
            SendAdds: self.batches.send_adds,
            Confirmed: self._confirmed,
            SetTimer: self._set_timer,
            Result: self._result,
            CreateMetadata: self._metadata,
            ReadMetadata: self._metadata,
            WriteMetadata: self._metadata,
            Trace: self.trace_effect,
        }
        environment.trace.started(name, "client")
        environment.clients.append(self)
        environment.metadata.connect(self)

    def call(self, operation: str, *arguments: Any) -> int:
        """Ask the role for something; the token that its result will have. Nothing happens if the process has
        crashed.
        """
        self.calls += 1
        if self.alive:
            self.deliver(Call(self.calls, operation, arguments))
        return self.calls

    def append(self, entries: list[bytes]) -> int:
        """Append entries by the batch; the token that an error would have."""
        self.calls += 1
        if self.alive:
            self.deliver(Append(self.calls, entries))
        return self.calls

    def expect(self, take: Callable[[Result], None]) -> int:
        """A token; ``take`` is given what comes of it."""
        self.calls += 1
        self.expected[self.calls] = take
        return self.calls

    def crash(self) -> None:
        """The process is gone. What it has sent may still arrive."""
        if self.alive:
            self.environment.happened(self.name, "crashes")
            self.alive = False
            self.environment.metadata.disconnect(self)

    # -- events -------------------------------------------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        """Give the role an event, and do what it wants."""
        effects = self.environment.receive(self.name, self.role, event)
        carry = self._carry
        for effect in effects:
            carry[type(effect)](effect)

    def answered(self, txn: int, bookie: str, response: Response) -> None:
        """A bookie answered."""
        if txn >= FIRST_TXN:
            self.batches.answered(txn, bookie, response)
        else:
            self.deliver(Received(txn, bookie, response))

    def unanswered(self, txn: int, bookie: str) -> None:
        """A bookie did not answer."""
        if txn >= FIRST_TXN:
            self.batches.answered(txn, bookie, None)
        else:
            self.deliver(Unanswered(txn, bookie))

    def disconnected(self, bookie: str) -> None:
        """The connection to a bookie is gone."""
        self.batches.report(bookie)
        self.deliver(Disconnected(bookie))

    def _fire(self, timer: SetTimer) -> None:
        if self.alive:
            self.deliver(TimerFired(timer.key))

    # -- what the role wants ------------------------------------------------------------------------------------------

    def _send(self, send: Send) -> None:
        self.environment.network.request(self, send.bookie, send.txn, send.request)

    def _set_timer(self, timer: SetTimer) -> None:
        delay = timer.delay + int(self.random() * timer.jitter) if timer.jitter else timer.delay
        self.environment.schedule.after(delay, self._fire, timer)

    def _metadata(self, operation: CreateMetadata | ReadMetadata | WriteMetadata) -> None:
        self.environment.metadata.request(self, operation)

    def trace_effect(self, effect: Trace) -> None:
        self.environment.role_did(self.name, effect)

    def _confirmed(self, confirmed: Confirmed) -> None:
        self.confirmed(confirmed.entry_id)

    def _result(self, result: Result) -> None:
        self.expected.pop(result.token, self.results)(result)


class Batches:
    """The batches of a process that are not answered."""

    def __init__(self, process: ClientProcess) -> None:
        self.process = process
        self.txns = count(FIRST_TXN)
        self.adds: dict[int, int] = {}
        """The entry of each add."""
        self.reads: dict[int, tuple[Reading, int]] = {}
        """The reading and the entry of each read."""
        self.answers: dict[str, list[tuple[Code | None, int]]] = {}
        """The answers of each bookie to the adds of entries that are not delivered yet."""

    def send_adds(self, send: SendAdds) -> None:
        """Send the adds of a batch that are for a bookie."""
        for at in range(len(send.adds)):
            if is_in_write_set(send.place, send.adds.first + at, send.ensemble_size, send.write_quorum):
                txn = next(self.txns)
                self.adds[txn] = send.adds.first + at
                self.process.environment.network.request(self.process, send.bookie, txn, send.adds[at])

    def read(self, reading: Reading, bookie: str, entry_id: int) -> None:
        """Ask a bookie for one of the entries that are read together."""
        txn = next(self.txns)
        self.reads[txn] = reading, entry_id
        self.process.environment.network.request(self.process, bookie, txn, ReadEntry(reading.role.ledger, entry_id))

    def answered(self, txn: int, bookie: str, response: Response | None) -> None:
        """A bookie answered, or (None) did not."""
        if txn in self.reads:
            reading, entry_id = self.reads.pop(txn)
            assert response is None or isinstance(response, ReadEntryResponse)
            reading.answered(entry_id, bookie, response)
            return
        answers = self.answers.setdefault(bookie, [])
        answers.append((None if response is None else response.code, self.adds.pop(txn)))
        if len(answers) == 1:
            self.process.environment.schedule.after(int(self.process.random() * TOGETHER), self.report, bookie)

    def report(self, bookie: str) -> None:
        """Report what a bookie has answered to adds."""
        for code, answers in groupby(self.answers.pop(bookie, ()), lambda answer: answer[0]):
            if self.process.alive:
                self.process.deliver(AddsAnswered(bookie, tuple(entry_id for _, entry_id in answers), code))


class Reading:
    """Entries that a reader asks for together, each of one bookie, and of another one if that lacks it or does not
    answer: what does not come of that goes on one by one, through the role.

    ``taken`` is called with each entry, and its data or the error, as it comes.
    """

    def __init__(
        self, process: ClientProcess, role: Reader, entry_ids: range, turn: int, taken: Callable[[int, Result], None]
    ) -> None:
        self.process = process
        self.role = role
        self.taken = taken
        self.missing = [*entry_ids]
        self.tokens: dict[int, int] = {}
        self.asked_again: dict[int, str | None] = {}
        """Entries that another bookie was asked for, and the one that has answered for them before, whose
        answer the role has not received; None: the role may receive one yet.
        """
        asked = {entry_id: self._first_to_ask(entry_id, turn) for entry_id in entry_ids}
        for entry_id, bookie in asked.items():
            process.batches.read(self, bookie, entry_id)
        process.environment.schedule.after(role.settings.speculation_delay, self._read_elsewhere, asked)

    def _first_to_ask(self, entry_id: int, turn: int) -> str:
        metadata, suspects = self.role.view.known(), self.role.suspects
        ensemble, quorum = tuple(fragment_of(metadata.fragments, entry_id).ensemble), metadata.write_quorum
        bookie: str = ensemble[place_to_ask(entry_id, turn, len(ensemble), quorum)]
        if bookie in suspects:
            bookie = order_to_ask(write_set(entry_id, ensemble, quorum), entry_id, suspects)[0]
        return bookie

    def answered(self, entry_id: int, bookie: str, response: ReadEntryResponse | None) -> None:
        """A bookie answered, or (None) did not."""
        role = self.role
        entry = role.digests.open_entry(response.body, role.ledger, entry_id) if response else None
        if response is None:
            self.process.deliver(EntriesRead(bookie, None))
        elif response.code is Code.OK and entry is not None:
            if role.traces:
                fields = {"bookie": bookie, "entries": ((entry_id, entry_id),)}
                self.process.trace_effect(Trace("reader_receives_entry", role.ledger, fields))
            lac = max(entry.lac, response.lac)
            if bookie in role.suspects or lac > role.lac:
                self.process.deliver(EntriesRead(bookie, lac))
            self._take(entry_id, Result(0, entry.data))
            return
        elif response.code is Code.OK:
            response = ReadEntryResponse(role.ledger, entry_id, Code.OK, NO_ENTRY_YET, b"")
        is_lacking = response is not None and outcome_of_read(response.code, False) is ReadOutcome.NEGATIVE
        if not (response is None or is_lacking) or not self._ask_another(entry_id, bookie, bookie):
            self._read_on(entry_id, bookie, response, False)
        elif is_lacking and role.traces:
            fields = {"bookie": bookie, "entries": ((entry_id, entry_id),)}
            self.process.trace_effect(Trace("reader_receives_no_entry", role.ledger, fields))

    def _ask_another(self, entry_id: int, bookie: str, answered: str | None) -> bool:
        """Ask another bookie for an entry, if that is to be done; whether it is."""
        role = self.role
        if (
            entry_id not in self.missing
            or entry_id in self.tokens
            or entry_id in self.asked_again
            or not self.process.alive
        ):
            return False
        metadata = role.view.known()
        ensemble = tuple(fragment_of(metadata.fragments, entry_id).ensemble)
        another = next_to_ask(
            [bookie],
            [bookie],
            order_to_ask(write_set(entry_id, ensemble, metadata.write_quorum), entry_id, role.suspects),
            False,
        )
        if another is None:
            return False
        self.asked_again[entry_id] = answered
        self.process.batches.read(self, another, entry_id)
        self.process.environment.schedule.after(
            role.settings.speculation_delay, self._read_elsewhere, {entry_id: another}
        )
        return True

    def _take(self, entry_id: int, result: Result) -> None:
        if entry_id in self.missing:
            self.missing.remove(entry_id)
            self.taken(entry_id, result)

    def _read_elsewhere(self, asked: dict[int, str]) -> None:
        """Ask others for what takes long, or have the role do so."""
        for entry_id, bookie in asked.items():
            if entry_id not in self.missing or entry_id in self.tokens or self.asked_again.get(entry_id) == bookie:
                continue
            if not self._ask_another(entry_id, bookie, None):
                self._read_on(entry_id, bookie, None, True)

    def _read_on(self, entry_id: int, bookie: str, response: ReadEntryResponse | None, is_waiting: bool) -> None:
        if entry_id not in self.missing or not self.process.alive:
            return
        if entry_id not in self.tokens:
            self.tokens[entry_id] = self.process.expect(lambda result: self._take(entry_id, result))
        self.process.deliver(ReadOn(self.tokens[entry_id], entry_id, bookie, response, is_waiting))
