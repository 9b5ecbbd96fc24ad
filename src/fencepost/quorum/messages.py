"""The messages of replicas and administrators: Kafka's requests of KIP-595, KIP-853 and KIP-996 for one log, as frozen
values.

Every response has the epoch of the replica that answers and the leader that it knows of, so each teaches the latest of
both. No response needs a number to be understood: it names its subject itself, so a response that comes late, or to a
request from before a restart, is as good as any or does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import msgspec

from fencepost.quorum.identity import Count, KnownCount, Node, ReplicaKey
from fencepost.quorum.log import Batch, OffsetAndEpoch
from fencepost.quorum.rules import Error


class Request(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """Something that is asked of a replica."""

    @property
    def author(self) -> ReplicaKey | None:
        """The replica that it says it comes from; None: anybody may ask."""
        author = _AUTHORS.get(type(self))
        return None if author is None else author(self)


class Response(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """The answer of a replica, ``source``: the epoch that it is in, and the leader of that epoch if it knows it.

    All other fields count only if ``error`` is NONE.
    """

    source: ReplicaKey
    epoch: Count
    leader: Node | None
    error: Error


# -- elections --------------------------------------------------------------------------------------------------------


class Vote(Request, frozen=True, gc=False):
    """Vote for me. ``log_end``: where the log of the candidate ends.

    ``voter`` is the replica that is asked: one with another directory must not answer in its place. ``pre_vote``: would
    you? (KIP-996.) Then ``epoch`` is the one that the candidate is in, and otherwise the one that it wants to lead.
    """

    epoch: Count
    candidate: ReplicaKey
    voter: ReplicaKey
    log_end: OffsetAndEpoch
    pre_vote: bool = False


class VoteResponse(Response, frozen=True, gc=False):
    """Whether the vote is given in the epoch of the response; a pre-vote binds nobody."""

    granted: bool = False
    pre_vote: bool = False


class BeginQuorum(Request, frozen=True, gc=False):
    """I lead this epoch. Repeated until the voter has answered or fetched."""

    epoch: Count
    leader: Node
    voter: ReplicaKey


class BeginQuorumResponse(Response, frozen=True, gc=False):
    """It is understood."""


class EndQuorum(Request, frozen=True, gc=False):
    """I do not lead this epoch any more. ``successors``: the other voters, those with the longest log first."""

    epoch: Count
    leader: ReplicaKey
    successors: tuple[ReplicaKey, ...]


class EndQuorumResponse(Response, frozen=True, gc=False):
    """It is understood."""


# -- replication ------------------------------------------------------------------------------------------------------


class Fetch(Request, frozen=True, gc=False):
    """Give me what follows ``log_end``, all of which I have stored durably.

    ``epoch`` is the one that the replica is in. ``high_watermark`` is the one that it knows: the leader answers at once
    if it has a later one, and else waits a while for something new (KIP-1166).
    """

    epoch: Count
    replica: ReplicaKey
    log_end: OffsetAndEpoch
    high_watermark: KnownCount = 0


class FetchResponse(Response, frozen=True, gc=False):
    """One of: ``batches`` (perhaps none) that follow ``log_end``, which is the request's; ``diverging``, the place up
    to which the replica may be right, from which it cuts its log off; or ``snapshot``, the id of the one that it has to
    fetch, as the log of the leader starts too late.

    ``high_watermark``: everything ahead of it is committed; -1 if the leader does not know it yet.
    """

    log_end: OffsetAndEpoch = OffsetAndEpoch(0, 0)
    high_watermark: KnownCount = -1
    batches: tuple[Batch, ...] = ()
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None


class FetchSnapshot(Request, frozen=True, gc=False):
    """Give me the bytes of a snapshot from ``position`` on."""

    epoch: Count
    replica: ReplicaKey
    snapshot: OffsetAndEpoch
    position: Count


class FetchSnapshotResponse(Response, frozen=True, gc=False):
    """Bytes of a snapshot from ``position`` on; ``size`` is that of the whole snapshot."""

    snapshot: OffsetAndEpoch = OffsetAndEpoch(0, 0)
    size: Count = 0
    position: Count = 0
    data: bytes = b""


# -- reconfiguration --------------------------------------------------------------------------------------------------


class AddVoter(Request, frozen=True, gc=False):
    """Make a replica a voter: asked by itself or by an administrator. ``when_committed``: answer when the change is
    committed, and else at once (KIP-1186)."""

    voter: Node
    when_committed: bool = True


class AddVoterResponse(Response, frozen=True, gc=False):
    """The change is done, or why not. After NOT_LEADER, ask ``leader``; after RECONFIG_IN_PROGRESS, LEADER_NOT_READY
    and NOT_CAUGHT_UP, ask again later."""

    voter: ReplicaKey | None = None


class RemoveVoter(Request, frozen=True, gc=False):
    """Make a replica a voter no more, be it the leader itself."""

    voter: ReplicaKey
    when_committed: bool = True


class RemoveVoterResponse(Response, frozen=True, gc=False):
    """The change is done, or why not."""

    voter: ReplicaKey | None = None


class UpdateVoter(Request, frozen=True, gc=False):
    """I am a voter, and reached at another endpoint than the voters say. ``epoch``: the one that I follow its leader
    in."""

    epoch: Count
    voter: Node


class UpdateVoterResponse(Response, frozen=True, gc=False):
    """The leader has written it down, or why not."""

    voter: ReplicaKey | None = None


class DescribeQuorum(Request, frozen=True, gc=False):
    """How does the quorum stand?"""


class ReplicaProgress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A replica as its leader sees it: where its log ends, -1 if it has not fetched in this epoch; ``endpoint`` is
    empty for observers.

    By the leader's clock, in milliseconds since 1970, and -1 if it has not in this epoch: ``fetched_at``, when it
    fetched last; ``caught_up_at``, when it last had all that the leader had then. For the leader itself, both are now.
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
"""For decoders: ``msgspec.msgpack.Decoder(AnyRequest)`` takes what ``msgspec.msgpack.encode`` makes of any of them."""
