"""The loops of a client: writing request frames with digests, parsing responses, and tracking confirmations of entries.

Importing this module compiles it, or loads it from the cache. Each loop is compiled for the types in its signature
only, and rejects others. Loops check no bounds except where they say so.

Request numbers of the loops go from ``FIRST_TXN`` to ``END_TXN``, exclusive; each is a varint of five bytes. A ring has
one row per request that may be unanswered, at the number modulo the length of the ring, a power of two.
"""

from __future__ import annotations

import numpy as np
from numba import types

from fencepost.files.loops import inner, njit
from fencepost.ledger.kernels.fields import put_varint, read_number, varint
from fencepost.ledger.kernels.native import copy, crc32, crc32c, load_int32, load_int64, store_int32, store_int64
from fencepost.ledger.rules import ensembles
from fencepost.ledger.rules.metadata import DigestType

FIRST_TXN, END_TXN = 1 << 28, 1 << 35

PART, PART_SIZE, BODY, BODY_SIZE, LENGTH = range(5)
"""The columns of an add: offset and size of the part of its request that all bookies share, offset and size of the body
within, and the ledger's length in bytes up to and including this entry.
"""
ADD_COLUMNS = 5

HEAD = 16
"""Bytes of an add's frame before that part."""
PART_LIMIT = 100
"""The most bytes of a part besides the master key and the data."""
READ_FRAME = 48
"""The most bytes of a read's frame."""

OWNER, ASKED, FRAME_BYTES = range(3)
"""The columns of a ring: the owner of the request, 0 if there is none or it is answered; the entry; and the bytes of
the frame. Owners of adds have even numbers, owners of reads odd ones.
"""
RING_COLUMNS = 3

KIND, TXN, RESPONSE_LEDGER, RESPONSE_ENTRY, RESPONSE_BODY, RESPONSE_SIZE, RESPONSE_LAC, PAYLOAD, PAYLOAD_SIZE = range(9)
"""The columns of a response: its kind, its fields, and the offsets and sizes of its body and payload."""
RESPONSE_COLUMNS = 9

OTHER, ADDED, READ = range(3)
"""Kinds of responses. OTHER is anything but a plain success, encoded as all bookies do, to a request of the loops. It
has only the payload's columns: the codecs of :mod:`fencepost.ledger.wire` decode it.
"""

COMPLETE, PARTIAL, REFUSED = range(3)
"""How parsing stopped: at the end of a frame or of the table, inside a frame, or at an unacceptable length."""

START, STOP, HEADER_LAC, HEADER_LENGTH = range(4)
"""The columns of an entry that was read: start and end of its data, -1 until it arrives; and the LAC and the length in
its header.
"""
ENTRY_COLUMNS = 4

PLACE_COLUMNS = 2
"""The number of columns of a table that holds only the start and end of data."""

CRC32, CRC32C = DigestType.CRC32.value, DigestType.CRC32C.value
"""The digest types that the loops compute and check. :mod:`fencepost.ledger.entries` handles the others."""

_HEADER = 32

# The rules, compiled unchanged.
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
    """Write the length of a frame and the header of its request; returns the end."""
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
    """Write the shared parts of adds of consecutive entries, and a row for each; returns the bytes written.

    ``data``: the data of all entries, concatenated; ``sizes``: the size of each. ``digest_type``: the value of a
    :class:`DigestType`. ``digests``: one per entry, for types that the loops do not compute. ``length``: that of the
    ledger before these entries. ``parts``: room for the data, and per entry for ``PART_LIMIT`` bytes and the key.
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
    """Write the frames of a batch's adds for the bookie at a place in the ensemble, numbered from ``txn`` on, and enter
    them in the ring. Returns the bytes written, and the next number. ``out``: room for all parts, and ``HEAD`` bytes
    per add.

    ``heads_only``: write only the heads of the frames, without the parts.
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
    """Set the bit ``number`` for entries that the bookie at a place confirmed, if they still need it."""
    ring, bit = len(masks) - 1, np.int64(1) << number
    for at in range(len(entry_ids)):
        entry_id = entry_ids[at]
        is_asked = _is_in_write_set(place, entry_id, ensemble_size, write_quorum)
        if is_asked and confirmed < entry_id and entry_id <= pushed:
            masks[entry_id & ring] |= bit


@njit("int64(int64[::1], int64, int64, int64)")
def reached(masks, lac, pushed, ack_quorum):
    """The last entry up to which all are committed."""
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
    """Write the frames of reads of entries, numbered from ``txn`` on, and enter them in the ring. Returns the bytes
    written.

    ``out``: room for ``READ_FRAME`` bytes per read.
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
    """The start and end of an entry's data in a response, and the response's LAC. The start is -1 if the body is not
    the requested entry or its digest is wrong. Digests that the loops do not compute are not checked.
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
    """Find the data of entries in their responses, and put start and end into the table, one row per response. Returns
    the number of rejected responses, and the highest LAC. As in :func:`take_entries`, rejected ones become -1 in
    ``rows``, and also in the table.
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
    """Copy the data of entries into a block from ``at`` on, and fill in their rows of the table, whose first row is the
    entry ``first``. Returns the number of new entries, the end in the block, and the highest LAC of the responses.

    A response becomes -1 in ``rows`` if its body is not the requested entry or its digest is wrong. Digests that the
    loops do not compute are not checked. Rows that are -1 already are skipped. Entries past the table are no longer
    wanted. ``block``: room for all bodies.
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
    """Compute where each entry begins, and the last ends, in a block with the entries in order. Returns 0 if ``block``
    is that block. Otherwise returns 1, after copying them to ``out`` if it has room. All entries must be present.
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
    """Parse a response into a row; returns whether it is a plain one."""
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
    """Parse the frames of ``data[start:stop]`` into rows. Payloads have at most ``limit`` bytes. Returns the number of
    frames, the offset of the next one, and why it stopped (``COMPLETE``, ``PARTIAL`` or ``REFUSED``).
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
    """Remove answered requests from the ring, from the row ``first`` on, while the responses are of one kind and the
    requests of one owner.

    Returns the next row, the owner (0: none), the number of these requests, and their bytes. Their entries and response
    rows are put in ``entry_ids`` and ``rows``. Responses to requests that are no longer in the ring are skipped.
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
    """Call :func:`parse`, and then :func:`complete` for the first response unless that is ``OTHER``. Returns the
    results of both, in that order. The row from :func:`complete` is 0 if it was not called.
    """
    count, at, how = parse(data, start, stop, limit, responses)
    row, owner, taken, size = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    if count and responses[0, KIND] != OTHER:
        row, owner, taken, size = complete(responses, 0, count, ring, oldest, next_txn, entry_ids, rows)
    return count, at, how, row, owner, taken, size


@njit("int64(int64[:, ::1], int64, int64)")
def oldest_of(ring, oldest, next_txn):
    """The first unanswered request, starting from one at or before it."""
    mask = len(ring) - 1
    while oldest < next_txn and not ring[oldest & mask, OWNER]:
        oldest += 1
    return oldest


@njit("Tuple((int64, int64))(int64[:, ::1], int64, int64, int64[::1], int64[::1])")
def give_up(ring, first, stop, owners, entry_ids):
    """Remove all requests from ``first`` to ``stop``, exclusive, from the ring. Returns their number and their
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
