"""A bookie's process: carries out its role's effects with a storage on a byte-level disk, and recovers from that disk
after a crash.

It uses the storage of a real bookie (:mod:`fencepost.ledger.disk.storage`), with its journal, entry logs and reserves;
the work of its threads runs on virtual time. A bookie whose disk is damaged or empty does not start as if nothing had
been there: it refuses, or (BP-46) starts in limbo.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import groupby
from random import Random
from typing import Any

import msgspec

from fencepost.errors import SystemFailure
from fencepost.ledger.bookie.batches import ArrivedAdds, Batches
from fencepost.ledger.bookie.inbox import Memory
from fencepost.ledger.bookie.lookups import LookOne, failed_event, find
from fencepost.ledger.client.loops import Loops
from fencepost.ledger.disk.entry_logs import name_of as name_of_log
from fencepost.ledger.disk.index import places_of
from fencepost.ledger.disk.journal import Damage, read_records, scan
from fencepost.ledger.disk.journal_files import SPARE
from fencepost.ledger.disk.journal_files import name_of as name_of_journal
from fencepost.ledger.disk.ledger_store import LedgerStore
from fencepost.ledger.disk.records import decode
from fencepost.ledger.disk.settings import MIB, StorageSettings
from fencepost.ledger.disk.storage import JOURNAL_RESERVE, LEDGER_RESERVE, Storage
from fencepost.ledger.disk.write_cache import PlainWriteCache
from fencepost.ledger.kernels.entries import EntryRows
from fencepost.ledger.kernels.requests import AddBatch, ReadBatch, ReadResults
from fencepost.ledger.messages import NO_ENTRY_YET, AddEntry, Request
from fencepost.ledger.records import EntryAdded, Record, recovered
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.roles.interface import (
    AddsArrived,
    Answer,
    AnswerAdds,
    AnswerReads,
    Call,
    ConnectionClosed,
    Effect,
    Event,
    FindRuns,
    Forget,
    Journal,
    JournalAdds,
    JournalFailed,
    JournalSynced,
    LookUp,
    LookUpBatch,
    LookUpReads,
    Measure,
    ReadsArrived,
    ReadsFound,
    Replayed,
    RequestArrived,
    Result,
    SetTimer,
    Stop,
    TimerFired,
    Trace,
)
from fencepost.ledger.roles.requests import AddRequests, FoundRequests, grouped, is_plain_read
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.simulation.environment import StoreEnvironment
from fencepost.ledger.simulation.network import Connection
from fencepost.ledger.simulation.process import SimProcess
from fencepost.ledger.simulation.wire import v3
from fencepost.ledger.wire.frames import Frames
from fencepost.simulation.disk import NEVER, SimDisk

JOURNAL_UNIT = 2_048
"""Bytes by which a journal file grows."""

WORTH = 200_000
"""Requests of simulated clients after which loading the compiled loops pays off."""

TOGETHER = 300
"""The most microseconds over which a connection's adds and plain reads are batched."""

LOG_LIMIT = 4_096
"""The size in bytes at which a new entry log begins."""


OF_BOOKIES = Loops(("fencepost.ledger.kernels.bookie",), WORTH)

_BATCHES: list[Batches] = []


def batches() -> Batches | None:
    """The loops' tables, shared by all bookies of this process; None until the loops are loaded."""
    if not _BATCHES and OF_BOOKIES.module is not None and v3 is not None:
        _BATCHES.append(Batches(OF_BOOKIES.module))
    return _BATCHES[0] if _BATCHES else None


def taken(rows: Batches, requests: list[tuple[int, Any]]) -> Memory:
    """Encode adds, or plain reads, as frames, and parse them into the table."""
    frames = b"".join(v3.encode_request(txn, request) for txn, request in requests)
    memory = Memory(len(frames))
    memory.view[:] = frames
    count, _, _ = rows.loops.parse(memory.array, 0, len(frames), len(frames), v3.VERSION, rows.table)
    assert count == len(requests)
    return memory


class BookieProcess:
    """A bookie with its disk. ``refuses``: why it refuses to start, if it does. ``limbo``: whether it starts in limbo
    if its disk is empty.
    """

    storage: Storage
    """The storage of the running process, opened from the disk."""

    def __init__(self, name: str, environment: StoreEnvironment, random: Random) -> None:
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
        """Whether its process is running."""
        self.starts = 0
        self.refuses = ""
        self.lost_data = False
        self.slow = 1
        self.on_request: list[Callable[[Request], None]] = []
        """Called with each request that arrives, by faults that wait for one."""
        self.killed_within = False
        """Whether a crash in the middle of disk use is a kill rather than a power failure."""
        self.process = self._new_process()
        self.role = self._new_role()
        self._forget()
        self._carry: dict[type[Effect], Callable[[Any], None]] = {
            Journal: self._journal_one,
            JournalAdds: self._journal_adds,
            Answer: self._answer,
            AnswerAdds: self._answer_adds,
            AnswerReads: self._answer_reads,
            Forget: self._forget_ledger,
            LookUp: self._look_up,
            LookUpBatch: self._look_up,
            FindRuns: self._look_up,
            Measure: self._look_up,
            LookUpReads: self._look_up_reads,
            SetTimer: self._set_timer,
            Stop: self._stop,
            Result: self._result,
            Trace: self._trace,
        }

    def _new_role(self) -> Bookie:
        return Bookie(self.environment.case.protections, traces=self.environment.trace.is_read)

    def _new_process(self) -> SimProcess:
        schedule = self.environment.schedule
        return SimProcess(schedule, self.dice, self.marks, lambda: self.slow, self._crash_within)

    def _forget(self) -> None:
        """Reset the memory of the process."""
        self.is_busy = self.is_full = False
        self.heard = 0
        """The time of the storage's latest callback, so that callbacks stay in order."""
        self.unsynced: deque[tuple[int, Record]] = deque()
        """Records with their positions, not yet as durable as they must be before they are answered."""
        self.held_back: list[tuple[Connection, int, Request]] = []
        """Requests that wait while the storage is busy."""
        self.durable_entries: set[tuple[int, int, bytes]] = set()
        self.asked_for: dict[tuple[int, int], tuple[Request, bool]] = {}
        self.arrived: dict[int, list[tuple[int, Any]]] = {}
        """Adds and plain reads of each connection that the role has not received yet, with their numbers."""
        self.reads: Any = ()
        self.adds: ArrivedAdds | None = None
        """The batches that the role is receiving; ``adds`` only in table form."""
        self.patience = int(self.random() ** 2 * TOGETHER)
        self.entering_limbo: set[int] = set()

    @property
    def ledgers(self) -> LedgerStore:
        """Its entries and ledgers."""
        return self.storage.ledger_store

    @property
    def lacking(self) -> bool:
        """Whether it may have lost data that it must get back from others."""
        return False

    @property
    def is_under_repair(self) -> bool:
        """Whether it still has data to get back."""
        return False

    # -- start and end ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start from the disk, or refuse."""
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
        """Start a process and read the disk; returns whether that worked."""
        self._forget()
        self.role = self._new_role()
        self.process = self._new_process()
        try:
            storage = self.storage = Storage(
                self._settings(),
                synced=self._synced,
                failed=lambda reason: self._hop(self._failed, reason),
                busy=lambda is_busy: self._hop(self._busy, is_busy),
                full=lambda is_full: self._hop(self._full, is_full),
                took=self._took,
                journal_files=self.disk,
                ledger_files=self.disk,
                has_lost_files=has_lost_files,
                process=self.process,
            )
            records = [*storage.records()]
            unproven = [*storage.unproven()]
            storage.start()
        except SystemFailure as failure:
            if isinstance(failure.__cause__, Damage):
                self.refuse(str(failure.__cause__))
            return False
        self.environment.happened(self.name, f"starts, with {len(records)} records")
        self.environment.trace.started(self.name, "bookie")
        for record in records:
            self.deliver(Replayed(record))
        for record in unproven:
            if type(record) is EntryAdded:
                self.environment.entry_durable(self.name, record)
        for ledger, fields in recovered(unproven).items():
            self.environment.trace.node_did(self.name, "bookie_recovers", fields, str(ledger))
        self.works = True
        return True

    def _settings(self) -> StorageSettings:
        """The storage's settings, small enough that everything that happens to large files happens here."""
        random = self.random
        return StorageSettings(
            journal_directory="the journal",
            ledger_directory="the entries",
            journal_write_data=self.journals_adds,
            journal_max_group_wait_msec=2 if random() < 0.3 else 0,
            journal_max_size_mb=(1 + int(random() * 20)) * JOURNAL_UNIT / MIB,
            journal_pre_alloc_size_mb=JOURNAL_UNIT / MIB,
            write_cache_max_size_mb=2 * (20 * self.environment.case.entries + int(random() ** 3 * 4_000)) / MIB,
            read_ahead_cache_max_size_mb=0,
            flush_interval=1_000 + int(random() * 10_000),
            log_size_limit=LOG_LIMIT,
            disk_check_interval=1_000,
        )

    @property
    def journals_adds(self) -> bool:
        """Whether adds are journalled before they are confirmed."""
        return True

    def _serve(self) -> None:
        """Start to take connections."""
        self.alive = True
        self.environment.judge.restarted(self.name, self._has)
        self._inform_judge()
        self.set_read_only(self.is_full)

    def crash(self, power: bool) -> None:
        """Kill the process, or (``power``) cut its machine's power."""
        if not self.works:
            return
        self.environment.happened(self.name, "loses power" if power else "is killed")
        self.alive = self.works = False
        self.process.is_gone = True
        self.disk.left = NEVER
        self.starts += 1
        if power:
            self.disk.lose_power(self.dice)
        self.environment.network.lose_all(self.name, noticed=not power)
        self.environment.bookie_gone(self.name)

    def crash_within(self, uses: int, power: bool) -> None:
        """Like :meth:`crash`, after ``uses`` more uses of the disk, in the middle of one."""
        self.disk.left = uses
        self.killed_within = not power

    def _crash_within(self) -> None:
        self.crash(power=not self.killed_within)

    def set_read_only(self, read_only: bool) -> None:
        """Become read-only, or writable again."""
        if self.alive:
            self.deliver(Call(0, "read only", (read_only,)))
            (self.environment.metadata.unregister if read_only else self.environment.metadata.register)(self.name)

    def refuse(self, why: str) -> None:
        """Never start again."""
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
        """A request arrived."""
        if not self.alive:
            return
        for call in self.on_request:
            call(request)
        if self.is_busy:
            self.held_back.append((connection, txn, request))
            return
        number = connection.number
        if type(request) is AddEntry or is_plain_read(request):
            arrived = self.arrived.setdefault(number, [])
            arrived.append((txn, request))
            if len(arrived) == 1:
                delay = int(self.random() * self.patience)
                self.environment.schedule.after(delay, self._if_there, self.starts, self._take, (number,))
            return
        self._take(number)
        self._asked(number, ((txn, request),))
        self.deliver(RequestArrived(number, txn, request))
        self._inform_judge()

    def _take(self, number: int) -> None:
        """Pass a connection's batch to the role, unless the process is ending."""
        arrived = self.arrived.pop(number, ()) if self.alive else ()
        for are_adds, some in groupby(arrived, lambda each: type(each[1]) is AddEntry):
            requests = [*some]
            self._asked(number, requests)
            self._give(number, requests, are_adds)
        self._inform_judge()

    def _give(self, number: int, requests: list[tuple[int, Any]], are_adds: bool) -> None:
        rows = batches() if self.environment.by_rows else None
        if rows is not None:
            memory = taken(rows, requests)
            if are_adds:
                for self.adds in rows.adds(memory, 0, len(requests)):
                    self.deliver(AddsArrived(number, self.adds.adds))
                return
            self.reads = rows.reads(0, len(requests))
        elif are_adds:
            if self.environment.by_rows:
                OF_BOOKIES.carried(len(requests))
            for adds in grouped(requests):
                self.deliver(AddsArrived(number, adds))
            return
        else:
            self.reads = [(txn, request.entry_id, request.ledger) for txn, request in requests]
        self.deliver(ReadsArrived(number, len(requests)))

    def _asked(self, number: int, requests: Iterable[tuple[int, Request]]) -> None:
        """Note the requests that the role is about to receive."""
        for txn, request in requests:
            self.asked_for[number, txn] = request, self.environment.judge.is_fenced(self.name, request)

    def closed(self, connection: Connection) -> None:
        """A connection is gone, so its requests need no answers."""
        if self.alive and self.starts == connection.start:
            self.arrived.pop(connection.number, None)
            self.held_back = [each for each in self.held_back if each[0] is not connection]
            self.deliver(ConnectionClosed(connection.number))

    def deliver(self, event: Event) -> None:
        """Pass an event to the role, and carry out its effects."""
        effects = self.environment.receive(self.name, self.role, event)
        carry = self._carry
        for effect in effects:
            carry[type(effect)](effect)

    def _inform_judge(self) -> None:
        """Show the judge the state of the bookie's ledgers. After the start, only requests change it."""
        for ledger, known in self.role.ledgers.items():
            self.environment.judge.knows(self.name, ledger, known.lac, known.fenced)

    def _has(self, ledger: int, entry_id: int) -> bool:
        """Whether the bookie has an entry, or at least does not deny having it (limbo)."""
        found = self.storage.look_up(ledger, entry_id)[0] is not Code.NO_ENTRY
        return found or (ledger in self.role.ledgers and self.role.ledgers[ledger].limbo)

    def damageable(self, name: str) -> int:
        """How many bytes of a file can be damaged detectably: damage to bytes not proven durable looks like a torn
        write.
        """
        if name in (SPARE, JOURNAL_RESERVE, LEDGER_RESERVE):
            return 0
        durable = self.disk.files[name].durable
        number = self.storage.journal.number
        return scan(bytes(durable), number).synced if name == name_of_journal(number) else len(durable)

    def places(self) -> list[tuple[str, int, int]]:
        """The locations of entries in entry logs: file, offset and size."""
        index = self.ledgers.logs.index
        found = [places_of(located) for ledger in index.ledgers() for located in index.runs(ledger)]
        return [(name_of_log(place.log), place.offset, place.size) for places in found for _, place in places]

    def in_memory(self) -> list[tuple[int, int]]:
        """The entries in memory, by ledger and id."""
        cache = self.ledgers.cache
        return [(ledger, entry_id) for ledger in cache.ledgers() for entry_id in cache.ids(ledger)]

    def flip_in_memory(self, ledger: int, entry_id: int, where: float) -> None:
        """Flip one bit of an entry in memory."""
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

    # -- effects of the role ------------------------------------------------------------------------------------------

    def _answer(self, answer: Answer) -> None:
        request, was_fenced = self.asked_for.pop((answer.connection, answer.txn))
        durable = (
            type(request) is not AddEntry or (request.ledger, request.entry_id, request.body) in self.durable_entries
        )
        self.environment.judge.answered(self.name, request, answer.response, was_fenced, durable)
        self.environment.network.respond(answer.connection, answer.txn, answer.response)

    def _answer_adds(self, answer: AnswerAdds) -> None:
        rows = batches()
        if rows is not None and type(answer.adds[0]) is AddBatch:
            self._answer_frames(answer.connection, rows.answers_to_adds(answer.adds, answer.code, v3))
            return
        for adds in answer.adds:
            assert isinstance(adds, AddRequests)
            for txn, response in adds.responses(answer.code):
                self._answer(Answer(answer.connection, txn, response))

    def _answer_reads(self, answer: AnswerReads) -> None:
        rows, reads = batches(), answer.reads
        if rows is not None and type(reads) is ReadResults:
            self._answer_frames(answer.connection, b"".join(rows.answers_to_reads(reads, answer.code, answer.lac, v3)))
            return
        assert isinstance(reads, FoundRequests)
        for txn, response in reads.responses(answer.code, answer.lac):
            self._answer(Answer(answer.connection, txn, response))

    def _answer_frames(self, connection: int, frames: bytes | memoryview) -> None:
        for payload in Frames().feed(bytes(frames)):
            self._answer(Answer(connection, *v3.decode_response(payload)))

    def _set_timer(self, timer: SetTimer) -> None:
        delay = timer.delay + int(self.random() * timer.jitter) if timer.jitter else timer.delay
        self.environment.schedule.after(delay, self._later, self.starts, TimerFired(timer.key))

    def _stop(self, stop: Stop) -> None:
        self.crash(power=False)

    def _trace(self, effect: Trace) -> None:
        """Trace an effect of the role. The connection's name identifies the client."""
        label = None if effect.connection is None else self.environment.network.label(effect.connection)
        self.environment.role_did(self.name, effect, label)

    def _result(self, result: Result) -> None:
        """A ledger is durably in limbo. Once all are, the bookie no longer needs to enter limbo at a start."""
        if result.token in self.entering_limbo:
            self.entering_limbo.remove(result.token)
            self.lost_data = bool(self.entering_limbo)

    # -- the storage --------------------------------------------------------------------------------------------------

    def _journal_one(self, effect: Journal) -> None:
        self.unsynced.append((effect.position, effect.record))
        self.storage.take([(effect.position, effect.record)])

    def _journal_adds(self, effect: JournalAdds) -> None:
        records: list[Record]
        if self.adds is not None and type(effect.adds[0]) is AddBatch:
            rows = self.adds.entries(effect.adds)
            records = [decode(record) for record in read_records(bytes(rows.view))]
            stored: list[tuple[int, Record | EntryRows]] = [(effect.position, rows)]
        else:
            recovery = any(adds.recovery for adds in effect.adds)
            added = [record for adds in effect.adds for record in adds.records()]  # type: ignore[attr-defined]
            records = [msgspec.structs.replace(record, recovery=recovery) for record in added]
            stored = [*enumerate(records, effect.position - len(records) + 1)]
        self.unsynced += enumerate(records, effect.position - len(records) + 1)
        self.storage.take(stored)

    def _hop(self, call: Callable[..., None], *arguments: Any) -> None:
        """Deliver a callback of the storage a moment later, in order."""
        schedule = self.environment.schedule
        self.heard = max(self.heard, schedule.now + int(self.random() * 20))
        schedule.at(self.heard, self._if_there, self.starts, call, arguments)

    def _synced(self, position: int) -> None:
        """Records up to a position are now as durable as they must be before they are answered."""
        while self.unsynced and self.unsynced[0][0] <= position:
            record = self.unsynced.popleft()[1]
            if type(record) is EntryAdded:
                self.durable_entries.add((record.ledger, record.entry_id, record.body))
                self.environment.entry_durable(self.name, record)
        self.environment.trace.node_did(self.name, "journal_synced", {"position": position})
        self._hop(self.deliver, JournalSynced(position))

    def _failed(self, reason: str) -> None:
        self.environment.happened(self.name, f"fails: {reason}")
        self.deliver(JournalFailed())

    def _busy(self, is_busy: bool) -> None:
        self.is_busy = is_busy
        while self.held_back and not self.is_busy:
            self.asked(*self.held_back.pop(0))

    def _full(self, is_full: bool) -> None:
        self.environment.happened(self.name, f"disk is full: {'yes' if is_full else 'no longer'}")
        self.is_full = is_full
        self.set_read_only(is_full)

    def _took(self, what: str, seconds: float) -> None:
        """After some checkpoints, collect garbage."""
        if what == "checkpoint" and self.random() < self.environment.collections:
            self._hop(self.forget_deleted)

    def forget_deleted(self) -> None:
        """Forget ledgers without metadata, and then reclaim their space once entry logs say so."""
        for ledger in self.storage.ledgers() if self.alive else ():
            if not self.environment.metadata.has(ledger):
                self.deliver(Call(0, "forget", (ledger,)))
        if self.ledgers.forgotten:
            self.storage.begin_checkpoint(lambda: self._hop(self._collect))
        else:
            self._collect()

    def _collect(self) -> None:
        self.process.begin("garbage", self.storage.collecting(1.0), self._failed)

    def _forget_ledger(self, forget: Forget) -> None:
        self.storage.forget(forget.ledger)

    def _look_up(self, look: LookOne) -> None:
        delay = (20 + int(self.random() * 100)) * self.slow
        self.environment.schedule.after(delay, self._if_there, self.starts, self._find, (look,))

    def _find(self, look: LookOne) -> None:
        is_awaited = self.role.lookups[look.number].connection in self.environment.network.connections
        self.deliver(find(self.storage, look) if is_awaited else failed_event(look))

    def _look_up_reads(self, effect: LookUpReads) -> None:
        """Look up reads in random portions, so that some take longer than others."""
        reads, refused = self.reads[: effect.count], self.reads[effect.count :]
        for txn, entry_id, ledger in refused:
            found = FoundRequests(int(ledger), ((int(txn), int(entry_id), None),))
            self._answer_reads(AnswerReads(effect.connection, found, Code.TOO_MANY_REQUESTS, NO_ENTRY_YET))
        while len(reads):
            count = 1 + int(self.random() * len(reads))
            some, reads = reads[:count], reads[count:]
            delay = (20 + int(self.random() * 100)) * self.slow
            arguments = (effect.number, some)
            self.environment.schedule.after(delay, self._if_there, self.starts, self._read_some, arguments)

    def _read_some(self, number: int, reads: Any) -> None:
        rows = batches()
        if rows is not None and not isinstance(reads, list):
            asked = ReadBatch(number, reads)
            for event in rows.found(asked, self.storage.read_rows(asked.ledgers, asked.entry_ids))[0]:
                self.deliver(event)
            return
        found: defaultdict[tuple[int, Code], list[tuple[int, int, bytes | None]]] = defaultdict(list)
        for txn, entry_id, ledger in reads:
            code, _, body = self.storage.look_up(ledger, entry_id)
            found[ledger, code].append((txn, entry_id, body))
        for (ledger, code), some in sorted(found.items(), key=lambda each: (each[0][0], each[0][1].value)):
            self.deliver(ReadsFound(number, ledger, code, FoundRequests(ledger, some)))

    def _after_disk(self, longest: int, what: Callable[..., None], *arguments: Any) -> None:
        """Call a function after a disk delay, if the process still runs."""
        delay = (100 + int(self.random() * longest)) * self.slow
        self.environment.schedule.after(delay, self._if_there, self.starts, what, arguments)

    def _if_there(self, start: int, what: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self.works and self.starts == start:
            what(*arguments)
