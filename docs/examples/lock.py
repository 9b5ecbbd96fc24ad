"""The temporal properties of from-tla.md in Fencepost: Lock.tla under the same kinds of fairness."""

from enum import Enum

from fencepost import (
    ModelValue,
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
