"""The replicas of a quorum themselves: the role that members run, explored state by state.

The role is not modelled again. Each host has a :class:`fencepost.quorum.roles.replica.Replica` and a disk. Every step
gives a replica an event, or moves the world around it. `quorum` covers the same by the rules alone; in this protocol
the role's own requests and answers are in flight, its timers fire at any time that is allowed, and its batches become
durable later than they are appended.

The world is a driver's. The epoch and the vote are durable before anything else is done. From one replica to another,
only the latest request and the latest answer are in flight; an overtaken one is lost. A crash loses what is not
durable. There is no clock: a timer that is set may fire, but a replica asks again only if nothing is in flight from it
or to it. State that only delays an election, such as the number of elections lost in a row, is reset, and an observer
tries any endpoint next to find its leader.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, ClassVar

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
    sometimes,
    state,
)
from fencepost.protocols.protections import switched_on
from fencepost.quorum.identity import NO_VOTERS, Node, ReplicaKey, VoterSet
from fencepost.quorum.log import EMPTY_SNAPSHOT, Batch, LogIndex, OffsetAndEpoch, Snapshot, VotersRecord
from fencepost.quorum.messages import AddVoter, RemoveVoter, Request, Response, Vote, VoteResponse
from fencepost.quorum.roles import interface as role
from fencepost.quorum.roles.replica import Replica
from fencepost.quorum.rules import Error, Protections
from fencepost.quorum.transitions import State

REMOVAL: Mapping[str, Any] = {"replicas": 2, "removals": 1, "proposals": 0, "timeouts": 2}
"""Constants that several configurations share."""


class Start(enum.Enum):
    """What has happened before the initial state."""

    FRESH = "nothing: all voters begin"
    ESTABLISHED = "the first voter leads, and all is quiet"
    ADDED = "the first voter has led, has added the last replica, which only voters know, and resigns"
    REMOVED = "the first voter has led, has removed the last one, which nobody else knows, and the second one leads"
    PARTED = "the first voter has led, has stored a record that nobody else has, and resigns"


class Host:
    """The disk of a host, and the state of its driver.

    ``election``: what is stored of it. ``snapshot``: the last one. ``log`` has its batches, too: those ahead of
    ``start`` are in no other file, and those ahead of ``durable`` are stored. ``timers``: those that are set.
    ``committed``: how far the state machine has applied the log. ``installing``: the end of a snapshot that is being
    fetched.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.election = role.ElectionState()
        self.snapshot = snapshot
        self.log: tuple[Batch, ...] = ()
        self.start = self.durable = 0
        self.timers: frozenset[role.Timer] = frozenset()
        self.committed = 0
        self.installing: OffsetAndEpoch | None = None


class Wire:
    """The messages in flight from one replica to another."""

    def __init__(self) -> None:
        self.request: Request | None = None
        self.response: Response | None = None


class History:
    """Everything that has happened. ``committed``: the records that a leader has committed, the last of them while
    ``voters`` were its voters. ``votes``: each vote, with its epoch and candidate. ``led``: the leader of each epoch.
    ``distrusted``: messages that no correct member sends.
    """

    def __init__(self) -> None:
        self.committed: tuple[Batch, ...] = ()
        self.voters: VoterSet = NO_VOTERS
        self.votes: frozenset[tuple[ReplicaKey, int, ReplicaKey]] = frozenset()
        self.led: frozenset[tuple[int, ReplicaKey]] = frozenset()
        self.distrusted: str | None = None


def key_of(r: ModelValue) -> ReplicaKey:
    """The replica of a host, identified by its disk."""
    return ReplicaKey(r.index + 1, "d")


def node_of(r: ModelValue) -> Node:
    """The replica of a host, and its endpoint."""
    return Node(key_of(r), f"{r.name}:1")


def _ahead(log: tuple[Batch, ...], offset: int) -> tuple[Batch, ...]:
    return tuple(batch for batch in log if batch.end_offset <= offset)


def _end(log: tuple[Batch, ...]) -> OffsetAndEpoch:
    return OffsetAndEpoch(log[-1].end_offset, log[-1].epoch) if log else OffsetAndEpoch(0, 0)


class Replicas(Protocol):
    """Voters elect leaders and replicate a log, each with the role that members of a quorum run."""

    name: ClassVar[str] = "quorum-replica"

    replicas: tuple[ModelValue, ...] = model_values("r", 3, "the replicas")
    observers: int = constant(0, "how many of them, the last ones, are not voters at the beginning")
    moved: int = constant(
        0, "how many of them, the last ones, have another endpoint than the voters' configuration says"
    )
    start: Start = constant(Start.ESTABLISHED, "what has happened before the initial state")
    max_epoch: int = constant(2, "no election is held beyond this epoch")
    timeouts: int = constant(1, "how often a voter gives up waiting for a leader, or for votes")
    resignations: int = constant(0, "how often a leader finds that no majority fetches")
    losses: int = constant(0, "messages that are lost, besides those that are overtaken")
    proposals: int = constant(1, "records that are proposed")
    restarts: int = constant(0, "crashes, which lose what is not durable")
    additions: int = constant(0, "how often a leader is asked to add a voter")
    removals: int = constant(0, "how often a leader is asked to remove a voter")
    updates: int = constant(0, "how often a voter reports its endpoint to its leader")
    snapshots: int = constant(0, "snapshots that are taken; no records ahead of one are kept")

    one_vote_an_epoch: bool = constant(True, "whether a replica votes for one candidate of an epoch only")
    logs_are_compared: bool = constant(True, "whether no replica votes for a candidate whose log is behind its own")
    leader_counts_stored: bool = constant(True, "whether a leader counts itself only up to what it has stored")
    logs_are_matched: bool = constant(True, "whether a follower truncates records that its leader does not have")
    votes_are_kept: bool = constant(True, "whether an observer that loses its leader remembers its vote")
    majority_of_voters: bool = constant(True, "whether only votes of voters count")
    only_voters_count: bool = constant(True, "whether a leader that is not a voter does not count itself")
    one_change_at_a_time: bool = constant(True, "whether voters change only when the last change is committed")
    commit_before_change: bool = constant(True, "and only when a leader has committed a record of its epoch")
    removed_leader_resigns: bool = constant(True, "whether a leader resigns when its own removal is committed")
    removed_voters_campaign: bool = constant(
        True, "whether a replica whose removal may not be committed stands for election"
    )

    replica: PerKey[ModelValue, Replica] = per_key(replicas, actor(lambda protocol, r: protocol.new_replica(r)))
    host: PerKey[ModelValue, Host] = per_key(replicas, actor(lambda protocol, r: Host(protocol.beginning(r))))
    wire: PerKey[ModelValue, PerKey[ModelValue, Wire]] = per_key(
        replicas, per_key(replicas, actor(lambda protocol, source, dest: Wire()))
    )
    history: History = actor(lambda protocol: History())
    timed_out: int = state(0)
    resigned: int = state(0)
    lost: int = state(0)
    proposed: int = state(0)
    restarted: int = state(0)
    added: int = state(0)
    removed: int = state(0)
    updated: int = state(0)
    snapshotted: int = state(0)

    configurations = {
        "default": configuration(doc="a leader, one record, and a voter that stands for election"),
        "first-election": configuration(
            start=Start.FRESH, max_epoch=1, proposals=0, doc="three voters that start, one of which stands for election"
        ),
        "losses": configuration(losses=1, doc="as the default, and a message is lost"),
        "resignation": configuration(timeouts=0, resignations=1, doc="a leader that no majority fetches from resigns"),
        "succession": configuration(
            start=Start.PARTED, proposals=0, doc="another voter is elected, and the first one has an extra record"
        ),
        "crash": configuration(timeouts=0, restarts=1, doc="a replica crashes, and loses what is not durable"),
        "crash-and-election": configuration(
            restarts=1, proposals=0, doc="a replica crashes, and a voter stands for election: a large one"
        ),
        "two-elections": configuration(timeouts=2, doc="voters stand for election twice: a large one"),
        "observer": configuration(
            observers=1,
            start=Start.FRESH,
            max_epoch=1,
            timeouts=2,
            proposals=0,
            doc="two voters that start, and an observer that looks for a leader",
        ),
        "addition": configuration(observers=1, additions=1, proposals=0, doc="an observer is made a voter"),
        "added-and-removed": configuration(
            replicas=2,
            observers=1,
            additions=1,
            removals=1,
            proposals=0,
            doc="a voter is added, and one removed",
        ),
        "removal": configuration(removals=1, proposals=0, doc="one of three voters is removed: a large one"),
        "removal-of-two": configuration(
            **REMOVAL,
            resignations=1,
            doc="one of two voters is removed, and a leader is elected to commit that",
        ),
        "removal-and-crash": configuration(
            replicas=2, removals=1, restarts=1, proposals=0, doc="one of two voters is removed, and one crashes"
        ),
        "removal-undone": configuration(
            start=Start.REMOVED, max_epoch=3, proposals=0, doc="a leader that does not have a removal undoes it"
        ),
        "moved": configuration(
            moved=1,
            updates=1,
            timeouts=2,
            proposals=0,
            doc="a voter has another endpoint than the voters' configuration says",
        ),
        "snapshots": configuration(
            observers=1,
            start=Start.FRESH,
            max_epoch=1,
            proposals=0,
            snapshots=1,
            doc="a voter makes a snapshot, and an observer that joins fetches it",
        ),
        "snapshots-and-crash": configuration(
            replicas=2,
            observers=1,
            start=Start.FRESH,
            proposals=0,
            snapshots=1,
            restarts=1,
            doc="as before, with a single voter and a crash",
        ),
        "added-unknown": configuration(
            observers=1,
            start=Start.ADDED,
            proposals=0,
            doc="an observer votes that is a voter and does not know it: a large one",
        ),
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
            doc="a replica votes for a candidate whose log is behind",
        ),
        "logs-not-matched": configuration(
            timeouts=2,
            logs_are_matched=False,
            expect="what_is_committed_is_durable",
            doc="a follower keeps records that its leader does not have",
        ),
        "votes-forgotten": configuration(
            observers=1,
            start=Start.ADDED,
            timeouts=3,
            proposals=0,
            votes_are_kept=False,
            expect="epoch_and_vote_are_stored",
            doc="an observer that loses its leader forgets its vote",
        ),
        "votes-of-anyone": configuration(
            **REMOVAL,
            resignations=1,
            majority_of_voters=False,
            expect="one_leader_an_epoch",
            doc="a replica that was removed counts its own vote",
        ),
        "removed-leader-counts": configuration(
            removals=1,
            timeouts=0,
            proposals=0,
            only_voters_count=False,
            expect="what_is_committed_is_durable",
            doc="a leader that has removed itself counts itself",
        ),
        "two-changes": configuration(
            removals=2,
            timeouts=2,
            proposals=0,
            one_change_at_a_time=False,
            expect="leaders_have_what_is_committed",
            doc="a voter is removed before the removal of another is committed: a large one",
        ),
        "change-before-commit": configuration(
            replicas=4,
            start=Start.REMOVED,
            max_epoch=3,
            removals=1,
            proposals=0,
            commit_before_change=False,
            expect="leaders_have_what_is_committed",
            doc="a leader that has committed nothing removes a voter: a large one",
        ),
        "removed-leader-stays": configuration(
            **REMOVAL,
            removed_leader_resigns=False,
            expect="removed_leaders_step_down",
            doc="a leader goes on when its own removal is committed",
        ),
        "removed-leader-waits": configuration(
            **REMOVAL,
            resignations=1,
            removed_voters_campaign=False,
            expect="removed_voters_are_elected",
            doc="nobody is elected to commit the removal of a leader of two",
        ),
    }

    @property
    def protections(self) -> Protections:
        """The protections that are on."""
        return switched_on(self, Protections)

    def new_replica(self, r: ModelValue) -> Replica:
        """The role of a host whose process starts."""
        settings = role.QuorumSettings(records_kept=0)
        return Replica(node_of(r), settings, self._endpoints_but(r), protections=self.protections)

    def _endpoints_but(self, r: ModelValue) -> tuple[str, ...]:
        return tuple(node_of(each).endpoint for each in self.replicas if each != r)

    @property
    def first_voters(self) -> tuple[ModelValue, ...]:
        """The voters at the beginning."""
        return self.replicas[: len(self.replicas) - self.observers]

    def beginning(self, r: ModelValue) -> Snapshot:
        """The snapshot that a replica starts with."""
        if r not in self.first_voters:
            return EMPTY_SNAPSHOT
        stays = len(self.replicas) - self.moved
        nodes = (node_of(each) if each.index < stays else Node(key_of(each), "gone:1") for each in self.first_voters)
        return Snapshot(OffsetAndEpoch(0, 0), VoterSet.of(nodes))

    @initial
    def all_start(self) -> None:
        """All replicas start, with only the voters on their disks. ``start`` decides what follows."""
        for r in self.replicas:
            self._start(r)
        if self.start is not Start.FRESH:
            if not self.replica[self.replicas[0]].leads:
                self._fire(self.replicas[0], role.Timer.ELECTION)
            while self._settles():
                pass
        if self.start not in (Start.FRESH, Start.ESTABLISHED):
            first, *others, last = self.replicas
            match self.start:
                case Start.PARTED:
                    self._give(first, role.Proposed(0, (b"0",)))
                case Start.REMOVED:
                    self._administer(first, RemoveVoter(key_of(last), when_committed=False))
                case Start.ADDED:
                    self._administer(first, AddVoter(node_of(last), when_committed=False))
                    for r in others:
                        self.response_comes(first, r)
                        self.disk_syncs(r)
            self.disk_syncs(first)
            self._disconnect(first)
            self._give(first, role.Resign())
            if self.start is Start.REMOVED:
                self._is_succeeded(others[0])

    def _is_succeeded(self, second: ModelValue) -> None:
        """Let the second voter be elected, without the first one knowing."""
        first, *others = self.replicas
        for r in (first, *others):
            self._disconnect(r)
            if r != first:
                self._fire(r, role.Timer.FETCH)
        for r in others:
            self._disconnect(r)
        self._fire(second, role.Timer.VOTE_RETRY)
        while not self.replica[second].leads:
            self._settles()
        self._disconnect(first)

    def _disconnect(self, r: ModelValue) -> None:
        """Lose the messages in flight from a replica and to it."""
        for other in self.replicas:
            self.wire[r][other] = self.wire[other][r] = Wire()

    def _settles(self) -> bool:
        """Let the first event happen that needs no timeout. Return whether there was one."""
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
        for r in self.replicas:
            if not self.replica[r].may_campaign and self.replica[r].state is State.UNATTACHED:
                self._fire(r, role.Timer.RETRY)
                return True
        return False

    def _start(self, r: ModelValue) -> None:
        host = self.host[r]
        index = LogIndex(host.snapshot, host.start, _end(_ahead(host.log, host.start)).epoch)
        for batch in host.log[len(_ahead(host.log, host.start)) :]:
            index.append(batch)
        host.timers, host.committed, host.installing = frozenset(), host.snapshot.end.offset, None
        self.replica[r] = self.new_replica(r)
        self._give(r, role.Started(host.election, index))

    # -- the role and its driver ---------------------------------------------------------------------------------------

    def _give(self, r: ModelValue, event: role.Event) -> None:
        """Give a replica an event, and carry out the effects."""
        replica = self.replica[r]
        led = replica.leads  # it may commit its own removal, and resign
        for effect in replica.receive(event):
            if isinstance(effect, role.Commit):
                self._commit(r, effect.offset, led)
            else:
                self._do(r, effect)
        if replica._ballot.rounds or replica._following.asked:
            replica.forget_tries()

    def _do(self, r: ModelValue, effect: role.Effect) -> None:
        host = self.host[r]
        match effect:
            case role.StoreState():
                host.election = effect.election
            case role.Append():
                host.log = (*host.log, *effect.batches)
            case role.Truncate():
                host.log = _ahead(host.log, effect.end_offset)
                host.durable = min(host.durable, effect.end_offset)
            case role.SetTimer():
                host.timers |= {effect.timer}
            case role.CancelTimer():
                host.timers -= {effect.timer}
            case role.Send():
                if isinstance(effect.request, Vote) and not effect.request.pre_vote:
                    self.history.votes |= {(key_of(r), effect.request.epoch, key_of(r))}
                for peer in self.replicas:
                    if node_of(peer).endpoint == effect.endpoint:
                        self.wire[r][peer].request = effect.request
            case role.Reply():
                self._reply(r, effect.connection, effect.response)
            case role.ReplyWithBatches():
                batches = tuple(batch for batch in host.log if batch.base_offset >= effect.response.log_end.offset)
                self._reply(r, effect.connection, msgspec.structs.replace(effect.response, batches=batches))
            case role.ReplyWithSnapshot():
                there = effect.response.snapshot == host.snapshot.end
                error = Error.NONE if there else Error.SNAPSHOT_NOT_FOUND
                response = msgspec.structs.replace(effect.response, error=error, size=1, data=b"1" if there else b"")
                self._reply(r, effect.connection, response)
            case role.InstallSnapshot():
                host.installing = effect.snapshot
            case role.DeleteBefore():
                host.start = effect.offset
            case role.Distrusted():
                self.history.distrusted = effect.reason
            case role.LeaderChanged():
                if effect.leader is not None and effect.leader.key == key_of(r):
                    self.history.led |= {(effect.epoch, effect.leader.key)}

    def _reply(self, r: ModelValue, connection: int, response: Response) -> None:
        """Send an answer. The number of a connection is that of the host at its other end; an administrator has
        none.
        """
        if connection < 0:
            return
        peer = self.replicas[connection]
        self.wire[r][peer].response = response
        if isinstance(response, VoteResponse) and response.granted and not response.pre_vote:
            self.history.votes |= {(key_of(r), response.epoch, key_of(peer))}

    def _commit(self, r: ModelValue, offset: int, led: bool) -> None:
        self.host[r].committed = offset
        if led and offset > _end(self.history.committed).offset:
            self.history.committed, self.history.voters = _ahead(self.host[r].log, offset), self.replica[r].voters

    # -- events --------------------------------------------------------------------------------------------------------

    @action(source=replicas, r=replicas, by="r")
    def request_comes(self, source: ModelValue, r: ModelValue) -> None:
        """A request arrives at its replica."""
        require(source != r)
        request = self.wire[source][r].request
        require(request is not None)
        assert request is not None
        self.wire[source][r].request = None
        self._give(r, role.RequestReceived(source.index, request))

    @action(source=replicas, r=replicas, by="r")
    def response_comes(self, source: ModelValue, r: ModelValue) -> None:
        """An answer arrives at the replica that has asked."""
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
        require(self.replica[r].epoch < self.max_epoch or not self.replica[r].may_campaign)
        timer = one_of((role.Timer.ELECTION, role.Timer.FETCH))
        self._fire(r, timer)
        self.timed_out += 1

    @action(r=replicas)
    def resigns(self, r: ModelValue) -> None:
        """A leader checks whether a majority fetches, when none does."""
        require(self.resigned < self.resignations)
        self.resigned += 1
        self._fire(r, role.Timer.CHECK_QUORUM)

    @action(r=replicas)
    def tries_again(self, r: ModelValue) -> None:
        """A replica without an answer asks again."""
        others = [other for other in self.replicas if other != r]
        require(all(self.wire[r][other].request is None for other in others))
        require(all(self.wire[other][r].response is None for other in others))
        timer = one_of((role.Timer.RETRY, role.Timer.VOTE_RETRY))
        replica = self.replica[r]
        if timer is role.Timer.RETRY and replica.state is not State.FOLLOWER:
            replica.forget_tries(one_of(range(len(others))))
        self._fire(r, timer)

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
        """The state machine of a leader appends a record."""
        require(self.proposed < self.proposals)
        require(self.replica[r].leads)
        self.proposed += 1
        self._give(r, role.Proposed(0, (b"%d" % self.proposed,)))

    @action(r=replicas)
    def is_asked_to_add(self, r: ModelValue) -> None:
        """An administrator asks a leader to make another replica a voter."""
        require(self.added < self.additions)
        require(self.replica[r].leads)
        self.added += 1
        other = one_of([each for each in self.replicas if key_of(each) not in self.replica[r].voters])
        self._administer(r, AddVoter(node_of(other), when_committed=False))

    @action(r=replicas)
    def is_asked_to_remove(self, r: ModelValue) -> None:
        """An administrator asks a leader to remove a voter, perhaps itself."""
        require(self.removed < self.removals)
        require(self.replica[r].leads)
        self.removed += 1
        other = one_of([each for each in self.replicas if key_of(each) in self.replica[r].voters])
        self._administer(r, RemoveVoter(key_of(other), when_committed=False))

    def _administer(self, r: ModelValue, request: Request) -> None:
        before = self.host[r].log
        self._give(r, role.RequestReceived(-1, request))
        require(self.host[r].log != before)  # a refused request changes nothing

    @action(r=replicas)
    def tells_where_it_is(self, r: ModelValue) -> None:
        """A voter whose endpoint is not the one in the configuration reports it to its leader."""
        require(self.updated < self.updates)
        self.updated += 1
        self._fire(r, role.Timer.JOIN)

    @action(r=replicas)
    def takes_snapshot(self, r: ModelValue) -> None:
        """The state machine of a replica makes a snapshot of what it has applied, which is durable."""
        host = self.host[r]
        require(self.snapshotted < self.snapshots)
        require(host.snapshot.end.offset < host.committed)
        self.snapshotted += 1
        end = _end(_ahead(host.log, host.committed))
        host.snapshot = Snapshot(end, self.replica[r].log.configuration_at(end.offset))
        self._give(r, role.SnapshotTaken(host.snapshot))

    @action(r=replicas)
    def installs_snapshot(self, r: ModelValue) -> None:
        """A fetched snapshot is durable, and the log restarts after it."""
        host, end = self.host[r], self.host[r].installing
        require(end is not None)
        assert end is not None
        host.installing = None
        host.log = _ahead(self.history.committed, end.offset)
        host.snapshot = Snapshot(end, self._voters_of(host.log))
        host.start = host.durable = host.committed = end.offset
        self._give(r, role.SnapshotInstalled(host.snapshot))

    def _voters_of(self, log: tuple[Batch, ...]) -> VoterSet:
        """The last configuration of a whole log."""
        changes = [batch.control.voters for batch in log if isinstance(batch.control, VotersRecord)]
        return changes[-1] if changes else self.beginning(self.replicas[0]).voters

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
        """A replica crashes, and restarts with what is durable. Its connections break."""
        require(self.restarted < self.restarts)
        self.restarted += 1
        host, end = self.host[r], self.host[r].snapshot.end.offset
        if host.durable < end:  # the log restarts after the snapshot
            host.start = host.durable = end
        host.log = _ahead(host.log, host.durable)
        self._disconnect(r)
        self._start(r)

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant
    def nobody_is_distrusted(self) -> bool:
        """No member considers another one faulty."""
        return self.history.distrusted is None

    @invariant
    def one_leader_an_epoch(self) -> bool:
        """An epoch never has more than one leader."""
        led = self.history.led
        return len({epoch for epoch, _ in led}) == len(led)

    @invariant
    def one_vote_for_each_epoch(self) -> bool:
        """A replica never votes twice in an epoch."""
        votes = self.history.votes
        return len({(voter, epoch) for voter, epoch, _ in votes}) == len(votes)

    @invariant(r=replicas)
    def what_is_applied_is_committed(self, r: ModelValue) -> bool:
        """A state machine has applied only records that a leader has committed."""
        host, committed = self.host[r], self.history.committed
        applied = _ahead(host.log, host.committed)
        return applied == committed[: len(applied)] and _end(applied).offset == host.committed

    @invariant
    def what_is_committed_is_durable(self) -> bool:
        """A majority of the voters has stored every committed record."""
        committed, voters = self.history.committed, self.history.voters.keys
        having = [r for r in self.replicas if key_of(r) in voters and self._has_stored(r, committed)]
        return not committed or 2 * len(having) > len(voters)

    def _has_stored(self, r: ModelValue, committed: tuple[Batch, ...]) -> bool:
        host, end = self.host[r], _end(committed).offset
        return max(host.durable, host.snapshot.end.offset) >= end and host.log[: len(committed)] == committed

    @invariant(r=replicas)
    def leaders_have_what_is_committed(self, r: ModelValue) -> bool:
        """The leader of the latest epoch has every committed record."""
        replica, committed = self.replica[r], self.history.committed
        if replica.state is not State.LEADER or any(self.replica[o].epoch > replica.epoch for o in self.replicas):
            return True
        return self.host[r].log[: len(committed)] == committed

    @invariant(r=replicas)
    def epoch_and_vote_are_stored(self, r: ModelValue) -> bool:
        """A replica never forgets its epoch, nor its vote in it. This includes a candidate's vote for itself."""
        replica, stored = self.replica[r], self.host[r].election
        given = {vote for voter, epoch, vote in self.history.votes if voter == replica.key and epoch == stored.epoch}
        return replica.epoch == stored.epoch and replica.voted == stored.voted and given <= {stored.voted}

    @invariant(r=replicas)
    def the_index_is_that_of_the_log(self, r: ModelValue) -> bool:
        """A replica knows the end of its log, up to where it is stored, and the voters."""
        replica, host = self.replica[r], self.host[r]
        is_known = not host.log or replica.voters == self._voters_of(host.log)
        return replica.log.end == _end(host.log) and replica.stored_end <= host.durable and is_known

    @invariant(r=replicas)
    def removed_leaders_step_down(self, r: ModelValue) -> bool:
        """A removed leader stops leading when its removal is committed."""
        replica = self.replica[r]
        return not replica.leads or replica.is_voter or replica.log.voters_offset >= replica.high_watermark

    # -- what must be possible -----------------------------------------------------------------------------------------

    @sometimes(when=lambda protocol: protocol.removed_voters_can_be_elected)
    def removed_voters_are_elected(self) -> bool:
        """A voter was elected after its own removal, which no other replica could have been sure to commit."""
        return any(
            self.replica[r].leads
            and not self.replica[r].is_voter
            and any(batch.epoch < self.replica[r].epoch and self._removes(batch, r) for batch in self.host[r].log)
            for r in self.replicas
        )

    def _removes(self, batch: Batch, r: ModelValue) -> bool:
        return isinstance(batch.control, VotersRecord) and key_of(r) not in batch.control.voters

    @property
    def removed_voters_can_be_elected(self) -> bool:
        """Whether a leader of two that has removed itself may resign, and stand for election again."""
        is_one_of_two = len(self.replicas) == 2 and not self.observers and self.removals > 0
        return is_one_of_two and self.resignations > 0 and self.timeouts > 0 and self.max_epoch > 1
