"""A client's process: carries out what its role wants over the network and the metadata service, until it crashes; and
adds and reads by the batch, as it makes them: the simulator's twin of what drivers do for many entries at once.

Each entry of a batch is a request of its own on its way, with a number from ``FIRST_TXN`` on. The answers to adds, and
those to reads, in quick succession are delivered together.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, groupby
from random import Random
from typing import Any

from fencepost.ledger.messages import ReadEntry, ReadEntryResponse, Response
from fencepost.ledger.roles.interface import (
    AddsAnswered,
    Append,
    Call,
    Confirmed,
    CreateMetadata,
    Disconnected,
    Effect,
    Event,
    ForgetReads,
    ReadEntries,
    ReadMetadata,
    ReadOver,
    Received,
    Result,
    Role,
    Send,
    SendAdds,
    SendReads,
    SetTimer,
    TimerFired,
    Trace,
    Unanswered,
    WantEntries,
    WriteMetadata,
)
from fencepost.ledger.roles.reader import Reader
from fencepost.ledger.roles.reading import Answers
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import is_in_write_set
from fencepost.ledger.simulation.environment import StoreEnvironment
from fencepost.ledger.simulation.judge import Violation
from fencepost.ledger.simulation.network import Connection

FIRST_TXN = 1 << 40
FIRST_READ = 1 << 41
"""The same for reads."""

TOGETHER = 300
"""Microseconds in which the answers of a bookie are delivered together, at most."""


Take = Callable[[int, Result], None]
"""Takes an entry that was wanted: its data, or the error."""


class ClientProcess:
    """One client with one role. ``results`` takes what comes of its calls, and ``confirmed`` how far entries are that
    were appended by the batch.
    """

    def __init__(
        self,
        name: str,
        environment: StoreEnvironment,
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
        self.readings = Readings(self)
        self._carry: dict[type[Effect], Callable[[Any], None]] = {
            Send: self._send,
            SendAdds: self.batches.send_adds,
            SendReads: self.readings.send,
            ReadOver: self.readings.over,
            Confirmed: self._confirmed,
            SetTimer: self._set_timer,
            Result: results,
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
        if txn >= FIRST_READ:
            self.readings.answered(txn, bookie, response)
        elif txn >= FIRST_TXN:
            self.batches.answered(txn, bookie, response)
        else:
            self.deliver(Received(txn, bookie, response))

    def unanswered(self, txn: int, bookie: str) -> None:
        """A bookie did not answer."""
        if txn >= FIRST_READ:
            self.readings.answered(txn, bookie, None)
        elif txn >= FIRST_TXN:
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


class Batches:
    """The batches of a process that are not answered."""

    def __init__(self, process: ClientProcess) -> None:
        self.process = process
        self.txns = count(FIRST_TXN)
        self.adds: dict[int, tuple[int, int]] = {}
        """The entry of each add, and the attempt of the role that it is of."""
        self.answers: dict[str, list[tuple[Code | None, int, int]]] = {}
        """The answers of each bookie to adds that are not delivered yet: with the attempt, and the entry."""

    def send_adds(self, send: SendAdds) -> None:
        """Send the adds of a batch that are for a bookie."""
        for at in range(len(send.adds)):
            if is_in_write_set(send.place, send.adds.first + at, send.ensemble_size, send.write_quorum):
                txn = next(self.txns)
                self.adds[txn] = send.adds.first + at, send.attempt
                self.process.environment.network.request(self.process, send.bookie, txn, send.adds[at])

    def answered(self, txn: int, bookie: str, response: Response | None) -> None:
        """A bookie answered, or (None) did not."""
        answers = self.answers.setdefault(bookie, [])
        entry_id, attempt = self.adds.pop(txn)
        answers.append((None if response is None else response.code, attempt, entry_id))
        if len(answers) == 1:
            self.process.environment.schedule.after(int(self.process.random() * TOGETHER), self.report, bookie)

    def report(self, bookie: str) -> None:
        """Report what a bookie has answered to adds."""
        for (code, attempt), answers in groupby(self.answers.pop(bookie, ()), lambda answer: answer[:2]):
            if self.process.alive:
                self.process.deliver(AddsAnswered(bookie, tuple(entry_id for *_, entry_id in answers), code, attempt))


class Readings:
    """What a reader's role has asked for, and what has come of it, in a process that has such a role."""

    def __init__(self, process: ClientProcess) -> None:
        self.process = process
        self.txns = count(FIRST_READ)
        self.asked: dict[int, tuple[int, int]] = {}
        """The reading and the entry of each request."""
        self.answers = Answers()
        self.together: dict[int, tuple[int, dict[int, bytes], Take]] = {}
        """The first of the entries that are wanted together, by token, those that are there, and who takes them."""
        self.wanted: dict[int, list[Take]] = {}
        """Entries that are wanted by themselves, and who takes each."""

    @property
    def role(self) -> Reader:
        """The role of the process."""
        assert isinstance(self.process.role, Reader)
        return self.process.role

    def read(self, first: int, last: int, take: Take) -> int:
        """Read entries that follow one another; the token by which they can be forgotten."""
        process = self.process
        process.calls += 1
        token = process.calls
        if process.alive:
            self.together[token] = first, {}, take
            process.deliver(ReadEntries(token, first, last))
        return token

    def want(self, entry_ids: list[int], take: Take) -> None:
        """Read entries, each by itself."""
        if self.process.alive:
            new = [entry_id for entry_id in entry_ids if entry_id not in self.wanted]
            for entry_id in entry_ids:
                self.wanted.setdefault(entry_id, []).append(take)
            if new:
                self.process.deliver(WantEntries(new))

    def forget(self, token: int) -> None:
        """Nobody wants the entries of a token any more, or (0) those that are wanted by themselves."""
        self.together.pop(token, None)
        if not token:
            self.wanted.clear()
        if self.process.alive:
            self.process.deliver(ForgetReads(token))

    def send(self, send: SendReads) -> None:
        """Ask a bookie for entries."""
        for entry_id in send.entry_ids:
            txn = next(self.txns)
            self.asked[txn] = send.reading, entry_id
            request = ReadEntry(self.role.ledger, entry_id)
            self.process.environment.network.request(self.process, send.bookie, txn, request)

    def answered(self, txn: int, bookie: str, response: Response | None) -> None:
        """A bookie answered, or (None) did not."""
        assert response is None or isinstance(response, ReadEntryResponse)
        reading, entry_id = self.asked.pop(txn)
        if not self.answers.alike:
            self.process.environment.schedule.after(int(self.process.random() * TOGETHER), self.report)
        entry = self.answers.add(self.role.digests, reading, bookie, (self.role.ledger, entry_id), response)
        if entry is not None and reading in self.together:
            self.together[reading][1][entry_id] = entry.data
        elif entry is not None and reading < 0:
            self._give(entry_id, Result(0, entry.data))

    def report(self) -> None:
        """Report what bookies have answered."""
        for event in self.answers.taken():
            if self.process.alive:
                self.process.deliver(event)

    def over(self, over: ReadOver) -> None:
        """What was wanted is there, or cannot be had."""
        if over.token <= 0:
            self._give(over.stop, Result(0, error=over.error))
            return
        if over.token not in self.together:
            raise Violation("answers", f"{self.process.name} is told twice that entries are read")
        first, found, take = self.together.pop(over.token)
        for entry_id in range(first, over.stop):
            if entry_id not in found:
                raise Violation("answers", f"{self.process.name} is told that entry {entry_id} is there, and it is not")
            take(entry_id, Result(over.token, found[entry_id]))
        if over.error:
            take(over.stop, Result(over.token, error=over.error))

    def _give(self, entry_id: int, result: Result) -> None:
        for take in self.wanted.pop(entry_id, ()):
            take(entry_id, result)
