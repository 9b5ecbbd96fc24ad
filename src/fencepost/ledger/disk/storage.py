"""A bookie's storage: its journal, its entries and its ledger states, on the disks of one machine.

The driver of a bookie opens it, passes every one of :meth:`Storage.records` to its role as ``Replayed``, and calls
:meth:`Storage.start`. Then it carries out ``Journal`` and ``JournalAdds`` with :meth:`Storage.take`, and look-ups with
the methods of the same names.

There are two workers. One writes the journal in groups: the records that arrive during one sync form the next group.
The other takes checkpoints. It swaps the write cache for an empty one, rolls the journal to a new file, writes the old
cache to an entry log, syncs that, and removes the earlier journal files. Each is a generator
(:mod:`fencepost.ledger.disk.workers`). A bookie runs each in a thread; the simulator runs them on virtual time.

No write or sync is retried, and no failure is hidden. After a failure, ``failed`` is called once, no other callback
follows, and the process must end. A full disk is different. All space is allocated before it is written. If there is
none, the worker uses the disk's reserve (:mod:`fencepost.ledger.disk.reserve`) and ``full`` is called. Once the reserve
is used up too, the worker waits for space.
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
from fencepost.ledger.disk.journal_files import JournalFiles, journals_in, read_journal, read_partial_journal
from fencepost.ledger.disk.ledger_store import Checkpoint, LedgerStore
from fencepost.ledger.disk.records import decode, decode_rows, encode
from fencepost.ledger.disk.reserve import LEAST, Reserve
from fencepost.ledger.disk.settings import MIB, StorageSettings
from fencepost.ledger.disk.workers import WOKEN, Disk, Process, Threads, Work, Worker, run_work
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.kernels.results import CODE, LookupResults
from fencepost.ledger.records import EntryAdded, LacWritten, Record
from fencepost.ledger.rules.adding import is_journalled
from fencepost.ledger.rules.codes import Code

T = TypeVar("T")

_log = logging.getLogger("fencepost.ledger.disk")

REST = 0.05
"""Seconds without records after which the journal gets an empty group. Each group proves that the one before it is
durable.
"""


PATIENCE = 1.0
"""Seconds between attempts of a worker that waits for disk space."""


JOURNAL, CHECKPOINT = "journal", "checkpoint"
"""The names of the workers."""

JOURNAL_RESERVE = "journal.reserve"
LEDGER_RESERVE = "entry-logs.reserve"
_LEDGER_STATES = 2
"""MiB of the reserve for the ledger states in an entry log, besides its entries."""

FILL_INTERVAL = 1.0
"""Seconds between checks whether a reserve is needed."""

GROUP = 8 * MIB
"""The most bytes in a group of the journal, so that large entries that arrive together share a sync."""


def _ignore(*_: object) -> None:
    """The default callback: do nothing."""


class Storage:
    """The open directories of one bookie.

    ``synced(position)``: all records up to a position are durable. ``failed(reason)``: the storage cannot go on.
    ``busy(is_busy)``: the write cache is full, and the previous one is still being flushed. The caller should stop
    reading requests until it is called with False; records taken until then are still stored. ``full(is_full)``: True
    when a disk is fuller than ``diskUsageThreshold`` or its reserve is in use, and False when all disks have space
    again. ``took(what, seconds)``: the duration of a ``journal sync`` or a ``checkpoint``. Workers call all five;
    ``busy`` may also be called within :meth:`take`.
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
        """Lock the directories and read their files. Tests and the simulator pass ``journal_files`` and
        ``ledger_files`` instead; the simulator also passes its own ``process``.

        ``has_lost_files``: one of the directories may have been lost, so the other is used alone. ``compiled()`` says
        whether :mod:`fencepost.ledger.kernels.cache` is compiled and can be imported without delay.

        Raises :class:`fencepost.SystemFailure`, with one line, if another process has locked them, if something durable
        is missing or damaged, or if they cannot be read.
        """
        self.settings = settings
        self.synced = synced
        self.failed = failed
        self.busy = busy
        self.full = full
        self.took = took
        self.is_full = False
        self._has_warned = False
        self.usage = 0.0
        """The share in use of the fullest disk, as of the last check."""
        self._flush_size = int(settings.write_cache_max_size_mb * MIB) // 2
        """The bytes at which the write cache is flushed. The other half is for the cache being flushed."""
        self._process = process or Threads()
        with _system_failure(settings.ledger_directory):
            self._ledger_files = ledger_files or OsFiles(settings.ledger_directory)
            self._journal_files = journal_files or OsFiles(settings.journal_directory)
            try:
                self._directory_lock = self._process.hold(settings.ledger_directory)
            except BlockingIOError:
                raise SystemFailure(f"{settings.ledger_directory} is in use by another bookie") from None
        self._journal_reserve = Reserve(self._journal_reserve_used)
        self._ledger_reserve = Reserve(lambda: self._set_full(True))
        self._reserves = ((self._journal_reserve, self._journal_files), (self._ledger_reserve, self._ledger_files))
        self._waiting_for_room: set[str] = set()
        """Workers that found no space. The disk may still report free space, because of quotas."""
        self._full_lock = threading.Lock()
        """Held while ``full`` is called."""
        try:
            with _system_failure(settings.ledger_directory):
                known = known_journals(self._ledger_files, {*journals_in(self._journal_files)}, has_lost_files)
                self._logs = EntryLogs(
                    self._ledger_files, Index(), known, settings.log_size_limit, has_lost_files, self._ledger_reserve
                )
            with _system_failure(settings.journal_directory):
                read = read_partial_journal if has_lost_files else read_journal
                self._recovered = read(self._journal_files, self._logs.journal_start)
            if has_lost_files and self._recovered.first:
                # Later sections must not rely on journal files that are gone.
                self._logs.journal_start = self._recovered.first
            self._open_reserves()
        except BaseException:
            self._directory_lock.release()
            raise
        self._collection = Collection(self._logs, compiled, self._process.now)
        self._next_minor = self._process.now() + settings.minor_compaction_interval
        self._next_major = self._process.now() + settings.major_compaction_interval
        self.ledger_store = LedgerStore(self._logs, compiled, settings.read_ahead_cache_max_size_mb * MIB)

        self._lock = threading.Lock()
        """Guards everything below that several threads use, and the ledger store."""
        self._is_ending = False
        """Whether the storage is closing, so that nobody waits for space any more."""
        self._queue: list[tuple[int, Record | EntryRows | Checkpoint]] = []
        self._queued = 0
        """The number of records queued so far."""
        self._queued_bytes = 0
        """The bytes of the entries in the queue."""
        self._idle = False
        """Whether the journal's worker must be woken for a record."""
        self._awaited = 0
        """The number of records queued in total at which the journal's worker must be woken, 0 if it waits for none."""
        self._checkpoint_wanted = False
        """Whether another checkpoint follows the running one."""
        self._checkpoints_begun = 0
        self._checkpoints_done = 0
        self._when_done: list[tuple[int, Callable[[], None]]] = []
        """Callbacks, each with the number of the checkpoint it waits for."""
        self._is_busy = False
        self._closing = False
        """Whether the workers end once the queue is written."""
        self._failure = ""

        self._writing = threading.Lock()
        """Held while writing to entry logs."""
        self._workers: dict[str, Worker] = {}

    # -- start and end ------------------------------------------------------------------------------------------------

    def records(self) -> Iterator[Record]:
        """The records to pass to the role as ``Replayed``, in order: the ledger states, then the journal's records
        since.

        The storage keeps the entries in the journal; the role only gets their LACs. Raises
        :class:`fencepost.SystemFailure`.
        """
        yield from self.ledger_store.records()
        for group in self._recovered.groups:
            try:
                for record in decode_rows(group):
                    if isinstance(record, EntryRows):
                        self._keep_replayed(record)
                        yield from (LacWritten(ledger, lac, b"") for ledger, lac in record.lacs())
                    else:
                        self.ledger_store.apply(record)
                        yield record
            except ValueError as error:
                raise SystemFailure(f"{self.settings.journal_directory}: a record cannot be decoded: {error}") from None

    @property
    def has_journal(self) -> bool:
        """Whether there is a journal, even an empty one. Valid only before :meth:`start`, which creates it."""
        return self._recovered.number > 0

    def unproven(self) -> Iterator[Record]:
        """The last records of the journal, which may not have been synced. Valid only before :meth:`start`."""
        return map(decode, self._recovered.unproven)

    def start(self) -> None:
        """Start the workers, after the role got all of :meth:`records`. Raises :class:`fencepost.SystemFailure`."""
        settings = self.settings
        with _system_failure(settings.journal_directory):
            self.journal = JournalFiles(
                self._journal_files,
                self._recovered,
                synced=settings.journal_sync_data,
                unit=int(settings.journal_pre_alloc_size_mb * MIB),
                draw=self._process.draw,
                reserve=self._journal_reserve,
            )
            self.journal.remove_before(self._logs.journal_start)
            self._logs.begin()
        del self._recovered
        with self._lock:  # neither may look for the other before both exist
            for name, work in ((JOURNAL, self._write_journal()), (CHECKPOINT, self._take_checkpoints())):
                self._workers[name] = self._process.begin(name, self._guarded(name, work), self._fail)

    def close(self) -> bool:
        """Flush everything, end the workers and unlock the directories. Callbacks of queued records come first.

        If the storage has failed, it does as much of this as it can. Returns whether everything is in entry logs.
        """
        flushed = False
        self._is_ending = True
        if self._workers:
            self._wake_workers()
            with contextlib.suppress(SystemFailure):
                self.checkpoint()
                flushed = True
            self.end()
            for worker in self._workers.values():
                worker.join()
            self._workers = {}
        self._closing = True
        self._collection.wait()
        self._logs.close()
        self._directory_lock.release()
        return flushed and not self._failure

    def end(self) -> None:
        """Let the workers end after all queued records are written."""
        with self._lock:
            self._closing = True
        self._wake_all()

    # -- called by the role's driver on one thread; never blocks on a disk --------------------------------------------

    def take(self, records: Sequence[tuple[int, Record | EntryRows]]) -> None:
        """Queue records that arrived together, each with its position; an :class:`EntryRows` has the position of its
        last record. ``synced`` is called with this position or a later one when it is durable. From now on look-ups
        find the entries. Of several entries with the same id, they find the last one.
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
            if (
                self.ledger_store.cache.size < self._flush_size and not self._checkpoint_wanted
            ) or not self._make_room():
                return
        self.busy(True)

    # -- reading: may block on a disk; callable from any thread -------------------------------------------------------

    def look_up(self, ledger: int, entry_id: int) -> tuple[Code, int, bytes | None]:
        """Find an entry, or the last of the ledger for entry id -1. Returns OK, its id and its body; or ``NO_ENTRY`` or
        ``IO_ERROR``, the requested id, and None.
        """
        return self.ledger_store.look_up(ledger, entry_id)

    def look_up_now(self, ledger: int, entry_id: int) -> bytes | None:
        """An entry that needs no wait for a disk, because the storage or the page cache has it; None otherwise."""
        return self.ledger_store.look_up_now(ledger, entry_id)

    def rows_now(self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], most: int = NO_LIMIT) -> LookupResults:
        """The part of :meth:`read_rows` that needs no wait for a disk. The remaining rows have the code ``MISS`` and
        need :meth:`read_rows`.
        """
        return self.ledger_store.rows_now(ledgers, entry_ids, most)

    def read_rows(
        self, ledgers: NDArray[np.int64], entry_ids: NDArray[np.int64], most: int = NO_LIMIT
    ) -> LookupResults:
        """Like :meth:`look_up`, for many entries. An id of -1 means the last entry of the ledger.

        It stops once the bodies come to ``most`` bytes; the last may exceed it.
        """
        return self.ledger_store.read_rows(ledgers, entry_ids, most)

    def following(self, ledger: int, first: int, count: int, size: int) -> Callable[[int], tuple[Code, bytes | None]]:
        """A function that looks up entries of a ledger by id, for a batch read from ``first`` on. Up to ``count``
        entries or ``size`` bytes are read in advance.
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
        """The ids of a ledger's entries, in order. Raises :class:`fencepost.SystemFailure` if the index cannot be
        read.
        """
        with _system_failure(self.settings.ledger_directory):
            return self.ledger_store.entries_of(ledger)

    def ledgers(self) -> list[int]:
        """The ledgers with a state or with entries, in order."""
        with self._lock:
            known = set(self.ledger_store.states)
        return sorted(known.union(self.ledger_store.with_entries()))

    @contextlib.contextmanager
    def room_for_small_file(self) -> Iterator[None]:
        """Within this context there is space for a small file beside the entry logs. It comes from the reserve if
        necessary. Raises ``OSError``.
        """
        with self._looking_for_room():
            if self._ledger_files.room().free < LEAST:
                self._ledger_reserve.give(LEAST)
            yield

    def room(self) -> tuple[Room, Room]:
        """The space on the disks of the journal and of the entry logs. Raises ``OSError``."""
        return self._journal_files.room(), self._ledger_files.room()

    # -- housekeeping: blocks; callable from any thread ----------------------------------------------------------------

    def forget(self, ledger: int) -> None:
        """Forget a deleted ledger. Reads no longer find it, and :meth:`collect` reclaims its space. Never blocks."""
        with self._lock:
            self.ledger_store.forget(ledger)

    def checkpoint(self, always: bool = False) -> None:
        """Make everything stored so far durable in entry logs, together with the first journal file still needed.
        ``always``: even if nothing has changed. Raises :class:`fencepost.SystemFailure` if that fails.
        """
        done = threading.Event()
        self.begin_checkpoint(done.set, always)
        done.wait()
        if self._has_ended():
            raise SystemFailure(self._failure or "the storage is closed")

    def begin_checkpoint(self, done: Callable[[], None], always: bool = False) -> None:
        """Like :meth:`checkpoint`, with a callback for when it is done or the storage has failed or ends."""
        with self._lock:
            is_needed = always or self.ledger_store.flushing is not None or self.ledger_store.has_changed
            if is_needed and not self._has_ended():
                self._when_done.append((self._checkpoints_begun + 1, done))
                self._checkpoint_wanted = True
                self._begin_checkpoint()
                return
        done()

    def collect(self) -> Collected:
        """Reclaim the space of forgotten ledgers. Removes entry logs without live entries, and compacts sparse ones
        when a minor or major compaction is due. Raises :class:`fencepost.SystemFailure`.
        """
        if self.ledger_store.forgotten:
            self.checkpoint()
        settings, now = self.settings, self._process.now()
        threshold = 0.0
        if now >= self._next_minor:
            threshold, self._next_minor = settings.minor_compaction_threshold, now + settings.minor_compaction_interval
        if now >= self._next_major:
            threshold, self._next_major = settings.major_compaction_threshold, now + settings.major_compaction_interval
        return run_work(self.collecting(threshold))

    def collecting(self, threshold: float) -> Work[Collected]:
        """The work of :meth:`collect`: compact entry logs whose live share is at most ``threshold``."""
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
        """Begin a checkpoint, or let one follow the running one. Returns whether this makes the storage busy: the new
        cache is full, too.
        """
        self._begin_checkpoint()
        if self.ledger_store.flushing is None or self._is_busy or self.ledger_store.cache.size < self._flush_size:
            return False
        self._is_busy = True
        return True

    def _begin_checkpoint(self) -> None:
        """Begin a checkpoint; if one is running, do so after it."""
        if self.ledger_store.flushing is not None:
            self._checkpoint_wanted = True
            return
        self._checkpoint_wanted = False
        self._checkpoints_begun += 1
        self._queue.append((0, self.ledger_store.swap()))
        self._wake_journal()

    def _wake_journal(self) -> None:
        if self._idle or (self._awaited and self._is_enough(self._awaited)):
            self._idle, self._awaited = False, 0
            self._workers[JOURNAL].wake()

    def _wake_workers(self) -> None:
        for worker in self._workers.values():
            worker.wake()

    def _wake_all(self) -> None:
        """The storage ends or has failed: end all waits."""
        self._wake_workers()
        with self._lock:
            callbacks, self._when_done = self._when_done, []
        for _, done in callbacks:
            done()

    def _keep_replayed(self, rows: EntryRows) -> None:
        """Put entries from the journal into the write cache, and flush it once it is full."""
        with self._lock:
            self.ledger_store.apply_rows(rows)
        if self.ledger_store.cache.size >= self._flush_size:
            self._flush_replayed()

    def _flush_replayed(self) -> None:
        """Flush the cache during replay. The first journal file that is still needed does not change."""
        with self._lock:
            checkpoint = self.ledger_store.swap()
        checkpoint.journal_start = self._logs.journal_start
        with _system_failure(self.settings.ledger_directory):
            section = self.ledger_store.write(checkpoint)
            self._logs.sync(section)
            self.ledger_store.end(section)

    def _fail(self, reason: str, reports: bool = True) -> None:
        with self._lock:
            first = reports and not self._failure
            self._failure = self._failure or reason
        self._wake_all()
        if first:
            self.failed(reason)

    def _guarded(self, name: str, work: Work[None]) -> Work[None]:
        """Run a worker's work. An ``OSError`` means that the storage has failed."""
        try:
            yield from work
        except OSError as error:
            # If the storage is closing and has no space, the result of close() says so.
            reports = not (isinstance(error, NoRoom) and self._is_ending)
            self._fail(f"{name} cannot be written: {_reason(error)}", reports)

    # -- room on the disks ---------------------------------------------------------------------------------------------

    def _open_reserves(self) -> None:
        """Open both reserves. That of the entry logs has room for everything in memory. That of the journal has room
        for two files, which a checkpoint needs before it can remove earlier ones. On a small disk, the space above
        ``diskUsageThreshold`` limits them: each takes half of it at most.
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
                int((settings.write_cache_max_size_mb + _LEDGER_STATES) * MIB),
            ),
        ):
            with _system_failure(path):
                reserve.open(files, name, min(wanted, int(share * files.room().total)))

    def _journal_reserve_used(self) -> None:
        """The journal's reserve is in use: begin a checkpoint, which frees the journal's space except for one file."""
        self._set_full(True)
        with self._lock:
            if self._workers and self.ledger_store.flushing is None:
                self._begin_checkpoint()

    def _set_full(self, is_full: bool) -> None:
        with self._full_lock:
            if is_full is not self.is_full:
                self.is_full = is_full
                self.full(is_full)

    def _with_room(self, name: str, work: Callable[[], T]) -> Work[T]:
        """Run a step of a worker, and repeat it while there is no space. Raises ``NoRoom`` if the storage ends
        first.
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
        """Wait before a worker that found no space retries. Raises ``error`` if the storage ends."""
        if self._is_ending or self._failure:
            raise error
        if name not in self._waiting_for_room:
            _log.warning("the %s waits: %s", name, error.strerror)
        self._waiting_for_room.add(name)
        with self._looking_for_room():
            self._set_full(True)
            yield from self._sleep(PATIENCE)

    def _sleep(self, seconds: float) -> Work[None]:
        """Wait for a time, despite wake-ups. The wait ends early if the storage ends or fails."""
        end = self._process.now() + seconds
        while self._process.now() < end and not (self._is_ending or self._failure):
            yield end

    @contextlib.contextmanager
    def _looking_for_room(self) -> Iterator[None]:
        """Within this context, no reserve is extended: the free space is for others."""
        with self._journal_reserve.held(), self._ledger_reserve.held():
            yield

    def _check_room(self) -> None:
        """Compare the disks' usage with the thresholds. A reserve counts as free space."""
        settings = self.settings
        usage = 0.0
        for reserve, files in self._reserves:
            room = files.room()
            usage = max(usage, Room(room.total, room.free + reserve.size).usage)
        self.usage = usage
        if usage >= settings.disk_usage_warn_threshold and not self._has_warned:
            _log.warning(
                "a disk is %.1f %% full: %s, %s", 100 * usage, settings.journal_directory, settings.ledger_directory
            )
        self._has_warned = usage >= settings.disk_usage_warn_threshold
        threshold = settings.disk_usage_lwm_threshold if self.is_full else settings.disk_usage_threshold
        is_whole = all(reserve.is_whole for reserve, _ in self._reserves)
        self._set_full(usage >= threshold or not is_whole or bool(self._waiting_for_room))

    # -- the worker of the journal ------------------------------------------------------------------------------------

    def _write_journal(self) -> Work[None]:
        """Write queued records, group after group, until the storage ends."""
        proven = True  # whether the journal proves that its last group is durable
        last_group = done = 0
        while True:
            yield from self._wait_for_group(done + last_group // 2)
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
        """Wait until a time, a queued record, or the end of the storage."""
        with self._lock:
            self._idle = not self._queue and not self._has_ended()
        if self._idle:
            yield until
            self._idle = False

    def _wait_for_group(self, records: int) -> Work[None]:
        """If records are queued, wait briefly for more, until this many have been queued in total. The caller expects
        half as many as the last group had, since its acknowledgements trigger new adds. A group with enough bytes does
        not wait.
        """
        end = self._process.now() + self.settings.journal_max_group_wait_msec / 1000
        while self._process.now() < end:
            with self._lock:
                if not self._queue or self._is_enough(records) or self._has_ended():
                    break
                self._awaited = records
            yield end
        self._awaited = 0

    def _is_enough(self, records: int) -> bool:
        """Whether a group with this many records queued in total, or with enough bytes, need not wait for more."""
        return self._queued >= records or self._queued_bytes >= self.settings.journal_buffered_writes_threshold

    def _write_queued(self, queue: list[tuple[int, Record | EntryRows | Checkpoint]]) -> Work[None]:
        """Write records in as few groups as possible, and roll to a new file where a checkpoint begins."""
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
                self._workers[CHECKPOINT].wake()
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
        """Write framed records and then single ones as one group, sync it, and report it. Empties both lists."""
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
            # The sync has been reported by now, so it is time to prove it: the next file does.
            yield from self._with_room(JOURNAL, self.journal.roll)

    # -- the worker of checkpoints ------------------------------------------------------------------------------------

    def _take_checkpoints(self) -> Work[None]:
        settings, now = self.settings, self._process.now
        interval, check_interval = settings.flush_interval / 1000, settings.disk_check_interval / 1000
        next_check = now()
        # If a start on a full disk has used the reserve, flush at once: a checkpoint frees the old journal's space.
        next_flush = next_check + (interval if self._journal_reserve.is_whole else 0)
        next_fill = next_check
        while not self._failure:
            if now() >= min(next_check, next_fill):
                for reserve, files in self._reserves:
                    reserve.fill(files)
                next_fill = now() + FILL_INTERVAL
            if now() >= next_check:
                self._check_room()
                next_check = now() + check_interval
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
                next_wake = min(next_check, next_fill)
                yield next_wake if checkpoint is not None else min(next_flush, next_wake)

    def _flush_what_changed(self) -> None:
        with self._lock:
            if self.ledger_store.has_changed:
                self._begin_checkpoint()

    def _flush(self, checkpoint: Checkpoint) -> Work[None]:
        """Write a checkpoint, and end it."""
        since = self._process.now()
        yield from self._write(checkpoint)
        self.took("checkpoint", self._process.now() - since)
        yield Disk.WRITE
        self.journal.remove_before(checkpoint.journal_start)
        self._journal_reserve.fill(self._journal_files)  # before others take the space
        with self._lock:
            self._checkpoints_done += 1
            if self.ledger_store.cache.size >= self._flush_size or self._checkpoint_wanted:
                self._begin_checkpoint()
            was_busy, self._is_busy = self._is_busy, False
            done = [call for number, call in self._when_done if number <= self._checkpoints_done]
            self._when_done = [each for each in self._when_done if each[0] > self._checkpoints_done]
        for call in done:
            call()
        if was_busy:
            self.busy(False)

    def _write(self, checkpoint: Checkpoint) -> Work[None]:
        """Write a checkpoint to an entry log. It takes turns with the collection, which may free space."""
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
def _system_failure(path: str) -> Iterator[None]:
    """Turn an error about a directory into a :class:`fencepost.SystemFailure` of one line."""
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
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{error.filename}: {reason}"
