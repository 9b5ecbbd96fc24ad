"""A client of ZooKeeper's protocol that shares no code with the service.

Answers and events are plain lists and numbers, so those of two servers can be compared and written to a file.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN, SYNC = range(1, 10)
PING, GET_CHILDREN2, CHECK, MULTI, CREATE2 = 11, 12, 13, 14, 15
CHECK_WATCHES, REMOVE_WATCHES, CREATE_CONTAINER, CREATE_TTL, MULTI_READ = 17, 18, 19, 21, 22
AUTH, SET_WATCHES, GET_EPHEMERALS, GET_ALL_CHILDREN_NUMBER, SET_WATCHES2, ADD_WATCH, WHO_AM_I = (
    100,
    101,
    103,
    104,
    105,
    106,
    107,
)
CLOSE = -11

OPEN = [(31, "world", "anyone")]
STAT_FIELDS = (
    "czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion", "owner", "length", "children", "pzxid",
)  # fmt: skip
_STAT = struct.Struct(">qqqqiiiqiiq")


class Closed(Exception):
    """The server closed the connection."""


# -- requests ---------------------------------------------------------------------------------------------------------


def text(value: str | None) -> bytes:
    return blob(None if value is None else value.encode())


def blob(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def texts(values: list[str]) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(map(text, values))


def acl(entries: list[Any] | None) -> bytes:
    if entries is None:
        return struct.pack(">i", -1)
    return struct.pack(">i", len(entries)) + b"".join(
        struct.pack(">i", perms) + text(scheme) + text(name) for perms, scheme, name in entries
    )


def body(kind: int, arguments: list[Any]) -> bytes:
    """The record of a request. ``arguments`` are in the order of the record's fields."""
    if kind in (MULTI, MULTI_READ):
        parts = [struct.pack(">ibi", each[0], False, -1) + body(each[0], each[1]) for each in arguments]
        return b"".join(parts) + struct.pack(">ibi", -1, True, -1)
    encoded = b""
    for at, argument in enumerate(arguments):
        if argument is None or isinstance(argument, bytes):
            encoded += blob(argument)
        elif isinstance(argument, bool):
            encoded += struct.pack(">b", argument)
        elif isinstance(argument, int):
            is_long = kind in (SET_WATCHES, SET_WATCHES2) or (kind == CREATE_TTL and at == 4)
            encoded += struct.pack(">q" if is_long else ">i", argument)
        elif isinstance(argument, str):
            encoded += text(argument)
        elif argument and not isinstance(argument[0], str):
            encoded += acl(argument)
        else:
            encoded += texts(argument)
    return encoded


# -- answers ----------------------------------------------------------------------------------------------------------


class Bytes:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> Any:
        found = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return found if len(found) > 1 else found[0]

    def blob(self) -> str | None:
        length = self.take("i")
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at].decode("latin-1")

    def text(self) -> str | None:
        found = self.blob()
        return None if found is None else found.encode("latin-1").decode()

    def texts(self) -> list[Any]:
        return [self.text() for _ in range(self.take("i"))]

    def stat(self) -> dict[str, int]:
        found = _STAT.unpack_from(self.data, self.at)
        self.at += _STAT.size
        return dict(zip(STAT_FIELDS, found, strict=True))


def result(kind: int, data: Bytes) -> Any:
    """The result in an answer without an error."""
    if kind in (CREATE, SYNC):
        return data.text()
    if kind in (CREATE2, CREATE_CONTAINER, CREATE_TTL):
        return [data.text(), data.stat()]
    if kind in (EXISTS, SET_DATA, SET_ACL):
        return data.stat()
    if kind == GET_DATA:
        return [data.blob(), data.stat()]
    if kind in (GET_CHILDREN, GET_EPHEMERALS):
        return sorted(data.texts())
    if kind == GET_CHILDREN2:
        return [sorted(data.texts()), data.stat()]
    if kind == GET_ACL:
        return [sorted([data.take("i"), data.text(), data.text()] for _ in range(data.take("i"))), data.stat()]
    if kind == GET_ALL_CHILDREN_NUMBER:
        return data.take("i")
    if kind == WHO_AM_I:
        return sorted([data.text(), data.text()] for _ in range(data.take("i")))
    if kind in (MULTI, MULTI_READ):
        found: list[list[Any]] = []
        while True:
            each, done, error = data.take("ibi")
            if done:
                return found
            found.append([each, error, data.take("i") if each == -1 else result(each, data)])
    return None if kind != ADD_WATCH else data.take("i")


class Client:
    """A connection. ``stream`` is everything received: ``["reply", xid, zxid, error, result]`` and ``["event", kind,
    path, zxid]``.
    """

    def __init__(self, port: int, patience: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=patience)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.xid = 0
        self.kinds: dict[int, int] = {}
        self.stream: list[list[Any]] = []
        self.session = 0
        self.password = bytes(16)
        self.last_zxid = 0
        self._input = b""

    def connect(
        self, timeout: int, session: int = 0, password: bytes = bytes(16), zxid: int = 0, read_only: bool | None = False
    ) -> list[Any]:
        """Open or resume a session. Gives the granted timeout, whether there is a session, and the bytes left in the
        answer.
        """
        record = struct.pack(">iqiq", 0, zxid, timeout, session) + blob(password)
        self.send_frame(record if read_only is None else record + struct.pack(">b", read_only))
        answer = Bytes(self.frame())
        _, granted, self.session = answer.take("iiq")
        self.password = (answer.blob() or "").encode("latin-1")
        return [granted, self.session != 0, len(answer.data) - answer.at]

    def send_frame(self, payload: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(payload)) + payload)

    def request(self, kind: int, arguments: list[Any]) -> bytes:
        """The frame of a request."""
        if kind == PING:
            xid = -2
        elif kind == AUTH:
            xid = -4
        elif kind in (SET_WATCHES, SET_WATCHES2):
            xid = -8
        else:
            self.xid += 1
            xid = self.xid
        self.kinds[xid] = kind
        payload = struct.pack(">ii", xid, kind) + body(kind, arguments)
        return struct.pack(">i", len(payload)) + payload

    def call(self, *requests: list[Any]) -> list[Any]:
        """Send requests at once, each a kind and its arguments. Gives the last answer, once all have come."""
        self.send(*requests)
        return self.answers(len(requests))

    def send(self, *requests: list[Any]) -> None:
        self.socket.sendall(b"".join(self.request(kind, arguments) for kind, arguments in requests))

    def answers(self, count: int) -> list[Any]:
        while count:
            count -= self.read()[0] == "reply"
        return self.stream[-1]

    def read(self) -> list[Any]:
        """Read the next reply or event, and add it to the stream."""
        data = Bytes(self.frame())
        xid, zxid, error = data.take("iqi")
        if xid == -1:
            kind, _ = data.take("ii")
            found = ["event", kind, data.text(), zxid]
        else:
            self.last_zxid = max(self.last_zxid, zxid)
            value = result(self.kinds[xid], data) if not error and data.at < len(data.data) else None
            found = ["reply", xid, zxid, error, value]
        self.stream.append(found)
        return found

    def frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def ended(self) -> bool:
        """Whether the server has closed the connection, after everything that it sent."""
        try:
            while True:
                self.read()
        except Closed:
            return True

    def drop(self) -> None:
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        while len(self._input) < count:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                raise Closed from None
            if not data:
                raise Closed
            self._input += data
        found, self._input = self._input[:count], self._input[count:]
        return found


Connect = Callable[..., Client]
"""Connects to a server and opens a session, as the fixture ``connect`` does."""
