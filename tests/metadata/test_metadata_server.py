"""Behaviour of the server beyond ZooKeeper's answers: containers, the super user, reads that need not wait, and
sessions that move.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import patience
import pytest
from metadata import zkclient as zk
from metadata.servers import Serve
from metadata.zkclient import Client, Closed, Connect

from fencepost.metadata import acl as acls
from fencepost.quorum.files.log import ReplicatedLog
from fencepost.quorum.log import Batch


def test_a_container_goes_with_its_last_child(serve: Serve, connect: Connect) -> None:
    server = serve(**{"znode.container.checkIntervalMs": 20})
    client = connect(server)
    client.call([zk.CREATE_CONTAINER, ["/new", b"", zk.OPEN, 4]])
    client.call([zk.CREATE_CONTAINER, ["/used", b"", zk.OPEN, 4]], [zk.CREATE, ["/used/child", b"", zk.OPEN, 0]])
    client.call([zk.ADD_WATCH, ["/used", 0]])
    client.call([zk.DELETE, ["/used/child", -1]])
    while client.stream[-1][:3] != ["event", 2, "/used"]:
        client.read()
    assert client.call([zk.GET_CHILDREN, ["/", False]])[4] == ["new", "zookeeper"]


def test_a_client_can_not_delete_containers_past_their_acl(serve: Serve, connect: Connect) -> None:
    """ZooKeeper accepts its internal request to delete a container from any client, for any persistent znode, and
    checks no ACL.
    """
    client, other = connect(server := serve()), connect(server)
    client.call([zk.CREATE, ["/mine", b"", [(1, "world", "anyone")], 0]])
    assert other.call([20, ["/mine"]])[3] == -6
    assert other.call([zk.EXISTS, ["/mine", False]])[3] == 0
    assert client.call([zk.EXISTS, ["/mine", False]])[3] == 0


def test_the_super_user_may_do_everything(serve: Serve, connect: Connect) -> None:
    digest = acls.digest(b"super:secret").id
    server = serve(**{"DigestAuthenticationProvider.superDigest": digest})
    client = connect(server)
    client.call([zk.CREATE, ["/locked", b"", [(31, "digest", "nobody:x")], 0]])
    assert client.call([zk.GET_DATA, ["/locked", False]])[3] == -102
    client.call([zk.AUTH, [0, "digest", b"super:secret"]])
    assert client.call([zk.GET_DATA, ["/locked", False]])[3] == 0


def test_who_fails_to_authenticate_is_told_and_closed(serve: Serve, connect: Connect) -> None:
    client = connect(serve())
    assert client.call([zk.AUTH, [0, "kerberos", b"x"]])[3] == -115
    assert client.ended()


def test_a_session_goes_with_its_newest_connection(serve: Serve, connect: Connect) -> None:
    server = serve()
    first = connect(server)
    second = connect(server, session=first.session, password=first.password)
    assert first.ended()
    assert second.call([zk.CREATE, ["/mine", b"", zk.OPEN, 1]])[3] == 0
    assert server.service.by_session[first.session].address.endswith(str(second.socket.getsockname()[1]))


def test_a_client_that_has_seen_more_than_the_server_is_sent_away(serve: Serve, connect: Connect) -> None:
    server = serve()
    with pytest.raises(Closed):
        connect(server, zxid=1_000_000)
    assert connect(server).session


def test_nothing_is_left_of_clients_that_are_gone(serve: Serve, connect: Connect) -> None:
    server = serve()
    for number in range(20):
        client = connect(server)
        client.call(
            [zk.CREATE, [f"/{number}", b"", zk.OPEN, 1]], [zk.EXISTS, ["/", True]], [zk.ADD_WATCH, ["/a", number % 2]]
        )
        if number % 2:
            client.call([zk.CLOSE, []])
        else:
            client.drop()
    for session in list(server.service.tree.sessions):
        password = server.service.tree.sessions[session].password
        connect(server, session=session, password=password).call([zk.CLOSE, []])
    service = server.service
    patience.until(lambda: not service.connections, "the end of all connections")
    assert len(service.watches) == 0 and not service.watches.data.by_path and not service.watches.children.by_watcher
    assert (
        not service.by_session
        and not service.expiry.deadlines
        and not service.tree.sessions
        and not service.tree.ephemerals
    )
    assert set(service.tree.nodes) == {"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"}


class Slow:
    """Blocks writes of the log until ``go`` is set."""

    def __init__(self, log: ReplicatedLog) -> None:
        self.go = threading.Event()
        self.asked = threading.Event()
        write = log.write

        def slow(writes: Any) -> None:
            self.asked.set()
            assert self.go.wait(patience.PATIENCE)
            write(writes)

        log.write = slow  # type: ignore[method-assign]


def test_what_is_not_durable_is_not_seen_and_who_waits_for_nothing_is_answered(serve: Serve, connect: Connect) -> None:
    server = serve()
    writer, reader = connect(server), connect(server)
    slow = Slow(server.node.log)
    writer.send([zk.CREATE, ["/new", b"", zk.OPEN, 0]], [zk.EXISTS, ["/new", False]])
    assert slow.asked.wait(patience.PATIENCE)
    assert reader.call([zk.EXISTS, ["/new", False]])[3] == -101
    reader.send([zk.SYNC, ["/new"]], [zk.EXISTS, ["/new", False]])
    assert not writer.stream and len(reader.stream) == 1
    slow.go.set()
    assert writer.answers(2)[3] == 0
    assert reader.answers(2)[3] == 0, "a sync waits for earlier requests"


def test_a_session_that_moves_sees_what_it_asked_for_over_its_last_connection(serve: Serve, connect: Connect) -> None:
    server = serve()
    first = connect(server)
    slow = Slow(server.node.log)
    first.send([zk.CREATE, ["/new", b"", zk.OPEN, 0]])
    assert slow.asked.wait(patience.PATIENCE)
    first.drop()
    threading.Timer(0.3, slow.go.set).start()
    second = connect(server, session=first.session, password=first.password)
    assert second.call([zk.EXISTS, ["/new", False]])[3] == 0


def test_a_session_that_is_closed_while_it_moves_is_gone(serve: Serve, connect: Connect) -> None:
    server = serve()
    first = connect(server)
    slow = Slow(server.node.log)
    first.send([zk.CLOSE, []])
    assert slow.asked.wait(patience.PATIENCE)
    first.drop()
    threading.Timer(0.3, slow.go.set).start()
    assert not connect(server, session=first.session, password=first.password).session


def test_what_came_while_the_disk_was_busy_is_one_group(serve: Serve, connect: Connect) -> None:
    server = serve()
    clients = [connect(server) for _ in range(5)]
    log = server.node.log
    slow = Slow(log)
    groups: list[int] = []
    held = log.append

    def append(batches: Iterable[Batch]) -> None:
        some = list(batches)
        groups.append(sum(len(each.records) for each in some))
        held(some)

    log.append = append  # type: ignore[method-assign]
    clients[0].send([zk.CREATE, ["/first", b"", zk.OPEN, 0]])
    assert slow.asked.wait(patience.PATIENCE)
    for number, client in enumerate(clients):
        client.send(*[[zk.CREATE, [f"/{number}-{each}", b"", zk.OPEN, 0]] for each in range(10)])
    patience.until(lambda: server.service.outstanding == 51, "all requests")
    slow.go.set()
    for client in clients[1:]:
        assert client.answers(10)[3] == 0
    assert groups == [1, 50]


def test_reads_behind_a_change_are_answered_whatever_the_limit(serve: Serve, connect: Connect) -> None:
    for limit in (1, 2, 3, 7):
        server = serve(globalOutstandingLimit=limit)
        client = connect(server)
        for reads in (1, 2, 5, 40):
            requests = [
                [zk.CREATE, ["/s", b"", zk.OPEN, 2]],
                *[
                    [zk.SYNC if each % 3 == 2 else zk.EXISTS, ["/", False][: 1 + (each % 3 != 2)]]
                    for each in range(reads)
                ],
            ]
            client.send(*requests)
            assert client.answers(reads + 1)[3] == 0
        server.stop()


def test_what_was_asked_before_an_authentication_is_answered_without_it(serve: Serve, connect: Connect) -> None:
    server = serve()
    client = connect(server)
    slow = Slow(server.node.log)
    client.send(
        [zk.CREATE, ["/new", b"", [(31, "digest", acls.digest(b"user:secret").id)], 0]], [zk.GET_DATA, ["/new", False]]
    )
    assert slow.asked.wait(patience.PATIENCE)
    client.send([zk.AUTH, [0, "digest", b"user:secret"]], [zk.GET_DATA, ["/new", False]])
    patience.until(lambda: server.service.outstanding == 4, "all requests")
    slow.go.set()
    client.answers(4)
    assert [each[3] for each in client.stream] == [0, -102, 0, 0]


def test_a_server_that_is_asked_to_end_answers_what_it_has_taken(serve: Serve) -> None:
    server = serve()
    client = Client(server.port)
    client.connect(30_000)
    slow = Slow(server.node.log)
    client.send([zk.CREATE, ["/new", b"", zk.OPEN, 0]])
    assert slow.asked.wait(patience.PATIENCE)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    slow.go.set()
    assert client.answers(1)[3] == 0
    stopping.join()
    assert client.ended()
    client.drop()
