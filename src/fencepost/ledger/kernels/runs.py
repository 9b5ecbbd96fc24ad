"""The loops of runs: encoding the runs of a section, and looking entries up in the index.

The formats, and the plain equivalents, are in :mod:`fencepost.ledger.disk.sections` and
:mod:`fencepost.ledger.disk.index`.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from fencepost.files.loops import inner, njit
from fencepost.ledger.kernels.native import load_word, store_int32, store_int64
from fencepost.ledger.kernels.run_layout import RUN_DTYPE

MOST_DETAILS = 9
"""The most bytes of bits per entry."""

_ROW = 32
"""Bytes of a run's row on disk."""
_SPAN = 1 << 32
_INT = types.int64
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_BUFFER = types.Array(types.uint8, 1, "C")
_NUMBERS = types.Array(types.int64, 1, "C")
_CONST = types.Array(types.int64, 1, "C", readonly=True)
_RUNS = types.Array(numba.from_dtype(RUN_DTYPE), 1, "C")


# -- the runs of a section --------------------------------------------------------------------------------------------


@inner
def _bits(number):
    """The number of bits of a number."""
    count = 0
    while number >> count:
        count += 1
    return count


@inner
def _run_end(ledgers, entry_ids, sizes, header, most, first):
    """The end of the run that begins with an entry. A run ends before another ledger, at its maximum length, or where a
    number would not fit its field.
    """
    last, size = first, np.int64(0)
    while last < len(ledgers) and last - first < most and ledgers[last] == ledgers[first]:
        size += sizes[last] + header
        if last > first and (np.uint64(entry_ids[last] - entry_ids[first]) >= _SPAN or size >= _SPAN):
            break
        last += 1
    return last


@njit(types.UniTuple(_INT, 2)(_CONST, _CONST, _CONST, _INT, _INT, _BUFFER, _BUFFER))
def lay_out(ledgers, entry_ids, sizes, header, most, rows, details):
    """Divide entries, in order, into runs of up to ``most``. ``sizes`` are those of bodies; each entry takes ``header``
    bytes more. Returns the number of runs and the bytes of their bits. They are written to ``rows`` and ``details`` in
    the format of :class:`fencepost.ledger.disk.sections.Runs`. Both need space for one run per entry: a row and
    ``MOST_DETAILS`` bytes.
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
    """The index of the last of some sorted numbers that is at most ``number``; ``low - 1`` if there is none."""
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] <= number:
            low = middle + 1
        else:
            high = middle
    return low - 1


@inner
def _find_in(first, run, details, entry_id, row, logs, offsets, sizes):
    """Look up an entry in a run that begins at or before it. Returns whether it is there."""
    nth, count = entry_id - first, np.int64(run.count)  # read once: another thread may set it to 0
    if nth < 0 or nth > run.span or not count:  # nth is negative if the difference overflows
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


@njit(_INT(_NUMBERS, _NUMBERS, _NUMBERS, _RUNS, _BYTES, _CONST, _CONST, _NUMBERS, _NUMBERS, _NUMBERS))
def find(ledgers, starts, firsts, runs, details, asked, entry_ids, logs, offsets, sizes):
    """Look up entries in a table of the index. Rows whose entry log is not 0 have been found already and are skipped.
    Fills in entry logs, offsets and sizes (header included). Returns the number of entries still missing.
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
