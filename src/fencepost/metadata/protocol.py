"""The records of ZooKeeper's protocol: decoding of requests, and encoding of answers.

Every message is a frame: four bytes of length, then the message. The first message of a connection is a connect
request. All later ones begin with a header: ``xid``, which the answer repeats, and the kind of the request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from fencepost.metadata.acl import ACL, OPEN, ACLs, Id
from fencepost.metadata.codes import Code
from fencepost.metadata.jute import INT, JuteDecoder, JuteError, string, vector

T = TypeVar("T")

# -- kinds of requests ------------------------------------------------------------------------------------------------

ERROR = -1
CREATE = 1
DELETE = 2
EXISTS = 3
GET_DATA = 4
SET_DATA = 5
GET_ACL = 6
SET_ACL = 7
GET_CHILDREN = 8
SYNC = 9
PING = 11
GET_CHILDREN2 = 12
CHECK = 13
MULTI = 14
CREATE2 = 15
RECONFIG = 16
CHECK_WATCHES = 17
REMOVE_WATCHES = 18
CREATE_CONTAINER = 19
DELETE_CONTAINER = 20
CREATE_TTL = 21
MULTI_READ = 22
AUTH = 100
SET_WATCHES = 101
SASL = 102
GET_EPHEMERALS = 103
GET_ALL_CHILDREN_NUMBER = 104
SET_WATCHES2 = 105
ADD_WATCH = 106
WHO_AM_I = 107
CREATE_SESSION = -10
CLOSE_SESSION = -11

NOTIFICATION_XID = -1

# -- flags of a create -------------------------------------------------------------------------------------------------

EPHEMERAL_MODES = (1, 3)
SEQUENTIAL_MODES = (2, 3, 6)
CONTAINER_MODE = 4
TTL_MODES = (5, 6)
MODES = range(7)
"""Persistent, ephemeral, persistent sequential, ephemeral sequential, container, persistent with a TTL, and persistent
sequential with a TTL.
"""


class Request(msgspec.Struct, frozen=True, gc=False, tag=True, array_like=True):
    """A request. Those that change the state are also stored in the log, as MessagePack arrays."""


# -- requests that change the state -----------------------------------------------------------------------------------


class Create(Request, frozen=True, gc=False):
    """Create a znode. ``kind`` is CREATE, CREATE2, CREATE_CONTAINER or CREATE_TTL; ``flags`` is one of MODES."""

    kind: int
    path: str
    data: bytes | None
    acl: ACLs | None
    flags: int
    ttl: int = -1


class CreateTTL(Create, frozen=True, gc=False):
    """Create a znode with a TTL in milliseconds: ``flags`` is one of TTL_MODES. A service without such znodes logs a
    plain :class:`Create` instead, as earlier versions did, and that is refused.
    """


class Delete(Request, frozen=True, gc=False):
    path: str
    version: int


class SetData(Request, frozen=True, gc=False):
    path: str
    data: bytes | None
    version: int


class SetACL(Request, frozen=True, gc=False):
    path: str
    acl: ACLs | None
    version: int


class Check(Request, frozen=True, gc=False):
    """Check the version of a znode. Only allowed within a multi."""

    path: str
    version: int


class Multi(Request, frozen=True, gc=False):
    """Do all operations or none."""

    operations: tuple[Create | CreateTTL | Delete | SetData | Check, ...]


class DeleteContainer(Request, frozen=True, gc=False):
    """Delete an empty container, or a znode whose TTL is over. The latter must still have this ``mzxid``, so that its
    data was not set since. Only the service itself sends this, never a client.
    """

    path: str
    mzxid: int = 0


class CreateSession(Request, frozen=True, gc=False):
    """Open a session. ``timeout`` is in milliseconds; ``password`` is random."""

    timeout: int
    password: bytes


class CloseSession(Request, frozen=True, gc=False):
    """End a session: its client closed it, or it expired."""

    expired: bool = False


class Refused(Request, frozen=True, gc=False):
    """A request that takes its place in the order of changes, but changes nothing."""

    code: int


Change = (
    Create | CreateTTL | Delete | SetData | SetACL | Multi | DeleteContainer | CreateSession | CloseSession | Refused
)

# -- requests that change nothing -------------------------------------------------------------------------------------


class Exists(Request, frozen=True, gc=False):
    path: str
    watch: bool


class GetData(Request, frozen=True, gc=False):
    path: str
    watch: bool


class GetChildren(Request, frozen=True, gc=False):
    path: str
    watch: bool
    stat: bool
    """Whether the answer includes the znode's stat."""


class GetACL(Request, frozen=True, gc=False):
    path: str


class GetEphemerals(Request, frozen=True, gc=False):
    prefix: str | None


class GetAllChildrenNumber(Request, frozen=True, gc=False):
    path: str


class MultiRead(Request, frozen=True, gc=False):
    operations: tuple[GetData | GetChildren, ...]


class Sync(Request, frozen=True, gc=False):
    path: str


class Ping(Request, frozen=True, gc=False):
    pass


class WhoAmI(Request, frozen=True, gc=False):
    pass


class Token(Request, frozen=True, gc=False):
    """A SASL token, from the client or from the server."""

    token: bytes


class SetWatches(Request, frozen=True, gc=False):
    """Set watches again after a reconnect, and send events for what happened since ``zxid``."""

    zxid: int
    data: tuple[str, ...]
    exist: tuple[str, ...]
    child: tuple[str, ...]
    persistent: tuple[str, ...] = ()
    recursive: tuple[str, ...] = ()


class AddWatch(Request, frozen=True, gc=False):
    path: str
    recursive: bool


class CheckWatches(Request, frozen=True, gc=False):
    path: str
    kind: int


class RemoveWatches(Request, frozen=True, gc=False):
    path: str
    kind: int


Query = (
    Exists | GetData | GetChildren | GetACL | GetEphemerals | GetAllChildrenNumber | MultiRead
    | Sync | Ping | WhoAmI | Token | SetWatches | AddWatch | CheckWatches | RemoveWatches
)  # fmt: skip


class Auth(Request, frozen=True, gc=False):
    scheme: str | None
    credentials: bytes | None


class Connect(Request, frozen=True, gc=False):
    """The first message of a connection. ``read_only`` is None if the client is older than ZooKeeper 3.4 and omits
    it.
    """

    zxid: int
    timeout: int
    session: int
    password: bytes | None
    read_only: bool | None


_HEADER = struct.Struct(">ii")


class NullACL(JuteError):
    """A multi has a create without an ACL. It is the only malformed multi that takes no zxid in ZooKeeper."""


# -- decoding requests -------------------------------------------------------------------------------------------------

WATCHER_KINDS = range(1, 6)
"""Children, data, any, persistent, persistent recursive."""


def read_connect(data: bytes) -> Connect:
    """Decode the connect request in a frame. Raises :class:`JuteError`."""
    reader = JuteDecoder(data)
    reader.int32()
    zxid, timeout, session, password = reader.int64(), reader.int32(), reader.int64(), reader.buffer()
    return Connect(zxid, timeout, session, password, reader.boolean() if reader.at < len(data) else None)


def read_header(data: bytes) -> tuple[int, int]:
    """Decode the xid and kind of a request. Raises :class:`JuteError`."""
    if len(data) < _HEADER.size:
        raise JuteError("a request begins with a header of eight bytes")
    xid, kind = _HEADER.unpack_from(data)
    return xid, kind


def read_change(kind: int, data: bytes, at: int = 0) -> Change:
    """Decode a request that changes the state. Raises :class:`JuteError`, and KeyError for another kind."""
    return _CHANGES[kind](JuteDecoder(data, at))


def with_ttl(change: Change) -> Change:
    """Convert a change for a service that has znodes with a TTL."""
    if isinstance(change, Multi):
        return Multi(tuple(map(_with_ttl, change.operations)))
    return _with_ttl(change)


def _with_ttl(request: T) -> T | CreateTTL:
    if isinstance(request, Create) and request.flags in TTL_MODES:
        return CreateTTL(*msgspec.structs.astuple(request))
    return request


def read_query(kind: int, data: bytes, at: int = 0) -> Query:
    """Decode a request that changes nothing. Raises :class:`JuteError`, and KeyError for another kind."""
    return _QUERIES[kind](JuteDecoder(data, at))


def read_auth(data: bytes, at: int = 0) -> Auth:
    reader = JuteDecoder(data, at)
    reader.int32()
    return Auth(reader.optional_string(), reader.buffer())


def _create(kind: int) -> Callable[[JuteDecoder], Create]:
    def read(reader: JuteDecoder) -> Create:
        path, data, acl, flags = reader.string(), reader.buffer(), _acls(reader), reader.int32()
        return Create(kind, path, data, acl, flags, reader.int64() if kind == CREATE_TTL else -1)

    return read


def _record(kind: Callable[..., T], *values: Callable[[JuteDecoder], Any]) -> Callable[[JuteDecoder], T]:
    """Return a function that decodes the values of a record in sequence."""
    return lambda reader: kind(*[value(reader) for value in values])


def _operations(reader: JuteDecoder, known: dict[int, Callable[[JuteDecoder], T]]) -> list[T]:
    records: list[T] = []
    while True:
        kind, done, _ = reader.int32(), reader.boolean(), reader.int32()
        if done:
            return records
        if kind not in known:
            raise JuteError(f"a multi cannot have an operation of kind {kind}")
        records.append(known[kind](reader))


def _create_in_multi(kind: int) -> Callable[[JuteDecoder], Create]:
    read = _create(kind)

    def checked(reader: JuteDecoder) -> Create:
        request = read(reader)
        if request.flags not in MODES:
            raise JuteError(f"no znode has the flags {request.flags}")
        if request.acl is None:
            raise NullACL("an ACL in a multi is null")
        if kind != CREATE_TTL and request.flags in TTL_MODES:
            raise JuteError(f"the flags {request.flags} need a time to live")
        if request.flags == CONTAINER_MODE:
            return msgspec.structs.replace(request, kind=CREATE_CONTAINER)
        if kind == CREATE_TTL and request.flags not in TTL_MODES:  # ZooKeeper decides by the flags
            return msgspec.structs.replace(request, kind=CREATE)
        return request

    return checked


def _watched(reader: JuteDecoder) -> str:
    """The path of a read within a multi. Its watch flag is ignored."""
    path, _ = reader.string(), reader.boolean()
    return path


def _add_watch(reader: JuteDecoder) -> AddWatch:
    path, mode = reader.string(), reader.int32()
    if mode not in (0, 1):
        raise JuteError(f"no watch has the mode {mode}")
    return AddWatch(path, mode == 1)


def _watcher_kind(reader: JuteDecoder) -> int:
    kind = reader.int32()
    if kind not in WATCHER_KINDS:
        raise JuteError(f"no watcher has the kind {kind}")
    return kind


_OPEN = vector(INT.pack(perms) + string(who.scheme) + string(who.id) for perms, who in OPEN)


def _acls(reader: JuteDecoder) -> ACLs | None:
    if reader.data.startswith(_OPEN, reader.at):  # most are
        reader.at += len(_OPEN)
        return OPEN
    return reader.vector(lambda: ACL(reader.int32(), Id(reader.optional_string(), reader.optional_string())))


_IN_MULTI: dict[int, Callable[[JuteDecoder], Create | Delete | SetData | Check]] = {
    **{kind: _create_in_multi(kind) for kind in (CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL)},
    DELETE: _record(Delete, JuteDecoder.string, JuteDecoder.int32),
    SET_DATA: _record(SetData, JuteDecoder.string, JuteDecoder.buffer, JuteDecoder.int32),
    CHECK: _record(Check, JuteDecoder.string, JuteDecoder.int32),
}
_IN_MULTI_READ: dict[int, Callable[[JuteDecoder], GetData | GetChildren]] = {
    GET_DATA: lambda reader: GetData(_watched(reader), False),
    GET_CHILDREN: lambda reader: GetChildren(_watched(reader), False, False),
}
_CHANGES: dict[int, Callable[[JuteDecoder], Change]] = {
    **{kind: _create(kind) for kind in (CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL)},
    DELETE: _record(Delete, JuteDecoder.string, JuteDecoder.int32),
    SET_DATA: _record(SetData, JuteDecoder.string, JuteDecoder.buffer, JuteDecoder.int32),
    SET_ACL: _record(SetACL, JuteDecoder.string, _acls, JuteDecoder.int32),
    MULTI: lambda reader: Multi(tuple(_operations(reader, _IN_MULTI))),
    DELETE_CONTAINER: _record(DeleteContainer, JuteDecoder.string),
    CREATE_SESSION: lambda reader: CreateSession(reader.int32(), reader.buffer() or b""),
    CLOSE_SESSION: _record(CloseSession, JuteDecoder.boolean),
    ERROR: _record(Refused, JuteDecoder.int32),
}
_QUERIES: dict[int, Callable[[JuteDecoder], Query]] = {
    EXISTS: _record(Exists, JuteDecoder.string, JuteDecoder.boolean),
    GET_DATA: _record(GetData, JuteDecoder.string, JuteDecoder.boolean),
    GET_CHILDREN: lambda reader: GetChildren(reader.string(), reader.boolean(), False),
    GET_CHILDREN2: lambda reader: GetChildren(reader.string(), reader.boolean(), True),
    GET_ACL: _record(GetACL, JuteDecoder.string),
    SYNC: _record(Sync, JuteDecoder.string),
    GET_EPHEMERALS: _record(GetEphemerals, JuteDecoder.optional_string),
    GET_ALL_CHILDREN_NUMBER: _record(GetAllChildrenNumber, JuteDecoder.string),
    MULTI_READ: lambda reader: MultiRead(tuple(_operations(reader, _IN_MULTI_READ))),
    PING: _record(Ping),
    WHO_AM_I: _record(WhoAmI),
    SASL: lambda reader: Token(reader.buffer() or b""),
    SET_WATCHES: _record(SetWatches, JuteDecoder.int64, JuteDecoder.strings, JuteDecoder.strings, JuteDecoder.strings),
    SET_WATCHES2: _record(SetWatches, JuteDecoder.int64, *[JuteDecoder.strings] * 5),
    ADD_WATCH: _add_watch,
    CHECK_WATCHES: _record(CheckWatches, JuteDecoder.string, _watcher_kind),
    REMOVE_WATCHES: _record(RemoveWatches, JuteDecoder.string, _watcher_kind),
}
CHANGES = frozenset({CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL, DELETE, SET_DATA, SET_ACL, MULTI, CLOSE_SESSION})
"""The kinds of client requests that change the state."""
QUERIES = frozenset(_QUERIES)
"""The kinds of client requests that change nothing."""

# -- answers ----------------------------------------------------------------------------------------------------------

_STAT = struct.Struct(">qqqqiiiqiiq")
_REPLY = struct.Struct(">iiqi")  # the frame's length, xid, zxid, error
_EVENT = struct.Struct(">iqiii")  # xid, zxid, error, kind of event, state of the connection
_MULTI = struct.Struct(">ibi")  # kind, done, error
_CONNECTED = struct.Struct(">iiiqi16s")  # the frame's length, protocol version, timeout, session, password
_SYNC_CONNECTED = 3


class Stat(msgspec.Struct, frozen=True, gc=False):
    """The stat of a znode. Times are in milliseconds since 1970."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    children: int
    pzxid: int

    def encoded(self) -> bytes:
        return _STAT.pack(*msgspec.structs.astuple(self))


class Result(msgspec.Struct, frozen=True, gc=False):
    """The body of an answer, after the header."""

    def encoded(self) -> bytes:
        return b""


class Done(Result, frozen=True, gc=False):
    """An empty body."""


class Created(Result, frozen=True, gc=False):
    """The path of a new znode, and its stat if the request wants it."""

    path: str
    stat: Stat | None

    def encoded(self) -> bytes:
        return string(self.path) if self.stat is None else string(self.path) + self.stat.encoded()


class StatOf(Result, frozen=True, gc=False):
    stat: Stat

    def encoded(self) -> bytes:
        return self.stat.encoded()


class Body(Result, frozen=True, gc=False):
    """The encoded result of a request that changes nothing."""

    data: bytes

    def encoded(self) -> bytes:
        return self.data


class NumberOf(Result, frozen=True, gc=False):
    number: int

    def encoded(self) -> bytes:
        return INT.pack(self.number)


class MultiResult(Result, frozen=True, gc=False):
    """The kind, code and result of each operation."""

    results: tuple[tuple[int, Code, Result], ...]

    def encoded(self) -> bytes:
        parts = []
        for kind, code, result in self.results:
            if result is _NOT_DONE:
                parts.append(_MULTI.pack(ERROR, False, code) + INT.pack(code))
            else:
                kind = CREATE2 if kind in (CREATE_CONTAINER, CREATE_TTL) else kind
                parts.append(_MULTI.pack(kind, False, 0) + result.encoded())
        parts.append(_MULTI.pack(-1, True, -1))
        return b"".join(parts)


_NOT_DONE = Done()


def not_done(codes: Iterable[Code]) -> MultiResult:
    """The result of a failed multi: a code for each operation."""
    return MultiResult(tuple((ERROR, code, _NOT_DONE) for code in codes))


def reply(xid: int, zxid: int, code: int, result: Result | None = None) -> bytes:
    """Encode the frame that answers a request. ``zxid`` is that of the last change that the answer saw."""
    if result is None:
        return _REPLY.pack(16, xid, zxid, code)
    body = result.encoded()
    return _REPLY.pack(16 + len(body), xid, zxid, code) + body


def event(kind: int, zxid: int, path: str) -> bytes:
    """Encode the frame of a watch event. ``zxid`` is -1 if it is unknown."""
    body = _EVENT.pack(NOTIFICATION_XID, zxid, 0, kind, _SYNC_CONNECTED) + string(path)
    return INT.pack(len(body)) + body


def connected(timeout: int, session: int, password: bytes, read_only: bool | None) -> bytes:
    """Encode the frame that answers a connect request. ``timeout`` and ``session`` are 0 if the session is gone.

    ``read_only`` is the value from the request; None omits the byte for clients that do not know it.
    """
    tail = b"" if read_only is None else b"\0"
    return _CONNECTED.pack(36 + len(tail), 0, timeout, session, 16, password) + tail
