"""Evaluations in several processes: whatever these do, the answers are those of one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from checker.engines.compare import by_embedded, by_reference, disagreement
from checker.engines.random_protocols import seeded
from tla.layouts import ALL, Example
from tla.test_layout import counts, model_of

import fencepost
from fencepost import Protocol, action, always, constant, invariant, one_of, require, state, temporal
from fencepost.checker.compiler import tables
from fencepost.checker.engines import evaluators
from fencepost.checker.engines.resources import forked
from fencepost.semantics import Branch, Stepper, trees
from fencepost.tla import layout

HERE = os.getpid()


class Received:
    """Counts the trees that helpers send, and knows the helpers: other tests have left children of their own."""

    def __init__(self) -> None:
        self.trees = 0
        self.helpers: list[int] = []

    def forked(self) -> int:
        pid = forked()
        if pid:
            self.helpers.append(pid)
        return pid

    def all_have_ended(self) -> bool:
        assert self.helpers
        return not any(map(is_child, self.helpers))

    def unpacked(self, tree: tuple[Any, ...], numbers: Any) -> Branch:
        self.trees += 1
        return trees.unpacked(tree, numbers)


def is_child(pid: int) -> bool:
    """Whether this process has such a child, ended or not, that nobody has waited for."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has helpers take part in every round of two questions or more, whether it pays or not."""
    monkeypatch.setattr(evaluators, "FEW", 1)
    monkeypatch.setattr(evaluators, "FORKING", -1.0)
    monkeypatch.setattr(evaluators, "COPYING", 0.0)
    monkeypatch.setattr(evaluators.Evaluators, "_notice", lambda self, seconds, answered: None)


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Received:
    """Counts the trees that helpers send, which take part in all rounds."""
    take_part(monkeypatch)
    found = Received()
    monkeypatch.setattr(evaluators, "unpacked", found.unpacked)
    monkeypatch.setattr(evaluators, "forked", found.forked)
    return found


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves all chunks to the helpers."""
    take = evaluators.Round._take
    monkeypatch.setattr(evaluators.Round, "_take", lambda self: None if os.getpid() == HERE else take(self))


class Grid(Protocol):
    """A step reads and writes whole cells, so that each state has evaluations and values of its own."""

    size: int = constant(12)
    x: tuple[int, str] = state((0, "x"))
    y: tuple[int, str] = state((0, "y"))

    @action
    def right(self) -> None:
        require(self.x[0] < self.size)
        self.x = self.x[0] + one_of((1, 2)), str(self.y[0])

    @action
    def up(self) -> None:
        require(self.y[0] < self.size)
        self.y = self.y[0] + 1, self.x[1]

    @invariant
    def inside(self) -> bool:
        return self.x[0] + self.y[0] < 3 * self.size

    @temporal
    def stays(self) -> Any:
        return always(lambda p: p.x[0] >= 0)


@pytest.mark.parametrize("workers", [2, *campaign_if(bool, [3])])
def test_the_answers_are_those_of_one_process(received: Received, idle: None, workers: int) -> None:
    alone = by_embedded(Grid(), workers=1)
    assert not received.trees
    assert disagreement(alone, by_embedded(Grid(), workers=workers)) is None
    assert received.trees > 500
    assert received.all_have_ended()


def test_answers_are_recorded_in_the_order_of_the_questions(
    received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Outcomes get their numbers in this order, so it may not depend on which process is faster.
    record = tables.Tables.record
    orders: list[list[tuple[int, int]]] = []

    def noted(self: tables.Tables, question: tables.Question, tree: Branch) -> None:
        orders[-1].append((question.root, question.step))
        record(self, question, tree)

    monkeypatch.setattr(tables.Tables, "record", noted)
    for busy in (0.0, 0.002, 0.01):
        orders.append([])
        by_embedded(misbehaving(partial(time.sleep, busy))(), workers=2)
    assert len(orders[0]) > 500
    assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize("part", campaign_if(bool, range(5)))
def test_random_protocols_have_the_states_of_the_plain_explorer(received: Received, idle: None, part: int) -> None:
    for seed in range(part * 20, part * 20 + 20):
        options: dict[str, Any] = {"keep_going": True, "max_depth": 7, "bits": (64, 128)[seed % 2]}
        expected = by_reference(seeded(30_000 + seed).build(), **options)
        assert disagreement(expected, by_embedded(seeded(30_000 + seed).build(), workers=2, **options)) is None
    assert received.trees > 100


@pytest.mark.parametrize("most", [20, 2_000])
@pytest.mark.parametrize("name", campaign_if(lambda name: name not in ("messages", "bag", "mixed"), sorted(ALL)))
def test_universes_that_grow_end_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: Received, idle: None, name: str, most: int
) -> None:
    monkeypatch.setattr(layout, "FIRST_LOOK", most)
    monkeypatch.setattr(layout, "NEAR", max(2, most // 20))
    monkeypatch.setattr(layout, "FEW", 0)
    result = fencepost.check(model_of(tmp_path, ALL[name]), engine="embedded", workers=2)
    assert counts(result) == ALL[name].counts
    assert received.trees


GROWING = {
    # Look relies on msgs when it is first asked with on = TRUE. Members appear later.
    "relied on late": (
        "on = FALSE",
        "on /\\ (\\A m \\in msgs : m < 5) /\\ seen' = ~seen /\\ UNCHANGED <<k, msgs, on>>",
        "k = 2 /\\ on' = TRUE /\\ UNCHANGED <<k, msgs, seen>>",
    ),
    # For each k, Send makes a member in the round in which Look is asked.
    "grown in a round": (
        "on = TRUE",
        "k >= 0 /\\ (\\A m \\in msgs : m < 3) /\\ seen' = ~seen /\\ UNCHANGED <<k, msgs, on>>",
        "FALSE /\\ UNCHANGED <<k, msgs, on, seen>>",
    ),
}


@pytest.mark.parametrize("name", GROWING)
def test_what_a_helper_knew_of_a_universe_is_not_relied_on_after_it_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: Received, idle: None, name: str
) -> None:
    monkeypatch.setattr(layout, "FIRST_LOOK", 6)
    monkeypatch.setattr(layout, "NEAR", 2)
    monkeypatch.setattr(layout, "FEW", 0)
    first, look, more = GROWING[name]
    text = rf"""---- MODULE Spec ----
EXTENDS Naturals
VARIABLES k, msgs, on, seen
Init == k = 0 /\ msgs = {{0, 1}} /\ {first} /\ seen = FALSE
Send == msgs' = msgs \cup {{k + 2}} /\ UNCHANGED <<k, on, seen>>
Step == k < 5 /\ k' = k + 1 /\ UNCHANGED <<msgs, on, seen>>
Look == {look}
More == {more}
Next == Send \/ Step \/ Look \/ More
====
"""
    example = Example(text, "INIT Init\nNEXT Next\nCHECK_DEADLOCK FALSE\n", (0, 0, 0))
    plain = fencepost.check(model_of(tmp_path, example), engine="reference")
    for workers in (2, 3):
        found = fencepost.check(model_of(tmp_path, example), engine="embedded", workers=workers)
        assert counts(found) == counts(plain)
    assert received.trees


def test_an_evaluation_that_raises_does_so_here(received: Received, idle: None) -> None:
    class Raises(Grid):
        @action
        def leave(self) -> None:
            require(self.x[0] == self.y[0] == 7)
            raise ValueError("left")

    alone = by_embedded(Raises(), workers=1)
    assert "left" in alone["raised"][0]
    assert disagreement(alone, by_embedded(Raises(), workers=2)) is None


def test_values_that_cannot_be_sent_are_made_here(received: Received, idle: None) -> None:
    Local: Any = Enum("Local", tuple(f"at_{number}" for number in range(1, 32)))  # type: ignore[misc]

    class Grows(Protocol):
        x: Any = state(Local(1))
        y: Any = state(Local(1))

        @action
        def right(self) -> None:
            require(self.x.value < 31)
            self.x = Local(self.x.value + 1)

        @action
        def up(self) -> None:
            require(self.y.value < self.x.value)
            self.y = Local(self.y.value + 1)

    alone = by_embedded(Grows(), workers=1)
    assert disagreement(alone, by_embedded(Grows(), workers=2)) is None
    assert alone["distinct"] == 31 * 32 // 2


def misbehaving(misbehave: Callable[[], object]) -> type[Grid]:
    """The grid, where an evaluation in a helper does something else in some states."""

    class Misbehaves(Grid):
        @invariant
        def is_well(self) -> bool:
            if self.x[0] * self.y[0] == 12 and os.getpid() != HERE:
                misbehave()
            return True

    return Misbehaves


def test_what_a_helper_that_ends_has_left_open_is_answered_here(received: Received, idle: None) -> None:
    kind = misbehaving(lambda: os._exit(1))
    assert disagreement(by_embedded(kind(), workers=1), by_embedded(kind(), workers=2)) is None
    assert received.trees and received.all_have_ended()


def test_what_a_helper_does_not_answer_in_time_is_answered_here(
    received: Received, idle: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluators, "PATIENCE", 0.05)
    monkeypatch.setattr(evaluators, "SLOWER", 0)
    kind = misbehaving(lambda: time.sleep(1_000))
    assert disagreement(by_embedded(kind(), workers=1), by_embedded(kind(), workers=2)) is None
    assert received.trees and received.all_have_ended()


def test_a_limit_ends_a_round(received: Received, idle: None) -> None:
    began = time.monotonic()
    found = by_embedded(misbehaving(lambda: time.sleep(1_000))(), workers=2, timeout=1.0)
    assert found["limit"] == "the time limit of 1 seconds"
    assert time.monotonic() - began < 60 and received.all_have_ended()


def test_checking_mode_has_no_helpers(received: Received, idle: None) -> None:
    assert fencepost.check(Grid(size=3), engine="embedded", workers=2, checking=True).complete
    assert not received.trees


@pytest.mark.parametrize("what", ["forked", "Pipe", "os.pipe"])
def test_where_no_process_can_be_started_all_is_answered_here(
    received: Received, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def refuse(**_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(f"fencepost.checker.engines.evaluators.{what}", refuse)
    assert disagreement(by_embedded(Grid(), workers=1), by_embedded(Grid(), workers=2)) is None
    assert not received.trees


def test_the_numbers_of_all_chunks_fit_into_the_smallest_pipe() -> None:
    assert evaluators.MOST_CHUNKS * evaluators._NUMBER.size <= 4096


def test_rounds_that_do_not_pay_become_rare() -> None:
    evaluator = evaluators.Evaluators(tables.Tables(Stepper(Grid())), 2)
    evaluator._pace = 1.0
    tried = []
    for _ in range(100):
        tried.append(evaluator._pays(1_000))
        if tried[-1]:
            evaluator._notice(seconds=20.0, answered=10)
    assert [place for place, pays in enumerate(tried) if pays] == [0, 2, 5, 10, 19, 36, 69]
    evaluator._notice(seconds=5.0, answered=10)
    assert [evaluator._pays(1_000) for _ in range(40)].count(True) > 0
    assert not evaluator._pays(0)
