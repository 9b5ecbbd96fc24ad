"""A lasso from a random walk is shortened. It stays fair and a violation."""

from __future__ import annotations

from typing import Any

import pytest
from checker.liveness.locks import Lock

import fencepost
from fencepost import Protocol, always_eventually, check, leads_to, require, state, strong, weak
from fencepost.behaviours.lasso import is_violated, met
from fencepost.semantics import State, Stepper


class Noisy(Protocol):
    """A light that can be lit, among many unrelated actions."""

    lit: bool = state(False)
    asked: bool = state(False)
    noise: int = state(0)
    turn: int = state(0)

    @fencepost.action
    def hum(self) -> None:
        self.noise = (self.noise + 1) % 4

    @fencepost.action
    def spin(self) -> None:
        self.turn = 1 - self.turn

    @fencepost.action
    def ask(self) -> None:
        require(not self.asked)
        self.asked = True

    @fencepost.action
    def light(self) -> None:
        require(self.asked and self.noise == 2)
        self.asked, self.lit = False, not self.lit

    fairness = (weak(spin), strong(hum))

    @leads_to
    def who_asks_gets_light(self) -> tuple[bool, bool]:
        return self.asked, self.lit

    @always_eventually
    def it_is_quiet_and_lit(self) -> bool:
        return self.lit and self.noise == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["who_asks_gets_light", "it_is_quiet_and_lit"])
def test_no_step_of_a_shortened_lasso_can_be_left_out(name: str, seed: int) -> None:
    result = check(Noisy(), engine="simulate", invariants=[name], seed=seed, walks=300, depth=80, workers=1)
    trace, violation = result.must_violate(name), result.violation
    assert violation is not None and trace.loop is not None
    # The loop needs two spins and four hums. At most a request comes before it.
    assert len(trace.steps) - trace.loop == 6
    assert [step.title for step in trace.steps[: trace.loop]] in ([], ["ask"])
    assert len(violation.fairness) == 2
    stepper = Stepper(Noisy(), [name])
    rows = [rows_of(stepper, state) for state in trace.states]
    assert is_violated(stepper, stepper.promises[0], rows, trace.loop)
    assert None not in met(stepper, stepper.fairness_conditions(), rows[trace.loop :])


def rows_of(stepper: Stepper, state: State) -> tuple[int, ...]:
    """A state of another store, as a row of this one."""
    ids = [0] * len(stepper.store.slots)
    for slot, value in state.slots():
        index = stepper.store.slot(slot)
        ids[index] = stepper.store.intern(index, value)
    return stepper.store.normal(ids)


def test_a_walk_that_is_asked_for_is_told_whole() -> None:
    options: dict[str, Any] = {
        "engine": "simulate",
        "invariants": ["who_asks_gets_light"],
        "seed": 3,
        "depth": 80,
        "workers": 1,
    }
    found = check(Noisy(), walks=300, **options).violation
    assert found is not None and found.walk is not None and found.trace is not None
    whole = check(Noisy(), walk=found.walk, **options).violation
    assert whole is not None and whole.trace is not None
    assert len(whole.trace) == found.walked > len(found.trace)


def test_nobody_who_acts_in_a_lock_for_nothing_is_left_in_its_lasso() -> None:
    result = check(Lock(), engine="simulate", seed=1, walks=200, depth=60, workers=1)
    trace = next(v.trace for v in result.violations if v.trace is not None)
    assert len(trace) <= 2, [step.title for step in trace.steps]
