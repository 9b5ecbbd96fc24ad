"""Entry logs: the bytes of the files that hold the entries of a bookie.

An entry log begins with a sector that says which one it is. Then come sections, each from a sector boundary on: a
header, the contents, and the entries in the order of their ledgers and ids. A section is what one flush or one step of
a compaction wrote. It is synced before anything relies on it, and never written again.

The contents say everything about a section that is not in its entries: which runs of entries it has, what is known of
ledgers, which ledgers are forgotten, which entry logs there are, and at which file the journal begins whose records are
not in entry logs yet. So each section is a checkpoint too, and the index of entries can always be made anew from the
contents of all sections, in order.

Every entry has a checksum of its own, over its ledger, its id, its length and its body, which whoever reads it
compares.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fencepost.files.checksum import crc32c
from fencepost.files.folders import SECTOR
from fencepost.ledger.disk.ledgers import LedgerState

RUN = 128
"""The entries that a run has at most."""

_FILE = struct.Struct(">8sQ")  # magic, number; then a checksum
# magic, number of the file, own offset, sequence, bytes of contents, of entries, checksum of contents
_SECTION = struct.Struct(">8sQQQIQI")
_ENTRY = struct.Struct(">Iqq")  # bytes of the body, ledger, entry id; a checksum before it
# ledger, first entry id, how far the last id is from it, bytes of all entries, of the smallest, entries, bits for a
# size, bits for a gap
_RUN = struct.Struct(">qqIIIHBB")
_COUNT = struct.Struct(">I")
_CHECKSUM = struct.Struct(">I")
ROW = np.dtype(
    {
        "names": ["ledger", "first", "span", "size", "base", "count", "size_bits", "gap_bits"],
        "formats": [">i8", ">i8", ">u4", ">u4", ">u4", ">u2", "u1", "u1"],
    }
)
"""A row of runs."""
_FILE_MAGIC = b"FPELOG01"
_SECTION_MAGIC = b"FPSECT01"
_SPAN = 1 << 32
HEADER = _SECTION.size + _CHECKSUM.size
"""Bytes of a section before its contents."""
ENTRY_HEADER = _CHECKSUM.size + _ENTRY.size
"""Bytes before the body of each entry."""


class Run(msgspec.Struct, frozen=True, gc=False):
    """Entries of a ledger that lie one after another in an entry log. ``sizes`` are those of the entries with their
    headers.
    """

    ledger: int
    ids: Sequence[int]
    sizes: Sequence[int]

    @property
    def first(self) -> int:
        """The id of the first entry."""
        return self.ids[0]

    @property
    def last(self) -> int:
        """The id of the last entry."""
        return self.ids[-1]

    @property
    def size(self) -> int:
        """Bytes of all entries, with their headers."""
        return sum(self.sizes)

    def __len__(self) -> int:
        return len(self.ids)


class Contents(msgspec.Struct, array_like=True, frozen=True):
    """The contents of a section besides its entries.

    ``journal_start``: the journal is needed from this file on. ``logs``: the entry logs that there are. ``runs``: its
    entries in the order in which they lie, as :class:`Runs` has them. ``states``: what is known of ledgers, instead of
    all that was said before. ``forgotten``: ledgers of which nothing counts that was said before.
    """

    journal_start: int
    logs: list[int]
    runs: bytes = b""
    states: list[LedgerState] = []
    forgotten: list[int] = []


class Runs:
    """Many runs as they are on disk: how many there are, a row for each, and the bits that hold their sizes and
    ids.

    ``rows`` has the columns of ``ROW``, ``details`` the bits of all runs, each from a byte on. The bits of a run are
    numbers, from the lowest bit of the first byte on: for each entry by how much it is larger than the smallest one, in
    ``size_bits`` each, then for each but the first how many ids were passed over before it, in ``gap_bits`` each.
    """

    def __init__(self, rows: NDArray[Any], details: bytes) -> None:
        self.rows = rows
        self.details = details

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Runs:
        """Put runs together."""
        rows, details = [], []
        for run in runs:
            base = min(run.sizes)
            larger = [size - base for size in run.sizes]
            gaps = [] if type(run.ids) is range else [after - before - 1 for before, after in pairwise(run.ids)]
            size_bits, gap_bits = max(larger).bit_length(), max(gaps, default=0).bit_length()
            bits = 0
            for gap in reversed(gaps if gap_bits else []):
                bits = bits << gap_bits | gap
            for size in reversed(larger if size_bits else []):
                bits = bits << size_bits | size
            rows.append(
                _RUN.pack(run.ledger, run.first, run.last - run.first, run.size, base, len(run), size_bits, gap_bits)
            )
            details.append(bits.to_bytes(detail_bytes(len(run), size_bits, gap_bits), "little"))
        return cls(np.frombuffer(b"".join(rows), ROW), b"".join(details))

    @classmethod
    def of_rows(cls, ledgers: NDArray[np.int64], ids: NDArray[np.int64], sizes: NDArray[np.int64]) -> Runs:
        """The runs of entries, given in order with the bytes of their bodies, by compiled loops."""
        from fencepost.ledger.kernels import runs as loops

        rows, details = np.empty(len(ids) * _RUN.size, np.uint8), np.empty(len(ids) * loops.MOST_DETAILS, np.uint8)
        count, size = loops.lay_out(ledgers, ids, sizes, ENTRY_HEADER, RUN, rows, details)
        return cls(np.frombuffer(rows[: count * _RUN.size].tobytes(), ROW), details[:size].tobytes())

    @classmethod
    def of_bytes(cls, data: bytes) -> Runs:
        """The runs that :attr:`data` stands for."""
        if not data:
            return cls(np.empty(0, ROW), b"")
        end = _COUNT.size + _COUNT.unpack_from(data)[0] * _RUN.size
        return cls(np.frombuffer(data[_COUNT.size : end], ROW), data[end:])

    @property
    def data(self) -> bytes:
        """The bytes that stand for them."""
        return _COUNT.pack(len(self.rows)) + self.rows.tobytes() + self.details if len(self.rows) else b""

    @property
    def size(self) -> int:
        """Bytes of all entries, with their headers."""
        return int(self.rows["size"].sum(dtype=np.int64))

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        """The ledger, the first and the last id of each."""
        first = self.rows["first"]
        return list(
            zip(self.rows["ledger"].tolist(), first.tolist(), (first + self.rows["span"]).tolist(), strict=True)
        )

    @property
    def entries(self) -> int:
        """How many entries there are in all runs."""
        return int(self.rows["count"].sum(dtype=np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Run]:
        at = 0
        for ledger, first, _, _, base, count, size_bits, gap_bits in self.rows.tolist():
            end = at + detail_bytes(count, size_bits, gap_bits)
            yield unpacked(ledger, first, base, count, size_bits, gap_bits, self.details[at:end])
            at = end


def detail_bytes(count: int, size_bits: int, gap_bits: int) -> int:
    """The bytes that the bits of a run take."""
    return (count * size_bits + (count - 1) * gap_bits + 7) // 8


def unpacked(ledger: int, first: int, base: int, count: int, size_bits: int, gap_bits: int, details: bytes) -> Run:
    """The run that a row and its bits stand for."""
    bits, sizes = int.from_bytes(details, "little"), [base] * count
    if size_bits:
        mask = (1 << size_bits) - 1
        for nth in range(count):
            sizes[nth] += bits & mask
            bits >>= size_bits
    if not gap_bits:
        return Run(ledger, range(first, first + count), sizes)
    ids, mask = [first], (1 << gap_bits) - 1
    for _ in range(count - 1):
        ids.append(ids[-1] + 1 + (bits & mask))
        bits >>= gap_bits
    return Run(ledger, ids, sizes)


@dataclass(frozen=True)
class Section:
    """A section where it lies: its entry log, its place among all sections, its offset, where its entries begin and
    where it ends.
    """

    log: int
    sequence: int
    offset: int
    entries: int
    end: int
    contents: Contents

    @property
    def runs(self) -> Runs:
        """The runs of its entries."""
        return Runs.of_bytes(self.contents.runs)

    def placed(self) -> Iterator[tuple[int, Run]]:
        """The runs with the offsets at which they begin."""
        offset = self.entries
        for run in self.runs:
            yield offset, run
            offset += run.size


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Contents).decode


def runs_of(ledger: int, ids: list[int], sizes: list[int]) -> Iterator[Run]:
    """The runs of entries of a ledger, given in order with the bytes of their bodies."""
    first = 0
    while first < len(ids):
        last = min(first + RUN, len(ids))
        while last - first > 1 and not (
            ids[last - 1] - ids[first] < _SPAN > sum(sizes[first:last]) + (last - first) * ENTRY_HEADER
        ):
            last -= 1
        contiguous = ids[last - 1] - ids[first] == last - first - 1
        in_run = range(ids[first], ids[first] + last - first) if contiguous else ids[first:last]
        yield Run(ledger, in_run, [size + ENTRY_HEADER for size in sizes[first:last]])
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


def layout(log: int, offset: int, sequence: int, contents: Contents) -> Section:
    """The layout of a section that begins at an offset: the places of its parts."""
    entries = offset + HEADER + len(_encode(contents))
    return Section(log, sequence, offset, entries, entries + Runs.of_bytes(contents.runs).size, contents)


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


def entries_of(run: Run, data: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Id and body of every entry of a run, given the bytes from the first to the last; None for a damaged body."""
    at = 0
    for entry_id, size in zip(run.ids, run.sizes, strict=True):
        yield entry_id, entry_body(data[at : at + size], run.ledger, entry_id)
        at += size


def contents_at(data: bytes, log: int, offset: int) -> tuple[int, int] | None:
    """Where the contents of the section at an offset are, and their bytes, given at least its header; None if there is
    no section.
    """
    header = _header(data, log, offset)
    return None if header is None else (offset + HEADER, header[1])


def section_at(data: bytes, log: int, offset: int) -> Section | None:
    """The section at an offset, given at least its header and contents; None if there is none, or it cannot be
    read.
    """
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
