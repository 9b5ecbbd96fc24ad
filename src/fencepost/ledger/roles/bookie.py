"""The bookie: stores entries, serves them, and can be fenced.

Every answer waits until what it shows is durable. An add waits for its entry. A refusal or a fencing read waits for the
fence, whichever client requested it first. A read waits for the entry that it returns. Only an add with deferred sync
does not wait. (BookKeeper's bookie answers some fencing reads before the fence is in its journal, and forgets the fence
when it is killed.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from fencepost.ledger.entries import Runs, header, runs_of
from fencepost.ledger.messages import (
    NO_AUTHENTICATION,
    NO_ENTRY_YET,
    Auth,
    AuthResponse,
    BatchRead,
    BatchReadResponse,
    ForceLedger,
    ForceLedgerResponse,
    GetBookieInfo,
    GetBookieInfoResponse,
    ListEntries,
    ListEntriesResponse,
    ReadEntry,
    ReadEntryResponse,
    ReadLac,
    ReadLacResponse,
    Request,
    Response,
    StartTls,
    StartTlsResponse,
    WriteLac,
    WriteLacResponse,
)
from fencepost.ledger.records import LacWritten, LedgerFenced, LimboChanged, MasterKeyLearnt, Record
from fencepost.ledger.roles.interface import (
    Adds,
    AddsArrived,
    Answer,
    AnswerAdds,
    AnswerReads,
    BatchFound,
    Call,
    ConnectionClosed,
    Effect,
    Error,
    Event,
    FindRuns,
    Forget,
    Found,
    Journal,
    JournalAdds,
    JournalFailed,
    JournalSynced,
    LookUp,
    LookUpBatch,
    LookUpReads,
    Measure,
    Measured,
    Reads,
    ReadsArrived,
    ReadsFound,
    Replayed,
    RequestArrived,
    Result,
    RunsFound,
    SetTimer,
    Stop,
    TimerFired,
    Trace,
)
from fencepost.ledger.roles.requests import is_plain_read
from fencepost.ledger.rules.adding import answer_to_add, answer_to_key, key_matches, lac_of_bookie
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.protections import ALL, Protections
from fencepost.ledger.rules.reading import (
    answer_to_poll,
    answer_to_read,
    answer_to_read_lac,
    how_many_may_begin,
    is_poll_over,
    is_readable,
    size_of_batch,
)
from fencepost.ledger.rules.recovery import is_fenced_by_read


class Limits(msgspec.Struct, frozen=True):
    """Limits on requests in flight at a bookie. A request beyond them is answered ``TOO_MANY_REQUESTS``.

    ``lookups``: requests waiting for storage. ``polls`` and ``polls_of_ledger``: long polls waiting for a LAC.
    ``poll_wait``: the longest wait of a long poll, in microseconds. ``batch_entries`` and ``batch_size``, in bytes: the
    limits of a response to a batch read.
    """

    lookups: int = 10_000
    polls: int = 10_000
    polls_of_ledger: int = 1_000
    poll_wait: int = 60_000_000
    batch_entries: int = 1_000
    batch_size: int = 5 * 1024 * 1024


class Ledger(msgspec.Struct):
    """A bookie's state of a ledger, without its entries. ``position``: of the last journal record about this state."""

    master_key: bytes | None = None
    fenced: bool = False
    limbo: bool = False
    lac: int = NO_ENTRY_YET
    lac_body: bytes | None = None
    position: int = 0
    polls: dict[int, RequestArrived] = msgspec.field(default_factory=dict)


class Bookie:
    """One bookie. ``read_only``: it takes entries only from recoveries. ``traces``: it records its actions, see
    :class:`Trace`.

    These calls are answered once their changes are durable: ``fence``, ``enter limbo`` (which also fences) and ``leave
    limbo``, each with a ledger, and ``store entries``, with :class:`Adds` of entries copied from other bookies, whose
    key and flags are ignored. These calls are answered at once: ``read only``, with the new value, and ``forget``, with
    a deleted ledger.
    """

    def __init__(self, protections: Protections = ALL, limits: Limits | None = None, traces: bool = False) -> None:
        self.protections = protections
        self.traces = traces
        self.limits = limits or Limits()
        self.ledgers: dict[int, Ledger] = {}
        self.position = 0
        self.synced = 0
        self.read_only = False
        self.stopped = False
        self.waiting: deque[tuple[int, Answer | AnswerAdds | AnswerReads | Result]] = deque()
        """Answers waiting for the journal, in the order of the positions that must be durable."""
        self.unsynced: dict[int, deque[tuple[int, Adds]]] = {}
        """Adds not yet durable: by ledger, with the position of the first, and in ``batches`` in order of arrival, with
        the position of the last.
        """
        self.batches: deque[tuple[int, tuple[Adds, ...]]] = deque()
        self.adds_under_way = 0
        """The number of adds not yet durable."""
        self.lookups: dict[int, RequestArrived] = {}
        self.reads: dict[int, tuple[int, int]] = {}
        """Reads that arrived together and wait for storage, by number: the connection, and how many are left."""
        self.reads_under_way = 0
        """The total number of these reads."""
        self.asked_at: dict[int, int] = {}
        """For a trace: the journal position when each look-up began, by its number."""
        self.polls: dict[int, int] = {}
        """The ledger of each waiting long poll, by its number."""
        self.number = 0
        """The number of the last look-up or long poll."""

    def __repr__(self) -> str:
        return f"Bookie({', '.join(f'{name}={value!r}' for name, value in vars(self).items() if value)})"

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Take an event and give its effects. There are none after the journal has failed."""
        effects: list[Effect] = []
        if self.stopped:
            return effects
        if type(event) is RequestArrived:
            request = event.request
            _REQUESTS[type(request)](self, event, request, effects)
        else:
            _EVENTS[type(event)](self, event, effects)
        return effects

    # -- requests ------------------------------------------------------------------------------------------------------

    def _adds(self, event: AddsArrived, effects: list[Effect]) -> None:
        """Take adds that arrived together. They do not affect each other's answers, except that a ledger's first key
        becomes its key. Keys are journalled before all entries.
        """
        connection, taken = event.connection, list[Adds]()
        for adds in event.adds:
            ledger = self.ledgers.get(adds.ledger, _UNKNOWN)
            code = answer_to_add(
                key_matches=key_matches(ledger.master_key, adds.master_key),
                fenced=ledger.fenced,
                recovery=adds.recovery,
                read_only=self.read_only,
                protections=self.protections,
            )
            if code is not Code.OK:
                if self.traces:
                    entries = runs_of(adds.entry_ids())
                    self._trace_refusal(connection, adds, entries, ledger.position, code, effects)
                self._reply(AnswerAdds(connection, (adds,), code), ledger.position, effects)
                continue
            taken.append(adds)
            if ledger.master_key is None:
                self._learn(adds.ledger, adds.master_key, effects)
        if not taken:
            return
        batch = tuple(taken)
        self._journal_adds(batch, effects)
        if self.traces:
            for adds in batch:
                self._trace_adds(connection, adds.ledger, runs_of(adds.entry_ids()), adds.recovery, adds.lac, effects)
        at_once = tuple(adds for adds in batch if adds.deferred_sync)
        if at_once:
            effects.append(AnswerAdds(connection, at_once, Code.OK))
            batch = tuple(adds for adds in batch if not adds.deferred_sync)
        if batch:
            self.waiting.append((self.position, AnswerAdds(connection, batch, Code.OK)))
        for adds in taken:
            self._raise_lac(self.ledgers[adds.ledger], adds.lac, effects)

    def _read(self, asked: RequestArrived, request: ReadEntry, effects: list[Effect]) -> None:
        assert not is_plain_read(request), "plain reads come together"
        ledger = self.ledgers.get(request.ledger, _UNKNOWN)
        if request.fence:
            code, ledger = self._fence_by_read(asked.connection, request, ledger, effects)
            if code is not Code.OK:
                if self.traces:
                    self._trace_read(asked, request, Found(0, code), code, (self.position, ledger.position), effects)
                self._reply(Answer(asked.connection, asked.txn, _failure(request, code)), ledger.position, effects)
                return
        if ledger is _UNKNOWN or request.previous_lac is None:
            self._look_up(asked, request.entry_id, effects)
        elif request.wait and not is_poll_over(ledger.lac, request.previous_lac, ledger.fenced):
            self._wait(asked, request, ledger, effects)
        else:
            self._end_poll(asked, ledger, effects)

    def _wait(self, asked: RequestArrived, request: ReadEntry, ledger: Ledger, effects: list[Effect]) -> None:
        limits = self.limits
        if len(self.polls) < limits.polls and len(ledger.polls) < limits.polls_of_ledger:
            self.number += 1
            ledger.polls[self.number] = asked
            self.polls[self.number] = request.ledger
            effects.append(SetTimer((request.ledger, self.number), min(request.wait, limits.poll_wait)))
        else:
            effects.append(Answer(asked.connection, asked.txn, _failure(request, Code.TOO_MANY_REQUESTS)))

    def _batch_read(self, asked: RequestArrived, request: BatchRead, effects: list[Effect]) -> None:
        code, ledger = Code.OK, self.ledgers.get(request.ledger, _UNKNOWN)
        if request.fence:
            code, ledger = self._fence_by_read(asked.connection, request, ledger, effects)
        if code is not Code.OK:
            self._reply(Answer(asked.connection, asked.txn, _failure(request, code)), ledger.position, effects)
            return
        if self._begin(asked, effects):
            max_count = size_of_batch(request.max_count, self.limits.batch_entries)
            max_size = size_of_batch(request.max_size, self.limits.batch_size)
            effects.append(LookUpBatch(self.number, request.ledger, request.entry_id, max_count, max_size))

    def _read_lac(self, asked: RequestArrived, request: ReadLac, effects: list[Effect]) -> None:
        self._look_up(asked, NO_ENTRY_YET, effects)

    def _write_lac(self, asked: RequestArrived, request: WriteLac, effects: list[Effect]) -> None:
        ledger = self.ledgers.get(request.ledger, _UNKNOWN)
        code = answer_to_key(ledger.master_key, request.master_key, self.protections)
        if code is Code.OK:
            ledger = self._learn(request.ledger, request.master_key, effects)
            self._journal(LacWritten(request.ledger, request.lac, request.body), effects)
            ledger.position = self.position
        response = WriteLacResponse(request.ledger, code)
        self._reply(Answer(asked.connection, asked.txn, response), ledger.position, effects)
        if code is Code.OK:
            self._raise_lac(ledger, request.lac, effects, request.body)

    def _force(self, asked: RequestArrived, request: ForceLedger, effects: list[Effect]) -> None:
        response = ForceLedgerResponse(request.ledger, Code.OK)
        if self.traces:
            effects.append(Trace("bookie_forces_ledger", request.ledger, {"position": self.position}, asked.connection))
        self._reply(Answer(asked.connection, asked.txn, response), self.position, effects)

    def _list_entries(self, asked: RequestArrived, request: ListEntries, effects: list[Effect]) -> None:
        if self._begin(asked, effects):
            effects.append(FindRuns(self.number, request.ledger))

    def _info(self, asked: RequestArrived, request: GetBookieInfo, effects: list[Effect]) -> None:
        if self._begin(asked, effects):
            effects.append(Measure(self.number))

    def _auth(self, asked: RequestArrived, request: Auth, effects: list[Effect]) -> None:
        effects.append(Answer(asked.connection, asked.txn, AuthResponse(Code.OK, NO_AUTHENTICATION)))

    def _start_tls(self, asked: RequestArrived, request: StartTls, effects: list[Effect]) -> None:
        """Refuse TLS. The driver handles TLS, and passes this request on only if it has none."""
        effects.append(Answer(asked.connection, asked.txn, StartTlsResponse(Code.BAD_REQUEST)))

    # -- what comes back from the journal, from storage and from timers ------------------------------------------------

    def _journal_synced(self, event: JournalSynced, effects: list[Effect]) -> None:
        self.synced = synced = event.position
        waiting = self.waiting
        while waiting and waiting[0][0] <= synced:
            effects.append(waiting.popleft()[1])
        while self.batches and self.batches[0][0] <= synced:
            for adds in self.batches.popleft()[1]:
                self.adds_under_way -= len(adds)
                of_ledger = self.unsynced[adds.ledger]
                of_ledger.popleft()
                if not of_ledger:
                    del self.unsynced[adds.ledger]

    def _journal_failed(self, event: JournalFailed, effects: list[Effect]) -> None:
        self.stopped = True
        effects.append(Stop("the journal cannot be written"))

    def _found(self, event: Found, effects: list[Effect]) -> None:
        asked, since = self.lookups.pop(event.number), self.asked_at.pop(event.number, 0)
        request = asked.request
        ledger = self.ledgers.get(request.ledger, _UNKNOWN)
        after = max(ledger.position, self._position_of(request.ledger, event.entry_id))
        response: Response
        if type(request) is ReadEntry:
            response = self._read_response(request, ledger, event)
            if self.traces and (event.body is not None or not _is_piggyback(request)):
                self._trace_read(asked, request, event, response.code, (since, after), effects)
        else:
            code = self._answer_to_read_lac(ledger, event.code)
            response = ReadLacResponse(request.ledger, code)
            if code is Code.OK:
                response = ReadLacResponse(request.ledger, code, ledger.lac_body, event.body)
        self._reply(Answer(asked.connection, asked.txn, response), after, effects)

    def _asked_to_read(self, event: ReadsArrived, effects: list[Effect]) -> None:
        count = how_many_may_begin(event.count, len(self.lookups) + self.reads_under_way, self.limits.lookups)
        self.number += 1
        if count:
            self.reads[self.number] = event.connection, count
            if self.traces:
                self.asked_at[self.number] = self.position
            self.reads_under_way += count
        effects.append(LookUpReads(self.number, event.connection, count))

    def _reads_found(self, event: ReadsFound, effects: list[Effect]) -> None:
        number, count = event.number, len(event.reads)
        connection, left = self.reads.pop(number)
        self.reads_under_way -= count
        since = self.asked_at.pop(number, 0) if self.traces else 0
        if left > count:
            self.reads[number] = connection, left - count
            if self.traces:
                self.asked_at[number] = since
        ledger = self.ledgers.get(event.ledger, _UNKNOWN)
        code = self._answer_to_read(ledger, event.code)
        for after, reads in self._by_position(event.ledger, event.reads):
            if self.traces:
                position = max(ledger.position, after)
                entries = runs_of(reads.entry_ids())
                self._trace_reads(connection, event.ledger, entries, False, code, (since, position), effects)
            self._reply(AnswerReads(connection, reads, code, ledger.lac), max(ledger.position, after), effects)

    def _by_position(self, of_ledger: int, reads: Reads) -> list[tuple[int, Reads]]:
        """Group reads by the journal position that must be durable before their entries are shown, in order."""
        unsynced = self.unsynced.get(of_ledger)
        if unsynced is None or all(adds.high < reads.low or adds.low > reads.high for _, adds in unsynced):
            return [(0, reads)]
        found: dict[int, list[int]] = {}
        for place, entry_id in enumerate(reads.entry_ids()):
            found.setdefault(self._position_of(of_ledger, entry_id), []).append(place)
        return [(position, reads.only(places)) for position, places in sorted(found.items())]

    def _answer_to_read(self, ledger: Ledger, found: Code) -> Code:
        return answer_to_read(
            stored=found is Code.OK,
            known_ledger=ledger is not _UNKNOWN,
            limbo=ledger.limbo,
            unreadable=found is Code.IO_ERROR,
            protections=self.protections,
        )

    def _answer_to_read_lac(self, ledger: Ledger, found: Code) -> Code:
        return answer_to_read_lac(
            known_ledger=ledger is not _UNKNOWN,
            limbo=ledger.limbo,
            unreadable=found is Code.IO_ERROR,
            protections=self.protections,
        )

    def _read_response(self, request: ReadEntry, ledger: Ledger, event: Found) -> ReadEntryResponse:
        code = self._answer_to_read(ledger, event.code)
        if code is Code.OK:
            entry_id = event.entry_id if _is_piggyback(request) else request.entry_id
            return ReadEntryResponse(request.ledger, entry_id, code, ledger.lac, event.body)
        if _is_piggyback(request):
            code = answer_to_poll(code)
        return ReadEntryResponse(request.ledger, request.entry_id, code, ledger.lac)

    def _batch_found(self, event: BatchFound, effects: list[Effect]) -> None:
        asked, since = self.lookups.pop(event.number), self.asked_at.pop(event.number, 0)
        request = asked.request
        assert type(request) is BatchRead
        ledger, of_ledger, first = self.ledgers.get(request.ledger, _UNKNOWN), request.ledger, request.entry_id
        response = BatchReadResponse(of_ledger, first, self._answer_to_read(ledger, event.code), event.bodies)
        entries = range(first, first + len(event.bodies))
        after = max([ledger.position, *(self._position_of(of_ledger, entry_id) for entry_id in entries)])
        if self.traces:
            found = ((first, first + max(len(event.bodies), 1) - 1),)
            positions = since, after
            self._trace_reads(asked.connection, of_ledger, found, request.fence, response.code, positions, effects)
        self._reply(Answer(asked.connection, asked.txn, response), after, effects)

    def _runs_found(self, event: RunsFound, effects: list[Effect]) -> None:
        asked = self.lookups.pop(event.number)
        self.asked_at.pop(event.number, 0)
        request = asked.request
        ledger = self.ledgers.get(request.ledger, _UNKNOWN)
        code = self._answer_to_read_lac(ledger, event.code)
        response = ListEntriesResponse(request.ledger, code, event.runs if code is Code.OK else ())
        self._reply(Answer(asked.connection, asked.txn, response), self.position, effects)

    def _measured(self, event: Measured, effects: list[Effect]) -> None:
        asked = self.lookups.pop(event.number)
        self.asked_at.pop(event.number, 0)
        assert type(asked.request) is GetBookieInfo
        total = event.total if asked.request.total else None
        response = GetBookieInfoResponse(Code.OK, total, event.free if asked.request.free else None)
        effects.append(Answer(asked.connection, asked.txn, response))

    def _timer_fired(self, event: TimerFired, effects: list[Effect]) -> None:
        of_ledger, number = event.key
        if self.polls.pop(number, None) is not None:
            ledger = self.ledgers[of_ledger]
            self._end_poll(ledger.polls.pop(number), ledger, effects)

    def _connection_closed(self, event: ConnectionClosed, effects: list[Effect]) -> None:
        """Drop the long polls of a closed connection."""
        for number, of_ledger in list(self.polls.items()):
            if self.ledgers[of_ledger].polls[number].connection == event.connection:
                del self.polls[number], self.ledgers[of_ledger].polls[number]

    def _called(self, event: Call, effects: list[Effect]) -> None:
        if event.operation == "read only":
            (self.read_only,) = event.arguments
            effects.append(Result(event.token))
        elif event.operation == "forget":
            (of_ledger,) = event.arguments
            self._forget(of_ledger, effects)
            effects.append(Result(event.token))
        elif event.operation == "store entries":
            adds: Adds
            (adds,) = event.arguments
            ledger = self._learn(adds.ledger, None, effects)
            self._journal_adds((adds,), effects)
            if self.traces:
                fields = {"entries": runs_of(adds.entry_ids()), "lac": adds.lac, "position": self.position}
                effects.append(Trace("bookie_copies_entry", adds.ledger, fields))
            self.waiting.append((self.position, Result(event.token)))
            self._raise_lac(ledger, adds.lac, effects)
        elif event.operation in ("fence", "enter limbo", "leave limbo"):
            (of_ledger,) = event.arguments
            ledger = self.ledgers.setdefault(of_ledger, Ledger())
            if event.operation != "leave limbo" and self.protections.boot_fences:
                self._fence(of_ledger, ledger, effects)
            if event.operation != "fence":
                ledger.limbo = event.operation == "enter limbo"
                if self.traces:
                    action = "bookie_crashes" if ledger.limbo else "bookie_leaves_limbo"
                    effects.append(Trace(action, of_ledger, {"position": self.position + 1}))
                self._journal(LimboChanged(of_ledger, ledger.limbo), effects)
                ledger.position = self.position
            self._reply(Result(event.token), ledger.position, effects)
        else:
            effects.append(Result(event.token, error=Error.BAD_CALL))

    def _replayed(self, event: Replayed, effects: list[Effect]) -> None:
        record = event.record
        ledger = self.ledgers.setdefault(record.ledger, Ledger())
        if type(record) is MasterKeyLearnt:
            ledger.master_key = record.master_key
        elif type(record) is LedgerFenced:
            ledger.fenced = True
        elif type(record) is LacWritten:
            self._raise_lac(ledger, record.lac, effects, record.body)
        elif type(record) is LimboChanged:
            ledger.limbo = record.limbo

    # -- what it says for a trace --------------------------------------------------------------------------------------

    def _trace_adds(
        self, connection: int, of_ledger: int, entries: Runs, recovery: bool, lac: int, effects: list[Effect]
    ) -> None:
        fields = {"entries": entries, "recovery": recovery, "lac": lac, "position": self.position}
        effects.append(Trace("bookie_sends_add_confirmed_response", of_ledger, fields, connection))

    def _trace_refusal(
        self, connection: int, adds: Adds, entries: Runs, position: int, code: Code, effects: list[Effect]
    ) -> None:
        fields = {"entries": entries, "recovery": adds.recovery, "position": position}
        if code is Code.FENCED:
            effects.append(Trace("bookie_sends_add_fenced_response", adds.ledger, fields, connection))
        else:
            effects.append(Trace("bookie_refuses_add", adds.ledger, {**fields, "code": code.name}, connection))

    def _trace_read(
        self,
        asked: RequestArrived,
        request: ReadEntry,
        found: Found,
        code: Code,
        positions: tuple[int, int],
        effects: list[Effect],
    ) -> None:
        if request.fence and request.entry_id == NO_ENTRY_YET:
            lac = header(found.body)[2] if found.body is not None else None
            last = None if lac is None else found.entry_id
            fields = {"code": code.name, "entry": last, "lac": lac, "position": positions[1]}
            effects.append(Trace("bookie_sends_fencing_read_lac_response", request.ledger, fields, asked.connection))
        else:
            entry_id = found.entry_id if _is_piggyback(request) else request.entry_id
            entries = ((entry_id, entry_id),)
            self._trace_reads(asked.connection, request.ledger, entries, request.fence, code, positions, effects)

    def _trace_reads(
        self,
        connection: int,
        of_ledger: int,
        entries: Runs,
        fence: bool,
        code: Code,
        positions: tuple[int, int],
        effects: list[Effect],
    ) -> None:
        """``positions`` of the journal: when the look-up began, and the one that must be durable before the answer."""
        since, position = positions
        fields = {"entries": entries, "fence": fence, "code": code.name, "position": position}
        if code is not Code.OK:
            fields["since"] = since
        effects.append(Trace("bookie_sends_read_response", of_ledger, fields, connection))

    # -- parts of the above --------------------------------------------------------------------------------------------

    def _journal(self, record: Record, effects: list[Effect]) -> None:
        self.position += 1
        effects.append(Journal(self.position, record))

    def _journal_adds(self, batch: tuple[Adds, ...], effects: list[Effect]) -> None:
        for adds in batch:
            self.unsynced.setdefault(adds.ledger, deque()).append((self.position + 1, adds))
            self.position += len(adds)
            self.adds_under_way += len(adds)
        self.batches.append((self.position, batch))
        effects.append(JournalAdds(self.position, batch))

    def _position_of(self, of_ledger: int, entry_id: int) -> int:
        """The position of the last add of an entry that is not durable yet. 0 if there is none."""
        for first, adds in reversed(self.unsynced.get(of_ledger, ())):
            place = adds.last_place(entry_id)
            if place >= 0:
                return first + place
        return 0

    def _reply(self, reply: Answer | AnswerAdds | AnswerReads | Result, after: int, effects: list[Effect]) -> None:
        """Answer once all records up to a position are durable, and after all answers already waiting."""
        if after <= self.synced:
            effects.append(reply)
        else:
            waiting = self.waiting
            waiting.append((max(after, waiting[-1][0]) if waiting else after, reply))

    def _learn(self, of_ledger: int, key: bytes | None, effects: list[Effect]) -> Ledger:
        """The state of a ledger, created if it was unknown. Records its key if it has none."""
        ledger = self.ledgers.get(of_ledger)
        if ledger is None:
            ledger = self.ledgers[of_ledger] = Ledger()
        if ledger.master_key is None and key is not None:
            ledger.master_key = key
            self._journal(MasterKeyLearnt(of_ledger, key), effects)
            ledger.position = self.position
        return ledger

    def _fence_by_read(
        self, connection: int, request: ReadEntry | BatchRead, ledger: Ledger, effects: list[Effect]
    ) -> tuple[Code, Ledger]:
        """Fence as a read requests. Gives whether the read may go on, and the state of the ledger, which is created if
        so.
        """
        code = answer_to_key(ledger.master_key, request.master_key, self.protections)
        of_last = request.entry_id == NO_ENTRY_YET
        if code is Code.OK and is_fenced_by_read(request.fence, self.protections, is_of_last_entry=of_last):
            ledger = self._learn(request.ledger, request.master_key, effects)
            if self.traces and not ledger.fenced:
                fields = {"entry": request.entry_id, "position": self.position + 1}
                effects.append(Trace("bookie_is_fenced", request.ledger, fields, connection))
            self._fence(request.ledger, ledger, effects)
        return code, ledger

    def _fence(self, of_ledger: int, ledger: Ledger, effects: list[Effect]) -> None:
        if not ledger.fenced:
            ledger.fenced = True
            self._journal(LedgerFenced(of_ledger), effects)
            ledger.position = self.position
            self._end_polls(ledger, effects)

    def _forget(self, of_ledger: int, effects: list[Effect]) -> None:
        """Forget a ledger. Records still in the journal bring it back after a restart, to be forgotten again."""
        ledger = self.ledgers.pop(of_ledger, None)
        if ledger is not None:
            for number, poll in ledger.polls.items():
                del self.polls[number]
                effects.append(Answer(poll.connection, poll.txn, _failure(poll.request, Code.NO_LEDGER)))
        effects.append(Forget(of_ledger))

    def _raise_lac(self, ledger: Ledger, lac: int, effects: list[Effect], body: bytes | None = None) -> None:
        before = ledger.lac
        ledger.lac = lac_of_bookie(before, lac)
        if ledger.lac > before:
            ledger.lac_body = body or ledger.lac_body
            if ledger.polls:
                self._end_polls(ledger, effects)

    def _end_polls(self, ledger: Ledger, effects: list[Effect]) -> None:
        over = [
            number
            for number, poll in ledger.polls.items()
            if is_poll_over(ledger.lac, _previous_lac(poll), ledger.fenced)
        ]
        for number in over:
            del self.polls[number]
            self._end_poll(ledger.polls.pop(number), ledger, effects)

    def _end_poll(self, poll: RequestArrived, ledger: Ledger, effects: list[Effect]) -> None:
        """Answer a long poll: with the entry after the reader's LAC if that is confirmed, otherwise with the requested
        entry.
        """
        request = poll.request
        assert type(request) is ReadEntry
        wanted = _previous_lac(poll) + 1
        if not request.piggyback:
            self._look_up(poll, request.entry_id, effects)
        elif is_readable(wanted, ledger.lac, None):
            self._look_up(poll, wanted, effects)
        else:
            response = ReadEntryResponse(request.ledger, NO_ENTRY_YET, Code.OK, ledger.lac)
            self._reply(Answer(poll.connection, poll.txn, response), ledger.position, effects)

    def _look_up(self, asked: RequestArrived, entry_id: int, effects: list[Effect]) -> None:
        if self._begin(asked, effects):
            effects.append(LookUp(self.number, asked.request.ledger, entry_id))

    def _begin(self, asked: RequestArrived, effects: list[Effect]) -> bool:
        """Register a request that waits for storage under a new number, or refuse it if too many wait."""
        if len(self.lookups) + self.reads_under_way < self.limits.lookups:
            self.number += 1
            self.lookups[self.number] = asked
            if self.traces:
                self.asked_at[self.number] = self.position
            return True
        effects.append(Answer(asked.connection, asked.txn, _failure(asked.request, Code.TOO_MANY_REQUESTS)))
        return False


def _failure(request: Request, code: Code) -> Response:
    """The failure response to a request that waits for storage or a LAC."""
    if type(request) is ReadEntry:
        return ReadEntryResponse(request.ledger, request.entry_id, code)
    if type(request) is BatchRead:
        return BatchReadResponse(request.ledger, request.entry_id, code)
    if type(request) is ReadLac:
        return ReadLacResponse(request.ledger, code)
    if type(request) is ListEntries:
        return ListEntriesResponse(request.ledger, code)
    assert type(request) is GetBookieInfo
    return GetBookieInfoResponse(code)


def _is_piggyback(request: ReadEntry) -> bool:
    return request.previous_lac is not None and request.piggyback


def _previous_lac(poll: RequestArrived) -> int:
    assert isinstance(poll.request, ReadEntry) and poll.request.previous_lac is not None
    return poll.request.previous_lac


_UNKNOWN = Ledger()
"""The state of a ledger unknown to a bookie. Never modified."""

_REQUESTS: dict[type, Callable[[Bookie, RequestArrived, Any, list[Effect]], None]] = {
    ReadEntry: Bookie._read,
    ReadLac: Bookie._read_lac,
    WriteLac: Bookie._write_lac,
    ForceLedger: Bookie._force,
    BatchRead: Bookie._batch_read,
    ListEntries: Bookie._list_entries,
    GetBookieInfo: Bookie._info,
    Auth: Bookie._auth,
    StartTls: Bookie._start_tls,
}

_EVENTS: dict[type, Callable[[Bookie, Any, list[Effect]], None]] = {
    AddsArrived: Bookie._adds,
    ReadsArrived: Bookie._asked_to_read,
    ReadsFound: Bookie._reads_found,
    JournalSynced: Bookie._journal_synced,
    JournalFailed: Bookie._journal_failed,
    Found: Bookie._found,
    BatchFound: Bookie._batch_found,
    RunsFound: Bookie._runs_found,
    Measured: Bookie._measured,
    ConnectionClosed: Bookie._connection_closed,
    TimerFired: Bookie._timer_fired,
    Call: Bookie._called,
    Replayed: Bookie._replayed,
}
