"""``python -m bench.spark``: the Spark engine beside the embedded one, on one core and on two, level by level.

Every figure comes from a process of its own. One core means that the whole of it, virtual machine and Python workers,
is kept there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fencepost.files.storage import open_storage
from fencepost.spark.level import blank_visited, run_blocks, run_columns, write_run
from fencepost.spark.loops import mark_visited

CONSTANTS = {"recovery_reads_fence": "true", "send_limit": "2"}
HANDOVER = 200_000
LARGE = 1_000_000
"""A level with at least this number of states counts as large."""

EXPLORE = """
import json, sys
from pathlib import Path
from fencepost import check
from fencepost.language.loading import shipped
constants, options = json.loads(sys.argv[1])
engine = options.pop("engine")
if "checkpoint" in options:
    options["checkpoint"] = Path(options["checkpoint"])
result = check(shipped("bookkeeper-4.13")(**constants), engine=engine, **options)
print(json.dumps([result.distinct_states, result.seconds, result.profile.get("levels on Spark"), str(result.failure)]))
"""


def explore(cores: int, **options: Any) -> tuple[int, float, list[dict[str, float]]]:
    """Distinct states, seconds, and the levels on Spark."""
    request = json.dumps([CONSTANTS, options])
    command = ["taskset", "-c", ",".join(map(str, range(cores))), sys.executable, "-c", EXPLORE, request]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"a measurement failed:\n{done.stderr}")
    distinct, seconds, levels, failure = json.loads(done.stdout.splitlines()[-1])
    if failure != "None":
        sys.exit(failure)
    return distinct, seconds, levels or []


def costs(levels: list[dict[str, float]], cores: int) -> str:
    """The figures of docs/check/spark.md: candidates of a state, and nanoseconds of one core for each candidate and
    each state.
    """
    total = {name: sum(level[name] for level in levels) for name in levels[0]}
    waited = cores * total["job"] - total["expand"] - total["deduplicate"] - total["build"]
    return (
        f"candidates a state found: {total['candidates'] / total['found']:.2f}, of which sent:"
        f" {total['sent'] / total['found']:.2f}\nnanoseconds: expand {total['expand'] / total['candidates'] * 1e9:.0f}"
        f" a candidate, remove duplicates {total['deduplicate'] / total['candidates'] * 1e9:.0f} a candidate, build"
        f" {total['build'] / total['found'] * 1e9:.0f} a state, everything else {waited / total['found'] * 1e9:.0f} a"
        " state"
    )


def scan(millions: int = 50) -> None:
    """How fast visited fingerprints are looked through: one sorted file of them, and few candidates."""
    generator = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        storage = open_storage(folder)
        low = np.sort(generator.integers(0, 1 << 63, millions * 1_000_000, np.uint64))
        columns = run_columns(False, False)
        run = write_run(storage, "run.bin", blank_visited(len(low), columns)._replace(fp=low), columns)
        few, seen = low[:: len(low) // 1000].copy(), np.zeros(1001, np.uint8)
        for again in (False, True):
            i, began = 0, time.perf_counter()
            for block, high in run_blocks(storage, run, False):
                i = mark_visited(few, few, i, block, high, seen, False)
            seconds = time.perf_counter() - began
            if again:
                print(
                    f"looking through visited states: {seconds / len(low) * 1e9:.2f} ns each,"
                    f" {8 * len(low) / seconds / 1e9:.1f} GB/s from the page cache"
                )


def main() -> None:
    """Print the report."""
    depth = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}; BookKeeper 4.13, 2 entries, {depth} levels\n")
    explore(2, engine="embedded", workers=2, max_depth=8)  # fills the cache of compiled loops
    distinct, seconds, _ = explore(2, engine="embedded", workers=2, max_depth=depth)
    print(f"{'embedded, 2 workers':<28}{distinct:>14,} states{seconds:>8.1f} s{distinct / seconds:>14,.0f} states/s")
    rates = {}
    for cores in (2, 1):
        with tempfile.TemporaryDirectory() as folder:
            place = str(Path(folder) / "states")
            spark = {"engine": "spark", "workers": cores, "master": f"local[{cores}]", "handover": HANDOVER}
            distinct, seconds, levels = explore(cores, **spark, max_depth=depth, checkpoint=place)
            # The states of the last level are not in the checkpoint: they were not asked for their actions.
            saved = json.loads((Path(place) / "manifest.json").read_text())["distinct"]
            kept = sum(f.stat().st_size for f in Path(place).glob("*-run-*")) / saved
        print(
            f"{f'Spark, local[{cores}]':<28}{distinct:>14,} states{seconds:>8.1f} s{distinct / seconds:>14,.0f}"
            " states/s"
        )
        print(
            f"{'level':>16}{'found':>12}{'states/s':>12}{'job':>8}{'expand':>8}{'dedup':>8}{'build':>8}"
            f"{'parked':>10}{'B/candidate':>12}"
        )
        for level in levels:
            rate = level["found"] / (level["job"] + level["complete"])
            print(
                f"{level['states']:>16,.0f}{level['found']:>12,.0f}{rate:>12,.0f}{level['job']:>8.2f}{level['expand']:>8.2f}"
                f"{level['deduplicate']:>8.2f}{level['build']:>8.2f}{level['parked']:>10,.0f}"
                f"{level['shuffled'] / level['candidates']:>12.1f}"
            )
        large = [level for level in levels if level["states"] >= LARGE]
        if large:
            rates[cores] = sum(level["found"] for level in large) / sum(
                level["job"] + level["complete"] for level in large
            )
            print(f"large levels: {rates[cores]:,.0f} states/s")
            print(costs(large, cores))
        print(f"kept for each visited state: {kept:.1f} bytes\n")
    scan()
    if len(rates) == 2:
        print(f"large levels, two cores to one: {rates[2] / rates[1]:.2f}x")
    print(f"load {os.getloadavg()[0]:.2f} at the end")


if __name__ == "__main__":
    main()
