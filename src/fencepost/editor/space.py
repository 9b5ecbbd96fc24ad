"""The first states of a protocol, for what an editor shows beside its lines: where actions are enabled, and the values
that expressions and local variables had.
"""

from __future__ import annotations

import enum
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from fencepost.behaviours import Expression
from fencepost.errors import FencepostError
from fencepost.language.network import Envelope
from fencepost.language.seam import Model, language_of
from fencepost.language.values import ModelValue, Record, Value, show
from fencepost.semantics import LimitReached, Outcome, State, Stepper

STATES = 1_000
"""The most states that are looked at."""

SECONDS = 3.0
"""Seconds after which no more states are looked at."""

TRACED = 100
"""The states in which local variables are looked at: Python runs several times slower meanwhile."""

TEXT = 120
"""The most characters shown of a value."""


@dataclass
class Enabled:
    """The states in which an action is enabled, or a property is false. ``by`` counts them by parameters."""

    states: int = 0
    by: Counter[str] = field(default_factory=Counter)


class Space:
    """The states nearest to the initial ones, of a model with its file.

    ``complete``: these are all states. ``enabled``: by the name of an action. ``false``: by the name of an invariant.
    ``local``: what the variables of the author's functions held, by function and name, while actions ran.
    """

    def __init__(self, model: Model, file: str) -> None:
        self.model = model
        self.file = file
        self.states: list[State] = []
        self.complete = False
        self.enabled: dict[str, Enabled] = {}
        self.false: dict[str, Enabled] = {}
        self.local: dict[tuple[str, int, str], Counter[str]] = {}
        self.stepper = Stepper(model)

    def explore(self) -> None:
        """Look at the states, breadth first. An error of the protocol ends it: the check has reported that."""
        deadline = self.stepper.deadline
        deadline.restart()
        self.enabled = {root.name: Enabled() for root in self.stepper.of_kind("action")}
        self.false = {root.name: Enabled() for root in self.stepper.of_kind("invariant")}
        try:
            with (
                language_of(self.model).running(self.model),
                deadline.limits(lambda: "time" if deadline.expired(SECONDS) else None),
            ):
                self._explore()
                self.complete = len(self.states) < STATES
        except (LimitReached, FencepostError):
            pass

    def _explore(self) -> None:
        stepper = self.stepper
        constraints, cuts = stepper.of_kind("constraint"), stepper.of_kind("step_constraint")
        waiting = {self._key(state.ids): state for state in stepper.initial_states(STATES)}
        seen = set(waiting)
        while waiting and len(self.states) < STATES:
            level, waiting = list(waiting.values()), {}
            for state in level[: STATES - len(self.states)]:
                if any(stepper.outcomes(each, state.ids) for each in constraints):
                    continue
                self.states.append(state)
                self._note(self.false, "invariant", state)
                for after in self._after(state):
                    key = self._key(after.ids)
                    if key not in seen and not any(stepper.outcomes(each, state.ids, after.ids) for each in cuts):
                        seen.add(key)
                        waiting[key] = after

    def _key(self, ids: Any) -> int:
        return self.stepper.store.fingerprint(ids)

    def _note(self, counts: Mapping[str, Enabled], kind: str, state: State) -> list[Outcome]:
        """Count the actions, or the invariants, that have an outcome in a state. Returns these outcomes."""
        found = [(root, self.stepper.outcomes(root, state.ids)) for root in self.stepper.of_kind(kind)]
        for name in {root.name for root, outcomes in found if outcomes}:
            counts[name].states += 1
        for root, outcomes in found:
            if outcomes and root.declared.shown(root.parameters):
                counts[root.name].by[root.declared.shown(root.parameters)] += 1
        return [outcome for _, outcomes in found for outcome in outcomes]

    def _after(self, state: State) -> Iterator[State]:
        before = sys.gettrace()
        if len(self.states) <= TRACED:
            sys.settrace(self._entered)
        try:
            found = self._note(self.enabled, "action", state)
        finally:
            sys.settrace(before)
        for outcome in found:
            yield State(self.stepper.store, self.stepper.apply(state.ids, outcome))

    # -- local variables -----------------------------------------------------------------------------------------------

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Python calls it for each function that an action calls."""
        if frame.f_code.co_filename != self.file:
            return None
        frame.f_trace_lines = False
        return self._left

    def _left(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "return":
            for name, value in frame.f_locals.items():
                text = _plain(value)
                if text is not None:
                    where = frame.f_code.co_name, frame.f_code.co_firstlineno, name
                    self.local.setdefault(where, Counter())[text] += 1
        return self._left

    # -- expressions ---------------------------------------------------------------------------------------------------

    def values(self, text: str, given: Mapping[str, Value]) -> tuple[Counter[str], Counter[str]]:
        """The values of an expression in the states, and why it has none in others: the number of states of each.

        ``given``: the values of names that it uses besides those that every expression may use. Raises
        :class:`fencepost.OptionError` if it is none.
        """
        expression = Expression(text, self.model, given)
        found, none = Counter[str](), Counter[str]()
        with language_of(self.model).running(self.model):
            for state in self.states:
                one = expression.at(state)
                (found if one.error is None else none)[_short(str(one) if one.error is None else one.error)] += 1
        return found, none


def _short(text: str) -> str:
    return text if len(text) <= TEXT else text[: TEXT - 1] + "…"


def _plain(value: Any) -> str | None:
    """A value as text. None for what would read the state to show itself."""
    if isinstance(value, Envelope):
        return _short(f"{show(value.message)} from {value.source.name} to {value.dest.name}")
    return _short(show(value)) if _is_plain(value) else None


def _is_plain(value: Any) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(_is_plain, value))
    if isinstance(value, Record):
        return all(_is_plain(getattr(value, name)) for name in value._fields)
    return value is None or isinstance(value, enum.Enum | ModelValue) or type(value) in (bool, int, str)
