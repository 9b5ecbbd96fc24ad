"""Parts of auto-recovery that run together, and end together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from fencepost.connections import tasks


class Change(asyncio.Event):
    """That something has changed, for whoever calls with a path."""

    def notice(self, _: str = "") -> None:
        """It has changed, or may have."""
        self.set()


async def until_one_ends(*parts: Awaitable[object]) -> None:
    """Run parts until one of them ends, and break the others off. Raises what that one raises."""
    running = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        over = [task for task in running if task.done()]
    finally:
        await tasks.end(running)
    for task in over:
        task.result()
