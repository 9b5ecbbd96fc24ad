"""Values of every kind that a column can have."""

from __future__ import annotations

from enum import Enum
from typing import Any

from hypothesis import strategies as st

from fencepost import Map, Record
from fencepost.language.values import ModelValue


class Light(Enum):
    RED = 1
    GREEN = 2


class Entry(Record):
    id: int
    data: Any


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5,
    5) | st.sampled_from([0.5, 1 << 70, "a", "1", Light.RED, ModelValue("b1")]),
    lambda of: st.one_of(
        st.lists(of, max_size=3).map(tuple), st.lists(of, max_size=3).map(frozenset), st.builds(Entry, of, of),
        st.dictionaries(st.sampled_from(["a", "b", 1, None, ("c", ), Entry(1, None), Entry(1, "x")]), of,
        max_size=3).map(Map),
    ),
    max_leaves=6,
)  # fmt: skip
