"""Whole systems on virtual time: they hold, they are reproducible, and a fault in any part is found."""

from __future__ import annotations

import json
import os
import random
import runpy
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from campaigns import campaign_if
from docs.documents import EXAMPLES

from fencepost.api.client import Client
from fencepost.cli.main import main
from fencepost.ledger.client import client as of_client
from fencepost.ledger.client import replication
from fencepost.ledger.metadata.client import Bookies
from fencepost.ledger.roles.interface import Event
from fencepost.ledger.roles.recoverer import Recoverer
from fencepost.ledger.rules.placement import ANYWHERE, replacement
from fencepost.ledger.rules.protections import ALL
from fencepost.log.roles import leader
from fencepost.log.rules import Failure
from fencepost.metadata import protocol
from fencepost.metadata.codes import Code
from fencepost.simulation.trace import SimTrace
from fencepost.world import case, metadata
from fencepost.world.case import drawn
from fencepost.world.world import Outcome, simulate


def first_broken(seeds: range) -> str:
    """The first promise broken by any of these seeds."""
    return next((outcome.promise for seed in seeds if (outcome := simulate(seed)).promise), "")


def traced(seed: int) -> tuple[Outcome, int]:
    """A world, and the number of events in its trace."""
    events: list[tuple[object, ...]] = []
    return simulate(seed, trace=SimTrace(lambda *event: events.append(event))), len(events)


@pytest.mark.parametrize("seed", [9, *campaign_if(bool, [12, 16, 33, 3738])])
def test_worlds_keep_their_promises(seed: int) -> None:
    outcome = simulate(seed)
    assert not outcome.promise, outcome.what
    assert outcome.entries and outcome.ledgers


@pytest.mark.parametrize("seed", [5, 17, *campaign_if(bool, [10])])
def test_worlds_enforce_placements(seed: int) -> None:
    outcome = simulate(seed)
    assert drawn(seed).placed != "none" and not outcome.promise, outcome.what


def test_a_story_changes_nothing() -> None:
    told: list[str] = []
    assert simulate(9, lambda now, who, what: told.append(f"{who} {what}")) == simulate(9)
    assert any("ledger" in line for line in told)


def test_other_threads_change_nothing_and_keep_their_own_clocks() -> None:
    alone, began, over, times = simulate(9), time.time(), threading.Event(), list[float]()

    def draws() -> None:
        while not over.is_set():
            os.urandom(1)
            times.append(time.time() + random.random())

    with ThreadPoolExecutor(1) as pool:
        pool.submit(draws)
        try:
            assert simulate(9) == alone
        finally:
            over.set()
    assert min(times) > began - 60, "none of them is of the world"


@pytest.mark.campaign
def test_a_trace_changes_nothing_and_is_that_of_the_protocols(tmp_path: Path) -> None:
    """Of a world without auto-recovery, whose copies no trace tells of."""
    assert not drawn(16).replicators
    outcome, events = traced(16)
    assert outcome == simulate(16) and events
    assert main(["simulate-world", "--replay", "16", "--trace", str(tmp_path)]) == 0
    for protocol_of in ("store", "log", "quorum"):
        assert main(["validate", str(tmp_path), "--protocol", protocol_of]) == 0


def test_a_seed_is_the_same_world_in_every_process() -> None:
    """Where strings have other hashes, and so sets of them another order."""
    command = [sys.executable, "-m", "fencepost", "simulate-world", "--replay", "9", "--json"]
    environment = {**os.environ, "PYTHONHASHSEED": "5"}
    made = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=120)
    assert json.loads(made.stdout)["hash"] == simulate(9).hash


def test_programs_of_ones_own_take_part_and_what_they_assert_is_a_promise() -> None:
    orders = runpy.run_path(str(EXAMPLES / "simulated_orders.py"))["orders"]
    told: list[str] = []
    outcome = simulate(9, lambda now, who, what: told.append(f"{who} {what}"), programs={"orders": orders})
    assert not outcome.promise and any(line.endswith("by orders") for line in told)

    async def doubts(client: Client, random: Random) -> None:
        if await client.log("orders").chain():
            raise ValueError("there is a chain")

    outcome = simulate(9, programs={"orders": orders, "doubter": doubts})
    assert (outcome.promise, outcome.what) == ("sanity", "doubter raises ValueError: there is a chain")


# -- what is wrong is found -------------------------------------------------------------------------------------------


def test_a_metadata_service_that_answers_before_it_commits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    put = metadata.SimMember._put_into_log

    def answers(member: Any, process: int, asked: Any) -> None:
        put(member, process, asked)
        for each in asked if process == member.process else ():
            item = member._in_flight.get(each.number)
            if isinstance(each.request, protocol.SetData) and item is not None and item.connection is not None:
                node = member.tree.nodes.get(each.request.path)
                if node is not None:
                    done = protocol.StatOf(member.tree.stat(each.request.path, node))
                    item.connection.send(protocol.reply(item.xid, member.tree.zxid + 1, Code.OK, done))

    monkeypatch.setattr(metadata.SimMember, "_put_into_log", answers)
    assert first_broken(range(1, 3)) == "committed"


@pytest.mark.campaign
def test_auto_recovery_that_changes_metadata_before_it_has_copied_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def copies_nothing(*_: object) -> None:
        pass

    monkeypatch.setattr(replication, "_copy_all", copies_nothing)
    assert first_broken(range(9, 12)) == "replication"


def _anywhere(ensemble: Any, lost: Any, gone: Any, candidates: Any, *_: Any) -> Any:
    return replacement(ensemble, lost, gone, candidates)


@pytest.mark.parametrize(("seed", "placed"), [(17, "regions"), (10, "groups")])
def test_auto_recovery_that_copies_to_any_bookie_is_found(
    monkeypatch: pytest.MonkeyPatch, seed: int, placed: str
) -> None:
    monkeypatch.setattr(replication, "replacement", _anywhere)
    assert drawn(seed).placed == placed
    assert simulate(seed).promise == "placement"


def test_clients_that_do_not_enforce_the_placement_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bookies, "placement", lambda self, policy: ANYWHERE)
    assert simulate(17).promise == "placement"


@pytest.mark.campaign
def test_a_leader_that_goes_on_after_its_ledger_is_fenced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes what it has written for appended."""
    failed = leader.Leader._write_failed

    def goes_on(role: Any, event: Any, now: int, effects: Any) -> None:
        if event.ledger == role.ledger and event.failure is Failure.FENCED:
            role._acknowledge(effects, role.written)
        failed(role, event, now, effects)

    failure: type[Event] = leader.WriteFailed
    monkeypatch.setitem(leader._EVENTS, failure, goes_on)
    assert first_broken(range(1, 7)) == "no loss"


def test_bookies_that_take_adds_after_a_fence_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    of_store = vars(case.Case)["of_store"].fget
    protections = ALL.replace(fenced_bookies_refuse=False)
    monkeypatch.setattr(case.Case, "of_store", property(lambda of: replace(of_store(of), protections=protections)))
    assert first_broken(range(2, 6)) == "fencing"


@pytest.mark.campaign
def test_a_recovery_that_gives_entries_up_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(ledger: int, settings: Any, traces: bool = False) -> Recoverer:
        return Recoverer(ledger, settings, ALL.replace(negatives_cover_quorum=False), traces)

    monkeypatch.setattr(of_client, "Recoverer", careless)
    assert first_broken(range(19, 23)) in ("no loss", "one close", "quorum")


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_runs_seeds_and_tells_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate-world", "--seeds", "33..33", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("HELD  no promise was broken in 1 seed\nsimulate-world  seeds 33..33\n")
    assert main(["simulate-world", "--replay", "33"]) == 0
    told = capsys.readouterr().out
    assert "network     heals: nothing goes wrong from now on" in told
    assert "\nHELD  no promise was broken\nsimulate-world  seed 33\n" in told
