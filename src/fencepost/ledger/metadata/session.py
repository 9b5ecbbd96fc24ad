"""A session with a metadata service, in ZooKeeper's protocol, on the event loop.

The session stays connected to one server after another until it is stopped. When a connection breaks, the requests that
wait for an answer or for a connection fail, and watches are lost. The next server is tried with the same session. When
that has expired, a new one is opened. Messages and errors are those of the package kazoo.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
import random
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from kazoo import exceptions
from kazoo.protocol import serialization as wire
from kazoo.security import OPEN_ACL_UNSAFE

from fencepost.connections import sasl
from fencepost.connections.tls import Tls, upgrade
from fencepost.connections.users import Credentials

_EVENT = -1
"""The number of messages that answer no request."""
_PING = struct.pack(">ii", -2, wire.Ping.type)
_LAST_XID = 2**31 - 1

_SHORTEST, _LONGEST = 0.05, 1.0
"""Seconds between two rounds of attempts to connect, at first and at most. They get up to a fifth longer by chance."""

_LOOKS = 6
"""How often a server is pinged in a session's timeout. Time must be left to find another one."""

LARGEST_MESSAGE = 256 << 20
"""Bytes of the largest message that is taken from a server."""

_log = logging.getLogger("fencepost.ledger.metadata")


class Session(enum.Enum):
    """The state of the session with the metadata service."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    """The connection is lost. The session may continue on another one."""
    EXPIRED = "expired"
    """The session is over, with its ephemeral nodes and all watches. A new one is being opened."""


class Owner(Protocol):
    """Is notified of what happens in a session, in a callback of its own for each."""

    def session_changed(self, state: Session) -> None:
        """The session's state changed."""

    def watch_fired(self, path: str | None) -> None:
        """The node at a path changed, or, with None, any node may have changed, and nothing is watched any more."""

    def login_refused(self) -> None:
        """A server does not accept the credentials. They are tried again."""


def creation(path: str, data: bytes = b"", ephemeral: bool = False, sequential: bool = False) -> wire.Create:
    """The request to create a node that anybody may use."""
    return wire.Create(path, data, OPEN_ACL_UNSAFE, ephemeral + 2 * sequential)


class ZooKeeperSession:
    """A session. ``servers``: as (host, port). ``timeout``: in seconds.

    Each request gives a future. It fails with an exception of :mod:`kazoo.exceptions`.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        timeout: float,
        owner: Owner,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.client_id: tuple[int, bytes] | None = None
        """The session's number and password; None if there is no session."""
        self.timeout = timeout
        self._servers = servers
        self._owner = owner
        self._tls = tls
        self._credentials = credentials
        self._loop = asyncio.get_running_loop()
        self._running: asyncio.Task[None] | None = None
        self._link: _Link | None = None
        """The connection with the session on it."""
        self._queue: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        """Requests that wait for a connection."""
        self._pending: dict[int, tuple[Any, asyncio.Future[Any]]] = {}
        self._xid = 0
        self._zxid = 0
        """The last change that this session has seen. A server that has not seen it refuses the session."""
        self._is_stopped = False

    # -- requests ------------------------------------------------------------------------------------------------------

    def sync(self, path: str) -> asyncio.Future[Any]:
        """Wait until later reads see every earlier write."""
        return self._submit(wire.Sync(path))

    def get(self, path: str, watch: bool = False) -> asyncio.Future[Any]:
        """The data and the stat of a node."""
        return self._submit(wire.GetData(path, watch))

    def exists(self, path: str, watch: bool = False) -> asyncio.Future[Any]:
        """The stat of a node; None if it does not exist."""
        return self._submit(wire.Exists(path, watch))

    def get_children(self, path: str, watch: bool = False) -> asyncio.Future[Any]:
        """The names of a node's children."""
        return self._submit(wire.GetChildren(path, watch))

    def set(self, path: str, data: bytes, version: int = -1) -> asyncio.Future[Any]:
        """Replace a node's data. Gives its stat."""
        return self._submit(wire.SetData(path, data, version))

    def delete(self, path: str, version: int = -1) -> asyncio.Future[Any]:
        """Delete a node."""
        return self._submit(wire.Delete(path, version))

    def create(
        self, path: str, data: bytes = b"", ephemeral: bool = False, sequential: bool = False
    ) -> asyncio.Future[Any]:
        """Create a node. Gives its path."""
        return self._submit(creation(path, data, ephemeral, sequential))

    def multi(self, operations: Sequence[Any]) -> asyncio.Future[Any]:
        """Do all of these, or nothing. Gives a result, or an exception, for each."""
        return self._submit(wire.Transaction(operations))

    def _submit(self, request: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._is_stopped:
            future.set_exception(exceptions.ConnectionClosedError())
        elif self._link is not None:
            self._send(self._link, request, future)
        else:
            self._queue.append((request, future))
        return future

    def _send(self, link: _Link, request: Any, future: asyncio.Future[Any]) -> None:
        xid = self._xid = self._xid % _LAST_XID + 1
        is_first = not self._pending
        self._pending[xid] = request, future
        link.send(wire.int_int_struct.pack(xid, request.type) + request.serialize(), is_first)

    # -- its connections -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to connect."""
        self._running = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """End the session, with its ephemeral nodes, and all requests."""
        link, self._is_stopped = self._link, True
        if link is not None:
            closed: asyncio.Future[Any] = self._loop.create_future()
            self._send(link, wire.CloseInstance, closed)
            with contextlib.suppress(exceptions.KazooException, TimeoutError):
                async with asyncio.timeout(self.timeout):
                    await closed
            link.close()
        if self._running is not None:
            self._running.cancel()
        self._fail(exceptions.ConnectionClosedError())

    async def _run(self) -> None:
        """Stay connected to one server after another."""
        servers, delay = random.sample(self._servers, len(self._servers)), _SHORTEST
        while not self._is_stopped:
            for host, port in servers:
                link = _Link(self)
                try:
                    async with asyncio.timeout(self.timeout / len(servers)):
                        await self._connect(link, host, port)
                except (OSError, EOFError, ValueError, struct.error) as error:  # OSError: also a timeout
                    _log.info("no session with the metadata service at %s:%d: %s", host, port, error or "no answer")
                    continue
                finally:
                    if self._link is not link:
                        link.abort()
                await link.over
                delay = _SHORTEST
            await asyncio.sleep(delay * (1 + random.random() / 5))
            delay = min(2 * delay, _LONGEST, self.timeout / 6)

    async def _connect(self, link: _Link, host: str, port: int) -> None:
        """Connect to a server, and open the session or resume it.

        Raises ``OSError``, ``EOFError`` or ``ValueError``.
        """
        await self._loop.create_connection(lambda: link, host, port)
        if self._tls is not None:
            try:
                await link.start_tls(self._tls, host)
            except (OSError, EOFError, ValueError) as error:
                _log.warning("the TLS handshake with the metadata service at %s:%d failed: %s", host, port, error)
                raise
        number, password = self.client_id or (0, bytes(16))
        greeting = wire.Connect(0, self._zxid, int(self.timeout * 1_000), number, password, False)
        answer, _ = wire.Connect.deserialize(await link.ask(bytes(greeting.serialize())), 0)
        if not answer.time_out:
            self.client_id = None
            self._loop.call_soon(self._owner.session_changed, Session.EXPIRED)
            self._fail(exceptions.SessionExpiredError())
            raise ConnectionError("the session has expired")
        self.client_id = answer.session_id, answer.passwd
        self.has_opened(answer.session_id)
        if self._credentials is not None:
            await self._authenticate(link, self._credentials)
        self._link = link
        link.open(answer.time_out / 1_000)
        self._loop.call_soon(self._owner.session_changed, Session.CONNECTED)
        while self._queue:
            self._send(link, *self._queue.popleft())

    async def _authenticate(self, link: _Link, credentials: Credentials) -> None:
        """Authenticate a new connection with SASL. Raises ``OSError``."""
        client = sasl.Client("zookeeper", "zk-sasl-md5", *credentials, os.urandom(20).hex())
        try:
            token = client.step(b"")
            while not client.is_complete:
                self._xid = self._xid % _LAST_XID + 1
                request = wire.SASL(token)
                payload = await link.ask(wire.int_int_struct.pack(self._xid, request.type) + request.serialize())
                _, _, code = wire.reply_header_struct.unpack_from(payload, 0)
                if code:
                    raise sasl.SaslError(f"error {code}")
                token = client.step(wire.SASL.deserialize(payload, wire.reply_header_struct.size)[0])
        except sasl.SaslError as error:
            _log.error("the metadata service does not let %s in: %s", credentials.user, error)
            self._loop.call_soon(self._owner.login_refused)
            raise ConnectionError("the authentication failed") from error

    def lost(self, link: _Link) -> None:
        """A connection is gone."""
        if link is not self._link:
            return
        self._link = None
        if not self._is_stopped:
            self._loop.call_soon(self._owner.session_changed, Session.DISCONNECTED)
        self._fail(exceptions.ConnectionLoss())
        if not self._is_stopped:
            self._loop.call_soon(self._owner.watch_fired, None)

    def _fail(self, error: BaseException) -> None:
        waiting = [*self._pending.values(), *self._queue]
        self._pending.clear()
        self._queue.clear()
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)

    # -- messages of servers -------------------------------------------------------------------------------------------

    def has_opened(self, number: int) -> None:
        """The session with this number is open on another connection."""

    def has_seen(self, zxid: int) -> None:
        """A server has shown the state after this change."""
        self._zxid = max(self._zxid, zxid)

    def received(self, payload: bytes) -> None:
        """A message arrived. Raises ``ValueError``, ``struct.error`` or ``RuntimeError`` if it is invalid."""
        xid, zxid, code = wire.reply_header_struct.unpack_from(payload, 0)
        if xid == _EVENT:
            event, _ = wire.Watch.deserialize(payload, wire.reply_header_struct.size)
            self._loop.call_soon(self._owner.watch_fired, event.path)
            return
        if zxid > 0:
            self.has_seen(zxid)
        if xid not in self._pending:  # it answers a ping
            return
        request, future = self._pending[xid]
        result, error = None, None
        if code == exceptions.NoNodeError.code and type(request) is wire.Exists:
            pass
        elif code:
            error = exceptions.EXCEPTIONS[code]()
        elif request is not wire.CloseInstance:
            result = request.deserialize(payload, wire.reply_header_struct.size)
        del self._pending[xid]  # not before its answer is known to be valid
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class _Link(asyncio.Protocol):
    """A connection to a server: frames, and pings that detect a silent server."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self.session = session
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Done once the connection is gone."""
        self._is_open = False
        """Whether the session is on it."""
        self._answer: asyncio.Future[bytes] | None = None
        self._timeout = 0.0
        self._heard_at = self._look_at = 0.0
        self._looking: asyncio.TimerHandle | None = None
        self._input = bytearray()
        self._output: list[bytes] = []
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Take the transport."""
        self._transport = transport
        if self.over.done():  # it was given up while it connected
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what waits for an answer."""
        self._end()

    def _end(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the connection broke"))
        if not self.over.done():
            self.over.set_result(None)
            self.session.lost(self)

    def data_received(self, data: bytes) -> None:
        """Take complete messages. Bytes that are none break the connection."""
        self._heard_at = self._loop.time()
        self._input += data
        try:
            self._take()
        except (ValueError, struct.error, RuntimeError) as error:
            _log.warning("the metadata service sent an invalid message: %s", error)
            self.abort()

    def _take(self) -> None:
        data, at = self._input, 0
        while len(data) - at >= 4:
            (size,) = wire.int_struct.unpack_from(data, at)
            if not 0 <= size <= LARGEST_MESSAGE:
                raise ValueError(f"{size:,} bytes are announced, and at most {LARGEST_MESSAGE:,} are taken")
            if len(data) - at - 4 < size or not (self._is_open or self._answer is not None):
                break
            payload = bytes(data[at + 4 : at + 4 + size])
            at += 4 + size
            if self._is_open:
                self.session.received(payload)
            elif self._answer is not None:
                answer, self._answer = self._answer, None
                if not answer.done():
                    answer.set_result(payload)
        del data[:at]

    def send(self, payload: bytes, at_once: bool = True) -> None:
        """Send a message, at once or with others of this turn of the loop."""
        frame = wire.int_struct.pack(len(payload)) + payload
        if at_once and not self._output:
            self._transport.write(frame)
            return
        if not self._output:
            self._loop.call_soon(self._flush)
        self._output.append(frame)

    def _flush(self) -> None:
        output, self._output = self._output, []
        self._transport.write(b"".join(output))

    async def ask(self, payload: bytes) -> bytes:
        """Send a message before the session is open, and wait for the answer. Raises ``OSError``."""
        if self.over.done():
            raise ConnectionError("the connection broke")
        answer = self._answer = self._loop.create_future()
        self.send(payload)
        return bytes(await answer)

    async def start_tls(self, tls: Tls, host: str) -> None:
        """Continue under TLS. Raises as :func:`fencepost.connections.tls.upgrade` does."""

        def agreed(transport: asyncio.Transport) -> _Link:
            self._transport = transport
            return self

        await upgrade(self._transport, agreed, tls.context, server_side=False, server_hostname=host)

    def open(self, timeout: float) -> None:
        """The session is on this connection."""
        self._is_open, self._timeout = True, timeout
        self._look_at = self._loop.time()
        self.data_received(b"")  # what came with the answer
        self._look()

    def _look(self) -> None:
        """Ping, and break the connection if the server is silent."""
        now, pause = self._loop.time(), self._timeout / _LOOKS
        if now - self._look_at > pause:
            self._heard_at = now  # this process was blocked: answers may still be waiting to be read
        if now - self._heard_at > self._timeout / 2:
            _log.info("the metadata service is silent: nothing came for %.3g s", now - self._heard_at)
            self.abort()
            return
        self.send(_PING)
        self._look_at = now + pause
        self._looking = self._loop.call_at(self._look_at, self._look)

    def close(self) -> None:
        """Close the connection once everything is sent."""
        if self._transport is not None:
            self._transport.close()
        self._end()

    def abort(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()
        self._end()
