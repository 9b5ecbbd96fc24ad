"""The ledgers of a bookie: their entries, in memory until a checkpoint and then in entry logs, and their states.

It has no thread and no lock. The storage of a bookie adds both; the simulator runs it on virtual time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from fencepost.ledger.disk.entry_logs import NO_LIMIT, EntryLogs
from fencepost.ledger.disk.journal import Damage
from fencepost.ledger.disk.ledgers import LedgerState
from fencepost.ledger.disk.read_cache import MANY, MOST, SEVERAL, ReadCache, bytes_ahead
from fencepost.ledger.disk.sections import Section
from fencepost.ledger.disk.write_cache import WriteCache, write_cache
from fencepost.ledger.kernels import results
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.kernels.results import MISS, LookupResults, missing
from fencepost.ledger.records import EntryAdded, Record
from fencepost.ledger.rules.adding import lac_of_bookie
from fencepost.ledger.rules.codes import Code


class Checkpoint:
    """A checkpoint in progress. ``journal_start``: the journal file that begins after all records in it; 0 until that
    file exists.
    """

    __slots__ = ("cache", "forgotten", "journal_start", "states")

    def __init__(self, cache: WriteCache, states: list[LedgerState], forgotten: set[int]) -> None:
        self.cache = cache
        self.states = states
        self.forgotten = forgotten
        self.journal_start = 0


class LedgerStore:
    """Entries and states of ledgers. ``flushing`` is the checkpoint being written, None if there is none.

    ``compiled()`` says whether the compiled loops are ready. One thread at a time may make changes; look-ups may run on
    any thread at any time.
    """

    def __init__(self, logs: EntryLogs, compiled: Callable[[], bool] = lambda: False, ahead: int = 16 << 20) -> None:
        """``ahead``: bytes of memory for entries read ahead."""
        self.logs = logs
        self.compiled = compiled
        self.states = {ledger: copy.copy(state) for ledger, state in logs.states.items()}
        self.cache = write_cache(compiled())
        self.ahead = ReadCache(ahead)
        self.flushing: Checkpoint | None = None
        self.forgotten: set[int] = set()
        self._changed: set[int] = set()

    # -- changes ------------------------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Apply a record of the journal: its entry, and its change to the ledger's state."""
        ledger = record.ledger
        state = self.states.get(ledger)
        if state is None:
            state = self.states[ledger] = LedgerState(ledger)
            self._changed.add(ledger)
        if type(record) is EntryAdded:
            self.cache.put(ledger, record.entry_id, record.body)
            if record.lac <= state.lac:
                return
            state.lac = record.lac
        else:
            state.apply(record)
        self._changed.add(ledger)

    def apply_rows(self, rows: EntryRows) -> None:
        """Like :meth:`apply`, for entries that arrived together. Entries of one ledger must be adjacent."""
        for ledger, lac in rows.lacs():
            state = self.states.get(ledger)
            if state is None:
                state = self.states[ledger] = LedgerState(ledger)
                self._changed.add(ledger)
            if lac > state.lac:
                state.lac = lac_of_bookie(state.lac, lac)
                self._changed.add(ledger)
        self.cache.put_rows(rows)

    def forget(self, ledger: int) -> None:
        """Forget a ledger and all its entries so far."""
        self.cache.drop(ledger)
        self.states.pop(ledger, None)
        self._changed.discard(ledger)
        self.forgotten.add(ledger)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    @property
    def has_changed(self) -> bool:
        """Whether a checkpoint would write anything."""
        return bool(len(self.cache) or self._changed or self.forgotten)

    def swap(self) -> Checkpoint:
        """Begin a checkpoint with all changes so far; none may be running. Later changes go to the next one."""
        states = [copy.copy(self.states[ledger]) for ledger in sorted(self._changed)]
        checkpoint = Checkpoint(self.cache, states, self.forgotten)
        # Before the cache is replaced: a reader checks the cache first, and must not miss an entry.
        self.flushing = checkpoint
        self.cache, self._changed, self.forgotten = write_cache(self.compiled(), self.cache), set(), set()
        return checkpoint

    def write(self, checkpoint: Checkpoint) -> Section:
        """Write a checkpoint to an entry log. It is durable once the section is synced. Raises ``OSError``."""
        forgotten = sorted(checkpoint.forgotten)
        return self.logs.write(checkpoint.cache.in_order(), checkpoint.states, forgotten, checkpoint.journal_start)

    def end(self, section: Section) -> None:
        """End the checkpoint that wrote this durable section. Reads now find its entries in the entry log."""
        self.logs.commit(section)
        self.ahead.clear()  # before anyone reads past the cache that was flushed
        self.flushing = None

    # -- reading ------------------------------------------------------------------------------------------------------

    def records(self) -> Iterator[Record]:
        """Records that recreate the ledger states in the entry logs."""
        for _, state in sorted(self.logs.states.items()):
            yield from state.records()

    def look_up(self, ledger: int, entry_id: int, ahead: bool = True) -> tuple[Code, int, bytes | None]:
        """Find an entry, or the last of the ledger for entry id -1. Returns OK, its id and its body; or ``NO_ENTRY`` or
        ``IO_ERROR``, the requested id, and None. ``ahead``: the entries after it may be read too.
        """
        wanted: int | None = entry_id
        if entry_id < 0:
            try:
                wanted = self.last(ledger)
            except (Damage, OSError):
                return Code.IO_ERROR, entry_id, None
        if wanted is None:
            return Code.NO_ENTRY, entry_id, None
        body = self.cached(ledger, wanted)
        if body is not None:
            return Code.OK, wanted, body
        if self._is_forgotten(ledger):
            return Code.NO_ENTRY, entry_id, None
        epoch = self.ahead.epoch
        code, body = self.logs.read(ledger, wanted)
        self.logs.was_read()
        if ahead and body is not None and entry_id >= 0 and self.compiled():
            with suppress(Damage):
                self._read_ahead(epoch, ledger, [wanted], bytes_ahead(len(body), 1))
        return code, wanted if code is Code.OK else entry_id, body

    def cached(self, ledger: int, entry_id: int) -> bytes | None:
        """An entry from memory; None if it is not there."""
        body = self.cache.get(ledger, entry_id)
        if body is None:
            flushing = self.flushing
            if flushing is not None and ledger not in self.forgotten:
                body = flushing.cache.get(ledger, entry_id)
        if body is None and self.ahead and not self._is_forgotten(ledger):
            body = self.ahead.get(ledger, entry_id)
        return body

    def cached_rows(self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64]) -> LookupResults:
        """Find entries in memory. Entries known not to exist get ``NO_ENTRY``; all others, and requests for the last
        entry of a ledger (-1), are a ``MISS``.
        """
        ledgers, entry_ids = np.ascontiguousarray(ledgers), np.ascontiguousarray(entry_ids)
        table = missing(entry_ids)
        blocks = self.cache.find(ledgers, entry_ids, table)
        _mark_forgotten(self.forgotten, ledgers, table)
        flushing = self.flushing
        if flushing is not None:
            blocks = (blocks, flushing.cache.find(ledgers, entry_ids, table))
            _mark_forgotten(flushing.forgotten, ledgers, table)
        return LookupResults(table, (blocks, self.ahead.find(ledgers, entry_ids, table)))

    def read_rows(
        self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], most: int = NO_LIMIT
    ) -> LookupResults:
        """Like :meth:`look_up`, for many entries. It stops early once the bodies come to ``most`` bytes."""
        ledgers, entry_ids = np.ascontiguousarray(ledgers), np.ascontiguousarray(entry_ids)
        if not self.compiled():
            return self._one_by_one(ledgers, entry_ids, LookupResults(missing(entry_ids), ()), most)
        epoch = self.ahead.epoch
        table, cached, _ = self.cached_rows(ledgers, entry_ids)
        is_missing = (table[:, results.CODE] == MISS) & (entry_ids >= 0)
        count, block = len(table), None
        try:
            count, errors, block = self._read_logs(ledgers, entry_ids, table, most)
            if not errors:
                self._read_ahead_of(epoch, ledgers, entry_ids, table[:count], is_missing[:count], MANY)
        except Damage:
            return self._one_by_one(ledgers, entry_ids, LookupResults(table[:count], (cached, block)), most)
        rows = LookupResults(table[:count], (cached, block), block)
        return self._one_by_one(ledgers, entry_ids, rows, most) if errors or entry_ids.min(initial=0) < 0 else rows

    def look_up_now(self, ledger: int, entry_id: int) -> bytes | None:
        """An entry that needs no wait for a disk; None if there is no such entry."""
        body = self.cached(ledger, entry_id)
        if body is None and self.compiled():
            rows = self.rows_now(np.array([ledger]), np.array([entry_id]))
            if rows.table[0, results.CODE] == Code.OK.value:
                body = rows.body(0)
        return body

    def rows_now(self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], most: int = NO_LIMIT) -> LookupResults:
        """The part of :meth:`read_rows` that needs no wait for a disk. This includes entries in the page cache. The
        others, and those that cannot be read, are a ``MISS``.
        """
        ledgers, entry_ids = np.ascontiguousarray(ledgers), np.ascontiguousarray(entry_ids)
        epoch = self.ahead.epoch
        table, cached, _ = self.cached_rows(ledgers, entry_ids)
        if not self.compiled():
            return LookupResults(table, cached)
        are_few = len(table) < SEVERAL
        is_missing = (table[: SEVERAL - 1, results.CODE] == MISS) & (entry_ids[: SEVERAL - 1] >= 0)
        count, errors, block = len(table), 0, None
        try:
            count, errors, block = self._read_logs(ledgers, entry_ids, table, most, now=True)
            if are_few and block is not None and not errors:
                self._read_ahead_of(epoch, ledgers, entry_ids, table[:count], is_missing[:count], SEVERAL, now=True)
        except Damage:
            pass  # a blocking read reports it
        if errors:
            table[table[:, results.CODE] == Code.IO_ERROR.value, results.CODE] = MISS
        return LookupResults(table[:count], (cached, block), block)

    def _read_logs(
        self,
        ledgers: NDArray[np.int64],
        entry_ids: NDArray[np.int64],
        table: NDArray[np.int64],
        most: int,
        now: bool = False,
    ) -> tuple[int, int, NDArray[np.uint8] | None]:
        """Read entries from entry logs for a client, see :meth:`EntryLogs.read_rows`."""
        read = self.logs.read_rows(ledgers, entry_ids, table, most, now)
        if read[2] is not None:
            self.logs.was_read()
        return read

    def _read_ahead_of(
        self,
        epoch: int,
        ledgers: NDArray[np.int64],
        entry_ids: NDArray[np.int64],
        table: NDArray[np.int64],
        was_missing: NDArray[np.bool_],
        many: int,
        now: bool = False,
    ) -> None:
        """Like :meth:`_read_ahead`, from a table of results and a mask of those that were not in memory."""
        asked = np.flatnonzero(was_missing)
        if len(asked):
            size = bytes_ahead(int(table[:, results.SIZE].sum()), len(table), many)
            ledger = ledgers[asked[-1]]
            self._read_ahead(epoch, int(ledger), entry_ids[asked[ledgers[asked] == ledger]].tolist(), size, now)

    def _read_ahead(self, epoch: int, ledger: int, entry_ids: list[int], size: int, now: bool = False) -> None:
        """Read up to ``size`` bytes of the likely next entries, after a read of entries that were not in memory.

        Raises :class:`fencepost.ledger.disk.journal.Damage`.
        """
        expected = self.ahead.next_of(ledger, entry_ids) if size else None
        if expected is None:
            return
        first, stride = expected
        last = self.logs.index.last(ledger)
        if last is not None and last >= first:
            following = first + stride * np.arange(min(MOST, (last - first) // stride + 1))
            table = missing(following)
            count, _, block = self.logs.read_rows(np.full(len(following), ledger), following, table, size, now)
            if block is not None:
                self.ahead.keep(epoch, ledger, table[:count], block, stride)

    def _one_by_one(
        self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], rows: LookupResults, most: int
    ) -> LookupResults:
        """Look up one by one the entries that were missed or could not be read."""
        table, blocks = rows.table, [*rows.blocks]
        codes = table[:, results.CODE]
        for row in np.flatnonzero((codes == MISS) | (codes == Code.IO_ERROR.value)).tolist():
            code, found_id, body = self.look_up(int(ledgers[row]), int(entry_ids[row]), ahead=False)
            data = np.frombuffer(body or b"", np.uint8)
            blocks.append(data)
            table[row] = code.value, found_id, data.ctypes.data if body else 0, len(data)
            most -= len(data)
            if most <= 0:
                return LookupResults(table[: row + 1], blocks)
        return LookupResults(table, blocks)

    def last(self, ledger: int) -> int | None:
        """The id of the last entry of a ledger, None if it has none. Raises
        :class:`fencepost.ledger.disk.journal.Damage`.
        """
        found = [self.cache.last(ledger)]
        flushing = self.flushing
        if flushing is not None and ledger not in self.forgotten:
            found.append(flushing.cache.last(ledger))
        if not self._is_forgotten(ledger):
            found.append(self.logs.index.last(ledger))
        return max((each for each in found if each is not None), default=None)

    def entries_of(self, ledger: int) -> list[int]:
        """The ids of the entries of a ledger, in order. Raises :class:`fencepost.ledger.disk.journal.Damage`."""
        ids = set(self.cache.ids(ledger))
        flushing = self.flushing
        if flushing is not None and ledger not in self.forgotten:
            ids.update(flushing.cache.ids(ledger))
        if not self._is_forgotten(ledger):
            for located in self.logs.index.runs(ledger):
                ids.update(located.run.ids)
        return sorted(ids)

    def with_entries(self) -> Iterator[int]:
        """The ledgers with entries in entry logs. Some may have no other state: they were deleted, and a compaction is
        yet to come.
        """
        return (ledger for ledger in self.logs.index.ledgers() if not self._is_forgotten(ledger))

    def _is_forgotten(self, ledger: int) -> bool:
        """Whether a ledger's data in entry logs no longer counts."""
        flushing = self.flushing
        return ledger in self.forgotten or (flushing is not None and ledger in flushing.forgotten)


def _mark_forgotten(forgotten: set[int], ledgers: NDArray[np.int64], table: NDArray[np.int64]) -> None:
    """Mark missed entries of forgotten ledgers as ``NO_ENTRY``."""
    if forgotten:
        denied = np.isin(ledgers, [*forgotten]) & (table[:, results.CODE] == MISS) & (table[:, results.ENTRY_ID] >= 0)
        table[denied, results.CODE] = Code.NO_ENTRY.value
