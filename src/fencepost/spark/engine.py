"""The Spark engine: it begins embedded, and hands over to a cluster when a level outgrows one process.

Only the driver, here, runs the author's Python. Executors get the compiled tables and files of rows; their tasks are in
`stages`. Between levels the driver completes the states that fell off a trie, judges the evidence, and decides whether
the search goes on.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.encoding import (
    INEXACT,
    INITIAL,
    PARKED,
    STATE_PROPERTY,
    link_outcome,
    link_parent,
    reference_outcome,
)
from fencepost.checker.compiler.profile import exploding
from fencepost.checker.compiler.snapshot import restore, snapshot
from fencepost.checker.engines import conclusion
from fencepost.checker.engines.checkpoint import NAME, locked, refused, restore_slots, saved, slot_entries
from fencepost.checker.engines.embedded import Embedded
from fencepost.checker.engines.interface import Exploration, Progress, Report, TableWriter
from fencepost.checker.engines.kernel import Arena
from fencepost.checker.engines.options import SparkOptions
from fencepost.checker.engines.resources import resident_memory
from fencepost.checker.engines.search import Evidence, Executor, Level, Raised, Search, StatePath, Tally
from fencepost.checker.engines.workspace import Workspace
from fencepost.errors import OptionError, SystemFailure
from fencepost.files.digest import digest, sealed
from fencepost.files.storage import Storage, open_storage
from fencepost.language.seam import language_of
from fencepost.semantics import State, Stepper
from fencepost.semantics.state import LOW
from fencepost.spark import checkpoint, level, loops, stages
from fencepost.spark.cluster import Broadcast, Cluster
from fencepost.spark.level import FrontierFile, Plan, RowLayout, Run
from fencepost.spark.liveness import Judge
from fencepost.spark.recording import FileRecording, record_task
from fencepost.spark.session import require_spark
from fencepost.spark.stages import OneStage, fingerprint_at
from fencepost.spark.table import output_of, resumed

if TYPE_CHECKING:
    from fencepost.states.writer import Writer

HANDOVER = 1_000_000
"""The default for the largest level that is expanded in this process instead of on a cluster. Beyond it, a job pays."""
PARTITION_ROWS = 1 << 20
"""The most states in a partition of a level."""
FEWEST_ROWS = 1 << 14
"""States of a level for which another task pays."""
MOST_IMAGES = 1 << 24
"""The most fingerprints of images in a partition, which has fewer states where each has many."""
NEAR = 8
"""Spark is started in the background before a level of this fraction of the handover size."""
OWNERS_PER_CORE = 2
"""The minimum of owners of fingerprints for each core. The number of owners never decreases: a run would then belong to
several.
"""
FILES_PER_CORE = 4
"""Tasks for each core that read the files of a checkpoint."""
FULL_OWNER = 1 << 24
"""If one owner has more candidates than this in a level, the number of owners is doubled for the next level."""
FIGURES = ("candidates", "sent", "found", "parked", "shuffled", "expand", "deduplicate", "build")
"""The figures of a level: candidates, candidates shuffled, states found, states that fell off a trie, bytes shuffled,
and the seconds of the tasks of each stage.
"""
EXPANDING = ("expanding", "removing duplicates", "building")
"""The stages of a level, as its progress shows them."""
SCANNED = 64
"""A job is small only if it scans at most this number of visited states for each state of the handover size."""


def explore(
    stepper: Stepper, options: SparkOptions, report: Report | None = None, table: TableWriter | None = None
) -> Exploration:
    """Explore every reachable state, the large levels on Spark. Limits are checked between levels.

    Raises :class:`fencepost.OptionError` for options that this engine does not have, and
    :class:`fencepost.SystemFailure` if there is no Spark.
    """
    require_spark()
    with locked(options), closing(Cluster(options.master, options.conf, options.debug)) as cluster:
        _refuse(options, cluster)
        return _explored(stepper, cluster, options, report, table)


def _explored(
    stepper: Stepper, cluster: Cluster, options: SparkOptions, report: Report | None, table: TableWriter | None
) -> Exploration:
    handover = options.handover
    if handover is None:
        # On one machine, the embedded engine is faster while there is memory.
        handover = sys.maxsize if cluster.local else HANDOVER

    def report_and_start(progress: Progress) -> None:
        if progress.queue >= handover // NEAR:
            cluster.start_in_background(spark.take_over_next)
        if report is not None:
            report(progress)

    search = Search(stepper, options, report_and_start, table)
    embedded = Embedded(Workspace(search))
    embedded.keys = [] if search.symmetry is not None else None
    spark = SparkExecutor(embedded, cluster, options, handover)
    try:
        if options.resume is None:
            cluster.check_reachable(spark.take_over_next)
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
        if storage.load(NAME) is not None:
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


class SparkExecutor(Executor):
    """Expands levels on Spark. The frontier and all visited states are in files. A state is identified by the two
    halves of its fingerprint.

    This executor starts from the end of the ``embedded`` one, or from a checkpoint. It goes on using the workspace of
    the embedded one: for the tables, the counts, and to run the author's Python.
    """

    divisible = False

    def __init__(self, embedded: Embedded, cluster: Cluster, options: SparkOptions, handover: int) -> None:
        self.embedded = embedded
        self.workspace = embedded.workspace
        self.search = embedded.search
        self.options = options
        self.wide = self.workspace.wide
        self.images = self.workspace.tables.permutations
        self.run_columns = level.run_columns(self.wide, self.images > 0)
        self.cluster = cluster
        self.first_handover = handover
        self.handover = min(handover, HANDOVER)
        self.is_next = False
        self.storage: Storage | None = None
        self.level = 0
        self.layouts: list[RowLayout] = []
        self.layout_version = -1  # of the last layout
        self.frontier: list[FrontierFile] = []
        self.runs: list[list[Run]] = []
        self.source = language_of(embedded.search.stepper.protocol).digest(embedded.search.stepper.protocol)
        self.manifest: checkpoint.Manifest | None = None
        self.saved_level = -1
        self.shuffled = 0
        self.stage = ""
        self.figures: list[dict[str, float]] = []
        self.is_level_complete = True
        self.recording: FileRecording | None = None
        self.judge: Judge | None = None
        self.tables = Broadcast(cluster)
        self.table: Writer | None = None
        self.columns = Broadcast(cluster)

    def close(self) -> None:
        """Remove the files, unless they are a checkpoint."""
        if self.storage is not None and self.options.resume is None and self.options.checkpoint is None:
            shutil.rmtree(self.storage.place, True)

    # -- taking over, and resuming ------------------------------------------------------------------------------------

    def take_over_next(self) -> None:
        """Take over before the next level although Spark is not available: the search then ends with the error once all
        states are in files.
        """
        self.is_next = True
        self.handover = -1  # no level is small enough for this process

    def relief_of_embedded(self) -> SparkExecutor | None:
        """This executor, if the embedded one has to hand over: because the level is too large, or a quarter of the
        memory is in use.
        """
        limit = self.search.memory_limit
        crowded = limit is not None and resident_memory() > limit // 4
        return self if self.is_next or self.search.queue > self.first_handover or crowded else None

    def begin(self) -> None:
        """Take over from the embedded executor, or resume a checkpoint."""
        place = self.options.resume or self.options.checkpoint
        self.storage = open_storage(place or tempfile.mkdtemp(prefix="fencepost-spark-"))
        self.storage.create()
        if self.search.recording is not None:
            self.recording, self.search.recording = FileRecording(self.search.recording), None
        if self.options.resume is not None:
            self._resume()
            self._write_states()
        else:
            self._take_over()

    def _take_over(self) -> None:
        """Write the states of the embedded executor to files."""
        search = self.search
        self.table = cast("Writer | None", search.table)
        self.level = search.result.depth
        name = level.unique_name(self.level, "run", 0)
        self.runs = [[level.write_run(self.files, name, self._visited(), self.run_columns)]]
        order = self.embedded.order[: search.queue]
        for begin in range(0, len(order), PARTITION_ROWS):
            self._add_to_frontier(order[begin : begin + PARTITION_ROWS])
        self.embedded.release()
        if self.recording is not None:
            self.recording.take_over(self.files)
        self._save()

    @property
    def files(self) -> Storage:
        """The storage of the files."""
        assert self.storage is not None
        return self.storage

    def _visited(self) -> loops.Visited:
        """Every discovered state, sorted by fingerprint.

        The fingerprints follow from the links: a child's is its parent's, XORed with the delta of the outcome. With
        symmetry they do not, and the embedded executor has kept them.
        """
        tables, links, keys = self.workspace.tables, self.embedded.links, self.embedded.keys
        columns: dict[str, list[Array]] = {name: [] for name in loops.Visited._fields}
        low, high = (
            np.array(halves, np.uint64) for halves in zip(*map(self._halves, self.workspace.starts), strict=True)
        )
        for n in range(len(links)):
            log = links.level(n)
            outcome, parent = link_outcome(log), link_parent(log)
            low_before, high_before = low[parent], high[parent]
            if keys is None:
                low, high = low_before ^ tables.delta[outcome], high_before ^ tables.delta_high[outcome]
            else:
                low, high = keys[n].reshape(len(log), -1)[:, 0], keys[n].reshape(len(log), -1)[:, -1]
            found = loops.Visited(low, high, outcome.astype(np.uint32), low_before, high_before)
            for name in self.run_columns:
                columns[name].append(getattr(found, name))
        whole = {name: np.concatenate(columns[name]) for name in self.run_columns}
        order = np.lexsort((whole["high"], whole["fp"])) if self.wide else np.argsort(whole["fp"])
        ordered = {name: column[order] for name, column in whole.items()}
        return level.blank_visited(0, self.run_columns)._replace(**ordered)

    def _halves(self, state: State) -> tuple[int, int]:
        """Both halves of the fingerprint that identifies a state: with symmetry, of the key of its orbit."""
        symmetry = self.search.symmetry
        fingerprint = state.fingerprint if symmetry is None else symmetry.key(state.ids)
        return fingerprint & LOW, (fingerprint >> 64) * self.wide

    def _add_to_frontier(self, order: Array, outcomes: Array | None = None) -> None:
        """Write the states at these positions of the workspace's newest level to a frontier file. ``outcomes``: those
        that led to the states, if the states are written to a table.
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
            new.image[order] if self.images else level.NO_IMAGES,
            new.image_high[order] if self.images and self.wide else level.NO_IMAGES,
        )
        name = level.unique_name(self.level, "rows", len(self.frontier))
        self.frontier.append(level.write_frontier_file(self.files, name, arena, self._layout(), self.wide, outcomes))

    def _layout(self) -> int:
        """The number of the current layout of rows."""
        layout = self.workspace.tables.layout
        if not self.layouts or self.layout_version != layout.version:
            self.layouts.append(RowLayout(layout.words, self.workspace.tables.places.tobytes()))
            self.layout_version = layout.version
        return len(self.layouts) - 1

    def _resume(self) -> None:
        """Restore everything as it was at the end of the checkpoint's level."""
        search, workspace, place = self.search, self.workspace, self.options.checkpoint
        stepper = search.stepper
        if place is not None and str(open_storage(place).place) != self.files.place:
            raise SystemFailure(
                f"a resumed run goes on saving to {self.files.place}; leave out {{checkpoint}}", "checkpoint"
            )
        manifest = checkpoint.read(self.files)
        manifest.verify(self.files.place, search, self._properties)
        self._verify(manifest)
        writer = resumed(stepper, self.options, manifest.table, self.files.place)
        try:
            restored = restore_slots(stepper.store, manifest.slots)
            if restored != [(i, list(range(len(e.values)))) for i, e in enumerate(manifest.slots)]:
                raise ValueError("values are numbered otherwise")
        except (ValueError, KeyError, TypeError) as error:
            raise refused(self.files.place, f"does not fit this version of the protocol: {error}") from None
        restore(workspace.tables, checkpoint.tables(self.files, manifest))
        workspace.fit()
        workspace.number_initial()
        search.restore(manifest.kept(workspace.decode(manifest.found)))
        search.take(Level(manifest.queue))
        self.source = manifest.source
        self.level, self.frontier = manifest.level, list(manifest.frontier)
        self.runs = [list(runs) for runs in manifest.runs]
        self.layouts = list(manifest.layouts)
        self.manifest, self.saved_level = manifest, manifest.level
        self.search.table = self.table = writer
        if self.recording is not None:
            self.recording.levels = [list(records) for records in manifest.recording]

    def _verify(self, manifest: checkpoint.Manifest) -> None:
        """Raise :class:`fencepost.SystemFailure` unless every file of a checkpoint has its digest."""
        files = manifest.files
        missing = sorted(set(files) - set(self.files.names()))
        if missing:
            raise refused(self.files.place, f"is damaged: there is no {missing[0]}")
        small = manifest.distinct <= self.handover
        tasks = 1 if small else min(len(files), FILES_PER_CORE * self.cluster.cores)
        task = partial(stages.verify, self.files.place, list(files.items()), tasks)
        name = f"reading {len(files)} files of the checkpoint"
        reports = self._run([(OneStage(task), tasks)], ("reading the checkpoint",), name, small)
        damaged = sorted(name for report in reports for name in msgspec.msgpack.decode(report))
        if damaged:
            raise refused(self.files.place, f"is damaged: {damaged[0]} is not what was written")

    @property
    def _properties(self) -> list[str]:
        """The titles of the checked properties."""
        return self.workspace.properties + [promise.title for promise in self.search.stepper.promises]

    # -- a level ------------------------------------------------------------------------------------------------------

    def expand(self) -> bool:
        """Expand the frontier into the next level."""
        actions = self.search.expands_next
        if not actions:
            # Actions are not evaluated in the states of the last level before a limit on depth. A resumed run does that
            # level again.
            self._save()
        if self.recording is not None:
            self._record(self.recording)
        plan = self._plan(actions)
        began = time.perf_counter()
        name = f"{self._level_name}: {plan.states:,} states"
        payloads = self._run(stages.level_stages(plan), EXPANDING, name, plan.small)
        reports = [stages.report_decoder.decode(payload) for payload in payloads]
        done = time.perf_counter()
        self.is_level_complete = False  # nothing can be saved until all reports are accounted for
        if self.table is not None and self.table.edges is not None:
            self.table.take_edges(r.steps for r in reports if isinstance(r, stages.Expanded) and r.steps is not None)
        self.level += 1
        self._account(plan, reports)
        # States that could not be judged are not part of the frontier.
        self.is_level_complete = actions and not self.search.has_raised
        self.figures[-1] |= {"job": done - began, "complete": time.perf_counter() - done}
        self._write_states()
        stale = {file.file for file in plan.frontier} | {run.file for runs in plan.runs for run in runs}
        self._remove(stale - self._files())
        if actions and self.level - self.saved_level >= self.options.checkpoint_levels:
            self._save()
        return True

    def _record(self, recording: FileRecording) -> None:
        """Record the states and steps of the current level."""
        plan = self._plan(True)
        task, name = record_task(plan, recording.terms), f"{self._level_name}: steps of {plan.states:,} states"
        reports = self._run([(OneStage(task), plan.partitions)], ("recording steps",), name, plan.small)
        recording.add(self.workspace, plan, reports)

    def _plan(self, actions: bool) -> Plan:
        tables, total = self.workspace.tables, self.search.queue
        visited = sum(run.states for runs in self.runs for run in runs)
        small = total <= self.handover and visited <= SCANNED * self.handover
        cores = 1
        if not small:
            cores = self.cluster.cores_for(total)
            # Recomputed for each level, because executors may have joined since the last one.
            while len(self.runs) < OWNERS_PER_CORE * cores:
                self.runs = level.split(self.files, self.runs)
        most = min(PARTITION_ROWS, MOST_IMAGES // self.images) if self.images else PARTITION_ROWS
        partitions = cores * -(-total // (cores * most))
        partitions = max(1, min(partitions, -(-total // FEWEST_ROWS)))
        rows = -(-total // partitions)
        compiled = tables.compiled()
        return Plan(
            place=self.files.place, level=self.level, wide=self.wide,
            layouts=tuple(self.layouts[: self._layout() + 1]), frontier=tuple(self.frontier),
            partition_rows=rows, partitions=-(-total // rows), runs=tuple(tuple(runs) for runs in self.runs),
            tables=self.tables.current(small, lambda: tables.version, lambda: level.arrays_of(tables, compiled)),
            roots=len(tables.root_kind), leaves=tables.leaves, outcomes=tables.outcomes,
            most_leaves=sum(tables.most_leaves), stepwise=tables.stepwise, actions=actions, images=self.images,
            output=output_of(self.table, self.columns, small) if self.table is not None else None,
        )  # fmt: skip

    def _run(self, job_stages: stages.JobStages, doing: Sequence[str], name: str, small: bool) -> list[bytes]:
        """Run stages, each with its number of tasks, on Spark, or in this process if the job is ``small``. Returns the
        reports of the tasks.
        """
        if small:
            return stages.run_here(job_stages)
        return self.cluster.run(job_stages, doing, f"{self.search.stepper.protocol.name}, {name}", self._report_stage)

    def _write_states(self) -> None:
        """Write the level just built to the table of states, if there is one, unless the level is there already."""
        depth = self.search.result.depth
        if self.table is None or not self.search.queue or self.table.depth == depth:
            return
        begin = time.perf_counter()
        plan = self._plan(True)
        name = f"{self._level_name}: writing {plan.states:,} states"
        task = OneStage(partial(stages.write, plan))
        reports = self._run([(task, plan.partitions)], ("writing states",), name, plan.small)
        self.table.take_level(stages.part_decoder.decode(report) for report in reports)
        assert self.table.depth == depth
        if self.figures:
            self.figures[-1]["write"] = time.perf_counter() - begin

    def _complete_columns(self) -> None:
        """Rewrite files that lack columns or have columns of other types, if there are too many for this process
        alone.
        """
        if self.table is None or self.search.result.distinct <= self.handover:
            return
        self.table.begin()
        stale = self.table.stale()
        if stale:
            task = OneStage(partial(stages.rewrite, self.table.storage.place, stale, self.table.columns.kinds))
            name = f"writing {len(stale)} files again"
            for report in self._run([(task, len(stale))], ("completing columns",), name, False):
                self.table.replace(stages.part_decoder.decode(report))

    @property
    def _level_name(self) -> str:
        return f"level {self.search.result.depth}"

    def _report_stage(self, stage: str) -> None:
        """Report progress, with the current stage of the job."""
        self.stage = stage
        self.search.report_progress(self.search.result.distinct, self.search.queue, at_once=True)

    def _account(self, plan: Plan, reports: Iterable[stages.Report]) -> None:
        """Make the level just built the current one: add the counts, complete parked states, pass on violations."""
        search, workspace = self.search, self.workspace
        counted = workspace.work[0]
        figures = {"states": plan.states, **dict.fromkeys(FIGURES, 0.0)}
        self.figures.append(figures)
        built: list[stages.Built] = []
        violated: dict[int, tuple[int, int]] = {}
        broken: dict[int, tuple[int, int, int]] = {}
        deadlocks: list[tuple[int, int]] = []
        most_received = 0
        for report in reports:
            if isinstance(report, stages.Expanded):
                _add(counted.leaf_count, report.leaves)
                _add(counted.cut_count, report.cut)
                deadlocks += [report.deadlock] if report.deadlock else []
                counted.counts[INEXACT] += report.inexact
                for root, step in report.broken.items():
                    broken[root] = min(broken.get(root, step), step)
                figures["candidates"] += report.candidates
                figures["sent"] += report.sent
                figures["shuffled"] += report.shuffled
                figures["expand"] += report.seconds
            elif isinstance(report, stages.Deduplicated):
                self.runs[report.owner] = report.runs
                most_received = max(most_received, report.received)
                figures["found"] += report.found
                figures["shuffled"] += report.shuffled
                figures["deduplicate"] += report.seconds
            else:
                built.append(report)
                _add(counted.new_count, report.new)
                _keep_least(violated, report.violated)
                figures["parked"] += report.parked[1] if report.parked is not None else 0
                figures["build"] += report.seconds
        self.shuffled += int(figures["shuffled"])
        built.sort(key=lambda report: report.partition)
        self.frontier = [report.frontier for report in built if report.frontier is not None]
        failed = 0
        raised: Raised | None = None
        for report in built:
            if report.parked is not None:
                failed += self._complete(plan, *report.parked)
                _keep_least(violated, self._violated())
                error = workspace.raised_at()
                if error is not None:
                    at = fingerprint_at(workspace.new, error.at, self.wide)
                    raised = Raised(error.error, at) if raised is None or at < raised.at else raised
                    workspace.raised = None
        self._meet(violated, broken, deadlocks)
        search.take(Level(sum(file.rows for file in self.frontier), failed, raised))
        if most_received > FULL_OWNER:
            self.runs = level.split(self.files, self.runs)

    def _complete(self, plan: Plan, file: str, rows: int) -> int:
        """Complete the states that fell off a trie in one task. Returns the number of those in which the author's
        Python raised.
        """
        workspace, search = self.workspace, self.search
        ref, cells, fingerprints, images = level.read_parked(self.files, file, rows, plan)
        workspace.clear()
        cells = level.converted(cells, plan.layouts[-1], self.layouts[self._layout()])
        positions = workspace.lay_out(fingerprints[0], fingerprints[-1], cells, np.array(images) if images else None)
        workspace.complete(lambda: search.watch(search.result.distinct, search.queue))
        metas = workspace.new.meta[positions]
        inside = metas >= 0
        if inside.any():
            outcomes = reference_outcome(ref[inside]) if self.table is not None else None
            self._add_to_frontier(positions[inside], outcomes)
        np.add.at(workspace.work[0].new_count, reference_outcome(ref[inside]), 1)
        self.files.remove(file)
        return int((metas == PARKED).sum())

    def _violated(self) -> dict[int, tuple[int, int]]:
        """The properties that the states just completed violate, in the form that tasks report."""
        found: dict[int, tuple[int, int]] = {}
        for root, position in self.workspace.violations():
            _keep_least(found, {root.index: fingerprint_at(self.workspace.new, position, self.wide)})
        self.workspace.forget_violations()
        return found

    # -- judging ------------------------------------------------------------------------------------------------------

    def _meet(
        self,
        violated: dict[int, tuple[int, int]],
        broken: dict[int, tuple[int, int, int]],
        deadlocks: list[tuple[int, int]],
    ) -> None:
        """Pass the violations and witnesses of the level to the search."""
        meet, roots = self.search.meet, self.search.stepper.roots
        for root, at in violated.items():
            if self.workspace.tables.root_kind[root] == STATE_PROPERTY:
                meet(Evidence(roots[root], at, at))
        for root, (low, high, outcome) in broken.items():
            step = self.workspace.step(outcome)
            meet(Evidence(roots[root], (low, high, step[0], *step[1]), (low, high), step))
        if deadlocks and self.options.deadlock:
            meet(Evidence(None, (), min(deadlocks)))

    def finish(self) -> None:
        """Complete the files of the table of states, and judge the temporal properties on Spark if needed."""
        self._complete_columns()
        search = self.search
        if self.recording is None or not search.result.complete or not search.result.distinct or search.result.found:
            return
        self.judge = Judge(self.recording, self.files, self.cluster, search)
        self.judge.run()

    def path(self, at: tuple[int, int]) -> StatePath:
        """The path to a state. The runs have the outcome that led to each state, which determines its parent."""
        tables, (low, high) = self.workspace.tables, at
        outcomes: list[int] = []
        while True:
            owner = (low >> 32) * len(self.runs) >> 32
            owned = level.range_of(owner, len(self.runs))
            each = (level.find(self.files, run, owned, low, high, self.run_columns) for run in self.runs[owner])
            found = next(state for state in each if state is not None)
            outcome = found["outcome"]
            if outcome == INITIAL:
                starts = map(self._halves, self.workspace.starts)
                number = next(n for n, start in enumerate(starts) if start == (low, high))
                return self.workspace.path(number, outcomes[::-1])
            outcomes.append(outcome)
            if self.images:
                low, high = found["parent"], found.get("parent_high", 0)
            else:
                low ^= int(tables.delta[outcome])
                high ^= int(tables.delta_high[outcome]) * self.wide

    # -- files --------------------------------------------------------------------------------------------------------

    def _files(self) -> set[str]:
        """The files to keep: those of the current level, and of the last checkpoint."""
        current = {file.file for file in self.frontier} | {run.file for runs in self.runs for run in runs}
        if self.recording is not None:
            current |= self.recording.files
        return current | (set(self.manifest.files) if self.manifest is not None else set())

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.files.remove(name)

    def save(self) -> None:
        """Save the last level, and remove every file that the checkpoint does not name."""
        self._save()
        if self.manifest is not None:
            self._sweep(set(self.manifest.files))

    def _save(self) -> None:
        """Save the current level as a checkpoint, if checkpoints are on."""
        workspace, options = self.workspace, self.options
        if options.checkpoint is None and options.resume is None:
            return
        if self.saved_level == self.level or not self.runs or not self.is_level_complete:
            return
        content = msgspec.msgpack.encode(snapshot(workspace.tables))
        name = level.unique_name(self.level, "tables", 0)
        self.files.write(name, content)
        workspace.note_exactness()
        kept = self.search.kept()
        manifest = checkpoint.Manifest(
            **saved(self.search, self.source, self._properties, kept),
            format=checkpoint.FORMAT,
            engine="spark",
            level=self.level,
            slots=slot_entries(self.search.stepper.store),
            found=workspace.encode(kept.found),
            layouts=list(self.layouts),
            frontier=list(self.frontier),
            runs=[list(runs) for runs in self.runs],
            tables=name,
            tables_digest=digest(content),
            table=self.table.mark() if self.table is not None else None,
            recording=self.recording.levels[: self.level - 1] if self.recording is not None else [],
        )
        self.files.replace(NAME, sealed(msgspec.json.encode(manifest)))
        if self.table is not None:
            self.table.kept = manifest.table
        self.manifest, self.saved_level = manifest, self.level
        # Remove files that only the previous checkpoint needed, and files of failed attempts of tasks.
        self._sweep(self._files())

    def _sweep(self, kept: set[str]) -> None:
        """Remove every file of a level that is not in ``kept``."""
        self._remove({n for n in self.files.names() if n.startswith("level-")} - kept)

    # -- figures ------------------------------------------------------------------------------------------------------

    def tally(self) -> Tally:
        """The counts of all tasks, and of the embedded executor before them, by action."""
        return self.workspace.tally()

    def progress(self) -> dict[str, Any]:
        """Fields of the progress report that only this executor knows."""
        return {"exploding": exploding(self.workspace.tables), "shuffled": self.shuffled, "stage": self.stage}

    def profile(self) -> dict[str, object]:
        """Figures for the profile of the result."""
        profile = {**self.embedded.profile(), "levels on Spark": self.figures}
        if self.judge is not None:
            profile["trimmed on Spark"] = self.judge.figures
        return profile


def _add(counts: Array, more: stages.Counts) -> None:
    which, how_many = stages.dense(more)
    counts[which] += how_many


def _keep_least(least: dict[int, tuple[int, int]], more: dict[int, tuple[int, int]]) -> None:
    for root, fingerprint in more.items():
        least[root] = min(least.get(root, fingerprint), fingerprint)
