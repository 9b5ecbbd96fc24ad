"""Replicas for tests, driven event by event."""

from __future__ import annotations

from typing import Any, TypeVar

from fencepost.quorum.identity import Node, ReplicaKey, VoterSet
from fencepost.quorum.log import Batch, LeaderChange, LogIndex, OffsetAndEpoch, Snapshot
from fencepost.quorum.messages import Request, Response, VoteResponse
from fencepost.quorum.roles.interface import (
    Effect,
    ElectionState,
    Event,
    QuorumSettings,
    Reply,
    ReplyWithBatches,
    ReplyWithSnapshot,
    RequestReceived,
    ResponseReceived,
    Send,
    Started,
    Stored,
    Timer,
    TimerFired,
)
from fencepost.quorum.roles.replica import Replica
from fencepost.quorum.rules import Error

E = TypeVar("E", bound=Effect)


def key(number: int, directory: str = "") -> ReplicaKey:
    return ReplicaKey(number, directory or f"d{number}")


def node(number: int, directory: str = "") -> Node:
    return Node(key(number, directory), f"h{number}:1")


def voters(*numbers: int) -> VoterSet:
    return VoterSet.of(map(node, numbers))


def place(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(offset, epoch)


def log_of(voter_set: VoterSet, *epochs: int) -> LogIndex:
    """A log that begins with a snapshot of the voters, and then has one record of each of these epochs."""
    log = LogIndex(Snapshot(place(0, 0), voter_set))
    for offset, epoch in enumerate(epochs):
        log.append(Batch(offset, epoch, (b"%d" % offset,)))
    return log


class Driven:
    """A replica and its effects since :meth:`clear`."""

    def __init__(
        self,
        me: int = 1,
        of: VoterSet | None = None,
        epochs: tuple[int, ...] = (),
        election: ElectionState | None = None,
        log: LogIndex | None = None,
        bootstrap: tuple[str, ...] = (),
        **settings: Any,
    ) -> None:
        self.replica = Replica(node(me), QuorumSettings(**settings), bootstrap)
        self.effects: list[Effect] = []
        self.connections = 0
        of = voters(1, 2, 3) if of is None else of
        self(Started(election or ElectionState(max(epochs, default=0)), log or log_of(of, *epochs)))

    def __call__(self, event: Event) -> list[Effect]:
        effects = self.replica.receive(event)
        self.effects += effects
        return effects

    def clear(self) -> None:
        self.effects.clear()

    def all(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def fires(self, timer: Timer) -> list[Effect]:
        return self(TimerFired(timer))

    def asked(self, request: Request) -> Response | None:
        """Receive a request. Gives its answer, or None if that is delayed."""
        self.connections += 1
        for effect in self(RequestReceived(self.connections, request)):
            if (
                isinstance(effect, Reply | ReplyWithBatches | ReplyWithSnapshot)
                and effect.connection == self.connections
            ):
                return effect.response
        return None

    def answered(self, response: Response) -> list[Effect]:
        return self(ResponseReceived(response))

    def sent(self, kind: type[Any]) -> list[Any]:
        """The requests of a kind sent since :meth:`clear`."""
        return [effect.request for effect in self.all(Send) if isinstance(effect.request, kind)]

    def stores(self) -> list[Effect]:
        """Report the whole log as durable."""
        return self(Stored(self.replica.log.end))

    def gets_votes(self, *numbers: int, pre_vote: bool = False) -> None:
        for number in numbers:
            self.answered(VoteResponse(key(number), self.replica.epoch, None, Error.NONE, True, pre_vote))

    def is_elected(self, *by: int) -> None:
        """Let its election timeout pass, grant it pre-votes and votes, and store its first records."""
        self.fires(Timer.ELECTION)
        self.gets_votes(*by, pre_vote=True)
        self.gets_votes(*by)
        self.stores()
        self.clear()


def leader_change(base_offset: int, epoch: int, leader: int) -> Batch:
    return Batch(base_offset, epoch, control=LeaderChange(key(leader), (), ()))
