"""Drives a system that can be copied along the transitions of a protocol, each once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from fencepost.behaviours import Trace, replay
from fencepost.errors import SystemFailure
from fencepost.language.context import Looking, Slot
from fencepost.language.seam import Model
from fencepost.language.values import Value, show_parameters
from fencepost.semantics import Outcome, Root, State, Stepper
from fencepost.semantics.state import LOW

Row = tuple[int, ...]

MOST_FOUND = 20
"""The number of differences whose whole paths are kept: the shortest ones."""


class Difference(Exception):
    """The system has not followed the protocol, or is in another state."""

    def __init__(self, variable: str, expected: Any, actual: Any) -> None:
        super().__init__(variable, expected, actual)
        self.variable = variable
        self.expected = expected
        self.actual = actual


class NotRealisable(Exception):
    """The protocol takes a step that the system is not expected to take, for a reason with this name."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Edge(NamedTuple):
    """A step of a table: from one state to another, both by their fingerprints."""

    source: int
    action: str
    parameters: str
    target: int


class Part(msgspec.Struct):
    """Some transitions to drive, and the paths to their source states: a tree of steps. Both by source state."""

    edges: dict[int, list[Edge]]
    tree: dict[int, list[Edge]]

    @staticmethod
    def of(edges: Iterable[Edge], tree: Iterable[Edge]) -> Part:
        """The part with these edges, and these steps of the tree."""
        part = Part({}, {})
        for held, given in ((part.edges, edges), (part.tree, tree)):
            for edge in given:
                held.setdefault(edge.source, []).append(edge)
        return part

    def needed(self) -> Part:
        """The same without steps of the tree that lead to none of the transitions."""
        before = {edge.target: edge for edges in self.tree.values() for edge in edges}
        kept: dict[int, Edge] = {}
        for state in self.edges:
            while state in before and state not in kept:
                kept[state] = before[state]
                state = before[state].source
        return Part.of((edge for edges in self.edges.values() for edge in edges), kept.values())


class Found(msgspec.Struct):
    """A difference: the path to it, whose last step is the one after which the difference shows; the variable, its
    expected value and its actual value.
    """

    way: list[Edge]
    variable: str
    expected: str
    actual: str

    @property
    def kind(self) -> tuple[str, str]:
        """The action and the variable. Differences of one kind are counted together."""
        return self.way[-1].action, self.variable


class DriveResult(msgspec.Struct):
    """The result of driving. ``covered``: transitions that the system has taken, by action. ``skipped``: transitions
    that it is not expected to take, by reason. ``failed``: the skipped and the differing transitions. ``unreached``:
    states with no path without a failed step. ``beyond``: the number of transitions from these states. ``kinds``: the
    number of differences of each kind.
    """

    covered: Counter[str] = msgspec.field(default_factory=Counter)
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    found: list[Found] = msgspec.field(default_factory=list)
    failed: set[Edge] = msgspec.field(default_factory=set)
    unreached: set[int] = msgspec.field(default_factory=set)
    beyond: int = 0
    behaviours: int = 0
    steps: int = 0
    seconds: float = 0.0

    def add(self, other: DriveResult) -> None:
        """Add the result of driving other transitions."""
        self.covered.update(other.covered)
        self.skipped.update(other.skipped)
        self.kinds.update(other.kinds)
        self.found = sorted([*self.found, *other.found], key=lambda found: (len(found.way), found.way))[:MOST_FOUND]
        self.failed |= other.failed
        self.unreached |= other.unreached
        self.beyond += other.beyond
        self.behaviours += other.behaviours
        self.steps += other.steps
        self.seconds += other.seconds

    @property
    def differing(self) -> int:
        """Transitions after which the system is not in the state of the protocol."""
        return sum(self.kinds.values())


class Reading(Looking):
    """A state that can be read, and not written."""

    def __init__(self, store: Any, ids: Sequence[int]) -> None:
        self.store = store
        self.ids = ids

    def read(self, slot: Slot) -> Value:
        """The value of a slot."""
        index = self.store.slot(slot)
        return self.store.values[index][self.ids[index] if index < len(self.ids) else 0]


class Steps:
    """The steps of a protocol, as tables of states have them: from state to state, by their fingerprints."""

    def __init__(self, protocol: Model) -> None:
        self.protocol = protocol
        self.stepper = Stepper(protocol)
        self.actions: dict[tuple[str, str], Root] = {
            (root.name, show_parameters(root.parameters)): root for root in self.stepper.of_kind("action")
        }

    def fingerprint(self, row: Sequence[int]) -> int:
        """The fingerprint of a state as tables have it: 64 bits, read as a signed number."""
        low = self.stepper.store.fingerprint(row) & LOW
        return low - (1 << 64) if low >> 63 else low

    def outcomes(self, root: Root, row: Row, idle: bool = False) -> dict[int, Outcome]:
        """The outcomes of an action in a state, by the fingerprints of the states that they lead to. Of several
        outcomes that lead to one state, the first. ``idle``: also those that change nothing."""
        found: dict[int, Outcome] = {}
        for outcome in self.stepper.outcomes(root, row):
            if outcome.writes or idle:
                found.setdefault(self.fingerprint(self.stepper.apply(row, outcome)), outcome)
        return found

    def trace(self, initial: State, way: Iterable[Edge]) -> Trace:
        """The behaviour of the protocol along some steps."""
        row, moves = initial.ids, []
        for edge in way:
            root = self.actions[edge.action, edge.parameters]
            outcome = self.outcomes(root, row, idle=True)[edge.target]
            moves.append((root.index, outcome.choices))
            row = self.stepper.apply(row, outcome)
        return replay(self.stepper, initial, moves)


Forked = TypeVar("Forked", bound="Forking")


class Forking(Protocol):
    """A system that can be copied."""

    def fork(self: Forked) -> Forked: ...


class Drives(Protocol[Forked]):
    """What knows how a system takes a step. It is a :class:`Steps`."""

    actions: dict[tuple[str, str], Root]

    def fingerprint(self, row: Sequence[int]) -> int: ...

    def outcomes(self, root: Root, row: Row, idle: bool = False) -> dict[int, Outcome]: ...

    def begin(self) -> tuple[Row, Forked]: ...

    def step(self, system: Forked, row: Row, root: Root, outcome: Outcome) -> Row: ...


class _Way:
    """A step on the path from the initial state, and those before it."""

    __slots__ = ("before", "edge")

    def __init__(self, before: _Way | None, edge: Edge) -> None:
        self.before = before
        self.edge = edge


def _whole(way: _Way | None) -> list[Edge]:
    edges = []
    while way is not None:
        edges.append(way.edge)
        way = way.before
    return edges[::-1]


def drive_part(driver: Drives[Forked], part: Part) -> DriveResult:
    """Drive every transition of a part, each once, and the steps on the paths to them."""
    began, result = time.perf_counter(), DriveResult()
    row, system = driver.begin()
    to_go: list[tuple[int, Row, Forked, _Way | None]] = [(driver.fingerprint(row), row, system, None)]
    reached = set[int]()
    while to_go:
        state, row, system, way = to_go.pop()
        reached.add(state)
        wanted, onward = part.edges.get(state, ()), set(part.tree.get(state, ()))
        result.behaviours += not (wanted or onward)
        for edge, root, outcome in _steps(driver, row, {*wanted, *onward}):
            counts, there = edge in wanted, _Way(way, edge)
            fork = system.fork()
            result.steps += 1
            try:
                after = driver.step(fork, row, root, outcome)
            except (NotRealisable, Difference) as error:
                if counts:
                    _add_failure(result, edge, there, error)
                continue
            if counts:
                result.covered[edge.action] += 1
            if edge in onward:
                to_go.append((edge.target, after, fork, there))
            else:
                result.behaviours += 1
    result.unreached = part.edges.keys() - reached
    result.beyond = sum(len(part.edges[state]) for state in result.unreached)
    result.found = sorted(result.found, key=lambda found: (len(found.way), found.way))[:MOST_FOUND]
    result.seconds = time.perf_counter() - began
    return result


def _steps(driver: Drives[Forked], row: Row, edges: set[Edge]) -> Iterable[tuple[Edge, Root, Outcome]]:
    """Edges from one state, each with its action and its outcome, sorted. Raises :class:`SystemFailure` for an edge
    that the protocol does not take."""
    outcomes: Mapping[int, Outcome] = {}
    last: tuple[str, str] | None = None
    for edge in sorted(edges):
        which = edge.action, edge.parameters
        if which not in driver.actions:
            raise SystemFailure(
                f"the protocol has no action {edge.action}({edge.parameters}): check it again, with --states"
            )
        root = driver.actions[which]
        if which != last:
            outcomes, last = driver.outcomes(root, row), which
        if edge.target not in outcomes:
            raise SystemFailure(f"the protocol does not take {root.title} as the table of states says: check it again")
        yield edge, root, outcomes[edge.target]


def _add_failure(result: DriveResult, edge: Edge, way: _Way, error: NotRealisable | Difference) -> None:
    result.failed.add(edge)
    if isinstance(error, NotRealisable):
        result.skipped[error.reason] += 1
        return
    variable = driven_text(error.variable)
    result.kinds[edge.action, variable] += 1
    if len(result.found) < 10 * MOST_FOUND or len(_whole(way)) < max(len(found.way) for found in result.found):
        result.found.append(Found(_whole(way), variable, driven_text(error.expected), driven_text(error.actual)))


def driven_text(value: object) -> str:
    """A value of the system or of the protocol in one line."""
    return " ".join(str(value).split())
