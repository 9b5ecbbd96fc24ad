"""A storage with its threads on real files: it keeps what it confirmed, whatever fails."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from faulty_files import Fault, FaultyFiles, failing
from patience import PATIENCE, until

from fencepost.errors import SystemFailure
from fencepost.files.folders import Files, NoRoom, OsFiles, Room, ShortWrite
from fencepost.ledger.disk import storage
from fencepost.ledger.disk.inspect import inspect
from fencepost.ledger.disk.journal import framed
from fencepost.ledger.disk.records import encode
from fencepost.ledger.disk.reserve import LEAST
from fencepost.ledger.disk.settings import StorageSettings
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.records import EntryAdded, LacWritten, LedgerFenced, LimboChanged, MasterKeyLearnt, Record
from fencepost.ledger.rules.codes import Code


class Driver:
    """Drives a storage and records its notices."""

    def __init__(self, folder: Path, fault: Fault | None = None, **settings: object) -> None:
        self.position = 0
        self.confirmed = 0
        self.reasons: list[str] = []
        self.busy: list[bool] = []
        self.full: list[bool] = []
        small = {"journal_pre_alloc_size_mb": 1, "write_cache_max_size_mb": 1, "log_size_limit": 1 << 20}
        has_room = {"disk_usage_threshold": 0.999, "disk_usage_lwm_threshold": 0.999}  # as full as this disk may be
        self.settings = StorageSettings(
            journal_directory=str(folder / "journal"),
            ledger_directory=str(folder / "ledgers"),
            **{**small, **has_room, **settings},  # type: ignore[arg-type]
        )
        files: dict[str, Files] = {}
        if fault is not None:
            files["journal_files"] = FaultyFiles(OsFiles(self.settings.journal_directory), fault)
            files["ledger_files"] = FaultyFiles(OsFiles(self.settings.ledger_directory), fault)
        self.storage = Storage(
            self.settings,
            synced=self._synced,
            failed=self.reasons.append,
            busy=self.busy.append,
            full=self.full.append,
            **files,  # type: ignore[arg-type]
        )
        self.replayed: list[Record] = []
        for record in self.storage.records():
            assert type(record) is not EntryAdded
            self.replayed.append(record)
        self.storage.start()

    def _synced(self, position: int) -> None:
        assert position > self.confirmed and not self.reasons
        self.confirmed = position

    def write(self, record: Record) -> None:
        self.position += 1
        self.storage.take([(self.position, record)])

    def add(self, ledger: int, entry_id: int, body: bytes) -> None:
        self.write(EntryAdded(ledger, entry_id, entry_id - 1, body))

    def settle(self) -> None:
        until(lambda: self.confirmed == self.position or self.reasons, "the journal")

    def read(self, ledger: int, entry_id: int) -> tuple[Code, bytes | None]:
        code, _, body = self.storage.look_up(ledger, entry_id)
        return code, body


Opened = Callable[..., Driver]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Open storages in one folder, and close them at the end."""
    made: list[Driver] = []

    def open_one(fault: Fault | None = None, **settings: object) -> Driver:
        made.append(Driver(tmp_path, fault, **settings))
        return made[-1]

    yield open_one
    for driver in made:
        driver.storage.close()


def body_of(ledger: int, entry_id: int, size: int = 900) -> bytes:
    return (b"%d/%d " % (ledger, entry_id)).ljust(size, b".")


def test_what_was_stored_is_there_after_a_restart_and_so_is_what_is_known_of_ledgers(opened: Opened) -> None:
    driver = opened()
    known: list[Record] = [
        MasterKeyLearnt(2, b"k" * 20),
        LedgerFenced(2),
        LimboChanged(3, True),
        LacWritten(4, 7, b"told"),
        LedgerFenced(3),
        LimboChanged(3, False),
    ]
    for record in known:
        driver.write(record)
    for entry_id in range(2_000):
        for ledger in (1, 2):
            driver.add(ledger, entry_id, body_of(ledger, entry_id))
    driver.add(1, 5, b"once more")
    driver.settle()
    for _ in range(2):
        assert driver.read(1, 5) == (Code.OK, b"once more")
        assert driver.storage.look_up(2, -1) == (Code.OK, 1_999, body_of(2, 1_999))
        assert driver.read(2, 2_000) == driver.read(9, 0) == (Code.NO_ENTRY, None)
        assert driver.storage.look_up(9, -1) == (Code.NO_ENTRY, -1, None)
        assert driver.storage.entries_of(1) == list(range(2_000))
        assert driver.storage.ledgers() == [1, 2, 3, 4]
        for entry_id in range(6, 2_000, 97):
            assert driver.read(1, entry_id) == (Code.OK, body_of(1, entry_id))
        driver.storage.close()
        driver = opened()
    known_of_2 = [record for record in driver.replayed if record.ledger == 2 and type(record) is not EntryAdded]
    assert {MasterKeyLearnt(2, b"k" * 20), LedgerFenced(2), LacWritten(2, 1_998, b"")} <= {*known_of_2}
    assert LacWritten(4, 7, b"told") in driver.replayed and LimboChanged(3, False) in driver.replayed


def test_a_second_bookie_does_not_get_the_directories(opened: Opened, tmp_path: Path) -> None:
    driver = opened()
    with pytest.raises(SystemFailure, match="in use by another bookie"):
        opened()
    driver.storage.close()
    opened()


@pytest.mark.parametrize(
    "fault",
    [
        failing("append", ".journal", OSError(errno.EIO, "broken"), after=6),
        failing("append", ".journal", ShortWrite("", 0, 0), after=6),
        failing("sync", ".journal", OSError(errno.EIO, "broken"), after=9),
        failing("append", ".journal", OSError(errno.ENOSPC, "no room"), after=4),
        failing("append", ".log", OSError(errno.EIO, "broken"), after=2),
        failing("sync", ".log", OSError(errno.EIO, "broken"), after=2),
        failing("create", ".journal", OSError(errno.ENOSPC, "no room"), after=1),
        failing("rename", ".journal", OSError(errno.EROFS, "read-only")),
        failing("rename", ".spare", OSError(errno.EROFS, "read-only")),
    ],
)
def test_what_fails_is_told_once_and_nothing_that_was_confirmed_is_lost(opened: Opened, fault: Fault) -> None:
    driver = opened(fault)
    written = 0
    while not driver.reasons:
        for _ in range(50):
            driver.add(1, written, body_of(1, written))
            written += 1
        until(lambda: driver.confirmed == driver.position or driver.reasons, "the journal")
    driver.add(1, written, body_of(1, written))
    driver.storage.close()
    assert len(driver.reasons) == 1 and "\n" not in driver.reasons[0]
    confirmed = driver.confirmed
    again = opened()
    for entry_id in range(confirmed):
        assert again.read(1, entry_id) == (Code.OK, body_of(1, entry_id))
    again.add(1, 10**6, b"goes on")
    again.settle()
    assert again.read(1, 10**6) == (Code.OK, b"goes on")


@pytest.mark.parametrize("suffix", [".journal", ".log"])
def test_what_finds_no_room_and_no_reserve_waits_for_it(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    has_room = threading.Event()
    has_room.set()

    def full(operation: str, name: str) -> BaseException | None:
        return NoRoom(name) if operation in ("preallocate", "create") and not has_room.is_set() else None

    def only(operation: str, name: str) -> BaseException | None:
        return full(operation, name) if name.endswith(suffix) else None

    monkeypatch.setattr(storage, "PATIENCE", 0.01)
    driver = opened(only, disk_check_interval=10)
    driver.add(1, 0, body_of(1, 0))
    driver.settle()
    has_room.clear()
    entry_id = 0
    while not driver.full:  # more than a file of the journal, and than the cache
        entry_id += 1
        driver.add(1, entry_id, body_of(1, entry_id))
    time.sleep(0.1)  # some looks at the room, which the disk has
    assert driver.full == [True] and driver.read(1, entry_id) == (Code.OK, body_of(1, entry_id)), "readers go on"
    has_room.set()
    driver.settle()
    driver.storage.checkpoint()
    until(lambda: driver.full == [True, False], "room again")
    assert not driver.reasons
    has_room.clear()
    driver.write(LedgerFenced(1))
    driver.settle()
    assert driver.storage.close() is (suffix != ".log"), "it ends; the journal has a spare file"
    assert not driver.reasons
    again = opened()
    assert LedgerFenced(1) in again.replayed
    assert all(again.read(1, each) == (Code.OK, body_of(1, each)) for each in range(entry_id + 1))


def test_a_sync_is_told_before_the_next_file_of_the_journal_proves_it(opened: Opened) -> None:
    driver = opened(
        failing("create", ".journal", OSError(errno.ENOSPC, "no room"), after=1),
        journal_max_size_mb=1,
        write_cache_max_size_mb=16,
    )
    for entry_id in range(4):
        driver.add(1, entry_id, body_of(1, entry_id, 300_000))
        driver.settle()
    until(lambda: driver.reasons, "the end of the storage")
    assert driver.confirmed == 4, "what is in the file that is full was synced"


def test_a_full_cache_is_told_while_the_other_half_is_written_and_all_is_stored_all_the_same(
    opened: Opened,
) -> None:
    go_on = threading.Event()

    def slow(operation: str, name: str) -> None:
        if operation == "sync" and name.endswith(".log") and driver_ready.is_set():
            assert go_on.wait(PATIENCE)

    driver_ready = threading.Event()
    driver = opened(slow)
    driver_ready.set()
    entry_id = 0
    while not driver.busy:
        driver.add(1, entry_id, body_of(1, entry_id))
        entry_id += 1
    for _ in range(100):
        driver.add(1, entry_id, body_of(1, entry_id))
        entry_id += 1
    assert driver.busy == [True]
    driver.settle()
    go_on.set()
    until(lambda: driver.busy[-1] is False, "room in the cache")
    assert all(driver.read(1, each) == (Code.OK, body_of(1, each)) for each in range(entry_id))


def test_a_deleted_ledger_is_not_found_and_its_room_is_given_back(opened: Opened) -> None:
    driver = opened(major_compaction_interval=0, compaction_rate_by_bytes=1 << 30)
    for entry_id in range(1_500):
        for ledger in (1, 2):
            driver.add(ledger, entry_id, body_of(ledger, entry_id))
    driver.settle()
    driver.storage.checkpoint()
    logs = Path(driver.settings.ledger_directory)
    before = sum(path.stat().st_size for path in logs.glob("*.log"))
    driver.storage.forget(1)
    assert driver.read(1, 3) == (Code.NO_ENTRY, None) and driver.storage.entries_of(1) == []
    assert driver.storage.collect().removed
    assert sum(path.stat().st_size for path in logs.glob("*.log")) < 0.6 * before
    driver.storage.close()
    again = opened()
    assert again.read(1, 3) == (Code.NO_ENTRY, None) and again.storage.ledgers() == [2]
    assert all(again.read(2, each) == (Code.OK, body_of(2, each)) for each in range(1_500))


def test_a_disk_that_is_full_is_told_and_so_is_room_again(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = [0.5]
    total = 1_000 * LEAST
    monkeypatch.setattr(OsFiles, "room", lambda self: Room(total, round(total * (1 - usage[0]))))
    driver = opened(disk_check_interval=10, disk_usage_threshold=0.95, disk_usage_lwm_threshold=0.9)
    for share, told in ((0.98, [True]), (0.95, [True]), (0.8, [True, False])):  # 2.5 % are the reserve
        usage[0] = share
        until(lambda: driver.full == told, "what is told of the disk")
    assert not driver.reasons


def test_without_the_journal_entries_are_durable_from_a_checkpoint_on(opened: Opened) -> None:
    driver = opened(journal_write_data=False)
    for entry_id in range(50):
        driver.add(1, entry_id, b"body")
    driver.write(LedgerFenced(1))
    driver.settle()
    driver.storage.checkpoint()
    driver.storage.close()
    again = opened(journal_write_data=False)
    assert again.storage.entries_of(1) == list(range(50))
    assert LedgerFenced(1) in again.replayed


def test_a_ledger_of_which_only_entries_are_left_is_listed_so_that_it_can_be_forgotten(opened: Opened) -> None:
    driver = opened()
    driver.add(1, 0, b"left")
    driver.add(2, 0, b"other")
    driver.storage.checkpoint()
    driver.storage.ledger_store.states.pop(1)  # as after a compaction of the entry log that said of its deletion
    assert driver.storage.ledgers() == [1, 2]
    driver.storage.forget(1)
    assert driver.storage.ledgers() == [2]


def test_reads_go_on_while_entry_logs_are_written_compacted_and_removed(opened: Opened) -> None:
    driver = opened(major_compaction_interval=0, compaction_rate_by_bytes=1 << 30)
    for entry_id in range(1_000):
        driver.add(1, entry_id, body_of(1, entry_id))
    wrong: list[object] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            for entry_id in range(0, 1_000, 7):
                found = driver.read(1, entry_id)
                if found != (Code.OK, body_of(1, entry_id)):
                    wrong.append((entry_id, found))
                    return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for ledger in range(2, 6):
        for entry_id in range(500):
            driver.add(ledger, entry_id, body_of(ledger, entry_id))
        driver.settle()
        driver.storage.checkpoint()
        driver.storage.forget(ledger)
        driver.storage.collect()
    ended.set()
    for reader in readers:
        reader.join()
    assert not wrong and not driver.reasons


def test_a_bookie_that_runs_can_be_inspected(opened: Opened) -> None:
    driver = opened(major_compaction_interval=0, compaction_rate_by_bytes=1 << 30)
    last = 0
    for step in range(12):
        for entry_id in range(200):
            driver.add(1, 200 * step + entry_id, body_of(1, entry_id))
        if step % 3 == 2:
            driver.storage.checkpoint()
            driver.storage.collect()
        driver.settle()
        found = inspect(driver.settings.journal_directory, driver.settings.ledger_directory, verify=True)
        assert not found.problems
        assert found.ledgers[0].entries >= last
        last = found.ledgers[0].entries
    assert last == driver.position and not driver.reasons


def test_what_is_missing_is_said_in_one_line(opened: Opened) -> None:
    driver = opened()
    for entry_id in range(1_200):
        driver.add(1, entry_id, body_of(1, entry_id))
    driver.settle()
    driver.storage.close()
    next(Path(driver.settings.journal_directory).glob("*.journal")).unlink()
    with pytest.raises(SystemFailure, match="journal file [0-9]+ is missing.*see to its disk") as refusal:
        opened()
    assert "\n" not in str(refusal.value)


def rows_of(*added: tuple[int, int, int, bytes]) -> EntryRows:
    """Entries as rows: ledger, entry id, LAC and body of each."""
    records = [encode(EntryAdded(*each)) for each in added]
    ends = np.cumsum([4 + len(record) for record in records])
    table = [(*each[:3], end - len(each[3]), len(each[3])) for each, end in zip(added, ends, strict=True)]
    return EntryRows(np.frombuffer(bytearray(framed(records)), np.uint8), np.array(table, np.int64))


def test_entries_that_arrived_together_are_journalled_and_stored_as_single_ones_are(opened: Opened) -> None:
    driver = opened(journal_buffered_entries_threshold=3)
    fence, single = LedgerFenced(2), EntryAdded(1, 3, 9, body_of(1, 3))
    first = rows_of((1, 0, -1, body_of(1, 0)), (1, 1, 0, b"short"), (2, 7, 5, body_of(2, 7)))
    second = rows_of((1, 2, 4, body_of(1, 2)), (1, 1, 4, b"once more"))
    driver.storage.take([(1, fence), (4, first), (5, single), (7, second)])
    driver.position = 7
    driver.settle()
    assert not driver.reasons
    for _ in range(3):  # out of the cache, the journal, and an entry log
        assert [driver.read(1, entry_id)[1] for entry_id in range(4)] == [
            body_of(1, 0),
            b"once more",
            body_of(1, 2),
            body_of(1, 3),
        ]
        assert driver.read(2, 7) == (Code.OK, body_of(2, 7))
        assert driver.storage.look_up(1, -1)[1] == 3
        states = driver.storage.ledger_store.states
        assert (states[1].lac, states[2].lac, states[2].fenced) == (9, 5, True)
        driver.storage.close()
        driver = opened()


@pytest.mark.parametrize(("most", "groups"), [(8 << 20, 1), (4_000, 3)])
def test_a_group_of_the_journal_has_no_more_bytes_than_it_may(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, most: int, groups: int
) -> None:
    """Everything that arrived together is one group, unless it is too much."""
    monkeypatch.setattr(storage, "GROUP", most)
    driver = opened(journal_buffered_writes_threshold=1)
    synced: list[int] = []
    sync = driver.storage.journal.sync

    def counted() -> None:
        synced.append(driver.storage.journal.end)
        sync()

    monkeypatch.setattr(driver.storage.journal, "sync", counted)
    driver.storage.take([(each + 1, rows_of((1, each, -1, bytes(3_000)))) for each in range(6)])
    until(lambda: driver.confirmed == 6, "the confirmation")
    assert len(synced) - 1 <= groups <= len(synced)  # an empty group may have come already, which proves the last one
    assert driver.read(1, 5) == (Code.OK, bytes(3_000))


def test_a_write_of_rows_that_fails_confirms_nothing(opened: Opened) -> None:
    driver = opened(failing("append", ".journal", ShortWrite("", 1, 2), after=1))
    driver.storage.take([(2, rows_of((1, 0, -1, b"one"), (1, 1, 0, b"two")))])
    until(lambda: driver.reasons, "the failure")
    assert driver.confirmed == 0


def test_without_data_in_the_journal_rows_are_confirmed_and_not_written(opened: Opened) -> None:
    driver = opened(journal_write_data=False)
    driver.storage.take([(2, rows_of((1, 0, -1, b"one"), (1, 1, 0, b"two")))])
    until(lambda: driver.confirmed == 2, "the confirmation")
    assert driver.read(1, 1) == (Code.OK, b"two")
    assert all(b"two" not in file.read_bytes() for file in Path(driver.settings.journal_directory).glob("*.journal"))


def test_without_data_in_the_journal_adds_of_recoveries_are_in_it(opened: Opened) -> None:
    driver = opened(journal_write_data=False)
    written_back = rows_of((1, 0, -1, b"one"), (1, 1, 0, b"two"))
    driver.storage.take([(2, EntryRows(written_back.data, written_back.table, recovery=True))])
    driver.storage.take([(3, EntryAdded(1, 2, 1, b"three", recovery=True)), (4, EntryAdded(1, 3, 2, b"four"))])
    until(lambda: driver.confirmed == 4, "the confirmation")
    journal = b"".join(file.read_bytes() for file in Path(driver.settings.journal_directory).glob("*.journal"))
    assert b"one" in journal and b"two" in journal and b"three" in journal and b"four" not in journal


@pytest.mark.parametrize("last", [[10] * 4, [2_000]], ids=["records", "bytes"])
def test_a_group_waits_for_half_as_many_records_as_the_last_or_for_bytes(opened: Opened, last: list[int]) -> None:
    syncs, go_on = [0], threading.Event()

    def hold(operation: str, name: str) -> None:
        if operation == "sync" and name.endswith(".journal"):
            syncs[0] += 1
            go_on.wait(PATIENCE)

    go_on.set()
    driver = opened(hold, journal_max_group_wait_msec=1e9, journal_buffered_writes_threshold=2_000)
    driver.settle()
    go_on.clear()
    before = syncs[0]
    driver.storage.take([(number, EntryAdded(1, number, number - 1, b"first")) for number in range(1, 11)])
    driver.position = 10
    until(lambda: syncs[0] > before, "the sync of the first group")
    driver.add(1, 11, b"more")
    go_on.set()
    until(lambda: driver.confirmed == 10, "the first group")
    for number, size in enumerate(last, 12):
        assert driver.confirmed == 10
        driver.add(1, number, bytes(size))
    driver.settle()
