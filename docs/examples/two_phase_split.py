"""two_phase_tla.py with its two sets split: the same states in smaller parts."""

from fencepost import ModelValue, PerKey, Protocol, action, invariant, model_values, per_key, require, state


class TwoPhaseSplit(Protocol):
    """A boolean for each message, and for each member of the former sets."""

    rm = model_values("r", 3)

    rm_state: PerKey[ModelValue, str] = per_key(rm, "working")
    tm_state: str = state("init")
    tm_prepared: PerKey[ModelValue, bool] = per_key(rm, False)
    prepared_sent: PerKey[ModelValue, bool] = per_key(rm, False)
    commit_sent: bool = state(False)
    abort_sent: bool = state(False)

    @action(r=rm)
    def tm_rcv_prepared(self, r: ModelValue) -> None:
        require(self.tm_state == "init")
        require(self.prepared_sent[r])
        self.tm_prepared[r] = True

    @action
    def tm_commit(self) -> None:
        require(self.tm_state == "init")
        require(all(self.tm_prepared[r] for r in self.rm))
        self.tm_state = "committed"
        self.commit_sent = True

    @action
    def tm_abort(self) -> None:
        require(self.tm_state == "init")
        self.tm_state = "aborted"
        self.abort_sent = True

    @action(r=rm)
    def rm_prepare(self, r: ModelValue) -> None:
        require(self.rm_state[r] == "working")
        self.rm_state[r] = "prepared"
        self.prepared_sent[r] = True

    @action(r=rm)
    def rm_choose_to_abort(self, r: ModelValue) -> None:
        require(self.rm_state[r] == "working")
        self.rm_state[r] = "aborted"

    @action(r=rm)
    def rm_rcv_commit_msg(self, r: ModelValue) -> None:
        require(self.commit_sent)
        self.rm_state[r] = "committed"

    @action(r=rm)
    def rm_rcv_abort_msg(self, r: ModelValue) -> None:
        require(self.abort_sent)
        self.rm_state[r] = "aborted"

    @invariant(a=rm, b=rm)
    def consistent(self, a: ModelValue, b: ModelValue) -> bool:
        return not (self.rm_state[a] == "committed" and self.rm_state[b] == "aborted")
