"""Small graphs as protocols, and a second way to decide whether a property holds: by sets of states.

An infinite fair behaviour visits some set of states infinitely often, and may take every step between them infinitely
often. So a property is violated if some reachable, strongly connected set of states meets all fairness demands and
fails the property. Six states have 63 such sets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st

from fencepost import (
    Protocol,
    action,
    always_eventually,
    constraint,
    eventually_always,
    initial,
    leads_to,
    one_of,
    state,
    strong,
    weak,
)

ACTIONS = ("a", "b", "c")
Demand = tuple[bool, frozenset[str]]


@dataclass(frozen=True)
class Small:
    """States 0 to ``size`` - 1, the steps of each action, fairness demands as (strong, actions), the states outside a
    constraint, and the states where the predicates ``p`` and ``q`` are true.
    """

    size: int
    starts: frozenset[int]
    steps: dict[str, frozenset[tuple[int, int]]]
    demands: tuple[Demand, ...]
    outside: frozenset[int]
    p: frozenset[int]
    q: frozenset[int]


@st.composite
def graphs(draw: Any) -> Small:
    """A random small graph."""
    size = draw(st.integers(1, 6))
    one = st.integers(0, size - 1)
    some = st.frozensets(one, max_size=size)
    steps = {a: draw(st.frozensets(st.tuples(one, one), max_size=2 * size)) for a in ACTIONS}
    demand = st.tuples(st.booleans(), st.frozensets(st.sampled_from(ACTIONS), min_size=1))
    return Small(
        size,
        draw(st.frozensets(one, min_size=1, max_size=2)),
        steps,
        tuple(draw(st.lists(demand, max_size=3))),
        draw(st.frozensets(one, max_size=1)) if draw(st.booleans()) else frozenset(),
        draw(some),
        draw(some),
    )


def protocol(small: Small, kind: str) -> Protocol:
    """The graph as a protocol with one temporal property, ``expected``."""

    def expected(self: Any) -> Any:
        return (self.at in small.p, self.at in small.q) if kind == "leads_to" else self.at in small.p

    declare: dict[str, Callable[..., Any]] = {
        "always_eventually": always_eventually,
        "eventually_always": eventually_always,
        "leads_to": leads_to,
    }
    made: Protocol = type("Drawn", (Protocol,), {**body_of(small), "expected": declare[kind](expected)})()
    return made


def body_of(small: Small) -> dict[str, Any]:
    """The declarations of the graph as a protocol, without a property."""

    def start(self: Any) -> None:
        self.at = one_of(sorted(small.starts))

    def taking(name: str) -> Any:
        def take(self: Any) -> None:
            self.at = one_of([after for before, after in sorted(small.steps[name]) if before == self.at])

        take.__name__ = name
        return action(take)

    def inside(self: Any) -> bool:
        return self.at not in small.outside

    actions = {name: taking(name) for name in ACTIONS}
    fairness = tuple(
        (strong if is_strong else weak)(*(actions[n] for n in sorted(names)), per=())
        for is_strong, names in small.demands
    )
    return {
        "at": state(0),
        "start": initial(start),
        "inside": constraint(inside),
        "fairness": fairness,
        **actions,
    }


def stems(small: Small, kind: str) -> list[int]:
    """The least number of steps before the loop, for each set of states that a violating behaviour can end in."""
    inside = set(range(small.size)) - small.outside
    steps = {(x, y) for name in ACTIONS for x, y in small.steps[name] if x != y and x in inside and y in inside}
    enabled = {name: {x for x, y in small.steps[name] if x != y} for name in ACTIONS}
    # A state, and whether the first predicate of leads-to was true without the second since.
    awaited = kind == "leads_to"
    distance: dict[tuple[int, bool], int] = {}
    fresh = {(s, False) for s in small.starts & inside}
    for d in itertools.count():
        fresh |= {(s, True) for s, _ in fresh if s in small.p and s not in small.q}
        fresh -= distance.keys()
        if not fresh:
            break
        distance |= dict.fromkeys(fresh, d)
        fresh = {
            (y, after) for x, was in fresh for z, y in steps if z == x for after in {False, was and y not in small.q}
        }
    found = []
    for size in range(1, small.size + 1):
        for chosen in map(set, itertools.combinations(sorted(inside), size)):
            ends = chosen - small.p if kind == "eventually_always" else chosen
            near = [distance[s, awaited] for s in ends if (s, awaited) in distance]
            if near and _connected(chosen, steps) and _fair(small, chosen, enabled) and _wrong(small, kind, chosen):
                found.append(min(near))
    return found


def _connected(chosen: set[int], steps: set[tuple[int, int]]) -> bool:
    for start in chosen:
        seen, waiting = {start}, [start]
        while waiting:
            x = waiting.pop()
            more = {y for z, y in steps if z == x and y in chosen} - seen
            seen |= more
            waiting += more
        if seen != chosen:
            return False
    return True


def _fair(small: Small, chosen: set[int], enabled: dict[str, set[int]]) -> bool:
    for is_strong, names in small.demands:
        taken = any(x != y and x in chosen and y in chosen for n in names for x, y in small.steps[n])
        possible = {s for n in names for s in enabled[n]} & chosen
        if not taken and (possible if is_strong else possible == chosen):
            return False
    return True


def _wrong(small: Small, kind: str, chosen: set[int]) -> bool:
    if kind == "always_eventually":
        return not chosen & small.p
    return not chosen <= small.p if kind == "eventually_always" else not chosen & small.q


def fair_loop(small: Small, loop: list[int]) -> bool:
    """Whether a loop is a fair one of the graph. It ends with its first state, or is one state to stay in."""
    pairs = set(itertools.pairwise(loop))
    real = all(any(pair in small.steps[n] for n in ACTIONS) for pair in pairs)
    for is_strong, names in small.demands:
        taken = any(pair in small.steps[n] for n in names for pair in pairs)
        possible = [any(x == s != y for n in names for x, y in small.steps[n]) for s in loop]
        if not taken and (any(possible) if is_strong else all(possible)):
            return False
    return real
