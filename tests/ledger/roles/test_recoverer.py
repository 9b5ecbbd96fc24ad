"""The recoverer as stories: its events, its requests, its writes of metadata, and its results."""

from __future__ import annotations

from typing import Any

import pytest
from ledger.roles.reader_story import DIGESTS, ledger

from fencepost.ledger.entries import Entry, master_key
from fencepost.ledger.messages import AddEntry, ReadEntry, ReadEntryResponse
from fencepost.ledger.roles.interface import (
    AddsAnswered,
    BookiesChanged,
    Call,
    Effect,
    Error,
    MetadataAnswer,
    Outcome,
    ReadMetadata,
    Received,
    Result,
    Send,
    SendAdds,
    SetTimer,
    TimerFired,
    Unanswered,
    WriteMetadata,
)
from fencepost.ledger.roles.recoverer import Recoverer, RecovererSettings
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.metadata import LedgerMetadata, closed, marked_in_recovery
from fencepost.ledger.rules.protections import ALL, Protections

KEY = master_key(b"p")
LACK, UNKNOWN = Code.NO_ENTRY, Code.UNKNOWN_LEDGER_STATE


def body(entry_id: int, lac: int = -1) -> bytes:
    """Each entry has four bytes of data."""
    return DIGESTS.entry_body(Entry(1, entry_id, lac, 4 * (entry_id + 1), b"data"))


def recovering(*ensembles: tuple[int, str]) -> LedgerMetadata:
    return marked_in_recovery(ledger(*ensembles))


class Story:
    """A recoverer of ledger 1 that begins at version 3. Its requests wait for the test to answer them: reads and adds
    by bookie and entry.
    """

    def __init__(
        self, metadata: LedgerMetadata = ledger((0, "abc")), protections: Protections = ALL, **settings: Any
    ) -> None:
        self.recoverer = Recoverer(1, RecovererSettings(b"p", **settings), protections)
        self.reads: dict[tuple[str, int], Send] = {}
        self.adds: dict[tuple[str, int], tuple[AddEntry, int]] = {}
        self.metadata_txn = 0
        self.happen(BookiesChanged(tuple("abcde")))
        assert self.happen(Call(7, "recover")) == [ReadMetadata(1, 1)]
        self.begin(metadata, 3)

    def begin(self, metadata: LedgerMetadata, version: int) -> None:
        marked = marked_in_recovery(metadata)
        assert self.metadata(Outcome.OK, version, metadata) == [WriteMetadata(self.metadata_txn, 1, marked, version)]
        assert self.metadata(Outcome.OK, version + 1) == []

    def happen(self, event: Any) -> list[Effect]:
        """Deliver an event. Returns the effects other than requests."""
        effects = self.recoverer.receive(event, 0)
        for effect in effects:
            if isinstance(effect, Send):
                assert isinstance(effect.request, ReadEntry)
                self.reads[effect.bookie, effect.request.entry_id] = effect
            elif isinstance(effect, SendAdds):
                for request in map(effect.adds.__getitem__, range(len(effect.adds))):
                    self.adds[effect.bookie, request.entry_id] = request, effect.attempt
            elif isinstance(effect, (ReadMetadata, WriteMetadata)):
                self.metadata_txn = effect.txn
        return [effect for effect in effects if not isinstance(effect, (Send, SendAdds))]

    def metadata(self, outcome: Outcome, version: int = -1, metadata: LedgerMetadata | None = None) -> list[Effect]:
        """The metadata service answers."""
        return self.happen(MetadataAnswer(self.metadata_txn, outcome, version, metadata))

    def read(self, bookies: str, entry_id: int, answer: Code | bytes | None) -> list[Effect]:
        """Bookies answer a read with a code or an entry. None: they do not answer."""
        effects: list[Effect] = []
        for bookie in bookies:
            send = self.reads.pop((bookie, entry_id))
            if answer is None:
                effects += self.happen(Unanswered(send.txn, bookie))
            else:
                code, found = (Code.OK, answer) if isinstance(answer, bytes) else (answer, None)
                effects += self.happen(Received(send.txn, bookie, ReadEntryResponse(1, entry_id, code, body=found)))
        return effects

    def fence(self, bookies: str, answer: Code | bytes | None = LACK) -> list[Effect]:
        """Bookies answer the fencing read: with their last entry, that there is none, or not at all."""
        return self.read(bookies, -1, answer)

    def write(self, bookies: str, entry_id: int, code: Code | None = Code.OK) -> list[Effect]:
        """Bookies answer a write-back."""
        effects: list[Effect] = []
        for bookie in bookies:
            _, attempt = self.adds.pop((bookie, entry_id))
            effects += self.happen(AddsAnswered(bookie, (entry_id,), code, attempt))
        return effects

    def reading(self) -> str:
        return " ".join(sorted(f"{bookie}{entry_id}" for bookie, entry_id in self.reads))

    def writing(self) -> str:
        return " ".join(sorted(f"{bookie}{entry_id}" for bookie, entry_id in self.adds))

    def closes(self, last_entry: int, *ensembles: tuple[int, str], version: int = 4) -> list[Effect]:
        """The effects of a recoverer that closes the ledger."""
        end = closed(ledger(*ensembles), last_entry, 4 * (last_entry + 1))
        return [WriteMetadata(self.metadata_txn, 1, end, version)]


# -- how it begins ----------------------------------------------------------------------------------------------------


def test_a_closed_ledger_is_opened_without_recovery() -> None:
    recoverer, end = Recoverer(1, RecovererSettings(b"p")), closed(ledger((0, "abc")), 5, 24)
    recoverer.receive(Call(7, "recover"), 0)
    assert recoverer.receive(MetadataAnswer(1, Outcome.OK, 3, end), 0) == [Result(7, end)]


def test_no_ledger() -> None:
    recoverer = Recoverer(1, RecovererSettings(b"p"))
    recoverer.receive(Call(7, "recover"), 0)
    assert recoverer.receive(MetadataAnswer(1, Outcome.NO_LEDGER), 0) == [Result(7, error=Error.NO_LEDGER)]


def test_another_password() -> None:
    recoverer = Recoverer(1, RecovererSettings(b"q"))
    recoverer.receive(Call(7, "recover"), 0)
    assert recoverer.receive(MetadataAnswer(1, Outcome.OK, 3, ledger((0, "abc"))), 0) == [
        Result(7, error=Error.UNAUTHORIZED)
    ]


def test_a_ledger_in_recovery_is_marked_once_more() -> None:
    """`Story` sees to it that the metadata are written, whatever they were: what counts is the new version."""
    assert Story(recovering((0, "abc"))).recoverer.version == 4


def test_marking_goes_on_after_a_conflict_and_after_a_lost_answer() -> None:
    recoverer = Recoverer(1, RecovererSettings(b"p"))
    recoverer.receive(Call(7, "recover"), 0)
    before, marked = ledger((0, "abc")), recovering((0, "abc"))
    assert recoverer.receive(MetadataAnswer(1, Outcome.OK, 3, before), 0) == [WriteMetadata(2, 1, marked, 3)]
    assert recoverer.receive(MetadataAnswer(2, Outcome.BAD_VERSION), 0) == [ReadMetadata(3, 1)]
    assert recoverer.receive(MetadataAnswer(3, Outcome.OK, 4, marked), 0) == [WriteMetadata(4, 1, marked, 4)]
    (timer,) = recoverer.receive(MetadataAnswer(4, Outcome.UNKNOWN), 0)
    assert isinstance(timer, SetTimer)
    assert recoverer.receive(TimerFired(timer.key), 0) == [ReadMetadata(5, 1)]
    assert recoverer.receive(MetadataAnswer(5, Outcome.OK, 5, marked), 0) == [WriteMetadata(6, 1, marked, 5)]


def test_every_bookie_of_the_last_ensemble_is_fenced() -> None:
    story = Story(ledger((0, "abc"), (5, "abd")))
    assert story.reading() == "a-1 b-1 d-1"
    request = story.reads["d", -1].request
    assert request == ReadEntry(1, -1, fence=True, master_key=KEY)


def test_reading_begins_when_every_ack_quorum_has_a_fenced_bookie() -> None:
    story = Story(in_flight_limit=1)
    story.fence("a")
    assert story.reading() == "b-1 c-1"
    story.fence("c")
    assert story.reading() == "a0 b-1 b0 c0"
    assert story.fence("b", body(3, 2)) == [], "too late to matter"


def test_fencing_that_can_not_be_complete() -> None:
    story = Story()
    assert story.fence("a", UNKNOWN) == []
    assert story.fence("b", None) == [Result(7, error=Error.RECOVERY_FAILED)]
    assert story.fence("c") == []
    assert story.happen(Call(8, "recover")) == [ReadMetadata(3, 1)], "it can be called again"


def test_a_wrong_key() -> None:
    assert Story().fence("a", Code.UNAUTHORIZED) == [Result(7, error=Error.UNAUTHORIZED)]


# -- where it reads ---------------------------------------------------------------------------------------------------


def test_it_reads_on_from_the_highest_lac() -> None:
    story = Story(in_flight_limit=2)
    story.fence("a", body(5, 3))
    story.fence("b", body(6, 4))
    assert story.reading() == "a5 a6 b5 b6 c-1 c5 c6"
    assert story.reads["a", 5].request == ReadEntry(1, 5, fence=True, master_key=KEY)


def test_it_does_not_read_before_the_last_fragment() -> None:
    story = Story(ledger((0, "abc"), (5, "abd")), in_flight_limit=1)
    story.fence("ab")
    assert story.reading() == "a5 b5 d-1 d5"


def test_without_that_protection_it_does() -> None:
    story = Story(ledger((0, "abc"), (5, "abd")), Protections(recovery_starts_at_fragment=False), in_flight_limit=1)
    story.fence("ab")
    assert story.reading() == "a0 b0 d-1 d0"
    story.read("a", 0, body(0))
    story.write("a", 0, None)
    assert story.recoverer.status.value == "idle", "a fragment cannot begin before the last one"


def test_a_damaged_last_entry_tells_no_lac() -> None:
    story = Story(in_flight_limit=1)
    story.fence("ab", body(5, 3)[:-1] + b"?")
    assert story.reading() == "a0 b0 c-1 c0"


# -- reading and writing back -----------------------------------------------------------------------------------------


def begin(protections: Protections = ALL, **settings: Any) -> Story:
    story = Story(protections=protections, **settings)
    story.fence("abc")
    return story


def test_an_empty_ledger() -> None:
    story = begin()
    story.read("a", 0, LACK)
    assert story.read("b", 0, LACK) == story.closes(-1, (0, "abc"))
    assert story.read("c", 0, Code.UNAUTHORIZED) == [], "too late to matter"
    assert story.metadata(Outcome.OK, 5) == [Result(7, closed(ledger((0, "abc")), -1, 0))]


def test_one_copy_is_written_back_while_the_next_is_read() -> None:
    story = begin(in_flight_limit=1)
    story.read("b", 0, body(0))
    assert story.writing() == "a0 b0 c0" and story.reading() == "a0 a1 b1 c0 c1"
    request = story.adds["a", 0][0]
    assert request == AddEntry(1, 0, -1, body(0), KEY, recovery=True)
    story.read("a", 1, LACK)
    assert story.read("c", 1, LACK) == [], "the end is known, but the entry is not written back"
    assert story.write("b", 0) == []
    assert story.write("c", 0) == story.closes(0, (0, "abc"))


def test_what_is_written_back_carries_the_lac_that_recovery_began_at() -> None:
    story = begin()
    story.read("a", 0, body(0))
    story.write("ab", 0)
    story.read("a", 1, body(1, 0))
    request = story.adds["a", 1][0]
    assert isinstance(request, AddEntry) and (request.lac, request.body) == (-1, body(1, -1))
    careless = begin(Protections(recovery_freezes_lac=False))
    careless.read("a", 0, body(0))
    careless.write("ab", 0)
    careless.read("a", 1, body(1, 0))
    request = careless.adds["a", 1][0]
    assert isinstance(request, AddEntry) and (request.lac, request.body) == (0, body(1, 0))


def test_reads_are_decided_in_order_whatever_order_answers_come_in() -> None:
    story = begin(in_flight_limit=3)
    assert story.reading() == "a0 a1 a2 b0 b1 b2 c0 c1 c2"
    story.read("a", 1, body(1))
    story.read("ab", 2, LACK)
    assert story.writing() == ""
    story.read("c", 0, body(0))
    assert story.writing() == "a0 a1 b0 b1 c0 c1"
    story.write("ab", 1)
    assert story.write("ab", 0) == story.closes(1, (0, "abc"))


def test_what_is_found_after_a_gap_is_not_written_back() -> None:
    story = begin(in_flight_limit=2)
    story.read("a", 1, body(1))
    story.read("a", 0, LACK)
    assert story.read("b", 0, LACK) == story.closes(-1, (0, "abc"))
    assert story.writing() == ""


@pytest.mark.parametrize(
    "other",
    [None, UNKNOWN, Code.IO_ERROR, body(0)[:-1] + b"?", body(1)],
    ids=["no answer", "limbo", "cannot be read", "damaged", "another entry"],
)
def test_one_who_lacks_it_and_two_who_can_not_say(other: Code | bytes | None) -> None:
    story = begin()
    story.read("a", 0, LACK)
    assert story.read("b", 0, other) == []
    assert story.read("c", 0, other) == [Result(7, error=Error.DATA_UNKNOWN)]
    assert story.happen(Call(8, "recover")) == [ReadMetadata(3, 1)]


def test_two_who_lack_it_and_one_who_can_not_say_are_an_end() -> None:
    story = begin()
    story.read("a", 0, LACK)
    story.read("b", 0, None)
    assert story.read("c", 0, Code.NO_LEDGER) == story.closes(-1, (0, "abc"))


def test_hasty_negatives() -> None:
    story = begin(Protections(negatives_cover_quorum=False))
    assert story.read("a", 0, LACK) == story.closes(-1, (0, "abc"))


def test_closing_before_all_is_written_back() -> None:
    story = begin(Protections(write_back_before_close=False))
    story.read("a", 0, body(0))
    story.read("a", 1, LACK)
    assert story.read("b", 1, LACK) == story.closes(0, (0, "abc"))


def test_the_length_is_read_if_no_bookie_has_told_of_it() -> None:
    story = Story(ledger((0, "abd"), (2, "abc")), in_flight_limit=1)
    story.fence("abc")
    story.read("a", 2, LACK)
    assert story.read("b", 2, LACK) == []
    assert story.reads["d", 1].request == ReadEntry(1, 1), "of the last entry before, where that is"
    story.read("a", 1, None)
    assert story.read("d", 1, body(1)) == story.closes(1, (0, "abd"), (2, "abc"))


def test_the_length_can_not_be_read() -> None:
    story = Story(ledger((0, "abd"), (2, "abc")), in_flight_limit=1)
    story.fence("abc")
    story.read("ab", 2, LACK)
    story.read("ab", 1, None)
    assert story.read("d", 1, LACK) == [Result(7, error=Error.DATA_UNKNOWN)]


# -- bookies that fail ------------------------------------------------------------------------------------------------


def test_a_bookie_that_fails_is_replaced_and_nobody_is_told_before_the_end() -> None:
    story = begin(in_flight_limit=1)
    story.read("a", 0, body(0))
    story.write("a", 0)
    story.write("c", 0)
    story.read("a", 1, body(1))
    assert story.write("b", 1, None) == []
    assert story.writing() == "a1 b0 c1 d1"
    assert story.reading().endswith("a2 b0 b1 b2 c0 c1 c2"), "it reads on from the bookies that it began with"
    assert story.write("b", 0) == [], "what a bookie answers that was replaced means nothing"
    story.write("d", 1)
    story.write("c", 1)
    story.read("b", 2, LACK)
    assert story.read("c", 2, LACK) == story.closes(1, (0, "abc"), (1, "adc"))


def test_reads_that_move_on() -> None:
    story = begin(Protections(recovery_reads_stay=False), in_flight_limit=1)
    story.read("a", 0, body(0))
    story.write("b", 0, None)
    story.read("a", 1, body(1))
    assert "d2" in story.reading() and "b2" not in story.reading()


def test_fragments_that_are_told_at_once() -> None:
    story = begin(Protections(recovery_keeps_fragments=False), in_flight_limit=1)
    story.read("a", 0, body(0))
    assert story.write("b", 0, None) == [WriteMetadata(3, 1, recovering((0, "adc")), 4)]
    assert story.write("ac", 0) == []
    assert story.metadata(Outcome.OK, 5) == []
    assert story.writing() == "d0"
    story.read("a", 1, LACK)
    assert story.read("b", 1, LACK) == story.closes(0, (0, "adc"), version=5)


def tell_fragments() -> Story:
    story = begin(Protections(recovery_keeps_fragments=False), in_flight_limit=1)
    story.read("a", 0, body(0))
    story.write("b", 0, None)
    return story


def test_fragments_whose_telling_was_lost_are_told_again() -> None:
    story = tell_fragments()
    story.read("a", 1, LACK)
    assert story.read("b", 1, LACK) == [], "nothing is closed meanwhile"
    assert story.metadata(Outcome.BAD_VERSION) == [ReadMetadata(4, 1)]
    assert story.metadata(Outcome.OK, 4, recovering((0, "abc"))) == [WriteMetadata(5, 1, recovering((0, "adc")), 4)]
    assert story.write("a", 0) == []
    assert story.write("c", 0) == [], "the ensemble is still being changed"
    assert story.metadata(Outcome.OK, 5) == story.closes(0, (0, "adc"), version=5)


def test_a_bookie_that_fails_while_fragments_are_told_is_replaced_after_it() -> None:
    story = tell_fragments()
    assert story.write("c", 0, None) == []
    assert story.metadata(Outcome.OK, 5) == [WriteMetadata(4, 1, recovering((0, "ade")), 5)]


def test_fragments_can_not_be_told_when_another_recovery_has_begun() -> None:
    story = tell_fragments()
    story.metadata(Outcome.BAD_VERSION)
    (timer,) = story.metadata(Outcome.OK, 5, recovering((0, "abc")))
    assert isinstance(timer, SetTimer) and timer.key == ("restart", 1)


def test_a_bookie_that_refuses_the_key_of_a_write_back() -> None:
    story = begin()
    story.read("a", 0, body(0))
    assert story.write("b", 0, Code.UNAUTHORIZED) == [Result(7, error=Error.UNAUTHORIZED)]


def test_not_enough_bookies() -> None:
    story = begin()
    story.happen(BookiesChanged(tuple("abc")))
    story.read("a", 0, body(0))
    assert story.write("b", 0, Code.IO_ERROR) == [], "the others are enough"
    assert story.write("c", 0, Code.IO_ERROR) == [Result(7, error=Error.NOT_ENOUGH_BOOKIES)]
    assert story.write("a", 0) == []


def test_a_bookie_that_works_again_counts_again() -> None:
    story = begin()
    story.happen(BookiesChanged(tuple("abc")))
    story.read("a", 0, body(0))
    assert story.write("b", 0, Code.IO_ERROR) == []
    story.read("a", 1, body(1))
    assert story.write("b", 1) == [], "and is sent the other one anew"
    assert story.write("c", 0, Code.IO_ERROR) == [], "which it may confirm now"
    assert story.recoverer.adds.may_go_on()
    story.write("a", 0)
    story.write("b", 0)
    assert story.recoverer.adds.confirmed == 0


# -- somebody else was faster -----------------------------------------------------------------------------------------


def finish() -> Story:
    story = begin(restart_delay=10, restart_jitter=5)
    story.read("a", 0, LACK)
    story.read("b", 0, LACK)
    return story


def test_a_ledger_that_another_recovery_has_closed() -> None:
    story, end = finish(), closed(ledger((0, "abd")), 9, 40)
    assert story.metadata(Outcome.BAD_VERSION) == [ReadMetadata(4, 1)]
    assert story.metadata(Outcome.OK, 6, end) == [Result(7, end)]


def test_a_ledger_that_another_recovery_has_marked_is_recovered_anew_after_a_while() -> None:
    story = finish()
    story.metadata(Outcome.BAD_VERSION)
    assert story.metadata(Outcome.OK, 5, recovering((0, "abc"))) == [SetTimer(("restart", 1), 10, 5)]
    assert story.happen(TimerFired(("restart", 1))) == [ReadMetadata(5, 1)]
    story.begin(recovering((0, "abc")), 5)
    story.fence("abc")
    story.read("a", 0, LACK)
    assert story.read("b", 0, LACK) == story.closes(-1, (0, "abc"), version=6)
    story.metadata(Outcome.BAD_VERSION)
    assert story.metadata(Outcome.OK, 7, recovering((0, "abc"))) == [SetTimer(("restart", 2), 20, 5)]
    story.happen(TimerFired(("restart", 2)))
    story.metadata(Outcome.OK, 8, closed(ledger((0, "abc")), -1, 0))
    story.happen(Call(8, "recover"))
    story.begin(recovering((0, "abc")), 9)
    story.fence("abc")
    story.read("ab", 0, LACK)
    story.metadata(Outcome.BAD_VERSION)
    assert story.metadata(Outcome.OK, 11, recovering((0, "abc"))) == [SetTimer(("restart", 1), 10, 5)], (
        "a call begins afresh"
    )


def test_answers_to_the_adds_of_an_attempt_before_mean_nothing() -> None:
    story = begin()
    story.read("a", 0, body(0))
    _, before = story.adds["a", 0]
    assert story.write("b", 0, Code.FENCED) == [Result(7, error=Error.RECOVERY_FAILED)]
    story.happen(Call(7, "recover"))
    story.begin(recovering((0, "abc")), 5)
    story.fence("abc")
    story.read("a", 0, body(0))
    story.write("c", 0)
    assert story.happen(AddsAnswered("a", (0,), Code.OK, before)) == []
    assert story.happen(AddsAnswered("a", (0,), None, before)) == []
    assert story.recoverer.adds.confirmed == -1 and not story.recoverer.adds.failed
    story.write("a", 0)
    assert story.recoverer.adds.confirmed == 0


def test_a_close_whose_answer_was_lost() -> None:
    story = finish()
    (timer,) = story.metadata(Outcome.UNKNOWN)
    assert isinstance(timer, SetTimer)
    assert story.happen(TimerFired(timer.key)) == [ReadMetadata(4, 1)]
    assert story.metadata(Outcome.OK, 4, recovering((0, "abc"))) == story.closes(-1, (0, "abc")), "it was not done"
    (timer,) = story.metadata(Outcome.UNKNOWN)
    assert isinstance(timer, SetTimer)
    story.happen(TimerFired(timer.key))
    end = closed(ledger((0, "abc")), -1, 0)
    assert story.metadata(Outcome.OK, 5, end) == [Result(7, end)]


def test_unconditional_updates() -> None:
    story = begin(Protections(conditional_updates=False))
    story.read("ab", 0, LACK)
    story.metadata(Outcome.BAD_VERSION)
    assert story.metadata(Outcome.OK, 9, recovering((0, "abc"))) == story.closes(-1, (0, "abc"), version=9)


def test_a_ledger_that_is_deleted_meanwhile() -> None:
    assert finish().metadata(Outcome.NO_LEDGER) == [Result(7, error=Error.NO_LEDGER)]


def test_calls_while_it_is_under_way_have_the_same_result() -> None:
    story = finish()
    assert story.happen(Call(8, "recover")) == []
    assert story.happen(Call(9, "dance")) == [Result(9, error=Error.BAD_CALL)]
    end = closed(ledger((0, "abc")), -1, 0)
    assert story.metadata(Outcome.OK, 5) == [Result(7, end), Result(8, end)]
