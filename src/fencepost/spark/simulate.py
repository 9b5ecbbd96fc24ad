"""Simulation on Spark: random walks on every core of a cluster.

The driver divides the numbers of walks among tasks, one **round** at a time. A task has the compiled tables and takes
its walks with the loops of `engines.walks`. It never runs the author's Python. If a walk falls off a trie, the task
reports its number and step, and the driver repeats that walk from its seed to its end, asking Python for unknown paths.
Meanwhile the next round is running. Tasks get the paths that the driver records with the round after that one, or at
once if most walks parked.

The seed and its number determine a walk, and counts are added from whole tasks only. So the result is exactly that of a
simulation in one process that takes the same walks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.encoding import (
    CONTROLS,
    END,
    INITIAL,
    NEXT,
    PARKED,
    PARKS,
    STOP,
    meta_count,
    meta_end,
    meta_first,
    pack_meta,
)
from fencepost.checker.compiler.layout import packed, unpacked
from fencepost.checker.engines import simulate, walks
from fencepost.checker.engines.interface import Exploration, Report
from fencepost.checker.engines.kernel import QUESTIONS
from fencepost.checker.engines.lanes import arena_for, lanes_for, walkers_for, work_for
from fencepost.checker.engines.options import SimulationOptions
from fencepost.checker.engines.resources import uncollected
from fencepost.checker.engines.walks import LEAF_ROOM, Plan, Walkers
from fencepost.semantics import Stepper
from fencepost.spark import loops, stages
from fencepost.spark.cluster import TICK, Broadcast, Cluster, Job
from fencepost.spark.level import Shared, arrays_of
from fencepost.spark.session import require_spark
from fencepost.spark.stages import OneStage
from fencepost.text import numbers

ROUND = 4.0
"""The target duration of a round in seconds. A job costs half a second, and tasks get new paths only between two
rounds.
"""
FIRST_SHARE = 1 << 12
"""Walks of a task in the first round, before its speed is measured."""
GROWTH = 8
"""The most by which the walks of a task may grow from one round to the next."""
FEWEST = 64
"""Walks for which another task pays."""
MOST_PARKED = 1 << 16
"""The most walks of a round that may fall off a trie before it ends. It is fewer if the driver cannot finish that many
in the time of a round.
"""
GRACE = 5.0
"""Seconds after a limit until a running round is abandoned."""

Span = tuple[int, int]
"""A range of walk numbers: the first, and one past the last."""


def explore(stepper: Stepper, options: SimulationOptions, report: Report | None = None) -> Exploration:
    """Walk at random on Spark until enough walks are done or a property is violated. A single walk is taken in this
    process.

    Raises :class:`fencepost.OptionError` if a library that Spark needs is not installed, and
    :class:`fencepost.SystemFailure` if Spark cannot start.
    """
    if options.walk is not None:
        return simulate.explore(stepper, options, report)
    require_spark()
    with uncollected(), closing(Distributed(stepper, options, report)) as simulation:
        return simulation.run()


# -- messages to and from tasks ---------------------------------------------------------------------------------------


class Common(NamedTuple):
    """The same for all rounds: the plan of the walks, the number of roots, and the initial states. ``ids``: their value
    numbers, one column a slot. ``leaves``: their enabled leaves, one state after the other.
    """

    plan: Plan
    roots: int
    ids: Array
    fp: Array
    leaf_count: Array
    leaves: Array


class Round(msgspec.Struct, frozen=True):
    """A round, in the form that is sent to every task. ``shares``: the walks of each task, in ascending order.
    ``common`` and ``tables`` are broadcast variables. ``words``: the length of a row.

    After ``seconds``, or with ``most_parked`` walks parked, a task begins no more walks. After ``limit`` seconds it
    stops at once.
    """

    shares: tuple[tuple[Span, ...], ...]
    common: Any
    tables: Shared
    words: int
    seconds: float
    limit: float | None
    most_parked: int


class Walked(msgspec.Struct):
    """The report of a task. ``violated``: for each root, the lowest walk that violates it, after how many steps, and
    the step at which its loop begins. ``parked``: the walks that fell off a trie, and at which step, as two arrays of
    64-bit numbers. ``left``: the walks that the task did not begin.
    """

    chosen: stages.Counts
    sketch: bytes
    longest: int
    violated: dict[int, tuple[int, int, int]]
    parked: tuple[bytes, bytes]
    left: list[Span]
    begun: int
    seconds: float


report_decoder = msgspec.msgpack.Decoder(Walked)


# -- a task -----------------------------------------------------------------------------------------------------------


def walk(plan: Round, number: int) -> Walked:
    """Take the walks of a task in a round."""
    with closing(Walker(plan)) as walker:
        return walker.take(plan.shares[number])


class Walker:
    """The lanes of one task in a process of an executor."""

    def __init__(self, of_round: Round) -> None:
        self.round = of_round
        self.control = np.zeros(CONTROLS, np.int64)
        self.over, self.broken_off = threading.Event(), threading.Event()
        self._timers: list[threading.Timer] = []
        if of_round.limit is not None:
            self._set_after(of_round.limit, self.broken_off)
        self.compiled, self.growing, _ = stages.tables_of(of_round.tables)
        common: Common = of_round.common.value
        plan, depth, roots = common.plan, common.plan.depth, common.roots
        lanes, starts = lanes_for(depth), np.arange(len(common.fp))
        positions = 2 * lanes + starts
        self.plan = plan._replace(starts=positions)
        self.arena = arena = arena_for(2 * lanes + len(starts), of_round.words)
        arena.cells[positions] = packed(common.ids, self.compiled.place, of_round.words)
        arena.fp[positions], arena.ref[positions] = common.fp, INITIAL
        arena.meta[positions] = pack_meta(positions * LEAF_ROOM, common.leaf_count)
        ends = np.cumsum(common.leaf_count)
        for position, end, count in zip(positions.tolist(), ends.tolist(), common.leaf_count.tolist(), strict=True):
            arena.leaves[position * LEAF_ROOM : position * LEAF_ROOM + count] = common.leaves[end - count : end]
        self.work = work_for(lanes, roots)
        self.walkers = walkers_for(0, lanes, roots, plan.temporal, depth)
        self.asks = np.zeros((QUESTIONS, 3), np.int64)
        self.parked: list[tuple[int, int]] = []

    def close(self) -> None:
        """Cancel the timers."""
        for timer in self._timers:
            timer.cancel()

    def _set_after(self, seconds: float, event: threading.Event) -> None:
        """Set an event after this number of seconds, and make the loops return."""

        def ring() -> None:
            event.set()
            self.control[STOP] = 1

        timer = threading.Timer(max(0.0, seconds), ring)
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def take(self, spans: Sequence[Span]) -> Walked:
        """Take walks. Returns the report of the task."""
        self._advance()  # compiles the loops before the timer starts
        began = time.perf_counter()
        self._set_after(self.round.seconds, self.over)
        left: list[Span] = []
        for first, last in spans:
            begun = self._span(first, last)
            if begun < last:
                left.append((begun, last))
        seconds = time.perf_counter() - began
        walkers = self.walkers
        which = np.flatnonzero(walkers.chosen[: self.compiled.outcome_root.size])
        parked = np.array(self.parked, np.int64).reshape(-1, 2)
        violated = {
            root: (int(walkers.lowest[root]), int(walkers.lowest_step[root]), int(walkers.lowest_loop[root]))
            for root in np.flatnonzero(walkers.lowest >= 0).tolist()
        }
        return Walked(
            chosen=(which.tobytes(), walkers.chosen[which].tobytes()),
            sketch=walkers.sketch.tobytes(),
            longest=int(walkers.longest[0]),
            violated=violated,
            parked=(parked[:, 0].tobytes(), parked[:, 1].tobytes()),
            left=left,
            begun=sum(last - first for first, last in spans) - sum(last - first for first, last in left),
            seconds=seconds,
        )

    def _span(self, first: int, last: int) -> int:
        """Take walks from ``first`` up to ``last``. Returns the first that was not begun, or need not be."""
        control, begun = self.control, last
        control[NEXT], control[END] = first, last
        if not self.plan.keep_going and ((self.walkers.lowest >= 0) & ~self.plan.sought).any():
            return last  # only lower walks matter
        while True:
            # The loops notice a timer that ends after this; the check below notices an earlier one.
            control[STOP] = 0
            if self.broken_off.is_set():
                return min(begun, int(control[NEXT]))
            if (self.over.is_set() or len(self.parked) >= self.round.most_parked) and control[NEXT] < control[END]:
                begun = control[END] = int(control[NEXT])
            if self._advance() and control[NEXT] >= control[END]:
                return begun

    def _advance(self) -> bool:
        """Run walks until they park or end, and complete the parked ones or put them aside. Returns whether no walk is
        in progress.
        """
        walkers, work = self.walkers, self.work
        walks.wander(self.compiled, self.arena, work, walkers, self.plan, self.control, simulate.NOWHERE)
        if self.growing.top[0] < stages.POOL * 3 // 4:
            walks.complete_walks(
                self.compiled, self.growing, self.arena, work, walkers, self.plan, self.control, self.asks
            )
            loops.relink(self.compiled)
        work.counts[PARKS] = 0
        lanes = np.flatnonzero((walkers.walk >= 0) & (self.arena.meta[walkers.at] == PARKED))
        self.parked += zip(walkers.walk[lanes].tolist(), walkers.step[lanes].tolist(), strict=True)
        walkers.walk[lanes] = -1
        return bool((walkers.walk < 0).all())


# -- the driver -------------------------------------------------------------------------------------------------------


class Distributed(simulate.Simulation):
    """A simulation whose walks are taken on Spark. Until Spark has started, and where a task could not go on, walks are
    taken here.
    """

    def __init__(self, stepper: Stepper, options: SimulationOptions, report: Report | None) -> None:
        super().__init__(stepper, options, report)
        self.cluster = Cluster(options.master, options.conf, options.debug)
        self.remote = self._walkers(0, 1)
        self.counted.append(self.remote)
        self.share = FIRST_SHARE
        self.begun = 0
        self.warm_up: Job | None = None
        self._learned, self._last_look = False, (self.started, 0.0)
        self.most_parked = self.lanes * self.workers
        self.figures: list[dict[str, float]] = []
        self._common: Any = None
        self._tables = Broadcast(self.cluster)

    def close(self) -> None:
        """Stop the workers, and Spark if it was started here."""
        super().close()
        self.cluster.close()

    def hands_over(self) -> bool:
        """Whether tasks should take over: Spark has started, each core has run a task without walks, and a cluster
        pays.
        """
        if self.warm_up is None and self.cluster.is_ready():
            self.warm_up = self._submit([[] for _ in range(self.cluster.cores)])
        return self.warm_up is not None and self.warm_up.wait(0) and self.learned()

    def learned(self) -> bool:
        """Whether there was a second in which less than half of the time was spent asking Python. Before that, a
        cluster would gain little.
        """
        now, asking = time.monotonic(), self.seconds["python"] + self.seconds["complete"]
        since, before = self._last_look
        if now - since >= 1.0:
            self._learned |= asking - before < (now - since) / 2
            self._last_look = now, asking
        return self._learned

    def run(self) -> Exploration:
        """Take the walks. Returns the result of the simulation."""
        result = super().run()
        result.profile["rounds on Spark"] = self.figures
        result.on_spark = bool(self.figures)
        return result

    def walk(self, first: int, last: int) -> None:
        """Take the walks from number ``first`` up to ``last``, unless a limit is reached first."""
        self.cluster.start_in_background()
        try:
            if not self.hands_over():
                super().walk(first, last)
                first = int(self.control[END])
            if self.warm_up is not None and self.result.limit is None and first < self.end(last):
                self._finish_round(self.warm_up)
        finally:
            if self.warm_up is not None:
                self.warm_up.cancel()
        left = [(first, last)]
        parked = np.zeros((0, 2), np.int64)
        while self.result.limit is None and (left or len(parked)):
            end = self.end(last)
            left = [(begin, min(stop, end)) for begin, stop in left if begin < end]
            if 2 * len(parked) > self.begun:
                # Tasks need more paths first. Without them, most of their walks would park again.
                self._finish_walks(parked)
                parked = parked[:0]
                continue
            shares, left = divided(left, self.share, self.cluster.cores)
            job = self._submit(shares) if shares else None
            try:
                self._finish_walks(parked)
                parked = parked[:0]
                if job is not None:
                    parked, returned = self._add(self._finish_round(job))
                    left = sorted(left + returned)
            except BaseException:
                if job is not None:
                    job.cancel()
                raise

    def _submit(self, shares: list[list[Span]]) -> Job:
        """Start a round."""
        if self._common is None:
            self._common = self.cluster.share(self._common_of_rounds())
        # Compiling the tables changes their version, so the version is taken again afterwards.
        tables = self._tables.current(
            False, lambda: self.tables.version, lambda: arrays_of(self.tables, self.tables.compiled())
        )
        count = sum(last - first for share in shares for first, last in share)
        timeout = self.options.timeout
        plan = Round(
            shares=tuple(tuple(share) for share in shares), common=self._common, tables=tables,
            words=self.tables.layout.words, seconds=ROUND,
            limit=None if timeout is None else timeout - (time.monotonic() - self.started),
            most_parked=max(1, self.most_parked // len(shares)),
        )  # fmt: skip
        doing, name = "getting ready", "before the first round"
        if count:
            some = numbers.plural(count, "walk")
            doing, name = "walking", f"round {len(self.figures) + 1}: {some} from number {shares[0][0][0]:,} on"
        stage = OneStage(partial(walk, plan)), len(shares)
        return self.cluster.submit([stage], (doing,), f"{self.stepper.protocol.name}, {name}")

    def _common_of_rounds(self) -> Common:
        arena, starts = self.arena, self.plan.starts
        metas = arena.meta[starts]
        leaves = [arena.leaves[meta_first(m) : meta_end(m)] for m in metas.tolist()]
        plan = self.plan._replace(starts=starts[:0])
        return Common(
            plan,
            len(self.stepper.roots),
            unpacked(arena.cells[starts], self.tables.places),
            arena.fp[starts],
            meta_count(metas),
            np.concatenate(leaves),
        )

    def _finish_walks(self, parked: Array) -> None:
        """Finish walks here that parked in a task. ``parked``: pairs of a walk's number and how many of its states were
        counted.
        """
        began = time.monotonic()
        for at in range(0, len(parked), self.lanes * self.workers):
            some = parked[at : at + self.lanes * self.workers]
            some = some[some[:, 0] < self.end(simulate.UNLIMITED)]
            if self.result.limit is not None:
                return
            self.control[NEXT] = self.control[END] = simulate.UNLIMITED
            for walkers, part in zip(self.walkers, np.array_split(some, self.workers), strict=True):
                walks.begin_again(walkers, self.plan, part[:, 0].copy(), part[:, 1].copy())
            self.advance()
        if len(parked):
            each = (time.monotonic() - began) / len(parked)
            self.most_parked = min(MOST_PARKED, max(self.lanes, int(ROUND / max(each, 1e-6))))

    def _finish_round(self, job: Job) -> list[Walked]:
        """The reports of the tasks of a round. Empty if the round does not end soon after a limit was reached."""
        began, reached = time.monotonic(), None
        while not job.wait(TICK):
            self.watch(job.stage() or "waiting for Spark")
            if self.result.limit is not None:
                reached = reached or time.monotonic()
                if time.monotonic() - reached > GRACE:
                    job.cancel()
                    return []
        self.seconds["Spark"] = self.seconds.get("Spark", 0.0) + time.monotonic() - began
        return [report_decoder.decode(payload) for payload in job.result()]

    def _add(self, reports: list[Walked]) -> tuple[Array, list[Span]]:
        """Add the counts of tasks. Returns the walks that parked, in ascending order, and those that were not begun."""
        sum_of, figures = self.remote, {"walks": 0.0, "steps": 0.0, "parked": 0.0, "seconds": 0.0}
        parked: list[Array] = [np.zeros((0, 2), np.int64)]
        for report in reports:
            which, how_many = stages.dense(report.chosen)
            sum_of.chosen[which] += how_many
            np.maximum(sum_of.sketch, np.frombuffer(report.sketch, np.uint8), out=sum_of.sketch)
            sum_of.longest[0] = max(sum_of.longest[0], report.longest)
            for root, violation in report.violated.items():
                keep_lowest(sum_of, root, *violation)
            parked.append(np.stack([np.frombuffer(part, np.int64) for part in report.parked], axis=1))
            figures["walks"] += report.begun
            figures["steps"] += int(how_many[which != INITIAL].sum())
            figures["parked"] += len(parked[-1])
            figures["seconds"] += report.seconds
        if reports:
            self.figures.append(figures)
        self.begun = sum(report.begun for report in reports)
        if self.begun:
            # A short round is a poor estimate of how many walks fit into a long one.
            self.share = max(FEWEST, min(GROWTH * self.share, int(ROUND * self.begun / max(figures["seconds"], 1e-3))))
        together = np.concatenate(parked)
        return together[np.argsort(together[:, 0])], [span for report in reports for span in report.left]


def keep_lowest(walkers: Walkers, root: int, walk: int, step: int, loop: int) -> None:
    """Record a walk if it is the lowest that violates a root."""
    if walkers.lowest[root] < 0 or (walk, step) < (walkers.lowest[root], walkers.lowest_step[root]):
        walkers.lowest[root], walkers.lowest_step[root], walkers.lowest_loop[root] = walk, step, loop


def divided(spans: Sequence[Span], share: int, tasks: int) -> tuple[list[list[Span]], list[Span]]:
    """Divide the lowest walks of ascending spans among at most ``tasks`` tasks, in about equal shares of at most
    ``share`` walks. Returns the shares and the remaining spans.
    """
    count = sum(last - first for first, last in spans)
    tasks = max(1, min(tasks, -(-count // FEWEST)))
    share = min(share, -(-count // tasks))
    shares: list[list[Span]] = []
    rest = list(reversed(spans))
    while rest and len(shares) < tasks:
        taken: list[Span] = []
        room = share
        while rest and room:
            first, last = rest.pop()
            end = min(last, first + room)
            taken.append((first, end))
            room -= end - first
            if end < last:
                rest.append((end, last))
        shares.append(taken)
    return shares, rest[::-1]
