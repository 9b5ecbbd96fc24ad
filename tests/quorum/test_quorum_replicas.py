"""`quorum-replica`: the role that quorum replicas run, in every order of events."""

from __future__ import annotations

from functools import cache

import pytest
from campaigns import THOROUGH, campaign_if, engine_for
from quorum.test_planted_quorum import UNSEEN, name_of, plant

from fencepost import Result, SearchOptions, check
from fencepost.protocols.quorum.replica import Replicas
from fencepost.quorum.driver import node
from fencepost.quorum.roles.replica import Replica

COUNTS = {
    "default": (11_369, 21),
    "first-election": (14_701, 27),
    "losses": (40_648, 22),
    "resignation": (21_098, 24),
    "succession": (486_564, 35),
    "crash": (7_055, 21),
    "crash-and-election": (1_232_934, 35),
    "two-elections": (7_898_511, 41),
    "observer": (26_871, 32),
    "addition": (46_387, 24),
    "added-and-removed": (3_759, 25),
    "removal": (960_032, 43),
    "removal-of-two": (25_676, 32),
    "removal-and-crash": (8_066, 27),
    "removal-undone": (19_259, 34),
    "moved": (29_229, 31),
    "snapshots": (7_345, 28),
    "snapshots-and-crash": (2_635, 22),
    "added-unknown": (2_480_683, 35),
}
LARGE = {
    "crash-and-election",
    "two-elections",
    "removal",
    "added-unknown",
    "two-changes",
    "change-before-commit",
}
SLOW = {
    "succession",
    "removal-of-two",
    "removal-and-crash",
    "removal-undone",
    "removed-leader-waits",
    "logs-not-compared",
    "logs-not-matched",
    "votes-forgotten",
    "votes-twice",
    "crash",
    "snapshots-and-crash",
    "addition",
    "first-election",
    "losses",
    "moved",
    "observer",
    "resignation",
    "snapshots",
}
"""These need many evaluations of the role."""


@cache
def explored(name: str) -> Result:
    engine = "embedded" if name in SLOW else engine_for(COUNTS.get(name, (0, 0))[0])
    return check(Replicas.configured(name), engine=engine, options=SearchOptions(workers=1))


@pytest.mark.parametrize(
    "name", campaign_if(SLOW.__contains__, [name for name in Replicas.configurations if THOROUGH or name not in LARGE])
)
def test_configurations_come_to_what_they_are_declared_with(name: str) -> None:
    result = explored(name)
    assert result.verdict == Replicas.configurations[name].expect
    if result.holds:
        assert (result.distinct_states, result.depth) == COUNTS[name]
        assert result.evaluations < 20_000, "the role runs once for what it reads, and not for each state"


def test_every_configuration_that_holds_has_its_counts() -> None:
    assert COUNTS.keys() == {name for name, one in Replicas.configurations.items() if one.expect == "holds"}


@pytest.mark.parametrize(
    ("fault", "name", "violated"),
    [
        ("what was cut off is still the configuration", "removal-undone", "the_index_is_that_of_the_log"),
        ("a snapshot leaves no configuration", "snapshots", "the_index_is_that_of_the_log"),
        ("a vote is forgotten at a restart", "removal-and-crash", "epoch_and_vote_are_stored"),
    ],
)
def test_faults_that_take_a_simulator_many_seeds_are_told(
    fault: str, name: str, violated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(next(each for each in UNSEEN if name_of(each) == fault), monkeypatch)
    result = check(Replicas.configured(name), options=SearchOptions(workers=1))
    assert result.violation is not None and result.violation.name == violated


@pytest.mark.campaign
def test_every_action_is_taken_in_some_configuration() -> None:
    """Configurations of campaigns come first, since they are explored already."""
    missing = {declared.name for declared in Replicas.declared("action")}
    for name in sorted(COUNTS.keys() - LARGE, key=lambda name: (name not in SLOW, name)):
        if missing:
            missing -= {action.name for action in explored(name).actions if action.taken}
    assert not missing


@pytest.mark.campaign
def test_plain_python_agrees() -> None:
    options = SearchOptions(workers=1, max_depth=6)
    plain, compiled = (check(Replicas(), engine=engine, options=options) for engine in ("reference", "embedded"))
    assert plain.distinct_states == compiled.distinct_states > 100
    assert plain.actions == compiled.actions


def test_what_is_explored_is_the_role_that_members_run() -> None:
    assert node.Replica is Replica  # type: ignore[attr-defined]
