"""The search for a canonical labelling, as compiled loops. `fencepost.semantics.labelling` explains the algorithm; the
arithmetic here is the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.encoding import MAX_SLOTS
from fencepost.checker.compiler.instructions import load
from fencepost.checker.compiler.memory import reserve
from fencepost.checker.compiler.native import field, mixed
from fencepost.files.loops import inner, njit
from fencepost.semantics import labelling
from fencepost.semantics.labelling import (
    COLOUR,
    CONSTANT,
    GROUP,
    KIND_BITS,
    LANES,
    MEMBER,
    MOST_MEMBERS,
    MOST_OPERANDS,
    ORDERED,
    STAR,
)

REMEMBERED = 1 << 16
"""Keys that a worker caches by the fingerprints of their states: most states are found several times."""

NUMBERS, CHANGED, SPLIT, CELL, REST = range(1, 6)
"""Rows of ``Scratch.colours`` after the first, which holds the colours. From ``REST`` each choice has two rows: the
colours before it, and the members to choose from.
"""
AT, SIZE, FRESH, SEEN = range(4)
"""The counts of a choice: the index of the member being tried, the number of members, whether this trial has not
reached a labelling yet, the number of hashes seen.
"""


class Scratch(NamedTuple):
    """The scratch memory of one worker that labels states. ``most``: labellings of one state to compare at most.
    ``terms``: where the program of each term begins, and the members in it. ``remembered``: cached fingerprints and
    keys, low and high halves. ``row``: a state.
    """

    most: Array
    colours: Array
    choices: Array
    signatures: Array
    seen: Array
    terms: Array
    operands: Array
    remembered: Array
    row: Array


def scratch() -> Scratch:
    """Scratch memory for one worker."""
    slots, members = MAX_SLOTS + 2, MOST_MEMBERS + 2
    return Scratch(
        most=np.array([labelling.MOST_LABELLINGS]),
        colours=np.zeros((REST + 2 * members, members), np.int64),
        choices=np.zeros((members, 4), np.int64),
        signatures=np.zeros(members, np.uint64),
        seen=np.zeros((members, members), np.uint64),
        terms=reserve(2 * slots, np.int64).reshape(2, slots),
        operands=reserve(MOST_OPERANDS, np.uint64),
        remembered=reserve(4 * REMEMBERED, np.uint64).reshape(REMEMBERED, 4),
        row=reserve(slots, np.uint64),
    )


@inner
def hashed(program, begin, colours, lane, operands):
    """One half of the hash of the term whose program begins at ``begin``, under a colouring. ``lane``: which half."""
    start = np.uint64(LANES[0]) if lane == 0 else np.uint64(LANES[1])
    top = 0
    at, end = begin + 2, load(program, begin + 1)
    while at < end:
        word = load(program, at)
        at += 1
        kind, operand = word & ((1 << KIND_BITS) - 1), word >> KIND_BITS
        if kind == CONSTANT:
            operands[top] = np.uint64(load(program, at + lane))
            at += 2
            top += 1
        elif kind == MEMBER:
            operands[top] = mixed(start + np.uint64(colours[operand] + 1) * np.uint64(COLOUR), np.uint64(0))
            top += 1
        else:
            total = start
            for k in range(top - operand, top):
                if kind == ORDERED:
                    total = mixed(total, operands[k])
                else:
                    total += mixed(operands[k], np.uint64(GROUP))
            top -= operand
            operands[top] = mixed(total, np.uint64(kind))
            top += 1
    return operands[0] if top else np.uint64(0)


@inner
def total_of(c, s, terms, mask, colours, lane):
    """The sum of the hashes of all terms that contain a member of ``mask``."""
    total = np.uint64(0)
    for t in range(terms):
        if s.terms[1, t] & mask:
            total += hashed(c.program, s.terms[0, t], colours, lane, s.operands)
    return total


@inner
def refine(c, s, terms):
    """Split the colours in ``s.colours[0]`` by signature until none splits any more."""
    colours, changed, split = s.colours[0], s.colours[CHANGED], s.colours[SPLIT]
    members = c.colours.size
    splitting = True
    while splitting:
        for m in range(members):
            changed[m] = colours[m]
        for m in range(members):
            alone = True
            for other in range(members):
                alone &= other == m or colours[other] != colours[m]
            s.signatures[m] = np.uint64(0)
            if not alone:
                changed[m] = STAR
                s.signatures[m] = total_of(c, s, terms, 1 << m, changed, 0)
                changed[m] = colours[m]
        splitting = False
        for m in range(members):
            split[m] = colours[m]
            for other in range(members):
                if colours[other] == colours[m] and s.signatures[other] < s.signatures[m]:
                    split[m] += 1
                    splitting = True
        for m in range(members):
            colours[m] = split[m]


@inner
def undecided(c, s, terms):
    """Write numbers that follow the colours. Returns how many members are in ``s.colours[CELL]``: those of the first
    colour whose members are not interchangeable, or 0.
    """
    colours, numbers, cell, changed = s.colours[0], s.colours[NUMBERS], s.colours[CELL], s.colours[CHANGED]
    members = c.colours.size
    for m in range(members):
        numbers[m] = colours[m]
        for other in range(m):
            numbers[m] += colours[other] == colours[m]
    for m in range(members):
        changed[m] = numbers[m]
    for colour in range(members):
        size = 0
        for m in range(members):
            if colours[m] == colour:
                cell[size] = m
                size += 1
        for k in range(size - 1):
            a, b = cell[k], cell[k + 1]
            mask = 1 << a | 1 << b
            before = total_of(c, s, terms, mask, numbers, 0)
            changed[a], changed[b] = numbers[b], numbers[a]
            after = total_of(c, s, terms, mask, changed, 0)
            changed[a], changed[b] = numbers[a], numbers[b]
            if before != after:
                return size
    return 0


@inner
def choose(c, s, terms, choice):
    """Make the current member of a choice the first of its colour, and refine."""
    kept, cell = s.colours[REST + 2 * choice], s.colours[REST + 2 * choice + 1]
    first = cell[s.choices[choice, AT]]
    for m in range(c.colours.size):
        s.colours[0, m] = kept[m] + (kept[m] == kept[first] and m != first)
    refine(c, s, terms)


@inner
def least_labelling(c, s, cells, row, wide):
    """The least hash of the canonical labellings of the state at ``cells[row]`` (low half, high half), and whether all
    of them were compared.
    """
    members = c.colours.size
    terms = 0
    fixed, fixed_high = np.uint64(0), np.uint64(0)
    for slot in range(c.program_base.size):
        value = field(cells, row, load(c.place, slot))
        if value:
            begin = load(c.program_at, load(c.program_base, slot) + value)
            mask = load(c.program, begin)
            if mask:
                s.terms[0, terms], s.terms[1, terms] = begin, mask
                terms += 1
            else:
                fixed += hashed(c.program, begin, c.colours, 0, s.operands)
                if wide:
                    fixed_high += hashed(c.program, begin, c.colours, 1, s.operands)
    for m in range(members):
        s.colours[0, m] = c.colours[m]
    refine(c, s, terms)
    least, least_high = np.uint64(0), np.uint64(0)
    labellings = depth = 0
    everyone = -1
    while True:
        size = undecided(c, s, terms)
        if size:
            for m in range(members):
                s.colours[REST + 2 * depth, m], s.colours[REST + 2 * depth + 1, m] = s.colours[0, m], s.colours[CELL, m]
            s.choices[depth, AT], s.choices[depth, SIZE], s.choices[depth, FRESH], s.choices[depth, SEEN] = (
                0,
                size,
                1,
                0,
            )
            choose(c, s, terms, depth)
            depth += 1
            continue
        low = fixed + total_of(c, s, terms, everyone, s.colours[NUMBERS], 0)
        high = fixed_high + total_of(c, s, terms, everyone, s.colours[NUMBERS], 1) if wide else np.uint64(0)
        if labellings == 0 or low < least or (low == least and high < least_high):
            least, least_high = low, high
        labellings += 1
        for choice in range(depth):
            if s.choices[choice, FRESH]:
                s.choices[choice, FRESH] = 0
                seen = s.choices[choice, SEEN]
                known = False
                for k in range(seen):
                    known |= s.seen[choice, k] == low
                if known:
                    depth = choice + 1
                    break
                s.seen[choice, seen] = low
                s.choices[choice, SEEN] = seen + 1
        while depth and s.choices[depth - 1, AT] + 1 == s.choices[depth - 1, SIZE]:
            depth -= 1
        if depth == 0 or labellings == s.most[0]:
            return least, least_high, depth == 0
        s.choices[depth - 1, AT] += 1
        s.choices[depth - 1, FRESH] = 1
        choose(c, s, terms, depth - 1)


@inner
def labelled_key(c, s, cells, row, wide):
    """The key of a state's orbit (low half, high half), and whether no other key can stand for the same orbit."""
    low, high, exact = least_labelling(c, s, cells, row, wide)
    return mixed(low, np.uint64(0)), high, exact


@njit
def labelled_keys(c, s, rows, lows, highs, wide):
    """Compute the keys of the orbits of these states. Returns whether each is the only key of its orbit."""
    all_exact = True
    flat = rows.reshape(-1)
    for i in range(lows.size):
        lows[i], highs[i], exact = labelled_key(c, s, flat, i * rows.shape[1], wide)
        all_exact &= exact
    return all_exact
