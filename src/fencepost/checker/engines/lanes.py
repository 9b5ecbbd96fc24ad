"""Memory for the walks of `walks`, in a thread of this process or in a task of a cluster."""

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
"""Concurrent walks of one worker. All of them can wait for Python together."""
MOST_REMEMBERED = 1 << 24
"""States in the histories of one worker's walks. Each takes some 32 bytes."""


def lanes_for(depth: int, workers: int = 1) -> int:
    """The number of concurrent walks of this depth for each worker."""
    return max(1, min(LANES // max(1, workers // 4), MOST_REMEMBERED // depth))


def cells_for(positions: int, words: int) -> Array:
    """Memory for the rows of this number of states."""
    return reserve(positions * words, np.uint64).reshape(positions, words)


def arena_for(positions: int, words: int) -> Arena:
    """Memory for this number of states."""
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
    """The scratch memory of one worker. ``roots``: the number of the protocol's roots."""
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
    """The idle lanes of one worker. Its states are at positions from ``base``, two for each lane. ``roots``: the number
    of the protocol's roots.
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
    # No history if there is no temporal property.
    n, depth = (lanes, depth) if temporal.predicates.size else (1, 1)

    def history(*each: int) -> Array:
        return reserve(n * depth * math.prod(each), np.uint64).reshape(n, depth, *each)

    conditions, truths = np.zeros(words, np.uint64), np.zeros(truth_words, np.uint64)
    return Past(
        fp=history(), enabled=history(words), stepped=history(words), truths=history(truth_words),
        marks=np.zeros((n, walks.MARKS), np.int64), somewhere=conditions.copy(), everywhere=conditions.copy(),
        true_somewhere=truths.copy(), true_everywhere=truths.copy(), taken=conditions,
    )  # fmt: skip
