"""The environment of all processes of a world: time, network, bookies, metadata service and judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.ledger.entries import Digests, master_key
from fencepost.ledger.metadata import paths, serialization
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.simulation.bookie import BookieProcess
from fencepost.ledger.simulation.case import asked_of
from fencepost.ledger.simulation.environment import StoreEnvironment
from fencepost.ledger.simulation.judge import Violation
from fencepost.log.chain import Position
from fencepost.log.simulation.environment import Broken
from fencepost.log.simulation.judge import judge as judge_log
from fencepost.metadata.tree import Node, Transaction
from fencepost.quorum.simulation.judge import Violation as QuorumViolation
from fencepost.simulation.streams import Streams
from fencepost.simulation.trace import NodeTrace, SimTrace
from fencepost.world import metadata
from fencepost.world.bookies import Bookies
from fencepost.world.case import CLIENTS, Case
from fencepost.world.judge import LedgerJudge, LogHistory
from fencepost.world.process import Process

UNREPORTED = ("appends ", "commits ")
"""Prefixes of steps of quorum members that are not reported: there is one for each change at each member."""

Report = Callable[[int, str, str], None]
"""Receives a step of a run: the virtual time in microseconds, the process, and what happened."""


class Surroundings(StoreEnvironment):
    """The environment of a run's processes. :class:`fencepost.world.world.World` adds the clients."""

    collections = 0.02
    streams: Streams
    bookies: Bookies
    judge: LedgerJudge
    users: list[Process]
    """The clients that work until the faults are over."""
    replicators: list[Process]
    """The auto-recovery processes, which never end."""

    def __init__(self, case: Case, report: Report | None, trace: SimTrace | None) -> None:
        self.plan = case
        self.report = report
        self.uri = f"zk://{','.join(f'h{each}:{metadata.PORT}' for each in range(1, case.members + 1))}{metadata.ROOT}"
        super().__init__(case.of_store, None, trace)
        self.by_rows = False
        self.of_ledgers: dict[int, Digests] = {}
        self.sessions: dict[int, str] = {}
        self.ledgers: list[int] = []
        """The ledgers that do not belong to a log."""
        self.histories = [LogHistory(f"log{number}") for number in range(1, case.logs + 1)]
        self.gone: set[str] = set()
        """Bookies that are gone forever."""
        self.has_healed = False
        self.error: Exception | None = None
        """The first unexpected error or broken promise, raised anywhere."""
        self.restarts = case.stream("restarts").random
        self.quorum = metadata.Quorum(self, case.of_quorum, self.schedule, self._changed, self.trace)
        for number in range(1, case.bookies + 1):
            name = f"b{number}"
            self.bookies.add(BookieProcess(name, self, case.stream(name)))

    def trace_of(self, node: str, kind: str) -> NodeTrace | None:
        """The trace of a starting process; None if traces are not read."""
        return NodeTrace(self.trace, node, kind) if self.trace.is_read else None

    @property
    def processes(self) -> list[Process]:
        """All clients except those that begin and end a run."""
        return [*self.users, *self.replicators]

    def begin(self) -> None:
        """The cluster exists: start all clients."""
        for process in self.processes:
            process.start()

    def new_judge(self) -> LedgerJudge:
        """See :class:`.Environment`."""
        return LedgerJudge(asked_of(self.plan.placed, self.plan.placement))

    def new_network(self) -> Any:
        """See :class:`.Environment`."""
        case = self.plan
        self.streams = Streams(self.schedule, case.stream("network"), case.slow, self._heard)
        times = {"session_timeout": CLIENTS.session_timeout, "connect_timeout": 5.0, "operation_timeout": 1.0}
        self.bookies = Bookies(self, self.uri, times)
        return self.bookies

    def new_metadata(self) -> Any:
        """See :class:`.Environment`."""
        return self.bookies

    # -- events --------------------------------------------------------------------------------------------------------

    def happened(self, who: str, what: str) -> None:
        """See :class:`.Environment`."""
        super().happened(who, what)
        if self.report is not None and not what.startswith(UNREPORTED):
            self.report(self.schedule.now, who, what)

    def _heard(self, source: str, dest: str, data: bytes) -> None:
        """Bytes arrive."""
        self._hash.update(b"%d %s %s " % (self.schedule.now, source.encode(), dest.encode()))
        self._hash.update(data)

    def raised(self, who: str, error: BaseException) -> None:
        """See :class:`.process.World`."""
        if self.error is None and isinstance(error, Exception):
            if not isinstance(error, Violation | QuorumViolation | Broken):
                error = Violation("sanity", f"{who} raises {type(error).__name__}: {error}").with_traceback(
                    error.__traceback__
                )
            self.error = error

    def _changed(self, entry: Transaction, changes: dict[str, tuple[Node | None, Node | None]]) -> None:
        """A change was committed, and applied for the first time."""
        who = self.sessions.get(entry.session, f"session {entry.session:x}")
        for path, (old, new) in changes.items():
            ledger = paths.ledger_of(path.removeprefix(f"{metadata.ROOT}/"))
            if ledger is None or old == new:
                continue
            if new is None:
                self.happened("metadata", f"ledger {ledger} is deleted by {who}")
                continue
            before = None if old is None else serialization.from_bytes(old.data or b"")
            after = serialization.from_bytes(new.data or b"")
            if before is None:
                self.judge.created(ledger, master_key(after.password or b""))
                self.of_ledgers[ledger] = Digests(after.digest_type, after.password or b"")
            ensembles = "; ".join(f"{each.first_entry_id}: {' '.join(each.ensemble)}" for each in after.fragments)
            self.happened("metadata", f"ledger {ledger} is {after.status.value}, {ensembles}, by {who}")
            self.judge.metadata_written(who, ledger, before, after)

    def answered_by_metadata(self, zxid: int) -> None:
        """See :class:`.process.World`."""
        if zxid > self.quorum.zxid and self.error is None:
            what = f"a client has an answer of zxid {zxid}, but no member has applied more than {self.quorum.zxid}"
            self.error = Violation("committed", what)

    def judge_log(self, history: LogHistory, found: list[tuple[Position, str]]) -> None:
        """Check a whole log against what was promised."""
        log = [(position.ledger, position.entry, name) for position, name in found]
        try:
            judge_log(log, history.acknowledged, history.failed, history.appends, history.writers)
            places = {each: place for place, each in enumerate(found)}
            for who, read in history.readers.items():
                at = [places.get(each, -1) for each in read]
                if -1 in at:
                    position, name = read[at.index(-1)]
                    raise Broken("readers", f"{who} has found {name} at {position}, and it is not there")
                if at != [*range(len(at))]:
                    raise Broken("readers", f"{who} has found entries that do not follow one another")
        except Broken as broken:
            self.raised(history.name, broken)

    # -- the environment of bookies ------------------------------------------------------------------------------------

    def entry_durable(self, bookie: str, record: EntryAdded) -> None:
        """See :class:`.Environment`. Each ledger has its own digests."""
        self.digests = self.of_ledgers[record.ledger]
        super().entry_durable(bookie, record)

    def bookie_gone(self, name: str) -> None:
        """See :class:`.Environment`."""
        delay = 1_000 + int(self.restarts() ** 3 * 1_500_000)
        self.schedule.after(1_000 if self.has_healed else delay, self.start_bookie, name)

    def start_bookie(self, name: str) -> None:
        """Start a bookie that is down, if that is possible."""
        bookie = self.bookies.processes[name]
        if name in self.gone or bookie.alive or bookie.refuses:
            return
        bookie.start()
        if not bookie.alive and not bookie.refuses:  # there is no room on its disk yet
            self.schedule.after(20_000, self.start_bookie, name)

    def may_hurt(self, name: str) -> bool:
        """See :class:`.Environment`."""
        return True
