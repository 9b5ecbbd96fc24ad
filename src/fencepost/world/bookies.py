"""Bookies of a world: processes of :mod:`fencepost.ledger.simulation.bookie`, with storage on byte-level disks. They
serve byte streams, and use the registration of real bookies.
"""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any

from fencepost.ledger.bookie.registration import Registration
from fencepost.ledger.errors import StoreError
from fencepost.ledger.messages import Response
from fencepost.ledger.metadata.registration import BookieServiceInfo, Endpoint
from fencepost.ledger.simulation.bookie import BookieProcess
from fencepost.ledger.wire import v3
from fencepost.ledger.wire.frames import Frames
from fencepost.world.process import World, WorldLoop
from fencepost.world.session import SimMetadataClient

PORT = 3181


class BookieHost:
    """The part of a bookie's process that has an event loop: it serves streams, and keeps the bookie registered."""

    def __init__(self, bookies: Bookies, name: str) -> None:
        self.bookies = bookies
        self.name = name
        self.loop: WorldLoop | None = None
        self.registration: Registration | None = None

    def start(self) -> None:
        """Start to take connections."""
        world = self.bookies.world
        self.loop = WorldLoop(world, self.name)
        self.registration = None
        world.streams.listen(self.loop, PORT, lambda: Served(self.bookies, self.name))
        self.loop.does(self._begin, self.loop)

    def _begin(self, loop: WorldLoop) -> None:
        loop.create_task(self._register()).add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.bookies.world.raised(self.name, error)

    async def _register(self) -> None:
        """Stay registered in every session, like a real bookie's process."""
        while True:
            try:
                client = await SimMetadataClient.connect(self.bookies.uri, **self.bookies.times)
                break
            except StoreError:
                await asyncio.sleep(0.1)
        info = BookieServiceInfo((Endpoint("bookie", self.name, PORT),))
        server: Any = SimpleNamespace(
            loop=self.loop, settings=SimpleNamespace(read_only_mode_enabled=True), call=self._call
        )
        self.registration = Registration(client, self.name, info, server, lambda why: None)
        while True:
            try:
                await self.registration.begin(read_only=False)
                break
            except StoreError:
                await asyncio.sleep(0.1)
        await self.registration.keep()

    async def _call(self, operation: str, *arguments: object) -> None:
        """Do nothing: the role is informed elsewhere."""

    def end(self, noticed: bool) -> None:
        """The process is gone."""
        if self.loop is not None:
            self.loop.end(noticed)
        self.registration = None


class Served(asyncio.Protocol):
    """A client's connection to a bookie."""

    def __init__(self, bookies: Bookies, name: str) -> None:
        self.bookies = bookies
        self.name = name
        self.number = next(bookies.numbers)
        self.start = 0
        """The number of the bookie's start that accepted the connection."""
        self._frames = Frames()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """See :class:`asyncio.Protocol`."""
        self._transport = transport
        self.start = self.bookies.processes[self.name].starts
        self.bookies.connections[self.number] = self
        client, number = transport.get_extra_info("peername")
        self.bookies.labels[self.number] = f"{client}:{number}"

    def connection_lost(self, error: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        self.bookies.connections.pop(self.number, None)
        bookie: Any = self.bookies.processes[self.name]
        bookie.closed(self)

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        bookie: Any = self.bookies.processes[self.name]
        for payload in self._frames.feed(data):
            bookie.asked(self, *v3.decode_request(payload))

    def answer(self, txn: int, response: Response) -> None:
        """Answer a request."""
        self._transport.write(v3.encode_response(txn, response))


class Bookies:
    """The bookies of a world by name. Also the network and metadata service that :class:`.BookieProcess` expects of its
    environment.
    """

    def __init__(self, world: World, uri: str, times: dict[str, Any]) -> None:
        self.world = world
        self.uri = uri
        self.times = times
        self.processes: dict[str, BookieProcess] = {}
        self.hosts: dict[str, BookieHost] = {}
        self.connections: dict[int, Served] = {}
        self.labels: dict[int, str] = {}
        self.numbers = count(1)
        self.ledgers: dict[int, Any] = {}
        """The ledgers that bookies in limbo look at: none here."""

    def add(self, bookie: BookieProcess) -> None:
        """Add a bookie, not started yet."""
        self.processes[bookie.name] = bookie
        self.hosts[bookie.name] = BookieHost(self, bookie.name)

    # -- the network ---------------------------------------------------------------------------------------------------

    def respond(self, number: int, txn: int, response: Response) -> None:
        """Answer a request over its connection, if that still exists."""
        if number in self.connections:
            self.connections[number].answer(txn, response)

    def label(self, number: int) -> str:
        """The name of a connection."""
        return self.labels[number]

    def lose_all(self, name: str, noticed: bool) -> None:
        """A bookie's process is gone, with all its connections."""
        self.hosts[name].end(noticed)
        self.connections = {number: each for number, each in self.connections.items() if each.name != name}

    # -- the metadata service ------------------------------------------------------------------------------------------

    def has(self, ledger: int) -> bool:
        """Whether a ledger has metadata. Always True, because no bookie collects garbage here."""
        return True

    def register(self, name: str) -> None:
        """A bookie has started, or takes adds again."""
        host = self.hosts[name]
        if host.loop is None or host.loop.has_ended:
            host.start()
        elif host.registration is not None:
            host.registration.full(False)

    def unregister(self, name: str) -> None:
        """A bookie no longer takes adds."""
        registration = self.hosts[name].registration
        if registration is not None:
            registration.full(True)
