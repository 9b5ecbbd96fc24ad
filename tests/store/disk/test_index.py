"""The index of runs against a plain dictionary of entries, on both of its maps; and the codec of entry logs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.store.disk.index import Index, MemoryMap, OrderedMap, Place, places_of
from fencepost.store.disk.journal import Damage
from fencepost.store.disk.lmdb_map import LmdbMap
from fencepost.store.disk.sections import (
    ENTRY_HEADER,
    RUN,
    Contents,
    Section,
    entries_of,
    entry_body,
    entry_bytes,
    laid_out,
    runs_of,
    section_at,
    section_header,
)

ids = st.lists(st.integers(0, 40) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=12, unique=True).map(sorted)
batches = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), ids), max_size=10)


def check_against_a_dictionary(places: OrderedMap, steps: list[tuple[int, int, list[int]]]) -> None:
    index, known = Index(places), dict[tuple[int, int], Place]()
    offsets = count(512, 10_000)
    for log, ledger, entry_ids in steps:
        if ledger == 0:
            index.drop(log)
            known = {key: place for key, place in known.items() if key[0] != log}
            continue
        offset = next(offsets)
        sizes = [7 * nth for nth in range(len(entry_ids))]
        placed = []
        for run in runs_of(ledger, entry_ids, sizes):
            placed.append((offset, run))
            offset += run.size
        index.add(log, placed)
        offset = placed[0][0]
        for entry_id, size in zip(entry_ids, sizes, strict=True):
            known[ledger, entry_id] = Place(log, offset, size + ENTRY_HEADER)
            offset += size + ENTRY_HEADER
    for ledger in (1, 2, 3):
        of_ledger = {entry_id: place for (each, entry_id), place in known.items() if each == ledger}
        assert index.last(ledger) == max(of_ledger, default=None)
        assert [pair for located in index.runs(ledger) for pair in places_of(located)] == sorted(of_ledger.items())
        asked = sorted({*of_ledger, *range(-2, 42)})
        for entry_id in asked:
            assert index.find(ledger, entry_id) == of_ledger.get(entry_id)
        rows = index.find_rows(np.full(len(asked), ledger), np.array(asked))
        assert [*zip(*rows, strict=True)] == [of_ledger.get(entry_id, (0, 0, 0)) for entry_id in asked]
    assert sorted(index.ledgers()) == sorted({ledger for ledger, _ in known})
    for log in (1, 2, 3):
        assert index.live[log] == sum(place.size for place in known.values() if place.log == log)


@given(batches)
def test_every_entry_is_found_where_it_was_put_last(steps: list[tuple[int, int, list[int]]]) -> None:
    check_against_a_dictionary(MemoryMap(), steps)


@given(batches)
def test_so_it_is_with_lmdb(steps: list[tuple[int, int, list[int]]]) -> None:
    folder = tempfile.mkdtemp()
    try:
        places = LmdbMap(f"{folder}/index")
        check_against_a_dictionary(places, steps)
        places.close()
    finally:
        shutil.rmtree(folder)


def test_a_long_run_is_cut_into_some_that_are_short_enough() -> None:
    runs = list(runs_of(5, list(range(1_000)), [10] * 1_000))
    assert [len(run) for run in runs] == [RUN] * 7 + [1_000 - 7 * RUN]
    assert [entry_id for run in runs for entry_id in run.ids] == list(range(1_000))
    huge = list(runs_of(5, [1, 2, 3], [3 << 30, 3 << 30, 3 << 30]))
    assert [run.size for run in huge] == [(3 << 30) + ENTRY_HEADER] * 3


def test_a_damaged_index_says_so() -> None:
    places = MemoryMap()
    index = Index(places)
    index.add(1, [(512, run) for run in runs_of(1, [1, 2, 3], [5, 5, 5])])
    ((key, value),) = places.between(b"", b"\xff" * 16)
    for at in range(len(value)):
        places.write([(key, value[:at] + bytes([value[at] ^ 4]) + value[at + 1 :])])
        with pytest.raises(Damage):
            index.find(1, 2)


@given(st.binary(max_size=50), st.integers(min_value=0))
def test_an_entry_is_only_read_whole_and_as_itself(body: bytes, bit: int) -> None:
    data = entry_bytes(7, 9, body)
    assert entry_body(data, 7, 9) == body
    assert entry_body(data, 7, 8) is entry_body(data, 6, 9) is entry_body(data[:-1], 7, 9) is None
    damaged = bytearray(data)
    bit %= len(data) * 8
    damaged[bit // 8] ^= 1 << bit % 8
    assert entry_body(bytes(damaged), 7, 9) is None


def section(make: Callable[[Contents], Section] = lambda contents: laid_out(3, 512, 8, contents)) -> tuple[Section, bytes]:
    bodies = {entry_id: b"x" * entry_id for entry_id in (1, 2, 5)}
    runs = list(runs_of(4, list(bodies), [len(body) for body in bodies.values()]))
    made = make(Contents(2, [1, 3], runs, [], [6]))
    return made, section_header(made) + b"".join(entry_bytes(4, entry_id, body) for entry_id, body in bodies.items())


def test_a_section_is_read_back_in_its_place_and_nowhere_else() -> None:
    made, data = section()
    assert section_at(data, 3, 512) == made
    assert section_at(data, 3, 1024) is section_at(data, 2, 512) is None
    entries = data[made.entries - made.offset :]
    assert list(entries_of(made, entries)) == [(4, entry_id, b"x" * entry_id) for entry_id in (1, 2, 5)]
    for bit in range((made.entries - made.offset) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert section_at(bytes(damaged), 3, 512) is None
