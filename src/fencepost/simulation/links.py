"""The ways between simulated processes: how long what is sent takes, and which of them are clogged."""

from __future__ import annotations

from random import Random

from fencepost.simulation.schedule import Schedule


class Links:
    """Ways between processes, known by their names. ``slow`` is the share of what is sent that takes long."""

    def __init__(self, schedule: Schedule, random: Random, slow: float) -> None:
        self.schedule = schedule
        self.random = random.random
        self.slow = slow
        self.clogged: dict[tuple[str, str], int] = {}

    def clog(self, source: str, dest: str, until: int) -> None:
        """Nothing that is sent from ``source`` to ``dest`` arrives before a time."""
        self.clogged[source, dest] = max(until, self.clogged.get((source, dest), 0))

    def heal(self) -> None:
        """From now on all ways are fast and free."""
        self.clogged.clear()
        self.slow = 0.0

    def arrival(self, source: str, dest: str, not_before: int) -> int:
        """When something that is sent now arrives."""
        chance = self.random()
        delay = 50 + int(chance * 400)
        if self.slow and self.random() < self.slow:
            delay += int(self.random() * 60_000 * chance)
        arrives = self.schedule.now + delay
        if self.clogged:
            arrives = max(arrives, self.clogged.get((source, dest), 0))
        return max(arrives, not_before)
