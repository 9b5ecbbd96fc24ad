"""Random walks: their steps, that they are reproducible everywhere, and reports about them."""

from __future__ import annotations

import contextlib
import io
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from campaigns import campaign_if
from checker.engines.idle import Idle
from checker.engines.random_protocols import seeded
from checker.liveness.locks import Lock, LockOfFairProcesses, StrongLock, WeakLock

from fencepost import (
    ModelValue,
    OptionError,
    PerKey,
    Protocol,
    action,
    check,
    constant,
    constraint,
    initial,
    invariant,
    model_values,
    one_of,
    per_key,
    require,
    state,
    step_constraint,
    step_invariant,
)
from fencepost.behaviours.lasso import is_violated, met
from fencepost.checker.engines import lanes, simulate
from fencepost.checker.engines.interface import Exploration
from fencepost.checker.engines.options import SimulationOptions
from fencepost.checker.liveness.graph import Terms
from fencepost.language.loading import shipped
from fencepost.semantics import Branch, Fork, Leaf, Outcome, Read, Stepper, deadline
from fencepost.semantics.state import LOW

Row = tuple[int, ...]
Link = tuple[int, tuple[int, ...]]


# -- a walk in plain Python -------------------------------------------------------------------------------------------


def mixed(key: int, word: int) -> int:
    z = key ^ word
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & LOW
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & LOW
    return z ^ (z >> 31)


GOLDEN = 0x9E3779B97F4A7C15


def random_bits(seed: int, number: int, step: int) -> int:
    return mixed(mixed(seed * GOLDEN & LOW, number + GOLDEN & LOW), step * GOLDEN & LOW)


def leaves(branch: Branch) -> Iterator[Leaf]:
    if isinstance(branch, Read):
        yield from leaves(branch.then)
    elif isinstance(branch, Fork):
        for part in branch.branches:
            yield from leaves(part)
    elif isinstance(branch, Leaf):
        yield branch


class Plain:
    """The walks of a seed, by the author's Python and the rule in `engines.walks`."""

    def __init__(self, protocol: Protocol, seed: int, depth: int) -> None:
        self.stepper = Stepper(protocol)
        self.seed, self.depth = seed, depth
        self.starts = [s.ids for s in self.stepper.initial_states() if self.inside(s.ids)]

    def inside(self, row: Row) -> bool:
        return not any(self.stepper.outcomes(c, row) for c in self.stepper.of_kind("constraint"))

    def steps(self, row: Row) -> Iterator[tuple[int, Outcome, Row]]:
        """The steps that a walk may take. Options of a choice with the same effect are one step, and those without
        effect are none.
        """
        for root in self.stepper.of_kind("action"):
            for leaf in leaves(self.stepper.evaluate(root, row)):
                effects = set()
                for outcome in sorted(leaf.outcomes, key=lambda o: o.choices):
                    effect = tuple(sorted(outcome.writes.items()))
                    after = self.stepper.apply(row, outcome)
                    if not effect or effect in effects:
                        continue
                    effects.add(effect)
                    if not any(self.stepper.outcomes(c, row, after) for c in self.stepper.of_kind("step_constraint")):
                        yield root.index, outcome, after

    def time(self, number: int, step: int, root: int, choices: Sequence[int]) -> tuple[float, float]:
        """The winner of a race among actions, and then of one among choices, wins the race of pairs."""
        who = simulate.key_of(self.stepper.roots[root], True)
        what = how = simulate.key_of(self.stepper.roots[root], False)
        for choice in choices:
            how = mixed(how, choice + 1)
        bits, taste = random_bits(self.seed, number, step + 1), random_bits(self.seed, number, 1 << 62)

        def arrival(key: int, rarer: int) -> float:
            return -math.log(((mixed(bits, key) >> 12) + 0.5) / (1 << 52)) * 8.0**rarer

        return (
            arrival(who, (mixed(taste, who) >> 62) + (mixed(taste, what) >> 62)),
            arrival(how, mixed(taste, how) >> 62),
        )

    def walk(self, number: int) -> tuple[list[Row], list[Link]]:
        rows = [self.starts[random_bits(self.seed, number, 0) % len(self.starts)]]
        path: list[Link] = []
        while len(rows) < self.depth and self.inside(rows[-1]):
            step = len(path)
            possible = list(self.steps(rows[-1]))
            if not possible:
                break
            root, outcome, after = min(possible, key=lambda s: self.time(number, step, s[0], s[1].choices))
            rows.append(after)
            path.append((root, outcome.choices))
        return rows, path

    def wrong(self, rows: Sequence[Row], path: Sequence[Link]) -> list[tuple[int, int, str]]:
        """The violations of a walk: the number of steps, and the index and the name of the property."""
        stepper = self.stepper
        found = []
        for n, row in enumerate(rows):
            found += [(n, r.index, r.name) for r in stepper.of_kind("invariant") if stepper.outcomes(r, row)]
            if n:
                judges = stepper.of_kind("step_invariant")
                found += [(n, r.index, r.name) for r in judges if stepper.outcomes(r, rows[n - 1], row)]
            if self.inside(row) and not any(stepper.outcomes(r, row) for r in stepper.of_kind("action")):
                found.append((n, len(stepper.roots), "deadlock"))
        return sorted(found)

    def reached(self, rows: Sequence[Row]) -> dict[str, int]:
        """The ``sometimes`` properties that a walk reaches, by title: the number of the first state, from 1."""
        found: dict[str, int] = {}
        for n, row in enumerate(rows):
            for root in self.stepper.of_kind("sometimes"):
                if self.stepper.outcomes(root, row):
                    found.setdefault(root.title, n + 1)
        return found

    def loops(self, rows: Sequence[Row]) -> Iterator[tuple[str, int, int]]:
        """The temporal properties that a walk violates by a loop: the property, and the steps that close and begin the
        loop.
        """
        stepper = self.stepper
        terms = Terms(stepper)
        for last, row in enumerate(rows):
            for first in range(last, -1, -1):
                if (
                    rows[first] == row
                    and self.inside(row)
                    and all(met(stepper, terms.conditions, rows[first : last + 1]))
                ):
                    for p in terms.properties:
                        if is_violated(stepper, p.promise, rows[: last + 1], first):
                            yield p.name, last, first


# -- walks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bookkeeper-4.13", "ledger-chaining"])
@pytest.mark.parametrize("number", [0, 3, 1234567])
def test_a_walk_is_one_of_the_author_s_python(name: str, number: int) -> None:
    protocol = shipped(name)()
    plain = Plain(protocol, 99, 30)
    _, path = plain.walk(number)
    found = explored(protocol, seed=99, depth=30, walk=number).walk
    assert found is not None and len(path) > 1
    assert [(root, tuple(choices)) for root, choices in found.path] == path


@pytest.mark.parametrize("number", campaign_if(lambda number: number >= 8, range(40)))
def test_walks_of_random_protocols(number: int) -> None:
    protocol = seeded(number).build()
    plain = Plain(protocol, 5, 12)
    expected: dict[str, tuple[int, int]] = {}
    taken: Counter[int] = Counter()
    longest = 0
    walks = [plain.walk(n) for n in range(12)] if plain.starts else []
    for n, (rows, path) in enumerate(walks):
        taken.update(root for root, _ in path)
        longest = max(longest, len(rows))
        for step, _, name in plain.wrong(rows, path):
            expected.setdefault(name, (n, step + 1))
        for title, walked in plain.reached(rows).items():
            expected.setdefault(title, (n, walked))
    exploration = explored(protocol, seed=5, depth=12, walks=12, keep_going=True, deadlock=True)
    # A violation in an initial state is reported for that state, before any walk.
    told = [*exploration.found, *exploration.witnesses]
    initial = {f.name for f in told if f.walk is None}
    starts = [s.ids for s in plain.stepper.initial_states()]
    wrong = {n for row in starts for _, _, n in plain.wrong([row], []) if n != "deadlock"}
    assert initial == wrong | {title for row in starts for title in plain.reached([row])}
    got = {f.name: (f.walk, f.walked) for f in told if f.walk is not None}
    assert got == {name: at for name, at in expected.items() if name not in initial}
    assert ({r: n for r, n in exploration.taken.items() if n}, exploration.depth) == (dict(taken), longest)
    assert exploration.walks is not None and exploration.walks.steps == sum(taken.values())


def test_without_continue_the_lowest_walk_is_told() -> None:
    protocols = [seeded(n).build() for n in range(40)]
    lowest = 0
    for protocol in protocols:
        plain = Plain(protocol, 5, 12)
        exploration = explored(protocol, seed=5, depth=12, walks=12)
        if not exploration.found or exploration.found[0].walk is None:
            continue
        walks = [plain.walk(n) for n in range(12)]
        first = next(
            (n, plain.wrong(*w)) for n, w in enumerate(walks) if [v for v in plain.wrong(*w) if v[2] != "deadlock"]
        )
        (found,) = exploration.found
        step, _, name = next(v for v in first[1] if v[2] != "deadlock")
        assert (found.walk, found.walked, found.name) == (first[0], step + 1, name)
        expected: dict[str, tuple[int, int]] = {}
        for n, (rows, _) in enumerate(walks[: first[0] + 1]):
            for title, walked in plain.reached(rows[: step + 1] if n == first[0] else rows).items():
                expected.setdefault(title, (n, walked))
        assert {
            f.name: (f.walk, f.walked) for f in exploration.witnesses if f.walk is not None
        }.items() <= expected.items()
        assert {f.name for f in exploration.witnesses} >= expected.keys()
        lowest += 1
    assert lowest > 5


@pytest.mark.parametrize("number", range(24))
def test_loops_of_random_protocols(number: int) -> None:
    protocol = seeded(number, temporal=True).build()
    plain = Plain(protocol, 3, 7)
    expected: dict[str, tuple[int, int, int]] = {}
    for n in range(4) if plain.starts else ():
        for name, last, first in plain.loops(plain.walk(n)[0]):
            expected.setdefault(name, (n, last + 1, first))
    exploration = explored(protocol, seed=3, depth=7, walks=4, keep_going=True)
    assert exploration.failure is None
    assert {f.name: (f.walk, f.walked) for f in exploration.found} == {
        name: found[:2] for name, found in expected.items()
    }
    assert all(f.loop is not None and f.loop <= expected[f.name][2] for f in exploration.found), (
        "a lasso is only shortened"
    )
    together = explored(protocol, seed=3, depth=7, walks=4, keep_going=True, workers=2)
    assert told(together) == told(exploration)


@pytest.mark.parametrize(
    ("lock", "stays_out"), [(Lock, True), (WeakLock, True), (StrongLock, False), (LockOfFairProcesses, True)]
)
def test_whoever_waits_enters(lock: type[Protocol], stays_out: bool) -> None:
    only = ["whoever_waits_enters"]
    result = check(lock(), engine="simulate", invariants=only, seed=1, walks=2_000, depth=30)
    assert bool(result.violations) is stays_out is bool(check(lock(), engine="reference", invariants=only).violations)
    if not stays_out:
        return
    trace = result.must_violate("whoever_waits_enters")
    assert result.exit_code == 13 and trace.loop is not None
    assert trace.states[-1] == trace.states[trace.loop]
    assert f"met by walk {result.violations[0].walk}" in str(result) and "for ever" in str(result)


# -- reproducibility --------------------------------------------------------------------------------------------------


def explored(protocol: Protocol, **options: Any) -> Exploration:
    return simulate.explore(Stepper(protocol), SimulationOptions(**{"workers": 1, "seed": 7, **options}))


def told(exploration: Exploration) -> Any:
    """Results that must not depend on how a simulation runs, unlike how far later walks were when one ended it."""
    found = [(f.kind, f.name, f.walk, f.walked, list(f.path)) for f in [*exploration.found, *exploration.witnesses]]
    counts = exploration.taken, exploration.generated, exploration.distinct, exploration.depth, exploration.walks
    return found, str(exploration.raised), None if exploration.limit is None else counts


@pytest.mark.parametrize("fixed", [False, *campaign_if(bool, [True])])
def test_workers_and_lanes_change_nothing(fixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(**options: Any) -> Any:
        walks = 10_000 if fixed else 30_000
        return told(explored(shipped("bookkeeper-4.13")(recovery_reads_fence=fixed), walks=walks, seed=2, **options))

    expected = answer()
    assert bool(expected[0]) is not fixed
    assert answer(workers=2) == expected
    monkeypatch.setattr(lanes, "LANES", 3)
    assert answer(workers=2) == expected


SCRIPT = """
from fencepost import SimulationOptions
from fencepost.checker.engines import simulate
from fencepost.language.loading import shipped
from fencepost.semantics import Stepper
e = simulate.explore(Stepper(shipped("bookkeeper-4.13")()), SimulationOptions(workers=1, seed=3, walks=500))
print(e.distinct, e.generated, sorted(e.taken.items()), e.walks)
"""


def test_python_s_hash_seed_changes_nothing() -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2"}
    other = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    ).stdout
    ours = io.StringIO()
    with contextlib.redirect_stdout(ours):
        exec(SCRIPT, {})
    assert other == ours.getvalue() != ""


def test_a_walk_does_not_depend_on_what_is_checked() -> None:
    class Judged(Counters):
        @step_invariant
        def rarely(self, after: Any) -> bool:
            return bool(after.colour is Colour.RED)

        @invariant
        def small(self) -> bool:
            return all(self.count[c] < 4 for c in self.clients)

    walk = explored(Counters(), walk=5).walk
    judged = explored(Judged(), walk=5, keep_going=True)
    assert walk is not None and judged.walk is not None
    assert {f.name for f in judged.found} == {"small", "rarely"}
    names = [
        [simulate.key_of(Stepper(p).roots[r], True) for r, _ in w.path]
        for p, w in ((Counters(), walk), (Judged(), judged.walk))
    ]
    assert names[0] == names[1]


def test_walks_of_other_seeds_are_others() -> None:
    paths = {tuple(explored(Counters(), walk=n, seed=s).walk.path) for n in range(5) for s in range(5)}  # type: ignore[union-attr]
    assert len(paths) == 25
    again = [explored(Counters(), seed=None, walk=0).walk for _ in range(3)]
    assert len({tuple(w.path) for w in again if w is not None}) == 3


# -- findings ---------------------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Counters(Protocol):
    """Counters that clients raise and lower."""

    clients: Any = model_values("c", 2)
    limit: int = constant(6)
    starts: int = constant(1)
    count: PerKey[ModelValue, int] = per_key(lambda p: p.clients, 0)
    colour: Any = state(Colour.RED)
    even: Any = state(True)

    @initial
    def begin(self) -> None:
        self.count[self.clients[0]] = one_of(range(self.starts))

    @action(c=lambda p: p.clients)
    def up(self, c: Any) -> None:
        require(self.count[c] < self.limit)
        self.count[c] += one_of((1, 2))

    @action(c=lambda p: p.clients)
    def down(self, c: Any) -> None:
        require(self.count[c] > 0)
        self.count[c] -= 1

    @action
    def paint(self) -> None:
        require(self.colour is Colour.RED)
        self.colour = one_of((Colour.RED, Colour.GREEN))


def test_every_step_is_taken_by_some_walk() -> None:
    """For every state of a small space and each of its successors, some walk takes that step."""
    plain = Plain(Counters(limit=1), 11, 8)
    wanted, todo = set(), list(plain.starts)
    known = set(todo)
    while todo:
        row = todo.pop()
        for root, outcome, after in plain.steps(row):
            wanted.add((row, root, outcome.choices))
            if after not in known:
                known.add(after)
                todo.append(after)
    taken: set[Any] = set()
    for n in range(400):
        rows, path = plain.walk(n)
        taken |= {(row, *link) for row, link in zip(rows, path, strict=False)}
    assert taken == wanted and len(wanted) > 30


def test_walks_begin_in_every_initial_state() -> None:
    begun = {explored(Counters(starts=4), walk=n).walk.initial.ids for n in range(40)}  # type: ignore[union-attr]
    assert len(begun) == 4


def test_a_violation_is_found_and_shortened() -> None:
    class High(Counters):
        @invariant
        def together_below(self) -> bool:
            return sum(self.count[c] for c in self.clients) < 9

    result = check(High(), engine="simulate", seed=1, workers=1)
    shortest = check(High(), engine="reference").must_violate("together_below")
    trace = result.must_violate("together_below")
    violation = result.violations[0]
    assert len(trace) == len(shortest) == 6 and violation.walked > 6
    assert (result.exit_code, result.complete, result.limit) == (12, False, None)
    told = str(result)
    assert (
        f"A counterexample, perhaps not the shortest, met by walk {violation.walk} after {violation.walked} states, and"
        " shortened" in told
    )
    whole = check(High(), engine="simulate", seed=1, walk=violation.walk)
    assert len(whole.must_violate("together_below")) == violation.walked
    assert f"met by walk {violation.walk}: {violation.walked} states" in str(whole)


def test_violations_of_the_initial_state() -> None:
    class Wrong(Counters):
        @invariant
        def none_has_two(self) -> bool:
            return all(self.count[c] != 2 for c in self.clients)

    result = check(Wrong(starts=4), engine="simulate", seed=1)
    assert len(result.must_violate("none_has_two")) == 1
    assert result.walks is not None and result.walks.walks == 0


def test_a_step_invariant() -> None:
    class Stepwise(Counters):
        @step_invariant
        def never_two_at_once(self, after: Any) -> bool:
            return all(after.count[c] < self.count[c] + 2 for c in self.clients)

    trace = check(Stepwise(), engine="simulate", seed=1).must_violate("never_two_at_once")
    assert [s.action for s in trace.steps] == ["up"]


@pytest.mark.parametrize("kind", ["idle until", "idle but", "together", "reads late"])
def test_a_step_invariant_that_is_false_of_a_step_which_changes_nothing_it_reads(kind: str) -> None:
    check(Idle(kind=kind), engine="simulate", seed=1).must_violate("judged")
    assert check(Idle(kind=kind + " cut"), engine="simulate", seed=1, walks=100, depth=30).exit_code == 152


def test_deadlock() -> None:
    class Ends(Protocol):
        n = state(0)

        @action
        def go(self) -> None:
            require(self.n < 3)
            self.n += 1

    result = check(Ends(), engine="simulate", deadlock=True, seed=1)
    assert (result.exit_code, len(result.must_violate("deadlock"))) == (11, 4)
    assert check(Ends(), engine="simulate", seed=1, walks=5).exit_code == 152
    assert not check(Ends(), engine="simulate", seed=1, walks=5, depth=3, deadlock=True).violations


def test_constraints() -> None:
    class Bounded(Counters):
        @constraint
        def small(self) -> bool:
            return all(self.count[c] < 3 for c in self.clients)

        @step_constraint
        def stays_red(self, after: Any) -> bool:
            return after.colour is Colour.RED

        @invariant
        def below_four(self) -> bool:
            return all(self.count[c] < 4 for c in self.clients)

        @invariant
        def below_five(self) -> bool:
            return all(self.count[c] < 5 for c in self.clients)

    result = check(Bounded(), engine="simulate", seed=2, keep_going=True, walks=300)
    assert [v.name for v in result.violations] == ["below_four"], "a state outside is checked, and no walk leaves it"
    assert {a.name: bool(a.taken) for a in result.actions} == {"up": True, "down": True, "paint": False}
    # 9 states are inside, and the walks see them all.
    assert result.distinct_states == 9
    everywhere = check(Bounded(starts=4), engine="simulate", seed=2, walks=50, keep_going=True)
    assert everywhere.walks is not None and everywhere.walks.walks == 50


def test_what_raises_is_told_with_its_walk() -> None:
    class Raising(Counters):
        @action
        def divide(self) -> None:
            require(self.colour is Colour.GREEN)
            self.even = 12 // (self.count[self.clients[0]] - 4) > 0

    def answer(**options: Any) -> Any:
        result = check(Raising(), engine="simulate", seed=1, **options)
        assert result.error is not None
        assert (result.exit_code, result.error.where) == (75, "divide")
        assert "ZeroDivisionError" in str(result.error) and result.error_trace is not None
        assert result.error_trace.states[-1] == result.error.state
        assert "The way to where it was raised" in str(result)
        return [s.title for s in result.error_trace.steps]

    assert answer(workers=1) == answer(workers=2)


def test_what_raises_in_an_initial_state() -> None:
    class Raising(Counters):
        @invariant
        def wrong(self) -> bool:
            return 1 // (self.count[self.clients[0]] - 2) < 5

    result = check(Raising(starts=4), engine="simulate", seed=1)
    assert result.error is not None and result.error_trace is not None
    assert (result.exit_code, len(result.error_trace)) == (75, 1)


# -- reports ----------------------------------------------------------------------------------------------------------


def test_a_simulation_is_never_complete() -> None:
    result = check(Counters(limit=1), engine="simulate", seed=4, walks=500, workers=1)
    assert (result.holds, result.complete, result.verdict, result.exit_code) == (False, False, "not complete", 152)
    walks = result.walks
    assert walks is not None and (walks.seed, walks.walks, walks.depth) == (4, 500, 100)
    assert result.generated_states == 500 + walks.steps and sum(a.taken for a in result.actions) == walks.steps
    assert walks.unseen == {"colour": (Colour.BLUE,), "even": (False,)}
    story = str(result)
    for expected in (
        "The limit of 500 walks was reached.",
        f"Nothing is violated so far: 500 walks of {walks.steps:,} steps, which do not reach every state.",
        "--seed 4 does the same again",
        "Values never seen\n  colour  BLUE\n  even    False",
    ):
        assert expected in story
    assert "new states" not in story and "collision" not in story


def test_one_walk_is_shown() -> None:
    result = check(Counters(), engine="simulate", seed=4, walk=17, depth=9)
    assert result.walk is not None and len(result.walk) == result.depth == 9
    assert "The walk: 9 states" in str(result) and "  8  " in str(result)


def test_time_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some walks, five seconds pass at once."""
    now = [0.0]
    for module in (simulate, deadline):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(simulate, "TICK", 0.0)

    def report(progress: Any) -> None:
        now[0] += 5.0 * bool(progress.walks)

    result = check(Counters(), engine="simulate", timeout=5.0, report=report)
    assert result.limit == "the time limit of 5 seconds" and result.walks is not None and result.walks.walks > 0
    assert result.seconds >= 5.0


def test_ctrl_c_tells_what_is_known() -> None:
    reports = []

    def interrupt(progress: Any) -> None:
        reports.append(progress)
        if progress.walks:
            raise KeyboardInterrupt

    result = check(Counters(), engine="simulate", walks=1 << 40, report=interrupt)
    assert result.interrupted and result.exit_code == 130 and result.walks is not None and result.walks.walks > 0
    assert reports[-1].generated > 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"walks": 5}, "walks is an option of simulation"),
        ({"engine": "embedded", "seed": 0}, "seed is an option of simulation"),
        ({"engine": "simulate", "max_states": 5}, "max_states is an option of a search"),
        ({"engine": "simulate", "bits": 128}, "bits is an option of a search"),
        ({"engine": "simulate", "depth": 0}, "depth is 0: give a number from 1 to 1,000,000"),
        ({"engine": "simulate", "seed": -1}, "seed is -1"),
        ({"engine": "simulate", "walk": 3}, "walk is one walk of a seed"),
        ({"engine": "simulate", "walk": 3, "seed": 1, "walks": 2}, "walk is one walk of a seed"),
    ],
)
def test_options_out_of_place(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        check(Counters(), **options)


@pytest.mark.parametrize("count", [0, 1, 50, 3_000, 400_000, 5_000_000])
def test_the_estimate_of_distinct_states(count: int) -> None:
    rng = np.random.default_rng(count)
    fingerprints = rng.integers(0, 1 << 64, count, np.uint64)
    sketch = np.zeros(1 << 16, np.uint8)
    registers = (fingerprints >> np.uint64(48)).astype(np.int64)
    rest = (fingerprints << np.uint64(16)) | np.uint64(1 << 15)
    # The position of the first set bit, from 1.
    ranks = 64 - np.floor(np.log2(rest.astype(np.float64))).astype(np.int64)
    np.maximum.at(sketch, registers, ranks.astype(np.uint8))
    assert abs(simulate.estimate(sketch) - count) <= max(0.5, 0.012 * count)
