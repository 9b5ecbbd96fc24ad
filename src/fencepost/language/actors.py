"""Actors: state variables that hold an object of the author's own class, such as the role that a real system runs.

Each attribute of the object is its own part of the state (see :mod:`fencepost.language.kept`). When an action calls a
method, the method runs on an object that loads attributes on demand, and its changes are written back. So the method's
Python runs once for each combination of the attributes that it reads, not once for each state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from types import MethodType
from typing import Any, TypeVar

from fencepost.errors import NotAProtocol
from fencepost.language.context import Cursor, Slot
from fencepost.language.fields import Leaf, RecordView, ShapeOf, Struct
from fencepost.language.kept import METHOD, Keeper, Kept, derived
from fencepost.language.values import NotAValue, Value, encode, full_name

T = TypeVar("T")


def actor(make: Callable[..., T]) -> T:
    """A state variable that holds an object. Within :func:`per_key`, there is one object for each key.

    ``make(protocol)``, or ``make(protocol, key)``, makes the object of the initial state. Its attributes are parts of
    the state: ``self.writer.epoch`` reads one, and ``self.writer.receive(event)`` calls a method, whose changes become
    changes of the state. Assigning another object of the same class replaces it, as a restart does.

    ``__init__`` must set every attribute. Attributes hold values, lists, deques, arrays, dicts, sets, ranges, functions
    of a module, and structs, data classes or plain objects of these. The object's behaviour must depend only on its
    attributes and on the arguments of its methods.
    """
    return ActorOf(make)  # type: ignore[return-value]


class ActorOf(ShapeOf):
    """A declaration by :func:`actor`, before the constants are known."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def shape(self, protocol: Any, keys: tuple[Any, ...]) -> Struct:
        return ActorShape(self.make(protocol, *keys))


class ActorShape(Struct):
    """The layout of an object: each attribute is its own part of the state."""

    def __init__(self, initial: Any) -> None:
        self.kind = type(initial)
        self.classes: dict[str, type] = {}
        if not hasattr(initial, "__dict__"):
            raise NotAProtocol(f"actor(...) made a {self.kind.__name__}, which has no attributes")
        super().__init__(self.kind, {name: Leaf(value) for name, value in self._kept(initial).items()})

    def _kept(self, obj: Any) -> dict[str, Value]:
        """The attributes of an object as values: those that it has loaded and that may have changed."""
        keeper, values = Keeper(obj, self.classes), dict[str, Value]()
        loaded = getattr(obj, _LOADED, {})
        for name, held in vars(obj).items():
            try:
                if name not in loaded or loaded[name] is not held:
                    values[name] = keeper.keep(held)
            except NotAValue as error:
                raise NotAValue(f"a {self.kind.__name__} whose attribute {name} is {error}") from None
        return values

    def get(self, cursor: Cursor, path: tuple[Any, ...]) -> ActorView:
        return ActorView(self, cursor, path)

    def set(self, cursor: Cursor, path: tuple[Any, ...], value: Any) -> None:
        if isinstance(value, ActorView):
            value = value.live()
            for name in self.parts:
                getattr(value, name)
        if value.__class__ is not self.kind:  # a subclass's overrides would be lost
            raise NotAValue(f"a {value.__class__.__name__} where a {self.kind.__name__} belongs")
        missing = [name for name in self.parts if name not in vars(value)]
        if missing:
            raise NotAValue(f"a {self.kind.__name__} without the attribute {missing[0]}")
        self.write(cursor, path, value)

    def write(self, cursor: Cursor, path: tuple[Any, ...], obj: Any) -> None:
        """Write the attributes that have changed."""
        for name, value in self._kept(obj).items():
            part = self.parts.get(name)
            if part is None:
                raise NotAValue(
                    f"a {self.kind.__name__} whose attribute {name} was not there from the start: assign it in __init__"
                )
            if encode(value) != encode(part.get(cursor, (*path, name))):
                part.set(cursor, (*path, name), value)

    def value(self, read: Callable[[Slot], Value], path: tuple[Any, ...]) -> Value:
        parts = tuple(part.value(read, (*path, name)) for name, part in self.parts.items())
        return Kept(full_name(self.kind), tuple(self.parts), parts)


class ActorView(RecordView):
    """An object that lives in the state."""

    __slots__ = ()

    _shape: ActorShape

    def __getattr__(self, name: str) -> Any:
        shape, cursor, path = self._shape, self._cursor, self._path
        live = self.live()
        if name in shape.parts:
            value = shape.parts[name].get(cursor, (*path, name))
            if not isinstance(value, Kept) or value.kind != METHOD:
                return Keeper(live, shape.classes, read_only=True).restore(value)
        elif inspect.getattr_static(shape.kind, name, None) is None:
            raise AttributeError(f"{shape.kind.__name__} has no attribute {name!r}")
        attribute = getattr(live, name)
        if not isinstance(attribute, MethodType) or attribute.__self__ is not live:
            return attribute

        def method(*args: Any, **kwargs: Any) -> Any:
            result = attribute(*args, **kwargs)
            shape.write(cursor, path, live)
            return result

        return method

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._shape.parts:
            raise AttributeError(f"{self._shape.kind.__name__} has no attribute {name!r} from the start")
        live = self.live()
        setattr(live, name, value)
        self._shape.write(self._cursor, self._path, live)

    def live(self) -> Any:
        """An object that reads each attribute from the state on first access."""
        shape, cursor, path = self._shape, self._cursor, self._path
        kind: Any = shape.kind
        live: Any = object.__new__(_lazy(kind))
        keeper = Keeper(live, shape.classes)
        fixed: dict[str, Any] = {}

        def load(name: str) -> Any:
            value = shape.parts[name].get(cursor, (*path, name))
            attribute = keeper.restore(value)
            if keeper.is_fixed(value):
                fixed[name] = attribute
            return attribute

        object.__setattr__(live, _LOAD, load)
        object.__setattr__(live, _LOADED, fixed)
        return live


_LOAD, _LOADED = "_fencepost_load", "_fencepost_loaded"
"""Names of two slots of the live object: its loader, and the attributes that it has loaded whose values are immutable.
"""


@cache
def _lazy(kind: Any) -> Any:
    """A subclass of the author's class whose objects load their attributes on first access."""

    def get(self: Any, name: str) -> Any:
        try:
            value = object.__getattribute__(self, _LOAD)(name)
        except KeyError:
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}") from None
        self.__dict__[name] = value
        return value

    def delete(self: Any, name: str) -> None:
        raise NotAValue(f"a {kind.__name__} whose attribute {name} is deleted: assign None to it")

    return derived(kind, {"__slots__": (_LOAD, _LOADED), "__getattr__": get, "__delattr__": delete})
