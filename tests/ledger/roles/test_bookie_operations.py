"""The bookie's batch reads, lists of entries, information about itself, deleted ledgers and limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger.roles.test_bookie import KEY, OTHER_KEY, Story, add, body, fence
from ledger.singly import found

from fencepost.ledger import messages as m
from fencepost.ledger.records import EntryAdded, LedgerFenced
from fencepost.ledger.roles import interface as i
from fencepost.ledger.roles.bookie import Limits
from fencepost.ledger.roles.requests import AddRequests
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.reading import BATCH_ENTRY, BATCH_HEADER


def with_entries(count: int, **limits: int) -> Story:
    """A bookie with entries of ledger 1 from 0 on, all durable."""
    story = Story()
    story.bookie.limits = Limits(**limits)
    for entry_id in range(count):
        story.ask(add(entry_id, entry_id - 1))
    story.sync()
    return story


def response(story: Story, request: Any) -> Any:
    """The immediate answer to a request."""
    (answer,) = story.ask(request)
    assert isinstance(answer, i.Answer) and answer.txn == story.txn
    return answer.response


# -- batch reads ------------------------------------------------------------------------------------------------------


def bodies(response: m.BatchReadResponse) -> list[bytes]:
    assert response.code is Code.OK
    return list(response.bodies)


SIZE = len(body(0)) + BATCH_ENTRY


def test_a_batch_ends_where_the_reader_the_bookie_or_the_ledger_says() -> None:
    story = with_entries(9)
    every = [body(n, n - 1) for n in range(9)]
    assert bodies(response(story, m.BatchRead(1, 0))) == every
    assert bodies(response(story, m.BatchRead(1, 2, max_count=4))) == every[2:6]
    assert bodies(response(story, m.BatchRead(1, 2, max_size=BATCH_HEADER + 3 * SIZE))) == every[2:5]
    assert bodies(response(story, m.BatchRead(1, 2, max_size=BATCH_HEADER + 3 * SIZE - 1))) == every[2:4]
    assert bodies(response(story, m.BatchRead(1, 2, max_size=1))) == every[2:3]
    story.bookie.limits = Limits(batch_entries=5)
    assert bodies(response(story, m.BatchRead(1, 0, max_count=8))) == every[:5]
    story.bookie.limits = Limits(batch_size=BATCH_HEADER + 2 * SIZE)
    assert bodies(response(story, m.BatchRead(1, 0, max_size=2**40))) == every[:2]
    assert not story.bookie.lookups


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=12), st.integers(-1, 12), st.integers(-1, 400), st.integers(0, 12)
)
def test_a_batch_is_the_longest_that_fits(sizes: list[int], max_count: int, max_size: int, first: int) -> None:
    story = Story()
    for entry_id, size in enumerate(sizes):
        story.stored[entry_id] = bytes(size)
    story.happen(i.Replayed(LedgerFenced(1)))
    got = response(story, m.BatchRead(1, first, max_count, max_size))
    if first >= len(sizes):
        assert got == m.BatchReadResponse(1, first, Code.NO_ENTRY)
        return
    fits = 1
    while first + fits < len(sizes) and (max_count <= 0 or fits < max_count):
        if (
            max_size > 0
            and BATCH_HEADER + sum(BATCH_ENTRY + size for size in sizes[first : first + fits + 1]) > max_size
        ):
            break
        fits += 1
    assert bodies(got) == [bytes(size) for size in sizes[first : first + fits]]


def test_a_batch_of_which_nothing_is_there_says_why() -> None:
    story = with_entries(3)
    assert response(story, m.BatchRead(1, 3)) == m.BatchReadResponse(1, 3, Code.NO_ENTRY)
    story.unreadable = {1}
    assert response(story, m.BatchRead(1, 1)) == m.BatchReadResponse(1, 1, Code.IO_ERROR)
    assert bodies(response(story, m.BatchRead(1, 0))) == [body(0, -1)]
    story.ask(fence())
    story.happen(i.Call(1, "enter limbo", (1,)))
    story.sync()
    assert response(story, m.BatchRead(1, 3)) == m.BatchReadResponse(1, 3, Code.UNKNOWN_LEDGER_STATE)
    nothing = Story()
    assert response(nothing, m.BatchRead(1, 0)) == m.BatchReadResponse(1, 0, Code.NO_LEDGER)


def test_a_batch_waits_until_all_that_it_shows_is_durable() -> None:
    story = with_entries(2)
    story.ask(add(2, 1))
    assert story.ask(m.BatchRead(1, 0)) == []
    assert bodies(story.sync()[-1].response) == [body(0), body(1, 0), body(2, 1)]  # type: ignore[attr-defined]


def test_a_batch_read_fences_if_it_is_to_and_has_the_key() -> None:
    story = with_entries(1)
    refused = m.BatchReadResponse(1, 0, Code.UNAUTHORIZED)
    assert response(story, m.BatchRead(1, 0, fence=True, master_key=OTHER_KEY)) == refused
    assert response(story, m.BatchRead(1, 0, fence=True)) == refused
    assert story.ask(m.BatchRead(1, 0, fence=True, master_key=KEY)) == [i.Journal(3, LedgerFenced(1))]
    assert bodies(story.sync()[-1].response) == [body(0)]  # type: ignore[attr-defined]
    assert response(story, add(1)).code is Code.FENCED


# -- lists of entries, and the bookie itself --------------------------------------------------------------------------


def test_the_list_of_entries_waits_until_it_is_durable() -> None:
    story = with_entries(2)
    story.ask(add(5))
    (find,) = story.ask(m.ListEntries(1))
    assert find == i.FindRuns(find.number, 1)  # type: ignore[attr-defined]
    runs = ((0, 1), (5, 5))
    assert story.happen(i.RunsFound(find.number, Code.OK, runs)) == []
    assert story.sync()[-1] == story.answer(m.ListEntriesResponse(1, Code.OK, runs))


@pytest.mark.parametrize(
    ("records", "found", "code"),
    [
        ([], Code.OK, Code.NO_LEDGER),
        ([LedgerFenced(1)], Code.IO_ERROR, Code.IO_ERROR),
        ([LedgerFenced(1)], Code.OK, Code.OK),
    ],
)
def test_a_list_of_entries_that_there_is_not(records: list[Any], found: Code, code: Code) -> None:
    story = Story(records)
    (find,) = story.ask(m.ListEntries(1))
    assert story.happen(i.RunsFound(find.number, found)) == [story.answer(m.ListEntriesResponse(1, code))]  # type: ignore[attr-defined]


def test_in_limbo_the_list_of_entries_is_not_told() -> None:
    story = with_entries(1)
    story.happen(i.Call(1, "enter limbo", (1,)))
    story.sync()
    (find,) = story.ask(m.ListEntries(1))
    answer = m.ListEntriesResponse(1, Code.UNKNOWN_LEDGER_STATE)
    assert story.happen(i.RunsFound(find.number, Code.OK, ((0, 0),))) == [story.answer(answer)]  # type: ignore[attr-defined]


def test_the_sizes_of_the_disks_that_were_asked_for() -> None:
    story = Story()
    for total, free in ((True, True), (True, False), (False, True)):
        (measure,) = story.ask(m.GetBookieInfo(total, free))
        answer = m.GetBookieInfoResponse(Code.OK, 100 if total else None, 30 if free else None)
        assert story.happen(i.Measured(measure.number, 100, 30)) == [story.answer(answer)]  # type: ignore[attr-defined]


def test_there_is_no_authentication_and_no_tls() -> None:
    story = Story()
    assert response(story, m.Auth("some plug-in", b"hello")) == m.AuthResponse(Code.OK, m.NO_AUTHENTICATION)
    assert response(story, m.StartTls()) == m.StartTlsResponse(Code.BAD_REQUEST)


# -- deleted ledgers --------------------------------------------------------------------------------------------------


def test_nothing_is_known_of_a_ledger_that_was_forgotten() -> None:
    story = with_entries(3)
    poll = m.ReadEntry(1, -1, previous_lac=5, wait=1000)
    timer = story.ask(poll)[-1]
    assert isinstance(timer, i.SetTimer)
    assert story.happen(i.Call(9, "forget", (1,))) == [
        story.answer(m.ReadEntryResponse(1, -1, Code.NO_LEDGER)),
        i.Forget(1),
        i.Result(9),
    ]
    story.stored.clear()
    assert story.happen(i.TimerFired(timer.key)) == [] and not story.bookie.polls
    assert response(story, m.ReadEntry(1, 0)).code is Code.NO_LEDGER
    assert response(story, m.ReadLac(1)).code is Code.NO_LEDGER
    assert story.happen(i.Call(10, "forget", (1,))) == [i.Forget(1), i.Result(10)]
    story.ask(add(0, key=OTHER_KEY))
    assert story.sync()[-1] == story.answer(m.AddEntryResponse(1, 0, Code.OK))


def test_what_is_looked_up_of_a_ledger_while_it_is_forgotten_is_answered() -> None:
    story = with_entries(1)
    (look_up,) = story.bookie.receive(i.ReadsArrived(1, 1), 0)
    assert isinstance(look_up, i.LookUpReads)
    story.happen(i.Call(9, "forget", (1,)))
    assert story.happen(found(look_up, 1, Code.NO_ENTRY, (5, 0, None))) == [
        i.Answer(1, 5, m.ReadEntryResponse(1, 0, Code.NO_LEDGER))
    ]


# -- polls ------------------------------------------------------------------------------------------------------------


def test_a_poll_without_piggyback_is_answered_by_the_entry_that_it_asks_for() -> None:
    story = with_entries(2)
    story.ask(m.ReadEntry(1, 0, previous_lac=1, wait=1000, piggyback=False))
    polled = story.txn
    answer = i.Answer(1, polled, m.ReadEntryResponse(1, 0, Code.OK, 2, body(0)))
    assert answer not in [*story.ask(add(2, 1)), *story.sync()]  # the LAC is 1 still
    assert answer in story.ask(add(3, 2))


def test_the_polls_of_a_connection_that_is_gone_are_dropped() -> None:
    story = with_entries(1)
    story.ask(m.ReadEntry(1, -1, previous_lac=5, wait=1000))
    story.happen(i.RequestArrived(2, 7, m.ReadEntry(1, -1, previous_lac=5, wait=1000)))
    assert story.happen(i.ConnectionClosed(1)) == [] and len(story.bookie.polls) == 1
    assert story.ask(fence())[-1] == i.Journal(3, LedgerFenced(1))
    assert story.sync()[0] == i.Answer(2, 7, m.ReadEntryResponse(1, -1, Code.OK, -1))
    assert story.bookie.polls == {} and story.bookie.ledgers[1].polls == {}


# -- limits -----------------------------------------------------------------------------------------------------------


def too_many(request: Any) -> m.Response:
    code = Code.TOO_MANY_REQUESTS
    answers: dict[type, Callable[[], m.Response]] = {
        m.ReadEntry: lambda: m.ReadEntryResponse(1, request.entry_id, code),
        m.ReadLac: lambda: m.ReadLacResponse(1, code),
        m.BatchRead: lambda: m.BatchReadResponse(1, 0, code),
        m.ListEntries: lambda: m.ListEntriesResponse(1, code),
        m.GetBookieInfo: lambda: m.GetBookieInfoResponse(code),
    }
    return answers[type(request)]()


@pytest.mark.parametrize(
    "request_", [m.ReadEntry(1, 0), m.ReadLac(1), m.BatchRead(1, 0), m.ListEntries(1), m.GetBookieInfo()]
)
def test_too_many_lookups_are_refused(request_: Any) -> None:
    story = with_entries(1, lookups=2)
    waiting = [story.bookie.receive(i.ReadsArrived(1, 1), 0)[0] for _ in (50, 51)]
    assert isinstance(waiting[0], i.LookUpReads)
    assert response(story, request_) == too_many(request_)
    story.happen(found(waiting[0], 1, Code.OK, (50, 0, body(0))))
    assert not any(
        isinstance(effect, i.Answer) and effect.response == too_many(request_) for effect in story.ask(request_)
    )


def test_too_many_polls_are_refused_and_none_waits_too_long() -> None:
    story = with_entries(1, polls=3, polls_of_ledger=2, poll_wait=500)
    poll = m.ReadEntry(1, -1, previous_lac=5, wait=1_000_000_000)
    for _ in range(2):
        (timer,) = story.ask(poll)
        assert isinstance(timer, i.SetTimer) and timer.delay == 500
    assert response(story, poll) == too_many(poll)
    for ledger in (2, 3):
        story.happen(i.Replayed(LedgerFenced(ledger)))
        story.bookie.ledgers[ledger].fenced = False
    (timer,) = story.ask(m.ReadEntry(2, -1, previous_lac=5, wait=1))
    assert timer.delay == 1  # type: ignore[attr-defined]
    assert response(story, m.ReadEntry(3, -1, previous_lac=5, wait=1)).code is Code.TOO_MANY_REQUESTS
    story.happen(i.TimerFired(timer.key))  # type: ignore[attr-defined]
    assert isinstance(story.ask(m.ReadEntry(3, -1, previous_lac=5, wait=1))[0], i.SetTimer)


def test_a_copied_entry_is_stored_whatever_the_ledger_is_and_said_to_be_when_it_is_durable() -> None:
    story = Story()
    story.happen(i.Call(1, "enter limbo", (1,)))
    story.sync()
    copied = AddRequests(((0, m.AddEntry(1, 0, -1, body(0), b"")),))
    assert story.happen(i.Call(2, "store entries", (copied,))) == [i.Journal(3, EntryAdded(1, 0, -1, body(0)))]
    assert story.ask(m.ReadEntry(1, 0)) == []
    told, answered = story.sync()
    assert told == i.Result(2)
    assert answered.response.body == body(0)  # type: ignore[attr-defined]
    assert story.ask(add(0))[-1].response.code is Code.FENCED  # type: ignore[attr-defined]
