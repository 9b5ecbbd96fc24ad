"""Bookies for the tests of logs on Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from log.standing_logs import standing
from patience import PATIENCE

import fencepost


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Three bookies on an event loop in its own thread, and a store."""
    folder = tmp_path_factory.mktemp("cluster")
    told, is_up = SimpleNamespace(), threading.Event()

    async def stand() -> None:
        async with standing(folder) as made:
            told.uri, told.loop, told.is_over = made.uri, asyncio.get_running_loop(), asyncio.Event()
            is_up.set()
            await told.is_over.wait()

    thread = threading.Thread(target=asyncio.run, args=(stand(),))
    thread.start()
    assert is_up.wait(PATIENCE)
    with fencepost.connect(told.uri) as told.store:
        yield told
    told.loop.call_soon_threadsafe(told.is_over.set)
    thread.join()
