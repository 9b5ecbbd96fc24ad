"""Proxies on loopback with their traces as lists, for tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from ledger.bookie.serving import Client

from fencepost.ledger.recording.faults import Faults, parse
from fencepost.ledger.recording.proxy import Bookie, Proxy, bind
from fencepost.ledger.wire import v3
from fencepost.traces import TraceWriter

BOOKIE = "b1"
NOTHING: dict[str, Any] = {}


class Event(NamedTuple):
    """One event of a trace."""

    action: str
    subject: str | int | None
    parameters: dict[str, Any]
    actor: str


class Listed(TraceWriter):
    """A trace that is a list of events."""

    def __init__(self, started: dict[str, Any] | None = None) -> None:
        self.started = started
        self.events: list[Event] = []
        self.ended: dict[str, Any] | None = None

    def emit(
        self,
        action: str,
        subject: str | int | None = None,
        parameters: dict[str, Any] = NOTHING,
        state: dict[str, Any] | None = None,
        actor: str = "",
    ) -> None:
        assert self.ended is None, f"{action} after the end"
        self.events.append(Event(action, subject, dict(parameters), actor))

    def close(self, parameters: dict[str, Any] = NOTHING) -> None:
        self.ended = dict(parameters)

    def of(self, *actions: str) -> list[dict[str, Any]]:
        """The parameters of the events of these actions, in order."""
        return [event.parameters for event in self.events if event.action in actions]

    @property
    def actions(self) -> list[str]:
        return [event.action for event in self.events]


class Stand:
    """A proxy for one bookie."""

    def __init__(self, proxy: Proxy, trace: Listed, port: int) -> None:
        self.proxy = proxy
        self.trace = trace
        self.port = port

    async def connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def client(self, codec: Any = v3) -> Client:
        return Client(*await self.connection(), codec)


@contextlib.asynccontextmanager
async def proxying(port: int, *faults: str, **options: Any) -> AsyncIterator[Stand]:
    """A proxy for the bookie at a port, with faults in the notation of the command line."""
    trace = Listed()
    proxy = Proxy(trace, Faults([parse(text, [BOOKIE]) for text in faults]), **options)
    with contextlib.closing(bind("127.0.0.1", 0)) as bound:
        await proxy.listen(Bookie(BOOKIE, "127.0.0.1", port), bound)
        try:
            yield Stand(proxy, trace, bound.getsockname()[1])
        finally:
            await proxy.close()


class Peer:
    """A server that keeps the bytes it receives and answers as the test says."""

    def __init__(self) -> None:
        self.arrived = bytearray()
        self.writers: list[asyncio.StreamWriter] = []
        self.ended = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self.answers: Callable[[bytes], bytes] = lambda data: b""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError):
            while True:
                await self.reads.wait()
                data = await reader.read(1 << 16)
                if not data:
                    break
                self.arrived += data
                writer.write(self.answers(data))
        self.ended += 1
        writer.close()


@contextlib.asynccontextmanager
async def peer() -> AsyncIterator[Peer]:
    """A server on loopback."""
    made = Peer()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for writer in made.writers:
            writer.transport.abort()
