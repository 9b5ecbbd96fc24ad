"""Random walks on Spark: the same counts as in one process, by executors that cannot import the protocol."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any

import pytest
from campaigns import campaign_if
from checker.engines.random_protocols import seeded

from fencepost import Protocol, action, check, invariant, one_of, require, state
from fencepost.checker.engines import simulate as in_one_process
from fencepost.checker.engines.interface import Exploration, Progress
from fencepost.checker.engines.options import SimulationOptions
from fencepost.language.loading import shipped
from fencepost.semantics import Stepper
from fencepost.spark import simulate


def on_spark(protocol: Protocol, report: Any = None, **options: Any) -> Exploration:
    exploration = simulate.explore(
        Stepper(protocol), SimulationOptions(**{"workers": 1, "seed": 7, "master": "local[2]", **options}), report
    )
    if exploration.failure is not None:
        raise exploration.failure
    return exploration


def here(protocol: Protocol, **options: Any) -> Exploration:
    return in_one_process.explore(Stepper(protocol), SimulationOptions(**{"workers": 2, "seed": 7, **options}))


def told(exploration: Exploration) -> Any:
    """The results that must not depend on where walks are taken. How far higher walks were when a lower one ended
    depends on it.
    """
    found = [
        (f.kind, f.name, f.walk, f.walked, list(f.path), f.loop, f.fairness)
        for f in [*exploration.found, *exploration.witnesses]
    ]
    at = None if exploration.raised_at is None else (exploration.raised_at.walk, exploration.raised_at.walked)
    counts = exploration.taken, exploration.generated, exploration.distinct, exploration.depth, exploration.walks
    return found, str(exploration.raised), at, exploration.limit, None if exploration.limit is None else counts


def rounds(exploration: Exploration) -> Any:
    return exploration.profile["rounds on Spark"]


@pytest.fixture
def at_once(spark: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks on a real Spark get all walks, and the driver begins none until they are ready."""
    monkeypatch.setattr(simulate.Distributed, "hands_over", lambda self: True)


# -- on Spark ---------------------------------------------------------------------------------------------------------


@pytest.mark.campaign
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("name", "constants", "walks", "violated"),
    [
        ("bookkeeper-4.13", {"recovery_reads_fence": False}, 30_000, True),
        ("ledger-chaining", {}, 10_000, False),
    ],
)
def test_shipped_protocols(name: str, constants: dict[str, Any], walks: int, violated: bool) -> None:
    expected = here(shipped(name)(**constants), walks=walks, seed=2)
    assert bool(expected.found) is violated
    got = on_spark(shipped(name)(**constants), walks=walks, seed=2)
    assert told(got) == told(expected)
    assert sum(r["walks"] for r in rounds(got)) > walks // 2, "tasks took most of them"


class Far(Protocol):
    """A protocol that only this process can evaluate."""

    x: int = state(0)
    y: int = state(0)
    seen: Any = state(False)

    @action
    def right(self) -> None:
        assert known_to_the_driver
        self.x = (self.x + one_of((1, 3))) % 50

    @action
    def up(self) -> None:
        self.y = (self.y + 1) % 20
        self.seen = self.x == 7

    @invariant
    def never_there(self) -> bool:
        return (self.x, self.y) != (41, 13)


known_to_the_driver = object()
Far.__module__ = "a_file_that_no_executor_has"


@pytest.mark.usefixtures("at_once")
def test_an_interrupt_cancels_the_round_and_what_was_counted_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "TICK", 0.002)  # so that no round is over before it was looked at
    seen: list[Progress] = []

    def report(progress: Progress) -> None:
        seen.append(progress)
        if progress.walks and progress.stage.startswith("walking"):
            raise KeyboardInterrupt

    monkeypatch.setattr(in_one_process, "TICK", 0.0)
    got = on_spark(Far(), report, walks=1 << 40, keep_going=True)
    assert got.interrupted and got.limit is None and got.walks is not None and got.walks.walks > 0
    assert seen[-1].walks and seen[-1].generated and [f.name for f in got.found] in ([], ["never_there"])


# -- in this process --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("walking_here")
def test_random_protocols() -> None:
    found = whole = parked = many = 0
    for number in range(16):
        protocol = seeded(number, temporal=number % 2 == 1)
        options = {"walks": 60, "depth": 9, "seed": number, "keep_going": number % 4 > 1, "deadlock": number % 3 == 0}
        expected, got = here(protocol.build(), **options), on_spark(protocol.build(), **options)
        assert told(got) == told(expected), f"protocol {number}, {options}"
        found += bool(got.found and got.found[0].walk is not None)
        whole += got.limit is not None
        parked += any(r["parked"] for r in rounds(got))
        many += len(rounds(got)) > 3
    assert min(found, whole, parked, many) > 2, (found, whole, parked, many)


class Raising(Far):
    """Fails where few walks come."""

    @action
    def divide(self) -> None:
        require(self.y > 2)
        self.x = 60 // (self.x - 9)


@pytest.mark.usefixtures("walking_here")
def test_what_raises_is_told_with_its_walk() -> None:
    expected = here(Raising(), walks=500, depth=30)
    assert "ZeroDivisionError" in str(expected.raised) and expected.raised_at is not None and expected.raised_at.walk
    assert told(on_spark(Raising(), walks=500, depth=30)) == told(expected)


@pytest.mark.usefixtures("walking_here")
def test_time_ends_it() -> None:
    result = check(Far(), engine="simulate", master="local[2]", timeout=0.3, keep_going=True)
    assert (result.limit, result.exit_code) == ("the time limit of 0.3 seconds", 12 if result.violations else 152)


def test_one_walk_needs_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    one = on_spark(Far(), walk=17).walk
    assert one is not None and one.path == here(Far(), walk=17).walk.path  # type: ignore[union-attr]


def test_walks_are_divided_once_and_evenly() -> None:
    rng = random.Random(1)
    for _ in range(300):
        edges = sorted(rng.sample(range(3000), 2 * rng.randrange(1, 6)))
        spans = list(zip(edges[::2], edges[1::2], strict=True))
        share, tasks = rng.randrange(1, 900), rng.randrange(1, 9)
        shares, rest = simulate.divided(spans, share, tasks)
        numbers = [n for some in (*shares, rest) for span in some for n in range(*span)]
        assert numbers == [n for span in spans for n in range(*span)]
        sizes = [sum(last - first for first, last in some) for some in shares]
        assert 1 <= len(sizes) <= tasks and max(sizes) <= share and min(sizes) > 0
        assert sum(sizes) == len(numbers) or min(sizes) == share


@pytest.mark.parametrize(
    ("java", "says"),
    [
        *campaign_if(bool, [("/nonexistent", "Spark needs Java 17 or newer")]),
        (None, "no Spark master answers at spark://127.0.0.1:1"),
    ],
)
def test_without_spark(java: str | None, says: str) -> None:
    words = ["check", "ledger-chaining", "--engine", "simulate", "--walks", "5", "--master", "spark://127.0.0.1:1"]
    environment = {**os.environ, **({"JAVA_HOME": java} if java else {})}
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", *words], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 153 and done.stderr.startswith("fencepost: ") and done.stderr.count("\n") == 1
    assert says in done.stderr
