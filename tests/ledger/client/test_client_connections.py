"""A client's connections to bookies: they reconnect, time out, carry TLS, and survive whatever a bookie sends."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import certificates
import msgspec
import pytest
from ledger.client.standins import QUICK, Cluster
from ledger.client.test_ledgers import contents
from patience import eventually

from fencepost.ledger import errors
from fencepost.ledger.client.connection import Connection
from fencepost.ledger.messages import (
    AddEntry,
    AddEntryResponse,
    ListEntries,
    ListEntriesResponse,
    ReadEntry,
    ReadEntryResponse,
    Response,
)
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire.frames import frame
from fencepost.ledger.wire.v3 import encode_response


class Asker:
    """A requester that records the answers to its requests."""

    def __init__(self) -> None:
        self.told: list[tuple[int, Response | None]] = []

    def answered(self, txn: int, bookie: str, response: Response) -> None:
        self.told.append((txn, response))

    def unanswered(self, txn: int, bookie: str) -> None:
        self.told.append((txn, None))


class Home:
    """The client of one connection to a server at a port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.events: list[str] = []

    async def address_of(self, bookie: str) -> tuple[str, int]:
        if not self.port:
            raise ValueError("nobody knows where it is")
        return "127.0.0.1", self.port

    def failed(self, bookie: str) -> None:
        self.events.append("failed")

    def disconnected(self, bookie: str) -> None:
        self.events.append("disconnected")


async def test_a_bookie_that_is_not_there_leaves_everything_unanswered_and_is_tried_again() -> None:
    home, asker = Home(0), Asker()
    connection = Connection("b", home, msgspec.structs.replace(QUICK, reconnect_delay=0.01))
    for txn in range(3):
        connection.send(asker, txn, ListEntries(1))
    assert not asker.told, "never before send returns"
    await eventually(lambda: len(asker.told) == 3, "the end of the attempt")
    assert asker.told == [(0, None), (1, None), (2, None)]
    assert home.events == ["failed", "disconnected"]
    connection.send(asker, 3, ListEntries(1))
    await eventually(lambda: len(asker.told) == 4, "the end of the next")
    assert connection.attempts == 2 and not connection.waiting and connection.unanswered_size == 0
    connection.close()


async def test_roles_hear_that_a_connection_is_gone_before_what_is_unanswered() -> None:
    home = Home(0)

    class Told(Asker):
        def unanswered(self, txn: int, bookie: str) -> None:
            home.events.append("unanswered")

    connection = Connection("b", home, QUICK)
    connection.send(Told(), 1, ListEntries(1))
    await eventually(lambda: "unanswered" in home.events, "the end of the attempt")
    assert home.events == ["failed", "disconnected", "unanswered"]
    connection.close()


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\0",
        frame(b"nonsense"),
        frame(b"\x0a\x02\x08\x03"),
        b"HTTP/1.1 400 Bad Request\r\n",
    ],
)
async def test_whatever_is_no_response_breaks_the_connection_and_nothing_else(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(said)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    home, asker = Home(server.sockets[0].getsockname()[1]), Asker()
    connection = Connection("b", home, QUICK)
    connection.send(asker, 1, ListEntries(1))
    await eventually(lambda: asker.told, "the end of the connection")
    assert asker.told == [(1, None)] and connection.link is None
    connection.close()
    server.close()


async def test_a_bookie_that_is_silent_is_given_up_and_its_connection_too() -> None:
    reached = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal reached
        reached += 1
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    home, asker = Home(server.sockets[0].getsockname()[1]), Asker()
    connection = Connection("b", home, msgspec.structs.replace(QUICK, request_timeout=0.2))
    connection.send(asker, 1, ListEntries(1))
    connection.send(asker, 2, ReadEntry(1, -1, previous_lac=0, wait=300_000))
    await eventually(lambda: len(asker.told) == 2, "the end of the connection")
    assert home.events[-1] == "disconnected"
    connection.send(asker, 3, ListEntries(1))
    await eventually(lambda: reached == 2, "another connection")
    connection.close()
    server.close()


async def test_a_bookie_that_is_far_behind_gets_no_more() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    home, asker = Home(server.sockets[0].getsockname()[1]), Asker()
    connection = Connection("b", home, msgspec.structs.replace(QUICK, unanswered_limit=1000, request_timeout=60.0))
    for txn in range(3):
        connection.send(asker, txn, AddEntry(1, txn, -1, bytes(600), bytes(20)))
    await eventually(lambda: asker.told, "what is refused")
    assert asker.told == [(2, None)] and home.events == ["failed"] and len(connection.waiting) == 2
    connection.close()
    server.close()


class Line:
    """A connection with its own clock. Its bookie answers what the test says."""

    def __init__(self, adds: int) -> None:
        self.home, self.asker, self.time = Home(0), Asker(), 100.0
        self.connection = Connection("b", self.home, msgspec.structs.replace(QUICK, request_timeout=4.0))
        self.connection.now = lambda: self.time
        self.aborted: list[str] = []
        self.connection.link = self  # type: ignore[assignment]
        for txn in range(adds):
            self.connection.send(self.asker, txn, AddEntry(1, txn, -1, b"entry", bytes(20)))

    def write(self, frames: list[bytes]) -> None:
        """Discard the data."""

    def close(self) -> None:
        """Nothing to close."""

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)

    def answer(self, *txns: int) -> None:
        responses = [encode_response(txn + 1, AddEntryResponse(1, txn, Code.OK)) for txn in txns]
        self.connection.received([response[4:] for response in responses])

    def sweep(self, after: float, held_up: float = 0.0) -> None:
        """Run a sweep ``held_up`` seconds late, ``after`` seconds from now."""
        self.time += after
        self.connection.sweeping_at = self.time
        self.time += held_up
        self.connection._sweep()

    @property
    def unanswered(self) -> list[int]:
        return [txn for txn, response in self.asker.told if response is None]


async def test_whoever_stands_in_a_line_that_moves_is_not_late() -> None:
    line = Line(adds=8)
    for txn in range(8):
        line.sweep(after=3.0)
        line.answer(txn)
    assert not line.unanswered and not line.home.events, "the last was answered 24 s after it was sent"
    assert len(line.asker.told) == 8 and line.connection.unanswered_size == 0
    line.connection.close()


async def test_whoever_was_overtaken_is_late_and_so_is_a_line_that_stands() -> None:
    line = Line(adds=5)
    line.sweep(after=3.0)
    line.answer(0, 2)
    line.sweep(after=1.5)
    assert line.unanswered == [1] and line.home.events == ["failed"]
    line.sweep(after=2.0)
    assert line.unanswered == [1], "the bookie was heard 3.5 s ago, and two stand in line"
    line.connection.heard_at = line.time  # of something else
    line.sweep(after=1.0)
    assert line.unanswered == [1, 3, 4] and not line.aborted
    line.connection.close()


async def test_adds_are_not_overtaken_by_reads() -> None:
    line = Line(adds=2)
    line.connection.send(line.asker, 2, ReadEntry(1, 0))
    line.sweep(after=3.0)
    line.answer(0)
    line.connection.received([encode_response(3, ReadEntryResponse(1, 0, Code.NO_ENTRY))[4:]])
    line.sweep(after=2.0)
    assert not line.unanswered
    line.answer(1)
    line.connection.close()


async def test_a_client_that_was_held_up_reads_before_it_judges() -> None:
    line = Line(adds=3)
    line.sweep(after=1.0, held_up=30.0)
    assert not line.unanswered and not line.aborted, "the answers may be there"
    line.answer(0)
    line.sweep(after=1.0)
    assert not line.unanswered
    line.sweep(after=5.0)
    assert line.aborted == ["nothing came for 4 s"], "it does not forget those that are not"
    line.connection.close()


async def test_a_long_poll_may_take_longer_than_other_requests(cluster: Cluster) -> None:
    store = await cluster.connect(request_timeout=0.3, poll_wait=1.0)
    ledger = await store.create_ledger(explicit_lac_interval=0)
    await ledger.append_many([b"one", b"two"])
    async with store.open_ledger(ledger.id) as reader:
        tail = reader.tail()
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0.7)
        asked = [request for bookie in cluster.bookies.values() for request in bookie.asked]
        polls = [request for request in asked if type(request) is ReadEntry and request.previous_lac is not None]
        assert len(polls) == 1, "one poll, not given up in between"
        await ledger.append(b"three")
        assert (await waiting).data == b"one"
        await tail.aclose()
    await ledger.close()


async def test_what_a_bookie_answers_can_be_asked_for_itself(cluster: Cluster) -> None:
    store = await cluster.connect()
    async with store.create_ledger() as ledger:
        await ledger.append_many([b"a", b"b"])
    assert await store.ask("b1", ListEntries(ledger.id)) == ListEntriesResponse(ledger.id, Code.OK, ((0, 1),))
    await cluster.kill("b1")
    assert await store.ask("b1", ListEntries(ledger.id)) is None


async def test_a_bookie_that_comes_back_at_another_port_is_found(cluster: Cluster) -> None:
    store = await cluster.connect()
    async with store.create_ledger() as ledger:
        await ledger.append(b"one")
    for bookie in cluster.bookies.values():
        await bookie.stop()
        bookie.port = 0
        await bookie.start()
        info = cluster.metadata.infos[bookie.name]
        assert info is not None
        endpoint = msgspec.structs.replace(info.endpoints[0], port=bookie.port)
        cluster.metadata.infos[bookie.name] = msgspec.structs.replace(info, endpoints=(endpoint,))
    async with store.open_ledger(ledger.id) as reader:
        assert await contents(reader) == [b"one"]


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The TLS contexts of a bookie and of a client that trusts it."""
    return certificates.server().context, certificates.client().context


async def test_connections_go_on_under_tls(cluster: Cluster) -> None:
    of_bookie, of_client = contexts()
    for bookie in cluster.bookies.values():
        bookie.tls = of_bookie
    store = await cluster.connect(tls=of_client)
    data = [b"%d" % number for number in range(100)]
    async with store.create_ledger() as ledger:
        await ledger.append_many(data)
    async with store.open_ledger(ledger.id) as reader:
        assert await contents(reader) == data
    link: Any = store.driver.connections["b1"].link
    assert link.transport.get_extra_info("cipher")


@pytest.mark.parametrize("under_tls", [False, True])
@pytest.mark.usefixtures("every_loop")
async def test_large_entries_arrive_as_they_were_appended(cluster: Cluster, under_tls: bool) -> None:
    """They are sent in more pieces than one system call takes, and their memory is reused."""
    of_bookie, of_client = contexts()
    if under_tls:
        for bookie in cluster.bookies.values():
            bookie.tls = of_bookie
    store = await cluster.connect(tls=of_client if under_tls else None)
    data = [number.to_bytes(2) * (8_500 + number) for number in range(600)]
    async with store.create_ledger(in_flight=len(data)) as ledger:
        await ledger.append_many(data)
        await ledger.append_many([entry[1:] for entry in data[:100]])
    async with store.open_ledger(ledger.id) as reader:
        assert await contents(reader) == data + [entry[1:] for entry in data[:100]]


@pytest.mark.parametrize("trusts", [True, False])
async def test_without_tls_there_or_without_trust_nothing_is_sent(cluster: Cluster, trusts: bool) -> None:
    of_bookie, of_client = contexts()
    for bookie in cluster.bookies.values():
        bookie.tls = None if trusts else of_bookie
    store = await cluster.connect(tls=of_client if trusts else ssl.create_default_context())
    ledger = await store.create_ledger()
    with pytest.raises(errors.NotEnoughBookiesError):
        await ledger.append(b"secret")
    assert not any(bookie.asked for bookie in cluster.bookies.values())
