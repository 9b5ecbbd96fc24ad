"""The parts of the state that a violated property read."""

from __future__ import annotations

from report.behaviours import Post, follow

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    Table,
    action,
    check,
    invariant,
    model_values,
    per_key,
    state,
    step_invariant,
    table,
)
from fencepost.behaviours.evidence import looked_at
from fencepost.language.values import show


class Counters(Protocol):
    nodes: tuple[ModelValue, ...] = model_values("n", 3)
    count: PerKey[ModelValue, int] = per_key(nodes, 0)
    unrelated: int = state(5)

    @action(n=nodes)
    def tick(self, n: ModelValue) -> None:
        self.count[n] += 1

    @invariant(n=nodes)
    def small(self, n: ModelValue) -> bool:
        return self.count[n] < 2

    @step_invariant
    def first_stays(self, after: Counters) -> bool:
        return self.count[self.nodes[0]] == after.count[after.nodes[0]] and after.unrelated == 5

    @invariant
    def raises(self) -> bool:
        return bool(1 // (self.unrelated - 5))


def test_only_the_binding_that_is_false_counts() -> None:
    found = looked_at(follow(Counters(), ["tick(n=n2)", "tick(n=n2)"]), "invariant", "small")
    assert found is not None
    assert found.title == "small(n=n2)"
    assert [(slot.name, values) for slot, values in found.slots] == [("count.n2", [2])]


def test_a_step_invariant_is_told_before_and_after() -> None:
    found = looked_at(follow(Counters(), ["tick(n=n2)", "tick(n=n1)"]), "step_invariant", "first_stays")
    assert found is not None
    assert [(slot.name, values) for slot, values in found.slots] == [("count.n1", [0, 1])]


class Promises(Protocol):
    nodes: tuple[ModelValue, ...] = model_values("n", 2)
    promised: Table[ModelValue, frozenset[ModelValue]] = table()

    @action(n=nodes)
    def promise(self, n: ModelValue) -> None:
        self.promised[n] = frozenset({n})

    @invariant
    def nobody_or_both(self) -> bool:
        return self.promised.get(self.nodes[0]) is None and self.nodes[1] not in self.promised


def test_what_a_table_holds_is_told_by_itself_and_what_it_lacks_as_absent() -> None:
    trace = follow(Promises(), ["promise(n=n2)"])
    found = looked_at(trace, "invariant", "nobody_or_both")
    assert found is not None
    assert [(slot.name, [show(v) for v in values]) for slot, values in found.slots] == [
        ("promised.n1", ["absent"]),
        ("promised.n2", ["{n2}"]),
    ]
    told = str(check(Promises(), engine="reference"))
    assert "promised.n1  absent\n" in told or "promised.n1  {n1}\n" in told
    assert "⟨" not in told


def test_nothing_is_told_without_a_false_property() -> None:
    trace = follow(Counters(), ["tick(n=n2)"])
    assert looked_at(trace, "invariant", "small") is None
    assert looked_at(trace, "invariant", "raises") is None
    assert looked_at(trace, "deadlock", "deadlock") is None
    assert looked_at(follow(Post(), ["cut"]), "invariant", "few_arrive") is None
