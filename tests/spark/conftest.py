"""A Spark of this process for the tests that need one, and one that only looks like it for those that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fencepost.spark import cluster, engine, stages
from fencepost.spark.level import Plan


class Here(cluster.Cluster):
    """Runs the tasks of a level in this process, one after the other."""

    cores = 2  # type: ignore[assignment]

    class Shared(engine.Held):
        """A broadcast variable."""

        def unpersist(self) -> None:
            """Nothing was sent anywhere."""

    def share(self, arrays: dict[str, object]) -> object:
        return self.Shared(arrays)

    def run(self, plan: Plan, name: str, tell: Callable[[str], None]) -> list[bytes]:
        tell("")
        return stages.here(plan)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels are cut into many small tasks, and these run in this process."""
    monkeypatch.setattr(engine, "Cluster", Here)
    monkeypatch.setattr(engine, "HOME_ROWS", 50)
    monkeypatch.setattr(engine, "FEWEST_ROWS", 4)
    monkeypatch.setattr(stages, "BLOCK", 40)
    monkeypatch.setattr(stages, "FIRST_CHUNK", 3)


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """A session on two cores of this machine, which engines find and use."""
    started = cluster.Cluster("local[2]")
    yield started.session
    started.close()
