"""Simulated quorums keep their promises, and a seed gives the same run in every process."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from campaigns import campaign_if

from fencepost.quorum.simulation.case import drawn
from fencepost.quorum.simulation.cluster import simulate

ONE = (
    "from fencepost.quorum.simulation.cluster import simulate; o = simulate(7);"
    " print(o.digest, o.events, o.messages, o.virtual)"
)


@pytest.mark.parametrize("first", [40, *campaign_if(bool, [0, 20])])
def test_a_quorum_keeps_its_promises_whatever_goes_wrong(first: int) -> None:
    outcomes = [simulate(seed) for seed in range(first, first + 20)]
    assert [(outcome.case.seed, outcome.details) for outcome in outcomes if outcome.promise] == []
    assert sum(outcome.acknowledged for outcome in outcomes) > 1_000
    assert sum(outcome.epochs for outcome in outcomes) > 50
    assert sum(outcome.changes for outcome in outcomes) > 10
    assert sum(outcome.wipes for outcome in outcomes) > 0
    assert sum(outcome.failures for outcome in outcomes) > 10


def test_a_disk_that_is_damaged_is_refused_or_serves_as_it_was() -> None:
    told: list[str] = []
    cases = [dataclasses.replace(drawn(seed), hosts=5, voters=3, rot=15.0) for seed in range(6)]
    outcomes = [simulate(case, report=lambda now, where, what: told.append(what)) for case in cases]
    assert [outcome.details for outcome in outcomes if outcome.promise] == []
    refused = sum(what.startswith("refuses its disk: ") for what in told)
    assert sum(" is flipped" in what for what in told) > refused > 5


def test_a_seed_gives_the_same_run_whatever_the_hash_seed() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", ONE],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
