"""Bookies for Spark, which reads them from other processes while a test waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from log.standing_logs import standing
from patience import PATIENCE

import fencepost


@contextmanager
def in_a_thread(folder: Path, bookies: int = 3) -> Iterator[Any]:
    """Bookies on an event loop in its own thread, and a store. A test can end one of them."""
    told, is_up = SimpleNamespace(), threading.Event()

    async def stand() -> None:
        async with standing(folder, bookies) as made:
            told.bookies, told.uri, told.loop, told.is_over = (
                made.bookies,
                made.uri,
                asyncio.get_running_loop(),
                asyncio.Event(),
            )
            is_up.set()
            await told.is_over.wait()

    thread = threading.Thread(target=asyncio.run, args=(stand(),))
    thread.start()
    assert is_up.wait(PATIENCE)
    with fencepost.connect(told.uri) as told.store:
        yield told
    told.loop.call_soon_threadsafe(told.is_over.set)
    thread.join()
