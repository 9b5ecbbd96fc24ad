"""What a violated property looked at: the parts of the state that decided it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.spec.context import Event, Slot
from fencepost.spec.network import Channel
from fencepost.spec.values import NotAValue, Value, show
from fencepost.step.state import State
from fencepost.trace.behaviour import Trace
from fencepost.trace.words import kind_of


class Reader:
    """A cursor over one finished state, which can be read and nothing else. ``seen`` are the slots that were."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.seen: dict[Slot, Value] = {}

    def read(self, slot: Slot) -> Value:
        value = self.state.read(slot)
        self.seen.setdefault(slot, value)
        return value

    def write(self, slot: Slot, value: Value) -> None:
        raise NotAValue(f"{slot.name} can not be assigned here: this state is only looked at")

    def choose(self, options: Sequence[Value]) -> Value:
        raise NotAValue("nothing can be chosen here: this state is only looked at")

    def tell(self, event: Event) -> None:
        raise NotAValue("nothing can be sent here: this state is only looked at")


@dataclass(frozen=True)
class Evidence:
    """What a property that does not hold has looked at.

    ``title`` is its name with the parameters for which it is false. ``slots`` are in the order of reading, empty channels left
    out; each has its value in the last state, for a step invariant its values before and after the last step (the same one once).
    """

    title: str
    slots: list[tuple[Slot, list[Value]]]


def looked_at(trace: Trace, kind: str, name: str) -> Evidence | None:
    """What the property ``name`` read where ``trace`` violates it; None if it is no invariant, or is not false there."""
    declared = next((d for d in trace.protocol.declared(kind) if d.name == name), None)
    if declared is None or kind not in ("invariant", "step_invariant"):
        return None
    states = trace.states[-2 if kind == "step_invariant" else -1 :]
    for parameters in declared.parameters(trace.protocol):
        readers = [Reader(state) for state in states]
        try:
            holds = declared.function(*(trace.protocol.bound_to(reader) for reader in readers), **parameters)
        except Exception:
            return None
        if not holds:
            bound = ", ".join(f"{n}={show(v)}" for n, v in parameters.items())
            return Evidence(f"{name}({bound})" if bound else name, _told(trace, readers))
    return None


def _told(trace: Trace, readers: list[Reader]) -> list[tuple[Slot, list[Value]]]:
    found = []
    for slot in {slot: None for reader in readers for slot in reader.seen}:
        values = [reader.state.read(slot) for reader in readers]
        shown = values if values[0] != values[-1] else values[-1:]
        empty = all(isinstance(v, Channel) and v == slot.default for v in shown)
        if not empty and kind_of(trace.protocol, slot) != "keys":
            found.append((slot, shown))
    return found
