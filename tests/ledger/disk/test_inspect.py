"""``inspect`` reports what the directories of a bookie contain, also while the bookie runs, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledger.disk.small_bookie import SmallBookie

from fencepost.errors import SystemFailure
from fencepost.files.folders import OsFiles
from fencepost.ledger.disk.inspect import Inspection, inspect
from fencepost.ledger.records import EntryAdded, LimboChanged


@pytest.fixture
def bookie(tmp_path: Path) -> SmallBookie:
    made = SmallBookie(OsFiles(str(tmp_path))).begin()
    for number in range(40):
        made.write([EntryAdded(ledger, number, number - 1, b"entry %d" % number) for ledger in (1, 2)])
        if number % 10 == 9 and number < 35:
            made.checkpoint()
    made.fence(2)
    made.write([LimboChanged(7, True)])
    made.prove()
    return made


def seen(folder: Path, verify: bool = False) -> Inspection:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    found = inspect(str(folder), str(folder), verify)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    return found


def test_all_that_is_there_is_told(bookie: SmallBookie, tmp_path: Path) -> None:
    found = seen(tmp_path, verify=True)
    assert [(each.ledger, each.entries, each.in_journal, each.first_entry,
    each.last_entry) for each in found.ledgers] == [
        (1, 40, 10, 0, 39), (2, 40, 10, 0, 39), (7, 0, 0, -1, -1)
    ]  # fmt: skip
    assert [(each.fenced, each.limbo, each.lac) for each in found.ledgers] == [
        (False, False, 38),
        (True, False, 38),
        (False, True, -1),
    ]
    assert found.ledgers[0].bytes == sum(len(b"entry %d" % number) for number in range(40))
    assert sum(each.entries for each in found.entry_logs) == found.verified == 60
    assert [each.garbage for each in found.entry_logs] == [0.0] * len(found.entry_logs)
    assert [(each.records, each.needed, each.ending) for each in found.journals] == [(22, True, "clean")]
    assert not found.problems


def test_garbage_is_told(bookie: SmallBookie, tmp_path: Path) -> None:
    bookie.checkpoint()
    bookie.ledgers.forget(1)
    bookie.checkpoint()
    found = seen(tmp_path)
    assert [each.ledger for each in found.ledgers] == [2, 7]
    assert all(0.4 < each.garbage < 0.6 for each in found.entry_logs if each.entries)


def test_a_damaged_entry_is_found_by_reading_it(bookie: SmallBookie, tmp_path: Path) -> None:
    place = bookie.logs.index.find(2, 7)
    assert place is not None
    path = tmp_path / f"{place.log:08}.log"
    data = bytearray(path.read_bytes())
    data[place.offset + place.size - 1] ^= 1
    path.write_bytes(data)
    assert not seen(tmp_path).problems
    assert seen(tmp_path, verify=True).problems == [f"{path.name}: entry 7 of ledger 2 cannot be read"]


def test_damage_with_which_the_bookie_would_not_start_is_a_problem(bookie: SmallBookie, tmp_path: Path) -> None:
    (tmp_path / "00000001.log").unlink()
    found = seen(tmp_path)
    assert len(found.problems) == 1 and "refuse to start: entry log 00000001.log is missing" in found.problems[0]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemFailure, match="is no directory of a bookie"):
        inspect(str(tmp_path / "nothing"), str(tmp_path))
