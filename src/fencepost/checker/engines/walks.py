"""The compiled loops of simulation: random walks, each in its own lane.

A worker runs the walk of one lane, and the next walk after it, until a step falls off a trie. That lane is then
**parked** while the worker runs the others. When all lanes are parked, or after a moment, the driver completes the
parked states with :func:`complete_walks` and Python, for many walks at once. So Python is asked in batches, and a
running lane has its state in the cache.

The steps of a walk depend only on the seed and the number of the walk. They give 64 random bits for each step, and 64
for the taste of the walk: how much it is inclined to each action with its parameters, and to each of an action's
choices. One walk loses every second message, the next hardly any; in one a bookie is slow, in another a client gives up
early. Rare combinations are met far more often than if every walk did everything (Groce and others, "Swarm testing",
2012), and nothing becomes impossible.

Random bits are mixed with the content of the options (names, parameters, choices), never with a number assigned during
the run. So neither the number of workers nor the order in which the tables grew can change a walk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.encoding import (
    ASKED,
    BASE,
    COUNT,
    END,
    LEAF_BASE,
    LEAF_TOP,
    MAX_LEAVES,
    NEXT,
    NO_STEP,
    OUTSIDE,
    PARKED,
    PARKS,
    STOP,
    meta_end,
    meta_first,
    pack_reference,
    reference_outcome,
    span_end,
    span_first,
)
from fencepost.checker.compiler.instructions import atomic_add, atomic_load
from fencepost.checker.compiler.native import has_bit, mixed, set_bit
from fencepost.checker.engines import kernel
from fencepost.checker.engines.kernel import Levels, build, complete, ends_in, is_cut, walk_or_ask
from fencepost.files.loops import inner, njit

LEAF_ROOM = MAX_LEAVES
"""Enabled leaves that a state of a walk has room for."""
RARER = 3
"""Bits of a factor: a walk is inclined to something 1, 8, 64 or 512 times less than to something else."""
TASTE = 1 << 62
"""A step number that no walk reaches. Its random bits decide the inclinations of the walk."""
SKETCH_BITS = 16
"""Bits of a fingerprint that choose a register of the sketch, which estimates the number of distinct states."""

MARKS = 1 << 10
"""Marks of the states that a walk has visited, by fingerprint. A collision costs a search through the history."""
WINDOW = 1 << 12
"""The most steps of a loop that is looked for."""
ALWAYS_EVENTUALLY, EVENTUALLY_ALWAYS, LEADS_TO = range(3)


class Temporal(NamedTuple):
    """The terms by which a walk judges its loops.

    ``predicates``: the roots that are true or false in a state. ``masks``: for each root, the fairness conditions that
    its steps belong to. ``weak``, ``strong``: all conditions of that sort. ``properties``: for each its kind, the root
    under which it is counted, and the numbers of its one or two predicates.
    """

    predicates: Array
    masks: Array
    weak: Array
    strong: Array
    properties: Array


class Past(NamedTuple):
    """The history of the walk in each lane. For each step: the fingerprint, the fairness conditions enabled in the
    state, the conditions that the step to it belongs to, and the predicates that were true. ``marks``: by fingerprint,
    the last walk that visited such a state, plus one. The rest is scratch: the bits that hold somewhere in a loop, or
    everywhere.
    """

    fp: Array
    enabled: Array
    stepped: Array
    truths: Array
    marks: Array
    somewhere: Array
    everywhere: Array
    true_somewhere: Array
    true_everywhere: Array
    taken: Array


class Plan(NamedTuple):
    """The plan common to all walks.

    ``starts``: the positions of the initial states. ``depth``: the most states of a walk. ``action_key``, ``root_key``:
    a content hash of each root's name, without and with its parameters. ``properties``: the number of roots (the first
    ones) that are state properties. ``sought``: whether each root is a ``sometimes`` property, which is met and not
    violated. ``cutting``: whether there are step constraints. ``deadlock``, ``keep_going``: as in the options.
    """

    seed: np.uint64
    starts: Array
    depth: int
    action_key: Array
    root_key: Array
    properties: int
    sought: Array
    cutting: bool
    deadlock: bool
    keep_going: bool
    temporal: Temporal


class Walkers(NamedTuple):
    """The walks of one worker. The states of lane n alternate between the positions ``base`` + 2n and the next one.

    ``walk``: the number of the walk in each lane, or -1. ``step``: the number of steps taken. ``at``: the position of
    its state. ``broken``: whether that state, or the step to it, violates something. ``counted``: how many of its
    states were counted already, for a walk begun elsewhere. ``longest``: the most states of a walk. ``chosen``: how
    often each outcome was taken; the first one begins walks. ``lowest``, ``lowest_step``: for each root, and then for
    deadlock, the lowest walk that violates or meets it, or -1, and after how many steps. ``lowest_loop``: for a
    temporal property, the step at which its loop begins.
    """

    base: int
    walk: Array
    step: Array
    at: Array
    broken: Array
    counted: Array
    longest: Array
    sketch: Array
    chosen: Array
    lowest: Array
    lowest_step: Array
    lowest_loop: Array
    past: Past


@inner
def random_bits(seed, number, step):
    """64 random bits for one step of a walk."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    return mixed(mixed(seed * golden, np.uint64(number) + golden), np.uint64(step) * golden)


@njit
def start_of(plan, number):
    """The position of the initial state of a walk."""
    return plan.starts[np.int64(random_bits(plan.seed, number, 0) % np.uint64(plan.starts.size))]


@inner
def begin(walkers, plan, lane, number, counted):
    """Put a walk at its first state into a lane."""
    walkers.walk[lane] = number
    walkers.step[lane] = 0
    walkers.at[lane] = start_of(plan, number)
    walkers.broken[lane] = 0
    walkers.counted[lane] = counted


@njit
def begin_again(walkers, plan, numbers, counted):
    """Put walks into lanes, one into each. ``counted``: how many states of each were counted already."""
    for lane in range(numbers.size):
        begin(walkers, plan, lane, numbers[lane], counted[lane])


@njit(inline="always")
def alone(arena):
    """The states of walks in the form that `kernel` takes: parents and children in one arena, of one worker."""
    return Levels(arena, arena, arena.ref, arena.fp, False, True, 1, 0)


@njit
def wander(c, arena, w, walkers, plan, control, path):
    """Run every lane until it is parked or no walk is left to begin. ``path``: receives the outcomes of a walk, unless
    empty.
    """
    w.counts[PARKS] = 0
    levels = alone(arena)
    for lane in range(walkers.walk.size):
        while atomic_load(control, STOP) == 0:
            if walkers.walk[lane] < 0:
                number = atomic_add(control, NEXT, 1)
                if number >= atomic_load(control, END):
                    break
                begin(walkers, plan, lane, number, 0)
            elif walkers.walk[lane] >= atomic_load(control, END):
                walkers.walk[lane] = -1
                continue
            position = walkers.at[lane]
            if arena.meta[position] == PARKED:
                break
            outcome = visit(c, arena, w, walkers, plan, control, lane)
            if outcome < 0:
                walkers.walk[lane] = -1
                continue
            step = walkers.step[lane]
            if path.size:
                path[step] = outcome
            child = walkers.base + 2 * lane + (step & 1)
            walkers.step[lane] = step + 1
            walkers.at[lane] = child
            judge_step(c, arena.cells[position], w, walkers, plan, control, lane, outcome)
            arena.ref[child] = pack_reference(position, outcome)
            arena.fp[child] = arena.fp[position] ^ c.delta[outcome]
            w.counts[BASE], w.counts[LEAF_BASE] = child, child * LEAF_ROOM
            w.counts[COUNT] = w.counts[LEAF_TOP] = 0
            build(c, levels, w, True, 1)
            note_broken(w, walkers, plan, control, lane)
            if plan.temporal.predicates.size:
                record_step(c, arena, walkers, plan, lane, position, outcome)
                if arena.meta[child] >= 0 and not truths_known(c, w, plan.temporal, arena.cells[child]):
                    arena.meta[child] = PARKED
                    w.counts[PARKS] += 1


@inner
def visit(c, arena, w, walkers, plan, control, lane):
    """Count and judge a walk's complete state. Returns the outcome by which the walk goes on, or -1 if it ends."""
    position, step = walkers.at[lane], walkers.step[lane]
    if step >= walkers.counted[lane]:
        walkers.chosen[reference_outcome(arena.ref[position])] += 1
    walkers.longest[0] = max(walkers.longest[0], step + 1)
    meta = arena.meta[position]
    if meta == OUTSIDE:
        return -1
    note_seen(walkers.sketch, arena.fp[position])
    begin, end = meta_first(meta), meta_end(meta)
    if begin == end and plan.deadlock:
        record_violation(walkers, plan, control, lane, plan.root_key.size, -1)
    if plan.temporal.predicates.size:
        remember(c, arena, w, walkers.past, plan.temporal, lane, position, step, begin, end)
        judge_loops(walkers, plan, control, lane, step)
    if step + 1 >= plan.depth or (walkers.broken[lane] and not plan.keep_going):
        return -1
    walkers.broken[lane] = 0
    return choose(c, w, arena.cells[position], arena.leaves, begin, end, plan, walkers.walk[lane], step)


@inner
def choose(c, w, cells, leaves, begin, end, plan, number, step):
    """Choose the outcome by which a walk goes on, among those that change the state. Returns -1 if there is none.

    Actions with their parameters race, and then the outcomes of the winner. Each has a time drawn from an exponential
    distribution whose rate is the walk's inclination to it. The first one wins.
    """
    bits, taste = random_bits(plan.seed, number, step + 1), random_bits(plan.seed, number, TASTE)
    winner, first, best = np.int64(-1), 0.0, 0.0
    for i in range(begin, end):
        leaf = leaves[i]
        root = c.leaf_root[leaf]
        who, what = plan.root_key[root], plan.action_key[root]
        time = arrival(bits, who, rarity(taste, who) + rarity(taste, what))
        if winner >= 0 and time > first:
            continue
        span = c.leaf_span[leaf]
        for outcome in range(span_first(span), span_end(span)):
            if c.write_start[outcome] == c.write_start[outcome + 1] or (plan.cutting and is_cut(c, w, cells, outcome)):
                continue
            how = what
            for k in range(c.choice_start[outcome], c.choice_start[outcome + 1]):
                how = mixed(how, np.uint64(c.choice[k] + 1))
            second = arrival(bits, how, rarity(taste, how))
            if winner < 0 or time < first or second < best:
                winner, first, best = np.int64(outcome), time, second
    return winner


@inner
def arrival(bits, key, rarer):
    """An arrival time in a race: on average 8 times later for each degree of rarity."""
    uniform = (np.float64(mixed(bits, key) >> np.uint64(12)) + 0.5) / (1 << 52)
    return -np.log(uniform) * (np.int64(1) << (RARER * rarer))


@inner
def rarity(taste, key):
    """How little a walk is inclined to something: 0 to 3."""
    return np.int64(mixed(taste, key) >> np.uint64(62))


@inner
def note_seen(sketch, fp):
    """Add a fingerprint to the registers. Each keeps the longest run of zeros among its fingerprints."""
    rest = (fp << np.uint64(SKETCH_BITS)) | np.uint64(1 << (SKETCH_BITS - 1))
    rank = 1
    while rest >> np.uint64(63) == 0:
        rest <<= np.uint64(1)
        rank += 1
    register = fp >> np.uint64(64 - SKETCH_BITS)
    if sketch[register] < rank:
        sketch[register] = rank


@inner
def record_violation(walkers, plan, control, lane, root, loop):
    """Record that the walk in a lane violates a property in its state, or by a loop that begins at step ``loop``.
    Unless the simulation keeps going, higher walks no longer matter.
    """
    walkers.broken[lane] = 1
    note_lowest(walkers, lane, root, loop)
    if not plan.keep_going and walkers.walk[lane] + 1 < control[END]:
        control[END] = walkers.walk[lane] + 1


@inner
def note_lowest(walkers, lane, root, loop):
    """Record the walk in a lane, at its step, if no lower walk has met the same property."""
    number, step = walkers.walk[lane], walkers.step[lane]
    lowest = walkers.lowest[root]
    if lowest < 0 or number < lowest or (number == lowest and step < walkers.lowest_step[root]):
        walkers.lowest[root] = number
        walkers.lowest_step[root] = step
        walkers.lowest_loop[root] = loop


@inner
def judge_step(c, cells, w, walkers, plan, control, lane, outcome):
    """Judge the step being taken by the step invariants."""
    for e in range(c.step_start[outcome], c.step_start[outcome + 1]):
        if kernel.judge_step(c, w, cells, np.int64(c.step_trie[e])) > 0:
            root = w.scratch[0]
            if not (c.is_constraint[root] or c.is_predicate[root]):
                record_violation(walkers, plan, control, lane, root, -1)


@inner
def note_broken(w, walkers, plan, control, lane):
    """Record what `build` or `complete` found violated, or true of a property sought, in the state of a lane."""
    for root in range(plan.properties):
        if w.best_position[root] >= 0:
            w.best_position[root] = -1
            if plan.sought[root]:
                note_lowest(walkers, lane, root, -1)
            else:
                record_violation(walkers, plan, control, lane, root, -1)


# -- loops ------------------------------------------------------------------------------------------------------------


@njit(inline="always")
def become(target, bits):
    """Copy a bit set."""
    for word in range(target.size):
        target[word] = bits[word]


@njit(inline="always")
def join(target, bits):
    """Add the members of another bit set."""
    for word in range(target.size):
        target[word] |= bits[word]


@njit(inline="always")
def meet(target, bits):
    """Keep only the members that are in another bit set too."""
    for word in range(target.size):
        target[word] &= bits[word]


@inner
def truths_known(c, w, temporal, cells):
    """Whether every predicate of a state can be evaluated without Python."""
    for n in range(temporal.predicates.size):
        if ends_in(c, w, cells, temporal.predicates[n]) < 0:
            return False
    return True


@inner
def record_step(c, arena, walkers, plan, lane, position, outcome):
    """Record the fairness conditions that a step belongs to: those of its action, and of all other actions that lead to
    the same state.
    """
    stepped, masks = walkers.past.stepped[lane, walkers.step[lane]], plan.temporal.masks
    become(stepped, masks[c.outcome_root[outcome]])
    if c.twin[outcome]:
        meta = arena.meta[position]
        for i in range(meta_first(meta), meta_end(meta)):
            span = c.leaf_span[arena.leaves[i]]
            for other in range(span_first(span), span_end(span)):
                if c.delta[other] == c.delta[outcome]:
                    join(stepped, masks[c.outcome_root[other]])


@inner
def remember(c, arena, w, past, temporal, lane, position, step, begin, end):
    """Record what loops are judged by in a state."""
    past.fp[lane, step] = arena.fp[position]
    enabled, truths = past.enabled[lane, step], past.truths[lane, step]
    enabled[:] = 0
    for i in range(begin, end):
        span = c.leaf_span[arena.leaves[i]]
        for outcome in range(span_first(span), span_end(span)):
            if c.write_start[outcome] < c.write_start[outcome + 1]:
                join(enabled, temporal.masks[c.leaf_root[arena.leaves[i]]])
                break
    truths[:] = 0
    cells = arena.cells[position]
    for n in range(temporal.predicates.size):
        if ends_in(c, w, cells, temporal.predicates[n]) > 0:
            set_bit(truths, n)


@inner
def judge_loops(walkers, plan, control, lane, step):
    """Judge every loop that the state of a walk closes, shortest first. The shortest is to stay in it forever."""
    past, temporal = walkers.past, plan.temporal
    fp = past.fp[lane, step]
    mark = np.int64(fp & np.uint64(MARKS - 1))
    earliest = step
    if past.marks[lane, mark] == walkers.walk[lane] + 1:
        earliest = max(0, step - WINDOW)
    past.marks[lane, mark] = walkers.walk[lane] + 1
    become(past.somewhere, past.enabled[lane, step])
    become(past.everywhere, past.enabled[lane, step])
    become(past.true_somewhere, past.truths[lane, step])
    become(past.true_everywhere, past.truths[lane, step])
    past.taken[:] = 0
    for place in range(step, earliest - 1, -1):
        if place < step:
            join(past.somewhere, past.enabled[lane, place])
            meet(past.everywhere, past.enabled[lane, place])
            join(past.taken, past.stepped[lane, place + 1])
            join(past.true_somewhere, past.truths[lane, place])
            meet(past.true_everywhere, past.truths[lane, place])
        if past.fp[lane, place] == fp and is_fair(past, temporal):
            for n in range(temporal.properties.shape[0]):
                if is_violated(past, temporal, lane, step, n):
                    record_violation(walkers, plan, control, lane, temporal.properties[n, 1], place)


@inner
def is_fair(past, temporal):
    """Whether repeating a loop forever meets every fairness condition: by a step of it, or because some state (weak) or
    every state (strong) of the loop does not enable it.
    """
    for word in range(temporal.weak.size):
        missed = (temporal.weak[word] & past.everywhere[word]) | (temporal.strong[word] & past.somewhere[word])
        if missed & ~past.taken[word]:
            return False
    return True


@inner
def is_violated(past, temporal, lane, step, n):
    """Whether a property is false of the walk so far followed by repeating the loop forever."""
    kind, last = temporal.properties[n, 0], temporal.properties[n, 3]
    if kind == EVENTUALLY_ALWAYS:
        return not has_bit(past.true_everywhere, last)
    if has_bit(past.true_somewhere, last):
        return False
    if kind == ALWAYS_EVENTUALLY:
        return True
    # The loop never satisfies the second predicate. Was it required in the loop, or before it and never met since?
    for place in range(step, -1, -1):
        if has_bit(past.truths[lane, place], last):
            return False
        if has_bit(past.truths[lane, place], temporal.properties[n, 2]):
            return True
    return False


@njit
def complete_walks(c, g, arena, w, walkers, plan, control, asks):
    """Complete parked states as far as master tries go. Returns the number of questions for Python in ``asks``; see
    `kernel.complete`.
    """
    asked = 0
    for lane in range(walkers.walk.size):
        if walkers.walk[lane] >= control[END]:
            walkers.walk[lane] = -1
        position = walkers.at[lane]
        if walkers.walk[lane] < 0 or arena.meta[position] != PARKED:
            continue
        w.parked[0] = position
        w.counts[PARKS] = 1
        w.counts[LEAF_BASE], w.counts[LEAF_TOP] = position * LEAF_ROOM, 0
        asked += complete(c, g, alone(arena), w, asks[asked:])
        note_broken(w, walkers, plan, control, lane)
        w.counts[ASKED] = asked
        for n in range(plan.temporal.predicates.size):
            root, cells = np.int64(plan.temporal.predicates[n]), arena.cells[position]
            if walk_or_ask(c, g, w, root, NO_STEP, cells, position, w.scratch, np.int64(0), asks) < 0:
                arena.meta[position] = PARKED
        asked = w.counts[ASKED]
    return asked
