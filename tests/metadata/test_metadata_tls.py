"""The metadata service's TLS port. Where certificates are required, a client without one is not served."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import certificates
import patience
import pytest
from metadata import zkclient as zk

from fencepost.connections import tls
from fencepost.connections.tls import Listener
from fencepost.errors import OptionError
from fencepost.ledger.client_configuration import ENVIRONMENT, ClientConfiguration
from fencepost.ledger.errors import MetadataServiceError
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.metadata.settings import MetadataSettings


def secure(**changes: Any) -> dict[str, Any]:
    """The settings of a TLS port."""
    return {
        "secureClientPort": 0,
        "ssl.keyStore.location": certificates.together("metadata"),
        "ssl.trustStore.location": certificates.authority(),
        **changes,
    }


def under_tls(server: Any, name: str = "") -> ssl.SSLSocket:
    """A connection to the TLS port."""
    there = socket.create_connection(server.service.secure_address, patience.PATIENCE)
    return certificates.client(name).context.wrap_socket(there, server_hostname="127.0.0.1")


def is_closed(there: socket.socket) -> bool:
    try:
        return there.recv(1) == b""
    except OSError:
        return True


def test_where_certificates_are_asked_for_there_is_nothing_but_tls(serve: Any, connect: Any) -> None:
    server = serve(**secure())
    assert server.service.address == server.service.secure_address
    with pytest.raises((zk.Closed, OSError)):
        connect(server)  # plaintext
    with under_tls(server) as stranger:
        assert is_closed(stranger)
    with under_tls(server, "client") as known:
        known.sendall(b"ruok")
        assert known.recv(16) == b"imok"


def test_handshakes_that_do_not_end_are_few_and_the_oldest_gives_way(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "MOST_HANDSHAKES", 4)
    server = serve(**secure())
    silent = [socket.create_connection(server.service.secure_address, patience.PATIENCE) for _ in range(6)]
    assert is_closed(silent[0]) and is_closed(silent[1])
    with under_tls(server, "client") as known:
        known.sendall(b"ruok")
        assert known.recv(16) == b"imok"
    assert is_closed(silent[2])
    silent[5].settimeout(0.1)
    with pytest.raises(TimeoutError):
        silent[5].recv(1)
    for each in silent:
        each.close()


def test_both_ports_are_there_where_none_are_asked_for(serve: Any, connect: Any) -> None:
    server = serve(**secure(**{"ssl.clientAuth": "none"}))
    client = connect(server)
    client.call([zk.CREATE, ["/a", b"", zk.OPEN, 0]])
    with under_tls(server) as known:
        known.sendall(b"ruok")
        assert known.recv(16) == b"imok"


@pytest.mark.parametrize("trusted", [True, False])
async def test_our_client_speaks_tls_as_the_environment_says(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    server = serve(**secure())
    certificate, key = certificates.pair("client")
    file = tmp_path / "client.toml"
    authority = certificates.authority() if trusted else certificates.authority("another")
    file.write_text(f'tlsTrustStore = "{authority}"\ntlsCertificatePath = "{certificate}"\ntlsKeyStore = "{key}"\n')
    monkeypatch.setenv(ENVIRONMENT, str(file))
    uri = "zk://{}:{}/ledgers".format(*server.service.secure_address)
    connecting = MetadataClient.connect(uri, connect_timeout=patience.PATIENCE if trusted else 1.0)
    if trusted:
        async with await connecting as client:
            await client.initialise()
            assert await client.instance_id()
    else:
        with pytest.raises(MetadataServiceError):
            await connecting


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"secureClientPort": 0}, "secureClientPort needs ssl.keyStore.location"),
        ({"secureClientPort": 0, "ssl.keyStore.location": "k"}, "ssl.clientAuth needs ssl.trustStore.location"),
        ({"ssl.keyStore.location": "k"}, "ssl.keyStore.location is for secureClientPort"),
        ({"sslQuorum": True}, "sslQuorum needs ssl.quorum.keyStore.location"),
        ({"sslQuorum": True, "ssl.quorum.keyStore.location": "k"}, "needs ssl.quorum.trustStore.location"),
        ({"ssl.quorum.trustStore.location": "k"}, "ssl.quorum.trustStore.location is for sslQuorum"),
    ],
)
def test_half_of_tls_is_refused_at_the_start(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        MetadataSettings.of(settings)


def test_files_that_are_not_there_are_refused_at_the_start(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ssl.keyStore.location", "ssl.trustStore.location"):
        with pytest.raises(OptionError, match="cannot be read for TLS"):
            serve(tmp_path / name, **secure(**{name: str(tmp_path / "none.pem")}))
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "none.toml"))
    with pytest.raises(OptionError, match=r"none.toml cannot be read"):
        ClientConfiguration.of_environment()
    (tmp_path / "half.toml").write_text('tlsCertificatePath = "c.pem"\ntlsKeyStore = "k.pem"\n')
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "half.toml"))
    with pytest.raises(OptionError, match="set tlsTrustStore too"):
        ClientConfiguration.of_environment()


@pytest.mark.usefixtures("every_loop")
async def test_no_byte_of_a_handshake_is_lost_while_the_loop_is_busy() -> None:
    class Echo(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            time.sleep(0.002)
            self.transport.write(data)

    listener = await Listener(certificates.server(), Echo).listen("127.0.0.1", 0)
    port, context = listener.sockets[0].getsockname()[1], certificates.client().context

    def ask() -> bytes:
        there = socket.create_connection(("127.0.0.1", port), patience.PATIENCE)
        with context.wrap_socket(there, server_hostname="127.0.0.1") as under_tls:
            under_tls.sendall(b"x")
            return under_tls.recv(1)

    with ThreadPoolExecutor(8) as threads:
        loop = asyncio.get_running_loop()
        asked = [loop.run_in_executor(threads, ask) for _ in range(100)]
        assert await asyncio.gather(*asked) == [b"x"] * 100
    listener.close()
