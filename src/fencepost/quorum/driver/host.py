"""A host of a quorum, from its folder to a running replica: how hosts form a cluster, and how a host with an empty
folder joins one.

Each host is started with the ids and endpoints of all. An empty folder gets a new directory id at once, so the host is
a new replica. Then the host asks the others who they are:

- If one of them belongs to a cluster, the host joins it. It is a voter if its host and directory are among the voters;
  otherwise it is an observer, which an operator may make a voter.
- If none does, and all have been reached, the host with the smallest id makes the cluster, with all of them as voters.
  Only that host does it, so there is one cluster. A host without others makes its own cluster at once.

So a host that lost its disk waits while it cannot reach all others, and never makes a new cluster if one of them knows
the old one. A host without others is the exception.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fencepost.errors import SystemFailure
from fencepost.files.folders import Files
from fencepost.ledger.disk.journal import Damage
from fencepost.quorum.driver.frames import Welcome
from fencepost.quorum.driver.links import LinkError, Links, PeerTls, Respond, Return
from fencepost.quorum.driver.node import DEFAULT_LIMITS, Limits, NodeSettings, QuorumNode, StateMachine
from fencepost.quorum.files.directory import Contents, Meta, draw_id, join_cluster, open_replica, read_meta, write_meta
from fencepost.quorum.identity import Node, ReplicaKey, VoterSet
from fencepost.quorum.log import EMPTY_SNAPSHOT, OffsetAndEpoch, Snapshot
from fencepost.quorum.messages import Answer, AnyRequest, Asked
from fencepost.quorum.roles.interface import QuorumSettings
from fencepost.quorum.traces import SUBJECT, Tracer

TIMES = QuorumSettings(
    election_timeout=400_000,
    fetch_timeout=800_000,
    election_backoff=400_000,
    request_timeout=800_000,
    retry_backoff=10_000,
    fetch_max_wait=250_000,
    high_watermark_wait=5_000,
)
"""Timeouts for a quorum on one machine or in one room: a lost leader is replaced well within 2 seconds."""

ANY_PORT = "127.0.0.1:0"
"""The address of a host without an endpoint: a free port, which it then keeps."""


class QuorumHost:
    """The connections of a host, and its replica once it belongs to a cluster."""

    def __init__(
        self,
        files: Files,
        host_id: int | None,
        hosts: Mapping[int, str],
        settings: QuorumSettings = TIMES,
        limits: Limits = DEFAULT_LIMITS,
        max_frame: int = 32 << 20,
        listen: str = "",
        tls: PeerTls | None = None,
    ) -> None:
        """``host_id``: None takes that of the folder, or 1 if it is empty. ``hosts``: the endpoints of the known hosts
        by their ids, this one included; its own is empty if it knows nobody but what its folder names. ``listen``:
        where this host listens, if that is not its endpoint. ``tls``: None means no TLS.

        Raises :class:`fencepost.errors.SystemFailure` if the folder cannot be used.
        """
        if hosts and host_id not in hosts:
            raise SystemFailure(f"the host {host_id} is not among the controllers")
        self.files = files
        self.hosts = dict(hosts)
        self.settings = settings
        self.limits = limits
        self.node: QuorumNode | None = None
        try:
            self.meta = prepare(files, host_id)
        except (Damage, ValueError, OSError) as error:
            raise self._unusable(error) from error
        self.me = Node(self.meta.key, hosts.get(self.meta.key.host_id, ANY_PORT))
        self.links = Links(
            self,
            self._hello,
            max_frame=max_frame,
            max_waiting=max(128 << 20, 2 * max_frame),
            connect_timeout=settings.request_timeout / 1_000_000,
            user_timeout=max(1, 2 * settings.request_timeout // 1_000),
            tls=tls,
        )
        self._listen = listen
        self.emit: Callable[[str, str, dict[str, Any]], None] | None = None
        """Takes trace events: action, subject and fields. Set it before :meth:`begin`."""

    async def open(self) -> Contents:
        """Listen, wait until there is a cluster, and return the stored contents of this replica.

        Raises :class:`fencepost.errors.SystemFailure`.
        """
        try:
            contents = self._contents() if self.meta.cluster_id else None
            await self._open_port(contents)
            if contents is None:
                self.meta = await form(self.files, self.meta, self.me, self.hosts, self.links)
                contents = self._contents()
        except (Damage, ValueError, OSError) as error:
            raise self._unusable(error) from error
        return contents

    def _contents(self) -> Contents:
        return open_replica(self.files, self.meta, self.limits.pre_allocation)

    def _unusable(self, error: Exception) -> SystemFailure:
        where = getattr(self.files, "path", "the folder of the quorum")
        if isinstance(error, OSError) and error.strerror:
            return SystemFailure(f"{error.filename or where} cannot be used: {error.strerror}")
        return SystemFailure(f"{where} {'is damaged' if isinstance(error, Damage) else 'cannot be used'}: {error}")

    async def _open_port(self, contents: Contents | None) -> None:
        endpoint = self.me.endpoint
        if endpoint == ANY_PORT and contents is not None:
            kept = contents.index.voters.node(self.me.key)
            endpoint = endpoint if kept is None else kept.endpoint
        got = await self.links.listen(self._listen or endpoint)
        self.me = Node(self.me.key, got if endpoint == ANY_PORT else endpoint)

    def begin(self, contents: Contents, machine: StateMachine) -> QuorumNode:
        """Start the replica, with a state machine that has the state of ``contents``."""
        bootstrap = tuple(endpoint for host, endpoint in self.hosts.items() if host != self.me.key.host_id)
        settings = NodeSettings(replica=self.settings, limits=self.limits, bootstrap=bootstrap)
        self.node = QuorumNode(self.files, contents, self.me, self.links, machine, settings, self._tracer())
        self.node.start()
        return self.node

    def _tracer(self) -> Tracer | None:
        emit, subject = self.emit, f"{SUBJECT}{self.meta.cluster_id}"
        if emit is None:
            return None
        return Tracer(self.me.key, lambda action, fields: emit(action, subject, fields))

    async def ask_leader(self, request: AnyRequest) -> Answer:
        """Send a request to the leader, perhaps this replica itself. The answer may be that it does not lead any more.

        Raises :class:`fencepost.quorum.driver.links.LinkError` if no leader is known, or the connection breaks.
        """
        node = self.node
        if node is None or node.stopped:
            raise LinkError("the replica takes no part")
        leader = node.leader
        if leader is None:
            raise LinkError("no leader is known")
        return await self.links.ask(leader.endpoint, request)

    async def close(self) -> None:
        """Stop."""
        try:
            if self.node is not None:
                await self.node.stop()
        finally:
            await self.links.close()

    # -- callbacks of connections --------------------------------------------------------------------------------------

    def _hello(self) -> tuple[str | None, ReplicaKey | None]:
        return (self.meta.cluster_id, self.meta.key) if self.meta.cluster_id else (None, None)

    def welcome(self) -> Welcome:
        """See :class:`fencepost.quorum.driver.links.Handler`."""
        return Welcome(self.me, self.meta.cluster_id) if self.node is None else self.node.welcome()

    def request_received(self, request: Asked, respond: Respond) -> None:
        """A request came. It stays unanswered until the replica has started."""
        if self.node is not None:
            self.node.request_received(request, respond)

    def response_received(self, response: Answer) -> None:
        """A response came."""
        if self.node is not None:
            self.node.response_received(response)

    def call_received(self, source: ReplicaKey, link: object, data: bytes, answer: Return) -> None:
        """A call came."""
        if self.node is not None:
            self.node.call_received(source, link, data, answer)
        else:
            answer(b"", "the replica takes no part yet")

    def disconnected(self, endpoint: str) -> None:
        """A connection is gone."""
        if self.node is not None:
            self.node.disconnected(endpoint)


_logger = logging.getLogger(__name__)

_RETRY_PAUSE = 0.1
"""Seconds before the others are asked again."""
_REMINDER = 100
"""Rounds between two log lines about hosts that do not answer."""


def prepare(files: Files, host_id: int | None) -> Meta:
    """The identity of a folder. An empty one becomes a new replica of ``host_id``, or of host 1.

    Raises :class:`fencepost.ledger.disk.journal.Damage`, and ``ValueError`` if it belongs to another host.
    """
    meta = read_meta(files)
    if meta is None:
        meta = Meta(ReplicaKey(1 if host_id is None else host_id, draw_id()))
        write_meta(files, meta)
    if host_id is not None and meta.key.host_id != host_id:
        raise ValueError(f"the folder is that of the host {meta.key.host_id}, and not of {host_id}")
    return meta


async def form(files: Files, meta: Meta, me: Node, hosts: Mapping[int, str], links: Links) -> Meta:
    """Wait until this replica belongs to a cluster, and create its files.

    ``hosts``: the endpoints of all hosts by their ids, this one included. Raises :class:`ValueError` if another host
    answers at one of them.
    """
    others = {host: endpoint for host, endpoint in hosts.items() if host != me.key.host_id}
    rounds = 0
    while True:
        answers = await asyncio.gather(*(_who(links, each) for each in others.values()))
        welcomes = dict(zip(others, answers, strict=True))
        cluster = next((each for each in welcomes.values() if each is not None and each.cluster_id), None)
        if cluster is not None:
            return _join(files, meta, cluster)
        reached = [each for each in welcomes.values() if each is not None]
        for host, each in welcomes.items():
            if each is not None and each.node.key.host_id != host:
                raise ValueError(f"{others[host]} is the host {each.node.key.host_id}, and not {host}")
        if len(reached) == len(others) and all(me.key.host_id < host for host in others):
            return _make(files, meta, VoterSet.of([me, *(each.node for each in reached)]))
        if rounds % _REMINDER == _REMINDER - 1:
            missing = [others[host] for host, each in welcomes.items() if each is None]
            wanted = (
                f"waits for {', '.join(missing)}" if missing else f"waits for host {min(hosts)} to make the cluster"
            )
            _logger.warning("%s belongs to no cluster yet: it %s", me, wanted)
        rounds += 1
        await asyncio.sleep(_RETRY_PAUSE)


async def _who(links: Links, endpoint: str) -> Welcome | None:
    try:
        return await links.identify(endpoint)
    except LinkError:
        return None
    finally:
        links.forget(endpoint)


def _join(files: Files, meta: Meta, cluster: Welcome) -> Meta:
    joined = replace(meta, cluster_id=cluster.cluster_id)
    is_voter = meta.key in cluster.voters
    snapshot = Snapshot(OffsetAndEpoch(0, 0), cluster.voters) if is_voter else EMPTY_SNAPSHOT
    join_cluster(files, joined, snapshot)
    _logger.warning(
        "%s joins the cluster %s as %s", meta.key, joined.cluster_id, "a voter" if is_voter else "an observer"
    )
    return joined


def _make(files: Files, meta: Meta, voters: VoterSet) -> Meta:
    made = replace(meta, cluster_id=draw_id())
    join_cluster(files, made, Snapshot(OffsetAndEpoch(0, 0), voters))
    level = logging.WARNING if len(voters) > 1 else logging.INFO
    _logger.log(level, "%s makes the cluster %s of %s", meta.key, made.cluster_id, ", ".join(map(str, voters.nodes)))
    return made
