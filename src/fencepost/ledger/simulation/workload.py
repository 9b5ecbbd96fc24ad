"""The clients of a run: one writes a ledger, some recover it, some read along, and one has the wrong key. At the end
the ledger is closed and read. Also campaigns of many runs with one profile, see :mod:`.seeds`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from fencepost.ledger.client.loops import MODULES, Loops, RowLoops
from fencepost.ledger.entries import Digests, Entry, master_key
from fencepost.ledger.messages import (
    AddEntry,
    BatchRead,
    BatchReadResponse,
    GetBookieInfo,
    ListEntries,
    ReadEntry,
    Request,
)
from fencepost.ledger.roles.adds import PLAIN
from fencepost.ledger.roles.interface import PLACING, Effect, Error, Event, Received, Result
from fencepost.ledger.roles.reader import Reader, ReaderSettings
from fencepost.ledger.roles.recoverer import Recoverer, RecovererSettings
from fencepost.ledger.roles.writer import Writer, WriterSettings
from fencepost.ledger.rules.metadata import DigestType
from fencepost.ledger.rules.protections import ALL, Protections
from fencepost.ledger.simulation.bookie import WORTH, BookieProcess
from fencepost.ledger.simulation.case import DEADLINE, DEFAULT, HORIZON, Case, drawn, near
from fencepost.ledger.simulation.client import ClientProcess
from fencepost.ledger.simulation.cluster import Cluster, Outcome
from fencepost.ledger.simulation.judge import Violation
from fencepost.ledger.simulation.story import Story
from fencepost.simulation import seeds
from fencepost.simulation.schedule import unlogged
from fencepost.simulation.trace import SimTrace

LEDGER = 7
"""The ledger of every run."""

PASSWORD = b"fencepost"

LOOPS = Loops(MODULES, WORTH)

AGAIN = 15_000
"""Microseconds before a client retries a failed operation."""


class Owner:
    """The writer's program. It appends in bursts, one by one or in batches; forces entries with deferred sync; and may
    close the ledger.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        case = cluster.case
        random = case.stream("writer")
        self.random = random.random
        self.deferred = self.random() < 0.15
        settings = WriterSettings(
            case.ensemble,
            case.write_quorum,
            case.ack_quorum,
            PASSWORD,
            DigestType.HMAC if self.random() < 0.2 else DigestType.CRC32,
            creation_token=random.getrandbits(63),
            in_flight_limit=(1, 3, 1000)[int(self.random() * 3)],
            deferred_sync=self.deferred,
            explicit_lac_interval=5_000 if self.random() < 0.5 else 0,
            metadata_retry_delay=AGAIN,
        )
        self.closes = self.random() < 0.6
        self.batches = case.stream("batches").random
        self.batched = (0.0, 0.5, 0.9)[int(self.batches() * 3)]
        """The share of bursts that are appended as one batch."""
        self.appends: deque[tuple[int, range]] = deque()
        """Unanswered appends, with the positions not confirmed yet."""
        self.creating = self.closing = 0
        self.forcing: set[int] = set()
        self.answered: set[int] = set()
        self.most = (3, 8, 20, 100)[int(self.random() * 4)]
        self.pause = int(self.random() * 1_000_000 * min(self.most, 20) / (case.entries + 3) / 4)
        loops = RowLoops(LOOPS) if cluster.by_rows else PLAIN
        self.writer = Writer(LEDGER, settings, case.protections, loops, cluster.trace.is_read)
        self.process = ClientProcess("w", cluster, random, self.writer, self._result, self._confirmed)
        cluster.judge.created(LEDGER, master_key(PASSWORD))
        cluster.digests = Digests(settings.digest_type, PASSWORD)
        cluster.schedule.at(5_000, self._create)

    def _create(self) -> None:
        self.creating = self.process.calls + 1
        self.process.call("create")

    def _burst(self) -> None:
        case, history = self.cluster.case, self.cluster.judge.ledgers[LEDGER]
        burst: list[bytes] = []
        for _ in range(1 + int(self.random() * self.random() * self.most)):
            place = len(history.appended) + len(burst)
            if place == case.entries:
                break
            burst.append(f"entry {place} ".encode() * (1 + int(self.random() ** 6 * 120)))
        for entries in [burst] if self.batched and self.batches() < self.batched else [[data] for data in burst]:
            if entries:
                self._append(entries)
        if self.deferred and self.random() < 0.5:
            self.cluster.schedule.after(int(self.random() ** 3 * 60_000), self._force)
        if len(history.appended) < case.entries:
            self.cluster.schedule.after(int(self.random() * 2 * self.pause), self._burst)
            return
        at = int(self.random() * 2 * self.pause)
        if self.deferred:  # by then, bookies that were away may be back, with what they still have
            for _ in range(3):
                at += int(self.random() * 100_000)
                self.cluster.schedule.after(at, self._force)
        if self.closes:
            self.cluster.schedule.after(at, self._close)

    def _append(self, entries: list[bytes]) -> None:
        judge = self.cluster.judge
        places = range(first := len(judge.ledgers[LEDGER].appended), first + len(entries))
        for data in entries:
            judge.appended(LEDGER, data)
        # The role may answer before its call returns the token.
        self.appends.append((self.process.calls + 1, places))
        self.process.append(entries)

    @property
    def waits(self) -> bool:
        """Whether a call is unanswered. A crashed process gets no answers."""
        return self.process.alive and len(self.answered) < self.process.calls

    def _force(self) -> None:
        self.forcing.add(self.process.calls + 1)
        self.process.call("force")

    def _close(self) -> None:
        self.closing = self.process.calls + 1
        self.process.call("close")

    def _result(self, result: Result) -> None:
        token, judge = result.token, self.cluster.judge
        if token in self.answered:
            raise Violation("answers", f"{self.process.name} is answered twice")
        self.answered.add(token)
        if token in self.forcing or token == self.closing:
            if not result.error:
                for entry_id in range(judge.ledgers[LEDGER].acknowledged + 1, result.value + 1):
                    judge.acknowledged(LEDGER, entry_id, entry_id)
                if token == self.closing:
                    judge.ended(self.process.name, LEDGER, result.value)
        elif token != self.creating:
            self.appends = deque(append for append in self.appends if append[0] != token)
        elif result.error in PLACING.values():
            self.cluster.schedule.after(AGAIN, self._create)
        elif not result.error:
            self.cluster.schedule.after(0, self._burst)

    def _confirmed(self, entry_id: int) -> None:
        """Entries up to this one are confirmed."""
        while self.appends and self.appends[0][1][0] <= entry_id:
            token, places = self.appends.popleft()
            done = min(len(places), entry_id - places[0] + 1)
            if not self.deferred:
                for place in places[:done]:
                    self.cluster.judge.acknowledged(LEDGER, place, place)
            if done < len(places):
                self.appends.appendleft((token, places[done:]))
                return
            if token in self.answered:
                raise Violation("answers", f"{self.process.name} is answered twice")
            self.answered.add(token)


class Heir:
    """The program of a client that recovers the ledger until it is closed."""

    def __init__(self, name: str, cluster: Cluster, start: int) -> None:
        self.cluster = cluster
        random = cluster.case.stream(name)
        settings = RecovererSettings(
            PASSWORD,
            in_flight_limit=(1, 2, 5)[int(random.random() * 3)],
            restart_delay=5_000 + int(random.random() * 25_000),
            restart_jitter=30_000,
            metadata_retry_delay=AGAIN,
        )
        self.process = ClientProcess(
            name,
            cluster,
            random,
            Recoverer(LEDGER, settings, cluster.case.protections, cluster.trace.is_read),
            self._result,
        )
        self.closed = False
        cluster.schedule.at(start, self._recover)

    def _recover(self) -> None:
        self.process.call("recover")

    def _result(self, result: Result) -> None:
        if not result.error:
            self.closed = True
            self.cluster.judge.ended(self.process.name, LEDGER, result.value.last_entry)
        elif self.cluster.schedule.now < DEADLINE:
            self.cluster.schedule.after(AGAIN, self._recover)


class Follower:
    """The program of a client that reads the ledger without recovering it, as entries are confirmed, until it ends.

    It begins anywhere in the ledger. Now and then it asks for the LAC, and for entries that it has read before. It
    reads some as a range and some individually. ``whole``: it begins at the first entry, and everything it requests
    must eventually be answered.
    """

    def __init__(self, name: str, cluster: Cluster, start: int, whole: bool = False) -> None:
        self.cluster = cluster
        random = cluster.case.stream(name)
        self.random = random.random
        settings = ReaderSettings(
            PASSWORD,
            speculation_delay=2_000 + int(self.random() * 20_000),
            poll_wait=50_000,
            metadata_retry_delay=AGAIN,
        )
        self.role = Reader(LEDGER, settings, cluster.case.protections, traces=cluster.trace.is_read)
        self.process = ClientProcess(name, cluster, random, self.role, self._result)
        self.batches = cluster.case.stream(f"{name} batches").random
        self.whole = whole
        self.next = 0 if whole or self.random() < 0.5 else int(self.random() * cluster.case.entries)
        self.lac = -1
        self.ended = False
        self.asked: dict[int, tuple[str, int, int]] = {}
        cluster.schedule.at(start, self._ask, "open", -1)

    def _ask(self, operation: str, entry_id: int) -> None:
        # The role may answer before its call returns the token.
        self.asked[self.process.calls + 1] = (operation, entry_id, self.lac)
        self.process.call(operation, *(() if entry_id < 0 else (entry_id,)))

    def _result(self, result: Result) -> None:
        operation, entry_id, lac_before = self.asked.pop(result.token)
        judge, name, after = self.cluster.judge, self.process.name, self.cluster.schedule.after
        if result.error:
            if result.error is not Error.NO_LEDGER and self.cluster.schedule.now < DEADLINE:
                after(AGAIN, self._ask, operation, entry_id)
        elif operation in ("open", "lac"):
            judge.learnt_lac(name, LEDGER, result.value, lac_before)
            self.lac = max(self.lac, result.value)
            if operation == "open":
                after(0, self._ask, "tail", self.next)
        elif result.value is None:
            judge.past_end(name, LEDGER, entry_id)
            self.ended = True
        elif result.value is True:
            self._read(entry_id, self._follow)
        else:
            judge.read(name, LEDGER, entry_id, result.value)
            self._follow(entry_id + 1, Error.NONE)

    def _follow(self, entry_id: int, error: Error) -> None:
        """Wait for the next entry; or, after an error, for the one that failed."""
        after = self.cluster.schedule.after
        if error is Error.NO_LEDGER or (error and self.cluster.schedule.now >= DEADLINE):
            return
        after(AGAIN if error else int(self.random() * 500), self._ask, "tail", entry_id)
        if not self.whole:
            if self.random() < 0.1:
                after(int(self.random() * 5_000), self._ask, "lac", -1)
            if self.batches() < 0.3:
                after(int(self.batches() * 5_000), self._read, int(self.batches() * (entry_id + 1)))

    def _read(self, first: int, then: Callable[[int, Error], None] | None = None) -> None:
        """Read some consecutive entries, as a range or individually. ``then`` is called with the next entry, or with
        the first that failed and its error. Without it, the read may be cancelled.
        """
        judge, name, readings = self.cluster.judge, self.process.name, self.process.readings
        last = min(max(first, self.lac), first + int(self.batches() ** 2 * 20))
        together = self.batches() < 0.5
        left, stop, error = last - first + 1, last + 1, Error.NONE

        def take(entry_id: int, result: Result) -> None:
            nonlocal left, stop, error
            left = 0 if together and result.error else left - 1
            if not result.error:
                judge.read(name, LEDGER, entry_id, result.value)
            elif entry_id < stop:
                stop, error = entry_id, result.error
            if result.error is Error.NO_ENTRY:
                judge.missing(name, LEDGER, entry_id)
            if not left and then is not None:
                then(stop, error)

        if together:
            token = readings.read(first, last, take)
            if then is None and self.batches() < 0.1:
                self.cluster.schedule.after(int(self.batches() * 5_000), readings.forget, token)
        else:
            readings.want([*range(first, last + 1)], take)


class Impostor:
    """The program of a client with another key, which tries to write to the ledger and to fence it. It is its own role,
    and ignores all events.

    A bookie accepts the first key it sees for a ledger. So only bookies that already hold some of it are tried.
    """

    def __init__(self, cluster: Cluster, moments: list[int]) -> None:
        self.cluster = cluster
        stream = cluster.case.stream("impostor")
        self.random = stream.random
        self.key = master_key(b"another")
        self.process = ClientProcess("impostor", cluster, stream, self, lambda result: None)
        for txn in range(1, 9):
            cluster.schedule.at(near(moments, self.random), self._try, txn)

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Receive an event, as a role."""
        return []

    def _try(self, txn: int) -> None:
        history = self.cluster.judge.ledgers[LEDGER]
        holders = sorted(
            {bookie for bookies in history.stored.values() for bookie in bookies} - self.cluster.faults.damaged
        )
        if not holders or not self.process.alive:
            return
        bookie = holders[int(self.random() * len(holders))]
        entry_id = int(self.random() * (len(history.appended) + 2))
        if self.random() < 0.5:
            request: Request = ReadEntry(LEDGER, entry_id, fence=True, master_key=self.key)
        else:
            body = self.cluster.digests.entry_body(Entry(LEDGER, entry_id, -1, 1, b"wrong"))
            request = AddEntry(LEDGER, entry_id, -1, body, self.key, recovery=self.random() < 0.5)
        self.cluster.network.request(self.process, bookie, txn, request)


class Visitor:
    """The program of a client that asks bookies for batches of entries, lists of entries, and free space. It is its own
    role.
    """

    def __init__(self, cluster: Cluster, moments: list[int]) -> None:
        self.cluster = cluster
        stream = cluster.case.stream("visitor")
        self.random = stream.random
        self.process = ClientProcess("visitor", cluster, stream, self, lambda result: None)
        for txn in range(1, 9):
            cluster.schedule.at(near(moments, self.random), self._ask, txn)

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Receive an event, as a role. A bookie must send what was appended, unless it was damaged."""
        if isinstance(event, Received) and isinstance(event.response, BatchReadResponse):
            response, appended = event.response, self.cluster.judge.ledgers[LEDGER].appended
            for entry_id, body in enumerate(response.bodies, response.entry_id):
                entry = self.cluster.digests.open_entry(body, LEDGER, entry_id)
                is_right = entry is not None and [entry.data] == appended[entry_id : entry_id + 1]
                if not is_right and event.bookie not in self.cluster.faults.damaged:
                    raise Violation(
                        "no loss", f"{event.bookie} has another entry {entry_id} in a batch than was appended"
                    )
        return []

    def _ask(self, txn: int) -> None:
        if not self.process.alive:
            return
        names, random = sorted(self.cluster.bookies), self.random
        first, which = int(random() * (self.cluster.case.entries + 1)), random()
        request: Request = BatchRead(LEDGER, first, int(random() * 10), int(random() ** 2 * 4_000))
        if which < 0.4:
            request = ListEntries(LEDGER) if which < 0.2 else GetBookieInfo()
        self.cluster.network.request(self.process, names[int(random() * len(names))], txn, request)


class Workload:
    """The programs of all clients of a run. At the end, one further client closes the ledger, and another reads it.
    Then it may be deleted, and all bookies forget it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        random, moments = cluster.case.stream("workload").random, cluster.case.moments()
        self.owner = Owner(cluster)
        for number in range(1, cluster.case.recoverers + 1):
            Heir(f"r{number}", cluster, max(10_000, near(moments, random)))
        if "impostors" in cluster.case.faults:
            Impostor(cluster, moments)
        if cluster.case.stream("visits").random() < 0.5:
            Visitor(cluster, moments)
        self.deletes = cluster.case.stream("deletes").random() < 0.3
        self.is_deleted = False
        for number in range(1, cluster.case.readers + 1):
            Follower(f"reader{number}", cluster, max(10_000, near(moments, random)))
        self.last: Heir | None = None
        self.reader: Follower | None = None
        cluster.schedule.at(HORIZON + AGAIN, self._end)

    def _end(self) -> None:
        self.last = Heir("end", self.cluster, self.cluster.schedule.now + AGAIN)
        self.reader = Follower("audit", self.cluster, self.cluster.schedule.now + AGAIN, whole=True)

    def finished(self) -> bool:
        """Whether the run is complete: the ledger was closed and read; or it was never created and its writer is dead;
        or the case does not require it.
        """
        if self.reader is None or self.last is None:
            return False
        if self.last.closed and self.reader.ended and not self.owner.waits and self.cluster.is_repaired():
            return not self.deletes or self._is_forgotten()
        if not self.cluster.case.tolerated and self.cluster.schedule.now > 2 * HORIZON:
            return True
        return not (self.owner.process.alive or LEDGER in self.cluster.metadata.ledgers)

    def _is_forgotten(self) -> bool:
        """Whether all bookies have forgotten the ledger, after it was deleted."""
        bookies = [bookie for bookie in self.cluster.bookies.values() if not bookie.refuses]
        if not self.is_deleted:
            self.is_deleted = True
            self.cluster.metadata.delete(LEDGER)
            for bookie in bookies:
                self._forget(bookie)
        return all(bookie.alive and LEDGER not in bookie.storage.ledgers() for bookie in bookies)

    def _forget(self, bookie: BookieProcess) -> None:
        """Let a bookie look for deleted ledgers, again and again."""
        bookie.forget_deleted()
        self.cluster.schedule.after(AGAIN, self._forget, bookie)


def simulate(case: Case, story: Story | None = None, trace: SimTrace | None = None) -> Outcome:
    """Run a case to its end. The same case has the same outcome in every process. ``story`` records the steps, and
    ``trace`` what the processes trace; neither changes the run.
    """
    with unlogged():
        cluster = Cluster(case, story, trace)
        workload = Workload(cluster)
        return cluster.run(workload.finished)


@dataclass(frozen=True)
class Campaign(seeds.Campaign[Outcome]):
    """The seeds of a profile. ``promises``: those to check; all if empty."""

    protections: Protections = ALL
    profile: str = DEFAULT
    promises: tuple[str, ...] = ()
    counted: ClassVar[tuple[str, ...]] = ("events",)

    @property
    def name(self) -> str:
        """See :class:`.seeds.Campaign`."""
        return self.profile

    def simulated(self, seed: int, trace: SimTrace | None) -> seeds.Run[Outcome]:
        """See :class:`.seeds.Campaign`."""
        outcome = simulate(drawn(seed, self.profile, self.protections, self.promises), trace=trace)
        broken = ("", "") if outcome.violation is None else (outcome.violation.promise, outcome.violation.what)
        return seeds.Run(seed, outcome.trace_hash, outcome.time, {"events": outcome.events}, *broken, outcome)
