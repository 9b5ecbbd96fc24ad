"""A reopened storage has what it had, and continues like a new one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from patience import until

from fencepost.ledger.disk.settings import StorageSettings
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.rules.codes import Code


class Held:
    """A storage, and how far its journal is durable."""

    def __init__(self, directory: Path, has_lost_files: bool = False, **settings: Any) -> None:
        self.durable = 0
        of_storage = StorageSettings(
            journal_directory=str(directory / "journal"), ledger_directory=str(directory / "ledgers"), **settings
        )
        self.storage = Storage(of_storage, synced=self._synced, has_lost_files=has_lost_files)
        for _ in self.storage.records():
            pass
        self.storage.start()
        self.position = 0

    def _synced(self, position: int) -> None:
        self.durable = position

    def add(self, entry_id: int) -> None:
        self.position += 1
        self.storage.take([(self.position, EntryAdded(1, entry_id, -1, b"entry %d" % entry_id))])


def test_a_checkpoint_is_taken_after_the_journal_was_replayed(tmp_path: Path) -> None:
    for name in ("journal", "ledgers"):
        (tmp_path / "first" / name).mkdir(parents=True)
    first = Held(tmp_path / "first")
    for entry_id in range(3):
        first.add(entry_id)
    until(lambda: first.durable == 3, "the entries to be durable")
    shutil.copytree(tmp_path / "first", tmp_path / "killed")  # what a kill leaves behind: all is in the journal alone
    first.storage.close()
    again = Held(tmp_path / "killed")
    again.add(3)
    again.storage.checkpoint()
    again.storage.close()
    last = Storage(again.storage.settings)
    list(last.records())
    assert not len(last.ledger_store.cache), "all is in entry logs"


def test_what_was_there_is_found_again(tmp_path: Path) -> None:
    for name in ("journal", "ledgers"):
        (tmp_path / name).mkdir()
    first = Held(tmp_path)
    first.add(0)
    first.storage.close()
    again = Held(tmp_path)
    assert again.storage.look_up(1, 0) == (Code.OK, 0, b"entry 0")
    again.storage.close()


def test_a_journal_that_began_before_the_entry_logs_were_lost_is_not_asked_for(tmp_path: Path) -> None:
    for name in ("journal", "ledgers"):
        (tmp_path / "first" / name).mkdir(parents=True)
    first = Held(tmp_path / "first")
    first.add(0)
    first.storage.checkpoint()  # the first file of the journal goes
    for entry_id in range(1, 7):
        first.add(entry_id)
        until(lambda: first.durable == first.position, "the entry to be durable")
    shutil.copytree(tmp_path / "first", tmp_path / "killed")
    first.storage.close()
    shutil.rmtree(tmp_path / "killed" / "ledgers")
    again = Held(tmp_path / "killed", has_lost_files=True, write_cache_max_size_mb=1 / 4096)  # what it reads is flushed
    shutil.copytree(tmp_path / "killed", tmp_path / "killed again")
    again.storage.close()
    last = Held(tmp_path / "killed again", has_lost_files=True)
    assert last.storage.look_up(1, 6) == (Code.OK, 6, b"entry 6")
    last.storage.close()


def test_without_a_journal_a_last_section_counts_if_all_of_it_can_be_read(tmp_path: Path) -> None:
    for name in ("journal", "ledgers"):
        (tmp_path / name).mkdir()
    first = Held(tmp_path)
    for entry_id in range(2):
        first.add(entry_id)
        first.storage.checkpoint()
    first.storage.close()
    shutil.rmtree(tmp_path / "journal")
    (log,) = (tmp_path / "ledgers").glob("*.log")
    written = log.read_bytes()
    place = written.rindex(b"entry 1")
    log.write_bytes(written[:place] + bytes(len(b"entry 1")))  # its sector was not synced, and the end is cut off
    again = Held(tmp_path, has_lost_files=True)
    assert again.storage.entries_of(1) == [0], "the other one is copied from another bookie"
    again.storage.close()
    last = Held(tmp_path)
    assert last.storage.look_up(1, 0) == (Code.OK, 0, b"entry 0")
    last.storage.close()
