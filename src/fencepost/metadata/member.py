"""A metadata service as a member of a quorum: the quorum's log orders the changes, and every member applies them to its
tree.

A client may connect to any member. The member forwards changes to the leader, which stamps each with the time and
appends it to the log. Once a change is committed, every member applies it, and the one that received it answers. So a
client sees its own changes, and watches fire at its member. A zxid is the number of applied changes, so it is the same
on all members, and only rises. Each member answers reads from the changes that it has applied. A sync goes through the
log, too, and so does a session that moves to another connection: both see all changes that anybody was acknowledged
before.

Every connection has a token. By the log, a session belongs to the connection that opened it or attached it last. What
an earlier connection still has under way is refused, as in ZooKeeper (-118, session moved). So the changes of a session
are applied in the order of the client's requests, even when members fail.

Only the leader decides which sessions have expired. Members report to it which clients they heard from. A new leader
gives every session its whole timeout.

When the leader changes, the outcome of requests under way is unknown. Their connections are closed, so that clients
find out. A member that knows no leader for a while closes all its connections, so that clients try other members.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from fencepost.ledger.disk.journal import Damage
from fencepost.metadata import four_letter_words, protocol, snapshot
from fencepost.metadata.acl import Ids
from fencepost.metadata.codes import Code
from fencepost.metadata.expiry import Expiry
from fencepost.metadata.measures import gauges
from fencepost.metadata.protocol import Change, CloseSession, Connect, CreateSession
from fencepost.metadata.server import Connection, Item, Service
from fencepost.metadata.settings import MetadataSettings
from fencepost.metadata.tree import Session, Transaction, Tree
from fencepost.quorum.driver.host import QuorumHost
from fencepost.quorum.driver.links import Return
from fencepost.quorum.driver.node import QuorumNode
from fencepost.quorum.files.directory import Contents
from fencepost.quorum.files.snapshots import SUFFIX
from fencepost.quorum.identity import Node, ReplicaKey
from fencepost.quorum.log import Batch

_logger = logging.getLogger(__name__)

_SILENCE = 2.0
"""Seconds without an answer from the leader after which clients' connections are closed."""
_LATENESS = 2.0
"""Seconds that a member may be behind its leader, and still counts as caught up."""
_LAST_ANSWERS = 1.0
"""Seconds that a stopping leader gives the others to receive what it has taken."""
_LEADER_CHECK = 100
"""Milliseconds between checks of that."""


class Mark(protocol.Request, frozen=True, gc=False):
    """A marker in the log. It is answered once everything before it is applied."""


class Attach(protocol.Request, frozen=True, gc=False):
    """Move a session to the connection that sends this, if the password is right."""

    password: bytes


class LogRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request that a member wants in the log. ``number`` identifies it to the member; ``token`` identifies the
    connection.
    """

    number: int
    token: int
    session: int
    ids: Ids
    request: Change | Mark | Attach


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record of the log: the request, the id of the process that sent it (drawn at each start), and the time in
    milliseconds since 1970.
    """

    process: int
    time: int
    request: LogRequest


class Forward(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A member asks the leader of an epoch to append these requests. The same leader refuses them in a later epoch:
    earlier requests may have been lost with the old epoch, and a client's requests must stay in order.
    """

    process: int
    epoch: int
    requests: tuple[LogRequest, ...]


class Heard(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A member reports to the leader that it heard from the clients of these sessions."""

    sessions: tuple[int, ...]


class Owners(msgspec.Struct, frozen=True, array_like=True):
    """The first record of a snapshot: the connections that own the sessions."""

    owners: tuple[tuple[int, int], ...]


_encode = msgspec.msgpack.Encoder().encode
_read_entry = msgspec.msgpack.Decoder(Entry).decode
_read_call = msgspec.msgpack.Decoder(Forward | Heard).decode
_read_owners = msgspec.msgpack.Decoder(Owners).decode


def records(tree: Tree, owners: Mapping[int, int]) -> Iterator[Sequence[bytes]]:
    """The records of a snapshot, in groups, with the state at the first step: znodes and sessions, and the connections
    that own the sessions.
    """
    of_tree = snapshot.records(tree)
    yield [_encode(Owners(tuple(owners.items()))), *next(of_tree)]
    yield from of_tree


def restored(records: Sequence[bytes]) -> tuple[Tree, dict[int, int]]:
    """Decode a snapshot: znodes and sessions, and the connections that own the sessions. Raises
    :class:`fencepost.ledger.disk.journal.Damage`.
    """
    if not records:
        return Tree(), {}
    try:
        owners = dict(_read_owners(records[0]).owners)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damage(f"the snapshot has an invalid record: {error}") from error
    return snapshot.read(records[1:], "the snapshot"), owners


class Member(Service):
    """The service of one member. Call :meth:`take_part` to start it."""

    def __init__(self, settings: MetadataSettings, host: QuorumHost, failed: Callable[[BaseException], None]) -> None:
        super().__init__(settings, Tree(), failed)
        self.host = host
        self.node: QuorumNode | None = None
        self.owners: dict[int, int] = {}
        """The token of the connection that owns each session."""
        self.process = int.from_bytes(os.urandom(7))
        self.words = four_letter_words.answers(self)
        self.metrics.gauges |= gauges(self, lambda: self.node)
        self._decides = False
        self._epoch = -1
        self._leader: Node | None = None
        self._lost_at = -1.0  # when the connection to the leader was lost; reset when it answers again
        self._number = 0
        self._tokens: dict[Connection, int] = {}
        self._in_flight: dict[int, Item] = {}
        self._unsent: list[tuple[Item, LogRequest]] = []
        self._last: dict[Connection, Item] = {}  # the last request of a connection that is in flight or unsent
        self._scheduled = False
        self._touched: set[int] = set()
        # The replicas of the processes that have sent requests to this leader.
        self._requesters: dict[int, ReplicaKey] = {}
        self._stamp = 0

    async def take_part(self) -> None:
        """Wait for the quorum to have a cluster, and join it."""
        self.begin(await self.host.open())

    def begin(self, contents: Contents) -> None:
        """Join the quorum, starting from this stored state."""
        self.tree, self.owners = restored(contents.state)
        contents.state = []
        self.node = self.host.begin(contents, self)
        self.node.took = self._disk_took
        self._every(max(10, self.settings.tick_time // 4), self._report_heard)
        self._every(_LEADER_CHECK, self._look_for_leader)

    async def stop(self) -> None:
        """Stop cleanly. A leader answers what it has taken, if that is quick, and resigns."""
        self._is_closing = True
        end = self._loop.time() + _LAST_ANSWERS
        while (
            self.outstanding
            and not self._stopped
            and self.node is not None
            and self.node.leads
            and self._loop.time() < end
        ):
            await asyncio.sleep(0.001)
        self._end()
        await self.host.close()

    def _disk_took(self, what: str, seconds: float) -> None:
        self.metrics.took("fsynctime" if what == "write" else "snapshottime", seconds)

    def why_not_ready(self) -> str:
        """Why this member does not serve clients, or "" if it does: it has to know a leader that answers, and to have
        applied what that leader had committed.
        """
        node = self.node
        if node is None:
            return "this member has no cluster yet"
        if self._stopped or self._is_closing:
            return "this member ends"
        if not self.is_serving:
            return "this member does not listen yet"
        if node.leader is None or node.silence > _SILENCE:
            return "this member knows no leader that answers"
        if node.leads and not self._decides:
            return "this member becomes the leader"
        if node.replica.high_watermark <= 0:
            return "this member does not know yet what is committed"
        return "this member has not caught up with the leader" if node.lateness > _LATENESS else ""

    @property
    def mode(self) -> str:
        """The role for operators, in ZooKeeper's terms."""
        if self.node is None or not self.node.replica.is_voter:
            return "observer"
        if len(self.node.replica.voters) == 1:
            return "standalone"
        return "leader" if self.node.leads else "follower"

    @property
    def controller(self) -> str:
        """See :class:`Service`."""
        return f"{self.host.me.key.host_id}@{self.host.me.endpoint}"

    def disk_sizes(self) -> tuple[int, int]:
        """The sizes in bytes of the snapshots, and of the log."""
        files = self.host.files
        sizes: dict[str, int] = {}
        for name in files.names():
            with contextlib.suppress(FileNotFoundError):  # a thread has just removed it
                sizes[name] = files.size(name)
        of_snapshots = sum(size for name, size in sizes.items() if name.endswith(SUFFIX))
        return of_snapshots, sum(sizes.values()) - of_snapshots

    # -- from clients to the leader ------------------------------------------------------------------------------------

    def _enqueue(self, item: Item) -> None:
        if self._stopped:
            return
        connection = item.connection
        requested: Change | Mark | Attach
        if item.change is not None:
            requested, session = item.change, item.requester.session
        elif isinstance(item.answer, Connect):
            requested, session = Attach(item.answer.password or b""), item.answer.session
        elif isinstance(item.answer, protocol.Sync) or connection is None or connection not in self._last:
            requested, session = Mark(), item.requester.session
        else:
            self._count(item)
            self._last[connection].behind.append(item)
            return
        self._count(item)
        self._number += 1
        token = 0
        if connection is not None:
            token = self._tokens.get(connection, 0)
            if not token:
                token = self._tokens[connection] = int.from_bytes(os.urandom(7)) | 1
            self._last[connection] = item
        self._unsent.append((item, LogRequest(self._number, token, session, item.requester.ids, requested)))
        self._send_soon()

    def _send_soon(self) -> None:
        if not self._scheduled and self._leader is not None and self._lost_at < 0 and self._unsent:
            self._scheduled = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        """Send the gathered requests to the leader."""
        self._scheduled = False
        node, leader = self.node, self._leader
        if node is None or leader is None or self._stopped or not self._unsent:
            return
        unsent, self._unsent = self._unsent, []
        for item, requested in unsent:
            if item.connection is not None and item.connection.closing and not item.connection.session:
                self._uncount(item)  # the client that opened the session has left
                self._last.pop(item.connection, None)
            else:
                self._in_flight[requested.number] = item
        unsent = [each for each in unsent if each[1].number in self._in_flight]
        self._report_heard()
        if not unsent:  # no empty batches
            return
        if node.leads:
            self._put_into_log(self.process, [requested for _, requested in unsent])
        else:
            size, some = 0, []
            for item, requested in unsent:
                some.append(requested)
                size += item.size
                if size > node.limits.batch:
                    self.host.links.notify(leader.endpoint, _encode(Forward(self.process, self._epoch, tuple(some))))
                    size, some = 0, []
            if some:
                self.host.links.notify(leader.endpoint, _encode(Forward(self.process, self._epoch, tuple(some))))

    def _put_into_log(self, process: int, requests: Sequence[LogRequest]) -> None:
        assert self.node is not None
        self._stamp = max(self._stamp, self.wall_clock())
        for each in requests:
            # Its client is connected now, however long the commit takes.
            if (
                isinstance(each.request, Attach)
                and (opened := self._session_of(each.session, each.request.password)) is not None
            ):
                self._hear(each.session, opened.timeout)
        self.node.append([_encode(Entry(process, self._stamp, each)) for each in requests])

    def lost(self, connection: Connection) -> None:
        """A connection is gone."""
        self._tokens.pop(connection, None)
        super().lost(connection)

    # -- sessions -----------------------------------------------------------------------------------------------------

    def heard(self, connection: Connection) -> None:
        """A client sent something."""
        self.heard_at = self.now()
        if connection.session:
            self._hear(connection.session, connection.timeout)

    def _hear(self, session: int, timeout: int) -> None:
        """Extend a session by its timeout from now, and a tick more, since members report to the leader a little
        late.
        """
        if self._decides:
            self.expiry.heard(session, timeout + self.settings.tick_time, self.now())
        else:
            self._touched.add(session)

    def _hear_all(self, sessions: Iterable[int]) -> None:
        for session in sessions:
            opened = self.tree.sessions.get(session)
            if opened is not None:
                self._hear(session, opened.timeout)

    def _report_heard(self) -> None:
        touched, self._touched = self._touched, set()
        if touched and self._leader is not None and self.node is not None:
            if self._decides:
                self._hear_all(touched)
            elif not self.node.leads:
                self.host.links.notify(self._leader.endpoint, _encode(Heard(tuple(touched))))

    def _delete_due(self) -> None:
        if self._decides:
            super()._delete_due()

    # -- from other members --------------------------------------------------------------------------------------------

    def call_received(self, source: ReplicaKey, link: object, data: bytes, answer: Return) -> None:
        """Handle a message of another member to the leader of an epoch. If this is not that leader, it does nothing:
        the sender will learn of the change of leader.
        """
        try:
            call = _read_call(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _logger.warning("%s sent an invalid call: %s", source, error)
            return
        if isinstance(call, Heard):
            if self._decides:
                self._hear_all(call.sessions)
        elif self.node is not None and self.node.leads and not self._stopped and call.epoch == self.node.replica.epoch:
            self._requesters[call.process] = source
            self._put_into_log(call.process, call.requests)

    # -- from the quorum -----------------------------------------------------------------------------------------------

    def apply(self, batch: Batch) -> None:
        """Apply committed records. Members whose clients wait for them get the high watermark at once."""
        requesters: set[int] = set()
        for record in batch.records:
            try:
                entry = _read_entry(record)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Damage(f"the log has an invalid entry: {error}") from error
            self._apply_entry(entry)
            requesters.add(entry.process)
        if batch.records:
            self._flush_group()
        if self._decides and self.node is not None:
            for process in requesters & self._requesters.keys():
                self.node.send_high_watermark(self._requesters[process])

    def _apply_entry(self, entry: Entry) -> None:
        requested = entry.request
        request, session, token = requested.request, requested.session, requested.token
        item = self._in_flight.pop(requested.number, None) if entry.process == self.process else None
        if item is not None:
            self._uncount(item)
            self._took_item(item)
            if item.connection is not None and self._last.get(item.connection) is item:
                del self._last[item.connection]
        if isinstance(request, Attach):
            self._attach_session(session, token, request.password)
        elif not isinstance(request, Mark):
            if token and not isinstance(request, CreateSession) and self.owners.get(session, token) != token:
                self._refuse_moved(item)
            else:
                self._apply(Transaction(self.tree.zxid + 1, entry.time, session, requested.ids, request), item)
                if isinstance(request, CreateSession):
                    self.owners[self.tree.last_session] = token
                elif isinstance(request, CloseSession):
                    self.owners.pop(session, None)
        if item is None:
            return
        if item.answer is not None:
            self._answer(item.requester, item, item.answer)
        for each in item.behind:
            self._uncount(each)
            self._took_item(each)
            if each.answer is not None and each.connection is not None:
                # Use the current identities, but the session exists since the connect request was answered.
                self._answer(each.requester, each, each.answer)

    def _took_item(self, item: Item) -> None:
        request = item.change if item.change is not None else item.answer
        if request is not None:
            self._took(request, self.now() - item.since)

    def _attach_session(self, session: int, token: int, password: bytes) -> None:
        """Give a session to another connection."""
        opened = self._session_of(session, password)
        if opened is None:
            return
        self.owners[session] = token
        if self._decides:
            self._hear(session, opened.timeout)
        before = self.by_session.get(session)
        if before is not None and self._tokens.get(before) != token:
            before.close(abort=True)

    def _session_of(self, number: int, password: bytes) -> Session | None:
        """Look up a session by its number, if it exists and the password is right."""
        opened = self.tree.sessions.get(number)
        return opened if opened is not None and hmac.compare_digest(opened.password, password) else None

    def _resume(self, connection: Connection, number: int) -> None:
        if self.owners.get(number) == self._tokens.get(connection):
            super()._resume(connection, number)
        else:
            connection.refused()  # no such session, or a wrong password

    def _refuse_moved(self, item: Item | None) -> None:
        if item is not None and item.connection is not None:
            item.connection.send(protocol.reply(item.xid, self.tree.zxid, Code.SESSION_MOVED))
            item.connection.close()

    def marker(self) -> bytes:
        """A record that changes nothing."""
        return _encode(Entry(self.process, self._stamp, LogRequest(0, 0, 0, (), Mark())))

    def snapshot(self) -> Iterator[Sequence[bytes]]:
        """The records of the state at the first step."""
        return records(self.tree, self.owners)

    def restore(self, records: Sequence[bytes]) -> None:
        """Replace the state by a snapshot. Clients of this member get no events for the changes in between."""
        self.tree, self.owners = restored(records)
        self._lose_in_flight()
        self._close_all()

    def leader_changed(self, epoch: int, leader: Node | None, mine: bool) -> None:
        """The leader or its epoch changed: requests that were sent to the previous one may be lost."""
        if leader is None and self._leader is not None:
            self.metrics.add("looking_count")
        if leader is not None and leader != self._leader:
            self.metrics.add("kafka_controller_KafkaController_NewActiveControllersCount")
        if epoch != self._epoch or leader != self._leader:
            self._lose_in_flight()
            self._decides = False
            self._requesters.clear()
            self.expiry = Expiry(self.settings.tick_time, self.now())
        self._epoch, self._leader = epoch, leader
        if leader is None:
            return
        self._touched.update(self.by_session)
        self._lost_at = -1.0
        self._send_soon()

    def became_leader(self, epoch: int) -> None:
        """This member is the leader from now on. Every session gets its whole timeout."""
        _logger.info("this member leads since epoch %d", epoch)
        self._decides = True
        self.expiry = Expiry(self.settings.tick_time, self.now())
        self._hear_all(self.tree.sessions)

    def failed(self, error: BaseException) -> None:
        """The disk failed."""
        self._fail(error)

    def link_lost(self, endpoint: str) -> None:
        """The connection to a member broke. If that was the leader, requests that were sent to it may be lost."""
        if self._leader is not None and self._leader.endpoint == endpoint and not (self.node and self.node.leads):
            self._lost_at = self._loop.time()
            self._lose_in_flight()

    def _lose_in_flight(self) -> None:
        """The outcome of requests that were sent to the leader is unknown: close their connections."""
        in_flight, self._in_flight = self._in_flight, {}
        lost = dict.fromkeys(item.connection for item in in_flight.values() if item.connection is not None)
        kept = [(item, requested) for item, requested in self._unsent if item.connection not in lost]
        dropped = [item for item, _ in self._unsent if item.connection in lost]
        self._unsent = kept
        for item in (*in_flight.values(), *dropped):
            for each in (item, *item.behind):
                self._uncount(each)
            if item.connection is not None:
                self._last.pop(item.connection, None)
        for connection in lost:
            connection.close(abort=True)

    def _look_for_leader(self) -> None:
        """Close the clients' connections if there is no leader, since other members may have one. Once the leader
        answers again, send what waits.
        """
        if self.node is not None and 0 <= self._lost_at < self.node.heard_at:
            self._lost_at = -1.0
            self._send_soon()
        if self.node is not None and self.node.silence > _SILENCE and self.connections:
            _logger.warning("no leader answers: the connections of %d clients are closed", len(self.connections))
            self._lose_in_flight()
            self._close_all()

    def _close_all(self) -> None:
        unsent, self._unsent = self._unsent, []
        for item, _ in unsent:
            for each in (item, *item.behind):
                self._uncount(each)
        self._last.clear()
        for connection in list(self.connections):
            connection.close(abort=True)
