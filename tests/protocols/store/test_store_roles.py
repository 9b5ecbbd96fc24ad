"""`store-roles`: the roles that clients and bookies run, in every order of events."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest
from campaigns import MANY_STATES, THOROUGH, campaign_if, engine_for
from ledger.simulation.test_planted import PLANTED, plant
from protocols.store.test_roles_reached import listed, noted

from fencepost import Result, SearchOptions, check
from fencepost.protocols.store import roles
from fencepost.protocols.store.roles import StoreRoles

COUNTS = {
    "default": (996, 20),
    "no-room": (54, 14),
    "replaced": (80_764, 26),
    "one-of-two": (106_166, 26),
    "given-up": (63_360, 25),
    "twice-replaced": (111_528, 32),
    "striped": (2_274, 20),
    "crash": (5_166, 21),
    "recovered": (33_587, 39),
    "recovered-one-of-two": (205_127, 40),
    "recovered-and-replaced": (178_349, 47),
    "recovered-two-entries": (3_330_545, 48),
    "recovered-and-crash": (378_814, 41),
    "recovered-unanswered": (51_479, 49),
    "reads-ahead": (3_884, 34),
    "striped-and-recovered": (8_499, 39),
    "copies-striped": (1_489, 31),
    "recovery-replaces": (297_262, 38),
    "overtaken": (59_309, 67),
    "two-recoveries": (5_643_616, 56),
    "limbo": (236_581, 42),
    "full": (324_336, 48),
    "deferred": (44_519, 31),
    "deferred-and-recovered": (40_468, 40),
    "reader": (66_026, 38),
    "reader-of-one-of-two": (101_384, 32),
    "reader-of-fragments": (299_310, 37),
    "reader-and-recovery": (192_903, 47),
    "long-polls": (4_510, 30),
    "explicit-lac": (41_330, 31),
    "stranger": (737, 29),
}
VIOLATED_LATE = {
    "reads-without-fencing",
    "limbo-denies",
    "fenced-bookies-add",
    "starts-at-the-lac",
    "boot-without-limbo",
    "confirmations-kept",
}
LARGE = {"recovered-two-entries", "two-recoveries", "reads-move-on", "lac-of-recovery"}


SEEN: defaultdict[str, set[str]] = defaultdict(set)
"""The events and effects of roles in each configuration that was explored."""


def states_of(name: str) -> int:
    """The states of a configuration, which is small if it is violated."""
    return COUNTS.get(name, (0, 0))[0]


@cache
def explored(name: str) -> Result:
    with noted(SEEN[name]):
        return check(StoreRoles.configured(name), engine=engine_for(states_of(name)), options=SearchOptions(workers=1))


def takes_long(name: str) -> bool:
    return states_of(name) > MANY_STATES / 10 or name in VIOLATED_LATE


@pytest.mark.parametrize(
    "name",
    campaign_if(takes_long, [name for name in StoreRoles.configurations if THOROUGH or name not in LARGE]),
)
def test_configurations_come_to_what_they_are_declared_with(name: str) -> None:
    result = explored(name)
    assert result.verdict == StoreRoles.configurations[name].expect
    if result.holds:
        assert (result.distinct_states, result.depth) == COUNTS[name]
        assert result.evaluations < 20_000, "a role runs once for what it reads, and not for each state"


def test_every_configuration_that_holds_has_its_counts() -> None:
    assert COUNTS.keys() == {name for name, one in StoreRoles.configurations.items() if one.expect == "holds"}


DAILY = {
    "a ledger is closed one entry short",
    "a write whose answer was lost is taken for done",
    "recovery leaves a ledger to who recovers it already",
    "the last of several adds is not stored",
    "what is left of a batch is sent from its beginning",
}
"""Faults that are found early."""


@pytest.mark.parametrize(
    ("fault", "name", "violated"),
    campaign_if(
        lambda row: row[0] not in DAILY,
        [
            ("a fenced bookie refuses recovery adds too", "recovered", "recoveries_keep_entries"),
            ("an ack quorum is one bookie too many", "default", "who_waits_is_answered"),
            ("the LAC of deferred adds does not wait for a force", "deferred", "closed_ledgers_are_whole"),
            ("a ledger is closed one entry short", "default", "confirmed_entries_are_in_the_ledger"),
            ("a ledger is closed with the length of nothing", "default", "closed_ledgers_have_their_length"),
            (
                "a bookie does not journal that it is fenced",
                "recovered",
                "recoveries_read_when_the_writer_is_fenced_off",
            ),
            (
                "a write whose answer was lost is taken for done",
                "recovered-unanswered",
                "the_writer_knows_where_it_has_closed",
            ),
            ("a new ensemble is written and not used", "given-up", "who_waits_is_answered"),
            ("recovery writes nothing back", "recovered", "who_waits_is_answered"),
            ("recovery leaves a ledger to who recovers it already", "overtaken", "recoveries_know_the_end"),
            ("what is given up stays in flight", "recovered", "every_append_is_answered"),
            ("adds that came together take one place in the journal", "default", "answers_tell_what_is_durable"),
            ("the last of several adds is not stored", "default", "the bookie miscounts its records"),
            ("adds are answered before they are durable", "default", "answers_tell_what_is_durable"),
            ("an answer confirms all that follows", "default", "confirmed_entries_are_durable"),
            ("what is left of a batch is sent from its beginning", "no-room", "bookies_have_what_was_appended"),
            ("an entry is left out where there was no room", "no-room", "every_append_is_answered"),
            ("readers read one entry beyond the LAC", "reader-and-recovery", "readers_find_what_is_confirmed"),
            ("readers of a closed ledger miss its last entry", "reader", "the reader fails without a reason"),
            ("no other bookie is asked for what one does not give", "reader-of-one-of-two", "who_waits_is_answered"),
            ("one bookie that lacks an entry is believed", "reader-of-one-of-two", "readers_find_what_is_confirmed"),
            ("entries are there before they have come", "reader", "the reader reports entries that have not arrived"),
        ],
    ),
)
def test_a_fault_planted_in_a_role_or_a_rule_is_found(
    fault: str, name: str, violated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(next(each for each in PLANTED if each.name == fault), monkeypatch)
    result = check(StoreRoles.configured(name), options=SearchOptions(workers=1))
    assert violated in (result.verdict, str(result.error).split(" at ")[0].rpartition(": ")[2])


@pytest.mark.campaign
def test_every_action_is_taken_in_some_configuration() -> None:
    """Configurations of campaigns come first, since they are explored already."""
    missing = {declared.name for declared in StoreRoles.declared("action")}
    for name in sorted(COUNTS.keys() - LARGE, key=lambda name: (not takes_long(name), name)):
        if missing:
            missing -= {action.name for action in explored(name).actions if action.taken}
    assert not missing


@pytest.mark.campaign
def test_what_the_page_of_the_simulator_says_is_explored_is() -> None:
    names = ("crash", "twice-replaced", "recovered-one-of-two", "recovered-and-replaced", "reader")
    assert all(explored(name).holds for name in names)
    assert set().union(*(SEEN[name] for name in names)) == {name for name, is_there in listed().items() if is_there}


@pytest.mark.campaign
def test_plain_python_agrees() -> None:
    options = SearchOptions(workers=1, max_depth=9)
    plain, compiled = (
        check(StoreRoles.configured("crash"), engine=engine, options=options) for engine in ("reference", "embedded")
    )
    assert plain.distinct_states == compiled.distinct_states > 100
    assert plain.actions == compiled.actions


@pytest.mark.campaign
def test_it_depends_on_nothing_but_its_state() -> None:
    assert check(StoreRoles(entries=1), options=SearchOptions(checking=True)).holds


def test_what_is_explored_is_the_roles_that_clients_and_bookies_run() -> None:
    from fencepost.ledger.bookie import server
    from fencepost.ledger.client import client, reader, writer

    run = writer.Writer, client.Recoverer, reader.Reader, server.Bookie  # type: ignore[attr-defined]
    assert run == (roles.Writer, roles.Recoverer, roles.Reader, roles.Bookie)  # type: ignore[attr-defined]
