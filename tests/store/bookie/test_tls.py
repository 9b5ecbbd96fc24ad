"""TLS: a connection begins in the clear and goes on under TLS, and nothing that came before it counts as having come
under it.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from store.bookie.serving import Client, add, entry, run, serving, until

from fencepost.errors import OptionError
from fencepost.store import messages as m
from fencepost.store.bookie import tls
from fencepost.store.rules.codes import Code
from fencepost.store.wire import v2, v3

pytestmark = pytest.mark.usefixtures("every_way")

FILES = Path(__file__).parent / "certificates"
"""Certificates for 127.0.0.1 that are good for a hundred years, and worth nothing anywhere else."""


def file(name: str) -> str:
    return str(FILES / f"{name}.pem")


def of_bookie(**options: Any) -> ssl.SSLContext:
    return tls.server_context(file("bookie"), file("bookie.key"), **options)


def of_client(*certificate: str) -> ssl.SSLContext:
    """The context of a client that trusts the authority, with a certificate and its key if it has them."""
    context = ssl.create_default_context(cafile=file("authority"))
    if certificate:
        context.load_cert_chain(*certificate)
    return context


async def secured(client: Client, context: ssl.SSLContext) -> Client:
    """Ask for TLS, and go on under it."""
    assert await client.ask(m.StartTls()) == m.StartTlsResponse(Code.OK)
    await client.writer.start_tls(context, server_hostname="127.0.0.1")
    return client


@pytest.mark.parametrize("codec", [v3, v2], ids=["v3", "v2"])
def test_a_connection_goes_on_under_tls(tmp_path: Path, codec: Any) -> None:
    async def main() -> None:
        async with serving(tmp_path, of_bookie()) as served:
            client = await secured(await served.client(), of_client())
            client.codec = codec
            client.send(*(add(1, entry_id, b"x" * 10_000) for entry_id in range(100)))
            for _ in range(100):
                assert (await client.receive())[1].code is Code.OK
            assert (await client.ask(m.ReadEntry(1, 7))).body == entry(1, 7, b"x" * 10_000)
            assert next(iter(served.server.connections.values())).is_secure
            in_the_clear = await served.client()
            assert (await in_the_clear.ask(m.ReadEntry(1, 7))).code is Code.OK

    run(main())


def test_a_client_needs_a_certificate_where_one_is_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        context = of_bookie(trusted=file("authority"), client_authentication=True)
        async with serving(tmp_path, context) as served:
            known = of_client(file("client"), file("client.key"))
            client = await secured(await served.client(), known)
            assert (await client.ask(add(1, 0))).code is Code.OK
            unknown = await secured(await served.client(), of_client())
            unknown.send(add(1, 1))
            with pytest.raises((EOFError, OSError)):
                await unknown.receive()
            assert (await client.ask(add(1, 1))).code is Code.OK

    run(main())


def test_what_is_sent_before_tls_never_counts_as_sent_under_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving(tmp_path, of_bookie()) as served:
            hostile = await served.client()
            hostile.send(m.StartTls(), add(1, 0))
            assert await hostile.is_closed()
            client = await served.client()
            assert (await client.ask(m.ReadEntry(1, 0))).code is Code.NO_LEDGER

    run(main())
    assert "it asks for TLS in the midst of other requests" in caplog.text


def test_a_handshake_that_fails_closes_its_own_connection_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, of_bookie()) as served:
            other, hostile = await served.client(), await served.client()
            assert await hostile.ask(m.StartTls()) == m.StartTlsResponse(Code.OK)
            hostile.writer.write(b"no hello of a client" * 10)
            await until(lambda: len(served.server.connections) == 1, "the hostile connection to be closed")
            assert (await other.ask(add(1, 0))).code is Code.OK

    run(main())


def test_files_that_can_not_be_used_are_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="can not be read for TLS: No such file"):
        tls.server_context(str(tmp_path / "none.pem"), file("bookie.key"))
    with pytest.raises(OptionError, match="can not be used for TLS"):
        tls.server_context(file("bookie"), file("client.key"))
    with pytest.raises(OptionError, match="the password in .* can not be read"):
        tls.server_context(file("bookie"), file("bookie.key"), str(tmp_path / "none"))


def test_a_client_trusts_nobody_else(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, of_bookie()) as served:
            client = await served.client()
            with pytest.raises(ssl.SSLCertVerificationError):
                await secured(client, ssl.create_default_context())
            await asyncio.sleep(0)

    run(main())
