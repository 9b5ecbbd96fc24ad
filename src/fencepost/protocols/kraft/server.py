"""A KRaft server: its state, the table by which it changes, and the messages between servers.

The actions, and what enables them, are in `kip_853`.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping
from typing import ClassVar

from fencepost import Message, ModelValue, PerKey, Record, Table, per_key, table

Members = frozenset[ModelValue]


class Role(enum.Enum):
    """The rights of a server: a voter is a full member, an observer keeps a copy of the log."""

    VOTER = "voter"
    OBSERVER = "observer"


class ServerState(enum.Enum):
    """Where a server stands in the current epoch. ILLEGAL_STATE: it met what cannot be."""

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
"""How the epoch before and the epoch after compare."""


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
"""The state that a voter changes to, by its state and a cause, and how its epoch before and after compare.

It is the table of Kafka's ``QuorumState``, which does not have the two rows by which a server follows another leader of
its own epoch: from VOTED, and from CANDIDATE.
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
"""Changes that the published specification makes besides: observers lose their leader, and a stale vote request is
granted.
"""


def transition(state: ServerState | None, cause: Cause, epoch: int, later: int) -> ServerState:
    """The state that comes after ``state`` for a cause, where the epoch goes from ``epoch`` to ``later``: ILLEGAL_STATE
    if neither table has it.
    """
    for transitions in (TRANSITIONS, BESIDES):
        found = None if state is None else transitions.get(state, {}).get(cause)
        if found is not None and found[1](epoch, later):
            return found[0]
    return ServerState.ILLEGAL_STATE


def is_transition(state: ServerState, epoch: int, now: ServerState, later: int) -> bool:
    """Whether a voter can go from one state to another in one step: of the table, or two by way of unattached."""

    def is_direct(state: ServerState, epoch: int, now: ServerState) -> bool:
        return any(to is now and epochs(epoch, later) for to, epochs in TRANSITIONS.get(state, {}).values())

    unattached = ServerState.UNATTACHED
    return is_direct(state, epoch, now) or (is_direct(state, epoch, unattached) and is_direct(unattached, later, now))


class Command(enum.Enum):
    """The purpose of an entry of the log."""

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
    """The identity of a server: an empty disk is another server, on whatever host."""

    host: ModelValue
    disk_id: int


class Membership(Record):
    """The content of a configuration command: the voters from now on, and the one that is new, or was one of them."""

    id: int
    members: Members
    changed: ModelValue | None = None


class Entry(Record):
    """An entry of a log: what a client wrote, a configuration, or nothing but the beginning of an epoch."""

    command: Command
    epoch: int
    value: ModelValue | Membership | None = None


Log = tuple[Entry, ...]


class Config(Record):
    """The configuration that a server goes by; as declared here, none."""

    id: int = 0
    members: Members = frozenset()
    committed: bool = False


class RequestVoteRequest(Message):
    """Vote for me in this epoch; my log ends here."""

    epoch: int
    last_log_epoch: int
    last_log_offset: int


class RequestVoteResponse(Message):
    """The vote, or not, and the leader if there is one already."""

    epoch: int
    leader: ModelValue | None
    vote_granted: bool
    error: Error | None = None


class BeginQuorumEpochRequest(Message):
    """I lead this epoch."""

    epoch: int


class FetchRequest(Message):
    """Give me the entry at this offset; the one before it is of that epoch."""

    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    observer: bool


class FetchResponse(Message):
    """An entry, or none yet; or where the logs part; or an error. ``correlation`` is the fetch that it answers."""

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
    """How a follower's fetching goes."""

    pending_fetch: PendingFetch | None = None
    last_fetch_res: LastFetch | None = None

    def reset(self) -> None:
        """Forget what was fetched, and from whom."""
        self.pending_fetch = None
        self.last_fetch_res = None


class Server(Record):
    """One server; as declared here, one that was never started.

    ``hwm``: the high watermark, the last offset known to be committed. ``votes_recv``: who voted for it.
    ``pending_ack``: what its clients wait for. ``flwr_end_offset``: how far the log of each voter goes, as far as it
    knows.
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

    # -- from one state to another -------------------------------------------------------------------------------------

    def _change(self, cause: Cause, epoch: int) -> bool:
        """Change the state and the epoch as the tables have it. The answer is whether they have
        it: if not, the state is illegal.
        """
        state = transition(self.state, cause, self.current_epoch, epoch)
        if state is ServerState.ILLEGAL_STATE:
            self.become_illegal()
            return False
        self.state = state
        self.current_epoch = epoch
        return True

    def become_unattached(self, epoch: int, cause: Cause = Cause.LATER_EPOCH, keep_vote: bool = False) -> None:
        """There is no leader that it knows of."""
        if self._change(cause, epoch):
            self.leader = None
            self.votes_recv = frozenset()
            if not keep_vote:
                self.voted_for = None

    def become_voted(self, candidate: ModelValue, epoch: int) -> None:
        """It has given its vote in this epoch: its own, or one that is over."""
        if self._change(Cause.STALE_VOTE_GIVEN if epoch < self.current_epoch else Cause.VOTE_GIVEN, epoch):
            self.voted_for = candidate

    def become_candidate(self, me: ModelValue) -> None:
        """It stands for election in the next epoch, and votes for itself."""
        if self._change(Cause.TIMED_OUT, self.current_epoch + 1):
            self.leader = None
            self.votes_recv = frozenset({me})
            self.voted_for = me

    def become_leader(self, me: ModelValue) -> None:
        """It was elected."""
        if self._change(Cause.VOTES_WON, self.current_epoch):
            self.leader = me
            self.votes_recv = frozenset()

    def become_resigned(self) -> None:
        """It leads no more, and does not forget its vote."""
        if self._change(Cause.RESIGNS, self.current_epoch):
            self.leader = None

    def become_follower(self, me: ModelValue, leader: ModelValue, epoch: int) -> None:
        """It has learned who leads. Where it is to follow the leader of a later epoch, and the table has no such step,
        it takes two: it is unattached in between.
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
        """It has lost all that it knew of elections, and never comes back."""
        self._forget_elections()
        self.state = ServerState.DEAD_NO_STATE

    def become_illegal(self) -> None:
        """Something has happened that cannot be."""
        self._forget_elections()
        self.state = ServerState.ILLEGAL_STATE

    def _forget_elections(self) -> None:
        self.current_epoch = 0
        self.leader = None
        self.votes_recv = frozenset()
        self.voted_for = None

    # -- configurations ------------------------------------------------------------------------------------------------

    def track(self, members: Members) -> None:
        """Keep end offsets of these voters: what is known of one stays known, of a new one it is nothing."""
        tracked = frozenset(self.flwr_end_offset)
        for gone in tracked - members:
            del self.flwr_end_offset[gone]
        for new in members - tracked:
            self.flwr_end_offset[new] = 0

    def track_anew(self, members: Members) -> None:
        """Keep end offsets of these voters, of whom nothing is known."""
        self.track(members)
        for member in members:
            self.flwr_end_offset[member] = 0

    def append_configuration(self, command: Command, members: Members, changed: ModelValue) -> None:
        """Add a configuration command to the log and go by it at once."""
        membership = Membership(self.config.id + 1, members, changed)
        self.log = (*self.log, Entry(command, self.current_epoch, membership))
        self.config = latest_config(self.log, self.hwm)
        self.track(members)

    @property
    def has_committed_in_its_epoch(self) -> bool:
        """Whether an entry of the current epoch is below the high watermark."""
        return any(entry.epoch == self.current_epoch for entry in self.log[: self.hwm])

    def agreed_offset(self, me: ModelValue) -> int:
        """Where a leader's high watermark is: the last offset that a majority has, if it is one of its own epoch.

        A leader that is no voter any more does not count itself.
        """
        members = self.config.members
        ends = [len(self.log) if member == me else self.flwr_end_offset[member] for member in members]
        agreed = min(sorted(ends, reverse=True)[len(members) // 2], len(self.log))
        return agreed if agreed > 0 and self.log[agreed - 1].epoch == self.current_epoch else self.hwm


def last_epoch(log: Log) -> int:
    """The epoch of the last entry, 0 without any."""
    return log[-1].epoch if log else 0


def end_of_epoch(log: Log, epoch: int) -> tuple[int, int]:
    """Offset and epoch of the last entry that is of no later epoch; (0, 0) without one."""
    ends = [(offset, entry.epoch) for offset, entry in enumerate(log, 1) if entry.epoch <= epoch]
    return ends[-1] if ends else (0, 0)


def is_valid_position(log: Log, fetch: FetchRequest) -> bool:
    """Whether the log of who fetches agrees with ``log`` up to where it fetches from."""
    offset, epoch = end_of_epoch(log, fetch.last_fetched_epoch)
    return fetch.fetch_offset == 1 or (fetch.fetch_offset <= offset + 1 and fetch.last_fetched_epoch == epoch)


def truncated(log: Log, epoch: int, end_offset: int) -> Log:
    """The log up to its last entry that is of no later epoch and, if it is of this one, before ``end_offset``."""
    common = [offset for offset, entry in enumerate(log, 1) if (entry.epoch, offset) < (epoch, end_offset)]
    return log[: common[-1]] if common else ()


def latest_config(log: Log, hwm: int) -> Config:
    """The configuration that the last configuration command in a log makes, given the high watermark."""
    offset, value = next(
        (offset, entry.value)
        for offset, entry in reversed(list(enumerate(log, 1)))
        if isinstance(entry.value, Membership)
    )
    return Config(value.id, value.members, committed=hwm >= offset)


def is_majority(some: Members, members: Members) -> bool:
    """Whether ``some`` are members, and more than half of them."""
    return some <= members and 2 * len(some) > len(members)
