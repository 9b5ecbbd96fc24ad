"""A bookie's storage without its threads: the test runs each step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from fencepost.files.folders import Files
from fencepost.ledger.disk.collection import Collected, Collection
from fencepost.ledger.disk.entry_logs import EntryLogs
from fencepost.ledger.disk.index import Index
from fencepost.ledger.disk.journal_files import JournalFiles, journals_in, read_journal
from fencepost.ledger.disk.ledger_store import LedgerStore
from fencepost.ledger.disk.records import decode, encode
from fencepost.ledger.disk.workers import Threads, run_work
from fencepost.ledger.records import EntryAdded, LedgerFenced, Record
from fencepost.ledger.rules.codes import Code


class SmallBookie:
    """Opens a folder. Raises what the parts of a storage raise."""

    def __init__(self, files: Files, log_limit: int = 3_000, compiled: Callable[[], bool] = lambda: False) -> None:
        self.logs = EntryLogs(files, Index(), {*journals_in(files)}, log_limit)
        self.found = read_journal(files, self.logs.journal_start)
        self.ledgers = LedgerStore(self.logs, compiled)
        for payload in self.found.records:
            record = decode(payload)
            self.ledgers.apply(record)
            if type(record) is EntryAdded:
                self.ledgers.cache.put(record.ledger, record.entry_id, record.body)
        self.files = files

    def begin(self) -> SmallBookie:
        """Continue in a new file of the journal."""
        self.journal = JournalFiles(self.files, self.found, unit=2_048)
        self.journal.remove_before(self.logs.journal_start)
        self.logs.begin()
        return self

    def write(self, records: Iterable[Record]) -> None:
        """Write a group of records. They are durable when this returns."""
        group = [*records]
        for record in group:
            self.ledgers.apply(record)
        self.journal.write([encode(record) for record in group])
        self.journal.sync()
        for record in group:
            if type(record) is EntryAdded:
                self.ledgers.cache.put(record.ledger, record.entry_id, record.body)

    def fence(self, ledger: int) -> None:
        """Fence a ledger."""
        self.write([LedgerFenced(ledger)])

    def prove(self) -> None:
        """Write an empty group, which proves that the last one is durable."""
        self.journal.write()
        self.journal.sync()

    def checkpoint(self) -> None:
        """Write the entries in memory to an entry log."""
        self.begin_checkpoint()()

    def begin_checkpoint(self) -> Callable[[], None]:
        """Begin to write the entries in memory to an entry log. Returns a function that completes it."""
        checkpoint = self.ledgers.swap()
        checkpoint.journal_start = self.journal.roll()

        def end() -> None:
            section = self.ledgers.write(checkpoint)
            self.logs.sync(section)
            self.ledgers.end(section)
            self.journal.remove_before(checkpoint.journal_start)

        return end

    def collect(self, threshold: float = 1.0) -> Collected:
        """Collect garbage."""
        return run_work(Collection(self.logs, self.ledgers.compiled, Threads().now).run(threshold, threading.Lock(), 0))

    def read(self, ledger: int, entry_id: int) -> tuple[Code, bytes | None]:
        """Read an entry."""
        code, _, body = self.ledgers.look_up(ledger, entry_id)
        return code, body
