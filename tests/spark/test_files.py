"""Visited runs in files: finding a state and splitting a run take a few reads, and one sort divides references by
partition.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fencepost.checker.compiler.encoding import pack_reference, reference_parent
from fencepost.files.storage import Storage
from fencepost.spark import level, stages
from fencepost.spark.level import Run, bounds, find, range_of, run_columns, split, write_run
from fencepost.spark.loops import Visited


class Counting(Storage):
    """Counts the reads."""

    reads = 0

    def read(self, name: str, dtype: Any, offset: int, count: int) -> Any:
        self.reads += 1
        return super().read(name, dtype, offset, count)


def written(
    storage: Storage, owner: int, owners: int, states: int, wide: bool, symmetric: bool = False, seed: int = 1
) -> tuple[Run, list[tuple[int, int]]]:
    """A run of an owner, and its fingerprints in order. If ``wide``, many share their low half. If ``symmetric``, the
    parents are the same fingerprints from last to first, with the halves exchanged.
    """
    random = np.random.default_rng(seed)
    least, end = range_of(owner, owners)
    low = (
        random.integers(least, end, states, np.uint64, endpoint=False)
        if end < 1 << 64
        else random.integers(least, end - 1, states, np.uint64)
    )
    if wide:
        low[: states // 3] = low[states // 3 : 2 * (states // 3)]
    high = random.integers(0, 1 << 62, states, np.uint64)
    order = np.lexsort((high, low))
    low, high = low[order], high[order]
    visited = Visited(low, high, np.arange(states, dtype=np.uint32), high[::-1].copy(), low[::-1].copy())
    run = write_run(storage, f"run-{seed}", visited, run_columns(wide, symmetric))
    return run, list(zip(low.tolist(), high.tolist() if wide else [0] * states, strict=True))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("owners", "owner"), [(1, 0), (7, 3), (8, 7)])
def test_a_state_is_found_with_a_few_reads(tmp_path: Path, wide: bool, owner: int, owners: int) -> None:
    storage, span = Counting(str(tmp_path)), range_of(owner, owners)
    run, held = written(storage, owner, owners, 300_000, wide, symmetric=True)
    for number in [0, 1, 2, 149_999, 299_998, 299_999, *range(777, 300_000, 40_001)]:
        storage.reads = 0
        low, high = held[number]
        found = find(storage, run, span, low, high, run_columns(wide, True))
        assert found is not None and storage.reads <= (8 if wide else 5)
        place = found["outcome"]
        assert held[place] == held[number]
        if wide:
            assert (found["parent"], found["parent_high"]) == held[-1 - place][::-1]
    for low, high in [
        (span[0], 5),
        (span[1] - 1, 5),
        (held[1000][0], held[1000][1] + 1),
        ((span[0] + span[1]) // 2, 1),
    ]:
        if (low, high if wide else 0) not in held:
            assert find(storage, run, span, low, high, run_columns(wide, True)) is None


def test_a_state_is_found_however_uneven_they_are(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    far = np.arange(20_000, dtype=np.uint64) + np.uint64(1 << 63)
    low = np.sort(np.concatenate([np.arange(50_000, dtype=np.uint64), np.full(9_000, 1 << 40, np.uint64), far]))
    high = np.arange(len(low), dtype=np.uint64)
    columns = run_columns(True, False)
    none = np.zeros(1, np.uint64)
    run = write_run(storage, "run", Visited(low, high, np.arange(len(low), dtype=np.uint32), none, none), columns)
    for number in [0, 49_999, 50_000, 55_555, 58_999, 59_000, 78_999]:
        found = find(storage, run, (0, 1 << 64), int(low[number]), int(high[number]), columns)
        assert found is not None and found["outcome"] == number
    assert find(storage, run, (0, 1 << 64), 1 << 40, 4, columns) is None


@pytest.mark.parametrize("wide", [False, True])
def test_the_runs_of_owners_are_split_by_fingerprint(tmp_path: Path, wide: bool) -> None:
    storage, owners = Counting(str(tmp_path)), 3
    made = [
        [written(storage, owner, owners, states, wide, seed=10 * owner + states) for states in (1, 5, 40_000)]
        for owner in range(owners)
    ]
    storage.reads = 0
    runs = split(storage, split(storage, [[run for run, _ in some] for some in made]))
    assert len(runs) == 4 * owners and storage.reads <= 2 * 27
    edges = bounds(4 * owners)
    for number, some in enumerate(runs):
        for run in some:
            found = level.read_run(storage, run, run_columns(wide, False))
            assert run.states and edges[number] <= int(found.fp[0]) and int(found.fp[-1]) < edges[number + 1]
            assert len(found.outcome) == run.states
    assert sum(run.states for some in runs for run in some) == 3 * 40_006


def test_references_are_divided_by_partition_in_their_order() -> None:
    random = np.random.default_rng(3)
    for partitions, rows in ((1, 10), (7, 100), (90_000, 3), (1 << 38, 1)):  # more partitions than can be counted
        refs = pack_reference(random.integers(0, partitions * rows, 500), random.integers(0, 9, 500))
        refs = np.concatenate([refs, refs[:100]])
        expected: dict[int, list[int]] = {}
        for ref in refs.tolist():
            expected.setdefault(reference_parent(ref) // rows, []).append(ref)
        got = {partition: some.tolist() for partition, some in stages.by_partition(refs, rows)}
        assert got == expected and list(got) == sorted(expected)
    assert list(stages.by_partition(np.zeros(0, np.int64), 5)) == []
