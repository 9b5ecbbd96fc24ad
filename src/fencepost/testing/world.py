"""The world of a driven system: time, randomness and network are ours, so that a behaviour repeats from its seed."""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any
from unittest import mock

import fencepost
from fencepost.simulation.interposed import interposed
from fencepost.simulation.schedule import Schedule
from fencepost.simulation.streams import Factory, ProcessLoop, Streams

MOST_CALLS = 1_000_000
"""The most calls of the event loop for one call of a system."""

HOST = "127.0.0.1"


_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "sleep", "clock_gettime", "clock_gettime_ns")

_BY_NAME = [*((time, name) for name in _CLOCKS), (os, "urandom")]
"""What systems also import by name: ``from time import monotonic``."""

_MONOTONIC = {getattr(time, name, None) for name in ("CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME")}

_really_clock_ns = time.clock_gettime_ns


def _clock_ns(clock: int) -> int:
    """The nanoseconds of a clock. Those that count the work of a process or a thread are the machine's."""
    if clock == time.CLOCK_REALTIME:
        return time.time_ns()
    return time.monotonic_ns() if clock in _MONOTONIC else _really_clock_ns(clock)


def _clock(clock: int) -> float:
    return _clock_ns(clock) / 1_000_000_000


_NOT_SYSTEMS = (str(Path(fencepost.__file__).parent), sysconfig.get_path("stdlib"))

_looked_at: tuple[int, list[tuple[dict[str, Any], str, Any]]] = 0, []


def _imported(functions: list[Any]) -> list[tuple[dict[str, Any], str, Any]]:
    """As :func:`_held`, and looked for again only when there are more modules."""
    global _looked_at
    if _looked_at[0] != len(sys.modules):
        _looked_at = len(sys.modules), _held(functions)
    return _looked_at[1]


def _held(functions: list[Any]) -> list[tuple[dict[str, Any], str, Any]]:
    """Where modules hold one of these functions by a name of their own, but for Python's and Fencepost's."""
    found = []
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        file = names.get("__file__") or ""
        if file and ("site-packages" in file or not file.startswith(_NOT_SYSTEMS)):
            found += [(names, name, held) for name, held in names.items() if any(held is each for each in functions)]
    return found


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
        real = {name: getattr(module, name) for module, name in _BY_NAME}
        self._stack.enter_context(interposed(self._schedule, str(self._seed)))
        for name, instead_of in (("sleep", self._sleep), ("clock_gettime", _clock), ("clock_gettime_ns", _clock_ns)):
            self._stack.enter_context(mock.patch.object(time, name, instead_of))
        instead = {id(real[name]): getattr(module, name) for module, name in _BY_NAME}
        for names, name, held in _imported([*real.values()]):
            names[name] = instead[id(held)]
            self._stack.callback(names.__setitem__, name, held)
        count = len(sys.modules)

        def restore() -> None:
            """Give the modules that were imported meanwhile what they would have got before."""
            if len(sys.modules) != count:
                ours = {id(instead[id(function)]): function for function in real.values()}
                for names, name, held in _held([instead[id(function)] for function in real.values()]):
                    names[name] = ours[id(held)]

        self._stack.callback(restore)
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
