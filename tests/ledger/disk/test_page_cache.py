"""Sections are written past the page cache, unless entry logs are read."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from ledger.disk.small_bookie import SmallBookie

from fencepost.files.folders import OsFile, OsFiles, Part
from fencepost.ledger.disk.entry_logs import CACHED_SECTIONS
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.rules.codes import Code

COMPILED = [False, True]


def added(entry_id: int, size: int = 100) -> EntryAdded:
    return EntryAdded(1, entry_id, entry_id - 1, b"%d".ljust(size, b".") % entry_id)


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each write to an entry log, whether it was to be cached."""
    found: list[bool] = []
    append = OsFile.append

    def watched(self: OsFile, data: bytes | Sequence[Part], cached: bool = True) -> None:
        if self.name.endswith(".log") and self.end > 512:
            found.append(cached)
        append(self, data, cached)

    monkeypatch.setattr(OsFile, "append", watched)
    return found


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    "read",
    [
        lambda bookie: bookie.ledgers.look_up(1, 0)[0],
        lambda bookie: Code(bookie.ledgers.read_rows(np.array([1]), np.array([0])).table.item(0, 0)),
    ],
    ids=["one", "rows"],
)
def test_sections_are_cached_for_a_while_after_a_read(
    tmp_path: Path, wanted: list[bool], compiled: bool, read: Callable[[SmallBookie], Code]
) -> None:
    bookie = SmallBookie(OsFiles(str(tmp_path)), log_limit=1 << 30, compiled=lambda: compiled).begin()

    def add(entry_id: int) -> bool:
        bookie.write([added(entry_id)])
        wanted.clear()
        bookie.checkpoint()
        return wanted[-1]

    assert not add(0)
    assert not add(1)
    bookie.write([added(2)])
    assert bookie.ledgers.look_up(1, 2)[0] is Code.OK
    assert not add(3)  # what was read was in memory
    assert read(bookie) is Code.OK
    assert [add(4 + number) for number in range(CACHED_SECTIONS)] == [True] * CACHED_SECTIONS
    assert not add(1_000)


@pytest.mark.parametrize("size", [100, 511, 5_000, 3 << 20])
@pytest.mark.parametrize("compiled", COMPILED)
def test_what_was_written_past_the_cache_can_be_read(tmp_path: Path, size: int, compiled: bool) -> None:
    bookie = SmallBookie(OsFiles(str(tmp_path)), log_limit=1 << 30, compiled=lambda: compiled).begin()
    records = [added(entry_id, size - entry_id) for entry_id in range(3)]
    for record in records:
        bookie.write([record])
        bookie.checkpoint()
    bookie.write([added(entry_id, size) for entry_id in range(3, 6)])
    bookie.checkpoint()
    bookie.prove()
    again = SmallBookie(OsFiles(str(tmp_path)))
    for opened in (bookie, again):
        found = [opened.ledgers.look_up(1, entry_id)[2] for entry_id in range(6)]
        assert found == [record.body for record in (*records, *(added(entry_id, size) for entry_id in range(3, 6)))]


def test_a_write_past_the_cache_that_the_system_refuses_goes_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = memoryview(mmap.mmap(-1, 8_192))
    pages[:] = b"p" * 8_192
    file = OsFiles(str(tmp_path)).create("one")
    file.append([pages[:4_096]], cached=False)
    file.append([pages[1:8]], cached=False)
    file.append([pages[:4_096]], cached=False)
    file.sync()
    assert (tmp_path / "one").read_bytes() == b"p" * (4_096 + 7 + 4_096)
    opened = os.open

    def refuse(path: str, flags: int, *mode: int) -> int:
        if flags & getattr(os, "O_DIRECT", 0):
            raise OSError(errno.EINVAL, "not here")
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", refuse)
    other = OsFiles(str(tmp_path)).create("other")
    other.append([pages[:4_096]], cached=False)
    assert (tmp_path / "other").read_bytes() == b"p" * 4_096


def test_a_failed_write_past_the_cache_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = memoryview(mmap.mmap(-1, 4_096))
    file = OsFiles(str(tmp_path)).create("one")

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "pwritev", fail)
    with pytest.raises(OSError, match="broken"):
        file.append([pages], cached=False)
    assert file.end == 0
    assert not (tmp_path / "one").read_bytes()
