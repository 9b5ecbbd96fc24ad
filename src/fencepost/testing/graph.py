"""The states and the transitions of a protocol in memory, and behaviours that cover them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from fencepost.language.seam import Model
from fencepost.semantics import Outcome, Root
from fencepost.testing.walk import Edge, Row, Steps

MOST_TRIES = 3
"""How often a transition is tried while the system goes elsewhere."""


class Move(NamedTuple):
    """A call: an action, the choices of the outcome that is expected, and whether it is expected to be refused."""

    root: Root
    choices: tuple[int, ...] = ()
    is_refused: bool = False


class Graph(Steps):
    """The transitions between the reachable states of a protocol, breadth first, at most ``most`` of them.

    As in a check, states outside the constraints are left out. ``is_cut``: there are more transitions than ``most``.
    """

    def __init__(self, protocol: Model, most: int, is_over: Callable[[], bool] = lambda: False) -> None:
        super().__init__(protocol)
        self.roots = self.stepper.of_kind("action")
        self.edges: dict[int, list[Edge]] = {}
        """By the state that they leave."""
        self.rows: dict[int, Row] = {}
        self.is_cut = False
        self._numbers: dict[Row, int] = {}
        self._outcomes: dict[tuple[int, Row], dict[int, Outcome]] = {}
        self._explore(most, is_over)

    def fingerprint(self, row: Sequence[int]) -> int:
        """The number of a state, which is exact, and counts what a view leaves out."""
        return self._numbers.setdefault(tuple(row), len(self._numbers))

    def outcomes(self, root: Root, row: Row, idle: bool = True) -> dict[int, Outcome]:
        """As in :class:`Steps`, and kept: a behaviour comes to the same states again and again."""
        key = root.index, row
        found = self._outcomes.get(key)
        if found is None:
            found = self._outcomes[key] = super().outcomes(root, row, idle)
        return found

    @property
    def transitions(self) -> list[Edge]:
        """Every transition."""
        return [edge for edges in self.edges.values() for edge in edges]

    def move(self, edge: Edge) -> Move:
        """The call that takes a transition."""
        root = self.actions[edge.action, edge.parameters]
        return Move(root, self.outcomes(root, self.rows[edge.source])[edge.target].choices)

    def refused(self, state: int, names: Collection[str]) -> list[Root]:
        """Those of the actions with these names that are not enabled in a state."""
        if state not in self.rows:
            return []
        return [root for root in self.roots if root.name in names and not self.outcomes(root, self.rows[state])]

    def _explore(self, most: int, is_over: Callable[[], bool]) -> None:
        starts = [state.ids for state in self.stepper.initial_states() if self._is_inside(state.ids)]
        self.rows.update((self.fingerprint(row), row) for row in starts)
        waiting, count = deque(self.rows), 0
        while waiting and not self.is_cut:
            state = waiting.popleft()
            edges = self.edges[state] = []
            for edge, row in self._steps(state, self.rows[state]):
                if count == most or is_over():
                    self.is_cut = True
                    break
                count += 1
                edges.append(edge)
                if edge.target not in self.rows:
                    self.rows[edge.target] = row
                    waiting.append(edge.target)

    def _steps(self, state: int, row: Row) -> Iterator[tuple[Edge, Row]]:
        cuts = self.stepper.of_kind("step_constraint")
        for (name, parameters), root in self.actions.items():
            for target, outcome in self.outcomes(root, row).items():
                after = self.stepper.apply(row, outcome)
                if self._is_inside(after) and not any(self.stepper.outcomes(cut, row, after) for cut in cuts):
                    yield Edge(state, name, parameters, target), after

    def _is_inside(self, row: Row) -> bool:
        return not any(self.stepper.outcomes(root, row) for root in self.stepper.of_kind("constraint"))


class Tour:
    """Leads to what is wanted, always to the nearest: every transition or, with ``pairs``, every transition after every
    transition that it can follow. Those of the actions ``left_out`` are not taken.
    """

    def __init__(self, graph: Graph, start: int, left_out: Collection[str], pairs: bool = False) -> None:
        self._edges = {
            state: [edge for edge in edges if edge.action not in left_out] for state, edges in graph.edges.items()
        }
        self._node: Callable[[int, Edge | None], Hashable] = (lambda state, last: last or state) if pairs else first
        self.wanted: dict[Hashable, dict[Edge, None]] = {}
        """What is wanted next, by the state or, for pairs, by the transition that led there."""
        for state, last in self._reachable(start):
            self.wanted[self._node(state, last)] = dict.fromkeys(self._out(state))
        self.count = sum(map(len, self.wanted.values()))
        self.given_up: list[Edge] = []
        """What the system did not do when it was tried."""
        self._tries: Counter[Edge] = Counter()

    @property
    def left(self) -> int:
        """How much is still wanted."""
        return sum(map(len, self.wanted.values()))

    def way(self, state: int, last: Edge | None) -> list[Edge]:
        """The shortest way from here that ends with something wanted; nothing if there is none."""
        before: dict[Hashable, tuple[Hashable, Edge] | None] = {self._node(state, last): None}
        waiting = deque([(state, last)])
        while waiting:
            state, last = waiting.popleft()
            here = self._node(state, last)
            for wanted in self.wanted.get(here, ()):
                way, came = [wanted], before[here]
                while came is not None:
                    way.append(came[1])
                    came = before[came[0]]
                return way[::-1]
            for edge in self._out(state):
                node = self._node(edge.target, edge)
                if node not in before:
                    before[node] = here, edge
                    waiting.append((edge.target, edge))
        return []

    def taken(self, state: int, last: Edge | None, edge: Edge) -> None:
        """A transition was driven."""
        self.wanted.get(self._node(state, last), {}).pop(edge, None)

    def missed(self, state: int, last: Edge | None, edge: Edge) -> None:
        """The system did something else. After some tries the transition is no longer wanted."""
        self._tries[edge] += 1
        if self._tries[edge] >= MOST_TRIES:
            self.given_up.append(edge)
            for wanted in self.wanted.values():
                wanted.pop(edge, None)
            self._edges[edge.source] = [other for other in self._out(edge.source) if other != edge]

    def _out(self, state: int) -> list[Edge]:
        return self._edges.get(state, [])

    def _reachable(self, start: int) -> Iterable[tuple[int, Edge | None]]:
        found: dict[Hashable, tuple[int, Edge | None]] = {self._node(start, None): (start, None)}
        waiting = deque(found.values())
        while waiting:
            for edge in self._out(waiting.popleft()[0]):
                node = self._node(edge.target, edge)
                if node not in found:
                    found[node] = (edge.target, edge)
                    waiting.append((edge.target, edge))
        return found.values()


def first(state: int, last: Edge | None) -> Hashable:
    """The state alone."""
    return state


class Sample:
    """Chooses transitions at random, those of an action the more often the more rarely it was taken."""

    def __init__(self, graph: Graph, left_out: Collection[str], seed: int) -> None:
        self._graph = graph
        self._left_out = left_out
        self._random = Random(seed)
        self._counts: Counter[str] = Counter()
        self.given_up: list[Edge] = []

    def way(self, state: int, last: Edge | None) -> list[Edge]:
        """One transition; nothing if there is none."""
        out = [edge for edge in self._graph.edges.get(state, ()) if edge.action not in self._left_out]
        ways = Counter(edge.action for edge in out)
        weights = [1 / (1 + self._counts[edge.action]) / ways[edge.action] for edge in out]
        return self._random.choices(out, weights) if out else []

    def taken(self, state: int, last: Edge | None, edge: Edge) -> None:
        """A transition was driven."""
        self._counts[edge.action] += 1

    def missed(self, state: int, last: Edge | None, edge: Edge) -> None:
        """The system did something else."""
        self._counts[edge.action] += 1
