"""A protocol without a state to explore does not hold: nothing was checked."""

from __future__ import annotations

import pytest

import fencepost
from fencepost import Protocol, action, constraint, initial, invariant, one_of, require, state


class Refused(Protocol):
    count: int = state(0)

    @initial
    def begin(self) -> None:
        self.count = one_of((1, 2))
        require(self.count > 2)

    @invariant
    def never_negative(self) -> bool:
        return self.count >= 0


class Outside(Protocol):
    count: int = state(0)

    @constraint
    def begun(self) -> bool:
        return self.count > 0

    @action
    def begin(self) -> None:
        self.count = 1


@pytest.mark.parametrize("engine", ["auto", "reference", "embedded", "simulate"])
@pytest.mark.parametrize(
    ("protocol", "why"),
    [
        (Refused, "initial state begin refuses every way through its choices: no state is reachable"),
        (Outside, "every initial state is outside the constraint begun: no state is explored"),
    ],
)
def test_without_a_state_nothing_holds(engine: str, protocol: type[Protocol], why: str) -> None:
    result = fencepost.check(protocol(), engine=engine)
    assert (result.holds, result.verdict, result.exit_code) == (False, "raised", 75)
    assert str(result.error) == why


class Begun(Outside):
    @constraint
    def begun(self) -> bool:
        return self.count == 0


@pytest.mark.parametrize("engine", ["auto", "reference", "embedded", "simulate"])
def test_a_limit_that_comes_first_says_nothing_of_the_initial_states(engine: str) -> None:
    result = fencepost.check(Begun(), engine=engine, timeout=1e-9)
    assert (result.verdict, result.error) == ("not complete", None)
    assert result.limit == "the time limit of 1e-09 seconds"


class OutsideAndFalse(Outside):
    @invariant
    def never_outside(self) -> bool:
        return self.count > 0


@pytest.mark.parametrize("engine", ["reference", "embedded"])
def test_a_violation_outside_is_told_first(engine: str) -> None:
    assert fencepost.check(OutsideAndFalse(), engine=engine).verdict == "never_outside"
