"""The compiled loops of the embedded engine: they expand a level, complete parked states, and sort a level.

A **level** is expanded in rounds. In each round every worker takes the next block of the level, in the order of
fingerprints, and computes the fingerprints of all successors. An outcome changes every fingerprint by the same delta,
so this reads only the fingerprints and enabled leaves of states. A candidate goes to the worker that owns its
fingerprint. Once all workers have generated the candidates of a round, each owner takes its own in the order of their
parents, looks them up, and builds rows of the new ones only. So the least step that leads to a state discovers it,
whatever the number of workers.

A new row inherits its parent's enabled leaves, drops those that the outcome can change, and walks a trie for each root
that the outcome can enable. It is a residual trie: it does not test what the outcome fixes. A row is **parked** if a
trie has no path for it. The driver completes it with :func:`complete` and, where the master trie has no path either,
with Python.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.canonical import REMEMBERED, labelled_key
from fencepost.checker.compiler.encoding import (
    ASKED,
    BASE,
    CAPACITY,
    COUNT,
    DEADLOCK,
    DISABLED,
    FORK_ENTRY,
    INEXACT,
    INITIAL,
    LEAF_BASE,
    LEAF_TOP,
    MISS,
    NO_STEP,
    OUT,
    OUTSIDE,
    PARKED,
    PARKS,
    PENDING,
    USED,
    ZERO,
    entry_node,
    entry_where,
    is_fork,
    is_inside,
    meta_end,
    meta_first,
    node_cell,
    node_room,
    pack_link,
    pack_meta,
    pack_reference,
    reference_outcome,
    reference_parent,
    span_end,
    span_first,
    word_leaf,
)
from fencepost.checker.compiler.instructions import (
    atomic_add,
    atomic_load,
    find_in_line,
    load,
    prefetch,
    store,
    yield_processor,
)
from fencepost.checker.compiler.native import ASK, RESOLVED, field, has_bit, mixed, resolve, walk
from fencepost.files.loops import inner, njit

BLOCK = 2048
"""States that a worker takes in a round. With their successors they fit its cache."""
AHEAD = 16
"""How many elements ahead memory is prefetched."""
MOVED = 1 << 16
"""Table entries moved at once when a table grows."""
SMALL = 1 << 21
"""The capacity from which a table grows by half. A smaller one takes two such steps at once."""
SLACK = 1 << 16
"""Entries behind a table's capacity, for probes past its end."""
LOAD_NUMERATOR, LOAD_DENOMINATOR = 3, 4
"""The load limit: a table that is fuller than this fraction of its capacity grows."""
ROUNDS_AHEAD = 1
"""Rounds that a worker, among several, generates ahead before it waits for the others."""
TURNS = 2 * ROUNDS_AHEAD + 2
"""Rounds whose candidates have a buffer, which later rounds reuse. Let A be ROUNDS_AHEAD. A worker that begins round k
has seen the others generate round k - A - 1. A worker that has generated round j has taken the candidates of all rounds
before j - A. So those of round k - 2A - 2 are taken, and their buffer is free.
"""
LINE = 8
"""Numbers in a cache line."""
PART_BITS, BUCKET_BITS = 13, 9
"""Leading bits of a fingerprint by which a level is sorted: first those of the part, then those of the bucket."""
PART_HEADS, BUCKET_HEADS = (1 << PART_BITS) + 1, (1 << BUCKET_BITS) + 1
PARK_LIMIT = 512
"""Parked states of one worker at which a level pauses, so that the driver completes them."""
QUESTIONS = 4096
"""Evaluations that are asked of Python before states are looked at again."""


class Arena(NamedTuple):
    """The states of one level, N positions. Worker t's are at positions [t x region, t x region + its count)."""

    cells: Array
    """uint64[N, words]: rows, see `layout`."""
    fp: Array
    """uint64[N]: fingerprints, low halves; with symmetry, the keys of orbits."""
    fp_high: Array
    """uint64[N]: high halves, if fingerprints have them."""
    ref: Array
    """int64[N]: references."""
    meta: Array
    """int64[N]: metas."""
    leaves: Array
    """int32: the enabled leaves of each state, one after the other."""
    image: Array
    """uint64[N, G]: with symmetry, the fingerprint of each image of a state; with a canonical labelling, only the
    state's own.
    """
    image_high: Array
    """uint64[N, G]: high halves."""


class Work(NamedTuple):
    """The arrays that only one worker writes: its table, counts and scratch memory. It has N positions; R roots, O
    outcomes and L leaves are as in `fencepost.checker.compiler.arrays`.
    """

    table: Array
    """uint64: the fingerprints that the worker owns, by bucket; in pairs if they have high halves."""
    counts: Array
    """int64[COUNTERS]: see `encoding`."""
    parked: Array
    """int64[N]: the positions of parked states."""
    keys: Array
    """uint64[N + 1]: scratch of :func:`order_level`."""
    places: Array
    """int64[N + 1]: scratch of :func:`order_level`."""
    part_heads: Array
    """int64[PART_HEADS]: scratch of :func:`order_level`."""
    heads: Array
    """int64[BUCKET_HEADS]: scratch of :func:`order_level`."""
    leaf_count: Array
    """int64[L]: how often a leaf was enabled in an expanded state."""
    cut_count: Array
    """int64[O]: how often a step constraint cut an outcome."""
    new_count: Array
    """int64[O]: how many states an outcome discovered."""
    full: Array
    """int64: scratch of :func:`admit`: the candidates whose first line of the table is full."""
    held: Array
    """uint64[2 x MOVED + SLACK]: scratch of :func:`make_room`."""
    fill: Array
    """int64[MOVED // 2]: scratch of :func:`make_room`: the number of entries taken in a line."""
    scratch: Array
    """int32[1]: the leaf in which the trie of a property ended."""
    gates: Array
    """int64: scratch of :func:`build`: entries to walk."""
    stack: Array
    """int64[STACK_WORDS]: scratch of `native.walk` and `native.resolve`."""
    best_fp: Array
    """uint64[R]: the least fingerprint of a state that violates each property; low half."""
    best_high: Array
    """uint64[R]: high half."""
    best_position: Array
    """int64[R]: the position of that state, or -1."""
    best_order: Array
    """int64[R]: for each step property, the first index in the level of a state with a violating step, or -1."""
    best_outcome: Array
    """int64[R]: the outcome of that step."""


KINDS = dict.fromkeys(Work._fields, np.dtype(np.int64)) | {
    "scratch": np.dtype(np.int32),
    **dict.fromkeys(("table", "keys", "held", "best_fp", "best_high"), np.dtype(np.uint64)),
}
"""The types of the arrays of :class:`Work`."""


def work_with(**arrays: Array) -> Work:
    """The memory of a worker with these arrays. The others, which it does not use, have one element each."""
    return Work(**({name: np.zeros(1, kind) for name, kind in KINDS.items()} | arrays))


class Levels(NamedTuple):
    """The level being expanded, the level being built, and the options that the loops need.

    ``order`` (int64): the positions in ``old`` of the states to be expanded, sorted by fingerprint. ``order_fp``
    (uint64): their fingerprints, low halves, for sequential reads. ``wide``: whether fingerprints have 128 bits.
    ``actions``: whether the actions of successors are evaluated; they are not on the last level that a depth limit
    allows. ``region``: the number of positions of each of the ``workers``.
    """

    old: Arena
    new: Arena
    order: Array
    order_fp: Array
    wide: bool
    actions: bool
    workers: int
    region: int


class Candidates(NamedTuple):
    """Steps to candidates: the fingerprint (uint64, low and high half) of the state that each step leads to, and that
    state's reference (int64). The arrays are for one owner, or have a row for each.
    """

    fp: Array
    high: Array
    ref: Array


class Shared(NamedTuple):
    """Memory shared by W workers. A worker publishes the results of a round in the buffer of that round's turn. A row
    of 8 numbers fills a cache line. Only its first number is used, except in ``stop``.
    """

    ready: Array
    """int64[8 x W]: the number of rounds for which a worker has generated its candidates."""
    stop: Array
    """int64[8]: whether to end the level early; and how many of its states the first worker has passed."""
    leave: Array
    """int64[TURNS, 8]: the value of ``stop`` that all workers use in this round."""
    parks: Array
    """int64[TURNS, W, 8]: the number of parked states of a worker."""
    filled: Array
    """int64[TURNS, W, W, 8]: the number of candidates that the first worker has for the second."""
    fp: Array
    """uint64[TURNS, W, W, room]: their fingerprints, low halves."""
    high: Array
    """uint64[TURNS, W, W, room]: high halves."""
    ref: Array
    """int64[TURNS, W, W, room]: their references."""


# -- the table of fingerprints ----------------------------------------------------------------------------------------


@njit(inline="always")
def bucket(fp, lines):
    """Where the search for a fingerprint starts: a cache line of eight entries. The low 32 bits of ``fp`` choose it,
    and the high 32 bits choose the owner.
    """
    return np.int64(((fp & np.uint64(0xFFFFFFFF)) * np.uint64(lines)) >> np.uint64(32)) << 3


@njit(inline="always")
def owner(fp, workers):
    """The worker that owns a fingerprint: workers own ascending ranges."""
    return np.int64(((fp >> np.uint64(32)) * np.uint64(workers)) >> np.uint64(32))


@njit
def insert(table, counts, fp, high, wide):
    """Add a fingerprint to a table. Returns whether it was new. Zero is a legal fingerprint but also marks an empty
    entry, so it is counted apart.
    """
    if fp == 0 and (not wide or high == 0):
        was = counts[ZERO]
        counts[ZERO] = 1
        counts[USED] += 1 - was
        return was == 0
    place = bucket(fp, counts[CAPACITY] >> 3)
    if not wide:
        found = find_in_line(table, place, fp)
        while found == 8:
            place += 8
            found = find_in_line(table, place, fp)
        new = found > 8
        table[place + (found & 7)] = fp
    else:
        while (table[2 * place] != 0 or table[2 * place + 1] != 0) and (
            table[2 * place] != fp or table[2 * place + 1] != high
        ):
            place += 1
        new = table[2 * place] == 0 and table[2 * place + 1] == 0
        table[2 * place] = fp
        table[2 * place + 1] = high
    counts[USED] += new
    return new


@njit
def insert_all(table, counts, lows, highs, worker, workers, wide, new):
    """Add the fingerprints that a worker owns, out of many. Writes to ``new`` which of these were new."""
    for i in range(lows.size):
        if owner(lows[i], workers) == worker:
            new[i] = insert(table, counts, lows[i], highs[i], wide)


@njit
def make_room(w, wide, entries):
    """Enlarge a worker's table in place, by half each time, until ``entries`` are within its load limit.

    The place of a fingerprint is proportional to its low 32 bits and to the capacity. So entries only move towards the
    end. Blocks are moved from the last to the first, and never overwrite entries that were not moved yet. A second
    table is never needed.
    """
    table, counts, held = w.table, w.counts, w.held
    width = 2 if wide else 1
    while entries * LOAD_DENOMINATOR > counts[CAPACITY] * LOAD_NUMERATOR:
        before, end = counts[CAPACITY] >> 3, counts[CAPACITY] + SLACK
        if not wide:
            store(table, end, 0)  # where `admit` writes fingerprints that are not new
        counts[CAPACITY] += counts[CAPACITY] // 32 * 40 if counts[CAPACITY] < SMALL else counts[CAPACITY] // 16 * 8
        used, lines = counts[USED], counts[CAPACITY] >> 3
        while end > 0:
            begin = (end - 1) // MOVED * MOVED
            n = np.int64(0)
            for at in range(begin * width, end * width, width):
                low, high = load(table, at), load(table, at + width - 1)
                store(held, n, low)
                store(held, n + width - 1, high)
                n += width if low != 0 or high != 0 else 0
                store(table, at, 0)
                store(table, at + width - 1, 0)
            if wide:
                for i in range(0, n, 2):
                    insert(table, counts, held[i], held[i + 1], wide)
            else:
                first, last = (begin >> 3) * lines // before, (end >> 3) * lines // before
                move_lines(table, held, w.fill[: last - first + 8], n, first, lines)
            end = begin
        counts[USED] = used


@njit
def move_lines(table, held, fill, n, first, lines):
    """Insert the first ``n`` fingerprints of ``held``, which are not in the table. Most go to the lines from ``first``.

    ``fill`` tracks how full each line is. Reading it from the line itself would stall on the write just issued.
    """
    end = first + fill.size
    for line in range(first, end):
        at = find_in_line(table, line << 3, np.uint64(0))
        store(fill, line - first, at & 15)
    for i in range(n):
        fp = load(held, i)
        line = bucket(fp, lines) >> 3
        while first <= line < end and load(fill, line - first) == 8:
            line += 1
        place = line << 3
        if first <= line < end:
            place += load(fill, line - first)
        while load(table, place) != 0:
            place += 1
        store(table, place, fp)
        line = place >> 3
        if first <= line < end:
            store(fill, line - first, load(fill, line - first) + 1)


# -- judging ----------------------------------------------------------------------------------------------------------


@inner
def precedes(c, one, other):
    """Whether an outcome comes before another in canonical order: by action, then by choices."""
    if c.outcome_root[one] != c.outcome_root[other]:
        return c.outcome_root[one] < c.outcome_root[other]
    i, j = c.choice_start[one], c.choice_start[other]
    while i < c.choice_start[one + 1] and j < c.choice_start[other + 1]:
        if c.choice[i] != c.choice[j]:
            return c.choice[i] < c.choice[j]
        i += 1
        j += 1
    return j < c.choice_start[other + 1]


@njit(inline="always")
def ends_in(c, w, cells, trie):
    """The number of leaves that a trie ends in for the state ``cells``; -1 at a MISS. Writes them to ``w.scratch``."""
    return walk(c.pool, c.place, cells, np.int64(0), np.int64(c.roots[trie]), w.scratch, np.int64(0), w.stack)


@inner
def is_cut(c, w, cells, outcome):
    """Whether a step constraint forbids an outcome in this state."""
    for e in range(c.step_start[outcome], c.step_start[outcome + 1]):
        if ends_in(c, w, cells, c.step_trie[e]) > 0 and c.is_constraint[w.scratch[0]]:
            return True
    return False


@inner
def is_first_twin(c, w, steps, cells, leaves, begin, end, outcome):
    """Whether this outcome is the first, in canonical order, of this state's outcomes with the same effect."""
    for k in range(begin, end):
        span = c.leaf_span[leaves[k]]
        for other in range(span_first(span), span_end(span)):
            if other != outcome and c.delta[other] == c.delta[outcome] and c.delta_high[other] == c.delta_high[outcome]:
                # With a view, the two may differ in what it hides, so a constraint may cut only one of them.
                if precedes(c, other, outcome) and (steps is None or not is_cut(c, w, cells, other)):
                    return False
    return True


@inner
def note_violation(c, new, w, root, position, wide):
    """Record that a state violates a property. Returns whether the property is a constraint, so that the state is
    outside. For an invariant, the state with the least fingerprint is kept.
    """
    if c.is_constraint[root]:
        return True
    fp = new.fp[position]
    high = new.fp_high[position] if wide else np.uint64(0)
    if w.best_position[root] < 0 or fp < w.best_fp[root] or (fp == w.best_fp[root] and high < w.best_high[root]):
        w.best_fp[root] = fp
        w.best_high[root] = high
        w.best_position[root] = position
    return False


@inner
def judge_step(c, w, cells, trie):
    """Walk a residual trie of a step property for a step out of this state; see :func:`ends_in`. If the outcome's
    change was renumbered, only an older trie may have the path of a state that was found before.
    """
    ends = ends_in(c, w, cells, trie)
    while ends < 0 and c.older[trie] != 0:
        trie = np.int64(c.older[trie])
        ends = ends_in(c, w, cells, trie)
    return ends


@inner
def step_allowed(c, w, cells, outcome, order):
    """Judge a step by the step properties. Keeps the least step that violates an invariant. Returns whether no
    constraint cuts the step.
    """
    if is_cut(c, w, cells, outcome):
        return False
    for e in range(c.step_start[outcome], c.step_start[outcome + 1]):
        if judge_step(c, w, cells, np.int64(c.step_trie[e])) > 0:
            root = w.scratch[0]
            if c.is_predicate[root]:
                continue
            best = w.best_order[root]
            if best < 0 or order < best or (order == best and precedes(c, outcome, w.best_outcome[root])):
                w.best_order[root] = order
                w.best_outcome[root] = outcome
    return True


@inner
def is_idle_true(c, w, cells, outcome):
    """Whether the step properties that an outcome can change are known to be true of idle steps out of the state
    ``cells`` that it leads to; see `native`.
    """
    for e in range(c.step_start[INITIAL], c.step_start[INITIAL + 1]):
        trie = np.int64(load(c.step_trie, e))
        if has_bit(c.drop[outcome], np.int64(c.trie_root[trie])) and ends_in(c, w, cells, trie) != 0:
            return False
    return True


@inner
def steps_known(c, w, cells, leaves, begin, end):
    """Whether every step out of a state can be judged without Python."""
    for k in range(begin, end):
        span = load(c.leaf_span, np.int64(load(leaves, k)))
        for e in range(load(c.step_start, span_first(span)), load(c.step_start, span_end(span))):
            if ends_in(c, w, cells, c.step_trie[e]) < 0:
                return False
    return True


# -- symmetry ---------------------------------------------------------------------------------------------------------


@inner
def orbit_key(images, images_high, position, deltas, deltas_high, outcome, wide):
    """The key of the state that an outcome leads to, both halves: the least fingerprint of its images, scattered (see
    `symmetry`).
    """
    n = images.shape[1]
    low, high = images.reshape(-1), images_high.reshape(-1)
    delta, delta_high = deltas.reshape(-1), deltas_high.reshape(-1)
    at, by = position * n, outcome * n
    least = load(low, at) ^ load(delta, by)
    least_high = np.uint64(0)
    if not wide:
        for g in range(1, n):
            least = min(least, load(low, at + g) ^ load(delta, by + g))
    else:
        least_high = load(high, at) ^ load(delta_high, by)
        for g in range(1, n):
            image, image_high = load(low, at + g) ^ load(delta, by + g), load(high, at + g) ^ load(delta_high, by + g)
            if image < least or (image == least and image_high < least_high):
                least, least_high = image, image_high
    return mixed(least, np.uint64(0)), least_high


@njit
def orbit_keys(c, images, images_high, lows, highs, wide):
    """Compute the keys of states from the fingerprints of their images."""
    for i in range(lows.size):
        lows[i], highs[i] = orbit_key(images, images_high, i, c.image_delta, c.image_delta_high, INITIAL, wide)


@inner
def labelled_child(c, old, w, labels, position, outcome, wide):
    """The key of the state that an outcome leads to, by a canonical labelling; both halves."""
    fp = old.image[position, 0] ^ c.image_delta[outcome, 0]
    high = old.image_high[position, 0] ^ c.image_delta_high[outcome, 0] if wide else np.uint64(0)
    remembered = labels.remembered[np.int64(fp & np.uint64(REMEMBERED - 1))]
    if fp != 0 and remembered[0] == fp and remembered[1] == high:
        return remembered[2], remembered[3]
    row = labels.row
    for x in range(c.row_delta.shape[1]):
        row[x] = old.cells[position, x] ^ c.row_delta[outcome, x]
    key, key_high, exact = labelled_key(c, labels, row, np.int64(0), wide)
    w.counts[INEXACT] += not exact
    remembered[0], remembered[1], remembered[2], remembered[3] = fp, high, key, key_high
    return key, key_high


@inner
def child_key(c, old, w, labels, position, outcome, wide):
    """The key of the state that an outcome leads to from a position; both halves. ``labels``: see :func:`generate`."""
    if labels is None:
        return orbit_key(old.image, old.image_high, position, c.image_delta, c.image_delta_high, outcome, wide)
    return labelled_child(c, old, w, labels, position, outcome, wide)


@inner
def move_images(new, position, old, parent, deltas, outcome):
    """Compute the fingerprints of the images of a state from those of its parent."""
    n = new.shape[1]
    mine, theirs, delta = new.reshape(-1), old.reshape(-1), deltas.reshape(-1)
    for g in range(n):
        store(mine, position * n + g, load(theirs, parent * n + g) ^ load(delta, outcome * n + g))


@inner
def joins_twin(c, found, begin, end, fp, high, ref, wide):
    """Whether an earlier candidate from the same parent, in [begin, end), has this key. The candidate then keeps the
    first of the two steps.
    """
    k = end - 1
    while k >= begin and reference_parent(load(found.ref, k)) == reference_parent(ref):
        if load(found.fp, k) == fp and (not wide or load(found.high, k) == high):
            if precedes(c, reference_outcome(ref), reference_outcome(load(found.ref, k))):
                store(found.ref, k, ref)
            return True
        k -= 1
    return False


# -- expanding --------------------------------------------------------------------------------------------------------


@inner
def generate(c, levels, w, labels, steps, begin, end, candidates, filled):
    """Write the ``candidates`` [owner, n] of the states in [begin, end) of the level, and their numbers to ``filled``
    [owner, 0].

    ``labels``: the scratch memory for canonical labellings, or None. ``steps``: True if there are step properties, else
    None. Numba compiles a version for each type, so code for what is None is left out.
    """
    old, order, workers, wide = levels.old, levels.order, levels.workers, levels.wide
    width = old.cells.shape[1]
    symmetric = old.image.size > 0
    room = candidates.fp.shape[1]
    found = Candidates(candidates.fp.reshape(-1), candidates.high.reshape(-1), candidates.ref.reshape(-1))
    n = 0
    for t in range(workers):
        filled[t, 0] = 0
    for k in range(begin, end):
        if k + 2 * AHEAD < end:
            ahead = load(order, k + 2 * AHEAD)
            prefetch(old.meta, ahead)
        if k + AHEAD < end:
            ahead = load(order, k + AHEAD)
            prefetch(old.leaves, meta_first(load(old.meta, ahead)))
            prefetch(old.cells, ahead * width)
            if symmetric:
                prefetch(old.image, ahead * old.image.shape[1])
        position = load(order, k)
        fp = load(levels.order_fp, k)
        high = load(old.fp_high, position) if wide else np.uint64(0)
        meta = load(old.meta, position)
        first, last = meta_first(meta), meta_end(meta)
        if first == last and w.counts[DEADLOCK] < 0:
            w.counts[DEADLOCK] = k
        for i in range(first, last):
            leaf = np.int64(load(old.leaves, i))
            store(w.leaf_count, leaf, load(w.leaf_count, leaf) + 1)
            span = load(c.leaf_span, leaf)
            is_judged = False
            if steps is not None:
                is_judged = load(c.step_start, span_first(span)) < load(c.step_start, span_end(span))
            for outcome in range(span_first(span), span_end(span)):
                if is_judged and not step_allowed(c, w, old.cells[position], outcome, k):
                    w.cut_count[outcome] += 1
                    continue
                ref = pack_reference(position, outcome)
                if symmetric:
                    child, child_high = child_key(c, old, w, labels, position, outcome, wide)
                    target = owner(child, workers)
                    begin_at = target * room
                    end_at = begin_at + (filled[target, 0] if workers > 1 else n)
                    if joins_twin(c, found, begin_at, end_at, child, child_high, ref, wide):
                        continue
                else:
                    if load(c.twin, outcome) != 0 and not is_first_twin(
                        c, w, steps, old.cells[position], old.leaves, first, last, outcome
                    ):
                        continue
                    child = fp ^ load(c.delta, outcome)
                    child_high = high ^ load(c.delta_high, outcome) if wide else high
                if workers > 1:
                    target = owner(child, workers)
                    at = target * room + filled[target, 0]
                    filled[target, 0] += 1
                else:
                    at = n
                    n += 1
                store(found.fp, at, child)
                store(found.ref, at, ref)
                if wide:
                    store(found.high, at, child_high)
    if workers == 1:
        filled[0, 0] = n


@inner
def admit(levels, w, candidates, n):
    """Look up the first ``n`` candidates, and add the new ones to the table. Appends their fingerprints and references
    to the level. Returns how many are new.
    """
    fps, highs, refs, new = candidates.fp, candidates.high, candidates.ref, levels.new
    table, counts = w.table, w.counts
    lines, position = counts[CAPACITY] >> 3, counts[BASE] + counts[COUNT]
    if levels.wide:
        for i in range(n):
            if i + AHEAD < n:
                prefetch(table, 2 * bucket(load(fps, i + AHEAD), lines))
            store(new.fp, position, load(fps, i))
            store(new.fp_high, position, load(highs, i))
            store(new.ref, position, load(refs, i))
            position += insert(table, counts, load(fps, i), load(highs, i), levels.wide)
        return position - counts[BASE] - counts[COUNT]
    # A fingerprint that is not new is written to a dummy cell. That is cheaper than an unpredictable branch, and the
    # cache line stays clean.
    dummy, full, overflowing = counts[CAPACITY] + SLACK, w.full, 0
    for i in range(min(n, AHEAD)):
        prefetch(table, bucket(load(fps, i), lines))
    for i in range(n):
        if i + AHEAD < n:
            prefetch(table, bucket(load(fps, i + AHEAD), lines))
        fp = load(fps, i)
        store(new.fp, position, fp)
        store(new.ref, position, load(refs, i))
        if fp == 0:
            position += 1 - counts[ZERO]
            counts[ZERO] = 1
            continue
        place = bucket(fp, lines)
        at = find_in_line(table, place, fp)
        is_new, is_full = at >> 4, at == 8
        store(table, place + (at & 7) if is_new else dummy, fp)
        position += is_new
        store(full, overflowing, i)
        overflowing += is_full
        if is_full:
            prefetch(table, place + 8)
    # A full line stays full. So of two candidates with the same fingerprint, the first one comes first here too.
    for k in range(overflowing):
        i = load(full, k)
        fp = load(fps, i)
        place = bucket(fp, lines) + 8
        at = find_in_line(table, place, fp)
        while at == 8:
            place += 8
            at = find_in_line(table, place, fp)
        store(table, place + (at & 7) if at >> 4 else dummy, fp)
        store(new.fp, position, fp)
        store(new.ref, position, load(refs, i))
        position += at >> 4
    found = position - counts[BASE] - counts[COUNT]
    counts[USED] += found
    return found


@inner
def build(c, levels, w, steps, found):
    """Build the rows of the next ``found`` states of the level, whose fingerprints and references are written: values,
    properties, enabled leaves. States for which a trie has no path are parked. ``steps``: see :func:`generate`.
    """
    old, new, wide, actions = levels.old, levels.new, levels.wide, levels.actions
    width, words = new.cells.shape[1], c.row_delta.shape[1]
    old_flat, new_flat, row_delta = old.cells.reshape(-1), new.cells.reshape(-1), c.row_delta.reshape(-1)
    counts = w.counts
    at = counts[LEAF_BASE] + counts[LEAF_TOP]
    position = counts[BASE] + counts[COUNT]
    pool, places, leaves, scratch, stack = c.pool, c.place, new.leaves, w.scratch, w.stack
    gates = w.gates
    symmetric = new.image.size > 0
    for j in range(found):
        if j + 2 * AHEAD < found:
            prefetch(old.meta, reference_parent(load(new.ref, position + 2 * AHEAD)))
        if j + AHEAD < found:
            ahead = reference_parent(load(new.ref, position + AHEAD))
            prefetch(old_flat, ahead * width)
            prefetch(old.leaves, meta_first(load(old.meta, ahead)))
            if symmetric:
                prefetch(old.image, ahead * old.image.shape[1])
        ref = load(new.ref, position)
        outcome, parent = reference_outcome(ref), reference_parent(ref)
        row = position * width
        if symmetric:
            move_images(new.image, position, old.image, parent, c.image_delta, outcome)
            if wide:
                move_images(new.image_high, position, old.image_high, parent, c.image_delta_high, outcome)
        for x in range(words):
            store(new_flat, row + x, load(old_flat, parent * width + x) ^ load(row_delta, outcome * words + x))
        missed = False
        outside = False
        middle = np.int64(load(c.middle, outcome))
        for e in range(np.int64(load(c.start, outcome)), middle):
            ends = follow(pool, places, new_flat, row, load(c.word, e), scratch, np.int64(0), stack)
            if ends < 0:
                missed = True
                break
            if ends > 0:
                outside |= note_violation(c, new, w, scratch[0], position, wide)
        n = at
        if not (missed or outside) and actions:
            n = inherit(c, old, parent, outcome, leaves, n)
            passed = 0
            for e in range(middle, np.int64(load(c.end, outcome))):
                value = field(new_flat, row, load(c.first, e))
                store(gates, passed, e)
                passed += np.int64((load(c.gate, e) >> np.uint64(value & 63)) & np.uint64(1))
            for k in range(passed):
                n = follow(pool, places, new_flat, row, load(c.word, load(gates, k)), leaves, n, stack)
                if n < 0:
                    missed = True
                    break
            if steps is not None and not missed:
                cells = new.cells[position]
                missed = not (is_idle_true(c, w, cells, outcome) and steps_known(c, w, cells, leaves, at, n))
        if missed:
            new.meta[position] = PARKED
            w.parked[counts[PARKS]] = position
            counts[PARKS] += 1
        elif outside:
            new.meta[position] = OUTSIDE
            counts[OUT] += 1
        else:
            store(new.meta, position, pack_meta(at, n - at))
            at = n
        position += 1
    counts[LEAF_TOP] = at - counts[LEAF_BASE]
    counts[COUNT] = position - counts[BASE]


@njit(inline="always")
def inherit(c, old, parent, outcome, leaves, n):
    """Append the parent's enabled leaves to ``leaves`` from index ``n``, except those of roots that the outcome can
    change. Returns the new n.
    """
    meta, words = load(old.meta, parent), c.drop.shape[1]
    for k in range(meta_first(meta), meta_end(meta)):
        leaf = load(old.leaves, k)
        root = np.int64(load(c.leaf_root, np.int64(leaf)))
        # Always written: a branch on whether the next leaf overwrites it would be unpredictable.
        store(leaves, n, leaf)
        n += 1 - np.int64((load(c.drop, outcome * words + (root >> 6)) >> np.uint64(root & 63)) & np.uint64(1))
    return n


@njit(inline="always")
def follow(pool, places, cells, row, entry, out, n, stack):
    """Like `native.walk`, for the trie of an entry over the row at ``cells[row]``. The entry contains the first test,
    where most walks end: the root is disabled.
    """
    word = np.int64(entry)
    if entry > 0:
        place, word = entry_where(entry), entry_node(entry)
        if place == FORK_ENTRY:
            return walk(pool, places, cells, row, word, out, n, stack)
        value = field(cells, row, place)
        if value >= load(pool, node_room(word)):
            return -1
        word = np.int64(load(pool, node_cell(word, value)))
        while word > 0:
            test = np.int64(load(pool, word))
            if is_fork(test):
                return walk(pool, places, cells, row, word, out, n, stack)
            value = field(cells, row, load(places, test))
            if value >= load(pool, node_room(word)):
                return -1
            word = np.int64(load(pool, node_cell(word, value)))
    if word == DISABLED:
        return n
    if word == MISS or word == PENDING:
        return -1
    store(out, n, np.int32(word_leaf(word)))
    return n + 1


@njit
def expand(worker, c, levels, w, labels, steps, shared, first, block):
    """Expand a level from index ``first``, as one of its workers, ``block`` states in a round. Returns the number of
    rounds done, which is the same for all workers.

    Each of several workers generates the candidates of the next round before it waits for those of this one, so it
    hardly ever waits. The function returns early, after a round, when ``shared.stop`` is set or a worker has many
    parked states. Rounds that are already generated are finished first.
    """
    total, workers = levels.order.size, levels.workers
    last = (total - first + block * workers - 1) // (block * workers)
    ahead = ROUNDS_AHEAD if workers > 1 else 0
    ready = this_round = 0
    while this_round < last:
        while ready < last and ready <= this_round + ahead:
            turn = ready % TURNS
            begin = min(total, first + (ready * workers + worker) * block)
            mine = Candidates(shared.fp[turn, worker], shared.high[turn, worker], shared.ref[turn, worker])
            generate(c, levels, w, labels, steps, begin, min(total, begin + block), mine, shared.filled[turn, worker])
            shared.parks[turn, worker, 0] = w.counts[PARKS]
            if worker == 0:
                shared.leave[turn, 0] = shared.stop[0]
                shared.stop[1] = begin - first
            ready += 1
            atomic_add(shared.ready, worker * LINE, 1)
        turn = this_round % TURNS
        incoming = 0
        for source in range(workers):
            spins = 0
            while atomic_load(shared.ready, source * LINE) <= this_round:
                spins += 1
                if spins & 1023 == 0:
                    yield_processor()
            incoming += shared.filled[turn, source, worker, 0]
        if (w.counts[USED] + incoming) * LOAD_DENOMINATOR > w.counts[CAPACITY] * LOAD_NUMERATOR:
            make_room(w, levels.wide, w.counts[USED] + incoming)
        for source in range(workers):
            theirs = Candidates(
                shared.fp[turn, source, worker], shared.high[turn, source, worker], shared.ref[turn, source, worker]
            )
            build(c, levels, w, steps, admit(levels, w, theirs, shared.filled[turn, source, worker, 0]))
        leave = shared.leave[turn, 0] != 0
        for t in range(workers):
            leave |= shared.parks[turn, t, 0] > PARK_LIMIT
        this_round += 1
        if leave:
            last = ready
    return this_round


# -- between rounds and levels ----------------------------------------------------------------------------------------


@njit
def complete(c, g, levels, w, asks):
    """Complete a worker's parked states, as far as the master tries have the paths. Returns the number of questions for
    Python in ``asks``.

    A question is a root, a position and an outcome: for a step property the step out of that state, else NO_STEP.
    States that wait for an answer stay parked, and so do all others once ``asks`` is full.
    """
    old, new, counts = levels.old, levels.new, w.counts
    kept = 0
    counts[ASKED] = 0
    for p in range(counts[PARKS]):
        position = w.parked[p]
        if counts[ASKED] == asks.shape[0]:
            # Checking all of them after every few answers would be quadratic.
            w.parked[kept] = position
            kept += 1
            continue
        outcome, parent = reference_outcome(new.ref[position]), reference_parent(new.ref[position])
        cells = new.cells[position]
        waiting = False
        outside = False
        for e in range(c.start[outcome], c.middle[outcome]):
            ends = walk_or_ask(c, g, w, c.trie[e], np.int64(NO_STEP), cells, position, w.scratch, np.int64(0), asks)
            if ends < 0:
                waiting = True
            elif ends > 0:
                outside |= note_violation(c, new, w, w.scratch[0], position, levels.wide)
        at = counts[LEAF_BASE] + counts[LEAF_TOP]
        n = at
        if not (waiting or outside) and levels.actions:
            waiting |= not complete_idle(c, g, w, outcome, cells, position, asks)
            for e in range(c.middle[outcome], c.end[outcome]):
                ends = walk_or_ask(c, g, w, c.trie[e], np.int64(NO_STEP), cells, position, new.leaves, n, asks)
                waiting |= ends < 0
                n = max(n, ends)
        if not (waiting or outside) and levels.actions:
            # Only now: there may be many leaves to inherit, and many rounds of questions.
            if outcome != INITIAL:
                n = inherit(c, old, parent, outcome, new.leaves, n)
            for k in range(at, n):
                if waiting:
                    break
                span = c.leaf_span[new.leaves[k]]
                for step in range(span_first(span), span_end(span)):
                    for e in range(c.step_start[step], c.step_start[step + 1]):
                        ends = walk_or_ask(c, g, w, c.step_trie[e], step, cells, position, w.scratch, np.int64(0), asks)
                        waiting |= ends < 0
        if waiting:
            w.parked[kept] = position
            kept += 1
        elif outside:
            new.meta[position] = OUTSIDE
            counts[OUT] += 1
        else:
            new.meta[position] = pack_meta(at, n - at)
            counts[LEAF_TOP] = n - counts[LEAF_BASE]
    counts[PARKS] = kept
    return counts[ASKED]


@inner
def complete_idle(c, g, w, outcome, cells, position, asks):
    """The same as :func:`is_idle_true`, after extending tries that lack a path. If a property is not true of idle
    steps, Python is asked once no other question is left. Then they are judged like other steps.
    """
    is_true = True
    for e in range(c.step_start[INITIAL], c.step_start[INITIAL + 1]):
        trie = np.int64(c.step_trie[e])
        root = np.int64(c.trie_root[trie])
        if has_bit(c.drop[outcome], root):
            ends = walk_or_ask(c, g, w, trie, np.int64(INITIAL), cells, position, w.scratch, np.int64(0), asks)
            is_true &= ends == 0
            if ends > 0 and w.counts[ASKED] == 0:
                asks[0, 0], asks[0, 1], asks[0, 2] = root, position, INITIAL
                w.counts[ASKED] = 1
    return is_true


@inner
def walk_or_ask(c, g, w, trie, step, cells, position, out, n, asks):
    """Walk a trie over the state ``cells`` at a position, after extending the trie if it lacks the path. Appends leaves
    to ``out`` from index ``n`` and returns the new n. If Python must be asked, records that in ``asks`` and returns -1.
    """
    ends = walk(c.pool, c.place, cells, np.int64(0), np.int64(c.roots[trie]), out, n, w.stack)
    asked = w.counts[ASKED]
    if ends < 0 and asked < asks.shape[0]:
        status = resolve(c, g, np.int64(trie), cells, np.int64(step), w.stack)
        if status == RESOLVED:
            ends = walk(c.pool, c.place, cells, np.int64(0), np.int64(c.roots[trie]), out, n, w.stack)
        elif status == ASK:
            asks[asked, 0] = g.trie_root[trie]
            asks[asked, 1] = position
            asks[asked, 2] = step
            w.counts[ASKED] = asked + 1
    return ends


@inner
def knows_step(c, g, trie, cells, step, w):
    """Whether a step can be judged by an older trie or by a residual trie, which is extended for it; see
    :func:`judge_step`.
    """
    while True:
        if ends_in(c, w, cells, trie) >= 0 or resolve(c, g, trie, cells, step, w.stack) == RESOLVED:
            return True
        if c.older[trie] == 0:
            return False
        trie = np.int64(c.older[trie])


@njit
def know_steps(c, g, level, w, order):
    """Extend the residual tries of step properties by the paths that the steps out of the states ``order`` of a level
    need. Returns whether the master tries had all of these paths. They should: the states were built with them, perhaps
    in another process, or before the residual tries began anew.
    """
    for position in order:
        cells, meta = level.cells[position], level.meta[position]
        for k in range(meta_first(meta), meta_end(meta)):
            span = c.leaf_span[level.leaves[k]]
            for step in range(span_first(span), span_end(span)):
                for e in range(c.step_start[step], c.step_start[step + 1]):
                    if not knows_step(c, g, np.int64(c.step_trie[e]), cells, np.int64(step), w):
                        return False
    return True


@njit(inline="always")
def within_range(fp, workers):
    """The relative position of a fingerprint in the range of its owner: 32 bits, uniformly distributed."""
    return ((fp >> np.uint64(32)) * np.uint64(workers)) & np.uint64(0xFFFFFFFF)


@njit
def order_level(levels, w, at):
    """Sort a worker's new states to be expanded by fingerprint, into ``order`` and ``order_fp`` from index ``at``.
    Returns their number.

    The first pass distributes them by leading bits into parts that fit the cache. A pass over each part distributes it
    by the next bits into buckets of about one. The last pass is an insertion sort of what is still out of order.
    """
    bits = 0
    while bits < PART_BITS and (w.counts[COUNT] >> bits) > 1 << (BUCKET_BITS - 1):
        bits += 1
    distribute(levels, w, bits)
    begin = np.int64(0)
    for part in range(1 << bits):
        end = load(w.part_heads, part)
        order_part(levels, w, bits, begin, end, at)
        begin = end
    insertion_sort(levels, at, at + begin)
    return begin


@inner
def distribute(levels, w, bits):
    """Write the fingerprints and positions of the states to be expanded to ``w.keys`` and ``w.places``, by the first
    bits of their fingerprints. Writes the end of each part to ``w.part_heads``.
    """
    fps, metas, workers = levels.new.fp, levels.new.meta, levels.workers
    keys, places, heads = w.keys, w.places, w.part_heads
    base, n, shift = w.counts[BASE], w.counts[COUNT], np.uint64(32 - bits)
    for part in range((1 << bits) + 1):
        store(heads, part, 0)
    for i in range(base, base + n):
        part = np.int64(within_range(load(fps, i), workers) >> shift)
        store(heads, part + 1, load(heads, part + 1) + is_inside(load(metas, i)))
    starts_of_parts(heads, 1 << bits)
    for i in range(base, base + n):
        fp = load(fps, i)
        part = np.int64(within_range(fp, workers) >> shift)
        k, belongs = load(heads, part), is_inside(load(metas, i))
        store(heads, part, k + belongs)
        # The last element is a dummy for all other states: cheaper than a branch.
        k = k if belongs else n
        store(keys, k, fp)
        store(places, k, i)


@inner
def order_part(levels, w, bits, begin, end, at):
    """Sort the states at [begin, end) of ``w.keys`` and ``w.places`` by the next bits, into the order from index
    ``at + begin``.
    """
    order, order_fp, workers = levels.order, levels.order_fp, levels.workers
    keys, places, heads = w.keys, w.places, w.heads
    mask, shift = np.uint64((1 << BUCKET_BITS) - 1), np.uint64(32 - bits - BUCKET_BITS)
    for b in range((1 << BUCKET_BITS) + 1):
        store(heads, b, 0)
    for i in range(begin, end):
        b = np.int64((within_range(load(keys, i), workers) >> shift) & mask)
        store(heads, b + 1, load(heads, b + 1) + 1)
    starts_of_parts(heads, 1 << BUCKET_BITS)
    for i in range(begin, end):
        fp = load(keys, i)
        b = np.int64((within_range(fp, workers) >> shift) & mask)
        k = load(heads, b)
        store(heads, b, k + 1)
        store(order_fp, at + begin + k, fp)
        store(order, at + begin + k, load(places, i))


@inner
def starts_of_parts(heads, n):
    """Turn the sizes of ``n`` parts (that of part b at ``heads[b + 1]``) into their starts."""
    for b in range(1, n + 1):
        store(heads, b, load(heads, b) + load(heads, b - 1))


@inner
def insertion_sort(levels, begin, end):
    """Sort the range [begin, end) of an order, which is nearly sorted, by insertion."""
    order, order_fp, highs = levels.order, levels.order_fp, levels.new.fp_high
    for i in range(begin + 1, end):
        fp, position, k = load(order_fp, i), load(order, i), i
        while k > begin and (
            load(order_fp, k - 1) > fp
            or (levels.wide and load(order_fp, k - 1) == fp and load(highs, load(order, k - 1)) > load(highs, position))
        ):
            store(order_fp, k, load(order_fp, k - 1))
            store(order, k, load(order, k - 1))
            k -= 1
        store(order_fp, k, fp)
        store(order, k, position)


@njit
def write_links(levels, w, bases, numbers, log):
    """Write the level's log: the link of each new state of a worker. Counts the discovered states by outcome.

    ``bases``: the number of each region's first state. After a resume, ``numbers`` has the number of every position
    instead.
    """
    arena, region, base = levels.new, levels.region, w.counts[BASE]
    for i in range(w.counts[COUNT]):
        ref = arena.ref[base + i]
        position = reference_parent(ref)
        if numbers.size:
            number = numbers[position]
        else:
            # With few workers, this is cheaper than a division.
            worker = 0
            while position >= region:
                position -= region
                worker += 1
            number = position + bases[worker]
        log[i] = pack_link(number, reference_outcome(ref))
        w.new_count[reference_outcome(ref)] += is_inside(arena.meta[base + i])
