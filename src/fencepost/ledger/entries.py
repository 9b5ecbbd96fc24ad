"""An entry as it is sent and stored: a header of 32 bytes, a digest of header and data, and the data.

The layout is BookKeeper's (``DigestManager``). Only clients that have a ledger's password make and open bodies. A
bookie reads just the header.
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
"""Ids of entries, as runs: pairs of a first and a last id."""

DIGEST_SIZES = {DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}
"""The size of each digest, in bytes."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An opened entry. ``length``: bytes of data in the ledger up to and including this entry."""

    ledger: int
    entry_id: int
    lac: int
    length: int
    data: bytes


def master_key(password: bytes) -> bytes:
    """The key by which a bookie recognises clients that may write to a ledger or fence it."""
    return hashlib.sha1(b"ledger" + password).digest()


def header(body: bytes) -> tuple[int, int, int, int]:
    """Ledger, entry id, LAC and length from a body's header. The digest is not checked."""
    return _HEADER.unpack_from(body)


def runs_of(entry_ids: Any) -> Runs:
    """Ids of entries as runs of a first and a last id. Ascending ids give the fewest runs. Takes a NumPy array or any
    iterable.
    """
    if hasattr(entry_ids, "dtype") and len(entry_ids):  # a NumPy array
        first, last = entry_ids.item(0), entry_ids.item(-1)
        # The usual case. The comparison is searched as bytes, which takes half the time of NumPy's own ``all``.
        if last - first == len(entry_ids) - 1 and b"\0" not in (entry_ids[1:] > entry_ids[:-1]).tobytes():
            return ((first, last),)
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
    """CRC32C comes with the extra ``store``. A simulator without the extra still has the other digests."""
    try:
        from google_crc32c import extend
    except ImportError:
        raise FencepostError(
            f"the digest CRC32C needs google-crc32c: {how_to_install('store')}, or choose another digest"
        ) from None
    return lambda head, data: _CRC32C.pack(extend(extend(0, head), data))


class Digests:
    """Makes and opens the bodies of a ledger. Raises :class:`FencepostError` for CRC32C without the extra ``store``."""

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
        """The digest of an entry, without its body."""
        return self._digest(_HEADER.pack(ledger, entry_id, lac, length), data)

    def open_entry(self, body: bytes | None, ledger: int, entry_id: int | None = None) -> Entry | None:
        """The entry in a body. None if the body is damaged, or holds another entry than ``entry_id`` (None: any of the
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
        """The body of an explicit LAC."""
        head = _LAC_HEADER.pack(ledger, lac)
        return head + self._digest(head, b"")

    def open_lac(self, body: bytes | None, ledger: int) -> int | None:
        """The LAC in a body. None if there is no body, or it is damaged, or of another ledger."""
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
