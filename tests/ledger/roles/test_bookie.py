"""The bookie as stories: the requests it receives, and what it does, journals and answers, in that order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
from ledger.singly import asked, found, replayed, singly

from fencepost.ledger.entries import Digests, Entry
from fencepost.ledger.messages import (
    AddEntry,
    AddEntryResponse,
    ForceLedger,
    ForceLedgerResponse,
    ReadEntry,
    ReadEntryResponse,
    ReadLac,
    ReadLacResponse,
    WriteLac,
    WriteLacResponse,
)
from fencepost.ledger.records import EntryAdded, LacWritten, LedgerFenced, LimboChanged, MasterKeyLearnt
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.roles.interface import (
    Answer,
    BatchFound,
    Call,
    Effect,
    Error,
    Found,
    Journal,
    JournalFailed,
    JournalSynced,
    LookUp,
    LookUpBatch,
    LookUpReads,
    Result,
    SetTimer,
    Stop,
    TimerFired,
)
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.metadata import DigestType
from fencepost.ledger.rules.protections import Protections
from fencepost.ledger.rules.reading import batch

DIGESTS = Digests(DigestType.CRC32, b"")
KEY, OTHER_KEY = b"key", b"other key"


def body(entry_id: int, lac: int = -1) -> bytes:
    return DIGESTS.entry_body(Entry(1, entry_id, lac, 10 * (entry_id + 1), b"data"))


def add(entry_id: int, lac: int = -1, key: bytes = KEY, **options: bool) -> AddEntry:
    return AddEntry(1, entry_id, lac, body(entry_id, lac), key, **options)


def fence(entry_id: int = -1, key: bytes | None = KEY) -> ReadEntry:
    return ReadEntry(1, entry_id, fence=True, master_key=key)


class Story:
    """A bookie and its stored entries. Each request arrives over connection 1 with the next number."""

    def __init__(self, records: Sequence[Any] = ()) -> None:
        self.bookie = Bookie()
        self.stored: dict[int, bytes] = {}
        self.txn = 0
        self.unreadable: set[int] = set()
        self.request: Any = None
        for record in records:
            if isinstance(record, EntryAdded):
                self.stored[record.entry_id] = record.body
            self.happen(replayed(record))

    def happen(self, event: Any) -> list[Effect]:
        """Deliver an event and carry out its look-ups. Returns the other effects."""
        done: list[Effect] = []
        for effect in chain.from_iterable(map(singly, self.bookie.receive(event, 0))):
            if isinstance(effect, Journal) and isinstance(effect.record, EntryAdded):
                self.stored[effect.record.entry_id] = effect.record.body
            if isinstance(effect, LookUpReads):
                wanted = self.request.entry_id
                if not effect.count:
                    done.append(self.answer(ReadEntryResponse(self.request.ledger, wanted, Code.TOO_MANY_REQUESTS)))
                    continue
                code, body = self.look_up(wanted)
                done += self.happen(found(effect, self.request.ledger, code, (self.txn, wanted, body)))
            elif isinstance(effect, LookUp):
                wanted = max(self.stored, default=-1) if effect.entry_id == -1 else effect.entry_id
                code, found_body = self.look_up(wanted)
                done += self.happen(Found(effect.number, code, wanted, found_body))
            elif isinstance(effect, LookUpBatch):
                of_batch = batch(self.look_up, effect.entry_id, effect.max_count, effect.max_size)
                done += self.happen(BatchFound(effect.number, *of_batch))
            else:
                done.append(effect)
        return done

    def look_up(self, entry_id: int) -> tuple[Code, bytes | None]:
        if entry_id in self.unreadable:
            return Code.IO_ERROR, None
        return Code.OK if entry_id in self.stored else Code.NO_ENTRY, self.stored.get(entry_id)

    def ask(self, request: Any) -> list[Effect]:
        self.txn += 1
        self.request = request
        return self.happen(asked(1, self.txn, request))

    def answer(self, response: Any, txn: int | None = None) -> Answer:
        return Answer(1, self.txn if txn is None else txn, response)

    def sync(self) -> list[Effect]:
        return self.happen(JournalSynced(self.bookie.position))


def test_an_add_is_answered_when_it_is_durable() -> None:
    story = Story()
    assert story.ask(add(0)) == [
        Journal(1, MasterKeyLearnt(1, KEY)),
        Journal(2, EntryAdded(1, 0, -1, body(0))),
    ]
    assert story.ask(add(1, lac=0)) == [Journal(3, EntryAdded(1, 1, 0, body(1, 0)))]
    assert story.happen(JournalSynced(1)) == []
    assert story.happen(JournalSynced(3)) == [
        Answer(1, 1, AddEntryResponse(1, 0, Code.OK)),
        Answer(1, 2, AddEntryResponse(1, 1, Code.OK)),
    ]
    assert story.bookie.unsynced == {} and not story.bookie.waiting and not story.bookie.batches


def test_an_add_with_deferred_sync_is_answered_at_once_and_a_force_when_it_is_durable() -> None:
    story = Story()
    assert story.ask(add(0, deferred_sync=True))[-1] == story.answer(AddEntryResponse(1, 0, Code.OK))
    assert story.ask(ForceLedger(1)) == []
    assert story.sync() == [story.answer(ForceLedgerResponse(1, Code.OK))]
    assert story.ask(ForceLedger(1)) == [story.answer(ForceLedgerResponse(1, Code.OK))]


def test_another_key_is_refused() -> None:
    story = Story([MasterKeyLearnt(1, KEY)])
    unauthorized = Code.UNAUTHORIZED
    assert story.ask(add(0, key=OTHER_KEY)) == [story.answer(AddEntryResponse(1, 0, unauthorized))]
    assert story.ask(add(0, key=OTHER_KEY, recovery=True)) == [story.answer(AddEntryResponse(1, 0, unauthorized))]
    assert story.ask(fence(key=OTHER_KEY)) == [story.answer(ReadEntryResponse(1, -1, unauthorized))]
    assert story.ask(fence(key=None)) == [story.answer(ReadEntryResponse(1, -1, unauthorized))]
    assert story.ask(WriteLac(1, 4, b"", OTHER_KEY)) == [story.answer(WriteLacResponse(1, unauthorized))]
    assert not story.bookie.ledgers[1].fenced and story.bookie.ledgers[1].lac == -1


def test_a_fence_is_durable_before_any_answer_that_depends_on_it() -> None:
    story = Story()
    assert story.ask(fence()) == [Journal(1, MasterKeyLearnt(1, KEY)), Journal(2, LedgerFenced(1))]
    assert story.ask(fence()) == [], "it is fenced in memory alone"
    assert story.ask(fence(0)) == []
    assert story.ask(add(0)) == []
    assert story.happen(JournalSynced(1)) == []
    assert story.happen(JournalSynced(2)) == [
        Answer(1, 1, ReadEntryResponse(1, -1, Code.NO_ENTRY)),
        Answer(1, 2, ReadEntryResponse(1, -1, Code.NO_ENTRY)),
        Answer(1, 3, ReadEntryResponse(1, 0, Code.NO_ENTRY)),
        Answer(1, 4, AddEntryResponse(1, 0, Code.FENCED)),
    ]
    assert story.ask(fence()) == [story.answer(ReadEntryResponse(1, -1, Code.NO_ENTRY))], "now it is known at once"


def test_a_fenced_bookie_takes_recovery_adds_alone() -> None:
    story = Story([MasterKeyLearnt(1, KEY), LedgerFenced(1)])
    assert story.ask(add(0)) == [story.answer(AddEntryResponse(1, 0, Code.FENCED))]
    assert story.ask(add(0, recovery=True)) == [Journal(1, EntryAdded(1, 0, -1, body(0), True))]
    assert story.sync() == [story.answer(AddEntryResponse(1, 0, Code.OK))]


def test_a_recovery_read_fences_too() -> None:
    story = Story([MasterKeyLearnt(1, KEY), EntryAdded(1, 0, -1, body(0))])
    assert story.ask(fence(0)) == [Journal(1, LedgerFenced(1))]
    assert story.sync() == [story.answer(ReadEntryResponse(1, 0, Code.OK, -1, body(0)))]


def test_an_entry_is_not_shown_before_it_is_durable() -> None:
    story = Story([MasterKeyLearnt(1, KEY)])
    story.ask(add(0))
    assert story.ask(ReadEntry(1, 0)) == []
    assert story.ask(ReadEntry(1, 1)) == [story.answer(ReadEntryResponse(1, 1, Code.NO_ENTRY))]
    story.ask(add(0))
    assert story.happen(JournalSynced(1)) == [
        Answer(1, 1, AddEntryResponse(1, 0, Code.OK)),
        Answer(1, 2, ReadEntryResponse(1, 0, Code.OK, -1, body(0))),
    ]
    assert story.ask(ReadEntry(1, 0)) == [], "it was added once more"
    story.sync()
    assert story.ask(ReadEntry(1, 0)) == [story.answer(ReadEntryResponse(1, 0, Code.OK, -1, body(0)))]


def test_what_can_not_be_read_is_no_negative() -> None:
    story = Story([EntryAdded(1, 0, -1, body(0))])
    story.unreadable.add(0)
    assert story.ask(ReadEntry(1, 0)) == [story.answer(ReadEntryResponse(1, 0, Code.IO_ERROR))]
    assert story.ask(ReadLac(1)) == [story.answer(ReadLacResponse(1, Code.IO_ERROR))]
    assert Story().ask(ReadEntry(1, 0)) == [story.answer(ReadEntryResponse(1, 0, Code.NO_LEDGER), txn=1)]


def test_a_ledger_in_limbo_never_says_that_it_lacks_an_entry() -> None:
    story = Story([MasterKeyLearnt(1, KEY), EntryAdded(1, 0, -1, body(0))])
    assert story.happen(Call(7, "enter limbo", (1,))) == [
        Journal(1, LedgerFenced(1)),
        Journal(2, LimboChanged(1, True)),
    ]
    assert story.ask(ReadEntry(1, 5)) == [], "nor before that is durable"
    unknown = Code.UNKNOWN_LEDGER_STATE
    assert story.sync() == [Result(7), story.answer(ReadEntryResponse(1, 5, unknown))]
    assert story.ask(fence(0)) == [story.answer(ReadEntryResponse(1, 0, Code.OK, -1, body(0)))]
    assert story.ask(ReadEntry(1, 0)) == [story.answer(ReadEntryResponse(1, 0, Code.OK, -1, body(0)))]
    assert story.ask(fence(1)) == [story.answer(ReadEntryResponse(1, 1, unknown))]
    assert story.ask(ReadLac(1)) == [story.answer(ReadLacResponse(1, unknown))]
    assert story.ask(add(1)) == [story.answer(AddEntryResponse(1, 1, Code.FENCED))]
    story.happen(Call(8, "leave limbo", (1,)))
    story.sync()
    assert story.ask(fence(1)) == [story.answer(ReadEntryResponse(1, 1, Code.NO_ENTRY))]
    assert story.ask(add(1)) == [story.answer(AddEntryResponse(1, 1, Code.FENCED))], "fenced for ever"


def test_a_ledger_in_limbo_of_which_nothing_is_stored_does_not_know_even_the_last_entry() -> None:
    story = Story([LedgerFenced(1), LimboChanged(1, True)])
    assert story.ask(fence()) == [Journal(1, MasterKeyLearnt(1, KEY))]
    assert story.sync() == [story.answer(ReadEntryResponse(1, -1, Code.UNKNOWN_LEDGER_STATE))]


def test_the_lac_comes_with_entries_and_by_itself_and_never_falls() -> None:
    story = Story()
    story.ask(add(2, lac=1))
    lac_body = DIGESTS.lac_body(1, 2)
    assert story.ask(WriteLac(1, 2, lac_body, KEY)) == [Journal(3, LacWritten(1, 2, lac_body))]
    assert story.sync()[-1] == story.answer(WriteLacResponse(1, Code.OK))
    story.ask(WriteLac(1, 0, DIGESTS.lac_body(1, 0), KEY))
    story.sync()
    assert story.bookie.ledgers[1].lac == 2
    assert story.ask(ReadLac(1)) == [story.answer(ReadLacResponse(1, Code.OK, lac_body, body(2, 1)))]
    assert story.ask(ReadEntry(1, 2)) == [story.answer(ReadEntryResponse(1, 2, Code.OK, 2, body(2, 1)))]


def test_a_long_poll_is_answered_when_the_lac_is_beyond() -> None:
    story = Story()
    story.ask(add(0))
    story.sync()
    assert story.ask(ReadEntry(1, -1, previous_lac=-1, wait=500)) == [SetTimer((1, 1), 500)]
    assert story.ask(add(1, lac=0))[-1] == story.answer(ReadEntryResponse(1, 0, Code.OK, 0, body(0)), txn=2)
    assert story.happen(TimerFired((1, 1))) == [], "it is over"


def test_a_long_poll_ends_without_an_entry_after_its_time_or_by_a_fence() -> None:
    story = Story([MasterKeyLearnt(1, KEY), EntryAdded(1, 0, -1, body(0))])
    (timer,) = story.ask(ReadEntry(1, -1, previous_lac=-1, wait=500))
    assert isinstance(timer, SetTimer)
    assert story.happen(TimerFired(timer.key)) == [story.answer(ReadEntryResponse(1, -1, Code.OK))]
    story.ask(ReadEntry(1, -1, previous_lac=-1, wait=500))
    poll = story.txn
    story.ask(fence())
    assert story.answer(ReadEntryResponse(1, -1, Code.OK), txn=poll) in story.sync()
    assert story.ask(ReadEntry(1, -1, previous_lac=-1, wait=500)) == [story.answer(ReadEntryResponse(1, -1, Code.OK))]


def test_a_long_poll_of_an_entry_that_is_elsewhere_still_tells_the_lac() -> None:
    story = Story([MasterKeyLearnt(1, KEY), EntryAdded(1, 5, 4, body(5, 4))])
    assert story.ask(ReadEntry(1, -1, previous_lac=2, wait=500)) == [story.answer(ReadEntryResponse(1, -1, Code.OK, 4))]


def test_a_long_poll_of_an_unknown_ledger_says_so() -> None:
    story = Story()
    assert story.ask(ReadEntry(1, -1, previous_lac=2, wait=500)) == [
        story.answer(ReadEntryResponse(1, -1, Code.NO_LEDGER))
    ]


def test_a_read_only_bookie_keeps_its_room_for_recoveries() -> None:
    story = Story([MasterKeyLearnt(1, KEY)])
    assert story.happen(Call(7, "read only", (True,))) == [Result(7)]
    assert story.ask(add(0)) == [story.answer(AddEntryResponse(1, 0, Code.READ_ONLY))]
    assert story.ask(add(0, recovery=True)) == [Journal(1, EntryAdded(1, 0, -1, body(0), True))]


def test_when_the_journal_fails_the_bookie_stops_and_answers_nothing_more() -> None:
    story = Story([EntryAdded(1, 0, -1, body(0))])
    story.ask(add(1))
    assert story.happen(JournalFailed()) == [Stop("the journal cannot be written")]
    assert story.ask(ReadEntry(1, 0)) == []
    assert story.sync() == []


def test_what_was_journalled_is_what_the_bookie_knows_after_a_crash() -> None:
    story = Story()
    lac_body = DIGESTS.lac_body(1, 2)
    records = [
        effect.record
        for request in (add(0), add(3, lac=1), WriteLac(1, 2, lac_body, KEY), fence())
        for effect in story.ask(request)
        if isinstance(effect, Journal)
    ]
    story.happen(Call(7, "enter limbo", (1,)))
    records.append(LimboChanged(1, True))
    again = Story(records)
    before, after = story.bookie.ledgers[1], again.bookie.ledgers[1]
    after.position = before.position
    assert before == after
    assert again.stored == story.stored


def test_an_unknown_call() -> None:
    assert Story().happen(Call(7, "dance")) == [Result(7, error=Error.BAD_CALL)]


@pytest.mark.parametrize(
    "request_", [add(0), fence(), ReadEntry(1, 0), ReadLac(1), ForceLedger(1), WriteLac(1, 0, b"", KEY)]
)
def test_every_request_has_one_answer(request_: Any) -> None:
    story = Story()
    answers = [*story.ask(request_), *story.sync()]
    assert [type(effect) for effect in answers].count(Answer) == 1


def test_before_a_recovery_read_fenced() -> None:
    """The defect of BookKeeper 4.13. The protection prevents it."""
    story = Story([MasterKeyLearnt(1, KEY), EntryAdded(1, 0, -1, body(0))])
    story.bookie.protections = Protections(recovery_reads_fence=False)
    assert story.ask(fence(0)) == [story.answer(ReadEntryResponse(1, 0, Code.OK, -1, body(0)))]
    assert story.ask(fence()) == [Journal(1, LedgerFenced(1))]


def test_a_ledger_is_fenced_by_a_call_and_limbo_is_another_matter() -> None:
    story = Story()
    assert story.happen(Call(7, "fence", (1,))) == [Journal(1, LedgerFenced(1))]
    assert story.sync() == [Result(7)]
    story.happen(Call(8, "enter limbo", (1,)))
    story.happen(Call(9, "fence", (1,)))
    assert story.bookie.ledgers[1].limbo and story.bookie.ledgers[1].fenced
    assert story.happen(Call(10, "leave limbo", (2,))) == [Journal(3, LimboChanged(2, False))]
    assert not story.bookie.ledgers[2].fenced
