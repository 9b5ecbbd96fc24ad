"""The compiled loops of a level on Spark. The embedded engine's `kernel` expands and builds single states. The loops
here sort candidates by fingerprint, and compare sorted candidates with sorted runs of visited states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.encoding import (
    PARKS,
    meta_count,
    meta_first,
    pack_meta,
    pack_reference,
    reference_outcome,
    reference_parent,
    span_count,
)
from fencepost.checker.compiler.instructions import load, store
from fencepost.checker.compiler.native import entry_of
from fencepost.checker.engines import kernel
from fencepost.files.loops import inner, njit


@njit
def expand(c, levels, w, labels, steps, begin, end, at, candidates, filled):
    """Write the candidates of the rows [begin, end) from index ``at``. Returns their end."""
    rest = kernel.Candidates(
        candidates.fp[at:].reshape(1, -1),
        candidates.high[at if levels.wide else 0 :].reshape(1, -1),
        candidates.ref[at:].reshape(1, -1),
    )
    kernel.generate(c, levels, w, labels, steps, begin, end, rest, filled)
    return at + filled[0, 0]


@njit
def build(c, levels, w, steps, found):
    """Build the rows of the next ``found`` states."""
    kernel.build(c, levels, w, steps, found)


@njit
def complete(c, g, levels, w, asks):
    """Complete parked rows as far as master tries go, before the next chunk is built. Other rows stay parked."""
    kernel.complete(c, g, levels, w, asks)
    w.counts[PARKS] = 0
    relink(c)


@njit
def relink(c):
    """Update the entries of outcomes to their tries: an entry has a copy of the first node of its trie."""
    for k in range(c.trie.size):
        # Entries of step properties are not here, so the array has unused room.
        if c.trie[k]:
            c.word[k] = entry_of(c.pool, c.place, c.roots[c.trie[k]])


@njit(inline="always")
def earlier(c, fp, high, one, other, wide):
    """Whether step ``one`` to a state comes before step ``other`` to it: by parent, then by action and choices.

    The parent's fingerprint is the child's, XORed with the outcome's delta.
    """
    mine, theirs = fp ^ load(c.delta, one), fp ^ load(c.delta, other)
    if mine != theirs:
        return mine < theirs
    if wide:
        mine, theirs = high ^ load(c.delta_high, one), high ^ load(c.delta_high, other)
        if mine != theirs:
            return mine < theirs
    return kernel.precedes(c, one, other)


class Steps(NamedTuple):
    """Steps to candidates, with symmetry. A key does not tell that of the parent, so both halves of it (uint64) are
    here, beside the reference (int64).
    """

    fp: Array
    high: Array
    ref: Array


@njit(inline="always")
def earlier_of(c, steps, one, other, wide):
    """The same as :func:`earlier`, for the numbers of two of the ``steps``."""
    mine, theirs = load(steps.fp, one), load(steps.fp, other)
    if mine != theirs:
        return mine < theirs
    if wide:
        mine, theirs = load(steps.high, one), load(steps.high, other)
        if mine != theirs:
            return mine < theirs
    return kernel.precedes(c, reference_outcome(load(steps.ref, one)), reference_outcome(load(steps.ref, other)))


class Buckets(NamedTuple):
    """The buckets of :func:`sort`: bucket b has the fingerprints with ``(fp - least) >> shift == b`` (uint64).

    ``begins`` (int64, one more than there are buckets) and ``ends`` (int64) are scratch.
    """

    least: np.uint64
    shift: np.uint64
    begins: Array
    ends: Array


@njit
def sort(c, candidates, n, steps, buckets, out, wide):
    """Sort the first ``n`` candidates by fingerprint into ``out``, and keep only the first step to each state. Returns
    the number kept. With symmetry, the references of candidates are numbers of ``steps``, which is None otherwise.

    Fingerprints are uniform. One pass distributes them into buckets of about four, each kept sorted as it fills. A
    bucket keeps one candidate for each fingerprint.
    """
    fps, highs, refs = candidates.fp, candidates.high, candidates.ref
    out_fps, out_highs, out_refs = out.fp, out.high, out.ref
    begins, ends, least, shift = buckets.begins, buckets.ends, buckets.least, buckets.shift
    count = begins.size - 1
    for b in range(count + 1):
        begins[b] = 0
    for i in range(n):
        begins[np.int64((fps[i] - least) >> shift) + 1] += 1
    for b in range(count):
        begins[b + 1] += begins[b]
        ends[b] = begins[b]
    for i in range(n):
        fp, ref = load(fps, i), load(refs, i)
        high = load(highs, i) if wide else np.uint64(0)
        b = np.int64((fp - least) >> shift)
        first, end = load(begins, b), load(ends, b)
        k = end
        while k > first and (
            load(out_fps, k - 1) > fp or (wide and load(out_fps, k - 1) == fp and load(out_highs, k - 1) > high)
        ):
            k -= 1
        if k > first and load(out_fps, k - 1) == fp and (not wide or load(out_highs, k - 1) == high):
            other = load(out_refs, k - 1)
            if steps is None:
                is_first = earlier(c, fp, high, reference_outcome(ref), reference_outcome(other), wide)
            else:
                is_first = earlier_of(c, steps, ref, other, wide)
            if is_first:
                store(out_refs, k - 1, ref)
            continue
        for j in range(end, k, -1):
            store(out_fps, j, load(out_fps, j - 1))
            store(out_refs, j, load(out_refs, j - 1))
            if wide:
                store(out_highs, j, load(out_highs, j - 1))
        store(out_fps, k, fp)
        store(out_refs, k, ref)
        if wide:
            store(out_highs, k, high)
        store(ends, b, end + 1)
    at = 0
    for b in range(count):
        for k in range(begins[b], ends[b]):
            store(out_fps, at, load(out_fps, k))
            store(out_refs, at, load(out_refs, k))
            if wide:
                store(out_highs, at, load(out_highs, k))
            at += 1
    return at


@njit
def mark_visited(fps, highs, i, run, run_highs, seen, wide):
    """Mark the sorted candidates, from index ``i``, that are in a block of a sorted run. Returns the index of the
    candidate with which the next block begins.
    """
    n, size = fps.size, run.size
    k = 0
    while i < n and k < size:
        mine, theirs = load(fps, i), load(run, k)
        if mine == theirs and (not wide or load(highs, i) == load(run_highs, k)):
            seen[i] = 1
            i += 1
            k += 1
        elif theirs < mine or (wide and theirs == mine and load(run_highs, k) < load(highs, i)):
            k += 1
        else:
            i += 1
    return i


class Visited(NamedTuple):
    """States of a run: sorted fingerprints (uint64, low and high halves), and the outcome (uint32) that discovered
    each. With symmetry, also the fingerprints of the states that these outcomes lead from.
    """

    fp: Array
    high: Array
    outcome: Array
    parent: Array
    parent_high: Array


@inner
def put(out, at, visited, i, wide, symmetric):
    """Copy one state of a run."""
    out.fp[at] = visited.fp[i]
    out.outcome[at] = visited.outcome[i]
    if wide:
        out.high[at] = visited.high[i]
    if symmetric:
        out.parent[at] = visited.parent[i]
    if wide and symmetric:
        out.parent_high[at] = visited.parent_high[i]


@njit
def merge(one, other, out, wide, symmetric):
    """Merge two sorted runs."""
    i = k = 0
    for at in range(out.fp.size):
        if k == other.fp.size or (
            i < one.fp.size
            and (one.fp[i] < other.fp[k] or (wide and one.fp[i] == other.fp[k] and one.high[i] < other.high[k]))
        ):
            put(out, at, one, i, wide, symmetric)
            i += 1
        else:
            put(out, at, other, k, wide, symmetric)
            k += 1


@njit
def fingerprints(c, old, w, labels, start, candidates, wide):
    """Write the children's fingerprints for references whose parent is a number in the level. Converts those numbers to
    positions. With symmetry, they are the keys of the children's orbits.
    """
    fps, highs, refs = candidates.fp, candidates.high, candidates.ref
    symmetric = old.image.size > 0
    for i in range(refs.size):
        outcome = reference_outcome(refs[i])
        parent = reference_parent(refs[i]) - start
        refs[i] = pack_reference(parent, outcome)
        if symmetric:
            low, high = kernel.child_key(c, old, w, labels, parent, outcome, wide)
        else:
            low = old.fp[parent] ^ c.delta[outcome]
            high = old.fp_high[parent] ^ c.delta_high[outcome] if wide else np.uint64(0)
        fps[i] = low
        if wide:
            highs[i] = high


@njit
def outcomes_possible(c, leaves):
    """The most candidates that rows with these leaves can have together."""
    total = 0
    for leaf in leaves:
        total += span_count(c.leaf_span[leaf])
    return total


@njit
def close_up(arena, rows, wide):
    """Move rows, given in ascending order, to the start of an arena."""
    for i in range(rows.size):
        k = rows[i]
        if k != i:
            for x in range(arena.cells.shape[1]):
                arena.cells[i, x] = arena.cells[k, x]
            arena.fp[i] = arena.fp[k]
            arena.ref[i] = arena.ref[k]
            arena.meta[i] = arena.meta[k]
            for g in range(arena.image.shape[1]):
                arena.image[i, g] = arena.image[k, g]
            if wide:
                arena.fp_high[i] = arena.fp_high[k]
                for g in range(arena.image.shape[1]):
                    arena.image_high[i, g] = arena.image_high[k, g]


@njit
def gather_leaves(arena, order, metas, leaves, count):
    """Gather the leaves of rows, and the index where each row's start. Returns the number of leaves. ``count``: return
    only that number.
    """
    at = 0
    for i in range(order.size):
        meta = arena.meta[order[i]]
        first, n = meta_first(meta), meta_count(meta)
        if not count:
            metas[i] = pack_meta(at, n)
            for k in range(n):
                leaves[at + k] = arena.leaves[first + k]
        at += n
    return at
