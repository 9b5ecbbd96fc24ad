"""When sessions expire: a pure rule over times that the driver supplies.

As in ZooKeeper, sessions expire at multiples of a tick, at the first one after their timeout. So a session lives up to
a tick longer than promised, and never shorter.
"""

from __future__ import annotations


class Expiry:
    """The deadlines of sessions. All times are in milliseconds of a monotonic clock.

    A process that does not run hears no clients, so that time does not count against them: when :meth:`due` is called
    late, every deadline moves by the delay.
    """

    def __init__(self, tick: int, now: int) -> None:
        self.tick = tick
        self.deadlines: dict[int, int] = {}
        self._sessions: dict[int, dict[int, None]] = {}
        self.last = now
        """When :meth:`due` was last called."""
        self._not_running = 0

    def heard(self, session: int, timeout: int, now: int) -> None:
        """A session's client was heard from: the deadline is its timeout from now."""
        deadline = ((now - self._not_running + timeout) // self.tick + 1) * self.tick
        old = self.deadlines.get(session)
        if old == deadline:
            return
        if old is not None:
            self._leave(session, old)
        self.deadlines[session] = deadline
        self._sessions.setdefault(deadline, {})[session] = None

    def forget(self, session: int) -> None:
        """Remove a session that was closed."""
        deadline = self.deadlines.pop(session, None)
        if deadline is not None:
            self._leave(session, deadline)

    def due(self, now: int) -> list[int]:
        """Remove and return the expired sessions, in the order of their deadlines. Call it once a tick."""
        self._not_running += max(0, now - self.last - self.tick)
        self.last = now
        over: list[int] = []
        for deadline in sorted(deadline for deadline in self._sessions if deadline <= now - self._not_running):
            over += self._sessions.pop(deadline)
        for session in over:
            del self.deadlines[session]
        return over

    def left(self, deadline: int, now: int) -> int:
        """The time left until a deadline."""
        return max(0, deadline - (now - self._not_running))

    def _leave(self, session: int, deadline: int) -> None:
        sessions = self._sessions[deadline]
        del sessions[session]
        if not sessions:
            del self._sessions[deadline]
