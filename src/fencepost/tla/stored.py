"""Values that lie in a state and are read from it part by part, when a part is needed.

They are sets and functions like any others, so operators need not know them. What an operator does to one is a
difference from what is stored: ``[f EXCEPT ![k] = v]`` is an :class:`UpdatedFunction`, and ``S \\cup {e}`` an
:class:`UpdatedSet`. When it is assigned to the place that it came from, only the difference is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Sequences
from functools import cached_property
from typing import Any, ClassVar, Protocol

from fencepost.language.context import FROM_HERE, GrowingCursor, Sieve, Slot, slots_changed
from fencepost.tla import suppositions
from fencepost.tla.values import (
    UNREAD,
    Function,
    FunctionValue,
    ImplicitFunction,
    LazyFunction,
    Sequence,
    Set,
    SetValue,
    Unread,
    Value,
    code,
    equal,
    function,
    kind_of,
)

Condition = Callable[[Value], bool]


class Loan:
    """Lets a function give :data:`UNREAD` for one argument, to see whether a rule gives back just that."""

    def __init__(self) -> None:
        self._of: list[Value] = []

    def is_of(self, argument: Value) -> bool:
        return bool(self._of) and type(argument) is type(self._of[0]) and bool(argument == self._of[0])

    def take(self) -> Unread:
        return UNREAD

    def keeps(self, rule: Callable[[Value], Value], argument: Value) -> bool:
        """Whether the rule gives what the function gives, so that the argument keeps its value."""
        self._of = [argument]
        try:
            return suppositions.without_reading(rule, argument, None) is UNREAD
        except (AttributeError, TypeError):
            return False  # the rule does more with it than to pass it on
        finally:
            self._of = []


class Part(Protocol):
    """Where a part of a value lies."""

    path: tuple[Any, ...]

    def get(self, cursor: GrowingCursor) -> Value: ...


class Parts(Part, Protocol):
    """Where the values of a function with one domain lie: :class:`fencepost.tla.places.FunctionPlace`."""

    domain: SetValue
    loan: Loan

    @property
    def parts(self) -> Mapping[Value, Part]: ...

    def part(self, argument: Value) -> Part | None: ...


class Members(Part, Protocol):
    """Where values that come and go lie: :class:`fencepost.tla.places.Members`."""

    kinds: set[str]
    loan: Loan
    settled: tuple[tuple[Value, Slot], ...]

    def slot(self, value: Value) -> Slot: ...

    def candidates(self, cursor: GrowingCursor, sieve: Sieve | None) -> Sequences[tuple[Value, Slot]]: ...

    def settled_candidates(self, sieve: Sieve | None) -> Sequences[tuple[Value, Slot]]: ...

    def late_candidates(
        self, cursor: GrowingCursor, sieve: Sieve | None, place: int
    ) -> Sequences[tuple[Value, Slot]]: ...


class Stored:
    """A value that lies in a place, in the state of a cursor."""

    __slots__ = ()

    place: Any
    cursor: GrowingCursor

    @property
    def unread(self) -> Any:
        """What it is as long as it is not read. See :func:`fencepost.tla.suppositions.key_of`."""
        return type(self), id(self.place)

    def lies_in(self, place: object, cursor: GrowingCursor) -> bool:
        """Whether it is the value of this place in the state of this cursor."""
        return self.place is place and self.cursor is cursor

    def changed_since(self, other: Stored) -> Sequences[Slot] | None:
        """The slots in which it differs from ``other``, if that is its value at the other end of a step and these slots
        are known without reading.
        """
        return changed(self.place, self.cursor, other.cursor) if self.place is other.place else None


def are_one(one: object, other: object) -> bool:
    """Whether two values are the same part of one state.

    A part that may lie elsewhere is another object each time it is asked for. What is read may not depend on that.
    """
    if one is other:
        return True
    return isinstance(one, Stored) and isinstance(other, Stored) and one.lies_in(other.place, other.cursor)


def changed(place: Part, one: GrowingCursor, other: GrowingCursor | None) -> Sequences[Slot] | None:
    """The slots of a place that a step changes, if that is known without reading. The cursors are over the two states
    of the step, in any order.
    """
    found = slots_changed(one, other, place.path)
    if found is None and other is not None:
        found = slots_changed(other, one, place.path)
    if found is not None:
        suppositions.refuse_without_reading()  # another step changes other slots
    return found


def part_of(known: dict[Any, Value], key: Any, place: Part, cursor: GrowingCursor) -> Value:
    """The value of a place. ``known``: values of one state, by ``key``. Those that lie there in every state are kept,
    with what was read of them.
    """
    value = known.get(key)
    if value is None:
        value = place.get(cursor)
        if isinstance(value, Stored) and value.place.is_certain(cursor):
            known[key] = value
    return value


# -- sets --------------------------------------------------------------------------------------------------------------


class _SetByCondition(SetValue):
    """A set that finds the members for which a condition is true without being enumerated."""

    __slots__ = ()

    is_stored: ClassVar[bool] = True

    def some(self, rule: Condition, sifting: Condition | None = None) -> bool:
        return any(True for _ in self.those(rule, sifting))

    def every(self, rule: Condition) -> bool:
        return not self.some(lambda value: not rule(value))


class StoredSet(Stored, _SetByCondition):
    """A set with a slot for each value that has ever been a member: a set variable, or the domain of a map."""

    __slots__ = ("cursor", "place")

    place: Members

    def __init__(self, place: Members, cursor: GrowingCursor) -> None:
        self.place = place
        self.cursor = cursor

    def candidates(self, rule: Condition | None = None) -> Sequences[tuple[Value, Slot]]:
        """What may be a member, in TLC's order, without what the rule sorts out. The rule is true of no other one."""
        return self.place.candidates(self.cursor, _sieve(rule))

    def has(self, value: Value) -> bool:
        kind = kind_of(value)
        if self.place.kinds and kind not in self.place.kinds:
            return self.explicit().has(value)
        return suppositions.is_there(self.cursor, self.place.slot(value))

    def members(self) -> Iterator[Value]:
        for value, slot in self.candidates():
            if suppositions.is_there(self.cursor, slot):
                yield value

    def those(self, rule: Condition, sifting: Condition | None = None) -> Iterator[Value]:
        for value, slot in self.candidates(sifting or rule):
            asked, result = suppositions.supposed(self.cursor, slot, rule, value)
            if result and (asked or suppositions.is_there(self.cursor, slot)):
                yield value

    def options(self, rule: Condition | None) -> Candidates:
        """What may be chosen. The rule sorts out what it can without reading the state."""
        return Candidates(self, rule)

    def joined(self, other: Set) -> UpdatedSet:
        """The union with another set."""
        return UpdatedSet(self, other, frozenset())

    def without(self, values: frozenset[Value]) -> UpdatedSet:
        """The members that are not among these values."""
        return UpdatedSet(self, Set(), values)

    def has_such(self, value: Value, rule: Condition) -> bool:
        """Whether a value is a member and the rule is true of it."""
        slot = self.place.slot(value)
        asked, result = suppositions.supposed(self.cursor, slot, rule, value)
        return bool(result) and (asked or suppositions.is_there(self.cursor, slot))

    def is_empty(self) -> bool:
        return not any(True for _ in self.members())

    def explicit(self) -> Set:
        suppositions.reads()
        return super().explicit()

    def known(self) -> Set | None:
        """The set written out, if that was done."""
        return self.explicit() if hasattr(self, "_explicit") else None

    def __eq__(self, other: object) -> bool:
        if are_one(self, other):
            return True
        if not isinstance(other, SetValue):
            return False
        may_differ = _may_differ(self, other)
        if may_differ is not None:
            return all(self.has(value) == other.has(value) for value in may_differ)
        whole = self.known()
        if whole is not None:
            return whole == other.explicit()
        members = other.explicit()
        if not all(map(self.has, members.in_order())):
            return False
        apart = (slot for value, slot in self.candidates() if value not in members.items)
        return not any(suppositions.is_there(self.cursor, slot) for slot in apart)

    __hash__ = SetValue.__hash__


class Candidates(Sequences[Value]):
    """The options of a choice among the members of a stored set. Whether what is taken is a member is asked later.

    ``settled`` are the same in every state. As a sequence, it has the late ones, too.
    """

    def __init__(self, of: StoredSet, rule: Condition | None) -> None:
        self._of = of
        self._sieve = _sieve(rule)
        self.settled = [value for value, _ in of.place.settled_candidates(self._sieve)]

    def late(self, number: int) -> Value | None:
        """The late candidate with this number, from 1, in the order in which they appeared. None if there is none:
        the evaluation relies on that.
        """
        found = self._late(number)
        return found[number - 1][0] if number <= len(found) else None

    def present(self, after: int) -> list[Value]:
        """The late candidates after this number that are members."""
        found = self._late(FROM_HERE)[after:]
        return [value for value, slot in found if suppositions.is_there(self._of.cursor, slot)]

    def _late(self, place: int) -> Sequences[tuple[Value, Slot]]:
        return self._of.place.late_candidates(self._of.cursor, self._sieve, place)

    @cached_property
    def _all(self) -> Sequences[Value]:
        return [*self.settled, *(value for value, _ in self._late(FROM_HERE))]

    def __bool__(self) -> bool:
        return True  # there may be some, even if none is known yet

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, number: Any) -> Any:
        return self._all[number]

    def take(self, value: Value) -> Value:
        """Take this option, supposed that it is a member."""
        suppositions.suppose(self._of.cursor, self._of.place.slot(value))
        return value


def _may_differ(one: StoredSet, other: SetValue) -> Sequences[Value] | None:
    """The values that may be in one of two sets alone, if these are the ends of a step that is known."""
    base = other.base if isinstance(other, UpdatedSet) else other
    slots = one.changed_since(base) if isinstance(base, StoredSet) else None
    if slots is None:
        return None
    moved = other.added.items | other.removed if isinstance(other, UpdatedSet) else ()
    return [*(slot.path[-1].value for slot in slots), *sorted(moved, key=code)]


def _sieve(rule: Condition | None) -> Sieve | None:
    return None if rule is None else suppositions.sieve(rule)


class UpdatedSet(_SetByCondition):
    """A stored set with ``added`` members, and without those in ``removed``."""

    __slots__ = ("added", "base", "removed")

    def __init__(self, base: StoredSet, added: Set, removed: frozenset[Value]) -> None:
        self.base = base
        self.added = added
        self.removed = removed

    def has(self, value: Value) -> bool:
        if value in self.added.items:
            return self.added.has(value)
        return value not in self.removed and self.base.has(value)

    def members(self) -> Iterator[Value]:
        return self.explicit().members()

    def those(self, rule: Condition, sifting: Condition | None = None) -> Iterator[Value]:
        apart = self.removed | self.added.items
        if not self.added.items:
            yield from self.base.those(lambda value: value not in apart and rule(value))
            return
        found = [*self.base.those(lambda value: value not in apart and rule(value)), *filter(rule, self.added.items)]
        yield from Set(found).in_order()

    def joined(self, other: Set) -> UpdatedSet:
        """As for the stored set."""
        return UpdatedSet(self.base, self.added.union(other), self.removed - other.items)

    def without(self, values: frozenset[Value]) -> UpdatedSet:
        """As for the stored set."""
        return UpdatedSet(self.base, Set(self.added.items - values), self.removed | values)

    def is_empty(self) -> bool:
        return not self.added.items and not self.some(lambda value: True)

    def written_out(self) -> Set:
        kept = Set(tuple(self.base.those(lambda value: value not in self.removed)))
        return kept.union(self.added)


# -- functions ---------------------------------------------------------------------------------------------------------


class FunctionInState(Stored, ImplicitFunction):
    """A function that lies in a state."""

    __slots__ = ("cursor", "place")

    def __init__(self, place: Any, cursor: GrowingCursor) -> None:
        self.place = place
        self.cursor = cursor

    def replaced(self, argument: Value, value: Value) -> UpdatedFunction:
        return UpdatedFunction(self, {argument: value})

    def explicit(self) -> Sequence | Function:
        suppositions.reads()
        return super().explicit()


class StoredFunction(FunctionInState):
    """A function with a place for each of its arguments."""

    __slots__ = ("_known",)

    place: Parts

    def __init__(self, place: Parts, cursor: GrowingCursor) -> None:
        super().__init__(place, cursor)
        self._known: dict[Any, Value] = {}

    def apply(self, argument: Value) -> Value:
        part = self.place.part(argument)
        if part is not None and self.place.loan.is_of(argument):
            return self.place.loan.take()
        return self.explicit().apply(argument) if part is None else part_of(self._known, part, part, self.cursor)

    def domain(self) -> SetValue:
        return self.place.domain

    def changed_parts(self) -> list[Value]:
        """The arguments for which a step to this state writes something, if that is known."""
        return [key for key, part in self.place.parts.items() if changed(part, self.cursor, None)]

    def is_defined_for(self, argument: Value) -> bool:
        return self.place.part(argument) is not None or self.explicit().is_defined_for(argument)


class StoredMap(FunctionInState):
    """A function whose arguments come and go. It has a slot for each that ever was in its domain."""

    __slots__ = ()

    place: Members

    def apply(self, argument: Value) -> Value:
        if self.place.loan.is_of(argument):
            return self.place.loan.take()
        if self.is_defined_for(argument):
            return suppositions.read(self.cursor, self.place.slot(argument)).value
        return self.explicit().apply(argument)

    def domain(self) -> StoredSet:
        return StoredSet(self.place, self.cursor)

    def is_defined_for(self, argument: Value) -> bool:
        return self.domain().has(argument)

    def extended(self, argument: Value, value: Value) -> UpdatedFunction:
        """The function with a value for an argument that may not be in its domain."""
        return UpdatedFunction(self, {}).extended(argument, value)


class UpdatedFunction(ImplicitFunction):
    """A stored function with other values for some arguments. ``added``: those that may not be in its domain."""

    __slots__ = ("added", "base", "changes")

    def __init__(
        self,
        base: FunctionInState,
        changes: Mapping[Value, Value],
        added: frozenset[Value] = frozenset(),
    ) -> None:
        self.base = base
        self.changes = changes
        self.added = added

    def apply(self, argument: Value) -> Value:
        if argument in self.changes and self._is_there(argument):
            return self.changes[argument]
        if self.base.is_defined_for(argument):
            return self.base.apply(argument)
        return self.explicit().apply(argument)

    def _is_there(self, argument: Value) -> bool:
        kinds = {kind_of(each) for each in self.changes}
        return kind_of(argument) in kinds

    def domain(self) -> SetValue:
        domain = self.base.domain()
        if not self.added:
            return domain
        added = Set(self.added)
        return domain.joined(added) if isinstance(domain, StoredSet) else domain.explicit().union(added)

    def is_defined_for(self, argument: Value) -> bool:
        return (argument in self.changes and self._is_there(argument)) or self.base.is_defined_for(argument)

    def replaced(self, argument: Value, value: Value) -> UpdatedFunction:
        return UpdatedFunction(self.base, {**self.changes, argument: value}, self.added)

    def extended(self, argument: Value, value: Value) -> UpdatedFunction:
        """The function with a value for an argument that may not be in its domain."""
        return UpdatedFunction(self.base, {**self.changes, argument: value}, self.added | {argument})

    def written_out(self) -> Sequence | Function:
        kept = {key: self.base.apply(key) for key in self.base.domain().members() if key not in self.changes}
        whole = {**kept, **self.changes}
        if self.added:
            Set(tuple(whole))  # raises if TLC does not compare the arguments
        return function(whole)


# -- comparisons -------------------------------------------------------------------------------------------------------


def same(one: Value, other: Value) -> bool:
    """``one = other``. Two functions that differ from stored ones are compared where they may differ.

    Raises :class:`fencepost.tla.values.EvaluationError` where TLC refuses to compare.
    """
    if are_one(one, other):
        return True
    if not isinstance(one, FunctionValue) or not isinstance(other, FunctionValue):
        return equal(one, other)
    for stored, of in ((one, other), (other, one)):
        if isinstance(stored, StoredFunction):
            return _same_parts(stored, of)
        if isinstance(stored, StoredMap):
            keys = _may_differ_at(stored, of)
            if keys is not None:
                return all(_same_at(stored, of, key) for key in keys)
    return _same_maps(one, other)


def _same_parts(one: StoredFunction, other: FunctionValue) -> bool:
    if not isinstance(other, Stored | UpdatedFunction | LazyFunction) or other.domain() is not one.domain():
        return equal(one, other)
    parts = [(key, part) for key, part in one.place.parts.items() if not _is_untouched(one, other, key, part)]
    parts.sort(key=lambda each: not changed(each[1], one.cursor, None))  # it is these that differ, if any
    return all(same(one.apply(key), other.apply(key)) for key, _ in parts)


def _is_untouched(one: StoredFunction, other: FunctionValue, key: Value, part: Part) -> bool:
    """Whether another function is known, without reading, to have the value of a stored one for an argument: it lies at
    the other end of a step that does not change this part.
    """
    if isinstance(other, LazyFunction):
        # What the rule gives back is the part in one of the two states.
        return changed(part, one.cursor, None) == [] and other.keeps(one.place.loan, key)
    base, changes = (other.base, other.changes) if isinstance(other, UpdatedFunction) else (other, {})
    if not isinstance(base, StoredFunction) or base.place is not one.place:
        return False
    return key not in changes and changed(part, one.cursor, base.cursor) == []


def _may_differ_at(one: StoredMap, other: FunctionValue) -> Sequences[Value] | None:
    """The arguments where two maps may differ, if these are the ends of a step that is known."""
    base = other.base if isinstance(other, UpdatedFunction) else other
    slots = one.changed_since(base) if isinstance(base, StoredMap) else None
    if slots is None:
        return None
    keys = sorted(other.changes, key=code) if isinstance(other, UpdatedFunction) else ()
    return [*(slot.path[-1].value for slot in slots), *keys]


def _same_at(one: FunctionValue, other: FunctionValue, argument: Value) -> bool:
    is_defined = one.is_defined_for(argument)
    if is_defined != other.is_defined_for(argument):
        return False
    return not is_defined or same(one.apply(argument), other.apply(argument))


def _same_maps(one: FunctionValue, other: FunctionValue) -> bool:
    domain, second = _domain_in_state(one), _domain_in_state(other)
    if domain is None or second is None or not domain.lies_in(second.place, second.cursor):
        return equal(one, other)

    def may_differ(key: Value) -> bool:
        return not (_keeps(one, domain, key) and _keeps(other, domain, key))

    sifting = suppositions.sieve_of((may_differ.__code__, _changes(one), _changes(other)), may_differ)
    return not any(
        result and (asked or suppositions.is_there(domain.cursor, slot))
        for key, slot in domain.place.candidates(domain.cursor, sifting)
        for asked, result in [
            suppositions.supposed(domain.cursor, slot, lambda key: not equal(one.apply(key), other.apply(key)), key)
        ]
    )


def _domain_in_state(of: Value) -> StoredSet | None:
    """The domain of a function over the arguments of a stored map."""
    if isinstance(of, StoredMap | LazyFunction) or (isinstance(of, UpdatedFunction) and not of.added):
        domain = of.domain()
        return domain if isinstance(domain, StoredSet) else None
    return None


def _keeps(of: Value, domain: StoredSet, argument: Value) -> bool:
    """Whether a function gives what the stored map gives."""
    if isinstance(of, LazyFunction):
        return of.keeps(domain.place.loan, argument)
    return not isinstance(of, UpdatedFunction) or argument not in of.changes


def _changes(of: Value) -> Any:
    """What tells where a function may differ from the stored map."""
    if isinstance(of, LazyFunction):
        return of.replaced_at, suppositions.key_of(of.rule)
    return frozenset((type(each) is bool, each) for each in of.changes) if isinstance(of, UpdatedFunction) else None
