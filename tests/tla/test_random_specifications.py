"""Random specifications: however one is evaluated and laid out, the answer is that of the plain engine, which holds
each variable in one slot.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from campaigns import THOROUGH, campaign_if
from tla.layouts import Example
from tla.random_specifications import is_symmetric, seeded
from tla.test_layout import model_of

from fencepost import Result, check
from fencepost.checker.compiler import tables
from fencepost.checker.engines import evaluators
from fencepost.semantics import state
from fencepost.tla import layout, protocol
from fencepost.tla.language import TLA
from fencepost.tla.places import Leaf, MapPlace, Members, Place, SetPlace
from fencepost.tla.places import Path as Parts
from fencepost.tla.values import FunctionValue, SetValue, Value

SEEDS = 2_000 if THOROUGH else 200
AT_ONCE = 20
"""The seeds of one test."""

MOST_STATES = 150
"""A larger state space is explored to the last level that was complete with this many states."""

MOST_GENERATED = 2_000
"""One with more steps is left out: it takes long."""

WAYS: dict[str, dict[str, Any]] = {
    "auto": {"engine": "auto"},
    "embedded": {"engine": "embedded", "workers": 1},
    "workers": {"engine": "embedded", "workers": 2},
}


@dataclass(frozen=True)
class Answer:
    """What must not depend on the engine."""

    counts: tuple[int, ...]
    is_complete: bool
    violations: Sequence[tuple[str, str, int]]
    error: int | None
    """The length of the behaviour that leads to an evaluation that failed."""

    failure: str | None
    taken: dict[str, int]


def answer_of(result: Result, example: Example) -> Answer:
    """The answer of a check. How many states are generated depends on which one of an orbit is explored. Where an
    evaluation fails, the plain engine has taken the steps of the actions before it, and the compiled one none.
    """
    counts: tuple[int, ...] = () if result.error is not None else (result.distinct_states, result.depth)
    counts += () if is_symmetric(example) or result.error is not None else (result.generated_states,)
    violations = [(each.name, each.kind, 0 if each.trace is None else len(each.trace)) for each in result.violations]
    failed = None
    if result.error is not None:
        failed = 0 if result.error_trace is None else len(result.error_trace)
    taken = (
        {} if is_symmetric(example) or result.error is not None else {each.name: each.taken for each in result.actions}
    )
    failure = None if result.failure is None else str(result.failure)
    return Answer(counts, result.complete, sorted(violations), failed, failure, taken)


class Bounded:
    """A specification, and its answer as the plain engine gives it. ``options`` bound every search of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.example = seeded(seed)
        self.folder = folder
        self.options: dict[str, Any] = {"keep_going": seed % 4 != 0, "max_states": MOST_STATES}
        result = self.checked(engine="reference")
        self.is_large = result.generated_states > MOST_GENERATED
        if not result.complete and result.limit and not self.is_large:
            self.options = {"keep_going": seed % 4 != 0, "max_depth": max(1, result.depth - 1)}
            result = self.checked(engine="reference")
        self.answer = answer_of(result, self.example)

    def checked(self, **options: Any) -> Result:
        return check(model_of(self.folder, self.example), **{**self.options, **options})

    def __repr__(self) -> str:
        return f"\n{self.example.text}\n{self.example.config}"


def any_place(seed: str, symmetric: bool) -> Callable[..., Place]:
    """Chooses a place at random, of those that are right for some of the values."""

    def place(path: Parts, values: Sequence[Value], is_coarse: bool = False) -> Place:
        # Arguments that are no strings have places that are alike, as symmetry needs.
        chance = random.Random(f"{seed} {[each if type(each) is str else '' for each in path]}")
        functions = [each.explicit() for each in values if isinstance(each, FunctionValue)]
        sets = [each.explicit() for each in values if isinstance(each, SetValue)]
        options: list[Callable[[], Place]] = [lambda: Leaf(path)]
        domains = {tuple(each.domain().explicit().in_order()) for each in functions}
        if functions and not (symmetric and len(domains) > 1):
            domain = tuple(chance.choice(functions).domain().explicit().in_order())
            alike = [each for each in functions if tuple(each.domain().explicit().in_order()) == domain]
            options += [lambda: layout._of_one_domain(path, alike, domain, is_coarse)] * 2
        if functions and not is_coarse:
            keys = {key for each in functions for key in each.domain().members()}
            options.append(lambda: settled(MapPlace(path), keys, chance))
        if sets and not is_coarse:
            members = {member for each in sets for member in each.items}
            options += [lambda: settled(SetPlace(path), members, chance)] * 2
        return chance.choice(options)()

    return place


def settled(made: Members, values: set[Value], chance: random.Random) -> Place:
    """The place, with slots for some of the values."""
    made.settle(each for each in layout.in_any_order(values) if chance.random() < 0.7)
    return made


def force(patch: pytest.MonkeyPatch, chance: random.Random, symmetric: bool) -> None:
    """Has a search be laid out and evaluated in some way."""
    most = chance.choice((8, 20, 60, 200))
    patch.setattr(layout, "FIRST_LOOK", most)
    patch.setattr(layout, "NEAR", max(2, most // 20))
    patch.setattr(layout, "FEW", chance.choice((0, 0, 4)))
    if chance.random() < 0.5:
        patch.setattr(layout, "place", any_place(str(chance.random()), symmetric))
    if chance.random() < 0.2:
        patch.setattr(state, "MOST_MEMBERS", chance.choice((2, 4)))
    if chance.random() < 0.3:
        patch.setattr(protocol, "LONGEST_CHAIN", chance.choice((0, 1)))
    if chance.random() < 0.2:
        patch.setattr(tables, "MANY_LATE", 2)
    calls = chance.choice((30, 200, 5_000))
    patch.setattr("fencepost.api.check.SMALL", {"calls": calls, "queued": 1 << 20, "orbits": 1 << 20})
    if chance.random() < 0.5:
        patch.setattr(evaluators, "FEW", 1)
        patch.setattr(evaluators, "FORKING", -1.0)
        patch.setattr(evaluators, "COPYING", 0.0)


def compare(of: Bounded, seed: int, way: str, **options: Any) -> None:
    """Searches in one way, and compares the answer."""
    with pytest.MonkeyPatch.context() as patch:
        force(patch, random.Random(f"{seed} {way}"), is_symmetric(of.example))
        found = answer_of(of.checked(**options), of.example)
    assert found == of.answer, (seed, way, of)


@pytest.mark.parametrize("part", campaign_if(bool, range(SEEDS // AT_ONCE)))
def test_random_specifications_have_the_answer_of_the_plain_engine(tmp_path: Path, part: int) -> None:
    for seed in range(part * AT_ONCE, part * AT_ONCE + AT_ONCE):
        of = Bounded(tmp_path, seed)
        for way, options in WAYS.items() if not of.is_large else ():
            compare(of, seed, way, **options)


@pytest.mark.parametrize(("seed", "way"), [(760, "workers"), (961, "embedded")])
def test_a_search_does_not_begin_again_for_ever(
    tmp_path: Path, seed: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Values that do not fit where most do appear late each time, whatever is settled.
    settled, begun = TLA.settled, itertools.count(1)

    def counted(*arguments: Any) -> Any:
        assert next(begun) < 10
        return settled(*arguments)

    monkeypatch.setattr(TLA, "settled", counted)
    compare(Bounded(tmp_path, seed), seed, way, **WAYS[way])


def test_a_member_that_an_evaluation_makes_is_read_before_or_after_what_it_read_first(tmp_path: Path) -> None:
    compare(Bounded(tmp_path, 1352), 1352, "workers", **WAYS["embedded"])


@pytest.mark.campaign
def test_checking_mode_gives_it_too(tmp_path: Path) -> None:
    for seed in range(0, SEEDS, 40):
        of = Bounded(tmp_path, seed)
        if not of.is_large:
            compare(of, seed, "checking", engine="embedded", checking=True)
