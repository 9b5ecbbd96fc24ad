"""The events and effects of a replica.

The driver gives events to a replica one at a time, in order. It carries out effects **in the order in which they were
returned, over all calls**. Durability rests on five rules:

1. *Epoch and vote before anything else.* After a :class:`StoreState`, the driver carries out no later effect, from this
   list or a later one, before the state is durable. So no vote, request or batch of an epoch leaves a replica that
   could forget that epoch. (Elections are rare: a driver may simply block.) If the state cannot be stored, the replica
   must stop.
2. *The log is written in order.* :class:`Append`, :class:`Truncate`, :class:`DeleteBefore` and
   :class:`InstallSnapshot` take effect on the disk in their order. If an append is durable, so are all truncations and
   appends before it. Nothing is deleted that a truncation still has to remove. The driver may sync several appends
   together, and reports it by :class:`Stored`.
3. *A follower acknowledges by its next fetch.* The role sends that only when :class:`Stored` has covered its whole log.
   So a fetch offset is durable.
4. *The leader counts itself only up to what is stored.* It sends batches to followers before they are durable locally,
   since the others may be a majority without it. What it loses in a crash, it fetches again.
5. *A commit may be ahead of the local disk.* :class:`Commit` says what the state machine may apply. So a snapshot can
   be ahead of the stored log: see :class:`Started`.

If any such write or sync fails or is short, the replica stops permanently. It is never retried: the replica must not go
on with data that may never become durable.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from fencepost.quorum.identity import Node, ReplicaKey
from fencepost.quorum.log import Batch, LogIndex, OffsetAndEpoch, Snapshot
from fencepost.quorum.messages import (
    FetchResponse,
    FetchSnapshotResponse,
    Request,
    Response,
)
from fencepost.quorum.rules import Error


class Event(msgspec.Struct, frozen=True, gc=False):
    """An event, the input of a role."""


class Effect(msgspec.Struct, frozen=True, gc=False):
    """An effect, for the driver to carry out."""


class QuorumSettings(msgspec.Struct, frozen=True, gc=False):
    """Settings of a replica. Times are in microseconds. Names and meanings are those of Kafka's
    ``controller.quorum.*``.

    ``election_timeout``: a voter waits for a leader or for votes between one and two times this long.
    ``fetch_timeout``: how long a follower waits for an answer of its leader; a leader resigns after 1.5 times that
    without fetches by a majority. ``election_backoff``: the longest wait after a lost election. ``request_timeout``:
    how long to wait for a response. ``retry_backoff``: the wait before a failed request is repeated.
    ``fetch_max_wait``: how long a leader holds a fetch without news; well below ``fetch_timeout``.
    ``high_watermark_wait``: how long it holds a fetch with no news but a high watermark, since the next records bring
    that too; see :class:`SendHighWatermark`. ``records_kept``: records before a snapshot that stay in the log.
    ``begin_quorum_needs_voter``: an observer does not follow a leader that announces itself; it finds it.
    ``auto_join``: an observer that has caught up asks to become a voter, every ``join_retry``. As often, a voter
    reports an endpoint that differs from the configuration.
    """

    election_timeout: int = 1_000_000
    fetch_timeout: int = 2_000_000
    election_backoff: int = 1_000_000
    request_timeout: int = 2_000_000
    retry_backoff: int = 20_000
    fetch_max_wait: int = 500_000
    high_watermark_wait: int = 0
    records_kept: int = 10_000
    begin_quorum_needs_voter: bool = True
    auto_join: bool = False
    join_retry: int = 1_000_000


class ElectionState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a replica must never forget: its epoch, its vote in that epoch, and the leader of the epoch, if it knew
    one.
    """

    epoch: int = 0
    voted: ReplicaKey | None = None
    leader: Node | None = None


class Trace(Effect, frozen=True, gc=False):
    """Write a step of the role to the trace. Its place among the effects matters.

    ``action`` is the step's name in the protocol `running-quorum`; docs/hold/traces.md lists the fields. Only roles
    with ``traces`` emit it.
    """

    action: str
    fields: dict[str, Any]


# -- start and resignation -------------------------------------------------------------------------------------------


class Started(Event, frozen=True, gc=False):
    """The process has begun; always the first event. ``election`` is the last stored state, or ``ElectionState()``. The
    role owns ``log`` from now on.

    The snapshot of ``log`` is the latest durable one. The stored log may end before it: the replica crashed after it
    applied more than it had stored, or while it replaced the log by a fetched snapshot. Then the driver deletes the
    whole log and starts the index at the end of the snapshot. The first voters of a cluster start with a snapshot at
    (0, 0) that names them all; an observer starts with the empty one.
    """

    election: ElectionState
    log: LogIndex


class Resign(Event, frozen=True, gc=False):
    """The replica is about to stop. A leader resigns and notifies the others (EndQuorum), the one with the longest log
    first.
    """


# -- other replicas ---------------------------------------------------------------------------------------------------


class Send(Effect, frozen=True, gc=False):
    """Send a request to an endpoint (``host:port``), over a connection that is opened if necessary.

    At most one :class:`ResponseReceived` follows. The role repeats requests, so the driver drops one that it cannot
    send, and reports :class:`Disconnected`.
    """

    endpoint: str
    request: Request


class ResponseReceived(Event, frozen=True, gc=False):
    """A replica answered a request of this process, perhaps late."""

    response: Response


class Disconnected(Event, frozen=True, gc=False):
    """The connection to an endpoint broke or could not be opened. Requests since the last answer may be lost, or stay
    unanswered.
    """

    endpoint: str


class RequestReceived(Event, frozen=True, gc=False):
    """A request came from another replica or an administrator. ``connection`` is the driver's number for the reply.

    Each request has its own number. It is answered exactly once, at once or later, unless the replica stops.
    """

    connection: int
    request: Request


class Reply(Effect, frozen=True, gc=False):
    """Answer a request. Does nothing if the requester is gone."""

    connection: int
    response: Response


class ReplyWithBatches(Effect, frozen=True, gc=False):
    """Answer a fetch with ``response`` and batches from ``response.log_end.offset`` on: at least one, and more up to
    the driver's limits.

    They are the batches in the log at this place among the effects, durable here or not.
    """

    connection: int
    response: FetchResponse


class ReplyWithSnapshot(Effect, frozen=True, gc=False):
    """Answer a fetch of a snapshot with ``response``, and ``size`` and ``data`` of the snapshot from
    ``response.position`` on, up to the driver's limits. The errors are SNAPSHOT_NOT_FOUND, if the snapshot is gone, and
    POSITION_OUT_OF_RANGE.
    """

    connection: int
    response: FetchSnapshotResponse


# -- timers -----------------------------------------------------------------------------------------------------------


class Timer(enum.Enum):
    """The kinds of timers, by what they wait for. There is at most one timer of each kind."""

    ELECTION = "election"
    """A voter waits for a leader, for votes, or for its next attempt."""
    FETCH = "fetch"
    """A follower waits for its leader."""
    RETRY = "retry"
    """A replica that fetches waits for an answer, or before its next request."""
    VOTE_RETRY = "vote retry"
    """A candidate asks voters that have not answered again; a resigned leader repeats its announcement."""
    CHECK_QUORUM = "check quorum"
    """A leader checks whether a majority fetches."""
    BEGIN_QUORUM = "begin quorum"
    """A leader announces itself to voters that do not fetch."""
    WAITING_FETCHES = "waiting fetches"
    """A leader answers the fetches that have waited without news."""
    HIGH_WATERMARK = "high watermark"
    """A leader answers fetches whose only news is the high watermark."""
    JOIN = "join"
    """An observer asks to become a voter, or a voter reports its new endpoint."""


class SetTimer(Effect, frozen=True, gc=False):
    """Give back ``timer`` as :class:`TimerFired` after a random time between ``at_least`` and ``at_most`` microseconds,
    drawn uniformly each time. It replaces the timer of this kind.
    """

    timer: Timer
    at_least: int
    at_most: int


class CancelTimer(Effect, frozen=True, gc=False):
    """Cancel a timer, if it is set."""

    timer: Timer


class TimerFired(Event, frozen=True, gc=False):
    """The time of a timer has come."""

    timer: Timer


# -- files ------------------------------------------------------------------------------------------------------------


class StoreState(Effect, frozen=True, gc=False):
    """Replace the stored election state, durably, before any other effect: see the first rule above. No event reports
    it.
    """

    election: ElectionState


class Append(Effect, frozen=True, gc=False):
    """Append batches to the log. They can be read at once; :class:`Stored` reports when they are durable."""

    batches: tuple[Batch, ...]


class Truncate(Effect, frozen=True, gc=False):
    """Remove all records from an offset on. They were never committed, so the state machine has not seen them."""

    end_offset: int


class Stored(Event, frozen=True, gc=False):
    """The log before ``end.offset`` is durable; ``end.epoch`` is the epoch of the last record before it.

    It describes the current log: records that were truncated since the sync began do not count. After an
    :class:`Append` or :class:`Truncate`, some ``Stored`` finally reaches the end of the log, unless one had already.
    The epoch lets the role check which log is meant.
    """

    end: OffsetAndEpoch


class SnapshotTaken(Event, frozen=True, gc=False):
    """The state machine has made a durable snapshot of what it has applied.

    It ends where a :class:`Commit` did, at the end of a batch. Its voters are
    ``LogIndex.configuration_at(end.offset)``, read when that commit is carried out.
    """

    snapshot: Snapshot


class DeleteBefore(Effect, frozen=True, gc=False):
    """The log starts at this offset from now on. Earlier segments and snapshots may be deleted at any time, or
    never.
    """

    offset: int


class WriteSnapshot(Effect, frozen=True, gc=False):
    """Write bytes of a snapshot that is being fetched, from ``position`` on; 0 begins a new file. Need not be
    durable.
    """

    snapshot: OffsetAndEpoch
    position: int
    data: bytes


class InstallSnapshot(Effect, frozen=True, gc=False):
    """The fetched snapshot is complete. Make it durable, drop the whole log, so that it starts and ends at the
    snapshot, and load the snapshot into the state machine. :class:`SnapshotInstalled` reports the end.
    """

    snapshot: OffsetAndEpoch


class SnapshotInstalled(Event, frozen=True, gc=False):
    """A fetched snapshot is durable and loaded. Effects on the log since then apply after it."""

    snapshot: Snapshot


class SnapshotDamaged(Event, frozen=True, gc=False):
    """A fetched snapshot cannot be read, and is fetched again."""

    snapshot: OffsetAndEpoch


# -- the state machine and its clients --------------------------------------------------------------------------------


class Proposed(Event, frozen=True, gc=False):
    """The state machine of this replica proposes records, at least one. The same call returns :class:`Accepted` or
    :class:`Refused` with this ``token``.

    Proposals that come while the disk is busy should be given one after another and synced together.
    """

    token: int
    records: tuple[bytes, ...]


class Distrusted(Effect, frozen=True, gc=False):
    """A message came that no sound member sends. It was ignored; the driver reports the ``reason`` to the operator: a
    disk lost something, a member is broken, or a stranger sent it.
    """

    reason: str


class SendHighWatermark(Event, frozen=True, gc=False):
    """A replica has clients that wait for a committed record. If this replica leads, it sends that one its high
    watermark.
    """

    replica: ReplicaKey


class Accepted(Effect, frozen=True, gc=False):
    """The records are in the leader's log, before ``end_offset``, in ``epoch``. They are committed when a
    :class:`Commit` reaches ``end_offset`` while the replica leads this epoch. After :class:`LostLeadership` their fate
    is unknown.
    """

    token: int
    end_offset: int
    epoch: int


class Refused(Effect, frozen=True, gc=False):
    """The replica does not lead, and the records are not in the log."""

    token: int
    error: Error


class Commit(Effect, frozen=True, gc=False):
    """All records before ``offset`` are committed: the state machine applies those that are new, in order. ``offset``
    only grows while a process runs.

    Control records concern only the role.
    """

    offset: int


class BecameLeader(Effect, frozen=True, gc=False):
    """This replica leads, and its first record of the epoch is committed, and so is everything that ever was. Once the
    previous commit is applied, the state machine is up to date and may serve.
    """

    epoch: int


class LostLeadership(Effect, frozen=True, gc=False):
    """This replica no longer leads ``epoch``. May come without a :class:`BecameLeader`."""

    epoch: int


class LeaderChanged(Effect, frozen=True, gc=False):
    """The leader of the replica's epoch, as far as it knows: where to send requests that only a leader can serve. None
    if it knows of none.
    """

    epoch: int
    leader: Node | None


class VotersChanged(Effect, frozen=True, gc=False):
    """The configuration in use has changed; it may change back. ``is_voter``: whether the replica is in it."""

    is_voter: bool
