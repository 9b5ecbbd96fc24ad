"""Bookies for the tests of logs on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from spark.ledgers.clusters import in_a_thread


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Three bookies, and a store."""
    with in_a_thread(tmp_path_factory.mktemp("cluster")) as made:
        yield made
