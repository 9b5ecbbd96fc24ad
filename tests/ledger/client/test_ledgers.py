"""Ledgers through the client, over loopback to stand-in bookies that serve the role, with a metadata service in the
process.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator
from typing import Any

import pytest
from ledger.client.standins import Cluster
from patience import PATIENCE, eventually

from fencepost.errors import OptionError
from fencepost.ledger import errors
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.client.writer import LedgerWriter
from fencepost.ledger.entries import Digests, Entry, master_key
from fencepost.ledger.messages import AddEntry, ReadEntry
from fencepost.ledger.metadata.session import Session
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.metadata import DigestType, LedgerStatus


async def contents(reader: Any, *span: int) -> list[bytes]:
    return [entry.data async for entry in reader.read(*span)]


@pytest.mark.parametrize("digest", ["crc32c", "crc32", "hmac", "dummy"])
async def test_what_is_appended_is_read(cluster: Cluster, digest: str) -> None:
    store = await cluster.connect()
    data = [b"entry %d" % number for number in range(500)]
    async with store.create_ledger(digest=digest, password="secret", custom_metadata={"made by": b"a test"}) as ledger:
        assert await ledger.append(data[0]) == 0
        assert await ledger.append_many(data[1:]) == [*range(1, 500)]
        assert ledger.last_add_confirmed == 499 and ledger.length == sum(map(len, data))
    async with store.open_ledger(ledger.id, password="secret", digest=digest) as reader:
        assert await contents(reader) == data
        assert await contents(reader, 7, 9) == data[7:10]
        assert await reader.read_entry(499) == data[499]
        assert reader.is_closed and reader.last_add_confirmed == 499
        assert reader.metadata.custom_metadata == (("made by", b"a test"),)
        assert reader.metadata.length == sum(map(len, data))


async def test_appends_are_pipelined_in_order_and_bounded(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await store.create_ledger(ensemble=3, in_flight=4)
    most = 0

    async def append(number: int) -> int:
        nonlocal most
        entry_id = await ledger.append(b"%d" % number)
        most = max(most, ledger.in_flight)
        return entry_id

    ids = await asyncio.gather(*(append(number) for number in range(100)))
    assert ids == [*range(100)] and most <= 4
    await ledger.close()
    reader = await store.open_ledger(ledger.id)
    assert await contents(reader) == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize(("are_many", "free"), [(False, 1), (True, 2)])
async def test_who_appends_many_waits_for_room_for_several(cluster: Cluster, are_many: bool, free: int) -> None:
    """An eighth of all room, here two entries."""
    store = await cluster.connect()
    ledger = await store.create_ledger(in_flight=16)
    ledger._reserve(0, 16)
    appended = asyncio.ensure_future(ledger.append_many([b"one", b"two"]) if are_many else ledger.append(b"one"))
    for left in range(16, 16 - free, -1):
        await asyncio.sleep(0)
        assert (ledger.in_flight, len(ledger._waiting)) == (left, 1)
        ledger._release(1, 0)
    assert not ledger._waiting
    ledger._release(16 - free, 0)
    assert await appended == ([0, 1] if are_many else 0)


@pytest.mark.parametrize("are_drawn", [False, True])
async def test_callers_that_append_many_side_by_side_send_many_at_once(cluster: Cluster, are_drawn: bool) -> None:
    store = await cluster.connect()
    ledger = await store.create_ledger(in_flight=80)
    sent, send, most = [0], ledger._send, 0

    def counted(batch: Any, entries: list[bytes]) -> None:
        nonlocal most
        sent.append(len(entries))
        most = max(most, ledger.in_flight)
        send(batch, entries)

    ledger._send = counted  # type: ignore[method-assign]
    data = [b"%d" % number for number in range(40)]
    of_many = [iter(data) if are_drawn and caller % 2 else data for caller in range(20)]
    one_by_one = asyncio.gather(*(ledger.append(data[0]) for _ in range(20)))
    places = await asyncio.gather(*map(ledger.append_many, [*of_many, *[data[:3]] * 20]))
    assert sorted(place for some in (*places, await one_by_one) for place in some) == [*range(880)]
    assert all(some == sorted(some) for some in places)
    assert most <= 80 and sum(sent) == 880
    assert len(sent) < 80
    await ledger.close()


@pytest.mark.parametrize("how", ["closed", "cancelled", "too large"])
async def test_callers_that_wait_their_turn_do_not_wait_for_one_that_is_gone(cluster: Cluster, how: str) -> None:
    store = await cluster.connect()
    ledger = await store.create_ledger(in_flight=16)
    ledger._reserve(0, 16)
    tasks = [asyncio.ensure_future(ledger.append_many([b"entry"] * 40)) for _ in range(4)]
    while len(ledger._waiting) < 4:
        await asyncio.sleep(0)
    if how == "closed":
        await store.close()
    elif how == "cancelled":
        tasks[0].cancel()
    else:
        tasks.append(asyncio.ensure_future(ledger.append_many([b"entry", bytes(6 * 1024 * 1024)])))
        await asyncio.sleep(0)
    ledger._release(16, 0)
    if how == "cancelled":
        tasks[1].cancel()
    found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE)
    expected: dict[str, list[type]] = {
        "closed": [errors.StoreError] * 4,
        "cancelled": [asyncio.CancelledError] * 2 + [list] * 2,
        "too large": [list] * 4 + [errors.IllegalOperationError],
    }
    assert all(isinstance(one, kind) for one, kind in zip(found, expected[how], strict=True)), found
    assert ledger.in_flight == 0 and not ledger._waiting


async def test_bytes_in_flight_are_bounded_and_a_large_entry_goes_alone(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await store.create_ledger(in_flight_bytes=100)
    seen: list[int] = []

    async def append(size: int) -> None:
        await ledger.append(b"x" * size)
        seen.append(ledger._in_flight_bytes)

    await asyncio.gather(*(append(size) for size in (40, 40, 40, 500, 60, 40)))
    assert max(seen) <= 500
    await ledger.close()
    reader = await store.open_ledger(ledger.id)
    assert [len(data) for data in await contents(reader)] == [40, 40, 40, 500, 60, 40]


async def test_a_cancelled_append_leaves_the_ledger_usable() -> None:
    async with Cluster(6) as cluster:
        store = await cluster.connect()
        ledger = await store.create_ledger(in_flight=1)
        swallowing = True
        for bookie in cluster.bookies.values():
            bookie.swallow = lambda request: swallowing and type(request) is AddEntry
        sent = asyncio.create_task(ledger.append(b"sent"))
        waiting = [asyncio.create_task(ledger.append(b"waiting %d" % number)) for number in range(3)]
        await asyncio.sleep(0.05)
        for task in (sent, waiting[0], waiting[2]):
            task.cancel()
        swallowing = False
        for bookie in cluster.bookies.values():
            bookie.code_for_adds = None
        await asyncio.gather(sent, *waiting, return_exceptions=True)
        assert sent.cancelled() and waiting[0].cancelled() and waiting[2].cancelled()
        assert ledger.in_flight == 0 or await asyncio.wait_for(ledger.close(), 60) is not None


async def test_an_append_that_is_cancelled_in_line_is_not_sent_and_gives_its_place(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await store.create_ledger(in_flight=1)
    tasks = [asyncio.create_task(ledger.append(b"%d" % number)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    tasks[2].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[0] == 0 and results[3] == 1
    assert await ledger.append(b"more") == 2
    await ledger.close()
    reader = await store.open_ledger(ledger.id)
    assert await contents(reader) == [b"0", b"3", b"more"]


async def test_append_many_takes_what_comes_in_time_and_says_what_is_confirmed_when_it_fails(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await store.create_ledger(in_flight=5)

    async def slowly() -> AsyncIterator[bytes]:
        for number in range(30):
            await asyncio.sleep(0)
            if number == 20:
                for bookie in cluster.bookies.values():
                    bookie.code_for_adds = Code.FENCED
            yield b"%d" % number

    with pytest.raises(errors.LedgerFencedError, match="somebody else recovers it"):
        await ledger.append_many(slowly())
    assert 10 <= ledger.last_add_confirmed < 20
    with pytest.raises(errors.LedgerFencedError):
        await ledger.append(b"no more")
    with pytest.raises(errors.LedgerFencedError):
        await ledger.close()


async def test_an_entry_that_no_frame_can_hold_is_refused_at_once(cluster: Cluster) -> None:
    store = await cluster.connect()
    async with store.create_ledger() as ledger:
        with pytest.raises(errors.IllegalOperationError, match="too large"):
            await ledger.append(bytes(6 * 1024 * 1024))
        assert await ledger.append(bytes(4 * 1024 * 1024)) == 0
        assert await ledger.append(memoryview(b"view")) == 1
        assert ledger.in_flight == 0
    with pytest.raises(errors.LedgerClosedError):
        await ledger.append(b"late")
    assert await ledger.close() == 1


async def test_a_bookie_that_dies_is_replaced_and_nothing_is_lost() -> None:
    async with Cluster(4) as cluster:
        store = await cluster.connect()
        async with store.create_ledger(ensemble=3, ack_quorum=2) as ledger:
            data = [b"%d" % number for number in range(200)]
            await ledger.append_many(data[:100])
            dead = ledger.metadata.fragments[0].ensemble[1]
            await cluster.kill(dead)
            await ledger.append_many(data[100:])
            assert dead not in ledger.metadata.fragments[-1].ensemble
        reader = await store.open_ledger(ledger.id)
        assert await contents(reader) == data


async def test_a_bookie_that_does_not_answer_is_replaced_after_a_while(cluster: Cluster) -> None:
    store = await cluster.connect(request_timeout=0.3)
    async with store.create_ledger(ensemble=2, ack_quorum=2) as ledger:
        await ledger.append(b"one")
        frozen = ledger.metadata.fragments[0].ensemble[0]
        cluster.bookies[frozen].swallow = lambda request: True
        assert await ledger.append(b"two") == 1
        assert [each.first_entry_id for each in ledger.metadata.fragments] == [0, 1]
    other = await store.create_ledger(ensemble=2, ack_quorum=2)
    assert frozen not in other.metadata.fragments[0].ensemble, "who has failed is chosen last"


@pytest.mark.parametrize("code", [Code.READ_ONLY, Code.IO_ERROR, Code.TOO_MANY_REQUESTS])
async def test_a_bookie_that_takes_no_entry_is_replaced(code: Code) -> None:
    async with Cluster(4) as cluster:
        store = await cluster.connect()
        async with store.create_ledger(ensemble=3, ack_quorum=3) as ledger:
            full = ledger.metadata.fragments[0].ensemble[2]
            cluster.bookies[full].code_for_adds = code
            assert await ledger.append(b"one") == 0
            assert full not in ledger.metadata.fragments[0].ensemble


async def test_without_enough_bookies_nothing_is_created_and_appends_fail(cluster: Cluster) -> None:
    store = await cluster.connect()
    with pytest.raises(errors.NotEnoughBookiesError, match="start more"):
        await store.create_ledger(ensemble=4)
    cluster.metadata.register(("b1",), ("b2", "b3"))
    with pytest.raises(errors.NotEnoughBookiesError, match="there are 1, besides 2 that are read-only: start more"):
        await store.create_ledger(ensemble=3)
    cluster.metadata.register(("b1", "b2", "b3"))
    ledger = await store.create_ledger(ensemble=3, ack_quorum=2)
    assert await ledger.append(b"one") == 0
    for name in ("b1", "b2"):
        await cluster.kill(name)
    with pytest.raises(errors.NotEnoughBookiesError):
        await ledger.append(b"two")
    assert await ledger.close() == 0, "a ledger can still be closed where it was confirmed"


async def test_another_client_recovers_and_the_writer_is_fenced_off(cluster: Cluster) -> None:
    store, other = await cluster.connect(), await cluster.connect()
    ledger = await store.create_ledger(password=b"p")
    await ledger.append_many([b"%d" % number for number in range(50)])
    async with other.open_ledger(ledger.id, recover=True, password=b"p") as reader:
        assert await contents(reader) == [b"%d" % number for number in range(50)]
        assert reader.metadata.status is LedgerStatus.CLOSED
    with pytest.raises(errors.LedgerFencedError):
        await ledger.append(b"late")
    with pytest.raises(errors.LedgerFencedError):
        async with ledger:
            pass


async def test_a_ledger_is_opened_only_with_its_password_and_the_digest_that_is_expected(cluster: Cluster) -> None:
    store = await cluster.connect()
    async with store.create_ledger(password=b"p", digest=DigestType.HMAC) as ledger:
        await ledger.append(b"one")
    with pytest.raises(errors.UnauthorizedAccessError, match="the password is not that of ledger 0"):
        await store.open_ledger(ledger.id)
    with pytest.raises(errors.UnauthorizedAccessError):
        await store.open_ledger(ledger.id, recover=True, password=b"q")
    with pytest.raises(errors.DigestMismatchError, match="has the digest hmac, not crc32"):
        await store.open_ledger(ledger.id, password=b"p", digest="crc32")
    with pytest.raises(OptionError, match="there is crc32, hmac, crc32c, dummy"):
        store.create_ledger(digest="md5")


async def test_damaged_copies_are_passed_over_and_told_of_when_there_is_no_other(cluster: Cluster) -> None:
    store = await cluster.connect()
    async with store.create_ledger(ensemble=2) as ledger:
        await ledger.append(b"precious")
    first, second = ledger.metadata.fragments[0].ensemble
    entries = cluster.bookies[first].entries
    entries[ledger.id, 0] = entries[ledger.id, 0][:-1] + b"!"
    async with store.open_ledger(ledger.id) as reader:
        assert await contents(reader) == [b"precious"]
        cluster.bookies[second].entries.update(entries)
        with pytest.raises(errors.DigestMismatchError, match="no bookie has an undamaged copy"):
            await contents(reader)


async def test_entries_that_are_not_there_are_said_so(cluster: Cluster) -> None:
    store = await cluster.connect()
    with pytest.raises(errors.NoSuchLedgerError, match="there is no ledger 17"):
        await store.open_ledger(17)
    with pytest.raises(errors.NoSuchLedgerError):
        await store.recover_ledger(17)
    with pytest.raises(errors.NoSuchLedgerError):
        await store.delete_ledger(17)
    ledger = await store.create_ledger()
    await ledger.append(b"one")
    async with store.open_ledger(ledger.id) as reader:
        with pytest.raises(errors.NoSuchEntryError, match="confirmed up to entry"):
            await reader.read_entry(5)
        await ledger.close()
        await eventually(lambda: reader.is_closed, "the end")
        with pytest.raises(errors.NoSuchEntryError, match="ends at entry 0"):
            await contents(reader, 0, 1)
        with pytest.raises(errors.NoSuchEntryError, match="count from 0"):
            await contents(reader, -1)
        for bookie in cluster.bookies.values():
            bookie.entries.clear()
        with pytest.raises(errors.NoSuchEntryError, match="every bookie"):
            await reader.read_entry(0)


async def test_an_empty_ledger_has_no_entries(cluster: Cluster) -> None:
    store = await cluster.connect()
    async with store.create_ledger() as ledger:
        pass
    async with store.open_ledger(ledger.id) as reader:
        assert await contents(reader) == [] and [e async for e in reader.tail()] == []
        assert await reader.read_last_add_confirmed() == -1


async def test_a_tail_gives_every_entry_once_in_order_until_the_end() -> None:
    async with Cluster(4) as cluster:
        store = await cluster.connect()
        ledger = await store.create_ledger(explicit_lac_interval=0.01)
        seen: list[tuple[int, bytes]] = []

        async def follow(first: int) -> None:
            async with store.open_ledger(ledger.id) as reader:
                async for entry in reader.tail(first):
                    seen.append((entry.id, entry.data))

        following = asyncio.create_task(follow(3))
        for number in range(40):
            await ledger.append(b"%d" % number)
            if number % 10 == 9:
                await eventually(lambda: len(seen) == number - 2, "what was confirmed, though nothing follows")
                if number == 19:
                    await cluster.kill(ledger.metadata.fragments[-1].ensemble[0])
        await ledger.close()
        await following
        assert seen == [(number, b"%d" % number) for number in range(3, 40)]


async def test_a_tail_ends_when_the_ledger_is_deleted(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await store.create_ledger()

    async def follow() -> None:
        async with store.open_ledger(ledger.id) as reader:
            async for _ in reader.tail():
                pass

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    await store.delete_ledger(ledger.id)
    with pytest.raises(errors.NoSuchLedgerError):
        await following


async def test_reads_go_on_while_bookies_are_down(cluster: Cluster) -> None:
    store = await cluster.connect()
    data = [b"%d" % number for number in range(300)]
    async with store.create_ledger(ensemble=3, ack_quorum=3) as ledger:
        await ledger.append_many(data)
    async with store.open_ledger(ledger.id) as reader:
        await cluster.kill("b1", registered=True)
        cluster.bookies["b2"].swallow = lambda request: type(request) is ReadEntry
        assert await contents(reader) == data
        await cluster.kill("b3", registered=True)
        with pytest.raises(errors.ReadError, match="too few bookies"):
            await contents(reader)
        await cluster.bookies["b3"].restart()
        assert await contents(reader) == data


async def test_reads_are_spread_over_the_bookies(cluster: Cluster) -> None:
    store = await cluster.connect(speculation_delay=5.0)
    async with store.create_ledger() as ledger:
        await ledger.append_many([b"%d" % number for number in range(300)])
    async with store.open_ledger(ledger.id) as reader:
        await contents(reader)
    for bookie in cluster.bookies.values():
        asked = [request for request in bookie.asked if type(request) is ReadEntry]
        assert 50 <= len(asked) <= 150


async def test_answers_of_the_metadata_service_that_are_lost_change_nothing(cluster: Cluster) -> None:
    store = await cluster.connect()
    cluster.metadata.lose = 1
    ledger = await store.create_ledger()
    await ledger.append(b"one")
    cluster.metadata.lose = 2
    await ledger.close()
    cluster.metadata.session(Session.EXPIRED)
    cluster.metadata.session(Session.CONNECTED)
    async with store.open_ledger(ledger.id) as reader:
        assert await contents(reader) == [b"one"]


async def test_a_metadata_service_that_stays_out_of_reach_is_not_waited_for_for_ever(cluster: Cluster) -> None:
    store = await cluster.connect(metadata_timeout=0.2)
    ledger = await store.create_ledger()
    cluster.metadata.session(Session.DISCONNECTED)
    with pytest.raises(errors.MetadataServiceError, match=r"cannot be reached for 0\.2 s"):
        await store.create_ledger()
    with pytest.raises(errors.MetadataServiceError):
        await ledger.close()
    cluster.metadata.session(Session.CONNECTED)
    assert await ledger.close() == -1


async def test_an_id_that_is_taken_is_told_and_an_own_one_is_drawn_again(cluster: Cluster) -> None:
    store = await cluster.connect()
    by_hand = await store.create_ledger(ledger=0)
    assert (await store.create_ledger()).id == 1
    with pytest.raises(errors.LedgerExistsError, match="ledger 0 exists already"):
        await store.create_ledger(ledger=0)
    assert by_hand.id == 0
    assert [ledger async for ledger in store.list_ledgers()] == [0, 1]
    await store.delete_ledger(0)
    assert [ledger async for ledger in store.list_ledgers()] == [1]


@pytest.mark.parametrize("fences", [False, True])
async def test_an_id_that_a_stranger_has_claimed_is_passed_over_and_told(
    cluster: Cluster, fences: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store, stranger = await cluster.connect(), await cluster.connect()
    key = master_key(b"the stranger's")

    def add(ledger: int) -> AddEntry:
        body = Digests(DigestType.DUMMY, b"").entry_body(Entry(ledger, 0, -1, 1, b"x"))
        return AddEntry(ledger, 0, -1, body, key)

    for known in (0, 1, 7):
        asked = ReadEntry(known, -1, True, key) if fences else add(known)
        assert await stranger.ask("b2", asked) is not None
    async with store.create_ledger() as ledger:
        assert ledger.id == 2 and await ledger.append(b"one") == 0
    told = "bookie b2 knows ledger {} already: somebody wrote to this id or fenced it"
    assert [told.format(number) in each.getMessage() for number, each in enumerate(caplog.records)] == [True, True]
    with pytest.raises(errors.UnauthorizedAccessError, match=told.format(7)):
        await store.create_ledger(ledger=7)
    assert [number async for number in store.list_ledgers()] == [2]
    # One that comes later, but before the first entry, is reported.
    async with store.create_ledger(ensemble=1, write_quorum=1) as ledger:
        bookie = ledger.metadata.fragments[-1].ensemble[0]
        assert await stranger.ask(bookie, add(ledger.id)) is not None
        with pytest.raises(errors.UnauthorizedAccessError, match="or they know the ledger by another key than"):
            await ledger.append(b"one")
    assert (await store.ledger_metadata(ledger.id)).last_entry == -1, "its owner closes it all the same"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ledger": -1}, "ledger is -1: give at least 0"),
        ({"ledger": 1 << 63}, f"ledger is {1 << 63}: give at most {(1 << 63) - 1}"),
        ({"ledger": "7"}, "ledger is '7': give a whole number"),
        ({"ledger": True}, "ledger is True"),
        ({"ensemble": 0}, "ensemble is 0"),
        ({"ensemble": "3"}, "ensemble is '3'"),
        ({"ack_quorum": 1.5}, r"ack_quorum is 1\.5"),
        ({"ack_quorum": 4}, "an ack quorum is at least 1"),
        ({"digest": 7}, "digest 7: there is crc32"),
        ({"password": 7}, "password is of type int: give bytes or a text"),
        ({"custom_metadata": {"k": "text"}}, "custom_metadata has 'k' with 'text': give a text with bytes"),
        ({"custom_metadata": {1: b""}}, "custom_metadata has 1 with b''"),
        ({"custom_metadata": ["k"]}, "custom_metadata is"),
        ({"custom_metadata": {"k": bytes(2_000_000)}}, "custom_metadata has 2,000,001 bytes: give at most 500,000"),
        ({"in_flight": 0}, "in_flight is 0"),
        ({"in_flight_bytes": None}, "in_flight_bytes is None"),
        ({"explicit_lac_interval": float("nan")}, "explicit_lac_interval is nan: give seconds, 0 or more"),
        ({"explicit_lac_interval": "1"}, "explicit_lac_interval is '1'"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_done(
    cluster: Cluster, wrong: dict[str, Any], says: str
) -> None:
    store = await cluster.connect()
    with pytest.raises(OptionError, match=says):
        await asyncio.wait_for(store.create_ledger(**wrong).opened(), 10)
    assert [ledger async for ledger in store.list_ledgers()] == []


async def test_what_cannot_be_is_refused_wherever_it_is_given(cluster: Cluster) -> None:
    store = await cluster.connect()
    async with store.create_ledger() as ledger:
        with pytest.raises(OptionError, match="an entry is of type str: give bytes"):
            await ledger.append("text")  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="an entry is of type int"):
            await ledger.append_many([b"x", 7])  # type: ignore[list-item]
        assert await ledger.append(memoryview(array("i", [1, 2]))) == 1 and ledger.in_flight == 0
    for wrong in ("7", None, -1, 1 << 63):
        for work in (
            lambda wrong=wrong: store.open_ledger(wrong).opened(),
            lambda wrong=wrong: store.adopt_ledger(wrong).opened(),
            lambda wrong=wrong: store.recover_ledger(wrong),
            lambda wrong=wrong: store.ledger_metadata(wrong),
            lambda wrong=wrong: store.delete_ledger(wrong),
        ):
            with pytest.raises(OptionError, match="ledger is "):
                await asyncio.wait_for(work(), 10)
    for options in ({"password": 7}, {"digest": "md5"}, {"prefetch": 0}, {"confirmed": -2}):
        with pytest.raises(OptionError):
            await store.open_ledger(ledger.id, **options).opened()
    async with store.open_ledger(ledger.id) as reader:
        with pytest.raises(OptionError, match="entry_id is '1'"):
            await reader.read_entry("1")  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="first is None"):
            assert [each async for each in reader.read(None)]  # type: ignore[arg-type]
        assert await contents(reader) == [b"x", array("i", [1, 2]).tobytes()]
    for settings in ({"poll_wait": "1"}, {"frame_limit": 1.5}, {"request_timeout": float("inf")}):
        with pytest.raises(OptionError):
            ClientSettings(**settings)


async def test_with_deferred_sync_a_force_tells_readers(cluster: Cluster) -> None:
    store = await cluster.connect()
    ledger = await store.create_ledger(deferred_sync=True)
    assert await ledger.append_many([b"a", b"b"]) == [0, 1]
    assert ledger.last_add_confirmed == -1
    assert await ledger.force() == 1 == ledger.last_add_confirmed
    assert await ledger.close() == 1
    reader = await store.open_ledger(ledger.id)
    assert await contents(reader) == [b"a", b"b"]


async def test_an_error_in_the_body_closes_the_ledger_and_is_the_one_that_is_raised(cluster: Cluster) -> None:
    store = await cluster.connect()
    kept: list[LedgerWriter] = []
    with pytest.raises(ZeroDivisionError):
        async with store.create_ledger() as ledger:
            kept.append(ledger)
            await ledger.append(b"one")
            raise ZeroDivisionError
    assert (await store.ledger_metadata(kept[0].id)).status is LedgerStatus.CLOSED


async def test_settings_that_make_no_sense_are_refused(cluster: Cluster) -> None:
    store = await cluster.connect()
    with pytest.raises(OptionError, match="ack_quorum 3"):
        store.create_ledger(ensemble=2, ack_quorum=3)
    with pytest.raises(OptionError, match="in_flight is 0"):
        store.create_ledger(in_flight=0)
    with pytest.raises(OptionError, match="request_timeout is 0"):
        await cluster.connect(request_timeout=0)


async def test_what_is_under_way_when_the_store_is_closed_fails(cluster: Cluster) -> None:
    for bookie in cluster.bookies.values():
        bookie.swallow = lambda request: type(request) is AddEntry
    store = await cluster.connect()
    ledger = await store.create_ledger(in_flight=1)
    reader = await store.open_ledger(ledger.id)
    under_way: list[asyncio.Future[Any]] = [asyncio.ensure_future(ledger.append(b"entry")) for _ in range(3)]
    under_way.append(asyncio.ensure_future(ledger.close()))
    under_way.append(asyncio.ensure_future(anext(reader.tail())))
    under_way.append(asyncio.ensure_future(ledger.append_many([b"more"] * 3)))
    await eventually(
        lambda: any(type(request) is AddEntry for each in cluster.bookies.values() for request in each.asked), "an add"
    )
    await store.close()
    async with asyncio.timeout(20):
        for outcome in await asyncio.gather(*under_way, return_exceptions=True):
            assert isinstance(outcome, errors.StoreError), outcome
        with pytest.raises(errors.IllegalOperationError, match="closed"):
            await ledger.append(b"late")


async def test_metadata_that_can_not_be_read_are_told_of_at_once(cluster: Cluster) -> None:
    store = await cluster.connect()
    await (await store.create_ledger(ledger=5)).close()

    async def damaged(ledger: int, watch: Any = None) -> Any:
        raise errors.UnknownLayoutError(f"the metadata of ledger {ledger} are damaged or foreign")

    cluster.metadata.read_ledger = damaged  # type: ignore[method-assign]
    for recover in (False, True):
        with pytest.raises(errors.UnknownLayoutError, match="ledger 5 are damaged"):
            async with asyncio.timeout(20):
                await store.open_ledger(5, recover=recover)
