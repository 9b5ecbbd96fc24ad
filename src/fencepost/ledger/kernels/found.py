"""Entries that were looked up together: a row for each that was asked for, and the memory that they lie in."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CODE, ENTRY_ID, ADDRESS, SIZE = range(4)
"""The columns of a row: a code of :mod:`fencepost.ledger.rules.codes`, or :data:`MISS`; the id of the entry; and the
address in memory and the bytes of its body, both 0 unless the code is OK.
"""
COLUMNS = 4

MISS = -(1 << 30)
"""In place of a code: the entry is not in memory, and entry logs were not asked for it."""


class FoundRows(NamedTuple):
    """The results of look-ups.

    ``table``: int64, shape (look-ups, ``COLUMNS``), in the order in which they were asked. ``blocks``: whatever the
    addresses point into. The addresses hold as long as ``blocks`` does, and not one moment longer. Nobody changes what
    is there. ``read``: the one of the blocks, if there is one, that was read from entry logs for these look-ups alone.
    """

    table: NDArray[np.int64]
    blocks: Sequence[object]
    read: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.table)

    def first(self, count: int) -> FoundRows:
        """Only so many of the first rows."""
        return FoundRows(self.table[:count], self.blocks, self.read)

    def views(self, rows: NDArray[np.int64]) -> list[memoryview]:
        """The bodies that rows have found: where they lie, if they are in the block that was read for them, and copies
        of others, so that nobody who has one keeps more in memory than that block.
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
        """A copy of the body that a row has found."""
        return ctypes.string_at(int(self.table[row, ADDRESS]), int(self.table[row, SIZE]))


def missing(entry_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The table of look-ups that have found nothing so far."""
    table = np.zeros((len(entry_ids), COLUMNS), np.int64)
    table[:, CODE], table[:, ENTRY_ID] = MISS, entry_ids
    return table
