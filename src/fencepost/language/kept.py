"""The attributes of an actor, whose contents need not be values, stored as values.

Lists, deques, arrays and dicts are stored by their contents, in order; sets by their contents; structs, data classes
and plain objects by their fields; functions of a module by their names. A stored value is immutable and compared by
content, so restoring it makes a copy. A mutable object that one attribute holds in several places is restored as one
object. Each attribute is stored separately, so a mutable object that two attributes hold is refused: a change of one
copy would not reach the other.
"""

from __future__ import annotations

import dataclasses
import sys
from array import array
from collections import deque
from collections.abc import Iterable
from functools import cache
from types import FunctionType, MethodType
from typing import Any

from fencepost.language.values import (
    Map,
    ModelValue,
    NotAValue,
    Record,
    Set,
    Value,
    canonical,
    freeze,
    full_name,
    module_of,
    show,
)

_FIXED = "_fixed"
LIST, DEQUE, ARRAY, DICT, SET = ".list", ".deque", ".array", ".dict", ".set"
METHOD, FUNCTION, RANGE, AGAIN = ".method", ".function", ".range", ".again"
"""Kinds that are not classes of the author. The only part of a method, which must be the actor's own, is its name, and
that of a function is its full name. The first part of an array is its type code. The parts of a range are its numbers.
``AGAIN`` refers to a mutable object that the attribute already holds. Its part is that object's number, counted in the
order in which their storing ends.
"""

_CONTAINERS: dict[type, str] = {list: LIST, deque: DEQUE, array: ARRAY, dict: DICT, set: SET}
"""The container classes that are stored by their contents."""


class Kept(Record):
    """An object as a value. ``kind``: the full name of its class. ``names``: the names of its ``parts``, if they have
    any.
    """

    kind: str
    names: tuple[str, ...]
    parts: tuple[Value, ...]

    def __parts__(self) -> dict[str, Value]:
        return dict(zip(self.names, self.parts, strict=True)) if self.names else {"parts": self.parts}

    def __title__(self) -> str:
        return self.kind.rpartition(":")[2].rpartition(".")[2]

    def __shown__(self) -> str:
        """``LeaderSettings(pause=1)``, ``[1, 2]``, ``deque(1, 2)``, ``{b1: 2}``."""
        if self.kind == DICT:
            return "{" + ", ".join(f"{show(key)}: {show(value)}" for key, value in self.parts) + "}"
        if self.names or self.kind not in _BRACKETS:
            return super().__shown__()
        return _BRACKETS[self.kind].format(", ".join(map(show, self.parts)))


_BRACKETS = {
    LIST: "[{}]",
    SET: "{{{}}}",
    DEQUE: "deque({})",
    ARRAY: "array({})",
    METHOD: "{}",
    FUNCTION: "{}",
    RANGE: "range({})",
    AGAIN: "object {} of these again",
}


class Keeper:
    """Converts the attributes of one object to values, and back.

    ``whole``: the object. ``classes``: the classes met so far, by full name. ``read_only``: restored objects refuse
    changes, which would be lost.
    """

    def __init__(self, whole: Any, classes: dict[str, type], read_only: bool = False) -> None:
        self.whole = whole
        self.classes = classes
        self.read_only = read_only
        self._met: dict[int, Any] = {}
        """The mutable objects met so far. They are kept alive so that their ids stay unique."""
        self._numbers: dict[int, int] = {}
        """The numbers of those that this attribute holds, by id."""
        self._made: list[Any] = []
        """The mutable objects restored from this attribute, in order."""

    def keep(self, attribute: Any) -> Value:
        """The content of an attribute as a value. Raises :class:`NotAValue` with the reason if it cannot be one."""
        self._numbers = {}
        return self._keep(attribute)

    def _keep(self, obj: Any) -> Value:
        kind: Any = obj.__class__  # not type(...): a derived class names the author's
        if kind is tuple:
            return tuple([self._keep(part) for part in obj])
        if kind in (frozenset, Set):
            return Set(self._members(frozenset.__iter__(obj)))
        if isinstance(obj, MethodType) and obj.__self__ is self.whole:
            return Kept(METHOD, (), (obj.__name__,))
        if kind is FunctionType:
            return self._function(obj)
        if kind is range:
            return Kept(RANGE, (), (obj.start, obj.stop, obj.step))
        if kind in _CONTAINERS:
            return self._mutable(obj, _CONTAINERS[kind], ())
        names = None if hasattr(kind, "__value__") else _field_names(obj)  # a view of a variable has it
        if names is None:
            return freeze(obj)
        self.classes[full_name(kind)] = kind
        if _is_frozen(kind):
            return Kept(full_name(kind), names, self._fields(obj, names))
        return self._mutable(obj, full_name(kind), names)

    def _mutable(self, obj: Any, kind: str, names: tuple[str, ...]) -> Value:
        if id(obj) in self._numbers:
            return Kept(AGAIN, (), (self._numbers[id(obj)],))
        if id(obj) in self._met:
            raise NotAValue(f"a {type(obj).__name__} that another attribute holds too, or itself: hold it in one")
        self._met[id(obj)] = obj
        kept = Kept(kind, names, self._contents(obj) if kind in _MAKE else self._fields(obj, names))
        self._numbers[id(obj)] = len(self._numbers)
        return kept

    def _fields(self, obj: Any, names: tuple[str, ...]) -> tuple[Value, ...]:
        return tuple([self._keep(getattr(obj, name)) for name in names])

    def _contents(self, obj: Any) -> tuple[Value, ...]:
        if isinstance(obj, dict):
            return tuple([(self._keep(key), self._keep(value)) for key, value in obj.items()])
        if isinstance(obj, deque) and obj.maxlen is not None:
            raise NotAValue("a deque with a maxlen")
        if isinstance(obj, array):
            return (obj.typecode, *obj)
        return tuple(canonical(self._members(obj)) if isinstance(obj, set) else [self._keep(part) for part in obj])

    def _members(self, members: Iterable[Any]) -> list[Value]:
        """The members of a set. They must be immutable: a set has no order that distinguishes mutable objects."""
        before, kept = len(self._numbers), [self._keep(member) for member in members]
        if len(self._numbers) > before:
            raise NotAValue("a set of objects that change: use a list")
        return kept

    def _function(self, function: Any) -> Value:
        name = full_name(function)
        if self._named(name) is not function:
            raise NotAValue(f"the function {function.__qualname__}, which no module has by this name: define it in one")
        return Kept(FUNCTION, (), (name,))

    def restore(self, attribute: Value) -> Any:
        """A copy of the object that was stored as this value."""
        self._made = []
        return self._restore(attribute)

    def _restore(self, value: Value) -> Any:
        if type(value) is tuple:
            return tuple([self._restore(part) for part in value])
        if type(value) is Set:
            return frozenset([self._restore(part) for part in value])
        if not isinstance(value, Kept):
            return value
        if value.kind == METHOD:
            return getattr(self.whole, value.parts[0])
        if value.kind == FUNCTION:
            return self._named(value.parts[0])
        if value.kind == RANGE:
            return range(*value.parts)
        if value.kind == AGAIN:
            return self._made[value.parts[0]]
        made = self._new(value, [self._restore(part) for part in value.parts])
        if value.kind in _MAKE or not _is_frozen(self._class(value.kind)):
            self._made.append(made)
        return made

    def _new(self, value: Kept, parts: list[Any]) -> Any:
        make = _MAKE.get(value.kind)
        if make is not None:
            make = _read_only(make) if self.read_only else make
            return make(parts[0], parts[1:]) if value.kind == ARRAY else make(parts)
        kind: Any = self._class(value.kind)
        made = _made(kind, dict(zip(value.names, parts, strict=True)))
        if self.read_only and hasattr(made, "__dict__") and not _is_frozen(kind):
            object.__setattr__(made, "__class__", _read_only(kind))
        return made

    def is_fixed(self, value: Value) -> bool:
        """Whether the object stored as this value is immutable, and so needs no second conversion."""
        if type(value) in (tuple, Set):
            return all(map(self.is_fixed, value))
        if not isinstance(value, Kept):
            return True
        known: bool | None = value.__dict__.get(_FIXED)
        if known is None:
            known = value.__dict__[_FIXED] = self._is_frozen(value.kind) and all(map(self.is_fixed, value.parts))
        return known

    def _is_frozen(self, kind: str) -> bool:
        return kind in (METHOD, FUNCTION, RANGE) or (kind not in (*_MAKE, AGAIN) and _is_frozen(self._class(kind)))

    def _class(self, name: str) -> type:
        """The class with this full name: one met before or, in another process, one of a loaded module."""
        cls = self.classes.get(name)
        if cls is None:
            cls = self._named(name)
            if not isinstance(cls, type):
                raise NotAValue(f"an object of the class {name}, which is not there")
            self.classes[name] = cls
        return cls

    def _named(self, name: str) -> Any:
        """The object with this full name. None if it does not exist."""
        module, _, path = name.rpartition(":")
        inner: Any = sys.modules.get(module_of(module) or type(self.whole).__module__)
        for part in path.split("."):
            inner = getattr(inner, part, None)
        return inner


_MAKE: dict[str, Any] = {LIST: list, DEQUE: deque, ARRAY: array, DICT: dict, SET: set}

_CHANGING = (
    "__delattr__", "__delitem__", "__iadd__", "__iand__", "__imul__", "__ior__", "__isub__", "__ixor__", "__setattr__",
    "__setitem__", "add", "append", "appendleft", "byteswap", "clear", "difference_update", "discard", "extend",
    "extendleft", "frombytes", "fromfile", "fromlist", "fromunicode", "insert", "intersection_update", "pop",
    "popitem", "popleft", "remove", "reverse", "rotate", "setdefault", "sort", "symmetric_difference_update", "update",
)  # fmt: skip
"""The methods that change a container or an object."""


def derived(kind: Any, body: dict[str, Any]) -> Any:
    """A subclass whose objects report ``kind`` as their class."""
    names = {"__class__": property(lambda self: kind), "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), {**names, **body})


@cache
def _read_only(kind: Any) -> Any:
    """A subclass whose objects refuse changes."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotAValue(f"a {kind.__name__} that was read from an actor and is changed: call a method of the actor")

    names = _CHANGING if kind in _CONTAINERS else ("__setattr__", "__delattr__")
    refusing = {name: refuse for name in names if hasattr(kind, name)}
    return derived(kind, refusing)


def _field_names(obj: Any) -> tuple[str, ...] | None:
    """The names of the fields of a struct, a data class or a plain object; None for anything else."""
    kind: Any = obj.__class__
    if isinstance(obj, (ModelValue, Record, Map)):
        return None
    declared = _declared_fields(kind)
    if declared is not None:
        return declared
    if kind.__init__ is object.__init__ or kind.__new__ is not object.__new__ or callable(obj):
        return None
    slots = [name for base in kind.__mro__ for name in vars(base).get("__slots__", ())]
    return (*(name for name in slots if hasattr(obj, name)), *getattr(obj, "__dict__", ()))


@cache
def _declared_fields(kind: Any) -> tuple[str, ...] | None:
    struct: tuple[str, ...] | None = getattr(kind, "__struct_fields__", None)  # of msgspec
    if struct is None and dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return struct


@cache
def _is_frozen(kind: Any) -> bool:
    config = getattr(kind, "__struct_config__", None) or getattr(kind, "__dataclass_params__", None)
    return bool(getattr(config, "frozen", False))


def _made(kind: type, fields: dict[str, Any]) -> Any:
    if hasattr(kind, "__struct_fields__"):
        return kind(**fields)
    made: Any = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made
