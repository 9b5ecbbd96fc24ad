"""The entries of the state machine on disk: a journal, snapshots, and the state that both give after a start.

In the directory are files of the journal (``NUMBER.journal``, see :mod:`fencepost.store.disk.journal`), begun at each start and with each
snapshot; snapshots (``NUMBER.snapshot``: the state at which the file of the journal with this number begins); and ``current``, which
says that there is a service, and up to which zxid its log went when it last ended cleanly, so that it is noticed when that is missing.
Zxids have no gaps: an entry that is missing is noticed by them.

An entry is an array of MessagePack: zxid, time, session, identities, and the request, whose first element is its name, as
``[7, 1700000000000, 81, [["ip", "127.0.0.1"]], ["Delete", "/a", -1]]``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from fencepost.metadata_service import snapshot
from fencepost.metadata_service.tree import Transaction, Tree
from fencepost.store.disk.checksum import crc32c
from fencepost.store.disk.files import TEMPORARY, Files, remove_temporary, replace
from fencepost.store.disk.journal import Damage
from fencepost.store.disk.journal_files import JournalFiles, journals_in, read_journal

_logger = logging.getLogger(__name__)

CURRENT = "current"
_SNAPSHOT = ".snapshot"
_FILES = 8
"""Files of the journal since the last snapshot, from which on a start writes one: every start begins a file."""
_UNIT = 4_096
"""The least room that a file of the journal takes at once."""

_decoder = msgspec.msgpack.Decoder(Transaction)
encode = msgspec.msgpack.Encoder().encode
"""An entry as bytes."""


class Current(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A zxid that the log reaches, and a checksum of it."""

    zxid: int
    checksum: int

    @classmethod
    def of(cls, zxid: int) -> Current:
        return cls(zxid, crc32c(b"%d" % zxid))


class Log:
    """The log of one service. Its methods may be called by one thread at a time, which need not be the loop's.

    They raise OSError if the disk fails. Then nothing more may be asked of the log: what reached the disk is not known.
    """

    def __init__(self, files: Files, journal: JournalFiles) -> None:
        self.files = files
        self.replayed = 0
        """Entries that the state at the start took from the log."""
        self._journal = journal

    @classmethod
    def open(cls, files: Files, preallocate: int = 0, keep: int = 3) -> tuple[Log, Tree]:
        """The state that a directory holds, and the log in which it goes on; an empty directory is a new service's.

        A file of the journal takes ``preallocate`` bytes at once, and ``keep`` snapshots stay. Raises :class:`Damage` if something is
        missing that was durable, and OSError.
        """
        remove_temporary(files)
        current = _current(files)
        tree, start = _newest(files)
        found = read_journal(files, start)
        for record in found.records:
            entry = _entry(record)
            if entry.zxid > tree.zxid:
                _apply(tree, entry)
        if current is None and tree.zxid:
            raise Damage(f"{CURRENT} is missing, which says how far the log goes")
        if current is not None and not found.number:
            raise Damage("the journal is missing")
        if current is not None and tree.zxid < current.zxid:
            raise Damage(f"the log went up to zxid {current.zxid:#x}, and what is there ends with {tree.zxid:#x}")
        log = cls(files, JournalFiles(files, found, unit=max(_UNIT, preallocate)))
        log.replayed = len(found.records)
        if current is None:
            log._write_current(0)
        if log.number - start > _FILES:
            for _ in log.write_snapshot(log.number, snapshot.groups(tree, log.number)):
                pass
            log.replayed = 0
            log.purge(keep)
        return log, tree

    @property
    def number(self) -> int:
        """The number of the file of the journal that is written."""
        return self._journal.number

    def append(self, entries: Sequence[bytes]) -> None:
        """Write entries as one group; they are durable when it comes back."""
        self._journal.write(entries)
        self._journal.sync()

    def rest(self) -> None:
        """Prove that what was written is durable, as :mod:`fencepost.store.disk.journal` asks of a writer that rests."""
        self.append(())

    def roll(self) -> None:
        """Go on in the next file, at which a snapshot is to begin."""
        self._journal.roll()

    def close(self, zxid: int) -> None:
        """End cleanly, after the entry with a zxid."""
        self.rest()
        self._write_current(zxid)

    def write_snapshot(self, number: int, groups: Iterable[bytes]) -> Iterator[None]:
        """Write a snapshot, a group at each step. It counts when the last step is done. Another thread may do it than the log's."""
        name = _name(number)
        file = self.files.create(name + TEMPORARY)
        for group in groups:
            file.append(group)
            yield
        file.sync()
        self.files.rename(name + TEMPORARY, name)
        self.files.sync()

    def purge(self, keep: int) -> None:
        """Remove all snapshots but the newest ``keep``, and the files of the journal from before the oldest of them. As for the thread, see
        :meth:`write_snapshot`."""
        numbers = _snapshots(self.files)
        for number in numbers[:-keep]:
            self.files.remove(_name(number))
        if len(numbers) >= keep:
            self._journal.remove_before(numbers[-keep])
        self.files.sync()

    def _write_current(self, zxid: int) -> None:
        replace(self.files, CURRENT, msgspec.json.encode(Current.of(zxid)) + b"\n")


def _current(files: Files) -> Current | None:
    if CURRENT not in files.names():
        return None
    try:
        found = msgspec.json.decode(files.open(CURRENT).read(0, files.size(CURRENT)), type=Current)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damage(f"{CURRENT} can not be read: {error}") from error
    if found != Current.of(found.zxid):
        raise Damage(f"{CURRENT} is not what was written")
    return found


def _newest(files: Files) -> tuple[Tree, int]:
    """The state of the newest snapshot that can be read, and the file of the journal from which it goes on."""
    damage = None
    for number in reversed(_snapshots(files)):
        try:
            return snapshot.restored(files.open(_name(number)).read(0, files.size(_name(number))), number), number
        except Damage as error:
            damage = error
            _logger.warning("%s; an older one and the log are tried", error)
    if damage is not None and 1 not in journals_in(files):
        raise damage
    return Tree(), 1


def _entry(record: bytes) -> Transaction:
    try:
        return _decoder.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damage(f"the log has an entry that is none: {error}") from error


def _apply(tree: Tree, entry: Transaction) -> None:
    try:
        tree.apply(entry)
    except ValueError as error:
        raise Damage(f"entries of the log are missing: {error}") from error


def _name(number: int) -> str:
    return f"{number:08}{_SNAPSHOT}"


def _snapshots(files: Files) -> list[int]:
    """The numbers of the snapshots, in order."""
    return sorted(int(name.removesuffix(_SNAPSHOT)) for name in files.names() if name.endswith(_SNAPSHOT))
