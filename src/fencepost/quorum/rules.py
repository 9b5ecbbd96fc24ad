"""The decisions of a replica, as pure functions.

They follow KRaft: Kafka's ``QuorumState``, ``LeaderState`` and ``KafkaRaftClient``, KIP-595, KIP-853 and KIP-996, and
the text that came with `kraft-kip-853`. The protocol `quorum` explores these functions, and the role runs them.
Replicas may be any comparable values: :class:`fencepost.quorum.identity.ReplicaKey` here, model values in the protocol.

A place in a log is a pair: the offset of the next record, and the epoch of the last record before it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import TypeVar

from fencepost.language.values import Record
from fencepost.quorum.transitions import State

K = TypeVar("K")


class Error(enum.Enum):
    """The reason why a request was refused, or NONE. Names are Kafka's where Kafka has one."""

    NONE = ""
    FENCED_LEADER_EPOCH = "the epoch of the request is over"
    UNKNOWN_LEADER_EPOCH = "the epoch of the request is later"
    NOT_LEADER = "the replica does not lead"
    INVALID_VOTER_KEY = "the request is meant for a replica with another directory"
    NOT_VOTER = "the replica is no voter"
    INVALID_REQUEST = "the request contradicts itself"
    SNAPSHOT_NOT_FOUND = "there is no such snapshot"
    POSITION_OUT_OF_RANGE = "the snapshot ends before the position"
    ALREADY_MEMBER = "a replica of this host is a voter"
    NOT_MEMBER = "the replica to be removed is no voter"
    LAST_VOTER = "the last voter cannot be removed"
    RECONFIG_IN_PROGRESS = "the last change of the voters is not committed"
    LEADER_NOT_READY = "the leader has committed nothing in its epoch yet"
    NOT_CAUGHT_UP = "the replica has not fetched up to the end of the log"
    TIMED_OUT = "the leader lost its leadership before the change was committed: it may yet be"


PASSING = frozenset({Error.RECONFIG_IN_PROGRESS, Error.LEADER_NOT_READY, Error.NOT_CAUGHT_UP})
"""Temporary refusals of a change of voters. A change waits until they pass (KIP-853)."""


class Protections(Record):
    """The protections of a quorum, one switch each. A running quorum uses :data:`ALL`.

    ``one_vote_an_epoch``: a replica votes for at most one candidate in an epoch. ``votes_are_kept``: an observer that
    loses its leader keeps its vote. ``logs_are_compared``: a replica does not vote for a candidate whose log is behind
    its own. ``directories_are_compared``: a replica refuses requests for another directory. ``majority_of_voters``:
    only votes and fetches of voters count. ``only_own_epoch_commits``: a leader commits by counting only records of its
    own epoch. ``leader_counts_stored``: a leader counts only its stored records. ``only_voters_count``: a leader that
    is no voter does not count itself. ``logs_are_matched``: a follower whose log diverges from the leader's gets no
    records until it has truncated it. ``one_change_at_a_time``: voters are not changed before the last change is
    committed. ``commit_before_change``: nor before the leader has committed a record of its epoch. ``pre_votes``: a
    replica that hears from a leader grants no pre-votes against it. ``non_members_are_served``: a leader answers
    fetches of any replica. ``removed_leader_resigns``: a removed leader resigns when the removal is committed.
    ``majority_is_heard``: a leader resigns if no majority fetches from it. ``removed_voters_campaign``: a replica may
    stand for election after its removal, while that may not be committed.
    """

    one_vote_an_epoch: bool = True
    votes_are_kept: bool = True
    logs_are_compared: bool = True
    directories_are_compared: bool = True
    majority_of_voters: bool = True
    only_own_epoch_commits: bool = True
    leader_counts_stored: bool = True
    only_voters_count: bool = True
    logs_are_matched: bool = True
    one_change_at_a_time: bool = True
    commit_before_change: bool = True
    pre_votes: bool = True
    non_members_are_served: bool = True
    removed_leader_resigns: bool = True
    majority_is_heard: bool = True
    removed_voters_campaign: bool = True


ALL = Protections()


# -- after a restart ---------------------------------------------------------------------------------------------------


def restarts_as(has_led: bool, has_voted: bool, knows_leader: bool) -> State:
    """The state in which a replica starts again in its stored epoch: ``QuorumState.initialize``.

    ``has_led``: the replica itself is the stored leader. It does not lead that epoch again, since it may have lost
    records of it that others have. A candidate does not stand again in the same epoch either: it cannot know whether it
    led.
    """
    if has_led:
        return State.RESIGNED
    if knows_leader:
        return State.FOLLOWER
    return State.VOTED if has_voted else State.UNATTACHED


# -- epochs and leaders ------------------------------------------------------------------------------------------------


class Learnt(enum.Enum):
    """What a replica does about the epoch and leader that another replica reports."""

    NOTHING = "nothing"
    UNATTACHED = "go to that epoch"
    FOLLOW = "follow that leader"
    CONTRADICTION = "contradiction"
    """It knows another leader of that epoch, or the epoch is impossibly far ahead."""


EPOCHS_AHEAD = 1 << 20
"""An epoch this far ahead of a replica's own is invalid: consecutive elections would take days to get there. Without a
limit, a single message could use up all epochs.
"""


def is_far_ahead(epoch: int, reported: int) -> bool:
    """Return whether an epoch that is reported to a replica in ``epoch`` is too far ahead to be valid."""
    return reported - epoch > EPOCHS_AHEAD


def learns(epoch: int, leader: K | None, reported: int, reported_leader: K | None, me: K) -> Learnt:
    """What a replica in ``epoch``, with this ``leader``, does when another replica reports its own epoch and leader:
    ``maybeTransition`` and ``hasConsistentLeader``.

    Others may report this replica as a leader after it has resigned. But it cannot be the leader of a later epoch,
    unless its disk lost that. ``leader`` may have resigned, and may be this replica.
    """
    if is_far_ahead(epoch, reported):
        return Learnt.CONTRADICTION
    if reported < epoch:
        return Learnt.NOTHING
    if reported > epoch:
        return Learnt.UNATTACHED if reported_leader is None or reported_leader == me else Learnt.FOLLOW
    if reported_leader is None or reported_leader == me or reported_leader == leader:
        return Learnt.NOTHING
    return Learnt.FOLLOW if leader is None else Learnt.CONTRADICTION


def is_meant_for(voter: K, me: K, protections: Protections = ALL) -> bool:
    """Return whether a request for ``voter`` is for this replica, with the same directory. If not, the answer is
    INVALID_VOTER_KEY.
    """
    return voter == me or not protections.directories_are_compared


def accepts_begin_quorum(is_voter: bool, only_voters: bool = True) -> bool:
    """Return whether a replica follows a leader that announces itself: only as a voter (the text), or always (the
    published specification, Kafka).

    A replica that does not follow it learns the leader when it fetches.
    """
    return is_voter or not only_voters


# -- elections ---------------------------------------------------------------------------------------------------------


def may_campaign(is_voter: bool, was_voter: bool, is_change_committed: bool, protections: Protections = ALL) -> bool:
    """Return whether a replica may stand for election: as a voter, or as a former voter whose removal may not be
    committed.

    The second case is from Ongaro's thesis (4.2.2). In KRaft only voters stand. Suppose that one of two voters leads,
    removes itself, and resigns before the other has the record. Both would vote only for its longer log, so without
    this rule nobody is ever elected. The replica then leads as an observer until the change is committed, as any leader
    does that removes itself.
    """
    return is_voter or (was_voter and not is_change_committed and protections.removed_voters_campaign)


def is_up_to_date(candidate: tuple[int, int], mine: tuple[int, int], protections: Protections = ALL) -> bool:
    """Return whether a candidate's log is not behind: its last epoch is later, or is the same and the log no shorter.
    Arguments are (epoch, offset) at the end of each log.
    """
    return candidate >= mine or not protections.logs_are_compared


def grants_vote(
    state: State, voted: K | None, leader: K | None, candidate: K, up_to_date: bool, protections: Protections = ALL
) -> bool:
    """Return whether a replica, voter or observer, votes for a candidate of its own epoch.

    An observer may be a voter in a later or earlier configuration, and its vote needed. A replica that leads, follows
    or stands for election in this epoch has voted, or knows that the election is over. A vote is repeated for the same
    candidate.
    """
    if state not in (State.UNATTACHED, State.VOTED, State.PROSPECTIVE) or leader is not None:
        return False
    return up_to_date and (voted is None or voted == candidate or not protections.one_vote_an_epoch)


def grants_pre_vote(state: State, heard: bool, up_to_date: bool, protections: Protections = ALL) -> bool:
    """Return whether a replica grants a pre-vote: not if it leads, or heard from its leader within the fetch timeout
    (KIP-996).

    A pre-vote is not binding: any number of replicas get one. ``heard``: the leader has answered this follower. Once
    the fetch timeout is over, it is no follower any more.
    """
    if not protections.pre_votes:
        return up_to_date
    return up_to_date and state is not State.LEADER and not (state is State.FOLLOWER and heard)


class Election(enum.Enum):
    """The state of an election."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


def count_votes(
    granted: AbstractSet[K], refused: AbstractSet[K], voters: AbstractSet[K], protections: Protections = ALL
) -> Election:
    """The state of an election or a pre-vote: won with a majority of the voters, lost when a majority is impossible."""
    if has_majority(granted, voters, protections):
        return Election.WON
    return Election.OPEN if 2 * len(voters - refused) > len(voters) else Election.LOST


def has_majority(some: AbstractSet[K], voters: AbstractSet[K], protections: Protections = ALL) -> bool:
    """Return whether more than half of the voters are in ``some``."""
    counted = some & voters if protections.majority_of_voters else some
    return 2 * len(counted) > len(voters)


def has_lost_majority(fetched: AbstractSet[K], voters: AbstractSet[K], me: K, protections: Protections = ALL) -> bool:
    """Return whether a leader has to resign. ``fetched`` are the replicas that fetched within 1.5 fetch timeouts; with
    the leader, if it is a voter, they are no majority.
    """
    return protections.majority_is_heard and not has_majority(fetched | {me}, voters)


# -- fetching ----------------------------------------------------------------------------------------------------------


def refuses_fetch(leads: bool, epoch: int, asked: int, is_voter: bool, protections: Protections = ALL) -> Error:
    """The reason why a replica refuses another's fetch for the epoch ``asked``: it does not lead, or not that epoch.

    Replicas that are no voters are served too. One may have been removed without knowing it, and the commit of its
    removal may depend on it.
    """
    if not leads:
        return Error.NOT_LEADER
    if asked != epoch:
        return Error.FENCED_LEADER_EPOCH if asked < epoch else Error.UNKNOWN_LEADER_EPOCH
    return Error.NONE if is_voter or protections.non_members_are_served else Error.NOT_VOTER


class Position(enum.Enum):
    """How the end of a follower's log compares with the leader's log."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"
    """The leader's log starts too late to tell, or to help."""


def position_of(
    fetch: tuple[int, int],
    start: tuple[int, int],
    end_of_epoch: tuple[int, int],
    snapshot: tuple[int, int],
    protections: Protections = ALL,
) -> Position:
    """How ``fetch``, the end of a follower's log, compares with the leader's log:
    ``ReplicatedLog.validateOffsetAndEpoch``.

    All arguments are (offset, epoch). ``start``: the start of the leader's log. ``end_of_epoch``: the end, in the
    leader's log, of the last epoch that is not after the follower's. ``snapshot``: the end of the leader's snapshot;
    (0, 0) if there is none.
    """
    (offset, epoch), (start_offset, start_epoch) = fetch, start
    if offset < start_offset or (offset == 0 and snapshot != (0, 0)):
        return Position.SNAPSHOT
    if snapshot != (0, 0) and (epoch < start_epoch or (offset == start_offset and epoch != start_epoch)):
        return Position.SNAPSHOT
    end_offset, end_epoch = end_of_epoch
    if protections.logs_are_matched:
        matches = end_epoch == epoch and offset <= end_offset
    else:
        matches = True
    return Position.VALID if matches else Position.DIVERGING


def truncation_point(diverging: tuple[int, int], end_of_epoch: tuple[int, int]) -> int:
    """The offset to which a follower truncates a diverging log: ``ReplicatedLog.truncateToEndOffset``.

    ``diverging``: the end, in the leader's log, of the last epoch that is not after the follower's. ``end_of_epoch``:
    the end, in the follower's log, of the last epoch that is not after that one. The logs may agree before both; the
    next fetch will tell.
    """
    if end_of_epoch[1] == diverging[1]:
        return min(diverging[0], end_of_epoch[0])
    return end_of_epoch[0]


# -- committing --------------------------------------------------------------------------------------------------------


def counted_end(is_voter: bool, log_end: int, stored_end: int, protections: Protections = ALL) -> int | None:
    """The end offset that a leader counts for itself: what it has stored. None if it is no voter."""
    if not is_voter and protections.only_voters_count:
        return None
    return stored_end if protections.leader_counts_stored else log_end


def high_watermark(known: int, ends: Iterable[int], epoch_start: int, protections: Protections = ALL) -> int:
    """The high watermark of a leader. ``ends``: the end offsets of the voters' logs, 0 where unknown.

    It is the largest offset that a majority has reached, if a record of the leader's epoch is before it. Earlier
    records are committed only together with such a record (Raft, 5.4.2). ``epoch_start``: the offset of the epoch's
    first record. The high watermark never goes back, even if a new configuration has a lower majority.
    """
    ordered = sorted(ends, reverse=True)
    if not ordered:
        return known
    agreed = ordered[len(ordered) // 2]
    if agreed <= epoch_start and protections.only_own_epoch_commits:
        return known
    return max(known, agreed)


def follower_high_watermark(known: int, reported: int, log_end: int) -> int:
    """The high watermark of a follower whose leader has ``reported`` its own (-1 if unknown). It never exceeds the
    follower's log, and never goes back.
    """
    return max(known, min(reported, log_end))


# -- reconfiguration ---------------------------------------------------------------------------------------------------


def refuses_change(high_watermark: int, epoch_start: int, voters_offset: int, protections: Protections = ALL) -> Error:
    """The reason why a leader refuses a change of voters now. ``voters_offset``: the offset of the last configuration;
    -1 for the snapshot's.
    """
    if voters_offset >= high_watermark and protections.one_change_at_a_time:
        return Error.RECONFIG_IN_PROGRESS
    if high_watermark <= epoch_start and protections.commit_before_change:
        return Error.LEADER_NOT_READY
    return Error.NONE


def refuses_to_add(leads: bool, is_member: bool, refusal: Error, caught_up: bool) -> Error:
    """The reason why a replica refuses to add a voter.

    ``is_member``: a replica of the same host is a voter. ``refusal``: that of any change. ``caught_up``: the replica
    has fetched up to where the log ended at its previous fetch, so the quorum will not wait for it for long.
    """
    if not leads:
        return Error.NOT_LEADER
    if is_member:
        return Error.ALREADY_MEMBER
    if refusal is Error.NONE and not caught_up:
        return Error.NOT_CAUGHT_UP
    return refusal


def refuses_to_remove(leads: bool, is_member: bool, refusal: Error, voters: int) -> Error:
    """The reason why a replica refuses to remove a voter. ``refusal``: that of any change. ``voters``: the number of
    voters; the last one stays.
    """
    if not leads:
        return Error.NOT_LEADER
    if not is_member:
        return Error.NOT_MEMBER
    if refusal is Error.NONE and voters == 1:
        return Error.LAST_VOTER
    return refusal


def refuses_to_update(of_fetch: Error, is_member: bool, refusal: Error) -> Error:
    """The reason why a leader refuses to record a voter's new endpoint. The voters stay the same, but configurations
    change one at a time, so the rule is that of other changes. ``of_fetch``: the refusal of the voter's fetch.
    """
    if of_fetch is not Error.NONE:
        return of_fetch
    return refusal if is_member else Error.NOT_MEMBER


def has_caught_up(fetched: int, end: int, end_before: int | None) -> bool:
    """Return whether a replica that fetches from this offset has caught up: with the end of the log at its previous
    fetch, or with the current end if it has not fetched before (None).
    """
    return fetched >= end or (end_before is not None and fetched >= end_before)


def resigns_when_committed(
    is_voter: bool, voters_offset: int, high_watermark: int, protections: Protections = ALL
) -> bool:
    """Return whether a leader resigns because it was removed. It resigns once the removal is committed, and not before:
    no other replica would be sure to commit it.
    """
    return not is_voter and voters_offset < high_watermark and protections.removed_leader_resigns
