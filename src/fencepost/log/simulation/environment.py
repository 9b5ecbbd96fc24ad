"""What the processes of a simulated log share: time, chance, stand-in ledgers and their chain."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fencepost.ledger.roles.interface import Effect, Event
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.log.chain import SUBJECT, Chain, Position
from fencepost.log.rules import Protections
from fencepost.simulation.schedule import Schedule
from fencepost.simulation.trace import SimTrace

MS = 1_000
LOG = f"{SUBJECT}simulated"
"""The name of the log in traces."""
METADATA = "metadata"


class Broken(AssertionError):
    """A promise of the log is broken. The message names it, and describes the actual state."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise
        self.what = what


@dataclass
class Ledger:
    """A stand-in ledger. The protocol `store` covers its replication, so here it is a single object. An ack quorum has
    the first ``committed`` of its entries.
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


class LogEnvironment(Schedule):
    """The environment of the processes of a run, and the time in microseconds.
    :class:`fencepost.log.simulation.world.World` carries out effects and holds elections.
    """

    slowness: int
    loss: float

    def __init__(self, seed: int, protections: Protections, trace: SimTrace | None) -> None:
        super().__init__()
        self.trace = trace or SimTrace()
        self.seed = seed
        self.rng = random.Random(seed)
        self.protections = protections
        self.chain = Chain()
        self.version = 0
        self.trimmed: list[int] = []
        self.ledgers: dict[int, Ledger] = {}
        self.elected = ""
        self.acknowledged: dict[str, Position] = {}
        self.appends: dict[str, set[str]] = {}
        """For each entry, the entries that were acknowledged when it was appended."""
        self.is_calm = False
        self.happened: set[object] = set()

    def carry_out(self, node: Process, effect: Effect) -> None:
        """Carry out an effect of a process's role."""
        raise NotImplementedError

    def elect(self, name: str) -> None:
        """Elect a process, by its name."""
        raise NotImplementedError

    def writers(self) -> list[str]:
        """The names of the writers that run."""
        raise NotImplementedError

    # -- time ---------------------------------------------------------------------------------------------------------

    def later(self, call: Callable[..., object], *arguments: Any) -> None:
        self.after(self.delay(), call, *arguments)

    def delay(self) -> int:
        if self.is_calm:
            return self.rng.randint(1, MS)
        return self.rng.randint(1, self.slowness if self.rng.random() < 0.1 else 2 * MS)

    # -- ledgers -------------------------------------------------------------------------------------------------------

    def replace(self, chain: Chain, by: str) -> None:
        self.chain = chain
        self.version += 1
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


class Process:
    """A process with a role. Events reach it late, and not at all while it is stopped."""

    def __init__(self, world: LogEnvironment, name: str) -> None:
        self.world = world
        self.name = name
        self.works = True
        self.stopped_until = 0
        world.trace.started(name, "client")

    def give(self, event: Event) -> None:
        """Give the role an event, now or once the process resumes."""
        if self.works and self.world.now < self.stopped_until:
            self.world.at(self.stopped_until, self.give, event)
        elif self.works:
            self.receive(event)

    def receive(self, event: Event) -> None:
        """Give the role an event, and carry out its effects."""
        raise NotImplementedError
