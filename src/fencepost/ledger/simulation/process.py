"""The process of a simulated bookie's storage: the work that threads do elsewhere, on virtual time."""

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
"""Microseconds of a run that are a second to a storage, whose times are made for large disks."""

TURN = 50
"""Microseconds after which a worker looks again whether it is its turn."""


class SimProcess:
    """See :class:`fencepost.ledger.disk.workers.Process`. ``slow()`` is how many times longer the disk takes than it
    should, and ``crashed()`` is called where the process is gone in the middle of a use of the disk.
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
        """Who waits for each lock, by its identity: the first of them is next, and nobody is ahead of it for ever."""

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
        """See :class:`.Process`. What is not a failure of the disk is one of the simulator, or of what it runs."""
        self.workers = [worker for worker in self.workers if not worker.has_ended]
        worker = SimWorker(self, name, work)
        self.workers.append(worker)
        return worker

    def disk_time(self, name: str, use: Disk) -> int:
        """How long a worker's use of the disk takes, in microseconds."""
        if name == JOURNAL and use is Disk.WRITE:
            return int(self.random() * 50)
        longest = 4_000 if use is Disk.SYNC else 2_000
        return (100 + int(self.random() * (900 if name == JOURNAL else longest))) * self.slow()


class SimWorker:
    """Some work that is under way."""

    def __init__(self, process: SimProcess, name: str, work: Work[Any]) -> None:
        self.process = process
        self.name = name
        self.work = work
        self.has_ended = False
        self._pause = 0
        """The number of the pause that it is in: nobody wakes it from an earlier one."""
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
        """See :class:`.Worker`. Nobody waits for one."""
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
        except (StopIteration, SystemFailure):  # the storage has said that it failed
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
