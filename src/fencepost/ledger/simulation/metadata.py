"""A metadata service: versioned ledgers, registered bookies, sessions and watches. It makes one change at a time.

A client whose connection breaks does not learn whether its operation was done. It may be done even later. An expired
session loses its watches.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from fencepost.ledger.roles.interface import (
    BookiesChanged,
    CreateMetadata,
    Event,
    MetadataAnswer,
    MetadataChanged,
    Outcome,
    ReadMetadata,
    SessionExpired,
    WriteMetadata,
)
from fencepost.ledger.roles.metadata import described
from fencepost.ledger.rules.metadata import LedgerMetadata, takes_update
from fencepost.ledger.rules.placement import ANYWHERE, Placement
from fencepost.ledger.rules.protections import Protections
from fencepost.ledger.simulation.judge import Judge
from fencepost.ledger.simulation.story import Story
from fencepost.simulation.schedule import Schedule
from fencepost.simulation.trace import SimTrace

Operation = CreateMetadata | ReadMetadata | WriteMetadata

NAME = "metadata"
"""The name of the service's process."""


class Client(Protocol):
    """The client of a session. ``alive``: whether it can receive anything."""

    name: str
    alive: bool

    def deliver(self, event: Event) -> None:
        """Something happened."""


@dataclass
class Session:
    """A client's session: its pending operations, and the arrival time of its last message, so that messages stay in
    order.
    """

    client: Client
    waiting: set[int]
    arrives: int = 0


class SimMetadata:
    """The service. ``unsteady``: the share of operations whose connection breaks. ``placement``: of all clients."""

    def __init__(
        self,
        schedule: Schedule,
        random: Random,
        judge: Judge,
        story: Story | None,
        protections: Protections,
        unsteady: float,
        trace: SimTrace | None = None,
        placement: Placement = ANYWHERE,
    ) -> None:
        self.schedule = schedule
        self.random = random.random
        self.judge = judge
        self.story = story
        self.trace = trace or SimTrace()
        self.trace.started(NAME, "metadata")
        self.protections = protections
        self.unsteady = unsteady
        self.placement = placement
        self.ledgers: dict[int, tuple[LedgerMetadata, int]] = {}
        self.bookies: dict[str, int] = {}
        self.sessions: dict[str, Session] = {}
        self.watches: dict[int, dict[str, Session]] = {}
        self.clogged: dict[str, int] = {}

    # -- sessions -----------------------------------------------------------------------------------------------------

    def connect(self, client: Client) -> None:
        """Open a session for a client, and send it the bookies."""
        self.sessions[client.name] = Session(client, set())
        self._notify(self.sessions[client.name], self._candidates())

    def disconnect(self, client: Client) -> None:
        """A client is gone."""
        session = self.sessions.pop(client.name, None)
        if session is not None:
            self._forget(session)

    def expire(self, client: Client) -> None:
        """Expire a client's session. The client notices, and opens a new one."""
        session = self.sessions[client.name]
        self._forget(session)
        waiting = sorted(session.waiting)
        session.waiting.clear()
        for txn in waiting:
            client.deliver(MetadataAnswer(txn, Outcome.UNKNOWN))
        client.deliver(SessionExpired())
        self.connect(client)

    def register(self, bookie: str) -> None:
        """A bookie is writable."""
        if bookie not in self.bookies:
            self.bookies[bookie] = 1
            self._notify_bookies()

    def unregister(self, bookie: str) -> None:
        """A bookie is no longer writable."""
        if self.bookies.pop(bookie, None):
            self._notify_bookies()

    def has(self, ledger: int) -> bool:
        """Whether a ledger has metadata."""
        return ledger in self.ledgers

    def delete(self, ledger: int) -> None:
        """Delete a ledger, from outside."""
        del self.ledgers[ledger]

    def heal(self) -> None:
        """Break no more connections."""
        self.unsteady = 0.0
        self.clogged.clear()

    # -- operations ---------------------------------------------------------------------------------------------------

    def request(self, client: Client, operation: Operation) -> None:
        """Carry out a client's operation, and answer it."""
        session = self.sessions[client.name]
        session.waiting.add(operation.txn)
        if self.story is not None:
            self.story.sent(client.name, NAME, (client.name, operation.txn, True), operation)
        at = max(self.schedule.now + self._delay(), self.clogged.get(client.name, 0))
        if self.unsteady and self.random() < self.unsteady:
            fate = self.random()
            self.schedule.after(
                self._delay() * 20, self._answer, session, MetadataAnswer(operation.txn, Outcome.UNKNOWN)
            )
            if fate < 0.3:
                return
            self.schedule.at(at if fate < 0.8 else at + 40 * self._delay(), self._lost, session, operation)
        else:
            self.schedule.at(at, self._done, session, operation)

    def _lost(self, session: Session, operation: Operation) -> None:
        if self.sessions.get(session.client.name) is session:
            self._received(session, operation)
            self._apply(session, operation)

    def _done(self, session: Session, operation: Operation) -> None:
        if self.sessions.get(session.client.name) is session:
            self._received(session, operation)
            answer = self._apply(session, operation)
            if self.story is not None:
                self.story.sent(NAME, session.client.name, (session.client.name, operation.txn, False), answer)
            self._send(session, self._answer, session, answer)

    def _received(self, session: Session, operation: Operation) -> None:
        if self.story is not None:
            self.story.received((session.client.name, operation.txn, True))
            self.story.happens(self.schedule.now, NAME, type(operation).__name__)

    def _apply(self, session: Session, operation: Operation) -> MetadataAnswer:
        txn, ledger = operation.txn, operation.ledger
        old, version = self.ledgers.get(ledger, (None, -1))
        if isinstance(operation, CreateMetadata):
            if old is not None:
                return MetadataAnswer(txn, Outcome.EXISTS, version)
            return self._replace(session, operation, None, 0)
        if old is None:
            return MetadataAnswer(txn, Outcome.NO_LEDGER)
        if isinstance(operation, ReadMetadata):
            if operation.watch:
                self.watches.setdefault(ledger, {})[session.client.name] = session
            return MetadataAnswer(txn, Outcome.OK, version, old)
        if not takes_update(operation.version, version, self.protections):
            return MetadataAnswer(txn, Outcome.BAD_VERSION, version)
        return self._replace(session, operation, old, version + 1)

    def _replace(
        self, session: Session, operation: CreateMetadata | WriteMetadata, old: LedgerMetadata | None, version: int
    ) -> MetadataAnswer:
        ledger = operation.ledger
        self.judge.metadata_written(session.client.name, ledger, old, operation.metadata)
        self.ledgers[ledger] = operation.metadata, version
        fields = {"version": version, "metadata": described(operation.metadata), "client": session.client.name}
        self.trace.node_did(NAME, "metadata_written", fields, str(ledger))
        for watching in self.watches.pop(ledger, {}).values():
            self._notify(watching, MetadataChanged(ledger))
        return MetadataAnswer(operation.txn, Outcome.OK, version)

    # -- notifications and answers ------------------------------------------------------------------------------------

    def _delay(self) -> int:
        return 200 + int(self.random() * 1_000)

    def _notify(self, session: Session, event: Event) -> None:
        self._send(session, self._deliver, session, event)

    def _notify_bookies(self) -> None:
        for name in sorted(self.sessions):
            self._notify(self.sessions[name], self._candidates())

    def _candidates(self) -> BookiesChanged:
        """The bookies in random order: each client prefers different ones."""
        mixed = tuple(sorted(self.bookies, key=lambda _: self.random()))
        return BookiesChanged(mixed, placement=self.placement)

    def _send(self, session: Session, call: Any, *arguments: Any) -> None:
        """Send a client a message, after all earlier ones."""
        at = max(self.schedule.now + self._delay(), self.clogged.get(session.client.name, 0), session.arrives)
        session.arrives = at
        self.schedule.at(at, call, *arguments)

    def _deliver(self, session: Session, event: Event) -> None:
        if self.sessions.get(session.client.name) is session and session.client.alive:
            session.client.deliver(event)

    def _answer(self, session: Session, answer: MetadataAnswer) -> None:
        if answer.txn in session.waiting and session.client.alive:
            session.waiting.remove(answer.txn)
            if self.story is not None and answer.outcome is not Outcome.UNKNOWN:
                self.story.received((session.client.name, answer.txn, False))
            session.client.deliver(answer)

    def _forget(self, session: Session) -> None:
        for watching in self.watches.values():
            watching.pop(session.client.name, None)
