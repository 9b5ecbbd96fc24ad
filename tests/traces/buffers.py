"""Writers put numbers into boxes, and a server adds them up and may crash. Traces leave out what they like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from fencepost import ModelValue, PerKey, Protocol, action, model_values, one_of, per_key, require, state
from fencepost.traces.validation import ANY, Conformance, Event, Step

MOST = 2
"""Numbers in a box at the most."""


class Buffers(Protocol):
    """Two boxes and a sum."""

    name = "buffers"
    writers: tuple[ModelValue, ...] = model_values("w", 2)
    box: PerKey[ModelValue, tuple[int, ...]] = per_key(lambda protocol: protocol.writers, ())
    seen: PerKey[ModelValue, int] = per_key(lambda protocol: protocol.writers, 0)
    total: int = state(0)
    up: bool = state(True)

    @action(w=writers)
    def puts(self, w: ModelValue) -> None:
        require(len(self.box[w]) < MOST)
        self.box[w] = (*self.box[w], one_of((1, 3)))

    @action(w=writers)
    def takes(self, w: ModelValue) -> None:
        require(self.up)
        require(len(self.box[w]) > 0 and self.total + self.box[w][0] < 6)
        self.total += self.box[w][0]
        self.box[w] = self.box[w][1:]

    @action(w=writers)
    def asks(self, w: ModelValue) -> None:
        require(self.up)
        self.seen[w] = self.total

    @action(w=writers)
    def message_is_lost(self, w: ModelValue) -> None:
        require(len(self.box[w]) > 0)
        self.box[w] = self.box[w][1:]

    @action
    def server_crashes(self) -> None:
        require(self.up)
        self.up = False
        self.total = 0

    @action
    def server_restarts(self) -> None:
        require(not self.up)
        self.up = True


class BuffersConformance(Conformance):
    """An event has the name of its action, the writer, what was put (None: not said) and what was seen."""

    name = "buffers"
    protocol: ClassVar[type[Protocol]] = Buffers
    unsaid: Sequence[str] = ("message_is_lost", "server_crashes", "server_restarts")

    def constants(self) -> Mapping[str, Any]:
        return {}

    def bind(self, protocol: Protocol) -> None:
        assert isinstance(protocol, Buffers)
        self.w = {str(writer): writer for writer in protocol.writers}

    def hidden(self, protocol: Protocol) -> Iterable[Step]:
        return map(Step, self.unsaid)

    def steps(self, event: Event) -> Iterable[Step]:
        told = event.parameters
        who = (("w", self.w.get(told["w"], ANY)),) if "w" in told else ()
        picks = (told["put"] or ANY,) if "put" in told else ()
        after = ((("seen", self.w[told["w"]]), told["seen"]),) if "seen" in told else ()
        yield Step(event.action, who, picks, after=after)


def conformance(*unsaid: str) -> type[BuffersConformance]:
    """The conformance of traces that leave these actions out."""
    return type("Some", (BuffersConformance,), {"unsaid": unsaid})


def happened(*told: tuple[str, dict[str, Any]]) -> list[Event]:
    """The events of one node."""
    return [Event("n", 1, seq, action, "it", parameters) for seq, (action, parameters) in enumerate(told, 1)]
