"""A bookie's process: carries out what the role wants on a disk of bytes, and comes back from it after a crash.

It writes the files of a real bookie, by the same code: a journal in groups, each synced before the next one, entry logs
at checkpoints, and it collects garbage. Only threads and their times are virtual, and the index is in memory. A bookie
whose disk is damaged or empty does not come back as if nothing had been there: it refuses to start, or (BP-46) starts
in limbo.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any

from fencepost.simulation.disk import SimDisk
from fencepost.store.disk.collection import Collection
from fencepost.store.disk.entry_logs import EntryLogs, known_journals
from fencepost.store.disk.entry_logs import name_of as name_of_log
from fencepost.store.disk.index import Index, places_of
from fencepost.store.disk.journal import Damage
from fencepost.store.disk.journal_files import SPARE, JournalFiles, journals_in, read_journal, read_what_is_left
from fencepost.store.disk.journal_files import name_of as name_of_journal
from fencepost.store.disk.ledger_store import Checkpoint, LedgerStore
from fencepost.store.disk.records import decode, encode
from fencepost.store.disk.sections import Section
from fencepost.store.disk.write_cache import PlainWriteCache
from fencepost.store.messages import AddEntry, Request
from fencepost.store.records import EntryAdded, Record, recovered
from fencepost.store.roles.bookie import Bookie
from fencepost.store.roles.interface import (
    Answer,
    Asked,
    Call,
    Effect,
    Event,
    Forget,
    Found,
    Journal,
    JournalFailed,
    JournalSynced,
    LookUp,
    Replayed,
    Result,
    SetTimer,
    Stop,
    Store,
    TimerFired,
    Trace,
)
from fencepost.store.rules.codes import Code
from fencepost.store.sim.environment import Environment
from fencepost.store.sim.network import Connection

REST = 5_000
"""Microseconds without a record after which a journal gets the empty group that proves the last one to be durable."""

JOURNAL_UNIT = 2_048
"""Bytes by which a journal file grows."""

LOG_LIMIT = 4_096
"""Bytes after which an entry log is followed by the next one."""


class BookieProcess:
    """A bookie with its disk. ``refuses`` is why it does not start any more, ``limbo`` whether it starts in limbo when
    its disk is empty.
    """

    ledgers: LedgerStore
    """The store on its disk, as the process that works has read it."""

    def __init__(self, name: str, environment: Environment, random: Random) -> None:
        self.name = name
        self.environment = environment
        self.random = random.random
        self.dice = random
        self.marks = Random(f"marks of {name}")
        self.limbo = False
        self.disk = SimDisk()
        self.alive = False
        """Whether it takes connections."""
        self.works = False
        """Whether there is a process."""
        self.starts = 0
        self.refuses = ""
        self.replaying = False
        self.lost_data = False
        self.slow = 1
        self.failing_syncs = 0
        self.role = self._new_role()
        self._forget()
        self._carry: dict[type[Effect], Callable[[Any], None]] = {
            Journal: self._journal,
            Answer: self._answer,
            Store: self._store,
            Forget: self._forget_ledger,
            LookUp: self._look_up,
            SetTimer: self._set_timer,
            Stop: self._stop,
            Result: self._result,
            Trace: self._trace,
        }

    def _new_role(self) -> Bookie:
        return Bookie(self.environment.case.protections, traces=self.environment.trace.is_read)

    def _forget(self) -> None:
        """The knowledge of a process is gone with it."""
        self.pending: list[tuple[int, bytes, Record] | Checkpoint] = []
        self.flushing = False
        self.unmarked = False
        self.proven = 0
        self.durable_entries: set[tuple[int, int, bytes]] = set()
        self.asked_for: dict[tuple[int, int], tuple[Request, bool]] = {}
        self.entering_limbo: set[int] = set()

    @property
    def lacking(self) -> bool:
        """Whether it may have lost what it is to get back from others."""
        return False

    @property
    def is_under_repair(self) -> bool:
        """Whether it is to get something back, and is not done with that."""
        return False

    # -- start and end ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Come back with what is on the disk, or refuse."""
        if self.alive or self.refuses:
            return
        self.starts += 1
        if self.lost_data and not self.limbo:
            self.refuse("its disk is empty, and was not")
        elif self._open():
            self.alive = True
            if self.lost_data and self.limbo:
                self._enter_limbo()
            self._serve()

    def _open(self, has_lost_files: bool = False) -> bool:
        """Begin a process that has read what is on the disk; whether it could."""
        self._forget()
        self.role = self._new_role()
        try:
            known = known_journals(self.disk, {*journals_in(self.disk)}, has_lost_files)
            logs = EntryLogs(self.disk, Index(), known, LOG_LIMIT, has_lost_files)
            found = (read_what_is_left if has_lost_files else read_journal)(self.disk, logs.journal_start)
        except Damage as damage:
            self.refuse(str(damage))
            return False
        self.environment.happened(self.name, f"starts, with {len(found.records)} records")
        self.environment.trace.started(self.name, "bookie")
        self.replaying = True
        self.cache_limit = int(self.random() ** 3 * 4_000)
        self.ledgers = LedgerStore(logs)
        for record in self.ledgers.records():
            self.deliver(Replayed(record))
        for payload in found.records:
            record = decode(payload)
            self.ledgers.apply(record)
            self.deliver(Replayed(record))
        try:
            self.journal = JournalFiles(self.disk, found, unit=JOURNAL_UNIT, draw=lambda: self.marks.getrandbits(64))
            logs.begin()
        except OSError:
            return False
        unproven = [decode(payload) for payload in found.unproven]
        for record in unproven:
            if type(record) is EntryAdded:
                self.environment.entry_durable(self.name, record)
        for ledger, fields in recovered(unproven).items():
            self.environment.trace.node_did(self.name, "bookie_recovers", fields, str(ledger))
        self.works = True
        return True

    def _serve(self) -> None:
        """Take connections from now on."""
        self.alive = True
        self.replaying = False
        self.environment.judge.restarted(self.name, self._has)
        self._inform_judge()
        self.environment.metadata.register(self.name)

    def crash(self, power: bool) -> None:
        """The process is killed, or (``power``) its machine loses power."""
        if not self.works:
            return
        self.environment.happened(self.name, "loses power" if power else "is killed")
        self.alive = self.works = False
        self.starts += 1
        if power:
            self.disk.lose_power(self.dice)
        self.environment.network.lose_all(self.name, noticed=not power)
        self.environment.bookie_gone(self.name)

    def set_read_only(self, read_only: bool) -> None:
        """Take nothing from owners any more, or again."""
        if self.alive:
            self.deliver(Call(0, "read only", (read_only,)))
            (self.environment.metadata.unregister if read_only else self.environment.metadata.register)(self.name)

    def refuse(self, why: str) -> None:
        """The bookie does not start any more."""
        self.environment.happened(self.name, f"refuses to start: {why}")
        self.refuses = why

    def _enter_limbo(self) -> None:
        """Put every ledger in limbo that may have had entries here."""
        for ledger, (metadata, _) in sorted(self.environment.metadata.ledgers.items()):
            if any(self.name in fragment.ensemble for fragment in metadata.fragments):
                self.entering_limbo.add(ledger)
            else:
                self.environment.judge.forgot(self.name, ledger)
                self.environment.trace.node_did(self.name, "bookie_is_wiped", {}, str(ledger))
        if not self.entering_limbo:
            self.lost_data = False
        for ledger in sorted(self.entering_limbo):
            self.deliver(Call(ledger, "enter limbo", (ledger,)))

    # -- events -------------------------------------------------------------------------------------------------------

    def asked(self, connection: Connection, txn: int, request: Request) -> None:
        """A request came."""
        if not self.alive:
            return
        history = self.environment.judge.ledgers[request.ledger]
        self.asked_for[connection.number, txn] = (request, self.name in history.fenced)
        self.deliver(Asked(connection.number, txn, request))
        self._inform_judge()

    def deliver(self, event: Event) -> None:
        """Give the role an event, and do what it wants."""
        effects = self.environment.receive(self.name, self.role, event)
        carry = self._carry
        for effect in effects:
            carry[type(effect)](effect)

    def _inform_judge(self) -> None:
        """The state of the bookie's ledgers. Only requests change it, once the bookie has started."""
        for ledger, known in self.role.ledgers.items():
            self.environment.judge.knows(self.name, ledger, known.lac, known.fenced)

    def _has(self, ledger: int, entry_id: int) -> bool:
        """Whether the bookie has an entry, or does not say that it lacks it."""
        found = self.ledgers.look_up(ledger, entry_id)[0] is not Code.NO_ENTRY
        return found or (ledger in self.role.ledgers and self.role.ledgers[ledger].limbo)

    def damageable(self, name: str) -> int:
        """How many bytes of a file may be damaged so that it is noticed: what nothing proves to be durable looks like a
        torn write.
        """
        if name == name_of_journal(self.journal.number):
            return self.proven
        return len(self.disk.files[name].durable) if name != SPARE else 0

    def places(self) -> list[tuple[str, int, int]]:
        """The places of entries in entry logs: the file, the offset and the bytes of each."""
        index = self.ledgers.logs.index
        found = [places_of(located) for ledger in index.ledgers() for located in index.runs(ledger)]
        return [(name_of_log(place.log), place.offset, place.size) for places in found for _, place in places]

    def in_memory(self) -> list[tuple[int, int]]:
        """The entries in memory, by ledger and id."""
        cache = self.ledgers.cache
        return [(ledger, entry_id) for ledger in cache.ledgers() for entry_id in cache.ids(ledger)]

    def flip_in_memory(self, ledger: int, entry_id: int, where: float) -> None:
        """Damage one bit of an entry in memory."""
        assert isinstance(self.ledgers.cache, PlainWriteCache)
        entries = self.ledgers.cache.entries[ledger]
        body = bytearray(entries[entry_id])
        bit = int(where * len(body) * 8)
        body[bit // 8] ^= 1 << bit % 8
        entries[entry_id] = bytes(body)
        self.environment.happened(self.name, f"bit {bit} of entry {entry_id} is flipped in memory")

    def _later(self, start: int, event: Event) -> None:
        if self.works and self.starts == start:
            self.deliver(event)

    # -- what the role wants ------------------------------------------------------------------------------------------

    def _answer(self, answer: Answer) -> None:
        request, was_fenced = self.asked_for.pop((answer.connection, answer.txn))
        durable = (
            type(request) is not AddEntry or (request.ledger, request.entry_id, request.body) in self.durable_entries
        )
        self.environment.judge.answered(self.name, request, answer.response, was_fenced, durable)
        self.environment.network.respond(answer.connection, answer.txn, answer.response)

    def _set_timer(self, timer: SetTimer) -> None:
        delay = timer.delay + int(self.random() * timer.jitter) if timer.jitter else timer.delay
        self.environment.schedule.after(delay, self._later, self.starts, TimerFired(timer.key))

    def _stop(self, stop: Stop) -> None:
        self.crash(power=False)

    def _trace(self, effect: Trace) -> None:
        """An answer of a bookie to a client; the name of the connection says whose it is."""
        label = None if effect.connection is None else self.environment.network.label(effect.connection)
        self.environment.role_did(self.name, effect, label)

    def _result(self, result: Result) -> None:
        """A ledger is in limbo, durably. Once all are that have to be, the bookie may come back without being put there
        again.
        """
        if result.token in self.entering_limbo:
            self.entering_limbo.remove(result.token)
            self.lost_data = bool(self.entering_limbo)

    # -- the journal --------------------------------------------------------------------------------------------------

    def _journal(self, effect: Journal) -> None:
        record = effect.record
        self.ledgers.apply(record)
        self.pending.append((effect.position, encode(record), record))
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self.flushing:
            self.flushing = True
            self.environment.schedule.after(int(self.random() * 200), self._flush, self.starts)

    def _flush(self, start: int) -> None:
        """Write what is pending as one group, up to where a checkpoint begins, and sync it."""
        if not self.works or self.starts != start:
            return
        group: list[tuple[int, bytes, Record]] = []
        proves = self.journal.synced
        try:
            while self.pending and not (group and isinstance(self.pending[0], Checkpoint)):
                first = self.pending.pop(0)
                if isinstance(first, Checkpoint):
                    first.journal_start = self.journal.roll()
                    self._after_disk(2_000, self._write_section, first)
                    proves = self.proven = self.journal.synced
                else:
                    group.append(first)
            payloads = [payload for _, payload, record in group if self.is_journalled(record)]
            if payloads or not group:
                self.journal.write(payloads)
        except OSError:
            self._fail("can not write its journal: the disk is full")
            return
        if group and not payloads:
            self.environment.schedule.after(int(self.random() * 50), self._if_there, start, self._confirm, (group,))
            return
        delay = (100 + int(self.random() * 900)) * self.slow
        self.environment.schedule.after(delay, self._synced, start, self.journal.end, proves, group)

    def is_journalled(self, record: Record) -> bool:
        """Whether a record is in the journal before it is confirmed."""
        return True

    def _synced(self, start: int, end: int, proves: int, group: list[tuple[int, bytes, Record]]) -> None:
        if (
            not self.works
            or self.starts != start
            or self._sync_fails(name_of_journal(self.journal.number), "its journal")
        ):
            return
        self.journal.sync()
        self.proven = proves
        if group:
            self.unmarked = True
        self._confirm(group)
        if self.works and not self.flushing and self.unmarked:
            self.unmarked = False
            self.environment.schedule.after(REST, self._rest, start, end)

    def _confirm(self, group: list[tuple[int, bytes, Record]]) -> None:
        """The records of a group are as durable as they become before they are answered."""
        self.flushing = bool(self.pending)
        if group:
            for _, _, record in group:
                if type(record) is EntryAdded:
                    self.durable_entries.add((record.ledger, record.entry_id, record.body))
                    self.environment.entry_durable(self.name, record)
            self.environment.trace.node_did(self.name, "journal_synced", {"position": group[-1][0]})
            self.deliver(JournalSynced(group[-1][0]))
        if self.works and self.pending:
            self.flushing = True
            self._flush(self.starts)

    def _rest(self, start: int, end: int) -> None:
        """Write an empty group, if nothing was written for a while."""
        if self.works and self.starts == start and not self.flushing and self.journal.end == end:
            self.flushing = True
            self._flush(start)

    def _sync_fails(self, name: str, what: str) -> bool:
        """Whether the sync of a file fails, with which the bookie ends."""
        if not self.failing_syncs:
            return False
        self.failing_syncs -= 1
        file = self.disk.files[name]
        file.fail_sync(file.begin_sync(), self.dice)
        self._fail(f"fails to sync {what}")
        return True

    def _fail(self, what: str) -> None:
        self.environment.happened(self.name, what)
        self.flushing = False
        self.deliver(JournalFailed())

    # -- entries ------------------------------------------------------------------------------------------------------

    def _store(self, store: Store) -> None:
        self.ledgers.cache.put(store.ledger, store.entry_id, store.body)
        self._begin_checkpoint()

    def _forget_ledger(self, forget: Forget) -> None:
        self.ledgers.forget(forget.ledger)

    def _begin_checkpoint(self) -> None:
        if self.ledgers.cache.size >= self.cache_limit and self.ledgers.flushing is None and not self.replaying:
            self.pending.append(self.ledgers.swap())
            self._flush_soon()

    def _write_section(self, checkpoint: Checkpoint) -> None:
        try:
            section = self.ledgers.write(checkpoint)
        except OSError:
            self._fail("can not write an entry log: the disk is full")
            return
        self._after_disk(4_000, self._sync_section, section)

    def _sync_section(self, section: Section) -> None:
        if not self._sync_fails(name_of_log(section.log), "an entry log"):
            self.ledgers.logs.sync(section)
            self.ledgers.end(section)
            self._after_disk(2_000, self._remove_journal, section.contents.journal_start)

    def _remove_journal(self, start: int) -> None:
        """The end of a checkpoint, and sometimes a collection of garbage."""
        self.journal.remove_before(start)
        if self.random() < 0.3 and self.ledgers.flushing is None:
            try:
                Collection(self.ledgers.logs).run(1.0, threading.Lock(), 0)
            except OSError:
                self._fail("can not write an entry log: the disk is full")
                return
        self._begin_checkpoint()

    def _look_up(self, look_up: LookUp) -> None:
        self.environment.schedule.after((20 + int(self.random() * 100)) * self.slow, self._read, self.starts, look_up)

    def _read(self, start: int, look_up: LookUp) -> None:
        if self.works and self.starts == start:
            code, entry_id, body = self.ledgers.look_up(look_up.ledger, look_up.entry_id)
            self.deliver(Found(look_up.number, code, entry_id, body))

    def _after_disk(self, longest: int, what: Callable[..., None], *arguments: Any) -> None:
        """Do something when the disk has had time for it, if the process is still there."""
        delay = (100 + int(self.random() * longest)) * self.slow
        self.environment.schedule.after(delay, self._if_there, self.starts, what, arguments)

    def _if_there(self, start: int, what: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self.works and self.starts == start:
            what(*arguments)
