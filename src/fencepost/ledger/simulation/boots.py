"""A bookie that may run without adds in the journal, may lose directories, and repairs itself (BP-46): what it records,
how it boots, and what it copies.

Each start draws whether adds are journalled. There are two directories, for the journal and for entries, each with its
cookie. The steps of a boot take time, and a crash may come between any two of them and anywhere in the repair. As in a
real bookie, the boot follows :mod:`fencepost.ledger.rules.boot`, and the role in :mod:`fencepost.ledger.roles.repair`
does the repair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import Any

from fencepost.ledger.disk.journal_files import SPARE
from fencepost.ledger.disk.journal_files import SUFFIX as JOURNAL
from fencepost.ledger.disk.storage import JOURNAL_RESERVE
from fencepost.ledger.entries import Digests, runs_of
from fencepost.ledger.messages import AddEntry, ReadEntry, ReadEntryResponse, Response
from fencepost.ledger.roles import repair as roles
from fencepost.ledger.roles.interface import Call, Effect, Error, Event, Result, SetTimer, TimerFired, Trace
from fencepost.ledger.roles.recoverer import Recoverer, RecovererSettings
from fencepost.ledger.roles.requests import AddRequests
from fencepost.ledger.rules.boot import CLEAN_END, Mark, Run, Step, mark_of, steps_of_boot
from fencepost.ledger.rules.cookies import Boot, Cookie, Stamped, has_lost_all, may_boot, may_repair
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.ledger.rules.replication import belonging, sources
from fencepost.ledger.simulation.bookie import BookieProcess
from fencepost.ledger.simulation.case import HORIZON
from fencepost.ledger.simulation.client import ClientProcess
from fencepost.ledger.simulation.environment import StoreEnvironment
from fencepost.ledger.simulation.network import Connection

JOURNALS = (0.0, 0.0, 0.5, 1.0)
"""The share of starts with adds in the journal; each run draws one."""

PAUSE = 30_000
"""Microseconds before a failed repair is retried."""

AT_ONCE = 4
"""Entries copied concurrently."""

LATE = 100_000
"""The most microseconds by which recording how it runs may follow its first answers, without that protection."""


class Directory:
    """A directory's contents besides entries and journal. Each value becomes durable as a whole."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.clear()

    def clear(self) -> None:
        """Lose the directory; an empty one takes its place."""
        self.cookie: Cookie | None = None
        self.is_first_start = False
        self.is_under_repair = False
        self.run: Run | None = None


class BootingBookie(BookieProcess):
    """A bookie with two directories, each with a cookie."""

    def __init__(self, name: str, environment: StoreEnvironment, random: Random) -> None:
        super().__init__(name, environment, random)
        self.boots = environment.case.stream(f"{name} boots")
        self.share = JOURNALS[int(environment.case.stream("journals").random() * len(JOURNALS))]
        self.of_journal, self.of_entries = self.directories = (Directory("journal"), Directory("entries"))
        self.journals = True
        self.may_lack = False
        self.is_at_risk = False
        """Whether a crash now may lose entries that this process has confirmed."""
        self.has_lost_directory = False
        self.is_shutting_down = False
        self.recoveries = count(1)
        self._forget_repair()

    def _forget_repair(self) -> None:
        self.repair: roles.Repair | None = None
        self.recovery: ClientProcess | None = None
        self.copier: Copier | None = None
        self.steps: deque[Callable[[Callable[[], None]], None]] = deque()
        self.marked: Callable[[], None] = lambda: None
        self.asks: dict[int, Callable[[], None]] = {}
        self.tokens = count(1)

    @property
    def lacking(self) -> bool:
        """Whether it may have lost data since its last complete repair."""
        return self.may_lack

    @property
    def is_under_repair(self) -> bool:
        """Whether it still has data to get back."""
        noted = any(directory.is_under_repair for directory in self.directories)
        return noted or (self.lacking and not self.alive)

    # -- start and end ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to boot from the disk, or refuse."""
        if self.works or self.refuses:
            return
        self.starts += 1
        self._forget_repair()
        self.is_shutting_down = self.is_at_risk = False
        self.journals = self.boots.random() < self.share
        stamped = [self._stamped(directory) for directory in self.directories]
        in_metadata = self.environment.cookies.get(self.name)
        own = self._cookie(in_metadata)
        decision = may_boot(own, in_metadata, stamped)
        is_first_start = any(directory.is_first_start for directory in self.directories)
        has_lost_directory = False
        if decision.boot is Boot.STAMP:
            for directory in self.directories:
                directory.cookie, directory.is_first_start = own, True
                directory.run = CLEAN_END
            self.environment.cookies[self.name] = own
        elif decision.boot is not Boot.READY or has_lost_all(
            is_first_start, any(not each.is_empty for each in stamped)
        ):
            if not may_repair(own, in_metadata, stamped):
                self.refuse(decision.boot.value)
                return
            has_lost_directory = True
            own = own.replace(token=f"{self.boots.getrandbits(64):x}")
        self.has_lost_directory = has_lost_directory
        self.works = True
        self._forget()
        for step in steps_of_boot(
            has_lost_directory=has_lost_directory,
            last_run=self.of_entries.run,
            protections=self.environment.case.protections,
        ):
            self.steps += self._parts(step, own, has_lost_directory)
        if len(self.steps) > 3:
            self._maybe_crash(within=8_000)
        self._boot_on()

    def crash(self, power: bool) -> None:
        """Kill the process, or cut its machine's power, while it boots or serves."""
        if self.works:
            self.may_lack |= self.is_at_risk
            self._end_clients()
        super().crash(power)

    def end(self) -> None:
        """Shut down cleanly: stop taking requests, flush everything, and record that."""
        if not self.alive:
            return
        self.environment.happened(self.name, "is asked to end")
        self.alive = False
        self.is_shutting_down = True
        self._end_clients()
        self.repair = None
        self.environment.network.lose_all(self.name, noticed=True)
        self._flush_all()

    def _flush_all(self) -> None:
        if self.unsynced:
            self._after_disk(500, self._flush_all)
        else:
            self._checkpoint(self._end_storage)

    def _end_storage(self) -> None:
        self.storage.end()
        self._await_end()

    def _await_end(self) -> None:
        if self.process.has_ended:
            self._ended()
        else:
            self._after_disk(500, self._await_end)

    def _ended(self) -> None:
        self.environment.happened(self.name, "ends")
        self.of_entries.run = CLEAN_END
        self.works = False
        self.starts += 1
        self.environment.bookie_gone(self.name)

    def lose(self, directories: list[Directory], power: bool) -> None:
        """Lose directories with their contents; the process that uses them dies."""
        self.crash(power)
        self.may_lack = True
        for directory in directories:
            self.environment.happened(self.name, f"the directory of {directory.path} is lost")
            directory.clear()
            for name in self._files_of(directory):
                self.disk.remove(name)
            self.disk.sync()

    def lose_mark(self, directory: Directory, mark: str) -> None:
        """Kill the process, and lose a mark in a directory. The bookie then assumes that it may lack entries, and
        counts as if it did.
        """
        self.crash(power=False)
        self.may_lack = True
        self.environment.happened(self.name, f"the directory of {directory.path} loses: {mark.replace('_', ' ')}")
        setattr(directory, mark, None if mark == "run" else False)

    def _end_clients(self) -> None:
        if self.recovery is not None:
            self.recovery.alive = False
            self.environment.metadata.disconnect(self.recovery)
            self.recovery = None
        if self.copier is not None:
            self.copier.alive = False

    def _maybe_crash(self, within: int) -> None:
        """Cut this boot short, if the case includes that and chance decides so."""
        if "boot_crashes" in self.environment.case.faults and self.boots.random() < 0.4:
            power = self.boots.random() < 0.5
            self.environment.schedule.after(int(self.boots.random() * within), self._crash_of, self.starts, power)

    def _crash_of(self, start: int, power: bool) -> None:
        if self.starts == start and self.environment.schedule.now < HORIZON and self.environment.may_hurt(self.name):
            self.crash(power)

    # -- directories and cookies --------------------------------------------------------------------------------------

    def _files_of(self, directory: Directory) -> list[str]:
        of_journal = {name for name in self.disk.names() if name in (SPARE, JOURNAL_RESERVE) or name.endswith(JOURNAL)}
        return [name for name in self.disk.names() if (name in of_journal) is (directory is self.of_journal)]

    def _stamped(self, directory: Directory) -> Stamped:
        return Stamped(directory.path, directory.cookie, not self._files_of(directory), directory.is_under_repair)

    def _cookie(self, in_metadata: Cookie | None) -> Cookie:
        """The cookie that the bookie should have."""
        token = f"{self.boots.getrandbits(64):x}" if in_metadata is None else in_metadata.token
        return Cookie(self.name, (self.of_journal.path,), (self.of_entries.path,), instance_id="cluster", token=token)

    # -- boot ---------------------------------------------------------------------------------------------------------

    def _parts(self, step: Step, cookie: Cookie, has_lost_files: bool) -> list[Callable[[Callable[[], None]], None]]:
        """The parts of a step. Each takes time, and calls back when it is durable."""
        if step is Step.BEGIN_REPAIR:
            return [partial(self._record, directory, "is_under_repair", True) for directory in self.directories]
        if step is Step.OPEN_STORAGE:
            return [partial(self._open_storage, has_lost_files)]
        if step is Step.MARK_LEDGERS:
            return [self._mark_ledgers]
        if step is Step.STAMP_COOKIES:
            return [
                *(partial(self._record, directory, "cookie", cookie) for directory in self.directories),
                partial(self._after_metadata, self._stamped_metadata, cookie),
            ]
        if step is Step.NOTE_RUN:
            return [self._record_run]
        return [self._begin_to_serve]

    def _boot_on(self) -> None:
        if self.steps:
            self.steps.popleft()(self._boot_on)

    def _open_storage(self, has_lost_files: bool, then: Callable[[], None]) -> None:
        self.works = self._open(has_lost_files)
        if self.works:
            for directory in self.directories:
                directory.is_first_start = False
            protections, traces = self.environment.case.protections, self.environment.trace.is_read
            self.repair = roles.Repair(self.name, self.role, protections, PAUSE, traces)
            then()

    def _record(self, directory: Directory, name: str, value: Any, then: Callable[[], None]) -> None:
        self._after_disk(500, self._recorded, directory, name, value, then)

    def _recorded(self, directory: Directory, name: str, value: Any, then: Callable[[], None]) -> None:
        self.environment.happened(self.name, f"notes in the directory of {directory.path}: {name.replace('_', ' ')}")
        setattr(directory, name, value)
        if name == "run":
            self.environment.trace.node_did(self.name, "bookie_notes_run", {"journals_adds": self.journals})
        then()

    def _record_run(self, then: Callable[[], None]) -> None:
        if self.alive:  # only without the protection that requires this first
            delay = int(self.boots.random() * LATE)
            arguments = (self.of_entries, "run", Run(journals_adds=self.journals), then)
            self.environment.schedule.after(delay, self._if_there, self.starts, self._recorded, arguments)
        else:
            self._record(self.of_entries, "run", Run(journals_adds=self.journals), partial(self._run_recorded, then))

    def _run_recorded(self, then: Callable[[], None]) -> None:
        # Nothing is confirmed yet, but a crash would still put its ledgers in limbo.
        self.is_at_risk = not self.journals
        then()

    def _stamped_metadata(self, cookie: Cookie, then: Callable[[], None]) -> None:
        self.environment.happened(self.name, "stamps the metadata")
        self.environment.cookies[self.name] = cookie
        self.environment.trace.node_did(self.name, "bookie_stamps_cookies", {})
        then()

    def _mark_ledgers(self, then: Callable[[], None]) -> None:
        self.marked = then
        self._deliver_to_repair(Call(1, "mark ledgers"))

    def _begin_to_serve(self, then: Callable[[], None]) -> None:
        self.is_at_risk = not self.journals
        self._serve()
        if any(directory.is_under_repair for directory in self.directories):
            self._maybe_crash(within=60_000)
            self._deliver_to_repair(Call(2, "repair"))
        then()

    def _has(self, ledger: int, entry_id: int) -> bool:
        """As in the base class. In addition, entries of a closed ledger may be missing during a repair: others have
        them, and the metadata say that they existed.
        """
        if super()._has(ledger, entry_id):
            return True
        known = self.role.ledgers.get(ledger)
        metadata, _ = self.environment.metadata.ledgers[ledger]
        is_marked = any(each.is_under_repair for each in self.directories) and known is not None and known.fenced
        return is_marked and metadata.status is LedgerStatus.CLOSED

    # -- the storage --------------------------------------------------------------------------------------------------

    @property
    def journals_adds(self) -> bool:
        """See :class:`.BookieProcess`. Without journalled adds, the owner's adds are not in the journal."""
        return self.journals

    def _checkpoint(self, then: Callable[[], None], always: bool = False) -> None:
        """Make everything durable in entry logs, then call back."""
        self.storage.begin_checkpoint(partial(self._hop, then), always)

    # -- the repair ---------------------------------------------------------------------------------------------------

    def _deliver_to_repair(self, event: Event) -> None:
        """Pass an event to the repair role, and carry out its effects."""
        if self.repair is None:
            return
        for effect in self.environment.receive(f"{self.name} repair", self.repair, event):
            _CARRY[type(effect)](self, effect)

    def list_ledgers(self, effect: roles.ListLedgers) -> None:
        """Read the metadata of all ledgers, or fail to."""
        unsteady = self.environment.metadata.unsteady
        if unsteady and self.boots.random() < unsteady:
            self._after_metadata(self._deliver_to_repair, roles.ListingFailed())
        else:
            self._after_metadata(self._listed)

    def _listed(self) -> None:
        found = [(ledger, metadata) for ledger, (metadata, _) in sorted(self.environment.metadata.ledgers.items())]
        if self.has_lost_directory and self.repair is not None and self.repair.marking is not None:
            for ledger, metadata in found:
                if mark_of(metadata, self.name) is Mark.NOTHING:
                    self.environment.judge.forgot(self.name, ledger)
        self._deliver_to_repair(roles.LedgersListed(found, True))

    def ask(self, effect: roles.AskBookie) -> None:
        """Call an operation of the bookie's own role."""
        self._ask(effect.operation, effect.arguments, partial(self._deliver_to_repair, roles.Done(effect.token)))

    def _ask(self, operation: str, arguments: tuple[Any, ...], then: Callable[[], None]) -> None:
        token = next(self.tokens)
        self.asks[token] = then
        self.deliver(Call(token, operation, arguments))

    def _result(self, result: Result) -> None:
        # Later, because the caller of the role has not returned yet.
        then = self.asks.pop(result.token, None)
        if then is not None:
            self.environment.schedule.after(0, self._if_there, self.starts, then, ())

    def recover(self, effect: roles.RecoverLedger) -> None:
        """Close a ledger with a client of the bookie's own."""
        self._after_metadata(self._recover, effect.ledger)

    def _recover(self, ledger: int) -> None:
        if self.repair is None:  # the bookie is shutting down
            return
        environment = self.environment
        metadata, _ = environment.metadata.ledgers.get(ledger, (None, 0))
        if metadata is None or metadata.status is LedgerStatus.CLOSED:
            error = Error.NO_LEDGER if metadata is None else Error.NONE
            self._deliver_to_repair(roles.LedgerRecovered(ledger, metadata, error))
            return
        settings = RecovererSettings(metadata.password or b"", 3, 10_000, 30_000, 15_000)
        role = Recoverer(ledger, settings, environment.case.protections, environment.trace.is_read)
        name = f"{self.name}r{next(self.recoveries)}"
        client = self.recovery = ClientProcess(
            name, environment, Random(self.boots.getrandbits(64)), role, partial(self._recovered, ledger)
        )
        environment.clients.remove(client)  # faults for clients do not apply to this one
        client.call("recover")

    def _recovered(self, ledger: int, result: Result) -> None:
        self._end_clients()
        event = roles.LedgerRecovered(ledger, None if result.error else result.value, result.error)
        self.environment.schedule.after(0, self._if_there, self.starts, self._deliver_to_repair, (event,))

    def copy(self, effect: roles.CopyEntries) -> None:
        """Copy a ledger's missing entries."""
        stored = set(self.ledgers.entries_of(effect.ledger))
        missing = [each for each in belonging(effect.metadata, self.name) if each not in stored]
        if self.copier is None or not self.copier.alive:
            self.copier = Copier(self)
        self.copier.copy(effect.ledger, effect.metadata, missing, partial(self._copied, effect))

    def _copied(self, effect: roles.CopyEntries, lacking: int) -> None:
        if not lacking:
            self.environment.judge.repaired(self.name, effect.ledger, effect.metadata, self._stores)
        self._deliver_to_repair(roles.EntriesCopied(effect.ledger, lacking))

    def _stores(self, ledger: int, entry_id: int) -> bool:
        return entry_id in self.ledgers.entries_of(ledger)

    def store_entry(self, ledger: int, entry_id: int, lac: int, body: bytes, then: Callable[[], None]) -> None:
        """Store a copied entry; calls back when it is as durable as this bookie makes entries."""
        copied = AddRequests(((0, AddEntry(ledger, entry_id, lac, body, b"")),))
        self._ask("store entries", (copied,), then)

    def set_timer_of_repair(self, timer: SetTimer) -> None:
        """Notify the repair role after a time."""
        arguments = (TimerFired(timer.key),)
        self.environment.schedule.after(timer.delay, self._if_there, self.starts, self._deliver_to_repair, arguments)

    def result_of_repair(self, result: Result) -> None:
        """A phase of the repair is over."""
        if result.token == 2:
            self._checkpoint(self._end_repair)
        elif result.error:
            arguments = (Call(1, "mark ledgers"),)
            self.environment.schedule.after(PAUSE, self._if_there, self.starts, self._deliver_to_repair, arguments)
        else:
            self._checkpoint(self.marked, always=True)

    def _end_repair(self) -> None:
        first, second = self.directories
        if not self.is_shutting_down:
            self._record(
                first, "is_under_repair", False, lambda: self._record(second, "is_under_repair", False, self._repaired)
            )

    def _repaired(self) -> None:
        self.may_lack = False

    def trace_of_repair(self, effect: Trace) -> None:
        """Trace an effect of the repair."""
        if effect.action == roles.MAY_LACK and effect.ledger is not None:
            stored = runs_of(self.ledgers.entries_of(effect.ledger))
            effect = Trace(effect.action, effect.ledger, {**effect.fields, "entries": stored})
        self.environment.role_did(self.name, effect)

    def _after_metadata(self, what: Callable[..., None], *arguments: Any) -> None:
        """Call a function after a delay of the metadata service."""
        at = max(
            self.environment.schedule.now + 200 + int(self.boots.random() * 1_000),
            self.environment.metadata.clogged.get(self.name, 0),
        )
        self.environment.schedule.at(at, self._if_there, self.starts, what, arguments)


_CARRY: dict[type[Effect], Callable[[BootingBookie, Any], None]] = {
    roles.ListLedgers: BootingBookie.list_ledgers,
    roles.AskBookie: BootingBookie.ask,
    roles.RecoverLedger: BootingBookie.recover,
    roles.CopyEntries: BootingBookie.copy,
    SetTimer: BootingBookie.set_timer_of_repair,
    Result: BootingBookie.result_of_repair,
    Trace: BootingBookie.trace_of_repair,
}


class Copier:
    """Reads entries that a bookie lacks from others, a few at a time. It is a client of the network while its bookie
    runs.
    """

    def __init__(self, bookie: BootingBookie) -> None:
        self.bookie = bookie
        self.name = bookie.name
        self.alive = True
        self.connections: dict[str, Connection] = {}
        self.txns = count(1)
        self.asked: dict[int, tuple[int, list[str]]] = {}
        """The entry of each request, and the bookies to try next."""
        self.missing: deque[int] = deque()
        self.under_way = self.lacking = 0

    def copy(self, ledger: int, metadata: LedgerMetadata, missing: list[int], done: Callable[[int], None]) -> None:
        """Copy entries, and report how many could not be read."""
        self.ledger, self.metadata, self.done = ledger, metadata, done
        self.digests = Digests(metadata.digest_type, metadata.password or b"")
        self.missing = deque(missing)
        self.under_way = self.lacking = 0
        self._go_on()

    def _go_on(self) -> None:
        while self.missing and self.under_way < AT_ONCE:
            self.under_way += 1
            entry_id = self.missing.popleft()
            self._ask(entry_id, [*sources(self.metadata, entry_id, self.name)])
        if not self.missing and not self.under_way:
            self.done(self.lacking)

    def _ask(self, entry_id: int, bookies: list[str]) -> None:
        if bookies:
            txn = next(self.txns)
            self.asked[txn] = entry_id, bookies[1:]
            network = self.bookie.environment.network
            network.request(self, bookies[0], txn, ReadEntry(self.ledger, entry_id))
        else:
            self.lacking += 1
            self._end_one()

    def _end_one(self) -> None:
        self.under_way -= 1
        self._go_on()

    def answered(self, txn: int, bookie: str, response: Response) -> None:
        """A bookie answered."""
        entry_id, others = self.asked.pop(txn)
        body = response.body if isinstance(response, ReadEntryResponse) else None
        entry = self.digests.open_entry(body, self.ledger, entry_id)
        if entry is None or body is None:
            self._ask(entry_id, others)
        else:
            self.bookie.store_entry(self.ledger, entry_id, entry.lac, body, self._end_one)

    def unanswered(self, txn: int, bookie: str) -> None:
        """A bookie did not answer."""
        self._ask(*self.asked.pop(txn))

    def disconnected(self, bookie: str) -> None:
        """A connection is gone. Its requests are reported as unanswered."""
