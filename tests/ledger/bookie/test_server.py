"""The server of a bookie over real sockets: its answers, and the effect of a hostile or slow client on it and on
others.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ledger.bookie.serving import KEY, add, entry, serving
from patience import eventually

from fencepost.files.folders import OsFile
from fencepost.ledger import messages as m
from fencepost.ledger.kernels import bookie as loops
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import v2, v3

pytestmark = pytest.mark.usefixtures("every_way")


@pytest.mark.parametrize("codec", [v3, v2], ids=["v3", "v2"])
async def test_entries_are_added_and_read_back(tmp_path: Path, codec: Any) -> None:
    async with serving(tmp_path) as served:
        client = await served.client(codec)
        client.send(*(add(7, entry_id) for entry_id in range(50)))
        answers = [(await client.receive())[1] for _ in range(50)]
        assert sorted(answer.entry_id for answer in answers) == list(range(50))
        assert {answer.code for answer in answers} == {Code.OK}
        assert (await client.ask(m.ReadEntry(7, 3))).body == entry(7, 3)
        assert (await client.ask(m.ReadEntry(7, -1))).body == entry(7, 49)
        assert (await client.ask(m.ReadEntry(7, 50))).code is Code.NO_ENTRY
        assert (await client.ask(m.ReadEntry(8, 0))).code is Code.NO_LEDGER
        await client.close()


async def test_every_operation_of_version_3_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        client = await served.client()
        client.send(*(add(1, entry_id) for entry_id in (0, 1, 2, 5)))
        for _ in range(4):
            assert (await client.receive())[1].code is Code.OK
        assert (await client.ask(m.ListEntries(1))).runs == ((0, 2), (5, 5))
        info = await client.ask(m.GetBookieInfo())
        assert info.code is Code.OK and info.total >= info.free > 0
        assert (await client.ask(m.WriteLac(1, 5, b"lac", KEY))).code is Code.OK
        lac = await client.ask(m.ReadLac(1))
        assert (lac.code, lac.lac_body, lac.last_entry) == (Code.OK, b"lac", entry(1, 5))
        assert (await client.ask(m.ForceLedger(1))).code is Code.OK
        assert (await client.ask(m.Auth("none"))).plugin == m.NO_AUTHENTICATION
        assert (await client.ask(m.StartTls())).code is Code.BAD_REQUEST
        assert (await client.ask(add(1, 6, key=b"x" * 20))).code is Code.UNAUTHORIZED
        assert (await client.ask(m.ReadEntry(1, -1, True, KEY))).code is Code.OK
        assert (await client.ask(add(1, 6))).code is Code.FENCED
        assert (await client.ask(add(1, 6, recovery=True))).code is Code.OK


async def test_batch_reads_of_version_2_are_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        client = await served.client(v2)
        client.send(*(add(1, entry_id) for entry_id in range(10)))
        for _ in range(10):
            await client.receive()
        answer = await client.ask(m.BatchRead(1, 4, 3))
        assert answer.bodies == tuple(entry(1, entry_id) for entry_id in (4, 5, 6))


async def test_a_long_poll_is_answered_when_the_lac_moves_or_its_time_is_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        reader, writer = await served.client(), await served.client()
        assert (await writer.ask(add(1, 0))).code is Code.OK
        reader.send(m.ReadEntry(1, -1, previous_lac=-1, wait=600_000_000))
        await eventually(lambda: served.server.role.polls, "the poll")
        assert (await writer.ask(add(1, 1))).code is Code.OK
        _, answer = await reader.receive()
        assert (answer.code, answer.entry_id, answer.lac, answer.body) == (Code.OK, 0, 0, entry(1, 0))
        answer = await reader.ask(m.ReadEntry(1, -1, previous_lac=0, wait=20_000))
        assert (answer.code, answer.body, answer.lac) == (Code.OK, None, 0)


async def test_polls_of_a_connection_that_is_gone_are_forgotten(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        reader, writer = await served.client(), await served.client()
        await writer.ask(add(1, 0))
        reader.send(*[m.ReadEntry(1, -1, previous_lac=0, wait=60_000_000)] * 10)
        await eventually(lambda: len(served.server.role.polls) == 10, "the polls")
        await reader.close()
        await eventually(lambda: not served.server.role.polls, "them to be forgotten")
        assert (await writer.ask(add(1, 1))).code is Code.OK


async def test_a_bookie_that_starts_again_has_everything(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        client = await served.client()
        await client.ask(add(1, 0))
        await client.ask(add(2, 0))
        await client.ask(m.ReadEntry(2, -1, True, KEY))
    async with serving(tmp_path) as served:
        client = await served.client()
        assert (await client.ask(m.ReadEntry(1, 0))).body == entry(1, 0)
        assert (await client.ask(add(1, 1))).code is Code.OK
        assert (await client.ask(add(2, 1))).code is Code.FENCED
        assert (await client.ask(add(1, 1, key=b"x" * 20))).code is Code.UNAUTHORIZED


# -- hostile clients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (struct.pack(">i", -1), "a frame says that it has -1 bytes"),
        (struct.pack(">i", 0), "a frame says that it has 0 bytes"),
        (struct.pack(">i", 1 << 30), "a frame says that it has 1,073,741,824 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "a frame says that it has 1,195,725,856 bytes"),
        (struct.pack(">i", 8) + b"\x0agarbage", "is no request of version 3"),
        (struct.pack(">i", 8) + b"\x02\x63\0\0garb", "operation 99 of version 2"),
    ],
)
async def test_garbage_closes_its_own_connection_alone(
    tmp_path: Path, garbage: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as served:
        hostile, other = await served.client(), await served.client()
        await other.ask(add(1, 0))
        hostile.writer.write(garbage)
        assert (await other.ask(add(1, 1))).code is Code.OK
        await eventually(lambda: len(served.server.connections) == 1, "the hostile connection to be closed")
        assert (await other.ask(m.ReadEntry(1, 1))).code is Code.OK
    assert [reason in record.getMessage() for record in caplog.records].count(True) == 1


async def test_an_unknown_operation_is_answered_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        client = await served.client()
        # header { version 3, operation RANGE_READ_ENTRY, txn 77 }
        message = b"\x0a\x06\x08\x03\x10\x03\x18\x4d"
        client.writer.write(struct.pack(">i", len(message)) + message)
        while not client.payloads:
            client.payloads += client.frames.feed(await client.reader.read(1 << 16))
        assert b"\x18\x4d" in client.payloads.pop()
        assert (await client.ask(add(1, 0))).code is Code.OK


@pytest.mark.parametrize(("size", "sent"), [(10, 40), (2_000, 40), (2_000, 500)])
async def test_half_a_frame_for_ever_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, size: int, sent: int
) -> None:
    monkeypatch.setattr("fencepost.ledger.bookie.server.SWEEP", 0.01)
    async with serving(tmp_path, frameTimeoutMs=1_000, nettyMaxFrameSizeBytes=1_024) as served:
        hostile, other = await served.client(), await served.client()
        assert (await other.ask(add(1, 0))).code is Code.OK
        hostile.writer.write(v3.encode_request(1, add(1, 1, bytes(size)))[:sent])
        if sent > 100:
            assert (await hostile.receive())[1].code is Code.UNAUTHORIZED
        assert await hostile.is_closed()
        assert (await other.ask(add(1, 1))).code is Code.OK
    assert "frameTimeoutMs" in caplog.text


async def test_parts_of_messages_never_take_more_memory_than_all_may_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.ledger.bookie.server.SWEEP", 0.01)
    monkeypatch.setattr("fencepost.ledger.rules.flow.SHARE", 1_000)
    limit, size = 1_000_000, 700_000
    async with serving(tmp_path, maxBytesInFlight=limit, frameTimeoutMs=300) as served:
        server, other = served.server, await served.client()
        hostile = [await served.client() for _ in range(10)]
        for client in hostile:
            client.writer.write(v3.encode_request(1, add(1, 0, b"x" * size))[:-1])
        await eventually(lambda: server.crowded, "too much to be held")
        assert (await other.ask(add(2, 0, b"x" * 100))).code is Code.OK
        assert server.in_flight_bytes == sum(each.held for each in server.connections.values())
        assert server.in_flight_bytes < limit + 10 * 300_000
        await eventually(lambda: len(server.connections) == 1, "the hostile ones to be closed")
        assert (server.in_flight_bytes, server.crowded) == (0, False)
    assert caplog.text.count("frameTimeoutMs") == 10


async def test_a_reader_that_takes_nothing_is_closed_and_never_holds_much_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.ledger.bookie.server.SWEEP", 0.01)
    limit, size = 200_000, 50_000
    async with serving(
        tmp_path, writeBufferBytesPerConnection=limit, waitTimeoutOnResponseBackpressureMs=300
    ) as served:
        other = await served.client()
        await other.ask(add(1, 0, b"x" * size))
        slow = socket.create_connection(("127.0.0.1", served.port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.sendall(b"".join(v3.encode_request(txn, m.ReadEntry(1, 0)) for txn in range(2_000)))
        most = 0
        while len(served.server.connections) == 2 or not most:
            for connection in served.server.connections.values():
                most = max(most, connection.transport.get_write_buffer_size())
            assert (await other.ask(m.ReadEntry(1, 0))).code is Code.OK
        assert limit // 2 < most < limit + 2 * size
        await eventually(lambda: not served.server.role.lookups, "what it asked for to be forgotten")
        slow.close()
    assert "waitTimeoutOnResponseBackpressureMs" in caplog.text


async def test_a_reader_that_is_slow_gets_everything(tmp_path: Path) -> None:
    async with serving(tmp_path, writeBufferBytesPerConnection=100_000) as served:
        client = await served.client(limit=1_000)
        for entry_id in range(4):
            await client.ask(add(1, entry_id, b"x" * 50_000))
        client.send(*(m.ReadEntry(1, entry_id % 4) for entry_id in range(200)))
        for _ in range(200):
            _, answer = await client.receive()
            assert answer.body == entry(1, answer.entry_id, b"x" * 50_000)


async def test_with_too_much_in_flight_a_connection_waits_and_loses_nothing(tmp_path: Path) -> None:
    async with serving(
        tmp_path, maxRequestsPerConnection=10, maxBytesPerConnection=5_000, maxBytesInFlight=6_000
    ) as served:
        clients = [await served.client() for _ in range(3)]
        for ledger, client in enumerate(clients):
            client.send(*(add(ledger, entry_id, b"x" * 1_000) for entry_id in range(500)))
        for client in clients:
            for _ in range(500):
                assert (await client.receive())[1].code is Code.OK
        server = served.server
        assert (server.in_flight_bytes, server.crowded) == (0, False)
        assert all(
            (each.in_flight, each.bytes, each.is_reading) == (0, 0, True) for each in server.connections.values()
        )


async def test_a_thousand_idle_connections_leave_room_for_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, maxConnections=20, idleConnectionMs=1) as served:
        idle = []
        for _ in range(200):
            idle.append(socket.create_connection(("127.0.0.1", served.port)))
            await asyncio.sleep(0.001)
        client = await served.client()
        assert (await client.ask(add(1, 0))).code is Code.OK
        assert len(served.server.connections) <= 20
        for each in idle:
            each.close()
    assert "maxConnections" in caplog.text


async def test_beyond_the_limit_a_connection_is_refused_if_none_is_idle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, maxConnections=2, idleConnectionMs=600_000) as served:
        clients = [await served.client() for _ in range(2)]
        for client in clients:
            await client.ask(add(1, 0))
        assert await (await served.client()).is_closed()
        for client in clients:
            assert (await client.ask(m.ReadEntry(1, 0))).code is Code.OK
    assert "is refused: there are 2 (maxConnections)" in caplog.text


async def test_too_many_long_polls_are_told_so(tmp_path: Path) -> None:
    async with serving(tmp_path, maxLongPolls=3) as served:
        client = await served.client()
        await client.ask(add(1, 0))
        client.send(*[m.ReadEntry(1, -1, previous_lac=0, wait=60_000_000)] * 5)
        assert [(await client.receive())[1].code for _ in range(2)] == [Code.TOO_MANY_REQUESTS] * 2


async def test_the_largest_ids_that_there_can_be_hurt_nobody(tmp_path: Path) -> None:
    last, most = m.LAST_ENTRY, (1 << 63) - 1
    async with serving(tmp_path) as served:
        client, of_version_2 = await served.client(), await served.client(v2)
        beyond = m.AddEntry(1, most, 0, struct.pack(">qqqq", 1, most, 0, 0), KEY)
        assert (await client.ask(beyond)).code is Code.BAD_REQUEST
        assert (await of_version_2.ask(beyond)).code is Code.BAD_REQUEST
        for ledger, entry_id in ((most, last), (1, last), (1, 0), (most, 0)):
            request = m.AddEntry(ledger, entry_id, most, struct.pack(">qqqq", ledger, entry_id, most, most), KEY)
            assert (await client.ask(request)).code is Code.OK
        for flushed in (False, True):
            if flushed:
                await asyncio.to_thread(served.server.storage.checkpoint)
            for ledger in (1, most):
                assert len((await of_version_2.ask(m.BatchRead(ledger, last, 10, 10_000))).bodies) == 1
                for entry_id in (0, last, -1):
                    assert (await client.ask(m.ReadEntry(ledger, entry_id))).code is Code.OK
                assert (await client.ask(m.ReadEntry(ledger, 7))).code is Code.NO_ENTRY
                assert (await client.ask(m.ReadEntry(ledger, -1, previous_lac=most, wait=1))).code is Code.OK
                assert (await client.ask(m.ReadEntry(ledger, -1, previous_lac=last - 1, wait=1))).body is not None
                assert (await client.ask(m.ListEntries(ledger))).code in (Code.OK, Code.IO_ERROR)
                assert (await client.ask(m.ReadLac(ledger))).code is Code.OK
        assert not served.stopped
    async with serving(tmp_path) as served:
        assert (await (await served.client()).ask(m.ReadEntry(most, last))).code is Code.OK


async def test_a_connection_that_changes_its_version_in_the_midst_of_requests_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as served:
        hostile, other = await served.client(), await served.client()
        assert (await other.ask(add(1, 0))).code is Code.OK
        hostile.send(m.ReadEntry(1, -1, previous_lac=0, wait=60_000_000), m.ForceLedger(1))
        await eventually(lambda: served.server.role.polls, "the poll")
        hostile.writer.write(v2.encode_request(1, m.ReadEntry(1, 0)))
        await eventually(lambda: len(served.server.connections) == 1, "the hostile connection to be closed")
        assert (await other.ask(add(1, 1))).code is Code.OK
        assert not served.stopped
    assert "changes to version 2" in caplog.text


@pytest.mark.parametrize("codec", [v3, v2], ids=["v3", "v2"])
async def test_requests_in_any_pieces_are_answered_as_they_would_be_one_by_one(tmp_path: Path, codec: Any) -> None:
    """Adds of several ledgers, keys and kinds between fences and reads, split anywhere. Some exceed one read."""
    random = Random(7)
    requests: list[m.Request] = []
    expected: list[tuple[int, int, Code]] = []
    keys: dict[int, bytes] = {}
    fenced: set[int] = set()
    stored: dict[tuple[int, int], bytes] = {}
    for number in range(1_500):
        ledger, entry_id, key = random.randrange(4), random.randrange(300), KEY if random.random() < 0.95 else b"o" * 20
        if random.random() < 0.1:
            fences = random.random() < 0.01
            requests.append(m.ReadEntry(ledger, -1 if fences else entry_id, fences, KEY if fences else None))
            if fences and keys.setdefault(ledger, KEY) == KEY:
                fenced.add(ledger)
            continue
        size = random.choice([0, 10, 100, 1_000, 300_000]) if number % 100 == 0 else random.randrange(200)
        recovery = random.random() < 0.1
        request = add(ledger, entry_id, random.randbytes(size), key, recovery=recovery)
        requests.append(request)
        code = (
            Code.UNAUTHORIZED
            if keys.get(ledger, key) != key
            else Code.FENCED
            if ledger in fenced and not recovery
            else Code.OK
        )
        expected.append((ledger, entry_id, code))
        if code is Code.OK:
            keys.setdefault(ledger, key)
            stored[ledger, entry_id] = request.body
    async with serving(tmp_path, frameTimeoutMs=60_000) as served:
        client = await served.client(codec)
        stream = b"".join(codec.encode_request(txn, request) for txn, request in enumerate(requests))
        answers: list[Any] = []

        async def receive() -> None:
            for _ in requests:
                answers.append((await client.receive())[1])

        receiving = asyncio.create_task(receive())
        at = 0
        while at < len(stream):
            size = random.choice([1, 3, 50, 1_000, 5_000, 100_000])
            client.writer.write(stream[at : at + size])
            await client.writer.drain()
            if random.random() < 0.3:
                await asyncio.sleep(0)
            at += size
        await receiving
        got = [(each.ledger, each.entry_id, each.code) for each in answers if type(each) is m.AddEntryResponse]
        assert sorted(got, key=repr) == sorted(expected, key=repr)
        reading = await served.client()
        for (ledger, entry_id), body in stored.items():
            assert (await reading.ask(m.ReadEntry(ledger, entry_id))).body == body
        server = served.server
        assert (server.in_flight_bytes, server.role.adds_under_way, len(server.role.unsynced)) == (0, 0, 0)
        assert server.metrics.answered[m.AddEntryResponse] == len(expected)
        assert server.metrics.refused[m.AddEntryResponse] == sum(code is not Code.OK for *_, code in expected)


async def test_a_bookie_goes_on_with_loops_when_they_are_ready(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.server.loops = None
        client = await served.client()
        half = v3.encode_request(100, add(2, 0))
        assert (await client.ask(add(1, 0))).code is Code.OK
        client.writer.write(half[:30])
        await eventually(lambda: next(iter(served.server.connections.values())).held, "half a message")
        await asyncio.to_thread(served.server.use, [loops])
        await eventually(lambda: served.server.loops, "the loops")
        client.writer.write(half[30:])
        assert (await client.receive()) == (100, m.AddEntryResponse(2, 0, Code.OK))
        client.send(*(add(1, entry_id) for entry_id in range(1, 100)))
        assert {(await client.receive())[1].code for _ in range(1, 100)} == {Code.OK}


async def test_idle_connections_hold_no_buffers(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        clients = [await served.client() for _ in range(100)]
        for client in clients:
            assert (await client.ask(add(1, 0))).code is Code.OK
        for connection in served.server.connections.values():
            assert (connection.held, connection.inbox._own, connection.inbox._kept) == (0, None, b"")


async def test_many_reads_at_once_of_what_is_in_memory_on_disk_and_nowhere(tmp_path: Path) -> None:
    async with serving(tmp_path, maxPendingReadRequestsPerThread=700, maxRequestsPerConnection=10_000) as served:
        for codec in (v3, v2):
            client, storage = await served.client(codec), served.server.storage
            for flushed in range(3):
                client.send(*(add(flushed + 1, entry_id, b"x" * (entry_id % 700), lac=10) for entry_id in range(100)))
                for _ in range(100):
                    assert (await client.receive())[1].code is Code.OK
                if flushed < 2:
                    await asyncio.to_thread(storage.checkpoint)
            wanted = [(ledger, entry_id) for entry_id in range(120) for ledger in (1, 2, 3, 4)]
            client.send(*(m.ReadEntry(*each) for each in wanted))
            answers = {(each.ledger, each.entry_id): each for each in [(await client.receive())[1] for _ in wanted]}
            assert len(answers) == len(wanted)
            for (ledger, entry_id), answer in answers.items():
                if ledger == 4:
                    assert answer.code is Code.NO_LEDGER
                elif entry_id >= 100:
                    assert answer.code is Code.NO_ENTRY
                else:
                    assert answer.body == entry(ledger, entry_id, b"x" * (entry_id % 700), lac=10)
                    assert codec is v2 or answer.lac == 10
            client.send(*(m.ReadEntry(1, n % 100) for n in range(1_000)))
            codes = [(await client.receive())[1].code for _ in range(1_000)]
            assert codes.count(Code.OK) >= 700 and {*codes} <= {Code.OK, Code.TOO_MANY_REQUESTS}
        role = served.server.role
        assert (role.lookups, role.reads, role.reads_under_way) == ({}, {}, 0)


async def test_reads_at_once_from_a_disk_that_fails_are_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as served:
        client, storage = await served.client(), served.server.storage
        client.send(*(add(1, entry_id) for entry_id in range(10)))
        for _ in range(10):
            await client.receive()
        await asyncio.to_thread(storage.checkpoint)

        def fail(*arguments: Any) -> Any:
            raise OSError("the disk is gone")

        monkeypatch.setattr(storage, "read_rows", fail)
        monkeypatch.setattr(storage, "look_up", fail)
        monkeypatch.setattr(storage, "look_up_now", lambda *arguments: None)
        monkeypatch.setattr(OsFile, "read_now", lambda *arguments: 0)
        client.send(*(m.ReadEntry(1, entry_id) for entry_id in range(10)))
        assert {(await client.receive())[1].code for _ in range(10)} == {Code.IO_ERROR}
        client.send(*(m.ReadEntry(1, entry_id) for entry_id in range(10)))
        await client.close()
        await eventually(lambda: not served.server.connections, "the end of the connection")
        await eventually(
            lambda: not served.server.role.reads and not served.server.role.lookups, "the reads to be forgotten"
        )


async def test_loops_are_loaded_once_when_they_are_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.ledger.bookie.server.WORTH", 20)
    async with serving(tmp_path) as served:
        server, loads = served.server, list[int]()
        server.loops, server.load_loops = None, lambda: loads.append(1)
        client = await served.client()
        for number in range(60):
            assert (await client.ask(add(1, number))).code is Code.OK
            assert len(loads) == (number >= 19)
