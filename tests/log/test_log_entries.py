"""Entries of a log as bytes: one by one, and many at once."""

from __future__ import annotations

from array import array
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.log.entries import HEADER, Frames, framed, time_of, unframed
from fencepost.log.errors import LogFormatError

TIMES = st.integers(0, 2**63 - 1)
KEYS = st.none() | st.binary(max_size=300)
ENTRIES = st.lists(st.tuples(TIMES, KEYS, st.binary(max_size=300)), max_size=20)


def block(entries: list[bytes], before: bytes = b"") -> tuple[memoryview, memoryview]:
    offsets = array("q", accumulate(map(len, entries), initial=len(before)))
    return memoryview(before + b"".join(entries)), memoryview(offsets)


@given(TIMES, KEYS, st.binary(max_size=300))
def test_what_is_framed_is_unframed(time: int, key: bytes | None, data: bytes) -> None:
    entry = framed(data, time, key)
    assert unframed(entry) == (time, key, data) and time_of(entry) == time
    assert key is not None or len(entry) == HEADER + len(data) == 10 + len(data)


@given(ENTRIES, st.binary(max_size=20))
def test_many_at_once_are_as_one_by_one(rows: list[tuple[int, bytes | None, bytes]], before: bytes) -> None:
    entries = [framed(data, time, key) for time, key, data in rows]
    frames = Frames(*block(entries, before))
    assert len(frames) == len(rows) and [*frames] == rows
    data, offsets = frames.packed()
    assert bytes(data) == b"".join(row[2] for row in rows)
    assert offsets.tolist() == [*accumulate((len(row[2]) for row in rows), initial=0)]


def test_entries_of_one_size_are_taken_as_one_table() -> None:
    rows = [(7 + number, None, b"%03d" % number) for number in range(100)]
    frames = Frames(*block([framed(data, time) for time, _, data in rows], b"xy"))
    assert [*frames] == rows and bytes(frames.packed()[0]) == b"".join(data for _, _, data in rows)


@given(st.binary(max_size=40))
def test_foreign_bytes_are_refused_or_an_entry(entry: bytes) -> None:
    try:
        time, key, data = unframed(entry)
    except LogFormatError:
        with pytest.raises(LogFormatError):
            Frames(*block([framed(b"good", 1), entry, framed(b"good", 2, b"key")]))
    else:
        assert key is None or len(key) + len(data) < len(entry)
        assert [*Frames(*block([entry]))] == [(time, key, data)]


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        (b"", "too short"),
        (b"\x01\x00" + bytes(7), "too short"),
        (b"\x02\x00" + bytes(8), "format 2 and flags 0"),
        (b"\x01\x02" + bytes(8), "format 1 and flags 2"),
        (b"\x01\x01" + bytes(8) + b"\x05abc", "longer than the entry"),
        (b"\x01\x01" + bytes(8) + b"\xff" * 9, "longer than the entry"),
        (b"\x01\x01" + bytes(8), "longer than the entry"),
    ],
)
def test_what_is_wrong_is_said(entry: bytes, complaint: str) -> None:
    with pytest.raises(LogFormatError, match=complaint):
        unframed(entry)
    with pytest.raises(LogFormatError, match=complaint):
        Frames(*block([entry]))
