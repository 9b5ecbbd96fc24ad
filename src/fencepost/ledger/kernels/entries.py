"""Entries that arrived together, as one block of bytes and a row for each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEDGER, ENTRY_ID, LAC, OFFSET, SIZE = range(5)
"""The columns of a row: whose entry it is, its id, the LAC in its body, and where its body is in the bytes."""
COLUMNS = 5


class EntryRows(NamedTuple):
    """Entries as they are journalled. It is never changed once it is made.

    ``data``: uint8, the records of the journal one after another, each with its length before it
    (:mod:`fencepost.ledger.disk.records`, :mod:`fencepost.ledger.disk.journal`). ``table``: int64, shape (entries,
    ``COLUMNS``), in the order in which they arrived. ``recovery``: a recovery or a repair sent some of them, which the
    journal does not tell later.
    """

    data: NDArray[np.uint8]
    table: NDArray[np.int64]
    recovery: bool = False

    def __len__(self) -> int:
        return len(self.table)

    @property
    def view(self) -> memoryview:
        """The bytes as one that cannot be written to."""
        return memoryview(self.data).toreadonly()  # type: ignore[arg-type]

    def lacs(self) -> list[tuple[int, int]]:
        """The ledgers, and the highest LAC that entries of each carry. Those of a ledger stand one after another."""
        if not len(self.table):
            return []
        if self.table[0, LEDGER] == self.table[-1, LEDGER]:
            return [(int(self.table[0, LEDGER]), int(self.table[:, LAC].max()))]
        starts = np.flatnonzero(np.diff(self.table[:, LEDGER], prepend=self.table[0, LEDGER] - 1))
        return list(
            zip(
                self.table[starts, LEDGER].tolist(),
                np.maximum.reduceat(self.table[:, LAC], starts).tolist(),
                strict=True,
            )
        )

    def body(self, row: int) -> bytes:
        """The body of one entry."""
        offset, size = self.table[row, OFFSET], self.table[row, SIZE]
        return self.data[offset : offset + size].tobytes()
