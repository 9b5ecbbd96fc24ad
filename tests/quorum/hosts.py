"""Hosts for tests: replicas of a log of plain records, in this process, each with its own folder and port."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from patience import eventually

from fencepost.files.folders import OsFiles
from fencepost.quorum.driver.host import QuorumHost
from fencepost.quorum.driver.links import LinkError
from fencepost.quorum.driver.node import Limits
from fencepost.quorum.driver.proposals import NotLeader, OutcomeUnknown
from fencepost.quorum.identity import Node, ReplicaKey
from fencepost.quorum.log import Batch
from fencepost.quorum.roles.interface import QuorumSettings

FAST = QuorumSettings(
    election_timeout=150_000,
    fetch_timeout=400_000,
    election_backoff=150_000,
    request_timeout=300_000,
    retry_backoff=5_000,
    fetch_max_wait=100_000,
    records_kept=20,
)


def free_ports(count: int) -> list[int]:
    """Free ports of 127.0.0.1."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Records:
    """A state machine that keeps each record once, however often it is proposed."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self.records = list(records)
        self.leaders: list[tuple[int, Node | None, bool]] = []
        self.up: list[int] = []
        self.failure: BaseException | None = None

    def apply(self, batch: Batch) -> None:
        self.records += [each for each in batch.records if each not in self.records]

    def snapshot(self) -> Iterator[Sequence[bytes]]:
        records = self.records[:]
        for first in range(0, len(records), 10):
            yield records[first : first + 10]

    def marker(self) -> bytes:
        return b"marker"

    def restore(self, records: Sequence[bytes]) -> None:
        self.records = list(records)

    def leader_changed(self, epoch: int, leader: Node | None, mine: bool) -> None:
        self.leaders.append((epoch, leader, mine))

    def became_leader(self, epoch: int) -> None:
        self.up.append(epoch)

    def call_received(self, source: ReplicaKey, link: object, data: bytes, answer: Any) -> None:
        answer(data[::-1], "")

    def link_lost(self, endpoint: str) -> None:
        pass

    def failed(self, error: BaseException) -> None:
        self.failure = error


class TestHost:
    """A host that can be started, stopped, killed and wiped."""

    __test__ = False

    def __init__(self, cluster: TestCluster, host_id: int) -> None:
        self.cluster = cluster
        self.host_id = host_id
        self.path = cluster.path / str(host_id)
        self.host: Any = None
        self.machine: Any = None

    async def start(self) -> None:
        cluster = self.cluster
        files = OsFiles(str(self.path))
        self.host = QuorumHost(files, self.host_id, cluster.endpoints, cluster.settings, cluster.limits)
        contents = await self.host.open()
        self.machine = Records(contents.state)
        self.host.begin(contents, self.machine)

    @property
    def node(self) -> Any:
        return self.host.node

    async def kill(self) -> None:
        """End as a crash does: nothing more is sent or written."""
        host, self.host = self.host, None
        node = host.node
        node.stopped = True
        node._timers.stop()
        await host.close()

    async def stop(self) -> None:
        host, self.host = self.host, None
        await host.close()

    def wipe(self) -> None:
        shutil.rmtree(self.path)


class TestCluster:
    """A cluster of hosts."""

    __test__ = False

    def __init__(self, path: Path, count: int = 3, **limits: Any) -> None:
        self.path = path
        self.settings = FAST
        self.limits = Limits(**limits)
        ports = free_ports(count)
        self.endpoints = {1 + number: f"127.0.0.1:{port}" for number, port in enumerate(ports)}
        self.hosts = {host_id: TestHost(self, host_id) for host_id in self.endpoints}

    def __getitem__(self, host_id: int) -> TestHost:
        return self.hosts[host_id]

    async def start(self, *host_ids: int) -> None:
        await asyncio.gather(*(self.hosts[each].start() for each in host_ids or self.hosts))

    async def __aenter__(self) -> TestCluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self.hosts.values():
            if each.host is not None:
                await each.stop()

    @property
    def running(self) -> list[TestHost]:
        return [each for each in self.hosts.values() if each.host is not None and each.node is not None]

    async def leader(self) -> TestHost:
        """Wait for a leader whose state is up to date."""
        found: list[TestHost] = []

        def leads() -> bool:
            found[:] = [
                each for each in self.running if each.node.leads and each.machine.up[-1:] == [each.node.replica.epoch]
            ]
            return bool(found)

        await eventually(leads, "a leader")
        return found[0]

    async def propose(self, *records: bytes) -> None:
        """Propose records to the leader until they are committed. A retry may commit them again."""
        while True:
            try:
                await (await self.leader()).node.propose(records)
                return
            except (NotLeader, OutcomeUnknown, LinkError):
                await asyncio.sleep(0.01)

    async def have(self, records: Sequence[bytes]) -> None:
        """Wait until all running hosts have exactly these records."""
        await eventually(
            lambda: all(each.machine.records == list(records) for each in self.running), f"{len(records)} records"
        )


def replaced(settings: QuorumSettings, **changes: Any) -> QuorumSettings:
    return msgspec.structs.replace(settings, **changes)
