"""Why a process of the store ends: a signal asks it to, or it cannot go on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from typing import Any

_log = logging.getLogger("fencepost.ledger")


def set_at_signals(ended: asyncio.Event) -> None:
    """Let SIGTERM and SIGINT set an event of the running loop; a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def signalled(number: signal.Signals) -> None:
        if ended.is_set():
            os._exit(128 + number)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # not in the main thread, as in tests
            loop.add_signal_handler(number, signalled, number)


class Shutdown:
    """Why a process ends: a signal asks it to, or it cannot go on."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._error: BaseException | None = None
        set_at_signals(self._event)
        asyncio.get_running_loop().set_exception_handler(self._raised)

    async def wait(self) -> None:
        """Come back when it ends."""
        await self._event.wait()

    def check(self) -> None:
        """Raise if it could not go on."""
        if self._error is not None:
            raise self._error

    def _raised(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback has raised, and what it has left undone is not known."""
        error = context.get("exception")
        if isinstance(error, ConnectionError | TimeoutError):
            return
        _log.error("%s: %r", context.get("message"), error)
        if isinstance(error, BaseException):
            self._error = self._error or error
            self._event.set()
