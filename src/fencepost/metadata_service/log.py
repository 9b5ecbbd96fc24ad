"""The entries of the state machine on disk: a journal, snapshots, and the state that both give after a start.

In the directory are files of the journal (``log-NUMBER``), begun at each start and with each snapshot; snapshots (``snapshot-NUMBER``: the
state at which the file of the log with this number begins); and ``current``, which names the newest file of the log, and after a clean end
its last zxid, so that it is noticed when they are missing. Zxids have no gaps: an entry that is missing is noticed by them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from fencepost.metadata_service import snapshot
from fencepost.metadata_service.tree import Transaction, Tree
from fencepost.store.disk import journal
from fencepost.store.disk.files import File, Files
from fencepost.store.disk.journal import Damage

_logger = logging.getLogger(__name__)

CURRENT = "current"
_LOG = "log-"
_SNAPSHOT = "snapshot-"
_TEMPORARY = ".new"
_FILES = 8
"""Files of the log since the last snapshot, from which on a start writes one: every start begins a file."""

_decoder = msgspec.msgpack.Decoder(Transaction)
encode = msgspec.msgpack.Encoder().encode
"""An entry as bytes."""


class Current(msgspec.Struct, frozen=True):
    """The newest file of the log, and the last zxid if the service ended cleanly, otherwise -1."""

    log: int
    zxid: int = -1


class Log:
    """The log of one service. All methods but :meth:`open` may be called by one thread at a time, which need not be the loop's.

    They raise OSError if the disk fails. Then nothing more may be asked of the log: what reached the disk is not known.
    """

    def __init__(self, files: Files, number: int, preallocate: int) -> None:
        self.files = files
        self._preallocate = preallocate
        self._writer = journal.Writer(number)
        self._file: File | None = None
        self.replayed = 0
        """Entries that the state at the start took from the log."""

    @classmethod
    def open(cls, files: Files, preallocate: int = 0, keep: int = 3) -> tuple[Log, Tree]:
        """The state that a directory holds, and the log in which it goes on; an empty directory is a new service's.

        A file of the log takes ``preallocate`` bytes at once, and ``keep`` snapshots stay. Raises :class:`Damage` if something is missing that was durable, and OSError.
        """
        for name in files.names():
            if name.endswith(_TEMPORARY):
                files.remove(name)
        names = set(files.names())
        current = _current(files, names)
        tree, start = _newest(files, names)
        recovered = journal.recover(_logs(files, names, start), start)
        if recovered.number < current.log:
            raise Damage(f"{_name(_LOG, current.log)} is missing or can not be read")
        for record in recovered.records:
            entry = _entry(record)
            if entry.zxid > tree.zxid:
                _apply(tree, entry)
        if tree.zxid < current.zxid:
            raise Damage(f"the log ended with zxid {current.zxid:#x}, and what is there ends with {tree.zxid:#x}")
        log = cls(files, recovered.number, preallocate)
        log.replayed = len(recovered.records)
        log._begin(recovered.number + 1, recovered.end, recovered.unproven)
        if log.number - start > _FILES:
            for _ in log.write_snapshot(log.number, snapshot.groups(tree, log.number)):
                pass
            log.replayed = 0
            log.purge(keep)
        return log, tree

    @property
    def number(self) -> int:
        """The number of the file of the log that is written."""
        return self._writer.number

    def append(self, entries: Sequence[bytes]) -> None:
        """Write entries as one group; they are durable when it comes back."""
        assert self._file is not None
        self._file.append(self._writer.group(entries))
        self._file.sync()
        self._writer.synced = self._writer.end

    def rest(self) -> None:
        """Prove that what was written is durable, as :mod:`fencepost.store.disk.journal` asks of a writer that rests."""
        self.append(())

    def roll(self) -> None:
        """Go on in the next file, at which a snapshot is to begin."""
        self._begin(self._writer.number + 1, self._writer.end)

    def close(self, zxid: int) -> None:
        """End cleanly, after the entry with a zxid."""
        assert self._file is not None
        self.rest()
        self._file.truncate(self._writer.end)
        self._file.sync()
        self._write_current(Current(self.number, zxid))
        self._file = None

    def write_snapshot(self, number: int, groups: Iterable[bytes]) -> Iterator[None]:
        """Write a snapshot, a group at each step. It counts when the last step is done. Another thread may do it than the log's."""
        name = _name(_SNAPSHOT, number)
        file = self.files.create(name + _TEMPORARY)
        for group in groups:
            file.append(group)
            yield
        file.sync()
        self.files.rename(name + _TEMPORARY, name)
        self.files.sync()

    def purge(self, keep: int) -> None:
        """Remove all snapshots but the newest ``keep``, and the files of the log from before the oldest of them."""
        names = self.files.names()
        snapshots = _numbers(names, _SNAPSHOT)
        oldest = snapshots[-keep] if len(snapshots) >= keep else 0
        for prefix in (_SNAPSHOT, _LOG):
            for number in _numbers(names, prefix):
                if number < oldest:
                    self.files.remove(_name(prefix, number))
        self.files.sync()

    def _begin(self, number: int, previous_end: int, records: Sequence[bytes] = ()) -> None:
        name = _name(_LOG, number)
        if name in self.files.names():
            self.files.remove(name)  # of a start that did not get to its end
        self._writer = journal.Writer(number)
        self._file = self.files.create(name)
        if self._preallocate:
            self._file.preallocate(self._preallocate)
        self._file.append(self._writer.begin(previous_end, records))
        self._file.sync()
        self._writer.synced = self._writer.end
        self.files.sync()
        self._write_current(Current(number))

    def _write_current(self, current: Current) -> None:
        file = self.files.create(CURRENT + _TEMPORARY)
        file.append(msgspec.json.encode(current) + b"\n")
        file.sync()
        self.files.rename(CURRENT + _TEMPORARY, CURRENT)
        self.files.sync()


def _current(files: Files, names: set[str]) -> Current:
    if CURRENT not in names:
        if _numbers(names, _LOG)[1:] or _numbers(names, _SNAPSHOT):
            raise Damage(f"{CURRENT} is missing, which names the newest file of the log")
        return Current(0)
    try:
        return msgspec.json.decode(files.open(CURRENT).read(0, files.size(CURRENT)), type=Current)
    except msgspec.DecodeError as error:
        raise Damage(f"{CURRENT} can not be read: {error}") from error


def _newest(files: Files, names: set[str]) -> tuple[Tree, int]:
    """The state of the newest snapshot that can be read, and the file of the log from which it goes on."""
    damage = None
    for number in reversed(_numbers(names, _SNAPSHOT)):
        name = _name(_SNAPSHOT, number)
        try:
            return snapshot.restored(files.open(name).read(0, files.size(name)), number), number
        except Damage as error:
            damage = error
            _logger.warning("%s; an older one and the log are tried", error)
    if damage is not None and 1 not in _numbers(names, _LOG):
        raise damage
    return Tree(), 1


def _logs(files: Files, names: set[str], start: int) -> Iterator[tuple[int, bytes]]:
    for number in _numbers(names, _LOG):
        if number >= start:
            name = _name(_LOG, number)
            yield number, files.open(name).read(0, files.size(name))


def _entry(record: bytes) -> Transaction:
    try:
        return _decoder.decode(record)
    except msgspec.DecodeError as error:
        raise Damage(f"the log has an entry that is none: {error}") from error


def _apply(tree: Tree, entry: Transaction) -> None:
    try:
        tree.apply(entry)
    except ValueError as error:
        raise Damage(f"entries of the log are missing: {error}") from error


def _name(prefix: str, number: int) -> str:
    return f"{prefix}{number:010d}"


def _numbers(names: Sequence[str] | set[str], prefix: str) -> list[int]:
    """The numbers of the files whose names begin so."""
    return sorted(int(name[len(prefix) :]) for name in names if name.startswith(prefix) and name[len(prefix) :].isdecimal())
