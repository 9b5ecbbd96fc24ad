"""Shortens a behaviour that shows a difference."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from fencepost.behaviours import Trace
from fencepost.testing.graph import Graph, Move
from fencepost.testing.system import Adapter, Behaviour
from fencepost.testing.walk import Difference

MOST_RUNS = 2_000
"""The most behaviours that are tried."""


class Shown(NamedTuple):
    """A difference and a behaviour that shows it, with its last step."""

    moves: tuple[Move, ...]
    trace: Trace
    difference: Difference


class Shrunk(NamedTuple):
    """The shortest behaviour that was found. ``repeats``: whether a second run showed a difference at all.
    ``is_shortest``: whether every shorter behaviour was tried.
    """

    shown: Shown
    repeats: bool
    is_shortest: bool


def run(adapter: Adapter, graph: Graph, seed: int, moves: Sequence[Move]) -> Shown | None:
    """The first difference on these moves, with the behaviour up to it. None if there is none, also because the
    protocol does not allow them.
    """
    with Behaviour(adapter, graph, seed) as behaviour:
        try:
            behaviour.begin()
            for move in moves:
                done = len(behaviour.moves)
                behaviour.take(move)
                if len(behaviour.moves) == done:
                    return None
        except Difference as difference:
            return Shown(tuple(behaviour.moves), behaviour.trace, difference)
    return None


def shrunk(
    adapter: Adapter, graph: Graph, seed: int, found: Shown, is_over: Callable[[], bool] = lambda: False
) -> Shrunk:
    """The shortest behaviour that shows a difference: first by leaving out steps of ``found``, then by trying all that
    are shorter, if they are few enough.
    """
    again = run(adapter, graph, seed, found.moves)
    if again is None:
        return Shrunk(found, repeats=False, is_shortest=False)
    best, runs = again, 0

    def fails(moves: Sequence[Move]) -> bool:
        nonlocal best, runs
        runs += 1
        shown = run(adapter, graph, seed, moves)
        if shown is None or len(shown.moves) >= len(best.moves):
            return False
        best = shown
        return True

    is_done = False
    while not is_done:
        is_done = True
        for moves in _shorter(graph, best):
            if runs >= MOST_RUNS // 2 or is_over():
                break
            if fails(moves):
                is_done = False
                break
    for length in range(len(best.moves)):
        for moves in _all_of(adapter, graph, best, length):
            if runs >= MOST_RUNS or is_over():
                return Shrunk(best, repeats=True, is_shortest=False)
            if fails(moves):
                return Shrunk(best, repeats=True, is_shortest=not graph.is_cut)
    return Shrunk(best, repeats=True, is_shortest=not graph.is_cut)


def _shorter(graph: Graph, shown: Shown) -> Iterator[tuple[Move, ...]]:
    """Shorter behaviours, the largest reductions first: the last moves after the shortest way to where they begin, then
    all without some moves.
    """
    moves = shown.moves
    states = [graph.fingerprint(state.ids) for state in shown.trace.states]
    ways = _ways(graph, states[0])
    kept = 1
    while kept < len(moves):
        way = ways.get(states[len(moves) - kept])
        if way is not None and len(way) + kept < len(moves):
            yield (*way, *moves[-kept:])
        kept *= 2
    size = len(moves) // 2
    while size:
        for start in range(0, len(moves), size):
            yield moves[:start] + moves[start + size :]
        size //= 2


def _ways(graph: Graph, start: int) -> dict[int, tuple[Move, ...]]:
    """The shortest way to each state."""
    found: dict[int, tuple[Move, ...]] = {start: ()}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        for edge in graph.edges.get(state, ()):
            if edge.target not in found:
                found[edge.target] = (*found[state], graph.move(edge))
                waiting.append(edge.target)
    return found


def _all_of(adapter: Adapter, graph: Graph, shown: Shown, length: int) -> Iterator[tuple[Move, ...]]:
    """Every behaviour of this length from where ``shown`` begins, with calls that are refused."""

    def onward(state: int, left: int) -> Iterator[tuple[Move, ...]]:
        if not left:
            yield ()
            return
        for edge in graph.edges.get(state, ()):
            if edge.action not in adapter.left_out:
                for rest in onward(edge.target, left - 1):
                    yield (graph.move(edge), *rest)
        for root in graph.refused(state, adapter.refuses):
            for rest in onward(state, left - 1):
                yield (Move(root, is_refused=True), *rest)

    yield from onward(graph.fingerprint(shown.trace.initial.ids), length)
