"""The bookie: stores entries, serves them, and lets itself be fenced.

Every answer waits until what it shows is durable: an add until its entry is, a refusal or a fencing read until the fence is, whoever asked
for that first, and a read until the entry that it returns is. Only an add with deferred sync does not wait. (A real bookie answers
some fencing reads before the fence is in its journal, and forgets it when it is killed.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from fencepost.store.messages import (
    NO_ENTRY_YET,
    AddEntry,
    AddEntryResponse,
    ForceLedger,
    ForceLedgerResponse,
    ReadEntry,
    ReadEntryResponse,
    ReadLac,
    ReadLacResponse,
    Response,
    WriteLac,
    WriteLacResponse,
)
from fencepost.store.records import EntryAdded, LacWritten, LedgerFenced, LimboChanged, MasterKeyLearnt, Record
from fencepost.store.roles.interface import (
    Answer,
    Asked,
    Call,
    Effect,
    Error,
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
from fencepost.store.rules.adding import answer_to_add, answer_to_write_lac, is_beyond, key_matches, lac_of_bookie
from fencepost.store.rules.codes import Code
from fencepost.store.rules.fencing import answer_to_fence, is_fenced_by_read
from fencepost.store.rules.protections import ALL, Protections
from fencepost.store.rules.reading import (
    answer_to_poll,
    answer_to_read,
    answer_to_read_lac,
    is_poll_over,
    is_readable,
)


class Ledger(msgspec.Struct):
    """What a bookie knows of a ledger besides its entries. ``position``: that of the last record in the journal about this."""

    master_key: bytes | None = None
    fenced: bool = False
    limbo: bool = False
    lac: int = NO_ENTRY_YET
    lac_body: bytes | None = None
    position: int = 0
    polls: dict[int, Asked] = msgspec.field(default_factory=dict)


class Bookie:
    """One bookie. ``read_only``: it takes entries from recoveries alone.

    It answers these calls when what they change is durable: ``fence``, ``enter limbo`` (which fences too) and ``leave limbo``, each
    with a ledger; and ``read only``, with whether it is to be that.
    """

    def __init__(self, protections: Protections = ALL) -> None:
        self.protections = protections
        self.ledgers: dict[int, Ledger] = {}
        self.position = 0
        self.synced = 0
        self.read_only = False
        self.stopped = False
        self.waiting: dict[int, list[Answer | Result]] = {}
        """Answers by the position in the journal that they wait for."""
        self.unsynced: dict[tuple[int, int], int] = {}
        """Entries that are not durable yet, by ledger and id, and their positions."""
        self.unsynced_in_order: deque[tuple[int, tuple[int, int]]] = deque()
        self.look_ups: dict[int, Asked] = {}
        self.number = 0
        """That of the last look-up or long poll."""

    def __repr__(self) -> str:
        return f"Bookie({', '.join(f'{name}={value!r}' for name, value in vars(self).items() if value)})"

    def receive(self, event: Event, now: int) -> list[Effect]:
        """Take an event; what is to be done about it. Once the journal has failed, nothing is."""
        effects: list[Effect] = []
        if self.stopped:
            return effects
        if type(event) is Asked:
            request = event.request
            _REQUESTS[type(request)](self, event, request, effects)
        else:
            _EVENTS[type(event)](self, event, effects)
        return effects

    # -- requests ------------------------------------------------------------------------------------------------------

    def _add(self, asked: Asked, request: AddEntry, effects: list[Effect]) -> None:
        ledger = self.ledgers.get(request.ledger, _UNKNOWN)
        code = answer_to_add(
            key_matches=key_matches(ledger.master_key, request.master_key),
            fenced=ledger.fenced,
            recovery=request.recovery,
            read_only=self.read_only,
            protections=self.protections,
        )
        response = AddEntryResponse(request.ledger, request.entry_id, code)
        if code is not Code.OK:
            self._reply(Answer(asked.connection, asked.txn, response), ledger.position, effects)
            return
        ledger = self._learn(request.ledger, request.master_key, effects)
        self._journal(EntryAdded(request.ledger, request.entry_id, request.lac, request.body), effects)
        entry = (request.ledger, request.entry_id)
        self.unsynced[entry] = self.position
        self.unsynced_in_order.append((self.position, entry))
        effects.append(Store(request.ledger, request.entry_id, request.body))
        after = 0 if request.deferred_sync else self.position
        self._reply(Answer(asked.connection, asked.txn, response), after, effects)
        self._hear_of_lac(ledger, request.lac, effects)

    def _read(self, asked: Asked, request: ReadEntry, effects: list[Effect]) -> None:
        ledger = self.ledgers.get(request.ledger, _UNKNOWN)
        if request.fence:
            code = answer_to_fence(
                key_matches=key_matches(ledger.master_key, request.master_key), protections=self.protections
            )
            if code is not Code.OK:
                refusal = ReadEntryResponse(request.ledger, request.entry_id, code)
                self._reply(Answer(asked.connection, asked.txn, refusal), ledger.position, effects)
                return
            of_last = request.entry_id == NO_ENTRY_YET
            if is_fenced_by_read(request.fence, self.protections, is_of_last_entry=of_last):
                ledger = self._learn(request.ledger, request.master_key, effects)
                self._fence(request.ledger, ledger, effects)
        if ledger is _UNKNOWN or request.previous_lac is None:
            self._look_up(asked, request.entry_id, effects)
        elif request.wait and not is_poll_over(ledger.lac, request.previous_lac, ledger.fenced):
            self.number += 1
            ledger.polls[self.number] = asked
            effects.append(SetTimer((request.ledger, self.number), request.wait))
        else:
            self._end_poll(asked, ledger, effects)

    def _read_lac(self, asked: Asked, request: ReadLac, effects: list[Effect]) -> None:
        self._look_up(asked, NO_ENTRY_YET, effects)

    def _write_lac(self, asked: Asked, request: WriteLac, effects: list[Effect]) -> None:
        ledger = self.ledgers.get(request.ledger, _UNKNOWN)
        code = answer_to_write_lac(
            key_matches=key_matches(ledger.master_key, request.master_key), protections=self.protections
        )
        if code is Code.OK:
            ledger = self._learn(request.ledger, request.master_key, effects)
            self._journal(LacWritten(request.ledger, request.lac, request.body), effects)
            ledger.position = self.position
        response = WriteLacResponse(request.ledger, code)
        self._reply(Answer(asked.connection, asked.txn, response), ledger.position, effects)
        if code is Code.OK:
            self._hear_of_lac(ledger, request.lac, effects, request.body)

    def _force(self, asked: Asked, request: ForceLedger, effects: list[Effect]) -> None:
        response = ForceLedgerResponse(request.ledger, Code.OK)
        self._reply(Answer(asked.connection, asked.txn, response), self.position, effects)

    # -- what comes back from the journal, from storage and from timers ------------------------------------------------

    def _journal_synced(self, event: JournalSynced, effects: list[Effect]) -> None:
        for position in range(self.synced + 1, event.position + 1):
            effects.extend(self.waiting.pop(position, ()))
        self.synced = event.position
        in_order = self.unsynced_in_order
        while in_order and in_order[0][0] <= event.position:
            position, entry = in_order.popleft()
            if self.unsynced[entry] == position:  # and it was not added once more since
                del self.unsynced[entry]

    def _journal_failed(self, event: JournalFailed, effects: list[Effect]) -> None:
        self.stopped = True
        effects.append(Stop("the journal can not be written"))

    def _found(self, event: Found, effects: list[Effect]) -> None:
        asked = self.look_ups.pop(event.number)
        request = asked.request
        ledger = self.ledgers.get(request.ledger, _UNKNOWN)
        known_ledger, unreadable = ledger is not _UNKNOWN, event.code is Code.IO_ERROR
        response: Response
        if type(request) is ReadEntry:
            response = self._read_response(request, ledger, event, known_ledger, unreadable)
        else:
            code = answer_to_read_lac(
                known_ledger=known_ledger, limbo=ledger.limbo, unreadable=unreadable, protections=self.protections
            )
            response = ReadLacResponse(request.ledger, code)
            if code is Code.OK:
                response = ReadLacResponse(request.ledger, code, ledger.lac_body, event.body)
        after = max(ledger.position, self.unsynced.get((request.ledger, event.entry_id), 0))
        self._reply(Answer(asked.connection, asked.txn, response), after, effects)

    def _read_response(
        self, request: ReadEntry, ledger: Ledger, event: Found, known_ledger: bool, unreadable: bool
    ) -> ReadEntryResponse:
        code = answer_to_read(
            stored=event.code is Code.OK,
            known_ledger=known_ledger,
            limbo=ledger.limbo,
            unreadable=unreadable,
            protections=self.protections,
        )
        if code is Code.OK:
            return ReadEntryResponse(request.ledger, event.entry_id, code, ledger.lac, event.body)
        if request.previous_lac is not None:
            code = answer_to_poll(code)
        return ReadEntryResponse(request.ledger, request.entry_id, code, ledger.lac)

    def _timer_fired(self, event: TimerFired, effects: list[Effect]) -> None:
        of_ledger, number = event.key
        ledger = self.ledgers[of_ledger]
        asked = ledger.polls.pop(number, None)
        if asked is not None:
            self._end_poll(asked, ledger, effects)

    def _called(self, event: Call, effects: list[Effect]) -> None:
        if event.operation == "read only":
            (self.read_only,) = event.arguments
            effects.append(Result(event.token))
        elif event.operation in ("fence", "enter limbo", "leave limbo"):
            (of_ledger,) = event.arguments
            ledger = self.ledgers.setdefault(of_ledger, Ledger())
            if event.operation != "leave limbo":
                self._fence(of_ledger, ledger, effects)
            if event.operation != "fence":
                ledger.limbo = event.operation == "enter limbo"
                self._journal(LimboChanged(of_ledger, ledger.limbo), effects)
                ledger.position = self.position
            self._reply(Result(event.token), ledger.position, effects)
        else:
            effects.append(Result(event.token, error=Error.BAD_CALL))

    def _replayed(self, event: Replayed, effects: list[Effect]) -> None:
        record = event.record
        ledger = self.ledgers.setdefault(record.ledger, Ledger())
        if type(record) is EntryAdded:
            self._hear_of_lac(ledger, record.lac, effects)
            effects.append(Store(record.ledger, record.entry_id, record.body))
        elif type(record) is MasterKeyLearnt:
            ledger.master_key = record.master_key
        elif type(record) is LedgerFenced:
            ledger.fenced = True
        elif type(record) is LacWritten:
            self._hear_of_lac(ledger, record.lac, effects, record.body)
        elif type(record) is LimboChanged:
            ledger.limbo = record.limbo

    # -- parts of the above --------------------------------------------------------------------------------------------

    def _journal(self, record: Record, effects: list[Effect]) -> None:
        self.position += 1
        effects.append(Journal(self.position, record))

    def _reply(self, reply: Answer | Result, after: int, effects: list[Effect]) -> None:
        """Give an answer when all records up to a position are durable."""
        if after <= self.synced:
            effects.append(reply)
        else:
            self.waiting.setdefault(after, []).append(reply)

    def _learn(self, of_ledger: int, key: bytes | None, effects: list[Effect]) -> Ledger:
        """The ledger, which is known from now on, and its key."""
        ledger = self.ledgers.get(of_ledger)
        if ledger is None:
            ledger = self.ledgers[of_ledger] = Ledger()
        if ledger.master_key is None and key is not None:
            ledger.master_key = key
            self._journal(MasterKeyLearnt(of_ledger, key), effects)
            ledger.position = self.position
        return ledger

    def _fence(self, of_ledger: int, ledger: Ledger, effects: list[Effect]) -> None:
        if not ledger.fenced:
            ledger.fenced = True
            self._journal(LedgerFenced(of_ledger), effects)
            ledger.position = self.position
            self._end_polls(ledger, effects)

    def _hear_of_lac(self, ledger: Ledger, lac: int, effects: list[Effect], body: bytes | None = None) -> None:
        before = ledger.lac
        ledger.lac = lac_of_bookie(before, lac)
        if is_beyond(ledger.lac, before):
            ledger.lac_body = body or ledger.lac_body
            self._end_polls(ledger, effects)

    def _end_polls(self, ledger: Ledger, effects: list[Effect]) -> None:
        over = [
            number
            for number, poll in ledger.polls.items()
            if is_poll_over(ledger.lac, _previous_lac(poll), ledger.fenced)
        ]
        for number in over:
            self._end_poll(ledger.polls.pop(number), ledger, effects)

    def _end_poll(self, poll: Asked, ledger: Ledger, effects: list[Effect]) -> None:
        """Answer a long poll: with the entry after the LAC that the reader had, if that is confirmed now."""
        request, wanted = poll.request, _previous_lac(poll) + 1
        if is_readable(wanted, ledger.lac, None):
            self._look_up(poll, wanted, effects)
        else:
            response = ReadEntryResponse(request.ledger, NO_ENTRY_YET, Code.OK, ledger.lac)
            self._reply(Answer(poll.connection, poll.txn, response), ledger.position, effects)

    def _look_up(self, asked: Asked, entry_id: int, effects: list[Effect]) -> None:
        self.number += 1
        self.look_ups[self.number] = asked
        effects.append(LookUp(self.number, asked.request.ledger, entry_id))


def _previous_lac(poll: Asked) -> int:
    assert isinstance(poll.request, ReadEntry) and poll.request.previous_lac is not None
    return poll.request.previous_lac


_UNKNOWN = Ledger()
"""What a bookie knows of a ledger that it has never heard of. It stays as it is."""

_REQUESTS: dict[type, Callable[[Bookie, Asked, Any, list[Effect]], None]] = {
    AddEntry: Bookie._add,
    ReadEntry: Bookie._read,
    ReadLac: Bookie._read_lac,
    WriteLac: Bookie._write_lac,
    ForceLedger: Bookie._force,
}

_EVENTS: dict[type, Callable[[Bookie, Any, list[Effect]], None]] = {
    JournalSynced: Bookie._journal_synced,
    JournalFailed: Bookie._journal_failed,
    Found: Bookie._found,
    TimerFired: Bookie._timer_fired,
    Call: Bookie._called,
    Replayed: Bookie._replayed,
}
