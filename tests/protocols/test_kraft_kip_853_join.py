"""KRaft with KIP-853, where servers ask to join and an administrator asks for removals."""

from typing import Any

import pytest
from campaigns import MANY_STATES, THOROUGH, campaign_if, engine_for
from protocols.cluster import Behaviour, fetches, is_elected

from fencepost import ModelValue, SearchOptions, action, check, require
from fencepost.protocols.kraft.join import (
    ADMIN,
    AddRequest,
    AddResponse,
    JoinRequest,
    JoinResponse,
    KRaftJoin,
    Refusal,
    RemoveRequest,
    RemoveResponse,
)
from fencepost.protocols.kraft.kip_853 import KRaft, servers
from fencepost.protocols.kraft.server import Command, Role, Server, ServerState

CONFIGURATIONS = {
    "join": (449_205, 48),
    "leave": (28_824, 35),
    "leave-lost": (32_670, 35),
    "leave-after-election": (2_675_844, 53),
    "join-after-election": (420_790, 48),
    "join-during-removal": (5_422_216, 53),
    "add-after-election": (400_267, 48),
    "add-lost": (20_142, 31),
    "add-during-removal": (2_649_380, 53),
    "join-liveness": (32_020, 34),
    "join-liveness-after-election": (1_549_963, 56),
    "add-liveness": (64_112, 37),
}
LARGE = {"join-during-removal", "add-during-removal", "join-liveness-after-election"}
LIVENESS = {"who_asks_is_answered", "the_administrator_is_answered", "who_asks_gets_in"}


def test_every_named_configuration_is_known() -> None:
    assert KRaftJoin.configurations.keys() == CONFIGURATIONS.keys()


@pytest.mark.parametrize(
    "name",
    campaign_if(
        lambda name: CONFIGURATIONS[name][0] > MANY_STATES,
        [name for name in CONFIGURATIONS if THOROUGH or name not in LARGE],
    ),
)
def test_named_configurations(name: str) -> None:
    result = check(KRaftJoin.configured(name), engine=engine_for(CONFIGURATIONS[name][0])).must_hold()
    assert (result.distinct_states, result.depth) == CONFIGURATIONS[name]
    assert LIVENESS <= set(result.judged) if "liveness" in name else not result.judged


# The answers in each configuration, and the largest number of steps to each.
ANSWERED: dict[str, tuple[int, dict[str, str]]] = {
    "join": (16, {"join": "None"}),
    "join-after-election": (12, {"join": "None NOT_LEADER LEADER_NOT_READY"}),
    "join-during-removal": (
        6,
        {
            "join": "None ALREADY_MEMBER RECONFIG_IN_PROGRESS",
            "remove": "None NOT_LEADER NOT_MEMBER RECONFIG_IN_PROGRESS",
        },
    ),
    "add-after-election": (12, {"add": "None NOT_LEADER LEADER_NOT_READY ALREADY_MEMBER"}),
    "add-during-removal": (
        6,
        {
            "add": "None NOT_LEADER ALREADY_MEMBER RECONFIG_IN_PROGRESS",
            "remove": "None NOT_LEADER NOT_MEMBER RECONFIG_IN_PROGRESS",
        },
    ),
    "leave-after-election": (12, {"remove": "None NOT_LEADER LEADER_NOT_READY RECONFIG_IN_PROGRESS"}),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_every_answer_is_given_somewhere(name: str) -> None:
    depth, answers = ANSWERED[name]
    wanted = {f"{kind}_is_answered(refusal={one})" for kind, some in answers.items() for one in some.split()}
    looked_for = [f"{kind}_is_answered" for kind in answers]
    result = check(KRaftJoin.configured(name), invariants=looked_for, options=SearchOptions(max_depth=depth))
    assert wanted <= {witness.name for witness in result.witnesses}


def test_between_them_they_give_every_answer_there_is() -> None:
    given = {(kind, one) for _, answers in ANSWERED.values() for kind, some in answers.items() for one in some.split()}
    names = {"None", *(refusal.name for refusal in Refusal)}
    assert {one for kind, one in given if kind == "join"} == names - {"NOT_MEMBER"}
    assert {one for kind, one in given if kind == "add"} == names - {"NOT_MEMBER"}
    assert {one for kind, one in given if kind == "remove"} == names - {"ALREADY_MEMBER"}


def test_every_action_of_requests_is_taken() -> None:
    results = [
        check(KRaftJoin.configured(name), options=SearchOptions(max_depth=depth))
        for name, depth in (("add-after-election", 12), ("join-after-election", 12), ("leave", 10))
    ]
    taken = {one.name for result in results for one in result.actions if one.taken}
    asking = {declared.name for declared in KRaftJoin.declared("action")} - {d.name for d in KRaft.declared("action")}
    assert asking - taken == {"administrator_gives_up"}, "another test takes that"


@pytest.mark.parametrize(
    "name",
    campaign_if(
        {"add-lost", "leave-lost", "leave-after-election"}.__contains__,
        [name for name in CONFIGURATIONS if name not in LARGE],
    ),
)
def test_plain_python_agrees(name: str) -> None:
    options = SearchOptions(workers=1, max_depth=7)
    plain, compiled = (check(KRaftJoin.configured(name), engine=e, options=options) for e in ("reference", "embedded"))
    assert plain.distinct_states == compiled.distinct_states > 50
    assert plain.actions == compiled.actions


def with_observer(**constants: Any) -> Behaviour:
    """Three voters, and a fourth server that follows the leader with an empty log."""
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
    """The refusal in the only answer in flight."""
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
    assert behaviour["s4"].role is Role.VOTER  # type: ignore[comparison-overlap]


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


def test_the_administrator_asks_for_a_server_that_has_caught_up() -> None:
    ask = "send_add_request(s=s2, add_server=s4)"
    behaviour = with_observer(max_add_requests=2)
    assert not behaviour.enabled(ask), "it has not caught up"
    behaviour.take(*fetches("s4", "s1", "observer"), ask)
    assert not behaviour.enabled("accept_add_request(s=s2, add_server=s4)")
    behaviour.take("reject_add_request(s=s2)")
    assert said(behaviour, "AddResponse", "s2", "admin") is Refusal.NOT_LEADER
    behaviour.take("handle_add_response(s=s2)")
    assert not behaviour.enabled(ask), "it knows the leader"
    behaviour.take("send_add_request(s=s1, add_server=s4)", "accept_add_request(s=s1, add_server=s4)")
    assert said(behaviour, "AddResponse", "s1", "admin") is None
    behaviour.take("handle_add_response(s=s1)", *fetches("s4", "s1", "observer"))
    assert behaviour["s4"].role is Role.VOTER


# -- the need for each property: a protocol without one rule ----------------------------------------------------------


def adds(me: Server, add_server: ModelValue) -> None:
    """Make a server a voter unconditionally."""
    me.append_configuration(Command.ADD_VOTER, me.config.members | {add_server}, add_server)


class AnybodyAdds(KRaftJoin):
    """A server that does not lead makes a server a voter."""

    def require_ready_to_reconfigure(self, me: Server) -> None:
        require(me.config.committed)

    def _why_not(self, me: Server, of_members: Refusal | None) -> Refusal | None:
        return None


class AddsEarly(KRaftJoin):
    """A leader does not wait until it has committed something of its epoch."""

    def require_ready_to_reconfigure(self, me: Server) -> None:
        require(me.state is ServerState.LEADER and me.config.committed)


class ChangesTwice(KRaftJoin):
    """A leader does not wait until the last change is committed."""

    def require_ready_to_reconfigure(self, me: Server) -> None:
        require(me.state is ServerState.LEADER and me.has_committed_in_its_epoch)


class AddsAgain(KRaftJoin):
    """A leader adds a voter again."""

    @action(s=servers, add_server=servers)
    def accept_add_voter_request(self, s: ModelValue, add_server: ModelValue) -> None:
        me = self.server[s]
        require(s != add_server and me.state is ServerState.LEADER and me.config.committed)
        request = self.network.receive(JoinRequest, to=s, source=add_server)
        adds(me, add_server)
        self.network.reply(request, JoinResponse(None, me.current_epoch, me.leader))


class AddsUnasked(KRaftJoin):
    """A leader makes a server a voter without a request."""

    @action(s=servers, add_server=servers)
    def accept_add_voter_request(self, s: ModelValue, add_server: ModelValue) -> None:
        super(KRaftJoin, self).accept_add_voter_request(s, add_server)


class RemovesUnasked(KRaftJoin):
    """A leader removes a voter without a request."""

    @action(s=servers, remove_server=servers)
    def accept_remove_voter_request(self, s: ModelValue, remove_server: ModelValue) -> None:
        super(KRaftJoin, self).accept_remove_voter_request(s, remove_server)


class SaysYes(KRaftJoin):
    """A server reports success and does nothing."""

    @action(s=servers, add_server=servers)
    def accept_add_voter_request(self, s: ModelValue, add_server: ModelValue) -> None:
        me = self.server[s]
        request = self.network.receive(JoinRequest, to=s, source=add_server)
        self.network.reply(request, JoinResponse(None, me.current_epoch, me.leader))


class AddsSilently(KRaftJoin):
    """A leader makes a server a voter without an answer."""

    @action(s=servers, add_server=servers)
    def accept_add_voter_request(self, s: ModelValue, add_server: ModelValue) -> None:
        self.network.receive(JoinRequest, to=s, source=add_server)
        super(KRaftJoin, self).accept_add_voter_request(s, add_server)


class RefusesSilently(KRaftJoin):
    """A server refuses without an answer."""

    @action(s=servers, add_server=servers)
    def reject_join_request(self, s: ModelValue, add_server: ModelValue) -> None:
        self.network.receive(JoinRequest, to=s, source=add_server)
        require(self._why_not_added(self.server[s], add_server) is not None)


class NeverRefuses(KRaftJoin):
    """A server that must refuse a join leaves the request in flight."""

    def _why_not(self, me: Server, of_members: Refusal | None) -> Refusal | None:
        return None


class NeverRefusesTheAdministrator(KRaftJoin):
    """A server that must refuse an administrator leaves the request in flight."""

    @action(s=servers)
    def reject_add_request(self, s: ModelValue) -> None:
        require(False)


class BlamesTheLeader(KRaftJoin):
    """Every refusal says that another one leads."""

    def _why_not(self, me: Server, of_members: Refusal | None) -> Refusal | None:
        return Refusal.NOT_LEADER if super()._why_not(me, of_members) is not None else None


class BlamesTheEpoch(KRaftJoin):
    """Every refusal says that nothing of the epoch is committed."""

    def _why_not(self, me: Server, of_members: Refusal | None) -> Refusal | None:
        return Refusal.LEADER_NOT_READY if super()._why_not(me, of_members) is not None else None


class BlamesTheVoters(KRaftJoin):
    """Every refusal says that the server is a voter already."""

    def _why_not(self, me: Server, of_members: Refusal | None) -> Refusal | None:
        return Refusal.ALREADY_MEMBER if super()._why_not(me, of_members) is not None else None


class BlamesTheLastChange(KRaftJoin):
    """Every refusal says that the last change is not committed."""

    def _why_not(self, me: Server, of_members: Refusal | None) -> Refusal | None:
        return Refusal.RECONFIG_IN_PROGRESS if super()._why_not(me, of_members) is not None else None


class NamesItself(KRaftJoin):
    """A server that refuses the administrator says that it leads."""

    @action(s=servers)
    def reject_add_request(self, s: ModelValue) -> None:
        request = self.network.receive(AddRequest, to=s, source=ADMIN)
        refusal = self._why_not_added(self.server[s], request.message.server)
        require(refusal is not None)
        self.network.reply(request, AddResponse(refusal, s))


class RemovesAnother(KRaftJoin):
    """A leader that is asked to remove a voter removes itself."""

    @action(s=servers, remove_server=servers)
    def accept_remove_voter_request(self, s: ModelValue, remove_server: ModelValue) -> None:
        request = self.network.receive(
            RemoveRequest, to=s, source=ADMIN, where=lambda asked: asked.server == remove_server
        )
        super(KRaftJoin, self).accept_remove_voter_request(s, s)
        self.network.reply(request, RemoveResponse(None, self.server[s].leader))


class AsksOnce(KRaftJoin):
    """A refused server does not ask again."""

    @action(s=servers, peer=servers)
    def send_join_request(self, s: ModelValue, peer: ModelValue) -> None:
        require(not any(self.network.is_known(JoinRequest(), s, other) for other in servers(self)))
        super().send_join_request(s, peer)


class StaysLeader(KRaftJoin):
    """A leader whose removal is committed goes on leading."""

    def _leave(self, me: Server) -> None:
        pass


ANSWERS = "requests_are_answered"


@pytest.mark.parametrize(
    ("kind", "configuration", "constants", "violated"),
    [
        (KRaftJoin, "join", {"catch_up_first": False}, "only_who_has_caught_up_joins"),
        (KRaftJoin, "join", {"catch_up_first": False}, "voters_change_on_request"),
        (AnybodyAdds, "join-after-election", {}, ANSWERS),
        (AddsEarly, "join-after-election", {}, ANSWERS),
        (ChangesTwice, "join-during-removal", {}, ANSWERS),
        (AddsAgain, "join-during-removal", {}, ANSWERS),
        (AddsUnasked, "join-after-election", {}, "voters_change_on_request"),
        (RemovesUnasked, "leave", {}, "voters_change_on_request"),
        (SaysYes, "join-after-election", {}, ANSWERS),
        (AddsSilently, "join-during-removal", {}, ANSWERS),
        (RefusesSilently, "join-after-election", {}, ANSWERS),
        (NeverRefuses, "join-liveness", {}, "who_asks_is_answered"),
        (NeverRefusesTheAdministrator, "add-liveness", {}, "the_administrator_is_answered"),
        (BlamesTheLeader, "join-during-removal", {}, ANSWERS),
        (BlamesTheEpoch, "join-during-removal", {}, ANSWERS),
        (BlamesTheVoters, "join-after-election", {}, ANSWERS),
        (BlamesTheLastChange, "join-after-election", {}, ANSWERS),
        (NamesItself, "add-after-election", {}, ANSWERS),
        (RemovesAnother, "leave", {}, ANSWERS),
        (AsksOnce, "join-liveness-after-election", {}, "who_asks_gets_in"),
        (StaysLeader, "leave", {}, "removed_leaders_step_down"),
    ],
)
def test_a_rule_left_out_is_found(
    kind: type[KRaftJoin], configuration: str, constants: dict[str, Any], violated: str
) -> None:
    protocol = kind(**{**KRaftJoin.configured(configuration).constants, **constants})
    assert check(protocol, invariants=[violated]).must_violate(violated)
