"""Memory for the walks of `walks`, wherever they are taken: in a thread of this process, or in a task on a cluster."""

from __future__ import annotations

import math

import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.encoding import COUNTERS, MAX_OUTCOMES
from fencepost.checker.compiler.memory import reserve
from fencepost.checker.compiler.native import STACK_WORDS
from fencepost.checker.engines import walks
from fencepost.checker.engines.kernel import Arena, Work, work_with
from fencepost.checker.engines.walks import LEAF_ROOM, SKETCH_BITS, Past, Temporal, Walkers

LANES = 1024
"""Walks that a worker has under way at once: so many can wait for Python together."""
MOST_REMEMBERED = 1 << 24
"""States that the walks of a worker may have behind them: what they remember of each takes some 32 bytes."""


def lanes_for(depth: int, workers: int = 1) -> int:
    """How many walks of this depth each of so many workers has under way."""
    return max(1, min(LANES // max(1, workers // 4), MOST_REMEMBERED // depth))


def cells_for(positions: int, words: int) -> Array:
    """Room for the rows of so many states."""
    return reserve(positions * words, np.uint64).reshape(positions, words)


def arena_for(positions: int, words: int) -> Arena:
    """Room for so many states."""
    return Arena(
        cells=cells_for(positions, words),
        fp=reserve(positions, np.uint64),
        fp_high=reserve(positions, np.uint64),
        ref=reserve(positions, np.int64),
        meta=reserve(positions, np.int64),
        leaves=reserve(positions * LEAF_ROOM, np.int32),
        image=np.zeros((0, 0), np.uint64),
        image_high=np.zeros((0, 0), np.uint64),
    )


def work_for(lanes: int, roots: int) -> Work:
    """The scratch of one worker. ``roots``: of the protocol."""
    return work_with(
        counts=np.zeros(COUNTERS, np.int64),
        parked=np.zeros(lanes, np.int64),
        gates=np.zeros(roots + 1, np.int64),
        stack=np.zeros(STACK_WORDS, np.int64),
        best_fp=np.zeros(roots + 1, np.uint64),
        best_high=np.zeros(roots + 1, np.uint64),
        best_position=np.full(roots + 1, -1, np.int64),
    )


def walkers_for(base: int, lanes: int, roots: int, temporal: Temporal, depth: int) -> Walkers:
    """The idle lanes of one worker, whose states are at positions from ``base`` on, two for each. ``roots``: of the
    protocol.
    """
    n = lanes
    return Walkers(
        base=base,
        walk=np.full(n, -1, np.int64), step=np.zeros(n, np.int64), at=np.zeros(n, np.int64),
        broken=np.zeros(n, np.uint8),
        counted=np.zeros(n, np.int64), longest=np.zeros(1, np.int64), sketch=np.zeros(1 << SKETCH_BITS, np.uint8),
        chosen=reserve(MAX_OUTCOMES, np.int64), lowest=np.full(roots + 1, -1, np.int64),
        lowest_step=np.full(roots + 1, -1, np.int64),
        lowest_loop=np.full(roots + 1, -1, np.int64),
        past=_past(n, temporal, depth),
    )  # fmt: skip


def _past(lanes: int, temporal: Temporal, depth: int) -> Past:
    words, truth_words = temporal.weak.size, temporal.predicates.size // 64 + 1
    # Nothing is remembered if there is nothing to judge by it.
    n, depth = (lanes, depth) if temporal.predicates.size else (1, 1)

    def history(*each: int) -> Array:
        return reserve(n * depth * math.prod(each), np.uint64).reshape(n, depth, *each)

    conditions, truths = np.zeros(words, np.uint64), np.zeros(truth_words, np.uint64)
    return Past(
        fp=history(), enabled=history(words), stepped=history(words), truths=history(truth_words),
        marks=np.zeros((n, walks.MARKS), np.int64), somewhere=conditions.copy(), everywhere=conditions.copy(),
        true_somewhere=truths.copy(), true_everywhere=truths.copy(), taken=conditions,
    )  # fmt: skip
