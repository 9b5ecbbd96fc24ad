"""The records of a bookie's journal as bytes: one byte for the kind, then the fields as MessagePack."""

from __future__ import annotations

import msgspec

from fencepost.store.records import EntryAdded, LacWritten, LedgerFenced, LimboChanged, MasterKeyLearnt, Record

KINDS: tuple[type[Record], ...] = (EntryAdded, MasterKeyLearnt, LedgerFenced, LacWritten, LimboChanged)
"""The kinds of records by the number that stands for each. A number is never given to another kind."""

_NUMBERS = {kind: bytes([number]) for number, kind in enumerate(KINDS)}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS = tuple(msgspec.msgpack.Decoder(kind) for kind in KINDS)


def encode(record: Record) -> bytes:
    """The bytes of a record."""
    return _NUMBERS[type(record)] + _ENCODER.encode(record)


def decode(data: bytes) -> Record:
    """The record that bytes stand for. Raises ``ValueError`` if they are no record."""
    if not data or data[0] >= len(KINDS):
        raise ValueError("there is no such kind of record")
    return _DECODERS[data[0]].decode(data[1:])
