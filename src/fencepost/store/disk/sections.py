"""Entry logs: the bytes of the files that hold the entries of a bookie.

An entry log begins with a sector that says which one it is. Then come sections, each from a sector boundary on: a header, the contents,
and the entries in the order of their ledgers and ids. A section is what one flush or one step of a compaction wrote. It is synced before
anything relies on it, and never written again.

The contents say everything about a section that is not in its entries: which runs of entries it has, what is known of ledgers, which
ledgers are forgotten, which entry logs there are, and at which file the journal begins whose records are not in entry logs yet. So each
section is a checkpoint too, and the index of entries can always be made anew from the contents of all sections, in order.

Every entry has a checksum of its own, over its ledger, its id, its length and its body, which whoever reads it compares.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

import msgspec

from fencepost.store.disk.checksum import crc32c
from fencepost.store.disk.journal import SECTOR
from fencepost.store.disk.ledgers import LedgerState

RUN = 128
"""The entries that a run has at most."""

_FILE = struct.Struct(">8sQ")  # magic, number; then a checksum
_SECTION = struct.Struct(">8sQQQIQI")  # magic, number of the file, own offset, sequence, bytes of contents, of entries, checksum of contents
_ENTRY = struct.Struct(">Iqq")  # bytes of the body, ledger, entry id; a checksum before it
_CHECKSUM = struct.Struct(">I")
_FILE_MAGIC = b"FPELOG01"
_SECTION_MAGIC = b"FPSECT01"
_SPAN = 1 << 32
HEADER = _SECTION.size + _CHECKSUM.size
"""Bytes of a section before its contents."""
ENTRY_HEADER = _CHECKSUM.size + _ENTRY.size
"""Bytes before the body of each entry."""


class Run(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Entries of a ledger that lie one after another in an entry log.

    ``ends``: where each ends, counted from where the first one begins. ``gaps``: how far the id of each is from the first id; empty if
    the ids have no gaps. Both are 4 bytes each, big endian.
    """

    ledger: int
    first: int
    ends: bytes
    gaps: bytes = b""

    @property
    def ids(self) -> list[int]:
        """The ids of the entries."""
        if not self.gaps:
            return list(range(self.first, self.first + len(self)))
        return [self.first + gap for gap in numbers(self.gaps)]

    @property
    def last(self) -> int:
        """The id of the last entry."""
        return self.first + (int.from_bytes(self.gaps[-4:]) if self.gaps else len(self.ends) // 4 - 1)

    @property
    def size(self) -> int:
        """Bytes of all entries, with their headers."""
        return int.from_bytes(self.ends[-4:])

    def __len__(self) -> int:
        return len(self.ends) // 4


class Contents(msgspec.Struct, array_like=True, frozen=True):
    """What a section says besides its entries.

    ``journal_start``: the journal is needed from this file on. ``logs``: the entry logs that there are. ``runs``: its entries in the
    order in which they lie. ``states``: what is known of ledgers, instead of all that was said before. ``forgotten``: ledgers of
    which nothing counts that was said before.
    """

    journal_start: int
    logs: list[int]
    runs: list[Run] = []
    states: list[LedgerState] = []
    forgotten: list[int] = []


@dataclass(frozen=True)
class Section:
    """A section where it lies: its entry log, its place among all sections, its offset, where its entries begin and where it ends."""

    log: int
    sequence: int
    offset: int
    entries: int
    end: int
    contents: Contents

    def placed(self) -> Iterator[tuple[int, Run]]:
        """The runs with the offsets at which they begin."""
        offset = self.entries
        for run in self.contents.runs:
            yield offset, run
            offset += run.size


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Contents).decode


def numbers(data: bytes) -> tuple[int, ...]:
    """Numbers of 4 bytes each."""
    return struct.unpack(f">{len(data) // 4}I", data)


def runs_of(ledger: int, ids: list[int], sizes: list[int]) -> Iterator[Run]:
    """The runs of entries of a ledger, given in order with the bytes of their bodies."""
    first = 0
    while first < len(ids):
        last = min(first + RUN, len(ids))
        while ids[last - 1] - ids[first] >= _SPAN or sum(sizes[first:last]) + RUN * ENTRY_HEADER >= _SPAN:
            last -= (last - first) // 2 or 1
        ends = list(accumulate(size + ENTRY_HEADER for size in sizes[first:last]))
        gaps = b""
        if ids[last - 1] - ids[first] != last - first - 1:
            gaps = struct.pack(f">{last - first}I", *(entry_id - ids[first] for entry_id in ids[first:last]))
        yield Run(ledger, ids[first], struct.pack(f">{len(ends)}I", *ends), gaps)
        first = last


def file_header(log: int) -> bytes:
    """The first bytes of an entry log."""
    fields = _FILE.pack(_FILE_MAGIC, log)
    return (fields + _CHECKSUM.pack(crc32c(fields))).ljust(SECTOR, b"\0")


def section_header(section: Section) -> bytes:
    """All of a section that comes before its entries, as long as ``section.entries`` is after its offset."""
    contents = _encode(section.contents)
    size = section.end - section.entries
    fields = _SECTION.pack(
        _SECTION_MAGIC, section.log, section.offset, section.sequence, len(contents), size, crc32c(contents)
    )
    return fields + _CHECKSUM.pack(crc32c(fields)) + contents


def laid_out(log: int, offset: int, sequence: int, contents: Contents) -> Section:
    """Where the parts of a section are that begins at an offset."""
    entries = offset + HEADER + len(_encode(contents))
    return Section(log, sequence, offset, entries, entries + sum(run.size for run in contents.runs), contents)


def entry_bytes(ledger: int, entry_id: int, body: bytes) -> bytes:
    """An entry as it lies in an entry log."""
    data = _ENTRY.pack(len(body), ledger, entry_id) + body
    return _CHECKSUM.pack(crc32c(data)) + data


def entry_body(data: bytes, ledger: int, entry_id: int) -> bytes | None:
    """The body of an entry, given the bytes at its place; None if they are not that entry, or damaged."""
    if len(data) < ENTRY_HEADER:
        return None
    fields = data[_CHECKSUM.size :]
    if _ENTRY.unpack_from(fields) != (len(data) - ENTRY_HEADER, ledger, entry_id):
        return None
    return data[ENTRY_HEADER:] if _CHECKSUM.unpack_from(data) == (crc32c(fields),) else None


def entries_of(section: Section, data: bytes) -> Iterator[tuple[int, int, bytes | None]]:
    """Ledger, id and body of every entry of a section, given the bytes from its ``entries`` to its ``end``; None for a damaged body."""
    at = 0
    for run in section.contents.runs:
        bounds = pairwise((0, *numbers(run.ends)))
        for entry_id, (start, end) in zip(run.ids, bounds, strict=True):
            yield run.ledger, entry_id, entry_body(data[at + start : at + end], run.ledger, entry_id)
        at += run.size


def is_file_header(data: bytes, log: int) -> bool:
    """Whether bytes begin an entry log with this number."""
    return data[:SECTOR] == file_header(log)


def contents_at(data: bytes, log: int, offset: int) -> tuple[int, int] | None:
    """Where the contents of the section at an offset are, and their bytes, given at least its header; None if there is no section."""
    header = _header(data, log, offset)
    return None if header is None else (offset + HEADER, header[1])


def section_at(data: bytes, log: int, offset: int) -> Section | None:
    """The section at an offset, given at least its header and contents; None if there is none, or it can not be read."""
    header = _header(data, log, offset)
    if header is None:
        return None
    sequence, length, size, checksum = header
    contents = data[HEADER : HEADER + length]
    if len(contents) < length or crc32c(contents) != checksum:
        return None
    entries = offset + HEADER + length
    return Section(log, sequence, offset, entries, entries + size, _decode(contents))


def _header(data: bytes, log: int, offset: int) -> tuple[int, int, int, int] | None:
    """Sequence, bytes of contents, bytes of entries and checksum of the contents."""
    if len(data) < HEADER:
        return None
    magic, in_log, at, sequence, length, size, checksum = _SECTION.unpack_from(data)
    if (magic, in_log, at) != (_SECTION_MAGIC, log, offset):
        return None
    whole = _CHECKSUM.unpack_from(data, _SECTION.size) == (crc32c(data[: _SECTION.size]),)
    return (sequence, length, size, checksum) if whole else None
