"""The loops of runs: the layout of the runs of a section, and the places of entries that the index is asked for.

Both go by the columns of :mod:`fencepost.ledger.disk.sections` and :mod:`fencepost.ledger.disk.index`, which have the
plain twins.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from fencepost.ledger.kernels.native import inner, load_word, njit, store_int32, store_int64
from fencepost.ledger.kernels.places import PLACED

MOST_DETAILS = 9
"""Bytes that the bits of an entry take at the most."""

_ROW = 32
"""Bytes of the row of a run on disk."""
_SPAN = 1 << 32
_INT = types.int64
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_BUFFER = types.Array(types.uint8, 1, "C")
_NUMBERS = types.Array(types.int64, 1, "C")
_GIVEN = types.Array(types.int64, 1, "C", readonly=True)
_PLACED = types.Array(numba.from_dtype(PLACED), 1, "C")


# -- the runs of a section --------------------------------------------------------------------------------------------


@inner
def _bits(number):
    """The bits that a number takes."""
    count = 0
    while number >> count:
        count += 1
    return count


@inner
def _run_end(ledgers, entry_ids, sizes, header, most, first):
    """Where a run ends that begins with an entry: before another ledger, too many entries, or numbers that would be too
    large.
    """
    last, size = first, np.int64(0)
    while last < len(ledgers) and last - first < most and ledgers[last] == ledgers[first]:
        size += sizes[last] + header
        if last > first and (np.uint64(entry_ids[last] - entry_ids[first]) >= _SPAN or size >= _SPAN):
            break
        last += 1
    return last


@njit(types.UniTuple(_INT, 2)(_GIVEN, _GIVEN, _GIVEN, _INT, _INT, _BUFFER, _BUFFER))
def lay_out(ledgers, entry_ids, sizes, header, most, rows, details):
    """Cut entries, given in order with the bytes of their bodies, into runs of up to ``most``; each has ``header``
    bytes more. Gives how many runs there are, and the bytes of their bits. ``rows`` and ``details`` get them as
    :class:`fencepost.ledger.disk.sections.Runs` has them, and have room for a row and ``MOST_DETAILS`` bytes for each
    entry.
    """
    count, at, first = 0, 0, 0
    while first < len(ledgers):
        last = _run_end(ledgers, entry_ids, sizes, header, most, first)
        smallest = largest = total = sizes[first]
        widest = np.int64(0)
        for nth in range(first + 1, last):
            smallest, largest, total = min(smallest, sizes[nth]), max(largest, sizes[nth]), total + sizes[nth]
            widest = max(widest, entry_ids[nth] - entry_ids[nth - 1] - 1)
        size_bits, gap_bits = _bits(largest - smallest), _bits(widest)
        row = count * _ROW
        store_int64(rows, row, ledgers[first])
        store_int64(rows, row + 8, entry_ids[first])
        store_int32(rows, row + 16, entry_ids[last - 1] - entry_ids[first])
        store_int32(rows, row + 20, total + header * (last - first))
        store_int32(rows, row + 24, smallest + header)
        store_int32(rows, row + 28, (last - first) << 16 | size_bits << 8 | gap_bits)
        word, filled = np.uint64(0), 0
        for part in range(2):
            for nth in range(first + part, last):
                number = entry_ids[nth] - entry_ids[nth - 1] - 1 if part else sizes[nth] - smallest
                word |= np.uint64(number) << np.uint64(filled)
                filled += gap_bits if part else size_bits
                while filled >= 8:
                    details[at] = word & np.uint64(255)
                    word >>= np.uint64(8)
                    filled -= 8
                    at += 1
        if filled:
            details[at] = word
            at += 1
        first = last
        count += 1
    return count, at


# -- the index --------------------------------------------------------------------------------------------------------


@inner
def _not_above(numbers, low, high, number):
    """The place of the last of some numbers, in order, that is not above one; ``low - 1`` if there is none."""
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] <= number:
            low = middle + 1
        else:
            high = middle
    return low - 1


@inner
def _find_in(first, run, details, entry_id, row, logs, offsets, sizes):
    """Find an entry, which does not come before its first one, in a run; whether it is there."""
    nth, count = entry_id - first, np.int64(run.count)  # once: it may be 0 a moment later
    if nth < 0 or nth > run.span or not count:  # less than 0: they are further apart than there are numbers
        return False
    at, bits = 8 * np.int64(run.details), np.int64(run.size_bits)
    if run.gap_bits:
        gap, distance, wanted = np.int64(run.gap_bits), np.int64(0), nth
        place = at + bits * count
        mask = (np.int64(1) << gap) - 1
        nth = np.int64(0)
        while distance < wanted:
            distance += 1 + ((load_word(details, place >> 3) >> (place & 7)) & mask)
            place += gap
            nth += 1
        if distance != wanted:
            return False
    start, size = nth * run.base, np.int64(run.base)
    if bits:
        mask = (np.int64(1) << bits) - 1
        for _ in range(nth):
            start += (load_word(details, at >> 3) >> (at & 7)) & mask
            at += bits
        size += (load_word(details, at >> 3) >> (at & 7)) & mask
    logs[row], offsets[row], sizes[row] = run.log, run.offset + start, size
    return True


@njit(_INT(_NUMBERS, _NUMBERS, _NUMBERS, _PLACED, _BYTES, _GIVEN, _GIVEN, _NUMBERS, _NUMBERS, _NUMBERS))
def find(ledgers, starts, firsts, runs, details, asked, entry_ids, logs, offsets, sizes):
    """Find entries that were not found yet in a table of the index: their entry logs, 0 before, offsets and bytes with
    the header. Gives how many are still not found.
    """
    missing, ledger, number = 0, np.int64(0), np.int64(-1)
    for row in range(len(asked)):
        if logs[row]:
            continue
        if number < 0 or asked[row] != ledger:
            ledger = asked[row]
            number = _not_above(ledgers, 0, len(ledgers), ledger)
        at = np.int64(-1)
        if number >= 0 and ledgers[number] == ledger:
            at = _not_above(firsts, starts[number], starts[number + 1], entry_ids[row])
            at = at if at >= starts[number] else -1
        if at < 0 or not _find_in(firsts[at], runs[at], details, entry_ids[row], row, logs, offsets, sizes):
            missing += 1
    return missing
