"""The connection of a client to one bookie: opened when it is needed, anew when it broke, and shared by all that the client does.

Requests that are sent in one turn of the loop go out in one write, and all responses that arrive in one read are handed on at once. A
connection numbers its requests itself. What is not answered in time, or when the connection breaks, is unanswered.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from itertools import count
from typing import Any, Protocol

from fencepost.store.client.settings import ClientSettings
from fencepost.store.errors import StoreError
from fencepost.store.messages import AddEntry, ReadEntry, Request, Response, StartTls, StartTlsResponse
from fencepost.store.rules.codes import Code
from fencepost.store.wire.frames import Frames, WireError
from fencepost.store.wire.v3 import decode_response, encode_request

_log = logging.getLogger("fencepost.store.client")

_FAILURES = frozenset({Code.IO_ERROR, Code.READ_ONLY, Code.TOO_MANY_REQUESTS})
"""Answers after which a bookie is not the first choice for a new ensemble."""


class Asking(Protocol):
    """Who sends requests, and is told of their fate once for each."""

    def answered(self, txn: int, bookie: str, response: Response) -> None:
        """The bookie answered."""
        ...

    def unanswered(self, txn: int, bookie: str) -> None:
        """It did not, and whether it did what was asked is not known."""
        ...


class Client(Protocol):
    """Whose connection it is."""

    async def address_of(self, bookie: str) -> tuple[str, int]:
        """Host and port of a bookie. Raises ``ValueError`` or :class:`StoreError` if there are none."""
        ...

    def failed(self, bookie: str) -> None:
        """A bookie does not work as it should."""
        ...

    def disconnected(self, bookie: str) -> None:
        """The connection to a bookie is gone."""
        ...


_Waiting = tuple[Asking, int, float, int, bool]
"""A request without an answer: whose it is, the number it has there, when it is given up, its bytes, and whether it is an add."""


class Connection:
    """The requests of a client to one bookie.

    A bookie answers adds in the order in which they came, and other requests much so. An answer tells that the bookie works on what was sent
    after it: that is late only if no answer comes for a whole ``request_timeout``, however long the line is in which it stands. What others of
    its kind have overtaken is late a ``request_timeout`` after it was sent.
    """

    def __init__(self, bookie: str, client: Client, settings: ClientSettings) -> None:
        self.bookie = bookie
        self.client = client
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.txns = count(1)
        self.now = self.loop.time
        self.request_timeout = settings.request_timeout
        self.unanswered_limit = settings.unanswered_limit
        self.waiting: dict[int, _Waiting] = {}
        self.unanswered_size = 0
        self.outgoing: list[bytes] = []
        """Frames that are written at the end of this turn of the loop, or once there is a connection."""
        self.link: _Link | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.attempts = 0
        """Connections that failed one after another."""
        self.heard_at = 0.0
        self.reached = [0, 0]
        """The last request that was answered, of adds at 1 and of others at 0; and when that became so."""
        self.reached_at = [0.0, 0.0]
        self.is_flushing = False
        self.sweeping: asyncio.TimerHandle | None = None
        self.sweeping_at = 0.0
        """When the sweep is due."""
        self.is_closed = False

    # -- requests ------------------------------------------------------------------------------------------------------

    def send(self, asking: Asking, txn: int, request: Request) -> None:
        """Send a request. What comes of it is told later, never before this returns."""
        if self.unanswered_size > self.unanswered_limit or self.is_closed:
            self.loop.call_soon(self._give_up, asking, txn)
            return
        number = next(self.txns)
        frame = encode_request(number, request)
        size = len(frame)
        deadline = self.now() + self.request_timeout
        if type(request) is ReadEntry:
            deadline += request.wait / 1_000_000
        self.waiting[number] = (asking, txn, deadline, size, type(request) is AddEntry)
        self.unanswered_size += size
        self.outgoing.append(frame)
        if not self.is_flushing:
            self._flush_later()

    def _flush_later(self) -> None:
        """Write at the end of this turn of the loop, or once there is a connection; and look after what is not answered."""
        if self.link is not None:
            self.is_flushing = True
            self.loop.call_soon(self._flush)
        elif self.connecting is None:
            self.connecting = self.loop.create_task(self._connect())
        if self.sweeping is None:
            self._sweep_later()

    def _give_up(self, asking: Asking, txn: int) -> None:
        self.client.failed(self.bookie)
        asking.unanswered(txn, self.bookie)

    def _flush(self) -> None:
        self.is_flushing = False
        if self.link is not None and self.outgoing:
            self.link.write(self.outgoing)
            self.outgoing = []

    def received(self, payloads: list[bytes]) -> None:
        """Responses arrived."""
        now = self.heard_at = self.now()
        waiting, bookie, client, reached = self.waiting, self.bookie, self.client, self.reached
        for payload in payloads:
            number, response = decode_response(payload)
            request = waiting.pop(number, None)
            if request is not None:
                asking, txn, _, size, is_add = request
                self.unanswered_size -= size
                if number > reached[is_add]:
                    reached[is_add] = number
                    self.reached_at[is_add] = now
                if response.code in _FAILURES:
                    client.failed(bookie)
                asking.answered(txn, bookie, response)

    def _sweep_later(self) -> None:
        delay = self.request_timeout / 4
        self.sweeping_at = self.now() + delay
        self.sweeping = self.loop.call_later(delay, self._sweep)

    def _sweep(self) -> None:
        """Give up what was not answered in time; and a connection over which nothing came at all, which may be half open."""
        self.sweeping = None
        now = self.now()
        if now - self.sweeping_at > self.request_timeout / 4:
            # It is this process that was held up: what came meanwhile is still to be read.
            self.heard_at = now
            self.reached_at = [now, now]
            self._sweep_later()
            return
        late = [(number, request) for number, request in self.waiting.items() if self._is_late(number, request, now)]
        if late and self.link is not None and now - self.heard_at >= self.request_timeout:
            self.link.abort(f"nothing came for {self.request_timeout:g} s")
        elif late:
            self.client.failed(self.bookie)
            for number, (asking, txn, _, size, _) in late:
                if self.waiting.pop(number, None) is not None:
                    self.unanswered_size -= size
                    asking.unanswered(txn, self.bookie)
        if self.waiting and self.sweeping is None:
            self._sweep_later()

    def _is_late(self, number: int, request: _Waiting, now: float) -> bool:
        _, _, deadline, _, is_add = request
        is_in_line = number > self.reached[is_add] and self.reached_at[is_add] + self.request_timeout > now
        return deadline <= now and not is_in_line

    # -- the connection ------------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        if self.attempts:
            delay = self.settings.reconnect_delay * 2 ** min(self.attempts - 1, 16)
            await asyncio.sleep(min(delay, self.settings.reconnect_delay_limit))
        try:
            async with asyncio.timeout(self.settings.connect_timeout):
                host, port = await self.client.address_of(self.bookie)
                _, link = await self.loop.create_connection(lambda: _Link(self), host, port)
                if self.settings.tls is not None:
                    await link.start_tls(host)
        except (OSError, TimeoutError, ValueError, StoreError) as error:
            self.connecting = None
            self.attempts += 1
            reason = "it does not answer" if isinstance(error, TimeoutError) else str(error)
            _log.info("the bookie %s can not be reached: %s", self.bookie, reason)
            self._break()
            return
        self.connecting = None
        if self.is_closed:
            link.abort("the client is closed")
            return
        self.attempts, self.link, self.heard_at = 0, link, self.loop.time()
        self._flush()

    def lost(self, link: _Link, reason: str) -> None:
        """A connection broke."""
        if link is self.link:
            self.link = None
            _log.info("the connection to the bookie %s broke: %s", self.bookie, reason)
            self._break()

    def _break(self) -> None:
        """All that was asked is unanswered."""
        if self.is_closed:
            return
        unanswered, self.waiting = self.waiting, {}
        self.outgoing = []
        self.unanswered_size = 0
        self.client.failed(self.bookie)
        for asking, txn, *_ in unanswered.values():
            asking.unanswered(txn, self.bookie)
        self.client.disconnected(self.bookie)

    def close(self) -> None:
        """Close the connection; nothing more is told of requests."""
        self.is_closed = True
        self.waiting.clear()
        for timer in (self.connecting, self.sweeping):
            if timer is not None:
                timer.cancel()
        if self.link is not None:
            self.link.close()
            self.link = None


class _Link(asyncio.Protocol):
    """One connection, while it lasts."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames = Frames(connection.settings.frame_limit)
        self.transport: Any = None
        self.tls_answer: asyncio.Future[None] | None = None
        self.reason = "the bookie closed it"

    def connection_made(self, transport: Any) -> None:
        """Take the transport."""
        self.transport = transport
        of_socket = transport.get_extra_info("socket")
        if of_socket is not None and of_socket.family != getattr(socket, "AF_UNIX", None):
            of_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def write(self, frames: list[bytes]) -> None:
        """Write frames at once."""
        self.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def data_received(self, data: bytes) -> None:
        """Hand on the responses that are complete. Whatever is none breaks the connection."""
        try:
            payloads = self.frames.feed(data)
            if self.tls_answer is not None:
                self._take_tls_answer(payloads)
            elif payloads:
                self.connection.received(payloads)
        except WireError as error:
            self.abort(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        """Tell of it."""
        if self.tls_answer is not None and not self.tls_answer.done():
            self.tls_answer.set_exception(ConnectionError(self.reason))
        self.connection.lost(self, str(error) if error else self.reason)

    def abort(self, reason: str) -> None:
        """Break the connection."""
        self.reason = reason
        self.transport.abort()

    def close(self) -> None:
        """Close the connection."""
        self.transport.close()

    async def start_tls(self, host: str) -> None:
        """Go on under TLS, if the bookie does; raises ``OSError`` if not."""
        loop, context = self.connection.loop, self.connection.settings.tls
        self.tls_answer = loop.create_future()
        self.transport.write(encode_request(next(self.connection.txns), StartTls()))
        await self.tls_answer
        self.tls_answer = None
        assert context is not None
        self.transport = await loop.start_tls(
            self.transport, self, context, server_hostname=host if context.check_hostname else None
        )

    def _take_tls_answer(self, payloads: list[bytes]) -> None:
        assert self.tls_answer is not None
        for payload in payloads:
            _, response = decode_response(payload)
            if self.tls_answer.done():
                continue
            if isinstance(response, StartTlsResponse) and response.code is Code.OK:
                self.tls_answer.set_result(None)
            else:
                self.tls_answer.set_exception(ConnectionError("it does not speak TLS"))
