"""The repair of a bookie as a role: what it marks at once, what it waits for, and when a ledger leaves limbo."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.ledger.roles import repair
from fencepost.ledger.roles.bookie import Bookie, Ledger
from fencepost.ledger.roles.interface import Call, Effect, Error, Event, Result, SetTimer, TimerFired, Trace
from fencepost.ledger.roles.repair import (
    MARKS_AT_ONCE,
    AskBookie,
    CopyEntries,
    Done,
    EntriesCopied,
    LedgerRecovered,
    LedgersListed,
    ListingFailed,
    ListLedgers,
    RecoverLedger,
    Repair,
)
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata, closed

OPEN = LedgerMetadata(2, 2, 2, (Fragment(0, ("a", "b")),))
CLOSED = closed(OPEN, 3, 40)
ELSEWHERE = LedgerMetadata(2, 2, 2, (Fragment(0, ("b", "c")),))

NOTHING: list[Effect] = []


def role_of(*, limbo: Iterable[int] = (), traces: bool = False) -> Repair:
    bookie = Bookie()
    bookie.ledgers |= {ledger: Ledger(limbo=True) for ledger in limbo}
    return Repair("a", bookie, traces=traces)


def give(role: Repair, *events: Event) -> list[Effect]:
    """What comes of the last one."""
    effects: list[Effect] = []
    for event in events:
        effects = role.receive(event, 0)
    return effects


def test_marks_are_asked_for_together_and_waited_for_together() -> None:
    role = role_of()
    assert give(role, Call(7, "mark ledgers")) == [ListLedgers(True)]
    first = LedgersListed([(1, OPEN), (2, CLOSED), (3, ELSEWHERE)], False)
    asked = [AskBookie(1, "enter limbo", (1,)), AskBookie(2, "fence", (2,)), ListLedgers(False)]
    assert give(role, first) == asked
    assert give(role, LedgersListed([(4, OPEN)], True)) == [AskBookie(3, "enter limbo", (4,))]
    assert give(role, Done(3), Done(1)) == NOTHING
    assert give(role, Done(2)) == [Result(7, (2, 1))]


def test_no_more_marks_are_under_way_than_there_may_be() -> None:
    role = role_of()
    give(role, Call(7, "mark ledgers"))
    page = LedgersListed([(ledger, OPEN) for ledger in range(MARKS_AT_ONCE)], False)
    assert not any(isinstance(effect, ListLedgers) for effect in give(role, page))
    assert give(role, Done(5)) == [ListLedgers(False)]
    assert give(role, Done(6)) == NOTHING  # one page at a time


def test_phase_one_begins_anew_when_the_metadata_could_not_be_read() -> None:
    role = role_of()
    give(role, Call(7, "mark ledgers"), LedgersListed([(1, OPEN)], False))
    assert give(role, ListingFailed()) == [Result(7, error=Error.READ_FAILED)]
    assert give(role, Call(8, "mark ledgers")) == [ListLedgers(True)]
    assert give(role, Done(1)) == NOTHING  # what was asked for before does not count
    assert give(role, LedgersListed([(1, OPEN)], True)) == [AskBookie(2, "enter limbo", (1,))]
    assert give(role, Done(2)) == [Result(8, (1, 0))]


def test_a_trace_tells_what_was_marked() -> None:
    role = role_of(traces=True)
    effects = give(role, Call(7, "mark ledgers"), LedgersListed([(1, OPEN), (2, CLOSED), (3, ELSEWHERE)], True))
    assert effects[0] == Trace("bookie_may_lack_entries", 1, {"mark": "limbo", "fenced": False, "limbo": False})
    assert effects[2] == Trace("bookie_may_lack_entries", 2, {"mark": "fence", "fenced": False, "limbo": False})
    assert effects[4:] == [Trace("bookie_may_lack_entries", 3, {"mark": "nothing", "fenced": False, "limbo": False})]
    assert give(role, Done(1), Done(2))[0] == Trace("bookie_may_lack_entries", None, {"limbo": 1, "fenced": 1})


def test_a_ledger_leaves_limbo_when_it_is_closed_and_all_is_copied() -> None:
    role = role_of(limbo=[1])
    assert give(role, Call(7, "repair")) == [ListLedgers(True)]
    assert give(role, LedgersListed([(1, OPEN), (2, CLOSED), (3, ELSEWHERE)], True)) == [RecoverLedger(1)]
    assert role.left == 2
    assert give(role, LedgerRecovered(1, CLOSED)) == [CopyEntries(1, CLOSED)]
    assert give(role, EntriesCopied(1, 0)) == [AskBookie(1, "leave limbo", (1,))]
    role.bookie.ledgers[1].limbo = False
    assert give(role, Done(1)) == [RecoverLedger(2)]
    assert give(role, LedgerRecovered(2, CLOSED)) == [CopyEntries(2, CLOSED)]
    assert give(role, EntriesCopied(2, 0)) == [Result(7)]
    assert role.left == 0


def test_what_lacks_something_is_looked_at_again() -> None:
    role = role_of(limbo=[1, 2, 3])
    give(role, Call(7, "repair"), LedgersListed([], True))
    assert give(role, LedgerRecovered(1, None, Error.RECOVERY_FAILED)) == [RecoverLedger(2)]
    assert give(role, LedgerRecovered(2, CLOSED), EntriesCopied(2, 1)) == [RecoverLedger(3)]
    assert give(role, LedgerRecovered(3, None, Error.NO_LEDGER)) == [AskBookie(1, "leave limbo", (3,))]
    role.bookie.ledgers[3].limbo = False
    (timer,) = give(role, Done(1))
    assert timer == SetTimer("again", repair.PAUSE)
    assert role.left == 2
    assert give(role, TimerFired("again")) == [ListLedgers(True)]
    assert give(role, LedgersListed([], True)) == [RecoverLedger(1)]


def test_a_round_begins_anew_when_the_metadata_could_not_be_read() -> None:
    role = role_of(limbo=[1])
    assert give(role, Call(7, "repair"), ListingFailed()) == [SetTimer("again", repair.PAUSE)]
    assert give(role, TimerFired("again")) == [ListLedgers(True)]


def test_other_calls_are_none() -> None:
    assert give(role_of(), Call(7, "fence")) == [Result(7, error=Error.BAD_CALL)]
