"""A replica within a process: it carries out the role's effects for a state machine.

Everything runs on the event loop's thread except for the disk. One thread writes and syncs the log, a group at a time;
what arrives meanwhile is the next group. While the disk is quick, the loop's thread does that too. Another thread
writes snapshots. Epochs and votes are stored on the loop's thread, which blocks: elections are rare, and later effects
have to wait for the disk anyway.

A failed disk or a defect stops the node. Nothing that was acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from fencepost.connections.worker import Done, Worker
from fencepost.files.folders import Files
from fencepost.ledger.disk.journal import Damage
from fencepost.quorum.driver.fetches import FetchTimes
from fencepost.quorum.driver.frames import Welcome
from fencepost.quorum.driver.links import Links, Respond, Return
from fencepost.quorum.driver.proposals import NotLeader, Proposals
from fencepost.quorum.driver.timers import Timers
from fencepost.quorum.files.directory import Contents
from fencepost.quorum.files.election import store_election
from fencepost.quorum.files.snapshots import Fetched, name_of, purge_snapshots, write_snapshot
from fencepost.quorum.identity import Node, ReplicaKey
from fencepost.quorum.log import Batch, OffsetAndEpoch, Snapshot
from fencepost.quorum.messages import (
    Answer,
    Asked,
    DescribeQuorumResponse,
    Fetch,
    FetchResponse,
    FetchSnapshotResponse,
    ReadSnapshot,
    TakeSnapshot,
    TakeSnapshotResponse,
)
from fencepost.quorum.roles import interface
from fencepost.quorum.roles.replica import Replica
from fencepost.quorum.rules import Error
from fencepost.quorum.traces import Tracer

_logger = logging.getLogger(__name__)


class StateMachine(Protocol):
    """The replicated state machine. Its methods are called on the loop's thread."""

    def apply(self, batch: Batch) -> None:
        """Apply the next committed records. Control records come as empty batches."""

    def marker(self) -> bytes:
        """A record that changes nothing."""

    def snapshot(self) -> Iterator[Sequence[bytes]]:
        """Return the current state, in groups of records. Another thread iterates over them while more is applied."""

    def restore(self, records: Sequence[bytes]) -> None:
        """Replace the state by a newer snapshot from the leader."""

    def leader_changed(self, epoch: int, leader: Node | None, mine: bool) -> None:
        """Another replica leads, nobody does, or this one does (``mine``). Called for each epoch. Requests to an
        earlier leader may be lost.
        """

    def became_leader(self, epoch: int) -> None:
        """This replica leads, and the state is up to date."""

    def call_received(self, source: ReplicaKey, link: object, data: bytes, answer: Return) -> None:
        """Another replica calls."""

    def link_lost(self, endpoint: str) -> None:
        """A connection that this process opened is gone: calls over it may be lost."""

    def failed(self, error: BaseException) -> None:
        """The node has stopped: the disk failed, or there is a defect."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a node's work at once, in bytes and records.

    ``batch``: proposals appended together. ``fetch``: batches in one answer, but at least one. ``piece``: of a
    snapshot. ``snapshot_records``, ``snapshot_bytes``: log since the last snapshot that triggers the next one.
    ``snapshots``: how many to keep. ``files``: files of the log above which a start takes a snapshot.
    ``pre_allocation``: disk that a log file allocates at once.
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
"""Seconds without a change after which the last group is proven durable."""
_TURNS = 3
"""Turns of the loop that a group of several records takes to gather. With 16 to 64 changes in flight, a fifth to a half
more of them are done a second than with one turn; with six turns, no more.
"""
_SLICE = 1 << 20
"""Bytes of records to apply before the loop does other work."""
DISTRUSTED = "a message came that no sound member sends"
"""The prefix of log lines about such messages."""
_COMPLAINTS = 1.0
"""Seconds between two log lines about messages that no sound member sends."""
_BETWEEN_GROUPS = 0.001
"""Seconds between two groups of a snapshot."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a node: those of its ``replica``, its ``limits``, and endpoints to ask for a leader
    (``bootstrap``).
    """

    replica: interface.QuorumSettings
    limits: Limits = DEFAULT_LIMITS
    bootstrap: tuple[str, ...] = ()


@dataclass(frozen=True)
class Process:
    """The loop, threads (:class:`.Worker`) and random numbers of a node. A simulator replaces them with virtual
    ones.
    """

    loop: asyncio.AbstractEventLoop
    worker: Callable[[str], Worker] = Worker
    draw: Callable[[float, float], float] = random.uniform


@dataclass(slots=True)
class _SnapshotProgress:
    """The last snapshot, the one being taken, and the one being fetched.

    ``end``: the offset of the last snapshot. ``bytes_before``: bytes that had been appended to the log by then;
    negative if that was before this process. ``is_due``: take another one as soon as there are new records.
    ``is_written``: one is being written. ``wanted``: operators who wait for one that reaches an offset.
    """

    end: int
    bytes_before: int
    is_due: bool
    is_written: bool = False
    fetched: Fetched | None = None
    wanted: list[tuple[int, Respond]] = field(default_factory=list)


class QuorumNode:
    """A replica, from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        files: Files,
        contents: Contents,
        me: Node,
        links: Links,
        machine: StateMachine,
        settings: NodeSettings,
        tracer: Tracer | None = None,
        process: Process | None = None,
    ) -> None:
        """``contents``: what the files hold; the machine already has that state. ``tracer`` traces the replica.
        ``process``: this one by default.
        """
        process = process or Process(asyncio.get_running_loop())
        self.files = files
        self.meta = contents.meta
        self.me = me
        self.links = links
        self.machine = machine
        self.limits = settings.limits
        self.log = contents.log
        self.replica = Replica(me, settings.replica, settings.bootstrap, traces=tracer is not None)
        self.applied = contents.snapshot.end.offset
        """The state machine has all records before this offset."""
        self.stopped = False
        self.took: Callable[[str, float], None] | None = None
        """Takes the seconds of each ``write`` of the log and each ``snapshot``."""
        self._snapshot_at = process.loop.time()
        self._target = -1
        self._target_since = 0.0
        """What the leader had committed when it answered, and when. The next answer that comes once it is applied sets
        another one."""
        self._tracer = tracer
        self._contents: Contents | None = contents
        self._loop = process.loop
        self.heard_at = self._loop.time()
        """When a leader last answered this replica, by the loop's clock."""
        self._known: tuple[int, Node | None, bool] = (-1, None, False)
        """The epoch, the leader and whether that is this replica, as last reported to the state machine."""
        # The role
        self._events: deque[interface.Event] = deque()
        self._effects: deque[interface.Effect] = deque()
        self._running = False
        self._blocked = False
        self._carry_out = self._handlers()
        self._timers = Timers(lambda timer: self.deliver(interface.TimerFired(timer)), process.loop, process.draw)
        self._distrusted_at = -_COMPLAINTS
        """When a message that no sound member sends was last logged."""
        # Requests and proposals
        self._numbers = itertools.count(1)
        self._replies: dict[int, Respond] = {}
        self._fetches = FetchTimes()
        self._proposals = Proposals()
        self._proposing = False
        # The disk
        self._log_worker = process.worker("quorum log")
        self._syncing = False
        self._writing_soon = False
        self._taken = self.log.end.offset
        """The end of the log when the last group was taken."""
        self._group = 0
        """The records of the last group."""
        self._rest: asyncio.TimerHandle | None = None
        self._snapshot_worker = process.worker("quorum snapshot")
        begun = contents.snapshot.end.offset
        is_due = self.log.file_count > self.limits.files
        self._snapshot = _SnapshotProgress(begun, -self.log.size_from(begun), is_due)

    def _handlers(self) -> dict[type[interface.Effect], Callable[[Any], None]]:
        handlers: dict[type[interface.Effect], Callable[[Any], None]] = {
            interface.StoreState: self._store_election,
            interface.Append: self._append,
            interface.Truncate: self._truncate,
            interface.DeleteBefore: self._delete_before,
            interface.WriteSnapshot: self._write_fetched,
            interface.InstallSnapshot: self._install,
            interface.Send: self._send,
            interface.Reply: lambda effect: self._reply(effect.connection, effect.response),
            interface.ReplyWithBatches: self._reply_with_batches,
            interface.ReplyWithSnapshot: self._reply_with_snapshot,
            interface.SetTimer: lambda effect: self._timers.set(effect),
            interface.CancelTimer: lambda effect: self._timers.cancel(effect.timer),
            interface.Commit: self._commit,
            interface.Accepted: lambda effect: self._proposals.accept(effect.token, effect.end_offset, effect.epoch),
            interface.Refused: lambda effect: self._proposals.refuse(effect.token),
            interface.BecameLeader: lambda effect: self.machine.became_leader(effect.epoch),
            interface.LostLeadership: lambda effect: self._proposals.lose(),
            interface.Distrusted: lambda effect: self._distrust(effect.reason),
            interface.LeaderChanged: lambda effect: None,  # see _look_at_leader: epochs count, too
            interface.VotersChanged: lambda effect: None,
        }
        if self._tracer is not None:
            handlers[interface.Trace] = self._tracer.did
        return handlers

    # -- starting and stopping -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the replica."""
        contents, self._contents = self._contents, None
        assert contents is not None
        self.deliver(interface.Started(contents.election, contents.index))

    async def stop(self) -> None:
        """Stop. A leader notifies the others, so that they need not wait for a timeout. The log is durable then, unless
        the disk has failed.
        """
        if not self.stopped:
            self.deliver(interface.Resign())
            await asyncio.sleep(0)
        failed, self.stopped = self.stopped, True
        self._timers.stop()
        if self._rest is not None:
            self._rest.cancel()
        self._proposals.fail()
        await self._snapshot_worker.finish(lambda: None)
        await self._log_worker.finish(lambda: None if failed else self.log.rest())

    def _fail(self, error: BaseException) -> None:
        if self.stopped:
            return
        self.stopped = True
        is_defect = not isinstance(error, OSError | Damage)
        _logger.error("the replica %s ends: %s", self.me, error or type(error).__name__, exc_info=is_defect)
        self._timers.stop()
        self._proposals.fail()
        self.machine.failed(error)

    # -- callbacks of connections --------------------------------------------------------------------------------------

    def welcome(self) -> Welcome:
        """The greeting to a connecting replica or administrator."""
        return Welcome(self.me, self.meta.cluster_id, self.replica.voters)

    def request_received(self, request: Asked, respond: Respond) -> None:
        """A request came."""
        if isinstance(request, TakeSnapshot):
            self._take_snapshot(respond)
            return
        if isinstance(request, ReadSnapshot):
            response = FetchSnapshotResponse(*self._answering(), request.snapshot, 0, request.position)
            respond(self._with_piece(response))
            return
        number = next(self._numbers)
        self._replies[number] = respond
        if type(request) is Fetch and self.replica.leads and request.epoch == self.replica.epoch:
            self._fetches.record(request, self.replica.log.end_offset)
        self.deliver(interface.RequestReceived(number, request))

    def response_received(self, response: Answer) -> None:
        """A response came."""
        if isinstance(response, FetchResponse | FetchSnapshotResponse) and response.error is Error.NONE:
            self.heard_at = self._loop.time()
            if isinstance(response, FetchResponse) and self.applied >= self._target:
                self._target, self._target_since = response.high_watermark, self.heard_at
        self.deliver(interface.ResponseReceived(response))

    def disconnected(self, endpoint: str) -> None:
        """A connection is gone."""
        self.deliver(interface.Disconnected(endpoint))
        if not self.stopped:
            self.machine.link_lost(endpoint)

    def call_received(self, source: ReplicaKey, link: object, data: bytes, answer: Return) -> None:
        """A replica calls the state machine."""
        if not self.stopped:
            self.machine.call_received(source, link, data, answer)

    @property
    def leads(self) -> bool:
        """Whether this replica leads, as far as it knows."""
        return self.replica.leads

    @property
    def leader(self) -> Node | None:
        """The leader, as far as this replica knows; None if it knows of none."""
        return self.me if self.replica.leads else self.replica.known_leader

    @property
    def silence(self) -> float:
        """Seconds since a leader answered this replica; 0 if it leads."""
        return 0.0 if self.replica.leads else self._loop.time() - self.heard_at

    @property
    def snapshot_age(self) -> float:
        """Seconds since this replica last wrote a snapshot, or else since it started."""
        return self._loop.time() - self._snapshot_at

    @property
    def lateness(self) -> float:
        """For how many seconds this replica has not applied what its leader had committed; 0 once it has."""
        if self.replica.leads or 0 <= self._target <= self.applied:
            return 0.0
        return self._loop.time() - self._target_since

    # -- proposals -----------------------------------------------------------------------------------------------------

    def propose(self, records: Sequence[bytes]) -> asyncio.Future[OffsetAndEpoch]:
        """Append records. The future gets the end offset and epoch once they are committed and applied here. It fails
        with :class:`.NotLeader` or :class:`.OutcomeUnknown`.
        """
        future: asyncio.Future[OffsetAndEpoch] = self._loop.create_future()
        if self.stopped:
            future.set_exception(NotLeader())
            return future
        self._proposals.gathered.append((records, future))
        if not self._proposing and not self._syncing:
            self._proposing = True
            self._loop.call_soon(self._propose)
        return future

    def append(self, records: Sequence[bytes]) -> None:
        """As :meth:`propose`, for a state machine that recognises its records when they are committed, and has gathered
        them. Does nothing if this replica does not lead.
        """
        if not self.stopped:
            self._proposals.gathered.append((records, None))
            if not self._proposing and not self._syncing:
                self._propose()

    def _propose(self) -> None:
        """Propose all gathered records to the role, in as few batches as possible."""
        self._proposing = False
        while self._proposals.gathered and not self.stopped:
            token = next(self._numbers)
            self.deliver(interface.Proposed(token, self._proposals.take(token, self.limits.batch)))

    def send_high_watermark(self, replica: ReplicaKey) -> None:
        """If this replica leads, send its high watermark at once to a replica whose clients wait for a committed
        record.
        """
        self.deliver(interface.SendHighWatermark(replica))

    # -- events and effects --------------------------------------------------------------------------------------------

    def deliver(self, event: interface.Event) -> None:
        """Give the role an event."""
        if self.stopped:
            return
        self._events.append(event)
        if not self._running:
            self._run()

    def _run(self) -> None:
        """Give the role its events, one at a time, and carry out the effects in order."""
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
        except Exception as error:  # a disk failure or a defect: never go on with half of the effects
            self._fail(error)
        finally:
            self._running = False

    def _look_at_leader(self) -> None:
        replica = self.replica
        leads = replica.leads
        known = replica.epoch, self.me if leads else replica.known_leader, leads
        if known != self._known:
            self._known = known
            self.machine.leader_changed(*known)

    def _unblock(self) -> None:
        self._blocked = False
        if not self._running:
            self._run()

    # -- the log -------------------------------------------------------------------------------------------------------

    def _store_election(self, effect: interface.StoreState) -> None:
        store_election(self.files, effect.election)
        if self._tracer is not None:
            self._tracer.stored(effect.election)

    def _append(self, effect: interface.Append) -> None:
        self.log.append(effect.batches)
        self._sync()

    def _truncate(self, effect: interface.Truncate) -> None:
        self.log.truncate(effect.end_offset)
        self._sync()

    def _sync(self) -> None:
        """Write the next group to the log soon, if there is one and the disk is idle: behind the messages that are sent
        now, so that other replicas sync at the same time. If the last group was of several records, more may come in
        the next turns of the loop. They share the sync.
        """
        if not self._syncing and not self._writing_soon and self.log.has_unsynced:
            self._writing_soon = True
            self._loop.call_soon(self._write, _TURNS if self._group > 1 else 1)

    def _write(self, turns: int) -> None:
        if turns > 1:
            self._loop.call_soon(self._write, turns - 1)
            return
        self._writing_soon = False
        if self._syncing or self.stopped:
            return
        self._syncing = True
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._group, self._taken = self.log.end.offset - self._taken, self.log.end.offset
        writes = self.log.take()
        self._log_worker.submit_short(*self._timed("write", lambda: self.log.write(writes), self._synced))

    def _timed(self, what: str, work: Callable[[], None], done: Done) -> tuple[Callable[[], None], Done]:
        """Blocking work, and what to do then: to report how long it took, too."""
        seconds = 0.0

        def timed() -> None:
            nonlocal seconds
            began = time.perf_counter()
            work()
            seconds = time.perf_counter() - began

        def report(error: BaseException | None) -> None:
            if error is None and self.took is not None:
                self.took(what, seconds)
            done(error)

        return timed, report

    def _synced(self, error: BaseException | None) -> None:
        if self.stopped:
            return
        if error is not None:
            self._fail(error)
            return
        stored = self.log.written()
        self._syncing = False
        self.deliver(interface.Stored(stored))
        if self._proposals.gathered and not self._proposing:
            self._propose()
        self._sync()
        if not self._writing_soon:
            self._rest = self._loop.call_later(_REST, self._prove)

    def _prove(self) -> None:
        self._rest = None
        if not self._syncing and not self.stopped:
            self._syncing = True
            self._log_worker.submit(self.log.rest, self._rested)

    def _rested(self, error: BaseException | None) -> None:
        self._syncing = False
        if error is not None:
            self._fail(error)
        elif not self.stopped:
            self._propose()
            self._sync()

    def _delete_before(self, effect: interface.DeleteBefore) -> None:
        first = self.log.delete_before(effect.offset)
        self._log_worker.submit(lambda: self.log.remove_files(first), self._done)

    def _done(self, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error)

    # -- the state machine ---------------------------------------------------------------------------------------------

    def _commit(self, effect: interface.Commit) -> None:
        """Apply committed records, a slice at a time."""
        while self.applied < effect.offset:
            batches = self.log.read(self.applied, _SLICE)
            for batch in batches:
                end = batch.end_offset
                if end > effect.offset:
                    break
                self.machine.apply(batch)
                self.applied = end
            if self.applied < effect.offset:
                if not batches:
                    raise Damage(f"the log ends at {self.applied}, and is committed up to {effect.offset}")
                if batches[0].end_offset > effect.offset:
                    break  # a replica claims to have part of a batch: it is not committed yet
                self._effects.appendleft(effect)
                self._blocked = True
                self._loop.call_soon(self._unblock)
                return
        self._proposals.commit(self.applied)
        self._look_at_log()

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def _look_at_log(self) -> None:
        """Take a snapshot if the log has grown enough since the last one."""
        limits, progress = self.limits, self._snapshot
        records = self.applied - progress.end
        is_long = (
            records >= limits.snapshot_records
            or self.log.appended_bytes - progress.bytes_before >= limits.snapshot_bytes
        )
        if not records and not progress.is_written:
            self._answer_wanted(progress.end)
        if progress.is_written or not records or not (is_long or progress.is_due or progress.wanted):
            return
        progress.is_written, progress.is_due = True, False
        progress.end = self.applied
        progress.bytes_before = self.log.appended_bytes
        end = OffsetAndEpoch(self.applied, self.log.epoch_ahead_of(self.applied))
        snapshot = Snapshot(end, self.replica.log.configuration_at(self.applied))
        records_of_it = self.machine.snapshot()
        head = next(records_of_it, ())  # fixes the current state
        groups = itertools.chain([head], records_of_it)
        self._snapshot_worker.submit(
            *self._timed(
                "snapshot",
                lambda: self._write_snapshot(snapshot, groups),
                lambda error: self._snapshot_written(snapshot, error),
            )
        )

    def _write_snapshot(self, snapshot: Snapshot, groups: Iterable[Sequence[bytes]]) -> None:
        for _ in write_snapshot(self.files, snapshot, groups):
            if self.stopped:
                return
            self._snapshot_worker.pause(_BETWEEN_GROUPS)
        purge_snapshots(self.files, self.limits.snapshots)

    def _snapshot_written(self, snapshot: Snapshot, error: BaseException | None) -> None:
        self._snapshot.is_written = False
        if error is not None:
            self._fail(error)
        else:
            self._snapshot_at = self._loop.time()
            self.deliver(interface.SnapshotTaken(snapshot))
            self._answer_wanted(snapshot.end.offset)
            if self._snapshot.wanted:
                self._look_at_log()

    # -- snapshots for operators ---------------------------------------------------------------------------------------

    def _answering(self, error: Error = Error.NONE) -> tuple[ReplicaKey, int, Node | None, Error]:
        return self.me.key, self.replica.epoch, self.leader, error

    def _take_snapshot(self, respond: Respond) -> None:
        """Take a snapshot that has everything committed until now, proven by a record that is committed later."""
        if not self.replica.leads:
            respond(TakeSnapshotResponse(*self._answering(Error.NOT_LEADER)))
            return

        def committed(outcome: asyncio.Future[OffsetAndEpoch]) -> None:
            if self.stopped or outcome.cancelled():
                return
            if outcome.exception() is not None:
                respond(TakeSnapshotResponse(*self._answering(Error.NOT_LEADER)))
                return
            self._snapshot.wanted.append((outcome.result().offset, respond))
            self._look_at_log()

        self.propose([self.machine.marker()]).add_done_callback(committed)

    def _answer_wanted(self, offset: int) -> None:
        """The newest snapshot on disk ends at an offset: tell the operators who waited for no more."""
        wanted, self._snapshot.wanted = self._snapshot.wanted, []
        for reached, respond in wanted:
            if reached <= offset:
                respond(TakeSnapshotResponse(*self._answering(), self.replica.log.snapshot.end))
            else:
                self._snapshot.wanted.append((reached, respond))

    # -- fetched snapshots ---------------------------------------------------------------------------------------------

    def _write_fetched(self, effect: interface.WriteSnapshot) -> None:
        if effect.position == 0 or self._snapshot.fetched is None:
            self._snapshot.fetched = Fetched(self.files, effect.snapshot)
        self._snapshot.fetched.write(effect.position, effect.data)

    def _install(self, effect: interface.InstallSnapshot) -> None:
        """Install the fetched snapshot. Everything else waits until it is durable and loaded."""
        fetched, self._snapshot.fetched = self._snapshot.fetched, None
        assert fetched is not None and fetched.end == effect.snapshot
        self._blocked = True
        loaded: list[tuple[Snapshot, list[bytes]]] = []

        def installed(error: BaseException | None) -> None:
            if isinstance(error, Damage):
                _logger.warning("the fetched snapshot is damaged, and is fetched again: %s", error)
                self._events.append(interface.SnapshotDamaged(effect.snapshot))
            elif error is not None:
                self._fail(error)
                return
            else:
                try:
                    self._load(*loaded[0])
                except Exception as defect:
                    self._fail(defect)
                    return
            self._unblock()

        self._log_worker.submit(lambda: loaded.append(fetched.install()), installed)

    def _load(self, snapshot: Snapshot, records: Sequence[bytes]) -> None:
        _logger.info("%s goes on from the snapshot at %s", self.me, snapshot.end.offset)
        self.log.reset(snapshot.end)
        self.applied = self._snapshot.end = snapshot.end.offset
        self._snapshot.bytes_before = self.log.appended_bytes
        self.machine.restore(records)
        self._sync()
        self._events.append(interface.SnapshotInstalled(snapshot))

    # -- messages ------------------------------------------------------------------------------------------------------

    def _send(self, effect: interface.Send) -> None:
        if self._tracer is not None:
            self._tracer.sends(effect.request)
        self.links.send(effect.endpoint, effect.request)  # type: ignore[arg-type]

    def _distrust(self, reason: str) -> None:
        now = self._loop.time()
        if now - self._distrusted_at >= _COMPLAINTS:
            self._distrusted_at = now
            _logger.error("%s: %s", DISTRUSTED, reason)

    def _reply(self, connection: int, response: Any) -> None:
        if self._tracer is not None:
            self._tracer.answers(response)
        if type(response) is DescribeQuorumResponse:
            response = self._fetches.with_times(response)
        self._replies.pop(connection)(response)

    def _reply_with_batches(self, effect: interface.ReplyWithBatches) -> None:
        try:
            batches = self.log.read(effect.response.log_end.offset, self.limits.fetch)
        except ValueError:  # no replica's log ends within a batch
            self._reply(effect.connection, msgspec.structs.replace(effect.response, error=Error.INVALID_REQUEST))
        else:
            self._reply(effect.connection, msgspec.structs.replace(effect.response, batches=tuple(batches)))

    def _reply_with_snapshot(self, effect: interface.ReplyWithSnapshot) -> None:
        self._reply(effect.connection, self._with_piece(effect.response))

    def _with_piece(self, response: FetchSnapshotResponse) -> FetchSnapshotResponse:
        """The response with the bytes at its position, or with the reason why there are none."""
        name = name_of(response.snapshot)
        if name not in self.files.names():
            return msgspec.structs.replace(response, error=Error.SNAPSHOT_NOT_FOUND)
        size = self.files.size(name)
        if not 0 <= response.position < size:
            return msgspec.structs.replace(response, error=Error.POSITION_OUT_OF_RANGE)
        data = self.files.open(name).read(response.position, self.limits.piece)
        return msgspec.structs.replace(response, size=size, data=data)
