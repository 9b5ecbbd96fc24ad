"""The sets that are not written out, and the operators that join, cut and filter sets.

As in TLC, sets such as ``Nat``, ``SUBSET S``, ``[S -> T]``, ``[a : S]`` and ``S \\X T`` are enumerated only when they
must be, and so is what ``\\cup``, ``\\cap``, ``\\``, ``UNION`` and filters make of them. So ``x \\in [S -> Nat]`` can
be asked. What is made of explicit sets and intervals is worked out at once. Members come in TLC's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, product
from math import prod
from typing import Any

from fencepost.language.values import ModelValue
from fencepost.tla import order
from fencepost.tla.stored import StoredSet, UpdatedSet
from fencepost.tla.values import (
    EMPTY,
    EMPTY_SET,
    GREATEST_INTEGER,
    Condition,
    EvaluationError,
    Function,
    FunctionValue,
    Interval,
    Sequence,
    Set,
    SetValue,
    Value,
    described,
    equal,
    function,
    not_a_member,
    set_of,
    shown,
    type_of_model,
)

MOST_SHOWN = 1 << 16
"""A set with more members than this is shown by its form. (TLC's bound is 2,000; it is about length alone.)"""


class _Formed(SetValue):
    """A set that is shown by its form if it is infinite or large."""

    __slots__ = ()

    def form(self) -> str:
        """The expression that makes the set."""
        raise NotImplementedError

    def text(self) -> str:
        return self.explicit().text() if self._is_small() else self.form()

    def _is_small(self) -> bool:
        try:
            return self.is_finite() and self.size() < MOST_SHOWN
        except EvaluationError:
            return False


def quick_size(of: SetValue) -> int:
    """The number of members, if it is known without going through them. Raises :class:`EvaluationError` otherwise, and
    for a set that is infinite.
    """
    if not isinstance(of, Set | Interval | _Formed):
        raise EvaluationError(f"the members of {of.text()} have to be counted")
    return of.size()


# -- infinite sets -----------------------------------------------------------------------------------------------------


class _Infinite(_Formed):
    """An infinite set. It equals itself."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def members(self) -> Iterator[Value]:
        raise EvaluationError(f"{self.form()} is infinite: its members cannot be enumerated")

    def size(self) -> int:
        raise EvaluationError(f"{self.form()} is infinite: its members cannot be counted")

    def is_finite(self) -> bool:
        return False

    def is_empty(self) -> bool:
        return False

    def form(self) -> str:
        return self._name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Infinite) and self.form() == other.form()

    def __hash__(self) -> int:
        return hash(self.form())

    def code(self) -> bytes:
        raise EvaluationError(f"{self.form()} is infinite: it cannot be part of a state")


class _Integers(_Infinite):
    """``Int``, or ``Nat``: the integers from ``least``."""

    __slots__ = ("_least",)

    def __init__(self, name: str, least: int | None = None) -> None:
        super().__init__(name)
        self._least = least

    def has(self, value: Value) -> bool:
        if type(value) is int:
            return self._least is None or value >= self._least
        return _no_model(value, self)

    def __reduce__(self) -> str:
        return "INT" if self._least is None else "NAT"


class _Strings(_Infinite):
    """``STRING``."""

    __slots__ = ()

    def has(self, value: Value) -> bool:
        return type(value) is str or _no_model(value, self)

    def __reduce__(self) -> str:
        return "STRING"


class _Anything(_Infinite):
    """``Any`` of the module TLC."""

    __slots__ = ()

    def has(self, value: Value) -> bool:
        return True

    def __reduce__(self) -> str:
        return "ANY"


NAT = _Integers("Nat", 0)
INT = _Integers("Int")
STRING = _Strings("STRING")
ANY = _Anything("Any")


def _no_model(value: Value, members: SetValue) -> bool:
    """False for a model value without type, which is in no such set. Raises for every other value."""
    if type(value) is ModelValue and not type_of_model(value):
        return False
    raise not_a_member(value, members)


class Sequences(_Infinite):
    """``Seq(S)``."""

    __slots__ = ("_members",)

    def __init__(self, members: SetValue) -> None:
        super().__init__("Seq")
        self._members = members

    def has(self, value: Value) -> bool:
        if not isinstance(value, FunctionValue):
            return _no_model(value, self)
        whole = value.explicit()
        if isinstance(whole, Sequence):
            return all(map(self._members.has, whole.values))
        raise not_a_member(value, self)

    def form(self) -> str:
        return f"Seq({self._members.text()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Sequences, (self._members,))


# -- products ----------------------------------------------------------------------------------------------------------


class Subsets(_Formed):
    """``SUBSET S``: the smallest first."""

    __slots__ = ("_of",)

    def __init__(self, of: SetValue) -> None:
        self._of = of

    def has(self, value: Value) -> bool:
        if isinstance(value, SetValue):
            return subset(value, self._of)
        raise EvaluationError(f"{described(value)} cannot be in {self.form()}: it is not a set")

    def members(self) -> Iterator[Value]:
        whole = self._of.explicit()
        within = whole.in_order()
        for number in range(len(within) + 1):
            for chosen in combinations(within, number):
                yield Set.sorted(chosen, whole)

    def size(self) -> int:
        number = self._of.size()
        if number >= 31:
            raise EvaluationError(f"{self.form()} has 2^{number} members: their number does not fit in 32 bits")
        return 1 << number

    def is_finite(self) -> bool:
        return self._of.is_finite()

    def is_empty(self) -> bool:
        return False

    def form(self) -> str:
        return f"SUBSET {shown(self._of)}"

    def is_within(self, other: Subsets) -> bool:
        """Whether each of these sets is one of the others."""
        return subset(self._of, other._of)

    def __eq__(self, other: object) -> bool:
        return self._of == other._of if isinstance(other, Subsets) else super().__eq__(other)

    __hash__ = SetValue.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return (Subsets, (self._of,))


class Functions(_Formed):
    """``[S -> T]``."""

    __slots__ = ("_domain", "_range")

    def __init__(self, domain: SetValue, range: SetValue) -> None:
        self._domain = domain
        self._range = range

    def has(self, value: Value) -> bool:
        if not isinstance(value, FunctionValue):
            return _no_model(value, self)
        whole = value.explicit()
        if not equal(self._domain, whole.domain()):
            return False
        values = whole.values if isinstance(whole, Sequence) else whole.mapping.values()
        return all(map(self._range.has, values))

    def members(self) -> Iterator[Value]:
        domain = tuple(self._domain.members())
        if not domain:
            yield EMPTY
            return
        range = tuple(self._range.members())
        for values in product(range, repeat=len(domain)):
            yield function(dict(zip(domain, values, strict=True)))

    def size(self) -> int:
        return _counted(self, [self._range.size()] * self._domain.size())

    def is_finite(self) -> bool:
        return self._domain.is_finite() and self._range.is_finite()

    def form(self) -> str:
        return f"[{shown(self._domain)} -> {shown(self._range)}]"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Functions) and self._domain == other._domain and self._range == other._range:
            return True
        return super().__eq__(other)

    __hash__ = SetValue.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return (Functions, (self._domain, self._range))


class Records(_Formed):
    """``[a : S, b : T]``."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Iterable[tuple[str, SetValue]]) -> None:
        self._fields = dict(sorted(fields, key=lambda each: order.key(each[0])))

    def has(self, value: Value) -> bool:
        if not isinstance(value, FunctionValue):
            return _no_model(value, self)
        whole = value.explicit()
        if isinstance(whole, Function) and whole.mapping.keys() == self._fields.keys():
            return all(members.has(whole.mapping[name]) for name, members in self._fields.items())
        if (isinstance(whole, Function) and whole.is_record()) or not whole.size():
            return False
        raise not_a_member(value, self)

    def members(self) -> Iterator[Value]:
        for values in product(*[tuple(each.members()) for each in self._fields.values()]):
            yield Function(dict(zip(self._fields, values, strict=True)))

    def size(self) -> int:
        return _counted(self, [each.size() for each in self._fields.values()])

    def is_finite(self) -> bool:
        return all(each.is_finite() for each in self._fields.values())

    def form(self) -> str:
        return "[" + ", ".join(f"{name}: {shown(each)}" for name, each in self._fields.items()) + "]"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Records) and self._fields == other._fields:
            return True
        return super().__eq__(other)

    __hash__ = SetValue.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return (Records, (tuple(self._fields.items()),))


class Tuples(_Formed):
    """``S \\X T``."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Iterable[SetValue]) -> None:
        self._parts = tuple(parts)

    def has(self, value: Value) -> bool:
        if not isinstance(value, FunctionValue):
            return _no_model(value, self)
        whole = value.explicit()
        if isinstance(whole, Function):
            return self._has_no(whole)
        if whole.size() != len(self._parts):
            return False
        return all(part.has(each) for part, each in zip(self._parts, whole.values, strict=True))

    def _has_no(self, value: Function) -> bool:
        if all(type(each) is int for each in value.mapping):
            return False
        raise not_a_member(value, self)

    def members(self) -> Iterator[Value]:
        for values in product(*[tuple(each.members()) for each in self._parts]):
            yield Sequence(values)

    def size(self) -> int:
        return _counted(self, [each.size() for each in self._parts])

    def is_finite(self) -> bool:
        return all(each.is_finite() for each in self._parts)

    def form(self) -> str:
        return "(" + " \\X ".join(map(shown, self._parts)) + ")"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Tuples) and self._parts == other._parts:
            return True
        return super().__eq__(other)

    __hash__ = SetValue.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return (Tuples, (self._parts,))


def _counted(members: _Formed, sizes: list[int]) -> int:
    number = prod(sizes)
    if number > GREATEST_INTEGER:
        raise EvaluationError(f"the number of members of {members.form()} does not fit in 32 bits")
    return number


# -- lazily joined, cut and filtered -----------------------------------------------------------------------------------


class _Derived(_Formed):
    """A set made of others. Its members are sorted when they are enumerated."""

    __slots__ = ()

    def members(self) -> Iterator[Value]:
        return self.explicit().members()

    def written_out(self) -> Set:
        return Set(tuple(self.found()))

    def found(self) -> Iterator[Value]:
        """The members in any order, some perhaps twice."""
        raise NotImplementedError

    def is_empty(self) -> bool:
        return next(self.found(), None) is None


class _Union(_Derived):
    __slots__ = ("_one", "_other")

    def __init__(self, one: SetValue, other: SetValue) -> None:
        self._one = one
        self._other = other

    def has(self, value: Value) -> bool:
        return self._one.has(value) or self._other.has(value)

    def found(self) -> Iterator[Value]:
        yield from self._one.members()
        yield from self._other.members()

    def is_finite(self) -> bool:
        return self._one.is_finite() and self._other.is_finite()

    def form(self) -> str:
        return f"{shown(self._one)} \\cup {shown(self._other)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Union, (self._one, self._other))


class _Difference(_Derived):
    __slots__ = ("_one", "_other")

    def __init__(self, one: SetValue, other: SetValue) -> None:
        self._one = one
        self._other = other

    def has(self, value: Value) -> bool:
        return self._one.has(value) and not self._other.has(value)

    def found(self) -> Iterator[Value]:
        return (each for each in self._one.members() if not self._other.has(each))

    def is_finite(self) -> bool:
        if not self._one.is_finite() and not self._other.is_finite():
            raise EvaluationError(f"whether {self.form()} is finite cannot be decided")
        return self._one.is_finite()

    def form(self) -> str:
        return f"{shown(self._one)} \\ {shown(self._other)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Difference, (self._one, self._other))


class _Intersection(_Derived):
    __slots__ = ("_one", "_other")

    def __init__(self, one: SetValue, other: SetValue) -> None:
        self._one = one
        self._other = other

    def has(self, value: Value) -> bool:
        return self._one.has(value) and self._other.has(value)

    def found(self) -> Iterator[Value]:
        one, other = self._one, self._other
        if not one.is_finite():
            one, other = other, one
        return (each for each in one.members() if other.has(each))

    def is_finite(self) -> bool:
        if not self._one.is_finite() and not self._other.is_finite():
            raise EvaluationError(f"whether {self.form()} is finite cannot be decided")
        return True

    def form(self) -> str:
        return f"{shown(self._one)} \\cap {shown(self._other)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Intersection, (self._one, self._other))


class _BigUnion(_Derived):
    __slots__ = ("_of",)

    def __init__(self, of: SetValue) -> None:
        self._of = of

    def has(self, value: Value) -> bool:
        return any(set_of(each, "UNION").has(value) for each in self._of.members())

    def found(self) -> Iterator[Value]:
        for each in self._of.members():
            yield from set_of(each, "UNION").members()

    def is_finite(self) -> bool:
        return all(set_of(each, "UNION").is_finite() for each in self._of.members())

    def form(self) -> str:
        return f"UNION {shown(self._of)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_BigUnion, (self._of,))


class _Filtered(_Derived):
    __slots__ = ("_condition", "_of")

    def __init__(self, of: SetValue, condition: Callable[[Value], bool]) -> None:
        self._of = of
        self._condition = condition

    def has(self, value: Value) -> bool:
        return self._of.has(value) and self._condition(value)

    def members(self) -> Iterator[Value]:
        try:
            return self._explicit.members()
        except AttributeError:
            return self.found()

    def found(self) -> Iterator[Value]:
        return filter(self._condition, self._of.members())

    def is_finite(self) -> bool:
        if self._of.is_finite():
            return True
        raise EvaluationError(f"whether {self.form()} is finite cannot be decided: {self._of.text()} is infinite")

    def form(self) -> str:
        return f"{{x \\in {shown(self._of)} : ...}}"

    def is_cheap(self) -> bool:
        """Whether all members can be looked at."""
        try:
            return self._of.is_finite() and self._of.size() < MOST_SHOWN
        except EvaluationError:
            return False


def write_out(value: Value) -> None:
    """A value is used again: a set that is filtered whenever it is enumerated is kept, unless it is large."""
    if isinstance(value, _Filtered) and value.is_cheap():
        value.explicit()


# -- operators ---------------------------------------------------------------------------------------------------------


def union(one: Value, other: Value) -> SetValue:
    """``one \\cup other``."""
    left, right = set_of(one, "\\cup"), set_of(other, "\\cup")
    if right.is_stored and not left.is_stored:
        left, right = right, left
    if isinstance(left, StoredSet | UpdatedSet) and (right.is_reducible or right.is_stored):
        return left.joined(right.explicit())
    if not left.is_reducible:
        left, right = right, left
    if left.is_reducible and right.is_reducible:
        return left.explicit().union(right.explicit())
    if left.is_reducible and left.is_empty():
        return right
    return _Union(left, right)


def intersection(one: Value, other: Value) -> SetValue:
    """``one \\cap other``."""
    left, right = set_of(one, "\\cap"), set_of(other, "\\cap")
    if left.is_stored and right.is_reducible:
        left, right = right, left
    if left.is_stored:
        return Set.sorted(tuple(left.those(right.has)))
    if not left.is_reducible:
        left, right = right, left
    return _within(left, right) if left.is_reducible else _Intersection(left, right)


def _within(left: SetValue, right: SetValue) -> Set:
    whole = left.explicit()
    if isinstance(right, Set) and whole.compares_simply_with(right):
        return Set.of(whole.items & right.items, whole)
    return Set.of(frozenset([each for each in whole.members() if right.has(each)]), whole)


def difference(one: Value, other: Value) -> SetValue:
    """``one \\ other``."""
    left, right = set_of(one, "\\"), set_of(other, "\\")
    if isinstance(left, StoredSet | UpdatedSet) and right.is_reducible:
        return left.without(right.explicit().items)
    if left.is_stored:
        return Set.sorted(tuple(left.those(lambda value: not right.has(value))))
    if not left.is_reducible:
        return _Difference(left, right)
    whole = left.explicit()
    if isinstance(right, Set) and whole.compares_simply_with(right):
        return Set.of(whole.items - right.items, whole)
    return Set.of(frozenset([each for each in whole.members() if not right.has(each)]), whole)


def big_union(sets: Value) -> SetValue:
    """``UNION sets``."""
    of = set_of(sets, "UNION")
    if isinstance(of, Set) and all(isinstance(each, Set) for each in of.items):
        return _all_of(of.in_order())
    return _BigUnion(of)


def _all_of(sets: Iterable[Set]) -> Set:
    """The members of all these sets."""
    joined = EMPTY_SET
    for each in sets:
        joined = joined.union(each)
    return joined


def subset(one: Value, other: Value) -> bool:
    """``one \\subseteq other``."""
    left, right = set_of(one, "\\subseteq"), set_of(other, "\\subseteq")
    if isinstance(left, Set) and isinstance(right, Set) and left.compares_simply_with(right):
        return left.items <= right.items
    if isinstance(left, Interval) and isinstance(right, Interval) and right.low <= left.low and left.high <= right.high:
        return True
    if isinstance(left, Subsets) and isinstance(right, Subsets):
        return left.is_within(right)
    return left.every(right.has)


def filtered(of: Value, condition: Condition, sifting: Condition | None = None) -> SetValue:
    """``{x \\in of : condition(x)}``. TLC works it out at once if ``of`` is an explicit set or an interval."""
    whole = set_of(of, "{x \\in S : P}")
    if whole.is_stored:
        return Set.sorted(tuple(whole.those(condition, sifting)))
    if not whole.is_reducible:
        return _Filtered(whole, condition)
    chosen = tuple(filter(condition, whole.members()))
    return Set.sorted(chosen, whole if isinstance(whole, Set) else None)


def interval(low: Value, high: Value) -> Interval:
    """``low..high``."""
    for each in (low, high):
        if type(each) is not int:
            raise EvaluationError(f".. needs integers, and {described(each)} is not one")
    return Interval(low, high)
