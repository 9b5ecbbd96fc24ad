"""The driver: sockets, times and threads around the state machine.

Requests go through one queue. What has gathered in it while the disk synced is the next group: its changes become entries of the log,
written with one write and one sync, and only then is the group applied and answered, in order. A request that changes nothing does not
wait unless its connection waits for changes of its own, so it is answered in order, and from a state that is durable.

A disk that fails ends the service: nothing that was answered is lost, and what was not answered may or may not have been done.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import cast

from fencepost.errors import SystemFailure
from fencepost.metadata_service import acl as acls
from fencepost.metadata_service import log as logs
from fencepost.metadata_service import protocol, reads, snapshot, words
from fencepost.metadata_service.acl import Id
from fencepost.metadata_service.codes import Code, Refusal
from fencepost.metadata_service.expiry import Expiry
from fencepost.metadata_service.jute import INT, JuteError
from fencepost.metadata_service.protocol import (
    Change,
    CloseSession,
    Connect,
    Create,
    CreateSession,
    DeleteContainer,
    Multi,
    Query,
    Refused,
    SetData,
)
from fencepost.metadata_service.settings import Settings
from fencepost.metadata_service.tree import Event, Transaction, Tree
from fencepost.metadata_service.watches import Watches
from fencepost.metadata_service.worker import Worker

_logger = logging.getLogger(__name__)

_WRITE_BUFFER = 1 << 20
"""Bytes that wait for a client to read them, from which on nothing more is read from it."""
_REST = 0.1
"""Seconds without a change after which the last group is proven to be durable."""
_BETWEEN_GROUPS = 0.001
"""Seconds between two groups of a snapshot, in which the loop runs."""
_NOBODY = bytes(16)


class Connection(asyncio.Protocol):
    """One client's connection. It has a session once its connect request is answered."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.transport: asyncio.Transport | None = None
        self.address = ""
        self.session = 0
        self.timeout = 0
        self.ids: acls.Ids = ()
        self.asker = reads.Asker(self, 0, ())
        self.waiting = 0
        """Requests in the queue."""
        self.received = 0
        self.sent = 0
        self.message_size = 0
        """Bytes of the message that is taken at the moment."""
        self.since = service.now()
        self.last_zxid = 0
        self.closing = False
        self._input = bytearray()
        self._output: list[bytes] = []
        self._output_size = 0
        self._connect: Connect | None = None
        self._full = False  # the client does not read
        self._looks_away = False

    # -- what asyncio calls -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are not registered as such
        peer = transport.get_extra_info("peername")
        host, port = (peer[0], peer[1]) if isinstance(peer, tuple) else ("", 0)
        self.address = f"{host}:{port}"
        self.ids = (Id("ip", host),)
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

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self.parse()
        self.service.flush()

    # -- input --------------------------------------------------------------------------------------------------------

    def parse(self) -> None:
        """Take the requests that have arrived, as long as the limits let it take more."""
        data, at = self._input, 0
        limit = self.service.settings.jute_maxbuffer
        while not self.closing and len(data) - at >= 4 and not self._held():
            if not self.received and not at and (word := words.known(bytes(data[:4]))):
                self._say(word)
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
                self.close(f"sent what is no request: {error}")
        del data[:at]
        self._look_away(self._held())

    def _held(self) -> bool:
        """Whether nothing more is taken for now."""
        connecting = self._connect is not None and not self.session
        return self._full or connecting or self._output_size > _WRITE_BUFFER or self.service.throttles(self)

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
        if kind in protocol.CHANGES:
            self._take_change(xid, kind, payload)
        elif kind in protocol.QUERIES:
            try:
                query = protocol.read_query(kind, payload, 8)
            except JuteError:
                service.queue(self, xid, Code.MARSHALLING_ERROR)
            else:
                service.queue(self, xid, query)
        elif kind == protocol.AUTH:
            self._authenticate(xid, protocol.read_auth(payload, 8))
        else:
            service.queue(self, xid, Code.UNIMPLEMENTED, last=True)

    def _take_change(self, xid: int, kind: int, payload: bytes) -> None:
        if kind == protocol.CLOSE_SESSION:
            self.service.change(self, xid, CloseSession(), last=True)
            return
        try:
            change = protocol.read_change(kind, payload, 8)
        except JuteError as error:
            if kind == protocol.MULTI and not isinstance(error, protocol.NullACL):
                self.service.change(self, xid, Refused(Code.MARSHALLING_ERROR))  # as in ZooKeeper, it takes a zxid
            else:
                self.service.queue(self, xid, Code.MARSHALLING_ERROR)
            return
        if self.service.has_room(change):
            self.service.change(self, xid, change)
        else:
            self.service.queue(self, xid, Code.QUOTA_EXCEEDED)

    def _authenticate(self, xid: int, request: protocol.Auth) -> None:
        if request.scheme == "digest" and request.credentials is not None:
            identity = acls.digest(request.credentials)
            found = [identity]
            if identity.id == self.service.settings.super_digest:
                found.append(acls.SUPER)
            self.ids += tuple(each for each in found if each not in self.ids)
            self.asker = reads.Asker(self, self.session, self.ids)
        elif request.scheme != "ip":
            self.service.queue(self, xid, Code.AUTH_FAILED, last=True)
            return
        self.service.queue(self, xid, Code.OK)

    def _say(self, word: str) -> None:
        assert self.transport is not None
        self.received += 1
        self.transport.write(words.answer(word, self.service).encode())
        self.close()

    # -- output -------------------------------------------------------------------------------------------------------

    def established(self, session: int, timeout: int, password: bytes) -> None:
        """The session is open; answer the connect request."""
        assert self._connect is not None
        self.session, self.timeout = session, timeout
        self.asker = reads.Asker(self, session, self.ids)
        self.send(protocol.connected(timeout, session, password, self._connect.read_only))

    def refused(self) -> None:
        """There is no such session any more."""
        assert self._connect is not None
        self.send(protocol.connected(0, 0, _NOBODY, self._connect.read_only))
        self.close()

    def send(self, frame: bytes) -> None:
        """Have a frame written at the next flush."""
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
        """Tell of an event, if the client may learn of it."""
        if acls.permits(acl, acls.READ, self.ids):
            self.send(frame)

    def write(self) -> None:
        """Give all frames to the operating system, or as many as it takes."""
        if self.transport is None or self.transport.is_closing() or not self._output:
            return
        self.transport.write(b"".join(self._output))
        self._output.clear()
        self._output_size = 0
        waiting = self.transport.get_write_buffer_size()
        if waiting > self.service.settings.max_outgoing_bytes:
            self.close(f"does not read: {waiting:,} bytes wait for it", abort=True)

    def close(self, reason: str = "", abort: bool = False) -> None:
        """Close the connection once everything is written; with ``abort`` at once. The session stays."""
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


class Item:
    """A request in the queue: a change, with its entry once it has one, or a query or a code to answer.

    ``last`` is whether the connection is closed after the answer, ``size`` the bytes of the message, ``since`` when it came.
    """

    __slots__ = ("answer", "change", "connection", "entry", "ids", "last", "session", "since", "size", "xid")

    def __init__(
        self,
        connection: Connection | None,
        session: int,
        xid: int,
        ids: acls.Ids,
        last: bool,
        change: Change | None,
        answer: Query | Code | None,
    ) -> None:
        self.connection = connection
        self.session = session
        self.xid = xid
        self.ids = ids
        self.last = last
        self.change = change
        self.answer = answer
        self.entry: Transaction | None = None
        self.since = 0
        self.size = 0


class Latencies:
    """How long requests took, in milliseconds."""

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
    """A metadata service: the state, its log, and everybody who is connected.

    ``failed`` is called with the reason when the disk fails; the service takes nothing more then.
    """

    def __init__(self, settings: Settings, log: logs.Log, tree: Tree, failed: Callable[[BaseException], None]) -> None:
        self.settings = settings
        self.tree = tree
        self.watches: Watches[Connection] = Watches()
        self.log = log
        self.connections: dict[Connection, None] = {}
        self.by_session: dict[int, Connection] = {}
        self.unflushed: dict[Connection, None] = {}
        self.received = 0
        """Messages of clients."""
        self.sent = 0
        """Messages to clients."""
        self.started = self.heard_at = self.now()
        self.address: tuple[str, int] = ("", 0)
        self.outstanding = 0
        self.outstanding_bytes = 0
        self.latencies = Latencies()
        self.expiry = Expiry(settings.tick_time, self.now())
        for session, opened in tree.sessions.items():
            self.expiry.heard(session, opened.timeout, self.now())
        self._failed = failed
        self._addresses: dict[str, int] = {}
        self._hosts: dict[Connection, str] = {}
        self._queue: list[Item] = []
        self._syncing = False
        self._scheduled = False
        self._ending = False  # nothing more is taken
        self._stopped = False  # nothing more is done
        self._throttled: dict[Connection, None] = {}
        self._next_zxid = tree.zxid + 1
        self._since_snapshot = log.replayed
        self._snapshotting = False
        self._rest: asyncio.TimerHandle | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._disk = Worker("log")
        self._snapshots = Worker("snapshot")
        self._loop = asyncio.get_running_loop()

    @staticmethod
    def now() -> int:
        """Milliseconds of a clock that never goes back."""
        return time.monotonic_ns() // 1_000_000

    # -- life ---------------------------------------------------------------------------------------------------------

    async def serve(self) -> asyncio.Server:
        """Listen, and look after sessions; raises :class:`fencepost.errors.SystemFailure` if the port can not be had."""
        settings = self.settings
        try:
            server = await self._loop.create_server(
                lambda: Connection(self), settings.client_port_address, settings.client_port, backlog=1_024
            )
        except OSError as error:
            where = f"{settings.client_port_address}:{settings.client_port}"
            raise SystemFailure(f"the metadata service can not listen on {where}: {error.strerror or error}") from error
        self.address = server.sockets[0].getsockname()[:2]
        self._every(settings.tick_time, self._tick)
        self._every(settings.container_check_interval, self._delete_containers)
        return server

    async def stop(self) -> None:
        """End cleanly: what is under way is finished, and the log says where it ends."""
        self._ending = True
        while (self._queue or self._syncing or self._scheduled) and not self._stopped:
            await asyncio.sleep(0.001)
        failed, self._stopped = self._stopped, True
        for timer in (*self._timers, *filter(None, [self._rest])):
            timer.cancel()
        for connection in list(self.connections):
            connection.close()
        await self._snapshots.finish(lambda: None)
        await self._disk.finish(lambda: None if failed else self.log.close(self.tree.zxid))

    def _every(self, milliseconds: int, call: Callable[[], None]) -> None:
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
        """Take a new connection in, unless there are too many."""
        settings = self.settings
        there = self._addresses.get(host, 0)
        if self._stopped:
            return False
        if 0 < settings.max_cnxns <= len(self.connections) or 0 < settings.max_client_cnxns <= there:
            _logger.warning("a connection of %s is one too many: see maxCnxns and maxClientCnxns", host)
            return False
        self.connections[connection] = None
        self._hosts[connection] = host
        self._addresses[host] = there + 1
        return True

    def lost(self, connection: Connection) -> None:
        """A connection is gone, and its watches with it. Its session stays until it expires."""
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
        self.heard_at = self.now()
        if connection.session in self.expiry.deadlines:
            self.expiry.heard(connection.session, connection.timeout, self.heard_at)

    def throttles(self, connection: Connection) -> bool:
        """Whether a connection is to wait until there are fewer requests without an answer."""
        if self._ending:
            return True
        if connection.waiting and self._is_busy():
            self._throttled[connection] = None
            return True
        return False

    def _is_busy(self) -> bool:
        settings = self.settings
        return self.outstanding > settings.global_outstanding_limit or self.outstanding_bytes > settings.large_request_max_bytes

    def give_up_later(self, transport: asyncio.Transport) -> None:
        """End a connection that is closed, whether its client reads the rest or not."""
        self._loop.call_later(self.settings.sessionless_cnxn_timeout / 1_000, transport.abort)

    # -- sessions -----------------------------------------------------------------------------------------------------

    def connect(self, connection: Connection, request: Connect) -> None:
        """Open a session for a connection, or give it the one that it had."""
        if request.zxid > self.tree.zxid:
            connection.close(f"has seen zxid {request.zxid:#x}, and the last one here is {self.tree.zxid:#x}", abort=True)
            return
        least, most = self.settings.timeouts
        timeout = min(max(request.timeout, least), most)
        if request.session == 0:
            if len(self.tree.sessions) >= self.settings.max_sessions:
                connection.close("wants one session more than maxSessions", abort=True)
                return
            connection.timeout = timeout
            self.change(connection, 0, CreateSession(timeout, os.urandom(16)))
            return
        session = self.tree.sessions.get(request.session)
        if session is None or not hmac.compare_digest(session.password, request.password or b""):
            connection.refused()
            return
        before = self.by_session.get(request.session)
        if before is not None:
            before.close(abort=True)
        self._attach(connection, request.session, timeout, session.password)

    def _attach(self, connection: Connection, session: int, timeout: int, password: bytes) -> None:
        self.expiry.heard(session, timeout, self.now())
        if not connection.closing:
            self.by_session[session] = connection
            connection.established(session, timeout, password)

    def _tick(self) -> None:
        now = self.now()
        for session in self.expiry.due(now):
            _logger.info("session %#x expires", session)
            self.change(None, 0, CloseSession(expired=True), session=session)
        for connection in list(self.connections):
            if not connection.session and now - connection.since >= self.settings.sessionless_cnxn_timeout:
                connection.close(f"opened no session in {self.settings.sessionless_cnxn_timeout:,} ms", abort=True)

    def _delete_containers(self) -> None:
        for path in self.tree.empty_containers():
            self.change(None, 0, DeleteContainer(path))

    # -- the queue ----------------------------------------------------------------------------------------------------

    def has_room(self, change: Change) -> bool:
        """Whether a change keeps within the limits on znodes and their bytes, as far as they are applied."""
        operations = change.operations if isinstance(change, Multi) else (change,)
        nodes, size = len(self.tree.nodes), self.tree.size
        for each in operations:
            if isinstance(each, Create):
                nodes += 1
                size += len(each.path) + len(each.data or b"")
            elif isinstance(each, SetData):
                node = self.tree.nodes.get(each.path)
                size += len(each.data or b"") - (0 if node is None else len(node.data or b""))
        settings = self.settings
        grows = nodes > len(self.tree.nodes) or size > self.tree.size
        return not grows or (nodes <= settings.max_nodes and size <= settings.max_data_bytes)

    def change(
        self, connection: Connection | None, xid: int, request: Change, last: bool = False, session: int = 0
    ) -> None:
        """Put a change into the queue, of a connection's session, or of one that has none."""
        if self._stopped:
            return
        ids: acls.Ids = ()
        if connection is not None:
            session, ids = connection.session, connection.ids
            connection.waiting += 1
        self._enqueue(Item(connection, session, xid, ids, last, request, None))
        if not self._scheduled and not self._syncing:
            self._scheduled = True
            self._loop.call_soon(self._next_group)

    def queue(self, connection: Connection, xid: int, request: Query | Code, last: bool = False) -> None:
        """Answer a request that changes nothing, in the queue if its connection waits there already or it is a sync."""
        item = Item(connection, connection.session, xid, connection.ids, last, None, request)
        if not connection.waiting and not (isinstance(request, protocol.Sync) and (self._queue or self._syncing)):
            self.latencies.add(0)
            self._answer(connection, item, request)
            return
        connection.waiting += 1
        self._enqueue(item)

    def _enqueue(self, item: Item) -> None:
        item.since = self.heard_at
        if item.connection is not None:
            item.size = item.connection.message_size
        self.outstanding += 1
        self.outstanding_bytes += item.size
        self._queue.append(item)

    def flush(self) -> None:
        """Write what is to be written."""
        unflushed, self.unflushed = self.unflushed, {}
        for connection in unflushed:
            connection.write()

    def _next_group(self) -> None:
        self._scheduled = False
        self._finish(self._write())

    def _write(self) -> list[Item]:
        """Write the entries of everything in the queue. If there are none, the group can be finished after the one before it."""
        group, self._queue = self._queue, []
        now = time.time_ns() // 1_000_000
        entries = []
        for item in group:
            if item.change is not None:
                item.entry = Transaction(self._next_zxid, now, item.session, item.ids, item.change)
                self._next_zxid += 1
                entries.append(logs.encode(item.entry))
        if not entries:
            return group
        self._since_snapshot += len(entries)
        self._on_disk(lambda: self.log.append(entries), group)
        return []

    def _on_disk(self, work: Callable[[], None], group: list[Item]) -> None:
        """Have the log do something; when it is done, a group is durable."""
        self._syncing = True
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._disk.do(work, lambda error: self._synced(group, error))

    def _synced(self, group: list[Item], error: BaseException | None) -> None:
        """A group is durable, or the disk failed."""
        self._syncing = False
        if self._stopped:
            return
        if error is not None:
            self._fail(error)
            return
        without_changes = self._write()  # the disk goes on while this group is applied
        self._finish(group)
        self._finish(without_changes)
        if not self._syncing:
            self._look_at_log(bool(group))

    def _finish(self, group: Iterable[Item]) -> None:
        """Apply and answer a group."""
        now = self.now()
        for item in group:
            self.outstanding -= 1
            self.outstanding_bytes -= item.size
            self.latencies.add(now - item.since)
            if item.connection is not None:
                item.connection.waiting -= 1
            if item.entry is not None:
                self._apply(item, item.entry)
            elif item.connection is not None and item.answer is not None:
                self._answer(item.connection, item, item.answer)
        self.flush()
        if self._throttled and not self._is_busy():
            throttled, self._throttled = self._throttled, {}
            for connection in throttled:
                connection.parse()
            self.flush()

    def _apply(self, item: Item, entry: Transaction) -> None:
        applied = self.tree.apply(entry)
        for event in applied.events:
            self._tell(event, entry.zxid)
        connection, request = item.connection, entry.request
        if isinstance(request, CreateSession):
            assert isinstance(applied.result, protocol.NumberOf) and connection is not None
            self._attach(connection, applied.result.number, request.timeout, request.password)
            connection.parse()
            return
        if isinstance(request, CloseSession):
            self.expiry.forget(item.session)
            attached = self.by_session.get(item.session)
            if attached is not None and attached is not connection:
                attached.close()
        if connection is not None:
            connection.last_zxid = entry.zxid
            connection.send(protocol.reply(item.xid, entry.zxid, applied.code, applied.result))
            if item.last:
                connection.close()

    def _tell(self, event: Event, zxid: int) -> None:
        watchers = self.watches.triggered(event)
        if watchers:
            frame = protocol.event(event.kind, zxid, event.path)
            for watcher in watchers:
                watcher.notify(frame, event.acl)

    def _answer(self, connection: Connection, item: Item, request: Query | Code) -> None:
        """Answer what changes nothing."""
        if connection.closing:
            return
        zxid = self.tree.zxid
        if isinstance(request, Code):
            connection.send(protocol.reply(item.xid, zxid if request in _SEES_STATE else 0, request))
        else:
            try:
                more = reads.watches_of(request)
                if more and more + len(self.watches) > self.settings.max_watches:
                    raise Refusal(Code.QUOTA_EXCEEDED)
                answer = reads.answer(self.tree, self.watches, connection.asker, request)
            except Refusal as refusal:
                connection.send(protocol.reply(item.xid, zxid, refusal.code))
            else:
                for kind, path in answer.events:
                    connection.send(protocol.event(kind, -1, path))
                connection.send(protocol.reply(item.xid, zxid, Code.OK, answer.result))
        if item.last:
            connection.close()

    # -- log and snapshots --------------------------------------------------------------------------------------------

    def _look_at_log(self, written: bool) -> None:
        """While the disk has nothing to do: begin a snapshot if it is time, otherwise prove the last group once it is quiet."""
        if self._since_snapshot >= self.settings.snap_count and not self._snapshotting:
            self._since_snapshot = 0
            number = self.log.number + 1
            groups = snapshot.groups(self.tree, number)
            head = next(groups)
            self._snapshotting = self._syncing = True
            self._disk.do(self.log.roll, lambda error: self._rolled(number, itertools.chain([head], groups), error))
        elif written:
            self._rest = self._loop.call_later(_REST, self._on_disk, self.log.rest, [])

    def _rolled(self, number: int, groups: Iterable[bytes], error: BaseException | None) -> None:
        """The file of the log is there at which the snapshot is to begin: without it, the snapshot would be of no use."""
        if error is None and not self._stopped:
            self._snapshots.do(lambda: self._write_snapshot(number, groups), self._snapshot_written)
        self._synced([], error)

    def _write_snapshot(self, number: int, groups: Iterable[bytes]) -> None:
        for _ in self.log.write_snapshot(number, groups):
            if self._stopped:
                return
            time.sleep(_BETWEEN_GROUPS)
        self.log.purge(self.settings.snap_retain_count)

    def _snapshot_written(self, error: BaseException | None) -> None:
        self._snapshotting = False
        if error is not None:
            self._fail(error)


_SEES_STATE = (Code.MARSHALLING_ERROR, Code.QUOTA_EXCEEDED)
"""Errors whose answers have the zxid of the state. Others are those of connections."""
