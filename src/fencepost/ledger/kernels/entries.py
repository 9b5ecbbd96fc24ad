"""Entries that arrived together, as one block of bytes and a table with one row per entry."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEDGER, ENTRY_ID, LAC, OFFSET, SIZE = range(5)
"""The columns: the ledger, the entry id, the LAC in the body, and the offset and size of the body in the block."""
COLUMNS = 5

_FEW = 32
"""Rows below which plain Python is faster than NumPy."""


class EntryRows(NamedTuple):
    """Entries in the format of the journal. Immutable.

    ``data``: uint8, the journal records, each after its length (:mod:`fencepost.ledger.disk.records`,
    :mod:`fencepost.ledger.disk.journal`). ``table``: int64, shape (entries, ``COLUMNS``), in order of arrival.
    ``recovery``: some come from a recovery or a repair. The journal does not store this.
    """

    data: NDArray[np.uint8]
    table: NDArray[np.int64]
    recovery: bool = False

    def __len__(self) -> int:
        return len(self.table)

    @property
    def view(self) -> memoryview:
        """The block, read-only."""
        return memoryview(self.data).toreadonly()  # type: ignore[arg-type]

    def lacs(self) -> list[tuple[int, int]]:
        """Each ledger with the highest LAC among its entries, which must be adjacent."""
        if not len(self.table):
            return []
        if len(self.table) < _FEW:
            highest: dict[int, int] = {}
            for ledger, _, lac, _, _ in self.table.tolist():
                highest[ledger] = max(lac, highest.get(ledger, lac))
            return list(highest.items())
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
        """The body of an entry."""
        offset, size = self.table[row, OFFSET], self.table[row, SIZE]
        return self.data[offset : offset + size].tobytes()
