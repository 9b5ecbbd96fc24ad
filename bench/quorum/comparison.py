"""Random operations, one after another, on our quorum and on a real ZooKeeper ensemble: both answer the same, although
our leader is killed meanwhile.

The steps are those that compare single services (``tests/metadata/workload.py``): several clients, all kinds of
changes, reads and watches, and sessions that open, close and expire. Here clients also move from member to member, and
members are hurt while they work.

Answers, stats and events must be equal, except for times, session ids and zxids. Zxids must have the same order: each
of ours corresponds to one of ZooKeeper's, and a later one to a later one.

An answer may be lost with a connection. Then the client resumes its session at any member, and reads how far the zxid
has advanced since the step began. The advance is the number of changes of the step that took effect, and these must be
its first ones. The same changes are then made on ZooKeeper, whose client also drops its connection. Both set their
watches again.
"""

from __future__ import annotations

import bisect
import contextlib
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from bench.quorum.clients import workload, zk
from bench.quorum.network import Network
from bench.quorum.processes import Processes
from interop.ensembles import Ensemble
from interop.metadata_differential import SETTINGS

WATCHED = (["/a", "/b"], ["/a", "/c/a"], ["/a", "/b/a"], ["/b"], ["/c", "/"])
"""What is watched again after a connection was lost: data, existence, children, always, recursively."""

PATIENCE = 20.0
"""Seconds that a client waits for an answer before it takes its connection for lost, of ZooKeeper; and of ours, to have
a connection again.
"""

OURS_ANSWERS = 2.0
"""Seconds that a client of ours waits for an answer."""

WALK_EVERY = 2_500
"""Operations between two comparisons of all znodes."""

_LOST = (zk.Closed, OSError)
_LOW = (1 << 32) - 1


class Different(Exception):
    """They are not the same."""


class Pairs:
    """Which zxid of ours is which of ZooKeeper's."""

    def __init__(self) -> None:
        self._ours: dict[int, int] = {}
        self._theirs: dict[int, int] = {}
        self._order: list[int] = []

    def same(self, ours: int, theirs: int, state: bool = False) -> bool:
        """Whether they can be the same. ``state``: they are the zxids that answers have, of the last change that was
        applied; with ZooKeeper it may be the beginning of an epoch, in which nothing was changed yet.
        """
        if ours <= 0 or theirs <= 0:
            return ours == theirs
        if state and not theirs & _LOW:
            return True
        known = self._ours.get(ours)
        if known is not None or theirs in self._theirs:
            return known == theirs
        at = bisect.bisect(self._order, ours)
        below, above = self._order[at - 1 : at], self._order[at : at + 1]
        if (below and self._ours[below[0]] > theirs) or (above and self._ours[above[0]] < theirs):
            return False
        self._order.insert(at, ours)
        self._ours[ours], self._theirs[theirs] = theirs, ours
        return True

    def is_ahead(self, ours: int, theirs: int) -> bool:
        """Whether ours stands for one of ZooKeeper's that comes later."""
        return self._ours.get(ours, 0) > theirs

    def equal(self, ours: Any, theirs: Any) -> bool:
        """Whether answers, stats and events are the same."""
        if isinstance(ours, dict) and isinstance(theirs, dict):
            return ours.keys() == theirs.keys() and all(
                self.same(ours[key], theirs[key]) if key.endswith("zxid") else self.equal(ours[key], theirs[key])
                for key in ours
            )
        if isinstance(ours, list) and isinstance(theirs, list):
            if len(ours) != len(theirs):
                return False
            if ours[:1] == ["reply"] == theirs[:1]:
                return self.same(ours[2], theirs[2], state=True) and self.equal(ours[3:], theirs[3:])
            if ours[:1] == ["event"] == theirs[:1]:
                return ours[1:3] == theirs[1:3] and self.same(ours[3], theirs[3])
            return all(self.equal(one, other) for one, other in zip(ours, theirs, strict=True))
        return bool(ours == theirs)


class Side:
    """The clients of one service, each with a session and a connection to some member."""

    def __init__(self, ports: Sequence[int], answers: float, random: Random) -> None:
        self.ports = list(ports)
        self.answers = answers
        self.random = random
        self.clients: dict[int, Any] = {}
        self.lost: set[int] = set()
        """Clients whose connection is gone."""
        self.ordered: set[int] = set()
        """The zxids of changes that a client was answered."""

    def connection(
        self, timeout: int, old: Any = None, password: bytes | None = None, read_only: bool | None = False
    ) -> tuple[Any, list[Any]]:
        """A connection to any member, with a new session or with one that there is; and the answer. Tried again and
        again.
        """
        end = time.monotonic() + PATIENCE + 40
        while True:
            try:
                client = zk.Client(self.random.choice(self.ports), self.answers)
            except OSError:
                client = None
            if client is not None:
                try:
                    if old is None:
                        return client, client.connect(timeout, read_only=read_only)
                    answer = client.connect(
                        timeout, old.session, old.password if password is None else password, old.last_zxid
                    )
                    client.last_zxid = old.last_zxid
                    return client, answer
                except _LOST:
                    client.drop()
            if time.monotonic() > end:
                raise Different(f"no member of {self.ports} takes a connection")
            time.sleep(0.03)

    def again(self, index: int) -> None:
        """Connect a client again, with its session."""
        old = self.clients[index]
        old.drop()
        client, answer = self.connection(workload.LONG, old)
        if not answer[1]:
            raise Different(f"the session of client {index} is over: {answer}")
        self.clients[index] = client
        self.lost.discard(index)

    def call(self, index: int, *requests: list[Any]) -> list[list[Any]]:
        """What came of requests that are sent at once: replies and events. What had come before a connection was lost
        is given, and the client is among ``lost``.
        """
        client = self.clients[index]
        left = len(requests)
        found: list[list[Any]] = []
        try:
            client.send(*requests)
            while left:
                each = client.read()
                found.append(each)
                left -= each[0] == "reply"
        except _LOST:
            self.lost.add(index)
        client.stream.clear()
        for each in found:
            if each[0] == "reply" and client.kinds[each[1]] not in (zk.CLOSE, zk.PING, zk.SYNC):
                self.ordered.add(each[2])
        return found

    def send_syncs(self) -> None:
        """Have all clients ask for a sync."""
        for index, client in self.clients.items():
            if index not in self.lost:
                try:
                    client.send([zk.SYNC, ["/"]])
                except OSError:
                    self.lost.add(index)

    def after_sync(self, index: int) -> tuple[list[list[Any]], int]:
        """What a client gets up to the answer to the sync, and the zxid there; if its connection is lost, what had
        come, and 0.
        """
        client, found = self.clients[index], []
        try:
            while index not in self.lost and (each := client.read())[0] == "event":
                found.append(each)
        except _LOST:
            self.lost.add(index)
        client.stream.clear()
        return found, 0 if index in self.lost else each[2]

    def synced(self, index: int) -> tuple[list[list[Any]], int]:
        """What a client gets up to the answer to a sync, and the zxid there; connected again if need be. What is lost
        is not given.
        """
        while True:
            found = self.call(index, [zk.SYNC, ["/"]])
            if index not in self.lost:
                return found[:-1], found[-1][2]
            self.again(index)

    def shown(self, found: list[list[Any]]) -> list[Any]:
        """Without times; owners are clients. Events of a change that nobody was answered, as the end of a session, have
        no promised order.
        """
        result: list[Any] = []
        unordered: list[Any] = []
        for each in [*found, ["end"]]:
            if each[0] == "event" and each[3] not in self.ordered and each[3] != -1:
                unordered.append(each)
                continue
            result += sorted(unordered)
            unordered = []
            if each[0] != "end":
                result.append(self._without_times(each))
        return result

    def _without_times(self, value: Any) -> Any:
        if isinstance(value, dict):
            sessions = {client.session: index for index, client in self.clients.items()}
            kept = {key: each for key, each in value.items() if key not in ("ctime", "mtime", "owner")}
            return {**kept, "owner": value["owner"] and sessions.get(value["owner"], -1)}
        return [self._without_times(each) for each in value] if isinstance(value, list) else value


class Harm:
    """Hurts members of ours from a thread, one at a time; :meth:`calm` waits until all is well, and keeps it so."""

    def __init__(self, members: Processes, network: Network, random: Random, pause: float) -> None:
        self.members = members
        self.network = network
        self.random = random
        self.pause = pause
        self.done: Counter[str] = Counter()
        self.failure = ""
        self._ended = threading.Event()
        self._calm = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, with all well."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(60)

    @contextlib.contextmanager
    def calm(self) -> Any:
        """Nobody is hurt meanwhile."""
        with self._calm:
            self.members.wait_for_leader()
            yield

    def _run(self) -> None:
        try:
            while not self._ended.wait(self.pause * (0.5 + self.random.random())):
                with self._calm:
                    self._hurt()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"

    def _hurt(self) -> None:
        members, random = self.members, self.random
        leader = members.wait_for_leader()
        member = leader if random.random() < 0.7 else random.choice(list(members.running))
        name = "the leader" if member == leader else "a follower"
        dice, lasts = random.random(), random.uniform(0.0, 1.5)
        if dice < 0.45:
            self.done[f"kill -9 of {name}"] += 1
            members.kill(member)
            self._until_led(lasts)
            members.start(member)
        elif dice < 0.65:
            self.done[f"{name} is frozen"] += 1
            members.freeze(member)
            self._until_led(lasts)
            members.thaw(member)
        elif dice < 0.8:
            self.done[f"{name} hands over and starts again"] += 1
            members.kill(member, signal.SIGTERM)
            members.start(member)
        else:
            self.done[f"{name} is cut off"] += 1
            others = [other for other in members.endpoints if other != member]
            pairs = {(member, other) for other in others} if dice < 0.9 else set()
            pairs |= {(other, member) for other in others} if not 0.85 < dice < 0.9 else set()
            self.network.cut(pairs)
            time.sleep(lasts)
            self.network.heal(pairs, breaks=random.random() < 0.5)

    def _until_led(self, at_least: float) -> None:
        time.sleep(at_least)


class Comparison:
    """The steps of a seed, on both."""

    def __init__(
        self, ours: Side, theirs: Side, harm: Harm, ensemble: Ensemble, seed: int, say: Callable[[str], None]
    ) -> None:
        self.ours = ours
        self.theirs = theirs
        self.harm = harm
        self.ensemble = ensemble
        self.random = Random(f"{seed} moves")
        self.work = workload.Workload(seed, expiring=0.0002)
        self.pairs = Pairs()
        self.operations = 0
        self.compared = 0
        """Answers and events."""
        self.counts: Counter[str] = Counter()
        self.before: deque[Any] = deque(maxlen=8)
        self.say = say
        self._zxid = 0
        self._their_zxid = 0

    def run(self, operations: int) -> None:
        """Raises :class:`Different`."""
        walked, killed, said_at = 0, 0, time.monotonic()
        for step in self.work.steps(operations):
            step = _plain(step)
            self.before.append(step)
            self._step(step)
            if self.random.random() < 0.03:
                self._move(self.random.choice(list(self.ours.clients)))
            if self.operations - walked >= WALK_EVERY:
                walked = self.operations
                self._walk()
            if self.operations - killed >= 4 * WALK_EVERY:
                killed = self.operations
                self._kill_theirs()
            if time.monotonic() - said_at > 10:
                said_at = time.monotonic()
                self.say(
                    f"{self.operations:8,} operations  {self.compared:9,} answers and events "
                    f" {sum(self.harm.done.values()):4} harms"
                )
            if self.harm.failure:
                raise Different(self.harm.failure)
        self._walk()

    def _step(self, step: list[Any]) -> None:
        kind, index, *rest = step
        if kind == "calls":
            self._calls(index, rest[0])
        elif kind == "reconnect":
            self._reconnect(index, *rest)
        else:
            with self.harm.calm():
                self._catch_up()
                getattr(self, f"_{kind}")(index, *rest)
                self._catch_up()
        self._catch_up()

    def _same(self, ours: Any, theirs: Any, what: str) -> None:
        self.compared += len(ours) if isinstance(ours, list) else 1
        if not self.pairs.equal(ours, theirs):
            raise Different(f"{what}:\n   ours    {ours}\n   theirs  {theirs}")

    def _catch_up(self) -> None:
        """Everybody has everything that was done, and got the same events."""
        zxids: list[tuple[int, int]] = []
        for side in (self.ours, self.theirs):
            side.send_syncs()
        for index in self.ours.clients:
            ours, zxid = self.ours.after_sync(index)
            theirs, their_zxid = self.theirs.after_sync(index)
            if index in self.theirs.lost:
                raise Different(f"ZooKeeper closed the connection of client {index}")
            end = time.monotonic() + PATIENCE
            while self.pairs.is_ahead(zxid, their_zxid) and time.monotonic() < end:
                # A sync of ZooKeeper's goes through no log, and is at times answered by a follower that has not applied
                # the last change.
                self.counts["syncs that ZooKeeper answered early"] += 1
                more, their_zxid = self.theirs.synced(index)
                theirs += more
            zxids.append((zxid, their_zxid))
            if index in self.ours.lost:
                self._after_loss(index, ours, theirs)
            else:
                self._same(self.ours.shown(ours), self.theirs.shown(theirs), f"what client {index} heard")
        for zxid, their_zxid in zxids:
            if not zxid:
                continue
            if not self.pairs.same(zxid, their_zxid, state=True):
                raise Different(f"all is applied at zxid {zxid:#x} and {their_zxid:#x}")
            self._zxid, self._their_zxid = zxid, their_zxid

    def _after_loss(self, index: int, ours: list[list[Any]], theirs: list[list[Any]]) -> None:
        """A connection of ours was lost while others worked: what it has heard until then, ZooKeeper's has heard,
        too.
        """
        self.counts["connections lost"] += 1
        self.ours.again(index)
        self.ours.synced(index)
        left = Counter((each[1], each[2]) for each in theirs if each[0] == "event")
        left.subtract(Counter((each[1], each[2]) for each in ours if each[0] == "event"))
        if any(count < 0 for count in left.values()):
            raise Different(f"client {index} heard {ours} before its connection was lost, and ZooKeeper's of {theirs}")
        self._watch_again(index)

    def _watch_again(self, index: int) -> None:
        """Both come by a new connection, and set their watches: they hear what has happened since the last step."""
        self.theirs.again(index)
        ours = self.ours.call(index, [zk.SET_WATCHES2, [self._zxid, *WATCHED]])
        while index in self.ours.lost:
            self.ours.again(index)
            self.ours.synced(index)
            ours = self.ours.call(index, [zk.SET_WATCHES2, [self._zxid, *WATCHED]])
        theirs = self.theirs.call(index, [zk.SET_WATCHES2, [self._their_zxid, *WATCHED]])
        self._same(self.ours.shown(ours), self.theirs.shown(theirs), f"what client {index} heard when it watched again")

    # -- steps --------------------------------------------------------------------------------------------------------

    def _calls(self, index: int, operations: list[Any]) -> None:
        self.operations += len(operations)
        if index in self.ours.lost:
            self.ours.again(index)
        ours = self.ours.call(index, *operations)
        if index not in self.ours.lost:
            theirs = self.theirs.call(index, *operations)
            if index in self.theirs.lost:
                raise Different("ZooKeeper closed a connection, and ours did not")
            self._same(
                self.ours.shown(ours), self.theirs.shown(theirs), f"what client {index} was answered to {operations}"
            )
            return
        # Nobody knows what was done.
        self.ours.again(index)
        _, zxid = self.ours.synced(index)
        answered = sum(each[0] == "reply" for each in ours)
        self.counts["operations whose answer was lost"] += len(operations) - answered
        done, begin = 0, self._their_count(index)
        theirs = []
        while done < answered or (done < len(operations) and self._their_count(index) - begin < zxid - self._zxid):
            theirs += self.theirs.call(index, operations[done])
            done += 1
        changed = self._their_count(index) - begin
        if changed != zxid - self._zxid:
            raise Different(
                f"of {operations}, {answered} were answered, and ours has done {zxid - self._zxid} changes, ZooKeeper"
                f" {changed}"
            )
        self.counts["of them done"] += done - answered
        replies = [[each for each in found if each[0] == "reply"] for found in (ours, theirs)]
        self._same(
            self.ours.shown(replies[0]),
            self.theirs.shown(replies[1][:answered]),
            f"what client {index} was answered to {operations}",
        )
        self._watch_again(index)

    def _their_count(self, index: int) -> int:
        """How many zxids ZooKeeper has taken in its epoch."""
        return self.theirs.synced(index)[1] & _LOW

    def _move(self, index: int) -> None:
        """A client goes to any member."""
        self.counts["moves"] += 1
        self.ours.again(index)
        self.ours.synced(index)
        self._watch_again(index)

    def _reconnect(self, index: int, how: str, watches: bool) -> None:
        """Take a session up again, with a wrong password, or while its connection is still there."""
        self.operations += 1
        sides = (self.ours, self.theirs)
        if how == "wrong":
            answers = []
            for side in sides:
                side.clients[index].drop()
                client, answer = side.connection(workload.LONG, side.clients[index], bytes(16))
                client.drop()
                answers.append(answer[1:])
            self._same(answers[0], answers[1], "the answer to a wrong password")
        if how == "again":  # the connection before is not left until the next one is there
            for side in sides:
                old = side.clients[index]
                client, answer = side.connection(workload.LONG, old)
                if not answer[1]:
                    raise Different(f"a session is over that is still connected: {answer}")
                side.clients[index] = client
                side.lost.discard(index)
                old.drop()
            return
        self._move(index)

    def _open(self, index: int, timeout: int, read_only: bool | None) -> None:
        self.operations += 1
        answers = []
        for side in (self.ours, self.theirs):
            client, answer = side.connection(timeout, read_only=read_only)
            side.clients[index] = client
            answers.append(answer)
        self._same(answers[0], answers[1], f"the answer to a session of {timeout}")
        if answers[0][0] < workload.LONG:
            self._close(index)
            self._open(index, workload.LONG, read_only)

    def _close(self, index: int) -> None:
        self.operations += 1
        found = []
        for side in (self.ours, self.theirs):
            reply = side.call(index, [zk.CLOSE, []])
            if index in side.lost:
                raise Different(f"a session could not be closed: {reply}")
            found.append(side.shown(reply))
            side.clients.pop(index).drop()
        self._same(found[0], found[1], f"the end of the session of client {index}")

    def _expire(self, index: int, operations: list[Any]) -> None:
        """A session of a short timeout comes, does something, and is heard of no more."""
        self.operations += 1 + len(operations)
        found: list[list[Any]] = []
        short = max(self.ours.clients) + 100
        sides = (self.ours, self.theirs)
        for side in sides:
            client, answer = side.connection(1)
            side.clients[short] = client
            taken = side.call(short, *operations, [zk.CREATE, ["/expires", b"", zk.OPEN, 1]])
            found.append([answer, side.shown(taken)])
        self._same(found[0], found[1], "what a session did that was to expire")
        for side in sides:
            side.clients[short].drop()
        deadline = time.monotonic() + 60
        for side in sides:
            while any(
                each[0] == "reply" and not each[3]
                for each in side.call(index, [zk.SYNC, ["/"]], [zk.EXISTS, ["/expires", False]])[-1:]
            ):
                if time.monotonic() > deadline:
                    raise Different("a session does not expire")
                for other in (*self.ours.clients, *self.theirs.clients):
                    if other != short:
                        for either in sides:
                            either.clients[other].send([zk.PING, []])
                            either.clients[other].answers(1)
                time.sleep(0.1)
        refused = []
        for side in sides:
            client, answer = side.connection(workload.LONG, side.clients.pop(short))
            client.drop()
            refused.append(answer[1:])
        self._same(refused[0], refused[1], "the answer to a session that has expired")
        # The events of the end of a session came while it was waited for, on one side sooner than on the other.
        for each in list(self.ours.clients):
            for side in sides:
                side.synced(each)
                side.clients[each].stream.clear()
        for each in list(self.ours.clients):
            self.ours.again(each)
            self.ours.synced(each)
            self._watch_again(each)
        self.counts["sessions that expired"] += 1

    def _kill_theirs(self) -> None:
        """ZooKeeper's leader is killed between two operations."""
        ensemble = self.ensemble
        server = ensemble.servers[ensemble.leader]
        server.kill()
        server.start()
        end = time.monotonic() + 60
        while not ensemble.leader and time.monotonic() < end:
            time.sleep(0.1)
        for index in self.theirs.clients:
            self.theirs.again(index)
            self.theirs.synced(index)
            self._move(index)
        self.counts["kills of ZooKeeper's leader"] += 1

    # -- everything ---------------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        """All znodes are the same, on every member."""
        with self.harm.calm():
            self._catch_up()
            index = next(iter(self.ours.clients))
            trees = []
            for side in (self.ours, self.theirs):
                whole = []
                ports = side.ports
                for port in ports:
                    side.ports = [port]
                    side.again(index)
                    side.synced(index)
                    whole.append(self._tree(side, index))
                side.ports = ports
                if any(each != whole[0] for each in whole):
                    raise Different("members of one service have different znodes")
                trees.append(whole[0])
            self._same(trees[0], trees[1], "all znodes")
            self.counts["comparisons of all znodes"] += 1
            self._move(index)

    def _tree(self, side: Side, index: int) -> list[Any]:
        found = []
        paths = ["/"]
        while paths:
            path = paths.pop(0)
            if path == "/zookeeper/config":
                continue
            replies = side.call(
                index, [zk.GET_DATA, [path, False]], [zk.GET_CHILDREN, [path, False]], [zk.GET_ACL, [path]]
            )
            replies = [each for each in replies if each[0] == "reply"]
            found.append([path, *(each[3:] for each in side.shown(replies))])
            paths += [f"{path if path != '/' else ''}/{name}" for name in replies[1][4] or ()]
        return found


def _plain(step: list[Any]) -> list[Any]:
    """A step without what a ZooKeeper ensemble does not answer as a server alone: ``/zookeeper/config`` has its
    members, and to a change that cannot be read a follower gives no answer at all.
    """
    kind, index, *rest = step
    if kind not in ("calls", "expire"):
        return step
    return [kind, index, [_answered(each) for each in rest[0]]]


def _answered(operation: list[Any]) -> list[Any]:
    kind, arguments = operation
    if kind == zk.MULTI:
        known = (zk.CREATE, zk.CREATE2, zk.CREATE_CONTAINER, zk.DELETE, zk.SET_DATA, zk.CHECK)
        creates = (zk.CREATE, zk.CREATE2, zk.CREATE_CONTAINER)
        kept = [
            each
            for each in arguments
            if each[0] in known and not (each[0] in creates and (each[1][2] is None or each[1][3] not in range(5)))
        ]
        return [kind, [_answered(each) for each in kept]]
    if kind == zk.MULTI_READ:
        return [kind, [_answered(each) for each in arguments]]
    if not arguments and kind in (zk.CREATE, zk.SET_DATA):
        return [zk.PING, []]
    return [kind, ["/zookeeper/quota" if each == "/zookeeper/config" else each for each in arguments]]


def compare(path: Path, seed: int, operations: int, pause: float, say: Callable[[str], None]) -> tuple[Comparison, str]:
    """Do it; what was compared, and what is different, if anything. ``pause``: mean seconds between two harms."""
    random = Random(seed)
    settings = path / "settings.toml"
    ours = {**SETTINGS, "snapCount": 3_000}
    settings.write_text(
        "".join(f"{name} = {value}\n" for name, value in ours.items()) + "znode.container.checkIntervalMs = 100000000\n"
    )
    network = Network()
    members = Processes(path, 3, ["--settings", str(settings), "--verbose"], network)
    ensemble = Ensemble(path, 3, dict(SETTINGS))
    harm = Harm(members, network, Random(f"{seed} harm"), pause)
    sides = (
        Side(list(members.ports.values()), OURS_ANSWERS, random),
        Side(list(ensemble.ports.values()), PATIENCE, Random(f"{seed} theirs")),
    )
    comparison = Comparison(*sides, harm, ensemble, seed, say)
    different = ""
    with contextlib.ExitStack() as ends:
        for end in (network.close, members.close, ensemble.kill, harm.stop):
            ends.callback(end)
        ensemble.start()
        members.start()
        harm.start()
        try:
            comparison.run(operations)
        except Different as error:
            steps = "\n   ".join(map(str, comparison.before))
            different = f"after {comparison.operations:,} operations: {error}\nthe last steps:\n   {steps}"
    return comparison, different


__all__ = ("compare",)
