"""KRaft with KIP-853: Raft as Kafka's controllers run it, with followers that fetch, and voters that are added and
removed.

The leader sends no entries. Its followers, voters and observers, fetch, and each fetch reports the end of the
follower's log. The leader answers with the next entry, or with the point where the logs diverge. Once a majority of
voters has an entry of its epoch, it moves its high watermark there. Elections are Raft's. A server is identified by its
host and the id of its disk, so a server that lost its disk comes back as another one, and must be added as a voter. One
voter is added or removed at a time, by a command in the log. Every server uses the command as soon as it has it,
committed or not. A leader that removes itself leads on as an observer until the command is committed.

Variables, actions and enabling conditions are those of ``kraft_kip_853.tla`` and its modules (Jack Vanlightly, 2023, of
Kafka 3.2 and of KIP-853 as proposed). So are the names and the number of states. Offsets start at 1. Three messages are
left out: the answer to a begin-quorum request, the end-quorum request, which only saves time, and snapshots.

Six properties of the published protocol are worth knowing:

- A single voter is never elected.
- A leader that is an observer and voted for itself does not restart.
- If a voter is not in the leader's configuration, the leader neither answers nor refuses its fetch:
  ``non_member_fetch``.
- A server that is not a voter accepts that a leader begins its epoch: ``only_voters_begin_epochs``.
- A leader that removed itself counts a write as committed if a single voter is left, and then never leaves.
- A server that loses its disk is permanently cut off, which counts as disconnected pairs. If fewer pairs may be
  disconnected than it has peers, as in the published configuration, no server ever loses its disk.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from functools import cache
from itertools import combinations
from typing import Any, ClassVar, TypeVar

from fencepost import (
    Envelope,
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    action,
    always_eventually,
    assumption,
    configuration,
    constant,
    initial,
    invariant,
    leads_to,
    model_values,
    network,
    one_of,
    per_key,
    require,
    sometimes,
    state,
    step_invariant,
    subsets,
    weak,
)
from fencepost.language.declarations import Configuration
from fencepost.protocols.kraft.server import (
    BeginQuorumEpochRequest,
    Cause,
    Command,
    Config,
    Entry,
    Error,
    FetchRequest,
    FetchResponse,
    FetchResult,
    Identity,
    LastFetch,
    Log,
    Membership,
    PendingFetch,
    RequestVoteRequest,
    RequestVoteResponse,
    Role,
    Server,
    ServerState,
    end_of_epoch,
    is_majority,
    is_transition,
    is_valid_position,
    last_epoch,
    latest_config,
    truncated,
)

Pair = tuple[ModelValue, ModelValue]
M = TypeVar("M", bound=Message)


class NonMemberFetch(enum.Enum):
    """The leader's answer to a fetch by a voter that is not in its configuration."""

    IGNORE = "ignore"
    ACCEPT = "accept"
    REJECT = "reject"


class Start(enum.Enum):
    """What has happened before the initial state.

    - ``ESTABLISHED``: nothing; the first server leads.
    - ``CONTESTED``: what it takes for two leaders to use different configurations.
    - ``OBSERVED``: another server follows the first leader, as an observer that has caught up.
    - ``ELECTED``: the same, but the voters have elected the second server. Its notices are still in flight.
    - ``PARTED``: the first leader has values that nobody has fetched, and the second server leads the next epoch; if
      there may be a third epoch, the first leads that.
    """

    ESTABLISHED = "established"
    CONTESTED = "contested"
    OBSERVED = "observed"
    ELECTED = "elected"
    PARTED = "parted"


@cache
def servers_up_to(count: int) -> tuple[ModelValue, ...]:
    """The names of the first servers."""
    return tuple(ModelValue(f"s{number}", number) for number in range(1, count + 1))


def servers(protocol: KRaft) -> tuple[ModelValue, ...]:
    """Every server that can ever be started."""
    return servers_up_to(protocol.max_spawned_servers)


def later_servers(protocol: KRaft) -> tuple[ModelValue, ...]:
    """Every server that does not run at the beginning."""
    return servers(protocol)[protocol.init_cluster_size :]


def pairs(protocol: KRaft) -> list[Pair]:
    """Every pair of servers, including those that are never started."""
    return list(combinations(servers(protocol), 2))


@cache
def cuts_of(pairs: tuple[Pair, ...], most: int) -> list[frozenset[Pair]]:
    """Every set of at most ``most`` pairs, smallest first. There are thousands, and each is a separate outcome."""
    return [cut for size in range(most + 1) for cut in subsets(pairs, size)]


def pairs_that_change(protocol: KRaft) -> list[Pair]:
    """Every pair that may be disconnected or connected alone; none if all change in one step."""
    return pairs(protocol) if protocol.pair_by_pair else []


def logs_have_parted(protocol: KRaft) -> bool:
    """Whether the logs diverge before the initial state."""
    return protocol.start is Start.PARTED


def pairs_may_be_disconnected(protocol: KRaft) -> bool:
    """Whether any connection is ever cut."""
    return protocol.max_disconnected_pairs > 0


KINDS: tuple[type[Message], ...] = (
    RequestVoteRequest,
    RequestVoteResponse,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
)
ROUTES: dict[type[Message], tuple[Any, Any]] = dict.fromkeys(KINDS, (servers, servers))
"""Every server can send every message to every other."""


def liveness_is_tested(protocol: KRaft) -> bool:
    """Whether timeouts need reasons, so that without one nothing happens."""
    return protocol.test_liveness


def only_by_name(protocol: KRaft) -> bool:
    """Never, so that reachability is checked only when asked for by name."""
    return False


def reconfigurations(protocol: KRaft) -> range:
    """The ids that configurations can have: the first, and one for each change. As published, the last is left out."""
    return range(1, protocol.max_add_reconfigs + protocol.max_remove_reconfigs + 2)


def voters(count: int, *, expect: str = "holds", doc: str = "", **constants: Any) -> Configuration:
    """A cluster of ``count`` voters with elections and writes only, unless ``constants`` say otherwise."""
    sizes = ("init_cluster_size", "min_cluster_size", "max_cluster_size", "max_spawned_servers", "hosts")
    never = ("max_restarts", "max_crashes", "max_add_reconfigs", "max_remove_reconfigs")
    return configuration(expect, doc, **{**dict.fromkeys(sizes, count), **dict.fromkeys(never, 0), **constants})


def _like(other: Configuration, *, expect: str = "holds", doc: str, **constants: Any) -> Configuration:
    """A configuration that differs from another one in ``constants``."""
    return configuration(expect, doc, **{**other.constants, **constants})


REMOVAL: Mapping[str, Any] = {"min_cluster_size": 1, "max_remove_reconfigs": 1}
ONE_ADDED: Mapping[str, Any] = {"max_cluster_size": 3, "max_spawned_servers": 3, "max_add_reconfigs": 1}
ONE_EPOCH: Mapping[str, Any] = {"max_epoch": 1, "max_values_per_epoch": 0, "timeouts_need_reasons": True}
ELECTIONS_ALONE: Mapping[str, Any] = {"max_values_per_epoch": 0, "timeouts_need_reasons": True}
"""Constants that several configurations share."""

ADDITION = voters(
    1,
    max_cluster_size=2,
    max_spawned_servers=2,
    max_add_reconfigs=1,
    max_epoch=1,
    max_values_per_epoch=0,
    doc="a second voter is added to one that leads for a while",
)
PARTED = voters(
    3,
    values=2,
    **ELECTIONS_ALONE,
    start=Start.PARTED,
    doc="a leader that wrote values which nobody has fetched follows another",
)
PARTED_AGAIN = _like(
    PARTED,
    max_epoch=3,
    doc="the same, but it leads once more, and the other follows, although nobody has a record of its epoch",
)
REMOVED_FOLLOWER = voters(
    2, **REMOVAL, max_values_per_epoch=0, test_liveness=True, remaining_majority=True, leaders_remove_themselves=False
)
DISK_LOSS = voters(
    2,
    max_cluster_size=3,
    max_spawned_servers=3,
    max_crashes=1,
    max_disconnected_pairs=2,
    max_add_reconfigs=1,
    **ELECTIONS_ALONE,
)


class KRaft(Protocol):
    """Raft by fetching, with voters that are added and removed: servers, clients, a network, an administrator."""

    name: ClassVar[str] = "kraft-kip-853"

    hosts: tuple[ModelValue, ...] = model_values("h", 4, "the hosts that servers are started on", symmetric=True)
    values: tuple[ModelValue, ...] = model_values(
        "v", 1, "values that clients write, each at most once", symmetric=True
    )
    init_cluster_size: int = constant(3, "voters at the beginning")
    min_cluster_size: int = constant(3, "no voter is removed if there are no more than this")
    max_cluster_size: int = constant(4, "no voter is added if there are this many")
    max_epoch: int = constant(2, "no election is held beyond this epoch, unless liveness is tested")
    limit_epochs: bool = constant(False, "whether the limit on epochs holds also where liveness is tested")
    timeouts_need_reasons: bool = constant(False, "whether timeouts need a reason also where liveness is not tested")
    max_restarts: int = constant(1, "restarts with state")
    max_crashes: int = constant(1, "crashes that lose all state")
    max_values_per_epoch: int = constant(1, "values of any one epoch in a log")
    max_add_reconfigs: int = constant(1, "voters added")
    max_remove_reconfigs: int = constant(1, "voters removed")
    max_spawned_servers: int = constant(4, "servers ever started")
    max_connectivity_changes: int = constant(0, "changes of connectivity")
    max_disconnected_pairs: int = constant(
        0, "pairs that may be disconnected at a time, those of lost servers included"
    )
    pair_by_pair: bool = constant(
        False, "whether a change of connectivity is of one pair, and not of any number at once"
    )
    test_liveness: bool = constant(False, "whether timeouts need a reason, and epochs have no limit")
    commit_before_reconfig: bool = constant(
        True, "whether a leader commits an entry of its epoch before it changes the voters: the fix of a known bug"
    )
    one_reconfig_at_a_time: bool = constant(True, "whether a change of voters waits for the last one to be committed")
    observers_keep_votes: bool = constant(
        False, "whether an observer that loses its leader remembers its vote: the fix of two leaders in one epoch"
    )
    fence_stale_votes: bool = constant(False, "whether a stale vote request leaves an unattached server in its epoch")
    non_member_fetch: NonMemberFetch = constant(
        NonMemberFetch.IGNORE, "the answer to a fetch by a voter that is not in the leader's configuration"
    )

    only_voters_begin_epochs: bool = constant(
        False, "whether a server waits until it is a voter before it accepts that a leader begins an epoch"
    )
    remaining_majority: bool = constant(
        False,
        "where liveness is tested, whether a removal needs a majority of the voters that remain, not of those"
        " before it",
    )

    leaders_resign: bool = constant(True, "whether a leader resigns when too few voters fetch from it")
    leaders_remove_themselves: bool = constant(True, "whether an administrator may have a leader remove itself")

    start: Start = constant(Start.ESTABLISHED, "what has happened at the beginning")

    server: PerKey[ModelValue, Server] = per_key(servers, Server)
    network: Network = network(ROUTES, remember=True, can_be_cut=pairs_may_be_disconnected)
    inv_sent: PerKey[ModelValue, bool] = per_key(values, False)
    inv_pos_acked: PerKey[ModelValue, bool] = per_key(values, False)
    inv_neg_acked: PerKey[ModelValue, bool] = per_key(values, False)
    restart_ctr: int = state(0)
    crash_ctr: int = state(0)
    add_reconfig_ctr: int = state(0)
    remove_reconfig_ctr: int = state(0)
    connectivity_ctr: int = state(0)
    disk_id_gen: int = state(0)

    configurations = {
        "published": configuration(
            expect="never_two_leaders_in_same_epoch",
            doc="the published configuration for safety, far too large to finish",
        ),
        "published-liveness": configuration(
            hosts=5,
            values=3,
            init_cluster_size=5,
            min_cluster_size=5,
            max_cluster_size=5,
            max_spawned_servers=5,
            max_crashes=2,
            max_add_reconfigs=0,
            max_remove_reconfigs=0,
            max_connectivity_changes=6,
            max_disconnected_pairs=6,
            pair_by_pair=True,
            test_liveness=True,
            doc=(
                "the published configuration for liveness, but for its one change of up to six pairs, which are six"
                " here, of one pair: it is infinite, and to be simulated"
            ),
        ),
        "small": voters(2, doc="two voters, two epochs"),
        "restart": voters(2, max_restarts=1, doc="two voters, two epochs, one restart"),
        "removal": voters(2, **REMOVAL, doc="two voters, two epochs, one removed"),
        "large": voters(3, max_restarts=1, doc="three voters, two epochs, one restart"),
        "undisturbed": voters(3, test_liveness=True, doc="three voters without any reason for an election"),
        "two-leaders": voters(
            2,
            **ONE_ADDED,
            max_values_per_epoch=0,
            expect="never_two_leaders_in_same_epoch",
            doc="an observer votes twice, with as few servers as possible",
        ),
        "early-reconfiguration": voters(
            4,
            min_cluster_size=3,
            max_cluster_size=5,
            max_spawned_servers=5,
            max_add_reconfigs=1,
            max_remove_reconfigs=1,
            max_epoch=3,
            **ELECTIONS_ALONE,
            observers_keep_votes=True,
            leaders_resign=False,
            commit_before_reconfig=False,
            start=Start.CONTESTED,
            expect="no_log_divergence",
            doc="the bug of the Raft thesis, starting where two leaders have different configurations",
        ),
        "parted": PARTED,
        "parted-again": PARTED_AGAIN,
        "addition": ADDITION,
        "addition-awaited": _like(
            ADDITION,
            only_voters_begin_epochs=True,
            doc="the same, and servers that do not know that they are voters do not accept a new epoch",
        ),
        "removed-follower": _like(
            REMOVED_FOLLOWER,
            non_member_fetch=NonMemberFetch.ACCEPT,
            doc="one of two voters is removed, and the leader answers it until it knows",
        ),
        "removed-follower-ignored": _like(
            REMOVED_FOLLOWER,
            expect="reconfiguration_not_stuck",
            doc="the same, but the leader does not answer it, as published",
        ),
        "removed-follower-rejected": _like(
            REMOVED_FOLLOWER,
            non_member_fetch=NonMemberFetch.REJECT,
            limit_epochs=True,
            expect="reconfiguration_not_stuck",
            doc="the same, but the leader refuses it, so that it stands for election",
        ),
        "disk-loss": _like(
            DISK_LOSS,
            max_epoch=1,
            max_remove_reconfigs=1,
            leaders_remove_themselves=False,
            doc="one of two voters loses its disk, a server with a new identity is added, and the lost one removed",
        ),
        "disk-loss-elections": _like(
            DISK_LOSS,
            doc=(
                "one of two voters loses its disk, and a server with a new identity is added, before an election or"
                " after it"
            ),
        ),
        "three-epochs": voters(2, max_epoch=3, max_values_per_epoch=0, doc="two voters, three epochs, no value"),
        "restart-with-reasons": voters(
            2,
            max_epoch=3,
            max_restarts=1,
            timeouts_need_reasons=True,
            fence_stale_votes=True,
            doc="two voters, three epochs, one restart, and an election only for a reason; stale votes are fenced",
        ),
        "removed-leader-restarts": voters(
            2,
            min_cluster_size=1,
            max_restarts=2,
            max_remove_reconfigs=1,
            **ELECTIONS_ALONE,
            doc="one of two voters is removed, and there are two restarts",
        ),
        "removed-leader-keeps-vote": voters(
            2,
            min_cluster_size=1,
            max_restarts=2,
            max_remove_reconfigs=1,
            **ELECTIONS_ALONE,
            observers_keep_votes=True,
            doc="the same, and an observer that loses its leader or leads no more remembers its vote",
        ),
        "cuts": voters(
            3,
            max_epoch=1,
            max_crashes=1,
            max_connectivity_changes=2,
            max_disconnected_pairs=3,
            max_values_per_epoch=0,
            doc="three voters are disconnected from one another, any of them at once, and one is lost",
        ),
        "cuts-pair-by-pair": voters(
            3,
            max_epoch=1,
            max_crashes=1,
            max_connectivity_changes=3,
            max_disconnected_pairs=2,
            pair_by_pair=True,
            max_values_per_epoch=0,
            doc="the same pair by pair, of which two may be disconnected",
        ),
        "cuts-with-reasons": voters(
            2,
            values=2,
            max_connectivity_changes=2,
            max_disconnected_pairs=1,
            timeouts_need_reasons=True,
            doc="two voters are disconnected and connected again, with an election only for a reason",
        ),
        "cuts-and-elections": voters(
            3,
            max_connectivity_changes=1,
            max_disconnected_pairs=1,
            pair_by_pair=True,
            **ELECTIONS_ALONE,
            doc="two of three voters are permanently disconnected, with an election only for a reason",
        ),
        "lost-voter": voters(
            2,
            max_crashes=1,
            max_disconnected_pairs=1,
            timeouts_need_reasons=True,
            doc="one of two voters is lost, with the values that its clients wait for",
        ),
        "observers": voters(
            1, max_spawned_servers=3, **ONE_EPOCH, doc="two servers start, and fetch from the only voter"
        ),
        "one-of-two-added": voters(
            1,
            **ONE_ADDED,
            **ONE_EPOCH,
            start=Start.OBSERVED,
            doc="an observer has caught up, another starts, and one of them is added",
        ),
        "one-of-three-removed": voters(3, **REMOVAL, **ONE_EPOCH, doc="three voters, one epoch, one removed"),
        "replacement": voters(
            2,
            min_cluster_size=1,
            max_spawned_servers=3,
            max_add_reconfigs=1,
            max_remove_reconfigs=1,
            **ONE_EPOCH,
            leaders_remove_themselves=False,
            non_member_fetch=NonMemberFetch.ACCEPT,
            start=Start.OBSERVED,
            doc="one of two voters is removed, and an observer takes its place: two voters at most",
        ),
        "addition-after-election": voters(
            2,
            **ONE_ADDED,
            **ELECTIONS_ALONE,
            start=Start.ELECTED,
            doc="an observer is added by a leader that it does not know yet",
        ),
        "addition-while-cut": voters(
            2,
            **ONE_ADDED,
            max_connectivity_changes=1,
            max_disconnected_pairs=1,
            max_epoch=1,
            limit_epochs=True,
            max_values_per_epoch=0,
            test_liveness=True,
            leaders_resign=False,
            start=Start.OBSERVED,
            doc="an observer is added to two voters, one of which may be permanently disconnected",
        ),
        "removal-refused": _like(
            REMOVED_FOLLOWER,
            remaining_majority=False,
            doc="as published, a removal needs a majority of the voters before it, so of two none is removed",
        ),
        "one-of-three-rejected": _like(
            REMOVED_FOLLOWER,
            hosts=3,
            init_cluster_size=3,
            min_cluster_size=2,
            max_cluster_size=3,
            max_spawned_servers=3,
            max_epoch=1,
            limit_epochs=True,
            non_member_fetch=NonMemberFetch.REJECT,
            doc="one of three voters is removed, and the leader refuses it, without elections",
        ),
    }

    # -- assumptions about the constants -------------------------------------------------------------------------------

    @assumption
    def cluster_sizes_fit(self) -> bool:
        """The initial number of voters is within the limits."""
        return 1 <= self.min_cluster_size <= self.init_cluster_size <= self.max_cluster_size

    @assumption
    def enough_hosts(self) -> bool:
        """Each of the first servers has a host of its own."""
        return self.init_cluster_size <= len(self.hosts)

    @assumption
    def enough_servers(self) -> bool:
        """The limit on started servers covers the first servers."""
        return self.init_cluster_size <= self.max_spawned_servers

    @assumption
    def a_contested_start_needs_servers_and_an_epoch(self) -> bool:
        """There are four servers, a fifth that was added, and a third epoch."""
        enough = self.max_spawned_servers >= 5 and self.max_add_reconfigs >= 1 and self.max_epoch >= 3
        return self.start is not Start.CONTESTED or (self.init_cluster_size == 4 and enough)

    @assumption
    def an_observed_start_needs_a_server(self) -> bool:
        """There is another server after the first ones, and where one is elected, a second voter and a second epoch."""
        if self.start not in (Start.OBSERVED, Start.ELECTED):
            return True
        enough = self.start is Start.OBSERVED or (self.init_cluster_size >= 2 and self.max_epoch >= 2)
        return enough and self.init_cluster_size < self.max_spawned_servers

    @assumption
    def a_parted_start_needs_servers_and_an_epoch(self) -> bool:
        """There are three voters and a second epoch."""
        return not logs_have_parted(self) or (self.init_cluster_size == 3 and self.max_epoch >= 2)

    # -- the beginning -------------------------------------------------------------------------------------------------

    @initial
    def a_cluster_with_a_leader(self) -> None:
        """The first servers are voters of epoch 1, have committed the first configuration, and follow the first of
        them.
        """
        self._establish()
        if self.start is Start.CONTESTED:
            self._contest()
        elif self.start in (Start.OBSERVED, Start.ELECTED):
            self._observe()
        if self.start is Start.ELECTED:
            self._elect()
        if self.start is Start.PARTED:
            self._part()

    def _establish(self) -> None:
        first = servers_up_to(self.init_cluster_size)
        members = frozenset(first)
        log = (Entry(Command.INIT_CLUSTER, epoch=1, value=Membership(1, members)),)
        for s, host in zip(first, self.hosts, strict=False):
            me = self.server[s]
            me.identity = Identity(host, disk_id=0)
            me.role = Role.VOTER
            me.state = ServerState.LEADER if s == first[0] else ServerState.FOLLOWER
            me.current_epoch = 1
            me.leader = first[0]
            me.log = log
            me.hwm = 1
            me.config = latest_config(log, hwm=1)
            for member in members:
                me.flwr_end_offset[member] = 1

    def _contest(self) -> None:
        """The first leader has added a voter, and nobody knows. The second server leads the next epoch.

        The others elected it, and one of them has fetched the first entry of the epoch. None of these messages is left.
        """
        s1, s2, s3, s4, s5 = (self.server[s] for s in servers_up_to(5))
        s5.identity = Identity(self.hosts[0], disk_id=1)
        s5.role = Role.OBSERVER
        s5.state = ServerState.UNATTACHED
        s5.config = s1.config
        s1.append_configuration(Command.ADD_VOTER, frozenset(servers_up_to(5)), servers_up_to(5)[4])
        self.disk_id_gen = 1
        self.add_reconfig_ctr = 1
        second = servers_up_to(2)[1]
        s1.become_unattached(epoch=2)
        s2.become_candidate(second)
        s2.become_leader(second)
        s2.log = s3.log = (*s2.log, Entry(Command.LEADER_CHANGE, epoch=2))
        for other in (s3, s4):
            other.become_unattached(epoch=2)
            other.become_voted(second, epoch=2)
        s3.become_follower(servers_up_to(3)[2], second, epoch=2)
        s2.track_anew(s2.config.members)
        s2.flwr_end_offset[servers_up_to(3)[2]] = 1

    def _observe(self) -> None:
        """Another server was started. It has fetched everything, and follows the first leader."""
        first, s = servers_up_to(1)[0], servers(self)[self.init_cluster_size]
        leader, me = self.server[first], self.server[s]
        self.disk_id_gen = 1
        me.identity = Identity(self.hosts[0], disk_id=1)
        me.role = Role.OBSERVER
        me.state = ServerState.FOLLOWER
        me.current_epoch = leader.current_epoch
        me.leader = first
        me.log = leader.log
        me.hwm = leader.hwm
        me.config = leader.config
        me.track(me.config.members)

    def _elect(self) -> None:
        """All voters have voted for the second server. It has begun its epoch, and sent them notice of that."""
        first = servers_up_to(self.init_cluster_size)
        second, me = first[1], self.server[first[1]]
        me.become_candidate(second)
        me.become_leader(second)
        me.log = (*me.log, Entry(Command.LEADER_CHANGE, me.current_epoch))
        me.track_anew(me.config.members)
        for other in first:
            if other != second:
                self.server[other].become_unattached(me.current_epoch)
                self.server[other].become_voted(second, me.current_epoch)
                self.network.send(BeginQuorumEpochRequest(me.current_epoch), second, other)

    def _part(self) -> None:
        """The first leader wrote all values, and the third server elected the second; then, maybe, the first again.
        Nobody has fetched any of these entries, and all follow the last leader.
        """
        first, second, third = voters = servers_up_to(3)
        me = self.server[first]
        me.log = (*me.log, *(Entry(Command.APPEND, 1, v) for v in self.values))
        for v in self.values:
            self.inv_sent[v] = self.inv_neg_acked[v] = True
        for leader in (second, first)[: self.max_epoch - 1]:
            me = self.server[leader]
            me.become_candidate(leader)
            me.become_leader(leader)
            me.log = (*me.log, Entry(Command.LEADER_CHANGE, me.current_epoch))
            for s in voters:
                if s != leader:
                    self.server[s].become_unattached(me.current_epoch)
            self.server[third].become_voted(leader, me.current_epoch)
        me.track_anew(me.config.members)
        for s in voters:
            if s != leader:
                self.server[s].become_follower(s, leader, me.current_epoch)

    # -- restarts and crashes ------------------------------------------------------------------------------------------

    @action(s=servers)
    def restart_with_state(self, s: ModelValue) -> None:
        """A server restarts with its stored state: everything but its high watermark and what it knew of others."""
        require(self.restart_ctr < self.max_restarts)
        me = self.server[s]
        require(me.state not in (None, ServerState.DEAD_NO_STATE))
        if me.state is ServerState.LEADER:
            if me.role is Role.VOTER:
                me.become_resigned()
            else:
                # Its vote is stored, so it cannot be forgotten.
                require(self.observers_keep_votes or me.voted_for is None)
                self._lose_leader(me)
        me.hwm = 0
        me.fetch_state.reset()
        me.track_anew(frozenset(me.flwr_end_offset))
        self.fail_pending_writes(me)
        self.restart_ctr += 1

    @action(s=servers)
    def crash_lose_state(self, s: ModelValue) -> None:
        """A voter crashes and loses all its state. It never comes back, and is disconnected from all others."""
        require(self.crash_ctr < self.max_crashes)
        me = self.server[s]
        require(me.role is Role.VOTER)
        now_cut = self._disconnected() | {pair for pair in pairs(self) if s in pair}
        require(len(now_cut) <= self.max_disconnected_pairs)
        self._disconnect(now_cut)
        me.become_dead()
        me.role = None
        me.config = Config()
        me.fetch_state.reset()
        me.track(frozenset())
        me.log = ()
        me.hwm = 0
        self.fail_pending_writes(me)
        self.crash_ctr += 1

    def fail_pending_writes(self, me: Server) -> None:
        """Fail the writes of clients that wait for an acknowledgement."""
        for v in self.values:
            if me.pending_ack[v]:
                me.pending_ack[v] = False
                self.inv_neg_acked[v] = True

    @action(s=later_servers, host=hosts, leader=servers)
    def start_new_server(self, s: ModelValue, host: ModelValue, leader: ModelValue) -> None:
        """A server starts with an empty disk, as an observer, and fetches from a leader, which refuses this first
        fetch.

        How it finds the leader and the configuration is left out.
        """
        me, before = self.server[s], self.server[servers(self)[servers(self).index(s) - 1]]
        require(me.identity is None and before.identity is not None)
        require(self.server[leader].state is ServerState.LEADER)
        self.disk_id_gen += 1
        me.identity = Identity(host, self.disk_id_gen)
        me.role = Role.OBSERVER
        me.state = ServerState.UNATTACHED
        me.config = self.server[leader].config
        self.network.send(FetchRequest(epoch=0, fetch_offset=0, last_fetched_epoch=0, observer=True), s, leader)

    # -- elections -----------------------------------------------------------------------------------------------------

    @action(s=servers)
    def send_request_vote(self, s: ModelValue) -> None:
        """A voter has waited long enough for a leader, and stands for election."""
        me = self.server[s]
        require(me.role is Role.VOTER and me.state is not ServerState.LEADER)
        require(s in me.config.members)
        require(not self.needs_reasons or self.election_times_out(s))
        require((self.test_liveness and not self.limit_epochs) or me.current_epoch < self.max_epoch)
        me.become_candidate(s)
        me.fetch_state.reset()
        request = RequestVoteRequest(me.current_epoch, last_epoch(me.log), len(me.log))
        self.network.send_all([(request, peer) for peer in me.config.members - {s}], s)

    @property
    def needs_reasons(self) -> bool:
        """Whether timeouts need reasons."""
        return self.test_liveness or self.timeouts_need_reasons

    def election_times_out(self, s: ModelValue) -> bool:
        """Whether there is a reason for an election: there is no leader, the leader does not answer, or nobody can
        win.
        """
        me = self.server[s]
        if me.state is ServerState.FOLLOWER:
            return self.fetch_times_out(s)
        if me.state is ServerState.CANDIDATE:
            return self._lacks_votes(s)
        if me.state is ServerState.VOTED:
            assert me.voted_for is not None
            return self._lacks_votes(me.voted_for)
        return me.state in (ServerState.UNATTACHED, ServerState.RESIGNED)

    def _lacks_votes(self, candidate: ModelValue) -> bool:
        """Whether a candidate has too few votes, and no more can arrive."""
        it = self.server[candidate]
        return (
            it.state is not ServerState.LEADER
            and 2 * len(it.votes_recv) <= len(it.config.members)
            and not any(self.network.in_flight(RequestVoteRequest, candidate, s) for s in servers(self))
            and not any(self.network.in_flight(RequestVoteResponse, s, candidate) for s in servers(self))
        )

    @action(s=servers, peer=servers)
    def handle_vote_request(self, s: ModelValue, peer: ModelValue) -> None:
        """A server, voter or observer, votes for a candidate whose log is not behind its own, if it has not voted.

        An observer may be a voter that does not know it yet, and whose vote is needed.
        """
        me = self.server[s]
        request = self.receive_from(RequestVoteRequest, s, peer)
        asked, epoch, state_before = request.message, me.current_epoch, me.state
        if asked.epoch > epoch:
            me.become_unattached(asked.epoch)
        stale = asked.epoch < epoch
        free = me.state in (ServerState.UNATTACHED, ServerState.VOTED) and me.voted_for in (None, peer)
        granted = free and (asked.last_log_epoch, asked.last_log_offset) >= (last_epoch(me.log), len(me.log))
        if granted and me.state is ServerState.UNATTACHED and not (stale and self.fence_stale_votes):
            me.become_voted(peer, asked.epoch)
        if stale:
            refusal = RequestVoteResponse(epoch, me.leader, vote_granted=False, error=Error.FENCED_LEADER_EPOCH)
            self.network.reply(request, refusal)
            return
        if me.state is not state_before:
            me.fetch_state.reset()
            self.fail_pending_writes(me)
        self.network.reply(request, RequestVoteResponse(asked.epoch, me.leader, granted))

    @action(s=servers, peer=servers)
    def handle_vote_response(self, s: ModelValue, peer: ModelValue) -> None:
        """A candidate counts a vote. Any voter may learn of a later epoch or of a leader."""
        me = self.server[s]
        require(me.role is Role.VOTER)
        response = self.receive_from(RequestVoteResponse, s, peer).message
        handled = self.handle_common_response(s, response.leader, response.epoch, response.error)
        if not handled and response.vote_granted and me.state is ServerState.CANDIDATE:
            me.votes_recv |= {peer}

    @action(s=servers)
    def become_leader(self, s: ModelValue) -> None:
        """A candidate has the votes of a majority. It begins its epoch with an entry of its own, and notifies the
        voters.

        A single voter is never elected: the condition requires that its high watermark both stays and moves.
        """
        me = self.server[s]
        require(me.state is ServerState.CANDIDATE)
        members = me.config.members
        require(is_majority(me.votes_recv, members))
        me.become_leader(s)
        me.log = (*me.log, Entry(Command.LEADER_CHANGE, me.current_epoch))
        require(len(members) > 1 or me.hwm == len(me.log))
        me.track_anew(members)
        me.fetch_state.reset()
        announcement = BeginQuorumEpochRequest(me.current_epoch)
        for peer in members - {s}:
            require(not self.network.is_known(announcement, s, peer))
            self.network.send(announcement, s, peer)

    @action(s=servers, peer=servers)
    def resend_begin_quorum_epoch_request(self, s: ModelValue, peer: ModelValue) -> None:
        """A leader notifies a voter again that it leads, since the first notice was lost. Only where timeouts need
        reasons.
        """
        require(self.needs_reasons and s != peer)
        me, other = self.server[s], self.server[peer]
        require(me.state is ServerState.LEADER and peer in me.config.members)
        require(self.network.connected(s, peer))
        behind = me.current_epoch > other.current_epoch
        require(behind or (me.current_epoch == other.current_epoch and other.state is not ServerState.FOLLOWER))
        announcements = (BeginQuorumEpochRequest(epoch) for epoch in range(1, me.current_epoch + 1))
        require(not any(self.network.is_known(announcement, s, peer) for announcement in announcements))
        self.network.send(BeginQuorumEpochRequest(me.current_epoch), s, peer)

    @action(s=servers, peer=servers)
    def accept_begin_quorum_request(self, s: ModelValue, peer: ModelValue) -> None:
        """A server learns the leader. It may be an observer that is a voter in a configuration which it does not have
        yet.
        """
        me = self.server[s]
        require(me.role is Role.VOTER or not self.only_voters_begin_epochs)
        announcement = self.receive_from(
            BeginQuorumEpochRequest, s, peer, where=lambda request: request.epoch >= me.current_epoch
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
        require(self.leaders_resign and me.state is ServerState.LEADER)
        if self.needs_reasons:
            members = me.config.members
            require(sum(self.can_fetch_from(peer, s) for peer in members - {s}) < len(members) // 2)
        if me.role is Role.VOTER:
            me.become_resigned()
        else:
            self._lose_leader(me)

    def can_fetch_from(self, peer: ModelValue, leader: ModelValue) -> bool:
        """Whether a voter is connected to the leader and knows no later epoch. An observer may know a later one."""
        it = self.server[peer]
        if it.role is Role.VOTER and it.current_epoch > self.server[leader].current_epoch:
            return False
        return it.role is not None and self.network.connected(leader, peer)

    # -- epochs and leaders in messages --------------------------------------------------------------------------------

    def _is_consistent(self, s: ModelValue, leader: ModelValue | None, epoch: int) -> bool:
        """Whether another server's belief about the leader of an epoch is possible, given what this server knows.

        The other may not know yet that this server has resigned or left.
        """
        me = self.server[s]
        if leader == s:
            resigned = me.role is Role.OBSERVER or me.state is ServerState.RESIGNED
            return (epoch == me.current_epoch and resigned) or me.state is ServerState.LEADER
        return epoch != me.current_epoch or leader is None or me.leader is None or me.leader == leader

    def maybe_transition(self, s: ModelValue, leader: ModelValue | None, epoch: int) -> None:
        """Apply the epoch that another server reported, unless it is an earlier one, and its leader if it has one."""
        me = self.server[s]
        if not self._is_consistent(s, leader, epoch):
            me.become_illegal()
        elif epoch > me.current_epoch and leader is None:
            me.become_unattached(epoch)
        elif leader is not None and (epoch > me.current_epoch or (me.leader is None and leader != s)):
            me.become_follower(s, leader, epoch)

    def _lose_leader(self, me: Server) -> None:
        """An observer loses its leader, or stops leading, in the same epoch. As published, it forgets its vote."""
        me.become_unattached(me.current_epoch, Cause.LEADER_LOST, keep_vote=self.observers_keep_votes)

    def handle_common_response(self, s: ModelValue, leader: ModelValue | None, epoch: int, error: Error | None) -> bool:
        """Handle what all responses have in common. Return whether that is all. A response of an earlier epoch is
        discarded.
        """
        me = self.server[s]
        if epoch < me.current_epoch:
            return True
        refused = error in (Error.FENCED_LEADER_EPOCH, Error.NOT_LEADER, Error.UNKNOWN_MEMBER)
        if epoch > me.current_epoch or refused:
            self.maybe_transition(s, leader, epoch)
            return True
        if leader is not None and leader != s and me.leader is None:
            me.become_follower(s, leader, epoch)
            return True
        return False

    def receive_from(
        self, kind: type[M], s: ModelValue, peer: ModelValue, where: Callable[[M], bool] | None = None
    ) -> Envelope[M]:
        """Receive a message from ``peer``. No message reaches a server that lost its state: it is disconnected from
        all.
        """
        require(s != peer)
        return self.network.receive(kind, to=s, source=peer, where=where)

    # -- writing and fetching ------------------------------------------------------------------------------------------

    @action(s=servers, v=values)
    def client_request(self, s: ModelValue, v: ModelValue) -> None:
        """A client writes a value to a leader. If there is only one voter, it is committed at once."""
        me = self.server[s]
        require(me.state is ServerState.LEADER)
        require(not self.inv_sent[v])
        written = sum(e.epoch == me.current_epoch and e.command is Command.APPEND for e in me.log)
        require(written < self.max_values_per_epoch)
        me.log = (*me.log, Entry(Command.APPEND, me.current_epoch, v))
        if len(me.config.members) == 1:
            me.hwm = len(me.log)
        me.pending_ack[v] = True
        self.inv_sent[v] = True

    @action(s=servers, peer=servers)
    def send_fetch_request(self, s: ModelValue, peer: ModelValue) -> None:
        """A server fetches from its leader, even if that is no longer a voter in its configuration.

        An observer without a leader fetches from a voter, which refuses and names the leader. It asks a voter that
        knows the leader: that saves states and hides no defect.
        """
        require(s != peer)
        me = self.server[s]
        require(me.fetch_state.pending_fetch is None)
        if me.leader == peer and me.state is ServerState.FOLLOWER:
            pass
        else:
            require(me.role is Role.OBSERVER and me.state in (ServerState.UNATTACHED, ServerState.VOTED))
            require(self.network.connected(s, peer))
            require(self.server[peer].role is Role.VOTER and self.server[peer].leader is not None)
        request = FetchRequest(me.current_epoch, len(me.log) + 1, last_epoch(me.log), observer=me.role is Role.OBSERVER)
        me.fetch_state.pending_fetch = PendingFetch(peer, request)
        self.network.send(request, s, peer)

    @action(s=servers)
    def observer_fetch_timeout(self, s: ModelValue) -> None:
        """An observer gives up its leader, and looks for another."""
        me = self.server[s]
        require(me.role is Role.OBSERVER)
        require(not self.needs_reasons or self.fetch_times_out(s))
        self._lose_leader(me)
        me.fetch_state.reset()

    def fetch_times_out(self, s: ModelValue) -> bool:
        """Whether the leader has refused the last fetch, or the answer to the pending fetch cannot arrive any more."""
        me = self.server[s]
        last = me.fetch_state.last_fetch_res
        if last is not None and last.error is not None and last.peer == me.leader:
            return True
        pending = me.fetch_state.pending_fetch
        if pending is None or pending.request in self.network.in_flight(FetchRequest, s, pending.peer):
            return False
        return not self.network.in_flight(FetchResponse, pending.peer, s, topic=pending.request)

    @action(s=servers, peer=servers)
    def reject_fetch_request(self, s: ModelValue, peer: ModelValue) -> None:
        """A server refuses a fetch: it does not lead, or its epoch is not that of the fetch."""
        me = self.server[s]
        fetch = self.receive_from(FetchRequest, s, peer)
        error = self.why_rejected(s, peer, fetch.message)
        require(error is not None)
        self.network.reply(
            fetch,
            FetchResponse(
                FetchResult.NOT_OK, me.current_epoch, me.leader, me.hwm, correlation=fetch.message, error=error
            ),
        )

    def why_rejected(self, s: ModelValue, peer: ModelValue, fetch: FetchRequest) -> Error | None:
        me = self.server[s]
        if me.state is not ServerState.LEADER:
            return Error.NOT_LEADER
        if fetch.epoch != me.current_epoch:
            return Error.FENCED_LEADER_EPOCH if fetch.epoch < me.current_epoch else Error.UNKNOWN_LEADER
        if self.non_member_fetch is NonMemberFetch.REJECT and not fetch.observer and peer not in me.config.members:
            return Error.UNKNOWN_MEMBER
        return None

    @action(s=servers, peer=servers)
    def diverging_fetch_request(self, s: ModelValue, peer: ModelValue) -> None:
        """The logs of the leader and of the fetching server diverge: the leader answers with the point where they
        do.
        """
        me = self.server[s]
        fetch = self.receive_fetch(s, peer, where=lambda fetch: not is_valid_position(me.log, fetch))
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
        """The leader learns the end of a voter's log, commits what a majority has, and answers with the next entry.

        If that commits the leader's own removal, it becomes an observer without a leader.
        """
        me = self.server[s]
        fetch = self.receive_fetch(s, peer, where=lambda fetch: not fetch.observer and is_valid_position(me.log, fetch))
        is_member = peer in me.config.members
        require(is_member or self.non_member_fetch is NonMemberFetch.ACCEPT)
        offset = fetch.message.fetch_offset
        if is_member:
            me.flwr_end_offset[peer] = offset - 1
        hwm = me.agreed_offset(s)
        leader: ModelValue | None = s
        if hwm > me.hwm:
            committed = me.log[me.hwm : hwm]
            for v in self.values:
                if me.pending_ack[v] and any(entry.value == v for entry in committed):
                    me.pending_ack[v] = False
                    self.inv_pos_acked[v] = True
            me.hwm = hwm
            me.config = latest_config(me.log, hwm)
            me.track(me.config.members)
            if any(_removes(entry, s) for entry in committed):
                leader = None
                self._leave(me)
        self.network.reply(fetch, self.entry_for(me, fetch.message, leader, hwm))

    def _leave(self, me: Server) -> None:
        """A leader whose own removal is committed leads no more."""
        me.role = Role.OBSERVER
        self._lose_leader(me)
        me.track(frozenset())
        me.hwm = 0

    @action(s=servers, peer=servers)
    def accept_fetch_request_from_observer(self, s: ModelValue, peer: ModelValue) -> None:
        """The leader answers an observer with the next entry."""
        me = self.server[s]
        fetch = self.receive_fetch(s, peer, where=lambda fetch: fetch.observer and is_valid_position(me.log, fetch))
        self.network.reply(fetch, self.entry_for(me, fetch.message, me.leader, me.hwm))

    def receive_fetch(
        self, s: ModelValue, peer: ModelValue, where: Callable[[FetchRequest], bool]
    ) -> Envelope[FetchRequest]:
        """Receive a fetch at the leader of its epoch."""
        me = self.server[s]
        require(me.state is ServerState.LEADER)
        return self.receive_from(
            FetchRequest, s, peer, where=lambda fetch: fetch.epoch == me.current_epoch and where(fetch)
        )

    def entry_for(self, me: Server, fetch: FetchRequest, leader: ModelValue | None, hwm: int) -> FetchResponse:
        """The entry that a fetch asks for, or None if the log ends before it."""
        entry = me.log[fetch.fetch_offset - 1] if fetch.fetch_offset <= len(me.log) else None
        known = min(hwm, fetch.fetch_offset)
        return FetchResponse(FetchResult.OK, me.current_epoch, leader, known, correlation=fetch, entry=entry)

    @action(s=servers, peer=servers)
    def handle_fetch_response(self, s: ModelValue, peer: ModelValue) -> None:
        """A follower appends an entry, or truncates its log where it diverges from the leader's, or learns the leader.

        It then uses the last configuration in its log. That may be the one in the new entry, or one before the
        truncation. So it may become a voter or an observer.
        """
        me = self.server[s]
        pending = me.fetch_state.pending_fetch
        require(pending is not None and pending.peer == peer)
        assert pending is not None
        response = self.network.receive(FetchResponse, to=s, source=peer, topic=pending.request).message
        handled = self.handle_common_response(s, response.leader, response.epoch, response.error)
        if not handled and me.state is ServerState.FOLLOWER:
            if response.result is FetchResult.DIVERGING:
                me.log = truncated(me.log, response.diverging_epoch, response.diverging_end_offset)
            else:
                if response.entry is not None:
                    me.log = (*me.log, response.entry)
                me.hwm = response.hwm
            me.config = latest_config(me.log, response.hwm)
            me.role = Role.VOTER if s in me.config.members else Role.OBSERVER
            me.track(me.config.members)
        me.fetch_state.pending_fetch = None
        me.fetch_state.last_fetch_res = LastFetch(peer, response.error)

    # -- reconfiguration -----------------------------------------------------------------------------------------------

    @action(s=servers, add_server=servers)
    def accept_add_voter_request(self, s: ModelValue, add_server: ModelValue) -> None:
        """An administrator has a leader add a voter: any server that was ever started and is not a voter yet."""
        require(self.add_reconfig_ctr < self.max_add_reconfigs)
        require(s != add_server)
        me = self.server[s]
        self.require_ready_to_reconfigure(me)
        members = me.config.members
        require(add_server not in members and len(members) < self.max_cluster_size)
        require(self.server[add_server].identity is not None)
        if self.test_liveness:
            # Without a connected majority of the new voters the leader would be stuck.
            connected = 1 + sum(self.network.connected(s, peer) for peer in (members | {add_server}) - {s})
            require(2 * connected > len(members) + 1)
        me.append_configuration(Command.ADD_VOTER, members | {add_server}, add_server)
        self.network.send(BeginQuorumEpochRequest(me.current_epoch), s, add_server)
        self.add_reconfig_ctr += 1

    @action(s=servers, remove_server=servers)
    def accept_remove_voter_request(self, s: ModelValue, remove_server: ModelValue) -> None:
        """An administrator has a leader remove a voter. A leader that removes itself leads on as an observer."""
        require(self.remove_reconfig_ctr < self.max_remove_reconfigs)
        me = self.server[s]
        self.require_ready_to_reconfigure(me)
        members = me.config.members
        require(remove_server in members and len(members) > self.min_cluster_size)
        require(remove_server != s or self.leaders_remove_themselves)
        if self.test_liveness:
            # Without a connected, live majority the leader would be stuck.
            left = [peer for peer in members - {remove_server} if self.server[peer].role is Role.VOTER]
            needed = len(members) - 1 if self.remaining_majority else len(members)
            require(2 * sum(self.network.connected(s, peer) for peer in left) > needed)
        me.append_configuration(Command.REMOVE_VOTER, members - {remove_server}, remove_server)
        if s == remove_server:
            me.role = Role.OBSERVER
        self.remove_reconfig_ctr += 1

    def require_ready_to_reconfigure(self, me: Server) -> None:
        """A leader changes the voters only if the last change is committed, and an entry of its own epoch too."""
        require(me.state is ServerState.LEADER)
        require(me.config.committed or not self.one_reconfig_at_a_time)
        require(me.has_committed_in_its_epoch or not self.commit_before_reconfig)

    # -- the network ---------------------------------------------------------------------------------------------------

    @action(by="the network")
    def change_network_connectivity(self) -> None:
        """Other pairs of servers are disconnected than before. Those of a lost server always are."""
        require(self.connectivity_ctr < self.max_connectivity_changes and not self.pair_by_pair)
        now_cut = self._disconnected()
        of_lost = {pair for pair in pairs(self) if self._is_lost(pair)}
        too_many = len(now_cut) > self.max_disconnected_pairs
        most = len(now_cut) - 1 if too_many else self.max_disconnected_pairs
        cuts = cuts_of(tuple(pairs(self)), most)
        self._disconnect(one_of([cut for cut in cuts if of_lost <= cut and cut != now_cut]))
        self.connectivity_ctr += 1

    @action(pair=pairs_that_change, by="the network")
    def change_connection(self, pair: Pair) -> None:
        """One pair of servers is disconnected, or connected again. The action reads only the messages in flight of this
        pair.
        """
        require(self.connectivity_ctr < self.max_connectivity_changes)
        if self.network.connected(*pair):
            require(len(self._disconnected()) < self.max_disconnected_pairs)
            self.network.cut(*pair)
        else:
            require(not self._is_lost(pair))
            self.network.heal(*pair)
        self.connectivity_ctr += 1

    def _is_lost(self, pair: Pair) -> bool:
        return any(self.server[s].state is ServerState.DEAD_NO_STATE for s in pair)

    def _disconnected(self) -> frozenset[Pair]:
        return frozenset(pair for pair in pairs(self) if not self.network.connected(*pair))

    def _disconnect(self, cut: frozenset[Pair]) -> None:
        """Disconnect these pairs, and connect all others."""
        for pair in pairs(self):
            if pair in cut:
                self.network.cut(*pair)
            else:
                self.network.heal(*pair)

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant(s=servers)
    def no_illegal_state(self, s: ModelValue) -> bool:
        """No server meets an event that must not happen in its state."""
        return self.server[s].state is not ServerState.ILLEGAL_STATE

    @invariant(pair=pairs)
    def no_log_divergence(self, pair: Pair) -> bool:
        """Two servers have the same entries up to where both have them committed."""
        one, other = (self.server[s] for s in pair)
        common = min(one.hwm, other.hwm)
        return common == 0 or (one.log[:common] == other.log[:common] and len(one.log) >= common)

    @invariant(s=servers)
    def states_match_roles(self, s: ModelValue) -> bool:
        """An observer is in no state that is reserved for voters, and an unattached server has no leader."""
        me = self.server[s]
        for_voters = (ServerState.CANDIDATE, ServerState.RESIGNED)
        return not (me.role is Role.OBSERVER and me.state in for_voters) and not (
            me.state is ServerState.UNATTACHED and me.leader is not None
        )

    @invariant(s=servers)
    def roles_match_logs(self, s: ModelValue) -> bool:
        """A live server is a voter exactly if the last configuration in its log says so, and uses that
        configuration.
        """
        me = self.server[s]
        if me.role is None:
            return True
        members = latest_config(me.log, me.hwm).members if me.log else frozenset()
        return (me.role is Role.VOTER) == (s in members) and (not me.log or me.config.members == members)

    @invariant(pair=pairs)
    def never_two_leaders_in_same_epoch(self, pair: Pair) -> bool:
        """Two servers in the same epoch that know a leader know the same one."""
        one, other = (self.server[s] for s in pair)
        if one.leader is None or other.leader is None or one.leader == other.leader:
            return True
        return one.current_epoch != other.current_epoch

    @invariant(s=servers, v=values)
    def leader_has_all_acked_values(self, s: ModelValue, v: ModelValue) -> bool:
        """The leader of the latest epoch has every value that was acknowledged to a client."""
        return not self.inv_pos_acked[v] or _has_value(self.server[s].log, v) or not self._is_current_leader(s)

    def _is_current_leader(self, s: ModelValue) -> bool:
        """Whether a server leads, and no server knows a later epoch."""
        me = self.server[s]
        if me.state is not ServerState.LEADER:
            return False
        return not any(self.server[other].current_epoch > me.current_epoch for other in servers(self))

    @invariant(v=values)
    def acked_value_not_lost(self, v: ModelValue) -> bool:
        """Every value that was acknowledged to a client is in the log of some voter."""
        if not self.inv_pos_acked[v]:
            return True
        return any(self.server[s].role is Role.VOTER and _has_value(self.server[s].log, v) for s in servers(self))

    @invariant(v=values)
    def writers_wait_or_are_told(self, v: ModelValue) -> bool:
        """The writer of a value waits, or got exactly one answer. No other client waits or got one."""
        waiting = sum(self.server[s].pending_ack[v] for s in servers(self))
        return waiting + self.inv_pos_acked[v] + self.inv_neg_acked[v] == self.inv_sent[v]

    @invariant(pair=pairs)
    def identities_differ(self, pair: Pair) -> bool:
        """No two servers have the same host and disk."""
        one, other = (self.server[s].identity for s in pair)
        return one is None or one != other

    @invariant(s=servers)
    def lost_servers_have_nothing(self, s: ModelValue) -> bool:
        """A server that has lost its state has no role, epoch, vote, configuration or entries, and no client waits for
        it.
        """
        me = self.server[s]
        if me.state is not ServerState.DEAD_NO_STATE:
            return True
        forgot = me.current_epoch == 0 and me.leader is None and me.voted_for is None and not me.votes_recv
        knows = len(me.config.members) + len(me.flwr_end_offset) + len(me.log) + me.hwm
        return forgot and me.role is None and knows == 0 and not any(me.pending_ack[v] for v in self.values)

    @invariant(s=servers)
    def candidates_vote_for_themselves(self, s: ModelValue) -> bool:
        """A candidate has voted for itself."""
        me = self.server[s]
        return me.state is not ServerState.CANDIDATE or (me.voted_for == s and s in me.votes_recv)

    @step_invariant(when=lambda protocol: False, s=servers)
    def only_transitions_of_the_table(self, after: KRaft, s: ModelValue) -> bool:
        """A server changes its state only by the table of KRaft's quorum states, perhaps by two transitions at once.

        The table is for voters. An observer that loses its leader becomes unattached in the same epoch, as does a
        server that starts. It looks at every step, so it is checked only when asked for by name. From three epochs on a
        stale vote request violates it.
        """
        before, now = self.server[s], after.server[s]
        if before.state is now.state and before.current_epoch == now.current_epoch:
            return True
        if before.state is None:
            return now.state is ServerState.UNATTACHED and now.role is Role.OBSERVER
        if now.state is ServerState.DEAD_NO_STATE:
            return before.role is Role.VOTER
        if now.state is ServerState.UNATTACHED and now.role is Role.OBSERVER:
            return now.current_epoch >= before.current_epoch
        return now.state is not None and is_transition(before.state, before.current_epoch, now.state, now.current_epoch)

    @invariant(s=servers)
    def removed_leaders_step_down(self, s: ModelValue) -> bool:
        """A leader that is not a voter leads only until it knows that its removal is committed."""
        me = self.server[s]
        return not (me.state is ServerState.LEADER and me.config.committed and s not in me.config.members)

    @invariant(s=servers)
    def valid_votes_recv(self, s: ModelValue) -> bool:
        """Only a candidate has votes."""
        me = self.server[s]
        return not me.votes_recv or me.state is ServerState.CANDIDATE

    @sometimes(s=later_servers, when=only_by_name)
    def lost_voters_are_replaced(self, s: ModelValue) -> bool:
        """A server with a new disk is a voter of a committed configuration, on the host of a server that lost its
        disk.
        """
        me = self.server[s]
        if me.identity is None or me.role is not Role.VOTER or not me.config.committed:
            return False
        lost = [other for other in servers(self) if self.server[other].state is ServerState.DEAD_NO_STATE]
        return any(self._host(other) == me.identity.host for other in lost)

    @sometimes(when=logs_have_parted)
    def parted_logs_become_one(self) -> bool:
        """All servers have the same log."""
        return len({self.server[s].log for s in servers(self)}) == 1

    def _host(self, s: ModelValue) -> ModelValue | None:
        identity = self.server[s].identity
        return None if identity is None else identity.host

    # -- what must happen ----------------------------------------------------------------------------------------------

    fairness = [
        weak(check_quorum_resign, observer_fetch_timeout, send_request_vote, become_leader),
        weak(handle_vote_request, handle_vote_response),
        weak(accept_begin_quorum_request, resend_begin_quorum_epoch_request),
        weak(send_fetch_request, reject_fetch_request, diverging_fetch_request),
        weak(accept_fetch_request_from_voter, accept_fetch_request_from_observer, handle_fetch_response),
    ]

    @leads_to(v=values, when=liveness_is_tested)
    def values_eventually_acked(self, v: ModelValue) -> tuple[bool, bool]:
        """The writer of a value eventually learns either that it is committed or that this is not known, and not
        both.
        """
        return self.inv_sent[v], self.inv_pos_acked[v] != self.inv_neg_acked[v]

    @always_eventually(config_id=reconfigurations, when=liveness_is_tested)
    def reconfiguration_not_stuck(self, config_id: int) -> bool:
        """Infinitely often there is a leader that has committed a configuration, or does not have it, or has lost all
        its voters.
        """
        return any(self._is_current_leader(s) and self._is_settled(s, config_id) for s in servers(self))

    def _is_settled(self, s: ModelValue, config_id: int) -> bool:
        me = self.server[s]
        offsets = [
            offset
            for offset, entry in enumerate(me.log, 1)
            if isinstance(entry.value, Membership) and entry.value.id == config_id
        ]
        if not offsets or offsets[0] <= me.hwm:
            return True
        return not any(
            self.network.connected(s, peer) and self.server[peer].state is not ServerState.DEAD_NO_STATE
            for peer in me.config.members
        )

    @leads_to(when=liveness_is_tested)
    def eventually_leader_elected(self) -> tuple[bool, bool]:
        """Whenever there is no leader that a majority of its voters follow, there eventually is one."""
        exists = any(self._is_followed(s) for s in servers(self))
        return not exists, exists

    def _is_followed(self, leader: ModelValue) -> bool:
        it = self.server[leader]
        if it.state is not ServerState.LEADER:
            return False
        voters = [me for me in self.server.values() if me.role is Role.VOTER]
        following = sum(me.leader == leader and leader in me.config.members for me in voters)
        return 2 * following > len(it.config.members)


def _has_value(log: Log, v: ModelValue) -> bool:
    return any(entry.value == v for entry in log)


def _removes(entry: Entry, s: ModelValue) -> bool:
    """Whether an entry removes ``s`` from the voters."""
    return (
        entry.command is Command.REMOVE_VOTER and isinstance(entry.value, Membership) and s not in entry.value.members
    )
