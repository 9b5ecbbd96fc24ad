"""A batch of requests, from any state of a bookie: it has the effects of the same requests one at a time."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fencepost.store import messages as m
from fencepost.store.records import EntryAdded, LedgerFenced, LimboChanged, MasterKeyLearnt, Record
from fencepost.store.roles import interface as i
from fencepost.store.roles.bookie import Bookie, Limits
from fencepost.store.rules.codes import Code
from fencepost.store.rules.protections import ALL, Protections

KEY, OTHER_KEY = b"key", b"other key"


@dataclass(frozen=True)
class Group:
    """Adds of one ledger with the same key and flags, as requests with their numbers."""

    requests: tuple[tuple[int, m.AddEntry], ...]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.requests[0][1], name)

    @property
    def lac(self) -> int:
        return max(request.lac for _, request in self.requests)

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def low(self) -> int:
        return min(request.entry_id for _, request in self.requests)

    @property
    def high(self) -> int:
        return max(request.entry_id for _, request in self.requests)

    def entry_ids(self) -> list[int]:
        return [request.entry_id for _, request in self.requests]

    def last_place(self, entry_id: int) -> int:
        return max(
            (place for place, (_, request) in enumerate(self.requests) if request.entry_id == entry_id), default=-1
        )


@dataclass(frozen=True)
class Found:
    """Reads with their numbers, and what was found."""

    reads: tuple[tuple[int, m.ReadEntry, bytes | None], ...]

    def __len__(self) -> int:
        return len(self.reads)

    def entry_ids(self) -> list[int]:
        return [request.entry_id for _, request, _ in self.reads]

    @property
    def low(self) -> int:
        return min(self.entry_ids())

    @property
    def high(self) -> int:
        return max(self.entry_ids())

    def only(self, which: list[int]) -> Found:
        return Found(tuple(self.reads[place] for place in which))


def groups(requests: list[tuple[int, m.AddEntry]]) -> list[tuple[Group, ...]]:
    """Adds by ledger, in batches: another key or other flags of the same ledger begin the next one."""
    found: dict[int, list[tuple[int, m.AddEntry]]] = {}
    for place, (txn, each) in enumerate(requests):
        of_ledger = found.setdefault(each.ledger, [])
        if of_ledger:
            before = of_ledger[0][1]
            if (before.master_key, before.recovery, before.deferred_sync) != (
                each.master_key,
                each.recovery,
                each.deferred_sync,
            ):
                return [tuple(Group(tuple(members)) for members in found.values()), *groups(requests[place:])]
        of_ledger.append((txn, each))
    return [tuple(Group(tuple(members)) for members in found.values())]


class Driven:
    """A bookie, its journal and what it stores; ``answers`` are those that it has given."""

    def __init__(self, protections: Protections) -> None:
        self.bookie = Bookie(protections, Limits(look_ups=5, polls=2, polls_of_ledger=2))
        self.journal: list[Record] = []
        self.stored: dict[tuple[int, int], bytes] = {}
        self.answers: list[tuple[int, int, Any]] = []
        self.look_ups: list[i.LookUp] = []
        self.reads: list[tuple[int, list[tuple[int, m.ReadEntry]]]] = []
        self.asked: list[tuple[int, m.ReadEntry]] = []

    def happen(self, event: i.Event) -> None:
        for effect in self.bookie.receive(event, 0):
            self.carry_out(effect)

    def carry_out(self, effect: Any) -> None:
        kind = type(effect)
        if kind is i.Journal:
            self.journal.append(effect.record)
            assert len(self.journal) == effect.position
        elif kind is i.Store:
            self.stored[effect.ledger, effect.entry_id] = effect.body
        elif kind is i.JournalAdds:
            for group in effect.adds:
                for _, request in group.requests:
                    self.journal.append(EntryAdded(request.ledger, request.entry_id, request.lac, request.body))
                    self.stored[request.ledger, request.entry_id] = request.body
            assert len(self.journal) == effect.position
        elif kind is i.Answer:
            self.answers.append((effect.connection, effect.txn, effect.response))
        elif kind is i.AnswerAdds:
            for group in effect.adds:
                for txn, request in group.requests:
                    self.answers.append(
                        (effect.connection, txn, m.AddEntryResponse(request.ledger, request.entry_id, effect.code))
                    )
        elif kind is i.LookUp:
            self.look_ups.append(effect)
        elif kind is i.LookUpReads:
            if effect.count:
                self.reads.append((effect.number, self.asked[: effect.count]))
            for txn, request in self.asked[effect.count :]:
                self.answers.append(
                    (1, txn, m.ReadEntryResponse(request.ledger, request.entry_id, Code.TOO_MANY_REQUESTS))
                )
        elif kind is i.AnswerReads:
            for txn, request, body in effect.reads.reads:
                sent = body if effect.code is Code.OK else None
                self.answers.append(
                    (1, txn, m.ReadEntryResponse(request.ledger, request.entry_id, effect.code, effect.lac, sent))
                )
        else:
            assert kind is i.SetTimer or kind is i.Result

    def look(self) -> None:
        """Carry out the look-ups."""
        for number, reads in self.reads:
            found: dict[tuple[int, Code], list[Any]] = {}
            for txn, request in reads:
                body = self.stored.get((request.ledger, request.entry_id))
                code = Code.IO_ERROR if request.entry_id == 4 else Code.NO_ENTRY if body is None else Code.OK
                found.setdefault((request.ledger, code), []).append((txn, request, body))
            for (ledger, code), some in found.items():
                self.happen(i.ReadsFound(number, ledger, code, Found(tuple(some))))
        self.reads.clear()
        while self.look_ups:
            look = self.look_ups.pop(0)
            ids = [entry_id for ledger, entry_id in self.stored if ledger == look.ledger]
            wanted = max(ids, default=-1) if look.entry_id == -1 else look.entry_id
            body = self.stored.get((look.ledger, wanted))
            code = Code.IO_ERROR if look.entry_id == 4 else Code.NO_ENTRY if body is None else Code.OK
            self.happen(i.Found(look.number, code, wanted, body if code is Code.OK else None))

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
        """What a bookie knows that begins with this journal."""
        other = Driven(self.bookie.protections)
        for record in self.journal:
            other.happen(i.Replayed(record))
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
            each.happen(i.Replayed(record))
    txn = 0
    for step in steps:
        for each in (together, single):
            if step == "sync":
                each.sync()
            elif isinstance(step, i.Call):
                each.happen(step)
            elif not isinstance(step, list):
                each.happen(i.Asked(1, txn, step))
            elif each is together and type(step[0]) is m.ReadEntry:
                each.asked = list(enumerate(step, txn))
                each.happen(i.AskedToRead(1, len(step)))
            elif each is together:
                for batch in groups(list(enumerate(step, txn))):
                    each.happen(i.AskedToAdd(1, batch))
            else:
                for number, request in enumerate(step, txn):
                    each.happen(i.Asked(1, number, request))
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
            and not each.bookie.unsynced_adds
            and not each.bookie.adds_under_way
        )
    assert together.given() == single.given()
    assert together.again() == single.again()


def test_a_read_of_an_entry_that_came_in_a_batch_waits_for_it() -> None:
    driven = Driven(ALL)
    (batch,) = groups([(1, add(1, 0, -1, b"", KEY, False, False)), (2, add(1, 1, 0, b"", KEY, False, False))])
    driven.happen(i.AskedToAdd(1, batch))
    driven.happen(i.Asked(1, 3, m.ReadEntry(1, 1)))
    driven.look()
    assert driven.answers == []
    driven.happen(i.JournalSynced(2))
    assert driven.answers == []
    driven.happen(i.JournalSynced(3))
    assert [txn for _, txn, _ in driven.answers] == [1, 2, 3]
