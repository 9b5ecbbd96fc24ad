"""The plain explorer, against which engines are checked, is itself checked against the naive one."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from campaigns import THOROUGH, campaign_if
from checker.engines import brute
from checker.engines.random_protocols import RandomProtocol, protocols, reduced, seeded
from hypothesis import given

from fencepost import Protocol, action, check, constant, invariant, require, state
from fencepost.checker.engines import reference, search
from fencepost.checker.engines.interface import Exploration, Found
from fencepost.checker.engines.options import ReferenceOptions
from fencepost.language.seam import Model
from fencepost.semantics import Stepper

SEEDS = 5_000 if THOROUGH else 150
CAP = 150


def explored(protocol: Model, **options: Any) -> tuple[Stepper, Exploration]:
    stepper = Stepper(protocol)
    return stepper, reference.explore(stepper, ReferenceOptions(workers=1, **options))


def taken_by_title(stepper: Stepper, counts: dict[int, int]) -> Counter[str]:
    return +Counter({root.title: counts[root.index] for root in stepper.of_kind("action")})


def difference(random: RandomProtocol, keep_going: bool, deadlock: bool) -> str | None:
    """The difference between the plain explorer and the naive one, or None."""
    protocol = random.build()
    expected = brute.explore(protocol, keep_going=keep_going, deadlock=deadlock, cap=CAP)
    limit = None if expected.complete else expected.depth
    stepper, got = explored(random.build(), keep_going=keep_going, deadlock=deadlock, max_depth=limit)
    if got.raised is not None and got.distinct:  # a protocol without any state raises that
        raise got.raised
    for what, ours, theirs in (
        ("distinct", expected.distinct, got.distinct),
        ("generated", expected.generated, got.generated),
        ("depth", expected.depth, got.depth),
        ("queue", expected.queue, got.queue),
        ("complete", expected.complete, got.complete),
        ("taken", expected.taken, taken_by_title(stepper, got.taken)),
        ("broken", expected.broken, {f.name: 1 + len(f.path) for f in got.found}),
        ("reached", expected.reached, {f.name: 1 + len(f.path) for f in got.witnesses}),
    ):
        if ours != theirs:
            return f"{what}: {ours} expected, got {theirs}"
    starts = expected.levels[0] if expected.levels else 0
    if sum(got.new.values()) != expected.distinct - starts:
        return f"new: {expected.distinct - starts} expected, got {sum(got.new.values())}"
    if any(got.new[i] > got.taken[i] for i in got.new):
        return "an action discovered more states than it was taken"
    for found in [*got.found, *got.witnesses]:
        if not genuine(stepper.protocol, stepper, found):
            return f"the counterexample, or the witness, to {found.name} is none"
    return None


def genuine(protocol: Model, stepper: Stepper, found: Found) -> bool:
    """Whether a counterexample is valid, by the naive explorer's steps."""
    slots = {brute.tag(slot.path): (slot, value) for slot, value in found.initial.slots()}
    row = brute.Row(
        {p: (s, v) for p, (s, v) in slots.items() if brute.tag(v) != brute.tag(s.default) and s.path != ("view()",)}
    )
    before = row
    actions = {
        (d.name, brute.tag(tuple(p.items()))): (d, p)
        for d in protocol.declared("action")
        for p in d.parameters(protocol)
    }
    for number, choices in found.path:
        root = stepper.roots[number]
        declared, parameters = actions[(root.name, brute.tag(tuple(root.parameters.items())))]
        before = row
        row = dict(brute.runs(protocol, declared.function, row, **parameters))[tuple(choices)]
    if found.kind == "deadlock":
        return not any(list(brute.runs(protocol, d.function, row, **p)) for d, p in actions.values())
    if found.kind == "sometimes":
        root = next(root for root in stepper.roots if root.title == found.name)
        return bool(root.declared.function(protocol.bound_to(brute._Cursor(row, ())), **root.parameters))
    declared = next(d for d in protocol.declared(found.kind) if d.name == found.name)
    return not brute.holds(protocol, declared, *((row,) if found.kind == "invariant" else (before, row)))


@pytest.mark.parametrize("keep_going", [False, *campaign_if(bool, [True])])
@given(random=protocols())
def test_agrees_with_the_naive_explorer(keep_going: bool, random: RandomProtocol) -> None:
    assert difference(random, keep_going, deadlock=True) is None


@pytest.mark.parametrize("part", campaign_if(lambda part: part != 1, range(5)))
def test_agrees_with_the_naive_explorer_on_evenly_distributed_protocols(part: int) -> None:
    for seed in range(part * SEEDS // 5, (part + 1) * SEEDS // 5):
        random, keep_going, deadlock = seeded(seed), seed % 3 != 0, seed % 2 == 0
        found = difference(random, keep_going, deadlock)
        if found is not None:
            small = reduced(random, partial(difference, keep_going=keep_going, deadlock=deadlock))
            pytest.fail(
                f"seed {seed}, {keep_going=}, {deadlock=}: {difference(small, keep_going, deadlock)}\n{small!r}"
            )


class Field(Protocol):
    """A walk over a square field. A number of invariants read every state."""

    side: int = constant(10)
    looks: int = constant(1)
    x: int = state(0)
    y: int = state(0)

    @action
    def right(self) -> None:
        require(self.x < self.side - 1)
        self.x += 1

    @action
    def up(self) -> None:
        require(self.y < self.side - 1)
        self.y += 1

    @invariant(look=lambda p: range(p.looks))
    def inside(self, look: int) -> bool:
        return self.x < self.side and self.y < self.side


@pytest.mark.parametrize(
    ("side", "looks", "engine"), [(10, 1, "interpreted"), (110, 0, "embedded"), (14, 60, "embedded")]
)
def test_which_engine_answers_depends_on_the_protocol_and_not_on_the_clock(
    side: int, looks: int, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every read of the clock takes an hour."""
    hours = itertools.count(step=3600)
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: float(next(hours))))
    result = check(Field(side=side, looks=looks), workers=1).must_hold()
    assert (result.engine, result.distinct_states) == (engine, side * side)


def test_automatic_keeps_to_a_limit_that_was_given() -> None:
    result = check(Field(), max_states=50, workers=1)
    assert (result.verdict, result.limit) == ("not complete", "the limit of 50 states")
