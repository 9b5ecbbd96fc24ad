"""The proxy: listens for each bookie, forwards messages between clients and bookies, and records them in the trace.

Bytes are forwarded unchanged. A message is forwarded once all of its bytes have arrived, so that a drop affects whole
messages. All connections share one event loop. A message's event is emitted before its bytes are forwarded. So whatever
follows from a message comes later in the trace.

Bytes that are no message are forwarded too, and recorded as such. The same goes for a message longer than the limit.
After it, no further message is recognised in that direction of the connection. If one side does not read, the proxy
stops reading from the other. Per connection, it holds one message in each direction, and the socket buffers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

import msgspec

from fencepost.connections import tasks
from fencepost.errors import SystemFailure
from fencepost.ledger.messages import StartTlsResponse
from fencepost.ledger.recording.faults import CUT, DELAY, DROP, REQUEST, RESPONSE, Faults
from fencepost.ledger.recording.observer import START_TLS, Key, ObservedMessage, request_of, response_of
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import v3
from fencepost.ledger.wire.frames import DEFAULT_LIMIT, LENGTH_SIZE, WireError, length_of, refused_length
from fencepost.traces import TraceWriter


def process_of(peer: Any, own: Any) -> int | None:
    """The id of the process at the other end of a connection. None if it is on another machine, or if the operating
    system does not report it.
    """
    try:
        if not peer or not own or ":" in peer[0]:
            return None
        inode = _inode(_written(peer), _written(own))
        return None if inode is None else _holder(f"socket:[{inode}]")
    except OSError:
        return None


def _written(address: tuple[str, int]) -> str:
    """An address as in the kernel's table, with the bytes in native order."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"


def _inode(local: str, remote: str) -> str | None:
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            words = line.split(None, 10)
            if words[1] == local and words[2] == remote:
                return words[9]
    return None


def _holder(name: str) -> int | None:
    """The process that has a file of this name open, among those that this process may inspect."""
    for process in os.listdir("/proc"):
        if not process.isdecimal():
            continue
        folder = f"/proc/{process}/fd"
        try:
            for file in os.listdir(folder):
                if os.readlink(f"{folder}/{file}") == name:
                    return int(process)
        except OSError:
            continue
    return None


CONNECTIONS = 10_000
"""The most concurrent connections. A further one is refused, and recorded as refused."""

MOST_HELD = 256 << 20
"""The most bytes of incomplete messages of all connections. Beyond that, the connection with most of them is ended."""

UNANSWERED = 20_000
"""The most unanswered requests per connection. Beyond that, the oldest is forgotten."""

LOOKS = 16
"""The most concurrent searches for the process of a client. Connections beyond are recorded without it."""

LOOKING = 1.0
"""Seconds in which such a search must end. A connection does not wait longer for it."""

CONNECTING = 10.0
"""Seconds in which a bookie must accept a connection."""

LINGERING = 10.0
"""Seconds for one side to read forwarded bytes after the other side has ended."""

_BUFFER = 1 << 20
"""Bytes of unread output to one side at which the proxy stops reading from the other side."""

_BACKLOG = 1_024

_log = logging.getLogger("fencepost.ledger.recording")


class Bookie(msgspec.Struct, frozen=True):
    """A bookie to record: its id and address."""

    id: str
    host: str
    port: int


class Counts(msgspec.Struct):
    """Counts of a proxy: connections, messages forwarded by direction, unparsed messages, and faults."""

    connections: int = 0
    requests: int = 0
    responses: int = 0
    unparsed: int = 0
    faults: int = 0


class Proxy:
    """Forwards messages between clients and bookies. ``noticed`` is called with the ledger of every message.

    ``limit``: the largest message to parse, in bytes.
    """

    def __init__(
        self,
        trace: TraceWriter,
        faults: Faults,
        noticed: Callable[[int], None] = lambda ledger: None,
        limit: int = DEFAULT_LIMIT,
        connections: int = CONNECTIONS,
    ) -> None:
        self.trace = trace
        self.faults = faults
        self.noticed = noticed
        self.limit = limit
        self.most_links = connections
        self.loop = asyncio.get_running_loop()
        self.counts = Counts()
        self.links: set[Link] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False
        self._servers: list[asyncio.Server] = []
        self._looks = 0
        self._has_logged_tls = False

    async def listen(self, bookie: Bookie, bound: socket.socket) -> None:
        """Accept connections for a bookie on a bound socket."""
        self._servers.append(
            await self.loop.create_server(lambda: Link(self, bookie).client, sock=bound, backlog=_BACKLOG)
        )

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        self.is_closed = True
        for server in self._servers:
            server.close()
        for link in [*self.links]:
            link.end("proxy", abort=True)
        await tasks.cancel(self.tasks)

    def make_room(self) -> None:
        """End connections while all hold too much together."""
        while len(self.links) * 2 * self.limit > MOST_HELD < sum(link.held for link in self.links):
            most = max(self.links, key=lambda link: link.held)
            _log.warning("the connection from %s is closed: parts of messages take too much memory", most.label)
            most.end("proxy", abort=True)

    async def process_of(self, transport: asyncio.Transport) -> int | None:
        """The process of a client; None if it is not on this machine, or is not found soon."""
        if self._looks >= LOOKS:
            return None
        self._looks += 1
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        looking = self.loop.run_in_executor(None, process_of, peer, own)
        looking.add_done_callback(self._looked)
        try:
            return await asyncio.wait_for(asyncio.shield(looking), LOOKING)
        except TimeoutError:
            return None

    def _looked(self, looking: asyncio.Future[int | None]) -> None:
        self._looks -= 1

    def refused_tls(self, link: Link) -> None:
        """Log, once, that a client asks for TLS."""
        if not self._has_logged_tls:
            self._has_logged_tls = True
            _log.warning(
                "a client asks for TLS, and encrypted messages cannot be recorded: switch TLS off in the clients, at %s"
                " first",
                link.label,
            )


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket to an address, without listening yet. Raises :class:`SystemFailure` if the address is taken."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise SystemFailure(f"the proxy cannot listen on {host}:{port}: {error.strerror}") from error
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise SystemFailure(f"the proxy cannot listen on {host}:{port}: {error.strerror}; give another port") from error
    return bound


class Link:
    """A client's connection to the proxy, together with the proxy's connection to the bookie."""

    def __init__(self, proxy: Proxy, bookie: Bookie) -> None:
        self.proxy = proxy
        self.bookie = bookie
        self.label = ""
        self.asked: dict[Key, list[ObservedMessage]] = {}
        """Forwarded requests without a response yet, by key."""
        self.is_connected = False
        self.is_over = False
        self.client = _Side(self, REQUEST)
        self.server = _Side(self, RESPONSE)
        self.client.other, self.server.other = self.server, self.client

    @property
    def held(self) -> int:
        """Bytes that are not forwarded yet."""
        return len(self.client._held) + len(self.server._held)

    # -- beginning and end --------------------------------------------------------------------------------------------

    def accepted(self) -> None:
        """A client has connected."""
        proxy = self.proxy
        transport = self.client.transport
        self.label = _label(transport.get_extra_info("peername"))
        if proxy.is_closed or len(proxy.links) >= proxy.most_links:
            self.is_over = True
            self._emit("connection_refused", {"error": f"more than {proxy.most_links:,} connections"})
            transport.abort()
            return
        proxy.links.add(self)
        proxy.counts.connections += 1
        tasks.start(self._connect(), proxy.tasks)

    async def _connect(self) -> None:
        """Connect to the bookie."""
        loop, transport = self.proxy.loop, self.client.transport
        looking = loop.create_task(self.proxy.process_of(transport))
        try:
            async with asyncio.timeout(CONNECTING):
                await loop.create_connection(lambda: self.server, self.bookie.host, self.bookie.port)
        except (OSError, TimeoutError) as error:
            looking.cancel()
            if not self.is_over:
                reason = f"no answer within {CONNECTING:.0f} s" if isinstance(error, TimeoutError) else _reason(error)
                self._emit("connection_refused", {"error": reason})
                self._over()
                transport.abort()
            return
        process = await looking
        if self.is_over:  # the client left meanwhile, or the proxy is closing
            self.server.transport.abort()
            return
        onward = self.server.transport
        self.is_connected = True
        self._emit("connected", {"onward": _label(onward.get_extra_info("sockname")), "process": process})
        for side in (self.client, self.server):
            side.go_on()

    def end(self, by: str, error: BaseException | None = None, abort: bool = False) -> None:
        """End both sides. ``by``: the side that ended first. Forwarded bytes are still delivered, unless ``abort``."""
        if self.is_over:
            return
        if self.is_connected:
            self._emit("connection_ended", {"by": by, "error": None if error is None else _reason(error)})
        else:
            self._emit("connection_refused", {"error": f"ended by the {by} before the bookie had taken it"})
        self._over()
        for side in (self.client, self.server):
            if side.has_transport:
                side.end(abort)

    def _over(self) -> None:
        self.is_over = True
        self.asked.clear()
        self.client.forget()
        self.server.forget()
        self.proxy.links.discard(self)

    def _emit(self, action: str, parameters: dict[str, Any], ledger: int | None = None) -> None:
        subject = None if ledger is None else str(ledger)
        self.proxy.trace.emit(action, subject, {**parameters, "bookie": self.bookie.id, "connection": self.label})

    # -- messages -----------------------------------------------------------------------------------------------------

    def take(self, direction: str, payload: bytes, is_released: bool) -> float | bool:
        """Decide on a message: True to forward it, False to drop it, or the seconds to delay it. ``is_released``: its
        delay is over.
        """
        proxy = self.proxy
        try:
            message = request_of(payload) if direction == REQUEST else self._answering(response_of(payload))
        except WireError as error:
            self.unparsed(direction, len(payload), str(error))
            return True
        if message.kind == START_TLS and direction == REQUEST:
            self._refuse_tls(message)
            return False
        if message.ledger is not None:
            proxy.noticed(message.ledger)
        parameters = self._parameters(direction, message)
        if not is_released:
            place = proxy.faults.due(direction, self.bookie.id, message)
            if place is not None:
                return self._suffer(direction, message, parameters, place)
        if direction == REQUEST:
            proxy.counts.requests += 1
            self._remember(message)
            self._emit("request_passed", parameters, message.ledger)
        else:
            proxy.counts.responses += 1
            self._forget(message.key)
            self._emit("response_passed", parameters, message.ledger)
        return True

    def unparsed(self, direction: str, size: int, reason: str) -> None:
        """Record forwarded bytes that are no message."""
        self.proxy.counts.unparsed += 1
        self._emit("unparsed_passed", {"direction": direction, "size": size, "reason": reason})

    def _suffer(self, direction: str, message: ObservedMessage, parameters: dict[str, Any], place: int) -> float | bool:
        rule = self.proxy.faults.rules[place]
        self.proxy.counts.faults += 1
        parameters = {"direction": direction, "rule": place + 1, **parameters}
        if rule.action == DELAY:
            self._emit("message_delayed", {**parameters, "by": rule.by}, message.ledger)
            return rule.by
        if direction == RESPONSE:
            self._forget(message.key)
        if rule.action == DROP:
            self._emit("message_dropped", parameters, message.ledger)
            return False
        assert rule.action == CUT
        self._emit("connection_cut", parameters, message.ledger)
        self.end("fault", abort=True)
        return False

    def _parameters(self, direction: str, message: ObservedMessage) -> dict[str, Any]:
        parameters: dict[str, Any] = {"kind": message.kind, "protocol": message.protocol, "number": message.number}
        if message.entry is not None:
            parameters["entry"] = message.entry
        if direction == RESPONSE:
            parameters["code"] = message.code
            if message.key not in self.asked:
                parameters["unasked"] = True
            parameters |= message.flags
        return {**parameters, **message.fields, "size": message.size}

    def _answering(self, message: ObservedMessage) -> ObservedMessage:
        """A response, completed with fields of its request."""
        waiting = self.asked.get(message.key)
        if waiting is None:
            return message
        asked = waiting[0]
        if message.ledger is None:
            return message._replace(ledger=asked.ledger, entry=asked.entry, flags=asked.flags)
        return message._replace(flags=asked.flags)

    def _remember(self, message: ObservedMessage) -> None:
        # A response needs no other fields of its request, and keeping all would take much memory.
        self.asked.setdefault(message.key, []).append(message._replace(fields={}))
        if len(self.asked) > UNANSWERED:
            del self.asked[next(iter(self.asked))]

    def _forget(self, key: Key) -> None:
        waiting = self.asked.get(key)
        if waiting is not None:
            del waiting[0]
            if not waiting:
                del self.asked[key]

    def _refuse_tls(self, message: ObservedMessage) -> None:
        self._emit("tls_refused", {"number": message.number})
        self.proxy.refused_tls(self)
        self.client.transport.write(v3.encode_response(message.number or 0, StartTlsResponse(Code.BAD_REQUEST)))


class _Side(asyncio.Protocol):
    """One side of a link, and the bytes it sends: requests from the client, responses from the bookie."""

    other: _Side
    transport: asyncio.Transport

    def __init__(self, link: Link, direction: str) -> None:
        self.link = link
        self.direction = direction
        self.has_transport = False
        self._held = bytearray()
        """Bytes received and not yet forwarded: an incomplete message, or a delayed message and what follows it."""
        self._needed = LENGTH_SIZE
        self._is_opaque = False
        """Whether message boundaries are lost."""
        self._waiting: asyncio.TimerHandle | None = None
        self._is_full = False
        """Whether this side has too much unread output."""
        self._ended: tuple[BaseException | None] | None = None
        """How this side ended, while its last bytes are delayed."""

    # -- asyncio's ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has its own class
        self.has_transport = True
        self.transport.set_write_buffer_limits(high=_BUFFER)
        with contextlib.suppress(OSError, AttributeError):
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.direction == REQUEST:
            self.link.accepted()
        self._read_or_not()

    def data_received(self, data: bytes) -> None:
        if self.link.is_over:
            return
        if self._held or not self._may_pass():
            self._held += data
            if not self._may_pass() or (len(self._held) < self._needed and not self._is_opaque):
                self.link.proxy.make_room()
                self._read_or_not()
                return
            data = bytes(self._held)
            self._held.clear()
        self._pass_on(data, False)

    def connection_lost(self, error: Exception | None) -> None:
        if self.link.is_over:
            return
        if self._may_pass() or not self.link.is_connected or error is not None:
            self._end(error)
        else:
            self._ended = (error,)  # delayed bytes are forwarded first

    def pause_writing(self) -> None:
        self._is_full = True
        self.other._read_or_not()

    def resume_writing(self) -> None:
        self._is_full = False
        self.other._read_or_not()

    # -- passing on ---------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Forward the held bytes, now that the other side is connected or a delay is over."""
        is_released, self._waiting = self._waiting is not None, None
        if self.link.is_over:
            return
        data = bytes(self._held)
        self._held.clear()
        if data:
            self._pass_on(data, is_released)
        if self._ended is not None and self._may_pass() and not self.link.is_over:
            self._end(self._ended[0])
        self._read_or_not()

    def end(self, abort: bool) -> None:
        """Close this side's connection, at once or after writing its remaining output."""
        if abort:
            self.transport.abort()
            return
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.link.proxy.loop.call_later(LINGERING, self.transport.abort)

    def forget(self) -> None:
        """Drop the held bytes."""
        self._held.clear()
        if self._waiting is not None:
            self._waiting.cancel()

    def _end(self, error: BaseException | None) -> None:
        """This side has ended. All its complete messages have been forwarded."""
        if self._held and self.link.is_connected:
            self.link.unparsed(self.direction, len(self._held), "it ends in the middle of a message")
            self.other.transport.write(bytes(self._held))
        self.link.end("client" if self.direction == REQUEST else "bookie", error, abort=error is not None)

    def _may_pass(self) -> bool:
        return self._waiting is None and self.link.is_connected

    def _read_or_not(self) -> None:
        """Read from this side only while its data can be forwarded."""
        if not self.has_transport or self.link.is_over or self.transport.is_closing():
            return
        if self._may_pass() and not self.other._is_full:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def _pass_on(self, data: bytes, is_released: bool) -> None:
        """Forward messages until one is incomplete or delayed. ``is_released``: the delay of the first is over."""
        view, end = memoryview(data), len(data)
        start = begin = 0
        while not self._is_opaque and end - start >= LENGTH_SIZE:
            length = length_of(view, start, end)
            if not 0 < length <= self.link.proxy.limit:
                self._is_opaque = True
                self.link.unparsed(
                    self.direction,
                    end - start,
                    f"{refused_length(length, self.link.proxy.limit)}, so later messages are not recognised",
                )
                break
            stop = start + LENGTH_SIZE + length
            if stop > end:
                break
            verdict = self.link.take(self.direction, bytes(view[start + LENGTH_SIZE : stop]), is_released)
            is_released = False
            if verdict is True:
                start = stop
                continue
            if self.link.is_over:
                return
            self._write(view[begin:start])
            if verdict is False:
                start = begin = stop
                continue
            begin = start
            self._waiting = self.link.proxy.loop.call_later(verdict, self.go_on)
            break
        if self._is_opaque:
            start = end
        if begin == 0 and start == end:
            self.other.transport.write(data)
        else:
            self._write(view[begin:start])
        if start < end:
            self._held += view[start:]
            self._needed = LENGTH_SIZE + (length_of(view, start, end) if end - start >= LENGTH_SIZE else 0)
        if self._waiting is not None:
            self._read_or_not()

    def _write(self, data: memoryview) -> None:
        if len(data):
            self.other.transport.write(bytes(data))


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _label(address: Any) -> str:
    """An address in the notation of traces."""
    if not address:
        return "?"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
