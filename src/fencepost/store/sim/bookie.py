"""A bookie's process: carries out what the role wants on a disk of bytes, and comes back from it after a crash.

What is in the journal is written in groups, each synced before the next one, as one thread would. Entries also go to a file that is not
synced: like the index, it is made anew from the journal at every start. A bookie whose disk is damaged or empty does not come back
as if nothing had been there: it refuses to start, or (BP-46) starts in limbo.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from fencepost.store.disk.journal import Damage, Writer, recover
from fencepost.store.disk.records import decode, encode
from fencepost.store.messages import AddEntry, Request
from fencepost.store.records import EntryAdded, Record
from fencepost.store.roles.bookie import Bookie
from fencepost.store.roles.interface import (
    Answer,
    Asked,
    Call,
    Effect,
    Event,
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
)
from fencepost.store.rules.codes import Code
from fencepost.store.sim.disk import DiskFull, SimDisk
from fencepost.store.sim.network import Connection

if TYPE_CHECKING:
    from fencepost.store.sim.cluster import Cluster

ENTRIES = "entries"
"""The file of entries; the files of the journal are called by their numbers."""

REST = 5_000
"""Microseconds without a record after which a journal gets the empty group that proves the last one to be durable."""

_ENTRY = struct.Struct(">qqI")
ENTRY_HEADER = _ENTRY.size
"""Bytes before each entry in its file, which say which one it is."""


class BookieProcess:
    """A bookie with its disk. ``refuses`` is why it does not start any more, ``limbo`` whether it starts in limbo when its disk is empty."""

    def __init__(self, name: str, cluster: Cluster, random: Random) -> None:
        self.name = name
        self.cluster = cluster
        self.random = random.random
        self.dice = random
        self.limbo = False
        self.disk = SimDisk()
        self.alive = False
        self.starts = 0
        self.refuses = ""
        self.replaying = False
        self.lost_data = False
        self.slow = 1
        self.failing_syncs = 0
        self.role = Bookie(cluster.case.protections)
        self._forget()
        self._carry: dict[type[Effect], Callable[[Any], None]] = {
            Journal: self._journal,
            Answer: self._answer,
            Store: self._store,
            LookUp: self._look_up,
            SetTimer: self._set_timer,
            Stop: self._stop,
            Result: self._result,
        }

    def _forget(self) -> None:
        """What a process knows is gone with it."""
        self.index: dict[tuple[int, int], tuple[int, int]] = {}
        self.last: dict[int, int] = {}
        self.pending: list[tuple[int, bytes, Record]] = []
        self.flushing = False
        self.unmarked = False
        self.proven = 0
        self.durable_entries: set[tuple[int, int, bytes]] = set()
        self.asked_for: dict[tuple[int, int], tuple[Request, bool]] = {}
        self.entering_limbo: set[int] = set()

    # -- start and end ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Come back with what is on the disk, or refuse."""
        if self.alive or self.refuses:
            return
        self.starts += 1
        self._forget()
        self.role = Bookie(self.cluster.case.protections)
        names = sorted(name for name in self.disk.files if name != ENTRIES)
        try:
            found = recover([(int(name), bytes(self.disk.files[name].content)) for name in names])
        except Damage as damage:
            self.refuse(str(damage))
            return
        if self.lost_data and not self.limbo:
            self.refuse("its disk is empty, and was not")
            return
        for name in names:
            if int(name) > found.number:
                del self.disk.files[name]
        self.disk.files.pop(ENTRIES, None)
        self.writer = Writer(found.number + 1)
        self.file = f"{self.writer.number:06}"
        self.cluster.note(self.name, f"starts, with {len(found.records)} records")
        self.replaying = True
        try:
            self.disk.append(self.file, self.writer.begin(found.end, found.unproven))
            for payload in found.records:
                self.deliver(Replayed(decode(payload)))
        except DiskFull:
            self.disk.files.pop(self.file)
            return
        file = self.disk.files[self.file]
        file.end_sync(file.begin_sync())
        self.writer.synced = self.writer.end
        for payload in found.unproven:
            record = decode(payload)
            if type(record) is EntryAdded:
                self.cluster.entry_durable(self.name, record)
        self.alive = True
        if self.lost_data and self.limbo:
            self._enter_limbo()
        self.replaying = False
        self.cluster.judge.restarted(self.name, self._has)
        self._tell_judge()
        self.cluster.metadata.register(self.name)

    def crash(self, power: bool) -> None:
        """The process is killed, or (``power``) its machine loses power."""
        if not self.alive:
            return
        self.cluster.note(self.name, "loses power" if power else "is killed")
        self.alive = False
        self.starts += 1
        if power:
            self.disk.lose_power(self.dice)
        self.cluster.network.lose_all(self.name, noticed=not power)
        self.cluster.bookie_gone(self)

    def set_read_only(self, read_only: bool) -> None:
        """Take nothing from owners any more, or again."""
        if self.alive:
            self.deliver(Call(0, "read only", (read_only,)))
            (self.cluster.metadata.unregister if read_only else self.cluster.metadata.register)(self.name)

    def refuse(self, why: str) -> None:
        """The bookie does not start any more."""
        self.cluster.note(self.name, f"refuses to start: {why}")
        self.refuses = why

    def _enter_limbo(self) -> None:
        """Put every ledger in limbo that may have had entries here."""
        for ledger, (metadata, _) in sorted(self.cluster.metadata.ledgers.items()):
            if any(self.name in fragment.ensemble for fragment in metadata.fragments):
                self.entering_limbo.add(ledger)
            else:
                self.cluster.judge.forgot(self.name, ledger)
        if not self.entering_limbo:
            self.lost_data = False
        for ledger in sorted(self.entering_limbo):
            self.deliver(Call(ledger, "enter limbo", (ledger,)))

    # -- events -------------------------------------------------------------------------------------------------------

    def asked(self, connection: Connection, txn: int, request: Request) -> None:
        """A request came."""
        if not self.alive:
            return
        history = self.cluster.judge.ledgers[request.ledger]
        self.asked_for[connection.number, txn] = (request, self.name in history.fenced)
        self.deliver(Asked(connection.number, txn, request))
        self._tell_judge()

    def deliver(self, event: Event) -> None:
        """Give the role an event, and do what it wants."""
        effects = self.cluster.receive(self.name, self.role, event)
        carry = self._carry
        for effect in effects:
            carry[type(effect)](effect)

    def _tell_judge(self) -> None:
        """What the bookie knows of its ledgers. Only requests change that, once it has started."""
        for ledger, known in self.role.ledgers.items():
            self.cluster.judge.knows(self.name, ledger, known.lac, known.fenced)

    def _has(self, ledger: int, entry_id: int) -> bool:
        """Whether the bookie has an entry, or does not say that it lacks it."""
        return (ledger, entry_id) in self.index or (ledger in self.role.ledgers and self.role.ledgers[ledger].limbo)

    def damageable(self, name: str) -> int:
        """How many bytes of a file may be damaged so that it is noticed: what nothing proves to be durable looks like a torn write."""
        if name == ENTRIES:
            return len(self.disk.files[name].content)
        return self.proven if name == self.file else len(self.disk.files[name].durable)

    def _later(self, start: int, event: Event) -> None:
        if self.alive and self.starts == start:
            self.deliver(event)

    # -- what the role wants ------------------------------------------------------------------------------------------

    def _answer(self, answer: Answer) -> None:
        request, was_fenced = self.asked_for.pop((answer.connection, answer.txn))
        durable = type(request) is not AddEntry or (request.ledger, request.entry_id, request.body) in self.durable_entries
        self.cluster.judge.answered(self.name, request, answer.response, was_fenced, durable)
        self.cluster.network.respond(answer.connection, answer.txn, answer.response)

    def _set_timer(self, timer: SetTimer) -> None:
        delay = timer.delay + int(self.random() * timer.jitter) if timer.jitter else timer.delay
        self.cluster.schedule.after(delay, self._later, self.starts, TimerFired(timer.key))

    def _stop(self, stop: Stop) -> None:
        self.crash(power=False)

    def _result(self, result: Result) -> None:
        """A ledger is in limbo, durably. Once all are that have to be, the bookie may come back without being put there again."""
        if result.token in self.entering_limbo:
            self.entering_limbo.remove(result.token)
            self.lost_data = bool(self.entering_limbo)

    # -- the journal --------------------------------------------------------------------------------------------------

    def _journal(self, effect: Journal) -> None:
        record = effect.record
        self.pending.append((effect.position, encode(record), record))
        if not self.flushing:
            self.flushing = True
            self.cluster.schedule.after(int(self.random() * 200), self._flush, self.starts)

    def _flush(self, start: int) -> None:
        """Write what is pending as one group, and sync it."""
        if not self.alive or self.starts != start:
            return
        group, self.pending = self.pending, []
        proves = self.writer.synced
        try:
            self.disk.append(self.file, self.writer.group([payload for _, payload, _ in group]))
        except DiskFull:
            self.cluster.note(self.name, "can not write its journal: the disk is full")
            self.flushing = False
            self.deliver(JournalFailed())
            return
        sectors = self.disk.files[self.file].begin_sync()
        delay = (100 + int(self.random() * 900)) * self.slow
        self.cluster.schedule.after(delay, self._synced, start, sectors, self.writer.end, proves, group)

    def _synced(
        self, start: int, sectors: frozenset[int], end: int, proves: int, group: list[tuple[int, bytes, Record]]
    ) -> None:
        if not self.alive or self.starts != start:
            return
        file = self.disk.files[self.file]
        if self.failing_syncs:
            self.failing_syncs -= 1
            file.fail_sync(sectors, self.dice)
            self.cluster.note(self.name, "fails to sync its journal")
            self.flushing = False
            self.deliver(JournalFailed())
            return
        file.end_sync(sectors)
        self.writer.synced, self.proven = end, proves
        self.flushing = bool(self.pending)
        if group:
            for _, _, record in group:
                if type(record) is EntryAdded:
                    self.durable_entries.add((record.ledger, record.entry_id, record.body))
                    self.cluster.entry_durable(self.name, record)
            self.unmarked = True
            self.deliver(JournalSynced(group[-1][0]))
        if self.alive and self.pending:
            self.flushing = True
            self._flush(start)
        elif self.alive and self.unmarked:
            self.unmarked = False
            self.cluster.schedule.after(REST, self._rest, start, end)

    def _rest(self, start: int, end: int) -> None:
        """Write an empty group, if nothing was written for a while."""
        if self.alive and self.starts == start and not self.flushing and self.writer.end == end:
            self.flushing = True
            self._flush(start)

    # -- entries ------------------------------------------------------------------------------------------------------

    def _store(self, store: Store) -> None:
        if self.replaying:
            self.durable_entries.add((store.ledger, store.entry_id, store.body))
        key = (store.ledger, store.entry_id)
        data = _ENTRY.pack(store.ledger, store.entry_id, len(store.body)) + store.body
        try:
            offset = self.disk.append(ENTRIES, data)
        except DiskFull:
            if self.replaying:
                raise
            return  # the journal can not be written either, and nobody will be told of the entry
        self.index[key] = (offset, len(data))
        self.last[store.ledger] = max(store.entry_id, self.last.get(store.ledger, -1))

    def _look_up(self, look_up: LookUp) -> None:
        entry_id = self.last.get(look_up.ledger, -1) if look_up.entry_id < 0 else look_up.entry_id
        self.cluster.schedule.after((20 + int(self.random() * 100)) * self.slow, self._read, self.starts, look_up, entry_id)

    def _read(self, start: int, look_up: LookUp, entry_id: int) -> None:
        """Read an entry from its file. The names before it say whether it is the right place; nothing says whether it is whole."""
        if not self.alive or self.starts != start:
            return
        at = self.index.get((look_up.ledger, entry_id))
        if at is None:
            self.deliver(Found(look_up.number, Code.NO_ENTRY, look_up.entry_id))
            return
        data = self.disk.read(ENTRIES, *at)
        if data[: _ENTRY.size] != _ENTRY.pack(look_up.ledger, entry_id, at[1] - _ENTRY.size):
            self.deliver(Found(look_up.number, Code.IO_ERROR, entry_id))
        else:
            self.deliver(Found(look_up.number, Code.OK, entry_id, data[_ENTRY.size :]))
