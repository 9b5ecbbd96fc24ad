"""The index of runs, compared with a plain dictionary of entries, and the codec of entry logs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from campaigns import campaign_if
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.ledger.disk.index import EntryLocation, Index, SectionRuns, places_of
from fencepost.ledger.disk.sections import (
    ENTRY_HEADER,
    RUN,
    Contents,
    Run,
    Runs,
    Section,
    entries_of,
    entry_body,
    entry_bytes,
    layout,
    runs_of,
    section_at,
    section_header,
)

ids = st.lists(st.integers(0, 40) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=12, unique=True).map(sorted)
ledgers = st.integers(1, 3)
batches = st.lists(
    st.tuples(ledgers, st.dictionaries(ledgers, ids, max_size=3), st.lists(ledgers, max_size=1)), max_size=10
)


class Expected:
    """Entries in a dictionary, added and dropped one by one."""

    def __init__(self) -> None:
        self.places: dict[tuple[int, int], EntryLocation] = {}

    def drop(self, ledger: int) -> None:
        self.places = {key: place for key, place in self.places.items() if key[0] != ledger}

    def add(self, log: int, offset: int, ledger: int, entry_ids: list[int], sizes: list[int]) -> int:
        for entry_id, size in zip(entry_ids, sizes, strict=True):
            self.places[ledger, entry_id] = EntryLocation(log, offset, size + ENTRY_HEADER)
            offset += size + ENTRY_HEADER
        return offset

    def check(self, index: Index) -> None:
        for ledger in (1, 2, 3):
            of_ledger = {entry_id: place for (each, entry_id), place in self.places.items() if each == ledger}
            assert index.last(ledger) == max(of_ledger, default=None)
            assert [pair for located in index.runs(ledger) for pair in places_of(located)] == sorted(of_ledger.items())
            asked = sorted({*of_ledger, *range(-2, 42)})
            for entry_id in asked:
                assert index.find(ledger, entry_id) == of_ledger.get(entry_id)
                around = {each for located in index.runs(ledger, entry_id, entry_id) for each in located.run.ids}
                assert (entry_id in around) is (entry_id in of_ledger)
            rows = index.find_rows(np.full(len(asked), ledger), np.array(asked))
            assert [*zip(*rows, strict=True)] == [of_ledger.get(entry_id, (0, 0, 0)) for entry_id in asked]
        assert sorted(index.ledgers()) == sorted({ledger for ledger, _ in self.places})
        for log in (1, 2, 3):
            assert index.live[log] == sum(place.size for place in self.places.values() if place.log == log)


@example([(1, {1: [-(2**63) + 41]}, [])], False)
@given(batches, st.booleans())
def test_every_entry_is_found_where_it_was_put_last(
    steps: list[tuple[int, dict[int, list[int]], list[int]]], at_once: bool
) -> None:
    index, expected, offset = Index(), Expected(), 512
    sections = []
    for log, ids_of, forgotten in steps:
        for ledger in forgotten:
            expected.drop(ledger)
        start = offset
        runs: list[Run] = []
        for ledger, entry_ids in sorted(ids_of.items()):
            sizes = [(7 * nth if ledger < 3 else 9) for nth in range(len(entry_ids))]
            runs += runs_of(ledger, entry_ids, sizes)
            offset = expected.add(log, offset, ledger, entry_ids, sizes)
        sections.append(SectionRuns(log, start, Runs.of_bytes(Runs.of(runs).data), forgotten))
        if not at_once:
            index.load(sections)
            sections = []
            expected.check(index)
    index.load(sections)
    expected.check(index)


@pytest.mark.parametrize("seed", [3, *campaign_if(bool, range(3))])
def test_so_it_is_with_many_runs_that_are_copied_replaced_and_forgotten(seed: int) -> None:
    random, index, expected, offset = Random(seed), Index(), Expected(), 512
    for step in range(30):
        log, start = 1 + step // 10, offset
        runs: list[Run] = []
        for ledger in (1, 2, 3):
            if random.random() < 0.05:
                index.drop(ledger)
                expected.drop(ledger)
            begin, apart = int(random.random() * 2_000), 1 + int(random.random() ** 4 * 5)
            ids = [begin + apart * nth + (nth % 3 == 2) for nth in range(int(random.random() * 300))]
            ids = sorted(
                {*ids, *(entry_id for each, entry_id in expected.places if each == ledger and random.random() < 0.02)}
            )
            sizes = [int(random.random() ** 9 * 70_000) for _ in ids]
            runs += runs_of(ledger, ids, sizes)
            offset = expected.add(log, offset, ledger, ids, sizes)
        index.add(log, start, Runs.of(runs))
    expected.check(index)
    for ledger, entry_id in expected.places:
        assert index.find(ledger, entry_id) == expected.places[ledger, entry_id]
    expected.drop(1)
    index.drop(1)
    index.add(3, offset, Runs.of(runs_of(4, [1], [1])))
    index.drop(4)
    expected.check(index)


def test_entries_are_found_all_the_time_while_others_take_their_places() -> None:
    random, index, ended, missed = Random(9), Index(), threading.Event(), []
    index.add(1, 512, Runs.of(runs_of(1, list(range(1_000)), [10] * 1_000)))
    ledgers, entry_ids = np.ones(1_000, np.int64), np.arange(1_000)

    def read() -> None:
        while not ended.is_set():
            logs, _, _ = index.find_rows(ledgers, entry_ids)
            whole = {entry_id for located in index.runs(1) for entry_id in located.run.ids} == {*range(1_000)}
            if not logs.all() or index.find(1, 500) is None or index.last(1) != 999 or not whole:
                missed.append(logs)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for step in range(150):
        first = int(random.random() * 900)
        ids = list(range(first, first + 1 + int(random.random() * 99), 1 + step % 3))
        index.add(2 + step, 512, Runs.of(runs_of(1, ids, [10] * len(ids))))
    ended.set()
    for reader in readers:
        reader.join()
    assert not missed


def test_a_run_that_counts_no_more_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index()
    index.add(1, 512, Runs.of([*runs_of(1, [1, 2], [5, 5]), *runs_of(2, [1, 5], [5, 5])]))
    (table,) = index._tables
    found = {ledger: table.between(ledger, 0, 9) for ledger in (1, 2)}
    # as it was a moment before
    monkeypatch.setattr(type(table), "between", lambda table, ledger, first, last: found[ledger])
    table.end([0, 1])
    assert index.runs(1) == index.runs(2) == []


def test_an_index_takes_less_than_four_bytes_an_entry() -> None:
    random, index, offset = Random(5), Index(), 512
    for section in range(20):
        runs: list[Run] = []
        for ledger in range(500):
            ids = [nth // 2 * 3 + nth % 2 for nth in range(16 * section, 16 * section + 16)]
            runs += runs_of(ledger, ids, [20 + int(random.random() * 80) for _ in ids])
        index.add(1, offset, Runs.of(runs))
        offset += sum(run.size for run in runs)
    assert index.bytes < 4 * 20 * 500 * 16


def test_a_long_run_is_cut_into_some_that_are_short_enough() -> None:
    runs = list(runs_of(5, list(range(1_000)), [10] * 1_000))
    assert [len(run) for run in runs] == [RUN] * 7 + [1_000 - 7 * RUN]
    assert [entry_id for run in runs for entry_id in run.ids] == list(range(1_000))
    huge = list(runs_of(5, [1, 2, 3], [3 << 30, 3 << 30, 3 << 30]))
    assert [run.size for run in huge] == [(3 << 30) + ENTRY_HEADER] * 3


@given(ids, st.data())
def test_runs_are_read_back_as_they_were(entry_ids: list[int], data: st.DataObject) -> None:
    sizes = data.draw(
        st.lists(st.integers(0, 50) | st.integers(0, 1 << 31), min_size=len(entry_ids), max_size=len(entry_ids))
    )
    runs = list(runs_of(3, entry_ids, sizes))
    again = list(Runs.of_bytes(Runs.of(runs).data))
    assert [(each.ledger, [*each.ids], each.sizes) for each in again] == [
        (each.ledger, [*each.ids], each.sizes) for each in runs
    ]
    by_loops = Runs.of_rows(np.full(len(entry_ids), 3), np.array(entry_ids), np.array(sizes))
    assert by_loops.data == Runs.of(runs).data
    assert [entry_id for run in again for entry_id in run.ids] == entry_ids
    assert [size - ENTRY_HEADER for run in again for size in run.sizes] == sizes


def test_loops_lay_out_the_runs_of_many_ledgers_as_they_are_one_by_one() -> None:
    random = Random(6)
    runs: list[Run] = []
    rows: list[tuple[int, int, int]] = []
    for ledger in range(300):
        ids = sorted(
            {int(random.random() * 10 ** int(random.random() * 12)) - 5 for _ in range(int(random.random() * 400))}
        )
        sizes = [int(random.random() * 10 ** int(random.random() * 6)) for _ in ids]
        runs += runs_of(ledger, ids, sizes)
        rows += [(ledger, entry_id, size) for entry_id, size in zip(ids, sizes, strict=True)]
    assert Runs.of_rows(*(np.array(column) for column in zip(*rows, strict=True))).data == Runs.of(runs).data
    assert Runs.of_rows(*np.zeros((3, 0), np.int64)).data == b""


@given(st.binary(max_size=50), st.integers(min_value=0))
def test_an_entry_is_only_read_whole_and_as_itself(body: bytes, bit: int) -> None:
    data = entry_bytes(7, 9, body)
    assert entry_body(data, 7, 9) == body
    assert entry_body(data, 7, 8) is entry_body(data, 6, 9) is entry_body(data[:-1], 7, 9) is None
    damaged = bytearray(data)
    bit %= len(data) * 8
    damaged[bit // 8] ^= 1 << bit % 8
    assert entry_body(bytes(damaged), 7, 9) is None


def section(
    make: Callable[[Contents], Section] = lambda contents: layout(3, 512, 8, contents),
) -> tuple[Section, bytes]:
    bodies = {entry_id: b"x" * entry_id for entry_id in (1, 2, 5)}
    runs = list(runs_of(4, list(bodies), [len(body) for body in bodies.values()]))
    made = make(Contents(2, [1, 3], Runs.of(runs).data, [], [6]))
    return made, section_header(made) + b"".join(entry_bytes(4, entry_id, body) for entry_id, body in bodies.items())


def test_a_section_is_read_back_in_its_place_and_nowhere_else() -> None:
    made, data = section()
    assert section_at(data, 3, 512) == made
    assert section_at(data, 3, 1024) is section_at(data, 2, 512) is None
    ((offset, run),) = made.placed()
    assert list(entries_of(run, data[offset - made.offset :])) == [
        (entry_id, b"x" * entry_id) for entry_id in (1, 2, 5)
    ]
    for bit in range((made.entries - made.offset) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert section_at(bytes(damaged), 3, 512) is None
