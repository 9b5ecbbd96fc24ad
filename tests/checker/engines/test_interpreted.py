"""The interpreted explorer remembers answers, and the reference evaluates each time. Results must not differ."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaigns import THOROUGH
from checker.engines.compare import answer, by_reference, disagreement, graph
from checker.engines.random_protocols import RandomProtocol, protocols, reduced, seeded
from checker.engines.symmetric_protocols import symmetric
from hypothesis import given, settings

from fencepost import Protocol, action, check, constant, initial, invariant, one_of, require, state
from fencepost.checker.engines import interpreted, reference
from fencepost.checker.engines.options import SearchOptions
from fencepost.language.loading import shipped
from fencepost.semantics import Stepper

SEEDS = 4_000 if THOROUGH else 40
CAP = 300


def by_interpreted(protocol: Protocol, **options: Any) -> dict[str, Any]:
    stepper = Stepper(protocol)
    return answer(stepper, interpreted.explore(stepper, SearchOptions(**{"workers": 1, **options})))


def difference(random: RandomProtocol, options: dict[str, Any]) -> str | None:
    return disagreement(by_reference(random.build(), **options), by_interpreted(random.build(), **options))


def options_for(number: int) -> dict[str, Any]:
    return {
        "bits": (64, 128)[number % 2],
        "keep_going": number // 2 % 3 != 0,
        "deadlock": number // 6 % 2 == 0,
        "max_depth": (9, 6)[number // 12 % 2],
        "max_states": CAP,
    }


@pytest.mark.parametrize("sound_view", [True, False])
def test_agrees_on_evenly_distributed_protocols(sound_view: bool) -> None:
    for seed in range(SEEDS):
        random, options = seeded(30_000 + seed, sound_view), options_for(seed)
        if difference(random, options) is not None:
            small = reduced(random, partial(difference, options=options))
            pytest.fail(f"{options}: {difference(small, options)}\n{small!r}")


@settings(max_examples=15)
@given(random=protocols(sound_view=False))
def test_agrees_on_random_protocols(random: RandomProtocol) -> None:
    assert difference(random, options_for(3)) is None


@pytest.mark.parametrize("seed", [11, 37, 74])
def test_agrees_on_symmetric_protocols(seed: int) -> None:
    for number in range(4):
        asked = {**options_for(number), "symmetry": True, "max_depth": 4}
        assert difference(symmetric(seed), asked) is None


@pytest.mark.parametrize("seed", range(12))
def test_notes_down_the_same_graph_for_liveness(seed: int) -> None:
    graphs = []
    for explore in (reference.explore, interpreted.explore):
        stepper = Stepper(seeded(seed, temporal=True).build())
        found = graph(explore, stepper, max_depth=5)
        graphs.append(
            {
                name: np.asarray(getattr(found, name)).tolist()
                for name in ("fingerprints", "starts", "targets", "kinds", "enabled", "truths")
            }
        )
    assert graphs[0] == graphs[1]


class Raising(Protocol):
    """Counts, and fails at a number, in an action or in an invariant."""

    where: str = constant("action")
    x: int = state(0)

    @action(n=(1, 2, 3))
    def adds(self, n: int) -> None:
        require(self.x < 9 and (self.where != "action" or 10 // (7 - self.x) != 0))
        self.x += n

    @invariant
    def divides(self) -> bool:
        return self.where != "invariant" or 10 // (7 - self.x) != 0


@pytest.mark.parametrize("where", ["action", "invariant"])
def test_an_error_comes_with_the_same_path(where: str) -> None:
    both = []
    for explore in (reference.explore, interpreted.explore):
        explored = explore(Stepper(Raising(where=where)), SearchOptions())
        assert explored.raised_at is not None
        both.append((str(explored.raised), list(explored.raised_at.path), explored.distinct, explored.generated))
    assert both[0] == both[1]


def test_asks_python_once_for_what_a_root_reads() -> None:
    protocol = shipped("ledger-chaining")()
    stepper = Stepper(protocol)
    explored = interpreted.explore(stepper, SearchOptions(max_states=3_000))
    assert explored.distinct >= 3_000 and explored.evaluations < 700


def test_more_initial_states_than_one_level_may_have_are_left_to_the_compiled_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Many(Protocol):
        starts: int = constant(2_000)
        x: int = state(0)

        @initial
        def begin(self) -> None:
            self.x = one_of(range(self.starts))

        @invariant
        def small(self) -> bool:
            return self.x != 1_500

    admitted: list[int] = []
    enter = interpreted.Interpreted._enter

    def counted(self: Any, *given: Any) -> bool:
        admitted.append(1)
        return enter(self, *given)

    monkeypatch.setattr(interpreted.Interpreted, "_enter", counted)
    found = check(Many(starts=1_999), deadlock=False)
    assert (found.engine, len(admitted), found.distinct_states) == ("interpreted", 1_999, 1_999)
    found = check(Many(), deadlock=False)
    assert (found.engine, len(admitted), found.distinct_states) == ("embedded", 1_999, 2_000)
    found.must_violate("small")


def test_a_small_check_imports_no_compiler(tmp_path: Path) -> None:
    """A few thousand states, a violation and its counterexample."""
    source = tmp_path / "grid.py"
    source.write_text(
        "from fencepost import *\n"
        "class Grid(Protocol):\n"
        "    x: int = state(0)\n"
        "    y: int = state(0)\n"
        "    @action\n"
        "    def right(self): require(self.x < 50); self.x += 1\n"
        "    @action\n"
        "    def up(self): require(self.y < 50); self.y += 1\n"
        "    @invariant\n"
        "    def inside(self): return self.x + self.y < 100\n"
    )
    script = (
        "import sys; from fencepost.cli.main import main; code = main(['check', sys.argv[1]])\n"
        "heavy = sorted({'numpy', 'numba', 'scipy', 'msgspec', 'rich', 'pyspark', 'asyncio'} & set(sys.modules))\n"
        "print('exit', code, 'imported', heavy)\n"
    )
    run = subprocess.run([sys.executable, "-c", script, str(source)], capture_output=True, text=True, check=True)
    assert "exit 12 imported []" in run.stdout
    assert run.stdout.startswith("VIOLATED  inside")


def test_a_space_with_large_levels_is_left_to_the_compiled_engine_early() -> None:
    class Wide(Protocol):
        cells: tuple[int, ...] = state((0,) * 12)

        @action(i=range(12))
        def sets(self, i: int) -> None:
            require(not self.cells[i])
            self.cells = (*self.cells[:i], 1, *self.cells[i + 1 :])

    stepper = Stepper(Wide())
    explored = interpreted.explore(
        stepper, SearchOptions(), limits=interpreted.Limits(calls=5_000, queued=300, orbits=1)
    )
    assert explored.limit == "the limit of 300 states in one level" and explored.distinct < 1_000


class Grid(Protocol):
    x: int = state(0)
    y: int = state(0)

    @action
    def right(self) -> None:
        require(self.x < 120)
        self.x += 1

    @action
    def up(self) -> None:
        require(self.y < 100)
        self.y += 1

    @invariant
    def inside(self) -> bool:
        return self.x + self.y < 1000


def test_the_compiled_engine_goes_on_where_the_interpreted_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.api.check.SMALL", {"calls": 300, "queued": 2_000, "orbits": 1})
    whole, found = check(Grid(), engine="embedded"), check(Grid())
    assert found.engine == "embedded" and found.distinct_states == whole.distinct_states == 121 * 101
    assert found.evaluations == whole.evaluations


@pytest.mark.parametrize("calls", [40, pytest.param(5, marks=pytest.mark.campaign)])
def test_what_it_had_evaluated_is_right_for_random_protocols(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    monkeypatch.setattr("fencepost.api.check.SMALL", {"calls": calls, "queued": 1 << 20, "orbits": 1 << 20})
    taken = 0
    for number in range(SEEDS):
        random = seeded(90_000 + number, temporal=number % 2 == 0)
        expected, found = check(random.build(), engine="reference", max_states=CAP), check(random.build())
        if not expected.complete or expected.error is not None:
            continue
        taken += found.engine == "embedded"
        for one in ("verdict", "distinct_states", "generated_states", "depth"):
            assert getattr(found, one) == getattr(expected, one), (one, random)
    assert taken
