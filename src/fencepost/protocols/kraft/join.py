"""KRaft with KIP-853, and with the requests by which servers join and leave.

In `kip_853` an administrator changes the voters directly: the leader does it or nothing happens. Here a server or the
administrator sends a request. A server that wants to vote fetches as an observer until it has caught up. Then it asks
its leader, or the administrator asks for it. To remove a voter, the administrator asks the server that it believes to
be the leader. The server answers at once, with success or a reason, without waiting for the command to be committed. If
it is not the leader, the sender asks the leader, if known. If it has to wait, it asks again later.

The published specification has no requests. These follow the text that came with it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Record,
    action,
    constant,
    leads_to,
    network,
    per_key,
    require,
    sometimes,
    state,
    step_invariant,
    weak,
)
from fencepost.language.declarations import Configuration
from fencepost.protocols.kraft.kip_853 import (
    ROUTES,
    KRaft,
    NonMemberFetch,
    Start,
    later_servers,
    liveness_is_tested,
    only_by_name,
    pairs_may_be_disconnected,
    servers,
    voters,
)
from fencepost.protocols.kraft.server import Error, Role, Server, ServerState

ADMIN = ModelValue("admin")
M = TypeVar("M", bound=Message)


class Refusal(enum.Enum):
    """Why a change of the voters is refused."""

    NOT_LEADER = "not the leader"
    ALREADY_MEMBER = "a voter already"
    NOT_MEMBER = "no voter"
    RECONFIG_IN_PROGRESS = "the last change is not committed"
    LEADER_NOT_READY = "nothing of this epoch is committed"


def join_answers(protocol: KRaftJoin) -> list[Refusal | None]:
    """The answers to a request to add a voter: None if it is granted, or one of the refusals."""
    return [None, *(refusal for refusal in Refusal if refusal is not Refusal.NOT_MEMBER)]


def remove_answers(protocol: KRaftJoin) -> list[Refusal | None]:
    """The answers to a request to remove a voter."""
    return [None, *(refusal for refusal in Refusal if refusal is not Refusal.ALREADY_MEMBER)]


class JoinRequest(Message):
    """Make me a voter."""


class JoinResponse(Message):
    """Success, or why not; and the epoch and leader, as in every answer."""

    refusal: Refusal | None
    epoch: int
    leader: ModelValue | None


class AddRequest(Message):
    """Make this server a voter: sent by the administrator."""

    server: ModelValue


class AddResponse(Message):
    """Success, or why not; and the leader, if known."""

    refusal: Refusal | None
    leader: ModelValue | None


class RemoveRequest(Message):
    """Remove this server from the voters."""

    server: ModelValue


class RemoveResponse(Message):
    """Success, or why not; and the leader, if known."""

    refusal: Refusal | None
    leader: ModelValue | None


Answer = JoinResponse | AddResponse | RemoveResponse


class Administrator(Record):
    """The administrator: the server that it believes to be the leader, and the server whose answer it waits for."""

    leader: ModelValue | None = None
    asked: ModelValue | None = None


AS_OFTEN_AS_IT_TAKES: dict[str, Any] = {"test_liveness": True, "requests_without_limit": True}


def observed(*, doc: str, start: Start = Start.OBSERVED, **constants: Any) -> Configuration:
    """Two voters and an observer that has caught up. Timeouts need reasons, and nobody sends requests unless
    ``constants`` say so.
    """
    nobody = ("max_join_requests", "max_add_requests", "max_remove_requests")
    of_three = {"max_cluster_size": 3, "max_spawned_servers": 3, "max_add_reconfigs": 1, "max_values_per_epoch": 0}
    reasons = {"timeouts_need_reasons": "test_liveness" not in constants}
    return voters(2, doc=doc, start=start, **{**dict.fromkeys(nobody, 0), **of_three, **reasons, **constants})


class KRaftJoin(KRaft):
    """Raft by fetching, where servers ask to become voters, and an administrator asks to add or remove them."""

    name: ClassVar[str] = "kraft-kip-853-join"

    max_join_requests: int = constant(2, "requests to become a voter")
    max_add_requests: int = constant(0, "requests of the administrator to make a server a voter")
    max_remove_requests: int = constant(2, "requests to remove a voter")
    requests_without_limit: bool = constant(False, "whether requests have no limit, where requests are allowed at all")
    catch_up_first: bool = constant(True, "whether a server must have caught up before anybody asks to make it a voter")

    network: Network = network(
        {
            **ROUTES,
            JoinRequest: (servers, servers),
            JoinResponse: (servers, servers),
            AddRequest: (ADMIN, servers),
            AddResponse: (servers, ADMIN),
            RemoveRequest: (ADMIN, servers),
            RemoveResponse: (servers, ADMIN),
        },
        remember=True,
        can_be_cut=pairs_may_be_disconnected,
    )
    join_asked: PerKey[ModelValue, ModelValue | None] = per_key(servers, None)
    administrator: Administrator = state(Administrator, held_by="admin")
    join_request_ctr: int = state(0)
    add_request_ctr: int = state(0)
    remove_request_ctr: int = state(0)

    configurations = {
        "join": voters(
            1,
            max_cluster_size=2,
            max_spawned_servers=2,
            max_add_reconfigs=1,
            max_epoch=1,
            max_values_per_epoch=0,
            max_join_requests=1,
            max_remove_requests=0,
            doc="a second voter joins the first, which leads for a while",
        ),
        "leave": voters(
            2,
            min_cluster_size=1,
            max_remove_reconfigs=1,
            max_epoch=1,
            max_values_per_epoch=0,
            doc="one of two voters is removed, possibly the leader",
        ),
        "leave-lost": voters(
            2,
            min_cluster_size=1,
            max_remove_reconfigs=1,
            max_crashes=1,
            max_disconnected_pairs=1,
            max_epoch=1,
            max_values_per_epoch=0,
            doc="one of two voters is removed, and one is lost, perhaps the one that was asked",
        ),
        "leave-after-election": voters(
            2,
            min_cluster_size=1,
            max_remove_reconfigs=1,
            max_values_per_epoch=0,
            doc="one of two voters is removed, while the administrator may not know the leader",
        ),
        "join-after-election": observed(
            start=Start.ELECTED,
            max_join_requests=2,
            doc="a server asks to join, and does not know yet that another leader was elected",
        ),
        "join-during-removal": observed(
            min_cluster_size=1,
            max_epoch=1,
            max_join_requests=2,
            max_remove_reconfigs=1,
            max_remove_requests=1,
            leaders_remove_themselves=False,
            non_member_fetch=NonMemberFetch.ACCEPT,
            doc="a server asks to join while a voter is removed, and asks again",
        ),
        "add-after-election": observed(
            start=Start.ELECTED,
            max_add_requests=2,
            doc="an administrator asks for a server to be added, and may ask a server that does not lead",
        ),
        "add-lost": observed(
            max_epoch=1,
            max_add_requests=1,
            max_crashes=1,
            max_disconnected_pairs=2,
            doc="an administrator asks for a server to be added, and a voter is lost, perhaps the one that was asked",
        ),
        "add-during-removal": observed(
            min_cluster_size=1,
            max_epoch=1,
            max_add_requests=2,
            max_remove_reconfigs=1,
            max_remove_requests=1,
            leaders_remove_themselves=False,
            non_member_fetch=NonMemberFetch.ACCEPT,
            doc="an administrator asks for a server to be added while a voter is removed, and asks again",
        ),
        "join-liveness": observed(
            max_join_requests=1, **AS_OFTEN_AS_IT_TAKES, doc="every server that asks to join becomes a voter"
        ),
        "join-liveness-after-election": observed(
            start=Start.ELECTED,
            max_join_requests=1,
            **AS_OFTEN_AS_IT_TAKES,
            doc="the same, where another leader was just elected",
        ),
        "add-liveness": observed(
            max_add_requests=1,
            **AS_OFTEN_AS_IT_TAKES,
            doc="every server that an administrator asks for becomes a voter",
        ),
    }

    # -- joining -------------------------------------------------------------------------------------------------------

    @action(s=servers, peer=servers)
    def send_join_request(self, s: ModelValue, peer: ModelValue) -> None:
        """An observer that has caught up, so that all its entries are committed, asks its leader to become a voter.

        It asks again after a refusal. It also asks again if the request was granted but it is still no voter: its
        command may have been cut off.
        """
        self.join_request_ctr = self._counted(self.join_request_ctr, self.max_join_requests)
        me = self.server[s]
        require(me.role is Role.OBSERVER and me.state is ServerState.FOLLOWER and me.leader == peer)
        require(self.join_asked[s] is None)
        require(self._has_caught_up(me))
        self.network.send(JoinRequest(), s, peer)
        self.join_asked[s] = peer

    def _counted(self, requests: int, limit: int) -> int:
        """The number of requests after one more, which must be within the limit. Without a limit it stays 0."""
        require(requests < limit)
        return requests if self.requests_without_limit else requests + 1

    def _has_caught_up(self, me: Server) -> bool:
        """Whether a server has entries, and all of them are committed as far as it knows."""
        return not self.catch_up_first or 0 < len(me.log) == me.hwm

    @action(s=servers, add_server=servers)
    def accept_add_voter_request(self, s: ModelValue, add_server: ModelValue) -> None:
        """A leader grants a request to add a voter, and answers at once."""
        require(s != add_server)
        request = self.network.receive(JoinRequest, to=s, source=add_server)
        super().accept_add_voter_request(s, add_server)
        me = self.server[s]
        self.network.reply(request, JoinResponse(None, me.current_epoch, me.leader))

    @action(s=servers, add_server=servers)
    def reject_join_request(self, s: ModelValue, add_server: ModelValue) -> None:
        """A server refuses a request to add a voter, and answers with the reason."""
        require(s != add_server)
        request = self.network.receive(JoinRequest, to=s, source=add_server)
        me = self.server[s]
        refusal = self._why_not_added(me, add_server)
        require(refusal is not None)
        self.network.reply(request, JoinResponse(refusal, me.current_epoch, me.leader))

    @action(s=servers, peer=servers)
    def handle_join_response(self, s: ModelValue, peer: ModelValue) -> None:
        """A server learns whether it is to be a voter. It goes on fetching until it finds the command in its log.

        If the server that it asked does not lead, it follows the leader named in the answer, or looks for one.
        """
        require(self.join_asked[s] == peer)
        response = self.network.receive(JoinResponse, to=s, source=peer).message
        self.join_asked[s] = None
        if response.refusal is not Refusal.NOT_LEADER:
            return
        me = self.server[s]
        self.handle_common_response(s, response.leader, response.epoch, Error.NOT_LEADER)
        if me.role is Role.OBSERVER and me.leader == peer:
            self._lose_leader(me)
            me.fetch_state.reset()

    @action(s=servers)
    def observer_fetch_timeout(self, s: ModelValue) -> None:
        """An observer gives up its leader, and stops waiting for the answer to its request."""
        super().observer_fetch_timeout(s)
        self.join_asked[s] = None

    # -- joining at the request of an administrator --------------------------------------------------------------------

    @action(s=servers, add_server=servers, by=ADMIN)
    def send_add_request(self, s: ModelValue, add_server: ModelValue) -> None:
        """The administrator sees that an observer has caught up, and asks the presumed leader to make it a voter."""
        self.add_request_ctr = self._counted(self.add_request_ctr, self.max_add_requests)
        joinee = self.server[add_server]
        require(joinee.role is Role.OBSERVER and self._has_caught_up(joinee))
        self._ask(s)
        self.network.send(AddRequest(add_server), ADMIN, s)

    @action(s=servers, add_server=servers)
    def accept_add_request(self, s: ModelValue, add_server: ModelValue) -> None:
        """A leader grants the administrator's request to add a voter, and answers at once."""
        request = self.network.receive(AddRequest, to=s, source=ADMIN, where=lambda asked: asked.server == add_server)
        super().accept_add_voter_request(s, add_server)
        self.network.reply(request, AddResponse(None, self.server[s].leader))

    @action(s=servers)
    def reject_add_request(self, s: ModelValue) -> None:
        """A server refuses the administrator's request to add a voter, and answers with the reason."""
        request = self.network.receive(AddRequest, to=s, source=ADMIN)
        me = self.server[s]
        require(me.state is not ServerState.DEAD_NO_STATE)
        refusal = self._why_not_added(me, request.message.server)
        require(refusal is not None)
        self.network.reply(request, AddResponse(refusal, me.leader))

    @action(s=servers, by=ADMIN)
    def handle_add_response(self, s: ModelValue) -> None:
        """The administrator learns whether a server is to be a voter, and perhaps the leader to ask next."""
        response = self.network.receive(AddResponse, to=ADMIN, source=s).message
        self.administrator.asked = None
        self.administrator.leader = response.leader

    # -- leaving -------------------------------------------------------------------------------------------------------

    @action(s=servers, remove_server=servers, by=ADMIN)
    def send_remove_request(self, s: ModelValue, remove_server: ModelValue) -> None:
        """The administrator asks the presumed leader, or else any voter, to remove a voter."""
        self.remove_request_ctr = self._counted(self.remove_request_ctr, self.max_remove_requests)
        require(self.server[remove_server].identity is not None)
        self._ask(s)
        self.network.send(RemoveRequest(remove_server), ADMIN, s)

    def _ask(self, s: ModelValue) -> None:
        """Send a request to the presumed leader, or else to any voter. The administrator waits for one answer at a
        time.
        """
        admin = self.administrator
        require(admin.asked is None)
        require(admin.leader == s if admin.leader is not None else self.server[s].role is Role.VOTER)
        admin.asked = s

    @action(s=servers, remove_server=servers)
    def accept_remove_voter_request(self, s: ModelValue, remove_server: ModelValue) -> None:
        """A leader grants a request to remove a voter, perhaps itself, and answers at once."""
        request = self.network.receive(
            RemoveRequest, to=s, source=ADMIN, where=lambda asked: asked.server == remove_server
        )
        super().accept_remove_voter_request(s, remove_server)
        self.network.reply(request, RemoveResponse(None, self.server[s].leader))

    @action(s=servers)
    def reject_remove_request(self, s: ModelValue) -> None:
        """A server refuses a request to remove a voter, and answers with the reason."""
        request = self.network.receive(RemoveRequest, to=s, source=ADMIN)
        me = self.server[s]
        require(me.state is not ServerState.DEAD_NO_STATE)
        refusal = self._why_not_removed(me, request.message.server)
        require(refusal is not None)
        self.network.reply(request, RemoveResponse(refusal, me.leader))

    @action(s=servers, by=ADMIN)
    def handle_remove_response(self, s: ModelValue) -> None:
        """The administrator learns whether a voter is being removed, and perhaps the leader to ask next."""
        response = self.network.receive(RemoveResponse, to=ADMIN, source=s).message
        self.administrator.asked = None
        self.administrator.leader = response.leader

    @action(s=servers, by=ADMIN)
    def administrator_gives_up(self, s: ModelValue) -> None:
        """The administrator stops waiting: the server that it asked is lost, and will never answer."""
        admin = self.administrator
        require(admin.asked == s and self.server[s].state is ServerState.DEAD_NO_STATE)
        require(
            not self.network.in_flight(AddResponse, s, ADMIN) and not self.network.in_flight(RemoveResponse, s, ADMIN)
        )
        admin.asked = admin.leader = None

    # -- refusals ------------------------------------------------------------------------------------------------------

    def _why_not_added(self, me: Server, add_server: ModelValue) -> Refusal | None:
        """The reason why a server refuses to add a voter, or None."""
        return self._why_not(me, Refusal.ALREADY_MEMBER if add_server in me.config.members else None)

    def _why_not_removed(self, me: Server, remove_server: ModelValue) -> Refusal | None:
        """The reason why a server refuses to remove a voter, or None."""
        return self._why_not(me, None if remove_server in me.config.members else Refusal.NOT_MEMBER)

    def _why_not(self, me: Server, of_members: Refusal | None) -> Refusal | None:
        """The reason why a server refuses a change of the voters, or None. ``of_members``: the reason in the
        configuration, if any.
        """
        if me.state is not ServerState.LEADER:
            return Refusal.NOT_LEADER
        if of_members is not None:
            return of_members
        if self.one_reconfig_at_a_time and not me.config.committed:
            return Refusal.RECONFIG_IN_PROGRESS
        if self.commit_before_reconfig and not me.has_committed_in_its_epoch:
            return Refusal.LEADER_NOT_READY
        return None

    # -- what must hold ------------------------------------------------------------------------------------------------

    @step_invariant(s=servers)
    def requests_are_answered(self, after: KRaftJoin, s: ModelValue) -> bool:
        """A server answers a request to change the voters at once and correctly: with success, or with a true
        reason.
        """
        joins = [(peer, True, JoinResponse, peer) for peer, _ in self._taken(after, JoinRequest, s, servers(self))]
        adds = [(asked.server, True, AddResponse, ADMIN) for _, asked in self._taken(after, AddRequest, s, (ADMIN,))]
        removes = [
            (asked.server, False, RemoveResponse, ADMIN) for _, asked in self._taken(after, RemoveRequest, s, (ADMIN,))
        ]
        return all(
            any(self._is_true(after, s, answer, changed, adds) for answer in self._answers(after, kind, s, dest))
            for changed, adds, kind, dest in (*joins, *adds, *removes)
        )

    def _taken(
        self, after: KRaftJoin, kind: type[M], s: ModelValue, sources: Iterable[ModelValue]
    ) -> list[tuple[ModelValue, M]]:
        """The requests that a server received in this step, with their senders. Requests lost with their connection do
        not count.
        """
        return [
            (source, request)
            for source in sources
            for request in self.network.in_flight(kind, source, s)
            if request not in after.network.in_flight(kind, source, s) and after.network.connected(source, s)
        ]

    def _answers(self, after: KRaftJoin, kind: type[Answer], s: ModelValue, dest: ModelValue) -> Sequence[Answer]:
        """The answers that may have been given in this step. If an equal one was in flight before, any answer in flight
        may be it.
        """
        was, now = self.network.in_flight(kind, s, dest), after.network.in_flight(kind, s, dest)
        return [answer for answer in now if answer not in was] or now

    def _is_true(self, after: KRaftJoin, s: ModelValue, answer: Answer, changed: ModelValue, adds: bool) -> bool:
        """Whether an answer is true: its reason holds, or it has none and the change is made."""
        me, now, refusal = self.server[s], after.server[s], answer.refusal
        if answer.leader != me.leader or (isinstance(answer, JoinResponse) and answer.epoch != me.current_epoch):
            return False
        leads, is_member = me.state is ServerState.LEADER, changed in me.config.members
        waits = self.one_reconfig_at_a_time and not me.config.committed
        unready = self.commit_before_reconfig and not me.has_committed_in_its_epoch
        if refusal is None:
            members = me.config.members | {changed} if adds else me.config.members - {changed}
            is_made = now.log[:-1] == me.log and now.config.members == members
            return leads and is_member is not adds and not waits and not unready and is_made
        reasons = {
            Refusal.NOT_LEADER: not leads,
            Refusal.ALREADY_MEMBER: leads and adds and is_member,
            Refusal.NOT_MEMBER: leads and not adds and not is_member,
            Refusal.RECONFIG_IN_PROGRESS: leads and waits,
            Refusal.LEADER_NOT_READY: leads and unready,
        }
        return reasons[refusal] and now.log == me.log

    @step_invariant(s=servers)
    def voters_change_on_request(self, after: KRaftJoin, s: ModelValue) -> bool:
        """A leader changes the voters only on request, and adds no server that has nothing of its log."""
        me, now = self.server[s], after.server[s]
        if me.state is not ServerState.LEADER or len(now.log) <= len(me.log) or now.config.members == me.config.members:
            return True
        joining = {peer for peer, _ in self._taken(after, JoinRequest, s, servers(self))}
        joining |= {asked.server for _, asked in self._taken(after, AddRequest, s, (ADMIN,))}
        leaving = {asked.server for _, asked in self._taken(after, RemoveRequest, s, (ADMIN,))}
        added = now.config.members - me.config.members
        return (
            added <= joining
            and me.config.members - now.config.members <= leaving
            and all(self.server[one].log[:1] == me.log[:1] for one in added)
        )

    @step_invariant
    def only_who_has_caught_up_joins(self, after: KRaftJoin) -> bool:
        """A server is proposed as a voter only if it is an observer, has entries, and all of them are committed."""
        asks = {s for s in servers(self) if self.join_asked[s] is None and after.join_asked[s] is not None}
        asked = after.administrator.asked
        if asked is not None and self.administrator.asked is None:
            asks |= {request.server for request in after.network.in_flight(AddRequest, ADMIN, asked)}
        return all(
            self.server[s].role is Role.OBSERVER and 0 < len(self.server[s].log) == self.server[s].hwm for s in asks
        )

    # -- what must happen ----------------------------------------------------------------------------------------------

    fairness = [
        *KRaft.fairness,
        weak(send_join_request, accept_add_voter_request, reject_join_request, handle_join_response),
        weak(accept_add_request, reject_add_request, handle_add_response, send_add_request),
        weak(accept_remove_voter_request, reject_remove_request, handle_remove_response),
    ]

    @leads_to(s=later_servers, when=liveness_is_tested)
    def who_asks_is_answered(self, s: ModelValue) -> tuple[bool, bool]:
        """A server that asks to become a voter does not wait forever."""
        waits = self.join_asked[s] is not None
        return waits, not waits

    @leads_to(when=liveness_is_tested)
    def the_administrator_is_answered(self) -> tuple[bool, bool]:
        """The administrator does not wait forever."""
        waits = self.administrator.asked is not None
        return waits, not waits

    @leads_to(s=later_servers, when=liveness_is_tested)
    def who_asks_gets_in(self, s: ModelValue) -> tuple[bool, bool]:
        """A server that asks to become a voter eventually is one."""
        return self.join_asked[s] is not None, self.server[s].role is Role.VOTER

    # -- what can be reached -------------------------------------------------------------------------------------------

    @sometimes(refusal=join_answers, when=only_by_name)
    def join_is_answered(self, refusal: Refusal | None) -> bool:
        """Every answer to a request to join is given."""
        return any(
            answer.refusal is refusal
            for s in servers(self)
            for peer in servers(self)
            if s != peer
            for answer in self.network.in_flight(JoinResponse, s, peer)
        )

    @sometimes(refusal=join_answers, when=only_by_name)
    def add_is_answered(self, refusal: Refusal | None) -> bool:
        """Every answer to a request of the administrator to add a voter is given."""
        return any(a.refusal is refusal for s in servers(self) for a in self.network.in_flight(AddResponse, s, ADMIN))

    @sometimes(refusal=remove_answers, when=only_by_name)
    def remove_is_answered(self, refusal: Refusal | None) -> bool:
        """Every answer to a request of the administrator to remove a voter is given."""
        return any(
            a.refusal is refusal for s in servers(self) for a in self.network.in_flight(RemoveResponse, s, ADMIN)
        )
