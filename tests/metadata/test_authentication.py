"""SASL: ZooKeeper's request, the store's client, ACLs, and clients that are refused."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest
from metadata import zkclient as zk
from metadata.servers import Serve
from metadata.zkclient import Bytes, Client, Connect

from fencepost.connections import sasl, users
from fencepost.errors import OptionError
from fencepost.ledger.errors import MetadataServiceError
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.metadata.settings import MetadataSettings

ONLY_ANN = [(31, "sasl", "ann")]


@pytest.fixture
def known(tmp_path: Path) -> str:
    path = tmp_path / "users"
    path.write_text("".join(users.line(name, f"{name}'s password") + "\n" for name in ("ann", "bob")))
    path.chmod(0o640)
    return str(path)


def token(client: Client, data: bytes) -> tuple[int, bytes]:
    """Send a token. Gives the error and the token of the answer."""
    client.send_frame(struct.pack(">ii", 5, 102) + zk.blob(data))
    answer = Bytes(client.frame())
    xid, _, error = answer.take("iqi")
    assert xid == 5
    return error, b"" if error else (answer.blob() or "").encode("latin-1")


def authenticate(client: Client, user: str, password: str) -> int:
    """Authenticate. Gives the last error, or 0 on success."""
    mechanism = sasl.Client("zookeeper", "zk-sasl-md5", user, password, "a nonce")
    error, given = token(client, mechanism.step(b""))
    while not error and not mechanism.is_complete:
        answer = mechanism.step(given)
        if mechanism.is_complete:
            break
        error, given = token(client, answer)
    return error


def test_an_acl_of_a_user_lets_in_who_has_authenticated(serve: Serve, connect: Connect, known: str) -> None:
    server = serve(saslUsers=known, superUser="bob")
    client = connect(server)
    assert authenticate(client, "ann", "ann's password") == 0
    assert client.call([zk.CREATE, ["/mine", b"x", ONLY_ANN, 0]])[3] == 0
    assert client.call([zk.CREATE, ["/too", b"x", [(31, "auth", "")], 0]])[3] == 0
    assert client.call([zk.GET_DATA, ["/mine", False]])[3] == 0
    assert ["sasl", "ann"] in client.call([zk.WHO_AM_I, []])[4]
    assert [31, "sasl", "ann"] in client.call([zk.GET_ACL, ["/too"]])[4][0]
    stranger, root = connect(server), connect(server)
    assert stranger.call([zk.GET_DATA, ["/mine", False]])[3] == -102
    assert authenticate(root, "bob", "bob's password") == 0
    assert root.call([zk.GET_DATA, ["/mine", False]])[3] == 0


@pytest.mark.parametrize(("required", "error"), [(False, -115), (True, -124)])
def test_who_can_not_prove_it_is_refused(
    serve: Serve, connect: Connect, known: str, required: bool, error: int
) -> None:
    server = serve(saslUsers=known, sessionRequireClientSASLAuth=required)
    for user, password in (("ann", "bob's password"), ("eve", ""), ("", "")):
        client = connect(server)
        assert authenticate(client, user, password) == error and client.ended()
    early = connect(server)
    assert token(early, b'username="ann"')[0] == error and early.ended()


def test_without_users_nobody_authenticates(serve: Serve, connect: Connect) -> None:
    client = connect(serve())
    assert token(client, b"")[0] == -115 and client.ended()


REQUESTS: list[list[Any]] = [
    [zk.CREATE, ["/mine", b"", zk.OPEN, 0]],
    [zk.GET_DATA, ["/", False]],
    [zk.AUTH, [0, "digest", b"ann:ann's password"]],
    [zk.MULTI, [[zk.CHECK, ["/", -1]]]],
    [zk.SYNC, ["/"]],
    [zk.ADD_WATCH, ["/", 1]],
    [999, []],
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: str(each[0]))
def test_where_it_is_required_nothing_else_comes_before(
    serve: Serve, connect: Connect, known: str, request_: list[Any]
) -> None:
    server = serve(saslUsers=known, sessionRequireClientSASLAuth=True)
    client = connect(server)
    assert client.call([zk.PING, []])[3] == 0
    half = connect(server)
    assert token(half, b"")[0] == 0  # a challenge alone does not authenticate
    for each in (client, half):
        assert each.call(request_)[3] == -124 and each.ended()
    right = connect(server)
    assert authenticate(right, "ann", "ann's password") == 0
    assert right.call([zk.CREATE, ["/mine", b"", zk.OPEN, 0]])[3] == 0


def test_who_never_authenticates_is_closed(serve: Serve, connect: Connect, known: str) -> None:
    server = serve(saslUsers=known, sessionRequireClientSASLAuth=True, sessionlessCnxnTimeout=300)
    stranger, right = connect(server), connect(server)
    assert authenticate(right, "ann", "ann's password") == 0
    assert stranger.ended()
    assert right.call([zk.EXISTS, ["/", False]])[3] == 0


def test_a_requirement_without_users_is_refused() -> None:
    with pytest.raises(OptionError, match="saslUsers"):
        MetadataSettings.of({"sessionRequireClientSASLAuth": True})


def test_the_client_of_the_store_authenticates_and_says_when_it_is_not_let_in(
    serve: Serve, known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(tmp_path / "data", saslUsers=known, sessionRequireClientSASLAuth=True)
    uri = f"zk://127.0.0.1:{server.port}/ledgers"
    credentials = tmp_path / "credentials"

    async def initialised() -> str:
        async with await MetadataClient.connect(uri) as client:
            return await client.initialise()

    def having(text: str) -> None:
        credentials.write_text(text)
        credentials.chmod(0o600)
        monkeypatch.setenv(users.CREDENTIALS, str(credentials))

    with pytest.raises(MetadataServiceError) as nothing:
        asyncio.run(initialised())
    assert "FENCEPOST_CREDENTIALS" in str(nothing.value)
    having("ann:not-this")
    with pytest.raises(MetadataServiceError, match="does not let ann in") as wrong:
        asyncio.run(initialised())
    assert "not-this" not in str(wrong.value)
    having("ann:ann's password\n")
    assert asyncio.run(initialised())
