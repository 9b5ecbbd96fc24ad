"""The write cache of rows, compared with its plain twin: puts, drops, lookups, and the bytes for an entry log."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.ledger.disk import write_cache
from fencepost.ledger.disk.entry_logs import PIECE
from fencepost.ledger.disk.sections import RUN
from fencepost.ledger.disk.write_cache import PlainWriteCache, RowsWriteCache, WriteCache
from fencepost.ledger.kernels import entries, results
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.kernels.results import MISS, LookupResults
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.rules.codes import Code

Entry = tuple[int, int, bytes]

LEDGERS = [0, 1, 2, 2**63 - 1]
ids = st.integers(0, 12) | st.integers(0, 5).map(lambda nth: 8 * nth) | st.integers(0, 2**63 - 1)
some_entries = st.lists(st.tuples(st.sampled_from(LEDGERS), ids, st.binary(max_size=20)), max_size=12)
steps = st.lists(
    st.tuples(st.sampled_from(["put", "put_rows"]), some_entries)
    | st.tuples(st.just("drop"), st.sampled_from(LEDGERS)),
    max_size=8,
)


def as_rows(given_entries: list[Entry]) -> EntryRows:
    """Rows as they are journalled: each with something before it."""
    table, data = np.zeros((len(given_entries), entries.COLUMNS), np.int64), b""
    for row, (ledger, entry_id, body) in enumerate(given_entries):
        data += b"before"
        table[row] = ledger, entry_id, -1, len(data), len(body)
        data += body
    return EntryRows(np.frombuffer(data, np.uint8), table)


def carry_out(cache: WriteCache, step: str, what: list[Entry] | int) -> None:
    if isinstance(what, int):
        cache.drop(what)
    elif step == "put":
        for entry in what:
            cache.put(*entry)
    else:
        cache.put_rows(as_rows(what))


def look_up(cache: WriteCache, keys: list[tuple[int, int]]) -> list[bytes | None]:
    table = np.zeros((len(keys), results.COLUMNS), np.int64)
    table[:, results.CODE] = MISS
    table[:, results.ENTRY_ID] = [entry_id for _, entry_id in keys]
    ledgers, entry_ids = (np.array([key[n] for key in keys], np.int64) for n in (0, 1))
    rows = LookupResults(table, cache.find(ledgers, entry_ids, table))
    assert {*table[:, results.CODE].tolist()} <= {MISS, Code.OK.value}
    assert table[:, results.ENTRY_ID].tolist() == entry_ids.tolist()
    return [rows.body(row) if table[row, results.CODE] == Code.OK.value else None for row in range(len(rows))]


def written(cache: WriteCache) -> bytes:
    entries, room, found = cache.in_order(), np.empty(1 << 12, np.uint8), b""
    while size := entries.fill(room):
        found += room[:size].tobytes()
    return found


def check_alike(rows: WriteCache, plain: WriteCache) -> None:
    assert len(rows) == len(plain)
    assert sorted(rows.ledgers()) == sorted(plain.ledgers())
    keys = [(ledger, entry_id) for ledger in LEDGERS for entry_id in {*plain.ids(ledger), -1, 3, 40, 2**62}]
    for ledger in LEDGERS:
        assert sorted(rows.ids(ledger)) == sorted(plain.ids(ledger))
        assert rows.last(ledger) == plain.last(ledger)
    expected = [plain.get(*key) for key in keys]
    assert [rows.get(*key) for key in keys] == look_up(rows, keys) == look_up(plain, keys) == expected
    in_rows, in_order = rows.in_order(), plain.in_order()
    assert written(rows) == written(plain)
    cut, cut_plain = in_rows.runs(), in_order.runs()
    assert [entry_id for run in cut for entry_id in run.ids] == [entry_id for run in cut_plain for entry_id in run.ids]
    assert sum(run.size for run in cut) == sum(run.size for run in cut_plain)
    assert all(len(run) <= RUN for run in cut)
    if all(entry_id < 2**31 for _, entry_id in keys[:-1]):
        assert cut == cut_plain


@given(steps)
def test_rows_are_as_objects(done: list[tuple[str, list[Entry] | int]]) -> None:
    rows, plain = RowsWriteCache(), PlainWriteCache()
    for step, what in done:
        carry_out(rows, step, what)
        carry_out(plain, step, what)
    check_alike(rows, plain)


@pytest.mark.parametrize("stride", [1, 3, 8, 1 << 20])
def test_a_table_grows(monkeypatch: pytest.MonkeyPatch, stride: int) -> None:
    monkeypatch.setattr(write_cache, "_FEWEST", 4)
    rows, plain = RowsWriteCache(), PlainWriteCache()
    for number in range(0, 3_000, 100):
        some = [(each % 3, each * stride, b"%d" % each) for each in range(number, number + 100)]
        rows.put_rows(as_rows(some))
        plain.put_rows(as_rows(some))
    rows.drop(2)
    plain.drop(2)
    check_alike(rows, plain)


@pytest.mark.parametrize("make", [RowsWriteCache, PlainWriteCache])
def test_memory_is_counted_that_is_held(make: Callable[[], WriteCache]) -> None:
    cache = make()
    cache.put_rows(as_rows([(1, entry_id, b"x" * 1_000) for entry_id in range(100)]))
    assert 100_000 < cache.size < 125_000
    for entry_id in range(100):
        cache.put(1, entry_id, b"%1000d" % entry_id)
    assert 200_000 < cache.size < 240_000


def test_parts_of_one_block_are_counted_as_that_block() -> None:
    whole = as_rows([(1, entry_id, b"x" * 1_000) for entry_id in range(100)])
    cache = RowsWriteCache()
    data = whole.data.copy()
    for first in range(0, 100, 10):
        cache.put_rows(EntryRows(data[:], whole.table[first : first + 10]))
    assert 100_000 < cache.size < 110_000


def test_an_entry_that_is_larger_than_a_piece_is_written_whole() -> None:
    large = b"x" * (PIECE + 7)
    rows, plain = RowsWriteCache(), PlainWriteCache()
    for cache in (rows, plain):
        cache.put_rows(as_rows([(1, 0, b"small"), (1, 1, large), (2, 0, b"small")]))
    assert written(rows) == written(plain)


def test_what_was_found_stays_though_it_is_replaced_and_the_cache_is_gone() -> None:
    cache = RowsWriteCache()
    cache.put_rows(as_rows([(1, 0, b"first"), (1, 1, b"other")]))
    table = np.array([[MISS, 0, 0, 0]])
    rows = LookupResults(table, cache.find(np.array([1]), np.array([0]), table))
    cache.put(1, 0, b"second")
    cache.drop(1)
    del cache
    assert rows.body(0) == b"first"


def test_records_of_a_journal_are_put_as_they_lie_there() -> None:
    from fencepost.ledger.disk.records import encode

    record = EntryAdded(5, 6, 4, b"body of it")
    data = encode(record)
    rows = EntryRows(np.frombuffer(data, np.uint8), np.array([[5, 6, 4, len(data) - 10, 10]]))
    cache = RowsWriteCache()
    cache.put_rows(rows)
    assert rows.body(0) == cache.get(5, 6) == b"body of it"


def test_the_next_cache_has_room_for_what_the_one_before_had() -> None:
    before = RowsWriteCache()
    before.put_rows(as_rows([(ledger, 0, b"") for ledger in range(3_000)]))
    after = write_cache.write_cache(True, before)
    assert isinstance(after, RowsWriteCache)
    room = len(after._table[1])
    after.put_rows(as_rows([(ledger, 0, b"") for ledger in range(3_000)]))
    assert len(after._table[1]) == room
    assert isinstance(write_cache.write_cache(True, PlainWriteCache()), RowsWriteCache)
    assert isinstance(write_cache.write_cache(False, before), PlainWriteCache)
