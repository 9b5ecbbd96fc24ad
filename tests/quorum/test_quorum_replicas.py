"""`quorum-replica`: the role of a quorum's replicas itself, in every order of events."""

from __future__ import annotations

import os
from functools import cache

import pytest

from fencepost import Result, SearchOptions, check
from fencepost.quorum.checked.replicas import Replicas
from fencepost.quorum.driver import node
from fencepost.quorum.roles.replica import Replica

THOROUGH = bool(os.environ.get("FENCEPOST_THOROUGH"))

COUNTS = {
    "default": (11_369, 21),
    "first-election": (14_701, 27),
    "losses": (40_648, 22),
    "resignation": (21_098, 24),
    "succession": (486_564, 35),
    "crash": (7_055, 21),
    "crash-and-election": (1_232_934, 35),
    "two-elections": (7_898_511, 41),
}
LARGE = {"crash-and-election", "two-elections"}


@cache
def explored(name: str) -> Result:
    return check(Replicas.configured(name), options=SearchOptions(workers=1))


@pytest.mark.parametrize("name", [name for name in Replicas.configurations if THOROUGH or name not in LARGE])
def test_configurations_come_to_what_they_are_declared_with(name: str) -> None:
    result = explored(name)
    assert result.verdict == Replicas.configurations[name].expect
    if result.holds:
        assert (result.distinct_states, result.depth) == COUNTS[name]
        assert result.evaluations < 20_000, "the role runs once for what it reads, and not for each state"


def test_every_configuration_that_holds_has_its_counts() -> None:
    assert COUNTS.keys() == {name for name, one in Replicas.configurations.items() if one.expect == "holds"}


def test_every_action_is_taken_in_some_configuration() -> None:
    taken = {action.name for name in COUNTS if name not in LARGE for action in explored(name).actions if action.taken}
    assert taken == {declared.name for declared in Replicas.declared("action")}


def test_plain_python_agrees() -> None:
    options = SearchOptions(workers=1, max_depth=6)
    plain, compiled = (check(Replicas(), engine=engine, options=options) for engine in ("reference", "embedded"))
    assert plain.distinct_states == compiled.distinct_states > 100
    assert plain.actions == compiled.actions


def test_what_is_explored_is_the_role_that_members_run() -> None:
    assert node.Replica is Replica
