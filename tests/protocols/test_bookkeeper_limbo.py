"""BookKeeper without the journal, against TLC's results for ``BookKeeperProtocolWithLimbo.tla``."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from campaigns import MANY_STATES, THOROUGH, campaign_if
from protocols import results

from fencepost import ModelValue, Options, SearchOptions, State, Trace, action, check, require
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.protocols.bookkeeper.ledger import AddEntryRequest, AddEntryResponse, Entry
from fencepost.protocols.bookkeeper.limbo import BookKeeperLimbo

DATA_LOSS = "no_divergence_between_client_and_meta_data"

# TLC's counts: bookies, clients, write quorum, ack quorum, send limit, when bookies may crash (o: while the ledger
# is open, r: in recovery, c: closed), distinct states, depth.
HOLDS = [
    (1, 2, 1, 1, 1, "", 499, 19),
    (1, 2, 1, 1, 1, "orc", 1_167, 20),
    (1, 2, 1, 1, 2, "orc", 12_217, 29),
    (1, 3, 1, 1, 1, "orc", 63_028, 32),
    (2, 1, 2, 1, 1, "orc", 207, 9),
    (2, 1, 2, 1, 2, "orc", 6_203, 14),
    (2, 2, 1, 1, 1, "orc", 8_907, 25),
    (2, 2, 2, 1, 1, "orc", 97_065, 29),
    (2, 2, 2, 1, 1, "rc", 94_857, 29),
    (2, 2, 2, 1, 1, "oc", 54_933, 29),
    (2, 2, 2, 1, 1, "or", 97_065, 29),
    (2, 2, 2, 1, 1, "", 24_029, 28),
    (3, 2, 1, 1, 1, "orc", 19_457, 28),
]

# The same, for those that take more than a second.
LARGER = [
    (2, 2, 2, 2, 1, "orc", 295_445, 30),
    (3, 2, 2, 1, 1, "", 473_781, 33),
    (2, 3, 1, 1, 1, "orc", 1_048_750, 40),
    (1, 3, 1, 1, 2, "orc", 1_730_701, 47),
    (3, 2, 2, 1, 1, "orc", 2_748_849, 34),
]

SMALL = [row for row in HOLDS if row[6] < 1_000]

# TLC's counts of the levels up to a depth: bookies, clients, write quorum, ack quorum, send limit, depth, distinct
# states.
BEGINNINGS = [
    (2, 2, 2, 1, 2, 11, 260_397),
    (2, 3, 2, 1, 1, 9, 243_535),
    (3, 1, 2, 1, 2, 11, 213_762),
    (3, 2, 2, 1, 2, 9, 326_307),
]

# With one of two protections disabled: bookies, write quorum, ack quorum, when bookies may crash, the remaining
# protection, and the states in TLC's shortest trace, or None.
ONE_PROTECTION = [
    (1, 1, 1, "orc", "limbo", 13),
    (1, 1, 1, "orc", "fence", 13),
    (2, 2, 1, "orc", "limbo", 17),
    (2, 2, 1, "orc", "fence", 17),
    (2, 2, 2, "orc", "limbo", 17),
    (2, 2, 2, "orc", "fence", 17),
    (2, 2, 1, "c", "limbo", 17),
    (2, 2, 1, "o", "limbo", None),
    (2, 2, 1, "c", "fence", None),
]

result_of = partial(results.result_of, options=Options(workers=1))


def protocol(
    bookies: int, clients: int, wq: int, aq: int, sends: int, crashes: str = "orc", **constants: Any
) -> BookKeeperLimbo:
    return BookKeeperLimbo(
        bookies=bookies,
        clients=clients,
        write_quorum=wq,
        ack_quorum=aq,
        send_limit=sends,
        allow_crash_when_ledger_open="o" in crashes,
        allow_crash_when_ledger_in_recovery="r" in crashes,
        allow_crash_when_ledger_closed="c" in crashes,
        **constants,
    )


@pytest.mark.parametrize(
    ("bookies", "clients", "wq", "aq", "sends", "crashes", "distinct", "depth"),
    campaign_if(lambda row: row[6] > MANY_STATES, HOLDS + (LARGER if THOROUGH else LARGER[:2])),
)
def test_counts(
    bookies: int, clients: int, wq: int, aq: int, sends: int, crashes: str, distinct: int, depth: int
) -> None:
    result = result_of(protocol(bookies, clients, wq, aq, sends, crashes)).must_hold()
    assert (result.distinct_states, result.depth) == (distinct, depth)


@pytest.mark.parametrize(("bookies", "clients", "wq", "aq", "sends", "crashes", "distinct", "depth"), SMALL)
def test_counts_in_plain_python(
    bookies: int, clients: int, wq: int, aq: int, sends: int, crashes: str, distinct: int, depth: int
) -> None:
    result = check(protocol(bookies, clients, wq, aq, sends, crashes), engine="reference").must_hold()
    assert (result.distinct_states, result.depth) == (distinct, depth)


@pytest.mark.parametrize(
    ("bookies", "clients", "wq", "aq", "sends", "depth", "distinct"),
    campaign_if(lambda row: row[6] > MANY_STATES, BEGINNINGS),
)
def test_beginnings(bookies: int, clients: int, wq: int, aq: int, sends: int, depth: int, distinct: int) -> None:
    result = check(protocol(bookies, clients, wq, aq, sends), options=SearchOptions(workers=1, max_depth=depth))
    assert (result.distinct_states, result.depth) == (distinct, depth)


@pytest.mark.parametrize(
    ("bookies", "wq", "aq", "crashes", "left", "length"), campaign_if(lambda row: row[2] == 2, ONE_PROTECTION)
)
def test_one_protection_is_not_enough(
    bookies: int, wq: int, aq: int, crashes: str, left: str, length: int | None
) -> None:
    taken_away = {"fence": "limbo_on_unclean_shutdown", "limbo": "fence_on_unclean_shutdown"}[left]
    result = result_of(protocol(bookies, 2, wq, aq, 1, crashes, **{taken_away: False}))
    if length is None:
        result.must_hold()
    else:
        assert len(result.must_violate(DATA_LOSS)) == length


@pytest.mark.campaign
def test_scenario_1_is_not_found_in_the_size_that_bp_46_tells_it_in() -> None:
    """A recovery read that finds nothing waits for all three and fences them. One that forgets is no ack quorum."""
    told = protocol(3, 2, 3, 2, 1, "c", fence_on_unclean_shutdown=False)
    assert check(told, symmetry=True).must_hold().distinct_states == 582_083


@pytest.mark.skipif(not THOROUGH, reason="half a minute")
def test_in_that_size_fencing_is_needed_during_recovery() -> None:
    told = protocol(3, 2, 3, 2, 1, "orc", fence_on_unclean_shutdown=False)
    assert len(check(told, symmetry=True).must_violate(DATA_LOSS)) == 21


CONFIGURATIONS = {
    "protected": 97_065,
    "three-bookies": 473_781,
    "two-entries": 1_305,
    "replaced": 3_117,
    "replaced-after-a-crash": 15_702,
    "both-confirm": 69_513,
    "one-of-three": 1_420_759,
    "two-recoveries": 234_619,
    "two-entries-recovered": 529_477,
    "without-fencing": 17,
    "without-limbo": 17,
    "scenario-1": 17,
    "scenario-2": 17,
}


def test_every_named_configuration_is_checked() -> None:
    assert set(BookKeeperLimbo.configurations) == set(CONFIGURATIONS)


@pytest.mark.parametrize("name", campaign_if(lambda name: CONFIGURATIONS[name] > MANY_STATES, CONFIGURATIONS))
def test_named_configurations(name: str) -> None:
    result = result_of(BookKeeperLimbo.configured(name))
    assert result.verdict == BookKeeperLimbo.configurations[name].expect
    found = len(result.violation.trace or ()) if result.violation else result.distinct_states
    assert found == CONFIGURATIONS[name]


def test_the_page_shows_what_is_tested() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocols" / "bookkeeper-limbo.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")
    ]
    shown = {tuple(row) for row in rows if row[0].isdigit()}
    when = {"orc": "any time", "": "none"}
    tested = {(*map(str, row[:5]), when.get(row[5]), f"{row[6]:,}", str(row[7])) for row in HOLDS + LARGER}
    assert len(shown) == 8 and shown <= tested


def test_every_action_is_taken() -> None:
    """A change of ensemble needs a spare bookie, and a crash needs a configuration that allows it."""
    spare, crashing = (result_of(protocol(bookies, 2, 2, 1, 1, crashes)) for bookies, crashes in ((3, ""), (2, "orc")))
    assert len(spare.actions) == 26
    taken = {a.name for result in (spare, crashing) for a in result.actions if a.taken}
    assert taken == {a.name for a in spare.actions}


def test_python_is_rarely_called() -> None:
    """Once for each path, not for each state: about a thousand times for 97,065 states."""
    assert result_of(BookKeeperLimbo.configured("protected")).evaluations < 2_000


# -- counterexamples ---------------------------------------------------------------------------------------------------


def counterexample(name: str) -> tuple[Trace, int, str]:
    """The counterexample of a configuration, the number of its state before the crash, and the bookie that crashes."""
    trace = result_of(BookKeeperLimbo.configured(name)).must_violate(DATA_LOSS)
    (crash,) = (number for number, step in enumerate(trace.steps) if step.action.startswith("bookie_crashes"))
    return trace, crash, str(trace.steps[crash].by)


def on_bookie(state: State, name: str) -> Any:
    return next(held for b, held in state.variables()["bookie"].items() if b.name == name)


@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if CONFIGURATIONS[name] == 17])
def test_an_entry_is_acknowledged_and_cut_off(name: str) -> None:
    trace, _, _ = counterexample(name)
    last = trace.states[-1].variables()
    assert last["meta"].status is LedgerStatus.CLOSED
    assert last["meta"].last_entry == 0
    assert sorted(client.lac for client in last["client"].values()) == [0, 1]


def test_scenario_1_an_entry_is_written_after_the_ledger_was_closed() -> None:
    trace, crash, b = counterexample("scenario-1")
    before, after = trace.states[crash], trace.states[crash + 1]
    assert before.variables()["meta"].status is LedgerStatus.CLOSED
    assert on_bookie(before, b).fenced and not on_bookie(after, b).fenced
    assert not on_bookie(after, b).entries and on_bookie(trace.states[-1], b).entries == {Entry(1, 1)}


def test_scenario_2_an_entry_is_denied_that_was_acknowledged() -> None:
    trace, crash, b = counterexample("scenario-2")
    before, after = trace.states[crash], trace.states[crash + 1]
    assert before.variables()["meta"].status is LedgerStatus.IN_RECOVERY
    assert on_bookie(before, b).entries == {Entry(1, 1)} and not on_bookie(after, b).entries
    denied = [e.text for step in trace.steps[crash + 1 :] if step.by == b for e in step.events if e.kind == "send"]
    assert denied == ["ReadResponse(entry=None, code=NO_SUCH_ENTRY)"]
    assert not any(held.entries for held in trace.states[-1].variables()["bookie"].values()), (
        "no bookie has the entry any more"
    )


def test_with_a_crash_a_committed_entry_may_have_too_few_copies() -> None:
    """The original says so too. So the rule is off by default where bookies may crash."""
    crashing, safe = protocol(2, 2, 2, 2, 1), protocol(2, 2, 2, 2, 1, crashes="")
    name = "all_committed_entries_reach_ack_quorum"
    assert check(crashing, invariants=[name], options=Options(workers=1)).must_violate(name)
    assert check(safe, invariants=[name], options=Options(workers=1)).must_hold()


@pytest.mark.parametrize(
    ("constants", "broken"),
    [
        ({"send_limit": 0}, "something_is_sent"),
        ({"ack_quorum": 0}, "quorums_are_positive"),
        ({"write_quorum": 1, "ack_quorum": 2}, "ack_quorum_within_write_quorum"),
        ({"bookies": 1}, "enough_bookies_for_an_ensemble"),
        ({"bookies": "b1,c2,b2"}, "bookies_are_not_clients"),
    ],
)
def test_constants_that_make_no_sense_are_refused(constants: dict[str, Any], broken: str) -> None:
    result = check(BookKeeperLimbo(**constants))
    assert result.verdict == broken
    assert result.exit_code == 10


# -- the need for each invariant: a protocol without one rule ---------------------------------------------------------


class ConfirmsWhatItDoesNotStore(BookKeeperLimbo):
    """A bookie confirms an entry and forgets it."""

    @action(b=BookKeeperLimbo.bookies, c=BookKeeperLimbo.clients, by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, c: ModelValue) -> None:
        add = self.network.receive(AddEntryRequest, source=c, to=b).message
        require(add.recovery or not self.bookie[b].fenced)
        self.network.send(AddEntryResponse(add.entry, add.recovery, success=True), b, c)


class StoresUnderTheWrongId(BookKeeperLimbo):
    """A bookie files every entry as the first."""

    @action(b=BookKeeperLimbo.bookies, c=BookKeeperLimbo.clients, by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, c: ModelValue) -> None:
        add = self.network.receive(AddEntryRequest, source=c, to=b).message
        self.bookie[b].entries |= {Entry(1, add.entry.data)}


class StoresWhatWasNeverSent(BookKeeperLimbo):
    """A bookie stores an entry with an id that no entry has."""

    @action(b=BookKeeperLimbo.bookies, c=BookKeeperLimbo.clients, by="b")
    def bookie_sends_add_confirmed_response(self, b: ModelValue, c: ModelValue) -> None:
        add = self.network.receive(AddEntryRequest, source=c, to=b).message
        self.bookie[b].entries |= {Entry(self.send_limit + 1, add.entry.data)}


@pytest.mark.parametrize(
    ("broken", "sends", "violated"),
    [
        (ConfirmsWhatItDoesNotStore, 1, "all_committed_entries_reach_ack_quorum"),
        (StoresUnderTheWrongId, 2, "no_out_of_order_entries"),
        (StoresWhatWasNeverSent, 1, "type_ok"),
    ],
)
def test_a_rule_left_out_is_found(broken: type[BookKeeperLimbo], sends: int, violated: str) -> None:
    checked = broken(bookies=1, write_quorum=1, send_limit=sends)
    assert check(checked, invariants=[violated]).must_violate(violated)
