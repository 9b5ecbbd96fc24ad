"""Time, randomness and the network of a driven system are simulated: behaviours repeat from their seed."""

from __future__ import annotations

import asyncio
import random
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from time import time as wall_clock
from typing import Any

import pytest

from fencepost import Protocol, action, require, state
from fencepost.testing import Driven, drive
from fencepost.testing.world import World

real_monotonic = time.__dict__["monotonic"]


class Counter(Protocol):
    """A counter that counts to three."""

    count: int = state(0)

    @action
    def adds(self) -> None:
        require(self.count < 3)
        self.count += 1

    @action
    def clears(self) -> None:
        self.count = 0


class Served:
    """The counter behind a connection, in a server with a timer, a clock, and random delays."""

    log: list[Any] = []
    clients = 0

    def __init__(self) -> None:
        self.count = 0
        self.server: Any = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            await asyncio.sleep(random.random() * 1_000)
            self.count = self.count + 1 if line == b"add\n" else 0
            self.log.append((line, time.time(), time.monotonic(), random.random(), uuid.uuid4()))
            writer.write(b"done\n")
            await writer.drain()
        writer.close()

    async def ask(self, line: bytes) -> None:
        if self.server is None:
            self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        _, port = self.server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection("localhost", port)
        writer.write(line)
        async with asyncio.timeout(2_000):
            assert await reader.readline() == b"done\n"
        writer.close()
        await writer.wait_closed()

    async def adds(self) -> None:
        await self.ask(b"add\n")

    async def clears(self) -> None:
        await self.ask(b"clear\n")

    async def observe(self) -> dict[str, Any]:
        return {"count": self.count}

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
            await self.server.wait_closed()


def logged(seed: int) -> list[Any]:
    Served.log = []
    began = time.monotonic()
    driven = drive(Counter, Served, seed=seed).must_follow()
    assert driven.steps * 100 > time.monotonic() - began, "virtual time passes, and not the machine's"
    return Served.log


def test_a_run_repeats_from_its_seed(generator: random.Random) -> None:
    before = generator.getstate()
    first = logged(1)
    assert len(first) >= 6
    assert logged(1) == first
    assert logged(2) != first
    assert generator.getstate() == before


class Simple:
    """A counter in plain Python, or an asynchronous one."""

    def __init__(self) -> None:
        self.count = 0

    def adds(self) -> None:
        self.count += 1

    def clears(self) -> None:
        self.count = 0

    def observe(self) -> dict[str, Any]:
        return {"count": self.count}


def test_time_passes_while_plain_python_sleeps() -> None:
    class Sleeps(Simple):
        def adds(self) -> None:
            before = time.monotonic()
            time.sleep(3_600)
            assert time.monotonic() - before == 3_600
            super().adds()

    assert drive(Counter, Sleeps).follows


def test_clocks_are_simulated_too_where_a_module_imported_them_by_name() -> None:
    began = real_monotonic()

    class Sleeps(Simple):
        def adds(self) -> None:
            before, wall = monotonic(), wall_clock()
            assert time.clock_gettime(time.CLOCK_MONOTONIC) == before
            assert time.clock_gettime_ns(time.CLOCK_REALTIME) == round(wall * 1_000_000) * 1_000
            assert time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) > 0
            sleep(3_600)
            assert (monotonic(), wall_clock()) == (before + 3_600, wall + 3_600)
            super().adds()

    assert drive(Counter, Sleeps).follows
    assert monotonic is real_monotonic and began <= monotonic(), "and are the machine's again"


def test_a_module_that_is_imported_later_has_its_clock_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imported_later.py").write_text("from time import monotonic as now\n")
    drive(Counter, Simple)

    class Late(Simple):
        def __init__(self) -> None:
            super().__init__()
            from imported_later import now  # type: ignore[import-not-found]

            time.sleep(5)
            assert now() == time.monotonic() == 5

    assert drive(Counter, Late).follows
    assert sys.modules.pop("imported_later").now is real_monotonic


def difference(adds: Callable[[Any], Any]) -> str:
    class Other(Simple):
        async def adds(self) -> None:  # type: ignore[override]
            await adds(self)

    driven: Driven = drive(Counter, Other)
    assert driven.shown is not None and len(driven.shown.trace.steps) == 1
    return str(driven.shown.difference.actual)


async def _waits(self: Any) -> None:
    await asyncio.get_running_loop().create_future()


async def _blocks(self: Any) -> None:
    time.sleep(1)


async def _turns(self: Any) -> None:
    while True:
        await asyncio.sleep(0)


async def _opens(self: Any) -> None:
    await asyncio.open_connection("elsewhere", 80)


async def _starts(self: Any) -> None:
    await asyncio.create_subprocess_exec("true")


async def _breaks(self: Any) -> None:
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(1)


@pytest.mark.parametrize(
    ("adds", "said"),
    [
        (_waits, "it waits for something that never comes"),
        (_blocks, "time.sleep blocks the event loop: await asyncio.sleep"),
        (_turns, "it has not ended after 2,000 calls"),
        (_opens, "ConnectionRefusedError"),
        (_starts, "a driven system has tasks, timers, create_connection and create_server"),
        (_breaks, "ZeroDivisionError: division by zero, at test_world.py"),
    ],
)
def test_what_goes_wrong_in_the_loop_is_a_difference(
    monkeypatch: pytest.MonkeyPatch, adds: Callable[[Any], Any], said: str
) -> None:
    monkeypatch.setattr("fencepost.testing.world.MOST_CALLS", 2_000)
    assert said in difference(adds)


def test_what_is_due_at_once_is_done_before_it_is_observed() -> None:
    class Later(Simple):
        async def adds(self) -> None:  # type: ignore[override]
            asyncio.get_running_loop().call_soon(super().adds)

    assert drive(Counter, Later).follows

    class MuchLater(Simple):
        async def adds(self) -> None:  # type: ignore[override]
            asyncio.get_running_loop().call_later(1, super().adds)

    assert not drive(Counter, MuchLater).follows


def test_tasks_end_with_their_behaviour() -> None:
    ended = []

    class Tasks(Simple):
        async def adds(self) -> None:  # type: ignore[override]
            super().adds()
            self.task = asyncio.create_task(self.run())

        async def run(self) -> None:
            try:
                await asyncio.sleep(1_000_000)
            finally:
                ended.append(self)

    assert drive(Counter, Tasks).follows
    assert ended


def test_a_port_is_served_once() -> None:
    async def twice() -> Any:
        first = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 80)
        assert first.is_serving() and first.sockets[0].getsockname() == ("127.0.0.1", 80)
        with pytest.raises(OSError, match="port 80 is in use"):
            await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 80)
        first.close()
        await first.wait_closed()
        return await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 80)

    with World(0, True) as world:
        assert world.call(twice).is_serving()
