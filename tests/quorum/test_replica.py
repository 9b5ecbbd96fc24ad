"""A replica, event by event: elections, fetching, committing, snapshots, reconfiguration, and durability."""

from __future__ import annotations

from typing import cast

import pytest
from quorum.replicas import Driven, key, leader_change, log_of, node, place, voters

from fencepost.quorum.identity import NO_VOTERS, Node, VoterSet
from fencepost.quorum.log import Batch, LeaderChange, LogIndex, Snapshot, VotersRecord
from fencepost.quorum.messages import (
    AddVoter,
    AddVoterResponse,
    BeginQuorum,
    DescribeQuorum,
    DescribeQuorumResponse,
    EndQuorum,
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
    RemoveVoter,
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
    ElectionState,
    InstallSnapshot,
    LeaderChanged,
    LostLeadership,
    Proposed,
    Refused,
    Reply,
    ReplyWithBatches,
    ReplyWithSnapshot,
    Resign,
    Send,
    SendHighWatermark,
    SetTimer,
    SnapshotInstalled,
    SnapshotTaken,
    Stored,
    StoreState,
    Timer,
    Truncate,
    VotersChanged,
    WriteSnapshot,
)
from fencepost.quorum.rules import Error
from fencepost.quorum.transitions import State


def following(epoch: int = 1, leader: int = 2, me: int = 1, **arguments: object) -> Driven:
    """A replica that follows a leader and has sent it a fetch."""
    state = ElectionState(epoch, None, node(leader))
    driven = Driven(me, election=state, **arguments)  # type: ignore[arg-type]
    assert driven.replica.state is State.FOLLOWER
    return driven


def leading(*epochs: int, of: tuple[int, ...] = (1, 2, 3), **settings: int) -> Driven:
    """Replica 1, elected by 2. It has stored its first records and committed nothing yet."""
    driven = Driven(epochs=epochs, of=voters(*of), **settings)  # type: ignore[arg-type]
    driven.is_elected(*[number for number in of if number != 1][: len(of) // 2])
    assert driven.replica.leads
    return driven


def fetch(driven: Driven, number: int, offset: int | None = None, epoch: int | None = None, hwm: int = 0) -> object:
    """Replica ``number`` fetches, by default from the end of the log. Gives the answer, or None if it is delayed."""
    log = driven.replica.log
    offset = log.end_offset if offset is None else offset
    epoch = log.epoch_ahead_of(offset) if epoch is None else epoch
    return driven.asked(Fetch(driven.replica.epoch, key(number), place(offset, epoch), hwm))


def high_watermarks(driven: Driven) -> list[int]:
    """The high watermarks of all answers, which must be to fetches."""
    return [cast(FetchResponse, effect.response).high_watermark for effect in driven.all(Reply)]


# -- elections ---------------------------------------------------------------------------------------------------------


def test_a_voter_asks_first_then_stands_for_election_and_begins_its_epoch_with_a_record() -> None:
    driven = Driven(epochs=(1, 1))
    driven.clear()
    driven.fires(Timer.ELECTION)
    assert driven.sent(Vote) == [Vote(1, key(1), key(n), place(2, 1), pre_vote=True) for n in (2, 3)]
    assert driven.all(StoreState) == []
    driven.clear()
    driven.gets_votes(2, pre_vote=True)
    assert driven.all(StoreState) == [StoreState(ElectionState(2, key(1)))]
    assert driven.sent(Vote) == [Vote(2, key(1), key(n), place(2, 1)) for n in (2, 3)]
    assert isinstance(driven.effects[0], StoreState)
    driven.clear()
    driven.gets_votes(3)
    assert driven.replica.leads
    store, append = driven.all(StoreState)[0], driven.all(Append)[0]
    assert store.election == ElectionState(2, key(1), node(1))
    assert driven.effects.index(store) < driven.effects.index(append)
    change = LeaderChange(key(1), (key(1), key(2), key(3)), (key(1), key(3)))
    assert append.batches == (Batch(2, 2, control=change),)
    assert [batch.control for appended in driven.all(Append) for batch in appended.batches][1] == VotersRecord(
        voters(1, 2, 3)
    )
    assert driven.sent(BeginQuorum) == [BeginQuorum(2, node(1), key(n)) for n in (2, 3)]


def test_the_only_voter_leads_at_once_and_commits_what_it_has_stored() -> None:
    driven = Driven(of=voters(1))
    assert driven.replica.leads
    assert driven.all(Commit) == []
    driven.stores()
    assert driven.all(Commit) == [Commit(2)]
    assert driven.all(BecameLeader) == [BecameLeader(1)]
    driven.clear()
    driven(Proposed(7, (b"a", b"b")))
    assert driven.all(Accepted) == [Accepted(7, 4, 1)]
    driven.stores()
    assert driven.all(Commit) == [Commit(4)]


def test_a_vote_is_stored_before_it_is_given_and_given_once() -> None:
    driven = Driven(epochs=(1,))
    driven.clear()
    answer = driven.asked(Vote(2, key(2), key(1), place(1, 1)))
    assert answer == VoteResponse(key(1), 2, None, Error.NONE, True)
    kinds = [type(effect) for effect in driven.effects if isinstance(effect, StoreState | Reply)]
    assert kinds == [StoreState, StoreState, Reply]
    assert driven.all(StoreState)[-1].election == ElectionState(2, key(2))
    assert driven.asked(Vote(2, key(3), key(1), place(9, 1))).granted is False  # type: ignore[union-attr]
    assert driven.asked(Vote(2, key(2), key(1), place(1, 1))).granted is True  # type: ignore[union-attr]
    assert driven.asked(Vote(1, key(2), key(1), place(1, 1))).error is Error.FENCED_LEADER_EPOCH  # type: ignore[union-attr]


def test_a_vote_is_remembered_after_a_restart() -> None:
    driven = Driven(election=ElectionState(4, key(2)))
    assert driven.replica.state is State.VOTED
    assert driven.asked(Vote(4, key(3), key(1), place(5, 4))).granted is False  # type: ignore[union-attr]
    assert driven.asked(Vote(4, key(2), key(1), place(5, 4))).granted is True  # type: ignore[union-attr]


def test_an_observer_votes_and_keeps_its_vote_when_it_loses_its_leader() -> None:
    driven = Driven(4, bootstrap=("h2:1",))
    assert driven.asked(Vote(2, key(2), key(4), place(0, 0))).granted is True  # type: ignore[union-attr]
    driven.answered(FetchResponse(key(2), 2, node(2), Error.NONE))
    assert driven.replica.state is State.FOLLOWER
    driven.fires(Timer.FETCH)
    assert (driven.replica.state, driven.replica.voted) == (State.UNATTACHED, key(2))
    assert driven.asked(Vote(2, key(3), key(4), place(9, 1))).granted is False  # type: ignore[union-attr]


def test_a_request_for_the_disk_that_was_here_before_changes_nothing() -> None:
    driven = Driven()
    driven.clear()
    answer = driven.asked(Vote(9, key(2), key(1, "lost"), place(0, 0)))
    assert (answer.error, driven.replica.epoch) == (Error.INVALID_VOTER_KEY, 0)  # type: ignore[union-attr]
    answer = driven.asked(BeginQuorum(9, node(2), key(1, "lost")))
    assert (answer.error, driven.replica.epoch) == (Error.INVALID_VOTER_KEY, 0)  # type: ignore[union-attr]
    assert driven.all(StoreState) == []


def test_votes_of_the_disk_that_was_there_before_do_not_count() -> None:
    driven = Driven()
    driven.fires(Timer.ELECTION)
    driven.gets_votes(2, pre_vote=True)
    for directory in ("lost", "lost too"):
        driven.answered(VoteResponse(key(2, directory), 1, None, Error.NONE, True))
        driven.answered(VoteResponse(key(3, directory), 1, None, Error.NONE, True))
    assert driven.replica.state is State.CANDIDATE


def test_a_follower_that_hears_from_its_leader_refuses_pre_votes() -> None:
    driven = following(epochs=(1,))
    asks = Vote(1, key(3), key(1), place(5, 1), pre_vote=True)
    assert driven.asked(asks).granted is True  # type: ignore[union-attr]
    driven.answered(FetchResponse(key(2), 1, node(2), Error.NONE, place(1, 1), 1))
    assert driven.asked(asks).granted is False  # type: ignore[union-attr]
    assert driven.asked(asks).leader == node(2)  # type: ignore[union-attr]
    driven.asked(EndQuorum(1, key(2), (key(3), key(1))))
    assert driven.asked(asks).granted is True  # type: ignore[union-attr]


def test_whoever_is_refused_pre_votes_goes_back_to_its_leader_and_its_epoch_stays() -> None:
    driven = following(epochs=(1,))
    driven.fires(Timer.FETCH)
    assert driven.replica.state is State.PROSPECTIVE
    for number in (2, 3):
        driven.answered(VoteResponse(key(number), 1, node(2), Error.NONE, False, True))
    assert (driven.replica.state, driven.replica.epoch) == (State.FOLLOWER, 1)


def test_a_leader_that_restarts_has_resigned_and_says_so() -> None:
    driven = Driven(election=ElectionState(3, key(1), node(1)), epochs=(3,))
    assert driven.replica.state is State.RESIGNED
    assert driven.sent(EndQuorum) == [EndQuorum(3, key(1), ())] * 2
    assert driven.asked(Vote(3, key(2), key(1), place(9, 3))).granted is False  # type: ignore[union-attr]
    driven.fires(Timer.ELECTION)
    driven.gets_votes(2, pre_vote=True)
    assert (driven.replica.state, driven.replica.epoch) == (State.CANDIDATE, 4)


def test_a_candidate_that_restarts_does_not_count_votes_for_the_epoch_it_had() -> None:
    driven = Driven(election=ElectionState(3, key(1)))
    driven.gets_votes(2, 3)
    assert driven.replica.state is State.VOTED


def test_a_leader_that_no_majority_fetches_from_resigns() -> None:
    driven = leading()
    fetch(driven, 2)
    driven.fires(Timer.CHECK_QUORUM)
    assert driven.replica.state is State.RESIGNED
    assert LostLeadership(1) in driven.effects
    driven = leading()
    fetch(driven, 4)  # an observer
    driven.fires(Timer.CHECK_QUORUM)
    assert driven.replica.state is State.RESIGNED


def test_a_fetch_by_a_majority_begins_the_time_of_a_leader_anew() -> None:
    driven = leading()
    fetch(driven, 2)
    assert [effect.timer for effect in driven.all(SetTimer)].count(Timer.CHECK_QUORUM) == 1


def test_a_leader_is_announced_until_voters_fetch() -> None:
    driven = leading()
    fetch(driven, 2)
    driven.clear()
    driven.fires(Timer.BEGIN_QUORUM)
    assert [request.voter for request in driven.sent(BeginQuorum)] == [key(3)]
    driven.clear()
    driven.fires(Timer.BEGIN_QUORUM)
    assert [request.voter for request in driven.sent(BeginQuorum)] == [key(2), key(3)]


@pytest.mark.parametrize("needs_voter", [True, False])
def test_whether_an_observer_follows_a_leader_that_presents_itself(needs_voter: bool) -> None:
    driven = Driven(4, begin_quorum_needs_voter=needs_voter)
    answer = driven.asked(BeginQuorum(2, node(2), key(4)))
    assert answer.error is (Error.NOT_VOTER if needs_voter else Error.NONE)  # type: ignore[union-attr]
    assert driven.replica.state is (State.UNATTACHED if needs_voter else State.FOLLOWER)


def test_a_leader_that_is_stopped_names_its_successors_the_one_with_the_longest_log_first() -> None:
    driven = leading()
    fetch(driven, 3)
    driven.clear()
    driven(Resign())
    assert driven.sent(EndQuorum) == [EndQuorum(1, key(1), (key(3), key(2)))] * 2
    first, second = (following(me=number, leader=1) for number in (3, 2))
    for successor in (first, second):
        successor.clear()
        successor.asked(driven.sent(EndQuorum)[0])
    waits = [successor.all(SetTimer)[0] for successor in (first, second)]
    assert waits[0] == SetTimer(Timer.FETCH, 0, 0)
    assert waits[1].at_least > 0


# -- fetching ----------------------------------------------------------------------------------------------------------


def test_a_follower_fetches_again_only_when_it_has_stored_what_it_got() -> None:
    driven = following()
    assert driven.sent(Fetch) == [Fetch(1, key(1), place(0, 0))]
    driven.clear()
    batches = (leader_change(0, 1, 2), Batch(1, 1, (b"a", b"b")))
    driven.answered(FetchResponse(key(2), 1, node(2), Error.NONE, place(0, 0), 1, batches))
    assert driven.all(Append) == [Append(batches)]
    assert driven.all(Commit) == [Commit(1)]
    assert driven.sent(Fetch) == []
    driven(Stored(place(1, 1)))
    assert driven.sent(Fetch) == []
    driven(Stored(place(3, 1)))
    assert driven.sent(Fetch) == [Fetch(1, key(1), place(3, 1), 1)]


def test_what_was_stored_and_cut_off_since_does_not_count() -> None:
    driven = following(epoch=2, epochs=(1, 1))
    driven.answered(FetchResponse(key(2), 2, node(2), Error.NONE, place(2, 1), -1, (), place(1, 1)))
    assert driven.all(Truncate) == [Truncate(1)]
    driven.answered(FetchResponse(key(2), 2, node(2), Error.NONE, place(1, 1), -1, (leader_change(1, 2, 2),)))
    driven.clear()
    driven(Stored(place(2, 1)))
    assert driven.sent(Fetch) == []
    driven(Stored(place(2, 2)))
    assert len(driven.sent(Fetch)) == 1


def test_answers_to_other_fetches_and_of_other_replicas_are_not_read() -> None:
    driven = following()
    driven.clear()
    batches = (leader_change(0, 1, 2),)
    driven.answered(FetchResponse(key(2), 1, node(2), Error.NONE, place(5, 1), 9, batches))
    driven.answered(FetchResponse(key(3), 1, node(2), Error.NONE, place(0, 0), 9, batches))
    driven.answered(FetchResponse(key(2), 0, None, Error.NONE, place(0, 0), 9, batches))
    assert driven.effects == []


def test_a_leader_that_lacks_what_is_committed_is_not_obeyed() -> None:
    driven = following(epoch=2, epochs=(1, 1))
    driven.replica.high_watermark = 2
    driven.answered(FetchResponse(key(2), 2, node(2), Error.NONE, place(2, 1), -1, (), place(1, 1)))
    assert driven.replica.log.end == place(2, 1)
    assert "does not have what was committed" in driven.all(Distrusted)[0].reason


def test_a_voter_that_falls_back_to_the_configuration_before() -> None:
    log = log_of(voters(1, 2), 1)
    log.append(Batch(1, 1, control=VotersRecord(voters(2))))
    driven = following(epoch=2, log=log)
    assert not driven.replica.is_voter
    driven.clear()
    driven.answered(FetchResponse(key(2), 2, node(2), Error.NONE, place(2, 1), -1, (), place(1, 1)))
    assert driven.replica.is_voter
    assert VotersChanged(True) in driven.effects


def test_an_observer_asks_one_endpoint_after_the_other_for_the_leader() -> None:
    driven = Driven(4, of=NO_VOTERS, bootstrap=("h1:1", "h2:1"))
    for _ in range(2):
        driven.fires(Timer.RETRY)
    assert [effect.endpoint for effect in driven.all(Send)] == ["h1:1", "h2:1", "h1:1"]
    driven.clear()
    driven.answered(FetchResponse(key(1), 3, node(2), Error.FENCED_LEADER_EPOCH, place(0, 0)))
    assert driven.replica.state is State.FOLLOWER
    assert driven.all(Send) == [Send("h2:1", Fetch(3, key(4), place(0, 0)))]
    assert LeaderChanged(3, node(2)) in driven.effects


def test_a_fetch_is_repeated_when_it_is_not_answered() -> None:
    driven = following()
    driven.clear()
    driven.fires(Timer.RETRY)
    assert len(driven.sent(Fetch)) == 1
    driven.clear()
    driven(Disconnected("h3:1"))
    assert driven.effects == []
    driven(Disconnected("h2:1"))
    assert [effect.timer for effect in driven.all(SetTimer)] == [Timer.RETRY]


# -- leading -----------------------------------------------------------------------------------------------------------


def test_a_leader_commits_what_a_majority_has_stored_with_itself_only_up_to_what_it_has_stored() -> None:
    driven = leading(1, of=(1, 2, 3))
    driven(Proposed(1, (b"a",)))
    end = driven.replica.log.end_offset
    driven.clear()
    fetch(driven, 2, end)
    assert driven.all(Commit) == [Commit(end - 1)]
    driven.clear()
    driven.stores()
    assert driven.all(Commit) == [Commit(end)]


def test_a_majority_commits_without_the_leader() -> None:
    driven = leading(1)
    driven(Proposed(1, (b"a",)))
    end = driven.replica.log.end_offset
    for number in (2, 3):
        fetch(driven, number, end)
    assert driven.all(Commit)[-1] == Commit(end)
    assert driven.replica.stored_end == end - 1


def test_what_earlier_epochs_left_is_committed_with_the_first_record_of_the_leader() -> None:
    driven = leading(1, 1, 1)
    fetch(driven, 2, 3)
    assert driven.all(Commit) == []
    fetch(driven, 2, 4)
    assert driven.all(Commit) == [Commit(4)]
    assert driven.all(BecameLeader) == [BecameLeader(2)]


def test_a_fetch_waits_for_something_new_and_is_answered_once() -> None:
    driven = leading(1)
    end = driven.replica.log.end_offset
    assert isinstance(fetch(driven, 2, 1), FetchResponse)  # there are records to send
    assert fetch(driven, 2, end, hwm=end) is None
    driven.clear()
    assert fetch(driven, 2, end, hwm=end) is None  # the second fetch ends the wait of the first
    assert len(driven.all(Reply)) == 1
    driven.clear()
    driven(Proposed(1, (b"a",)))
    assert [effect.response.log_end for effect in driven.all(ReplyWithBatches)] == [place(end, 2)]
    driven.clear()
    assert fetch(driven, 2, end + 1, hwm=end + 1) is None
    driven.fires(Timer.WAITING_FETCHES)
    assert len(driven.all(Reply)) == 1


def test_a_high_watermark_that_nobody_waits_for_is_told_a_little_later_or_with_the_next_records() -> None:
    driven = leading(1, high_watermark_wait=1_000)
    end = driven.replica.log.end_offset
    driven(Proposed(1, (b"a",)))
    driven.stores()
    driven.clear()
    assert fetch(driven, 2, end + 1, hwm=end) is None  # this commits the record
    assert driven.all(Commit) == [Commit(end + 1)]
    assert driven.all(SetTimer)[-1] == SetTimer(Timer.HIGH_WATERMARK, 1_000, 1_000)
    assert fetch(driven, 3, end + 1, hwm=end) is None
    assert len([each for each in driven.all(SetTimer) if each.timer is Timer.HIGH_WATERMARK]) == 1
    driven.clear()
    driven.fires(Timer.HIGH_WATERMARK)
    assert high_watermarks(driven) == [end + 1, end + 1]
    answer = fetch(driven, 2, end + 1, hwm=end)
    # it was sent before, and is sent again
    assert isinstance(answer, FetchResponse) and answer.high_watermark == end + 1
    assert fetch(driven, 2, end + 1, hwm=end + 1) is None
    driven(Proposed(2, (b"b",)))
    driven.stores()
    fetch(driven, 2, end + 2, hwm=end + 1)
    driven.clear()
    driven(Proposed(3, (b"c",)))
    (told,) = driven.all(ReplyWithBatches)
    assert told.response.high_watermark == end + 2


@pytest.mark.parametrize("asks_before", [True, False])
def test_a_replica_with_clients_that_wait_is_told_at_once(asks_before: bool) -> None:
    driven = leading(1, high_watermark_wait=1_000)
    end = driven.replica.log.end_offset
    for number in (2, 3):
        fetch(driven, number, end, hwm=end)
    driven(Proposed(1, (b"a",)))
    driven.stores()
    assert fetch(driven, 2, end + 1, hwm=end) is None
    if asks_before:
        assert fetch(driven, 3, end + 1, hwm=end) is None
    driven.clear()
    driven(SendHighWatermark(key(3)))
    driven(SendHighWatermark(key(9)))  # an unknown replica
    if asks_before:
        assert high_watermarks(driven) == [end + 1]
    else:
        assert not driven.all(Reply)
        answer = fetch(driven, 3, end + 1, hwm=end)
        assert isinstance(answer, FetchResponse) and answer.high_watermark == end + 1


def test_whoever_waits_is_told_when_its_leader_leads_no_more() -> None:
    driven = leading(1)
    end = driven.replica.log.end_offset
    assert fetch(driven, 2, end, hwm=end) is None
    driven.clear()
    driven.asked(Vote(9, key(3), key(1), place(9, 2)))
    assert driven.all(Reply)[0].response.error is Error.NOT_LEADER
    driven(Proposed(5, (b"a",)))
    assert driven.all(Refused) == [Refused(5, Error.NOT_LEADER)]


def test_a_leader_says_where_logs_part() -> None:
    driven = leading(1, 1)
    answer = fetch(driven, 2, 5, 1)
    assert isinstance(answer, FetchResponse)
    assert answer.diverging == place(2, 1)
    assert driven.asked(Fetch(1, key(2), place(0, 0))).error is Error.FENCED_LEADER_EPOCH  # type: ignore[union-attr]
    assert driven.asked(Fetch(2, key(2), place(0, 5))).error is Error.INVALID_REQUEST  # type: ignore[union-attr]


# -- snapshots ---------------------------------------------------------------------------------------------------------


def test_a_leader_sends_its_snapshot_to_whoever_is_behind_the_start_of_its_log() -> None:
    driven = leading(1, 1, 1, records_kept=0)
    fetch(driven, 2)
    end = driven.replica.high_watermark
    driven(SnapshotTaken(Snapshot(place(end, 2), voters(1, 2, 3))))
    assert driven.all(DeleteBefore) == [DeleteBefore(end)]
    answer = fetch(driven, 3, 1, 1)
    assert isinstance(answer, FetchResponse)
    assert answer.snapshot == place(end, 2)
    asked = driven.asked(FetchSnapshot(2, key(3), place(end, 2), 5))
    assert isinstance(asked, FetchSnapshotResponse)
    assert driven.all(ReplyWithSnapshot)[0].response == asked


def test_a_follower_fetches_a_snapshot_piece_by_piece_and_goes_on_behind_it() -> None:
    driven = following(epoch=3)
    driven.clear()
    snapshot = place(9, 2)
    driven.answered(FetchResponse(key(2), 3, node(2), Error.NONE, place(0, 0), 9, snapshot=snapshot))
    assert driven.sent(FetchSnapshot) == [FetchSnapshot(3, key(1), snapshot, 0)]
    driven.answered(FetchSnapshotResponse(key(2), 3, node(2), Error.NONE, snapshot, 5, 0, b"abc"))
    assert driven.sent(FetchSnapshot)[-1] == FetchSnapshot(3, key(1), snapshot, 3)
    driven.answered(FetchSnapshotResponse(key(2), 3, node(2), Error.NONE, snapshot, 5, 3, b"de"))
    assert driven.all(WriteSnapshot) == [WriteSnapshot(snapshot, 0, b"abc"), WriteSnapshot(snapshot, 3, b"de")]
    assert driven.all(InstallSnapshot) == [InstallSnapshot(snapshot)]
    driven.clear()
    driven.fires(Timer.RETRY)
    driven.fires(Timer.FETCH)
    assert driven.sent(Fetch) == []  # without a log it does not fetch
    driven(SnapshotInstalled(Snapshot(snapshot, voters(1, 2))))
    assert driven.sent(Fetch) == [Fetch(3, key(1), snapshot, 9)]
    assert driven.replica.voters == voters(1, 2)


def test_a_snapshot_of_what_is_not_committed_is_not_taken() -> None:
    driven = leading(1, 1)
    driven(SnapshotTaken(Snapshot(place(2, 1), voters(1, 2, 3))))
    assert driven.replica.log.snapshot.end == place(0, 0)


# -- reconfiguration ---------------------------------------------------------------------------------------------------


def ready(*of: int, **settings: int) -> Driven:
    """Replica 1 leads, and all its records are committed."""
    driven = leading(of=of or (1, 2, 3), **settings)
    for number in of[1:] or (2, 3):
        fetch(driven, number)
    driven.clear()
    return driven


def test_an_observer_that_has_caught_up_becomes_a_voter_and_the_answer_comes_with_the_commit() -> None:
    driven = ready(1, 2)
    assert driven.asked(AddVoter(node(3))).error is Error.NOT_CAUGHT_UP  # type: ignore[union-attr]
    fetch(driven, 3)
    driven.clear()
    assert driven.asked(AddVoter(node(3))) is None
    assert driven.all(Append)[0].batches[0].control == VotersRecord(voters(1, 2, 3))
    assert driven.replica.voters == voters(1, 2, 3)
    assert driven.asked(AddVoter(node(4))).error is Error.RECONFIG_IN_PROGRESS  # type: ignore[union-attr]
    assert driven.asked(AddVoter(node(2, "another"))).error is Error.ALREADY_MEMBER  # type: ignore[union-attr]
    driven.stores()
    driven.clear()
    fetch(driven, 3)
    assert [reply.response for reply in driven.all(Reply)][0] == AddVoterResponse(
        key(1), 1, node(1), Error.NONE, key(3)
    )


def test_a_change_that_its_leader_did_not_see_committed_may_yet_be() -> None:
    driven = ready()
    assert driven.asked(RemoveVoter(key(3))) is None
    driven.clear()
    driven(Resign())
    assert [reply.response.error for reply in driven.all(Reply)][-1] is Error.TIMED_OUT


def test_a_leader_without_a_commit_in_its_epoch_and_others_refuse() -> None:
    driven = leading()
    assert driven.asked(RemoveVoter(key(2))).error is Error.RECONFIG_IN_PROGRESS  # type: ignore[union-attr]
    log = LogIndex(Snapshot(place(4, 1), voters(1, 2, 3)))
    driven = Driven(log=log, election=ElectionState(1))
    driven.is_elected(2)
    assert driven.asked(RemoveVoter(key(2))).error is Error.LEADER_NOT_READY  # type: ignore[union-attr]
    answer = following().asked(AddVoter(node(4)))
    assert (answer.error, answer.leader) == (Error.NOT_LEADER, node(2))  # type: ignore[union-attr]


def test_a_leader_that_removes_itself_leads_without_counting_itself_until_that_is_committed() -> None:
    driven = ready()
    assert driven.asked(RemoveVoter(key(1), when_committed=False)).error is Error.NONE  # type: ignore[union-attr]
    driven.stores()
    end = driven.replica.log.end_offset
    driven(Proposed(1, (b"a",)))
    assert driven.all(Refused) == [Refused(1, Error.NOT_LEADER)]
    fetch(driven, 2, end, hwm=end - 1)
    assert driven.all(Commit) == []
    assert driven.replica.leads
    driven.clear()
    fetch(driven, 3, end, hwm=end - 1)
    assert driven.all(Commit) == [Commit(end)]
    assert driven.replica.state is State.RESIGNED
    waited = [reply.response for reply in driven.all(Reply) if isinstance(reply.response, FetchResponse)]
    assert [(answer.error, answer.high_watermark) for answer in waited] == [(Error.NONE, end)] * 2
    assert len(driven.sent(EndQuorum)) == 2
    driven.fires(Timer.ELECTION)
    assert driven.replica.state is State.UNATTACHED  # type: ignore[comparison-overlap]


def test_a_leader_that_removed_itself_in_vain_stands_for_election_to_commit_that() -> None:
    driven = ready(1, 2)
    driven.asked(RemoveVoter(key(1)))
    driven.stores()
    driven.fires(Timer.CHECK_QUORUM)
    assert driven.replica.state is State.RESIGNED
    driven.is_elected(2)
    assert driven.replica.leads
    assert not driven.replica.is_voter
    fetch(driven, 2)
    assert driven.replica.state is State.RESIGNED
    assert driven.all(BecameLeader)


def test_a_fetch_by_a_voter_that_was_removed_is_answered_and_not_counted() -> None:
    driven = ready()
    driven.asked(RemoveVoter(key(3)))
    driven.stores()
    end = driven.replica.log.end_offset
    driven.clear()
    assert isinstance(fetch(driven, 3, end - 1), FetchResponse)
    fetch(driven, 3, end)
    assert driven.all(Commit) == []
    fetch(driven, 2, end)
    assert driven.all(Commit) == [Commit(end)]


def test_an_observer_joins_by_itself_after_it_has_its_predecessor_removed() -> None:
    driven = Driven(1, of=voters(1, 2, 3), election=ElectionState(1, None, node(2)), auto_join=True)
    assert driven.replica.is_voter
    driven = Driven(4, of=voters(2, 3), election=ElectionState(1, None, node(2)), auto_join=True)
    driven.answered(FetchResponse(key(2), 1, node(2), Error.NONE, place(0, 0), 0))
    driven.clear()
    driven.fires(Timer.JOIN)
    assert driven.sent(AddVoter) == [AddVoter(node(4), when_committed=False)]
    assert Timer.JOIN in [effect.timer for effect in driven.all(SetTimer)]


def moved(number: int, endpoint: str = "elsewhere:1") -> VoterSet:
    """Three voters. The voter set has a wrong endpoint for ``number``."""
    return voters(1, 2, 3).without(key(number)).having(Node(key(number), endpoint))


def test_a_voter_that_has_moved_tells_its_leader_until_the_voters_say_so() -> None:
    driven = Driven(1, of=moved(1), election=ElectionState(1, None, node(2)))
    assert Timer.JOIN in [effect.timer for effect in driven.all(SetTimer)]
    driven.fires(Timer.JOIN)
    assert driven.sent(UpdateVoter) == []  # the leader has not answered yet
    driven.answered(FetchResponse(key(2), 1, node(2), Error.NONE, place(0, 0), 0))
    for _ in range(2):
        driven.clear()
        driven.fires(Timer.JOIN)
        assert driven.sent(UpdateVoter) == [UpdateVoter(1, node(1))]
        assert Timer.JOIN in [effect.timer for effect in driven.all(SetTimer)]
    driven.clear()
    said = Batch(0, 1, control=VotersRecord(voters(1, 2, 3)))
    driven.answered(FetchResponse(key(2), 1, node(2), Error.NONE, place(0, 0), 0, (said,)))
    assert driven.all(CancelTimer) == [CancelTimer(Timer.JOIN)] and driven.all(VotersChanged) == []
    driven.clear()
    driven.fires(Timer.JOIN)
    assert driven.effects == []
    # The record with its endpoint is truncated, so it asks again.
    driven.answered(FetchResponse(key(2), 1, node(2), Error.NONE, place(1, 1), 0, diverging=place(0, 0)))
    assert Timer.JOIN not in [effect.timer for effect in driven.all(SetTimer)]  # it has sent no fetch since
    driven.stores()
    driven.answered(FetchResponse(key(2), 1, node(2), Error.NONE, place(1, 1), 0, diverging=place(0, 0)))
    assert Timer.JOIN in [effect.timer for effect in driven.all(SetTimer)]


def test_a_voter_that_is_where_the_voters_say_asks_for_nothing() -> None:
    driven = Driven(1, election=ElectionState(1, None, node(2)))
    assert Timer.JOIN not in [effect.timer for effect in driven.all(SetTimer)]
    driven.answered(FetchResponse(key(2), 1, node(2), Error.NONE, place(0, 0), 0))
    driven.clear()
    driven.fires(Timer.JOIN)
    assert driven.effects == []


def test_a_leader_writes_down_where_a_voter_is_reached() -> None:
    driven = ready()
    new = Node(key(3), "elsewhere:1")
    epoch = driven.replica.epoch
    assert fetch(driven, 2, hwm=driven.replica.high_watermark) is None  # this fetch waits
    driven.clear()
    answer = driven.asked(UpdateVoter(epoch, new))
    assert answer == UpdateVoterResponse(key(1), epoch, node(1), Error.NONE, key(3))
    assert len(driven.all(ReplyWithBatches)) == 1
    assert driven.all(Append)[-1].batches[0].control == VotersRecord(moved(3))
    assert driven.replica.voters == moved(3)
    assert driven.asked(UpdateVoter(epoch, node(3))).error is Error.RECONFIG_IN_PROGRESS  # type: ignore[union-attr]
    assert driven.asked(UpdateVoter(epoch, node(4))).error is Error.NOT_MEMBER  # type: ignore[union-attr]
    assert driven.asked(UpdateVoter(epoch, node(3, "other"))).error is Error.NOT_MEMBER  # type: ignore[union-attr]
    assert driven.asked(UpdateVoter(epoch - 1, new)).error is Error.FENCED_LEADER_EPOCH  # type: ignore[union-attr]
    assert driven.asked(UpdateVoter(epoch + 1, new)).error is Error.UNKNOWN_LEADER_EPOCH  # type: ignore[union-attr]
    driven.stores()
    fetch(driven, 2)
    driven.clear()
    assert driven.asked(UpdateVoter(epoch, new)).error is Error.NONE  # type: ignore[union-attr]
    assert driven.all(Append) == []  # the voters have this endpoint already
    assert following().asked(UpdateVoter(1, new)).error is Error.NOT_LEADER  # type: ignore[union-attr]
    driven = Driven(log=LogIndex(Snapshot(place(4, 1), voters(1, 2, 3))), election=ElectionState(1))
    driven.is_elected(2)
    assert driven.asked(UpdateVoter(driven.replica.epoch, new)).error is Error.LEADER_NOT_READY  # type: ignore[union-attr]


def test_the_quorum_is_described_by_its_leader() -> None:
    driven = ready(1, 2)
    fetch(driven, 3, 0, 0)
    answer = driven.asked(DescribeQuorum())
    assert isinstance(answer, DescribeQuorumResponse)
    assert answer.high_watermark == driven.replica.high_watermark
    assert [(one.key, one.end_offset) for one in answer.voters] == [(key(1), 2), (key(2), 2)]
    assert [(one.key, one.end_offset) for one in answer.observers] == [(key(3), 0)]
    assert following().asked(DescribeQuorum()).error is Error.NOT_LEADER  # type: ignore[union-attr]
