"""Writers of batches in simulated logs. They write parts, often twice; processes that believe that they lead attach
them, or withdraw them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fencepost.ledger.roles.interface import Event
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.log.chain import Batch, Position, bytes_of, chain_of, seen_fields
from fencepost.log.roles.attacher import Attacher, PendingRead
from fencepost.log.rules import Attaching, never_attached, takes_update
from fencepost.log.simulation.environment import LOG, LogEnvironment, Process


@dataclass
class Written:
    """A batch: its entries, and the ledgers of each attempt to write it. ``is_acknowledged``: a writer knows that it is
    in the log.
    """

    batch: Batch
    entries: list[str]
    attempts: list[tuple[int, ...]] = field(default_factory=list)
    is_acknowledged: bool = False


@dataclass
class PendingLedger:
    """The metadata service's record of a batch's ledger, until the ledger is in the log or deleted."""

    batch: Batch
    is_withdrawn: bool = False


class AttachingNode(Process):
    """A process that attaches an attempt at a batch. Its answers come late, and stop when it is killed."""

    def __init__(self, batches: Batches, name: str, written: Written, ledgers: tuple[int, ...]) -> None:
        super().__init__(batches.world, name)
        self.batches = batches
        self.written = written
        self.role = Attacher(written.batch, ledgers, self.world.protections, traces=self.world.trace.is_read)

    def begin(self) -> None:
        """The process is elected, or believes so."""
        world = self.world
        for name in self.written.entries:
            world.appends.setdefault(name, {*world.acknowledged})
        for effect in self.role.begin():
            world.carry_out(self, effect)

    def receive(self, event: Event) -> None:
        """See :class:`.Process`."""
        for effect in self.role.receive(event):
            self.world.carry_out(self, effect)
        if self.role.outcome is not None:
            self.works = False
            self.ended(self.role.outcome)

    def ended(self, outcome: Attaching) -> None:
        """The role is over: acknowledge the batch if it is in the log, and delete leftover ledgers."""
        world, written = self.world, self.written
        world.happened.add(outcome)
        self.batches.resign(self.name)
        if outcome in (Attaching.ATTACH, Attaching.THERE):
            written.is_acknowledged = True
            self.batches.delete_superseded(self.name, written.batch)
        if self.role.is_in_log:
            names = iter(written.entries)
            for ledger in self.role.ledgers:
                for entry, _ in enumerate(world.ledgers[ledger].entries):
                    world.acknowledged[next(names)] = Position(ledger, entry)


class Withdrawal:
    """A process that withdraws an attempt at a batch. It may be killed between any two steps."""

    def __init__(self, batches: Batches, name: str, batch: Batch) -> None:
        world = self.world = batches.world
        self.batches = batches
        self.name = name
        world.trace.started(name, "client")
        self.ledgers = [ledger for ledger, pending in batches.pending_ledgers.items() if pending.batch == batch]
        self.steps = self._steps()

    def go_on(self) -> None:
        """Take the next step, unless the process is killed."""
        world = self.world
        if (world.is_calm or world.rng.random() >= world.loss / 2) and next(self.steps, False):
            world.later(self.go_on)

    def _steps(self) -> Iterator[bool]:
        world, pending_ledgers = self.world, self.batches.pending_ledgers
        for ledger in self.ledgers:
            if ledger in pending_ledgers:
                pending_ledgers[ledger].is_withdrawn = True
            yield True
        self._trace("withdraw_batch", ledgers=self.ledgers)
        while True:
            chain, version = chain_of(bytes_of(world.chain)), world.version
            yield True
            if takes_update(version, world.version, world.protections):
                world.replace(chain, self.name)
                break
        made = world.version
        yield True
        self._trace("delete_withdrawn_batch", **seen_fields(chain, version), ledgers=self.ledgers, made=made)
        for ledger in self.ledgers:
            self.batches.drop(ledger, is_in_log=chain.index(ledger) is not None)
            yield True

    def _trace(self, action: str, **fields: object) -> None:
        self.batches.trace(self.name, action, **fields)


class Batches:
    """The batches of a world: their two writers, what was written, and the pending ledgers."""

    def __init__(self, world: LogEnvironment) -> None:
        self.world = world
        self.written: dict[str, list[Written]] = {"q0": [], "q1": []}
        self.pending_ledgers: dict[int, PendingLedger] = {}
        self.nodes: list[AttachingNode] = []
        self.processes = 0

    def disturb(self) -> None:
        """Disturb a batch: write it, perhaps twice, have one or two processes attach it, withdraw it, or kill one of
        them.
        """
        rng = self.world.rng
        batches = self.written[rng.choice([*self.written])]
        chance = rng.random()
        running = [node for node in self.nodes if node.works]
        if chance < 0.2 and running:
            node = rng.choice(running)
            if rng.random() < 0.5:
                node.stopped_until = self.world.now + rng.randint(0, 500_000)
            else:
                node.works = False
                self.resign(node.name)
        elif chance < 0.4 and batches and not batches[-1].is_acknowledged:
            withdrawal = Withdrawal(self, self._name(), batches[-1].batch)
            self.world.after(rng.randint(0, 20_000), withdrawal.go_on)
            for _ in range(rng.choice((0, 1, 2))):  # a process that does not know the batch
                self.attach(batches[-1], rng.choice(batches[-1].attempts))
        elif chance < 0.6 and batches:
            written = rng.choice(batches[-2:])
            self.attach(written, rng.choice(written.attempts))
        else:
            written = self.write(batches)
            for _ in range(rng.choice((0, 1, 2))):
                self.attach(written, written.attempts[-1])

    def write(self, batches: list[Written]) -> Written:
        """Write the last batch again, or the next one once a writer knows that the last one is in the log."""
        world, rng = self.world, self.world.rng
        if not batches or (batches[-1].is_acknowledged and rng.random() < 0.7):
            writer = next(name for name, some in self.written.items() if some is batches)
            number = len(batches)
            batches.append(
                Written(Batch(writer, number), [f"{writer}.{number}.{place}" for place in range(rng.randint(2, 5))])
            )
        written = batches[-1]
        cuts = sorted(rng.randint(0, len(written.entries)) for _ in range(rng.randint(1, 2)))
        ledgers = []
        for start, stop in zip([0, *cuts], [*cuts, len(written.entries)], strict=True):
            ledger = world.new_ledger(written.batch.writer)
            ledger.entries = written.entries[start:stop]
            ledger.committed = len(ledger.entries)
            ledger.last_entry = ledger.committed - 1
            ledger.status, ledger.takes_adds = LedgerStatus.CLOSED, False
            self.pending_ledgers[ledger.number] = PendingLedger(written.batch)
            ledgers.append(ledger.number)
        written.attempts.append(tuple(ledgers))
        return written

    def attach(self, written: Written, ledgers: tuple[int, ...]) -> None:
        """Have a process attach an attempt some time from now. Usually it is elected."""
        node = AttachingNode(self, self._name(), written, ledgers)
        self.nodes.append(node)
        if self.world.rng.random() < 0.7:
            self.world.elect(node.name)
        self.world.after(self.world.rng.randint(0, 20_000), node.begin)

    def _name(self) -> str:
        self.processes += 1
        return f"b{self.processes}"

    def resign(self, name: str) -> None:
        """A process that attached a batch has ended: elect a writer."""
        world = self.world
        if world.elected == name and not world.is_calm:
            world.elect(world.rng.choice(world.writers()))

    def pending(self, txn: int, ledgers: tuple[int, ...]) -> PendingRead:
        """Return whether all those ledgers are pending, with none withdrawn."""
        records = [self.pending_ledgers.get(ledger) for ledger in ledgers]
        return PendingRead(
            txn, all(each is not None and not each.is_withdrawn for each in records), self.world.now // 1000
        )

    def delete_superseded(self, name: str, batch: Batch) -> None:
        """Delete, a while later, ledgers of the writer's batches that are not in the log."""
        world = self.world
        chain, version = chain_of(bytes_of(world.chain)), world.version
        batches = [pending.batch for pending in self.pending_ledgers.values()]
        for number in sorted({each.number for each in batches if each.writer == batch.writer}):
            each = Batch(batch.writer, number)
            ledgers = [ledger for ledger, pending in self.pending_ledgers.items() if pending.batch == each]
            superseded = [ledger for ledger in ledgers if never_attached(chain, each, ledger)]
            if superseded:
                self.trace(
                    name,
                    "delete_superseded_batch",
                    **seen_fields(chain, version),
                    ledgers=superseded,
                    writer=each.writer,
                    number=number,
                )
            for ledger in ledgers:
                is_in_log = chain.index(ledger) is not None
                if is_in_log or ledger in superseded:
                    world.later(self.drop, ledger, is_in_log)

    def drop(self, ledger: int, is_in_log: bool) -> None:
        """Delete the record of a ledger, and the ledger if it is not in the log."""
        self.pending_ledgers.pop(ledger, None)
        if not is_in_log:
            self.world.delete(ledger)

    def trace(self, name: str, action: str, **fields: object) -> None:
        """Trace a step of a process on the log."""
        self.world.trace.node_did(name, action, fields, LOG)

    def broken(self, names: list[str]) -> str:
        """The fault of a batch, given all entries of the log in order; empty if there is none."""
        indices = {name: place for place, name in enumerate(names)}
        for written in (each for some in self.written.values() for each in some):
            there = [indices[name] for name in written.entries if name in indices]
            if there and there != [*range(there[0], there[0] + len(written.entries))]:
                return f"batch {written.batch.number} of {written.batch.writer} is not whole"
            if written.is_acknowledged and not there:
                return f"batch {written.batch.number} of {written.batch.writer} is said to be in the log, and is not"
        return ""
