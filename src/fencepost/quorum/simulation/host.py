"""A host: its disk, and the servers' node on it; and the environment of hosts.

The node writes a server's files (:mod:`fencepost.quorum.files`) to a disk of bytes, and recovers from what a crash
leaves. Only its loop and threads are virtual: the work of a thread takes time and then happens at once, unless the
process ends in the middle of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from random import Random
from typing import Any

from fencepost.connections.worker import Done, Worker
from fencepost.ledger.disk.journal import Damage, scan
from fencepost.ledger.disk.journal_files import SUFFIX as JOURNAL
from fencepost.quorum.driver.links import Respond, Return
from fencepost.quorum.driver.node import Limits, NodeSettings, Process, QuorumNode, StateMachine
from fencepost.quorum.files.directory import META, Contents, Meta, join_cluster, open_replica, read_meta, write_meta
from fencepost.quorum.files.election import STATE, read_election
from fencepost.quorum.files.snapshots import SUFFIX
from fencepost.quorum.identity import Node, ReplicaKey, VoterSet
from fencepost.quorum.log import EMPTY_SNAPSHOT, Batch, LeaderChange, OffsetAndEpoch, Snapshot, VotersRecord
from fencepost.quorum.messages import AnyRequest, FetchResponse, Request, Response, Vote, VoteResponse
from fencepost.quorum.roles.interface import (
    Append,
    BecameLeader,
    Commit,
    DeleteBefore,
    Effect,
    InstallSnapshot,
    LostLeadership,
    Send,
    StoreState,
    Truncate,
)
from fencepost.quorum.roles.replica import Replica
from fencepost.quorum.rules import Error, Protections
from fencepost.quorum.simulation.case import Case
from fencepost.quorum.simulation.judge import Judge, Violation
from fencepost.quorum.simulation.network import SimNetwork
from fencepost.quorum.traces import SUBJECT, Tracer
from fencepost.quorum.transitions import IllegalTransition
from fencepost.simulation.disk import PowerLoss, SimDisk
from fencepost.simulation.loop import SimLoop
from fencepost.simulation.schedule import Schedule
from fencepost.simulation.trace import SimTrace

CLUSTER = "simulated"
TRACED_AS = f"{SUBJECT}{CLUSTER}"
"""The subject of the quorum in traces."""

UNIT = 2_048
"""Bytes by which a log file grows."""

Report = Callable[[int, str, str], None]
"""Receives a step of a run: the virtual time in microseconds, the place, and the description."""


class Hosts:
    """The environment of the hosts of a run: the case, the time, the judge, the network, and the receiver of steps. A
    subclass receives committed records.
    """

    def __init__(
        self,
        case: Case,
        protections: Protections,
        report: Report | None,
        trace: SimTrace | None,
        schedule: Schedule | None = None,
    ) -> None:
        self.case = case
        self.report = report
        self.trace = trace
        self.protections = protections
        self.schedule = schedule or Schedule()
        self.judge = Judge()
        self.events = self.crashes = self.failures = self.wipes = 0
        self.slow_syncs = case.slow_syncs
        self.endpoints = tuple(f"h{number}:1" for number in range(1, case.hosts + 1))
        self._directories = 0
        self.random = Random(f"{case.seed} cluster").random
        self.network = SimNetwork(self.schedule, Random(f"{case.seed} network"), case.loss, case.slow_messages)
        self.by_endpoint: dict[str, SimHost] = {}

    def new_directory(self) -> str:
        """A new directory id."""
        self._directories += 1
        return f"d{self._directories}"

    def happened(self, where: str, what: str) -> None:
        """Report a step, if there is a receiver."""
        if self.report is not None:
            self.report(self.schedule.now, where, what)

    def acknowledged(self, record: bytes, end_offset: int) -> None:
        """A client learns that its record is committed."""
        raise NotImplementedError

    def ended(self, host: SimHost) -> None:
        """The process of a host is gone."""
        raise NotImplementedError

    def join(self, voters: Sequence[SimHost]) -> None:
        """Make some hosts the first voters."""
        beginning = Snapshot(OffsetAndEpoch(0, 0), VoterSet.of(Node(host.key, host.endpoint) for host in voters))
        for host in voters:
            host.join(beginning)

    def may_change(self, host: SimHost, request: Any) -> bool:
        """Return whether an administrator's request may reach a host."""
        return True

    def send(self, source: SimHost, endpoint: str, request: Request) -> None:
        """Send a request from a host to another, which may answer."""
        dest, loop, node = self.by_endpoint[endpoint], source.loop, source.node

        def answered(response: Any) -> None:
            loop.does(node.response_received, response)

        def reply(response: Response) -> None:
            self.network.response(dest.endpoint, source.endpoint, response, answered)

        def arrive(arrived: Any) -> None:
            if dest.alive and self.may_change(dest, arrived):
                dest.request_received(arrived, reply)
            elif not dest.alive and not loop.has_ended:
                source.unreachable(endpoint)

        if not self.network.request(source.endpoint, endpoint, request, arrive) and self.random() < 0.5:
            source.unreachable(endpoint)


class HostLoop(SimLoop):
    """The event loop of a host's process, on the clock of the host."""

    def __init__(self, host: SimHost) -> None:
        super().__init__(host.environment.schedule, 1_000_000 * host.rate)
        self.host = host

    def does(self, call: Callable[..., object], *arguments: Any) -> None:
        """See :class:`.SimLoop`. It runs no tasks, and nobody asks for the running loop, so it skips the costly
        bookkeeping.
        """
        if self.has_ended:
            return
        self.host.environment.events += 1
        try:
            call(*arguments)
        except PowerLoss:
            self.host.crash()


class SimWorker(Worker):
    """A thread of a process."""

    def __init__(self, host: SimHost, loop: SimLoop) -> None:
        self.host = host
        self.loop = loop
        self.tasks: deque[tuple[Callable[[], None], Done]] = deque()

    def submit(self, work: Callable[[], None], done: Done) -> None:
        self.tasks.append((work, done))
        if len(self.tasks) == 1:
            self._begin()

    submit_short = submit

    def pause(self, seconds: float) -> None:
        pass

    def _begin(self) -> None:
        self.loop.schedule.after(self.host.sync_time(), self.loop.does, self._work)

    def _work(self) -> None:
        work, done = self.tasks.popleft()
        error = None
        try:
            work()
        except Exception as raised:
            error = raised
        if self.tasks:
            self._begin()
        done(error)


class SimNode(QuorumNode):
    """A server's node, with a judge that watches it."""

    def __init__(
        self, host: SimHost, loop: Any, contents: Contents, machine: StateMachine, tracer: Tracer | None
    ) -> None:
        self.host = host
        self.judge = host.environment.judge
        case, me = host.environment.case, Node(host.key, host.endpoint)
        limits = Limits(
            fetch=case.fetch,
            piece=case.piece,
            snapshot_records=case.snapshot_every,
            snapshots=case.snapshots,
            pre_allocation=UNIT,
        )
        settings = NodeSettings(replica=case.settings, limits=limits, bootstrap=host.environment.endpoints)
        process = Process(loop, lambda name: SimWorker(host, loop), host.dice.uniform)
        links: Any = host
        super().__init__(host.disk, contents, me, links, machine, settings, tracer, process)
        self.replica = host.new_replica()

    def _handlers(self) -> dict[type[Effect], Callable[[Any], None]]:
        handlers = super()._handlers()
        if self.host.environment.report is None:
            return handlers

        def told(handler: Callable[[Any], None]) -> Callable[[Any], None]:
            def tell(effect: Effect) -> None:
                if step := step_of(effect):
                    self.host.happened(step)
                handler(effect)

            return tell

        return {effect: told(handler) for effect, handler in handlers.items()}

    def start(self) -> None:
        """See :class:`.QuorumNode`."""
        super().start()
        self.host.on_disk.add(self.replica.log.voters)

    def append(self, records: Sequence[bytes]) -> None:
        """See :class:`.QuorumNode`."""
        self.judge.proposed.update(records)
        super().append(records)

    def _store_election(self, effect: StoreState) -> None:
        super()._store_election(effect)
        self._blocked = True  # while the loop waits for the disk
        self._loop.call_later(self.host.sync_time() / 1_000_000, self._unblock)

    def _synced(self, error: BaseException | None) -> None:
        super()._synced(error)
        if not self.stopped:
            self.host.claims.log = self.log.stored_end
            if not self.log.has_unsynced and not self._effects:  # the disk has what the role has
                self.host.on_disk = {self.replica.log.voters}

    def _append(self, effect: Append) -> None:
        ahead = self.log.epoch_ahead_of(effect.batches[0].base_offset)
        for batch in effect.batches:
            if isinstance(batch.control, LeaderChange) and batch.control.leader == self.me.key:
                self.judge.leads(self.me.key, batch.epoch, self.log)
            if isinstance(batch.control, VotersRecord):
                self.host.on_disk.add(batch.control.voters)
            self.judge.appends(self.me.key, batch, ahead)
            ahead = batch.epoch
        super()._append(effect)

    def _truncate(self, effect: Truncate) -> None:
        claims = self.host.claims
        if claims.log is not None and claims.log.offset > effect.end_offset:
            claims.log = OffsetAndEpoch(effect.end_offset, self.log.epoch_ahead_of(effect.end_offset))
        super()._truncate(effect)

    def _install(self, effect: InstallSnapshot) -> None:
        self.host.claims.log = None  # its log may differ from that of the snapshot
        super()._install(effect)

    def _commit(self, effect: Commit) -> None:
        super()._commit(effect)
        if self.applied < effect.offset:
            raise Violation("commits end where batches end", f"{self.me.key}: {effect}")

    def _send(self, effect: Send) -> None:
        request = effect.request
        self.host.message_sent(getattr(request, "epoch", 0))
        if isinstance(request, Vote) and not request.pre_vote:
            self.host.vote_sent(request.epoch, self.me.key)
        super()._send(effect)

    def _reply(self, connection: int, response: Any) -> None:
        self.host.message_sent(response.epoch)
        if isinstance(response, FetchResponse) and response.error is Error.INVALID_REQUEST:
            raise Violation("batches are where the role has them", f"{self.me.key}: {response}")
        super()._reply(connection, response)

    def _distrust(self, effect: str) -> None:
        raise Violation("roles do not meet what cannot be", effect)


class SimMachine:
    """The state machine of a node: a hash of all records so far."""

    def __init__(self, host: SimHost, records: Sequence[bytes]) -> None:
        self.host = host
        self.state = records[0] if records else b""

    def apply(self, batch: Batch) -> None:
        """See :class:`.StateMachine`."""
        node, host = self.host.node, self.host
        self.state = host.environment.judge.applies(host.key, node.applied, batch, self.state)
        if host.environment.case.settings.high_watermark_wait:
            for number, each in enumerate(node.replica.voters.nodes):
                if (batch.end_offset + number) % 3 == 0:  # as if its clients waited for this
                    node.send_high_watermark(each.key)

    def snapshot(self) -> Iterator[Sequence[bytes]]:
        """See :class:`.StateMachine`."""
        yield [self.state]
        yield [b"." * (self.host.node.applied % 97)]

    def marker(self) -> bytes:
        """See :class:`.StateMachine`."""
        return b""

    def restore(self, records: Sequence[bytes]) -> None:
        """See :class:`.StateMachine`."""
        self.state = records[0]
        self.host.environment.judge.loads(self.host.key, self.host.node.applied, self.state)

    def leader_changed(self, epoch: int, leader: Node | None, mine: bool) -> None:
        """See :class:`.StateMachine`."""

    def became_leader(self, epoch: int) -> None:
        """See :class:`.StateMachine`."""

    def call_received(self, source: ReplicaKey, link: object, data: bytes, answer: Return) -> None:
        """See :class:`.StateMachine`."""

    def link_lost(self, endpoint: str) -> None:
        """See :class:`.StateMachine`."""

    def failed(self, error: BaseException) -> None:
        """See :class:`.StateMachine`."""
        self.host.failed(error)


class Claims:
    """What a replica has claimed to store: the end of its ``log``, None if unknown, and its ``epoch``."""

    def __init__(self) -> None:
        self.log: OffsetAndEpoch | None = None
        self.epoch = 0


class SimHost:
    """A host that may crash and lose its disk. ``rate``: microseconds for each microsecond of its clock."""

    loop: SimLoop
    node: SimNode

    def __init__(self, environment: Hosts, host_id: int, rate: float) -> None:
        self.environment = environment
        self.host_id = host_id
        self.endpoint = f"h{host_id}:1"
        self.rate = rate
        self.dice = Random(f"{environment.case.seed} host {host_id}")
        self.alive = False
        self.is_damaged = False
        """Whether its disk has a flipped bit, so that it may refuse the disk."""
        self._take_empty_disk()
        self.replica = self.new_replica()

    def _take_empty_disk(self) -> None:
        self.disk = SimDisk()
        self.key = ReplicaKey(self.host_id, self.environment.new_directory())
        self.claims = Claims()
        self.is_damaged = False
        self.on_disk: set[VoterSet] = set()
        """Configurations that its disk may have. One that is cut off is there until that is stored."""

    @property
    def applied(self) -> int:
        """How far the process's state machine has applied."""
        return self.node.applied

    @property
    def configurations(self) -> Set[VoterSet]:
        """The configuration in the stored part of its log, the last one in the log, which a crash may lose, and those
        that a crash may bring back.
        """
        log = self.replica.log
        return self.on_disk | {log.configuration_at(self.replica.stored_end), log.voters}

    def new_replica(self) -> Replica:
        """A replica with no knowledge yet."""
        environment = self.environment
        me, traces = Node(self.key, self.endpoint), environment.trace is not None
        return Replica(me, environment.case.settings, environment.endpoints, environment.protections, traces)

    def happened(self, what: str) -> None:
        """Report a step of this host."""
        self.environment.happened(self.endpoint, what)

    def sync_time(self) -> int:
        """Microseconds of a sync."""
        time = 50 + 450 * self.dice.random()
        if self.environment.slow_syncs and self.dice.random() < self.environment.slow_syncs:
            time += 150_000 * self.dice.random() ** 2
        return int(time)

    # -- processes -----------------------------------------------------------------------------------------------------

    def new_loop(self) -> SimLoop:
        """The loop of a new process."""
        return HostLoop(self)

    def start(self) -> None:
        """Start a process on the contents of the disk, or refuse the disk."""
        self.alive = True
        self.loop = self.new_loop()
        self.loop.does(self._begin)

    def _begin(self) -> None:
        try:
            contents = self._contents()
        except Damage as damage:
            if not self.is_damaged:
                raise Violation("what is stored survives", f"{self.key}: {damage}") from damage
            self.happened(f"refuses its disk: {damage}")
            self.lose_disk()
        except OSError as error:
            self.fails(error)
        else:
            self.happened(f"starts as {self.key}")
            self.is_damaged = False
            self.opened(contents)

    def opened(self, contents: Contents) -> None:
        """Go on with the contents of the disk."""
        self.begin(contents, SimMachine(self, contents.state))

    def begin(self, contents: Contents, machine: StateMachine) -> QuorumNode:
        """Start the node, with a state machine that has the state of ``contents``."""
        self.node = SimNode(self, self.loop, contents, machine, self._tracer())
        self.replica = self.node.replica
        self.node.start()
        return self.node

    def join(self, snapshot: Snapshot = EMPTY_SNAPSHOT) -> Meta:
        """Create the files of a replica that begins with a snapshot."""
        meta = Meta(self.key, CLUSTER)
        join_cluster(self.disk, meta, snapshot, UNIT)
        return meta

    def _contents(self) -> Contents:
        meta = read_meta(self.disk)
        if meta is None:
            write_meta(self.disk, Meta(self.key))
        if meta is None or not meta.cluster_id:
            meta = self.join()
        case = self.environment.case
        contents = open_replica(self.disk, meta, UNIT, cache=case.cache, segment=case.segment)
        self._check(contents)
        return contents

    def _check(self, contents: Contents) -> None:
        """Check that the replica has everything that it claimed to store, and that its snapshot matches what was
        applied.
        """
        claims, log = self.claims, contents.log
        if contents.election.epoch < claims.epoch:
            raise Violation("what is stored survives", f"{self.key}: {contents.election} for epoch {claims.epoch}")
        if claims.log is not None and log.start.offset <= claims.log.offset:
            if log.end.offset < claims.log.offset or log.epoch_ahead_of(claims.log.offset) != claims.log.epoch:
                raise Violation("what is stored survives", f"{self.key}: a log up to {log.end} for {claims.log}")
        self.environment.judge.loads(self.key, contents.snapshot.end.offset, (contents.state or [b""])[0])

    def _tracer(self) -> Tracer | None:
        trace, node = self.environment.trace, self.endpoint
        if trace is None:
            return None
        trace.started(node, "replica")
        return Tracer(self.key, lambda action, fields: trace.node_did(node, action, fields, TRACED_AS))

    def crash(self) -> None:
        """The process is killed, or the machine loses power. What is not durable is lost."""
        power = self.dice.random() < 0.7
        self.happened("loses power" if power else "is killed")
        if power:
            self.disk.lose_power(self.dice)
        self.environment.crashes += 1
        self._end()

    def failed(self, error: BaseException) -> None:
        """The node has stopped: because of the disk, so that the process ends; or because of a defect."""
        if isinstance(error, OSError):
            self.fails(error)
        elif isinstance(error, IllegalTransition | ValueError):
            raise Violation("roles do not meet what cannot be", f"{type(error).__name__}: {error}") from error
        else:
            raise error

    def fails(self, error: OSError) -> None:
        """The disk fails, and the process ends."""
        self.happened(f"ends: {error}")
        self.environment.failures += 1
        self._end()

    def lose_disk(self) -> None:
        """The disk is replaced by an empty one. No process runs yet."""
        self.happened(f"loses its disk, with {self.key}")
        self._take_empty_disk()
        self.environment.wipes += 1
        self._end()

    def _end(self) -> None:
        self.alive = False
        self.loop.has_ended = True
        self.disk.left = 1 << 60
        self.environment.ended(self)

    # -- messages and clients ------------------------------------------------------------------------------------------

    def propose(self, records: Sequence[bytes]) -> None:
        """Have a client append records, and learn when the last one is committed."""

        def outcome(future: asyncio.Future[OffsetAndEpoch]) -> None:
            if future.exception() is None:
                self.environment.acknowledged(records[-1], future.result().offset)

        self.loop.does(lambda: self.node.propose(records).add_done_callback(outcome))

    def request_received(self, request: AnyRequest, reply: Respond) -> None:
        """A request came; ``reply`` answers it."""

        def respond(response: Any) -> None:
            if isinstance(response, VoteResponse) and response.granted and not response.pre_vote:
                assert isinstance(request, Vote)
                self.vote_sent(response.epoch, request.candidate)
            reply(response)

        self.loop.does(self.node.request_received, request, respond)

    def send(self, endpoint: str, request: Request) -> None:
        """A request leaves."""
        self.environment.send(self, endpoint, request)

    def unreachable(self, endpoint: str) -> None:
        """An endpoint is unreachable."""
        self.environment.schedule.after(200, self.loop.does, self.node.disconnected, endpoint)

    def message_sent(self, epoch: int) -> None:
        """A message with an epoch leaves: the replica must remember that epoch."""
        self.claims.epoch = max(self.claims.epoch, epoch)

    def vote_sent(self, epoch: int, candidate: ReplicaKey) -> None:
        """A vote leaves."""
        self.environment.judge.votes_for(self.key, epoch, candidate, read_election(self.disk.kept()))

    # -- the disk ------------------------------------------------------------------------------------------------------

    def damage(self) -> None:
        """Flip a bit that is proven durable. Elsewhere it would look like a torn write."""
        places = [(name, size) for name in self.disk.names() if (size := self._proven(name))]
        name, size = places[int(self.dice.random() * len(places))]
        bit = int(self.dice.random() * size * 8)
        self.happened(f"bit {bit} of {name} is flipped")
        self.disk.files[name].flip(bit)
        self.is_damaged = True

    def _proven(self, name: str) -> int:
        """How many bytes of a file are proven durable, and count."""
        if name in (META, STATE) or name.endswith(SUFFIX):
            return self.disk.size(name)
        if not name.endswith(JOURNAL):
            return 0
        return scan(bytes(self.disk.files[name].content), int(name.removesuffix(JOURNAL))).synced


def step_of(effect: Effect) -> str:
    """A description of an effect. Empty for frequent ones: fetches and their answers, and timers."""
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
