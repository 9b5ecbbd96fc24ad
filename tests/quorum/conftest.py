"""Fixtures for tests of quorums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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
