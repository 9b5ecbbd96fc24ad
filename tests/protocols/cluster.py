"""Clusters of KRaft servers, and behaviours that take given steps."""

from __future__ import annotations

from typing import Any, Self

from fencepost import Protocol
from fencepost.protocols.kraft.kip_853 import KRaft, voters
from fencepost.semantics import State, Stepper


def cluster(count: int, **constants: Any) -> KRaft:
    """A cluster of ``count`` voters, with two epochs, one value, and only the events that ``constants`` allow."""
    return KRaft(**voters(count, **constants).constants)


class Behaviour:
    """A behaviour that takes given steps."""

    def __init__(self, protocol: Protocol) -> None:
        self.stepper = Stepper(protocol)
        self.roots = {root.title: root for root in self.stepper.roots}
        (self.state,) = self.stepper.initial_states()

    def enabled(self, title: str) -> bool:
        return bool(self.stepper.outcomes(self.roots[title], self.state.ids))

    def take(self, *titles: str) -> Self:
        """Take these steps. Each must have exactly one outcome."""
        for title in titles:
            (outcome,) = self.stepper.outcomes(self.roots[title], self.state.ids)
            self.state = State(self.stepper.store, self.stepper.apply(self.state.ids, outcome))
        return self

    def disconnect(self, *pairs: tuple[str, str]) -> Self:
        """Disconnect exactly these pairs."""
        wanted = {frozenset(pair) for pair in pairs}
        for outcome in self.stepper.outcomes(self.roots["change_network_connectivity"], self.state.ids):
            (chosen,) = outcome.labels
            if {frozenset(s.name for s in pair) for pair in chosen} == wanted:
                self.state = State(self.stepper.store, self.stepper.apply(self.state.ids, outcome))
                return self
        raise AssertionError(f"{pairs} cannot be disconnected")

    def violated(self) -> set[str]:
        """The invariants that are false in this state."""
        invariants = self.stepper.of_kind("invariant")
        return {root.name for root in invariants if self.stepper.outcomes(root, self.state.ids)}

    def __getitem__(self, server: str) -> Any:
        """The state of a server."""
        found: Any = self.state.variables()["server"]
        return found[next(s for s in found if s.name == server)]


def fetches(follower: str, leader: str, kind: str = "voter") -> list[str]:
    """The steps of a fetch and its answer."""
    return [
        f"send_fetch_request(s={follower}, peer={leader})",
        f"accept_fetch_request_from_{kind}(s={leader}, peer={follower})",
        f"handle_fetch_response(s={follower}, peer={leader})",
    ]


def is_voted_for(candidate: str, *voters: str) -> list[str]:
    """The steps that answer vote requests and count the answers."""
    asked = [f"handle_vote_request(s={voter}, peer={candidate})" for voter in voters]
    return asked + [f"handle_vote_response(s={candidate}, peer={voter})" for voter in voters]


def is_elected(candidate: str, *voters: str) -> list[str]:
    return [f"send_request_vote(s={candidate})", *is_voted_for(candidate, *voters), f"become_leader(s={candidate})"]
