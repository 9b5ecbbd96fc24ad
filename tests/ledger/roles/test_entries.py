"""The bodies of entries: BookKeeper's layout. A damaged body is never taken for a whole one."""

from __future__ import annotations

import hashlib
import hmac
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import FencepostError
from fencepost.ledger.entries import DIGEST_SIZES, Digests, Entry, header, master_key, runs_of
from fencepost.ledger.rules.metadata import DigestType

IDS = st.integers(-1, 2**63 - 1)
ENTRIES = st.builds(Entry, IDS, IDS, IDS, IDS, st.binary(max_size=40))
TYPES = st.sampled_from(sorted(DIGEST_SIZES, key=lambda each: each.value))


def crc32c(data: bytes) -> bytes:
    """CRC32C, bit by bit, from its polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "big")


def test_the_layout() -> None:
    head = bytes.fromhex("0000000000000001 0000000000000002 ffffffffffffffff 0000000000000005".replace(" ", ""))
    entry = Entry(1, 2, -1, 5, b"hello")
    crc = zlib.crc32(head + b"hello").to_bytes(8, "big")
    mac = hmac.digest(hashlib.sha1(b"macpw").digest(), head + b"hello", "sha1")
    assert Digests(DigestType.CRC32, b"pw").entry_body(entry) == head + crc + b"hello"
    assert Digests(DigestType.HMAC, b"pw").entry_body(entry) == head + mac + b"hello"
    assert Digests(DigestType.CRC32C, b"pw").entry_body(entry) == head + crc32c(head + b"hello") + b"hello"
    assert Digests(DigestType.DUMMY, b"pw").entry_body(entry) == head + b"hello"
    assert header(head + crc + b"hello") == (1, 2, -1, 5)
    # From what BookKeeper's client sent.
    sent = bytes.fromhex("0000000000000003 0000000000000009 236d4d0f".replace(" ", ""))
    assert Digests(DigestType.CRC32C, b"pw").lac_body(3, 9) == sent
    lac = bytes.fromhex("00000000000000010000000000000007")
    assert Digests(DigestType.CRC32, b"pw").lac_body(1, 7) == lac + zlib.crc32(lac).to_bytes(8, "big")
    assert master_key(b"pw") == hashlib.sha1(b"ledgerpw").digest()


@given(ENTRIES, TYPES)
def test_what_is_made_is_opened(entry: Entry, digest_type: DigestType) -> None:
    digests = Digests(digest_type, b"pw")
    body = digests.entry_body(entry)
    assert digests.open_entry(body, entry.ledger) == digests.open_entry(body, entry.ledger, entry.entry_id) == entry
    assert digests.open_entry(body, entry.ledger + 1) is None
    assert digests.open_entry(body, entry.ledger, entry.entry_id + 1) is None
    assert digests.open_lac(digests.lac_body(entry.ledger, entry.lac), entry.ledger) == entry.lac
    assert digests.open_lac(digests.lac_body(entry.ledger, entry.lac), entry.ledger + 1) is None


@given(ENTRIES, st.sampled_from([DigestType.CRC32, DigestType.HMAC, DigestType.CRC32C]), st.data())
def test_a_flipped_bit_is_seen(entry: Entry, digest_type: DigestType, data: st.DataObject) -> None:
    digests = Digests(digest_type, b"pw")
    for body, open_body in (
        (digests.entry_body(entry), digests.open_entry),
        (digests.lac_body(entry.ledger, 3), digests.open_lac),
    ):
        at, bit = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(0, 7))
        damaged = bytes(byte ^ (1 << bit) * (n == at) for n, byte in enumerate(body))
        assert open_body(damaged, entry.ledger) is None


@given(st.binary(max_size=60), TYPES)
def test_any_bytes_are_opened_or_not(body: bytes, digest_type: DigestType) -> None:
    digests = Digests(digest_type, b"pw")
    opened = digests.open_entry(body, 0)
    assert opened is None or digests.entry_body(opened) == body
    assert digests.open_entry(None, 0) is None and digests.open_lac(None, 0) is None
    digests.open_lac(body, 0)


def test_without_the_extra_there_is_no_crc32c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(FencepostError, match=r"CRC32C needs google-crc32c: in a checkout of Fencepost, pip install"):
        Digests(DigestType.CRC32C, b"pw")


@given(st.lists(st.integers(0, 30)).map(lambda ids: sorted(set(ids))))
def test_ids_as_runs(ids: list[int]) -> None:
    runs = runs_of(iter(ids))
    assert [entry_id for first, last in runs for entry_id in range(first, last + 1)] == ids
    assert all(after[0] > before[1] + 1 for before, after in zip(runs, runs[1:], strict=False))
    assert runs_of(np.array(ids, np.int64)) == runs


def test_ids_that_do_not_ascend_are_runs_of_their_own() -> None:
    assert runs_of([0, 5, 2]) == runs_of(np.array([0, 5, 2])) == ((0, 0), (5, 5), (2, 2))
