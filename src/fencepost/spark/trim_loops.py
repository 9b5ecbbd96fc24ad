"""The compiled loops of trimming: one pass over the steps of a partition. Sets of states are 64-bit words."""

from __future__ import annotations

import numpy as np

from fencepost.files.loops import inner, njit


@inner
def any_of(numbers, begin, end, words):
    """Whether any of the states ``numbers[begin:end]`` is in a set."""
    for i in range(begin, end):
        number = np.int64(numbers[i])
        if words[number >> 6] >> np.uint64(number & 63) & np.uint64(1) != 0:
            return True
    return False


@njit
def trim_rows(rows, starts, others, first, alive):
    """Remove from a set the states of a partition without a step to a state in the set. Returns how many."""
    removed = 0
    for k in range(rows.size):
        n = first + np.int64(rows[k])
        bit = np.uint64(1) << np.uint64(n & 63)
        if alive[n >> 6] & bit != 0 and not any_of(others, starts[k], starts[k + 1], alive):
            alive[n >> 6] &= ~bit
            removed += 1
    return removed


@njit
def grow_rows(rows, starts, others, first, within, grown):
    """Add to the set ``grown`` the states of a partition that are ``within`` another set and have a step to a state in
    ``grown``. Returns how many.
    """
    added = 0
    for k in range(rows.size):
        n = first + np.int64(rows[k])
        bit = np.uint64(1) << np.uint64(n & 63)
        if within[n >> 6] & ~grown[n >> 6] & bit != 0 and any_of(others, starts[k], starts[k + 1], grown):
            grown[n >> 6] |= bit
            added += 1
    return added


@njit
def one_step(rows, starts, others, first, within, before, after):
    """Add to ``after`` the states of a partition that are ``within`` a set and have a step to a state in ``before``."""
    for k in range(rows.size):
        n = first + np.int64(rows[k])
        bit = np.uint64(1) << np.uint64(n & 63)
        if within[n >> 6] & bit != 0 and any_of(others, starts[k], starts[k + 1], before):
            after[n >> 6] |= bit
