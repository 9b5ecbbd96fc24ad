"""Znodes with a time to live: when they may be created, and when they expire. The test sets the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import patience
import pytest
from metadata import zkclient as zk
from metadata.servers import Serve
from metadata.zkclient import Connect

from fencepost.ledger.disk.journal import Damage
from fencepost.metadata import snapshot
from fencepost.metadata.acl import OPEN
from fencepost.metadata.codes import Code
from fencepost.metadata.protocol import CREATE, CREATE_TTL, Create, CreateSession, CreateTTL, DeleteContainer, SetData
from fencepost.metadata.tree import Transaction, Tree

HOUR = 3_600_000
ON = {"extendedTypesEnabled": True, "znode.container.checkIntervalMs": 1_000 * HOUR}
MOST = 1_099_511_627_775


class Clock:
    """The wall clock of a service. It stands still until :meth:`go_on`."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.now = server.service.wall_clock() + HOUR
        server.do(lambda: setattr(server.service, "wall_clock", lambda: self.now))

    def go_on(self, milliseconds: int) -> None:
        """Advance the clock, and have the service delete expired znodes."""
        self.now += milliseconds
        self.server.do(self.server.service._delete_due)


def create(path: str, ttl: int, flags: int = 5) -> list[Any]:
    return [zk.CREATE_TTL, [path, b"", zk.OPEN, flags, ttl]]


def is_there(client: zk.Client, path: str) -> bool:
    """Whether a znode exists once all earlier requests are applied."""
    return bool(client.call([zk.SYNC, ["/"]], [zk.EXISTS, [path, False]])[3] == 0)


def test_by_default_they_are_refused_as_zookeeper_does(serve: Serve, connect: Connect) -> None:
    client = connect(serve())
    for flags in (5, 6):
        assert client.call(create("/a", HOUR, flags))[3] == -6
        assert client.call([zk.CREATE, ["/a", b"", zk.OPEN, flags]])[3] == -6
    results = client.call([zk.MULTI, [[zk.CREATE, ["/b", b"", zk.OPEN, 0]], create("/a", HOUR)]])[4]
    assert [error for _, _, error in results] == [0, -6]
    assert client.call([zk.GET_CHILDREN, ["/", False]])[4] == ["zookeeper"]


def test_one_goes_when_its_time_is_over_and_its_watchers_are_told(serve: Serve, connect: Connect) -> None:
    server = serve(**ON | {"znode.container.checkIntervalMs": 20})
    clock = Clock(server)
    client = connect(server)
    path, stat = client.call(create("/a", HOUR))[4]
    assert path == "/a" and stat["owner"] == 0, "a client must not take it for an ephemeral"
    assert client.call([zk.GET_EPHEMERALS, ["/"]])[4] == []
    client.call([zk.EXISTS, ["/a", True]])
    clock.now += HOUR + 1
    while client.stream[-1][:3] != ["event", 2, "/a"]:
        client.read()
    assert not is_there(client, "/a")


def test_one_stays_for_its_time_and_lives_anew_with_new_data(serve: Serve, connect: Connect) -> None:
    clock = Clock(server := serve(**ON))
    client = connect(server)
    client.call(create("/a", HOUR), create("/b", MOST))
    clock.go_on(HOUR)
    assert is_there(client, "/a")
    client.call([zk.SET_DATA, ["/a", b"new", -1]])
    clock.go_on(HOUR)
    assert is_there(client, "/a")
    clock.go_on(1)
    assert not is_there(client, "/a")
    clock.go_on(MOST - 2 * HOUR - 1)
    assert is_there(client, "/b")
    clock.go_on(1)
    assert not is_there(client, "/b")


def test_one_stays_while_it_has_children(serve: Serve, connect: Connect) -> None:
    clock = Clock(server := serve(**ON))
    client = connect(server)
    client.call(create("/a", 1), create("/a/b", 2 * HOUR), [zk.CREATE, ["/a/b/c", b"", zk.OPEN, 0]])
    clock.go_on(3 * HOUR)
    assert is_there(client, "/a/b/c")
    client.call([zk.DELETE, ["/a/b/c", -1]])
    clock.go_on(0)
    assert is_there(client, "/a") and not is_there(client, "/a/b")
    clock.go_on(0)
    assert not is_there(client, "/a")


def test_sequential_ones_and_those_of_a_multi(serve: Serve, connect: Connect) -> None:
    clock = Clock(server := serve(**ON))
    client = connect(server)
    assert client.call(create("/s", HOUR, 6))[4][0] == "/s0000000000"
    results = client.call([zk.MULTI, [create("/a", HOUR), create("/a/s", HOUR, 6), create("/kept", HOUR, 0)]])[4]
    assert [(kind, error) for kind, error, _ in results] == [(zk.CREATE2, 0), (zk.CREATE2, 0), (zk.CREATE, 0)]
    assert results[1][2][0] == "/a/s0000000000"
    results = client.call([zk.MULTI, [create("/gone", HOUR), [zk.CHECK, ["/kept", 7]]]])[4]
    assert [error for _, _, error in results] == [0, -103]
    clock.go_on(HOUR + 1)
    assert is_there(client, "/a") and not is_there(client, "/a/s0000000000")
    clock.go_on(0)
    assert is_there(client, "/kept")
    assert client.call([zk.GET_CHILDREN, ["/", False]])[4] == ["kept", "zookeeper"]


def test_a_time_to_live_is_positive_and_of_40_bits(serve: Serve, connect: Connect) -> None:
    client = connect(serve(**ON))
    for ttl in (0, -1, MOST + 1, -(1 << 63), (1 << 63) - 1):
        for flags in (5, 6):
            assert client.call(create("/a", ttl, flags))[3] == -8
        assert client.call([zk.MULTI, [create("/a", ttl)]])[4] == [[-1, -8, -8]]
    assert client.call(create("/a", HOUR, 0))[3] == -8, "persistent"
    assert client.call([zk.CREATE2, ["/a", b"", zk.OPEN, 5]])[3] == -8, "no time to live"
    assert not is_there(client, "/a")


@pytest.mark.parametrize("snap_count", [100_000, 2])
def test_those_of_before_a_restart_go_when_their_time_is_over_whatever_is_set(
    serve: Serve, connect: Connect, tmp_path: Path, snap_count: int
) -> None:
    server = serve(**ON, snapCount=snap_count)
    client = connect(server)
    client.call(create("/a", HOUR), *[[zk.SYNC, ["/"]]] * 5)
    if snap_count == 2:
        patience.until(lambda: [*(tmp_path / "data").glob("*.checkpoint")], "a snapshot")
    server.crash()
    server = serve(**ON | {"extendedTypesEnabled": False})
    clock = Clock(server)
    client = connect(server)
    assert is_there(client, "/a") and list(server.service.tree.ttls) == ["/a"]
    assert client.call(create("/b", HOUR))[3] == -6
    clock.go_on(HOUR + 1)
    assert not is_there(client, "/a")


def state(*requests: Any) -> Tree:
    """The state after requests of one session, one second apart."""
    tree = Tree()
    for request in (CreateSession(1_000, b""), *requests):
        entry = Transaction(tree.zxid + 1, 1_000 * tree.zxid, tree.last_session, (), request)
        assert tree.apply(entry).code is Code.OK
    return tree


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (SetData("/a", b"", -1), Code.BAD_VERSION),
        (Create(CREATE, "/a/b", b"", OPEN, 0), Code.NOT_EMPTY),
        (SetData("/b", b"", -1), Code.OK),
    ],
)
def test_one_that_changes_after_its_deletion_was_proposed_stays(change: SetData | Create, code: Code) -> None:
    tree = state(CreateTTL(CREATE_TTL, "/a", b"", OPEN, 5, 100), Create(CREATE, "/b", b"", OPEN, 0))
    (deletion,) = tree.due(1_101)
    assert tree.due(1_100) == []
    for request, expected in (change, Code.OK), (deletion, code):
        assert tree.apply(Transaction(tree.zxid + 1, 1_102, tree.last_session, (), request)).code is expected
    assert ("/a" in tree.nodes) is (code is not Code.OK)


def test_entries_of_before_there_were_any_mean_what_they_meant() -> None:
    """A create that was refused is refused again when the log is replayed."""

    def read(*request: Any) -> Transaction:
        entry = [tree.zxid + 1, 0, tree.last_session, [], request]
        return msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=Transaction)

    tree = state()
    everybody = [[31, ["world", "anyone"]]]
    assert tree.apply(read("Create", CREATE_TTL, "/a", b"", everybody, 5, HOUR)).code is Code.UNIMPLEMENTED
    assert tree.apply(read("Create", 19, "/c", b"", everybody, 4, -1)).code is Code.OK
    assert tree.apply(read("DeleteContainer", "/c")).code is Code.OK


def test_a_snapshot_is_of_the_second_format_only_if_it_has_some() -> None:
    tree = state(Create(CREATE, "/b", b"", OPEN, 0))
    first = [record for some in snapshot.records(tree) for record in some]
    tree = state(CreateTTL(CREATE_TTL, "/a", b"", OPEN, 5, HOUR))
    second = [record for some in snapshot.records(tree) for record in some]
    assert [msgspec.msgpack.decode(each[0])[1] for each in (first, second)] == [1, 2]
    assert snapshot.read(first, "it").ttls == {}
    assert snapshot.read(second, "it").due(HOUR + 1_001) == [DeleteContainer("/a", tree.nodes["/a"].mzxid)]
    third = msgspec.msgpack.encode(["head", 3, 1, 1])
    with pytest.raises(Damage, match="it has the format 3, and this version reads 2 and less"):
        snapshot.read([third, *second[1:]], "it")
