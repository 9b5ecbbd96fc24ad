from enum import Enum

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    Record,
    action,
    constant,
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


class Account(Record):
    status: Status = Status.WORKING
    votes: int = 0


class Row(Record):
    """The transfer in the database. All desks read and write it."""

    outcome: Status | None = None
    voters: frozenset[ModelValue] = frozenset()


class Vote(Message):
    """An account is prepared: it can commit, and it can abort."""

    number: int


class Decision(Message):
    """A desk has decided, or (``vote``) answers a vote that came later."""

    outcome: Status
    vote: int = 0


DESK = ModelValue("desk")


class Transfer(Protocol):
    """Two-phase commit, with votes that are repeated until an answer comes."""

    accounts = model_values("a", 2)
    most_votes: int = constant(2, "how often an account votes")

    account: PerKey[ModelValue, Account] = per_key(accounts, Account)
    row: Row = state(Row)
    network: Network = network({Vote: (accounts, DESK), Decision: (DESK, accounts)})

    @action(a=accounts)
    def account_votes(self, a: ModelValue) -> None:
        me = self.account[a]
        require(me.status in (Status.WORKING, Status.PREPARED))
        require(me.votes < self.most_votes)
        me.status = Status.PREPARED
        me.votes += 1
        self.network.send(Vote(me.votes), a, DESK)

    @action(a=accounts)
    def account_gives_up(self, a: ModelValue) -> None:
        require(self.account[a].status is Status.WORKING)
        self.account[a].status = Status.ABORTED

    @action(by="desk")
    def desk_counts_vote(self) -> None:
        vote = self.network.receive(Vote, to=DESK)
        require(self.row.outcome is None)
        self.row.voters |= {vote.source}

    @action(by="desk")
    def desk_answers_vote(self) -> None:
        vote = self.network.receive(Vote, to=DESK)
        require(self.row.outcome is not None)
        self.network.reply(vote, Decision(self.row.outcome, vote.message.number))

    @action(by="desk")
    def desk_commits(self) -> None:
        require(self.row.voters == set(self.accounts))
        self.decide(Status.COMMITTED)

    @action(by="desk")
    def desk_aborts(self) -> None:
        self.decide(Status.ABORTED)

    def decide(self, outcome: Status) -> None:
        require(self.row.outcome is None)
        self.row.outcome = outcome
        self.network.send_all([(Decision(outcome), a) for a in self.accounts], DESK)

    @action(a=accounts)
    def account_follows(self, a: ModelValue) -> None:
        self.account[a].status = self.network.receive(Decision, to=a).message.outcome

    @invariant(a=accounts, b=accounts)
    def consistent(self, a: ModelValue, b: ModelValue) -> bool:
        """No account has committed while another has aborted."""
        return not (self.account[a].status is Status.COMMITTED and self.account[b].status is Status.ABORTED)
