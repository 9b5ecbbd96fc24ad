"""Standing systems for tests of logs."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from log.standing_logs import Standing, standing


@pytest.fixture
def cluster(tmp_path: Path) -> AbstractAsyncContextManager[Standing]:
    """Three bookies with a metadata service."""
    return standing(tmp_path)


@pytest.fixture
def bare(tmp_path: Path) -> AbstractAsyncContextManager[Standing]:
    """A metadata service without bookies."""
    return standing(tmp_path, bookies=0)
