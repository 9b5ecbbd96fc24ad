"""Coverage by traces: actions, effects, refusals, and the states of a state space."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from traces.counting import Counting, CountingConformance
from traces.plain_space import plain, walked, ways
from traces.traces_of_runs import BAD, GOOD, write_counters

import fencepost
from fencepost import constraint
from fencepost.cli.main import main
from fencepost.states.manifest import StateSpace
from fencepost.traces import read
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.coverage import Coverage
from fencepost.traces.validation.space_coverage import InSpace, Visited, in_space
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator


class Bounded(Counting):
    """The counter, looked at up to 4."""

    @constraint
    def few(self) -> bool:
        return self.counter < 4


HERE = str(Path(__file__).parent / "counting.py")


@pytest.fixture
def space(tmp_path: Path) -> Callable[..., StateSpace]:
    """The state space of the counter up to 3, of two writers."""

    def explored(edges: bool = True) -> StateSpace:
        folder = tmp_path / f"space-{edges}"
        if not folder.exists():
            fencepost.check(Counting(limit=3), engine="reference", states=folder, edges=edges)
        return StateSpace(folder)

    return explored


def events_of(tmp_path: Path, happened: object) -> Sequence[Event]:
    traces = Traces(read(write_counters(tmp_path / "t.parquet", {"r": happened})))  # type: ignore[dict-item]
    return traces.events(("r", "7"))


def test_actions_effects_and_refusals_are_counted(tmp_path: Path) -> None:
    coverage = Coverage()
    coverage.add(Validator(CountingConformance).validate("7", events_of(tmp_path, GOOD)))
    coverage.add(Validator(CountingConformance).validate("7", events_of(tmp_path, BAD)))
    visits = coverage.visits
    assert visits.taken == {"writes": 5, "reads": 3}
    assert visits.parameters["writes"] == {"w=w1": 3, "w=w2": 2}
    assert visits.effects == {"writes": {"changes counter, seen": 5}, "reads": {"changes seen": 3}}
    assert [where.partition(": ")[2] for where in visits.refused["writes"]] == ["value = one_of((self.seen[w] + 1,))"]
    twice = Coverage().visits
    twice.add(visits)
    twice.add(visits)
    assert twice.taken == {"writes": 10, "reads": 6} and twice.effects["reads"] == {"changes seen": 6}


@pytest.mark.parametrize("edges", [True, False])
def test_the_states_of_a_trace_are_found_in_the_table(
    tmp_path: Path, space: Callable[..., StateSpace], edges: bool
) -> None:
    within = InSpace(CountingConformance, space(edges))
    within.replay("7", lambda: events_of(tmp_path, GOOD))
    within.replay("7", lambda: events_of(tmp_path, BAD))
    found = in_space(space(edges), within.visited)
    assert (found.traces, found.fitting, found.visited, found.taken) == (2, 1, 6, 5 if edges else 0)
    assert all(unvisited.elsewhere for unvisited in found.never), "every action of both writers was taken"
    assert [level.visited for level in found.levels][:2] == [1, 1] and sum(
        level.states for level in found.levels
    ) == found.states


def test_what_was_never_done_is_told_nearest_first(tmp_path: Path, space: Callable[..., StateSpace]) -> None:
    within = InSpace(CountingConformance, space())
    within.replay("7", lambda: events_of(tmp_path, [("b", "writes", 1)]))  # which is w1
    found = in_space(space(), within.visited)
    told = [(u.distance, u.action, u.parameters, u.elsewhere) for u in found.never]
    assert told == [
        (1, "writes", "w=w2", False),
        (1, "reads", "w=w2", False),
        (2, "reads", "w=w1", False),
        (1, "writes", "w=w1", True),
    ]
    nothing = in_space(space(), Visited())
    assert nothing.visited == 0
    assert {(u.distance, u.depth, u.action, u.parameters) for u in nothing.never[:2]} == {
        (2, 2, "writes", "w=w1"),
        (2, 2, "writes", "w=w2"),
    }
    assert len(nothing.never) == 4


@pytest.mark.parametrize("edges", [True, False])
@pytest.mark.parametrize("limit", [3, 5])
def test_the_numbers_are_those_of_the_plain_way(tmp_path: Path, edges: bool, limit: int) -> None:
    fencepost.check(Counting(limit=limit), engine="reference", states=tmp_path / "space", edges=edges)
    space = StateSpace(tmp_path / "space")
    for seed in range(20):
        visited = walked(space, seed, walks=seed % 4, length=seed)
        for most in (1, 20):
            found, expected = in_space(space, visited, most)._asdict(), plain(space, visited, most)
            assert {name: found[name] for name in expected} == expected


def test_steps_that_leave_a_constraint_are_counted_and_not_told(tmp_path: Path) -> None:
    fencepost.check(Bounded(limit=9), engine="reference", states=tmp_path / "space", edges=True)
    space = StateSpace(tmp_path / "space")
    found = in_space(space, Visited())
    outside = {target for _, target, _, _ in ways(space)} - set(
        space.dataset("states").to_table(["fingerprint"])["fingerprint"].to_pylist()
    )
    assert outside and found.steps == space.manifest.edges
    expected = plain(space, Visited())
    assert {name: found._asdict()[name] for name in expected} == expected


def test_the_command_tells_coverage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, space: Callable[..., StateSpace]
) -> None:
    traces = write_counters(tmp_path / "t.parquet", {"one": GOOD, "two": [("a", "writes", 1)]})
    given = ["validate", str(traces), "--conformance", HERE, "--coverage"]
    assert main(given) == 0
    assert "Coverage of counting: 2 of 2 actions taken" in capsys.readouterr().out
    fencepost.check(
        fencepost.language.loading.configured(fencepost.language.loading.load(f"{HERE}:Counting"), None),
        engine="reference",
        states=tmp_path / "own",
    )
    assert main([*given, "--states", str(tmp_path / "own"), "--json", str(tmp_path / "o.json")]) == 0
    out = capsys.readouterr().out
    assert "2 of 2 traces stay within its bounds" in out and "Visited: 6 of " in out
    document = json.loads((tmp_path / "o.json").read_text())["coverage"]
    assert document["taken"] == {"writes": 4, "reads": 2} and document["state_space"]["visited"] == 6
    assert main(["validate", str(traces), "--conformance", HERE, "--states", str(tmp_path / "own")]) == 151
    assert "give --coverage too" in capsys.readouterr().err


def test_the_state_space_of_another_protocol_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    examples = Path(__file__).parents[2] / "docs" / "examples"
    fencepost.check(
        fencepost.language.loading.load(str(examples / "lost_update.py"))(),
        engine="reference",
        states=tmp_path / "other",
    )
    traces = write_counters(tmp_path / "t.parquet", {"one": GOOD})
    assert (
        main(["validate", str(traces), "--conformance", HERE, "--coverage", "--states", str(tmp_path / "other")]) == 151
    )
    assert "is the state space of" in capsys.readouterr().err
