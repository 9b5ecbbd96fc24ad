"""When lost bookies are audited and what is replicated, as tables and compared with the documented rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.ledger.rules import auditing
from fencepost.ledger.rules.auditing import Due, Watched
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.ledger.rules.placement import Unplaced, replacement
from fencepost.ledger.rules.replication import (
    is_closed_fragment,
    lost,
    replaceable,
    waits_for_end,
    with_replacement,
)

SOME = st.frozensets(st.sampled_from("abcde"))


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    """A ledger of some fragments, in any status."""
    firsts = sorted(draw(st.sets(st.integers(1, 20), max_size=3)))
    ensembles = [tuple(draw(st.permutations("abcde"))[:3]) for _ in range(len(firsts) + 1)]
    fragments = tuple(map(Fragment, (0, *firsts), ensembles))
    status = draw(st.sampled_from(LedgerStatus))
    last = draw(st.integers(max(firsts, default=0) - 1, 25)) if status is LedgerStatus.CLOSED else -1
    return LedgerMetadata(3, 2, 2, fragments, status, last)


# -- bookies ----------------------------------------------------------------------------------------------------------


def test_one_that_is_lost_is_waited_for_and_several_are_not() -> None:
    watched, due = auditing.seen(Watched(), "abc", 10)
    assert (watched, due) == (Watched(known=frozenset("abc")), Due.NOTHING)
    one, due = auditing.seen(watched, "ab", 10)
    assert (one.waiting, due) == (frozenset("c"), Due.LATER)
    assert auditing.seen(watched, "ab", 0)[1] is Due.NOW
    assert auditing.seen(one, "abc", 10) == (watched, Due.NOTHING)
    two, due = auditing.seen(one, "a", 10)
    assert (two.waiting, due) == (frozenset("bc"), Due.NOW)
    done = auditing.audited(two)
    assert auditing.seen(done, "a", 10)[1] is Due.NOTHING  # they are not audited twice
    back, _ = auditing.seen(done, "ab", 10)
    assert auditing.seen(back, "a", 10)[1] is Due.LATER  # unless they were back


def test_one_that_was_lost_before_is_waited_for() -> None:
    assert auditing.seen(Watched(known=frozenset("abc")), "ab", 10)[1] is Due.LATER


@given(st.lists(st.tuples(SOME, st.booleans())))
def test_every_bookie_that_is_lost_is_audited_once_each_time(steps: list[tuple[frozenset[str], bool]]) -> None:
    """Against a count of what was seen and lost, bookie by bookie."""
    watched = Watched()
    owed: set[str] = set()
    there: set[str] = set()
    for registered, audits in steps:
        watched, due = auditing.seen(watched, registered, 10)
        owed = (owed | there) - registered
        there = {*registered}
        assert watched.waiting == owed and watched.known == there
        assert due is (Due.NOTHING if not owed else Due.LATER if len(owed) == 1 else Due.NOW)
        if audits:
            watched, owed = auditing.audited(watched), set()


def test_one_that_is_back_and_lost_again_during_an_audit_is_lost_anew() -> None:
    watched, _ = auditing.seen(Watched(known=frozenset("abc")), "ab", 0)
    watched = auditing.audited(auditing.met(watched, "abc"))
    assert auditing.seen(watched, "ab", 0)[1] is Due.NOW


@given(st.none() | st.lists(st.sampled_from("abcde"), unique=True).map(tuple), SOME, st.booleans())
def test_a_mark_names_all_that_were_ever_missing(
    published: tuple[str, ...] | None, missing: frozenset[str], is_locked: bool
) -> None:
    written = auditing.to_publish(published, missing, is_locked)
    if written is None:
        assert published is not None and missing <= {*published} and not is_locked
    else:
        assert [*written[: len(published or ())]] == [*(published or ())]
        assert {*written} == {*(published or ())} | missing and len({*written}) == len(written)
        assert is_locked or published is None or len(written) > len(published)


@pytest.mark.parametrize(("delay", "before", "asked"), [(0, 5, True), (5, 5, True), (6, 5, False), (5, 0, False)])
def test_who_sets_the_delay_may_ask_for_an_audit(delay: int, before: int, asked: bool) -> None:
    assert auditing.is_asked_for(delay, before) is asked


def test_votes_are_ordered_by_their_numbers() -> None:
    assert auditing.in_order(["V_0000000010", "V_0000000009", "V_2147483647", "x", "V_-2147483648"]) == [
        "V_-2147483648", "V_0000000009", "V_0000000010", "V_2147483647",
    ]  # fmt: skip


def test_a_ledger_rests_twice_as_long_each_time() -> None:
    assert [auditing.rest(failures, 320.0) for failures in range(1, 9)] == [10, 20, 40, 80, 160, 320, 320, 320]


# -- ledgers ----------------------------------------------------------------------------------------------------------


@given(ledgers(), SOME)
def test_what_is_replicated_is_settled_and_the_rest_waits_for_the_end(
    metadata: LedgerMetadata, registered: frozenset[str]
) -> None:
    gone = lost(metadata, registered)
    assert gone == {bookie for fragment in metadata.fragments for bookie in fragment.ensemble} - registered
    now = replaceable(metadata, gone)
    for place, bookie in now:
        assert is_closed_fragment(metadata, place) and bookie in gone and bookie in metadata.fragments[place].ensemble
    places = [
        (place, bookie)
        for place, fragment in enumerate(metadata.fragments)
        for bookie in fragment.ensemble
        if bookie in gone
    ]
    waits = waits_for_end(metadata, gone)
    assert (set(now) == set(places)) is not waits  # what cannot be done now is waited for, and nothing else
    if metadata.status is LedgerStatus.CLOSED:
        assert not waits
    if metadata.status is LedgerStatus.IN_RECOVERY:
        assert not now


@given(ledgers(), SOME)
def test_a_ledger_whose_settled_fragments_are_replicated_has_lost_nothing_there(
    metadata: LedgerMetadata, registered: frozenset[str]
) -> None:
    """One replacement after another, as long as there is somebody; the last fragment of an open ledger is never
    touched."""
    gone = lost(metadata, registered)
    last = metadata.fragments[-1]
    while left := replaceable(metadata, gone):
        (place, bookie), *_ = left
        others = sorted(registered) + ["new 1", "new 2", "new 3"]
        new = replacement(metadata.fragments[place].ensemble, bookie, gone, others)
        assert not isinstance(new, Unplaced) and new not in metadata.fragments[place].ensemble and new not in gone
        metadata = with_replacement(metadata, place, bookie, new)
        assert len(set(metadata.fragments[place].ensemble)) == 3
    if metadata.status is not LedgerStatus.CLOSED:
        assert metadata.fragments[-1] == last
    for place, fragment in enumerate(metadata.fragments):
        if is_closed_fragment(metadata, place) and metadata.status is not LedgerStatus.IN_RECOVERY:
            assert not gone & set(fragment.ensemble)
