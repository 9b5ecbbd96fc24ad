"""Rows of bits: where each slot of a state stands in its row of 64-bit words.

A slot takes as many bits as tell its values apart, a power of two of them, so that none straddles two words. One that
has only had a single value takes none. Most slots of a replication protocol hold a boolean or have a handful of values,
so a row is a fifth of what it would be with a byte for each: five times as many states of a level fit into memory, and
into a cache line.

Where a slot stands is its **place**, see `encoding`.
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
    """The places of slots, which only change to make room: a slot with more values moves to where there are more bits.

    ``place``: of each slot, kept in one array for good, so that compiled loops that hold it see every change.
    ``words``: of a row. ``version``: how often anything has changed.
    """

    def __init__(self) -> None:
        self.place = reserve(MAX_SLOTS + 2, np.int32)
        self.words = 1
        self.version = 0
        self._free: dict[int, list[tuple[int, int]]] = {size: [] for size in (*SIZES, WORD_BITS)}
        self._free[WORD_BITS].append((0, 0))
        self._held: list[int] = []  # values that each slot has room for
        # The word, the shift and the mask of each slot, for so many of them in this version.
        self._parts: tuple[tuple[int, int], tuple[Array, Array, Array]] = (-1, -1), (self.place,) * 3

    def fit(self, values: Sequence[Sequence[Any]]) -> Array:
        """Make room for these values of each slot: the moves that rows must make, in order, as pairs of the place
        before and the one after.

        Raises :class:`fencepost.SystemFailure` if there are more than 65,534 slots, or more than 4 billion values of
        one.
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
        """Give a slot a place with room for so many values."""
        bits = next((size for size in SIZES if values <= 1 << size), None)
        if bits is None:
            raise SystemFailure("a part of the state has more than 4 billion values; {profile} shows which", "profile")
        word, shift = self._take(bits)
        self.place[slot] = pack_place(word, shift, bits)
        self._held[slot] = 1 << bits
        self.version += 1

    def _take(self, bits: int) -> tuple[int, int]:
        """Free bits, from the smallest piece that has enough."""
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

    def numbers(self, row: Array, slots: int) -> list[int]:
        """The numbers of one row: of the first slots, as they are laid out now."""
        if self._parts[0] != (self.version, slots):
            places = self.places(slots)
            masks = (np.uint64(1) << place_bits(places).astype(np.uint64)) - np.uint64(1)
            self._parts = (self.version, slots), (place_word(places), place_shift(places).astype(np.uint64), masks)
        words, shifts, masks = self._parts[1]
        found: list[int] = (row[words] >> shifts & masks).tolist()
        return found

    def places(self, slots: int) -> Array:
        """The places of the first slots as they are now."""
        return self.place[:slots].copy()


def packed(ids: Array, places: Array, words: int) -> Array:
    """Rows of numbers (one row a state, one column a slot) as rows of words."""
    rows = np.zeros((len(ids), words), np.uint64)
    for slot in np.flatnonzero(places[: ids.shape[1]]).tolist():
        word, shift, _ = _parts(places[slot])
        rows[:, word] |= ids[:, slot].astype(np.uint64) << shift
    return rows


def unpacked(rows: Array, places: Array) -> Array:
    """The numbers that :func:`packed` has packed: in the smallest type that has room for every slot, column after
    column in memory.
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
