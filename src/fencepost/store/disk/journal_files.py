"""The journal as files: reading it, appending groups to its last file, going on in the next one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fencepost.store.disk.files import File, Files
from fencepost.store.disk.journal import Recovered, Writer, recover

SUFFIX = ".journal"


def name_of(number: int) -> str:
    """The file of a journal with a number."""
    return f"{number:08}{SUFFIX}"


def journals_in(files: Files) -> list[int]:
    """The numbers of the files of the journal in a folder, in order."""
    return sorted(int(name.removesuffix(SUFFIX)) for name in files.names() if name.endswith(SUFFIX))


def read_journal(files: Files, start: int) -> Recovered:
    """What the files of the journal from a number on hold. Raises :class:`fencepost.store.disk.journal.Damage`."""
    return recover(_contents(files, start), start)


def _contents(files: Files, start: int) -> Iterator[tuple[int, bytes]]:
    for number in journals_in(files):
        if number >= start:
            file = files.open(name_of(number))
            yield number, file.read(0, file.end)


class JournalFiles:
    """The journal, opened to be written. All methods raise ``OSError``, after which no other may be called.

    ``synced`` says whether :meth:`sync` waits for the disk. ``allocate`` is the room in bytes that a file takes at once.
    """

    def __init__(self, files: Files, found: Recovered, *, synced: bool = True, allocate: int = 0) -> None:
        """Begin the next file after those that were found; what in them does not count is removed."""
        self.files = files
        self.sync_data = synced
        self.allocate = allocate
        for number in journals_in(files):
            if number > found.number:
                files.remove(name_of(number))
        self._begin(found.number + 1, found.end, found.unproven)

    @property
    def number(self) -> int:
        """That of the file that is written now."""
        return self._writer.number

    @property
    def synced(self) -> int:
        """Up to where the next group says that the file was synced."""
        return self._writer.synced

    @property
    def end(self) -> int:
        """The bytes of the file that is written now."""
        return self._writer.end

    @property
    def file(self) -> File:
        """The file that is written now."""
        return self._file

    def write(self, records: Iterable[bytes] = ()) -> None:
        """Append a group; :meth:`sync` makes it durable."""
        self._file.append(self._writer.group(records))

    def sync(self) -> None:
        """Come back when all that was written is durable."""
        if self.sync_data:
            self._file.sync()
            self._writer.synced = self._writer.end

    def roll(self) -> int:
        """Go on in the next file; its number. All that is in those before is durable then."""
        self._file.sync()
        self._begin(self._writer.number + 1, self._writer.end, ())
        return self._writer.number

    def remove_before(self, start: int) -> None:
        """Remove the files that a checkpoint does without."""
        for number in journals_in(self.files):
            if number < start:
                self.files.remove(name_of(number))

    def _begin(self, number: int, previous_end: int, records: Sequence[bytes]) -> None:
        self._writer = Writer(number)
        self._file = self.files.create(name_of(number))
        if self.allocate:
            self._file.preallocate(self.allocate)
        self._file.append(self._writer.begin(previous_end, records))
        self._file.sync()
        self.files.sync()
        self._writer.synced = self._writer.end if self.sync_data else 0
