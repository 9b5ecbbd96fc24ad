"""Replays a path through the author's Python, so that nothing is ever told that the protocol does not do."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.errors import SystemFailure
from fencepost.spec.values import show
from fencepost.step import Root, State, Stepper
from fencepost.trace.behaviour import Step, Trace


class ReplayFailed(SystemFailure):
    """An engine reported a path that the author's Python does not take."""


def replay(stepper: Stepper, initial: State, path: Sequence[tuple[int, tuple[int, ...]]]) -> Trace:
    """The behaviour from ``initial`` along ``path``: for each step the number of its root and of its choices.

    Raises :class:`ReplayFailed` if a step is not enabled with these choices.
    """
    steps: list[Step] = []
    state = initial
    for number, choices in path:
        root = stepper.roots[number]
        outcome = next((o for o in stepper.outcomes(root, state.ids) if o.choices == tuple(choices)), None)
        if outcome is None:
            raise ReplayFailed(
                f"step {len(steps) + 1}, {root.title}, can not be replayed: the protocol reads something besides its state "
                "(run again with --checking to find out what)"
            )
        after = State(stepper.store, stepper.apply(state.ids, outcome))
        steps.append(
            Step(root.name, root.parameters, actor(root), outcome.labels, outcome.events, after, after.changes(state))
        )
        state = after
    return Trace(stepper.protocol, initial, tuple(steps))


def actor(root: Root) -> str | None:
    """Who takes an action: what its ``by`` says, else its first parameter, else nobody in particular."""
    by = root.declared.by
    if by is None:
        return show(next(iter(root.parameters.values()))) if root.parameters else None
    if isinstance(by, str) and by in root.parameters:
        return show(root.parameters[by])
    return by if isinstance(by, str) else show(by)
