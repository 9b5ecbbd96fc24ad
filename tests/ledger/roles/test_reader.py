"""The reader as stories: its events, its requests, and its results."""

from __future__ import annotations

import pytest
from ledger.roles.reader_story import DIGESTS, LACK, OPEN, Story, body, ledger

from fencepost.ledger.messages import ReadEntry, ReadLacResponse
from fencepost.ledger.roles.interface import (
    Call,
    Error,
    MetadataAnswer,
    MetadataChanged,
    Outcome,
    ReadEntries,
    ReadMetadata,
    ReadOver,
    Received,
    Result,
    SessionExpired,
    SetTimer,
    TimerFired,
    WantEntries,
)
from fencepost.ledger.roles.reader import Reader, ReaderSettings
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.metadata import closed
from fencepost.ledger.rules.reading import order_to_ask

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
    assert story.read(8) == [ReadOver(3, 8, Error.READ_FAILED)]


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
    assert story.read(3) == [] and list(story.sent) == ["a"]
    assert story.asked() == {"a": [3]}
    assert story.answer("a", body(3)) == [ReadOver(2, 4, Error.NONE)]


def test_nothing_is_read_beyond_the_lac() -> None:
    assert Story(lac=5).read(6) == [ReadOver(2, 6, Error.READ_FAILED)]
    assert Story(lac=5).read(-1) == [ReadOver(2, -1, Error.READ_FAILED)]


@pytest.mark.parametrize(
    "first", [LACK, None, body(3)[:-1] + b"?", body(4)], ids=["lacks it", "no answer", "damaged", "another entry"]
)
def test_the_next_bookie_is_asked_when_the_first_does_not_help(first: Code | bytes | None) -> None:
    story = Story()
    story.read(3)
    assert story.answer("a", first) == [] and list(story.sent) == ["b"]
    assert story.answer("b", body(3)) == [ReadOver(2, 4, Error.NONE)]


def test_the_next_bookie_is_asked_when_the_first_takes_long_and_answers_may_come_in_any_order() -> None:
    story = Story()
    story.read(3)
    assert story.timer() == [] and sorted(story.sent) == ["a", "b"]
    assert story.answer("b", body(3)) == [ReadOver(2, 4, Error.NONE)]
    assert story.answer("a", LACK) == [], "too late to matter"
    assert story.timer() == []


def test_while_another_may_still_answer_nobody_more_is_asked() -> None:
    story = Story()
    story.read(3)
    story.timer()
    assert story.answer("b", LACK) == [] and list(story.sent) == ["a"]
    assert story.answer("a", LACK) == [] and list(story.sent) == ["c"]


def test_that_there_is_no_such_entry_is_believed_if_all_say_so() -> None:
    story = Story()
    story.read(3)
    story.answer("a", LACK), story.answer("b", LACK)
    assert story.answer("c", LACK) == [ReadMetadata(2, 1, watch=True)]
    assert story.metadata(OPEN) == [ReadOver(2, 3, Error.NO_ENTRY)]


def test_a_read_in_doubt_waits_for_the_metadata_as_they_are_now() -> None:
    story = Story()
    story.read(3)
    for bookie in "abc":
        story.answer(bookie, LACK)
    assert story.happen(MetadataAnswer(story.metadata_txn, Outcome.UNKNOWN)) == []
    assert story.timer() == [ReadMetadata(3, 1, watch=True)]
    assert story.happen(MetadataChanged(1)) == [ReadMetadata(4, 1, watch=True)]
    assert story.happen(MetadataAnswer(3, Outcome.OK, 3, OPEN)) == [], "of a question that was asked before the change"
    assert story.metadata(OPEN) == [ReadOver(2, 3, Error.NO_ENTRY)]


def test_a_read_that_somebody_did_not_answer_is_no_negative() -> None:
    story = Story()
    story.read(3)
    story.answer("a", LACK), story.answer("b", Code.UNKNOWN_LEDGER_STATE)
    assert story.answer("c", LACK) == [ReadMetadata(2, 1, watch=True)]
    assert story.metadata(OPEN) == [ReadOver(2, 3, Error.READ_FAILED)]


def test_an_entry_of_a_fragment_that_the_reader_does_not_know_yet_is_found_there() -> None:
    story = Story()
    story.read(5)
    for bookie in "acb":  # the first in its turn, and then in the order of the entry
        story.answer(bookie, LACK)
    assert story.metadata(ledger((0, "abc"), (5, "dec")), 4) == []
    story.answer("c", LACK)
    assert story.answer("d", body(5)) == [ReadOver(2, 6, Error.NONE)]


def test_each_read_is_asked_of_another_bookie_first_and_a_suspect_last() -> None:
    story = Story()
    assert order_to_ask(("a", "b", "c"), 4, ()) == ("b", "c", "a")
    story.read(1)
    story.read(1)
    assert [*story.sent] == ["a", "b"], "each has its turn"
    story.answer("a", body(1))
    story.answer("b", None)
    assert [*story.sent] == ["c"] and story.answer("c", body(1))
    story.read(4), story.read(4)
    assert story.asked() == {"c": [4], "a": [4]}
    story.read(4)
    assert [*story.sent] == ["c", "a"], "b left a question unanswered, and it is not its turn"
    story.sent.clear()
    story.call("lac")
    for bookie in "bca":
        story.lac(bookie)
    story.read(4), story.read(4), story.read(4)
    assert [*story.asked()] == ["c", "a", "b"], "it answers again"


def test_damage_is_told_where_no_copy_is_whole() -> None:
    story = Story()
    story.read(3)
    story.answer("a", body(3)[:-1] + b"?")
    story.answer("b", LACK)
    story.answer("c", None)
    assert story.metadata(OPEN) == [ReadOver(2, 3, Error.DIGEST_MISMATCH)]


# -- following a ledger -----------------------------------------------------------------------------------------------


def test_what_can_be_read_is_told_at_once() -> None:
    story = Story()
    assert story.call("tail", 5) == [Result(2, True)]


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
    assert story.metadata(closed(ledger((0, "abc"), (6, "abd")), 6, 0), 4) == [Result(2, True), Result(3)]


def test_after_an_expired_session_the_metadata_are_watched_anew() -> None:
    story = Story()
    assert story.happen(SessionExpired()) == [ReadMetadata(2, 1, watch=True)]
    effects = story.reader.receive(MetadataAnswer(2, Outcome.UNKNOWN), 0)
    assert effects == [SetTimer(("metadata", 2), 100_000)]
    assert story.happen(TimerFired(("metadata", 2))) == [ReadMetadata(3, 1, watch=True)]


def test_a_ledger_that_is_deleted_is_no_ledger_for_all_who_wait() -> None:
    story = Story()
    story.read(3)
    story.call("tail", 9)
    story.want(4)
    story.read(1, 3)
    story.sent.clear()
    story.call("lac")
    story.happen(MetadataChanged(1))
    gone = Error.NO_LEDGER
    told = [Result(5, error=gone), Result(3, error=gone), ReadOver(2, 3, gone), ReadOver(-2, 4, gone)]
    assert story.metadata(None) == [*told, ReadOver(4, 1, gone)]
    assert story.read(0) == [ReadOver(6, 0, gone)] and story.want(1, 2) == [ReadOver(0, 1, gone), ReadOver(0, 2, gone)]
    assert story.call("lac") == [Result(7, error=gone)] and not story.reader.readings.under_way


def test_unknown_calls() -> None:
    assert Story().call("dance") == [Result(2, error=Error.BAD_CALL)]
    reader = Reader(1, ReaderSettings())
    assert reader.receive(Call(1, "tail", (0,)), 0) == [Result(1, error=Error.BAD_CALL)]
    assert reader.receive(ReadEntries(2, 0, 1), 0) == [ReadOver(2, 0, Error.BAD_CALL)]
    assert reader.receive(WantEntries((1,)), 0) == [ReadOver(0, 1, Error.BAD_CALL)]
