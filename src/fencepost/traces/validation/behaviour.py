"""The replayed steps of a trace, as a behaviour of the protocol to display."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.behaviours import behaviour
from fencepost.behaviours.replay import actor
from fencepost.semantics.state import State
from fencepost.traces.validation.replay import Replayer
from fencepost.traces.validation.verdict import Entry, Verdict


def behaviour_of(replayer: Replayer, start: Sequence[int], path: Sequence[Entry], last: int) -> behaviour.Trace:
    """The steps of a path from a state that are shown (:func:`shown_of`)."""
    shown = shown_of(path, last)
    row = list(start)
    for _, _, taken in path[: shown[0]] if shown else ():
        replayer.apply(row, taken.writes)
    initial = before = State(replayer.store, row)
    steps = []
    for place in shown:
        _, step, taken = path[place]
        assert step.action is not None
        replayer.apply(row, taken.writes)
        after = State(replayer.store, row)
        parameters = dict(step.parameters)
        by = actor(replayer.actions[step.action].by, parameters)
        changes = replayer.in_order(after.changes(before))
        steps.append(behaviour.Step(step.action, parameters, by, taken.labels, taken.events, after, changes))
        before = after
    return behaviour.Trace(replayer.protocol, initial, tuple(steps))


def end_of(verdict: Verdict, last: int) -> tuple[list[int], list[Entry]]:
    """A state on the path of a verdict, and the steps from there to its end, with at least ``last`` that are shown if
    there are as many.
    """
    if len(shown_of(verdict.last, last)) < last:
        return verdict.start, verdict.path
    return verdict.base, verdict.last


def shown_of(path: Sequence[Entry], last: int) -> list[int]:
    """The places of the ``last`` steps of a path, without those that change nothing and emit no event."""
    return [place for place, (_, _, taken) in enumerate(path) if taken.writes or taken.events][-last:]
