"""KRaft with KIP-853 against TLC's results for ``kraft_kip_853.tla``, without its view."""

from typing import Any

import pytest
from campaigns import MANY_STATES, THOROUGH, campaign_if, engine_for
from protocols.cluster import Behaviour, cluster, fetches, is_elected, is_voted_for

from fencepost import ModelValue, PerKey, SearchOptions, SimulationOptions, action, check, per_key
from fencepost.protocols.kraft import server as kraft
from fencepost.protocols.kraft.kip_853 import KRaft, NonMemberFetch, Start, later_servers, reconfigurations, servers
from fencepost.protocols.kraft.server import (
    BESIDES,
    TRANSITIONS,
    Cause,
    Identity,
    Members,
    Role,
    Server,
    ServerState,
    transition,
)

# TLC's counts with one worker: voters at the beginning, other constants, distinct states, depth.
COUNTS: list[tuple[int, dict[str, Any], int, int]] = [
    (2, {"max_epoch": 1, "max_crashes": 1, "max_connectivity_changes": 2, "max_disconnected_pairs": 1}, 542, 19),
    (2, {"max_epoch": 1, "max_connectivity_changes": 2, "max_disconnected_pairs": 1}, 296, 19),
    (2, {"max_epoch": 1, "values": 2, "max_values_per_epoch": 2}, 452, 24),
    (3, {"max_epoch": 1}, 3_752, 31),
    (2, {}, 11_852, 35),
    (2, {"max_connectivity_changes": 1, "max_disconnected_pairs": 1}, 18_617, 35),
    (2, {"max_crashes": 1, "max_disconnected_pairs": 1}, 19_248, 35),
    (
        2,
        {
            "max_epoch": 1,
            "max_values_per_epoch": 0,
            "max_restarts": 1,
            "min_cluster_size": 1,
            "max_remove_reconfigs": 1,
        },
        57_078,
        38,
    ),
    (2, {"max_epoch": 1, "min_cluster_size": 1, "max_remove_reconfigs": 1}, 10_474, 37),
    (3, {"max_epoch": 1, "max_crashes": 1, "max_connectivity_changes": 1, "max_disconnected_pairs": 2}, 32_512, 32),
    (
        1,
        {
            "max_epoch": 1,
            "max_values_per_epoch": 0,
            "max_cluster_size": 2,
            "max_spawned_servers": 2,
            "max_add_reconfigs": 1,
        },
        208_850,
        46,
    ),
    (2, {"max_values_per_epoch": 0, "min_cluster_size": 1, "max_remove_reconfigs": 1}, 91_830, 48),
    (2, {"max_restarts": 1}, 232_925, 41),
    (3, {"test_liveness": True}, 660, 24),
]
if THOROUGH:
    COUNTS += [
        (2, {"max_values_per_epoch": 0, "max_restarts": 1, "max_crashes": 1, "max_disconnected_pairs": 1}, 36_568, 34),
    ]


@pytest.mark.parametrize(
    ("voters", "constants", "distinct", "depth"), campaign_if(lambda row: row[2] > MANY_STATES / 4, COUNTS)
)
def test_counts(voters: int, constants: dict[str, Any], distinct: int, depth: int) -> None:
    result = check(cluster(voters, **constants), engine=engine_for(distinct)).must_hold()
    assert (result.distinct_states, result.depth) == (distinct, depth)


@pytest.mark.parametrize(("voters", "constants", "distinct", "depth"), [row for row in COUNTS if row[2] < 600])
def test_counts_in_plain_python(voters: int, constants: dict[str, Any], distinct: int, depth: int) -> None:
    result = check(cluster(voters, **constants), engine="reference").must_hold()
    assert (result.distinct_states, result.depth) == (distinct, depth)


# The results of named configurations that complete.
CONFIGURATIONS = {
    "small": (11_852, 35),
    "restart": (232_925, 41),
    "removal": (918_056, 55),
    "undisturbed": (660, 24),
    "parted": (204, 20),
    "parted-again": (574, 32),
    "addition": (208_850, 46),
    "addition-awaited": (152_374, 46),
    "removed-follower": (26, 13),
    "disk-loss": (5_250_604, 51),
    "disk-loss-elections": (7_811_230, 65),
    "three-epochs": (391_004, 46),
    "restart-with-reasons": (30_762, 40),
    "removed-leader-restarts": (188_333, 47),
    "cuts": (6_128, 20),
    "cuts-pair-by-pair": (4_604, 21),
    "cuts-with-reasons": (13_247, 40),
    "lost-voter": (104, 14),
    "observers": (5_257, 39),
    "one-of-two-added": (175_185, 44),
    "one-of-three-removed": (25_252, 41),
    "replacement": (147_282, 46),
    "addition-after-election": (37_145, 43),
    "addition-while-cut": (17_696, 35),
    "removal-refused": (6, 6),
    "removed-leader-keeps-vote": (194_393, 47),
    "cuts-and-elections": (5_184, 27),
    "one-of-three-rejected": (852, 24),
}
LARGE = {"disk-loss", "disk-loss-elections"}
# Violated configurations: distinct states until then, the property, and the states of the shortest counterexample.
VIOLATED = {
    "removed-follower-ignored": (12, "reconfiguration_not_stuck", 3),
    "removed-follower-rejected": (42, "reconfiguration_not_stuck", 8),
    "early-reconfiguration": (7_888_777, "no_log_divergence", 15),
    "two-leaders": (6_639_266, "never_two_leaders_in_same_epoch", 16),
}
LARGE |= {"early-reconfiguration", "two-leaders"}
ENDLESS = {"published", "published-liveness", "large"}


def test_every_named_configuration_is_known() -> None:
    assert set(KRaft.configurations) == CONFIGURATIONS.keys() | VIOLATED.keys() | ENDLESS


@pytest.mark.parametrize(
    "name",
    campaign_if(
        lambda name: CONFIGURATIONS[name][0] > MANY_STATES / 2,
        [name for name in CONFIGURATIONS if THOROUGH or name not in LARGE],
    ),
)
def test_named_configurations(name: str) -> None:
    result = check(KRaft.configured(name), engine=engine_for(CONFIGURATIONS[name][0])).must_hold()
    assert (result.distinct_states, result.depth) == CONFIGURATIONS[name]


@pytest.mark.parametrize("name", [name for name in VIOLATED if THOROUGH or name not in LARGE])
def test_configurations_that_are_violated(name: str) -> None:
    distinct, violated, length = VIOLATED[name]
    assert KRaft.configurations[name].expect == violated
    result = check(KRaft.configured(name))
    assert (result.distinct_states, len(result.must_violate(violated).states)) == (distinct, length)


def test_a_server_with_a_new_disk_replaces_one_that_lost_its_own() -> None:
    result = check(KRaft.configured("disk-loss"), invariants=["lost_voters_are_replaced"])
    (witness,) = result.witnesses
    found = witness.trace.states[-1].variables()["server"].values()
    (lost,) = [one.identity for one in found if one.state is ServerState.DEAD_NO_STATE]
    (new,) = [one.identity for one in found if one.identity.disk_id == 1]
    assert (lost.host, lost.disk_id) == (new.host, 0)


def test_values_are_alike() -> None:
    protocol = cluster(2, max_epoch=1, values=2, max_values_per_epoch=2)
    assert check(protocol, options=SearchOptions(symmetry=True)).must_hold().distinct_states == 236, "of 452"


def test_hosts_are_alike() -> None:
    """Of hosts without an initial server, one gives as many states as two."""
    counts = [
        check(
            KRaft.configured("addition", hosts=hosts), options=SearchOptions(symmetry=symmetry, max_depth=9)
        ).distinct_states
        for hosts, symmetry in ((3, True), (4, True), (3, False))
    ]
    assert counts[0] == counts[1] < counts[2]


@pytest.mark.skipif(not THOROUGH, reason="every step is taken again in Python, with hosts and values exchanged")
def test_nothing_tells_hosts_or_values_apart() -> None:
    constants = {
        "max_epoch": 1,
        "values": 2,
        "max_values_per_epoch": 2,
        "max_cluster_size": 3,
        "max_spawned_servers": 3,
    }
    protocol = cluster(2, **constants, hosts=4, max_add_reconfigs=1)
    options = SearchOptions(workers=1, symmetry=True, checking=True, max_states=100)
    assert not check(protocol, options=options).violations


def test_every_action_is_taken() -> None:
    """All except three that other tests take: diverging logs, liveness, and changes pair by pair."""
    cut = {"max_crashes": 1, "max_connectivity_changes": 1, "max_disconnected_pairs": 1}
    added = {"max_cluster_size": 3, "max_spawned_servers": 3, "max_add_reconfigs": 1}
    protocols = [
        cluster(2, max_epoch=1, **cut),
        KRaft.configured("removal", max_values_per_epoch=0, max_restarts=1),
        cluster(2, max_epoch=1, max_values_per_epoch=0, **added),
    ]
    results = [check(protocol, options=SearchOptions(workers=1, max_depth=14)) for protocol in protocols]
    taken = {a.name for result in results for a in result.actions if a.taken}
    untaken = {declared.name for declared in KRaft.declared("action")} - taken
    assert untaken == {"diverging_fetch_request", "resend_begin_quorum_epoch_request", "change_connection"}


# -- single behaviours ------------------------------------------------------------------------------------------------


TWO_LEADERS = [
    "start_new_server(s=s4, host=h1, leader=s1)",
    "accept_add_voter_request(s=s1, add_server=s4)",
    *(step for _ in range(2) for s in ("s2", "s3") for step in fetches(s, "s1")),
    "accept_remove_voter_request(s=s1, remove_server=s3)",
    *fetches("s2", "s1"),
    "check_quorum_resign(s=s1)",
    "send_request_vote(s=s1)",
    *is_voted_for("s1", "s4"),
    "observer_fetch_timeout(s=s4)",
    "send_request_vote(s=s2)",
    *is_voted_for("s2", "s4"),
]


def test_an_observer_that_votes_twice_makes_two_leaders_in_the_published_configuration() -> None:
    behaviour = Behaviour(KRaft.configured("published")).take(*TWO_LEADERS, "become_leader(s=s1)")
    assert not behaviour.violated()
    assert behaviour.take("become_leader(s=s2)").violated() == {"never_two_leaders_in_same_epoch"}


def test_an_observer_that_keeps_its_vote_does_not() -> None:
    behaviour = Behaviour(KRaft.configured("published", observers_keep_votes=True))
    behaviour.take(*TWO_LEADERS[:-1])
    assert behaviour["s4"].voted_for == ModelValue("s1")
    behaviour.take(TWO_LEADERS[-1], "become_leader(s=s1)")
    assert not behaviour.enabled("become_leader(s=s2)")


REMOVES_THE_FIRST = "accept_remove_voter_request(s=s2, remove_server=s1)"
COMMITS_WHAT_WILL_BE_LOST = [
    "client_request(s=s2, v=v1)",
    *(step for _ in range(3) for step in fetches("s3", "s2")),
    *is_elected("s1", "s4", "s5"),
]
FOUR_VOTERS: dict[str, Any] = {"init_cluster_size": 4, "max_cluster_size": 5, "max_spawned_servers": 5, "max_epoch": 3}


def contested(**constants: Any) -> Behaviour:
    """The first leader has added a voter and told no one. The second server leads the next epoch."""
    return Behaviour(KRaft(**FOUR_VOTERS, **constants)).take(
        "start_new_server(s=s5, host=h1, leader=s1)",
        "accept_add_voter_request(s=s1, add_server=s5)",
        "send_request_vote(s=s2)",
        "handle_vote_request(s=s1, peer=s2)",
        *is_voted_for("s2", "s3", "s4"),
        "become_leader(s=s2)",
        "accept_begin_quorum_request(s=s3, peer=s2)",
        *fetches("s3", "s2"),
    )


def test_the_bug_of_the_raft_thesis() -> None:
    behaviour = contested(commit_before_reconfig=False)
    behaviour.take(REMOVES_THE_FIRST, *COMMITS_WHAT_WILL_BE_LOST)
    assert behaviour.violated() == {"leader_has_all_acked_values"}


def test_a_leader_that_commits_first_does_not_have_it() -> None:
    behaviour = contested()
    assert not behaviour.enabled(REMOVES_THE_FIRST)
    behaviour.take(
        *(step for s in ("s4",) for step in ["accept_begin_quorum_request(s=s4, peer=s2)", *fetches(s, "s2")])
    )
    behaviour.take("send_fetch_request(s=s3, peer=s2)", "accept_fetch_request_from_voter(s=s2, peer=s3)")
    behaviour.take("send_fetch_request(s=s4, peer=s2)", "accept_fetch_request_from_voter(s=s2, peer=s4)")
    assert behaviour.enabled(REMOVES_THE_FIRST)


def test_the_contested_beginning_is_what_leads_to_it() -> None:
    """Equal except for messages, and the contact of two servers."""
    short = Behaviour(KRaft(**FOUR_VOTERS, start=Start.CONTESTED, commit_before_reconfig=False))
    long = contested()
    for s in ("s1", "s2", "s3", "s4", "s5"):
        blank = type(long[s].fetch_state)()
        assert short[s] == long[s].replace(fetch_state=blank)
    for counter in ("add_reconfig_ctr", "disk_id_gen", "remove_reconfig_ctr", "restart_ctr"):
        assert short.state.variables()[counter] == long.state.variables()[counter]
    behaviour = short.take(REMOVES_THE_FIRST, *COMMITS_WHAT_WILL_BE_LOST)
    assert behaviour.violated() == {"leader_has_all_acked_values"}


def test_the_bug_of_the_raft_thesis_elects_two_leaders() -> None:
    """Two disjoint majorities, if a leader may resign and be elected again, although no observer votes twice."""
    behaviour = Behaviour(KRaft.configured("early-reconfiguration", leaders_resign=True))
    behaviour.take("send_request_vote(s=s1)", *is_voted_for("s1", "s4", "s5"))
    behaviour.take(REMOVES_THE_FIRST.replace("s1", "s4"), "handle_vote_request(s=s3, peer=s1)")
    behaviour.take("check_quorum_resign(s=s2)", *is_elected("s2", "s3"))
    assert not behaviour.violated()
    assert behaviour.take("become_leader(s=s1)").violated() == {"never_two_leaders_in_same_epoch"}


@pytest.mark.campaign
def test_random_walks_find_the_bug_of_the_raft_thesis() -> None:
    """Every seed shows it the same way."""
    result = check(KRaft.configured("early-reconfiguration"), engine="simulate", options=SimulationOptions(seed=1))
    assert [violation.name for violation in result.violations] == ["no_log_divergence"]


def test_one_reconfiguration_waits_for_another() -> None:
    steps = ["accept_remove_voter_request(s=s1, remove_server=s3)", "accept_add_voter_request(s=s1, add_server=s3)"]
    sizes = {"max_spawned_servers": 3, "min_cluster_size": 2}
    assert not Behaviour(KRaft(**sizes)).take(steps[0]).enabled(steps[1])
    assert Behaviour(KRaft(**sizes, one_reconfig_at_a_time=False)).take(steps[0]).enabled(steps[1])


@pytest.mark.parametrize(
    ("answer", "enabled"),
    [
        (NonMemberFetch.IGNORE, []),
        (NonMemberFetch.ACCEPT, ["accept_fetch_request_from_voter"]),
        (NonMemberFetch.REJECT, ["reject_fetch_request"]),
    ],
)
def test_a_fetch_by_a_voter_that_is_none(answer: NonMemberFetch, enabled: list[str]) -> None:
    behaviour = Behaviour(KRaft(min_cluster_size=2, max_spawned_servers=3, non_member_fetch=answer))
    behaviour.take("accept_remove_voter_request(s=s1, remove_server=s3)", "send_fetch_request(s=s3, peer=s1)")
    answers = ("accept_fetch_request_from_voter", "accept_fetch_request_from_observer", "reject_fetch_request")
    assert [a for a in (*answers, "diverging_fetch_request") if behaviour.enabled(f"{a}(s=s1, peer=s3)")] == enabled
    if enabled:
        behaviour.take(f"{enabled[0]}(s=s1, peer=s3)", "handle_fetch_response(s=s3, peer=s1)")
        assert (behaviour["s3"].role is Role.OBSERVER) == (answer is NonMemberFetch.ACCEPT)
        assert not behaviour.violated()


def test_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    behaviour = Behaviour(KRaft(min_cluster_size=2, max_spawned_servers=3, max_epoch=3))
    behaviour.take("accept_remove_voter_request(s=s1, remove_server=s1)", *fetches("s2", "s1"), *fetches("s3", "s1"))
    assert (behaviour["s1"].role, behaviour["s1"].state) == (Role.OBSERVER, ServerState.LEADER)
    behaviour.take("send_fetch_request(s=s2, peer=s1)", "accept_fetch_request_from_voter(s=s1, peer=s2)")
    assert behaviour["s1"].state is ServerState.LEADER, "it does not count itself"
    behaviour.take("send_fetch_request(s=s3, peer=s1)", "accept_fetch_request_from_voter(s=s1, peer=s3)")
    assert (behaviour["s1"].state, behaviour["s1"].leader, behaviour["s1"].hwm) == (ServerState.UNATTACHED, None, 0)


@pytest.mark.parametrize("keeps", [False, True])
def test_an_observer_that_leads_and_voted_for_itself_does_not_restart_as_published(keeps: bool) -> None:
    behaviour = Behaviour(KRaft(min_cluster_size=2, max_spawned_servers=3, observers_keep_votes=keeps))
    first = Behaviour(KRaft(min_cluster_size=2, max_spawned_servers=3))
    first.take("accept_remove_voter_request(s=s1, remove_server=s1)")
    assert first.enabled("restart_with_state(s=s1)"), "the first leader was not elected"
    behaviour.take(*is_elected("s2", "s3"), "accept_begin_quorum_request(s=s3, peer=s2)")
    behaviour.take(*fetches("s3", "s2"), *fetches("s3", "s2"), "accept_remove_voter_request(s=s2, remove_server=s2)")
    assert behaviour.enabled("restart_with_state(s=s2)") is keeps


def test_a_leader_that_was_removed_and_takes_a_write_never_leaves_as_published() -> None:
    """The leader is not the only voter left, yet its high watermark advances as if it were."""
    behaviour = Behaviour(cluster(2, min_cluster_size=1, max_remove_reconfigs=1))
    behaviour.take("accept_remove_voter_request(s=s1, remove_server=s1)", "client_request(s=s1, v=v1)")
    assert behaviour["s1"].hwm == len(behaviour["s1"].log) == 3
    assert len(behaviour["s2"].log) == 1, "no other server has any of it"
    behaviour.take(*fetches("s2", "s1"), *fetches("s2", "s1"), *fetches("s2", "s1"))
    assert (behaviour["s1"].state, behaviour["s1"].config.committed) == (ServerState.LEADER, False)
    assert not behaviour.violated()


@pytest.mark.parametrize("waits", [False, True])
def test_an_observer_may_hear_of_a_new_epoch_or_wait_until_it_votes(waits: bool) -> None:
    added = {"max_cluster_size": 3, "max_spawned_servers": 3, "max_add_reconfigs": 1}
    behaviour = Behaviour(cluster(2, **added, start=Start.OBSERVED, only_voters_begin_epochs=waits))
    behaviour.take("observer_fetch_timeout(s=s3)", "accept_add_voter_request(s=s1, add_server=s3)")
    accept = "accept_begin_quorum_request(s=s3, peer=s1)"
    assert behaviour.enabled(accept) is not waits
    behaviour.take("send_fetch_request(s=s3, peer=s1)", "accept_fetch_request_from_observer(s=s1, peer=s3)")
    behaviour.take("handle_fetch_response(s=s3, peer=s1)", *fetches("s3", "s1", "observer"))
    assert behaviour["s3"].role is Role.VOTER
    assert behaviour.enabled(accept)


@pytest.mark.parametrize(("answer", "distinct"), [("IGNORE", 276), ("ACCEPT", 1_316), ("REJECT", 852)])
def test_of_three_voters_a_removed_one_does_no_harm_without_elections(answer: str, distinct: int) -> None:
    constants = {
        "min_cluster_size": 2,
        "max_remove_reconfigs": 1,
        "max_values_per_epoch": 0,
        "leaders_remove_themselves": False,
    }
    liveness = {"test_liveness": True, "limit_epochs": True, "max_epoch": 1, "remaining_majority": True}
    result = check(cluster(3, **constants, **liveness, non_member_fetch=NonMemberFetch[answer])).must_hold()
    assert result.distinct_states == distinct


def test_the_last_configuration_is_looked_at() -> None:
    """The second configuration is the last possible one, and is not committed. The first one is."""
    protocol = KRaft.configured("removed-follower-ignored")
    assert list(reconfigurations(protocol)) == [1, 2]
    (violation,) = check(protocol, invariants=["reconfiguration_not_stuck"]).violations
    assert violation.trace is not None
    assert [step.action for step in violation.trace.steps] == ["accept_remove_voter_request", "send_fetch_request"]


def test_the_network_changes_pair_by_pair() -> None:
    behaviour = Behaviour(
        cluster(3, pair_by_pair=True, max_connectivity_changes=3, max_disconnected_pairs=2, max_crashes=1)
    )
    assert not behaviour.enabled("change_network_connectivity")
    cut = "change_connection(pair=⟨s1, s2⟩)"
    behaviour.take("send_fetch_request(s=s2, peer=s1)", cut)
    assert not behaviour.enabled("accept_fetch_request_from_voter(s=s1, peer=s2)")
    behaviour.take(cut, "crash_lose_state(s=s2)")
    assert not behaviour.enabled(cut), "a lost server stays cut off"
    assert not behaviour.enabled("change_connection(pair=⟨s1, s3⟩)"), "no third pair may be disconnected"


def test_pair_by_pair_as_many_states_are_reached_as_at_once() -> None:
    """With one pair both are the same."""
    constants = {"max_epoch": 1, "max_crashes": 1, "max_connectivity_changes": 2, "max_disconnected_pairs": 1}
    assert check(cluster(2, **constants, pair_by_pair=True)).must_hold().distinct_states == 542


def test_a_single_voter_is_never_elected() -> None:
    behaviour = Behaviour(cluster(1)).take("check_quorum_resign(s=s1)", "send_request_vote(s=s1)")
    assert behaviour["s1"].votes_recv == {ModelValue("s1")}
    assert not behaviour.enabled("become_leader(s=s1)")


@pytest.mark.parametrize("fence", [False, True])
def test_a_stale_vote_request_takes_an_unattached_server_back_as_published(fence: bool) -> None:
    names = ["only_transitions_of_the_table"]
    result = check(cluster(2, max_epoch=3, max_values_per_epoch=0, fence_stale_votes=fence), invariants=names)
    if fence:
        result.must_hold()
    else:
        trace = result.must_violate(*names)
        assert trace.steps[-1].action == "handle_vote_request"


def test_where_logs_have_parted_the_one_of_the_follower_is_cut_off() -> None:
    behaviour = Behaviour(cluster(3)).take("client_request(s=s1, v=v1)", *is_elected("s2", "s3"))
    assert len(behaviour["s1"].log) == 2
    behaviour.take(
        "handle_vote_request(s=s1, peer=s2)",
        "accept_begin_quorum_request(s=s1, peer=s2)",
        "send_fetch_request(s=s1, peer=s2)",
    )
    assert not behaviour.enabled("accept_fetch_request_from_voter(s=s2, peer=s1)")
    behaviour.take("diverging_fetch_request(s=s2, peer=s1)", "handle_fetch_response(s=s1, peer=s2)")
    assert behaviour["s1"].log == behaviour["s2"].log[:1]
    behaviour.take(*fetches("s1", "s2"))
    assert behaviour["s1"].log == behaviour["s2"].log


# -- the liveness configuration: no needless events -------------------------------------------------------------------


def lively(**constants: Any) -> Behaviour:
    cut = {"max_connectivity_changes": 3, "max_disconnected_pairs": 3}
    return Behaviour(cluster(3, test_liveness=True, **cut, **constants))


ISOLATED = (("s1", "s2"), ("s1", "s3"))


TEMPORAL = {"values_eventually_acked", "reconfiguration_not_stuck", "eventually_leader_elected"}


def test_what_must_happen_happens_while_nothing_is_disconnected() -> None:
    result = check(KRaft.configured("undisturbed")).must_hold()
    assert set(result.judged) == TEMPORAL


def test_without_fairness_it_need_not() -> None:
    class Idle(KRaft):
        fairness = []

    name = "values_eventually_acked"
    assert check(Idle(**of(2, test_liveness=True)), invariants=[name]).must_violate(name)


def test_where_liveness_is_not_tested_it_is_not_judged() -> None:
    assert not check(cluster(2, max_epoch=1)).judged


def test_a_follower_needs_a_reason_to_stand_for_election() -> None:
    behaviour = lively()
    assert not behaviour.enabled("send_request_vote(s=s2)")
    behaviour.take("send_fetch_request(s=s2, peer=s1)")
    assert not behaviour.enabled("send_request_vote(s=s2)"), "the leader can still get it"
    answered = lively().take("send_fetch_request(s=s2, peer=s1)", "accept_fetch_request_from_voter(s=s1, peer=s2)")
    assert not answered.enabled("send_request_vote(s=s2)"), "the answer can still come"
    for one in (behaviour, answered):
        assert one.disconnect(("s1", "s2")).enabled("send_request_vote(s=s2)")
        assert not one.enabled("send_request_vote(s=s3)")


def test_a_leader_resigns_when_too_few_can_fetch_from_it() -> None:
    behaviour = lively()
    assert not behaviour.enabled("check_quorum_resign(s=s1)")
    assert not behaviour.disconnect(("s1", "s2")).enabled("check_quorum_resign(s=s1)")
    assert behaviour.disconnect(*ISOLATED).enabled("check_quorum_resign(s=s1)")
    behaviour.take("check_quorum_resign(s=s1)")
    assert behaviour.enabled("send_request_vote(s=s1)"), "one that has resigned needs no other reason"


def test_a_candidate_tries_again_when_no_vote_can_come_and_epochs_have_no_limit() -> None:
    behaviour = lively().disconnect(*ISOLATED).take("check_quorum_resign(s=s1)")
    behaviour.take(*["send_request_vote(s=s1)"] * 3)
    assert behaviour["s1"].current_epoch == 4
    behaviour.disconnect(("s1", "s2"), ("s2", "s3")).take("send_request_vote(s=s1)")
    assert not behaviour.enabled("send_request_vote(s=s1)"), "its request is in flight"
    behaviour.take("handle_vote_request(s=s3, peer=s1)")
    assert not behaviour.enabled("send_request_vote(s=s1)"), "the vote is in flight"
    assert not behaviour.enabled("send_request_vote(s=s3)"), "the candidate with its vote can still win"


def test_a_leader_says_again_what_was_not_heard() -> None:
    behaviour = lively().disconnect(*ISOLATED).take("send_fetch_request(s=s2, peer=s1)", *is_elected("s2", "s3"))
    assert not behaviour.enabled("resend_begin_quorum_epoch_request(s=s2, peer=s1)"), "it is cut off"
    behaviour.disconnect()
    assert not behaviour.enabled("resend_begin_quorum_epoch_request(s=s2, peer=s3)"), "it was sent, and is in flight"
    behaviour.take("resend_begin_quorum_epoch_request(s=s2, peer=s1)", "accept_begin_quorum_request(s=s1, peer=s2)")
    assert not behaviour.enabled("resend_begin_quorum_epoch_request(s=s2, peer=s1)")
    assert not lively().enabled("resend_begin_quorum_epoch_request(s=s1, peer=s2)"), "it follows already"


def test_an_observer_needs_a_reason_to_give_its_leader_up() -> None:
    behaviour = lively(max_spawned_servers=4)
    behaviour.take("start_new_server(s=s4, host=h1, leader=s1)")
    assert not behaviour.enabled("observer_fetch_timeout(s=s4)")
    behaviour.take("send_fetch_request(s=s4, peer=s2)").disconnect(("s2", "s4"))
    assert behaviour.enabled("observer_fetch_timeout(s=s4)")


def test_voters_change_only_if_that_leaves_a_majority() -> None:
    behaviour = lively(
        min_cluster_size=2, max_cluster_size=4, max_spawned_servers=4, max_add_reconfigs=1, max_remove_reconfigs=1
    )
    behaviour.take("start_new_server(s=s4, host=h1, leader=s1)")
    add, remove = "accept_add_voter_request(s=s1, add_server=s4)", "accept_remove_voter_request(s=s1, remove_server=s3)"
    assert behaviour.enabled(add) and behaviour.enabled(remove)
    behaviour.disconnect(("s1", "s2"))
    assert behaviour.enabled(add) and not behaviour.enabled(remove)
    assert not behaviour.disconnect(("s1", "s2"), ("s1", "s4")).enabled(add)


# -- the need for each invariant: a protocol without one rule ---------------------------------------------------------


class Eager(Server):
    """A leader treats its whole log as committed."""

    def agreed_offset(self, me: ModelValue) -> int:
        return len(self.log)


class KeepsVotes(Server):
    """An elected server keeps its votes."""

    def become_leader(self, me: ModelValue) -> None:
        votes = self.votes_recv
        Server.become_leader(self, me)
        self.votes_recv = votes


class KeepsLeader(Server):
    """A server that loses its leader keeps it."""

    def become_unattached(self, epoch: int, cause: Cause = Cause.LATER_EPOCH, keep_vote: bool = False) -> None:
        self._change(cause, epoch)


class StillFollows(Server):
    """A candidate still knows a leader."""

    def become_candidate(self, me: ModelValue) -> None:
        leader = self.leader
        Server.become_candidate(self, me)
        self.leader = leader


class VotesAgain(Server):
    """A server forgets its vote."""

    def become_voted(self, candidate: ModelValue, epoch: int) -> None:
        self.current_epoch = epoch


class Elects(Server):
    """A candidate does not vote for itself."""

    def become_candidate(self, me: ModelValue) -> None:
        Server.become_candidate(self, me)
        self.voted_for = None


class Deaf(Server):
    """A configuration command is appended and not applied."""

    def append_configuration(self, command: Any, members: Members, changed: ModelValue) -> None:
        before = self.config.members
        Server.append_configuration(self, command, members, changed)
        self.config.members = before
        self.track(before)


class Resigns(Server):
    """A leader that resigns follows itself."""

    def become_resigned(self) -> None:
        self.state = ServerState.FOLLOWER


class StaysLeader(KRaft):
    """A leader whose removal is committed goes on leading."""

    def _leave(self, me: Server) -> None:
        pass


def test_a_removed_leader_that_stays_is_found() -> None:
    constants = dict(KRaft.configured("removal").constants)
    check(StaysLeader(**constants)).must_violate("removed_leaders_step_down")


class ForgetsWriters(KRaft):
    """A former leader does not fail pending writes."""

    def fail_pending_writes(self, me: Server) -> None:
        for v in self.values:
            me.pending_ack[v] = False


class SameDisks(KRaft):
    """New disks have the ids of the first ones."""

    @action(s=later_servers, host=KRaft.hosts, leader=servers)
    def start_new_server(self, s: ModelValue, host: ModelValue, leader: ModelValue) -> None:
        super().start_new_server(s, host, leader)
        me = self.server[s]
        me.identity = Identity(host, 0)


class KeepsLogs(KRaft):
    """A server that loses its state keeps its log."""

    @action(s=servers)
    def crash_lose_state(self, s: ModelValue) -> None:
        log = self.server[s].log
        super().crash_lose_state(s)
        self.server[s].log = log


@pytest.mark.parametrize(
    ("kind", "configuration", "violated"),
    [
        (KeepsLogs, "lost-voter", "lost_servers_have_nothing"),
        (ForgetsWriters, "small", "writers_wait_or_are_told"),
        (SameDisks, "observers", "identities_differ"),
    ],
)
def test_what_writers_and_disks_are_promised(kind: type[KRaft], configuration: str, violated: str) -> None:
    check(kind(**KRaft.configured(configuration).constants)).must_violate(violated)


def with_servers(kind: type[Server], **constants: Any) -> KRaft:
    class Broken(KRaft):
        server: PerKey[ModelValue, Server] = per_key(servers, kind)

    return Broken(**constants)


def of(count: int, **constants: Any) -> dict[str, Any]:
    return dict(cluster(count, **constants).constants)


@pytest.mark.parametrize(
    ("kind", "constants", "violated"),
    [
        (Eager, of(3), "no_log_divergence"),
        (Eager, of(3), "leader_has_all_acked_values"),
        (Eager, of(3), "acked_value_not_lost"),
        (KeepsVotes, of(2), "valid_votes_recv"),
        (KeepsLeader, of(2), "states_match_roles"),
        (StillFollows, of(3), "no_illegal_state"),
        (VotesAgain, of(3), "never_two_leaders_in_same_epoch"),
        (Elects, of(2), "candidates_vote_for_themselves"),
        (Deaf, of(2, min_cluster_size=1, max_remove_reconfigs=1), "roles_match_logs"),
        (Resigns, of(2), "only_transitions_of_the_table"),
    ],
)
def test_a_rule_left_out_is_found(kind: type[Server], constants: dict[str, Any], violated: str) -> None:
    options = SearchOptions(workers=1, max_states=400_000)
    assert check(with_servers(kind, **constants), invariants=[violated], options=options).must_violate(violated)


# -- the table of transitions --------------------------------------------------------------------------------------

# Kafka's table in the text of the specification, line by line: the states before, the state after, the cause, and the
# change of epoch. The last line, from two states, is not in that text.
KAFKA = """
unattached resigned | unattached | LATER_EPOCH  | >
unattached resigned | voted      | VOTE_GIVEN   | =
unattached resigned | candidate  | TIMED_OUT    | +1
unattached resigned | follower   | LEADER_FOUND | >=
voted               | unattached | LATER_EPOCH  | >
voted               | candidate  | TIMED_OUT    | +1
candidate           | unattached | LATER_EPOCH  | >
candidate           | candidate  | TIMED_OUT    | +1
candidate           | leader     | VOTES_WON    | =
leader              | unattached | LATER_EPOCH  | >
leader              | resigned   | RESIGNS      | =
follower            | unattached | LATER_EPOCH  | >
follower            | candidate  | TIMED_OUT    | +1
follower            | follower   | LEADER_FOUND | >
voted candidate     | follower   | LEADER_FOUND | =
"""
LATER_EPOCHS = {">": {4, 5}, "=": {3}, "+1": {4}, ">=": {3, 4, 5}}


def test_the_table_is_that_of_kafka() -> None:
    rows = [[part.strip() for part in line.split("|")] for line in KAFKA.strip().splitlines()]
    wanted = {
        (ServerState(state), Cause[cause], later): ServerState(after)
        for states, after, cause, epochs in rows
        for state in states.split()
        for later in LATER_EPOCHS[epochs]
    }
    taken = {
        (state, cause, later): transition(state, cause, 3, later)
        for state in ServerState
        for cause in Cause
        for later in range(1, 6)
        if cause not in (Cause.LEADER_LOST, Cause.STALE_VOTE_GIVEN)
    }
    assert {key: after for key, after in taken.items() if after is not ServerState.ILLEGAL_STATE} == wanted


# In the original a server votes only while it is unattached, and not once it has resigned.
NEVER_TAKEN = {(ServerState.RESIGNED, Cause.VOTE_GIVEN)}
DRIVEN: list[tuple[int, dict[str, Any]]] = [
    (3, {"max_epoch": 1}),
    (2, {"max_epoch": 3, "max_values_per_epoch": 0, "max_restarts": 1}),
    (
        2,
        {
            "max_cluster_size": 3,
            "max_spawned_servers": 3,
            "min_cluster_size": 1,
            "max_remove_reconfigs": 1,
            "max_add_reconfigs": 1,
            "max_values_per_epoch": 0,
        },
    ),
]


def test_the_table_drives_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers take each of its rows, and no transition outside both tables."""
    asked: set[tuple[ServerState, Cause]] = set()
    illegal: set[tuple[ServerState | None, Cause]] = set()

    def recorded(state: ServerState | None, cause: Cause, epoch: int, later: int) -> ServerState:
        after = transition(state, cause, epoch, later)
        if state is None or after is ServerState.ILLEGAL_STATE:
            illegal.add((state, cause))
        else:
            asked.add((state, cause))
        return after

    monkeypatch.setattr(kraft, "transition", recorded)
    for voters, constants in DRIVEN:
        check(cluster(voters, **constants), max_states=400_000, invariants=["no_illegal_state"])
    rows = {(state, cause) for table in (TRANSITIONS, BESIDES) for state, causes in table.items() for cause in causes}
    assert asked == rows - NEVER_TAKEN
    # Requested but missing: a server then follows a leader of a later epoch in two steps.
    assert illegal <= {
        (state, Cause.LEADER_FOUND) for state in (ServerState.VOTED, ServerState.CANDIDATE, ServerState.LEADER)
    }


@pytest.mark.parametrize(
    ("state", "cause", "after"),
    [
        (ServerState.FOLLOWER, Cause.TIMED_OUT, None),
        (ServerState.CANDIDATE, Cause.VOTES_WON, None),
        (ServerState.VOTED, Cause.LEADER_FOUND, None),
        (ServerState.LEADER, Cause.LATER_EPOCH, None),
        (ServerState.UNATTACHED, Cause.VOTE_GIVEN, None),
        (ServerState.CANDIDATE, Cause.VOTES_WON, ServerState.RESIGNED),
        (ServerState.FOLLOWER, Cause.LATER_EPOCH, ServerState.FOLLOWER),
    ],
)
def test_a_fault_in_the_table_is_found(
    monkeypatch: pytest.MonkeyPatch, state: ServerState, cause: Cause, after: ServerState | None
) -> None:
    """A missing row gives an illegal state. A wrong row changes the reachable states."""
    rows = dict(TRANSITIONS[state])
    _, epochs = rows.pop(cause)
    if after is not None:
        rows[cause] = after, epochs
    monkeypatch.setitem(TRANSITIONS, state, rows)
    result = check(cluster(2))
    if after is None:
        result.must_violate("no_illegal_state")
    else:
        assert result.distinct_states != CONFIGURATIONS["small"][0]


@pytest.mark.parametrize(("voters", "constants", "distinct", "depth"), [row for row in COUNTS if row[2] < 12_000])
def test_servers_change_as_the_table_has_it(voters: int, constants: dict[str, Any], distinct: int, depth: int) -> None:
    result = check(cluster(voters, **constants), invariants=["only_transitions_of_the_table"]).must_hold()
    assert result.distinct_states == distinct


@pytest.mark.parametrize(
    "constants",
    [
        {"init_cluster_size": 5},
        {"min_cluster_size": 4},
        {"max_cluster_size": 2},
        {"max_spawned_servers": 2},
        {"start": Start.CONTESTED},
        {"start": Start.OBSERVED, "max_spawned_servers": 3},
        {"start": Start.ELECTED, "max_epoch": 1},
    ],
)
def test_what_can_not_be_is_not_checked(constants: dict[str, Any]) -> None:
    assert check(KRaft(**constants)).exit_code == 10
