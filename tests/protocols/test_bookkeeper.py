"""The BookKeeper protocol against TLC's results for ``BookKeeperProtocol.tla``, and the need for each of its rules."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from campaigns import MANY_STATES, campaign_if
from protocols.results import result_of

from fencepost import ModelValue, OptionError, SearchOptions, action, check, invariant, require
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.protocols.bookkeeper.current import BookKeeper, ClientStatus, ReadResponse, ReadResult, RecoveryPhase
from fencepost.protocols.bookkeeper.ledger import AddEntryRequest, AddEntryResponse, Bookies, Ensemble, Entry

PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "bookkeeper.md"

DATA_LOSS = "no_divergence_between_client_and_meta_data"
UNREADABLE = "all_acked_entries_are_readable"

# TLC's counts: bookies, clients, write quorum, ack quorum, send limit, inflight limit, distinct states, depth.
HOLDS = [
    (5, 1, 2, 2, 1, 1, 725, 12),
    (5, 1, 2, 1, 1, 1, 789, 12),
    (2, 1, 2, 1, 2, 2, 1_305, 13),
    (3, 1, 2, 2, 2, 1, 1_711, 19),
    (1, 2, 1, 1, 2, 1, 2_167, 21),
    (4, 1, 3, 2, 1, 1, 2_233, 13),
    (2, 2, 1, 1, 1, 1, 6_123, 25),
    (2, 2, 1, 1, 2, 1, 21_531, 27),
    (1, 3, 1, 1, 1, 1, 84_019, 31),
    (2, 2, 2, 1, 1, 1, 285_773, 28),
    (3, 1, 2, 1, 2, 2, 432_917, 25),
    (2, 2, 2, 2, 1, 1, 1_795_149, 27),
    (2, 3, 1, 1, 1, 1, 1_895_575, 40),
]

# The same for the specification without needless waits: a deciding response sets the messages once, timeouts concern
# the current entry, and confirmations count from the LAC on.
GOES_ON = [
    (1, 2, 1, 1, 2, 1, 2_179, 22),
    (2, 2, 1, 1, 2, 1, 21_711, 28),
    (2, 2, 2, 1, 1, 1, 712_085, 28),
]

# TLC's counts of the levels up to a depth: bookies, clients, write quorum, ack quorum, send limit, inflight limit,
# distinct states, depth.
BEGINNINGS = [
    (3, 2, 2, 1, 1, 1, 9_637, 9),
    (4, 2, 3, 2, 1, 1, 18_687, 7),
    (2, 3, 2, 2, 2, 2, 49_900, 7),
]

# The first violation and its number of states, or else the distinct states. The four with a disabled protection and
# message loss are as long as TLC's for the specification without it, with and without needless waits.
CONFIGURATIONS: dict[str, Any] = {
    "small": 285_773,
    "one-copy": 6_123,
    "prompt-recovery": 712_085,
    "striped": 1_072_927,
    "any-ensemble": 283_339,
    "any-stripes": 12_661,
    "sent-again": 1_809,
    "reader": 111_649,
    "reader-of-two-entries": 16_423,
    "frozen-lac": 16_853,
    "recovered-twice": 266_437,
    "as-the-store": 86_263,
    "reads-without-fencing": 14,
    "reads-without-fencing-by-delay": 14,
    "hasty-negatives": 14,
    "reads-move-on": 23,
    "fragments-at-once": 13,
}


def protocol(
    bookies: int, clients: int, wq: int, aq: int, sends: int = 1, inflight: int = 1, **more: Any
) -> BookKeeper:
    return BookKeeper(
        bookies=bookies,
        clients=clients,
        write_quorum=wq,
        ack_quorum=aq,
        send_limit=sends,
        inflight_limit=inflight,
        **more,
    )


def by_states(rows: Sequence[tuple[int, ...]]) -> list[Any]:
    """The rows. Those with many states are campaigns."""
    return [pytest.param(row, marks=[pytest.mark.campaign] if row[6] > MANY_STATES else []) for row in rows]


# -- the original -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", by_states(HOLDS), ids=str)
def test_counts(row: tuple[int, ...]) -> None:
    result = result_of(protocol(*row[:6])).must_hold()
    assert (result.distinct_states, result.depth) == row[6:]


def test_the_page_has_these_counts_and_every_constant() -> None:
    rows = [re.sub(r"[ |]+", " ", line).split() for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert [row for row in rows if len(row) == 8 and row[0].isdigit()] == [[f"{n:,}" for n in row] for row in HOLDS]
    assert [row[0].strip("`") for row in rows if row[0].startswith("`")] == list(BookKeeper().constants)


def test_plain_python_agrees() -> None:
    shallow = SearchOptions(workers=1, max_depth=6)
    plain, compiled = (check(protocol(2, 2, 2, 1), engine=e, options=shallow) for e in ("reference", "embedded"))
    assert plain.distinct_states == compiled.distinct_states == 821
    assert plain.actions == compiled.actions


@pytest.mark.parametrize("row", BEGINNINGS, ids=str)
def test_beginnings(row: tuple[int, ...]) -> None:
    result = check(protocol(*row[:6]), options=SearchOptions(max_depth=row[7]))
    assert (result.distinct_states, result.depth) == row[6:]


def test_the_defaults_are_the_published_configuration() -> None:
    assert BookKeeper.configured("published").constants == BookKeeper().constants
    given = BookKeeper().constants
    assert (len(given["bookies"]), len(given["clients"]), given["write_quorum"], given["ack_quorum"]) == (4, 2, 3, 2)
    assert (given["send_limit"], given["inflight_limit"]) == (1, 1)


def test_every_action_is_taken() -> None:
    result = check(protocol(2, 2, 1, 1, readers=1)).must_hold()
    assert len(result.actions) == 24
    assert [a.name for a in result.actions if not a.taken] == []


@pytest.mark.parametrize(
    ("constants", "broken"),
    [
        ({"send_limit": 0}, "something_is_sent"),
        ({"ack_quorum": 0}, "quorums_are_positive"),
        ({"write_quorum": 1}, "ack_quorum_within_write_quorum"),
        ({"ensemble_size": 2}, "write_quorum_within_ensemble"),
        ({"bookies": 2}, "enough_bookies_for_an_ensemble"),
        ({"ensemble_size": 5}, "enough_bookies_for_an_ensemble"),
        ({"bookies": "b1,c1,b2"}, "everybody_is_one"),
    ],
)
def test_constants_that_make_no_sense_are_refused(constants: dict[str, Any], broken: str) -> None:
    assert check(BookKeeper(**constants)).verdict == broken


# -- named configurations ---------------------------------------------------------------------------------------------


def test_every_named_configuration_is_checked() -> None:
    assert set(BookKeeper.configurations) == {*CONFIGURATIONS, "published"}


FOUND_LATE = {"any-stripes", "frozen-lac", "reads-move-on"}
"""Configurations that are violated after many states."""


@pytest.mark.parametrize(
    "name", campaign_if(lambda name: CONFIGURATIONS[name] > MANY_STATES or name in FOUND_LATE, CONFIGURATIONS)
)
def test_named_configurations(name: str) -> None:
    expected = BookKeeper.configurations[name].expect
    result = result_of(BookKeeper.configured(name))
    assert result.verdict == expected
    assert (result.distinct_states if expected == "holds" else len(result.must_violate(expected))) == CONFIGURATIONS[
        name
    ]


def test_fragments_told_at_once_lose_what_the_next_recovery_does_not_find() -> None:
    checked = BookKeeper.configured("fragments-at-once", clients=3)
    assert len(check(checked, invariants=[DATA_LOSS]).must_violate(DATA_LOSS)) == 20


@pytest.mark.parametrize(
    "protection", ["recovery_reads_fence", "strict_negative_reads", "recovery_reads_stay", "recovery_keeps_fragments"]
)
def test_every_protection_is_switched_off_somewhere_and_needed_there(protection: str) -> None:
    """A property violated without it holds with it, all else equal."""
    off = [name for name, c in BookKeeper.configurations.items() if c.constants.get(protection) is False]
    for name in off:
        assert BookKeeper.configurations[name].expect != "holds"
        result = check(
            BookKeeper.configured(name, **{protection: True}), options=SearchOptions(max_depth=CONFIGURATIONS[name])
        )
        assert not result.violations
    assert off


def test_the_data_loss_is_told_from_end_to_end() -> None:
    trace = result_of(BookKeeper.configured("reads-without-fencing")).must_violate(DATA_LOSS)
    last: Any = trace.states[-1].variables()
    assert last["meta"].status is LedgerStatus.CLOSED
    assert last["meta"].last_entry == 0
    assert max(client.lac for client in last["client"].values()) == 1
    assert all(Entry(1, 1) in bookie.entries for bookie in last["bookie"].values())


# -- without needless waits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", by_states(GOES_ON), ids=str)
def test_counts_where_recovery_goes_on(row: tuple[int, ...]) -> None:
    result = result_of(protocol(*row[:6], recovery_waits_needlessly=False)).must_hold()
    assert (result.distinct_states, result.depth) == row[6:]


def test_needless_waits_hide_the_data_loss_where_nothing_is_lost_on_the_way() -> None:
    checked = protocol(2, 2, 2, 2, recovery_reads_fence=False, message_loss=False)
    assert check(checked).must_hold().distinct_states == 2_409


class FinishesBeyondItsFirstLac(BookKeeper):
    """Shows that a client that begins recovery after the first entry can write back the second and close the ledger."""

    @invariant(c=BookKeeper.clients)
    def never_so(self, c: ModelValue) -> bool:
        return not (self.client[c].status is ClientStatus.CLOSED and self.client[c].written_back == frozenset({2}))


@pytest.mark.parametrize(("waits", "verdict"), [(True, "holds"), (False, "never_so")])
def test_recovery_counts_confirmations_from_its_lac_on(waits: bool, verdict: str) -> None:
    checked = FinishesBeyondItsFirstLac(
        bookies=1, write_quorum=1, ack_quorum=1, send_limit=2, recovery_waits_needlessly=waits
    )
    assert check(checked).verdict == verdict


# -- larger ensembles -------------------------------------------------------------------------------------------------

B = tuple(ModelValue(f"b{i}", i - 1) for i in range(1, 6))


def test_an_ensemble_of_the_write_quorum_is_no_ensemble_of_its_own() -> None:
    result = check(protocol(2, 2, 1, 1, ensemble_size=1)).must_hold()
    assert (result.distinct_states, result.depth) == (6_123, 25)


def test_entries_are_striped() -> None:
    striped = protocol(3, 2, 2, 1, ensemble_size=3)
    write_sets = [striped._write_set(entry_id, B[:3]) for entry_id in (1, 2, 3, 4)]
    assert write_sets == [{B[1], B[2]}, {B[2], B[0]}, {B[0], B[1]}, {B[1], B[2]}]


class Watched(BookKeeper):
    """Adds the property that fencing ensures."""

    @invariant(c=BookKeeper.clients)
    def reads_begin_when_no_ack_quorum_is_unfenced(self, c: ModelValue) -> bool:
        client = self.client[c]
        if client.recovery_phase is not RecoveryPhase.READ_WRITE:
            return True
        return sum(not self.bookie[b].fenced for b in client.recovery_ensemble) < self.ack_quorum


class FencesAWriteSet(Watched):
    """Recovery waits for quorum coverage where it must wait for ensemble coverage."""

    def _covers(self, bookies: Bookies, cohort: Ensemble) -> bool:
        return len(bookies) > self.write_quorum - self.ack_quorum


STRIPED = BookKeeper.configurations["striped"].constants
COVERED = "reads_begin_when_no_ack_quorum_is_unfenced"


def test_fencing_covers_the_ensemble() -> None:
    assert check(Watched(**{**STRIPED, "send_limit": 1}), invariants=[COVERED])
    assert check(FencesAWriteSet(**{**STRIPED, "send_limit": 1}), invariants=[COVERED]).must_violate(COVERED)


def test_reads_that_fence_make_up_for_it() -> None:
    """Fencing fewer bookies than the ensemble needs loses nothing, as long as recovery reads fence."""
    given = {**STRIPED, "send_limit": 1}
    others = [i.name for i in BookKeeper.declared("invariant")]
    assert check(FencesAWriteSet(**given), invariants=others)
    assert check(FencesAWriteSet(**given, recovery_reads_fence=False), invariants=others).must_violate(DATA_LOSS)


class KeepsPlaces(BookKeeper):
    """Shows that a change of ensemble keeps the positions of all other bookies."""

    @invariant(c=BookKeeper.clients)
    def everybody_else_stays(self, c: ModelValue) -> bool:
        places = [dict(enumerate(fragment.ensemble)) for fragment in self.client[c].fragments]
        return all(
            b not in after.values() or after[place] == b
            for before, after in pairwise(places)
            for place, b in before.items()
        )


def test_a_replacement_takes_the_place_of_who_failed() -> None:
    checked = KeepsPlaces(**protocol(3, 1, 1, 1, 2, 2, ensemble_size=2).constants)
    result = check(checked).must_hold()
    assert (result.distinct_states, result.depth) == (3_417, 28)


# -- any ensemble -----------------------------------------------------------------------------------------------------


def test_where_there_is_one_ensemble_there_is_nothing_to_choose() -> None:
    result = check(protocol(2, 2, 2, 1, choose_ensembles=True)).must_hold()
    assert (result.distinct_states, result.depth) == (285_773, 28)


def test_every_ensemble_is_chosen_somewhere() -> None:
    def first_steps(**constants: Any) -> int:
        checked = protocol(4, 1, 2, 1, **constants)
        return check(checked, engine="reference", options=SearchOptions(max_depth=2)).distinct_states - 1

    assert first_steps() == 1
    assert first_steps(choose_ensembles=True) == 6


# -- ordinary reads ---------------------------------------------------------------------------------------------------


class BelievesTheFirst(BookKeeper):
    """A reader that trusts one bookie that an entry does not exist."""

    @action(r=BookKeeper.readers, b=BookKeeper.bookies)
    def reader_receives_read_response(self, r: ModelValue, b: ModelValue) -> None:
        reader = self.reader[r]
        require(reader.result is None and b in reader.asked)
        response = self.network.receive(ReadResponse, source=b, to=r).message
        reader.result = ReadResult.OK if response.entry is not None else ReadResult.NO_SUCH_ENTRY


def test_a_reader_has_to_ask_all_before_it_believes_that_there_is_no_such_entry() -> None:
    given: dict[str, Any] = {"bookies": 2, "clients": 1, "readers": 1, "write_quorum": 2, "ack_quorum": 1}
    assert check(BookKeeper(**given))
    assert check(BelievesTheFirst(**given)).must_violate("no_committed_entry_is_missing")


def test_a_reader_that_nobody_answers_gives_up() -> None:
    result = check(protocol(2, 1, 2, 1, readers=1)).must_hold()
    assert next(a.taken for a in result.actions if a.name == "reader_gives_up")
    result = check(protocol(2, 1, 2, 1, readers=1, message_loss=False)).must_hold()
    assert not next(a.taken for a in result.actions if a.name == "reader_gives_up")


# -- the need for each invariant: a protocol without one rule ---------------------------------------------------------


class ConfirmsWhatItDoesNotStore(BookKeeper):
    """A bookie confirms an entry and forgets it."""

    @action(b=BookKeeper.bookies, c=BookKeeper.clients, by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, c: ModelValue) -> None:
        add = self.network.receive(AddEntryRequest, source=c, to=b).message
        require(add.recovery or not self.bookie[b].fenced)
        self.network.send(AddEntryResponse(add.entry, add.recovery, success=True), b, c)


class StoresUnderTheWrongId(BookKeeper):
    """A bookie files every entry as the first."""

    @action(b=BookKeeper.bookies, c=BookKeeper.clients, by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, c: ModelValue) -> None:
        add = self.network.receive(AddEntryRequest, source=c, to=b).message
        self.bookie[b].entries |= {Entry(1, add.entry.data)}
        self.network.send(AddEntryResponse(add.entry, add.recovery, success=True), b, c)


class StoresWhatWasNeverSent(BookKeeper):
    """A bookie stores an entry with an id that no entry has."""

    @action(b=BookKeeper.bookies, c=BookKeeper.clients, by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, c: ModelValue) -> None:
        add = self.network.receive(AddEntryRequest, source=c, to=b).message
        self.bookie[b].entries |= {Entry(self.send_limit + 1, add.entry.data)}
        self.network.send(AddEntryResponse(add.entry, add.recovery, success=True), b, c)


@pytest.mark.parametrize(
    ("broken", "constants", "violated"),
    [
        (ConfirmsWhatItDoesNotStore, {"ack_quorum": 1}, UNREADABLE),
        (ConfirmsWhatItDoesNotStore, {"ack_quorum": 1}, "all_committed_entries_reach_ack_quorum"),
        (StoresUnderTheWrongId, {"ack_quorum": 1, "send_limit": 2}, "no_out_of_order_entries"),
        (StoresWhatWasNeverSent, {"ack_quorum": 1}, "type_ok"),
    ],
)
def test_a_rule_left_out_is_found(broken: type[BookKeeper], constants: dict[str, Any], violated: str) -> None:
    checked = broken(**{"bookies": 2, "write_quorum": 2, **constants})
    result = check(checked, invariants=[violated], options=SearchOptions(workers=1, max_states=300_000))
    assert result.must_violate(violated)


def test_counts_up_to_symmetry() -> None:
    """TLC's count with SYMMETRY over clients and bookies."""
    small = BookKeeper(bookies=2, clients=2, write_quorum=2, ack_quorum=1)
    result = check(small, symmetry=True).must_hold()
    assert (result.distinct_states, result.depth) == (71_528, 28)


@pytest.mark.parametrize("constants", [{}, {"choose_ensembles": True, "ensemble_size": 4}])
def test_bookies_differ_where_their_order_decides(constants: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="bookies"):
        check(BookKeeper(**constants), symmetry=True)
    check(BookKeeper(choose_ensembles=True), symmetry=True, max_states=100)
