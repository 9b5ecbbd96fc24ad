"""Hostile clients of a bookie can harm their own connection only."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ledger.bookie.serving import KEY, Client, Served, add, entry, serving
from patience import eventually

from fencepost.ledger import messages as m
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import schema, v2, v3
from fencepost.ledger.wire.frames import frame

pytestmark = pytest.mark.usefixtures("every_way")

OTHER_KEY = b"x" * 20


@contextlib.asynccontextmanager
async def bookie(directory: Path, **settings: Any) -> AsyncIterator[tuple[Served, Client]]:
    """A bookie with an honest client. Whatever happens, it serves that client to the end, and raises nothing."""
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: raised.append(context))
    async with serving(directory, **settings) as served:
        honest = await served.client()
        assert (await honest.ask(add(1, 0))).code is Code.OK
        yield served, honest
        assert (await honest.ask(add(1, 1_000_000))).code is Code.OK
        assert (await honest.ask(m.ReadEntry(1, 0))).body == entry(1, 0)
        await eventually(lambda: len(served.server.connections) == 1, "the other connections to be gone")
        server = served.server
        await eventually(lambda: not server.role.lookups and not server.role.waiting, "what was asked to be answered")
        assert (server.in_flight_bytes, server.role.polls, served.stopped, raised) == (0, {}, [], [])


async def gone(client: Client) -> None:
    """Close a connection in any state."""
    with contextlib.suppress(ConnectionError):
        await client.close()


# -- bytes ------------------------------------------------------------------------------------------------------------


def requests(random: Random) -> list[bytes]:
    """Frames of all kinds of requests, some of them damaged."""
    key = KEY if random.random() < 0.7 else OTHER_KEY
    ledger = random.randrange(2, 6)
    of_3: list[m.Request] = [
        add(ledger, random.randrange(20), key=key, recovery=random.random() < 0.5),
        add(ledger, random.randrange(20), key=key, deferred_sync=True),
        m.ReadEntry(ledger, random.randrange(-1, 20)),
        m.ReadEntry(ledger, random.randrange(-1, 20), True, key if random.random() < 0.8 else None),
        m.ReadEntry(ledger, -1, previous_lac=random.randrange(-1, 30), wait=random.randrange(3) * 1000),
        m.ReadLac(ledger),
        m.WriteLac(ledger, random.randrange(30), b"lac", key),
        m.ForceLedger(ledger),
        m.ListEntries(ledger),
        m.GetBookieInfo(),
        m.Auth("plug-in", b"payload"),
        m.StartTls(),
    ]
    of_2: list[m.Request] = [
        add(ledger, random.randrange(20), key=key),
        m.ReadEntry(ledger, random.randrange(-1, 20)),
        m.BatchRead(ledger, random.randrange(20), random.randrange(-1, 9), random.randrange(-1, 300)),
        m.Auth("plug-in", b"payload"),
    ]
    codec, kinds = (v3, of_3) if random.random() < 0.6 else (v2, of_2)
    frames = [codec.encode_request(txn, random.choice(kinds)) for txn in range(random.randrange(1, 30))]
    for place in range(len(frames)):
        if random.random() < 0.15:
            damaged = bytearray(frames[place])
            start = 0 if random.random() < 0.1 else 4  # the length is damaged too
            damaged[random.randrange(start, min(len(damaged), 60))] = random.randrange(256)
            frames[place] = bytes(damaged)
    return frames


async def test_damaged_requests_of_all_kinds_in_pieces_of_any_size(tmp_path: Path) -> None:
    random = Random(5)

    async def hostile(served: Served) -> None:
        client = await served.client()
        stream = b"".join(requests(random))
        with contextlib.suppress(ConnectionError):
            while stream:
                size = random.choice((1, 3, 50, 5_000))
                client.writer.write(stream[:size])
                stream = stream[size:]
                if random.random() < 0.3:
                    await client.writer.drain()
            if random.random() < 0.5:
                client.writer.write_eof()
            elif random.random() < 0.5:
                client.writer.transport.abort()
            await asyncio.sleep(0)
        await gone(client)

    async with bookie(tmp_path) as (served, honest):
        for entry_id in range(1, 31):
            await asyncio.gather(*(hostile(served) for _ in range(10)))
            assert (await honest.ask(add(1, entry_id))).code is Code.OK


async def test_a_stream_that_comes_byte_by_byte_is_understood(tmp_path: Path) -> None:
    async with bookie(tmp_path) as (served, _):
        slow = await served.client()
        for txn in range(1, 4):
            for byte in v3.encode_request(txn, add(2, txn)):
                slow.writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert await slow.receive() == (txn, m.AddEntryResponse(2, txn, Code.OK))
        await gone(slow)


LIMIT = 100_000


def largest(codec: Any) -> int:
    """The size of the largest entry data whose frame is accepted."""
    return LIMIT - (len(codec.encode_request(1, add(2, 0, b"x" * 50_000))) - 4 - 50_000)


@pytest.mark.parametrize("codec", [v3, v2], ids=["v3", "v2"])
async def test_an_entry_of_the_largest_size_is_stored_and_one_byte_more_is_refused(
    tmp_path: Path, codec: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with bookie(tmp_path, nettyMaxFrameSizeBytes=LIMIT) as (served, _):
        client = await served.client(codec)
        room = largest(codec)
        assert (await client.ask(add(2, 0, b"x" * room))).code is Code.OK
        assert len((await client.ask(m.ReadEntry(2, 0))).body) > room
        refused = m.AddEntryResponse(2, 1, Code.UNAUTHORIZED)
        assert await client.ask(add(2, 1, b"x" * (room + 1))) == refused
        assert await client.ask(m.ReadEntry(2, 1)) == m.ReadEntryResponse(2, 1, Code.NO_ENTRY)
        assert (await client.ask(add(2, 1, b"x" * room))).code is Code.OK
        await gone(client)
    assert "entry 1 of ledger 2 from 127.0.0.1" in caplog.text
    assert "a frame says that it has 100,001 bytes, and from 1 to 100,000 are taken" in caplog.text


@pytest.mark.parametrize("codec", [v3, v2], ids=["v3", "v2"])
@pytest.mark.parametrize("piece", [3, 1_500, 1 << 20])
async def test_adds_that_are_too_large_are_refused_among_others_and_nothing_of_them_is_kept(
    tmp_path: Path, codec: Any, piece: int
) -> None:
    limit, count, too_large = 1_024, 30, {1, 2, 5, 20, 28}
    async with bookie(tmp_path, nettyMaxFrameSizeBytes=limit) as (served, _):
        client = await served.client(codec)
        adds = [add(2, each, b"x" * (5 * limit if each in too_large else 10)) for each in range(count)]
        stream = b"".join(codec.encode_request(each.entry_id, each) for each in adds)
        for start in range(0, len(stream), piece):
            client.writer.write(stream[start : start + piece])
            await asyncio.sleep(0)
            assert max(each.held for each in served.server.connections.values()) < limit
        answers = [(await client.receive())[1] for _ in adds]
        assert {each.entry_id for each in answers if each.code is Code.UNAUTHORIZED} == too_large
        assert {each.entry_id for each in answers if each.code is Code.OK} == set(range(count)) - too_large
        await gone(client)


def large_frame(size: int, start: bytes) -> bytes:
    """The first bytes of a frame that declares ``size`` bytes."""
    return struct.pack(">i", size) + start + bytes(100)


@pytest.mark.parametrize(
    "sent",
    [
        large_frame(LIMIT + 1, v3.encode_request(1, add(2, 0, recovery=True))[4:60]),
        large_frame(LIMIT + 1, v2.encode_request(1, add(2, 0, recovery=True))[4:60]),
        large_frame(LIMIT + 1, v3.encode_request(1, m.ReadEntry(2, 0))[4:]),
        large_frame(LIMIT + 1, v2.encode_request(1, m.ReadEntry(2, 0))[4:]),
        large_frame(LIMIT + 1, v3.encode_request(1, m.AddEntry(2, 2**63, -1, b"", KEY))[4:]),
        large_frame(LIMIT + 1, b"\x0a" + b"\xff" * 80),
        large_frame(LIMIT + 1, b"\x0a\x0a\x08\x03\x10\x02\x18" + b"\xff" * 80),
        large_frame((64 << 20) + 1, v3.encode_request(1, add(2, 0))[4:60]),
        large_frame(0, b""),
        large_frame(-5, v3.encode_request(1, add(2, 0))[4:60]),
    ],
)
async def test_what_is_too_large_and_no_writers_add_closes_the_connection(tmp_path: Path, sent: bytes) -> None:
    async with bookie(tmp_path, nettyMaxFrameSizeBytes=LIMIT) as (served, _):
        client = await served.client()
        client.writer.write(sent)
        assert await client.is_closed()


# -- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [v3, v2], ids=["v3", "v2"])
async def test_with_a_wrong_master_key_nothing_is_written_or_fenced(tmp_path: Path, codec: Any) -> None:
    async with bookie(tmp_path) as (served, honest):
        hostile = await served.client(codec)
        tries: list[m.Request] = [
            add(1, 0, b"mine", key=OTHER_KEY),
            add(1, 0, b"mine", key=OTHER_KEY, recovery=True),
            m.ReadEntry(1, -1, True, OTHER_KEY),
            m.ReadEntry(1, 0, True, OTHER_KEY),
            m.ReadEntry(1, -1, True),
        ]
        if codec is v3:
            tries += [m.WriteLac(1, 77, b"lac", OTHER_KEY), m.WriteLac(1, 77, b"lac", b"k")]
        else:
            tries += [m.BatchRead(1, 0, fence=True, master_key=OTHER_KEY), m.BatchRead(1, 0, fence=True)]
        for request in tries:
            assert (await hostile.ask(request)).code is Code.UNAUTHORIZED
        assert (await honest.ask(add(1, 1))).code is Code.OK
        lac = await honest.ask(m.ReadLac(1))
        assert (lac.lac_body, lac.last_entry) == (None, entry(1, 1))
        await gone(hostile)


def v3_add(version: int = 3, **fields: Any) -> bytes:
    """A request of version 3 to add an entry. Any of its fields may be wrong."""
    body = fields.pop("body", entry(2, 0))
    part = {"ledgerId": 2, "entryId": 0, "masterKey": KEY, "body": body} | fields
    request = schema.Request(header={"version": version, "operation": v3.ADD_ENTRY, "txnId": 9}, addRequest=part)
    return frame(request.SerializeToString())


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"version": 2}, Code.BAD_VERSION),
        ({"version": 4}, Code.BAD_VERSION),
        ({"entryId": 1}, Code.BAD_REQUEST),
        ({"ledgerId": 1}, Code.BAD_REQUEST),
        ({"entryId": -4096, "body": entry(2, -4096)}, Code.BAD_REQUEST),
        ({"ledgerId": -1, "body": entry(-1, 0)}, Code.BAD_REQUEST),
        ({"body": b"short"}, Code.BAD_REQUEST),
        ({"masterKey": b""}, Code.BAD_REQUEST),
    ],
    ids=lambda given: ", ".join(given) if isinstance(given, dict) else given.name,
)
async def test_an_add_that_makes_no_sense_is_refused_and_the_connection_goes_on(
    tmp_path: Path, wrong: dict[str, Any], code: Code
) -> None:
    async with bookie(tmp_path) as (served, _):
        client = await served.client()
        client.writer.write(v3_add(**wrong))
        txn, answer = await client.receive()
        assert (txn, answer.code) == (9, code)
        assert (await client.ask(m.ReadEntry(2, -1))).code is Code.NO_LEDGER
        assert (await client.ask(m.ReadEntry(1, 0))).code is Code.OK
        assert list(served.server.role.ledgers) == [1]
        await gone(client)


async def test_a_connection_stays_in_version_2(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with bookie(tmp_path) as (served, _):
        client = await served.client(v2)
        assert (await client.ask(m.ReadEntry(1, 0))).code is Code.OK
        client.writer.write(v3.encode_request(1, m.ReadEntry(1, 0)))
        assert await client.is_closed()
        client = await served.client(v3)
        assert (await client.ask(m.Auth("plug-in"))).plugin == m.NO_AUTHENTICATION
        client.codec = v2  # as clients that ask for TLS continue in version 2
        assert (await client.ask(m.ReadEntry(1, 0))).code is Code.OK
        await gone(client)
    assert "operation 6 of version 10" in caplog.text


async def test_another_version_2_is_answered(tmp_path: Path) -> None:
    async with bookie(tmp_path) as (served, _):
        client = await served.client(v2)
        for version in (1, 3, 77):
            client.writer.write(frame(struct.pack(">BBHqq", version, v2.READ_ENTRY, 0, 1, 0)))
            assert await client.receive() == (0, m.ReadEntryResponse(1, 0, Code.BAD_VERSION))
        assert (await client.ask(m.ReadEntry(1, 0))).code is Code.OK
        await gone(client)


# -- too much of it ---------------------------------------------------------------------------------------------------


async def test_a_thousand_idle_connections_hinder_nobody(tmp_path: Path) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(1_000, (soft - 200) // 2)
    async with bookie(tmp_path) as (served, honest):
        idle = []
        for number in range(count):
            idle.append(socket.create_connection(("127.0.0.1", served.port)))
            idle[-1].sendall((b"", b"\0", b"\0\0\0\x40\x0a\x06", struct.pack(">i", 5_000_000))[number % 4])
            if number % 50 == 49:
                assert (await honest.ask(add(1, number))).code is Code.OK
        await eventually(lambda: len(served.server.connections) == count + 1, "the connections")
        for entry_id in range(100):
            assert (await honest.ask(add(1, 2_000 + entry_id))).code is Code.OK
        for each in idle:
            each.close()


async def test_a_writer_that_takes_no_answers_is_held_up_and_loses_nothing(tmp_path: Path) -> None:
    """The answers to adds are small, but they never end."""
    limit = 20_000
    async with bookie(tmp_path, writeBufferBytesPerConnection=limit) as (served, honest):
        deaf = socket.create_connection(("127.0.0.1", served.port))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.setblocking(False)
        stream = b"".join(v3.encode_request(txn, add(2, txn % 50)) for txn in range(1, 1_000))
        await eventually(lambda: len(served.server.connections) == 2, "the connection")
        hostile = served.server.connections[max(served.server.connections)]
        # The operating system would take some hundred thousand answers for the client.
        hostile.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        sending = asyncio.ensure_future(_send_for_ever(deaf, stream))
        await eventually(lambda: hostile.is_blocked, "the bookie to hold the writer up")
        for entry_id in range(1, 50):
            assert (await honest.ask(add(1, entry_id))).code is Code.OK
            assert hostile.transport.get_write_buffer_size() < 40 * limit
        assert not hostile.is_reading
        sending.cancel()
        deaf.close()


async def _send_for_ever(into: socket.socket, stream: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            await asyncio.get_running_loop().sock_sendall(into, stream)


async def test_small_batch_reads_for_large_answers_take_the_memory_of_few(tmp_path: Path) -> None:
    """A request of 44 bytes asks for 2 MB. A client sends a thousand of them and takes none of the answers."""
    limit, size, count = 200_000, 100_000, 20
    async with bookie(tmp_path, writeBufferBytesPerConnection=limit) as (served, honest):
        for entry_id in range(count):
            await honest.ask(add(2, entry_id, b"x" * size))
        deaf = socket.create_connection(("127.0.0.1", served.port))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.sendall(b"".join(v2.encode_request(txn, m.BatchRead(2, 0)) for txn in range(1_000)))
        await eventually(lambda: len(served.server.connections) == 2, "the connection")
        hostile = served.server.connections[max(served.server.connections)]
        await eventually(lambda: hostile.transport.get_write_buffer_size(), "the first answer")
        for entry_id in range(1, 50):
            assert (await honest.ask(add(1, entry_id))).code is Code.OK
            assert hostile.transport.get_write_buffer_size() < limit + 2 * size * count
        deaf.close()


async def test_a_client_that_is_gone_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    async with bookie(tmp_path) as (served, honest):
        for ledger in range(2, 12):
            client = await served.client()
            client.send(*(add(ledger, entry_id) for entry_id in range(50)))
            client.send(*(m.ReadEntry(ledger, entry_id) for entry_id in range(-1, 50)))
            client.send(*[m.ReadEntry(ledger, -1, previous_lac=60, wait=600_000_000)] * 10)
            client.writer.write(v3.encode_request(1, add(ledger, 51))[:-7])
            await asyncio.sleep(0)
            client.writer.transport.abort()
        for entry_id in range(1, 20):
            assert (await honest.ask(add(1, entry_id))).code is Code.OK


async def test_polls_that_never_end_are_few(tmp_path: Path) -> None:
    async with bookie(tmp_path, maxLongPolls=100, maxLongPollsPerLedger=50) as (served, honest):
        clients = [await served.client() for _ in range(5)]
        for client in clients:
            client.send(*[m.ReadEntry(1, -1, previous_lac=2**62, wait=2**62)] * 100)
        await eventually(lambda: len(served.server.role.polls) == 50, "the polls that may wait")
        for client in clients:
            assert (await client.receive())[1].code is Code.TOO_MANY_REQUESTS
        assert (await honest.ask(add(1, 1))).code is Code.OK
        for client in clients:
            await gone(client)
