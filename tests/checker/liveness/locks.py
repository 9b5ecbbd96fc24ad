"""A lock that two processes contend for, under several kinds of fairness."""

from __future__ import annotations

import enum
from typing import Any

from fencepost import (
    PerKey,
    Protocol,
    action,
    always_eventually,
    eventually_always,
    leads_to,
    model_values,
    per_key,
    require,
    state,
    strong,
    weak,
)


class At(enum.Enum):
    """The position of a process."""

    AWAY = "away"
    WAITING = "waiting"
    IN = "in"


class Lock(Protocol):
    """A lock without fairness: a waiting process may never get it."""

    processes: tuple[Any, ...] = model_values("p", 2)
    held: bool = state(False)
    at: PerKey[Any, At] = per_key(processes, At.AWAY)

    @action(p=processes)
    def ask(self, p: Any) -> None:
        require(self.at[p] is At.AWAY)
        self.at[p] = At.WAITING

    @action(p=processes)
    def enter(self, p: Any) -> None:
        require(self.at[p] is At.WAITING and not self.held)
        self.at[p] = At.IN
        self.held = True

    @action(p=processes)
    def leave(self, p: Any) -> None:
        require(self.at[p] is At.IN)
        self.at[p] = At.AWAY
        self.held = False

    @leads_to(p=processes)
    def whoever_waits_enters(self, p: Any) -> tuple[bool, bool]:
        """A waiting process gets the lock."""
        return self.at[p] is At.WAITING, self.at[p] is At.IN

    @always_eventually
    def free_again(self) -> bool:
        return not self.held

    @eventually_always
    def quiet_at_last(self) -> bool:
        return not self.held


class WeakLock(Lock):
    """Each process enters if it can do so continuously. It cannot while others come and go."""

    fairness = (weak(Lock.enter), weak(Lock.leave))


class StrongLock(Lock):
    """Each process enters if it can do so infinitely often."""

    fairness = (strong(Lock.enter), weak(Lock.leave))


class LockOfFairProcesses(Lock):
    """Processes that never stop: each takes its next step eventually."""

    fairness = (weak(per=("p",)),)


class LockThatGoesOn(Lock):
    """Some step is taken for as long as one is enabled."""

    fairness = (weak(per=()),)
