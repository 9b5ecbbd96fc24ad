"""The three stages of a level, as Spark tasks.

**Expand** computes the candidates of a partition of the frontier, which are the fingerprints of its states' successors.
It shuffles them in packed blocks to the owners of these fingerprints. **Deduplicate** has all candidates of one owner.
It removes duplicates and visited states, keeps the first step to each new state, and sends a reference to that step to
the partition of the parent. **Build** makes the rows of a partition's new states from those of their parents, judges
them, and reports to the driver. If states are written to a table, a job of one stage follows: **Write**.

A task only writes new files, whose names are different for every attempt, and names them in its report. A file that no
report names is ignored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from fencepost.checker.compiler import canonical
from fencepost.checker.compiler.arrays import Array, Compiled, Growing
from fencepost.checker.compiler.encoding import (
    COUNT,
    COUNTERS,
    DEADLOCK,
    INEXACT,
    LEAF_TOP,
    PARKED,
    PARKS,
    is_inside,
    pack_reference,
    reference_outcome,
    reference_parent,
)
from fencepost.checker.compiler.memory import reserve
from fencepost.checker.compiler.native import STACK_WORDS
from fencepost.checker.engines.kernel import Arena, Candidates, Levels, Work, know_steps, work_with
from fencepost.files.storage import open_storage
from fencepost.spark import level, loops
from fencepost.spark.table_tasks import write_states, write_steps
from fencepost.states.columns import Kinds
from fencepost.states.files import Part, TableLocation, writing
from fencepost.version import VERSION

SCHEMA = "to int, source int, report boolean, payload binary"
ARROW = pa.schema([("to", pa.int32()), ("source", pa.int32()), ("report", pa.bool_()), ("payload", pa.binary())])
BLOCK = 1 << 19
"""Candidates in one shuffled block of 8 MiB."""
MOST_RUNS = 8
"""The most runs of an owner. Beyond that, runs are merged."""

Counts = tuple[bytes, bytes]
"""Numbers of leaves or outcomes, and the count of each."""


class Expanded(msgspec.Struct, tag="expanded"):
    """The report of a task of the first stage. ``deadlock``: the least state without successors. ``broken``: for each
    step property, the least step that violates it, as its parent's fingerprint and the outcome. ``steps``: the file of
    steps for the table, or None. ``inexact``: whether an orbit may have had more than one key.
    """

    leaves: Counts
    cut: Counts
    deadlock: tuple[int, int] | None
    broken: dict[int, tuple[int, int, int]]
    candidates: int
    sent: int
    shuffled: int
    seconds: float
    steps: Part | None = None
    inexact: bool = False


class Deduplicated(msgspec.Struct, tag="deduplicated"):
    """The report of a task of the second stage. ``runs``: the owner's runs from now on."""

    owner: int
    runs: list[level.Run]
    received: int
    found: int
    shuffled: int
    seconds: float


class Built(msgspec.Struct, tag="built"):
    """The report of a task of the third stage. ``parked``: the file of the states that fell off a trie, and their
    number. ``violated``: for each property, the least fingerprint of a state that violates it.
    """

    partition: int
    frontier: level.FrontierFile | None
    parked: tuple[str, int] | None
    new: Counts
    violated: dict[int, tuple[int, int]]
    seconds: float


Report = Expanded | Deduplicated | Built
report_decoder = msgspec.msgpack.Decoder(Report)
part_decoder = msgspec.msgpack.Decoder(Part)


def row(to: int, source: int, payload: bytes, report: bool = False) -> pa.RecordBatch:
    """One row of a shuffle."""
    return pa.record_batch(
        [
            pa.array([to], pa.int32()),
            pa.array([source], pa.int32()),
            pa.array([report]),
            pa.array([payload], pa.binary()),
        ],
        schema=ARROW,
    )


POOL = 1 << 28
"""The most words of tries in an executor."""
QUESTIONS = 1 << 16
FIRST_CHUNK, CHUNK = 1 << 10, 1 << 16
"""Rows that are built before those that fell off a trie are completed: at first, and at most."""

Labels = canonical.Scratch | None
"""The scratch memory for canonical labellings, if the symmetry needs them."""
_tables: dict[str, tuple[Compiled, Growing, Labels]] = {}
"""The tables of this process. Each executor grows its own residual tries from the driver's master tries."""


_buffers: dict[tuple[str, Any], Array] = {}
"""Memory of this process that its tasks reuse. Allocating it anew for each task would cost more than filling it."""


def buffer(name: str, count: int, dtype: Any) -> Array:
    """Memory for ``count`` numbers, with arbitrary content."""
    array = _buffers.get((name, dtype))
    if array is None or len(array) < count:
        array = _buffers[name, dtype] = reserve(count + count // 2, dtype, large=True)
    return array[:count]


def tables_of(shared: level.Shared) -> tuple[Compiled, Growing, Labels]:
    """This process's copy of the compiled protocol, the tables from which residual tries grow, and the scratch memory
    for canonical labellings, which caches keys of this protocol.
    """
    if shared.id not in _tables:
        _tables.clear()
        arrays: dict[str, Array] = {name: array.copy() for name, array in shared.variable.value.items()}
        pool = reserve(POOL, np.int32)
        pool[: len(arrays["pool"])] = arrays["pool"]
        top = np.array([len(arrays["pool"])], np.int64)
        arrays["pool"] = pool
        unused = ("residual_tries", "known_old", "change", "like", "entry_outcome", "entry_trie")
        none: dict[str, Array] = {name: np.zeros(1, np.int32) for name in unused}
        none |= {name: np.zeros((1, 1), np.uint64) for name in ("changed", "root_slots")}
        none |= {name: np.zeros(1, np.bool_) for name in ("knows_change", "idle")}
        none["residual_keys"] = np.zeros(1, np.uint64)
        known = {name: arrays[name] for name in Growing._fields if name in arrays}
        growing = Growing(**{**none, "top": top, "tries": top, "entries": top, **known})
        labels = canonical.scratch() if arrays["colours"].size else None
        _tables[shared.id] = (Compiled(**{name: arrays[name] for name in Compiled._fields}), growing, labels)
    return _tables[shared.id]


class Received(NamedTuple):
    """The blocks of 64-bit numbers shuffled to a task, each with the number of the task that sent it. ``began``: when
    this task began, by ``perf_counter``.
    """

    blocks: list[tuple[int, Array]]
    began: float


class Stage:
    """The tasks of a stage, each called with the rows sent to it. Tasks of a first stage get rows with their own
    number. ``work``: what a task does. The driver creates the object, so it has the driver's version.
    """

    def __init__(self, work: Callable[..., Any]) -> None:
        self.work = work
        self.version = VERSION

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that a task sends to the next stage or to the driver."""
        raise NotImplementedError

    def check_version(self) -> None:
        """Raise RuntimeError in a task whose Fencepost is not the driver's."""
        if self.version != VERSION:
            raise RuntimeError(f"an executor has Fencepost {VERSION}, the driver {self.version}")


JobStages = Sequence[tuple[Stage, int]]
"""The stages of a job, each with its number of tasks."""


class FirstStage(Stage):
    """The first stage of a job. A task gets only its number, and yields the rows that it sends."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.check_version()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.work(number)


class OneStage(Stage):
    """The only stage of a job. A task gets its number, and returns one report for the driver."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.check_version()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield row(0, number, msgspec.msgpack.encode(self.work(number)), report=True)


class ShuffledStage(Stage):
    """A later stage of a job. A task gets its number and what it has :class:`Received`, and yields the rows that it
    sends. Reports are passed on to the driver.
    """

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.check_version()
        received = Received([], time.perf_counter())
        number = -1
        for batch in batches:
            to, source, is_report, payload = (batch.column(k) for k in range(4))
            for i in range(batch.num_rows):
                sender = source[i].as_py()
                if is_report[i].as_py():
                    yield row(sender, sender, payload[i].as_py(), report=True)
                else:
                    number = to[i].as_py()
                    received.blocks.append((sender, np.frombuffer(payload[i].as_buffer(), np.uint64)))
        if received.blocks:
            yield from self.work(number, received)


def expand(plan: level.Plan, partition: int) -> Iterator[pa.RecordBatch]:
    """The first stage: one task for each partition of the frontier."""
    begin = time.perf_counter()
    c, growing, labels = tables_of(plan.tables)
    old, spans = level.read_rows(plan, partition, with_cells=plan.stepwise or labels is not None)
    work = work_for(plan, 1)
    if plan.stepwise:
        assert know_steps(c, growing, old, work, np.arange(old.meta.size))
    most = int(loops.outcomes_possible(c, old.leaves)) + 1
    found = Candidates(
        buffer("candidates", most, np.uint64),
        buffer("high candidates", most if plan.wide else 1, np.uint64),
        buffer("references", most, np.int64),
    )
    levels, filled = _levels(plan, old, old), np.zeros((1, 8), np.int64)
    n = 0
    deadlock: tuple[int, int] | None = None
    broken: dict[int, tuple[int, int, int]] = {}
    for first, last in spans:
        n = int(loops.expand(c, levels, work, labels, plan.stepwise or None, first, last, n, found, filled))
        if work.counts[DEADLOCK] >= 0:
            state = fingerprint_at(old, int(work.counts[DEADLOCK]), plan.wide)
            deadlock = min(deadlock or state, state)
            work.counts[DEADLOCK] = -1
        for root in np.flatnonzero(work.best_order >= 0).tolist():
            step = (*fingerprint_at(old, int(work.best_order[root]), plan.wide), int(work.best_outcome[root]))
            if root not in broken or step[:2] < broken[root][:2]:
                broken[root] = step
            work.best_order[root] = -1
    parents: list[Array] = []
    if plan.images:
        positions = reference_parent(found.ref[:n])
        parents = [old.fp[positions], *([old.fp_high[positions]] if plan.wide else [])]
    found.ref[:n] += pack_reference(partition * plan.partition_rows, 0)  # from positions to numbers in the level
    low, high, ref, parents = without_duplicates(c, found, n, 0, (1 << 64) - 1, plan.wide, parents)
    edges = [0, *np.searchsorted(low, np.array(level.bounds(plan.owners)[1:-1], np.uint64)).tolist(), len(low)]
    shuffled = 0
    for owner in range(plan.owners):
        for at in range(edges[owner], edges[owner + 1], BLOCK):
            block = slice(at, min(at + BLOCK, edges[owner + 1]))
            columns = (low, ref, *([high] if plan.wide else []), *parents)
            payload = packed(*(column[block] for column in columns))
            shuffled += len(payload)
            yield row(owner, partition, payload)
    steps = write_steps(plan, partition, c, old, work)
    report = Expanded(
        _sparse(work.leaf_count),
        _sparse(work.cut_count),
        deadlock,
        broken,
        n,
        len(low),
        shuffled,
        time.perf_counter() - begin,
        steps,
        bool(work.counts[INEXACT]),
    )
    yield row(partition % plan.owners, partition, msgspec.msgpack.encode(report), report=True)


def deduplicate(plan: level.Plan, owner: int, received: Received) -> Iterator[pa.RecordBatch]:
    """The second stage: one task for each owner, with all of that owner's candidates."""
    storage = plan.storage()
    c, *_ = tables_of(plan.tables)
    halves = 2 if plan.wide else 1
    width = 1 + halves * (2 if plan.images else 1)
    blocks = [block.reshape(width, -1) for _, block in received.blocks]
    fps, refs, *rest = (writable(level.concatenated([block[k] for block in blocks])) for k in range(width))
    highs = rest.pop(0) if plan.wide else np.zeros(1, np.uint64)
    count = len(fps)
    received.blocks.clear()
    blocks.clear()
    least, end = level.range_of(owner, plan.owners)
    candidates = Candidates(fps, highs, refs.view(np.int64))
    low, high, ref, parents = without_duplicates(c, candidates, count, least, end - 1, plan.wide, rest)
    visited = np.zeros(len(low), np.uint8)
    for run in plan.runs[owner]:
        i = 0
        for block, block_high in level.run_blocks(storage, run, plan.wide):
            i = loops.mark_visited(low, high, i, block, block_high, visited, plan.wide)
    new = visited == 0
    low, high, ref = low[new], high[new] if plan.wide else high, ref[new]
    runs = list(plan.runs[owner])
    if len(low):
        found = level.blank_visited(0, plan.columns)._replace(
            fp=low,
            high=high,
            outcome=reference_outcome(ref).astype(np.uint32),
            **{name: column[new] for name, column in zip(("parent", "parent_high"), parents, strict=False)},
        )
        runs = _with_run(plan, owner, runs, found)
    shuffled = 0
    for partition, references in by_partition(ref, plan.partition_rows):
        for at in range(0, len(references), 2 * BLOCK):
            payload = references[at : at + 2 * BLOCK].tobytes()
            shuffled += len(payload)
            yield row(partition, owner, payload)
    report = Deduplicated(owner, runs, count, len(low), shuffled, time.perf_counter() - received.began)
    yield row(owner % plan.partitions, owner, msgspec.msgpack.encode(report), report=True)


def _with_run(plan: level.Plan, owner: int, runs: list[level.Run], new: loops.Visited) -> list[level.Run]:
    """Add a run of the new states to the owner's runs. If there are too many runs, merges the smallest, and then each
    larger one that is not larger than all merged so far.
    """
    storage = plan.storage()
    if len(runs) >= MOST_RUNS:
        runs = sorted(runs, key=lambda run: run.states, reverse=True)
        least = len(runs) - 2
        while runs and (len(runs) > least or runs[-1].states <= len(new.fp)):
            other = level.read_run(storage, runs.pop(), plan.columns)
            merged = level.blank_visited(len(new.fp) + len(other.fp), plan.columns)
            loops.merge(new, other, merged, plan.wide, plan.images > 0)
            new = merged
    return [*runs, level.write_run(storage, level.unique_name(plan.level, "run", owner), new, plan.columns)]


def build(plan: level.Plan, partition: int, received: Received) -> Iterator[pa.RecordBatch]:
    """The third stage: one task for each partition of the frontier, with references to the steps to its new states."""
    storage = plan.storage()
    c, growing, labels = tables_of(plan.tables)
    # Owners have ascending ranges, and each owner's blocks are sorted. So sorting by owner sorts all blocks.
    blocks = [block for _, block in sorted(received.blocks, key=itemgetter(0))]
    refs = writable(level.concatenated(blocks).view(np.int64))
    n = len(refs)
    old, _ = level.read_rows(plan, partition, with_cells=True)
    work = work_for(plan, min(n, CHUNK))
    new = Arena(
        cells=buffer("cells", n * plan.words, np.uint64).reshape(n, plan.words),
        fp=buffer("fp", n, np.uint64),
        fp_high=buffer("high", n if plan.wide else 1, np.uint64),
        ref=refs,
        meta=buffer("meta", n, np.int64),
        leaves=buffer("leaves", n * plan.most_leaves + 1, np.int32),
        image=_room_for_images("images", plan, n),
        image_high=_room_for_images("high images", plan, n if plan.wide else 0),
    )
    start = partition * plan.partition_rows
    loops.fingerprints(c, old, work, labels, start, Candidates(new.fp, new.fp_high, refs), plan.wide)
    levels, asks = _levels(plan, old, new), np.zeros((QUESTIONS, 3), np.int64)
    completed = False
    at, chunk = 0, FIRST_CHUNK
    while at < n:
        end = min(at + chunk, n)
        loops.build(c, levels, work, plan.stepwise or None, end - at)
        if work.counts[PARKS] and growing.top[0] < POOL * 3 // 4:
            completed = True
            loops.complete(c, growing, levels, work, asks)
        at, chunk = end, min(2 * chunk, CHUNK)
    assert work.counts[COUNT] == n
    fallen = np.flatnonzero(new.meta == PARKED)
    parked = None
    if len(fallen):
        parked = (level.unique_name(plan.level, "parked", partition), len(fallen))
        level.write_parked(storage, parked[0], new, fallen, plan.wide)
    inside = np.flatnonzero(is_inside(new.meta))
    rows, top = len(inside), int(work.counts[LEAF_TOP])
    if completed or rows < n:
        # The leaves of rows that were completed late are not in the order of rows.
        leaves, metas = np.empty(top, np.int32), np.empty(rows, np.int64)
        loops.gather_leaves(new, inside, metas, leaves, False)
        loops.close_up(new, inside, plan.wide)
        new = new._replace(meta=metas, leaves=leaves)
    new = Arena(*(column[:rows] for column in new))._replace(leaves=new.leaves[:top])
    outcomes = reference_outcome(new.ref)
    frontier = None
    if rows:
        name, kept = level.unique_name(plan.level, "rows", partition), outcomes if plan.output is not None else None
        frontier = level.write_frontier_file(storage, name, new, len(plan.layouts) - 1, plan.wide, kept)
    violated = {
        root: (int(work.best_fp[root]), int(work.best_high[root]))
        for root in np.flatnonzero(work.best_position >= 0).tolist()
    }
    found_by = _sparse(np.bincount(outcomes, minlength=1))
    report = Built(partition, frontier, parked, found_by, violated, time.perf_counter() - received.began)
    yield row(0, partition, msgspec.msgpack.encode(report), report=True)


def write(plan: level.Plan, number: int) -> Part | None:
    """Write the states of a complete level to a table: one task for each partition."""
    return write_states(plan, number, tables_of(plan.tables)[0])


def rewrite(directory: str, stale: list[tuple[int, str]], kinds: Kinds, number: int) -> Part:
    """Rewrite files of a table of states with all columns: one task for each file."""
    with writing(directory):
        return TableLocation(open_storage(directory), "states").rewrite(*stale[number], kinds)


def verify(place: str, files: list[tuple[str, str]], tasks: int, number: int) -> list[str]:
    """Read a share of the files of a checkpoint. Returns the files whose digests differ."""
    storage = open_storage(place)
    return [name for name, expected in files[number::tasks] if storage.digest(name) != expected]


def level_stages(plan: level.Plan) -> JobStages:
    """The stages that expand a level, each with its number of tasks."""
    return [
        (FirstStage(partial(expand, plan)), plan.partitions),
        (ShuffledStage(partial(deduplicate, plan)), plan.owners),
        (ShuffledStage(partial(build, plan)), plan.partitions),
    ]


def run_here(stages: JobStages) -> list[bytes]:
    """Run stages, each with its number of tasks, one after the other in this process. Returns the tasks' reports."""
    rows: list[pa.RecordBatch] = [row(n, n, b"") for n in range(stages[0][1])]
    for stage, _ in stages:
        by_task: dict[int, list[pa.RecordBatch]] = {}
        for batch in rows:
            by_task.setdefault(batch.column(0)[0].as_py(), []).append(batch)
        rows = [sent for batches in by_task.values() for sent in stage(iter(batches))]
    return [batch.column(3)[0].as_py() for batch in rows]


# -- helpers ----------------------------------------------------------------------------------------------------------


def without_duplicates(
    c: Compiled, candidates: Candidates, n: int, least: int, most: int, wide: bool, parents: Sequence[Array]
) -> tuple[Array, Array, Array, list[Array]]:
    """The first ``n`` candidates, with fingerprints in [least, most], sorted by fingerprint. Keeps only the first step
    to each state. ``parents``: with symmetry, the halves of the fingerprints of the states that the steps lead from.
    """
    steps = None
    if parents:
        steps = loops.Steps(parents[0], parents[-1], candidates.ref[:n])
        candidates = candidates._replace(ref=np.arange(n))
    shift = max(0, (most - least).bit_length() - max(1, n // 4).bit_length())
    count = ((most - least) >> shift) + 1
    begins, ends = buffer("begins", count + 1, np.int64), buffer("ends", count, np.int64)
    out = Candidates(
        buffer("ordered", n, np.uint64),
        buffer("high ordered", n if wide else 1, np.uint64),
        buffer("ordered references", n, np.int64),
    )
    buckets = loops.Buckets(np.uint64(least), np.uint64(shift), begins, ends)
    kept = loops.sort(c, candidates, n, steps, buckets, out, wide)
    which = out.ref[:kept]
    ref = which if steps is None else steps.ref[which]
    return out.fp[:kept], out.high[:kept] if wide else out.high, ref, [parent[which] for parent in parents]


def by_partition(refs: Array, rows: int) -> Iterator[tuple[int, Array]]:
    """References to parents, in their order, by partition. A partition has ``rows`` states. Partitions without
    references are left out.
    """
    partitions = reference_parent(refs) // rows
    if partitions.size and partitions.max() < 1 << 16:
        partitions = partitions.astype(np.uint16)  # NumPy sorts these in linear time
    order = np.argsort(partitions, kind="stable")
    partitions, refs = partitions[order], refs[order]
    begins = np.flatnonzero(np.diff(partitions, prepend=partitions[:1])).tolist()
    for begin, end in pairwise([0, *begins, len(refs)]):
        if begin < end:
            yield int(partitions[begin]), refs[begin:end]


def writable(array: Array) -> Array:
    """The array, or a copy if it is read-only. Compiled loops are compiled for writable arrays only."""
    return array if array.flags.writeable else array.copy()


def packed(*arrays: Array) -> bytes:
    """Join arrays of 64-bit numbers."""
    return b"".join(array.data.cast("B") for array in arrays)


def work_for(plan: level.Plan, rows: int) -> Work:
    """The scratch memory for the loops of a task."""
    counts = np.zeros(COUNTERS, np.int64)
    counts[DEADLOCK] = -1
    return work_with(
        counts=counts,
        parked=np.zeros(rows, np.int64),
        leaf_count=np.zeros(plan.leaves, np.int64),
        cut_count=np.zeros(plan.outcomes, np.int64),
        new_count=np.zeros(plan.outcomes, np.int64),
        gates=np.zeros(plan.roots, np.int64),
        stack=np.zeros(STACK_WORDS, np.int64),
        best_fp=np.zeros(plan.roots, np.uint64),
        best_high=np.zeros(plan.roots, np.uint64),
        best_position=np.full(plan.roots, -1, np.int64),
        best_order=np.full(plan.roots, -1, np.int64),
        best_outcome=np.full(plan.roots, -1, np.int64),
    )


def _room_for_images(name: str, plan: level.Plan, rows: int) -> Array:
    """Memory for the images of rows."""
    return buffer(name, rows * plan.images, np.uint64).reshape(rows, plan.images) if plan.images else level.NO_IMAGES


def _levels(plan: level.Plan, old: Arena, new: Arena) -> Levels:
    return Levels(old, new, np.arange(len(old.fp)), old.fp, plan.wide, plan.actions, 1, 0)


def fingerprint_at(arena: Arena, position: int, wide: bool) -> tuple[int, int]:
    """The two halves of a state's fingerprint. The second is 0 if only one is used."""
    return int(arena.fp[position]), int(arena.fp_high[position]) if wide else 0


def _sparse(counts: Array) -> Counts:
    which = np.flatnonzero(counts)
    return which.tobytes(), counts[which].tobytes()


def dense(counts: Counts) -> tuple[Array, Array]:
    """Unpack counts: numbers, and the count of each."""
    return np.frombuffer(counts[0], np.int64), np.frombuffer(counts[1], np.int64)
