"""The stages of a level, without Spark: cut into many small tasks, they give the embedded engine's answer."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from campaigns import THOROUGH, campaign_if, campaigns_but_every
from checker.engines.compare import answer, by_embedded, by_reference, disagreement
from checker.engines.idle import Idle
from checker.engines.random_protocols import seeded
from spark.conftest import Here

from fencepost import Protocol, action, check, constant, invariant, one_of, require, state
from fencepost.checker.engines import embedded
from fencepost.checker.engines.options import EmbeddedOptions, SparkOptions
from fencepost.checker.engines.resources import resident_memory
from fencepost.language.loading import SHIPPED, shipped
from fencepost.semantics import Stepper
from fencepost.spark import engine, stages

SEEDS = 1_000 if THOROUGH else 15
SMALL: dict[str, Any] = {"bookies": 2, "write_quorum": 2, "ack_quorum": 1}

pytestmark = pytest.mark.usefixtures("here")


def by_spark(protocol: Protocol, **options: Any) -> dict[str, Any]:
    """The Spark engine's answer."""
    stepper = Stepper(protocol)
    explored = engine.explore(stepper, SparkOptions(**{"workers": 1, "handover": 2, **options}))
    if explored.failure is not None:
        raise explored.failure
    return answer(stepper, explored)


@pytest.mark.parametrize("part", campaign_if(bool, range(4)))
def test_agrees_on_random_protocols(part: int) -> None:
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        random = seeded(seed)
        options: dict[str, Any] = {
            "keep_going": seed % 2 == 0,
            "deadlock": seed % 3 == 0,
            "bits": (64, 128)[seed % 5 == 0],
        }
        limited = by_reference(random.build(), **options, max_states=300)
        if limited["limit"]:
            options["max_depth"] = limited["depth"]
        if embedded.explore(Stepper(random.build()), EmbeddedOptions(workers=1, **options)).failure:
            continue
        found = disagreement(by_reference(random.build(), **options), by_spark(random.build(), **options))
        assert found is None, f"{seed} {options}: {found}\n{random!r}"


@pytest.mark.parametrize("kind", ["", "idle until", "idle but cut", "together", "together cut", "reads late"])
def test_idle_steps_are_judged_as_any_other(kind: str) -> None:
    found = disagreement(by_reference(Idle(kind=kind), keep_going=True), by_spark(Idle(kind=kind), keep_going=True))
    assert found is None, found


@pytest.mark.parametrize("name", campaigns_but_every(3, SHIPPED))
def test_agrees_on_every_shipped_protocol(name: str) -> None:
    invariants = [declared.name for declared in shipped(name)().declared("invariant")]

    def explored(explore: Any, **options: Any) -> dict[str, Any]:
        stepper = Stepper(shipped(name)(), invariants)
        kind = EmbeddedOptions if explore is embedded.explore else SparkOptions
        return answer(stepper, explore(stepper, kind(workers=1, **options)))

    depth = min(9, explored(embedded.explore, max_states=2_000)["depth"])
    assert explored(engine.explore, max_depth=depth, handover=10) == explored(embedded.explore, max_depth=depth)


@pytest.mark.parametrize("bits", [64, *campaign_if(bool, [128])])
def test_agrees_on_a_shipped_protocol(bits: int) -> None:
    options = {"handover": 500, "bits": bits}
    protocol = shipped("bookkeeper-4.13")
    assert by_spark(protocol(**SMALL, recovery_reads_fence=True), **options) == by_embedded(
        protocol(**SMALL, recovery_reads_fence=True), bits=bits
    )


def test_the_same_counterexample() -> None:
    def build() -> Protocol:
        return shipped("bookkeeper-4.13")(**{**SMALL, "ack_quorum": 2}, recovery_reads_fence=False)

    expected = by_embedded(build())
    assert expected["found"] and by_spark(build(), handover=5000) == expected


@pytest.mark.parametrize("bits", [64, *campaign_if(bool, [128])])
def test_owners_that_get_too_much_are_split(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "FULL_OWNER", 150)
    options: dict[str, Any] = {"bits": bits, "keep_going": True, "max_depth": 14}
    expected = by_embedded(shipped("ledger-chaining")(), **options)
    assert by_spark(shipped("ledger-chaining")(), **options) == expected


def test_executors_that_come_later_get_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Growing(Here):
        come = 2
        seen: list[tuple[int, int, int]] = []

        def cores_for(self, rows: int) -> int:
            return Growing.come

        def run(self, job_stages: stages.JobStages, *given: Any) -> list[bytes]:
            work: Any = job_stages[0][0].work
            if work.func is stages.expand:
                plan = work.args[0]
                self.seen.append((Growing.come, plan.owners, plan.partitions))
                Growing.come += 1
            return super().run(job_stages, *given)

    monkeypatch.setattr(engine, "Cluster", Growing)
    place, expected = tmp_path / "checkpoint", by_embedded(shipped("ledger-chaining")(), max_depth=14)
    by_spark(shipped("ledger-chaining")(), max_depth=10, checkpoint=place)
    Growing.come = 20
    assert by_spark(shipped("ledger-chaining")(), max_depth=14, resume=place) == expected
    assert all(2 * cores <= owners < 4 * cores for cores, owners, _ in Growing.seen)
    assert Growing.seen[-1][2] >= 20


@pytest.mark.campaign
@pytest.mark.parametrize("bits", [64, 128])
def test_a_search_goes_on_from_any_level(tmp_path: Path, bits: int) -> None:
    def build() -> Protocol:
        return shipped("bookkeeper-4.13")(**{**SMALL, "ack_quorum": 2}, recovery_reads_fence=False)

    expected = by_embedded(build(), bits=bits, keep_going=True)
    place = tmp_path / "checkpoint"
    by_spark(build(), bits=bits, keep_going=True, handover=500, max_depth=8, checkpoint=place)
    for depth in (9, 12, 40):
        got = by_spark(build(), bits=bits, keep_going=True, handover=500, max_depth=depth, resume=place)
    assert got == expected


def test_a_checkpoint_every_third_level(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    by_spark(shipped("ledger-chaining")(), max_depth=11, checkpoint=place, checkpoint_levels=3)
    resumed = by_spark(shipped("ledger-chaining")(), resume=place, max_depth=14)
    assert resumed == by_embedded(shipped("ledger-chaining")(), max_depth=14)


def test_files_at_a_url(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/checkpoint"
    by_spark(shipped("ledger-chaining")(), max_depth=9, checkpoint=place)
    resumed = by_spark(shipped("ledger-chaining")(), resume=place, max_depth=12)
    assert resumed == by_embedded(shipped("ledger-chaining")(), max_depth=12)


def test_nothing_is_left_but_what_the_checkpoint_names(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    by_spark(shipped("ledger-chaining")(), max_depth=12, checkpoint=place)
    manifest = (place / "manifest.json").read_text()
    assert [f.name for f in place.glob("level-*") if f.name not in manifest] == []


def test_rows_become_wider_on_the_way() -> None:
    class Counting(Protocol):
        x: int = state(0)
        y: int = state(0)

        @action
        def add(self) -> None:
            require(self.x < 300)
            self.x = self.x + one_of((1, 2, 3))

        @action
        def move(self) -> None:
            require(self.y < 2)
            self.y = self.y + 1

        @invariant
        def bounded(self) -> bool:
            return not (self.x == 301 and self.y == 2)

    assert by_spark(Counting(), keep_going=True) == by_embedded(Counting(), keep_going=True)


def test_what_is_raised_is_told_with_the_way_there() -> None:
    class Raising(Protocol):
        x: int = state(0)
        y: int = state(0)

        @action
        def add(self) -> None:
            self.x = (self.x + one_of((1, 2))) % 40

        @action
        def divide(self) -> None:
            require(self.y < 3)
            self.y = self.y + 1 // (17 - self.x)

    expected = by_embedded(Raising())
    assert expected["raised"] and by_spark(Raising()) == expected


def test_what_ran_otherwise_is_told() -> None:
    class Counting(Protocol):
        x: int = state(0)

        @action
        def add(self) -> None:
            self.x = (self.x + one_of((1, 2))) % 40
            require(self.x < 20 or next(calls) % 2 == 0)

    calls = itertools.count()
    told, _ = by_spark(Counting())["raised"]
    assert told.startswith("action add did something else when it was run again in the same state: it was refused")


def test_on_one_machine_it_is_memory_that_decides() -> None:
    def levels(**options: Any) -> Any:
        stepper = Stepper(shipped("ledger-chaining")())
        return engine.explore(stepper, SparkOptions(workers=1, max_depth=6, **options)).profile.get("levels on Spark")

    assert not levels()
    assert levels(max_memory=3 * resident_memory())


class Endless(Protocol):
    """Counts two things; an action never returns where one of them is ``at``."""

    at: int = constant(3)
    left: int = state(0)
    right: int = state(0)

    @action
    def add_left(self) -> None:
        require(self.left < 5)
        while self.left == self.at:
            pass
        self.left += 1

    @action
    def add_right(self) -> None:
        require(self.right < 5)
        self.right += 1


def test_a_timeout_ends_an_action_that_never_returns_in_the_driver() -> None:
    # by now everything is compiled
    assert check(Endless(at=9), engine="spark", handover=2, workers=1).distinct_states == 36
    result = check(Endless(), engine="spark", handover=2, timeout=2.0, workers=1)
    assert (result.verdict, result.exit_code, result.limit) == ("not complete", 152, "the time limit of 2 seconds")
    assert result.unfinished is not None and result.unfinished.what == "action add_left"
    assert result.unfinished.state is not None and result.unfinished.state.variables()["left"] == 3
    # Spark had been at work: the state is beyond the levels that are explored before.
    assert result.engine == "spark" and result.depth > 2
