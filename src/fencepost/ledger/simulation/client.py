"""A client's process: carries out its role's effects over the network and the metadata service, until it crashes. It
adds and reads in batches, like the real drivers.

Each entry of a batch is a separate request, with a number from ``FIRST_TXN`` on. Answers to adds in quick succession
are delivered together, and so are answers to reads.
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
"""The first number of batched reads."""

TOGETHER = 300
"""The most microseconds over which a bookie's answers are batched."""


Take = Callable[[int, Result], None]
"""Receives a requested entry: its data, or the error."""


class ClientProcess:
    """One client with one role. ``results`` receives the results of its calls. ``confirmed`` receives the last
    confirmed entry of batched appends.
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
        """Call an operation of the role, and return the token of its result. Does nothing if the process has
        crashed.
        """
        self.calls += 1
        if self.alive:
            self.deliver(Call(self.calls, operation, arguments))
        return self.calls

    def append(self, entries: list[bytes]) -> int:
        """Append a batch of entries, and return the token that an error would have."""
        self.calls += 1
        if self.alive:
            self.deliver(Append(self.calls, entries))
        return self.calls

    def crash(self) -> None:
        """The process dies. Its messages in flight may still arrive."""
        if self.alive:
            self.environment.happened(self.name, "crashes")
            self.alive = False
            self.environment.metadata.disconnect(self)

    # -- events -------------------------------------------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        """Pass an event to the role, and carry out its effects."""
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
        """The connection to a bookie is gone. As in the real client, the role learns of it before the last answers."""
        self.deliver(Disconnected(bookie))
        self.batches.report(bookie)

    def _fire(self, timer: SetTimer) -> None:
        if self.alive:
            self.deliver(TimerFired(timer.key))

    # -- effects of the role ------------------------------------------------------------------------------------------

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
    """The unanswered batches of a process."""

    def __init__(self, process: ClientProcess) -> None:
        self.process = process
        self.txns = count(FIRST_TXN)
        self.adds: dict[int, tuple[int, int]] = {}
        """The entry of each add, and its attempt."""
        self.answers: dict[str, list[tuple[Code | None, int, int]]] = {}
        """Each bookie's undelivered answers to adds: code, attempt and entry."""

    def send_adds(self, send: SendAdds) -> None:
        """Send the adds of a batch that belong to one bookie."""
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
        """Deliver a bookie's answers to adds."""
        for (code, attempt), answers in groupby(self.answers.pop(bookie, ()), lambda answer: answer[:2]):
            if self.process.alive:
                self.process.deliver(AddsAnswered(bookie, tuple(entry_id for *_, entry_id in answers), code, attempt))


class Readings:
    """The pending reads of a reader's process, and their results."""

    def __init__(self, process: ClientProcess) -> None:
        self.process = process
        self.txns = count(FIRST_READ)
        self.asked: dict[int, tuple[int, int]] = {}
        """The reading and the entry of each request."""
        self.answers = Answers()
        self.together: dict[int, tuple[int, dict[int, bytes], Take]] = {}
        """Range reads by token: the first entry, the entries so far, and the receiver."""
        self.wanted: dict[int, list[Take]] = {}
        """Entries requested individually, and the receivers of each."""

    @property
    def role(self) -> Reader:
        """The role of the process."""
        assert isinstance(self.process.role, Reader)
        return self.process.role

    def read(self, first: int, last: int, take: Take) -> int:
        """Read a range of entries; returns a token for :meth:`forget`."""
        process = self.process
        process.calls += 1
        token = process.calls
        if process.alive:
            self.together[token] = first, {}, take
            process.deliver(ReadEntries(token, first, last))
        return token

    def want(self, entry_ids: list[int], take: Take) -> None:
        """Read entries individually."""
        if self.process.alive:
            new = [entry_id for entry_id in entry_ids if entry_id not in self.wanted]
            for entry_id in entry_ids:
                self.wanted.setdefault(entry_id, []).append(take)
            if new:
                self.process.deliver(WantEntries(new))

    def forget(self, token: int) -> None:
        """Cancel the reads of a token; 0 for those requested individually."""
        self.together.pop(token, None)
        if not token:
            self.wanted.clear()
        if self.process.alive:
            self.process.deliver(ForgetReads(token))

    def send(self, send: SendReads) -> None:
        """Request entries from a bookie."""
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
        """Deliver the bookies' answers."""
        for event in self.answers.taken():
            if self.process.alive:
                self.process.deliver(event)

    def over(self, over: ReadOver) -> None:
        """A read has finished or failed."""
        if over.token <= 0:
            self._give(over.stop, Result(0, error=over.error))
            return
        if over.token not in self.together:
            raise Violation("answers", f"{self.process.name} gets the result of a read twice")
        first, found, take = self.together.pop(over.token)
        for entry_id in range(first, over.stop):
            if entry_id not in found:
                raise Violation("answers", f"{self.process.name} learns that entry {entry_id} was read, but it was not")
            take(entry_id, Result(over.token, found[entry_id]))
        if over.error:
            take(over.stop, Result(over.token, error=over.error))

    def _give(self, entry_id: int, result: Result) -> None:
        for take in self.wanted.pop(entry_id, ()):
            take(entry_id, result)
