"""The loops of a bookie: parsing frames, grouping adds by ledger, and writing journal records and answers.

Importing this module compiles it, or loads it from the cache: :mod:`fencepost.ledger.kernels.ready` takes care of that.
Each loop is compiled for the types in its signature only, and rejects others. Loops check no bounds except where they
say so.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fencepost.files.loops import inner, njit
from fencepost.ledger.kernels.entries import COLUMNS as ENTRY_COLUMNS
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.kernels.fields import put_varint, read_number, varint
from fencepost.ledger.kernels.native import copy, copy_from, load_int32, load_int64, store_int32, store_int64
from fencepost.ledger.kernels.results import ADDRESS as FOUND_ADDRESS
from fencepost.ledger.kernels.results import CODE as FOUND_CODE
from fencepost.ledger.kernels.results import MISS
from fencepost.ledger.kernels.results import SIZE as FOUND_SIZE

KIND, TXN, LEDGER, ENTRY_ID, LAC, FLAGS, BODY, SIZE, KEY, KEY_SIZE, FRAME, FRAME_SIZE = range(12)
"""The columns of a request: its kind, its fields, and the offsets and sizes of its body, master key and payload."""
COLUMNS = 12

OTHER, ADD, READ = range(3)
"""Kinds of requests. Anything but a plain add or read, encoded as all clients do, is OTHER and has only the payload's
columns: the codecs of :mod:`fencepost.ledger.wire` decode it.
"""

RECOVERY, DEFERRED_SYNC = 1, 2
"""The flags of an add."""

COMPLETE, PARTIAL, REFUSED = range(3)
"""How parsing stopped: at the end of a frame or of the table, inside a frame, or at an unacceptable length."""

(
    GROUP_LEDGER,
    GROUP_FLAGS,
    GROUP_KEY,
    GROUP_KEY_SIZE,
    GROUP_LAC,
    GROUP_LOW,
    GROUP_HIGH,
    GROUP_START,
    GROUP_STOP,
    GROUP_BYTES,
) = range(10)
"""The columns of a group of requests of one ledger: its common fields, the highest LAC, the lowest and highest id, its
range of rows, and the bytes of all bodies.
"""
GROUP_COLUMNS = 10

ANSWER = 80
"""The most bytes in the frame of an answer, besides the body of an entry."""
RECORD = 29
"""Bytes of an entry's journal record besides its body; the length before the record is included."""

_IDS = 24
_LAST_ENTRY = (1 << 63) - 2
_SPREAD = -7046029254386353131
"""An odd multiplier that spreads a number over all bits (the golden ratio)."""


# -- requests ---------------------------------------------------------------------------------------------------------


@inner
def _header(data, at, stop, operation):
    """The request number, and the end of the header; -1 if it is not the header of this operation."""
    if stop - at < 8 or data[at] != 0x0A or data[at + 2] != 0x08 or data[at + 3] != 3 or data[at + 4] != 0x10:
        return np.int64(0), np.int64(-1)
    if data[at + 5] != operation or data[at + 6] != 0x18:
        return np.int64(0), np.int64(-1)
    end = at + 2 + np.int64(data[at + 1])
    txn, after = varint(data, at + 7, stop)
    if 0 <= after < end and end <= stop and data[after] == 0x20:
        _, after = varint(data, after + 1, end)  # a priority, which is ignored
    return txn, after if after == end else np.int64(-1)


@inner
def _part(data, at, stop, tag):
    """Where the request's part with this tag begins, which must fill the rest of the frame; -1 otherwise."""
    if at < 0 or stop - at < 4 or data[at] != tag or data[at + 1] != 0x06:
        return np.int64(-1)
    size, start = varint(data, at + 2, stop)
    return start if start >= 0 and start + size == stop else np.int64(-1)


@inner
def _bytes(data, at, stop, tag):
    """The start and end of the bytes of a field; -1 if it is another field."""
    size, start = read_number(data, at, stop, tag)
    if start < 0 or size > stop - start:
        return np.int64(-1), np.int64(-1)
    return start, start + size


@inner
def _take_add(data, start, stop, table, row):
    """Parse an add of version 3 into a row; returns whether it is one."""
    txn, at = _header(data, start, stop, 2)
    at = _part(data, at, stop, 0xAA)
    ledger, at = read_number(data, at, stop, 0x08)
    entry_id, at = read_number(data, at, stop, 0x10)
    key, key_end = _bytes(data, at, stop, 0x1A)
    body, end = _bytes(data, key_end, stop, 0x22)
    if end < 0 or key == key_end or entry_id > _LAST_ENTRY or end - body < _IDS:
        return False
    if load_int64(data, body) != ledger or load_int64(data, body + 8) != entry_id:
        return False
    flags, after = np.int64(0), end
    if after < stop and data[after] == 0x28:
        write_flags, after = read_number(data, after, stop, 0x28)
        if write_flags > 1:
            return False
        flags |= write_flags * DEFERRED_SYNC
    if after >= 0 and stop - after == 3 and data[after] == 0xA0 and data[after + 1] == 0x06 and data[after + 2] == 1:
        flags |= RECOVERY
        after += 3
    if after != stop:
        return False
    table[row, KIND], table[row, TXN], table[row, LEDGER], table[row, ENTRY_ID] = ADD, txn, ledger, entry_id
    table[row, LAC], table[row, FLAGS] = load_int64(data, body + 16), flags
    table[row, BODY], table[row, SIZE], table[row, KEY], table[row, KEY_SIZE] = body, end - body, key, key_end - key
    return True


@inner
def _take_read(data, start, stop, table, row):
    """Parse a read of version 3 into a row; returns whether it is one."""
    txn, at = _header(data, start, stop, 1)
    at = _part(data, at, stop, 0xA2)
    ledger, at = read_number(data, at, stop, 0x08)
    entry_id, at = read_number(data, at, stop, 0x10)
    if at != stop:
        return False
    table[row, KIND], table[row, TXN], table[row, LEDGER], table[row, ENTRY_ID] = READ, txn, ledger, entry_id
    return True


@inner
def _take_version_2(data, start, stop, table, row):
    """Parse an add or a read of version 2 into a row; returns whether it is one."""
    size = stop - start
    if size < 20 or data[start] != 2:
        return False
    flags = np.int64(data[start + 3])
    if data[start + 1] == 1 and size >= 24 + _IDS:
        body = start + 24
        ledger, entry_id = load_int64(data, body), load_int64(data, body + 8)
        if ledger < 0 or entry_id < 0 or entry_id > _LAST_ENTRY:
            return False
        table[row, KIND], table[row, TXN], table[row, LEDGER], table[row, ENTRY_ID] = ADD, 0, ledger, entry_id
        table[row, LAC], table[row, FLAGS] = load_int64(data, body + 16), RECOVERY if flags & 2 else 0
        table[row, BODY], table[row, SIZE], table[row, KEY], table[row, KEY_SIZE] = body, stop - body, start + 4, 20
        return True
    if data[start + 1] == 2 and not flags & 1:
        ledger, entry_id = load_int64(data, start + 4), load_int64(data, start + 12)
        if ledger < 0 or entry_id < 0:
            return False
        table[row, KIND], table[row, TXN], table[row, LEDGER], table[row, ENTRY_ID] = READ, 0, ledger, entry_id
        return True
    return False


@njit("Tuple((int64, int64, int64))(uint8[::1], int64, int64, int64, int64, int64[:, ::1])")
def parse(data, start, stop, limit, version, table):
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
        table[row, FRAME], table[row, FRAME_SIZE] = payload, size
        if version == 2:
            is_taken = _take_version_2(data, payload, end, table, row)
        elif size > 5 and data[payload + 5] == 2:
            is_taken = _take_add(data, payload, end, table, row)
        else:
            is_taken = _take_read(data, payload, end, table, row)
        if not is_taken:
            table[row, KIND] = OTHER
        row += 1
        at = end
    return row, at, COMPLETE


@njit("int64(int64[:, ::1], int64, int64)")
def stretch(table, first, count):
    """The end of the requests of one kind that begin at the row ``first``."""
    row = first + 1
    while row < count and table[row, KIND] == table[first, KIND]:
        row += 1
    return row


@njit("boolean(int64[:, ::1], int64, int64)")
def is_one_ledger(table, first, stop):
    """Whether the requests from row ``first`` to ``stop`` are of one ledger."""
    for row in range(first + 1, stop):
        if table[row, LEDGER] != table[first, LEDGER]:
            return False
    return True


# -- groups -----------------------------------------------------------------------------------------------------------


@inner
def _is_same(data, table, row, groups, group):
    """Whether a request has the key and the flags of its ledger's group."""
    size, one, other = groups[group, GROUP_KEY_SIZE], table[row, KEY], groups[group, GROUP_KEY]
    if table[row, FLAGS] != groups[group, GROUP_FLAGS] or table[row, KEY_SIZE] != size:
        return False
    for byte in range(size):
        if data[one + byte] != data[other + byte]:
            return False
    return True


@inner
def _slot(ledger, slots, groups, seed):
    """The hash slot of a ledger's group, or the free slot for it. ``seed`` differs in each process, so that nobody can
    choose ledgers that collide.
    """
    mask = len(slots) - 1
    hashed = (ledger ^ seed) * _SPREAD
    hashed = (hashed ^ (hashed >> 32)) * _SPREAD
    slot = (hashed >> 32) & mask
    while slots[slot] >= 0 and groups[slots[slot], GROUP_LEDGER] != ledger:
        slot = (slot + 1) & mask
    return slot


@njit(
    "UniTuple(int64, 2)(uint8[::1], int64[:, ::1], int64, int64, int64, int64[::1], int64[:, ::1], int64[::1],"
    " int64[::1])"
)
def group(data, table, first, stop, seed, slots, groups, places, order):
    """Group adds by ledger, ordered by the first of each. Returns the number of groups, and the row at which it
    stopped.

    It stops at the first add whose key or flags differ from earlier ones of its ledger, or at ``stop``. ``slots``: a
    power of two, at least twice the number of adds, all -1 before and after. ``seed``: any number. ``groups``: room for
    one per add. ``places`` and ``order``: one element per add; ``order`` gets the rows, group by group.
    """
    count, last = np.int64(0), np.int64(0)
    row = first
    while row < stop:
        if not count or table[row, LEDGER] != groups[last, GROUP_LEDGER]:
            slot = _slot(table[row, LEDGER], slots, groups, seed)
            last = slots[slot]
            if last < 0:
                last = slots[slot] = count
                count += 1
                groups[last, GROUP_LEDGER], groups[last, GROUP_FLAGS] = table[row, LEDGER], table[row, FLAGS]
                groups[last, GROUP_KEY], groups[last, GROUP_KEY_SIZE] = table[row, KEY], table[row, KEY_SIZE]
                groups[last, GROUP_LAC], groups[last, GROUP_STOP], groups[last, GROUP_BYTES] = table[row, LAC], 0, 0
                groups[last, GROUP_LOW] = groups[last, GROUP_HIGH] = table[row, ENTRY_ID]
        if not _is_same(data, table, row, groups, last):
            break
        places[row - first] = last
        groups[last, GROUP_STOP] += 1
        groups[last, GROUP_BYTES] += table[row, SIZE]
        groups[last, GROUP_LAC] = max(groups[last, GROUP_LAC], table[row, LAC])
        groups[last, GROUP_LOW] = min(groups[last, GROUP_LOW], table[row, ENTRY_ID])
        groups[last, GROUP_HIGH] = max(groups[last, GROUP_HIGH], table[row, ENTRY_ID])
        row += 1
    start = np.int64(0)
    for each in range(count - 1, -1, -1):  # last first: a group's probe sequence only passes slots of earlier groups
        slots[_slot(groups[each, GROUP_LEDGER], slots, groups, seed)] = -1
    for each in range(count):
        size = groups[each, GROUP_STOP]
        groups[each, GROUP_START] = groups[each, GROUP_STOP] = start
        start += size
    for each in range(first, row):
        into = places[each - first]
        order[groups[into, GROUP_STOP]] = each
        groups[into, GROUP_STOP] += 1
    return count, row


@njit("void(int64[:, ::1], int64[::1], int64[:, ::1])")
def ids(table, order, into):
    """Copy the numbers, entry ids and ledgers of requests, in an order, into three columns."""
    for place in range(len(order)):
        row = order[place]
        into[place, 0], into[place, 1], into[place, 2] = table[row, TXN], table[row, ENTRY_ID], table[row, LEDGER]


# -- the journal ------------------------------------------------------------------------------------------------------


@njit("void(uint8[::1], int64[:, ::1], int64[::1], uint8[::1], int64[:, ::1])")
def _lay_out(data, table, order, records, entries):
    """Write the journal records of entries, and a row for each
    (:class:`fencepost.ledger.kernels.entries.EntryRows`).
    """
    at = np.int64(0)
    for place in range(len(order)):
        row = order[place]
        body, size = table[row, BODY], table[row, SIZE]
        store_int32(records, at, RECORD - 4 + size)
        records[at + 4] = 0
        copy(records, at + 5, data, body, _IDS)
        copy(records, at + RECORD, data, body, size)
        entries[place, 0], entries[place, 1], entries[place, 2] = (
            table[row, LEDGER],
            table[row, ENTRY_ID],
            table[row, LAC],
        )
        entries[place, 3], entries[place, 4] = at + RECORD, size
        at += RECORD + size


def lay_out(
    data: NDArray[np.uint8], table: NDArray[np.int64], order: NDArray[np.int64], size: int, recovery: bool
) -> EntryRows:
    """The entries of adds in the format of the journal. ``size``: the bytes of all bodies. ``recovery``: some come from
    a recovery.
    """
    count = len(order)
    rows = EntryRows(np.empty(size + RECORD * count, np.uint8), np.empty((count, ENTRY_COLUMNS), np.int64), recovery)
    _lay_out(data, table, order, rows.data, rows.table)
    return rows


# -- answers ----------------------------------------------------------------------------------------------------------


@inner
def _put_header(out, at, operation, txn, code):
    """Write the header and the status of an answer of version 3; returns the end."""
    out[at], out[at + 2], out[at + 3], out[at + 4], out[at + 5], out[at + 6] = 0x0A, 0x08, 3, 0x10, operation, 0x18
    end = put_varint(out, at + 7, txn)
    out[at + 1] = end - at - 2
    out[end] = 0x10
    return put_varint(out, end + 1, code)


@inner
def _put_ids(out, at, ledger, entry_id, code):
    """Write the status, ledger and entry id in the body of an answer of version 3; returns the end."""
    out[at] = 0x08
    at = put_varint(out, at + 1, code)
    out[at] = 0x10
    at = put_varint(out, at + 1, ledger)
    out[at] = 0x18
    return put_varint(out, at + 1, entry_id)


@njit("int64(uint8[::1], int64, int64[:, ::1], int64, int64, int64)")
def answer_adds(out, at, requests, ledger, code, version):
    """Write the answers to adds of one ledger that all got one code, in either version; returns the end.

    ``requests``: from :func:`ids`. ``out``: room for ``ANSWER`` bytes per add.
    """
    for row in range(len(requests)):
        txn, entry_id = requests[row, 0], requests[row, 1]
        if version == 2:
            store_int32(out, at, 24)
            store_int32(out, at + 4, 2 << 24 | 1 << 16)
            store_int32(out, at + 8, code)
            store_int64(out, at + 12, ledger)
            store_int64(out, at + 20, entry_id)
            at += 28
            continue
        part = _put_header(out, at + 4, 2, txn, code)
        out[part], out[part + 1] = 0xAA, 0x06
        end = _put_ids(out, part + 3, ledger, entry_id, code)
        out[part + 2] = end - part - 3
        store_int32(out, at, end - at - 4)
        at = end
    return at


@njit("int64(int64[:, ::1], int64)")
def fitting(found, room):
    """How many of the first results to take for ``room`` bytes of bodies; the last may exceed it."""
    for row in range(len(found)):
        room -= found[row, FOUND_SIZE]
        if room <= 0:
            return row + 1
    return len(found)


@njit("UniTuple(int64, 5)(int64[:, ::1], int64[:, ::1])")
def look_over(requests, found):
    """The lowest and highest id of reads, the bytes of all bodies, the number of misses, and whether all reads are of
    one ledger and got one code. There must be at least one.
    """
    low = high = requests[0, 1]
    size, missing, is_one = np.int64(0), np.int64(0), np.int64(1)
    for row in range(len(requests)):
        low, high = min(low, requests[row, 1]), max(high, requests[row, 1])
        size += found[row, FOUND_SIZE]
        missing += found[row, FOUND_CODE] == MISS
        if found[row, FOUND_CODE] != found[0, FOUND_CODE] or requests[row, 2] != requests[0, 2]:
            is_one = np.int64(0)
    return low, high, size, missing, is_one


@inner
def _size_of_varint(value):
    size = np.int64(1)
    while value > 127:
        size += 1
        value >>= 7
    return size


@njit("int64(uint8[::1], int64, int64[:, ::1], int64[::1], int64[:, ::1], int64, int64, int64, int64[::1])")
def answer_reads(out, at, requests, places, found, code, lac, version, cuts):
    """Write the answers to reads that all got one code, in either version; returns the end.

    ``requests``: from :func:`ids`. ``places``: the indices of these reads. ``found``: a table of
    :class:`fencepost.ledger.kernels.results.LookupResults`, whose bodies are sent if the code is OK. ``lac``: the
    ledgers' LAC, -1 for none. ``out``: room for ``ANSWER`` bytes per read, and for the bodies. ``cuts``: if it has one
    element per read, the bodies are left out, and it gets the offsets where they belong.
    """
    is_whole = len(cuts) == 0
    for which in range(len(places)):
        row = places[which]
        txn, entry_id, ledger = requests[row, 0], requests[row, 1], requests[row, 2]
        size = found[row, FOUND_SIZE] if code == 0 else 0
        if version == 2:
            store_int32(out, at, 24 + size)
            store_int32(out, at + 4, 2 << 24 | 2 << 16)
            store_int32(out, at + 8, code)
            store_int64(out, at + 12, ledger)
            store_int64(out, at + 20, entry_id)
            at += 28
            if not is_whole:
                cuts[which] = at
            elif code == 0:
                copy_from(out, at, found[row, FOUND_ADDRESS], size)
                at += size
            continue
        part = _put_header(out, at + 4, 1, txn, code)
        out[part], out[part + 1] = 0xA2, 0x06
        length = 3 + _size_of_varint(code) + _size_of_varint(ledger) + _size_of_varint(entry_id)
        if code == 0:
            length += 1 + _size_of_varint(size) + size
        if lac >= 0:
            length += 1 + _size_of_varint(lac)
        end = _put_ids(out, put_varint(out, part + 2, length), ledger, entry_id, code)
        if code == 0:
            out[end] = 0x22
            end = put_varint(out, end + 1, size)
            if is_whole:
                copy_from(out, end, found[row, FOUND_ADDRESS], size)
                end += size
        if not is_whole:
            cuts[which] = end
        if lac >= 0:
            out[end] = 0x28
            end = put_varint(out, end + 1, lac)
        store_int32(out, at, end - at - 4 + (0 if is_whole else size))
        at = end
    return at
