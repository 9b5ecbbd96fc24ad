"""`log-leader`: the real role of a leader, in every order of events."""

from __future__ import annotations

from functools import cache

import pytest
from campaigns import MANY_STATES, campaign_if, engine_for

from fencepost import Result, SearchOptions, check
from fencepost.log.roles.leader import Leader
from fencepost.protocols.log.leader import LogLeader

COUNTS = {
    "default": (53_203, 41),
    "two-entries": (360_491, 44),
    "one-client": (132, 31),
    "trouble": (73_835, 39),
    "trouble-later": (421, 25),
    "lost-answers": (33_265, 38),
    "trims": (11_566, 35),
    "seals": (61_262, 51),
    "ends": (25_605, 36),
    "trims-while-rolling": (86, 32),
    "deleted": (23_935, 35),
    "deleted-at-the-end": (777, 26),
    "tried-again": (954, 24),
    "full": (112, 31),
    "old": (111, 26),
    "impatient": (39_098, 38),
    "refusals": (1_782, 26),
}


@cache
def explored(name: str) -> Result:
    return check(
        LogLeader.configured(name), engine=engine_for(COUNTS.get(name, (0, 0))[0]), options=SearchOptions(workers=1)
    )


@pytest.mark.parametrize(
    "name", campaign_if(lambda name: COUNTS.get(name, (0, 0))[0] > MANY_STATES, LogLeader.configurations)
)
def test_configurations_come_to_what_they_are_declared_with(name: str) -> None:
    result = explored(name)
    assert result.verdict == LogLeader.configurations[name].expect
    if result.holds:
        assert (result.distinct_states, result.depth) == COUNTS[name]
        assert result.evaluations < 20_000, "the role runs once for what it reads, and not for each state"


@pytest.mark.campaign
def test_every_action_is_taken_in_some_configuration() -> None:
    taken = {action.name for name in COUNTS for action in explored(name).actions if action.taken}
    assert taken == {declared.name for declared in LogLeader.declared("action")}


def test_plain_python_agrees() -> None:
    options = SearchOptions(workers=1, max_depth=10)
    plain, compiled = (check(LogLeader(), engine=engine, options=options) for engine in ("reference", "embedded"))
    assert plain.distinct_states == compiled.distinct_states > 300
    assert plain.actions == compiled.actions


@pytest.mark.campaign
def test_it_depends_on_nothing_but_its_state() -> None:
    assert check(LogLeader.configured("one-client"), options=SearchOptions(checking=True)).holds


def test_what_is_explored_is_the_role_that_writers_run() -> None:
    from fencepost.log import writer

    assert writer.role.Leader is Leader  # type: ignore[attr-defined]
