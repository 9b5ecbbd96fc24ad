"""Clients of a quorum, each a thread with one session, which record all that they do and see.

They speak ZooKeeper's protocol with a client that shares no code with the service. A connection that breaks or does not
answer is replaced by one to any member, with the same session. A call in flight then has no outcome. It may take effect
until the session has moved to the new connection, but not later: members refuse the old connection after that.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bench.quorum.histories import ANY, BAD_VERSION, DONE, NO_NODE, NODE_EXISTS, Call

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from metadata import workload
from metadata import zkclient as zk

__all__ = ("workload", "zk")

SHARED = tuple(f"/shared/{number}" for number in range(3))
"""Znodes that all write, and that are always there."""
PASSING = tuple(f"/passing/{number}" for number in range(2))
"""Znodes that all create, write and delete."""
FOLDERS = ("/shared", "/passing", "/own", "/order", "/lines", "/ephemerals")

_CODES = {0: DONE, -101: NO_NODE, -110: NODE_EXISTS, -103: BAD_VERSION}

_LOCAL = (zk.PING, zk.GET_DATA, zk.EXISTS)
"""Requests that a member answers without the quorum."""

_NOT_THIS_SESSION = (-118, -112, -12)
"""Answers to a client that no longer has the session: it moved, expired, or is unknown."""

clock = time.monotonic


class Lost(Exception):
    """The connection broke or did not answer: nobody knows what became of what was under way."""


class Over(Exception):
    """The session is over."""


@dataclass
class Seen:
    """An answer that says something of a znode: when it was asked for and came, what the znode is (value, version) or
    None, the zxid of its last change, that of the state that was asked, and whether a sync came right before.
    """

    begin: float
    end: float
    path: str
    znode: tuple[str, int] | None
    changed: int
    zxid: int
    synced: bool
    session: int


@dataclass
class Wrote:
    """An acknowledged change: its znode and its zxid."""

    begin: float
    end: float
    path: str
    znode: tuple[str, int] | None
    zxid: int
    session: int


@dataclass
class Ephemeral:
    """An ephemeral that a session has had since ``since``, and what was heard of the session: when it was last known to
    live, as far as is sure.
    """

    path: str
    session: int
    since: float
    alive: float = 0.0
    """A request began then that was answered later, through the log."""
    closing: float = float("inf")
    """Its client began to end it."""


@dataclass
class Record:
    """What one client did and saw."""

    calls: dict[str, list[Call]] = field(default_factory=dict)
    """By the path of the znode. A call without an outcome is added once it can no longer take effect."""
    seen: list[Seen] = field(default_factory=list)
    wrote: list[Wrote] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    """Its own znodes, which nobody deletes."""
    lines: list[tuple[str, float, float]] = field(default_factory=list)
    """Sequential znodes, and when each was asked for and acknowledged."""
    orders: list[tuple[str, int, int]] = field(default_factory=list)
    """Changes that were sent at once: the beginning of their names, how many there were, and how many were
    acknowledged.
    """
    ephemerals: list[Ephemeral] = field(default_factory=list)
    absent: list[tuple[float, float, str, int]] = field(default_factory=list)
    """When was asked, after a sync, for an ephemeral of another client, and answered: its path, and the session that it
    belongs to, 0 if it was not there.
    """
    acknowledged: list[float] = field(default_factory=list)
    """When changes were."""
    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def count(self, what: str) -> None:
        """One more."""
        self.counts[what] = self.counts.get(what, 0) + 1


class Session:
    """A session, which goes from member to member."""

    def __init__(self, ports: list[int], random: Random, timeout: int, record: Record) -> None:
        self.ports = list(ports)
        self.random = random
        self.timeout = timeout
        """In milliseconds; as granted, once it is connected."""
        self.record = record
        self.connection: Any = None
        self.id = 0
        self.sent = 0.0
        """When the last request was sent that was answered."""
        self.lived = 0.0
        """When the last one was sent that was answered and went through the log, so that the session was there later
        than that.
        """
        self.closing = False
        """Whether its client has asked to end it."""
        self.zxid = 0
        self._password = bytes(16)

    def connect(self) -> None:
        """Have a connection to any member, however often that is tried. Raises :class:`Over` if the session is over."""
        self.drop()
        while True:
            patience = max(0.5, self.timeout / 3_000)
            begin = clock()
            connection = None
            try:
                connection = zk.Client(self.random.choice(self.ports), patience)
                connection.connect(self.timeout, self.id, self._password, self.zxid)
            except (zk.Closed, OSError):
                if connection is not None:
                    connection.drop()
                time.sleep(0.02 + 0.08 * self.random.random())
                continue
            if not connection.session:
                connection.drop()
                now = clock()
                if now < self.sent + self.timeout / 1_000 and not self.closing:
                    self.record.wrong.append(
                        f"session {self.id:#x} was over {now - self.sent:.3f} s after a request that was answered; its"
                        f" timeout is {self.timeout} ms"
                    )
                if not self.closing:
                    self.record.count("sessions that expired")
                raise Over
            if self.id and connection.session != self.id:
                self.record.wrong.append(f"session {self.id:#x} was given another one, {connection.session:#x}")
            self.id, self._password = connection.session, connection.password
            self.sent = self.lived = begin
            connection.last_zxid = self.zxid
            self.connection = connection
            return

    def begin(self, timeout: int) -> None:
        """Have a new session."""
        self.id, self._password, self.sent, self.closing = 0, bytes(16), 0.0, False
        self.timeout = timeout
        self.connect()

    def drop(self) -> None:
        """Leave the connection, and say nothing."""
        if self.connection is not None:
            self.connection.drop()
            self.connection = None

    def call(self, *requests: list[Any]) -> list[list[Any]]:
        """Send requests at once; their answers, as [xid, zxid, code, result]. Raises :class:`Lost`."""
        connection = self.connection
        if connection is None:
            raise Lost
        answers: list[list[Any]] = []
        begin = clock()
        try:
            connection.send(*requests)
            while len(answers) < len(requests):
                found = connection.read()
                if found[0] == "reply":
                    answers.append(found[1:])
        except (zk.Closed, OSError):
            self.drop()
            raise Lost from None
        finally:
            connection.stream.clear()
            self.partial = answers
            good = [
                kind for (kind, _), answer in zip(requests, answers, strict=False) if answer[2] not in _NOT_THIS_SESSION
            ]
            if good:
                self.sent = begin
            if any(kind not in _LOCAL for kind in good):
                self.lived = begin
        for answer in answers:
            if answer[2] in _NOT_THIS_SESSION:
                self.drop()
                raise Lost
            if answer[1] > 0:
                if answer[1] < self.zxid:
                    self.record.wrong.append(f"session {self.id:#x} was at zxid {self.zxid}, and then at {answer[1]}")
                self.zxid = max(self.zxid, answer[1])
        return answers


class Client(threading.Thread):
    """One client at work."""

    def __init__(self, number: int, ports: list[int], seed: int, timeout: int, rest: float, clients: int) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self.number = number
        self.random = Random(f"{seed} client {number}")
        self.record = Record()
        self.session = Session(ports, self.random, timeout, self.record)
        self.timeout = timeout
        self.rest = rest
        self.clients = clients
        self.ended = threading.Event()
        self._count = 0
        self._ephemeral: Ephemeral | None = None
        self._pending: list[tuple[str, Call]] = []
        """Calls without an outcome, which can still be done."""
        self._versions: dict[str, int] = {}

    def run(self) -> None:
        try:
            self.session.begin(self.timeout)
            while not self.ended.is_set():
                self._turn()
                if self.rest:
                    time.sleep(self.rest * 2 * self.random.random())
            self._finish()
        except Exception as error:
            self.record.wrong.append(f"client {self.number} ended: {type(error).__name__}: {error}")

    # -- connections --------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        try:
            if self.session.connection is None:
                self.session.connect()
                self._resolved()
                self.record.count("connections")
            if self._ephemeral is None:
                self._make_ephemeral()
            else:
                self._work()
            if self._ephemeral is not None:
                self._ephemeral.alive = self.session.lived
        except Lost:
            self.record.count("calls without an answer")
        except Over:
            self._resolved()
            self._ephemeral = None
            self.session.begin(self.timeout)

    def _resolved(self) -> None:
        """What had no outcome cannot be done any more."""
        now = clock()
        for path, call in self._pending:
            self.record.calls.setdefault(path, []).append(
                Call(call.begin, now, call.what, call.value, call.version, None, call.client)
            )
        self._pending.clear()

    def _finish(self) -> None:
        while True:
            try:
                if self.session.connection is None:
                    self.session.connect()
                self._resolved()
                self.session.call([zk.PING, []])
                if self._ephemeral is not None:
                    self._ephemeral.alive = self.session.lived
                    self._ephemeral.closing = clock()
                self.session.closing = True
                self.session.call([zk.CLOSE, []])
            except Lost:
                continue
            except Over:
                self._resolved()
            self.session.drop()
            return

    # -- work ---------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        dice = self.random.random()
        self._count += 1
        for share, work in (
            (0.26, self._write),
            (0.14, self._passing),
            (0.18, lambda: self._read(synced=True)),
            (0.14, lambda: self._read(synced=False)),
            (0.08, self._own),
            (0.06, self._line),
            (0.06, self._order),
            (0.05, self._look_at_others),
            (0.02, self._move),
            (0.006, self._close),
        ):
            if dice < share:
                work()
                return
            dice -= share

    def _change(self, path: str, what: str, value: str, version: int) -> None:
        """Change a znode that others change, too."""
        kind, arguments = {
            "create": (zk.CREATE2, [path, value.encode(), zk.OPEN, 0]),
            "write": (zk.SET_DATA, [path, value.encode(), version]),
            "delete": (zk.DELETE, [path, version]),
        }[what]
        call = Call(clock(), 0.0, what, value, version, None, f"client {self.number}")
        self._pending.append((path, call))
        ((_, zxid, code, result),) = self.session.call([kind, arguments])
        end = clock()
        self._pending.pop()
        answered: object = _CODES.get(code, code)
        if code == 0 and what == "write":
            answered = result["version"]
        self.record.calls.setdefault(path, []).append(
            Call(call.begin, end, what, value, version, answered, call.client)
        )
        if code == 0:
            znode = None if what == "delete" else (value, 0 if what == "create" else result["version"])
            self.record.wrote.append(Wrote(call.begin, end, path, znode, zxid, self.session.id))
            self._acknowledged(end)
            self._versions[path] = -1 if znode is None else znode[1]

    def _acknowledged(self, now: float) -> None:
        self.record.acknowledged.append(now)
        self.record.count("changes acknowledged")

    def _value(self) -> str:
        return f"{self.number}.{self._count}"

    def _write(self) -> None:
        path = self.random.choice(SHARED)
        version = self._versions.get(path, 0) if self.random.random() < 0.3 else ANY
        self._change(path, "write", self._value(), version)

    def _passing(self) -> None:
        path = self.random.choice(PASSING)
        what = self.random.choice(("create", "create", "write", "delete"))
        version = self._versions.get(path, 0) if what != "create" and self.random.random() < 0.3 else ANY
        self._change(path, what, "" if what == "delete" else self._value(), max(version, ANY))

    def _read(self, synced: bool) -> None:
        path = self.random.choice((*SHARED, *PASSING))
        begin = clock()
        requests = [[zk.SYNC, [path]]] if synced else []
        *_, (_, zxid, code, result) = self.session.call(*requests, [zk.GET_DATA, [path, False]])
        end = clock()
        znode = None if code else (result[0], result[1]["version"])
        self.record.seen.append(
            Seen(begin, end, path, znode, 0 if code else result[1]["mzxid"], zxid, synced, self.session.id)
        )
        if synced:
            answered = NO_NODE if code == -101 else znode if not code else code
            self.record.calls.setdefault(path, []).append(
                Call(begin, end, "read", "", ANY, answered, f"client {self.number}")
            )
        if znode is not None:
            self._versions[path] = znode[1]
        self.record.count("reads")

    def _own(self) -> None:
        name = f"/own/{self.number}-{self._count}"
        ((_, _, code, _),) = self.session.call([zk.CREATE, [name, b"x" * self.random.randrange(1_000), zk.OPEN, 0]])
        if code:
            self.record.wrong.append(f"{name} could not be created: {code}")
        self.record.created.append(name)
        self._acknowledged(clock())

    def _line(self) -> None:
        begin = clock()
        ((_, _, code, result),) = self.session.call([zk.CREATE, ["/lines/n", str(self.number).encode(), zk.OPEN, 2]])
        if code:
            self.record.wrong.append(f"a sequential znode could not be created: {code}")
        self.record.lines.append((result, begin, clock()))
        self._acknowledged(clock())

    def _order(self) -> None:
        """Several changes at once: if one is done, so are those ahead of it."""
        prefix, count = f"{self.number}-{self._count}-", self.random.randint(2, 8)
        index = len(self.record.orders)
        self.record.orders.append((prefix, count, 0))
        try:
            self.session.call(*([zk.CREATE, [f"/order/{prefix}{each}", b"", zk.OPEN, 0]] for each in range(count)))
        finally:
            answered = [answer for answer in self.session.partial if answer[2] != -118]
            if any(answer[2] for answer in answered):
                self.record.wrong.append(f"/order/{prefix}* could not be created: {answered}")
            self.record.orders[index] = prefix, count, len(answered)
        self._acknowledged(clock())

    def _make_ephemeral(self) -> None:
        path = f"/ephemerals/{self.number}"
        ((_, _, code, _),) = self.session.call([zk.CREATE, [path, b"", zk.OPEN, 1]])
        if code == -110:  # that of the session before, or a create without an answer was done
            ((_, _, code, stat),) = self.session.call([zk.EXISTS, [path, False]])
            if code or stat["owner"] != self.session.id:
                time.sleep(0.05)
                return
        elif code:
            self.record.wrong.append(f"{path} could not be created: {code}")
        self._ephemeral = Ephemeral(path, self.session.id, clock())
        self.record.ephemerals.append(self._ephemeral)

    def _look_at_others(self) -> None:
        path = f"/ephemerals/{self.random.randrange(self.clients)}"
        begin = clock()
        _, (_, _, code, stat) = self.session.call([zk.SYNC, [path]], [zk.EXISTS, [path, False]])
        self.record.absent.append((begin, clock(), path, 0 if code else stat["owner"]))

    def _move(self) -> None:
        """Go to another member. Half of the clients never move on their own, so that the leader hears of their sessions
        from one member only.
        """
        if self.number % 2:
            self.session.drop()

    def _close(self) -> None:
        if self._ephemeral is not None:
            self._ephemeral.closing = clock()
        self._ephemeral = None
        self.session.closing = True
        self.session.call([zk.CLOSE, []])
        self.session.drop()
        self.session.begin(self.timeout)
        self._resolved()
