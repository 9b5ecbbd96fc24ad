"""Virtual time for simulators: what is to happen, in the order in which it is to happen."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any


class Schedule:
    """Calls to come, each at its time in microseconds; those of one time in the order in which they were asked for."""

    __slots__ = ("_calls", "_count", "now")

    def __init__(self) -> None:
        self.now = 0
        self._calls: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time: int, call: Callable[..., object], *arguments: Any) -> None:
        """Call something at a time, which is not past."""
        self._count += 1
        heappush(self._calls, (time, self._count, call, arguments))

    def after(self, delay: int, call: Callable[..., object], *arguments: Any) -> None:
        """Call something in so many microseconds."""
        self._count += 1
        heappush(self._calls, (self.now + delay, self._count, call, arguments))

    def step(self) -> bool:
        """Make the next call; whether there was one."""
        if not self._calls:
            return False
        self.now, _, call, arguments = heappop(self._calls)
        call(*arguments)
        return True

    def go_on(self, until: int) -> None:
        """Make all calls up to a time, which it is then."""
        while self._calls and self._calls[0][0] <= until:
            self.step()
        self.now = until


@contextmanager
def unlogged() -> Iterator[None]:
    """Nothing is logged meanwhile: what goes wrong in a run is wanted, and is told in its story."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)
