"""Liveness of the embedded engine against the plain explorer: the same graph, verdict and lasso."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from campaigns import THOROUGH, campaign_if
from checker.engines import compare
from checker.engines.random_protocols import RandomProtocol, seeded

from fencepost import Protocol, Result, action, check, leads_to, one_of, require, state
from fencepost.checker.compiler.tables import Tables
from fencepost.checker.engines import embedded, reference
from fencepost.checker.liveness.graph import Graph
from fencepost.semantics import Stepper

SEEDS = 2_000 if THOROUGH else 40
CAP = 400
WAYS: list[dict[str, Any]] = [{"workers": 1}, {"workers": 2}, {"workers": 2, "bits": 128}]


def results_of(result: Result) -> dict[str, Any]:
    """A result without the numbers of values."""
    return {
        "verdict": result.verdict,
        "exit code": result.exit_code,
        "counts": (result.distinct_states, result.generated_states, result.depth),
        "error": str(result.error),
        "violations": [
            (
                v.kind,
                v.name,
                v.trace.loop,
                [s.fingerprint for s in v.trace.states],
                [(s.title, s.choices) for s in v.trace.steps],
            )
            for v in result.violations
            if v.trace is not None
        ],
    }


def graph(engine: Any, protocol: Protocol, **options: Any) -> Graph:
    return compare.graph(engine.explore, Stepper(protocol), **options)


def differences(random: RandomProtocol) -> str | None:
    expected = check(random.build(), engine="reference", max_states=CAP)
    if not expected.complete or expected.error is not None:
        return None
    for way in WAYS:
        got = check(random.build(), engine="embedded", **way)
        if results_of(got) != results_of(expected):
            return f"{way}: {results_of(expected)} expected, got {results_of(got)}"
    return None


@pytest.mark.parametrize("part", campaign_if(bool, range(4)))
def test_engines_agree_on_random_protocols(part: int) -> None:
    for seed in range(part * SEEDS // 4, (part + 1) * SEEDS // 4):
        random = seeded(seed, temporal=True)
        assert differences(random) is None, random


def test_engines_make_the_same_graph() -> None:
    judged = 0
    for seed in range(12):
        random = seeded(30_000 + seed, temporal=True)
        if (
            not (expected := check(random.build(), engine="reference", max_states=CAP)).complete
            or not expected.distinct_states
        ):
            continue
        judged += 1
        for workers in (1, 2):
            one, other = graph(reference, random.build()), graph(embedded, random.build(), workers=workers)
            for name in ("fingerprints", "levels", "starts", "targets", "kinds", "enabled", "truths"):
                assert np.array_equal(getattr(one, name), getattr(other, name)), (name, random)
    assert judged > 5


class Stairs(Protocol):
    """Each of 2,000 states answers a predicate of its own."""

    step: int = state(0)
    foot: int = state(0)
    up: bool = state(False)

    @action
    def begin(self) -> None:
        require(not self.up)
        self.up = True
        self.step = one_of(range(1, 51))
        self.foot = one_of(range(1, 41))

    @leads_to
    def climbs(self) -> tuple[bool, bool]:
        return self.up, self.step + self.foot > 1


def test_the_predicates_of_a_level_are_asked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Mock(wraps=Tables.compiled)
    monkeypatch.setattr(Tables, "compiled", lambda *given, **named: compiled(*given, **named))
    result = check(Stairs())
    assert result.holds and result.distinct_states == 2_001
    assert compiled.call_count < 40
