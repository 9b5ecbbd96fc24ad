"""Refinements checked up to symmetry: the verdict without it, refusals, and mappings that tell members apart."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from checker.engines.compare import by_embedded, by_reference, disagreement
from checker.engines.random_protocols import RandomProtocol
from checker.engines.symmetric_protocols import HEADER, symmetric
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost import (
    ModelValue,
    OptionError,
    PerKey,
    Protocol,
    action,
    check,
    constant,
    initial,
    model_values,
    one_of,
    per_key,
    refines,
    require,
    state,
)

# -- random pairs -----------------------------------------------------------------------------------------------------

VARIABLES = ("cell", "pair", "seen", "last", "chief", "group", "queue")
"""The variables of the refining protocol that the other one may have too, by the same name."""
DECLARED = [line.strip() for line in HEADER.splitlines() if line.strip().split(":")[0] in VARIABLES]
CHANGES = (
    "s.cell[n] = one_of((0, 1, 2))", "s.cell[m] = (s.cell[m] + 1) % 2", "s.pair[n][m] = not s.pair[n][m]",
    "s.chief = n", "s.chief = None", "s.group ^= {n}", "s.group = frozenset()", "s.queue = (*s.queue, n)[-2:]",
    "s.queue = s.queue[1:]", "s.last = s.last.set(n, one_of((0, 1)))", "s.last = s.last.without(m)",
    "s.seen.by = n", "s.seen.count = one_of((0, 1))",
)  # fmt: skip
"""Steps of the other protocol."""
TOTALS = ("sum(self.cell.values())", "len(self.group)", "int(self.chief is None)", "len(self.queue)")
"""A number that is computed from a state, whatever the names of its nodes."""


def pair(seed: int) -> RandomProtocol:
    """A random symmetric protocol that may refine another one, which has some of its variables and a computed one."""
    draw = random.Random(seed)
    names = [name for name in VARIABLES if draw.random() < 0.35]
    steps = [text for text in CHANGES if all(f"s.{name}" not in text for name in VARIABLES if name not in names)]
    lines = [
        "class Other(Protocol):",
        "    nodes: Any = model_values('n', 3, symmetric=True)",
        "    total: Any = state(0)",
    ]
    lines += [f"    {line}" for line in DECLARED if line.split(":")[0] in names]
    lines += ["    @initial", "    def start(s):", "        s.total = one_of(range(7))"]
    lines += [f"        {text}" for text in ("s.chief = one_of((None, *s.nodes))",) if "chief" in names]
    for a in range(draw.randint(4, 9)):
        lines += ["    @action(n=nodes, m=nodes)", f"    def b{a}(s, n, m):"]
        lines += [f"        {text}" for text in draw.sample(steps, min(len(steps), draw.randint(0, 2)))]
        lines += ["        s.total = one_of(range(7))"] if draw.random() < 0.7 else ["        pass"]
    source = symmetric(seed).source
    head, rest = source.split("class P(Protocol):")
    mapping = f"{{'total': lambda self: {draw.choice(TOTALS)}}}"
    return RandomProtocol(
        f"{head}\n{chr(10).join(lines)}\nclass P(Protocol):{rest}    as_other: Any = refines(Other, {mapping})\n"
    )


def agrees(seed: int) -> int | None:
    """Compare with the search of every state. Returns the length of the counterexample, if there is one."""
    build: Callable[[], Protocol] = pair(seed).build
    limit: dict[str, Any] = {"keep_going": True, "max_depth": 4}
    whole, expected = by_reference(build(), **limit), by_reference(build(), symmetry=True, **limit)

    def length(told: dict[str, Any]) -> int | None:
        return next((len(path) + 1 for kind, _, _, path in told["found"] if kind == "refinement"), None)

    if whole["raised"] is not None:  # no initial state is within the constraints
        assert expected["raised"] == whole["raised"]
        return None
    assert length(whole) == length(expected), pair(seed)
    for workers in (1, 2):
        assert disagreement(expected, by_embedded(build(), symmetry=True, workers=workers, **limit)) is None, seed
    return length(expected)


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 100_000))
def test_the_verdict_is_that_without_symmetry(seed: int) -> None:
    agrees(seed)


def test_the_pairs_are_of_many_kinds() -> None:
    lengths = [agrees(seed) for seed in (4, 6)]
    assert None in lengths and 2 in lengths, lengths


@pytest.mark.campaign
def test_the_verdict_of_many_is_that_without_symmetry() -> None:
    for seed in range(1_000, 1_060):
        agrees(seed)


# -- by hand ----------------------------------------------------------------------------------------------------------


class Lock(Protocol):
    """One client at a time holds it. ``flaw``: how it tells clients apart."""

    clients: tuple[ModelValue, ...] = model_values("c", 3, symmetric=lambda self: self.why)
    why: str = constant("")
    flaw: str = constant("")
    held: ModelValue | None = state(None)

    @initial
    def starts(self) -> None:
        if self.flaw == "initial":
            self.held = one_of((None, self.clients[0]))

    @action(c=clients)
    def take(self, c: ModelValue) -> None:
        require(self.held is None)
        self.held = c

    @action
    def give(self) -> None:
        require(self.held is not None)
        self.held = None


class Plain(Protocol):
    """A lock whose clients nobody declares to be alike."""

    clients: tuple[ModelValue, ...] = model_values("c", 3)
    held: ModelValue | None = state(None)

    @action(c=clients)
    def take(self, c: ModelValue) -> None:
        require(self.held is None)
        self.held = c

    @action
    def give(self) -> None:
        self.held = None


class Count(Protocol):
    """Counts, and knows no client."""

    value: int = state(0)

    @action
    def add(self) -> None:
        self.value += 1

    @action
    def drop(self) -> None:
        self.value -= 1


class Clients(Protocol):
    """Clients that work at a lock. In the hasty configuration, two work at once."""

    clients: tuple[ModelValue, ...] = model_values("c", 3, symmetric=True)
    hasty: bool = constant(False)
    busy: PerKey[ModelValue, bool] = per_key(clients, False)
    at_work: ModelValue | None = state(None)

    @action(c=clients)
    def begin(self, c: ModelValue) -> None:
        require(not any(self.busy.values()) or (self.hasty and self.busy[c] is False))
        self.busy[c] = True
        self.at_work = c

    @action(c=clients)
    def end(self, c: ModelValue) -> None:
        require(self.busy[c])
        self.busy[c] = False
        self.at_work = None if self.at_work == c else self.at_work


def refining(other: type[Protocol], mapping: dict[str, Any], **constants: Any) -> type[Protocol]:
    class Refining(Clients):
        refined = refines(other, mapping, constants=constants)

    return Refining


EVERYWHERE: dict[str, Callable[..., Any]] = {
    "auto": lambda protocol: check(protocol, symmetry=True, workers=1),
    "embedded": lambda protocol: check(protocol, engine="embedded", symmetry=True, workers=1),
    "reference": lambda protocol: check(protocol, engine="reference", symmetry=True),
}


@pytest.mark.parametrize("engine", EVERYWHERE)
def test_a_counterexample_is_a_real_behaviour(engine: str) -> None:
    for held in ("at_work", lambda self: self.at_work):
        one = {"held": held}
        assert EVERYWHERE[engine](refining(Lock, one)()).holds
        trace = EVERYWHERE[engine](refining(Lock, one)(hasty=True)).must_violate("refined")
        assert len(trace) == len(check(refining(Lock, one)(hasty=True)).must_violate("refined")) == 3
    counts = {"value": lambda self: sum(self.busy.values())}
    assert EVERYWHERE[engine](refining(Count, counts)()).holds


@pytest.mark.parametrize(
    ("other", "constants", "why"),
    [
        (Plain, {}, "plain declares no constant with c1 and c2 symmetric"),
        (Lock, {"why": "one is older"}, "lock declares no constant with c1 and c2 symmetric"),
        (Lock, {"flaw": "initial"}, "lock tells c1 and c2 apart by its initial states"),
        (Lock, {"clients": lambda self: self.clients[:2]}, "lock declares no constant with c2 and c3 symmetric"),
    ],
)
def test_another_protocol_that_is_not_symmetric_is_refused(
    other: type[Protocol], constants: dict[str, Any], why: str
) -> None:
    for engine in EVERYWHERE.values():
        with pytest.raises(OptionError, match=f"refined cannot be checked with symmetry of clients: {why}") as refused:
            engine(refining(other, {"held": "at_work"}, **constants)())
        assert "\n" not in str(refused.value) and refused.value.options == ("symmetry", "invariants")


@pytest.mark.parametrize("engine", EVERYWHERE)
@pytest.mark.parametrize(
    ("other", "mapping", "why"),
    [
        (
            Lock,
            {"held": lambda self: self.clients[0] if self.busy[self.clients[1]] else None},
            "tells .* apart, although clients are declared symmetric",
        ),
        (
            Count,
            {"value": lambda self: int(self.busy[self.clients[2]])},
            "tells c1.* and c3 apart, although clients are declared symmetric",
        ),
        (
            Lock,
            {"held": lambda self: 1 // self.busy[self.clients[0]] and None if any(self.busy.values()) else None},
            "raised ZeroDivisionError",
        ),
    ],
)
def test_a_mapping_that_tells_members_apart_is_found(
    engine: str, other: type[Protocol], mapping: dict[str, Any], why: str
) -> None:
    result = EVERYWHERE[engine](refining(other, mapping)())
    assert result.verdict == "raised", result
    assert "refine" in str(result.error) and re.search(why, str(result.error)), result.error
