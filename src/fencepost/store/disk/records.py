"""The records of a bookie's journal as bytes: one byte for the kind, then the fields.

An entry has its ledger, id and LAC as 8 bytes each and then its body, since most records are that; the others are MessagePack.
"""

from __future__ import annotations

import struct

import msgspec

from fencepost.store.records import EntryAdded, LacWritten, LedgerFenced, LimboChanged, MasterKeyLearnt, Record

KINDS: tuple[type[Record], ...] = (EntryAdded, MasterKeyLearnt, LedgerFenced, LacWritten, LimboChanged)
"""The kinds of records by the number that stands for each. A number is never given to another kind."""

_ENTRY = struct.Struct(">Bqqq")
_ENTRY_KIND = KINDS.index(EntryAdded)
_NUMBERS = {kind: bytes([number]) for number, kind in enumerate(KINDS)}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS = tuple(msgspec.msgpack.Decoder(kind) for kind in KINDS)


def encode(record: Record) -> bytes:
    """The bytes of a record."""
    if type(record) is EntryAdded:
        return _ENTRY.pack(_ENTRY_KIND, record.ledger, record.entry_id, record.lac) + record.body
    return _NUMBERS[type(record)] + _ENCODER.encode(record)


def decode(data: bytes) -> Record:
    """The record that bytes stand for. Raises ``ValueError`` if they are no record."""
    if not data or data[0] >= len(KINDS):
        raise ValueError("there is no such kind of record")
    if data[0] != _ENTRY_KIND:
        return _DECODERS[data[0]].decode(data[1:])
    if len(data) < _ENTRY.size:
        raise ValueError("the record of an entry is cut short")
    _, ledger, entry_id, lac = _ENTRY.unpack_from(data)
    return EntryAdded(ledger, entry_id, lac, data[_ENTRY.size :])
