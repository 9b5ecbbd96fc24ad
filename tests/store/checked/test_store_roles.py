"""`store-roles`: the roles of clients and bookies themselves, in every order of events."""

from __future__ import annotations

from functools import cache

import pytest

from fencepost import Result, SearchOptions, check
from fencepost.store.checked import roles
from fencepost.store.checked.roles import StoreRoles

COUNTS = {
    "default": (996, 20),
    "replaced": (106_640, 26),
    "one-of-two": (142_402, 26),
    "twice-replaced": (197_696, 32),
    "striped": (3_130, 20),
    "crash": (4_994, 21),
}


@cache
def explored(name: str) -> Result:
    return check(StoreRoles.configured(name), options=SearchOptions(workers=1))


@pytest.mark.parametrize("name", StoreRoles.configurations)
def test_configurations_come_to_what_they_are_declared_with(name: str) -> None:
    result = explored(name)
    assert result.verdict == StoreRoles.configurations[name].expect
    if result.holds:
        assert (result.distinct_states, result.depth) == COUNTS[name]
        assert result.evaluations < 20_000, "a role runs once for what it reads, and not for each state"


def test_every_configuration_that_holds_has_its_counts() -> None:
    assert COUNTS.keys() == {name for name, one in StoreRoles.configurations.items() if one.expect == "holds"}


def test_every_action_is_taken_in_some_configuration() -> None:
    taken = {action.name for name in COUNTS for action in explored(name).actions if action.taken}
    assert taken == {declared.name for declared in StoreRoles.declared("action")}


def test_plain_python_agrees() -> None:
    options = SearchOptions(workers=1, max_depth=12)
    plain, compiled = (
        check(StoreRoles.configured("crash"), engine=engine, options=options) for engine in ("reference", "embedded")
    )
    assert plain.distinct_states == compiled.distinct_states > 300
    assert plain.actions == compiled.actions


def test_it_depends_on_nothing_but_its_state() -> None:
    assert check(StoreRoles(), options=SearchOptions(checking=True)).holds


def test_what_is_explored_is_the_roles_that_clients_and_bookies_run() -> None:
    from fencepost.store.bookie import server
    from fencepost.store.client import writer

    assert (writer.Writer, server.Bookie) == (roles.Writer, roles.Bookie)
