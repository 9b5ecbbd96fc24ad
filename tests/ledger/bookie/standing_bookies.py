"""Whole bookies with a metadata service, for tests of everything around the server."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from ledger.bookie.serving import Client
from patience import eventually

from fencepost.ledger.bookie import process
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.wire import v3


@contextlib.contextmanager
def started(*arguments: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a Fencepost command as a process, and end it afterwards."""
    command = [sys.executable, "-m", "fencepost", *map(str, arguments)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


class Bookie:
    """A bookie that runs on this event loop, and how it ended."""

    def __init__(self, directory: Path, settings: BookieSettings, storage_of: Callable[..., Storage]) -> None:
        self.bookie_id = ""
        self.server: Any = None
        self.running = asyncio.create_task(process.serve(str(directory), settings, self._ready, storage_of))

    def _ready(self, bookie_id: str) -> None:
        self.bookie_id = bookie_id

    async def serves(self) -> str:
        """Wait until it serves and return its id. Raises the error that ended it."""
        await eventually(lambda: self.bookie_id or self.running.done(), "the bookie to serve")
        if self.running.done():
            await self.running
        return self.bookie_id

    async def client(self, codec: Any = v3) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.bookie_id.rpartition(":")[2]))
        return Client(reader, writer, codec)

    async def end(self) -> None:
        """End it, as a signal does."""
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running


@contextlib.asynccontextmanager
async def bookie(
    directory: Path, uri: str, storage_of: Callable[..., Storage] = Storage, **settings: Any
) -> AsyncIterator[Bookie]:
    """A bookie that serves."""
    running = Bookie(directory, BookieSettings.of({"metadataServiceUri": uri, "bookiePort": 0, **settings}), storage_of)
    try:
        await running.serves()
        yield running
    finally:
        await running.end()
