"""Rows keep the number of every slot, wherever growth moves it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import SystemFailure
from fencepost.checker.compiler.layout import Layout, packed, unpacked
from fencepost.checker.compiler.native import move_fields, repack

GROWTH = st.lists(st.lists(st.integers(1, 70_000), min_size=1, max_size=40), min_size=1, max_size=8)
"""The number of values of each slot, at successive times. A smaller number than before changes nothing."""


def grown(before: list[int], after: list[int]) -> list[int]:
    after = after + [1] * (len(before) - len(after))
    return [max(a, b) for a, b in zip(after, before + [1] * (len(after) - len(before)), strict=True)]


def fields(layout: Layout, slots: int) -> list[tuple[int, int]]:
    """The bits of each slot, counted through the row."""
    places = layout.places(slots).tolist()
    return [((p >> 12) * 64 + (p >> 6 & 63), p & 63) for p in places if p]


@given(GROWTH, st.randoms(use_true_random=False))
def test_rows_keep_what_they_hold_while_slots_grow(growth: list[list[int]], random: object) -> None:
    generator = np.random.default_rng(random.randrange(1 << 32))  # type: ignore[attr-defined]
    layout, counts = Layout(), [1]
    ids = np.zeros((5, 1), np.int64)
    rows = packed(ids, layout.places(1), layout.words)
    for step in growth:
        counts = grown(counts, step)
        before = layout.places(len(counts))
        earlier, kept = rows.copy(), layout.words
        moves = layout.fit([range(n) for n in counts])
        wide = np.zeros((len(rows), layout.words), np.uint64)
        wide[:, :kept] = rows
        rows = wide
        move_fields(rows, 0, len(rows), moves)
        places = layout.places(len(counts))
        ids = np.pad(ids, ((0, 0), (0, len(counts) - ids.shape[1])))
        assert unpacked(rows, places).tolist() == ids.tolist()
        again = np.zeros_like(rows)
        repack(earlier, before, places, again)
        assert again.tolist() == rows.tolist(), "what is free must be zero"
        # Every number that a slot can have now fits, beside all the others.
        ids = np.stack([generator.integers(0, n, len(rows)) for n in counts], axis=1)
        rows = packed(ids, places, layout.words)
        assert unpacked(rows, places).tolist() == ids.tolist() == layout.numbers(rows, len(counts))


@given(GROWTH)
def test_no_two_slots_share_a_bit_and_none_straddles_a_word(growth: list[list[int]]) -> None:
    layout, counts = Layout(), [1]
    for step in growth:
        counts = grown(counts, step)
        layout.fit([range(n) for n in counts])
        held = sorted(fields(layout, len(counts)))
        assert all(begin + bits <= after for (begin, bits), (after, _) in zip(held, held[1:], strict=False))
        assert all(begin // 64 == (begin + bits - 1) // 64 for begin, bits in held)
        assert all(begin + bits <= 64 * layout.words for begin, bits in held)


def test_booleans_take_a_bit_and_constants_none() -> None:
    layout = Layout()
    layout.fit([range(2)] * 64 + [range(1)] * 1000)
    assert layout.words == 1
    assert layout.fit([range(2)] * 64 + [range(1)] * 1000).size == 0


def test_a_slot_can_not_have_more_values_than_a_number_has_room_for() -> None:
    with pytest.raises(SystemFailure, match="more than 4 billion values"):
        Layout().fit([range((1 << 32) + 1)])


def test_more_slots_than_there_is_room_for_are_refused() -> None:
    layout = Layout()
    layout.fit([range(2)] * 65_534)
    assert layout.words == 1_024
    with pytest.raises(SystemFailure, match="more than 65,534 parts"):
        layout.fit([range(1)] * 65_535)
