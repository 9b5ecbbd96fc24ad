"""Connections between replicas, with limits: one outgoing connection to each endpoint, and incoming ones.

A connection whose peer stops reading is closed. The handler is notified when a connection breaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Protocol, cast

from fencepost.connections.limit import ConnectionLimit
from fencepost.connections.tls import Files, Listener, Tls, names_host
from fencepost.errors import SystemFailure
from fencepost.quorum.driver import frames
from fencepost.quorum.identity import Node, ReplicaKey, host_and_port
from fencepost.quorum.messages import Answer, Asked

_logger = logging.getLogger(__name__)

FIRST_FRAME = 5.0
"""Seconds until the first frame of a connection."""
STRANGERS_FRAME = 64 << 10
"""The most bytes in a frame from outside the cluster. Requests of administrators are short."""
MAX_STRANGERS, MAX_ADMINISTRATORS, MAX_OBSERVERS, MAX_OF_REPLICA = 64, 64, 256, 4
"""The most connections: without a first frame yet, of administrators, of observers, and of each voter."""

Respond = Callable[[Answer], None]
Return = Callable[[bytes, str], None]


class LinkError(Exception):
    """A connection could not be opened, was refused, or broke. The fate of what was sent over it is unknown."""


@dataclass(frozen=True)
class PeerTls:
    """Mutual TLS between replicas. Each has one certificate as client and server, which names the host of its endpoint.
    An administrator has no server.
    """

    client: Tls
    server: Tls | None = None

    @classmethod
    def of(cls, files: Files) -> PeerTls:
        """The TLS of a replica with these files. Raises :class:`fencepost.OptionError`."""
        return cls(Tls(files, is_server=False), Tls(files, is_server=True, asks=True))


class Handler(Protocol):
    """The owner of the connections."""

    def welcome(self) -> frames.Welcome:
        """The greeting to a connecting replica or administrator."""

    def request_received(self, request: Asked, respond: Respond) -> None:
        """A request of the quorum came."""

    def response_received(self, response: Answer) -> None:
        """A response to a request of this process came."""

    def call_received(self, source: ReplicaKey, link: object, data: bytes, answer: Return) -> None:
        """A replica calls the state machine; ``link`` is its connection."""

    def disconnected(self, endpoint: str) -> None:
        """A connection that this process opened is gone, or could not be opened."""


class _Link(asyncio.Protocol):
    """A connection."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.transport: asyncio.Transport | None = None
        self.closing = False
        self._reader = frames.FrameReader(links.max_frame)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self.links.user_timeout)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                if self.closing:
                    return
                self.take(frame)
        except frames.FrameError as error:
            self.close(f"it {error}")

    def take(self, frame: frames.Frame) -> None:
        """A frame came."""
        raise NotImplementedError

    def send(self, frame: frames.Frame) -> None:
        """Send a frame. Closes the connection if too many bytes are unsent."""
        if self.closing or self.transport is None:
            return
        self.transport.write(frames.encode(frame))
        waiting = self.transport.get_write_buffer_size()
        if waiting > self.links.max_waiting:
            self.close(f"{waiting:,} bytes wait for it to read them")

    def close(self, reason: str = "") -> None:
        """Close it at once."""
        if self.closing:
            return
        self.closing = True
        if reason:
            _logger.warning("a connection with %s is closed: %s", self.peer, reason)
        if self.transport is not None:
            self.transport.abort()

    @property
    def peer(self) -> str:
        """A description of the peer."""
        return "a replica"


class _Incoming(_Link):
    """An incoming connection."""

    def __init__(self, links: Links) -> None:
        super().__init__(links)
        self.replica: ReplicaKey | None = None
        self._greeted = False
        self._address = ""
        self._limit = links.strangers
        self._deadline: asyncio.TimerHandle | None = None

    def give_way(self) -> None:
        """Close it, since another connection takes its slot."""
        self.close("it was silent for the longest time, and another one came")

    @property
    def peer(self) -> str:
        return self._address if self.replica is None else f"{self.replica} at {self._address}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self._address = f"{host}:{port}"
        self._reader.limit = min(STRANGERS_FRAME, self._reader.limit)
        self._limit.admit(self)
        self._deadline = self.links.loop.call_later(
            self.links.first_frame, self.close, f"it sent nothing for {self.links.first_frame:g} seconds"
        )

    def data_received(self, data: bytes) -> None:
        self._limit.touch(self)
        super().data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.closing = True
        self._leave()

    def close(self, reason: str = "") -> None:
        super().close(reason)
        self._leave()

    def _leave(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._limit.remove(self)
        if self.replica is not None and not len(self._limit):
            if self.links.of_replicas.get(self.replica) is self._limit:
                del self.links.of_replicas[self.replica]

    def _is_known(self, replica: ReplicaKey | None) -> None:
        """The peer has identified itself: move the connection to a slot of its kind."""
        assert self._deadline is not None
        self._deadline.cancel()
        self._limit.remove(self)
        self._greeted, self.replica = True, replica
        self._limit = self.links.limit_of(replica)
        self._limit.admit(self)
        if replica is not None:
            self._reader.limit = self.links.max_frame

    def take(self, frame: frames.Frame) -> None:
        handler = self.links.handler
        if not self._greeted:
            if not isinstance(frame, frames.Hello):
                raise frames.FrameError("did not identify itself")
            welcome = handler.welcome()
            error = ""
            if frame.cluster_id is not None and frame.cluster_id != welcome.cluster_id:
                error = f"it is of the cluster {frame.cluster_id}, and this replica of {welcome.cluster_id or 'none'}"
            elif frame.cluster_id is None and frame.replica is not None:
                error = "it names its replica, but not its cluster"
            elif self.links.tls is not None and (known := _known(welcome, frame.replica)) is not None:
                host = host_and_port(known.endpoint)[0]
                if self.transport is not None and not names_host(self.transport, host):
                    error = f"it claims to be {frame.replica}, but its certificate does not name {host}"
            if error:
                self.send(frames.Welcome(welcome.node, welcome.cluster_id, error=error))
                assert self.transport is not None
                self.transport.close()
                self.closing = True
                _logger.warning("a connection of %s is refused: %s", frame.replica or self._address, error)
                return
            self._is_known(frame.replica)
            self.send(welcome)
        elif isinstance(frame, frames.Ask):
            number, author = frame.number, frame.request.author
            if author is not None and author != self.replica:
                raise frames.FrameError(f"sent a {type(frame.request).__name__} of {author}, another replica")
            handler.request_received(frame.request, lambda response: self.send(frames.Answered(number, response)))
        elif isinstance(frame, frames.Call) and self.replica is not None:
            number = frame.number
            handler.call_received(
                self.replica,
                self,
                frame.data,
                lambda data, error: self.send(frames.Returned(number, data, error)) if number else None,
            )
        else:
            raise frames.FrameError(f"sent {type(frame).__name__}, which only the listening side sends")


class _Outgoing(_Link):
    """An outgoing connection. What is sent before it is open waits."""

    def __init__(self, links: Links, endpoint: str) -> None:
        super().__init__(links)
        self.endpoint = endpoint
        self.welcome: frames.Welcome | None = None
        self.requests: dict[int, asyncio.Future[Answer] | None] = {}
        self.calls: dict[int, asyncio.Future[bytes]] = {}
        self.opened: asyncio.Future[frames.Welcome] = links.loop.create_future()
        self.opened.add_done_callback(_retrieve)
        self._waiting: list[frames.Frame] = []
        self._number = 0
        self._is_lost = False
        self._task = links.loop.create_task(self._open())

    @property
    def peer(self) -> str:
        return self.endpoint

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self.links.connect_timeout):
                host, port = host_and_port(self.endpoint)
                tls = self.links.tls
                context = None if tls is None else tls.client.context
                await self.links.loop.create_connection(lambda: self, host, port, ssl=context)
                await asyncio.shield(self.opened)
        except TimeoutError:
            self.lost("it did not answer in time")
        except ConnectionRefusedError:
            self.lost("it refuses connections")
        except (OSError, LinkError, ValueError, OverflowError) as error:
            self.lost(str(error))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.send(frames.Hello(*self.links.hello()))

    def connection_lost(self, error: Exception | None) -> None:
        self.lost(str(error or "it was closed"))

    def take(self, frame: frames.Frame) -> None:
        if isinstance(frame, frames.Welcome) and self.welcome is None:
            if frame.error:
                _logger.warning("%s refuses connections: %s", self.endpoint, frame.error)
                self.lost(frame.error)
                return
            self.welcome = frame
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                self.send(each)
            if not self.opened.done():
                self.opened.set_result(frame)
        elif isinstance(frame, frames.Answered) and frame.number in self.requests:
            if self.welcome is None or frame.response.source != self.welcome.node.key:
                raise frames.FrameError(f"answered as {frame.response.source}, another replica")
            future = self.requests.pop(frame.number)
            if future is None:
                self.links.handler.response_received(frame.response)
            elif not future.done():
                future.set_result(frame.response)
        elif isinstance(frame, frames.Returned) and frame.number in self.calls:
            call = self.calls.pop(frame.number)
            if not call.done():
                if frame.error:
                    call.set_exception(LinkError(frame.error))
                else:
                    call.set_result(frame.data)
        else:
            raise frames.FrameError(f"sent {type(frame).__name__} without a request")

    def post(self, frame: frames.Frame) -> None:
        """Send a frame as soon as the connection is open."""
        if self.welcome is not None:
            self.send(frame)
        else:
            self._waiting.append(frame)

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def close(self, reason: str = "") -> None:
        super().close(reason)
        self.lost(reason)

    def lost(self, reason: str) -> None:
        """The connection is gone: all unanswered requests and calls fail."""
        self.closing = True
        if self._is_lost:
            return
        self._is_lost = True
        if self.links.outgoing.get(self.endpoint) is self:
            del self.links.outgoing[self.endpoint]
        if self.transport is not None:
            self.transport.abort()
        error = LinkError(f"{self.endpoint}: {reason}")
        if not self.opened.done():
            self.opened.set_exception(error)
        for future in (*self.requests.values(), *self.calls.values()):
            if future is not None and not future.done():
                future.set_exception(error)
        self.requests.clear()
        self.calls.clear()
        self.links.handler.disconnected(self.endpoint)


@dataclass(eq=False)
class Links:
    """All connections of a process.

    ``hello``: the first frame of outgoing connections. Limits: bytes of a frame, and unsent bytes; seconds to open a
    connection, and until an incoming one identifies itself; milliseconds after which a connection is given up that does
    not confirm sent data.

    Incoming connections have separate slots for unidentified ones, administrators, observers, and each voter. No kind
    can keep another one out.
    """

    handler: Handler
    hello: Callable[[], tuple[str | None, ReplicaKey | None]]
    _: KW_ONLY
    max_frame: int = 32 << 20
    max_waiting: int = 64 << 20
    connect_timeout: float = 1.0
    first_frame: float = FIRST_FRAME
    user_timeout: int = 2_000
    tls: PeerTls | None = None

    def __post_init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.outgoing: dict[str, _Outgoing] = {}
        self.strangers: ConnectionLimit[_Incoming] = ConnectionLimit(MAX_STRANGERS, _Incoming.give_way)
        self.administrators: ConnectionLimit[_Incoming] = ConnectionLimit(MAX_ADMINISTRATORS, _Incoming.give_way)
        self.observers: ConnectionLimit[_Incoming] = ConnectionLimit(MAX_OBSERVERS, _Incoming.give_way)
        self.of_replicas: dict[ReplicaKey, ConnectionLimit[_Incoming]] = {}
        """The slots of each voter."""
        self._server: asyncio.Server | Listener | None = None

    async def listen(self, endpoint: str) -> str:
        """Listen. Returns the endpoint, with the actual port. Raises :class:`fencepost.errors.SystemFailure`."""
        try:
            if self.tls is not None and self.tls.server is not None:
                listener = Listener(self.tls.server, lambda: _Incoming(self), self.first_frame)
                self._server = await listener.listen(*host_and_port(endpoint))
            else:
                self._server = await self.loop.create_server(lambda: _Incoming(self), *host_and_port(endpoint))
        except OSError as error:
            raise SystemFailure(f"cannot listen on {endpoint}: {error.strerror or error}") from error
        return f"{endpoint.rpartition(':')[0]}:{self._server.sockets[0].getsockname()[1]}"

    def limit_of(self, replica: ReplicaKey | None) -> ConnectionLimit[_Incoming]:
        """The slots for connections of a replica, or of administrators (None)."""
        if replica is None:
            return self.administrators
        if replica not in self.handler.welcome().voters:
            return self.observers
        return self.of_replicas.setdefault(replica, ConnectionLimit(MAX_OF_REPLICA, _Incoming.give_way))

    @property
    def incoming(self) -> list[_Incoming]:
        """The incoming connections."""
        kinds = self.strangers, self.administrators, self.observers, *self.of_replicas.values()
        return [link for limit in kinds for link in limit]

    def send(self, endpoint: str, request: Asked) -> None:
        """Send a request. The response goes to the handler."""
        link = self._to(endpoint)
        number = link.next_number()
        link.requests[number] = None
        link.post(frames.Ask(number, request))

    def ask(self, endpoint: str, request: Asked) -> asyncio.Future[Answer]:
        """Send a request. The future gets its response, or :class:`LinkError`."""
        link = self._to(endpoint)
        number, future = link.next_number(), self.loop.create_future()
        link.requests[number] = future
        link.post(frames.Ask(number, request))
        return future

    def call(self, endpoint: str, data: bytes) -> asyncio.Future[bytes]:
        """Call another replica's state machine. The future gets the result, or :class:`LinkError`."""
        link = self._to(endpoint)
        number, future = link.next_number(), self.loop.create_future()
        link.calls[number] = future
        link.post(frames.Call(number, data))
        return future

    def notify(self, endpoint: str, data: bytes) -> None:
        """As :meth:`call`, without an answer."""
        self._to(endpoint).post(frames.Call(0, data))

    async def identify(self, endpoint: str) -> frames.Welcome:
        """The greeting of the replica at an endpoint. Raises :class:`LinkError`."""
        return await asyncio.shield(self._to(endpoint).opened)

    def forget(self, endpoint: str) -> None:
        """Close the connection to an endpoint, if there is one."""
        link = self.outgoing.get(endpoint)
        if link is not None:
            link.close()

    def _to(self, endpoint: str) -> _Outgoing:
        link = self.outgoing.get(endpoint)
        if link is None:
            link = self.outgoing[endpoint] = _Outgoing(self, endpoint)
        return link

    async def close(self) -> None:
        """Close all connections, and accept no more."""
        if self._server is not None:
            self._server.close()
        for link in (*self.outgoing.values(), *self.incoming):
            link.close()
        await asyncio.sleep(0)


def _known(welcome: frames.Welcome, replica: ReplicaKey | None) -> Node | None:
    """The node of a voter that the peer claims to be."""
    return None if replica is None else welcome.voters.node(replica)


def _retrieve(future: asyncio.Future[frames.Welcome]) -> None:
    """Mark the exception as retrieved: nobody need wait for the connection to open."""
    if not future.cancelled():
        future.exception()
