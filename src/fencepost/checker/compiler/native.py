"""The compiled loops over decision tries: walking them, and growing residual tries from master tries.

A trie lives in one pool of 32-bit words (`encoding` defines words, nodes, forks and cells). A walk takes all options of
a fork, and one value of any other node.

Trie number r is the **master** trie of root r if r is less than the number of roots: it grows from Python's recorded
evaluations. The others are **residual** tries: the master trie of one root, specialised to the values that one outcome
of an action has read and written. Compiled code grows them from the master, one path at a time. A path is a fact about
the protocol, so neither kind ever goes stale.

A refinement first reads the **change** of a step, a number that each outcome has (see `step.refinement`). When more is
learned about what computed parts read, an outcome may get another change and with it another residual trie. States
found before may know their way through the **older** trie only, and it is right about them.

A step is **idle** for a step property if it changes nothing that the property has read so far, in any state. On it the
property takes the path of the step from that state to itself. So that one step is judged in place of all idle steps out
of a state, and only if what led to the state was not idle either: otherwise its parent has the same path. As long as
the property is true of it in every state, idle steps have no entries. Once it is false in a state, all steps get
entries, before those out of that state are judged. A step also gets one when the property begins to read what it
changes. For states that were found before, the trie of such an entry may lack the path. The property is true there.
"""

from __future__ import annotations

import numpy as np

from fencepost.checker.compiler.encoding import (
    ACCESSORS,
    ACTION,
    DISABLED,
    FORK_ENTRY,
    INITIAL,
    MISS,
    NO_PLACE,
    NO_STEP,
    NODE_HEADER,
    PENDING,
    STEP_PROPERTY,
    cell_root,
    fork_options,
    is_fork,
    node_cell,
    node_room,
    pack_entry,
    place_bits,
    place_shift,
    place_word,
    root_cell,
    word_leaf,
)
from fencepost.checker.compiler.instructions import compile_accessor, load, store
from fencepost.files.loops import inner, njit
from fencepost.language.context import MAX_WAYS
from fencepost.semantics.slots import CHANGE, reads_after, slot_after, slot_before, slot_of_step

for accessor in ACCESSORS:
    compile_accessor(accessor)


STACK_WORDS = 2 * MAX_WAYS
"""Words of the stack that :func:`walk` and :func:`resolve` need for branches not taken yet: one or two for each."""

RESOLVED = 0
WAITING = 1
ASK = 2


@njit(inline="always")
def get(pool, roots, cell):
    """The word in a cell."""
    return pool[cell] if cell >= 0 else roots[cell_root(cell)]


@njit(inline="always")
def put(pool, roots, cell, word):
    """Write a cell."""
    if cell >= 0:
        pool[cell] = word
    else:
        roots[cell_root(cell)] = word


@njit(inline="always")
def has_bit(mask, bit):
    """Whether a bit set (an array of 64-bit words) has a bit."""
    return (mask[bit >> 6] >> np.uint64(bit & 63)) & np.uint64(1) != 0


@njit(inline="always")
def set_bit(mask, bit):
    """Add a bit to a bit set."""
    mask[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)


@njit
def room_for(value):
    """The number of values for which a node gets room when it must hold this one."""
    room = 2
    while room <= value:
        room *= 2
    return room


@njit
def new_node(pool, top, first, room):
    """Append a node whose cells are all MISS: the pool is zeroed and only ever appended to. Returns its index."""
    base = top[0]
    pool[base] = first
    pool[node_room(base)] = room
    top[0] = base + NODE_HEADER + room
    return base


@njit
def widened(pool, top, node, value):
    """Append a copy of a node with room for ``value``. Returns its index."""
    base = new_node(pool, top, pool[node], room_for(value))
    for value in range(pool[node_room(node)]):
        pool[node_cell(base, value)] = pool[node_cell(node, value)]
    return base


@inner
def field(cells, row, place):
    """The value number at a place of the row that begins at ``cells[row]``; see `layout`."""
    bits = load(cells, row + place_word(place)) >> np.uint64(place_shift(place))
    return np.int64(bits & ((np.uint64(1) << np.uint64(place_bits(place))) - np.uint64(1)))


@inner
def set_field(cells, row, place, value):
    """Write the value number at a place of a row."""
    at, shift = row + place_word(place), np.uint64(place_shift(place))
    mask = ((np.uint64(1) << np.uint64(place_bits(place))) - np.uint64(1)) << shift
    store(cells, at, (load(cells, at) & ~mask) | (np.uint64(value) << shift))


@njit
def move_fields(cells, begin, end, moves):
    """Move fields of the rows [begin, end) from one place to another, in order, and clear the old place."""
    for position in range(begin, end):
        row = cells[position]
        for m in range(len(moves)):
            value = field(row, np.int64(0), moves[m, 0])
            set_field(row, np.int64(0), moves[m, 0], np.int64(0))
            set_field(row, np.int64(0), moves[m, 1], value)


@njit
def repack(rows, before, after, target):
    """Copy rows into another layout whose slots have at least as many bits. ``target`` is all zeros."""
    for position in range(len(rows)):
        row, into = rows[position], target[position]
        for slot in range(before.size):
            if before[slot]:
                set_field(into, np.int64(0), after[slot], field(row, np.int64(0), before[slot]))


@inner
def walk(pool, places, cells, row, word, out, n, stack):
    """Walk a trie over the state at ``cells[row]`` and write the leaves it ends in to ``out`` from index ``n``. Returns
    the new n; -1 at a MISS, or if there are more ways than an action may have.
    """
    top = 0
    first = n
    while True:
        while word > 0:
            test = np.int64(load(pool, word))
            if is_fork(test):
                if n - first + top + fork_options(test) > MAX_WAYS:
                    return -1
                for option in range(1, fork_options(test)):
                    stack[top] = load(pool, node_cell(word, option))
                    top += 1
                word = np.int64(load(pool, node_cell(word, 0)))
                continue
            value = field(cells, row, load(places, test))
            if value >= load(pool, node_room(word)):
                return -1
            word = np.int64(load(pool, node_cell(word, value)))
        if word == MISS or word == PENDING:
            return -1
        if word != DISABLED:
            out[n] = word_leaf(word)
            n += 1
        if top == 0:
            return n
        top -= 1
        word = stack[top]


@inner
def new_value(g, outcome, slot, old):
    """The value of a slot after an outcome, from the value before."""
    for k in range(g.known_start[outcome], g.known_start[outcome + 1]):
        if g.known_slot[k] == slot:
            return np.int64(g.known_new[k])
    return np.int64(old)


@inner
def resolve(c, g, trie, cells, step, stack):
    """Extend a residual trie by the path that the state ``cells`` takes through its master trie.

    ``step``: for a step property, the outcome of the step out of that state, else NO_STEP. Returns RESOLVED; WAITING if
    the master has no path yet and Python was already asked; ASK if it must be asked now. ASK is also returned for too
    many ways, so that Python reports them.
    """
    pool, top, roots, places = g.pool, g.top, g.roots, c.place
    root, known = np.int64(g.trie_root[trie]), g.trie_known[trie]
    status = RESOLVED
    depth = 0
    ended = 0
    master, cell = root_cell(root), root_cell(trie)
    while True:
        word = get(pool, roots, master)
        if word == MISS:
            put(pool, roots, master, PENDING)
            status = ASK
        elif word == PENDING:
            status = max(status, WAITING)
        elif word < 0:
            put(pool, roots, cell, word)
            ended += word != DISABLED
        else:
            test = pool[word]
            mine = get(pool, roots, cell)
            if is_fork(test):
                options = fork_options(test)
                if ended + depth // 2 + options > MAX_WAYS:
                    return ASK
                if mine <= 0:
                    mine = new_node(pool, top, test, options)
                    put(pool, roots, cell, mine)
                for option in range(1, options):
                    stack[depth] = node_cell(word, option)
                    stack[depth + 1] = node_cell(mine, option)
                    depth += 2
                master, cell = node_cell(word, 0), node_cell(mine, 0)
                continue
            slot = test
            if test == CHANGE:
                value = np.int64(g.trie_change[trie])
            elif step != NO_STEP:
                slot = slot_of_step(test)
                value = field(cells, np.int64(0), places[slot])
                if reads_after(test):
                    value = new_value(g, step, slot, value)
            else:
                value = field(cells, np.int64(0), places[slot])
            if value >= pool[node_room(word)]:
                word = widened(pool, top, word, value)
                put(pool, roots, master, word)
                mine = get(pool, roots, cell)
            master = node_cell(word, value)
            if test != CHANGE and not has_bit(known, test):
                if mine <= 0:
                    mine = new_node(pool, top, slot, room_for(value))
                    put(pool, roots, cell, mine)
                elif value >= pool[node_room(mine)]:
                    mine = widened(pool, top, mine, value)
                    put(pool, roots, cell, mine)
                cell = node_cell(mine, value)
            continue
        if depth == 0:
            return status
        depth -= 2
        master, cell = stack[depth], stack[depth + 1]


@njit(inline="always")
def mixed(key, word):
    """One step of a 64-bit hash (the finaliser of splitmix64)."""
    z = key ^ word
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inner
def residual_of(keys, tries, count, roots_of, key, root):
    """The number of the residual trie with this key. Negated if it is new; its known bits are then empty."""
    size = keys.size
    place = np.int64(key & np.uint64(size - 1))
    while tries[place] != 0:
        if keys[place] == key:
            return tries[place]
        place = (place + 1) & (size - 1)
    keys[place] = key
    tries[place] = count[0]
    roots_of[count[0]] = root
    count[0] += 1
    return -tries[place]


@njit
def rehash(old_keys, old_tries, keys, tries):
    """Move the index of residual tries into larger arrays."""
    for i in range(old_keys.size):
        if old_tries[i] != 0:
            place = np.int64(old_keys[i] & np.uint64(keys.size - 1))
            while tries[place] != 0:
                place = (place + 1) & (keys.size - 1)
            keys[place] = old_keys[i]
            tries[place] = old_tries[i]


@inner
def residual_for(g, outcome, root, step):
    """The residual trie that evaluates ``root`` after an outcome, and whether it is a new one."""
    start, end = g.known_start[outcome], g.known_start[outcome + 1]
    key = mixed(np.uint64(root + 1) * np.uint64(0x9E3779B97F4A7C15), np.uint64(0))
    for k in range(start, end):
        slot = g.known_slot[k]
        if step:
            part = (
                (np.uint64(slot) << np.uint64(40))
                ^ (np.uint64(g.known_old[k]) << np.uint64(20))
                ^ np.uint64(g.known_new[k])
            )
            key ^= mixed(part, np.uint64(0xD6E8FEB86659FD93))
        elif has_bit(g.root_slots[root], slot):
            part = (np.uint64(slot) << np.uint64(32)) ^ np.uint64(g.known_new[k])
            key ^= mixed(part, np.uint64(0xA0761D6478BD642F))
    change = g.change[outcome] if step and g.knows_change[root] else np.int32(0)
    if change:
        key ^= mixed(np.uint64(change), np.uint64(0xE7037ED1A0B428DB))
    trie = residual_of(g.residual_keys, g.residual_tries, g.tries, g.trie_root, key, root)
    new = trie < 0
    if new:
        trie = -trie
        g.trie_change[trie] = change
        for k in range(start, end):
            slot = g.known_slot[k]
            if step:
                for virtual in (slot_before(slot), slot_after(slot)):
                    set_bit(g.trie_known[trie], virtual)
            elif has_bit(g.root_slots[root], slot):
                set_bit(g.trie_known[trie], slot)
    return np.int64(trie), new


@inner
def add_entry(g, outcome, root, step):
    """Record that ``outcome`` can change the result of ``root``, with the residual trie that evaluates it."""
    trie, _ = residual_for(g, outcome, root, step)
    n = g.entries[0]
    g.entry_outcome[n] = outcome
    g.entry_trie[n] = trie
    g.entries[0] = n + 1
    set_bit(g.drop[outcome], root)


@inner
def touches(changed, slots):
    """Whether two bit sets intersect."""
    for i in range(changed.size):
        if changed[i] & slots[i]:
            return True
    return False


@inner
def concerns(g, outcome, root, step):
    """Whether an outcome has an entry for a root: it changes what the root reads, or it is a step to be judged."""
    return (step and not g.idle[root]) or touches(g.changed[outcome], g.root_slots[root])


@inner
def copy_drops(g, outcome, like):
    """Copy to an outcome the set of roots that another one can change."""
    for i in range(g.drop.shape[1]):
        g.drop[outcome, i] = g.drop[like, i]


@njit
def add_outcomes(g, first, end, root_kind):
    """Add entries for new outcomes: for every root that reads a slot the outcome changes, and for step properties that
    are not true of idle steps.

    An outcome that writes the same slots as an earlier one, and leaves the same values known, shares its entries.
    """
    stepwise = False
    for root in range(root_kind.size):
        stepwise |= root_kind[root] == STEP_PROPERTY
    for outcome in range(first, end):
        like = g.like[outcome]
        for root in range(root_kind.size if like == outcome or stepwise else 0):
            step = root_kind[root] == STEP_PROPERTY
            if (step or like == outcome) and concerns(g, outcome, root, step):
                add_entry(g, outcome, root, step)
        copy_drops(g, outcome, like)


@njit
def widen_root(g, root, gained, outcomes, step):
    """A root has begun to read the slots ``gained``. Outcomes that change them, but nothing it read before, now affect
    it.
    """
    for outcome in range(1, outcomes):
        is_like = g.like[outcome] != outcome
        if is_like:
            copy_drops(g, outcome, g.like[outcome])
        if (
            (step or not is_like)
            and touches(g.changed[outcome], gained)
            and not touches(g.changed[outcome], g.root_slots[root])
        ):
            # The key of an entry includes what the root now reads.
            for i in range(gained.size):
                g.root_slots[root, i] |= gained[i]
            add_entry(g, outcome, root, step)
            for i in range(gained.size):
                g.root_slots[root, i] &= ~gained[i]
    for i in range(gained.size):
        g.root_slots[root, i] |= gained[i]


@njit
def judge_idle(g, root, outcomes):
    """A step property is not true of every idle step. Add entries for those."""
    for outcome in range(1, outcomes):
        if not touches(g.changed[outcome], g.root_slots[root]):
            add_entry(g, outcome, root, np.bool_(True))
    g.idle[root] = False


@njit
def renew(g, is_renewed):
    """Give outcomes whose change number is new another residual trie for each refinement. The previous one becomes the
    older one.
    """
    for n in range(g.entries[0]):
        outcome, trie = g.entry_outcome[n], g.entry_trie[n]
        root = np.int64(g.trie_root[trie])
        if is_renewed[outcome] and g.knows_change[root]:
            now, new = residual_for(g, np.int64(outcome), root, np.bool_(True))
            if new:
                g.older[now] = trie
            g.entry_trie[n] = now


@inner
def entry_of(pool, places, word):
    """The entry of a trie that begins with this word."""
    if word <= 0:
        return np.int64(word)
    test = np.int64(pool[word])
    return pack_entry(np.int64(FORK_ENTRY if is_fork(test) else places[test]), np.int64(word))


@njit
def gate_of(pool, places, word):
    """The first test of a trie: the place of its slot, and a bit set of the values for which it is not disabled at
    once.
    """
    if word <= 0 or is_fork(pool[word]):
        return np.int32(NO_PLACE), np.uint64(1)
    place = places[pool[word]]
    gate = ~np.uint64(0)
    if place_bits(place) <= 6:
        for value in range(min(pool[node_room(word)], 64)):
            if pool[node_cell(word, value)] == DISABLED:
                gate ^= np.uint64(1) << np.uint64(value)
    return place, gate


@njit
def row_deltas(g, places, first, end, deltas):
    """Compute what the outcomes [first, end) XOR into a row. An outcome knows the old value of each slot that it
    writes.
    """
    for outcome in range(first, end):
        delta = deltas[outcome]
        for x in range(delta.size):
            delta[x] = 0
        for k in range(g.known_start[outcome], g.known_start[outcome + 1]):
            place = places[g.known_slot[k]]
            change = np.uint64(g.known_old[k] ^ g.known_new[k])
            delta[place_word(place)] ^= change << np.uint64(place_shift(place))


@inner
def is_needless(g, root_kind, n):
    """Whether an entry need not be looked at: its trie is disabled in every state, or it is in place of those of idle
    steps, which now have their own.
    """
    trie = g.entry_trie[n]
    root = g.trie_root[trie]
    is_idle = g.entry_outcome[n] == INITIAL and root_kind[root] == STEP_PROPERTY
    return g.roots[trie] == DISABLED or (is_idle and not g.idle[root])


@njit
def link(g, places, root_kind, entries, fill):
    """Sort the entries by outcome: properties in [start, middle), actions in [middle, end), step properties apart.

    The step properties of INITIAL are those to be true of idle steps. Leaves out needless entries. ``fill`` (int64, 3
    for each outcome) is scratch.
    """
    start, middle, end, step_start = entries.start, entries.middle, entries.end, entries.step_start
    outcomes = fill.size // 3
    for o in range(outcomes):
        start[o] = middle[o] = end[o] = step_start[o + 1] = 0
    step_start[0] = 0
    for n in range(g.entries[0]):
        if is_needless(g, root_kind, n):
            continue
        kind = root_kind[g.trie_root[g.entry_trie[n]]]
        o = g.entry_outcome[n]
        if kind == STEP_PROPERTY:
            step_start[o + 1] += 1
        elif kind == ACTION:
            end[o] += 1
        else:
            middle[o] += 1
    top = 0
    for o in range(outcomes):
        step_start[o + 1] += step_start[o]
        like = g.like[o]
        if like != o:
            start[o], middle[o], end[o] = start[like], middle[like], end[like]
            continue
        start[o] = top
        middle[o] += top
        top = end[o] = end[o] + middle[o]
    for o in range(outcomes):
        fill[3 * o] = start[o]
        fill[3 * o + 1] = middle[o]
        fill[3 * o + 2] = step_start[o]
    for n in range(g.entries[0]):
        if is_needless(g, root_kind, n):
            continue
        trie = g.entry_trie[n]
        w = g.roots[trie]
        kind = root_kind[g.trie_root[trie]]
        o = g.entry_outcome[n]
        if kind == STEP_PROPERTY:
            entries.step_trie[fill[3 * o + 2]] = trie
            fill[3 * o + 2] += 1
            continue
        which = 3 * o + (1 if kind == ACTION else 0)
        k = fill[which]
        fill[which] = k + 1
        entries.trie[k] = trie
        entries.word[k] = entry_of(g.pool, places, w)
        entries.first[k], entries.gate[k] = gate_of(g.pool, places, w)
