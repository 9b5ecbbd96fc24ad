"""The building blocks of the compiled loops, compared with Python's own functions."""

from __future__ import annotations

import random as randoms
import struct
import zlib

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import binding
from numpy.typing import NDArray

from fencepost.files.loops import inner, njit
from fencepost.ledger.kernels import native
from fencepost.ledger.kernels.native import copy, crc32, crc32c, load_int32, load_int64, store_int32, store_int64

Bytes = NDArray[np.uint8]


@njit
def _numbers(data: Bytes, at: int) -> tuple[int, int]:
    return load_int64(data, at), load_int32(data, at)


@njit
def _put(data: Bytes, at: int, wide: int, narrow: int) -> None:
    store_int64(data, at, wide)
    store_int32(data, at + 8, narrow)


@njit
def _copied(target: Bytes, at: int, source: Bytes, start: int, size: int) -> None:
    copy(target, at, source, start, size)  # type: ignore[call-arg]  # Numba gives the typing context


@inner
def _crc_by_table(data: Bytes, start: int, stop: int, before: int) -> int:
    crc = before ^ 0xFFFFFFFF
    at = start
    while at + 8 <= stop:
        crc = native._word_by_table_compiled(crc, native.load_word(data, at))
        at += 8
    while at < stop:
        crc = native._byte_by_table_compiled(crc, np.int64(data[at]))
        at += 1
    return crc ^ 0xFFFFFFFF


@njit
def _by_table(data: Bytes, start: int, stop: int, before: int) -> int:
    crc: int = _crc_by_table(data, start, stop, before)
    return crc


def _array(data: bytes) -> Bytes:
    return np.frombuffer(data, dtype=np.uint8)


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 40), st.integers(0, 40))
def test_checksums_are_those_of_the_library(before: bytes, data: bytes, skipped: int, left: int) -> None:
    start, stop = min(skipped, len(data)), max(min(skipped, len(data)), len(data) - left)
    expected = google_crc32c.extend(google_crc32c.value(before), data[start:stop])
    for one in (crc32c, _by_table):
        assert one(_array(data), start, stop, google_crc32c.value(before)) == expected


@given(st.integers(0, 40_000), st.integers(0, 9), st.randoms(use_true_random=False))
def test_checksums_of_long_data_are_those_of_the_library(size: int, start: int, random: randoms.Random) -> None:
    data = random.randbytes(start + size)
    assert crc32c(_array(data), start, len(data), 0) == google_crc32c.value(data[start:])


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 40), st.integers(0, 40))
def test_crc32_is_that_of_zlib(before: bytes, data: bytes, skipped: int, left: int) -> None:
    start, stop = min(skipped, len(data)), max(min(skipped, len(data)), len(data) - left)
    assert crc32(_array(data), start, stop, zlib.crc32(before)) == zlib.crc32(data[start:stop], zlib.crc32(before))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(0, 9))
def test_numbers_stand_at_any_byte(wide: int, narrow: int, at: int) -> None:
    data = np.zeros(32, dtype=np.uint8)
    _put(data, at, wide, narrow)
    assert data.tobytes()[at : at + 12] == struct.pack(">qi", wide, narrow)
    assert _numbers(data, at)[0] == wide
    assert _numbers(data, at + 8)[1] == narrow


@given(st.binary(max_size=100), st.data())
def test_bytes_are_copied(source: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(source)))
    size = data.draw(st.integers(0, len(source) - start))
    target = np.full(120, 7, dtype=np.uint8)
    _copied(target, 10, _array(source), start, size)
    assert target.tobytes() == b"\7" * 10 + source[start : start + size] + b"\7" * (110 - size)


@pytest.mark.parametrize(
    ("triple", "features", "expected"),
    [("x86_64-linux", {"sse4.2": True}, "x86"), ("aarch64-linux", {"crc": True}, "arm")],
)
def test_the_instruction_is_that_of_the_processor(
    monkeypatch: pytest.MonkeyPatch, triple: str, features: dict[str, bool], expected: str
) -> None:
    monkeypatch.setattr(binding, "get_process_triple", lambda: triple)
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: features)
    assert native._instructions() == native._NAMES[expected]
    monkeypatch.setattr(binding, "get_host_cpu_features", dict)
    assert native._instructions() is None
