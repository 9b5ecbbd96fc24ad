"""A batch of n entries is n batches of one: the same requests, the same state, the same answers to the caller."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.ledger.messages import AddEntry
from fencepost.ledger.roles import interface as i
from fencepost.ledger.roles.writer import Writer, WriterSettings
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import is_in_write_set

TOGETHER, ONE_BY_ONE = range(2)
BOOKIES = "abcdefg"


class Driven:
    """A writer that receives entries and answers together, or one by one."""

    def __init__(self, how: int, sizes: tuple[int, int, int], limit: int, others: int = 2) -> None:
        self.how = how
        self.writer = Writer(1, WriterSettings(*sizes, in_flight_limit=limit, creation_token=7))
        self.waiting: dict[str, list[int]] = {bookie: [] for bookie in BOOKIES}
        self.sent: dict[str, list[tuple[int, bytes, int]]] = {bookie: [] for bookie in BOOKIES}
        self.metadata: Any = None
        self.tokens = 0
        self.appended = 0
        self.batches: dict[int, range] = {}
        """The entries that came with each token that has no error."""
        self.errors: list[i.Error] = []
        self.told = -1
        self.happen(i.BookiesChanged(tuple(BOOKIES[: sizes[0] + others])))
        self.happen(i.Call(0, "create"))
        self.answer_metadata()

    def happen(self, event: i.Event) -> None:
        for effect in self.writer.receive(event, 0):
            if isinstance(effect, i.SendAdds):
                for at in range(len(effect.adds)):
                    if is_in_write_set(effect.place, effect.adds.first + at, effect.ensemble_size, effect.write_quorum):
                        self.send(effect.bookie, effect.adds[at])
            elif isinstance(effect, (i.CreateMetadata, i.WriteMetadata)):
                self.metadata = effect
            elif isinstance(effect, i.Confirmed):
                self.told = effect.entry_id
                assert effect.length == self.writer.adds.length
            elif isinstance(effect, i.Result) and effect.error:
                self.errors += [effect.error for entry_id in self.batches.pop(effect.token) if entry_id > self.told]

    def send(self, bookie: str, request: AddEntry) -> None:
        entry = self.writer.digests.open_entry(request.body, 1, request.entry_id)
        assert entry is not None
        self.sent[bookie].append((entry.entry_id, entry.data, entry.length))
        self.waiting[bookie].append(entry.entry_id)

    def append(self, entries: list[bytes]) -> None:
        for some in [entries] if self.how == TOGETHER else [[each] for each in entries]:
            self.tokens += 1
            self.batches[self.tokens] = range(self.appended, self.appended + len(some))
            self.appended += len(some)
            self.happen(i.Append(self.tokens, some))

    def answer(self, bookie: str, number: int, code: Code | None) -> None:
        answered, self.waiting[bookie] = self.waiting[bookie][:number], self.waiting[bookie][number:]
        for some in [answered] if self.how == TOGETHER else [[each] for each in answered]:
            if some:
                self.happen(i.AddsAnswered(bookie, some, code))

    def answer_metadata(self) -> None:
        asked, self.metadata = self.metadata, None
        if asked is not None:
            version = asked.version + 1 if isinstance(asked, i.WriteMetadata) else 0
            self.happen(i.MetadataAnswer(asked.txn, i.Outcome.OK, version))

    def state(self) -> dict[str, Any]:
        writer, adds = self.writer, self.writer.adds
        return {
            "sent": self.sent,
            "told": self.told,
            "errors": self.errors,
            "status": (writer.status, writer.error, writer.length, writer.lac, writer.changing_ensemble),
            "adds": (adds.pushed, adds.confirmed, adds.length, adds.ensemble, adds.failed_before),
            "failed": [*adds.failed],
            "confirmed by": [adds.confirmed_by(entry_id) for entry_id in range(adds.confirmed + 1, adds.pushed + 1)],
            "waiting": sum(len(append.entries) - append.next for append in writer.appends),
        }


APPENDS = st.tuples(st.just("append"), st.lists(st.binary(max_size=5), min_size=1, max_size=40))
ANSWERS = st.tuples(
    st.just("answer"),
    st.sampled_from(BOOKIES[:5]),
    st.integers(1, 40),
    st.sampled_from([*[Code.OK] * 12, Code.IO_ERROR, None, Code.FENCED]),
)
METADATA = st.tuples(st.just("answer_metadata"))
SIZES = st.sampled_from([(3, 3, 2), (3, 2, 2), (1, 1, 1), (5, 3, 2), (3, 3, 3), (4, 3, 1)])


@settings(max_examples=150, deadline=None)
@given(
    SIZES,
    st.sampled_from([1000, 7, 1]),
    st.integers(0, 2),
    st.lists(st.one_of(APPENDS, ANSWERS, ANSWERS, METADATA), max_size=30),
)
def test_a_batch_is_as_many_batches_of_one(
    sizes: tuple[int, int, int], limit: int, spare: int, steps: list[tuple[Any, ...]]
) -> None:
    one, other = (Driven(how, sizes, limit, spare) for how in (TOGETHER, ONE_BY_ONE))
    for name, *arguments in steps:
        for each in (one, other):
            getattr(each, name)(*arguments)
        assert other.state() == one.state()


def test_a_ledger_in_flight_of_more_entries_than_the_ring_began_with() -> None:
    one = Driven(TOGETHER, (3, 3, 2), 10_000)
    for _ in range(50):
        one.append([b"data"] * 100)
        one.answer("a", 37, Code.OK)
        one.answer("b", 12, Code.OK)
    assert one.told == one.writer.adds.confirmed == 12 * 50 - 1
    assert one.writer.adds.confirmed_by(37 * 50 - 1) == {"a"} and not one.writer.adds.confirmed_by(37 * 50)
    one.answer("c", 5000, Code.OK)
    assert one.told == 37 * 50 - 1
    one.answer("b", 5000, Code.OK)
    assert one.told == 4999 and not one.writer.adds.pending and not any(one.writer.adds.masks)


def test_an_ensemble_of_more_bookies_than_a_mask_has_bits() -> None:
    bookies = tuple(f"b{number}" for number in range(80))
    writer = Writer(1, WriterSettings(70, 70, 70, creation_token=7))
    writer.receive(i.BookiesChanged(bookies), 0)
    (create,) = writer.receive(i.Call(0, "create"), 0)
    assert isinstance(create, i.CreateMetadata)
    writer.receive(i.MetadataAnswer(create.txn, i.Outcome.OK, 0), 0)
    writer.receive(i.Append(1, [b"data"] * 100), 0)
    told = [
        effect for bookie in bookies[:70] for effect in writer.receive(i.AddsAnswered(bookie, range(100), Code.OK), 0)
    ]
    assert told == [i.Confirmed(99, 400)]


def test_a_bookie_that_joins_is_sent_batches_and_one_by_one_what_is_left_of_a_batch_that_is_confirmed_in_part() -> None:
    one = Driven(TOGETHER, (4, 3, 2), 1000)
    for _ in range(2):
        one.append([b"data"] * 10)
    for bookie in "acd":
        one.answer(bookie, 3, Code.OK)
    confirmed = one.writer.adds.confirmed
    assert 0 <= confirmed < 9
    one.answer("b", 1, Code.IO_ERROR)
    effects = one.writer.receive(i.MetadataAnswer(one.metadata.txn, i.Outcome.OK, 1), 0)
    assert one.writer.adds.ensemble == ("a", "e", "c", "d")
    asked = [entry_id for entry_id in range(20) if is_in_write_set(1, entry_id, 4, 3)]
    *singles, batch = (effect for effect in effects if isinstance(effect, i.SendAdds))
    sent = [single.adds.first for single in singles]
    assert sent == [entry_id for entry_id in asked if confirmed < entry_id < 10] and {
        *map(len, (s.adds for s in singles))
    } == {1}
    assert (batch.bookie, batch.place, batch.adds.first, len(batch.adds)) == ("e", 1, 10, 10)
