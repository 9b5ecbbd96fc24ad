"""The loops of a client: frames of requests with digests, responses into rows, what they answer, and who has confirmed
which entry.

Whoever imports this compiles it, or loads what was compiled before. Every loop is compiled for the types in its first
line alone, and refuses others; it looks at no bounds but those that it says.

The requests of the loops have numbers from ``FIRST_TXN`` to before ``END_TXN``, all of which take five bytes. A ring
has a row for each that may be without an answer, at its number modulo the length of the ring, a power of two.
"""

from __future__ import annotations

import numpy as np
from numba import types

from fencepost.ledger.kernels.fields import put_varint, read_number, varint
from fencepost.ledger.kernels.native import (
    copy,
    crc32,
    crc32c,
    inner,
    load_int32,
    load_int64,
    njit,
    store_int32,
    store_int64,
)
from fencepost.ledger.rules import ensembles
from fencepost.ledger.rules.metadata import DigestType

FIRST_TXN, END_TXN = 1 << 28, 1 << 35

PART, PART_SIZE, BODY, BODY_SIZE, LENGTH = range(5)
"""The columns of an add that is sent: where the part of its request that all bookies are sent is, and the body in it,
each with its size; and the bytes of data of the ledger up to and including it.
"""
ADD_COLUMNS = 5

HEAD = 16
"""Bytes of the frame of an add before its part."""
PART_LIMIT = 100
"""Bytes of a part besides its master key and the data, at most."""
READ_FRAME = 48
"""Bytes of the frame of a read, at most."""

OWNER, ASKED, FRAME_BYTES = range(3)
"""The columns of a ring: whose request it is, 0 if none is there or it is answered, the entry that it is about, and its
bytes. Owners of adds have even numbers, and owners of reads odd ones.
"""
RING_COLUMNS = 3

KIND, TXN, RESPONSE_LEDGER, RESPONSE_ENTRY, RESPONSE_BODY, RESPONSE_SIZE, RESPONSE_LAC, PAYLOAD, PAYLOAD_SIZE = range(9)
"""The columns of a response: what it is, its fields, and where its body and its payload are, each with its size."""
RESPONSE_COLUMNS = 9

OTHER, ADDED, READ = range(3)
"""Kinds of responses. One that is not a plain success in the form that all bookies give it, or answers no request of
the loops, is of the kind OTHER, and has no other columns than its payload's: the codecs of :mod:`fencepost.ledger.wire`
say what it is.
"""

COMPLETE, PARTIAL, REFUSED = range(3)
"""How a buffer ends: with a frame or the room in the table, in the midst of a frame, or with a length that is not
taken.
"""

START, STOP, HEADER_LAC, HEADER_LENGTH = range(4)
"""The columns of an entry that was read: where its data are, -1 where it is not there yet; and the LAC and the length
that its header tells.
"""
ENTRY_COLUMNS = 4

PLACE_COLUMNS = 2
"""The first of these columns, for whoever wants to know no more than where data are."""

CRC32, CRC32C = DigestType.CRC32.value, DigestType.CRC32C.value
"""The digests that the loops make and compare. Those of other types are made and compared by
:mod:`fencepost.ledger.entries`.
"""

_HEADER = 32

# The rules, compiled as they are.
_is_in_write_set = inner(ensembles.is_in_write_set)
_is_committed = inner(ensembles.is_committed)


@inner
def _size_of_varint(value):
    size = np.int64(1)
    while value > 127:
        value >>= 7
        size += 1
    return size


@inner
def _put_head(out, at, size, operation, txn):
    """Write the length of a frame and the header of its request; where they end."""
    store_int32(out, at, size)
    out[at + 4], out[at + 5], out[at + 6], out[at + 7], out[at + 8], out[at + 9] = 0x0A, 10, 0x08, 3, 0x10, operation
    out[at + 10] = 0x18
    for place in range(4):
        out[at + 11 + place] = (txn >> 7 * place) & 127 | 128
    out[at + 15] = txn >> 28
    return at + HEAD


# -- adds -------------------------------------------------------------------------------------------------------------


@njit(
    types.int64(
        types.Array(types.uint8, 1, "C", readonly=True), types.int64[::1], types.uint8[:, ::1], types.int64,
        types.int64, types.int64, types.int64,
        types.int64, types.uint8[::1], types.boolean, types.uint8[::1], types.int64[:, ::1],
    )
)  # fmt: skip
def add_parts(data, sizes, digests, digest_type, ledger, first, lac, length, key, deferred_sync, parts, table):
    """Write what all bookies are sent of the adds of entries that follow one another, and a row for each; the bytes
    that are written.

    ``data``: the data of all of them, in their order, of the ``sizes``. ``digests``: that of each, where the loops do
    not make those of the ``digest_type``, the value of a :class:`DigestType`. ``length``: of the ledger before.
    ``parts``: room for the data, and for ``PART_LIMIT`` bytes and the key for each.
    """
    at, start = np.int64(0), np.int64(0)
    digest_size, key_size = digests.shape[1], len(key)
    fixed = 1 + _size_of_varint(ledger) + 1 + 1 + _size_of_varint(key_size) + key_size + 1
    for row in range(len(sizes)):
        entry_id, size = first + row, sizes[row]
        length += size
        body_size = _HEADER + digest_size + size
        part_size = (
            fixed + _size_of_varint(entry_id) + _size_of_varint(body_size) + body_size + (2 if deferred_sync else 0)
        )
        table[row, PART] = at
        parts[at], parts[at + 1] = 0xAA, 0x06
        at = put_varint(parts, at + 2, part_size)
        parts[at] = 0x08
        at = put_varint(parts, at + 1, ledger)
        parts[at] = 0x10
        at = put_varint(parts, at + 1, entry_id)
        parts[at] = 0x1A
        at = put_varint(parts, at + 1, key_size)
        copy(parts, at, key, 0, key_size)
        at += key_size
        parts[at] = 0x22
        body = at = put_varint(parts, at + 1, body_size)
        store_int64(parts, at, ledger)
        store_int64(parts, at + 8, entry_id)
        store_int64(parts, at + 16, lac)
        store_int64(parts, at + 24, length)
        at += _HEADER
        copy(parts, at + digest_size, data, start, size)
        if digest_type == CRC32C:
            digest = crc32c(parts, body, at, 0)
            store_int32(parts, at, crc32c(parts, at + digest_size, at + digest_size + size, digest))
        elif digest_type == CRC32:
            digest = crc32(parts, body, at, 0)
            store_int64(parts, at, crc32(parts, at + digest_size, at + digest_size + size, digest))
        else:
            for byte in range(digest_size):
                parts[at + byte] = digests[row, byte]
        start += size
        at += digest_size + size
        if deferred_sync:
            parts[at], parts[at + 1] = 0x28, 1
            at += 2
        table[row, PART_SIZE], table[row, LENGTH] = at - table[row, PART], length
        table[row, BODY], table[row, BODY_SIZE] = body, body_size
    return at


@njit(
    "Tuple((int64, int64))(uint8[::1], int64[:, ::1], int64, int64, int64, int64, int64, int64, int64[:, ::1],"
    " uint8[::1], boolean)"
)
def add_frames(parts, table, first, place, ensemble_size, write_quorum, txn, owner, ring, out, heads_only):
    """Write the frames of the adds of a batch that are for the bookie at a place, numbered from ``txn`` on, and put
    them into the ring; the bytes that are written, and the number after the last. ``out``: room for all the parts, and
    for ``HEAD`` bytes for each.

    ``heads_only``: the parts are not copied behind the heads of their frames.
    """
    at, mask = np.int64(0), len(ring) - 1
    for row in range(len(table)):
        if not _is_in_write_set(place, first + row, ensemble_size, write_quorum):
            continue
        size = table[row, PART_SIZE]
        after = _put_head(out, at, HEAD - 4 + size, 2, txn)
        if heads_only:
            at = after
        else:
            copy(out, after, parts, table[row, PART], size)
            at = after + size
        slot = txn & mask
        ring[slot, OWNER], ring[slot, ASKED], ring[slot, FRAME_BYTES] = owner, first + row, HEAD + size
        txn += 1
    return at, txn


@njit("void(int64[::1], int64[::1], int64, int64, int64, int64, int64, int64)")
def confirm(masks, entry_ids, number, place, confirmed, pushed, ensemble_size, write_quorum):
    """Set the bit ``number`` of the entries that the bookie at a place has confirmed, of those that count."""
    ring, bit = len(masks) - 1, np.int64(1) << number
    for at in range(len(entry_ids)):
        entry_id = entry_ids[at]
        is_asked = _is_in_write_set(place, entry_id, ensemble_size, write_quorum)
        if is_asked and confirmed < entry_id and entry_id <= pushed:
            masks[entry_id & ring] |= bit


@njit("int64(int64[::1], int64, int64, int64)")
def reached(masks, lac, pushed, ack_quorum):
    """How far all entries are committed."""
    ring = len(masks) - 1
    while True:
        mask, confirmations = masks[lac + 1 & ring], np.int64(0)
        while mask:
            mask &= mask - 1
            confirmations += 1
        if lac >= pushed or not _is_committed(confirmations, ack_quorum):
            return lac
        lac += 1


# -- reads ------------------------------------------------------------------------------------------------------------


@njit("int64(int64, int64[::1], int64, int64, int64[:, ::1], uint8[::1])")
def read_frames(ledger, entry_ids, txn, owner, ring, out):
    """Write the frames of the reads of entries, numbered from ``txn`` on, and put them into the ring; the bytes that
    are written.

    ``out``: room for ``READ_FRAME`` bytes for each.
    """
    at, mask = np.int64(0), len(ring) - 1
    for row in range(len(entry_ids)):
        entry_id = entry_ids[row]
        ids = 2 + _size_of_varint(ledger) + _size_of_varint(entry_id)
        after = _put_head(out, at, HEAD - 4 + 3 + ids, 1, txn)
        out[after], out[after + 1], out[after + 2], out[after + 3] = 0xA2, 0x06, ids, 0x08
        after = put_varint(out, after + 4, ledger)
        out[after] = 0x10
        after = put_varint(out, after + 1, entry_id)
        slot = txn & mask
        ring[slot, OWNER], ring[slot, ASKED], ring[slot, FRAME_BYTES] = owner, entry_id, after - at
        at = after
        txn += 1
    return at


@njit("int64(int64[:, ::1], int64[::1])")
def bytes_of(responses, rows):
    """The bytes of the bodies of responses."""
    size = np.int64(0)
    for place in range(len(rows)):
        size += responses[rows[place], RESPONSE_SIZE]
    return size


@inner
def _data_of(data, responses, response, entry_id, ledger, digest_size, digest_type):
    """Where the data of an entry begin and end in a response, the first of which is -1 if its body is not the entry
    that was asked for, or its digest is wrong; and the LAC of the response. Digests that the loops do not make are not
    checked.
    """
    body, size = responses[response, RESPONSE_BODY], responses[response, RESPONSE_SIZE]
    start, stop = body + _HEADER + digest_size, body + size
    if start > stop or load_int64(data, body) != ledger or load_int64(data, body + 8) != entry_id:
        return np.int64(-1), np.int64(-1), np.int64(-1)
    is_damaged = False
    if digest_type == CRC32C:
        digest = crc32c(data, start, stop, crc32c(data, body, body + _HEADER, 0))
        is_damaged = digest != load_int32(data, body + _HEADER) & 0xFFFFFFFF
    elif digest_type == CRC32:
        is_damaged = load_int64(data, body + _HEADER) != crc32(data, start, stop, crc32(data, body, body + _HEADER, 0))
    if is_damaged:
        return np.int64(-1), np.int64(-1), np.int64(-1)
    return start, stop, max(load_int64(data, body + 16), responses[response, RESPONSE_LAC])


@njit("Tuple((int64, int64))(uint8[::1], int64[:, ::1], int64[::1], int64[::1], int64, int64, int64, int64[:, ::1])")
def find_entries(data, responses, rows, entry_ids, ledger, digest_size, digest_type, table):
    """Find the data of entries where they have arrived, and put their places into the table, which has a row for each
    response: how many are not what was asked for, and the highest LAC of the responses. As for :func:`take_entries`,
    the rows of these become -1, and so they are in the table.
    """
    highest, refused = np.int64(-1), np.int64(0)
    for place in range(len(rows)):
        start, stop, lac = np.int64(-1), np.int64(-1), np.int64(-1)
        if rows[place] >= 0:
            start, stop, lac = _data_of(
                data, responses, rows[place], entry_ids[place], ledger, digest_size, digest_type
            )
        table[place, START], table[place, STOP] = start, stop
        if start < 0:
            rows[place] = -1
            refused += 1
        highest = max(highest, lac)
    return refused, highest


@njit(
    "Tuple((int64, int64, int64))(uint8[::1], int64[:, ::1], int64[::1], int64[::1], int64, int64, int64, int64,"
    " uint8[::1], int64, int64[:, ::1])"
)
def take_entries(data, responses, rows, entry_ids, ledger, digest_size, digest_type, first, block, at, table):
    """Put the data of entries into a block from ``at`` on, and a row for each into the table, which begins with the
    entry ``first``: how many are new, where the block ends then, and the highest LAC of the responses.

    The row of a response becomes -1 in ``rows`` if its body is not the entry that was asked for, or its digest is
    wrong. Digests that the loops do not make are not looked at, nor responses whose row is -1 already. Entries beyond
    the table are not wanted any more. ``block``: room for all bodies.
    """
    highest, taken = np.int64(-1), np.int64(0)
    for place in range(len(rows)):
        response, entry_id = rows[place], entry_ids[place]
        if response < 0:
            continue
        start, stop, lac = _data_of(data, responses, response, entry_id, ledger, digest_size, digest_type)
        if start < 0:
            rows[place] = -1
            continue
        highest = max(highest, lac)
        row = entry_id - first
        if row < len(table) and table[row, START] < 0:
            copy(block, at, data, start, stop - start)
            table[row, START], table[row, STOP] = at, at + stop - start
            body = responses[response, RESPONSE_BODY]
            table[row, HEADER_LAC], table[row, HEADER_LENGTH] = load_int64(data, body + 16), load_int64(data, body + 24)
            at += stop - start
            taken += 1
    return taken, at, highest


@njit("int64(uint8[::1], int64[:, ::1], uint8[::1], int64[::1])")
def in_order(block, table, out, offsets):
    """Where each entry begins, and where the last ends, in a block that has them in their order: 0 if it is the same
    block, and 1 if not: then they are copied to ``out`` if it has room for all. All entries are there.
    """
    is_same, at = True, np.int64(0)
    for row in range(len(table)):
        offsets[row] = at
        is_same = is_same and table[row, START] == at
        at += table[row, STOP] - table[row, START]
    offsets[len(table)] = at
    if not is_same and at <= len(out):
        for row in range(len(table)):
            copy(out, offsets[row], block, table[row, START], table[row, STOP] - table[row, START])
    return 0 if is_same else 1


# -- responses --------------------------------------------------------------------------------------------------------


@inner
def _take_response(data, start, stop, table, row):
    """Fill the row of a response; whether it is a plain one."""
    if (
        stop - start < 20
        or data[start] != 0x0A
        or data[start + 1] != 10
        or data[start + 2] != 0x08
        or data[start + 3] != 3
    ):
        return False
    operation = np.int64(data[start + 5])
    if data[start + 4] != 0x10 or data[start + 6] != 0x18:
        return False
    txn, at = varint(data, start + 7, start + 12)
    if at != start + 12 or txn < FIRST_TXN or data[at] != 0x10 or data[at + 1] != 0 or data[at + 3] != 0x06:
        return False
    if not (operation == 2 and data[at + 2] == 0xAA) and not (operation == 1 and data[at + 2] == 0xA2):
        return False
    size, at = varint(data, at + 4, stop)
    if at < 0 or at + size != stop or size < 2 or data[at] != 0x08 or data[at + 1] != 0:
        return False
    ledger, at = read_number(data, at + 2, stop, 0x10)
    entry_id, at = read_number(data, at, stop, 0x18)
    if at < 0:
        return False
    table[row, TXN], table[row, RESPONSE_LEDGER], table[row, RESPONSE_ENTRY] = txn, ledger, entry_id
    if operation == 2:
        table[row, KIND] = ADDED
        return at == stop
    size, body = read_number(data, at, stop, 0x22)
    if body < 0 or size > stop - body:
        return False
    lac, at = np.int64(-1), body + size
    if at < stop:
        lac, at = read_number(data, at, stop, 0x28)
    table[row, KIND], table[row, RESPONSE_BODY], table[row, RESPONSE_SIZE], table[row, RESPONSE_LAC] = (
        READ,
        body,
        size,
        lac,
    )
    return at == stop


@njit("Tuple((int64, int64, int64))(uint8[::1], int64, int64, int64, int64[:, ::1])")
def parse(data, start, stop, limit, table):
    """Rows for the frames of ``data[start:stop]``, whose payloads have at most ``limit`` bytes: how many, where the
    next frame begins, and how it goes on there (``COMPLETE``, ``PARTIAL`` or ``REFUSED``).
    """
    row, at = np.int64(0), start
    while row < len(table) and at < stop:
        if stop - at < 4:
            return row, at, PARTIAL
        size = load_int32(data, at)
        if size <= 0 or size > limit:
            return row, at, REFUSED
        payload, end = at + 4, at + 4 + size
        if end > stop:
            return row, at, PARTIAL
        if not _take_response(data, payload, end, table, row):
            table[row, KIND] = OTHER
        table[row, PAYLOAD], table[row, PAYLOAD_SIZE] = payload, size
        row += 1
        at = end
    return row, at, COMPLETE


@njit(
    "Tuple((int64, int64, int64, int64))(int64[:, ::1], int64, int64, int64[:, ::1], int64, int64, int64[::1],"
    " int64[::1])"
)
def complete(responses, first, count, ring, oldest, next_txn, entry_ids, rows):
    """Take requests out of the ring that are answered: by responses of one kind, to requests of one owner, from the row
    ``first`` on.

    Gives the row after them, the owner (0: nobody), how many requests these are, and their bytes; their entries and the
    rows of their responses are in ``entry_ids`` and ``rows``. Responses to what nobody asks for any more are passed
    over.
    """
    kind, mask = responses[first, KIND], len(ring) - 1
    owner, taken, size, row = np.int64(0), np.int64(0), np.int64(0), first
    while row < count and responses[row, KIND] == kind:
        txn = responses[row, TXN]
        slot = txn & mask
        if oldest <= txn and txn < next_txn and ring[slot, OWNER] and (ring[slot, OWNER] & 1 == 1) == (kind == READ):
            if not owner:
                owner = ring[slot, OWNER]
            if owner != ring[slot, OWNER]:
                break
            entry_ids[taken], rows[taken] = ring[slot, ASKED], row
            size += ring[slot, FRAME_BYTES]
            ring[slot, OWNER] = 0
            taken += 1
        row += 1
    return row, owner, taken, size


@njit(
    "UniTuple(int64, 7)(uint8[::1], int64, int64, int64, int64[:, ::1], int64[:, ::1], int64, int64, int64[::1],"
    " int64[::1])"
)
def receive(data, start, stop, limit, responses, ring, oldest, next_txn, entry_ids, rows):
    """As :func:`parse`, and :func:`complete` for the first of the responses, unless that is of the kind ``OTHER``: what
    both give, one after the other, with the row 0 after those that are completed if none are.
    """
    count, at, how = parse(data, start, stop, limit, responses)
    row, owner, taken, size = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    if count and responses[0, KIND] != OTHER:
        row, owner, taken, size = complete(responses, 0, count, ring, oldest, next_txn, entry_ids, rows)
    return count, at, how, row, owner, taken, size


@njit("int64(int64[:, ::1], int64, int64)")
def oldest_of(ring, oldest, next_txn):
    """The first request without an answer, given one that is not after it."""
    mask = len(ring) - 1
    while oldest < next_txn and not ring[oldest & mask, OWNER]:
        oldest += 1
    return oldest


@njit("Tuple((int64, int64))(int64[:, ::1], int64, int64, int64[::1], int64[::1])")
def give_up(ring, first, stop, owners, entry_ids):
    """Take all requests out of the ring that have numbers from ``first`` to before ``stop``: how many, and their
    bytes.
    """
    mask, taken, size = len(ring) - 1, np.int64(0), np.int64(0)
    for txn in range(first, stop):
        slot = txn & mask
        if ring[slot, OWNER]:
            owners[taken], entry_ids[taken] = ring[slot, OWNER], ring[slot, ASKED]
            size += ring[slot, FRAME_BYTES]
            ring[slot, OWNER] = 0
            taken += 1
    return taken, size
