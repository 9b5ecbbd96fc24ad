"""Hostile clients and exhausted limits do not harm other clients."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import socket
import struct
import time
from random import Random

import patience
import pytest
from metadata import zkclient as zk
from metadata.servers import Serve, Server
from metadata.zkclient import Client, Closed, Connect

from fencepost.connections import users


def raw(server: Server) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", server.port), timeout=patience.PATIENCE)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes a connection. Data before that is skipped."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def works(client: Client) -> bool:
    return bool(client.call([zk.CREATE, ["/works-", b"", zk.OPEN, 2]])[3] == 0)


@pytest.mark.parametrize("length", [-1, -(1 << 31), 1 << 20, (1 << 31) - 1])
def test_a_message_of_an_impossible_length_closes_its_connection(serve: Serve, connect: Connect, length: int) -> None:
    server = serve()
    client = connect(server)
    for before in (b"", struct.pack(">i", 45) + struct.pack(">iqiqi16sb", 0, 0, 10_000, 0, 16, bytes(16), 0)):
        stranger = raw(server)
        stranger.sendall(before + struct.pack(">i", length) + b"x" * 100)
        assert is_closed(stranger)
    assert works(client)


def test_garbage_hurts_nobody(serve: Serve, connect: Connect) -> None:
    server = serve(sessionlessCnxnTimeout=200)
    client, random = connect(server), Random(1)
    for size in (1, 3, 4, 5, 44, 200, 5_000):
        for _ in range(3):
            stranger = raw(server)
            stranger.sendall(random.randbytes(size))
            assert is_closed(stranger)
    assert works(client)


def test_garbage_in_requests_is_answered_or_ends_the_connection(serve: Serve, connect: Connect) -> None:
    server, random = serve(), Random(2)
    client = connect(server)
    for kind in (*range(-12, 25), *range(99, 110), 1_000, -(1 << 31)):
        stranger = connect(server)
        for size in (0, 1, 8, 40):
            try:
                stranger.send_frame(struct.pack(">ii", 7, kind) + random.randbytes(size))
                stranger.kinds[7] = stranger.kinds[-4] = zk.DELETE
                stranger.frame()
            except (Closed, BrokenPipeError, ConnectionResetError):
                break
    assert works(client)


def test_half_a_message_for_ever_and_silence_are_given_up(serve: Serve, connect: Connect) -> None:
    server = serve(sessionlessCnxnTimeout=200)
    silent, half = raw(server), raw(server)
    half.sendall(struct.pack(">i", 44) + b"half")
    assert is_closed(silent) and is_closed(half)
    with_session = connect(server, timeout=200)
    with_session.socket.sendall(struct.pack(">i", 100) + b"half")
    assert is_closed(with_session.socket)


def test_a_thousand_idle_connections_hurt_nobody(serve: Serve, connect: Connect) -> None:
    server = serve()
    idle = []
    client = connect(server)
    for _ in range(1_000):
        idle.append(raw(server))
    patience.until(lambda: len(server.service.connections) == 1_001, "all connections")
    assert works(client)
    for each in idle:
        each.close()
    patience.until(lambda: len(server.service.connections) == 1, "the end of all connections")


def test_connections_beyond_the_limits_are_closed(serve: Serve, connect: Connect) -> None:
    for settings in ({"maxCnxns": 2}, {"maxClientCnxns": 2}):
        server = serve(**settings)
        first, second = connect(server), connect(server)
        assert is_closed(raw(server))
        second.drop()
        patience.until(lambda: len(server.service.connections) == 1, "the end of a connection")
        assert works(connect(server)) and works(first)
        server.stop()


def test_connections_that_say_nothing_keep_nobody_out(serve: Serve, connect: Connect) -> None:
    server = serve(maxCnxns=3)
    silent = [raw(server) for _ in range(3)]
    patience.until(lambda: len(server.service.connections) == 3, "all connections")
    assert works(connect(server))
    assert is_closed(silent[0])


def test_sessions_beyond_the_limit_are_refused(serve: Serve, connect: Connect) -> None:
    server = serve(maxSessions=1)
    client = connect(server)
    with pytest.raises(Closed):
        connect(server)
    assert works(client)


def test_a_client_that_does_not_read_is_cut_off(serve: Serve, connect: Connect) -> None:
    server = serve(maxOutgoingBytes=300_000)
    client, slow = connect(server), connect(server)
    client.call([zk.CREATE, ["/big", b"x" * 100_000, zk.OPEN, 0]])
    for _ in range(200):
        try:
            slow.socket.sendall(slow.request(zk.GET_DATA, ["/big", False]))
        except OSError:
            break
    # The server reads nothing from a client that does not read, so its answers do not fill the memory.
    connection = server.service.by_session.get(slow.session)
    transport = None if connection is None else connection.transport
    assert transport is None or transport.get_write_buffer_size() < 2_000_000
    with contextlib.suppress(OSError):  # it may be closed already
        slow.socket.sendall(slow.request(zk.ADD_WATCH, ["/", 1]))
    assert works(client)


def test_events_that_nobody_reads_close_the_connection(serve: Serve, connect: Connect) -> None:
    server = serve(maxOutgoingBytes=50_000)
    client, slow = connect(server), connect(server)
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    slow.call([zk.ADD_WATCH, ["/", 1]])
    name = "/" + "n" * 10_000
    deadline = time.monotonic() + patience.PATIENCE
    while slow.session in server.service.by_session:
        client.call(
            *[
                [kind, arguments]
                for _ in range(50)
                for kind, arguments in ((zk.CREATE, [name, b"", zk.OPEN, 0]), (zk.DELETE, [name, -1]))
            ]
        )
        client.stream.clear()
        assert time.monotonic() < deadline
    assert slow.session in server.service.tree.sessions and works(client)


def test_a_client_that_closes_its_half_and_does_not_read_is_gone_before_its_session(
    serve: Serve, connect: Connect
) -> None:
    server = serve()
    client, slow = connect(server), connect(server)
    client.call([zk.CREATE, ["/big", b"x" * 100_000, zk.OPEN, 0]])
    connection = server.service.by_session[slow.session]
    transport = connection.transport
    assert transport is not None
    while not server.do(transport.get_write_buffer_size):
        slow.socket.sendall(slow.request(zk.GET_DATA, ["/big", False]))
    slow.socket.shutdown(socket.SHUT_WR)
    patience.until(lambda: connection not in server.service.connections, "the end of the connection")
    assert slow.session in server.service.tree.sessions and works(client)


def test_limits_on_znodes_bytes_and_watches_refuse_with_quota_exceeded(serve: Serve, connect: Connect) -> None:
    server = serve(maxNodes=8, maxDataBytes=2_000, maxWatches=3)
    client = connect(server)
    for number in range(4):
        assert client.call([zk.CREATE, [f"/{number}", b"", zk.OPEN, 0]])[3] == 0
    assert client.call([zk.CREATE, ["/more", b"", zk.OPEN, 0]])[3] == -125
    assert client.call([zk.MULTI, [[zk.DELETE, ["/0", -1]], [zk.CREATE, ["/5", b"", zk.OPEN, 0]]]])[3] == -125
    assert client.call([zk.SET_DATA, ["/0", b"x" * 2_000, -1]])[3] == -125
    assert client.call([zk.SET_DATA, ["/0", b"x" * 1_500, -1]])[3] == 0
    assert client.call([zk.DELETE, ["/0", -1]])[3] == 0
    assert works(client)
    for number in range(1, 4):
        assert client.call([zk.GET_DATA, [f"/{number}", True]])[3] == 0
    assert client.call([zk.GET_CHILDREN, ["/", True]])[3] == -125
    assert client.call([zk.GET_CHILDREN, ["/", False]])[3] == 0


def test_an_unknown_request_gets_an_error_and_keeps_its_connection(serve: Serve, connect: Connect) -> None:
    client = connect(serve())
    for kind in (999, 20, 16, -7):
        assert client.call([kind, []])[3] == (-123 if kind == 16 else -6)
    assert works(client)


def log_size(server: Server) -> int:
    return int(server.do(lambda: server.node.log.appended_bytes))


def test_identities_are_few_and_small_and_so_are_the_records_of_changes(serve: Serve, connect: Connect) -> None:
    server = serve()
    client = connect(server)
    big = connect(server)
    assert big.call([zk.AUTH, [0, "digest", b"u" * 1_000_000 + b":password"]])[3] == -115 and big.ended()
    many = connect(server)
    replies = [many.call([zk.AUTH, [0, "digest", b"user%d:password" % number]])[3] for number in range(60)]
    assert set(replies) == {0}
    before = log_size(server)
    for number in range(20):
        assert many.call([zk.CREATE, [f"/small-{number}", b"", zk.OPEN, 0]])[3] == 0
    assert log_size(server) - before < 20 * 6_000
    with pytest.raises(Closed):
        for number in range(60, 10_000):
            many.call([zk.AUTH, [0, "digest", b"user%d:password" % number]])
    assert many.stream[-1][3] == -115 and works(client)


def test_the_same_identity_is_proven_again_and_again(serve: Serve, connect: Connect) -> None:
    server = serve()
    client = connect(server)
    client.call(*[[zk.AUTH, [0, "digest", b"user:password"]]] * 3_000)
    assert {each[3] for each in client.stream} == {0}
    assert len(client.call([zk.WHO_AM_I, []])[4]) == 2 and works(client)


def test_a_small_request_becomes_no_large_record(serve: Serve, connect: Connect) -> None:
    server = serve(**{"jute.maxbuffer": 20_000})
    client = connect(server)
    for number in range(50):
        assert client.call([zk.AUTH, [0, "digest", b"user%d:password" % number]])[3] == 0
    # An entry with the scheme auth stands for all identities of the client.
    wide = [(perms, "auth", "") for perms in range(1, 31)]
    assert client.call([zk.CREATE, ["/wide", b"", wide, 0]])[3] == -125
    assert client.call([zk.MULTI, [[zk.CREATE, [f"/{each}", b"", wide[:1], 0]] for each in range(30)]])[3] == -125
    assert client.call([zk.CREATE, ["/narrow", b"", wide[:1], 0]])[3] == 0
    assert client.call([zk.SET_ACL, ["/narrow", wide, -1]])[3] == -125
    assert len(client.call([zk.GET_ACL, ["/narrow"]])[4][0]) == 50
    # Each byte that is not UTF-8 becomes three.
    client.kinds[7] = zk.CREATE
    path, acl = struct.pack(">i", 15_000) + b"/" + b"\xff" * 14_999, zk.acl(zk.OPEN)
    client.send_frame(struct.pack(">ii", 7, zk.CREATE) + path + zk.blob(b"") + acl + struct.pack(">i", 0))
    assert client.read()[3] == -125
    assert works(client)


def test_acls_count_among_the_bytes_that_are_held(serve: Serve, connect: Connect) -> None:
    server = serve(maxDataBytes=10_000)
    client = connect(server)
    acl = [*zk.OPEN, *((1, "digest", f"user{number}:hash") for number in range(200))]
    assert client.call([zk.CREATE, ["/a", b"", acl, 0]])[3] == 0
    assert client.call([zk.CREATE, ["/b", b"", acl, 0]])[3] == -125
    assert client.call([zk.MULTI, [[zk.DELETE, ["/a", -1]], [zk.CHECK, ["/a", -1]]]])[3] == 0
    held = server.do(lambda: server.service.tree.acl_size)
    assert 4_000 < held < 10_000  # the multi was undone
    assert client.call([zk.SET_ACL, ["/a", zk.OPEN, -1]])[3] == 0
    assert client.call([zk.CREATE, ["/b", b"", acl, 0]])[3] == 0
    assert server.do(lambda: server.service.tree.acl_size) == held
    assert client.call([zk.DELETE, ["/b", -1]])[3] == 0
    assert server.do(lambda: server.service.tree.acl_size) < 100


def test_others_have_their_turn_while_one_floods(serve: Serve, connect: Connect) -> None:
    server = serve()
    client, flood = connect(server), connect(server)
    requests = b"".join(flood.request(zk.AUTH, [0, "digest", b"user:password"]) for _ in range(5_000))

    def taken_at_once() -> int:
        connection = server.service.by_session[flood.session]
        before = connection.received
        connection.data_received(requests)
        return connection.received - before

    assert 0 < server.do(taken_at_once) < 1_000
    assert works(client)
    flood.answers(5_000)
    assert {each[3] for each in flood.stream} == {0}


def test_many_requests_at_once_are_all_answered_in_order(serve: Serve, connect: Connect) -> None:
    server = serve(globalOutstandingLimit=10)
    client = connect(server)
    requests = [
        [zk.CREATE, [f"/{number}", b"", zk.OPEN, 0]] if number % 3 else [zk.EXISTS, ["/", False]]
        for number in range(2_000)
    ]
    client.call(*requests)
    assert [each[1] for each in client.stream] == list(range(1, 2_001))
    assert all(each[3] == 0 for each in client.stream)
    assert server.service.outstanding == 0


HASHED = "super:" + base64.b64encode(hashlib.sha1(b"super:secret").digest()).decode()


@pytest.mark.parametrize("form", [HASHED, users.salted("super", "secret", bytes(16))])
def test_who_may_do_everything_is_told_to_nobody(serve: Serve, connect: Connect, form: str) -> None:
    server = serve(**{"DigestAuthenticationProvider.superDigest": form, "4lw.commands.whitelist": ["*"]})
    client = connect(server)
    assert client.call([zk.CREATE, ["/mine", b"", [(31, "digest", "other:hash")], 0]])[3] == 0
    for word in ("conf", "envi", "srvr", "mntr"):
        said = reply_to(server, word)
        assert form not in said and "superDigest" not in said
    assert connect(server).call([zk.GET_DATA, ["/mine", False]])[3] == -102
    guess = connect(server)
    guess.call([zk.AUTH, [0, "digest", b"super:guess"]])
    assert guess.stream[-1][3] == -115 if form != HASHED else guess.call([zk.GET_DATA, ["/mine", False]])[3] == -102
    assert client.call([zk.AUTH, [0, "digest", b"super:secret"]])[3] == 0
    assert client.call([zk.GET_DATA, ["/mine", False]])[3] == 0
    assert form not in repr(server.service.settings)


def reply_to(server: Server, word: str) -> str:
    connection, data = raw(server), b""
    connection.sendall(word.encode())
    while more := connection.recv(1 << 16):
        data += more
    return data.decode()


def test_four_letter_words(serve: Serve, connect: Connect) -> None:
    server = serve(**{"4lw.commands.whitelist": ["*"]})
    client = connect(server)
    client.call([zk.CREATE, ["/mine", b"", zk.OPEN, 1]], [zk.GET_DATA, ["/mine", True]], [zk.GET_CHILDREN, ["/", True]])
    session = f"{client.session:#x}"

    def said(word: str) -> str:
        return reply_to(server, word)

    assert said("ruok") == "imok" and said("isro") == "rw"
    assert "Mode: standalone" in said("srvr") and "Zxid: 0x2" in said("stat") and "Clients:" in said("stat")
    assert "zk_znode_count\t5\n" in said("mntr") and "zk_watch_count\t2\n" in said("mntr")
    assert session in said("cons") and session in said("dump") and "/mine" in said("dump")
    assert "zookeeper.version=3.9" in said("envi") and f"clientPort={server.port}\n" in said("conf")
    assert (
        "1 connections watching 1 paths" in said("wchs")
        and f"/mine\n\t{session}" in said("wchp")
        and f"{session}\n\t/mine" in said("wchc")
    )
    for word in ("srvr", "stat", "mntr", "envi"):
        assert re.search(r"3\.9\.3-\S+, built on \d{4}-\d\d-\d\d \d\d:\d\d UTC\n", said(word)), word
    sizes = re.fullmatch(r"datadir_size: (\d+)\nlogdir_size: (\d+)\n", said("dirs"))
    assert sizes is not None and int(sizes[2]) > 0
    assert "recved=4," in said("cons") and said("crst") == "Connection stats reset.\n"
    assert "recved=0," in said("cons")
    assert said("srst") == "Server stats reset.\n" and "Received: 0\n" in said("srvr")
    for word in ("hash", "gtmk", "stmk", "lead"):
        assert said(word).startswith(f"{word} is not known here: ")
    assert works(client)
    server.stop()
    server = serve(**{"4lw.commands.whitelist": ["srvr"]})
    assert said("ruok") == "ruok is not executed because it is not in the whitelist.\n"
