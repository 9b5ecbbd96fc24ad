"""Every code and every packed number of the compiled protocol, defined once. This is the interface between the tables
that Python grows, the loops that Numba compiles, and the files and tasks that carry states.

A packed number has a function that packs it and one that reads each part. They are plain arithmetic on an ``int`` or,
element by element, a NumPy array. Compiled loops call the same functions (`native` registers them with Numba). Nothing
here imports NumPy or Numba.

=============== ====== =========================================== ========================= =========================
number          dtype  parts, from the highest bit                 written by                read by
=============== ====== =========================================== ========================= =========================
reference       int64  position of the parent (39), outcome (24)   `kernel` when it expands  `kernel`, engines, `audit`
link            int64  number of the parent in the level before    `kernel` when a level     `links`, engines,
                       it (39), outcome (24)                       ends                      checkpoints
span            int64  first outcome of a leaf (39), how many (24) `tables`                  every loop over steps
meta            int64  first enabled leaf (43), how many (20);     `kernel`, `walks`         every loop over states
                       or OUTSIDE, or PARKED
place           int32  word of a row (19), shift (6), bits (6)     `layout`                  every reader of a row
trie word       int32  MISS, PENDING, DISABLED, a leaf, a node     `tables`, `native`        `native`, `kernel`
entry           int64  where the first node looks (31), word (32)  `native.link`             `kernel.follow`
test of a node  int32  a slot, CHANGE, or a fork's options         `tables`, `native`        `native`, `kernel`
=============== ====== =========================================== ========================= =========================

A **root** is a property or an action with its parameters bound; its number is its index in the stepper. A **leaf** is
where a trie ends, one way to satisfy a root. Leaves below the number of roots mean "this property is violated" ("is
true" for a ``sometimes`` property); the others are leaves of actions. An **outcome** is one step that a leaf of an
action allows: what it writes, and by which choices. A **position** is an index in an arena. A **number** is an index in
a level, in the order in which its states are logged.
"""

# mypy: disable-error-code="no-any-return"
# mypy does not know the type of arithmetic on arrays.

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.language.context import MAX_WAYS
from fencepost.language.declarations import INITIALLY, TEMPORAL
from fencepost.semantics.roots import MAPPING, PREDICATE, START, STEP_PREDICATE
from fencepost.semantics.slots import CHANGE, reads_after, slot_after, slot_before, slot_of_step

if TYPE_CHECKING:
    import numpy as np

    N = TypeVar("N", int, np.int64, np.ndarray[Any, Any])
else:
    N = TypeVar("N")

F = TypeVar("F", bound=Callable[..., Any])

ACCESSORS: list[Callable[..., Any]] = [slot_before, slot_after, slot_of_step, reads_after]
"""The functions that compiled loops may call: those here, and those of slots."""


def accessor(function: F) -> F:
    """Let compiled loops call a function of this module."""
    ACCESSORS.append(function)
    return function


# -- roots ------------------------------------------------------------------------------------------------------------

STATE_PROPERTY, ACTION, STEP_PROPERTY, TEMPORAL_PROPERTY = 0, 1, 2, 3
"""Kinds of roots (int8). Temporal properties are judged in complete states, and conditions on initial states before the
search: no outcome has an entry for them.
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
    STEP_PREDICATE: STEP_PROPERTY,
    PREDICATE: TEMPORAL_PROPERTY,
    START: TEMPORAL_PROPERTY,
    INITIALLY: TEMPORAL_PROPERTY,
    **dict.fromkeys(TEMPORAL, TEMPORAL_PROPERTY),
}
"""The kind of a root, by its declaration."""

# -- outcomes, and the numbers that end in one ------------------------------------------------------------------------

OUTCOME_BITS = 24
OUTCOME_MASK = (1 << OUTCOME_BITS) - 1
MAX_OUTCOMES = 1 << OUTCOME_BITS

INITIAL = 0
"""The outcome that makes initial states. It leaves no value known and affects every root. The reference and the link of
an initial state hold its number among the initial states instead of a parent.
"""

NO_STEP = -1
"""Used instead of an outcome: evaluate a root in a state, not for a step out of it."""


@accessor
def pack_reference(parent: N, outcome: N) -> N:
    """How a state was discovered: from this position of the previous level, by this outcome."""
    return parent << OUTCOME_BITS | outcome


@accessor
def reference_parent(reference: N) -> N:
    """The position of the parent in the arena of the previous level."""
    return reference >> OUTCOME_BITS


@accessor
def reference_outcome(reference: N) -> N:
    """The outcome that led from the parent to the state."""
    return reference & OUTCOME_MASK


pack_link, link_parent, link_outcome = pack_reference, reference_parent, reference_outcome
"""The same for a link, the permanent record of how a state was discovered: the number of its parent in the previous
level, and the outcome.
"""


@accessor
def pack_span(first: N, count: N) -> N:
    """The outcomes of a leaf: ``count`` of them, starting at ``first``."""
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
    """One past the last outcome of a leaf."""
    return (span >> OUTCOME_BITS) + (span & OUTCOME_MASK)


# -- the meta of a state ----------------------------------------------------------------------------------------------

META_BITS = 20
META_MASK = (1 << META_BITS) - 1

MAX_LEAVES = 8 * MAX_WAYS
"""The most enabled leaves of one state: of all enabled actions, one for each option after which an action reads on."""
assert MAX_LEAVES <= META_MASK

OUTSIDE = -1
"""The meta of a state outside a constraint: it is checked, but neither counted nor expanded."""
PARKED = -2
"""The meta of a state that fell off a trie and waits for Python."""


@accessor
def pack_meta(first: N, count: N) -> N:
    """Where a state's enabled leaves are in the leaves of its arena."""
    return first << META_BITS | count


@accessor
def meta_first(meta: N) -> N:
    """The index of the first enabled leaf."""
    return meta >> META_BITS


@accessor
def meta_count(meta: N) -> N:
    """How many leaves are enabled."""
    return meta & META_MASK


@accessor
def meta_end(meta: N) -> N:
    """One past the last enabled leaf."""
    return (meta >> META_BITS) + (meta & META_MASK)


@accessor
def is_inside(meta: Any) -> Any:
    """Whether a state is complete and inside every constraint, so that it is counted and expanded."""
    return meta >= 0


# -- the place of a slot in a row -------------------------------------------------------------------------------------

WORD_BITS = 64
SIZES = (1, 2, 4, 8, 16, 32)
"""Numbers of bits that a slot can have."""
MAX_SLOTS = (1 << 16) - 2
NO_PLACE = 0
"""The place of a slot without bits. It reads as 0 in every row."""


@accessor
def pack_place(word: N, shift: N, bits: N) -> N:
    """A bit field of a row: ``bits`` bits of a word, starting at bit ``shift``."""
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
"""A trie word: no evaluation has reached this point yet."""
DISABLED = -1
"""A trie word: the root yields nothing here. An action is disabled; an invariant holds."""
LEAF = -2
"""A trie word: leaf 0; leaf n is the word ``LEAF - n``."""
PENDING = -(1 << 31)
"""A trie word: Python was already asked to evaluate this."""

FORK = 1 << 24
"""The test of a fork is ``FORK`` plus the number of its options."""
assert MAX_SLOTS < CHANGE < FORK
assert slot_after(MAX_SLOTS) < CHANGE

NODE_HEADER = 2
"""Words of a node before those of its values: its test, and the number of values it has room for."""

MAX_WORDS = 1 << 30
"""Words of the pool of nodes. A trie word holds the index of a node in 31 bits."""
MAX_TRIES = 1 << 26
MAX_ENTRIES = 1 << 28

FORK_ENTRY = (1 << 31) - 1
"""Used in an entry instead of a place if its trie begins with a fork."""
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
    """The test of a fork. All of its options are walked, whatever the state."""
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
    """The index in the pool of the number of values a node has room for. The node's own index is that of its test."""
    return node + 1


@accessor
def node_cell(node: N, value: N) -> N:
    """The cell of a node for a value or an option."""
    return node + NODE_HEADER + value


@accessor
def root_cell(trie: N) -> N:
    """The cell in which a trie begins. Cells from 0 are in the pool; negative ones are in the array of roots."""
    return -1 - trie


@accessor
def cell_root(cell: N) -> N:
    """The trie that begins in a negative cell."""
    return -1 - cell


@accessor
def pack_entry(where: N, node: N) -> N:
    """An entry of a trie that begins with a node: the place of the slot that the node tests (or FORK_ENTRY), and the
    node. The entry of any other trie is its word.
    """
    return where << ENTRY_BITS | node


@accessor
def entry_where(entry: N) -> N:
    """The place to read in the row."""
    return entry >> ENTRY_BITS


@accessor
def entry_node(entry: N) -> N:
    """The first node of the trie."""
    return entry & ((1 << ENTRY_BITS) - 1)


# -- what workers count -----------------------------------------------------------------------------------------------

COUNT, PARKS, LEAF_TOP, CAPACITY, USED, ZERO, DEADLOCK, OUT, INEXACT, BASE, LEAF_BASE, ASKED = range(12)
"""The counts of a worker (int64), in order. Of its states: those in its region, parked ones, leaves. Of its table: the
capacity, the entries, whether it holds 0. Of the level: the index of the first state without successors (or -1), states
outside a constraint, states whose key is not the only one of their orbit. Where its region begins: in the positions of
an arena, in the leaves. And the questions for Python that it has recorded.
"""
COUNTERS = 16
"""Size of the array of counts: two cache lines."""

NEXT, END, STOP = 0, 8, 16
"""Numbers shared by the workers of a simulation (int64), each in its own cache line: the number of the next walk to
begin, the number at which to end, whether to return to the driver.
"""
CONTROLS = 32
"""Size of the array of shared numbers."""
