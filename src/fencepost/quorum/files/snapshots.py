"""Snapshots on disk: the state of the state machine at a place of the log, and the voters there.

A snapshot is the file ``OFFSET-EPOCH.checkpoint``, named as in Kafka, in the format of a journal file
(:mod:`fencepost.ledger.disk.journal`). Its first record has the offset, epoch and voters. Groups of the state machine's
records follow. The last record has their number; without it the snapshot is incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from fencepost.files.folders import TEMPORARY, File, Files
from fencepost.ledger.disk import journal
from fencepost.ledger.disk.journal import Damage
from fencepost.quorum.identity import VoterSet
from fencepost.quorum.log import OffsetAndEpoch, Snapshot

SUFFIX = ".checkpoint"
FETCHED = ".part"
"""The suffix of a snapshot that is being fetched."""
FORMAT = 1
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The first record."""

    format: int
    end: OffsetAndEpoch
    voters: VoterSet


class Tail(msgspec.Struct, frozen=True, array_like=True):
    """The last record: the number of the state machine's records."""

    count: int


_encode = msgspec.msgpack.Encoder().encode
_read_head = msgspec.msgpack.Decoder(Head).decode
_read_tail = msgspec.msgpack.Decoder(Tail).decode


def name_of(end: OffsetAndEpoch) -> str:
    """The file name of a snapshot."""
    return f"{end.offset:020}-{end.epoch:010}{SUFFIX}"


def snapshots_in(files: Files) -> list[OffsetAndEpoch]:
    """The snapshots in a folder, in order."""
    matches = map(_NAME.fullmatch, files.names())
    return sorted(OffsetAndEpoch(int(match[1]), int(match[2])) for match in matches if match)


def groups(snapshot: Snapshot, records: Iterable[Sequence[bytes]]) -> Iterator[bytes]:
    """Encode a snapshot, a group at a time."""
    writer = journal.Writer(snapshot.end.offset + 1)
    yield writer.begin(0, [_encode(Head(FORMAT, snapshot.end, snapshot.voters))])
    count = 0
    for some in records:
        count += len(some)
        yield writer.group(some)
    yield writer.group([_encode(Tail(count))])


def write_snapshot(files: Files, snapshot: Snapshot, records: Iterable[Sequence[bytes]]) -> Iterator[None]:
    """Write a snapshot, a group at each step. It exists durably after the last step."""
    temporary = name_of(snapshot.end) + TEMPORARY
    file = files.create(temporary)
    for group in groups(snapshot, records):
        file.append(group)
        yield
    file.sync()
    files.rename(temporary, name_of(snapshot.end))
    files.sync()


def read_snapshot(data: bytes, end: OffsetAndEpoch) -> tuple[Snapshot, list[bytes]]:
    """Decode a snapshot, and the records of the state machine. Raises :class:`Damage` for other bytes."""
    name = name_of(end)
    scanned = journal.scan(data, end.offset + 1)
    records = [record for _, record in scanned.records]
    try:
        if len(records) < 2 or scanned.end != len(data):
            raise Damage(f"{name} cannot be read from byte {scanned.end:,} on")
        head, tail = _read_head(records[0]), _read_tail(records[-1])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damage(f"{name} cannot be read: {error}") from error
    if head.format != FORMAT:
        raise Damage(f"{name} has the format {head.format}, and this version reads {FORMAT}")
    if head.end != end or tail.count != len(records) - 2:
        raise Damage(f"{name} is not what was written")
    return Snapshot(head.end, head.voters), records[1:-1]


def load_snapshot(files: Files, end: OffsetAndEpoch) -> tuple[Snapshot, list[bytes]]:
    """Read a snapshot from a folder. Raises :class:`Damage` and ``OSError``."""
    name = name_of(end)
    return read_snapshot(files.open(name).read(0, files.size(name)), end)


def purge_snapshots(files: Files, keep: int) -> None:
    """Remove all snapshots except the ``keep`` newest ones."""
    for end in snapshots_in(files)[:-keep]:
        files.remove(name_of(end))


class Fetched:
    """A snapshot that is being fetched from the leader, piece by piece."""

    def __init__(self, files: Files, end: OffsetAndEpoch) -> None:
        self.files = files
        self.end = end
        self._name = name_of(end) + FETCHED
        if self._name in files.names():
            files.remove(self._name)
        self._file: File = files.create(self._name)

    def write(self, position: int, data: bytes) -> None:
        """Write bytes from a position on, which must not be after the end of the previous ones."""
        if position > self._file.end:
            raise ValueError(f"{self._name} has {self._file.end} bytes, and none at {position}")
        if position < self._file.end:
            self._file.truncate(position)
        self._file.append(data)

    def install(self) -> tuple[Snapshot, list[bytes]]:
        """Make the complete snapshot durable. Raises :class:`Damage`, and then the file is deleted."""
        try:
            snapshot = read_snapshot(self._file.read(0, self._file.end), self.end)
        except Damage:
            self.files.remove(self._name)
            raise
        self._file.sync()
        self.files.rename(self._name, name_of(self.end))
        self.files.sync()
        return snapshot


def remove_fetched(files: Files) -> None:
    """Remove an incomplete fetch of an earlier process."""
    for name in files.names():
        if name.endswith(FETCHED):
            files.remove(name)
