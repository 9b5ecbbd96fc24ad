"""On a real Spark of two cores: the embedded engine's answer, for shipped protocols and for one that executors cannot
import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checker.engines.compare import answer, by_embedded, by_reference, disagreement
from checker.engines.random_protocols import seeded
from checker.engines.symmetric_protocols import symmetric
from pyspark import SparkContext

from fencepost import Protocol, action, check, invariant, one_of, require, state
from fencepost.checker.engines.interface import Progress
from fencepost.checker.engines.options import SparkOptions
from fencepost.language.loading import shipped
from fencepost.semantics import Stepper
from fencepost.spark import cluster, engine

SMALL: dict[str, Any] = {"bookies": 2, "write_quorum": 2, "ack_quorum": 1}

pytestmark = pytest.mark.usefixtures("spark")


def by_spark(protocol: Protocol, report: Any = None, **options: Any) -> dict[str, Any]:
    """The Spark engine's answer."""
    stepper = Stepper(protocol)
    explored = engine.explore(stepper, SparkOptions(**{"workers": 1, **options}), report)
    if explored.failure is not None:
        raise explored.failure
    return answer(stepper, explored)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "constants", "handover", "bits"),
    [
        ("bookkeeper-4.13", {**SMALL, "recovery_reads_fence": True}, 800, 64),
        ("bookkeeper-4.13", {**SMALL, "recovery_reads_fence": True}, 900, 128),
        ("ledger-chaining", {"clients": 2}, 100, 64),
    ],
)
def test_agrees_on_shipped_protocols(name: str, constants: dict[str, Any], handover: int, bits: int) -> None:
    options: dict[str, Any] = {"max_depth": 20, "bits": bits}
    expected = by_embedded(shipped(name)(**constants), **options)
    assert by_spark(shipped(name)(**constants), handover=handover, **options) == expected


@pytest.mark.campaign
def test_the_same_counterexample() -> None:
    def build() -> Protocol:
        return shipped("bookkeeper-4.13")(**{**SMALL, "ack_quorum": 2}, recovery_reads_fence=False)

    expected = by_embedded(build())
    assert expected["found"] and by_spark(build(), handover=700) == expected


class Raising(Protocol):
    """It raises in one state of level 6. The others have no successors yet."""

    ups: int = state(0)
    downs: int = state(0)

    @action
    def up(self) -> None:
        require(self.ups < 8)
        self.ups += 1

    @action
    def down(self) -> None:
        require(self.downs < 8)
        self.downs += 1

    @invariant
    def whole(self) -> bool:
        return 1 // (abs(self.ups - 3) + abs(self.downs - 2)) >= 0


def test_what_a_protocol_raised_is_raised_again_when_resumed(tmp_path: Path) -> None:
    saving = check(
        Raising(), engine="spark", options=SparkOptions(workers=1, handover=4, checkpoint=tmp_path / "saved")
    )
    resumed = check(Raising(), engine="spark", options=SparkOptions(workers=1, handover=4, resume=tmp_path / "saved"))
    assert saving.on_spark and (saving.verdict, resumed.verdict) == ("raised", "raised")
    assert str(resumed.error) == str(saving.error) and resumed.distinct_states == saving.distinct_states


@pytest.mark.campaign
def test_nothing_that_was_sent_stays_behind(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    broadcast = SparkContext.broadcast

    def sends(context: Any, value: Any) -> Any:
        sent.append(broadcast(context, value))
        return sent[-1]

    monkeypatch.setattr(SparkContext, "broadcast", sends)
    result = check(
        shipped("ledger-chaining")(),
        engine="spark",
        options=SparkOptions(workers=1, handover=20, max_depth=9, states=tmp_path / "states"),
    )
    assert (result.failure, result.engine, result.on_spark) == (None, "spark", True)
    assert len(sent) > 1 and not any(shared._jbroadcast.isValid() for shared in sent)


@pytest.mark.parametrize("seed", [3, 8])
def test_agrees_on_random_protocols(seed: int) -> None:
    random = seeded(seed)
    options: dict[str, Any] = {"max_depth": 5, "keep_going": True, "deadlock": True}
    assert (
        disagreement(by_reference(random.build(), **options), by_spark(random.build(), handover=3, **options)) is None
    )


@pytest.mark.parametrize("bits", [64, 128])
def test_orbits_and_a_counterexample_with_symmetry(bits: int) -> None:
    options: dict[str, Any] = {"symmetry": True, "keep_going": True, "max_depth": 5, "bits": bits}
    expected = by_reference(symmetric(27).build(), **options)
    assert expected["found"]
    assert disagreement(expected, by_spark(symmetric(27).build(), handover=3, **options)) is None


class Walk(Protocol):
    """A protocol that only this process can evaluate."""

    x: int = state(0)
    y: int = state(0)
    here: Any = state(None)

    @action
    def right(self) -> None:
        assert seen_by_driver is not None
        self.x = (self.x + one_of((1, 3))) % 50

    @action
    def up(self) -> None:
        self.y = (self.y + 1) % 20

    @invariant
    def never_there(self) -> bool:
        return (self.x, self.y) != (41, 13)


seen_by_driver: Any = object()
Walk.__module__ = "a_file_that_no_executor_has"


def test_an_interrupt_cancels_the_job_and_what_was_found_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "TICK", 0.002)  # so that no job is over before it was looked at
    seen: list[Progress] = []

    def report(progress: Progress) -> None:
        seen.append(progress)
        if progress.stage:
            raise KeyboardInterrupt

    got = by_spark(Walk(), report, handover=10, checkpoint=tmp_path / "checkpoint")
    assert got["interrupted"] and not got["complete"] and got["distinct"] > 10
    assert seen[-1].stage.startswith(("expanding", "removing duplicates", "building"))
    resumed = by_spark(Walk(), handover=1_000_000, resume=tmp_path / "checkpoint")
    assert resumed == by_embedded(Walk())
