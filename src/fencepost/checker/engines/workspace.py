"""The memory in which one process explores: compiled tables, the states of two levels, and the workers' scratch memory.

Every engine lays out the states it found in an arena. States that fell off a trie are **parked** there, and
:meth:`Workspace.complete` completes them. It is the only place where an engine asks the author's Python for unknown
paths.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

from fencepost.checker.compiler import canonical, encoding
from fencepost.checker.compiler.arrays import Array, Compiled, Growing
from fencepost.checker.compiler.memory import reserve
from fencepost.checker.compiler.native import STACK_WORDS, move_fields
from fencepost.checker.compiler.profile import profile
from fencepost.checker.compiler.tables import Question, Tables
from fencepost.checker.engines import kernel
from fencepost.checker.engines.evaluators import Evaluators
from fencepost.checker.engines.interface import Found
from fencepost.checker.engines.kernel import QUESTIONS, Arena, Levels, Work
from fencepost.checker.engines.recording import truths_of
from fencepost.checker.engines.resources import memory_limit, physical_memory
from fencepost.checker.engines.search import TICK, Raised, Search, StatePath, Step, Tally
from fencepost.checker.engines.starts import Starts, combinations
from fencepost.checker.liveness.graph import mask
from fencepost.errors import READ_OTHERWISE, ProtocolRaised, SystemFailure
from fencepost.semantics import START, START_PROPERTIES, Root, State
from fencepost.semantics.state import LOW, SEED

T = TypeVar("T")

MANY_ROWS = 10_000
"""The number of states in a level above which their values are moved on all cores."""
FEW_WORDS = 4
"""The minimum number of words of a row in memory, half a cache line. Longer rows have a quarter more than they need.
When that room is used up, both levels have to be copied.
"""
ROOM = 1 << 26
"""The most candidates of a worker for one owner in one round."""
FIRST_CAPACITY = 1 << 20
MOST_AGAIN = 3
"""How often the same questions may be asked again in a row. A set that gets a member late lets tries begin anew, which
is a reason to ask once more.
"""
NO_ORDER: tuple[Array, Array] = (np.zeros(0, np.int64), np.zeros(0, np.uint64))


class Rounds:
    """Rounds of questions to Python. ``are_in_vain``: the answers lead nowhere, and the same are asked again and
    again.
    """

    def __init__(self) -> None:
        self._last: Sequence[object] = ()
        self._again = 0
        self.are_in_vain = False

    def note(self, questions: Sequence[object]) -> None:
        """The next round has these questions."""
        self._again = self._again + 1 if questions == self._last else 0
        self._last = questions
        self.are_in_vain = self._again >= MOST_AGAIN


def awaited(futures: Sequence[Future[T]], stop: Array, look: Callable[[], object]) -> list[T]:
    """The results of workers, which return early once ``stop`` is set. Calls ``look`` while waiting. An interrupt is
    raised after all have returned.
    """
    interrupted: BaseException | None = None
    while True:
        try:
            if not wait(futures, timeout=TICK).not_done:
                break
            look()
        except KeyboardInterrupt as error:
            interrupted = error
            stop[0] = 1
    results = [future.result() for future in futures]
    if interrupted is not None:
        raise interrupted
    return results


class Workspace:
    """Tables, arenas and workers of one process. ``old`` is the arena of the level being expanded, ``new`` that of the
    level being built. Worker t has the positions from ``t * region``; its count says how many.
    """

    def __init__(self, search: Search) -> None:
        options, self.stepper = search.options, search.stepper
        search.memory_limit = memory_limit(options.max_memory)
        self.search = search
        self.symmetry = search.symmetry
        self.wide = options.bits == 128
        self.workers = max(1, options.workers)
        self.tables = Tables(self.stepper, self.symmetry)
        # More states than fit into memory, in all and in one level: the memory limit is reached first.
        self.most_states = max(1 << 16, physical_memory() // 64 // self.workers)
        images = self.tables.permutations * (16 if self.wide else 8)
        self.region = max(1 << 16, physical_memory() // (64 + images) // self.workers)
        self.old, self.new = self._arena(), self._arena()
        self.old_counts = [0] * self.workers
        self.work = [self._work(t) for t in range(self.workers)]
        labelled = self.symmetry is not None and self.symmetry.labelling is not None
        self.labels = [canonical.scratch() if labelled else None for _ in range(self.workers)]
        self.pool = ThreadPoolExecutor(self.workers)
        self.compiled: Compiled = self.tables.compiled()
        self.evaluators = Evaluators(self.tables, self.workers)
        self.starts = Starts(self.stepper.store)
        """The initial states up to symmetry, in the order of their numbers."""
        self.failed = [0] * self.workers
        self.raised: tuple[int, int, ProtocolRaised] | None = None
        """The error of the author's Python in the state with the least fingerprint: that fingerprint, its position, the
        error.
        """
        self.seconds = {"python": 0.0, "complete": 0.0, "expand": 0.0, "order": 0.0}

    def close(self) -> None:
        """Stop the workers."""
        self.pool.shutdown()

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
        n, words = self.region * self.workers, max(FEW_WORDS, self.tables.layout.words * 5 // 4)
        return reserve(n * words, np.uint64, large=True).reshape(n, words)

    def _work(self, t: int) -> Work:
        roots = len(self.stepper.roots) + 1
        counts = np.zeros(encoding.COUNTERS, np.int64)
        counts[encoding.CAPACITY] = FIRST_CAPACITY
        counts[encoding.DEADLOCK] = -1
        counts[encoding.BASE], counts[encoding.LEAF_BASE] = t * self.region, t * (self.new.leaves.size // self.workers)
        entries = (self.most_states + kernel.SLACK * 2) * 4
        return Work(
            table=reserve(entries * (2 if self.wide else 1), np.uint64, large=True),
            counts=counts,
            parked=reserve(self.region, np.int64),
            keys=reserve(self.region + 1, np.uint64),
            places=reserve(self.region + 1, np.int64),
            part_heads=np.zeros(kernel.PART_HEADS, np.int64),
            heads=np.zeros(kernel.BUCKET_HEADS, np.int64),
            leaf_count=reserve(encoding.MAX_OUTCOMES, np.int64),
            cut_count=reserve(encoding.MAX_OUTCOMES, np.int64),
            new_count=reserve(encoding.MAX_OUTCOMES, np.int64),
            full=reserve(ROOM, np.int64),
            held=reserve(2 * (kernel.MOVED + kernel.SLACK), np.uint64),
            fill=np.zeros(kernel.MOVED // 2, np.int64),
            scratch=np.zeros(1, np.int32),
            gates=np.zeros(roots, np.int64),
            stack=np.zeros(STACK_WORDS, np.int64),
            best_fp=np.zeros(roots, np.uint64),
            best_high=np.zeros(roots, np.uint64),
            best_position=np.full(roots, -1, np.int64),
            best_order=np.full(roots, -1, np.int64),
            best_outcome=np.full(roots, -1, np.int64),
        )

    def levels(self, order: tuple[Array, Array] = NO_ORDER) -> Levels:
        """Both levels in the form that compiled loops take, with the ``order`` (positions, fingerprints) of one."""
        return Levels(self.old, self.new, *order, self.wide, self.search.expands_next, self.workers, self.region)

    def counts(self) -> list[int]:
        """The number of states of each worker in ``new``."""
        return [int(w.counts[encoding.COUNT]) for w in self.work]

    def fit(self) -> None:
        """Make room in rows for new values and slots, and update the rows of both levels."""
        counts, moves = self.counts(), self.tables.fit()
        if self.tables.layout.words > self.new.cells.shape[1]:
            self.old, self.new = self._widened(self.old, self.old_counts), self._widened(self.new, counts)
        if len(moves):
            parts = [
                (arena.cells, t * self.region, t * self.region + n, moves)
                for arena, held in ((self.old, self.old_counts), (self.new, counts))
                for t, n in enumerate(held)
            ]
            run = self.pool.map if sum(counts) > MANY_ROWS else map
            list(run(lambda part: move_fields(*part), parts))

    def _widened(self, arena: Arena, counts: list[int]) -> Arena:
        cells = self._cells()
        for t, count in enumerate(counts):
            begin, end = t * self.region, t * self.region + count
            cells[begin:end, : arena.cells.shape[1]] = arena.cells[begin:end]
        return arena._replace(cells=cells)

    def turn_over(self) -> None:
        """Make the level just built the one to be expanded."""
        self.old, self.new = self.new, self.old
        self.old_counts = self.counts()
        self.clear()

    def clear(self) -> None:
        """Empty the level being built."""
        for work in self.work:
            work.counts[encoding.COUNT] = work.counts[encoding.LEAF_TOP] = work.counts[encoding.OUT] = 0
            work.counts[encoding.DEADLOCK] = -1
        self.failed = [0] * self.workers

    def release(self) -> None:
        """Free the memory of everything visited, which another executor has taken over."""
        self.work = [work._replace(table=np.zeros(8, np.uint64)) for work in self.work]
        self.old, self.new = self._arena(), self._arena()

    # -- laying states out --------------------------------------------------------------------------------------------

    def place_initial(self) -> None:
        """Lay out the initial states, parked, in the level being built, and judge them by what holds in them alone."""
        is_judged = bool(self.stepper.of_kind(*START_PROPERTIES))
        for rows, ways in self._initial():
            self.search.count_starts(ways, len(rows))
            lows, highs, images = self._identify(rows)
            new = self.insert(lows, highs)
            some = None if images is None else images[:, new]
            positions = self.lay_out(lows[new], highs[new], self.tables.rows(rows[new]), some)
            numbers = range(len(self.starts), len(self.starts) + len(positions))
            self.new.ref[positions] = [encoding.pack_reference(number, encoding.INITIAL) for number in numbers]
            self.starts.add(rows[new])
            for number, position in zip(numbers, positions.tolist(), strict=True) if is_judged else ():
                self._judge_initial(self.starts[number], position)

    def number_initial(self) -> None:
        """Number the initial states as :meth:`place_initial` does, for paths that begin with them."""
        found: set[tuple[int, int]] = set()
        for rows, _ in self._initial():
            lows, highs, _ = self._identify(rows)
            keys = zip(lows.tolist(), highs.tolist() if self.wide else [0] * len(rows), strict=True)
            firsts = {key: number for number, key in reversed(list(enumerate(keys))) if key not in found}
            found.update(firsts)
            self.starts.add(rows[sorted(firsts.values())])

    def _initial(self) -> Iterator[tuple[Array, int]]:
        """The initial states as value numbers (one row a state, one column a slot), some at a time, each with the
        number of ways to them.
        """
        if self.stepper.combines:
            for rows in combinations(self.stepper):
                found = self._among(rows)
                if len(found):
                    yield found, len(found)
            return
        states = self.stepper.initial_states()
        ways = self.stepper.starts
        for begin in range(0, len(states), MANY_ROWS):
            yield self._numbers(states[begin : begin + MANY_ROWS]), ways
            ways = 0

    def _numbers(self, states: Sequence[State]) -> Array:
        self.fit()
        rows = np.zeros((len(states), len(self.stepper.store.slots)), np.int64)
        for row, state in zip(rows, states, strict=True):
            row[: len(state.ids)] = state.ids
        return rows

    def _among(self, rows: Array) -> Array:
        """The combinations of values that are initial states."""
        conditions = self.stepper.of_kind(START)

        def tables() -> tuple[Compiled, Growing, Arena]:
            self.fit()
            arena = self.old._replace(cells=self.tables.rows(rows))
            return self.tables.compiled(), self.tables.growing(), arena

        def ask(questions: Array) -> None:
            asked = [Question(root, rows[position].tolist()) for root, position in questions.tolist()]
            for error in [each for each in self.evaluators.ask(asked) if each is not None]:
                raise error

        if not conditions:
            self.fit()
            return rows
        truths = truths_of(conditions, tables, self.work[0], np.arange(len(rows)), ask)
        are_true: Array = (truths == mask(range(len(conditions)), truths.shape[1])).all(axis=1)
        return rows[are_true]

    def insert(self, lows: Array, highs: Array) -> Array:
        """Add fingerprints to the tables of their workers. Returns which of them were new (bool)."""
        new = np.zeros(len(lows), np.bool_)
        for t, work in enumerate(self.work):
            kernel.make_room(work, self.wide, int(work.counts[encoding.USED]) + len(lows))
            kernel.insert_all(work.table, work.counts, lows, highs, t, self.workers, self.wide, new)
        return new

    def _judge_initial(self, state: State, position: int) -> None:
        """Judge an initial state by what holds in initial states alone."""
        work, low, high = (
            self.work[position // self.region],
            int(self.new.fp[position]),
            int(self.new.fp_high[position]),
        )
        for root in self.stepper.of_kind(*START_PROPERTIES):
            number = root.index
            best = (int(work.best_fp[number]), int(work.best_high[number]))
            try:
                is_violated = bool(self.stepper.outcomes(root, state.ids))
            except ProtocolRaised as error:
                self._raise(position, error)
                continue
            if is_violated and (work.best_position[number] < 0 or (low, high) < best):
                work.best_fp[number], work.best_high[number], work.best_position[number] = low, high, position

    def lay_out(self, lows: Array, highs: Array, rows: Array, images: Array | None = None) -> Array:
        """Lay out rows with these fingerprints as parked states of the level being built. Returns their positions
        (int64).
        """
        owners = ((lows >> np.uint64(32)) * np.uint64(self.workers)) >> np.uint64(32)
        positions = np.zeros(len(rows), np.int64)
        for t, work in enumerate(self.work):
            mine = np.flatnonzero(owners == t)
            begin = t * self.region + int(work.counts[encoding.COUNT])
            end = begin + len(mine)
            positions[mine] = np.arange(begin, end)
            self.new.cells[begin:end, : rows.shape[1]] = rows[mine]
            self.new.fp[begin:end], self.new.fp_high[begin:end] = lows[mine], highs[mine]
            if images is not None:
                self._keep_images(slice(begin, end), images[:, mine])
            self.new.ref[begin:end], self.new.meta[begin:end] = encoding.INITIAL, encoding.PARKED
            work.parked[work.counts[encoding.PARKS] : work.counts[encoding.PARKS] + len(mine)] = np.arange(begin, end)
            work.counts[encoding.COUNT] += len(mine)
            work.counts[encoding.PARKS] += len(mine)
        return positions

    def lay_out_ids(self, ids: Array) -> Array:
        """Lay out states given as value numbers (one row a state, one column a slot). Returns their positions."""
        lows, highs, images = self._identify(ids)
        return self.lay_out(lows, highs, self.tables.rows(ids), images)

    def _identify(self, ids: Array) -> tuple[Array, Array, Array | None]:
        """Both halves of the fingerprints of states. With symmetry, those of their orbits' keys, and their images."""
        if self.symmetry is not None:
            images = self._images(ids)
            return *self._keys(ids, images), images
        store = self.stepper.store
        lows, highs = (np.full(len(ids), part, np.uint64) for part in (SEED & LOW, SEED >> 64))
        for slot in np.flatnonzero(ids.any(axis=0)).tolist():
            lows ^= np.array([h & LOW for h in store.hashes[slot]], np.uint64)[ids[:, slot]]
            highs ^= np.array([h >> 64 for h in store.hashes[slot]], np.uint64)[ids[:, slot]]
        return lows, highs, None

    def _images(self, ids: Array) -> Array:
        """The fingerprints of every image of these states: by half, state and permutation."""
        images = np.empty((2, len(ids), self.tables.permutations), np.uint64)
        images[0], images[1] = SEED & LOW, SEED >> 64
        for slot in range(ids.shape[1]):
            numbers, places = np.unique(ids[:, slot], return_inverse=True)
            images ^= np.stack([self.tables.image_hashes(slot, int(n)) for n in numbers], axis=1)[:, places]
        return images

    def _keys(self, ids: Array, images: Array) -> tuple[Array, Array]:
        """The keys of the orbits of these states, from the fingerprints of their images."""
        lows, highs = (np.empty(len(ids), np.uint64) for _ in range(2))
        self.compiled = self.tables.compiled()
        if self.compiled.colours.size:
            cells, work = self.tables.rows(ids), self.work[0]
            work.counts[encoding.INEXACT] += not canonical.labelled_keys(
                self.compiled, self.labels[0], cells, lows, highs, self.wide
            )
        else:
            kernel.orbit_keys(self.compiled, images[0], images[1], lows, highs, self.wide)
        return lows, highs

    def _keep_images(self, positions: slice, images: Array) -> None:
        self.new.image[positions] = images[0]
        if self.wide:
            self.new.image_high[positions] = images[1]

    # -- completing states, with Python -------------------------------------------------------------------------------

    def complete(self, watch: Callable[[], object]) -> None:
        """Complete parked states, asking Python where no path is known. Calls ``watch`` between rounds of answers.

        A state in which the author's Python raises stays parked, and counts as ``failed``.
        """
        if not any(w.counts[encoding.PARKS] for w in self.work):
            return
        begin = time.monotonic()
        python = 0.0
        asks = np.zeros((QUESTIONS, 3), np.int64)
        rounds = Rounds()
        while any(w.counts[encoding.PARKS] for w in self.work):
            self.compiled = self.tables.compiled(afresh=False)
            questions: list[tuple[int, int, int]] = []
            for work in self.work:
                if not work.counts[encoding.PARKS]:
                    continue
                n = kernel.complete(self.compiled, self.tables.growing(), self.levels(), work, asks)
                questions += [(int(r), int(p), int(s)) for r, p, s in asks[:n]]
            rounds.note(questions)
            if not questions or rounds.are_in_vain:
                if self.raised is None and any(w.counts[encoding.PARKS] for w in self.work):
                    raise SystemFailure(f"an action or a property {READ_OTHERWISE}", "checking")
                break
            asked = time.monotonic()
            rows = self.tables.ids_of(self.new.cells[[position for _, position, _ in questions]])
            in_states = [Question(root, ids, step) for (root, _, step), ids in zip(questions, rows, strict=True)]
            for (_, position, _), error in zip(questions, self.evaluators.ask(in_states), strict=True):
                if error is not None:
                    self._raise(position, error)
            self.fit()
            python += time.monotonic() - asked
            watch()
        for t, work in enumerate(self.work):
            # A state that is still parked needs an evaluation that raised.
            self.failed[t] += int(work.counts[encoding.PARKS])
            work.counts[encoding.PARKS] = 0
        self.compiled = self.tables.compiled()
        self.seconds["python"] += python
        self.seconds["complete"] += time.monotonic() - begin - python

    def know_steps(self, order: Array) -> None:
        """Have tries of step properties know the steps out of these states of the level, although they began anew after
        the states were built.
        """
        if not kernel.know_steps(self.compiled, self.tables.growing(), self.old, self.work[0], order):
            raise SystemFailure(f"a step property {READ_OTHERWISE}", "checking")

    def _raise(self, position: int, error: ProtocolRaised) -> None:
        fingerprint = int(self.new.fp[position])
        if self.raised is None or fingerprint < self.raised[0]:
            self.raised = (fingerprint, position, error)

    # -- findings -----------------------------------------------------------------------------------------------------

    def raised_at(self) -> Raised | None:
        """The error that the author's Python raised, with the position of the state."""
        return None if self.raised is None else Raised(self.raised[2], self.raised[1])

    def violations(self) -> Iterator[tuple[Root, int]]:
        """The states of the level being built that violate a property, by position: the least of each worker."""
        for work in self.work:
            for number in np.flatnonzero(work.best_position >= 0).tolist():
                yield self.stepper.roots[number], int(work.best_position[number])

    def forget_violations(self) -> None:
        """Clear the violations met so far, which have been reported."""
        for work in self.work:
            work.best_position[:] = -1
            work.best_order[:] = -1

    def step(self, outcome: int) -> Step:
        """An outcome as a step of a path."""
        return int(self.tables.outcome_root[outcome]), self.tables.outcome_choices[outcome]

    def path(self, start: int, outcomes: list[int]) -> StatePath:
        """A path from the number of an initial state and the outcomes that follow it."""
        return self.starts[start], [self.step(outcome) for outcome in outcomes]

    def encode(self, found: list[Found]) -> list[tuple[str, str, int, list[int]]]:
        """Violations and witnesses for a checkpoint: kind, name, number of the initial state, outcomes."""
        if not found:
            return []
        outcomes = {self.step(o): o for o in range(1, self.tables.outcomes)}
        number = self.starts.number
        return [
            (f.kind, f.name, number(f.initial), [outcomes[root, tuple(choices)] for root, choices in f.path])
            for f in found
        ]

    def decode(self, found: list[tuple[str, str, int, list[int]]]) -> list[Found]:
        """The inverse of :meth:`encode`. The initial states must be numbered and the outcomes known again."""
        return [Found(kind, name, *self.path(start, outcomes)) for kind, name, start, outcomes in found]

    # -- counts -------------------------------------------------------------------------------------------------------

    def tally(self) -> Tally:
        """The counts of all workers, by action."""
        tables, roots = self.tables, len(self.stepper.roots)
        leaves = np.sum([w.leaf_count[: tables.leaves] for w in self.work], axis=0)
        cut = np.sum([w.cut_count[: tables.outcomes] for w in self.work], axis=0)
        new = np.sum([w.new_count[: tables.outcomes] for w in self.work], axis=0)
        weight = np.array(tables.leaf_weight[: tables.leaves], np.int64)
        outcome_weight = np.array(tables.outcome_weight, np.int64)
        by_outcome = tables.outcome_root[1 : tables.outcomes]
        taken = np.bincount(tables.leaf_root[: tables.leaves], leaves * weight, roots)
        taken -= np.bincount(by_outcome, (cut * outcome_weight)[1:], roots)
        found = np.bincount(by_outcome, new[1:], roots)
        taken_by, found_by = (dict(enumerate(counts.astype(int).tolist())) for counts in (taken, found))
        return Tally(taken_by, found_by, int((cut * outcome_weight).sum()))

    def discovered(self) -> int:
        """The number of states of the level being built that count, without parked ones, which are not judged yet.

        Workers may be running. In this order of reads the sum is never too large.
        """
        counted = sum(self.counts())
        return counted - sum(int(w.counts[encoding.OUT]) + int(w.counts[encoding.PARKS]) for w in self.work)

    @property
    def properties(self) -> list[str]:
        """The titles of the properties of states and steps that are checked."""
        kinds = (encoding.STATE_PROPERTY, encoding.STEP_PROPERTY)
        return [root.title for root in self.stepper.roots if self.tables.root_kind[root.index] in kinds]

    def note_exactness(self) -> None:
        """Record in the symmetry whether every orbit has had one key so far."""
        if self.symmetry is not None and any(w.counts[encoding.INEXACT] for w in self.work):
            self.symmetry.exact = False

    def profile(self) -> dict[str, object]:
        """Figures for the profile of the result."""
        table = sum(int(w.counts[encoding.CAPACITY]) for w in self.work) * (16 if self.wide else 8)
        return {**profile(self.tables), "seconds": dict(self.seconds), "memory": {"table": table}}
