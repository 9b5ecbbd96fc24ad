"""A bookie's process: carries out what the role wants on a disk of bytes, and comes back from it after a crash.

It writes the files of a real bookie, by the same code: a journal in groups, each synced before the next one, entry logs
at checkpoints, and it collects garbage. Only threads and their times are virtual, and the index is in memory. A bookie
whose disk is damaged or empty does not come back as if nothing had been there: it refuses to start, or (BP-46) starts
in limbo.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from random import Random
from typing import Any

import msgspec

from fencepost.simulation.disk import SimDisk
from fencepost.store.bookie.batches import ArrivedAdds, Batches
from fencepost.store.bookie.inbox import Memory
from fencepost.store.client.loops import Loops
from fencepost.store.disk.collection import Collection
from fencepost.store.disk.entry_logs import EntryLogs, known_journals
from fencepost.store.disk.entry_logs import name_of as name_of_log
from fencepost.store.disk.index import Index, places_of
from fencepost.store.disk.journal import Damage, read_records
from fencepost.store.disk.journal_files import SPARE, JournalFiles, journals_in, read_journal, read_what_is_left
from fencepost.store.disk.journal_files import name_of as name_of_journal
from fencepost.store.disk.ledger_store import Checkpoint, LedgerStore
from fencepost.store.disk.records import decode, encode
from fencepost.store.disk.sections import Section
from fencepost.store.disk.write_cache import PlainWriteCache
from fencepost.store.messages import NO_ENTRY_YET, AddEntry, Request
from fencepost.store.records import EntryAdded, LacWritten, Record, recovered
from fencepost.store.roles.bookie import Bookie
from fencepost.store.roles.interface import (
    Answer,
    AnswerAdds,
    AnswerReads,
    Asked,
    AskedToAdd,
    AskedToRead,
    Call,
    Effect,
    Event,
    Forget,
    Found,
    Journal,
    JournalAdds,
    JournalFailed,
    JournalSynced,
    LookUp,
    LookUpReads,
    ReadsFound,
    Replayed,
    Result,
    SetTimer,
    Stop,
    TimerFired,
    Trace,
)
from fencepost.store.roles.requests import AddRequests, FoundRequests, grouped, is_plain_read
from fencepost.store.rows.requests import AddRows, FoundReads, ReadRows
from fencepost.store.rules.codes import Code
from fencepost.store.sim.environment import Environment
from fencepost.store.sim.network import Connection
from fencepost.store.sim.wire import v3
from fencepost.store.wire.frames import Frames

REST = 5_000
"""Microseconds without a record after which a journal gets the empty group that proves the last one to be durable."""

JOURNAL_UNIT = 2_048
"""Bytes by which a journal file grows."""

WORTH = 200_000
"""Requests of simulated clients that are taken one at a time before it is worth to have loops."""

TOGETHER = 300
"""Microseconds in which the adds and plain reads of a connection are taken together, at most."""

LOG_LIMIT = 4_096
"""Bytes after which an entry log is followed by the next one."""


OF_BOOKIES = Loops(("fencepost.store.rows.bookie",), WORTH)

_BATCHES: list[Batches] = []


def batches() -> Batches | None:
    """The rows of all bookies of this process, one after another; None while there are no loops."""
    if not _BATCHES and OF_BOOKIES.module is not None and v3 is not None:
        _BATCHES.append(Batches(OF_BOOKIES.module))
    return _BATCHES[0] if _BATCHES else None


def taken(rows: Batches, requests: list[tuple[int, Any]]) -> Memory:
    """The frames of adds, or of plain reads, of which there are rows then."""
    frames = b"".join(v3.encode_request(txn, request) for txn, request in requests)
    memory = Memory(len(frames))
    memory.view[:] = frames
    count, _, _ = rows.loops.parse(memory.array, 0, len(frames), len(frames), v3.VERSION, rows.table)
    assert count == len(requests)
    return memory


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
            Journal: self._journal_one,
            JournalAdds: self._journal_adds,
            Answer: self._answer,
            AnswerAdds: self._answer_adds,
            AnswerReads: self._answer_reads,
            Forget: self._forget_ledger,
            LookUp: self._look_up,
            LookUpReads: self._look_up_reads,
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
        self.arrived: dict[int, list[tuple[int, Any]]] = {}
        """Adds and plain reads of each connection that the role has not been given yet, with their numbers."""
        self.reads: Any = ()
        self.adds: ArrivedAdds | None = None
        """Those that the role is being given; adds, if they are rows."""
        self.patience = int(self.random() ** 2 * TOGETHER)
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
            self.deliver(Replayed(LacWritten(record.ledger, record.lac, b"") if type(record) is EntryAdded else record))
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
        self.deliver(Asked(number, txn, request))
        self._inform_judge()

    def _take(self, number: int) -> None:
        """Give the role what came together over a connection, unless the process has begun to end."""
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
                    self.deliver(AskedToAdd(number, self.adds.adds))
                return
            self.reads = rows.reads(0, len(requests))
        elif are_adds:
            if self.environment.by_rows:
                OF_BOOKIES.carried(len(requests))
            for adds in grouped(requests):
                self.deliver(AskedToAdd(number, adds))
            return
        else:
            self.reads = [(txn, request.entry_id, request.ledger) for txn, request in requests]
        self.deliver(AskedToRead(number, len(requests)))

    def _asked(self, number: int, requests: Iterable[tuple[int, Request]]) -> None:
        """The role is given requests now."""
        for txn, request in requests:
            history = self.environment.judge.ledgers[request.ledger]
            self.asked_for[number, txn] = (request, self.name in history.fenced)

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

    def _answer_adds(self, answer: AnswerAdds) -> None:
        rows = batches()
        if rows is not None and type(answer.adds[0]) is AddRows:
            self._answer_frames(answer.connection, rows.answers_to_adds(answer.adds, answer.code, v3))
            return
        for adds in answer.adds:
            assert isinstance(adds, AddRequests)
            for txn, response in adds.responses(answer.code):
                self._answer(Answer(answer.connection, txn, response))

    def _answer_reads(self, answer: AnswerReads) -> None:
        rows, reads = batches(), answer.reads
        if rows is not None and type(reads) is FoundReads:
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

    def _journal_one(self, effect: Journal) -> None:
        self.ledgers.apply(effect.record)
        self._journal(effect.position, (effect.record,))

    def _journal(self, last: int, records: Sequence[Record]) -> None:
        """Write records, the last of which has a position."""
        for position, record in enumerate(records, last - len(records) + 1):
            self.pending.append((position, encode(record), record))
        self._flush_soon()

    def _journal_adds(self, effect: JournalAdds) -> None:
        recovery = any(adds.recovery for adds in effect.adds)
        records: list[Record]
        if self.adds is not None and type(effect.adds[0]) is AddRows:
            rows = self.adds.entries(effect.adds)
            self.ledgers.apply_rows(rows)
            records = [decode(record) for record in read_records(bytes(rows.view))]
        else:
            records = [record for adds in effect.adds for record in adds.records()]  # type: ignore[attr-defined]
            for record in records:
                self.ledgers.apply(record)
        self._journal(effect.position, [msgspec.structs.replace(record, recovery=recovery) for record in records])
        self._begin_checkpoint()

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

    def _look_up_reads(self, effect: LookUpReads) -> None:
        """Some of the reads may take longer than others."""
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
            asked = ReadRows(number, reads)
            for event in rows.found(asked, self.ledgers.read_rows(asked.ledgers, asked.entry_ids))[0]:
                self.deliver(event)
            return
        found: defaultdict[tuple[int, Code], list[tuple[int, int, bytes | None]]] = defaultdict(list)
        for txn, entry_id, ledger in reads:
            code, _, body = self.ledgers.look_up(ledger, entry_id)
            found[ledger, code].append((txn, entry_id, body))
        for (ledger, code), some in sorted(found.items(), key=lambda each: (each[0][0], each[0][1].value)):
            self.deliver(ReadsFound(number, ledger, code, FoundRequests(ledger, some)))

    def _after_disk(self, longest: int, what: Callable[..., None], *arguments: Any) -> None:
        """Do something when the disk has had time for it, if the process is still there."""
        delay = (100 + int(self.random() * longest)) * self.slow
        self.environment.schedule.after(delay, self._if_there, self.starts, what, arguments)

    def _if_there(self, start: int, what: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self.works and self.starts == start:
            what(*arguments)
