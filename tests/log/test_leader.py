"""The writer of a log, event by event."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fencepost.ledger.roles.interface import Effect, Event, Outcome, SetTimer, TimerFired
from fencepost.log.chain import Chain, Link, Position
from fencepost.log.roles.leader import (
    _RELEASE_AFTER,
    Abandon,
    Acknowledged,
    Append,
    ChainRead,
    ChainWritten,
    Close,
    CloseLedger,
    Closing,
    Confirmed,
    CreateLedger,
    DeleteLedger,
    Elected,
    Failed,
    Leader,
    LeaderSettings,
    Leads,
    LedgerClosed,
    LedgerCreated,
    NotElected,
    ReadChain,
    Reason,
    Refused,
    RollOver,
    Seal,
    SteppedDown,
    Waits,
    Write,
    WriteChain,
    WriteFailed,
)
from fencepost.log.rules import Failure, Limits, Status

ONE = Chain((Link(5, 1_000),))


class Told:
    """A leader, and the number of its last request, which its answers need."""

    def __init__(self, **settings: Any) -> None:
        self.leader = Leader(LeaderSettings(**settings))
        self.txn = 0
        self.now = 0

    def __call__(self, event: Event) -> list[Effect]:
        effects = self.leader.receive(event, self.now)
        self.txn = next((effect.txn for effect in reversed(effects) if hasattr(effect, "txn")), self.txn)
        return effects

    def answer(self, kind: Any, *given: Any) -> list[Effect]:
        return self(kind(self.txn, *given))

    def lead(self, chain: Chain = Chain(), ledger: int = 7) -> None:
        """Lead until a ledger is open."""
        self(Elected())
        self.answer(ChainRead, Outcome.OK, chain, 4)
        if chain.links:
            self.answer(LedgerClosed, Closing.CLOSED, 9)
        self.created(ledger)

    def created(self, ledger: int) -> list[Effect]:
        self.answer(LedgerCreated, ledger, 2_000)
        return self.answer(ChainWritten, Outcome.OK, 5)

    def due(self, effects: list[Effect]) -> list[Effect]:
        """Fire the timer among these effects. Returns what follows."""
        (timer,) = [effect for effect in effects if isinstance(effect, SetTimer)]
        self.now += timer.delay
        return self(TimerFired(timer.key))


def test_from_being_elected_to_writing() -> None:
    told = Told()
    assert told(Append([3, 4])) == [], "it waits"
    assert told(Elected()) == [ReadChain(1)]
    assert told(ChainRead(1, Outcome.OK, ONE, 4)) == [CloseLedger(2, 5, is_own=False)]
    assert told(LedgerClosed(2, Closing.CLOSED, 9)) == [CreateLedger(3)]
    chained = ONE.appended(7, 2_000)
    assert told(LedgerCreated(3, 7, 2_000)) == [WriteChain(4, chained, 4)]
    assert told(ChainWritten(4, Outcome.OK, 5)) == [Leads(chained), Write(7, 0, 2)]
    assert told(Append([1])) == [Write(7, 2, 1)]
    assert told(Confirmed(7, 0)) == [Acknowledged(0, 1, Position(7, 0))]
    assert told(Confirmed(7, 2)) == [Acknowledged(1, 2, Position(7, 1))]
    assert (told.leader.unacknowledged, told.leader.bytes) == (0, 0)


def test_an_empty_log_has_nothing_to_close() -> None:
    told = Told()
    told(Elected())
    assert told(ChainRead(1, Outcome.OK, Chain(), 0)) == [CreateLedger(2)]


def test_what_can_not_be_done_is_tried_again() -> None:
    told = Told()
    told(Elected())
    assert told.due(told.answer(ChainRead, Outcome.UNKNOWN)) == [ReadChain(3)]
    told.answer(ChainRead, Outcome.OK, ONE, 4)
    assert told.due(told.answer(LedgerClosed, Closing.FAILED)) == [CloseLedger(6, 5, is_own=False)]
    told.answer(LedgerClosed, Closing.CLOSED, 0)
    assert told.due(told.answer(LedgerCreated, None)) == [CreateLedger(9)]


def test_whoever_waits_for_a_ledger_says_so_now_and_then() -> None:
    told = Told(pause=10, reminder=25)
    told(Elected())
    told.answer(ChainRead, Outcome.OK, Chain(), 4)
    said = []
    for _ in range(6):
        effects = told.answer(LedgerCreated, None)
        said.append([effect.time for effect in effects if isinstance(effect, Waits)])
        told.due(effects)
    assert said == [[0], [], [], [30], [], []], "at once, and no sooner again than the reminder"
    told.created(7)
    told(WriteFailed(7, Failure.TROUBLE))
    assert Waits(0) in told.answer(LedgerClosed, Closing.FAILED), "the time is that since there was a ledger"


def test_whoever_has_no_ledger_for_too_long_fails_what_waits_and_begins_again() -> None:
    told = Told(pause=10, patience=20)
    told.lead()
    told(Append([1]))
    told(Confirmed(7, 0))
    told(RollOver())
    told(Append([1, 1]))
    told.answer(LedgerClosed, Closing.CLOSED, 0)
    for _ in range(2):
        told.due(told.answer(LedgerCreated, None))
    failed, stepped_down, timer = told.answer(LedgerCreated, None)
    assert failed == Failed(1, 2, Reason.NO_LEDGER, is_known=True), "they are in no ledger"
    assert stepped_down == SteppedDown(Reason.NO_LEDGER) and told.leader.ended is None
    assert [type(effect) for effect in told.due([timer])] == [ReadChain]
    told.answer(ChainRead, Outcome.OK, ONE, 4)
    told.answer(LedgerClosed, Closing.CLOSED, 0)
    assert told.due(told.answer(LedgerCreated, None)) == [CreateLedger(told.txn)], "it has patience again"


def test_a_last_ledger_that_was_deleted_needs_no_closing() -> None:
    told = Told()
    told(Elected())
    told.answer(ChainRead, Outcome.OK, ONE, 4)
    assert told.answer(LedgerClosed, Closing.GONE) == [CreateLedger(3)]


@pytest.mark.parametrize("outcome", [Outcome.BAD_VERSION, Outcome.UNKNOWN])
def test_an_update_that_is_refused_or_not_answered_is_looked_up(outcome: Outcome) -> None:
    told = Told()
    told.lead(ONE)
    told(Append([1]))
    told(Confirmed(7, 0))
    told(RollOver())
    told.answer(LedgerClosed, Closing.CLOSED, 0)
    told.answer(LedgerCreated, 8, 3_000)
    seen = told.leader.chain
    assert told.answer(ChainWritten, outcome) == [ReadChain(told.txn)]
    assert told.leader.status is Status.LOOK_UP_CHAIN
    trimmed = seen.without_first(1)
    assert told.answer(ChainRead, Outcome.OK, trimmed, 8) == [WriteChain(told.txn, trimmed.appended(8, 3_000), 8)]
    told.answer(ChainWritten, outcome)
    done = trimmed.appended(8, 3_000)
    assert told.answer(ChainRead, Outcome.OK, done, 9) == [Leads(done)]


def test_a_rival_is_given_way_and_what_was_created_is_deleted() -> None:
    told = Told()
    told(Append([1]))
    told(Elected())
    told.answer(ChainRead, Outcome.OK, ONE, 4)
    told.answer(LedgerClosed, Closing.CLOSED, 0)
    told.answer(LedgerCreated, 7, 2_000)
    told.answer(ChainWritten, Outcome.BAD_VERSION)
    effects = told.answer(ChainRead, Outcome.OK, ONE.appended(6, 1_500), 5)
    assert effects[:-1] == [
        Abandon(7),
        DeleteLedger(7),
        Failed(0, 1, Reason.RIVAL, is_known=True),
        SteppedDown(Reason.RIVAL),
    ]
    assert told.due(effects) == [ReadChain(told.txn)], "it is elected still"


def test_whoever_is_fenced_says_what_is_not_known() -> None:
    told = Told()
    told.lead()
    told(Append([1, 1, 1]))
    told(Confirmed(7, 0))
    effects = told(WriteFailed(7, Failure.FENCED))
    assert effects[:-1] == [Abandon(7), Failed(1, 2, Reason.FENCED, is_known=False), SteppedDown(Reason.FENCED)]
    assert told(Confirmed(7, 2)) == [], "too late"


def test_whoever_is_not_elected_any_more_leaves_its_ledger_open() -> None:
    told = Told(limits=Limits(entries=1))
    told.lead()
    told(Append([1, 1]))
    assert told(NotElected()) == [
        Abandon(7),
        Failed(0, 1, Reason.NOT_ELECTED, is_known=False),
        Failed(1, 1, Reason.NOT_ELECTED, is_known=True),
        SteppedDown(Reason.NOT_ELECTED),
    ]
    assert told(NotElected()) == []
    assert told(Append([1])) == [], "it waits for another election"
    assert told(Elected()) == [ReadChain(told.txn)]


def test_a_ledger_that_was_created_for_nothing_is_deleted() -> None:
    told = Told()
    told(Elected())
    told.answer(ChainRead, Outcome.OK, Chain(), 0)
    txn = told.txn
    told(NotElected())
    assert told(LedgerCreated(txn, 7, 2_000)) == [DeleteLedger(7)]


def test_rolling_over_by_entries_keeps_the_order() -> None:
    told = Told(limits=Limits(entries=2))
    told.lead()
    assert told(Append([1] * 5)) == [Write(7, 0, 2)], "three wait for the next ledger"
    assert told(Confirmed(7, 0)) == [Acknowledged(0, 1, Position(7, 0))]
    assert told(Confirmed(7, 1)) == [Acknowledged(1, 1, Position(7, 1)), CloseLedger(told.txn, 7, is_own=True)]
    assert told.answer(LedgerClosed, Closing.CLOSED, 1) == [CreateLedger(told.txn)]
    assert told.created(8)[1:] == [Write(8, 2, 2)]
    assert told(Confirmed(8, 1))[0] == Acknowledged(2, 2, Position(8, 0))


def test_rolling_over_by_size() -> None:
    told = Told(limits=Limits(size=10))
    told.lead()
    assert told(Append([4, 5, 6, 1])) == [Write(7, 0, 3)]


@pytest.mark.parametrize("seed", range(4))
def test_each_ledger_is_full_by_the_sizes_of_its_own_entries(seed: int) -> None:
    rng, limit = random.Random(seed), 400
    told = Told(limits=Limits(size=limit), most_appends=100)
    told.lead()
    sizes: list[int] = []
    written: dict[int, list[int]] = {7: []}
    ends: dict[int, int] = {}
    acknowledged = 0
    for _ in range(20_000):
        effects: list[Effect] = []
        some = [rng.randrange(20) for _ in range(rng.randrange(8))]
        if len(sizes) < 3 * _RELEASE_AFTER and told.leader.has_room(sum(some), len(some)):
            sizes += some
            effects += told(Append(some))
        elif (count := rng.randint(0, told.leader.written - acknowledged)) > 0:
            ledger = max(written)
            acknowledged += count
            ends[ledger] = ends.get(ledger, -1) + count
            effects += told(Confirmed(ledger, ends[ledger]))
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, CloseLedger):
                told.answer(LedgerClosed, Closing.CLOSED, ends[effect.ledger])
                written[effect.ledger + 1] = []
                effects += told.created(effect.ledger + 1)
            elif isinstance(effect, Write):
                written[effect.ledger] += sizes[effect.first : effect.first + effect.count]
        assert told.leader.bytes == sum(sizes[acknowledged:])
    *full, (_, last) = written.items()
    assert full and acknowledged == len(sizes) >= 3 * _RELEASE_AFTER
    assert all(sum(some[:-1]) < limit <= sum(some) for _, some in full) and sum(last) < limit + 20
    assert [size for some in written.values() for size in some] == sizes


def test_rolling_over_by_age_counts_from_the_first_entry() -> None:
    told = Told(limits=Limits(age=1_000))
    told.lead()
    told.now = 50_000
    effects = told(Append([1]))
    assert effects[0] == Write(7, 0, 1)
    assert told(Confirmed(7, 0)) == [Acknowledged(0, 1, Position(7, 0))]
    assert told.due(effects) == [CloseLedger(told.txn, 7, is_own=True)]


def test_in_trouble_what_the_closed_ledger_lacks_is_written_again() -> None:
    told = Told()
    told.lead()
    told(Append([1] * 4))
    told(Confirmed(7, 0))
    assert told(WriteFailed(7, Failure.TROUBLE)) == [CloseLedger(told.txn, 7, is_own=True)]
    assert told(WriteFailed(7, Failure.TROUBLE)) == []
    assert told(Append([1])) == [], "it waits"
    assert told.answer(LedgerClosed, Closing.CLOSED, 1) == [Acknowledged(1, 1, Position(7, 1)), CreateLedger(told.txn)]
    assert told.created(8)[1:] == [Write(8, 2, 3)]
    assert told(Confirmed(8, 2)) == [Acknowledged(2, 3, Position(8, 0))]


def test_own_ledger_closed_by_another_says_what_is_in_the_log() -> None:
    told = Told()
    told.lead()
    told(Append([1] * 3))
    told(WriteFailed(7, Failure.TROUBLE))
    assert told.answer(LedgerClosed, Closing.BY_ANOTHER, 0)[:-1] == [
        Acknowledged(0, 1, Position(7, 0)),
        Abandon(7),
        Failed(1, 2, Reason.FENCED, is_known=True),
        SteppedDown(Reason.FENCED),
    ]


def test_a_ledger_that_ends_ahead_of_what_was_acknowledged_is_an_error() -> None:
    told = Told()
    told.lead()
    told(Append([1, 1]))
    told(Confirmed(7, 1))
    told(WriteFailed(7, Failure.TROUBLE))
    with pytest.raises(ValueError, match="closed at entry 0, and 2 entries of it were acknowledged"):
        told.answer(LedgerClosed, Closing.CLOSED, 0)


def test_what_waits_is_limited() -> None:
    told = Told(most_appends=2, most_bytes=10)
    assert told.leader.has_room(11), "one append is never too large"
    told(Append([4]))
    assert told.leader.has_room(6) and not told.leader.has_room(7)
    assert told(Append([7])) == [Refused(Reason.NO_ROOM)] and told(Append([1, 1])) == [Refused(Reason.NO_ROOM)]
    assert told(Append([6])) == [] and told.leader.unacknowledged == 2


def test_appends_that_fail_leave_nothing_behind() -> None:
    told = Told()
    for _ in range(20):
        told.lead()
        told(Append([1] * 1_000))
        told(NotElected())
    assert told.leader.bytes == 0 and len(told.leader._offsets) <= 2 * _RELEASE_AFTER
    told.lead()
    assert told(Append([1])) == [Write(7, 20_000, 1)] and told.leader.bytes == 1


def test_ending_waits_for_what_was_appended() -> None:
    told = Told()
    told.lead()
    told(Append([1]))
    assert told(Close()) == []
    assert told(Append([1])) == [Refused(Reason.CLOSED)]
    assert told(Confirmed(7, 0))[1:] == [CloseLedger(told.txn, 7, is_own=True)]
    assert told.answer(LedgerClosed, Closing.CLOSED, 0) == [SteppedDown(Reason.CLOSED)]
    assert told.leader.ended is Reason.CLOSED
    assert told(Elected()) == [] and told(Close()) == []


def test_one_that_does_not_lead_ends_at_once() -> None:
    told = Told()
    told(Append([1]))
    assert told(Close()) == [Failed(0, 1, Reason.CLOSED, is_known=True), SteppedDown(Reason.CLOSED)]


def test_one_on_its_way_ends_at_once_if_nothing_waits() -> None:
    told = Told()
    told(Elected())
    assert told(Close()) == [SteppedDown(Reason.CLOSED)]


def test_sealing_closes_the_ledger_first() -> None:
    told = Told()
    told.lead()
    told(Append([1]))
    assert told(Seal()) == []
    assert told(Append([1])) == [Refused(Reason.SEALED)]
    told(Confirmed(7, 0))
    chain = told.leader.chain
    assert told.answer(LedgerClosed, Closing.CLOSED, 0) == [WriteChain(told.txn, chain.as_sealed(), 5)]
    assert told.answer(ChainWritten, Outcome.OK, 6) == [SteppedDown(Reason.SEALED)]
    assert told.leader.ended is Reason.SEALED


def test_somebody_seals_who_writes_nothing() -> None:
    told = Told()
    told(Seal())
    told(Elected())
    assert told.answer(ChainRead, Outcome.OK, ONE, 4) == [CloseLedger(told.txn, 5, is_own=False)]
    assert told.answer(LedgerClosed, Closing.CLOSED, 3) == [WriteChain(told.txn, ONE.as_sealed(), 4)]
    told.answer(ChainWritten, Outcome.UNKNOWN)
    assert told.answer(ChainRead, Outcome.OK, ONE.as_sealed(), 5) == [SteppedDown(Reason.SEALED)]


@pytest.mark.parametrize(
    ("outcome", "chain", "reason"),
    [(Outcome.OK, ONE.as_sealed(), Reason.SEALED), (Outcome.NO_LEDGER, Chain(), Reason.NO_LOG)],
)
def test_a_log_that_is_sealed_or_deleted_ends_its_writer(outcome: Outcome, chain: Chain, reason: Reason) -> None:
    told = Told()
    told(Append([1]))
    told(Elected())
    effects = told.answer(ChainRead, outcome, chain, 4)
    assert effects == [Failed(0, 1, reason, is_known=True), SteppedDown(reason)]
    assert told(Append([1])) == [Refused(reason)]


def test_rolling_over_by_hand_needs_an_entry() -> None:
    told = Told()
    told.lead()
    assert told(RollOver()) == []
    told(Append([1]))
    assert told(RollOver()) == []
    assert told(Append([1])) == [], "what comes later goes to the next ledger"
    assert told(Confirmed(7, 0))[1:] == [CloseLedger(told.txn, 7, is_own=True)]
