"""The timers of a replica, on the clock of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencepost.quorum.roles.interface import SetTimer, Timer

_RESOLUTION = 0.002
"""Seconds by which a loop may be early with a timer."""


class Timers:
    """At most one timer of each kind. ``fired`` is called with the kind of a timer that is due.

    Timers are set again and again, and seldom fire: a timer that is set to a later time keeps its handle, and looks at
    the time again when the loop calls it.
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
        self._fires_at: dict[Timer, float] = {}
        self._handles: dict[Timer, tuple[float, asyncio.TimerHandle]] = {}
        """The times of the loop's calls and their handles; none is later than its timer is to fire."""

    def set(self, effect: SetTimer) -> None:
        """Set a timer, in place of the one of its kind, to a random time within its bounds."""
        timer = effect.timer
        at = self._loop.time() + self._draw(effect.at_least, effect.at_most) / 1_000_000
        self._fires_at[timer] = at
        earlier = self._handles.get(timer)
        if earlier is None or earlier[0] > at:
            if earlier is not None:
                earlier[1].cancel()
            self._handles[timer] = at, self._loop.call_at(at, self._called, timer)

    def cancel(self, timer: Timer) -> None:
        """Cancel the timer of a kind, if it is set."""
        self._fires_at.pop(timer, None)

    def stop(self) -> None:
        """Cancel all timers for good."""
        for _, handle in self._handles.values():
            handle.cancel()

    def _called(self, timer: Timer) -> None:
        del self._handles[timer]
        at = self._fires_at.get(timer)
        if at is None:
            return
        if at > self._loop.time() + _RESOLUTION:
            self._handles[timer] = at, self._loop.call_at(at, self._called, timer)
            return
        del self._fires_at[timer]
        self._fired(timer)
