"""A session with the metadata service on the loop of a simulated process: a substitute for kazoo.

It implements the methods of kazoo's client that :class:`.MetadataClient` uses, with kazoo's behaviour. When a
connection breaks, pending and queued requests fail, and watches are lost. The next server is tried with the same
session until it expires. The messages and errors are kazoo's own.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from kazoo import exceptions
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import EventType, KazooState
from kazoo.security import OPEN_ACL_UNSAFE

from fencepost.connections.tls import Tls
from fencepost.ledger.metadata.client import MetadataClient

_EVENT, _PING = -1, -2
"""The numbers of messages that answer no request."""

_TYPES = {1: EventType.CREATED, 2: EventType.DELETED, 3: EventType.CHANGED, 4: EventType.CHILD}


class Event:
    """A watch has fired. Without a path, all watches are lost."""

    def __init__(self, path: str | None) -> None:
        self.path = path


class AsyncResult:
    """The pending result of a request."""

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: BaseException | None = None
        self._is_over = False
        self._links: list[Callable[[Any], None]] = []

    def rawlink(self, callback: Callable[[Any], None]) -> None:
        """Call a function when the result is available."""
        if self._is_over:
            callback(self)
        else:
            self._links.append(callback)

    def set(self, value: Any = None, exception: BaseException | None = None) -> None:
        """Set the result: an answer or an error."""
        self.value, self.exception, self._is_over = value, exception, True
        for link in self._links:
            link(self)


class Transaction:
    """Changes to make atomically."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._operations: list[Any] = []

    def create(
        self, path: str, value: bytes = b"", acl: Any = None, ephemeral: bool = False, sequence: bool = False
    ) -> None:
        """Add the creation of a node."""
        self._operations.append(wire.Create(path, value, acl or OPEN_ACL_UNSAFE, ephemeral + 2 * sequence))

    def delete(self, path: str, version: int = -1) -> None:
        """Add the deletion of a node."""
        self._operations.append(wire.Delete(path, version))

    def set_data(self, path: str, value: bytes, version: int = -1) -> None:
        """Add a change of a node's data."""
        self._operations.append(wire.SetData(path, value, version))

    def check(self, path: str, version: int) -> None:
        """Add a condition: the node has this version, or exists if that is -1."""
        self._operations.append(wire.CheckVersion(path, version))

    def commit_async(self) -> AsyncResult:
        """Send the changes."""
        return self._session.submit(wire.Transaction(self._operations))


class Session:
    """A session. ``seen`` is called with the zxid of each answer, ``opened`` with the session's number."""

    def __init__(self, hosts: str, timeout: float, seen: Callable[[int], None], opened: Callable[[int], None]) -> None:
        self.client_id: tuple[int, bytes] | None = None
        self._hosts = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in hosts.split(","))]
        self._timeout = timeout
        self._seen = seen
        self._opened = opened
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Callable[[str], None]] = []
        self._queue: deque[tuple[Any, AsyncResult]] = deque()
        self._pending: dict[int, tuple[Any, AsyncResult]] = {}
        self._xid = 0
        self._zxid = 0
        self._data: dict[str, dict[Any, None]] = {}
        self._children: dict[str, dict[Any, None]] = {}
        self._link: Link | None = None
        self._is_connected = False
        self._is_stopped = False

    # -- used by MetadataClient ----------------------------------------------------------------------------------------

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """Call a function whenever the session's state changes."""
        self._listeners.append(listener)

    def start_async(self) -> None:
        """Start to connect."""
        self._loop.create_task(self._run())

    def stop(self) -> None:
        """End the session."""
        self._is_stopped = True
        if self._link is not None and self._is_connected:
            self._link.send(wire.int_int_struct.pack(0, wire.Close.type))
        if self._link is not None:
            self._link.close()

    def close(self) -> None:
        """Release resources: there are none."""

    def transaction(self) -> Transaction:
        """Begin a set of changes to make atomically."""
        return Transaction(self)

    def sync_async(self, path: str) -> AsyncResult:
        return self.submit(wire.Sync(path))

    def get_async(self, path: str, watch: Any = None) -> AsyncResult:
        return self.submit(wire.GetData(path, watch))

    def exists_async(self, path: str, watch: Any = None) -> AsyncResult:
        return self.submit(wire.Exists(path, watch))

    def get_children_async(self, path: str, watch: Any = None) -> AsyncResult:
        return self.submit(wire.GetChildren(path, watch))

    def set_async(self, path: str, value: bytes, version: int = -1) -> AsyncResult:
        return self.submit(wire.SetData(path, value, version))

    def delete_async(self, path: str, version: int = -1) -> AsyncResult:
        return self.submit(wire.Delete(path, version))

    def create_async(
        self, path: str, value: bytes = b"", acl: Any = None, ephemeral: bool = False, sequence: bool = False
    ) -> AsyncResult:
        return self.submit(wire.Create(path, value, acl or OPEN_ACL_UNSAFE, ephemeral + 2 * sequence))

    def submit(self, request: Any) -> AsyncResult:
        """Send a request, now or once connected."""
        result = AsyncResult()
        if self._is_stopped:
            result.set(exception=exceptions.ConnectionClosedError())
        elif self._is_connected:
            self._send(request, result)
        else:
            self._queue.append((request, result))
        return result

    def _send(self, request: Any, result: AsyncResult) -> None:
        self._xid += 1
        self._pending[self._xid] = request, result
        assert self._link is not None
        self._link.send(wire.int_int_struct.pack(self._xid, request.type) + bytes(request.serialize()))

    # -- its connections -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Stay connected to one server after another."""
        while not self._is_stopped:
            host, port = self._hosts[int(random.random() * len(self._hosts))]
            link = Link(self)
            try:
                async with asyncio.timeout(self._timeout / 3):
                    await self._loop.create_connection(lambda link=link: link, host, port)  # type: ignore[misc]
            except (OSError, TimeoutError):
                link.close()  # it may have connected after the timeout
                await asyncio.sleep(0.05 * (1 + random.random()))
                continue
            await link.over
            self._link = None
            self._lost()
            await asyncio.sleep(0.02 * random.random())

    def greet(self, link: Link) -> None:
        """A connection is open: start a session or resume it."""
        self._link = link  # the server may answer before _run continues
        number, password = self.client_id or (0, bytes(16))
        timeout = int(self._timeout * 1_000)
        link.send(bytes(wire.Connect(0, self._zxid, timeout, number, password, False).serialize()))

    def connected(self, link: Link, payload: bytes) -> None:
        """A server answered the greeting."""
        answer, _ = wire.Connect.deserialize(payload, 0)
        if not answer.time_out:  # the session has expired
            self.client_id = None
            self._fail(exceptions.SessionExpiredError())
            self._notify(KazooState.LOST)
            self.greet(link)
            return
        self.client_id = answer.session_id, answer.passwd
        self._opened(answer.session_id)
        link.timeout = answer.time_out / 1_000
        self._link = link  # the answer may arrive before _run continues
        link.is_open = self._is_connected = True
        link.ping()
        self._notify(KazooState.CONNECTED)
        while self._queue and self._is_connected:
            self._send(*self._queue.popleft())

    def _lost(self) -> None:
        """The connection is gone."""
        if not self._is_connected:
            return
        self._is_connected = False
        self._fail(exceptions.ConnectionLoss())
        if not self._is_stopped:
            self._notify(KazooState.SUSPENDED)
        watches = {**dict.fromkeys(w for by in (self._data, self._children) for some in by.values() for w in some)}
        self._data.clear()
        self._children.clear()
        for watch in watches:
            watch(Event(None))

    def _fail(self, error: BaseException) -> None:
        waiting = [*self._pending.values(), *self._queue]
        self._pending.clear()
        self._queue.clear()
        for _, result in waiting:
            result.set(exception=error)

    def _notify(self, state: str) -> None:
        for listener in [*self._listeners]:
            listener(state)

    # -- messages of servers -------------------------------------------------------------------------------------------

    def received(self, payload: bytes) -> None:
        """A message arrived."""
        xid, zxid, code = wire.reply_header_struct.unpack_from(payload, 0)
        at = wire.reply_header_struct.size
        if xid == _EVENT:
            self._fired(*wire.Watch.deserialize(payload, at)[0])
            return
        if zxid > 0:
            self._seen(zxid)
            self._zxid = max(self._zxid, zxid)
        if xid in self._pending:
            request, result = self._pending.pop(xid)
            self._answered(request, result, code, payload, at)

    def _answered(self, request: Any, result: AsyncResult, code: int, payload: bytes, at: int) -> None:
        watcher = getattr(request, "watcher", None)
        error = exceptions.EXCEPTIONS[code]() if code else None
        is_missing = isinstance(request, wire.Exists) and isinstance(error, exceptions.NoNodeError)
        if watcher is not None and (error is None or is_missing):
            watches = self._children if isinstance(request, wire.GetChildren) else self._data
            watches.setdefault(request.path, {})[watcher] = None
        if is_missing:
            result.set(None)
        elif error is not None:
            result.set(exception=error)
        else:
            result.set(request.deserialize(payload, at))

    def _fired(self, kind: int, state: int, path: str) -> None:
        of, watches = _TYPES[kind], dict[Any, None]()
        if of is not EventType.CHILD:
            watches |= self._data.pop(path, {})
        if of in (EventType.CHILD, EventType.DELETED):
            watches |= self._children.pop(path, {})
        for watch in watches:
            watch(Event(path))


class Link(asyncio.Protocol):
    """A connection to a server: frames, and pings that detect a silent server."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.is_open = False
        """Whether the session is established."""
        self.timeout = 0.0
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._heard_at = self._loop.time()
        self._input = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """See :class:`asyncio.Protocol`."""
        self._transport = transport
        self.session.greet(self)
        self._loop.call_later(self.session._timeout, self._look)

    def connection_lost(self, error: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        if not self.over.done():
            self.over.set_result(None)

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        self._heard_at = self._loop.time()
        self._input += data
        while len(self._input) >= 4 and len(self._input) - 4 >= (size := int.from_bytes(self._input[:4])):
            payload = bytes(self._input[4 : 4 + size])
            del self._input[: 4 + size]
            if self.is_open:
                self.session.received(payload)
            else:
                self.session.connected(self, payload)

    def send(self, payload: bytes) -> None:
        """Send a message."""
        self._transport.write(len(payload).to_bytes(4) + payload)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def ping(self) -> None:
        """Send pings, and close the connection if the server is silent."""
        if self.over.done():
            return
        if self._loop.time() - self._heard_at > self.timeout * 2 / 3:
            self.close()
            return
        self.send(wire.int_int_struct.pack(_PING, wire.Ping.type))
        self._loop.call_later(self.timeout / 3, self.ping)

    def _look(self) -> None:
        """Close the connection if the greeting was not answered."""
        if not self.is_open and not self.over.done():
            self.close()


class SimMetadataClient(MetadataClient):
    """The metadata service's client in a simulated process."""

    def _new_session(self, tls: Tls | None) -> Any:
        loop: Any = self.loop
        world, name = loop.world, loop.name
        return Session(
            self.address.hosts,
            self.session_timeout,
            world.answered_by_metadata,
            lambda number: world.sessions.__setitem__(number, name),
        )
