"""A bookie's storage: its journal, its entries and what it knows of its ledgers, on the disks of one machine.

The driver of a bookie opens it, gives its role every one of :meth:`Storage.records` as a ``Replayed``, calls
:meth:`Storage.start`, and from then on carries out ``Journal`` and ``JournalAdds`` by :meth:`Storage.take`, and
look-ups by the methods of the same names.

Two workers are behind it. One writes the journal: whatever came while the last sync ran is the next group. The other
one takes checkpoints: the write cache is swapped for an empty one, the journal goes on in a new file, what the cache
held is written to an entry log and synced, and then the files of the journal before are removed. Each is a generator
(:mod:`fencepost.ledger.disk.workers`): a bookie has a thread for each, and the simulator does the same work on virtual
time.

No write and no sync is retried and nothing is hidden: when one has failed, ``failed`` is called once, nothing is called
back any more, and the process must end. Room is another thing. All of it is taken before anything is written there, and
where there is none, the reserve of the disk is used (:mod:`fencepost.ledger.disk.reserve`), ``full`` is told, and, once
the reserve is used up too, the worker waits until there is room.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fencepost.errors import SystemFailure
from fencepost.files.folders import Files, NoRoom, OsFiles, Part, Room
from fencepost.ledger.disk.collection import Collected, Collection
from fencepost.ledger.disk.entry_logs import NO_LIMIT, EntryLogs, known_journals
from fencepost.ledger.disk.index import Index
from fencepost.ledger.disk.journal import Damage, LaterFormat, framed
from fencepost.ledger.disk.journal_files import JournalFiles, journals_in, read_journal, read_what_is_left
from fencepost.ledger.disk.ledger_store import Checkpoint, LedgerStore
from fencepost.ledger.disk.records import decode, decode_rows, encode
from fencepost.ledger.disk.reserve import LEAST, Reserve
from fencepost.ledger.disk.settings import MIB, StorageSettings
from fencepost.ledger.disk.workers import WOKEN, Disk, Process, Threads, Work, Worker, carried_out
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.kernels.found import CODE, FoundRows
from fencepost.ledger.records import EntryAdded, LacWritten, Record
from fencepost.ledger.rules.adding import is_journalled
from fencepost.ledger.rules.codes import Code

T = TypeVar("T")

_log = logging.getLogger("fencepost.ledger.disk")

REST = 0.05
"""Seconds without a record after which the journal gets the empty group that proves the last one to be durable."""


PATIENCE = 1.0
"""Seconds after which a worker that has no room looks for it again."""


JOURNAL, CHECKPOINT = "journal", "checkpoint"
"""The names of the workers."""

JOURNAL_RESERVE = "journal.reserve"
LEDGER_RESERVE = "entry-logs.reserve"
_BESIDE_ENTRIES = 2
"""MiB for what an entry log says of ledgers."""

FILLS = 1.0
"""Seconds between looks at whether a disk has so little room that a reserve has to be taken."""

GROUP = 8 * MIB
"""Bytes of a group of the journal at the most. Large entries that came together are synced together."""
_SLICE = 0.0002


def _ignore(*_: object) -> None:
    """The default of callbacks: do nothing."""


class Storage:
    """One bookie's directories, opened.

    ``synced(position)``: all records up to a position are durable. ``failed(reason)``: the storage cannot go on.
    ``busy(is_busy)``: the write cache is full while its other half is still being flushed, and whoever feeds it should
    stop reading requests until it is not busy any more; what was taken until then is stored all the same.
    ``full(is_full)``: a disk is fuller than ``diskUsageThreshold`` or its reserve is in use, or all have room again.
    ``took(what, seconds)``: a ``journal sync`` or a ``checkpoint`` took so long. All five are called by workers,
    except that ``busy`` may be called within :meth:`take`.
    """

    def __init__(
        self,
        settings: StorageSettings,
        *,
        synced: Callable[[int], None] = _ignore,
        failed: Callable[[str], None] = _ignore,
        busy: Callable[[bool], None] = _ignore,
        full: Callable[[bool], None] = _ignore,
        took: Callable[[str, float], None] = _ignore,
        journal_files: Files | None = None,
        ledger_files: Files | None = None,
        compiled: Callable[[], bool] = lambda: False,
        has_lost_files: bool = False,
        process: Process | None = None,
    ) -> None:
        """Lock the directories and read what is in them. ``journal_files`` and ``ledger_files`` stand in for them in
        tests and in the simulator, which has a ``process`` of its own, too.

        ``has_lost_files``: one of the directories may have been lost, and what is in the other is to be taken up by
        itself. ``compiled()`` says whether :mod:`fencepost.ledger.kernels.cache` can be imported at once, since its
        loops are compiled.

        Raises :class:`fencepost.SystemFailure`, with one line, if another process has them, if something that was
        durable is missing or damaged, or if they cannot be read.
        """
        self.settings = settings
        self.synced = synced
        self.failed = failed
        self.busy = busy
        self.full = full
        self.took = took
        self.is_full = False
        self._has_warned = False
        self._half = int(settings.write_cache_max_size_mb * MIB) // 2
        self._process = process or Threads()
        with _one_line(settings.ledger_directory):
            self._ledger_files = ledger_files or OsFiles(settings.ledger_directory)
            self._journal_files = journal_files or OsFiles(settings.journal_directory)
            try:
                self._held = self._process.hold(settings.ledger_directory)
            except BlockingIOError:
                raise SystemFailure(f"{settings.ledger_directory} is in use by another bookie") from None
        self._journal_reserve = Reserve(self._journal_reserve_used)
        self._ledger_reserve = Reserve(lambda: self._tell_full(True))
        self._reserves = ((self._journal_reserve, self._journal_files), (self._ledger_reserve, self._ledger_files))
        self._waiting_for_room: set[str] = set()
        """The workers that found none, whatever a disk says of its room: there are quotas."""
        self._telling = threading.Lock()
        """Held to tell that a disk is full, or is not any more."""
        try:
            with _one_line(settings.ledger_directory):
                known = known_journals(self._ledger_files, {*journals_in(self._journal_files)}, has_lost_files)
                self._logs = EntryLogs(
                    self._ledger_files, Index(), known, settings.log_size_limit, has_lost_files, self._ledger_reserve
                )
            with _one_line(settings.journal_directory):
                read = read_what_is_left if has_lost_files else read_journal
                self._found = read(self._journal_files, self._logs.journal_start)
            if has_lost_files and self._found.first:
                # No section that is written from now on relies on files of the journal that are gone.
                self._logs.journal_start = self._found.first
            self._open_reserves()
        except BaseException:
            self._held.release()
            raise
        self._collection = Collection(self._logs, compiled, self._process.now)
        self._next_minor = self._process.now() + settings.minor_compaction_interval
        self._next_major = self._process.now() + settings.major_compaction_interval
        self.ledger_store = LedgerStore(self._logs, compiled, settings.read_ahead_cache_max_size_mb * MIB)

        self._lock = threading.Lock()
        """Held to change what several threads use: all that follows, and the ledgers."""
        self._is_ending = False
        """Whether the storage is being closed, and nobody waits for room any more."""
        self._queue: list[tuple[int, Record | EntryRows | Checkpoint]] = []
        self._queued = 0
        """The records that were queued so far."""
        self._queued_bytes = 0
        """The bytes of the entries that are queued now."""
        self._idle = False
        """Whether the worker of the journal is to be woken when there is a record."""
        self._checkpoint_wanted = False
        self._checkpoints_begun = 0
        self._checkpoints_done = 0
        self._awaited: list[tuple[int, Callable[[], None]]] = []
        """Who is told that so many checkpoints are done."""
        self._is_busy = False
        self._closing = False
        self._failure = ""

        self._writing = threading.Lock()
        """Held to write to entry logs."""
        self._at_work: dict[str, Worker] = {}

    # -- start and end ------------------------------------------------------------------------------------------------

    def records(self) -> Iterator[Record]:
        """The records that the role is to be given as ``Replayed``, in order: the state of its ledgers, then the
        records of the journal since.

        The storage keeps the entries that are in the journal by itself; the role hears of their LACs. Raises
        :class:`fencepost.SystemFailure`.
        """
        yield from self.ledger_store.records()
        for group in self._found.groups:
            try:
                for record in decode_rows(group):
                    if isinstance(record, EntryRows):
                        self._keep_replayed(record)
                        yield from (LacWritten(ledger, lac, b"") for ledger, lac in record.lacs())
                    else:
                        self.ledger_store.apply(record)
                        yield record
            except ValueError as error:
                raise SystemFailure(
                    f"{self.settings.journal_directory}: a record cannot be understood: {error}"
                ) from None

    @property
    def has_journal(self) -> bool:
        """Whether there is a journal, and be it an empty one. To be asked before :meth:`start`, which makes it."""
        return self._found.number > 0

    def unproven(self) -> Iterator[Record]:
        """The last records of the journal, which may never have been synced. To be asked before :meth:`start`."""
        return map(decode, self._found.unproven)

    def start(self) -> None:
        """Go to work: the role has been given all of :meth:`records`. Raises :class:`fencepost.SystemFailure`."""
        settings = self.settings
        with _one_line(settings.journal_directory):
            self.journal = JournalFiles(
                self._journal_files,
                self._found,
                synced=settings.journal_sync_data,
                unit=int(settings.journal_pre_alloc_size_mb * MIB),
                draw=self._process.draw,
                reserve=self._journal_reserve,
            )
            self.journal.remove_before(self._logs.journal_start)
            self._logs.begin()
        del self._found
        with self._lock:  # none looks for another before all are there
            for name, work in ((JOURNAL, self._write_journal()), (CHECKPOINT, self._take_checkpoints())):
                self._at_work[name] = self._process.begin(name, self._guarded(name, work), self._fail)

    def close(self) -> bool:
        """Flush everything, end the threads and let others have the directories. Records that were queued are called
        back before.

        Does as much of that as is left to do if the storage has failed. Gives whether everything is in entry logs.
        """
        flushed = False
        self._is_ending = True
        if self._at_work:
            self._wake_workers()
            with contextlib.suppress(SystemFailure):
                self.checkpoint()
                flushed = True
            self.end()
            for worker in self._at_work.values():
                worker.join()
            self._at_work = {}
        self._closing = True
        self._collection.wait()
        self._held.release()
        return flushed and not self._failure

    def end(self) -> None:
        """Let the workers end, once all records are written that are queued."""
        with self._lock:
            self._closing = True
        self._wake_all()

    # -- what the role wants: called by one thread, and never blocks for a disk ---------------------------------------

    def take(self, records: Sequence[tuple[int, Record | EntryRows]]) -> None:
        """Queue records that arrived together, each with its position, and entries by rows with that of the last of
        them. ``synced`` is called with a position, or a later one, when it is durable; entries are found from now on,
        and the last one with an id is.
        """
        with self._lock:
            for _, record in records:
                if type(record) is EntryRows:
                    self.ledger_store.apply_rows(record)
                    self._queued += len(record) - 1
                    self._queued_bytes += len(record.data)
                else:
                    self.ledger_store.apply(record)  # type: ignore[arg-type]
                    if type(record) is EntryAdded:
                        self._queued_bytes += len(record.body)
            self._queue += records
            self._queued += len(records)
            if records:
                self._wake_journal()
            if (self.ledger_store.cache.size < self._half and not self._checkpoint_wanted) or not self._make_room():
                return
        self.busy(True)

    # -- reading: may block for a read of the disk, and may be called by any thread -----------------------------------

    def look_up(self, ledger: int, entry_id: int) -> tuple[Code, int, bytes | None]:
        """Find an entry, or, with entry id -1, the last of the ledger: OK, its id and its body; or ``NO_ENTRY`` or
        ``IO_ERROR``, the id that was asked for, and None.
        """
        return self.ledger_store.look_up(ledger, entry_id)

    def look_up_now(self, ledger: int, entry_id: int) -> bytes | None:
        """An entry that can be had without waiting for a disk, as the operating system has it in memory, or this does;
        None if it cannot.
        """
        return self.ledger_store.look_up_now(ledger, entry_id)

    def rows_now(self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], most: int = NO_LIMIT) -> FoundRows:
        """The part of :meth:`read_rows` that is found without waiting for a disk. Rows that :meth:`read_rows` must be
        asked for have the code ``MISS``.
        """
        return self.ledger_store.rows_now(ledgers, entry_ids, most)

    def read_rows(self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], most: int = NO_LIMIT) -> FoundRows:
        """As :meth:`look_up` for many entries, given the ledger and the id of each, or -1 for the last of the
        ledger.

        Only so many of the first rows are answered that their bodies come to ``most`` bytes: the last of them may go
        beyond.
        """
        return self.ledger_store.read_rows(ledgers, entry_ids, most)

    def following(self, ledger: int, first: int, count: int, size: int) -> Callable[[int], tuple[Code, bytes | None]]:
        """Look-ups of entries of a ledger by their ids, for a batch read from the ``first`` one on: up to ``count``
        of them, or ``size`` bytes, are read at once.
        """
        codes: list[int] = []
        with contextlib.suppress(Damage, OSError):
            last = self.ledger_store.last(ledger)
            if first >= 0 and last is not None and first <= last:
                ids = first + np.arange(min(count, last - first + 1))
                rows = self.read_rows(np.full(len(ids), ledger), ids, size)
                codes = rows.table[:, CODE].tolist()

        def look_up(entry_id: int) -> tuple[Code, bytes | None]:
            row = entry_id - first
            if 0 <= row < len(codes):
                return Code(codes[row]), rows.body(row) if codes[row] == Code.OK.value else None
            code, _, body = self.look_up(ledger, entry_id)
            return code, body

        return look_up

    def entries_of(self, ledger: int) -> list[int]:
        """The ids of the entries of a ledger, in order. Raises :class:`fencepost.SystemFailure` if the index cannot be
        read.
        """
        with _one_line(self.settings.ledger_directory):
            return self.ledger_store.entries_of(ledger)

    def ledgers(self) -> list[int]:
        """The ledgers that something is known of, or that have entries, in order."""
        with self._lock:
            known = set(self.ledger_store.states)
        return sorted(known.union(self.ledger_store.with_entries()))

    @contextlib.contextmanager
    def room_for_note(self) -> Iterator[None]:
        """There is room for a small file beside the entry logs meanwhile, of the reserve if there is no other. Raises
        ``OSError``.
        """
        with self._looking_for_room():
            if self._ledger_files.room().free < LEAST:
                self._ledger_reserve.give(LEAST)
            yield

    def room(self) -> tuple[Room, Room]:
        """The room on the disks of the journal and of the entry logs. Raises ``OSError``."""
        return self._journal_files.room(), self._ledger_files.room()

    # -- housekeeping: blocks, and may be called by any thread ---------------------------------------------------------

    def forget(self, ledger: int) -> None:
        """A ledger was deleted: nothing of it is found any more, and :meth:`collect` gives its room back. Never
        blocks.
        """
        with self._lock:
            self.ledger_store.forget(ledger)

    def checkpoint(self, always: bool = False) -> None:
        """Make everything that was stored so far durable in entry logs, which say from where on the journal is needed
        besides; ``always``: also if nothing was. Raises :class:`fencepost.SystemFailure` if that fails.
        """
        done = threading.Event()
        self.begin_checkpoint(done.set, always)
        done.wait()
        if self._has_ended():
            raise SystemFailure(self._failure or "the storage is closed")

    def begin_checkpoint(self, done: Callable[[], None], always: bool = False) -> None:
        """As :meth:`checkpoint`, and calls back, once that is over or the storage has failed or ends."""
        with self._lock:
            is_needed = always or self.ledger_store.flushing is not None or self.ledger_store.has_changed
            if is_needed and not self._has_ended():
                self._awaited.append((self._checkpoints_begun + 1, done))
                self._checkpoint_wanted = True
                self._begin_checkpoint()
                return
        done()

    def collect(self) -> Collected:
        """Give the room of forgotten ledgers back: remove entry logs of which nothing is in use any more, and compact
        those of which little is, when the time of a minor or a major compaction has come. Raises
        :class:`fencepost.SystemFailure`.
        """
        if self.ledger_store.forgotten:
            self.checkpoint()
        settings, now = self.settings, self._process.now()
        threshold = 0.0
        if now >= self._next_minor:
            threshold, self._next_minor = settings.minor_compaction_threshold, now + settings.minor_compaction_interval
        if now >= self._next_major:
            threshold, self._next_major = settings.major_compaction_threshold, now + settings.major_compaction_interval
        return carried_out(self.collecting(threshold))

    def collecting(self, threshold: float) -> Work[Collected]:
        """The work of :meth:`collect`: compacts entry logs of which at most a share of ``threshold`` is in use."""
        settings = self.settings
        try:
            collected = yield from self._collection.run(
                threshold, self._writing, settings.compaction_rate_by_bytes, self._has_ended
            )
        except OSError as error:
            self._fail(f"{settings.ledger_directory}: {_reason(error)}")
            raise SystemFailure(self._failure) from None
        return collected

    # -- parts of the above -------------------------------------------------------------------------------------------

    def _has_ended(self) -> bool:
        return self._closing or bool(self._failure)

    def _make_room(self) -> bool:
        """Begin a checkpoint, if that can be; whether the cache is full once more and the storage is busy from now
        on.
        """
        self._begin_checkpoint()
        if self.ledger_store.flushing is None or self._is_busy or self.ledger_store.cache.size < self._half:
            return False
        self._is_busy = True
        return True

    def _begin_checkpoint(self) -> None:
        """Begin a checkpoint, if none is under way; otherwise do so later."""
        if self.ledger_store.flushing is not None:
            self._checkpoint_wanted = True
            return
        self._checkpoint_wanted = False
        self._checkpoints_begun += 1
        self._queue.append((0, self.ledger_store.swap()))
        self._wake_journal()

    def _wake_journal(self) -> None:
        if self._idle:
            self._idle = False
            self._at_work[JOURNAL].wake()

    def _wake_workers(self) -> None:
        for worker in self._at_work.values():
            worker.wake()

    def _wake_all(self) -> None:
        """The storage ends or has failed: nobody waits for anything any more."""
        self._wake_workers()
        with self._lock:
            awaited, self._awaited = self._awaited, []
        for _, done in awaited:
            done()

    def _keep_replayed(self, rows: EntryRows) -> None:
        """Keep entries that were in the journal."""
        with self._lock:
            self.ledger_store.apply_rows(rows)
        if self.ledger_store.cache.size >= self._half:
            self._flush_replayed()

    def _flush_replayed(self) -> None:
        """Make room in the cache while the journal is replayed, which is still needed from where it was."""
        with self._lock:
            checkpoint = self.ledger_store.swap()
        checkpoint.journal_start = self._logs.journal_start
        with _one_line(self.settings.ledger_directory):
            section = self.ledger_store.write(checkpoint)
            self._logs.sync(section)
            self.ledger_store.end(section)

    def _fail(self, reason: str, tells: bool = True) -> None:
        with self._lock:
            first = tells and not self._failure
            self._failure = self._failure or reason
        self._wake_all()
        if first:
            self.failed(reason)

    def _guarded(self, name: str, work: Work[None]) -> Work[None]:
        """Do some work; a disk that fails then is a failure of the storage."""
        try:
            yield from work
        except OSError as error:
            # Who ends the storage, and does not wait for room, is told by the end alone.
            tells = not (isinstance(error, NoRoom) and self._is_ending)
            self._fail(f"{name} cannot be written: {_reason(error)}", tells)

    # -- room on the disks ---------------------------------------------------------------------------------------------

    def _open_reserves(self) -> None:
        """Take up the reserves: for what may be in memory, and for two files of the journal, one of which lets a
        checkpoint remove those before. Small disks have no more than is left where they count as full.
        """
        settings = self.settings
        share = (1 - settings.disk_usage_threshold) / 2
        for reserve, files, path, name, wanted in (
            (
                self._journal_reserve,
                self._journal_files,
                settings.journal_directory,
                JOURNAL_RESERVE,
                int(2 * settings.journal_pre_alloc_size_mb * MIB),
            ),
            (
                self._ledger_reserve,
                self._ledger_files,
                settings.ledger_directory,
                LEDGER_RESERVE,
                int((settings.write_cache_max_size_mb + _BESIDE_ENTRIES) * MIB),
            ),
        ):
            with _one_line(path):
                reserve.open(files, name, min(wanted, int(share * files.room().total)))

    def _journal_reserve_used(self) -> None:
        """A checkpoint gives the room of the journal back, but for one file."""
        self._tell_full(True)
        with self._lock:
            if self._at_work and self.ledger_store.flushing is None:
                self._begin_checkpoint()

    def _tell_full(self, is_full: bool) -> None:
        with self._telling:
            if is_full is not self.is_full:
                self.is_full = is_full
                self.full(is_full)

    def _with_room(self, name: str, work: Callable[[], T]) -> Work[T]:
        """Do some work of a worker: again and again, where there is no room for it. Raises ``NoRoom`` if the storage
        ends before there is.
        """
        while True:
            yield Disk.WRITE
            try:
                done = work()
            except NoRoom as error:
                yield from self._wait_for_room(name, error)
            else:
                self._waiting_for_room.discard(name)
                return done

    def _wait_for_room(self, name: str, error: NoRoom) -> Work[None]:
        """A worker has found no room, and looks again after a while. Raises the error if the storage ends."""
        if self._is_ending or self._failure:
            raise error
        if name not in self._waiting_for_room:
            _log.warning("the %s waits: %s", name, error.strerror)
        self._waiting_for_room.add(name)
        with self._looking_for_room():
            self._tell_full(True)
            yield from self._rest(PATIENCE)

    def _rest(self, seconds: float) -> Work[None]:
        """Wait, whoever is woken meanwhile, unless the storage ends or fails."""
        end = self._process.now() + seconds
        while self._process.now() < end and not (self._is_ending or self._failure):
            yield end

    @contextlib.contextmanager
    def _looking_for_room(self) -> Iterator[None]:
        """Somebody looks for room meanwhile, and no reserve takes it."""
        with self._journal_reserve.held(), self._ledger_reserve.held():
            yield

    def _look_at_room(self) -> None:
        """Compare the room on the disks with the thresholds. A reserve counts as room."""
        settings = self.settings
        usage = 0.0
        for reserve, files in self._reserves:
            room = files.room()
            usage = max(usage, Room(room.total, room.free + reserve.size).usage)
        if usage >= settings.disk_usage_warn_threshold and not self._has_warned:
            _log.warning(
                "a disk is %.1f %% full: %s, %s", 100 * usage, settings.journal_directory, settings.ledger_directory
            )
        self._has_warned = usage >= settings.disk_usage_warn_threshold
        threshold = settings.disk_usage_lwm_threshold if self.is_full else settings.disk_usage_threshold
        is_whole = all(reserve.is_whole for reserve, _ in self._reserves)
        self._tell_full(usage >= threshold or not is_whole or bool(self._waiting_for_room))

    # -- the worker of the journal ------------------------------------------------------------------------------------

    def _write_journal(self) -> Work[None]:
        proven = True
        last_group = done = 0
        while True:
            yield from self._wait_for_company(done + last_group // 2)
            has_ended = self._has_ended()
            queue = self._take_queue()
            if not queue and has_ended:
                break
            if not queue:
                yield from self._wait_for_records(WOKEN if proven else self._process.now() + REST)
                queue = self._take_queue()
            last_group, done = self._queued - done, self._queued
            if self._failure:
                return
            if queue:
                yield from self._write_queued(queue)
                proven = False
            elif not proven:
                yield from self._prove()
                proven = True
        if not self._failure and not proven:
            yield from self._prove()

    def _prove(self) -> Work[None]:
        """Write an empty group, which proves that the last one is durable."""
        yield from self._with_room(JOURNAL, self.journal.write)
        yield Disk.SYNC
        self.journal.sync()

    def _take_queue(self) -> list[tuple[int, Record | EntryRows | Checkpoint]]:
        with self._lock:
            queue, self._queue, self._queued_bytes = self._queue, [], 0
        return queue

    def _wait_for_records(self, until: float) -> Work[None]:
        """Wait until a time, or until something is queued or the storage ends."""
        with self._lock:
            self._idle = not self._queue and not self._has_ended()
        if self._idle:
            yield until
            self._idle = False

    def _wait_for_company(self, records: int) -> Work[None]:
        """Wait a little for a group of this size, if one has begun: half of the last one may be on its way back from
        those it confirmed. What is enough bytes for a group does not wait.
        """
        if self._queue and self._queued < records:
            now, most = self._process.now, self.settings.journal_buffered_writes_threshold
            end = now() + self.settings.journal_max_group_wait_msec / 1000
            while self._queued < records and self._queued_bytes < most and now() < end:
                yield now() + _SLICE

    def _write_queued(self, queue: list[tuple[int, Record | EntryRows | Checkpoint]]) -> Work[None]:
        """Write records in as few groups as may be, and go on in a new file where a checkpoint begins."""
        settings = self.settings
        most_bytes = max(GROUP, settings.journal_buffered_writes_threshold)
        most_records = settings.journal_buffered_entries_threshold
        journals_adds = settings.journal_write_data
        group: list[Part] = []
        single: list[bytes] = []
        size, count, position = 0, 0, 0
        for at, record in queue:
            if isinstance(record, Checkpoint):
                yield from self._write_group(group, single, position)
                size, count, position = 0, 0, 0
                record.journal_start = yield from self._with_room(JOURNAL, self.journal.roll)
                self._at_work[CHECKPOINT].wake()
                continue
            position = at
            if type(record) is EntryRows:
                if not is_journalled(journals_adds, record.recovery):
                    continue
                if single:
                    group.append(framed(single))
                    single.clear()
                group.append(record.view)
                size += len(record.data)
                count += len(record)
            elif type(record) is not EntryAdded or is_journalled(journals_adds, record.recovery):
                single.append(encode(record))  # type: ignore[arg-type]
                size += len(single[-1])
                count += 1
            if size >= most_bytes or count >= most_records:
                yield from self._write_group(group, single, position)
                size, count, position = 0, 0, 0
        yield from self._write_group(group, single, position)

    def _write_group(self, group: list[Part], single: list[bytes], position: int) -> Work[None]:
        """Write a group, of framed records and then single ones, sync it, and report that; both are empty
        afterwards.
        """
        if single:
            group.append(framed(single))
            single.clear()
        if group:
            yield from self._with_room(JOURNAL, functools.partial(self.journal.gather, group))
            group.clear()
            since = self._process.now()
            yield Disk.SYNC
            self.journal.sync()
            self.took("journal sync", self._process.now() - since)
        if position and not self._failure:
            self.synced(position)
        if self.journal.end >= self.settings.journal_max_size_mb * MIB:
            # The next file proves the sync, which is reported before.
            yield from self._with_room(JOURNAL, self.journal.roll)

    # -- the worker of checkpoints ------------------------------------------------------------------------------------

    def _take_checkpoints(self) -> Work[None]:
        settings, now = self.settings, self._process.now
        interval, looks = settings.flush_interval / 1000, settings.disk_check_interval / 1000
        next_look = now()
        # A start on a full disk took of the reserve, and the journal of before has room to give back.
        next_flush = next_look + (interval if self._journal_reserve.is_whole else 0)
        next_fill = next_look
        while not self._failure:
            if now() >= min(next_look, next_fill):
                for reserve, files in self._reserves:
                    reserve.fill(files)
                next_fill = now() + FILLS
            if now() >= next_look:
                self._look_at_room()
                next_look = now() + looks
            checkpoint = self.ledger_store.flushing
            if checkpoint is not None and checkpoint.journal_start:
                yield from self._flush(checkpoint)
                next_flush = now() + interval
            elif self._closing:
                return
            elif checkpoint is None and now() >= next_flush:
                next_flush = now() + interval
                self._flush_what_changed()
            else:
                next_wake = min(next_look, next_fill)
                yield next_wake if checkpoint is not None else min(next_flush, next_wake)

    def _flush_what_changed(self) -> None:
        with self._lock:
            if self.ledger_store.has_changed:
                self._begin_checkpoint()

    def _flush(self, checkpoint: Checkpoint) -> Work[None]:
        """Write a checkpoint and end it."""
        since = self._process.now()
        yield from self._write(checkpoint)
        self.took("checkpoint", self._process.now() - since)
        yield Disk.WRITE
        self.journal.remove_before(checkpoint.journal_start)
        self._journal_reserve.fill(self._journal_files)  # before others have it
        with self._lock:
            self._checkpoints_done += 1
            if self.ledger_store.cache.size >= self._half or self._checkpoint_wanted:
                self._begin_checkpoint()
            was_busy, self._is_busy = self._is_busy, False
            done = [call for number, call in self._awaited if number <= self._checkpoints_done]
            self._awaited = [each for each in self._awaited if each[0] > self._checkpoints_done]
        for call in done:
            call()
        if was_busy:
            self.busy(False)

    def _write(self, checkpoint: Checkpoint) -> Work[None]:
        """Write a checkpoint to an entry log, in turn with others that write there, and may give room back."""
        while True:
            yield self._writing
            try:
                yield Disk.WRITE
                section = self.ledger_store.write(checkpoint)
                yield Disk.SYNC
                self._logs.sync(section)
                self.ledger_store.end(section)
            except NoRoom as error:
                lacking = error
            else:
                break
            finally:
                self._writing.release()
            yield from self._wait_for_room(CHECKPOINT, lacking)
        self._waiting_for_room.discard(CHECKPOINT)


@contextlib.contextmanager
def _one_line(path: str) -> Iterator[None]:
    """Say in one line what is wrong with a directory."""
    try:
        yield
    except NoRoom as error:
        raise SystemFailure(f"{path}: {error.strerror}: make room, and start the bookie again") from None
    except LaterFormat as later:
        raise SystemFailure(f"{path}: {later}") from None
    except Damage as damage:
        raise SystemFailure(f"{path}: {damage}; the bookie does not start, see to its disk") from damage
    except OSError as error:
        raise SystemFailure(f"{path}: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
