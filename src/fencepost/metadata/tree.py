"""The znodes and the sessions: a deterministic state machine without I/O.

Every change is a :class:`Transaction`, an entry of the log. It contains the values that the driver supplies, such as
the time or a password. So every server that applies the same entries in the same order has the same state, results and
events. Requests are checked when their entry is applied; a refused one takes an entry and a zxid, too. Checks come in
ZooKeeper's order (``PrepRequestProcessor``), so that a request with several faults gets the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from fencepost.metadata import acl as acls
from fencepost.metadata import paths, protocol
from fencepost.metadata.acl import ACLs, Ids
from fencepost.metadata.codes import Code, Refusal
from fencepost.metadata.protocol import (
    Change,
    Check,
    CloseSession,
    Create,
    Created,
    CreateSession,
    CreateTTL,
    Delete,
    DeleteContainer,
    Done,
    Multi,
    MultiResult,
    Refused,
    Result,
    SetACL,
    SetData,
    Stat,
    StatOf,
)

CONTAINER = -(1 << 63)
"""The owner of a container: a znode that is deleted when its last child is gone."""
TTL = -(1 << 56)
"""Plus a TTL in milliseconds, the owner of a znode with a TTL. It is deleted after that time without children or new
data. No session has a negative number.
"""
MAX_TTL = (1 << 40) - 1
"""As in ZooKeeper, like the two above (``EphemeralType``)."""

NODE_CREATED = 1
NODE_DELETED = 2
NODE_DATA_CHANGED = 3
NODE_CHILDREN_CHANGED = 4


class Node(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A znode between two changes. ``cversion`` counts the children that were ever created.

    ``owner`` is the session of an ephemeral, CONTAINER, TTL plus a TTL in milliseconds, or 0.
    """

    data: bytes | None
    acl: ACLs
    czxid: int = 0
    mzxid: int = 0
    ctime: int = 0
    mtime: int = 0
    version: int = 0
    cversion: int = 0
    aversion: int = 0
    owner: int = 0
    pzxid: int = 0


class Session(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An open session: its timeout in milliseconds, and the password with which its client resumes it."""

    timeout: int
    password: bytes


class Transaction(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An entry of the log: a change, the session and identities that requested it, and the time in milliseconds since
    1970.
    """

    zxid: int
    time: int
    session: int
    ids: Ids
    request: Change


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a znode. ``acl`` decides who may see it."""

    kind: int
    path: str
    acl: ACLs


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The outcome of an entry: its result, or the ``code`` of its refusal; and the events, in order."""

    zxid: int
    code: Code
    result: Result | None
    events: tuple[WatchEvent, ...] | list[WatchEvent] = ()


class Tree:
    """The state: znodes by path, open sessions, and the zxid of the last applied entry.

    Anybody may read it; only :meth:`apply` changes it.
    """

    def __init__(self) -> None:
        self.zxid = 0
        self.last_session = 0
        self.sessions: dict[int, Session] = {}
        self.nodes: dict[str, Node] = {}
        self.children: dict[str, dict[str, None]] = {}
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.containers: dict[str, None] = {}
        self.ttls: dict[str, None] = {}
        self.size = 0
        """Characters of all paths and bytes of all data."""
        self.acl_size = 0
        """Bytes of all ACLs except the one that is open to all."""
        self._undo: list[tuple[str, Node | None]] | None = None
        self._events: list[WatchEvent] = []
        self._put(paths.ROOT, Node(b"", acls.OPEN))
        for path in paths.SYSTEM[:2]:
            self._put(path, Node(b"", acls.OPEN))
        self._put(paths.SYSTEM[2], Node(b"", acls.READABLE, aversion=-1))

    # -- reading ------------------------------------------------------------------------------------------------------

    def node(self, path: str) -> Node:
        """The znode at a path. Refuses with NO_NODE. The empty path is the root too, as in ZooKeeper."""
        node = self.nodes.get(path or paths.ROOT)
        if node is None:
            raise Refusal(Code.NO_NODE)
        return node

    def permitted(self, path: str, perms: int, ids: Ids) -> Node:
        """The znode at a path, if one of these identities has one of the permissions. Refuses with NO_NODE and
        NO_AUTH.
        """
        node = self.node(path)
        if not acls.permits(node.acl, perms, ids):
            raise Refusal(Code.NO_AUTH)
        return node

    def names(self, path: str) -> dict[str, None]:
        """The names of a znode's children, in the order of their creation."""
        return self.children.get(path or paths.ROOT, _NONE)

    def stat(self, path: str, node: Node) -> Stat:
        """The stat of a znode."""
        children = len(self.names(path))
        return Stat(
            node.czxid,
            node.mzxid,
            node.ctime,
            node.mtime,
            node.version,
            # Created and deleted children: twice the created ones, less those that exist.
            _int32(node.cversion * 2 - children),
            node.aversion,
            max(node.owner, 0),  # ZooKeeper shows only sessions
            len(node.data or b""),
            children,
            node.pzxid,
        )

    def due(self, now: int) -> list[DeleteContainer]:
        """The deletions that are due: of containers that had children and have none, and of childless znodes whose TTL
        is over. ``now`` is in milliseconds since 1970.
        """
        deletions = [DeleteContainer(path) for path in self.containers if self.nodes[path].cversion > 0]
        for path in self.ttls:
            node = self.nodes[path]
            if now - node.mtime > node.owner - TTL:
                deletions.append(DeleteContainer(path, node.mzxid))
        return [each for each in deletions if not self.names(each.path)]

    # -- changing -----------------------------------------------------------------------------------------------------

    def apply(self, entry: Transaction) -> Applied:
        """Apply the next entry of the log.

        Raises ValueError if it is not the next one: zxids have no gaps.
        """
        if entry.zxid != self.zxid + 1:
            raise ValueError(f"after zxid {self.zxid:#x} comes {self.zxid + 1:#x}, not {entry.zxid:#x}")
        self.zxid = entry.zxid
        self._events = []
        request = entry.request
        try:
            if not isinstance(request, _WITHOUT_SESSION) and entry.session not in self.sessions:
                ephemeral = isinstance(request, Create) and request.flags in protocol.EPHEMERAL_MODES
                raise Refusal(Code.SESSION_EXPIRED if ephemeral else Code.UNKNOWN_SESSION)
            result = _HANDLERS[type(request)](self, entry, request)
        except Refusal as refusal:
            return Applied(entry.zxid, refusal.code, None)
        return Applied(entry.zxid, Code.OK, result, self._events)

    def _create(self, entry: Transaction, request: Create) -> Created:
        path, flags = request.path, request.flags
        if flags not in protocol.MODES:
            raise Refusal(Code.BAD_ARGUMENTS)
        has_ttl = isinstance(request, CreateTTL)
        if flags in protocol.TTL_MODES and not has_ttl:
            raise Refusal(Code.UNIMPLEMENTED)
        is_sound = 0 < request.ttl <= MAX_TTL if has_ttl else request.kind != protocol.CREATE_TTL
        if not is_sound or "/" not in path or "\0" in path:
            raise Refusal(Code.BAD_ARGUMENTS)
        acl = acls.resolved(request.acl, entry.ids)
        parent_path = paths.parent(path)
        parent = self.permitted(parent_path, acls.CREATE, entry.ids)
        if flags in protocol.SEQUENTIAL_MODES:
            path = f"{path}{parent.cversion:010d}"
        if not paths.is_valid(path):
            raise Refusal(Code.BAD_ARGUMENTS)
        if path in self.nodes:
            raise Refusal(Code.NODE_EXISTS)
        if parent.owner > 0:
            raise Refusal(Code.NO_CHILDREN_FOR_EPHEMERALS)
        if request.kind == protocol.CREATE_CONTAINER:
            owner = CONTAINER
        elif has_ttl:
            owner = TTL + request.ttl
        else:
            owner = entry.session if flags in protocol.EPHEMERAL_MODES else 0
        zxid, time = entry.zxid, entry.time
        node = Node(request.data, acl, zxid, zxid, time, time, 0, 0, 0, owner, zxid)
        self._put(parent_path, _replace(parent, cversion=_int32(parent.cversion + 1), pzxid=zxid))
        self._put(path, node)
        self._events.append(WatchEvent(NODE_CREATED, path, acl))
        self._events.append(WatchEvent(NODE_CHILDREN_CHANGED, parent_path, parent.acl))
        return Created(path, None if request.kind == protocol.CREATE else self.stat(path, node))

    def _delete(self, entry: Transaction, request: Delete) -> Done:
        path = request.path
        self._refuse_system(path)
        self.permitted(paths.parent(path), acls.DELETE, entry.ids)
        _next_version(self.node(path).version, request.version)
        if self.names(path):
            raise Refusal(Code.NOT_EMPTY)
        self._remove(path, entry.zxid)
        return _DONE

    def _delete_container(self, entry: Transaction, request: DeleteContainer) -> Done:
        self._refuse_system(request.path)
        node = self.node(request.path)
        if self.names(request.path):
            raise Refusal(Code.NOT_EMPTY)
        if node.owner >= 0 or request.mzxid != (0 if node.owner == CONTAINER else node.mzxid):
            raise Refusal(Code.BAD_VERSION)
        self._remove(request.path, entry.zxid)
        return _DONE

    def _set_data(self, entry: Transaction, request: SetData) -> StatOf:
        path = request.path
        if not paths.is_valid(path):
            raise Refusal(Code.BAD_ARGUMENTS)
        node = self.permitted(path, acls.WRITE, entry.ids)
        version = _next_version(node.version, request.version)
        node = Node(
            request.data, node.acl, node.czxid, entry.zxid, node.ctime, entry.time, version, node.cversion,
            node.aversion,
            node.owner, node.pzxid,
        )  # fmt: skip
        self._put(path, node)
        self._events.append(WatchEvent(NODE_DATA_CHANGED, path, node.acl))
        return StatOf(self.stat(path, node))

    def _set_acl(self, entry: Transaction, request: SetACL) -> StatOf:
        path = request.path
        if not paths.is_valid(path):
            raise Refusal(Code.BAD_ARGUMENTS)
        acl = acls.resolved(request.acl, entry.ids)
        node = self.permitted(path, acls.ADMIN, entry.ids)
        node = _replace(node, acl=acl, aversion=_next_version(node.aversion, request.version))
        self._put(path, node)
        return StatOf(self.stat(path, node))

    def _check(self, entry: Transaction, request: Check) -> Done:
        if not paths.is_valid(request.path):
            raise Refusal(Code.BAD_ARGUMENTS)
        node = self.permitted(request.path, acls.READ, entry.ids)
        _next_version(node.version, request.version)
        return _DONE

    def _multi(self, entry: Transaction, request: Multi) -> MultiResult:
        results: list[tuple[int, Code, Result]] = []
        self._undo = []
        try:
            for operation in request.operations:
                results.append((_kind(operation), Code.OK, _HANDLERS[type(operation)](self, entry, operation)))
        except Refusal as refusal:
            undo, self._undo = self._undo, None
            for path, node in reversed(undo):
                self._put(path, node)
            self._events = []
            after = len(request.operations) - len(results) - 1
            return protocol.not_done([Code.OK] * len(results) + [refusal.code] + [Code.RUNTIME_INCONSISTENCY] * after)
        finally:
            self._undo = None
        return MultiResult(tuple(results))

    def _create_session(self, entry: Transaction, request: CreateSession) -> protocol.NumberOf:
        # As in ZooKeeper: 40 bits of the time and a counter, so that numbers are unique even after all data were lost.
        session = max(self.last_session + 1, (entry.time << 16) & 0xFF_FFFF_FFFF_FFFF)
        self.last_session = session
        self.sessions[session] = Session(request.timeout, request.password)
        return protocol.NumberOf(session)

    def _close_session(self, entry: Transaction, _: CloseSession) -> Done:
        self.sessions.pop(entry.session, None)
        for path in list(self.ephemerals.get(entry.session, _NONE)):
            self._remove(path, entry.zxid)
        return _DONE

    def _refused(self, _: Transaction, request: Refused) -> Done:
        raise Refusal(Code(request.code))

    def _refuse_system(self, path: str) -> None:
        if "/" not in path or "\0" in path or path == paths.ROOT or path in paths.SYSTEM:
            raise Refusal(Code.BAD_ARGUMENTS)

    def _remove(self, path: str, zxid: int) -> None:
        acl = self.nodes[path].acl
        parent_path = paths.parent(path)
        parent = self.nodes[parent_path]
        self._put(path, None)
        self._put(parent_path, _replace(parent, pzxid=zxid))
        self._events.append(WatchEvent(NODE_DELETED, path, acl))
        self._events.append(WatchEvent(NODE_CHILDREN_CHANGED, parent_path, parent.acl))

    def _put(self, path: str, node: Node | None) -> None:
        """Create, replace or remove a znode, and update what is derived from it."""
        old = self.nodes.get(path)
        if self._undo is not None:
            self._undo.append((path, old))
        if node is None:
            assert old is not None
            del self.nodes[path]
            siblings = self.children[paths.parent(path)]
            del siblings[paths.name(path)]
            if not siblings:
                del self.children[paths.parent(path)]
            if old.owner < 0:
                del self._list_of(old)[path]
            elif old.owner:
                owned = self.ephemerals[old.owner]
                del owned[path]
                if not owned:
                    del self.ephemerals[old.owner]
            self.size -= len(path) + len(old.data or b"")
            self.acl_size -= acls.size(old.acl, ())
            return
        self.nodes[path] = node
        if old is not None:
            self.size += len(node.data or b"") - len(old.data or b"")
            if node.acl is not old.acl:
                self.acl_size += acls.size(node.acl, ()) - acls.size(old.acl, ())
            return
        self.acl_size += acls.size(node.acl, ())
        self.size += len(path) + len(node.data or b"")
        if path != paths.ROOT:
            self.children.setdefault(paths.parent(path), {})[paths.name(path)] = None
        if node.owner < 0:
            self._list_of(node)[path] = None
        elif node.owner:
            self.ephemerals.setdefault(node.owner, {})[path] = None

    def _list_of(self, node: Node) -> dict[str, None]:
        """The index that lists a znode which the service itself deletes."""
        return self.containers if node.owner == CONTAINER else self.ttls

    # -- snapshots ----------------------------------------------------------------------------------------------------

    @classmethod
    def restored(
        cls, zxid: int, last_session: int, sessions: dict[int, Session], nodes: Iterator[tuple[str, Node]]
    ) -> Tree:
        """The state of a snapshot, with the znodes in the order of ``nodes``."""
        tree = cls()
        tree.zxid, tree.last_session, tree.sessions = zxid, last_session, sessions
        for path, node in nodes:
            tree._put(path, node)
        return tree


_NONE: dict[str, None] = {}
_DONE = Done()
_WITHOUT_SESSION = (CreateSession, CloseSession, DeleteContainer, Refused)
_replace = msgspec.structs.replace
_HANDLERS: dict[type, Callable[[Tree, Transaction, Any], Result]] = {
    Create: Tree._create,
    CreateTTL: Tree._create,
    Delete: Tree._delete,
    DeleteContainer: Tree._delete_container,
    SetData: Tree._set_data,
    SetACL: Tree._set_acl,
    Check: Tree._check,
    Multi: Tree._multi,
    CreateSession: Tree._create_session,
    CloseSession: Tree._close_session,
    Refused: Tree._refused,
}


def _kind(operation: Create | Delete | SetData | Check) -> int:
    return operation.kind if isinstance(operation, Create) else _KINDS[type(operation)]


_KINDS = {Delete: protocol.DELETE, SetData: protocol.SET_DATA, Check: protocol.CHECK}


def _next_version(version: int, expected: int) -> int:
    """The version after a change that expects ``expected``; -1 is any. Refuses with BAD_VERSION."""
    if expected not in (-1, version):
        raise Refusal(Code.BAD_VERSION)
    return _int32(version + 1)


def _int32(number: int) -> int:
    """A 32-bit counter that wraps to negative numbers, as Java's do."""
    return (number + 0x8000_0000) % 0x1_0000_0000 - 0x8000_0000
