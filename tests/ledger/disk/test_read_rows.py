"""Entries read together equal those read one by one: in memory, in entry logs, damaged, deleted, or compacted
meanwhile.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from faulty_files import FaultyFiles
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger.disk.small_bookie import SmallBookie

from fencepost.files.folders import OsFiles
from fencepost.ledger.disk import entry_logs
from fencepost.ledger.disk.entry_logs import NO_LIMIT
from fencepost.ledger.disk.journal import Damage
from fencepost.ledger.disk.read_cache import ReadCache
from fencepost.ledger.disk.sections import HEADER
from fencepost.ledger.disk.settings import StorageSettings
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.kernels import results
from fencepost.ledger.kernels.results import MISS, LookupResults
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.reading import batch
from fencepost.simulation.disk import SimDisk

Keys = list[tuple[int, int]]

LEDGERS = (1, 2, 3)
KEYS = [(ledger, entry_id) for ledger in LEDGERS for entry_id in range(-1, 42)]


def columns(keys: Keys) -> tuple[np.ndarray, np.ndarray]:
    ledgers, entry_ids = np.array(keys, np.int64).reshape(-1, 2).T
    return ledgers, entry_ids


def unpacked(rows: LookupResults) -> list[tuple[Code | None, int, bytes | None]]:
    """Each row as ``look_up`` gives it, None in place of the code for a miss."""
    made = []
    for row, (code, entry_id, address, size) in enumerate(rows.table.tolist()):
        is_there = code == Code.OK.value
        assert is_there or address == size == 0
        made.append((None if code == MISS else Code(code), entry_id, rows.body(row) if is_there else None))
    return made


def alone(bookie: SmallBookie, keys: Keys) -> list[tuple[Code, int, bytes | None]]:
    """Each entry, looked up without read-ahead."""
    ahead, bookie.ledgers.ahead = bookie.ledgers.ahead, ReadCache(0)
    compiled, bookie.ledgers.compiled = bookie.ledgers.compiled, lambda: False
    found_alone = [bookie.ledgers.look_up(*key) for key in keys]
    bookie.ledgers.ahead, bookie.ledgers.compiled = ahead, compiled
    return found_alone


def check(bookie: SmallBookie, keys: Keys, most: int = NO_LIMIT) -> None:
    ledgers = bookie.ledgers
    expected = alone(bookie, keys)
    assert [ledgers.look_up(*key) for key in keys] == expected
    read = unpacked(ledgers.read_rows(*columns(keys), most))
    assert read == expected[: len(read)]
    assert len(read) == len(keys) or sum(len(body or b"") for _, _, body in read) >= most - HEADER * len(read)
    now = unpacked(ledgers.rows_now(*columns(keys), most))
    assert all(row == one or row[0] is None for row, one in zip(now, expected, strict=False)) and len(now) >= min(
        1, len(keys)
    )
    for key, row, one in zip(keys, unpacked(ledgers.cached_rows(*columns(keys))), expected, strict=True):
        if row[0] is None:
            assert key[1] < 0 or ledgers.cached(*key) is None
        else:
            assert row == one and key[1] >= 0


def scan(bookie: SmallBookie, ledger: int, stride: int = 1, at_once: int = 5) -> int:
    """Read a ledger entry by entry. Returns how many entries had been read ahead."""
    ids = range(0, 42, stride)
    ahead = 0
    for first in range(0, len(ids), at_once):
        keys = [(ledger, entry_id) for entry_id in ids[first : first + at_once]]
        ahead += sum(bookie.ledgers.ahead.get(*key) is not None for key in keys)
        expected = alone(bookie, keys)
        for key, one in zip(keys, expected, strict=True):
            assert bookie.ledgers.cached(*key) in (None, one[2])
        if at_once > 1:
            assert unpacked(bookie.ledgers.read_rows(*columns(keys))) == expected
        else:
            assert bookie.ledgers.look_up(*keys[0]) == expected[0]
    return ahead


def nothing() -> None:
    """No checkpoint is under way."""


def live(bookie: SmallBookie, steps: int, random: Random) -> None:
    """Adds, some of them repeated, checkpoints that end later, deleted ledgers, collections, and damaged entries."""
    ends = nothing
    for step in range(steps):
        chosen = random.random()
        if chosen < 0.5:
            first, ledger = int(random.random() * 36), random.choice(LEDGERS)
            bookie.write(
                [
                    EntryAdded(ledger, first + each, -1, b"%d of %d in %d " % (first + each, ledger, step) * each)
                    for each in range(5)
                ]
            )
        elif chosen < 0.7:
            ends()
            ends = bookie.begin_checkpoint()
        elif chosen < 0.8:
            ends()
            ends = nothing
        elif chosen < 0.85:
            bookie.ledgers.forget(random.choice(LEDGERS))
        elif chosen < 0.95:
            ends()
            ends = nothing
            bookie.collect()
        else:
            places = [
                place
                for ledger in LEDGERS
                for entry_id in range(40)
                if (place := bookie.logs.index.find(ledger, entry_id))
            ]
            if places:
                place = random.choice(places)
                bookie.ledgers.ahead.clear()  # what was read before was right
                assert isinstance(bookie.files, SimDisk)
                bookie.files.files[f"{place.log:08}.log"].flip(8 * place.offset + int(random.random() * 8 * place.size))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("gap", [0, 100, 1 << 12])
def test_many_are_as_one_by_one(seed: int, gap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_logs, "GAP", gap)
    monkeypatch.setattr(entry_logs, "STRETCH", 300 if seed % 2 else 1 << 20)
    random = Random(seed)
    compiled = itertools.cycle([True, True, seed % 3 > 0, True])
    bookie = SmallBookie(SimDisk(), compiled=lambda: next(compiled)).begin()
    seen: set[Code] = set()
    for step in range(12):
        live(bookie, 6, random)
        check(bookie, KEYS)
        check(bookie, random.sample(KEYS, 20) + random.sample(KEYS, 20), most=int(random.random() * 1_500))
        check(bookie, [])
        scan(bookie, random.choice(LEDGERS), stride=1 + step % 3, at_once=1 + step % 7)
        seen.update(bookie.ledgers.look_up(*key)[0] for key in KEYS)
    assert {Code.OK, Code.NO_ENTRY} <= seen


@settings(max_examples=30)
@given(st.lists(st.sampled_from(KEYS), max_size=30), st.sampled_from([1, 200, 1_000, NO_LIMIT]), st.booleans())
def test_whatever_is_asked(keys: Keys, most: int, compiled: bool) -> None:
    bookie = SmallBookie(SimDisk(), compiled=lambda: compiled).begin()
    for ledger in LEDGERS:
        bookie.write([EntryAdded(ledger, 2 * each, -1, b"%d/%d" % (ledger, each) * each) for each in range(20)])
        if ledger < 3:
            bookie.checkpoint()
    check(bookie, keys, most)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_limit_ends_with_the_entry_that_goes_beyond(compiled: bool) -> None:
    bookie = SmallBookie(SimDisk(), compiled=lambda: compiled).begin()
    bookie.write([EntryAdded(1, each, -1, b"x" * 1_000) for each in range(20)])
    bookie.checkpoint()
    for most, rows in ((1, 1), (1_500, 2), (10_500, 11), (1 << 20, 20)):
        assert len(bookie.ledgers.read_rows(*columns([(1, each) for each in range(20)]), most)) == rows


@pytest.mark.parametrize("at_once", [1, 2, 5])
@pytest.mark.parametrize("stride", [1, 3])
def test_entries_are_read_ahead_of_a_scan_and_forgotten_with_what_they_rely_on(stride: int, at_once: int) -> None:
    bookie = SmallBookie(SimDisk(), compiled=lambda: True).begin()
    for text in (b"first", b"second"):
        bookie.write([EntryAdded(1, each, -1, text + b" %d" % each) for each in range(42)])
        bookie.checkpoint()
        assert scan(bookie, 1, stride, at_once) >= len(range(0, 42, stride)) - 5 - at_once
        assert scan(bookie, 2) == 0
    rows = bookie.ledgers.cached_rows(*columns([(1, 39)]))
    assert unpacked(rows) == [(Code.OK, 39, b"second 39")]
    bookie.ledgers.forget(1)
    assert unpacked(bookie.ledgers.cached_rows(*columns([(1, 39)])))[0][0] is Code.NO_ENTRY
    bookie.checkpoint()
    assert unpacked(bookie.ledgers.read_rows(*columns([(1, 39)])))[0][0] is Code.NO_ENTRY


def test_nothing_is_read_ahead_when_there_is_no_memory_for_it() -> None:
    bookie = SmallBookie(SimDisk(), compiled=lambda: True).begin()
    bookie.ledgers.ahead = ReadCache(0)
    bookie.write([EntryAdded(1, each, -1, b"%d" % each) for each in range(42)])
    bookie.checkpoint()
    assert scan(bookie, 1) == scan(bookie, 1, at_once=1) == 0


def test_nothing_is_read_ahead_of_reads_in_no_order() -> None:
    bookie = SmallBookie(SimDisk(), compiled=lambda: True).begin()
    bookie.write([EntryAdded(1, each, -1, b"%d" % each) for each in range(42)])
    bookie.checkpoint()
    for entry_id in Random(1).sample(range(42), 42):
        assert bookie.ledgers.cached_rows(*columns([(1, entry_id)])).table[0, results.CODE] == MISS
        assert bookie.ledgers.look_up(1, entry_id)[0] is Code.OK


def test_what_was_looked_up_before_the_index_changed_is_not_kept() -> None:
    cache, block = ReadCache(1 << 20), np.frombuffer(b"body", np.uint8)
    table = np.array([[Code.OK.value, 7, block.ctypes.data, 4], [Code.IO_ERROR.value, 8, 0, 0]])
    for epoch, is_kept in ((0, True), (0, False), (1, True)):
        cache.keep(epoch, 1, table, block, 1)
        asked = np.array([[MISS, 7, 0, 0], [MISS, 8, 0, 0]])
        rows = LookupResults(asked, cache.find(np.array([1, 1]), np.array([7, 8]), asked))
        assert [code for code, _, _ in unpacked(rows)] == [Code.OK if is_kept else None, None]
        if is_kept:
            cache.clear()


def test_the_older_half_goes_when_the_newer_one_is_full() -> None:
    cache = ReadCache(10_000)
    for entry_id in range(40):
        block = np.zeros(1_000, np.uint8)
        cache.keep(0, 1, np.array([[Code.OK.value, entry_id, block.ctypes.data, 1_000]]), block, 1)
    asked = np.array([[MISS, entry_id, 0, 0] for entry_id in range(40)])
    cache.find(np.ones(40, np.int64), np.arange(40), asked)
    kept = np.flatnonzero(asked[:, results.CODE] == Code.OK.value)
    assert 4 <= len(kept) <= 16 and kept[-1] == 39


def test_neighbours_of_what_the_disk_can_not_read_are_read() -> None:
    broken: list[bool] = []
    reads = []

    def fault(operation: str, name: str) -> BaseException | None:
        if operation == "read" and broken:
            reads.append(name)
            return OSError(errno.EIO, "broken") if broken.pop() else None
        return None

    bookie = SmallBookie(FaultyFiles(SimDisk(), fault), compiled=lambda: True).begin()
    bookie.write([EntryAdded(1, each, -1, b"%d" % each) for each in range(5)])
    bookie.checkpoint()
    broken += [False, True, False, False, False, True]  # the stretch, and then the fourth entry alone
    rows = unpacked(bookie.ledgers.read_rows(*columns([(1, each) for each in range(5)])))
    assert [code for code, _, _ in rows] == [Code.OK] * 3 + [Code.IO_ERROR, Code.OK]
    assert len(reads) == 6


def test_a_damaged_index_costs_only_what_is_damaged() -> None:
    bookie = SmallBookie(SimDisk(), compiled=lambda: True).begin()
    for ledger in LEDGERS:
        bookie.write([EntryAdded(ledger, each, -1, b"%d" % each) for each in range(5)])
    bookie.checkpoint()
    find_rows = bookie.logs.index.find_rows

    def damaged(*asked: np.ndarray) -> object:
        raise Damage("the index is damaged")

    bookie.logs.index.find_rows = damaged  # type: ignore[method-assign, assignment]
    check(bookie, KEYS)
    bookie.logs.index.find_rows = find_rows  # type: ignore[method-assign]
    check(bookie, KEYS)


def opened(folder: Path, **settings: object) -> tuple[Storage, Callable[[int, range], None]]:
    """An empty storage, and a function that adds entries of a ledger to it."""
    small = {"journal_pre_alloc_size_mb": 1, "write_cache_max_size_mb": 1, "log_size_limit": 1 << 18, **settings}
    storage = Storage(
        StorageSettings(journal_directory=str(folder / "journal"), ledger_directory=str(folder / "ledgers"), **small),  # type: ignore[arg-type]
        compiled=lambda: True,
    )
    assert not [*storage.records()]
    storage.start()
    position = itertools.count(1)

    def add(ledger: int, ids: range) -> None:
        entries = [(ledger, each, b"%d/%d." % (ledger, each) * 50) for each in ids]
        storage.take([(next(position), EntryAdded(*entry[:2], -1, entry[2])) for entry in entries])

    return storage, add


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_batch_read_is_as_one_by_one(tmp_path: Path, in_memory: bool) -> None:
    storage, add = opened(tmp_path)
    add(1, range(20))
    add(1, range(25, 30))
    if not in_memory:
        storage.checkpoint()

    def one(entry_id: int) -> tuple[Code, bytes | None]:
        code, _, body = storage.look_up(1, entry_id)
        return code, body

    for first, count, size in itertools.product((0, 18, 20, 25, 29, 30, 2**63 - 1), (1, 3, 1_000), (1, 700, 1 << 20)):
        assert batch(storage.following(1, first, count, size), first, count, size) == batch(one, first, count, size)
    assert storage.following(2, 0, 10, 100)(0) == (Code.NO_ENTRY, None)
    assert storage.following(1, -1, 10, 100)(-1) == (Code.OK, b"1/29." * 50)
    storage.close()


def test_reads_go_on_while_entry_logs_are_written_compacted_and_removed(tmp_path: Path) -> None:
    storage, add = opened(tmp_path, major_compaction_interval=0, compaction_rate_by_bytes=1 << 30)
    add(1, range(1_000))
    keys = columns([(1, each) for each in range(0, 1_000, 7)] + [(1, -1)])
    wrong: list[object] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set() and not wrong:
            rows = storage.read_rows(*keys)
            for row, entry_id in enumerate([*range(0, 1_000, 7), 999]):
                if rows.table[row, :2].tolist() != [0, entry_id] or rows.body(row) != b"1/%d." % entry_id * 50:
                    wrong.append((entry_id, rows.table[row]))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for ledger in range(2, 10):
        add(ledger, range(500))
        storage.checkpoint()
        storage.forget(ledger)
        storage.collect()
    ended.set()
    for reader in readers:
        reader.join()
    storage.close()
    assert not wrong


def test_what_the_system_has_in_memory_is_read_without_waiting_and_nothing_where_it_can_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsFiles(str(tmp_path)).create("one")
    file.append(b"0123456789")
    buffer = bytearray(4)
    assert file.read_now(3, memoryview(buffer)) == 4 and buffer == b"3456"
    asked: list[int] = []

    def fails(number: int) -> Callable[..., int]:
        def read(*arguments: object) -> int:
            asked.append(number)
            raise OSError(number, "not now")

        return read

    for number, again in ((errno.EAGAIN, True), (errno.EIO, True), (errno.EOPNOTSUPP, False)):
        monkeypatch.setattr(os, "preadv", fails(number))
        assert [file.read_now(0, memoryview(buffer)) for _ in range(2)] == [0, 0]
        assert asked.count(number) == (2 if again else 1)
    monkeypatch.undo()
    assert file.read_now(0, memoryview(buffer)) == 0 and file.read_into(0, memoryview(buffer)) == 4


@pytest.mark.parametrize("entries", [1, 3, 30])
def test_entries_that_a_disk_must_be_waited_for_are_missing_without_waiting(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie = SmallBookie(SimDisk(), compiled=lambda: True).begin()
    bookie.write([EntryAdded(1, entry_id, -1, b"entry %02d" % entry_id) for entry_id in range(40)])
    bookie.checkpoint()
    keys = [(1, entry_id) for entry_id in range(entries)]
    held = 24 + len(b"entry 00")
    monkeypatch.setattr(
        "fencepost.simulation.disk.SimHandle.read_now",
        lambda file, offset, buffer: min(held, file.read_into(offset, buffer)),
    )
    now = unpacked(bookie.ledgers.rows_now(*columns(keys)))
    assert [row[0] for row in now] == [Code.OK] + [None] * (entries - 1)
    check(bookie, keys)
