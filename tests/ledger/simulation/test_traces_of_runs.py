"""Traces of simulated runs: many runs in one file. Tracing does not change a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.cli.main import main
from fencepost.ledger.simulation.workload import Campaign
from fencepost.simulation import seeds
from fencepost.simulation.seeds import run
from fencepost.traces import read, table


def test_a_campaign_is_the_same_with_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "TRACED_CHUNK", 3)
    plain, traced = run(Campaign(range(1, 8))), run(Campaign(range(1, 8), traces=tmp_path / "traces"))
    assert (plain.hash, plain.seeds) == (traced.hash, traced.seeds)
    names = ["everything-seed-1-to-3.parquet", "everything-seed-4-to-6.parquet", "everything-seed-7-to-7.parquet"]
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == names
    lives: dict[tuple[str, str], int] = {}
    labels: set[tuple[str, str]] = set()
    for event in read(tmp_path / "traces"):
        if event.seq == 1:
            assert event.action == "started"
            assert event.incarnation == lives.get((event.run, event.node), 0) + 1
            lives[event.run, event.node] = event.incarnation
        label = event.parameter_values().get("connection")
        if label is not None:
            client, _, rest = label.partition(">")
            bookie = event.node if event.node.startswith("b") else event.parameter_values()["bookie"]
            assert rest.startswith(f"{bookie}#") and (event.run, client) in lives
            labels.add((event.run, label))
    assert {run for run, _ in lives} == {f"everything-seed-{seed}" for seed in range(1, 8)}
    assert max(lives.values()) > 1  # somebody was restarted
    assert len(labels) > 7


def test_one_seed_is_traced(tmp_path: Path) -> None:
    assert main(["simulate-store", "--replay", "3", "--profile", "calm", "--trace", str(tmp_path)]) == 0
    assert {event.run for event in read(tmp_path)} == {"calm-seed-3-replayed"}
    assert main(["simulate-store", "--seeds", "3..3", "--profile", "calm", "--trace", str(tmp_path / "more")]) == 0
    without = [name for name in table(tmp_path).column_names if name != "run"]
    assert table(tmp_path).select(without).equals(table(tmp_path / "more").select(without))
