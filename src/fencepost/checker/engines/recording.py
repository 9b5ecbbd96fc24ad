"""Records the graph while the embedded engine explores, for judging liveness and for the table of steps.

When a level has been expanded, its states are still in their arena with their enabled leaves. One pass over them lists
every step by its constant delta, as expanding did. One walk of each temporal predicate's trie finds where it is true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fencepost.checker.compiler.arrays import Array, Compiled, Growing
from fencepost.checker.compiler.encoding import ASKED, NO_STEP, meta_end, meta_first, span_count, span_end, span_first
from fencepost.checker.compiler.instructions import load
from fencepost.checker.compiler.native import set_bit
from fencepost.checker.engines.kernel import QUESTIONS, Arena, Work, ends_in, is_cut, walk_or_ask
from fencepost.checker.liveness.graph import Recording, Terms
from fencepost.errors import READ_OTHERWISE, SystemFailure
from fencepost.files.loops import inner, njit
from fencepost.semantics import Root


def record_level(
    recording: Recording,
    tables: Callable[[], tuple[Compiled, Growing, Arena]],
    work: Work,
    order: Array,
    ask: Callable[[Array], None],
) -> None:
    """Add a level that has been expanded. ``order``: the positions of its states, sorted by fingerprint. ``ask`` has
    Python evaluate predicates for which no path is known yet: a row for each, the root and the position. Afterwards
    ``tables`` must be called again.
    """
    terms = recording.terms
    compiled, _, arena = tables()
    counts, children, kinds, enabled = steps_of(compiled, arena, work, order, terms.kind_of, terms.masks)
    marks = marks_of(terms, compiled, arena, work, order, counts, children)
    truths = truths_of(terms.predicates, tables, work, order, ask)
    recording.add(arena.fp[order], counts, children, kinds, enabled, truths, marks)


def steps_of(
    compiled: Compiled, arena: Arena, work: Work, order: Array, kind_of: Array, masks: Array
) -> tuple[Array, Array, Array, Array]:
    """The steps out of the states at ``order``: their number for each state, the targets, their kinds, and the fairness
    conditions enabled in each state.

    ``kind_of``: the kind of a step for each root. ``masks``: the conditions that steps of each kind meet, as bits.
    """
    most = count_steps(compiled, arena, order)
    counts = np.empty(len(order), np.int32)
    children, kinds = np.empty(most, np.uint64), np.empty(most, np.uint16)
    enabled = np.zeros((len(order), masks.shape[1]), np.uint64)
    steps = list_steps(compiled, arena, work, order, kind_of, masks, counts, children, kinds, enabled)
    if steps < most:
        children, kinds = children[:steps].copy(), kinds[:steps].copy()
    return counts, children, kinds, enabled


def marks_of(
    terms: Terms, compiled: Compiled, arena: Arena, work: Work, order: Array, counts: Array, children: Array
) -> Array:
    """The step predicates that are true of each of these steps (bool, a column for each predicate)."""
    marks = np.zeros((len(children), len(terms.step_predicates)), np.bool_)
    if terms.step_predicates:
        column = np.zeros(len(compiled.is_predicate), np.int64)
        column[[root.index for root in terms.step_predicates]] = np.arange(len(terms.step_predicates))
        mark_steps(compiled, arena, work, order, counts, children, column, marks)
    return marks


def truths_of(
    predicates: Sequence[Root],
    tables: Callable[[], tuple[Compiled, Growing, Arena]],
    work: Work,
    order: Array,
    ask: Callable[[Array], None],
) -> Array:
    """Which of these predicates are true in each of the states at ``order``, as bits. ``ask``: see
    :func:`record_level`.
    """
    roots = np.array([root.index for root in predicates], np.int64)
    truths = np.zeros((len(order), len(roots) // 64 + 1), np.uint64)
    asks = np.zeros((QUESTIONS, 3), np.int64)
    begin = 0
    while True:
        compiled, growing, arena = tables()
        begin = list_truths(compiled, arena, work, order, begin, roots, truths)
        if begin == len(order) * len(roots):
            return truths
        questions = ask_truths(compiled, growing, arena, work, order, begin, roots, asks)
        if not questions:
            raise SystemFailure(f"a predicate {READ_OTHERWISE}", "checking")
        ask(asks[:questions, :2])


@njit
def count_steps(c, arena, order):
    """The number of steps out of the states at ``order``, including cut ones and those that change nothing."""
    total = 0
    for k in range(order.size):
        meta = arena.meta[order[k]]
        for i in range(meta_first(meta), meta_end(meta)):
            total += span_count(c.leaf_span[arena.leaves[i]])
    return total


@njit
def list_steps(c, arena, w, order, kind_of, masks, counts, children, kinds, enabled):
    """Write the steps out of each state (targets and kinds), and the conditions enabled. Returns the number of steps.

    A step that a constraint cuts is left out, but its action is enabled. A step that changes nothing is left out and
    enables nothing.
    """
    n = 0
    for k in range(order.size):
        position = order[k]
        fp = arena.fp[position]
        meta = arena.meta[position]
        before = n
        for i in range(meta_first(meta), meta_end(meta)):
            leaf = np.int64(load(arena.leaves, i))
            span = c.leaf_span[leaf]
            kind = kind_of[c.leaf_root[leaf]]
            for outcome in range(span_first(span), span_end(span)):
                if c.write_start[outcome] == c.write_start[outcome + 1]:
                    continue
                for x in range(masks.shape[1]):
                    enabled[k, x] |= masks[kind, x]
                if c.step_trie.size > 0 and is_cut(c, w, arena.cells[position], outcome):
                    continue
                n = put_in_order(children, kinds, before, n, fp ^ c.delta[outcome], kind)
        counts[k] = n - before
    return n


@njit
def mark_steps(c, arena, w, order, counts, children, column, marks):
    """Mark each step out of the states at ``order`` in the columns of the step predicates that are true of it."""
    begin = 0
    for k in range(order.size):
        position = order[k]
        cells, meta, end = arena.cells[position], arena.meta[position], begin + counts[k]
        for i in range(meta_first(meta), meta_end(meta)):
            span = c.leaf_span[np.int64(load(arena.leaves, i))]
            for outcome in range(span_first(span), span_end(span)):
                for e in range(c.step_start[outcome], c.step_start[outcome + 1]):
                    if ends_in(c, w, cells, c.step_trie[e]) <= 0 or not c.is_predicate[w.scratch[0]]:
                        continue
                    for at in range(begin, end):
                        if children[at] == arena.fp[position] ^ c.delta[outcome]:
                            marks[at, column[w.scratch[0]]] = True
        begin = end


@inner
def put_in_order(children, kinds, begin, end, child, kind):
    """Insert a step, in order, among those of its state, unless it is there already. Returns their new end."""
    at = end
    while at > begin and (children[at - 1] > child or (children[at - 1] == child and kinds[at - 1] > kind)):
        at -= 1
    if at > begin and children[at - 1] == child and kinds[at - 1] == kind:
        return end
    for i in range(end, at, -1):
        children[i] = children[i - 1]
        kinds[i] = kinds[i - 1]
    children[at] = child
    kinds[at] = kind
    return end + 1


@njit
def list_truths(c, arena, w, order, begin, roots, truths):
    """Write the predicates that are true in each state, from evaluation number ``begin`` (state by state, predicate by
    predicate). Returns the number of the first evaluation without a known path, or the total.
    """
    for at in range(begin, order.size * roots.size):
        k, x = at // roots.size, at % roots.size
        ends = ends_in(c, w, arena.cells[order[k]], roots[x])
        if ends < 0:
            return at
        if ends > 0:
            set_bit(truths[k], x)
    return order.size * roots.size


@njit
def ask_truths(c, g, arena, w, order, begin, roots, asks):
    """Fill ``asks`` with the evaluations from number ``begin`` on that have no known path. Returns how many. Asking for
    them one by one would have all tables laid out anew for each.
    """
    w.counts[ASKED] = 0
    for at in range(begin, order.size * roots.size):
        position, root = order[at // roots.size], roots[at % roots.size]
        cells = arena.cells[position]
        walk_or_ask(c, g, w, root, np.int64(NO_STEP), cells, position, w.scratch, np.int64(0), asks)
        if w.counts[ASKED] == asks.shape[0]:
            break
    return w.counts[ASKED]
