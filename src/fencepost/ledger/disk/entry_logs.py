"""Entry logs as files: writing sections, reading entries, and recovering after a crash or damage.

A section counts once it is synced. :meth:`EntryLogs.write` writes it, :meth:`EntryLogs.sync` makes it durable, and
:meth:`EntryLogs.commit` makes its entries visible to reads. Only then may the files that it replaces be removed:
journal files and other entry logs.

So the journal shows at recovery whether the last section was durable. If all journal files and entry logs that the
section replaces still exist, the section is cut off and its entries come from the journal. This holds even if the
section can be read, because its sync may have failed. If one of those files is gone, the section was synced, and
whatever cannot be read in it is damage.
"""

from __future__ import annotations

import errno
import mmap
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fencepost.files.folders import SECTOR, File, Files, NoRoom
from fencepost.ledger.disk.index import EntryLocation, Index, SectionRuns
from fencepost.ledger.disk.journal import Damage, aligned, refuse_later
from fencepost.ledger.disk.ledgers import LedgerState
from fencepost.ledger.disk.reserve import NO_RESERVE, Reserve
from fencepost.ledger.disk.sections import (
    HEADER,
    Contents,
    Run,
    Runs,
    Section,
    contents_at,
    entries_of,
    entry_body,
    entry_bytes,
    file_header,
    layout,
    runs_of,
    section_at,
    section_header,
)
from fencepost.ledger.rules.codes import Code

SUFFIX = ".log"
PIECE = 1 << 20
"""Bytes written and synced at a time. Where the journal is on the same disk, its next sync waits for no more than
these.
"""

CACHED_SECTIONS = 8
"""How many sections are kept in the page cache after an entry was read from an entry log: some 256 MiB. A reader that
comes back within a second or two finds what was written meanwhile in memory. With 64, a read made the adds of the next
2 GiB take twice the CPU.
"""

_KEPT = 2 * PIECE
"""The most bytes of memory that are kept to write from."""

STRETCH = 1 << 20
"""The most bytes per read, unless a single entry is larger."""
GAP = 1 << 12
"""The largest gap between two entries that one read covers. Beyond it, two reads are cheaper."""

NO_LIMIT = 1 << 62
"""More bytes than any file has."""
_READ_AT_LEAST = 1 << 17
"""The fewest bytes read when looking for a section."""

_TRIES = 10

OPEN_LOGS = 64
"""Entry logs that stay open to be read, besides the one that is written. A bookie may have thousands."""


class Entries(Protocol):
    """Entries to write to an entry log, ordered by ledger and id."""

    def runs(self) -> Runs:
        """Their runs."""

    def fill(self, room: NDArray[np.uint8]) -> int:
        """Write the next entries in the format of an entry log, as many as fit, and return their bytes: 0 if the next
        one does not fit.
        """


class Bodies:
    """Entries from a mapping of ledger and entry id to body."""

    def __init__(self, bodies: Mapping[int, Mapping[int, bytes]]) -> None:
        self._bodies = bodies
        self._in_order = [(ledger, sorted(bodies[ledger])) for ledger in sorted(bodies)]
        self._left = deque((ledger, entry_id) for ledger, ids in self._in_order for entry_id in ids)

    def runs(self) -> Runs:
        """Their runs."""
        found: list[Run] = []
        for ledger, ids in self._in_order:
            bodies = self._bodies[ledger]
            found += runs_of(ledger, ids, [len(bodies[entry_id]) for entry_id in ids])
        return Runs.of(found)

    def fill(self, room: NDArray[np.uint8]) -> int:
        """Write the next entries, see :class:`Entries`."""
        at = 0
        while self._left:
            ledger, entry_id = self._left[0]
            data = entry_bytes(ledger, entry_id, self._bodies[ledger][entry_id])
            if at + len(data) > len(room):
                break
            room[at : at + len(data)] = np.frombuffer(data, np.uint8)
            at += len(data)
            self._left.popleft()
        return at


def name_of(log: int) -> str:
    """The file name of an entry log."""
    return f"{log:08}{SUFFIX}"


def known_journals(files: Files, journals: Collection[int], has_lost_files: bool) -> Collection[int] | None:
    """The journal files to check entry logs against when they are opened. With ``has_lost_files``, the entry logs or
    the journal may be gone, so references from one to the other are ignored.
    """
    if not has_lost_files:
        return journals
    return (journals or None) if logs_in(files) else ()


def logs_in(files: Files) -> list[int]:
    """The numbers of the entry logs in a folder, ascending."""
    return sorted(int(name.removesuffix(SUFFIX)) for name in files.names() if name.endswith(SUFFIX))


@dataclass(frozen=True)
class Scan:
    """The sections of an entry log up to the first that cannot be read, and the length of the file.

    ``complete``: nothing follows the last section.
    """

    sections: tuple[Section, ...]
    length: int

    @property
    def complete(self) -> bool:
        return self.end >= self.length

    @property
    def end(self) -> int:
        """The end of the readable part. It is past the end of the file if the last section's entries are cut off."""
        return aligned(self.sections[-1].end) if self.sections else SECTOR


def scan(file: File, log: int) -> Scan:
    """Find the sections of an entry log, without reading their entries (small sections excepted). Raises
    :class:`LaterFormat`.
    """
    sections: list[Section] = []
    at = SECTOR
    reader = _BufferedReader(file)
    beginning = reader.read(0, SECTOR)[:SECTOR]
    if beginning != file_header(log):
        refuse_later(f"entry log {name_of(log)}", beginning, file_header(log))
    else:
        while at < file.end and (section := _read_section(reader, log, at)) is not None:
            sections.append(section)
            at = aligned(section.end)
    return Scan(tuple(sections), file.end)


class _BufferedReader:
    """Reads a file front to back. Each read also fetches the bytes that follow, so that small sections take few
    reads.
    """

    def __init__(self, file: File) -> None:
        self.file = file
        self._start = 0
        self._data = b""

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from an offset; fewer than ``size`` only at the end of the file."""
        at = offset - self._start
        if at + size > len(self._data):
            self._start, self._data, at = offset, self.file.read(offset, max(size, _READ_AT_LEAST)), 0
        return self._data[at : at + size]


def _read_section(reader: _BufferedReader, log: int, offset: int) -> Section | None:
    """The section at an offset, without its entries; None if no readable section is there."""
    found = contents_at(reader.read(offset, HEADER), log, offset)
    if found is None or HEADER + found[1] > reader.file.end - offset:
        return None
    return section_at(reader.read(offset, HEADER + found[1]), log, offset)


def read_entries(file: File, section: Section) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield ledger, id and body of each entry of a section. The body is None if it cannot be read."""
    for offset, run in section.placed():
        for entry_id, body in entries_of(run, file.read(offset, run.size)):
            yield run.ledger, entry_id, body


def _runs_of(section: Section) -> SectionRuns:
    return SectionRuns(section.log, section.entries, section.runs, section.contents.forgotten)


class EntryLogs:
    """The entry logs of a bookie, with their index.

    ``sizes``: those of the files, by number. ``journal_start``: the first journal file still needed. ``states``: the
    latest ledger states from the sections. ``sequence``: the last section's number.

    One thread at a time writes sections; any thread may read.
    """

    def __init__(
        self,
        files: Files,
        index: Index,
        journals: Collection[int] | None,
        limit: int = 1 << 30,
        has_lost_files: bool = False,
        reserve: Reserve = NO_RESERVE,
    ) -> None:
        """Read the entry logs. ``journals`` are the numbers of the journal files, None if the journal is lost. Raises
        :class:`Damage` if something is missing or unreadable, ``OSError`` if the disk fails.

        ``has_lost_files``: the entry logs or the journal may have been lost, and a crash may have cut off later writes,
        which nobody relies on. ``reserve``: space for sections once the disk is full.
        """
        self.has_lost_files = has_lost_files
        self.files = files
        self.index = index
        self.limit = limit
        self.reserve = reserve
        self.sizes: dict[int, int] = {}
        self.states: dict[int, LedgerState] = {}
        self.log_of_state: dict[int, int] = {}
        """The entry log that holds the latest state of each ledger."""
        self.journal_start = 1
        self.sequence = 0
        self.current = 0
        self._written: File | None = None
        """The current entry log."""
        self._opening = threading.Lock()
        """Guards what says which entry logs are open."""
        self._open: dict[int, File] = {}
        """Other entry logs that were read last, the latest at the end."""
        self._unfinished = False
        """Whether a section was begun and is not yet known to be durable."""
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._left_cached = 0
        """How many of the next sections are kept in the page cache."""
        self._recover(journals)

    # -- writing ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Write an empty section if there is none. It says that the journal has a first file, which must be durable
        already.
        """
        if not self.sequence:
            section = self.write(Bodies({}))
            self.sync(section)
            self.commit(section)

    def write(
        self,
        entries: Entries,
        states: Iterable[LedgerState] = (),
        forgotten: Iterable[int] = (),
        journal_start: int | None = None,
        without: Collection[int] = (),
    ) -> Section:
        """Write a section at the end of the current entry log or of a new one. It is not durable yet.

        ``without`` lists the entry logs to remove once the section is durable. A section must be followed by
        :meth:`sync` and :meth:`commit`. If they do not complete, all state stays as it was, and every later write on
        any thread raises ``OSError`` until the entry logs are opened again. Raises :class:`NoRoom` before anything is
        written; the caller may retry.
        """
        if self._unfinished:
            raise OSError(errno.EIO, "an earlier section of an entry log could not be written or synced")
        self._unfinished = True
        try:
            file = self._file_to_write()
            contents = Contents(
                journal_start if journal_start is not None else self.journal_start,
                [log for log in self.sizes if log not in without],
                entries.runs().data,
                list(states),
                list(forgotten),
            )
            section = layout(self.current, file.end, self.sequence + 1, contents)
            end = aligned(section.end)
            # Preallocation also makes each piece faster to write.
            self.reserve.run(lambda: file.preallocate(end), end - file.end)
        except NoRoom:
            self._unfinished = False
            raise
        cached, self._left_cached = self._left_cached > 0, max(0, self._left_cached - 1)
        for piece in self._pieces(section, entries):
            file.append([piece], cached)
            if file.end < end:
                file.sync()
        return section

    def _pieces(self, section: Section, entries: Entries) -> Iterator[memoryview]:
        """The bytes of a section, in pieces of whole sectors, as writes past the page cache need them. Asking for the
        next piece invalidates the last.
        """
        before, left = section_header(section), section.end - section.entries
        held = len(before)
        memory = self._memory_of(aligned(held) + PIECE)
        memory[:held] = np.frombuffer(before, np.uint8)
        while True:
            size = entries.fill(memory[held : len(memory) - SECTOR]) if left else 0
            held, left = held + size, left - size
            if not left:
                whole = aligned(held)
                memory[held:whole] = 0
                yield memory[:whole].data
                return
            whole = held // SECTOR * SECTOR
            if whole:
                yield memory[:whole].data
                memory[: held - whole] = memory[whole:held]
                held -= whole
            elif not size:
                kept = memory[:held].copy()
                memory = self._memory_of(2 * len(memory))
                memory[:held] = kept

    def _memory_of(self, size: int) -> NDArray[np.uint8]:
        """``size`` bytes to write from. They are kept for the next section unless they are many."""
        if size > len(self._memory):
            memory = np.frombuffer(mmap.mmap(-1, size), np.uint8)  # begins at a page
            if size > _KEPT:
                return memory
            self._memory = memory
        return self._memory[:size]

    def sync(self, section: Section) -> None:
        """Make a section durable."""
        assert self._written is not None and section.log == self.current
        self._written.sync()

    def commit(self, section: Section) -> None:
        """Make the entries of a durable section visible to reads."""
        self.sequence = section.sequence
        self.sizes[section.log] = aligned(section.end)
        self._report(section)
        self.index.load([_runs_of(section)])
        self._unfinished = False

    def was_read(self) -> None:
        """A client has read an entry from an entry log. Until nobody has for a while, sections stay in the page cache.
        If nobody reads them, writing past it takes less CPU and leaves the memory to others.
        """
        self._left_cached = CACHED_SECTIONS

    def remove(self, logs: Iterable[int]) -> None:
        """Remove entry logs that the last section no longer lists. A reader of one of them can finish its read."""
        for log in sorted(logs):
            self.files.remove(name_of(log))
            with self._opening:
                del self.sizes[log]
                self._open.pop(log, None)
            self.index.live.pop(log, None)

    def _file_to_write(self) -> File:
        if self._written is not None and self.sizes[self.current] < self.limit:
            return self._written
        log = max(self.sizes, default=0) + 1
        file = self.reserve.run(lambda: self.files.create(name_of(log)), 0)
        try:
            self.reserve.run(lambda: file.preallocate(SECTOR), SECTOR)
        except NoRoom:
            self.files.remove(name_of(log))
            raise
        file.append(file_header(log))
        file.sync()
        self.files.sync()
        with self._opening:
            self._written, self.sizes[log], self.current = file, SECTOR, log
        return file

    def _report(self, section: Section) -> None:
        """Apply a section's ledger states and journal start."""
        contents = section.contents
        self.journal_start = contents.journal_start
        for ledger in contents.forgotten:
            self.states.pop(ledger, None)
            self.log_of_state.pop(ledger, None)
        for state in contents.states:
            self.states[state.ledger] = state
            self.log_of_state[state.ledger] = section.log

    # -- reading ------------------------------------------------------------------------------------------------------

    def file(self, log: int, now: bool = False) -> File | None:
        """An entry log, to be read; None if it was removed. With ``now``, which may not wait for a disk, also if it is
        not open. Raises ``OSError``.
        """
        with self._opening:
            if log == self.current:
                return self._written
            file = self._open.pop(log, None)
            if file is None:
                if now or log not in self.sizes:
                    return None
                try:
                    file = self.files.open(name_of(log))
                except FileNotFoundError:  # it is being removed
                    return None
            self._open[log] = file
            if len(self._open) > OPEN_LOGS:
                del self._open[next(iter(self._open))]  # closed once nobody reads it any more
        return file

    def close(self) -> None:
        """Close the entry logs that were read, once nobody reads them any more. A later read opens its own again."""
        with self._opening:
            self._open.clear()

    def read(self, ledger: int, entry_id: int) -> tuple[Code, bytes | None]:
        """Read an entry: OK and its body, ``NO_ENTRY``, or ``IO_ERROR`` if it exists and cannot be read."""
        try:
            for _ in range(_TRIES):
                place = self.index.find(ledger, entry_id)
                if place is None:
                    return Code.NO_ENTRY, None
                file = self.file(place.log)
                if file is not None:  # otherwise it was compacted meanwhile, and the index has the new place
                    body = entry_body(file.read(place.offset, place.size), ledger, entry_id)
                    return (Code.OK, body) if body is not None else (Code.IO_ERROR, None)
        except (Damage, OSError):
            pass
        return Code.IO_ERROR, None

    def read_rows(
        self,
        ledgers: NDArray[np.int64],
        entry_ids: NDArray[np.int64],
        table: NDArray[np.int64],
        most: int = NO_LIMIT,
        now: bool = False,
    ) -> tuple[int, int, NDArray[np.uint8] | None]:
        """Read entries with the compiled loops. Rows of ``table``
        (:class:`fencepost.ledger.kernels.results.LookupResults`) are read if they are a ``MISS`` and have an id.

        Returns how many rows of the table are valid (all, or as many as it takes for ``most`` bytes of bodies), how
        many are ``IO_ERROR``, and the buffer that the addresses point into. Some rows with an error can still be read
        one by one: a compaction moved them after the lookup, or one of their neighbours cannot be read. ``now``: read
        only what needs no wait for a disk; the rest is an error. Raises :class:`Damage`.
        """
        from fencepost.ledger.kernels import cache as loops

        asked = np.empty(len(table), np.int64)
        asked = asked[: loops.find_missing(table, asked)]
        if not len(asked):
            return len(table), 0, None
        is_all = len(asked) == len(table)
        places = self.index.find_rows(ledgers if is_all else ledgers[asked], entry_ids if is_all else entry_ids[asked])
        logs, offsets, sizes = map(np.ascontiguousarray, places)
        order = np.empty(len(asked), np.int64)
        count, chosen, in_order = loops.choose(table, asked, logs, offsets, sizes, most, order)
        order = order[:chosen]
        if not in_order:
            order = order[np.lexsort((offsets[order], logs[order]))]
        stretches = np.empty((chosen, loops.STRETCH_COLUMNS), np.int64)
        read, total = loops.find_stretches(logs, offsets, sizes, order, STRETCH, GAP, stretches)
        stretches = stretches[:read]
        buffer = np.empty(total, np.uint8)
        view = buffer.data
        for nth, (_, log, start, length, at, _) in enumerate(stretches.tolist()):
            with suppress(OSError):
                file = self.file(log, now)
                if file is not None:
                    read_into = file.read_now if now else file.read_into
                    stretches[nth, loops.READ] = read_into(start, view[at : at + length])
        errors = loops.check_entries(buffer, stretches, offsets, sizes, order, asked, ledgers, entry_ids, table)
        return count, errors, buffer

    def read_at(self, place: EntryLocation, ledger: int, entry_id: int) -> bytes | None:
        """The body of the entry at a place; None if it cannot be read."""
        file = self.file(place.log)
        return None if file is None else entry_body(file.read(place.offset, place.size), ledger, entry_id)

    # -- recovery -----------------------------------------------------------------------------------------------------

    def _recover(self, journals: Collection[int] | None) -> None:
        logs = logs_in(self.files)
        newest: dict[int, Scan] = {}
        while len(newest) < len(logs) and sum(len(each.sections) for each in newest.values()) < 2:
            log = logs[-1 - len(newest)]
            newest[log] = scan(self.files.open(name_of(log)), log)
        last = self._last_section(logs, newest, journals)
        if last is None:
            self._remove_dead(logs)
            return
        self.current = last.log
        alive = set(last.contents.logs)
        for log in sorted(alive):
            if log not in logs:
                raise Damage(f"entry log {name_of(log)} is missing")
        self._remove_dead([log for log in logs if log not in alive])
        self.index.load(self._runs_of(sorted(alive), last, newest))
        self.sequence = last.sequence

    def _runs_of(self, logs: Sequence[int], last: Section, newest: dict[int, Scan]) -> Iterator[SectionRuns]:
        """Read entry logs and yield the runs of their sections in order."""
        for log in logs:
            file = self.files.open(name_of(log), writable=log == last.log)
            found = newest.pop(log, None) or scan(file, log)
            if log == last.log:
                end = aligned(last.end)
                if file.end != end:
                    file.truncate(end)
                file.sync()
                self._written = file
            elif found.end != file.end:
                raise Damage(f"entry log {name_of(log)} cannot be read from byte {found.end:,} on")
            self.sizes[log] = file.end
            for section in found.sections:
                if section.sequence <= last.sequence:
                    self._report(section)
                    yield _runs_of(section)

    def _remove_dead(self, logs: Collection[int]) -> None:
        """Remove entry logs that were compacted or never finished. Their numbers are reused."""
        for log in logs:
            self.files.remove(name_of(log))
        if logs:
            self.files.sync()

    def _last_section(
        self, logs: Collection[int], newest: Mapping[int, Scan], journals: Collection[int] | None
    ) -> Section | None:
        """The section that counts as the last; None if there is none. ``newest`` holds the newest entry logs that have
        two sections together, or all of them. Raises :class:`Damage` if something durable is missing.
        """
        sections = [section for log in sorted(newest) for section in newest[log].sections]
        if not sections:
            if len(logs) > 1:
                raise Damage(f"entry log {name_of(min(logs))} cannot be read")
            if journals and 1 not in journals and not self.has_lost_files:
                raise Damage(f"entry log {name_of(max(logs, default=1))} {'cannot be read' if logs else 'is missing'}")
            return None
        last = sections.pop()
        start = last.contents.journal_start
        if journals is None:
            # Nothing takes the journal's place, and nothing says that the section was synced.
            is_whole = all(body is not None for *_, body in read_entries(self.files.open(name_of(last.log)), last))
            return last if is_whole else sections.pop() if sections else None
        if not sections and start == 1:
            return last  # it is empty and relies on nothing
        earlier = sections[-1].contents if sections else Contents(1, [last.log])
        if all(number in journals for number in range(earlier.journal_start, start + 1)) and {*logs} >= {*earlier.logs}:
            if not sections:
                return None
            last = sections.pop()
        elif start not in journals:
            raise Damage(
                f"journal file {start} is missing from the journal's directory, or a later section of entry log"
                f" {name_of(max(logs))} cannot be read"
            )
        elif last.end > newest[last.log].length and self.has_lost_files:
            if not sections:
                return None
            last = sections.pop()
        elif last.end > newest[last.log].length:
            raise Damage(f"entry log {name_of(last.log)} is cut off at byte {newest[last.log].length:,}")
        unfinished = [log for log in newest if log > last.log and not newest[log].sections]
        if len(unfinished) > 1:
            raise Damage(f"entry log {name_of(min(unfinished))} cannot be read")
        return last
