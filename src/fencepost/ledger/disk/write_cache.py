"""The write cache: entries that are in the journal and not yet in an entry log.

There are two kinds. One keeps entries in a table for the compiled loops. The other is plain Python, for use without the
loops. Each new cache is of one kind or the other, and stays so.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fencepost.ledger.disk.entry_logs import Bodies, Entries
from fencepost.ledger.disk.sections import Runs
from fencepost.ledger.kernels import entries as entry_table
from fencepost.ledger.kernels import results
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.kernels.results import MISS
from fencepost.ledger.rules.codes import Code

if TYPE_CHECKING:
    from types import ModuleType

_OVERHEAD = 100
"""Approximate bytes of memory of an entry besides its body, if it is an object."""

_FEWEST = 1 << 10
"""The initial capacity of a table, in rows."""
_MOST = 1 << 20
"""The largest initial capacity of a table, in rows."""


class WriteCache(Protocol):
    """Entries in memory, by ledger and non-negative id. ``size``: approximate bytes of memory.

    One thread at a time may change it; any thread may read it at any time.
    """

    size: int

    def __len__(self) -> int:
        """The number of entries."""

    def put(self, ledger: int, entry_id: int, body: bytes) -> None:
        """Add an entry, or replace the one with its id."""

    def put_rows(self, rows: EntryRows) -> None:
        """Add entries that arrived together, in this order. Their bytes are not copied and must not change."""

    def get(self, ledger: int, entry_id: int) -> bytes | None:
        """The body of an entry; None if it is not cached."""

    def find(
        self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], table: NDArray[np.int64]
    ) -> Sequence[object]:
        """Look up the entries whose rows in a table of :class:`fencepost.ledger.kernels.results.LookupResults` are a
        ``MISS``; rows of entries that are not here stay so. Returns the owners of the memory that the addresses point
        into.
        """

    def last(self, ledger: int) -> int | None:
        """The highest entry id of a ledger here; None if there is none."""

    def ledgers(self) -> list[int]:
        """The ledgers that have entries here."""

    def ids(self, ledger: int) -> list[int]:
        """The ids of the entries of a ledger here."""

    def drop(self, ledger: int) -> None:
        """Drop the entries of a ledger."""

    def in_order(self) -> Entries:
        """All entries, to be written to an entry log. The cache must not change any more."""


def write_cache(compiled: bool, before: WriteCache | None = None) -> WriteCache:
    """An empty cache, with compiled loops or without, sized to hold about as much as ``before``."""
    if not compiled:
        return PlainWriteCache()
    return RowsWriteCache(before.rows if isinstance(before, RowsWriteCache) else len(before or ()))


class PlainWriteCache:
    """A write cache in plain Python. ``entries``: the bodies by ledger and id."""

    __slots__ = ("_last", "entries", "size")

    def __init__(self) -> None:
        self.entries: dict[int, dict[int, bytes]] = {}
        self.size = 0
        self._last: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self.entries.values()))

    def put(self, ledger: int, entry_id: int, body: bytes) -> None:
        entries = self.entries.get(ledger)
        if entries is None:
            entries = self.entries[ledger] = {}
            self._last[ledger] = entry_id
        entries[entry_id] = body
        if entry_id > self._last[ledger]:
            self._last[ledger] = entry_id
        self.size += len(body) + _OVERHEAD

    def put_rows(self, rows: EntryRows) -> None:
        data = rows.view
        for ledger, entry_id, _, offset, size in rows.table.tolist():
            self.put(ledger, entry_id, data[offset : offset + size].tobytes())

    def get(self, ledger: int, entry_id: int) -> bytes | None:
        entries = self.entries.get(ledger)
        return None if entries is None else entries.get(entry_id)

    def find(
        self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], table: NDArray[np.int64]
    ) -> Sequence[object]:
        blocks: list[object] = []
        for row in np.flatnonzero(table[:, results.CODE] == MISS).tolist():
            entry_id = int(entry_ids[row])
            body = self.get(int(ledgers[row]), entry_id)
            if body is not None:
                block = np.frombuffer(body, np.uint8)
                blocks.append(block)
                table[row] = Code.OK.value, entry_id, block.ctypes.data, len(block)
        return blocks

    def last(self, ledger: int) -> int | None:
        return self._last.get(ledger)

    def ledgers(self) -> list[int]:
        return [*self.entries]

    def ids(self, ledger: int) -> list[int]:
        return [*self.entries.get(ledger, ())]

    def drop(self, ledger: int) -> None:
        if ledger in self.entries:
            del self.entries[ledger], self._last[ledger]

    def in_order(self) -> Entries:
        return Bodies(self.entries)


_SEED = int.from_bytes(os.urandom(8), signed=True)
"""A random seed of the hash table. It has no other visible effect."""


class RowsWriteCache:
    """A write cache that uses :mod:`fencepost.ledger.kernels.cache`. The first instance compiles or loads the loops.

    Blocks and rows stay in memory, and count in ``size``, until the cache is gone, even if their entries are replaced
    or dropped.
    """

    __slots__ = ("_blocks", "_counts", "_loops", "_owner", "_single", "_table", "size")

    def __init__(self, expected: int = 0) -> None:
        """``expected``: the number of rows to make room for. The table grows as needed."""
        from fencepost.ledger.kernels import cache as loops

        self._loops: ModuleType = loops
        self._counts = np.zeros(2, np.int64)
        self._blocks: list[object] = []
        self._owner: object = None
        self._single = np.zeros((1, entry_table.COLUMNS), np.int64)
        self.size = 0
        self._table = self._empty(min(max(_FEWEST, 1 << (expected + expected // 4).bit_length()), _MOST))

    def __len__(self) -> int:
        return int(self._counts[self._loops.ENTRIES])

    @property
    def rows(self) -> int:
        """The number of rows: one per entry, one per ledger, and those of dropped entries."""
        return int(self._counts[self._loops.ROWS])

    # -- changes ------------------------------------------------------------------------------------------------------

    def put(self, ledger: int, entry_id: int, body: bytes) -> None:
        self._single[0] = ledger, entry_id, 0, 0, len(body)
        self.put_rows(EntryRows(np.frombuffer(body, np.uint8), self._single))

    def put_rows(self, rows: EntryRows) -> None:
        data, table = rows.data, rows.table
        if not len(table):
            return
        self._blocks.append(data)  # keep it alive before its address is stored
        self._count(data)
        before, done = self.rows, 0
        while True:
            slots, in_rows = self._table
            done = self._loops.put(slots, in_rows, self._counts, _SEED, data, table, done)
            if done == len(table):
                break
            self._grow()
        self.size += (self.rows - before) * _ROW

    def drop(self, ledger: int) -> None:
        if self.last(ledger) is not None:
            self._loops.drop(self._table[1], self._counts, ledger)

    def _count(self, data: NDArray[np.uint8]) -> None:
        """Count the memory of a block. Several blocks may be views of one array."""
        owner = data if data.base is None else data.base
        if owner is not self._owner:
            self._owner = owner
            self.size += _BLOCK + (owner.nbytes if isinstance(owner, np.ndarray) else len(data))

    def _empty(self, most: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The slots and rows of an empty table. They are one value, so that concurrent readers get a matching pair."""
        return np.zeros(2 * most, np.int32), np.empty((most, self._loops.COLUMNS), np.int64)

    def _grow(self) -> None:
        count = self.rows
        slots, rows = self._empty(2 * len(self._table[1]))
        rows[:count] = self._table[1][:count]
        self._loops.place(slots, rows, count, _SEED)
        self._table = slots, rows

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, ledger: int, entry_id: int) -> bytes | None:
        if not self.size:
            return None
        slots, rows = self._table
        row = self._loops.find(slots, rows, _SEED, ledger, entry_id)
        if row < 0:
            return None
        # One step of Python: a concurrent put of this entry comes before or after it.
        _, _, address, size = rows[row].tolist()
        return ctypes.string_at(address, size) if size >= 0 else None

    def find(
        self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], table: NDArray[np.int64]
    ) -> Sequence[object]:
        slots, rows = self._table
        self._loops.find_rows(slots, rows, _SEED, ledgers, entry_ids, table)
        return self._blocks

    def last(self, ledger: int) -> int | None:
        slots, rows = self._table
        found_last: int = self._loops.last(slots, rows, _SEED, ledger)
        return found_last if found_last >= 0 else None

    def ledgers(self) -> list[int]:
        ledgers: list[int] = np.unique(self._entry_rows()[:, self._loops.LEDGER]).tolist()
        return ledgers

    def ids(self, ledger: int) -> list[int]:
        rows = self._entry_rows()
        ids: list[int] = rows[rows[:, self._loops.LEDGER] == ledger, self._loops.ENTRY_ID].tolist()
        return ids

    def _entry_rows(self) -> NDArray[np.int64]:
        """A copy of the rows that are entries."""
        rows = self._table[1][: self.rows]
        return rows[rows[:, self._loops.SIZE] >= 0]

    def in_order(self) -> Entries:
        return _RowsInOrder(self._loops, self._table[1][: self.rows], self._blocks)


_ROW = 48
"""Approximate bytes of memory of a row and its slots."""
_BLOCK = 200
"""Approximate bytes of memory of a block besides its data."""


class _RowsInOrder:
    """The entries of a table, to be written to an entry log while other threads continue."""

    def __init__(self, loops: ModuleType, rows: NDArray[np.int64], blocks: Sequence[object]) -> None:
        self._loops = loops
        self._rows = rows
        self._blocks = blocks
        orders = np.empty((2, len(rows)), np.int64)
        count, side = loops.sort(rows, len(rows), orders, np.empty(len(rows) + 1, np.int64))
        self._order = orders[side, :count]
        self._done = 0

    def runs(self) -> Runs:
        ledgers, ids, sizes = np.empty((3, len(self._order)), np.int64)
        self._loops.columns(self._rows, self._order, ledgers, ids, sizes)
        return Runs.of_rows(ledgers, ids, sizes)

    def fill(self, room: NDArray[np.uint8]) -> int:
        self._done, size = self._loops.lay_out(self._rows, self._order, self._done, room)
        return size  # type: ignore[no-any-return]
