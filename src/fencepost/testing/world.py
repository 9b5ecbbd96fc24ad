"""The world of a driven system: time, randomness and network are ours, so that a behaviour repeats from its seed."""

from __future__ import annotations

import asyncio
import errno
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from random import Random
from types import TracebackType
from typing import Any
from unittest import mock

from fencepost.simulation.interposed import interposed
from fencepost.simulation.schedule import Schedule
from fencepost.simulation.streams import Factory, ProcessLoop, Streams

MOST_CALLS = 1_000_000
"""The most calls of the event loop for one call of a system."""

HOST = "127.0.0.1"


class Waits(Exception):
    """A call of a system does not end."""


class World:
    """A context in which one system runs, on virtual time. Clocks, random numbers, and asyncio's tasks, timers and
    streams depend on the ``seed`` alone. ``is_async``: calls are made in the event loop, and what they return is
    awaited.
    """

    def __init__(self, seed: int, is_async: bool) -> None:
        self._seed = seed
        self._is_async = is_async
        self._schedule = Schedule()
        self._loop = Loop(Streams(self._schedule, Random(f"{seed} network"), 0.0, lambda *heard: None), HOST)
        self._stack = ExitStack()
        self._thread = threading.get_ident()
        self._really_sleep = time.sleep

    def __enter__(self) -> World:
        self._stack.enter_context(interposed(self._schedule, str(self._seed)))
        self._stack.enter_context(mock.patch.object(time, "sleep", self._sleep))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.abandon()
        self._stack.close()

    def call(self, function: Callable[..., Any], *values: Any, **parameters: Any) -> Any:
        """Call a function. In the event loop, also do what is due after it at that time.

        Raises what it raises, and :class:`Waits` if it does not end.
        """
        if not self._is_async:
            return function(*values, **parameters)

        async def awaited() -> Any:
            found = function(*values, **parameters)
            return await found if inspect.isawaitable(found) else found

        task: list[asyncio.Task[Any]] = []
        self._loop.does(lambda: task.append(self._loop.create_task(awaited())))
        for _ in range(MOST_CALLS):
            if task[0].done():
                self._schedule.go_on(self._schedule.now)
                return task[0].result()
            if not self._schedule.step():
                raise Waits("it waits for something that never comes")
        raise Waits(f"it has not ended after {MOST_CALLS:,} calls of the event loop")

    def _sleep(self, seconds: float) -> None:
        if threading.get_ident() != self._thread:
            self._really_sleep(seconds)
            return
        if self._is_async:
            raise RuntimeError("time.sleep blocks the event loop: await asyncio.sleep")
        self._schedule.go_on(self._schedule.now + round(seconds * 1_000_000))


class Loop(ProcessLoop):
    """The event loop of a driven system. All hosts are this one."""

    def __init__(self, streams: Streams, name: str) -> None:
        super().__init__(streams, name)
        self._ports = count(49_152)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{name}: a driven system has tasks, timers, create_connection and create_server, and no more of asyncio's"
            " loops"
        )

    async def create_connection(
        self, factory: Factory, host: str | None = None, port: int = 0, **options: Any
    ) -> tuple[asyncio.Transport, Any]:
        """See :class:`asyncio.AbstractEventLoop`, as below."""
        return await super().create_connection(factory, self.name, port)

    async def create_server(
        self, factory: Factory, host: str | None = None, port: int = 0, **options: Any
    ) -> Listening:
        port = port or next(self._ports)
        if (self.name, port) in self.streams.listeners:
            raise OSError(errno.EADDRINUSE, f"port {port} is in use")
        self.streams.listen(self, port, factory)
        return Listening(self, port)


class Listening(asyncio.AbstractServer):
    """A server of a driven system."""

    def __init__(self, loop: Loop, port: int) -> None:
        self._loop = loop
        self._address = loop.name, port

    @property
    def sockets(self) -> tuple[Listening, ...]:
        """Its socket, that is what knows its address."""
        return (self,) if self.is_serving() else ()

    def getsockname(self) -> tuple[str, int]:
        """The host and the port."""
        return self._address

    def get_loop(self) -> Any:
        """Its event loop."""
        return self._loop

    def close(self) -> None:
        """Accept no more connections."""
        self._loop.streams.listeners.pop(self._address, None)

    def is_serving(self) -> bool:
        """Whether it accepts connections."""
        return self._address in self._loop.streams.listeners

    async def start_serving(self) -> None:
        """It serves from the start."""

    async def serve_forever(self) -> None:
        """Wait forever."""
        await self._loop.create_future()

    async def wait_closed(self) -> None:
        """Nothing is to be waited for."""
