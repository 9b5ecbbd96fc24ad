"""A storage that is opened again has what it had, and goes on as a new one does."""

from __future__ import annotations

import shutil
from pathlib import Path

from patience import until

from fencepost.store.disk.settings import StorageSettings
from fencepost.store.disk.storage import Storage
from fencepost.store.records import EntryAdded
from fencepost.store.rules.codes import Code


class Held:
    """A storage, and how far its journal is durable."""

    def __init__(self, directory: Path) -> None:
        self.durable = 0
        settings = StorageSettings(
            journal_directory=str(directory / "journal"), ledger_directory=str(directory / "ledgers")
        )
        self.storage = Storage(settings, synced=self._synced)
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
    assert not len(last._ledgers.cache), "all is in entry logs"


def test_what_was_there_is_found_again(tmp_path: Path) -> None:
    for name in ("journal", "ledgers"):
        (tmp_path / name).mkdir()
    first = Held(tmp_path)
    first.add(0)
    first.storage.close()
    again = Held(tmp_path)
    assert again.storage.look_up(1, 0) == (Code.OK, 0, b"entry 0")
    again.storage.close()
