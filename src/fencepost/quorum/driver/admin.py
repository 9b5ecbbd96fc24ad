"""Operators' requests to a quorum: describe it, add a voter or remove one, and take a snapshot of its state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fencepost.connections.tls import Tls
from fencepost.errors import SystemFailure
from fencepost.quorum import messages
from fencepost.quorum.driver.frames import Welcome
from fencepost.quorum.driver.links import LinkError, Links, PeerTls, Respond, Return
from fencepost.quorum.identity import Node, ReplicaKey
from fencepost.quorum.log import OffsetAndEpoch
from fencepost.quorum.rules import PASSING, Error

R = TypeVar("R")

REPORT_AFTER = 1.0
"""Seconds without success after which the operator sees the reason."""

RETRY_PAUSE = 0.1
"""Seconds before a request is repeated that cannot be done yet."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Taken:
    """A snapshot: the cluster that it is of, the replica that took it, and its place in the log."""

    cluster_id: str
    source: Node
    end: OffsetAndEpoch


class Administrator:
    """Sends requests to the leader, for at most ``patience`` seconds. Any member knows the leader's endpoint.

    Methods raise :class:`fencepost.errors.SystemFailure`.
    """

    def __init__(self, endpoints: Sequence[str], patience: float = 30.0, tls: Tls | None = None) -> None:
        self.endpoints = list(endpoints)
        self.patience = patience
        self.links = Links(self, lambda: (None, None), connect_timeout=2.0, tls=None if tls is None else PeerTls(tls))
        self._problem = "nobody answers"

    async def describe(self) -> tuple[str, messages.DescribeQuorumResponse]:
        """The id of the cluster, and the quorum as its leader sees it."""
        endpoint, response = await self._ask(messages.DescribeQuorum(), messages.DescribeQuorumResponse)
        return (await self._who(endpoint)).cluster_id, response

    async def add(self, endpoint: str) -> Node:
        """Make the replica that listens at an endpoint a voter."""
        welcome = await self._who(endpoint)
        if not welcome.cluster_id:
            raise SystemFailure(f"{endpoint} belongs to no cluster yet: start it with the controllers of this one")
        cluster_id, _ = await self.describe()
        if welcome.cluster_id != cluster_id:
            raise SystemFailure(f"{endpoint} belongs to the cluster {welcome.cluster_id}, and not to {cluster_id}")
        await self._ask(messages.AddVoter(welcome.node), messages.AddVoterResponse)
        return welcome.node

    async def remove(self, host_id: int, directory_id: str = "") -> ReplicaKey:
        """Remove the voter of a host, and of a directory if that is given."""
        _, quorum = await self.describe()
        keys = [each.key for each in quorum.voters if each.key.host_id == host_id]
        if not keys or directory_id not in ("", keys[0].directory_id):
            voters = ", ".join(str(each.key) for each in quorum.voters)
            raise SystemFailure(f"{host_id}{directory_id and '-' + directory_id} is no voter: {voters} are")
        await self._ask(messages.RemoveVoter(keys[0]), messages.RemoveVoterResponse)
        return keys[0]

    async def take_snapshot(self, write: Callable[[bytes], None], progress: Callable[[int, int], None]) -> Taken:
        """Have the leader take a snapshot with everything acknowledged so far, and write its bytes, in order.
        ``progress``: called with the bytes so far, and their number.
        """
        endpoint, taken = await self._ask(messages.TakeSnapshot(), messages.TakeSnapshotResponse)
        cluster_id = (await self._who(endpoint)).cluster_id
        position, size = 0, 1
        while position < size:
            request = messages.ReadSnapshot(taken.snapshot, position)
            try:
                async with asyncio.timeout(self.patience):
                    piece = await self.links.ask(endpoint, request)
            except (LinkError, TimeoutError) as error:
                reason = str(error) or f"no answer within {self.patience:g} seconds"
                raise SystemFailure(f"{endpoint} does not send the snapshot to its end: {reason}") from error
            if not isinstance(piece, messages.FetchSnapshotResponse) or piece.error is not Error.NONE or not piece.data:
                raise SystemFailure(f"{endpoint} does not send the snapshot to its end: {piece.error.value}")
            await asyncio.to_thread(write, piece.data)
            position, size = position + len(piece.data), piece.size
            progress(position, size)
        return Taken(cluster_id, Node(taken.source, endpoint), taken.snapshot)

    async def close(self) -> None:
        """Close all connections."""
        await self.links.close()

    async def _who(self, endpoint: str) -> Welcome:
        try:
            return await self.links.identify(endpoint)
        except LinkError as error:
            raise SystemFailure(f"no replica of a quorum answers: {error}") from error

    async def _ask(self, request: messages.Asked, kind: type[R]) -> tuple[str, R]:
        """Send a request to the leader, repeatedly while it cannot be done yet. Returns the endpoint that answered, and
        the answer.
        """
        report = asyncio.get_running_loop().call_later(REPORT_AFTER, self._report_problem)
        try:
            async with asyncio.timeout(self.patience):
                while True:
                    for endpoint in self.endpoints:
                        answer = await self._ask_one(endpoint, request)
                        if answer is not None and answer.error is Error.NOT_LEADER and answer.leader is not None:
                            endpoint = answer.leader.endpoint
                            answer = await self._ask_one(endpoint, request)
                        if isinstance(answer, kind) and answer.error is Error.NONE:  # type: ignore[attr-defined]
                            return endpoint, answer
                        if answer is None:
                            continue
                        self._problem = answer.error.value
                        if answer.error not in (*PASSING, Error.NOT_LEADER):
                            raise SystemFailure(f"the quorum refuses: {answer.error.value}")
                    await asyncio.sleep(RETRY_PAUSE)
        except TimeoutError as error:
            raise SystemFailure(f"{self.patience:g} seconds were not enough: {self._problem}") from error
        finally:
            report.cancel()

    def _report_problem(self) -> None:
        _logger.warning("not done yet: %s; trying for %g s more", self._problem, self.patience - REPORT_AFTER)

    async def _ask_one(self, endpoint: str, request: messages.Asked) -> messages.Answer | None:
        try:
            return await self.links.ask(endpoint, request)
        except LinkError as error:
            self._problem = str(error)
            return None

    # -- callbacks without use: nobody connects to an administrator ----------------------------------------------------

    def welcome(self) -> Welcome:
        """Never called."""
        return Welcome(Node(ReplicaKey(-1, ""), ""))

    def request_received(self, request: messages.Asked, respond: Respond) -> None:
        """Never called."""

    def response_received(self, response: messages.Answer) -> None:
        """Ignored: answers complete futures."""

    def call_received(self, source: ReplicaKey, link: object, data: bytes, answer: Return) -> None:
        """Never called."""

    def disconnected(self, endpoint: str) -> None:
        """Ignored: the connection's futures fail on their own."""
