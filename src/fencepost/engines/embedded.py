"""The embedded engine: the compiled protocol, breadth first, on all cores of one machine.

The driver here runs the author's Python where no path is known, and decides between levels; everything that is done
once per state is in `kernel`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fencepost.compiler import canonical
from fencepost.compiler.layout import packed, unpacked
from fencepost.compiler.machine import reserve
from fencepost.compiler.native import REF_BITS, REF_MASK, STACK_WORDS, move_fields
from fencepost.compiler.tables import INITIAL, STATE_PROPERTY, STEP_PROPERTY, Array, Compiled, Tables
from fencepost.engines import kernel
from fencepost.engines.announcing import announced, compiling
from fencepost.engines.audit import audit
from fencepost.engines.checkpoint import (
    BLOCK_ROWS,
    FORMAT,
    Manifest,
    Reader,
    Writer,
    encoded_constants,
    slot_entries,
)
from fencepost.engines.interface import SAMPLE, Exploration, Found, Options, Progress, Report, table
from fencepost.engines.kernel import CAPACITY, COUNT, DEADLOCK, INEXACT, LEAF_TOP, OUT, PARKS, USED, Arena, Shared, Work
from fencepost.engines.links import Links
from fencepost.engines.recording import record_level, steps_of
from fencepost.engines.resources import limit_reached, memory_limit, peak_memory, physical_memory, resident_memory
from fencepost.engines.witnesses import reported_as, sought
from fencepost.errors import ProtocolRaised, SystemFailure
from fencepost.liveness.graph import Recording
from fencepost.source import source_digest
from fencepost.spec.declarations import TEMPORAL
from fencepost.step import LimitReached, State, Stepper, Symmetry
from fencepost.step.state import LOW, SEED

ROOM = 1 << 26
"""Candidates a worker can have for one owner in one round."""
FIRST_CAPACITY = 1 << 20
QUESTIONS = 4096
MANY_ROWS = 100_000
"""States of a level from which on rows get words to spare when they get one: each time, the level is copied."""
TICK = 0.1
"""Seconds between looks at limits."""


def explore(stepper: Stepper, options: Options, report: Report | None = None) -> Exploration:
    """Explore every reachable state. Limits, violations and errors of the protocol end it early and are reported.

    Raises :class:`fencepost.SystemFailure` if the protocol outgrows the engine's tables or the machine.
    """
    with announced(report):
        explorer = Explorer(stepper, options, report)
        try:
            with uncollected():
                return explorer.run()
        finally:
            explorer.close()


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection: what Python allocates here lives on in tables, and looking for cycles takes a tenth
    of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class Explorer:
    """One exploration: its tables, its two arenas, its workers.

    ``handover``: stop before a level of more than so many states is expanded, or when a quarter of the memory is used:
    ``handed_over``, for another engine to go on. That one finds the level in ``new`` at the first ``level_size``
    positions of ``order``, and goes on using this explorer for what only the author's Python can tell:
    :meth:`complete`.
    """

    def __init__(
        self, stepper: Stepper, options: Options, report: Report | None = None, handover: int | None = None
    ) -> None:
        self.stepper = stepper
        self.handover = handover
        self.handed_over = False
        self.options = options
        self.report = report
        self.started = time.monotonic()
        self.seconds = {"python": 0.0, "settle": 0.0, "expand": 0.0, "order": 0.0}
        self.result = Exploration()
        self.wide = options.bits == 128
        self.workers = max(1, options.workers)
        self.memory_limit = memory_limit(options.max_memory)
        self.symmetry = Symmetry(stepper, options.symmetry) if options.symmetry else None
        self.result.symmetry = self.symmetry
        self.tables = Tables(stepper, self.symmetry)
        self.links = Links()
        self.recording = Recording(stepper) if stepper.of_kind(*TEMPORAL) else None
        self.result.table = table(stepper, options)
        # More states, and more in a level, than memory has room for: the limit on memory is reached first.
        self.most_states = max(1 << 16, physical_memory() // 64 // self.workers)
        images = self.tables.permutations * (16 if self.wide else 8)
        self.region = max(1 << 16, physical_memory() // (64 + images) // self.workers)
        self.old, self.new = self._arena(), self._arena()
        self.work = [self._work() for _ in range(self.workers)]
        labelled = self.symmetry is not None and self.symmetry.labelling is not None
        self.labels = [canonical.scratch() if labelled else None for _ in range(self.workers)]
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
        self.counted = False  # the level that is being expanded into
        self.expanded = 0
        self.reported: set[str] = set()
        self.names = reported_as(stepper, self.symmetry)
        self.sought = sought(stepper, options, self.names)
        self.raised: tuple[int, int, ProtocolRaised] | None = None
        self.failed = [0] * w
        self.told = 0.0
        self.most_told = 0
        self.reader = Reader(Path(options.resume)) if options.resume else None
        self.writer: Writer | None = None
        self.source = ""
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

    def _arena(self) -> Arena:
        n = self.region * self.workers
        return Arena(
            cells=self._cells(),
            fp=reserve(n, np.uint64),
            fp_high=reserve(n, np.uint64),
            ref=reserve(n, np.int64),
            meta=reserve(n, np.int64),
            leaves=reserve(n * 16, np.int32, large=True),
            image=self.tables.images_of(n),
            image_high=self.tables.images_of(n if self.wide else 1),
        )

    def _cells(self) -> Array:
        n, words = self.region * self.workers, self.tables.layout.words
        return reserve(n * words, np.uint64, large=True).reshape(n, words)

    def _work(self) -> Work:
        roots = len(self.stepper.roots) + 1
        counts = np.zeros(16, np.int64)
        counts[CAPACITY] = FIRST_CAPACITY
        counts[DEADLOCK] = -1
        entries = (self.most_states + kernel.SLACK * 2) * 4
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
            scratch=np.zeros(1, np.int32),
            stack=np.zeros(STACK_WORDS, np.int64),
            best_fp=np.zeros(roots, np.uint64),
            best_high=np.zeros(roots, np.uint64),
            best_position=np.full(roots, -1, np.int64),
            best_order=np.full(roots, -1, np.int64),
            best_outcome=np.full(roots, -1, np.int64),
        )

    def fit(self) -> None:
        """Make room in rows for values and slots that are new, and bring the rows of both levels up to it."""
        counts = [int(w.counts[COUNT]) for w in self.work]
        words = self.tables.layout.words
        moves = self.tables.fit(spare=words // 8 if sum(counts) > MANY_ROWS else 0)
        if self.tables.layout.words > words:
            self.old, self.new = self._widened(self.old, self.old_counts), self._widened(self.new, counts)
        if len(moves):
            jobs = [
                (a, t, n) for a, held in ((self.old, self.old_counts), (self.new, counts)) for t, n in enumerate(held)
            ]
            for job in [
                self.pool.submit(move_fields, a.cells, t * self.region, t * self.region + n, moves) for a, t, n in jobs
            ]:
                job.result()

    def _widened(self, arena: Arena, counts: list[int]) -> Arena:
        cells = self._cells()
        for t, count in enumerate(counts):
            begin, end = t * self.region, t * self.region + count
            cells[begin:end, : arena.cells.shape[1]] = arena.cells[begin:end]
        return arena._replace(cells=cells)

    # -- the search ---------------------------------------------------------------------------------------------------

    def run(self) -> Exploration:
        """Explore, and tell what was found."""
        result = self.result
        try:
            with self.stepper.deadline.limits(self.limit_reached):
                if self.reader is not None:
                    self._resume(self.reader)
                else:
                    if self.options.checkpoint is not None:
                        self.source = source_digest(self.stepper.protocol)
                        self.writer = Writer(Path(self.options.checkpoint), None)
                    self._begin()
                while self.level_size and not self.finished():
                    if self._outgrown():
                        self.handed_over = True
                        break
                    self._next_level()
            result.complete = not self.level_size and result.limit is None and self.raised is None
            result.recording = self.recording
        except ProtocolRaised as error:
            result.raised = error
        except LimitReached:
            result.limit = self.stepper.deadline.reached
        except KeyboardInterrupt:
            result.interrupted = True
        except SystemFailure as error:
            result.failure = error
        except MemoryError:
            result.failure = SystemFailure(
                "out of memory: set --max-memory below what the machine has, to stop in time"
            )
        try:
            self._save()
        except SystemFailure as error:
            result.failure = error
        result.queue = self.level_size
        if self.expanding or not result.depth:
            self._judge()
        if self.expanding and not self.counted:
            self._end_early()
        self.conclude()
        return result

    def conclude(self) -> None:
        """Complete the result with what is only known, or only worth looking up, at the end."""
        result = self.result
        self.count()
        if self.symmetry is not None and any(w.counts[INEXACT] for w in self.work):
            self.symmetry.exact = False
        result.seconds_before = self.earlier.seconds
        result.seconds = self.earlier.seconds + time.monotonic() - self.started
        result.evaluations = self.stepper.evaluations
        result.peak_memory = peak_memory()
        result.profile = {
            **self.tables.profile(),
            "seconds": dict(self.seconds),
            "memory": {
                "table": sum(int(w.counts[CAPACITY]) for w in self.work) * (16 if self.wide else 8),
                "links": self.links.resident,
            },
        }

    def _begin(self) -> None:
        """The initial states: level 1."""
        for state in self.stepper.initial_states():
            self.earlier.generated += 1
            position = self._place(state)
            if position is not None:
                self._judge_start(state, position)
        self._end_level()

    def _judge_start(self, state: State, position: int) -> None:
        """Hold an initial state against the initial states of what is refined."""
        work, low, high = (
            self.work[position // self.region],
            int(self.new.fp[position]),
            int(self.new.fp_high[position]),
        )
        for root in self.stepper.of_kind("refinement"):
            best = (int(work.best_fp[root.index]), int(work.best_high[root.index]))
            try:
                if self.stepper.outcomes(root, state.ids) and (
                    work.best_position[root.index] < 0 or (low, high) < best
                ):
                    work.best_fp[root.index], work.best_high[root.index], work.best_position[root.index] = (
                        low,
                        high,
                        position,
                    )
            except ProtocolRaised as error:
                if self.raised is None or low < self.raised[0]:
                    self.raised = (low, position, error)

    @property
    def properties(self) -> list[str]:
        """The properties of states and of steps that are checked, by title."""
        return [
            r.title for r in self.stepper.roots if self.tables.root_kind[r.index] in (STATE_PROPERTY, STEP_PROPERTY)
        ]

    @property
    def _symmetric(self) -> list[str]:
        return list(self.symmetry.names) if self.symmetry is not None else []

    def _resume(self, reader: Reader) -> None:
        """Everything as it was at the end of the level that the checkpoint holds."""
        kept, result, elsewhere = reader.manifest, self.result, self.options.checkpoint
        if elsewhere is not None and Path(elsewhere).resolve() != reader.directory.resolve():
            raise SystemFailure(f"a resumed run goes on saving to {reader.directory}; leave out --checkpoint")
        reader.verify(self.stepper.protocol, self.properties, self.options.bits, self._symmetric)
        self.recall_starts()
        columns = reader.restore(self.stepper.store)
        self.tables.recall(kept.outcomes)
        self.fit()
        total = sum(kept.levels)
        for block in reader.fingerprints():
            lows, highs = (block[::2].copy(), block[1::2].copy()) if self.wide else (block, block)
            for t, work in enumerate(self.work):
                kernel.make_room(work.table, work.counts, work.held, self.wide, int(work.counts[USED]) + len(lows))
                kernel.insert_all(work.table, work.counts, lows, highs, t, self.workers, self.wide)
        if sum(int(w.counts[USED]) for w in self.work) != total:
            raise SystemFailure(
                f"the checkpoint in {reader.directory} is damaged: it holds a state twice; start again without it"
            )
        for log in reader.links():
            self.links.add(log)
        self.new_numbers = reserve(self.region * self.workers, np.int64)
        step = max(1, BLOCK_ROWS // max(1, self.tables.permutations))
        result.distinct, result.generated, result.depth = kept.distinct, kept.generated, kept.depth
        self.earlier = Exploration(generated=kept.generated, seconds=kept.seconds)
        self.earlier.taken, self.earlier.new = dict(enumerate(kept.taken)), dict(enumerate(kept.new))
        for kind, name, start, path in kept.found:
            result.add(self.violation(kind, name, (start, path)))
        self.reported = set(kept.reported)
        for numbers, rows in reader.frontier():
            for begin in range(0, len(rows), step):
                self._place_rows(numbers[begin : begin + step], rows[begin : begin + step], columns)
            # Block by block: the first ones teach the tables nearly every path, at the cost of a few rows.
            self._settle()
        self._put_in_order()
        # Only now: until here nothing in the directory was changed.
        self.source, self.writer = kept.source, Writer(reader.directory, reader)
        self._remember()
        self.saved_depth = result.depth

    def recall_starts(self) -> None:
        """Number the initial states as an exploration does that begins with them."""
        found: dict[tuple[int, int], State] = {}
        for state in self.stepper.initial_states():
            low, high, _ = self._identify(state)
            found.setdefault((low, high if self.wide else 0), state)
        self.starts = list(found.values())

    def _place_rows(self, numbers: Array, kept: Array, columns: list[tuple[int, list[int]]]) -> None:
        """Lay rows of a checkpoint out as parked states of the new level. ``columns``: for each of theirs, its slot
        here and the numbers here of its values.
        """
        store = self.stepper.store
        rows = np.zeros((len(kept), len(store.slots)), np.uint32)
        for column, (index, ids) in enumerate(columns):
            rows[:, index] = np.array(ids, np.uint32)[kept[:, column]]
        if self.symmetry is not None:
            images = self._images(rows)
            lows, highs = self._keys(rows, images)
        else:
            images = None
            lows, highs = (np.full(len(rows), part, np.uint64) for part in (SEED & LOW, SEED >> 64))
            for index, _ in columns:
                lows ^= np.array([h & LOW for h in store.hashes[index]], np.uint64)[rows[:, index]]
                highs ^= np.array([h >> 64 for h in store.hashes[index]], np.uint64)[rows[:, index]]
        laid_out = self._lay_out(lows, highs, packed(rows, self.tables.places, self.tables.layout.words), images)
        self.new_numbers[laid_out] = numbers

    def _lay_out(self, lows: Array, highs: Array, rows: Array, images: Array | None = None) -> Array:
        """Lay rows with these fingerprints out as parked states of the new level; their positions."""
        owners = ((lows >> np.uint64(32)) * np.uint64(self.workers)) >> np.uint64(32)
        positions = np.zeros(len(rows), np.int64)
        for t, work in enumerate(self.work):
            mine = np.flatnonzero(owners == t)
            begin = t * self.region + int(work.counts[COUNT])
            end = begin + len(mine)
            positions[mine] = np.arange(begin, end)
            self.new.cells[begin:end] = rows[mine]
            self.new.fp[begin:end], self.new.fp_high[begin:end] = lows[mine], highs[mine]
            if images is not None:
                self._keep_images(slice(begin, end), images[:, mine])
            self.new.ref[begin:end], self.new.meta[begin:end] = INITIAL, kernel.PARKED
            work.parked[work.counts[PARKS] : work.counts[PARKS] + len(mine)] = np.arange(begin, end)
            work.counts[COUNT] += len(mine)
            work.counts[PARKS] += len(mine)
        return positions

    def _outgrown(self) -> bool:
        if self.handover is None:
            return False
        return self.level_size > self.handover or resident_memory() > self.memory_limit // 4

    def forget_visited(self) -> None:
        """Give back the memory of all that was found: another engine has it now."""
        self.work = [work._replace(table=np.zeros(8, np.uint64)) for work in self.work]
        self.links.close()
        self.links = Links()
        self.old, self.new = self._arena(), self._arena()

    def complete(self, lows: Array, highs: Array, rows: Array) -> Array:
        """Judge states that another engine could not, asking Python where no path is known, and find their enabled
        leaves.

        Gives their positions in ``new``, where whatever was there before is overwritten. Violations are noted as those
        of a level are, a state that the author's Python raised in stays parked.
        """
        self._clear_new()
        positions = self._lay_out(lows, highs, rows)
        self._settle()
        return positions

    def _remember(self) -> None:
        """What a checkpoint says about the level that just ended."""
        if self.writer is None:
            return
        self.count()
        result, tables, protocol = self.result, self.tables, self.stepper.protocol
        roots = range(len(self.stepper.roots))
        numbers = {id(state): n for n, state in enumerate(self.starts)}
        found = []
        for f in [*result.found, *result.witnesses]:
            by_step = {(int(tables.outcome_root[o]), tables.outcome_choices[o]): o for o in range(1, tables.outcomes)}
            found.append((f.kind, f.name, numbers[id(f.initial)], [by_step[r, tuple(c)] for r, c in f.path]))
        self.manifest = Manifest(
            FORMAT, protocol.name, encoded_constants(protocol), self.source, self.properties, self.options.bits,
            result.depth, result.distinct, result.generated,
            [result.taken.get(i, 0) for i in roots], [result.new.get(i, 0) for i in roots],
            self.earlier.seconds + time.monotonic() - self.started, list(self.writer.levels), "", "", "",
            self.level_size, [], 0, [],
            slot_entries(self.stepper.store),
            [(int(tables.outcome_root[o]), list(tables.outcome_choices[o])) for o in range(tables.outcomes)], found,
            sorted(self.reported), self._symmetric,
        )  # fmt: skip

    def _save(self) -> None:
        """Save the last level that was completed, unless that was done: it is the new one between levels, else the old
        one.
        """
        manifest = self.manifest
        if self.writer is None or manifest is None or manifest.depth == self.saved_depth:
            return
        arena, numbers = (self.old, self.old_numbers) if self.expanding else (self.new, self.new_numbers)
        order = self.order[: manifest.frontier_size]
        manifest.words, manifest.places = self.tables.layout.words, self.tables.places.tolist()

        def rows() -> Iterator[tuple[Array, Array]]:
            bases = np.array(self.bases, np.int64)
            for begin in range(0, len(order), BLOCK_ROWS):
                positions = order[begin : begin + BLOCK_ROWS]
                number = (
                    numbers[positions] if numbers.size else positions % self.region + bases[positions // self.region]
                )
                yield number, arena.cells[positions]

        manifest.slots = slot_entries(self.stepper.store)
        begin = time.monotonic()
        self.writer.save(manifest, rows)
        self.saved_depth, self.saved_at = manifest.depth, time.monotonic()
        self.save_seconds = self.saved_at - begin

    def _place(self, state: State) -> int | None:
        """Lay an initial state out, parked; its position, unless it is there already."""
        self.fit()
        low, high, images = self._identify(state)
        t = int(kernel.owner(np.uint64(low), self.workers))
        work, counts = self.work[t], self.work[t].counts
        if not kernel.insert(work.table, counts, np.uint64(low), np.uint64(high), self.wide):
            return None
        position = t * self.region + int(counts[COUNT])
        self.new.cells[position] = self.tables.rows([state.ids])[0]
        self.new.fp[position], self.new.fp_high[position] = low, high
        if images is not None:
            self._keep_images(slice(position, position + 1), images)
        self.new.ref[position] = (len(self.starts) << REF_BITS) | INITIAL
        self.new.meta[position] = kernel.PARKED
        work.parked[counts[PARKS]] = position
        counts[COUNT] += 1
        counts[PARKS] += 1
        self.starts.append(state)
        return position

    def _identify(self, state: State) -> tuple[int, int, Array | None]:
        """What a state is known by, low half and high half, and with symmetry its images."""
        if self.symmetry is None:
            fingerprint = state.fingerprint
            return fingerprint & LOW, fingerprint >> 64, None
        key = self.symmetry.key(state.ids)
        return key & LOW, key >> 64, self._images(np.array([state.ids], np.int64))

    def _images(self, rows: Array) -> Array:
        """The fingerprints of every image of these rows: by half, row and permutation."""
        images = np.empty((2, len(rows), self.tables.permutations), np.uint64)
        images[0], images[1] = SEED & LOW, SEED >> 64
        for index in range(rows.shape[1]):
            numbers, places = np.unique(rows[:, index], return_inverse=True)
            images ^= np.stack([self.tables.image_hashes(index, int(n)) for n in numbers], axis=1)[:, places]
        return images

    def _keys(self, rows: Array, images: Array) -> tuple[Array, Array]:
        """The keys of the orbits of these rows, whose images have these fingerprints."""
        lows, highs = (np.empty(len(rows), np.uint64) for _ in range(2))
        self.compiled = self.tables.compiled()
        if self.compiled.colours.size:
            cells, work = packed(rows, self.tables.places, self.tables.layout.words), self.work[0]
            work.counts[INEXACT] += not canonical.labelled_keys(
                self.compiled, self.labels[0], cells, lows, highs, self.wide
            )
        else:
            kernel.orbit_keys(self.compiled, images[0], images[1], lows, highs, self.wide)
        return lows, highs

    def _keep_images(self, positions: slice, images: Array) -> None:
        self.new.image[positions] = images[0]
        if self.wide:
            self.new.image_high[positions] = images[1]

    def _next_level(self) -> None:
        """Expand the current level into the next."""
        self._turn_over()
        self.expanding, self.counted = True, False
        if self._expand_all():
            if self.recording is not None:
                self._record(self.recording)
            self._write_steps()
            self._end_level()
            self.expanding = False
            since, every = time.monotonic() - self.saved_at, self.options.checkpoint_every
            if not every or since >= max(every, 10 * self.save_seconds):
                self._save()

    def _turn_over(self) -> None:
        self.old, self.new = self.new, self.old
        self.old_numbers, self.new_numbers = self.new_numbers, np.zeros(0, np.int64)
        self.old_counts = [int(w.counts[COUNT]) for w in self.work]
        self._clear_new()

    def _clear_new(self) -> None:
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
            bound = sum(self.tables.most_outcomes)
            block = max(1, min(kernel.BLOCK, ROOM // max(bound, 1)))
            if at >= self.level_size:
                return True
            begin = time.monotonic()
            done = self._run_workers(order, at, block)
            self.seconds["expand"] += time.monotonic() - begin
            at = min(self.level_size, at + done * block * self.workers)
            self.expanded = at
            self._settle()
            if at < self.level_size and self.shared.stop[0]:
                return False

    def _run_workers(self, order: Array, first: int, block: int) -> int:
        """Run the kernel on every core, from place ``first`` of the level on, until it comes back; how many rounds were
        done. Watches limits meanwhile.
        """
        self.shared.barrier[0] = 0
        self.shared.stop[:] = 0
        futures: list[Future[int]] = [
            self.pool.submit(
                kernel.expand, t, self.workers, self.compiled, self.old, self.new, self.work[t], self.labels[t],
                self.shared, order, first, block,
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
            self.compiled = self.tables.compiled(afresh=False)
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
            self.fit()
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
        ids = self.tables.ids(self.new.cells[position])
        after = self.tables.successor(ids, step) if step >= 0 else None
        try:
            self.tables.record(
                root, self.stepper.evaluate(self.stepper.roots[root], ids, after, self.tables.change_of(root, step))
            )
        except ProtocolRaised as error:
            fingerprint = int(self.new.fp[position])
            if self.raised is None or fingerprint < self.raised[0]:
                self.raised = (fingerprint, position, error)

    def _record(self, recording: Recording) -> None:
        """Note down the level that was expanded, for liveness."""
        begin = time.monotonic()
        order = self.order[: self.level_size]
        record_level(recording, lambda: (self.compiled, self.old), self.work[0], order, self._ask_of_old)
        self.seconds["record"] = self.seconds.get("record", 0.0) + time.monotonic() - begin

    def _ask_of_old(self, root: int, position: int) -> None:
        """Ask Python for a temporal predicate in a state of the level that was expanded."""
        try:
            self.tables.record(
                root, self.stepper.evaluate(self.stepper.roots[root], self.tables.ids(self.old.cells[position]))
            )
        except ProtocolRaised as error:
            self.result.raised_at = self.violation("raised", error.where, self._path_to_old(position))
            raise
        self.fit()

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
        self.manifest = None  # the level that it is about can not be saved any more
        self._put_in_order()
        self.bases = [int(s) for s in starts[:-1]]
        if self.writer is not None:
            self.writer.add_level([self._fingerprints_of(t, counts[t]) for t in range(self.workers)], log)
        self.result.distinct += self.level_size + sum(self.failed)
        self.counted = True
        if self.level_size and self.result.depth:
            self.result.depth += 1
        self._tell_raised()
        if self.options.checking and self._actions_matter:
            for place in range(0, self.level_size, max(1, self.level_size // SAMPLE)):
                audit(self.tables, self.new, int(self.order[place]))
        if not self.result.depth and (self.level_size or self.starts):
            self.result.depth = 1
        if (
            self.level_size or self.expanding
        ) and self.raised is None:  # what could not be judged is no part of the frontier
            self._remember()
        self.seconds["order"] += time.monotonic() - begin
        self._write_states()

    # -- the state space as a table -----------------------------------------------------------------------------------

    def _write_states(self) -> None:
        """Write down the level that was built, while its parents are still there."""
        table = self.result.table
        if table is None or not self.level_size:
            return

        def blocks() -> Iterator[tuple[Array, Array | None, Array | None, Array]]:
            for begin in range(0, self.level_size, BLOCK_ROWS):
                positions = self.order[begin : min(begin + BLOCK_ROWS, self.level_size)]
                refs = self.new.ref[positions]
                first = self.result.depth == 1
                parents = None if first else self.old.fp[refs >> REF_BITS]
                roots = None if first else self.tables.outcome_root[refs & REF_MASK]
                yield self.new.fp[positions], parents, roots, unpacked(self.new.cells[positions], self.tables.places)

        begin = time.monotonic()
        table.add_level(blocks())
        self.seconds["states"] = self.seconds.get("states", 0.0) + time.monotonic() - begin

    def _write_steps(self) -> None:
        """Write down the steps out of the level that was expanded."""
        table = self.result.table
        if table is None or table.edges is None:
            return
        begin = time.monotonic()
        roots = np.arange(len(self.stepper.roots), dtype=np.uint16)
        no_demands = np.zeros((len(roots), 0), np.uint64)
        for at in range(0, self.level_size, BLOCK_ROWS):
            positions = self.order[at : min(at + BLOCK_ROWS, self.level_size)]
            counts, targets, taken, _ = steps_of(self.compiled, self.old, self.work[0], positions, roots, no_demands)
            table.add_edges(np.repeat(self.old.fp[positions], counts), targets, taken)
        self.seconds["states"] = self.seconds.get("states", 0.0) + time.monotonic() - begin

    def _end_early(self) -> None:
        """Count what was found of a level that is not complete."""
        found = self._discovered()
        bases = np.zeros(self.workers, np.int64)
        for t, work in enumerate(self.work):
            count = int(work.counts[COUNT])
            ignored = np.empty(count, np.int64)
            kernel.parents(
                self.new, t * self.region, count, self.region, bases, self.old_numbers, ignored, work.new_count
            )
        self.result.distinct += found
        self.result.queue += found - self.expanded

    def _fingerprints_of(self, t: int, count: int) -> Array:
        begin, end = t * self.region, t * self.region + count
        if not self.wide:
            return self.new.fp[begin:end]
        return np.stack([self.new.fp[begin:end], self.new.fp_high[begin:end]], axis=1)

    def _put_in_order(self) -> None:
        """Sort the states to be expanded by fingerprint."""
        inside = [
            int(w.counts[COUNT] - w.counts[OUT]) - failed for w, failed in zip(self.work, self.failed, strict=True)
        ]
        places = np.concatenate([[0], np.cumsum(inside)])

        def sort(t: int) -> None:
            if inside[t]:
                work = self.work[t]
                kernel.order_level(
                    self.new, work.counts, t * self.region, self.workers, self.order, int(places[t]), work.keys,
                    work.begins,
                    work.starts, self.wide,
                )  # fmt: skip

        for future in [self.pool.submit(sort, t) for t in range(self.workers)]:
            future.result()
        self.level_size = int(places[-1])

    # -- judging ------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """The violations and witnesses of the level, one of each name, in the order of properties."""
        found: dict[str, tuple[tuple[int, ...], Found]] = {}
        for root in self.stepper.roots:
            kind, name = self.tables.root_kind[root.index], self.names[root.index]
            if kind not in (STATE_PROPERTY, STEP_PROPERTY) or name in self.reported:
                continue
            for w in self.work:
                if w.best_position[root.index] >= 0:
                    position = int(w.best_position[root.index])
                    rank: tuple[int, ...] = (int(w.best_fp[root.index]), int(w.best_high[root.index]))
                    path = self._path_to_new(position)
                elif kind == STEP_PROPERTY and w.best_order[root.index] >= 0:
                    place, outcome = int(w.best_order[root.index]), int(w.best_outcome[root.index])
                    rank = (place, int(self.tables.outcome_root[outcome]), *self.tables.outcome_choices[outcome])
                    start, steps = self._path_to_old(int(self.order[place]))
                    path = (start, [*steps, outcome])
                else:
                    continue
                if name not in found or rank < found[name][0]:
                    found[name] = (rank, self.violation(root.kind, root.reported, path))
        stuck = [int(w.counts[DEADLOCK]) for w in self.work if w.counts[DEADLOCK] >= 0]
        if stuck and self.options.deadlock and "deadlock" not in self.reported:
            path = self._path_to_old(int(self.order[min(stuck)]))
            found["deadlock"] = ((), self.violation("deadlock", "deadlock", path))
        for name, (_, met) in found.items():
            self.result.add(met)
            self.reported.add(name)
        self.forget_violations()

    def forget_violations(self) -> None:
        """Those that were noted have been told."""
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
        self.result.raised_at = self.violation("raised", error.where, self.links.path(at[0], number))

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

    def violation(self, kind: str, name: str, path: tuple[int, list[int]]) -> Found:
        """A violation or a witness, by the number of the initial state and the outcomes that lead to it."""
        start, outcomes = path
        steps = [(int(self.tables.outcome_root[o]), self.tables.outcome_choices[o]) for o in outcomes]
        return Found(kind, name, self.starts[start], steps)

    # -- limits and counts --------------------------------------------------------------------------------------------

    def finished(self) -> bool:
        """Whether no further level is to be expanded: for a violation, an error or a limit, or because all that was
        sought is found.
        """
        options, result = self.options, self.result
        if result.limit is not None or result.raised is not None:
            return True
        if (result.found and not options.keep_going) or (self.sought and self.sought <= self.reported):
            return True
        if options.max_depth is not None and result.depth >= options.max_depth:
            result.limit = f"the depth limit of {options.max_depth:,}"
        else:
            self._watch()
        return result.limit is not None

    def limit_reached(self) -> str | None:
        """The limit on time or memory that is reached."""
        return limit_reached(self.stepper.deadline, self.options.timeout, self.memory_limit)

    def _watch(self) -> None:
        """Look at the limits, and tell how far we are."""
        options, result = self.options, self.result
        now = time.monotonic()
        memory = resident_memory()
        found, queue = result.distinct, self.level_size
        if self.expanding:
            discovered = self._discovered()
            found += discovered
            queue += discovered - min(queue, self.expanded + int(self.shared.stop[1]))
        found = self.most_told = max(found, self.most_told)
        if result.limit is None:
            if options.max_states is not None and found >= options.max_states:
                result.limit = f"the limit of {options.max_states:,} states"
            else:
                result.limit = self.limit_reached()
        if result.limit is not None:
            self.shared.stop[0] = 1
        if self.report is not None and now - self.told >= TICK:
            self.told = now
            self.count()
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
                    doing=compiling(),
                )
            )

    def _discovered(self) -> int:
        """How many states of the level that is being built count. Of a parked one, which was not judged yet, that is
        not known.

        Workers may be running: in this order, the numbers add up to no more than there are.
        """
        counted = sum(int(w.counts[COUNT]) for w in self.work)
        return counted - sum(int(w.counts[OUT]) + int(w.counts[PARKS]) for w in self.work)

    def count(self) -> None:
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
