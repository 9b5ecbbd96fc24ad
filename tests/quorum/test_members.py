"""A metadata service of several members. Clients see one service, whatever happens to members."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import patience
import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionLoss, NodeExistsError, NoNodeError
from kazoo.protocol.connection import STOP_CONNECTING
from kazoo.protocol.serialization import Create2
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE
from quorum.members import Members

from fencepost.metadata import member as of_member
from fencepost.metadata.acl import OPEN
from fencepost.metadata.protocol import CREATE, Create
from fencepost.quorum.identity import ReplicaKey
from fencepost.quorum.messages import AddVoter, RemoveVoter
from fencepost.quorum.rules import Error

Start = Callable[..., Members]
Connect = Callable[..., KazooClient]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts members."""
    made: list[Members] = []

    def started(count: int = 3, alone: bool = False, **options: Any) -> Members:
        """``alone``: the first member forms a quorum alone, and the others may join later."""
        members = Members(tmp_path, count, **options)
        made.append(members)
        if alone:
            members.hosts, hosts = {1: members.hosts[1]}, members.hosts
            members.start(1)
            members.hosts = hosts
        else:
            members.start()
        return members

    yield started
    for each in made:
        each.close()


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connects kazoo clients to any member, or to those in ``only``."""
    clients: list[KazooClient] = []

    def connected(members: Members, *only: int, timeout: float = 20.0) -> KazooClient:
        hosts = ",".join(f"127.0.0.1:{members.ports[each]}" for each in only) or members.addresses
        retry = KazooRetry(max_tries=-1, delay=0.02, max_delay=0.1)
        client = KazooClient(hosts, timeout=timeout, connection_retry=retry, command_retry=retry)
        clients.append(client)
        client.start(patience.PATIENCE)
        return client

    yield connected
    for client in clients:
        client.stop()
        client.close()


def disappear(client: KazooClient) -> None:
    """Cut a client off: its session stays open, and it does not reconnect."""
    connection = client._connection
    connection._connect_attempt = lambda *_: STOP_CONNECTING
    connection._socket.shutdown(socket.SHUT_RDWR)
    assert connection.stop(patience.PATIENCE)


def certainly(client: KazooClient, path: str) -> None:
    """Create a znode, with retries until it exists."""
    try:
        client.retry(client.create, path, b"")
    except NodeExistsError:
        pass  # an attempt whose outcome was unknown


def test_a_follower_with_a_client_that_waits_is_sent_the_high_watermark_at_once(start: Start, connect: Connect) -> None:
    members = start()
    node, follower = members.node(members.leader), members.running[members.followers[0]]
    sent: list[ReplicaKey] = []
    send = node.send_high_watermark

    def send_high_watermark(replica: ReplicaKey) -> None:
        sent.append(replica)
        send(replica)

    node.send_high_watermark = send_high_watermark  # type: ignore[method-assign]
    connect(members, members.followers[0]).create("/node")
    assert set(sent) == {follower.host.me.key}, "and nobody else"


def test_a_client_of_any_member_sees_its_own_writes_and_those_of_others(start: Start, connect: Connect) -> None:
    members = start()
    clients = [connect(members, each) for each in members.ports]
    for number, client in enumerate(clients):
        for each in range(20):
            path = client.create(f"/{number}-{each}-", b"x", sequence=True)
            assert client.exists(path)
    assert len({client.last_zxid for client in clients}) == 3
    for client in clients:
        client.sync("/")
        assert len(client.get_children("/")) == 61
    members.agree()
    with pytest.raises(NodeExistsError):
        clients[2].create("/zookeeper")
    transaction = clients[1].transaction()
    transaction.create("/a")
    transaction.delete("/b")
    assert isinstance(transaction.commit()[1], NoNodeError) and clients[1].exists("/a") is None


def test_a_reader_that_syncs_is_never_behind(start: Start, connect: Connect) -> None:
    members = start()
    slow = members.followers[1]
    writer, reader = connect(members, members.followers[0]), connect(members, slow)
    writer.create("/value", b"0")
    log = members.node(slow).log
    write = log.write

    def late(writes: Any) -> None:
        time.sleep(0.02)
        write(writes)

    log.write = late  # type: ignore[method-assign]
    for number in range(1, 25):
        writer.set("/value", b"%d" % number)
        reader.sync("/value")
        assert reader.get("/value")[0] == b"%d" % number


def test_sessions_ephemerals_and_watches_survive_a_change_of_leader(start: Start, connect: Connect) -> None:
    members = start()
    client, other = connect(members), connect(members)
    client.create("/mine", b"", ephemeral=True)
    seen: list[Any] = []
    other.DataWatch("/mine")(lambda data, stat: seen.append(data))
    session = client.client_id
    acknowledged = []
    for round_ in range(3):
        for each in range(5):
            certainly(client, f"/{round_}-{each}")
            acknowledged.append(f"{round_}-{each}")
        leader = members.leader
        members.kill(leader)
        certainly(client, f"/after-{round_}")
        client.retry(client.set, "/mine", b"%d" % round_)
        patience.until(lambda: seen and seen[-1] == b"%d" % round_, "the watch")
        members.start(leader)
    assert client.client_id == session
    assert other.retry(other.get, "/mine")[1].ephemeralOwner == session[0]
    other.sync("/")
    assert set(acknowledged) < set(other.get_children("/"))
    members.agree()


def test_zxids_only_rise(start: Start, connect: Connect) -> None:
    members = start()
    client = connect(members)
    last = 0
    for round_ in range(2):
        for each in range(10):
            certainly(client, f"/{round_}-{each}")
            zxid = client.retry(client.exists, f"/{round_}-{each}").czxid
            assert zxid > last
            last = zxid
        leader = members.leader
        members.stop(leader)
        members.start(leader)


def test_a_session_that_nobody_hears_of_ends_everywhere_and_one_that_is_heard_of_does_not(
    start: Start, connect: Connect
) -> None:
    members = start(tickTime=50)
    kept = connect(members, members.followers[0], timeout=1.0)
    kept.create("/kept", b"", ephemeral=True)
    lost = connect(members, members.followers[1], timeout=1.0)
    lost.create("/lost", b"", ephemeral=True)
    gone = threading.Event()
    kept.exists("/lost", watch=lambda event: gone.set())
    disappear(lost)
    assert gone.wait(patience.PATIENCE)
    begin = time.monotonic()
    patience.until(lambda: time.monotonic() > begin + 2, "time to pass")
    members.agree()
    assert all("/kept" in each.tree.nodes and "/lost" not in each.tree.nodes for each in members.running.values())


class CreateTTL(Create2):  # type: ignore[misc]
    """A create of a znode that lives for ``ttl`` milliseconds. kazoo has none."""

    type = 21
    ttl = 0

    def serialize(self) -> bytearray:
        fields: bytearray = super().serialize()
        return fields + struct.pack(">q", self.ttl)


def test_a_znode_whose_time_is_over_goes_everywhere(start: Start, connect: Connect) -> None:
    members = start(extendedTypesEnabled=True, **{"znode.container.checkIntervalMs": 20})
    client = connect(members, members.followers[0])
    for path, ttl in ("/short", 1), ("/long", 1_000_000_000):
        request, created = CreateTTL(path, b"", OPEN_ACL_UNSAFE, 5), client.handler.async_result()
        request.ttl = ttl
        client._call(request, created)
        assert created.get(timeout=patience.PATIENCE)[0] == path
    patience.until(lambda: client.exists("/short") is None, "the end of its time")
    members.agree()
    assert [list(each.tree.ttls) for each in members.running.values()] == [["/long"]] * 3


def test_a_new_leader_gives_every_session_its_whole_timeout(start: Start, connect: Connect) -> None:
    members = start(tickTime=50)
    client = connect(members, *members.followers, timeout=4.0)
    client.create("/mine", b"", ephemeral=True)
    lost = connect(members, *members.followers, timeout=6.0)
    session = lost.client_id[0]
    disappear(lost)
    killed = members.running[members.leader].now()
    members.kill(members.leader)
    # The new leader has heard nothing of the lost client's session.
    assert members.running[members.leader].expiry.deadlines[session] >= killed + 6_000
    assert client.retry(client.exists, "/mine")


def test_a_session_belongs_to_its_last_connection(start: Start, connect: Connect) -> None:
    members = start()
    first, second = members.followers[0], members.leader
    client = connect(members, first)
    client.create("/a")
    service = members.running[first]
    session, password = client.client_id
    again = KazooClient(f"127.0.0.1:{members.ports[second]}", timeout=20.0, client_id=(session, password))
    states: list[Any] = []
    client.add_listener(states.append)
    again.start(patience.PATIENCE)
    assert again.client_id[0] == session and again.exists("/a")
    patience.until(lambda: KazooState.SUSPENDED in states, "the first connection to be closed")
    again.stop()
    again.close()
    assert service.node is not None


def test_what_a_connection_wants_whose_session_has_moved_is_not_done(start: Start, connect: Connect) -> None:
    members = start()
    client = connect(members, members.leader)
    session = client.client_id[0]
    leader = members.running[members.leader]
    create = Create(CREATE, "/moved", b"", OPEN, 0)

    async def put(token: int) -> None:
        leader._put_into_log(7, [of_member.LogRequest(1, token, session, (), create)])

    zxid = leader.tree.zxid
    members.do(put(leader.owners[session] + 1))
    client.sync("/")
    assert client.exists("/moved") is None and leader.tree.zxid == zxid
    members.do(put(leader.owners[session]))
    client.sync("/")
    assert client.exists("/moved") and leader.tree.zxid == zxid + 1
    members.agree()


def test_a_session_that_there_is_not_and_a_wrong_password_are_refused(start: Start, connect: Connect) -> None:
    members = start(1)
    client = connect(members)
    session, password = client.client_id
    for wrong in ((session, b"x" * 16), (session + 1, password)):
        other = KazooClient(members.addresses, timeout=20.0, client_id=wrong)
        states: list[Any] = []
        other.add_listener(states.append)
        other.start_async()
        patience.until(lambda: states, "an answer")
        assert states[0] in (KazooState.LOST, KazooState.CONNECTED)
        patience.until(
            lambda: other.client_id is not None and other.client_id[0] not in (session, session + 1), "another session"
        )
        other.stop()
        other.close()
    client.create("/still")


def test_what_the_leader_took_with_it_is_not_waited_for(start: Start, connect: Connect) -> None:
    members = start()
    client = connect(members, members.followers[0], timeout=60.0)
    leader = members.leader
    # Requests that members forward to the leader are lost.
    members.running[leader].call_received = lambda *arguments: None  # type: ignore[method-assign]
    waiting = client.create_async("/lost", b"")
    patience.until(lambda: any(each._in_flight for each in members.running.values()), "the request to be sent")
    members.kill(leader)
    with pytest.raises(ConnectionLoss):
        waiting.get(timeout=patience.PATIENCE)


def test_what_was_sent_to_the_leader_of_an_earlier_epoch_is_not_done_in_a_later_one(
    start: Start, connect: Connect
) -> None:
    """An earlier request of the same client was lost, so this one would be out of order."""
    members = start()
    client = connect(members)
    leader = members.running[members.leader]
    session, epoch = client.client_id[0], members.node(members.leader).replica.epoch

    def forward(epoch: int, path: str) -> bytes:
        asked = of_member.LogRequest(1, leader.owners[session], session, (), Create(CREATE, path, b"", OPEN, 0))
        return of_member._encode(of_member.Forward(1, epoch, (asked,)))

    async def forwarded(epoch: int, path: str) -> None:
        leader.call_received(leader.host.me.key, None, forward(epoch, path), lambda data, error: None)

    members.do(forwarded(epoch - 1, "/late"))
    members.do(forwarded(epoch, "/in time"))
    patience.until(lambda: client.exists("/in time"), "what was sent in this epoch")
    assert client.exists("/late") is None


def test_a_session_lives_from_when_its_client_connects_and_not_from_when_that_is_committed(
    start: Start, connect: Connect
) -> None:
    members = start()
    client = connect(members)
    leader = members.running[members.leader]
    session, password = client.client_id

    async def deadlines(password: bytes) -> tuple[int, int]:
        leader.expiry.heard(session, 0, leader.now())
        before = leader.expiry.deadlines[session]
        leader._put_into_log(
            1, [of_member.LogRequest(1, leader.owners[session], session, (), of_member.Attach(password))]
        )
        return before, leader.expiry.deadlines[session]

    before, after = members.do(deadlines(password))
    assert after > before
    before, after = members.do(deadlines(b"wrong" * 3 + b"."))
    assert after == before


def test_members_without_a_leader_close_connections(start: Start, connect: Connect) -> None:
    members = start()
    alone = members.followers[0]
    client = connect(members, alone)
    states: list[Any] = []
    client.add_listener(states.append)
    for each in set(members.running) - {alone}:
        members.kill(each)
    patience.until(lambda: KazooState.SUSPENDED in states, "the connection to be closed")
    members.start(*(each for each in members.hosts if each != alone))
    certainly(client, "/again")


def test_one_member_grows_to_three_while_clients_write(start: Start, connect: Connect) -> None:
    members = start(3, alone=True)
    client = connect(members)
    written: list[str] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            certainly(client, f"/{len(written)}")
            written.append(f"{len(written)}")

    thread = threading.Thread(target=write)
    thread.start()
    for new in (2, 3):
        members.start(new)
        joining = AddVoter(members.running[new].host.me)
        while (answer := members.ask(joining)).error is not Error.NONE:
            assert answer.error in (Error.NOT_CAUGHT_UP, Error.RECONFIG_IN_PROGRESS, Error.LEADER_NOT_READY), answer
    members.kill(1)
    count = len(written)
    patience.until(lambda: len(written) > count + 5, "writes without the first member")
    stop.set()
    thread.join()
    assert set(written) <= set(client.retry(client.get_children, "/"))
    members.agree()


def test_a_member_whose_disk_was_lost_is_removed_and_added(start: Start, connect: Connect) -> None:
    members = start(limits={"snapshot_records": 20})
    client = connect(members)
    lost = members.followers[0]
    before = members.running[lost].host.me
    members.kill(lost)
    members.wipe(lost)
    for each in range(100):
        certainly(client, f"/{each}")
    members.start(lost)
    after = members.running[lost].host.me
    assert before.key != after.key
    assert members.ask(RemoveVoter(before.key)).error is Error.NONE
    while (answer := members.ask(AddVoter(after))).error is not Error.NONE:
        assert answer.error in (Error.NOT_CAUGHT_UP, Error.RECONFIG_IN_PROGRESS), answer
    members.agree()
    assert {each.tree.stat("/", each.tree.nodes["/"]).children for each in members.running.values()} == {101}


def test_an_expired_session_is_told_so_by_another_member(start: Start, connect: Connect) -> None:
    members = start(tickTime=50)
    client = connect(members, members.followers[0], timeout=1.0)
    session, password = client.client_id
    disappear(client)
    patience.until(lambda: session not in members.running[members.leader].tree.sessions, "the session to end")
    again = KazooClient(f"127.0.0.1:{members.ports[members.followers[1]]}", timeout=1.0, client_id=(session, password))
    again.start_async()
    patience.until(lambda: again.client_id is not None and again.client_id[0] != session, "another session")
    again.stop()
    again.close()
