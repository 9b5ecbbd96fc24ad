"""Metadata services for tests: in this process, each with its own thread, event loop and folder."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import patience

from fencepost.files.folders import Files, OsFiles
from fencepost.metadata.member import Member
from fencepost.metadata.settings import MetadataSettings
from fencepost.metadata.tree import Tree
from fencepost.quorum.driver.host import TIMES, QuorumHost
from fencepost.quorum.driver.node import Limits, QuorumNode


class Server:
    """A service that runs from its construction. ``failure`` is the error of its disk, if that ended it."""

    def __init__(self, files: Files | Path, **settings: Any) -> None:
        self.files = OsFiles(str(files)) if isinstance(files, Path) else files
        self.settings = MetadataSettings.of({"clientPort": 0, "tickTime": 100, "maxSessionTimeout": 60_000, **settings})
        self.failure: BaseException | None = None
        self.port = 0
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(patience.PATIENCE)
        if self._error is not None:
            self._thread.join()
            raise self._error

    @property
    def node(self) -> QuorumNode:
        assert self.service.node is not None
        return self.service.node

    def do(self, call: Callable[[], Any]) -> Any:
        """Run a function on the service's event loop."""

        async def called() -> Any:
            return call()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(patience.PATIENCE)

    def stop(self) -> None:
        """Shut down cleanly, unless it has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join()

    def crash(self) -> None:
        """End as a crash does: nothing more is written."""

        def crashed() -> None:
            self.node.stopped = True
            self.node._timers.stop()
            self._end()

        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(crashed)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        self._end = ended.set
        try:
            limits = Limits(snapshot_records=self.settings.snap_count, snapshots=self.settings.snap_retain_count)
            host = QuorumHost(self.files, None, {}, TIMES, limits)
            self.service = Member(self.settings, host, self._failed)
            await self.service.take_part()
            servers = await self.service.serve()
        except Exception as error:
            self._error = error
            self._ready.set()
            return
        self.port = self.service.address[1]
        self._ready.set()
        await ended.wait()
        for each in servers:
            each.close()
        with suppress(OSError):
            await self.service.stop()

    def _failed(self, error: BaseException) -> None:
        self.failure = error
        self._end()


Serve = Callable[..., Server]
"""Starts a server, as the fixture ``serve`` does."""


def state_of(files: Path | Files) -> Tree:
    """The state that a service recovers from a folder. Raises :class:`fencepost.errors.SystemFailure`."""
    server = Server(files)
    patience.until(lambda: server.do(lambda: server.service._decides), "all that is committed")
    server.stop()
    return server.service.tree
