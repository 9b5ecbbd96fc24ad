"""Background tasks of an event loop: started, kept referenced, and cancelled together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


def start(work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]) -> None:
    """Start a task. The set ``among`` refers to it until it ends."""
    task = asyncio.get_running_loop().create_task(work)
    among.add(task)
    task.add_done_callback(among.discard)


async def cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait until they end."""
    ending = [*tasks]
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
