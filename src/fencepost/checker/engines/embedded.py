"""The embedded engine: the compiled protocol, on all cores of one machine.

The executor here decides what to do between levels. The loops that run once per state are in `kernel`. What they cannot
do is in `workspace`, which runs the author's Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from fencepost.checker.compiler import encoding
from fencepost.checker.compiler.arrays import Array, Compiled, Growing
from fencepost.checker.compiler.layout import unpacked
from fencepost.checker.compiler.memory import reserve
from fencepost.checker.compiler.profile import exploding
from fencepost.checker.compiler.tables import Question
from fencepost.checker.engines import conclusion, kernel
from fencepost.checker.engines.announcing import announced, compiling
from fencepost.checker.engines.audit import audit
from fencepost.checker.engines.checkpoint import (
    BLOCK_ROWS,
    FORMAT,
    CheckpointReader,
    Manifest,
    Writer,
    locked,
    saved,
    slot_entries,
)
from fencepost.checker.engines.interface import Exploration, Report, TableWriter
from fencepost.checker.engines.kernel import LINE, TURNS, Arena, Shared
from fencepost.checker.engines.links import Links
from fencepost.checker.engines.options import EmbeddedOptions
from fencepost.checker.engines.recording import record_level, steps_of
from fencepost.checker.engines.resources import uncollected
from fencepost.checker.engines.search import SAMPLE, Evidence, Executor, Level, Search, StatePath, Tally
from fencepost.checker.engines.workspace import ROOM, Workspace, awaited
from fencepost.checker.liveness.graph import Recording
from fencepost.errors import SystemFailure
from fencepost.language.seam import language_of
from fencepost.semantics import Stepper


def explore(
    stepper: Stepper, options: EmbeddedOptions, report: Report | None = None, table: TableWriter | None = None
) -> Exploration:
    """Explore every reachable state. Limits, violations and errors of the protocol end it early, and are in the result.

    Raises :class:`fencepost.SystemFailure` if the protocol outgrows the engine's tables or the machine.
    """
    with announced(report) as timed, locked(options):
        found = Search(stepper, options, report, table)
        with closing(
            Embedded(Workspace(found), options.checkpoint, options.resume, options.checkpoint_every)
        ) as executor:
            found.run(executor)
        del executor
        return timed(conclusion.conclude(found))


class Embedded(Executor):
    """Expands levels in this process. A state is identified by its position in the arena of its level.

    ``relief`` may be replaced by a function that returns another executor to take over.
    """

    def __init__(
        self,
        workspace: Workspace,
        checkpoint: Path | str | None = None,
        resume: Path | str | None = None,
        checkpoint_every: float = 0.0,
    ) -> None:
        self.workspace = workspace
        self.search = workspace.search
        self.relief: Callable[[], Executor | None] = lambda: None
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.links = Links()
        w = workspace.workers
        self.keys: list[Array] | None = None
        """With symmetry, the keys of the states of each level, if another executor will need them."""
        self.shared = Shared(
            np.zeros(w * LINE, np.int64), np.zeros(LINE, np.int64),
            *(np.zeros((TURNS, *each, LINE), np.int64) for each in ((), (w,), (w, w))),
            *(reserve(TURNS * w * w * ROOM, t).reshape(TURNS, w, w, ROOM) for t in (np.uint64, np.uint64, np.int64)),
        )  # fmt: skip
        self.order = reserve(workspace.region * w, np.int64)
        """The positions of the frontier, sorted by fingerprint."""
        self.order_fp = reserve(workspace.region * w, np.uint64)
        """Their fingerprints; low halves."""
        self.log = reserve(workspace.region * w, np.int64)
        self.bases = [0] * w
        """The number of each worker's first frontier state in its level."""
        # After a resume, the states of the first level keep their old numbers, which do not follow the layout.
        self.old_numbers = self.new_numbers = np.zeros(0, np.int64)
        self.is_expanding = False
        self.is_linked = False
        """Whether the links of the level being built are written, and its states are counted by outcome."""
        self.expanded = 0
        self.renewed = self.known = 0
        """:attr:`Tables.renewed` when the new level was begun, and when all steps out of the frontier were known.
        """
        self.reader = CheckpointReader(Path(resume)) if resume else None
        self.writer: Writer | None = None
        self.source = ""
        self.manifest: Manifest | None = None
        self.saved_depth = 0
        self.saved_at = time.monotonic()
        self.save_seconds = 0.0

    def close(self) -> None:
        """Stop the workers."""
        self.shared.stop[0] = 1
        if self.writer is not None:
            self.writer.close()
        self.workspace.close()
        self.links.close()

    # -- levels -------------------------------------------------------------------------------------------------------

    @uncollected()
    def begin(self) -> None:
        """Build the first level: the initial states, or the level of a checkpoint."""
        if self.reader is not None:
            self._resume(self.reader)
            return
        if self.checkpoint is not None:
            self.source = language_of(self.search.stepper.protocol).digest(self.search.stepper.protocol)
            self.writer = Writer(Path(self.checkpoint), None)
        self.is_expanding = True
        self.workspace.place_initial()
        self._complete()
        self._end_level()

    @uncollected()
    def expand(self) -> bool:
        """Expand the frontier into the next level."""
        workspace, search = self.workspace, self.search
        workspace.turn_over()
        self.old_numbers, self.new_numbers = self.new_numbers, np.zeros(0, np.int64)
        self.is_expanding, self.is_linked, self.expanded = True, False, 0
        if not self._expand_all():
            return False
        if search.recording is not None:
            search.note_level(workspace.discovered())
            self._record(search.recording)
        self._write_steps()
        self._complete()
        self._end_level()
        since, every = time.monotonic() - self.saved_at, self.checkpoint_every
        if not every or since >= max(every, 10 * self.save_seconds):
            self.save()
        return True

    def _expand_all(self) -> bool:
        """Expand the frontier, pausing to complete parked states. Returns whether it was finished."""
        workspace, total = self.workspace, self.search.queue
        self.known, self.renewed = self.renewed, workspace.tables.renewed
        at = 0
        while at < total:
            self._know_steps()
            bound = sum(workspace.tables.most_outcomes)
            block = max(1, min(kernel.BLOCK, ROOM // max(bound, 1)))
            # Most new paths of a level are met in its first round. Once those are known, few states are parked.
            end = total if at else min(total, block * workspace.workers)
            begin = time.monotonic()
            done = self._run_workers(self.order[:end], at, block)
            workspace.seconds["expand"] += time.monotonic() - begin
            self.expanded = at = min(end, at + done * block * workspace.workers)
            self._complete()
            if at < total and self.shared.stop[0]:
                return False
        self._know_steps()
        return True

    def _know_steps(self) -> None:
        """Have the tries of step properties know the steps out of the frontier, if some began anew since."""
        tables = self.workspace.tables
        if self.known != tables.renewed:
            self.workspace.know_steps(self.order[: self.search.queue])
            self.known = tables.renewed

    def _run_workers(self, order: Array, first: int, block: int) -> int:
        """Run the kernel on every core, starting at index ``first`` of the level, until it returns. Watches limits
        meanwhile. Returns the number of rounds done.
        """
        workspace = self.workspace
        self.shared.ready[:] = 0
        self.shared.stop[:] = 0
        levels, steps = workspace.levels((order, self.order_fp)), workspace.tables.stepwise or None
        futures: list[Future[int]] = [
            workspace.pool.submit(
                kernel.expand,
                t,
                workspace.compiled,
                levels,
                workspace.work[t],
                workspace.labels[t],
                steps,
                self.shared,
                first,
                block,
            )
            for t in range(workspace.workers)
        ]
        return int(awaited(futures, self.shared.stop, self._watch)[0])

    def _complete(self) -> None:
        self.workspace.complete(self._between_answers)

    def _between_answers(self) -> None:
        self._watch()
        if self.reader is None and not self.saved_depth:
            found = self.search.result.distinct + self.workspace.discovered()
            self.workspace.tables.weigh_beginning_again(found)

    def _watch(self) -> None:
        """Check the limits in the middle of a level, and report progress."""
        search, discovered = self.search, self.workspace.discovered()
        expanded = min(search.queue, self.expanded + int(self.shared.stop[1]))
        if search.watch(search.result.distinct + discovered, search.queue + discovered - expanded):
            self.shared.stop[0] = 1

    def _end_level(self) -> None:
        """All states of the level are built: sort it, and log how each of its states was discovered."""
        workspace, search = self.workspace, self.search
        begin = time.monotonic()
        counts = workspace.counts()
        starts = np.concatenate([[0], np.cumsum(counts)])
        log = self.log[: int(starts[-1])]
        for future in [
            workspace.pool.submit(self._link, t, counts[t], log[starts[t] : starts[t + 1]])
            for t in range(workspace.workers)
        ]:
            future.result()
        self.is_linked = True
        # The paths to what was met lead through the previous level, which is still sorted.
        self._meet_all()
        search.judge()
        if any(workspace.failed):
            self.save()  # the previous level: a level with states that could not be judged is not saved
        self.links.add(log)
        # Only now: if the disk has no room for links, the previous level can still be saved. After this it cannot.
        self.manifest = None
        is_first = not search.result.depth
        frontier = self._put_in_order()
        self.bases = [int(s) for s in starts[:-1]]
        self.is_expanding = False
        if self.writer is not None:
            self.writer.add_level([self._fingerprints_of(t, counts[t]) for t in range(workspace.workers)], log)
        if self.keys is not None:
            self.keys.append(np.concatenate([self._fingerprints_of(t, counts[t]) for t in range(workspace.workers)]))
        self._pass_on(frontier)
        if (
            frontier or not is_first
        ) and not search.has_raised:  # states that could not be judged are no part of the frontier
            self._remember()
        workspace.seconds["order"] += time.monotonic() - begin
        self._write_states()

    def _pass_on(self, frontier: int) -> None:
        """Pass the level just built to the search. ``frontier``: how many of its states are to be expanded."""
        workspace, search = self.workspace, self.search
        has_leaves = search.expands_next
        search.take(Level(frontier, failed=sum(workspace.failed), raised=workspace.raised_at()))
        for place in range(0, search.queue, max(1, search.queue // SAMPLE)):
            position = int(self.order[place])
            if search.options.checking and has_leaves:
                audit(workspace.tables, workspace.new, position)
            elif search.symmetry is not None and search.stepper.refinements:
                search.symmetry.verify_mappings(workspace.tables.ids(workspace.new.cells[position]))

    def _link(self, t: int, count: int, part: Array) -> None:
        """Log the number of the parent, and the outcome that led to it, for each of a worker's states."""
        workspace, base = self.workspace, t * self.workspace.region
        if self.search.result.depth:
            bases = np.array(self.bases, np.int64)
            kernel.write_links(workspace.levels(), workspace.work[t], bases, self.old_numbers, part)
        else:
            part[:] = workspace.new.ref[base : base + count]

    def _fingerprints_of(self, t: int, count: int) -> Array:
        new, begin = self.workspace.new, t * self.workspace.region
        low, high = new.fp[begin : begin + count], new.fp_high[begin : begin + count]
        return np.stack([low, high], axis=1) if self.workspace.wide else low

    def _put_in_order(self) -> int:
        """Sort the states to be expanded by fingerprint. Returns their number."""
        workspace = self.workspace
        inside = [
            int(w.counts[encoding.COUNT] - w.counts[encoding.OUT]) - failed
            for w, failed in zip(workspace.work, workspace.failed, strict=True)
        ]
        places = np.concatenate([[0], np.cumsum(inside)])

        def sort(t: int) -> None:
            if inside[t]:
                kernel.order_level(workspace.levels((self.order, self.order_fp)), workspace.work[t], int(places[t]))

        for future in [workspace.pool.submit(sort, t) for t in range(workspace.workers)]:
            future.result()
        return int(places[-1])

    def partial(self) -> tuple[int, int]:
        """The number of states found of an incomplete level, and the number of frontier states expanded."""
        if not self.is_expanding:
            return 0, 0
        workspace = self.workspace
        found = workspace.discovered()
        if self.search.result.depth and not self.is_linked:
            bases = np.zeros(workspace.workers, np.int64)
            for work in workspace.work:
                ignored = np.empty(int(work.counts[encoding.COUNT]), np.int64)
                kernel.write_links(workspace.levels(), work, bases, self.old_numbers, ignored)
        self._meet_all()
        return found, self.expanded

    # -- violations and paths -----------------------------------------------------------------------------------------

    def _meet_all(self) -> None:
        """Pass on the violations and witnesses of the level being built."""
        workspace, meet = self.workspace, self.search.meet
        for root, position in workspace.violations():
            meet(Evidence(root, (int(workspace.new.fp[position]), int(workspace.new.fp_high[position])), position))
        for work in workspace.work:
            for number in np.flatnonzero(work.best_order >= 0).tolist():
                place, step = int(work.best_order[number]), workspace.step(int(work.best_outcome[number]))
                root = self.search.stepper.roots[number]
                meet(Evidence(root, (place, step[0], *step[1]), ~int(self.order[place]), step))
        stuck = [int(w.counts[encoding.DEADLOCK]) for w in workspace.work if w.counts[encoding.DEADLOCK] >= 0]
        if stuck and self.search.options.deadlock:
            meet(Evidence(None, (), ~int(self.order[min(stuck)])))
        workspace.forget_violations()

    def path(self, at: int) -> StatePath:
        """The path to a state of the level built last, at a position; for ``~position``, of the previous level.

        During a level its states are reached by their references, afterwards by their numbers.
        """
        workspace = self.workspace
        if at < 0:
            return workspace.path(*self._path_to_frontier(~at))
        if not self.is_expanding:
            return workspace.path(*self._path_to_frontier(at))
        ref = int(workspace.new.ref[at])
        outcome, parent = encoding.reference_outcome(ref), encoding.reference_parent(ref)
        if outcome == encoding.INITIAL:
            return workspace.path(parent, [])
        start, outcomes = self._path_to_frontier(parent)
        return workspace.path(start, [*outcomes, outcome])

    def _path_to_frontier(self, position: int) -> tuple[int, list[int]]:
        """The initial state and the outcomes that lead to a state of the newest complete level."""
        numbers = self.old_numbers if self.is_expanding else self.new_numbers
        if numbers.size:
            number = int(numbers[position])
        else:
            number = position % self.workspace.region + self.bases[position // self.workspace.region]
        return self.links.path(len(self.links) - 1, number)

    def release(self) -> None:
        """Free the memory of everything visited, which another executor has taken over."""
        self.workspace.release()
        self.links.close()
        self.links = Links()
        self.keys = None

    # -- the graph, and the state space as a table --------------------------------------------------------------------

    def _record(self, recording: Recording) -> None:
        """Record the level just expanded, for liveness."""
        workspace, begin = self.workspace, time.monotonic()
        order = self.order[: self.search.queue]

        def tables() -> tuple[Compiled, Growing, Arena]:
            return workspace.compiled, workspace.tables.growing(), workspace.old

        record_level(recording, tables, workspace.work[0], order, self._ask_of_frontier)
        workspace.seconds["record"] = workspace.seconds.get("record", 0.0) + time.monotonic() - begin

    def _ask_of_frontier(self, questions: Array) -> None:
        """Evaluate temporal predicates in Python, in states of the level just expanded."""
        workspace = self.workspace
        rows = workspace.tables.ids_of(workspace.old.cells[questions[:, 1]])
        in_states = [Question(root, ids) for root, ids in zip(questions[:, 0].tolist(), rows, strict=True)]
        raised = list(workspace.evaluators.ask(in_states))
        for position, error in zip(questions[:, 1].tolist(), raised, strict=True):
            if error is not None:
                self.search.result.raised_at = self.search.found("raised", error.where, ~position)
                raise error
        workspace.fit()
        workspace.compiled = workspace.tables.compiled()

    def _write_states(self) -> None:
        """Write the level just built to the table, while the parents are still in memory."""
        workspace, search = self.workspace, self.search
        if search.table is None or not search.queue:
            return

        def blocks() -> Iterator[tuple[Array, Array | None, Array | None, Array]]:
            for begin in range(0, search.queue, BLOCK_ROWS):
                positions = self.order[begin : min(begin + BLOCK_ROWS, search.queue)]
                refs = workspace.new.ref[positions]
                first = search.result.depth == 1
                parents = None if first else workspace.old.fp[encoding.reference_parent(refs)]
                roots = None if first else workspace.tables.outcome_root[encoding.reference_outcome(refs)]
                yield (
                    workspace.new.fp[positions],
                    parents,
                    roots,
                    unpacked(workspace.new.cells[positions], workspace.tables.places),
                )

        begin = time.monotonic()
        search.table.add_level(blocks())
        workspace.seconds["states"] = workspace.seconds.get("states", 0.0) + time.monotonic() - begin

    def _write_steps(self) -> None:
        """Write the steps out of the level just expanded to the table."""
        workspace, search = self.workspace, self.search
        if search.table is None or search.table.edges is None:
            return
        begin = time.monotonic()
        roots = np.arange(len(search.stepper.roots), dtype=np.uint16)
        nothing_is_fair = np.zeros((len(roots), 0), np.uint64)
        for at in range(0, search.queue, BLOCK_ROWS):
            positions = self.order[at : min(at + BLOCK_ROWS, search.queue)]
            counts, targets, taken, _ = steps_of(
                workspace.compiled, workspace.old, workspace.work[0], positions, roots, nothing_is_fair
            )
            search.table.add_edges(np.repeat(workspace.old.fp[positions], counts), targets, taken)
        workspace.seconds["states"] = workspace.seconds.get("states", 0.0) + time.monotonic() - begin

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def _resume(self, reader: CheckpointReader) -> None:
        """Restore everything as it was at the end of the checkpoint's level."""
        workspace, search, kept, elsewhere = self.workspace, self.search, reader.manifest, self.checkpoint
        if elsewhere is not None and Path(elsewhere).resolve() != reader.directory.resolve():
            raise SystemFailure(
                f"a resumed run goes on saving to {reader.directory}; leave out {{checkpoint}}", "checkpoint"
            )
        kept.verify(reader.directory, search, workspace.properties)
        workspace.number_initial()
        columns = reader.restore(search.stepper.store)
        workspace.tables.recall(kept.outcomes)
        workspace.fit()
        for block in reader.fingerprints():
            lows, highs = (block[::2].copy(), block[1::2].copy()) if workspace.wide else (block, block)
            workspace.insert(lows, highs)
        if sum(int(w.counts[encoding.USED]) for w in workspace.work) != sum(kept.levels):
            raise SystemFailure(
                f"the checkpoint in {reader.directory} is damaged: it holds a state twice; start again without it"
            )
        for log in reader.links():
            self.links.add(log)
        self.new_numbers = reserve(workspace.region * workspace.workers, np.int64)
        search.restore(kept.kept(workspace.decode(kept.found)))
        step = max(1, BLOCK_ROWS // max(1, workspace.tables.permutations))
        for numbers, rows in reader.frontier():
            for begin in range(0, len(rows), step):
                ids = np.zeros((len(rows[begin : begin + step]), len(search.stepper.store.slots)), np.uint32)
                for column, (slot, values) in enumerate(columns):
                    ids[:, slot] = np.array(values, np.uint32)[rows[begin : begin + step, column]]
                self.new_numbers[workspace.lay_out_ids(ids)] = numbers[begin : begin + step]
            # Block by block: the first blocks teach the tables nearly every path, and have few rows.
            self._complete()
        self._forget_failed()
        workspace.forget_violations()  # the checkpoint already has them among its findings
        self._pass_on(self._put_in_order())
        if search.has_raised:
            return  # the checkpoint stays as it is
        # Only now: until here nothing in the directory has changed.
        self.source, self.writer = kept.source, Writer(reader.directory, reader)
        self._remember()
        self.saved_depth = search.result.depth

    def _forget_failed(self) -> None:
        """Uncount states of the checkpoint's level that cannot be judged. If they were the last before a limit on
        depth, their actions were not evaluated before; now they are, and one raises. No action counts as having
        discovered such a state.
        """
        workspace, log = self.workspace, self.links.level(len(self.links) - 1)
        for t, count in enumerate(workspace.counts()):
            begin = t * workspace.region
            for place in np.flatnonzero(workspace.new.meta[begin : begin + count] == encoding.PARKED).tolist():
                outcome = int(encoding.link_outcome(log[self.new_numbers[begin + place]]))
                if outcome != encoding.INITIAL:
                    self.search.earlier.new[workspace.step(outcome)[0]] -= 1

    def _remember(self) -> None:
        """Prepare the part of a checkpoint about the level that just ended."""
        if self.writer is None:
            return
        workspace, search = self.workspace, self.search
        workspace.note_exactness()
        kept = search.kept()
        outcomes = [(root, list(choices)) for root, choices in map(workspace.step, range(workspace.tables.outcomes))]
        self.manifest = Manifest(
            **saved(search, self.source, workspace.properties, kept),
            format=FORMAT,
            found=workspace.encode(kept.found),
            levels=list(self.writer.levels),
            outcomes=outcomes,
        )

    def save(self) -> None:
        """Save the last complete level if it is not saved yet: between levels the new one, else the previous one."""
        workspace, manifest = self.workspace, self.manifest
        if self.writer is None or manifest is None or manifest.depth == self.saved_depth:
            return
        arena, numbers = (workspace.old, self.old_numbers) if self.is_expanding else (workspace.new, self.new_numbers)
        order = self.order[: manifest.queue]

        def rows() -> Iterator[tuple[Array, Array]]:
            bases = np.array(self.bases, np.int64)
            for begin in range(0, len(order), BLOCK_ROWS):
                positions = order[begin : begin + BLOCK_ROWS]
                number = (
                    numbers[positions]
                    if numbers.size
                    else positions % workspace.region + bases[positions // workspace.region]
                )
                yield number, arena.cells[positions, : manifest.words]

        begin = time.monotonic()
        manifest.words, manifest.places = workspace.tables.layout.words, workspace.tables.places.tolist()
        manifest.slots = slot_entries(self.search.stepper.store)
        self.writer.save(manifest, rows)
        self.saved_depth, self.saved_at = manifest.depth, time.monotonic()
        self.save_seconds = self.saved_at - begin

    # -- figures ------------------------------------------------------------------------------------------------------

    def tally(self) -> Tally:
        """The counts of all workers, by action."""
        return self.workspace.tally()

    def progress(self) -> dict[str, Any]:
        """Fields of the progress report that only this executor knows."""
        return {"exploding": exploding(self.workspace.tables), "doing": compiling()}

    def profile(self) -> dict[str, object]:
        """Figures for the profile of the result."""
        workspace = self.workspace
        workspace.note_exactness()
        profile: dict[str, Any] = workspace.profile()
        profile["memory"]["links"] = self.links.resident
        return profile
