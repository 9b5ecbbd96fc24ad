"""An entry as it is sent and stored: 32 bytes of header, a digest of header and data, and the data.

The layout is BookKeeper's (``DigestManager``). Whoever has the password of a ledger makes bodies and opens them; a
bookie only looks at the header.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from fencepost.errors import FencepostError, how_to_install
from fencepost.ledger.rules.metadata import DigestType

_HEADER = struct.Struct(">qqqq")
_LAC_HEADER = struct.Struct(">qq")
_CRC32 = struct.Struct(">Q")
_CRC32C = struct.Struct(">I")

Digest = Callable[[bytes, "bytes | memoryview"], bytes]
"""A digest of a header and the data after it."""

Runs: TypeAlias = tuple[tuple[int, int], ...]
"""Ids of entries, as runs from a first to a last one."""

DIGEST_SIZES = {DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}
"""The bytes that each digest takes."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry, opened. ``length``: the bytes of data of the ledger up to and including this entry."""

    ledger: int
    entry_id: int
    lac: int
    length: int
    data: bytes


def master_key(password: bytes) -> bytes:
    """The key by which bookies know who may write to a ledger or fence it."""
    return hashlib.sha1(b"ledger" + password).digest()


def header(body: bytes) -> tuple[int, int, int, int]:
    """Ledger, entry id, LAC and length, as they stand before the digest, which is not looked at."""
    return _HEADER.unpack_from(body)


def runs_of(entry_ids: Any) -> Runs:
    """Ids of entries as runs, each its first and last id; ascending ids as the fewest. They are a NumPy array, or come
    one after another.
    """
    if hasattr(entry_ids, "dtype") and len(entry_ids):  # an array of NumPy
        if (entry_ids[1:] - entry_ids[:-1] == 1).all():  # so it is mostly, and this shows it at once
            return ((int(entry_ids[0]), int(entry_ids[-1])),)
        entry_ids = entry_ids.tolist()
    runs: list[tuple[int, int]] = []
    for entry_id in entry_ids:
        if runs and runs[-1][1] == entry_id - 1:
            runs[-1] = (runs[-1][0], entry_id)
        else:
            runs.append((entry_id, entry_id))
    return tuple(runs)


def _crc32(head: bytes, data: bytes | memoryview) -> bytes:
    return _CRC32.pack(zlib.crc32(data, zlib.crc32(head)))


def _nothing(head: bytes, data: bytes | memoryview) -> bytes:
    return b""


def _hmac(password: bytes) -> Digest:
    key = hashlib.sha1(b"mac" + password).digest()
    return lambda head, data: hmac.digest(key, head + data, "sha1")


def _crc32c() -> Digest:
    """The library comes with the extra ``store``: a simulator without it has the other digests."""
    try:
        from google_crc32c import extend
    except ImportError:
        raise FencepostError(
            f"the digest CRC32C needs google-crc32c: {how_to_install('store')}, or choose another digest"
        ) from None
    return lambda head, data: _CRC32C.pack(extend(extend(0, head), data))


class Digests:
    """Makes and opens the bodies of a ledger. CRC32C needs the extra ``store``; raises :class:`FencepostError` without
    it.
    """

    def __init__(self, digest_type: DigestType, password: bytes) -> None:
        self.digest_type = digest_type
        self.size = DIGEST_SIZES[digest_type]
        self._start = _HEADER.size + self.size
        self._digest: Digest
        if digest_type is DigestType.CRC32C:
            self._digest = _crc32c()
        elif digest_type is DigestType.HMAC:
            self._digest = _hmac(password)
        else:
            self._digest = _crc32 if digest_type is DigestType.CRC32 else _nothing

    def entry_body(self, entry: Entry) -> bytes:
        """The bytes of an entry."""
        data = entry.data
        head = _HEADER.pack(entry.ledger, entry.entry_id, entry.lac, entry.length)
        return b"".join((head, self._digest(head, data), data))

    def digest(self, ledger: int, entry_id: int, lac: int, length: int, data: bytes) -> bytes:
        """The digest of an entry alone."""
        return self._digest(_HEADER.pack(ledger, entry_id, lac, length), data)

    def open_entry(self, body: bytes | None, ledger: int, entry_id: int | None = None) -> Entry | None:
        """The entry that a body holds; None if it is damaged, or not the entry that was asked for (None: any of the
        ledger).
        """
        start = self._start
        if body is None or len(body) < start:
            return None
        of_ledger, id_in_body, lac, length = _HEADER.unpack_from(body)
        if of_ledger != ledger or (entry_id is not None and entry_id != id_in_body):
            return None
        data = body[start:]
        if body[_HEADER.size : start] != self._digest(body[: _HEADER.size], data):
            return None
        return Entry(ledger, id_in_body, lac, length, data)

    def lac_body(self, ledger: int, lac: int) -> bytes:
        """The bytes of an explicit LAC."""
        head = _LAC_HEADER.pack(ledger, lac)
        return head + self._digest(head, b"")

    def open_lac(self, body: bytes | None, ledger: int) -> int | None:
        """The LAC that a body holds; None if there is none, it is damaged, or of another ledger."""
        if body is None or len(body) != _LAC_HEADER.size + self.size:
            return None
        ledger_in_body, lac = _LAC_HEADER.unpack_from(body)
        return (
            lac
            if ledger_in_body == ledger and body[_LAC_HEADER.size :] == self._digest(body[: _LAC_HEADER.size], b"")
            else None
        )

    def __repr__(self) -> str:
        return f"Digests({self.digest_type.name})"
