"""A Spark of this process for the tests that need one, and one that only looks like it for those that do not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from virtual_machines import QUICK, without_archive

import fencepost_python
from fencepost.checker.engines import lanes
from fencepost.spark import cluster, engine, simulate, stages


class Here(cluster.Cluster):
    """Runs the tasks of a level in this process, one after another."""

    cores = 2

    class Shared:
        """A broadcast variable."""

        def __init__(self, value: object) -> None:
            self.value = value

    def share(self, value: Any) -> object:
        return self.Shared(value)

    def discard(self, shared: Any) -> None:
        """Nothing to discard: nothing was sent."""

    def start_in_background(self, failed: Any = None) -> None:
        """Nothing to start."""

    def cores_for(self, rows: int) -> int:
        return self.cores

    def submit(self, job_stages: stages.JobStages, doing: Sequence[str], name: str) -> Any:
        return Done(stages.run_here(job_stages))

    def run(
        self, job_stages: stages.JobStages, doing: Sequence[str], name: str, report: Callable[[str], None]
    ) -> list[bytes]:
        report("")
        return stages.run_here(job_stages)


class Done:
    """A job whose tasks have run."""

    def __init__(self, reports: list[bytes]) -> None:
        self.reports = reports

    def wait(self, _: float) -> bool:
        return True

    def result(self) -> list[bytes]:
        return self.reports

    def cancel(self) -> None:
        """Nothing to cancel: it has ended."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut levels into many small tasks, and run them in this process."""
    monkeypatch.setattr(engine, "Cluster", Here)
    monkeypatch.setattr(engine, "PARTITION_ROWS", 50)
    monkeypatch.setattr(engine, "FEWEST_ROWS", 4)
    monkeypatch.setattr(stages, "BLOCK", 40)
    monkeypatch.setattr(stages, "FIRST_CHUNK", 3)


@pytest.fixture
def walking_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut walks into many small tasks, and run them in this process."""
    monkeypatch.setattr(simulate, "Cluster", Here)
    monkeypatch.setattr(simulate.Distributed, "learned", lambda self: True)
    monkeypatch.setattr(simulate, "FEWEST", 2)
    monkeypatch.setattr(simulate, "FIRST_SHARE", 5)
    monkeypatch.setattr(simulate, "GROWTH", 2)
    monkeypatch.setattr(simulate, "MOST_PARKED", 2)
    monkeypatch.setattr(lanes, "LANES", 3)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A session on two cores of this machine, however busy they are. Engines find and use it."""
    started = cluster.Cluster("local[2]", conf={"spark.sql.shuffle.partitions": "4"})
    python = tmp_path_factory.mktemp("bin") / "fencepost-python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {fencepost_python.__file__} "$@"\n')
    python.chmod(0o755)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYSPARK_PYTHON", str(python))
        patched.setenv("JDK_JAVA_OPTIONS", QUICK)
        patched.setenv("SPARK_HOME", str(without_archive(tmp_path_factory.mktemp("home"))))
        session = started.session
    yield session
    started.close()
