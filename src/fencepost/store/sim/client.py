"""A client's process: carries out what its role wants over the network and the metadata service, until it crashes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from fencepost.store.messages import Response
from fencepost.store.roles.interface import (
    Append,
    Call,
    Confirmed,
    CreateMetadata,
    Disconnected,
    Effect,
    Event,
    ReadMetadata,
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
from fencepost.store.sim.batches import FIRST_TXN, Batches
from fencepost.store.sim.environment import Environment
from fencepost.store.sim.network import Connection


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
        self.environment.trace.role_did(self.name, effect)

    def _confirmed(self, confirmed: Confirmed) -> None:
        self.confirmed(confirmed.entry_id)

    def _result(self, result: Result) -> None:
        self.expected.pop(result.token, self.results)(result)
