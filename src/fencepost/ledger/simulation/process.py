"""The process of a simulated bookie's storage: runs on virtual time what threads do elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from random import Random
from typing import Any

from fencepost.errors import SystemFailure
from fencepost.ledger.disk.storage import JOURNAL
from fencepost.ledger.disk.workers import WOKEN, Disk, Turn, Work
from fencepost.simulation.disk import PowerLoss
from fencepost.simulation.schedule import Schedule

SECOND = 50_000
"""Microseconds of a run per second of storage time, because the storage's times are meant for large disks."""

TURN = 50
"""Microseconds between a worker's attempts to get a lock."""


class SimProcess:
    """See :class:`fencepost.ledger.disk.workers.Process`. ``slow()`` is the factor by which the disk is slow.
    ``crashed()`` is called when the process dies in the middle of disk use.
    """

    def __init__(
        self, schedule: Schedule, random: Random, marks: Random, slow: Callable[[], int], crashed: Callable[[], None]
    ) -> None:
        self.schedule = schedule
        self.random = random.random
        self.marks = marks
        self.slow = slow
        self.crashed = crashed
        self.is_gone = False
        self.workers: list[SimWorker] = []
        self.turns: dict[int, list[SimWorker]] = {}
        """The workers waiting for each lock, by its identity, in order, so that none starves."""

    @property
    def has_ended(self) -> bool:
        """Whether all work is done."""
        return all(worker.has_ended for worker in self.workers)

    def now(self) -> float:
        """See :class:`.Process`."""
        return self.schedule.now / SECOND

    def draw(self) -> int:
        """See :class:`.Process`."""
        return self.marks.getrandbits(64)

    def hold(self, path: str) -> SimProcess:
        """See :class:`.Process`. There is no other process."""
        return self

    def release(self) -> None:
        """See :class:`.Held`."""

    def begin(self, name: str, work: Work[Any], failed: Callable[[str], None]) -> SimWorker:
        """See :class:`.Process`. Errors other than the disk's are not caught: they are bugs."""
        self.workers = [worker for worker in self.workers if not worker.has_ended]
        worker = SimWorker(self, name, work)
        self.workers.append(worker)
        return worker

    def disk_time(self, name: str, use: Disk) -> int:
        """The microseconds of a worker's disk use."""
        if name == JOURNAL and use is Disk.WRITE:
            return int(self.random() * 50)
        longest = 4_000 if use is Disk.SYNC else 2_000
        return (100 + int(self.random() * (900 if name == JOURNAL else longest))) * self.slow()


class SimWorker:
    """Work in progress."""

    def __init__(self, process: SimProcess, name: str, work: Work[Any]) -> None:
        self.process = process
        self.name = name
        self.work = work
        self.has_ended = False
        self._pause = 0
        """The number of the current wait: wake-ups for earlier ones are ignored."""
        self._is_resting = self._is_woken = False
        process.schedule.after(0, self._go_on, self._pause)

    def wake(self) -> None:
        """See :class:`.Worker`."""
        if self._is_resting:
            self._is_resting = False
            self._after(int(self.process.random() * 200))
        else:
            self._is_woken = True

    def join(self) -> None:
        """See :class:`.Worker`. Not used here."""
        raise NotImplementedError

    def _after(self, delay: int) -> None:
        self.process.schedule.after(delay, self._go_on, self._pause)

    def _go_on(self, pause: int) -> None:
        if pause != self._pause or self.process.is_gone:
            return
        self._pause += 1
        self._is_resting = False
        try:
            self._wait(next(self.work))
        except (StopIteration, SystemFailure):  # the storage has reported its failure
            self.has_ended = True
        except PowerLoss:
            self.process.crashed()

    def _wait(self, pause: float | Disk | Turn) -> None:
        if isinstance(pause, float):
            self._rest(pause)
        elif isinstance(pause, Disk):
            self._after(self.process.disk_time(self.name, pause))
        else:
            self.process.turns.setdefault(id(pause), []).append(self)
            self._wait_for_turn(self._pause, pause)

    def _rest(self, until: float) -> None:
        if self._is_woken:
            self._is_woken = False
            self._after(0)
            return
        self._is_resting = True
        if until != WOKEN:
            schedule = self.process.schedule
            schedule.at(max(schedule.now + 1, ceil(until * SECOND)), self._go_on, self._pause)

    def _wait_for_turn(self, pause: int, turn: Turn) -> None:
        if self.process.is_gone:
            return
        waiting = self.process.turns[id(turn)]
        if waiting[0] is self and turn.acquire(blocking=False):
            waiting.pop(0)
            self._go_on(pause)
        else:
            self.process.schedule.after(TURN, self._wait_for_turn, pause, turn)
