"""The three stages of a level, as Spark tasks.

**Expand** takes the states of a home and gives their successors' fingerprints, one packed block for each target.
**Deduplicate** takes what all homes found in the range of one target, keeps the first step to each state that was never
seen, and tells the homes of their parents. **Build** makes the rows of those, next to their parents, judges them, and
tells the driver. If states are written to a table, a job of its own follows, of one stage: **Write**.

A task only ever writes new files, under names that no other attempt has, and says what they are in its report. What no
report that reached the driver speaks of does not exist.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from fencepost import __version__
from fencepost.compiler.arrays import Array, Compiled, Growing
from fencepost.compiler.encoding import (
    COUNT,
    COUNTERS,
    DEADLOCK,
    LEAF_TOP,
    PARKED,
    PARKS,
    is_inside,
    pack_reference,
    reference_outcome,
    reference_parent,
)
from fencepost.compiler.memory import reserve
from fencepost.compiler.native import STACK_WORDS
from fencepost.engines.kernel import Arena, Candidates, Levels, Work, work_with
from fencepost.spark import loops
from fencepost.spark.level import (
    NO_IMAGES,
    Piece,
    Plan,
    Run,
    Tabled,
    bounds,
    joined,
    read_rows,
    read_run,
    run_blocks,
    span_of,
    write_parked,
    write_piece,
    write_run,
)
from fencepost.spark.parts import rewritten, write_states, write_steps
from fencepost.states.columns import Kinds
from fencepost.states.files import Part
from fencepost.storage import open_storage

SCHEMA = "to int, source int, report boolean, payload binary"
ARROW = pa.schema([("to", pa.int32()), ("source", pa.int32()), ("report", pa.bool_()), ("payload", pa.binary())])
BLOCK = 1 << 19
"""Candidates in one shuffled block: 8 MiB of them."""
MOST_RUNS = 8
"""Runs of a target, at most; beyond, they are merged."""

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The tasks of a stage, each given the rows that are sent to it. Those of a first stage get rows with their own
number.
"""

Counts = tuple[bytes, bytes]
"""Numbers of leaves or outcomes, and how many of each."""


class Expanded(msgspec.Struct, tag="expanded"):
    """What a task of the first stage did. ``stuck``: the least state without successors; ``broken``: per property, the
    least step that breaks it, as its parent's fingerprint and the outcome; ``steps``: the file they are in, if they
    were asked for.
    """

    leaves: Counts
    cut: Counts
    stuck: tuple[int, int] | None
    broken: dict[int, tuple[int, int, int]]
    candidates: int
    sent: int
    shuffled: int
    seconds: float
    steps: Part | None = None


class Deduplicated(msgspec.Struct, tag="deduplicated"):
    """What a task of the second stage did: the runs that its target consists of now."""

    target: int
    runs: list[Run]
    received: int
    distinct: int
    found: int
    shuffled: int
    seconds: float


class Built(msgspec.Struct, tag="built"):
    """What a task of the third stage did. ``violated``: per property, the least fingerprint of a state that violates
    it.
    """

    home: int
    piece: Piece | None
    parked: tuple[str, int] | None
    new: Counts
    violated: dict[int, tuple[int, int]]
    seconds: float


Report = Expanded | Deduplicated | Built
reports = msgspec.msgpack.Decoder(Report)
written = msgspec.msgpack.Decoder(Part)


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
"""Words that the tries of an executor can grow to."""
QUESTIONS = 1 << 16
FIRST_CHUNK, CHUNK = 1 << 10, 1 << 16
"""Rows that are built before those that fell off a trie are looked at: at first, and at most."""

_held: dict[str, tuple[Compiled, Growing]] = {}
"""The tables of this process. Executors grow residual tries for themselves, from the master tries that the driver
sent.
"""


_room: dict[tuple[str, Any], Array] = {}
"""Memory of this process that its tasks use in turn: taking it anew from the system for each costs more than filling
it.
"""


def room(name: str, count: int, dtype: Any) -> Array:
    """Room for so many numbers, whatever they are now."""
    held = _room.get((name, dtype))
    if held is None or len(held) < count:
        held = _room[name, dtype] = reserve(count + count // 2, dtype, large=True)
    return held[:count]


def tables_of(plan: Tabled) -> tuple[Compiled, Growing]:
    """This process's own copy of the compiled protocol, and what residual tries grow from."""
    if plan.tables_id not in _held:
        _held.clear()
        arrays: dict[str, Array] = {name: array.copy() for name, array in plan.tables.value.items()}
        pool = reserve(POOL, np.int32)
        pool[: len(arrays["pool"])] = arrays["pool"]
        top = np.array([len(arrays["pool"])], np.int64)
        arrays["pool"] = pool
        none: dict[str, Array] = {name: np.zeros((1, 1), np.uint64) for name in ("changed", "root_slots")}
        none |= {name: np.zeros(1, np.uint64) for name in ("residual_keys",)}
        none |= {
            name: np.zeros(1, np.int32)
            for name in ("residual_tries", "known_old", "change", "like", "entry_outcome", "entry_trie")
        }
        none |= {"refines": np.zeros(1, np.bool_)}
        known = {name: arrays[name] for name in Growing._fields if name in arrays}
        growing = Growing(**{**none, "top": top, "tries": top, "entries": top, **known})
        _held[plan.tables_id] = (Compiled(**{name: arrays[name] for name in Compiled._fields}), growing)
    return _held[plan.tables_id]


def same_version(driver: str) -> None:
    """Raises RuntimeError in a task whose Fencepost is not the driver's."""
    if driver != __version__:
        raise RuntimeError(f"an executor has Fencepost {__version__}, the driver {driver}")


class _Stage:
    """What the three stages have in common: the plan, and who am I."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def _check(self) -> None:
        same_version(self.plan.version)

    def _name(self, what: str, number: int) -> str:
        return f"level-{self.plan.level}-{what}-{number}-{uuid.uuid4().hex[:12]}.bin"

    def _work(self, rows: int) -> Work:
        plan = self.plan
        counts = np.zeros(COUNTERS, np.int64)
        counts[DEADLOCK] = -1
        return work_with(
            counts=counts,
            parked=np.zeros(rows, np.int64),
            leaf_count=np.zeros(plan.leaves, np.int64),
            cut_count=np.zeros(plan.outcomes, np.int64),
            new_count=np.zeros(plan.outcomes, np.int64),
            fresh=np.arange(rows),
            gates=np.zeros(plan.roots, np.int64),
            stack=np.zeros(STACK_WORDS, np.int64),
            best_fp=np.zeros(plan.roots, np.uint64),
            best_high=np.zeros(plan.roots, np.uint64),
            best_position=np.full(plan.roots, -1, np.int64),
            best_order=np.full(plan.roots, -1, np.int64),
            best_outcome=np.full(plan.roots, -1, np.int64),
        )


class Expand(_Stage):
    """The first stage."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._check()
        for batch in batches:
            for home in batch.column(0).to_pylist():
                yield from self._expand(home)

    def _expand(self, home: int) -> Iterator[pa.RecordBatch]:
        begin = time.perf_counter()
        plan = self.plan
        c, growing = tables_of(plan)
        old, spans = read_rows(plan, home, with_cells=plan.stepwise)
        work = self._work(1)
        if plan.stepwise:
            assert loops.know_steps(c, growing, old, work)
        most = int(loops.outcomes_possible(c, old.leaves)) + 1
        found = Candidates(
            room("candidates", most, np.uint64),
            room("high candidates", most if plan.wide else 1, np.uint64),
            room("references", most, np.int64),
        )
        levels, filled = _levels(plan, old, old), np.zeros((1, 8), np.int64)
        n = 0
        stuck: tuple[int, int] | None = None
        broken: dict[int, tuple[int, int, int]] = {}
        for first, last in spans:
            n = int(loops.expand(c, levels, work, first, last, n, found, filled))
            if work.counts[DEADLOCK] >= 0:
                stuck = min(filter(None, [stuck, _state(old, int(work.counts[DEADLOCK]), plan.wide)]))
                work.counts[DEADLOCK] = -1
            for root in np.flatnonzero(work.best_order >= 0).tolist():
                step = (*_state(old, int(work.best_order[root]), plan.wide), int(work.best_outcome[root]))
                if root not in broken or step[:2] < broken[root][:2]:
                    broken[root] = step
                work.best_order[root] = -1
        found.ref[:n] += pack_reference(home * plan.rows, 0)  # positions become numbers in the level
        low, high, ref = ordered(c, found, n, 0, (1 << 64) - 1, plan.wide)
        edges = [0, *np.searchsorted(low, np.array(bounds(len(plan.runs))[1:-1], np.uint64)).tolist(), len(low)]
        shuffled = 0
        for target in range(len(plan.runs)):
            for at in range(edges[target], edges[target + 1], BLOCK):
                part = slice(at, min(at + BLOCK, edges[target + 1]))
                payload = packed(low[part], ref[part], *([high[part]] if plan.wide else []))
                shuffled += len(payload)
                yield row(target, home, payload)
        steps = write_steps(plan, home, c, old, work)
        done = Expanded(
            _sparse(work.leaf_count),
            _sparse(work.cut_count),
            stuck,
            broken,
            n,
            len(low),
            shuffled,
            time.perf_counter() - begin,
            steps,
        )
        yield row(home % len(plan.runs), home, msgspec.msgpack.encode(done), report=True)


class Deduplicate(_Stage):
    """The second stage. It is given all that one target gets, and nothing of another's."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin = time.perf_counter()
        plan = self.plan
        parts: list[Array] = []
        target = -1
        for batch in batches:
            for to, source, report, payload in _rows(batch):
                if report:
                    # On its way to the driver.
                    yield row(source % plan.homes, source, payload.to_pybytes(), report=True)
                else:
                    target = to
                    parts.append(np.frombuffer(payload, np.uint64))
        if parts:
            yield from self._deduplicate(target, parts, begin)

    def _deduplicate(self, target: int, parts: list[Array], begin: float) -> Iterator[pa.RecordBatch]:
        plan, storage = self.plan, self.plan.storage()
        c, _ = tables_of(plan)
        fields = 3 if plan.wide else 2
        sizes = [len(part) // fields for part in parts]
        fps, refs = (joined([p[k * n : (k + 1) * n] for p, n in zip(parts, sizes, strict=True)]) for k in (0, 1))
        highs = joined([p[2 * n :] for p, n in zip(parts, sizes, strict=True)]) if plan.wide else np.zeros(1, np.uint64)
        received = sum(sizes)
        parts.clear()
        least, end = span_of(target, len(plan.runs))
        candidates = Candidates(writable(fps), writable(highs), writable(refs).view(np.int64))
        low, high, ref = ordered(c, candidates, received, least, end - 1, plan.wide)
        seen = np.zeros(len(low), np.uint8)
        for run in plan.runs[target]:
            i = 0
            for block, block_high in run_blocks(storage, run, plan.wide):
                i = loops.mark_visited(low, high, i, block, block_high, seen, plan.wide)
        distinct = len(low)
        fresh = seen == 0
        low, high, ref = low[fresh], high[fresh] if plan.wide else high, ref[fresh]
        runs = list(plan.runs[target])
        if len(low):
            runs = self._kept(target, runs, low, high, reference_outcome(ref).astype(np.uint32))
        shuffled = 0
        for home, mine in by_home(ref, plan.rows):
            for at in range(0, len(mine), 2 * BLOCK):
                payload = mine[at : at + 2 * BLOCK].tobytes()
                shuffled += len(payload)
                yield row(home, target, payload)
        done = Deduplicated(target, runs, received, distinct, len(low), shuffled, time.perf_counter() - begin)
        yield row(target % plan.homes, target, msgspec.msgpack.encode(done), report=True)

    def _kept(self, target: int, runs: list[Run], low: Array, high: Array, outcome: Array) -> list[Run]:
        """The runs of the target with the new states among them. When there are too many, the smallest are merged, and
        each larger one that is not larger than all of those together.
        """
        plan, storage = self.plan, self.plan.storage()
        if len(runs) >= MOST_RUNS:
            runs = sorted(runs, key=lambda run: run.states, reverse=True)
            least = len(runs) - 2
            while runs and (len(runs) > least or runs[-1].states <= len(low)):
                other = loops.Visited(*read_run(storage, runs.pop(), plan.wide))
                n = len(low) + len(other.fp)
                out = loops.Visited(
                    np.empty(n, np.uint64), np.empty(n if plan.wide else 1, np.uint64), np.empty(n, np.uint32)
                )
                loops.merge(loops.Visited(low, high, outcome), other, out, plan.wide)
                low, high, outcome = out
        return [*runs, write_run(storage, self._name("run", target), low, high, outcome, plan.wide)]


class Build(_Stage):
    """The third stage. It is given all that one home gets, and nothing of another's."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin = time.perf_counter()
        parts: list[tuple[int, int, Array]] = []
        home = -1
        for batch in batches:
            for to, source, report, payload in _rows(batch):
                if report:
                    yield row(0, 0, payload.to_pybytes(), report=True)
                else:
                    home = to
                    parts.append((source, len(parts), np.frombuffer(payload, np.int64)))
        if parts:
            yield row(0, 0, msgspec.msgpack.encode(self._build(home, parts, begin)), report=True)

    def _build(self, home: int, parts: list[tuple[int, int, Array]], begin: float) -> Built:
        plan, storage = self.plan, self.plan.storage()
        c, growing = tables_of(plan)
        # Targets are ascending ranges, and the blocks of one are in order: so are all of them together.
        refs = writable(joined([part for _, _, part in sorted(parts, key=lambda p: p[:2])]))
        n = len(refs)
        found = Candidates(np.empty(n, np.uint64), np.empty(n if plan.wide else 1, np.uint64), refs)
        old, _ = read_rows(plan, home, with_cells=True)
        loops.fingerprints(c, old, home * plan.rows, found, plan.wide)
        work = self._work(min(n, CHUNK))
        new = Arena(
            cells=room("cells", n * plan.words, np.uint64).reshape(n, plan.words),
            fp=room("fp", n, np.uint64),
            fp_high=room("high", n if plan.wide else 1, np.uint64),
            ref=room("ref", n, np.int64),
            meta=room("meta", n, np.int64),
            leaves=room("leaves", n * plan.most_leaves + 1, np.int32),
            image=NO_IMAGES,
            image_high=NO_IMAGES,
        )
        levels, asks = _levels(plan, old, new), np.zeros((QUESTIONS, 3), np.int64)
        completed = False
        at, chunk = 0, FIRST_CHUNK
        while at < n:
            end = min(at + chunk, n)
            high = found.high[at:end] if plan.wide else found.high
            loops.build(c, levels, work, Candidates(found.fp[at:end], high, refs[at:end]), end - at)
            if work.counts[PARKS] and growing.top[0] < POOL * 3 // 4:
                completed = True
                loops.complete(c, growing, levels, work, asks)
            at, chunk = end, min(2 * chunk, CHUNK)
        assert work.counts[COUNT] == n
        off = np.flatnonzero(new.meta == PARKED)
        parked = None
        if len(off):
            parked = (self._name("parked", home), len(off))
            write_parked(storage, parked[0], new, off, plan.wide)
        inside = np.flatnonzero(is_inside(new.meta))
        rows = len(inside)
        if completed or rows < n:
            # Leaves of rows that were completed late are not where the order of rows would have them.
            leaves, metas = np.empty(int(work.counts[LEAF_TOP]), np.int32), np.empty(rows, np.int64)
            loops.gather_leaves(new, inside, metas, leaves, False)
            loops.close_up(new, inside, plan.wide)
            new = new._replace(meta=metas, leaves=leaves)
        piece = None
        if rows:
            outcomes = reference_outcome(new.ref[:rows]) if plan.output is not None else None
            shape, written = len(plan.shapes) - 1, int(work.counts[LEAF_TOP])
            piece = write_piece(storage, self._name("rows", home), new, rows, written, shape, plan.wide, outcomes)
        new_count = np.bincount(reference_outcome(new.ref[:rows]), minlength=1)
        violated = {
            root: (int(work.best_fp[root]), int(work.best_high[root]))
            for root in np.flatnonzero(work.best_position >= 0).tolist()
        }
        return Built(home, piece, parked, _sparse(new_count), violated, time.perf_counter() - begin)


class Write(_Stage):
    """The only stage of a job that writes a level down, when it is complete: a task for each home."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._check()
        for home in numbers(batches):
            part = write_states(self.plan, home, tables_of(self.plan)[0])
            yield row(0, home, msgspec.msgpack.encode(part), report=True)


class Rewrite:
    """The only stage of a job that writes files of a table of states again, with all columns: a task for each."""

    def __init__(self, directory: str, stale: list[tuple[int, str]], kinds: Kinds) -> None:
        self.directory = directory
        self.stale = stale
        self.kinds = kinds

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            part = rewritten(self.directory, *self.stale[number], self.kinds)
            yield row(0, number, msgspec.msgpack.encode(part), report=True)


class Verify:
    """The only stage of a job that reads the files of a checkpoint, each task a share of them: which are not what was
    written.
    """

    def __init__(self, place: str, files: dict[str, str], tasks: int) -> None:
        self.place = place
        self.files = list(files.items())
        self.tasks = tasks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = open_storage(self.place)
        for number in numbers(batches):
            damaged = [name for name, kept in self.files[number :: self.tasks] if storage.digest(name) != kept]
            yield row(0, number, msgspec.msgpack.encode(damaged), report=True)


def numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    """The numbers of the tasks to be done."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def each_here(task: Any, count: int) -> list[bytes]:
    """What tasks of one stage tell, in this process."""
    return [batch.column(3)[0].as_py() for batch in task(row(number, number, b"") for number in range(count))]


def here(plan: Plan) -> list[bytes]:
    """The whole level in this process: what its tasks tell."""
    return chained([(Expand(plan), plan.homes), (Deduplicate(plan), len(plan.runs)), (Build(plan), plan.homes)])


def chained(steps: Sequence[tuple[Stage, int]]) -> list[bytes]:
    """Stages, each with its number of tasks, one after the other in this process: what the last one's rows hold."""
    rows: list[pa.RecordBatch] = [row(n, n, b"") for n in range(steps[0][1])]
    for stage, _ in steps:
        by_task: dict[int, list[pa.RecordBatch]] = {}
        for batch in rows:
            by_task.setdefault(batch.column(0)[0].as_py(), []).append(batch)
        rows = [sent for batches in by_task.values() for sent in stage(iter(batches))]
    return [batch.column(3)[0].as_py() for batch in rows]


# -- helpers ----------------------------------------------------------------------------------------------------------


def ordered(
    c: Compiled, candidates: Candidates, n: int, least: int, most: int, wide: bool
) -> tuple[Array, Array, Array]:
    """The first ``n`` candidates, with fingerprints in [least, most], by fingerprint, with only the first step to each
    state.
    """
    shift = max(0, (most - least).bit_length() - max(1, n // 4).bit_length())
    count = ((most - least) >> shift) + 1
    begins, ends = room("begins", count + 1, np.int64), room("ends", count, np.int64)
    out = Candidates(
        room("ordered", n, np.uint64),
        room("high ordered", n if wide else 1, np.uint64),
        room("ordered references", n, np.int64),
    )
    kept = loops.sort(c, candidates, n, loops.Buckets(np.uint64(least), np.uint64(shift), begins, ends), out, wide)
    return out.fp[:kept], out.high[:kept] if wide else out.high, out.ref[:kept]


def by_home(refs: Array, rows: int) -> Iterator[tuple[int, Array]]:
    """References to parents, in their order, home by home; a home has ``rows`` states, and one without references is
    left out.
    """
    homes = reference_parent(refs) // rows
    if homes.size and homes.max() < 1 << 16:
        homes = homes.astype(np.uint16)  # which NumPy sorts in linear time
    order = np.argsort(homes, kind="stable")
    homes, refs = homes[order], refs[order]
    begins = np.flatnonzero(np.diff(homes, prepend=homes[:1])).tolist()
    for begin, end in pairwise([0, *begins, len(refs)]):
        if begin < end:
            yield int(homes[begin]), refs[begin:end]


def writable(array: Array) -> Array:
    """The array, or a copy if it must not be written to: compiled loops are compiled for one kind only."""
    return array if array.flags.writeable else array.copy()


def packed(*arrays: Array) -> bytes:
    """Arrays of 64-bit numbers, one after the other."""
    return b"".join(array.data.cast("B") for array in arrays)


def _levels(plan: Plan, old: Arena, new: Arena) -> Levels:
    return Levels(old, new, np.arange(len(old.fp)), old.fp, plan.wide, plan.actions, 1, 0)


def _state(arena: Arena, position: int, wide: bool) -> tuple[int, int]:
    return int(arena.fp[position]), int(arena.fp_high[position]) if wide else 0


def _sparse(counts: Array) -> Counts:
    which = np.flatnonzero(counts)
    return which.tobytes(), counts[which].tobytes()


def dense(counts: Counts) -> tuple[Array, Array]:
    """Numbers, and how many of each."""
    return np.frombuffer(counts[0], np.int64), np.frombuffer(counts[1], np.int64)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[int, int, bool, Any]]:
    to, source, report, payload = (batch.column(k) for k in range(4))
    for i in range(batch.num_rows):
        yield to[i].as_py(), source[i].as_py(), report[i].as_py(), payload[i].as_buffer()
