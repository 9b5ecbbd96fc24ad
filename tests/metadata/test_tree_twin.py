"""The state machine against a slow plain model: one dictionary, copied for each multi and searched for children."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fencepost.metadata import snapshot
from fencepost.metadata.acl import ACL, OPEN, Id
from fencepost.metadata.codes import Code
from fencepost.metadata.protocol import (
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    Check,
    CloseSession,
    Create,
    Created,
    CreateSession,
    CreateTTL,
    Delete,
    DeleteContainer,
    Multi,
    MultiResult,
    SetACL,
    SetData,
)
from fencepost.metadata.tree import CONTAINER, Transaction, Tree

READ_ONLY = (ACL(1, Id("world", "anyone")),)
SYSTEM = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")


class Refused(Exception):
    pass


class Twin:
    """A model of the state machine, as plain as possible. Paths are always valid here."""

    def __init__(self) -> None:
        self.znodes: dict[str, dict[str, Any]] = {path: self.znode(b"", OPEN, 0, 0, 0) for path in SYSTEM}
        self.znodes["/zookeeper/config"] |= {"acl": READ_ONLY, "aversion": -1}

    @staticmethod
    def znode(data: bytes | None, acl: Any, owner: int, zxid: int, time: int) -> dict[str, Any]:
        return {
            "data": data, "acl": acl, "czxid": zxid, "mzxid": zxid, "ctime": time, "mtime": time, "version": 0,
            "cversion": 0,
            "aversion": 0, "owner": owner, "pzxid": zxid,
        }  # fmt: skip

    def children(self, path: str) -> list[str]:
        return [each for each in self.znodes if each != "/" and self.parent(each) == path]

    @staticmethod
    def parent(path: str) -> str:
        return "/".join(path.split("/")[:-1]) or "/"

    def get(self, path: str) -> dict[str, Any]:
        if path not in self.znodes:
            raise Refused(Code.NO_NODE)
        return self.znodes[path]

    def may(self, path: str, permission: int) -> dict[str, Any]:
        found = self.get(path)
        if not found["acl"][0].perms & permission:
            raise Refused(Code.NO_AUTH)
        return found

    def expect(self, expected: int, version: int) -> int:
        if expected not in (-1, version):
            raise Refused(Code.BAD_VERSION)
        return version + 1

    def gone(self, path: str, zxid: int) -> None:
        del self.znodes[path]
        self.znodes[self.parent(path)]["pzxid"] = zxid

    def answer(self, entry: Transaction, request: Any) -> tuple[Code, Any]:
        try:
            return Code.OK, self.do(entry, request)
        except Refused as refused:
            return refused.args[0], None

    def do(self, entry: Transaction, request: Any) -> Any:
        zxid = entry.zxid
        if isinstance(request, Multi):
            before = copy.deepcopy(self.znodes)
            found: list[Any] = []
            for operation in request.operations:
                try:
                    found.append(self.do(entry, operation))
                except Refused as refused:
                    self.znodes = before
                    return (
                        [Code.OK] * len(found)
                        + [refused.args[0]]
                        + [Code.RUNTIME_INCONSISTENCY] * (len(request.operations) - len(found) - 1)
                    )
            return [Code.OK] * len(found)
        if isinstance(request, CloseSession):
            for path in [path for path, each in self.znodes.items() if each["owner"] == entry.session]:
                self.gone(path, zxid)
            return None
        if isinstance(request, Create):
            has_ttl = isinstance(request, CreateTTL)
            if request.flags in (5, 6) and not has_ttl:
                raise Refused(Code.UNIMPLEMENTED)
            if has_ttl and not 1 <= request.ttl <= 1_099_511_627_775:
                raise Refused(Code.BAD_ARGUMENTS)
            parent = self.may(self.parent(request.path), 4)
            path = request.path + (str(parent["cversion"]).rjust(10, "0") if request.flags in (2, 3, 6) else "")
            if path in self.znodes:
                raise Refused(Code.NODE_EXISTS)
            if parent["owner"] > 0:
                raise Refused(Code.NO_CHILDREN_FOR_EPHEMERALS)
            owner = CONTAINER if request.kind == CREATE_CONTAINER else entry.session if request.flags in (1, 3) else 0
            owner = owner if not has_ttl else request.ttl - 0x0100_0000_0000_0000
            parent["cversion"] += 1
            parent["pzxid"] = zxid
            self.znodes[path] = self.znode(request.data, request.acl, owner, zxid, entry.time)
            return path
        if isinstance(request, Delete):
            if request.path in SYSTEM:
                raise Refused(Code.BAD_ARGUMENTS)
            self.may(self.parent(request.path), 8)
            self.expect(request.version, self.get(request.path)["version"])
            if self.children(request.path):
                raise Refused(Code.NOT_EMPTY)
            self.gone(request.path, zxid)
            return None
        if isinstance(request, DeleteContainer):
            if request.path in SYSTEM:
                raise Refused(Code.BAD_ARGUMENTS)
            znode = self.get(request.path)
            if self.children(request.path):
                raise Refused(Code.NOT_EMPTY)
            if znode["owner"] >= 0 or request.mzxid != (0 if znode["owner"] == CONTAINER else znode["mzxid"]):
                raise Refused(Code.BAD_VERSION)
            self.gone(request.path, zxid)
            return None
        if isinstance(request, SetData):
            znode = self.may(request.path, 2)
            znode |= {
                "version": self.expect(request.version, znode["version"]),
                "data": request.data,
                "mzxid": zxid,
                "mtime": entry.time,
            }
        elif isinstance(request, SetACL):
            znode = self.may(request.path, 16)
            znode |= {"aversion": self.expect(request.version, znode["aversion"]), "acl": request.acl}
        else:
            self.expect(request.version, self.may(request.path, 1)["version"])
        return None


paths = st.sampled_from(
    ["/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a", "/s0000000000", "/a/s0000000001", "/", "/zookeeper/config"]
)
data = st.sampled_from([b"", b"x", b"longer", None])
acls = st.sampled_from([OPEN, OPEN, OPEN, READ_ONLY])
versions = st.sampled_from([-1, -1, 0, 1])
ttls = st.sampled_from([1, 5, 1_099_511_627_775, 1_099_511_627_776, 0, -1])
creates = (
    st.builds(
        Create, st.sampled_from([CREATE, CREATE2, CREATE_CONTAINER]), paths, data, acls, st.sampled_from([0, 0, 1, 1])
    )
    | st.builds(Create, st.just(CREATE), st.sampled_from(["/s", "/a/s"]), data, acls, st.sampled_from([2, 3]))
    | st.builds(CreateTTL, st.just(CREATE_TTL), paths, data, acls, st.just(5), ttls)
    | st.builds(CreateTTL, st.just(CREATE_TTL), st.sampled_from(["/s", "/a/s"]), data, acls, st.just(6), ttls)
    | st.builds(Create, st.just(CREATE_TTL), paths, data, acls, st.just(5), ttls)
)
deletes, sets, checks = (
    st.builds(Delete, paths, versions),
    st.builds(SetData, paths, data, versions),
    st.builds(Check, paths, versions),
)
multis = st.builds(Multi, st.lists(creates | deletes | sets | checks, max_size=4).map(tuple))
requests = (
    creates
    | creates
    | deletes
    | sets
    | multis
    | st.builds(SetACL, paths, acls, versions)
    | st.builds(DeleteContainer, paths, st.integers(0, 10))
    | st.just(CloseSession())
)


@given(st.lists(st.tuples(st.integers(0, 2), requests), max_size=40))
def test_the_tree_does_what_its_twin_does(changes: list[tuple[int, Any]]) -> None:
    tree, twin = Tree(), Twin()
    for _ in range(3):
        tree.apply(Transaction(tree.zxid + 1, 0, 0, (), CreateSession(1_000, b"")))
    sessions = list(tree.sessions)
    for time, (who, request) in enumerate(changes):
        entry = Transaction(tree.zxid + 1, time, sessions[who], (), request)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=Transaction) == entry
        alive = sessions[who] in tree.sessions
        before = {path: [*tree.names(path)] for path in tree.nodes}
        applied = tree.apply(entry)
        if not alive and not isinstance(request, CloseSession | DeleteContainer):
            assert applied.code in (Code.UNKNOWN_SESSION, Code.SESSION_EXPIRED)
            continue
        code, expected = twin.answer(entry, request)
        assert applied.code == code
        if code != Code.OK:
            assert not applied.events
        elif isinstance(request, Multi):
            assert isinstance(applied.result, MultiResult)
            assert [code for _, code, _ in applied.result.results] == expected
        elif expected is not None:
            assert isinstance(applied.result, Created) and applied.result.path == expected
        if applied.code != Code.OK:
            assert {path: [*tree.names(path)] for path in tree.nodes} == before
        assert {path: msgspec.structs.asdict(node) for path, node in tree.nodes.items()} == twin.znodes
        for path, znode in twin.znodes.items():
            stat = tree.stat(path, tree.node(path))
            assert sorted(tree.names(path)) == sorted(each.rsplit("/", 1)[1] for each in twin.children(path))
            assert stat.children == len(tree.names(path)) and stat.cversion == 2 * znode["cversion"] - stat.children
    owned = {path for path, znode in twin.znodes.items() if znode["owner"] > 0}
    assert {path for paths in tree.ephemerals.values() for path in paths} == owned
    assert set(tree.containers) == {path for path, znode in twin.znodes.items() if znode["owner"] == CONTAINER}
    assert set(tree.ttls) == {path for path, znode in twin.znodes.items() if CONTAINER < znode["owner"] < 0}
    over = {
        path
        for path, znode in twin.znodes.items()
        if not twin.children(path)
        and (
            (znode["owner"] == CONTAINER and znode["cversion"])
            or (CONTAINER < znode["owner"] < 0 and 20 - znode["mtime"] > znode["owner"] % 0x100_0000_0000)
        )
    }
    assert {each.path for each in tree.due(20)} == over
    assert tree.size == sum(len(path) + len(znode["data"] or b"") for path, znode in twin.znodes.items())
    again = snapshot.read([record for some in snapshot.records(tree) for record in some], "it")
    for name in ("nodes", "children", "sessions", "ephemerals", "containers", "ttls", "size"):
        assert getattr(again, name) == getattr(tree, name), name
