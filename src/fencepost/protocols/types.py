"""The parts of a type invariant: every part of a state by its path, and tests for the values there.

A type invariant over a whole state would have to be evaluated anew in every state. Asked part by part
(``@invariant(part=...)``), it is evaluated once for each value that a part ever holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, product
from typing import Any

Path = tuple[Any, ...]
"""The way to a part of the state: attributes and keys, as in ``("bookie", b1, "fenced")``."""

Test = Callable[[Any, Any], bool]
"""Whether a state (the first argument) may hold a value (the second)."""


def parts(names: Iterable[str], keys: Mapping[str, Iterable[Any]]) -> Iterator[Path]:
    """The paths of all parts that ``names`` such as ``bookie.fenced`` stand for; ``keys`` gives the keys of each map by
    its name.
    """
    for name in names:
        steps = [[(part, key) for key in keys[part]] if part in keys else [(part,)] for part in name.split(".")]
        for path in product(*steps):
            yield tuple(chain(*path))


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
