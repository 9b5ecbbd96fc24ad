"""The Spark engine: begins embedded, and hands over to a cluster when a level outgrows one process.

The driver here is the only one to run the author's Python. Executors get the compiled tables and files of rows; what
they do is in `stages`. Between levels the driver completes the states that fell off a trie, judges what was found, and
decides.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from fencepost import __version__
from fencepost.compiler.arrays import Array
from fencepost.compiler.encoding import (
    INITIAL,
    PARKED,
    STATE_PROPERTY,
    link_outcome,
    link_parent,
    reference_outcome,
)
from fencepost.compiler.profile import exploding
from fencepost.compiler.snapshot import restore, snapshot
from fencepost.digest import digest, sealed
from fencepost.engines import conclusion
from fencepost.engines.checkpoint import restore_slots, saved, slot_entries
from fencepost.engines.embedded import Embedded
from fencepost.engines.interface import Exploration, Progress, Report, TableWriter
from fencepost.engines.kernel import Arena
from fencepost.engines.options import SparkOptions
from fencepost.engines.resources import resident_memory
from fencepost.engines.search import Evidence, Executor, Level, Raised, Search, StatePath, Tally
from fencepost.engines.workspace import Workspace
from fencepost.errors import OptionError, SystemFailure
from fencepost.source import source_digest
from fencepost.spark import checkpoint, level, loops, stages
from fencepost.spark.cluster import Cluster, Held
from fencepost.spark.level import Piece, Plan, Run, Shape
from fencepost.spark.liveness import Judge
from fencepost.spark.notes import Notes, Noting
from fencepost.spark.session import require_spark
from fencepost.spark.table import Outputs, resumed
from fencepost.spec.declarations import TEMPORAL
from fencepost.step import Stepper
from fencepost.step.state import LOW
from fencepost.storage import Storage, open_storage

if TYPE_CHECKING:
    from fencepost.states.writer import Writer

HANDOVER = 1_000_000
"""The largest level that is expanded in this process for a cluster, unless told otherwise: about the one for which a
job pays.
"""
HOME_ROWS = 1 << 20
"""States of a level that one task works on, at most."""
FEWEST_ROWS = 1 << 14
"""States of a level that are worth a task of their own."""
NEAR = 8
"""How many times as large as the current level the one may be from which Spark takes over, when Spark is started."""
TARGETS_PER_CORE = 2
"""Targets for each core, at least. There are never fewer than there were: that would only make runs of several
targets.
"""
FILES_PER_CORE = 4
"""Tasks for each core that read the files of a checkpoint."""
FULL_TARGET = 1 << 24
"""Candidates of one target in a level beyond which there are twice as many targets from the next level on."""
FIGURES = ("candidates", "sent", "found", "parked", "shuffled", "expand", "deduplicate", "build")
"""What is counted of a level: candidates, those of them that were sent, states found, those that fell off a trie,
bytes, and seconds of tasks.
"""
SCANNED = 64
"""How many times as many visited states are looked through in this process for a level that is expanded here."""


def explore(
    stepper: Stepper, options: SparkOptions, report: Report | None = None, table: TableWriter | None = None
) -> Exploration:
    """Explore every reachable state, the large levels on Spark. Limits are looked at between levels.

    Raises :class:`fencepost.OptionError` for what this engine can not do, :class:`fencepost.SystemFailure` if there is
    no Spark.
    """
    require_spark()
    cluster = Cluster(options.master, options.conf, options.debug)
    try:
        _refuse(options, cluster)
        return _explored(stepper, cluster, options, report, table)
    finally:
        cluster.close()


def _explored(
    stepper: Stepper, cluster: Cluster, options: SparkOptions, report: Report | None, table: TableWriter | None
) -> Exploration:
    handover = options.handover
    if handover is None:
        # On one machine the embedded engine is the faster one, as long as there is memory.
        handover = sys.maxsize if cluster.local else HANDOVER

    def begin_early(progress: Progress) -> None:
        if progress.queue >= handover // NEAR:
            cluster.begin(spark.take_over_next)
        if report is not None:
            report(progress)

    search = Search(stepper, options, begin_early, table)
    embedded = Embedded(Workspace(search))
    spark = OnSpark(embedded, cluster, options, handover)
    try:
        if options.resume is None:
            cluster.look(spark.take_over_next)
            embedded.relief = spark.relief_of_embedded
        result = search.run(embedded if options.resume is None else spark)
        if search.executor is spark:
            result.on_spark = cluster.used
        else:
            result.engine, result.on_spark = "embedded", False
        return conclusion.conclude(search)
    finally:
        spark.close()
        embedded.close()


def _refuse(options: SparkOptions, cluster: Cluster) -> None:
    if options.checkpoint is not None and options.resume is None:
        storage = open_storage(options.checkpoint)
        storage.create()
        if storage.load(checkpoint.NAME) is not None:
            raise SystemFailure(
                f"{options.checkpoint} holds a checkpoint already: go on from it with {{resume}} {options.checkpoint},"
                " or name an empty one",
                "resume",
            )
    if options.checkpoint is None and options.resume is None and not cluster.local:
        raise OptionError(
            f"{{master}} {cluster.master} needs {{checkpoint}} DIR: a folder or URL that the driver and every executor"
            " can reach, for the states of the search",
            "master",
            "checkpoint",
        )


class OnSpark(Executor):
    """Expands levels on Spark. The level to be expanded is in files of pieces, all that was visited in files of runs. A
    state is named by the two halves of its fingerprint.

    It begins where the ``embedded`` executor ends, or with a checkpoint, and goes on using its workspace: for the
    tables, the counts, and what only the author's Python can tell.
    """

    divisible = False

    def __init__(self, embedded: Embedded, cluster: Cluster, options: SparkOptions, handover: int) -> None:
        self.embedded = embedded
        self.workspace = embedded.workspace
        self.search = embedded.search
        self.options = options
        self.wide = self.workspace.wide
        self.cluster = cluster
        self.first = handover
        self.handover = min(handover, HANDOVER)
        self.is_next = False
        self.storage: Storage | None = None
        self.level = 0
        self.shapes: list[Shape] = []
        self.version = -1  # of the layout that the last of them is
        self.pieces: list[Piece] = []
        self.runs: list[list[Run]] = []
        self.source = source_digest(embedded.search.stepper.protocol)
        self.kept: checkpoint.Manifest | None = None
        self.saved_level = -1
        self.shuffled = 0
        self.stage = ""
        self.figures: list[dict[str, float]] = []
        self.last_is_whole = True
        self.notes: Notes | None = None
        self.judge: Judge | None = None
        self._tables: tuple[tuple[int, ...], Any, str] | None = None
        self.table: Writer | None = None
        self.outputs: Outputs | None = None

    def close(self) -> None:
        """Remove files that were for this search only."""
        if self.storage is not None and self.options.resume is None and self.options.checkpoint is None:
            shutil.rmtree(self.storage.place, True)

    # -- taking over, and going on ------------------------------------------------------------------------------------

    def take_over_next(self) -> None:
        """Take over before the next level: Spark can not be had, and says why when all that was found is in files."""
        self.is_next = True
        self.handover = -1  # no level is small enough to be expanded in this process

    def relief_of_embedded(self) -> OnSpark | None:
        """This executor, if the embedded one has to give way: for the size of a level, or a quarter of the memory."""
        limit = self.search.memory_limit
        crowded = limit is not None and resident_memory() > limit // 4
        return self if self.is_next or self.search.queue > self.first or crowded else None

    def begin(self) -> None:
        """Take over from the embedded executor, or go on from a checkpoint."""
        place = self.options.resume or self.options.checkpoint
        self.storage = open_storage(place or tempfile.mkdtemp(prefix="fencepost-spark-"))
        self.storage.create()
        if self.search.recording is not None:
            self.notes, self.search.recording = Notes(self.search.recording), None
        if self.options.resume is not None:
            self._resume()
            self._write_states()
        else:
            self._take_over()

    def _write_to(self, table: Writer | None) -> None:
        self.search.table = self.table = table
        self.outputs = Outputs(table) if table is not None else None

    def _take_over(self) -> None:
        """Put into files what the embedded executor has found."""
        search = self.search
        self._write_to(cast("Writer | None", search.table))
        self.level = search.result.depth
        self.runs = [[level.write_run(self.files, self._name("run", 0), *self._visited(), self.wide)]]
        order = self.embedded.order[: search.queue]
        for begin in range(0, len(order), HOME_ROWS):
            self.pieces.append(self._piece(order[begin : begin + HOME_ROWS]))
        self.embedded.release()
        if self.notes is not None:
            self.notes.take_over(self.files)
        self._save()

    @property
    def files(self) -> Storage:
        """Where the files are."""
        assert self.storage is not None
        return self.storage

    def _visited(self) -> tuple[Array, Array, Array]:
        """Every state that was discovered, by fingerprint: its low half, its high half if it has one, the outcome that
        led to it.

        They follow from the links: a child's fingerprint is its parent's, changed by the outcome.
        """
        tables, links = self.workspace.tables, self.embedded.links
        starts = [state.fingerprint for state in self.workspace.starts]
        lows, highs = [np.array([s & LOW for s in starts], np.uint64)], [np.array([s >> 64 for s in starts], np.uint64)]
        outcomes: list[Array] = []
        for n in range(len(links)):
            log = links.level(n)
            outcome, parent = link_outcome(log), link_parent(log)
            outcomes.append(outcome.astype(np.uint32))
            lows.append(lows[-1][parent] ^ tables.delta[outcome])
            if self.wide:
                highs.append(highs[-1][parent] ^ tables.delta_high[outcome])
        low, all_outcomes = np.concatenate(lows[1:]), np.concatenate(outcomes)
        if not self.wide:
            order = np.argsort(low)
            return low[order], low, all_outcomes[order]
        high = np.concatenate(highs[1:])
        order = np.lexsort((high, low))
        return low[order], high[order], all_outcomes[order]

    def _piece(self, order: Array, outcomes: Array | None = None) -> Piece:
        """Write states of the workspace's newest level, at these positions, as a piece; with the outcomes that led to
        them, if they are to be written down.
        """
        new, words = self.workspace.new, self.workspace.tables.layout.words
        leaves = np.empty(int(loops.gather_leaves(new, order, order, order, True)), np.int32)
        metas = np.empty(len(order), np.int64)
        loops.gather_leaves(new, order, metas, leaves, False)
        arena = Arena(
            new.cells[order, :words],
            new.fp[order],
            new.fp_high[order],
            order,
            metas,
            leaves,
            level.NO_IMAGES,
            level.NO_IMAGES,
        )
        name = self._name("rows", len(self.pieces))
        return level.write_piece(self.files, name, arena, len(order), len(leaves), self._shape(), self.wide, outcomes)

    def _shape(self) -> int:
        """The number of the layout of rows as it is now."""
        layout = self.workspace.tables.layout
        if not self.shapes or self.version != layout.version:
            self.shapes.append(Shape(layout.words, self.workspace.tables.places.tobytes()))
            self.version = layout.version
        return len(self.shapes) - 1

    def _name(self, what: str, number: int) -> str:
        return f"level-{self.level}-{what}-{number}-{uuid.uuid4().hex[:12]}.bin"

    def _resume(self) -> None:
        """Everything as it was at the end of the level that the checkpoint holds."""
        search, own, place = self.search, self.workspace, self.options.checkpoint
        stepper = search.stepper
        if place is not None and str(open_storage(place).place) != self.files.place:
            raise SystemFailure(
                f"a resumed run goes on saving to {self.files.place}; leave out {{checkpoint}}", "checkpoint"
            )
        kept = checkpoint.read(self.files)
        difference = kept.difference(stepper.protocol, self._properties, self.options.bits)
        if difference is not None:
            raise checkpoint.refused(self.files, difference)
        self._verify(kept)
        writer = resumed(stepper, self.options, kept.table, self.files.place)
        try:
            restored = restore_slots(stepper.store, kept.slots)
            if restored != [(i, list(range(len(e.values)))) for i, e in enumerate(kept.slots)]:
                raise ValueError("values are numbered otherwise")
        except (ValueError, KeyError, TypeError) as error:
            raise checkpoint.refused(self.files, f"does not fit this version of the protocol: {error}") from None
        restore(own.tables, checkpoint.tables(self.files, kept))
        own.fit()
        own.number_initial()
        search.restore(kept.kept(kept.queue, own.decode(kept.found)))
        self.source = kept.source
        self.level, self.pieces, self.runs = kept.level, list(kept.pieces), [list(runs) for runs in kept.runs]
        self.shapes = list(kept.shapes)
        self.kept, self.saved_level = kept, kept.level
        self._write_to(writer)
        if self.notes is not None:
            self.notes.levels = [list(notes) for notes in kept.notes]

    def _verify(self, kept: checkpoint.Manifest) -> None:
        """Raises :class:`fencepost.SystemFailure` unless every file of a checkpoint is what was written."""
        missing = sorted(set(kept.files) - set(self.files.names()))
        if missing:
            raise checkpoint.refused(self.files, f"is damaged: there is no {missing[0]}")
        small = kept.distinct <= self.handover
        tasks = 1 if small else min(len(kept.files), FILES_PER_CORE * self.cluster.cores)
        stage = stages.Verify(self.files.place, kept.files, tasks)
        told = self._each(
            stage, tasks, small, "reading the checkpoint", f"reading {len(kept.files)} files of the checkpoint"
        )
        damaged = sorted(name for one in told for name in msgspec.msgpack.decode(one))
        if damaged:
            raise checkpoint.refused(self.files, f"is damaged: {damaged[0]} is not what was written")

    @property
    def _properties(self) -> list[str]:
        """The properties that are checked, by title."""
        return self.workspace.properties + [root.title for root in self.search.stepper.of_kind(*TEMPORAL)]

    # -- a level ------------------------------------------------------------------------------------------------------

    def expand(self) -> bool:
        """Expand the frontier into the next level."""
        actions = self.search.expands_next
        if not actions:
            # The states of the last level before a limit on depth are not asked for their actions: a resumed run does
            # that level again.
            self._save()
        if self.notes is not None:
            self._note(self.notes)
        before = self.pieces
        plan = self._plan(actions)
        began = time.perf_counter()
        told = self._run(plan)
        done = time.perf_counter()
        self.last_is_whole = False  # until all of it is accounted for, there is nothing to save
        self._take_steps(told)
        self.level += 1
        self._account(plan, told)
        # What could not be judged is no part of the frontier.
        self.last_is_whole = actions and not self.search.has_raised
        self.figures[-1] |= {"job": done - began, "complete": time.perf_counter() - done}
        self._write_states()
        stale = {piece.file for piece in before} | {run.file for runs in plan.runs for run in runs}
        self._remove(stale - self._files())
        if actions and self.level - self.saved_level >= self.options.checkpoint_levels:
            self._save()
        return True

    def _note(self, notes: Notes) -> None:
        """Write down the steps out of the current level."""
        plan = self._plan(True)
        steps: list[tuple[stages.Stage, int]] = [(Noting(plan, notes.terms), plan.homes)]
        if isinstance(plan.tables, Held):
            told = stages.chained(steps)
        else:
            name = f"{self._level_name}: steps of {plan.total:,} states"
            told = self.cluster.chain(steps, ("noting down steps",), name, self._tell)
        notes.add(self.workspace, plan, told)

    def _plan(self, actions: bool) -> Plan:
        tables, total = self.workspace.tables, self.search.queue
        visited = sum(run.states for runs in self.runs for run in runs)
        small = total <= self.handover and visited <= SCANNED * self.handover
        cores = 1
        if not small:
            cores = self.cluster.cores_for(total)
            # Anew for each level: executors may have come since the last one.
            while len(self.runs) < TARGETS_PER_CORE * cores:
                self.runs = level.divided(self.files, self.runs)
        homes = cores * -(-total // (cores * HOME_ROWS))
        homes = max(1, min(homes, -(-total // FEWEST_ROWS)))
        rows = -(-total // homes)
        shared, name = self._shared(small)
        return Plan(
            place=self.files.place, level=self.level, wide=self.wide, shapes=tuple(self.shapes[: self._shape() + 1]),
            pieces=tuple(self.pieces), rows=rows, homes=-(-total // rows),
            runs=tuple(tuple(runs) for runs in self.runs),
            tables=shared, tables_id=name, roots=len(tables.root_kind), leaves=tables.leaves, outcomes=tables.outcomes,
            most_leaves=sum(tables.most_leaves), stepwise=tables.stepwise, actions=actions, version=__version__,
            output=self.outputs.next(small, self.cluster) if self.outputs is not None else None,
        )  # fmt: skip

    def _shared(self, small: bool) -> tuple[Any, str]:
        """The compiled tables, and a name for them: for executors, sent anew only when they have grown."""
        tables = self.workspace.tables
        compiled = tables.compiled()
        version = (int(small), *tables.version)
        if self._tables is None or self._tables[0] != version:
            if self._tables is not None:
                self.cluster.discard(self._tables[1])
            arrays = level.shared(tables, compiled)
            self._tables = (version, Held(arrays) if small else self.cluster.share(arrays), uuid.uuid4().hex)
        return self._tables[1:]

    def _run(self, plan: Plan) -> list[stages.Report]:
        """The level, on Spark or in this process: what its tasks tell."""
        if isinstance(plan.tables, Held):
            told = stages.here(plan)
        else:
            told = self.cluster.run(plan, f"{self._level_name}: {plan.total:,} states", self._tell)
        return [stages.reports.decode(one) for one in told]

    def _take_steps(self, told: Iterable[stages.Report]) -> None:
        """Make the steps out of the level that was expanded part of the table, if they were written down."""
        if self.table is not None and self.table.edges is not None:
            self.table.take_edges(
                one.steps for one in told if isinstance(one, stages.Expanded) and one.steps is not None
            )

    def _write_states(self) -> None:
        """Write down the level that was built, if states are written to a table and it is not there yet."""
        depth = self.search.result.depth
        if self.table is None or not self.search.queue or self.table.depth == depth:
            return
        begin = time.perf_counter()
        plan = self._plan(True)
        small = isinstance(plan.tables, Held)
        told = self._each(
            stages.Write(plan),
            plan.homes,
            small,
            "writing states",
            f"level {depth}: writing {plan.total:,} states",
        )
        self.table.take_level(stages.written.decode(one) for one in told)
        assert self.table.depth == depth
        if self.figures:
            self.figures[-1]["write"] = time.perf_counter() - begin

    def _complete_columns(self) -> None:
        """Write files again that lack columns, or have them of other kinds, if they are too many to leave them to this
        process alone.
        """
        if self.table is None or self.search.result.distinct <= self.handover:
            return
        self.table.begin()
        stale = self.table.stale()
        if stale:
            task = stages.Rewrite(self.table.storage.place, stale, self.table.columns.kinds)
            told = self._each(task, len(stale), False, "completing columns", f"writing {len(stale)} files again")
            for one in told:
                self.table.replace(stages.written.decode(one))

    def _each(self, task: Any, count: int, small: bool, doing: str, name: str) -> list[bytes]:
        """So many tasks of one stage, on Spark or in this process: what they tell."""
        if small:
            return stages.each_here(task, count)
        return self.cluster.each(task, count, doing, f"{self.search.stepper.protocol.name}, {name}", self._tell)

    @property
    def _level_name(self) -> str:
        return f"{self.search.stepper.protocol.name}, level {self.search.result.depth}"

    def _tell(self, stage: str) -> None:
        """Report how far the search is, and what a job is at."""
        self.stage = stage
        self.search.report_progress(self.search.result.distinct, self.search.queue, at_once=True)

    def _account(self, plan: Plan, told: Iterable[stages.Report]) -> None:
        """Make the level that was built the current one: count, complete, judge."""
        search, own = self.search, self.workspace
        counted = own.work[0]
        figures = {"states": plan.total, **dict.fromkeys(FIGURES, 0.0)}
        self.figures.append(figures)
        built: list[stages.Built] = []
        violated: dict[int, tuple[int, int]] = {}
        broken: dict[int, tuple[int, int, int]] = {}
        stuck: list[tuple[int, int]] = []
        fullest = 0
        for one in told:
            if isinstance(one, stages.Expanded):
                _add(counted.leaf_count, one.leaves)
                _add(counted.cut_count, one.cut)
                stuck += [one.stuck] if one.stuck else []
                for root, step in one.broken.items():
                    broken[root] = min(broken.get(root, step), step)
                figures["candidates"] += one.candidates
                figures["sent"] += one.sent
                figures["shuffled"] += one.shuffled
                figures["expand"] += one.seconds
            elif isinstance(one, stages.Deduplicated):
                self.runs[one.target] = one.runs
                fullest = max(fullest, one.received)
                figures["found"] += one.found
                figures["shuffled"] += one.shuffled
                figures["deduplicate"] += one.seconds
            else:
                built.append(one)
                _add(counted.new_count, one.new)
                _note_least(violated, one.violated)
                figures["parked"] += one.parked[1] if one.parked is not None else 0
                figures["build"] += one.seconds
        self.shuffled += int(figures["shuffled"])
        built.sort(key=lambda b: b.home)
        self.pieces = [b.piece for b in built if b.piece is not None]
        failed = 0
        raised: Raised | None = None
        for one in built:
            if one.parked is not None:
                failed += self._complete(plan, *one.parked)
                _note_least(violated, self._violated())
                error = own.raised_at()
                if error is not None:
                    at = _state(own.new, error.at, self.wide)
                    raised = Raised(error.error, at) if raised is None or at < raised.at else raised
                    own.raised = None
        self._meet(violated, broken, stuck)
        search.take(Level(sum(piece.rows for piece in self.pieces), failed, raised))
        if fullest > FULL_TARGET:
            self.runs = level.divided(self.files, self.runs)

    def _complete(self, plan: Plan, file: str, rows: int) -> int:
        """Complete the states that fell off a trie in one task; in how many of them the author's Python raised."""
        own, search = self.workspace, self.search
        low, high, ref, cells = level.read_parked(self.files, file, rows, plan)
        own.clear()
        positions = own.lay_out(low, high, level.brought_up(cells, plan.shapes[-1], self.shapes[self._shape()]))
        own.complete(lambda: search.watch(search.result.distinct, search.queue))
        metas = own.new.meta[positions]
        inside = metas >= 0
        if inside.any():
            outcomes = reference_outcome(ref[inside]) if self.table is not None else None
            self.pieces.append(self._piece(positions[inside], outcomes))
        np.add.at(own.work[0].new_count, reference_outcome(ref[inside]), 1)
        self.files.remove(file)
        return int((metas == PARKED).sum())

    def _violated(self) -> dict[int, tuple[int, int]]:
        """The properties that states just completed violate, as tasks tell it."""
        found: dict[int, tuple[int, int]] = {}
        for root, position in self.workspace.violations():
            _note_least(found, {root.index: _state(self.workspace.new, position, self.wide)})
        self.workspace.forget_violations()
        return found

    # -- judging ------------------------------------------------------------------------------------------------------

    def _meet(
        self,
        violated: dict[int, tuple[int, int]],
        broken: dict[int, tuple[int, int, int]],
        stuck: list[tuple[int, int]],
    ) -> None:
        """Pass on the violations and witnesses of the level."""
        meet, roots = self.search.meet, self.search.stepper.roots
        for root, at in violated.items():
            if self.workspace.tables.root_kind[root] == STATE_PROPERTY:
                meet(Evidence(roots[root], at, at))
        for root, (low, high, outcome) in broken.items():
            step = self.workspace.step(outcome)
            meet(Evidence(roots[root], (low, high, step[0], *step[1]), (low, high), step))
        if stuck and self.options.deadlock:
            meet(Evidence(None, (), min(stuck)))

    def finish(self) -> None:
        """Complete the files of the table of states, and judge the temporal properties if a process is too small."""
        self._complete_columns()
        search = self.search
        if self.notes is None or not search.result.complete or not search.result.distinct or search.result.found:
            return
        self.judge = Judge(self.notes, self.files, self.cluster, search)
        self.judge.run()

    def path(self, at: tuple[int, int]) -> StatePath:
        """The way to a state: the runs have the outcome that led to each, and it leads back to the parent."""
        tables, (low, high) = self.workspace.tables, at
        outcomes: list[int] = []
        while True:
            target = (low >> 32) * len(self.runs) >> 32
            span = level.span_of(target, len(self.runs))
            ways = (level.find(self.files, run, span, low, high, self.wide) for run in self.runs[target])
            outcome = next(way for way in ways if way is not None)
            if outcome == INITIAL:
                starts = [(state.fingerprint & LOW, state.fingerprint >> 64) for state in self.workspace.starts]
                number = next(n for n, start in enumerate(starts) if (start[0], start[1] * self.wide) == (low, high))
                return self.workspace.path(number, outcomes[::-1])
            outcomes.append(outcome)
            low ^= int(tables.delta[outcome])
            high ^= int(tables.delta_high[outcome]) * self.wide

    # -- files --------------------------------------------------------------------------------------------------------

    def _files(self) -> set[str]:
        """The files that must stay: of the current level, and of the last checkpoint."""
        current = {p.file for p in self.pieces} | {run.file for runs in self.runs for run in runs}
        if self.notes is not None:
            current |= self.notes.files
        return current | (set(self.kept.files) if self.kept is not None else set())

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.files.remove(name)

    def save(self) -> None:
        """Save the last level, and remove every file that the checkpoint does not name."""
        self._save()
        if self.kept is not None:
            self._sweep(set(self.kept.files))

    def _save(self) -> None:
        """Make the current level what a resumed run goes on from, if there is to be one."""
        own, options = self.workspace, self.options
        if options.checkpoint is None and options.resume is None:
            return
        if self.saved_level == self.level or not self.runs or not self.last_is_whole:
            return
        content = msgspec.msgpack.encode(snapshot(own.tables))
        name = self._name("tables", 0)
        self.files.write(name, content)
        kept = self.search.kept()
        manifest = checkpoint.Manifest(
            **saved(self.search.stepper, self.source, self._properties, options.bits, kept),
            format=checkpoint.FORMAT,
            engine="spark",
            level=self.level,
            queue=kept.queue,
            slots=slot_entries(self.search.stepper.store),
            found=own.encode(kept.found),
            shapes=list(self.shapes),
            pieces=list(self.pieces),
            runs=[list(runs) for runs in self.runs],
            tables=name,
            tables_digest=digest(content),
            table=self.table.mark() if self.table is not None else None,
            notes=self.notes.levels[: self.level - 1] if self.notes is not None else [],
        )
        self.files.replace(checkpoint.NAME, sealed(msgspec.json.encode(manifest)))
        if self.table is not None:
            self.table.kept = manifest.table
        self.kept, self.saved_level = manifest, self.level
        # What only the checkpoint before this one needed, and what tasks that were tried again have left behind.
        self._sweep(self._files())

    def _sweep(self, kept: set[str]) -> None:
        """Remove every file of a level but these."""
        self._remove({n for n in self.files.names() if n.startswith("level-")} - kept)

    # -- figures ------------------------------------------------------------------------------------------------------

    def tally(self) -> Tally:
        """The counts of all tasks, and of the embedded executor before them, by action."""
        return self.workspace.tally()

    def progress(self) -> dict[str, Any]:
        """Fields of the progress that only this executor knows."""
        return {"exploding": exploding(self.workspace.tables), "shuffled": self.shuffled, "stage": self.stage}

    def profile(self) -> dict[str, object]:
        """Figures for the profile of the result."""
        profile = {**self.embedded.profile(), "levels on Spark": self.figures}
        if self.judge is not None:
            profile["trimmed on Spark"] = self.judge.figures
        return profile


def _state(arena: Arena, position: int, wide: bool) -> tuple[int, int]:
    """The two halves of a state's fingerprint, the second one 0 if only one is used."""
    return int(arena.fp[position]), int(arena.fp_high[position]) if wide else 0


def _add(counts: Array, more: stages.Counts) -> None:
    which, how_many = stages.dense(more)
    counts[which] += how_many


def _note_least(least: dict[int, tuple[int, int]], more: dict[int, tuple[int, int]]) -> None:
    for root, fingerprint in more.items():
        least[root] = min(least.get(root, fingerprint), fingerprint)
