"""An action with many bindings. Tables grow with their number, not with its square."""

from __future__ import annotations

import pytest

from fencepost import Protocol, SearchOptions, action, invariant, require, state, step_invariant
from fencepost.api.check import check
from fencepost.checker.engines.embedded import Embedded
from fencepost.checker.engines.search import Search
from fencepost.checker.engines.workspace import Workspace
from fencepost.semantics import Stepper


class Bound(Protocol):
    """Every binding reads and writes one variable."""

    count: int = state(0)

    @invariant
    def at_most_three(self) -> bool:
        return self.count <= 3


def bound(bindings: int) -> Protocol:
    class Many(Bound):
        @action(n=range(bindings))
        def add(self, n: int) -> None:
            require(self.count < 3)
            self.count += 1

    return Many()


def entries(protocol: Protocol) -> int:
    search = Search(Stepper(protocol), SearchOptions(workers=1))
    executor = Embedded(Workspace(search))
    try:
        assert search.run(executor).distinct == 4
        return int(executor.workspace.tables.entries[0])
    finally:
        executor.close()


def test_entries_grow_with_the_number_of_bindings() -> None:
    few, many = entries(bound(40)), entries(bound(80))
    assert many < 2.2 * few


class Stepwise(Bound):
    """Outcomes with equal states after, and different states before."""

    last: int = state(0)

    @action(n=range(5))
    def write(self, n: int) -> None:
        require(self.last != n)
        self.last = n

    @action
    def count_up(self) -> None:
        require(self.last in (1, 3) and self.count < 4)
        self.count += 1

    @step_invariant
    def never_from_four_to_two(self, after: Stepwise) -> bool:
        return not (self.last == 4 and after.last == 2 and self.count == 2)


@pytest.mark.parametrize("workers", [1, 2])
def test_outcomes_that_share_entries_are_judged_apart(workers: int) -> None:
    expected = check(Stepwise(), engine="reference", keep_going=True)
    found = check(Stepwise(), engine="embedded", workers=workers, keep_going=True)
    assert [v.name for v in expected.violations] == ["at_most_three", "never_from_four_to_two"]
    assert [(v.name, len(v.trace or ())) for v in found.violations] == [
        (v.name, len(v.trace or ())) for v in expected.violations
    ]
    assert (found.distinct_states, found.generated_states) == (expected.distinct_states, expected.generated_states)
    assert found.actions == expected.actions
