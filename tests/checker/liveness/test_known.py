"""Cases with known answers: weak and strong fairness, stuttering, constraints, many demands."""

from __future__ import annotations

from typing import Any

import pytest
from checker.liveness.locks import Lock, LockOfFairProcesses, LockThatGoesOn, StrongLock, WeakLock

from fencepost import (
    NotAProtocol,
    OptionError,
    Protocol,
    Result,
    action,
    always_eventually,
    check,
    constant,
    constraint,
    eventually_always,
    initial,
    invariant,
    leads_to,
    one_of,
    require,
    state,
    step_constraint,
    strong,
    view,
    weak,
)
from fencepost.behaviours.lasso import DISABLED, NEVER_ENABLED, TAKEN

ENGINES = ("reference", "embedded")


def of(protocol: Protocol, name: str, **options: Any) -> Result:
    """The result for one property, equal on both engines."""
    one, other = (check(protocol, engine=engine, invariants=[name], **options) for engine in ENGINES)
    assert (one.verdict, [len(v.trace or ()) for v in one.violations]) == (
        other.verdict,
        [len(v.trace or ()) for v in other.violations],
    )
    return one


def titles(result: Result) -> tuple[list[str], list[str]]:
    """The steps before the loop, and its steps."""
    assert result.violation is not None and result.violation.trace is not None
    trace = result.violation.trace
    assert trace.loop is not None and trace.states[trace.loop] == trace.states[-1]
    steps = [step.title for step in trace.steps]
    return steps[: trace.loop], steps[trace.loop :]


# -- weak and strong ---------------------------------------------------------------------------------------------------


def test_without_fairness_nothing_need_ever_happen() -> None:
    assert titles(of(Lock(), "whoever_waits_enters")) == (["ask(p=p1)"], [])
    assert titles(of(Lock(), "free_again")) == (["ask(p=p2)", "enter(p=p2)"], [])


def test_weak_fairness_lets_a_process_starve() -> None:
    result = of(WeakLock(), "whoever_waits_enters")
    stem, loop = titles(result)
    assert stem == ["ask(p=p1)"] and loop == ["ask(p=p2)", "enter(p=p2)", "leave(p=p2)"]
    assert result.exit_code == 13 and result.violation is not None
    met = {(m.condition.title): (m.how, m.at) for m in result.violation.fairness}
    assert met == {
        "enter(p=p1)": (DISABLED, 2),
        "enter(p=p2)": (TAKEN, 2),
        "leave(p=p1)": (NEVER_ENABLED, 0),
        "leave(p=p2)": (TAKEN, 3),
    }


def test_strong_fairness_does_not() -> None:
    assert of(StrongLock(), "whoever_waits_enters").holds
    assert of(StrongLock(), "free_again").holds


def test_fairness_of_a_process_is_not_that_of_each_action() -> None:
    # The waiting process has no enabled step while the other one is in, so the behaviour is weakly fair too.
    assert not of(LockOfFairProcesses(), "whoever_waits_enters").holds
    assert of(LockOfFairProcesses(), "free_again").holds


def test_what_goes_on_may_do_so_without_one_of_them() -> None:
    stem, loop = titles(of(LockThatGoesOn(), "whoever_waits_enters"))
    assert stem == ["ask(p=p1)"] and all("p2" in title for title in loop)
    assert of(LockThatGoesOn(), "free_again").holds


def test_eventually_always_is_violated_by_coming_back() -> None:
    stem, loop = titles(of(StrongLock(), "quiet_at_last"))
    assert stem == ["ask(p=p2)", "enter(p=p2)"] and loop == ["leave(p=p2)", "ask(p=p2)", "enter(p=p2)"]


# -- ends ------------------------------------------------------------------------------------------------------------


class Countdown(Protocol):
    """Counts down, and idles at the end."""

    left: int = state(3)

    fairness = (weak(per=()),)

    @action
    def tick(self) -> None:
        require(self.left > 0)
        self.left -= 1

    @action
    def idle(self) -> None:
        self.left = self.left

    @always_eventually
    def is_over(self) -> bool:
        return self.left == 0

    @eventually_always
    def stays_over(self) -> bool:
        return self.left == 0

    @always_eventually
    def starts_again(self) -> bool:
        return self.left == 3

    @leads_to
    def one_after_three(self) -> tuple[bool, bool]:
        return self.left == 3, self.left == 1


def test_a_step_that_changes_nothing_is_no_step() -> None:
    for name in ("is_over", "stays_over", "one_after_three"):
        assert of(Countdown(), name).holds
    assert titles(of(Countdown(), "starts_again")) == (["tick"] * 3, [])


def test_a_leads_to_that_holds_at_once_is_satisfied() -> None:
    class AtOnce(Countdown):
        @leads_to
        def at_once(self) -> tuple[bool, bool]:
            return self.left == 2, self.left >= 2

    assert of(AtOnce(), "at_once").holds


# -- constraints -----------------------------------------------------------------------------------------------------


class Bounded(Protocol):
    """Counts up to a constraint, or cycles."""

    n: int = state(0)
    hand: int = state(0)

    @action
    def up(self) -> None:
        self.n += 1

    @action
    def turn(self) -> None:
        self.hand = (self.hand + 1) % 3

    @eventually_always
    def settles(self) -> bool:
        return self.hand == 0


def test_an_action_that_a_constraint_cuts_is_enabled_all_the_same() -> None:
    class StateBound(Bounded):
        fairness = (weak(Bounded.up),)

        @constraint
        def few(self) -> bool:
            return self.n < 2

    class StepBound(Bounded):
        fairness = (weak(Bounded.up),)

        @step_constraint
        def few(self, after: StepBound) -> bool:
            return after.n < 2

    # Once n cannot increase inside the constraint, no behaviour is fair, so none violates the property.
    assert of(StateBound(), "settles").holds
    assert of(StepBound(), "settles").holds


def test_without_that_demand_the_hand_turns() -> None:
    class Free(Bounded):
        @constraint
        def few(self) -> bool:
            return self.n < 2

    assert titles(of(Free(), "settles")) == (["turn"], [])


# -- many demands ----------------------------------------------------------------------------------------------------


class Ring(Protocol):
    """A token that goes from member to member in a ring. Each passing has its own fairness."""

    size: int = constant(70)
    skips: bool = constant(False)
    token: int = state(0)
    done: int = state(0)

    @action(k=lambda p: range(p.size))
    def pass_on(self, k: int) -> None:
        require(self.token == k)
        self.token = (k + 1) % self.size

    @action(k=lambda p: range(p.size))
    def finish(self, k: int) -> None:
        require(self.token == k and self.done == 0)
        self.done = one_of([0, 1]) if self.skips else 1

    @always_eventually(k=lambda p: range(p.size))
    def comes_round(self, k: int) -> bool:
        return self.token == k

    @eventually_always
    def finishes(self) -> bool:
        return self.done == 1


class FairRing(Ring):
    fairness = (weak(Ring.pass_on), strong(Ring.finish))


def test_more_demands_and_predicates_than_a_word_has_bits() -> None:
    result = of(FairRing(), "comes_round")
    assert result.holds
    assert of(FairRing(), "finishes").holds
    weakly = type("Weakly", (Ring,), {"fairness": (weak(Ring.pass_on), weak(Ring.finish))})
    stem, loop = titles(of(weakly(size=66), "finishes"))
    assert stem == [] and len(loop) == 66


# -- which properties are judged ---------------------------------------------------------------------------------------


def test_safety_comes_first() -> None:
    class Both(Countdown):
        @invariant
        def never_one(self) -> bool:
            return self.left != 1

    for engine in ENGINES:
        for keep_going in (False, True):
            result = check(Both(), engine=engine, keep_going=keep_going)
            assert (
                [v.name for v in result.violations] == ["never_one"] and result.judged == () and result.exit_code == 12
            )


def test_a_search_that_reached_a_limit_judges_nothing() -> None:
    for engine in ENGINES:
        result = check(Countdown(), engine=engine, max_depth=2)
        assert (result.verdict, result.exit_code, result.judged) == ("not complete", 152, ())


def test_no_room_is_said_and_nothing_holds(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr("fencepost.checker.engines.conclusion.resident_memory", lambda: 1 << 50)
    result = check(Countdown(), engine="reference")
    assert (result.complete, result.holds, result.verdict, result.exit_code) == (True, False, "not complete", 152)
    assert "Liveness was not judged: the memory limit of" in str(result)


def test_with_a_view_or_a_checkpoint_it_is_refused(tmp_path: Any) -> None:
    class Viewed(Countdown):
        @view
        def seen(self) -> Any:
            return self.left

    for engine in ("auto", *ENGINES):
        with pytest.raises(OptionError, match=r"is_over is judged on all steps.*take out the view"):
            check(Viewed(), engine=engine)
    with pytest.raises(OptionError, match=r"leave out checkpoint"):
        check(Countdown(), checkpoint=tmp_path)


def test_fairness_names_parameters_that_are_there() -> None:
    class Wrong(Lock):
        fairness = (weak(per=("q",)),)

    with pytest.raises(NotAProtocol, match="has no parameter q"):
        check(Wrong())


def test_several_initial_states() -> None:
    class Several(Countdown):
        @initial
        def start(self) -> None:
            self.left = one_of([2, 0])

    assert titles(of(Several(), "starts_again")) == ([], [])


def test_a_property_that_raises_is_told_with_the_way_there() -> None:
    class Raises(Countdown):
        @always_eventually
        def broken(self) -> bool:
            return 1 // (self.left - 1) == 0

    for engine in ENGINES:
        result = check(Raises(), engine=engine, invariants=["broken"])
        assert result.verdict == "raised" and result.error_trace is not None
        assert [step.title for step in result.error_trace.steps] == ["tick", "tick"]
