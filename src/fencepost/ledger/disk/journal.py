"""The journal: the bytes of a bookie's log of records, and what can be read back after a crash or damage.

A journal is a sequence of files. A new one is begun at each start of its bookie, at each checkpoint, and when a file is
large. A file begins with a sector that says which one it is and up to where the file before it counts. Then come
groups, each from a sector boundary on: a header with a checksum of the whole group, records, and zeros up to the next
boundary. So nothing that was synced is ever written again, and a torn write damages nothing that was durable. The last
group of a file says that the next file is there.

The header of a group says up to where the file was synced when the group was written. What cannot be read is damage if
a later group says that it was synced, and otherwise the torn tail that a crash leaves, whose records were never
acknowledged. The last group that was synced has no later one: the writer of a journal appends an empty group before it
rests.

Records that no later group proves to be synced may be gone after the next crash, although they were read. The first
group of the next file repeats them, and a file without its first group does not count.

A file takes its room by the unit, so that its length is a multiple of that, and the room is durable before anything is
written there. So one that was cut off is known: it has another length, and more in it than a crash while it grew would
leave; or a group in it ends beyond it.

The bytes of a file that is not needed any more may be those that the next file begins with: a disk syncs room that was
written before in less time. So each file has a mark, and each group the mark of its file. A mark is drawn at random,
since records are what clients send: nobody can make one that contains a group of a file to come. Bytes with another
mark are as good as zeros. The end of the file that is written now cannot be distinguished from such bytes, and need
not be: a group of which a crash left no trace, and a group that was never written, are the same to a recovery.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fencepost.files.checksum import crc32c
from fencepost.files.folders import SECTOR, Part

# magic, number, up to where the file before it counts, unit of its length, mark; then a checksum
_FILE = struct.Struct(">8sQQQQ")
# magic, number, mark of the file, own offset, synced offset, next file or 0, bytes of records, checksum; then a
# checksum
_GROUP = struct.Struct(">4sQQQQQII")
_CHECKSUM = struct.Struct(">I")
_LENGTH = struct.Struct(">I")
_GROUP_SIZE = _GROUP.size + _CHECKSUM.size
RECORDS_AT = _GROUP_SIZE
"""The offset of the records in a group."""
_FILE_MAGIC = b"FPJOURN2"
_GROUP_MAGIC = b"FPJG"


class Damage(Exception):
    """Something that was durable cannot be read. Whoever owned the journal must not go on as if it had never been
    there.
    """


class LaterFormat(Damage):
    """A file of a format that came after this version: there is nothing wrong with the disk."""


class Tail(enum.Enum):
    """The tail of a journal file, after its readable part."""

    CLEAN = "clean"
    """The end of the file, or room in which none of its groups begins."""
    TORN = "torn"
    """A group, or a header of the file, that a crash cut short. Nothing after it was synced."""
    DAMAGED = "damaged"
    """Bytes that were synced and cannot be read any more."""


@dataclass(frozen=True)
class Scan:
    """The contents of a journal file: its groups in order, each its offset and its framed records; and the end of its
    readable part, and its tail.

    ``previous_end`` is up to where the file before it counts, -1 if this one does not count. ``synced`` is the offset
    below which everything is proven to be durable, ``following`` the file after it, 0 if it does not say that there is
    one, ``unit`` that of its length, ``mark`` that of its groups.
    """

    previous_end: int
    groups: tuple[tuple[int, bytes], ...]
    synced: int
    end: int
    tail: Tail
    following: int = 0
    unit: int = 1
    mark: int = 0

    @cached_property
    def records(self) -> tuple[tuple[int, bytes], ...]:
        """The records in order, each with the offset of its group."""
        return tuple((offset, record) for offset, group in self.groups for record in read_records(group))


@dataclass(frozen=True)
class Recovered:
    """The contents of a journal.

    ``groups`` are all of them in order, each its records as they lie there. A new file has the number ``number + 1``,
    the file before it counts up to ``end``, and its first group holds ``unproven``, the last records, which may not be
    durable. ``next_group`` is where the next group of the file ``number`` goes, whose length is a multiple of ``unit``
    and whose groups have the ``mark``. Files with higher numbers do not count. ``places`` says of each group where its
    records lie: the number of the file, and the offset. ``first`` is the number of the first file that counts, 0 if
    none does.
    """

    groups: tuple[bytes, ...]
    unproven: tuple[bytes, ...]
    number: int
    end: int
    next_group: int = 0
    unit: int = 1
    mark: int = 0
    places: tuple[tuple[int, int], ...] = ()
    first: int = 0

    @cached_property
    def records(self) -> tuple[bytes, ...]:
        """All records in order."""
        return tuple(record for group in self.groups for record in read_records(group))


class Writer:
    """Lays out one journal file. It is pure: the caller writes and syncs the bytes, and then raises ``synced``.

    ``end`` is the offset of the next group, ``synced`` the offset below which all is durable. ``mark``: 64 bits that
    nobody can foresee, unless there are only zeros where the file is written.
    """

    def __init__(self, number: int, mark: int = 0) -> None:
        self.number = number
        self.mark = mark
        self.end = 0
        self.synced = 0

    def begin(self, previous_end: int, records: Sequence[bytes] = (), unit: int = 1) -> bytes:
        """The first bytes of the file: its header, and a group that repeats what the file before it does not prove to
        be durable.

        ``unit``: whatever its length will be, it is a multiple of this, and durable before anything is written there.
        """
        self.end = SECTOR
        return _file_header(self.number, previous_end, unit, self.mark) + self.group(records)

    def group(self, records: Iterable[bytes] = (), following: int = 0) -> bytes:
        """The bytes of a group, to be written at the offset that ``end`` was before this call. ``following``: it is the
        last one, and the next file is there, with this number.
        """
        return b"".join(self.gathered((framed(records),), following))

    def gathered(self, records: Sequence[Part], following: int = 0) -> list[Part]:
        """As :meth:`group`, of records that are framed already, in several parts: the parts are not copied."""
        start, length, checksum = self.end, 0, 0
        for part in records:
            length += len(part)
            checksum = crc32c(part, checksum)
        self.end = aligned(start + _GROUP_SIZE + length)
        header = _group_header(self.number, self.mark, start, self.synced, following, length, checksum)
        return [header, *records, bytes(self.end - start - _GROUP_SIZE - length)]


def framed(records: Iterable[bytes]) -> bytes:
    """Frame records as in a group: one after another, each with its length before it."""
    parts: list[bytes] = []
    append, pack = parts.append, _LENGTH.pack
    for record in records:
        append(pack(len(record)))
        append(record)
    return b"".join(parts)


def aligned(offset: int) -> int:
    """The first sector boundary at or after an offset."""
    return -(-offset // SECTOR) * SECTOR


def scan(data: bytes, number: int) -> Scan:
    """Everything that can be read in a journal file up to the first thing that cannot, and whether that is a torn tail
    or damage. Raises :class:`LaterFormat`.
    """
    previous_end, unit, mark = _read_file_header(data, number)
    if previous_end < 0:
        _, _, previous_end, unit, mark = _FILE.unpack_from(data.ljust(SECTOR, b"\0"))
        refuse_later(f"journal file {number}", data, _file_header(number, previous_end, unit, mark))
        return Scan(-1, (), 0, 0, Tail.DAMAGED if _proves(data, number, None, 0) else Tail.TORN)
    groups: list[tuple[int, bytes]] = []
    synced, end, following, reached = 0, SECTOR, 0, SECTOR
    while end < len(data) and not following:
        header = _read_group(data, number, mark, end)
        if header is None:
            break
        proven, following, length, checksum = header
        body = data[end + _GROUP_SIZE : end + _GROUP_SIZE + length]
        reached = aligned(end + _GROUP_SIZE + length)
        padding = data[end + _GROUP_SIZE + length : reached]
        if reached > len(data) or crc32c(body) != checksum or padding.strip(b"\0"):
            following = 0
            break  # a group counts only as a whole: it was not synced, or is damaged
        groups.append((end, body))
        synced, end = max(synced, proven), reached
    tail = Tail.CLEAN if reached == end > SECTOR else Tail.TORN
    if not following and _proves(data, number, mark, end):
        tail = Tail.DAMAGED
    whole_units = len(data) // unit * unit
    if unit > 1 and (reached > whole_units or data[whole_units:].strip(b"\0")):
        tail = Tail.DAMAGED
    return Scan(previous_end if end > SECTOR else -1, tuple(groups), synced, end, tail, following, unit, mark)


def recover(files: Iterable[tuple[int, bytes]], start: int = 1) -> Recovered:
    """The records of a whole journal from the file with the number ``start`` on, given the files with their numbers, in
    order.

    Files before ``start`` are passed over; a checkpoint holds what is in them. Raises :class:`Damage` if something is
    missing that was durable.
    """
    found: list[bytes] = []
    places: list[tuple[int, int]] = []
    last = Recovered((), (), start - 1, 0)
    before: Scan | None = None
    torn, first = -1, 0
    for number, data in files:
        if number < start:
            continue
        if torn >= 0:
            raise Damage(f"journal file {torn} cannot be read")
        seen = scan(data, number)
        if seen.tail is Tail.DAMAGED:
            raise Damage(f"journal file {number} was synced and cannot be read from byte {seen.end:,} on")
        if seen.previous_end < 0:
            torn = number  # the crash came while it was made, unless there is another one after it
            continue
        if number != last.number + 1:
            raise Damage(f"journal file {last.number + 1} is missing")
        if before is not None:
            if before.end < seen.previous_end:
                raise Damage(f"journal file {number - 1} was synced and cannot be read from byte {before.end:,} on")
            kept = [(offset, group) for offset, group in before.groups if offset < seen.previous_end]
            found += [group for _, group in kept]
            places += [(number - 1, offset + RECORDS_AT) for offset, _ in kept]
        elif start == 1 and seen.previous_end:
            raise Damage(f"journal file {number - 1} is missing")
        first = first or number
        before, last = seen, Recovered((), (), number, seen.synced, seen.end, seen.unit, seen.mark)
    if before is not None and before.following:
        raise Damage(
            f"journal file {before.following} {'cannot be read' if torn == before.following else 'is missing'}"
        )
    if before is None:
        if start > 1:
            raise Damage(f"journal file {start} {'cannot be read' if torn == start else 'is missing'}")
        return last
    found += [group for _, group in before.groups]
    places += [(last.number, offset + RECORDS_AT) for offset, _ in before.groups]
    unproven = [record for offset, group in before.groups if offset >= before.synced for record in read_records(group)]
    return Recovered(
        tuple(found),
        tuple(unproven),
        last.number,
        last.end,
        last.next_group,
        last.unit,
        last.mark,
        tuple(places),
        first,
    )


def refuse_later(what: str, data: bytes, header: bytes) -> None:
    """Raises :class:`LaterFormat` if data that do not begin with ``header``, which begins with a name and a digit for
    the format, begin with that name and a later digit. One bit more may be all that is wrong: that is damage.
    """
    found, known = data[:8], header[:8]
    if found[:7] == known[:7] and known < found <= known[:7] + b"9" and data[8:SECTOR] != header[8:]:
        raise LaterFormat(
            f"{what} has the format {found[7:].decode()}, and this version reads {known[7:].decode()}: it was"
            " written by a later version; run that one"
        )


def _file_header(number: int, previous_end: int, unit: int, mark: int) -> bytes:
    fields = _FILE.pack(_FILE_MAGIC, number, previous_end, unit, mark)
    return (fields + _CHECKSUM.pack(crc32c(fields))).ljust(SECTOR, b"\0")


def _read_file_header(data: bytes, number: int) -> tuple[int, int, int]:
    """Up to where the file before it counts, -1 if the header of the file cannot be read; the unit of the length of
    the file; and its mark.
    """
    if len(data) < SECTOR:
        return -1, 1, 0
    _, found, previous_end, unit, mark = _FILE.unpack_from(data)
    whole = found == number and data[:SECTOR] == _file_header(number, previous_end, unit, mark)
    return (previous_end, unit, mark) if whole else (-1, 1, 0)


def _group_header(number: int, mark: int, start: int, synced: int, following: int, length: int, checksum: int) -> bytes:
    fields = _GROUP.pack(_GROUP_MAGIC, number, mark, start, synced, following, length, checksum)
    return fields + _CHECKSUM.pack(crc32c(fields))


def _read_group(data: bytes, number: int, mark: int | None, start: int) -> tuple[int, int, int, int] | None:
    """The synced offset, the next file, the number of bytes of records and their checksum of the group at an offset, or
    None. It may have any mark if that is None.
    """
    if data[start : start + 4] != _GROUP_MAGIC or start + _GROUP_SIZE > len(data):
        return None
    _, _, found, _, synced, following, length, checksum = _GROUP.unpack_from(data, start)
    header = _group_header(number, found if mark is None else mark, start, synced, following, length, checksum)
    return (synced, following, length, checksum) if data[start : start + _GROUP_SIZE] == header else None


def read_records(body: bytes) -> Iterator[bytes]:
    """The records of a group that was read whole."""
    at = 0
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        yield body[at : at + length]
        at += length


def _proves(data: bytes, number: int, mark: int | None, stop: int) -> bool:
    """Whether a later group says that the byte at an offset, which cannot be read, was synced."""
    start = data.find(_GROUP_MAGIC, stop + 1)
    while start >= 0:
        if start % SECTOR == 0:
            header = _read_group(data, number, mark, start)
            if header is not None and header[0] > stop:
                return True
        start = data.find(_GROUP_MAGIC, start + 1)
    return False
