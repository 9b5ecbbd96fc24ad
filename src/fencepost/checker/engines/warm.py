"""Compiles the loops of a search into the cache, in a process of its own: ``python -m fencepost.checker.engines.warm
PART...``.

Each part is compiled for the types with which the embedded engine calls its loops. `ahead` starts such processes, and
says which parts a search needs.
"""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numba import typeof

from fencepost import Protocol, action, state
from fencepost.checker.compiler import native
from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.tables import Tables
from fencepost.checker.engines import kernel, recording, walks
from fencepost.checker.engines.ahead import COMPILED, GRAPH, PARTS, STEPS, TABLES, WALKS, Cache
from fencepost.checker.engines.kernel import LINE, Arena, Levels, Shared
from fencepost.checker.engines.options import SimulationOptions
from fencepost.checker.engines.resources import uncollected
from fencepost.checker.engines.simulate import NOWHERE, Simulation
from fencepost.files.loops import files_of
from fencepost.semantics import Stepper

Call = tuple[Any, tuple[Any, ...]]
"""A loop and arguments of the types that it takes."""


class _Blank(Protocol):
    """A protocol of one state, for the types of its tables."""

    done: bool = state(False)

    @action
    def stay(self) -> None:
        """Change nothing."""


def calls(part: str) -> list[Call]:
    """The loops of a part that Python calls, with arguments of the types that it passes. They are for compiling alone:
    the arrays are too small for a search.
    """
    if part == WALKS:
        return _of_walks()
    tables = Tables(Stepper(_Blank()))
    linked, growing = tables.unlinked(), tables.growing()
    words, numbers, small = np.zeros(1, np.uint64), np.zeros(1, np.int64), np.zeros(1, np.int32)
    rows, pairs, flags = np.zeros((1, 1), np.uint64), np.zeros((1, 3), np.int64), np.zeros(1, np.bool_)
    compiled = tables.reading(linked, rows)
    arena = Arena(rows, words, words, numbers, numbers, small, rows, rows)
    work = kernel.work_with()
    levels = Levels(arena, arena, numbers, words, False, True, 1, 1)
    if part == TABLES:
        kinds = tables.root_kind
        return [
            (native.link, (growing, tables.layout.place, kinds, linked, numbers)),
            (native.row_deltas, (growing, tables.layout.place, 0, 1, rows)),
            (native.add_outcomes, (growing, 0, 1, kinds)),
            (native.widen_root, (growing, 0, words, 1, np.bool_(False))),
            (native.judge_idle, (growing, 0, 1)),
            (native.rehash, (words, small, words, small)),
            (native.widened, (tables.pool, tables.top, 1, 1)),
            (native.move_fields, (rows, 0, 1, np.zeros((1, 2), np.int32))),
            (kernel.complete, (compiled, growing, levels, work, pairs)),
            (kernel.know_steps, (compiled, growing, arena, work, numbers)),
        ]
    if part == GRAPH:
        kinds = np.zeros(1, np.uint16)
        return [
            (recording.count_steps, (compiled, arena, numbers)),
            (recording.list_steps, (compiled, arena, work, numbers, kinds, rows, small, words, kinds, rows)),
            (recording.list_truths, (compiled, arena, work, numbers, 0, numbers, rows)),
            (recording.ask_truths, (compiled, growing, arena, work, numbers, 0, numbers, pairs)),
        ]
    shared = Shared(numbers, numbers, *(_zeros(n, np.int64) for n in (2, 3, 4)), *(
        _zeros(4, kind) for kind in (np.uint64, np.uint64, np.int64)
    ))  # fmt: skip
    return [
        (kernel.insert_all, (words, numbers, words, words, 0, 1, False, flags)),
        (kernel.make_room, (work, False, 0)),
        (kernel.expand, (0, compiled, levels, work, None, True if part == STEPS else None, shared, 0, 1)),
        (kernel.order_level, (levels, work, 0)),
        (kernel.write_links, (levels, work, numbers, numbers, numbers)),
        (kernel.orbit_keys, (compiled, rows, rows, words, words, False)),
    ]


def _of_walks() -> list[Call]:
    with closing(Simulation(Stepper(_Blank()), SimulationOptions(seed=0, walk=0), None)) as one:
        growing, work, walkers = one.tables.growing(), one.work[0], one.walkers[0]
        asks = np.zeros((1, 3), np.int64)
        return [
            (walks.wander, (one.compiled, one.arena, work, walkers, one.plan, one.control, NOWHERE)),
            (walks.complete_walks, (one.compiled, growing, one.arena, work, walkers, one.plan, one.control, asks)),
            (walks.start_of, (one.plan, 0)),
        ]


def _zeros(dimensions: int, kind: Any) -> Array:
    return np.zeros((1,) * (dimensions - 1) + (LINE,), kind)


def warm(parts: Sequence[str], cache: Cache) -> None:
    """Compile parts into the cache, unless they are there. Processes that compile the same part wait for each other.

    Raises OSError if the cache cannot be written.
    """
    _forget_others(cache)
    for part in parts:
        with _alone(cache, part):
            if not cache.missing([part]):
                continue
            files: list[Path] = []
            for loop, arguments in calls(part):
                types = tuple(typeof(argument) for argument in arguments)  # type: ignore[no-untyped-call]
                loop.compile(types)
                files += files_of(loop, types)
            cache.note(part, files)


def folders() -> set[Path]:
    """Numba's folders for the modules of loops."""
    return {Path(loop._cache.cache_path) for loop in (native.rehash, kernel.insert)}


def _forget_others(cache: Cache) -> None:
    """Delete what was compiled from other sources, before anything is compiled from these."""
    with _alone(cache, "sources"):
        if not cache.missing(["sources"]):
            return
        for folder in folders():
            for name in COMPILED:
                for index in folder.glob(f"{name}.*.nbi"):
                    index.unlink(missing_ok=True)
        for old in cache.folder.glob("fencepost-*.loops"):
            if cache.key not in old.name:
                old.unlink(missing_ok=True)
        cache.note("sources")


@contextmanager
def _alone(cache: Cache, part: str) -> Iterator[None]:
    """Lock a part against the other processes of the machine."""
    with open(cache.folder / f"fencepost-{part}.lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    with uncollected():  # searching what the compiler allocates for cycles takes a tenth of its time
        warm(sys.argv[1:] or PARTS, Cache())
