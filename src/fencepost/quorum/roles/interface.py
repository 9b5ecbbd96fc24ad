"""The events of a replica, which happen to it, and its effects, which are to be carried out.

The driver of a replica gives it events one at a time, in the order in which they happen, and carries its effects out
**in the order in which they are given, over all calls**. Five rules are what durability rests on:

1. *Epoch and vote before anything else.* After a :class:`StoreState` nothing that comes behind it, in this list or in a
   later one, is carried out before the state is durable. So no vote, no request and no batch of an epoch leaves a
   replica that could forget that epoch. (Elections are rare: a driver may simply block.) If it cannot be stored, the
   replica must stop.
2. *The log is written in order.* :class:`Append`, :class:`Truncate`, :class:`DeleteBefore` and
   :class:`InstallSnapshot` take effect on the disk in their order: if an append is durable, so is every truncation and
   append before it, and nothing is deleted that a truncation which is not durable has to cut off. Appends need not be
   durable one by one: the driver syncs a group of them, and says so by :class:`Stored`.
3. *A follower acknowledges by its next fetch*, which the role sends only when :class:`Stored` has come for all that it
   has. So a fetch offset is durable.
4. *The leader counts itself only up to what is stored.* It sends batches to followers before they are durable with
   itself, since the others may be a majority without it; what it has lost in a crash, it fetches.
5. *What is committed may be ahead of what this replica has stored.* :class:`Commit` says what the state machine may
   apply. A snapshot can be ahead of the stored log therefore: see :class:`Started`.

A failed or short write or sync of any of these stops the replica for good (it is never tried again): it must not go on
with what may never become durable.
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
    """Something that happened."""


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Something to be done."""


class QuorumSettings(msgspec.Struct, frozen=True, gc=False):
    """Times in microseconds, and what a replica does of itself. Names and meanings are those of Kafka's
    ``controller.quorum.*``.

    ``election_timeout``: how long a voter waits for a leader or for votes, up to twice as long. ``fetch_timeout``: how
    long a follower goes without an answer of its leader; a leader resigns when 1.5 times that has passed without
    fetches by a majority. ``election_backoff``: the longest wait after a lost election. ``request_timeout``: how long
    an answer is waited for. ``retry_backoff``: how long after a request failed it is sent again. ``fetch_max_wait``:
    how long a leader keeps a fetch for which it has nothing; well below ``fetch_timeout``. ``high_watermark_wait``: how
    long it keeps a fetch for which it has nothing but another high watermark, unless that is wanted, see
    :class:`SendHighWatermark`; the next records bring it, too. ``records_kept``: how many records ahead of a snapshot
    stay in the log. ``begin_quorum_needs_voter``: an observer does not follow a leader that presents itself; it finds
    it. ``auto_join``: an observer that has caught up asks to be made a voter, every ``join_retry``; as often, a voter
    that is reached elsewhere than the voters say tells where.
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
    """The state that a replica may never forget: its epoch, its vote in that epoch, and the leader of the epoch, if it
    knew one."""

    epoch: int = 0
    voted: ReplicaKey | None = None
    leader: Node | None = None


class Trace(Effect, frozen=True, gc=False):
    """Write to the trace that the role has done something, at the place among its effects where it has.

    ``action`` is the name of the step in the protocol `running-quorum`; see docs/hold/traces.md for the fields. Roles
    have this effect only if they are made with ``traces``.
    """

    action: str
    fields: dict[str, Any]


# -- start and resignation -------------------------------------------------------------------------------------------


class Started(Event, frozen=True, gc=False):
    """The process has begun; comes first. ``election`` is what was last stored, ``ElectionState()`` if nothing was.
    ``log`` is from now on the role's.

    The snapshot of ``log`` is the latest durable one. If the log in the files does not reach its end (the replica
    crashed after it had applied more than it had stored, or between the installation of a fetched snapshot and the
    removal of the old log) the driver removes the whole log and begins the index at the end of the snapshot. A cluster
    begins with voters who have the snapshot at (0, 0) with all of them in it; an observer begins with the empty one.
    """

    election: ElectionState
    log: LogIndex


class Resign(Event, frozen=True, gc=False):
    """The replica is about to be stopped: a leader resigns, and tells the others (EndQuorum), the one with the longest
    log first."""


# -- other replicas ---------------------------------------------------------------------------------------------------


class Send(Effect, frozen=True, gc=False):
    """Send a request to the replica at an endpoint (``host:port``), over a connection that is opened if there is none.

    At most one :class:`ResponseReceived` comes of it. The role repeats what needs to be repeated: a driver that cannot
    send it drops it, and says so by :class:`Disconnected`.
    """

    endpoint: str
    request: Request


class ResponseReceived(Event, frozen=True, gc=False):
    """A replica answered a request of this process, be it late."""

    response: Response


class Disconnected(Event, frozen=True, gc=False):
    """The connection to an endpoint broke or could not be opened: what was sent to it since the last answer may not
    have come, or not be answered."""

    endpoint: str


class RequestReceived(Event, frozen=True, gc=False):
    """A request came, from another replica or an administrator. ``connection`` is the driver's number for where the
    answer goes.

    Each request has a number of its own. It is answered exactly once, at once or later, unless the replica stops.
    """

    connection: int
    request: Request


class Reply(Effect, frozen=True, gc=False):
    """Answer a request; nothing happens if whoever sent it is gone."""

    connection: int
    response: Response


class ReplyWithBatches(Effect, frozen=True, gc=False):
    """Answer a fetch with ``response``, its ``batches`` being those from ``response.log_end.offset`` on: at least one,
    and more up to the limits of the driver.

    The batches are those in the log at this place among the effects, whether or not they are durable here.
    """

    connection: int
    response: FetchResponse


class ReplyWithSnapshot(Effect, frozen=True, gc=False):
    """Answer the fetch of a snapshot with ``response``, its ``size`` and ``data`` taken from the snapshot at
    ``response.position``, up to the limits of the driver; with SNAPSHOT_NOT_FOUND if there is none any more, or
    POSITION_OUT_OF_RANGE."""

    connection: int
    response: FetchSnapshotResponse


# -- timers -----------------------------------------------------------------------------------------------------------


class Timer(enum.Enum):
    """The kinds of timers, by the event that they wait for; there is at most one timer of a kind."""

    ELECTION = "election"
    """A voter waits for a leader, a vote, or for its next attempt."""
    FETCH = "fetch"
    """A follower waits for its leader."""
    RETRY = "retry"
    """A replica that fetches waits for an answer, or until it asks again."""
    VOTE_RETRY = "vote retry"
    """A candidate asks those again that have not answered; a resigned leader tells them again that it has resigned."""
    CHECK_QUORUM = "check quorum"
    """A leader looks whether a majority fetches."""
    BEGIN_QUORUM = "begin quorum"
    """A leader tells those voters that it leads which do not fetch."""
    WAITING_FETCHES = "waiting fetches"
    """A leader answers the fetches for which it has nothing new."""
    HIGH_WATERMARK = "high watermark"
    """A leader answers those for which it has nothing new but its high watermark."""
    JOIN = "join"
    """An observer asks to be made a voter; a voter that is reached elsewhere than the voters say tells where."""


class SetTimer(Effect, frozen=True, gc=False):
    """Give back ``timer`` as a :class:`TimerFired` after at least ``at_least`` and at most ``at_most`` microseconds, as
    the driver draws: evenly, and anew each time. It replaces the timer of this kind, which does not fire any more."""

    timer: Timer
    at_least: int
    at_most: int


class CancelTimer(Effect, frozen=True, gc=False):
    """A timer is not to fire; nothing happens if it is not set."""

    timer: Timer


class TimerFired(Event, frozen=True, gc=False):
    """The time of a timer has come."""

    timer: Timer


# -- files ------------------------------------------------------------------------------------------------------------


class StoreState(Effect, frozen=True, gc=False):
    """Replace the stored election state, durably, before anything else is done: see the first rule above. There is no
    event when it is done."""

    election: ElectionState


class Append(Effect, frozen=True, gc=False):
    """Add batches to the log. They can be read at once; a :class:`Stored` is to come when they are durable."""

    batches: tuple[Batch, ...]


class Truncate(Effect, frozen=True, gc=False):
    """Cut off all records from an offset on. What is cut off was never committed, so the state machine has not seen
    it."""

    end_offset: int


class Stored(Event, frozen=True, gc=False):
    """All of the log ahead of ``end.offset`` is durable, where ``end.epoch`` is the epoch of the last record ahead of
    it.

    It is said of the log as it is now: if some of what was synced has been cut off since the sync began, only of what
    is left. After an :class:`Append` or a :class:`Truncate` one comes at last that reaches the end of the log as it is
    then, unless that was said before. By the epoch the role makes sure of what is meant.
    """

    end: OffsetAndEpoch


class SnapshotTaken(Event, frozen=True, gc=False):
    """The state machine of this replica has made a snapshot of what it has applied, and it is durable.

    It ends where a :class:`Commit` did, so at the end of a batch. Its voters are
    ``LogIndex.configuration_at(end.offset)``, asked when that commit is carried out.
    """

    snapshot: Snapshot


class DeleteBefore(Effect, frozen=True, gc=False):
    """The log starts at this offset from now on: segments and older snapshots that are ahead of it may be deleted, at
    any time, or never."""

    offset: int


class WriteSnapshot(Effect, frozen=True, gc=False):
    """Write bytes of a snapshot that is being fetched, from ``position`` on; at 0 begins a new file, whatever is there.
    Need not be durable."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes


class InstallSnapshot(Effect, frozen=True, gc=False):
    """The snapshot is complete: make it durable, then drop the whole log, which starts and ends at the snapshot from
    then on, then load the snapshot into the state machine. A :class:`SnapshotInstalled` is to come."""

    snapshot: OffsetAndEpoch


class SnapshotInstalled(Event, frozen=True, gc=False):
    """A snapshot that was fetched is durable and loaded. What was wanted since, of the log, is behind it."""

    snapshot: Snapshot


class SnapshotDamaged(Event, frozen=True, gc=False):
    """A fetched snapshot cannot be read: it is fetched anew."""

    snapshot: OffsetAndEpoch


# -- the state machine and its clients --------------------------------------------------------------------------------


class Proposed(Event, frozen=True, gc=False):
    """The state machine of this replica wants records appended: an :class:`Accepted` or a :class:`Refused` with this
    ``token`` comes of it, in the same call.

    There is at least one record. Proposals that come while the disk is busy are best given together, one after another,
    and synced together.
    """

    token: int
    records: tuple[bytes, ...]


class Distrusted(Effect, frozen=True, gc=False):
    """A message came that no sound member sends. Nothing was done for it, and whoever runs this replica is to be told
    the ``reason``: a disk has forgotten something, a member is broken, or a stranger speaks."""

    reason: str


class SendHighWatermark(Event, frozen=True, gc=False):
    """A replica has clients that wait for a record which is committed by now: if this one leads, it is to send that
    replica its high watermark."""

    replica: ReplicaKey


class Accepted(Effect, frozen=True, gc=False):
    """The records are in the log of the leader, the last one ahead of ``end_offset``, in ``epoch``. They are committed
    when a :class:`Commit` reaches ``end_offset`` while the replica leads this epoch; after :class:`LostLeadership`
    nobody knows whether they will be."""

    token: int
    end_offset: int
    epoch: int


class Refused(Effect, frozen=True, gc=False):
    """The replica does not lead: NOT_LEADER."""

    token: int
    error: Error


class Commit(Effect, frozen=True, gc=False):
    """All records ahead of ``offset`` are committed: the state machine applies those that it has not applied, in order.
    It only grows while a process runs.

    Control records are for nobody but the role.
    """

    offset: int


class BecameLeader(Effect, frozen=True, gc=False):
    """This replica leads, and everything that was ever committed is committed here (its first record of the epoch is):
    after the commit ahead of this effect is applied, the state machine is up to date, and may serve."""

    epoch: int


class LostLeadership(Effect, frozen=True, gc=False):
    """This replica leads ``epoch`` no more; comes also if :class:`BecameLeader` never came."""

    epoch: int


class LeaderChanged(Effect, frozen=True, gc=False):
    """The leader of the epoch that this replica is in, as far as it knows: where to send what only a leader can do.
    None: nobody is known to lead."""

    epoch: int
    leader: Node | None


class VotersChanged(Effect, frozen=True, gc=False):
    """The configuration that this replica goes by has changed; it may change back. ``is_voter``: whether the replica is
    in it."""

    is_voter: bool
