"""Bookies on loopback with plain clients, for tests of the server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from fencepost.connections.tls import Tls
from fencepost.ledger import messages as m
from fencepost.ledger.bookie.metrics import Metrics
from fencepost.ledger.bookie.server import Server
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.entries import Digests, Entry
from fencepost.ledger.kernels import bookie as bookie_loops
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.rules.metadata import DigestType
from fencepost.ledger.wire import v2, v3
from fencepost.ledger.wire.frames import Frames

LOOPS: Any = bookie_loops
"""The compiled loops that bookies have. With None, they take one message at a time."""
KEY = b"k" * 20
DIGESTS = Digests(DigestType.CRC32, b"")


class Served:
    """A server, its port, and why it stopped, if it did."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port
        self.stopped: list[str] = []

    async def client(self, codec: Any = v3, **options: Any) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **options)
        return Client(reader, writer, codec)


@contextlib.asynccontextmanager
async def serving(
    directory: Path,
    context: Tls | None = None,
    storage_of: Callable[..., Storage] = Storage,
    **settings: Any,
) -> AsyncIterator[Served]:
    """A bookie that serves from a directory."""
    given = BookieSettings.of(settings)
    served = Served.__new__(Served)
    stopped: list[str] = []
    server = Server(Bookie(limits=given.of_role()), given, Metrics(), stopped.append, context, given.users(), LOOPS)
    storage = storage_of(
        given.of_storage(str(directory / "journal"), str(directory / "ledgers")),
        synced=server.synced,
        failed=server.failed,
        busy=server.busy,
        took=server.metrics.storage_took,
        compiled=lambda: LOOPS is not None,
    )
    server.open(storage)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        await server.listen(bound)
        served.server, served.port, served.stopped = server, bound.getsockname()[1], stopped
        try:
            yield served
        finally:
            await server.close()
            storage.close()


class Client:
    """A connection to a bookie."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, codec: Any) -> None:
        self.reader = reader
        self.writer = writer
        self.codec = codec
        self.frames = Frames(1 << 30)
        self.payloads: list[bytes] = []
        self.txn = 0

    def send(self, *requests: m.Request) -> None:
        """Send requests, numbered from 1."""
        frames = []
        for request in requests:
            self.txn += 1
            frames.append(self.codec.encode_request(self.txn, request))
        self.writer.write(b"".join(frames))

    async def receive(self) -> tuple[int, Any]:
        """The next answer."""
        while not self.payloads:
            data = await self.reader.read(1 << 16)
            if not data:
                raise EOFError
            self.payloads += self.frames.feed(data)
        answer: tuple[int, Any] = self.codec.decode_response(self.payloads.pop(0))
        return answer

    async def ask(self, request: m.Request) -> Any:
        """Send a request. Returns its answer, which must be the next to arrive."""
        self.send(request)
        txn, response = await self.receive()
        assert self.codec is v2 or txn == self.txn
        return response

    async def is_closed(self) -> bool:
        """Wait until the bookie closes the connection. Returns whether it did."""
        try:
            return not await self.reader.read(1)
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def entry(ledger: int, entry_id: int, data: bytes = b"data", lac: int | None = None) -> bytes:
    """The body of an entry."""
    lac = entry_id - 1 if lac is None else lac
    return DIGESTS.entry_body(Entry(ledger, entry_id, lac, len(data) * (entry_id + 1), data))


def add(ledger: int, entry_id: int, data: bytes = b"data", key: bytes = KEY, **options: Any) -> m.AddEntry:
    """An add."""
    lac = options.pop("lac", entry_id - 1)
    return m.AddEntry(ledger, entry_id, lac, entry(ledger, entry_id, data, lac), key, **options)
