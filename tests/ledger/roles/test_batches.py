"""A batch of requests has the effects of the same requests one at a time, from any state of a bookie."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ledger.singly import asked, replayed, singly

from fencepost.ledger import messages as m
from fencepost.ledger.records import EntryAdded, LedgerFenced, LimboChanged, MasterKeyLearnt, Record
from fencepost.ledger.roles import interface as i
from fencepost.ledger.roles.bookie import Bookie, Limits
from fencepost.ledger.roles.requests import FoundRequests, grouped
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.protections import ALL, Protections

KEY, OTHER_KEY = b"key", b"other key"


class Driven:
    """A bookie, its journal and its stored entries. ``answers``: those it has given."""

    def __init__(self, protections: Protections) -> None:
        self.bookie = Bookie(protections, Limits(lookups=5, polls=2, polls_of_ledger=2))
        self.journal: list[Record] = []
        self.stored: dict[tuple[int, int], bytes] = {}
        self.answers: list[tuple[int, int, Any]] = []
        self.lookups: list[i.LookUp] = []
        self.reads: list[tuple[int, list[tuple[int, m.ReadEntry]]]] = []
        self.asked: list[tuple[int, m.ReadEntry]] = []

    def happen(self, event: i.Event) -> None:
        for effect in self.bookie.receive(event, 0):
            for each in singly(effect):
                self.carry_out(each)

    def carry_out(self, effect: Any) -> None:
        kind = type(effect)
        if kind is i.Journal:
            self.journal.append(effect.record)
            assert len(self.journal) == effect.position
            if type(effect.record) is EntryAdded:
                self.stored[effect.record.ledger, effect.record.entry_id] = effect.record.body
        elif kind is i.Answer:
            self.answers.append((effect.connection, effect.txn, effect.response))
        elif kind is i.LookUp:
            self.lookups.append(effect)
        elif kind is i.LookUpReads:
            if effect.count:
                self.reads.append((effect.number, self.asked[: effect.count]))
            for txn, request in self.asked[effect.count :]:
                self.answers.append(
                    (1, txn, m.ReadEntryResponse(request.ledger, request.entry_id, Code.TOO_MANY_REQUESTS))
                )
        else:
            assert kind is i.SetTimer or kind is i.Result

    def look(self) -> None:
        """Carry out the look-ups."""
        for number, reads in self.reads:
            reads_of: dict[tuple[int, Code], list[Any]] = {}
            for txn, request in reads:
                body = self.stored.get((request.ledger, request.entry_id))
                code = Code.IO_ERROR if request.entry_id == 4 else Code.NO_ENTRY if body is None else Code.OK
                reads_of.setdefault((request.ledger, code), []).append((txn, request.entry_id, body))
            for (ledger, code), some in reads_of.items():
                self.happen(i.ReadsFound(number, ledger, code, FoundRequests(ledger, some)))
        self.reads.clear()
        while self.lookups:
            look = self.lookups.pop(0)
            ids = [entry_id for ledger, entry_id in self.stored if ledger == look.ledger]
            wanted = max(ids, default=-1) if look.entry_id == -1 else look.entry_id
            body = self.stored.get((look.ledger, wanted))
            code = Code.IO_ERROR if look.entry_id == 4 else Code.NO_ENTRY if body is None else Code.OK
            self.happen(i.Found(look.number, code, wanted, body if code is Code.OK else None))

    def replay(self, record: Record) -> None:
        if type(record) is EntryAdded:
            self.stored[record.ledger, record.entry_id] = record.body
        self.happen(replayed(record))

    def ask(self, txn: int, request: Any) -> None:
        """Send one request alone."""
        self.asked = [(txn, request)]
        self.happen(asked(1, txn, request))

    def sync(self) -> None:
        self.happen(i.JournalSynced(self.bookie.position))

    def given(self) -> Counter[Any]:
        """The answers given so far, without their order."""
        return Counter(self.answers)

    def knows(self) -> dict[int, Any]:
        return {
            ledger: (
                known.master_key,
                known.fenced,
                known.limbo,
                known.lac,
                known.lac_body,
                {poll.txn for poll in known.polls.values()},
            )
            for ledger, known in self.bookie.ledgers.items()
        }

    def again(self) -> Any:
        """The state of a bookie that starts with this journal."""
        other = Driven(self.bookie.protections)
        for record in self.journal:
            other.replay(record)
        return other.knows(), other.stored


def add(ledger: int, entry_id: int, lac: int, rest: bytes, key: bytes, recovery: bool, deferred: bool) -> m.AddEntry:
    return m.AddEntry(ledger, entry_id, lac, struct.pack(">qqq", ledger, entry_id, lac) + rest, key, recovery, deferred)


LEDGERS = st.integers(1, 3)
IDS = st.integers(0, 4)
KEYS = st.sampled_from([KEY, KEY, KEY, OTHER_KEY])
RARELY = st.sampled_from([False] * 4 + [True])
ADDS = st.builds(add, LEDGERS, IDS, st.integers(-1, 4), st.binary(max_size=2), KEYS, RARELY, RARELY)
RECORDS = st.one_of(
    st.builds(MasterKeyLearnt, LEDGERS, KEYS),
    st.builds(LedgerFenced, LEDGERS),
    st.builds(LimboChanged, LEDGERS, st.booleans()),
    st.builds(EntryAdded, LEDGERS, IDS, st.integers(-1, 4), st.just(b"old")),
)
OTHERS = st.one_of(
    ADDS,
    st.builds(m.ReadEntry, LEDGERS, IDS),
    st.builds(m.ReadEntry, LEDGERS, st.just(-1), st.just(True), KEYS),
    st.builds(m.ReadEntry, LEDGERS, st.just(-1), previous_lac=st.integers(-1, 4), wait=st.just(9)),
    st.builds(m.WriteLac, LEDGERS, st.integers(0, 4), st.just(b"lac"), KEYS),
    st.builds(m.ForceLedger, LEDGERS),
    st.builds(i.Call, st.just(0), st.just("read only"), st.tuples(st.booleans())),
)
STEPS = st.one_of(
    OTHERS,
    st.lists(ADDS, min_size=1, max_size=8),
    st.lists(st.builds(m.ReadEntry, LEDGERS, IDS), min_size=1, max_size=8),
    st.just("sync"),
)
PROTECTIONS = st.sampled_from([ALL, Protections(keys_are_checked=False)])


@given(st.lists(RECORDS, max_size=6), st.lists(STEPS, max_size=10), PROTECTIONS)
def test_a_batch_is_as_many_single_requests(records: list[Record], steps: list[Any], protections: Protections) -> None:
    together, single = Driven(protections), Driven(protections)
    for each in (together, single):
        for record in records:
            each.replay(record)
    txn = 0
    for step in steps:
        for each in (together, single):
            if step == "sync":
                each.sync()
            elif isinstance(step, i.Call):
                each.happen(step)
            elif not isinstance(step, list):
                each.ask(txn, step)
            elif each is together and type(step[0]) is m.ReadEntry:
                each.asked = list(enumerate(step, txn))
                each.happen(i.ReadsArrived(1, len(step)))
            elif each is together:
                for batch in grouped(list(enumerate(step, txn))):
                    each.happen(i.AddsArrived(1, batch))
            else:
                for number, request in enumerate(step, txn):
                    each.ask(number, request)
            each.look()
        txn += 10
        assert together.knows() == single.knows()
        assert together.stored == single.stored
        assert together.given() == single.given()
        assert together.bookie.position == single.bookie.position
        assert together.bookie.adds_under_way == single.bookie.adds_under_way
        assert not together.bookie.reads and not together.bookie.reads_under_way
    for each in (together, single):
        each.sync()
        assert (
            not each.bookie.waiting
            and not each.bookie.batches
            and not each.bookie.unsynced
            and not each.bookie.adds_under_way
        )
    assert together.given() == single.given()
    assert together.again() == single.again()


def test_a_read_of_an_entry_that_came_in_a_batch_waits_for_it() -> None:
    driven = Driven(ALL)
    (batch,) = grouped([(1, add(1, 0, -1, b"", KEY, False, False)), (2, add(1, 1, 0, b"", KEY, False, False))])
    driven.happen(i.AddsArrived(1, batch))
    driven.ask(3, m.ReadEntry(1, 1))
    driven.look()
    assert driven.answers == []
    driven.happen(i.JournalSynced(2))
    assert driven.answers == []
    driven.happen(i.JournalSynced(3))
    assert [txn for _, txn, _ in driven.answers] == [1, 2, 3]


def test_a_read_of_an_entry_that_came_twice_in_a_batch_waits_for_the_last() -> None:
    requests = [(1, add(1, 0, -1, b"first", KEY, False, False)), (2, add(1, 0, -1, b"again", KEY, False, False))]
    driven = Driven(ALL)
    (batch,) = grouped(requests)
    driven.happen(i.AddsArrived(1, batch))
    driven.ask(3, m.ReadEntry(1, 0))
    driven.look()
    driven.happen(i.JournalSynced(2))
    assert driven.answers == []
    driven.happen(i.JournalSynced(3))
    assert [txn for _, txn, _ in driven.answers] == [1, 2, 3]
    assert [each.last_place(0) for each in batch] == [1] and [each.last_place(5) for each in batch] == [-1]
