"""What is in an entry: all of it follows from the ledger, the entry's id and a number that its writer drew, so that
nobody need keep it.
"""

from __future__ import annotations

import random
import struct

HEADER = struct.Struct(">qqq")

_POOL = random.Random(1).randbytes(1 << 18)

LARGEST = 64 << 10


def payload(ledger: int, entry_id: int, nonce: int) -> bytes:
    """The data of an entry: mostly some hundred bytes, one in a hundred up to 64 KiB, one in fifty nothing but the
    header.
    """
    mixed = (ledger * 0x9E3779B97F4A7C15 + entry_id * 0xC2B2AE3D27D4EB4F + nonce) & 0xFFFFFFFFFFFFFFFF
    mixed ^= mixed >> 29
    kind, offset = mixed % 100, (mixed >> 8) % (len(_POOL) - LARGEST)
    size = 0 if kind < 2 else (mixed >> 20) % LARGEST if kind == 2 else 50 + (mixed >> 20) % 1_000
    return HEADER.pack(ledger, entry_id, nonce) + _POOL[offset : offset + size]


def nonce_of(data: bytes) -> int | None:
    """The number that the writer of an entry drew; None if there is none in it."""
    return int(HEADER.unpack_from(data)[2]) if len(data) >= HEADER.size else None


def number_of(data: bytes) -> int:
    """The number of an entry, by what its writer wrote into it."""
    return int(HEADER.unpack_from(data)[1]) if len(data) >= HEADER.size else -1


def fault(data: bytes, ledger: int, entry_id: int, nonce: int | None = None) -> str:
    """What is wrong with the data of an entry; nothing if it is what its writer wrote. Without ``nonce``, that of the
    entry itself is believed.
    """
    found = nonce_of(data)
    if found is None or (nonce is not None and found != nonce):
        return f"entry {entry_id} of ledger {ledger} is of another writer"
    if data != payload(ledger, entry_id, found):
        return f"entry {entry_id} of ledger {ledger} has other bytes than were written"
    return ""
