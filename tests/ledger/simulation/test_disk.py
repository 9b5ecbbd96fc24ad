"""The simulated disk: synced data survives, other data survives in part, and nothing is invented."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.files.folders import SECTOR, replace
from fencepost.simulation.disk import DiskFull, PowerLoss, SimDisk, SimFile

writes = st.lists(st.tuples(st.integers(0, 4 * SECTOR), st.binary(min_size=1, max_size=2 * SECTOR)), max_size=6)


@given(writes, writes, st.integers(0, 9999))
def test_after_a_loss_of_power_each_byte_is_as_it_was_synced_or_as_it_was_written(
    before: list[tuple[int, bytes]], after: list[tuple[int, bytes]], seed: int
) -> None:
    file = SimFile()
    for offset, data in before:
        file.write(offset, data)
    file.end_sync(file.begin_sync())
    synced = bytes(file.content)
    for offset, data in after:
        file.write(offset, data)
    seen = bytes(file.content)
    touched = {
        sector for offset, data in after for sector in range(offset // SECTOR, -(-(offset + len(data)) // SECTOR))
    }
    file.lose_power(Random(seed))
    left = bytes(file.content)
    assert len(synced) <= len(left) <= len(seen)
    for at, byte in enumerate(left):
        was = synced[at] if at < len(synced) else 0
        assert byte == was or (at // SECTOR in touched and byte == seen[at])
    file.lose_power(Random(seed + 1))
    assert bytes(file.content) == left


@given(writes, st.integers(0, 9999))
def test_a_sync_that_failed_leaves_what_is_read_and_keeps_any_part(
    contents: list[tuple[int, bytes]], seed: int
) -> None:
    file = SimFile()
    for offset, data in contents:
        file.write(offset, data)
    seen = bytes(file.content)
    file.fail_sync(file.begin_sync(), Random(seed))
    assert bytes(file.content) == seen
    assert not file.dirty
    file.lose_power(Random(seed))
    assert all(byte in (0, seen[at]) for at, byte in enumerate(file.content))


def test_every_part_of_what_is_not_synced_can_survive() -> None:
    found = set()
    for seed in range(300):
        file = SimFile()
        file.write(0, b"a" * 3 * SECTOR)
        file.lose_power(Random(seed))
        found.add(tuple(bytes(file.content[s * SECTOR : (s + 1) * SECTOR]).count(b"a") == SECTOR for s in range(3)))
    assert len(found) == 8


def test_what_was_written_after_a_sync_began_is_not_durable_when_it_ends() -> None:
    file = SimFile()
    file.write(0, b"a" * SECTOR)
    sectors = file.begin_sync()
    file.write(SECTOR, b"b" * SECTOR)
    file.end_sync(sectors)
    assert (bytes(file.durable), file.dirty) == (b"a" * SECTOR, {1})


def test_a_full_disk_takes_a_part() -> None:
    disk = SimDisk()
    disk.free = 3
    with pytest.raises(DiskFull):
        disk.append("journal", b"12345")
    assert disk.read("journal", 0, 10) == b"123"


def test_power_is_lost_in_the_middle_of_what_a_process_does() -> None:
    def replaced(left: int) -> tuple[bool, bytes]:
        disk = SimDisk()
        replace(disk, "vote", b"old")
        disk.left = left
        with suppress(PowerLoss):
            replace(disk, "vote", b"new")
        return disk.left < 0, disk.kept().read("vote", 0, 9)

    assert [replaced(left) for left in range(9)] == [(True, b"old")] * 6 + [(True, b"new")] + [(False, b"new")] * 2


def test_a_sync_fails_once_and_the_next_one_keeps_the_length() -> None:
    for seed in range(20):
        disk = SimDisk()
        file = disk.create("log")
        file.preallocate(4 * SECTOR)
        disk.fails = Random(seed)
        with pytest.raises(OSError, match="log cannot be synced"):
            file.sync()
        file.append(b"a")
        file.sync()
        disk.sync()
        assert disk.kept().read("log", 0, 1 << 20) == b"a" + bytes(4 * SECTOR - 1)


def test_what_is_kept_has_the_names_that_were_synced() -> None:
    disk = SimDisk()
    disk.append("old", b"a")
    disk.open("old").sync()
    disk.sync()
    disk.rename("old", "new")
    disk.append("unsynced", b"b")
    assert disk.kept().names() == ["old"] and disk.kept().read("old", 0, 9) == b"a"
    disk.sync()
    assert disk.kept().names() == ["new", "unsynced"] and disk.kept().read("unsynced", 0, 9) == b""


def test_a_flipped_bit_is_read_and_survives() -> None:
    file = SimFile()
    file.write(0, b"\0" * SECTOR)
    file.end_sync(file.begin_sync())
    file.flip(9)
    assert (file.content[1], file.durable[1]) == (2, 2)
