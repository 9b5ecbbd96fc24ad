"""Entries read in ranges and entries read one by one, as stories of a reader."""

from __future__ import annotations

import pytest
from ledger.roles.reader_story import LACK, OPEN, Story, body, ledger

from fencepost.ledger.roles.interface import (
    Error,
    ForgetReads,
    MetadataChanged,
    ReadMetadata,
    ReadOver,
    ReadsAnswered,
    Result,
    SendReads,
    TimerFired,
    Trace,
)
from fencepost.ledger.roles.reading import ENOUGH, MANY
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import fragment_of, write_set
from fencepost.ledger.rules.metadata import LedgerMetadata, closed

LAST = 999
MANY_ENTRIES = closed(OPEN, LAST, 0)
STRIPED = closed(LedgerMetadata(5, 3, 2, ledger((0, "abcde")).fragments, password=b"p"), LAST, 0)
FRAGMENTS = closed(ledger((0, "abc"), (4, "abd"), (7, "xyz")), LAST, 0)


def asked_of_their_write_sets(story: Story, metadata: LedgerMetadata, expected: list[int]) -> None:
    """Each of these entries is asked of one bookie, which should have it."""
    sent = [send for send in story.all if isinstance(send, SendReads)]
    asked = [(entry_id, send.bookie) for send in sent for entry_id in send.entry_ids]
    assert sorted(entry_id for entry_id, _ in asked) == expected
    for entry_id, bookie in asked:
        ensemble = fragment_of(metadata.fragments, entry_id).ensemble
        assert bookie in write_set(entry_id, ensemble, metadata.write_quorum)


# -- whom to ask first -------------------------------------------------------------------------------------------------


def test_entries_that_are_read_together_are_asked_of_one_bookie_and_each_has_its_turn() -> None:
    story = Story(MANY_ENTRIES)
    for first in (0, 10, 20):
        story.read(first, first + 9)
    assert story.asked() == {"a": [*range(10)], "b": [*range(10, 20)], "c": [*range(20, 30)]}
    assert story.give("b", *range(10, 20)) == [ReadOver(3, 20, Error.NONE)]


@pytest.mark.parametrize("metadata", [STRIPED, FRAGMENTS], ids=["striped", "fragments"])
@pytest.mark.parametrize("singly", [False, True])
def test_where_bookies_have_different_entries_each_is_asked_for_its_own(metadata: LedgerMetadata, singly: bool) -> None:
    for suspects in ("", "a", "abx"):
        story = Story(metadata)
        story.reader.readings.suspects.update(suspects)
        if singly:
            story.want(*range(12))
        else:
            story.read(0, 11)
        asked_of_their_write_sets(story, metadata, [*range(12)])
        assert not {*suspects} & {*story.sent}, "others have them too"


def test_many_single_entries_of_a_striped_ledger_are_spread_over_the_write_set() -> None:
    story = Story(STRIPED)
    story.want(*range(ENOUGH + 1))
    asked_of_their_write_sets(story, STRIPED, [*range(ENOUGH + 1)])
    assert len(story.sent) == 5


# -- what a bookie does not give ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [LACK, Code.IO_ERROR, None])
def test_what_one_bookie_does_not_give_is_asked_of_the_next_all_together(code: Code | None) -> None:
    story = Story(MANY_ENTRIES)
    story.read(0, 99)
    story.give("a", *range(30))
    assert story.give("a", *range(30, 100), code=code) == []
    assert story.asked() == {"b": [*range(30, 100)]}
    assert story.give("b", *range(30, 100)) == [ReadOver(2, 100, Error.NONE)]
    assert not story.reader.readings.under_way


def test_the_entries_before_one_that_can_not_be_had_are_waited_for_and_those_behind_are_not() -> None:
    story = Story(MANY_ENTRIES)
    story.read(0, 9)
    story.give("a", 0, 1)
    story.give("a", 5, 8, code=LACK)
    for bookie in "bc":
        story.give(bookie, 5, 8, code=LACK)
    assert story.metadata(MANY_ENTRIES) == []
    assert story.give("a", 6, 7, 9, 2) == [], "3 and 4 are missing"
    assert story.give("a", 3, 4) == [ReadOver(2, 5, Error.NO_ENTRY)]


def test_the_lowest_entry_that_can_not_be_had_ends_the_batch_with_its_own_error() -> None:
    story = Story(MANY_ENTRIES)
    story.read(0, 9)
    story.give("a", 0, 1, 2, 4, 5, 6, 8, 9)
    story.answer("a", body(1))  # 3 and 7 are damaged
    for bookie in "bc":
        story.give(bookie, 7, code=LACK), story.give(bookie, 3, code=None)
    assert story.metadata(MANY_ENTRIES) == [ReadOver(2, 3, Error.DIGEST_MISMATCH)]


def test_what_lies_beyond_the_end_is_an_error_behind_what_there_is() -> None:
    story = Story(lac=5)
    story.read(4, 9)
    assert story.asked() == {"a": [4, 5]}
    assert story.give("a", 4, 5) == [ReadOver(2, 6, Error.READ_FAILED)]
    assert story.want(9, 4, 6) == [ReadOver(0, 9, Error.READ_FAILED), ReadOver(0, 6, Error.READ_FAILED)]
    assert story.asked() == {"a": [4]} or story.asked() == {"b": [4]} or story.asked() == {"c": [4]}


def test_one_doubt_about_many_entries_reads_the_metadata_once() -> None:
    story = Story(MANY_ENTRIES)
    story.read(0, 9)
    for bookie in "ab":
        assert story.give(bookie, *range(10), code=LACK) == []
    assert story.give("c", *range(10), code=LACK) == [ReadMetadata(2, 1, watch=True)]
    assert story.metadata(closed(ledger((0, "abd")), LAST, 0), 4) == []
    (asked,) = story.asked().values()
    assert asked == [*range(10)], "they are read anew, together"


def test_a_reading_that_is_over_or_forgotten_is_not_told_of_again() -> None:
    story = Story(MANY_ENTRIES)
    story.read(0, 2)
    story.timer()
    assert story.asked() == {"a": [0, 1, 2], "b": [0, 1, 2]}
    assert story.give("b", 0, 1) == [] and story.give("a", 0) == []
    assert story.give("a", 2) == [ReadOver(2, 3, Error.NONE)]
    assert story.give("a", 1) == [] and story.give("b", 2, code=LACK) == [] and not story.sent
    story.read(0, 2)
    story.want(7)
    for token in (3, 0):
        assert story.happen(ForgetReads(token)) == []
    sent = story.asked()
    for bookie, entry_ids in sent.items():
        assert story.give(bookie, *entry_ids, code=LACK) == []
    assert not story.sent and not story.reader.readings.under_way


# -- what takes long ---------------------------------------------------------------------------------------------------


def test_what_takes_long_is_asked_of_others_one_after_another_and_every_answer_counts() -> None:
    story = Story(MANY_ENTRIES)
    story.read(0, 9)
    story.now = 5
    story.give("a", 0)
    story.timer()
    assert story.now == 10 and story.asked() == {"a": [*range(1, 10)]}, "it is still sending"
    story.timer()
    assert story.now == 20 and story.asked() == {"a": [*range(1, 10)], "b": [*range(1, 10)]}
    story.timer()
    assert set(story.sent) == {"a", "b", "c"}
    story.timer()
    assert story.give("a", *range(1, 4)) == story.give("b", *range(3, 8)) == []
    assert story.give("c", 8, 9) == [ReadOver(2, 10, Error.NONE)]


def test_a_bookie_that_lacks_an_entry_does_not_end_the_search_while_another_is_silent() -> None:
    story = Story(MANY_ENTRIES)
    story.read(3)
    story.timer()
    assert story.answer("b", LACK) == [] and set(story.sent) == {"a"}
    story.timer()
    assert set(story.sent) == {"a", "c"}


@pytest.mark.parametrize(("answered", "asked"), [(30, "b"), (None, "b"), (0, "")])
def test_a_bookie_is_waited_for_while_it_sends_what_was_asked_before(answered: int | None, asked: str) -> None:
    story = Story(MANY_ENTRIES)
    for first in (0, 10, 20, 30):
        story.read(first, first + 9)
    story.now = 5
    if answered is not None:  # of reading 2, or of reading 5, which was asked later
        story.happen(ReadsAnswered(2 if answered == 0 else 5, "a", (answered,), Code.OK))
    story.all.clear()
    story.timer()
    of_first = [send.bookie for send in story.all if isinstance(send, SendReads) and send.reading == 2]
    assert of_first == [*asked]


def test_a_process_that_was_held_up_waits_for_what_has_come_meanwhile() -> None:
    story = Story(MANY_ENTRIES)
    story.read(0, 9)
    story.timer(late=3)
    assert [*story.sent] == ["a"]
    story.timer()
    assert story.now == 15 and [*story.sent] == ["a", "b"]


def test_nothing_is_seen_to_while_nothing_is_under_way() -> None:
    story = Story(MANY_ENTRIES)
    story.read(0)
    story.give("a", 0)
    assert story.timer() == [] and not story.timers
    story.read(1)
    assert story.timers == [("late", 0)]


# -- suspects and the LAC ----------------------------------------------------------------------------------------------


def test_a_bookie_that_does_not_answer_is_suspect_until_it_does() -> None:
    story = Story(MANY_ENTRIES)
    story.read(0, 9)
    story.give("a", *range(10), code=None)
    assert story.reader.readings.suspects == {"a"}
    story.read(10, 19), story.read(20, 29), story.read(30, 39)
    assert "a" not in story.sent, "it is a's turn, and it is passed over"
    story.happen(ReadsAnswered(2, "a", (5,), LACK))
    assert not story.reader.readings.suspects


def test_every_answer_tells_a_lac_and_it_never_falls() -> None:
    story = Story(lac=5)
    story.call("tail", 8)
    story.read(0, 3)
    assert story.give("b" if "b" in story.asked() else "a", 0, lac=7) == []
    assert story.reader.lac == 7
    assert story.give([*story.asked()][0], 1, lac=9) == [Result(2, True)]
    assert story.give([*story.asked()][0], 2, lac=6) == [] and story.reader.lac == 9
    story.give([*story.asked()][0], 3)
    assert story.happen(ReadsAnswered(3, "a", (3,), Code.OK, lac=11)) == [], "too late for the reading"
    assert story.reader.lac == 11


def test_what_readers_receive_is_traced() -> None:
    story = Story(lac=5, traces=True)
    story.read(0, 5)
    seen = story.give("a", 0, 1, 3, lac=6)
    assert seen == [
        Trace("reader_receives_entry", 1, {"bookie": "a", "entries": ((0, 1), (3, 3))}),
        Trace("reader_learns_lac", 1, {"lac": 6}),
    ]
    lacks = story.give("a", 4, 5, code=LACK)
    assert lacks == [Trace("reader_receives_no_entry", 1, {"bookie": "a", "entries": ((4, 5),)})]
    assert story.give("a", 2, code=None) == []
    story.give("b", 2, 4), story.give("b", 5, code=LACK)
    assert isinstance(story.give("c", 5, code=LACK)[-1], ReadMetadata)
    told = story.metadata(OPEN)
    assert told[1:] == [Trace("reader_finds_no_entry", 1, {"entry": 5}), ReadOver(2, 5, Error.NO_ENTRY)]


# -- entries that are wanted one by one --------------------------------------------------------------------------------


def test_single_entries_gather_while_bookies_are_busy_and_go_to_the_one_with_the_fewest() -> None:
    story = Story(MANY_ENTRIES)
    story.want(*range(3))
    assert story.asked() == {"a": [0, 1, 2]}
    story.want(10, 11)
    story.want(20, 21, 22, 23)
    assert story.asked() == {"a": [0, 1, 2], "b": [10, 11], "c": [20, 21, 22, 23]}
    story.want(30)
    assert len(story.all) == 3, "every bookie has more to do than that"
    story.want(31)
    assert story.asked()["b"] == [30, 31]
    story.sent.clear()
    story.want(40)
    story.timers.clear()
    story.happen(ReadsAnswered(-3, "c", (20, 21, 22, 23), Code.OK))
    assert story.timers == [("gathered", 0)] and not story.sent
    story.happen(TimerFired(("gathered", 0)))
    assert story.asked() == {"c": [40]}


def test_of_many_single_entries_all_bookies_have_some() -> None:
    story = Story(MANY_ENTRIES)
    story.want(*range(3 * MANY))
    assert {bookie: len(entry_ids) for bookie, entry_ids in story.asked().items()} == dict.fromkeys("abc", MANY)


def test_a_bookie_that_lacks_single_entries_draws_no_more_of_them_until_it_has_some() -> None:
    story = Story(MANY_ENTRIES)
    story.want(0, 1, 2, 3)
    story.give("a", 0, 1, 2, 3, code=LACK)
    assert story.asked() == {"b": [0, 1, 2, 3]}
    story.give("b", 0, 1, 2, 3)
    for entry_id in (4, 5):
        story.want(entry_id)
        (bookie,) = story.sent
        assert bookie != "a" and story.give(bookie, entry_id) == []
    for _ in range(3):
        story.want(6)
        (bookie,) = story.sent
        story.timer()
        story.give(bookie, 6)
        story.sent.clear()
    assert not story.reader.readings.lacking, "that is forgotten by and by"


def test_a_single_entry_that_can_not_be_had_is_told_and_the_others_of_its_kind_come() -> None:
    story = Story(MANY_ENTRIES)
    story.want(0, 1, 2)
    story.give("a", 0)
    story.give("a", 1, code=LACK)
    story.give("b", 1, code=LACK)
    story.give("c", 1, code=LACK)
    (over,) = story.metadata(MANY_ENTRIES)
    assert isinstance(over, ReadOver)
    assert over.token < 0 and (over.stop, over.error) == (1, Error.NO_ENTRY)
    assert story.give("a", 2) == [] and not story.reader.readings.under_way


def test_single_entries_that_gather_are_told_when_the_ledger_is_gone_and_not_asked_for_when_forgotten() -> None:
    for forgets in (False, True):
        story = Story(MANY_ENTRIES)
        for first in (0, 10, 20):
            story.want(first, first + 1)
        story.want(30)
        assert len(story.all) == 3
        if forgets:
            story.happen(ForgetReads(0))
            story.happen(ReadsAnswered(-1, "a", (0, 1), Code.OK))
            assert not story.timers or story.happen(TimerFired(("gathered", 0))) == []
            assert all(30 not in entry_ids for entry_ids in story.asked().values())
        else:
            story.happen(MetadataChanged(1))
            assert ReadOver(0, 30, Error.NO_LEDGER) in story.metadata(None)


def test_idle_bookies_have_their_turn_for_some_single_entries_each() -> None:
    story = Story(MANY_ENTRIES)
    asked = []
    for first in range(0, 3 * ENOUGH, ENOUGH // 2):
        entry_ids = range(first, first + ENOUGH // 2)
        story.want(*entry_ids)
        (bookie,) = story.sent
        asked.append(bookie)
        story.give(bookie, *entry_ids)
    assert asked == ["a", "a", "b", "b", "c", "c"]


def test_a_bookie_that_is_asked_later_has_as_much_time_as_any() -> None:
    story = Story(MANY_ENTRIES)
    story.read(0, 9)
    story.now = 5
    story.give("a", *range(10), code=LACK)
    story.timer()
    assert (story.now, [*story.sent]) == (10, ["b"])
    story.timer()
    assert (story.now, [*story.sent]) == (15, ["b", "c"])


def test_an_entry_that_takes_long_is_asked_of_one_more_bookie_at_a_time() -> None:
    metadata = closed(LedgerMetadata(4, 4, 3, ledger((0, "abcd")).fragments, password=b"p"), LAST, 0)
    story = Story(metadata)
    story.read(0, 9)
    story.give("a", 5, code=LACK)
    assert story.asked()["b"] == [5]
    story.timer()
    assert [entry_ids.count(5) for entry_ids in story.asked().values()] == [0, 1, 1], "c, and not d too"
