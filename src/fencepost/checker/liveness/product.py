"""A graph times the automaton of a formula's negation: its fair and accepted cycles are the violations of the formula.

A node of the product is a state of the graph with a state of the automaton. The product has the form of a graph, with
each acceptance set as a weak fairness condition that is always enabled. So :class:`FairCycles` finds the cycles.

A behaviour may stay in any state. In the product this is a step, since the automaton may move. It is of no sort, and
takes no time: a node's level is the number of steps of the graph that lead to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fencepost.checker.liveness.automaton import Automaton, Literal, Transition
from fencepost.checker.liveness.graph import Array, Graph, Measures, Property, mask
from fencepost.checker.liveness.judge import FairCycles, Lasso, distinct, steps_of
from fencepost.errors import SystemFailure

NODE_BYTES = 64
EDGE_BYTES = 64
"""The most bytes that one node and one edge take until the product is judged."""


def violation(graph: Graph, property: Property, room: int) -> Lasso | None:
    """A fair behaviour of a graph for which a formula is false; None if there is none. Its stem is as short as
    possible.

    ``room``: the bytes that the product may take. Raises :class:`fencepost.SystemFailure` if it outgrows them.
    """
    refuting = property.refuting
    if refuting is None or not refuting.transitions[0]:
        return None
    product = _Building(one_step_each(graph), refuting, room).product()
    found = FairCycles(product.graph, np.ones(len(product.graph), bool), None, None).found()
    if found is None:
        return None
    end, loop = found
    stem = _without_stays([product.states[node] for node in product.stem(end)])
    states, first = rolled([*stem, *(product.states[node] for node in loop)], len(stem) - 1)
    return Lasso(property, tuple(int(graph.fingerprints[n]) for n in states), first)


def rolled(states: list[int], first: int) -> tuple[list[int], int]:
    """The same behaviour, which repeats from ``states[first]``, in fewer steps: without those in which it stays, and
    with the end of its stem as part of its loop where it is.
    """
    loop = _without_stays(states[first:])
    while first and len(loop) > 1 and states[first - 1] == loop[-2]:
        first, loop = first - 1, [loop[-2], *loop[:-1]]
    return [*states[:first], *loop], first


def _without_stays(states: list[int]) -> list[int]:
    return [state for place, state in enumerate(states) if place == 0 or state != states[place - 1]]


def one_step_each(graph: Graph) -> Graph:
    """The graph with one step between any two states. It is of every kind that one of theirs was of."""
    again = graph.targets[1:] == graph.targets[:-1]
    borders = graph.starts[(graph.starts > 0) & (graph.starts < len(graph.targets))]
    again[borders - 1] = False
    if not again.any():
        return graph
    firsts = np.flatnonzero(np.concatenate([[True], ~again]))
    masks = np.bitwise_or.reduceat(graph.terms.masks[graph.kinds], firsts)
    different, kinds = np.unique(masks, axis=0, return_inverse=True)
    starts = np.searchsorted(firsts, graph.starts)
    measures = graph.terms._replace(masks=different)
    return Graph(
        measures, graph.fingerprints, graph.levels, starts, graph.targets[firsts], kinds.reshape(-1), graph.enabled,
        graph.truths,
    )  # fmt: skip


class Edges(NamedTuple):
    """Edges of the product: the numbers of the nodes they lead from, the keys of those they lead to, their kinds."""

    sources: Array
    keys: Array
    kinds: Array


@dataclass
class Product:
    """The product. ``states``: the state of each node. ``before``: a node on a shortest way to each."""

    graph: Graph
    states: list[int]
    before: Array

    def stem(self, end: int) -> list[int]:
        """The nodes on a shortest way to a node."""
        path = [end]
        while self.before[path[-1]] >= 0:
            path.append(int(self.before[path[-1]]))
        return path[::-1]


class _Building:
    """Builds the product level by level. A node has the key ``state * size + automaton's state``."""

    def __init__(self, graph: Graph, refuting: Automaton, room: int) -> None:
        self.graph, self.refuting, self.room = graph, refuting, room
        self.size = len(refuting.transitions)
        self.accepting = sorted({t.accepting for out in refuting.transitions for t in out}, key=sorted)
        """The combinations of acceptance sets that transitions are in."""
        self.stay = len(graph.terms.masks)
        """The kind of the step in which the behaviour stays."""
        self.need(len(graph) * self.size * 4)
        self.number = np.full(len(graph) * self.size, -1, np.int32)
        self.nodes: list[Array] = []
        self.before: list[Array] = []
        self.levels = [0]
        self.edges: list[Edges] = []
        self.count = self.steps = 0

    def need(self, bytes: int) -> None:
        """Raises :class:`fencepost.SystemFailure` if the product outgrows its room."""
        if bytes > self.room:
            raise SystemFailure("the memory limit has no room for the graph times the formula's automaton")

    def product(self) -> Product:
        initial = np.arange(self.graph.levels[1], dtype=np.int64) * self.size
        new = Edges(np.full(len(initial), -1, np.int32), initial, initial)
        while len(new.keys):
            whole: list[Array] = []
            while len(new.keys):
                numbers = self._admit(new)
                whole.append(new.keys)
                new = self._firsts(self._stays(new.keys, numbers))
            self.levels.append(self.count)
            keys = np.concatenate(whole)
            new = self._firsts(self._moves(keys, self.number[keys]))
        return self._laid_out()

    def _admit(self, new: Edges) -> Array:
        """Number new nodes, each with one edge to it. Returns their numbers."""
        numbers = np.arange(self.count, self.count + len(new.keys), dtype=np.int32)
        self.number[new.keys] = numbers
        self.count += len(new.keys)
        self.nodes.append(new.keys)
        self.before.append(new.sources)
        self.need(self.count * (NODE_BYTES + 16 * self.graph.terms.words) + self.steps * EDGE_BYTES)
        return numbers

    def _firsts(self, found: Iterator[Edges]) -> Edges:
        """Keep edges, and return the first one to each new node, by its key."""
        some = [edges for edges in found if len(edges.keys)]
        self.edges += some
        self.steps += sum(len(edges.keys) for edges in some)
        sources, keys = (
            np.concatenate([np.zeros(0, np.int64), *(getattr(edges, name) for edges in some)])
            for name in ("sources", "keys")
        )
        sources, keys = sources[self.number[keys] < 0], keys[self.number[keys] < 0]
        keys, first = np.unique(keys, return_index=True)
        return Edges(sources[first].astype(np.int32), keys, keys)

    def _taken(self, keys: Array) -> Iterator[tuple[Transition, Array]]:
        """The transitions that the states of these nodes allow, and the places of those nodes."""
        states, places = np.divmod(keys, self.size)
        for place in distinct(places).tolist():
            here = np.flatnonzero(places == place)
            for transition in self.refuting.transitions[place]:
                allowed = here
                for literal in transition.label:
                    if literal[0][0] != "stepped":
                        allowed = allowed[self._true_in(literal, states[allowed])]
                yield transition, allowed

    def _stays(self, keys: Array, numbers: Array) -> Iterator[Edges]:
        for transition, allowed in self._taken(keys):
            if not any(sort == "stepped" and positive for (sort, _), positive in transition.label):
                to = keys[allowed] // self.size * self.size + transition.target
                yield Edges(numbers[allowed], to, self._kinds(np.full(len(to), self.stay), transition))

    def _moves(self, keys: Array, numbers: Array) -> Iterator[Edges]:
        graph = self.graph
        for transition, allowed in self._taken(keys):
            states = keys[allowed] // self.size
            steps = steps_of(graph.starts, states)
            sources = np.repeat(numbers[allowed], graph.starts[states + 1] - graph.starts[states])
            for literal in transition.label:
                if literal[0][0] == "stepped":
                    true = self._true_of(literal, steps)
                    steps, sources = steps[true], sources[true]
            to = graph.targets[steps].astype(np.int64) * self.size + transition.target
            yield Edges(sources, to, self._kinds(graph.kinds[steps], transition))

    def _kinds(self, kinds: Array, transition: Transition) -> Array:
        return kinds.astype(np.int32) * np.int32(len(self.accepting)) + np.int32(
            self.accepting.index(transition.accepting)
        )

    def _true_in(self, literal: Literal, states: Array) -> Array:
        (sort, number), positive = literal
        return _has(self.graph.truths if sort == "true" else self.graph.enabled, states, number, positive)

    def _true_of(self, literal: Literal, steps: Array) -> Array:
        (_, bit), positive = literal
        return _has(self.graph.terms.masks, self.graph.kinds[steps], bit, positive)

    def _laid_out(self) -> Product:
        """The product as a graph, with the edges of each node in the order of their targets."""
        graph, sets = self.graph, self.refuting.sets
        nodes, before = np.concatenate(self.nodes), np.concatenate(self.before)
        sources, targets, kinds = (
            np.concatenate([np.zeros(0, np.int32), *parts])
            for parts in (
                [edges.sources for edges in self.edges],
                [self.number[edges.keys] for edges in self.edges],
                [edges.kinds for edges in self.edges],
            )
        )
        self.edges = []
        order = np.lexsort((kinds, targets, sources))
        sources, targets, kinds = sources[order], targets[order], kinds[order]
        starts = np.searchsorted(sources, np.arange(self.count + 1))
        states = nodes // self.size
        always = mask(range(sets), sets // 64 + 1)
        accepted = np.array([mask(some, sets // 64 + 1) for some in self.accepting])
        steps = np.vstack([graph.terms.masks, np.zeros((1, graph.terms.words), np.uint64)])
        measures = Measures(
            graph.terms.words + len(always),
            graph.terms.truth_words,
            np.concatenate([graph.terms.weak, always]),
            np.concatenate([graph.terms.strong, np.zeros_like(always)]),
            np.hstack([np.repeat(steps, len(accepted), axis=0), np.tile(accepted, (len(steps), 1))]),
        )
        enabled = np.hstack([graph.enabled[states], np.broadcast_to(always, (self.count, len(always)))])
        whole = Graph(
            measures, nodes, np.array(self.levels), starts, targets, kinds, enabled, np.zeros((0, 0), np.uint64)
        )
        return Product(whole, states.tolist(), before)


def _has(words: Array, rows: Array, bit: int, positive: bool) -> Array:
    """Which of these rows of bits have a bit, or do not."""
    found: Array = (words[rows, bit >> 6] & np.uint64(1 << (bit & 63)) != 0) == positive
    return found
