"""The sandbox of user expressions: it decides at run time, value by value, what an expression may do.

A user types an expression to inspect a protocol, perhaps into a page of a browser. It must not change the state, and
must not reach anything else. So this is an allow-list: each attribute, each call and each operator that can produce a
large result passes through here, and anything that is not listed is refused. The author's own functions and methods are
listed. Every value that an expression gets is made immutable first.
"""

from __future__ import annotations

import contextlib
import enum
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import BuiltinMethodType, FunctionType, MappingProxyType, MethodType
from typing import Any

from fencepost.errors import FencepostError
from fencepost.language.context import require
from fencepost.language.fields import PerKeyView, RecordView, TableView, View, record_shape
from fencepost.language.network import Network
from fencepost.language.protocol import Protocol
from fencepost.language.values import Map, ModelValue, Record, Set, Value, canonical, freeze, subsets

SOURCE = "<expression>"
"""The file name of the code of expressions. It identifies the functions that an expression defines itself."""

MAX_ELEMENTS = 1_000_000
"""The most elements or characters in the result of one operator."""

MAX_BITS = 14_000
"""The most bits in the number that an operator returns. Python prints at most 4,300 digits."""


class Refused(FencepostError):
    """An expression tried something that expressions may not do."""


# -- operators that can make something large --------------------------------------------------------------------------


def _size(obj: Any) -> int:
    return len(obj) if isinstance(obj, (str, bytes, tuple, list)) else 0


def _bits(obj: Any) -> int:
    return obj.bit_length() if isinstance(obj, int) else 0


def _bounded(elements: int = 0, bits: int = 0) -> None:
    if elements > MAX_ELEMENTS:
        raise Refused(f"too large for an expression: more than {MAX_ELEMENTS:,} elements")
    if bits > MAX_BITS:
        raise Refused(f"too large for an expression: a number of more than {MAX_BITS:,} bits")


def add(one: Any, other: Any) -> Any:
    """``one + other``."""
    _bounded(_size(one) + _size(other))
    return one + other


def multiply(one: Any, other: Any) -> Any:
    """``one * other``."""
    for sequence, times in ((one, other), (other, one)):
        if isinstance(times, int):
            _bounded(_size(sequence) * max(times, 0))
    _bounded(bits=_bits(one) + _bits(other) if isinstance(one, int) and isinstance(other, int) else 0)
    return one * other


def power(base: Any, exponent: Any, modulus: Any = None) -> Any:
    """``base ** exponent``."""
    if isinstance(base, int) and isinstance(exponent, int) and modulus is None and abs(base) > 1:
        _bounded(bits=_bits(base) * exponent)
    return pow(base, exponent, modulus)


def shift(number: Any, places: Any) -> Any:
    """``number << places``."""
    if isinstance(number, int) and isinstance(places, int):
        _bounded(bits=_bits(number) + places)
    return number << places


def remainder(one: Any, other: Any) -> Any:
    """``one % other`` for numbers. With a string it would be formatting."""
    if isinstance(one, (str, bytes)):
        raise Refused("an expression cannot format text")
    return one % other


def _bounded_range(*bounds: int) -> range:
    numbers = range(*bounds)
    if numbers and abs(numbers[-1] - numbers[0]) // abs(numbers.step) >= MAX_ELEMENTS:
        raise Refused(f"too large for an expression: a range of more than {MAX_ELEMENTS:,} numbers")
    return numbers


def _bounded_round(number: Any, digits: Any = None) -> Any:
    _bounded(bits=4 * abs(digits) if isinstance(digits, int) else 0)
    return round(number, digits)


def _bounded_bytes(argument: Any = b"") -> bytes:
    _bounded(argument if isinstance(argument, int) else 0)
    return bytes(argument)


# -- functions --------------------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        abs, all, any, ascii, bin, bool, chr, dict, divmod, enumerate, filter, float, frozenset, hash, hex, int,
        isinstance, issubclass,
        iter, len, list, map, max, min, next, oct, ord, repr, reversed, set, slice, sorted, str, sum, tuple, zip,
        Map, canonical, require, subsets,
    )
} | {"bytes": _bounded_bytes, "pow": power, "range": _bounded_range, "round": _bounded_round}  # fmt: skip
"""The functions that every expression may use. ``require`` is there because an author's functions call it."""

_METHODS: list[tuple[tuple[type, ...], frozenset[str]]] = [
    (classes, frozenset(names.split()))
    for classes, names in (
        ((ModelValue,), "name index"),
        ((TableView,), "get keys values items"),
        ((PerKeyView,), "keys values items"),
        ((Network,), "in_flight lost is_known connected"),
        ((Map,), "get keys values items set without"),
        ((Mapping,), "get keys values items"),
        ((frozenset, set), "union intersection difference symmetric_difference issubset issuperset isdisjoint"),
        ((tuple, list), "count index"),
        (
            (str,),
            (
                "capitalize count endswith find index isalnum isalpha isdecimal isdigit islower isspace isupper lower"
                " lstrip partition removeprefix removesuffix rfind rindex rpartition rsplit rstrip split startswith"
                " strip swapcase title upper"
            ),
        ),
        ((bytes,), "count endswith find hex index startswith"),
        ((int,), "bit_count bit_length"),
        ((float,), "is_integer"),
        ((range,), "start stop step count index"),
    )
]
"""The allowed attributes of each kind of value, besides those of the author's own classes."""


class Scope:
    """The names and objects of a protocol's author that an expression may use."""

    def __init__(self, protocol: type) -> None:
        self._modules = {owner.__module__ for owner in protocol.__mro__ if _is_authors(owner.__module__)}
        files = [getattr(sys.modules.get(name), "__file__", None) for name in self._modules]
        self._folders = tuple(os.path.join(os.path.dirname(os.path.abspath(file)), "") for file in files if file)

    # -- what may be named -------------------------------------------------------------------------------------------

    def handed_out(self, obj: Any) -> Any:
        """The object in a form that an expression may use: a value (mutable kinds become immutable ones), a view of the
        state, a class of values, or a function that it may call.

        Raises :class:`Refused` for anything else.
        """
        if isinstance(obj, (View, Protocol)) or self._callable(obj):
            return obj
        if not isinstance(obj, type):
            with contextlib.suppress(TypeError, RecursionError):  # not a value
                return value_of(obj)
        raise Refused(f"{_kind(obj)} is nothing that an expression can use")

    def _callable(self, obj: Any) -> bool:
        if isinstance(obj, type):
            return issubclass(obj, (Record, enum.Enum)) or obj in _CLASSES
        if isinstance(obj, MethodType):
            return self._wrote(obj.__func__) or isinstance(obj.__self__, (View, Map, Set, Record))
        if isinstance(obj, BuiltinMethodType):
            return obj in _BUILTINS or isinstance(obj.__self__, _PLAIN)
        if isinstance(obj, FunctionType):
            return obj in _OURS or self._wrote(obj)
        # A functools.cache or a similar wrapper.
        return isinstance(getattr(obj, "__wrapped__", None), FunctionType) and self._wrote(obj.__wrapped__)

    def _wrote(self, function: Any) -> bool:
        """Whether a function is the author's (from a module of the protocol, or a file beside or below it) or the
        expression's own.
        """
        if not isinstance(function, FunctionType):
            return False
        file = function.__code__.co_filename
        if file == SOURCE or function.__module__ in self._modules:
            return True
        below = next((file[len(folder) :] for folder in self._folders if file.startswith(folder)), None)
        return below is not None and not {"site-packages", "dist-packages"} & set(below.split(os.sep))

    # -- what may be asked of it --------------------------------------------------------------------------------------

    def attribute(self, obj: Any, name: str) -> Any:
        """``obj.name``. Raises :class:`Refused` unless an expression may read it."""
        owner = obj if isinstance(obj, type) else record_shape(obj).record if isinstance(obj, RecordView) else type(obj)
        if _is_listed(obj, name):
            return getattr(obj, name)
        if issubclass(owner, (Protocol, Record, enum.Enum)) and _is_of_an_author(owner, name):
            return self.handed_out(getattr(obj, name))
        if not hasattr(owner, name):
            raise AttributeError(f"{_kind(obj)} has no {name}")
        raise Refused(f"an expression cannot use {name} of {_kind(obj)}")

    def call(self, function: Any, /, *arguments: Any, **named: Any) -> Any:
        """``function(...)``. Raises :class:`Refused` unless an expression may call it, with these arguments."""
        if not self._callable(function):
            raise Refused(f"an expression cannot call {_kind(function)}")
        for argument in (*arguments, *named.values()):
            if (
                callable(argument)
                and not isinstance(argument, (View, Protocol, Record))
                and not self._callable(argument)
            ):
                raise Refused(f"an expression cannot pass {_kind(argument)}")
        return function(*arguments, **named)


OPERATORS: dict[str, Callable[..., Any]] = {
    " Add": add,
    " Mult": multiply,
    " Pow": power,
    " LShift": shift,
    " Mod": remainder,
}
"""The functions that replace operators in the code of an expression. Users cannot type their names."""


def bound(scope: Scope) -> dict[str, Callable[..., Any]]:
    """The functions that replace attributes, calls and operators in the code of an expression."""
    return {" attribute": scope.attribute, " call": scope.call, **OPERATORS}


def value_of(obj: Any) -> Value:
    """The object as a value. Lists, sets, dicts and ranges, which a state cannot hold, become immutable values.

    Raises :class:`NotAValue` for any other object.
    """
    if isinstance(obj, list) or type(obj) in (tuple, range):
        return tuple(value_of(element) for element in obj)
    if isinstance(obj, (set, frozenset)):
        return Set(value_of(element) for element in frozenset.__iter__(frozenset(obj)))
    if isinstance(obj, Mapping) and not isinstance(obj, Map):
        return Map({value_of(key): value_of(element) for key, element in obj.items()})
    return freeze(obj)


_CLASSES = frozenset(f for f in FUNCTIONS.values() if isinstance(f, type))
_OURS = frozenset(f for f in FUNCTIONS.values() if isinstance(f, FunctionType))
_BUILTINS = frozenset(f for f in FUNCTIONS.values() if isinstance(f, BuiltinMethodType))
_PLAIN = (str, bytes, int, float, tuple, list, frozenset, set, dict, range, MappingProxyType)


def _is_listed(obj: Any, name: str) -> bool:
    if isinstance(obj, Protocol):
        return name in obj.shapes or name in obj.constants or name in ("constants", "name")
    if isinstance(obj, RecordView):
        return name in record_shape(obj).parts or name == "replace"
    if isinstance(obj, type):
        return False
    if isinstance(obj, Record) and (name in obj._fields or name == "replace"):
        return True
    if isinstance(obj, enum.Enum) and name == "name":
        return True
    return any(isinstance(obj, classes) and name in names for classes, names in _METHODS)


def _is_of_an_author(owner: type, name: str) -> bool:
    """Whether a class or a base class of it defines a name, and an author wrote that class."""
    if issubclass(owner, enum.Enum) and name == "value":
        return True
    return any(name in vars(cls) for cls in owner.__mro__ if _is_authors(cls.__module__))


@cache
def _is_authors(module: str) -> bool:
    """Whether a module is neither Fencepost's nor Python's."""
    if module.partition(".")[0] == "fencepost":
        return module.startswith("fencepost.protocols")
    if module in sys.builtin_module_names:
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not file.startswith(_PYTHON) or not {"site-packages", "dist-packages"}.isdisjoint(file.split(os.sep))


_PYTHON = os.path.join(os.path.dirname(os.__file__), "")


def _kind(obj: Any) -> str:
    if isinstance(obj, type):
        return f"the class {obj.__name__}"
    if isinstance(obj, (Protocol, MappingProxyType)):
        return "the protocol" if isinstance(obj, Protocol) else "a mapping"
    name = getattr(obj, "__name__", None)
    return f"the function {name}" if isinstance(name, str) and callable(obj) else f"a {type(obj).__name__}"
