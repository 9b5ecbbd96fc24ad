"""The reserve for a full disk, and the journal and entry logs when there is no room: they stay as they were."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.files import folders
from fencepost.files.folders import SECTOR, NoRoom, OsFiles
from fencepost.ledger.disk.entry_logs import Bodies, EntryLogs
from fencepost.ledger.disk.index import Index
from fencepost.ledger.disk.journal_files import JournalFiles, journals_in, read_journal
from fencepost.ledger.disk.reserve import LEAST, PLENTY, Reserve
from fencepost.ledger.rules.codes import Code
from fencepost.simulation.disk import CAPACITY, SimDisk

UNIT = 4 * LEAST
NAME = "reserve"


def take(disk: SimDisk, size: int) -> None:
    """Take some room of a disk, or raise."""
    disk.create(f"taken-{len(disk.names())}").preallocate(size)


def test_a_reserve_gives_what_is_needed_and_takes_it_back() -> None:
    disk, told = SimDisk(), []
    disk.free = 10 * UNIT
    reserve = Reserve(lambda: told.append(reserve.size))
    reserve.open(disk, NAME, 2 * UNIT)
    assert reserve.is_whole and disk.free == 8 * UNIT
    reserve.run(lambda: take(disk, 8 * UNIT), 8 * UNIT)
    assert not told and not disk.free, "there was other room"
    reserve.run(lambda: take(disk, UNIT), UNIT)
    assert told == [UNIT] and not reserve.is_whole
    with pytest.raises(NoRoom):
        reserve.run(lambda: take(disk, 2 * UNIT), 2 * UNIT)
    assert told == [UNIT, 0] and disk.free == UNIT, "all of it was not enough"
    with reserve.held():
        reserve.fill(disk)
        assert reserve.size == 0, "somebody looks for room"
    reserve.fill(disk)
    assert reserve.size == UNIT - LEAST and disk.free == LEAST, "a bookie that starts has records to write"
    disk.free = 5 * UNIT
    reserve.fill(disk)
    assert reserve.is_whole and disk.free == 4 * UNIT - LEAST


def test_a_reserve_is_there_while_its_disk_has_little_room() -> None:
    disk, reserve = SimDisk(), Reserve()
    for free, has in ((PLENTY, False), (PLENTY - 1, True), (2 * PLENTY - 1, True), (2 * PLENTY, False)):
        disk.free = free * UNIT
        reserve.open(disk, NAME, UNIT)
        assert (reserve.size == UNIT) is has and reserve.is_whole
    disk.free = 0
    with pytest.raises(NoRoom):
        reserve.run(lambda: take(disk, UNIT), UNIT)
    assert not reserve.is_whole, "it was needed before anybody looked"


@pytest.mark.parametrize(
    ("there", "free", "has"), [(0, 3, 2), (1, 0, 1), (1, 3, 2), (3, 0, 2), (0, 1, 0.75), (0, 0, 0)]
)
def test_a_reserve_that_is_taken_up_has_what_was_there_and_what_there_is_room_for(
    there: int, free: int, has: float
) -> None:
    disk = SimDisk()
    if there:
        disk.create(NAME).preallocate(there * UNIT)
    disk.free = free * UNIT
    reserve = Reserve()
    reserve.open(disk, NAME, 2 * UNIT)
    assert reserve.size == has * UNIT == (disk.size(NAME) if NAME in disk.names() else 0)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_files_take_no_room_where_there_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def in_part(descriptor: int, offset: int, size: int) -> None:
        os.truncate(descriptor, offset + size // 2)
        raise OSError(number, "none left")

    def refused(path: str, flags: int) -> int:
        raise OSError(number, "none left")

    folder = OsFiles(str(tmp_path))
    file = folder.create("file")
    file.append(b"there")
    monkeypatch.setattr(os, "posix_fallocate", in_part)
    with pytest.raises(NoRoom, match="no room for file"):
        file.preallocate(1_000)
    assert folder.size("file") == 5
    monkeypatch.setattr(folders, "private", refused)
    with pytest.raises(NoRoom, match="no room for other"):
        folder.create("other")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "roll", "checkpoint"]),
        st.integers(1, 3 * UNIT // 2) | st.just(UNIT - 2 * SECTOR - 100),
        st.sampled_from([0, 1, LEAST // 2, LEAST, UNIT, 2 * UNIT, CAPACITY]),
        st.booleans(),
    ),
    max_size=12,
)
"""What happens to a record of this size with this much room, and whether it is retried until there is room. One size
fills the first unit of a file.
"""


@settings(max_examples=400)
@given(steps=STEPS, reserved=st.sampled_from([0, 1, 2]), seed=st.integers(0, 1_000))
def test_a_journal_that_finds_no_room_goes_on_when_there_is_some(
    steps: list[tuple[str, int, int, bool]], reserved: int, seed: int
) -> None:
    """The twin of the journal is a list of what was synced; power is lost at the end."""
    disk, reserve = SimDisk(), Reserve()
    reserve.open(disk, NAME, reserved * UNIT)
    journal = JournalFiles(disk, read_journal(disk, 1), unit=UNIT, draw=lambda: 7, reserve=reserve)
    durable: list[bytes] = []
    started = 1
    for number, (step, size, free, insists) in enumerate(steps):
        record = b"%d" % number + bytes(size)
        for room in (free, free, CAPACITY):
            disk.free = room
            try:
                if step == "write":
                    journal.write([record])
                    journal.sync()
                    durable.append(record)
                else:
                    started_now = journal.roll()
                    if step == "checkpoint":
                        started, durable = started_now, []
                        journal.remove_before(started)
            except NoRoom:
                assert room < CAPACITY
                if insists:
                    continue
            break
    disk.lose_power(Random(seed))
    disk.free = CAPACITY
    assert [*read_journal(disk, started).records] == durable
    if started > 1:
        assert min(journals_in(disk)) <= started


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3 * LEAST), st.sampled_from([0, 600, LEAST, CAPACITY])), max_size=8),
    reserved=st.sampled_from([0, LEAST, 4 * LEAST]),
)
def test_entry_logs_that_find_no_room_go_on_when_there_is_some(sizes: list[tuple[int, int]], reserved: int) -> None:
    disk, reserve = SimDisk(), Reserve()
    reserve.open(disk, NAME, reserved)
    logs = EntryLogs(disk, Index(), [1], 4 * LEAST, reserve=reserve)
    logs.begin()
    for entry_id, (size, free) in enumerate(sizes):
        disk.free = free
        entries = Bodies({1: {entry_id: bytes(size)}})
        try:
            section = logs.write(entries)
        except NoRoom:
            disk.free = CAPACITY
            section = logs.write(entries)
        logs.sync(section)
        logs.commit(section)
    for each in (logs, EntryLogs(disk, Index(), None)):
        found = [each.read(1, entry_id) for entry_id in range(len(sizes))]
        assert found == [(Code.OK, bytes(size)) for size, _ in sizes]
