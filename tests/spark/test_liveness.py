"""Temporal properties on Spark: the embedded engine's verdict and lasso, whatever was trimmed on the way."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from checker.engines.random_protocols import seeded
from checker.liveness.graphs import Small, graphs, protocol, stems
from checker.liveness.locks import Lock, LockThatGoesOn, StrongLock, WeakLock
from checker.liveness.test_engines import CAP, results_of
from hypothesis import given, settings

from fencepost import (
    OptionError,
    Protocol,
    Result,
    SystemFailure,
    action,
    always_eventually,
    check,
    require,
    state,
    weak,
)
from fencepost.language.loading import shipped
from fencepost.report.text import story
from fencepost.spark import engine, graph, liveness, recording

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
KINDS = ("always_eventually", "eventually_always", "leads_to")


class Room:
    """Room in the judge for a graph of ``states`` states. The first ``after`` requests are refused."""

    def __init__(self, states: int = sys.maxsize, after: int = 1) -> None:
        self.states, self.after, self.asked = states, after, 0

    def __call__(self, terms: object, states: int, steps: int, limit: int) -> bool:
        self.asked += 1
        return self.asked > self.after and states <= self.states


def on_spark(build: Callable[[], Protocol], room: Room, handover: int = 1, **options: Any) -> Result:
    """The Spark engine's result, with this room for its judge."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(liveness, "fits", room)
        return check(build(), engine="spark", handover=handover, **{"workers": 1, **options})


def left(result: Result) -> list[tuple[int, int]]:
    """For each property, the number of states in which it can be violated forever, and how many trimming left."""
    return [(one["region"], one["left"]) for one in result.profile.get("trimmed on Spark", ()) if "left" in one]


def agrees(build: Callable[[], Protocol], **options: Any) -> Result:
    """The result of Spark with everything trimmed. It equals the result without trimming, and that of the embedded
    engine.
    """
    shared = {name: value for name, value in options.items() if name != "handover"}
    expected = results_of(check(build(), engine="embedded", workers=1, **shared))
    assert results_of(on_spark(build, Room(), **options)) == expected
    least = on_spark(build, Room(0), **options)
    if least.unjudged is None and not least.violations:
        # Nothing was left of any property.
        assert results_of(least) == expected
        return least
    # Room for what was left, and for no state more. Where a behaviour can stay somewhere, Room(0) has told that
    # already.
    most = max((some for _, some in left(least)), default=0)
    result = on_spark(build, Room(most), **options)
    assert results_of(result) == expected
    return result


@pytest.fixture
def _here(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small blocks and record files, and skip the check for Spark and Java."""
    monkeypatch.setattr(engine, "require_spark", lambda: None)
    monkeypatch.setattr(graph, "BLOCK_ROWS", 7)
    monkeypatch.setattr(recording, "MOST_STATES", 20)


@pytest.mark.usefixtures("_here")
class TestHere:
    """The tasks, run in this process."""

    @pytest.mark.parametrize("seeds", [range(3), *campaign_if(bool, [range(3, 9)])], ids=str)
    def test_agrees_on_random_protocols(self, seeds: range) -> None:
        judged = 0
        for seed in seeds:
            random = seeded(seed, temporal=True)
            expected = check(random.build(), engine="reference", max_states=CAP)
            if expected.complete and expected.error is None:
                judged += 1
                agrees(random.build, bits=(64, 128)[seed % 3 == 0], handover=seed % 2)
        assert judged > len(seeds) * 2 / 3

    @pytest.mark.parametrize("kind", KINDS)
    @settings(max_examples=10)
    @given(small=graphs())
    def test_agrees_with_looking_at_every_set_of_states(self, kind: str, small: Small) -> None:
        result = on_spark(lambda: protocol(small, kind), Room(), handover=0)
        expected = stems(small, kind)
        assert [v.trace.loop for v in result.violations if v.trace] == ([min(expected)] if expected else [])
        assert result.holds is (not expected and not small.starts <= small.outside), "nothing holds of no state"

    @pytest.mark.parametrize("name", ["Lucky", *campaign_if(bool, ["Fair"])])
    def test_agrees_on_the_tutorials_two_phase_commit(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(EXAMPLES))
        result = agrees(getattr(importlib.import_module("two_phase_live"), name))
        assert result.holds is (name != "Fair")
        assert all(some < region for region, some in left(result))

    def test_agrees_on_a_shipped_protocol(self) -> None:
        options = {"invariants": ["values_eventually_acked", "eventually_leader_elected"], "handover": 10}
        result = agrees(lambda: shipped("kraft-kip-853").configured("undisturbed"), **options)
        assert result.holds and len(result.judged) == 2

    def test_states_that_steps_back_do_not_span_are_taken_out_at_once(self) -> None:
        """A chain of 40 states, then a circle of three; and a step aside, twice."""

        class Chain(Protocol):
            at: int = state(0)
            side: int = state(0)

            @action
            def go(self) -> None:
                self.at = self.at + 1 if self.at < 42 else 40

            @action
            def turn(self) -> None:
                require(self.side < 2)
                self.side = self.side + 1

            fairness = (weak(go), weak(turn))

            @always_eventually
            def starts_again(self) -> bool:
                return self.at == 0

        result = agrees(Chain)
        (one,) = result.profile["trimmed on Spark"]
        assert result.must_violate("starts_again").loop is not None
        # Three circles are left. Removing the chain state by state would have taken many rounds.
        assert (one["region"], one["left"]) == (42 * 3, 9) and one["rounds"] <= 8

    @pytest.mark.parametrize("awaited", [1, 2])
    def test_the_way_there_comes_by_where_it_begins_to_be_awaited(self, awaited: int) -> None:
        """Two ways lead to the same state. Only one passes through the state where the wait begins."""
        steps = frozenset({(0, 1), (0, 2), (1, 3), (2, 3)})
        actions = {"a": steps, "b": frozenset[tuple[int, int]](), "c": frozenset[tuple[int, int]]()}
        none = frozenset[int]()
        small = Small(4, frozenset({0}), actions, ((False, frozenset("a")),), none, frozenset({awaited}), none)
        trace = agrees(lambda: protocol(small, "leads_to"), handover=0).must_violate("expected")
        assert [one.variables()["at"] for one in trace.states] == [0, awaited, 3]

    def test_a_limit_is_told_when_the_rest_does_not_fit(self) -> None:
        result = on_spark(WeakLock, Room(2))
        assert (result.verdict, result.exit_code, result.holds, result.violations) == ("not complete", 152, False, [])
        assert "no room for the 8 states and 14 steps that trimming has left for quiet_at_last" in str(result.unjudged)
        assert result.judged == ("free_again",)
        assert "NOT COMPLETE" in story(result) and "Liveness was not judged: the memory limit of" in story(result)

    def test_where_a_behaviour_can_stay_the_rest_does_not_matter(self) -> None:
        result = on_spark(Lock, Room(0))
        assert result.exit_code == 13 and result.unjudged is None
        assert [v.name for v in result.violations] == ["free_again", "quiet_at_last", "whoever_waits_enters"]

    def test_of_a_time_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(liveness.Judge, "run", _late(liveness.Judge.run))
        result = on_spark(StrongLock, Room(), timeout=1_000_000)
        assert result.exit_code == 152 and "the time limit of 1e+06 seconds was reached" in str(result.unjudged)

    def test_a_search_goes_on_with_what_was_recorded(self, tmp_path: Path) -> None:
        place = tmp_path / "checkpoint"
        build = shipped("ledger-chaining")
        options: dict[str, Any] = {"invariants": ["stable_leader_accepts_writes"], "handover": 30}

        def searched(**more: Any) -> Result:
            return on_spark(lambda: build(clients=2), Room(sys.maxsize, 0), **options, **more)

        assert searched(checkpoint=place, max_depth=12).verdict == "not complete"
        resumed = searched(resume=place)
        assert results_of(resumed) == results_of(
            check(build(clients=2), engine="embedded", invariants=options["invariants"])
        )
        again = searched(resume=place)
        assert (again.verdict, again.judged) == ("holds", ("stable_leader_accepts_writes",))
        manifest = (place / "manifest.json").read_text()
        assert [f.name for f in place.glob("level-*") if f.name not in manifest] == []
        other = on_spark(
            lambda: build(clients=2), Room(), handover=30, resume=place, invariants=["elected_client_accepts_writes"]
        )
        assert isinstance(other.failure, SystemFailure)
        assert "does not judge elected_client_accepts_writes; choose the same with invariants" in str(other.failure)

    def test_a_predicate_that_raises_is_told_with_the_way_there(self) -> None:
        class Raising(Lock):
            @always_eventually
            def broken(self) -> bool:
                return 1 // (3 - sum(self.at[p].value == "waiting" for p in self.processes) - self.held) == 0

        results = [
            check(Raising(processes=4), engine="embedded"),
            on_spark(lambda: Raising(processes=4), Room(), handover=1),
        ]
        for result in results:
            assert result.verdict == "raised" and result.error_trace is not None
        first, second = (r.error_trace.states[-1].fingerprint for r in results if r.error_trace is not None)
        assert first == second


def _late(run: Callable[[liveness.Judge], None]) -> Callable[[liveness.Judge], None]:
    def late(judge: liveness.Judge) -> None:
        judge.search.stepper.deadline.began -= 2_000_000
        run(judge)

    return late


def test_only_spark_keeps_steps(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"leave out checkpoint"):
        check(Lock(), engine="embedded", checkpoint=tmp_path)


@pytest.mark.campaign
@pytest.mark.usefixtures("spark")
def test_on_a_real_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "FEWEST_ROWS", 2)
    seen: set[str] = set()
    options: dict[str, Any] = {"invariants": ["quiet_at_last"]}
    expected = results_of(check(LockThatGoesOn(), engine="embedded", workers=1, **options))
    result = on_spark(LockThatGoesOn, Room(), report=lambda progress: seen.add(progress.doing), **options)
    assert results_of(result) == expected and not result.holds
    assert left(result) == [(8, 8)]
    assert any("quiet_at_last: 8 states left" in doing for doing in seen), seen
