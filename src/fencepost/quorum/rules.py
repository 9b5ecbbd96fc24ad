"""The decisions of a replica, as functions of values.

They are those of KRaft: Kafka's ``QuorumState``, ``LeaderState`` and ``KafkaRaftClient``, as KIP-595, KIP-853 and
KIP-996 have them, and the text that came with `kraft-kip-853`. The protocol `quorum` explores these functions, and the
role runs them. Replicas are any values that can be compared: here :class:`fencepost.quorum.identity.ReplicaKey`, in the
protocol what stands for it.

A place in a log is a pair of offset and epoch: of the record to come, and of the record ahead of it.
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
    """Why a request was refused; NONE if it was not. Names are Kafka's where Kafka has one."""

    NONE = ""
    FENCED_LEADER_EPOCH = "the epoch of the request is over"
    UNKNOWN_LEADER_EPOCH = "the epoch of the request is yet to come"
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
"""Refusals of a change of the voters that pass by themselves: a change waits for that (KIP-853)."""


class Protections(Record):
    """The protections of a quorum, one switch for each. A running quorum uses :data:`ALL`.

    ``one_vote_an_epoch``: a replica that has voted votes for nobody else in that epoch.
    ``votes_are_kept``: an observer that loses its leader remembers its vote.
    ``logs_are_compared``: nobody votes for a candidate whose log is behind its own. ``directories_are_compared``: a
    replica takes no request for itself that is meant for another directory. ``majority_of_voters``: only votes and
    fetches of voters count. ``only_own_epoch_commits``: a leader commits nothing by counting but records of its own
    epoch. ``leader_counts_stored``: it counts itself only up to what it has stored. ``only_voters_count``: a leader
    that is no voter does not count itself. ``logs_are_matched``: a follower whose log has parted from the leader's gets
    nothing until it has cut off what is its own. ``one_change_at_a_time``: the voters are not changed while the last
    change is not committed. ``commit_before_change``: nor before the leader has committed a record of its epoch.
    ``pre_votes``: no pre-vote for whoever would depose a leader that is heard from. ``non_members_are_served``: a
    leader answers whoever fetches. ``removed_leader_resigns``: a leader that is no voter resigns when that is
    committed. ``majority_is_heard``: a leader that no majority fetches from resigns. ``removed_voters_campaign``: a
    replica stands for election that was removed by a change which may not be committed.
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
    """The state in which a replica starts again in the epoch that it has stored: ``QuorumState.initialize``.

    ``has_led``: the stored leader is the replica itself. It does not lead that epoch again, since it may have lost
    records of it that others have; nor does a candidate stand again in the same epoch, as it cannot know that it did
    not lead.
    """
    if has_led:
        return State.RESIGNED
    if knows_leader:
        return State.FOLLOWER
    return State.VOTED if has_voted else State.UNATTACHED


# -- epochs and leaders ------------------------------------------------------------------------------------------------


class Learnt(enum.Enum):
    """How a replica acts on an epoch and a leader that another replica reports."""

    NOTHING = "nothing"
    UNATTACHED = "go to that epoch"
    FOLLOW = "follow that leader"
    CONTRADICTION = "what cannot be"
    """It knows of another leader of the same epoch, or the epoch is further ahead than elections get."""


EPOCHS_AHEAD = 1 << 20
"""An epoch that is so far ahead of a replica's own is none: elections one after another take days to get there. Without
a limit, one message would use up all epochs that there can be."""


def is_far_ahead(epoch: int, reported: int) -> bool:
    """Whether an epoch that is reported to a replica in ``epoch`` can be none."""
    return reported - epoch > EPOCHS_AHEAD


def learns(epoch: int, leader: K | None, reported: int, reported_leader: K | None, me: K) -> Learnt:
    """How a replica in ``epoch``, with this ``leader``, acts when another replica reports its own epoch and leader:
    ``maybeTransition`` and ``hasConsistentLeader``.

    Other replicas may not have heard yet that this one leads no more; and this one cannot be the leader of a later
    epoch, unless its disk has forgotten that. ``leader`` may be one that leads no more, and this replica itself.
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
    """Whether a request for ``voter`` is for this replica: after its disk was lost, the same host is another one.
    INVALID_VOTER_KEY if it is not."""
    return voter == me or not protections.directories_are_compared


def accepts_begin_quorum(is_voter: bool, only_voters: bool = True) -> bool:
    """Whether a replica follows a leader that presents itself: only as a voter (the text), or in any case (the
    published specification, Kafka).

    A replica that does not follow it learns the leader when it fetches.
    """
    return is_voter or not only_voters


# -- elections ---------------------------------------------------------------------------------------------------------


def may_campaign(is_voter: bool, was_voter: bool, is_change_committed: bool, protections: Protections = ALL) -> bool:
    """Whether a replica may stand for election: if it takes itself for a voter, or was one until a change that may not
    be committed.

    The second is Ongaro's thesis (4.2.2), and not KRaft's: there only voters stand. But a leader of two that removes
    itself and resigns before the other one has the record is the only one with a log that both would vote for, so
    without it nobody is ever elected. It leads as an observer, as a leader that removes itself does, until the change
    is committed.
    """
    return is_voter or (was_voter and not is_change_committed and protections.removed_voters_campaign)


def is_up_to_date(candidate: tuple[int, int], mine: tuple[int, int], protections: Protections = ALL) -> bool:
    """Whether the log of a candidate, by the (epoch, offset) of its end, is not behind: a later last epoch, or the same
    one and no shorter."""
    return candidate >= mine or not protections.logs_are_compared


def grants_vote(
    state: State, voted: K | None, leader: K | None, candidate: K, up_to_date: bool, protections: Protections = ALL
) -> bool:
    """Whether a replica, be it an observer, votes for a candidate of the epoch that it is in.

    An observer may be a voter in a configuration that it does not have yet, or does not have any more, and its vote
    needed. Whoever leads, follows or stands for election in this epoch has voted, or knows that the election is over. A
    vote is given again to the same candidate.
    """
    if state not in (State.UNATTACHED, State.VOTED, State.PROSPECTIVE) or leader is not None:
        return False
    return up_to_date and (voted is None or voted == candidate or not protections.one_vote_an_epoch)


def grants_pre_vote(state: State, heard: bool, up_to_date: bool, protections: Protections = ALL) -> bool:
    """Whether a replica would vote for another: not if it leads, or has heard from its leader within the fetch timeout
    (KIP-996).

    A pre-vote binds to nothing: any number of replicas get one. ``heard``: a follower has had an answer of its leader
    since it began to follow it; when the fetch timeout is over it is no follower.
    """
    if not protections.pre_votes:
        return up_to_date
    return up_to_date and state is not State.LEADER and not (state is State.FOLLOWER and heard)


class Election(enum.Enum):
    """How an election stands."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


def count_votes(
    granted: AbstractSet[K], refused: AbstractSet[K], voters: AbstractSet[K], protections: Protections = ALL
) -> Election:
    """How an election stands, or a round of pre-votes: won with a majority of the voters, lost when one cannot come
    any more."""
    if has_majority(granted, voters, protections):
        return Election.WON
    return Election.OPEN if 2 * len(voters - refused) > len(voters) else Election.LOST


def has_majority(some: AbstractSet[K], voters: AbstractSet[K], protections: Protections = ALL) -> bool:
    """Whether more than half of the voters are among ``some``."""
    counted = some & voters if protections.majority_of_voters else some
    return 2 * len(counted) > len(voters)


def has_lost_majority(fetched: AbstractSet[K], voters: AbstractSet[K], me: K, protections: Protections = ALL) -> bool:
    """Whether a leader resigns, from which these have fetched for 1.5 times the fetch timeout: with itself, if it is a
    voter, they are no majority."""
    return protections.majority_is_heard and not has_majority(fetched | {me}, voters)


# -- fetching ----------------------------------------------------------------------------------------------------------


def refuses_fetch(leads: bool, epoch: int, asked: int, is_voter: bool, protections: Protections = ALL) -> Error:
    """Why a replica does not answer a fetch of another, in the epoch ``asked``: it does not lead, or not that epoch.

    Whoever fetches need not be a voter. It may take itself for one that was removed, and then be the one that the
    commit of its removal depends on.
    """
    if not leads:
        return Error.NOT_LEADER
    if asked != epoch:
        return Error.FENCED_LEADER_EPOCH if asked < epoch else Error.UNKNOWN_LEADER_EPOCH
    return Error.NONE if is_voter or protections.non_members_are_served else Error.NOT_VOTER


class Position(enum.Enum):
    """How the end of a log that is fetched for fits the leader's log."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"
    """The log of the leader starts too late to tell, or to be of use."""


def position_of(
    fetch: tuple[int, int],
    start: tuple[int, int],
    end_of_epoch: tuple[int, int],
    snapshot: tuple[int, int],
    protections: Protections = ALL,
) -> Position:
    """How ``fetch``, the end of a follower's log, fits the leader's log: ``ReplicatedLog.validateOffsetAndEpoch``.

    All are places, (offset, epoch). ``start``: of the leader's log. ``end_of_epoch``: where, in the leader's log, the
    records end that are of no later epoch than the last one of the follower's. ``snapshot``: the end of the leader's
    snapshot, (0, 0) if there is none.
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
    """Where a follower cuts its log off that parts from the leader's: ``ReplicatedLog.truncateToEndOffset``.

    ``diverging``: where the leader's records end that are of no later epoch than the follower's last one.
    ``end_of_epoch``: where those of that epoch, or of none later, end in the follower's log. What is ahead of both may
    be the same; the next fetch will tell.
    """
    if end_of_epoch[1] == diverging[1]:
        return min(diverging[0], end_of_epoch[0])
    return end_of_epoch[0]


# -- committing --------------------------------------------------------------------------------------------------------


def counted_end(is_voter: bool, log_end: int, stored_end: int, protections: Protections = ALL) -> int | None:
    """The end offset by which a leader counts itself: what it has stored; None if it is no voter, and does not
    count."""
    if not is_voter and protections.only_voters_count:
        return None
    return stored_end if protections.leader_counts_stored else log_end


def high_watermark(known: int, ends: Iterable[int], epoch_start: int, protections: Protections = ALL) -> int:
    """The high watermark of a leader that knows the end offsets of the voters' logs, those that it knows nothing of
    counting as 0.

    It is the largest offset that a majority has reached, if a record of the leader's epoch is ahead of it: earlier ones
    are committed with that, and never by themselves (Raft, 5.4.2). ``epoch_start``: the offset of the first record of
    the epoch. It never goes back, though with another configuration the majority may.
    """
    ordered = sorted(ends, reverse=True)
    if not ordered:
        return known
    agreed = ordered[len(ordered) // 2]
    if agreed <= epoch_start and protections.only_own_epoch_commits:
        return known
    return max(known, agreed)


def follower_high_watermark(known: int, reported: int, log_end: int) -> int:
    """The high watermark of a follower whose leader has ``reported`` its own (-1: not known yet): never beyond the end
    of the follower's log, and never back."""
    return max(known, min(reported, log_end))


# -- reconfiguration ---------------------------------------------------------------------------------------------------


def refuses_change(high_watermark: int, epoch_start: int, voters_offset: int, protections: Protections = ALL) -> Error:
    """Why a leader does not change the voters now. ``voters_offset``: the offset of the last configuration, -1 for one
    of the snapshot.
    """
    if voters_offset >= high_watermark and protections.one_change_at_a_time:
        return Error.RECONFIG_IN_PROGRESS
    if high_watermark <= epoch_start and protections.commit_before_change:
        return Error.LEADER_NOT_READY
    return Error.NONE


def refuses_to_add(leads: bool, is_member: bool, refusal: Error, caught_up: bool) -> Error:
    """Why a replica does not make another a voter.

    ``is_member``: a replica of the same host is one. ``refusal``: of any change. ``caught_up``: the replica has fetched
    up to where the log ended when it fetched before, so that the others will not wait for it for long.
    """
    if not leads:
        return Error.NOT_LEADER
    if is_member:
        return Error.ALREADY_MEMBER
    if refusal is Error.NONE and not caught_up:
        return Error.NOT_CAUGHT_UP
    return refusal


def refuses_to_remove(leads: bool, is_member: bool, refusal: Error, voters: int) -> Error:
    """Why a replica does not make another, or itself, a voter no more. ``refusal``: of any change. ``voters``: how many
    there are, of which the last one stays.
    """
    if not leads:
        return Error.NOT_LEADER
    if not is_member:
        return Error.NOT_MEMBER
    if refusal is Error.NONE and voters == 1:
        return Error.LAST_VOTER
    return refusal


def refuses_to_update(of_fetch: Error, is_member: bool, refusal: Error) -> Error:
    """Why a leader does not write down that a voter is reached elsewhere. The voters stay the same; but configurations
    follow one another one at a time, so it is refused when another change is. ``of_fetch``: why a fetch of it would be.
    """
    if of_fetch is not Error.NONE:
        return of_fetch
    return refusal if is_member else Error.NOT_MEMBER


def has_caught_up(fetched: int, end: int, end_before: int | None) -> bool:
    """Whether a replica that fetches from an offset has caught up: with the end of the log, or (None: it has not
    fetched before) with that of its last fetch."""
    return fetched >= end or (end_before is not None and fetched >= end_before)


def resigns_when_committed(
    is_voter: bool, voters_offset: int, high_watermark: int, protections: Protections = ALL
) -> bool:
    """Whether a leader resigns since it was removed: as soon as that is committed, and not before, as nobody else could
    be sure to commit it."""
    return not is_voter and voters_offset < high_watermark and protections.removed_leader_resigns
