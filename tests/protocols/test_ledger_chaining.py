"""Ledger chaining against what TLC says of ``LedgerChaining.tla``."""

from typing import Any

import pytest

from fencepost import ModelValue, OptionError, Options, action, check, require
from fencepost.protocols.ledger_chaining import ClientStatus, LedgerChaining, LedgerMetadata, LedgerOnBookies

# What TLC counts, with one worker: clients, next ledger limit, distinct states, depth.
COUNTS = [
    (1, 4, 11, 11),
    (2, 2, 50, 13),
    (2, 3, 1_198, 27),
    (2, 4, 10_778, 36),
    (2, 5, 70_106, 45),
    (2, 6, 392_542, 54),
    (3, 4, 375_963, 40),
]

SMALL = [row for row in COUNTS if row[2] < 2_000]

CONFIGURATIONS = {"published": (375_963, 40), "small": (10_778, 36), "false-alarm": (392_542, 54)}


@pytest.mark.parametrize(("clients", "limit", "distinct", "depth"), COUNTS)
def test_counts(clients: int, limit: int, distinct: int, depth: int) -> None:
    result = check(LedgerChaining(clients=clients, next_ledger_limit=limit)).must_hold()
    assert (result.distinct_states, result.depth) == (distinct, depth)


@pytest.mark.parametrize(("clients", "limit", "distinct", "depth"), SMALL)
def test_counts_in_plain_python(clients: int, limit: int, distinct: int, depth: int) -> None:
    result = check(LedgerChaining(clients=clients, next_ledger_limit=limit), engine="reference").must_hold()
    assert (result.distinct_states, result.depth) == (distinct, depth)


def test_every_named_configuration_is_counted() -> None:
    assert set(LedgerChaining.configurations) == set(CONFIGURATIONS)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_named_configurations(name: str) -> None:
    result = check(LedgerChaining.configured(name))
    assert result.verdict == LedgerChaining.configurations[name].expect
    assert (result.distinct_states, result.depth) == CONFIGURATIONS[name]


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
    # Both positions are ids of ledgers that never got into the list.
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


# -- what the invariants are there for: a protocol with one rule left out ---------------------------------------------


class WritesBeforeAppending(LedgerChaining):
    """The leader writes to a ledger that nobody can find yet."""

    @action(c=LedgerChaining.clients)
    def write_to_ledger(self, c: ModelValue) -> None:
        client = self._leading(c, ClientStatus.PENDING_APPEND_LEDGER)
        require(self.b_ledgers[client.ledger.id] is None)
        self.b_ledgers[client.ledger.id] = LedgerOnBookies(entry=self.next_entry_id, fenced=False)
        self.next_entry_id += 1


class WritesToFencedLedgers(LedgerChaining):
    """Bookies take entries for ledgers that are fenced."""

    @action(c=LedgerChaining.clients)
    def write_to_ledger(self, c: ModelValue) -> None:
        client = self._leading(c, ClientStatus.HAS_OPEN_LEDGER)
        self.b_ledgers[client.ledger.id] = LedgerOnBookies(entry=self.next_entry_id, fenced=False)
        self.next_entry_id += 1
        client.status = ClientStatus.WAITING


class NeverCloses(LedgerChaining):
    """The last ledger is fenced on the bookies, and the metadata store is not told."""

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
    result = check(broken(clients=2), invariants=[violated], options=Options(workers=1, max_states=50_000))
    assert result.must_violate(violated)
