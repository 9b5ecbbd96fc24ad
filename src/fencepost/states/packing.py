"""The loops that put numbers into few bits, as Parquet packs them: the lowest bit first."""

from __future__ import annotations

import numpy as np

from fencepost.compiler.native import njit

DELTAS = 128
"""Differences that are told together, in four groups."""
GROUP = DELTAS // 4


@njit
def pack(ids, begins, numbers, width, packed):
    """Write ``numbers[begins[i]:begins[i + 1]]`` for each ``i`` of ``ids``, of ``width`` bits each, 32 at the most, to ``packed``, which has
    room for them. What is left of the last byte is zero.
    """
    held, bits, at = np.uint64(0), np.uint64(0), 0
    wide, byte = np.uint64(width), np.uint64(8)
    for i in ids:
        for n in range(begins[i], begins[i + 1]):
            held |= np.uint64(numbers[n]) << bits
            bits += wide
            while bits >= byte:
                packed[at] = held & np.uint64(0xFF)
                held >>= byte
                bits -= byte
                at += 1
    if bits:
        packed[at] = held


@njit
def pack_deltas(values, packed):
    """Write what each value but the first is more than the one before it, in blocks of :data:`DELTAS`: the least difference, the widths of
    the groups, and in each group what the others are more than the least. Returns how many bytes of ``packed`` that takes.

    All of it wraps around: differences are of 64 bits, and what they are more than the least has no sign.
    """
    at, byte, low = 0, np.uint64(8), np.uint64(0xFF)
    for begin in range(1, len(values), DELTAS):
        end = min(begin + DELTAS, len(values))
        least = values[begin] - values[begin - 1]
        for n in range(begin + 1, end):
            least = min(least, values[n] - values[n - 1])
        folded = np.uint64((least << 1) ^ (least >> 63))
        while folded > np.uint64(0x7F):
            packed[at] = folded & np.uint64(0x7F) | np.uint64(0x80)
            folded >>= np.uint64(7)
            at += 1
        packed[at] = folded
        widths = at + 1
        at = widths + DELTAS // GROUP
        for group in range(DELTAS // GROUP):
            first = begin + group * GROUP
            used, width = np.uint64(0), 0
            for n in range(first, min(first + GROUP, end)):
                used |= np.uint64(values[n] - values[n - 1] - least)
            while used:
                used >>= np.uint64(1)
                width += 1
            packed[widths + group] = width
            if first >= end:
                continue
            held, bits = np.uint64(0), np.uint64(0)
            for n in range(first, first + GROUP):
                more = np.uint64(values[n] - values[n - 1] - least) if n < end else np.uint64(0)
                left = width
                while left > 0:
                    taken = np.uint64(min(left, 32))
                    held |= (more & ((np.uint64(1) << taken) - np.uint64(1))) << bits
                    more >>= taken
                    bits += taken
                    left -= 32
                    while bits >= byte:
                        packed[at] = held & low
                        held >>= byte
                        bits -= byte
                        at += 1
    return at
