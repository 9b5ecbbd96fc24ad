"""KRaft with KIP-853, where servers ask to join and an administrator asks for removals."""

from typing import Any

import pytest
from cluster import Behaviour, fetches, is_elected

from fencepost import ModelValue, Options, check
from fencepost.protocols.kraft.join import KRaftJoin, Refusal
from fencepost.protocols.kraft.server import Role, ServerState

CONFIGURATIONS = {"join": (449_205, 48), "leave": (28_824, 35), "leave-after-election": (2_675_844, 53)}


@pytest.mark.parametrize("name", KRaftJoin.configurations)
def test_named_configurations(name: str) -> None:
    result = check(KRaftJoin.configured(name)).must_hold()
    assert (result.distinct_states, result.depth) == CONFIGURATIONS[name]


@pytest.mark.parametrize("name", KRaftJoin.configurations)
def test_plain_python_agrees(name: str) -> None:
    options = Options(workers=1, max_depth=7)
    plain, compiled = (check(KRaftJoin.configured(name), engine=e, options=options) for e in ("reference", "embedded"))
    assert plain.distinct_states == compiled.distinct_states > 50
    assert plain.actions == compiled.actions


def with_observer(**constants: Any) -> Behaviour:
    """Three voters, and a fourth server that follows the leader and has nothing yet."""
    protocol = KRaftJoin(min_cluster_size=2, **constants)
    return Behaviour(protocol).take(
        "start_new_server(s=s4, host=h1, leader=s1)",
        "reject_fetch_request(s=s1, peer=s4)",
        "send_fetch_request(s=s4, peer=s1)",
        "reject_fetch_request(s=s1, peer=s4)",
        "handle_fetch_response(s=s4, peer=s1)",
    )


JOIN = "send_join_request(s=s4, peer=s1)"
ACCEPT, REJECT = "accept_add_voter_request(s=s1, add_server=s4)", "reject_join_request(s=s1, add_server=s4)"


def caught_up(**constants: Any) -> Behaviour:
    behaviour = with_observer(**constants)
    assert not behaviour.enabled(JOIN), "it has not caught up"
    return behaviour.take(*fetches("s4", "s1", "observer"))


def said(behaviour: Behaviour, kind: str, source: str, dest: str) -> Any:
    """The refusal in the one answer that is on its way."""
    channel = behaviour.state.variables()["network"][kind, ModelValue(source), ModelValue(dest)]
    (answer,) = channel.in_flight
    return answer.refusal


def test_who_has_caught_up_asks_and_becomes_a_voter_when_it_has_the_command() -> None:
    behaviour = caught_up().take(JOIN)
    assert not behaviour.enabled(JOIN), "it waits for the answer"
    assert not behaviour.enabled(REJECT)
    behaviour.take(ACCEPT)
    assert said(behaviour, "JoinResponse", "s1", "s4") is None
    behaviour.take("handle_join_response(s=s4, peer=s1)")
    assert behaviour["s4"].role is Role.OBSERVER
    behaviour.take(*fetches("s4", "s1", "observer"))
    assert behaviour["s4"].role is Role.VOTER


def test_who_asks_again_is_told_that_it_is_a_voter() -> None:
    behaviour = caught_up().take(JOIN, ACCEPT, "handle_join_response(s=s4, peer=s1)", JOIN, REJECT)
    assert said(behaviour, "JoinResponse", "s1", "s4") is Refusal.ALREADY_MEMBER


def test_who_asks_during_a_change_is_told_to_wait() -> None:
    asked = ["send_remove_request(s=s1, remove_server=s3)", "accept_remove_voter_request(s=s1, remove_server=s3)"]
    behaviour = caught_up().take(*asked, JOIN)
    assert not behaviour.enabled(ACCEPT)
    behaviour.take(REJECT, "handle_join_response(s=s4, peer=s1)")
    assert behaviour["s4"].leader == ModelValue("s1") and behaviour["s4"].role is Role.OBSERVER
    behaviour.take(*fetches("s2", "s1"), *fetches("s2", "s1"), *fetches("s4", "s1", "observer")).take(
        *fetches("s4", "s1", "observer")
    )
    assert behaviour.take(JOIN).enabled(ACCEPT)


@pytest.mark.parametrize("told", [False, True])
def test_who_asks_one_that_leads_no_more_looks_for_another(told: bool) -> None:
    behaviour = caught_up().take(JOIN, "check_quorum_resign(s=s1)")
    if told:
        behaviour.take(*is_elected("s2", "s3"), "accept_begin_quorum_request(s=s1, peer=s2)")
    behaviour.take(REJECT)
    assert said(behaviour, "JoinResponse", "s1", "s4") is Refusal.NOT_LEADER
    behaviour.take("handle_join_response(s=s4, peer=s1)")
    now = behaviour["s4"]
    expected = (ServerState.FOLLOWER, ModelValue("s2"), 2) if told else (ServerState.UNATTACHED, None, 1)
    assert (now.state, now.leader, now.current_epoch) == expected
    assert not behaviour.violated()


def test_who_gives_its_leader_up_can_ask_another() -> None:
    behaviour = caught_up().take(JOIN, "observer_fetch_timeout(s=s4)")
    assert behaviour.state.variables()["join_asked"][ModelValue("s4")] is None


@pytest.mark.parametrize(
    ("steps", "asked", "refusal"),
    [
        ([], ("s2", "s3"), Refusal.NOT_LEADER),
        ([], ("s1", "s4"), Refusal.NOT_MEMBER),
        (is_elected("s2", "s3"), ("s2", "s3"), Refusal.LEADER_NOT_READY),
        ([JOIN, ACCEPT], ("s1", "s3"), Refusal.RECONFIG_IN_PROGRESS),
    ],
)
def test_a_removal_is_refused(steps: list[str], asked: tuple[str, str], refusal: Refusal) -> None:
    s, removed = asked
    behaviour = caught_up().take(*steps, f"send_remove_request(s={s}, remove_server={removed})")
    assert not behaviour.enabled(f"accept_remove_voter_request(s={s}, remove_server={removed})")
    behaviour.take(f"reject_remove_request(s={s})")
    assert said(behaviour, "RemoveResponse", s, "admin") is refusal


def test_the_administrator_asks_whom_it_is_told_to() -> None:
    behaviour = caught_up().take("send_remove_request(s=s2, remove_server=s3)")
    assert not behaviour.enabled("send_remove_request(s=s1, remove_server=s3)"), "it waits for the answer"
    behaviour.take("reject_remove_request(s=s2)", "handle_remove_response(s=s2)")
    assert not behaviour.enabled("send_remove_request(s=s2, remove_server=s3)")
    behaviour.take("send_remove_request(s=s1, remove_server=s1)", "accept_remove_voter_request(s=s1, remove_server=s1)")
    assert (behaviour["s1"].role, behaviour["s1"].state) == (Role.OBSERVER, ServerState.LEADER)
    assert said(behaviour, "RemoveResponse", "s1", "admin") is None


def test_the_administrator_gives_up_on_a_server_that_is_lost() -> None:
    behaviour = Behaviour(KRaftJoin(min_cluster_size=2, max_disconnected_pairs=3))
    behaviour.take("send_remove_request(s=s2, remove_server=s3)")
    assert not behaviour.enabled("administrator_gives_up(s=s2)")
    behaviour.take("crash_lose_state(s=s2)")
    assert not behaviour.enabled("reject_remove_request(s=s2)")
    behaviour.take("administrator_gives_up(s=s2)", "send_remove_request(s=s1, remove_server=s3)")
