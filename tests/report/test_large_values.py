"""Values too long to read, and names that are not plain text. Both are shown in lines that a terminal can print."""

from __future__ import annotations

import enum
import json
from typing import Any

import pytest

import fencepost
from fencepost import Map, ModelValue, Protocol, Record, check, require, state, table
from fencepost.behaviours import to_dot, to_itf
from fencepost.behaviours.formatting import MOST_LINES, MOST_TEXT, change_text, lines
from fencepost.report.html import html
from fencepost.report.json import to_json
from fencepost.report.text import render

LONG = 50_000


class Pair(Record):
    one: Any = None
    other: Any = None


class Large(Protocol):
    phase: int = state(0)
    sequence: Any = state(())
    text: str = state("")
    members: Any = state(frozenset())
    pairs: Any = state(Map())
    cells: fencepost.Table[int, str] = table()

    @fencepost.action
    def grow(self) -> None:
        require(self.phase == 0)
        self.phase = 1
        self.sequence = tuple(range(LONG // 10))
        self.text = "x" * LONG
        self.members = frozenset((number,) for number in range(LONG // 10))
        self.pairs = Map({number: Pair(number, "word " * 3) for number in range(LONG // 50)})
        self.cells[1] = "y " * (LONG // 2)

    @fencepost.action
    def shrink(self) -> None:
        require(self.phase == 1)
        self.phase = 2
        self.sequence, self.text = ("z" * LONG,), "z" * LONG

    @fencepost.invariant
    def small(self) -> bool:
        return self.phase < 2 or (self.members == self.pairs == self.text == self.cells[1])


@pytest.fixture(scope="module")
def large() -> fencepost.Result:
    return check(Large(), engine="reference", deadlock=True, keep_going=True)


def test_a_long_value_is_told_in_part_and_how_much_is_left_out(large: fencepost.Result) -> None:
    story = str(large)
    assert len(story) < 40 * MOST_TEXT
    assert "sequence appended 0, 1, 2" in " ".join(story.split())
    assert "more characters)" in story
    assert "more lines)" in story  # of the state that a deadlock ends in
    assert "phase     0 → 1" in story


def test_other_reports_of_a_long_value_are_short_too(large: fencepost.Result) -> None:
    trace = large.violations[0].trace
    assert len(html(large)) < 1_000_000
    assert len(to_dot(Large(), trace)) < 20_000


def test_nothing_is_left_out_for_programs(large: fencepost.Result) -> None:
    held = json.loads(to_json(large))["violation"]["trace"][1]["state"]
    assert held["text"] == "x" * LONG
    assert held["sequence"] == list(range(LONG // 10))
    assert large.violations[0].trace is not None
    assert "x" * LONG in to_itf(large.violations[0].trace)


def test_both_sides_of_a_long_change_are_told() -> None:
    told = change_text("a" * LONG, "b" * LONG)
    assert len(told) <= MOST_TEXT + 10
    before, after = told.split(" → ")
    assert before.startswith("'aaa") and after.startswith("'bbb")
    assert f"({LONG + 2 - MOST_TEXT // 2 + 40:,} more characters)" in before


def test_lines_of_a_long_value() -> None:
    found = lines(tuple(range(MOST_LINES * 3)), 20)
    assert len(found) == MOST_LINES + 1
    assert found[-1] == f"… ({2 * MOST_LINES + 2:,} more lines)"
    assert lines((1, 2), 20) == ["⟨1, 2⟩"]


ODD = "\x1b[31m\r\n\u202e\x00"


class Odd(Protocol):
    """A docstring \x1b[31m that colours."""

    name = f"odd{ODD}"
    who: Any = state(ModelValue(f"b{ODD}"))
    what: Any = state(enum.Enum("What", {ODD: 1})[ODD])  # type: ignore[index]
    where: Any = table({f"key{ODD}": 1})
    turned: bool = state(False)

    @fencepost.action(by=f"someone{ODD}")
    def turn(self) -> None:
        self.turned, self.where[f"key{ODD}"], self.where["new" + ODD] = True, 2, ODD

    @fencepost.invariant
    def right(self) -> bool:
        """Right \x1b[1m or wrong."""
        return not self.turned or self.who == self.what == self.where

    @fencepost.action(who=(ODD,))
    def fail(self, who: str) -> None:
        raise ValueError(f"no {who}")


@pytest.mark.parametrize("invariants", [["right"], None])
def test_nothing_that_is_told_of_odd_names_does_anything_to_a_terminal(invariants: list[str] | None) -> None:
    from rich.console import Console

    for result in (
        check(Odd(), engine="reference", keep_going=True),
        check(Odd(), engine="reference", invariants=invariants),
    ):
        assert all(line.isprintable() for line in str(result).split("\n"))
        assert "\\x1b[31m" in str(result)
        console = Console(width=100, color_system=None, force_terminal=False)
        with console.capture() as captured:
            render(result, console)
        assert all(line.isprintable() for line in captured.get().split("\n"))
