"""Many quorums: see :mod:`fencepost.store.sim.seeds`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

from fencepost.quorum.rules import ALL, Protections
from fencepost.quorum.sim.cluster import Outcome, simulate
from fencepost.store.sim import seeds
from fencepost.store.sim.seeds import Run
from fencepost.store.sim.trace import SimTrace


@dataclass(frozen=True)
class Campaign(seeds.Campaign[Outcome]):
    """The seeds of quorums."""

    protections: Protections = ALL
    counted: ClassVar[tuple[str, ...]] = ("committed", "epochs")
    name: ClassVar[str] = "quorums"

    def simulated(self, seed: int, trace: SimTrace | None) -> Run[Outcome]:
        """See :class:`.seeds.Campaign`."""
        return run_of(simulate(seed, self.protections, trace=trace))

    def packed(self, run: Run[Outcome]) -> bytes:
        """See :class:`.seeds.Campaign`."""
        return run.hash.encode()


def run_of(outcome: Outcome) -> Run[Outcome]:
    """What a campaign keeps of a run."""
    hashed = hashlib.blake2b(repr(outcome).encode(), digest_size=8).hexdigest()
    counts = {"committed": outcome.committed, "epochs": outcome.epochs}
    what = outcome.details.removeprefix(f"{outcome.promise}: ")
    return Run(outcome.case.seed, hashed, outcome.virtual, counts, outcome.promise, what, outcome)
