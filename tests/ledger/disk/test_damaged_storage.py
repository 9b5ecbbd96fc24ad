"""Damage to any file of a bookie: it refuses to start with one line, or serves correct data, or reports a read error.

One kind of damage cannot be noticed and is not tested: the last group of the journal and the empty one that proves it,
both destroyed.
"""

from __future__ import annotations

import copy
from random import Random

import pytest
from ledger.disk.small_bookie import SmallBookie

from fencepost.files.folders import SECTOR
from fencepost.ledger.disk.journal import Damage, LaterFormat
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.rules.codes import Code
from fencepost.simulation.disk import SimDisk

Confirmed = dict[tuple[int, int], bytes]


def filled(compacted: bool) -> tuple[SimDisk, Confirmed]:
    """A disk with entries in several entry logs and in the journal, all durable and proven so."""
    disk, confirmed = SimDisk(), {}
    bookie = SmallBookie(disk, compiled=lambda: compacted).begin()
    for number in range(60):
        body = b"entry %d " % number * (1 + number % 9)
        bookie.write([EntryAdded(ledger, number, number - 1, body) for ledger in (1, 2, 3)])
        confirmed.update({(ledger, number): body for ledger in (1, 2, 3)})
        if number == 20:
            bookie.fence(2)
        if number % 12 == 11 and number < 55:
            bookie.checkpoint()
        if number == 40 and compacted:
            bookie.ledgers.forget(3)
            confirmed = {key: body for key, body in confirmed.items() if key[0] != 3}
            bookie.checkpoint()
            assert bookie.collect().removed
    bookie.prove()
    disk.sync()
    return disk, confirmed


def outcome(disk: SimDisk, confirmed: Confirmed) -> str:
    """The outcome of a bookie on a damaged disk. Fails if it is wrong."""
    try:
        bookie = SmallBookie(disk).begin()
    except Damage:
        return "refuses"
    errors = 0
    for (ledger, entry_id), body in confirmed.items():
        code, found = bookie.read(ledger, entry_id)
        assert (code, found) in ((Code.OK, body), (Code.IO_ERROR, None)), (ledger, entry_id, code)
        errors += code is Code.IO_ERROR
    assert bookie.ledgers.states[2].fenced
    return "serves the rest" if errors else "serves all"


@pytest.mark.parametrize("compacted", [False, True])
def test_what_is_damaged_is_never_served_wrong(compacted: bool) -> None:
    whole, confirmed = filled(compacted)
    assert outcome(copy.deepcopy(whole), confirmed) == "serves all"
    random, seen = Random(4), set()
    for _ in range(300):
        disk = copy.deepcopy(whole)
        for name in random.sample(disk.names(), 1 + (random.random() < 0.2)):
            content = disk.files[name].content
            kind = random.choice(["flip", "flip", "truncate", "remove", "zeros", "swap"])
            if kind == "flip" and content:
                disk.files[name].flip(int(random.random() * len(content) * 8))
            elif kind == "truncate":
                disk.files[name].truncate(int(random.random() * len(content)) | 1)
            elif kind == "zeros":
                at = int(random.random() * len(content)) // SECTOR * SECTOR
                content[at : at + SECTOR] = bytes(SECTOR)
            elif kind == "swap":
                other = random.choice(disk.names())
                disk.files[name], disk.files[other] = disk.files[other], disk.files[name]
            elif kind == "remove":
                disk.remove(name)
        seen.add(outcome(disk, confirmed))
    assert seen == {"refuses", "serves the rest", "serves all"}


@pytest.mark.parametrize("suffix", [".log", ".journal"])
def test_each_file_that_is_missing_is_missed(suffix: str) -> None:
    whole, confirmed = filled(True)
    for name in [name for name in whole.names() if name.endswith(suffix)]:
        disk = copy.deepcopy(whole)
        disk.remove(name)
        assert outcome(disk, confirmed) == "refuses", name


@pytest.mark.parametrize(("suffix", "bit"), [(".journal", 0), (".log", 1)])
def test_files_of_a_later_format_are_told_from_damaged_ones(suffix: str, bit: int) -> None:
    disk, _ = filled(compacted=False)
    newest = disk.files[max(name for name in disk.names() if name.endswith(suffix))]
    newest.flip(7 * 8 + bit)  # the last character of the format is a later digit, and all else is as it was
    with pytest.raises(Damage) as damage:
        SmallBookie(copy.deepcopy(disk)).begin()
    assert not isinstance(damage.value, LaterFormat)
    newest.flip(40 * 8)  # and the rest is not laid out as it was
    with pytest.raises(LaterFormat, match="has the format 3, and this version reads .: it was written by a later ver"):
        SmallBookie(disk).begin()
