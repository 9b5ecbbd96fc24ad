"""Simulated bookies and writers with the compiled loops of real ones: every run is the same as without them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from campaigns import campaign_if

from fencepost.ledger.kernels.requests import AddBatch, ReadResults
from fencepost.ledger.simulation import bookie, workload
from fencepost.ledger.simulation.case import drawn
from fencepost.ledger.simulation.environment import StoreEnvironment
from fencepost.ledger.simulation.workload import simulate


@pytest.mark.parametrize("profile", ["everything", *campaign_if(bool, ["no-journal", "beyond"])])
def test_the_same_seed_is_the_same_run_with_loops(monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    cases = [replace(drawn(seed, profile), entries=30) for seed in range(1, 13)]
    plain = [simulate(case) for case in cases]
    seen: set[type] = set()
    receive = StoreEnvironment.receive

    def looked_at(self: StoreEnvironment, who: str, role: object, event: object) -> object:
        seen.update(map(type, getattr(event, "adds", ())))
        seen.add(type(getattr(event, "reads", None)))
        return receive(self, who, role, event)  # type: ignore[arg-type]

    monkeypatch.setattr(StoreEnvironment, "receive", looked_at)
    monkeypatch.setattr(bookie, "_BATCHES", [])
    for loops in (bookie.OF_BOOKIES, workload.LOOPS):
        monkeypatch.setattr(loops, "module", None)
        loops.load()
    assert [(each.trace_hash, each.violation) for each in map(simulate, cases)] == [
        (each.trace_hash, each.violation) for each in plain
    ]
    assert {AddBatch, ReadResults} <= seen
