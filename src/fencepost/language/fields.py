"""State variables: the slots of a declaration, and the views through which the author's Python uses them.

- a plain value is one slot;
- a :class:`Record` as a variable's type is a slot per field, at any depth;
- :func:`per_key` over a constant is one of these per key;
- :func:`table` is a map whose keys appear on first write: a slot per key and one for the set of keys;
- a network (see `network`) is a slot per channel.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

from fencepost.errors import FencepostError
from fencepost.language.contents import permute
from fencepost.language.context import Cursor, Slot, slot_name
from fencepost.language.values import (
    Map,
    ModelValue,
    NotAValue,
    Record,
    Set,
    Value,
    encode,
    finite,
    freeze,
    refuse_equal,
    show,
)

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_KEYS_OF_MAP = "the set of keys of a per_key(...)"

Keys = Iterable[Any] | Callable[[Any], Iterable[Any]]
"""The keys of a map: a constant of the protocol, any iterable, or a function of the protocol."""


KEYS = type("keys", (), {})
"""The last part of the path of a table's set of keys. It is a type, so it never equals a key."""


class Shape:
    """The layout of a variable in slots. Built once per protocol from the declaration, when the constants are known."""

    is_shown_whole: ClassVar[bool] = False
    """Whether people see the variable as one part, however many slots it has. Then :meth:`held` gives its value."""

    def slots(self, path: tuple[Any, ...]) -> Iterator[Slot]:
        """The slots that exist in every state."""
        raise NotImplementedError

    def get(self, cursor: Cursor, path: tuple[Any, ...]) -> Any:
        """The variable as the author reads it: a value, or a view of its parts."""
        raise NotImplementedError

    def access(self, cursor: Cursor, path: tuple[Any, ...]) -> View | Slot:
        """What stays of the variable while the state changes: the view of its parts, or the slot of its value."""
        view: View = self.get(cursor, path)
        return view

    def set(self, cursor: Cursor, path: tuple[Any, ...], value: Any) -> None:
        """Assign the whole variable."""
        raise NotImplementedError

    def reset(self, cursor: Cursor, path: tuple[Any, ...]) -> None:
        """Assign the declared initial value."""
        for slot in self.slots(path):
            cursor.write(slot, slot.default)

    def value(self, read: Callable[[Slot], Value], path: tuple[Any, ...]) -> Value:
        """The whole variable as one immutable value."""
        raise NotImplementedError

    def held(self, slots: Iterable[tuple[Slot, Value]]) -> Value:
        """The whole variable, from the slots that a state knows and what they hold. For variables that are not laid out
        in the same slots in every search.
        """
        raise NotImplementedError

    def element(self, key: Any) -> Shape | None:
        """The shape of the part under a key, or of the field with this name. None if there is none."""
        return None

    def inner(self) -> Iterable[Shape]:
        """The shapes of its parts, each at least once."""
        return ()

    def forget(self, held: Collection[tuple[Any, ...]]) -> None:
        """Let go of slots that have been made, but for those with these paths. They are made again when they are asked
        for.
        """
        for shape in {id(each): each for each in self.inner()}.values():
            shape.forget(held)

    def permuted(self, path: tuple[Any, ...], swap: Mapping[ModelValue, ModelValue]) -> tuple[Any, ...]:
        """The path that the slot at ``path`` has after an exchange of model values."""
        return tuple(permute(part, swap) for part in path)

    def universe(self, path: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The path of the universe that the slot at ``path`` is in, if it is in one.

        A **universe** is a family of slots that grows as the search goes on, such as one slot for each value that has
        been a member of a set. See :meth:`fencepost.language.context.GrowingCursor.universe`.
        """
        return None

    def place(self, path: tuple[Any, ...]) -> tuple[Any, ...]:
        """The path as a value. Exchanging model values in it agrees with :meth:`permuted`."""
        return path


class Leaf(Shape):
    """One slot."""

    def __init__(self, default: Value) -> None:
        self.default = freeze(default)
        self._slots: dict[tuple[Any, ...], Slot] = {}

    def _slot(self, path: tuple[Any, ...]) -> Slot:
        slot = self._slots.get(path)
        return slot if slot is not None else self._slots.setdefault(path, Slot(path, self.default))

    def forget(self, held: Collection[tuple[Any, ...]]) -> None:
        self._slots.clear()

    def slots(self, path: tuple[Any, ...]) -> Iterator[Slot]:
        yield self._slot(path)

    def get(self, cursor: Cursor, path: tuple[Any, ...]) -> Value:
        return cursor.read(self._slot(path))

    def access(self, cursor: Cursor, path: tuple[Any, ...]) -> Slot:
        return self._slot(path)

    def set(self, cursor: Cursor, path: tuple[Any, ...], value: Any) -> None:
        cursor.write(self._slot(path), value)

    def value(self, read: Callable[[Slot], Value], path: tuple[Any, ...]) -> Value:
        return read(self._slot(path))


class Struct(Shape):
    """A record whose fields are separate parts of the state."""

    def __init__(self, record: type[Record], parts: dict[str, Shape]) -> None:
        self.record = record
        self.parts = parts

    def element(self, key: Any) -> Shape | None:
        return self.parts.get(key)

    def inner(self) -> Iterable[Shape]:
        return self.parts.values()

    def slots(self, path: tuple[Any, ...]) -> Iterator[Slot]:
        for name, part in self.parts.items():
            yield from part.slots((*path, name))

    def get(self, cursor: Cursor, path: tuple[Any, ...]) -> RecordView:
        return RecordView(self, cursor, path)

    def set(self, cursor: Cursor, path: tuple[Any, ...], value: Any) -> None:
        if isinstance(value, RecordView):
            value = value.__value__()
        if type(value) is not self.record:
            raise NotAValue(f"{show(value)} where a {self.record.__name__} belongs")
        for name, part in self.parts.items():
            declared = getattr(value, name)
            if isinstance(declared, (VariableOf, PerKeyOf, TableOf)):  # as the record's class declares it
                part.reset(cursor, (*path, name))
            else:
                part.set(cursor, (*path, name), declared)

    def value(self, read: Callable[[Slot], Value], path: tuple[Any, ...]) -> Value:
        return self.record(**{name: part.value(read, (*path, name)) for name, part in self.parts.items()})


class EachOf(Mapping[Any, Shape]):
    """One shape for all numbers of a range of any length."""

    def __init__(self, keys: range, shape: Shape) -> None:
        self.keys_of = keys
        self.shape = shape

    def __getitem__(self, key: Any) -> Shape:
        if type(key) is int and key in self.keys_of:
            return self.shape
        raise KeyError(key)

    def get(self, key: Any, default: Any = None) -> Any:
        return self.shape if type(key) is int and key in self.keys_of else default

    def __iter__(self) -> Iterator[int]:
        return iter(self.keys_of)

    def __len__(self) -> int:
        return len(self.keys_of)


class PerKeyShape(Shape):
    """A shape for each key of a constant set."""

    def __init__(self, elements: Mapping[Any, Shape]) -> None:
        self.elements = elements
        self._keys = {} if isinstance(elements, EachOf) else {key: (key, encode(key)) for key in elements}

    def element(self, key: Any) -> Shape | None:
        """Compares keys as values: ``True`` is not the key 1."""
        if not self._keys:
            return self.elements.get(key)
        known = self._keys.get(key)
        if known is None or (known[0] is not key and known[1] != encode(freeze(key))):
            return None
        return self.elements[key]

    def inner(self) -> Iterable[Shape]:
        return (self.elements.shape,) if isinstance(self.elements, EachOf) else self.elements.values()

    def slots(self, path: tuple[Any, ...]) -> Iterator[Slot]:
        for key in finite(self.elements, _KEYS_OF_MAP):
            yield from self.elements[key].slots((*path, key))

    def get(self, cursor: Cursor, path: tuple[Any, ...]) -> PerKeyView[Any, Any]:
        return PerKeyView(self, cursor, path)

    def set(self, cursor: Cursor, path: tuple[Any, ...], value: Any) -> None:
        if (
            not isinstance(value, (Mapping, PerKeyView))
            or len(value) != len(self.elements)
            or not all(map(self.element, value))
        ):
            raise NotAValue(f"{show(value)} where a map over {{{', '.join(map(show, self.elements))}}} belongs")
        for key, element in self.elements.items():
            element.set(cursor, (*path, key), value[key])

    def value(self, read: Callable[[Slot], Value], path: tuple[Any, ...]) -> Value:
        return Map({key: element.value(read, (*path, key)) for key, element in self.elements.items()})


class TableShape(Shape):
    """A map whose keys appear on first write."""

    def __init__(self, default: Mapping[Any, Any]) -> None:
        items = default if isinstance(default, Mapping) else finite(default, "what a table(...) begins with")
        self.default = Map(freeze(Map(items)))
        self._initial = {encode(key): value for key, value in self.default.items()}
        self._slots: dict[Any, Slot] = {}

    def forget(self, held: Collection[tuple[Any, ...]]) -> None:
        self._slots.clear()

    def keys(self, path: tuple[Any, ...]) -> Slot:
        """The slot of a table's set of keys."""
        slot = self._slots.get(path)
        return slot if slot is not None else self._slots.setdefault(path, Slot((*path, KEYS), Set(self.default)))

    def cell(self, path: tuple[Any, ...], key: Any) -> Slot:
        """The slot of a table's value for a key."""
        code = encode(key)  # by content: 1 and True are two keys
        at = (path, code)
        slot = self._slots.get(at)
        if slot is None:
            # A tuple of one element, or none: a table may hold None, which must differ from an absent key.
            default = (self._initial[code],) if code in self._initial else ()
            slot = self._slots.setdefault(at, Slot((*path, key), default, constant=False))
        return slot

    def slots(self, path: tuple[Any, ...]) -> Iterator[Slot]:
        yield self.keys(path)
        for key in self.default:
            yield self.cell(path, key)

    def get(self, cursor: Cursor, path: tuple[Any, ...]) -> TableView[Any, Any]:
        return TableView(self, cursor, path)

    def set(self, cursor: Cursor, path: tuple[Any, ...], value: Any) -> None:
        view: TableView[Any, Any] = TableView(self, cursor, path)
        items = dict(value)
        kept = {encode(freeze(key)) for key in items}
        for key in list(view):
            if encode(key) not in kept:
                del view[key]
        for key, item in items.items():
            view[key] = item

    def reset(self, cursor: Cursor, path: tuple[Any, ...]) -> None:
        self.set(cursor, path, self.default)

    def value(self, read: Callable[[Slot], Value], path: tuple[Any, ...]) -> Value:
        return Map({key: read(self.cell(path, key))[0] for key in read(self.keys(path))})


class View:
    """A variable of several slots, as the author uses it. It equals anything with the same value."""

    __slots__ = ("_cursor", "_path", "_shape")

    def __init__(self, shape: Any, cursor: Cursor, path: tuple[Any, ...]) -> None:
        self._shape = shape
        self._cursor = cursor
        self._path = path

    def __value__(self) -> Value:
        return self._shape.value(self._cursor.read, self._path)

    def __eq__(self, other: object) -> bool:
        return bool(self.__value__() == (other.__value__() if isinstance(other, View) else other))

    def __hash__(self) -> int:
        return hash(self.__value__())

    def __repr__(self) -> str:
        return show(self.__value__())


def path_of(view: View) -> tuple[Any, ...]:
    """The path of a view's variable, or of its part of one. It is a function because a record's attributes are its
    fields.
    """
    return view._path


def record_shape(view: RecordView) -> Struct:
    """The shape of a viewed record."""
    shape: Struct = view._shape
    return shape


class RecordView(View):
    """A record in the state. Its fields are read and assigned one by one."""

    __slots__ = ("_parts",)

    _shape: Struct
    _parts: dict[str, View | Slot]
    """The fields that were asked for."""

    def __init__(self, shape: Struct, cursor: Cursor, path: tuple[Any, ...]) -> None:
        object.__setattr__(self, "_shape", shape)
        object.__setattr__(self, "_cursor", cursor)
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_parts", {})

    def __getattr__(self, name: str) -> Any:
        part = self._parts.get(name)
        if part is not None:
            return self._cursor.read(part) if type(part) is Slot else part
        shape = self._shape.parts.get(name)
        if shape is None:
            # Methods and properties of the record work on its parts in place.
            if name == "replace":
                return self.__value__().replace
            try:
                attribute = inspect.getattr_static(self._shape.record, name)
            except AttributeError:
                raise AttributeError(f"{self._shape.record.__name__} has no field {name!r}") from None
            bind = getattr(attribute, "__get__", None)
            return attribute if bind is None else bind(self, self._shape.record)
        self._parts[name] = shape.access(self._cursor, (*self._path, name))
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        part = self._parts.get(name)
        if type(part) is Slot:
            self._cursor.write(part, value)
            return
        shape = self._shape.parts.get(name)
        if shape is None:
            raise AttributeError(f"{self._shape.record.__name__} has no field {name!r}")
        shape.set(self._cursor, (*self._path, name), value)


class PerKey(Generic[K, V]):
    """The type of a map over a constant set of keys: ``self.bookie[b].fenced``, ``for b in self.bookie``."""

    if typing.TYPE_CHECKING:

        def __getitem__(self, key: K) -> V: ...
        def __setitem__(self, key: K, value: V) -> None: ...
        def __iter__(self) -> Iterator[K]: ...
        def __len__(self) -> int: ...
        def __contains__(self, key: object) -> bool: ...

    def keys(self) -> Iterable[K]:
        """The keys, in the order of the map."""
        return list(self)

    def values(self) -> Iterable[V]:
        """The values, in the order of their keys."""
        return [self[k] for k in self]

    def items(self) -> Iterable[tuple[K, V]]:
        """The keys with their values."""
        return [(k, self[k]) for k in self]


class PerKeyView(View, PerKey[K, V]):
    """A map over constant keys, in the state."""

    __slots__ = ("_parts",)

    _shape: PerKeyShape

    def __init__(self, shape: PerKeyShape, cursor: Cursor, path: tuple[Any, ...]) -> None:
        super().__init__(shape, cursor, path)
        self._parts: dict[Any, View | Slot] = {}
        """The elements that were asked for, by keys that equal nothing of another type."""

    def _element(self, key: K) -> Shape:
        element = self._shape.element(key)
        if element is None:
            keys = ", ".join(map(show, self._shape.elements))
            raise KeyError(f"{show(key)} is not a key of {'.'.join(map(str, self._path))} ({keys})")
        return element

    def __getitem__(self, key: K) -> V:
        kind = type(key)
        if kind is not ModelValue and kind is not int:
            return cast(V, self._element(key).get(self._cursor, (*self._path, key)))
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = self._element(key).access(self._cursor, (*self._path, key))
        return cast(V, self._cursor.read(part) if type(part) is Slot else part)

    def __setitem__(self, key: K, value: V) -> None:
        self._element(key).set(self._cursor, (*self._path, key), value)

    def __iter__(self) -> Iterator[K]:
        return iter(self._shape.elements)

    def __len__(self) -> int:
        return len(self._shape.elements)

    def __contains__(self, key: object) -> bool:
        return self._shape.element(key) is not None


class Table(PerKey[K, V]):
    """The type of a map whose keys appear on first write. It holds immutable values."""

    if typing.TYPE_CHECKING:

        def __delitem__(self, key: K) -> None: ...
        @overload
        def get(self, key: K) -> V | None: ...
        @overload
        def get(self, key: K, default: V | T) -> V | T: ...
        def get(self, key: K, default: Any = None) -> Any: ...


class TableView(View, Table[K, V]):
    """A table in the state."""

    _shape: TableShape

    def __getitem__(self, key: K) -> V:
        cell = self._cursor.read(self._shape.cell(self._path, freeze(key)))
        try:
            return cast(V, cell[0])
        except IndexError:
            raise KeyError(f"{show(key)} is not in {'.'.join(map(str, self._path))}") from None

    def get(self, key: K, default: Any = None) -> Any:
        cell = self._cursor.read(self._shape.cell(self._path, freeze(key)))
        return cell[0] if cell else default

    def __setitem__(self, key: K, value: V) -> None:
        try:
            key = freeze(key)
        except NotAValue as error:
            raise NotAValue(f"a key of {'.'.join(map(str, self._path))} is {error}") from None
        cell = self._shape.cell(self._path, key)
        if not self._cursor.read(cell):
            slot = self._shape.keys(self._path)
            keys = self._cursor.read(slot)
            refuse_equal(keys, key, slot_name(self._path))
            self._cursor.write(slot, keys | {key})
        self._cursor.write(cell, (value,))

    def __delitem__(self, key: K) -> None:
        key = freeze(key)
        cell = self._shape.cell(self._path, key)
        if not self._cursor.read(cell):
            raise KeyError(f"{show(key)} is not in {'.'.join(map(str, self._path))}")
        keys = self._shape.keys(self._path)
        self._cursor.write(keys, self._cursor.read(keys) - {key})
        self._cursor.write(cell, ())

    def __contains__(self, key: object) -> bool:
        return bool(self._cursor.read(self._shape.cell(self._path, freeze(key))))

    def __iter__(self) -> Iterator[K]:
        return iter(self._cursor.read(self._shape.keys(self._path)))

    def __len__(self) -> int:
        return len(self._cursor.read(self._shape.keys(self._path)))


class ShapeOf:
    """A declaration that builds its own shape when the constants are known."""

    def shape(self, protocol: Any, keys: tuple[Any, ...]) -> Shape:
        """Its shape. ``keys`` are those of the enclosing maps, outermost first."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, eq=False)
class PerKeyOf:
    """A declaration by :func:`per_key`, before the constants are known."""

    keys: Keys
    element: Any


@dataclasses.dataclass(frozen=True, eq=False)
class TableOf:
    """A declaration by :func:`table`."""

    default: Mapping[Any, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class VariableOf:
    """A declaration by :func:`state`: an initial value or a record class, and the lifeline that it belongs to."""

    initial: Any
    held_by: str | None = None


def state(initial: Any, *, held_by: str | None = None) -> Any:
    """A state variable: a value, or a :class:`Record` class (or instance) whose fields become parts of the state.

    ``held_by`` names its lifeline in a sequence diagram: a change by another actor is drawn as an arrow to that
    lifeline.
    """
    return VariableOf(initial, held_by)


def per_key(keys: Keys, element: Any) -> Any:
    """A map over constant ``keys``: ``element`` (a value, a record class, another ``per_key``) for each of them.

    Inside a record, which cannot name the protocol's constants, give a function: ``per_key(lambda p: p.bookies, ...)``.
    """
    return PerKeyOf(keys, element)


def table(initial: Mapping[Any, Any] | None = None) -> Any:
    """A map whose keys may appear later. ``initial`` holds the keys of the initial state."""
    return TableOf(initial or {})


def shape_of(declared: Any, protocol: Any, within: tuple[Any, ...] = ()) -> Shape:
    """The shape of a declaration, with the constants of ``protocol``. ``within``: the keys of the enclosing maps."""
    if isinstance(declared, VariableOf):
        return shape_of(declared.initial, protocol, within)
    if isinstance(declared, ShapeOf):
        return declared.shape(protocol, within)
    if isinstance(declared, PerKeyOf):
        keys = resolve(declared.keys, protocol)
        differ = isinstance(_innermost(declared), ShapeOf)
        if type(keys) is range and keys and not differ:
            return PerKeyShape(EachOf(keys, shape_of(declared.element, protocol)))
        elements: dict[Any, Shape] = {}
        element: Shape | None = None  # one shape serves all keys, since it finds its slots by path
        for key in map(_frozen_key, finite(keys, _KEYS_OF_MAP)):
            refuse_equal(elements, key, "per_key(...)")
            if element is None or differ:
                element = shape_of(declared.element, protocol, (*within, key))
            elements[key] = element
        return PerKeyShape(elements)
    if isinstance(declared, TableOf):
        return TableShape(declared.default)
    if isinstance(declared, type) and issubclass(declared, Record):
        return _struct(declared, {}, protocol)
    if isinstance(declared, Record):
        return _struct(type(declared), {n: getattr(declared, n) for n in declared._fields}, protocol)
    return Leaf(declared)


def _innermost(declared: Any) -> Any:
    while isinstance(declared, PerKeyOf):
        declared = declared.element
    return declared


def _frozen_key(key: Any) -> Value:
    try:
        return freeze(key)
    except NotAValue as error:
        raise NotAValue(f"a key that is {error}") from None


def resolve(declared: Any, protocol: Any) -> Any:
    """A part of a declaration with the constants applied. It was given as a function of the protocol, one of its
    constants, or a plain value.
    """
    if callable(declared):
        return declared(protocol)
    constant = getattr(declared, "__constant_name__", None)
    return getattr(protocol, constant) if constant else declared


def _struct(record: type[Record], overrides: dict[str, Any], protocol: Any) -> Struct:
    parts: dict[str, Shape] = {}
    for field in dataclasses.fields(record):  # type: ignore[arg-type]
        if field.name in overrides:
            initial = overrides[field.name]
        elif field.default is not dataclasses.MISSING:
            initial = field.default
        elif field.default_factory is not dataclasses.MISSING:
            initial = field.default_factory()
        else:
            initial = _nested(record, field.name)
            if initial is None:
                raise FencepostError(
                    f"{record.__name__}.{field.name} has no default: a record in the state needs an initial value for"
                    " it"
                )
        is_value = isinstance(initial, Record) and _nested(record, field.name) is None
        try:
            parts[field.name] = Leaf(initial) if is_value else shape_of(initial, protocol)
        except NotAValue as error:
            raise NotAValue(f"a {record.__name__} whose field {field.name} is {error}") from None
    return Struct(record, parts)


def _nested(record: type[Record], name: str) -> type[Record] | None:
    """The record class that annotates a field. None if the annotation is anything else."""
    try:
        annotation = typing.get_type_hints(record).get(name)
    except NameError:
        return None
    return annotation if isinstance(annotation, type) and issubclass(annotation, Record) else None
