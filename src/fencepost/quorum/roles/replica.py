"""A replica: voter or observer, follower, candidate or leader, as a state machine without I/O.

:mod:`fencepost.quorum.rules` makes its decisions, and only :mod:`fencepost.quorum.transitions` changes its state. It
knows its log as a :class:`fencepost.quorum.log.LogIndex`. See :mod:`fencepost.quorum.roles.interface` for its events
and effects, and for what must be durable before what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fencepost.quorum import rules
from fencepost.quorum.identity import Node, ReplicaKey, VoterSet, is_endpoint
from fencepost.quorum.log import EMPTY_SNAPSHOT, Batch, LeaderChange, LogIndex, OffsetAndEpoch, VotersRecord
from fencepost.quorum.messages import (
    AddVoter,
    AddVoterResponse,
    BeginQuorum,
    BeginQuorumResponse,
    DescribeQuorum,
    DescribeQuorumResponse,
    EndQuorum,
    EndQuorumResponse,
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
    RemoveVoter,
    RemoveVoterResponse,
    ReplicaProgress,
    Request,
    Response,
    UpdateVoter,
    UpdateVoterResponse,
    Vote,
    VoteResponse,
)
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
    ElectionState,
    Event,
    InstallSnapshot,
    LeaderChanged,
    LostLeadership,
    Proposed,
    QuorumSettings,
    Refused,
    Reply,
    ReplyWithBatches,
    ReplyWithSnapshot,
    RequestReceived,
    Resign,
    ResponseReceived,
    Send,
    SendHighWatermark,
    SetTimer,
    SnapshotDamaged,
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
from fencepost.quorum.rules import ALL, Election, Error, Learnt, Position, Protections
from fencepost.quorum.transitions import Cause, State, transition

DEFAULTS = QuorumSettings()

IDLE_TICKS = 6
"""A leader forgets an observer that has not fetched for this number of checks. It checks every half fetch timeout."""

_WITH_ELECTION_TIMER = frozenset({State.UNATTACHED, State.VOTED, State.PROSPECTIVE, State.CANDIDATE, State.RESIGNED})


class Progress:
    """How far the log of another replica reaches, as its leader knows it."""

    __slots__ = ("caught_up", "end", "end_before", "idle", "wanted")

    def __init__(self) -> None:
        self.end = -1
        """Its end offset; -1 if it has not fetched in this epoch."""
        self.end_before: int | None = None
        """The end of the leader's log when the replica last fetched."""
        self.caught_up = False
        """Whether it had caught up at its last fetch, see :func:`.rules.has_caught_up`."""
        self.wanted = -1
        """The replica gets a high watermark up to this one at once. A later one may wait."""
        self.idle = 0
        """The leader's checks since the replica last fetched, or since the election."""


class Ballot:
    """The votes, or pre-votes, that other voters gave in an election."""

    __slots__ = ("granted", "refused", "rounds")

    def __init__(self) -> None:
        self.granted: set[ReplicaKey] = set()
        self.refused: set[ReplicaKey] = set()
        self.rounds = 0
        """Consecutive elections without a leader."""

    def open(self, me: ReplicaKey) -> None:
        """Begin another election. The replica ``me`` votes for itself."""
        self.granted, self.refused = {me}, set()


class Resignation:
    """A leader's announcement that it has resigned, until its epoch is over."""

    __slots__ = ("acknowledged", "successors")

    def __init__(self) -> None:
        self.successors: tuple[ReplicaKey, ...] = ()
        """The other voters, longest log first."""
        self.acknowledged: set[ReplicaKey] = set()
        """The voters that need no further announcement."""


class Following:
    """The fetches of a follower, and of an observer that looks for a leader."""

    __slots__ = ("asked", "fetching", "heard", "installing", "snapshot")

    def __init__(self) -> None:
        self.heard = False
        """Whether the leader has answered a fetch."""
        self.fetching: OffsetAndEpoch | None = None
        """The end of the log that the unanswered fetch reports."""
        self.asked = 0
        """How many endpoints were asked for the leader."""
        self.snapshot: tuple[OffsetAndEpoch, int] | None = None
        """The snapshot that is being fetched, and how many of its bytes have arrived."""
        self.installing: OffsetAndEpoch | None = None
        """The snapshot that is fetched and not yet loaded."""


class Leading:
    """The state of a leader."""

    __slots__ = ("answers_later", "change", "epoch_start", "fetched", "is_up", "progress", "waiting")

    def __init__(self, epoch_start: int) -> None:
        self.epoch_start = epoch_start
        self.progress: dict[ReplicaKey, Progress] = {}
        self.fetched: set[ReplicaKey] = set()
        """The replicas that have fetched since the quorum check began. A majority makes it begin anew."""
        self.waiting: dict[ReplicaKey, tuple[int, Fetch]] = {}
        """The fetches that wait for news: connection and request."""
        self.answers_later = False
        """Whether a timer runs after which all of them get the new high watermark."""
        self.is_up = False
        """Whether it has committed a record of its epoch."""
        self.change: tuple[int, AddVoter | RemoveVoter] | None = None
        """The change of voters to answer when it is committed: connection and request."""


class Replica:
    """One replica of the log; ``me`` is its host and directory.

    ``bootstrap``: endpoints to ask for the leader when no configuration helps. ``protections``: the simulator turns
    some off to plant faults. ``traces``: emit :class:`.Trace` effects.
    """

    def __init__(
        self,
        me: Node,
        settings: QuorumSettings = DEFAULTS,
        bootstrap: Sequence[str] = (),
        protections: Protections = ALL,
        traces: bool = False,
    ) -> None:
        self.me = me
        self.key = me.key
        self.settings = settings
        self.bootstrap = tuple(bootstrap)
        self.protections = protections
        self.traces = traces
        self.state = State.UNATTACHED
        self.epoch = 0
        self.voted: ReplicaKey | None = None
        self.leader: Node | None = None
        self.log = LogIndex(EMPTY_SNAPSHOT)
        self.stored_end = 0
        """The log is durable up to this offset."""
        self.high_watermark = 0
        self._stored = ElectionState()
        """The election state that was last stored."""
        self._ballot = Ballot()
        self._resignation = Resignation()
        self._following = Following()
        self._leading: Leading | None = None
        self._entry: Node | None = None
        """This replica's entry in the configuration, as last checked."""
        self._effects: list[Effect] = []

    def receive(self, event: Event) -> list[Effect]:
        """Take an event. Returns the effects to carry out, in order.

        No message makes it fail. A message that no correct member sends is refused or ignored, see
        :class:`.Distrusted`. Raises :class:`fencepost.quorum.transitions.IllegalTransition` for a defect of the replica
        itself. Then the replica must be stopped, and its effects discarded.
        """
        getattr(self, _ON_EVENT[type(event)].__name__)(event)  # tests override handlers in subclasses to plant faults
        effects, self._effects = self._effects, []
        return effects

    # -- its own state -------------------------------------------------------------------------------------------------

    @property
    def voters(self) -> VoterSet:
        """The configuration in use."""
        return self.log.voters

    @property
    def is_voter(self) -> bool:
        """Whether it is a voter; otherwise it is an observer."""
        return self.key in self.log.voters

    @property
    def may_campaign(self) -> bool:
        """Whether it may stand for election."""
        log = self.log
        if self.key in log.voters:
            return True
        was_voter = self.key in log.configuration_at(log.voters_offset)
        return rules.may_campaign(False, was_voter, log.voters_offset < self.high_watermark, self.protections)

    @property
    def leads(self) -> bool:
        """Whether it leads its epoch, as far as it knows."""
        return self.state is State.LEADER

    @property
    def others(self) -> dict[ReplicaKey, int]:
        """On the leader, where the logs of the others end, as far as it knows; -1: unknown."""
        return {} if self._leading is None else {key: each.end for key, each in self._leading.progress.items()}

    @property
    def known_leader(self) -> Node | None:
        """The leader of its epoch. None while it asks for pre-votes, since it has given up on that leader."""
        return None if self.state is State.PROSPECTIVE else self.leader

    @property
    def _durable_end(self) -> OffsetAndEpoch:
        """The end of what is durable in the log or the snapshot. A leader may count it towards the high watermark."""
        snapshot = self.log.snapshot.end
        if self.stored_end <= snapshot.offset:
            return snapshot
        return OffsetAndEpoch(self.stored_end, self.log.epoch_ahead_of(self.stored_end))

    def forget_tries(self, asked: int = 0) -> None:
        """Reset the backoff of elections, and the count of endpoints that were asked for a leader."""
        self._ballot.rounds, self._following.asked = 0, asked

    def _do(self, *effects: Effect) -> None:
        self._effects += effects

    def _trace(self, action: str, **fields: Any) -> None:
        if self.traces:
            self._do(Trace(action, fields))

    # -- start and resignation -----------------------------------------------------------------------------------------

    def _started(self, event: Started) -> None:
        election, self.log = event.election, event.log
        self._stored = election
        self.stored_end = self.log.end_offset
        self.high_watermark = self.log.snapshot.end.offset
        self._entry = self.voters.node(self.key)
        self.epoch, self.voted, self.leader = election.epoch, election.voted, election.leader
        if self.log.last_epoch > self.epoch:
            self.epoch, self.voted, self.leader = self.log.last_epoch, None, None
        has_led = self.leader is not None and self.leader.key == self.key
        self.state = rules.restarts_as(has_led, self.voted is not None, self.leader is not None)
        if self.state is not State.FOLLOWER:
            self.leader = None
        self._trace_start()
        self._do(VotersChanged(self.is_voter), LeaderChanged(self.epoch, self.leader))
        if self.state is State.FOLLOWER:
            self._follow()
            return
        if self.voters.keys == {self.key}:
            self._become_prospective()
        elif self.state is State.RESIGNED:
            self._announce_end_of_quorum(())
        else:
            self._wait_for_leader()

    def _trace_start(self) -> None:
        if self.traces:
            stored, log = self._stored, self.log
            self._trace(
                "restart_with_state",
                replica=str(self.key),
                host=self.key.host_id,
                epoch=stored.epoch,
                voted=None if stored.voted is None else str(stored.voted),
                leader=None if stored.leader is None else str(stored.leader.key),
                snapshot=_pair(log.snapshot.end),
                end=_pair(log.end),
                voters=_names(self.voters),
                state=self.state.value,
            )

    def _resign(self, event: Resign) -> None:
        if self.leads:
            self._become_resigned()

    def _wait_for_leader(self) -> None:
        """A voter waits for an election, and an observer looks for a leader."""
        if self.may_campaign:
            self._set_election_timer()
        else:
            self._do(CancelTimer(Timer.ELECTION))
            self._ask_for_leader()

    def _set_election_timer(self) -> None:
        timeout = self.settings.election_timeout
        self._do(SetTimer(Timer.ELECTION, timeout, 2 * timeout))

    def _back_off(self) -> None:
        """Wait before the next election, twice as long each time."""
        longest = self.settings.election_backoff
        shortest = max(1, longest // 20)
        self._do(SetTimer(Timer.ELECTION, shortest, min(longest, shortest << min(self._ballot.rounds, 20))))

    # -- transitions ---------------------------------------------------------------------------------------------------

    def _change(self, cause: Cause, epoch: int, voted: ReplicaKey | None, leader: Node | None) -> None:
        """Change the state by the table of transitions, and store the election state if it changed."""
        before, leading = self.state, self._leading
        former_epoch = self.epoch
        known = self.known_leader
        self.state = transition(before, cause, self.epoch, epoch)
        self.epoch, self.voted, self.leader = epoch, voted, leader
        self._following.fetching = self._following.snapshot = None
        if self.state in (State.UNATTACHED, State.VOTED, State.CANDIDATE, State.LEADER, State.FOLLOWER):
            election = ElectionState(epoch, voted, leader)
            if election != self._stored:
                self._stored = election
                self._do(StoreState(election))
        if before is State.FOLLOWER and self.state is not State.FOLLOWER:
            self._do(CancelTimer(Timer.FETCH), CancelTimer(Timer.RETRY))
        if before in (State.PROSPECTIVE, State.CANDIDATE, State.RESIGNED):
            self._do(CancelTimer(Timer.VOTE_RETRY))
        if leading is not None and self.state is not State.LEADER:
            self._stop_leading(leading, former_epoch)
        if self.known_leader != known:
            self._do(LeaderChanged(self.epoch, self.known_leader))

    def _stop_leading(self, leading: Leading, epoch: int) -> None:
        """Stop leading: answer the waiting fetches and the waiting change of voters accordingly."""
        self._leading = None
        for timer in (Timer.CHECK_QUORUM, Timer.BEGIN_QUORUM, Timer.WAITING_FETCHES, Timer.HIGH_WATERMARK):
            self._do(CancelTimer(timer))
        for connection, fetch in leading.waiting.values():
            self._answer_fetch(connection, fetch, Error.NOT_LEADER)
        if leading.change is not None:
            self._answer_change(*leading.change, Error.TIMED_OUT)
        self._do(LostLeadership(epoch))

    def _become_unattached(self, epoch: int) -> None:
        """There is a later epoch, in which it has not voted. A running election timer is not reset, so that the
        elections of others do not postpone its own.
        """
        was_waiting = self.state in _WITH_ELECTION_TIMER and self.may_campaign
        self._trace("learn_epoch", epoch=epoch)
        self._change(Cause.LATER_EPOCH, epoch, None, None)
        if not was_waiting:
            self._wait_for_leader()

    def _become_voted(self, candidate: ReplicaKey) -> None:
        self._change(Cause.VOTE_GIVEN, self.epoch, candidate, None)
        self._wait_for_leader()

    def _become_prospective(self) -> None:
        """Ask the other voters for pre-votes."""
        self._trace("ask_for_pre_votes")
        self._change(Cause.TIMED_OUT, self.epoch, self.voted, self.leader)
        self._ballot.rounds += 1
        self._ballot.open(self.key)
        self._set_election_timer()
        self._ask_for_votes()

    def _become_candidate(self) -> None:
        """Begin the next epoch, vote for itself, and ask the others for their votes."""
        self._trace("send_request_vote", epoch=self.epoch + 1)
        self._change(Cause.PRE_VOTES_WON, self.epoch + 1, self.key, None)
        self._ballot.open(self.key)
        self._set_election_timer()
        self._ask_for_votes()

    def _become_leader(self) -> None:
        """Begin the epoch with a control record, and notify the voters. Once that record is committed, so is everything
        before it.
        """
        voters = self.voters
        # If no record has the configuration yet, or it has another endpoint of this replica, append it: a replica with
        # an empty log must find it.
        mine = voters.node(self.key)
        is_first = self.log.voters_offset < 0 and self.log.snapshot.end.offset == 0
        renews_voters = mine is not None and (is_first or mine != self.me)
        self._trace("become_leader", epoch=self.epoch, renews=renews_voters)
        self._change(Cause.VOTES_WON, self.epoch, self.voted, self.me)
        self._ballot.rounds = 0
        leading = self._leading = Leading(self.log.end_offset)
        change = LeaderChange(self.key, tuple(sorted(voters.keys)), tuple(sorted(self._ballot.granted & voters.keys)))
        self._append(control=change)
        if renews_voters:
            self._append(control=VotersRecord(voters.without(self.key).having(self.me)))
        self._do(CancelTimer(Timer.ELECTION))
        self._restart_check()
        for key in sorted(voters.keys - {self.key}):
            leading.progress[key] = Progress()
        self._announce_to_voters()

    def _become_follower(self, leader: Node, epoch: int, asked: ReplicaKey | None = None) -> None:
        self._trace("follow", leader=str(leader.key), epoch=epoch, asked=None if asked is None else str(asked))
        self._change(Cause.LEADER_FOUND, epoch, self.voted if epoch == self.epoch else None, leader)
        self._follow()

    def _follow(self) -> None:
        """Begin to fetch from the leader."""
        assert self.leader is not None
        self._following.heard = False
        self._do(CancelTimer(Timer.ELECTION))
        self._set_fetch_timer()
        self._send_fetch()
        if self._has_to_join:
            self._join_later()

    def _become_resigned(self) -> None:
        """Stop leading, and announce it, so that the others need not wait for a timeout."""
        leading = self._leading
        assert leading is not None
        ends = {
            key: leading.progress[key].end if key in leading.progress else -1 for key in self.voters.keys - {self.key}
        }
        self._trace("check_quorum_resign", epoch=self.epoch)
        self._change(Cause.RESIGNS, self.epoch, self.voted, None)
        self._announce_end_of_quorum(tuple(sorted(ends, key=lambda key: (-ends[key], key))))

    def _announce_end_of_quorum(self, successors: tuple[ReplicaKey, ...]) -> None:
        self._set_election_timer()
        self._resignation.successors, self._resignation.acknowledged = successors, {self.key}
        self._ask_again()

    def _lose_leader(self) -> None:
        """An observer, or a removed leader, looks for another leader. It stays in its epoch and keeps its vote."""
        voted = self.voted if self.protections.votes_are_kept else None
        self._trace("lose_leader", epoch=self.epoch, voted=None if voted is None else str(voted))
        self._change(Cause.LEADER_LOST, self.epoch, voted, None)
        self._wait_for_leader()

    # -- timers --------------------------------------------------------------------------------------------------------

    def _timer(self, event: TimerFired) -> None:
        getattr(self, _ON_TIMER[event.timer].__name__)()

    def _election_timeout(self) -> None:
        if self.state not in _WITH_ELECTION_TIMER:
            return
        if not self.may_campaign:
            if self.state is State.RESIGNED:
                self._lose_leader()
            else:
                self._trace("look_for_leader")
                self._ask_for_leader()
        elif self._following.installing is not None:
            self._set_election_timer()  # it cannot lead before the snapshot is loaded
        elif self.state is State.PROSPECTIVE and self.leader is not None:
            self._return_to_leader()
        else:
            self._become_prospective()

    def _fetch_timeout(self) -> None:
        if self.state is not State.FOLLOWER:
            return
        if self._following.installing is not None:
            self._set_fetch_timer()
        elif self.may_campaign:
            self._become_prospective()
        else:
            self._lose_leader()

    def _set_fetch_timer(self) -> None:
        timeout = self.settings.fetch_timeout
        # Spread a little, so that not all followers stand for election at once.
        self._do(SetTimer(Timer.FETCH, timeout, timeout + timeout // 4))

    def _retry(self) -> None:
        """A fetch was not answered in time, or has to be repeated after a failure."""
        if self.state is State.FOLLOWER:
            self._following.fetching = None
            self._send_fetch()
        elif not self.may_campaign and self.state in (State.UNATTACHED, State.VOTED):
            self._ask_for_leader()

    def _disconnected(self, event: Disconnected) -> None:
        """Requests to an endpoint will not be answered: fetch again soon, from the leader or another replica."""
        is_leader = self.state is State.FOLLOWER and self.leader is not None and self.leader.endpoint == event.endpoint
        if is_leader or (not self.may_campaign and self.state in (State.UNATTACHED, State.VOTED)):
            self._retry_soon()

    def _retry_soon(self) -> None:
        backoff = self.settings.retry_backoff
        self._do(SetTimer(Timer.RETRY, backoff, 2 * backoff))

    # -- elections -----------------------------------------------------------------------------------------------------

    def _ask_for_votes(self) -> None:
        """Ask voters that have not answered, repeatedly, until the election is over."""
        self._count_votes()
        if self.state not in (State.PROSPECTIVE, State.CANDIDATE):
            return
        is_pre_vote = self.state is State.PROSPECTIVE
        for node in self.voters.nodes:
            if node.key not in self._ballot.granted and node.key not in self._ballot.refused:
                request = Vote(self.epoch, self.key, node.key, self.log.end, is_pre_vote)
                self._do(Send(node.endpoint, request))
        retry = max(1, self.settings.election_timeout // 4)
        self._do(SetTimer(Timer.VOTE_RETRY, retry, retry))

    def _ask_again(self) -> None:
        """Repeat what voters have not answered: requests for votes, or the announcement of a resignation."""
        if self.state in (State.PROSPECTIVE, State.CANDIDATE):
            if self._election() is Election.OPEN:
                self._ask_for_votes()
        elif self.state is State.RESIGNED:
            for node in self.voters.nodes:
                if node.key not in self._resignation.acknowledged:
                    self._do(Send(node.endpoint, EndQuorum(self.epoch, self.key, self._resignation.successors)))
            retry = max(1, self.settings.election_timeout // 4)
            self._do(SetTimer(Timer.VOTE_RETRY, retry, retry))

    def _election(self) -> Election:
        return rules.count_votes(self._ballot.granted, self._ballot.refused, self.voters.keys, self.protections)

    def _count_votes(self) -> None:
        election = self._election()
        if election is Election.WON:
            if self.state is State.PROSPECTIVE:
                self._become_candidate()
            else:
                self._become_leader()
        elif election is Election.LOST:
            if self.state is State.PROSPECTIVE and self.leader is not None:
                self._return_to_leader()
            else:
                self._back_off()

    def _return_to_leader(self) -> None:
        """The others seem to hear from the leader: go on fetching from it."""
        self._trace("return_to_leader")
        self._change(Cause.PRE_VOTES_LOST, self.epoch, self.voted, self.leader)
        self._follow()

    def _vote(self, connection: int, request: Vote) -> None:
        epoch = request.epoch
        if not rules.is_meant_for(request.voter, self.key, self.protections):
            return self._answer_vote(connection, request, Error.INVALID_VOTER_KEY)
        if epoch < self.epoch:
            return self._answer_vote(connection, request, Error.FENCED_LEADER_EPOCH)
        if request.log_end.epoch > epoch or request.candidate == self.key or rules.is_far_ahead(self.epoch, epoch):
            return self._answer_vote(connection, request, Error.INVALID_REQUEST)
        if epoch > self.epoch:
            self._become_unattached(epoch)
        ends = [(end.epoch, end.offset) for end in (request.log_end, self.log.end)]
        up_to_date = rules.is_up_to_date(ends[0], ends[1], self.protections)
        if request.pre_vote:
            granted = rules.grants_pre_vote(self.state, self._following.heard, up_to_date, self.protections)
        else:
            granted = rules.grants_vote(
                self.state, self.voted, self.leader, request.candidate, up_to_date, self.protections
            )
        self._trace(
            "handle_vote_request",
            candidate=str(request.candidate),
            asked=str(request.voter),
            epoch=epoch,
            end=_pair(request.log_end),
            pre_vote=request.pre_vote,
            granted=granted,
        )
        if granted and not request.pre_vote and self.state is not State.VOTED:
            self._become_voted(request.candidate)
        return self._answer_vote(connection, request, Error.NONE, granted)

    def _answer_vote(self, connection: int, request: Vote, error: Error, granted: bool = False) -> None:
        answer = VoteResponse(self.key, self.epoch, self.known_leader, error, granted, request.pre_vote)
        self._do(Reply(connection, answer))

    def _vote_response(self, response: VoteResponse) -> None:
        is_pre_vote = self.state is State.PROSPECTIVE
        if response.epoch != self.epoch or response.pre_vote != is_pre_vote:
            return
        if not is_pre_vote and self.state is not State.CANDIDATE:
            return
        if self._election() is not Election.OPEN:
            return  # this election is lost, and the next one has not begun
        if response.error is Error.NONE and response.granted:
            self._ballot.granted.add(response.source)
            self._trace("get_pre_vote" if is_pre_vote else "get_vote", peer=str(response.source), epoch=self.epoch)
        else:
            self._ballot.refused.add(response.source)
        self._count_votes()

    # -- epochs --------------------------------------------------------------------------------------------------------

    def _begin_quorum(self, connection: int, request: BeginQuorum) -> None:
        error = Error.NONE
        if not rules.is_meant_for(request.voter, self.key, self.protections):
            error = Error.INVALID_VOTER_KEY
        elif request.epoch < self.epoch:
            error = Error.FENCED_LEADER_EPOCH
        elif not rules.accepts_begin_quorum(self.is_voter, self.settings.begin_quorum_needs_voter):
            error = Error.NOT_VOTER
        elif request.leader.key == self.key or not self._learn(request.epoch, request.leader, request.voter):
            error = Error.INVALID_REQUEST
        self._do(Reply(connection, BeginQuorumResponse(self.key, self.epoch, self.known_leader, error)))

    def _end_quorum(self, connection: int, request: EndQuorum) -> None:
        """The leader has resigned. The voter with the longest log stands for election at once, and the others follow in
        turn.
        """
        error = Error.NONE
        if request.epoch < self.epoch:
            error = Error.FENCED_LEADER_EPOCH
        elif request.leader == self.key or not self._learn(request.epoch, None):
            error = Error.INVALID_REQUEST
        elif self.state is State.FOLLOWER and self.leader is not None and self.leader.key == request.leader:
            if self._following.heard:
                self._trace("hear_end_of_epoch")
            self._following.heard = False
            wait = self._candidacy_delay(request.successors)
            self._do(SetTimer(Timer.FETCH, wait, wait))
        self._do(Reply(connection, EndQuorumResponse(self.key, self.epoch, self.known_leader, error)))

    def _candidacy_delay(self, successors: tuple[ReplicaKey, ...]) -> int:
        """How long to wait before standing for election after a leader has resigned. The first successor does not wait,
        and each one after the second waits twice as long as the one before it.
        """
        longest = self.settings.election_backoff
        if self.key not in successors:
            return longest
        place = successors.index(self.key)
        return min(longest, (longest >> (len(successors) - 1)) << (place - 1)) if place else 0

    def _end_quorum_response(self, response: EndQuorumResponse) -> None:
        if self.state is State.RESIGNED and response.epoch == self.epoch:
            self._resignation.acknowledged.add(response.source)

    def _learn(self, epoch: int, leader: Node | None, asked: ReplicaKey | None = None) -> bool:
        """Learn the epoch that another replica reports, and the leader if it knows one. Returns False if the report
        cannot be true. ``asked``: the replica to which the leader announced itself.
        """
        # The stored leader. Unlike self.leader, it is still this replica after it has resigned.
        known = self._stored.leader if self._stored.epoch == self.epoch else None
        mine = None if known is None else known.key
        learnt = rules.learns(self.epoch, mine, epoch, None if leader is None else leader.key, self.key)
        if learnt is Learnt.CONTRADICTION:
            led = "" if leader is None else f", led by {leader}"
            self._distrust(f"hears of epoch {epoch}{led}, and is in epoch {self.epoch}, led by {mine or 'nobody yet'}")
            return False
        if leader is not None and not is_endpoint(leader.endpoint):
            self._distrust(f"hears that {leader.key} leads epoch {epoch}, and is reached at {leader.endpoint!r}")
            return False
        if learnt is Learnt.UNATTACHED:
            self._become_unattached(epoch)
        elif learnt is Learnt.FOLLOW:
            assert leader is not None
            self._become_follower(leader, epoch, asked)
        elif self.state is State.FOLLOWER and epoch == self.epoch and leader is not None and leader != self.leader:
            if leader.key == mine:
                self._leader_has_moved(leader)
        return True

    def _distrust(self, reason: str) -> None:
        self._do(Distrusted(f"{self.key} {reason}"))

    def _leader_has_moved(self, leader: Node) -> None:
        """The leader is the same, with another endpoint."""
        self.leader = leader
        self._stored = ElectionState(self.epoch, self.voted, leader)
        self._do(StoreState(self._stored), LeaderChanged(self.epoch, leader))
        self._retry_soon()

    def _response(self, event: ResponseReceived) -> None:
        response = event.response
        if response.epoch < self.epoch:
            return
        before = self.epoch, self.state
        if not self._learn(response.epoch, response.leader):
            return
        if response.error is not Error.NONE and (self.epoch, self.state) != before:
            return  # a refusal has nothing else to learn from
        handler = _ON_RESPONSE.get(type(response))
        if handler is not None:
            getattr(self, handler.__name__)(response)

    # -- leading -------------------------------------------------------------------------------------------------------

    def _append(self, records: tuple[bytes, ...] = (), control: LeaderChange | VotersRecord | None = None) -> Batch:
        batch = Batch(self.log.end_offset, self.epoch, records, control)
        self.log.append(batch)
        self._do(Append((batch,)))
        if isinstance(control, VotersRecord):
            self._voters_changed()
        return batch

    def _voters_changed(self) -> None:
        """The configuration in use, or its offset, has changed."""
        entry = self.voters.node(self.key)
        if entry == self._entry:
            return
        before, self._entry = self._entry, entry
        if (before is None) != (entry is None):
            self._do(VotersChanged(entry is not None))
        if not self._has_to_join:
            self._do(CancelTimer(Timer.JOIN))
        elif self.state is State.FOLLOWER:
            self._join_later()

    def _restart_check(self) -> None:
        assert self._leading is not None
        self._leading.fetched.clear()
        timeout = self.settings.fetch_timeout * 3 // 2
        self._do(SetTimer(Timer.CHECK_QUORUM, timeout, timeout))

    def _check_quorum(self) -> None:
        """Resign if no majority has fetched for 1.5 fetch timeouts: another replica leads by now, or nobody can."""
        leading = self._leading
        if leading is None:
            return
        if rules.has_lost_majority(leading.fetched, self.voters.keys, self.key, self.protections):
            self._become_resigned()
        else:
            if self.traces:
                self._trace("keep_leading", fetched=sorted(map(str, leading.fetched)))
            self._restart_check()

    def _announce_to_voters(self) -> None:
        """Announce its leadership to voters that have not fetched since the last check."""
        leading = self._leading
        assert leading is not None
        for node in self.voters.nodes:
            progress = leading.progress.get(node.key)
            if node.key != self.key and (progress is None or progress.end < 0 or progress.idle > 0):
                self._do(Send(node.endpoint, BeginQuorum(self.epoch, self.me, node.key)))
        tick = max(1, self.settings.fetch_timeout // 2)
        self._do(SetTimer(Timer.BEGIN_QUORUM, tick, tick))

    def _look_after_voters(self) -> None:
        leading = self._leading
        if leading is None:
            return
        self._announce_to_voters()
        voters = self.voters.keys
        for key, progress in list(leading.progress.items()):
            progress.idle += 1
            if progress.idle > IDLE_TICKS and key not in voters:
                del leading.progress[key]

    def _proposed(self, event: Proposed) -> None:
        if not self.leads or not self.is_voter:
            self._do(Refused(event.token, Error.NOT_LEADER))
            return
        if self.traces:
            self._trace("client_request", offset=self.log.end_offset, count=len(event.records))
        batch = self._append(event.records)
        self._do(Accepted(event.token, batch.end_offset, self.epoch))
        self._answer_waiting()

    def _log_stored(self, event: Stored) -> None:
        end = event.end
        if not self.stored_end < end.offset <= self.log.end_offset:
            return
        if self.log.epoch_ahead_of(end.offset) != end.epoch:
            return  # truncated since the sync
        self.stored_end = end.offset
        if self.traces:
            self._trace("sync", end=_pair(end))
        if self.leads:
            self._advance()
        elif self.state is State.FOLLOWER:
            self._send_fetch()

    def _advance(self) -> None:
        """Commit what a majority of the voters has, and do what waited for that."""
        leading = self._leading
        assert leading is not None
        ends = []
        for key in self.voters.keys - {self.key}:
            progress = leading.progress.get(key)
            ends.append(0 if progress is None else max(0, progress.end))
        counted = rules.counted_end(self.is_voter, self.log.end_offset, self.stored_end, self.protections)
        if counted is not None:
            ends.append(counted)
        agreed = rules.high_watermark(self.high_watermark, ends, leading.epoch_start, self.protections)
        if agreed <= self.high_watermark:
            return
        if self.traces:
            self._trace("commit", offset=agreed)
        self._commit(agreed)
        if not leading.is_up and agreed > leading.epoch_start:
            leading.is_up = True
            self._do(BecameLeader(self.epoch))
        if leading.change is not None and self.log.voters_offset < agreed:
            change, leading.change = leading.change, None
            self._answer_change(*change, Error.NONE)
        self._answer_waiting()
        if rules.resigns_when_committed(self.is_voter, self.log.voters_offset, agreed, self.protections):
            self._become_resigned()

    def _commit(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            self._do(Commit(offset))

    def _known_high_watermark(self) -> int:
        """The high watermark that a leader reports: -1 before it has committed a record of its epoch."""
        return self.high_watermark if self._leading is not None and self._leading.is_up else -1

    # -- fetches by others ---------------------------------------------------------------------------------------------

    def _fetch(self, connection: int, request: Fetch) -> None:
        end = request.log_end
        is_voter = request.replica in self.voters
        error = rules.refuses_fetch(self.leads, self.epoch, request.epoch, is_voter, self.protections)
        if error is Error.NONE and (end.epoch > request.epoch or end.offset < 0 or request.replica == self.key):
            error = Error.INVALID_REQUEST
        if error is not Error.NONE:
            if self.traces and self.leads:
                self._trace("refuse_fetch", peer=str(request.replica), epoch=request.epoch, error=error.name)
            self._answer_fetch(connection, request, error)
            return
        leading = self._leading
        assert leading is not None
        progress = self._heard_from(request.replica)
        waited = leading.waiting.pop(request.replica, None)
        if waited is not None:
            self._answer_fetch(*waited)
        start, end_of_epoch, snapshot = self.log.start, self.log.end_of_epoch(end.epoch), self.log.snapshot.end
        position = rules.position_of(
            (end.offset, end.epoch),
            (start.offset, start.epoch),
            (end_of_epoch.offset, end_of_epoch.epoch),
            (snapshot.offset, snapshot.epoch),
            self.protections,
        )
        if position is Position.DIVERGING:
            self._answer_fetch(connection, request, diverging=end_of_epoch)
            return
        if position is Position.SNAPSHOT:
            self._answer_fetch(connection, request, snapshot=snapshot)
            return
        caught_up = rules.has_caught_up(end.offset, self.log.end_offset, progress.end_before)
        known = end.offset, self.log.end_offset, caught_up
        if self.traces and known != (progress.end, progress.end_before, progress.caught_up):
            self._trace("accept_fetch_request", peer=str(request.replica), end=_pair(end))
        progress.end, progress.end_before, progress.caught_up = known
        if not leading.waiting:
            self._do(SetTimer(Timer.WAITING_FETCHES, self.settings.fetch_max_wait, self.settings.fetch_max_wait))
        leading.waiting[request.replica] = connection, request
        if is_voter:
            self._advance()
        self._answer_waiting()

    def _heard_from(self, key: ReplicaKey) -> Progress:
        """Note that a replica fetches, and so follows this one."""
        leading = self._leading
        assert leading is not None
        progress = leading.progress.setdefault(key, Progress())
        progress.idle = 0
        voters = self.voters.keys
        leading.fetched.add(key)
        if rules.has_majority(leading.fetched | {self.key}, voters):
            self._restart_check()
        return progress

    def _answer_fetch(
        self,
        connection: int,
        request: Fetch,
        error: Error = Error.NONE,
        diverging: OffsetAndEpoch | None = None,
        snapshot: OffsetAndEpoch | None = None,
    ) -> None:
        """Answer a fetch: with an error, with where the logs diverge, with a snapshot to fetch instead, or with the
        batches that follow, if there are any.
        """
        response = FetchResponse(
            self.key,
            self.epoch,
            self.known_leader,
            error,
            request.log_end,
            self._known_high_watermark(),
            (),
            diverging,
            snapshot,
        )
        has_batches = error is Error.NONE and diverging is None and snapshot is None
        if has_batches and self.leads and request.log_end.offset < self.log.end_offset:
            self._do(ReplyWithBatches(connection, response))
        else:
            self._do(Reply(connection, response))

    def _answer_waiting(self) -> None:
        """Answer waiting fetches that have news. If the only news is a high watermark that nobody waits for, answer a
        little later.
        """
        leading = self._leading
        if leading is None:
            return
        end, known, wait = self.log.end_offset, self._known_high_watermark(), self.settings.high_watermark_wait
        for key, (connection, request) in list(leading.waiting.items()):
            wanted = known if not wait else min(known, leading.progress[key].wanted)
            if request.log_end.offset < end or request.high_watermark < wanted:
                del leading.waiting[key]
                self._answer_fetch(connection, request)
            elif request.high_watermark < known and not leading.answers_later:
                leading.answers_later = True
                self._do(SetTimer(Timer.HIGH_WATERMARK, wait, wait))

    def _send_high_watermark(self, event: SendHighWatermark) -> None:
        leading = self._leading
        if leading is not None and event.replica in leading.progress:
            leading.progress[event.replica].wanted = self.high_watermark
            self._answer_waiting()

    def _send_high_watermark_to_all(self) -> None:
        leading = self._leading
        if leading is None:
            return
        leading.answers_later = False
        for progress in leading.progress.values():
            progress.wanted = self.high_watermark
        self._answer_waiting()

    def _answer_all_waiting(self) -> None:
        leading = self._leading
        if leading is None:
            return
        waiting, leading.waiting = leading.waiting, {}
        for connection, request in waiting.values():
            self._answer_fetch(connection, request)

    def _fetch_snapshot(self, connection: int, request: FetchSnapshot) -> None:
        is_voter = request.replica in self.voters
        error = rules.refuses_fetch(self.leads, self.epoch, request.epoch, is_voter, self.protections)
        if error is Error.NONE and request.replica == self.key:
            error = Error.INVALID_REQUEST
        response = FetchSnapshotResponse(
            self.key, self.epoch, self.known_leader, error, request.snapshot, position=request.position
        )
        if error is not Error.NONE:
            self._do(Reply(connection, response))
            return
        self._heard_from(request.replica)
        self._do(ReplyWithSnapshot(connection, response))

    # -- fetching ------------------------------------------------------------------------------------------------------

    def _send_fetch(self) -> None:
        """Fetch what follows the log, or the next part of a snapshot. Does nothing while a fetch is unanswered, a
        snapshot is being loaded, or the log is not durable.
        """
        if (
            self.state is not State.FOLLOWER
            or self._following.installing is not None
            or self._following.fetching is not None
        ):
            return
        assert self.leader is not None
        timeout = self.settings.request_timeout
        if self._following.snapshot is not None:
            snapshot, position = self._following.snapshot
            request: Request = FetchSnapshot(self.epoch, self.key, snapshot, position)
        elif self.stored_end < self.log.end_offset:
            return  # it fetches again once that is stored
        else:
            self._following.fetching = self.log.end
            request = Fetch(self.epoch, self.key, self.log.end, self.high_watermark)
        self._do(Send(self.leader.endpoint, request), SetTimer(Timer.RETRY, timeout, timeout))

    def _ask_for_leader(self) -> None:
        """An observer without a leader asks one endpoint after another."""
        known = {node.endpoint: None for node in self.voters.nodes if node.key != self.key}
        endpoints = [*known, *(endpoint for endpoint in self.bootstrap if endpoint not in known)]
        if not endpoints:
            return
        endpoint = endpoints[self._following.asked % len(endpoints)]
        self._following.asked += 1
        timeout = max(self.settings.retry_backoff, self.settings.request_timeout // 4)
        self._do(Send(endpoint, Fetch(self.epoch, self.key, self._durable_end, self.high_watermark)))
        self._do(SetTimer(Timer.RETRY, timeout, timeout))

    def _from_leader(self, response: Response) -> bool:
        """Whether a response to a fetch is from the leader that this replica follows. If it is an observer that still
        looks for the leader, it asks again soon.
        """
        if self.state is not State.FOLLOWER or response.epoch != self.epoch:
            if not self.may_campaign and self.state in (State.UNATTACHED, State.VOTED):
                self._retry_soon()
            return False
        assert self.leader is not None
        return response.source == self.leader.key

    def _fetch_response(self, response: FetchResponse) -> None:
        if not self._from_leader(response) or response.log_end != self._following.fetching:
            return
        self._following.fetching = None
        if response.error is not Error.NONE:
            self._retry_soon()
            return
        objection = self._objection(response)
        if objection:
            self._distrust(f"does not obey {self.leader}, the leader of epoch {self.epoch}, which {objection}")
            self._retry_soon()
            return
        self._hear_leader()
        self._ballot.rounds = 0
        self._set_fetch_timer()
        if response.diverging is not None:
            self._truncate(response.diverging)
        elif response.snapshot is not None:
            self._following.snapshot = response.snapshot, 0
        else:
            self._append_fetched(response.batches)
            reported = response.high_watermark
            offset = rules.follower_high_watermark(self.high_watermark, reported, self.log.end_offset)
            if self.traces and offset > self.high_watermark:
                self._trace("learn_commit", offset=offset)
            self._commit(offset)
        self._send_fetch()

    def _objection(self, response: FetchResponse) -> str:
        """Why a leader with all committed records cannot have sent this response; empty if it can have."""
        committed = f"and records before {self.high_watermark} are committed"
        if response.diverging is not None:
            offset = self._divergence(response.diverging)
            if offset < self.high_watermark:
                return f"does not have what was committed: its log parts at {offset}, {committed}"
            return "" if offset < self.log.end_offset else f"says that its log parts at {offset}, where this one ends"
        if response.snapshot is not None:
            end = response.snapshot
            return "" if end.offset > self.high_watermark else f"has a snapshot that ends at {end.offset}, {committed}"
        return "" if self.log.takes(response.batches, self.epoch) else f"sends what does not follow {self.log.end}"

    def _divergence(self, diverging: OffsetAndEpoch) -> int:
        """The offset at which the log diverges from that of the leader that sent ``diverging``."""
        end_of_epoch = self.log.end_of_epoch(diverging.epoch)
        return rules.truncation_point((diverging.offset, diverging.epoch), (end_of_epoch.offset, end_of_epoch.epoch))

    def _hear_leader(self) -> None:
        if not self._following.heard:
            self._trace("hear_leader")
        self._following.heard = True

    def _append_fetched(self, batches: tuple[Batch, ...]) -> None:
        if not batches:
            return
        for batch in batches:
            self.log.append(batch)
        if self.traces:
            has_voters = any(isinstance(batch.control, VotersRecord) for batch in batches)
            voters = {"voters": _names(self.voters)} if has_voters else {}
            self._trace("append_fetched", end=_pair(self.log.end), **voters)
        self._do(Append(batches))
        self._voters_changed()

    def _truncate(self, diverging: OffsetAndEpoch) -> None:
        offset = self._divergence(diverging)
        self.log.truncate(offset)
        self.stored_end = min(self.stored_end, offset)
        if self.traces:
            self._trace("truncate", end=_pair(self.log.end), voters=_names(self.voters))
        self._do(Truncate(offset))
        self._voters_changed()

    def _fetch_snapshot_response(self, response: FetchSnapshotResponse) -> None:
        if not self._from_leader(response) or self._following.snapshot != (response.snapshot, response.position):
            return
        if response.error is not Error.NONE:
            self._following.snapshot = None  # the leader has another one: the next fetch names it
            self._retry_soon()
            return
        end = response.position + len(response.data)
        if not response.data and end < response.size:
            self._distrust(f"does not obey {self.leader}, the leader of epoch {self.epoch}, which sends no bytes")
            self._following.snapshot = None
            self._retry_soon()
            return
        self._hear_leader()
        self._set_fetch_timer()
        self._do(WriteSnapshot(response.snapshot, response.position, response.data))
        if end < response.size:
            self._following.snapshot = response.snapshot, end
            self._send_fetch()
            return
        self._following.snapshot = None
        self._following.installing = response.snapshot
        self._trace("install_snapshot", snapshot=_pair(response.snapshot))
        self._do(CancelTimer(Timer.RETRY), InstallSnapshot(response.snapshot))

    def _snapshot_installed(self, event: SnapshotInstalled) -> None:
        self._following.installing = None
        snapshot = event.snapshot
        self.log.reset(snapshot)
        self.stored_end = snapshot.end.offset
        self._trace("snapshot_installed", snapshot=_pair(snapshot.end), voters=_names(self.voters))
        self.high_watermark = max(self.high_watermark, snapshot.end.offset)
        self._voters_changed()
        if self.state is State.FOLLOWER:
            self._set_fetch_timer()
            self._send_fetch()

    def _snapshot_damaged(self, event: SnapshotDamaged) -> None:
        self._following.installing = None
        self._trace("snapshot_damaged", snapshot=_pair(event.snapshot))
        self._send_fetch()

    def _snapshot_taken(self, event: SnapshotTaken) -> None:
        end = event.snapshot.end
        if not self.log.snapshot.end.offset < end.offset <= min(self.high_watermark, self.log.end_offset):
            return
        self._trace("take_snapshot", snapshot=_pair(end))
        self.log.take_snapshot(event.snapshot)
        start = end.offset - self.settings.records_kept
        if start > self.log.start_offset:
            self.log.delete_before(start)
            self._do(DeleteBefore(start))

    # -- reconfiguration -----------------------------------------------------------------------------------------------

    def _add_voter(self, connection: int, request: AddVoter) -> None:
        key = request.voter.key
        leading = self._leading
        progress = None if leading is None else leading.progress.get(key)
        is_member, caught_up = self.voters.has_host(key.host_id), progress is not None and progress.caught_up
        error = rules.refuses_to_add(self.leads, is_member, self._refuses_change(), caught_up)
        if error is Error.NONE and not is_endpoint(request.voter.endpoint):
            error = Error.INVALID_REQUEST
        self._reconfigure(connection, request, error)

    def _remove_voter(self, connection: int, request: RemoveVoter) -> None:
        is_member = request.voter in self.voters
        error = rules.refuses_to_remove(self.leads, is_member, self._refuses_change(), len(self.voters))
        self._reconfigure(connection, request, error)

    def _update_voter(self, connection: int, request: UpdateVoter) -> None:
        key = request.voter.key
        entry = self.voters.node(key)
        of_fetch = rules.refuses_fetch(self.leads, self.epoch, request.epoch, entry is not None, self.protections)
        error = rules.refuses_to_update(of_fetch, entry is not None, self._refuses_change())
        if error is Error.NONE and not is_endpoint(request.voter.endpoint):
            error = Error.INVALID_REQUEST
        if error is Error.NONE and entry != request.voter:
            self._trace("accept_update_voter_request", peer=str(key))
            self._append(control=VotersRecord(self.voters.without(key).having(request.voter)))
            self._answer_waiting()
        self._do(Reply(connection, UpdateVoterResponse(self.key, self.epoch, self.known_leader, error, key)))

    def _refuses_change(self) -> Error:
        start = 0 if self._leading is None else self._leading.epoch_start
        return rules.refuses_change(self.high_watermark, start, self.log.voters_offset, self.protections)

    def _reconfigure(self, connection: int, request: AddVoter | RemoveVoter, error: Error) -> None:
        if error is not Error.NONE:
            self._answer_change(connection, request, error)
            return
        leading = self._leading
        assert leading is not None
        if isinstance(request, AddVoter):
            voters = self.voters.having(request.voter)
            self._trace("accept_add_voter_request", peer=str(request.voter.key))
        else:
            voters = self.voters.without(request.voter)
            self._trace("accept_remove_voter_request", peer=str(request.voter))
        self._append(control=VotersRecord(voters))
        if request.when_committed:
            leading.change = connection, request
        else:
            self._answer_change(connection, request, Error.NONE)
        if isinstance(request, AddVoter):
            self._do(Send(request.voter.endpoint, BeginQuorum(self.epoch, self.me, request.voter.key)))
        self._answer_waiting()
        self._advance()  # fewer voters make a majority, which may have more of the log

    def _answer_change(self, connection: int, request: AddVoter | RemoveVoter, error: Error) -> None:
        if isinstance(request, AddVoter):
            answer: Response = AddVoterResponse(self.key, self.epoch, self.known_leader, error, request.voter.key)
        else:
            answer = RemoveVoterResponse(self.key, self.epoch, self.known_leader, error, request.voter)
        self._do(Reply(connection, answer))

    @property
    def _has_to_join(self) -> bool:
        """Whether it needs something from its leader: to become a voter, or to have its endpoint recorded."""
        return self.settings.auto_join if self._entry is None else self._entry != self.me

    def _join_later(self) -> None:
        self._do(SetTimer(Timer.JOIN, self.settings.join_retry, self.settings.join_retry))

    def _join(self) -> None:
        """Ask the leader for what this replica needs, repeatedly. An observer asks to be made a voter, and to have its
        predecessor on this host removed. A voter reports its new endpoint.

        It learns the outcome from its log, not from the answer.
        """
        if self.state is not State.FOLLOWER or not self._has_to_join:
            return
        assert self.leader is not None
        if self._following.heard:
            predecessors = [key for key in self.voters.keys if key.host_id == self.key.host_id]
            request: Request = AddVoter(self.me, when_committed=False)
            if self._entry is not None:
                request = UpdateVoter(self.epoch, self.me)
            elif predecessors:
                request = RemoveVoter(predecessors[0], when_committed=False)
            self._do(Send(self.leader.endpoint, request))
        self._join_later()

    # -- administrators ------------------------------------------------------------------------------------------------

    def _describe(self, connection: int, request: DescribeQuorum) -> None:
        leading = self._leading
        if leading is None:
            answer = DescribeQuorumResponse(self.key, self.epoch, self.known_leader, Error.NOT_LEADER)
        else:
            ends = {**self.others, self.key: self.log.end_offset}
            voters = self.voters
            answer = DescribeQuorumResponse(
                self.key,
                self.epoch,
                self.known_leader,
                Error.NONE,
                self._known_high_watermark(),
                tuple(ReplicaProgress(node.key, node.endpoint, ends.get(node.key, -1)) for node in voters.nodes),
                tuple(ReplicaProgress(key, "", end) for key, end in sorted(ends.items()) if key not in voters),
            )
        self._do(Reply(connection, answer))

    def _request(self, event: RequestReceived) -> None:
        getattr(self, _ON_REQUEST[type(event.request)].__name__)(event.connection, event.request)


_ON_EVENT: dict[type[Event], Callable[..., None]] = {
    Started: Replica._started,
    Resign: Replica._resign,
    RequestReceived: Replica._request,
    ResponseReceived: Replica._response,
    Disconnected: Replica._disconnected,
    TimerFired: Replica._timer,
    Stored: Replica._log_stored,
    Proposed: Replica._proposed,
    SnapshotTaken: Replica._snapshot_taken,
    SnapshotInstalled: Replica._snapshot_installed,
    SnapshotDamaged: Replica._snapshot_damaged,
    SendHighWatermark: Replica._send_high_watermark,
}

_ON_REQUEST: dict[type[Request], Callable[..., None]] = {
    Vote: Replica._vote,
    BeginQuorum: Replica._begin_quorum,
    EndQuorum: Replica._end_quorum,
    Fetch: Replica._fetch,
    FetchSnapshot: Replica._fetch_snapshot,
    AddVoter: Replica._add_voter,
    RemoveVoter: Replica._remove_voter,
    UpdateVoter: Replica._update_voter,
    DescribeQuorum: Replica._describe,
}

_ON_RESPONSE: dict[type[Response], Callable[..., None]] = {
    VoteResponse: Replica._vote_response,
    EndQuorumResponse: Replica._end_quorum_response,
    FetchResponse: Replica._fetch_response,
    FetchSnapshotResponse: Replica._fetch_snapshot_response,
}

_ON_TIMER: dict[Timer, Callable[..., None]] = {
    Timer.ELECTION: Replica._election_timeout,
    Timer.FETCH: Replica._fetch_timeout,
    Timer.RETRY: Replica._retry,
    Timer.VOTE_RETRY: Replica._ask_again,
    Timer.CHECK_QUORUM: Replica._check_quorum,
    Timer.BEGIN_QUORUM: Replica._look_after_voters,
    Timer.WAITING_FETCHES: Replica._answer_all_waiting,
    Timer.HIGH_WATERMARK: Replica._send_high_watermark_to_all,
    Timer.JOIN: Replica._join,
}


def _pair(end: OffsetAndEpoch) -> list[int]:
    """A place in the log, for a trace."""
    return [end.offset, end.epoch]


def _names(voters: VoterSet) -> list[str]:
    """The voters of a configuration, for a trace."""
    return [str(node.key) for node in voters.nodes]
