"""The metadata service of a world: quorum members on simulated disks, each running the real service.

The first member that applies a change reports it to the judge of ledgers. Clients must not see changes that no member
has applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fencepost.metadata.member import Member
from fencepost.metadata.protocol import CloseSession, Multi
from fencepost.metadata.reads import Requester
from fencepost.metadata.server import Connection, Item
from fencepost.metadata.settings import MetadataSettings
from fencepost.metadata.tree import Node as Znode
from fencepost.metadata.tree import Transaction
from fencepost.quorum.files.directory import Contents
from fencepost.quorum.identity import Node
from fencepost.quorum.log import Batch
from fencepost.quorum.rules import ALL
from fencepost.quorum.simulation.case import Case
from fencepost.quorum.simulation.host import Hosts, SimHost
from fencepost.simulation.schedule import Schedule
from fencepost.simulation.trace import SimTrace
from fencepost.world.process import World, WorldLoop

PORT = 2181
ROOT = "/ledgers"
"""The root path of the cluster."""

SETTINGS = MetadataSettings(tick_time=100, min_session_timeout=300, max_session_timeout=2_000, snap_count=1_000)

Changed = Callable[[Transaction, dict[str, tuple[Znode | None, Znode | None]]], None]
"""Receives a change when it is first applied, and the znodes before and after."""


class SimMember(Member):
    """The service of a member. Its snapshots begin with the hash of everything applied."""

    host: Any

    def begin(self, contents: Contents) -> None:
        """See :class:`.Member`."""
        trace: Any = self.host.environment.world.trace_of(self.host.name, "metadata")
        self.trace = trace
        self.state = contents.state[0] if contents.state else b""
        contents.state = contents.state[1:]
        super().begin(contents)
        self.look_after_sessions()

    def apply(self, batch: Batch) -> None:
        """See :class:`.Member`."""
        node = self.host.node
        self.state = self.host.environment.judge.applies(self.host.key, node.applied, batch, self.state)
        super().apply(batch)

    def _apply(self, entry: Transaction, item: Item | None) -> None:
        quorum: Quorum = self.host.environment
        if entry.zxid <= quorum.zxid:
            super()._apply(entry, item)
            return
        assert entry.zxid == quorum.zxid + 1, "a change is applied before the one ahead of it"
        request: Any = entry.request
        paths = [
            each.path for each in (request.operations if isinstance(request, Multi) else (request,)) if _is_of(each)
        ]
        before = {path: self.tree.nodes.get(path) for path in paths}
        quorum.zxid = entry.zxid
        super()._apply(entry, item)
        quorum.changed(entry, {path: (old, self.tree.nodes.get(path)) for path, old in before.items()})

    def snapshot(self) -> Iterator[Sequence[bytes]]:
        """See :class:`.Member`."""
        of_member = super().snapshot()
        yield [self.state, *next(of_member)]
        yield from of_member

    def restore(self, records: Sequence[bytes]) -> None:
        """See :class:`.Member`."""
        self.state = records[0]
        self.host.environment.judge.loads(self.host.key, self.host.node.applied, self.state)
        super().restore(records[1:])

    def became_leader(self, epoch: int) -> None:
        """See :class:`.Member`."""
        super().became_leader(epoch)
        self.host.environment.leading = self

    def expire(self, session: int) -> None:
        """Expire a session early."""
        self.change(Requester(None, session, ()), 0, CloseSession(expired=True))


def _is_of(request: object) -> bool:
    return getattr(request, "path", "").startswith(f"{ROOT}/")


class MetadataHost(SimHost):
    """A member's host. It provides the service with the quorum's node, disk and links."""

    environment: Quorum
    member: SimMember

    @property
    def name(self) -> str:
        """The name of the process."""
        return f"h{self.host_id}"

    @property
    def links(self) -> MetadataHost:
        """See :class:`.QuorumHost`."""
        return self

    @property
    def files(self) -> Any:
        """See :class:`.QuorumHost`."""
        return self.disk

    @property
    def me(self) -> Node:
        """See :class:`.QuorumHost`."""
        return Node(self.key, self.endpoint)

    def new_loop(self) -> WorldLoop:
        """See :class:`.SimHost`."""
        return WorldLoop(self.environment.world, self.name, self.crash)

    def opened(self, contents: Contents) -> None:
        """See :class:`.SimHost`."""
        self.member = SimMember(SETTINGS, self, self.failed)  # type: ignore[arg-type]
        self.member.begin(contents)
        loop: Any = self.loop
        self.environment.world.streams.listen(loop, PORT, lambda: Connection(self.member))

    def _end(self) -> None:
        loop: Any = self.loop
        loop.end(noticed=self.dice.random() < 0.5)
        super()._end()

    def notify(self, endpoint: str, data: bytes) -> None:
        """Send a call to another member's service."""
        self.environment.call(self, endpoint, data)


class Quorum(Hosts):
    """The members and their links. ``changed`` is called once per change."""

    def __init__(self, world: World, case: Case, schedule: Schedule, changed: Changed, trace: SimTrace) -> None:
        def report(now: int, where: str, what: str) -> None:
            world.happened(where.partition(":")[0], what)

        super().__init__(case, ALL, report, trace if trace.is_read else None, schedule)
        self.world = world
        self.changed = changed
        self.zxid = 0
        """The latest change applied by any member."""
        self.leading: SimMember | None = None
        """The latest leader."""
        self.members = [MetadataHost(self, number, 1.0) for number in range(1, case.hosts + 1)]
        self.by_endpoint.update((member.endpoint, member) for member in self.members)
        self._calls: dict[tuple[str, str], tuple[int, int]] = {}
        """For each pair of members, the number of its connection, and the arrival time of its latest call."""
        self.join(self.members[: case.voters])

    def call(self, source: MetadataHost, endpoint: str, data: bytes) -> None:
        """Deliver a call to another member, in order, or break the connection."""
        way, dest, loop = (source.endpoint, endpoint), self.by_endpoint[endpoint], source.loop
        there = getattr(dest, "loop", None)
        number, arrives = self._calls.get(way, (0, 0))
        is_lost = way in self.network.cut or (self.network.loss and self.random() < self.network.loss / 10)
        if is_lost or not dest.alive:
            self._calls[way] = number + 1, 0
            self.schedule.after(1_000, loop.does, source.node.disconnected, endpoint)
            return
        arrives = max(arrives, self.schedule.now + 100 + int(self.random() * 900))
        self._calls[way] = number, arrives

        def arrive() -> None:
            if self._calls[way][0] != number:
                return
            if dest.loop is there and dest.alive:
                dest.loop.does(dest.node.call_received, source.key, None, data, lambda *answer: None)
            else:
                self._calls[way] = number + 1, 0
                loop.does(source.node.disconnected, endpoint)

        self.schedule.at(arrives, arrive)

    def ended(self, host: SimHost) -> None:
        """See :class:`.Hosts`."""
        self.schedule.after(int(1_000 + 400_000 * self.random() ** 2), self._start, host)

    def _start(self, host: SimHost) -> None:
        if not host.alive:
            host.start()

    def acknowledged(self, record: bytes, end_offset: int) -> None:
        """See :class:`.Hosts`."""
