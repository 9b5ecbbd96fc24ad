"""Type invariants, checked part by part: the path of every part of a state, and tests for the values there.

A part is tested by its name if there is a test for that name, else by the declared type of its field. A type may have a
test too. An integer without a test is a count, so at least 0.

A type invariant over a whole state would be evaluated in every state. Checked part by part (``@invariant(part=...)``),
it is evaluated once for each value that a part ever holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from fencepost.language.declarations import invariant
from fencepost.language.fields import PerKey, PerKeyShape, Struct, record_shape

Path = tuple[Any, ...]
"""The path to a part of the state: attributes and keys, as in ``("bookie", b1, "fenced")``."""

Test = Callable[[Any, Any], bool]
"""Whether a state (the first argument) may hold a value (the second)."""


Types = Mapping[Any, Test]
"""Tests by the names of parts, such as ``bookie.entries``, and by types."""


def typed(types: Callable[[], Types], *others: str, whole: Collection[str] = ()) -> Any:
    """Return the invariant that every part of some variables holds a value of its type. The variables are those that
    ``types`` names, and ``others``. Maps in ``whole`` are tested as one value, not key by key.
    """

    @invariant(part=lambda protocol: parts(protocol, [*filter(_is_name, types()), *others], whole))
    def type_ok(self: Any, part: Path) -> bool:
        """Every part of the state holds a value of its type."""
        return _is_typed(self, part, types)

    return type_ok


def _is_name(key: Any) -> bool:
    return isinstance(key, str)


def parts(protocol: Any, names: Iterable[str], whole: Collection[str] = ()) -> Iterator[Path]:
    """Yield the paths of all parts of the variables of ``names``, with every key of each map that is not ``whole``."""
    for first in dict.fromkeys(name.partition(".")[0] for name in names):
        yield from [(first,)] if first in whole else _parts((first,), protocol.shapes[first])


def _parts(path: Path, shape: Any) -> Iterator[Path]:
    below = shape.elements if isinstance(shape, PerKeyShape) else shape.parts if isinstance(shape, Struct) else None
    if below is None:
        yield path
        return
    for key, part in below.items():
        yield from _parts((*path, key), part)


def _is_typed(state: Any, part: Path, types: Callable[[], Types]) -> bool:
    """Whether the part of ``state`` at ``part`` passes the test for its name, or else for the type of its field."""
    owner = value = state
    for key in part:
        if isinstance(key, str):
            owner, value = value, getattr(value, key)
        else:
            value = value[key]
    test = _test_by_name(part, types)
    if test is None:
        record: Any = record_shape(owner).record
        test = _test_by_type(record, part, types)
    return test(state, value)


@cache
def _test_by_name(part: Path, types: Callable[[], Types]) -> Test | None:
    return types().get(".".join(filter(_is_name, part)))


@cache
def _test_by_type(record: Any, part: Path, types: Callable[[], Types]) -> Test:
    """The test for a part that is a field of ``record``, or lies in such a field."""
    *_, field = filter(_is_name, part)
    return _of_type(get_type_hints(record)[field], types())


def _of_type(kind: Any, types: Types) -> Test:
    """The test for values of a type."""
    of, whole = get_args(kind), get_origin(kind)
    if kind in types:
        return types[kind]
    if whole is PerKey:
        return _of_type(of[1], types)
    if whole is UnionType and of[1:] == (type(None),):
        return or_none(_of_type(of[0], types))
    if whole in (tuple, frozenset):
        return each(_of_type(of[0], types))
    return at_least(0) if kind is int else one_of_kind(kind)


def at_least(least: int) -> Test:
    """An integer of at least ``least``."""
    return lambda state, value: type(value) is int and value >= least


def one_of_kind(kind: type) -> Test:
    """An instance of ``kind``: a boolean, a member of an enum."""
    return lambda state, value: isinstance(value, kind)


def or_none(test: Test) -> Test:
    """None, or a value that passes ``test``."""
    return lambda state, value: value is None or test(state, value)


def each(test: Test) -> Test:
    """A collection of values that pass ``test``."""
    return lambda state, value: all(test(state, element) for element in value)
