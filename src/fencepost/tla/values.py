"""The values of TLA+: immutable, hashable, equal exactly when TLA+ says so.

A value is a ``bool``, an ``int``, a ``str``, a :class:`ModelValue`, a :class:`SetValue` or a :class:`FunctionValue`.
Records, sequences and tuples are functions. A function over ``1..n`` always is a :class:`Sequence`, whichever way it
was made, and every other finite one that is worked out is a :class:`Function`. The sets that are not written out are
in :mod:`fencepost.tla.sets`.

What TLC refuses raises :class:`EvaluationError`: to compare 1 with "a", to apply a function outside its domain. The
error has no place. Python's ``==`` and ``hash`` never raise for a finite value, and 1 and TRUE are not equal inside
sets and functions.

The order in which a set gives its members is TLC's (`compareTo` in `tlc2.value.impl`): numbers by size, strings and
model values as :mod:`fencepost.tla.order` says, sets by size and then member by member, functions by size, then by
their domains, then by their values. A model value comes before every other value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from operator import is_
from typing import Any, ClassVar

from fencepost.errors import PROTOCOL_RAISED, FencepostError
from fencepost.language.values import ModelValue, encode
from fencepost.text.plain import printable
from fencepost.tla import order

Value = Any
"""A value of TLA+, as listed above."""

LEAST_INTEGER = -(1 << 31)
GREATEST_INTEGER = (1 << 31) - 1

INTEGER = "an integer"
STRING = "a string"
BOOLEAN = "a Boolean"
MODEL = "a model value"
SET = "a set"
FUNCTION = "a function"

_KINDS = {int: INTEGER, str: STRING, bool: BOOLEAN, ModelValue: MODEL}


class EvaluationError(FencepostError):
    """TLC would stop here. The message says what is wrong with which values."""

    exit_code = PROTOCOL_RAISED


class Reads(Exception):
    """A rule that must not read the state would have read it."""


class Unread:
    """Stands for a part of a state that was not read. It can be passed on, and nothing else."""

    @property
    def kind(self) -> str:
        raise Reads


UNREAD = Unread()


def kind_of(value: Value) -> str:
    """What a value is: one of :data:`INTEGER`, :data:`STRING`, :data:`BOOLEAN`, :data:`MODEL`, :data:`SET` and
    :data:`FUNCTION`.
    """
    kind = _KINDS.get(type(value))
    return kind if kind is not None else value.kind


def type_of_model(value: ModelValue) -> str:
    """``"A"`` for a typed model value ``A_x``. An untyped one has none: ``""``."""
    name = value.name
    return name[0] if len(name) > 2 and name[1] == "_" else ""


# -- text --------------------------------------------------------------------------------------------------------------

MOST_CHARACTERS = 300
"""The longest value that an error shows whole."""

_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"})


def show(value: Value) -> str:
    """A value in TLA+, on one line, as TLC prints it."""
    kind = type(value)
    if kind is bool:
        return "TRUE" if value else "FALSE"
    if kind is str:
        return f'"{value.translate(_ESCAPES)}"'
    if kind is ModelValue:
        return str(value.name)
    return str(value)


def shown(value: Value) -> str:
    """A value for an error: printable, and cut short if it is long."""
    text = printable(show(value))
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def described(value: Value) -> str:
    """A value with what it is: ``the string "a"``."""
    return f"{_what(value)} {shown(value)}"


def _what(value: Value) -> str:
    if isinstance(value, Sequence):
        return "the sequence"
    if isinstance(value, Function) and value.is_record():
        return "the record"
    return f"the {kind_of(value).split(' ', 1)[1]}"


def not_comparable(one: Value, other: Value) -> EvaluationError:
    """The error of comparing values of two kinds."""
    return EvaluationError(f"{described(one)} cannot be compared with {described(other)}")


Condition = Callable[[Value], bool]


# -- sets --------------------------------------------------------------------------------------------------------------


class SetValue:
    """A set. ``is_reducible`` says that TLC works out what is filtered, joined or cut out of it at once. ``is_stored``:
    it lies in a state, and is read member by member (:mod:`fencepost.tla.stored`).
    """

    __slots__ = ("_explicit",)

    kind: ClassVar[str] = SET
    is_reducible: ClassVar[bool] = False
    is_stored: ClassVar[bool] = False

    _explicit: Set

    def has(self, value: Value) -> bool:
        """Whether ``value`` is a member. Raises :class:`EvaluationError` where TLC refuses the question."""
        raise NotImplementedError

    def members(self) -> Iterator[Value]:
        """The members in TLC's order, each once. Raises :class:`EvaluationError` if they cannot be enumerated."""
        raise NotImplementedError

    def size(self) -> int:
        """How many members there are. Raises as :meth:`members`, or if the number does not fit in 32 bits."""
        return self.explicit().size()

    def is_finite(self) -> bool:
        """Whether TLC takes the set for finite."""
        return True

    def is_empty(self) -> bool:
        """Whether there is no member. Raises as :meth:`members`."""
        return next(self.members(), None) is None

    def some(self, rule: Condition, sifting: Condition | None = None) -> bool:
        """Whether the rule is true of some member. Raises as :meth:`members`. ``sifting`` is true where the rule is,
        and may be false where the rule would read the state: it sorts out what may be a member.
        """
        return any(map(rule, self.members()))

    def every(self, rule: Condition) -> bool:
        """Whether the rule is true of every member. Raises as :meth:`members`."""
        return all(map(rule, self.members()))

    def those(self, rule: Condition, sifting: Condition | None = None) -> Iterator[Value]:
        """The members for which the rule is true, in TLC's order. Otherwise as :meth:`some`."""
        return filter(rule, self.members())

    def explicit(self) -> Set:
        """The set written out, which is done once. Raises as :meth:`members`."""
        try:
            return self._explicit
        except AttributeError:
            self._explicit = self.written_out()
            return self._explicit

    def written_out(self) -> Set:
        """Works out what :meth:`explicit` keeps."""
        return Set.sorted(tuple(self.members()))

    def text(self) -> str:
        """The set in TLA+."""
        return self.explicit().text()

    def key(self) -> tuple[Any, ...]:
        """Sorts the set among sets."""
        return self.explicit().key()

    def code(self) -> bytes:
        """Bytes that are equal exactly if the sets are."""
        return self.explicit().code()

    def settled(self) -> Set:
        """The value as a state has it: written out, with all its parts. Raises :class:`EvaluationError` if it is
        infinite.
        """
        return self.explicit().settled()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, SetValue) and self.explicit() == other.explicit()

    def __hash__(self) -> int:
        return hash(self.explicit())

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self.explicit().__reduce__()

    def __repr__(self) -> str:
        return self.text()


class Set(SetValue):
    """A set that is written out. Raises :class:`EvaluationError` if TLC does not compare its members."""

    __slots__ = ("_code", "_has_models", "_is_settled", "_items", "_key", "_kind", "_order")

    is_reducible = True

    _items: frozenset[Value]
    _kind: str | None  # of the members that are no model values
    _has_models: bool
    _order: tuple[Value, ...]
    _key: tuple[Any, ...]
    _code: bytes
    _is_settled: bool

    def __init__(self, items: Iterable[Value] = ()) -> None:
        members = items if isinstance(items, (tuple, list, frozenset)) else tuple(items)
        self._kind, self._has_models = _kinds_of(members)
        self._items = frozenset(members)

    @classmethod
    def of(cls, items: frozenset[Value], like: Set) -> Set:
        """A set whose members are all members of ``like``."""
        made = cls.__new__(cls)
        made._items = items
        made._kind, made._has_models = like._kind, like._has_models
        return made

    @classmethod
    def sorted(cls, items: tuple[Value, ...], like: Set | None = None) -> Set:
        """A set of members that already are in TLC's order, each once. All of them are members of ``like``."""
        made = cls(items) if like is None else cls.of(frozenset(items), like)
        made._order = items
        return made

    @property
    def items(self) -> frozenset[Value]:
        """The members, in no order."""
        return self._items

    def has(self, value: Value) -> bool:
        kind = _KINDS.get(type(value)) or value.kind
        if kind is self._kind:
            return value in self._items
        return self._has_another(value, kind)

    def _has_another(self, value: Value, kind: str) -> bool:
        if kind is MODEL and value in self._items:
            return True
        if self._items and (self._kind is not None if kind is not MODEL else type_of_model(value)):
            _refuse_other(value, self._items)
        elif self._has_models:
            _refuse_typed(value, self._items)
        return False

    def members(self) -> Iterator[Value]:
        return iter(self.in_order())

    def in_order(self) -> tuple[Value, ...]:
        """The members in TLC's order."""
        try:
            return self._order
        except AttributeError:
            self._order = in_order(self._items)
            return self._order

    def size(self) -> int:
        return len(self._items)

    def is_empty(self) -> bool:
        return not self._items

    def explicit(self) -> Set:
        return self

    def union(self, other: Set) -> Set:
        """Both sets together. Raises :class:`EvaluationError` if TLC does not compare their members."""
        if not other._items:
            return self
        if not self._items:
            return other
        if self.compares_simply_with(other):
            return Set.of(self._items | other._items, self)
        return Set((*self._items, *other._items))

    def compares_simply_with(self, other: Set) -> bool:
        """Whether a member of one is in the other exactly if Python says so, and TLC refuses nothing."""
        if not self._items or not other._items:
            return True
        return self._kind is other._kind and not self._has_models and not other._has_models

    def text(self) -> str:
        return "{" + ", ".join(map(show, self.in_order())) + "}"

    def key(self) -> tuple[Any, ...]:
        try:
            return self._key
        except AttributeError:
            self._key = (len(self._items), *map(key, self.in_order()))
            return self._key

    def code(self) -> bytes:
        try:
            return self._code
        except AttributeError:
            self._code = b"{" + b"".join(sorted(map(code, self._items))) + b"}"
            return self._code

    def settled(self) -> Set:
        if not hasattr(self, "_is_settled"):
            members = tuple(map(settled, self._items))
            if not all(map(is_, members, self._items)):
                return Set(members).settled()
            self._is_settled = True
        return self

    def __eq__(self, other: object) -> bool:
        if type(other) is Set:
            return self._items == other._items and (self._kind is other._kind or self._is_same_kind(other))
        return isinstance(other, SetValue) and (other == self if other.is_stored else self == other.explicit())

    def _is_same_kind(self, other: Set) -> bool:
        """A set made by :meth:`of` may have inherited a kind that none of its members has."""
        return _kinds_of(self._items) == _kinds_of(other._items)

    def __hash__(self) -> int:
        return hash(self._items)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Set, (tuple(sorted(self._items, key=code)),))


def in_order(values: Collection[Value]) -> tuple[Value, ...]:
    """Values in TLC's order. Raises :class:`EvaluationError` if TLC does not compare them."""
    if len(values) < 2:
        return tuple(values)
    try:
        return tuple(sorted(values, key=key))
    except TypeError:
        raise _first_incomparable(values) from None


def _first_incomparable(values: Collection[Value]) -> EvaluationError:
    """The error of the first two values that TLC does not compare. They are looked for in an order of their own."""
    members = sorted(values, key=code)
    for place, one in enumerate(members):
        for other in members[place + 1 :]:
            try:
                compare(one, other)
            except EvaluationError as error:
                return error
    raise AssertionError("values that cannot be sorted can be compared")


def _kinds_of(members: Collection[Value]) -> tuple[str | None, bool]:
    """The kind of the members that are no model values, and whether there are model values."""
    types = set(map(type, members))
    if len(types) == 1:
        kind = _kind_of_type(types.pop())
        if kind is not MODEL:
            return kind, False
    if ModelValue in types or not types:
        return _kinds_with_models(members)
    kinds = {_kind_of_type(each) for each in types}
    if len(kinds) == 1:
        return kinds.pop(), False
    raise _first_of_two_kinds(members)


def _kind_of_type(kind: type[Value]) -> str:
    return _KINDS.get(kind) or kind.kind


def _kinds_with_models(members: Collection[Value]) -> tuple[str | None, bool]:
    models = [each for each in members if type(each) is ModelValue]
    others = [each for each in members if type(each) is not ModelValue]
    kind = _kinds_of(others)[0] if others else None
    typed = [each for each in models if type_of_model(each)]
    if typed and others:
        raise not_comparable(typed[0], others[0])
    for each in typed:
        if type_of_model(each) != type_of_model(typed[0]):
            raise not_comparable(typed[0], each)
    return kind, bool(models)


def _first_of_two_kinds(members: Iterable[Value]) -> EvaluationError:
    first, *others = members
    return not_comparable(first, next(each for each in others if kind_of(each) is not kind_of(first)))


def _refuse_other(value: Value, members: Collection[Value]) -> None:
    """Raise if TLC does not compare ``value`` with the members."""
    for each in sorted(members, key=code):
        equal(value, each)


def _refuse_typed(value: Value, members: Collection[Value]) -> None:
    """Raise if ``value`` is compared with a typed model value of another type."""
    for each in members:
        if type(each) is ModelValue and type_of_model(each):
            equal(value, each)


class Interval(SetValue):
    """``low..high``."""

    __slots__ = ("high", "low")

    is_reducible = True

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high

    def has(self, value: Value) -> bool:
        if type(value) is int:
            return self.low <= value <= self.high
        if self.low <= self.high and (type(value) is not ModelValue or type_of_model(value)):
            raise not_a_member(value, self)
        return False

    def members(self) -> Iterator[Value]:
        return iter(range(self.low, self.high + 1))

    def size(self) -> int:
        return fitting(max(0, self.high - self.low + 1), f"the number of members of {self.text()}")

    def is_empty(self) -> bool:
        return self.high < self.low

    def text(self) -> str:
        return "{}" if self.is_empty() else f"{self.low}..{self.high}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Interval):
            return (self.low, self.high) == (other.low, other.high) or (self.is_empty() and other.is_empty())
        return super().__eq__(other)

    __hash__ = SetValue.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return (Interval, (self.low, self.high))


def not_a_member(value: Value, members: SetValue) -> EvaluationError:
    """The error of asking whether a value of another kind is in a set."""
    return EvaluationError(
        f"whether {described(value)} is in {shown(members)} cannot be decided: its members are of another kind"
    )


def fitting(number: int, what: str) -> int:
    """``number`` if it fits in 32 bits, as TLC's integers do. Raises :class:`EvaluationError` about ``what``."""
    if LEAST_INTEGER <= number <= GREATEST_INTEGER:
        return number
    raise EvaluationError(
        f"{what} is {number}, which does not fit in 32 bits: TLC's integers end at {GREATEST_INTEGER}"
    )


EMPTY_SET = Set()
BOOLEANS = Set.sorted((False, True))


# -- functions ---------------------------------------------------------------------------------------------------------


class FunctionValue:
    """A function, a record, a sequence or a tuple."""

    __slots__ = ()

    kind: ClassVar[str] = FUNCTION

    def apply(self, argument: Value) -> Value:
        """The value for ``argument``. Raises :class:`EvaluationError` if it is not in the domain."""
        raise NotImplementedError

    def domain(self) -> SetValue:
        """The domain."""
        raise NotImplementedError

    def is_defined_for(self, argument: Value) -> bool:
        """Whether ``argument`` is in the domain. Raises :class:`EvaluationError` where ``EXCEPT`` would."""
        raise NotImplementedError

    def replaced(self, argument: Value, value: Value) -> FunctionValue:
        """The function with another value for ``argument``, which is in the domain."""
        raise NotImplementedError

    def explicit(self) -> Sequence | Function:
        """The function written out. Raises :class:`EvaluationError` if its domain cannot be enumerated."""
        raise NotImplementedError

    def items(self) -> Iterator[tuple[Value, Value]]:
        """Arguments and values, in TLC's order of the domain."""
        return self.explicit().items()

    def size(self) -> int:
        """How many members the domain has."""
        return self.explicit().size()

    def text(self) -> str:
        """The function in TLA+."""
        return self.explicit().text()

    def key(self) -> list[Any]:
        """Sorts the function among functions."""
        return self.explicit().key()

    def code(self) -> bytes:
        """Bytes that are equal exactly if the functions are."""
        return self.explicit().code()

    def settled(self) -> Sequence | Function:
        """The value as a state has it: written out, with all its parts. Raises :class:`EvaluationError` if it is
        infinite.
        """
        return self.explicit().settled()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, FunctionValue) and self.explicit() == other.explicit()

    def __hash__(self) -> int:
        return hash(self.explicit())

    def __repr__(self) -> str:
        return self.text()


class Sequence(FunctionValue):
    """A function over ``1..n``: a sequence, a tuple, the empty function."""

    __slots__ = ("_code", "_hash", "_is_settled", "_key", "values")

    values: tuple[Value, ...]
    _hash: int
    _key: list[Any]
    _code: bytes
    _is_settled: bool

    def __init__(self, values: Iterable[Value] = ()) -> None:
        self.values = tuple(values)

    def apply(self, argument: Value) -> Value:
        if type(argument) is int and 0 < argument <= len(self.values):
            return self.values[argument - 1]
        if type(argument) is not int:
            raise EvaluationError(f"{described(self)} is applied to {described(argument)}, but it takes integers")
        raise EvaluationError(f"{described(self)} has no element {argument}")

    def domain(self) -> Interval:
        return Interval(1, len(self.values))

    def is_defined_for(self, argument: Value) -> bool:
        if type(argument) is int:
            return 0 < argument <= len(self.values)
        if self.values:
            raise EvaluationError(f"{described(self)} takes integers, and EXCEPT names {described(argument)}")
        return False

    def replaced(self, argument: Value, value: Value) -> Sequence:
        return Sequence((*self.values[: argument - 1], value, *self.values[argument:]))

    def explicit(self) -> Sequence:
        return self

    def items(self) -> Iterator[tuple[Value, Value]]:
        return enumerate(self.values, 1)

    def size(self) -> int:
        return len(self.values)

    def text(self) -> str:
        return "<<" + ", ".join(map(show, self.values)) + ">>"

    def key(self) -> list[Any]:
        try:
            return self._key
        except AttributeError:
            places = [(1, place) for place in range(1, len(self.values) + 1)]
            self._key = [len(places), *places, *map(key, self.values)]
            return self._key

    def code(self) -> bytes:
        try:
            return self._code
        except AttributeError:
            self._code = b"(" + b"".join(map(code, self.values)) + b")"
            return self._code

    def settled(self) -> Sequence:
        if not hasattr(self, "_is_settled"):
            values = tuple(map(settled, self.values))
            if not all(map(is_, values, self.values)):
                return Sequence(values).settled()
            self._is_settled = True
        return self

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is Sequence:
            return self.values == other.values and _same_truths(self.values, other.values)
        return isinstance(other, FunctionValue) and type(other) is not Function and self == other.explicit()

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = hash(self.values)
            return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return (Sequence, (self.values,))


class Function(FunctionValue):
    """A finite function that is not over ``1..n``, such as a record. :func:`function` makes one."""

    __slots__ = ("_code", "_domain", "_hash", "_is_settled", "_key", "mapping")

    mapping: dict[Value, Value]
    _hash: int
    _key: list[Any]
    _code: bytes
    _is_settled: bool
    _domain: Set

    def __init__(self, mapping: dict[Value, Value]) -> None:
        self.mapping = mapping

    def apply(self, argument: Value) -> Value:
        kind = type(argument)
        if (kind is int or kind is bool) and not self._is_over(kind):
            raise self._outside(argument)
        try:
            return self.mapping[argument]
        except KeyError:
            raise self._outside(argument) from None

    def _is_over(self, kind: type[Value]) -> bool:
        """Whether integers (or Booleans) are in the domain. For Python 1 and True are one key."""
        return any(type(each) is kind for each in self.mapping)

    def _outside(self, argument: Value) -> EvaluationError:
        if not self.is_record():
            return EvaluationError(f"{described(self)} is applied to {shown(argument)}, which is not in its domain")
        if type(argument) is str:
            return EvaluationError(f"{described(self)} has no field {printable(argument)}")
        return EvaluationError(f"{described(self)} is applied to {described(argument)}, but it takes names of fields")

    def is_record(self) -> bool:
        """Whether the domain has only strings."""
        return all(type(each) is str for each in self.mapping)

    def domain(self) -> Set:
        try:
            return self._domain
        except AttributeError:
            self._domain = Set(self.mapping.keys())
            return self._domain

    def is_defined_for(self, argument: Value) -> bool:
        if type(argument) is str and argument in self.mapping:
            return True
        return self.domain().has(argument)

    def replaced(self, argument: Value, value: Value) -> Function:
        made = Function({**self.mapping, argument: value})
        made._domain = self.domain()
        return made

    def explicit(self) -> Function:
        return self

    def domain_in_order(self) -> tuple[Value, ...]:
        """The members of the domain, in TLC's order."""
        return self.domain().in_order()

    def items(self) -> Iterator[tuple[Value, Value]]:
        return ((each, self.mapping[each]) for each in self.domain_in_order())

    def size(self) -> int:
        return len(self.mapping)

    def text(self) -> str:
        if self._is_shown_as_record():
            return "[" + ", ".join(f"{name} |-> {show(value)}" for name, value in self.items()) + "]"
        return "(" + " @@ ".join(f"{show(argument)} :> {show(value)}" for argument, value in self.items()) + ")"

    def key(self) -> list[Any]:
        try:
            return self._key
        except AttributeError:
            values = [key(self.mapping[each]) for each in self.domain_in_order()]
            self._key = [*self.domain().key(), *values]
            return self._key

    def code(self) -> bytes:
        try:
            return self._code
        except AttributeError:
            self._code = b"[" + b"".join(sorted(code(k) + code(v) for k, v in self.mapping.items())) + b"]"
            return self._code

    def settled(self) -> Function:
        if not hasattr(self, "_is_settled"):
            mapping = {settled(argument): settled(value) for argument, value in self.mapping.items()}
            if not all(map(is_, (*mapping, *mapping.values()), (*self.mapping, *self.mapping.values()))):
                return Function(mapping).settled()
            self._is_settled = True
        return self

    def _is_shown_as_record(self) -> bool:
        return all(map(is_name, self.mapping))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is Function:
            return self.mapping == other.mapping and self._has_same_truths(other)
        return isinstance(other, FunctionValue) and type(other) is not Sequence and self == other.explicit()

    def _has_same_truths(self, other: Function) -> bool:
        ours, theirs = self.mapping, other.mapping
        if (True in ours or False in ours) and self.domain() != other.domain():
            return False
        if list(ours) == list(theirs):
            return _same_truths(ours.values(), theirs.values())
        return _same_truths(ours.values(), [theirs[each] for each in ours])

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = hash(frozenset(self.mapping.items()))
            return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return (Function, (self.mapping,))


class ImplicitFunction(FunctionValue):
    """A function whose values are worked out one by one, and which is written out once if it is needed as a whole."""

    __slots__ = ("_explicit",)

    _explicit: Sequence | Function

    def explicit(self) -> Sequence | Function:
        try:
            return self._explicit
        except AttributeError:
            self._explicit = self.written_out()
            return self._explicit

    def written_out(self) -> Sequence | Function:
        """Works out what :meth:`explicit` keeps."""
        return function({each: self.apply(each) for each in self.domain().members()})

    def __reduce__(self) -> tuple[Any, ...]:
        return self.explicit().__reduce__()


class LazyFunction(ImplicitFunction):
    """``[x \\in domain |-> rule(x)]``, whose values are worked out when they are asked for, each once. ``replaced_at``:
    the arguments that ``EXCEPT`` gave another value. ``sifting`` is another form of the rule, which may need the state
    less.
    """

    __slots__ = ("_domain", "_known", "replaced_at", "rule", "sifting")

    def __init__(
        self, domain: SetValue, rule: Callable[[Value], Value], sifting: Callable[[Value], Value] | None = None
    ) -> None:
        self._domain = domain
        self.rule = rule
        self.sifting = sifting or rule
        self.replaced_at: frozenset[tuple[bool, Value]] = frozenset()
        self._known: dict[tuple[bool, Value], Value] = {}

    def apply(self, argument: Value) -> Value:
        known = (type(argument) is bool, argument)
        if known not in self._known:
            if not self._domain.has(argument):
                raise EvaluationError(f"a function is applied to {shown(argument)}, which is not in its domain")
            value = self.rule(argument)
            if value is UNREAD:
                return value
            self._known[known] = value
        return self._known[known]

    def keeps(self, loan: Any, argument: Value) -> bool:
        """Whether the rule gives what the function that ``loan`` is of gives, so that nothing changes there."""
        return (type(argument) is bool, argument) not in self.replaced_at and loan.keeps(self.sifting, argument)

    def domain(self) -> SetValue:
        return self._domain

    def is_defined_for(self, argument: Value) -> bool:
        return self._domain.has(argument)

    def replaced(self, argument: Value, value: Value) -> LazyFunction:
        made = LazyFunction(self._domain, self.rule, self.sifting)
        made._known = {**self._known, (type(argument) is bool, argument): value}
        made.replaced_at = self.replaced_at | {(type(argument) is bool, argument)}
        return made


EMPTY = Sequence()


def function(mapping: Mapping[Value, Value]) -> Sequence | Function:
    """The function with these arguments and values. The arguments are values that TLC compares."""
    if not mapping:
        return EMPTY
    if 1 in mapping and _is_sequence(mapping):
        return Sequence([mapping[place] for place in range(1, len(mapping) + 1)])
    return Function(dict(mapping))


def _is_sequence(mapping: Mapping[Value, Value]) -> bool:
    number = len(mapping)
    return all(type(each) is int and 0 < each <= number for each in mapping)


def record(**fields: Value) -> Sequence | Function:
    """The record with these fields."""
    return function(fields)


def function_of(
    domain: SetValue, rule: Callable[[Value], Value], sifting: Callable[[Value], Value] | None = None
) -> FunctionValue:
    """``[x \\in domain |-> rule(x)]``. It is worked out at once where TLC does so. ``sifting``: as for
    :class:`LazyFunction`.
    """
    if not domain.is_reducible:
        return LazyFunction(domain, rule, sifting)
    try:
        if isinstance(domain, Interval) and domain.low == 1:
            return Sequence([rule(each) for each in range(1, domain.high + 1)])
        return function({each: rule(each) for each in domain.members()})
    except EvaluationError:
        if not _APPLYING.get():
            raise
        return LazyFunction(domain, rule, sifting)


_APPLYING = ContextVar("_APPLYING", default=False)
"""Whether a function is made to be applied."""


def apply_rule(make: Callable[[], Value], argument: Value) -> Value:
    """``make()[argument]`` for a function that ``make`` makes. Where its rule fails for some arguments, it is worked
    out for this one alone, as in TLC.
    """
    try:
        return apply(make(), argument)
    except EvaluationError:
        token = _APPLYING.set(True)
        try:
            return apply(make(), argument)
        finally:
            _APPLYING.reset(token)


def is_name(value: Value) -> bool:
    """Whether TLC prints ``value`` as the name of a field: letters, digits and underscores, and some letter."""
    if type(value) is not str or (value.startswith(("WF_", "SF_")) and len(value) > 3):
        return False
    return all(each.isalnum() or each == "_" for each in value) and any(map(str.isalpha, value))


def _same_truths(one: Collection[Value], other: Collection[Value]) -> bool:
    """Whether values that are equal for Python are equal in TLA+, where TRUE is not 1."""
    if list(map(type, one)) == list(map(type, other)):
        return True
    return all((type(a) is bool) is (type(b) is bool) for a, b in zip(one, other, strict=True))


# -- what operators ask ------------------------------------------------------------------------------------------------


def equal(one: Value, other: Value) -> bool:
    """``one = other``. Raises :class:`EvaluationError` where TLC refuses to compare."""
    if one is other:
        return True
    kind = type(one)
    if kind is type(other) and (kind is int or kind is str or kind is bool):
        return one == other  # type: ignore[no-any-return]
    if kind is ModelValue or type(other) is ModelValue:
        return _equal_models(one, other)
    if isinstance(one, SetValue) and isinstance(other, SetValue):
        return _equal_sets(one, other)
    if isinstance(one, FunctionValue) and isinstance(other, FunctionValue):
        return _equal_functions(one, other)
    raise not_comparable(one, other)


def _equal_models(one: Value, other: Value) -> bool:
    if type(one) is ModelValue and type(other) is ModelValue:
        types = {type_of_model(one), type_of_model(other)} - {""}
        if len(types) == 2:
            raise not_comparable(one, other)
        return one.name == other.name
    if type_of_model(one if type(one) is ModelValue else other):
        raise not_comparable(one, other)
    return False


def _equal_sets(one: SetValue, other: SetValue) -> bool:
    if one == other:
        return True
    if one.is_stored or other.is_stored:
        return False  # they were compared member by member, and that would have raised
    left, right = one.explicit(), other.explicit()
    if left.size() != right.size():
        return False
    if not left.compares_simply_with(right):
        _refuse_other(left.in_order()[0], [right.in_order()[0]])
    return False


def _equal_functions(one: FunctionValue, other: FunctionValue) -> bool:
    left, right = one.explicit(), other.explicit()
    if left == right:
        return True
    if isinstance(left, Sequence) and isinstance(right, Sequence):
        return left.size() == right.size() and all(map(equal, left.values, right.values))
    if isinstance(left, Function) and isinstance(right, Function) and left.mapping.keys() == right.mapping.keys():
        return all(equal(left.mapping[each], right.mapping[each]) for each in left.domain_in_order())
    return _equal_domains(left, right)


def _equal_domains(left: Sequence | Function, right: Sequence | Function) -> bool:
    """False for functions with two domains. TLC does not compare a record with what is not one, unless it is empty."""
    if isinstance(left, Function) and left.is_record() and right.size():
        if not (isinstance(right, Function) and right.is_record()):
            raise not_comparable(left, right)
    return _equal_sets(left.domain(), right.domain())


def member(value: Value, members: Value) -> bool:
    """``value \\in members``. Raises :class:`EvaluationError` where TLC refuses the question."""
    if isinstance(members, SetValue):
        return members.has(value)
    raise EvaluationError(f"{shown(value)} cannot be a member of {described(members)}: it is not a set")


def apply(function: Value, argument: Value) -> Value:
    """``function[argument]``. Raises :class:`EvaluationError` outside the domain, and for what is not a function."""
    if isinstance(function, FunctionValue):
        return function.apply(argument)
    raise EvaluationError(f"{described(function)} is applied to {shown(argument)}, but it is not a function")


def domain(function: Value) -> SetValue:
    """``DOMAIN function``. Raises :class:`EvaluationError` for what is not a function."""
    if isinstance(function, FunctionValue):
        return function.domain()
    raise EvaluationError(f"{described(function)} has no DOMAIN: it is not a function")


def updated(function: Value, path: tuple[Value, ...], change: Callable[[Callable[[], Value]], Value]) -> Value:
    """``[function EXCEPT !path = change(@)]``. ``change`` is given a function that works out ``@``. As in TLC, a path
    that leads outside a domain changes nothing, and ``change`` is not called. Raises :class:`EvaluationError` if the
    path leads through what is not a function.
    """
    if not isinstance(function, FunctionValue):
        raise EvaluationError(f"EXCEPT cannot change {described(function)} at {shown(path[0])}: it is not a function")
    if not function.is_defined_for(path[0]):
        return function
    argument = path[0]
    if len(path) == 1:
        return function.replaced(argument, change(lambda: function.apply(argument)))
    old = function.apply(argument)
    new = updated(old, path[1:], change)
    return function if new is old else function.replaced(argument, new)


def set_of(value: Value, what: str) -> SetValue:
    """``value`` if it is a set. Raises :class:`EvaluationError` that it is wanted for ``what``."""
    if isinstance(value, SetValue):
        return value
    raise EvaluationError(f"{what} needs a set, and {described(value)} is not one")


def members(value: Value, what: str = "to go through its members") -> Iterator[Value]:
    """The members of a set in TLC's order, as ``CHOOSE`` and quantifiers go through them. Raises
    :class:`EvaluationError` for what is not a set, and for a set that cannot be enumerated.
    """
    return set_of(value, what).members()


def size(value: Value) -> int:
    """``Cardinality(value)``. Raises :class:`EvaluationError` for what is not a finite set."""
    return set_of(value, "Cardinality").size()


# -- order, bytes ------------------------------------------------------------------------------------------------------


def key(value: Value) -> tuple[int, Any]:
    """Sorts values in TLC's order. Keys of values that TLC does not compare raise ``TypeError`` when compared."""
    kind = type(value)
    if kind is int:
        return (1, value)
    if kind is str:
        return (1, order.key(value))
    if kind is bool:
        return (1, "T" if value else "F")
    if kind is ModelValue:
        return (0, order.key(value.name))
    return (1, value.key())


def total_key(value: Value) -> tuple[Any, ...]:
    """Sorts any values: in TLC's order those that it compares, and otherwise by kind."""
    kind = kind_of(value)
    if isinstance(value, SetValue):
        members = value.explicit().items
        return (_RANKS[kind], len(members), sorted(map(total_key, members)))
    if isinstance(value, FunctionValue):
        items = sorted((total_key(argument), total_key(each)) for argument, each in value.items())
        return (_RANKS[kind], len(items), [argument for argument, _ in items], [each for _, each in items])
    return (_RANKS[kind], key(value))


_RANKS = {kind: rank for rank, kind in enumerate((MODEL, BOOLEAN, INTEGER, STRING, SET, FUNCTION))}


def compare(one: Value, other: Value) -> int:
    """Negative if ``one`` comes before ``other`` in TLC's order, 0 if they are equal. Raises :class:`EvaluationError`
    if TLC does not compare them.
    """
    for left, right in ((one, other), (other, one)):
        if type(left) is ModelValue:
            _equal_models(left, right)
    try:
        ours, theirs = key(one), key(other)
        return (ours > theirs) - (ours < theirs)
    except TypeError:
        raise not_comparable(one, other) from None


def code(value: Value) -> bytes:
    """Bytes that are equal exactly if the values are, in every process, whichever way the values were made."""
    kind = type(value)
    return encode(value) if kind in _KINDS else value.code()


# -- values of a state -------------------------------------------------------------------------------------------------


def settled(value: Value) -> Value:
    """A value as a state has it: written out, with all its parts. Raises :class:`EvaluationError` if it is infinite."""
    return value if type(value) in _KINDS else value.settled()
