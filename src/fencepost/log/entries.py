"""The format of a log entry within a ledger entry: a header, an optional key, and the data.

=========  ==============================================================================
bytes      what
=========  ==============================================================================
1          the format: 1
1          flags: bit 0 is set if there is a key, the others are 0
8          the time of the append in milliseconds since 1970, big endian; 0 in a batch, see :func:`.rules.entry_time`
varint     the length of the key, seven bits a byte, lowest first; only with a key
length     the key; only with a key
the rest   the data
=========  ==============================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fencepost.ledger.wire.varint import varint
from fencepost.log.errors import LogFormatError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT = 1
KEYED = 1
"""The flag of an entry with a key."""

_HEADER = struct.Struct(">BBq")
HEADER = _HEADER.size
"""Bytes before the data of an entry without a key."""

_LONGEST = 5
"""The most bytes of the length of a key."""


class Keyed(bytes):
    """A key and its data, as encoded in an entry."""


def body(data: bytes, key: bytes | None = None) -> bytes:
    """Encode the part of an entry that follows the time."""
    return data if key is None else Keyed(b"".join((varint(len(key)), key, data)))


def stamped(bodies: Iterable[bytes], time: int) -> list[bytes]:
    """Encode entries with these bodies, appended at ``time`` in milliseconds since 1970."""
    plain, keyed = _HEADER.pack(FORMAT, 0, time), _HEADER.pack(FORMAT, KEYED, time)
    return [(keyed if type(each) is Keyed else plain) + each for each in bodies]


def framed(data: bytes, time: int, key: bytes | None = None) -> bytes:
    """Encode an entry that is appended at ``time``, in milliseconds since 1970."""
    return stamped([body(data, key)], time)[0]


def unframed(entry: bytes) -> tuple[int, bytes | None, bytes]:
    """Decode the time, key and data of an entry. Raises :class:`LogFormatError` if it is not a log entry."""
    time, start, stop = _parts(entry)
    return time, None if start == HEADER else entry[start:stop], entry[stop:]


def time_of(entry: bytes) -> int:
    """The time of an entry, in milliseconds since 1970. Raises as :func:`unframed`."""
    return _parts(entry)[0]


def _parts(entry: bytes) -> tuple[int, int, int]:
    """The time of an entry, and the offsets of its key (after the key's length) and of its data."""
    if len(entry) < HEADER:
        raise LogFormatError(
            f"an entry of {len(entry)} bytes is too short to be one of a log: was it appended to the ledger itself?"
        )
    form, flags, time = _HEADER.unpack_from(entry)
    if form != FORMAT or flags & ~KEYED:
        raise LogFormatError(
            f"an entry begins with format {form} and flags {flags}, and a log has format {FORMAT} and flags 0 or"
            f" {KEYED}: is it of a later version, or was it appended to the ledger itself?"
        )
    if not flags:
        return time, HEADER, HEADER
    length = shift = 0
    for at in range(HEADER, min(len(entry), HEADER + _LONGEST)):
        length |= (entry[at] & 127) << shift
        shift += 7
        if entry[at] < 128:
            if at + 1 + length > len(entry):
                break
            return time, at + 1, at + 1 + length
    raise LogFormatError("the key of an entry is longer than the entry")


class Frames:
    """Many entries in one block, with their headers parsed.

    ``data``: the bytes of all entries, headers and keys included. ``times``: milliseconds since 1970, see
    :func:`.rules.entry_time`. ``starts`` and ``stops``: the offsets in ``data`` of each entry's data. ``key_starts``:
    the offset of its key, which ends at ``starts``; -1 without a key. All are arrays of 64-bit integers.
    """

    __slots__ = ("data", "key_starts", "starts", "stops", "times")

    def __init__(self, data: memoryview, offsets: memoryview, created: int = 0) -> None:
        """The entries of :class:`fencepost.ledger.client.reading.EntryBatch`.

        ``offsets``: where each entry begins, and where the last one ends. ``created``: the time of the ledger in the
        chain.
        """
        import numpy as np

        block = np.frombuffer(data, np.uint8)
        bounds = np.frombuffer(offsets, np.int64)
        begin, self.stops = bounds[:-1], bounds[1:]
        self.data = data
        if not len(begin):
            self.times = self.starts = self.key_starts = np.empty(0, np.int64)
            return
        lengths = self.stops - begin
        if int(lengths.min()) < HEADER:
            unframed(bytes(data[begin[lengths.argmin()] :][: int(lengths.min())]))
        forms, flags = block[begin], block[begin + 1]
        wrong = (forms != FORMAT) | (flags > KEYED)
        if wrong.any():
            at = int(wrong.argmax())
            unframed(bytes(data[int(begin[at]) : int(self.stops[at])]))
        self.times = np.maximum(_times(block, begin, lengths), created)
        self.starts = begin + HEADER
        self.key_starts = np.full(len(begin), -1, np.int64)
        for at in np.flatnonzero(flags).tolist():
            first = int(begin[at])
            _, start, stop = _parts(bytes(data[first : int(self.stops[at])]))
            self.key_starts[at], self.starts[at] = first + start, first + stop

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[tuple[int, bytes | None, bytes]]:
        """Iterate over the time, key and data of each entry."""
        data = self.data
        fields = zip(
            self.times.tolist(), self.key_starts.tolist(), self.starts.tolist(), self.stops.tolist(), strict=True
        )
        for time, key, start, stop in fields:
            yield time, None if key < 0 else bytes(data[key:start]), bytes(data[start:stop])

    def packed(self) -> tuple[memoryview, memoryview]:
        """The data alone in one block, and where each entry's data begin and the last one's end: the layout of Arrow's
        binary columns.
        """
        import numpy as np

        lengths = self.stops - self.starts
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if not len(lengths):
            return memoryview(b""), offsets.data
        first, last = int(self.starts[0]) - HEADER, int(self.stops[-1])
        block = np.frombuffer(self.data, np.uint8)
        size = int(lengths[0])
        if (
            last - first == len(lengths) * (HEADER + size)
            and (lengths == size).all()
            and not (self.key_starts >= 0).any()
        ):
            rows = block[first:last].reshape(len(lengths), HEADER + size)
            return np.ascontiguousarray(rows[:, HEADER:]).reshape(-1).data, offsets.data
        marks = np.zeros(len(block) + 1, np.int8)
        marks[self.starts] += 1  # safe: no two entries begin or end at the same offset
        marks[self.stops] -= 1
        is_data = np.cumsum(marks[:-1], dtype=np.int8).view(np.bool_)
        return block[is_data].data, offsets.data


def _times(block: NDArray[np.uint8], begin: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The times in the headers of the entries that begin at these offsets."""
    import numpy as np

    size, first = int(lengths[0]), int(begin[0])
    if (lengths == size).all():
        rows = block[first : first + size * len(begin)].reshape(len(begin), size)[:, 2:HEADER]
    else:
        rows = block[begin[:, None] + np.arange(2, HEADER)]
    times: NDArray[np.int64] = np.ascontiguousarray(rows).view(">i8").reshape(-1).astype(np.int64)
    return times
