"""Partial order reduction, against an explorer that takes every step. Faults planted in its rules must show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from campaigns import THOROUGH, campaign_if
from checker.engines import brute
from checker.engines.loose_protocols import loose, without_limits
from checker.engines.random_protocols import RandomProtocol, seeded
from checker.engines.test_reference import genuine

from fencepost import (
    OptionError,
    Protocol,
    action,
    always_eventually,
    check,
    constraint,
    invariant,
    model_values,
    one_of,
    per_key,
    require,
    state,
    step_invariant,
)
from fencepost.checker.engines import reduced
from fencepost.checker.engines.interface import Exploration
from fencepost.checker.engines.options import EmbeddedOptions
from fencepost.checker.engines.reduced import Accesses, Reduced
from fencepost.language.loading import shipped
from fencepost.report.json import data
from fencepost.report.text import story
from fencepost.semantics import Stepper

SEEDS = 2_000 if THOROUGH else 60
CAP = 600


def explored(protocol: Protocol, **options: Any) -> tuple[Stepper, Exploration]:
    stepper = Stepper(protocol)
    return stepper, reduced.explore(stepper, EmbeddedOptions(reduce=True, **options))


def difference(random: RandomProtocol) -> str | None:
    """What a reduced search finds else than a whole one, or None. Small protocols without an end are left out."""
    whole = brute.explore(random.build(), keep_going=True, deadlock=True, cap=CAP)
    if not whole.complete:
        return None
    stepper, got = explored(random.build(), keep_going=True, deadlock=True)
    if got.raised is not None and got.distinct:  # a protocol without any state raises that
        return str(got.raised)
    broken, reached = {f.name for f in got.found}, {f.name for f in got.witnesses}
    if (broken, reached) != (set(whole.broken), set(whole.reached)):
        return f"{whole.broken} and {whole.reached} expected, got {broken} and {reached}"
    if got.raised is None and not (got.complete and got.reduced and got.distinct <= whole.distinct):
        return f"{got.distinct} of {whole.distinct} states, complete: {got.complete}"
    for found in [*got.found, *got.witnesses]:
        if found.kind != "deadlock" and not genuine(stepper.protocol, stepper, found):
            return f"the counterexample, or the witness, to {found.name} is none"
    return None


@pytest.mark.parametrize("make", [loose, lambda seed: without_limits(seeded(50_000 + seed))], ids=["loose", "any"])
def test_finds_what_a_whole_search_finds(make: Callable[[int], RandomProtocol]) -> None:
    for seed in range(SEEDS if make is loose else SEEDS // 2):
        assert (what := difference(make(seed))) is None, f"{seed}: {what}\n{make(seed)!r}"


def _needs(of: Callable[[Reduced, Any, Any], int]) -> tuple[type, str, Any]:
    right = Reduced._needs
    return Reduced, "_needs", lambda self, evaluation: of(self, evaluation, lambda: right(self, evaluation))


TAKE = Reduced._take

FAULTS: dict[str, tuple[int, tuple[type, str, Any]]] = {
    "an action that a property reads is not visible": (
        18,
        _needs(lambda self, evaluation, right: right() & ((1 << len(self.actions)) - 1)),
    ),
    "what enables a disabled action is left out": (
        18,
        _needs(lambda self, evaluation, right: right() * bool(evaluation.steps)),
    ),
    "what reads is not dependent on what writes": (
        18,
        _needs(lambda self, evaluation, right: self.accesses.dependent(evaluation.read, 0)),
    ),
    "what writes is not dependent on what reads": (
        6,
        _needs(
            lambda self, evaluation, right: (
                right() if not evaluation.written else self.accesses.dependent(0, evaluation.written)
            )
        ),
    ),
    "an action may be put off forever": (14, (Reduced, "_take", lambda self, *given: TAKE(self, *given) or True)),
    "one pass is enough": (141, (Accesses, "grown", property(lambda self: False, lambda self, grown: None))),
}
"""Faults, each with the seed of a protocol in which it shows."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_shows(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed, (owner, name, wrong) = FAULTS[fault]
    assert difference(loose(seed)) is None
    monkeypatch.setattr(owner, name, wrong, raising=False)
    assert difference(loose(seed)) is not None


class Counters(Protocol):
    """Counters that know nothing of each other."""

    members: Any = model_values("m", 7)
    counter: Any = per_key(members, 0)

    @action(m=members)
    def counts(self, m: Any) -> None:
        require(self.counter[m] < 3)
        self.counter[m] += 1

    @invariant
    def never_four(self) -> bool:
        return bool(self.counter[self.members[0]] < 4)


def test_of_independent_steps_one_order_is_taken() -> None:
    result = check(Counters(), reduce=True, deadlock=True)
    assert result.violation is not None and result.violation.kind == "deadlock"
    assert len(result.violation.trace or ()) == 22
    result = check(Counters(), reduce=True)
    assert result.holds and result.reduced and result.engine == "reduced"
    assert result.distinct_states == 22  # of 4 ** 7
    assert all(count.taken for count in result.actions)


class Lost(Protocol):
    """Two write what both have read before, in two steps each."""

    members: Any = model_values("m", 2)
    seen: Any = per_key(members, None)
    total: int = state(0)
    idle: int = state(0)

    @action(m=members)
    def reads(self, m: Any) -> None:
        require(self.seen[m] is None)
        self.seen[m] = self.total

    @action(m=members)
    def writes(self, m: Any) -> None:
        require(self.seen[m] is not None and self.seen[m] >= 0)
        self.total = self.seen[m] + 1
        self.seen[m] = -1

    @action
    def idles(self) -> None:
        self.idle = (self.idle + one_of((1, 2))) % 5

    @invariant
    def nothing_is_lost(self) -> bool:
        return any(seen != -1 for _, seen in self.seen.items()) or self.total == len(self.members)


def test_a_counterexample_is_a_real_behaviour() -> None:
    result = check(Lost(), reduce=True)
    assert result.verdict == "nothing_is_lost" and result.exit_code == 12
    told = story(result)
    assert "A counterexample, perhaps not the shortest: 5 states" in told and "shortest counterexample" not in told


def test_says_that_states_were_left_out() -> None:
    result = check(Counters(), reduce=True)
    assert "in the 22 states that the reduction leaves, so in no reachable state" in story(result)
    assert data(result)["reduced"] is True and data(check(Lost()))["reduced"] is False


@pytest.mark.parametrize(
    "configuration", ["small", *campaign_if(bool, ["defect-1-small", "three-copies", "two-entries"])]
)
def test_agrees_on_shipped_configurations(configuration: str) -> None:
    protocol = shipped("bookkeeper-4.13").configured(configuration)
    invariants = [declared.name for declared in protocol.declared("invariant")]
    found = [
        check(protocol, invariants=invariants, reduce=reduce, deadlock=True, keep_going=True)
        for reduce in (False, True)
    ]
    whole, part = found
    assert part.complete and part.distinct_states < whole.distinct_states
    assert {v.name for v in part.violations} == {v.name for v in whole.violations} >= {"deadlock"}


class Refused(Counters):
    @constraint
    def few(self) -> bool:
        return bool(self.counter[self.members[0]] < 2)


class Stepwise(Counters):
    @step_invariant
    def never_falls(self, after: Any) -> bool:
        return bool(after.counter[self.members[0]] >= self.counter[self.members[0]])


class Lasting(Counters):
    @always_eventually
    def two(self) -> bool:
        return bool(self.counter[self.members[0]] == 2)


def refused() -> Iterable[tuple[type[Protocol], dict[str, Any], str]]:
    yield Refused, {}, "without constraints, and few is one"
    yield Stepwise, {}, "never_falls is judged on all steps"
    yield Lasting, {}, "two is judged on all steps"
    yield Counters, {"symmetry": True}, "do not go together"
    yield Counters, {"checking": True}, "do not go together"
    yield Counters, {"checkpoint": "there"}, "do not go together"
    yield Counters, {"resume": "there"}, "do not go together"
    yield Counters, {"states": "there"}, "do not go together"
    yield Counters, {"engine": "embedded"}, "not compiled"
    yield Counters, {"engine": "reference"}, "reduce"
    yield Counters, {"engine": "spark"}, "reduce"
    yield Counters, {"engine": "simulate"}, "reduce"


@pytest.mark.parametrize(("protocol", "options", "why"), list(refused()))
def test_what_is_not_proved_is_refused(protocol: type[Protocol], options: dict[str, Any], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        check(protocol(), reduce=True, **options)


def test_a_limit_is_no_verdict() -> None:
    result = check(Counters(), reduce=True, max_states=10)
    assert not result.holds and result.verdict == "not complete"
