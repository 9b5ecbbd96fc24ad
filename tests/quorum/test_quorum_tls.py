"""TLS among members of a quorum. All show certificates, and a voter's certificate names the host of its endpoint."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import certificates
import pytest
from patience import eventually
from quorum.hosts import TestCluster

from fencepost.connections.tls import Files, _is_named
from fencepost.errors import SystemFailure
from fencepost.quorum.driver import host as hosts
from fencepost.quorum.driver.admin import Administrator
from fencepost.quorum.driver.frames import Hello, encode
from fencepost.quorum.driver.links import PeerTls
from fencepost.quorum.identity import ReplicaKey
from fencepost.quorum.kafka.listener import KafkaListener


@pytest.fixture(autouse=True)
def _members_use_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    both, trusted = certificates.together("member"), certificates.authority()

    class Host(hosts.QuorumHost):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            named["tls"] = PeerTls.of(Files(certificate=both, trusted=trusted))
            super().__init__(*arguments, **named)

    monkeypatch.setattr("quorum.hosts.QuorumHost", Host)


async def answers(cluster: TestCluster, context: ssl.SSLContext | None, *frames: Any) -> bytes:
    """Everything that a member answers to some frames."""
    host, _, port = cluster[1].host.me.endpoint.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(b"".join(map(encode, frames)))
        return await reader.read(1 << 16)
    except OSError:
        return b""


async def test_members_make_a_cluster_and_operators_with_a_certificate_see_it(cluster: TestCluster) -> None:
    await cluster.start()
    await cluster.propose(b"a")
    await cluster.have([b"a"])
    endpoint = cluster[1].host.me.endpoint
    administrator = Administrator([endpoint], 30.0, certificates.client("operator"))
    assert (await administrator.describe())[0] == cluster[1].host.meta.cluster_id
    await administrator.close()
    for tls in (None, certificates.client()):
        stranger = Administrator([endpoint], 1.0, tls)
        with pytest.raises(SystemFailure):
            await stranger.describe()
        await stranger.close()


async def test_a_voter_is_who_its_certificate_names(lone: TestCluster, caplog: pytest.LogCaptureFixture) -> None:
    await lone.start(1)
    host = lone[1].host
    await eventually(lambda: host.me.key in host.welcome().voters, "the voters")
    certificate, key = certificates.pair("elsewhere", "DNS:*.example.org")
    elsewhere = ssl.create_default_context(cafile=certificates.authority())
    elsewhere.load_cert_chain(certificate, key)
    as_voter, as_observer = (Hello(host.meta.cluster_id, key) for key in (host.me.key, ReplicaKey(9, "d")))
    assert b"does not name 127.0.0.1" in await answers(lone, elsewhere, as_voter)
    async with asyncio.timeout(60):
        assert b"does not name" not in await answers(lone, elsewhere, as_observer)
    assert b"does not name" not in await answers(lone, certificates.client("operator").context, as_voter)


async def test_kafkas_tools_speak_the_same_tls(lone: TestCluster) -> None:
    await lone.start(1)
    listener = KafkaListener(lone[1].host)
    _, port = await listener.listen(0)
    # ApiVersions 0 of the client "x"
    asked = bytes.fromhex("0000000b 0012 0000 00000007 0001 78".replace(" ", ""))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=certificates.client("operator").context)
    writer.write(asked)
    assert (await reader.readexactly(8))[4:] == bytes([0, 0, 0, 7])
    writer.close()
    plain, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(asked)
    assert not (await plain.read(1 << 10)).endswith(bytes([0, 0, 0, 7]))
    writer.close()
    await listener.close()


@pytest.mark.parametrize(
    ("kind", "name", "host", "is_named"),
    [
        ("IP Address", "127.0.0.1", "127.0.0.1", True),
        ("IP Address", "0:0:0:0:0:0:0:1", "::1", True),
        ("IP Address", "127.0.0.1", "localhost", False),
        ("DNS", "Meta-1.example.org", "meta-1.Example.org", True),
        ("DNS", "*.example.org", "meta-1.example.org", True),
        ("DNS", "*.example.org", "a.meta-1.example.org", False),
        ("DNS", "*.example.org", "example.org", False),
        ("DNS", "*.", "localhost", False),
        ("DNS", "127.0.0.1", "127.0.0.1", True),
        ("URI", "meta-1", "meta-1", False),
    ],
)
def test_which_host_a_certificate_names(kind: str, name: str, host: str, is_named: bool) -> None:
    assert _is_named(kind, name, host) is is_named
