"""The independent ZooKeeper client kazoo on a metadata service: sessions, watches and recipes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import patience
import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.security import make_digest_acl
from metadata.servers import Serve, Server


@pytest.fixture
def client(serve: Serve) -> Iterator[Callable[..., KazooClient]]:
    """Connects kazoo to a server."""
    clients = []

    def started(server: Server, **arguments: Any) -> KazooClient:
        clients.append(KazooClient(f"127.0.0.1:{server.port}", timeout=20, **arguments))
        clients[-1].start(patience.PATIENCE)
        return clients[-1]

    yield started
    for each in clients:
        each.stop()
        each.close()


def test_what_can_be_done_with_a_znode(serve: Serve, client: Callable[..., KazooClient]) -> None:
    zk = client(serve())
    assert zk.create("/a", b"1") == "/a" and zk.get("/a")[0] == b"1"
    assert zk.set("/a", b"22", version=0).version == 1 and zk.exists("/a").dataLength == 2
    assert zk.create("/a/s-", sequence=True, ephemeral=True) == "/a/s-0000000000"
    assert zk.get_children("/a") == ["s-0000000000"] and zk.exists("/b") is None
    with pytest.raises(NodeExistsError):
        zk.create("/a")
    with pytest.raises(NotEmptyError):
        zk.delete("/a")
    with pytest.raises(BadVersionError):
        zk.set("/a", b"", version=7)
    with pytest.raises(NoNodeError):
        zk.create("/b/c")
    transaction = zk.transaction()
    transaction.create("/t")
    transaction.check("/a", 1)
    transaction.delete("/t")
    assert transaction.commit() == ["/t", True, True]


def test_acls_keep_others_out(serve: Serve, client: Callable[..., KazooClient]) -> None:
    server = serve()
    owner, other = client(server), client(server)
    owner.add_auth("digest", "user:secret")
    owner.create("/private", b"x", acl=[make_digest_acl("user", "secret", all=True)])
    assert owner.get("/private")[0] == b"x"
    with pytest.raises(NoAuthError):
        other.get("/private")
    other.add_auth("digest", "user:secret")
    assert other.get("/private")[0] == b"x"


def test_a_lock_goes_to_the_next_one_when_its_holder_is_gone(serve: Serve, client: Callable[..., KazooClient]) -> None:
    server = serve()
    first, second = client(server), client(server)
    assert first.Lock("/lock").acquire()
    lock = second.Lock("/lock")
    assert not lock.acquire(blocking=False)
    first.stop()
    assert lock.acquire(timeout=patience.PATIENCE)


def test_an_election_has_one_leader_after_the_other(serve: Serve, client: Callable[..., KazooClient]) -> None:
    server = serve()
    led: list[str] = []
    go = [threading.Event(), threading.Event()]

    def lead(index: int) -> None:
        led.append(str(index))
        assert go[index].wait(patience.PATIENCE)

    elections = [client(server).Election("/election", str(index)) for index in range(2)]
    threads = []
    for index, election in enumerate(elections):
        threads.append(threading.Thread(target=election.run, args=(lead, index)))
        threads[-1].start()
        patience.until(lambda: len(election.contenders()) == len(threads), "a contender")
    patience.until(lambda: led == ["0"], "the first leader")
    go[0].set()
    patience.until(lambda: led == ["0", "1"], "the second leader")
    go[1].set()
    for thread in threads:
        thread.join()


def test_a_client_finds_its_session_and_its_watches_again_when_the_server_is_restarted(
    serve: Serve, client: Callable[..., KazooClient]
) -> None:
    server = serve()
    zk = client(server)
    states: list[str] = []
    zk.add_listener(states.append)
    zk.create("/mine", b"", ephemeral=True)
    seen: list[bytes] = []
    zk.DataWatch("/watched", lambda data, stat: seen.append(data))
    session = zk.client_id
    server.crash()
    patience.until(lambda: KazooState.SUSPENDED in states, "the loss of the connection")
    server = serve(clientPort=server.port)
    patience.until(lambda: KazooState.CONNECTED in states, "the connection")
    assert zk.client_id == session and KazooState.LOST not in states
    assert zk.exists("/mine").ephemeralOwner == session[0]
    zk.create("/watched", b"1")
    patience.until(lambda: b"1" in seen, "the watch")
