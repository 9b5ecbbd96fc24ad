"""The read cache: entries read ahead from entry logs for clients that read a ledger sequentially.

It works only with the compiled loops. It needs no invalidation per entry: it is emptied when the index changes, and
readers check the write cache first.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fencepost.ledger.disk.write_cache import RowsWriteCache
from fencepost.ledger.kernels import entries, results
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.rules.codes import Code

AHEAD = 1 << 18
"""The least bytes of bodies to read ahead at once, if there are enough entries."""
FURTHEST = 1 << 20
"""The most bytes of bodies to read ahead at once."""
MOST = 1_024
"""The most entries to read ahead at once."""
MANY = 64
"""A request for this many entries at once gets no read-ahead."""
SEVERAL = 8
"""The same for entries found without waiting for a disk."""
STRIDE = 16
"""The greatest distance between ids that counts as sequential: a bookie may hold every third entry of a ledger."""
_READERS = 1_024
"""Ledgers whose read positions are remembered."""


class ReadCache:
    """Entries read ahead, in two halves. When the newer half is full, the older is dropped. Thread-safe.

    ``epoch`` changes with each :meth:`clear`. Only entries looked up in the current epoch are kept.
    """

    def __init__(self, limit: int) -> None:
        """``limit``: approximate bytes of memory for all entries; 0 disables read-ahead."""
        self.epoch = 0
        self._half = limit // 2
        self._lock = threading.Lock()
        self._halves: tuple[RowsWriteCache, ...] = ()
        self._readers: dict[int, tuple[int, int]] = {}
        """For each ledger, the last entry read or read ahead, and its distance from the one before; 0 if unknown."""

    def __bool__(self) -> bool:
        """Whether it has entries."""
        return bool(self._halves)

    def get(self, ledger: int, entry_id: int) -> bytes | None:
        """The body of an entry; None if it is not cached."""
        for half in self._halves:
            body = half.get(ledger, entry_id)
            if body is not None:
                return body
        return None

    def find(
        self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], table: NDArray[np.int64]
    ) -> Sequence[object]:
        """Like that of a write cache."""
        return [half.find(ledgers, entry_ids, table) for half in self._halves]

    def next_of(self, ledger: int, entry_ids: list[int]) -> tuple[int, int] | None:
        """Predict the next read of a ledger from the ids that were just not in memory. Returns the next id and the
        distance between ids; None if the reads are not sequential.
        """
        with self._lock:
            last, stride = self._readers.get(ledger, (-1, 0))
            before = entry_ids[-2] if len(entry_ids) > 1 else last
            distance = entry_ids[-1] - before if before >= 0 else 0
            if not 0 < distance <= STRIDE:
                distance = 0
            self._remember(ledger, entry_ids[-1], distance)
        goes_on = stride > 0 and entry_ids[0] == last + stride
        if len(entry_ids) > 2:
            goes_on = entry_ids[-1] - entry_ids[0] == distance * (len(entry_ids) - 1)
        return (entry_ids[-1] + distance, distance) if goes_on and distance and self._half else None

    def keep(self, epoch: int, ledger: int, table: NDArray[np.int64], block: NDArray[np.uint8], stride: int) -> None:
        """Keep entries of a ledger that were read ahead. ``table`` is as in
        :class:`fencepost.ledger.kernels.results.LookupResults`, with all bodies in ``block``; ``epoch`` is the value
        from before the lookup.
        """
        read = table[table[:, results.CODE] == Code.OK.value]
        rows = entries_of(np.full(len(read), ledger), read, block)
        with self._lock:
            if epoch != self.epoch or not len(rows):
                return
            if not self._halves or self._halves[0].size >= self._half:
                self._halves = (RowsWriteCache(), *self._halves[:1])
            self._halves[0].put_rows(rows)
            self._remember(ledger, int(read[-1, results.ENTRY_ID]), stride)

    def clear(self) -> None:
        """Drop all entries, because the index has changed."""
        with self._lock:
            self.epoch += 1
            self._halves = ()

    def _remember(self, ledger: int, last: int, stride: int) -> None:
        self._readers.pop(ledger, None)
        self._readers[ledger] = last, stride
        while len(self._readers) > _READERS:
            self._readers.pop(next(iter(self._readers)), None)


def entries_of(ledgers: NDArray[np.int64], table: NDArray[np.int64], block: NDArray[np.uint8]) -> EntryRows:
    """Entries from a table of :class:`fencepost.ledger.kernels.results.LookupResults` with all bodies in one block."""
    rows = np.empty((len(table), entries.COLUMNS), np.int64)
    rows[:, entries.LEDGER], rows[:, entries.LAC] = ledgers, -1
    rows[:, entries.ENTRY_ID], rows[:, entries.SIZE] = table[:, results.ENTRY_ID], table[:, results.SIZE]
    rows[:, entries.OFFSET] = table[:, results.ADDRESS] - block.ctypes.data
    return EntryRows(block, rows)


def bytes_ahead(size: int, count: int, many: int = MANY) -> int:
    """How many bytes to read ahead after a request for ``count`` entries of ``size`` bytes: enough for several more
    such requests.

    0 for a request of ``many`` entries: such a client pipelines its requests, and would gain nothing.
    """
    return min(max(AHEAD, 8 * size), FURTHEST) if size < FURTHEST // 4 and count < many else 0
