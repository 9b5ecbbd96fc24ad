"""All that a simulated host needs besides its disk: the case, the time, the judge, the story and the trace of its
steps, and the way to other hosts.
"""

from __future__ import annotations

from typing import Protocol

from fencepost.quorum.log import EMPTY_SNAPSHOT
from fencepost.quorum.messages import Request
from fencepost.quorum.roles.interface import Event
from fencepost.quorum.rules import Protections
from fencepost.quorum.sim.case import Case
from fencepost.quorum.sim.disk import SimDisk
from fencepost.quorum.sim.judge import Judge
from fencepost.quorum.sim.story import Tell
from fencepost.schedule import Schedule
from fencepost.store.sim.trace import SimTrace


class Sender(Protocol):
    """A host that sends requests. ``starts`` counts how often it was started."""

    endpoint: str
    alive: bool
    starts: int

    def deliver(self, event: Event) -> None: ...
    def unreachable(self, endpoint: str) -> None: ...


class Environment:
    """The surroundings of the hosts of a run. :class:`fencepost.quorum.sim.cluster.Cluster` carries messages and hears
    of records that are committed.
    """

    def __init__(self, case: Case, protections: Protections, tell: Tell | None, trace: SimTrace | None) -> None:
        self.case = case
        self.tell = tell
        self.trace = trace
        self.protections = protections
        self.schedule = Schedule()
        self.judge = Judge()
        self.events = self.requests = 0
        self.slow_syncs = case.slow_syncs
        self.endpoints = tuple(f"h{number}:1" for number in range(1, case.hosts + 1))
        self._directories = 0

    def empty_disk(self) -> SimDisk:
        """A disk with a directory of its own, and nothing in it."""
        self._directories += 1
        return SimDisk(f"d{self._directories}", EMPTY_SNAPSHOT)

    def happened(self, where: str, what: str) -> None:
        """Tell of a step, if somebody listens."""
        if self.tell is not None:
            self.tell(self.schedule.now, where, what)

    def send(self, source: Sender, endpoint: str, request: Request) -> None:
        """Send a request from a host to another, which answers it or not."""
        raise NotImplementedError

    def acknowledged(self, record: bytes, end_offset: int) -> None:
        """A client hears that its record is committed."""
        raise NotImplementedError
