"""A world from beginning to end, and campaigns of one world per seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from fencepost.language.values import Record
from fencepost.ledger.client.loops import LOOPS
from fencepost.ledger.simulation.judge import PROMISES as OF_LEDGERS
from fencepost.ledger.simulation.judge import Violation
from fencepost.log.simulation.environment import Broken
from fencepost.quorum.simulation.judge import Violation as QuorumViolation
from fencepost.simulation import seeds
from fencepost.simulation.interposed import interposed
from fencepost.simulation.schedule import unlogged
from fencepost.simulation.trace import SimTrace
from fencepost.world.case import DEADLINE, Case, drawn
from fencepost.world.environment import Report, Surroundings
from fencepost.world.faults import Faults
from fencepost.world.process import Process
from fencepost.world.programs import Program, Programs

LIMIT = 3_000_000
"""Events after which a run is aborted as a livelock."""


NOTHING_MORE: Mapping[str, Program] = MappingProxyType({})
"""No further programs."""


class NoProtections(Record):
    """Nothing can be switched off in a world: its programs have their protections built in."""


NONE = NoProtections()

PROMISES = {
    **{name: f"of a ledger: {what}" for name, what in OF_LEDGERS.items()},
    "committed": "a client of the metadata service sees only committed changes",
    "once": "an entry is in a log once",
    "denied": "an entry that was reported as not in a log is not in it",
    "no loss": "an acknowledged entry is there, at its position",
    "order": "acknowledged entries of a ledger or a log are in the order of their appends",
    "readers": "the entries that a reader of a log received are in the log, in this order",
    "sanity": "no process raises an unexpected error",
    "liveness": "when all faults are over, every program ends, everything can be closed and read, logs can be written,"
    " and nothing is left on bookies that are gone",
}
"""The promises, besides those of quorums."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run. ``promise``: the broken promise, empty if none; ``what``: how it was broken."""

    case: Case
    promise: str
    what: str
    events: int
    time: int
    hash: str
    ledgers: int
    entries: int
    appends: int
    epochs: int


class World(Surroundings):
    """All processes of a run."""

    def __init__(
        self,
        case: Case,
        report: Report | None = None,
        trace: SimTrace | None = None,
        programs: Mapping[str, Program] = NOTHING_MORE,
    ) -> None:
        super().__init__(case, report, trace)
        self.programs = Programs(self)
        self.operator = Process(self, "operator", self.programs.initialise)
        self.users = self._users()
        self.users += (Process(self, name, self.programs.client(name, does)) for name, does in programs.items())
        self.replicators = self._replicators()
        self.audit = Process(self, "audit", self.programs.audit)

    def _users(self) -> list[Process]:
        case, programs = self.plan, self.programs
        found = {f"owner{each}": programs.client(f"owner{each}", programs.own) for each in range(case.owners)}
        found |= {f"heir{each}": programs.client(f"heir{each}", programs.recover) for each in range(case.heirs)}
        found |= {
            f"follower{each}": programs.client(f"follower{each}", programs.follow) for each in range(case.followers)
        }
        for history in self.histories:
            for each in range(case.writers):
                name = f"{history.name}w{each}"
                found[name] = programs.client(name, programs.write_log(name, history))
            for each in range(case.readers):
                name = f"{history.name}r{each}"
                found[name] = programs.client(name, programs.read_log(name, history))
        return [Process(self, name, program) for name, program in found.items()]

    def _replicators(self) -> list[Process]:
        names = [f"replicator{each}" for each in range(self.plan.replicators)]
        return [Process(self, name, self.programs.replicate(name)) for name in names]

    # -- the run -------------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """End all faults, and repair everything except what is gone forever."""
        self.has_healed = True
        self.happened("network", "heals: nothing goes wrong from now on")
        self.streams.heal()
        self.quorum.network.heal()
        self.quorum.slow_syncs = 0.0
        for member in self.quorum.members:
            member.disk.heal()
            if not member.alive:
                member.start()
        for bookie in self.bookies.processes.values():
            bookie.slow = 1
            bookie.disk.heal()
            self.start_bookie(bookie.name)
        for process in self.processes:
            process.start()
        self.schedule.after(100_000, self.audit.start)

    def run(self) -> Outcome:
        """Run to the end, or to the first broken promise."""
        promise = what = ""
        random = self.restarts
        for bookie in self.bookies.processes.values():
            self.schedule.at(int(random() * 20_000), bookie.start)
        for member in self.quorum.members:
            self.schedule.at(int(random() * 20_000), member.start)
        self.schedule.at(30_000, self.operator.start)
        Faults(self)
        self.schedule.at(self.plan.heal, self._heal)
        try:
            while not self.audit.is_done:
                self.schedule.step()
                self._look()
            self.quorum.judge.at_the_end()
        except Violation as violation:
            promise, what = violation.promise, violation.what
        except QuorumViolation as violation:
            promise, what = violation.promise, str(violation).removeprefix(f"{violation.promise}: ")
        except Broken as broken:
            promise, what = broken.promise, broken.what
        entries = sum(history.acknowledged + 1 for history in self.judge.ledgers.values())
        appends = sum(len(history.acknowledged) for history in self.histories)
        return Outcome(
            self.plan,
            promise,
            what,
            self.events,
            self.schedule.now,
            self._hash.hexdigest(),
            len(self.judge.ledgers),
            entries,
            appends,
            len(self.quorum.judge.leaders),
        )

    def _look(self) -> None:
        """Raise if anything is wrong."""
        error = self.judge.found or self.error
        if error is not None:
            raise error
        if self.schedule.now > DEADLINE or self.events > LIMIT:
            after = f"after {self.events:,} events and {self.schedule.now / 1e6:.1f} s of virtual time"
            raise Violation("liveness", f"{after} not everything is closed, read and replicated")


def simulate(
    case: Case | int,
    report: Report | None = None,
    trace: SimTrace | None = None,
    programs: Mapping[str, Program] = NOTHING_MORE,
) -> Outcome:
    """Run a case, or that of a seed, to its end. The same case has the same outcome in every process, reported and
    traced or not. ``programs``: further clients, by name. An error that is not Fencepost's breaks the promise
    ``sanity``.
    """
    case = drawn(case) if isinstance(case, int) else case
    with unlogged(), (trace or SimTrace()).held() as held:
        world = World(case, report, held, programs)
        with interposed(world.schedule, f"{case.seed} world"), LOOPS.without():
            try:
                return world.run()
            finally:
                for loop in world.streams.loops:
                    loop.abandon()


@dataclass(frozen=True)
class Campaign(seeds.Campaign[Outcome]):
    """A campaign of worlds."""

    protections: NoProtections = NONE
    counted: ClassVar[tuple[str, ...]] = ("events", "ledgers", "entries", "epochs")
    name: ClassVar[str] = "worlds"

    def simulated(self, seed: int, trace: SimTrace | None) -> seeds.Run[Outcome]:
        """See :class:`.seeds.Campaign`."""
        return run_of(simulate(seed, trace=trace))


def run_of(outcome: Outcome) -> seeds.Run[Outcome]:
    """The summary of a run, for a campaign."""
    counts = {name: getattr(outcome, name) for name in Campaign.counted}
    return seeds.Run(outcome.case.seed, outcome.hash, outcome.time, counts, outcome.promise, outcome.what, outcome)
