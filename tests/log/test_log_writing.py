"""Writing and reading logs on real bookies: ledger after ledger, one writer after another."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from log.standing_logs import Standing, contents, standing
from patience import eventually

from fencepost.errors import OptionError
from fencepost.ledger import errors
from fencepost.ledger.client.writer import LedgerWriter
from fencepost.ledger.roles.interface import Effect, Event
from fencepost.log.chain import EARLIEST, LATEST, Position
from fencepost.log.errors import LogExistsError, LogSealedError, NoSuchLogError, NotLeaderError


async def test_what_is_appended_is_read_across_ledgers(cluster: Standing) -> None:
    log = await cluster.new_log()
    with pytest.raises(LogExistsError):
        await log.create()
    assert await contents(log) == []
    data = [b"%d" % number for number in range(1000)]
    async with log.writer(ledger_entries=300) as writer:
        positions = [await writer.append(data[0])]
        positions += await asyncio.gather(*map(writer.append, data[1:100]))
        positions += await writer.append_many(data[100:900])
        assert writer.is_leader and writer.in_flight == 0

        async def slowly() -> Any:
            for each in data[900:]:
                yield bytearray(each)

        positions += await writer.append_many(slowly())
    chain = await log.chain()
    assert [link.ledger for link in chain.links] == list(dict.fromkeys(position.ledger for position in positions))
    assert len(chain.links) == 4, "a ledger takes 300 entries"
    assert positions == sorted(positions, key=lambda each: chain.place(each) or (-1, -1)) and len({*positions}) == 1000
    entries = [entry async for entry in log.reader(follow=False)]
    assert [entry.data for entry in entries] == data and [entry.position for entry in entries] == positions
    assert [entry.time for entry in entries] == sorted(entry.time for entry in entries)
    for link in chain.links:
        metadata = await log.store.ledger_metadata(link.ledger)
        assert metadata.status is metadata.status.CLOSED and dict(metadata.custom_metadata)["log"] == b"orders"
    with pytest.raises(errors.IllegalOperationError, match="the writer of the log orders is closed"):
        await writer.append(b"late")
    async with log.writer() as again:
        assert await again.append(b"x", key=b"k") != positions[-1]
    last = [entry async for entry in log.reader(positions[-1], follow=False)]
    assert [(entry.data, entry.key) for entry in last] == [(data[-1], None), (b"x", b"k")]


@pytest.mark.parametrize("of_log", [False, True], ids=["ledger", "log"])
async def test_entries_that_come_together_are_given_to_the_role_together(cluster: Standing, of_log: bool) -> None:
    data = [b"%d" % number for number in range(1000)]

    async def stream() -> AsyncIterator[bytes]:
        for each in data:
            yield each

    log = await cluster.new_log()
    opening: Any = log.writer() if of_log else log.store.create_ledger()
    async with opening as writer:
        given: list[int] = []
        receive = writer._role.receive

        def counted(event: Any, *args: Any) -> Any:
            if type(event).__name__ == "Append":
                given.append(len(event.sizes if of_log else event.entries))
            return receive(event, *args)

        if of_log:
            writer._role.receive = counted
        else:
            writer._calls._receive = counted
        places = await writer.append_many(data)
        assert given == [1000]
        places += await asyncio.gather(*map(writer.append, data))
        assert given == [1000, 1, 999]
        places += await writer.append_many(stream())
        assert given == [1000, 1, 999, 1, 999] and len({*places}) == 3000
        group = writer.group()
        await asyncio.gather(*(writer.send_some_of(group, data) for _ in range(3)))
        await group.over()
        assert sum(given) == 6000 and max(given) == 1000
        assert group.ends == (group.places()[0], group.places()[-1]) and len(group.places()) == 3000
    assert not of_log or await contents(log) == data * 6


async def test_entries_go_as_there_is_room_and_never_more(cluster: Standing) -> None:
    log = await cluster.new_log()
    data = [b"%d" % number for number in range(1000)]
    async with log.writer(in_flight=200, in_flight_bytes=300) as writer:
        most: list[tuple[int, int]] = []
        receive = writer._role.receive

        def counted(event: Event, now: int) -> list[Effect]:
            effects = receive(event, now)
            most.append((writer._role.unacknowledged, writer._in_flight_bytes))
            return effects

        writer._role.receive = counted  # type: ignore[method-assign]
        group = writer.group()
        await asyncio.gather(*(writer.send_some_of(group, data[part::4]) for part in range(4)))
        await group.over()
        assert max(entries for entries, _ in most) <= 200 and max(size for _, size in most) <= 300
    assert sorted(await contents(log)) == sorted(data)


async def test_a_reader_follows_across_roll_overs_to_the_seal(cluster: Standing) -> None:
    log, other = await cluster.new_log(), (await cluster.connect()).log("orders")
    seen: list[bytes] = []
    new: list[bytes] = []

    async def follow(into: list[bytes], at: Any) -> None:
        async for entry in other.reader(at):
            into.append(entry.data)

    following = asyncio.create_task(follow(seen, EARLIEST))
    async with log.writer(ledger_entries=7) as writer:
        for number in range(20):
            await writer.append(b"%d" % number)
        await eventually(lambda: len(seen) == 20, "the reader to have all")
        latest = other.reader(LATEST)
        await latest.locate()

        async def follow_new() -> None:
            async for entry in latest:
                new.append(entry.data)

        following_new = asyncio.create_task(follow_new())
        await writer.append_many(b"%d" % number for number in range(20, 50))
        await writer.roll_over()
        await writer.append(b"50")
        await writer.seal()
        with pytest.raises(LogSealedError, match="the log orders is sealed"):
            await writer.append(b"late")
    await following
    await following_new
    assert seen == [b"%d" % number for number in range(51)] and new == seen[20:]
    with pytest.raises(LogSealedError):
        await log.writer().opened()
    await log.seal()
    assert (await log.show()).chain.sealed and await contents(log) == seen


async def test_of_two_writers_that_both_believe_one_is_fenced_off(cluster: Standing) -> None:
    log, other = await cluster.new_log(), (await cluster.connect()).log("orders")
    old = await log.writer(name="old")
    await old.append(b"one")
    with pytest.raises(NotLeaderError, match="does not lead the log orders after 0.1 s: old "):
        await other.writer(wait=0.1).opened()
    assert (await other.show()).leader == "old"
    # The old one still believes that it leads: its node is deleted, and it gets no notice.
    log.store.metadata.watch_fired = lambda path: None  # type: ignore[method-assign]
    await other.store.metadata.delete_node("logs/orders/leader")
    async with other.writer(name="new") as new:
        assert old.is_leader and new.is_leader
        await new.append(b"two")
        with pytest.raises(NotLeaderError, match="another writer leads the log orders now"):
            await old.append(b"too late")
        assert not old.is_leader
        with pytest.raises(NotLeaderError):
            await old.append(b"later still")
        await new.append(b"three")
    assert await contents(log) == [b"one", b"two", b"three"]


async def test_a_leader_that_is_gone_is_followed_and_what_it_confirmed_is_there(cluster: Standing) -> None:
    log, other = await cluster.new_log(), (await cluster.connect()).log("orders")
    gone = await log.writer()
    data = [b"%d" % number for number in range(500)]
    await gone.append_many(data)
    waiting = asyncio.create_task(other.writer().opened())
    under_way = asyncio.create_task(gone.append(b"maybe"))
    await asyncio.sleep(0)
    await log.store.close()
    with pytest.raises(errors.StoreError):
        await under_way
    with pytest.raises(errors.StoreError, match="closed meanwhile"):
        await gone.append(b"no more")
    writer = await waiting
    await writer.append(b"next")
    await writer.close()
    await writer.close()
    found = await contents(other)
    assert found[:500] == data and found[-1] == b"next" and found[500:-1] in ([], [b"maybe"])


async def test_entries_of_the_next_leader_are_not_earlier_however_late_its_clock_is(
    cluster: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await cluster.new_log()
    killed = await cluster.connect()
    writer = await killed.log("orders").writer()
    await writer.append(b"first")
    await killed.close()
    with monkeypatch.context() as context:
        context.setattr(time, "time_ns", lambda: 5_000_000)
        async with log.writer() as writer:
            await writer.append_many([b"a", b"b"])
    entries = [(entry.data, entry.time) async for entry in log.reader(follow=False)]
    (_, first), *_ = entries
    assert first > 1_700_000_000_000 and entries == [(b"first", first), (b"a", first), (b"b", first)]


async def test_a_ledger_that_fails_is_followed_by_another_without_a_gap_or_a_double(
    cluster: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await cluster.new_log(ensemble=3)
    data = [b"%d" % number for number in range(2000)]
    async with log.writer() as writer:
        takes = iter([5, 2])
        failed: set[int] = set()

        def failing(ledger: LedgerWriter, entries: list[bytes], told: Any) -> None:
            """Send some entries, then fail as a ledger with too few bookies does."""
            some = 0 if ledger.id in failed else next(takes, len(entries))
            real(ledger, entries[:some], told)
            if some < len(entries):
                failed.add(ledger.id)
                asyncio.get_running_loop().call_soon(
                    told.fail, errors.NotEnoughBookiesError("none"), len(entries) - some
                )

        real = LedgerWriter.submit_many
        monkeypatch.setattr(LedgerWriter, "submit_many", failing)
        positions = await writer.append_many(data)
    assert len(positions) == len({*positions}) == 2000 and len((await log.chain()).links) == 3
    assert await contents(log) == data
    assert [entry.position async for entry in log.reader(follow=False)] == positions


async def test_a_writer_with_too_few_bookies_says_so_and_goes_on_with_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with standing(tmp_path, 2) as cluster:
        log = await cluster.new_log()
        too_few = r"no ledger to write to.*: ledger \d+ needs 3 bookies to write to, and there are 2: start more"
        with pytest.raises(errors.NotEnoughBookiesError, match=too_few):
            await log.writer(wait=0.3).opened()
        caplog.clear()
        waiting = asyncio.create_task(log.writer().opened())
        await eventually(lambda: caplog.records, "the writer to say that it waits")
        assert re.search(f"the log orders has {too_few}", caplog.text)
        await cluster.add_bookie()
        writer = await waiting
        await writer.append(b"one")
        await cluster.bookies[0].end()
        await writer.roll_over()
        appending = asyncio.create_task(writer.append_many([b"two", b"three"]))
        await eventually(lambda: writer.ledger is None, "the ledger to be closed")
        await cluster.add_bookie()
        await appending
        await writer.close()
        assert await contents(log) == [b"one", b"two", b"three"]


async def test_appends_are_bounded(cluster: Standing) -> None:
    log = await cluster.new_log()
    async with log.writer(in_flight=4, in_flight_bytes=200) as writer:
        most = 0

        async def append(number: int) -> Position:
            nonlocal most
            position = await writer.append(b"x" * (number % 50))
            most = max(most, writer.in_flight)
            return position

        tasks = [asyncio.create_task(append(number)) for number in range(200)]
        await asyncio.sleep(0)
        for task in tasks[50:60]:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        positions = [each for each in done if isinstance(each, Position)]
        assert len(positions) >= 190 and most <= 4
        assert positions == sorted(positions, key=lambda each: each.entry)
        assert len(await writer.append_many([b"y" * 30] * 100)) == 100
        assert await writer.append(b"z" * 1000), "a large one goes alone"
        assert writer._in_flight == writer._in_flight_bytes == 0 and not writer._waiting
        with pytest.raises(errors.IllegalOperationError, match="too large"):
            await writer.append(bytes(64 << 20))


async def test_mistakes_are_one_line(cluster: Standing) -> None:
    store = await cluster.connect()
    log = store.log("none")
    for missing in (
        log.show(),
        log.chain(),
        log.writer().opened(),
        log.seal(),
        log.trim(keep=1),
        log.cursor("c").opened(),
    ):
        with pytest.raises(NoSuchLogError, match="there is no log none"):
            await missing
    with pytest.raises(NoSuchLogError):
        await contents(log)
    for wrong in (
        lambda: log.writer(in_flight=0),
        lambda: log.writer(ledger_entries=-1),
        lambda: log.reader(on_trimmed="x"),
        lambda: store.log("a/b"),
    ):
        with pytest.raises(OptionError):
            wrong()
    with pytest.raises(OptionError, match="ack_quorum 4"):
        await log.create(ack_quorum=4)
