"""The BookKeeper 4.13 protocol against TLC's results for ``BookKeeperProtocol_v4_13.tla``."""

from pathlib import Path
from typing import Any

import pytest
from campaigns import MANY_STATES, campaign_if
from protocols.results import result_of

from fencepost import ModelValue, SearchOptions, action, check, require
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.protocols.bookkeeper.ledger import Entry
from fencepost.protocols.bookkeeper.v4_13 import W1, W2, AddEntryRequest, AddEntryResponse, BookKeeper413

PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "bookkeeper-4.13.md"

DATA_LOSS = "no_divergence_between_writer_and_meta_data"
INVALID_FRAGMENT = "only_valid_fragments"

# TLC's counts: bookies, write quorum, ack quorum, send limit, recovery reads fence, message loss, distinct states,
# depth. Without message loss: the published specification with the lost copies of messages struck out. The last row is
# from an independent port, as TLC does not finish it in reasonable time.
HOLDS = [
    (1, 1, 1, 1, False, True, 259, 19),
    (1, 1, 1, 2, False, True, 2_475, 28),
    (2, 1, 1, 1, True, True, 1_307, 25),
    (3, 1, 1, 1, True, True, 1_307, 25),
    (2, 2, 1, 1, False, True, 12_973, 28),
    (2, 2, 1, 1, True, True, 12_973, 28),
    (2, 2, 2, 1, True, True, 37_817, 29),
    (3, 3, 2, 1, True, False, 57_113, 39),
    (3, 2, 1, 1, True, True, 356_965, 34),
    (3, 2, 2, 1, True, True, 539_313, 35),
    (3, 3, 2, 1, True, True, 3_505_063, 38),
]

# TLC's findings with one worker: bookies, write quorum, ack quorum, send limit, recovery reads fence, recover from
# current fragment, message loss, violated property, states in the shortest trace. Not from the current fragment: the
# published specification with 0 for the minimum LAC.
VIOLATED = [
    (2, 2, 2, 1, False, True, True, DATA_LOSS, 16),
    (2, 2, 2, 1, False, True, False, DATA_LOSS, 16),
    (3, 3, 2, 1, False, True, False, DATA_LOSS, 20),
    (3, 3, 2, 1, False, True, True, DATA_LOSS, 20),
    (3, 1, 1, 2, True, False, True, INVALID_FRAGMENT, 18),
    (3, 2, 1, 1, True, False, True, INVALID_FRAGMENT, 21),
]

# TLC's counts of the levels up to a depth: bookies, write quorum, ack quorum, send limit, depth, distinct states.
BEGINNINGS = [
    (3, 2, 1, 1, 11, 14_549),
    (4, 2, 1, 1, 11, 14_549),
    (4, 2, 1, 2, 11, 455_893),
]

CONFIGURATIONS: dict[str, Any] = {
    "published": 20,
    "fixed": 3_505_063,
    "small": 12_973,
    "two-entries": 43_971,
    "three-copies": 12_473,
    "medium": 539_313,
    "defect-1-small": 16,
    "defect-1-by-delay": 20,
    "defect-2": 18,
    "defect-2-one-entry": 21,
    "defect-2-fixed": 356_965,
}


def protocol(bookies: int, write_quorum: int, ack_quorum: int, send_limit: int = 1, **constants: Any) -> BookKeeper413:
    return BookKeeper413(
        bookies=bookies, write_quorum=write_quorum, ack_quorum=ack_quorum, send_limit=send_limit, **constants
    )


@pytest.mark.parametrize(
    ("bookies", "wq", "aq", "sends", "fence", "loss", "distinct", "depth"),
    campaign_if(lambda row: row[6] > MANY_STATES, HOLDS),
)
def test_counts(bookies: int, wq: int, aq: int, sends: int, fence: bool, loss: bool, distinct: int, depth: int) -> None:
    result = result_of(protocol(bookies, wq, aq, sends, recovery_reads_fence=fence, message_loss=loss)).must_hold()
    assert (result.distinct_states, result.depth) == (distinct, depth)
    never = {a.name for a in result.actions if not a.taken}
    assert {"w1_tries_invalid_ensemble_change", "w2_tries_invalid_ensemble_change"} <= never


def test_plain_python_agrees() -> None:
    """With one bookie completely, with two to a depth."""
    result = check(protocol(1, 1, 1), engine="reference").must_hold()
    assert (result.distinct_states, result.depth) == (259, 19)
    shallow = SearchOptions(workers=1, max_depth=6)
    plain, compiled = (check(protocol(2, 2, 2), engine=e, options=shallow) for e in ("reference", "embedded"))
    assert plain.distinct_states == compiled.distinct_states == 427
    assert plain.actions == compiled.actions


@pytest.mark.parametrize(
    ("bookies", "wq", "aq", "sends", "fence", "current", "loss", "violated", "length"),
    campaign_if(lambda row: row[:2] == (3, 3), VIOLATED),
)
def test_defects(
    bookies: int, wq: int, aq: int, sends: int, fence: bool, current: bool, loss: bool, violated: str, length: int
) -> None:
    checked = protocol(
        bookies,
        wq,
        aq,
        sends,
        recovery_reads_fence=fence,
        recover_from_current_fragment=current,
        message_loss=loss,
    )
    result = result_of(checked)
    assert [v.name for v in result.violations] == [violated]
    assert len(result.must_violate(violated)) == length


@pytest.mark.parametrize(
    ("bookies", "wq", "aq", "sends", "depth", "distinct"), campaign_if(lambda row: row[5] > MANY_STATES, BEGINNINGS)
)
def test_beginnings(bookies: int, wq: int, aq: int, sends: int, depth: int, distinct: int) -> None:
    checked = protocol(bookies, wq, aq, sends, recovery_reads_fence=True)
    result = check(checked, options=SearchOptions(max_depth=depth))
    assert (result.distinct_states, result.depth) == (distinct, depth)


def test_every_named_configuration_is_checked() -> None:
    assert set(BookKeeper413.configurations) == set(CONFIGURATIONS)


def test_the_page_has_these_numbers_and_every_constant() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    counted = [[cell.strip("`") for cell in row] for row in rows if row[0].isdigit()]
    assert counted == [[shown(value) for value in row] for row in (*HOLDS, *VIOLATED)]
    named = {name.strip("`"): row for name, *row in rows if name.startswith("`")}
    constants = {**BookKeeper413().constants, "bookies": len(BookKeeper413().bookies)}
    assert {name: named[name][0] for name in constants} == {name: shown(value) for name, value in constants.items()}
    assert {name: named[name][-1] for name in CONFIGURATIONS} == {name: shown(n) for name, n in CONFIGURATIONS.items()}


def shown(value: Any) -> str:
    """A value of a table in the form of the page."""
    return ("no", "yes")[value] if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else str(value)


def test_counts_up_to_symmetry() -> None:
    result = check(BookKeeper413.configured("fixed"), symmetry=True).must_hold()
    assert (result.distinct_states, result.depth) == (603_189, 38)


@pytest.mark.parametrize("name", campaign_if(lambda name: CONFIGURATIONS[name] > MANY_STATES, CONFIGURATIONS))
def test_named_configurations(name: str) -> None:
    result = result_of(BookKeeper413.configured(name))
    assert result.verdict == BookKeeper413.configurations[name].expect
    found = len(result.violation.trace or ()) if result.violation else result.distinct_states
    assert found == CONFIGURATIONS[name]


def test_every_action_but_one_is_taken() -> None:
    """The exception is unreachable. Its docstring says why."""
    result = result_of(BookKeeper413.configured("defect-2-one-entry"))
    assert len(result.actions) == 25
    assert [a.name for a in result.actions if not a.taken] == ["w1_tries_invalid_ensemble_change"]


def test_the_data_loss_is_told_from_end_to_end() -> None:
    trace = result_of(BookKeeper413.configured("defect-1-small")).must_violate(DATA_LOSS)
    assert trace.steps[0].title == "w1_creates_ledger"
    assert {step.by for step in trace.steps} == {"w1", "w2", "b1", "b2"}
    last: Any = trace.states[-1].variables()
    assert last["w1"].lac == 1
    assert last["meta"].status is LedgerStatus.CLOSED
    assert last["meta"].last_entry == 0
    # An entry that was acknowledged, and is stored, beyond the end of the ledger.
    assert all(Entry(1, 1) in bookie.entries for bookie in last["bookie"].values())


@pytest.mark.parametrize(
    ("constants", "broken"),
    [
        ({"send_limit": 0}, "something_is_sent"),
        ({"ack_quorum": 0}, "quorums_are_positive"),
        ({"write_quorum": 1}, "ack_quorum_within_write_quorum"),
        ({"bookies": 2}, "enough_bookies_for_an_ensemble"),
        ({"bookies": "b1,w1,b2"}, "bookies_are_not_writers"),
    ],
)
def test_constants_that_make_no_sense_are_refused(constants: dict[str, Any], broken: str) -> None:
    result = check(BookKeeper413(**constants))
    assert result.verdict == broken
    assert result.exit_code == 10


# -- the need for each invariant: a protocol without one rule ---------------------------------------------------------


class ConfirmsWhatItDoesNotStore(BookKeeper413):
    """A bookie confirms an entry and forgets it."""

    @action(b=BookKeeper413.bookies, w=(W1, W2), by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, w: ModelValue) -> None:
        add = self.network.receive(AddEntryRequest, source=w, to=b).message
        require(w == W2 or not self.bookie[b].fenced)
        self.network.send(AddEntryResponse(add.entry, success=True), b, w)


class StoresUnderTheWrongId(BookKeeper413):
    """A bookie files every entry as the first."""

    @action(b=BookKeeper413.bookies, w=(W1, W2), by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, w: ModelValue) -> None:
        add = self.network.receive(AddEntryRequest, source=w, to=b).message
        require(w == W2 or not self.bookie[b].fenced)
        self.bookie[b].entries |= {Entry(1, add.entry.data)}
        self.network.send(AddEntryResponse(add.entry, success=True), b, w)


class StoresWhatWasNeverSent(BookKeeper413):
    """A bookie stores an entry with an id that no entry has."""

    @action(b=BookKeeper413.bookies, w=(W1, W2), by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, w: ModelValue) -> None:
        add = self.network.receive(AddEntryRequest, source=w, to=b).message
        self.bookie[b].entries |= {Entry(self.send_limit + 1, add.entry.data)}
        self.network.send(AddEntryResponse(add.entry, success=True), b, w)


@pytest.mark.parametrize(
    ("broken", "constants", "violated"),
    [
        (ConfirmsWhatItDoesNotStore, {"ack_quorum": 1}, "all_committed_entries_reach_ack_quorum"),
        (StoresUnderTheWrongId, {"ack_quorum": 1, "send_limit": 2}, "no_out_of_order_entries"),
        (StoresWhatWasNeverSent, {"ack_quorum": 1}, "type_ok"),
    ],
)
def test_a_rule_left_out_is_found(broken: type[BookKeeper413], constants: dict[str, Any], violated: str) -> None:
    checked = broken(bookies=2, write_quorum=2, recovery_reads_fence=True, **constants)
    result = check(checked, invariants=[violated], options=SearchOptions(workers=1, max_states=100_000))
    assert result.must_violate(violated)
