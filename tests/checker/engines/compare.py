"""Compares explorations in everything that must not depend on the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost import Protocol
from fencepost.checker.engines import conclusion, embedded, reference
from fencepost.checker.engines.interface import Exploration, Found
from fencepost.checker.engines.options import EmbeddedOptions, ReferenceOptions
from fencepost.checker.engines.search import Search
from fencepost.checker.liveness.graph import Graph
from fencepost.semantics import Stepper


def counterexample(found: Found | None) -> Any:
    """A counterexample without the numbers of values."""
    if found is None:
        return None
    return found.kind, found.name, found.initial.fingerprint, [(root, tuple(choices)) for root, choices in found.path]


def answer(stepper: Stepper, explored: Exploration) -> dict[str, Any]:
    """The results of an exploration, to compare with ``==``."""
    actions = [root.index for root in stepper.of_kind("action")]
    return {
        "distinct": explored.distinct,
        "generated": explored.generated,
        "depth": explored.depth,
        "queue": explored.queue,
        "complete": explored.complete,
        "limit": explored.limit,
        "interrupted": explored.interrupted,
        "taken": {stepper.roots[i].title: explored.taken.get(i, 0) for i in actions},
        "new": {stepper.roots[i].title: explored.new.get(i, 0) for i in actions},
        "found": [counterexample(found) for found in explored.found],
        "witnesses": [counterexample(found) for found in explored.witnesses],
        "failure": None if explored.failure is None else str(explored.failure),
        "raised": None if explored.raised is None else (str(explored.raised), explored.raised.where),
    }


def by_reference(protocol: Protocol, **options: Any) -> dict[str, Any]:
    """The results of the plain explorer."""
    stepper = Stepper(protocol)
    return answer(stepper, reference.explore(stepper, ReferenceOptions(**{"workers": 1, **options})))


def by_embedded(protocol: Protocol, prepare: Callable[[Stepper], None] | None = None, **options: Any) -> dict[str, Any]:
    """The results of the embedded engine. ``prepare`` gets the stepper first."""
    stepper = Stepper(protocol)
    if prepare is not None:
        prepare(stepper)
    return answer(stepper, embedded.explore(stepper, EmbeddedOptions(**{"workers": 1, **options})))


def graph(explore: Callable[..., object], stepper: Stepper, **options: Any) -> Graph:
    """The graph that an engine records, before it judges temporal properties."""
    graphs: list[Graph] = []

    def conclude(search: Search) -> Exploration:
        assert search.recording is not None
        graphs.append(search.recording.graph())
        return search.result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conclusion, "conclude", conclude)
        explore(stepper, EmbeddedOptions(**options))
    return graphs[0]


def disagreement(expected: dict[str, Any], got: dict[str, Any]) -> str | None:
    """The differences of two results, one line each, or None."""
    lines = [f"{what}: {expected[what]} expected, got {got[what]}" for what in expected if expected[what] != got[what]]
    return "\n".join(lines) or None
