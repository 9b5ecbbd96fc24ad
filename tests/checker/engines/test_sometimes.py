"""``sometimes`` properties: the shortest witness on every engine, and the report where there is none.

Random protocols have such properties too. `test_reference` checks their witnesses against the naive explorer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fencepost import (
    ModelValue,
    Options,
    PerKey,
    Protocol,
    Result,
    action,
    check,
    configuration,
    initial,
    invariant,
    model_values,
    per_key,
    require,
    sometimes,
    state,
    view,
)
from fencepost.behaviours import to_itf
from fencepost.cli.main import main
from fencepost.report.html import html
from fencepost.report.json import to_json

WAYS: Sequence[dict[str, Any]] = [
    {"engine": "reference"},
    {"engine": "auto"},
    {"engine": "embedded", "workers": 1},
    {"engine": "embedded", "workers": 2},
]
STEPS = 6


class Walkers(Protocol):
    """Walkers on a line, one step at a time."""

    walkers: Any = model_values("w", 3, symmetric=True)
    at: PerKey[ModelValue, int] = per_key(walkers, 0)

    configurations = {"as it is": configuration()}

    @action(w=walkers)
    def step(self, w: Any) -> None:
        require(self.at[w] < STEPS)
        self.at[w] += 1

    @invariant
    def near(self) -> bool:
        return all(self.at[w] <= STEPS for w in self.walkers)

    @sometimes
    def all_at_four(self) -> bool:
        """All walkers can meet at four."""
        return all(self.at[w] == 4 for w in self.walkers)

    @sometimes(w=walkers)
    def is_far(self, w: Any) -> bool:
        return bool(self.at[w] == STEPS)


class Astray(Walkers):
    configurations = {"lost": configuration(expect="is_lost")}

    @sometimes(w=Walkers.walkers, by=(STEPS, STEPS + 1, STEPS + 2))
    def is_lost(self, w: Any, by: int) -> bool:
        return bool(self.at[w] == by)

    @sometimes(when=lambda protocol: len(protocol.walkers) > 3)
    def is_crowded(self) -> bool:
        return True


def lengths(result: Result) -> dict[str, int]:
    return {witness.name: len(witness.trace.steps) for witness in result.witnesses}


def ways(result: Result) -> list[tuple[str, int | None, list[str]]]:
    return [(witness.name, witness.walk, [step.title for step in witness.trace.steps]) for witness in result.witnesses]


EXPECTED = {"all_at_four": 12, "is_far(w=w1)": 6, "is_far(w=w2)": 6, "is_far(w=w3)": 6}


@pytest.mark.parametrize("way", WAYS)
def test_the_shortest_way_is_told_and_the_search_goes_on(way: dict[str, Any]) -> None:
    result = check(Walkers(), **way)
    assert result.verdict == "holds" and result.exit_code == 0 and result.complete
    assert result.distinct_states == (STEPS + 1) ** 3 and lengths(result) == EXPECTED and not result.unreached
    assert set(result.must_reach("all_at_four").states[-1].variables()["at"].values()) == {4}
    assert ways(result) == ways(check(Walkers(), engine="reference"))


@pytest.mark.parametrize("way", WAYS)
def test_never_reached_is_a_violation_once_all_is_explored(way: dict[str, Any]) -> None:
    result = check(Astray(), **way)
    assert result.verdict == "is_lost" and result.exit_code == 12 and result.complete
    (violation,) = result.violations
    lost = tuple(f"is_lost(w=w{w}, by={by})" for w in (1, 2, 3) for by in (7, 8))
    assert (violation.kind, violation.trace, violation.never) == ("sometimes", None, lost) and result.unreached == lost
    assert lengths(result) == EXPECTED | {f"is_lost(w=w{w}, by=6)": 6 for w in (1, 2, 3)}
    assert "NEVER REACHED  is_lost" in str(result) and "is_lost(w=w1, by=7)" in str(result)


@pytest.mark.parametrize("way", WAYS)
def test_at_a_limit_it_is_not_found_so_far(way: dict[str, Any]) -> None:
    result = check(Walkers(), max_depth=8, **way)
    assert result.verdict == "not complete" and result.exit_code == 152 and not result.violations
    assert result.unreached == ("all_at_four",) and "Not reached so far: all_at_four." in str(result)


@pytest.mark.parametrize("way", WAYS)
def test_a_search_for_witnesses_alone_ends_with_the_last_of_them(way: dict[str, Any]) -> None:
    result = check(Walkers(), invariants=["is_far"], **way)
    assert (result.verdict, result.exit_code, result.holds, result.complete) == ("reached", 0, True, False)
    assert result.depth == 7 and lengths(result) == {name: 6 for name in EXPECTED if name.startswith("is_far")}
    assert check(Walkers(), invariants=["is_far"], keep_going=True, **way).verdict == "holds"
    assert check(Walkers(), invariants=["is_far"], deadlock=True, **way).verdict == "deadlock"
    both = check(Walkers(), invariants=["is_far", "near"], **way)
    assert both.verdict == "holds"


@pytest.mark.parametrize("way", WAYS)
def test_a_violation_ends_the_search_and_what_was_reached_by_then_is_told(way: dict[str, Any]) -> None:
    class Bounded(Walkers):
        @invariant
        def slow(self) -> bool:
            return sum(self.at.values()) < 8

    result = check(Bounded(), **way)
    assert [v.name for v in result.violations] == ["slow"] and result.unreached == ("all_at_four",)
    assert "Reached: is_far(w=w1) (7 states), is_far" in str(result) and "Not reached so far: all_at_four." in str(
        result
    )


@pytest.mark.parametrize("way", WAYS)
def test_up_to_symmetry_one_of_a_class_of_bindings_stands_for_all(way: dict[str, Any]) -> None:
    result = check(Astray(), symmetry=True, **way)
    assert (
        lengths(result).keys() == {"all_at_four", "is_far(w=w1)", "is_lost(w=w1, by=6)"} and result.verdict == "is_lost"
    )
    assert result.violations[0].never == tuple(f"is_lost(w=w{w}, by={by})" for w in (1, 2, 3) for by in (7, 8))


def test_up_to_symmetry_another_than_the_first_binding_may_be_met() -> None:
    class Second(Walkers):
        @sometimes(w=Walkers.walkers, other=Walkers.walkers)
        def leads(self, w: Any, other: Any) -> bool:
            return bool(self.at[w] > self.at[other])

    for way in WAYS:
        result = check(Second(), symmetry=True, invariants=["leads"], keep_going=True, **way)
        (witness,) = result.witnesses
        assert len(witness.trace.steps) == 1 and result.violations[0].never == tuple(
            f"leads(w=w{w}, other=w{w})" for w in (1, 2, 3)
        )


def test_with_a_view() -> None:
    class Seen(Walkers):
        steps: int = state(0)

        @action(w=Walkers.walkers)
        def step(self, w: Any) -> None:
            require(self.at[w] < STEPS)
            self.at[w] += 1
            self.steps = (self.steps + 1) % 5

        @view
        def seen(self) -> Any:
            return (self.at,)

    for way in WAYS:
        assert lengths(check(Seen(), **way)) == EXPECTED


@pytest.mark.parametrize("bits", [64, 128])
def test_through_a_checkpoint(tmp_path: Path, bits: int) -> None:
    whole = check(Walkers(), engine="embedded", bits=bits)
    for depth in (3, 9, 14):
        place = tmp_path / str(depth)
        check(Walkers(), engine="embedded", bits=bits, max_depth=depth, checkpoint=place)
        resumed = check(Walkers(), engine="embedded", bits=bits, resume=place)
        assert ways(resumed) == ways(whole) and resumed.verdict == "holds"


@pytest.mark.parametrize("workers", [1, 2])
def test_random_walks_end_when_all_is_met(workers: int) -> None:
    def walked(*names: str, **options: Any) -> Result:
        return check(Walkers(), engine="simulate", seed=3, workers=workers, invariants=names or None, **options)

    result = walked("is_far", "all_at_four", walks=5_000)
    assert result.verdict == "reached" and result.exit_code == 0 and lengths(result).keys() == EXPECTED.keys()
    assert ways(result) == ways(walked("is_far", "all_at_four", walks=50_000))
    assert "perhaps not the shortest, met by walk" in str(result)
    assert walked("is_far", walks=5_000).exit_code == 0
    going_on = walked(walks=300)
    assert going_on.verdict == "not complete" and lengths(going_on).keys() >= {"is_far(w=w1)"}


def test_what_is_true_at_once() -> None:
    class Here(Protocol):
        x: int = state(0)

        @action
        def on(self) -> None:
            self.x = 1 - self.x

        @sometimes
        def at_home(self) -> bool:
            return self.x == 0

    for way in [*WAYS, {"engine": "simulate", "seed": 1}]:
        result = check(Here(), **way)
        assert lengths(result) == {"at_home": 0} and result.exit_code == 0, way


def test_checking_mode_has_nothing_against_it() -> None:
    assert check(Walkers(), engine="embedded", checking=True).verdict == "holds"
    assert check(Walkers(), engine="reference", checking=True, symmetry=True).verdict == "holds"


def test_every_form_of_a_result_has_it(tmp_path: Path) -> None:
    result = check(Walkers(), options=Options(workers=1))
    told = json.loads(to_json(result))
    assert [w["name"] for w in told["witnesses"]] == list(lengths(result)) and told["unreached"] == []
    assert len(told["witnesses"][-1]["trace"]) == 13 and told["violations"] == []
    assert len(json.loads(to_itf(result.must_reach("all_at_four")))["states"]) == 13
    page = html(result)
    assert page.count('class="behaviour"') == 4 and "is_far(w=w1)" in page
    text = str(result)
    assert (
        "REACHED  all_at_four\nAll walkers can meet at four.\n" in text
        and "all_at_four is true; it looked at:\n    at.w1  4" in text
    )


def test_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = f"{__file__}:Walkers"

    def run(*arguments: str) -> tuple[int, str]:
        code = main(list(arguments))
        return code, capsys.readouterr().out

    files = "--itf", str(tmp_path / "way.itf.json"), "--sequence", str(tmp_path / "way.txt")
    code, out = run("check", file, "--invariant", "all_at_four", "--config", "as it is", "--eval", "at", *files)
    assert (
        code == 0
        and out.startswith("REACHED  all_at_four\n")
        and "As expected: configuration as it is is to hold." in out
    )
    assert len(json.loads((tmp_path / "way.itf.json").read_text())["states"]) == 13
    assert (tmp_path / "way.txt").read_text()
    code, out = run("show", file)
    assert code == 0 and "Sometimes" in out and "is_far(w of walkers)" in out
    code, out = run("check", f"{__file__}:Astray", "--config", "lost")
    assert (
        code == 12
        and out.startswith("NEVER REACHED  is_lost\n")
        and "As expected: configuration lost is to violate is_lost." in out
    )


def test_without_any_state_that_is_what_is_told() -> None:
    class Nowhere(Walkers):
        @initial
        def start(self) -> None:
            require(False)

    for way in WAYS:
        result = check(Nowhere(), **way)
        assert (result.verdict, result.violations) == ("raised", [])
