"""Random work for a server of ZooKeeper's protocol, drawn from a seed, and its results in a form that can be compared.

Steps are plain values. Several clients take turns. The paths are few, so clients contend for them. A step waits for its
answers before the next one begins. So every server gives the same results, and each event comes at the same place in
the stream of its client. Only times, session ids and random values differ. No server promises an order in which the end
of a session deletes its ephemerals, so these events are sorted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from metadata import zkclient as zk
from metadata.zkclient import Client, Closed

CLIENTS = 4
LONG = 30_000
"""The timeout of a session that must not expire, in milliseconds."""

_ALONE = (zk.AUTH, zk.SET_ACL)
"""Requests that are sent alone. ZooKeeper answers an AUTH before requests that were sent ahead of it, and checks the
old ACL while a new one is being written (``ChangeRecord.acl``).
"""

_NAMES = ("a", "b", "c", "s0000000000", "s0000000001", "s0000000003", "é", "a b")
_ODD = ("", "/", "a", "/a/", "//a", "/a//b", "/.", "/a/..", "/..a", "/a\0b", "/\u0001", "/a\ufffd", "/zookeeper",
"/zookeeper/quota",
    "/zookeeper/config", "/zookeeper/x", "/nowhere/at/all", "/a/...")  # fmt: skip
_USERS = (b"alice:secret", b"bob:secret", b"carol", b"a:b:c")
_ACLS: tuple[Any, ...] = (
    [(31, "world", "anyone")], [(1, "world", "anyone")], [(3, "world", "anyone")], [(30, "world", "anyone")],
    [(31, "auth", "")], [(15, "auth", "x"), (1, "world", "anyone")], [(31, "digest", "alice:abc=")],
    [(31, "ip", "127.0.0.1")], [(31, "ip", "127.0.0.0/8")], [(31, "ip", "10.0.0.0/8"), (1, "world", "anyone")],
    [(31, "ip", "nonsense")], [(31, "digest", "nocolon")], [(31, "world", "someone")], [(31, "nobody", "x")], [], None,
    [(31, "world", "anyone"), (31, "world", "anyone")], [(0, "world", "anyone")],
)  # fmt: skip


class Workload:
    """The steps of a seed."""

    def __init__(self, seed: int, expiring: float = 0.0004) -> None:
        self.random = Random(seed)
        self.expiring = expiring

    def steps(self, operations: int) -> Iterator[list[Any]]:
        """Steps with at least that many operations in all."""
        random, done = self.random, 0
        for client in range(CLIENTS):
            yield ["open", client, LONG, False]
        while done < operations:
            client, dice = random.randrange(CLIENTS), random.random()
            if dice < self.expiring:
                yield [
                    "expire",
                    client,
                    [each for each in (self.operation() for _ in range(6)) if each[0] not in _ALONE],
                ]
                done += 6
            elif dice < 0.008:
                yield [
                    "reconnect",
                    client,
                    random.choice(["right", "right", "right", "wrong", "again"]),
                    random.random() < 0.5,
                ]
                done += 1
            elif dice < 0.012:
                yield ["close", client]
                yield [
                    "open",
                    client,
                    random.choice([LONG, LONG, 10**9, -5]) if random.random() < 0.3 else LONG,
                    random.choice([False, True, None]),
                ]
                done += 2
            elif dice < 0.16:
                batch = [
                    each for each in (self.operation() for _ in range(random.randint(2, 12))) if each[0] not in _ALONE
                ]
                if batch:
                    yield ["calls", client, batch]
                done += len(batch)
            else:
                yield ["calls", client, [self.operation()]]
                done += 1

    def path(self) -> str:
        random = self.random
        if random.random() < 0.04:
            return random.choice(_ODD)
        return "".join(
            "/" + random.choice(_NAMES[:3] if random.random() < 0.8 else _NAMES)
            for _ in range(random.choice((1, 1, 1, 2, 2, 3)))
        )

    def data(self) -> bytes | None:
        random = self.random
        return None if random.random() < 0.05 else random.randbytes(random.choice((0, 1, 3, 20)))

    def acl(self) -> Any:
        return _ACLS[0] if self.random.random() < 0.9 else self.random.choice(_ACLS)

    def version(self) -> int:
        return self.random.choice((-1, -1, -1, 0, 0, 1, 2, 3, -2))

    def create(self, kind: int) -> list[Any]:
        random = self.random
        flags = (
            random.choice((0, 0, 0, 0, 1, 1, 2, 3, 3, 4)) if random.random() < 0.98 else random.choice((5, 6, 7, -1))
        )
        path = self.path()
        if flags in (2, 3) and random.random() < 0.8:
            path += random.choice(("", "/")) + "s"
        return [kind, [path, self.data(), self.acl(), flags]]

    def change(self, in_multi: bool) -> list[Any]:
        random = self.random
        kind = random.choices(
            (zk.CREATE, zk.CREATE2, zk.CREATE_CONTAINER, zk.DELETE, zk.SET_DATA, zk.CHECK, zk.SET_ACL),
            (30, 8, 2, 22, 20, 12 if in_multi else 0, 0 if in_multi else 5),
        )[0]
        if kind in (zk.CREATE, zk.CREATE2, zk.CREATE_CONTAINER):
            return self.create(kind)
        if kind in (zk.DELETE, zk.CHECK):
            return [kind, [self.path(), self.version()]]
        if kind == zk.SET_DATA:
            return [kind, [self.path(), self.data(), self.version()]]
        # No client locks all others out of everything.
        return [kind, [path if (path := self.path()) != "/" else "/a", self.acl(), self.version()]]

    def operation(self) -> list[Any]:
        random, dice = self.random, self.random.random()
        watch = random.random() < 0.25
        if dice < 0.42:
            return self.change(False)
        if dice < 0.53:
            operations = [self.change(True) for _ in range(random.choice((0, 1, 2, 2, 3, 4, 5)))]
            if random.random() < 0.02:
                operations.append([random.choice((zk.GET_DATA, 99)), [self.path(), False]])
            return [zk.MULTI, operations]
        if dice < 0.55:
            kinds = [random.choice((zk.GET_DATA, zk.GET_CHILDREN)) for _ in range(random.randint(0, 4))]
            return [zk.MULTI_READ, [[kind, [self.path(), False]] for kind in kinds]]
        if dice < 0.83:
            kind = random.choice((zk.EXISTS, zk.EXISTS, zk.GET_DATA, zk.GET_DATA, zk.GET_CHILDREN, zk.GET_CHILDREN2))
            return [kind, [self.path(), watch]]
        if dice < 0.87:
            return [
                zk.ADD_WATCH,
                [self.path(), random.choice((0, 0, 1, 1, 1, 2)) if random.random() < 0.2 else random.choice((0, 1))],
            ]
        if dice < 0.91:
            return [
                random.choice((zk.CHECK_WATCHES, zk.REMOVE_WATCHES)),
                [self.path(), random.randint(1, 5) if random.random() < 0.97 else 9],
            ]
        if dice < 0.94:
            return [zk.GET_ACL, [self.path()]]
        if dice < 0.95:
            return [zk.GET_ALL_CHILDREN_NUMBER, [self.path()]]
        if dice < 0.96:
            return [zk.GET_EPHEMERALS, [random.choice(("", "/", "/a", "/b/", " ", None))]]
        if dice < 0.97:
            return [zk.SYNC, [self.path()]]
        if dice < 0.98:
            return [zk.WHO_AM_I, []]
        if dice < 0.985:
            return [zk.AUTH, [0, "digest" if random.random() < 0.9 else "ip", random.choice(_USERS)]]
        if dice < 0.99:
            return [random.choice((zk.EXISTS, zk.CREATE, zk.SET_DATA, zk.GET_CHILDREN)), []]  # without a record
        return [zk.PING, []]


def written(step: list[Any], report: list[Any]) -> str:
    """A step and its results as a line of a file."""
    return json.dumps([_as_text(step), report], separators=(",", ":"))


def read(line: str) -> tuple[list[Any], list[Any]]:
    """The step and the results of a line."""
    step, report = json.loads(line)
    return _as_bytes(step), report


def _as_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    return [_as_text(each) for each in value] if isinstance(value, list | tuple) else value


def _as_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        return value["bytes"].encode("latin-1")
    return [_as_bytes(each) for each in value] if isinstance(value, list) else value


class Run:
    """Runs steps on a server. ``report`` holds their results."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.clients: dict[int, Client] = {}
        self.ordered: set[int] = set()
        """The zxids of changes whose events have a defined order."""

    def run(self, steps: Iterable[list[Any]]) -> Iterator[list[Any]]:
        """The results of each step: its outcome, and what every client received meanwhile."""
        for step in steps:
            try:
                outcome = getattr(self, "_" + step[0])(*step[1:])
                for client in self.clients.values():
                    client.send([zk.PING, []])
                for client in self.clients.values():
                    client.answers(1)
            except Closed:
                raise AssertionError(f"port {self.port} closed a connection in the step {step}") from None
            taken = {str(index): self._taken(client) for index, client in sorted(self.clients.items())}
            # Each client last received the answer to a ping, with the zxid.
            yield [
                outcome,
                {index: each[:-1] for index, each in taken.items() if each[:-1]},
                sorted({each[-1][2] for each in taken.values()}),
            ]

    def close(self) -> None:
        for client in self.clients.values():
            client.drop()

    def _open(self, index: int, timeout: int, read_only: bool | None) -> Any:
        client = self.clients[index] = Client(self.port)
        granted = client.connect(timeout, read_only=read_only)
        if granted[0] >= LONG:
            return granted
        client.call([zk.CLOSE, []])
        return granted + self._open(index, LONG, read_only)

    def _close(self, index: int) -> Any:
        client = self.clients.pop(index)
        client.call([zk.CLOSE, []])
        return [self._taken(client), client.ended()]

    def _calls(self, index: int, operations: list[Any]) -> None:
        client = self.clients[index]
        client.call(*operations)

    def _reconnect(self, index: int, how: str, watches: bool) -> Any:
        """Resume a session: after its connection, with a wrong password, or while its connection is still open."""
        old = self.clients[index]
        if how != "again":
            old.drop()
        password = bytes(16) if how == "wrong" else old.password
        client = Client(self.port)
        answer = client.connect(LONG, old.session, password, old.last_zxid)
        if how == "wrong":
            assert client.ended()
            client = Client(self.port)
            answer += client.connect(LONG, old.session, old.password, old.last_zxid)
        self.clients[index] = client
        client.last_zxid = old.last_zxid
        if watches:
            paths = [["/a", "/b"], ["/a", "/c/a"], ["/a", "/b/a"], ["/b"], ["/c", "/"]]
            kind = zk.SET_WATCHES if how == "again" else zk.SET_WATCHES2
            client.call([kind, [max(0, old.last_zxid - 5), *(paths[:3] if how == "again" else paths)]])
        old.drop()
        return answer

    def _expire(self, index: int, operations: list[Any]) -> Any:
        """Open a session with a short timeout, use it, and let it expire."""
        short = Client(self.port)
        granted = short.connect(1)
        short.call(*operations)
        name = "/expires"
        assert short.call([zk.CREATE, [name, b"", zk.OPEN, 1]])[3] == 0
        taken = self._taken(short)
        short.drop()
        watcher = self.clients[index]
        marker = Client(self.port)
        marker.connect(LONG)
        deadline = time.monotonic() + 120
        while marker.call([zk.EXISTS, [name, False]])[3] == 0:
            assert time.monotonic() < deadline, "the session did not expire"
            for client in self.clients.values():
                client.call([zk.PING, []])
            time.sleep(0.05)
        again = Client(self.port)
        refused = again.connect(LONG, short.session, short.password, short.last_zxid)
        marker.call([zk.CLOSE, []])
        for client in self.clients.values():
            client.stream = [each for each in client.stream if each[0] == "event" or each[1] != -2]
        watcher.call([zk.EXISTS, [name, False]])
        return [granted, taken, refused, again.ended()]

    def _taken(self, client: Client) -> list[Any]:
        """What a client received since the last call, without what differs from run to run."""
        stream, client.stream = client.stream, []
        for each in stream:
            if each[0] == "reply" and client.kinds[each[1]] not in (zk.CLOSE, zk.PING):
                self.ordered.add(each[2])
        found: list[Any] = []
        unordered: list[Any] = []
        for each in [*stream, ["end"]]:
            if each[0] == "event" and each[3] not in self.ordered and each[3] != -1:
                unordered.append(each)
                continue
            found += sorted(unordered)
            unordered = []
            if each[0] != "end":
                found.append(self._without_times(each))
        return found

    def _without_times(self, value: Any) -> Any:
        if isinstance(value, dict):
            sessions = {client.session: index for index, client in self.clients.items()}
            owner = value["owner"]
            kept = {key: each for key, each in value.items() if key not in ("ctime", "mtime", "owner")}
            return {**kept, "owner": owner and sessions.get(owner, -1)}
        return [self._without_times(each) for each in value] if isinstance(value, list) else value
