"""Entries read in batches, with and without the loops, and appends that take many entries from an iterable."""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest
from ledger.client.standins import Cluster
from ledger.client.test_ledgers import contents

from fencepost.ledger import errors
from fencepost.ledger.client.loops import LOOPS
from fencepost.ledger.client.sync import Loop, SyncLedgerReader, SyncLedgerWriter
from fencepost.ledger.messages import ReadEntry
from fencepost.ledger.roles.interface import SendReads
from fencepost.ledger.roles.reader import Reader
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import write_set
from fencepost.ledger.rules.reading import place_to_ask


@pytest.fixture(params=["plain", "rows"])
def _loops(request: Any, monkeypatch: pytest.MonkeyPatch, _loops_as_the_test_chooses: None) -> None:
    if request.param == "rows":
        monkeypatch.setattr(LOOPS, "module", importlib.import_module("fencepost.ledger.kernels.client"))


pytestmark = pytest.mark.usefixtures("_loops")

DATA = [b"%d" % number * (number % 7) for number in range(1000)]
LENGTHS = [*accumulate(map(len, DATA))]
"""The bytes of data of the ledger up to and including each entry."""


async def written(cluster: Cluster, store: Any, data: list[bytes] = DATA, **settings: Any) -> int:
    async with store.create_ledger(**settings) as ledger:
        await ledger.append_many(data)
        number: int = ledger.id
        return number


@pytest.mark.parametrize("sizes", [(3, 3, 2), (5, 3, 2), (4, 2, 2), (1, 1, 1)])
@pytest.mark.parametrize("digest", ["crc32c", "crc32", "hmac"])
async def test_batches_have_all_entries_in_order(sizes: tuple[int, int, int], digest: str) -> None:
    async with Cluster(sizes[0]) as cluster:
        store = await cluster.connect()
        quorums: dict[str, Any] = {"ensemble": sizes[0], "write_quorum": sizes[1], "ack_quorum": sizes[2]}
        ledger = await written(cluster, store, digest=digest, **quorums)
        async with store.open_ledger(ledger, prefetch=300) as reader:
            for first, last in ((0, None), (7, 7), (990, 999), (1, 998)):
                expected, at = DATA[first : 1000 if last is None else last + 1], first
                found: list[bytes] = []
                async for batch in reader.read_batches(first, last):
                    assert batch.first == at and batch.ids == range(at, at + len(batch))
                    assert len(batch.offsets) == len(batch) + 1 and batch.offsets[0] == 0
                    assert (
                        batch.offsets[-1] == len(batch.data) and batch[0] == DATA[at] and batch[-1:] == [[*batch][-1]]
                    )
                    assert batch.lengths is not None and batch.lacs is not None
                    assert [*batch.lengths] == LENGTHS[at : at + len(batch)]
                    assert all(-1 <= lac < entry_id for lac, entry_id in zip(batch.lacs, batch.ids, strict=True))
                    found += batch
                    at += len(batch)
                assert found == expected
            ids = [3, 999, 3, 500, *range(100, 200)]
            assert await asyncio.gather(*map(reader.read_entry, ids)) == [DATA[each] for each in ids]
        for bookie in cluster.bookies.values():
            reads = sum(type(each) is ReadEntry for each in bookie.asked)
            assert reads > 100 or LOOPS.module is None, "all have something to do"


async def test_entries_that_a_bookie_lacks_has_damaged_or_can_not_read_come_from_another(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await written(cluster, store)
    one, two, three = cluster.bookies.values()
    for entry_id in range(0, 1000, 7):
        del one.entries[ledger, entry_id]
    for entry_id in range(3, 1000, 7):
        two.entries[ledger, entry_id] = two.entries[ledger, entry_id][:-1] + b"!"
    for entry_id in range(5, 1000, 7):
        three.entries[ledger, entry_id] = three.entries[ledger, entry_id - 1]
    async with store.open_ledger(ledger) as reader:
        assert await contents(reader) == DATA
        assert [length async for batch in reader.read_batches() for length in batch.lengths or ()] == LENGTHS
        assert await asyncio.gather(*map(reader.read_entry, range(1000))) == DATA


@pytest.mark.parametrize("ensemble", [3, 5])
@pytest.mark.parametrize("trouble", ["lacks", "silent", "down"])
async def test_what_one_bookie_does_not_send_is_asked_of_another_all_together(
    ensemble: int, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[SendReads] = []
    receive = Reader.receive

    def received(role: Reader, event: Any, now: int) -> Any:
        effects = receive(role, event, now)
        sent.extend(effect for effect in effects if type(effect) is SendReads)
        return effects

    monkeypatch.setattr(Reader, "receive", received)
    async with Cluster(ensemble) as cluster:
        store = await cluster.connect()
        ledger = await written(cluster, store, ensemble=ensemble, write_quorum=3)
        one = cluster.bookies["b1"]
        if trouble == "lacks":  # as a bookie does that has not received yet what the two others have confirmed
            for entry_id in range(300, 1000):
                one.entries.pop((ledger, entry_id), None)
        one.swallow = lambda request: trouble != "lacks" and type(request) is ReadEntry
        async with store.open_ledger(ledger) as reader:
            reading = asyncio.ensure_future(contents(reader))
            if trouble == "down":
                await asyncio.sleep(0.01)
                await cluster.kill("b1", registered=True)
            assert await reading == DATA
    # A busy machine is late for bookies that are well, too.
    assert sum(len(each.entry_ids) for each in sent) > 8 * len(sent)


async def test_a_bookie_that_has_said_that_it_lacks_entries_is_not_waited_for(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await written(cluster, store, DATA[:50])
    first, *others = (await store.ledger_metadata(ledger)).fragments[0].ensemble  # the first of them is asked first
    for entry_id in range(50):
        del cluster.bookies[first].entries[ledger, entry_id]
    for other in others:
        cluster.bookies[other].swallow = lambda request: type(request) is ReadEntry
    async with store.open_ledger(ledger) as reader:
        with pytest.raises(errors.ReadError, match="too few bookies"):
            await contents(reader)


async def test_what_another_reader_was_told_is_read_without_asking_what_is_confirmed(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await store.create_ledger(explicit_lac_interval=0)
    await ledger.append_many(DATA[:100])
    async with store.open_ledger(ledger.id) as reader:
        assert reader.last_add_confirmed < 99, "readers are told with the entry that follows"
    for bookie in cluster.bookies.values():
        bookie.asked.clear()
    async with store.open_ledger(ledger.id, confirmed=99) as reader:
        assert await contents(reader, 0, 99) == DATA[:100]
        assert {type(each) for bookie in cluster.bookies.values() for each in bookie.asked} == {ReadEntry}
        with pytest.raises(errors.NoSuchEntryError, match="is confirmed up to entry 99 now"):
            await contents(reader, 0, 100)


async def test_large_entries_come_in_batches_of_a_mib_and_memory_that_somebody_has_is_not_used_again(
    cluster: Cluster,
) -> None:
    data = [bytes([number]) * 100_000 for number in range(60)]
    store = await cluster.connect()
    ledger = await written(cluster, store, data)
    async with store.open_ledger(ledger) as reader:
        kept = [[batch async for batch in reader.read_batches()] for _ in range(3)]
        views = [memoryview(batch.data)[:100_000] async for batch in reader.read_batches()]
        assert await contents(reader) == data
    for batches in kept:
        assert [entry for batch in batches for entry in batch] == data
        # the metadata of a closed ledger say how large entries are
        assert max(len(batch) for batch in batches) == 10
    assert [view[0] for view in views] == [batch.first for batch in kept[0]]
    assert all(view == data[view[0]] for view in views)


async def test_what_can_be_read_comes_before_the_error(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await written(cluster, store)
    for bookie in cluster.bookies.values():
        del bookie.entries[ledger, 432]
        del bookie.entries[ledger, 440]
    async with store.open_ledger(ledger) as reader:
        seen = 0
        with pytest.raises(errors.NoSuchEntryError, match="every bookie"):
            async for batch in reader.read_batches():
                assert [*batch] == DATA[batch.first : batch.first + len(batch)]
                seen = batch.first + len(batch)
        assert seen == 432
        with pytest.raises(errors.NoSuchEntryError):
            await reader.read_entry(432)
        assert await contents(reader, 433, 439) == DATA[433:440]


async def test_a_bookie_that_says_nothing_delays_and_a_late_answer_counts(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await written(cluster, store, DATA[:300])
    for bookie in cluster.bookies.values():
        if bookie.name != "b2":
            bookie.swallow = lambda request: type(request) is ReadEntry
    async with store.open_ledger(ledger) as reader:
        assert await contents(reader) == DATA[:300]
        assert await asyncio.gather(*map(reader.read_entry, range(300))) == DATA[:300]


async def test_a_bookie_that_lacks_entries_does_not_draw_all_reads_because_it_is_quick(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await written(cluster, store)
    lacking = cluster.bookies["b1"]
    for entry_id in range(1000):
        lacking.entries.pop((ledger, entry_id), None)
    async with store.open_ledger(ledger) as reader:
        asked = len(lacking.asked)

        async def one_after_another(first: int) -> None:
            for entry_id in range(first, 1000, 10):
                assert await reader.read_entry(entry_id) == DATA[entry_id]

        await asyncio.gather(*map(one_after_another, range(10)))
        assert len(lacking.asked) - asked < 500 or LOOPS.module is None


async def test_one_entry_that_many_want_at_once_is_asked_for_once(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await written(cluster, store)
    async with store.open_ledger(ledger) as reader:
        await reader.read_entry(1)
        found = await asyncio.gather(*(reader.read_entry(each) for each in [1, 2, 3, 3, 2, 3, 1, 3]))
        assert found == [DATA[each] for each in [1, 2, 3, 3, 2, 3, 1, 3]]
        some = [asyncio.ensure_future(reader.read_entry(each)) for each in [4, 5, 5, 5]]
        await asyncio.sleep(0)
        some[1].cancel()
        assert [await some[each] for each in (0, 2, 3)] == [DATA[4], DATA[5], DATA[5]]


async def test_whoever_reads_no_further_or_closes_leaves_nothing_behind(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await written(cluster, store)
    reader = await store.open_ledger(ledger)
    async for entry in reader.read():
        if entry.id == 10:
            break
    await asyncio.sleep(0.05)
    for bookie in cluster.bookies.values():
        bookie.swallow = lambda request: type(request) is ReadEntry
    reads = [
        asyncio.ensure_future(contents(reader)),
        *(asyncio.ensure_future(reader.read_entry(each)) for each in range(5)),
    ]
    await asyncio.sleep(0.01)
    await reader.close()
    for outcome in await asyncio.gather(*reads, return_exceptions=True):
        assert isinstance(outcome, errors.IllegalOperationError)
    assert not reader._readings.ranges and not reader._readings.wanted
    with pytest.raises(errors.IllegalOperationError):
        await reader.read_entry(1)
    with pytest.raises(errors.IllegalOperationError):
        await contents(reader, 0, 3)


async def test_a_ledger_of_many_fragments() -> None:
    async with Cluster(4) as cluster:
        store = await cluster.connect()
        async with store.create_ledger(ensemble=2) as ledger:
            for start in range(0, 1000, 100):
                await ledger.append_many(DATA[start : start + 100])
                failing = cluster.bookies[ledger.metadata.fragments[-1].ensemble[0]]
                failing.code_for_adds = Code.IO_ERROR
                await ledger.append_many([])
                for bookie in cluster.bookies.values():
                    bookie.code_for_adds = Code.IO_ERROR if bookie is failing else None
        assert len(ledger.metadata.fragments) == 10
        async with store.open_ledger(ledger.id) as reader:
            assert await contents(reader) == DATA
            assert await asyncio.gather(*map(reader.read_entry, range(0, 1000, 9))) == DATA[::9]


def test_every_bookie_has_its_turn_in_the_write_set_of_an_entry() -> None:
    for size in range(1, 6):
        for quorum in range(1, size + 1):
            for entry_id in range(20):
                members = write_set(entry_id, tuple(range(size)), quorum)
                assert {place_to_ask(entry_id, turn, size, quorum) for turn in range(size * quorum)} == {*members}


async def test_what_is_drawn_before_an_error_is_appended_and_what_may_change_is_copied(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await store.create_ledger(in_flight=100, in_flight_bytes=2000)
    again = bytearray(b"00")

    def entries() -> Iterator[Any]:
        for number in range(500):
            again[:] = b"%02d" % (number % 100)
            yield again
        raise KeyError("no more")

    with pytest.raises(KeyError):
        await ledger.append_many(entries())
    with pytest.raises(errors.IllegalOperationError, match="too large"):
        await ledger.append_many([b"last", bytes(6 * 1024 * 1024), b"not sent"])
    assert await ledger.close() == 500
    async with store.open_ledger(ledger.id) as reader:
        assert await contents(reader) == [b"%02d" % (number % 100) for number in range(500)] + [b"last"]


async def test_synchronous_code_hands_entries_over_as_they_can_be_sent(cluster: Cluster) -> None:
    store = await cluster.connect()
    writer = await store.create_ledger(in_flight=200)
    loop = Loop.__new__(Loop)
    loop.process = os.getpid()
    loop.loop = asyncio.get_running_loop()
    loop.process = os.getpid()
    loop.thread = None  # type: ignore[assignment]
    most = 0

    def entries() -> Iterator[bytes]:
        nonlocal most
        for number in range(3000):
            most = max(most, number - writer.last_add_confirmed)
            yield b"%d" % number

    def in_a_thread() -> list[bytes]:
        ledger = SyncLedgerWriter(loop, writer)
        assert ledger.append_many(entries()) == [*range(3000)]
        assert ledger.append_many([]) == []
        assert ledger.close() == 2999
        reader = SyncLedgerReader(loop, reading)
        assert [each for batch in reader.read_batches() for each in batch] == [b"%d" % number for number in range(3000)]
        return [entry.data for entry in reader.read(10, 12)]

    reading = await store.open_ledger(writer.id)
    began = time.monotonic()
    assert await asyncio.get_running_loop().run_in_executor(None, in_a_thread) == [b"10", b"11", b"12"]
    shown = reading._repr_html_()
    assert f"<strong>Ledger {writer.id}</strong>" in shown and "<code>2,999</code>" in shown
    assert most < 2500 and time.monotonic() - began < 60
