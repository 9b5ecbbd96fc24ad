"""Traces of simulated quorums are behaviours of `running-quorum`. A trace of a faulty quorum is not, and the verdict
names the wrong step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from campaigns import campaign_if
from quorum.test_planted_quorum import PLANTED, UNSEEN, Planted, plant
from traces.traced import recording, said, sorted_by_node

from fencepost import check
from fencepost.cli.main import main
from fencepost.protocols.quorum.conformance import QuorumConformance
from fencepost.protocols.quorum.running import RunningQuorum
from fencepost.quorum.roles.replica import Replica
from fencepost.quorum.rules import ALL, Protections
from fencepost.quorum.simulation.case import Case, drawn
from fencepost.quorum.simulation.cluster import Cluster, simulate
from fencepost.quorum.simulation.host import TRACED_AS
from fencepost.simulation.trace import SimTrace
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict

VALIDATOR = Validator(QuorumConformance)
SEEDS = (*range(1, 9), 20)

PROTECTIONS: list[tuple[str, int, str, str]] = [
    ("one_vote_an_epoch", 2, "handle_vote_request", "require(granted == rules.grants_vote("),
    ("votes_are_kept", 38, "lose_leader", "voted is r2 then, and the trace says None"),
    ("logs_are_compared", 2, "handle_vote_request", "require(granted == rules.grants_pre_vote("),
    ("directories_are_compared", 6, "handle_vote_request", "require(asked is None or rules.is_meant_for("),
    ("majority_of_voters", 3, "send_request_vote", "require(self._has_won(s))"),
    ("only_own_epoch_commits", 2, "commit", "require(agreed > me.high_watermark)"),
    ("leader_counts_stored", 3, "commit", "require(agreed > me.high_watermark)"),
    ("only_voters_count", 12, "commit", "require(agreed > me.high_watermark)"),
    ("logs_are_matched", 5, "accept_fetch_request", "require(rules.position_of("),
    ("one_change_at_a_time", 13, "accept_remove_voter_request", "require(refusal is Error.NONE)"),
    ("commit_before_change", 3, "accept_remove_voter_request", "require(refusal is Error.NONE)"),
    ("pre_votes", 2, "handle_vote_request", "require(granted == rules.grants_pre_vote("),
    ("non_members_are_served", 2, "refuse_fetch", "require(rules.refuses_fetch("),
    ("removed_leader_resigns", 23, "accept_fetch_request", "require(not rules.resigns_when_committed("),
    ("majority_is_heard", 17, "keep_leading", "require(not rules.has_lost_majority("),
    ("removed_voters_campaign", 3, "lose_leader", "require(not self._may_campaign(s))"),
]
"""The disabled protection, a seed, the step that the verdict names, and why the step cannot be taken."""

FAULTS: list[tuple[str, int, str, str]] = [
    ("half of the voters is a majority", 2, "send_request_vote", "require(self._has_won(s))"),
    ("only the last epoch counts", 3, "handle_vote_request", "require(granted == rules.grants_pre_vote("),
    ("a candidate stands in the epoch that it is in", 1, "send_request_vote", "epoch is 1 then, and the trace says 0"),
    ("the epoch is forgotten at a restart", 2, "restart_with_state", "there is no Stored(epoch=0"),
    ("a log is cut off down to the beginning of the epoch", 9, "truncate", ""),
    (
        "a follower acknowledges what it has not stored",
        2,
        "send_fetch_request",
        "require(not self.syncs_before_fetching or",
    ),
    ("one voter is enough to commit", 2, "commit", ""),
    ("a follower takes all that it has for committed", 2, "learn_commit", ""),
    ("appends are stored later than is said", 2, "restart_with_state", "require(len(found) > 0)"),
    ("pre-votes count as votes", 2, "send_request_vote", "require(self._has_won(s))"),
    ("a vote is forgotten at a restart", 2, "restart_with_state", "there is no Stored(epoch=1, voted=None"),
    (
        "a leader that restarts stands again at once as if it had not led",
        3,
        "restart_with_state",
        "state is RESIGNED then",
    ),
    ("a fetch of any epoch is answered", 3, "accept_fetch_request", "require(end <= fetched.end"),
    ("a leader that removes itself counts itself", 12, "commit", "require(agreed > me.high_watermark)"),
    ("a snapshot leaves no configuration", 2, "snapshot_installed", "then, and the trace says {}"),
    ("the election state is stored later", 1, "become_leader", "require(not (self.stores_before_speaking and"),
]
"""The same for planted faults. The simulator's judge needs many more seeds for most of them.
"""


def run(seed: int | Case, protections: Protections = ALL) -> tuple[str, list[Event]]:
    """The promise that a run breaks, and its trace after it was written and read."""
    trace, events = recording()
    outcome = simulate(seed, protections, trace=trace)
    return outcome.promise, sorted_by_node(events)


@cache
def traced(seed: int) -> tuple[Event, ...]:
    promise, events = run(seed)
    assert not promise
    return tuple(events)


def validated(events: Sequence[Event], shuffle: int | None = None) -> Verdict:
    return VALIDATOR.validate(TRACED_AS, events, shuffle)


def is_told(verdict: Verdict, step: str, why: str) -> bool:
    return (
        not verdict.accepted
        and verdict.covered
        and any(each.event.action == step and why in str(each.why) for each in verdict.refusals)
    )


def test_traces_of_quorums_are_accepted() -> None:
    taken: set[str] = set()
    for seed in SEEDS:
        verdict = validated(traced(seed))
        assert verdict.accepted, (seed, said(verdict))
        taken |= {event.action for event in traced(seed)}
    assert taken >= {
        "restart_with_state",
        "lose_leader",
        "truncate",
        "install_snapshot",
        "snapshot_installed",
        "keep_leading",
    }
    assert taken >= {"accept_add_voter_request", "accept_remove_voter_request", "return_to_leader", "hear_end_of_epoch"}


def test_a_replica_that_goes_on_from_an_older_snapshot_is_accepted() -> None:
    """The last one has a damaged line."""
    events = traced(6)
    taken, starts = (
        [event for event in events if event.action == action] for action in ("take_snapshot", "restart_with_state")
    )
    assert any(
        (one.node, one.incarnation + 1) == (other.node, other.incarnation)
        and one.parameters["snapshot"] > other.parameters["snapshot"]
        for one in taken
        for other in starts
    )
    assert validated(events).accepted


def test_another_order_that_causes_allow_is_accepted_too() -> None:
    for seed in SEEDS[:6]:
        verdict = validated(traced(seed), shuffle=seed)
        assert verdict.accepted, (seed, said(verdict))


def test_a_run_is_the_same_traced_or_not() -> None:
    assert [simulate(seed).digest for seed in SEEDS[:4]] == [
        simulate(seed, trace=SimTrace(lambda *event: None)).digest for seed in SEEDS[:4]
    ]


@pytest.mark.parametrize(("name", "seed", "step", "why"), PROTECTIONS, ids=[row[0] for row in PROTECTIONS])
def test_a_protection_that_is_switched_off_is_told(name: str, seed: int, step: str, why: str) -> None:
    verdict = validated(run(seed, ALL.replace(**{name: False}))[1])
    assert is_told(verdict, step, why), said(verdict)


def test_every_protection_is_accounted_for() -> None:
    assert {name for name, *_ in PROTECTIONS} == {*Protections._fields}


@pytest.mark.parametrize(("name", "seed", "step", "why"), FAULTS, ids=[row[0] for row in FAULTS])
def test_a_planted_fault_is_told(name: str, seed: int, step: str, why: str) -> None:
    fault = next(each for each in [*PLANTED, *UNSEEN] if isinstance(each, Planted) and each.name == name)
    with pytest.MonkeyPatch.context() as patched:
        protections = plant(fault, patched)
        events = run(seed, protections)[1]
    verdict = validated(events)
    assert not why or is_told(verdict, step, why), said(verdict)
    assert not verdict.accepted


def test_an_election_state_that_is_stored_late_breaks_a_promise_too() -> None:
    fault = next(
        each for each in PLANTED if isinstance(each, Planted) and each.name == "the election state is stored later"
    )
    with pytest.MonkeyPatch.context() as patched:
        protections = plant(fault, patched)
        assert simulate(0, protections).promise == "votes are stored first"


def test_an_observer_that_looks_for_its_leader_fetches_from_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replica, "_durable_end", property(lambda self: self.log.end))
    verdict = validated(run(replace(drawn(5), voters=1, slow_syncs=0.9))[1])
    assert is_told(verdict, "send_fetch_request", "there is no 6 among 0"), said(verdict)


@pytest.mark.parametrize("action", ["become_leader", "store_election", "append_fetched", "sync", "truncate"])
def test_a_trace_that_lacks_an_event_is_rejected(action: str) -> None:
    events = next(traced(seed) for seed in SEEDS if any(event.action == action for event in traced(seed)))
    first = next(place for place, event in enumerate(events) if event.action == action)
    assert not validated([event for place, event in enumerate(events) if place != first]).accepted


def test_nobody_counts_a_vote_that_was_not_given() -> None:
    events = [event for event in traced(2) if event.action != "speak" or not event.parameters["votes"]]
    assert not validated(events).accepted


def test_a_trace_that_was_altered_is_rejected() -> None:
    wrong: dict[str, dict[str, Any]] = {
        "client_request": {"count": 7},
        "append_fetched": {"end": [1_000_000, 1]},
        "commit": {"offset": 1_000_000},
        "restart_with_state": {"state": "leader"},
        "truncate": {"end": [0, 0]},
        "accept_fetch_request": {"end": [1_000_000, 1]},
    }
    for action, parameters in wrong.items():
        events = next(traced(seed) for seed in SEEDS if any(event.action == action for event in traced(seed)))
        place = next(place for place, event in enumerate(events) if event.action == action)
        altered = [*events]
        altered[place] = msgspec.structs.replace(events[place], parameters={**events[place].parameters, **parameters})
        assert not validated(altered).accepted, action


def test_what_the_trace_does_not_tell_is_not_covered() -> None:
    events = next(traced(seed) for seed in SEEDS if len({event.node for event in traced(seed)}) > 3)
    without_one = validated([event for event in events if event.node != events[-1].node])
    assert not without_one.covered and "has written no trace" in without_one.problem
    later = next(
        event
        for event in events
        if event.action == "restart_with_state" and event.node == "h1:1" and event.parameters["epoch"]
    )
    older = validated([event for event in events if event.node != "h1:1" or event.incarnation >= later.incarnation])
    assert not older.covered and "was there before the trace began" in older.problem


def test_the_command_writes_traces_and_validates_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "traces")
    assert main(["simulate-quorum", "--seeds", "1..6", "--jobs", "1", "--trace", folder]) == 0
    assert main(["validate", folder, "--protocol", "quorum"]) == 0
    assert "ACCEPTED  6 traces" in capsys.readouterr().out
    off = str(tmp_path / "off")
    assert main(["simulate-quorum", "--replay", "3", "--without", "votes_are_kept", "--trace", off]) == 0
    assert main(["validate", off, "--protocol", "quorum"]) != 0
    assert "lose_leader" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["default", "restart", "adding", *campaign_if(bool, ["removal"])])
def test_the_protocol_holds(name: str) -> None:
    assert check(RunningQuorum, configuration=name).holds


def test_votes_have_to_be_stored_before_they_are_given() -> None:
    result = check(RunningQuorum, configuration="spoken-early")
    assert result.violation is not None and result.violation.name == "one_leader_an_epoch"


def test_a_cluster_without_a_trace_asks_roles_for_none() -> None:
    assert not Cluster(drawn(1)).hosts[0].replica.traces
