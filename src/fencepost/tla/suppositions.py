"""What is supposed about a state before it is read.

A condition on the members of a stored set is asked first, and the membership last: ``m.type = "1b"`` needs no state and
sorts out most of what ever was in the set. So a rule runs on each value that *may* be a member, under the supposition
that it is one. The first read of the state asks whether it is. If it is not, :class:`Absent` ends the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import not_
from types import FunctionType
from typing import Any, TypeVar

from fencepost.language.context import UNSET, GrowingCursor, Sieve, Slot
from fencepost.language.values import ModelValue
from fencepost.tla.values import EvaluationError, Function, Interval, Reads, Sequence, Set, Value

T = TypeVar("T")

_Entry = tuple[GrowingCursor | None, Slot | None]

_open: list[_Entry] = []
"""What is supposed and was not asked yet, the outermost first. One evaluation runs at a time."""

_NOTHING: _Entry = (None, None)
"""Stands for :func:`without_reading`."""


class Absent(Exception):
    """What was supposed to be there is not."""

    def __init__(self, entry: _Entry) -> None:
        self.entry = entry


def read(cursor: GrowingCursor, slot: Slot) -> Any:
    """The content of a slot, after everything that is supposed was asked."""
    if _open:
        ask()
    return cursor.read(slot)


def reads() -> None:
    """What follows depends on the state, even if the parts of it were read before. As :func:`ask` otherwise."""
    if _open:
        ask()


def refuse_without_reading() -> None:
    """What follows depends on what may be in the state. Raises :class:`Reads` within :func:`without_reading`."""
    if _NOTHING in _open:
        raise Reads


def is_there(cursor: GrowingCursor, slot: Slot) -> bool:
    """Whether the slot of a member holds one."""
    held = read(cursor, slot)
    return held is not False and held is not UNSET


def ask() -> None:
    """Ask everything that is supposed. Raises :class:`Absent`, or :class:`Reads`."""
    if _NOTHING in _open:
        raise Reads
    while _open:
        entry = cursor, slot = _open[0]
        held = cursor.read(slot)  # type: ignore[union-attr, arg-type]
        if held is False or held is UNSET:
            raise Absent(entry)
        if _open and _open[0] is entry:
            del _open[0]


def supposed(cursor: GrowingCursor, slot: Slot, rule: Callable[[Value], T], value: Value) -> tuple[bool, T | None]:
    """What a rule gives for ``value``, supposed that ``slot`` holds it, and whether that was asked and is so. The pair
    is ``(False, None)`` if it was asked and is not so.

    An error of the rule counts only if the value is there.
    """
    entry: _Entry = (cursor, slot)
    _open.append(entry)
    try:
        result = rule(value)
        return not _is_open(entry), result
    except Absent as absent:
        if absent.entry is entry:
            return False, None
        raise
    except EvaluationError:
        if _is_open(entry):
            _close(entry)
            if not is_there(cursor, slot):
                return False, None
        raise
    finally:
        _close(entry)


def suppose(cursor: GrowingCursor, slot: Slot) -> None:
    """Suppose, for the rest of the evaluation, that a slot holds a member."""
    _open.append((cursor, slot))


def attempt(run: Callable[[], bool]) -> bool:
    """Whether ``run`` is true, and what it supposed by :func:`suppose` is so. Its error counts only if that is so."""
    before = len(_open)
    try:
        try:
            if not run():
                return False
        except EvaluationError:
            _ask_from(before)
            raise
        _ask_from(before)
        return True
    except Absent as absent:
        if any(each is absent.entry for each in _open[before:]):
            return False
        raise
    finally:
        del _open[before:]


def _ask_from(first: int) -> None:
    if len(_open) > first:
        ask()


def without_reading(rule: Callable[[Value], T], value: Value, otherwise: T) -> T:
    """What a rule gives for a value if that needs no state, or ``otherwise``."""
    before = len(_open)
    _open.append(_NOTHING)
    try:
        return rule(value)
    except (Reads, EvaluationError):
        return otherwise
    finally:
        del _open[before:]


def sieve(rule: Callable[[Value], Any], sorts_out: Callable[[Any], bool] = not_) -> Sieve:
    """Which members matter to a rule: those that it does not sort out without reading the state. ``sorts_out``: whether
    a result does so; by default, FALSE does.
    """
    return sieve_of((sorts_out, key_of(rule)), lambda value: not sorts_out(without_reading(rule, value, True)))


def sieve_of(key: Any, matters: Callable[[Value], bool]) -> Sieve:
    """Which members matter. ``key`` tells what that depends on."""
    return Sieve(key, lambda slot: matters(slot.path[-1].value), is_known(key))


def all_of(*conditions: Callable[[], bool]) -> bool:
    """The conjunction of conditions, in any order: one that is FALSE without reading the state decides."""
    reads = False
    for condition in conditions:
        try:
            if not condition():
                return False
        except (Reads, EvaluationError):
            reads = True  # an error counts only if the other conditions are true
    if reads:
        raise Reads
    return True


class Unknown:
    """Stands for something that two rules may not have in common."""


def is_known(key: Any) -> bool:
    """Whether all that a rule depends on besides the state is in its key."""
    return all(map(is_known, key)) if type(key) is tuple else type(key) is not Unknown


def key_of(part: Any) -> Any:
    """What a rule depends on besides the state, with :class:`Unknown` for what cannot be compared."""
    if isinstance(part, FunctionType):
        cells = part.__closure__ or ()
        return (part.__code__, *(key_of(each.cell_contents) for each in cells), *map(key_of, part.__defaults__ or ()))
    if part is None or _is_read(part):
        return (type(part), part)
    if isinstance(part, Sequence):
        return (Sequence, *map(key_of, part.values))
    if isinstance(part, Function):
        return (Function, *((key_of(each), key_of(of)) for each, of in part.items()))
    unread = getattr(part, "unread", None)
    return Unknown() if unread is None else unread


def is_read(part: Any) -> bool:
    """Whether no part of a value lies in a state, or is to be computed: to compare it reads nothing. Never so within
    :func:`without_reading`, where a value may stand for what is not read.
    """
    return _NOTHING not in _open and _is_read(part)


def _is_read(part: Any) -> bool:
    if isinstance(part, Sequence):
        return all(map(_is_read, part.values))
    if isinstance(part, Function):
        return all(map(_is_read, part.mapping.values()))
    return isinstance(part, bool | int | str | ModelValue | Set | Interval)


def _is_open(entry: _Entry) -> bool:
    return bool(_open) and (_open[-1] is entry or any(each is entry for each in _open))


def _close(entry: _Entry) -> None:
    if _open and _open[-1] is entry:
        _open.pop()
        return
    for place in reversed(range(len(_open))):
        if _open[place] is entry:
            del _open[place]
            return
