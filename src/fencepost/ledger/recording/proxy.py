"""The proxy: listens for each bookie, passes on messages between clients and bookies, and records them in the trace.

Bytes are passed on unchanged, message by message: a message is passed on when all of its bytes have arrived, so that a
message that is dropped is dropped whole. All connections are on one event loop, and the event of a message is emitted
before its bytes are passed on: whatever follows from a message comes later in the trace than the message itself.

Bytes that are no message are passed on too, and are recorded as such. So is a message that is longer than the limit;
after such a message no further message is recognised on that side of its connection. A side that does not read its
bytes stops the proxy from reading the other side: of a connection the proxy holds one message in each direction, and
the buffers of its sockets.
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
    """The id of the process that a connection comes from. None for a connection from another machine, or where the
    operating system does not report the process.
    """
    try:
        if not peer or not own or ":" in peer[0]:
            return None
        inode = _inode(_written(peer), _written(own))
        return None if inode is None else _holder(f"socket:[{inode}]")
    except OSError:
        return None


def _written(address: tuple[str, int]) -> str:
    """An address as in the kernel's table: the bytes in the machine's order."""
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
    """The process that has a file open by this name, among those that this one may look at."""
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
"""Connections that are passed on at a time. One more is refused, and recorded as refused."""

UNANSWERED = 20_000
"""Requests of a connection that wait for their responses, at the most. The oldest is forgotten for one more."""

CONNECTING = 10.0
"""Seconds that a bookie has to take a connection."""

LINGERING = 10.0
"""Seconds that one side has to read the bytes that were passed on, when the other side has ended."""

_BUFFER = 1 << 20
"""Bytes that one side has not taken yet, above which the other side is not read from."""

_BACKLOG = 1_024

_log = logging.getLogger("fencepost.ledger.recording")


class Bookie(msgspec.Struct, frozen=True):
    """A bookie to record: its id, and where it listens."""

    id: str
    host: str
    port: int


class Counts(msgspec.Struct):
    """Counts of a proxy: connections, messages that it passed on by direction, bytes that were no message, faults."""

    connections: int = 0
    requests: int = 0
    responses: int = 0
    unparsed: int = 0
    faults: int = 0


class Proxy:
    """Passes on messages between clients and bookies. ``noticed`` is called with the ledger of every message.

    ``limit``: bytes of the largest message that is parsed.
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
        self._has_logged_tls = False

    async def listen(self, bookie: Bookie, bound: socket.socket) -> None:
        """Take connections for a bookie on a socket that is bound."""
        self._servers.append(
            await self.loop.create_server(lambda: Link(self, bookie).client, sock=bound, backlog=_BACKLOG)
        )

    async def close(self) -> None:
        """Take no more connections, and end the open ones."""
        self.is_closed = True
        for server in self._servers:
            server.close()
        for link in [*self.links]:
            link.end("proxy", abort=True)
        await tasks.end(self.tasks)

    def refused_tls(self, link: Link) -> None:
        """Log, once, that a client asks for TLS."""
        if not self._has_logged_tls:
            self._has_logged_tls = True
            _log.warning(
                "a client asks for TLS, and what is encrypted cannot be recorded: switch TLS off in the clients, at %s"
                " first",
                link.label,
            )


def bind(host: str, port: int) -> socket.socket:
    """A socket that is bound to an address, and takes no connections yet. Raises :class:`SystemFailure` for one that is
    taken.
    """
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
    """The connection of a client to the proxy, and the connection from the proxy to the bookie."""

    def __init__(self, proxy: Proxy, bookie: Bookie) -> None:
        self.proxy = proxy
        self.bookie = bookie
        self.label = ""
        self.asked: dict[Key, list[ObservedMessage]] = {}
        """Requests that were passed on and have no response yet, by their keys."""
        self.is_connected = False
        self.is_over = False
        self.client = _Side(self, REQUEST)
        self.server = _Side(self, RESPONSE)
        self.client.other, self.server.other = self.server, self.client

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
        tasks.begin(self._connect(), proxy.tasks)

    async def _connect(self) -> None:
        """Go on to the bookie."""
        loop, transport = self.proxy.loop, self.client.transport
        looking = loop.run_in_executor(
            None, process_of, transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        )
        try:
            async with asyncio.timeout(CONNECTING):
                await loop.create_connection(lambda: self.server, self.bookie.host, self.bookie.port)
        except (OSError, TimeoutError) as error:
            if not self.is_over:
                reason = f"no answer within {CONNECTING:.0f} s" if isinstance(error, TimeoutError) else _reason(error)
                self._emit("connection_refused", {"error": reason})
                self._over()
                transport.abort()
            return
        process = await looking
        if self.is_over:  # the client is gone meanwhile, or the proxy is to end
            self.server.transport.abort()
            return
        onward = self.server.transport
        self.is_connected = True
        self._emit("connected", {"onward": _label(onward.get_extra_info("sockname")), "process": process})
        for side in (self.client, self.server):
            side.go_on()

    def end(self, by: str, error: BaseException | None = None, abort: bool = False) -> None:
        """End both sides; ``by``: the side that has ended first. Bytes that were passed on arrive, unless ``abort``."""
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
        """Decide on a message: True to pass it on, False to drop it, or the seconds of its delay. ``is_released``: the
        delay of the message is over.
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
        """Bytes are passed on that are no message."""
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
        """A response, with the fields that only its request has."""
        waiting = self.asked.get(message.key)
        if waiting is None:
            return message
        asked = waiting[0]
        if message.ledger is None:
            return message._replace(ledger=asked.ledger, entry=asked.entry, flags=asked.flags)
        return message._replace(flags=asked.flags)

    def _remember(self, message: ObservedMessage) -> None:
        # A response needs no other field of its request; the fields of many requests would take much memory.
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
    """One side of a link, and the bytes that arrive from it: requests from the client, responses from the bookie."""

    other: _Side
    transport: asyncio.Transport

    def __init__(self, link: Link, direction: str) -> None:
        self.link = link
        self.direction = direction
        self.has_transport = False
        self._held = bytearray()
        """Bytes that have arrived and are not passed on: the beginning of a message, or a delayed message and the bytes
        after it.
        """
        self._needed = LENGTH_SIZE
        self._is_opaque = False
        """Whether the bounds of messages are not known any more."""
        self._waiting: asyncio.TimerHandle | None = None
        self._is_full = False
        """Whether this side does not read the bytes that are passed on to it."""
        self._ended: tuple[BaseException | None] | None = None
        """How this side has ended, while bytes that it has sent wait."""

    # -- asyncio's ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are of a class of their own
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
            self._ended = (error,)  # the bytes that wait are passed on first

    def pause_writing(self) -> None:
        self._is_full = True
        self.other._read_or_not()

    def resume_writing(self) -> None:
        self._is_full = False
        self.other._read_or_not()

    # -- passing on ---------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Pass on the bytes that have waited: for the other side, or for the time of a delay."""
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
        """Close the connection of this side, once the bytes that were passed on to it are written, or at once."""
        if abort:
            self.transport.abort()
            return
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.link.proxy.loop.call_later(LINGERING, self.transport.abort)

    def forget(self) -> None:
        """Drop the bytes that wait."""
        self._held.clear()
        if self._waiting is not None:
            self._waiting.cancel()

    def _end(self, error: BaseException | None) -> None:
        """This side has ended. All whole messages that it has sent are passed on already."""
        if self._held and self.link.is_connected:
            self.link.unparsed(self.direction, len(self._held), "it ends in the middle of a message")
            self.other.transport.write(bytes(self._held))
        self.link.end("client" if self.direction == REQUEST else "bookie", error, abort=error is not None)

    def _may_pass(self) -> bool:
        return self._waiting is None and self.link.is_connected

    def _read_or_not(self) -> None:
        """Read from this side while what arrives can be passed on."""
        if not self.has_transport or self.link.is_over or self.transport.is_closing():
            return
        if self._may_pass() and not self.other._is_full:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def _pass_on(self, data: bytes, is_released: bool) -> None:
        """Pass on messages up to one that is cut short or delayed. ``is_released``: the delay of the first is over."""
        view, end = memoryview(data), len(data)
        start = begin = 0
        while not self._is_opaque and end - start >= LENGTH_SIZE:
            length = length_of(view, start, end)
            if not 0 < length <= self.link.proxy.limit:
                self._is_opaque = True
                self.link.unparsed(
                    self.direction,
                    end - start,
                    f"{refused_length(length, self.link.proxy.limit)}, so that nothing after it is told",
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
    """An address as both ends of a connection see it."""
    if not address:
        return "?"
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
