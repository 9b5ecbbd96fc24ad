"""A session with servers that do what no sound one does."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from kazoo import exceptions
from patience import eventually

from fencepost.ledger.metadata.session import Session, ZooKeeperSession

CONNECTED = struct.pack(">iiiqi16s?", 37, 0, 600, 7, 16, bytes(16), False)
"""A session of 0.6 seconds."""
Serves = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Owner:
    """Notes what happens."""

    def __init__(self) -> None:
        self.states: list[Session] = []
        self.fired: list[str | None] = []

    def session_changed(self, state: Session) -> None:
        self.states.append(state)

    def watch_fired(self, path: str | None) -> None:
        self.fired.append(path)

    def login_refused(self) -> None:
        raise AssertionError


@asynccontextmanager
async def standing(serves: Serves) -> AsyncIterator[tuple[ZooKeeperSession, Owner]]:
    """A session at a server."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await read(reader)
            writer.write(CONNECTED)
            await serves(reader, writer)
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    owner = Owner()
    session = ZooKeeperSession([server.sockets[0].getsockname()[:2]], 0.6, owner)
    session.start()
    try:
        yield session, owner
    finally:
        await session.stop()
        server.close()


async def read(reader: asyncio.StreamReader) -> bytes:
    """The next message."""
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))


async def request(reader: asyncio.StreamReader) -> tuple[int, int]:
    """The number and the kind of the next request that is no ping."""
    while (number := struct.unpack_from(">ii", await read(reader)))[1] == 11:
        pass
    return number


def answer(number: int, code: int = 0, body: bytes = b"") -> bytes:
    payload = struct.pack(">iqi", number, 1, code) + body
    return len(payload).to_bytes(4) + payload


async def is_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pass


@pytest.mark.parametrize(
    "message",
    [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", answer(1, -9999), answer(1, body=b"\0\0\0\x09x")],
    ids=["negative", "endless", "empty", "unknown error", "cut"],
)
async def test_what_is_no_answer_breaks_the_connection_and_another_one_is_opened(message: bytes) -> None:
    count = 0

    async def serves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        number, _ = await request(reader)
        writer.write(message if count == 1 else answer(number, body=b"\0\0\0\x01x" + bytes(68)))

    async with standing(serves) as (session, owner):
        with pytest.raises(exceptions.ConnectionLoss):
            await session.get("/x")
        assert (await session.get("/x"))[0] == b"x"
        assert owner.states == [Session.CONNECTED, Session.DISCONNECTED, Session.CONNECTED] and owner.fired == [None]


async def test_a_server_that_falls_silent_is_left_before_the_session_is_over() -> None:
    async with standing(is_silent) as (session, owner):
        await eventually(lambda: Session.DISCONNECTED in owner.states, "the session to be disconnected")
        await eventually(lambda: owner.states.count(Session.CONNECTED) == 2, "a second connection")
        assert session.client_id == (7, bytes(16)), "it is the same session"


async def test_a_process_that_was_blocked_reads_first_what_has_come() -> None:
    async def serves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            number, _ = struct.unpack(">ii", await read(reader))
            writer.write(answer(number))

    async with standing(serves) as (session, owner):
        await eventually(lambda: owner.states, "a state of the session")
        link = session._link
        assert link is not None
        for _ in range(3):
            link._heard_at -= 10
            link._look_at -= 10  # as if the loop had done nothing for so long
            link._look()
            await asyncio.sleep(0)
        assert session._link is link


async def test_requests_of_one_turn_go_out_together_in_their_order() -> None:
    got: list[int] = []

    async def serves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            number, kind = await request(reader)
            got.append(kind)
            writer.write(answer(number, body=b"\0\0\0\x01x" + bytes(68)))

    async with standing(serves) as (session, owner):
        await asyncio.gather(session.get("/x"), session.delete("/x"))  # wait for the connection
        sent: list[bytes] = []
        assert session._link is not None
        write = session._link._transport.write

        class Transport:
            def write(self, data: bytes) -> None:
                sent.append(data)
                write(data)

        session._link._transport = Transport()
        await asyncio.gather(*(each("/x") for each in (session.delete, session.get, session.delete, session.get)))
        pings = sum(data[8:12] == b"\0\0\0\x0b" and len(data) == 12 for data in sent)
        assert len(sent) - pings == 2, "the first goes at once, and the others go together"
        assert got == [4, 2, 2, 4, 2, 4]
        session._link._transport = write.__self__


async def test_what_waits_when_a_session_is_stopped_fails_and_so_does_what_comes_later() -> None:
    async with standing(is_silent) as (session, owner):
        waiting = session.get("/x")
        await eventually(lambda: owner.states, "a state of the session")
        session.timeout = 0.1
        await session.stop()
        with pytest.raises(exceptions.ConnectionLoss):
            await waiting
        with pytest.raises(exceptions.ConnectionClosedError):
            await session.get("/x")
