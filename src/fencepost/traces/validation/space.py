"""The part of an explored state space that traces have visited: its states, its steps, and the nearest steps that they
never took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from fencepost.errors import OptionError
from fencepost.language.values import show_parameters
from fencepost.states.manifest import StateSpace
from fencepost.traces.validation.conformance import Conformance, Event, Step
from fencepost.traces.validation.follow import Follower
from fencepost.traces.validation.validate import Validator

MOST_UNVISITED = 20
"""Steps that are reported as taken by no trace."""

Label: TypeAlias = tuple[str, str]
"""The name of a step: its action, and its parameters as the table has them."""

Visit: TypeAlias = tuple[int, int, str, str]
"""A step that was taken, as a row of the table ``edges``: the fingerprints of both ends, and what it is called."""


class Unvisited(NamedTuple):
    """A step of a state space that no trace has taken: the nearest one of its action and parameters. ``distance``: how
    many steps after a state that a trace has visited its own result is; ``elsewhere``: whether a trace has taken such a
    step in another state; ``fingerprint`` and ``depth`` are the result's, as the table has them.
    """

    distance: int
    action: str
    parameters: str
    elsewhere: bool
    fingerprint: int
    depth: int


class LevelVisits(NamedTuple):
    """How many of the ``states`` of a level of the search were ``visited``."""

    depth: int
    states: int
    visited: int


class ActionVisits(NamedTuple):
    """How many of the ``parameters`` that an action has in the state space were ever taken (``parameters_taken``), and
    how many of its ``steps`` (``taken``).
    """

    action: str
    parameters: int
    parameters_taken: int
    steps: int
    taken: int


class SpaceCoverage(NamedTuple):
    """``fitting`` of ``traces`` stay within the bounds of the state space, and have visited ``visited`` of ``states``
    and taken ``taken`` of ``steps``.

    ``steps`` is None if it was written without its steps: then ``levels``, ``actions`` and ``never`` know of those that
    have discovered a state. ``never``: the nearest steps that were not taken, first those that were taken nowhere.
    """

    directory: str
    title: str
    traces: int
    fitting: int
    states: int
    visited: int
    steps: int | None
    taken: int
    levels: list[LevelVisits]
    actions: list[ActionVisits]
    never: list[Unvisited]


class Visited(msgspec.Struct):
    """The ``states`` and ``steps`` of a state space that the ``fitting`` of so many ``traces`` have visited; states are
    given by their fingerprints.
    """

    traces: int = 0
    fitting: int = 0
    states: set[int] = set()
    steps: set[Visit] = set()


class InSpace:
    """Follows traces within the bounds of a state space, which ``check --states`` wrote. Those that do not stay within
    them are not counted.

    Raises :class:`fencepost.OptionError` if it is one of another protocol.
    """

    def __init__(self, conformance: type[Conformance], space: StateSpace) -> None:
        explored, protocol = space.protocol(), conformance.protocol
        if explored.name != protocol.name:
            raise OptionError(
                f"{space.directory} is the state space of {explored.name}, and traces are held to {protocol.name}"
            )
        # A file that is loaded twice makes two classes, and the conformance knows one of them.
        values = {name: getattr(explored, name) for name in space.manifest.constants}
        self._follower = Follower(protocol(**values), fingerprints=True)
        self._validator = Validator(conformance, follower=self._follower)
        self._labels: dict[Any, Label] = {}
        self.visited = Visited()

    def follow(self, subject: str, events: Callable[[], Sequence[Event]]) -> None:
        """Follow a trace; ``events`` reads it."""
        visited = self.visited
        visited.traces += 1
        try:
            verdict = self._validator.validate(subject, events())
        except Exception:  # the conformance finds no room in these bounds
            return
        if not verdict.accepted:
            return
        visited.fitting += 1
        row = self._follower.initial()
        here = self._fingerprint(row)
        visited.states.add(here)
        for _, step, taken in verdict.path:
            self._follower.apply(row, taken.writes)
            there = self._fingerprint(row)
            visited.states.add(there)
            visited.steps.add((here, there, *self._label(step)))
            here = there

    def take(self) -> Visited:
        """The steps that were visited since the last call."""
        visited, self.visited = self.visited, Visited()
        return visited

    def _label(self, step: Step) -> Label:
        """The name of a step in the table, with its parameters in the order of their declaration."""
        assert step.action is not None
        key = (step.action, step.parameters)
        label = self._labels.get(key)
        if label is None:
            given = dict(step.parameters)
            label = self._labels[key] = (
                step.action,
                show_parameters({name: given[name] for name in self._follower.actions[step.action].domains}),
            )
        return label

    def _fingerprint(self, row: Sequence[int]) -> int:
        """As the table has it: the low 64 bits, with a sign."""
        low = self._follower.store.fingerprint(row) & ((1 << 64) - 1)
        return low - (1 << 64) if low >> 63 else low


# -- a table in this process ------------------------------------------------------------------------------------------


def in_space(space: StateSpace, visited: Visited, most: int = MOST_UNVISITED) -> SpaceCoverage:
    """The part of a state space that was visited, with at the most ``most`` of the steps that were not taken. The whole
    space is held in this process.
    """
    table = _Table(space)
    is_visited = np.isin(table.fingerprints, np.fromiter(visited.states, np.int64, len(visited.states)))
    taken = table.taken(visited.steps)
    anywhere = {(action, parameters) for _, _, action, parameters in visited.steps}
    elsewhere = np.array([label in anywhere for label in table.labels], bool)
    return SpaceCoverage(
        str(space.directory),
        space.title,
        visited.traces,
        visited.fitting,
        len(table.fingerprints),
        int(is_visited.sum()),
        space.manifest.edges,
        int(taken.sum()) if space.manifest.edges is not None else 0,
        _levels(table.depths, is_visited),
        _actions(table, taken, elsewhere),
        nearest(list(_unvisited(table, is_visited, taken, elsewhere)), most),
    )


def nearest(found: Sequence[Unvisited], most: int) -> list[Unvisited]:
    """The steps to report, of those that no trace has taken: the nearest ones, at most ``most``."""
    return sorted(
        found,
        key=lambda step: (step.elsewhere, step.distance, step.depth, step.fingerprint, step.action, step.parameters),
    )[:most]


class _Table:
    """A state space with its steps as arrays. ``sources`` and ``targets`` are places of states, -1 outside of the
    table; ``kinds`` are places of ``labels``.
    """

    def __init__(self, space: StateSpace) -> None:
        columns = ["fingerprint", "depth", "parent"]
        with_edges = space.manifest.edges is not None
        states = space.dataset("states").to_table(columns if with_edges else [*columns, "action", "parameters"])
        self.fingerprints = states.column("fingerprint").to_numpy()
        self.depths = states.column("depth").to_numpy()
        self.initial = states.column("parent").is_null().to_numpy()
        self._order = np.argsort(self.fingerprints, kind="stable")
        self._sorted = self.fingerprints[self._order]
        if with_edges:
            ways = space.dataset("edges").to_table()
            sources, targets = ways.column("source").to_numpy(), ways.column("target").to_numpy()
        else:
            ways = states.filter(~self.initial)
            sources, targets = ways.column("parent").to_numpy(), ways.column("fingerprint").to_numpy()
        self.sources, self.targets = self.places(sources), self.places(targets)
        self._ends = targets
        actions, parameters = (
            ways.column(name).combine_chunks().dictionary_encode() for name in ("action", "parameters")
        )
        both = (
            actions.indices.to_numpy().astype(np.int64) * max(1, len(parameters.dictionary))
            + parameters.indices.to_numpy()
        )
        distinct, self.kinds = np.unique(both, return_inverse=True)
        called, given = actions.dictionary.to_pylist(), parameters.dictionary.to_pylist()
        self.labels: list[Label] = [
            (called[kind // len(given)], given[kind % len(given)]) for kind in distinct.tolist()
        ]

    def places(self, fingerprints: Any) -> Any:
        """The places of states with these fingerprints, -1 for those that are none."""
        if not len(self._sorted):
            return np.full(len(fingerprints), -1)
        at = np.minimum(np.searchsorted(self._sorted, fingerprints), len(self._sorted) - 1)
        return np.where(self._sorted[at] == fingerprints, self._order[at], -1)

    def taken(self, visits: set[Visit]) -> Any:
        """For each step of the table whether it is one of these."""
        found = np.zeros(len(self.sources), bool)
        ends = np.fromiter((target for _, target, _, _ in visits), np.int64, len(visits))
        begins = self.places(np.fromiter((source for source, _, _, _ in visits), np.int64, len(visits)))
        for row in np.flatnonzero(np.isin(self._ends, ends) & np.isin(self.sources, begins)).tolist():
            step = (int(self.fingerprints[self.sources[row]]), int(self._ends[row]), *self.labels[self.kinds[row]])
            found[row] = step in visits
        return found


def _levels(depths: Any, is_visited: Any) -> list[LevelVisits]:
    found = []
    for depth in np.unique(depths).tolist():
        here = depths == depth
        found.append(LevelVisits(depth, int(here.sum()), int((here & is_visited).sum())))
    return found


def _actions(table: _Table, taken: Any, elsewhere: Any) -> list[ActionVisits]:
    steps = np.bincount(table.kinds, minlength=len(table.labels))
    done = np.bincount(table.kinds[taken], minlength=len(table.labels))
    found: dict[str, list[int]] = {}
    for kind, (action, _) in enumerate(table.labels):
        counts = found.setdefault(action, [0, 0, 0, 0])
        for place, count in enumerate((1, int(elsewhere[kind]), int(steps[kind]), int(done[kind]))):
            counts[place] += count
    return [ActionVisits(action, *found[action]) for action in sorted(found)]


def _unvisited(table: _Table, is_visited: Any, taken: Any, elsewhere: Any) -> Iterator[Unvisited]:
    """The nearest step of each label that was not taken: of those that were taken elsewhere only what begins where a
    trace has been.
    """
    wanted = np.ones(len(table.labels), bool)
    reached = is_visited.copy()
    frontier = is_visited
    distance = 1
    while frontier.any() or distance == 1:
        ways = np.flatnonzero(frontier[table.sources])
        ways = ways[table.targets[ways] >= 0]
        ends = table.targets[ways]
        rows = ways[~taken[ways] & wanted[table.kinds[ways]]]
        places = table.targets[rows]
        rows = rows[np.lexsort((table.fingerprints[places], table.depths[places], table.kinds[rows]))]
        kinds, first = np.unique(table.kinds[rows], return_index=True)
        for kind, row in zip(kinds.tolist(), rows[first].tolist(), strict=True):
            place = table.targets[row]
            action, parameters = table.labels[kind]
            yield Unvisited(
                distance,
                action,
                parameters,
                bool(elsewhere[kind]),
                int(table.fingerprints[place]),
                int(table.depths[place]),
            )
        wanted[kinds] = False
        if distance == 1:
            wanted &= ~elsewhere
        if not wanted.any():
            return
        next_ones = np.zeros(len(reached), bool)
        next_ones[ends] = True
        if distance == 1:
            next_ones |= table.initial  # a behaviour may begin in a state in which no trace has begun
        frontier = next_ones & ~reached
        reached |= frontier
        distance += 1
