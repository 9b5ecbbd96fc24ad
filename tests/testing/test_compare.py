"""A value of a system is a value of the protocol exactly if it says the same."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import Map, ModelValue, Record
from fencepost.language.values import freeze
from fencepost.testing.compare import matches

C1, C2 = ModelValue("c1"), ModelValue("c2", 1)


class Status(Enum):
    OPEN = 1
    CLOSED = 2


class Other(Enum):
    OPEN = "open"


class Entry(Record):
    id: int
    data: str


@dataclass
class Own:
    id: int
    data: str


def plain(value: Any) -> Any:
    """The value as a system would hold it."""
    if isinstance(value, ModelValue):
        return value.name
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Entry):
        return {"id": value.id, "data": value.data}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, Map):
        return {plain(key): plain(value[key]) for key in value}
    if isinstance(value, frozenset):
        return {plain(each) for each in value}
    return value


scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([C1, C2, Status.OPEN, Status.CLOSED])
flat = scalars | st.builds(Entry, st.integers(0, 1), st.sampled_from(["a", "b"]))
values = st.recursive(
    flat,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers(0, 2) | st.sampled_from([C1, C2]), inner, max_size=3).map(Map)
        | st.frozensets(st.integers(0, 3) | st.sampled_from([C1, C2]), max_size=3)
    ),
    max_leaves=6,
).map(freeze)


@given(values)
def test_a_value_matches_itself_in_plain_python(value: Any) -> None:
    assert matches(value, value)
    assert matches(value, plain(value))


@given(values, values)
def test_other_values_do_not_match(one: Any, other: Any) -> None:
    assert matches(one, plain(other)) is (_typed(plain(one)) == _typed(plain(other)))


def _typed(value: Any) -> Any:
    """Plain Python in which True is not 1, and no dictionary is a record by chance."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return [_typed(each) for each in value]
    if isinstance(value, dict):
        return {key: _typed(each) for key, each in value.items()}
    return value


@pytest.mark.parametrize(
    ("expected", "actual", "is_same"),
    [
        (Entry(1, "a"), Own(1, "a"), True),
        (Entry(1, "a"), Own(1, "b"), False),
        (Entry(1, "a"), SimpleNamespace(id=1, data="a", more=2), True),
        (Entry(1, "a"), {"id": 1}, False),
        (Entry(1, "a"), {"id": 1, "data": "a", "more": 2}, False),
        (Status.OPEN, Other.OPEN, True),
        (Status.CLOSED, Other.OPEN, False),
        ((1, 2), deque([1, 2]), True),
        (("a", "b"), "ab", False),
        ((1, 2), {1, 2}, False),
        (frozenset({1, 2}), [2, 1], True),
        (frozenset({1, 2}), [2, 1, 1], False),
        (frozenset({1, 2}), (2, 1), False),
        (frozenset({C1}), {"c1": 1}.keys(), True),
        (frozenset(), set(), True),
        (Map({C1: 1}), {"c1": 1}, True),
        (Map({C1: 1}), [("c1", 1)], False),
        (Map({C1: 1, C2: 1}), {"c1": 1}, False),
        (C1, C2, False),
        (True, 1, False),
        (0, False, False),
        (None, 0, False),
    ],
)
def test_forms_of_values(expected: Any, actual: Any, is_same: bool) -> None:
    assert matches(freeze(expected), actual) is is_same
