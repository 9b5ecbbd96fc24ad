"""The embedded engine against the plain explorer, and one test for each rule that keeps its results right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from campaigns import THOROUGH, campaign_if
from checker.engines.compare import answer, by_embedded, by_reference, disagreement
from checker.engines.idle import Idle
from checker.engines.random_protocols import RandomProtocol, protocols, reduced, seeded
from hypothesis import given, settings

import fencepost
from fencepost import (
    Message,
    ModelValue,
    PerKey,
    Protocol,
    ProtocolRaised,
    Table,
    action,
    constant,
    constraint,
    initial,
    invariant,
    model_values,
    network,
    one_of,
    per_key,
    require,
    state,
    step_constraint,
    step_invariant,
    table,
    view,
)
from fencepost.behaviours import replay
from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.tables import Tables
from fencepost.checker.engines import embedded, kernel, reference, resources, search, workspace
from fencepost.checker.engines.interface import Exploration, Progress
from fencepost.checker.engines.options import EmbeddedOptions, ReferenceOptions
from fencepost.semantics import Stepper
from fencepost.semantics import state as states

SEEDS = 4_000 if THOROUGH else 75
CAP = 300
"""Past this number of states no further level of a random protocol is compared."""
WAYS: list[dict[str, Any]] = [{"workers": workers, "bits": bits} for workers in (1, 2) for bits in (64, 128)]


def agreed(protocol: Protocol, ways: Any = WAYS, prepare: Any = None, **options: Any) -> dict[str, Any]:
    """The plain explorer's results. The embedded engine must give the same for every number of workers and bits.

    ``prepare`` gets the embedded engine's stepper first.
    """
    options = {"keep_going": True, **options}
    expected = {bits: by_reference(protocol, **options, bits=bits) for bits in sorted({way["bits"] for way in ways})}
    for way in ways:
        found = disagreement(expected[way["bits"]], by_embedded(protocol, prepare, **{**options, **way}))
        assert found is None, f"{way}: {found}"
    return next(iter(expected.values()))


# -- random protocols -------------------------------------------------------------------------------------------------


def difference(random: RandomProtocol, options: dict[str, Any]) -> str | None:
    first = by_reference(random.build(), **{**options, "workers": 1, "max_states": CAP})
    if first["limit"]:
        options = {**options, "max_depth": first["depth"]}
    expected = by_reference(random.build(), **{**options, "workers": 1})
    if expected["raised"]:
        return None  # a reduced protocol may read a variable that it lost
    return disagreement(expected, by_embedded(random.build(), **options))


def check(random: RandomProtocol, options: dict[str, Any]) -> None:
    if difference(random, options) is not None:
        small = reduced(random, lambda smaller: difference(smaller, options) is not None)
        pytest.fail(f"{options}: {difference(small, options)}\n{small!r}")


def options_for(number: int) -> dict[str, Any]:
    """The options of the random protocol of this number. Consecutive numbers give every combination."""
    return {
        "workers": 1 + number % 2,
        "bits": (64, 128)[number // 2 % 2],
        "keep_going": number // 4 % 3 != 0,
        "deadlock": number // 12 % 2 == 0,
        "max_depth": (9, 6)[number // 24 % 2],
    }


@pytest.mark.parametrize("sound_view", [True, False])
@pytest.mark.parametrize("part", campaign_if(bool, range(5)))
def test_agrees_on_evenly_distributed_protocols(part: int, sound_view: bool) -> None:
    for seed in range(part * SEEDS // 5, (part + 1) * SEEDS // 5):
        check(seeded(10_000 + seed, sound_view), options_for(seed))


@pytest.mark.parametrize("number", campaign_if(lambda number: number > 2, [2, 5, 11, 16]))
@settings(max_examples=2_000 if THOROUGH else 25)
@given(random=protocols(sound_view=False))
def test_agrees_on_random_protocols(number: int, random: RandomProtocol) -> None:
    assert difference(random, options_for(number)) is None


# -- fingerprints -----------------------------------------------------------------------------------------------------


class Counter(Protocol):
    first: int = constant(0)
    x: int = state(0)
    y: bool = state(False)

    @initial
    def start(self) -> None:
        self.x = self.first

    @action
    def up(self) -> None:
        require(self.x < 6)
        self.x += 1

    @action
    def back(self) -> None:
        self.x = 0

    @action
    def flip(self) -> None:
        require(self.x == 5)
        self.y = not self.y


@pytest.mark.parametrize("value", [3, 6])
@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize(
    "fingerprint",
    [0, 1, 2**64 - 1, 2**128 - 1, 1 << 64, (2**64 - 1) << 64, 1 << 63, (1 << 63) | (1 << 127)],
    ids=["zero", "one", "low ones", "ones", "low zero", "low zero high ones", "sign", "signs"],
)
def test_every_fingerprint_is_legal(fingerprint: int, value: int, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fingerprint 0 above all: it must not mean an empty slot of the table."""
    usual = states.ValueTable._hash

    def forced(self: Any, slot: Any, held: Any) -> int:
        return states.SEED ^ fingerprint if slot.name == "x" and held == value else usual(self, slot, held)

    monkeypatch.setattr(states.ValueTable, "_hash", forced)
    stepper = Stepper(Counter())
    assert fingerprint in {stepper.store.fingerprint((stepper.store.intern(0, v),)) for v in range(7)}
    found = agreed(Counter(first=first))
    assert (found["distinct"], found["complete"]) == (14, True)


# With 64 bits x=3 collides with x=2, which was seen, so nothing beyond it is found.
@pytest.mark.parametrize(("bits", "distinct"), [(64, 3), (128, 14)])
def test_the_high_half_tells_states_apart_if_asked_for(
    bits: int, distinct: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = states.ValueTable._hash

    def forced(self: Any, slot: Any, held: Any) -> int:
        # The states x=2 and x=3 differ only in the high half.
        return (
            (1 << 70) | 5
            if slot.name == "x" and held == 2
            else 5
            if slot.name == "x" and held == 3
            else usual(self, slot, held)
        )

    monkeypatch.setattr(states.ValueTable, "_hash", forced)
    for workers in (1, 2):
        got = by_embedded(Counter(), bits=bits, workers=workers)
        assert disagreement(by_reference(Counter(), bits=bits), got) is None
        assert got["distinct"] == distinct


# -- paths that read more, later
# ----------------------------------------------------------------------------------------


class Late(Protocol):
    """The function that ``kind`` names reads y only from phase 5 on, long after steps that change y were compiled."""

    kind: str = constant("action")
    phase: int = state(0)
    y: int = state(0)
    z: int = state(0)
    seen: tuple[int, int] = state((0, 0))

    @action
    def turn_y(self) -> None:
        self.y = (self.y + 1) % 3

    @action
    def turn_z(self) -> None:
        self.z = (self.z + 1) % 3

    @action
    def go_on(self) -> None:
        require(self.phase < 6)
        self.phase += 1

    @action
    def look(self) -> None:
        require(self.kind == "action" and self.phase >= 4)
        require(self.y == 2)
        if self.phase >= 5:
            self.seen = (self.phase, self.z)

    def fine(self) -> bool:
        return self.phase < 4 or self.y != 2 or (self.phase >= 5 and self.z != 1)

    @invariant
    def invariant_reads_late(self) -> bool:
        return self.kind != "invariant" or self.fine()

    @constraint
    def constraint_reads_late(self) -> bool:
        return self.kind != "constraint" or self.fine()

    @step_invariant
    def step_invariant_reads_late(self, after: Any) -> bool:
        return (
            self.kind != "step_invariant" or self.phase < 4 or after.y != 2 or (self.phase >= 5 and self.z != after.z)
        )

    @step_constraint
    def step_constraint_reads_late(self, after: Any) -> bool:
        return (
            self.kind != "step_constraint" or self.phase < 4 or after.y != 2 or (self.phase >= 5 and self.z != after.z)
        )


@pytest.mark.parametrize("kind", ["action", "invariant", "constraint", "step_invariant", "step_constraint", "nothing"])
def test_a_path_that_reads_a_new_slot_late_is_followed_by_steps_compiled_before(kind: str) -> None:
    found = agreed(Late(kind=kind))
    assert found["complete"] and found["depth"] >= 9
    assert bool(found["found"]) == kind.endswith("invariant")
    if kind in ("nothing", "invariant", "step_invariant"):
        assert found["distinct"] == 7 * 9
    if kind == "action":
        # The view is nothing (in all phases), (5, z) (from phase 5 on), or (6, z) (in phase 6).
        assert found["distinct"] == 9 * 7 + 9 * 3 * 2 + 9 * 3
        # Taken with y = 2: in phase 4 (3 states), 5 (4 * 3) and 6 (7 * 3).
        assert found["taken"]["look"] == 3 + 12 + 21
    if kind == "constraint":
        # Three of the nine states in phase 4 are outside, and in phases 5 and 6 the one with y = 2 and z = 1.
        assert found["distinct"] == 4 * 9 + 6 + 8 + 8


@pytest.mark.parametrize("block", [1, kernel.BLOCK])
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("cut", ["", " cut"])
@pytest.mark.parametrize("kind", ["", "idle until", "idle but", "together", "loop", "late", "reads late"])
def test_a_step_that_changes_nothing_a_property_reads_is_judged_as_any_other(
    kind: str, cut: str, loops: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "BLOCK", block)
    found = agreed(Idle(kind=kind + cut, loops=loops))
    assert found["distinct"] == 7 * 4 * 3 - (4 if kind == "reads late" and cut else 0)
    assert bool(found["found"]) == bool(kind and not cut and (loops or kind != "loop"))


@pytest.mark.parametrize("cut", ["", " cut"])
def test_a_step_property_may_be_an_error_for_steps_that_the_protocol_does_not_have(cut: str) -> None:
    assert agreed(Idle(kind="an error" + cut, loops=False))["complete"]
    protocol = Idle(kind="an error" + cut)
    assert by_embedded(protocol)["raised"] == by_reference(protocol)["raised"] is not None


@pytest.mark.parametrize("kind", ["", "idle until"])
def test_idle_steps_are_not_judged_one_by_one_as_long_as_the_property_is_true_of_them(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Tables] = []

    def recorded(*given: Any) -> Tables:
        made.append(Tables(*given))
        return made[-1]

    monkeypatch.setattr(workspace, "Tables", recorded)
    agreed(Idle(kind=kind), [{"workers": 1, "bits": 64}])
    (tables,) = made
    compiled = tables.compiled()
    judged = {
        tables.stepper.roots[tables.outcome_root[outcome]].name
        for outcome in range(1, tables.outcomes)
        if compiled.step_start[outcome] < compiled.step_start[outcome + 1]
    }
    assert judged == ({"turn", "stay", "shift", "clear"} if kind else set())


def test_answers_that_lead_nowhere_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A property that is false of idle steps is never noted as such, so Python is asked the same again and again."""

    class Forgetful(Tables):
        @property
        def _busy(self) -> set[int]:
            return set()

        @_busy.setter
        def _busy(self, roots: set[int]) -> None:
            pass

    monkeypatch.setattr(workspace, "Tables", Forgetful)
    found = by_embedded(Idle(kind="idle until"), workers=1)
    assert "read the state in another order" in str(found)


class LateSlots(Protocol):
    """The late slot does not exist at first: keys of a table are read by name long before they are written."""

    size: int = constant(36)
    next: int = state(0)
    flag: int = state(0)
    logs: Table[int, int] = table()

    @action
    def append(self) -> None:
        require(self.next < self.size)
        self.logs[self.next] = one_of((0, 1)) if self.next % 10 == 0 else self.flag
        self.next += 1

    @action
    def turn(self) -> None:
        require(self.next % 8 == 0)
        self.flag = 1 - self.flag

    @action
    def drop_one(self) -> None:
        require(self.next > 34 and 20 in self.logs)
        del self.logs[20]

    @invariant
    def the_last_is_not_one(self) -> bool:
        return self.logs.get(35) != 1

    @invariant
    def ten_and_thirty_differ(self) -> bool:
        return 30 not in self.logs or self.logs[10] != self.logs[30] or self.logs.get(0) == self.logs.get(20)


def test_more_slots_appear_than_rows_had_room_for() -> None:
    found = agreed(LateSlots(), max_depth=44)
    assert found["depth"] > 37 and {f[1] for f in found["found"]} >= {"the_last_is_not_one", "ten_and_thirty_differ"}


# -- choices ----------------------------------------------------------------------------------------------------------


class Forks(Protocol):
    """A choice between options that read different slots: one action with several leaves that come and go."""

    nodes: Any = model_values("n", 3)
    up: Any = per_key(nodes, False)
    count: Any = per_key(nodes, 0)
    turns: int = state(0)

    @action(n=nodes)
    def flip(self, n: Any) -> None:
        require(self.turns < 5)
        self.up[n] = not self.up[n]
        self.turns += 1

    @action
    def work(self) -> None:
        n = one_of(self.nodes)
        require(self.up[n])
        m = one_of([m for m in self.nodes if m != n and not self.up[m]])
        self.count[n] = (self.count[n] + one_of((1, 1, 2))) % 3
        self.up[m] = one_of((True, False))

    @invariant
    def not_all_at_two(self) -> bool:
        return any(self.count[n] != 2 for n in self.nodes)


def test_a_choice_has_several_leaves_that_are_dropped_together() -> None:
    found = agreed(Forks(), max_depth=6)
    assert found["taken"]["work"] > 0 and found["distinct"] > 300


class Repeats(Protocol):
    x: int = state(0)

    @action
    def go(self) -> None:
        require(self.x < 3)
        self.x += one_of((1, 1, 0, 0, 2))

    @action
    def rest(self) -> None: ...


def test_steps_that_lead_nowhere_and_twice_to_the_same_state_are_counted() -> None:
    found = agreed(Repeats(), deadlock=True)
    assert found["distinct"] == 5
    # Three states with five outcomes each, and ``rest`` in all five.
    assert found["generated"] == 1 + 3 * 5 + 5
    assert found["taken"] == {"go": 15, "rest": 5} and found["new"] == {"go": 4, "rest": 0}
    assert not found["found"]


class Subsets(Protocol):
    nodes: Any = model_values("n", 8)
    chosen: Any = state(frozenset())
    left: int = state(2)

    @action
    def choose(self) -> None:
        require(self.left > 0)
        self.chosen = one_of(fencepost.subsets(self.nodes)) - self.chosen
        self.left -= 1


def test_hundreds_of_outcomes_of_one_action() -> None:
    found = agreed(Subsets(nodes=5))
    assert found["distinct"] == 1 + 32 + 32 and found["generated"] == 1 + 32 + 32 * 32
    got = by_embedded(Subsets(nodes=9), max_depth=2)
    assert (got["distinct"], got["generated"]) == (513, 513)


# -- constraints ------------------------------------------------------------------------------------------------------


class Bounded(Protocol):
    """States beyond x = 5 are outside. No action may run in one."""

    x: int = state(0)
    y: int = state(0)

    @action
    def up(self) -> None:
        self.x += 1

    @action
    def twice(self) -> None:
        self.x += 2

    @action
    def turn(self) -> None:
        if self.x > 5:
            raise ValueError("this is outside")
        self.y = 1 - self.y

    @constraint
    def small(self) -> bool:
        return self.x <= 5


def test_constraints_are_evaluated_before_actions_and_outside_states_are_not_counted() -> None:
    found = agreed(Bounded())
    assert found["raised"] is None
    # x from 0 to 5 and two values of y. Each state has three steps, those to states outside included.
    assert found["distinct"] == 12 and found["generated"] == 1 + 3 * 12 and found["complete"]
    # The shortest way to (5, 1) takes four steps.
    assert found["depth"] == 5


class BoundedAndChecked(Bounded):
    @invariant
    def never_seven(self) -> bool:
        return self.x != 7

    @invariant
    def never_six(self) -> bool:
        return self.x != 6


def test_states_outside_a_constraint_are_checked() -> None:
    found = agreed(BoundedAndChecked())
    assert found["distinct"] == 12
    assert [(name, len(path)) for _, name, _, path in found["found"]] == [("never_six", 3), ("never_seven", 4)]
    # Without keep_going the level is finished.
    stopped = agreed(BoundedAndChecked(), keep_going=False)
    assert [f[1] for f in stopped["found"]] == ["never_six"] and stopped["found"] == found["found"][:1]


class AllOutside(Bounded):
    @constraint
    def nothing(self) -> bool:
        return False


def test_an_initial_state_can_be_outside() -> None:
    found = agreed(AllOutside())
    assert (found["distinct"], found["generated"], found["depth"], found["complete"]) == (0, 1, 1, True)


class Fenced(Protocol):
    """Every step out of x = 3 is cut."""

    by_steps: bool = constant(True)
    x: int = state(0)

    @action
    def up(self) -> None:
        require(self.x < 5)
        self.x += 1

    @step_constraint
    def not_beyond_three(self, after: Fenced) -> bool:
        return not self.by_steps or after.x <= 3

    @constraint
    def not_outside(self) -> bool:
        return self.by_steps or self.x <= 3

    @step_invariant
    def cut_steps_are_not_judged(self, after: Fenced) -> bool:
        return after.x <= 3


@pytest.mark.parametrize("by_steps", [True, False])
def test_a_state_whose_successors_were_only_cut_is_not_deadlocked(by_steps: bool) -> None:
    found = agreed(Fenced(by_steps=by_steps), deadlock=True)
    assert found["distinct"] == 4
    assert found["generated"] == (4 if by_steps else 5)
    assert [f[1] for f in found["found"]] == ([] if by_steps else ["cut_steps_are_not_judged"])


class Stuck(Protocol):
    x: int = state(0)
    y: int = state(0)

    @action
    def up(self) -> None:
        require(self.x < 4)
        self.x += one_of((1, 2))

    @action
    def turn(self) -> None:
        require(self.x < 3)
        self.y = 1 - self.y


def test_a_deadlock_is_found_where_it_is_nearest_and_only_if_asked_for() -> None:
    found = agreed(Stuck(), deadlock=True)
    assert [(kind, len(path)) for kind, _, _, path in found["found"]] == [("deadlock", 2)]
    assert agreed(Stuck())["found"] == []


class DeadEnds(Protocol):
    """A second level of 4,500 states, more than one worker takes at a time. Most lead nowhere."""

    x: int = state(0)
    y: int = state(0)

    @action
    def spread(self) -> None:
        require(self.x == 0)
        self.x, self.y = one_of(range(1, 46)), one_of(range(100))

    @action
    def on(self) -> None:
        require(self.x % 5 == 1 and self.y < 30)
        self.y += 60

    @invariant
    def not_all_of_these(self) -> bool:
        return self.x % 7 != 3


def test_of_many_in_one_level_the_one_with_the_least_fingerprint_is_told() -> None:
    """Which worker found it, and in which order, makes no difference."""
    agreed(DeadEnds(), [WAYS[0], WAYS[2]], deadlock=True)
    stepper = Stepper(DeadEnds())
    explored = embedded.explore(stepper, EmbeddedOptions(deadlock=True, keep_going=True))
    ends = {f.name: replay(stepper, f.initial, f.path).states[-1] for f in explored.found}
    (start,) = stepper.initial_states()
    seconds = [
        fencepost.State(stepper.store, stepper.apply(start.ids, o))
        for o in stepper.outcomes(stepper.of_kind("action")[0], start.ids)
    ]

    def order(found: fencepost.State) -> tuple[int, int]:
        return found.fingerprint & states.LOW, found.fingerprint >> 64

    assert ends == {
        "not_all_of_these": min((s for s in seconds if s.variables()["x"] % 7 == 3), key=order),
        "deadlock": min((s for s in seconds if s.variables()["x"] % 5 != 1 or s.variables()["y"] >= 30), key=order),
    }


# -- inheritance ------------------------------------------------------------------------------------------------------


class Inherited(Protocol):
    """Invariants that read different slots. Most steps change nothing that most of them read."""

    limit: int = constant(4)
    nodes: Any = model_values("n", 4)
    at: PerKey[ModelValue, int] = per_key(nodes, 0)

    @action(n=nodes)
    def up(self, n: Any) -> None:
        require(self.at[n] < self.limit)
        self.at[n] += 1

    @invariant
    def first_stays_low(self) -> bool:
        return self.at[self.nodes[0]] < 3

    @invariant
    def second_and_third(self) -> bool:
        return self.at[self.nodes[1]] < 2 or self.at[self.nodes[2]] != 3

    @invariant
    def sum_is_small(self) -> bool:
        return sum(self.at.values()) < 7 or self.at[self.nodes[3]] != 1

    @step_invariant
    def one_at_a_time(self, after: Inherited) -> bool:
        return self.at[self.nodes[3]] != 3 or after.at[self.nodes[3]] != 4 or self.at[self.nodes[0]] == 0


@pytest.mark.parametrize("keep_going", [True, False])
def test_an_invariant_that_a_step_does_not_touch_is_still_judged_where_it_is_touched(keep_going: bool) -> None:
    found = agreed(Inherited(), keep_going=keep_going)
    lengths = {name: len(path) for _, name, _, path in found["found"]}
    everything = {"first_stays_low": 3, "second_and_third": 5, "one_at_a_time": 5, "sum_is_small": 7}
    assert lengths == (everything if keep_going else {"first_stays_low": 3})
    if keep_going:
        assert found["distinct"] == 5**4 and found["depth"] == 17


# -- many values, many actions, many states ---------------------------------------------------------------------------


class Values(Protocol):
    """One slot takes every number below ``size`` within a few steps, beside slots with few values."""

    size: int = constant(600)
    other: int = state(0)
    x: int = state(1)

    @action
    def double(self) -> None:
        self.x = (2 * self.x + one_of((0, 1))) % self.size

    @action
    def turn(self) -> None:
        require(self.x % 100 == 77)
        self.other = (self.other + 1) % 3

    @invariant
    def not_this(self) -> bool:
        return self.x != 595

    @invariant
    def not_that(self) -> bool:
        return self.x != 257 or self.other != 2


def test_a_slot_with_more_than_256_values() -> None:
    found = agreed(Values())
    assert found["distinct"] == 1800 and {f[1] for f in found["found"]} == {"not_this", "not_that"}


@pytest.mark.parametrize("already", [254, 255, 256, 65_535, *campaign_if(bool, [65_534, 70_000])])
def test_values_are_numbered_past_every_width_of_a_row(already: int) -> None:
    """Pretend that a slot had ``already`` other values: rows widen before the search, or in the middle of it."""

    def prepare(stepper: Stepper) -> None:
        for number in range(already):
            stepper.store.intern(1, f"other {number}")

    found = agreed(Values(size=16), [WAYS[0], WAYS[3]], prepare)
    assert found["distinct"] == 16
    found = agreed(Inherited(limit=3), [WAYS[1], WAYS[2]], prepare)
    assert found["distinct"] == 4**4 and len(found["found"]) == 3


class ManyActions(Protocol):
    """Any of ``nodes`` can go at first. Then it can come back, or another one can go."""

    most: int = constant(1)
    nodes: Any = model_values("n", 65)
    out: Any = per_key(nodes, False)
    count: int = state(0)

    @action(n=nodes)
    def go(self, n: Any) -> None:
        require(self.count < self.most and not self.out[n])
        self.out[n] = True
        self.count += 1

    @action(n=nodes)
    def come_back(self, n: Any) -> None:
        require(self.out[n])
        self.out[n] = False
        self.count -= 1

    @invariant
    def the_last_stays(self) -> bool:
        return not self.out[self.nodes[-1]]


@pytest.mark.parametrize(("nodes", "most"), [(65, 1), (24, 2), *campaign_if(bool, [(129, 1)])])
def test_many_actions_are_enabled_at_once(nodes: int, most: int) -> None:
    found = agreed(ManyActions(nodes=nodes, most=most))
    pairs = nodes * (nodes - 1) // 2 if most == 2 else 0
    assert found["distinct"] == 1 + nodes + pairs
    assert found["generated"] == 1 + nodes + nodes * (1 + (nodes - 1) * (most - 1)) + 2 * pairs
    assert [f[1] for f in found["found"]] == ["the_last_stays"]


class FarApart(Protocol):
    """Few of many actions are enabled, 64 apart. Facts about one must not be mistaken for another's."""

    nodes: Any = model_values("n", 130)
    at: Any = per_key(nodes, 0)

    @action(n=nodes)
    def go(self, n: Any) -> None:
        require(n.index % 64 < 2)
        require(self.at[n] < 1 + n.index // 128)
        self.at[n] += 1

    @invariant(n=nodes)
    def never_two(self, n: Any) -> bool:
        return n.index not in (1, 65, 129) or self.at[n] < 2


def test_actions_and_properties_past_the_64th_are_told_apart() -> None:
    found = agreed(FarApart(), deadlock=True)
    # Four can be taken once, and two twice.
    assert found["distinct"] == 2**4 * 3**2 and found["depth"] == 9
    assert [(name, len(path)) for _, name, _, path in found["found"]] == [("never_two", 2), ("deadlock", 8)]


class Grid(Protocol):
    """Independent counters, so every count is known: size ** cells states, at most ``cells * (size - 1)`` deep."""

    cells: int = constant(10)
    size: int = constant(4)
    at: PerKey[int, int] = per_key(lambda p: range(p.cells), 0)

    @action(i=lambda p: range(p.cells))
    def up(self, i: int) -> None:
        self.at[i] = (self.at[i] + 1) % self.size

    @invariant
    def not_at_the_end(self) -> bool:
        return any(self.at[i] < self.size - 1 for i in self.at)


def test_a_million_states() -> None:
    answers = [by_embedded(Grid(), **way, keep_going=True) for way in (WAYS[0], WAYS[3])]
    for got in answers:
        assert got["complete"] and got["distinct"] == 4**10 and got["generated"] == 1 + 10 * 4**10
        assert got["depth"] == 31 and got["queue"] == 0
        assert set(got["taken"].values()) == {4**10} and sum(got["new"].values()) == 4**10 - 1
        ((kind, name, _, path),) = got["found"]
        assert (kind, name, len(path)) == ("invariant", "not_at_the_end", 30)
        assert sorted(root for root, _ in path) == sorted([*range(1, 11)] * 3)
    assert answers[0]["new"] != dict.fromkeys(answers[0]["new"], 0)


def test_the_same_with_any_number_of_workers() -> None:
    answers = [by_embedded(Grid(cells=7), workers=workers, keep_going=True) for workers in (1, 2, 3, 4)]
    assert all(disagreement(answers[0], got) is None for got in answers)
    assert answers[0]["distinct"] == 4**7
    assert agreed(Grid(cells=5, size=3))["distinct"] == 3**5


# -- views and initial states -----------------------------------------------------------------------------------------


class Viewed(Protocol):
    """The hidden slot decides which actions are enabled, so it matters which state represents those that look alike."""

    shown: int = state(0)
    hidden: int = state(0)
    also: int = state(0)

    @initial
    def start(self) -> None:
        self.hidden = one_of((2, 0, 1, 0))

    @action
    def up(self) -> None:
        require(self.shown < 6 + self.hidden)
        self.shown += 1
        self.hidden = one_of((0, 1, 2))

    @action
    def turn(self) -> None:
        self.also = (self.also + self.hidden) % 4

    @invariant
    def never(self) -> bool:
        return self.shown < 7 or self.hidden != 1


class Selected(Viewed):
    @view
    def seen(self) -> Any:
        return (self.shown, self.also)


class Computed(Viewed):
    @view
    def seen(self) -> Any:
        return (self.shown, self.also % 2)


@pytest.mark.parametrize("protocol", [Viewed, Selected, Computed])
def test_with_a_view_the_same_state_stands_for_those_that_look_like_it(protocol: type[Protocol]) -> None:
    whole = agreed(Viewed())["distinct"]
    found = agreed(protocol())
    assert found["complete"] and (found["distinct"] == whole) == (protocol is Viewed)


class LooksAlike(Protocol):
    """Different steps that look the same: a step constraint reads what the view hides."""

    cut: int = constant(1)
    shown: int = state(0)
    up: bool = state(False)
    hidden: int = state(0)

    @action
    def choose(self) -> None:
        require(self.shown < 3)
        self.shown += 1
        self.hidden = one_of((1, 2))

    @action
    def fork(self) -> None:
        require(self.shown < 3)
        which = one_of((3, 4, 5))
        require(which != 4 or self.up)
        self.shown += 1
        self.hidden = which

    @action
    def lift(self) -> None:
        self.up = not self.up

    @step_constraint
    def some_are_cut(self, after: LooksAlike) -> bool:
        return after.hidden >= self.cut

    @view
    def seen(self) -> Any:
        return (self.shown, self.up)


@pytest.mark.parametrize("cut", [0, 2, 3, 4, 5])
def test_a_step_that_is_cut_does_not_stand_for_one_that_looks_the_same(cut: int) -> None:
    assert agreed(LooksAlike(cut=cut))["distinct"] == (8 if cut == 0 else 7)


class Starts(Protocol):
    x: int = state(0)
    y: int = state(0)

    @initial
    def start(self) -> None:
        self.x = one_of((3, 1, 3, 2))
        self.y = one_of({0, 1})
        require(self.x + self.y < 4)

    @action
    def down(self) -> None:
        require(self.x > 0)
        self.x -= 1

    @invariant
    def not_both(self) -> bool:
        return not (self.x == 0 and self.y == 1)


def test_several_initial_states_found_once_each() -> None:
    found = agreed(Starts())
    assert found["distinct"] == 4 + 3 and found["generated"] == 5 + 5 and found["depth"] == 2 + (3 > 3)
    ((_, _, start, path),) = found["found"]
    assert len(path) == 1


class NoStart(Starts):
    @initial
    def start(self) -> None:
        require(False)


def test_no_initial_state_at_all() -> None:
    found = agreed(NoStart())
    assert (found["distinct"], found["generated"], found["depth"]) == (0, 0, 0)


class Wrong(Starts):
    @invariant
    def starts_low(self) -> bool:
        return self.x != 2


def test_an_initial_state_can_be_the_counterexample() -> None:
    for keep_going in (True, False):
        found = agreed(Wrong(), keep_going=keep_going)
        assert [(name, len(path)) for _, name, _, path in found["found"]][0] == ("starts_low", 0)
    assert found["complete"] is False and found["depth"] == 1


# -- limits -----------------------------------------------------------------------------------------------------------


class Endless(Protocol):
    x: int = state(0)
    y: int = state(0)

    @action
    def right(self) -> None:
        self.x += 1

    @action
    def up(self) -> None:
        self.y += 1


def ended(**options: Any) -> Exploration:
    return embedded.explore(Stepper(Endless()), EmbeddedOptions(**options))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"max_states": 500}, "the limit of 500 states"),
        ({"max_depth": 12}, "the depth limit of 12"),
        ({"max_depth": 1}, "the depth limit of 1"),
        ({"timeout": 0.05}, "the time limit of 0.05 seconds"),
        ({"timeout": 0.0}, "the time limit of 0 seconds"),
        ({"max_memory": 1}, "the memory limit of 1 bytes"),
    ],
)
def test_a_limit_is_told_and_nothing_holds(options: dict[str, Any], limit: str, workers: int) -> None:
    explored = ended(workers=workers, **options)
    assert explored.limit == limit
    assert not explored.complete and not explored.interrupted and explored.raised is None
    assert explored.queue > 0 or "timeout" in options, "a time may be over within the first level"
    if "max_depth" in options:
        assert explored.depth == options["max_depth"]
        # Diagonals of a grid.
        assert explored.distinct == sum(range(1, explored.depth + 1)) and explored.queue == explored.depth
    if "max_states" in options:
        assert explored.distinct >= 500
    result = fencepost.check(Endless(), engine="embedded", options=EmbeddedOptions(workers=workers, **options))
    assert not result.holds and result.verdict == "not complete" and result.exit_code == 152
    assert result.limit == limit


def test_a_limit_that_is_not_reached_is_none() -> None:
    explored = embedded.explore(
        Stepper(Counter()), EmbeddedOptions(max_states=15, max_depth=13, timeout=1e6, max_memory=2**40)
    )
    assert explored.limit is None and explored.complete and explored.distinct == 14


def test_a_violation_on_the_last_level_of_a_depth_limit_is_found() -> None:
    for depth in (3, 4, 5):
        agreed(Inherited(), max_depth=depth)
        agreed(Bounded(), max_depth=depth)
        agreed(Stuck(), max_depth=depth, deadlock=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_ends_it_and_what_was_found_is_told(workers: int) -> None:
    seen: list[Progress] = []

    def report(progress: Progress) -> None:
        seen.append(progress)
        if progress.distinct > 1_000:
            raise KeyboardInterrupt

    explored = embedded.explore(Stepper(Endless()), EmbeddedOptions(workers=workers), report)
    assert explored.interrupted and not explored.complete and explored.limit is None
    assert explored.distinct >= seen[-1].distinct > 1_000 and explored.queue > 0


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_only_grows(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TICK", 0.0)
    seen: list[Progress] = []
    explored = embedded.explore(Stepper(Endless()), EmbeddedOptions(workers=workers, max_states=20_000), seen.append)
    assert len(seen) >= 100 and seen[0].distinct < 1_000 < seen[-1].distinct
    for one, other in zip(seen, seen[1:], strict=False):
        assert one.generated <= other.generated and one.distinct <= other.distinct and one.depth <= other.depth
        assert one.seconds <= other.seconds
    assert seen[-1].distinct <= explored.distinct and seen[-1].evaluations <= explored.evaluations


# -- what the protocol raises
# -------------------------------------------------------------------------------------------


class Raises(Protocol):
    where: str = constant("action")
    x: int = state(0)
    y: int = state(0)

    def boom(self, x: int, y: int) -> bool:
        if x == 5 and y == 4:
            raise ValueError(f"in {self.where}")
        return True

    @action
    def right(self) -> None:
        require(self.x < 9)
        self.x += 1

    @action
    def up(self) -> None:
        require(self.y < 9)
        self.y += 1

    @action
    def strike(self) -> None:
        require(self.where == "action")
        self.boom(self.x, self.y)
        require(False)

    @invariant
    def in_invariant(self) -> bool:
        return self.where != "invariant" or self.boom(self.x, self.y)

    @constraint
    def in_constraint(self) -> bool:
        return self.where != "constraint" or self.boom(self.x, self.y)

    @step_invariant
    def in_step_invariant(self, after: Any) -> bool:
        return self.where != "step_invariant" or self.boom(self.x, after.y)

    @step_constraint
    def in_step_constraint(self, after: Any) -> bool:
        return self.where != "step_constraint" or self.boom(self.x, after.y)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("where", ["action", "invariant", "constraint", "step_invariant", "step_constraint"])
def test_what_is_raised_deep_in_the_space_is_told_with_the_way_there(where: str, workers: int) -> None:
    stepper = Stepper(Raises(where=where))
    explored = embedded.explore(stepper, EmbeddedOptions(workers=workers))
    plain = reference.explore(Stepper(Raises(where=where)), ReferenceOptions())
    assert explored.raised is not None and plain.raised is not None and plain.raised_at is not None
    assert str(explored.raised) == str(plain.raised) and f"ValueError: in {where}" in str(explored.raised)
    assert explored.raised.where == plain.raised.where
    assert not explored.complete and not explored.found
    assert explored.raised_at is not None
    trace = replay(stepper, explored.raised_at.initial, explored.raised_at.path)
    assert len(trace) == 1 + len(plain.raised_at.path)
    last = trace.states[-1]
    assert isinstance(explored.raised.state, fencepost.State) and explored.raised.state == last
    root = next(r for r in stepper.roots if r.title == explored.raised.where)
    with pytest.raises(ProtocolRaised, match=f"in {where}"):
        outcomes = [o for r in stepper.of_kind("action") for o in stepper.outcomes(r, last.ids)]
        for successor in [last, *(fencepost.State(stepper.store, stepper.apply(last.ids, o)) for o in outcomes)]:
            stepper.outcomes(root, last.ids, *((successor.ids,) if where.startswith("step") else ()))
    result = fencepost.check(Raises(where=where), engine="embedded")
    assert result.exit_code == 75 and not result.holds and result.error_trace is not None
    assert len(result.error_trace) == len(trace)


class RaisesAtOnce(Protocol):
    x: int = state(0)

    @action
    def go(self) -> None:
        raise ValueError("at once")


def test_what_is_raised_in_the_initial_state() -> None:
    for workers in (1, 2):
        explored = embedded.explore(Stepper(RaisesAtOnce()), EmbeddedOptions(workers=workers))
        assert explored.raised is not None and "at once" in str(explored.raised)
        assert explored.raised_at is not None and list(explored.raised_at.path) == []


# -- reproducibility --------------------------------------------------------------------------------------------------


class Word(Message):
    text: str
    to_all: bool = False


class Talk(Protocol):
    """Strings, sets and messages: their hashes change from process to process."""

    nodes: Any = model_values("n", 2)
    words: frozenset[str] = constant(frozenset({"one", "two", "three"}))
    heard: Any = per_key(nodes, frozenset())
    log: Table[str, int] = table()
    net: Any = network({Word: (nodes, nodes)}, lossy=True, once=True, remember=True)

    @action(n=nodes)
    def say(self, n: Any) -> None:
        require(len(self.heard[n]) < 2)
        self.net.send(Word(one_of(self.words)), n, one_of(set(self.nodes) - {n}))

    @action(n=nodes)
    def hear(self, n: Any) -> None:
        word = self.net.receive(Word, to=n).message.text
        self.heard[n] |= {word}
        self.log[word] = len(self.heard[n])

    @invariant
    def not_all_heard(self) -> bool:
        return len(self.log) < 3

    @invariant
    def not_the_same(self) -> bool:
        return self.heard[self.nodes[0]] != self.heard[self.nodes[1]] or not self.heard[self.nodes[0]]


def test_the_same_in_every_process_whatever_the_hash_seed() -> None:
    tests = Path(__file__).parents[2]
    script = (
        "from checker.engines import test_embedded as t\n"
        "for p in (t.Talk, t.Forks, t.Computed):\n"
        "    for way in t.WAYS[::3]:\n"
        "        print(t.by_embedded(p(), **way, keep_going=True, max_depth=5))\n"
    )
    expected = "".join(
        f"{by_reference(p(), bits=way['bits'], keep_going=True, max_depth=5)}\n"
        for p in (Talk, Forks, Computed)
        for way in WAYS[::3]
    )
    path = os.pathsep.join([str(Path(fencepost.__file__).parents[1]), str(tests)])
    for seed in ("1", "31337") if THOROUGH else ("31337",):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        run = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout == expected


def test_twice_with_the_same_stepper_of_values_already_seen() -> None:
    """Values and slots that were numbered earlier, in another order, change nothing."""
    fresh = by_embedded(Talk(), keep_going=True, max_depth=5)
    stepper = Stepper(Talk())
    reference.explore(stepper, ReferenceOptions(max_depth=4))
    used = answer(stepper, embedded.explore(stepper, EmbeddedOptions(keep_going=True, max_depth=5, workers=2)))
    assert disagreement(fresh, used) is None


def test_a_whole_network_is_read_in_one_order() -> None:
    """By a computed view, while its connections are still being discovered."""
    protocol = seeded(78, True).build()
    assert disagreement(by_reference(protocol, max_depth=6), by_embedded(protocol, max_depth=6)) is None


def test_the_first_round_of_a_level_is_completed_before_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "BLOCK", 8)
    runs: list[tuple[int, int, int]] = []
    run = embedded.Embedded._run_workers

    def recorded(self: embedded.Embedded, order: Array, first: int, block: int) -> int:
        runs.append((self.search.queue, first, len(order)))
        return run(self, order, first, block)

    monkeypatch.setattr(embedded.Embedded, "_run_workers", recorded)
    agreed(Talk(), [{"workers": 2, "bits": 64}], max_depth=5)
    assert {end for queue, first, end in runs if first == 0 and queue > 16} == {16}
    assert all(end == queue for queue, first, end in runs if first > 0 or queue <= 16)


def test_memory_is_looked_at_once_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def resident_memory() -> int:
        looks.append(search.TICK)
        return 0

    monkeypatch.setattr(resources, "resident_memory", resident_memory)
    for tick in (0.0, 1e9):
        monkeypatch.setattr(search, "TICK", tick)
        by_embedded(Talk(), max_depth=5)
    assert looks.count(0.0) > 5, "between levels and between answers"
    assert looks.count(1e9) == 0, "the first tick is not over"


def test_states_found_in_half_a_level_are_counted_by_action(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "BLOCK", 8)
    found = {}
    for most in (30, 60, 100, 200):
        stepper = Stepper(Talk())
        explored = embedded.explore(stepper, EmbeddedOptions(workers=2, max_states=most, keep_going=True))
        assert explored.distinct == 1 + sum(explored.new.values()) >= most
        found[explored.distinct] = explored.within_level
    whole = [
        embedded.explore(Stepper(Talk()), EmbeddedOptions(max_depth=n, keep_going=True)).distinct for n in range(7)
    ]
    assert set(found) - set(whole), "some ended within a level"
    assert all(found[distinct] for distinct in set(found) - set(whole))
