"""Packed lists are the lists that they pack."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.traces import packed
from fencepost.traces.packed import Chosen, Packed, Pickled


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "BLOCK", 3)
        yield


def are_same(found: Sequence[Any], wanted: list[Any]) -> bool:
    places = range(-len(wanted), len(wanted))
    return (
        [*found] == wanted
        and len(found) == len(wanted)
        and [found[place] for place in places] == [wanted[place] for place in places]
        and found[1:-1] == wanted[1:-1]
    )


lists = st.lists(st.integers(), max_size=40)


@given(lists, st.integers(1, 12), st.integers(1, 3))
def test_it_is_the_list(values: list[int], short: int, kept: int) -> None:
    whole = Packed(Pickled, values, kept, short)
    assert are_same(whole, values) and are_same(pickle.loads(pickle.dumps(whole)), values)
    for place in (len(values), -len(values) - 1):
        with pytest.raises(IndexError):
            whole[place]


@given(st.lists(lists, max_size=4), lists, st.integers(1, 12))
def test_several_are_joined_and_grow(parts: list[list[int]], more: list[int], short: int) -> None:
    whole = Packed.joined(Pickled, (Packed(Pickled, part, short=short) for part in parts), kept=1)
    for value in more:
        whole.append(value)
    assert are_same(whole, [*(value for part in parts for value in part), *more])


@given(lists, st.integers(1, 12), lists)
def test_values_are_taken_once(values: list[int], short: int, more: list[int]) -> None:
    whole = Packed(Pickled, values, short=short)
    assert [*whole.taken()] == values and are_same(whole, [])
    for value in more:
        whole.append(value)
    assert are_same(whole, more)


def test_joining_leaves_the_parts_as_they_are() -> None:
    part = Packed(Pickled, range(10), short=4)
    assert [*Packed.joined(Pickled, [part, part]).taken()] == [*range(10)] * 2
    assert are_same(part, [*range(10)])


def test_what_has_no_bytes_stays_as_it_is() -> None:
    values: list[Any] = [lambda: None for _ in range(10)]
    assert are_same(Packed(Pickled, values, short=4), values)


def test_no_more_blocks_than_were_asked_for_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    def load(data: bytes) -> list[Any]:
        loaded.append(data)
        values: list[Any] = pickle.loads(data)
        return values

    monkeypatch.setattr(Pickled, "load", staticmethod(load))
    whole = Packed(Pickled, range(9), kept=2, short=9)
    for place, count in ((0, 1), (1, 1), (3, 2), (0, 2), (6, 3), (2, 3), (3, 4)):
        assert (whole[place], len(loaded)) == (place, count)


@given(lists, st.data())
def test_some_of_another_list(values: list[int], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=10)) if values else []
    assert are_same(Chosen(values, places), [values[place] for place in places])
