"""All that the processes of a simulated log have around them: time, chances, stand-in ledgers and their list."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from fencepost.log.chain import Chain
from fencepost.log.position import Position
from fencepost.log.rules import Protections
from fencepost.log.traces import SUBJECT
from fencepost.store.roles.interface import Effect, Event
from fencepost.store.rules.metadata import LedgerStatus
from fencepost.store.sim.trace import SimTrace

MS = 1_000
LOG = f"{SUBJECT}simulated"
"""The name of the log in traces."""
METADATA = "metadata"


class Broken(AssertionError):
    """A promise of the log is broken: which one, and what is so instead."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise
        self.what = what


@dataclass
class Ledger:
    """A ledger, as one thing: inside of it, the protocol `store` speaks for it. The first ``committed`` of its entries
    have an ack quorum.
    """

    number: int
    owner: str
    created: int
    entries: list[str] = field(default_factory=list)
    committed: int = 0
    status: LedgerStatus = LedgerStatus.OPEN
    takes_adds: bool = True
    last_entry: int | None = None
    works: bool = True
    is_deleted: bool = False

    def close(self, rng: random.Random) -> None:
        self.last_entry = rng.randint(self.committed, len(self.entries)) - 1
        self.status = LedgerStatus.CLOSED

    def end(self) -> list[str]:
        """The entries that a reader finds in it."""
        return self.entries[: self.committed if self.last_entry is None else self.last_entry + 1]


class Process(Protocol):
    """A process with a role: :meth:`give` gives the role an event."""

    name: str

    def give(self, event: Event) -> None: ...


class Environment:
    """The surroundings of the processes of a run, and the time in microseconds. :class:`fencepost.log.sim.world.World`
    carries out effects and elects.
    """

    slowness: int
    loss: float

    def __init__(self, seed: int, protections: Protections, trace: SimTrace | None) -> None:
        self.trace = trace
        self.subject = LOG
        self.seed = seed
        self.rng = random.Random(seed)
        self.protections = protections
        self.now = 0
        self.steps = count()
        self.agenda: list[tuple[int, int, Callable[[], None]]] = []
        self.chain = Chain()
        self.version = 0
        self.trimmed: list[int] = []
        self.ledgers: dict[int, Ledger] = {}
        self.elected = ""
        self.acknowledged: dict[str, Position] = {}
        self.appends: dict[str, set[str]] = {}
        """For each entry, the entries acknowledged when it was appended."""
        self.is_calm = False
        self.happened: set[object] = set()

    def carry_out(self, node: Process, effect: Effect) -> None:
        """Do what the role of a process wants done."""
        raise NotImplementedError

    def elect(self, name: str) -> None:
        """Have a process lead, by its name."""
        raise NotImplementedError

    def writers(self) -> list[str]:
        """The names of the writers that work."""
        raise NotImplementedError

    # -- time ---------------------------------------------------------------------------------------------------------

    def at(self, time: int, what: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (time, next(self.steps), what))

    def later(self, what: Callable[[], None]) -> None:
        self.at(self.now + self.delay(), what)

    def delay(self) -> int:
        if self.is_calm:
            return self.rng.randint(1, MS)
        return self.rng.randint(1, self.slowness if self.rng.random() < 0.1 else 2 * MS)

    def go_on(self, until: int) -> None:
        while self.agenda and self.agenda[0][0] <= until:
            self.now, _, what = heapq.heappop(self.agenda)
            what()
        self.now = until

    # -- ledgers -------------------------------------------------------------------------------------------------------

    def replace(self, chain: Chain, by: str) -> None:
        self.chain = chain
        self.version += 1
        if self.trace is not None:
            self.trace.node_did(METADATA, "metadata_written", {"version": self.version, "client": by}, LOG)

    def new_ledger(self, owner: str) -> Ledger:
        ids = [each for each in range(1, len(self.ledgers) + 7) if each not in self.ledgers]
        number = self.rng.choice(ids[:6])
        self.ledgers[number] = Ledger(number, owner, self.now // MS)
        return self.ledgers[number]

    def delete(self, number: int) -> None:
        if number in (link.ledger for link in self.chain.links):
            raise Broken("no loss", f"ledger {number} of the log was deleted as one that is not in it")
        self.ledgers[number].is_deleted = number not in self.trimmed
