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
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from fencepost import __version__
from fencepost.compiler.native import REF_BITS, REF_MASK
from fencepost.compiler.tables import INITIAL, STATE_PROPERTY, Array
from fencepost.digest import digest, sealed
from fencepost.engines import kernel
from fencepost.engines.checkpoint import encoded_constants, restore_slots, slot_entries
from fencepost.engines.embedded import Explorer, uncollected
from fencepost.engines.interface import Exploration, Options, Progress, Report
from fencepost.engines.kernel import Arena
from fencepost.engines.witnesses import sought
from fencepost.errors import OptionError, ProtocolRaised, SystemFailure
from fencepost.source import source_digest
from fencepost.spark import checkpoint, level, loops, stages
from fencepost.spark.cluster import Cluster, Held
from fencepost.spark.level import Piece, Plan, Run, Shape
from fencepost.spark.liveness import Judge
from fencepost.spark.notes import Notes, Noting
from fencepost.spark.session import require_spark
from fencepost.spark.table import Sheets, resumed
from fencepost.spec.declarations import TEMPORAL
from fencepost.step import LimitReached, Stepper
from fencepost.step.state import LOW
from fencepost.storage import Storage, open_storage

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


def explore(stepper: Stepper, options: Options, report: Report | None = None) -> Exploration:
    """Explore every reachable state, the large levels on Spark. Limits are looked at between levels.

    Raises :class:`fencepost.OptionError` for what this engine can not do, :class:`fencepost.SystemFailure` if there is
    no Spark.
    """
    require_spark()
    cluster = Cluster(options.master, options.conf, options.debug)
    try:
        _refuse(options, cluster)
        handover = options.handover
        if handover is None:
            # On one machine the embedded engine is the faster one, as long as there is memory.
            handover = sys.maxsize if cluster.local else HANDOVER
        return _explored(stepper, cluster, handover, options, report)
    finally:
        cluster.close()


def _explored(
    stepper: Stepper, cluster: Cluster, handover: int, options: Options, report: Report | None
) -> Exploration:
    def hand_over() -> None:
        """End the embedded engine's part with its level: Spark can not be had, and says why when all that was found is
        in files.
        """
        explorer.handover = -1

    def told(progress: Progress) -> None:
        if progress.queue >= handover // NEAR:
            cluster.begin(hand_over)
        if report is not None:
            report(progress)

    fresh = replace(
        options, checkpoint=None, resume=None, states=None if options.resume is not None else options.states
    )
    explorer = Explorer(stepper, fresh, told, handover)
    explorer.source = source_digest(stepper.protocol)
    try:
        if options.resume is None:
            cluster.look(hand_over)
            with uncollected():
                result = explorer.run()
            if not explorer.handed_over:
                result.engine, result.on_spark = "embedded", False
                return result
        result = Search(explorer, cluster, options, report).run()
        result.on_spark = cluster.used
        return result
    finally:
        explorer.close()


def _refuse(options: Options, cluster: Cluster) -> None:
    if options.symmetry:
        raise OptionError("the spark engine explores every state: leave out --symmetry, or use --engine embedded")
    if options.checking:
        raise OptionError("--checking is for small configurations: use --engine embedded")
    if options.checkpoint is not None and options.resume is None:
        storage = open_storage(options.checkpoint)
        storage.create()
        if storage.load(checkpoint.NAME) is not None:
            raise SystemFailure(
                f"{options.checkpoint} holds a checkpoint already: go on from it with --resume {options.checkpoint}, or"
                " name an empty one"
            )
    if options.checkpoint is None and options.resume is None and not cluster.local:
        raise OptionError(
            f"--master {cluster.master} needs --checkpoint DIR: a folder or URL that the driver and every executor can"
            " reach, for the states of the search"
        )


class Search:
    """A search on Spark. Its states are in files: the level to be expanded in pieces, everything visited in runs.

    The embedded explorer that it went out from stays what knows the tables, the limits, the counts and the result.
    """

    def __init__(self, explorer: Explorer, cluster: Cluster, options: Options, report: Report | None) -> None:
        self.explorer = explorer
        explorer.sought = sought(explorer.stepper, options, explorer.names)  # it was made with fewer options
        self.cluster = cluster
        self.options = options
        self.report = report
        self.result = explorer.result
        self.wide = explorer.wide
        self.handover = min(explorer.handover or 0, HANDOVER)
        self.level = 0
        self.shapes: list[Shape] = []
        self.version = -1  # of the layout that the last of them is
        self.pieces: list[Piece] = []
        self.runs: list[list[Run]] = []
        self.kept: checkpoint.Manifest | None = None
        self.saved_level = -1
        self.shuffled = 0
        self.figures: list[dict[str, float]] = []
        self.last_is_whole = True
        self.notes = Notes(explorer.recording) if explorer.recording is not None else None
        self.judge: Judge | None = None
        self._tables: tuple[tuple[int, ...], Any, str] | None = None
        self.table = self.result.table
        self.sheets = Sheets(self.table) if self.table is not None else None

    def run(self) -> Exploration:
        """Explore, and tell what was found."""
        result, explorer = self.result, self.explorer
        with ExitStack() as stack:
            try:
                self.storage, temporary = self._storage()
                if temporary:
                    stack.callback(shutil.rmtree, self.storage.place, True)
                if self.options.resume is not None:
                    self._resume()
                    self._write_states()
                if self.options.resume is None:
                    self._take_over()
                # A level is completed, unless an evaluation never returns: limits are looked at between levels.
                with explorer.stepper.deadline.limits(explorer.limit_reached, refuse=False):
                    while explorer.level_size and not explorer.finished():
                        self._next_level()
                self._complete_columns()
                result.complete = not explorer.level_size and result.limit is None and result.raised is None
                self._judge_liveness()
            except ProtocolRaised as error:
                result.raised = error
            except LimitReached:
                result.limit = explorer.stepper.deadline.reached
            except KeyboardInterrupt:
                result.interrupted = True
            except SystemFailure as error:
                result.failure = error
            try:
                self._save()
                if self.kept is not None:
                    self._sweep(set(self.kept.files))
            except SystemFailure as error:
                result.failure = result.failure or error
        result.queue = explorer.level_size
        explorer.conclude()
        result.profile["levels on Spark"] = self.figures
        if self.judge is not None:
            result.profile["trimmed on Spark"] = self.judge.figures
        return result

    def _storage(self) -> tuple[Storage, bool]:
        """Where the files go, and whether they are for this search only."""
        place = self.options.resume or self.options.checkpoint
        if place is None:
            return open_storage(tempfile.mkdtemp(prefix="fencepost-spark-")), True
        storage = open_storage(place)
        storage.create()
        return storage, False

    # -- taking over, and going on ------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Put into files what the embedded explorer has found."""
        explorer = self.explorer
        self.level = self.result.depth
        self.runs = [[level.write_run(self.storage, self._name("run", 0), *self._visited(), self.wide)]]
        order = explorer.order[: explorer.level_size]
        for begin in range(0, len(order), HOME_ROWS):
            self.pieces.append(self._piece(order[begin : begin + HOME_ROWS]))
        explorer.forget_visited()
        self.result.recording = None
        if self.notes is not None:
            self.notes.take_over(self.storage)
        self._save()

    def _visited(self) -> tuple[Array, Array, Array]:
        """Every state that was discovered, by fingerprint: its low half, its high half if it has one, the outcome that
        led to it.

        They follow from the links: a child's fingerprint is its parent's, changed by the outcome.
        """
        explorer, tables = self.explorer, self.explorer.tables
        starts = [state.fingerprint for state in explorer.starts]
        lows, highs = [np.array([s & LOW for s in starts], np.uint64)], [np.array([s >> 64 for s in starts], np.uint64)]
        outcomes: list[Array] = []
        for n in range(len(explorer.links)):
            log = explorer.links.level(n)
            outcome, parent = log & REF_MASK, log >> REF_BITS
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
        """Write states of the explorer's newest level, at these positions, as a piece; with the outcomes that led to
        them, if they are to be written down.
        """
        new = self.explorer.new
        leaves = np.empty(int(loops.gather_leaves(new, order, order, order, True)), np.int32)
        metas = np.empty(len(order), np.int64)
        loops.gather_leaves(new, order, metas, leaves, False)
        arena = Arena(
            new.cells[order], new.fp[order], new.fp_high[order], order, metas, leaves, level.NO_IMAGES, level.NO_IMAGES
        )
        name = self._name("rows", len(self.pieces))
        return level.write_piece(self.storage, name, arena, len(order), len(leaves), self._shape(), self.wide, outcomes)

    def _shape(self) -> int:
        """The number of the layout of rows as it is now."""
        layout = self.explorer.tables.layout
        if not self.shapes or self.version != layout.version:
            self.shapes.append(Shape(layout.words, self.explorer.tables.places.tobytes()))
            self.version = layout.version
        return len(self.shapes) - 1

    def _name(self, what: str, number: int) -> str:
        return f"level-{self.level}-{what}-{number}-{uuid.uuid4().hex[:12]}.bin"

    def _resume(self) -> None:
        """Everything as it was at the end of the level that the checkpoint holds."""
        explorer, result, place = self.explorer, self.result, self.options.checkpoint
        if place is not None and str(open_storage(place).place) != self.storage.place:
            raise SystemFailure(f"a resumed run goes on saving to {self.storage.place}; leave out --checkpoint")
        kept = checkpoint.read(self.storage)
        difference = kept.difference(explorer.stepper.protocol, self._properties, self.options.bits)
        if difference is not None:
            raise checkpoint.refused(self.storage, difference)
        self._verify(kept)
        writer = resumed(explorer.stepper, self.options, kept.table, self.storage.place)
        try:
            restored = restore_slots(explorer.stepper.store, kept.slots)
            if restored != [(i, list(range(len(e.values)))) for i, e in enumerate(kept.slots)]:
                raise ValueError("values are numbered otherwise")
        except (ValueError, KeyError, TypeError) as error:
            raise checkpoint.refused(self.storage, f"does not fit this version of the protocol: {error}") from None
        explorer.tables.restore(checkpoint.tables(self.storage, kept))
        explorer.fit()
        explorer.recall_starts()
        result.distinct, result.generated, result.depth = kept.distinct, kept.generated, kept.depth
        explorer.earlier = Exploration(generated=kept.generated, seconds=kept.seconds)
        explorer.earlier.taken, explorer.earlier.new = dict(enumerate(kept.taken)), dict(enumerate(kept.new))
        for kind, name, start, path in kept.found:
            result.add(explorer.violation(kind, name, (start, path)))
        explorer.reported = set(kept.reported)
        explorer.level_size = kept.queue
        self.level, self.pieces, self.runs = kept.level, list(kept.pieces), [list(runs) for runs in kept.runs]
        self.shapes = list(kept.shapes)
        self.kept, self.saved_level = kept, kept.level
        self.result.table = self.table = writer
        self.sheets = Sheets(writer) if writer is not None else None
        if self.notes is not None:
            self.notes.levels = [list(notes) for notes in kept.notes]

    def _verify(self, kept: checkpoint.Manifest) -> None:
        """Raises :class:`fencepost.SystemFailure` unless every file of a checkpoint is what was written."""
        missing = sorted(set(kept.files) - set(self.storage.names()))
        if missing:
            raise checkpoint.refused(self.storage, f"is damaged: there is no {missing[0]}")
        small = kept.distinct <= self.handover
        tasks = 1 if small else min(len(kept.files), FILES_PER_CORE * self.cluster.cores)
        stage = stages.Verify(self.storage.place, kept.files, tasks)
        told = self._each(
            stage, tasks, small, "reading the checkpoint", f"reading {len(kept.files)} files of the checkpoint"
        )
        damaged = sorted(name for one in told for name in msgspec.msgpack.decode(one))
        if damaged:
            raise checkpoint.refused(self.storage, f"is damaged: {damaged[0]} is not what was written")

    @property
    def _properties(self) -> list[str]:
        """The properties that are checked, by title."""
        return self.explorer.properties + [root.title for root in self.explorer.stepper.of_kind(*TEMPORAL)]

    # -- a level ------------------------------------------------------------------------------------------------------

    def _next_level(self) -> None:
        """Expand the current level into the next."""
        options, result = self.options, self.result
        actions = options.max_depth is None or result.depth + 1 < options.max_depth
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
        self.last_is_whole = actions and result.raised is None
        self.figures[-1] |= {"job": done - began, "complete": time.perf_counter() - done}
        self._write_states()
        stale = {piece.file for piece in before} | {run.file for runs in plan.runs for run in runs}
        self._remove(stale - self._files())
        if actions and self.level - self.saved_level >= options.checkpoint_levels:
            self._save()

    def _note(self, notes: Notes) -> None:
        """Write down the steps out of the current level."""
        plan = self._plan(True)
        steps: list[tuple[stages.Stage, int]] = [(Noting(plan, notes.terms), plan.homes)]
        if isinstance(plan.tables, Held):
            told = stages.chained(steps)
        else:
            name = f"{self.explorer.stepper.protocol.name}, level {self.result.depth}: steps of {plan.total:,} states"
            told = self.cluster.chain(steps, ("noting down steps",), name, self._tell)
        notes.add(self.explorer, plan, told, self._path)

    def _plan(self, actions: bool) -> Plan:
        explorer, tables = self.explorer, self.explorer.tables
        total = explorer.level_size
        visited = sum(run.states for runs in self.runs for run in runs)
        small = total <= self.handover and visited <= SCANNED * self.handover
        cores = 1
        if not small:
            cores = self.cluster.cores_for(total)
            # Anew for each level: executors may have come since the last one.
            while len(self.runs) < TARGETS_PER_CORE * cores:
                self.runs = level.divided(self.storage, self.runs)
        homes = cores * -(-total // (cores * HOME_ROWS))
        homes = max(1, min(homes, -(-total // FEWEST_ROWS)))
        rows = -(-total // homes)
        shared, name = self._shared(small)
        return Plan(
            place=self.storage.place, level=self.level, wide=self.wide, shapes=tuple(self.shapes[: self._shape() + 1]),
            pieces=tuple(self.pieces), rows=rows, homes=-(-total // rows),
            runs=tuple(tuple(runs) for runs in self.runs),
            tables=shared, tables_id=name, roots=len(tables.root_kind), leaves=tables.leaves, outcomes=tables.outcomes,
            most_leaves=sum(tables.most_leaves), stepwise=tables.stepwise, actions=actions, version=__version__,
            sheet=self.sheets.next(small, self.cluster) if self.sheets is not None else None,
        )  # fmt: skip

    def _shared(self, small: bool) -> tuple[Any, str]:
        """The compiled tables, and a name for them: for executors, sent anew only when they have grown."""
        tables = self.explorer.tables
        compiled = tables.compiled()
        version = (int(small), *tables.version)
        if self._tables is None or self._tables[0] != version:
            if self._tables is not None:
                self.cluster.discard(self._tables[1])
            arrays = level.shared(tables, compiled)
            self._tables = (version, Held(arrays) if small else self.cluster.share(arrays), uuid.uuid4().hex)
        return self._tables[1:]

    def _run(self, plan: Plan) -> list[stages.Told]:
        """The level, on Spark or in this process: what its tasks tell."""
        if isinstance(plan.tables, Held):
            told = stages.here(plan)
        else:
            name = f"{self.explorer.stepper.protocol.name}, level {self.result.depth}: {plan.total:,} states"
            told = self.cluster.run(plan, name, self._tell)
        return [stages.reports.decode(one) for one in told]

    def _take_steps(self, told: Iterable[stages.Told]) -> None:
        """Make the steps out of the level that was expanded part of the table, if they were written down."""
        if self.table is not None and self.table.edges is not None:
            self.table.take_edges(
                one.steps for one in told if isinstance(one, stages.Expanded) and one.steps is not None
            )

    def _write_states(self) -> None:
        """Write down the level that was built, if states are written to a table and it is not there yet."""
        if self.table is None or not self.explorer.level_size or self.table.depth == self.result.depth:
            return
        begin = time.perf_counter()
        plan = self._plan(True)
        small = isinstance(plan.tables, Held)
        told = self._each(
            stages.Write(plan),
            plan.homes,
            small,
            "writing states",
            f"level {self.result.depth}: writing {plan.total:,} states",
        )
        self.table.take_level(stages.written.decode(one) for one in told)
        assert self.table.depth == self.result.depth
        if self.figures:
            self.figures[-1]["write"] = time.perf_counter() - begin

    def _complete_columns(self) -> None:
        """Write files again that lack columns, or have them of other kinds, if they are too many to leave them to this
        process alone.
        """
        if self.table is None or self.result.distinct <= self.handover:
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
        return self.cluster.each(task, count, doing, f"{self.explorer.stepper.protocol.name}, {name}", self._tell)

    def _tell(self, stage: str) -> None:
        """Report how far the search is."""
        if self.report is None:
            return
        explorer, result = self.explorer, self.result
        explorer.count()
        self.report(
            Progress(
                generated=result.generated,
                distinct=result.distinct,
                depth=result.depth,
                queue=explorer.level_size,
                seconds=time.monotonic() - explorer.started,
                evaluations=explorer.stepper.evaluations,
                exploding=explorer.tables.exploding(),
                shuffled=self.shuffled,
                stage=stage,
            )
        )

    def _account(self, plan: Plan, told: Iterable[stages.Told]) -> None:
        """Make the level that was built the current one: count, complete, judge."""
        explorer, result = self.explorer, self.result
        counted = explorer.work[0]
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
        raised: tuple[int, int, ProtocolRaised] | None = None
        for one in built:
            if one.parked is not None:
                failed += self._complete(plan, *one.parked)
                _note_least(violated, self._violated())
                if explorer.raised is not None:
                    low, position, error = explorer.raised
                    this = (low, int(explorer.new.fp_high[position]) if self.wide else 0, error)
                    raised = this if raised is None or this[:2] < raised[:2] else raised
                    explorer.raised = None
        explorer.level_size = sum(piece.rows for piece in self.pieces)
        result.distinct += explorer.level_size + failed
        result.depth += explorer.level_size > 0
        self._judge(violated, broken, stuck)
        if raised is not None and not (result.found and not self.options.keep_going):
            result.raised = raised[2]
            result.raised_at = explorer.violation("raised", raised[2].where, self._path(raised[0], raised[1]))
        if fullest > FULL_TARGET:
            self.runs = level.divided(self.storage, self.runs)

    def _complete(self, plan: Plan, file: str, rows: int) -> int:
        """Complete the states that fell off a trie in one task; in how many of them the author's Python raised."""
        explorer = self.explorer
        low, high, ref, cells = level.read_parked(self.storage, file, rows, plan)
        positions = explorer.complete(low, high, level.brought_up(cells, plan.shapes[-1], self.shapes[self._shape()]))
        metas = explorer.new.meta[positions]
        inside = metas >= 0
        if inside.any():
            outcomes = ref[inside] & REF_MASK if self.table is not None else None
            self.pieces.append(self._piece(positions[inside], outcomes))
        np.add.at(explorer.work[0].new_count, ref[inside] & REF_MASK, 1)
        self.storage.remove(file)
        return int((metas == kernel.PARKED).sum())

    def _violated(self) -> dict[int, tuple[int, int]]:
        """What the states just completed violate, as tasks tell it."""
        found: dict[int, tuple[int, int]] = {}
        for work in self.explorer.work:
            roots = np.flatnonzero(work.best_position >= 0).tolist()
            _note_least(found, {root: (int(work.best_fp[root]), int(work.best_high[root])) for root in roots})
        self.explorer.forget_violations()
        return found

    # -- judging ------------------------------------------------------------------------------------------------------

    def _judge(
        self,
        violated: dict[int, tuple[int, int]],
        broken: dict[int, tuple[int, int, int]],
        stuck: list[tuple[int, int]],
    ) -> None:
        """The violations and witnesses of the level, one of each name, in the order of properties."""
        explorer, tables = self.explorer, self.explorer.tables
        found: dict[str, tuple[tuple[int, ...], tuple[str, str], tuple[int, ...]]] = {}
        for root in explorer.stepper.roots:
            name = explorer.names[root.index]
            if name in explorer.reported:
                continue
            if tables.root_kind[root.index] == STATE_PROPERTY and root.index in violated:
                rank: tuple[int, ...] = violated[root.index]
                where: tuple[int, ...] = rank
            elif root.index in broken:
                low, high, outcome = where = broken[root.index]
                rank = (low, high, int(tables.outcome_root[outcome]), *tables.outcome_choices[outcome])
            else:
                continue
            if name not in found or rank < found[name][0]:
                found[name] = (rank, (root.kind, root.reported), where)
        if stuck and self.options.deadlock and "deadlock" not in explorer.reported:
            found["deadlock"] = ((), ("deadlock", "deadlock"), min(stuck))
        for name, (_, (kind, title), (low, high, *last)) in found.items():
            start, outcomes = self._path(low, high)
            self.result.add(explorer.violation(kind, title, (start, [*outcomes, *last])))
            explorer.reported.add(name)

    def _judge_liveness(self) -> None:
        """Judge the temporal properties, if that is to be done."""
        explorer, result = self.explorer, self.result
        if self.notes is None or not result.complete or not result.distinct or result.found:
            return

        def tell(doing: str) -> None:
            if self.report is not None:
                seconds = time.monotonic() - explorer.started
                self.report(Progress(distinct=result.distinct, depth=result.depth, seconds=seconds, doing=doing))

        self.judge = Judge(self.notes, self.storage, self.cluster, explorer.stepper, self.options, tell)
        self.judge.run(result, time.monotonic() - explorer.started)

    def _path(self, low: int, high: int) -> tuple[int, list[int]]:
        """The number of an initial state and the outcomes from it to a state."""
        tables = self.explorer.tables
        outcomes: list[int] = []
        while True:
            target = (low >> 32) * len(self.runs) >> 32
            span = level.span_of(target, len(self.runs))
            ways = (level.find(self.storage, run, span, low, high, self.wide) for run in self.runs[target])
            outcome = next(way for way in ways if way is not None)
            if outcome == INITIAL:
                starts = [state.fingerprint for state in self.explorer.starts]
                return (
                    next(n for n, s in enumerate(starts) if (s & LOW, (s >> 64) * self.wide) == (low, high)),
                    outcomes[::-1],
                )
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
            self.storage.remove(name)

    def _save(self) -> None:
        """Make the current level what a resumed run goes on from, if there is to be one."""
        explorer, result, options = self.explorer, self.result, self.options
        if options.checkpoint is None and options.resume is None:
            return
        if self.saved_level == self.level or not self.runs or not self.last_is_whole:
            return
        explorer.count()
        tables, protocol, roots = explorer.tables, explorer.stepper.protocol, range(len(explorer.stepper.roots))
        content = msgspec.msgpack.encode(tables.snapshot())
        name = self._name("tables", 0)
        self.storage.write(name, content)
        numbers = {id(state): n for n, state in enumerate(explorer.starts)}
        met = [*result.found, *result.witnesses]
        by_step = (
            {(int(tables.outcome_root[o]), tables.outcome_choices[o]): o for o in range(1, tables.outcomes)}
            if met
            else {}
        )
        found = [
            (f.kind, f.name, numbers[id(f.initial)], [by_step[root, tuple(choices)] for root, choices in f.path])
            for f in met
        ]
        manifest = checkpoint.Manifest(
            format=checkpoint.FORMAT, protocol=protocol.name, constants=encoded_constants(protocol),
            source=explorer.source,
            properties=self._properties, bits=options.bits, engine="spark", depth=result.depth,
            distinct=result.distinct,
            generated=result.generated, taken=[result.taken.get(i, 0) for i in roots],
            new=[result.new.get(i, 0) for i in roots],
            seconds=explorer.earlier.seconds + time.monotonic() - explorer.started, level=self.level,
            queue=explorer.level_size,
            shapes=list(self.shapes), pieces=list(self.pieces), runs=[list(runs) for runs in self.runs], tables=name,
            tables_digest=digest(content),
            slots=slot_entries(explorer.stepper.store), found=found, reported=sorted(explorer.reported),
            table=self.table.mark() if self.table is not None else None,
            notes=self.notes.levels[: self.level - 1] if self.notes is not None else [],
        )  # fmt: skip
        self.storage.replace(checkpoint.NAME, sealed(msgspec.json.encode(manifest)))
        if self.table is not None:
            self.table.kept = manifest.table
        self.kept, self.saved_level = manifest, self.level
        # What only the checkpoint before this one needed, and what tasks that were tried again have left behind.
        self._sweep(self._files())

    def _sweep(self, kept: set[str]) -> None:
        """Remove every file of a level but these."""
        self._remove({n for n in self.storage.names() if n.startswith("level-")} - kept)


def _add(counts: Array, more: stages.Counts) -> None:
    which, how_many = stages.dense(more)
    counts[which] += how_many


def _note_least(least: dict[int, tuple[int, int]], more: dict[int, tuple[int, int]]) -> None:
    for root, fingerprint in more.items():
        least[root] = min(least.get(root, fingerprint), fingerprint)
