"""The ledgers of a bookie: entries in memory until a checkpoint, then in entry logs; and the state of each
ledger.

It has no thread and no lock of its own. The storage of a bookie puts it behind both, the simulator drives it on virtual
time.
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
from fencepost.ledger.kernels import found
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.kernels.found import MISS, FoundRows, missing
from fencepost.ledger.records import EntryAdded, Record
from fencepost.ledger.rules.adding import lac_of_bookie
from fencepost.ledger.rules.codes import Code


class Checkpoint:
    """The batch that is written to an entry log. ``journal_start``: the file of the journal that begins after all
    records about it; 0 until there is one.
    """

    __slots__ = ("cache", "forgotten", "journal_start", "states")

    def __init__(self, cache: WriteCache, states: list[LedgerState], forgotten: set[int]) -> None:
        self.cache = cache
        self.states = states
        self.forgotten = forgotten
        self.journal_start = 0


class LedgerStore:
    """Entries and states of ledgers. ``flushing`` is the checkpoint that is being written, None if none is.

    ``compiled()`` says whether there are compiled loops by now. Changes are made by one thread at a time; what looks
    entries up may be called by any at any time.
    """

    def __init__(self, logs: EntryLogs, compiled: Callable[[], bool] = lambda: False, ahead: int = 16 << 20) -> None:
        """``ahead``: bytes of memory for entries that are read ahead."""
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
        """Take a record of the journal: its entry, and what it says of its ledger."""
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
        """As :meth:`apply`, for entries that arrived together; those of a ledger stand one after another."""
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
        """Forget a ledger, and all entries of it that were put so far."""
        self.cache.drop(ledger)
        self.states.pop(ledger, None)
        self._changed.discard(ledger)
        self.forgotten.add(ledger)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    @property
    def has_changed(self) -> bool:
        """Whether there is anything for a checkpoint to write."""
        return bool(len(self.cache) or self._changed or self.forgotten)

    def swap(self) -> Checkpoint:
        """Begin a checkpoint with all that has changed, while there is none. What changes from now on is for the next
        one.
        """
        states = [copy.copy(self.states[ledger]) for ledger in sorted(self._changed)]
        checkpoint = Checkpoint(self.cache, states, self.forgotten)
        self.flushing = (
            checkpoint  # before the cache, so that who looks into that first finds each entry in one of them
        )
        self.cache, self._changed, self.forgotten = write_cache(self.compiled(), self.cache), set(), set()
        return checkpoint

    def write(self, checkpoint: Checkpoint) -> Section:
        """Write what a checkpoint holds to an entry log; durable when that is synced. Raises ``OSError``."""
        forgotten = sorted(checkpoint.forgotten)
        return self.logs.write(checkpoint.cache.in_order(), checkpoint.states, forgotten, checkpoint.journal_start)

    def end(self, section: Section) -> None:
        """End the checkpoint that wrote a section: it is durable, and what is in it is found there from now on."""
        self.logs.commit(section)
        self.ahead.clear()  # before anybody looks behind the cache that was flushed
        self.flushing = None

    # -- reading ------------------------------------------------------------------------------------------------------

    def records(self) -> Iterator[Record]:
        """Records that come to what entry logs say of ledgers."""
        for _, state in sorted(self.logs.states.items()):
            yield from state.records()

    def look_up(self, ledger: int, entry_id: int, ahead: bool = True) -> tuple[Code, int, bytes | None]:
        """Find an entry, or, with entry id -1, the last of the ledger: OK, its id and its body; or ``NO_ENTRY`` or
        ``IO_ERROR``, the id that was asked for, and None. ``ahead``: those after it may be read, too.
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
        if ahead and body is not None and entry_id >= 0 and self.compiled():
            with suppress(Damage):
                self._read_ahead(epoch, ledger, [wanted], bytes_ahead(len(body), 1))
        return code, wanted if code is Code.OK else entry_id, body

    def cached(self, ledger: int, entry_id: int) -> bytes | None:
        """An entry that is in memory, None if it is not."""
        body = self.cache.get(ledger, entry_id)
        if body is None:
            flushing = self.flushing
            if flushing is not None and ledger not in self.forgotten:
                body = flushing.cache.get(ledger, entry_id)
        if body is None and self.ahead and not self._is_forgotten(ledger):
            body = self.ahead.get(ledger, entry_id)
        return body

    def cached_rows(self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64]) -> FoundRows:
        """Entries that are in memory, or are known to be nowhere. The others are a ``MISS``, and so is the last entry
        of a ledger (-1).
        """
        ledgers, entry_ids = np.ascontiguousarray(ledgers), np.ascontiguousarray(entry_ids)
        table = missing(entry_ids)
        blocks = self.cache.find(ledgers, entry_ids, table)
        _deny(self.forgotten, ledgers, table)
        flushing = self.flushing
        if flushing is not None:
            blocks = (blocks, flushing.cache.find(ledgers, entry_ids, table))
            _deny(flushing.forgotten, ledgers, table)
        return FoundRows(table, (blocks, self.ahead.find(ledgers, entry_ids, table)))

    def read_rows(self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], most: int = NO_LIMIT) -> FoundRows:
        """As :meth:`look_up` for many entries: for so many of the first ones that their bodies come to
        ``most`` bytes, or all.
        """
        ledgers, entry_ids = np.ascontiguousarray(ledgers), np.ascontiguousarray(entry_ids)
        if not self.compiled():
            return self._one_by_one(ledgers, entry_ids, FoundRows(missing(entry_ids), ()), most)
        epoch = self.ahead.epoch
        table, cached, _ = self.cached_rows(ledgers, entry_ids)
        is_missing = (table[:, found.CODE] == MISS) & (entry_ids >= 0)
        count, block = len(table), None
        try:
            count, errors, block = self.logs.read_rows(ledgers, entry_ids, table, most)
            if not errors:
                self._read_ahead_of(epoch, ledgers, entry_ids, table[:count], is_missing[:count], MANY)
        except Damage:
            return self._one_by_one(ledgers, entry_ids, FoundRows(table[:count], (cached, block)), most)
        rows = FoundRows(table[:count], (cached, block), block)
        return self._one_by_one(ledgers, entry_ids, rows, most) if errors or entry_ids.min(initial=0) < 0 else rows

    def look_up_now(self, ledger: int, entry_id: int) -> bytes | None:
        """An entry that no disk is needed for, None if it is none."""
        body = self.cached(ledger, entry_id)
        if body is None and self.compiled():
            rows = self.rows_now(np.array([ledger]), np.array([entry_id]))
            if rows.table[0, found.CODE] == Code.OK.value:
                body = rows.body(0)
        return body

    def rows_now(self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], most: int = NO_LIMIT) -> FoundRows:
        """The part of :meth:`read_rows` that is found without waiting for a disk: of entries that the operating system
        has in memory, too. The others are a ``MISS``, and so is what cannot be read.
        """
        ledgers, entry_ids = np.ascontiguousarray(ledgers), np.ascontiguousarray(entry_ids)
        epoch = self.ahead.epoch
        table, cached, _ = self.cached_rows(ledgers, entry_ids)
        if not self.compiled():
            return FoundRows(table, cached)
        are_few = len(table) < SEVERAL
        is_missing = (table[: SEVERAL - 1, found.CODE] == MISS) & (entry_ids[: SEVERAL - 1] >= 0)
        count, errors, block = len(table), 0, None
        try:
            count, errors, block = self.logs.read_rows(ledgers, entry_ids, table, most, now=True)
            if are_few and block is not None and not errors:
                self._read_ahead_of(epoch, ledgers, entry_ids, table[:count], is_missing[:count], SEVERAL, now=True)
        except Damage:
            pass  # a read of what is missing reports it
        if errors:
            table[table[:, found.CODE] == Code.IO_ERROR.value, found.CODE] = MISS
        return FoundRows(table[:count], (cached, block), block)

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
        """As :meth:`_read_ahead`, given what was looked up and has come to a table, and what of it was not in
        memory.
        """
        asked = np.flatnonzero(was_missing)
        if len(asked):
            size = bytes_ahead(int(table[:, found.SIZE].sum()), len(table), many)
            ledger = ledgers[asked[-1]]
            self._read_ahead(epoch, int(ledger), entry_ids[asked[ledgers[asked] == ledger]].tolist(), size, now)

    def _read_ahead(self, epoch: int, ledger: int, entry_ids: list[int], size: int, now: bool = False) -> None:
        """Read up to so many bytes of what is likely to be asked for after entries that were not in memory.

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
        self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], rows: FoundRows, most: int
    ) -> FoundRows:
        """Look up by itself what was missed so far, or could not be read."""
        table, blocks = rows.table, [*rows.blocks]
        codes = table[:, found.CODE]
        for row in np.flatnonzero((codes == MISS) | (codes == Code.IO_ERROR.value)).tolist():
            code, found_id, body = self.look_up(int(ledgers[row]), int(entry_ids[row]), ahead=False)
            data = np.frombuffer(body or b"", np.uint8)
            blocks.append(data)
            table[row] = code.value, found_id, data.ctypes.data if body else 0, len(data)
            most -= len(data)
            if most <= 0:
                return FoundRows(table[: row + 1], blocks)
        return FoundRows(table, blocks)

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
        """The ledgers that have entries in entry logs. Of some of them nothing else may be known: those that were
        deleted before a compaction.
        """
        return (ledger for ledger in self.logs.index.ledgers() if not self._is_forgotten(ledger))

    def _is_forgotten(self, ledger: int) -> bool:
        """Whether what entry logs have of a ledger does not count any more."""
        flushing = self.flushing
        return ledger in self.forgotten or (flushing is not None and ledger in flushing.forgotten)


def _deny(forgotten: set[int], ledgers: NDArray[np.int64], table: NDArray[np.int64]) -> None:
    """Entries of forgotten ledgers that were not found so far are nowhere."""
    if forgotten:
        denied = np.isin(ledgers, [*forgotten]) & (table[:, found.CODE] == MISS) & (table[:, found.ENTRY_ID] >= 0)
        table[denied, found.CODE] = Code.NO_ENTRY.value
