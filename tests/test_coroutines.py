"""Tests that are coroutines. One that fails or never ends must not pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import patience
import pytest


@pytest.fixture
@asynccontextmanager
async def loop() -> AsyncIterator[asyncio.AbstractEventLoop]:
    """The event loop that runs."""
    running = asyncio.get_running_loop()
    yield running
    assert running is asyncio.get_running_loop()


@pytest.fixture
def call(request: pytest.FixtureRequest) -> Callable[[Callable[[], Coroutine[Any, Any, None]]], None]:
    """Calls a coroutine as pytest calls a test."""

    def called(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        item = pytest.Function.from_parent(request.node.parent, name="a test", callobj=test)
        request.config.hook.pytest_pyfunc_call(pyfuncitem=item)

    return called


async def test_what_a_coroutine_is_given_is_entered_on_its_loop(loop: asyncio.AbstractEventLoop) -> None:
    assert loop is asyncio.get_running_loop()


def test_a_coroutine_that_fails_is_a_test_that_fails(call: Callable[..., None]) -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        call(fails)


def test_a_coroutine_that_waits_for_ever_is_ended(call: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE", 0.01)
    with pytest.raises(TimeoutError):
        call(asyncio.Event().wait)
