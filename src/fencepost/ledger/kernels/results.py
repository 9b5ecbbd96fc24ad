"""Results of look-ups made together: a table with one row per look-up, and the memory that holds the bodies."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CODE, ENTRY_ID, ADDRESS, SIZE = range(4)
"""The columns: a code of :mod:`fencepost.ledger.rules.codes`, or :data:`MISS`; the entry id; and the memory address and
size of the body, both 0 unless the code is OK.
"""
COLUMNS = 4

MISS = -(1 << 30)
"""Instead of a code: the entry is not in memory, and the entry logs have not been searched."""


class LookupResults(NamedTuple):
    """Results of look-ups.

    ``table``: int64, shape (look-ups, ``COLUMNS``), in the order of the requests. ``blocks``: the owners of the memory
    that the addresses point into; an address is valid only while they live. That memory is never modified. ``read``:
    the block that was read from entry logs for these look-ups, if any.
    """

    table: NDArray[np.int64]
    blocks: Sequence[object]
    read: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.table)

    def first(self, count: int) -> LookupResults:
        """The first ``count`` results."""
        return LookupResults(self.table[:count], self.blocks, self.read)

    def views(self, rows: NDArray[np.int64]) -> list[memoryview]:
        """The bodies of some rows. Those in the block read for these look-ups are views of it, others are copies. So a
        view keeps no other block in memory.
        """
        if self.read is None:
            return [memoryview(self.body(row)) for row in rows.tolist()]
        data, start = self.read.data, self.read.ctypes.data
        found = []
        for address, size in self.table[rows, ADDRESS : SIZE + 1].tolist():
            at = address - start
            found.append(
                data[at : at + size] if 0 <= at <= len(data) - size else memoryview(ctypes.string_at(address, size))
            )
        return found

    def body(self, row: int) -> bytes:
        """A copy of the body of a row."""
        return ctypes.string_at(int(self.table[row, ADDRESS]), int(self.table[row, SIZE]))


def missing(entry_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """A table of look-ups with no results yet."""
    table = np.zeros((len(entry_ids), COLUMNS), np.int64)
    table[:, CODE], table[:, ENTRY_ID] = MISS, entry_ids
    return table
