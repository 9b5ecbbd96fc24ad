"""`store-roles`: the roles of clients and bookies themselves, in every order of events."""

from __future__ import annotations

import os
from functools import cache

import pytest

from fencepost import Result, SearchOptions, check
from fencepost.store.checked import roles
from fencepost.store.checked.roles import StoreRoles

THOROUGH = bool(os.environ.get("FENCEPOST_THOROUGH"))

COUNTS = {
    "default": (996, 20),
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
    "striped-and-recovered": (55, 21),
    "recovery-replaces": (297_262, 38),
    "overtaken": (59_309, 67),
    "two-recoveries": (5_643_616, 56),
    "limbo": (236_581, 42),
    "full": (324_336, 48),
    "deferred": (44_519, 31),
    "deferred-and-recovered": (40_468, 40),
    "reader": (46_111, 38),
    "reader-of-fragments": (214_697, 37),
    "reader-and-recovery": (129_827, 47),
    "long-polls": (4_510, 30),
    "explicit-lac": (35_089, 31),
    "stranger": (737, 29),
}
LARGE = {"recovered-two-entries", "two-recoveries", "reads-move-on", "lac-of-recovery"}


@cache
def explored(name: str) -> Result:
    return check(StoreRoles.configured(name), options=SearchOptions(workers=1))


@pytest.mark.parametrize("name", [name for name in StoreRoles.configurations if THOROUGH or name not in LARGE])
def test_configurations_come_to_what_they_are_declared_with(name: str) -> None:
    result = explored(name)
    assert result.verdict == StoreRoles.configurations[name].expect
    if result.holds:
        assert (result.distinct_states, result.depth) == COUNTS[name]
        assert result.evaluations < 20_000, "a role runs once for what it reads, and not for each state"


def test_every_configuration_that_holds_has_its_counts() -> None:
    assert COUNTS.keys() == {name for name, one in StoreRoles.configurations.items() if one.expect == "holds"}


def test_every_action_is_taken_in_some_configuration() -> None:
    taken = {action.name for name in COUNTS.keys() - LARGE for action in explored(name).actions if action.taken}
    assert taken == {declared.name for declared in StoreRoles.declared("action")}


def test_plain_python_agrees() -> None:
    options = SearchOptions(workers=1, max_depth=9)
    plain, compiled = (
        check(StoreRoles.configured("crash"), engine=engine, options=options) for engine in ("reference", "embedded")
    )
    assert plain.distinct_states == compiled.distinct_states > 100
    assert plain.actions == compiled.actions


def test_it_depends_on_nothing_but_its_state() -> None:
    assert check(StoreRoles(entries=1), options=SearchOptions(checking=True)).holds


def test_what_is_explored_is_the_roles_that_clients_and_bookies_run() -> None:
    from fencepost.store.bookie import server
    from fencepost.store.client import reader, store, writer

    run = writer.Writer, store.Recoverer, reader.Reader, server.Bookie
    assert run == (roles.Writer, roles.Recoverer, roles.Reader, roles.Bookie)
