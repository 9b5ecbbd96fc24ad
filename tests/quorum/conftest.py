"""Fixtures for tests of quorums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from quorum.hosts import TestCluster

from bench.quorum.processes import Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Callable[..., Processes]]:
    """Makes members that are processes, with options of their command."""
    made: list[Processes] = []

    def members(count: int, *options: str) -> Processes:
        made.append(Processes(tmp_path, count, options))
        return made[-1]

    yield members
    for each in made:
        each.close()


@pytest.fixture
def cluster(tmp_path: Path) -> TestCluster:
    """Three hosts, which the test starts."""
    return TestCluster(tmp_path)


@pytest.fixture
def lone(tmp_path: Path) -> TestCluster:
    """A host that is a cluster alone, which the test starts."""
    return TestCluster(tmp_path, 1)
