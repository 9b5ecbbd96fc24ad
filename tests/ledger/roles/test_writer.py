"""The writer as stories: its events, its requests, its writes of metadata, and its results."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.ledger.entries import Digests, master_key
from fencepost.ledger.messages import AddEntry, ForceLedger, ForceLedgerResponse, WriteLac, WriteLacResponse
from fencepost.ledger.roles.interface import (
    AddsAnswered,
    Append,
    BookiesChanged,
    Call,
    Confirmed,
    CreateMetadata,
    Disconnected,
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
from fencepost.ledger.roles.writer import Writer, WriterSettings
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import Fragment, is_in_write_set
from fencepost.ledger.rules.metadata import DigestType, LedgerMetadata, closed, marked_in_recovery

RESPONSES: dict[Any, type[WriteLacResponse | ForceLedgerResponse]] = {
    WriteLac: WriteLacResponse,
    ForceLedger: ForceLedgerResponse,
}


def confirmed(entry_id: int) -> Confirmed:
    """The notice that all entries up to this one are confirmed. Each has four bytes."""
    return Confirmed(entry_id, 4 * (entry_id + 1))


def ledger(*ensembles: tuple[int, str]) -> LedgerMetadata:
    fragments = tuple(Fragment(first, tuple(bookies)) for first, bookies in ensembles)
    return LedgerMetadata(3, 3, 2, fragments, password=b"p", creation_token=77)


class Story:
    """A writer of ledger 1 with the ensemble abc. Its requests wait for the test to answer them. ``sent`` has the last
    request of each bookie and entry.
    """

    def __init__(self, bookies: str = "abcde", create: bool = True, **settings: Any) -> None:
        self.writer = Writer(1, WriterSettings(password=b"p", creation_token=77, **settings))
        self.sent: dict[tuple[str, Any], Any] = {}
        self.metadata_txn = 0
        self.token = 0
        self.happen(BookiesChanged(tuple(bookies)))
        if create:
            assert self.call("create") == [CreateMetadata(1, 1, ledger((0, "abc")))]
            assert self.metadata(Outcome.OK, 0) == [Result(1, 1)]

    def happen(self, event: Any) -> list[Effect]:
        """Deliver an event. Returns the effects other than requests."""
        effects = self.writer.receive(event, 0)
        for effect in effects:
            if isinstance(effect, Send):
                self.sent[effect.bookie, type(effect.request)] = effect
            elif isinstance(effect, SendAdds):
                for request in map(effect.adds.__getitem__, range(len(effect.adds))):
                    if is_in_write_set(effect.place, request.entry_id, effect.ensemble_size, effect.write_quorum):
                        self.sent[effect.bookie, request.entry_id] = request
            elif isinstance(effect, (CreateMetadata, ReadMetadata, WriteMetadata)):
                self.metadata_txn = effect.txn
        return [effect for effect in effects if not isinstance(effect, (Send, SendAdds))]

    def call(self, operation: str, *arguments: Any) -> list[Effect]:
        self.token += 1
        return self.happen(Call(self.token, operation, arguments))

    def append(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.append_one() == []

    def append_one(self) -> list[Effect]:
        self.token += 1
        return self.happen(Append(self.token, (b"data",)))

    def metadata(self, outcome: Outcome, version: int = -1, metadata: LedgerMetadata | None = None) -> list[Effect]:
        """The metadata service answers."""
        return self.happen(MetadataAnswer(self.metadata_txn, outcome, version, metadata))

    def answer(self, bookies: str, what: Any, code: Code | None = Code.OK) -> list[Effect]:
        """Bookies answer their last request. None: they do not answer."""
        effects: list[Effect] = []
        for bookie in bookies:
            send = self.sent.pop((bookie, what))
            if isinstance(send, AddEntry):
                effects += self.happen(AddsAnswered(bookie, (what,), code))
            else:
                effects += self.happen(
                    Unanswered(send.txn, bookie)
                    if code is None
                    else Received(send.txn, bookie, RESPONSES[what](1, code))
                )
        return effects

    def asked(self) -> list[str]:
        """The unanswered requests, with their bookies."""
        return sorted(f"{bookie}{what}" for bookie, what in self.sent)


# -- create -----------------------------------------------------------------------------------------------------------


def test_a_ledger_is_created_on_the_first_bookies() -> None:
    story = Story()
    assert story.writer.adds.ensemble == ("a", "b", "c")


def test_too_few_bookies_to_create_a_ledger() -> None:
    story = Story("ab", create=False)
    assert story.call("create") == [Result(1, error=Error.NOT_ENOUGH_BOOKIES)]
    story.happen(BookiesChanged(("a", "b", "c")))
    assert story.call("create") == [CreateMetadata(1, 1, ledger((0, "abc")))], "it can be tried again"


def test_a_ledger_that_exists_is_not_taken_over_and_not_closed() -> None:
    story = Story(create=False)
    story.call("create")
    assert story.metadata(Outcome.EXISTS) == [ReadMetadata(2, 1)]
    others = ledger((0, "abc")).replace(creation_token=78)
    assert story.metadata(Outcome.OK, 0, others) == [Result(1, error=Error.LEDGER_EXISTS)]
    assert story.call("close") == [Result(2, error=Error.LEDGER_EXISTS)]
    assert story.append_one() == [Result(3, error=Error.LEDGER_EXISTS)]


def test_a_creation_whose_answer_was_lost_is_recognised_by_its_token() -> None:
    story = Story(create=False)
    story.call("create")
    (timer,) = story.metadata(Outcome.UNKNOWN)
    assert isinstance(timer, SetTimer)
    assert story.happen(TimerFired(timer.key)) == [ReadMetadata(2, 1)]
    assert story.metadata(Outcome.OK, 0, ledger((0, "abd"))) == [Result(1, 1)]
    assert story.writer.adds.ensemble == ("a", "b", "d"), "that of the metadata"


def test_a_creation_that_was_lost_is_tried_again() -> None:
    story = Story(create=False)
    story.call("create")
    (timer,) = story.metadata(Outcome.UNKNOWN)
    story.happen(TimerFired(timer.key))  # type: ignore[attr-defined]
    assert story.metadata(Outcome.NO_LEDGER) == [CreateMetadata(3, 1, ledger((0, "abc")))]


def test_quorums_that_no_ledger_can_have() -> None:
    with pytest.raises(ValueError, match="ensemble size 2, write quorum 3 and ack quorum 2"):
        Writer(1, WriterSettings(ensemble_size=2))


# -- append -----------------------------------------------------------------------------------------------------------


def test_an_entry_goes_to_its_write_set_and_is_confirmed_by_its_ack_quorum() -> None:
    story = Story()
    story.append()
    assert story.asked() == ["a0", "b0", "c0"]
    request = story.sent["a", 0]
    assert isinstance(request, AddEntry) and request.master_key == master_key(b"p")
    entry = Digests(DigestType.CRC32, b"p").open_entry(request.body, 1, 0)
    assert entry is not None and (entry.lac, entry.length, entry.data) == (-1, 4, b"data")
    assert story.answer("a", 0) == []
    assert story.answer("c", 0) == [confirmed(0)]
    assert story.answer("b", 0) == [], "one more does not matter"


def test_entries_are_confirmed_in_order_and_carry_the_lac() -> None:
    story = Story()
    story.append(3)
    assert story.answer("ab", 2) == [] and story.answer("ab", 1) == []
    assert story.answer("ab", 0) == [confirmed(2)]
    story.append()
    request = story.sent["a", 3]
    assert isinstance(request, AddEntry) and (request.entry_id, request.lac) == (3, 2)


def test_entries_are_striped_over_a_larger_ensemble() -> None:
    story = Story(write_quorum=2, create=False)
    story.call("create")
    story.metadata(Outcome.OK, 0)
    story.append(3)
    assert story.asked() == ["a0", "a2", "b0", "b1", "c1", "c2"]


def test_no_more_than_the_limit_is_in_flight() -> None:
    story = Story(in_flight_limit=2)
    story.append(4)
    assert story.asked() == ["a0", "a1", "b0", "b1", "c0", "c1"]
    story.answer("ab", 1)
    assert ("a", 2) not in story.sent
    story.answer("ab", 0)
    assert ("a", 2) in story.sent and ("a", 3) in story.sent


def test_fencing_ends_the_writer() -> None:
    story = Story(in_flight_limit=2)
    story.append(3)
    assert story.answer("a", 0, Code.FENCED) == [Result(token, error=Error.LEDGER_FENCED) for token in (2, 3, 4)]
    assert story.answer("bc", 0) == [], "what comes late counts no more"
    assert story.append_one() == [Result(5, error=Error.LEDGER_FENCED)]
    assert story.call("close") == [Result(6, error=Error.LEDGER_FENCED)]


def test_a_wrong_key_ends_the_writer() -> None:
    story = Story()
    story.append()
    assert story.answer("b", 0, Code.UNAUTHORIZED) == [Result(2, error=Error.UNAUTHORIZED)]


# -- bookies that fail ------------------------------------------------------------------------------------------------


def test_a_failed_bookie_is_replaced_and_the_new_one_is_sent_what_is_not_confirmed() -> None:
    story = Story()
    story.append(2)
    story.answer("ab", 0)
    assert story.answer("b", 1, Code.IO_ERROR) == [WriteMetadata(2, 1, ledger((0, "abc"), (1, "adc")), 0)]
    assert ("d", 1) not in story.sent, "not before the metadata say so"
    assert story.answer("ac", 1) == [], "nor is anything confirmed"
    assert story.metadata(Outcome.OK, 1) == [confirmed(1)]
    assert ("d", 1) in story.sent and ("d", 0) not in story.sent
    assert story.writer.view.version == 1


def test_a_bookie_that_leaves_no_longer_counts() -> None:
    story = Story()
    story.append(2)
    story.answer("b", 0)
    assert story.answer("b", 1, None) == [WriteMetadata(2, 1, ledger((0, "adc")), 0)], (
        "nothing is confirmed: no new fragment"
    )
    assert story.answer("a", 0) == []
    assert story.metadata(Outcome.OK, 1) == [], "a and b had confirmed the first entry, but b left"
    assert story.answer("d", 0) == [confirmed(0)]
    assert story.answer("c", 1) == [] and story.answer("d", 1) == [confirmed(1)]


def test_bookies_that_fail_during_a_change_are_replaced_after_it() -> None:
    story = Story()
    story.append(2)
    story.answer("b", 0, None)
    assert story.answer("c", 0, None) == [] and story.answer("b", 1, None) == []
    assert story.answer("a", 0) == []
    assert story.metadata(Outcome.OK, 1) == [WriteMetadata(3, 1, ledger((0, "ade")), 1)]
    assert story.answer("d", 0) == [], "still changing"
    assert story.metadata(Outcome.OK, 2) == [confirmed(0)]
    assert story.asked() == ["a1", "c1", "d1", "e0", "e1"]
    assert story.answer("c", 1, None) == [], "that it fails as well matters no more"


def test_two_bookies_fail_at_once() -> None:
    story = Story()
    story.append()
    story.writer.changing_ensemble = True  # as during another change
    story.answer("bc", 0, None)
    story.writer.changing_ensemble = False
    story.append()
    assert story.answer("b", 1, None) == [WriteMetadata(2, 1, ledger((0, "ade")), 0)]


def test_a_bookie_that_fails_an_entry_that_is_confirmed_is_replaced_too() -> None:
    story = Story()
    story.append()
    story.answer("ab", 0)
    assert story.answer("c", 0, None) == [WriteMetadata(2, 1, ledger((0, "abc"), (1, "abd")), 0)]
    story.metadata(Outcome.OK, 1)
    assert story.asked() == []


def test_a_bookie_that_can_not_be_replaced_stays_while_the_others_are_enough() -> None:
    story = Story("abc")
    story.append(2)
    assert story.answer("b", 0, None) == []
    assert story.answer("ac", 0) == [confirmed(0)]
    assert story.happen(BookiesChanged(("a", "c", "d"))) == [WriteMetadata(2, 1, ledger((0, "abc"), (1, "adc")), 0)]
    story.metadata(Outcome.OK, 1)
    assert story.answer("d", 1) == [] and story.answer("a", 1) == [confirmed(1)]


def test_two_bookies_that_fail_one_long_after_the_other_and_come_back_end_no_writer() -> None:
    story = Story("abc")
    story.append()
    assert story.answer("b", 0, None) == []
    assert story.answer("ac", 0) == [confirmed(0)]
    story.append()
    story.answer("b", 1)
    assert story.writer.adds.failed == {}, "it has confirmed what it was sent after it failed"
    assert story.answer("c", 1, None) == []
    assert story.answer("a", 1) == [confirmed(1)]
    story.append()
    assert story.answer("cb", 2) == [confirmed(2)]
    assert story.asked() == ["a2"], "what is confirmed is sent to nobody anew"


def test_a_bookie_that_is_back_but_has_not_been_asked_since_is_waited_for() -> None:
    story = Story("abc")
    story.append()
    story.answer("b", 0, None)
    story.answer("ac", 0)
    story.append()
    assert story.answer("a", 1, None) == [], "b failed another entry, and may confirm this one"
    assert [*story.writer.adds.failed] == ["b", "a"]
    assert story.answer("cb", 1) == [confirmed(1)]
    assert [*story.writer.adds.failed] == ["a"]
    assert not story.writer.error


def test_a_bookie_that_works_again_is_sent_anew_what_is_not_confirmed() -> None:
    story = Story("abc")
    story.append(3)
    for entry_id in (0, 1, 2):
        story.answer("b", entry_id, None)
    story.answer("ac", 1)
    story.append()
    story.answer("c", 0)
    assert story.asked() == ["a0", "a2", "a3", "b3", "c2", "c3"]
    first = story.sent["a", 2]
    assert story.answer("b", 3) == []
    assert story.asked() == ["a0", "a2", "a3", "b0", "b2", "c2", "c3"], "1 is committed, if not yet confirmed"
    assert story.sent["b", 2] == first
    assert story.answer("a", 0, None) == [], "b may confirm that again"
    assert story.answer("b", 0) == [confirmed(1)]


def test_a_bookie_that_confirms_what_it_was_sent_before_it_failed_has_still_failed() -> None:
    story = Story("abc")
    story.append(3)
    story.answer("b", 2, Code.TOO_MANY_REQUESTS)
    story.answer("b", 1)
    assert [*story.writer.adds.failed] == ["b"] and story.asked() == ["a0", "a1", "a2", "b0", "c0", "c1", "c2"]
    assert story.answer("c", 2, None) == [Result(token, error=Error.NOT_ENOUGH_BOOKIES) for token in (2, 3, 4)]


def test_what_a_bookie_that_stays_away_has_missed_takes_no_more_room_than_what_is_in_flight() -> None:
    story = Story("abc")
    for entry_id in range(100):
        story.append()
        story.answer("b", entry_id, None)
        assert story.answer("ac", entry_id) == [confirmed(entry_id)]
    assert len(story.writer.adds.failed["b"].missed) <= 3


def test_as_many_as_possible_are_replaced() -> None:
    story = Story("abcd")
    story.append()
    assert story.answer("b", 0, None) == [WriteMetadata(2, 1, ledger((0, "adc")), 0)]
    story.answer("c", 0, None)
    assert story.metadata(Outcome.OK, 1) == [WriteMetadata(3, 1, ledger((0, "adb")), 1)], (
        "the one that failed first, if it must be"
    )
    story.happen(BookiesChanged(("a",)))
    story.metadata(Outcome.OK, 2)
    assert story.answer("b", 0, None) == []
    assert story.answer("ad", 0) == [confirmed(0)]


def test_not_enough_bookies_end_the_writer_but_it_may_still_close() -> None:
    story = Story("abc")
    story.append(2)
    story.answer("ab", 0)
    assert story.answer("b", 1, None) == []
    assert story.answer("c", 1, None) == [Result(3, error=Error.NOT_ENOUGH_BOOKIES)]
    assert story.append_one() == [Result(4, error=Error.NOT_ENOUGH_BOOKIES)]
    assert story.call("close") == [WriteMetadata(2, 1, closed(ledger((0, "abc")), 0, 4), 0)]
    assert story.answer("a", 1) == [], "that it was stored comes too late"
    assert story.metadata(Outcome.OK, 1) == [Result(5, 0)]


# -- metadata that somebody else has changed, or whose answer was lost
# --------------------------------------------------


def change_ensemble() -> Story:
    story = Story()
    story.append()
    assert story.answer("b", 0, None) == [WriteMetadata(2, 1, ledger((0, "adc")), 0)]
    story.answer("ac", 0)
    return story


def test_a_change_of_ensemble_whose_answer_was_lost_is_recognised() -> None:
    story = change_ensemble()
    (timer,) = story.metadata(Outcome.UNKNOWN)
    story.happen(TimerFired(timer.key))  # type: ignore[attr-defined]
    assert story.metadata(Outcome.OK, 1, ledger((0, "adc"))) == [confirmed(0)]
    assert ("d", 0) in story.sent
    assert story.happen(TimerFired(timer.key)) == [], "a timer that nobody waits for any more"  # type: ignore[attr-defined]


def test_a_change_that_was_made_holds_even_if_the_next_one_can_not_be_made() -> None:
    story = Story("abcd")
    story.append()
    story.answer("b", 0, None)
    (timer,) = story.metadata(Outcome.UNKNOWN)
    assert story.answer("c", 0, None) == []
    story.happen(BookiesChanged(("a", "d")))
    story.append()
    story.happen(TimerFired(timer.key))  # type: ignore[attr-defined]
    assert story.metadata(Outcome.OK, 1, ledger((0, "adc"))) == [], "there is nobody for c"
    assert story.writer.adds.ensemble == ("a", "d", "c")
    assert story.answer("a", 1) == [] and story.answer("b", 1) == [], (
        "b left the ensemble, whether it has the entry or not"
    )
    assert story.answer("a", 0) == [] and story.answer("d", 0) == [confirmed(0)]
    assert story.answer("d", 1) == [confirmed(1)]


def test_a_change_of_ensemble_that_was_lost_is_made_again() -> None:
    story = change_ensemble()
    (timer,) = story.metadata(Outcome.UNKNOWN)
    story.happen(TimerFired(timer.key))  # type: ignore[attr-defined]
    assert story.metadata(Outcome.OK, 0, ledger((0, "abc"))) == [WriteMetadata(4, 1, ledger((0, "adc")), 0)]
    assert story.metadata(Outcome.BAD_VERSION) == [ReadMetadata(5, 1)], "the first attempt was only late"
    assert story.metadata(Outcome.OK, 1, ledger((0, "adc"))) == [confirmed(0)]


def lost_change_that_nobody_is_left_for() -> Story:
    """The answer to a change of ensemble is lost, it has not been made when the metadata are read, and the new bookie
    is gone.
    """
    story = Story("abcd")
    story.append()
    assert story.answer("b", 0, None) == [WriteMetadata(2, 1, ledger((0, "adc")), 0)]
    story.answer("ac", 0)
    (timer,) = story.metadata(Outcome.UNKNOWN)
    story.happen(BookiesChanged(("a", "b", "c")))
    story.happen(TimerFired(timer.key))  # type: ignore[attr-defined]
    assert story.metadata(Outcome.OK, 0, ledger((0, "abc"))) == [WriteMetadata(4, 1, ledger((0, "abc")), 0)], (
        "or it may yet be made"
    )
    return story


def test_a_change_of_ensemble_that_was_lost_and_is_given_up_can_not_be_made_any_more() -> None:
    story = lost_change_that_nobody_is_left_for()
    assert story.metadata(Outcome.OK, 1) == [confirmed(0)]


def test_a_change_of_ensemble_that_was_late_holds_though_it_was_given_up() -> None:
    story = lost_change_that_nobody_is_left_for()
    assert story.metadata(Outcome.BAD_VERSION) == [ReadMetadata(5, 1)]
    assert story.metadata(Outcome.OK, 1, ledger((0, "adc"))) == [confirmed(0)]
    assert story.writer.adds.ensemble == ("a", "d", "c")


@pytest.mark.parametrize("taken", [marked_in_recovery(ledger((0, "abc"))), closed(ledger((0, "abc")), 0, 4)])
def test_a_writer_gives_up_a_ledger_that_is_recovered(taken: LedgerMetadata) -> None:
    story = change_ensemble()
    assert story.metadata(Outcome.BAD_VERSION) == [ReadMetadata(3, 1)]
    assert story.metadata(Outcome.OK, 1, taken) == [Result(2, error=Error.LEDGER_FENCED)]


def test_a_writer_gives_up_a_ledger_that_is_deleted() -> None:
    story = change_ensemble()
    assert story.metadata(Outcome.NO_LEDGER) == [Result(2, error=Error.NO_LEDGER)]


# -- close ------------------------------------------------------------------------------------------------------------


def test_close_waits_for_what_is_under_way_and_ends_at_the_lac() -> None:
    story = Story(in_flight_limit=1)
    story.append(2)
    assert story.call("close") == []
    assert story.append_one() == [Result(5, error=Error.LEDGER_CLOSED)]
    assert story.answer("ab", 0) == [confirmed(0)]
    end = closed(ledger((0, "abc")), 1, 8)
    assert story.answer("ab", 1) == [confirmed(1), WriteMetadata(2, 1, end, 0)]
    assert story.call("close") == []
    assert story.metadata(Outcome.OK, 1) == [Result(4, 1), Result(6, 1)]
    assert story.call("close") == [Result(7, 1)]


def test_a_close_fails_with_the_entries_that_it_waits_for_and_can_be_called_again() -> None:
    story = Story("abc")
    story.append()
    story.call("close")
    story.answer("b", 0, None)
    assert story.answer("c", 0, None) == [Result(token, error=Error.NOT_ENOUGH_BOOKIES) for token in (2, 3)]
    story.call("close")
    assert story.metadata(Outcome.OK, 1) == [Result(4, -1)]


def test_an_empty_ledger_is_closed() -> None:
    story = Story()
    assert story.call("close") == [WriteMetadata(2, 1, closed(ledger((0, "abc")), -1, 0), 0)]
    assert story.metadata(Outcome.OK, 1) == [Result(2, -1)]


@pytest.mark.parametrize(
    ("found", "result"),
    [
        (closed(ledger((0, "abc")), -1, 0), Result(2, -1)),
        (closed(ledger((0, "abc")), 3, 9), Result(2, error=Error.LEDGER_FENCED)),
        (marked_in_recovery(ledger((0, "abc"))), Result(2, error=Error.LEDGER_FENCED)),
        (ledger((0, "abc")), WriteMetadata(4, 1, closed(ledger((0, "abc")), -1, 0), 5)),
    ],
)
def test_a_close_whose_answer_was_lost(found: LedgerMetadata, result: Effect) -> None:
    story = Story()
    story.call("close")
    (timer,) = story.metadata(Outcome.UNKNOWN)
    story.happen(TimerFired(timer.key))  # type: ignore[attr-defined]
    assert story.metadata(Outcome.OK, 5, found) == [result]


# -- deferred sync and the LAC told by itself
# ---------------------------------------------------------------------------


def test_with_deferred_sync_the_lac_moves_when_every_bookie_was_forced() -> None:
    story = Story(deferred_sync=True)
    story.append(2)
    assert story.answer("ab", 0) == [confirmed(0)]
    assert story.writer.lac == -1
    assert story.call("force") == []
    story.answer("ab", 1)
    assert story.answer("ab", ForceLedger) == []
    assert story.answer("c", ForceLedger) == [Result(4, 0)], "the second entry came after the force"
    assert story.writer.lac == 0


def test_a_force_that_a_bookie_fails() -> None:
    story = Story(deferred_sync=True)
    story.append()
    story.answer("ab", 0)
    story.call("force")
    assert story.answer("b", ForceLedger, None) == [Result(3, error=Error.WRITE_FAILED)]
    story.sent.clear()
    assert story.call("force") == []
    assert story.answer("abc", ForceLedger) == [Result(4, 0)]
    assert story.call("force") == [Result(5, 0)], "nothing is left to force"


def test_with_deferred_sync_no_bookie_can_be_replaced() -> None:
    story = Story(deferred_sync=True)
    story.append()
    assert story.answer("b", 0, None) == [Result(2, error=Error.WRITE_FAILED)]


def test_with_deferred_sync_a_bookie_that_may_have_forgotten_ends_the_writer() -> None:
    story = Story(deferred_sync=True)
    assert story.happen(Disconnected("b")) == [], "nothing was sent"
    story.append()
    story.answer("ab", 0)
    story.call("force")
    story.answer("abc", ForceLedger)
    assert story.happen(Disconnected("b")) == [], "all is forced"
    story.append()
    assert story.happen(Disconnected("d")) == [], "it has nothing of this ledger"
    assert story.happen(Disconnected("b")) == [Result(4, error=Error.WRITE_FAILED)]
    assert story.call("close") == [WriteMetadata(2, 1, closed(ledger((0, "abc")), 0, 4), 0)]


def test_what_is_confirmed_is_durable_without_deferred_sync() -> None:
    story = Story()
    story.append()
    assert story.happen(Disconnected("b")) == []


def test_a_close_goes_on_when_a_force_has_failed() -> None:
    story = Story(deferred_sync=True)
    story.append()
    story.answer("ab", 0)
    story.call("force")
    assert story.call("close") == []
    assert story.answer("b", ForceLedger, None) == [Result(3, error=Error.WRITE_FAILED)]
    end = closed(ledger((0, "abc")), 0, 4)
    assert story.answer("abc", ForceLedger) == [WriteMetadata(2, 1, end, 0)], "it forces by itself"


def test_close_forces_what_was_confirmed() -> None:
    story = Story(deferred_sync=True)
    story.append()
    story.answer("ab", 0)
    assert story.call("close") == []
    end = closed(ledger((0, "abc")), 0, 4)
    assert story.answer("abc", ForceLedger) == [WriteMetadata(2, 1, end, 0)]


def test_a_force_that_a_slow_bookie_has_not_answered_is_done_when_the_ledger_is_closed() -> None:
    story = Story(deferred_sync=True)
    story.append()
    story.answer("ab", 0)
    story.call("force")
    slow = [story.sent[bookie, ForceLedger] for bookie in "abc"]
    story.call("force")
    assert story.answer("abc", ForceLedger) == [Result(4, 0)]
    assert story.call("close") == [WriteMetadata(2, 1, closed(ledger((0, "abc")), 0, 4), 0)]
    assert story.metadata(Outcome.OK, 1) == [Result(3, 0), Result(5, 0)]
    for each in slow:
        late = Received(each.txn, each.bookie, RESPONSES[ForceLedger](1, Code.OK))
        assert story.happen(late) == [], "nothing comes after the end"


def test_an_idle_writer_tells_its_lac() -> None:
    story = Story(explicit_lac_interval=1000)
    story.append()
    assert story.answer("ab", 0) == [SetTimer("send LAC", 1000, slack=125), confirmed(0)][::-1]
    story.happen(TimerFired("send LAC"))
    request = story.sent["b", WriteLac].request
    assert isinstance(request, WriteLac) and request.lac == 0
    assert Digests(DigestType.CRC32, b"p").open_lac(request.body, 1) == 0
    assert story.answer("ab", WriteLac) == []
    assert story.answer("c", WriteLac, None) == [], "no bookie is replaced for that"
    story.append(2)
    assert story.answer("ab", 1) == [confirmed(1), SetTimer("send LAC", 1000, slack=125)]
    assert story.answer("ab", 2) == [confirmed(2)], "one timer is enough"


def test_a_lac_that_an_entry_has_carried_is_not_told_by_itself() -> None:
    story = Story(explicit_lac_interval=1000)
    story.append()
    story.answer("ab", 0)
    story.append()
    story.happen(TimerFired("send LAC"))
    assert ("a", WriteLac) not in story.sent


def test_unknown_calls() -> None:
    assert Story().call("dance") == [Result(2, error=Error.BAD_CALL)]
    assert Story().call("create") == [Result(2, error=Error.BAD_CALL)]
    assert Story(create=False).append_one() == [Result(1, error=Error.BAD_CALL)]
