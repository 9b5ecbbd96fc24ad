"""Inspects the directories of a bookie and checks their integrity. It only reads, and a bookie may be running.

It reads the state that a bookie would start with at some moment. If files change too quickly for that, it tries again.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from fencepost.errors import SystemFailure
from fencepost.files.folders import File, Files, OsFiles, Part, Room
from fencepost.ledger.disk.entry_logs import EntryLogs, logs_in, read_entries, scan
from fencepost.ledger.disk.entry_logs import name_of as name_of_log
from fencepost.ledger.disk.index import Index
from fencepost.ledger.disk.journal import Damage, Tail
from fencepost.ledger.disk.journal import scan as scan_journal
from fencepost.ledger.disk.journal_files import journals_in, read_journal
from fencepost.ledger.disk.journal_files import name_of as name_of_journal
from fencepost.ledger.disk.ledger_store import LedgerStore
from fencepost.ledger.disk.records import decode
from fencepost.ledger.disk.sections import ENTRY_HEADER
from fencepost.ledger.records import EntryAdded

ATTEMPTS = 5
"""How many times changing files are read."""


class JournalSeen(msgspec.Struct, frozen=True):
    """A file of the journal. ``needed``: recovery reads it. ``ending``: clean, torn or damaged."""

    name: str
    bytes: int
    records: int
    needed: bool
    ending: str


class EntryLogSeen(msgspec.Struct, frozen=True):
    """An entry log. ``garbage`` is the share of its bytes, from 0 to 1, that is not live."""

    name: str
    bytes: int
    sections: int
    entries: int
    bytes_in_use: int
    garbage: float


class LedgerSeen(msgspec.Struct, frozen=True):
    """A ledger. ``bytes`` counts the bodies of its entries; ``in_journal`` counts entries that are in no entry log
    yet.
    """

    ledger: int
    entries: int
    in_journal: int
    first_entry: int
    last_entry: int
    bytes: int
    lac: int
    fenced: bool
    limbo: bool


class Inspection(msgspec.Struct, frozen=True):
    """The result of an inspection. Each line of ``problems`` names one problem. With problems, the bookie may refuse to
    start or may fail to serve some entries.

    ``verified`` is the number of entries whose checksums were compared.
    """

    journals: list[JournalSeen]
    entry_logs: list[EntryLogSeen]
    ledgers: list[LedgerSeen]
    problems: list[str]
    verified: int = 0


def inspect(journal_directory: str, ledger_directory: str, verify: bool = False) -> Inspection:
    """Inspect the directories of a bookie. ``verify``: also read every entry and compare its checksum.

    Raises :class:`fencepost.SystemFailure` if the directories cannot be read.
    """
    for path in (journal_directory, ledger_directory):
        if not os.path.isdir(path):
            raise SystemFailure(f"{path} is no directory of a bookie")
    journals, logs = (_ReadOnly(OsFiles(path, create=False)) for path in (journal_directory, ledger_directory))
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _inspected(journals, logs, verify)
        except (Damage, FileNotFoundError) as error:
            if attempt == ATTEMPTS:
                return _damaged(journals, logs, str(error))
            time.sleep(0.02 * attempt)  # a checkpoint or a collection may have been under way
        except OSError as error:
            raise SystemFailure(f"{journal_directory}, {ledger_directory}: {error.strerror}") from None
    raise AssertionError("there is at least one attempt")


def _inspected(journals: Files, logs: Files, verify: bool) -> Inspection:
    opened = EntryLogs(logs, Index(), {*journals_in(journals)})
    found = read_journal(journals, opened.journal_start)
    ledgers = LedgerStore(opened)
    sizes: Counter[int] = Counter()
    in_journal: dict[int, set[int]] = {}
    for payload in found.records:
        record = decode(payload)
        ledgers.apply(record)
        if type(record) is EntryAdded:
            ledgers.cache.put(record.ledger, record.entry_id, record.body)
    cache = ledgers.cache
    for ledger in cache.ledgers():
        indexed = {entry_id for located in opened.index.runs(ledger) for entry_id in located.run.ids}
        in_journal[ledger] = {*cache.ids(ledger)} - indexed
        sizes[ledger] += sum(len(cache.get(ledger, entry_id) or b"") for entry_id in in_journal[ledger])
    problems: list[str] = []
    return Inspection(
        _journals_seen(journals, opened.journal_start, problems),
        [_log_seen(opened, log) for log in sorted(opened.sizes)],
        [
            _ledger_seen(ledgers, ledger, len(in_journal.get(ledger, ())), sizes[ledger])
            for ledger in sorted(ledgers.states)
        ],
        problems,
        _verify(opened, problems) if verify else 0,
    )


def _damaged(journals: Files, logs: Files, why: str) -> Inspection:
    """The inspection of a bookie that would refuse to start."""
    seen = []
    for log in logs_in(logs):
        found = scan(logs.open(name_of_log(log)), log)
        entries = sum(section.runs.entries for section in found.sections)
        seen.append(EntryLogSeen(name_of_log(log), found.length, len(found.sections), entries, 0, 0.0))
    problems = [f"the bookie would refuse to start: {why}"]
    return Inspection(_journals_seen(journals, 1, problems), seen, [], problems)


def _journals_seen(journals: Files, start: int, problems: list[str]) -> list[JournalSeen]:
    seen = []
    for number in journals_in(journals):
        file = journals.open(name_of_journal(number))
        found = scan_journal(file.read(0, file.end), number)
        needed = number >= start
        if needed and found.tail is Tail.DAMAGED:
            problems.append(f"{name_of_journal(number)} cannot be read from byte {found.end:,} on")
        seen.append(JournalSeen(name_of_journal(number), file.end, len(found.records), needed, found.tail.value))
    return seen


def _log_seen(opened: EntryLogs, log: int) -> EntryLogSeen:
    file = opened.file(log)
    if file is None:
        raise FileNotFoundError(f"entry log {name_of_log(log)} is missing")
    sections = scan(file, log).sections
    entries = sum(section.runs.entries for section in sections)
    size, live = opened.sizes[log], opened.index.live[log]
    held = sum(section.end - section.entries for section in sections)
    return EntryLogSeen(
        name_of_log(log), size, len(sections), entries, live, round(1 - live / held, 4) if held else 0.0
    )


def _ledger_seen(ledgers: LedgerStore, ledger: int, in_journal: int, bytes_in_journal: int) -> LedgerSeen:
    state = ledgers.states[ledger]
    ids = ledgers.entries_of(ledger)
    size = sum(located.run.size - len(located.run) * ENTRY_HEADER for located in ledgers.logs.index.runs(ledger))
    first, last = (ids[0], ids[-1]) if ids else (-1, -1)
    return LedgerSeen(
        ledger, len(ids), in_journal, first, last, size + bytes_in_journal, state.lac, state.fenced, state.limbo
    )


def _verify(opened: EntryLogs, problems: list[str]) -> int:
    """Read all entries, and return their number. A damaged live entry is a problem."""
    count = 0
    for log in sorted(opened.sizes):
        file = opened.file(log)
        if file is None:  # it was compacted meanwhile
            continue
        for section in scan(file, log).sections:
            for ledger, entry_id, body in read_entries(file, section):
                count += 1
                if body is None:
                    place = opened.index.find(ledger, entry_id)
                    if place is not None and place.log == log and opened.read_at(place, ledger, entry_id) is None:
                        problems.append(f"{name_of_log(log)}: entry {entry_id} of ledger {ledger} cannot be read")
    return count


class _ReadOnly:
    """A read-only folder. Truncations and removals only take effect in memory."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def names(self) -> list[str]:
        return self._files.names()

    def size(self, name: str) -> int:
        return self._files.size(name)

    def create(self, name: str) -> File:
        raise AssertionError("nothing is written")

    def open(self, name: str, writable: bool = False) -> File:
        return _ReadOnlyFile(self._files.open(name))

    def rename(self, name: str, new: str) -> None:
        raise AssertionError("nothing is written")

    def remove(self, name: str) -> None:
        pass

    def sync(self) -> None:
        pass

    def room(self) -> Room:
        return self._files.room()


class _ReadOnlyFile:
    """A read-only open file."""

    def __init__(self, file: File) -> None:
        self.name = file.name
        self.end = file.end
        self._file = file

    def append(self, data: bytes | Sequence[Part], cached: bool = True) -> None:
        raise AssertionError("nothing is written")

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, min(size, self.end - offset)) if offset < self.end else b""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        return self._file.read_into(offset, buffer[: max(0, self.end - offset)])

    def read_now(self, offset: int, buffer: memoryview) -> int:
        return self._file.read_now(offset, buffer[: max(0, self.end - offset)])

    def sync(self) -> None:
        pass

    def preallocate(self, end: int) -> None:
        raise AssertionError("nothing is written")

    def truncate(self, length: int) -> None:
        self.end = length
