"""The loops of the write cache: its hash table of entries, their layout for an entry log, and reads from one.

The table consists of rows and slots. A row has a ledger, an entry id, and the address and size of a body. Each new
entry adds a row, which never moves. A slot holds the number of a row plus one, or 0. A hash of ledger and entry id
chooses the slot, with open addressing. Nearby ids get nearby slots.

A row with entry id -1 belongs to the ledger. Instead of an address it has the ledger's last entry id.

Loops that change or search the table hold the GIL, which excludes one another, for some microseconds. All others
release it.
"""

from __future__ import annotations

from numba import types

from fencepost.files.loops import inner, njit
from fencepost.ledger.kernels import results
from fencepost.ledger.kernels import runs as _runs  # noqa: F401 - loaded together: these loops are used with those
from fencepost.ledger.kernels.entries import ENTRY_ID as INPUT_ENTRY_ID
from fencepost.ledger.kernels.entries import LEDGER as INPUT_LEDGER
from fencepost.ledger.kernels.entries import OFFSET as INPUT_OFFSET
from fencepost.ledger.kernels.entries import SIZE as INPUT_SIZE
from fencepost.ledger.kernels.native import address, copy_from, crc32c, load_int32, load_int64, store_int32, store_int64
from fencepost.ledger.rules.codes import Code

LEDGER, ENTRY_ID, ADDRESS, SIZE = range(4)
"""The columns of a row of the table."""
COLUMNS = 4

ROWS, ENTRIES = range(2)
"""The counts of a table: rows in use, and live entries."""

_OWN = -1
"""Instead of a size: the row belongs to a ledger."""
_GONE = -2
"""Instead of a size: the entry was dropped, or the ledger of a ledger's row."""
_LAST = -1
"""The entry id of a ledger's row."""
_STEP = 9
"""The probe step: odd, so that it reaches all slots, and larger than a group of neighbours."""

_MISS = results.MISS
_OK, _NO_ENTRY, _IO_ERROR = Code.OK.value, Code.NO_ENTRY.value, Code.IO_ERROR.value

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_BUFFER = types.Array(types.uint8, 1, "C")
_SLOTS = types.Array(types.int32, 1, "C")
_NUMBERS = types.Array(types.int64, 1, "C")
_CONST = types.Array(types.int64, 1, "C", readonly=True)
_ROWS = types.Array(types.int64, 2, "C")
_CONST_ROWS = types.Array(types.int64, 2, "C", readonly=True)
_INT = types.int64


# -- the table --------------------------------------------------------------------------------------------------------


@inner
def _first_slot(slots, seed, ledger, entry_id):
    """The first slot to probe for a key. ``seed`` differs in each process, so that nobody can choose keys that
    collide.
    """
    hashed = (ledger ^ seed) * -7046029254386353131
    hashed = ((hashed ^ (hashed >> 32)) + (entry_id >> 3)) * -4658895280553007687
    hashed = (hashed ^ (hashed >> 29)) * -7723592293110705685
    return ((hashed >> 20 << 3) + ((entry_id + (hashed >> 12)) & 7)) & (len(slots) - 1)


@inner
def _slot(slots, rows, seed, ledger, entry_id):
    """The slot that refers to the key's row, or the free slot for it."""
    at = _first_slot(slots, seed, ledger, entry_id)
    while True:
        row = slots[at] - 1
        if row < 0 or (rows[row, ENTRY_ID] == entry_id and rows[row, LEDGER] == ledger):
            return at
        at = (at + _STEP) & (len(slots) - 1)


@njit(_INT(_SLOTS, _ROWS, _NUMBERS, _INT, _BYTES, _CONST_ROWS, _INT), nogil=False)
def put(slots, rows, counts, seed, data, table, start):
    """Put the entries of an :class:`fencepost.ledger.kernels.entries.EntryRows` table from row ``start`` on. An entry
    with the same key is replaced. Returns the row at which it stopped: the end, or where the rows are full.
    """
    block = address(data)
    count, entries = counts[ROWS], counts[ENTRIES]
    own = -1
    at = start
    while at < len(table) and count + 2 <= len(rows):
        ledger, entry_id = table[at, INPUT_LEDGER], table[at, INPUT_ENTRY_ID]
        if own < 0 or rows[own, LEDGER] != ledger:
            slot = _slot(slots, rows, seed, ledger, _LAST)
            own = slots[slot] - 1
            if own < 0:
                own = count
                count += 1
                slots[slot] = count
                rows[own, LEDGER], rows[own, ENTRY_ID], rows[own, SIZE] = ledger, _LAST, _GONE
            if rows[own, SIZE] == _GONE:
                rows[own, ADDRESS], rows[own, SIZE] = entry_id, _OWN
        slot = _slot(slots, rows, seed, ledger, entry_id)
        row = slots[slot] - 1
        if row < 0:
            row = count
            count += 1
            rows[row, LEDGER], rows[row, ENTRY_ID], rows[row, SIZE] = ledger, entry_id, _GONE
            slots[slot] = count
        entries += rows[row, SIZE] == _GONE
        rows[row, ADDRESS], rows[row, SIZE] = block + table[at, INPUT_OFFSET], table[at, INPUT_SIZE]
        rows[own, ADDRESS] = max(rows[own, ADDRESS], entry_id)
        at += 1
    counts[ROWS], counts[ENTRIES] = count, entries
    return at


@njit(types.void(_SLOTS, _ROWS, _INT, _INT), nogil=False)
def place(slots, rows, count, seed):
    """Fill empty slots with the first ``count`` rows."""
    for row in range(count):
        at = _first_slot(slots, seed, rows[row, LEDGER], rows[row, ENTRY_ID])
        while slots[at]:
            at = (at + _STEP) & (len(slots) - 1)
        slots[at] = row + 1


@njit(_INT(_SLOTS, _ROWS, _INT, _INT, _INT), nogil=False)
def find(slots, rows, seed, ledger, entry_id):
    """The row of an entry, -1 if there is none."""
    row = slots[_slot(slots, rows, seed, ledger, entry_id)] - 1
    return row if row >= 0 and rows[row, SIZE] >= 0 else -1


@njit(_INT(_SLOTS, _ROWS, _INT, _INT), nogil=False)
def last(slots, rows, seed, ledger):
    """The last entry id of a ledger, -1 if it has none."""
    row = slots[_slot(slots, rows, seed, ledger, _LAST)] - 1
    return rows[row, ADDRESS] if row >= 0 and rows[row, SIZE] == _OWN else -1


@njit(_INT(_SLOTS, _ROWS, _INT, _CONST, _CONST, _ROWS), nogil=False)
def find_rows(slots, rows, seed, ledgers, entry_ids, table):
    """Look up the misses of a table of :class:`fencepost.ledger.kernels.results.LookupResults`; returns how many
    remain.
    """
    missing = 0
    for at in range(len(table)):
        if table[at, results.CODE] == _MISS:
            row = slots[_slot(slots, rows, seed, ledgers[at], entry_ids[at])] - 1
            if row >= 0 and rows[row, SIZE] >= 0:
                table[at, results.CODE] = _OK
                table[at, results.ADDRESS], table[at, results.SIZE] = rows[row, ADDRESS], rows[row, SIZE]
            else:
                missing += 1
    return missing


@njit(types.void(_ROWS, _NUMBERS, _INT), nogil=False)
def drop(rows, counts, ledger):
    """Drop the entries of a ledger. Their rows stay, unused."""
    for row in range(counts[ROWS]):
        if rows[row, LEDGER] == ledger:
            counts[ENTRIES] -= rows[row, SIZE] >= 0
            rows[row, SIZE] = _GONE


# -- entry logs -------------------------------------------------------------------------------------------------------

_HEADER = 24
"""Bytes of an entry in an entry log before its body: checksum and body size, 4 each; ledger and entry id, 8 each."""

FIRST, LOG, START, LENGTH, AT, READ = range(6)
"""The columns of a stretch, a part of an entry log read at once. First its entry, as an index into the order. Then the
entry log, the offset there, and the size. Then the offset in the buffer, and the bytes that could be read.
"""
STRETCH_COLUMNS = 6


@inner
def _follows(rows, one, other):
    """Whether row ``one`` has the same key as row ``other`` or a later one."""
    if rows[one, LEDGER] != rows[other, LEDGER]:
        return rows[one, LEDGER] > rows[other, LEDGER]
    return rows[one, ENTRY_ID] >= rows[other, ENTRY_ID]


@njit(types.UniTuple(_INT, 2)(_ROWS, _INT, _ROWS, _NUMBERS))
def sort(rows, count, orders, starts):
    """Sort the live entries of the first rows by ledger and id. Returns their number, and the index of the one of
    ``orders`` that holds the result.

    Entries are mostly sorted already, ledger by ledger. So this is a natural merge sort, which merges sorted stretches.
    ``starts`` needs room for one element per row and one more.
    """
    found_rows, stretches = 0, 0
    for row in range(count):
        if rows[row, SIZE] >= 0:
            if not found_rows or not _follows(rows, row, orders[0, found_rows - 1]):
                starts[stretches] = found_rows
                stretches += 1
            orders[0, found_rows] = row
            found_rows += 1
    starts[stretches] = found_rows
    side = 0
    while stretches > 1:
        source, target = orders[side], orders[1 - side]
        merged = 0
        for stretch in range(0, stretches, 2):
            at, middle = starts[stretch], starts[stretch + 1]
            end = starts[min(stretch + 2, stretches)]
            one, other = at, middle
            while one < middle and other < end:
                if _follows(rows, source[other], source[one]):
                    target[at] = source[one]
                    one += 1
                else:
                    target[at] = source[other]
                    other += 1
                at += 1
            while one < middle:
                target[at] = source[one]
                one += 1
                at += 1
            while other < end:
                target[at] = source[other]
                other += 1
                at += 1
            starts[merged] = starts[stretch]
            merged += 1
        starts[merged] = found_rows
        stretches = merged
        side = 1 - side
    return found_rows, side


@njit(types.void(_ROWS, _CONST, _NUMBERS, _NUMBERS, _NUMBERS))
def columns(rows, order, ledgers, entry_ids, sizes):
    """Copy the ledgers, ids and sizes of entries, in order."""
    for at in range(len(order)):
        row = order[at]
        ledgers[at], entry_ids[at], sizes[at] = rows[row, LEDGER], rows[row, ENTRY_ID], rows[row, SIZE]


@njit(types.UniTuple(_INT, 2)(_ROWS, _CONST, _INT, _BUFFER))
def lay_out(rows, order, start, buffer):
    """Write entries in the format of an entry log into a buffer, from index ``start`` of the order, as many as fit.

    Returns the index of the next entry, and the bytes written: 0 if the first entry does not fit.
    """
    at = 0
    while start < len(order):
        row = order[start]
        size = rows[row, SIZE]
        end = at + _HEADER + size
        if end > len(buffer):
            break
        store_int32(buffer, at + 4, size)
        store_int64(buffer, at + 8, rows[row, LEDGER])
        store_int64(buffer, at + 16, rows[row, ENTRY_ID])
        copy_from(buffer, at + _HEADER, rows[row, ADDRESS], size)
        store_int32(buffer, at, crc32c(buffer, at + 4, end, 0))
        at = end
        start += 1
    return start, at


@njit(_INT(_CONST_ROWS, _NUMBERS))
def find_missing(table, asked):
    """Collect the rows of a table of :class:`fencepost.ledger.kernels.results.LookupResults` to look up in entry logs:
    each ``MISS`` with an id. Returns their number.
    """
    count = 0
    for row in range(len(table)):
        if table[row, results.CODE] == _MISS and table[row, results.ENTRY_ID] >= 0:
            asked[count] = row
            count += 1
    return count


@njit(types.Tuple((_INT, _INT, types.boolean))(_ROWS, _CONST, _CONST, _CONST, _CONST, _INT, _NUMBERS))
def choose(table, asked, logs, offsets, sizes, most, order):
    """Choose which entries of the rows ``asked`` to read. An entry whose location is all 0 does not exist, and its row
    gets ``NO_ENTRY``.

    Returns the number of valid rows of the table (all, or as many as it takes for ``most`` bytes of bodies), the number
    of entries to read, and whether they are sorted by location. ``order`` gets their indices in ``asked``.
    """
    place, chosen, before, in_order = 0, 0, -1, True
    for row in range(len(table)):
        most -= table[row, results.SIZE]
        if place < len(asked) and asked[place] == row:
            most -= sizes[place]
            if not logs[place]:
                table[row, results.CODE] = _NO_ENTRY
            else:
                order[chosen] = place
                chosen += 1
                if before >= 0:
                    forward = (
                        offsets[place] >= offsets[before] if logs[place] == logs[before] else logs[place] > logs[before]
                    )
                    in_order = in_order and forward
                before = place
            place += 1
        if most <= 0:
            return row + 1, chosen, in_order
    return len(table), chosen, in_order


@njit(types.UniTuple(_INT, 2)(_CONST, _CONST, _CONST, _CONST, _INT, _INT, _ROWS))
def find_stretches(logs, offsets, sizes, order, most, gap, stretches):
    """Combine entries, sorted by entry log and offset, into stretches. Gaps have at most ``gap`` bytes, and a stretch
    at most ``most`` unless an entry is larger. Returns the number of stretches and their bytes.
    """
    count, end, total = 0, 0, 0
    for at in range(len(order)):
        row = order[at]
        log, start, stop = logs[row], offsets[row], offsets[row] + sizes[row]
        if (
            at
            and log == stretches[count - 1, LOG]
            and start - end <= gap
            and stop - stretches[count - 1, START] <= most
        ):
            end = max(end, stop)
        else:
            end = stop
            stretches[count, FIRST], stretches[count, LOG] = at, log
            stretches[count, START], stretches[count, AT], stretches[count, READ] = start, total, 0
            count += 1
        stretches[count - 1, LENGTH] = end - stretches[count - 1, START]
        total = stretches[count - 1, AT] + stretches[count - 1, LENGTH]
    return count, total


@njit(_INT(_BUFFER, _CONST_ROWS, _CONST, _CONST, _CONST, _CONST, _CONST, _CONST, _ROWS))
def check_entries(buffer, stretches, offsets, sizes, order, asked, ledgers, entry_ids, table):
    """Verify the entries in stretches that were read, against their keys and checksums, and fill in the rows ``asked``
    of a table of :class:`fencepost.ledger.kernels.results.LookupResults`. ``ledgers`` and ``entry_ids`` have one
    element per row of the table. Returns the number of errors.
    """
    block = address(buffer)
    errors = 0
    for stretch in range(len(stretches)):
        stop = stretches[stretch + 1, FIRST] if stretch + 1 < len(stretches) else len(order)
        for place in range(stretches[stretch, FIRST], stop):
            row = asked[order[place]]
            start = offsets[order[place]] - stretches[stretch, START]
            size = sizes[order[place]] - _HEADER
            at = stretches[stretch, AT] + start
            is_whole = (
                size >= 0
                and start + _HEADER + size <= stretches[stretch, READ]
                and load_int32(buffer, at + 4) == size
                and load_int64(buffer, at + 8) == ledgers[row]
                and load_int64(buffer, at + 16) == entry_ids[row]
                and load_int32(buffer, at) & 0xFFFFFFFF == crc32c(buffer, at + 4, at + _HEADER + size, 0)
            )
            if is_whole:
                table[row, results.CODE], table[row, results.ADDRESS], table[row, results.SIZE] = (
                    _OK,
                    block + at + _HEADER,
                    size,
                )
            else:
                table[row, results.CODE] = _IO_ERROR
                errors += 1
    return errors
