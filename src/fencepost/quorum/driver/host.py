"""A host of a quorum, from its folder to a replica that takes part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fencepost.errors import SystemFailure
from fencepost.quorum.driver.formation import form, prepare
from fencepost.quorum.driver.frames import Welcome
from fencepost.quorum.driver.links import Links, Respond, Return
from fencepost.quorum.driver.node import DEFAULT_LIMITS, Limits, QuorumNode, StateMachine
from fencepost.quorum.files.directory import Contents, open_replica
from fencepost.quorum.identity import Node, ReplicaKey
from fencepost.quorum.log import OffsetAndEpoch
from fencepost.quorum.messages import AnyRequest, AnyResponse
from fencepost.quorum.roles.interface import Settings
from fencepost.quorum.traces import SUBJECT, Tracer
from fencepost.store.disk.files import Files
from fencepost.store.disk.journal import Damage

TIMES = Settings(
    election_timeout=400_000,
    fetch_timeout=800_000,
    election_backoff=400_000,
    request_timeout=800_000,
    retry_backoff=10_000,
    fetch_max_wait=250_000,
)
"""Times of a quorum on one machine or in one room: a leader that is gone is followed by another well within 2 seconds."""

First = tuple[OffsetAndEpoch, Iterable[Sequence[bytes]]]


class QuorumHost:
    """The connections of a host, and its replica once it belongs to a cluster."""

    def __init__(
        self,
        files: Files,
        host_id: int,
        hosts: Mapping[int, str],
        settings: Settings = TIMES,
        limits: Limits = DEFAULT_LIMITS,
        max_frame: int = 32 << 20,
        listen: str = "",
        emit: Callable[[str, str, dict[str, Any]], None] | None = None,
    ) -> None:
        """``hosts``: the endpoints of the hosts that are known, by their ids, with this one's. ``listen``: where this
        one listens, if that is not its endpoint. ``emit`` takes the events of a trace: action, subject and parameters.

        Raises :class:`fencepost.errors.SystemFailure` if the folder can not be used.
        """
        if host_id not in hosts:
            raise SystemFailure(f"the host {host_id} is not among the controllers")
        self.files = files
        self.hosts = dict(hosts)
        self.settings = settings
        self.limits = limits
        self.node: QuorumNode | None = None
        try:
            self.meta = prepare(files, host_id)
        except (Damage, ValueError, OSError) as error:
            raise SystemFailure(f"the folder of the quorum can not be used: {error}") from error
        self.me = Node(self.meta.key, hosts[host_id])
        self.links = Links(
            self,
            self._hello,
            max_frame=max_frame,
            max_waiting=max(128 << 20, 2 * max_frame),
            connect_timeout=settings.request_timeout / 1_000_000,
            user_timeout=max(1, 2 * settings.request_timeout // 1_000),
        )
        self._listen = listen
        self._emit = emit

    async def open(self, first: Callable[[], First | None] = lambda: None) -> Contents:
        """Listen, and wait until there is a cluster: what this replica has kept. ``first``: what it begins with if it
        makes a cluster.

        Raises :class:`fencepost.errors.SystemFailure`.
        """
        await self.links.listen(self._listen or self.me.endpoint)
        try:
            if not self.meta.cluster_id:
                self.meta = await form(self.files, self.meta, self.me, self.hosts, self.links, first())
            return open_replica(self.files, self.meta)
        except (Damage, ValueError, OSError) as error:
            raise SystemFailure(f"the folder of the quorum can not be used: {error}") from error

    def begin(self, contents: Contents, machine: StateMachine) -> QuorumNode:
        """Take part, with a state machine that has the state of ``contents``."""
        bootstrap = [endpoint for host, endpoint in self.hosts.items() if host != self.me.key.host_id]
        self.node = QuorumNode(
            self.files, contents, self.me, self.links, machine, self.settings, self.limits, bootstrap, tracer=self._tracer()
        )
        self.node.start()
        return self.node

    def _tracer(self) -> Tracer | None:
        emit, subject = self._emit, f"{SUBJECT}{self.meta.cluster_id}"
        if emit is None:
            return None
        return Tracer(self.me.key, lambda action, fields: emit(action, subject, fields))

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
