"""Ledger chaining against TLC's results for ``LedgerChaining.tla``."""

from pathlib import Path
from typing import Any

import pytest
from campaigns import MANY_STATES, campaign_if, campaigns_but_every, engine_for

from fencepost import ModelValue, OptionError, SearchOptions, action, always_eventually, check, invariant, require
from fencepost.protocols.ledger_chaining import ClientStatus, LedgerChaining, LedgerMetadata, LedgerOnBookies

PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "ledger-chaining.md"

# TLC's counts with one worker: clients, next ledger limit, distinct states, depth.
COUNTS = [
    (1, 4, 11, 11),
    (2, 2, 50, 13),
    (2, 3, 1_198, 27),
    (2, 4, 10_778, 36),
    (2, 5, 70_106, 45),
    (2, 6, 392_542, 54),
    (3, 4, 375_963, 40),
]

SMALL = [row for row in COUNTS if row[2] < 1_000]

CONFIGURATIONS = {
    "published": (375_963, 40),
    "small": (10_778, 36),
    "as-the-log": (15_950, 36),
    "false-alarm": (392_542, 54),
}


@pytest.mark.parametrize(
    ("clients", "limit", "distinct", "depth"), campaign_if(lambda row: row[2] > MANY_STATES, COUNTS)
)
def test_counts(clients: int, limit: int, distinct: int, depth: int) -> None:
    protocol = LedgerChaining(clients=clients, next_ledger_limit=limit)
    result = check(protocol, engine=engine_for(distinct)).must_hold()
    assert (result.distinct_states, result.depth) == (distinct, depth)


@pytest.mark.parametrize(("clients", "limit", "distinct", "depth"), SMALL)
def test_counts_in_plain_python(clients: int, limit: int, distinct: int, depth: int) -> None:
    result = check(LedgerChaining(clients=clients, next_ledger_limit=limit), engine="reference").must_hold()
    assert (result.distinct_states, result.depth) == (distinct, depth)


def test_every_named_configuration_is_counted() -> None:
    assert set(LedgerChaining.configurations) == set(CONFIGURATIONS)


@pytest.mark.parametrize("name", campaign_if(lambda name: CONFIGURATIONS[name][0] > MANY_STATES, CONFIGURATIONS))
def test_named_configurations(name: str) -> None:
    result = check(LedgerChaining.configured(name), engine=engine_for(CONFIGURATIONS[name][0]))
    assert result.verdict == LedgerChaining.configurations[name].expect
    assert (result.distinct_states, result.depth) == CONFIGURATIONS[name]


def test_the_page_has_these_numbers_and_every_constant() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row for row in rows if row[0].isdigit()] == [[f"{n:,}" for n in row] for row in COUNTS]
    named = {name.strip("`"): row for name, *row in rows if name.startswith("`")}
    assert {name: named[name][0] for name in LedgerChaining().constants} == {
        "clients": "3",
        "next_ledger_limit": "4",
        "closed_by_another_will_do": "false",
        "closes_unwritten_ledgers": "false",
    }
    assert {name: named[name][-1] for name in CONFIGURATIONS} == {
        name: f"{distinct:,}" for name, (distinct, _) in CONFIGURATIONS.items()
    }
    assert {name: named[name][0] for (name,) in FAIR} == {
        name: "holds" if steps is None else str(steps) for name, steps, _ in UNFAIR
    }


@pytest.mark.parametrize(("limit", "ledgers"), [(2, 0), (3, 1), (4, 2), (5, 3)])
def test_a_limit_leaves_two_ledgers_less(limit: int, ledgers: int) -> None:
    """The last ledger is only created: its limit ends the behaviour."""

    class Counted(LedgerChaining):
        @invariant
        def fewer_ledgers(self) -> bool:
            return len(self.md_llist) < ledgers

        @invariant
        def no_more_ledgers(self) -> bool:
            return len(self.md_llist) <= ledgers

    protocol = Counted(clients=2, next_ledger_limit=limit)
    assert check(protocol, invariants=["no_more_ledgers"]).must_hold()
    assert check(protocol, invariants=["fewer_ledgers"]).must_violate("fewer_ledgers")


def test_counts_up_to_symmetry() -> None:
    assert check(LedgerChaining(), symmetry=True).must_hold().distinct_states == 64_815


def test_every_action_is_taken() -> None:
    result = check(LedgerChaining(clients=2))
    assert [a.name for a in result.actions if not a.taken] == []
    assert len(result.actions) == 13


def test_an_open_ledger_outside_the_list_sets_off_the_published_rule() -> None:
    protocol = LedgerChaining.configured("false-alarm")
    result = check(protocol, invariants=["only_one_ledger_open_at_a_time", "only_one_listed_ledger_open_at_a_time"])
    assert [v.name for v in result.violations] == ["only_one_ledger_open_at_a_time"]
    trace = result.must_violate("only_one_ledger_open_at_a_time")
    assert len(trace) == 18
    last: Any = trace.states[-1].variables()
    # Both are ids of ledgers that never entered the list.
    assert not {1, 2} & set(last["md_llist"])
    assert last["md_ledgers"][1].open
    assert last["md_ledgers"][2].open


@pytest.mark.parametrize(("limit", "on"), [(4, True), (5, False)])
def test_the_published_rule_is_off_above_the_published_limit(limit: int, on: bool) -> None:
    rule = LedgerChaining.only_one_ledger_open_at_a_time
    assert rule.when(LedgerChaining(next_ledger_limit=limit)) is on  # type: ignore[attr-defined]


def test_without_room_for_a_ledger_nothing_is_checked() -> None:
    result = check(LedgerChaining(next_ledger_limit=1))
    assert result.verdict == "there_is_a_ledger_to_create"
    assert result.exit_code == 10


def test_the_limit_is_a_number() -> None:
    with pytest.raises(OptionError, match="next_ledger_limit"):
        LedgerChaining(next_ledger_limit="many")


# -- the need for each invariant: a protocol without one rule ---------------------------------------------------------


class WritesBeforeAppending(LedgerChaining):
    """The leader writes to a ledger that is not in the list yet."""

    @action(c=LedgerChaining.clients)
    def write_to_ledger(self, c: ModelValue) -> None:
        client = self._leading(c, ClientStatus.PENDING_APPEND_LEDGER)
        require(self.b_ledgers[client.ledger.id] is None)
        self.b_ledgers[client.ledger.id] = LedgerOnBookies(entry=self.next_entry_id, fenced=False)
        self.next_entry_id += 1


class WritesToFencedLedgers(LedgerChaining):
    """Bookies accept entries of fenced ledgers."""

    @action(c=LedgerChaining.clients)
    def write_to_ledger(self, c: ModelValue) -> None:
        client = self._leading(c, ClientStatus.HAS_OPEN_LEDGER)
        self.b_ledgers[client.ledger.id] = LedgerOnBookies(entry=self.next_entry_id, fenced=False)
        self.next_entry_id += 1
        client.status = ClientStatus.WAITING


class NeverCloses(LedgerChaining):
    """The last ledger is fenced on the bookies, but not in the metadata."""

    def _close(self, ledger_id: int) -> None:
        pass


class NumbersLedgersTwice(LedgerChaining):
    """The metadata store files a ledger under one id and calls it another."""

    @action(c=LedgerChaining.clients)
    def create_ledger(self, c: ModelValue) -> None:
        client = self._leading(c, ClientStatus.PENDING_CREATE_LEDGER)
        created = LedgerMetadata(id=self.md_next_lid + 1, open=True, version=0)
        self.md_ledgers[self.md_next_lid] = created
        self.md_next_lid += 1
        client.ledger = created
        client.status = ClientStatus.PENDING_APPEND_LEDGER


class ForgetsToCount(LedgerChaining):
    """Entries are counted down instead of up."""

    @action(c=LedgerChaining.clients)
    def write_to_ledger(self, c: ModelValue) -> None:
        client = self._leading(c, ClientStatus.HAS_OPEN_LEDGER)
        require(self.b_ledgers[client.ledger.id] is None)
        self.b_ledgers[client.ledger.id] = LedgerOnBookies(entry=self.next_entry_id, fenced=False)
        self.next_entry_id -= 2


@pytest.mark.parametrize(
    ("broken", "violated"),
    [
        (WritesBeforeAppending, "all_non_empty_ledgers_in_ledger_list"),
        (WritesToFencedLedgers, "entry_order_maintained"),
        (NeverCloses, "only_one_ledger_open_at_a_time"),
        (NeverCloses, "only_one_listed_ledger_open_at_a_time"),
        (NumbersLedgersTwice, "type_ok"),
        (ForgetsToCount, "type_ok"),
    ],
)
def test_a_rule_left_out_is_found(broken: type[LedgerChaining], violated: str) -> None:
    result = check(broken(clients=2), invariants=[violated], options=SearchOptions(workers=1, max_states=50_000))
    assert result.must_violate(violated)


# -- liveness ----------------------------------------------------------------------------------------------------------


def test_a_stable_leader_accepts_writes() -> None:
    result = check(LedgerChaining(clients=2), invariants=["stable_leader_accepts_writes"]).must_hold()
    assert (result.distinct_states, result.judged) == (10_778, ("stable_leader_accepts_writes",))


def test_without_elections_coming_to_an_end_nobody_need_get_that_far() -> None:
    trace = check(LedgerChaining(clients=2), invariants=["elected_client_accepts_writes"]).must_violate(
        "elected_client_accepts_writes"
    )
    assert trace.loop == 0
    assert [step.title for step in trace.steps] == [
        "become_leader(c=c1)", "leader_chosen(c=c2)", "abdicate(c=c1)", "leader_chosen(c=c1)",
    ]  # fmt: skip


# The action without fairness, the number of steps until the behaviour stutters, and the stable leader's status.
UNFAIR = [
    ("become_leader", 0, ClientStatus.WAITING),
    ("get_last_ledger", 1, ClientStatus.GET_MD_FOR_CLOSING),
    ("ledger_already_closed", 10, ClientStatus.CLOSE_LAST_LEDGER),
    ("close_last_ledger_success", 8, ClientStatus.CLOSE_LAST_LEDGER),
    ("close_last_ledger_bad_version", 10, ClientStatus.CLOSE_LAST_LEDGER),
    ("create_ledger", 2, ClientStatus.PENDING_CREATE_LEDGER),
    ("append_ledger_success", 3, ClientStatus.PENDING_APPEND_LEDGER),
    ("append_ledger_bad_version", 9, ClientStatus.PENDING_APPEND_LEDGER),
    ("write_to_ledger", 4, ClientStatus.HAS_OPEN_LEDGER),
    ("close_own_ledger_bad_version", 9, ClientStatus.HAS_OPEN_LEDGER),
    ("abdicate", None, None),
]

FAIR = {demand.actions for demand in LedgerChaining.fairness}


def test_the_table_of_what_must_be_fair_is_complete() -> None:
    assert {(name,) for name, _, _ in UNFAIR} == FAIR


@pytest.mark.parametrize(("unfair", "steps", "status"), campaigns_but_every(3, UNFAIR))
def test_what_has_to_be_fair(unfair: str, steps: int | None, status: ClientStatus | None) -> None:
    class Unfair(LedgerChaining):
        fairness = [demand for demand in LedgerChaining.fairness if demand.actions != (unfair,)]

    result = check(Unfair(clients=2), invariants=["stable_leader_accepts_writes"])
    if steps is None:
        result.must_hold()
    else:
        trace = result.must_violate("stable_leader_accepts_writes")
        assert trace.loop == len(trace.steps) == steps
        last = trace.states[-1].variables()
        assert last["c_state"][last["md_leader"]].status is status


def test_some_fair_behaviour_accepts_writes_for_ever() -> None:
    """Fair behaviours exist, so a property of all of them is not vacuous."""

    class Silent(LedgerChaining):
        @always_eventually(c=LedgerChaining.clients)
        def does_not_accept_writes(self, c: ModelValue) -> bool:
            return not self._accepts_writes(c)

    assert check(Silent(clients=2), invariants=["does_not_accept_writes"]).must_violate("does_not_accept_writes")


def test_a_leader_that_never_notices_its_ledger_is_fenced_writes_no_more() -> None:
    class Unnoticed(LedgerChaining):
        fairness = [f for f in LedgerChaining.fairness if "close_own_ledger_bad_version" not in f.actions]

    trace = check(Unnoticed(clients=2), invariants=["stable_leader_accepts_writes"]).must_violate(
        "stable_leader_accepts_writes"
    )
    assert trace.loop == len(trace.steps)
    last = trace.states[-1].variables()
    stuck = last["c_state"][last["md_leader"]]
    assert stuck.status is ClientStatus.HAS_OPEN_LEDGER and last["b_ledgers"][stuck.ledger.id].fenced


def test_liveness_is_off_by_default() -> None:
    assert check(LedgerChaining(clients=1)).judged == ()
