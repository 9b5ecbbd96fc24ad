"""Links between simulated processes: delays and congestion."""

from __future__ import annotations

from random import Random

from fencepost.simulation.schedule import Schedule


class Links:
    """Links between processes, identified by name. ``slow``: the share of slow messages."""

    def __init__(self, schedule: Schedule, random: Random, slow: float) -> None:
        self.schedule = schedule
        self.random = random.random
        self.slow = slow
        self.clogged: dict[tuple[str, str], int] = {}

    def clog(self, source: str, dest: str, until: int) -> None:
        """Let nothing sent from ``source`` to ``dest`` arrive before a time."""
        self.clogged[source, dest] = max(until, self.clogged.get((source, dest), 0))

    def heal(self) -> None:
        """Make all links fast and free."""
        self.clogged.clear()
        self.slow = 0.0

    def arrival(self, source: str, dest: str, not_before: int) -> int:
        """The arrival time of a message sent now."""
        chance = self.random()
        delay = 50 + int(chance * 400)
        if self.slow and self.random() < self.slow:
            delay += int(self.random() * 60_000 * chance)
        arrives = self.schedule.now + delay
        if self.clogged:
            arrives = max(arrives, self.clogged.get((source, dest), 0))
        return max(arrives, not_before)
