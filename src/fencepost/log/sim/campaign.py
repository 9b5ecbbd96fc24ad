"""Many worlds of one log: see :mod:`fencepost.store.sim.seeds`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

from fencepost.log.rules import ALL, Protections
from fencepost.log.sim.environment import Broken
from fencepost.log.sim.world import World
from fencepost.store.sim import seeds
from fencepost.store.sim.seeds import Run
from fencepost.store.sim.trace import SimTrace


@dataclass(frozen=True)
class Campaign(seeds.Campaign[None]):
    """The seeds of worlds."""

    protections: Protections = ALL
    counted: ClassVar[tuple[str, ...]] = ("appends",)
    name: ClassVar[str] = "logs"

    def simulated(self, seed: int, trace: SimTrace | None) -> Run[None]:
        """See :class:`.seeds.Campaign`."""
        return simulated(World(seed, self.protections, trace))


def simulated(world: World) -> Run[None]:
    """Run a world to its end. The same seed has the same outcome in every process."""
    promise = what = ""
    try:
        world.run()
    except Broken as broken:
        promise, what = broken.promise, broken.what
    except Exception as error:
        promise, what = "sanity", f"{type(error).__name__}: {error}"
    found = (sorted(world.acknowledged.items()), sorted(world.failed.items()), world.chain, world.now, promise)
    hashed = hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest()
    return Run(world.seed, hashed, world.now, {"appends": len(world.appends)}, promise, what, None)
