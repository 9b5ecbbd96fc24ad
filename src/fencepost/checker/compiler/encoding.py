"""Every code and every packed number of the compiled protocol, defined once: the interface between the tables that
Python grows, the loops that Numba compiles, and the files and tasks that carry states.

A number that is packed from others has a function that packs it and one that reads each part. All of them are plain
arithmetic: they take an ``int``, or a NumPy array of them and work element by element, and compiled loops call the same
functions (`native` registers them with Numba). Nothing here imports NumPy or Numba.

=============== ====== =========================================== ========================= =========================
number          dtype  parts, from the highest bit                 written by                read by
=============== ====== =========================================== ========================= =========================
reference       int64  position of the parent (39), outcome (24)   `kernel` when it expands  `kernel`, engines, `audit`
link            int64  number of the parent in the level before    `kernel` when a level     `links`, engines,
                       it (39), outcome (24)                       ends                      checkpoints
span            int64  first outcome of a leaf (39), how many (24) `tables`                  every loop over steps
meta            int64  first enabled leaf (43), how many (20);     `kernel`, `walks`         every loop over states
                       or OUTSIDE, or PARKED
place           int32  word of a row (19), shift (6), bits (6)     `layout`                  whatever reads a row
trie word       int32  MISS, PENDING, DISABLED, a leaf, a node     `tables`, `native`        `native`, `kernel`
entry           int64  where the first node looks (31), word (32)  `native.link`             `kernel.follow`
test of a node  int32  a slot, CHANGE, or a fork's options         `tables`, `native`        `native`, `kernel`
=============== ====== =========================================== ========================= =========================

A **root** is a property or an action with its parameters bound; its number is its index in the stepper. A **leaf** is
where a trie ends, a way to satisfy a root: numbers below the number of roots stand for "this property is violated" (if
it is to be sometimes true: "it is"), the others are leaves of actions. An **outcome** is one step that a leaf of an
action allows: what it writes, and by which choices. A **position** is a place in an arena, a **number** a place in a
level in the order in which its states are logged.
"""

# mypy: disable-error-code="no-any-return"
# Of arithmetic on arrays mypy knows no more.

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.language.context import MAX_WAYS
from fencepost.language.declarations import TEMPORAL
from fencepost.semantics.roots import MAPPING
from fencepost.semantics.slots import CHANGE, reads_after, slot_after, slot_before, slot_of_step

if TYPE_CHECKING:
    import numpy as np

    N = TypeVar("N", int, np.int64, np.ndarray[Any, Any])
else:
    N = TypeVar("N")

F = TypeVar("F", bound=Callable[..., Any])

ACCESSORS: list[Callable[..., Any]] = [slot_before, slot_after, slot_of_step, reads_after]
"""The functions here that compiled loops call too."""


def accessor(function: F) -> F:
    """Let compiled loops call a function of this file."""
    ACCESSORS.append(function)
    return function


# -- roots ------------------------------------------------------------------------------------------------------------

STATE_PROPERTY, ACTION, STEP_PROPERTY, TEMPORAL_PROPERTY = 0, 1, 2, 3
"""Kinds of roots (int8). Temporal properties are looked up in states that are done, never on the way: no outcome has an
entry for them.
"""

KIND = {
    "constraint": STATE_PROPERTY,
    "invariant": STATE_PROPERTY,
    "sometimes": STATE_PROPERTY,
    MAPPING: STATE_PROPERTY,
    "action": ACTION,
    "step_constraint": STEP_PROPERTY,
    "step_invariant": STEP_PROPERTY,
    "refinement": STEP_PROPERTY,
    **dict.fromkeys(TEMPORAL, TEMPORAL_PROPERTY),
}
"""The kind of a root by what it was declared as."""

# -- outcomes, and the numbers that end in one ------------------------------------------------------------------------

OUTCOME_BITS = 24
OUTCOME_MASK = (1 << OUTCOME_BITS) - 1
MAX_OUTCOMES = 1 << OUTCOME_BITS

INITIAL = 0
"""The outcome by which initial states come into being: it leaves nothing known and affects every root. In the reference
and the link of an initial state, its number among the initial states is in the place of the parent.
"""

NO_STEP = -1
"""In the place of an outcome: a root is asked about a state, and not about a step out of it."""


@accessor
def pack_reference(parent: N, outcome: N) -> N:
    """How a state was discovered: from the state at this position of the level before, by this outcome."""
    return parent << OUTCOME_BITS | outcome


@accessor
def reference_parent(reference: N) -> N:
    """The position of the parent in the arena of the level before."""
    return reference >> OUTCOME_BITS


@accessor
def reference_outcome(reference: N) -> N:
    """The outcome that led from the parent to the state."""
    return reference & OUTCOME_MASK


pack_link, link_parent, link_outcome = pack_reference, reference_parent, reference_outcome
"""The same for the part that is kept for good of how a state was discovered: the number of its parent in the level
before, and the outcome.
"""


@accessor
def pack_span(first: N, count: N) -> N:
    """The outcomes of a leaf: ``count`` of them, numbered from ``first`` on."""
    return first << OUTCOME_BITS | count


@accessor
def span_first(span: N) -> N:
    """The first outcome of a leaf."""
    return span >> OUTCOME_BITS


@accessor
def span_count(span: N) -> N:
    """How many outcomes a leaf has."""
    return span & OUTCOME_MASK


@accessor
def span_end(span: N) -> N:
    """The outcome behind the last one of a leaf."""
    return (span >> OUTCOME_BITS) + (span & OUTCOME_MASK)


# -- the meta of a state ----------------------------------------------------------------------------------------------

META_BITS = 20
META_MASK = (1 << META_BITS) - 1

MAX_LEAVES = 8 * MAX_WAYS
"""Enabled leaves of one state: of the actions that are enabled in it, each for every option that goes on to read."""
assert MAX_LEAVES <= META_MASK

OUTSIDE = -1
"""The meta of a state outside a constraint: checked, but neither counted nor expanded."""
PARKED = -2
"""The meta of a state that fell off a trie, and waits for Python."""


@accessor
def pack_meta(first: N, count: N) -> N:
    """Where the enabled leaves of a state are in the leaves of its arena."""
    return first << META_BITS | count


@accessor
def meta_first(meta: N) -> N:
    """The place of the first enabled leaf."""
    return meta >> META_BITS


@accessor
def meta_count(meta: N) -> N:
    """How many leaves are enabled."""
    return meta & META_MASK


@accessor
def meta_end(meta: N) -> N:
    """The place behind the last enabled leaf."""
    return (meta >> META_BITS) + (meta & META_MASK)


@accessor
def is_inside(meta: Any) -> Any:
    """Whether a state is complete and inside every constraint: it is counted, and is to be expanded."""
    return meta >= 0


# -- where a slot stands in a row -------------------------------------------------------------------------------------

WORD_BITS = 64
SIZES = (1, 2, 4, 8, 16, 32)
"""Bits that a slot can take."""
MAX_SLOTS = (1 << 16) - 2
NO_PLACE = 0
"""The place of a slot without bits, which reads as 0 in every row."""


@accessor
def pack_place(word: N, shift: N, bits: N) -> N:
    """The ``bits`` bits of a word of a row, from bit ``shift`` on."""
    return word << 12 | shift << 6 | bits


@accessor
def place_word(place: N) -> N:
    """The word of the row."""
    return place >> 12


@accessor
def place_shift(place: N) -> N:
    """The lowest bit of the slot in its word."""
    return place >> 6 & 63


@accessor
def place_bits(place: N) -> N:
    """How many bits the slot has."""
    return place & 63


# -- tries ------------------------------------------------------------------------------------------------------------

MISS = 0
"""A trie word: no evaluation has come here yet."""
DISABLED = -1
"""A trie word: the root gives nothing here. An action is not enabled, an invariant holds."""
LEAF = -2
"""A trie word: leaf 0; leaf n is the word ``LEAF - n``."""
PENDING = -(1 << 31)
"""A trie word: Python was asked what comes here."""

FORK = 1 << 24
"""The test of a node with no option; one with n options has the test ``FORK + n``."""
assert MAX_SLOTS < CHANGE < FORK
assert slot_after(MAX_SLOTS) < CHANGE

NODE_HEADER = 2
"""Words of a node before those of its values: its test, and how many values it has room for."""

MAX_WORDS = 1 << 30
"""Words of the pool that nodes are in. A trie word holds the place of a node in 31 bits."""
MAX_TRIES = 1 << 26
MAX_ENTRIES = 1 << 28

FORK_ENTRY = (1 << 31) - 1
"""The number that an entry has instead of a place if its trie begins with a fork."""
ENTRY_BITS = 32


@accessor
def leaf_word(leaf: N) -> N:
    """The trie word for a leaf."""
    return LEAF - leaf


@accessor
def word_leaf(word: N) -> N:
    """The leaf that a trie word stands for, if it is not MISS, PENDING, DISABLED or a node."""
    return LEAF - word


@accessor
def fork_test(options: N) -> N:
    """The test of a fork: all of its options are gone, whatever the state."""
    return FORK + options


@accessor
def is_fork(test: Any) -> Any:
    """Whether the test of a node is that of a fork."""
    return test >= FORK


@accessor
def fork_options(test: N) -> N:
    """How many options a fork has."""
    return test - FORK


@accessor
def node_room(node: N) -> N:
    """The place in the pool of how many values a node has room for; the node's own place is that of its test."""
    return node + 1


@accessor
def node_cell(node: N, value: N) -> N:
    """The cell of a value, or of an option, of a node."""
    return node + NODE_HEADER + value


@accessor
def root_cell(trie: N) -> N:
    """The cell in which a trie begins: cells from 0 on are in the pool, those below in the array of roots."""
    return -1 - trie


@accessor
def cell_root(cell: N) -> N:
    """The trie that begins in a cell below 0."""
    return -1 - cell


@accessor
def pack_entry(where: N, node: N) -> N:
    """An entry of a trie that begins with a node: the place of the slot that the node tests, or FORK_ENTRY, and the
    node. The entry of any other trie is its word.
    """
    return where << ENTRY_BITS | node


@accessor
def entry_where(entry: N) -> N:
    """Where to look in the row."""
    return entry >> ENTRY_BITS


@accessor
def entry_node(entry: N) -> N:
    """The first node of the trie."""
    return entry & ((1 << ENTRY_BITS) - 1)


# -- what workers count -----------------------------------------------------------------------------------------------

COUNT, PARKS, LEAF_TOP, CAPACITY, USED, ZERO, DEADLOCK, OUT, INEXACT, BASE, LEAF_BASE, ASKED = range(12)
"""The counts of a worker (int64): states in its region, parked ones, leaves; its table's capacity, entries, whether it
holds 0; the place in the level of the first state without successors (or -1); states outside a constraint; those whose
key is not the only one of their orbit; where its region begins, in the positions of an arena and in the leaves; the
questions for Python that it has written down.
"""
COUNTERS = 16
"""Room for them: two cache lines."""

NEXT, END, STOP = 0, 8, 16
"""The numbers that the workers of a simulation share (int64), each in a cache line of its own: the number of the next
walk to begin, the number at which to end, whether to come back to the driver.
"""
CONTROLS = 32
"""Room for them."""
