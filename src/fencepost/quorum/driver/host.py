"""A host of a quorum, from its folder to a replica that takes part: how hosts become a cluster, and how a host with an
empty folder joins one.

Each host is started with the ids and endpoints of all. A folder that is empty gets a directory id of its own at once,
so it is another replica than any before it. Then the host asks the others who they are:

- If one of them belongs to a cluster, the host joins it: as a voter if the cluster has it among its voters, by host and
  directory; otherwise as an observer, which an operator may make a voter.
- If none of them does, all have been reached, and the host has the smallest id of all, it makes the cluster, whose
  voters are all of them. Nobody else does, so there is one. A host alone makes a cluster of itself at once.

So a host whose disk was lost never makes a cluster anew while another one is reached that knows of it, and as long as
one is not reached it waits. The exception is a host that is alone.
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
from fencepost.quorum.messages import AnyRequest, AnyResponse
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
"""Times of a quorum on one machine or in one room: a leader that is gone is followed by another well within 2
seconds.
"""

ANY_PORT = "127.0.0.1:0"
"""Where a host listens that is given no endpoint: at a port that it gets once, and keeps."""


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
        """``host_id``: None is that of the folder, or 1 if it is empty. ``hosts``: the endpoints of the hosts that are
        known, by their ids, with this one's; an empty one is that of a host which knows of nobody but what its folder
        says. ``listen``: where this one listens, if that is not its endpoint. ``tls``: without it, all is in the clear.

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
        """Takes the events of a trace, action, subject and parameters; set before it takes part."""

    async def open(self) -> Contents:
        """Listen, and wait until there is a cluster: what this replica has kept.

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
        return SystemFailure(f"{where} {'is damaged' if isinstance(error, Damage) else 'cannot be used'}: {error}")

    async def _open_port(self, contents: Contents | None) -> None:
        endpoint = self.me.endpoint
        if endpoint == ANY_PORT and contents is not None:
            kept = contents.index.voters.node(self.me.key)
            endpoint = endpoint if kept is None else kept.endpoint
        got = await self.links.listen(self._listen or endpoint)
        self.me = Node(self.me.key, got if endpoint == ANY_PORT else endpoint)

    def begin(self, contents: Contents, machine: StateMachine) -> QuorumNode:
        """Take part, with a state machine that has the state of ``contents``."""
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

    async def ask_leader(self, request: AnyRequest) -> AnyResponse:
        """Ask the leader, be it this replica. It may not lead any more, and say so.

        Raises :class:`fencepost.quorum.driver.links.LinkError` if this replica knows of none, or the connection breaks.
        """
        node = self.node
        if node is None or node.stopped:
            raise LinkError("the replica takes no part")
        leader = node.leader
        if leader is None:
            raise LinkError("no leader is known")
        return await self.links.ask(leader.endpoint, request)

    async def close(self) -> None:
        """End."""
        try:
            if self.node is not None:
                await self.node.stop()
        finally:
            await self.links.close()

    # -- what connections bring ----------------------------------------------------------------------------------------

    def _hello(self) -> tuple[str | None, ReplicaKey | None]:
        return (self.meta.cluster_id, self.meta.key) if self.meta.cluster_id else (None, None)

    def welcome(self) -> Welcome:
        """See :class:`fencepost.quorum.driver.links.Handler`."""
        return Welcome(self.me, self.meta.cluster_id) if self.node is None else self.node.welcome()

    def asked(self, request: AnyRequest, respond: Respond) -> None:
        """A request came; before the replica takes part, nobody answers."""
        if self.node is not None:
            self.node.asked(request, respond)

    def answered(self, response: AnyResponse) -> None:
        """A response came."""
        if self.node is not None:
            self.node.answered(response)

    def called(self, source: ReplicaKey, link: object, data: bytes, answer: Return) -> None:
        """A call came."""
        if self.node is not None:
            self.node.called(source, link, data, answer)
        else:
            answer(b"", "the replica takes no part yet")

    def disconnected(self, endpoint: str) -> None:
        """A connection is gone."""
        if self.node is not None:
            self.node.disconnected(endpoint)


_logger = logging.getLogger(__name__)

_AGAIN = 0.1
"""Seconds after which the others are asked again."""
_REMINDER = 100
"""Rounds after which the hosts that are waited for are logged."""


def prepare(files: Files, host_id: int | None) -> Meta:
    """The owner of a folder; an empty one becomes a new replica's, of the host 1 if no other is given. Raises
    :class:`fencepost.ledger.disk.journal.Damage`, and ``ValueError`` if it is another host's."""
    meta = read_meta(files)
    if meta is None:
        meta = Meta(ReplicaKey(1 if host_id is None else host_id, draw_id()))
        write_meta(files, meta)
    if host_id is not None and meta.key.host_id != host_id:
        raise ValueError(f"the folder is that of the host {meta.key.host_id}, and not of {host_id}")
    return meta


async def form(files: Files, meta: Meta, me: Node, hosts: Mapping[int, str], links: Links) -> Meta:
    """Wait until this replica belongs to a cluster, and make its files.

    ``hosts``: the endpoints of all by their ids, of this one, too. Raises :class:`ValueError` if one of them is of
    another host.
    """
    others = {host: endpoint for host, endpoint in hosts.items() if host != me.key.host_id}
    rounds = 0
    while True:
        found = dict(zip(others, await asyncio.gather(*(_who(links, each) for each in others.values())), strict=True))
        cluster = next((each for each in found.values() if each is not None and each.cluster_id), None)
        if cluster is not None:
            return _join(files, meta, cluster)
        reached = [each for each in found.values() if each is not None]
        for host, each in found.items():
            if each is not None and each.node.key.host_id != host:
                raise ValueError(f"{others[host]} is the host {each.node.key.host_id}, and not {host}")
        if len(reached) == len(others) and all(me.key.host_id < host for host in others):
            return _make(files, meta, VoterSet.of([me, *(each.node for each in reached)]))
        if rounds % _REMINDER == _REMINDER - 1:
            missing = [others[host] for host, each in found.items() if each is None]
            wanted = (
                f"waits for {', '.join(missing)}" if missing else f"waits for host {min(hosts)} to make the cluster"
            )
            _logger.warning("%s belongs to no cluster yet: it %s", me, wanted)
        rounds += 1
        await asyncio.sleep(_AGAIN)


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
