"""The journal as files: reading it, appending groups to the last file, and rolling to the next.

One file that is no longer needed is kept as a spare and becomes the next file. Syncing space that was written before
takes about half the time, and its pages are already in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from fencepost.files.folders import File, Files, NoRoom, Part
from fencepost.ledger.disk.journal import Recovered, Writer, framed, recover
from fencepost.ledger.disk.reserve import LEAST, NO_RESERVE, Reserve

SUFFIX = ".journal"
SPARE = "journal.spare"
"""The spare file, which becomes the next journal file."""


def name_of(number: int) -> str:
    """The name of the journal file with a number."""
    return f"{number:08}{SUFFIX}"


def journals_in(files: Files) -> list[int]:
    """The numbers of the journal files in a folder, ascending."""
    return sorted(int(name.removesuffix(SUFFIX)) for name in files.names() if name.endswith(SUFFIX))


def read_journal(files: Files, start: int) -> Recovered:
    """The contents of the journal from file ``start`` on. Raises :class:`fencepost.ledger.disk.journal.Damage`."""
    return recover(_contents(files, start), start)


def read_partial_journal(files: Files, start: int) -> Recovered:
    """Like :func:`read_journal`, where the entry logs are gone, or refer to journal files that are gone.

    Files that were no longer needed may have come back, before a gap: a power loss restores names in any order.
    """
    numbers = set(journals_in(files))
    first = max(numbers, default=0)
    if first < start:
        return Recovered((), (), start - 1, 0)
    while first - 1 in numbers:
        first -= 1
    return read_journal(files, max(start, first))


def _contents(files: Files, start: int) -> Iterator[tuple[int, bytes]]:
    for number in journals_in(files):
        if number >= start:
            file = files.open(name_of(number))
            yield number, file.read(0, file.end)


def draw_mark() -> int:
    """Draw a random mark for a journal file (:class:`fencepost.ledger.disk.journal.Writer`)."""
    return int.from_bytes(os.urandom(8))


class JournalFiles:
    """The journal, open for writing. All methods raise ``OSError``; no method may be called after that. After
    :class:`NoRoom` the state is unchanged, and the caller may retry.

    ``synced``: whether :meth:`sync` waits for the disk. ``unit``: the bytes by which a file grows, taken from the
    ``reserve`` if the disk is full. ``draw`` returns a mark for each file. ``fills``: whether zeros are written to the
    space by which a file grows. Each byte is written twice then, and syncs are quicker from the first one on.
    :meth:`remove_before` may be called by another thread than the other methods.
    """

    def __init__(
        self,
        files: Files,
        recovered: Recovered,
        *,
        synced: bool = True,
        unit: int = 4096,
        draw: Callable[[], int] = draw_mark,
        reserve: Reserve = NO_RESERVE,
        fills: bool = False,
    ) -> None:
        """Begin the file after those in ``recovered``. Files that do not count are removed."""
        self.files = files
        self.sync_data = synced
        self.unit = unit
        self.draw = draw
        self.reserve = reserve
        self._fills = fills
        self._has_spare = False
        """Set only when files are removed and there is no spare; cleared only when a file begins and uses it."""
        if SPARE in files.names():
            files.remove(SPARE)  # after a crash, the same file may also have a name by which it is needed
        for number in journals_in(files):
            if number > recovered.number:
                files.remove(name_of(number))
        before = None
        if recovered.next_group:
            file = files.open(name_of(recovered.number), writable=True)
            before = _JournalFile(
                file,
                file.end // recovered.unit * recovered.unit,
                Writer(recovered.number, recovered.mark),
                recovered.unit,
                reserve,
                fills,
            )
            file.end = before.writer.end = recovered.next_group
            before.writer.synced = recovered.end
        self._begin(recovered.number + 1, recovered.end, recovered.unproven, before)

    @property
    def number(self) -> int:
        """The number of the current file."""
        return self._last.writer.number

    @property
    def synced(self) -> int:
        """How far the next group says that the file was synced."""
        return self._last.writer.synced

    @property
    def end(self) -> int:
        """The bytes of the current file."""
        return self._last.writer.end

    def write(self, records: Iterable[bytes] = ()) -> None:
        """Append a group; :meth:`sync` makes it durable."""
        self.gather((framed(records),))

    def gather(self, records: Sequence[Part]) -> None:
        """Append a group of records that are already framed, in several parts
        (:func:`fencepost.ledger.disk.journal.framed`), with one write.
        """
        self._last.gather(records)

    def sync(self) -> None:
        """Block until everything written is durable."""
        if self.sync_data:
            self._last.file.sync()
            self._last.writer.synced = self._last.writer.end

    def roll(self, records: Sequence[bytes] = ()) -> int:
        """Begin the next file, with some records, and return its number. Then everything in earlier files, and these
        records, are durable.
        """
        before = self._last
        before.file.sync()
        self._begin(before.writer.number + 1, before.writer.end, records, before)
        return self.number

    def remove_before(self, start: int) -> None:
        """Remove the files before ``start``, which a checkpoint covers. One of them may become the spare."""
        for number in journals_in(self.files):
            if number < start:
                name = name_of(number)
                if self._has_spare or not self.files.size(name) or self.files.size(name) % self.unit:
                    self.files.remove(name)
                else:
                    self.files.rename(name, SPARE)
                    self._has_spare = True

    def _begin(self, number: int, previous_end: int, records: Sequence[bytes], before: _JournalFile | None) -> None:
        """Create a file. The previous file announces it before anything relies on that. If the disk has no room for a
        whole unit, the file grows in smaller steps, from the reserve.
        """
        try:
            self._begin_file(number, previous_end, records, before, self.unit, NO_RESERVE)
        except NoRoom:
            self._begin_file(number, previous_end, records, before, min(self.unit, LEAST), self.reserve)

    def _begin_file(
        self,
        number: int,
        previous_end: int,
        records: Sequence[bytes],
        before: _JournalFile | None,
        unit: int,
        reserve: Reserve,
    ) -> None:
        file, length = self._create(name_of(number), reserve)
        last = _JournalFile(file, length, Writer(number, self.draw()), unit, reserve, self._fills)
        try:
            last.append([last.writer.begin(previous_end, records, unit)])
            last.file.sync()
            last.writer.synced = last.writer.end if self.sync_data else 0
            if before is not None:
                before.gather((), following=number)
                before.file.sync()
        except NoRoom:
            self.files.remove(name_of(number))
            self.files.sync()  # before the previous file grows: no header may then say that it ends here
            raise
        last.reserve = self.reserve
        self._last = last

    def _create(self, name: str, reserve: Reserve) -> tuple[File, int]:
        """Create a file, or rename the spare to it; return it with its length.

        The new name is durable and the spare's is gone on return. Until then, a crash could leave the contents under a
        name by which they are needed.
        """
        if not self._has_spare:
            file = reserve.run(lambda: self.files.create(name), 0)
            self.files.sync()
            return file, 0
        self.files.rename(SPARE, name)
        self._has_spare = False
        self.files.sync()
        file = self.files.open(name, writable=True)
        length, file.end = file.end, 0
        return file, length


class _JournalFile:
    """A journal file and its layout. Its length grows by the unit."""

    def __init__(self, file: File, length: int, writer: Writer, unit: int, reserve: Reserve, fills: bool) -> None:
        self.file = file
        self.writer = writer
        self.reserve = reserve
        self._fills = fills
        self._unit = unit
        self._length = length

    def gather(self, records: Sequence[Part], following: int = 0) -> None:
        """Append a group of records that are already framed."""
        end = self.writer.end
        try:
            self.append(self.writer.gathered(records, following))
        except NoRoom:
            self.writer.end = end
            raise

    def append(self, parts: Sequence[Part]) -> None:
        """Write at the end of the file. Its length is made durable first."""
        end = self.file.end + sum(map(len, parts))
        if end > self._length:
            length = -(-end // self._unit) * self._unit
            self.reserve.run(lambda: self.file.preallocate(length), length - self._length)
            if self._fills:
                next_write, self.file.end = self.file.end, self._length
                self.file.append(bytes(length - self._length))
                self.file.end = next_write
            self._length = length
            self.file.sync()
        self.file.append(parts)
