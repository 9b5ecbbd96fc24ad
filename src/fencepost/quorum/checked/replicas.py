"""The replicas of a quorum themselves: the role that members run, explored state by state.

Nothing is written again here. Each host has a :class:`fencepost.quorum.roles.replica.Replica` and a disk. Every step
gives a replica an event, or lets the world around it go on. `quorum` says the same by the rules alone; here the role's
own requests and answers are under way, its timers fire whenever they may, and its batches become durable later than it
has them.

The world is a driver's. The epoch and the vote are durable before anything else is done. Of requests, and of
answers, the latest is under way from one replica to another; one that is overtaken is lost. A crash loses what is not
durable. Time is left out: a timer that is set may fire, but a replica asks again only if nothing is under way from it
or to it. What only delays an election, such as how many were lost in a row, is taken back.
"""

from __future__ import annotations

import enum
from typing import ClassVar

import msgspec

from fencepost import (
    ModelValue,
    PerKey,
    Protocol,
    action,
    actor,
    configuration,
    constant,
    initial,
    invariant,
    model_values,
    one_of,
    per_key,
    require,
    state,
)
from fencepost.quorum.identity import Node, ReplicaKey, VoterSet
from fencepost.quorum.log import Batch, LogIndex, OffsetAndEpoch, Snapshot
from fencepost.quorum.messages import Request, Response, Vote, VoteResponse
from fencepost.quorum.roles import interface as role
from fencepost.quorum.roles.replica import Replica
from fencepost.quorum.rules import Protections
from fencepost.quorum.transitions import State

SWITCHES = (
    "one_vote_an_epoch",
    "logs_are_compared",
    "leader_counts_stored",
    "logs_are_matched",
)


class Start(enum.Enum):
    """What has happened at the beginning."""

    FRESH = "nothing: all voters begin"
    ESTABLISHED = "the first voter leads, and all is quiet"
    PARTED = "the first voter has led, has stored a record that nobody else has, and resigns"


class Host:
    """The disk of a host, and what its driver keeps.

    ``election``: what is stored. ``log``: the batches, of which those ahead of ``durable`` are. ``timers``: those that
    are set. ``committed``: how far the state machine has applied the log.
    """

    def __init__(self) -> None:
        self.election = role.ElectionState()
        self.log: tuple[Batch, ...] = ()
        self.durable = 0
        self.timers: frozenset[role.Timer] = frozenset()
        self.committed = 0


class Wire:
    """What is under way from one replica to another."""

    def __init__(self) -> None:
        self.request: Request | None = None
        self.response: Response | None = None


class History:
    """What has ever happened. ``committed``: the records that a leader has committed. ``votes``: who has voted, in
    which epoch, for whom. ``led``: who has led which epoch. ``distrusted``: what no sound member sends.
    """

    def __init__(self) -> None:
        self.committed: tuple[Batch, ...] = ()
        self.votes: frozenset[tuple[ReplicaKey, int, ReplicaKey]] = frozenset()
        self.led: frozenset[tuple[int, ReplicaKey]] = frozenset()
        self.distrusted: str | None = None


def key_of(r: ModelValue) -> ReplicaKey:
    """The replica of a host, which keeps its disk."""
    return ReplicaKey(r.index + 1, "d")


def node_of(r: ModelValue) -> Node:
    """The replica of a host, and where it is reached."""
    return Node(key_of(r), f"{r.name}:1")


def _end(log: tuple[Batch, ...]) -> OffsetAndEpoch:
    return OffsetAndEpoch(log[-1].end_offset, log[-1].epoch) if log else OffsetAndEpoch(0, 0)


class Replicas(Protocol):
    """Voters elect leaders and replicate a log, each by the role that members of a quorum run."""

    name: ClassVar[str] = "quorum-replica"

    replicas: tuple[ModelValue, ...] = model_values("r", 3, "the voters")
    start: Start = constant(Start.ESTABLISHED, "what has happened at the beginning")
    max_epoch: int = constant(2, "no election is held beyond this epoch")
    timeouts: int = constant(1, "how often a voter gives up waiting for a leader, or for votes")
    resignations: int = constant(0, "how often a leader finds that no majority fetches")
    losses: int = constant(0, "messages that are lost, besides those that are overtaken")
    proposals: int = constant(1, "records that are proposed")
    restarts: int = constant(0, "crashes, which lose what is not durable")

    one_vote_an_epoch: bool = constant(True, "whether a replica votes for one candidate of an epoch alone")
    logs_are_compared: bool = constant(True, "whether nobody votes for a candidate whose log is behind its own")
    leader_counts_stored: bool = constant(True, "whether a leader counts itself only up to what it has stored")
    logs_are_matched: bool = constant(True, "whether a follower cuts off what its leader does not have")

    replica: PerKey[ModelValue, Replica] = per_key(replicas, actor(lambda protocol, r: protocol.new_replica(r)))
    host: PerKey[ModelValue, Host] = per_key(replicas, actor(lambda protocol, r: Host()))
    wire: PerKey[ModelValue, PerKey[ModelValue, Wire]] = per_key(
        replicas, per_key(replicas, actor(lambda protocol, source, dest: Wire()))
    )
    history: History = actor(lambda protocol: History())
    timed_out: int = state(0)
    resigned: int = state(0)
    lost: int = state(0)
    proposed: int = state(0)
    restarted: int = state(0)

    configurations = {
        "default": configuration(doc="a leader, one record, and a voter that stands for election"),
        "first-election": configuration(
            start=Start.FRESH, max_epoch=1, proposals=0, doc="three voters that begin, and one that stands for election"
        ),
        "losses": configuration(losses=1, doc="as the default, and a message is lost"),
        "resignation": configuration(timeouts=0, resignations=1, doc="a leader that no majority fetches from resigns"),
        "succession": configuration(
            start=Start.PARTED, proposals=0, doc="another voter is elected, and the first one has a record too many"
        ),
        "crash": configuration(timeouts=0, restarts=1, doc="a replica crashes, and loses what is not durable"),
        "crash-and-election": configuration(
            restarts=1, proposals=0, doc="a replica crashes, and a voter stands for election: a large one"
        ),
        "two-elections": configuration(timeouts=2, doc="voters stand for election twice: a large one"),
        "votes-twice": configuration(
            start=Start.FRESH,
            max_epoch=1,
            timeouts=2,
            proposals=0,
            one_vote_an_epoch=False,
            expect="one_vote_for_each_epoch",
            doc="a replica votes for two candidates of an epoch",
        ),
        "unsynced-counted": configuration(
            leader_counts_stored=False,
            expect="what_is_committed_is_durable",
            doc="a leader counts itself for what it has not stored",
        ),
        "logs-not-compared": configuration(
            timeouts=2,
            logs_are_compared=False,
            expect="leaders_have_what_is_committed",
            doc="a candidate whose log is behind is voted for",
        ),
        "logs-not-matched": configuration(
            timeouts=2,
            logs_are_matched=False,
            expect="what_is_committed_is_durable",
            doc="a follower keeps what its leader does not have",
        ),
    }

    @property
    def protections(self) -> Protections:
        """The protections that are switched on."""
        return Protections(**{name: getattr(self, name) for name in SWITCHES})

    def new_replica(self, r: ModelValue) -> Replica:
        """The role of a host whose process begins."""
        return Replica(node_of(r), protections=self.protections)

    @initial
    def all_start(self) -> None:
        """All voters start, with nothing on their disks but who the voters are; what follows is up to ``start``."""
        for r in self.replicas:
            self._start(r)
        if self.start is not Start.FRESH:
            self._fire(self.replicas[0], role.Timer.ELECTION)
            while self._settles():
                pass
        if self.start is Start.PARTED:
            first = self.replicas[0]
            self._give(first, role.Proposed(0, (b"0",)))
            for r in self.replicas[1:]:
                self.wire[first][r] = Wire()
            self.disk_syncs(first)
            self._give(first, role.Resign())

    def _settles(self) -> bool:
        """Let the first thing happen that can without a timeout; whether there was one."""
        for r in self.replicas:
            if self.host[r].durable < _end(self.host[r].log).offset:
                self.disk_syncs(r)
                return True
            for source in self.replicas:
                if self.wire[source][r].request is not None:
                    self.request_comes(source, r)
                    return True
                if self.wire[source][r].response is not None:
                    self.response_comes(source, r)
                    return True
        return False

    def _start(self, r: ModelValue) -> None:
        host = self.host[r]
        voters = VoterSet.of(node_of(each) for each in self.replicas)
        index = LogIndex(Snapshot(OffsetAndEpoch(0, 0), voters))
        for batch in host.log:
            index.append(batch)
        host.timers, host.committed = frozenset(), 0
        self.replica[r] = self.new_replica(r)
        self._give(r, role.Started(host.election, index))

    # -- the role and its driver ---------------------------------------------------------------------------------------

    def _give(self, r: ModelValue, event: role.Event) -> None:
        """A replica takes an event, and its driver does what comes of it."""
        replica = self.replica[r]
        effects = replica.receive(event)
        for effect in effects:
            self._do(r, effect)
        if replica._ballot.rounds:
            replica.forget_rounds()

    def _do(self, r: ModelValue, effect: role.Effect) -> None:
        host = self.host[r]
        match effect:
            case role.StoreState():
                host.election = effect.election
            case role.Append():
                host.log = (*host.log, *effect.batches)
            case role.Truncate():
                host.log = tuple(batch for batch in host.log if batch.end_offset <= effect.end_offset)
                host.durable = min(host.durable, effect.end_offset)
            case role.Commit():
                host.committed = effect.offset
                self._committed(r, effect.offset)
            case role.SetTimer():
                host.timers |= {effect.timer}
            case role.CancelTimer():
                host.timers -= {effect.timer}
            case role.Send():
                if isinstance(effect.request, Vote) and not effect.request.pre_vote:
                    self.history.votes |= {(key_of(r), effect.request.epoch, key_of(r))}
                self.wire[r][self._at(effect.endpoint)].request = effect.request
            case role.Reply():
                self._reply(r, effect.connection, effect.response)
            case role.ReplyWithBatches():
                batches = tuple(batch for batch in host.log if batch.base_offset >= effect.response.log_end.offset)
                self._reply(r, effect.connection, msgspec.structs.replace(effect.response, batches=batches))
            case role.Distrusted():
                self.history.distrusted = effect.reason
            case role.LeaderChanged():
                if effect.leader is not None and effect.leader.key == key_of(r):
                    self.history.led |= {(effect.epoch, effect.leader.key)}

    def _at(self, endpoint: str) -> ModelValue:
        return next(r for r in self.replicas if node_of(r).endpoint == endpoint)

    def _reply(self, r: ModelValue, connection: int, response: Response) -> None:
        """Answer: the number of a connection is that of the host at its other end."""
        peer = self.replicas[connection]
        self.wire[r][peer].response = response
        if isinstance(response, VoteResponse) and response.granted and not response.pre_vote:
            self.history.votes |= {(key_of(r), response.epoch, key_of(peer))}

    def _committed(self, r: ModelValue, offset: int) -> None:
        if self.replica[r].leads and offset > _end(self.history.committed).offset:
            self.history.committed = tuple(batch for batch in self.host[r].log if batch.end_offset <= offset)

    # -- what happens --------------------------------------------------------------------------------------------------

    @action(source=replicas, r=replicas, by="r")
    def request_comes(self, source: ModelValue, r: ModelValue) -> None:
        """A request reaches the replica that it was sent to."""
        require(source != r)
        request = self.wire[source][r].request
        require(request is not None)
        assert request is not None
        self.wire[source][r].request = None
        self._give(r, role.RequestReceived(source.index, request))

    @action(source=replicas, r=replicas, by="r")
    def response_comes(self, source: ModelValue, r: ModelValue) -> None:
        """An answer reaches the replica that has asked."""
        require(source != r)
        response = self.wire[source][r].response
        require(response is not None)
        assert response is not None
        self.wire[source][r].response = None
        self._give(r, role.ResponseReceived(response))

    @action(r=replicas)
    def times_out(self, r: ModelValue) -> None:
        """A voter has waited long enough for a leader, or for votes."""
        require(self.timed_out < self.timeouts)
        require(self.replica[r].epoch < self.max_epoch)
        timer = one_of((role.Timer.ELECTION, role.Timer.FETCH))
        self._fire(r, timer)
        self.timed_out += 1

    @action(r=replicas)
    def resigns(self, r: ModelValue) -> None:
        """A leader looks whether a majority fetches, when none does."""
        require(self.resigned < self.resignations)
        self.resigned += 1
        self._fire(r, role.Timer.CHECK_QUORUM)

    @action(r=replicas)
    def tries_again(self, r: ModelValue) -> None:
        """A replica that was not answered asks again."""
        others = [other for other in self.replicas if other != r]
        require(all(self.wire[r][other].request is None for other in others))
        require(all(self.wire[other][r].response is None for other in others))
        self._fire(r, one_of((role.Timer.RETRY, role.Timer.VOTE_RETRY)))

    @action(source=replicas, r=replicas, by="r")
    def is_lost(self, source: ModelValue, r: ModelValue) -> None:
        """A request, or an answer, is lost with its connection."""
        require(source != r)
        require(self.lost < self.losses)
        self.lost += 1
        wire = self.wire[source][r]
        if one_of((True, False)):
            require(wire.request is not None)
            wire.request = None
        else:
            require(wire.response is not None)
            wire.response = None

    def _fire(self, r: ModelValue, timer: role.Timer) -> None:
        require(timer in self.host[r].timers)
        self.host[r].timers -= {timer}
        self._give(r, role.TimerFired(timer))

    @action(r=replicas)
    def proposes(self, r: ModelValue) -> None:
        """The state machine of a leader wants a record appended."""
        require(self.proposed < self.proposals)
        require(self.replica[r].leads)
        self.proposed += 1
        self._give(r, role.Proposed(0, (b"%d" % self.proposed,)))

    @action(r=replicas)
    def disk_syncs(self, r: ModelValue) -> None:
        """The log of a replica becomes durable up to its end."""
        host = self.host[r]
        end = _end(host.log)
        require(host.durable < end.offset)
        host.durable = end.offset
        self._give(r, role.Stored(end))

    @action(r=replicas)
    def restarts_after_crash(self, r: ModelValue) -> None:
        """A replica crashes, and starts again with what is durable. Its connections break."""
        require(self.restarted < self.restarts)
        self.restarted += 1
        host = self.host[r]
        host.log = tuple(batch for batch in host.log if batch.end_offset <= host.durable)
        for other in self.replicas:
            self.wire[r][other] = Wire()
            self.wire[other][r] = Wire()
        self._start(r)

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant
    def nobody_is_distrusted(self) -> bool:
        """No member takes another for one that is broken."""
        return self.history.distrusted is None

    @invariant
    def one_leader_an_epoch(self) -> bool:
        """An epoch has one leader at most, ever."""
        led = self.history.led
        return len({epoch for epoch, _ in led}) == len(led)

    @invariant
    def one_vote_for_each_epoch(self) -> bool:
        """A replica votes once in an epoch at most, ever."""
        votes = self.history.votes
        return len({(voter, epoch) for voter, epoch, _ in votes}) == len(votes)

    @invariant(r=replicas)
    def what_is_applied_is_committed(self, r: ModelValue) -> bool:
        """A state machine has applied what a leader has committed, and nothing else."""
        host, committed = self.host[r], self.history.committed
        applied = tuple(batch for batch in host.log if batch.end_offset <= host.committed)
        return applied == committed[: len(applied)] and _end(applied).offset == host.committed

    @invariant
    def what_is_committed_is_durable(self) -> bool:
        """A majority has stored what is committed."""
        committed = self.history.committed
        having = [
            r
            for r in self.replicas
            if self.host[r].durable >= _end(committed).offset and self.host[r].log[: len(committed)] == committed
        ]
        return 2 * len(having) > len(self.replicas)

    @invariant(r=replicas)
    def leaders_have_what_is_committed(self, r: ModelValue) -> bool:
        """The leader of the latest epoch has all that is committed."""
        replica, committed = self.replica[r], self.history.committed
        if replica.state is not State.LEADER or any(self.replica[o].epoch > replica.epoch for o in self.replicas):
            return True
        return self.host[r].log[: len(committed)] == committed

    @invariant(r=replicas)
    def epoch_and_vote_are_stored(self, r: ModelValue) -> bool:
        """A replica never forgets its epoch, nor its vote in it, a candidate's for itself among them."""
        replica, stored = self.replica[r], self.host[r].election
        given = {vote for voter, epoch, vote in self.history.votes if voter == replica.key and epoch == stored.epoch}
        return replica.epoch == stored.epoch and replica.voted == stored.voted and given <= {stored.voted}

    @invariant(r=replicas)
    def the_index_is_that_of_the_log(self, r: ModelValue) -> bool:
        """A replica knows where its log ends, and up to where it is stored."""
        replica, host = self.replica[r], self.host[r]
        return replica.log.end == _end(host.log) and replica.stored_end <= host.durable
