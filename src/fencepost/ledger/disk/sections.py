"""The entry log format: the files that hold the entries of a bookie, as bytes.

An entry log begins with a sector that holds its number. Sections follow, each at a sector boundary: a header, the
contents, and the entries ordered by ledger and id. One flush or one step of a compaction writes one section. A section
is synced before anything relies on it, and never rewritten.

The contents describe a section: its runs of entries, ledger states, forgotten ledgers, the existing entry logs, and the
first journal file with records that are not in entry logs yet. So each section is a checkpoint, and the index can
always be rebuilt from the contents of all sections, in order.

Every entry has a checksum over its ledger, id, length and body. Each read verifies it.
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
"""The most entries in a run."""

_FILE = struct.Struct(">8sQ")  # magic, number; then a checksum
# magic, number of the file, own offset, sequence, bytes of contents, of entries, checksum of contents
_SECTION = struct.Struct(">8sQQQIQI")
_ENTRY = struct.Struct(">Iqq")  # bytes of the body, ledger, entry id; a checksum before it
# ledger, first entry id, distance of the last id from it, bytes of all entries, of the smallest, number of entries,
# bits per size, bits per gap
_RUN = struct.Struct(">qqIIIHBB")
_COUNT = struct.Struct(">I")
_CHECKSUM = struct.Struct(">I")
ROW = np.dtype(
    {
        "names": ["ledger", "first", "span", "size", "base", "count", "size_bits", "gap_bits"],
        "formats": [">i8", ">i8", ">u4", ">u4", ">u4", ">u2", "u1", "u1"],
    }
)
"""The fixed fields of a run."""
_FILE_MAGIC = b"FPELOG01"
_SECTION_MAGIC = b"FPSECT01"
_SPAN = 1 << 32
HEADER = _SECTION.size + _CHECKSUM.size
"""Bytes of a section's header, before its contents."""
ENTRY_HEADER = _CHECKSUM.size + _ENTRY.size
"""Bytes before the body of an entry."""


class Run(msgspec.Struct, frozen=True, gc=False):
    """Entries of a ledger that are adjacent in an entry log. ``sizes`` include the headers of entries."""

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
        """Bytes of all entries, including headers."""
        return sum(self.sizes)

    def __len__(self) -> int:
        return len(self.ids)


class Contents(msgspec.Struct, array_like=True, frozen=True):
    """The contents of a section, apart from its entries.

    ``journal_start``: the first journal file still needed. ``logs``: the existing entry logs. ``runs``: its entries in
    file order, encoded as in :class:`Runs`. ``states``: ledger states, which replace earlier ones. ``forgotten``:
    ledgers whose earlier entries and states no longer count.
    """

    journal_start: int
    logs: list[int]
    runs: bytes = b""
    states: list[LedgerState] = []
    forgotten: list[int] = []


class Runs:
    """Many runs in their disk format: the number of runs, a row for each, and bits for sizes and ids.

    ``rows`` has the fields of ``ROW``. ``details`` has the bits of all runs; those of a run begin at a whole byte. They
    are unsigned numbers, lowest bit first. For each entry, ``size_bits`` bits hold its size minus that of the smallest.
    Then, for each entry but the first, ``gap_bits`` bits hold the number of ids skipped before it.
    """

    def __init__(self, rows: NDArray[Any], details: bytes) -> None:
        self.rows = rows
        self.details = details

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Runs:
        """Encode runs."""
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
        """Encode the runs of entries with the compiled loops. ``ids`` are in order, ``sizes`` are those of bodies."""
        from fencepost.ledger.kernels import runs as loops

        rows, details = np.empty(len(ids) * _RUN.size, np.uint8), np.empty(len(ids) * loops.MOST_DETAILS, np.uint8)
        count, size = loops.lay_out(ledgers, ids, sizes, ENTRY_HEADER, RUN, rows, details)
        return cls(np.frombuffer(rows[: count * _RUN.size].tobytes(), ROW), details[:size].tobytes())

    @classmethod
    def of_bytes(cls, data: bytes) -> Runs:
        """Decode :attr:`data`."""
        if not data:
            return cls(np.empty(0, ROW), b"")
        end = _COUNT.size + _COUNT.unpack_from(data)[0] * _RUN.size
        return cls(np.frombuffer(data[_COUNT.size : end], ROW), data[end:])

    @property
    def data(self) -> bytes:
        """The encoded bytes."""
        return _COUNT.pack(len(self.rows)) + self.rows.tobytes() + self.details if len(self.rows) else b""

    @property
    def size(self) -> int:
        """Bytes of all entries, including headers."""
        return int(self.rows["size"].sum(dtype=np.int64))

    @property
    def spans(self) -> list[tuple[int, int, int]]:
        """The ledger, first id and last id of each run."""
        first = self.rows["first"]
        return list(
            zip(self.rows["ledger"].tolist(), first.tolist(), (first + self.rows["span"]).tolist(), strict=True)
        )

    @property
    def entries(self) -> int:
        """The number of entries in all runs."""
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
    """The number of bytes of a run's bits."""
    return (count * size_bits + (count - 1) * gap_bits + 7) // 8


def unpacked(ledger: int, first: int, base: int, count: int, size_bits: int, gap_bits: int, details: bytes) -> Run:
    """Decode a run from its row and its bits."""
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
    """A section and its location: its entry log, its number among all sections, its offset, the offset of its entries,
    and its end.
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
        """The runs, each with its offset."""
        offset = self.entries
        for run in self.runs:
            yield offset, run
            offset += run.size


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Contents).decode


def runs_of(ledger: int, ids: list[int], sizes: list[int]) -> Iterator[Run]:
    """Divide entries of a ledger into runs. ``ids`` are in order, ``sizes`` are those of bodies."""
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
    """The first sector of an entry log."""
    fields = _FILE.pack(_FILE_MAGIC, log)
    return (fields + _CHECKSUM.pack(crc32c(fields))).ljust(SECTOR, b"\0")


def section_header(section: Section) -> bytes:
    """The bytes of a section before its entries: from ``section.offset`` to ``section.entries``."""
    contents = _encode(section.contents)
    size = section.end - section.entries
    fields = _SECTION.pack(
        _SECTION_MAGIC, section.log, section.offset, section.sequence, len(contents), size, crc32c(contents)
    )
    return fields + _CHECKSUM.pack(crc32c(fields)) + contents


def layout(log: int, offset: int, sequence: int, contents: Contents) -> Section:
    """Lay out a section that begins at an offset."""
    entries = offset + HEADER + len(_encode(contents))
    return Section(log, sequence, offset, entries, entries + Runs.of_bytes(contents.runs).size, contents)


def entry_bytes(ledger: int, entry_id: int, body: bytes) -> bytes:
    """Encode an entry for an entry log."""
    data = _ENTRY.pack(len(body), ledger, entry_id) + body
    return _CHECKSUM.pack(crc32c(data)) + data


def entry_body(data: bytes, ledger: int, entry_id: int) -> bytes | None:
    """The body of an entry from its encoded bytes; None if they are damaged or another entry."""
    if len(data) < ENTRY_HEADER:
        return None
    fields = data[_CHECKSUM.size :]
    if _ENTRY.unpack_from(fields) != (len(data) - ENTRY_HEADER, ledger, entry_id):
        return None
    return data[ENTRY_HEADER:] if _CHECKSUM.unpack_from(data) == (crc32c(fields),) else None


def entries_of(run: Run, data: bytes) -> Iterator[tuple[int, bytes | None]]:
    """The id and body of each entry of a run, from its encoded bytes. The body is None if it is damaged."""
    at = 0
    for entry_id, size in zip(run.ids, run.sizes, strict=True):
        yield entry_id, entry_body(data[at : at + size], run.ledger, entry_id)
        at += size


def contents_at(data: bytes, log: int, offset: int) -> tuple[int, int] | None:
    """The offset and size of the contents of a section, from at least its header; None if there is no section."""
    header = _header(data, log, offset)
    return None if header is None else (offset + HEADER, header[1])


def section_at(data: bytes, log: int, offset: int) -> Section | None:
    """Decode a section, from at least its header and contents; None if there is none or it is unreadable."""
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
    """Sequence, bytes of contents, bytes of entries, and checksum of the contents."""
    if len(data) < HEADER:
        return None
    magic, in_log, at, sequence, length, size, checksum = _SECTION.unpack_from(data)
    if (magic, in_log, at) != (_SECTION_MAGIC, log, offset):
        return None
    whole = _CHECKSUM.unpack_from(data, _SECTION.size) == (crc32c(data[: _SECTION.size]),)
    return (sequence, length, size, checksum) if whole else None
