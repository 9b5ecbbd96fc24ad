"""The records of a bookie's journal as bytes: one byte for the kind, then the fields.

An entry has its ledger, id and LAC as 8 bytes each and then its body, because most records are entries. Other records
are MessagePack.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
import numpy as np

from fencepost.ledger.kernels.entries import COLUMNS, ENTRY_ID, LAC, LEDGER, OFFSET, SIZE, EntryRows
from fencepost.ledger.records import EntryAdded, LacWritten, LedgerFenced, LimboChanged, MasterKeyLearnt, Record

KINDS: tuple[type[Record], ...] = (EntryAdded, MasterKeyLearnt, LedgerFenced, LacWritten, LimboChanged)
"""The kinds of records; the index is the byte in the file. An index is never reused for another kind."""

_ENTRY = struct.Struct(">Bqqq")
_HEAD = struct.Struct(">IB")
_LENGTH = 4
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
    """Decode a record. Raises ``ValueError`` if the bytes are no record."""
    if not data or data[0] >= len(KINDS):
        raise ValueError("unknown kind of record")
    if data[0] != _ENTRY_KIND:
        return _DECODERS[data[0]].decode(data[1:])
    if len(data) < _ENTRY.size:
        raise ValueError("the record of an entry is cut short")
    _, ledger, entry_id, lac = _ENTRY.unpack_from(data)
    return EntryAdded(ledger, entry_id, lac, data[_ENTRY.size :])


def decode_rows(group: bytes) -> Iterator[Record | EntryRows]:
    """Decode a group of the journal, in which each record follows its length. Consecutive entries come as one
    :class:`EntryRows`, other records one by one. Raises ``ValueError`` for a malformed record.
    """
    offsets: list[int] = []
    lengths: list[int] = []
    at, unpack = 0, _HEAD.unpack_from
    while at < len(group):
        length, kind = unpack(group, at) if at + _HEAD.size <= len(group) else (0, 0)
        if kind != _ENTRY_KIND or length < _ENTRY.size:
            if offsets:
                yield _rows(group, offsets, lengths)
                offsets, lengths = [], []
            yield decode(group[at + _LENGTH : at + _LENGTH + length])
        else:
            offsets.append(at + _LENGTH)
            lengths.append(length)
        at += _LENGTH + length
    if offsets:
        yield _rows(group, offsets, lengths)


def _rows(group: bytes, offsets: list[int], lengths: list[int]) -> EntryRows:
    """The entries at these record offsets, sorted by ledger."""
    data, starts = np.frombuffer(group, np.uint8), np.array(offsets)
    fields = data[(starts + 1)[:, np.newaxis] + np.arange(24)].view(">i8")
    table = np.empty((len(starts), COLUMNS), np.int64)
    table[:, [LEDGER, ENTRY_ID, LAC]] = fields
    table[:, OFFSET] = starts + _ENTRY.size
    table[:, SIZE] = np.array(lengths) - _ENTRY.size
    return EntryRows(data, table[np.argsort(table[:, LEDGER], kind="stable")])
