"""Many runs of a store, of one profile of faults: see :mod:`.seeds`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fencepost.store.rules.protections import ALL, Protections
from fencepost.store.sim import seeds
from fencepost.store.sim.case import DEFAULT, drawn
from fencepost.store.sim.cluster import Outcome
from fencepost.store.sim.seeds import Run
from fencepost.store.sim.trace import SimTrace
from fencepost.store.sim.workload import simulate


@dataclass(frozen=True)
class Campaign(seeds.Campaign[Outcome]):
    """The seeds of a profile, and what they are held to: everything, if there are no ``promises``."""

    protections: Protections = ALL
    profile: str = DEFAULT
    promises: tuple[str, ...] = ()
    counted: ClassVar[tuple[str, ...]] = ("events",)

    @property
    def name(self) -> str:
        """See :class:`.seeds.Campaign`."""
        return self.profile

    def simulated(self, seed: int, trace: SimTrace | None) -> Run[Outcome]:
        """See :class:`.seeds.Campaign`."""
        outcome = simulate(drawn(seed, self.profile, self.protections, self.promises), trace=trace)
        broken = ("", "") if outcome.violation is None else (outcome.violation.promise, outcome.violation.what)
        return Run(seed, outcome.trace_hash, outcome.time, {"events": outcome.events}, *broken, outcome)
