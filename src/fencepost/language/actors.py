"""Actors: variables that hold an object of the author's own, such as the very role that a system runs.

Every attribute of the object is a part of the state of its own (see :mod:`fencepost.language.kept`). An action that
calls a method of it gets an object with the attributes that the method asks for, and what the method changes is written
back. So the method's Python runs once for each combination of what it reads, and not once for each state.
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
    """A state variable that holds an object; within :func:`per_key`, one for each key.

    ``make(protocol)``, or ``make(protocol, key)``, makes the object of the initial state. Its attributes are parts of
    the state: ``self.writer.epoch`` reads one, ``self.writer.receive(event)`` calls a method, and what that changes is
    changed in the state. Assigning another object of the same class replaces it, as a restart does.

    All attributes are there from the start. They hold values, lists, deques, arrays, dicts, sets, ranges, functions of
    a module, and structs, data classes or plain objects of these. What the object does must follow from its attributes
    and from what it is given.
    """
    return ActorOf(make)  # type: ignore[return-value]


class ActorOf(ShapeOf):
    """A declaration by :func:`actor`, until the constants are known."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def shape(self, protocol: Any, keys: tuple[Any, ...]) -> Struct:
        return ActorShape(self.make(protocol, *keys))


class ActorShape(Struct):
    """An object whose attributes are parts of the state of their own."""

    def __init__(self, initial: Any) -> None:
        self.kind = type(initial)
        self.classes: dict[str, type] = {}
        if not hasattr(initial, "__dict__"):
            raise NotAProtocol(f"actor(...) made a {self.kind.__name__}, which has no attributes")
        super().__init__(self.kind, {name: Leaf(value) for name, value in self._kept(initial).items()})

    def _kept(self, thing: Any) -> dict[str, Value]:
        """What the attributes of an object hold, those that it has got and that may have changed, as values."""
        keeper, found = Keeper(thing, self.classes), dict[str, Value]()
        loaded = getattr(thing, _LOADED, {})
        for name, held in vars(thing).items():
            try:
                if name not in loaded or loaded[name] is not held:
                    found[name] = keeper.keep(held)
            except NotAValue as error:
                raise NotAValue(f"a {self.kind.__name__} whose attribute {name} is {error}") from None
        return found

    def get(self, cursor: Cursor, path: tuple[Any, ...]) -> ActorView:
        return ActorView(self, cursor, path)

    def set(self, cursor: Cursor, path: tuple[Any, ...], value: Any) -> None:
        if isinstance(value, ActorView):
            value = value.live()
            for name in self.parts:
                getattr(value, name)
        if value.__class__ is not self.kind:  # what a subclass does otherwise would be lost
            raise NotAValue(f"a {value.__class__.__name__} where a {self.kind.__name__} belongs")
        missing = [name for name in self.parts if name not in vars(value)]
        if missing:
            raise NotAValue(f"a {self.kind.__name__} without the attribute {missing[0]}")
        self.write(cursor, path, value)

    def write(self, cursor: Cursor, path: tuple[Any, ...], thing: Any) -> None:
        """Write what the attributes of an object hold that has changed."""
        for name, value in self._kept(thing).items():
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
        found = getattr(live, name)
        if not isinstance(found, MethodType) or found.__self__ is not live:
            return found

        def method(*given: Any, **named: Any) -> Any:
            result = found(*given, **named)
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
        """An object that reads an attribute of the state when it is asked for it first."""
        shape, cursor, path = self._shape, self._cursor, self._path
        kind: Any = shape.kind
        live: Any = object.__new__(_lazy(kind))
        keeper = Keeper(live, shape.classes)
        fixed: dict[str, Any] = {}

        def load(name: str) -> Any:
            value = shape.parts[name].get(cursor, (*path, name))
            thing = keeper.restore(value)
            if keeper.is_fixed(value):
                fixed[name] = thing
            return thing

        object.__setattr__(live, _LOAD, load)
        object.__setattr__(live, _LOADED, fixed)
        return live


_LOAD, _LOADED = "_fencepost_load", "_fencepost_loaded"
"""How an object reads an attribute of the state, and those that it has read and that cannot change by themselves."""


@cache
def _lazy(kind: Any) -> Any:
    """A class whose objects are of an author's class, and read their attributes when they are asked for them."""

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
