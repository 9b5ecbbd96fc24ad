"""Faults planted in a bookie's storage and the work of its threads, one at a time. The simulator finds each of them.

Rows are as those of :data:`test_planted.PLANTED`.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from campaigns import campaigns_but_every
from ledger.simulation.test_planted import Planted, find_nothing_without, found_by, plant

from fencepost.files.folders import NoRoom
from fencepost.ledger.bookie import lookups
from fencepost.ledger.disk import storage as threads
from fencepost.ledger.disk.collection import Collection
from fencepost.ledger.disk.entry_logs import Bodies, EntryLogs
from fencepost.ledger.disk.journal_files import JournalFiles
from fencepost.ledger.disk.ledger_store import Checkpoint, LedgerStore
from fencepost.ledger.disk.storage import Storage


def _after_failing(original: Any, self: JournalFiles) -> None:
    with contextlib.suppress(OSError):
        original(self)


def _removes_first(original: Any, self: Storage, checkpoint: Checkpoint) -> Any:
    self.journal.remove_before(checkpoint.journal_start)
    yield from original(self, checkpoint)


def _drops_what_is_behind_a_checkpoint(original: Any, self: Storage, queue: Any) -> Any:
    places = [place for place, (_, record) in enumerate(queue) if isinstance(record, Checkpoint)]
    yield from original(self, queue[: places[0] + 1] if places else queue)


def _reports_all_that_is_queued(original: Any, self: Storage, group: Any, single: Any, position: int) -> Any:
    yield from original(self, group, single, 0)
    if position:
        self.synced(max([position, *(at for at, _ in self._queue)]))


def _passes_over_what_has_no_room(original: Any, self: Storage, name: str, work: Any) -> Any:
    def tried() -> Any:
        try:
            return work()
        except NoRoom:
            return self.journal.number

    return (yield from original(self, name, tried))


def _forgets_states(original: Any, self: LedgerStore) -> Checkpoint:
    checkpoint: Checkpoint = original(self)
    checkpoint.states = []
    return checkpoint


def _needs_no_journal_once_replayed(original: Any, self: Storage) -> None:
    original(self)
    self._logs.journal_start = self._recovered.number + 1


def _keeps_all_but_one(original: Any, self: Collection, chosen: Any) -> Any:
    bodies = {ledger: dict(entries) for ledger, entries in original(self, chosen)._bodies.items()}
    for entries in bodies.values():
        entries.pop(max(entries))
    return Bodies({ledger: entries for ledger, entries in bodies.items() if entries})


def _calls_back_at_once(original: Any, self: Storage, done: Any, always: bool = False) -> None:
    original(self, lambda: None, always)
    done()


def _in_another_order(original: Any, *arguments: Any) -> Any:
    code, bodies = original(*arguments)
    return code, bodies[::-1]


def _lists_one_more(original: Any, entry_ids: Any) -> Any:
    return original([*entry_ids, entry_ids[-1] + 1] if len(entry_ids) else entry_ids)


def _reads_all_that_follows(original: Any, files: Any, start: int) -> Any:
    return replace(original(files, start), first=0)


PLANTED = [
    # -- the worker of the journal
    Planted("records are reported before they are synced", JournalFiles, "sync", lambda f, self: None, seed=9),
    Planted("a sync that failed is taken for done", JournalFiles, "sync", _after_failing, profile="disks", seed=12),
    Planted("a group reports what is queued behind it", Storage, "_write_group", _reports_all_that_is_queued, seed=51),
    Planted(
        "records that are queued behind a checkpoint are lost",
        Storage,
        "_write_queued",
        _drops_what_is_behind_a_checkpoint,
        seed=26,
    ),
    Planted(
        "what has no room is passed over",
        Storage,
        "_with_room",
        _passes_over_what_has_no_room,
        profile="disks",
        seed=210,
    ),
    Planted(
        "records are found once they are durable, and not before",
        LedgerStore,
        "apply",
        lambda f, self, record: None,
        seed=5,
    ),
    # -- the worker of checkpoints
    Planted("a checkpoint is not synced", EntryLogs, "sync", lambda f, self, section: None, seed=4),
    Planted("the journal is removed before a checkpoint is written", Storage, "_write", _removes_first, seed=112),
    Planted(
        "one file of the journal too many is removed",
        JournalFiles,
        "remove_before",
        lambda f, self, start: f(self, start + 1),
    ),
    Planted("a checkpoint leaves out what is known of ledgers", LedgerStore, "swap", _forgets_states, seed=13),
    Planted(
        "what is being flushed is not found",
        LedgerStore,
        "cached",
        lambda f, self, ledger, entry_id: self.cache.get(ledger, entry_id),
        seed=51,
    ),
    Planted(
        "a checkpoint is told to be done when it begins",
        Storage,
        "begin_checkpoint",
        _calls_back_at_once,
        profile="no-journal",
        seed=24,
    ),
    # -- starts
    Planted(
        "the journal is not needed once it was replayed",
        Storage,
        "_flush_replayed",
        _needs_no_journal_once_replayed,
        seed=9,
    ),
    Planted(
        "without its entry logs, a bookie relies on a journal that is gone",
        threads,
        "read_partial_journal",
        _reads_all_that_follows,
        profile="no-journal",
        seed=6327,
    ),
    # -- what is looked up
    Planted("a batch has its entries in another order", lookups, "batch", _in_another_order, seed=3),
    Planted("a list has an entry too many", lookups, "runs_of", _lists_one_more, seed=9),
    # -- garbage
    Planted("a compaction leaves an entry out", Collection, "_read", _keeps_all_but_one, seed=8),
]


@pytest.mark.parametrize("fault", campaigns_but_every(3, PLANTED), ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(fault, monkeypatch)
    assert found_by(fault) is not None


def test_without_a_fault_the_same_seeds_find_nothing() -> None:
    find_nothing_without(PLANTED)
