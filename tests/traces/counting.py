"""A small system, its protocol and its conformance: leaders append to a log of numbers, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fencepost import ModelValue, PerKey, Protocol, action, constant, model_values, one_of, per_key, require, state
from fencepost.traces.validation.conformance import Conformance, Event, NotCovered
from fencepost.traces.validation.steps import Step


class Counting(Protocol):
    """Two writers share a counter. Each may write only the successor of what it has seen."""

    name = "counting"
    writers: tuple[ModelValue, ...] = model_values("w", 2, "who writes")
    limit: int = constant(3, "how far they count")
    counter: int = state(0)
    seen: PerKey[ModelValue, int] = per_key(lambda protocol: protocol.writers, 0)

    @action(w=writers)
    def reads(self, w: ModelValue) -> None:
        require(self.seen[w] != self.counter)
        self.seen[w] = self.counter

    @action(w=writers)
    def writes(self, w: ModelValue) -> None:
        require(self.counter < self.limit)
        value = one_of((self.seen[w] + 1,))
        require(value == self.counter + 1)
        self.counter = self.seen[w] = value


class CountingConformance(Conformance):
    """Writers are nodes. They record what they read and wrote; the number is its version."""

    name = "counting"
    protocol = Counting

    def constants(self) -> Mapping[str, Any]:
        nodes = sorted({event.node for event in self.events if event.subject is not None})
        self.nodes = {node: place for place, node in enumerate(nodes)}
        return {"writers": max(2, len(nodes)), "limit": 100_000}

    def bind(self, protocol: Protocol) -> None:
        assert isinstance(protocol, Counting)
        self.w = {node: protocol.writers[place] for node, place in self.nodes.items()}

    def names(self) -> Mapping[str, str]:
        return {str(value): node for node, value in self.w.items()}

    def steps(self, event: Event) -> Iterable[Step]:
        if event.action == "reads":
            yield Step("reads", (("w", self.w[event.node]),), reads=("counter", event.parameters["value"]))
        elif event.action == "writes":
            value = event.parameters["value"]
            yield Step("writes", (("w", self.w[event.node]),), (value,), writes=("counter", value))
        elif event.action == "cheats":
            raise NotCovered("writers that cheat; the protocol has none")
