"""A section of an entry log that could not be written or synced is the last: flushes and compactions share that log."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from faulty_files import FaultyFiles, failing
from ledger.disk.small_bookie import SmallBookie

from fencepost.files.folders import OsFiles
from fencepost.ledger.disk import entry_logs
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.rules.codes import Code

BROKEN = OSError(errno.EIO, "broken")


def body_of(entry_id: int) -> bytes:
    return b"%d".ljust(300, b".") % entry_id


def added(*entries: int) -> list[EntryAdded]:
    return [EntryAdded(1, entry_id, entry_id - 1, body_of(entry_id)) for entry_id in entries]


@pytest.mark.parametrize("compacts", [False, True], ids=["flush", "compaction"])
@pytest.mark.parametrize("operation", ["sync", "append"])
def test_after_a_flush_or_compaction_that_failed_neither_writes(tmp_path: Path, operation: str, compacts: bool) -> None:
    fault = failing(operation, "2.log", BROKEN, after=2)
    bookie = SmallBookie(FaultyFiles(OsFiles(str(tmp_path)), fault)).begin()
    bookie.write(added(*range(10)))
    bookie.checkpoint()
    bookie.write(added(10))
    bookie.checkpoint()
    bookie.write(added(*range(20, 30)))
    fails, follows = (bookie.collect, bookie.checkpoint) if compacts else (bookie.checkpoint, bookie.collect)
    with pytest.raises(OSError, match="broken"):
        fails()
    began = bookie.logs.sizes[2]
    with pytest.raises(OSError, match="an earlier section"):
        follows()
    log = tmp_path / "00000002.log"
    data = log.read_bytes()
    log.write_bytes(data[: began + 512] + bytes(len(data) - began - 512))  # what a disk does that has failed to sync
    again = SmallBookie(OsFiles(str(tmp_path))).begin()
    for entry_id in (*range(11), *range(20, 30)):
        assert again.read(1, entry_id) == (Code.OK, body_of(entry_id)), entry_id


def test_a_large_section_is_synced_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_logs, "PIECE", 1_000)
    done: list[str] = []

    def fault(operation: str, name: str) -> None:
        if name == "00000001.log" and operation in ("append", "sync"):
            done.append(operation)

    bookie = SmallBookie(FaultyFiles(OsFiles(str(tmp_path)), fault)).begin()
    bookie.write(added(*range(12)))
    done.clear()
    bookie.checkpoint()
    assert done == ["append", "sync"] * (len(done) // 2)
    assert len(done) >= 6
    assert bookie.read(1, 11) == (Code.OK, body_of(11))
