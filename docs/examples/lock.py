"""The temporal properties of from-tla.md in Fencepost: Lock.tla under the same kinds of fairness."""

from enum import Enum

from fencepost import (
    Formula,
    ModelValue,
    PerKey,
    Protocol,
    action,
    always,
    always_eventually,
    enabled,
    eventually,
    eventually_always,
    leads_to,
    model_values,
    per_key,
    require,
    some_step,
    state,
    strong,
    temporal,
    weak,
)


class At(Enum):
    """The position of a process."""

    AWAY = "away"
    WAITING = "waiting"
    IN = "in"


class Lock(Protocol):
    """Processes take a lock in turn."""

    procs = model_values("p", 2)

    held: bool = state(False)
    at: PerKey[ModelValue, At] = per_key(procs, At.AWAY)

    @action(p=procs)
    def ask(self, p: ModelValue) -> None:
        require(self.at[p] is At.AWAY)
        self.at[p] = At.WAITING

    @action(p=procs)
    def enter(self, p: ModelValue) -> None:
        require(self.at[p] is At.WAITING and not self.held)
        self.at[p] = At.IN
        self.held = True

    @action(p=procs)
    def leave(self, p: ModelValue) -> None:
        require(self.at[p] is At.IN)
        self.at[p] = At.AWAY
        self.held = False

    fairness = [weak(enter), weak(leave)]

    @leads_to(p=procs)
    def whoever_waits_enters(self, p: ModelValue) -> tuple[bool, bool]:
        return self.at[p] is At.WAITING, self.at[p] is At.IN

    @always_eventually
    def free_again(self) -> bool:
        return not self.held

    @eventually_always
    def quiet_at_last(self) -> bool:
        return not self.held


class StrongLock(Lock):
    fairness = [strong(Lock.enter), weak(Lock.leave)]


class ByProcess(Lock):
    fairness = [weak(per=("p",))]


class GoesOn(Lock):
    fairness = [weak(per=())]


class Excused(Lock):
    """Weakly fair: who could enter again and again may wait forever, but the lock does not stand idle."""

    @temporal(p=Lock.procs)
    def enters_if_it_can(self, p: ModelValue) -> Formula:
        """SF as a property, under WF."""
        can_enter = enabled(Lock.enter, p=p)
        return always(eventually(can_enter)).implies(always(some_step(Lock.enter, p=p)))

    @temporal
    def in_use_if_asked_for(self) -> Formula:
        """Unless at some point nobody asks any more, the lock is taken again and again."""
        return (~always(some_step(Lock.ask))) | always(some_step(lambda before, after: after.held and not before.held))
