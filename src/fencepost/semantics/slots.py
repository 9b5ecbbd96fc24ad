"""The numbers that stand for slots in what a root reads: of one state, of the two states of a step, and of a step
itself. The recorder writes them, tries keep them, and the compiled loops read them.

A root that looks at one state reads slot ``i`` as ``i``. A root that looks at a step, a **step property**, reads slot
``i`` of the state before the step as ``2i`` and of the state after it as ``2i + 1``. A refinement reads first of all
:data:`CHANGE`, which is no slot: the number of the change that the step is (see `refinement`).
"""

from __future__ import annotations

CHANGE = (1 << 24) - 1
"""Stands for a slot in the trie of a refinement, which reads it first: the number of the change that a step is."""


def slot_before(slot: int) -> int:
    """A slot as a step property reads it in the state before the step."""
    return slot << 1


def slot_after(slot: int) -> int:
    """A slot as a step property reads it in the state after the step."""
    return slot << 1 | 1


def slot_of_step(read: int) -> int:
    """The slot that a step property reads."""
    return read >> 1


def reads_after(read: int) -> bool:
    """Whether a step property reads its slot in the state after the step."""
    return read & 1 != 0
