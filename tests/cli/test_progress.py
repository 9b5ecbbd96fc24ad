"""The live line: what it shows, when it is silent, and whether its predictions come true."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from math import comb

import numba
import pytest

import fencepost
from fencepost import Progress, Protocol, state
from fencepost.checker.engines.announcing import announced, compiling
from fencepost.checker.engines.interface import COMPILING, MORE, Exploration
from fencepost.cli.progress import Entries, Estimate, Line, TracesLine, per_second, roughly
from fencepost.text.numbers import duration, rate


class Small(Protocol):
    seen: frozenset[int] = state(frozenset())
    count: int = state(0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """Records the output, and the state of the last line after it."""

    def isatty(self) -> bool:
        return True

    def line(self) -> str:
        shown = ""
        for drawn in self.getvalue().split("\n")[-1].split("\r"):
            shown = drawn + shown[len(drawn) :]
        return shown.rstrip()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def test_a_check_that_is_over_at_once_draws_nothing(clock: Clock, terminal: Terminal) -> None:
    with Line(terminal, Small(), clock) as line:
        for _ in range(4):
            clock.now += 0.1
            line.report(Progress(generated=10, distinct=5, depth=2, queue=3, seconds=0.1))
    assert terminal.getvalue() == ""


def test_the_line_has_the_numbers_and_is_gone_at_the_end(clock: Clock, terminal: Terminal) -> None:
    with Line(terminal, Small(), clock) as line:
        clock.now += 1
        line.report(Progress(generated=9000, distinct=4000, depth=7, queue=500, seconds=1.0, memory=3 << 30))
        assert terminal.line() == "level 7   4,000 distinct (4,000/s)   500 to go   3.0 GiB   1.0 s"  # 80 columns
        clock.now += 1
        line.report(Progress(generated=90_000, distinct=44_000, depth=8, queue=700, seconds=2.0))
        assert terminal.line() == "level 8   44,000 distinct (40 k/s)   90,000 generated   700 to go   2.0 s"
    assert terminal.line() == ""
    assert "\n" not in terminal.getvalue()


def test_walks_have_a_line_of_their_own(clock: Clock, terminal: Terminal) -> None:
    with Line(terminal, Small(), clock) as line:
        clock.now += 1
        line.report(Progress(generated=90_000, distinct=4000, depth=100, seconds=1.0, memory=3 << 30, walks=1500))
        assert terminal.line() == "1,500 walks   90,000 states (90 k/s)   60 a walk   about 4,000 distinct   1.0 s"
        clock.now += 1
        line.report(Progress(generated=2_090_000, distinct=4000, depth=100, seconds=2.0, memory=3 << 30, walks=40_000))
        assert "2,090,000 states (2.0 M/s)" in terminal.line()


def test_what_comes_in_by_jobs_has_the_rate_of_the_last_two(clock: Clock, terminal: Terminal) -> None:
    with Line(terminal, Small(), clock) as line:
        for steps in (100_000, 500_000, 900_000):
            for _ in range(20):  # a job of 4 seconds
                clock.now += 0.2
                line.report(
                    Progress(generated=steps, distinct=400, seconds=clock.now, walks=1500, stage="walking (1 of 2)")
                )
        assert "1,500 walks   900,000 states (100 k/s)   about 400 distinct" in terminal.line()


def test_a_shorter_line_leaves_nothing_of_a_longer_one(clock: Clock, terminal: Terminal) -> None:
    line = Line(terminal, Small(), clock)
    clock.now += 1
    line.report(Progress(generated=10_000_000, distinct=5_000_000, depth=7, queue=500_000, seconds=1.0))
    clock.now += 1
    line.report(Progress(generated=1, distinct=1, depth=1, queue=1, seconds=1.0))
    assert terminal.line().startswith("level 1   1 distinct")
    assert terminal.line().endswith("1.0 s")
    assert "000" not in terminal.line()


def test_it_draws_a_few_times_a_second_whatever_the_engine_does(clock: Clock, terminal: Terminal) -> None:
    line = Line(terminal, Small(), clock)
    for _ in range(10_000):
        clock.now += 0.001
        line.report(Progress(distinct=5, depth=2, seconds=1.0))
    assert 50 < terminal.getvalue().count("\r") <= 100


def test_an_exploding_slot_is_named_once_with_advice(clock: Clock, terminal: Terminal) -> None:
    line = Line(terminal, Small(), clock)
    for values in (4_000, 8_000):
        clock.now += 1
        line.report(Progress(distinct=5, depth=2, seconds=1.0, exploding=[("seen", values)]))
    clock.now += 1
    line.report(Progress(distinct=5, depth=2, seconds=1.0, exploding=[("seen", 9_000), ("count", 5_000)]))
    warnings = [piece for piece in terminal.getvalue().replace("\r", "\n").split("\n") if "warning" in piece]
    assert len(warnings) == 2
    assert "seen has held 4,000 values" in warnings[0]
    assert "per_key" in warnings[0]
    assert "count has held 5,000 values" in warnings[1]
    assert "counter" in warnings[1]


def test_a_terminal_that_went_away_does_not_stop_the_check(clock: Clock) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    with Line(Gone(), Small(), clock) as line:
        clock.now += 1
        line.report(Progress(distinct=5, depth=2, seconds=1.0))


class Search:
    """A breadth-first search with given level sizes that expands a thousand states a second."""

    def __init__(self, levels: list[int]) -> None:
        self.levels = levels

    def reports(self, every: float = 0.2) -> list[tuple[Progress, float]]:
        """Its progress reports, each with the seconds that are really left."""
        found, expanded, whole = [], 0, sum(self.levels)
        step = int(1000 * every)
        while expanded < whole:
            done, level = 0, 0
            while done + self.levels[level] <= expanded:
                done += self.levels[level]
                level += 1
            share = (expanded - done) / self.levels[level]
            following = self.levels[level + 1] if level + 1 < len(self.levels) else 0
            distinct = done + self.levels[level] + int(following * share)
            progress = Progress(distinct=distinct, depth=level + 1, queue=distinct - expanded, seconds=expanded / 1000)
            found.append((progress, (whole - expanded) / 1000))
            expanded += step
        return found


BELL = [20 * comb(24, k) // 100 + 1 for k in range(25)]
LONG_TAIL = [int(200_000 * 0.8**k) + 1 for k in range(60)]


@pytest.mark.parametrize("levels", [BELL, LONG_TAIL], ids=["bell", "long tail"])
def test_what_is_foretold_comes_about_as_said(levels: list[int]) -> None:
    estimate = Estimate()
    said = 0
    for progress, truth in Search(levels).reports():
        estimate.seen(progress)
        guess = estimate.seconds(progress.queue, 1000)
        if guess is not None and truth > 1:
            said += 1
            assert 0.7 < guess / truth < 2.5, (progress, guess, truth)
    assert said > 20


def test_nothing_is_foretold_while_levels_grow() -> None:
    estimate = Estimate()
    for progress, _ in Search([2**k for k in range(18)]).reports():
        estimate.seen(progress)
        assert estimate.seconds(progress.queue, 1000) is None


def test_nothing_is_foretold_after_a_single_small_level() -> None:
    estimate = Estimate()
    for progress, _ in Search([1000, 2000, 4000, 3000, 6000, 4000, 9000, 20_000]).reports():
        estimate.seen(progress)
        assert estimate.seconds(progress.queue, 1000) is None


def test_the_estimate_reaches_the_line(clock: Clock, terminal: Terminal) -> None:
    line = Line(terminal, Small(), clock)
    shown = []
    levels = [10 * comb(16, k) for k in range(17)]
    for progress, truth in Search(levels).reports():
        clock.now += 0.2
        line.report(progress)
        shown.append((terminal.getvalue().rpartition("\r")[2].rstrip(), truth))
    assert not any("left" in text for text, truth in shown if truth > sum(levels) / 2000)
    assert any(text.endswith("left") for text, truth in shown)


@pytest.mark.parametrize(
    ("seconds", "exact", "rough"),
    [
        (0.04, "0.0 s", "a few seconds"),
        (9.94, "9.9 s", "about 10 s"),
        (61, "1 min 01 s", "about 60 s"),
        (245, "4 min 05 s", "about 4 min"),
        (7800, "2 h 10 min", "about 2 h"),
    ],
)
def test_durations(seconds: float, exact: str, rough: str) -> None:
    assert duration(seconds) == exact
    assert roughly(seconds) == rough


@pytest.mark.parametrize(("rate", "text"), [(0, "0/s"), (9_999, "9,999/s"), (12_300, "12 k/s"), (6_120_000, "6.1 M/s")])
def test_rates(rate: float, text: str) -> None:
    assert per_second(rate) == text


def test_where_nobody_watches_only_a_long_compilation_is_told() -> None:
    stream = io.StringIO()
    line = Line(stream, Small())
    for progress in (
        Progress(seconds=9.0),
        Progress(seconds=1.0, doing=COMPILING),
        Progress(seconds=9.0, doing="judging liveness"),
    ):
        line.report(progress)
    assert stream.getvalue() == ""
    for seconds in (2.5, 7.0):
        line.report(Progress(seconds=seconds, doing=COMPILING))
    assert stream.getvalue() == "compiling the loops, once on this machine\n"


def test_a_compilation_is_reported_when_it_begins_and_what_is_compiled_already_is_not() -> None:
    told: list[str] = []
    twice = numba.njit(lambda number: 2 * number)
    seconds = []
    for _ in range(2):
        with announced(lambda progress: told.append(progress.doing)) as timed:
            assert twice(4) == 8
        seconds.append(timed(Exploration()).compiling)
    assert told in ([COMPILING], [MORE]) and compiling() == "" and seconds[0] > seconds[1] == 0


def test_what_is_written_meanwhile_goes_above_the_line(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Entries(terminal, clock) as line:
        clock.now += 2.0
        line.report(34, None, None)
        print("the log q has no ledger 3", file=sys.stderr)
        clock.now += 1.0
        line.report(1, None, None)
    drawn = "34 entries (17/s)   2.0 s"
    blanks = " " * len(drawn)
    assert terminal.getvalue().startswith(f"\r{drawn}\r{blanks}\rthe log q has no ledger 3\n\r1 entry (")
    assert sys.stderr is terminal


def test_compiling_is_no_part_of_a_rate() -> None:
    result = fencepost.check("ledger-chaining", configuration="small", engine="embedded", max_states=50)
    result = replace(result, seconds=12.0, compiling=10.0)
    assert result.states_per_second == result.distinct_states / 2


def test_a_slow_rate_is_not_none() -> None:
    assert [rate(each) for each in (0, 0.166, 4.25, 43.2, 4_980, 8_020_000)] == [
        "0 a second", "0.17 a second", "4.2 a second", "43 a second", "4,980 a second", "8.02 million a second",
    ]  # fmt: skip


def test_traces_are_counted_and_a_long_one_shows_its_steps(clock: Clock, terminal: Terminal) -> None:
    with TracesLine(terminal, 3, clock) as line:
        clock.now += 4
        line.report(1, 8000)
        assert terminal.line() == "1 of 3 traces   8,000 steps (2,000/s)   4.0 s   about 10 s left"
        for steps in (1000, 3000):
            clock.now += 1
            line.within(steps, 900_000)
        assert terminal.line() == "1 of 3 traces   3,000 of 900,000 steps (2,000/s)   6.0 s"  # what comes after it?
        line.report(1, 900_000)
        for steps in (1000, 5000):
            clock.now += 1
            line.within(steps, 85_000)
        assert terminal.line() == "2 of 3 traces   5,000 of 85,000 steps (4,000/s)   8.0 s   about 20 s left"
        clock.now += 1
        line.within(900, 85_000)  # steps were taken back
        assert terminal.line() == "2 of 3 traces   900 of 85,000 steps (0/s)   9.0 s"
    assert terminal.line() == ""


def test_a_long_trace_is_drawn_a_few_times_a_second(clock: Clock, terminal: Terminal) -> None:
    with TracesLine(terminal, 1, clock) as line:
        for steps in range(0, 100_000, 100):
            clock.now += 0.001
            line.within(steps, 100_000)
        assert terminal.getvalue().count("of 100,000 steps") == 6  # of a second, the first half has none
