"""The protocol ``quorum``: the states of its configurations, and the violation that each protection prevents."""

from __future__ import annotations

import pytest
from campaigns import MANY_STATES, campaign_if, engine_for

from fencepost import SearchOptions
from fencepost.api.check import check
from fencepost.language.loading import shipped

HOLDS = {
    "default": 11_852,
    "pre-votes": 12_433,
    "restart": 90_320,
    "removal": 12_084,
    "removal-restart": 58_874,
    "removal-election": 157_004,
    "removed-leader-stands": 91_214,
    "removed-leader-restarts": 323_290,
    "removal-pre-votes": 174_135,
    "removal-crash": 80_314,
    "adding": 188_895,
    "adding-restart": 14_682,
    "single": 80,
    "observer-parted": 93_221,
    "observer-restarts": 6_872,
    "two-observers": 103_192,
    "three-epochs": 404_807,
    "cut-off": 764,
    "undisturbed": 660,
    "parted": 204,
    "parted-again": 574,
}

LARGE = {"removal-at-any-time": (12, 5_835)}
"""Configurations that are too large for a test, with a depth limit and the states up to it."""

VIOLATED = {
    "voted-twice": ("never_two_leaders_in_same_epoch", 9),
    "log-behind": ("leader_has_all_acked_values", 11),
    "unsynced-counted": ("leader_has_all_acked_values", 13),
    "removed-leader-stays": ("removed_leaders_step_down", 7),
}


@pytest.mark.parametrize("name", campaign_if(lambda name: HOLDS[name] > MANY_STATES, HOLDS))
def test_a_quorum_keeps_its_promises(name: str) -> None:
    result = check("quorum", configuration=name, engine=engine_for(HOLDS[name]))
    assert (result.verdict, result.distinct_states) == ("holds", HOLDS[name])


@pytest.mark.parametrize("name", LARGE)
def test_a_large_quorum_keeps_its_promises_for_a_while(name: str) -> None:
    depth, states = LARGE[name]
    result = check("quorum", configuration=name, options=SearchOptions(max_depth=depth))
    assert result.violation is None and result.distinct_states == states


@pytest.mark.parametrize("name", campaign_if(lambda name: name == "unsynced-counted", VIOLATED))
def test_without_a_protection_a_promise_is_broken(name: str) -> None:
    result = check("quorum", configuration=name)
    assert result.violation is not None and result.violation.trace is not None
    assert (result.violation.name, len(result.violation.trace.steps) + 1) == VIOLATED[name]


def test_every_configuration_is_looked_at() -> None:
    assert set(HOLDS) | set(LARGE) | set(VIOLATED) == set(shipped("quorum").configurations)


@pytest.mark.parametrize(
    "name", ["default", "pre-votes", "three-epochs", "cut-off", "undisturbed", "parted", "parted-again"]
)
def test_it_is_the_published_protocol_where_that_has_a_step_for_everything(name: str) -> None:
    assert shipped("quorum").configurations[name].expect == "holds"
    protocol = shipped("quorum")(**shipped("quorum").configurations[name].constants)
    assert protocol.is_published  # type: ignore[attr-defined]
