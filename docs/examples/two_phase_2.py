from enum import Enum

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    Record,
    action,
    invariant,
    model_values,
    network,
    per_key,
    require,
    state,
)


class Status(Enum):
    WORKING = "working"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"


class TransactionManager(Record):
    status: Status = Status.WORKING
    votes: int = 0


class Vote(Message):
    """A resource manager is prepared: it can commit, and it can abort."""


class Decision(Message):
    """The transaction manager has decided."""

    outcome: Status


TM = ModelValue("tm")


class TwoPhaseCommit(Protocol):
    """Resource managers commit a transaction together, or abort it together, as the transaction manager decides."""

    rms = model_values("r", 2)

    rm: PerKey[ModelValue, Status] = per_key(rms, Status.WORKING)
    tm: TransactionManager = state(TransactionManager, held_by="tm")
    network: Network = network({Vote: (rms, TM), Decision: (TM, rms)})

    @action(r=rms)
    def rm_prepares(self, r: ModelValue) -> None:
        require(self.rm[r] is Status.WORKING)
        self.rm[r] = Status.PREPARED
        self.network.send(Vote(), r, TM)

    @action(r=rms)
    def rm_gives_up(self, r: ModelValue) -> None:
        require(self.rm[r] in (Status.WORKING, Status.PREPARED))
        self.rm[r] = Status.ABORTED

    @action(by="tm")
    def tm_receives_vote(self) -> None:
        self.network.receive(Vote, to=TM)
        self.tm.votes += 1

    @action(by="tm")
    def tm_commits(self) -> None:
        require(self.tm.votes == len(self.rms))
        self.decide(Status.COMMITTED)

    @action(by="tm")
    def tm_aborts(self) -> None:
        self.decide(Status.ABORTED)

    def decide(self, outcome: Status) -> None:
        require(self.tm.status is Status.WORKING)
        self.tm.status = outcome
        self.network.send_all([(Decision(outcome), r) for r in self.rms], TM)

    @action(r=rms)
    def rm_follows(self, r: ModelValue) -> None:
        decision = self.network.receive(Decision, to=r).message
        self.rm[r] = decision.outcome

    @invariant(a=rms, b=rms)
    def consistent(self, a: ModelValue, b: ModelValue) -> bool:
        """No resource manager has committed while another has aborted."""
        return not (self.rm[a] is Status.COMMITTED and self.rm[b] is Status.ABORTED)
