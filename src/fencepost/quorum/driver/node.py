"""A replica of a quorum as part of a process: it carries out what the role wants done, for a state machine.

Everything happens on the loop's thread, but for the disk: one thread writes and syncs the log, a group at a time, and
another one writes snapshots. What arrives while the log is synced is the next group. Epochs and votes are stored on the
loop's thread, which waits for the disk: elections are rare, and nothing behind may be done before.

A disk that fails ends the node, and so does anything that can not be: nothing that was acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from fencepost.quorum.driver.fetches import FetchTimes
from fencepost.quorum.driver.frames import Welcome
from fencepost.quorum.driver.links import Links, Respond, Return
from fencepost.quorum.files.directory import Contents
from fencepost.quorum.files.election import store_election
from fencepost.quorum.files.snapshots import Fetched, name_of, purge_snapshots, write_snapshot
from fencepost.quorum.identity import Node, ReplicaKey
from fencepost.quorum.log import Batch, OffsetAndEpoch, Snapshot
from fencepost.quorum.messages import (
    AnyRequest,
    AnyResponse,
    DescribeQuorumResponse,
    Fetch,
    FetchResponse,
    FetchSnapshotResponse,
)
from fencepost.quorum.roles.interface import (
    Accepted,
    Append,
    BecameLeader,
    CancelTimer,
    Commit,
    DeleteBefore,
    Disconnected,
    Effect,
    Event,
    InstallSnapshot,
    LeaderChanged,
    LostLeadership,
    Proposed,
    Refused,
    Reply,
    ReplyWithBatches,
    ReplyWithSnapshot,
    RequestReceived,
    Resign,
    ResponseReceived,
    Send,
    SetTimer,
    Settings,
    SnapshotDamaged,
    SnapshotInstalled,
    SnapshotTaken,
    Started,
    Stored,
    StoreState,
    TellHighWatermark,
    Timer,
    TimerFired,
    Trace,
    Truncate,
    VotersChanged,
    WriteSnapshot,
)
from fencepost.quorum.roles.replica import QuorumError, Replica
from fencepost.quorum.rules import Error
from fencepost.quorum.traces import Tracer
from fencepost.quorum.transitions import IllegalTransition
from fencepost.store.disk.files import Files
from fencepost.store.disk.journal import Damage
from fencepost.worker import Worker

_logger = logging.getLogger(__name__)


class NotLeader(Exception):
    """This replica does not lead: what was proposed is not in the log."""


class OutcomeUnknown(Exception):
    """This replica leads no more: what was proposed may be committed by the next leader, or not."""


class StateMachine(Protocol):
    """What the log is for. All of it is called by the loop's thread."""

    def apply(self, batch: Batch) -> None:
        """Records are committed: the next ones. Control records come, too, as batches without records."""
        ...

    def snapshot(self) -> Iterator[Sequence[bytes]]:
        """The state as it is now, whatever is applied while the records are taken, a few at a time, by another
        thread."""
        ...

    def restore(self, records: Sequence[bytes]) -> None:
        """The state is that of a snapshot, from the leader, and was behind it."""
        ...

    def leader_changed(self, epoch: int, leader: Node | None, mine: bool) -> None:
        """Who leads, and whether it is this replica. Called for each epoch; what was sent to the leader of another one
        may be lost."""
        ...

    def became_leader(self, epoch: int) -> None:
        """This replica leads, and the state is up to date."""
        ...

    def called(self, source: ReplicaKey, link: object, data: bytes, answer: Return) -> None:
        """Another replica asks for something."""
        ...

    def link_lost(self, endpoint: str) -> None:
        """A connection that this process opened is gone: what was sent over it may be lost."""
        ...

    def failed(self, error: BaseException) -> None:
        """It is over: the disk failed, or what can not be has happened."""
        ...


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a node takes at once, in bytes and records.

    ``batch``: proposals that are appended together. ``fetch``: batches in one answer, at least one. ``piece``: of a
    snapshot. ``snapshot_records``, ``snapshot_bytes``: of the log since the last snapshot, from which on the next one
    is taken. ``snapshots``: that are kept. ``files``: of the log, from which on a start takes a snapshot.
    ``pre_allocation``: that a file of the log takes on the disk at once.
    """

    batch: int = 1 << 20
    fetch: int = 1 << 20
    piece: int = 1 << 20
    snapshot_records: int = 100_000
    snapshot_bytes: int = 64 << 20
    snapshots: int = 2
    files: int = 8
    pre_allocation: int = 1 << 20


DEFAULT_LIMITS = Limits()

_REST = 0.1
"""Seconds without a change after which the last group is proven to be durable."""
_SLICE = 1 << 20
"""Bytes of records that are applied before the loop goes on with something else."""
_BETWEEN_GROUPS = 0.001
"""Seconds between two groups of a snapshot."""
_RESOLUTION = 0.002
"""Seconds by which a loop may be early with a timer."""


class QuorumNode:
    """A replica, from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        files: Files,
        contents: Contents,
        me: Node,
        links: Links,
        machine: StateMachine,
        settings: Settings,
        limits: Limits = DEFAULT_LIMITS,
        bootstrap: Sequence[str] = (),
        draw: Callable[[float, float], float] = random.uniform,
        tracer: Tracer | None = None,
    ) -> None:
        """``contents``: what the files hold, whose state the machine has already. ``bootstrap``: endpoints to ask for a
        leader. ``tracer`` is told what the replica does."""
        self.files = files
        self.meta = contents.meta
        self.me = me
        self.links = links
        self.machine = machine
        self.limits = limits
        self.log = contents.log
        self.replica = Replica(me, settings, bootstrap, traces=tracer is not None)
        self.applied = contents.snapshot.end.offset
        """The state machine has all records ahead of this offset."""
        self.stopped = False
        self._tracer = tracer
        self._contents: Contents | None = contents
        self._draw = draw
        self._events: deque[Event] = deque()
        self._effects: deque[Effect] = deque()
        self._running = False
        self._blocked = False
        self._known: tuple[int, Node | None, bool] = (-1, None, False)
        self._fires_at: dict[Timer, float] = {}
        self._timers: dict[Timer, tuple[float, asyncio.TimerHandle]] = {}  # not later than they are to fire
        self._replies: dict[int, Respond] = {}
        self._fetches = FetchTimes()
        self._numbers = itertools.count(1)
        self._pending: deque[tuple[Sequence[bytes], asyncio.Future[OffsetAndEpoch] | None]] = deque()
        self._proposing = False
        self._tokens: dict[int, list[tuple[int, asyncio.Future[OffsetAndEpoch]]]] = {}
        self._accepted: deque[tuple[int, int, asyncio.Future[OffsetAndEpoch]]] = deque()
        self._syncing = False
        self._rest: asyncio.TimerHandle | None = None
        self._fetched: Fetched | None = None
        self._snapshotting = False
        self._snapshot_end = contents.snapshot.end.offset
        self._bytes_before = -self.log.size_from(self._snapshot_end)
        self._wants_snapshot = self.log.file_count > limits.files
        self._loop = asyncio.get_running_loop()
        self.heard_at = self._loop.time()
        """When a leader has answered this replica, by the clock of the loop."""
        self._disk = Worker("quorum log")
        self._snapshots = Worker("quorum snapshot")
        self._carry_out: dict[type[Effect], Callable[[Any], None]] = {
            StoreState: self._store_election,
            Append: self._append,
            Truncate: self._truncate,
            DeleteBefore: self._delete_before,
            WriteSnapshot: self._write_fetched,
            InstallSnapshot: self._install,
            Send: self._send,
            Reply: lambda effect: self._reply(effect.connection, effect.response),
            ReplyWithBatches: self._reply_with_batches,
            ReplyWithSnapshot: self._reply_with_snapshot,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Commit: self._commit,
            Accepted: self._was_accepted,
            Refused: self._was_refused,
            BecameLeader: lambda effect: self.machine.became_leader(effect.epoch),
            LostLeadership: lambda effect: self._lose_proposals(),
            LeaderChanged: lambda effect: None,  # see _look_at_leader: epochs count, too
            VotersChanged: lambda effect: None,
        }
        if tracer is not None:
            self._carry_out[Trace] = tracer.did

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to take part."""
        contents, self._contents = self._contents, None
        assert contents is not None
        self.deliver(Started(contents.election, contents.index))

    async def stop(self) -> None:
        """End: a leader tells the others, so that they need not wait to find out. What is in the log is durable then,
        unless the disk has failed."""
        if not self.stopped:
            self.deliver(Resign())
            await asyncio.sleep(0)
        failed, self.stopped = self.stopped, True
        self._cancel_timers()
        if self._rest is not None:
            self._rest.cancel()
        self._fail_proposals()
        await self._snapshots.finish(lambda: None)
        await self._disk.finish(lambda: None if failed else self.log.rest())

    def _fail(self, error: BaseException) -> None:
        if self.stopped:
            return
        self.stopped = True
        _logger.error("the replica %s ends: %s", self.me, error)
        self._cancel_timers()
        self._fail_proposals()
        self.machine.failed(error)

    def _fail_proposals(self) -> None:
        pending, self._pending = self._pending, deque()
        accepted, self._accepted = self._accepted, deque()
        for _, future in pending:
            if future is not None and not future.done():
                future.set_exception(NotLeader())
        for _, _, future in accepted:
            if not future.done():
                future.set_exception(OutcomeUnknown())

    # -- what others ask -----------------------------------------------------------------------------------------------

    def welcome(self) -> Welcome:
        """What is said to those that connect."""
        return Welcome(self.me, self.meta.cluster_id, self.replica.voters)

    def asked(self, request: AnyRequest, respond: Respond) -> None:
        """A request came."""
        number = next(self._numbers)
        self._replies[number] = respond
        if type(request) is Fetch and self.replica.leads and request.epoch == self.replica.epoch:
            self._fetches.record(request, self.replica.log.end_offset)
        self.deliver(RequestReceived(number, request))

    def answered(self, response: AnyResponse) -> None:
        """A response came."""
        if isinstance(response, FetchResponse | FetchSnapshotResponse) and response.error is Error.NONE:
            self.heard_at = self._loop.time()
        self.deliver(ResponseReceived(response))

    def disconnected(self, endpoint: str) -> None:
        """A connection is gone."""
        self.deliver(Disconnected(endpoint))
        if not self.stopped:
            self.machine.link_lost(endpoint)

    def called(self, source: ReplicaKey, link: object, data: bytes, answer: Return) -> None:
        """A replica asks something of the state machine."""
        if not self.stopped:
            self.machine.called(source, link, data, answer)

    @property
    def leads(self) -> bool:
        """Whether this replica leads, as far as it knows."""
        return self.replica.leads

    @property
    def is_writing(self) -> bool:
        """Whether the log is written now, so that what is proposed waits."""
        return self._syncing

    @property
    def leader(self) -> Node | None:
        """Who leads, as far as this replica knows."""
        return self.me if self.replica.leads else self.replica.known_leader

    @property
    def silence(self) -> float:
        """Seconds since a leader answered this replica, which does not lead; 0 if it does."""
        return 0.0 if self.replica.leads else self._loop.time() - self.heard_at

    # -- proposals -----------------------------------------------------------------------------------------------------

    def propose(self, records: Sequence[bytes]) -> asyncio.Future[OffsetAndEpoch]:
        """Append records: a future with the end offset of the last one and its epoch, when they are committed and
        applied here; or :class:`NotLeader`, or :class:`OutcomeUnknown`."""
        future: asyncio.Future[OffsetAndEpoch] = self._loop.create_future()
        if self.stopped:
            future.set_exception(NotLeader())
            return future
        self._pending.append((records, future))
        if not self._proposing and not self._syncing:
            self._proposing = True
            self._loop.call_soon(self._propose)
        return future

    def append(self, records: Sequence[bytes]) -> None:
        """As :meth:`propose`, for a state machine that sees by the records themselves whether they are committed, and
        has gathered them. If this replica does not lead, nothing happens."""
        if not self.stopped:
            self._pending.append((records, None))
            if not self._proposing and not self._syncing:
                self._propose()

    def _propose(self) -> None:
        """Give the role what has gathered, as few batches."""
        self._proposing = False
        while self._pending and not self.stopped:
            records: list[bytes] = []
            waiting: list[tuple[int, asyncio.Future[OffsetAndEpoch]]] = []
            size = 0
            while self._pending and (not records or size < self.limits.batch):
                some, future = self._pending.popleft()
                records += some
                size += sum(map(len, some))
                if future is not None:
                    waiting.append((len(records), future))
            token = next(self._numbers)
            self._tokens[token] = [(count - len(records), future) for count, future in waiting]
            self.deliver(Proposed(token, tuple(records)))

    def _was_accepted(self, effect: Accepted) -> None:
        for before, future in self._tokens.pop(effect.token):
            self._accepted.append((effect.end_offset + before, effect.epoch, future))

    def _was_refused(self, effect: Refused) -> None:
        for _, future in self._tokens.pop(effect.token):
            if not future.done():
                future.set_exception(NotLeader())

    def _lose_proposals(self) -> None:
        """Nobody knows what becomes of what is appended and not committed."""
        accepted, self._accepted = self._accepted, deque()
        for _, _, future in accepted:
            if not future.done():
                future.set_exception(OutcomeUnknown())

    def tell_high_watermark(self, replica: ReplicaKey) -> None:
        """A replica has clients that wait for a record which is committed by now: if this replica leads, it sends its
        high watermark to that one at once."""
        self.deliver(TellHighWatermark(replica))

    # -- events and effects --------------------------------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        """Something happens to the role."""
        if self.stopped:
            return
        self._events.append(event)
        if not self._running:
            self._run()

    def _run(self) -> None:
        """Give the role its events, one at a time, and do what comes of them, in order."""
        self._running = True
        try:
            while not self.stopped:
                if self._effects and not self._blocked:
                    effect = self._effects.popleft()
                    self._carry_out[type(effect)](effect)
                elif self._events:
                    self._effects += self.replica.receive(self._events.popleft())
                else:
                    break
                if not self._effects:
                    self._look_at_leader()
        except (OSError, Damage, QuorumError, IllegalTransition, ValueError) as error:
            self._fail(error)
        finally:
            self._running = False

    def _look_at_leader(self) -> None:
        known = self.replica.epoch, self.leader, self.replica.leads
        if known != self._known:
            self._known = known
            self.machine.leader_changed(*known)

    def _unblock(self) -> None:
        self._blocked = False
        if not self._running:
            self._run()

    # -- timers --------------------------------------------------------------------------------------------------------

    def _set_timer(self, effect: SetTimer) -> None:
        """Timers are set again and again, and seldom fire: one that is set to a later time stays, and looks again when
        it fires.
        """
        timer = effect.timer
        at = self._loop.time() + self._draw(effect.at_least, effect.at_most) / 1_000_000
        self._fires_at[timer] = at
        there = self._timers.get(timer)
        if there is None or there[0] > at:
            if there is not None:
                there[1].cancel()
            self._timers[timer] = at, self._loop.call_at(at, self._timer_fired, timer)

    def _cancel_timer(self, effect: CancelTimer) -> None:
        self._fires_at.pop(effect.timer, None)

    def _timer_fired(self, timer: Timer) -> None:
        del self._timers[timer]
        at = self._fires_at.get(timer)
        if at is None:
            return
        if at > self._loop.time() + _RESOLUTION:
            self._timers[timer] = at, self._loop.call_at(at, self._timer_fired, timer)
            return
        del self._fires_at[timer]
        self.deliver(TimerFired(timer))

    def _cancel_timers(self) -> None:
        for _, handle in self._timers.values():
            handle.cancel()

    # -- the log -------------------------------------------------------------------------------------------------------

    def _store_election(self, effect: StoreState) -> None:
        store_election(self.files, effect.election)
        if self._tracer is not None:
            self._tracer.stored(effect.election)

    def _append(self, effect: Append) -> None:
        self.log.append(effect.batches)
        self._sync()

    def _truncate(self, effect: Truncate) -> None:
        self.log.truncate(effect.end_offset)
        self._sync()

    def _sync(self) -> None:
        """Have what is to be written written, if the disk is free: the next group."""
        if self._syncing or not self.log.has_unsynced:
            return
        self._syncing = True
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        writes = self.log.take()
        self._disk.do(lambda: self.log.write(writes), self._synced)

    def _synced(self, error: BaseException | None) -> None:
        if self.stopped:
            return
        if error is not None:
            self._fail(error)
            return
        stored = self.log.written()
        self._syncing = False
        self.deliver(Stored(stored))
        if self._pending and not self._proposing:
            self._propose()
        self._sync()
        if not self._syncing:
            self._rest = self._loop.call_later(_REST, self._prove)

    def _prove(self) -> None:
        self._rest = None
        if not self._syncing and not self.stopped:
            self._syncing = True
            self._disk.do(self.log.rest, self._rested)

    def _rested(self, error: BaseException | None) -> None:
        self._syncing = False
        if error is not None:
            self._fail(error)
        elif not self.stopped:
            self._propose()
            self._sync()

    def _delete_before(self, effect: DeleteBefore) -> None:
        first = self.log.delete_before(effect.offset)
        self._disk.do(lambda: self.log.remove_files(first), self._done)

    def _done(self, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error)

    # -- the state machine ---------------------------------------------------------------------------------------------

    def _commit(self, effect: Commit) -> None:
        """Apply what is committed, a slice at a time."""
        while self.applied < effect.offset:
            batches = self.log.read(self.applied, _SLICE)
            for batch in batches:
                if batch.end_offset > effect.offset:
                    break
                self.machine.apply(batch)
                self.applied = batch.end_offset
            if self.applied < effect.offset:
                if not batches or batches[0].end_offset > effect.offset:
                    raise QuorumError(f"no batch ends at {effect.offset}, up to which all is committed")
                self._effects.appendleft(effect)
                self._blocked = True
                self._loop.call_soon(self._unblock)
                return
        while self._accepted and self._accepted[0][0] <= self.applied:
            end_offset, epoch, future = self._accepted.popleft()
            if not future.done():
                future.set_result(OffsetAndEpoch(end_offset, epoch))
        self._look_at_log()

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def _look_at_log(self) -> None:
        """Take a snapshot if the log has grown enough since the last one."""
        limits = self.limits
        records = self.applied - self._snapshot_end
        is_long = (
            records >= limits.snapshot_records or self.log.appended_bytes - self._bytes_before >= limits.snapshot_bytes
        )
        if self._snapshotting or not records or not (is_long or self._wants_snapshot):
            return
        self._snapshotting, self._wants_snapshot = True, False
        self._snapshot_end = self.applied
        self._bytes_before = self.log.appended_bytes
        end = OffsetAndEpoch(self.applied, self.log.epoch_ahead_of(self.applied))
        snapshot = Snapshot(end, self.replica.log.configuration_at(self.applied))
        records_of_it = self.machine.snapshot()
        head = next(records_of_it, ())  # the state as it is now
        groups = itertools.chain([head], records_of_it)
        self._snapshots.do(
            lambda: self._write_snapshot(snapshot, groups), lambda error: self._snapshot_written(snapshot, error)
        )

    def _write_snapshot(self, snapshot: Snapshot, groups: Iterable[Sequence[bytes]]) -> None:
        for _ in write_snapshot(self.files, snapshot, groups):
            if self.stopped:
                return
            time.sleep(_BETWEEN_GROUPS)
        purge_snapshots(self.files, self.limits.snapshots)

    def _snapshot_written(self, snapshot: Snapshot, error: BaseException | None) -> None:
        self._snapshotting = False
        if error is not None:
            self._fail(error)
        else:
            self.deliver(SnapshotTaken(snapshot))

    def _write_fetched(self, effect: WriteSnapshot) -> None:
        if effect.position == 0 or self._fetched is None:
            self._fetched = Fetched(self.files, effect.snapshot)
        self._fetched.write(effect.position, effect.data)

    def _install(self, effect: InstallSnapshot) -> None:
        """Nothing goes on before the snapshot is durable and loaded."""
        fetched, self._fetched = self._fetched, None
        assert fetched is not None and fetched.end == effect.snapshot
        self._blocked = True
        found: list[tuple[Snapshot, list[bytes]]] = []

        def installed(error: BaseException | None) -> None:
            if isinstance(error, Damage):
                _logger.warning("what was fetched is no snapshot, and is fetched anew: %s", error)
                self._events.append(SnapshotDamaged(effect.snapshot))
            elif error is not None:
                self._fail(error)
                return
            else:
                self._load(*found[0])
            self._unblock()

        self._disk.do(lambda: found.append(fetched.install()), installed)

    def _load(self, snapshot: Snapshot, records: Sequence[bytes]) -> None:
        _logger.info("%s goes on from the snapshot at %s", self.me, snapshot.end.offset)
        self.log.reset(snapshot.end)
        self.applied = self._snapshot_end = snapshot.end.offset
        self._bytes_before = self.log.appended_bytes
        self.machine.restore(records)
        self._sync()
        self._events.append(SnapshotInstalled(snapshot))

    # -- messages ------------------------------------------------------------------------------------------------------

    def _send(self, effect: Send) -> None:
        if self._tracer is not None:
            self._tracer.sends(effect.request)
        self.links.send(effect.endpoint, effect.request)  # type: ignore[arg-type]

    def _reply(self, connection: int, response: Any) -> None:
        if self._tracer is not None:
            self._tracer.answers(response)
        if type(response) is DescribeQuorumResponse:
            response = self._fetches.with_times(response)
        self._replies.pop(connection)(response)

    def _reply_with_batches(self, effect: ReplyWithBatches) -> None:
        batches = self.log.read(effect.response.log_end.offset, self.limits.fetch)
        self._reply(effect.connection, msgspec.structs.replace(effect.response, batches=tuple(batches)))

    def _reply_with_snapshot(self, effect: ReplyWithSnapshot) -> None:
        response = effect.response
        name = name_of(response.snapshot)
        if name not in self.files.names():
            response = msgspec.structs.replace(response, error=Error.SNAPSHOT_NOT_FOUND)
        else:
            size = self.files.size(name)
            if 0 <= response.position < size:
                data = self.files.open(name).read(response.position, self.limits.piece)
                response = msgspec.structs.replace(response, size=size, data=data)
            else:
                response = msgspec.structs.replace(response, error=Error.POSITION_OUT_OF_RANGE)
        self._reply(effect.connection, response)
