"""A whole cluster on virtual time: bookies, clients, a network and a metadata service, with all randomness from one
seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost.ledger.simulation.bookie import BookieProcess
from fencepost.ledger.simulation.boots import BootingBookie
from fencepost.ledger.simulation.case import DEADLINE, HORIZON, PROFILES, Case
from fencepost.ledger.simulation.environment import StoreEnvironment
from fencepost.ledger.simulation.faults import Faults
from fencepost.ledger.simulation.judge import Violation
from fencepost.ledger.simulation.story import Story
from fencepost.simulation.trace import SimTrace

LIMIT = 100_000
"""Events after which a run is aborted as a livelock."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: the violation, if any; its length in events and virtual microseconds; and the hash of all
    its events.
    """

    case: Case
    violation: Violation | None
    events: int
    time: int
    trace_hash: str


class Cluster(StoreEnvironment):
    """All processes of a run, and what connects them."""

    def __init__(self, case: Case, story: Story | None = None, trace: SimTrace | None = None) -> None:
        super().__init__(case, story, trace)
        self._restarts = case.stream("restarts").random
        kind = BootingBookie if PROFILES[case.profile].repairs else BookieProcess
        self.bookies: dict[str, BookieProcess] = {}
        for number in range(1, case.bookies + 1):
            name = f"b{number}"
            bookie = self.bookies[name] = self.network.servers[name] = kind(name, self, case.stream(name))
            bookie.start()
        self.faults = Faults(self, self.bookies)
        self.schedule.at(HORIZON, self._heal)

    def may_hurt(self, name: str) -> bool:
        """See :class:`.Environment`."""
        return self.faults.may_hurt(self.bookies[name])

    def bookie_gone(self, name: str) -> None:
        """See :class:`.Environment`."""
        bookie = self.bookies[name]
        if self.story is not None:
            self.story.restarted(bookie.name)
        self.schedule.after(1_000 + int(self._restarts() * 20_000), self._unregister, bookie, bookie.starts)
        delay = 1_000 + int(self._restarts() ** 3 * 150_000)
        self.schedule.after(delay if self.schedule.now < HORIZON else 1_000, self._start, bookie)

    def _unregister(self, bookie: BookieProcess, starts: int) -> None:
        if bookie.starts == starts:
            self.metadata.unregister(bookie.name)

    def _start(self, bookie: BookieProcess) -> None:
        bookie.start()
        if not bookie.alive:
            self.metadata.unregister(bookie.name)
            if not bookie.refuses:  # there is no room on its disk yet
                self.schedule.after(20_000, self._start, bookie)

    def is_repaired(self) -> bool:
        """Whether all bookies have finished their repairs."""
        return not any(bookie.is_under_repair for bookie in self.bookies.values())

    # -- a run --------------------------------------------------------------------------------------------------------

    def run(self, finished: Callable[[], bool]) -> Outcome:
        """Run until ``finished()`` is true or a promise is broken."""
        violation = None
        step = self.schedule.step
        try:
            while not finished():
                if not step():
                    raise Violation("liveness", "nothing happens any more, and the ledger is not closed and read")
                if self.events > LIMIT or self.schedule.now > DEADLINE:
                    after = f"after {self.events:,} events and {self.schedule.now / 1e6:.1f} s of virtual time"
                    raise Violation("liveness", f"{after} the ledger is not closed and read")
        except Violation as found:
            if not self.judge.holds_to(found.promise):
                return Outcome(self.case, None, self.events, self.schedule.now, self._hash.hexdigest())
            violation = found
            if self.story is not None:
                self.story.add_line(f"VIOLATED  {found}")
        return Outcome(self.case, violation, self.events, self.schedule.now, self._hash.hexdigest())

    def _heal(self) -> None:
        """End all faults: restart what is down, and make disks and links fast, roomy and reliable."""
        self.happened(self.network_name, "all faults are over")
        self.network.heal()
        self.metadata.heal()
        for bookie in self.bookies.values():
            bookie.slow = 1
            bookie.disk.heal()
            if not bookie.alive:
                self._start(bookie)
