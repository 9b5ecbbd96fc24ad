"""Entries that were looked up together: a row for each that was asked for, and the memory that they lie in."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CODE, ENTRY_ID, ADDRESS, SIZE = range(4)
"""The columns of a row: a code of :mod:`fencepost.store.rules.codes`, or :data:`MISS`; the id of the entry; and the address in memory and
the bytes of its body, both 0 unless the code is OK."""
COLUMNS = 4

MISS = -(1 << 30)
"""In place of a code: the entry is not in memory, and entry logs were not asked for it."""


class FoundRows(NamedTuple):
    """What look-ups came to.

    ``table``: int64, shape (look-ups, ``COLUMNS``), in the order in which they were asked. ``blocks``: whatever the addresses point into. The
    addresses hold as long as ``blocks`` does, and not one moment longer. Nobody changes what is there.
    """

    table: NDArray[np.int64]
    blocks: Sequence[object]

    def __len__(self) -> int:
        return len(self.table)

    def body(self, row: int) -> bytes:
        """A copy of the body that a row has found."""
        return ctypes.string_at(int(self.table[row, ADDRESS]), int(self.table[row, SIZE]))


def missing(entry_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The table of look-ups that have found nothing so far."""
    table = np.zeros((len(entry_ids), COLUMNS), np.int64)
    table[:, CODE], table[:, ENTRY_ID] = MISS, entry_ids
    return table
