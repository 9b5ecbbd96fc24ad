"""A Spark of this process for the tests that need one, and one that only looks like it for those that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from fencepost.engines import lanes
from fencepost.spark import cluster, engine, simulate, stages
from fencepost.spark.level import Plan


class Here(cluster.Cluster):
    """Runs the tasks of a level in this process, one after the other."""

    cores = 2  # type: ignore[assignment]

    class Shared:
        """A broadcast variable."""

        def __init__(self, value: object) -> None:
            self.value = value

    def share(self, value: Any) -> object:
        return self.Shared(value)

    def discard(self, shared: Any) -> None:
        """Nothing was sent anywhere."""

    def begin(self, failed: Any = None) -> None:
        """There is nothing to begin."""

    def cores_for(self, rows: int) -> int:
        return self.cores

    def start(self, task: Any, count: int, name: str, doing: str) -> Any:
        numbers = pa.record_batch([pa.array(range(count), pa.int64())], names=["id"])
        return Done([batch.column(3)[0].as_py() for batch in task(iter([numbers]))])

    def run(self, plan: Plan, name: str, tell: Callable[[str], None]) -> list[bytes]:
        tell("")
        return stages.here(plan)

    def chain(
        self, steps: Sequence[tuple[stages.Stage, int]], doing: Sequence[str], name: str, tell: Callable[[str], None]
    ) -> list[bytes]:
        tell("")
        return stages.chained(steps)


class Done:
    """A job whose tasks have run."""

    def __init__(self, told: list[bytes]) -> None:
        self.told = told

    def wait(self, _: float) -> bool:
        return True

    def result(self) -> list[bytes]:
        return self.told

    def cancel(self) -> None:
        """It is over."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels are cut into many small tasks, and these run in this process."""
    monkeypatch.setattr(engine, "Cluster", Here)
    monkeypatch.setattr(engine, "HOME_ROWS", 50)
    monkeypatch.setattr(engine, "FEWEST_ROWS", 4)
    monkeypatch.setattr(stages, "BLOCK", 40)
    monkeypatch.setattr(stages, "FIRST_CHUNK", 3)


@pytest.fixture
def walking_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks are cut into many small tasks, and these run in this process."""
    monkeypatch.setattr(simulate, "Cluster", Here)
    monkeypatch.setattr(simulate.Distributed, "learned", lambda self: True)
    monkeypatch.setattr(simulate, "FEWEST", 2)
    monkeypatch.setattr(simulate, "FIRST_SHARE", 5)
    monkeypatch.setattr(simulate, "GROWTH", 2)
    monkeypatch.setattr(simulate, "MOST_PARKED", 2)
    monkeypatch.setattr(lanes, "LANES", 3)


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """A session on two cores of this machine, which engines find and use."""
    started = cluster.Cluster("local[2]", conf={"spark.sql.shuffle.partitions": "4"})
    yield started.session
    started.close()
