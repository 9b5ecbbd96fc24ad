"""Messages that no sound member sends: from strangers, from broken members, and from members whose disks lost writes.

A replica survives any of them in any state. It forgets no vote, no leader and no committed record, and sends nothing
that others cannot decode.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorum.replicas import Driven, key, log_of, node, place, voters

from fencepost.quorum import rules
from fencepost.quorum.identity import Node, ReplicaKey, VoterSet
from fencepost.quorum.log import Batch, LeaderChange, OffsetAndEpoch, VotersRecord
from fencepost.quorum.messages import (
    AddVoter,
    AddVoterResponse,
    AnyRequest,
    AnyResponse,
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
    UpdateVoter,
    UpdateVoterResponse,
    Vote,
    VoteResponse,
)
from fencepost.quorum.roles.interface import (
    Disconnected,
    Distrusted,
    ElectionState,
    InstallSnapshot,
    Reply,
    ReplyWithBatches,
    ReplyWithSnapshot,
    RequestReceived,
    Resign,
    ResponseReceived,
    Send,
    StoreState,
    Timer,
    TimerFired,
    Truncate,
)
from fencepost.quorum.rules import Error
from fencepost.quorum.transitions import State

MOST = (1 << 63) - 1


def _unattached() -> Driven:
    return Driven(epochs=(1, 1, 2))


def _voted() -> Driven:
    return Driven(log=log_of(voters(1, 2, 3), 1, 1, 2), election=ElectionState(3, key(2)))


def _follows() -> Driven:
    driven = Driven(log=log_of(voters(1, 2, 3), 1, 1, 2), election=ElectionState(3, None, node(2)))
    driven.answered(FetchResponse(key(2), 3, node(2), Error.NONE, place(3, 2), 3))
    return driven


def _fetches_a_snapshot() -> Driven:
    driven = _follows()
    driven.answered(FetchResponse(key(2), 3, node(2), Error.NONE, place(3, 2), 3, snapshot=place(9, 3)))
    return driven


def _prospective() -> Driven:
    driven = _follows()
    driven.fires(Timer.FETCH)
    return driven


def _candidate() -> Driven:
    driven = _prospective()
    driven.gets_votes(2, pre_vote=True)
    return driven


def _leads() -> Driven:
    driven = _unattached()
    driven.is_elected(2)
    for number in (2, 3):
        driven.asked(Fetch(3, key(number), driven.replica.log.end))
    return driven


def _has_resigned() -> Driven:
    driven = _leads()
    driven(Resign())
    return driven


def _observes() -> Driven:
    return Driven(4, of=voters(1, 2, 3), bootstrap=("h2:1",), auto_join=True)


STATES = {
    State.UNATTACHED: _unattached,
    State.VOTED: _voted,
    State.FOLLOWER: _follows,
    State.PROSPECTIVE: _prospective,
    State.CANDIDATE: _candidate,
    State.LEADER: _leads,
    State.RESIGNED: _has_resigned,
    "fetches a snapshot": _fetches_a_snapshot,
    "observer": _observes,
}

counts = st.sampled_from([0, 1, 2, 3, 4, 5, 9, 1 << 31, 1 << 40, MOST - 1, MOST])
known = st.sampled_from([-1, 0, 3, 4, MOST])
epochs = st.sampled_from([0, 1, 2, 3, 4, 5, 1 << 20, 1 << 21, MOST - 1, MOST])
keys = st.sampled_from([*(key(number) for number in range(1, 6)), key(2, "lost"), ReplicaKey(-1, ""), key(1, "other")])
nodes = st.builds(Node, keys, st.sampled_from(["h1:1", "h2:1", "elsewhere:1", "", "h2", "h2:0", "h2:99999", "\0:1"]))
places = st.builds(OffsetAndEpoch, counts, epochs)
voter_sets = st.lists(st.builds(Node, keys, st.just("h:1")), max_size=4, unique_by=lambda each: each.key.host_id).map(
    VoterSet.of
)
controls = st.one_of(
    st.none(), st.builds(LeaderChange, keys, st.tuples(keys), st.just(())), st.builds(VotersRecord, voter_sets)
)
batches = st.lists(
    st.builds(Batch, counts, epochs, st.lists(st.just(b"x"), max_size=3).map(tuple), controls), max_size=3
).map(tuple)
maybe = st.booleans()
errors = st.sampled_from(list(Error))
heads = (keys, epochs, st.one_of(st.none(), nodes), errors)

requests: Any = st.one_of(
    st.builds(Vote, epochs, keys, keys, places, maybe),
    st.builds(BeginQuorum, epochs, nodes, keys),
    st.builds(EndQuorum, epochs, keys, st.lists(keys, max_size=40).map(tuple)),
    st.builds(Fetch, epochs, keys, places, known),
    st.builds(FetchSnapshot, epochs, keys, places, counts),
    st.builds(AddVoter, nodes, maybe),
    st.builds(RemoveVoter, keys, maybe),
    st.builds(UpdateVoter, epochs, nodes),
    st.builds(DescribeQuorum),
)
responses: Any = st.one_of(
    st.builds(VoteResponse, *heads, maybe, maybe),
    st.builds(BeginQuorumResponse, *heads),
    st.builds(EndQuorumResponse, *heads),
    st.builds(
        FetchResponse, *heads, places, known, batches, st.one_of(st.none(), places), st.one_of(st.none(), places)
    ),
    st.builds(FetchSnapshotResponse, *heads, places, counts, counts, st.sampled_from([b"", b"abc"])),
    st.builds(AddVoterResponse, *heads),
    st.builds(RemoveVoterResponse, *heads),
    st.builds(UpdateVoterResponse, *heads),
    st.builds(DescribeQuorumResponse, *heads),
)
happenings = st.one_of(
    requests,
    responses,
    # Plausible answers of the leader of epoch 3. Without them few sequences get far.
    st.builds(
        FetchResponse,
        st.just(key(2)),
        st.just(3),
        st.just(node(2)),
        st.just(Error.NONE),
        st.sampled_from([place(3, 2), place(4, 3)]),
        known,
        st.one_of(batches, st.builds(lambda control: (Batch(3, 3, (), control),), controls)),
        st.one_of(st.none(), places),
        st.one_of(st.none(), places),
    ),
    st.builds(
        FetchSnapshotResponse,
        st.just(key(2)),
        st.just(3),
        st.just(node(2)),
        st.just(Error.NONE),
        st.just(place(9, 3)),
        counts,
        st.sampled_from([0, 3]),
        st.sampled_from([b"", b"abc"]),
    ),
    st.sampled_from(list(Timer)).map(TimerFired),
    st.sampled_from(["h1:1", "h2:1", ""]).map(Disconnected),
)

_read_request = msgspec.msgpack.Decoder(AnyRequest).decode
_read_response = msgspec.msgpack.Decoder(AnyResponse).decode
_encode = msgspec.msgpack.encode


class Watched:
    """A replica, and facts about it that may never be undone."""

    def __init__(self, driven: Driven) -> None:
        self.driven = driven
        self.replica = driven.replica
        self.stored = self.replica._stored
        self.asked = 0
        self.answered: set[int] = set()

    def __call__(self, happening: Any) -> None:
        if isinstance(happening, AnyRequest):
            self.asked += 1
            event: Any = RequestReceived(1_000 + self.asked, _read_request(_encode(happening)))
        elif isinstance(happening, AnyResponse):
            event = ResponseReceived(_read_response(_encode(happening)))
        else:
            event = happening
        replica = self.replica
        epoch, committed = replica.epoch, replica.high_watermark
        known = [replica.log.end_of_epoch(each) for each in range(4)]
        for effect in self.driven(event):
            if isinstance(effect, StoreState):
                self._stores(effect.election)
            elif isinstance(effect, Send):
                assert _read_request(_encode(effect.request)) == effect.request
            elif isinstance(effect, Reply | ReplyWithBatches | ReplyWithSnapshot):
                assert _read_response(_encode(effect.response)) == effect.response
                assert effect.connection not in self.answered
                self.answered.add(effect.connection)
            elif isinstance(effect, Truncate):
                assert effect.end_offset >= committed
            elif isinstance(effect, InstallSnapshot):
                assert effect.snapshot.offset > committed
        assert epoch <= replica.epoch <= epoch + rules.EPOCHS_AHEAD
        assert committed <= replica.high_watermark <= replica.log.end_offset
        for before in known:
            if before.offset <= committed and replica.log.start_offset <= before.offset:
                assert replica.log.epoch_ahead_of(before.offset) == before.epoch

    def _stores(self, election: ElectionState) -> None:
        before, self.stored = self.stored, election
        assert election.epoch >= before.epoch
        if election.epoch == before.epoch:
            assert before.voted in (None, election.voted)
            assert before.leader is None or election.leader is None or election.leader.key == before.leader.key


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(list(STATES)), st.lists(happenings, max_size=6))
def test_no_message_ends_a_replica_or_undoes_what_it_has_promised(state: Any, happens: list[Any]) -> None:
    driven = STATES[state]()
    watched = Watched(driven)
    for each in happens:
        watched(each)


def test_the_states_are_what_they_are_called() -> None:
    for state, make in STATES.items():
        assert not isinstance(state, State) or make().replica.state is state


@pytest.mark.parametrize("state", STATES)
def test_another_leader_of_the_same_epoch_is_refused_wherever_one_is_known(state: Any) -> None:
    driven = STATES[state]()
    replica = driven.replica
    before = replica.epoch, replica.state, replica.leader
    answer = driven.asked(BeginQuorum(replica.epoch, node(3), replica.key))
    assert answer is not None
    if state in (State.UNATTACHED, State.VOTED, State.CANDIDATE):
        assert (replica.state, replica.leader) == (State.FOLLOWER, node(3))
    else:
        assert answer.error is (Error.NOT_VOTER if state == "observer" else Error.INVALID_REQUEST)
        assert (replica.epoch, replica.state, replica.leader) == before
        driven.answered(VoteResponse(key(3), replica.epoch, node(3), Error.NONE, False))
        if state != "observer":
            assert (replica.epoch, replica.state, replica.leader) == before
            assert len(driven.all(Distrusted)) == 2


def test_epochs_are_not_used_up_by_a_message() -> None:
    driven = _follows()
    far = 3 + rules.EPOCHS_AHEAD + 1
    asked = [
        Vote(far, key(3), key(1), place(9, 3)),
        Vote(far, key(3), key(1), place(9, 3), pre_vote=True),
        BeginQuorum(far, node(3), key(1)),
        EndQuorum(far, key(3), (key(1),)),
    ]
    assert [driven.asked(each).error for each in asked] == [Error.INVALID_REQUEST] * 4  # type: ignore[union-attr]
    driven.answered(FetchResponse(key(2), far, None, Error.FENCED_LEADER_EPOCH))
    assert (driven.replica.state, driven.replica.epoch) == (State.FOLLOWER, 3)
    driven.asked(Vote(far - 1, key(3), key(1), place(9, 3)))
    assert driven.replica.epoch == far - 1


def test_a_replica_takes_nothing_from_a_stranger_that_bears_its_name() -> None:
    driven = _follows()
    asked = [
        Vote(4, key(1), key(1), place(9, 3)),
        BeginQuorum(4, node(1), key(1)),
        EndQuorum(4, key(1), ()),
    ]
    assert [driven.asked(each).error for each in asked] == [Error.INVALID_REQUEST] * 3  # type: ignore[union-attr]
    assert (driven.replica.state, driven.replica.epoch) == (State.FOLLOWER, 3)
    leader = _leads()
    for each in (Fetch(3, key(1), place(3, 2)), FetchSnapshot(3, key(1), place(3, 2), 0)):
        assert leader.asked(each).error is Error.INVALID_REQUEST  # type: ignore[union-attr]
    assert key(1) not in leader.replica._leading.progress  # type: ignore[union-attr]


@pytest.mark.parametrize("endpoint", ["", "h2", "h2:0", "h2:65536", ":1", "h2:x", "h2:٣"])
def test_nobody_is_reached_at_what_is_no_endpoint(endpoint: str) -> None:
    driven = _leads()
    driven.asked(Fetch(3, key(4), driven.replica.log.end))
    asked = [AddVoter(Node(key(4), endpoint)), UpdateVoter(3, Node(key(2), endpoint))]
    assert [driven.asked(each).error for each in asked] == [Error.INVALID_REQUEST] * 2  # type: ignore[union-attr]
    follower = _follows()
    assert follower.asked(BeginQuorum(4, Node(key(3), endpoint), key(1))).error is Error.INVALID_REQUEST  # type: ignore[union-attr]
    follower.answered(FetchResponse(key(2), 4, Node(key(3), endpoint), Error.FENCED_LEADER_EPOCH))
    assert (follower.replica.epoch, follower.replica.leader) == (3, node(2))


@pytest.mark.parametrize(
    "sent",
    [
        (Batch(4, 3, (b"x",)),),
        (Batch(3, 1, (b"x",)),),
        (Batch(3, 4, (b"x",)),),
        (Batch(3, 3),),
        (Batch(3, 3, (b"x",), LeaderChange(key(2), (), ())),),
        (Batch(3, 3, control=VotersRecord(VoterSet())),),
        (Batch(3, 3, (b"x",)), Batch(5, 3, (b"x",))),
    ],
)
def test_batches_that_do_not_follow_are_not_taken(sent: tuple[Batch, ...]) -> None:
    driven = _follows()
    driven.clear()
    driven.answered(FetchResponse(key(2), 3, node(2), Error.NONE, place(3, 2), 3, sent))
    assert driven.replica.log.end == place(3, 2)
    assert len(driven.all(Distrusted)) == 1
    assert driven.sent(Fetch) == []  # it retries a little later
    driven.fires(Timer.RETRY)
    assert len(driven.sent(Fetch)) == 1


def test_a_leader_that_says_nothing_new_of_how_logs_part_is_not_asked_at_once_again() -> None:
    driven = _follows()
    driven.clear()
    driven.answered(FetchResponse(key(2), 3, node(2), Error.NONE, place(3, 2), 3, diverging=place(9, 2)))
    assert driven.sent(Fetch) == [] and len(driven.all(Distrusted)) == 1
    fetching = _fetches_a_snapshot()
    fetching.clear()
    fetching.answered(FetchSnapshotResponse(key(2), 3, node(2), Error.NONE, place(9, 3), 5, 0, b""))
    assert fetching.sent(FetchSnapshot) == [] and len(fetching.all(Distrusted)) == 1


def test_no_snapshot_takes_the_place_of_what_is_committed() -> None:
    driven = _follows()
    driven.clear()
    driven.answered(FetchResponse(key(2), 3, node(2), Error.NONE, place(3, 2), 3, snapshot=place(3, 3)))
    assert driven.sent(FetchSnapshot) == [] and len(driven.all(Distrusted)) == 1


@pytest.mark.parametrize(
    "bytes_of",
    [
        _encode(["Vote", -1, [1, "d"], [1, "d"], [0, 0], False]),
        _encode(["Vote", 1 << 63, [1, "d"], [1, "d"], [0, 0], False]),
        _encode(["Fetch", 1, [1 << 31, "d"], [0, 0], 0]),
        _encode(["Fetch", 1, [1, "d" * 65], [0, 0], 0]),
        _encode(["Fetch", 1, [1, "d"], [-1, 0], 0]),
        _encode(["AddVoter", [[1, "d"], "h" * 400], True]),
        _encode(["FetchSnapshot", 1, [1, "d"], [0, 0], -1]),
    ],
)
def test_numbers_and_names_that_nobody_has_are_no_frames(bytes_of: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        _read_request(bytes_of)


def test_voters_of_one_host_are_no_configuration() -> None:
    with pytest.raises(ValueError, match="voters are one of a host"):
        VoterSet((node(1), node(1, "other")))
    with pytest.raises(msgspec.ValidationError, match="voters are one of a host"):
        msgspec.msgpack.decode(_encode([[[[2, "d"], "h:1"], [[1, "d"], "h:1"]]]), type=VoterSet)
