"""What traces have visited of a protocol: its actions, what these did, what refused them, and the states of an explored state space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fencepost.conform.conformance import Conformance, TraceEvent
from fencepost.conform.follow import Follower, Taken
from fencepost.conform.outcome import Notes
from fencepost.conform.validate import Validator, Verdict
from fencepost.errors import OptionError
from fencepost.spec.context import Slot
from fencepost.spec.network import NetworkShape
from fencepost.spec.values import show
from fencepost.states.manifest import StateSpace

NOTHING = "nothing changes"
"""The effect of a step that writes nothing and tells nothing."""


class Visits(msgspec.Struct):
    """How often each action was taken (``taken``), with which ``parameters``, to which ``effects``, and which lines have refused it (``refused``)."""

    taken: dict[str, int] = {}
    parameters: dict[str, dict[str, int]] = {}
    effects: dict[str, dict[str, int]] = {}
    refused: dict[str, dict[str, int]] = {}

    def add(self, other: Visits) -> None:
        """Count what another has counted."""
        for action, count in other.taken.items():
            self.taken[action] = self.taken.get(action, 0) + count
        for mine, others in ((self.parameters, other.parameters), (self.effects, other.effects), (self.refused, other.refused)):
            for action, counts in others.items():
                for what, count in counts.items():
                    _count(mine, action, what, count)


class Coverage:
    """Takes note of verdicts."""

    def __init__(self) -> None:
        self.visits = Visits()
        self._effects: dict[int, tuple[Taken, str]] = {}

    def note(self, verdict: Verdict) -> None:
        """Count the steps of a trace, as far as it got."""
        follower, visits = verdict.follower, self.visits
        if follower is None:
            return
        for _, step, taken in verdict.path:
            assert step.action is not None
            visits.taken[step.action] = visits.taken.get(step.action, 0) + 1
            _count(visits.parameters, step.action, ", ".join(f"{name}={show(value)}" for name, value in step.parameters))
            known = self._effects.get(id(taken))
            if known is None:
                known = self._effects[id(taken)] = (taken, effect(follower, taken))
            _count(visits.effects, step.action, known[1])
        for (action, where), count in verdict.refused.items():
            _count(visits.refused, action, where, count)


def _count(counts: dict[str, dict[str, int]], action: str, what: str, by: int = 1) -> None:
    of = counts.setdefault(action, {})
    of[what] = of.get(what, 0) + by


def effect(follower: Follower, taken: Taken) -> str:
    """What a step does, whoever does it: which parts of the state it changes, and which messages pass."""
    told = dict.fromkeys(f"{event.kind}s {type(message).__name__}" for event in taken.events for message in event.passed)
    shapes = follower.protocol.shapes
    parts = dict.fromkeys(
        part_name(slot) for index, _ in taken.writes if not isinstance(shapes.get((slot := follower.store.slots[index]).path[0]), NetworkShape)
    )
    changed = [f"changes {', '.join(sorted(parts))}"] if parts else []
    return "; ".join([*sorted(told), *changed]) or NOTHING


def part_name(slot: Slot) -> str:
    """The name of a part of the state, whoever it is about: ``client.lac``."""
    return ".".join(part for part in slot.path if isinstance(part, str))


# -- a state space that was explored ----------------------------------------------------------------------------------


class Unvisited(NamedTuple):
    """A step of a state space that no trace has taken: the nearest one of its action and parameters. ``distance``: how many steps after a state that a trace
    has visited its own result is; ``fingerprint`` and ``depth`` are that result's, as the table has them.
    """

    distance: int
    action: str
    parameters: str
    fingerprint: int
    depth: int


class SpaceCoverage(NamedTuple):
    """``fitting`` of ``traces`` stay within the bounds of the state space. ``steps`` is None if it was written without its steps."""

    directory: str
    title: str
    traces: int
    fitting: int
    states: int
    visited: int
    steps: int | None
    taken: int
    never: list[Unvisited]


class Visited(msgspec.Struct):
    """The ``states`` and ``steps`` of a state space, by fingerprints, that the ``fitting`` of so many ``traces`` have visited, and what the steps are called."""

    traces: int = 0
    fitting: int = 0
    states: set[int] = set()
    steps: set[tuple[int, int]] = set()
    labels: set[tuple[str, str]] = set()

    def add(self, other: Visited) -> None:
        """Add what another has visited."""
        self.traces += other.traces
        self.fitting += other.fitting
        self.states |= other.states
        self.steps |= other.steps
        self.labels |= other.labels


class InSpace:
    """Follows traces within the bounds of a state space, which ``check --states`` wrote. Those that do not stay within them are not counted.

    Raises :class:`fencepost.OptionError` if it is one of another protocol.
    """

    def __init__(self, conformance: type[Conformance], space: StateSpace) -> None:
        explored, protocol = space.protocol(), conformance.protocol
        if explored.name != protocol.name:
            raise OptionError(f"{space.directory} is the state space of {explored.name}, and traces are held to {protocol.name}")
        # A file that is loaded twice makes two classes, and the conformance knows one of them.
        values = {name: getattr(explored, name) for name in space.manifest.constants}
        self._follower = Follower(protocol(**values), fingerprints=True)
        self._validator = Validator(conformance, follower=self._follower)
        self.visited = Visited()

    def note(self, subject: str, events: Sequence[TraceEvent]) -> None:
        """Follow a trace."""
        visited = self.visited
        visited.traces += 1
        try:
            verdict = self._validator.validate(subject, events)
        except Exception:  # the conformance finds no room in these bounds
            return
        if not verdict.accepted:
            return
        visited.fitting += 1
        row = self._follower.initial()
        here = self._fingerprint(row)
        visited.states.add(here)
        for _, step, taken in verdict.path:
            assert step.action is not None
            self._follower.apply(row, taken.writes)
            there = self._fingerprint(row)
            visited.states.add(there)
            visited.steps.add((here, there))
            visited.labels.add((step.action, ", ".join(f"{name}={show(value)}" for name, value in step.parameters)))
            here = there

    def _fingerprint(self, row: Sequence[int]) -> int:
        """As the table has it: the low 64 bits, with a sign."""
        low = self._follower.store.fingerprint(row) & ((1 << 64) - 1)
        return low - (1 << 64) if low >> 63 else low


def noting(coverage: Coverage | None, space: InSpace | None) -> Notes | None:
    """Takes note of verdicts for one and the other, as far as they are there."""
    if coverage is None:
        return None

    def note(verdict: Verdict, events: Sequence[TraceEvent]) -> None:
        coverage.note(verdict)
        if space is not None:
            space.note(verdict.subject, events)

    return note


def in_space(space: StateSpace, visited: Visited, most: int = 20) -> SpaceCoverage:
    """Which part of a state space was visited, and the nearest of what was not."""
    states = space.dataset("states").to_table(["fingerprint", "depth", "parent", "action", "parameters"]).sort_by("depth")
    there = states.column("fingerprint").to_numpy()
    order = np.argsort(there, kind="stable")

    def places(fingerprints: Any) -> Any:
        return order[np.searchsorted(there[order], fingerprints)]

    is_visited = np.isin(there, np.fromiter(visited.states, np.int64, len(visited.states)))
    is_initial = states.column("parent").is_null().to_numpy()
    depth = states.column("depth").to_numpy()
    # Along the first way that the search found to each state.
    distance = np.where(is_visited, 0, 1)
    for level in range(int(depth.min(initial=0)) + 1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero((depth == level) & ~is_visited & ~is_initial)
        distance[here] = distance[places(states.column("parent").take(here).to_numpy())] + 1
    count, taken = None, 0
    if space.manifest.edges is None:
        ways = states.filter(~is_initial)
        source, target = ways.column("parent").to_numpy(), ways.column("fingerprint").to_numpy()
    else:
        ways = space.dataset("edges").to_table()
        source, target = ways.column("source").to_numpy(), ways.column("target").to_numpy()
        pairs = set(zip(source.tolist(), target.tolist(), strict=True))
        count, taken = len(pairs), len(pairs & visited.steps)
    after = distance[places(source)] + 1
    names, parameters = ways.column("action").to_pylist(), ways.column("parameters").to_pylist()
    found: dict[tuple[str, str], Unvisited] = {}
    for place in np.lexsort((target, depth[places(target)], after)):
        label = (names[place], parameters[place])
        if label not in visited.labels and label not in found:
            found[label] = Unvisited(int(after[place]), *label, int(target[place]), int(depth[places(target[place])]))
    return SpaceCoverage(
        str(space.directory), space.title, visited.traces, visited.fitting, len(there), int(is_visited.sum()), count, taken, list(found.values())[:most]
    )
