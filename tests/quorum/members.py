"""Members of a metadata quorum for tests: in this process, on an event loop in its own thread, with their own folders
and ports.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import patience
from quorum.hosts import FAST, free_ports, replaced

from fencepost.files.folders import OsFiles
from fencepost.metadata.member import Member
from fencepost.metadata.settings import MetadataSettings
from fencepost.quorum.driver.host import QuorumHost
from fencepost.quorum.driver.node import Limits, QuorumNode


class Members:
    """The members of a quorum, by id from 1."""

    def __init__(self, path: Path, count: int, limits: dict[str, Any] | None = None, **settings: Any) -> None:
        self.path = path
        self.limits = Limits(**(limits or {}))
        self.times = FAST
        self.settings = {"tickTime": 100, "maxSessionTimeout": 60_000, **settings}
        ports = free_ports(2 * count)
        self.hosts = {1 + number: f"127.0.0.1:{port}" for number, port in enumerate(ports[:count])}
        self.ports = {1 + number: port for number, port in enumerate(ports[count:])}
        self.running: dict[int, Member] = {}
        self._servers: dict[int, list[Any]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def be_patient(self) -> None:
        """Use long timeouts, so that no slow leader is taken for dead."""
        self.times = replaced(FAST, fetch_timeout=60_000_000, request_timeout=60_000_000)

    @property
    def addresses(self) -> str:
        """The connection string of a client."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def do(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the members' event loop."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(patience.PATIENCE)

    def start(self, *members: int) -> None:
        """Start these members, or all, and wait until they serve."""

        async def started(member: int) -> None:
            settings = MetadataSettings.of({"clientPort": self.ports[member], **self.settings})
            host = QuorumHost(OsFiles(str(self.path / str(member))), member, self.hosts, self.times, self.limits)
            service = Member(settings, host, lambda error: None)
            await service.take_part()
            self._servers[member] = await service.serve()
            self.running[member] = service

        async def all_started() -> None:
            await asyncio.gather(*map(started, members or self.hosts))

        self.do(all_started())

    def node(self, member: int) -> QuorumNode:
        node = self.running[member].node
        assert node is not None
        return node

    def kill(self, member: int) -> None:
        """End a member as a crash does: nothing more is sent or written."""

        async def killed() -> None:
            node, service = self.node(member), self.running.pop(member)
            for each in self._servers.pop(member):
                each.close()
            node.stopped = True
            node._timers.stop()
            await service.stop()

        self.do(killed())

    def stop(self, member: int) -> None:
        """Stop a member cleanly."""

        async def stopped() -> None:
            for each in self._servers.pop(member):
                each.close()
            await self.running.pop(member).stop()

        self.do(stopped())

    def wipe(self, member: int) -> None:
        """Delete a member's folder."""
        shutil.rmtree(self.path / str(member))

    @property
    def leader(self) -> int:
        """Wait for a leader that decides. Gives its id."""
        patience.until(lambda: [each for each in list(self.running.values()) if each._decides], "a leader")
        return next(number for number, each in self.running.items() if each._decides)

    @property
    def followers(self) -> list[int]:
        leader = self.leader
        return [number for number in self.running if number != leader]

    def ask(self, request: Any) -> Any:
        """Send an administrator's request to the leader."""
        service = self.running[self.leader]

        async def asked() -> Any:
            return await service.host.links.ask(service.host.me.endpoint, request)

        return self.do(asked())

    def agree(self) -> None:
        """Wait until all have the same state."""

        def states() -> list[Any]:
            return [
                (each.tree.zxid, each.tree.nodes, each.tree.sessions, each.owners)
                for each in list(self.running.values())
            ]

        def same() -> bool:
            first, *others = states()
            return all(each == first for each in others)

        patience.until(same, "the same state")

    def close(self) -> None:
        """Stop all members."""
        for member in list(self.running):
            self.stop(member)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
