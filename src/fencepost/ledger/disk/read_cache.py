"""The read cache: entries that were read from entry logs ahead of those who read a ledger from one entry to the next.

It is for compiled loops alone. Nobody has to keep it up to date: it is emptied whenever the index changes, and whoever
looks into it has looked into the write cache before.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fencepost.ledger.disk.write_cache import RowsWriteCache
from fencepost.ledger.kernels import entries, found
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.rules.codes import Code

AHEAD = 1 << 18
"""Bytes of bodies that are read ahead at once at least, if there are so many entries."""
FURTHEST = 1 << 20
"""Bytes of bodies that are read ahead at once at the most."""
MOST = 1_024
"""Entries that are read ahead at once, at the most."""
MANY = 64
"""Entries that are read at once by somebody for whom nothing is read ahead."""
SEVERAL = 8
"""The same of entries that no disk was waited for."""
STRIDE = 16
"""The greatest distance of the ids of entries that follow one another: a bookie may have every third entry of a
ledger.
"""
_READERS = 1_024
"""Ledgers whose readers are remembered."""


class ReadCache:
    """Entries read ahead, the older half of which goes when the newer half is full. Any thread may call any method.

    ``epoch`` is another one after each :meth:`clear`: only what was looked up in the present one is kept.
    """

    def __init__(self, limit: int) -> None:
        """``limit``: the bytes of memory that all entries take together, about; 0: nothing is read ahead."""
        self.epoch = 0
        self._half = limit // 2
        self._lock = threading.Lock()
        self._halves: tuple[RowsWriteCache, ...] = ()
        self._readers: dict[int, tuple[int, int]] = {}
        """For a ledger, the last entry that was read or read ahead, and how far it is from the one before it; 0 if that
        is not known.
        """

    def __bool__(self) -> bool:
        """Whether there are entries."""
        return bool(self._halves)

    def get(self, ledger: int, entry_id: int) -> bytes | None:
        """The body of an entry, None if it is not here."""
        for half in self._halves:
            body = half.get(ledger, entry_id)
            if body is not None:
                return body
        return None

    def find(
        self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], table: NDArray[np.int64]
    ) -> Sequence[object]:
        """As that of a write cache."""
        return [half.find(ledgers, entry_ids, table) for half in self._halves]

    def next_of(self, ledger: int, entry_ids: list[int]) -> tuple[int, int] | None:
        """The entry that somebody is likely to read next, given those of a ledger that were not in memory just now, and
        the distance of those after it; None if they are not read in such an order.
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
        """Keep entries of a ledger that were read ahead, given as a table of
        :class:`fencepost.ledger.kernels.found.FoundRows` with all that is in a block, and the epoch from before they
        were looked up.
        """
        read = table[table[:, found.CODE] == Code.OK.value]
        rows = entries_of(np.full(len(read), ledger), read, block)
        with self._lock:
            if epoch != self.epoch or not len(rows):
                return
            if not self._halves or self._halves[0].size >= self._half:
                self._halves = (RowsWriteCache(), *self._halves[:1])
            self._halves[0].put_rows(rows)
            self._remember(ledger, int(read[-1, found.ENTRY_ID]), stride)

    def clear(self) -> None:
        """Forget all entries: the index has changed."""
        with self._lock:
            self.epoch += 1
            self._halves = ()

    def _remember(self, ledger: int, last: int, stride: int) -> None:
        self._readers.pop(ledger, None)
        self._readers[ledger] = last, stride
        while len(self._readers) > _READERS:
            self._readers.pop(next(iter(self._readers)), None)


def entries_of(ledgers: NDArray[np.int64], table: NDArray[np.int64], block: NDArray[np.uint8]) -> EntryRows:
    """Entries that were found, given their ledgers, as :class:`fencepost.ledger.kernels.found.FoundRows` has them, all
    in one block.
    """
    rows = np.empty((len(table), entries.COLUMNS), np.int64)
    rows[:, entries.LEDGER], rows[:, entries.LAC] = ledgers, -1
    rows[:, entries.ENTRY_ID], rows[:, entries.SIZE] = table[:, found.ENTRY_ID], table[:, found.SIZE]
    rows[:, entries.OFFSET] = table[:, found.ADDRESS] - block.ctypes.data
    return EntryRows(block, rows)


def bytes_ahead(size: int, count: int, many: int = MANY) -> int:
    """How many bytes are read ahead of somebody who reads so many bytes and entries at once: enough for several more
    times.

    None for whoever reads ``many``: the next ones are asked for already while these are read, and nothing would be
    saved.
    """
    return min(max(AHEAD, 8 * size), FURTHEST) if size < FURTHEST // 4 and count < many else 0
