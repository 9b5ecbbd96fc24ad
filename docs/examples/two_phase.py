from enum import Enum

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    Record,
    action,
    configuration,
    constant,
    invariant,
    model_values,
    network,
    per_key,
    require,
    state,
    step_invariant,
)


class Status(Enum):
    WORKING = "working"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"


class TransactionManager(Record):
    status: Status = Status.WORKING
    prepared: frozenset[ModelValue] = frozenset()


class Vote(Message):
    """A resource manager is prepared: it can commit, and it can abort."""


class Decision(Message):
    """The transaction manager has decided."""

    outcome: Status


TM = ModelValue("tm")


class TwoPhaseCommit(Protocol):
    """Resource managers commit a transaction together, or abort it together, as the transaction manager decides."""

    configurations = {
        "lossy": configuration(),
        "three": configuration(rms=3, lossy=False, doc="three resource managers, nothing is lost"),
        "impatient": configuration(impatient=True, expect="consistent"),
    }

    rms = model_values("r", 2)
    impatient: bool = constant(False, "a prepared resource manager may give up")
    lossy: bool = constant(True, "messages may be lost")

    rm: PerKey[ModelValue, Status] = per_key(rms, Status.WORKING)
    tm: TransactionManager = state(TransactionManager, held_by="tm")
    network: Network = network({Vote: (rms, TM), Decision: (TM, rms)}, lossy=lossy)

    @action(r=rms)
    def rm_prepares(self, r: ModelValue) -> None:
        require(self.rm[r] is Status.WORKING)
        self.rm[r] = Status.PREPARED
        self.network.send(Vote(), r, TM)

    @action(r=rms)
    def rm_gives_up(self, r: ModelValue) -> None:
        require(self.rm[r] is Status.WORKING or (self.impatient and self.rm[r] is Status.PREPARED))
        self.rm[r] = Status.ABORTED

    @action(r=rms)
    def rm_asks_again(self, r: ModelValue) -> None:
        require(self.rm[r] is Status.PREPARED)
        self.network.send(Vote(), r, TM)

    @action(by="tm")
    def tm_receives_vote(self) -> None:
        vote = self.network.receive(Vote, to=TM)
        if self.tm.status is Status.WORKING:
            self.tm.prepared |= {vote.source}
        else:
            self.network.reply(vote, Decision(self.tm.status))

    @action(by="tm")
    def tm_commits(self) -> None:
        require(self.tm.prepared == set(self.rms))
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

    @action
    def everyone_is_done(self) -> None:
        """The end. Without its own step it would look like a deadlock."""
        require(all(self.rm[r] in (Status.COMMITTED, Status.ABORTED) for r in self.rms))

    @invariant(a=rms, b=rms)
    def consistent(self, a: ModelValue, b: ModelValue) -> bool:
        """No resource manager has committed while another has aborted."""
        return not (self.rm[a] is Status.COMMITTED and self.rm[b] is Status.ABORTED)

    @step_invariant(r=rms)
    def outcomes_are_final(self, after: "TwoPhaseCommit", r: ModelValue) -> bool:
        """A resource manager that has committed or aborted never does anything else."""
        return self.rm[r] in (Status.WORKING, Status.PREPARED, after.rm[r])
