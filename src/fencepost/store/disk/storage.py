"""A bookie's storage: its journal, its entries and what it knows of its ledgers, on the disks of one machine.

The driver of a bookie opens it, gives its role every one of :meth:`Storage.records` as a ``Replayed`` and carries out the effects of
that, calls :meth:`Storage.start`, and from then on carries out ``Journal``, ``Store`` and ``LookUp`` by the methods of the same names.
An entry is given to :meth:`Storage.journal` first, and to :meth:`Storage.store` right after, by the same thread.

Nothing here is retried and nothing is hidden: when a write or a sync has failed, ``failed`` is called once, nothing is called back any
more, and the process must end.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from fencepost.errors import SystemFailure
from fencepost.store.disk.files import Files, Lock, OsFiles
from fencepost.store.disk.journal import Damage, Writer, recover
from fencepost.store.disk.records import decode, encode
from fencepost.store.disk.settings import StorageSettings
from fencepost.store.records import Record
from fencepost.store.rules.codes import Code


def _ignore(_: object) -> None:
    """Nobody asked to be told."""


class Storage:
    """One bookie's directories, opened.

    ``synced(position)``: all records up to a position are durable. ``failed(reason)``: the storage can not go on. ``busy(is_busy)``: the
    write cache is full while its other half is still being flushed, and whoever feeds it should stop reading requests until it is not busy
    any more; what was taken until then is stored all the same. ``full(is_full)``: the disk is fuller than ``diskUsageThreshold``, or has
    room again. All four are called by threads of the storage, except that ``busy`` may be called within :meth:`store`.
    """

    def __init__(
        self,
        settings: StorageSettings,
        *,
        synced: Callable[[int], None] = _ignore,
        failed: Callable[[str], None] = _ignore,
        busy: Callable[[bool], None] = _ignore,
        full: Callable[[bool], None] = _ignore,
        journal_files: Files | None = None,
        ledger_files: Files | None = None,
    ) -> None:
        """Lock the directories and read what is in them. Raises :class:`fencepost.SystemFailure`, with one line, if another process has
        them, if something that was durable is missing or damaged, or if they can not be read."""
        self.settings = settings
        self.synced = synced
        self.failed = failed
        self.busy = busy
        self.full = full
        self._journal_files = journal_files or OsFiles(settings.journal_directory)
        self._ledger_files = ledger_files or OsFiles(settings.ledger_directory)
        self._lock = _lock(settings.ledger_directory) if ledger_files is None else None
        self._entries: dict[int, dict[int, bytes]] = {}
        names = [name for name in self._journal_files.names() if name.endswith(".journal")]
        files = []
        for name in names:
            file = self._journal_files.open(name)
            files.append((int(name.split(".")[0]), file.read(0, file.end)))
        try:
            self._recovered = recover(files)
        except Damage as damage:
            raise SystemFailure(f"{settings.journal_directory}: {damage}; the bookie does not start, see to its disk") from None
        for number, _ in files:
            if number > self._recovered.number:
                self._journal_files.remove(f"{number:08}.journal")
        self._queue: deque[tuple[int, bytes]] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._write_journal, name="journal", daemon=True)

    # -- start and end ------------------------------------------------------------------------------------------------

    def records(self) -> Iterator[Record]:
        """What the role is to be given as ``Replayed``, in order: what it knew of its ledgers, then what is in the journal since."""
        return map(decode, self._recovered.records)

    def start(self) -> None:
        """Go to work: the role has been given all of :meth:`records`."""
        self._writer = Writer(self._recovered.number + 1)
        self._file = self._journal_files.create(f"{self._writer.number:08}.journal")
        self._file.append(self._writer.begin(self._recovered.end, self._recovered.unproven))
        self._file.sync()
        self._journal_files.sync()
        self._writer.synced = self._writer.end
        self._thread.start()

    def close(self) -> None:
        """Flush everything, end the threads and let others have the directories. Records that were queued are called back before."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._lock is not None:
            self._lock.release()

    # -- what the role wants: called by the driver's thread, and never blocks -----------------------------------------

    def journal(self, position: int, record: Record) -> None:
        """Queue a record; ``synced`` is called with its position, or a later one, when it is durable."""
        self._queue.append((position, encode(record)))
        self._wake.set()

    def store(self, ledger: int, entry_id: int, body: bytes) -> None:
        """Keep an entry where :meth:`look_up` finds it from now on; a second one with the same id replaces it."""
        self._entries.setdefault(ledger, {})[entry_id] = body

    # -- reading: may block for a read of the disk, and may be called by any thread --------------------------------------

    def look_up(self, ledger: int, entry_id: int) -> tuple[Code, int, bytes | None]:
        """Find an entry, or, with entry id -1, the last of the ledger: OK, its id and its body; or ``NO_ENTRY`` or ``IO_ERROR``, the id
        that was asked for, and None."""
        entries = self._entries.get(ledger, {})
        found = max(entries, default=-1) if entry_id < 0 else entry_id
        body = entries.get(found)
        return (Code.OK, found, body) if body is not None else (Code.NO_ENTRY, entry_id, None)

    def cached(self, ledger: int, entry_id: int) -> bytes | None:
        """An entry that can be had without the disk, None if there is none; never blocks."""
        return self._entries.get(ledger, {}).get(entry_id)

    def entries_of(self, ledger: int) -> list[int]:
        """The ids of the entries of a ledger, in order."""
        return sorted(self._entries.get(ledger, {}))

    def ledgers(self) -> list[int]:
        """The ledgers that something is known of, in order."""
        return sorted(self._entries)

    # -- housekeeping ---------------------------------------------------------------------------------------------------

    def forget(self, ledger: int) -> None:
        """A ledger was deleted: nothing of it is found any more, and its room is collected later. Never blocks."""
        self._entries.pop(ledger, None)

    def checkpoint(self) -> None:
        """Make everything that was stored so far durable in entry logs. Blocks until that is so."""

    def collect(self, existing: Callable[[], set[int]]) -> None:
        """Forget ledgers that are not in the metadata any more, and give their room back. Blocks.

        ``existing`` is called to tell the ledgers that the metadata have. Ledgers that came to the storage after it was called are left alone.
        """

    # -- the thread of the journal --------------------------------------------------------------------------------------

    def _write_journal(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            group = [self._queue.popleft() for _ in range(len(self._queue))]
            if not group:
                if self._closing:
                    return
                continue
            self._wake.set()
            try:
                self._file.append(self._writer.group([payload for _, payload in group]))
                if self.settings.journal_sync_data:
                    self._file.sync()
            except OSError as error:
                self.failed(f"the journal can not be written: {error}")
                return
            self._writer.synced = self._writer.end
            self.synced(group[-1][0])


def _lock(path: str) -> Lock:
    try:
        return Lock(path)
    except BlockingIOError:
        raise SystemFailure(f"{path} is in use by another bookie") from None
