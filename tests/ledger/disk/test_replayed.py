"""Replaying the journal by rows leaves a bookie's role and write cache as replaying it record by record does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.files.folders import OsFiles
from fencepost.ledger.disk.journal import framed
from fencepost.ledger.disk.journal_files import JournalFiles, read_journal
from fencepost.ledger.disk.records import decode_rows, encode
from fencepost.ledger.disk.settings import StorageSettings
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.kernels.entries import ENTRY_ID, LAC, LEDGER, EntryRows
from fencepost.ledger.records import EntryAdded, LacWritten, LedgerFenced, LimboChanged, MasterKeyLearnt, Record
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.roles.interface import Replayed
from fencepost.ledger.rules.codes import Code

ids = st.integers(0, 3)
entries = st.builds(EntryAdded, ids, ids, st.integers(-1, 5), st.binary(max_size=5))
others = st.one_of(
    st.builds(MasterKeyLearnt, ids, st.binary(max_size=3)),
    st.builds(LedgerFenced, ids),
    st.builds(LacWritten, ids, st.integers(-1, 5), st.binary(max_size=3)),
    st.builds(LimboChanged, ids, st.booleans()),
)
records = st.lists(st.one_of(entries, entries, entries, others), max_size=12)


def objects(replayed: Record | EntryRows) -> list[Record]:
    if not isinstance(replayed, EntryRows):
        return [replayed]
    rows = replayed.table[:, [LEDGER, ENTRY_ID, LAC]].tolist()
    return [EntryAdded(ledger, entry_id, lac, replayed.body(row)) for row, (ledger, entry_id, lac) in enumerate(rows)]


def by_ledger(some: list[Record]) -> dict[int, list[Record]]:
    return {ledger: [record for record in some if record.ledger == ledger] for ledger in range(4)}


@given(records)
def test_rows_are_the_records_of_each_ledger_in_their_order(written: list[Record]) -> None:
    replayed = [
        record for part in decode_rows(framed([encode(record) for record in written])) for record in objects(part)
    ]
    assert by_ledger(replayed) == by_ledger(written)


@given(records, st.data())
def test_what_is_no_record_is_an_error(written: list[Record], data: st.DataObject) -> None:
    wrong = data.draw(st.sampled_from([b"", b"\x07", b"\x00" * 24, b"\x01\xff"]))
    group = framed([*(encode(record) for record in written), wrong])
    with pytest.raises(ValueError, match=r"."):
        list(decode_rows(group))


def settings(folder: Path) -> StorageSettings:
    return StorageSettings(journal_directory=str(folder), ledger_directory=str(folder), write_cache_max_size_mb=1)


@pytest.mark.parametrize("size", [3, 9_000])
def test_a_bookie_has_what_was_in_its_journal(tmp_path: Path, size: int) -> None:
    files = OsFiles(str(tmp_path))
    storage = Storage(settings(tmp_path))
    list(storage.records())
    storage.start()
    storage.close()
    journal = JournalFiles(files, read_journal(files, storage._logs.journal_start))
    written: list[Record] = [MasterKeyLearnt(1, b"key"), LimboChanged(3, True)]
    for number in range(200):
        written += [EntryAdded(ledger, number, number - ledger, b"%d" % number * size) for ledger in (1, 2)]
        if number == 100:
            written += [LedgerFenced(1), LacWritten(2, 150, b"told")]
    for start in range(0, len(written), 30):
        journal.write([encode(record) for record in written[start : start + 30]])
        journal.sync()
    expected, role = Bookie(), Bookie()
    for record in written:
        known = LacWritten(record.ledger, record.lac, b"") if isinstance(record, EntryAdded) else record
        expected.receive(Replayed(known), 0)
    storage = Storage(settings(tmp_path))
    for record in storage.records():
        assert not role.receive(Replayed(record), 0), "entries are the storage's"
    storage.start()
    ledgers = {
        ledger: (of.lac, of.fenced, of.limbo, of.master_key, of.lac_body) for ledger, of in expected.ledgers.items()
    }
    assert {
        ledger: (of.lac, of.fenced, of.limbo, of.master_key, of.lac_body) for ledger, of in role.ledgers.items()
    } == ledgers
    for record in written:
        if isinstance(record, EntryAdded):
            assert storage.look_up(record.ledger, record.entry_id) == (Code.OK, record.entry_id, record.body)
    storage.close()
    again = Bookie()
    storage = Storage(settings(tmp_path))
    for record in storage.records():
        again.receive(Replayed(record), 0)
    storage.start()
    assert {ledger: (of.lac, of.fenced, of.limbo, of.master_key) for ledger, of in again.ledgers.items()} == {
        ledger: of_ledger[:4] for ledger, of_ledger in ledgers.items()
    }
    assert storage.entries_of(1) == storage.entries_of(2) == list(range(200))
    storage.close()
