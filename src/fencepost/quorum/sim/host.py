"""A host: its disk, and the process on it that carries out what the role wants done, as a driver does; and what hosts
have around them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from fencepost.quorum.identity import Node, ReplicaKey, VoterSet
from fencepost.quorum.log import EMPTY_SNAPSHOT, LeaderChange, OffsetAndEpoch, Snapshot
from fencepost.quorum.messages import AnyRequest, Request, Response, Vote, VoteResponse
from fencepost.quorum.roles.interface import (
    Accepted,
    Append,
    BecameLeader,
    CancelTimer,
    Commit,
    DeleteBefore,
    Disconnected,
    Distrusted,
    Effect,
    Event,
    InstallSnapshot,
    LeaderChanged,
    LostLeadership,
    Refused,
    Reply,
    ReplyWithBatches,
    ReplyWithSnapshot,
    RequestReceived,
    Send,
    SendHighWatermark,
    SetTimer,
    SnapshotInstalled,
    SnapshotTaken,
    Started,
    Stored,
    StoreState,
    Timer,
    TimerFired,
    Trace,
    Truncate,
    VotersChanged,
    WriteSnapshot,
)
from fencepost.quorum.roles.replica import Replica
from fencepost.quorum.rules import Error, Protections
from fencepost.quorum.sim.case import Case
from fencepost.quorum.sim.disk import SimDisk
from fencepost.quorum.sim.judge import Judge, Violation
from fencepost.quorum.traces import SUBJECT, Tracer
from fencepost.quorum.transitions import IllegalTransition
from fencepost.simulation.schedule import Schedule
from fencepost.simulation.trace import SimTrace

TRACED_AS = f"{SUBJECT}simulated"
"""The name of the quorum in traces."""

Report = Callable[[int, str, str], None]
"""Takes a step of a run: the virtual time in microseconds, where it happens, and what."""


class SnapshotFile(msgspec.Struct, frozen=True, array_like=True):
    """The contents of a simulated replica's snapshot."""

    state: bytes
    voters: VoterSet
    padding: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SnapshotFile).decode


class Environment:
    """The surroundings of the hosts of a run: the case, the time, the judge, and who hears of its steps.
    :class:`fencepost.quorum.sim.cluster.Cluster` carries messages and hears of records that are committed.
    """

    def __init__(self, case: Case, protections: Protections, report: Report | None, trace: SimTrace | None) -> None:
        self.case = case
        self.report = report
        self.trace = trace
        self.protections = protections
        self.schedule = Schedule()
        self.judge = Judge()
        self.events = self.requests = 0
        self.slow_syncs = case.slow_syncs
        self.endpoints = tuple(f"h{number}:1" for number in range(1, case.hosts + 1))
        self._directories = 0

    def empty_disk(self) -> SimDisk:
        """A disk with a directory of its own, and nothing in it."""
        self._directories += 1
        return SimDisk(f"d{self._directories}", EMPTY_SNAPSHOT)

    def happened(self, where: str, what: str) -> None:
        """Report a step, if somebody listens."""
        if self.report is not None:
            self.report(self.schedule.now, where, what)

    def send(self, source: SimHost, endpoint: str, request: Request) -> None:
        """Send a request from a host to another, which answers it or not."""
        raise NotImplementedError

    def acknowledged(self, record: bytes, end_offset: int) -> None:
        """A client hears that its record is committed."""
        raise NotImplementedError


class SimHost:
    """A host that may crash, and lose its disk. ``rate``: how many microseconds pass while its clock counts one."""

    def __init__(self, environment: Environment, host_id: int, disk: SimDisk, rate: float) -> None:
        self.environment = environment
        self.host_id = host_id
        self.endpoint = f"h{host_id}:1"
        self.disk = disk
        self.rate = rate
        self.random = Random(f"{environment.case.seed} host {host_id}").random
        self.alive = False
        self.tracer: Tracer | None = None
        self.starts = 0
        self.replica = self._new_replica()
        self._carry_out: dict[type[Effect], Callable[[Any], None]] = {
            StoreState: self._store_state,
            Append: self._append,
            Truncate: self._write,
            DeleteBefore: self._write,
            WriteSnapshot: self._write_snapshot,
            InstallSnapshot: self._install_snapshot,
            Send: self._send,
            Reply: lambda effect: self._reply(effect.connection, effect.response),
            ReplyWithBatches: self._reply_with_batches,
            ReplyWithSnapshot: self._reply_with_snapshot,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Commit: self._commit,
            Accepted: self._accepted,
            Refused: lambda effect: None,
            BecameLeader: lambda effect: None,
            LostLeadership: lambda effect: self.accepted.clear(),
            LeaderChanged: lambda effect: None,
            Distrusted: self._distrust,
            VotersChanged: lambda effect: None,
            Trace: self._trace,
        }

    # -- the process ---------------------------------------------------------------------------------------------------

    @property
    def key(self) -> ReplicaKey:
        """The replica that is on the disk."""
        return ReplicaKey(self.host_id, self.disk.directory_id)

    def _new_replica(self) -> Replica:
        case = self.environment.case
        is_traced = self.environment.trace is not None
        me = Node(self.key, self.endpoint)
        return Replica(me, case.settings, self.environment.endpoints, self.environment.protections, is_traced)

    def _new_tracer(self) -> Tracer | None:
        trace, node = self.environment.trace, self.endpoint
        if trace is None:
            return None
        trace.started(node, "replica")
        return Tracer(self.key, lambda action, fields: trace.node_did(node, action, fields, TRACED_AS))

    def start(self) -> None:
        """Begin the process with what is on the disk."""
        self.alive = True
        self.starts += 1
        self.tracer = self._new_tracer()
        self.environment.happened(self.endpoint, f"starts as {self.key}")
        self.queue: deque[Effect] = deque()
        self.blocked = self.syncing = False
        self.storing: StoreState | None = None
        self.timers: dict[Timer, int] = {}
        self.count = 0  # of timers
        self.replies: dict[int, Callable[[Response], None]] = {}
        self.candidates: dict[int, ReplicaKey] = {}  # who asks for a vote, by the number of the request
        self.accepted: dict[int, bytes] = {}  # records that are not committed yet, by the end offset
        self.proposed: dict[int, bytes] = {}  # by token
        self.partial: tuple[OffsetAndEpoch, bytes] | None = None
        try:
            log = self.disk.index()
        except ValueError as error:
            raise Violation("what is on the disk is a log", f"{self.key}: {error}") from error
        self.applied = self.disk.snapshot.end.offset
        self.state = _decode(self.disk.snapshot_data).state if self.disk.snapshot_data else b""
        self.replica = self._new_replica()
        self.deliver(Started(self.disk.election, log))

    def crash(self, *, wipe: bool = False) -> None:
        """End the process: what is not durable is lost, and (``wipe``) what is."""
        self.environment.happened(self.endpoint, f"loses its disk, with {self.key}" if wipe else "crashes")
        self.alive = False
        if self.blocked and self.storing is not None and self.random() < 0.5:
            self.disk.election = self.storing.election  # it had just been written
        self.disk.crash(lambda unsynced: int(self.random() * (unsynced + 1)))
        if wipe:
            self.disk = self.environment.empty_disk()

    def deliver(self, event: Event) -> None:
        """Something happens to the role."""
        if not self.alive:
            return
        self.environment.events += 1
        try:
            effects = self.replica.receive(event)
        except (IllegalTransition, ValueError) as error:
            raise Violation("roles do not meet what can not be", f"{type(error).__name__}: {error}") from error
        self.queue.extend(effects)
        self._drain()

    def later(self, delay: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call something after some microseconds, unless the process has ended by then."""
        start = self.starts

        def on_time() -> None:
            if self.alive and self.starts == start:
                call(*arguments)

        self.environment.schedule.after(max(1, int(delay)), on_time)

    def _drain(self) -> None:
        while self.queue and not self.blocked:
            effect = self.queue.popleft()
            if self.environment.report is not None and (step := step_of(effect)):
                self.environment.happened(self.endpoint, step)
            self._carry_out[type(effect)](effect)

    def _sync_time(self) -> float:
        time = 50 + 450 * self.random()
        if self.environment.slow_syncs and self.random() < self.environment.slow_syncs:
            time += 150_000 * self.random() ** 2
        return time

    # -- election state and log ----------------------------------------------------------------------------------------

    def _store_state(self, effect: StoreState) -> None:
        self.blocked, self.storing = True, effect
        self.later(self._sync_time(), self._state_stored, effect)

    def _state_stored(self, effect: StoreState) -> None:
        self.disk.election = effect.election
        if self.tracer is not None:
            self.tracer.stored(effect.election)
        self.blocked, self.storing = False, None
        self._drain()

    def _append(self, effect: Append) -> None:
        for batch in effect.batches:
            if isinstance(batch.control, LeaderChange) and batch.control.leader == self.key:
                self.environment.judge.leads(self.key, batch.epoch, self.disk.reading)
            self.environment.judge.appends(self.key, batch, self.disk.reading.epoch_ahead_of(batch.base_offset))
            self.disk.write(Append((batch,)))
        self._sync()

    def _write(self, effect: Truncate | DeleteBefore) -> None:
        self.disk.write(effect)
        self._sync()

    def _sync(self) -> None:
        if not self.syncing:
            self.syncing = True
            self.later(self._sync_time(), self._synced, len(self.disk.unsynced))

    def _synced(self, count: int) -> None:
        self.disk.synced(count)
        self.syncing = False
        if self.disk.unsynced:
            self._sync()
        self.deliver(Stored(self.disk.stored_end()))

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def _write_snapshot(self, effect: WriteSnapshot) -> None:
        before = b""
        if effect.position:
            if self.partial is None or self.partial[0] != effect.snapshot or len(self.partial[1]) < effect.position:
                raise Violation("snapshots are fetched in order", f"{self.key}: {effect}")
            before = self.partial[1][: effect.position]
        self.partial = effect.snapshot, before + effect.data

    def _install_snapshot(self, effect: InstallSnapshot) -> None:
        assert self.partial is not None
        data = self.partial[1]
        self.partial = None
        self.blocked = True
        self.later(self._sync_time(), self._snapshot_kept, Snapshot(effect.snapshot, _decode(data).voters), data)

    def _snapshot_kept(self, snapshot: Snapshot, data: bytes) -> None:
        self.disk.keep_snapshot(snapshot, data)
        self.later(self._sync_time(), self._log_replaced, snapshot, data)

    def _log_replaced(self, snapshot: Snapshot, data: bytes) -> None:
        self.disk.write(snapshot)
        self._sync()
        self.state, self.applied = _decode(data).state, snapshot.end.offset
        known = self.environment.judge.chained.get(self.applied)
        if known != self.state:
            raise Violation("state machines are equal", f"that of {self.key} at {self.applied}, from a snapshot")
        self.blocked = False
        self._drain()
        self.deliver(SnapshotInstalled(snapshot))

    def _snapshot_taken(self, snapshot: Snapshot, data: bytes) -> None:
        if snapshot.end.offset > self.disk.snapshot.end.offset:
            self.disk.keep_snapshot(snapshot, data)
            self.deliver(SnapshotTaken(snapshot))

    def _distrust(self, effect: Distrusted) -> None:
        raise Violation("roles do not meet what can not be", effect.reason)

    # -- traces --------------------------------------------------------------------------------------------------------

    def _trace(self, effect: Trace) -> None:
        assert self.tracer is not None
        self.tracer.did(effect)

    # -- messages ------------------------------------------------------------------------------------------------------

    def asked(self, request: AnyRequest, reply: Callable[[Response], None]) -> None:
        """A request came, which ``reply`` answers."""
        self.environment.requests += 1
        number = self.environment.requests
        self.replies[number] = reply
        if isinstance(request, Vote):
            self.candidates[number] = request.candidate
        self.deliver(RequestReceived(number, request))

    def _send(self, effect: Send) -> None:
        request = effect.request
        if self.tracer is not None:
            self.tracer.sends(request)
        if isinstance(request, Vote) and not request.pre_vote:
            self.environment.judge.votes_for(self.key, request.epoch, self.key, self.disk.election)
        self.environment.send(self, effect.endpoint, effect.request)

    def unreachable(self, endpoint: str) -> None:
        """Nobody is there."""
        self.later(200, self.deliver, Disconnected(endpoint))

    def _reply(self, connection: int, response: Response) -> None:
        reply = self.replies.pop(connection, None)
        if reply is None:
            raise Violation("requests are answered once", f"{self.key}: {response}")
        if self.tracer is not None:
            self.tracer.answers(response)
        candidate = self.candidates.pop(connection, None)
        if isinstance(response, VoteResponse) and response.granted and not response.pre_vote:
            assert candidate is not None
            self.environment.judge.votes_for(self.key, response.epoch, candidate, self.disk.election)
        reply(response)

    def _reply_with_batches(self, effect: ReplyWithBatches) -> None:
        response = effect.response
        batches = self.disk.reading.read(response.log_end.offset, 1 + int(self.random() * 6))
        if not batches or batches[0].base_offset != response.log_end.offset:
            raise Violation("batches are where the role has them", f"{self.key}: {response}")
        self._reply(effect.connection, msgspec.structs.replace(response, batches=batches))

    def _reply_with_snapshot(self, effect: ReplyWithSnapshot) -> None:
        response = effect.response
        data = self.disk.snapshot_data
        if response.snapshot != self.disk.snapshot.end:
            response = msgspec.structs.replace(response, error=Error.SNAPSHOT_NOT_FOUND)
        elif response.position >= len(data):
            response = msgspec.structs.replace(response, error=Error.POSITION_OUT_OF_RANGE)
        else:
            piece = data[response.position : response.position + self.environment.case.piece]
            response = msgspec.structs.replace(response, size=len(data), data=piece)
        self._reply(effect.connection, response)

    # -- timers --------------------------------------------------------------------------------------------------------

    def _set_timer(self, effect: SetTimer) -> None:
        self.count += 1
        self.timers[effect.timer] = self.count
        delay = effect.at_least + self.random() * (effect.at_most - effect.at_least)
        self.later(delay * self.rate, self._timer_fired, effect.timer, self.count)

    def _cancel_timer(self, effect: CancelTimer) -> None:
        self.timers.pop(effect.timer, None)

    def _timer_fired(self, timer: Timer, number: int) -> None:
        if self.timers.get(timer) == number:
            del self.timers[timer]
            self.deliver(TimerFired(timer))

    # -- the state machine ---------------------------------------------------------------------------------------------

    def _commit(self, effect: Commit) -> None:
        if effect.offset > self.applied:
            batches = tuple(
                batch for batch in self.disk.reading.read(self.applied) if batch.end_offset <= effect.offset
            )
            if not batches or batches[-1].end_offset != effect.offset:
                raise Violation("commits end where batches end", f"{self.key}: {effect}")
            self.state = self.environment.judge.applies(self.key, self.applied, batches, self.state)
            self.applied = effect.offset
            if self.replica.settings.high_watermark_wait:
                for number, each in enumerate(self.replica.voters.nodes):
                    if (self.applied + number) % 3 == 0:  # as if it had clients that wait for this
                        self.later(0, self.deliver, SendHighWatermark(each.key))
        for end_offset in [end for end in self.accepted if end <= effect.offset]:
            self.environment.acknowledged(self.accepted.pop(end_offset), end_offset)
        if self.applied - self.disk.snapshot.end.offset >= self.environment.case.snapshot_every:
            self._take_snapshot()

    def _take_snapshot(self) -> None:
        end = OffsetAndEpoch(self.applied, self.disk.reading.epoch_ahead_of(self.applied))
        snapshot = Snapshot(end, self.replica.log.configuration_at(self.applied))
        data = _encode(SnapshotFile(self.state, snapshot.voters, b"." * (self.applied % 97)))
        self.later(self._sync_time(), self._snapshot_taken, snapshot, data)

    def _accepted(self, effect: Accepted) -> None:
        self.accepted[effect.end_offset] = self.proposed.pop(effect.token)


def step_of(effect: Effect) -> str:
    """The step of a replica, in words. Empty for the steps of every moment: fetches and their answers, and timers."""
    match effect:
        case StoreState(election=election):
            vote = f", votes for {election.voted}" if election.voted is not None else ""
            leader = f", follows {election.leader.key}" if election.leader is not None else ""
            return f"stores epoch {election.epoch}{vote}{leader}"
        case Append(batches=batches):
            epochs = "..".join(map(str, sorted({batch.epoch for batch in batches})))
            return f"appends {batches[0].base_offset}..{batches[-1].end_offset - 1} of epoch {epochs}"
        case Truncate(end_offset=offset):
            return f"cuts off its log at {offset}"
        case Commit(offset=offset):
            return f"commits up to {offset}"
        case BecameLeader(epoch=epoch):
            return f"leads epoch {epoch}"
        case LostLeadership(epoch=epoch):
            return f"leads epoch {epoch} no more"
        case InstallSnapshot(snapshot=end):
            return f"installs the snapshot at {end.offset} of epoch {end.epoch}"
        case DeleteBefore(offset=offset):
            return f"starts its log at {offset}"
        case Send(endpoint=endpoint, request=Vote() as request):
            return f"asks {endpoint} for a {'pre-vote' if request.pre_vote else 'vote'} in epoch {request.epoch}"
    return ""
