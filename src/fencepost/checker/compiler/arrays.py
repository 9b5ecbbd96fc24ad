"""The arrays of the compiled protocol, as compiled loops take them: shapes, types, and who may write them.

Sizes: R roots (properties first, then actions), O outcomes, L leaves, T tries, E entries, S slots, V bit-set words for
slots (a slot of a step counts as two), G images of a state (none without symmetry). The meaning of a single number
is in `encoding`. A list that belongs to outcomes is flat: that of outcome o is at [start[o], start[o + 1]).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Growing(NamedTuple):
    """The arrays by which tries grow. Only `native` and :class:`.tables.Tables` write them."""

    pool: Array
    """int32: nodes, one after the other."""
    top: Array
    """int64[1]: words of the pool in use."""
    roots: Array
    """int32[T]: the word that each trie begins with; the first R are the master tries."""
    tries: Array
    """int64[1]: how many tries there are."""
    trie_root: Array
    """int32[T]: the root that a trie says something about."""
    trie_known: Array
    """uint64[T, V]: bit set of the slots that a residual trie does not test, as the outcome leaves them known."""
    trie_change: Array
    """int32[T]: the change that a residual trie of a refinement is about; 0 for any other."""
    older: Array
    """int32[T]: the residual trie of a refinement that was in the place of this one, for states found before, or 0."""
    refines: Array
    """bool[R + 1]: whether a root is a refinement."""
    residual_keys: Array
    """uint64[a power of two]: hash table of residual tries, by what they are specialised to."""
    residual_tries: Array
    """int32, beside it: their numbers, 0 where there is none."""
    known_start: Array
    """int64[O + 1]: where the slots that an outcome's path has read are in the next three."""
    known_slot: Array
    """int32: the slot."""
    known_old: Array
    """int32: the value that was read."""
    known_new: Array
    """int32: the value after the outcome."""
    changed: Array
    """uint64[O, V]: bit set of the slots that an outcome writes."""
    change: Array
    """int32[O]: the number of the change that an outcome is to refinements."""
    like: Array
    """int32[O]: the first outcome that writes the same slots and leaves the same known, perhaps itself."""
    drop: Array
    """uint64[O, R // 64 + 1]: bit set of the roots that an outcome can change."""
    root_slots: Array
    """uint64[R, V]: bit set of the slots that a root has read so far."""
    entries: Array
    """int64[1]: how many entries there are."""
    entry_outcome: Array
    """int32[E]: the outcome of an entry."""
    entry_trie: Array
    """int32[E]: the residual trie that says what the outcome makes of a root."""


class Entries(NamedTuple):
    """The entries of every outcome in the order of outcomes, laid out by `native.link`."""

    start: Array
    """int32[O]: where an outcome's entries begin: properties of states first."""
    middle: Array
    """int32[O]: where its entries of actions begin."""
    end: Array
    """int32[O]: where they end."""
    word: Array
    """int64[E]: entries."""
    first: Array
    """int32[E]: the place of the slot that an entry tests first, NO_PLACE if it begins with no test."""
    gate: Array
    """uint64[E]: bit set of the values of that slot, below 64, at which the entry does not end disabled at once."""
    trie: Array
    """int32[E]: the trie of each."""
    step_start: Array
    """int32[O + 1]: where an outcome's step properties are in the next."""
    step_trie: Array
    """int32[E]: their tries."""


class Compiled(NamedTuple):
    """The arrays that the loops read which expand, build and judge states; valid until the tables grow.

    The last four are for canonical labellings, and empty without: see `canonical` and `programs`.
    """

    pool: Array
    """int32: as in :class:`Growing`."""
    place: Array
    """int32[S]: the place of each slot in a row."""
    roots: Array
    """int32[T]: as in :class:`Growing`."""
    is_constraint: Array
    """bool[R + 1]: whether a root is a constraint, of states or of steps."""
    leaf_root: Array
    """int32[L]: the root that a leaf satisfies."""
    leaf_span: Array
    """int64[L]: the outcomes of a leaf, a span."""
    outcome_root: Array
    """int32[O]: the action that an outcome is a step of; -1 for INITIAL."""
    delta: Array
    """uint64[O]: what an outcome does to a fingerprint, by exclusive or; low half."""
    delta_high: Array
    """uint64[O]: high half."""
    image_delta: Array
    """uint64[O, G]: the same, for the fingerprint of each image of a state."""
    image_delta_high: Array
    """uint64[O, G]: high half."""
    twin: Array
    """uint8[O]: whether an outcome of another leaf can have the same effect."""
    choice_start: Array
    """int64[O + 1]: where an outcome's choices are in the next."""
    choice: Array
    """int32: the option that was taken."""
    write_start: Array
    """int64[O + 1]: how many slots all outcomes before one write, together."""
    row_delta: Array
    """uint64[O, words]: what an outcome does to a row, by exclusive or."""
    start: Array
    middle: Array
    end: Array
    word: Array
    first: Array
    gate: Array
    trie: Array
    step_start: Array
    step_trie: Array
    """These nine: as in :class:`Entries`."""
    older: Array
    drop: Array
    known_start: Array
    known_slot: Array
    known_new: Array
    """These five: as in :class:`Growing`."""
    colours: Array
    """int64[members]: the colour of each member of a symmetric constant, at first."""
    program_base: Array
    """int64[S]: where the values of a slot begin in the next."""
    program_at: Array
    """int64: where the program of the term of a value begins."""
    program: Array
    """int64: programs: a mask of the members in the term, where it ends, instructions."""
