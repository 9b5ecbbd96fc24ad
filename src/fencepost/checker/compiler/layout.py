"""The layout of states as rows of 64-bit words: where the bits of each slot are.

A slot takes as many bits as its values need, rounded up to a power of two, so that none straddles two words. A slot
that has had a single value takes none. Most slots of a replication protocol hold a boolean or one of a few values. So a
row is a fifth of its size with a byte for each slot, and five times as many states fit into memory and a cache line.

The bit field of a slot is its **place**, see `encoding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.encoding import (
    MAX_SLOTS,
    SIZES,
    WORD_BITS,
    pack_place,
    place_bits,
    place_shift,
    place_word,
)
from fencepost.checker.compiler.memory import reserve
from fencepost.errors import SystemFailure


class Layout:
    """The places of slots. They change only to make room: a slot with more values moves to a larger field.

    ``place``: of each slot. It stays the same array, so compiled loops that hold it see every change. ``words``: the
    length of a row. ``version``: the number of changes so far.
    """

    def __init__(self) -> None:
        self.place = reserve(MAX_SLOTS + 2, np.int32)
        self.words = 1
        self.version = 0
        self._free: dict[int, list[tuple[int, int]]] = {size: [] for size in (*SIZES, WORD_BITS)}
        self._free[WORD_BITS].append((0, 0))
        self._held: list[int] = []  # the number of values that each slot has room for
        # The word, shift and mask of each slot, cached for one version and number of slots.
        self._parts: tuple[tuple[int, int], tuple[Array, Array, Array]] = (-1, -1), (self.place,) * 3

    def fit(self, values: Sequence[Sequence[Any]]) -> Array:
        """Make room for these values of each slot. Returns the moves that rows must make, in order: int32 pairs of the
        place before and the place after.

        Raises :class:`fencepost.SystemFailure` for more than 65,534 slots, or more than 4 billion values of one.
        """
        if len(values) > MAX_SLOTS:
            raise SystemFailure(
                f"the state has more than {MAX_SLOTS:,} parts, which is all that the compiled engine has room for:"
                " choose smaller constants, or {engine} reference",
                "engine",
            )
        moves: list[tuple[int, int]] = []
        self._held += [1] * (len(values) - len(self._held))
        for slot, (known, held) in enumerate(zip(values, self._held, strict=True)):
            if len(known) > held:
                before = int(self.place[slot])
                self._give(slot, len(known))
                if before:
                    moves.append((before, int(self.place[slot])))
                    self._free[place_bits(before)].append((place_word(before), place_shift(before)))
        return np.array(moves, np.int32).reshape(-1, 2)

    def _give(self, slot: int, values: int) -> None:
        """Give a slot a place with room for this number of values."""
        bits = next((size for size in SIZES if values <= 1 << size), None)
        if bits is None:
            raise SystemFailure("a part of the state has more than 4 billion values; {profile} shows which", "profile")
        word, shift = self._take(bits)
        self.place[slot] = pack_place(word, shift, bits)
        self._held[slot] = 1 << bits
        self.version += 1

    def _take(self, bits: int) -> tuple[int, int]:
        """Take free bits from the smallest free piece that is large enough."""
        size = next((size for size in (*SIZES, WORD_BITS) if size >= bits and self._free[size]), None)
        if size is None:
            self._free[WORD_BITS].append((self.words, 0))
            self.words += 1
            size = WORD_BITS
        word, shift = self._free[size].pop(0)
        while size > bits:
            size //= 2
            self._free[size].append((word, shift + size))
        return word, shift

    def numbers(self, rows: Array, slots: int) -> list[list[int]]:
        """The value numbers of rows, for the first ``slots`` slots of the current layout."""
        if self._parts[0] != (self.version, slots):
            places = self.places(slots)
            masks = (np.uint64(1) << place_bits(places).astype(np.uint64)) - np.uint64(1)
            self._parts = (self.version, slots), (place_word(places), place_shift(places).astype(np.uint64), masks)
        words, shifts, masks = self._parts[1]
        found: list[list[int]] = (rows[:, words] >> shifts & masks).tolist()
        return found

    def places(self, slots: int) -> Array:
        """The current places of the first slots."""
        return self.place[:slots].copy()


def packed(ids: Array, places: Array, words: int) -> Array:
    """Pack rows of value numbers (one row a state, one column a slot) into rows of words."""
    rows = np.zeros((len(ids), words), np.uint64)
    for slot in np.flatnonzero(places[: ids.shape[1]]).tolist():
        word, shift, _ = _parts(places[slot])
        rows[:, word] |= ids[:, slot].astype(np.uint64) << shift
    return rows


def unpacked(rows: Array, places: Array) -> Array:
    """The value numbers that :func:`packed` has packed, in column-major order and the smallest type that holds every
    slot.
    """
    widest = int(place_bits(places).max(initial=0))
    kind = np.uint8 if widest <= 8 else np.uint16 if widest <= 16 else np.uint32
    columns = np.zeros((len(places), len(rows)), kind)
    for slot in np.flatnonzero(places).tolist():
        word, shift, mask = _parts(places[slot])
        columns[slot] = rows[:, word] >> shift & mask
    return columns.T


def _parts(place: int) -> tuple[int, np.uint64, np.uint64]:
    place = int(place)
    return place_word(place), np.uint64(place_shift(place)), np.uint64((1 << place_bits(place)) - 1)
