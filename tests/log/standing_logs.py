"""A metadata service and real bookies in this process, and clients of theirs, for tests of logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from ledger.bookie.standing_bookies import Bookie, bookie
from metadata.servers import Server
from patience import PATIENCE

from fencepost.api.client import Client
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.log.chain import EARLIEST
from fencepost.log.log import Log

SETTINGS = ClientSettings(session_timeout=4.0, metadata_timeout=PATIENCE, request_timeout=PATIENCE)
"""Settings of a client that waits for a slow machine."""


class Standing:
    """A standing system: the address of the metadata service, and the bookies."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.server = Server(folder / "metadata")
        stack.callback(self.server.stop)
        self.uri = f"zk://127.0.0.1:{self.server.port}/ledgers"
        self.bookies: list[Bookie] = []

    async def start(self, bookies: int) -> None:
        async with await MetadataClient.connect(self.uri) as client:
            await client.initialise()
        for _ in range(bookies):
            await self.add_bookie()

    async def add_bookie(self) -> None:
        """Start one more bookie."""
        running = bookie(self.folder / f"bookie{len(self.bookies)}", self.uri)
        self.bookies.append(await self.stack.enter_async_context(running))

    async def connect(self, trace: Path | None = None) -> Client:
        """Connect a client. It is closed at the end."""
        store = await Client.connect(self.uri, SETTINGS, trace)
        return await self.stack.enter_async_context(store)

    async def new_log(self, name: str = "orders", **options: Any) -> Log:
        """A log of a client of its own."""
        log = (await self.connect()).log(name)
        await log.create(**options)
        return log


@asynccontextmanager
async def standing(folder: Path, bookies: int = 3) -> AsyncIterator[Standing]:
    """Bookies with a metadata service."""
    async with AsyncExitStack() as stack:
        made = Standing(folder, stack)
        await made.start(bookies)
        yield made


async def contents(log: Log, at: Any = EARLIEST, **options: Any) -> list[bytes]:
    """The entries of a log."""
    return [entry.data async for entry in log.reader(at, follow=False, **options)]
