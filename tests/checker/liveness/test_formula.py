"""Temporal formulas against a plain evaluation of every short lasso, on random small graphs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from campaigns import THOROUGH
from checker.engines import compare
from checker.liveness.formulas import Case, by_actions, case, is_true, protocol, violations
from checker.liveness.graphs import fair_loop
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost import SystemFailure, check
from fencepost.checker.engines import embedded, reference
from fencepost.checker.liveness import automaton, product
from fencepost.checker.liveness.automaton import Forms, Way
from fencepost.semantics import Stepper


def fault(case: Case) -> str | None:
    """What is wrong with the verdict on a case, or None."""
    result = check(protocol(case), engine="reference")
    if not result.violations:
        missed = next(violations(case), None)
        return None if missed is None else f"{missed} violates it"
    trace = result.must_violate("expected")
    states = [state.variables()["at"] for state in trace.states]
    assert trace.loop is not None and states[trace.loop] == states[-1] and states[0] in case.small.starts
    right = not is_true(case, states, trace.loop) and fair_loop(case.small, states[trace.loop :])
    return None if right else f"{states} from {trace.loop} does not violate it"


@settings(max_examples=20_000 if THOROUGH else 150)
@given(drawn=st.randoms(use_true_random=False).map(case))
def test_agrees_with_looking_at_every_short_lasso(drawn: Case) -> None:
    assert fault(drawn) is None


@pytest.mark.parametrize("seed", range(20))
def test_engines_make_the_same_graph_and_lasso(seed: int) -> None:
    drawn = case(random.Random(seed))
    one, other = (compare.graph(engine.explore, Stepper(protocol(drawn))) for engine in (reference, embedded))
    for name in ("fingerprints", "levels", "starts", "targets", "enabled", "truths"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), (name, drawn)
    assert np.array_equal(one.terms.masks[one.kinds], other.terms.masks[other.kinds])
    assert trace_of(drawn, "reference") == trace_of(drawn, "auto") == trace_of(drawn, "embedded")


def test_fairness_by_functions_is_fairness_by_actions() -> None:
    for seed in range(100):
        drawn = case(random.Random(seed))
        assert trace_of(drawn, "reference") == trace_of(by_actions(drawn), "reference"), drawn


def trace_of(case: Case, engine: str) -> Any:
    result = check(protocol(case), engine=engine)
    return [([s.variables() for s in v.trace.states], v.trace.loop) for v in result.violations if v.trace is not None]


# -- planted faults ----------------------------------------------------------------------------------------------------


def never_put_off(forms: Forms, number: int) -> tuple[Way, ...]:
    return tuple(way._replace(put_off=frozenset()) for way in RIGHT(forms, number))


def always_once(forms: Forms, number: int) -> tuple[Way, ...]:
    return tuple(way._replace(after=way.after - {number}) for way in RIGHT(forms, number))


def without_delay(forms: Forms, number: int) -> tuple[Way, ...]:
    return tuple(way for way in RIGHT(forms, number) if number not in way.put_off)


def one_class(transitions: Any) -> Any:
    return (tuple(t._replace(target=0) for out in transitions for t in out),)


RIGHT = Forms.ways
FAULTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "an eventually is never put off": (Forms, "ways", never_put_off),
    "an always is over after one step": (Forms, "ways", always_once),
    "an eventually cannot wait": (Forms, "ways", without_delay),
    "everything follows from everything": (Forms, "follows", lambda forms, one, other: True),
    "every formula is suspended": (Forms, "is_suspended", lambda forms, number: True),
    "all states are one": (automaton, "merged", one_class),
    "behaviours never stay": (product._Building, "_stays", lambda building, keys, numbers: iter(())),
    "every state is right": (product._Building, "_true_in", lambda building, literal, states: states >= 0),
    "every step is right": (product._Building, "_true_of", lambda building, literal, steps: steps >= 0),
}


@pytest.mark.parametrize("planted", FAULTS)
def test_a_planted_fault_is_noticed(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[planted])
    assert any(is_wrong(case(random.Random(seed))) for seed in range(400))


def is_wrong(case: Case) -> bool:
    try:
        return fault(case) is not None
    except (SystemFailure, AssertionError, KeyError, IndexError):
        return True
