"""Shortens a behaviour that shows a difference."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from fencepost.behaviours import Trace
from fencepost.testing.graph import Graph, Move
from fencepost.testing.system import Adapter, Behaviour
from fencepost.testing.walk import Difference

MOST_RUNS = 3_000
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
    are not longer, if they are few enough. The result is the first of these, so that it does not depend on ``found``.
    """
    again = run(adapter, graph, seed, found.moves)
    if again is None:
        return Shrunk(found, repeats=False, is_shortest=False)
    best, tried = again, set[tuple[Any, ...]]()

    def fails(moves: Sequence[Move]) -> Shown | None:
        which = tuple((move.root.index, move.choices, move.is_refused) for move in moves)
        if which in tried:
            return None
        tried.add(which)
        return run(adapter, graph, seed, moves)

    def leave_out() -> bool:
        """Leave out what can be left out at once. Returns whether there was anything."""
        nonlocal best
        for moves in _shorter(adapter, graph, best):
            if len(tried) >= MOST_RUNS // 3 or is_over():
                return False
            shown = fails(moves)
            if shown is not None and len(shown.moves) < len(best.moves):
                best = shown
                return True
        return False

    def try_all(below: int, most: int, refuse_anywhere: bool) -> bool:
        """Try all that are shorter than ``below``. Returns whether the shortest of them is known."""
        nonlocal best
        for length in range(below):
            for moves in _all_of(adapter, graph, best, length, refuse_anywhere):
                if len(tried) >= most or is_over():
                    return False
                shown = fails(moves)
                if shown is not None:
                    best = shown
                    return True
        return True

    while leave_out():
        pass
    tried.clear()
    # Most differences show without calls that were refused before, and there are far fewer behaviours without them.
    try_all(len(best.moves) + 1, MOST_RUNS // 2, refuse_anywhere=False)
    is_shortest = try_all(len(best.moves), MOST_RUNS, refuse_anywhere=True)
    return Shrunk(best, repeats=True, is_shortest=is_shortest and not graph.is_cut)


def _shorter(adapter: Adapter, graph: Graph, shown: Shown) -> Iterator[tuple[Move, ...]]:
    """Shorter behaviours, the largest reductions first: the last moves after the shortest way to where they begin, then
    all without some moves.
    """
    moves = shown.moves
    states = [graph.fingerprint(state.ids) for state in shown.trace.states]
    ways = _ways(graph, states[0], adapter.left_out)
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


def _ways(graph: Graph, start: int, left_out: Collection[str]) -> dict[int, tuple[Move, ...]]:
    """The shortest way to each state, without the actions that cannot be driven."""
    found: dict[int, tuple[Move, ...]] = {start: ()}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        for edge in graph.edges.get(state, ()):
            if edge.target not in found and edge.action not in left_out:
                found[edge.target] = (*found[state], graph.move(edge))
                waiting.append(edge.target)
    return found


def _all_of(
    adapter: Adapter, graph: Graph, shown: Shown, length: int, refuse_anywhere: bool
) -> Iterator[tuple[Move, ...]]:
    """Every behaviour of this length from where ``shown`` begins. Calls that are refused are the last, or anywhere."""

    def onward(state: int, left: int) -> Iterator[tuple[Move, ...]]:
        if not left:
            yield ()
            return
        for edge in graph.edges.get(state, ()):
            if edge.action not in adapter.left_out:
                for rest in onward(edge.target, left - 1):
                    yield (graph.move(edge), *rest)
        for root in graph.refused(state, adapter.refuses) if refuse_anywhere or left == 1 else ():
            for rest in onward(state, left - 1):
                yield (Move(root, is_refused=True), *rest)

    yield from onward(graph.fingerprint(shown.trace.initial.ids), length)
