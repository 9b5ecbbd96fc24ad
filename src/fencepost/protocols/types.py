"""The parts of a type invariant: every part of a state by its path, and tests for the values there.

A type invariant over a whole state would have to be evaluated anew in every state. Asked part by part
(``@invariant(part=...)``), it is evaluated once for each value that a part ever holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fencepost.spec.declarations import invariant
from fencepost.spec.fields import PerKeyShape

Path = tuple[Any, ...]
"""The way to a part of the state: attributes and keys, as in ``("bookie", b1, "fenced")``."""

Test = Callable[[Any, Any], bool]
"""Whether a state (the first argument) may hold a value (the second)."""


def typed(types: Callable[[], Mapping[str, Test]], *whole: str) -> Any:
    """The invariant that every part of the state holds a value of its type. ``types`` gives the test of each part by
    its name, such as ``bookie.fenced``; those that are ``whole`` are maps that are not looked at key by key.
    """

    @invariant(part=lambda protocol: parts(protocol, types(), whole))
    def type_ok(self: Any, part: Path) -> bool:
        """Every part of the state holds a value of its type."""
        return is_typed(self, part, types())

    return type_ok


def parts(protocol: Any, names: Iterable[str], whole: Collection[str] = ()) -> Iterator[Path]:
    """The paths of all parts that ``names`` stand for, with every key of each map on the way that is not ``whole``."""
    for name in names:
        first, *rest = name.split(".")
        yield from [(first,)] if name in whole else _parts((first,), protocol.shapes[first], rest)


def _parts(path: Path, shape: Any, rest: Sequence[str]) -> Iterator[Path]:
    if isinstance(shape, PerKeyShape):
        for key, element in shape.elements.items():
            yield from _parts((*path, key), element, rest)
    elif rest:
        yield from _parts((*path, rest[0]), shape.parts[rest[0]], rest[1:])
    else:
        yield path


def is_typed(state: Any, part: Path, types: Mapping[str, Test]) -> bool:
    """Whether the part of ``state`` at ``part`` passes the test that ``types`` has for its name."""
    value = state
    for key in part:
        value = getattr(value, key) if isinstance(key, str) else value[key]
    return types[".".join(key for key in part if isinstance(key, str))](state, value)


def at_least(least: int) -> Test:
    """A whole number, not below ``least``."""
    return lambda state, value: type(value) is int and value >= least


def one_of_kind(kind: type) -> Test:
    """An instance of ``kind``: a boolean, a member of an enum."""
    return lambda state, value: isinstance(value, kind)


def or_none(test: Test) -> Test:
    """None, or what ``test`` asks for."""
    return lambda state, value: value is None or test(state, value)


def each(test: Test) -> Test:
    """A collection of what ``test`` asks for."""
    return lambda state, value: all(test(state, element) for element in value)
