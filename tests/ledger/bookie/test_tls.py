"""TLS: a connection begins in plain text and continues under TLS. Nothing received before counts as received under TLS.
Where TLS is required, nothing is served before it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from pathlib import Path
from typing import Any

import certificates
import pytest
from ledger.bookie.serving import Client, add, entry, serving
from patience import eventually

from fencepost.connections.tls import Files, Tls
from fencepost.errors import OptionError
from fencepost.ledger import messages as m
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import v2, v3

pytestmark = pytest.mark.usefixtures("every_way")


async def secured(client: Client, context: ssl.SSLContext) -> Client:
    """Ask for TLS, and continue under it."""
    assert await client.ask(m.StartTls()) == m.StartTlsResponse(Code.OK)
    await client.writer.start_tls(context, server_hostname="127.0.0.1")
    return client


@pytest.mark.parametrize("codec", [v3, v2], ids=["v3", "v2"])
async def test_a_connection_goes_on_under_tls(tmp_path: Path, codec: Any) -> None:
    async with serving(tmp_path, certificates.server()) as served:
        client = await secured(await served.client(), certificates.client().context)
        client.codec = codec
        client.send(*(add(1, entry_id, b"x" * 10_000) for entry_id in range(100)))
        for _ in range(100):
            assert (await client.receive())[1].code is Code.OK
        assert (await client.ask(m.ReadEntry(1, 7))).body == entry(1, 7, b"x" * 10_000)
        assert next(iter(served.server.connections.values())).is_secure
        in_the_clear = await served.client()
        assert (await in_the_clear.ask(m.ReadEntry(1, 7))).code is Code.OK


async def test_a_client_needs_a_certificate_where_one_is_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path, certificates.server(asks=True)) as served:
        known = certificates.client("client").context
        client = await secured(await served.client(), known)
        assert (await client.ask(add(1, 0))).code is Code.OK
        unknown = await secured(await served.client(), certificates.client().context)
        unknown.send(add(1, 1))
        with pytest.raises((EOFError, OSError)):
            await unknown.receive()
        assert (await client.ask(add(1, 1))).code is Code.OK


async def test_what_is_sent_before_tls_never_counts_as_sent_under_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, certificates.server()) as served:
        hostile = await served.client()
        hostile.send(m.StartTls(), add(1, 0))
        assert await hostile.is_closed()
        client = await served.client()
        assert (await client.ask(m.ReadEntry(1, 0))).code is Code.NO_LEDGER
    assert "it asks for TLS in the midst of other requests" in caplog.text


async def test_a_handshake_that_fails_closes_its_own_connection_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, certificates.server()) as served:
        other, hostile = await served.client(), await served.client()
        assert await hostile.ask(m.StartTls()) == m.StartTlsResponse(Code.OK)
        hostile.writer.write(b"no hello of a client" * 10)
        await eventually(lambda: len(served.server.connections) == 1, "the hostile connection to be closed")
        assert (await other.ask(add(1, 0))).code is Code.OK


@pytest.mark.parametrize("codec", [v3, v2], ids=["v3", "v2"])
@pytest.mark.parametrize(
    "asked",
    [add(1, 0), m.ReadEntry(1, 0), m.ReadEntry(1, -1, fence=True, master_key=b"k" * 20), m.Auth("plugin", b"")],
    ids=["add", "read", "fence", "auth"],
)
async def test_where_tls_is_required_nothing_is_served_in_the_clear(
    tmp_path: Path, codec: Any, asked: m.Request, caplog: pytest.LogCaptureFixture
) -> None:
    tls = certificates.server(asks=True)
    async with serving(tmp_path, tls, tlsClientAuthentication=True, **REQUIRED) as served:
        plain = await served.client(codec=codec)
        plain.send(*[asked] * 3)
        assert (await plain.receive())[1].code is Code.UNAUTHORIZED
        assert await plain.is_closed()
        client = await secured(await served.client(), certificates.client("client").context)
        assert (await client.ask(m.ReadEntry(1, 0))).code is Code.NO_LEDGER
        assert (await client.ask(add(1, 0))).code is Code.OK
    assert "it does not start TLS (tlsRequired)" in caplog.text


REQUIRED: dict[str, Any] = {
    "tlsCertificatePath": "bookie.pem",
    "tlsKeyStore": "bookie.key.pem",
    "tlsTrustStore": "authority.pem",
}


async def test_what_is_sent_ahead_of_tls_is_not_served_where_it_is_required(tmp_path: Path) -> None:
    async with serving(tmp_path, certificates.server(), tlsRequired=True, **REQUIRED) as served:
        hostile = await served.client()
        hostile.send(m.StartTls(), add(1, 0))
        assert await hostile.is_closed()
        client = await secured(await served.client(), certificates.client().context)
        assert (await client.ask(m.ReadEntry(1, 0))).code is Code.NO_LEDGER


async def test_who_says_nothing_has_no_place_for_long_and_none_that_others_want(tmp_path: Path) -> None:
    async with serving(tmp_path, certificates.server(), maxConnections=3, frameTimeoutMs=1_500) as served:
        silent = [await served.client() for _ in range(3)]
        await eventually(lambda: len(served.server.connections) == 3, "connections")
        client = await served.client()
        assert (await client.ask(add(1, 0))).code is Code.OK
        assert await silent[0].is_closed()
        for each in silent[1:]:
            assert await each.is_closed()
        assert (await client.ask(m.ReadEntry(1, 0))).code is Code.OK


async def test_a_certificate_is_renewed_without_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (old, old_key), (new, new_key) = certificates.pair("old"), certificates.pair("new", by="another")
    mine, key = str(tmp_path / "bookie.pem"), str(tmp_path / "bookie.key.pem")
    shutil.copy(old, mine), shutil.copy(old_key, key)
    by_new = Tls(Files(trusted=certificates.authority("another")), is_server=False).context
    tls = Tls(Files(certificate=mine, key=key), is_server=True)
    async with serving(tmp_path / "bookie", tls) as served:
        before = await secured(await served.client(), certificates.client().context)
        certificates.replace(mine, new)  # and its key not yet: the old ones stay
        await secured(await served.client(), certificates.client().context)
        certificates.replace(key, new_key)
        after = await secured(await served.client(), by_new)
        with pytest.raises(ssl.SSLCertVerificationError):
            await secured(await served.client(), certificates.client().context)
        for client in (before, after):
            assert (await client.ask(add(1, 0))).code is Code.OK
    assert "TLS goes on with the files of before" in caplog.text


def test_files_that_can_not_be_used_are_said_in_a_line(tmp_path: Path) -> None:
    certificate, key = certificates.pair("server")
    other_key = certificates.pair("client")[1]
    with pytest.raises(OptionError, match="cannot be read for TLS: No such file"):
        Tls(Files(certificate=str(tmp_path / "none.pem"), key=key), is_server=True)
    with pytest.raises(OptionError, match="cannot be read for TLS: No such file"):
        Tls(Files(certificate=certificate, key=key, trusted=str(tmp_path / "none.pem")), is_server=True)
    with pytest.raises(OptionError, match="cannot be used for TLS"):
        Tls(Files(certificate=certificate, key=other_key), is_server=True)
    with pytest.raises(OptionError, match="the password in .* cannot be read"):
        Tls(Files(certificate=certificate, key=key, password=str(tmp_path / "none")), is_server=True)
    with pytest.raises(OptionError, match="needs a certificate and its key"):
        Tls(Files(trusted=certificates.authority()), is_server=True)
    for is_server in (True, False):
        with pytest.raises(OptionError, match="needs the certificates to trust"):
            Tls(Files(certificate=certificate, key=key), is_server=is_server, asks=is_server)


def test_a_key_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    certificate, key = certificates.pair("server")
    shown = str(tmp_path / "key.pem")
    shutil.copy(key, shown)
    for mode, is_refused in ((0o600, False), (0o640, False), (0o644, True), (0o602, True)):
        os.chmod(shown, mode)
        if is_refused:
            with pytest.raises(OptionError, match="everybody on this machine may use the key"):
                Tls(Files(certificate=certificate, key=shown), is_server=True)
        else:
            Tls(Files(certificate=certificate, key=shown), is_server=True)


async def test_a_client_trusts_nobody_else(tmp_path: Path) -> None:
    async with serving(tmp_path, certificates.server()) as served:
        client = await served.client()
        with pytest.raises(ssl.SSLCertVerificationError):
            await secured(client, ssl.create_default_context())
        await asyncio.sleep(0)
