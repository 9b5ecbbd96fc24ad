"""The decisions of a quorum, one by one. The high watermark and the truncation of logs are compared with their plain
definitions.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.quorum import rules
from fencepost.quorum.rules import Election, Error, Learnt, Position
from fencepost.quorum.transitions import TABLE, Cause, IllegalTransition, State, transition

# -- the table ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("cause", Cause)
def test_the_table_says_what_becomes_of_a_state_and_everything_else_is_refused(state: State, cause: Cause) -> None:
    for later in (4, 5, 6, 7):
        found = TABLE[state].get(cause)
        if found is not None and found[1](5, later):
            assert transition(state, cause, 5, later) is found[0]
        else:
            with pytest.raises(IllegalTransition, match=f"{state.value} in epoch 5"):
                transition(state, cause, 5, later)


def test_no_state_goes_back_to_an_earlier_epoch_and_only_candidates_go_to_the_next_by_themselves() -> None:
    for state, row in TABLE.items():
        for cause, (after, epochs) in row.items():
            assert not epochs(5, 4)
            if cause not in (Cause.LATER_EPOCH, Cause.LEADER_FOUND):
                assert [later for later in (5, 6, 7) if epochs(5, later)] == ([6] if after is State.CANDIDATE else [5])
            if after is State.LEADER:
                assert state is State.CANDIDATE


# -- restarts and epochs -----------------------------------------------------------------------------------------------


def test_whoever_led_an_epoch_does_not_lead_it_again_after_a_restart() -> None:
    assert rules.restarts_as(has_led=True, has_voted=True, knows_leader=True) is State.RESIGNED
    assert rules.restarts_as(has_led=False, has_voted=True, knows_leader=False) is State.VOTED
    assert rules.restarts_as(has_led=False, has_voted=True, knows_leader=True) is State.FOLLOWER
    assert rules.restarts_as(has_led=False, has_voted=False, knows_leader=False) is State.UNATTACHED


@pytest.mark.parametrize(
    ("epoch", "leader", "reported", "reported_leader", "learnt"),
    [
        (5, None, 4, 2, Learnt.NOTHING),
        (5, None, 5, None, Learnt.NOTHING),
        (5, None, 5, 2, Learnt.FOLLOW),
        (5, 2, 5, 2, Learnt.NOTHING),
        (5, 2, 5, 3, Learnt.CONTRADICTION),
        (5, 2, 5, None, Learnt.NOTHING),
        (5, 2, 6, None, Learnt.UNATTACHED),
        (5, 2, 6, 3, Learnt.FOLLOW),
        (5, None, 5, 1, Learnt.NOTHING),  # the others do not know yet that 1 resigned
        (5, 2, 6, 1, Learnt.UNATTACHED),  # 1 never led epoch 6
        (5, 2, 5 + rules.EPOCHS_AHEAD, 3, Learnt.FOLLOW),
        (5, 2, 5 + rules.EPOCHS_AHEAD + 1, 3, Learnt.CONTRADICTION),
        (5, 2, 5 + rules.EPOCHS_AHEAD + 1, None, Learnt.CONTRADICTION),
    ],
)
def test_what_replica_1_learns(
    epoch: int, leader: int | None, reported: int, reported_leader: int | None, learnt: Learnt
) -> None:
    assert rules.learns(epoch, leader, reported, reported_leader, me=1) is learnt


# -- votes -------------------------------------------------------------------------------------------------------------


def test_a_vote_goes_to_one_candidate_of_an_epoch() -> None:
    def grants(state: State, voted: int | None, leader: int | None = None, up_to_date: bool = True) -> bool:
        return rules.grants_vote(state, voted, leader, 2, up_to_date)

    assert grants(State.UNATTACHED, None)
    assert grants(State.PROSPECTIVE, None)
    assert grants(State.VOTED, 2)
    assert not grants(State.VOTED, 3)
    assert not grants(State.UNATTACHED, None, up_to_date=False)
    assert not grants(State.PROSPECTIVE, None, leader=3)
    for state in (State.FOLLOWER, State.LEADER, State.CANDIDATE, State.RESIGNED):
        assert not grants(state, None)


def test_a_pre_vote_goes_to_anybody_unless_the_leader_is_heard_from() -> None:
    assert rules.grants_pre_vote(State.FOLLOWER, heard=False, up_to_date=True)
    assert not rules.grants_pre_vote(State.FOLLOWER, heard=True, up_to_date=True)
    assert not rules.grants_pre_vote(State.LEADER, heard=False, up_to_date=True)
    assert not rules.grants_pre_vote(State.UNATTACHED, heard=False, up_to_date=False)
    for state in (State.UNATTACHED, State.VOTED, State.PROSPECTIVE, State.CANDIDATE, State.RESIGNED):
        assert rules.grants_pre_vote(state, heard=True, up_to_date=True)


def test_a_log_is_up_to_date_by_its_last_epoch_and_then_by_its_length() -> None:
    assert rules.is_up_to_date((3, 1), (2, 9))
    assert rules.is_up_to_date((3, 9), (3, 9))
    assert not rules.is_up_to_date((3, 8), (3, 9))
    assert not rules.is_up_to_date((2, 9), (3, 1))


@pytest.mark.parametrize(
    ("granted", "refused", "election"),
    [
        ({1}, set(), Election.OPEN),
        ({1, 2}, set(), Election.WON),
        ({1}, {2}, Election.OPEN),
        ({1}, {2, 3}, Election.LOST),
        ({1, 8, 9}, set(), Election.OPEN),  # 8 and 9 are not voters
    ],
)
def test_votes_of_voters_are_counted(granted: set[int], refused: set[int], election: Election) -> None:
    assert rules.count_votes(granted, refused, {1, 2, 3}) is election


def test_half_is_no_majority() -> None:
    assert not rules.has_majority({1, 2}, {1, 2, 3, 4})
    assert not rules.has_majority(set(), set())


def test_voters_stand_for_election_and_so_do_those_whose_removal_may_not_be_committed() -> None:
    assert rules.may_campaign(is_voter=True, was_voter=False, is_change_committed=False)
    assert rules.may_campaign(is_voter=False, was_voter=True, is_change_committed=False)
    assert not rules.may_campaign(is_voter=False, was_voter=True, is_change_committed=True)
    assert not rules.may_campaign(is_voter=False, was_voter=False, is_change_committed=False)


# -- fetching ----------------------------------------------------------------------------------------------------------


def test_only_the_leader_of_the_same_epoch_answers_a_fetch() -> None:
    assert rules.refuses_fetch(True, 5, 5, is_voter=True) is Error.NONE
    assert rules.refuses_fetch(True, 5, 5, is_voter=False) is Error.NONE
    assert rules.refuses_fetch(False, 5, 5, is_voter=True) is Error.NOT_LEADER
    assert rules.refuses_fetch(True, 5, 4, is_voter=True) is Error.FENCED_LEADER_EPOCH
    assert rules.refuses_fetch(True, 5, 6, is_voter=True) is Error.UNKNOWN_LEADER_EPOCH


def end_of_epoch(log: list[int], epoch: int) -> tuple[int, int]:
    """The end of the records up to an epoch: their end offset, and the epoch of the last one."""
    kept = [one for one in log if one <= epoch]
    return len(kept), kept[-1] if kept else 0


def common(one: list[int], other: list[int]) -> int:
    """The number of records that two logs share. Offset and epoch identify a record."""
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return shared


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs as Raft makes them: the leader of an epoch begins with a prefix of another's log, and appends its own
    records.
    """
    logs: list[list[int]] = [[], []]
    for epoch in range(1, draw(st.integers(1, 6))):
        source = draw(st.integers(0, 1))
        base = logs[source]
        records = draw(st.integers(0, 3))
        logs[source] = base + [epoch] * records
        if draw(st.booleans()):
            other = logs[1 - source]
            shared = common(logs[source], other)
            if shared == len(other):  # the other log fetched a part
                logs[1 - source] = logs[source][: draw(st.integers(shared, len(logs[source])))]
    return logs[0], logs[1]


@given(histories())
def test_a_follower_comes_to_share_its_log_with_the_leader_and_cuts_off_nothing_that_it_shares(
    logs: tuple[list[int], list[int]],
) -> None:
    leader, follower = logs
    shared = common(leader, follower)
    for _ in range(20):
        fetch = len(follower), follower[-1] if follower else 0
        same = end_of_epoch(leader, fetch[1])
        position = rules.position_of(fetch, (0, 0), same, (0, 0))
        if position is Position.VALID:
            break
        assert position is Position.DIVERGING
        point = rules.truncation_point(same, end_of_epoch(follower, same[1]))
        assert shared <= point < len(follower)
        follower = follower[:point]
    assert follower == leader[: len(follower)]
    assert len(follower) == shared


def test_whoever_is_behind_the_start_of_the_log_has_to_fetch_the_snapshot() -> None:
    start, snapshot, same = (10, 3), (12, 3), (20, 4)
    assert rules.position_of((9, 3), start, (20, 3), snapshot) is Position.SNAPSHOT
    assert rules.position_of((0, 0), start, start, snapshot) is Position.SNAPSHOT
    assert rules.position_of((15, 2), start, start, snapshot) is Position.SNAPSHOT  # diverged before the start
    assert rules.position_of((10, 2), start, start, snapshot) is Position.SNAPSHOT
    assert rules.position_of((10, 3), start, (20, 3), snapshot) is Position.VALID
    assert rules.position_of((20, 4), start, same, snapshot) is Position.VALID
    assert rules.position_of((0, 0), (0, 0), (0, 0), (0, 0)) is Position.VALID
    assert rules.position_of((0, 0), (0, 0), (0, 0), snapshot) is Position.SNAPSHOT  # a snapshot is faster


# -- committing --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 9), st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 9))
def test_the_high_watermark_is_what_a_majority_has_with_a_record_of_the_epoch(
    known: int, ends: list[int], start: int
) -> None:
    agreed = max(offset for offset in range(10) if 2 * sum(end >= offset for end in ends) > len(ends))
    expected = max(known, agreed) if agreed > start else known
    assert rules.high_watermark(known, ends, start) == expected


def test_a_leader_counts_what_it_has_stored_and_nothing_if_it_is_no_voter() -> None:
    assert rules.counted_end(True, log_end=9, stored_end=5) == 5
    assert rules.counted_end(False, log_end=9, stored_end=5) is None


def test_a_follower_believes_no_more_than_it_has_and_never_less_than_before() -> None:
    assert rules.follower_high_watermark(3, 9, 5) == 5
    assert rules.follower_high_watermark(3, 4, 5) == 4
    assert rules.follower_high_watermark(3, -1, 5) == 3


# -- reconfiguration ---------------------------------------------------------------------------------------------------


def test_why_a_voter_is_not_added() -> None:
    def refusal(**changes: object) -> Error:
        facts = {
            "leads": True,
            "is_member": False,
            "high_watermark": 9,
            "epoch_start": 5,
            "voters_offset": 3,
            "caught_up": True,
        }
        given: dict[str, Any] = {**facts, **changes}
        of_change = rules.refuses_change(
            *(given.pop(name) for name in ("high_watermark", "epoch_start", "voters_offset"))
        )
        return rules.refuses_to_add(refusal=of_change, **given)

    assert refusal() is Error.NONE
    assert refusal(leads=False, is_member=True) is Error.NOT_LEADER
    assert refusal(is_member=True, voters_offset=9) is Error.ALREADY_MEMBER
    assert refusal(voters_offset=9, epoch_start=9) is Error.RECONFIG_IN_PROGRESS
    assert refusal(epoch_start=9, caught_up=False) is Error.LEADER_NOT_READY
    assert refusal(caught_up=False) is Error.NOT_CAUGHT_UP


def test_why_a_voter_is_not_removed() -> None:
    def refusal(**changes: object) -> Error:
        facts = {
            "leads": True,
            "is_member": True,
            "voters": 2,
            "high_watermark": 9,
            "epoch_start": 5,
            "voters_offset": 3,
        }
        given: dict[str, Any] = {**facts, **changes}
        of_change = rules.refuses_change(
            *(given.pop(name) for name in ("high_watermark", "epoch_start", "voters_offset"))
        )
        return rules.refuses_to_remove(refusal=of_change, **given)

    assert refusal() is Error.NONE
    assert refusal(leads=False, is_member=False) is Error.NOT_LEADER
    assert refusal(is_member=False, voters_offset=9) is Error.NOT_MEMBER
    assert refusal(voters_offset=9, voters=1) is Error.RECONFIG_IN_PROGRESS
    assert refusal(epoch_start=9) is Error.LEADER_NOT_READY
    assert refusal(voters=1) is Error.LAST_VOTER


def test_who_has_caught_up() -> None:
    assert rules.has_caught_up(9, 9, None)
    assert rules.has_caught_up(7, 9, 7)
    assert not rules.has_caught_up(6, 9, 7)
    assert not rules.has_caught_up(6, 9, None)


def test_a_removed_leader_resigns_when_that_is_committed() -> None:
    assert not rules.resigns_when_committed(False, voters_offset=5, high_watermark=5)
    assert rules.resigns_when_committed(False, voters_offset=5, high_watermark=6)
    assert not rules.resigns_when_committed(True, voters_offset=5, high_watermark=6)


def test_a_leader_that_no_majority_fetches_from_has_lost_it() -> None:
    assert rules.has_lost_majority(set(), {1, 2, 3}, 1)
    assert not rules.has_lost_majority({2}, {1, 2, 3}, 1)
    assert not rules.has_lost_majority(set(), {1}, 1)
    assert rules.has_lost_majority({2}, {2, 3}, 1)  # 1 leads without being a voter
    assert rules.has_lost_majority({8}, {1, 2, 3}, 1)
