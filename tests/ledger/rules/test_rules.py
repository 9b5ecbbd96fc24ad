"""The rules as tables, and compared with brute force: all quorums, all orders, definitions written out."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.ledger.rules import adding, ensembles, metadata, placement, reading, recovery
from fencepost.ledger.rules.adding import AddOutcome
from fencepost.ledger.rules.codes import NEGATIVES, Code, Verdict
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus, Next
from fencepost.ledger.rules.placement import Unplaced
from fencepost.ledger.rules.protections import ALL, Protections
from fencepost.ledger.rules.reading import ReadOutcome

OPEN, IN_RECOVERY, CLOSED = LedgerStatus
POSITIVE, NEGATIVE, UNKNOWN, WAITING = Verdict.POSITIVE, Verdict.NEGATIVE, Verdict.UNKNOWN, Verdict.WAITING


@st.composite
def quorum_sizes(draw: st.DrawFn) -> tuple[str, int, int]:
    """An ensemble, a write quorum and an ack quorum."""
    size = draw(st.integers(1, 5))
    write_quorum = draw(st.integers(1, size))
    return "abcde"[:size], write_quorum, draw(st.integers(1, write_quorum))


SOME = st.sets(st.sampled_from("abcde"))


def ack_quorums(ensemble: str, write_quorum: int, ack_quorum: int) -> list[frozenset[str]]:
    """Every set of bookies that could commit some entry, written out."""
    return [
        frozenset(chosen)
        for entry_id in range(len(ensemble))
        for chosen in combinations([ensemble[(entry_id + k) % len(ensemble)] for k in range(write_quorum)], ack_quorum)
    ]


# -- quorums ----------------------------------------------------------------------------------------------------------


@given(quorum_sizes(), st.integers(0, 1000))
def test_write_sets_go_round_the_ensemble(sizes: tuple[str, int, int], entry_id: int) -> None:
    ensemble, write_quorum, _ = sizes
    members = ensembles.write_set(entry_id, ensemble, write_quorum)
    assert len(set(members)) == len(members) == write_quorum
    for place, bookie in enumerate(ensemble):
        behind = (place - entry_id) % len(ensemble)  # how many places after the first bookie of the entry
        assert (bookie in members) is (behind < write_quorum)
        assert ensembles.is_in_write_set(place, entry_id, len(ensemble), write_quorum) is (bookie in members)


def test_write_sets_of_an_ensemble_of_three_and_a_write_quorum_of_two() -> None:
    assert ["".join(ensembles.write_set(entry_id, "abc", 2)) for entry_id in range(4)] == ["ab", "bc", "ca", "ab"]
    assert ensembles.write_set(5, frozenset("ab"), 2) == frozenset("ab")


@given(quorum_sizes(), SOME)
def test_coverage_has_a_member_in_every_ack_quorum(sizes: tuple[str, int, int], members: set[str]) -> None:
    expected = all(members & quorum for quorum in ack_quorums(*sizes))
    assert ensembles.covers_ensemble(members, *sizes) is expected
    ensemble, write_quorum, ack_quorum = sizes
    one = ensembles.write_set(0, ensemble, write_quorum)
    of_one = [set(chosen) for chosen in combinations(one, ack_quorum)]
    assert ensembles.covers(members, one, ack_quorum) is all(members & quorum for quorum in of_one)


@given(quorum_sizes(), SOME, SOME)
def test_coverage_is_unknown_when_nobody_who_can_still_answer_helps(
    sizes: tuple[str, int, int], members: set[str], failed: set[str]
) -> None:
    failed -= members
    reachable = set(sizes[0]) - failed
    expected = WAITING if all(reachable & quorum for quorum in ack_quorums(*sizes)) else UNKNOWN
    if all(members & quorum for quorum in ack_quorums(*sizes)):
        expected = POSITIVE
    assert ensembles.coverage(members, failed, *sizes) is expected
    assert recovery.fencing(members, failed, *sizes) is expected


@given(quorum_sizes(), SOME)
def test_once_fencing_is_complete_the_owner_commits_nothing(sizes: tuple[str, int, int], fenced: set[str]) -> None:
    """The reason for coverage: the bookies that are not fenced form no ack quorum of any write set."""
    if recovery.fencing(fenced, (), *sizes) is POSITIVE:
        for entry_id in range(len(sizes[0])):
            unfenced = set(ensembles.write_set(entry_id, sizes[0], sizes[1])) - fenced
            assert not ensembles.is_committed(len(unfenced), sizes[2])


def test_without_its_protection_one_fenced_bookie_is_enough() -> None:
    careless = Protections(fencing_covers_ensemble=False)
    assert recovery.fencing({"a"}, (), "abc", 3, 2, careless) is POSITIVE
    assert recovery.fencing({"a"}, (), "abc", 3, 2) is WAITING
    assert recovery.fencing((), {"a", "b"}, "abc", 3, 2, careless) is UNKNOWN


@pytest.mark.parametrize(
    ("sizes", "are_quorums"),
    [((3, 3, 2), True), ((1, 1, 1), True), ((3, 2, 3), False), ((2, 3, 2), False), ((3, 3, 0), False)],
)
def test_quorums_of_a_ledger(sizes: tuple[int, int, int], are_quorums: bool) -> None:
    assert ensembles.are_quorums(*sizes) is are_quorums


# -- adding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "fenced", "recovery", "read_only", "code"),
    [
        (True, False, False, False, Code.OK),
        (True, False, True, False, Code.OK),
        (True, True, False, False, Code.FENCED),
        (True, True, True, False, Code.OK),
        (True, False, False, True, Code.READ_ONLY),
        (True, True, False, True, Code.FENCED),
        (True, True, True, True, Code.OK),
        (False, False, False, False, Code.UNAUTHORIZED),
        (False, True, True, True, Code.UNAUTHORIZED),
    ],
)
def test_which_adds_a_bookie_takes(key: bool, fenced: bool, recovery: bool, read_only: bool, code: Code) -> None:
    assert adding.answer_to_add(key_matches=key, fenced=fenced, recovery=recovery, read_only=read_only) is code


def test_adds_without_protections() -> None:
    assert adding.answer_to_add(
        key_matches=False, fenced=True, recovery=False,
        protections=Protections(keys_are_checked=False, fenced_bookies_refuse=False),
    ) is Code.OK  # fmt: skip


@pytest.mark.parametrize(
    ("known", "given", "matches"),
    [(None, b"k", True), (b"k", b"k", True), (b"k", b"l", False), (b"k", None, False), (None, None, False)],
)
def test_the_first_key_that_comes_is_the_one(known: bytes | None, given: bytes | None, matches: bool) -> None:
    assert adding.key_matches(known, given) is matches
    assert (adding.answer_to_key(known, given) is Code.OK) is matches


def test_only_adds_of_the_owner_are_left_out_of_the_journal() -> None:
    assert [adding.is_journalled(journals, recovery) for journals in (True, False) for recovery in (True, False)] == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (Code.OK, AddOutcome.CONFIRMED),
        (Code.FENCED, AddOutcome.FENCED),
        (Code.UNAUTHORIZED, AddOutcome.UNAUTHORIZED),
        (Code.IO_ERROR, AddOutcome.BOOKIE_FAILED),
        (Code.READ_ONLY, AddOutcome.BOOKIE_FAILED),
        (Code.TOO_MANY_REQUESTS, AddOutcome.BOOKIE_FAILED),
        (None, AddOutcome.BOOKIE_FAILED),
    ],
)
def test_what_an_answer_to_an_add_means(code: Code | None, outcome: AddOutcome) -> None:
    assert adding.outcome_of_add(code) is outcome


@given(st.integers(-1, 3), st.sets(st.integers(0, 9)))
def test_the_lac_is_the_last_entry_of_which_all_before_are_committed(lac: int, committed: set[int]) -> None:
    pushed = 9
    reached = adding.lac_reached(lac, pushed, committed.__contains__)
    expected = max(end for end in range(lac, pushed + 1) if set(range(lac + 1, end + 1)) <= committed)
    assert reached == expected
    assert adding.lac_reached(lac, pushed, committed.__contains__, changing_ensemble=True) == lac
    careless = Protections(lac_waits_for_change=False)
    assert adding.lac_reached(lac, pushed, committed.__contains__, True, careless) == expected
    careless = Protections(confirmed_in_order=False)
    later = [entry_id for entry_id in committed if entry_id > lac]
    assert adding.lac_reached(lac, pushed, committed.__contains__, protections=careless) == max(later, default=lac)


def test_the_lac_does_not_go_beyond_what_was_sent() -> None:
    assert adding.lac_reached(2, 4, lambda entry_id: True) == 4


@given(st.permutations([3, 1, 4, 1, 5, -1]))
def test_a_lac_never_falls(carried: list[int]) -> None:
    known = -1
    for lac in carried:
        before, known = known, adding.lac_of_bookie(known, lac)
        assert known >= before
    assert known == 5


@pytest.mark.parametrize(
    ("pushed", "confirmed", "may"), [(-1, -1, True), (0, -1, True), (1, -1, False), (5, 4, True), (6, 4, False)]
)
def test_two_entries_may_be_in_flight(pushed: int, confirmed: int, may: bool) -> None:
    assert adding.may_append(pushed, confirmed, in_flight_limit=2) is may
    assert (adding.room(pushed, confirmed, in_flight_limit=2) > 0) is may


def test_deferred_sync() -> None:
    assert adding.lac_of_owner(confirmed=7, forced=3, deferred_sync=False) == 7
    assert adding.lac_of_owner(confirmed=7, forced=3, deferred_sync=True) == 3
    assert adding.is_forced("cab", "abc") and not adding.is_forced("ab", "abc")
    assert [adding.outlives_connection(pushed, 3, deferred_sync=True) for pushed in (2, 3, 4)] == [True, True, False]
    assert adding.outlives_connection(4, 3, deferred_sync=False)


# -- ensembles --------------------------------------------------------------------------------------------------------


def test_the_fragment_of_an_entry() -> None:
    fragments = (Fragment(0, (*"abc",)), Fragment(5, (*"abd",)), Fragment(9, (*"aed",)))
    firsts = [ensembles.fragment_of(fragments, entry_id).first_entry_id for entry_id in (0, 4, 5, 8, 9, 100)]
    assert firsts == [0, 0, 5, 5, 9, 9]


@pytest.mark.parametrize(
    ("failed", "candidates", "ensemble"),
    [
        ("", "abcd", "abc"),
        ("b", "abcd", "adc"),
        ("ac", "abcde", "dbe"),
        ("ac", "abcd", Unplaced.TOO_FEW),
        ("b", "", Unplaced.TOO_FEW),
        ("bd", "abcde", "aec"),
        ("ac", "ddde", "dbe"),
    ],
)
def test_failed_bookies_are_replaced_in_their_places(failed: str, candidates: str, ensemble: str | Unplaced) -> None:
    changed = placement.replaced("abc", failed, candidates)
    assert changed == (tuple(ensemble) if isinstance(ensemble, str) else ensemble)
    assert ensembles.needs_change("abc", failed) is bool(set("abc") & set(failed))


@pytest.mark.parametrize(
    ("candidates", "ensemble"),
    [("abcd", "abc"), ("cba", "cba"), ("ab", Unplaced.TOO_FEW), ("aab", Unplaced.TOO_FEW)],
)
def test_the_first_ensemble(candidates: str, ensemble: str | Unplaced) -> None:
    found = placement.chosen(candidates, 3)
    assert found == (tuple(ensemble) if isinstance(ensemble, str) else ensemble)


@given(quorum_sizes(), SOME, st.integers(0, 9))
def test_an_entry_may_be_committed_by_those_that_have_not_failed_it(
    sizes: tuple[str, int, int], failed: set[str], entry_id: int
) -> None:
    ensemble, write_quorum, ack_quorum = sizes
    asked = {*ensembles.write_set(entry_id, ensemble, write_quorum)}
    expected = len(asked - failed) >= ack_quorum
    assert ensembles.may_be_committed(len(asked & failed), write_quorum, ack_quorum) is expected


def test_bookies_that_failed_before_are_taken_last() -> None:
    assert placement.preferred("abcd", "bd") == ["a", "c", "b", "d"]


def test_a_change_of_ensemble_holds_from_the_entry_after_the_lac_on() -> None:
    first = (Fragment(0, ("a", "b")),)
    assert ensembles.with_ensemble(first, ("a", "c"), 0) == (Fragment(0, ("a", "c")),)
    second = ensembles.with_ensemble(first, ("a", "c"), 3)
    assert second == (Fragment(0, ("a", "b")), Fragment(3, ("a", "c")))
    with pytest.raises(ValueError, match="before the last one at 3"):
        ensembles.with_ensemble(second, ("d", "c"), 2)


@given(quorum_sizes(), st.integers(0, 20), SOME)
def test_after_a_change_the_new_bookies_of_a_write_set_are_asked(
    sizes: tuple[str, int, int], entry_id: int, failed: set[str]
) -> None:
    before, write_quorum, _ = sizes
    after = placement.replaced(before, failed, "vwxyz")
    assert not isinstance(after, Unplaced)
    asked = ensembles.newly_asked(entry_id, before, after, write_quorum)
    had = set(ensembles.write_set(entry_id, before, write_quorum))
    assert set(asked) == set(ensembles.write_set(entry_id, after, write_quorum)) - had
    assert len(asked) == len(had & failed), "whoever stays in its place keeps its entries"


def test_a_bookie_that_leaves_no_longer_counts() -> None:
    confirmed = frozenset("ab")
    assert ensembles.still_confirmed(confirmed, "b") == frozenset("a")
    assert ensembles.still_confirmed(confirmed, "b", Protections(confirmations_withdrawn=False)) == confirmed


# -- fencing and reading ----------------------------------------------------------------------------------------------


def test_which_answers_say_that_a_bookie_is_fenced_or_tell_its_lac() -> None:
    for code in (None, *Code):
        assert recovery.says_fenced(code) is (code in {Code.OK, *NEGATIVES})
        assert reading.says_lac(code) is (code in {Code.OK, *NEGATIVES})


def test_which_reads_fence() -> None:
    careless = Protections(recovery_reads_fence=False)
    assert recovery.is_fenced_by_read(True) and recovery.is_fenced_by_read(True, is_of_last_entry=True)
    assert not recovery.is_fenced_by_read(True, careless)
    assert recovery.is_fenced_by_read(True, careless, is_of_last_entry=True)
    assert not recovery.is_fenced_by_read(False) and not recovery.is_fenced_by_read(False, is_of_last_entry=True)


@pytest.mark.parametrize(
    ("stored", "known", "limbo", "unreadable", "code"),
    [
        (True, True, False, False, Code.OK),
        (False, True, False, False, Code.NO_ENTRY),
        (False, False, False, False, Code.NO_LEDGER),
        (True, True, True, False, Code.OK),
        (False, True, True, False, Code.UNKNOWN_LEDGER_STATE),
        (False, True, False, True, Code.IO_ERROR),
        (False, True, True, True, Code.IO_ERROR),
    ],
)
def test_what_a_bookie_answers_to_a_read(stored: bool, known: bool, limbo: bool, unreadable: bool, code: Code) -> None:
    assert reading.answer_to_read(stored=stored, known_ledger=known, limbo=limbo, unreadable=unreadable) is code
    if limbo and not stored and not unreadable:
        careless = Protections(limbo_is_unknown=False)
        assert (
            reading.answer_to_read(stored=stored, known_ledger=known, limbo=limbo, protections=careless)
            is Code.NO_ENTRY
        )


@pytest.mark.parametrize(
    ("known", "limbo", "unreadable", "code"),
    [
        (True, False, False, Code.OK),
        (False, False, False, Code.NO_LEDGER),
        (True, True, False, Code.UNKNOWN_LEDGER_STATE),
        (True, False, True, Code.IO_ERROR),
        (True, True, True, Code.UNKNOWN_LEDGER_STATE),
    ],
)
def test_what_a_bookie_answers_to_a_question_for_the_lac(
    known: bool, limbo: bool, unreadable: bool, code: Code
) -> None:
    assert reading.answer_to_read_lac(known_ledger=known, limbo=limbo, unreadable=unreadable) is code


@pytest.mark.parametrize(
    ("code", "intact", "outcome"),
    [
        (Code.OK, True, ReadOutcome.FOUND),
        (Code.OK, False, ReadOutcome.FAILED),
        (Code.NO_ENTRY, False, ReadOutcome.NEGATIVE),
        (Code.NO_LEDGER, False, ReadOutcome.NEGATIVE),
        (Code.UNKNOWN_LEDGER_STATE, False, ReadOutcome.FAILED),
        (Code.UNKNOWN_LEDGER_STATE, True, ReadOutcome.FAILED),
        (Code.IO_ERROR, False, ReadOutcome.FAILED),
        (Code.UNAUTHORIZED, False, ReadOutcome.REFUSED),
        (None, False, ReadOutcome.FAILED),
    ],
)
def test_what_an_answer_to_a_read_says(code: Code | None, intact: bool, outcome: ReadOutcome) -> None:
    assert reading.outcome_of_read(code, intact) is outcome


@given(quorum_sizes(), st.booleans(), SOME, SOME)
def test_a_recovery_read_is_negative_only_if_the_entry_can_not_be_committed(
    sizes: tuple[str, int, int], found: bool, negative: set[str], failed: set[str]
) -> None:
    ensemble, write_quorum, ack_quorum = sizes
    asked = set(ensemble[:write_quorum])
    negative &= asked
    failed = failed & asked - negative
    can_be_committed = any(not set(chosen) & negative for chosen in combinations(asked, ack_quorum))
    verdict = reading.recovery_read(found, negative, failed, asked, ack_quorum)
    if found:
        assert verdict is POSITIVE
    elif not can_be_committed:
        assert verdict is NEGATIVE
    else:
        assert verdict is (UNKNOWN if negative | failed == asked else WAITING)
    careless = Protections(negatives_cover_quorum=False)
    if negative and not found:
        assert reading.recovery_read(found, negative, failed, asked, ack_quorum, careless) is NEGATIVE
    if not found and negative != asked:
        assert reading.ordinary_read(found, negative, failed, asked) is (
            UNKNOWN if negative | failed == asked else WAITING
        )
    elif not found:
        assert reading.ordinary_read(found, negative, failed, asked) is NEGATIVE
    else:
        assert reading.ordinary_read(found, negative, failed, asked) is POSITIVE


@pytest.mark.parametrize(
    ("asked", "answered", "has_waited", "who"),
    [("", "", False, "a"), ("a", "", False, None), ("a", "", True, "b"), ("a", "a", False, "b"),
    ("ab", "a", False, None),
     ("abc", "ab", True, None), ("abc", "abc", False, None)],
)  # fmt: skip
def test_whom_a_reader_asks_next(asked: str, answered: str, has_waited: bool, who: str | None) -> None:
    assert reading.next_to_ask(asked, answered, "abc", has_waited) == who


@pytest.mark.parametrize(
    ("entry_id", "lac", "last_entry", "readable"),
    [
        (0, -1, None, False),
        (0, 0, None, True),
        (1, 0, None, False),
        (3, 0, 3, True),
        (4, 9, 3, False),
        (-1, 5, None, False),
    ],
)
def test_how_far_a_reader_may_read(entry_id: int, lac: int, last_entry: int | None, readable: bool) -> None:
    assert reading.is_readable(entry_id, lac, last_entry) is readable


def test_long_polls_end_with_a_higher_lac_or_a_fence() -> None:
    assert [reading.is_poll_over(lac, 3, fenced=False) for lac in (2, 3, 4)] == [False, False, True]
    assert reading.is_poll_over(3, 3, fenced=True)
    for code in Code:
        assert reading.answer_to_poll(code) is (Code.OK if code is Code.NO_ENTRY else code)


def test_an_entry_may_be_elsewhere_if_others_have_its_fragment_now() -> None:
    assert not reading.may_be_elsewhere("abc", "abc")
    assert reading.may_be_elsewhere("abc", "abd")


# -- recovery ---------------------------------------------------------------------------------------------------------


def test_recovery_starts_at_the_highest_lac_and_not_before_the_current_fragment() -> None:
    assert recovery.confirmed_before([3, 7, -1], first_entry_of_fragment=5) == 7
    assert recovery.confirmed_before([-1, -1], first_entry_of_fragment=5) == 4
    assert recovery.confirmed_before([], first_entry_of_fragment=0) == -1
    assert recovery.confirmed_before([-1, -1], 5, Protections(recovery_starts_at_fragment=False)) == -1


def test_recovery_reads_a_few_entries_ahead() -> None:
    assert [recovery.may_read_ahead(entry_id, decided=4, in_flight_limit=2) for entry_id in (5, 6, 7)] == [
        True,
        True,
        False,
    ]


def test_what_recovery_does_with_its_ensembles_and_its_lac() -> None:
    assert recovery.ensemble_to_read("abc", "abd") == "abc"
    assert recovery.ensemble_to_read("abc", "abd", Protections(recovery_reads_stay=False)) == "abd"
    assert recovery.keeps_fragments() and not recovery.keeps_fragments(Protections(recovery_keeps_fragments=False))
    assert recovery.lac_to_carry(began_at=3, confirmed=5) == 3
    assert recovery.lac_to_carry(began_at=3, confirmed=5, protections=Protections(recovery_freezes_lac=False)) == 5


@pytest.mark.parametrize(
    ("end_known", "unconfirmed", "may"), [(False, [], False), (True, [4], False), (True, [], True)]
)
def test_recovery_closes_when_all_is_read_and_written(end_known: bool, unconfirmed: list[int], may: bool) -> None:
    assert recovery.may_close(end_known, unconfirmed) is may
    careless = Protections(write_back_before_close=False)
    assert recovery.may_close(end_known, unconfirmed, careless) is end_known
    assert [verdict for verdict in Verdict if recovery.is_end(verdict)] == [NEGATIVE]


# -- metadata ---------------------------------------------------------------------------------------------------------

LEDGER = LedgerMetadata(3, 3, 2, (Fragment(0, ("a", "b", "c")),), password=b"p", creation_token=7)


def test_what_changes_make_of_the_metadata() -> None:
    changed = metadata.with_changed_ensemble(LEDGER, ("a", "d", "c"), lac=4)
    assert [fragment.first_entry_id for fragment in changed.fragments] == [0, 5]
    assert metadata.current_ensemble(changed) == ("a", "d", "c") and metadata.end_of(changed) is None
    assert metadata.marked_in_recovery(LEDGER) == LEDGER.replace(status=IN_RECOVERY)
    ended = metadata.closed(LEDGER, 9, 100, changed.fragments)
    assert (ended.status, ended.fragments, metadata.end_of(ended)) == (CLOSED, changed.fragments, 9)
    assert metadata.closed(LEDGER, 9, 100).fragments == LEDGER.fragments
    assert metadata.ends_at(ended, 9, 100)
    assert (
        not metadata.ends_at(ended, 9, 99)
        and not metadata.ends_at(ended, 8, 100)
        and not metadata.ends_at(LEDGER, -1, 0)
    )


def test_whose_ledger_it_is() -> None:
    assert metadata.is_own(LEDGER, 7) and not metadata.is_own(LEDGER, 8)
    assert metadata.may_open(LEDGER, b"p") and not metadata.may_open(LEDGER, b"q")


@pytest.mark.parametrize(
    ("rule", "nexts"),
    [
        (lambda status: metadata.to_change_ensemble(status, True), (Next.WRITE, Next.GIVE_UP, Next.GIVE_UP)),
        (lambda status: metadata.to_change_ensemble(status, False), (Next.DONE, Next.GIVE_UP, Next.GIVE_UP)),
        (lambda status: metadata.to_close(status, False), (Next.WRITE, Next.GIVE_UP, Next.GIVE_UP)),
        (lambda status: metadata.to_close(status, True), (Next.WRITE, Next.GIVE_UP, Next.DONE)),
        (metadata.to_start_recovery, (Next.WRITE, Next.WRITE, Next.DONE)),
        (lambda status: metadata.to_close_recovered(status, True), (Next.GIVE_UP, Next.WRITE, Next.DONE)),
        (lambda status: metadata.to_close_recovered(status, False), (Next.GIVE_UP, Next.GIVE_UP, Next.DONE)),
        (lambda status: metadata.to_announce_fragments(status, True), (Next.GIVE_UP, Next.WRITE, Next.GIVE_UP)),
        (lambda status: metadata.to_announce_fragments(status, False), (Next.GIVE_UP, Next.GIVE_UP, Next.GIVE_UP)),
    ],
)
def test_what_a_client_does_by_the_status_of_its_ledger(rule: object, nexts: tuple[Next, ...]) -> None:
    assert tuple(rule(status) for status in LedgerStatus) == nexts  # type: ignore[operator]


def test_metadata_are_settled_unless_a_change_of_them_may_yet_be_made() -> None:
    assert metadata.is_stable(3, None) and metadata.is_stable(3, 2), (
        "what was tried on version 2 was made, or cannot be any more"
    )
    assert not metadata.is_stable(3, 3)


def test_conditional_updates() -> None:
    careless = Protections(conditional_updates=False)
    assert metadata.takes_update(3, 3) and not metadata.takes_update(3, 4) and metadata.takes_update(3, 4, careless)
    assert metadata.to_close_recovered(IN_RECOVERY, False, careless) is Next.WRITE
    assert [metadata.to_create(*seen) for seen in ((False, False), (True, True), (True, False))] == list(Next)


def test_every_protection_is_on_by_default() -> None:
    assert all(getattr(ALL, name) is True for name in Protections._fields)


@given(st.integers(1, 50), st.integers(0, 60), st.integers(0, 60))
def test_as_many_lookups_begin_at_once_as_would_one_after_another(wanted: int, under_way: int, limit: int) -> None:
    begun = 0
    while begun < wanted and under_way + begun < limit:
        begun += 1
    assert reading.how_many_may_begin(wanted, under_way, limit) == begun


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=6), st.integers(0, 20))
def test_a_reader_asks_a_bookie_that_is_not_suspected_and_has_the_fewest_under_way(
    bookies: list[tuple[bool, int]], turn: int
) -> None:
    suspected, under_way = [each[0] for each in bookies], [each[1] for each in bookies]
    place = reading.least_asked(under_way, suspected, turn)
    assert bookies[place] == min(bookies)
    best = [each for each in range(len(bookies)) if bookies[each] == min(bookies)]
    assert {reading.least_asked(under_way, suspected, each) for each in range(len(bookies))} == {*best}
    in_turn = turn % len(bookies)
    assert place == in_turn or in_turn not in best


@given(st.integers(1, 200), st.integers(0, 200))
def test_entries_wait_only_for_answers_that_are_under_way_and_many_wait_for_none(wanted: int, under_way: int) -> None:
    assert not reading.may_wait(wanted, 0, 64) and not reading.may_wait(64 + wanted, under_way, 64)
    assert reading.may_wait(wanted, under_way, 64) == (wanted < under_way and wanted < 64)
