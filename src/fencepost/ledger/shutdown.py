"""How a process of the store shuts down: on a signal, or because of an error it cannot survive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from typing import Any

_log = logging.getLogger("fencepost.ledger")


def set_at_signals(ended: asyncio.Event) -> None:
    """Set an event of the running loop on SIGTERM or SIGINT. A second signal exits the process at once."""
    loop = asyncio.get_running_loop()

    def signalled(number: signal.Signals) -> None:
        if ended.is_set():
            os._exit(128 + number)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # not in the main thread, as in tests
            loop.add_signal_handler(number, signalled, number)


class Shutdown:
    """Why a process shuts down: a signal, or an error it cannot survive."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._error: BaseException | None = None
        set_at_signals(self._event)
        asyncio.get_running_loop().set_exception_handler(self._raised)

    async def wait(self) -> None:
        """Wait until the process must end."""
        await self._event.wait()

    def check(self) -> None:
        """Raise the error that ended the process, if one did."""
        if self._error is not None:
            raise self._error

    def _raised(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised, and left its work in an unknown state."""
        error = context.get("exception")
        if isinstance(error, ConnectionError | TimeoutError):
            return
        _log.error("%s: %r", context.get("message"), error)
        if isinstance(error, BaseException):
            self._error = self._error or error
            self._event.set()
