"""How a test waits for another task, thread or process: for a condition, never for a fixed time or without an end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from inspect import isawaitable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 600.0
"""Seconds after which a wait fails. It is long because a slow machine that compiles every loop for the first time needs
minutes.
"""
LOOP_FACTORY: Callable[[], asyncio.AbstractEventLoop] | None = None
"""What makes event loops for :func:`run`, if not asyncio. Tests replace it."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own, for at most :data:`PATIENCE` seconds."""

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
            return await main

    with asyncio.Runner(loop_factory=LOOP_FACTORY) as runner:
        return runner.run(bounded())


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until ``condition`` is true. ``what`` names it in the error after :data:`PATIENCE` seconds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


async def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Wait as :func:`until` does, and let other tasks run. Returns the result of ``condition``, awaited if need be."""
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                found = condition()
                if result := await found if isawaitable(found) else found:
                    return result
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited in vain for {what}") from None
