"""Clusters of KRaft servers, and behaviours of theirs that are told step by step."""

from __future__ import annotations

from typing import Any, Self

from fencepost import Protocol
from fencepost.protocols.kraft.kip_853 import KRaft, voters
from fencepost.semantics import State, Stepper


def cluster(count: int, **constants: Any) -> KRaft:
    """So many voters, to which nothing happens but what ``constants`` allow; two epochs and one value."""
    return KRaft(**voters(count, **constants).constants)


class Behaviour:
    """A behaviour, told step by step."""

    def __init__(self, protocol: Protocol) -> None:
        self.stepper = Stepper(protocol)
        self.roots = {root.title: root for root in self.stepper.roots}
        (self.state,) = self.stepper.initial_states()

    def enabled(self, title: str) -> bool:
        return bool(self.stepper.outcomes(self.roots[title], self.state.ids))

    def take(self, *titles: str) -> Self:
        """Take these steps; each must be possible in one way only."""
        for title in titles:
            (outcome,) = self.stepper.outcomes(self.roots[title], self.state.ids)
            self.state = State(self.stepper.store, self.stepper.apply(self.state.ids, outcome))
        return self

    def disconnect(self, *pairs: tuple[str, str]) -> Self:
        """From now on these pairs are disconnected, and no others."""
        wanted = {frozenset(pair) for pair in pairs}
        for outcome in self.stepper.outcomes(self.roots["change_network_connectivity"], self.state.ids):
            (chosen,) = outcome.labels
            if {frozenset(s.name for s in pair) for pair in chosen} == wanted:
                self.state = State(self.stepper.store, self.stepper.apply(self.state.ids, outcome))
                return self
        raise AssertionError(f"{pairs} cannot be disconnected")

    def violated(self) -> set[str]:
        """The invariants that are false here."""
        invariants = self.stepper.of_kind("invariant")
        return {root.name for root in invariants if self.stepper.outcomes(root, self.state.ids)}

    def __getitem__(self, server: str) -> Any:
        """A server as it is now."""
        found: Any = self.state.variables()["server"]
        return found[next(s for s in found if s.name == server)]


def fetches(follower: str, leader: str, kind: str = "voter") -> list[str]:
    """A fetch, and its answer."""
    return [
        f"send_fetch_request(s={follower}, peer={leader})",
        f"accept_fetch_request_from_{kind}(s={leader}, peer={follower})",
        f"handle_fetch_response(s={follower}, peer={leader})",
    ]


def is_voted_for(candidate: str, *voters: str) -> list[str]:
    """The vote requests are answered, and the answers counted."""
    asked = [f"handle_vote_request(s={voter}, peer={candidate})" for voter in voters]
    return asked + [f"handle_vote_response(s={candidate}, peer={voter})" for voter in voters]


def is_elected(candidate: str, *voters: str) -> list[str]:
    return [f"send_request_vote(s={candidate})", *is_voted_for(candidate, *voters), f"become_leader(s={candidate})"]
