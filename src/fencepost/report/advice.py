"""Advice on a part of the state that takes too many values."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.behaviours.formatting import kind_of
from fencepost.language.context import Slot
from fencepost.language.seam import Model
from fencepost.language.values import Record

EXPLODING = 1_000
"""The number of values above which a slot slows the check down: its tables grow, and the protocol's Python runs more
often.
"""


def advice(protocol: Model, name: str) -> str:
    """How to split the slot called ``name``, judged by its initial value."""
    slot = next((s for shape in protocol.shapes.items() for s in shape[1].slots((shape[0],)) if s.name == name), None)
    return advice_for(protocol, slot) if slot is not None else _GENERAL


def advice_for(protocol: Model, slot: Slot) -> str:
    """How to split a slot."""
    held = slot.default
    if kind_of(protocol, slot) == "cell":
        return "make the values of the table smaller, or the table one per_key of a Record."
    if kind_of(protocol, slot) == "in flight":
        kind = slot.path[1].__name__
        return (
            f"many sets of {kind} are in flight between the same two ends; put less into the message, limit how often"
            " it is sent, split it into several kinds, or give it a topic."
        )
    if isinstance(held, frozenset):
        return (
            "make it per_key(..., False), one truth value per member, so that each is a part of the state of its own."
        )
    if isinstance(held, Record):
        return (
            f"declare the variable as state({type(held).__name__}), so that each field is a part of the state of its"
            " own."
        )
    if isinstance(held, Mapping):
        return "make it per_key(...) over the constant its keys come from, or a table(...) if keys appear later."
    if isinstance(held, tuple):
        return "keep its elements in a table(...) by position, and its length beside it."
    if isinstance(held, int) and not isinstance(held, bool):
        return "it looks like a counter: bound it with a constant, or keep only what the protocol compares it with."
    return _GENERAL


_GENERAL = "split it into parts that change on their own: fields of a Record, per_key(...) or a table(...)."
