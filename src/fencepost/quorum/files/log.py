"""The replicated log on disk: a bookie's journal (:mod:`fencepost.ledger.disk.journal`) with batches as records.

The files of the journal are the segments of the log. Torn tails are distinguished from damage as there: an unreadable
record that was synced is refused, and a record that a crash cut short is skipped. A record is a CRC32C of all that
follows it (4 bytes), its kind (1), and

- for a batch (1): the epoch of the record before the batch (8 bytes), and the batch as MessagePack;
- for a beginning (2): an offset, and the epoch of the record before it (8 bytes each). The log continues there, and
  everything after that offset is removed. If the log has no such place, it starts again there.

A file begins with a beginning, or with batches repeated from the previous file. A truncation begins a new file. So
the batches of a file are consecutive, and the log can start at the first batch of any file, once earlier files are
removed.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import msgspec

from fencepost.files.checksum import crc32c
from fencepost.files.folders import SECTOR, File, Files
from fencepost.ledger.disk.journal import RECORDS_AT, Damage, Recovered, read_records
from fencepost.ledger.disk.journal_files import JournalFiles, journals_in, name_of, read_partial_journal
from fencepost.quorum.log import Batch, LogIndex, OffsetAndEpoch, Snapshot

_BATCH, _BEGINNING = 1, 2
_CHECKSUM = struct.Struct(">I")
_HEAD = struct.Struct(">BQ")
_BEGIN = struct.Struct(">BQQ")
_base = attrgetter("base")
_LENGTH = 4
"""Bytes of the length before each journal record."""

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Batch)


class Held:
    """A batch of the log: in memory, on disk at a place (file, offset, length), or both."""

    __slots__ = ("ahead", "base", "batch", "end", "epoch", "place", "size")

    def __init__(self, batch: Batch, ahead: int, size: int, place: tuple[int, int] | None = None) -> None:
        self.base = batch.base_offset
        self.end = batch.end_offset
        self.epoch = batch.epoch
        self.ahead = ahead
        """The epoch of the record before it."""
        self.batch: Batch | None = batch
        self.size = size
        """Bytes of its record."""
        self.place = place


@dataclass(slots=True)
class _Write:
    """A change of the log that is not durable yet: a batch, or the place at which the log continues. ``anew``: nothing
    before that place is left.
    """

    record: bytes
    held: Held | None = None
    begin: OffsetAndEpoch | None = None
    anew: bool = False


class ReplicatedLog:
    """The log of one replica.

    The loop's thread calls all methods except :meth:`write`, :meth:`rest` and :meth:`remove_files`. One other thread
    calls those to change the disk. They raise ``OSError``; the log must not be used afterwards.
    """

    def __init__(self, files: Files, start: OffsetAndEpoch, cache: int = 32 << 20, segment: int = 16 << 20) -> None:
        self.files = files
        self.start = start
        """Where it starts, and the epoch of the record before that."""
        self.appended_bytes = 0
        """Bytes of the batches that were added since it was opened."""
        self._held: list[Held] = []
        self._cached: deque[Held] = deque()
        self._cached_bytes = 0
        self._cache = cache
        self._segment = segment
        self._unsynced: list[_Write] = []
        self._writing = 0  # how many of them the other thread has
        self._durable = start.offset
        self._journal: JournalFiles
        self._begins: list[tuple[int, int]] = []  # number of each file, and the offset at which the log continues in it
        self._open: dict[int, File] = {}
        # Of the writing thread, until written() is called: the end of what it has written, and its new files.
        self._end = start
        self._begun: list[tuple[int, int]] = []

    # -- opening -------------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, files: Files, start: OffsetAndEpoch, unit: int = 1 << 16, **limits: int) -> ReplicatedLog:
        """Create an empty log that starts at a place, in a folder without one."""
        log = cls(files, start, **limits)
        log._journal = JournalFiles(files, Recovered((), (), 0, 0), unit=unit, fills=True)
        log._begins = [(log._journal.number, start.offset)]
        log._journal.write([_beginning(start).record])
        log._journal.sync()
        return log

    @classmethod
    def open(cls, files: Files, unit: int = 1 << 16, **limits: int) -> ReplicatedLog:
        """Open the log of a folder. Raises :class:`Damage` if something durable is missing, and ``OSError``."""
        numbers = journals_in(files)
        if not numbers:
            raise Damage("the log is missing")
        recovered = read_partial_journal(files, numbers[0])
        log = cls(files, OffsetAndEpoch(0, 0), **limits)
        log._replay(recovered)
        log._journal = JournalFiles(files, recovered, unit=unit, fills=True)
        log._has_begun(recovered.unproven)
        log._durable, log._end = log.end.offset, log.end
        return log

    def _has_begun(self, repeated: Sequence[bytes]) -> None:
        """A new file begins with the last records of the log, which may not be durable in the previous file."""
        number, at = self._journal.number, SECTOR + RECORDS_AT
        first = len(self._held) - sum(isinstance(_read(record)[0], Batch) for record in repeated)
        self._begins.append((number, self._held[first].base if first < len(self._held) else self.end.offset))
        for record in repeated:
            at += _LENGTH
            if isinstance(_read(record)[0], Batch):
                self._held[first].place = number, at
                first += 1
            at += len(record)
        if not repeated:
            self._journal.write([_beginning(self.end).record])
            self._journal.sync()

    def _replay(self, recovered: Recovered) -> None:
        began = False
        for group, (number, at) in zip(recovered.groups, recovered.places, strict=True):
            for record in read_records(group):
                at += _LENGTH
                what, ahead = _read(record)
                offset = what.base_offset if isinstance(what, Batch) else what.offset
                if not self._begins or self._begins[-1][0] != number:
                    self._begins.append((number, offset))
                if not began:
                    self.start, began = OffsetAndEpoch(offset, ahead), True
                if isinstance(what, Batch):
                    if offset != self.end.offset or ahead != self.end.epoch:
                        raise Damage(f"the log has records of {offset:,} behind the end at {self.end.offset:,}")
                    self._hold(Held(what, ahead, len(record), (number, at)))
                else:
                    self._go_on_at(what)
                at += len(record)
        if not began:
            raise Damage("the log has no beginning")

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def end(self) -> OffsetAndEpoch:
        """The end of the log, durable or not."""
        return OffsetAndEpoch(self._held[-1].end, self._held[-1].epoch) if self._held else self.start

    @property
    def stored_end(self) -> OffsetAndEpoch:
        """The end of the durable part of the current log."""
        offset = self._durable
        for write in self._unsynced:
            if write.begin is not None:
                offset = write.begin.offset if write.anew else min(offset, write.begin.offset)
        offset = min(max(offset, self.start.offset), self.end.offset)
        return OffsetAndEpoch(offset, self.epoch_ahead_of(offset))

    def epoch_ahead_of(self, offset: int) -> int:
        """The epoch of the record before an offset. The offset must be between start and end."""
        place = self._place(offset - 1)
        return self._held[place].epoch if place >= 0 else self.start.epoch

    def index(self, snapshot: Snapshot) -> LogIndex:
        """The role's index of the log, with the latest snapshot."""
        index = LogIndex(snapshot, self.start.offset, self.start.epoch)
        for held in self._held:
            index.append(self._batch(held))
        return index

    def read(self, offset: int, most_bytes: int = 1 << 62) -> list[Batch]:
        """Read batches from an offset on, where one must begin: at least one, if there is any, and not many more bytes
        than ``most_bytes``.

        Raises :class:`Damage` if the disk returns other bytes, and ``ValueError`` for an offset within a batch.
        """
        if offset >= self.end.offset:
            return []
        place = self._place(offset)
        if place < 0 or self._held[place].base != offset:
            raise ValueError(f"no batch of the log begins at {offset}")
        batches: list[Batch] = []
        size = 0
        for index in range(place, len(self._held)):
            held = self._held[index]
            if batches and size + held.size > most_bytes:
                break
            batches.append(self._batch(held))
            size += held.size
        return batches

    def size_from(self, offset: int) -> int:
        """Bytes of the batches from an offset on."""
        return sum(held.size for held in self._held if held.base >= offset)

    def _place(self, offset: int) -> int:
        """The index of the batch with the record at an offset; -1 if the offset is before all."""
        return bisect_right(self._held, offset, key=_base) - 1

    def _batch(self, held: Held) -> Batch:
        if held.batch is not None:
            return held.batch
        assert held.place is not None
        number, at = held.place
        file = self._open.get(number)
        if file is None:
            file = self._open[number] = self.files.open(name_of(number))
        what, ahead = _read(file.read(at, held.size))
        if not isinstance(what, Batch) or (what.base_offset, what.end_offset, ahead) != (
            held.base,
            held.end,
            held.ahead,
        ):
            raise Damage(f"the log has something else at {held.base:,} than was written")
        return what

    # -- changing ------------------------------------------------------------------------------------------------------

    def append(self, batches: Iterable[Batch]) -> None:
        """Append batches."""
        for batch in batches:
            ahead = self.end.epoch
            record = _sealed(_HEAD.pack(_BATCH, ahead) + _encode(batch))
            held = Held(batch, ahead, len(record))
            self._hold(held)
            self.appended_bytes += len(record)
            self._unsynced.append(_Write(record, held))

    def truncate(self, end_offset: int) -> None:
        """Remove all records from an offset on."""
        at = OffsetAndEpoch(end_offset, self.epoch_ahead_of(end_offset))
        self._go_on_at(at)
        self._unsynced.append(_beginning(at))

    def reset(self, end: OffsetAndEpoch) -> None:
        """Drop everything, and start again at the end of a snapshot."""
        self._begin_anew(end)
        self._unsynced.append(_beginning(end, anew=True))

    def delete_before(self, offset: int) -> int:
        """Forget whole files of batches before an offset. Returns the number of the first file to keep, for
        :meth:`remove_files`.
        """
        keep = 0
        for place, (_, begin) in enumerate(self._begins):
            if begin <= offset:
                keep = place
        del self._begins[:keep]
        first, begin = self._begins[0]
        count = 0
        while count < len(self._held) and self._held[count].end <= begin:
            held = self._held[count]
            self.start = OffsetAndEpoch(held.end, held.epoch)
            if held.batch is not None:
                self._uncache(held)
            count += 1
        del self._held[:count]
        for number in [number for number in self._open if number < first]:
            del self._open[number]
        return first

    def _begin_anew(self, at: OffsetAndEpoch) -> None:
        self._held.clear()
        self._cached.clear()
        self._cached_bytes = 0
        self.start = at

    def _go_on_at(self, at: OffsetAndEpoch) -> None:
        fits = self.start.offset <= at.offset <= self.end.offset and self.epoch_ahead_of(at.offset) == at.epoch
        if not fits:
            self._begin_anew(at)
        while self._held and self._held[-1].base >= at.offset:
            held = self._held.pop()
            if held.batch is not None:
                self._uncache(held)
        if self.end != at:
            raise Damage(f"the log goes on at {at}, within a batch")

    def _hold(self, held: Held) -> None:
        self._held.append(held)
        self._cached.append(held)
        self._cached_bytes += held.size
        while self._cached_bytes > self._cache and self._cached and self._cached[0].place is not None:
            self._uncache(self._cached.popleft())

    def _uncache(self, held: Held) -> None:
        held.batch = None
        self._cached_bytes -= held.size
        if self._cached and self._cached[0] is held:
            self._cached.popleft()
        elif self._cached and self._cached[-1] is held:
            self._cached.pop()

    # -- the disk ------------------------------------------------------------------------------------------------------

    @property
    def file_count(self) -> int:
        """The number of its files."""
        return len(self._begins)

    @property
    def has_unsynced(self) -> bool:
        """Whether there are writes that the other thread does not have yet."""
        return len(self._unsynced) > self._writing

    def take(self) -> Sequence[_Write]:
        """Take all pending writes as the next group, for :meth:`write`. One group at a time."""
        assert not self._writing
        self._writing = len(self._unsynced)
        return self._unsynced[:]

    def write(self, writes: Sequence[_Write]) -> None:
        """Write a group. It is durable when this returns. Called on the other thread."""
        journal = self._journal
        group: list[_Write] = []
        for write in writes:
            if write.begin is not None:
                self._write_group(group)
                group = []
                self._roll(write.begin)
            else:
                group.append(write)
        self._write_group(group)
        journal.sync()
        if journal.end > self._segment:
            self._roll(self._end)

    def _roll(self, at: OffsetAndEpoch) -> None:
        self._begun.append((self._journal.roll([_beginning(at).record]), at.offset))
        self._end = at

    def _write_group(self, group: Sequence[_Write]) -> None:
        if not group:
            return
        number, at = self._journal.number, self._journal.end + RECORDS_AT
        self._journal.write([write.record for write in group])
        for write in group:
            at += _LENGTH
            assert write.held is not None
            write.held.place = number, at
            self._end = OffsetAndEpoch(write.held.end, write.held.epoch)
            at += len(write.record)

    def written(self) -> OffsetAndEpoch:
        """The group is durable. Returns the end of the durable part of the current log."""
        self._begins += self._begun
        self._begun = []
        for write in self._unsynced[: self._writing]:
            if write.held is not None:
                self._durable = write.held.end
            else:
                assert write.begin is not None
                self._durable = write.begin.offset
        del self._unsynced[: self._writing]
        self._writing = 0
        return self.stored_end

    def rest(self) -> None:
        """Prove that the last writes are durable. Called on the other thread, like :meth:`write`."""
        self._journal.write()
        self._journal.sync()

    def remove_files(self, first: int) -> None:
        """Remove the files before this one. Called on the other thread."""
        self._journal.remove_before(first)
        self.files.sync()


def _beginning(at: OffsetAndEpoch, anew: bool = False) -> _Write:
    return _Write(_sealed(_BEGIN.pack(_BEGINNING, at.epoch, at.offset)), None, at, anew)


def _sealed(body: bytes) -> bytes:
    return _CHECKSUM.pack(crc32c(body)) + body


def _read(record: bytes) -> tuple[Batch | OffsetAndEpoch, int]:
    """Decode a record: its contents, and the epoch of the record before it in the log."""
    body = record[_CHECKSUM.size :]
    if len(body) < _HEAD.size or _CHECKSUM.unpack_from(record)[0] != crc32c(body):
        raise Damage("the log has a record with another checksum than was written")
    kind, ahead = _HEAD.unpack_from(body)
    try:
        if kind == _BATCH:
            return _decoder.decode(body[_HEAD.size :]), ahead
        if kind == _BEGINNING:
            _, epoch, offset = _BEGIN.unpack(body)
            return OffsetAndEpoch(offset, epoch), epoch
    except (msgspec.DecodeError, UnicodeDecodeError, struct.error) as error:
        raise Damage(f"the log has an invalid record: {error}") from error
    raise Damage(f"the log has a record of the kind {kind}, which this version does not know")
