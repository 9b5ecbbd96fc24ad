"""The numbers of slots in the reads of a root: of one state, of the two states of a step, and of a step itself. The
recorder writes them, tries store them, and the compiled loops read them.

A root that reads one state reads slot ``i`` as ``i``. A root that reads a step, a **step property**, reads slot ``i``
as ``2i`` in the state before the step and as ``2i + 1`` in the state after it. A refinement, and a property of a
language whose steps know changes, first reads :data:`CHANGE`, a pseudo-slot: the number of the step's change (see
`refinement`).
"""

from __future__ import annotations

CHANGE = (1 << 24) - 1
"""A pseudo-slot that the trie of a root that knows changes reads first: the number of the step's change."""


def reads_of(slot: int, of_step: bool) -> tuple[int, ...]:
    """The numbers under which a root may read a slot. ``of_step``: whether the root reads a step."""
    return (slot_before(slot), slot_after(slot)) if of_step else (slot,)


def slot_before(slot: int) -> int:
    """The number of a slot that a step property reads before the step."""
    return slot << 1


def slot_after(slot: int) -> int:
    """The number of a slot that a step property reads after the step."""
    return slot << 1 | 1


def slot_of_step(read: int) -> int:
    """The slot of a step property's read."""
    return read >> 1


def reads_after(read: int) -> bool:
    """Whether a step property's read is in the state after the step."""
    return read & 1 != 0
