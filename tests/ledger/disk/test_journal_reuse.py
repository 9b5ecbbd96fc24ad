"""Journal files written over earlier ones: none of the old contents counts, whatever a crash leaves of the writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger.disk import test_crashes
from ledger.disk.small_bookie import SmallBookie

from fencepost.files.folders import SECTOR, File, Part
from fencepost.ledger.disk import journal
from fencepost.ledger.disk.journal import Damage, Tail, Writer, recover, scan
from fencepost.ledger.disk.journal_files import SPARE, JournalFiles, name_of
from fencepost.ledger.disk.reserve import Reserve
from fencepost.ledger.records import EntryAdded
from fencepost.simulation.disk import SimDisk, SimFile, SimHandle

records = st.lists(st.binary(max_size=700), max_size=4)
groups = st.lists(records, max_size=6)
OLD, NEW = 0x1111, 0x2222
UNIT = 16 * SECTOR


def written(number: int, mark: int, contents: list[list[bytes]], synced: int = 99) -> list[bytes]:
    """The bytes of a file in parts: its header and first group, and then each group. The first ``synced`` groups are
    synced before the next one is written.
    """
    writer = Writer(number, mark)
    parts = [writer.begin(0, (), UNIT)]
    for place, group in enumerate(contents):
        if place < synced:
            writer.synced = writer.end
        parts.append(writer.group(group))
    return parts


def in_place_of(old: list[bytes], new: list[bytes], synced: int, seed: int) -> bytes:
    """What a crash leaves of a file written over an older one: the first parts are synced, and any of the others may
    be.
    """
    file = SimFile()
    room = -(-max(len(b"".join(old)), len(b"".join(new))) // UNIT) * UNIT
    file.write(0, b"".join(old).ljust(room, b"\0"))
    file.end_sync(file.begin_sync())
    at = 0
    for place, part in enumerate(new):
        file.write(at, part)
        at += len(part)
        if place < synced:
            file.end_sync(file.begin_sync())
    file.lose_power(Random(seed))
    return bytes(file.content)


def check(old: list[list[bytes]], new: list[list[bytes]], synced: int, seed: int) -> None:
    """All synced parts of the new file are read, and those after them as far as they survived. Nothing of the old file
    is.
    """
    data = in_place_of(written(3, OLD, old), written(7, NEW, new, synced), synced, seed)
    found = scan(data, 7)
    everything = [record for group in new for record in group]
    durable = [record for group in new[: max(0, synced - 1)] for record in group]
    assert found.tail is not Tail.DAMAGED
    seen = [record for _, record in found.records]
    assert seen == everything[: len(seen)] and len(seen) >= len(durable)
    if synced:
        assert found.previous_end == 0
    else:
        assert found.previous_end in (0, -1)


@given(groups, groups, st.integers(0, 7), st.integers(0, 9999))
def test_nothing_of_an_older_file_is_read(
    old: list[list[bytes]], new: list[list[bytes]], synced: int, seed: int
) -> None:
    check(old, new, synced, seed)


@given(groups, groups, st.integers(min_value=0))
def test_any_flipped_bit_below_the_synced_offset_is_noticed(
    old: list[list[bytes]], new: list[list[bytes]], bit: int
) -> None:
    data = bytearray(in_place_of(written(3, OLD, old), written(1, NEW, [*new, []]), len(new) + 2, 0))
    synced = scan(bytes(data), 1).synced
    bit %= synced * 8
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Damage):
        recover([(1, bytes(data))])


@given(groups, groups, st.integers(min_value=0))
def test_a_file_that_was_cut_off_holds_all_or_is_damaged(
    old: list[list[bytes]], new: list[list[bytes]], length: int
) -> None:
    data = in_place_of(written(3, OLD, old), written(1, NEW, [*new, []]), len(new) + 2, 0)
    whole = recover([(1, data)]).records
    # a disk that cuts at a whole unit is not noticed
    length = length % len(data) // UNIT * UNIT + 1 + length % (UNIT - 1)
    try:
        assert recover([(1, data[:length])]).records in (whole, ())
    except Damage:
        return
    assert length < SECTOR or not data[length // UNIT * UNIT : length].strip(b"\0")


def same_sizes(number: int) -> list[list[bytes]]:
    """Groups at the same offsets in every file."""
    return [[b"record %2d of file %d" % (each, number)] for each in range(6)]


def test_a_file_without_its_first_group_does_not_count_and_is_no_damage() -> None:
    old, new = written(3, OLD, same_sizes(3)), written(7, NEW, same_sizes(7))
    before = b"".join(old).ljust(UNIT, b"\0")
    assert scan(before, 7) == journal.Scan(-1, (), 0, 0, Tail.TORN)
    header = new[0][:SECTOR] + before[SECTOR:]
    assert (scan(header, 7).previous_end, scan(header, 7).groups, scan(header, 7).tail) == (-1, (), Tail.TORN)
    torn = new[0][: SECTOR // 2] + before[SECTOR // 2 :]
    assert (scan(torn, 7).previous_end, scan(torn, 7).tail) == (-1, Tail.TORN)
    found = scan(new[0] + before[2 * SECTOR :], 7)
    assert (found.previous_end, found.end, found.records, found.tail) == (0, 2 * SECTOR, (), Tail.CLEAN)


@pytest.mark.parametrize("ignored", ["mark", "number and mark"])
def test_planted_who_ignores_what_a_group_says_of_its_file_reads_older_ones(
    monkeypatch: pytest.MonkeyPatch, ignored: str
) -> None:
    attack = forged if ignored == "mark" else lambda: check(same_sizes(3), same_sizes(7), 3, 5)
    attack()

    def read_group(data: bytes, number: int, mark: int | None, start: int) -> Any:
        if data[start : start + 4] != journal._GROUP_MAGIC:
            return None
        _, found, _, _, synced, following, length, checksum = journal._GROUP.unpack_from(data, start)
        return (synced, following, length, checksum) if found == number or ignored != "mark" else None

    monkeypatch.setattr(journal, "_read_group", read_group)
    with pytest.raises(AssertionError):
        attack()


def forged() -> None:
    """A client sends an entry that looks like a group of a later file. It is not read as one."""
    real = b"".join(written(7, NEW, same_sizes(7)))
    writer = Writer(7, OLD)  # all is right but the mark, which nobody knows yet
    writer.end = writer.synced = len(real)
    data = (real + writer.group([b"never sent"])).ljust(UNIT, b"\0")
    seen = [record for _, record in scan(data, 7).records]
    assert seen == [record for group in same_sizes(7) for record in group]


def test_a_file_that_is_not_needed_is_written_again() -> None:
    disk = SimDisk()
    bookie = SmallBookie(disk).begin()
    made: list[SimFile] = []
    for number in range(8):
        bookie.write([EntryAdded(1, number, -1, b"x" * 1_500)])
        made.append(disk.files[name_of(bookie.journal.number)])
        bookie.checkpoint()
    assert len({id(file) for file in made}) == 2
    assert [name for name in disk.names() if "journal" in name] == [name_of(bookie.journal.number), SPARE]
    again = SmallBookie(disk).begin()
    assert SPARE not in disk.names()
    assert all(again.read(1, number)[1] == b"x" * 1_500 for number in range(8))


def test_a_file_of_another_unit_is_not_written_again() -> None:
    disk = SimDisk()
    files = JournalFiles(disk, recover([]), unit=1_024)
    files.write([b"one"])
    files.unit = 4_096
    files.remove_before(files.roll())
    assert disk.names() == [name_of(2)]


@pytest.mark.parametrize("fills", [False, True])
def test_a_file_that_fills_its_space_writes_zeros_ahead_of_each_group(
    monkeypatch: pytest.MonkeyPatch, fills: bool
) -> None:
    written_up_to: dict[str, int] = {}
    ahead: list[bool] = []
    append = SimHandle.append

    def seen(self: SimHandle, data: bytes | Sequence[Part], cached: bool = True) -> None:
        is_zeros = not any(map(any, [data] if isinstance(data, bytes) else data))
        append(self, data, cached)
        if is_zeros:
            assert self.end % UNIT == 0
        else:
            ahead.append(self.end <= written_up_to.get(self.name, 0))
        written_up_to[self.name] = max(written_up_to.get(self.name, 0), self.end)

    monkeypatch.setattr(SimHandle, "append", seen)
    disk = SimDisk()
    files = JournalFiles(disk, recover([]), unit=UNIT, fills=fills)
    for number in range(60):
        files.write([b"%d" % number * 400])
        files.sync()
        if number == 40:
            files.roll()
    assert all(ahead) is fills and len(ahead) > 60
    found = recover([(number, bytes(disk.files[name_of(number)].durable)) for number in (1, 2)])
    assert list(found.records) == [b"%d" % number * 400 for number in range(60)]


def test_planted_who_writes_before_the_names_are_durable_loses_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Callable[..., tuple[File, int]] = JournalFiles._create

    def hasty(self: JournalFiles, name: str, reserve: Reserve) -> tuple[File, int]:
        synced, self.files.sync = self.files.sync, lambda: None  # type: ignore[method-assign]
        try:
            return made(self, name, reserve)
        finally:
            self.files.sync = synced  # type: ignore[method-assign]

    monkeypatch.setattr(JournalFiles, "_create", hasty)
    with pytest.raises((AssertionError, Damage)):
        for seed in range(20):
            test_crashes.test_a_crash_at_any_operation_loses_nothing_that_was_confirmed(seed)
