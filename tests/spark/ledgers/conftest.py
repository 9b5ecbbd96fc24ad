"""Bookies for the tests of logs on Spark, in a thread of their own and on a test's event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from log.standing_logs import Standing, standing
from spark.ledgers.clusters import in_a_thread


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Three bookies, and a store."""
    with in_a_thread(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def made(tmp_path: Path) -> AbstractAsyncContextManager[Standing]:
    """Three bookies with a metadata service."""
    return standing(tmp_path)
