"""Traces of simulated runs, and of counters, as files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.simulation.case import drawn
from fencepost.ledger.simulation.workload import simulate
from fencepost.simulation.trace import SimTrace
from fencepost.traces import RunsFile


def write_runs(path: Path, seeds: Iterable[int], profile: str, without: str | None = None) -> int:
    """Run seeds, perhaps without a protection, and write their traces. Returns the number of events."""
    protections = ALL if without is None else ALL.replace(**{without: False})
    count = 0
    with RunsFile(path) as file:
        for seed in seeds:

            def emit(
                node: str,
                incarnation: int,
                seq: int,
                action: str,
                subject: str | None,
                parameters: Mapping[str, Any],
                run: str = f"{profile}-{seed}",
            ) -> None:
                nonlocal count
                count += 1
                file.emit(run, node, incarnation, seq, action, subject, dict(parameters))

            simulate(drawn(seed, profile, protections), trace=SimTrace(emit))
    return count


def write_counters(path: Path, runs: dict[str, Sequence[tuple[str, str, int]]]) -> Path:
    """Traces of the counter of subject 7: for each run what nodes do, in the order in which it happens."""
    with RunsFile(path) as file:
        for run, happened in runs.items():
            numbers: dict[str, int] = {}
            for node, action, value in happened:
                if node not in numbers:
                    numbers[node] = 1
                    file.emit(run, node, 1, 1, "started")
                numbers[node] += 1
                file.emit(run, node, 1, numbers[node], action, "7", {"value": value})
    return path


GOOD = (("a", "writes", 1), ("b", "reads", 1), ("b", "writes", 2), ("a", "reads", 2), ("a", "writes", 3))
BAD = (("a", "writes", 1), ("b", "reads", 1), ("b", "writes", 2), ("a", "writes", 3))
