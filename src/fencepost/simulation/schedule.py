"""Virtual time for simulators: a queue of future calls, ordered by time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any


class Schedule:
    """Future calls, each at a time in microseconds. Calls at the same time are made in the order of scheduling."""

    __slots__ = ("_calls", "_count", "now")

    def __init__(self) -> None:
        self.now = 0
        self._calls: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time: int, call: Callable[..., object], *arguments: Any) -> None:
        """Schedule a call at a time that is not past."""
        self._count += 1
        heappush(self._calls, (time, self._count, call, arguments))

    def after(self, delay: int, call: Callable[..., object], *arguments: Any) -> None:
        """Schedule a call after ``delay`` microseconds."""
        self._count += 1
        heappush(self._calls, (self.now + delay, self._count, call, arguments))

    def step(self) -> bool:
        """Make the next call; returns whether there was one."""
        if not self._calls:
            return False
        self.now, _, call, arguments = heappop(self._calls)
        call(*arguments)
        return True

    def go_on(self, until: int) -> None:
        """Make all calls up to a time, and advance to it."""
        while self._calls and self._calls[0][0] <= until:
            self.step()
        self.now = until


@contextmanager
def unlogged() -> Iterator[None]:
    """Disable logging within this context: failures are intended here, and the story of the run reports them."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)
