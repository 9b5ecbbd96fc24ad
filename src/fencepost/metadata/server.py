"""Sockets and timers around the state machine, and clients' connections: framing of requests, answers, and limits on
both. :mod:`fencepost.metadata.member` orders changes and makes them durable.

A change is applied and answered in order, once it is durable. A request that changes nothing is answered at once,
unless its connection still waits for an answer to a change. So answers stay in order and show only durable state.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from fencepost.connections import sasl, users
from fencepost.connections.tls import Listener, Tls
from fencepost.connections.users import REALM, Users
from fencepost.errors import SystemFailure
from fencepost.metadata import acl as acls
from fencepost.metadata import protocol, reads, traces
from fencepost.metadata.acl import Id
from fencepost.metadata.codes import Code, Refusal
from fencepost.metadata.expiry import Expiry
from fencepost.metadata.jute import INT, JuteError
from fencepost.metadata.protocol import (
    Change,
    CloseSession,
    Connect,
    Create,
    CreateSession,
    Multi,
    Query,
    Refused,
    SetACL,
    SetData,
)
from fencepost.metadata.reads import Requester
from fencepost.metadata.settings import MetadataSettings
from fencepost.metadata.tree import Transaction, Tree, WatchEvent
from fencepost.metadata.watches import Watches
from fencepost.monitoring.metrics import Metrics
from fencepost.monitoring.table import PARTS
from fencepost.traces import TraceWriter

_logger = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode


class Item:
    """A queued request: a change, or a query, connect request or code to answer.

    ``requester`` is the client as it was when the request came. ``connection`` gets the answer, if it is not None, and
    is closed afterwards if this is its ``last``. ``size`` is the length of the message in bytes, and ``since`` when it
    came. ``behind``: the connection's requests to answer after this one.
    """

    __slots__ = ("answer", "behind", "change", "connection", "last", "requester", "since", "size", "xid")

    def __init__(
        self,
        requester: Requester[Any],
        xid: int,
        change: Change | None = None,
        answer: Query | Connect | Code | None = None,
        last: bool = False,
        since: int = 0,
    ) -> None:
        self.requester = requester
        self.connection: Connection | None = requester.watcher
        self.xid = xid
        self.change = change
        self.answer = answer
        self.last = last
        self.since = since
        self.size = 0 if requester.watcher is None else requester.watcher.message_size
        self.behind: list[Item] = []


class Latencies:
    """The latencies of requests, in milliseconds."""

    def __init__(self) -> None:
        self.least = 0
        self.most = 0
        self.sum = 0
        self.count = 0

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def add(self, latency: int) -> None:
        if latency > self.most:
            self.most = latency
        if latency < self.least or not self.count:
            self.least = latency
        self.sum += latency
        self.count += 1


class Service:
    """A metadata service: the state, and the connections of its clients.

    :class:`fencepost.metadata.member.Member` derives from it and orders changes. ``failed`` is called with the reason
    when the disk fails; the service takes no more requests then. ``trace``, if set, receives changes once they are
    durable. Its owner closes it.
    """

    def __init__(self, settings: MetadataSettings, tree: Tree, failed: Callable[[BaseException], None]) -> None:
        self.settings = settings
        self.users = Users(settings.sasl_users) if settings.sasl_users else None
        self.trace: TraceWriter | None = None
        self.tree = tree
        self.watches: Watches[Connection] = Watches()
        self.connections: dict[Connection, None] = {}
        self.by_session: dict[int, Connection] = {}
        self.unflushed: dict[Connection, None] = {}
        self.received = 0
        """Messages received from clients."""
        self.sent = 0
        """Messages sent to clients."""
        self.started = self.heard_at = self.now()
        self.address: tuple[str, int] = ("", 0)
        """Where clients connect: without TLS, unless there is only a TLS port."""
        self.secure_address: tuple[str, int] | None = None
        self.is_serving = False
        """Whether clients can connect."""
        self.words: Mapping[bytes, Callable[[], str]] = {}
        """The function that answers each four-letter word."""
        self.outstanding = 0
        self.outstanding_bytes = 0
        self.latencies = Latencies()
        self.metrics = Metrics("metadata", PARTS["metadata"])
        self.expiry = Expiry(settings.tick_time, self.now())
        self._failed = failed
        self._addresses: dict[str, int] = {}
        self._hosts: dict[Connection, str] = {}
        self._is_closing = False  # takes no more requests
        self._stopped = False  # does no more work
        self._throttled: dict[Connection, None] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._loop = asyncio.get_running_loop()

    @staticmethod
    def now() -> int:
        """Milliseconds of a monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    @staticmethod
    def wall_clock() -> int:
        """Milliseconds since 1970, for the times of znodes."""
        return time.time_ns() // 1_000_000

    @property
    def mode(self) -> str:
        """The role for operators, in ZooKeeper's terms."""
        raise NotImplementedError

    @property
    def controller(self) -> str:
        """The id of this member, and where it listens to others: ``ID@HOST:PORT``."""
        raise NotImplementedError

    def disk_sizes(self) -> tuple[int, int]:
        """The sizes in bytes of the snapshots, and of the log."""
        raise NotImplementedError

    # -- starting and stopping -----------------------------------------------------------------------------------------

    async def serve(self) -> list[asyncio.Server | Listener]:
        """Listen, and start the timer of sessions. Raises :class:`fencepost.errors.SystemFailure` if a port is not
        available, and :class:`fencepost.OptionError` for unusable TLS files.
        """
        settings = self.settings
        servers = [await self._listen(port, tls) for port, tls in settings.ports]
        self.address, *others = [server.sockets[0].getsockname()[:2] for server in servers]
        self.secure_address = (others or [self.address])[0] if settings.secure_client_port >= 0 else None
        self.look_after_sessions()
        self.is_serving = True
        return servers

    def look_after_sessions(self) -> None:
        """Expire sessions, and delete znodes whose TTL is over, periodically."""
        # Read messages that came while the loop was busy, before any session expires.
        self._every(self.settings.tick_time, lambda: self._loop.call_soon(self._tick))
        self._every(self.settings.container_check_interval, self._delete_due)

    async def _listen(self, port: int, tls: Tls | None) -> asyncio.Server | Listener:
        host, patience = self.settings.client_port_address, self.settings.sessionless_cnxn_timeout / 1_000
        try:
            if tls is not None:
                return await Listener(tls, lambda: Connection(self), patience).listen(host, port)
            return await self._loop.create_server(lambda: Connection(self), host, port, backlog=1_024)
        except OSError as error:
            where = f"{host}:{port}"
            raise SystemFailure(f"the metadata service cannot listen on {where}: {error.strerror or error}") from error

    async def stop(self) -> None:
        """Stop cleanly: requests under way are finished."""
        raise NotImplementedError

    def _end(self) -> None:
        """Stop all work."""
        self._stopped = True
        for timer in self._timers:
            timer.cancel()
        for connection in list(self.connections):
            connection.close()

    def _every(self, milliseconds: int, call: Callable[[], object]) -> None:
        index = len(self._timers)

        def again() -> None:
            self._timers[index] = self._loop.call_later(milliseconds / 1_000, again)
            call()

        self._timers.append(self._loop.call_later(milliseconds / 1_000, again))

    def _fail(self, error: BaseException) -> None:
        if self._stopped:
            return
        self._stopped = True
        for connection in list(self.connections):
            connection.close(abort=True)
        self._failed(error)

    # -- connections --------------------------------------------------------------------------------------------------

    def admits(self, connection: Connection, host: str) -> bool:
        """Register a new connection, unless there are too many."""
        settings = self.settings
        of_host = self._addresses.get(host, 0)
        if self._stopped:
            return False
        if 0 < settings.max_cnxns <= len(self.connections):
            # The oldest connection that has sent nothing gives way.
            silent = next((each for each in self.connections if not each.session and not each.received), None)
            if silent is not None:
                silent.close("has sent nothing, and another one came: see maxCnxns", abort=True)
        if 0 < settings.max_cnxns <= len(self.connections) or 0 < settings.max_client_cnxns <= of_host:
            self.metrics.add("connection_rejected")
            _logger.warning("a connection of %s is one too many: see maxCnxns and maxClientCnxns", host)
            return False
        self.connections[connection] = None
        self._hosts[connection] = host
        self._addresses[host] = of_host + 1
        return True

    def lost(self, connection: Connection) -> None:
        """A connection is gone, with its watches. Its session stays until it expires."""
        if connection not in self.connections:
            return
        del self.connections[connection]
        host = self._hosts.pop(connection)
        self._addresses[host] -= 1
        if not self._addresses[host]:
            del self._addresses[host]
        if self.by_session.get(connection.session) is connection:
            del self.by_session[connection.session]
        self._throttled.pop(connection, None)
        self.watches.forget(connection)

    def heard(self, connection: Connection) -> None:
        """A client sent something."""
        raise NotImplementedError

    def throttles(self, connection: Connection) -> bool:
        """Return whether a connection has to wait until fewer requests are unanswered."""
        if self._is_closing:
            return True
        if connection.waiting and self._is_busy():
            self._throttled[connection] = None
            return True
        return False

    def _is_busy(self) -> bool:
        settings = self.settings
        return (
            self.outstanding > settings.global_outstanding_limit
            or self.outstanding_bytes > settings.large_request_max_bytes
        )

    def give_up_later(self, transport: asyncio.Transport) -> None:
        """Abort a closed connection later, even if its client does not read the rest."""
        self._loop.call_later(self.settings.sessionless_cnxn_timeout / 1_000, transport.abort)

    # -- sessions -----------------------------------------------------------------------------------------------------

    def connect(self, connection: Connection, request: Connect) -> None:
        """Open a session for a connection, or resume the one that it had."""
        least, most = self.settings.timeouts
        connection.timeout = min(max(request.timeout, least), most)
        if request.session:
            self._enqueue(Item(connection.requester, 0, answer=request, since=self.heard_at))
        elif request.zxid > self.tree.zxid:
            connection.close(
                f"has seen zxid {request.zxid:#x}, and the last one here is {self.tree.zxid:#x}", abort=True
            )
        elif len(self.tree.sessions) >= self.settings.max_sessions:
            connection.close("wants one session more than maxSessions", abort=True)
        else:
            self.change(connection.requester, 0, CreateSession(connection.timeout, os.urandom(16)))

    def _resume(self, connection: Connection, number: int) -> None:
        """Attach a connection to a session, if that is still open."""
        session = self.tree.sessions.get(number)
        if session is None:
            connection.refused()
        else:
            self._attach(connection, number, connection.timeout, session.password)

    def _attach(self, connection: Connection, session: int, timeout: int, password: bytes) -> None:
        self._hear(session, timeout)
        if not connection.closing:
            self.by_session[session] = connection
            connection.established(session, timeout, password)

    def _hear(self, session: int, timeout: int) -> None:
        """Extend a session by its timeout from now."""
        raise NotImplementedError

    def _tick(self) -> None:
        now = self.now()
        for session in self.expiry.due(now):
            _logger.info("session %#x expires", session)
            self.metrics.add("stale_sessions_expired")
            self.change(Requester(None, session, ()), 0, CloseSession(expired=True))
        patience = self.settings.sessionless_cnxn_timeout
        for connection in list(self.connections):
            if (not connection.session or connection.is_stranger) and now - connection.since >= patience:
                what = "did not authenticate" if connection.session else "opened no session"
                connection.close(f"{what} in {patience:,} ms", abort=True)

    def _delete_due(self) -> None:
        for deletion in self.tree.due(self.wall_clock()):
            self.change(Requester(None, 0, ()), 0, deletion)

    # -- the queue ----------------------------------------------------------------------------------------------------

    def has_room(self, requester: Requester[Any], change: Change, length: int) -> bool:
        """Return whether a change with a message of this size is within the limits: on its record, and on znodes and
        their bytes, as far as changes are applied.
        """
        operations = change.operations if isinstance(change, Multi) else (change,)
        tree, settings = self.tree, self.settings
        held = tree.size + tree.acl_size
        nodes, size, of_auth = len(tree.nodes), held, 0
        for each in operations:
            if isinstance(each, Create | SetACL):
                of_acl = acls.size(each.acl, requester.ids)
                size += of_acl
                of_auth += of_acl - acls.size(each.acl, ()) if of_acl else 0
            if isinstance(each, Create):
                nodes += 1
                size += len(each.path) + len(each.data or b"")
            elif isinstance(each, SetData | SetACL):
                node = tree.nodes.get(each.path)
                if isinstance(each, SetData):
                    size += len(each.data or b"") - (0 if node is None else len(node.data or b""))
                else:
                    size -= 0 if node is None else acls.size(node.acl, ())
        # An invalid byte of UTF-8 becomes three bytes.
        if 3 * length + of_auth > settings.jute_maxbuffer:
            length = len(_encode(change))
        if length + of_auth > settings.jute_maxbuffer + settings.max_identity_bytes:
            return False
        grows = nodes > len(tree.nodes) or size > held
        return not grows or (nodes <= settings.max_nodes and size <= settings.max_data_bytes)

    def change(self, requester: Requester[Any], xid: int, request: Change, last: bool = False) -> None:
        """Put a change into the queue."""
        self._enqueue(Item(requester, xid, change=request, last=last, since=self.heard_at))

    def answer(self, requester: Requester[Any], xid: int, request: Query | Code, last: bool = False) -> None:
        """Answer a request that changes nothing, or with a code. It is queued if it is a sync, or its connection has
        requests in the queue.
        """
        item = Item(requester, xid, answer=request, last=last, since=self.heard_at)
        if requester.watcher.waiting or isinstance(request, protocol.Sync):
            self._enqueue(item)
        else:
            self._took(request, 0)
            self._answer(requester, item, request)

    def _enqueue(self, item: Item) -> None:
        """Answer a request in its turn."""
        raise NotImplementedError

    def _count(self, item: Item) -> None:
        """Count a queued request."""
        if item.connection is not None:
            item.connection.waiting += 1
        self.outstanding += 1
        self.outstanding_bytes += item.size

    def _uncount(self, item: Item) -> None:
        """Count a request that left the queue."""
        self.outstanding -= 1
        self.outstanding_bytes -= item.size
        if item.connection is not None:
            item.connection.waiting -= 1

    def _took(self, request: Change | Query | Connect | Code, milliseconds: int) -> None:
        """Count an answered request of a client, and its latency."""
        self.latencies.add(milliseconds)
        kind = "refused" if isinstance(request, Code) else type(request).__name__
        self.metrics.observe(REQUESTS, kind, milliseconds / 1_000)

    def flush(self) -> None:
        """Write what waits."""
        unflushed, self.unflushed = self.unflushed, {}
        for connection in unflushed:
            connection.write()

    def _flush_group(self) -> None:
        """Write the results of a group, and take the requests that waited for it."""
        self.flush()
        if self._throttled and not self._is_busy():
            throttled, self._throttled = self._throttled, {}
            for connection in throttled:
                connection.parse()
            self.flush()

    def _apply(self, entry: Transaction, item: Item | None) -> None:
        """Apply a change, and answer it if its connection is of this service."""
        applied = self.tree.apply(entry)
        if self.trace is not None and applied.code is Code.OK:
            for action, subject, parameters in traces.events(entry, applied.result):
                self.trace.emit(action, subject, parameters)
        for event in applied.events:
            self._notify(event, entry.zxid)
        connection, request = None if item is None else item.connection, entry.request
        if isinstance(request, CreateSession):
            assert isinstance(applied.result, protocol.NumberOf)
            self._hear(applied.result.number, request.timeout)
            if connection is not None:
                self._attach(connection, applied.result.number, request.timeout, request.password)
                connection.parse()
            return
        if isinstance(request, CloseSession):
            self.expiry.forget(entry.session)
            attached = self.by_session.get(entry.session)
            if attached is not None and attached is not connection:
                attached.close()
        if connection is not None and item is not None:
            connection.last_zxid = entry.zxid
            connection.send(protocol.reply(item.xid, entry.zxid, applied.code, applied.result))
            if item.last:
                connection.close()

    def _notify(self, event: WatchEvent, zxid: int) -> None:
        watchers = self.watches.triggered(event)
        if watchers:
            frame = protocol.event(event.kind, zxid, event.path)
            for watcher in watchers:
                watcher.notify(frame, event.acl)

    def _answer(self, requester: Requester[Any], item: Item, request: Query | Connect | Code) -> None:
        """Answer a request that changes nothing."""
        connection = item.connection
        if connection is None or connection.closing:
            return
        if isinstance(request, Connect):
            self._resume(connection, request.session)
            connection.parse()
            return
        zxid = self.tree.zxid
        if isinstance(request, Code):
            connection.send(protocol.reply(item.xid, zxid if request in _SEES_STATE else 0, request))
        else:
            try:
                more = reads.watches_of(request)
                if more and more + len(self.watches) > self.settings.max_watches:
                    raise Refusal(Code.QUOTA_EXCEEDED)
                answer = reads.answer(self.tree, self.watches, requester, request)
            except Refusal as refusal:
                connection.send(protocol.reply(item.xid, zxid, refusal.code))
            else:
                for kind, path in answer.events:
                    connection.send(protocol.event(kind, -1, path))
                connection.send(protocol.reply(item.xid, zxid, Code.OK, answer.result))
        if item.last:
            connection.close()


REQUESTS = "fencepost_metadata_request_duration_seconds"

_SEES_STATE = (Code.MARSHALLING_ERROR, Code.QUOTA_EXCEEDED)
"""Errors whose answers have the zxid of the state. The others concern the connection."""


_WRITE_BUFFER = 1 << 20
"""Unread bytes of a client above which nothing more is read from it."""
_TURN = 200
"""Requests taken from a connection before others have their turn."""
_NOBODY = bytes(16)
_OF_STRANGERS = (protocol.SASL, protocol.PING, protocol.CLOSE_SESSION)
"""Requests allowed before a client has to authenticate."""
_SASL_HOST = "zk-sasl-md5"
"""The name that ZooKeeper's clients use for any server in DIGEST-MD5."""


class Connection(asyncio.Protocol):
    """A client's connection. It has a session once its connect request is answered."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.transport: asyncio.Transport | None = None
        self.address = ""
        self.session = 0
        self.timeout = 0
        self.requester: Requester[Any] = Requester(self, 0, ())
        self.user: str | None = None
        """The user that authenticated by SASL."""
        self.waiting = 0
        """Requests in the queue."""
        self.received = 0
        self.sent = 0
        self.message_size = 0
        """Bytes of the message that is being handled."""
        self.since = service.now()
        self.last_zxid = 0
        self.closing = False
        self._input = bytearray()
        self._output: list[bytes] = []
        self._output_size = 0
        self._connect: Connect | None = None
        self._full = False  # the client does not read
        self._looks_away = False
        self._sasl: sasl.Server | None = None
        self._is_over = False  # others have their turn
        self._loop = asyncio.get_running_loop()

    # -- callbacks of asyncio ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are not registered as asyncio's
        peer = transport.get_extra_info("peername")
        host, port = (peer[0], peer[1]) if isinstance(peer, tuple) else ("", 0)
        self.address = f"{host}:{port}"
        self.requester = Requester(self, 0, (Id("ip", host),))
        self.transport.set_write_buffer_limits(high=_WRITE_BUFFER)
        if not self.service.admits(self, host):
            self.closing = True
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.closing = True
        self.service.lost(self)

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        self._input += data
        self.service.heard(self)
        self.parse()
        self.service.flush()

    def eof_received(self) -> None:
        self.close()  # which gives the client some time to read; asyncio would wait for it forever

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self.parse()
        self.service.flush()

    # -- input --------------------------------------------------------------------------------------------------------

    def parse(self) -> None:
        """Handle the requests that have arrived, as far as the limits allow."""
        data, at = self._input, 0
        limit = self.service.settings.jute_maxbuffer
        last = self.received + _TURN
        while not self.closing and len(data) - at >= 4 and not self._held():
            if self.received == last:
                self._is_over = True
                self._loop.call_soon(self._next_turn)
                break
            if self._connect is None and not at and (answer := self.service.words.get(bytes(data[:4]))):
                self._say(answer)
                break
            length = INT.unpack_from(data, at)[0]
            if not 0 <= length <= limit:
                self.close(f"announced a message of {length:,} bytes, and jute.maxbuffer is {limit:,}")
                break
            if len(data) - at - 4 < length:
                break
            payload = bytes(data[at + 4 : at + 4 + length])
            at += 4 + length
            self.message_size = length
            self.received += 1
            try:
                self._take(payload)
            except JuteError as error:
                self.close(f"sent an invalid request: {error}")
        del data[:at]
        self._look_away(self._held())

    def _next_turn(self) -> None:
        self._is_over = False
        self.parse()
        self.service.flush()

    def _held(self) -> bool:
        """Return whether no more requests are taken for now."""
        connecting = self._connect is not None and not self.session
        return (
            self._is_over
            or self._full
            or connecting
            or self._output_size > _WRITE_BUFFER
            or self.service.throttles(self)
        )

    def _look_away(self, held: bool) -> None:
        if held is self._looks_away or self.transport is None or self.transport.is_closing():
            return
        self._looks_away = held
        if held:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _take(self, payload: bytes) -> None:
        service = self.service
        service.received += 1
        if self._connect is None:
            self._connect = protocol.read_connect(payload)
            service.connect(self, self._connect)
            return
        xid, kind = protocol.read_header(payload)
        if self.is_stranger and kind not in _OF_STRANGERS:
            service.answer(self.requester, xid, Code.SASL_REQUIRED, last=True)
        elif kind == protocol.SASL:
            self._take_token(xid, payload)
        elif kind in protocol.CHANGES:
            self._take_change(xid, kind, payload)
        elif kind in protocol.QUERIES:
            try:
                query = protocol.read_query(kind, payload, 8)
            except JuteError:
                service.answer(self.requester, xid, Code.MARSHALLING_ERROR)
            else:
                service.answer(self.requester, xid, query)
        elif kind == protocol.AUTH:
            self._authenticate(xid, protocol.read_auth(payload, 8))
        else:
            service.answer(
                self.requester, xid, Code.RECONFIG_DISABLED if kind == protocol.RECONFIG else Code.UNIMPLEMENTED
            )

    def _take_change(self, xid: int, kind: int, payload: bytes) -> None:
        if kind == protocol.CLOSE_SESSION:
            self.service.change(self.requester, xid, CloseSession(), last=True)
            return
        try:
            change = protocol.read_change(kind, payload, 8)
        except JuteError as error:
            if kind == protocol.MULTI and not isinstance(error, protocol.NullACL):
                # As in ZooKeeper, it takes a zxid.
                self.service.change(self.requester, xid, Refused(Code.MARSHALLING_ERROR))
            else:
                self.service.answer(self.requester, xid, Code.MARSHALLING_ERROR)
            return
        if self.service.settings.extended_types_enabled:
            change = protocol.with_ttl(change)
        if self.service.has_room(self.requester, change, len(payload)):
            self.service.change(self.requester, xid, change)
        else:
            self.service.answer(self.requester, xid, Code.QUOTA_EXCEEDED)

    def _authenticate(self, xid: int, request: protocol.Auth) -> None:
        if request.scheme == "digest" and request.credentials is not None:
            code = Code.OK if self._prove_password(request.credentials) else Code.AUTH_FAILED
        else:
            code = Code.OK if request.scheme == "ip" else Code.AUTH_FAILED
        self.service.answer(self.requester, xid, code, last=code is not Code.OK)

    @property
    def is_stranger(self) -> bool:
        """Whether the client has to authenticate by SASL and has not."""
        return self.service.settings.session_require_client_sasl_auth and self.user is None

    def _take_token(self, xid: int, payload: bytes) -> None:
        """Handle a SASL token, and answer with the next one."""
        service = self.service
        if self._sasl is None and service.users is not None:
            self._sasl = sasl.Server("zookeeper", _SASL_HOST, REALM, os.urandom(20).hex(), service.users.secret_of)
        try:
            if self._sasl is None:
                raise sasl.SaslError("there are no users: see saslUsers")
            token = self._sasl.step(cast(protocol.Token, protocol.read_query(protocol.SASL, payload, 8)).token)
            user = self._sasl.user
            if user is not None:
                if not self._prove(Id("sasl", user)):
                    raise sasl.SaslError("there are too many identities")
                if user == service.settings.super_user:
                    self._prove(acls.SUPER)
                self.user = user
        except sasl.SaslError as error:
            _logger.warning("the client at %s does not authenticate: %s", self.address, error)
            service.answer(self.requester, xid, Code.SASL_REQUIRED if self.is_stranger else Code.AUTH_FAILED, last=True)
        else:
            service.answer(self.requester, xid, protocol.Token(token))

    def _prove_password(self, credentials: bytes) -> bool:
        """Check ``user:password`` of the scheme digest. Any pair is accepted as a new identity, except for a wrong
        password of the superuser, if that is salted.
        """
        settings = self.service.settings
        if len(credentials) > settings.max_identity_bytes:
            return False
        identity, expected = acls.digest(credentials), settings.super_digest
        is_super = identity.id == expected
        if users.is_salted(expected):
            user, _, password = credentials.decode("utf-8", "replace").partition(":")
            if user == expected.partition(":")[0]:
                # Checking takes time, so a connection gets one wrong attempt.
                is_super = users.proves(expected, password)
                if not is_super:
                    return False
        return self._prove(identity) and (not is_super or self._prove(acls.SUPER))

    def _prove(self, identity: Id) -> bool:
        """Record that the client proved an identity. Returns False if it has too many."""
        ids = self.requester.ids
        if identity not in ids:
            most = self.service.settings.max_identity_bytes
            if acls.size_of((*acls.proven(ids), identity)) > most:
                _logger.warning("%s proves more than %d bytes of identities: see maxIdentityBytes", self.address, most)
                return False
            self.requester = Requester(self, self.session, (*ids, identity))
        return True

    def _say(self, answer: Callable[[], str]) -> None:
        assert self.transport is not None
        self.received += 1
        self.transport.write(answer().encode())
        self.close()

    # -- output -------------------------------------------------------------------------------------------------------

    def established(self, session: int, timeout: int, password: bytes) -> None:
        """The session is open: answer the connect request."""
        assert self._connect is not None
        self.session, self.timeout = session, timeout
        self.requester = Requester(self, session, self.requester.ids)
        self.send(protocol.connected(timeout, session, password, self._connect.read_only))

    def refused(self) -> None:
        """The session does not exist any more."""
        assert self._connect is not None
        self.send(protocol.connected(0, 0, _NOBODY, self._connect.read_only))
        self.close()

    def send(self, frame: bytes) -> None:
        """Write a frame at the next flush."""
        if self.closing:
            return
        self._output.append(frame)
        self._output_size += len(frame)
        if self._output_size > _WRITE_BUFFER:
            self.write()
        self.sent += 1
        self.service.sent += 1
        self.service.unflushed[self] = None

    def notify(self, frame: bytes, acl: acls.ACLs) -> None:
        """Send a watch event, if the client may see it."""
        if acls.permits(acl, acls.READ, self.requester.ids):
            self.send(frame)

    def write(self) -> None:
        """Write all frames to the transport, as far as it takes them."""
        if self.transport is None or self.transport.is_closing() or not self._output:
            return
        self.transport.write(b"".join(self._output))
        self._output.clear()
        self._output_size = 0
        waiting = self.transport.get_write_buffer_size()
        if waiting > self.service.settings.max_outgoing_bytes:
            self.close(f"does not read: {waiting:,} bytes wait for it", abort=True)

    def close(self, reason: str = "", abort: bool = False) -> None:
        """Close the connection once everything is written, or at once with ``abort``. The session stays."""
        if self.closing:
            return
        if reason:
            _logger.warning("the connection of %s is closed: it %s", self.address, reason)
        if self.transport is not None:
            if not abort:
                self.write()
                self.transport.close()
                if self.transport.get_write_buffer_size():
                    self.service.give_up_later(self.transport)
            else:
                self.transport.abort()
        self.closing = True
        self.service.lost(self)
