"""The quorum: `kraft-kip-853` by the rules that replicas run, with pre-votes, and with disks that lose what is not
synced.

Every decision of a replica is made by a function of :mod:`fencepost.quorum.rules`, which its role calls too. Its state
changes only by the table of :mod:`fencepost.quorum.transitions`. Messages, logs and administrators are those of
`kraft-kip-853`. Where nothing happens that `kraft-kip-853` does not have, every step is one of its steps.

A pre-vote, request and answer, is one step. It commits no replica to anything, so a late answer means the same as a
prompt one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fencepost import (
    ModelValue,
    PerKey,
    Record,
    action,
    configuration,
    constant,
    invariant,
    model_values,
    one_of,
    per_key,
    refines,
    require,
    sometimes,
    step_invariant,
    weak,
)
from fencepost.protocols.kraft import server as kraft
from fencepost.protocols.kraft.kip_853 import PARTED, PARTED_AGAIN, KRaft, NonMemberFetch, Start, pairs, servers, voters
from fencepost.protocols.kraft.server import (
    BeginQuorumEpochRequest,
    Command,
    Entry,
    FetchRequest,
    FetchResponse,
    FetchResult,
    LastFetch,
    Log,
    PendingFetch,
    RequestVoteRequest,
    RequestVoteResponse,
    Role,
    Server,
    ServerState,
    end_of_epoch,
    last_epoch,
    latest_config,
)
from fencepost.protocols.protections import switched_on, switches
from fencepost.quorum import rules
from fencepost.quorum.rules import Election, Error, Learnt, Position, Protections
from fencepost.quorum.transitions import Cause, State, transition


class Standing(Record):
    """The state of a replica that `kraft-kip-853` does not have.

    ``asks``: it is prospective; ``granted``: the replicas that would vote for it. ``heard``: it follows a leader that
    has answered it. ``committed``: what its state machine may have applied. ``unsynced``: the number of records at the
    end of its log that a crash may lose.
    """

    asks: bool = False
    granted: frozenset[ModelValue] = frozenset()
    heard: bool = False
    committed: int = 0
    unsynced: int = 0


STATES: Mapping[ServerState, State] = {
    theirs: State[theirs.name] for theirs in ServerState if theirs.name in State.__members__
}
"""The states of `kraft-kip-853`. A prospective replica counts as in the state that it was in before."""

NAMES: Mapping[State, ServerState] = {mine: theirs for theirs, mine in STATES.items()}

ERRORS: Mapping[Error, kraft.Error | None] = {
    Error.NONE: None,
    Error.NOT_LEADER: kraft.Error.NOT_LEADER,
    Error.FENCED_LEADER_EPOCH: kraft.Error.FENCED_LEADER_EPOCH,
    Error.UNKNOWN_LEADER_EPOCH: kraft.Error.UNKNOWN_LEADER,
    Error.NOT_VOTER: kraft.Error.UNKNOWN_MEMBER,
}

_NO_MATTER = ("pre_votes", "removed_voters_campaign")
"""Constants that `kraft-kip-853` does not have, or that :meth:`Quorum.is_published` checks separately."""

ONE_HOST: Mapping[str, Any] = {"hosts": 1, "init_cluster_size": 1, "min_cluster_size": 1}
REMOVAL: Mapping[str, Any] = {"min_cluster_size": 1, "max_remove_reconfigs": 1}
ONE_EPOCH: Mapping[str, Any] = {"max_epoch": 1, "max_values_per_epoch": 0}
"""Constants that several configurations share."""

CUT_OFF: Mapping[str, Any] = {
    "timeouts_need_reasons": True,
    "max_connectivity_changes": 2,
    "max_disconnected_pairs": 1,
    "pair_by_pair": True,
}
"""One pair of replicas is disconnected, and connected again."""


def values_of(protocol: KRaft) -> tuple[ModelValue, ...]:
    """The values that clients write."""
    return protocol.values


class Quorum(KRaft):
    """Replicas, clients, a network and an administrator, by the rules that replicas run."""

    name: ClassVar[str] = "quorum"

    hosts: tuple[ModelValue, ...] = model_values("h", 2, "the hosts that replicas are started on")
    init_cluster_size: int = constant(2, "voters at the beginning")
    min_cluster_size: int = constant(2, "no voter is removed if there are no more than this")
    max_cluster_size: int = constant(2, "no voter is added if there are this many")
    max_restarts: int = constant(0, "restarts with state")
    max_crashes: int = constant(0, "crashes that lose all state")
    max_add_reconfigs: int = constant(0, "voters added")
    max_remove_reconfigs: int = constant(0, "voters removed")
    max_spawned_servers: int = constant(2, "replicas ever started")

    pre_votes: bool = constant(False, "whether a replica asks for pre-votes before it stands for election")
    losing_crashes: bool = constant(False, "whether a crash loses what was not synced")
    caught_up_first: bool = constant(True, "whether a voter is added only if it has all that the leader has")

    observers_keep_votes: bool = constant(True, "whether an observer that loses its leader remembers its vote")
    fence_stale_votes: bool = constant(True, "whether a stale vote request changes nothing; it never does here")
    non_member_fetch: NonMemberFetch = constant(
        NonMemberFetch.ACCEPT, "whether a leader answers a fetch by a voter that is not in its configuration"
    )
    one_vote_an_epoch: bool = constant(
        True, "whether a replica that has voted votes for no other candidate in that epoch"
    )
    logs_are_compared: bool = constant(True, "whether no replica votes for a candidate whose log is behind its own")
    only_own_epoch_commits: bool = constant(True, "whether a leader commits by counting only records of its own epoch")
    leader_counts_stored: bool = constant(True, "whether a leader counts itself only up to what it has synced")
    only_voters_count: bool = constant(True, "whether a leader that is not a voter does not count itself")
    logs_are_matched: bool = constant(
        True, "whether a follower whose log diverges from the leader's truncates it first"
    )
    removed_leader_resigns: bool = constant(True, "whether a leader resigns when its own removal is committed")
    removed_voters_campaign: bool = constant(
        True, "whether a replica whose removal may not be committed stands for election"
    )

    standing: PerKey[ModelValue, Standing] = per_key(servers, Standing)

    configurations = {
        "default": configuration(doc="two voters, two epochs, one value"),
        "pre-votes": configuration(pre_votes=True, doc="the same, where pre-votes come before votes"),
        "restart": configuration(
            max_restarts=1,
            losing_crashes=True,
            max_values_per_epoch=0,
            doc="a replica crashes, and loses what it has not synced",
        ),
        "removal": configuration(**REMOVAL, max_epoch=1, doc="one of two voters is removed, possibly the leader"),
        "removal-restart": configuration(
            **REMOVAL, max_restarts=1, **ONE_EPOCH, doc="the same, and a replica restarts"
        ),
        "removal-election": configuration(
            **REMOVAL,
            leaders_remove_themselves=False,
            max_values_per_epoch=0,
            doc="a follower is removed, and elections are held before and after it",
        ),
        "removal-at-any-time": configuration(
            **REMOVAL,
            max_values_per_epoch=0,
            doc="one of two voters is removed, possibly the leader, before or after an election: a large one",
        ),
        "removed-leader-stands": configuration(
            **REMOVAL,
            max_values_per_epoch=0,
            **CUT_OFF,
            doc="a leader removes itself, is disconnected, resigns, and is elected again to commit its removal",
        ),
        "removed-leader-restarts": configuration(
            **REMOVAL,
            max_restarts=1,
            max_values_per_epoch=0,
            timeouts_need_reasons=True,
            doc="the same, but it restarts",
        ),
        "removal-pre-votes": configuration(
            **REMOVAL,
            leaders_remove_themselves=False,
            pre_votes=True,
            max_values_per_epoch=0,
            doc="a follower is removed, where pre-votes come before votes",
        ),
        "removal-crash": configuration(
            **REMOVAL,
            max_restarts=1,
            losing_crashes=True,
            **ONE_EPOCH,
            doc="one of two voters is removed, and a crash loses what is not synced, possibly the removal",
        ),
        "adding": configuration(
            **ONE_HOST, max_add_reconfigs=1, **ONE_EPOCH, doc="a second voter is added once it has caught up"
        ),
        "adding-restart": configuration(
            **ONE_HOST,
            max_add_reconfigs=1,
            max_restarts=1,
            **ONE_EPOCH,
            timeouts_need_reasons=True,
            doc="the same, and a replica restarts, possibly before it has fetched anything",
        ),
        "single": voters(1, max_restarts=1, losing_crashes=True, doc="a single voter, which crashes"),
        "observer-parted": configuration(
            **ONE_HOST,
            max_cluster_size=1,
            max_restarts=1,
            losing_crashes=True,
            timeouts_need_reasons=True,
            start=Start.OBSERVED,
            doc="an observer has fetched records that its leader loses in a crash",
        ),
        "observer-restarts": configuration(
            **ONE_HOST,
            max_cluster_size=1,
            max_restarts=2,
            max_values_per_epoch=0,
            timeouts_need_reasons=True,
            start=Start.OBSERVED,
            doc="an observer and its leader restart, and the observer does not stand for election",
        ),
        "two-observers": configuration(
            **REMOVAL,
            max_spawned_servers=3,
            **ONE_EPOCH,
            timeouts_need_reasons=True,
            start=Start.OBSERVED,
            doc="one of two voters is removed, possibly the leader, and there is an observer already",
        ),
        "three-epochs": configuration(
            max_epoch=3, pre_votes=True, max_values_per_epoch=0, doc="two voters, three epochs, pre-votes"
        ),
        "cut-off": configuration(
            pre_votes=True,
            max_values_per_epoch=0,
            **CUT_OFF,
            doc="the connection of two voters is cut, and comes back",
        ),
        "undisturbed": voters(3, test_liveness=True, doc="three voters without any reason for an election"),
        "parted": PARTED,
        "parted-again": PARTED_AGAIN,
        "voted-twice": voters(
            3,
            one_vote_an_epoch=False,
            max_values_per_epoch=0,
            expect="never_two_leaders_in_same_epoch",
            doc="a replica votes for every candidate",
        ),
        "log-behind": voters(
            3,
            logs_are_compared=False,
            expect="leader_has_all_acked_values",
            doc="a candidate is elected that lacks committed records",
        ),
        "unsynced-counted": voters(
            3,
            max_restarts=1,
            losing_crashes=True,
            leader_counts_stored=False,
            expect="leader_has_all_acked_values",
            doc="a leader counts itself for records that a crash loses",
        ),
        "removed-leader-stays": configuration(
            **REMOVAL,
            **ONE_EPOCH,
            removed_leader_resigns=False,
            expect="removed_leaders_step_down",
            doc="a leader goes on when its own removal is committed",
        ),
    }

    # -- state and rules -----------------------------------------------------------------------------------------------

    @property
    def protections(self) -> Protections:
        """The protections that are on."""
        return switched_on(
            self,
            Protections,
            pre_votes=True,
            votes_are_kept=self.observers_keep_votes,
            non_members_are_served=self.non_member_fetch is NonMemberFetch.ACCEPT,
            one_change_at_a_time=self.one_reconfig_at_a_time,
            commit_before_change=self.commit_before_reconfig,
        )

    def _state_of(self, s: ModelValue) -> State:
        """The state of a replica in the table. A leader that has resigned is not prospective, as its vote is gone in
        any case.
        """
        known = self.server[s].state
        assert known is not None
        mine = STATES[known]
        return State.PROSPECTIVE if self.standing[s].asks and mine is not State.RESIGNED else mine

    def _is_alive(self, s: ModelValue) -> bool:
        return self.server[s].state in STATES

    def _may_campaign(self, s: ModelValue) -> bool:
        me = self.server[s]
        before = latest_config(me.log[: _voters_offset(me.log)], me.hwm) if _voters_offset(me.log) > 0 else me.config
        return rules.may_campaign(
            s in me.config.members,
            s in before.members,
            _voters_offset(me.log) < max(me.hwm, self.standing[s].committed),
            self.protections,
        )

    def _go(self, s: ModelValue, cause: Cause, epoch: int | None = None) -> None:
        """Change the state of a replica by the table, and its epoch with it."""
        me, standing = self.server[s], self.standing[s]
        later = me.current_epoch if epoch is None else epoch
        assert me.state is not None
        now = State.PROSPECTIVE if standing.asks else STATES[me.state]
        after = transition(now, cause, me.current_epoch, later)
        standing.asks = after is State.PROSPECTIVE
        standing.granted = frozenset({s}) if standing.asks else frozenset()
        standing.heard = False
        me.current_epoch = later
        if after is not State.PROSPECTIVE:
            me.state = NAMES[after]

    def _append(self, s: ModelValue, entry: Entry) -> None:
        me = self.server[s]
        me.log = (*me.log, entry)
        self.standing[s].unsynced += self.losing_crashes

    # -- transitions ---------------------------------------------------------------------------------------------------

    def _become_unattached(self, s: ModelValue, epoch: int) -> None:
        me = self.server[s]
        self._go(s, Cause.LATER_EPOCH, epoch)
        me.leader = me.voted_for = None
        me.votes_recv = frozenset()

    def _become_follower(self, s: ModelValue, leader: ModelValue, epoch: int) -> None:
        me = self.server[s]
        if epoch > me.current_epoch:
            me.voted_for = None
        self._go(s, Cause.LEADER_FOUND, epoch)
        me.leader = leader
        me.votes_recv = frozenset()

    def _give_up_leader(self, s: ModelValue) -> None:
        """An observer loses its leader, or stops leading, in the same epoch."""
        me = self.server[s]
        if me.state is ServerState.LEADER:
            self._go(s, Cause.RESIGNS)
        if me.state in (ServerState.FOLLOWER, ServerState.RESIGNED):
            self._go(s, Cause.LEADER_LOST)
        me.state = ServerState.UNATTACHED
        me.leader = None
        me.votes_recv = frozenset()
        if not self.protections.votes_are_kept:
            me.voted_for = None

    def maybe_transition(self, s: ModelValue, leader: ModelValue | None, epoch: int) -> None:
        """Apply the epoch that another replica reported, and its leader if it has one."""
        me = self.server[s]
        mine = s if me.state is ServerState.LEADER else me.leader
        learnt = rules.learns(me.current_epoch, mine, epoch, leader, s)
        if learnt is Learnt.CONTRADICTION:
            me.become_illegal()
        elif learnt is Learnt.UNATTACHED:
            self._become_unattached(s, epoch)
        elif learnt is Learnt.FOLLOW and leader is not None:
            self._become_follower(s, leader, epoch)

    def handle_common_response(
        self, s: ModelValue, leader: ModelValue | None, epoch: int, error: kraft.Error | None
    ) -> bool:
        """Handle what all responses have in common. Return whether that is all."""
        me = self.server[s]
        before = me.current_epoch, me.leader
        if epoch >= me.current_epoch:
            self.maybe_transition(s, leader, epoch)
        return epoch < me.current_epoch or error is not None or (me.current_epoch, me.leader) != before

    # -- restarts ------------------------------------------------------------------------------------------------------

    @action(s=servers)
    def restart_with_state(self, s: ModelValue) -> None:
        """A replica restarts with its stored state, in the same epoch. Any part of what was not synced is lost."""
        require(self.restart_ctr < self.max_restarts)
        me, standing = self.server[s], self.standing[s]
        require(self._is_alive(s))
        left = rules.restarts_as(
            me.state in (ServerState.LEADER, ServerState.RESIGNED), me.voted_for is not None, me.leader is not None
        )
        me.log = me.log[: len(me.log) - one_of(range(standing.unsynced + 1))]
        me.config = latest_config(me.log, 0) if me.log else me.config
        me.role = Role.VOTER if s in me.config.members and me.log else Role.OBSERVER
        me.state = NAMES[left]
        if left is State.RESIGNED and me.role is Role.OBSERVER:
            self._give_up_leader(s)
        if left is not State.FOLLOWER:
            me.leader = None
        me.votes_recv = frozenset()
        me.hwm = 0
        me.fetch_state.reset()
        me.track_anew(me.config.members)
        self.standing[s] = Standing()
        self.fail_pending_writes(me)
        self.restart_ctr += 1

    @action(s=servers)
    def sync(self, s: ModelValue) -> None:
        """A replica makes its whole log durable. A leader counts it."""
        require(self.losing_crashes)
        standing = self.standing[s]
        require(standing.unsynced > 0)
        standing.unsynced = 0
        if self.server[s].state is ServerState.LEADER:
            self._advance(s)

    # -- elections -----------------------------------------------------------------------------------------------------

    @action(s=servers)
    def ask_for_pre_votes(self, s: ModelValue) -> None:
        """A voter has waited long enough for a leader, and asks whether it would be elected."""
        require(self.pre_votes)
        self._require_timeout(s)
        require(not self.standing[s].asks)
        self._go(s, Cause.TIMED_OUT)

    @action(s=servers, peer=servers)
    def get_pre_vote(self, s: ModelValue, peer: ModelValue) -> None:
        """Another voter would vote for a prospective one: it does not hear from a leader either."""
        require(self.pre_votes)
        me, other, standing = self.server[s], self.server[peer], self.standing[s]
        require(standing.asks and peer in me.config.members and peer not in standing.granted)
        require(self._is_alive(peer) and self.network.connected(s, peer))
        require(me.current_epoch >= other.current_epoch)
        up_to_date = rules.is_up_to_date(_end(me.log), _end(other.log), self.protections)
        in_my_epoch = other.current_epoch == me.current_epoch
        theirs = self._state_of(peer) if in_my_epoch else State.UNATTACHED
        require(rules.grants_pre_vote(theirs, self.standing[peer].heard, up_to_date))
        standing.granted |= {peer}

    @action(s=servers)
    def return_to_leader(self, s: ModelValue) -> None:
        """A prospective replica that knows a leader goes on fetching from it."""
        require(self.pre_votes)
        me = self.server[s]
        require(self.standing[s].asks and me.state is ServerState.FOLLOWER)
        self._go(s, Cause.PRE_VOTES_LOST)

    def _require_timeout(self, s: ModelValue) -> None:
        me = self.server[s]
        require(self._is_alive(s) and me.state is not ServerState.LEADER)
        require(self._may_campaign(s))
        require(not self.needs_reasons or self.election_times_out(s))
        require((self.test_liveness and not self.limit_epochs) or me.current_epoch < self.max_epoch)

    @action(s=servers)
    def send_request_vote(self, s: ModelValue) -> None:
        """A voter with the pre-votes of a majority stands for election."""
        self._require_timeout(s)
        me, standing = self.server[s], self.standing[s]
        members = me.config.members
        if self.pre_votes:
            require(standing.asks)
            require(rules.count_votes(standing.granted, frozenset(), members) is Election.WON)
        else:
            self._go(s, Cause.TIMED_OUT)
        self._go(s, Cause.PRE_VOTES_WON, me.current_epoch + 1)
        me.leader = None
        me.votes_recv = frozenset({s})
        me.voted_for = s
        me.fetch_state.reset()
        request = RequestVoteRequest(me.current_epoch, last_epoch(me.log), len(me.log))
        self.network.send_all([(request, peer) for peer in members - {s}], s)

    @action(s=servers, peer=servers)
    def handle_vote_request(self, s: ModelValue, peer: ModelValue) -> None:
        """A replica, voter or observer, votes for a candidate whose log is not behind its own, if it has not voted."""
        me = self.server[s]
        request = self.receive_from(RequestVoteRequest, s, peer)
        asked, state_before = request.message, me.state
        if asked.epoch < me.current_epoch:
            refusal = RequestVoteResponse(
                me.current_epoch, me.leader, vote_granted=False, error=kraft.Error.FENCED_LEADER_EPOCH
            )
            self.network.reply(request, refusal)
            return
        if asked.epoch > me.current_epoch:
            self._become_unattached(s, asked.epoch)
        up_to_date = rules.is_up_to_date((asked.last_log_epoch, asked.last_log_offset), _end(me.log), self.protections)
        granted = rules.grants_vote(self._state_of(s), me.voted_for, me.leader, peer, up_to_date, self.protections)
        if granted and (me.state is ServerState.UNATTACHED or me.voted_for != peer):
            if me.state is ServerState.VOTED:
                me.state = ServerState.UNATTACHED  # only without its protection
            self._go(s, Cause.VOTE_GIVEN)
            me.voted_for = peer
        if me.state is not state_before:
            me.fetch_state.reset()
            self.fail_pending_writes(me)
        self.network.reply(request, RequestVoteResponse(me.current_epoch, me.leader, granted))

    @action(s=servers, peer=servers)
    def handle_vote_response(self, s: ModelValue, peer: ModelValue) -> None:
        """A candidate counts a vote. Any voter may learn of a later epoch or of a leader."""
        me = self.server[s]
        require(me.role is Role.VOTER or me.state is ServerState.CANDIDATE)
        response = self.receive_from(RequestVoteResponse, s, peer).message
        handled = self.handle_common_response(s, response.leader, response.epoch, response.error)
        if not handled and response.vote_granted and me.state is ServerState.CANDIDATE:
            me.votes_recv |= {peer}

    @action(s=servers)
    def become_leader(self, s: ModelValue) -> None:
        """A candidate has the votes of a majority. It begins its epoch with an entry of its own, and notifies the
        voters.
        """
        me = self.server[s]
        require(me.state is ServerState.CANDIDATE and not self.standing[s].asks)
        members = me.config.members
        require(rules.count_votes(me.votes_recv, frozenset(), members) is Election.WON)
        self._go(s, Cause.VOTES_WON)
        me.leader = s
        me.votes_recv = frozenset()
        self._append(s, Entry(Command.LEADER_CHANGE, me.current_epoch))
        me.track_anew(members)
        me.fetch_state.reset()
        announcement = BeginQuorumEpochRequest(me.current_epoch)
        for peer in members - {s}:
            require(not self.network.is_known(announcement, s, peer))
            self.network.send(announcement, s, peer)
        self._advance(s)

    @action(s=servers, peer=servers)
    def accept_begin_quorum_request(self, s: ModelValue, peer: ModelValue) -> None:
        """A replica learns the leader."""
        me = self.server[s]
        announcement = self.receive_from(
            BeginQuorumEpochRequest, s, peer, where=lambda begin: begin.epoch >= me.current_epoch
        ).message
        self.maybe_transition(s, peer, announcement.epoch)
        me.fetch_state.reset()
        self.fail_pending_writes(me)

    @action(s=servers)
    def check_quorum_resign(self, s: ModelValue) -> None:
        """A leader resigns since too few voters fetch from it. Where liveness is not tested, it may resign at any
        time.
        """
        me = self.server[s]
        require(me.state is ServerState.LEADER)
        if self.needs_reasons:
            members = me.config.members
            fetching = frozenset(peer for peer in members - {s} if self.can_fetch_from(peer, s))
            require(rules.has_lost_majority(fetching, members, s))
        if me.role is Role.VOTER:
            self._go(s, Cause.RESIGNS)
            me.leader = None
        else:
            self._give_up_leader(s)

    @action(s=servers)
    def observer_fetch_timeout(self, s: ModelValue) -> None:
        """An observer gives up its leader, and looks for another."""
        me = self.server[s]
        require(me.role is Role.OBSERVER)
        require(not self.needs_reasons or self.fetch_times_out(s))
        self._give_up_leader(s)
        me.fetch_state.reset()

    # -- writing and fetching ------------------------------------------------------------------------------------------

    @action(s=servers, v=values_of)
    def client_request(self, s: ModelValue, v: ModelValue) -> None:
        """A client writes a value to a leader, unless that is about to leave."""
        me = self.server[s]
        require(me.state is ServerState.LEADER and me.role is Role.VOTER)
        require(not self.inv_sent[v])
        written = sum(e.epoch == me.current_epoch and e.command is Command.APPEND for e in me.log)
        require(written < self.max_values_per_epoch)
        me.pending_ack[v] = True
        self.inv_sent[v] = True
        self._append(s, Entry(Command.APPEND, me.current_epoch, v))
        if len(me.config.members) == 1:
            self._advance(s)

    @action(s=servers, peer=servers)
    def send_fetch_request(self, s: ModelValue, peer: ModelValue) -> None:
        """A replica fetches from its leader, once it has synced its whole log. An observer without a leader fetches
        from a voter.
        """
        require(s != peer)
        me, standing = self.server[s], self.standing[s]
        require(me.fetch_state.pending_fetch is None)
        require(not standing.asks and standing.unsynced == 0)
        if not (me.leader == peer and me.state is ServerState.FOLLOWER):
            require(me.role is Role.OBSERVER and me.state in (ServerState.UNATTACHED, ServerState.VOTED))
            require(self.network.connected(s, peer))
            require(self.server[peer].role is Role.VOTER and self.server[peer].leader is not None)
        request = FetchRequest(me.current_epoch, len(me.log) + 1, last_epoch(me.log), observer=me.role is Role.OBSERVER)
        me.fetch_state.pending_fetch = PendingFetch(peer, request)
        self.network.send(request, s, peer)

    def why_rejected(self, s: ModelValue, peer: ModelValue, fetch: FetchRequest) -> kraft.Error | None:
        me = self.server[s]
        leads = me.state is ServerState.LEADER
        counts = fetch.observer or peer in me.config.members
        return ERRORS[rules.refuses_fetch(leads, me.current_epoch, fetch.epoch, counts, self.protections)]

    def _position(self, log: Log, fetch: FetchRequest) -> Position:
        """The position of an offset. Offsets start at 1 here; a position is after a record."""
        place = fetch.fetch_offset - 1, fetch.last_fetched_epoch
        same = end_of_epoch(log, fetch.last_fetched_epoch)
        return rules.position_of(place, (0, 0), same, (0, 0), self.protections)

    @action(s=servers, peer=servers)
    def diverging_fetch_request(self, s: ModelValue, peer: ModelValue) -> None:
        """The logs of the leader and of the fetching replica diverge: the leader answers with the point where they
        do.
        """
        me = self.server[s]
        fetch = self.receive_fetch(s, peer, lambda fetch: self._position(me.log, fetch) is Position.DIVERGING)
        offset, epoch = end_of_epoch(me.log, fetch.message.last_fetched_epoch)
        self.network.reply(
            fetch,
            FetchResponse(
                FetchResult.DIVERGING,
                me.current_epoch,
                me.leader,
                me.hwm,
                correlation=fetch.message,
                diverging_epoch=epoch,
                diverging_end_offset=offset + 1,
            ),
        )

    @action(s=servers, peer=servers)
    def accept_fetch_request_from_voter(self, s: ModelValue, peer: ModelValue) -> None:
        """The leader learns the end of a voter's log, commits what a majority has, and answers with the next entry."""
        me = self.server[s]
        fetch = self.receive_fetch(
            s, peer, lambda fetch: not fetch.observer and self._position(me.log, fetch) is Position.VALID
        )
        is_member = peer in me.config.members
        require(self.why_rejected(s, peer, fetch.message) is None)
        if is_member:
            me.flwr_end_offset[peer] = fetch.message.fetch_offset - 1
        hwm = self._advance(s)
        leader = s if me.state is ServerState.LEADER else None
        self.network.reply(fetch, self.entry_for(me, fetch.message, leader, hwm))

    @action(s=servers, peer=servers)
    def accept_fetch_request_from_observer(self, s: ModelValue, peer: ModelValue) -> None:
        """The leader answers an observer with the next entry."""
        me = self.server[s]
        fetch = self.receive_fetch(
            s, peer, lambda fetch: fetch.observer and self._position(me.log, fetch) is Position.VALID
        )
        self.network.reply(fetch, self.entry_for(me, fetch.message, me.leader, me.hwm))

    def _advance(self, s: ModelValue) -> int:
        """Commit what a majority of the voters has. If that commits the leader's own removal, it becomes an observer
        without a leader.
        """
        me, standing = self.server[s], self.standing[s]
        members = me.config.members
        is_voter = s in members
        ends = [me.flwr_end_offset[member] for member in members if member != s]
        counted = rules.counted_end(is_voter, len(me.log), len(me.log) - standing.unsynced, self.protections)
        if counted is not None:
            ends.append(counted)
        start = _start_of_epoch(me.log, me.current_epoch)
        hwm = min(rules.high_watermark(me.hwm, ends, start, self.protections), max(len(me.log), me.hwm))
        if hwm > me.hwm:
            for v in self.values:
                if me.pending_ack[v] and any(entry.value == v for entry in me.log[me.hwm : hwm]):
                    me.pending_ack[v] = False
                    self.inv_pos_acked[v] = True
            me.hwm = hwm
            standing.committed = max(standing.committed, hwm)
            me.config = latest_config(me.log, hwm)
            me.track(me.config.members)
            if rules.resigns_when_committed(is_voter, _voters_offset(me.log), hwm, self.protections):
                me.role = Role.OBSERVER
                self._give_up_leader(s)
                me.track(frozenset())
                me.hwm = 0
        return hwm

    @action(s=servers, peer=servers)
    def handle_fetch_response(self, s: ModelValue, peer: ModelValue) -> None:
        """A follower appends an entry, or truncates its log where it diverges from the leader's, or learns the
        leader.
        """
        me, standing = self.server[s], self.standing[s]
        pending = me.fetch_state.pending_fetch
        require(pending is not None and pending.peer == peer)
        # A prospective replica has given up waiting. Once it follows the leader again, this answer is as good as
        # another.
        require(not standing.asks)
        assert pending is not None
        response = self.network.receive(FetchResponse, to=s, source=peer, topic=pending.request).message
        handled = self.handle_common_response(s, response.leader, response.epoch, response.error)
        if not handled and me.state is ServerState.FOLLOWER:
            standing.heard = self.pre_votes
            if response.result is FetchResult.DIVERGING:
                self._truncate(s, response)
            else:
                if response.entry is not None:
                    self._append(s, response.entry)
                me.hwm = response.hwm
                standing.committed = rules.follower_high_watermark(standing.committed, response.hwm, len(me.log))
            me.config = latest_config(me.log, response.hwm)
            me.role = Role.VOTER if s in me.config.members else Role.OBSERVER
            me.track(me.config.members)
        me.fetch_state.pending_fetch = None
        me.fetch_state.last_fetch_res = LastFetch(peer, response.error)

    def _truncate(self, s: ModelValue, response: FetchResponse) -> None:
        me = self.server[s]
        diverging = response.diverging_end_offset - 1, response.diverging_epoch
        point = rules.truncation_point(diverging, end_of_epoch(me.log, response.diverging_epoch))
        self.standing[s].unsynced = max(0, self.standing[s].unsynced - (len(me.log) - point))
        me.log = me.log[:point]

    # -- reconfiguration -----------------------------------------------------------------------------------------------

    @action(s=servers, add_server=servers)
    def accept_add_voter_request(self, s: ModelValue, add_server: ModelValue) -> None:
        """An administrator has a leader add a voter that has everything the leader has."""
        me, other = self.server[s], self.server[add_server]
        caught_up = rules.has_caught_up(len(other.log), len(me.log), None) or not self.caught_up_first
        leads, is_member = me.state is ServerState.LEADER, add_server in me.config.members
        refusal = rules.refuses_to_add(leads, is_member, self._refuses_change(me), caught_up)
        require(refusal is Error.NONE)
        super().accept_add_voter_request(s, add_server)
        self.standing[s].unsynced += self.losing_crashes

    @action(s=servers, remove_server=servers)
    def accept_remove_voter_request(self, s: ModelValue, remove_server: ModelValue) -> None:
        """An administrator has a leader remove a voter. A leader that removes itself leads on as an observer."""
        me = self.server[s]
        leads, is_member = me.state is ServerState.LEADER, remove_server in me.config.members
        refusal = rules.refuses_to_remove(leads, is_member, self._refuses_change(me), len(me.config.members))
        require(refusal is Error.NONE)
        super().accept_remove_voter_request(s, remove_server)
        self.standing[s].unsynced += self.losing_crashes

    def _refuses_change(self, me: Server) -> Error:
        start = _start_of_epoch(me.log, me.current_epoch)
        return rules.refuses_change(me.hwm, start, _voters_offset(me.log), self.protections)

    def require_ready_to_reconfigure(self, me: Server) -> None:
        """Nothing to check here: the rules do."""

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant(s=servers)
    def states_match_roles(self, s: ModelValue) -> bool:
        """A replica that stands for election is a voter, or was one before a change that may not be committed."""
        me = self.server[s]
        if me.state is ServerState.UNATTACHED and me.leader is not None:
            return False
        if s in me.config.members or not (me.state is ServerState.CANDIDATE or self.standing[s].asks):
            return True
        removed = _voters_offset(me.log)
        is_open = self.removed_voters_campaign and removed >= max(self.standing[s].committed, 1)
        return is_open and s in latest_config(me.log[:removed], 0).members

    @invariant(pair=pairs)
    def logs_match(self, pair: tuple[ModelValue, ModelValue]) -> bool:
        """If two logs have a record of the same epoch at the same offset, they are equal up to there."""
        one, other = (self.server[s].log for s in pair)
        same = 0
        for offset in range(min(len(one), len(other)), 0, -1):
            if one[offset - 1].epoch == other[offset - 1].epoch:
                same = offset
                break
        return one[:same] == other[:same]

    @invariant(pair=pairs)
    def committed_logs_match(self, pair: tuple[ModelValue, ModelValue]) -> bool:
        """Two state machines have applied the same records, as far as both have come. Neither log lacks one of them
        unless it was never synced.
        """
        one, other = pair
        common = min(self.standing[one].committed, self.standing[other].committed)
        return self.server[one].log[:common] == self.server[other].log[:common]

    @invariant(s=servers)
    def what_is_committed_is_kept(self, s: ModelValue) -> bool:
        """No replica truncates a record that it considers committed."""
        return self.standing[s].committed <= len(self.server[s].log)

    @invariant(s=servers)
    def what_is_committed_is_applied(self, s: ModelValue) -> bool:
        """A replica considers committed the records below its high watermark that it has. The first record is committed
        from the beginning.
        """
        me = self.server[s]
        return min(me.hwm, len(me.log)) <= max(self.standing[s].committed, 1)

    @step_invariant(s=servers)
    def what_is_applied_stays_so(self, after: Quorum, s: ModelValue) -> bool:
        """A record that a replica considers committed stays so, unless the replica restarts. A replica that does not
        lead learns it from its leader only.
        """
        if (after.restart_ctr, after.crash_ctr) != (self.restart_ctr, self.crash_ctr):
            return True
        before, now = self.standing[s].committed, after.standing[s].committed
        leads = self.server[s].state is ServerState.LEADER
        return before == now or (before < now and (leads or now <= after.server[s].hwm))

    @invariant(s=servers)
    def nobody_follows_itself(self, s: ModelValue) -> bool:
        """A replica never follows itself: a replica that restarts in an epoch that it led resigns."""
        me = self.server[s]
        return me.state is not ServerState.FOLLOWER or me.leader != s

    @invariant(s=servers)
    def leaders_commit_what_they_have(self, s: ModelValue) -> bool:
        """The high watermark of a leader is within its log."""
        me = self.server[s]
        return me.state is not ServerState.LEADER or me.hwm <= len(me.log)

    @step_invariant(s=servers, peer=servers, when=lambda protocol: protocol.logs_are_compared)
    def no_vote_for_a_log_behind(self, after: Quorum, s: ModelValue, peer: ModelValue) -> bool:
        """A replica votes for another only if that has asked with a log that is not behind its own."""
        me, now = self.server[s], after.server[s]
        if now.voted_for != peer or s == peer or (me.voted_for == peer and me.current_epoch == now.current_epoch):
            return True
        return any(
            asked.epoch == now.current_epoch and (asked.last_log_epoch, asked.last_log_offset) >= _end(me.log)
            for asked in self.network.in_flight(RequestVoteRequest, peer, s)
        )

    @step_invariant(s=servers)
    def who_commits_its_removal_resigns(self, after: Quorum, s: ModelValue) -> bool:
        """A leader that resigns when it commits a record has committed its own removal, which no other replica could
        have been sure to do.
        """
        me, now = self.server[s], after.server[s]
        committed = after.standing[s].committed
        if me.state is not ServerState.LEADER or now.state is ServerState.LEADER:
            return True
        return committed <= self.standing[s].committed or _voters_offset(me.log) < committed

    @sometimes(when=lambda protocol: protocol.removed_voters_can_be_elected)
    def removed_voters_are_elected(self) -> bool:
        """A voter was elected after its own removal, which no other replica could have been sure to commit."""
        return any(self._is_elected_after_removal(me) and s not in me.config.members for s, me in self.server.items())

    def _is_elected_after_removal(self, me: Server) -> bool:
        return me.state is ServerState.LEADER and me.log[_voters_offset(me.log)].epoch < me.current_epoch

    @property
    def removed_voters_can_be_elected(self) -> bool:
        """Whether a leader of two that has removed itself can lose its leadership, and a later epoch is allowed."""
        one_of_two = self.init_cluster_size == 2 and self.min_cluster_size == 1 and self.leaders_remove_themselves
        may_be_cut_off = self.max_connectivity_changes > 1 and self.max_disconnected_pairs > 0
        may_resign = self.max_restarts > 0 or may_be_cut_off or not self.needs_reasons
        may_go = one_of_two and self.max_remove_reconfigs > 0 and may_resign
        return self.removed_voters_campaign and may_go and self.max_epoch > 1

    # -- what must happen ----------------------------------------------------------------------------------------------

    fairness = [*KRaft.fairness, weak(ask_for_pre_votes, get_pre_vote, return_to_leader), weak(sync)]

    # -- refinement ----------------------------------------------------------------------------------------------------

    @property
    def is_published(self) -> bool:
        """Whether all protections are on, and no action can happen that `kraft-kip-853` has no step for.

        There a single voter is never elected, a removed one does not stand for election, a candidate that restarts is
        still a candidate, and written records are only lost with the whole disk.
        """
        may_shrink = self.max_remove_reconfigs > 0
        return (
            self.max_restarts == 0
            and not self.losing_crashes
            and not (may_shrink and (self.removed_voters_campaign or self.min_cluster_size < 2))
            and self.init_cluster_size > 1
            and all(getattr(self, name) for name in switches(Quorum, Protections) if name not in _NO_MATTER)
        )

    refines_kraft = refines(
        KRaft,
        {},
        when=lambda protocol: protocol.is_published,
        doc="Every step is a step of kraft-kip-853, or changes nothing there.",
    )


def _end(log: Log) -> tuple[int, int]:
    """The end of a log as elections compare it: epoch and offset."""
    return last_epoch(log), len(log)


def _voters_offset(log: Log) -> int:
    """The offset of the last configuration in a log, from 0, or -1 if there is none."""
    return next((place for place in range(len(log) - 1, -1, -1) if isinstance(log[place].value, kraft.Membership)), -1)


def _start_of_epoch(log: Log, epoch: int) -> int:
    """The offset, from 0, of the first record of an epoch, or where it would be."""
    return next((place for place, entry in enumerate(log) if entry.epoch == epoch), len(log))
