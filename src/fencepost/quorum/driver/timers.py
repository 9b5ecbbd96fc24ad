"""The timers of a replica, on the event loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from fencepost.quorum.roles.interface import SetTimer, Timer

_RESOLUTION = 0.002
"""Seconds by which a loop may fire a timer early."""


class _Armed:
    """A timer: when it fires, and when the loop calls next, which is no later. Infinity means never."""

    __slots__ = ("called_at", "fires_at", "handle", "timer")

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        self.fires_at = self.called_at = inf
        self.handle: asyncio.TimerHandle | None = None


class Timers:
    """At most one timer of each kind. ``fired`` is called with the kind of a timer that fires.

    Timers are reset often and seldom fire. So a timer that is set to a later time keeps its handle, and checks the time
    again when the loop calls it.
    """

    def __init__(
        self,
        fired: Callable[[Timer], None],
        loop: asyncio.AbstractEventLoop,
        draw: Callable[[float, float], float],
    ) -> None:
        self._fired = fired
        self._loop = loop
        self._draw = draw
        self._armed: dict[Timer, _Armed] = {}

    def set(self, effect: SetTimer) -> None:
        """Set the timer of a kind to a random time within its bounds, replacing the previous one."""
        timer = effect.timer
        at = self._loop.time() + self._draw(effect.at_least, effect.at_most) / 1_000_000
        armed = self._armed.get(timer)
        if armed is None:
            armed = self._armed[timer] = _Armed(timer)
        armed.fires_at = at
        if armed.called_at > at:
            if armed.handle is not None:
                armed.handle.cancel()
            self._call(armed)

    def cancel(self, timer: Timer) -> None:
        """Cancel the timer of a kind, if it is set."""
        if timer in self._armed:
            self._armed[timer].fires_at = inf

    def stop(self) -> None:
        """Cancel all timers."""
        for armed in self._armed.values():
            if armed.handle is not None:
                armed.handle.cancel()

    def _call(self, armed: _Armed) -> None:
        """Schedule the call of the loop."""
        armed.called_at = armed.fires_at
        armed.handle = self._loop.call_at(armed.fires_at, self._called, armed)

    def _called(self, armed: _Armed) -> None:
        armed.handle, armed.called_at = None, inf
        if armed.fires_at <= self._loop.time() + _RESOLUTION:
            armed.fires_at = inf
            self._fired(armed.timer)
        elif armed.fires_at < inf:
            self._call(armed)
