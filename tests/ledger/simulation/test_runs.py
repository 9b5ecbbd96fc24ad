"""Runs and campaigns: a seed is the same run everywhere, profiles hold, a protection that is off is noticed, and
failures are shrunk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from patience import PATIENCE

from fencepost.cli.commands.simulating import exit_code
from fencepost.errors import OptionError
from fencepost.ledger.roles.interface import Call
from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.simulation.case import EVERYTHING, FAULTS, PROFILES, SETTINGS, drawn, settings_of, with_settings
from fencepost.ledger.simulation.cluster import Cluster, Outcome
from fencepost.ledger.simulation.faults import Faults, planned
from fencepost.ledger.simulation.report import replay_command
from fencepost.ledger.simulation.shrink import shrunk
from fencepost.ledger.simulation.story import Story
from fencepost.ledger.simulation.workload import Campaign, simulate
from fencepost.simulation import seeds
from fencepost.simulation.seeds import Tally

HASHES = """
from fencepost.ledger.simulation.case import drawn
from fencepost.ledger.simulation.workload import simulate
for seed in range(1, 13):
    print(simulate(drawn(seed)).trace_hash)
print(simulate(drawn(7, "beyond")).trace_hash)
for seed in (1, 2, 3):
    print(simulate(drawn(seed, "no-journal")).trace_hash)
"""

SOURCE = Path(__file__).parents[3] / "src"


def hashes(python: str, hash_seed: str, before: str = "") -> str:
    """The output of a process for a few seeds."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [python, "-c", before + HASHES], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return done.stdout


@pytest.mark.parametrize("other", ["4711", *campaign_if(bool, ["1"])])
def test_the_same_seed_is_the_same_run_whatever_the_hash_seed(other: str) -> None:
    found = {hashes(sys.executable, hash_seed) for hash_seed in ("0", other)}
    assert len(found) == 1
    assert len(set(found.pop().split())) == 16


@pytest.mark.parametrize("version", ["python3.11", "python3.12", "python3.13"])
def test_the_same_seed_is_the_same_run_on_every_python(version: str) -> None:
    python = shutil.which(version)
    if (
        python is None
        or subprocess.run(
            [python, "-c", "import fencepost.ledger.simulation.workload"],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
        ).returncode
    ):
        pytest.skip(f"there is no {version} here with what Fencepost needs")
    assert hashes(python, "0") == hashes(sys.executable, "0")


@pytest.mark.campaign
def test_without_protobuf_the_runs_are_the_same() -> None:
    assert hashes(sys.executable, "0", "import sys; sys.modules['google'] = None") == hashes(sys.executable, "0")


def test_a_run_that_is_told_is_the_run_that_is_not() -> None:
    case = drawn(3)
    assert simulate(case, Story()).trace_hash == simulate(case).trace_hash


@pytest.mark.parametrize("seeds", [range(1, 6), pytest.param(range(6, 31), marks=pytest.mark.campaign)], ids=str)
@pytest.mark.parametrize("profile", PROFILES)
def test_no_promise_is_broken(profile: str, seeds: range) -> None:
    for seed in seeds:
        assert simulate(drawn(seed, profile)).violation is None


def test_every_kind_of_fault_happens() -> None:
    done = {fault.kind for seed in range(1, 31) for fault in planned(drawn(seed))}
    assert done == {kind for kind in EVERYTHING if hasattr(Faults, kind)}
    for profile in ("no-journal", "windows"):
        done |= {fault.kind for seed in range(1, 31) for fault in planned(drawn(seed, profile))}
    assert done == {kind for kind in FAULTS if hasattr(Faults, kind)}


def test_a_fault_that_is_left_out_changes_no_other() -> None:
    case = drawn(3)
    faults = planned(case)
    fewer = planned(replace(case, left_out=(faults[1].number,)))
    assert [(f.number, f.time, f.random.getstate()) for f in fewer] == [
        (f.number, f.time, f.random.getstate()) for f in (*faults[:1], *faults[2:])
    ]


FOUND_WITHIN = {
    "fenced_bookies_refuse": 2,
    "recovery_reads_fence": 54,
    "recovery_keeps_fragments": 3,
    "negatives_cover_quorum": 11,
    "write_back_before_close": 3,
    "conditional_updates": 9,
    "confirmations_withdrawn": 20,
    "confirmed_in_order": 20,
    "lac_waits_for_change": 20,
    "recovery_freezes_lac": 112,
    "limbo_is_unknown": 66,
    "keys_are_checked": 1,
    "recovery_reads_stay": 64,
    "recovery_starts_at_fragment": 16,
    "fencing_covers_ensemble": 789,
}
"""The first seed that breaks a promise when a protection is off, today. What is looked at is a few before it and many
after it.
"""


BOOTING = {"boot_fences", "boot_enters_limbo", "cookies_follow_marks", "run_precedes_answers"}
"""The protections of a bookie that may have lost something."""


def test_every_protection_has_a_seed() -> None:
    assert {*FOUND_WITHIN, *BOOTING} == set(ALL._fields)


@pytest.mark.parametrize("protection", FOUND_WITHIN)
def test_a_protection_that_is_off_is_found(protection: str) -> None:
    seed = FOUND_WITHIN[protection]
    tally = seeds.run(Campaign(range(max(1, seed - 2), seed + 600), protections=ALL.replace(**{protection: False})))
    assert tally.failed is not None
    assert exit_code(tally) == 12


@pytest.mark.campaign
def test_a_campaign_comes_to_the_same_with_any_number_of_jobs() -> None:
    def came_to(tally: Tally[Outcome]) -> tuple[object, ...]:
        failed = tally.failed and (tally.failed.outcome.case, tally.failed.what)
        return tally.seeds, tally.counts, tally.virtual, tally.hash, failed

    for protections in (ALL, ALL.replace(recovery_keeps_fragments=False)):
        campaign = Campaign(range(1, 31), protections=protections)
        assert came_to(seeds.run(campaign)) == came_to(seeds.run(replace(campaign, jobs=2)))


def test_what_was_done_when_a_campaign_is_interrupted_is_kept() -> None:
    def interrupt(tally: Tally[Outcome]) -> None:
        if tally.seeds >= 8:
            raise KeyboardInterrupt

    tally = seeds.run(Campaign(range(1, 1000)), interrupt)
    assert (tally.interrupted, tally.seeds, exit_code(tally)) == (True, 8, 130)


def test_what_fails_is_shrunk_to_a_case_that_can_be_replayed() -> None:
    protections = ALL.replace(write_back_before_close=False)
    found = seeds.run(Campaign(range(6, 50), protections)).failed
    assert found is not None
    failed = found.outcome
    smallest = shrunk(failed)
    assert smallest.violation is not None and failed.violation is not None
    assert smallest.violation.promise == failed.violation.promise
    assert smallest.events < failed.events
    again = with_settings(drawn(failed.case.seed, "everything", protections), settings_of(smallest.case))
    assert simulate(again).trace_hash == smallest.trace_hash
    assert f"--replay {failed.case.seed} --without write_back_before_close -D " in replay_command(smallest.case)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"size": "3"}, "a case has no size"),
        ({"entries": "many"}, "'many' is not a whole number"),
        ({"faults": "delays,earthquakes"}, "there is no fault earthquakes"),
        ({"ack_quorum": "9"}, "an ack quorum is at most a write quorum"),
        ({"entries": "100000"}, "give no number above 1000"),
        ({"placed": "there"}, "there is no placement there, there are none, racks, zones, regions, groups"),
        ({"places": "0"}, "bookies are in 1 place at least"),
    ],
)
def test_what_can_not_be_set_is_told(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        with_settings(drawn(1), settings)


def test_all_settings_can_be_set_and_written_down() -> None:
    settings = {name: "3" for name in SETTINGS if name != "faults"} | {"faults": "delays,bit_rot", "placed": "zones"}
    case = with_settings(drawn(1), settings)
    assert {
        **settings_of(case),
        **{n: str(getattr(case, n)) for n in SETTINGS if n not in ("faults", "left_out")},
    } == settings


def test_entries_go_by_the_batch_and_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: Counter[str] = Counter()
    receive = Cluster.receive

    def counted(self: Cluster, who: str, role: Any, event: Any) -> Any:
        happened[event.operation if isinstance(event, Call) else type(event).__name__] += 1
        return receive(self, who, role, event)

    monkeypatch.setattr(Cluster, "receive", counted)
    for seed in range(1, 31):
        simulate(drawn(seed))
    assert {"Append", "AddsAnswered", "ReadEntries", "WantEntries", "ReadsAnswered", "ForgetReads"} <= {*happened}
    assert {"AddsArrived", "ReadsArrived", "ReadsFound"} <= {*happened}
