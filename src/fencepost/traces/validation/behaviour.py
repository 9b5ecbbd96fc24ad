"""The steps that a trace has taken, as a behaviour of the protocol, for people."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.behaviours import behaviour
from fencepost.behaviours.replay import actor
from fencepost.semantics.state import State
from fencepost.traces.validation.conformance import Event, Step
from fencepost.traces.validation.follow import Follower, Taken

Path = Sequence[tuple[Event, Step, Taken]]


def behaviour_of(follower: Follower, path: Path, last: int) -> behaviour.Trace:
    """The ``last`` steps of a path. Those that change nothing and tell nothing are left out."""
    shown = [place for place, (_, _, taken) in enumerate(path) if taken.writes or taken.events][-last:]
    row = follower.initial()
    for _, _, taken in path[: shown[0]] if shown else ():
        follower.apply(row, taken.writes)
    initial = before = State(follower.store, row)
    steps = []
    for place in shown:
        _, step, taken = path[place]
        assert step.action is not None
        follower.apply(row, taken.writes)
        after = State(follower.store, row)
        parameters = dict(step.parameters)
        by = actor(follower.actions[step.action].by, parameters)
        changes = follower.in_order(after.changes(before))
        steps.append(behaviour.Step(step.action, parameters, by, taken.labels, taken.events, after, changes))
        before = after
    return behaviour.Trace(follower.protocol, initial, tuple(steps))
