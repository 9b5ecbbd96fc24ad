"""KRaft with KIP-853, and with the requests by which servers join and leave.

In `kip_853` an administrator changes the voters by fiat: the leader does it or nothing happens. Here somebody has to ask. A server
that wants to vote fetches as an observer until it has caught up, and then asks its leader; an administrator who wants a voter
removed asks whom it takes for the leader. Whoever is asked answers at once, without waiting for the command to be committed:
it is done, or why not. Who is told that it has asked the wrong one asks the right one, if that is known; who is told to wait
asks again later.

None of this is in the published specification: it is what the text that came with it describes.
"""

from __future__ import annotations

import enum
from typing import ClassVar

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Record,
    action,
    constant,
    network,
    per_key,
    require,
    state,
)
from fencepost.protocols.kraft.kip_853 import ROUTES, KRaft, pairs_may_be_disconnected, servers, voters
from fencepost.protocols.kraft.server import Error, Role, Server, ServerState

ADMIN = ModelValue("admin")


class Refusal(enum.Enum):
    """Why the voters are not changed."""

    NOT_LEADER = "not the leader"
    ALREADY_MEMBER = "a voter already"
    NOT_MEMBER = "no voter"
    RECONFIG_IN_PROGRESS = "the last change is not committed"
    LEADER_NOT_READY = "nothing of this epoch is committed"


class JoinRequest(Message):
    """Make me a voter."""


class JoinResponse(Message):
    """It is done, or why not; and the epoch and leader, as in every answer."""

    refusal: Refusal | None
    epoch: int
    leader: ModelValue | None


class RemoveRequest(Message):
    """Make this server a voter no more."""

    server: ModelValue


class RemoveResponse(Message):
    """It is done, or why not; and who leads, if that is known."""

    refusal: Refusal | None
    leader: ModelValue | None


class Administrator(Record):
    """Whom the administrator takes for the leader, and whose answer it waits for."""

    leader: ModelValue | None = None
    asked: ModelValue | None = None


class KRaftJoin(KRaft):
    """Raft by fetching, where servers ask to become voters and an administrator asks for their removal."""

    name: ClassVar[str] = "kraft-kip-853-join"

    max_join_requests: int = constant(2, "requests to become a voter")
    max_remove_requests: int = constant(2, "requests to remove a voter")

    network: Network = network(
        {
            **ROUTES,
            JoinRequest: (servers, servers),
            JoinResponse: (servers, servers),
            RemoveRequest: (ADMIN, servers),
            RemoveResponse: (servers, ADMIN),
        },
        remember=True,
        can_be_cut=pairs_may_be_disconnected,
    )
    join_asked: PerKey[ModelValue, ModelValue | None] = per_key(servers, None)
    administrator: Administrator = state(Administrator, held_by="admin")
    join_request_ctr: int = state(0)
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
            doc="one of two voters is removed, be it the leader",
        ),
        "leave-after-election": voters(
            2,
            min_cluster_size=1,
            max_remove_reconfigs=1,
            max_values_per_epoch=0,
            doc="one of two voters is removed, while the administrator may not know who leads",
        ),
    }

    # -- joining --------------------------------------------------------------------------------------------------------

    @action(s=servers, peer=servers)
    def send_join_request(self, s: ModelValue, peer: ModelValue) -> None:
        """An observer that has caught up, so that all it has is committed, asks its leader to be made a voter.

        It asks again when it was refused, and when it was not and is no voter yet all the same: its command may have been cut off.
        """
        require(self.join_request_ctr < self.max_join_requests)
        me = self.server[s]
        require(me.role is Role.OBSERVER and me.state is ServerState.FOLLOWER and me.leader == peer)
        require(self.join_asked[s] is None)
        require(len(me.log) > 0 and me.hwm == len(me.log))
        self.network.send(JoinRequest(), s, peer)
        self.join_asked[s] = peer
        self.join_request_ctr += 1

    @action(s=servers, add_server=servers)
    def accept_add_voter_request(self, s: ModelValue, add_server: ModelValue) -> None:
        """A leader that is asked to makes a server a voter, and says so at once."""
        require(s != add_server)
        request = self.network.receive(JoinRequest, to=s, source=add_server)
        super().accept_add_voter_request(s, add_server)
        me = self.server[s]
        self.network.reply(request, JoinResponse(None, me.current_epoch, me.leader))

    @action(s=servers, add_server=servers)
    def reject_join_request(self, s: ModelValue, add_server: ModelValue) -> None:
        """A server that is asked to make another a voter, and can not, says why."""
        require(s != add_server)
        request = self.network.receive(JoinRequest, to=s, source=add_server)
        me = self.server[s]
        refusal = self._why_not(me, Refusal.ALREADY_MEMBER if add_server in me.config.members else None)
        require(refusal is not None)
        self.network.reply(request, JoinResponse(refusal, me.current_epoch, me.leader))

    @action(s=servers, peer=servers)
    def handle_join_response(self, s: ModelValue, peer: ModelValue) -> None:
        """A server learns whether it is to be a voter. It goes on fetching, until it finds the command in its log.

        If it has asked the wrong server, it follows the leader that it is told, or looks for one.
        """
        require(self.join_asked[s] == peer)
        response = self.network.receive(JoinResponse, to=s, source=peer).message
        self.join_asked[s] = None
        if response.refusal is not Refusal.NOT_LEADER:
            return
        me = self.server[s]
        self._handle_common_response(s, response.leader, response.epoch, Error.NOT_LEADER)
        if me.role is Role.OBSERVER and me.leader == peer:
            self._lose_leader(me)
            me.fetch_state.reset()

    @action(s=servers)
    def observer_fetch_timeout(self, s: ModelValue) -> None:
        """An observer gives its leader up, and does not wait for what it asked of it."""
        super().observer_fetch_timeout(s)
        self.join_asked[s] = None

    # -- leaving --------------------------------------------------------------------------------------------------------

    @action(s=servers, remove_server=servers, by=ADMIN)
    def send_remove_request(self, s: ModelValue, remove_server: ModelValue) -> None:
        """The administrator asks whom it takes for the leader, or else any voter, to remove a voter."""
        require(self.remove_request_ctr < self.max_remove_requests)
        admin = self.administrator
        require(admin.asked is None)
        require(admin.leader == s if admin.leader is not None else self.server[s].role is Role.VOTER)
        require(self.server[remove_server].identity is not None)
        self.network.send(RemoveRequest(remove_server), ADMIN, s)
        admin.asked = s
        self.remove_request_ctr += 1

    @action(s=servers, remove_server=servers)
    def accept_remove_voter_request(self, s: ModelValue, remove_server: ModelValue) -> None:
        """A leader that is asked to removes a voter, perhaps itself, and says so at once."""
        request = self.network.receive(RemoveRequest, to=s, source=ADMIN, where=lambda asked: asked.server == remove_server)
        super().accept_remove_voter_request(s, remove_server)
        self.network.reply(request, RemoveResponse(None, self.server[s].leader))

    @action(s=servers)
    def reject_remove_request(self, s: ModelValue) -> None:
        """A server that is asked to remove a voter, and can not, says why."""
        request = self.network.receive(RemoveRequest, to=s, source=ADMIN)
        me = self.server[s]
        require(me.state is not ServerState.DEAD_NO_STATE)
        is_member = request.message.server in me.config.members
        refusal = self._why_not(me, None if is_member else Refusal.NOT_MEMBER)
        require(refusal is not None)
        self.network.reply(request, RemoveResponse(refusal, me.leader))

    @action(s=servers, by=ADMIN)
    def handle_remove_response(self, s: ModelValue) -> None:
        """The administrator learns whether a voter is being removed, and perhaps whom to ask next."""
        response = self.network.receive(RemoveResponse, to=ADMIN, source=s).message
        self.administrator.asked = None
        self.administrator.leader = response.leader

    @action(s=servers, by=ADMIN)
    def administrator_gives_up(self, s: ModelValue) -> None:
        """Who was asked is lost, and will never answer."""
        admin = self.administrator
        require(admin.asked == s and self.server[s].state is ServerState.DEAD_NO_STATE)
        require(not self.network.in_flight(RemoveResponse, s, ADMIN))
        admin.asked = admin.leader = None

    def _why_not(self, me: Server, of_members: Refusal | None) -> Refusal | None:
        """Why a server does not change the voters, if it does not; ``of_members``: what speaks against it in the configuration."""
        if me.state is not ServerState.LEADER:
            return Refusal.NOT_LEADER
        if of_members is not None:
            return of_members
        if self.one_reconfig_at_a_time and not me.config.committed:
            return Refusal.RECONFIG_IN_PROGRESS
        if self.commit_before_reconfig and not me.has_committed_in_its_epoch:
            return Refusal.LEADER_NOT_READY
        return None
