"""Replays a path in the author's Python, so that every reported step is a step of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.behaviours.behaviour import Step, Trace
from fencepost.errors import NOT_REPLAYED, SystemFailure
from fencepost.language.values import Value, show
from fencepost.semantics import Outcome, Root, State, Stepper


class ReplayFailed(SystemFailure):
    """An engine reported a path that the author's Python cannot take."""


def replay(
    stepper: Stepper, initial: State, path: Sequence[tuple[int, tuple[int, ...]]], loop: int | None = None
) -> Trace:
    """The behaviour from ``initial`` along ``path``: the number of the root and of the choices of each step. ``loop``:
    the number of the state that a lasso returns to.

    Raises :class:`ReplayFailed` if a step is not enabled with these choices, or the loop does not close.
    """
    steps: list[Step] = []
    state = initial
    for number, choices in path:
        root = stepper.roots[number]
        outcome = next((o for o in stepper.outcomes(root, state.ids) if o.choices == tuple(choices)), None)
        if outcome is None:
            raise ReplayFailed(f"step {len(steps) + 1}, {root.title}, {NOT_REPLAYED}", "checking")
        steps.append(taken(stepper, state, root, outcome))
        state = steps[-1].state
    trace = Trace(stepper.protocol, initial, tuple(steps), loop)
    if loop is not None and trace.states[loop] != state:
        raise ReplayFailed(
            f"the behaviour does not come back to state {loop}: this is a fault of Fencepost, please report it"
        )
    return trace


def taken(stepper: Stepper, state: State, root: Root, outcome: Outcome) -> Step:
    """The step of an action's outcome from ``state``."""
    after = State(stepper.store, stepper.apply(state.ids, outcome))
    by = actor(root.declared.by, root.parameters)
    changes, place = after.changes(state), root.declared.place
    return Step(root.name, root.parameters, by, outcome.labels, outcome.events, after, changes, root.title, place)


def actor(by: Any, parameters: Mapping[str, Value]) -> str | None:
    """The actor of an action with these parameters: from its ``by``, else its first parameter, else None."""
    if by is None:
        return show(next(iter(parameters.values()))) if parameters else None
    if isinstance(by, str) and by in parameters:
        return show(parameters[by])
    return (by or None) if isinstance(by, str) else show(by)
