"""The codec of the journal: synced records are read back, none is invented, and damage is distinguished from a torn
tail.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.files.folders import SECTOR
from fencepost.ledger.disk.journal import Damage, Tail, Writer, recover, scan
from fencepost.simulation.disk import SimDisk

records = st.lists(st.binary(max_size=700), max_size=5)
groups = st.lists(records, max_size=6)


def written(contents: list[list[bytes]], number: int = 1, synced: bool = True) -> bytes:
    """A file with these groups, each written after the one before was synced."""
    writer = Writer(number)
    data = writer.begin(0)
    for group in contents:
        if synced:
            writer.synced = writer.end
        data += writer.group(group)
    return data


@given(groups)
def test_what_is_written_is_read_back(contents: list[list[bytes]]) -> None:
    seen = scan(written(contents), 1)
    assert [payload for _, payload in seen.records] == [payload for group in contents for payload in group]
    assert seen.tail is Tail.CLEAN


@given(groups, st.integers(min_value=0))
def test_any_flipped_bit_below_the_synced_offset_is_noticed(contents: list[list[bytes]], bit: int) -> None:
    data = bytearray(written([*contents, []]))
    synced = scan(bytes(data), 1).synced
    bit %= synced * 8
    data[bit // 8] ^= 1 << bit % 8
    assert scan(bytes(data), 1).tail is Tail.DAMAGED
    with pytest.raises(Damage):
        recover([(1, bytes(data))])


@given(groups, st.integers(min_value=0))
def test_a_file_that_was_cut_off_holds_a_prefix(contents: list[list[bytes]], length: int) -> None:
    data = written(contents)
    seen = scan(data[: length % (len(data) + 1)], 1)
    everything = [payload for group in contents for payload in group]
    assert [payload for _, payload in seen.records] == everything[: len(seen.records)]
    assert seen.tail is not Tail.DAMAGED


@given(
    st.lists(st.tuples(records, st.sampled_from(["write", "sync", "fail", "kill", "power"])), max_size=12),
    st.integers(0, 999),
)
def test_what_was_synced_is_there_after_any_crashes(steps: list[tuple[list[bytes], str]], seed: int) -> None:
    """A bookie writes, syncs and crashes. It reads back everything reported as durable, and a prefix of its writes."""
    random, disk = Random(seed), SimDisk()
    durable: list[bytes] = []
    read: list[bytes] = []
    pending: list[bytes] = []
    writer, name = _boot(disk, read)
    for group, then in steps:
        disk.append(name, writer.group(group))
        pending += group
        file = disk.files[name]
        if then == "sync":
            file.end_sync(file.begin_sync())
            writer.synced = writer.end
            durable, pending = durable + pending, []
        elif then == "fail":
            file.fail_sync(file.begin_sync(), random)
        if then in ("fail", "kill", "power"):
            if then != "kill" and random.random() < 0.8:
                disk.lose_power(random)
            read = []
            writer, name = _boot(disk, read)
            assert read[: len(durable)] == durable
            assert read == (durable + pending)[: len(read)]
            durable, pending = list(read), []


def _boot(disk: SimDisk, read: list[bytes]) -> tuple[Writer, str]:
    names = sorted(disk.files)
    found = recover([(int(name), bytes(disk.files[name].content)) for name in names])
    read += found.records
    for name in names:
        if int(name) > found.number:
            disk.remove(name)
    writer, name = Writer(found.number + 1), f"{found.number + 1:04}"
    disk.append(name, writer.begin(found.end, found.unproven))
    file = disk.files[name]
    file.end_sync(file.begin_sync())
    disk.sync()
    writer.synced = writer.end
    return writer, name


def test_a_crash_while_the_next_file_is_made_loses_nothing() -> None:
    first = written([[b"one"], [b"two"]])
    found = recover([(1, first)])
    second = Writer(2).begin(found.end, found.unproven)
    assert found.unproven == (b"two",)
    for cut in range(0, len(second), SECTOR):
        torn = second[:cut]
        assert recover([(1, first), (2, torn)]).records == (b"one", b"two")
    assert recover([(1, first), (2, second)]).records == (b"one", b"two")


@pytest.mark.parametrize("files", [[2], [1, 3]])
def test_a_file_that_is_missing_is_damage(files: list[int]) -> None:
    contents = {}
    end = 0
    for number in (1, 2, 3):
        writer = Writer(number)
        data = writer.begin(end)
        writer.synced = writer.end
        contents[number] = data + writer.group([b"record"]) + writer.group()
        end = writer.synced
    with pytest.raises(Damage, match="missing"):
        recover([(number, contents[number]) for number in files])


def test_what_a_file_lost_below_where_the_next_one_says_that_it_counts_is_damage() -> None:
    first = written([[b"one"], []])
    end = recover([(1, first)]).end
    second = Writer(2).begin(end)
    assert recover([(1, first), (2, second)]).records == (b"one",)
    with pytest.raises(Damage, match="file 1"):
        recover([(1, first[: 2 * SECTOR]), (2, second)])


def test_a_file_that_was_cut_off_within_its_room_is_damage() -> None:
    unit = 4 * SECTOR
    writer = Writer(1)
    data = writer.begin(0, unit=unit)
    for payload in (b"one", b"two" * SECTOR, b"three"):
        writer.synced = writer.end
        data += writer.group([payload])
    data = data.ljust(-(-len(data) // unit) * unit, b"\0")
    assert len(recover([(1, data)]).records) == 3
    for length in range(SECTOR, len(data), 100):
        if length % unit:
            with pytest.raises(Damage, match="file 1"):
                recover([(1, data[:length])])


def test_a_crash_while_a_file_grows_is_no_damage() -> None:
    unit = 4 * SECTOR
    writer = Writer(1)
    data = writer.begin(0, [b"one"], unit).ljust(unit, b"\0")
    for length in range(unit, 2 * unit, 100):
        assert recover([(1, data.ljust(length, b"\0"))]).records == (b"one",)


def test_a_file_whose_last_group_tells_of_the_next_one_is_not_the_last() -> None:
    writer = Writer(1)
    data = writer.begin(0, [b"one"])
    writer.synced = writer.end
    data += writer.group(following=2)
    with pytest.raises(Damage, match="file 2 is missing"):
        recover([(1, data)])
    with pytest.raises(Damage, match="file 2 cannot be read"):
        recover([(1, data), (2, b"")])
    assert recover([(1, data), (2, Writer(2).begin(writer.synced, [b"two"]))]).records == (b"one", b"two")
