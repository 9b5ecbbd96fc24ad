"""The arrays of the compiled protocol, as compiled loops take them: shapes, types, and who may write them.

Sizes: R roots (properties first, then actions), O outcomes, L leaves, T tries, E entries, S slots, V words of a bit set
of slots (a slot of a step counts as two), G images of a state (0 without symmetry). `encoding` defines the meaning of a
single number. A list per outcome is flat: outcome o has [start[o], start[o + 1]).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Growing(NamedTuple):
    """The arrays that grow with the tries. Only `native` and :class:`.tables.Tables` write them."""

    pool: Array
    """int32: nodes, one after the other."""
    top: Array
    """int64[1]: words of the pool in use."""
    roots: Array
    """int32[T]: the word that each trie begins with; the first R are the master tries."""
    tries: Array
    """int64[1]: the number of tries."""
    trie_root: Array
    """int32[T]: the root that a trie evaluates."""
    trie_known: Array
    """uint64[T, V]: bit set of the slots that a residual trie does not test, because its outcome fixes them."""
    trie_change: Array
    """int32[T]: the change that a residual trie is specialised to, if its root reads it; otherwise 0."""
    older: Array
    """int32[T]: the residual trie of a refinement that this one replaced, for states found before; or 0."""
    knows_change: Array
    """bool[R + 1]: whether a root first reads the change of a step."""
    residual_keys: Array
    """uint64[a power of two]: keys of the hash table of residual tries: what each is specialised to."""
    residual_tries: Array
    """int32, same length: the numbers of the tries, 0 in an empty cell."""
    known_start: Array
    """int64[O + 1]: where the slots that an outcome's path read begin in the next three arrays."""
    known_slot: Array
    """int32: the slot."""
    known_old: Array
    """int32: the value that was read."""
    known_new: Array
    """int32: the value after the outcome."""
    changed: Array
    """uint64[O, V]: bit set of the slots that an outcome writes."""
    change: Array
    """int32[O]: the number of an outcome's change, for roots that read it."""
    like: Array
    """int32[O]: the first outcome that writes the same slots and leaves the same values known; may be itself."""
    drop: Array
    """uint64[O, R // 64 + 1]: bit set of the roots that an outcome can change."""
    root_slots: Array
    """uint64[R, V]: bit set of the slots that a root has read so far."""
    idle: Array
    """bool[R + 1]: whether a step property is true of every idle step met, see `native`."""
    entries: Array
    """int64[1]: the number of entries."""
    entry_outcome: Array
    """int32[E]: the outcome of an entry."""
    entry_trie: Array
    """int32[E]: the residual trie that evaluates a root after the outcome."""


class Entries(NamedTuple):
    """The entries of all outcomes, sorted by outcome; `native.link` lays them out."""

    start: Array
    """int32[O]: where an outcome's entries begin. State properties come first."""
    middle: Array
    """int32[O]: where its entries for actions begin."""
    end: Array
    """int32[O]: where they end."""
    word: Array
    """int64[E]: entries."""
    first: Array
    """int32[E]: the place of the slot that an entry tests first; NO_PLACE if it does not begin with a test."""
    gate: Array
    """uint64[E]: bit set of the values of that slot, below 64, for which the entry is not disabled at once."""
    trie: Array
    """int32[E]: the trie of each."""
    step_start: Array
    """int32[O + 1]: where an outcome's step properties begin in the next array."""
    step_trie: Array
    """int32[E]: their tries."""


class Compiled(NamedTuple):
    """The arrays read by the loops that expand, build and judge states. Valid until the tables grow.

    The last four are for canonical labellings, and empty otherwise: see `canonical` and `programs`.
    """

    pool: Array
    """int32: as in :class:`Growing`."""
    place: Array
    """int32[S]: the place of each slot in a row."""
    roots: Array
    """int32[T]: as in :class:`Growing`."""
    is_constraint: Array
    """bool[R + 1]: whether a root is a constraint, of states or of steps."""
    is_predicate: Array
    """bool[R + 1]: whether a root is a predicate of steps, which is no property."""
    leaf_root: Array
    """int32[L]: the root that a leaf satisfies."""
    leaf_span: Array
    """int64[L]: the outcomes of a leaf, a span."""
    outcome_root: Array
    """int32[O]: the action that an outcome is a step of; -1 for INITIAL."""
    delta: Array
    """uint64[O]: what an outcome XORs into a fingerprint; low half."""
    delta_high: Array
    """uint64[O]: high half."""
    image_delta: Array
    """uint64[O, G]: the same, for the fingerprint of each image of a state."""
    image_delta_high: Array
    """uint64[O, G]: high half."""
    twin: Array
    """uint8[O]: whether an outcome of another leaf can have the same effect."""
    trie_root: Array
    """int32[T]: as in :class:`Growing`."""
    choice_start: Array
    """int64[O + 1]: where an outcome's choices begin in the next array."""
    choice: Array
    """int32: the option that was taken."""
    write_start: Array
    """int64[O + 1]: the number of slots written by all earlier outcomes together."""
    row_delta: Array
    """uint64[O, words]: what an outcome XORs into a row."""
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
    """int64[members]: the initial colour of each member of a symmetric constant."""
    program_base: Array
    """int64[S]: where the values of a slot begin in the next array."""
    program_at: Array
    """int64: where the program of a value's term begins."""
    program: Array
    """int64: programs: a bit mask of the members in the term, the end of the program, its instructions."""
