"""Whether every fair behaviour of a graph satisfies a property, and if not, a lasso that violates it.

An infinite behaviour in a finite graph ends up in one strongly connected set of states, and visits each of them again
and again. So a property is violated if, and only if, there is a set of states such that a behaviour may visit them
forever without satisfying the property, they are strongly connected and reachable, and they meet every fairness
condition:

- A **weak** condition is met by a step of it, or by a state in which it is not enabled.
- A **strong** condition is met by a step of it, or if no visited state enables it. A component without such a step may
  still have a fair part that avoids the states enabling it, so it is searched again without those states.

As in TLA+, a behaviour may stay in any state. A single state is therefore such a set, and staying there is fair if no
fairness condition is enabled in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fencepost.checker.liveness.graph import CHUNK, Array, Graph, Property

CANDIDATES = 16
"""How many states with equally short stems are tried for the shortest loop."""


@dataclass(frozen=True)
class Lasso:
    """An infinite behaviour that violates a property, as the fingerprints (64 bits) of its states.

    It repeats from ``states[loop]``, and the last state equals that one. If ``loop`` is the index of the last state,
    the behaviour stays there.
    """

    of: Property
    states: tuple[int, ...]
    loop: int

    @property
    def length(self) -> tuple[int, int]:
        """The number of steps before the loop, and in the loop."""
        return self.loop, len(self.states) - 1 - self.loop


def violation(graph: Graph, property: Property) -> Lasso | None:
    """A fair behaviour that violates ``property``; None if every one satisfies it.

    Its stem is as short as possible. It ends in a state where the property is false; for leads-to, in one where the
    second predicate is still awaited.
    """
    search = _Search(graph, property)
    found = search.found()
    if found is None:
        return None
    end, loop = found
    stem = search.stem(end)
    return Lasso(property, tuple(int(graph.fingerprints[n]) for n in (*stem, *loop)), len(stem) - 1)


@dataclass
class FairCycles:
    """Finds states that a fair behaviour can visit forever without leaving a ``region``, visiting a state of ``must``
    again and again.

    ``far``: the distance of each state from the start, if it is not its level. The graph may lack states and steps,
    provided that it has all those of every fair component with a state of ``must``.
    """

    graph: Graph
    region: Array
    must: Array | None
    far: Array | None

    def found(self) -> tuple[int, list[int]] | None:
        """A state nearest to the start where the loop can begin, and the states after it on a short loop (none if the
        behaviour can stay there). None if there is no such state.
        """
        labels = self.fair()
        ends = self.nearest(labels)
        if not len(ends):
            return None
        parts: dict[int, _Part] = {}
        loops: list[list[int]] = []
        for end in ends[:CANDIDATES]:
            label = int(labels[end])
            if label not in parts:
                parts[label] = _Part(self.graph, np.flatnonzero(labels == label), self.must)
            loops.append(parts[label].loop(int(end)))
        shortest = min(range(len(loops)), key=lambda n: len(loops[n]))
        return int(ends[shortest]), loops[shortest]

    def fair(self) -> Array:
        """For every state, the number of its fair component within the region, or -1."""
        graph, terms = self.graph, self.graph.terms
        labels = np.full(len(graph), -1, np.int32)
        known = 0
        region = self.region
        while region.any():
            states, count, component = components(graph, region)
            order = np.argsort(component, kind="stable")
            begins = np.searchsorted(component[order], np.arange(count))
            enabled = graph.enabled[states]
            stepped = np.bitwise_or.reduceat(_stepped(graph, states, component)[order], begins)
            missing = np.bitwise_or.reduceat(~enabled[order], begins)
            somewhere = np.bitwise_or.reduceat(enabled[order], begins)
            possible = ((terms.weak & ~missing & ~stepped) == 0).all(axis=1)
            if self.must is not None:
                possible &= np.logical_or.reduceat(self.must[states][order], begins)
            starved = terms.strong & somewhere & ~stepped
            hungry = possible & (starved != 0).any(axis=1)
            good = possible & ~hungry
            numbers = np.where(good, known + np.cumsum(good) - 1, -1)
            labels[states] = numbers[component]
            known += int(good.sum())
            region = np.zeros(len(graph), bool)
            region[states] = hungry[component] & ((starved[component] & enabled) == 0).all(axis=1)
        return labels

    def nearest(self, labels: Array) -> Array:
        """The states nearest to the start that are in a fair component (and in ``must``)."""
        found = np.flatnonzero(labels >= 0 if self.must is None else (labels >= 0) & self.must)
        if len(found) and self.far is not None:
            near: Array = found[self.far[found] == self.far[found].min()]
            return near
        if len(found):
            level = np.searchsorted(self.graph.levels, found[0], "right")
            first: Array = found[found < self.graph.levels[level]]
            return first
        return found


class _Search(FairCycles):
    """The ``region`` where a property can be violated forever, the states that must be visited there, and the distance
    to each.

    For leads-to, the region has the states where the second predicate is false that are reached, without it becoming
    true, from one where the first is true. ``far[n]`` is the number of steps to state n through such a state. For other
    kinds the distance is the state's level.
    """

    def __init__(self, graph: Graph, property: Property) -> None:
        first = graph.true(property.predicates[0])
        super().__init__(graph, ~first, None, None)
        if property.kind == "eventually_always":
            self.region, self.must = np.ones(len(graph), bool), ~first
        elif property.kind == "leads_to":
            self.region = ~graph.true(property.predicates[1])
            self.pending = first & self.region
            self.far = self._spread()
            self.region = self.far >= 0

    def _spread(self) -> Array:
        graph = self.graph
        far = np.full(len(graph), -1, np.int32)
        reached, distance, depth = np.zeros(0, np.int64), 0, len(graph.levels) - 1
        while distance < depth or len(reached):
            if distance < depth:
                begin, end = graph.levels[distance], graph.levels[distance + 1]
                reached = distinct(np.concatenate([reached, begin + np.flatnonzero(self.pending[begin:end])]))
            reached = reached[far[reached] < 0]
            far[reached] = distance
            after = graph.targets[steps_of(graph.starts, reached)]
            reached = distinct(after[self.region[after] & (far[after] < 0)])
            distance += 1
        return far

    def stem(self, end: int) -> list[int]:
        """A shortest path from an initial state to ``end``; for leads-to, through a state where the wait begins."""
        levels = self.graph.levels
        path = [end]
        if self.far is not None:
            while (distance := self.far[path[0]]) != self._level(path[0]) or not self.pending[path[0]]:
                path.insert(0, self._before(path[0], np.flatnonzero(self.far == distance - 1)))
        while (level := self._level(path[0])) > 0:
            path.insert(0, self._before(path[0], np.arange(levels[level - 1], levels[level])))
        return path

    def _level(self, state: int) -> int:
        return int(np.searchsorted(self.graph.levels, state, "right")) - 1

    def _before(self, state: int, candidates: Array) -> int:
        """The first of the candidates with a step to ``state``."""
        for begin in range(0, len(candidates), CHUNK):
            some = candidates[begin : begin + CHUNK]
            steps = steps_of(self.graph.starts, some)
            hits = steps[self.graph.targets[steps] == state]
            if len(hits):
                return int(np.searchsorted(self.graph.starts, hits[0], "right")) - 1
        raise AssertionError(f"no step leads to state {state}")


def distinct(numbers: Array) -> Array:
    """The numbers sorted, without duplicates. Several times faster here than NumPy's unique, which hashes."""
    ordered = np.sort(numbers)
    found: Array = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered
    return found


def steps_of(starts: Array, states: Array) -> Array:
    """The indices of the steps out of some states, state by state."""
    begins = starts[states]
    counts = starts[states + 1] - begins
    return np.repeat(begins - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def chunks(graph: Graph) -> Iterator[tuple[slice, slice]]:
    """Split the states into ranges with about CHUNK steps, each with the range of its steps."""
    begin = 0
    while begin < len(graph):
        end = int(np.searchsorted(graph.starts, graph.starts[begin] + CHUNK, "right")) - 1
        end = min(max(end, begin + 1), begin + CHUNK, len(graph))
        yield slice(begin, end), slice(int(graph.starts[begin]), int(graph.starts[end]))
        begin = end


def components(graph: Graph, region: Array) -> tuple[Array, int, Array]:
    """The states of a region, the number of its strongly connected components, and the component of each state."""
    states = np.flatnonzero(region).astype(np.int32)
    number = np.cumsum(region, dtype=np.int32) - np.int32(1)
    inside = np.empty(len(graph.targets), bool)
    starts = np.zeros(len(graph) + 1, np.int32)
    for some, steps in chunks(graph):
        counts = np.diff(graph.starts[some.start : some.stop + 1])
        targets = graph.targets[steps]
        both = region[targets] & np.repeat(region[some], counts)
        # Several steps between the same two states are one edge. With duplicate edges, SciPy would not return.
        again = np.concatenate([[False], targets[1:] == targets[:-1]])
        again[graph.starts[some][counts > 0] - steps.start] = False
        both &= ~again
        inside[steps] = both
        totals = np.concatenate([[0], np.cumsum(both)])
        offsets = graph.starts[some.start : some.stop + 1] - graph.starts[some.start]
        starts[some.start + 1 : some.stop + 1] = np.diff(totals[offsets])
    starts = np.concatenate([[0], np.cumsum(starts[1:][states])]).astype(np.int32)
    edges = number[graph.targets[inside]]
    # Weights are ignored, so one number is broadcast to all edges.
    weights = np.broadcast_to(np.float64(1), edges.shape)
    matrix = csr_array((weights, edges, starts), shape=(len(states), len(states)))
    count, component = connected_components(matrix, directed=True, connection="strong")
    return states, int(count), component


def _stepped(graph: Graph, states: Array, component: Array) -> Array:
    """For each state, the fairness conditions that steps from it within its own component belong to."""
    label = np.full(len(graph), -1, np.int32)
    label[states] = component
    found = np.zeros((len(graph), graph.terms.words), np.uint64)
    for some, steps in chunks(graph):
        counts = np.diff(graph.starts[some.start : some.stop + 1])
        own = np.repeat(label[some], counts)
        masks = graph.terms.masks[graph.kinds[steps]]
        masks[(own < 0) | (own != label[graph.targets[steps]])] = 0
        busy = np.flatnonzero(counts)
        if len(busy):
            begins = graph.starts[some][busy] - graph.starts[some.start]
            found[some.start + busy] = np.bitwise_or.reduceat(masks, begins)
    return found[states]


class _Part:
    """One fair component: finds a short loop through it that is fair.

    States are renumbered, in order. A breadth-first search finds the nearest condition that is not met yet, one after
    the other.
    """

    def __init__(self, graph: Graph, states: Array, must: Array | None) -> None:
        self.terms = graph.terms
        self.states = states
        steps = steps_of(graph.starts, states)
        owners = np.repeat(np.arange(len(states)), graph.starts[states + 1] - graph.starts[states])
        places = np.searchsorted(states, graph.targets[steps])
        inside = places < len(states)
        inside[inside] = states[places[inside]] == graph.targets[steps][inside]
        self.targets, self.masks = places[inside], graph.terms.masks[graph.kinds[steps[inside]]]
        self.starts = np.searchsorted(owners[inside], np.arange(len(states) + 1))
        self.enabled = graph.enabled[states]
        self.must = must[states] if must is not None else np.ones(len(states), bool)

    def loop(self, end: int) -> list[int]:
        """The states after ``end`` on a path back to it; empty if the behaviour can stay there."""
        start = int(np.searchsorted(self.states, end))
        path = [start]
        self._weak, self._strong = self.terms.weak.copy(), np.zeros_like(self.terms.strong)
        self._stepped, self._visited = np.zeros_like(self.terms.weak), False
        self._arrive(start)
        while True:
            if self._weak.any() or (self._strong & ~self._stepped).any() or not self._visited:
                way = self._way(path[-1], None)
            elif path[-1] != start:
                way = self._way(path[-1], start)
            else:
                return [int(self.states[n]) for n in path[1:]]
            for before, after in zip([path[-1], *way], way, strict=False):
                self._step(before, after)
            path += way

    def _arrive(self, state: int) -> None:
        self._weak &= self.enabled[state]
        self._strong |= self.enabled[state] & self.terms.strong
        self._visited |= bool(self.must[state])

    def _step(self, before: int, after: int) -> None:
        steps = np.arange(self.starts[before], self.starts[before + 1])
        self._stepped |= np.bitwise_or.reduce(self.masks[steps[self.targets[steps] == after]], axis=0)
        self._weak &= ~self._stepped
        self._arrive(after)

    def _way(self, start: int, goal: int | None) -> list[int]:
        """The states after ``start`` on a shortest path to ``goal``, or to the nearest condition still to be met."""
        before = np.full(len(self.states), -1, np.int64)
        before[start] = start
        wanted = self._weak | (self._strong & ~self._stepped)
        frontier = np.array([start])
        while len(frontier):
            steps = steps_of(self.starts, frontier)
            owners = np.repeat(frontier, self.starts[frontier + 1] - self.starts[frontier])
            if goal is None:
                hits = np.flatnonzero((self.masks[steps] & wanted).any(axis=1))
                if len(hits):
                    return [*self._back(before, int(owners[hits[0]]), start), int(self.targets[steps[hits[0]]])]
            after, first = np.unique(self.targets[steps], return_index=True)
            new = before[after] < 0
            after, first = after[new], first[new]
            before[after] = owners[first]
            if goal is not None:
                found = after[after == goal]
            else:
                found = after[
                    (~self.enabled[after] & self._weak).any(axis=1) | (self.must[after] & (not self._visited))
                ]
            if len(found):
                return self._back(before, int(found[0]), start)
            frontier = after
        raise AssertionError("a fair component lacks what makes it fair")

    def _back(self, before: Array, state: int, start: int) -> list[int]:
        path = []
        while state != start:
            path.append(state)
            state = int(before[state])
        return path[::-1]
