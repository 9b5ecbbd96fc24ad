from two_phase import Status, TwoPhaseCommit

from fencepost import ModelValue, sometimes


class Able(TwoPhaseCommit):
    """Two-phase commit that can commit and abort."""

    @sometimes(r=TwoPhaseCommit.rms)
    def commits(self, r: ModelValue) -> bool:
        """Every resource manager can commit."""
        return self.rm[r] is Status.COMMITTED

    @sometimes
    def commits_and_aborts(self) -> bool:
        """One commits and another aborts. Reaching this would be a bug."""
        return {*self.rm.values()} >= {Status.COMMITTED, Status.ABORTED}
