"""Concurrent parts of auto-recovery that end together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from fencepost.connections import tasks


class Change(asyncio.Event):
    """An event for changes, set by callbacks that take a path."""

    def notice(self, _: str = "") -> None:
        """Something has changed, or may have."""
        self.set()


async def until_one_ends(*parts: Awaitable[object]) -> None:
    """Run parts until one ends, then cancel the others. Raises that part's error, if it has one."""
    running = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        over = [task for task in running if task.done()]
    finally:
        await tasks.cancel(running)
    for task in over:
        task.result()
