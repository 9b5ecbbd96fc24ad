"""The reader as stories: what happens to it, and what it asks and tells its caller."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.store.entries import Digests, Entry
from fencepost.store.messages import ReadEntry, ReadEntryResponse, ReadLac, ReadLacResponse
from fencepost.store.roles.interface import (
    Call,
    Effect,
    EntriesRead,
    Error,
    MetadataAnswer,
    MetadataChanged,
    Outcome,
    ReadMetadata,
    ReadOn,
    Received,
    Result,
    Send,
    SessionExpired,
    SetTimer,
    TimerFired,
    Unanswered,
)
from fencepost.store.roles.reader import Reader, ReaderSettings
from fencepost.store.rules.codes import Code
from fencepost.store.rules.ensembles import Fragment
from fencepost.store.rules.metadata import DigestType, LedgerMetadata, closed
from fencepost.store.rules.reading import order_to_ask

DIGESTS = Digests(DigestType.CRC32, b"p")
LACK = Code.NO_ENTRY


def body(entry_id: int, lac: int = -1) -> bytes:
    return DIGESTS.entry_body(Entry(1, entry_id, lac, 0, b"entry %d" % entry_id))


def ledger(*ensembles: tuple[int, str]) -> LedgerMetadata:
    fragments = tuple(Fragment(first, tuple(bookies)) for first, bookies in ensembles)
    return LedgerMetadata(3, 3, 2, fragments, password=b"p")


OPEN = ledger((0, "abc"))


class Story:
    """A reader of ledger 1. Its requests wait to be answered, by bookie; ``timers`` has the keys of those that are
    set.
    """

    def __init__(self, metadata: LedgerMetadata = OPEN, lac: int = 5) -> None:
        self.reader = Reader(1, ReaderSettings(b"p", speculation_delay=10, poll_wait=1000))
        self.sent: dict[str, Send] = {}
        self.timers: list[Any] = []
        self.metadata_txn = 0
        self.token = 0
        self.now = 0
        assert self.call("open") == [ReadMetadata(1, 1, watch=True)]
        effects = self.metadata(metadata, 3)
        if effects:
            assert effects == [Result(1, metadata.last_entry)]
        else:
            self.lac("a", body(lac + 1, lac))
            assert self.lac("b") == [Result(1, lac)]
            self.lac("c")

    def happen(self, event: Any) -> list[Effect]:
        """Let an event happen; what the reader does, without the requests and timers."""
        effects = self.reader.receive(event, self.now)
        for effect in effects:
            if isinstance(effect, Send):
                self.sent[effect.bookie] = effect
            elif isinstance(effect, SetTimer):
                self.timers.append(effect.key)
            elif isinstance(effect, ReadMetadata):
                self.metadata_txn = effect.txn
        return [effect for effect in effects if not isinstance(effect, (Send, SetTimer))]

    def call(self, operation: str, *arguments: Any) -> list[Effect]:
        self.token += 1
        return self.happen(Call(self.token, operation, arguments))

    def metadata(self, metadata: LedgerMetadata | None, version: int = 3) -> list[Effect]:
        outcome = Outcome.NO_LEDGER if metadata is None else Outcome.OK
        return self.happen(MetadataAnswer(self.metadata_txn, outcome, version, metadata))

    def lac(
        self, bookies: str, last_entry: bytes | None = None, told: bytes | None = None, code: Code = Code.OK
    ) -> list[Effect]:
        """Bookies answer what their LAC is."""
        effects: list[Effect] = []
        for bookie in bookies:
            send = self.sent.pop(bookie)
            assert send.request == ReadLac(1)
            effects += self.happen(Received(send.txn, bookie, ReadLacResponse(1, code, told, last_entry)))
        return effects

    def answer(self, bookies: str, answer: Code | bytes | None, lac: int = -1) -> list[Effect]:
        """Bookies answer a read with a code or an entry, or do not (None)."""
        effects: list[Effect] = []
        for bookie in bookies:
            send = self.sent.pop(bookie)
            if answer is None:
                effects += self.happen(Unanswered(send.txn, bookie))
                continue
            code, found = (Code.OK, answer) if isinstance(answer, bytes) else (answer, None)
            entry_id = send.request.entry_id  # type: ignore[union-attr]
            effects += self.happen(Received(send.txn, bookie, ReadEntryResponse(1, entry_id, code, lac, found)))
        return effects

    def timer(self) -> list[Effect]:
        """The timer that was set last fires."""
        return self.happen(TimerFired(self.timers.pop()))


# -- open and LAC -----------------------------------------------------------------------------------------------------


def test_a_ledger_is_opened_at_the_highest_lac_that_a_quorum_tells() -> None:
    story = Story()
    assert story.reader.lac == 5
    assert story.call("lac") == []
    story.lac("a", told=DIGESTS.lac_body(1, 7))
    assert story.lac("b", body(7, 6)) == [Result(2, 7)]


def test_a_bookie_that_knows_nothing_tells_the_lowest_lac_and_one_in_limbo_none() -> None:
    story = Story()
    story.call("lac")
    story.lac("a", code=Code.UNKNOWN_LEDGER_STATE)
    assert story.lac("b", code=Code.NO_LEDGER) == []
    assert story.lac("c", code=Code.NO_LEDGER) == [Result(2, 5)], "a reader's LAC does not fall"
    story.call("lac")
    story.lac("a", code=Code.UNKNOWN_LEDGER_STATE)
    assert story.lac("b", code=Code.IO_ERROR) == [Result(3, error=Error.READ_FAILED)]


def test_all_before_the_last_fragment_is_confirmed() -> None:
    reader = Reader(1, ReaderSettings(b"p"))
    reader.receive(Call(1, "open"), 0)
    sends = reader.receive(MetadataAnswer(1, Outcome.OK, 0, ledger((0, "abc"), (4, "abd"))), 0)
    nothing = ReadLacResponse(1, Code.NO_LEDGER)
    effects = [effect for send in sends for effect in reader.receive(Received(send.txn, send.bookie, nothing), 0)]  # type: ignore[attr-defined]
    assert effects == [Result(1, 3)]


def test_a_damaged_lac_is_not_believed() -> None:
    story = Story()
    story.call("lac")
    story.lac("a", body(9, 8)[:-1] + b"?", DIGESTS.lac_body(1, 9)[:-1] + b"?")
    assert story.lac("b") == [Result(2, 5)]


def test_a_closed_ledger_is_as_long_as_its_metadata_say() -> None:
    story = Story(closed(OPEN, 7, 0))
    assert story.call("lac") == [Result(2, 7)]
    assert story.call("read", 8) == [Result(3, error=Error.READ_FAILED)]


def test_another_password_or_no_ledger() -> None:
    reader = Reader(1, ReaderSettings(b"q"))
    reader.receive(Call(1, "open"), 0)
    assert reader.receive(MetadataAnswer(1, Outcome.OK, 0, OPEN), 0) == [Result(1, error=Error.UNAUTHORIZED)]
    reader.receive(Call(2, "open"), 0)
    assert reader.receive(MetadataAnswer(2, Outcome.NO_LEDGER), 0) == [Result(2, error=Error.NO_LEDGER)]
    assert reader.receive(Call(3, "open"), 0) == [Result(3, error=Error.NO_LEDGER)]


# -- read -------------------------------------------------------------------------------------------------------------


def test_an_entry_is_read_from_the_first_bookie_of_its_write_set() -> None:
    story = Story()
    assert story.call("read", 3) == [] and list(story.sent) == ["a"]
    assert story.sent["a"].request == ReadEntry(1, 3)
    assert story.answer("a", body(3)) == [Result(2, b"entry 3")]


def test_nothing_is_read_beyond_the_lac() -> None:
    assert Story(lac=5).call("read", 6) == [Result(2, error=Error.READ_FAILED)]
    assert Story(lac=5).call("read", -1) == [Result(2, error=Error.READ_FAILED)]


@pytest.mark.parametrize(
    "first", [LACK, None, body(3)[:-1] + b"?", body(4)], ids=["lacks it", "no answer", "damaged", "another entry"]
)
def test_the_next_bookie_is_asked_when_the_first_does_not_help(first: Code | bytes | None) -> None:
    story = Story()
    story.call("read", 3)
    assert story.answer("a", first) == [] and list(story.sent) == ["b"]
    assert story.answer("b", body(3)) == [Result(2, b"entry 3")]


def test_the_next_bookie_is_asked_when_the_first_takes_long_and_answers_may_come_in_any_order() -> None:
    story = Story()
    story.call("read", 3)
    assert story.timer() == [] and sorted(story.sent) == ["a", "b"]
    assert story.answer("b", body(3)) == [Result(2, b"entry 3")]
    assert story.answer("a", LACK) == [], "too late to matter"
    assert story.timer() == []


def test_while_another_may_still_answer_nobody_more_is_asked() -> None:
    story = Story()
    story.call("read", 3)
    story.timer()
    assert story.answer("b", LACK) == [] and list(story.sent) == ["a"]
    assert story.answer("a", LACK) == [] and list(story.sent) == ["c"]


def test_that_there_is_no_such_entry_is_believed_if_all_say_so() -> None:
    story = Story()
    story.call("read", 3)
    story.answer("a", LACK), story.answer("b", LACK)
    assert story.answer("c", LACK) == [ReadMetadata(2, 1, watch=True)]
    assert story.metadata(OPEN) == [Result(2, error=Error.NO_ENTRY)]


def test_a_read_in_doubt_waits_for_the_metadata_as_they_are_now() -> None:
    story = Story()
    story.call("read", 3)
    for bookie in "abc":
        story.answer(bookie, LACK)
    assert story.happen(MetadataAnswer(story.metadata_txn, Outcome.UNKNOWN)) == []
    assert story.timer() == [ReadMetadata(3, 1, watch=True)]
    assert story.happen(MetadataChanged(1)) == [ReadMetadata(4, 1, watch=True)]
    assert story.happen(MetadataAnswer(3, Outcome.OK, 3, OPEN)) == [], "of a question that was asked before the change"
    assert story.metadata(OPEN) == [Result(2, error=Error.NO_ENTRY)]


def test_a_read_that_somebody_did_not_answer_is_no_negative() -> None:
    story = Story()
    story.call("read", 3)
    story.answer("a", LACK), story.answer("b", Code.UNKNOWN_LEDGER_STATE)
    assert story.answer("c", LACK) == [ReadMetadata(2, 1, watch=True)]
    assert story.metadata(OPEN) == [Result(2, error=Error.READ_FAILED)]


def test_an_entry_of_a_fragment_that_the_reader_does_not_know_yet_is_found_there() -> None:
    story = Story()
    story.call("read", 5)
    for bookie in "cab":
        story.answer(bookie, LACK)
    assert story.metadata(ledger((0, "abc"), (5, "dec")), 4) == []
    story.answer("c", LACK)
    assert story.answer("d", body(5)) == [Result(2, b"entry 5")]


def test_each_entry_is_asked_of_another_bookie_first_and_a_suspect_last() -> None:
    story = Story()
    assert order_to_ask(("a", "b", "c"), 4, ()) == ("b", "c", "a")
    story.call("read", 1)
    story.answer("b", None)
    story.call("read", 4)
    assert set(story.sent) == {"c"}, "b left a question unanswered"
    story.answer("c", body(4))
    story.call("lac")
    for bookie in "bca":
        story.lac(bookie)
    story.call("read", 4)
    assert set(story.sent) == {"b"}, "it answers again"


def test_damage_is_told_where_no_copy_is_whole() -> None:
    story = Story()
    story.call("read", 3)
    story.answer("a", body(3)[:-1] + b"?")
    story.answer("b", LACK)
    story.answer("c", None)
    assert story.metadata(OPEN) == [Result(2, error=Error.DIGEST_MISMATCH)]


# -- following a ledger -----------------------------------------------------------------------------------------------


def test_what_can_be_read_is_read_at_once() -> None:
    story = Story()
    story.call("tail", 5)
    assert story.answer("c", body(5)) == [Result(2, b"entry 5")]


def test_an_entry_comes_with_the_poll_for_the_lac() -> None:
    story = Story()
    assert story.call("tail", 6) == []
    assert story.sent["a"].request == ReadEntry(1, -1, previous_lac=5, wait=1000)
    assert story.answer("a", body(6, 5), lac=6) == [Result(2, b"entry 6")]
    assert not story.sent


def test_an_entry_beyond_the_lac_that_a_poll_tells_is_not_given() -> None:
    story = Story()
    story.call("tail", 6)
    assert story.answer("a", body(6, 5), lac=5) == []


def test_a_poll_that_has_told_nothing_goes_to_the_next_bookie() -> None:
    story = Story()
    story.call("tail", 7)
    story.now = 1000
    assert story.answer("a", Code.OK, lac=5) == [] and list(story.sent) == ["b"]
    assert story.answer("b", body(6, 5), lac=6) == [] and story.sent["c"].request == ReadEntry(
        1, -1, previous_lac=6, wait=1000
    )
    assert story.answer("c", body(7, 6), lac=7) == [Result(2, b"entry 7")]


def test_a_bookie_that_answers_a_poll_at_once_is_not_asked_in_a_loop() -> None:
    story = Story()
    story.call("tail", 6)
    assert story.answer("a", None) == [] and not story.sent
    assert story.timer() == [] and list(story.sent) == ["b"]


def test_a_tail_ends_with_the_ledger() -> None:
    story = Story()
    story.call("tail", 6)
    story.call("tail", 8)
    assert story.happen(MetadataChanged(1)) == [ReadMetadata(2, 1, watch=True)]
    assert story.metadata(closed(ledger((0, "abc"), (6, "abd")), 6, 0), 4) == [Result(3)]
    story.sent.pop("d", None)
    send = story.sent["a"]
    assert send.request == ReadEntry(1, 6)
    assert story.answer("a", body(6)) == [Result(2, b"entry 6")]


def test_after_an_expired_session_the_metadata_are_watched_anew() -> None:
    story = Story()
    assert story.happen(SessionExpired()) == [ReadMetadata(2, 1, watch=True)]
    effects = story.reader.receive(MetadataAnswer(2, Outcome.UNKNOWN), 0)
    assert effects == [SetTimer(("metadata", 2), 100_000)]
    assert story.happen(TimerFired(("metadata", 2))) == [ReadMetadata(3, 1, watch=True)]


def test_a_ledger_that_is_deleted_is_no_ledger_for_all_who_wait() -> None:
    story = Story()
    story.call("read", 3)
    story.call("tail", 9)
    story.sent.clear()
    story.call("lac")
    story.happen(MetadataChanged(1))
    assert story.metadata(None) == [Result(token, error=Error.NO_LEDGER) for token in (2, 4, 3)]
    assert story.call("read", 0) == [Result(5, error=Error.NO_LEDGER)]


# -- entries that were asked for by the batch --------------------------------------------------------------------------


def read_on(
    story: Story, bookie: str, answer: Code | bytes | None, token: int = 7, is_waiting: bool = False
) -> list[Effect]:
    """A bookie that was asked for entry 3 by the batch answers so."""
    response = None
    if answer is not None:
        code, found = (Code.OK, answer) if isinstance(answer, bytes) else (answer, None)
        response = ReadEntryResponse(1, 3, code, -1, found)
    return story.happen(ReadOn(token, 3, bookie, response, is_waiting))


@pytest.mark.parametrize("answer", [LACK, Code.IO_ERROR, b"damaged", None])
def test_what_a_batch_did_not_bring_comes_from_another_bookie(answer: Code | bytes | None) -> None:
    story = Story()
    assert read_on(story, "a", answer) == [] and list(story.sent) == ["b"]
    assert story.answer("b", body(3)) == [Result(7, b"entry 3")]
    assert story.timer() == [] and not story.sent


def test_an_unusual_answer_to_a_batch_may_have_the_entry() -> None:
    assert read_on(Story(), "c", body(3)) == [Result(7, b"entry 3")]


@pytest.mark.parametrize(
    ("answer", "error"), [(LACK, Error.NO_ENTRY), (b"damaged", Error.DIGEST_MISMATCH), (None, Error.READ_FAILED)]
)
def test_the_bookie_that_a_batch_asked_counts_as_one_of_them(answer: Code | bytes | None, error: Error) -> None:
    story = Story()
    read_on(story, "a", answer)
    assert story.answer("b", LACK) == []
    assert story.answer("c", LACK) == [ReadMetadata(2, 1, watch=True)]
    assert story.metadata(OPEN) == [Result(7, error=error)]


def test_a_batch_that_takes_long_is_not_waited_for_alone_and_its_answer_counts() -> None:
    story = Story()
    assert read_on(story, "a", None, is_waiting=True) == [] and list(story.sent) == ["b"]
    assert story.answer("b", LACK) == [] and not story.sent, "the first may yet answer"
    assert read_on(story, "a", LACK) == [] and list(story.sent) == ["c"]
    assert story.answer("c", body(3)) == [Result(7, b"entry 3")]


def test_what_came_by_the_batch_tells_a_lac_and_who_is_suspect() -> None:
    story = Story()
    story.happen(EntriesRead("a", None))
    story.call("read", 3)
    assert list(story.sent) == ["b"]
    story.answer("b", body(3))
    story.happen(EntriesRead("a", 9))
    assert story.reader.lac == 9 and not story.reader.suspects
    story.happen(EntriesRead("a", 8))
    assert story.reader.lac == 9


def test_a_batch_of_a_ledger_that_is_gone() -> None:
    story = Story()
    story.happen(MetadataChanged(1))
    story.metadata(None)
    assert read_on(story, "a", LACK) == [Result(7, error=Error.NO_LEDGER)]


def test_unknown_calls() -> None:
    assert Story().call("dance") == [Result(2, error=Error.BAD_CALL)]
    assert Reader(1, ReaderSettings()).receive(Call(1, "read", (0,)), 0) == [Result(1, error=Error.BAD_CALL)]
