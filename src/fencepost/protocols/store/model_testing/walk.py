"""Drives the roles along behaviours of the protocol, and compares the states after each step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fencepost.errors import SystemFailure
from fencepost.language.context import Looking, Slot
from fencepost.language.values import Value, show_parameters
from fencepost.ledger.rules.protections import Protections
from fencepost.protocols.store.model_testing.actions import NotRealisable, Taken, drive
from fencepost.protocols.store.model_testing.compare import compare
from fencepost.protocols.store.model_testing.mapping import name
from fencepost.protocols.store.model_testing.system import Difference, Settings, System
from fencepost.protocols.store.store import Store as Protocol
from fencepost.semantics import Outcome, Root, Stepper
from fencepost.semantics.state import LOW

Row = tuple[int, ...]

MOST_FOUND = 20
"""The number of differences whose whole paths are kept: the shortest ones."""


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
    """The result of driving. ``covered``: transitions that the roles have taken, by action. ``skipped``: transitions
    that no role takes, by reason. ``failed``: the skipped and the differing transitions. ``unreached``: states with no
    path without a failed step. ``beyond``: the number of transitions from these states. ``kinds``: the number of
    differences of each kind.
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
        """Transitions after which the roles are not in the state of the protocol."""
        return sum(self.kinds.values())


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


def drive_part(driver: Driver, part: Part) -> DriveResult:
    """Drive every transition of a part, each once, and the steps on the paths to them."""
    began, result = time.perf_counter(), DriveResult()
    row, system = driver.begin()
    to_go: list[tuple[int, Row, System, _Way | None]] = [(driver.fingerprint(row), row, system, None)]
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


def _steps(driver: Driver, row: Row, edges: set[Edge]) -> Iterable[tuple[Edge, Root, Outcome]]:
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
    """A value of the roles or of the protocol in one line."""
    return " ".join(str(value).split())


class Reading(Looking):
    """A state that can be read, and not written."""

    def __init__(self, store: Any, ids: Sequence[int]) -> None:
        self.store = store
        self.ids = ids

    def read(self, slot: Slot) -> Value:
        """The value of a slot."""
        index = self.store.slot(slot)
        return self.store.values[index][self.ids[index] if index < len(self.ids) else 0]


class Driver:
    """Drives the roles along steps of a protocol. ``protections``: the protections of the roles; None: those of the
    protocol."""

    def __init__(self, protocol: Protocol, protections: Protections | None = None) -> None:
        self.protocol = protocol
        self.protections = protections or protocol.protections
        self.stepper = Stepper(protocol)
        self.actions: dict[tuple[str, str], Root] = {
            (root.name, show_parameters(root.parameters)): root for root in self.stepper.of_kind("action")
        }
        quorums = (protocol.bookies_of_an_ensemble, protocol.write_quorum, protocol.ack_quorum)
        self.settings = Settings(
            quorums,
            protocol.inflight_limit,
            protocol.reads_in_flight,
            protocol.readable_ids[-1] + 1,
            protocol.message_loss,
            protocol.protections,
        )

    def begin(self) -> tuple[Row, System]:
        """The initial state of the protocol, which has one alone, and the roles in it."""
        (initial,) = self.stepper.initial_states()
        bookies = tuple(name(b) for b in self.protocol.bookies)
        return initial.ids, System(self.settings, bookies, self.protections)

    def fingerprint(self, row: Sequence[int]) -> int:
        """The fingerprint of a state as tables have it: 64 bits, read as a signed number."""
        low = self.stepper.store.fingerprint(row) & LOW
        return low - (1 << 64) if low >> 63 else low

    def outcomes(self, root: Root, row: Row) -> dict[int, Outcome]:
        """The outcomes of an action in a state, by the fingerprints of the states that they lead to. Of several
        outcomes that lead to one state, the first."""
        found: dict[int, Outcome] = {}
        for outcome in self.stepper.outcomes(root, row):
            if outcome.writes:
                found.setdefault(self.fingerprint(self.stepper.apply(row, outcome)), outcome)
        return found

    def step(self, system: System, row: Row, root: Root, outcome: Outcome) -> Row:
        """Let the roles of ``system`` take a step from ``row``; the state that it leads to.

        Raises :class:`Difference` if the roles do something else, and :class:`NotRealisable` if they are not expected
        to take the step.
        """
        after = self.stepper.apply(row, outcome)
        store, protocol = self.stepper.store, self.protocol
        before_it: Any = protocol.bound_to(Reading(store, row))
        after_it: Any = protocol.bound_to(Reading(store, after))
        taken = Taken(root.name, root.parameters, outcome.labels, outcome.events, before_it, after_it)
        try:
            drive(system, taken)
            compare(system, taken)
        except (Difference, NotRealisable, SystemFailure):
            raise
        except Exception as error:
            raise Difference("the roles", "they take the step", f"{type(error).__name__}: {error}") from error
        return after
