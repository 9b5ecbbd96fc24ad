"""A protocol whose actions branch, choose and call others, and the events of its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fencepost import Protocol, action, one_of, require, state
from fencepost.traces.validation.conformance import Conformance, Event
from fencepost.traces.validation.steps import Step


def tripled(number: int) -> int:
    """Called by name."""
    if number > 100:
        return 300
    return (
        number
        * 3
    )  # fmt: skip


class Branching(Protocol):
    """A number that moves."""

    name = "branching"
    number: int = state(0)

    @property
    def is_even(self) -> bool:
        return self.number % 2 == 0

    @action
    def moves(self) -> None:
        require(self.number < 50)
        by = one_of((1, 2, 3))
        if self.is_even:
            self.number += by
        else:
            self._goes_back(by)

    def _goes_back(self, by: int) -> None:
        require(self.number > 0)
        self.number -= by

    @action
    def triples(self) -> None:
        self.number = tripled(self.number)

    @action
    def rests(self) -> None:
        require(self.number == 7)


class BranchingConformance(Conformance):
    """Nodes record what they do."""

    name = "branching"
    protocol = Branching

    def constants(self) -> Mapping[str, Any]:
        return {}

    def bind(self, protocol: Protocol) -> None:
        """There are no constants."""

    def steps(self, event: Event) -> Iterable[Step]:
        by = event.parameters.get("by")
        yield Step(event.action, picks=(by,) if by else ())
