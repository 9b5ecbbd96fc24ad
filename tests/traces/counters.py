"""Counters that exchange their counts and write them to a versioned register: a protocol and its conformance, unrelated
to the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    Record,
    action,
    model_values,
    network,
    one_of,
    per_key,
    require,
    state,
)
from fencepost.traces.validation.conformance import Conformance, Event, NotCovered
from fencepost.traces.validation.steps import Step, like


class Told(Message):
    count: int
    why: str = "it counts"


class Register(Record):
    count: int = 0
    version: int = 0


class Counters(Protocol):
    """Nodes count, send their counts, learn from others, and write their counts to a register."""

    name = "counters"

    nodes = model_values("n", 2)
    register: Register = state(Register)
    count: PerKey[ModelValue, int] = per_key(nodes, 0)
    seen: PerKey[ModelValue, int] = per_key(nodes, 0)
    network: Network = network({Told: (nodes, nodes)})

    @action(n=nodes, m=nodes)
    def tells(self, n: ModelValue, m: ModelValue) -> None:
        """A node counts and sends its count to another node."""
        require(n is not m)
        self.count[n] += 1
        self.network.send(Told(self.count[n]), n, m)

    @action(n=nodes, m=nodes)
    def hears(self, n: ModelValue, m: ModelValue) -> None:
        """A node receives a count, and continues from the higher one."""
        told = self.network.receive(Told, source=m, to=n).message
        self.count[n] = max(self.count[n], told.count)

    @action(n=nodes)
    def falls_back(self, n: ModelValue) -> None:
        """A node goes back to a lower count."""
        self.count[n] = one_of(range(self.count[n]))

    @action(n=nodes)
    def reads(self, n: ModelValue) -> None:
        """A node reads the register."""
        require(self.register.version > self.seen[n])
        self.seen[n] = self.register.version

    @action(n=nodes)
    def writes(self, n: ModelValue) -> None:
        """A node writes the register, which no node has written since it read it."""
        require(self.seen[n] == self.register.version)
        require(self.count[n] > self.register.count)
        self.register.count = self.count[n]
        self.register.version += 1
        self.seen[n] = self.register.version


class CountersConformance(Conformance):
    """One run of counters. Every event has the name of its action; ``sleeps`` is unknown to the protocol, and ``has``
    is no step.
    """

    name: ClassVar[str] = "counters"
    protocol: ClassVar[type[Protocol]] = Counters

    def __init__(self, subject: str, events: Sequence[Event]) -> None:
        super().__init__(subject, events)
        self.nodes = sorted(
            {event.node for event in events} | {e.parameters["to"] for e in events if "to" in e.parameters}
        )
        if "stranger" in self.nodes:
            raise NotCovered("there is a stranger")

    def constants(self) -> Mapping[str, Any]:
        """As many nodes as in the trace, but at least two."""
        return {"nodes": max(2, len(self.nodes))}

    def bind(self, protocol: Protocol) -> None:
        """Bind nodes by their names."""
        assert isinstance(protocol, Counters)
        self.n = dict(zip(self.nodes, protocol.nodes, strict=False))

    def steps(self, event: Event) -> Iterable[Step]:
        """One event, at most one step."""
        n, told = self.n[event.node], event.parameters
        after = ((("count", n), told["count"]),) if "count" in told else ()
        who = (("n", n),)
        match event.action:
            case "tells":
                tells = (("send", like(count=told["told"])),) if "told" in told else ()
                sends = ((event.node, told["to"]),)
                yield Step("tells", (*who, ("m", self.n[told["to"]])), sends=sends, after=after, tells=tells)
            case "hears":
                picks = (like(count=told["heard"]),) if "heard" in told else (like(),)
                receives = (told["from"], event.node)
                may_skip = told.get("ignores", False)
                yield Step(
                    "hears", (*who, ("m", self.n[told["from"]])), picks, receives, after=after, may_skip=may_skip
                )
            case "falls_back":
                yield Step("falls_back", who, (told["to_count"],), after=after)
            case "reads":
                yield Step("reads", who, reads=("register", told["version"]), after=after)
            case "writes":
                yield Step("writes", who, writes=("register", told["version"]), after=after)
            case "has":
                yield Step(None, after=after)


def happened(*told: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> list[Event]:
    """Make events from nodes, actions and parameters, node by node as in a trace."""
    numbers: dict[str, int] = {}
    events = []
    for node, what, *parameters in told:
        numbers[node] = numbers.get(node, 0) + 1
        events.append(Event(node, 1, numbers[node], what, "it", parameters[0] if parameters else {}))
    return sorted(events, key=lambda event: (event.node, event.seq))
