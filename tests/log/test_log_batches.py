"""Batches of a log on real bookies: they are there whole or not at all, and once however often they are written."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from log.standing_logs import Standing, contents, standing

from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.errors import (
    BadVersionError,
    IllegalOperationError,
    MetadataServiceError,
    NoSuchLedgerError,
    UnauthorizedAccessError,
)
from fencepost.log import batches as module
from fencepost.log import metadata
from fencepost.log.batches import GIVEN_UP, Batches, Part
from fencepost.log.chain import EARLIEST, Chain, Position, bytes_of
from fencepost.log.errors import LogFullError, LogSealedError, NotLeaderError
from fencepost.log.metadata import Pending
from fencepost.protocols.log.conformance import LogConformance
from fencepost.traces import read
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator


async def part(batches: Batches, number: int, *data: bytes, ledger_bytes: int = 1 << 30) -> Part:
    writing = batches.part(number, ledger_bytes)
    for each in data:
        await writing.append([each])
    return await writing.close()


async def ledgers(store: LedgerClient) -> set[int]:
    return {ledger async for ledger in store.list_ledgers()}


def is_a_behaviour(folder: Path) -> None:
    """The traces of the log are a behaviour of its protocol."""
    traces = Traces(read(folder), kind=LogConformance.subjects, heeds=LogConformance.heeds)
    (name,) = traces.names()
    verdict = Validator(LogConformance).validate(name[1], traces.events(name))
    assert verdict.accepted, (verdict.problem, [f"{each.event}: {each.why}" for each in verdict.refusals])


@pytest.mark.parametrize("is_traced", [True, False])
async def test_traces_in_which_batches_come_between_writers_are_behaviours(tmp_path: Path, is_traced: bool) -> None:
    """Traces of the writers alone are behaviours too, when the attaching process writes no trace."""
    async with standing(tmp_path) as cluster:
        store = await cluster.connect(tmp_path / "traces")
        other = store if is_traced else await cluster.connect()
        log, batches = store.log("orders"), other.log("orders").batches("q")
        await log.create()
        for number in range(3):
            async with log.writer() as writer:
                await writer.append(b"first")
            parts = [await part(batches, number, b"a", b"b"), await part(batches, number, b"c")]
            assert await batches.attach(number, parts)
            assert not await batches.attach(number, [await part(batches, number, b"a", b"b", b"c")])
        withdrawn = await part(batches, 3, b"d")
        await batches.withdraw(3)
        with pytest.raises(IllegalOperationError, match="was withdrawn"):
            await batches.attach(3, [withdrawn])
        async with log.writer() as writer:
            await writer.append(b"last")
        await log.trim(keep=2)
        await log.seal()
        assert not await batches.attach(2, [await part(batches, 2, b"c")])
        with pytest.raises(LogSealedError):
            await batches.attach(3, [await part(batches, 3, b"d")])
    is_a_behaviour(tmp_path / "traces")
    actions = {event.action for event in read(tmp_path / "traces")}
    assert ({"attach_batch", "delete_withdrawn_batch", "delete_superseded_batch"} <= actions) == is_traced


async def test_a_batch_is_in_the_log_once_and_whole(cluster: Standing) -> None:
    log = await cluster.new_log()
    store = log.store
    async with log.writer() as writer:
        await writer.append(b"first")
        before = log.batches("q")
        early = [
            await part(before, 0, b"a", b"b"),
            await part(before, 0),
            await part(before, 0, b"c" * 9, b"d", b"e", ledger_bytes=19),
        ]
        assert [len(each.ledgers) for each in early] == [1, 0, 2] and early[2].entries == 3
        with pytest.raises(NotLeaderError, match="does not lead after 0.2 s: .*:[0-9]+ does"):
            await before.attach(0, early, wait=0.2)
        assert await contents(log) == [b"first"], "nothing of it is in the log"
    assert await before.attach(0, early)
    expected = [b"first", b"a", b"b", b"c" * 9, b"d", b"e"]
    assert await contents(log) == expected
    assert await before.has(0) and not await before.has(1)

    # The same batch again, by another process: its ledgers are deleted, and those of a killed attempt too.
    known = await ledgers(store)
    killed = log.batches("q").part(0)
    await killed.append([b"killed"])
    again = log.batches("q")
    assert not await again.attach(0, [await part(again, 0, b"a", b"b", b"c")])
    assert await contents(log) == expected and await ledgers(store) == known
    assert await log._nodes.batch_writers() == []

    # The attempt that was believed dead continues, and can do no harm.
    assert not await log.batches("q").attach(0, [Part((*killed._ledgers,), 1, 1)])
    assert await contents(log) == expected

    # Other writers and later batches are others.
    assert await again.attach(1, [await part(again, 1, b"next")])
    other = log.batches("r", remembered=False)
    await part(other, 0, b"of a task that was tried twice")
    assert await other.attach(0, [await part(other, 0, b"other")])
    async with log.writer() as writer:
        await writer.append(b"last")
    assert await contents(log) == [*expected, b"next", b"other", b"last"]
    assert await log._nodes.batch_writers() == []
    assert [(each.writer, each.number) for each in (await log.chain()).batches] == [("q", 1)]
    times = [entry.time async for entry in log.reader(at=EARLIEST, follow=False)]
    assert times == sorted(times) and min(times) > 1_700_000_000_000
    found = await log.find(times[1])
    assert found.ledger == early[0].ledgers[0] or times[0] == times[1]
    await log.seal()
    with pytest.raises(LogSealedError):
        await again.attach(2, [await part(again, 2, b"late")])


async def test_a_batch_with_a_wrong_password_fails_at_once(cluster: Standing) -> None:
    store = await cluster.connect()
    await store.log("orders", password="right").create()
    async with store.log("orders", password="right").writer() as writer:
        await writer.append(b"first")
    batches = store.log("orders", password="wrong").batches("q")
    with pytest.raises(UnauthorizedAccessError):
        await batches.attach(1, [await part(batches, 1, b"a")], wait=600)


async def test_a_batch_follows_what_a_writer_has_left_open_however_late_its_clock_is(
    cluster: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, killed = await cluster.connect(), await cluster.connect()
    log = store.log("orders")
    await log.create()
    writer = await killed.log("orders").writer()
    await writer.append(b"first")
    ledger = writer.ledger
    assert ledger is not None
    await killed.close()
    batches = log.batches("q")
    batch = await part(batches, 0, b"a", b"b")
    with monkeypatch.context() as context:
        context.setattr(time, "time_ns", lambda: 5_000_000)
        assert await batches.attach(0, [batch])
    assert (await store.ledger_metadata(ledger)).last_entry == 0, "it is closed, and its writer fenced"
    found = [(entry.data, entry.time) async for entry in log.reader(at=EARLIEST, follow=False)]
    assert found == [(b"first", found[0][1]), (b"a", found[0][1]), (b"b", found[0][1])]
    async with log.writer() as writer:
        await writer.append(b"last")
    times = [entry.time async for entry in log.reader(at=EARLIEST, follow=False)]
    assert times == sorted(times)
    assert await log.find(times[0] + 1) == Position((await log.chain()).links[-1].ledger, int(times[-1] == times[0]))


@pytest.mark.parametrize("ledgers_are_deleted", [True, False])
async def test_a_batch_that_is_trimmed_before_its_writer_hears_of_it_is_not_attached_again(
    cluster: Standing, monkeypatch: pytest.MonkeyPatch, ledgers_are_deleted: bool
) -> None:
    """The log does not remember the batch, and its ledgers are no longer in the list."""
    log = await cluster.new_log()
    batches = log.batches("r", remembered=False)
    write = log._nodes.write

    async def trimmed(data: Chain, version: int) -> int:
        """The update succeeds, and the attached ledgers are trimmed. The writer gets no answer."""
        await write(data, version)
        monkeypatch.setattr(log._nodes, "write", write)
        other = (await cluster.connect()).log("orders")
        if not ledgers_are_deleted:
            monkeypatch.setattr(other, "_remove_trimmed", AsyncMock())
        async with other.writer() as writer:
            await writer.append(b"next")
        await other.trim(keep=1)
        raise MetadataServiceError("the connection is lost")

    monkeypatch.setattr(log._nodes, "write", trimmed)
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(batches, "_leading", lambda wait, name: nullcontext())  # it believes that it leads
    assert await batches.attach(0, [await part(batches, 0, b"a"), await part(batches, 0, b"b")])
    assert await contents(log) == [b"next"]
    assert await log._nodes.batch_writers() == []


async def test_updates_that_fail_are_looked_up_and_withdrawn_batches_stay_out(
    cluster: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await cluster.new_log()
    store = log.store
    batches = log.batches("q")
    write = log._nodes.write
    asked: list[str] = []

    async def unanswered(data: Chain, version: int) -> int:
        """The update succeeds, but the writer gets no answer."""
        asked.append("lost")
        await write(data, version)
        raise BadVersionError("as if somebody else had changed it")

    monkeypatch.setattr(log._nodes, "write", unanswered)
    monkeypatch.setattr(module, "PAUSE", 0.0)
    assert await batches.attach(0, [await part(batches, 0, b"one")]) and asked == ["lost"]
    assert await contents(log) == [b"one"]
    assert await log.find(1) == Position((await log.chain()).links[0].ledger, 0)
    monkeypatch.undo()

    # A batch is withdrawn while its update is under way. The update arrives later.
    late: list[tuple[Chain, int]] = []

    async def delayed(chain: Chain, version: int) -> int:
        late.append((chain, version))
        raise asyncio.CancelledError

    withdrawn = await part(batches, 1, b"withdrawn")
    monkeypatch.setattr(log._nodes, "write", delayed)
    with pytest.raises(asyncio.CancelledError):
        await batches.attach(1, [withdrawn])
    monkeypatch.undo()
    await batches.withdraw(1)
    with pytest.raises(BadVersionError):
        await log._nodes.write(*late[0])
    with pytest.raises(NoSuchLedgerError):
        await store.ledger_metadata(withdrawn.ledgers[0])
    with pytest.raises(IllegalOperationError, match="was withdrawn before it was in the log: write it again"):
        await batches.attach(1, [withdrawn])
    assert await contents(log) == [b"one"] and await log._nodes.batch_writers() == []

    # The process that withdraws a batch is killed before it deletes anything. The batch is still withdrawn, and
    # deleted with the next one.
    async def killed(ledger: int, is_in_log: bool) -> None:
        raise asyncio.CancelledError

    withdrawn = await part(batches, 1, b"withdrawn")
    monkeypatch.setattr(batches, "drop", killed)
    with pytest.raises(asyncio.CancelledError):
        await batches.withdraw(1)
    monkeypatch.undo()
    with pytest.raises(IllegalOperationError, match="was withdrawn"):
        await batches.attach(1, [withdrawn])

    # A late withdrawal deletes nothing that is in the log.
    attached = await part(batches, 1, b"two")
    await batches.attach(1, [attached])
    await log._nodes.create_pending("q", Pending(attached.ledgers[0], 1, 0))
    await batches.withdraw(1)
    assert await contents(log) == [b"one", b"two"] and await log._nodes.batch_writers() == []

    # Nor is a ledger that was never one of a batch, whatever was noted; and what is given up is deleted for any
    # writer.
    async with store.create_ledger() as foreign:
        await foreign.append(b"mine")
    old = await part(log.batches("gone", remembered=False), 0, b"old")
    (noted,) = await log._nodes.pending("gone")
    await log._nodes.create_pending("gone", Pending(foreign.id, 0, noted.since))
    assert await log.batches("any").delete_given_up(noted.since + GIVEN_UP) == 0
    assert await log.batches("any").delete_given_up(noted.since + GIVEN_UP + 1) == 2
    assert (await store.ledger_metadata(foreign.id)).last_entry == 0
    assert old.ledgers[0] not in await ledgers(store) and await log._nodes.batch_writers() == []

    # A part that fails leaves nothing.
    failing = batches.part(2)
    await failing.append([b"some"], [b"key"])
    (ledger,) = failing._ledgers
    await failing.discard()
    assert ledger not in await ledgers(store) and await log._nodes.batch_writers() == []

    monkeypatch.setattr(metadata, "LARGEST_LIST", len(bytes_of((await log._nodes.read())[0])))
    with pytest.raises(LogFullError, match="and has room for .*: trim the log"):
        await batches.attach(3, [await part(batches, 3, b"full")])
    assert (await log._nodes.read())[0].last_batch("q") == 1
