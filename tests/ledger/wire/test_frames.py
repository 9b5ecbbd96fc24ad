"""Frames: the payloads are the same however the bytes are split on the way. An impossible length is refused as soon as
it arrives.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.ledger.wire.frames import DEFAULT_LIMIT, Frames, WireError, frame

PAYLOADS = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


@given(PAYLOADS, st.data())
def test_any_cuts_give_the_same_payloads(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(frame, payloads))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    frames = Frames(40)
    got = [
        payload
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for payload in frames.feed(stream[start:end])
    ]
    assert got == payloads and frames.held == 0


@given(PAYLOADS, st.binary(min_size=1, max_size=40), st.data())
def test_half_a_frame_waits(payloads: list[bytes], last: bytes, data: st.DataObject) -> None:
    frames = Frames(40)
    half = frame(last)[: data.draw(st.integers(1, len(last) + 3))]
    assert frames.feed(b"".join(map(frame, payloads)) + half) == payloads and frames.held
    assert frames.feed(b"") == []
    assert frames.feed(frame(last)[len(half) :]) == [last]


@pytest.mark.parametrize("length", [0, -1, -(2**31), 101, 2**31 - 1])
def test_a_length_that_can_not_be(length: int) -> None:
    start = length.to_bytes(4, "big", signed=True)
    for before in (b"", frame(b"one")):
        frames = Frames(100)
        frames.feed(before + start[:2])
        with pytest.raises(WireError, match=f"says that it has {length:,} bytes, and from 1 to 100 are taken"):
            frames.feed(start[2:])


def test_the_largest_frame_in_small_pieces_is_put_together_once() -> None:
    frames, payload = Frames(), bytes(DEFAULT_LIMIT)
    stream = frame(payload)
    pieces = [stream[at : at + 1000] for at in range(0, len(stream), 1000)]
    assert [got for piece in pieces for got in frames.feed(piece)] == [payload]


def test_a_frame_in_single_bytes_is_held_in_few_parts() -> None:
    frames, data = Frames(), frame(bytes(20_000))
    assert not any(frames.feed(data[at : at + 1]) for at in range(len(data) - 1))
    assert frames.held == len(data) - 1 and len(frames._parts) < 20
    assert frames.feed(data[-1:]) == [bytes(20_000)] and frames.held == 0
