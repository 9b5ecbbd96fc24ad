"""A KRaft server: its state, its transition table, and the messages between servers.

The actions and their enabling conditions are in `kip_853`.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping
from typing import ClassVar

from fencepost import Message, ModelValue, PerKey, Record, Table, per_key, table

Members = frozenset[ModelValue]


class Role(enum.Enum):
    """The role of a server: a voter is a full member, an observer keeps a copy of the log."""

    VOTER = "voter"
    OBSERVER = "observer"


class ServerState(enum.Enum):
    """The state of a server in the current epoch. ILLEGAL_STATE: an event that must not happen in its state."""

    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
    VOTED = "voted"
    RESIGNED = "resigned"
    DEAD_NO_STATE = "dead, without state"
    ILLEGAL_STATE = "illegal"


class Cause(enum.Enum):
    """Why a server changes its state."""

    LATER_EPOCH = "it learns of an election in a later epoch"
    VOTE_GIVEN = "it gives its vote to a candidate"
    TIMED_OUT = "it has waited long enough for a leader, for votes or for the answer to a fetch"
    VOTES_WON = "a majority has voted for it"
    LEADER_FOUND = "it learns who leads"
    RESIGNS = "it leads no more"
    LEADER_LOST = "it is an observer, and follows nobody any more, or leads no more"
    STALE_VOTE_GIVEN = "it gives its vote in an epoch that is over"


Epochs = Callable[[int, int], bool]
"""A comparison of the epochs before and after a transition."""


def _next(epoch: int, later: int) -> bool:
    return later == epoch + 1


_same, _later, _same_or_later, _earlier = operator.eq, operator.lt, operator.le, operator.gt

Transitions = Mapping[ServerState, Mapping[Cause, tuple[ServerState, Epochs]]]

_FROM_UNATTACHED: Mapping[Cause, tuple[ServerState, Epochs]] = {
    Cause.LATER_EPOCH: (ServerState.UNATTACHED, _later),
    Cause.VOTE_GIVEN: (ServerState.VOTED, _same),
    Cause.TIMED_OUT: (ServerState.CANDIDATE, _next),
    Cause.LEADER_FOUND: (ServerState.FOLLOWER, _same_or_later),
}
TRANSITIONS: Transitions = {
    ServerState.UNATTACHED: _FROM_UNATTACHED,
    ServerState.RESIGNED: _FROM_UNATTACHED,
    ServerState.VOTED: {
        Cause.LATER_EPOCH: (ServerState.UNATTACHED, _later),
        Cause.TIMED_OUT: (ServerState.CANDIDATE, _next),
        Cause.LEADER_FOUND: (ServerState.FOLLOWER, _same),
    },
    ServerState.CANDIDATE: {
        Cause.LATER_EPOCH: (ServerState.UNATTACHED, _later),
        Cause.TIMED_OUT: (ServerState.CANDIDATE, _next),
        Cause.VOTES_WON: (ServerState.LEADER, _same),
        Cause.LEADER_FOUND: (ServerState.FOLLOWER, _same),
    },
    ServerState.LEADER: {
        Cause.LATER_EPOCH: (ServerState.UNATTACHED, _later),
        Cause.RESIGNS: (ServerState.RESIGNED, _same),
    },
    ServerState.FOLLOWER: {
        Cause.LATER_EPOCH: (ServerState.UNATTACHED, _later),
        Cause.TIMED_OUT: (ServerState.CANDIDATE, _next),
        Cause.LEADER_FOUND: (ServerState.FOLLOWER, _later),
    },
}
"""The next state of a voter, by its state and the cause of the transition, with a condition on the epochs before and
after.

The table is that of Kafka's ``QuorumState``, without two rows: those by which a server that has VOTED, or is a
CANDIDATE, follows another leader of its own epoch.
"""

BESIDES: Transitions = {
    ServerState.UNATTACHED: {
        Cause.LEADER_LOST: (ServerState.UNATTACHED, _same),
        Cause.STALE_VOTE_GIVEN: (ServerState.VOTED, _earlier),
    },
    ServerState.VOTED: {Cause.LEADER_LOST: (ServerState.UNATTACHED, _same)},
    ServerState.FOLLOWER: {Cause.LEADER_LOST: (ServerState.UNATTACHED, _same)},
    ServerState.LEADER: {Cause.LEADER_LOST: (ServerState.UNATTACHED, _same)},
}
"""More transitions, which the published specification makes: observers lose their leader, and a stale vote request is
granted.
"""


def transition(state: ServerState | None, cause: Cause, epoch: int, later: int) -> ServerState:
    """The state after ``state`` for a cause, where the epoch goes from ``epoch`` to ``later``. ILLEGAL_STATE if neither
    table has that transition.
    """
    for transitions in (TRANSITIONS, BESIDES):
        found = None if state is None else transitions.get(state, {}).get(cause)
        if found is not None and found[1](epoch, later):
            return found[0]
    return ServerState.ILLEGAL_STATE


def is_transition(state: ServerState, epoch: int, now: ServerState, later: int) -> bool:
    """Whether a voter can change from one state to another in one action: by one transition, or by two through
    unattached.
    """

    def is_direct(state: ServerState, epoch: int, now: ServerState) -> bool:
        return any(to is now and epochs(epoch, later) for to, epochs in TRANSITIONS.get(state, {}).values())

    unattached = ServerState.UNATTACHED
    return is_direct(state, epoch, now) or (is_direct(state, epoch, unattached) and is_direct(unattached, later, now))


class Command(enum.Enum):
    """The kind of a log entry."""

    APPEND = "append"
    INIT_CLUSTER = "init cluster"
    ADD_VOTER = "add voter"
    REMOVE_VOTER = "remove voter"
    LEADER_CHANGE = "leader change"


class Error(enum.Enum):
    """Why a request was refused."""

    FENCED_LEADER_EPOCH = "the epoch is over"
    NOT_LEADER = "not the leader"
    UNKNOWN_LEADER = "an epoch to come"
    UNKNOWN_MEMBER = "not a voter"


class FetchResult(enum.Enum):
    """The result of a fetch."""

    OK = "ok"
    NOT_OK = "not ok"
    DIVERGING = "diverging"


class Identity(Record):
    """The identity of a server. A server with an empty disk is another server, on any host."""

    host: ModelValue
    disk_id: int


class Membership(Record):
    """The content of a configuration command: the voters from now on, and the one that is added or removed."""

    id: int
    members: Members
    changed: ModelValue | None = None


class Entry(Record):
    """A log entry: a client's value, a configuration, or the beginning of an epoch."""

    command: Command
    epoch: int
    value: ModelValue | Membership | None = None


Log = tuple[Entry, ...]


class Config(Record):
    """The configuration that a server uses. The defaults are those of a server without one."""

    id: int = 0
    members: Members = frozenset()
    committed: bool = False


class RequestVoteRequest(Message):
    """Vote for me in this epoch; my log ends here."""

    epoch: int
    last_log_epoch: int
    last_log_offset: int


class RequestVoteResponse(Message):
    """Whether the vote is granted, and the leader if there is one already."""

    epoch: int
    leader: ModelValue | None
    vote_granted: bool
    error: Error | None = None


class BeginQuorumEpochRequest(Message):
    """I lead this epoch."""

    epoch: int


class FetchRequest(Message):
    """Send the entry at this offset. The entry before it is of that epoch."""

    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    observer: bool


class FetchResponse(Message):
    """An entry, or none yet; or where the logs diverge; or an error. ``correlation`` is the fetch that it answers."""

    topic: ClassVar[str] = "correlation"

    result: FetchResult
    epoch: int
    leader: ModelValue | None
    hwm: int
    correlation: FetchRequest
    error: Error | None = None
    entry: Entry | None = None
    diverging_epoch: int = 0
    diverging_end_offset: int = 0


class PendingFetch(Record):
    """A fetch that was sent and not answered."""

    peer: ModelValue
    request: FetchRequest


class LastFetch(Record):
    """The server that answered the last fetch, and its error if there was one."""

    peer: ModelValue
    error: Error | None


class FetchState(Record):
    """The state of a follower's fetches."""

    pending_fetch: PendingFetch | None = None
    last_fetch_res: LastFetch | None = None

    def reset(self) -> None:
        """Discard the pending fetch and the last answer."""
        self.pending_fetch = None
        self.last_fetch_res = None


class Server(Record):
    """One server. The defaults are those of a server that was never started.

    ``hwm``: the high watermark, the last offset known to be committed. ``votes_recv``: the servers that voted for it.
    ``pending_ack``: the values that its clients wait for. ``flwr_end_offset``: the known end of each voter's log.
    """

    identity: Identity | None = None
    role: Role | None = None
    state: ServerState | None = None
    current_epoch: int = 0
    leader: ModelValue | None = None
    voted_for: ModelValue | None = None
    votes_recv: Members = frozenset()
    config: Config = Config()
    fetch_state: FetchState = FetchState()
    pending_ack: PerKey[ModelValue, bool] = per_key(lambda protocol: protocol.values, False)
    log: Log = ()
    hwm: int = 0
    flwr_end_offset: Table[ModelValue, int] = table()

    # -- transitions ---------------------------------------------------------------------------------------------------

    def _change(self, cause: Cause, epoch: int) -> bool:
        """Change the state and the epoch by the tables. Return whether they have the transition; if not, the state
        becomes illegal.
        """
        state = transition(self.state, cause, self.current_epoch, epoch)
        if state is ServerState.ILLEGAL_STATE:
            self.become_illegal()
            return False
        self.state = state
        self.current_epoch = epoch
        return True

    def become_unattached(self, epoch: int, cause: Cause = Cause.LATER_EPOCH, keep_vote: bool = False) -> None:
        """The server knows no leader."""
        if self._change(cause, epoch):
            self.leader = None
            self.votes_recv = frozenset()
            if not keep_vote:
                self.voted_for = None

    def become_voted(self, candidate: ModelValue, epoch: int) -> None:
        """The server has voted in this epoch: its own epoch, or an earlier one."""
        if self._change(Cause.STALE_VOTE_GIVEN if epoch < self.current_epoch else Cause.VOTE_GIVEN, epoch):
            self.voted_for = candidate

    def become_candidate(self, me: ModelValue) -> None:
        """The server stands for election in the next epoch, and votes for itself."""
        if self._change(Cause.TIMED_OUT, self.current_epoch + 1):
            self.leader = None
            self.votes_recv = frozenset({me})
            self.voted_for = me

    def become_leader(self, me: ModelValue) -> None:
        """The server has won the election."""
        if self._change(Cause.VOTES_WON, self.current_epoch):
            self.leader = me
            self.votes_recv = frozenset()

    def become_resigned(self) -> None:
        """The server leads no more. It keeps its vote."""
        if self._change(Cause.RESIGNS, self.current_epoch):
            self.leader = None

    def become_follower(self, me: ModelValue, leader: ModelValue, epoch: int) -> None:
        """The server knows the leader. To follow the leader of a later epoch where the table has no such transition, it
        takes two, through unattached.
        """
        if leader == me:
            self.become_illegal()
            return
        if epoch > self.current_epoch:
            direct = transition(self.state, Cause.LEADER_FOUND, self.current_epoch, epoch)
            if direct is ServerState.ILLEGAL_STATE:
                self.become_unattached(epoch)
            self.voted_for = None
        if self._change(Cause.LEADER_FOUND, epoch):
            self.leader = leader
            self.votes_recv = frozenset()

    def become_dead(self) -> None:
        """The server has lost all its election state, and never comes back."""
        self._forget_elections()
        self.state = ServerState.DEAD_NO_STATE

    def become_illegal(self) -> None:
        """The server has met an event that must not happen in its state."""
        self._forget_elections()
        self.state = ServerState.ILLEGAL_STATE

    def _forget_elections(self) -> None:
        self.current_epoch = 0
        self.leader = None
        self.votes_recv = frozenset()
        self.voted_for = None

    # -- configurations ------------------------------------------------------------------------------------------------

    def track(self, members: Members) -> None:
        """Track the end offsets of these voters. Known offsets are kept; a new voter starts with none."""
        tracked = frozenset(self.flwr_end_offset)
        for gone in tracked - members:
            del self.flwr_end_offset[gone]
        for new in members - tracked:
            self.flwr_end_offset[new] = 0

    def track_anew(self, members: Members) -> None:
        """Track the end offsets of these voters, none of them known yet."""
        self.track(members)
        for member in members:
            self.flwr_end_offset[member] = 0

    def append_configuration(self, command: Command, members: Members, changed: ModelValue) -> None:
        """Append a configuration command to the log and use it at once."""
        membership = Membership(self.config.id + 1, members, changed)
        self.log = (*self.log, Entry(command, self.current_epoch, membership))
        self.config = latest_config(self.log, self.hwm)
        self.track(members)

    @property
    def has_committed_in_its_epoch(self) -> bool:
        """Whether an entry of the current epoch is below the high watermark."""
        return any(entry.epoch == self.current_epoch for entry in self.log[: self.hwm])

    def agreed_offset(self, me: ModelValue) -> int:
        """The high watermark of a leader: the last offset that a majority has, if that entry is of the leader's own
        epoch.

        A leader that is no longer a voter does not count itself.
        """
        members = self.config.members
        ends = [len(self.log) if member == me else self.flwr_end_offset[member] for member in members]
        agreed = min(sorted(ends, reverse=True)[len(members) // 2], len(self.log))
        return agreed if agreed > 0 and self.log[agreed - 1].epoch == self.current_epoch else self.hwm


def last_epoch(log: Log) -> int:
    """The epoch of the last entry, or 0 for an empty log."""
    return log[-1].epoch if log else 0


def end_of_epoch(log: Log, epoch: int) -> tuple[int, int]:
    """The offset and epoch of the last entry of this epoch or an earlier one; (0, 0) if there is none."""
    ends = [(offset, entry.epoch) for offset, entry in enumerate(log, 1) if entry.epoch <= epoch]
    return ends[-1] if ends else (0, 0)


def is_valid_position(log: Log, fetch: FetchRequest) -> bool:
    """Whether the fetching server's log agrees with ``log`` up to its fetch offset."""
    offset, epoch = end_of_epoch(log, fetch.last_fetched_epoch)
    return fetch.fetch_offset == 1 or (fetch.fetch_offset <= offset + 1 and fetch.last_fetched_epoch == epoch)


def truncated(log: Log, epoch: int, end_offset: int) -> Log:
    """The log up to its last entry of this epoch or an earlier one. Entries of this epoch end before ``end_offset``."""
    common = [offset for offset, entry in enumerate(log, 1) if (entry.epoch, offset) < (epoch, end_offset)]
    return log[: common[-1]] if common else ()


def latest_config(log: Log, hwm: int) -> Config:
    """The configuration of the last configuration command in a log, given the high watermark."""
    offset, value = next(
        (offset, entry.value)
        for offset, entry in reversed(list(enumerate(log, 1)))
        if isinstance(entry.value, Membership)
    )
    return Config(value.id, value.members, committed=hwm >= offset)


def is_majority(some: Members, members: Members) -> bool:
    """Whether ``some`` are members, and more than half of them."""
    return some <= members and 2 * len(some) > len(members)
