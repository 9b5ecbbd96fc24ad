"""An entry as it is sent and stored: 32 bytes of header, a digest of header and data, and the data.

The layout is BookKeeper's (``DigestManager``). Whoever has the password of a ledger makes bodies and opens them; a bookie only looks at
the header.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import zlib

import msgspec

from fencepost.store.rules.metadata import DigestType

_HEADER = struct.Struct(">qqqq")
_LAC_HEADER = struct.Struct(">qq")
_CRC = struct.Struct(">q")

DIGEST_SIZES = {DigestType.DUMMY: 0, DigestType.CRC32: 8, DigestType.HMAC: 20}
"""The digests that can be made, and the bytes that each takes."""


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


class Digests:
    """Makes and opens the bodies of a ledger. Raises ``ValueError`` for a digest that is not in :data:`DIGEST_SIZES`."""

    def __init__(self, digest_type: DigestType, password: bytes) -> None:
        if digest_type not in DIGEST_SIZES:
            known = ", ".join(each.name for each in DIGEST_SIZES)
            raise ValueError(f"entries with the digest {digest_type.name} can not be made or opened, only with {known}")
        self.digest_type = digest_type
        self.size = DIGEST_SIZES[digest_type]
        self._key = hashlib.sha1(b"mac" + password).digest()

    def _digest(self, head: bytes, data: bytes) -> bytes:
        if self.digest_type is DigestType.CRC32:
            return _CRC.pack(zlib.crc32(data, zlib.crc32(head)))
        if self.digest_type is DigestType.HMAC:
            return hmac.digest(self._key, head + data, "sha1")
        return b""

    def entry_body(self, entry: Entry) -> bytes:
        """The bytes of an entry."""
        head = _HEADER.pack(entry.ledger, entry.entry_id, entry.lac, entry.length)
        return head + self._digest(head, entry.data) + entry.data

    def open_entry(self, body: bytes | None, ledger: int, entry_id: int | None = None) -> Entry | None:
        """The entry that a body holds; None if it is damaged, or not the entry that was asked for (None: any of the ledger)."""
        start = _HEADER.size + self.size
        if body is None or len(body) < start:
            return None
        of_ledger, id_in_body, lac, length = _HEADER.unpack_from(body)
        if of_ledger != ledger or entry_id not in (None, id_in_body):
            return None
        data = body[start:]
        if body[_HEADER.size : start] != self._digest(body[: _HEADER.size], data):
            return None
        return Entry(ledger, id_in_body, lac, length, data)

    def lac_body(self, ledger: int, lac: int) -> bytes:
        """The bytes of a LAC that is told by itself."""
        head = _LAC_HEADER.pack(ledger, lac)
        return head + self._digest(head, b"")

    def open_lac(self, body: bytes | None, ledger: int) -> int | None:
        """The LAC that a body holds; None if there is none, it is damaged, or of another ledger."""
        if body is None or len(body) != _LAC_HEADER.size + self.size:
            return None
        told_of, lac = _LAC_HEADER.unpack_from(body)
        return lac if told_of == ledger and body[_LAC_HEADER.size :] == self._digest(body[: _LAC_HEADER.size], b"") else None

    def __repr__(self) -> str:
        return f"Digests({self.digest_type.name})"
