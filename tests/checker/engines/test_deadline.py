"""Limits on time and memory where the author's Python does not return. Every engine ends it, names it, and keeps its
counts.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from campaigns import campaign_if
from patience import PATIENCE, until

import fencepost
from fencepost import (
    NotAProtocol,
    Protocol,
    Result,
    action,
    assumption,
    constant,
    initial,
    invariant,
    require,
    state,
    view,
)
from fencepost.checker.compiler import native, tables
from fencepost.checker.engines import reference, workspace
from fencepost.checker.engines.options import ReferenceOptions
from fencepost.checker.engines.resources import resident_memory
from fencepost.report.json import to_json
from fencepost.semantics import Deadline, LimitReached, Stepper, deadline
from fencepost.text import numbers

ENGINES = ("auto", "reference", "embedded", "simulate")


class Endless(Protocol):
    """Counts up by ones and twos. The function that ``where`` names never returns at three."""

    where: str = constant("action")
    count: int = state(0)

    @assumption
    def sound(self) -> bool:
        return self._passes("assumption")

    @initial
    def start(self) -> None:
        self._passes("initial")

    @action(size=lambda p: (1, 2) if p._passes("domain") else ())
    def add(self, size: int) -> None:
        require(self.count < 9)
        if self.count == 3:
            self._passes("action")
        self.count += size

    @invariant
    def small(self) -> bool:
        return self.count != 3 or self._passes("invariant")

    def _passes(self, where: str) -> bool:
        while self.where == where:
            pass
        return True


class EndlessView(Endless):
    @view
    def seen(self) -> Any:
        return (self.count + 0, self.count == 3 and self._passes("view"))


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """Compile the loops first: that would exceed any limit here."""
    fencepost.check(Endless(where=""), engine="embedded", workers=1)
    fencepost.check(Endless(where=""), engine="simulate", workers=1, walks=10)


@contextmanager
def at_most() -> Iterator[None]:
    """No test waits without end for an evaluation that must end."""

    def late(*_: object) -> None:
        raise AssertionError("it did not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(int(PATIENCE))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def limited(protocol: Protocol, **options: Any) -> Result:
    with at_most():
        return fencepost.check(protocol, workers=1, **{"timeout": 1.0, **options})


@pytest.mark.parametrize("engine", ENGINES)
def test_an_action_that_never_returns_is_named_with_its_parameters_and_its_state(engine: str) -> None:
    result = limited(Endless(), engine=engine)
    assert (result.verdict, result.exit_code, result.limit) == ("not complete", 152, "the time limit of 1 seconds")
    assert result.unfinished is not None and result.unfinished.what in ("action add(size=1)", "action add(size=2)")
    assert result.unfinished.state is not None and result.unfinished.state.variables() == {"count": 3}
    assert result.distinct_states >= 3 and not result.error and not result.failure
    assert "had not returned after" in str(result) and "in the state count = 3." in str(result)
    written = json.loads(to_json(result))
    assert written["unfinished"]["evaluation"] == result.unfinished.what and written["unfinished"]["state"] == {
        "count": 3
    }


@pytest.mark.parametrize(
    ("protocol", "what", "held"),
    [
        (Endless(where="domain"), "what the domains of action add are drawn from", None),
        (Endless(where="invariant"), "invariant small", {"count": 3}),
        *campaign_if(
            bool,
            [
                (Endless(where="assumption"), "assumption sound", None),
                (Endless(where="initial"), "initial state start", {"count": 0}),
                (EndlessView(where="view"), "action add(size=", None),
            ],
        ),
    ],
    ids=["domain", "invariant", "assumption", "initial", "view"],
)
def test_whatever_the_author_wrote_is_ended(protocol: Protocol, what: str, held: Any) -> None:
    for engine in ("auto", "embedded"):
        result = limited(protocol, engine=engine, timeout=0.7)
        assert result.exit_code == 152 and result.unfinished is not None
        assert result.unfinished.what.startswith(what)
        assert held is None or (result.unfinished.state is not None and result.unfinished.state.variables() == held)
        assert str(result).startswith("NOT COMPLETE\nThe time limit of 0.7 seconds was reached.\n")


def test_an_author_s_except_does_not_keep_it_from_ending() -> None:
    class Stubborn(Protocol):
        count: int = state(0)

        @action
        def spin(self) -> None:
            for _ in range(3):
                try:
                    while True:
                        pass
                except BaseException:
                    pass
            self.count = 1  # later results do not count

    for engine in ("reference", "embedded"):
        result = limited(Stubborn(), engine=engine, timeout=0.3)
        assert result.unfinished is not None and result.unfinished.what == "action spin"
        assert result.distinct_states <= 1 and result.exit_code == 152


def test_checking_mode_ends_what_never_returns() -> None:
    assert limited(Endless(), engine="embedded", checking=True).unfinished is not None


def test_a_limit_on_memory_ends_what_allocates_without_end() -> None:
    class Greedy(Protocol):
        count: int = state(0)

        @action
        def hold(self) -> None:
            held = []
            while True:
                held.append(bytearray(1 << 20))

    now = resident_memory()
    result = limited(Greedy(), engine="reference", timeout=None, max_memory=now + (200 << 20))
    assert result.limit == f"the memory limit of {numbers.size(now + (200 << 20))}" and result.exit_code == 152
    assert result.unfinished is not None and result.unfinished.what == "action hold"


def test_the_default_engine_keeps_to_the_time_where_single_calls_are_slow() -> None:
    class Slow(Protocol):
        count: int = state(0)

        @action(n=range(10_000))
        def add(self, n: int) -> None:
            time.sleep(0.01)
            self.count = n

    result = limited(Slow(), timeout=0.5)
    # Calls run one by one and take at least ten milliseconds each.
    assert result.limit == "the time limit of 0.5 seconds" and 1 <= result.evaluations <= 200 and result.seconds < 100


def test_what_was_counted_is_kept() -> None:
    # With the one endless call left out, the same search ends at a limit on states.
    stepper = Stepper(Endless(where="action"))
    with at_most():
        explored = reference.explore(stepper, ReferenceOptions(timeout=0.5))
    # 0; 1 and 2; 3 and 4. Then 3 or 4 is expanded.
    assert explored.distinct in (5, 6) and explored.depth == 3
    assert sum(explored.taken.values()) + 1 == explored.generated


def test_what_is_violated_until_then_is_told() -> None:
    class Wrong(Endless):
        first: int = constant(0)

        @invariant
        def not_there(self) -> bool:
            return self.count != self.first

    for engine, first in (("reference", 3), ("embedded", 3), ("embedded", 0)):
        protocol = Wrong(first=first) if first else Wrong(where="invariant")
        result = limited(protocol, engine=engine, timeout=0.7)
        assert (result.verdict, result.exit_code) == ("not_there", 12), (engine, first)


class Interrupted(Endless):
    """Its endless evaluation interrupts itself, so that the interrupt cannot come in another function, where Python may
    drop it.
    """

    def _passes(self, where: str) -> bool:
        if self.where == where:
            time.sleep(2 * deadline.LONG)
            signal.raise_signal(signal.SIGINT)
        return super()._passes(where)


def test_interrupting_an_endless_action_says_which_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "LONG", 0.1)
    result = limited(Interrupted(), engine="reference", timeout=None)
    assert (result.verdict, result.exit_code) == ("interrupted", 130)
    assert result.unfinished is not None and result.unfinished.what.startswith("action add(size=")
    assert "had not returned after" in str(result)


def test_nothing_arrives_after_an_evaluation_has_ended() -> None:
    # Evaluations that return just as they are interrupted. In any order, the exception comes out of end() or not at
    # all.
    told = 0
    for n in range(300):
        one = Deadline()
        with one.limits(lambda: "now", refuse=False):
            one._running = None
            one.begin("it")
            one._reached_at = 0.0
            try:
                try:
                    end = time.monotonic() + n % 7 * 1e-5
                    while time.monotonic() < end:
                        pass
                    one.reached, one._running = "now", (*one._running[:3], -1.0, one._running[4])  # type: ignore[index]
                    threading.Thread(target=one._interrupt).start()
                    for _ in range(n % 50):
                        pass
                finally:
                    one.end()
            except LimitReached:
                told += 1
            for _ in range(2_000):
                pass
            assert one._interrupted_at == 0.0
    assert told <= 300


def test_short_evaluations_come_to_their_end_at_a_limit() -> None:
    one = Deadline()
    with one.limits(lambda: "the limit", refuse=True):
        while one.reached is None:
            time.sleep(0.01)
        time.sleep(0.1)
        with pytest.raises(LimitReached):
            one.begin("another")
    assert one.unfinished is None
    one.begin("after it all")
    one.end()


def test_domains_that_raise_are_still_told_as_such() -> None:
    class Broken(Protocol):
        count: int = state(0)

        @action(n=lambda p: 1 // 0)
        def add(self, n: int) -> None:
            self.count = n

    with pytest.raises(NotAProtocol, match="have no usable domains: ZeroDivisionError"):
        limited(Broken(), engine="reference")


class Crowd(Protocol):
    """Many bindings of one action. Each reads a variable that all of them change."""

    members: int = constant(40)
    holder: int = state(-1)

    @action(m=lambda p: range(p.members))
    def take(self, m: int) -> None:
        require(self.holder == -1)
        self.holder = m


def test_limits_are_looked_at_while_tables_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    # One entry at a time. The limit is reached after some, and no later one is made.
    monkeypatch.setattr(tables, "ENTRIES_AT_ONCE", 1)
    stepper = Stepper(Crowd())
    built = tables.Tables(stepper)
    row = stepper.initial_states()[0].ids
    for root in stepper.of_kind("action"):
        built.record(tables.Question(root.index, row), stepper.evaluate(root, row))
    with stepper.deadline.limits(lambda: "the limit"):
        until(lambda: stepper.deadline.reached, "the limit")
        time.sleep(2 * deadline.LOOK)
        before = int(built.entries[0])
        with pytest.raises(LimitReached):
            built.spread()
    assert int(built.entries[0]) - before <= 40
    built.spread()
    assert int(built.entries[0]) == 40 + 40 * 40


def test_tables_are_laid_out_anew_only_when_there_is_something_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "QUESTIONS", 8)
    linked: list[int] = []
    link = native.link

    def counted(*arguments: Any) -> Any:
        linked.append(1)
        return link(*arguments)

    monkeypatch.setattr(native, "link", counted)
    result = limited(Crowd(), engine="embedded", timeout=None)
    # 41 states with 40 questions each, 8 at a time: about 200 rounds.
    assert (result.distinct_states, result.evaluations) == (41, 1 + 41 * 40)
    assert len(linked) < 30


def test_what_is_traced_goes_on_after_a_limit() -> None:
    # An exception that was sent and not raised would stop an interpreter that traces its instructions.
    limited(Endless(), engine="reference", timeout=0.3)
    calls: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, subject: calls.append(event))
    try:
        Endless(where="")
    finally:
        sys.setprofile(before)
    assert "call" in calls
