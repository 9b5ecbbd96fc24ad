"""Coverage of a protocol by traces: its actions, their effects, and the conditions that refused them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from fencepost.language.context import Slot
from fencepost.language.network import NetworkShape
from fencepost.language.values import show_parameters
from fencepost.traces.validation.conformance import Step
from fencepost.traces.validation.follow import Follower, Taken
from fencepost.traces.validation.lines import Ran
from fencepost.traces.validation.validate import Verdict

NOTHING = "nothing changes"
"""The effect of a step that writes nothing and tells nothing."""


class Visits(msgspec.Struct):
    """How often each action was taken (``taken``), with which ``parameters``, to which ``effects``; which ``lines`` of
    the author's it has run, and which have refused it (``refused``); which options were taken where a line chooses
    (``choices``), 0 for those that were there and never taken.
    """

    taken: dict[str, int] = {}
    parameters: dict[str, dict[str, int]] = {}
    effects: dict[str, dict[str, int]] = {}
    lines: dict[str, dict[str, int]] = {}
    refused: dict[str, dict[str, int]] = {}
    choices: dict[str, dict[str, int]] = {}

    def add(self, other: Visits) -> None:
        """Count what another has counted."""
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
        self._ways: dict[tuple[str, int], _Way] = {}
        self._ran: Ran | None = None

    @property
    def visits(self) -> Visits:
        """The actions that were visited so far."""
        self._add_ways()
        return self._visits

    def add(self, verdict: Verdict) -> None:
        """Count the steps of a trace, as far as it got."""
        follower, visits = verdict.follower, self._visits
        if follower is None:
            return
        row = follower.initial()
        for _, step, taken in verdict.path:
            assert step.action is not None
            visits.taken[step.action] = visits.taken.get(step.action, 0) + 1
            _count(visits.parameters, step.action, show_parameters(dict(step.parameters)))
            way = self._ways.get((step.action, id(taken)))
            if way is None:
                way = self._ways[step.action, id(taken)] = self._learn(follower, row, step, taken)
            way.count += 1
            follower.apply(row, taken.writes)
        for (action, where), count in verdict.refused.items():
            _count(visits.refused, action, where, count)

    def _learn(self, follower: Follower, row: list[int], step: Step, taken: Taken) -> _Way:
        if len(self._ways) >= MOST_WAYS:
            self._add_ways()
            self._ways.clear()
        if self._ran is None:
            self._ran = Ran(type(follower.protocol))
        lines, options = self._ran.by(follower, row, step)
        for place, option, is_taken in options:
            if not is_taken:
                _count(self._visits.choices, place, option, 0)
        return _Way(
            taken, effect(follower, taken), lines, [(place, option) for place, option, is_taken in options if is_taken]
        )

    def _add_ways(self) -> None:
        """Add the counts of ways through actions to the visits."""
        visits = self._visits
        for (action, _), way in self._ways.items():
            if way.count:
                _count(visits.effects, action, way.effect, way.count)
                for line in way.lines:
                    _count(visits.lines, action, line, way.count)
                for place, option in way.options:
                    _count(visits.choices, place, option, way.count)
                way.count = 0


@dataclass
class _Way:
    """One way through an action: ``taken`` by ``count`` steps."""

    taken: Taken
    effect: str
    lines: list[str]
    options: list[tuple[str, str]]
    count: int = 0


MOST_WAYS = 100_000
"""Ways through actions that are held at once."""


def _count(counts: dict[str, dict[str, int]], action: str, what: str, by: int = 1) -> None:
    of = counts.setdefault(action, {})
    of[what] = of.get(what, 0) + by


def effect(follower: Follower, taken: Taken) -> str:
    """The effects of a step by any process: the parts of the state that it changes, and the messages that pass."""
    messages = dict.fromkeys(
        f"{event.kind}s {type(message).__name__}" for event in taken.events for message in event.passed
    )
    shapes = follower.protocol.shapes
    parts = dict.fromkeys(
        part_name(slot)
        for index, _ in taken.writes
        if not isinstance(shapes.get((slot := follower.store.slots[index]).path[0]), NetworkShape)
    )
    changed = [f"changes {', '.join(sorted(parts))}"] if parts else []
    return "; ".join([*sorted(messages), *changed]) or NOTHING


def part_name(slot: Slot) -> str:
    """The name of a part of the state, whoever it is about: ``client.lac``."""
    return ".".join(part for part in slot.path if isinstance(part, str))
