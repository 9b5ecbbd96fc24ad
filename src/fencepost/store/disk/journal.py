"""The journal: the bytes of a bookie's log of records, and what can be read back after a crash or damage.

A journal is a sequence of files, one for each start of its bookie. A file begins with a sector that says which one it is and up to where
the file before it counts. Then come groups, each from a sector boundary on: a header, records, and zeros up to the next boundary. So
nothing that was synced is ever written again, and a torn write damages nothing that was durable.

The header of a group says up to where the file was synced when the group was written. What can not be read is damage if a later group
says that it was synced, and otherwise the torn tail that a crash leaves, whose records nobody was told of. The last group that
was synced has no later one: whoever writes a journal appends an empty group before it rests.

Records that no later group proves to be synced may be gone after the next crash, although they were read. The first group of the next
file repeats them, and a file without its first group does not count.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SECTOR = 512
"""Bytes that a disk writes at once. Groups begin at multiples of it."""

_FILE = struct.Struct(">8sQQ")  # magic, number, up to where the file before it counts; then a checksum
_GROUP = struct.Struct(">4sQQI")  # magic, own offset, synced offset, bytes of records; then a checksum
_RECORD = struct.Struct(">II")  # bytes, checksum
_CHECKSUM = struct.Struct(">I")
_GROUP_SIZE = _GROUP.size + _CHECKSUM.size
_FILE_MAGIC = b"FPJOURN1"
_GROUP_MAGIC = b"FPJG"


class Damage(Exception):
    """Something that was durable can not be read. Whoever owned the journal must not go on as if it had never been there."""


class Ending(enum.Enum):
    """How the readable part of a journal file ends."""

    CLEAN = "clean"
    """With the file."""
    TORN = "torn"
    """With a write that a crash cut short. Nothing after it was synced."""
    DAMAGED = "damaged"
    """With something that was synced and can not be read any more."""


@dataclass(frozen=True)
class Scan:
    """What is in a journal file: its records in order, each with the offset of its group, and where the readable part ends, and how.

    ``previous_end`` is up to where the file before it counts, -1 if this one does not count. ``synced`` is the offset below which
    everything is proven to be durable.
    """

    previous_end: int
    records: tuple[tuple[int, bytes], ...]
    synced: int
    end: int
    ending: Ending


@dataclass(frozen=True)
class Recovered:
    """What a journal holds.

    ``records`` are all of them in order. A new file has the number ``number + 1``, the file before it counts up to ``end``, and its
    first group holds ``unproven``, the last records, which may not be durable. Files with higher numbers than ``number`` do not count.
    """

    records: tuple[bytes, ...]
    unproven: tuple[bytes, ...]
    number: int
    end: int


class Writer:
    """Lays out one journal file. It is pure: the caller writes and syncs the bytes, and then raises ``synced``.

    ``end`` is the offset of the next group, ``synced`` the offset below which all is durable.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.end = 0
        self.synced = 0

    def begin(self, previous_end: int, records: Sequence[bytes] = ()) -> bytes:
        """The first bytes of the file: its header, and a group that repeats what the file before it does not prove to be durable."""
        self.end = SECTOR
        return _file_header(self.number, previous_end) + self.group(records)

    def group(self, records: Sequence[bytes] = ()) -> bytes:
        """The bytes of a group, to be written at the offset that ``end`` was before this call."""
        start = self.end
        parts = [b""]
        at = start + _GROUP_SIZE
        for payload in records:
            parts.append(_RECORD.pack(len(payload), _checksum(self.number, at, payload)))
            parts.append(payload)
            at += _RECORD.size + len(payload)
        parts[0] = _group_header(self.number, start, self.synced, at - start - _GROUP_SIZE)
        self.end = aligned(at)
        parts.append(bytes(self.end - at))
        return b"".join(parts)


def aligned(offset: int) -> int:
    """The first sector boundary at or after an offset."""
    return -(-offset // SECTOR) * SECTOR


def scan(data: bytes, number: int) -> Scan:
    """Everything that can be read in a journal file up to the first thing that can not, and whether that is a torn tail or damage."""
    previous_end = _read_file_header(data, number)
    if previous_end < 0:
        return Scan(-1, (), 0, 0, _ending(data, number, 0))
    records: list[tuple[int, bytes]] = []
    synced, end, stop = 0, SECTOR, -1
    while end < len(data):
        header = _read_group(data, number, end)
        if header is None:
            stop = end
            break
        group, stop = _read_records(data, number, end + _GROUP_SIZE, header[1])
        if stop >= 0:
            break  # a group counts only as a whole: it was not synced, or is damaged
        records += [(end, payload) for payload in group]
        synced = max(synced, header[0])
        end = aligned(end + _GROUP_SIZE + header[1])
    ending = Ending.CLEAN if stop < 0 else _ending(data, number, stop)
    return Scan(previous_end if end > SECTOR else -1, tuple(records), synced, end, ending)


def recover(files: Sequence[tuple[int, bytes]]) -> Recovered:
    """The records of a whole journal, given its files with their numbers, in order.

    Raises :class:`Damage` if something is missing that was durable.
    """
    found: list[bytes] = []
    last = Recovered((), (), 0, 0)
    before: Scan | None = None
    for number, data in files:
        seen = scan(data, number)
        if seen.ending is Ending.DAMAGED:
            raise Damage(f"journal file {number} was synced and can not be read from byte {seen.end:,} on")
        if seen.previous_end < 0:
            if number != files[-1][0]:
                raise Damage(f"journal file {number} can not be read")
            break  # the crash came while it was made
        if number != last.number + 1:
            raise Damage(f"journal file {number - 1} is missing")
        if before is not None:
            if before.end < seen.previous_end:
                raise Damage(f"journal file {number - 1} was synced and can not be read from byte {before.end:,} on")
            found += [payload for group, payload in before.records if group < seen.previous_end]
        elif seen.previous_end:
            raise Damage(f"journal file {number - 1} is missing")
        before, last = seen, Recovered((), (), number, seen.synced)
    if before is None:
        return last
    proven = [payload for group, payload in before.records if group < before.synced]
    unproven = [payload for group, payload in before.records if group >= before.synced]
    return Recovered((*found, *proven, *unproven), tuple(unproven), last.number, last.end)


def _checksum(number: int, offset: int, payload: bytes) -> int:
    """A checksum that bytes pass only in their own file, at their own offset and with their own length."""
    return zlib.crc32(payload, zlib.crc32(_FILE.pack(b"", number, offset), len(payload)))


def _file_header(number: int, previous_end: int) -> bytes:
    fields = _FILE.pack(_FILE_MAGIC, number, previous_end)
    return (fields + _CHECKSUM.pack(zlib.crc32(fields))).ljust(SECTOR, b"\0")


def _read_file_header(data: bytes, number: int) -> int:
    """Up to where the file before it counts; -1 if the header of the file can not be read."""
    if len(data) < SECTOR:
        return -1
    _, found, previous_end = _FILE.unpack_from(data)
    return previous_end if found == number and data[:SECTOR] == _file_header(number, previous_end) else -1


def _group_header(number: int, start: int, synced: int, length: int) -> bytes:
    fields = _GROUP.pack(_GROUP_MAGIC, start, synced, length)
    return fields + _CHECKSUM.pack(_checksum(number, start, fields))


def _read_group(data: bytes, number: int, start: int) -> tuple[int, int] | None:
    """The synced offset and the number of bytes of records of the group at an offset, or None if there is none."""
    if data[start : start + 4] != _GROUP_MAGIC or start + _GROUP_SIZE > len(data):
        return None
    _, _, synced, length = _GROUP.unpack_from(data, start)
    return (synced, length) if data[start : start + _GROUP_SIZE] == _group_header(number, start, synced, length) else None


def _read_records(data: bytes, number: int, start: int, length: int) -> tuple[list[bytes], int]:
    """The records of a group, and the offset of the first thing in it that can not be read, -1 if all can."""
    found: list[bytes] = []
    at, end = start, start + length
    padded = aligned(end)
    if padded > len(data):
        return found, start
    while at < end:
        if at + _RECORD.size > end:
            return found, at
        size, checksum = _RECORD.unpack_from(data, at)
        payload = bytes(data[at + _RECORD.size : at + _RECORD.size + size])
        if at + _RECORD.size + size > end or checksum != _checksum(number, at, payload):
            return found, at
        found.append(payload)
        at += _RECORD.size + size
    return found, -1 if data[end:padded] == bytes(padded - end) else end


def _synced_after(data: bytes, number: int, stop: int) -> Iterator[int]:
    for start in range(aligned(stop + 1), len(data), SECTOR):
        header = _read_group(data, number, start)
        if header is not None:
            yield header[0]


def _ending(data: bytes, number: int, stop: int) -> Ending:
    """What it means that the byte at an offset can not be read."""
    return Ending.DAMAGED if any(synced > stop for synced in _synced_after(data, number, stop)) else Ending.TORN
