"""Traces of runs of the simulator, as a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fencepost.store.rules.protections import ALL
from fencepost.store.sim.case import drawn
from fencepost.store.sim.run import simulate
from fencepost.store.sim.trace import SimTrace
from fencepost.tracing import RunsFile


def write_runs(path: Path, seeds: Iterable[int], profile: str, without: str | None = None) -> int:
    """Run seeds, perhaps without a protection, and write what happened; how many events that are."""
    protections = ALL if without is None else ALL.replace(**{without: False})
    count = 0
    with RunsFile(path) as file:
        for seed in seeds:

            def emit(node: str, incarnation: int, seq: int, action: str, subject: str | None, parameters: Mapping[str, Any], run: str = f"{profile}-{seed}") -> None:
                nonlocal count
                count += 1
                file.emit(run, node, incarnation, seq, action, subject, dict(parameters))

            simulate(drawn(seed, profile, protections), trace=SimTrace(emit))
    return count
