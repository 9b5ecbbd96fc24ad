"""Users of a bookie: a client that does not authenticate by BookKeeper's SASL is served nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any

import certificates
import pytest
from ledger.bookie.serving import Client, add, serving
from patience import eventually

from fencepost.connections import sasl
from fencepost.connections.users import Credentials, line
from fencepost.errors import OptionError
from fencepost.ledger import messages as m
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.client.connection import Connection
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import v2, v3

pytestmark = pytest.mark.usefixtures("every_way")

KNOWN = Credentials("writer", 'a "secret": none')
REQUIRED: dict[str, Any] = {"tlsRequired": True, "tlsCertificatePath": "c", "tlsKeyStore": "k"}


@pytest.fixture
def users(tmp_path: Path) -> str:
    """A file with one user."""
    file = tmp_path / "users"
    file.touch(0o640)
    file.write_text(line(*KNOWN) + "\n")
    return str(file)


async def authenticated(client: Client, credentials: Credentials = KNOWN) -> Any:
    """Authenticate as the Java client does, which sends one more empty token. Returns the last answer."""
    of_client = sasl.Client(m.SASL_NAME, m.SASL_NAME, *credentials, "0123456789")
    token = of_client.step(b"")
    while not of_client.is_complete:
        answer = await client.ask(m.Auth(m.SASL, token))
        if answer.code is not Code.OK:
            return answer
        token = of_client.step(answer.payload)
    return await client.ask(m.Auth(m.SASL, token))


@pytest.mark.parametrize("codec", [v3, v2], ids=["v3", "v2"])
async def test_who_authenticates_is_served(tmp_path: Path, users: str, codec: Any) -> None:
    async with serving(tmp_path / "bookie", saslUsers=users) as served:
        client = await served.client(codec=codec)
        assert await authenticated(client) == m.AuthResponse(Code.OK, m.NO_AUTHENTICATION)
        client.send(*(add(1, entry_id) for entry_id in range(100)))
        for _ in range(100):
            assert (await client.receive())[1].code is Code.OK
        assert next(iter(served.server.connections.values())).user == "writer"


@pytest.mark.parametrize("codec", [v3, v2], ids=["v3", "v2"])
@pytest.mark.parametrize(
    "asked",
    [
        add(1, 0),
        m.ReadEntry(1, 0),
        m.ReadEntry(1, -1, fence=True, master_key=b"k" * 20),
        m.Auth("another plug-in", b""),
        m.Auth(m.SASL, b"no token"),
    ],
    ids=["add", "read", "fence", "plug-in", "token"],
)
async def test_who_does_not_is_served_nothing(tmp_path: Path, users: str, codec: Any, asked: m.Request) -> None:
    async with serving(tmp_path / "bookie", saslUsers=users) as served:
        stranger = await served.client(codec=codec)
        stranger.send(*[asked] * 3)
        assert (await stranger.receive())[1].code is Code.UNAUTHORIZED
        assert await stranger.is_closed()
        # nor in the midst of an authentication
        stranger = await served.client(codec=codec)
        assert (await stranger.ask(m.Auth(m.SASL))).payload.startswith(b'realm="fencepost"')
        stranger.send(asked)
        assert (await stranger.receive())[1].code is Code.UNAUTHORIZED
        assert await stranger.is_closed()
        client = await served.client()
        await authenticated(client)
        assert (await client.ask(m.ReadEntry(1, 0))).code is Code.NO_LEDGER


@pytest.mark.parametrize("wrong", [Credentials("writer", "another"), Credentials("reader", KNOWN.password)])
async def test_a_wrong_name_or_password_is_refused(
    tmp_path: Path, users: str, wrong: Credentials, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "bookie", saslUsers=users) as served:
        client = await served.client()
        assert (await authenticated(client, wrong)).code is Code.UNAUTHORIZED
        assert await client.is_closed()
    assert "it is not authenticated: the user is not known, or the password is wrong" in caplog.text
    assert KNOWN.password not in caplog.text


async def test_who_is_turned_away_and_takes_no_answer_is_gone_in_time(
    tmp_path: Path, users: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.ledger.bookie.server.SWEEP", 0.01)
    settings: dict[str, Any] = {
        "saslUsers": users,
        "frameTimeoutMs": 1_000,
        "writeBufferBytesPerConnection": 128 << 20,
    }
    async with serving(tmp_path / "bookie", **settings) as served:
        stranger = socket.create_connection(("127.0.0.1", served.port))
        await eventually(lambda: served.server.connections, "the connection")
        (connection,) = served.server.connections.values()
        connection.transport.write(bytes(32 << 20))  # as many answers as the system does not take
        stranger.sendall(v3.encode_request(1, add(1, 0)))
        await eventually(lambda: connection.is_closed, "the refusal")
        await eventually(lambda: not served.server.connections, "the end of the connection")
        stranger.close()


@pytest.mark.parametrize("is_first", ["TLS", "SASL"])
async def test_where_both_are_asked_for_neither_is_enough(tmp_path: Path, users: str, is_first: str) -> None:
    both = {**REQUIRED, "saslUsers": users}
    async with serving(tmp_path / "bookie", certificates.server(), **both) as served:
        client = await served.client()
        if is_first == "SASL":
            of_client = sasl.Client(m.SASL_NAME, m.SASL_NAME, *KNOWN, "0123456789")
            challenge = await client.ask(m.Auth(m.SASL, of_client.step(b"")))
            await client.ask(m.Auth(m.SASL, of_client.step(challenge.payload)))
        lacking = await served.client()
        if is_first == "TLS":
            assert (await lacking.ask(m.StartTls())).code is Code.OK
            await lacking.writer.start_tls(certificates.client().context, server_hostname="127.0.0.1")
        assert (await lacking.ask(m.ReadEntry(1, 0))).code is Code.UNAUTHORIZED
        assert (await client.ask(m.StartTls())).code is Code.OK
        await client.writer.start_tls(certificates.client().context, server_hostname="127.0.0.1")
        if is_first == "TLS":
            await authenticated(client)
        assert (await client.ask(m.ReadEntry(1, 0))).code is Code.NO_LEDGER


class Asker:
    """A client of the store, and one that asks."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def address_of(self, bookie: str) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def failed(self, bookie: str) -> None:
        pass

    def disconnected(self, bookie: str) -> None:
        pass

    def answered(self, txn: int, bookie: str, response: Any) -> None:
        self.outcome.set_result(response.code)

    def unanswered(self, txn: int, bookie: str) -> None:
        if not self.outcome.done():
            self.outcome.set_result(None)


@pytest.mark.parametrize("under_tls", [False, True])
@pytest.mark.parametrize("credentials", [KNOWN, Credentials("writer", "another"), None], ids=["known", "wrong", "none"])
async def test_our_client_authenticates(
    tmp_path: Path, users: str, credentials: Any, under_tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tls = certificates.server() if under_tls else None
    required = REQUIRED if under_tls else {}
    async with serving(tmp_path / "bookie", tls, saslUsers=users, **required) as served:
        asker = Asker(served.port)
        of_tls = certificates.client() if under_tls else None
        connection = Connection("b", asker, ClientSettings(tls=of_tls, credentials=credentials))
        connection.send(asker, 1, m.ReadEntry(1, 0))
        expected = {KNOWN: Code.NO_LEDGER, None: Code.UNAUTHORIZED}.get(credentials)
        assert await asker.outcome is expected
        connection.close()
    assert ("it does not know writer, or by another password" in caplog.text) == (
        credentials is not None and credentials != KNOWN
    )
    assert KNOWN.password not in caplog.text


async def test_our_client_authenticates_where_nobody_need(tmp_path: Path) -> None:
    async with serving(tmp_path / "bookie") as served:
        asker = Asker(served.port)
        connection = Connection("b", asker, ClientSettings(credentials=KNOWN))
        connection.send(asker, 1, m.ReadEntry(1, 0))
        assert await asker.outcome is Code.NO_LEDGER
        connection.close()


def test_users_that_are_not_there_or_shown_to_everybody_are_refused_at_the_start(tmp_path: Path, users: str) -> None:
    with pytest.raises(OptionError, match="cannot be read: No such file"):
        BookieSettings.of({"saslUsers": str(tmp_path / "none")}).users()
    Path(users).chmod(0o644)
    with pytest.raises(OptionError, match="chmod 640"):
        BookieSettings.of({"saslUsers": users}).users()
