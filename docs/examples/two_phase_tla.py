"""The two-phase commit of the TLA+ examples, ported action by action; its counts are TLC's."""

from fencepost import (
    Message,
    ModelValue,
    PerKey,
    Protocol,
    action,
    configuration,
    invariant,
    model_values,
    per_key,
    require,
    state,
)


class Prepared(Message):
    rm: ModelValue


class Commit(Message):
    pass


class Abort(Message):
    pass


class TwoPhase(Protocol):
    """Gray and Lamport's two-phase commit; messages are a set that only grows, so any can be received again."""

    configurations = {"two": configuration(rm=2), "four": configuration(rm=4)}

    rm = model_values("r", 3)

    rm_state: PerKey[ModelValue, str] = per_key(rm, "working")
    tm_state: str = state("init")
    tm_prepared: frozenset[ModelValue] = state(frozenset())
    msgs: frozenset[Message] = state(frozenset())

    @action(r=rm)
    def tm_rcv_prepared(self, r: ModelValue) -> None:
        require(self.tm_state == "init")
        require(Prepared(r) in self.msgs)
        self.tm_prepared |= {r}

    @action
    def tm_commit(self) -> None:
        require(self.tm_state == "init")
        require(self.tm_prepared == set(self.rm))
        self.tm_state = "committed"
        self.msgs |= {Commit()}

    @action
    def tm_abort(self) -> None:
        require(self.tm_state == "init")
        self.tm_state = "aborted"
        self.msgs |= {Abort()}

    @action(r=rm)
    def rm_prepare(self, r: ModelValue) -> None:
        require(self.rm_state[r] == "working")
        self.rm_state[r] = "prepared"
        self.msgs |= {Prepared(r)}

    @action(r=rm)
    def rm_choose_to_abort(self, r: ModelValue) -> None:
        require(self.rm_state[r] == "working")
        self.rm_state[r] = "aborted"

    @action(r=rm)
    def rm_rcv_commit_msg(self, r: ModelValue) -> None:
        require(Commit() in self.msgs)
        self.rm_state[r] = "committed"

    @action(r=rm)
    def rm_rcv_abort_msg(self, r: ModelValue) -> None:
        require(Abort() in self.msgs)
        self.rm_state[r] = "aborted"

    @invariant(a=rm, b=rm)
    def consistent(self, a: ModelValue, b: ModelValue) -> bool:
        return not (self.rm_state[a] == "committed" and self.rm_state[b] == "aborted")
