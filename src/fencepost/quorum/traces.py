"""The trace of a replica, written by its host: the role's decisions, what became durable, and what was sent.

The role emits its decisions (:class:`fencepost.quorum.roles.interface.Trace`). The host calls a :class:`Tracer` when an
election state is durable, and before each message leaves. A message is traced only if it carries news that no earlier
message did: an epoch, a vote, a leader, or the offset from which a replica fetches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.quorum import messages
from fencepost.quorum.identity import ReplicaKey
from fencepost.quorum.roles.interface import ElectionState, Trace

SUBJECT = "quorum/"
"""The prefix of a quorum's subject in traces. The id of the cluster follows."""

Emit = Callable[[str, dict[str, Any]], None]
"""Takes an event: the action and its fields."""


class Tracer:
    """Writes the trace of one replica, from its start to its end."""

    def __init__(self, me: ReplicaKey, emit: Emit) -> None:
        self.me = me
        self._emit = emit
        self._spoken: set[tuple[int, bool, ReplicaKey | None]] = set()
        self._fetched: tuple[int, int, int] | None = None

    def did(self, effect: Trace) -> None:
        """Trace a decision of the role."""
        self._emit(effect.action, effect.fields)

    def stored(self, election: ElectionState) -> None:
        """An election state is durable."""
        voted = None if election.voted is None else str(election.voted)
        leader = None if election.leader is None else str(election.leader.key)
        self._emit("store_election", {"epoch": election.epoch, "voted": voted, "leader": leader})

    def sends(self, request: messages.Request) -> None:
        """A request is about to be sent."""
        if isinstance(request, messages.Fetch):
            self._speaks(request.epoch)
            end = request.epoch, request.log_end.offset, request.log_end.epoch
            if end != self._fetched:
                self._fetched = end
                self._emit("send_fetch_request", {"epoch": request.epoch, "end": list(end[1:])})
        elif isinstance(request, messages.Vote):
            self._speaks(request.epoch, votes=not request.pre_vote)
        elif isinstance(request, messages.BeginQuorum):
            self._speaks(request.epoch, leader=request.leader.key)
        elif isinstance(request, messages.EndQuorum | messages.FetchSnapshot | messages.UpdateVoter):
            self._speaks(request.epoch)

    def answers(self, response: messages.Response) -> None:
        """A response is about to be sent."""
        votes = isinstance(response, messages.VoteResponse) and response.granted and not response.pre_vote
        self._speaks(response.epoch, votes, None if response.leader is None else response.leader.key)

    def _speaks(self, epoch: int, votes: bool = False, leader: ReplicaKey | None = None) -> None:
        spoken = epoch, votes, leader
        if spoken not in self._spoken:
            self._spoken.add(spoken)
            self._emit("speak", {"epoch": epoch, "votes": votes, "leader": None if leader is None else str(leader)})
