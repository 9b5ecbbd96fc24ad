"""The messages of replicas and administrators: Kafka's requests of KIP-595, KIP-853 and KIP-996, for a single log.

Every response has the epoch of the answering replica and the leader that it knows, so both sides learn the latest
epoch. A response names its subject, so it needs no request number. A late response, or one to a request from before a
restart, either is still valid or does not match.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import msgspec

from fencepost.quorum.identity import Count, KnownCount, Node, ReplicaKey
from fencepost.quorum.log import Batch, OffsetAndEpoch
from fencepost.quorum.rules import Error


class Request(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A request to a replica."""

    @property
    def author(self) -> ReplicaKey | None:
        """The replica that sent it, by its own account; None if anybody may send it."""
        author = _AUTHORS.get(type(self))
        return None if author is None else author(self)


class Response(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A response of the replica ``source``: its epoch, and the leader of that epoch if it knows it.

    All other fields are valid only if ``error`` is NONE.
    """

    source: ReplicaKey
    epoch: Count
    leader: Node | None
    error: Error


# -- elections --------------------------------------------------------------------------------------------------------


class Vote(Request, frozen=True, gc=False):
    """Requests a vote. ``log_end``: the end of the candidate's log.

    ``voter``: the replica that should answer; one with another directory must not. ``pre_vote``: asks only whether it
    would vote (KIP-996); then ``epoch`` is the candidate's current epoch, and otherwise the epoch that it wants to
    lead.
    """

    epoch: Count
    candidate: ReplicaKey
    voter: ReplicaKey
    log_end: OffsetAndEpoch
    pre_vote: bool = False


class VoteResponse(Response, frozen=True, gc=False):
    """Whether the vote is granted, in the epoch of the response. A pre-vote is not binding."""

    granted: bool = False
    pre_vote: bool = False


class BeginQuorum(Request, frozen=True, gc=False):
    """The sender leads this epoch. Repeated until the voter has answered or fetched."""

    epoch: Count
    leader: Node
    voter: ReplicaKey


class BeginQuorumResponse(Response, frozen=True, gc=False):
    """The request was received."""


class EndQuorum(Request, frozen=True, gc=False):
    """The sender has resigned from this epoch. ``successors``: the other voters, longest log first."""

    epoch: Count
    leader: ReplicaKey
    successors: tuple[ReplicaKey, ...]


class EndQuorumResponse(Response, frozen=True, gc=False):
    """The request was received."""


# -- replication ------------------------------------------------------------------------------------------------------


class Fetch(Request, frozen=True, gc=False):
    """Requests what follows ``log_end``. The sender has stored everything before it durably.

    ``epoch``: the sender's epoch. ``high_watermark``: the one that it knows. The leader answers at once if it has a
    later one, and otherwise waits a while for news (KIP-1166).
    """

    epoch: Count
    replica: ReplicaKey
    log_end: OffsetAndEpoch
    high_watermark: KnownCount = 0


class FetchResponse(Response, frozen=True, gc=False):
    """One of three answers. ``batches`` (perhaps none) follow ``log_end`` of the request. ``diverging`` is the last
    place at which the logs may agree; the follower truncates its log to it. ``snapshot`` is the id of the snapshot to
    fetch, since the leader's log starts too late.

    ``high_watermark``: everything before it is committed; -1 if the leader does not know it yet.
    """

    log_end: OffsetAndEpoch = OffsetAndEpoch(0, 0)
    high_watermark: KnownCount = -1
    batches: tuple[Batch, ...] = ()
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None


class FetchSnapshot(Request, frozen=True, gc=False):
    """Requests bytes of a snapshot from ``position`` on."""

    epoch: Count
    replica: ReplicaKey
    snapshot: OffsetAndEpoch
    position: Count


class FetchSnapshotResponse(Response, frozen=True, gc=False):
    """Bytes of a snapshot from ``position`` on. ``size`` is the size of the whole snapshot."""

    snapshot: OffsetAndEpoch = OffsetAndEpoch(0, 0)
    size: Count = 0
    position: Count = 0
    data: bytes = b""


# -- reconfiguration --------------------------------------------------------------------------------------------------


class AddVoter(Request, frozen=True, gc=False):
    """Make a replica a voter; sent by the replica itself or an administrator. ``when_committed``: answer when the
    change is committed, instead of at once (KIP-1186).
    """

    voter: Node
    when_committed: bool = True


class AddVoterResponse(Response, frozen=True, gc=False):
    """The change is done, or the error. After NOT_LEADER, ask ``leader``; after RECONFIG_IN_PROGRESS, LEADER_NOT_READY
    or NOT_CAUGHT_UP, retry later.
    """

    voter: ReplicaKey | None = None


class RemoveVoter(Request, frozen=True, gc=False):
    """Remove a voter, perhaps the leader itself."""

    voter: ReplicaKey
    when_committed: bool = True


class RemoveVoterResponse(Response, frozen=True, gc=False):
    """The change is done, or the error."""

    voter: ReplicaKey | None = None


class UpdateVoter(Request, frozen=True, gc=False):
    """A voter reports that its endpoint differs from the one in the configuration. ``epoch``: the epoch in which it
    follows the leader.
    """

    epoch: Count
    voter: Node


class UpdateVoterResponse(Response, frozen=True, gc=False):
    """The leader has recorded the endpoint, or the error."""

    voter: ReplicaKey | None = None


class DescribeQuorum(Request, frozen=True, gc=False):
    """Requests a description of the quorum."""


class ReplicaProgress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A replica as its leader sees it. ``log_end`` is -1 if it has not fetched in this epoch; ``endpoint`` is empty for
    observers.

    Times are by the leader's clock, in milliseconds since 1970; -1 if there is none in this epoch. ``fetched_at``: its
    last fetch. ``caught_up_at``: when it last had all that the leader had then. For the leader both are now.
    """

    key: ReplicaKey
    endpoint: str
    end_offset: KnownCount
    fetched_at: KnownCount = -1
    caught_up_at: KnownCount = -1


class DescribeQuorumResponse(Response, frozen=True, gc=False):
    """The quorum as its leader sees it."""

    high_watermark: KnownCount = -1
    voters: tuple[ReplicaProgress, ...] = ()
    observers: tuple[ReplicaProgress, ...] = ()


# -- backups ----------------------------------------------------------------------------------------------------------


class TakeSnapshot(Request, frozen=True, gc=False):
    """An operator wants a snapshot that has everything acknowledged so far. The leader commits a record first, so a
    leader that has been replaced without its knowledge cannot answer.
    """


class TakeSnapshotResponse(Response, frozen=True, gc=False):
    """The snapshot is durable, or the error. After NOT_LEADER, ask ``leader``."""

    snapshot: OffsetAndEpoch = OffsetAndEpoch(0, 0)


class ReadSnapshot(Request, frozen=True, gc=False):
    """An operator wants bytes of a snapshot from ``position`` on. The answer is a :class:`FetchSnapshotResponse`."""

    snapshot: OffsetAndEpoch
    position: Count


_AUTHORS: dict[type[Request], Callable[[Request], ReplicaKey]] = {
    Vote: attrgetter("candidate"),
    BeginQuorum: attrgetter("leader.key"),
    EndQuorum: attrgetter("leader"),
    Fetch: attrgetter("replica"),
    FetchSnapshot: attrgetter("replica"),
    UpdateVoter: attrgetter("voter.key"),
}

AnyRequest = (
    Vote | BeginQuorum | EndQuorum | Fetch | FetchSnapshot | AddVoter | RemoveVoter | UpdateVoter | DescribeQuorum
)
AnyResponse = (
    VoteResponse
    | BeginQuorumResponse
    | EndQuorumResponse
    | FetchResponse
    | FetchSnapshotResponse
    | AddVoterResponse
    | RemoveVoterResponse
    | UpdateVoterResponse
    | DescribeQuorumResponse
)
"""For decoders: ``msgspec.msgpack.Decoder(AnyRequest)`` decodes any of the requests, ``AnyResponse`` any response."""

Asked = AnyRequest | TakeSnapshot | ReadSnapshot
"""All requests: those of the role, and those that its driver answers."""
Answer = AnyResponse | TakeSnapshotResponse
"""All responses."""
