"""Logs are deleted with everything in them, also by a second process after one that did not finish. Trims can keep what
cursors have not read.
"""

from __future__ import annotations

import asyncio

import pytest
from log.standing_logs import Standing
from patience import PATIENCE

from fencepost.ledger.metadata.client import MetadataClient
from fencepost.log.chain import LATEST, Chain, Link
from fencepost.log.errors import LogExistsError, LogTrimmedError, NoSuchLogError
from fencepost.log.log import Log
from fencepost.log.metadata import LogNodes, Pending
from fencepost.log.rules import trimmable_of_read


async def test_a_log_is_deleted_with_all_that_it_has_also_half_of_it(
    cluster: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await cluster.connect()
    log, other = store.log("gone"), store.log("stays")
    for each in (log, other):
        await each.create()
        async with each.writer(ledger_entries=2) as writer:
            await writer.append_many(b"%d" % number for number in range(7))
    await log.cursor("c")
    writing = await log.writer()
    await writing.append(b"late")
    delete = MetadataClient.delete_ledger
    done: list[int] = []

    async def failing(client: MetadataClient, ledger: int) -> None:
        if len(done) == 2:
            raise RuntimeError("killed")
        done.append(ledger)
        await delete(client, ledger)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        patch.setattr(MetadataClient, "delete_ledger", failing)
        await log.delete()
    assert (await log.show()).chain.sealed, "half of it is gone, and nobody appends to the rest"
    assert await log.delete() == 3
    with pytest.raises(NoSuchLogError):
        await log.chain()
    with pytest.raises(NoSuchLogError):
        await log.delete()
    assert await store.metadata.names_in("logs/gone") is None
    left = [ledger async for ledger in store.list_ledgers()]
    assert sorted(left) == sorted(link.ledger for link in (await other.chain()).links)
    await log.create()
    assert (await log.chain()).links == ()


async def test_a_deletion_ends_although_records_come_again(bare: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await bare.new_log("kept")
    store = log.store
    await LogNodes(store.metadata, "kept").create_pending("nightly", Pending(77, 9, 0))

    async def again(*_: object) -> None:
        pass

    with monkeypatch.context() as patch:
        patch.setattr(LogNodes, "delete_pending", again)
        with pytest.raises(LogExistsError, match="end the processes that write batches to it or offload it"):
            await asyncio.wait_for(log.delete(), PATIENCE)
    assert await log.delete() == 0


async def test_a_log_is_deleted_with_batches_that_nobody_attached(cluster: Standing) -> None:
    log = await cluster.new_log("gone")
    store = log.store
    batches = log.batches("nightly")
    for number in range(2):
        part = batches.part(number)
        await part.append([b"one"])
        written = await part.close()
        if not number:
            assert await batches.attach(number, [written])
    async with store.create_ledger() as other:
        pass
    await LogNodes(store.metadata, "gone").create_pending("nightly", Pending(other.id, 9, 0))
    assert await asyncio.wait_for(log.delete(), PATIENCE) == 1
    assert await store.metadata.names_in("logs") == []
    assert [ledger async for ledger in store.list_ledgers()] == [other.id], "that one is not of the log"


async def test_a_trim_can_leave_what_is_not_read(cluster: Standing) -> None:
    log = await cluster.new_log("kept")
    async with log.writer(ledger_entries=2) as writer:
        positions = await writer.append_many(b"%d" % number for number in range(10))
    slow, fast = await log.cursor("slow"), await log.cursor("fast", at=LATEST)
    assert await log.trim(keep=1, keep_unread=True) == (), "the slow one has read nothing"
    await slow.acknowledge_up_to(positions[4])
    assert await log.trim(keep=1, keep_unread=True) == (positions[0].ledger, positions[2].ledger)
    assert [entry.data async for entry in slow.read(follow=False)] == [b"5", b"6", b"7", b"8", b"9"]
    assert len(await log.trim(keep=1)) == 2, "cursors are not asked unless it is said"
    with pytest.raises(LogTrimmedError):
        assert [entry async for entry in slow.read(follow=False)]
    assert fast.position.ledger == positions[-1].ledger


def test_how_many_ledgers_have_been_read() -> None:
    chain = Chain(tuple(Link(ledger, 0) for ledger in (5, 3, 8)), trimmed=2)
    assert trimmable_of_read(chain, []) == 3
    assert trimmable_of_read(chain, [8]) == 2
    assert trimmable_of_read(chain, [8, 3]) == 1
    assert trimmable_of_read(chain, [8, 77]) == 0, "one whose ledger was trimmed has all of it before it"


async def test_what_began_before_the_deletion_of_a_log_changes_no_later_one_of_its_name(
    cluster: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await cluster.connect()

    async def made(log: Log, entries: int) -> None:
        await log.create()
        async with log.writer(ledger_entries=2) as writer:
            await writer.append_many(b"%d" % number for number in range(entries))

    async def of(log: Log) -> list[bytes]:
        return [entry.data async for entry in log.reader(follow=False)]

    slow, log = store.log("again"), (await cluster.connect()).log("again")
    write, delete = LogNodes.write, LogNodes.delete

    async def overtaken(nodes: LogNodes, chain: Chain, version: int) -> int:
        monkeypatch.setattr(LogNodes, "write", write)
        await log.delete()
        await made(log, 6)
        assert (await log._nodes.read())[1] == version, "the new list has the version of the old one"
        return await write(nodes, chain, version)

    await made(log, 6)
    monkeypatch.setattr(LogNodes, "write", overtaken)
    await slow.trim(keep=7)
    monkeypatch.setattr(LogNodes, "write", overtaken)
    await slow.trim(keep=2)
    assert await of(log) == [b"2", b"3", b"4", b"5"], "the trim began again with the new list"

    async def stalled(nodes: LogNodes, chain: Chain, *, despite_records: bool = False) -> bool:
        monkeypatch.setattr(LogNodes, "delete", delete)
        await log.delete()
        await made(log, 3)
        return await delete(nodes, chain, despite_records=despite_records)

    monkeypatch.setattr(LogNodes, "delete", stalled)
    await slow.delete()
    assert await of(log) == [b"0", b"1", b"2"]
