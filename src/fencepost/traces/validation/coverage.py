"""Coverage of a protocol by traces: actions, their effects, and the conditions that refused them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from fencepost.language.context import Slot
from fencepost.language.network import NetworkShape
from fencepost.language.values import show_parameters
from fencepost.traces.validation.line_coverage import LineTracer
from fencepost.traces.validation.replay import Replayer, Taken
from fencepost.traces.validation.steps import Step
from fencepost.traces.validation.verdict import Verdict

NOTHING = "nothing changes"
"""The effect of a step that writes nothing and emits no event."""


class Visits(msgspec.Struct):
    """Counts by action: how often it was taken (``taken``), with which ``parameters`` and which ``effects``; how often
    each of the author's ``lines`` ran, and how often it refused the action (``refused``). ``choices`` counts the
    options taken where a line chooses; 0 for options that were offered but never taken.
    """

    taken: dict[str, int] = {}
    parameters: dict[str, dict[str, int]] = {}
    effects: dict[str, dict[str, int]] = {}
    lines: dict[str, dict[str, int]] = {}
    refused: dict[str, dict[str, int]] = {}
    choices: dict[str, dict[str, int]] = {}

    def add(self, other: Visits) -> None:
        """Add the counts of another."""
        for action, count in other.taken.items():
            self.taken[action] = self.taken.get(action, 0) + count
        for name in ("parameters", "effects", "lines", "refused", "choices"):
            mine, others = getattr(self, name), getattr(other, name)
            for action, counts in others.items():
                for what, count in counts.items():
                    _count(mine, action, what, count)


class Coverage:
    """Counts the steps of verdicts, by action."""

    def __init__(self) -> None:
        self._visits = Visits()
        self._paths: dict[tuple[str, int], _Path] = {}
        self._ran: LineTracer | None = None

    @property
    def visits(self) -> Visits:
        """The counts so far."""
        self._flush()
        return self._visits

    def add(self, verdict: Verdict) -> None:
        """Count the replayed steps of a trace."""
        replayer, visits = verdict.replayer, self._visits
        if replayer is None:
            return
        row = list(verdict.start)
        for _, step, taken in verdict.path:
            assert step.action is not None
            visits.taken[step.action] = visits.taken.get(step.action, 0) + 1
            _count(visits.parameters, step.action, show_parameters(dict(step.parameters)))
            path = self._paths.get((step.action, id(taken)))
            if path is None:
                path = self._paths[step.action, id(taken)] = self._learn(replayer, row, step, taken)
            path.count += 1
            replayer.apply(row, taken.writes)
        for (action, where), count in verdict.refused.items():
            _count(visits.refused, action, where, count)

    def _learn(self, replayer: Replayer, row: list[int], step: Step, taken: Taken) -> _Path:
        if len(self._paths) >= MOST_PATHS:
            self._flush()
            self._paths.clear()
        if self._ran is None:
            self._ran = LineTracer(type(replayer.protocol))
        lines, options = self._ran.by(replayer, row, step)
        for place, option, is_taken in options:
            if not is_taken:
                _count(self._visits.choices, place, option, 0)
        return _Path(
            taken, effect(replayer, taken), lines, [(place, option) for place, option, is_taken in options if is_taken]
        )

    def _flush(self) -> None:
        """Move the counts of all ways through actions to the visits."""
        visits = self._visits
        for (action, _), path in self._paths.items():
            if path.count:
                _count(visits.effects, action, path.effect, path.count)
                for line in path.lines:
                    _count(visits.lines, action, line, path.count)
                for place, option in path.options:
                    _count(visits.choices, place, option, path.count)
                path.count = 0


@dataclass
class _Path:
    """One path through an action's code, taken by ``count`` steps."""

    taken: Taken
    effect: str
    lines: list[str]
    options: list[tuple[str, str]]
    count: int = 0


MOST_PATHS = 100_000
"""Paths through actions that are held at once."""


def _count(counts: dict[str, dict[str, int]], action: str, what: str, by: int = 1) -> None:
    of = counts.setdefault(action, {})
    of[what] = of.get(what, 0) + by


def effect(replayer: Replayer, taken: Taken) -> str:
    """The effects of a step: the messages that it sends or receives, and the parts of the state that it changes."""
    messages = dict.fromkeys(
        f"{event.kind}s {type(message).__name__}" for event in taken.events for message in event.passed
    )
    shapes = replayer.protocol.shapes
    parts = dict.fromkeys(
        part_name(slot)
        for index, _ in taken.writes
        if not isinstance(shapes.get((slot := replayer.store.slots[index]).path[0]), NetworkShape)
    )
    changed = [f"changes {', '.join(sorted(parts))}"] if parts else []
    return "; ".join([*sorted(messages), *changed]) or NOTHING


def part_name(slot: Slot) -> str:
    """The name of a part of the state without its keys: ``client.lac``."""
    return ".".join(part for part in slot.path if isinstance(part, str))
