"""The evidence of a violation: the parts of the state that the property read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.behaviours.behaviour import Trace
from fencepost.behaviours.formatting import held, kind_of
from fencepost.behaviours.lasso import is_violated
from fencepost.language.context import FROM_HERE, Looking, Sieve, Slot
from fencepost.language.declarations import JUDGED, TEMPORAL, Declared
from fencepost.language.temporal import Now, Step
from fencepost.language.values import Value, same
from fencepost.semantics import Stepper
from fencepost.semantics.state import State, variable


class StateReader(Looking):
    """A read-only cursor over one finished state. ``seen`` are the slots that were read, with their values."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.seen: dict[Slot, Value] = {}

    def read(self, slot: Slot) -> Value:
        value = self.state.read(slot)
        if self.state.store.is_shown_whole(slot):
            name = slot.path[0]
            self.seen.setdefault(variable(name), self.state.variables()[name])
        else:
            self.seen.setdefault(slot, value)
        return value

    def universe(self, path: tuple[Any, ...], sieve: Sieve | None = None, place: int = FROM_HERE) -> Sequence[Slot]:
        return self.state.store.universe(path).slots


@dataclass(frozen=True)
class Evidence:
    """The parts of the state that a violated property, or one with a witness, has read.

    ``title`` is its name with the parameters for which it is false. ``slots`` are in the order of reading, without
    empty channels. Each has its value in the last state. For a step invariant, it has the values before and after the
    last step. For a temporal property, it has those along the loop, without repetitions. A missing key of a table is
    :data:`~fencepost.behaviours.formatting.ABSENT`. ``when`` says where the property is false, or that it is true.
    """

    title: str
    slots: list[tuple[Slot, list[Value]]]
    when: str = "is false"


def looked_at(trace: Trace, kind: str, name: str) -> Evidence | None:
    """The parts that the property ``name`` read where ``trace`` violates it or is its witness. For a witness, ``name``
    includes the parameters. None if there is no such property, or ``trace`` shows neither.
    """
    declared = next((d for d in trace.protocol.declared(kind) if d.name == name.partition("(")[0]), None)
    if declared is None or kind not in JUDGED:
        return None
    for parameters in declared.parameters(trace.protocol):
        title = declared.title(parameters)
        if name not in (declared.name, title):
            continue
        try:
            evidence = (
                _temporal(trace, declared, parameters) if kind in TEMPORAL else _safety(trace, declared, parameters)
            )
        except Exception:
            return None
        if evidence is not None:
            when, readers = evidence
            return Evidence(title, _values_read(trace, readers), when)
    return None


Where = tuple[str, list[StateReader]]
"""Where a property is false, in words (or true, for ``sometimes``), and the readers of the states there."""


def _safety(trace: Trace, declared: Declared, parameters: Mapping[str, Value]) -> Where | None:
    stepwise = declared.kind == "step_invariant"
    readers = [StateReader(state) for state in trace.states[-2 if stepwise else -1 :]]
    holds = declared.function(*(trace.protocol.bound_to(reader) for reader in readers), **parameters)
    if declared.kind == "sometimes":
        return ("is true", readers) if holds else None
    return None if holds else ("is false over the last step" if stepwise else "is false", readers)


def _temporal(trace: Trace, declared: Declared, parameters: Mapping[str, Value]) -> Where | None:
    loop = trace.loop
    if loop is None:
        return None
    if declared.kind == "temporal":
        return _formula(trace, declared, parameters, loop)
    readers = [StateReader(state) for state in trace.states]
    truths = [declared.function(trace.protocol.bound_to(reader), **parameters) for reader in readers]
    if declared.kind == "always_eventually":
        return None if any(truths[loop:]) else ("is false all along the loop", readers[loop:])
    if declared.kind == "eventually_always":
        false = [number for number, truth in enumerate(truths) if not truth and number >= loop]
        return (f"is false {after(false[0])}, in the loop", readers[loop:]) if false else None
    for number, (leads, _) in enumerate(truths):
        if leads and not any(to for _, to in [*truths[number:], *truths[loop:]]):
            return f"waits in vain {after(number)} and from there on", readers[loop:]
    return None


def _formula(trace: Trace, declared: Declared, parameters: Mapping[str, Value], loop: int) -> Where | None:
    stepper = Stepper(trace.protocol, [declared.name])
    promise = next(p for p in stepper.promises if p.parameters == parameters)
    rows = [_row(stepper, state) for state in trace.states]
    if promise.formula is None or not is_violated(stepper, promise, rows, loop):
        return None
    readers = [StateReader(state) for state in trace.states]
    states = [trace.protocol.bound_to(reader) for reader in readers]
    for leaf in promise.formula.leaves():
        if isinstance(leaf, Now):
            for state in states:
                leaf.function(state)
        elif isinstance(leaf, Step):
            for before, then in itertools.pairwise(states):
                leaf.function(before, then)
    return "is false of this behaviour", readers[loop:]


def _row(stepper: Stepper, state: State) -> tuple[int, ...]:
    """A state of another value table, as a row of this stepper's."""
    store = stepper.store
    values = {store.slot(slot): value for slot, value in state.touched()}
    row = [0] * len(store.slots)
    for index, value in values.items():
        row[index] = store.intern(index, value)
    return store.normal(row)


def after(number: int) -> str:
    """The position of a state in a behaviour, in words."""
    return f"after step {number}" if number else "in the initial state"


def _values_read(trace: Trace, readers: list[StateReader]) -> list[tuple[Slot, list[Value]]]:
    result = []
    for slot in {slot: None for reader in readers for slot in reader.seen}:
        values = [reader.state.read(slot) for reader in readers]
        shown = [value for place, value in enumerate(values) if place == 0 or not same(value, values[place - 1])]
        kind = kind_of(trace.protocol, slot)
        empty = kind in ("in flight", "lost", "processed") and all(v == slot.default for v in shown)
        if not empty and kind not in ("keys", "topics"):
            result.append((slot, [held(kind, value) for value in shown]))
    return result
