"""Leaders of one log in a seeded world: stand-in ledgers and metadata, late and lost answers, crashes, pauses and
elections. A campaign runs many such worlds.

Acknowledged entries must be in the log once, at their positions and in order. Entries that are reported as not in the
log must not be. A batch is in it once and whole, or not at all. When the faults are over, the elected writer must be
able to append. :class:`Broken` reports a violation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from fencepost.ledger.roles.interface import Effect, Event, Outcome, SetTimer, TimerFired, Trace
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.log import cursors, rules
from fencepost.log.chain import Chain, Position, bytes_of, chain_of, seen_fields
from fencepost.log.roles import leader as role
from fencepost.log.roles.attacher import PendingRead, ReadPending
from fencepost.log.simulation.batches import Batches
from fencepost.log.simulation.environment import LOG, METADATA, MS, Broken, Ledger, LogEnvironment, Process
from fencepost.log.simulation.judge import judge
from fencepost.simulation import seeds
from fencepost.simulation.trace import SimTrace

OPERATOR = "operator"
END = 3_000 * MS
"""When the faults end."""


PROMISES = {
    "no loss": "What was acknowledged is in the log, at the position that was said.",
    "once": "Nothing is in the log twice.",
    "denied": "What was said not to be in the log is not.",
    "order": "A writer's entries are in the order of its appends, and after all that was acknowledged before them.",
    "answers": "Every append has one answer, and a writer that is asked to end does.",
    "one open": "Of the ledgers of the log only the last one may be open.",
    "batches": "A batch is in the log once and whole, or not at all; if somebody was told that it is there, it is.",
    "seal": "Nothing is appended to a log that is sealed.",
    "readers": "Every reader sees the same entries in the same order, and none that goes away again.",
    "cursors": "What was acknowledged with a cursor is acknowledged, and nothing else.",
    "liveness": "When all faults are over, the writer that is elected gets to append.",
    "sanity": "No role raises an exception.",
}


class Node(Process):
    """A process with a writer, and the state that its driver would keep."""

    world: World

    def __init__(self, world: World, name: str, settings: role.LeaderSettings) -> None:
        super().__init__(world, name)
        self.role = role.Leader(settings, world.protections, traces=world.trace.is_read)
        self.data: list[str] = []
        self.answered: list[bool] = []
        self.behind = 0
        """When the latest notice of an election arrives. Notices arrive in order."""
        self.adds: dict[int, int] = {}
        """When the latest adds reach each ledger, and its latest answers arrive. Both arrive in order."""
        self.answers: dict[int, int] = {}

    def receive(self, event: Event) -> None:
        """See :class:`.Process`."""
        world, was_led = self.world, self.role.status
        for effect in self.role.receive(event, world.now):
            world.carry_out(self, effect)
        if was_led is not self.role.status:
            world.seen.add(self.role.status)

    def append(self, number: int) -> None:
        if not self.works or self.world.now < self.stopped_until:
            return
        names = [f"{self.name}-{next(self.world.names)}" for _ in range(number)]
        first = self.role.appended
        self.world.is_refused = False
        before = set(self.world.acknowledged)
        self.world.appends.update(dict.fromkeys(names, before))
        self.data += names
        self.answered += [False] * number
        self.give(role.Append([10] * number))
        if self.world.is_refused:
            del self.data[first:], self.answered[first:]
            self.world.failed.update(dict.fromkeys(names, True))

    def answer(self, first: int, number: int) -> list[str]:
        for each in range(first, first + number):
            if self.answered[each]:
                raise Broken("answers", f"{self.data[each]} is answered twice")
            self.answered[each] = True
        return self.data[first : first + number]


class Reader:
    """Follows the log from ledger to ledger, with the chain that it has read. It reads a part at each wake-up."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chain = Chain()
        self.at: Position | None = None
        self.found: list[tuple[Position, str]] = []

    def wake(self) -> None:
        """Read the chain, and later some entries of the current ledger."""
        chain = self.world.chain
        self.world.later(self.read, chain)

    def read(self, chain: Chain) -> None:
        """Read some entries, and go to the next ledger at the end of one."""
        world = self.world
        if chain.length >= self.chain.length and chain.trimmed >= self.chain.trimmed:  # otherwise an older read
            self.chain = chain
        if self.at is None or self.chain.index(self.at.ledger) is None:  # its ledger is trimmed
            first = rules.first_of(self.chain)
            if not isinstance(first, int):
                return
            self.at = Position(first, 0)
        ledger = world.ledgers[self.at.ledger]
        for _ in range(world.rng.randint(1, 10)):
            if self.at.entry >= len(ledger.end()):
                break
            self.found.append((self.at, ledger.entries[self.at.entry]))
            self.at = Position(self.at.ledger, self.at.entry + 1)
        if rules.is_through(self.at.entry, ledger.last_entry):
            onward = rules.follows(self.chain, self.at.ledger)
            if isinstance(onward, int):
                self.at = Position(onward, 0)

    def judge(self, log: list[tuple[int, int, str]]) -> None:
        """Check that the entries it has read are in the log, in this order."""
        places = {Position(ledger, entry): (place, name) for place, (ledger, entry, name) in enumerate(log)}
        last = -1
        for position, name in self.found:
            place, there = places.get(position, (-1, "nothing"))
            if there != name:
                raise Broken("readers", f"a reader has found {name} at {position}, and {there} is there")
            if place <= last:
                raise Broken("readers", f"a reader has found {name} at {position} after what comes behind it")
            last = place


class Consumer(Reader):
    """A reader that shares a cursor with another. It acknowledges what it reads, one by one or up to an entry."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.acknowledged: set[Position] = set()

    def read(self, chain: Chain) -> None:
        """Read, and acknowledge some of it."""
        super().read(chain)
        if self.found:
            position, is_all = self.world.rng.choice(self.found)[0], self.world.rng.random() < 0.2
            self.acknowledge(position, is_all)

    def acknowledge(self, position: Position, is_all: bool) -> None:
        """Read the cursor, and later write it on condition of its version. Retry if another process has written it, or
        if no answer comes.
        """
        world, chain = self.world, self.chain
        known, version = world.cursor

        def write() -> None:
            if world.cursor[1] != version:
                self.acknowledge(position, is_all)
                return
            change = cursors.with_all_to if is_all else cursors.with_one
            world.cursor = cursors.acknowledged_of(cursors.bytes_of(change(known, position, chain))), version + 1
            if not world.is_calm and world.rng.random() < world.loss:  # done, but the answer is lost
                self.acknowledge(position, is_all)
                return
            self.acknowledged.add(position)
            if is_all:
                world.acknowledged_up_to.append(position)

        world.later(write)


class World(LogEnvironment):
    """A whole simulated run. ``run`` raises :class:`Broken`."""

    def __init__(self, seed: int, protections: rules.Protections = rules.ALL, trace: SimTrace | None = None) -> None:
        super().__init__(seed, protections, trace)
        self.trace.started(OPERATOR, "client")
        self.trace.started(METADATA, "metadata")
        self.names = count()
        self.nodes: dict[str, Node] = {}
        self.failed: dict[str, bool] = {}
        self.acknowledged_up_to: list[Position] = []
        """The entries up to which consumers have acknowledged everything."""
        self.is_refused = False
        self.readers = [Reader(self) for _ in range(2)]
        self.cursor = (cursors.Acknowledged(Position(0, 0)), 0)
        self.consumers = [Consumer(self) for _ in range(2)]
        self.batches = Batches(self)
        self.seen: set[rules.Status] = set()
        rng = self.rng
        self.settings = role.LeaderSettings(
            rules.Limits(rng.choice((0, 2, 5)), rng.choice((0, 40)), rng.choice((0, 200 * MS))),
            most_appends=rng.choice((3, 20)),
            pause=10 * MS,
        )
        self.slowness = rng.choice((2, 20, 200)) * MS
        self.loss = rng.choice((0.0, 0.05, 0.3))
        self.trouble = rng.choice((0.0, 0.02, 0.2))
        self.batching = rng.choice((0.0, 0.02, 0.1))
        """How often a batch is disturbed."""

    # -- effects -------------------------------------------------------------------------------------------------------

    def carry_out(self, node: Process, effect: Effect) -> None:
        """See :class:`.Environment`."""
        match effect:
            case SetTimer():
                self.after(effect.delay + self.rng.randint(0, effect.jitter), node.give, TimerFired(effect.key))
            case Trace():
                self.trace.node_did(node.name, effect.action, effect.fields, LOG)
            case role.ReadChain():
                self.ask(node, role.ChainRead(effect.txn, Outcome.UNKNOWN), lambda: self.read_chain(effect))
            case role.WriteChain():
                self.ask(node, role.ChainWritten(effect.txn, Outcome.UNKNOWN), lambda: self.update(node, effect))
            case ReadPending():
                self.ask(node, PendingRead(effect.txn, None), lambda: self.batches.pending(effect.txn, effect.ledgers))
            case role.CreateLedger():
                self.ask(node, role.LedgerCreated(effect.txn, None), lambda: self.create(node, effect))
            case role.CloseLedger(is_own=True):
                self.ask(node, role.LedgerClosed(effect.txn, role.Closing.FAILED), lambda: self.close_own(effect))
            case role.CloseLedger():
                unanswered = role.LedgerClosed(effect.txn, role.Closing.FAILED)
                self.ask(node, unanswered, lambda: self.fence(effect.ledger), lambda: self.recover(effect))
            case role.Write():
                assert isinstance(node, Node)
                self.write(node, effect)
            case role.Acknowledged():
                assert isinstance(node, Node)
                for place, name in enumerate(node.answer(effect.first, effect.count)):
                    self.acknowledged[name] = Position(effect.position.ledger, effect.position.entry + place)
            case role.Failed():
                assert isinstance(node, Node)
                self.happened.add((effect.reason, effect.is_known))
                self.failed.update(dict.fromkeys(node.answer(effect.first, effect.count), effect.is_known))
            case role.Refused():
                self.happened.add((effect.reason, True))
                self.is_refused = True
            case role.SteppedDown():
                self.happened.add(effect.reason)
            case role.DeleteLedger():
                self.happened.add(role.DeleteLedger)
                self.delete(effect.ledger)
            case _:
                assert isinstance(effect, (role.Leads, role.Abandon, role.Waits)), effect

    def ask(self, node: Process, unanswered: Event, *steps: Callable[[], Event | None]) -> None:
        """Carry out a request later, in one or two steps. The last step gives an answer, which arrives later still.

        The request or the answer may get lost, or the first step may happen after the request was given up.
        """
        fate = 1.0 if self.is_calm else self.rng.random()
        if fate < self.loss:
            self.later(node.give, unanswered)
            if fate < self.loss / 3:
                return
            if fate < self.loss * 2 / 3:
                self.after(5 * self.delay(), steps[0])
                return

        def take(step: Callable[[], Event | None], *others: Callable[[], Event | None]) -> None:
            answer = step()
            if others:
                self.later(take, *others)
            elif fate >= self.loss:
                self.later(node.give, answer)

        self.later(take, *steps)

    def read_chain(self, effect: role.ReadChain) -> role.ChainRead:
        return role.ChainRead(effect.txn, Outcome.OK, chain_of(bytes_of(self.chain)), self.version)

    def update(self, node: Process, effect: role.WriteChain) -> role.ChainWritten:
        if not rules.takes_update(effect.version, self.version, self.protections):
            self.happened.add(Outcome.BAD_VERSION)
            return role.ChainWritten(effect.txn, Outcome.BAD_VERSION)
        if self.chain.sealed and effect.chain.links != self.chain.links:
            raise Broken("seal", "a ledger is appended to a log that is sealed")
        self.replace(effect.chain, node.name)
        gone = [number for number in self.all_ledgers() if self.ledgers[number].is_deleted]
        if gone:
            raise Broken("no loss", f"ledger {gone[0]} was deleted, and is in the log")
        if any(self.ledgers[number].status is not LedgerStatus.CLOSED for number in self.all_ledgers()[:-1]):
            raise Broken("one open", "a ledger follows one that is open")
        return role.ChainWritten(effect.txn, Outcome.OK, self.version)

    def create(self, node: Process, effect: role.CreateLedger) -> role.LedgerCreated:
        ledger = self.new_ledger(node.name)
        return role.LedgerCreated(effect.txn, ledger.number, ledger.created)

    def close_own(self, effect: role.CloseLedger) -> role.LedgerClosed:
        ledger = self.ledgers[effect.ledger]
        if ledger.status is not LedgerStatus.OPEN:
            is_reported = ledger.last_entry is not None and self.rng.random() < 0.5
            return role.LedgerClosed(effect.txn, role.Closing.BY_ANOTHER, ledger.last_entry if is_reported else None)
        ledger.takes_adds = False
        ledger.close(self.rng)
        return role.LedgerClosed(effect.txn, role.Closing.CLOSED, ledger.last_entry)

    def fence(self, number: int) -> None:
        ledger = self.ledgers[number]
        if ledger.status is LedgerStatus.OPEN:
            ledger.status = LedgerStatus.IN_RECOVERY
            ledger.takes_adds = not rules.fences(self.protections)

    def recover(self, effect: role.CloseLedger) -> role.LedgerClosed:
        ledger = self.ledgers[effect.ledger]
        if ledger.status is not LedgerStatus.CLOSED:
            ledger.close(self.rng)
        return role.LedgerClosed(effect.txn, role.Closing.CLOSED, ledger.last_entry)

    def write(self, node: Node, effect: role.Write) -> None:
        ledger = self.ledgers[effect.ledger]
        for number in range(effect.first, effect.first + effect.count):
            time = node.adds[ledger.number] = max(self.now + self.delay(), node.adds.get(ledger.number, 0))
            self.at(time, self.add, node, ledger, node.data[number])

    def add(self, node: Node, ledger: Ledger, name: str) -> None:
        if not self.is_calm and self.rng.random() < self.trouble:
            ledger.works = False
        if not ledger.takes_adds:
            self.refuse(node, ledger)
        elif not ledger.works:
            self.later(node.give, role.WriteFailed(ledger.number, rules.Failure.TROUBLE))
        else:
            ledger.entries.append(name)
            self.later(self.commit, node, ledger, len(ledger.entries) - 1)

    def commit(self, node: Node, ledger: Ledger, entry: int) -> None:
        """Give an ack quorum the entry and all before it, unless the ledger was fenced before."""
        if not ledger.takes_adds:
            self.refuse(node, ledger)
            return
        ledger.committed = max(ledger.committed, entry + 1)
        time = node.answers[ledger.number] = max(self.now + self.delay(), node.answers.get(ledger.number, 0))
        self.at(time, node.give, role.Confirmed(ledger.number, entry))

    def refuse(self, node: Node, ledger: Ledger) -> None:
        """Report that the ledger belongs to another, perhaps after the driver stops waiting."""
        waits = 0 if self.is_calm or self.rng.random() < 0.8 else 500 * MS
        failure = rules.Failure.TROUBLE if waits else rules.Failure.FENCED
        self.after(waits + self.delay(), node.give, role.WriteFailed(ledger.number, failure))

    # -- running -------------------------------------------------------------------------------------------------------

    def all_ledgers(self) -> list[int]:
        """The ledgers of the log, trimmed ones included."""
        return [*self.trimmed, *(link.ledger for link in self.chain.links)]

    def start(self) -> Node:
        node = Node(self, f"w{len(self.nodes)}", self.settings)
        self.nodes[node.name] = node
        return node

    def writers(self) -> list[str]:
        """See :class:`.Environment`."""
        return [node.name for node in self.nodes.values() if node.works]

    def elect(self, name: str) -> None:
        """See :class:`.Environment`."""
        if name == self.elected:
            return
        before, self.elected = self.nodes.get(self.elected), name
        if before is not None:
            self.notify(before, role.NotElected())
        if name in self.nodes:  # otherwise it attaches a batch
            self.notify(self.nodes[name], role.Elected())

    def expire(self) -> None:
        """End the session of the elected writer unexpectedly. It is elected again with a new session."""
        node = self.nodes.get(self.elected)
        if node is not None:
            self.notify(node, role.NotElected())
            self.notify(node, role.Elected())

    def notify(self, node: Node, event: Event) -> None:
        late = self.rng.random() < 0.3 and not self.is_calm
        delay = self.rng.randint(0, 400 * MS) if late else self.delay()
        node.behind = max(node.behind, self.now + delay)
        self.at(node.behind, node.give, event)

    def disturb(self) -> None:
        rng = self.rng
        working = [node for node in self.nodes.values() if node.works]
        node = rng.choice(working)
        chance = rng.random()
        if chance < 0.15:
            self.elect(node.name)
        elif chance < 0.16:
            self.expire()
        elif chance < 0.19:
            node.works = False
            if len(working) < 4:
                self.elect(self.start().name)
        elif chance < 0.26:
            node.stopped_until = self.now + rng.randint(0, 500 * MS)
        elif chance < 0.32:
            node.give(role.RollOver())
        elif chance < 0.36:
            self.trim()
        elif chance < 0.46:
            rng.choice(self.readers).wake()
        elif chance < 0.54:
            rng.choice(self.consumers).wake()
        elif chance < 0.545 and len(working) > 1:
            node.give(role.Close())
        elif chance < 0.549:
            sealer = self.start()
            sealer.give(role.Seal())
            sealer.give(role.Elected())
        elif chance < 0.549 + self.batching:
            self.batches.disturb()
        else:
            node.append(rng.randint(1, 4))

    def trim(self) -> None:
        most = len(self.chain.links) - 1
        if most > 0:
            number = self.rng.randint(1, most)
            sent = {**seen_fields(self.chain, self.version), "trims": number}
            self.trace.node_did(OPERATOR, "sends_trim", sent, LOG)
            self.trace.node_did(OPERATOR, "trim", {"version": self.version + 1}, LOG)
            self.trimmed += (link.ledger for link in self.chain.links[:number])
            self.replace(self.chain.without_first(number), OPERATOR)

    def run(self) -> World:
        for _ in range(3):
            self.start()
        self.elect("w0")
        for time in sorted(self.rng.randint(0, END) for _ in range(self.rng.choice((60, 200)))):
            self.go_on(time)
            self.disturb()
        self.go_on(END)
        self.finish()
        self.judge()
        return self

    def finish(self) -> None:
        """The faults are over: the elected writer must be able to append, unless the log is sealed. Then it ends."""
        self.is_calm = True
        for ledger in self.ledgers.values():
            ledger.works = True
        last = self.start()
        self.elect(last.name)
        self.go_on(END + 2_000 * MS)
        last.append(1)  # fails if an old leader has closed its ledger meanwhile
        self.go_on(END + 3_000 * MS)
        last.append(3)
        self.go_on(END + 4_000 * MS)
        is_sealed = last.role.ended is role.Reason.SEALED
        if is_sealed != self.chain.sealed:
            raise Broken(
                "seal",
                f"the log is {'' if self.chain.sealed else 'not '}sealed, and its writer ended {last.role.ended}",
            )
        if not is_sealed and not all(name in self.acknowledged for name in last.data[-3:]):
            raise Broken("liveness", f"{last.name} is elected and cannot append: {last.role.status}")
        if not is_sealed:
            last.give(role.Close() if self.rng.random() < 0.5 else role.Seal())
        for node in self.nodes.values():
            node.give(role.Close())
        self.go_on(END + 6_000 * MS)
        for node in self.nodes.values():
            if node.works and (node.role.ended is None or not all(node.answered)):
                raise Broken("answers", f"{node.name} was asked to end and has not, in {node.role.status}")
        if any(self.ledgers[number].status is not LedgerStatus.CLOSED for number in self.all_ledgers()):
            raise Broken("one open", "nobody writes any more, and a ledger of the log is open")

    def judge(self) -> None:
        log = [
            (number, entry, name)
            for number in self.all_ledgers()
            for entry, name in enumerate(self.ledgers[number].end())
        ]
        names = [name for *_, name in log]
        judge(log, self.acknowledged, self.failed, self.appends, self.nodes)
        what = self.batches.broken(names)
        if what:
            raise Broken("batches", what)
        for reader in (*self.readers, *self.consumers):
            reader.judge(log)
        self.judge_cursor(log)
        self.read(names)

    def judge_cursor(self, log: list[tuple[int, int, str]]) -> None:
        """The cursor still has every acknowledgement, except for trimmed entries."""
        places = {Position(ledger, entry): place for place, (ledger, entry, _) in enumerate(log)}
        known = cursors.in_chain(self.cursor[0], self.chain)
        start = self.chain.place(known.before)
        up_to = max((places[position] for position in self.acknowledged_up_to), default=-1)
        one_by_one = {position for consumer in self.consumers for position in consumer.acknowledged}
        for position, place in places.items():
            at = self.chain.place(position)
            if at is None:
                continue  # trimmed
            found = known.has(position) or (start is not None and at < start)
            if found != (position in one_by_one or place <= up_to):
                raise Broken(
                    "cursors",
                    f"{position} is {'' if found else 'not '}acknowledged, and {'nobody has' if found else 'it was'}"
                    " acknowledged",
                )

    def read(self, names: list[str]) -> None:
        """A reader goes from ledger to ledger and reads the whole log."""
        found: list[str] = []
        at = rules.first_of(self.chain)
        skipped = sum(len(self.ledgers[number].end()) for number in self.trimmed)
        while isinstance(at, int):
            ledger = self.ledgers[at]
            found += ledger.end()
            if not rules.is_through(len(ledger.end()), ledger.last_entry):
                break
            at = rules.follows(self.chain, at)
        if found != names[skipped:] or (self.chain.sealed and at is not rules.Onward.END):
            raise Broken("readers", "a reader finds another log")


@dataclass(frozen=True)
class Campaign(seeds.Campaign[None]):
    """A campaign of worlds, one for each seed."""

    protections: rules.Protections = rules.ALL
    counted: ClassVar[tuple[str, ...]] = ("appends",)
    name: ClassVar[str] = "logs"

    def simulated(self, seed: int, trace: SimTrace | None) -> seeds.Run[None]:
        """See :class:`.seeds.Campaign`."""
        return simulated(World(seed, self.protections, trace))


def simulated(world: World) -> seeds.Run[None]:
    """Run a world to its end. A seed gives the same outcome in every process."""
    promise = what = ""
    try:
        world.run()
    except Broken as broken:
        promise, what = broken.promise, broken.what
    except Exception as error:
        promise, what = "sanity", f"{type(error).__name__}: {error}"
    found = (sorted(world.acknowledged.items()), sorted(world.failed.items()), world.chain, world.now, promise)
    hashed = hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest()
    return seeds.Run(world.seed, hashed, world.now, {"appends": len(world.appends)}, promise, what, None)
