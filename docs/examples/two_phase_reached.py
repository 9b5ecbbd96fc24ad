from two_phase import Status, TwoPhaseCommit

from fencepost import ModelValue, sometimes


class Able(TwoPhaseCommit):
    """Two-phase commit that is able to do its work."""

    @sometimes(r=TwoPhaseCommit.rms)
    def commits(self, r: ModelValue) -> bool:
        """Every resource manager can commit."""
        return self.rm[r] is Status.COMMITTED

    @sometimes
    def commits_and_aborts(self) -> bool:
        """One commits and another aborts: if this were reached, something would be wrong."""
        return {*self.rm.values()} >= {Status.COMMITTED, Status.ABORTED}
