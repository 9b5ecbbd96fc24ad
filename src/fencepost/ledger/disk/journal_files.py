"""The journal as files: reading it, appending groups to its last file, going on in the next one.

A file that is not needed any more is kept for the next one to be written in its place, one at a time: a disk syncs room
that was written before in about half the time, and its pages are in memory already.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from fencepost.files.folders import File, Files, NoRoom, Part
from fencepost.ledger.disk.journal import Recovered, Writer, framed, recover
from fencepost.ledger.disk.reserve import LEAST, NO_RESERVE, Reserve

SUFFIX = ".journal"
SPARE = "journal.spare"
"""The file that the next one is written in place of."""


def name_of(number: int) -> str:
    """The file of a journal with a number."""
    return f"{number:08}{SUFFIX}"


def journals_in(files: Files) -> list[int]:
    """The numbers of the files of the journal in a folder, in order."""
    return sorted(int(name.removesuffix(SUFFIX)) for name in files.names() if name.endswith(SUFFIX))


def read_journal(files: Files, start: int) -> Recovered:
    """The contents of the journal from a file number on. Raises :class:`fencepost.ledger.disk.journal.Damage`."""
    return recover(_contents(files, start), start)


def read_what_is_left(files: Files, start: int) -> Recovered:
    """As :func:`read_journal`, where entry logs may be gone, or tell of a journal that is.

    Of files that were not needed any more, some may be there: they are before a gap, since a loss of power brings names
    back in any order.
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
    """A mark for a file of the journal (:class:`fencepost.ledger.disk.journal.Writer`)."""
    return int.from_bytes(os.urandom(8))


class JournalFiles:
    """The journal, opened to be written. All methods raise ``OSError``, after which no other may be called; after
    :class:`NoRoom` all is as it was, and the same may be tried again.

    ``synced`` says whether :meth:`sync` waits for the disk. ``unit`` is the room in bytes that a file takes at once, of
    the ``reserve`` where there is no other. ``draw`` gives the mark of each file. :meth:`remove_before` may be called
    by another thread than the other methods.
    """

    def __init__(
        self,
        files: Files,
        found: Recovered,
        *,
        synced: bool = True,
        unit: int = 4096,
        draw: Callable[[], int] = draw_mark,
        reserve: Reserve = NO_RESERVE,
    ) -> None:
        """Begin the next file after those that were found; what in them does not count is removed."""
        self.files = files
        self.sync_data = synced
        self.unit = unit
        self.draw = draw
        self.reserve = reserve
        self._has_spare = False
        """Only who keeps files sets it, once there is a spare one, and only who begins a file clears it, once there is
        none any more.
        """
        if SPARE in files.names():
            files.remove(SPARE)  # a crash may have left it another name, by which it is needed
        for number in journals_in(files):
            if number > found.number:
                files.remove(name_of(number))
        before = None
        if found.next_group:
            file = files.open(name_of(found.number), writable=True)
            before = _JournalFile(
                file, file.end // found.unit * found.unit, Writer(found.number, found.mark), found.unit, reserve
            )
            file.end = before.writer.end = found.next_group
            before.writer.synced = found.end
        self._begin(found.number + 1, found.end, found.unproven, before)

    @property
    def number(self) -> int:
        """That of the file that is written now."""
        return self._last.writer.number

    @property
    def synced(self) -> int:
        """Up to where the next group says that the file was synced."""
        return self._last.writer.synced

    @property
    def end(self) -> int:
        """The bytes of the file that is written now."""
        return self._last.writer.end

    def write(self, records: Iterable[bytes] = ()) -> None:
        """Append a group; :meth:`sync` makes it durable."""
        self.gather((framed(records),))

    def gather(self, records: Sequence[Part]) -> None:
        """Append a group of records that are framed already, in several parts
        (:func:`fencepost.ledger.disk.journal.framed`), with one write.
        """
        self._last.gather(records)

    def sync(self) -> None:
        """Come back when all that was written is durable."""
        if self.sync_data:
            self._last.file.sync()
            self._last.writer.synced = self._last.writer.end

    def roll(self, records: Sequence[bytes] = ()) -> int:
        """Go on in the next file, which begins with some records; its number. All that is in those before, and these
        records, are durable then.
        """
        before = self._last
        before.file.sync()
        self._begin(before.writer.number + 1, before.writer.end, records, before)
        return self.number

    def remove_before(self, start: int) -> None:
        """Remove the files that a checkpoint does without, or keep one of them for its room."""
        for number in journals_in(self.files):
            if number < start:
                name = name_of(number)
                if self._has_spare or not self.files.size(name) or self.files.size(name) % self.unit:
                    self.files.remove(name)
                else:
                    self.files.rename(name, SPARE)
                    self._has_spare = True

    def _begin(self, number: int, previous_end: int, records: Sequence[bytes], before: _JournalFile | None) -> None:
        """Make a file, and let the one before it say that it is there, ahead of anything that relies on that. Where
        there is no room for a unit, one that grows by less has its room of the reserve.
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
        file, length = self._made(name_of(number), reserve)
        last = _JournalFile(file, length, Writer(number, self.draw()), unit, reserve)
        try:
            last.append([last.writer.begin(previous_end, records, unit)])
            last.file.sync()
            last.writer.synced = last.writer.end if self.sync_data else 0
            if before is not None:
                before.gather((), following=number)
                before.file.sync()
        except NoRoom:
            self.files.remove(name_of(number))
            self.files.sync()  # once more is in the file before, nothing may say that it ends earlier
            raise
        last.reserve = self.reserve
        self._last = last

    def _made(self, name: str, reserve: Reserve) -> tuple[File, int]:
        """A file with a name, in place of the spare one if there is one, and its length.

        The name is durable, and the spare one's is gone: until then a crash may leave what is in it by a name by which
        it is needed.
        """
        if not self._has_spare:
            file = reserve.or_of_it(lambda: self.files.create(name), 0)
            self.files.sync()
            return file, 0
        self.files.rename(SPARE, name)
        self._has_spare = False
        self.files.sync()
        file = self.files.open(name, writable=True)
        length, file.end = file.end, 0
        return file, length


class _JournalFile:
    """A file of the journal, and its layout. Its length grows by the unit."""

    def __init__(self, file: File, length: int, writer: Writer, unit: int, reserve: Reserve) -> None:
        self.file = file
        self.writer = writer
        self.reserve = reserve
        self._unit = unit
        self._length = length

    def gather(self, records: Sequence[Part], following: int = 0) -> None:
        """Append a group of records that are framed already."""
        end = self.writer.end
        try:
            self.append(self.writer.gathered(records, following))
        except NoRoom:
            self.writer.end = end
            raise

    def append(self, parts: Sequence[Part]) -> None:
        """Write at the end; the length of the file is durable before."""
        end = self.file.end + sum(map(len, parts))
        if end > self._length:
            length = -(-end // self._unit) * self._unit
            self.reserve.or_of_it(lambda: self.file.preallocate(length), length - self._length)
            self._length = length
            self.file.sync()
        self.file.append(parts)
