"""Random temporal formulas over small graphs, and a second way to decide them: by looking at every short lasso.

A formula is a nested tuple, so that it can be printed and evaluated here, without the automaton.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checker.liveness.graphs import ACTIONS, Small, body_of, fair_loop

from fencepost import Protocol, always, enabled, eventually, every_step, now, some_step, temporal
from fencepost.language.declarations import FairSteps
from fencepost.language.temporal import Formula

Shape = tuple[Any, ...]
LONGEST = 6
"""The most states of a lasso that is looked at."""


@dataclass(frozen=True)
class Case:
    """A graph and a formula. ``by_function``: fairness is given by functions of steps, not by actions."""

    small: Small
    shape: Shape
    by_function: bool = False


def case(drawn: random.Random) -> Case:
    """A random graph with a random formula."""
    size = drawn.randint(1, 4)
    pairs = list(itertools.product(range(size), range(size)))
    steps = {a: frozenset(drawn.sample(pairs, drawn.randint(0, min(3, len(pairs))))) for a in ACTIONS}
    some = [frozenset(s for s in range(size) if drawn.random() < 0.5) for _ in range(2)]
    demands = tuple(
        (drawn.random() < 0.5, frozenset(drawn.sample(ACTIONS, drawn.randint(1, 2))))
        for _ in range(drawn.randint(0, 2))
    )
    small = Small(size, frozenset([0]), steps, demands, frozenset(), *some)
    return Case(small, shape(drawn, pairs, drawn.randint(1, 4)), drawn.random() < 0.5)


def shape(drawn: random.Random, pairs: Sequence[tuple[int, int]], depth: int) -> Shape:
    """A random formula with this many levels."""
    if depth == 0 or drawn.random() < 0.1:
        kind = drawn.choice(("p", "p", "q", "q", "true", "enabled", "every_step", "some_step", "taken"))
        if kind in ("enabled", "taken"):
            return kind, drawn.choice(ACTIONS)
        if kind.endswith("step"):
            return kind, frozenset(pair for pair in pairs if drawn.random() < 0.5)
        return (kind,)
    kind = drawn.choice(("not", "and", "or", "implies", "iff", "leads_to", *["always", "eventually"] * 3))
    parts = 1 if kind in ("not", "always", "eventually") else 2
    return (kind, *(shape(drawn, pairs, depth - 1) for _ in range(parts)))


# -- as a protocol -----------------------------------------------------------------------------------------------------


def protocol(case: Case) -> Protocol:
    """The graph as a protocol with the formula as its temporal property, ``expected``."""
    body = body_of(case.small)
    body["expected"] = temporal(lambda self: formula(case, body))
    if case.by_function:
        body["fairness"] = [_by_function(case.small, *demand) for demand in case.small.demands]
    made: Protocol = type("Drawn", (Protocol,), body)()
    return made


def _by_function(small: Small, strong: bool, names: frozenset[str]) -> FairSteps:
    pairs = {(x, y) for name in names for x, y in small.steps[name] if x != y}
    return FairSteps(
        strong,
        title=" or ".join(sorted(names)),
        step=lambda s, after: (s.at, after.at) in pairs,
        enabled=lambda s: any(s.at == x for x, _ in pairs),
    )


def formula(case: Case, body: dict[str, Any]) -> Formula:
    """The formula as the product takes it."""

    def made(shape: Shape) -> Formula:
        kind, *parts = shape
        if kind in ("p", "q"):
            true = getattr(case.small, kind)
            return now(lambda s: s.at in true)
        if kind == "true":
            return eventually(True)
        if kind == "enabled":
            return enabled(body[parts[0]])
        if kind == "taken":
            return some_step(body[parts[0]])
        if kind in ("every_step", "some_step"):
            made_of = every_step if kind == "every_step" else some_step
            return made_of(lambda s, after: (s.at, after.at) in parts[0])
        first, *others = map(made, parts)
        if kind == "and":
            return first & others[0]
        if kind == "or":
            return first | others[0]
        if kind in ("implies", "iff", "leads_to"):
            combined: Formula = getattr(first, kind)(*others)
            return combined
        if kind == "not":
            return ~first
        return always(first) if kind == "always" else eventually(first)

    return made(case.shape)


# -- by looking at lassos ----------------------------------------------------------------------------------------------


def lassos(small: Small) -> Iterator[tuple[list[int], int]]:
    """Every fair lasso with few states: its states, and the index at which the last one stands, too."""
    after: dict[int, set[int]] = {}
    for name in ACTIONS:
        for x, y in small.steps[name]:
            after.setdefault(x, set()).update({y} - {x})
    waiting = [[start] for start in sorted(small.starts)]
    while waiting:
        path = waiting.pop()
        for loop, state in enumerate(path):
            if state == path[-1] and fair_loop(small, path[loop:]):
                yield path, loop
        if len(path) < LONGEST:
            waiting += [[*path, to] for to in sorted(after.get(path[-1], ()))]


def is_true(case: Case, states: list[int], loop: int) -> bool:
    """Whether the formula is true for the behaviour that repeats ``states[loop:]``."""
    small, last = case.small, max(len(states) - 2, loop)

    def following(at: int) -> int:
        return at + 1 if at < last else loop

    def ahead(at: int) -> set[int]:
        return {at} if at == following(at) else set(range(min(at, loop), last + 1))

    def step(at: int) -> tuple[int, int]:
        return states[at], states[following(at)]

    def true(shape: Shape, at: int) -> bool:
        kind, *parts = shape
        if kind in ("p", "q"):
            return states[at] in getattr(small, kind)
        if kind == "true":
            return True
        if kind == "enabled":
            return any(x == states[at] != y for x, y in small.steps[parts[0]])
        if kind in ("taken", "some_step", "every_step"):
            pairs = small.steps[parts[0]] if kind == "taken" else parts[0]
            moves = [step(n) for n in ahead(at) if states[n] != states[following(n)]]
            return all(m in pairs for m in moves) if kind == "every_step" else any(m in pairs for m in moves)
        if kind in ("always", "eventually"):
            return (all if kind == "always" else any)(true(parts[0], n) for n in ahead(at))
        if kind == "leads_to":
            return all(not true(parts[0], n) or any(true(parts[1], m) for m in ahead(n)) for n in ahead(at))
        if kind == "not":
            return not true(parts[0], at)
        one, other = (true(part, at) for part in parts)
        return {"and": one and other, "or": one or other, "implies": other or not one, "iff": one is other}[kind]

    return true(case.shape, 0)


def violations(case: Case) -> Iterator[tuple[list[int], int]]:
    """The short fair lassos for which the formula is false."""
    return ((states, loop) for states, loop in lassos(case.small) if not is_true(case, states, loop))


def by_actions(case: Case) -> Case:
    """The same with fairness given by actions."""
    return replace(case, by_function=False)
