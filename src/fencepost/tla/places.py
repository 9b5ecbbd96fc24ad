"""How the variables of a specification are laid out in the slots of a state.

A **place** is a variable or a part of one. What a step reads and writes of it decides how often the step has to be
evaluated, so a place is taken apart as far as its values have parts that steps use one by one:

- a :class:`Leaf` is one slot;
- a :class:`FunctionPlace` has a place for each argument of a function whose domain does not change: records, tuples,
  functions over processes;
- a :class:`SetPlace` has a slot for each value that has ever been a member;
- a :class:`MapPlace` has one for each value that has ever been in the domain of a function, such as a bag.

The places of a variable are chosen by what its values have looked like (:mod:`fencepost.tla.layout`), and are right
about every other value, too: one that does not fit, such as a model value instead of a record, is held whole in a slot
of its own. A value is laid out in one way only, so that equal states are equal rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, cast

from fencepost.language.context import FROM_HERE, THROUGHOUT, UNSET, Cursor, GrowingCursor, Looking, Sieve, Slot
from fencepost.language.fields import Shape
from fencepost.tla.held import Held
from fencepost.tla.stored import (
    Loan,
    Stored,
    StoredFunction,
    StoredMap,
    StoredSet,
    UpdatedFunction,
    UpdatedSet,
    changed,
    part_of,
)
from fencepost.tla.suppositions import is_there, key_of, read, refuse_without_reading, sieve_of, supposed
from fencepost.tla.symbols import LEVEL
from fencepost.tla.values import (
    EvaluationError,
    FunctionValue,
    Interval,
    LazyFunction,
    Set,
    SetValue,
    Value,
    code,
    in_order,
    kind_of,
    total_key,
)

Path = tuple[Any, ...]

Writes = list[tuple[Slot, Any]]
"""What is to be written, once everything has been read."""


class MEMBERS:
    """In the path of a slot: before a value that may be a member or an argument. A type equals no value."""


class OTHERWISE:
    """The end of the path of a slot that holds a value which does not fit."""


Pairs = Sequence[tuple[Value, Slot]]
"""Values with their slots."""

MOST_SIFTED = 1_000_000
"""The most answers to the question whether a member matters to a rule that are remembered."""


class Place(ABC):
    """A variable or a part of one. ``path`` begins the path of each of its slots."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def get(self, cursor: GrowingCursor) -> Value:
        """The value. Parts of it may be read later."""

    @abstractmethod
    def put(self, cursor: GrowingCursor, value: Value, writes: Writes) -> None:
        """Add to ``writes`` what makes this the value."""

    @abstractmethod
    def clear(self, cursor: GrowingCursor, writes: Writes) -> None:
        """Add to ``writes`` what lets every slot hold its default, because the value lies elsewhere."""

    def slots(self) -> Iterator[Slot]:
        """The slots that exist in every state."""
        return iter(())

    @abstractmethod
    def universe(self, path: Path) -> Path | None:
        """The path of the universe that the slot at ``path`` is in, if it is in one."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process makes its own slots."""
        return type(self), (self.path,)


class Leaf(Place):
    """A value in one slot."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._slot = Slot(path, UNSET)

    def get(self, cursor: GrowingCursor) -> Value:
        return read(cursor, self._slot).value

    def put(self, cursor: GrowingCursor, value: Value, writes: Writes) -> None:
        writes.append((self._slot, Held(value)))

    def clear(self, cursor: GrowingCursor, writes: Writes) -> None:
        writes.append((self._slot, UNSET))

    def slots(self) -> Iterator[Slot]:
        yield self._slot

    def universe(self, path: Path) -> Path | None:
        return None


class _Divided(Place):
    """A place with parts, and a slot for a value that does not have these parts."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._otherwise = (*path, OTHERWISE)
        self._slot = Slot(self._otherwise, UNSET, constant=False)
        self.loan = Loan()

    def get(self, cursor: GrowingCursor) -> Value:
        for slot in self._others(cursor):
            held = read(cursor, slot)
            if held is not UNSET:
                return held.value
        return self.stored(cursor)

    def _others(self, cursor: GrowingCursor) -> Sequence[Slot]:
        """The slot of a value that does not fit, if there ever was one."""
        return cursor.universe(self._otherwise, place=THROUGHOUT)

    def is_certain(self, cursor: GrowingCursor) -> bool:
        """Whether the value lies in the parts in every state, as far as is known."""
        return not self._others(cursor)

    def put(self, cursor: GrowingCursor, value: Value, writes: Writes) -> None:
        if self.fits(value):
            self._make_room(cursor, writes)
            self.put_parts(cursor, value, writes)
        else:
            writes.append((self._slot, Held(value)))
            self.clear_parts(cursor, writes)

    def _make_room(self, cursor: GrowingCursor, writes: Writes) -> None:
        writes += [(slot, UNSET) for slot in self._others(cursor)]

    def clear(self, cursor: GrowingCursor, writes: Writes) -> None:
        self._make_room(cursor, writes)
        self.clear_parts(cursor, writes)

    def universe(self, path: Path) -> Path | None:
        return self._otherwise if path == self._otherwise else self.universe_of_part(path)

    @abstractmethod
    def stored(self, cursor: GrowingCursor) -> Value:
        """The value that lies in the parts."""

    @abstractmethod
    def fits(self, value: Value) -> bool:
        """Whether the value has these parts."""

    def put_parts(self, cursor: GrowingCursor, value: Value, writes: Writes) -> None:
        """As :meth:`put`, for a value that fits."""
        base = value.base if isinstance(value, UpdatedFunction | UpdatedSet) else value
        if not isinstance(base, Stored) or not base.lies_in(self, cursor):
            self.put_whole(cursor, value, writes)
        elif base is not value:
            self.put_changes(cursor, value, writes)

    @abstractmethod
    def put_whole(self, cursor: GrowingCursor, value: Value, writes: Writes) -> None:
        """As :meth:`put_parts`, for a value that lies elsewhere."""

    @abstractmethod
    def put_changes(self, cursor: GrowingCursor, value: Any, writes: Writes) -> None:
        """As :meth:`put_parts`, for what differs from the value that lies here."""

    @abstractmethod
    def clear_parts(self, cursor: GrowingCursor, writes: Writes) -> None:
        """As :meth:`clear`, for the parts."""

    @abstractmethod
    def universe_of_part(self, path: Path) -> Path | None:
        """As :meth:`universe`, for the slot of a part."""


class FunctionPlace(_Divided):
    """A function with this domain. ``parts``: the place of each argument, in TLC's order."""

    def __init__(self, path: Path, parts: Mapping[Value, Place]) -> None:
        super().__init__(path)
        self.parts = dict(parts)
        is_sequence = list(self.parts) == list(range(1, len(self.parts) + 1))
        self.domain: SetValue = Interval(1, len(self.parts)) if is_sequence else Set.sorted(tuple(self.parts))
        self._kinds = set(map(kind_of, self.parts))  # model values stand beside one other kind
        self._by_path = {code(key): part for key, part in self.parts.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return FunctionPlace, (self.path, self.parts)

    def part(self, argument: Value) -> Place | None:
        """The place of an argument. None if it is not in the domain."""
        found = self.parts.get(argument)
        return found if found is None or kind_of(argument) in self._kinds else None

    def stored(self, cursor: GrowingCursor) -> Value:
        return StoredFunction(self, cursor)

    def fits(self, value: Value) -> bool:
        base = value.base if isinstance(value, UpdatedFunction) else value
        if isinstance(base, StoredFunction) and base.place is self:
            return True
        if not isinstance(value, FunctionValue):
            return False
        of = value.domain()
        return kind_of_members(of) in self._kinds and bool(of == self.domain)

    def put_changes(self, cursor: GrowingCursor, value: UpdatedFunction, writes: Writes) -> None:
        for key, of in value.changes.items():
            self.parts[key].put(cursor, of, writes)

    def put_whole(self, cursor: GrowingCursor, value: Value, writes: Writes) -> None:
        for key, part in self.parts.items():
            if not (isinstance(value, LazyFunction) and value.keeps(self.loan, key)):
                part.put(cursor, value.apply(key), writes)

    def clear_parts(self, cursor: GrowingCursor, writes: Writes) -> None:
        for part in self.parts.values():
            part.clear(cursor, writes)

    def slots(self) -> Iterator[Slot]:
        return chain.from_iterable(part.slots() for part in self.parts.values())

    def universe_of_part(self, path: Path) -> Path | None:
        key = path[len(self.path)]
        part = self._by_path.get(code(key.value) if isinstance(key, Held) else code(key))
        return None if part is None else part.universe(path)


def kind_of_members(of: SetValue) -> str | None:
    """The kind of the members of a set that is known to be finite, or of the first of them."""
    first = next(of.members(), None)
    return None if first is None else kind_of(first)


class _Sifted:
    """The members that matter by one sieve. Each is asked about once."""

    def __init__(self) -> None:
        self._among: Pairs = ()
        self._found: Pairs = ()
        self._matters: dict[int, bool] = {}  # by the id of a slot

    def of(self, pairs: Pairs, sieve: Sieve) -> Pairs:
        """Those among ``pairs``, which are the same as before or have more members."""
        if self._among is not pairs:
            for _, slot in pairs:
                if id(slot) not in self._matters:
                    self._matters[id(slot)] = sieve.matters(slot)
            self._found = [each for each in pairs if self._matters[id(each[1])]]
            self._among = pairs
        return self._found


class Members(_Divided):
    """Slots for values that come and go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.members = (*path, MEMBERS)
        self.kinds: set[str] = set()
        """The kinds of the values that have slots."""
        self.settled: tuple[tuple[Value, Slot], ...] = ()
        """Values that were present in states that were looked at before the search, with their slots."""
        self._slots: dict[bytes, Slot] = {}
        self._order: tuple[int, Sequence[Slot], Pairs] = (0, (), ())
        self._late: tuple[int, Sequence[Slot], Pairs] = (0, (), ())
        self._sifted: dict[Any, _Sifted] = {}

    absent: ClassVar[Any]
    """What a slot holds if its value is absent."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _settled, (type(self), self.path, [value for value, _ in self.settled])

    def slot(self, value: Value) -> Slot:
        """The slot of a value."""
        held = Held(value)
        known = self._slots.get(held.code)
        if known is None:
            known = self._slots[held.code] = Slot((*self.members, held), self.absent, constant=False)
            self.kinds.add(kind_of(held.value))
        return known

    def settle(self, values: Iterable[Value]) -> None:
        """Have slots for these values in every state."""
        self.settled = tuple((value, self.slot(value)) for value in values)
        self._late = 0, (), ()

    def slots(self) -> Iterator[Slot]:
        return (slot for _, slot in self.settled)

    def candidates(self, cursor: GrowingCursor, sieve: Sieve | None = None) -> Pairs:
        """The values that may be present, in TLC's order, with their slots, without those that do not matter by the
        sieve.
        """
        refuse_without_reading()
        return self._sift("all", self._in_order(cursor.universe(self.members, sieve)), sieve)

    def settled_candidates(self, sieve: Sieve | None) -> Pairs:
        """As :meth:`candidates`, of the settled values alone. It does not rely on the others."""
        refuse_without_reading()
        return self._sift("settled", self.settled, sieve)

    def late_candidates(self, cursor: GrowingCursor, sieve: Sieve | None, place: int) -> Pairs:
        """As :meth:`candidates`, without the settled values, in the order in which they appeared. ``place``: what of
        the evaluation relies on there being no more.
        """
        known = cursor.universe(self.members, sieve, place)
        number, slots, pairs = self._late
        if slots is not known or number != len(known):
            settled = {id(slot) for _, slot in self.settled}
            found = (self.slot(slot.path[-1].value) for slot in known)
            pairs = [(slot.path[-1].value, slot) for slot in found if id(slot) not in settled]
            self._late = len(known), known, pairs
        return self._sift("late", pairs, sieve)

    def _sift(self, part: str, pairs: Pairs, sieve: Sieve | None) -> Pairs:
        if sieve is None:
            return pairs
        if not sieve.is_known:
            return [each for each in pairs if sieve.matters(each[1])]
        sifted = self._sifted.get((part, sieve.key))
        if sifted is None:
            if len(self._sifted) * len(pairs) > MOST_SIFTED:
                self._sifted.clear()
            sifted = self._sifted[part, sieve.key] = _Sifted()
        return sifted.of(pairs, sieve)

    def _in_order(self, known: Sequence[Slot]) -> Pairs:
        number, slots, pairs = self._order
        if slots is not known or number != len(known):
            values = {slot.path[-1].value: slot for slot in known}
            try:
                ordered = in_order(values)
            except EvaluationError:
                ordered = tuple(sorted(values, key=total_key))
            pairs = [(value, self.slot(value)) for value in ordered]
            self._order = len(known), known, pairs
        return pairs

    def put_contents(self, cursor: GrowingCursor, contents: Mapping[Slot, Any], writes: Writes) -> None:
        """Add to ``writes`` these contents, and that all other values are absent."""
        writes += [(slot, self.absent) for slot in cursor.universe(self.members) if slot not in contents]
        writes += contents.items()

    def clear_parts(self, cursor: GrowingCursor, writes: Writes) -> None:
        self.put_contents(cursor, {}, writes)

    def universe_of_part(self, path: Path) -> Path | None:
        return self.members


def _settled(kind: type[Members], path: Path, values: list[Value]) -> Members:
    made = kind(path)
    made.settle(values)
    return made


class SetPlace(Members):
    """A set."""

    absent = False

    def stored(self, cursor: GrowingCursor) -> Value:
        return StoredSet(self, cursor)

    def fits(self, value: Value) -> bool:
        return isinstance(value, SetValue)

    def put_changes(self, cursor: GrowingCursor, value: UpdatedSet, writes: Writes) -> None:
        writes += [(self.slot(each), True) for each in value.added.items]
        writes += [(self.slot(each), False) for each in value.removed]

    def put_whole(self, cursor: GrowingCursor, value: Value, writes: Writes) -> None:
        self.put_contents(cursor, {self.slot(each): True for each in value.explicit().items}, writes)


class MapPlace(Members):
    """A function whose domain changes."""

    absent = UNSET

    def stored(self, cursor: GrowingCursor) -> Value:
        return StoredMap(self, cursor)

    def fits(self, value: Value) -> bool:
        return isinstance(value, FunctionValue)

    def put_changes(self, cursor: GrowingCursor, value: UpdatedFunction, writes: Writes) -> None:
        writes += [(self.slot(key), Held(of)) for key, of in value.changes.items()]

    def put_whole(self, cursor: GrowingCursor, value: Value, writes: Writes) -> None:
        domain = value.domain() if isinstance(value, LazyFunction) else None
        if isinstance(domain, StoredSet) and domain.lies_in(self, cursor):
            self._put_rule(cursor, value, writes)
        else:
            self.put_contents(cursor, {self.slot(key): Held(of) for key, of in value.explicit().items()}, writes)

    def _put_rule(self, cursor: GrowingCursor, value: Any, writes: Writes) -> None:
        """Write what a function over the same domain changes."""

        def changes(key: Value) -> bool:
            return not value.keeps(self.loan, key)

        matters = sieve_of(("changes", value.replaced_at, key_of(value.rule)), changes)
        for key, slot in self.candidates(cursor, matters):
            if changes(key):
                asked, new = supposed(cursor, slot, value.apply, key)
                if asked or (new is not None and is_there(cursor, slot)):
                    writes.append((slot, Held(new)))


# -- variables ---------------------------------------------------------------------------------------------------------


class Variable(Shape):
    """A variable, as engines lay it out. People see it as one value."""

    is_shown_whole = True

    def __init__(self, layout: Place) -> None:
        self.layout = layout
        self.name: str = layout.path[0]

    def slots(self, path: Path) -> Iterator[Slot]:
        return self.layout.slots()

    def get(self, cursor: Cursor, path: Path) -> Value:
        return Held(self.layout.get(cast("GrowingCursor", cursor)))

    def set(self, cursor: Cursor, path: Path, value: Held) -> None:
        writes: Writes = []
        self.layout.put(cast("GrowingCursor", cursor), value.value, writes)
        for slot, held in writes:
            cursor.write(slot, held)

    def universe(self, path: Path) -> Path | None:
        return self.layout.universe(path)

    def held(self, slots: Iterable[tuple[Slot, Any]]) -> Any:
        try:
            return Held(self.layout.get(_Known({slot.path: (slot, held) for slot, held in slots})))
        except AttributeError:
            return UNSET


class _Known(Looking):
    """A cursor over slots that are known."""

    def __init__(self, slots: Mapping[Path, tuple[Slot, Any]]) -> None:
        self._slots = slots

    def read(self, slot: Slot) -> Any:
        return self._slots[slot.path][1] if slot.path in self._slots else slot.default

    def universe(self, path: Path, sieve: Sieve | None = None, place: int = FROM_HERE) -> Sequence[Slot]:
        return [slot for at, (slot, _) in self._slots.items() if at[: len(path)] == path and len(at) - len(path) < 2]


class Blank(Looking):
    """A cursor over a state in which nothing has a value yet."""

    def read(self, slot: Slot) -> Any:
        return slot.default

    def universe(self, path: Path, sieve: Sieve | None = None, place: int = FROM_HERE) -> Sequence[Slot]:
        return ()


def whole(name: str) -> Variable:
    """A variable in one slot."""
    return Variable(Leaf((name,)))


LEVEL_PLACE = whole(LEVEL.name)
"""The level of a state. It is no variable, so that people do not see it."""


def numbered(shapes: Mapping[str, Variable]) -> tuple[Variable, ...]:
    """Variables by their numbers, and the level of a state."""
    return (*shapes.values(), LEVEL_PLACE)


class Reader:
    """The variables of one state, by number."""

    __slots__ = ("_cursor", "_known", "_variables", "kept")

    unread: ClassVar[str] = "state"
    """What it is in the key of a rule."""

    def __init__(self, variables: Sequence[Variable], cursor: GrowingCursor) -> None:
        self._variables = variables
        self._cursor = cursor
        self._known: dict[Any, Value] = {}
        self.kept: dict[Any, Value] = {}
        """Values of definitions in this state."""

    def __getitem__(self, variable: int) -> Value:
        return part_of(self._known, variable, self._variables[variable].layout, self._cursor)

    def keeps(self, before: object, variable: int) -> bool:
        """Whether a variable is known, without reading, to be as in the state ``before`` a step to this one."""
        layout = self._variables[variable].layout
        return isinstance(before, Reader) and changed(layout, self._cursor, before._cursor) == []


class Writer:
    """The state that an action makes: its variables get their values one by one. ``prime`` follows their names in
    errors. The cursor gets them all in :meth:`finish`.
    """

    def __init__(self, variables: Sequence[Variable], cursor: GrowingCursor, prime: str) -> None:
        self._variables = variables
        self._cursor = cursor
        self._prime = prime
        self._values: dict[int, Value] = {}

    def __getitem__(self, variable: int) -> Value:
        try:
            return self._values[variable]
        except KeyError:
            name = self._variables[variable].name
            raise EvaluationError(f"{name}{self._prime} is used before it has a value") from None

    @property
    def unread(self) -> Any:
        """What it is in the key of a rule. Its values are known without reading."""
        return tuple((variable, key_of(value)) for variable, value in self._values.items())

    def assign(self, variable: int, value: Value) -> None:
        self._values[variable] = value

    def is_assigned(self, variable: int) -> bool:
        return variable in self._values

    def finish(self) -> None:
        """Give the values to the cursor."""
        self.put(self._values, self._cursor)

    def put(self, variables: Iterable[int], cursor: GrowingCursor) -> None:
        """Give the values of these variables to a cursor."""
        writes: Writes = []
        for variable in variables:
            self._variables[variable].layout.put(cursor, self._values[variable], writes)
        for slot, held in writes:
            cursor.write(slot, held)
