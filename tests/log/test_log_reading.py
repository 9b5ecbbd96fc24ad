"""Readers of logs: where they begin, what they do when a log is trimmed, and how many reads that takes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from log.standing_logs import Standing

from fencepost.api.client import Client
from fencepost.errors import OptionError
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.reader import LedgerReader
from fencepost.ledger.errors import IllegalOperationError
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.log import chain as chains
from fencepost.log.chain import EARLIEST, LATEST, Chain, Link, Position
from fencepost.log.entries import framed
from fencepost.log.errors import LogFormatError, LogTrimmedError, MissingLedgerError
from fencepost.log.log import Log
from fencepost.log.metadata import LogNodes
from fencepost.log.reader import LogEntry


async def log_of(store: Client, ledgers: list[list[int]], name: str = "orders") -> Log:
    """A log whose entries were appended at these times, ledger by ledger. The data of each entry is its time."""
    log = store.log(name)
    await log.create()
    links, latest = [], 0
    for times in ledgers:
        async with store.create_ledger(custom_metadata={"log": name.encode()}) as ledger:
            await ledger.append_many(framed(b"%d" % time, time) for time in times)
        links.append(Link(ledger.id, times[0] if times else latest))
        latest = times[-1] if times else latest
    nodes = LogNodes(store.metadata, name)
    await nodes.write((await log.chain()).replace(links=tuple(links)), 0)
    return log


async def contents(log: Log, at: Any = EARLIEST, **options: Any) -> list[int]:
    return [int(entry.data) async for entry in log.reader(at, follow=False, **options)]


async def test_a_reader_begins_where_it_is_told(cluster: Standing) -> None:
    store = await cluster.connect()
    log = await log_of(store, [[10, 20, 30], [], [40, 40, 50], [50, 60], []])
    first, empty, second, third, last = (link.ledger for link in (await log.chain()).links)
    everything = [10, 20, 30, 40, 40, 50, 50, 60]
    assert await contents(log) == everything and await contents(log, LATEST) == []
    assert await contents(log, Position(first, 1)) == everything[1:]
    assert await contents(log, Position(first, 3)) == everything[3:], "behind the end of a ledger comes the next one"
    assert await contents(log, Position(empty, 0)) == everything[3:]
    assert await contents(log, Position(third, 7)) == []
    for time in range(65):
        assert await contents(log, time) == [each for each in everything if each >= time], time
    assert await contents(log, datetime.fromtimestamp(0.045, UTC)) == [50, 50, 60]
    with pytest.raises(OptionError, match="has no time zone"):
        log.reader(datetime(2026, 1, 1))
    with pytest.raises(LogTrimmedError, match="ledger 999 is not in the log orders"):
        await contents(log, Position(999, 0))
    assert await contents(log, Position(999, 0), on_trimmed="skip") == everything
    assert [len(batch) async for batch in log.reader(follow=False).read_batches()] == [3, 3, 2]
    assert await log.find(45) == Position(second, 2) and await log.find(LATEST) == Position(last, 0)


async def test_a_time_is_found_in_a_logarithmic_number_of_reads(
    cluster: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await cluster.connect()
    log = await log_of(store, [[*range(start, start + 1000)] for start in range(0, 5000, 1000)])
    links = (await log.chain()).links
    read: list[int] = []
    opened: list[int] = []
    real_read, real_open = LedgerReader.read_entry, LedgerClient.open_ledger

    async def read_entry(reader: LedgerReader, entry_id: int) -> bytes:
        read.append(entry_id)
        return await real_read(reader, entry_id)

    def open_ledger(store: LedgerClient, ledger: int, **options: Any) -> Any:
        opened.append(ledger)
        return real_open(store, ledger, **options)

    monkeypatch.setattr(LedgerReader, "read_entry", read_entry)
    monkeypatch.setattr(LedgerClient, "open_ledger", open_ledger)
    for time in (0, 1, 999, 1000, 2345, 4999, 5000):
        read.clear()
        opened.clear()
        at = await log.find(time)
        assert len(read) <= 11 and len(opened) <= 1, (time, read, opened)
        assert at == (
            Position(links[time // 1000].ledger, time % 1000) if time < 5000 else Position(links[-1].ledger, 1000)
        )


async def test_trimming_changes_the_list_then_deletes_and_reads_no_ledger(
    cluster: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await cluster.connect()
    log = await log_of(store, [[start, start + 1] for start in range(0, 100, 10)])
    ids = [link.ledger for link in (await log.chain()).links]
    monkeypatch.setattr(LedgerClient, "open_ledger", None)
    several: tuple[dict[str, Any], ...] = ({}, {"before": 1, "keep": 1}, {"keep": 0})
    for wrong in several:
        with pytest.raises(OptionError):
            await log.trim(**wrong)
    assert await log.trim(before=Position(ids[1], 1)) == (ids[0],)
    assert await log.trim(before=30) == (ids[1], ids[2])
    assert await log.trim(before=30) == ()
    assert await log.trim(before=datetime.fromtimestamp(0.041, UTC)) == (ids[3],)
    assert await log.trim(keep=4) == (ids[4], ids[5])
    assert await log.trim(keep=100) == ()
    assert (await log.show()).chain.trimmed == 6 and (await log.show()).unremoved == ()
    assert [ledger async for ledger in store.list_ledgers()] == ids[6:]
    # The first trim ends after it changed the list. The next one deletes what is left.
    deleting = MetadataClient.delete_ledger
    monkeypatch.setattr(MetadataClient, "delete_ledger", None)
    with pytest.raises(TypeError):
        await log.trim(keep=2)
    assert (await log.show()).unremoved == (ids[6], ids[7])
    monkeypatch.setattr(MetadataClient, "delete_ledger", deleting)
    assert await log.trim(keep=2) == () and (await log.show()).unremoved == ()
    assert [ledger async for ledger in store.list_ledgers()] == ids[8:]
    # The record of a trim that did not change the list deletes nothing.
    await LogNodes(store.metadata, "orders").create_trim((ids[8],))
    assert await log.trim(keep=2) == ()
    assert [ledger async for ledger in store.list_ledgers()] == ids[8:]
    assert await log.trim(keep=timedelta(days=1)) == (ids[8],), "the last ledger stays, however old it is"
    assert [ledger async for ledger in store.list_ledgers()] == ids[9:]


async def test_a_reader_of_what_is_trimmed_says_so_or_skips(cluster: Standing) -> None:
    store = await cluster.connect()
    log = await log_of(store, [[1, 2], [3, 4], [5, 6], [7, 8]])
    other = (await cluster.connect()).log("orders")
    strict, lenient, behind = other.reader(), other.reader(on_trimmed="skip"), other.reader()
    strict_entries, lenient_entries, behind_entries = (each.__aiter__() for each in (strict, lenient, behind))
    for entries in (strict_entries, lenient_entries, behind_entries):
        assert int((await anext(entries)).data) == 1
    assert [int((await anext(entries)).data) for entries in [behind_entries]] == [2]
    await log.trim(keep=3)
    assert int((await anext(behind_entries)).data) == 3, "it had read all of what was trimmed, so it misses nothing"
    await log.trim(keep=1)
    rest = [int((await anext(lenient_entries)).data) for _ in range(3)]
    assert rest == [2, 7, 8], "a batch that was read is given"
    assert int((await anext(strict_entries)).data) == 2
    with pytest.raises(LogTrimmedError, match="was trimmed"):
        await anext(strict_entries)
    for reader in (strict, lenient, behind):
        await reader.close()


async def test_a_ledger_of_a_log_is_deleted_only_by_its_log(cluster: Standing) -> None:
    store = await cluster.connect()
    log = await log_of(store, [[1]])
    ledger = (await log.chain()).links[0].ledger
    for wrong in (None, "others"):
        with pytest.raises(IllegalOperationError, match=f"ledger {ledger} is of the log orders, where its entries"):
            await store.delete_ledger(ledger, of_log=wrong)
    async with store.create_ledger() as other:
        pass
    with pytest.raises(IllegalOperationError, match="is not of the log orders"):
        await store.delete_ledger(other.id, of_log="orders")
    await store.delete_ledger(other.id)
    assert await contents(log) == [1]


async def test_nobody_writes_to_a_log_with_missing_ledgers_unasked(
    cluster: Standing, caplog: pytest.LogCaptureFixture
) -> None:
    log = await cluster.new_log()
    store = log.store
    async with log.writer(ledger_entries=1) as writer:
        positions = await writer.append_many(b"%d" % number for number in range(5))
    ids = [each.ledger for each in positions]
    batches = log.batches("nightly")
    part = batches.part(1)
    await part.append([b"6"])
    parts = [await part.close()]
    for ledger in (ids[1], ids[2], ids[4]):
        await store.delete_ledger(ledger, of_log="orders")
    gone = f"the entries from {ids[1]}:0 up to {ids[3]}:0 and from {ids[4]}:0 on are gone"
    for refused in (log.writer().opened, lambda: batches.attach(1, parts)):
        with pytest.raises(MissingLedgerError, match=f"3 ledgers of the log orders are missing.*{gone}"):
            await refused()
    assert gone not in caplog.text
    async with log.writer(despite_missing=True) as writer:
        await writer.append(b"5")
    assert gone in caplog.text
    assert await batches.attach(1, parts, despite_missing=True)
    assert await contents(log, on_trimmed="skip") == [0, 3, 5, 6]
    assert [int(entry.data) async for entry in log.reader(LATEST, follow=False)] == []
    caplog.clear()
    assert await log.trim(before=positions[3]) == tuple(ids[:3])
    assert f"ledger {ids[4]} of the log orders is missing" in caplog.text
    assert await log.trim(keep=2) == tuple(ids[3:]) and await contents(log) == [5, 6]
    await store.delete_ledger((await log.chain()).links[-1].ledger, of_log="orders")
    reader = log.reader(LATEST, follow=False)
    with pytest.raises(MissingLedgerError):
        assert [each async for each in reader]
    await log.seal()
    await log.delete()


async def test_a_ledger_that_is_lost_is_no_trim(cluster: Standing, caplog: pytest.LogCaptureFixture) -> None:
    store = await cluster.connect()
    log = await log_of(store, [[1], [2], [3]])
    ids = [link.ledger for link in (await log.chain()).links]
    await store.delete_ledger(ids[1], of_log="orders")
    gone = f"ledger {ids[1]} of the log orders is missing: the entries from {ids[1]}:0 up to {ids[2]}:0 are gone"
    with pytest.raises(MissingLedgerError, match=gone):
        await contents(log)
    assert await contents(log, on_trimmed="skip") == [1, 3] and gone in caplog.text
    assert await contents(log, 2, on_trimmed="skip") == [3] == await contents(log, Position(ids[2], 0))
    assert (await log.show()).missing == (ids[1],)
    async with store.create_ledger() as ledger:
        await ledger.append(b"not of a log")
    nodes = LogNodes(store.metadata, "orders")
    await nodes.write(Chain((Link(ledger.id, 0),)), (await nodes.read())[1])
    with pytest.raises(LogFormatError, match="was it appended to the ledger itself"):
        await contents(log)


async def test_ten_thousand_ledgers_are_opened_shown_and_trimmed_by_the_list_alone(
    cluster: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await cluster.connect()
    log = await log_of(store, [[5, 6], [7]])
    ids = [link.ledger for link in (await log.chain()).links]
    nodes = LogNodes(store.metadata, "orders")
    # None of the others exists: reading one would fail.
    many = tuple(Link(100 + number, 8 + number) for number in range(10_000))
    chain = (await log.chain()).replace(links=(*(Link(i, 5 + i) for i in ids), *many))
    assert len(chains.bytes_of(chain)) < 200_000
    await nodes.write(chain, 1)
    asked: list[Any] = []
    real = store.metadata._once

    async def once(what: str, *arguments: Any) -> Any:
        asked.append(what)
        return await real(what, *arguments)

    monkeypatch.setattr(store.metadata, "_once", once)
    reader = log.reader()
    assert int((await anext(reader.__aiter__())).data) == 5
    await reader.close()
    assert len(asked) <= 4, asked
    asked.clear()
    view = await log.show()
    assert len(view.chain.links) == 10_002 and len(asked) <= 9
    assert view.missing == tuple(link.ledger for link in many)
    asked.clear()
    assert await log.trim(before=9) == (*ids, 100) and len(asked) <= 30, asked


async def test_many_readers_wait_for_the_first_ledger(cluster: Standing) -> None:
    log = (await cluster.connect()).log("orders")
    await log.create()

    async def first(at: Any) -> LogEntry:
        async with log.reader(at) as reader:
            return await anext(reader.__aiter__())

    waiting = [asyncio.create_task(first(at)) for at in (EARLIEST, LATEST, 0, EARLIEST)]
    await asyncio.sleep(0)
    async with log.writer() as writer:
        position = await writer.append(b"x")
        assert {(await task).position for task in waiting if task is not waiting[1]} == {position}
        waiting[1].cancel()
