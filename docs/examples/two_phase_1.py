from enum import Enum

from fencepost import ModelValue, PerKey, Protocol, action, invariant, model_values, per_key, require, state


class Status(Enum):
    WORKING = "working"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"


class TwoPhaseCommit(Protocol):
    """Resource managers commit a transaction together, or abort it together, as the transaction manager decides."""

    rms = model_values("r", 2)

    rm: PerKey[ModelValue, Status] = per_key(rms, Status.WORKING)
    tm: Status = state(Status.WORKING)

    @action(r=rms)
    def rm_prepares(self, r: ModelValue) -> None:
        require(self.rm[r] is Status.WORKING)
        self.rm[r] = Status.PREPARED

    @action(r=rms)
    def rm_gives_up(self, r: ModelValue) -> None:
        require(self.rm[r] is Status.WORKING)
        self.rm[r] = Status.ABORTED

    @action
    def tm_commits(self) -> None:
        require(self.tm is Status.WORKING)
        require(all(self.rm[r] is Status.PREPARED for r in self.rms))
        self.tm = Status.COMMITTED

    @action
    def tm_aborts(self) -> None:
        require(self.tm is Status.WORKING)
        self.tm = Status.ABORTED

    @action(r=rms)
    def rm_follows(self, r: ModelValue) -> None:
        require(self.rm[r] is Status.PREPARED and self.tm is not Status.WORKING)
        self.rm[r] = self.tm

    @invariant(a=rms, b=rms)
    def consistent(self, a: ModelValue, b: ModelValue) -> bool:
        """No resource manager has committed while another has aborted."""
        return not (self.rm[a] is Status.COMMITTED and self.rm[b] is Status.ABORTED)
