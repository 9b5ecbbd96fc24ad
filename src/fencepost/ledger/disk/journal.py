"""The journal format: a bookie's log of records as bytes, and what can be read back after a crash or damage.

A journal is a sequence of files. A new file begins at each start of the bookie, at each checkpoint, and when a file
gets large. A file begins with a header sector: its number, and how much of the previous file counts. Groups follow,
each at a sector boundary: a header with a checksum of the whole group, records, and zeros up to the next boundary. So
synced bytes are never rewritten, and a torn write cannot damage anything durable. The last group of a file says that
the next file exists.

A group's header says how far the file was synced when the group was written. Bytes that cannot be read are damage if a
later group says that they were synced. Otherwise they are the torn tail of a crash, whose records were never
acknowledged. The last synced group has no later group to vouch for it, so an idle writer appends an empty one.

Records that no later group proves synced can be read now and yet be gone after the next crash. So the first group of
the next file repeats them, and a file without its first group does not count.

A file grows in units: its length is a multiple of the unit, and the space is durable before records are written there.
So truncation is detected: the length is not a multiple and the rest holds more than a crash during growth could leave,
or a group ends past the end of the file.

A new file may reuse the space of an old one, because syncing space that was written before is faster. So each file has
a mark, and each of its groups repeats it. Bytes with another mark count as zeros. Marks are random because clients
choose the contents of records: nobody can forge a record that contains a group of a later file. The end of the current
file cannot be distinguished from such leftovers, and need not be. To recovery, a group that a crash erased and a group
that was never written are the same.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fencepost.files.checksum import crc32c
from fencepost.files.folders import SECTOR, Part

# magic, number, how much of the previous file counts, unit of the length, mark; then a checksum
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
    """Something durable cannot be read. The owner of the journal must not go on as if it had never existed."""


class LaterFormat(Damage):
    """A file in the format of a later version. The disk is not at fault."""


class Tail(enum.Enum):
    """What follows the readable part of a journal file."""

    CLEAN = "clean"
    """The end of the file, or space without a group of this file."""
    TORN = "torn"
    """A group or a file header that a crash cut short. Nothing after it was synced."""
    DAMAGED = "damaged"
    """Bytes that were synced and can no longer be read."""


@dataclass(frozen=True)
class Scan:
    """The contents of a journal file: its groups in order, each as its offset and framed records; the end of the
    readable part; and the tail.

    ``previous_end``: how much of the previous file counts, -1 if this file does not count. ``synced``: everything below
    this offset is proven durable. ``following``: the number of the next file, 0 if none is announced. ``unit``: the
    unit of the file's length. ``mark``: the mark of its groups.
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

    ``groups`` holds the framed records of each group, in order. The next file gets the number ``number + 1``, declares
    that ``number`` counts up to ``end``, and begins with the records in ``unproven``, which may not be durable. Files
    with higher numbers do not count. In file ``number``, the next group goes to ``next_group``, ``unit`` is the unit of
    the length, and ``mark`` the mark of the groups. ``places`` is the file number and offset of each group's records.
    ``first`` is the first file that counts, 0 if none does.
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
    """Lays out one journal file, without I/O. The caller writes and syncs the bytes, and then raises ``synced``.

    ``end`` is the offset of the next group; everything below ``synced`` is durable. ``mark``: 64 unpredictable bits,
    unless the file is written over zeros.
    """

    def __init__(self, number: int, mark: int = 0) -> None:
        self.number = number
        self.mark = mark
        self.end = 0
        self.synced = 0

    def begin(self, previous_end: int, records: Sequence[bytes] = (), unit: int = 1) -> bytes:
        """The first bytes of the file: its header, and a group that repeats the records not proven durable by the
        previous file.

        ``unit``: the file's length is always a multiple of this, and is durable before anything is written there.
        """
        self.end = SECTOR
        return _file_header(self.number, previous_end, unit, self.mark) + self.group(records)

    def group(self, records: Iterable[bytes] = (), following: int = 0) -> bytes:
        """The bytes of a group, to write at the value that ``end`` had before this call. ``following``: the number of
        the next file, which exists; this group is then the last.
        """
        return b"".join(self.gathered((framed(records),), following))

    def gathered(self, records: Sequence[Part], following: int = 0) -> list[Part]:
        """Like :meth:`group`, for records that are already framed, in several parts. The parts are not copied."""
        start, length, checksum = self.end, 0, 0
        for part in records:
            length += len(part)
            checksum = crc32c(part, checksum)
        self.end = aligned(start + _GROUP_SIZE + length)
        header = _group_header(self.number, self.mark, start, self.synced, following, length, checksum)
        return [header, *records, bytes(self.end - start - _GROUP_SIZE - length)]


def framed(records: Iterable[bytes]) -> bytes:
    """Frame records for a group: each is preceded by its length."""
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
    """Read a journal file up to the first unreadable byte, and say whether a torn tail or damage follows. Raises
    :class:`LaterFormat`.
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
            break  # a group counts only as a whole: it was not synced, or it is damaged
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
    """The records of a journal from file ``start`` on. ``files`` yields numbers and contents, in order.

    Files before ``start`` are skipped, because a checkpoint covers them. Raises :class:`Damage` if something durable is
    missing.
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
            torn = number  # a crash while the file was created, unless another file follows
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
    """Raise :class:`LaterFormat` if ``data`` is in a later format than ``header``.

    Both begin with a name and a digit for the format. A header that differs only in this digit may be a flipped bit:
    that is damage.
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
    """How much of the previous file counts, the unit, and the mark. The first is -1 if the header cannot be read."""
    if len(data) < SECTOR:
        return -1, 1, 0
    _, found, previous_end, unit, mark = _FILE.unpack_from(data)
    whole = found == number and data[:SECTOR] == _file_header(number, previous_end, unit, mark)
    return (previous_end, unit, mark) if whole else (-1, 1, 0)


def _group_header(number: int, mark: int, start: int, synced: int, following: int, length: int, checksum: int) -> bytes:
    fields = _GROUP.pack(_GROUP_MAGIC, number, mark, start, synced, following, length, checksum)
    return fields + _CHECKSUM.pack(crc32c(fields))


def _read_group(data: bytes, number: int, mark: int | None, start: int) -> tuple[int, int, int, int] | None:
    """The synced offset, next file, number of bytes of records and their checksum of the group at an offset; None if
    there is no group. A ``mark`` of None accepts any mark.
    """
    if data[start : start + 4] != _GROUP_MAGIC or start + _GROUP_SIZE > len(data):
        return None
    _, _, found, _, synced, following, length, checksum = _GROUP.unpack_from(data, start)
    header = _group_header(number, found if mark is None else mark, start, synced, following, length, checksum)
    return (synced, following, length, checksum) if data[start : start + _GROUP_SIZE] == header else None


def read_records(body: bytes) -> Iterator[bytes]:
    """The records of a complete group."""
    at = 0
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        yield body[at : at + length]
        at += length


def _proves(data: bytes, number: int, mark: int | None, stop: int) -> bool:
    """Whether a later group says that the unreadable byte at ``stop`` was synced."""
    start = data.find(_GROUP_MAGIC, stop + 1)
    while start >= 0:
        if start % SECTOR == 0:
            header = _read_group(data, number, mark, start)
            if header is not None and header[0] > stop:
                return True
        start = data.find(_GROUP_MAGIC, start + 1)
    return False
