"""Coverage of a state space by traces: the states and steps that they visited, and the nearest steps that they never
took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from fencepost.errors import OptionError
from fencepost.language.values import show_parameters
from fencepost.states.manifest import StateSpace
from fencepost.traces.validation.conformance import Conformance, Event
from fencepost.traces.validation.replay import Replayer
from fencepost.traces.validation.steps import Step
from fencepost.traces.validation.validate import Validator

MOST_UNVISITED = 20
"""The most untaken steps that are reported."""

Label: TypeAlias = tuple[str, str]
"""A step's action, and its parameters as in the table."""

Visit: TypeAlias = tuple[int, int, str, str]
"""A taken step, as a row of the table ``edges``: the fingerprints of both states, the action and the parameters."""


class Unvisited(NamedTuple):
    """A step that no trace has taken: the nearest one of its action and parameters. ``distance``: the number of steps
    from the nearest visited state to this step's result. ``elsewhere``: whether a trace has taken a step of this action
    and parameters in another state. ``fingerprint`` and ``depth``: of the result, as in the table.
    """

    distance: int
    action: str
    parameters: str
    elsewhere: bool
    fingerprint: int
    depth: int


class LevelVisits(NamedTuple):
    """The number of ``states`` at a depth of the search, and how many of them were ``visited``."""

    depth: int
    states: int
    visited: int


class ActionVisits(NamedTuple):
    """For one action in the state space: the number of distinct ``parameters`` and how many of them were taken
    (``parameters_taken``); the number of its ``steps`` and how many of them were ``taken``.
    """

    action: str
    parameters: int
    parameters_taken: int
    steps: int
    taken: int


class SpaceCoverage(NamedTuple):
    """``fitting`` of ``traces`` stay within the bounds of the state space. They visited ``visited`` of ``states`` and
    took ``taken`` of ``steps``.

    ``steps`` is None if the space was written without its steps. Then ``actions`` and ``never`` know only the steps
    that discovered a state. ``never``: the nearest untaken steps, those taken nowhere first.
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
    """The ``states`` (fingerprints) and ``steps`` that traces visited; ``fitting`` of ``traces`` stay within the bounds
    of the state space.
    """

    traces: int = 0
    fitting: int = 0
    states: set[int] = set()
    steps: set[Visit] = set()


class InSpace:
    """Replays traces within the bounds of a state space that ``check --states`` wrote. Traces that leave the bounds are
    not counted.

    Raises :class:`fencepost.OptionError` if the state space is of another protocol.
    """

    def __init__(self, conformance: type[Conformance], space: StateSpace) -> None:
        explored, protocol = space.protocol(), conformance.protocol
        assert not isinstance(protocol, str)
        if explored.name != protocol.name:
            raise OptionError(
                f"{space.directory} is the state space of {explored.name}, and traces are held to {protocol.name}"
            )
        # Loading a file twice makes two classes. The conformance knows its own, so that one is used.
        values = {name: getattr(explored, name) for name in space.manifest.constants}
        self._replayer = Replayer(protocol(**values), fingerprints=True)
        self._validator = Validator(conformance, replayer=self._replayer)
        self._labels: dict[Any, Label] = {}
        self.visited = Visited()

    def replay(self, subject: str, events: Callable[[], Sequence[Event]]) -> None:
        """Replay a trace; ``events`` reads it."""
        visited = self.visited
        visited.traces += 1
        try:
            verdict = self._validator.validate(subject, events())
        except Exception:  # the trace does not fit into these bounds
            return
        if not verdict.accepted:
            return
        visited.fitting += 1
        row = list(verdict.start)
        here = self._fingerprint(row)
        visited.states.add(here)
        for _, step, taken in verdict.path:
            self._replayer.apply(row, taken.writes)
            there = self._fingerprint(row)
            visited.states.add(there)
            visited.steps.add((here, there, *self._label(step)))
            here = there

    def take(self) -> Visited:
        """The visits since the last call."""
        visited, self.visited = self.visited, Visited()
        return visited

    def _label(self, step: Step) -> Label:
        """A step's label in the table, which has parameters in the order of declaration."""
        assert step.action is not None
        key = (step.action, step.parameters)
        label = self._labels.get(key)
        if label is None:
            parameters = dict(step.parameters)
            label = self._labels[key] = (
                step.action,
                show_parameters({name: parameters[name] for name in self._replayer.actions[step.action].domains}),
            )
        return label

    def _fingerprint(self, row: Sequence[int]) -> int:
        """The fingerprint as in the table: the low 64 bits, signed."""
        low = self._replayer.store.fingerprint(row) & ((1 << 64) - 1)
        return low - (1 << 64) if low >> 63 else low


# -- a table in this process ------------------------------------------------------------------------------------------


def in_space(space: StateSpace, visited: Visited, most: int = MOST_UNVISITED) -> SpaceCoverage:
    """The coverage of a state space, with at most ``most`` untaken steps. The whole space is loaded into memory."""
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
    """The nearest untaken steps, at most ``most``: the ones to report."""
    return sorted(
        found,
        key=lambda step: (step.elsewhere, step.distance, step.depth, step.fingerprint, step.action, step.parameters),
    )[:most]


class _Table:
    """A state space with its steps as arrays. ``sources`` and ``targets`` are indices of states, -1 outside the table;
    ``kinds`` are indices of ``labels``.
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
        """The indices of the states with these fingerprints, -1 for those not in the table."""
        if not len(self._sorted):
            return np.full(len(fingerprints), -1)
        at = np.minimum(np.searchsorted(self._sorted, fingerprints), len(self._sorted) - 1)
        return np.where(self._sorted[at] == fingerprints, self._order[at], -1)

    def taken(self, visits: set[Visit]) -> Any:
        """A mask over the steps of the table: whether each is one of these."""
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
    """The nearest untaken step of each label. For a label that was taken elsewhere, only steps out of visited states
    count.
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
            next_ones |= table.initial  # a behaviour may begin in an initial state that no trace visited
        frontier = next_ones & ~reached
        reached |= frontier
        distance += 1
