"""Traces a state of a table back to an initial state, and replays the behaviour in the author's Python."""

from __future__ import annotations

from typing import Any

from fencepost.behaviours import Trace, replay
from fencepost.errors import SystemFailure
from fencepost.semantics import State, Stepper
from fencepost.semantics.state import LOW
from fencepost.states.manifest import StateSpace


def witness(space: StateSpace, fingerprint: int, depth: int) -> Trace:
    """The shortest behaviour to the state with this fingerprint and depth in ``states``.

    Raises :class:`fencepost.SystemFailure` if the protocol has changed, or its steps differ from the table.
    """
    way = _way_back(space, fingerprint, depth)
    stepper = Stepper(space.protocol())
    start = way.pop()[0]
    initial = next((s for s in stepper.initial_states() if s.fingerprint & LOW == start & LOW), None)
    if initial is None:
        raise _unlike(space)
    path: list[tuple[int, tuple[int, ...]]] = []
    row: Any = initial.ids
    while way:
        child, action, parameters = way.pop()
        steps = [
            (root.index, outcome)
            for root in stepper.of_kind("action")
            if root.name == action and root.declared.shown(root.parameters) == parameters
            for outcome in sorted(stepper.outcomes(root, row), key=lambda o: o.choices)
            if stepper.store.fingerprint(stepper.apply(row, outcome)) & LOW == child & LOW
        ]
        if not steps:
            raise _unlike(space)
        index, taken = steps[0]
        path.append((index, taken.choices))
        row = stepper.apply(row, taken)
    return replay(stepper, State(stepper.store, initial.ids), path)


def _way_back(space: StateSpace, fingerprint: int, depth: int) -> list[tuple[int, str, str]]:
    """The states of the path and the action that led to each, from the last to the first."""
    from pyarrow import dataset

    states = space.dataset("states")
    way = []
    while True:
        where = (dataset.field("depth") == depth) & (dataset.field("fingerprint") == fingerprint)
        rows = states.to_table(["fingerprint", "parent", "action", "parameters"], filter=where).to_pylist()
        if not rows:
            raise SystemFailure(f"{space.directory} is damaged: it lacks the state {fingerprint} at depth {depth}")
        way.append((fingerprint, rows[0]["action"], rows[0]["parameters"]))
        if rows[0]["parent"] is None:
            return way
        fingerprint, depth = rows[0]["parent"], depth - 1


def _unlike(space: StateSpace) -> SystemFailure:
    return SystemFailure(
        f"the protocol does not do what {space.directory} says: it reads something besides its state "
        "(run it with {checking} to find out what)",
        "checking",
    )
