"""The Fencepost side of from-tla.md: QuorumLog.tla, construct by construct, with the same number of states."""

from typing import Any

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    Record,
    action,
    assumption,
    constant,
    constraint,
    initial,
    invariant,
    model_values,
    one_of,
    per_key,
    require,
    state,
    step_constraint,
    step_invariant,
    subsets,
    view,
)

Log = tuple[int, ...]


class Writer(Record):
    status: str = "open"
    lap: int = 0
    lac: int = 0


class QuorumLog(Protocol):
    """A writer pushes entries to an ensemble of bookies, which someone fences one by one."""

    bookies = model_values("b", 3)
    write_quorum: int = constant(2)
    ack_quorum: int = constant(1)
    max_entry: int = constant(2)

    @assumption
    def quorums_fit(self) -> bool:
        return 1 <= self.ack_quorum <= self.write_quorum <= len(self.bookies)

    ensemble: frozenset[ModelValue] = state(frozenset())
    log: PerKey[ModelValue, Log] = per_key(bookies, ())
    fenced: PerKey[ModelValue, bool] = per_key(bookies, False)
    writer: Writer = state(Writer)
    sealed: int = state(0)
    last: str = state("init")

    @initial
    def any_ensemble(self) -> None:
        self.ensemble = one_of(subsets(self.bookies, self.write_quorum))

    @action
    def push(self) -> None:
        require(self.writer.status == "open")
        self.writer.lap += 1
        self.last = "push"

    @action(b=bookies)
    def store(self, b: ModelValue) -> None:
        require(b in self.ensemble)
        require(not self.fenced[b])
        require(len(self.log[b]) < self.writer.lap)
        self.log[b] += (len(self.log[b]) + 1,)
        self.last = "store"

    @action
    def confirm(self) -> None:
        entry = self.writer.lac + 1
        holders = {b for b in self.ensemble if entry in self.log[b]}
        require(len(holders) >= self.ack_quorum)
        self.writer.lac = entry
        self.last = "confirm"

    @action(b=bookies)
    def fence(self, b: ModelValue) -> None:
        require(not self.fenced[b])
        self.fenced[b] = True
        open_bookies = {a for a in self.ensemble if not self.fenced[a]}
        if not open_bookies:
            self.writer.status = "closed"
        elif open_bookies != self.ensemble:
            self.writer.status = "fencing"
        self.last = "fence"

    @action(b=bookies)
    def replace(self, b: ModelValue) -> None:
        require(b in self.ensemble)
        require(self.log[b] == ())
        spares = [s for s in self.bookies if s not in self.ensemble]
        require(len(spares) > 0)
        self.ensemble = self.ensemble - {b} | {spares[0]}
        self.last = "replace"

    @action
    def seal(self) -> None:
        require(self.writer.status == "closed")
        self.sealed = self.writer.lac
        require(any(self.sealed == len(self.log[b]) for b in self.ensemble))
        self.last = "seal"

    @invariant
    def lac_never_passes_lap(self) -> bool:
        return self.writer.lac <= self.writer.lap

    @invariant
    def every_confirmed_entry_is_held(self) -> bool:
        return all(
            sum(len(self.log[b]) >= entry for b in self.bookies) >= self.ack_quorum
            for entry in range(1, self.writer.lac + 1)
        )

    @step_invariant(b=bookies)
    def fenced_stays_fenced(self, after: "QuorumLog", b: ModelValue) -> bool:
        return after.fenced[b] or not self.fenced[b]

    @step_invariant
    def lac_never_goes_back(self, after: "QuorumLog") -> bool:
        return after.writer.lac >= self.writer.lac

    @constraint
    def few_entries(self) -> bool:
        return self.writer.lap <= self.max_entry


class OneInFlight(QuorumLog):
    """With the action constraint."""

    @step_constraint
    def one_in_flight(self, after: QuorumLog) -> bool:
        return after.writer.lap <= self.writer.lac + 1


class Viewed(QuorumLog):
    """With the view."""

    @view
    def without_last(self) -> Any:
        return self.ensemble, self.log, self.fenced, self.writer, self.sealed
