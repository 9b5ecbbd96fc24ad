"""The embedded engine: the compiled protocol, breadth first, on all cores of one machine.

The driver here runs the author's Python where no path is known, and decides between levels; everything that is done once per
state is in `kernel`.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from fencepost.compiler.machine import reserve
from fencepost.compiler.native import REF_BITS, REF_MASK
from fencepost.compiler.tables import ACTION, INITIAL, STATE_PROPERTY, Array, Compiled, Tables
from fencepost.engines import kernel
from fencepost.engines.audit import SAMPLE, audit
from fencepost.engines.checkpoint import (
    BLOCK_ROWS,
    FORMAT,
    Manifest,
    Reader,
    Writer,
    slot_entries,
    source_digest,
)
from fencepost.engines.interface import Exploration, Found, Options, Progress, Report
from fencepost.engines.kernel import CAPACITY, COUNT, DEADLOCK, LEAF_TOP, OUT, PARKS, USED, Arena, Shared, Work
from fencepost.engines.links import Links
from fencepost.errors import ProtocolRaised, SystemFailure
from fencepost.spec.values import encode
from fencepost.step import State, Stepper
from fencepost.step.state import LOW, SEED

ROOM = 1 << 26
"""Candidates a worker can have for one owner in one round."""
FIRST_CAPACITY = 1 << 20
QUESTIONS = 4096
TICK = 0.1
"""Seconds between looks at limits."""
DTYPES = (np.uint8, np.uint16, np.uint32)


def explore(stepper: Stepper, options: Options, report: Report | None = None) -> Exploration:
    """Explore every reachable state. Limits, violations and errors of the protocol end it early and are reported.

    Raises :class:`fencepost.SystemFailure` if the protocol outgrows the engine's tables or the machine.
    """
    explorer = Explorer(stepper, options, report)
    # What Python allocates here lives on in tables; looking for cycles among it takes a tenth of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return explorer.run()
    finally:
        if collecting:
            gc.enable()
        explorer.close()


def physical_memory() -> int:
    """Bytes of memory this process may use: the machine's, or its container's if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                total = min(total, int(file.read()))
        except (OSError, ValueError):
            continue
    return total


def resident_memory() -> int:
    """Bytes of memory this process occupies now."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Explorer:
    """One exploration: its tables, its two arenas, its workers."""

    def __init__(self, stepper: Stepper, options: Options, report: Report | None) -> None:
        self.stepper = stepper
        self.options = options
        self.report = report
        self.started = time.monotonic()
        self.seconds = {"python": 0.0, "settle": 0.0, "expand": 0.0, "order": 0.0}
        self.result = Exploration()
        self.wide = options.bits == 128
        self.workers = max(1, options.workers)
        self.memory_limit = options.max_memory or int(physical_memory() * 0.92)
        self.tables = Tables(stepper)
        self.links = Links()
        # More states than memory has room for: the limit on memory is reached first.
        self.region = max(1 << 16, physical_memory() // 64 // self.workers)
        self.dtype: Any = np.uint8
        self.width = self._width()
        self.old, self.new = self._arena(), self._arena()
        self.work = [self._work() for _ in range(self.workers)]
        w = self.workers
        self.shared = Shared(
            np.zeros(8, np.int64), np.zeros(8, np.int64), np.zeros((2, 8), np.int64), np.zeros((2, w, 8), np.int64),
            np.zeros((2, w, w, 8), np.int64), *(reserve(2 * w * w * ROOM, t).reshape(2, w, w, ROOM) for t in
            (np.uint64, np.uint64, np.int64)),
        )  # fmt: skip
        self.order = reserve(self.region * w, np.int64)
        self.log = reserve(self.region * w, np.int64)
        self.level_size = 0
        self.bases = [0] * w
        self.pool = ThreadPoolExecutor(w)
        self.compiled: Compiled = self.tables.compiled()
        self.starts: list[State] = []
        self.expanding = False
        self.expanded = 0
        self.reported: set[str] = set()
        self.raised: tuple[int, int, ProtocolRaised] | None = None
        self.failed = [0] * w
        self.told = 0.0
        self.reader = Reader(options.resume) if options.resume else None
        self.writer: Writer | None = None
        self.manifest: Manifest | None = None
        self.saved_depth = 0
        self.saved_at = self.started
        self.save_seconds = 0.0
        # After a resume the states of the first level are numbered as they were, not as they are laid out.
        self.old_numbers = self.new_numbers = np.zeros(0, np.int64)
        self.earlier = Exploration()
        self.old_counts = [0] * w

    def close(self) -> None:
        """Let the workers go."""
        self.shared.stop[0] = 1
        if self.writer is not None:
            self.writer.close()
        self.pool.shutdown()
        self.links.close()

    # -- memory -------------------------------------------------------------------------------------------------------

    def _width(self) -> int:
        return max(16, -(-len(self.stepper.store.slots) // 16) * 16)

    def _arena(self) -> Arena:
        n = self.region * self.workers
        return Arena(
            cells=reserve(n * self.width, self.dtype, large=True).reshape(n, self.width),
            fp=reserve(n, np.uint64),
            fp_high=reserve(n, np.uint64),
            ref=reserve(n, np.int64),
            meta=reserve(n, np.int64),
            leaves=reserve(n * 16, np.int32, large=True),
        )

    def _work(self) -> Work:
        roots = len(self.stepper.roots) + 1
        counts = np.zeros(16, np.int64)
        counts[CAPACITY] = FIRST_CAPACITY
        counts[DEADLOCK] = -1
        entries = (self.region + kernel.SLACK * 2) * 4
        return Work(
            table=reserve(entries * (2 if self.wide else 1), np.uint64, large=True),
            counts=counts,
            parked=reserve(self.region, np.int64),
            keys=reserve(self.region, np.uint64),
            begins=reserve(self.region, np.int64),
            starts=reserve(self.region, np.int64),
            leaf_count=reserve(1 << REF_BITS, np.int64),
            cut_count=reserve(1 << REF_BITS, np.int64),
            new_count=reserve(1 << REF_BITS, np.int64),
            fresh=reserve(ROOM, np.int64),
            held=reserve(2 * ((1 << 16) + kernel.SLACK), np.uint64),
            scratch=np.zeros(1 << 16, np.int32),
            stack=np.zeros(1 << 16, np.int64),
            best_fp=np.zeros(roots, np.uint64),
            best_high=np.zeros(roots, np.uint64),
            best_position=np.full(roots, -1, np.int64),
            best_order=np.full(roots, -1, np.int64),
            best_outcome=np.full(roots, -1, np.int64),
        )

    def _fit(self) -> None:
        """Widen the rows if a slot has more values, or a state more slots, than they have room for."""
        widest = max(self.tables.widest, 0)
        dtype = next((t for t in DTYPES if widest <= np.iinfo(t).max), None)
        if dtype is None:
            raise SystemFailure("a part of the state has more than 4 billion values; run with --profile to see which")
        width = self._width()
        if dtype is self.dtype and width <= self.width:
            return
        self.dtype, self.width = dtype, max(width, self.width)
        self.old, self.new = self._widened(self.old), self._widened(self.new)

    def _widened(self, arena: Arena) -> Arena:
        n = self.region * self.workers
        cells = reserve(n * self.width, self.dtype).reshape(n, self.width)
        for t in range(self.workers):
            begin = t * self.region
            # Rows of either level: the old one may have more of them than the new one has yet.
            end = begin + max(int(self.work[t].counts[COUNT]), self.old_counts[t])
            cells[begin:end, : arena.cells.shape[1]] = arena.cells[begin:end]
        return arena._replace(cells=cells)

    # -- the search ---------------------------------------------------------------------------------------------------

    def run(self) -> Exploration:
        """Explore, and tell what was found."""
        result = self.result
        try:
            if self.reader is not None:
                self._resume(self.reader)
            else:
                if self.options.checkpoint is not None:
                    self.writer = Writer(self.options.checkpoint, None)
                self._begin()
            while self.level_size and not self._finished():
                self._next_level()
            result.complete = not self.level_size and result.limit is None and self.raised is None
        except ProtocolRaised as error:
            result.raised = error
        except KeyboardInterrupt:
            result.interrupted = True
        except SystemFailure as error:
            result.failure = error
        except MemoryError:
            result.failure = SystemFailure("out of memory: set --max-memory below what the machine has, to stop in time")
        try:
            self._save()
        except SystemFailure as error:
            result.failure = error
        result.queue = self.level_size
        if self.expanding:
            self._judge()
            self._end_early()
        self._count()
        result.seconds = self.earlier.seconds + time.monotonic() - self.started
        result.evaluations = self.stepper.evaluations
        result.peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        result.profile = {
            **self.tables.profile(),
            "seconds": dict(self.seconds),
            "memory": {
                "table": sum(int(w.counts[CAPACITY]) for w in self.work) * (16 if self.wide else 8),
                "links": self.links.resident,
            },
        }
        return result

    def _begin(self) -> None:
        """The initial states: level 1."""
        for state in self.stepper.initial_states():
            self.earlier.generated += 1
            self._place(state)
        self._end_level()

    @property
    def _properties(self) -> list[str]:
        return [r.title for r in self.stepper.roots if self.tables.root_kind[r.index] != ACTION]

    def _resume(self, reader: Reader) -> None:
        """Everything as it was at the end of the level that the checkpoint holds."""
        kept, result, elsewhere = reader.manifest, self.result, self.options.checkpoint
        if elsewhere is not None and elsewhere.resolve() != reader.directory.resolve():
            raise SystemFailure(f"a resumed run goes on saving to {reader.directory}; leave out --checkpoint")
        reader.verify(self.stepper.protocol, self._properties, self.options.bits)
        found: dict[int, State] = {}
        for state in self.stepper.initial_states():
            found.setdefault(state.fingerprint if self.wide else state.fingerprint & LOW, state)
        self.starts = list(found.values())
        columns = reader.restore(self.stepper.store)
        self.tables.recall(kept.outcomes)
        self.tables.widest = max(len(v) for v in self.stepper.store.values)
        self._fit()
        total = sum(kept.levels)
        for block in reader.fingerprints():
            lows, highs = (block[::2].copy(), block[1::2].copy()) if self.wide else (block, block)
            for t, work in enumerate(self.work):
                kernel.make_room(work.table, work.counts, work.held, self.wide, int(work.counts[USED]) + len(lows))
                kernel.insert_all(work.table, work.counts, lows, highs, t, self.workers, self.wide)
        if sum(int(w.counts[USED]) for w in self.work) != total:
            raise SystemFailure(f"the checkpoint in {reader.directory} is damaged: it holds a state twice; start again without it")
        for log in reader.links():
            self.links.add(log)
        self.new_numbers = reserve(self.region * self.workers, np.int64)
        for numbers, cells in reader.frontier():
            self._place_rows(numbers, cells, columns)
        result.distinct, result.generated, result.depth = kept.distinct, kept.generated, kept.depth
        self.earlier = Exploration(generated=kept.generated, seconds=kept.seconds)
        self.earlier.taken, self.earlier.new = dict(enumerate(kept.taken)), dict(enumerate(kept.new))
        for kind, name, start, path in kept.found:
            result.found.append(self._found(kind, name, (start, path)))
        self.reported = set(kept.reported)
        self._settle()
        self._put_in_order()
        # Only now: until here nothing in the directory was changed.
        self.writer = Writer(reader.directory, kept)
        self._remember()
        self.saved_depth = result.depth

    def _place_rows(self, numbers: Array, cells: Array, columns: list[tuple[int, list[int]]]) -> None:
        """Lay rows of a checkpoint out as parked states of the new level."""
        store = self.stepper.store
        rows = np.zeros((len(cells), self.width), self.dtype)
        lows, highs = (np.full(len(cells), part, np.uint64) for part in (SEED & LOW, SEED >> 64))
        for column, (index, ids) in enumerate(columns):
            rows[:, index] = np.array(ids, self.dtype)[cells[:, column]]
            lows ^= np.array([h & LOW for h in store.hashes[index]], np.uint64)[rows[:, index]]
            highs ^= np.array([h >> 64 for h in store.hashes[index]], np.uint64)[rows[:, index]]
        owners = ((lows >> np.uint64(32)) * np.uint64(self.workers)) >> np.uint64(32)
        for t, work in enumerate(self.work):
            mine = np.flatnonzero(owners == t)
            begin = t * self.region + int(work.counts[COUNT])
            end = begin + len(mine)
            self.new.cells[begin:end] = rows[mine]
            self.new.fp[begin:end], self.new.fp_high[begin:end] = lows[mine], highs[mine]
            self.new.ref[begin:end], self.new.meta[begin:end] = INITIAL, kernel.PARKED
            self.new_numbers[begin:end] = numbers[mine]
            work.parked[work.counts[PARKS] : work.counts[PARKS] + len(mine)] = np.arange(begin, end)
            work.counts[COUNT] += len(mine)
            work.counts[PARKS] += len(mine)

    def _remember(self) -> None:
        """What a checkpoint says about the level that just ended."""
        if self.writer is None:
            return
        self._count()
        result, tables, protocol = self.result, self.tables, self.stepper.protocol
        roots = range(len(self.stepper.roots))
        numbers = {id(state): n for n, state in enumerate(self.starts)}
        found = []
        for f in result.found:
            by_step = {(int(tables.outcome_root[o]), tables.outcome_choices[o]): o for o in range(1, tables.outcomes)}
            found.append((f.kind, f.name, numbers[id(f.initial)], [by_step[r, tuple(c)] for r, c in f.path]))
        self.manifest = Manifest(
            FORMAT, protocol.name, {n: encode(v).hex() for n, v in protocol.constants.items()}, source_digest(protocol),
            self._properties, self.options.bits, result.depth, result.distinct, result.generated,
            [result.taken.get(i, 0) for i in roots], [result.new.get(i, 0) for i in roots],
            self.earlier.seconds + time.monotonic() - self.started, list(self.writer.levels), "", self.level_size, "", self.width,
            np.dtype(self.dtype).itemsize, slot_entries(self.stepper.store),
            [(int(tables.outcome_root[o]), list(tables.outcome_choices[o])) for o in range(tables.outcomes)], found,
            sorted(self.reported),
        )  # fmt: skip

    def _save(self) -> None:
        """Save the last level that was completed, unless that was done: it is the new one between levels, else the old one."""
        manifest = self.manifest
        if self.writer is None or manifest is None or manifest.depth == self.saved_depth:
            return
        arena, numbers = (self.old, self.old_numbers) if self.expanding else (self.new, self.new_numbers)
        order = self.order[: manifest.frontier_size]
        manifest.width, manifest.item = self.width, np.dtype(self.dtype).itemsize

        def rows() -> Iterator[tuple[Array, Array]]:
            bases = np.array(self.bases, np.int64)
            for begin in range(0, len(order), BLOCK_ROWS):
                positions = order[begin : begin + BLOCK_ROWS]
                number = numbers[positions] if numbers.size else positions % self.region + bases[positions // self.region]
                yield number, arena.cells[positions][:, : self.width]

        manifest.slots = slot_entries(self.stepper.store)[: self.width]
        begin = time.monotonic()
        self.writer.save(manifest, rows)
        self.saved_depth, self.saved_at = manifest.depth, time.monotonic()
        self.save_seconds = self.saved_at - begin

    def _place(self, state: State) -> None:
        self.tables.widest = max([self.tables.widest, *state.ids])
        self._fit()
        fingerprint = state.fingerprint
        low, high = fingerprint & LOW, fingerprint >> 64
        t = int(kernel.owner(np.uint64(low), self.workers))
        work, counts = self.work[t], self.work[t].counts
        if not kernel.insert(work.table, counts, np.uint64(low), np.uint64(high), self.wide):
            return
        position = t * self.region + int(counts[COUNT])
        self.new.cells[position, : len(state.ids)] = state.ids
        self.new.cells[position, len(state.ids) :] = 0
        self.new.fp[position], self.new.fp_high[position] = low, high
        self.new.ref[position] = (len(self.starts) << REF_BITS) | INITIAL
        self.new.meta[position] = kernel.PARKED
        work.parked[counts[PARKS]] = position
        counts[COUNT] += 1
        counts[PARKS] += 1
        self.starts.append(state)

    def _next_level(self) -> None:
        """Expand the current level into the next."""
        self._turn_over()
        self.expanding = True
        if self._expand_all():
            self._end_level()
            self.expanding = False
            since, every = time.monotonic() - self.saved_at, self.options.checkpoint_every
            if not every or since >= max(every, 10 * self.save_seconds):
                self._save()

    def _turn_over(self) -> None:
        self.old, self.new = self.new, self.old
        self.old_numbers, self.new_numbers = self.new_numbers, np.zeros(0, np.int64)
        self.old_counts = [int(w.counts[COUNT]) for w in self.work]
        for work in self.work:
            work.counts[COUNT] = work.counts[LEAF_TOP] = work.counts[OUT] = 0
            work.counts[DEADLOCK] = -1
        self.failed = [0] * self.workers

    @property
    def _actions_matter(self) -> bool:
        """Whether states now being found will be expanded: not on the last level of a depth limit."""
        return self.options.max_depth is None or self.result.depth + 1 < self.options.max_depth

    def _expand_all(self) -> bool:
        """Expand the level, pausing to settle parked states; whether it came to its end."""
        order = self.order[: self.level_size]
        at = 0
        while True:
            bound = sum(self.tables.most_outcomes) * self.tables.widest_fork
            block = max(1, min(kernel.BLOCK, ROOM // max(bound, 1)))
            if at >= self.level_size:
                return True
            begin = time.monotonic()
            rest = order[at:]
            done = self._run_workers(rest, block)
            self.seconds["expand"] += time.monotonic() - begin
            at += min(len(rest), done * block * self.workers)
            self.expanded = at
            self._settle()
            if at < self.level_size and self.shared.stop[0]:
                return False

    def _run_workers(self, order: Array, block: int) -> int:
        """Run the kernel on every core until it comes back; how many rounds were done. Watches limits meanwhile."""
        self.shared.barrier[0] = 0
        self.shared.stop[:] = 0
        futures: list[Future[int]] = [
            self.pool.submit(
                kernel.expand, t, self.workers, self.compiled, self.old, self.new, self.work[t], self.shared, order, 0, block,
                self.wide, self._actions_matter, self.region,
            )
            for t in range(self.workers)
        ]  # fmt: skip
        interrupted: BaseException | None = None
        while True:
            try:
                if not wait(futures, timeout=TICK).not_done:
                    break
                self._watch()
            except KeyboardInterrupt as error:
                interrupted = error
                self.shared.stop[0] = 1
        rounds = [f.result() for f in futures]
        if interrupted is not None:
            raise interrupted
        return int(rounds[0])

    def _settle(self) -> None:
        """Complete parked states, asking Python where no path is known."""
        begin = time.monotonic()
        python = 0.0
        asks = np.zeros((QUESTIONS, 3), np.int64)
        while any(w.counts[PARKS] for w in self.work):
            self.compiled = self.tables.compiled()
            questions: list[tuple[int, int, int]] = []
            for t, work in enumerate(self.work):
                n = kernel.settle(
                    self.compiled, self.tables.growing(), self.old, self.new, work,
                    t * (self.new.leaves.size // self.workers), self.wide, self._actions_matter, asks,
                )  # fmt: skip
                questions += [(int(r), int(p), int(s)) for r, p, s in asks[:n]]
            if not questions:
                break
            asked = time.monotonic()
            for root, position, step in questions:
                self._ask(root, position, step)
            self._fit()
            python += time.monotonic() - asked
            self._watch()
        for t, work in enumerate(self.work):
            # What is parked still waits for an evaluation that raised.
            self.failed[t] += int(work.counts[PARKS])
            work.counts[PARKS] = 0
        self.compiled = self.tables.compiled()
        self.seconds["python"] += python
        self.seconds["settle"] += time.monotonic() - begin - python

    def _ask(self, root: int, position: int, step: int) -> None:
        ids = self.new.cells[position].tolist()
        after = None
        if step >= 0:
            after = list(ids)
            begin, end = self.tables.write_start[step], self.tables.write_start[step + 1]
            for k in range(begin, end):
                slot = int(self.tables.write_slot[k])
                after.extend([0] * (slot + 1 - len(after)))
                after[slot] = int(self.tables.write_value[k])
        try:
            self.tables.record(root, self.stepper.evaluate(self.stepper.roots[root], ids, after))
        except ProtocolRaised as error:
            fingerprint = int(self.new.fp[position])
            if self.raised is None or fingerprint < self.raised[0]:
                self.raised = (fingerprint, position, error)

    def _end_level(self) -> None:
        """All states of the level are there: complete them, judge it, put it in order, log whence each came."""
        self._settle()
        self._judge()
        begin = time.monotonic()
        counts = [int(w.counts[COUNT]) for w in self.work]
        starts = np.concatenate([[0], np.cumsum(counts)])
        bases = np.array(self.bases, np.int64)
        log = self.log[: int(starts[-1])]

        def link(t: int) -> None:
            part, base = log[starts[t] : starts[t + 1]], t * self.region
            if self.result.depth:
                kernel.parents(
                    self.new, base, counts[t], self.region, bases, self.old_numbers, part, self.work[t].new_count
                )
            else:
                part[:] = self.new.ref[base : base + counts[t]]

        for future in [self.pool.submit(link, t) for t in range(self.workers)]:
            future.result()
        self.links.add(log)
        self._put_in_order()
        self.bases = [int(s) for s in starts[:-1]]
        if self.writer is not None:
            self.writer.add_level([self._fingerprints_of(t, counts[t]) for t in range(self.workers)], log)
        self.result.distinct += self.level_size + sum(self.failed)
        if self.level_size and self.result.depth:
            self.result.depth += 1
        self._tell_raised()
        if self.options.checking and self._actions_matter:
            for place in range(0, self.level_size, max(1, self.level_size // SAMPLE)):
                audit(self.tables, self.new, int(self.order[place]))
        if not self.result.depth and (self.level_size or self.starts):
            self.result.depth = 1
        if self.level_size:
            self._remember()
        self.seconds["order"] += time.monotonic() - begin

    def _end_early(self) -> None:
        """Count what was found of a level that is not complete."""
        found = 0
        bases = np.zeros(self.workers, np.int64)
        for t, work in enumerate(self.work):
            count = int(work.counts[COUNT])
            found += count - int(work.counts[OUT])
            ignored = np.empty(count, np.int64)
            kernel.parents(self.new, t * self.region, count, self.region, bases, self.old_numbers, ignored, work.new_count)
        self.result.distinct += found
        self.result.queue += found - self.expanded

    def _fingerprints_of(self, t: int, count: int) -> Array:
        begin, end = t * self.region, t * self.region + count
        if not self.wide:
            return self.new.fp[begin:end]
        return np.stack([self.new.fp[begin:end], self.new.fp_high[begin:end]], axis=1)

    def _put_in_order(self) -> None:
        """Sort the states to be expanded by fingerprint."""
        inside = [int(w.counts[COUNT] - w.counts[OUT]) - failed for w, failed in zip(self.work, self.failed, strict=True)]
        places = np.concatenate([[0], np.cumsum(inside)])

        def sort(t: int) -> None:
            if inside[t]:
                work = self.work[t]
                kernel.order_level(
                    self.new, work.counts, t * self.region, self.workers, self.order, int(places[t]), work.keys, work.begins,
                    work.starts, self.wide,
                )  # fmt: skip

        for future in [self.pool.submit(sort, t) for t in range(self.workers)]:
            future.result()
        self.level_size = int(places[-1])

    # -- judging ------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """The violations of the level, one per property, in the order of properties."""
        found: dict[str, tuple[tuple[int, ...], Found]] = {}
        for root in self.stepper.roots:
            kind = self.tables.root_kind[root.index]
            if kind == ACTION or root.name in self.reported:
                continue
            for w in self.work:
                if kind == STATE_PROPERTY and w.best_position[root.index] >= 0:
                    position = int(w.best_position[root.index])
                    rank: tuple[int, ...] = (int(w.best_fp[root.index]), int(w.best_high[root.index]))
                    path = self._path_to_new(position)
                elif kind != STATE_PROPERTY and w.best_order[root.index] >= 0:
                    place, outcome = int(w.best_order[root.index]), int(w.best_outcome[root.index])
                    rank = (place, int(self.tables.outcome_root[outcome]), *self.tables.outcome_choices[outcome])
                    start, steps = self._path_to_old(int(self.order[place]))
                    path = (start, [*steps, outcome])
                else:
                    continue
                if root.name not in found or rank < found[root.name][0]:
                    found[root.name] = (rank, self._found(root.kind, root.name, path))
        stuck = [int(w.counts[DEADLOCK]) for w in self.work if w.counts[DEADLOCK] >= 0]
        if stuck and self.options.deadlock and "deadlock" not in self.reported:
            path = self._path_to_old(int(self.order[min(stuck)]))
            found["deadlock"] = ((), self._found("deadlock", "deadlock", path))
        for _, violation in found.values():
            self.result.found.append(violation)
            self.reported.add(violation.name)
        for work in self.work:
            work.best_position[:] = -1
            work.best_order[:] = -1

    def _tell_raised(self) -> None:
        if self.raised is None or (self.result.found and not self.options.keep_going):
            return
        _, position, error = self.raised
        self.result.raised = error
        at = (len(self.links) - 1, position // self.region)
        number = position % self.region + self.bases[at[1]]
        self.result.raised_at = self._found("raised", error.where, self.links.path(at[0], number))

    def _path_to_new(self, position: int) -> tuple[int, list[int]]:
        """The start and the outcomes that lead to a state of the level being built."""
        ref = int(self.new.ref[position])
        outcome, parent = ref & REF_MASK, ref >> REF_BITS
        if outcome == INITIAL:
            return parent, []
        start, path = self._path_to_old(parent)
        return start, [*path, outcome]

    def _path_to_old(self, position: int) -> tuple[int, list[int]]:
        """The start and the outcomes that lead to a state of the level being expanded."""
        if self.old_numbers.size:
            number = int(self.old_numbers[position])
        else:
            number = position % self.region + self.bases[position // self.region]
        return self.links.path(len(self.links) - 1, number)

    def _found(self, kind: str, name: str, path: tuple[int, list[int]]) -> Found:
        start, outcomes = path
        steps = [(int(self.tables.outcome_root[o]), self.tables.outcome_choices[o]) for o in outcomes]
        return Found(kind, name, self.starts[start], steps)

    # -- limits and counts --------------------------------------------------------------------------------------------

    def _finished(self) -> bool:
        options, result = self.options, self.result
        if result.limit is not None or result.raised is not None:
            return True
        if result.found and not options.keep_going:
            return True
        if options.max_depth is not None and result.depth >= options.max_depth:
            result.limit = f"the depth limit of {options.max_depth:,}"
        else:
            self._watch()
        return result.limit is not None

    def _watch(self) -> None:
        """Look at the limits, and tell how far we are."""
        options, result = self.options, self.result
        now = time.monotonic()
        memory = resident_memory()
        found, queue = result.distinct, self.level_size
        if self.expanding:
            discovered = sum(int(w.counts[COUNT]) - int(w.counts[OUT]) for w in self.work)
            found += discovered
            queue += discovered - min(queue, self.expanded + int(self.shared.stop[1]))
        if result.limit is None:
            if options.max_states is not None and found >= options.max_states:
                result.limit = f"the limit of {options.max_states:,} states"
            elif options.timeout is not None and now - self.started >= options.timeout:
                result.limit = f"the time limit of {options.timeout:g} seconds"
            elif memory >= self.memory_limit:
                result.limit = f"the memory limit of {self.memory_limit:,} bytes"
        if result.limit is not None:
            self.shared.stop[0] = 1
        if self.report is not None and now - self.told >= TICK:
            self.told = now
            self._count()
            self.report(
                Progress(
                    generated=result.generated,
                    distinct=found,
                    depth=result.depth,
                    queue=queue,
                    seconds=now - self.started,
                    memory=memory,
                    evaluations=self.stepper.evaluations,
                    exploding=self.tables.exploding(),
                    doing="" if kernel.expand.signatures else "compiling the loops, once on this machine",
                )
            )

    def _count(self) -> None:
        """Add up what the workers counted, by action."""
        tables, result = self.tables, self.result
        leaves = np.sum([w.leaf_count[: tables.leaves] for w in self.work], axis=0)
        cut = np.sum([w.cut_count[: tables.outcomes] for w in self.work], axis=0)
        new = np.sum([w.new_count[: tables.outcomes] for w in self.work], axis=0)
        size = len(self.stepper.roots)
        weight = np.array(tables.leaf_weight[: tables.leaves], np.int64)
        outcome_weight = np.array(tables.outcome_weight, np.int64)
        by_outcome = tables.outcome_root[1 : tables.outcomes]
        taken = np.bincount(tables.leaf_root[: tables.leaves], leaves * weight, size)
        taken -= np.bincount(by_outcome, (cut * outcome_weight)[1:], size)
        earlier = self.earlier
        result.taken = {i: int(n) + earlier.taken.get(i, 0) for i, n in enumerate(taken)}
        result.new = {i: int(n) + earlier.new.get(i, 0) for i, n in enumerate(np.bincount(by_outcome, new[1:], size))}
        result.generated = earlier.generated + int(taken.sum())
