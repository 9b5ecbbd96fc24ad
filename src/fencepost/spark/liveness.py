"""Judges temporal properties after a search on Spark.

The embedded judge takes a graph that fits into the driver's memory as it is. In a larger one, for each property, tasks
remove states that are on no fair cycle violating it, until the rest fits. In the rest, the judge finds the same cycle
as in the whole graph. If trimming ends before the rest fits, there is no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.engines.conclusion import Verdicts
from fencepost.checker.engines.resources import memory_limit, peak_memory, resident_memory
from fencepost.checker.engines.search import Search
from fencepost.checker.liveness.graph import Graph, Property, Terms, needs
from fencepost.files.storage import Storage
from fencepost.spark import graph, stages, trim
from fencepost.spark.cluster import Cluster
from fencepost.spark.graph import NOWHERE, Bits, GraphPlan, Partition, StepFile
from fencepost.spark.level import read_columns
from fencepost.spark.recording import FileRecording
from fencepost.spark.trim import Cut, Obligation
from fencepost.text.numbers import size

if TYPE_CHECKING:
    from fencepost.checker.liveness.judge import Lasso

PARTITION_STATES = 1 << 22
PARTITION_STEPS = 1 << 23
"""About the most states and steps for one task."""
PARTITIONS_PER_CORE = 2
MOST_ROUNDS = 1000
"""The most rounds for the obligations of a fair cycle, for each property."""

T = TypeVar("T", bound=trim.Report)


NO_FORMULAS = "the graph of a temporal formula must fit into the memory of one process"


class TooLarge(Exception):
    """The rest of the graph after trimming does not fit. The message says how large it is."""


def fits(terms: Terms, states: int, steps: int, limit: int) -> bool:
    """Whether the embedded judge can judge a graph in this process."""
    return resident_memory() + needs(terms, states, steps) <= limit


class Judge:
    """Judges a complete search. Adds to its result the violations, the properties that were judged, and the reason for
    each that was not.
    """

    def __init__(self, recording: FileRecording, storage: Storage, cluster: Cluster, search: Search) -> None:
        self.recording, self.storage, self.cluster, self.search = recording, storage, cluster, search
        self.terms = recording.terms
        self.limit = memory_limit(search.options.max_memory)
        self.name = search.stepper.protocol.name
        self.figures: list[dict[str, Any]] = []
        self.written: set[str] = set()

    def run(self) -> None:
        """Judge, unless the graph fits into this process: then the search judges the recording.

        Raises :class:`fencepost.SystemFailure` if Spark or the disk fails.
        """
        recording, result = self.recording, self.search.result
        # A recording in memory takes 12 bytes a state and 10 a step, besides the graph that is built from it.
        loaded = recording.states * (12 + 8 * (self.terms.words + self.terms.truth_words)) + recording.steps * 10
        if fits(self.terms, recording.states, recording.steps, self.limit - loaded):
            self.search.recording = recording.in_memory(self.storage)
            return
        verdicts = Verdicts(self.search, self.terms)
        try:
            with self._temporary_files():
                plan = self._graph_in_files()
                for property in self.terms.properties:
                    figures: dict[str, Any] = {"property": property.title}
                    self.figures.append(figures)
                    if property.promise.formula is not None:
                        verdicts.leave_open(property, NO_FORMULAS)
                        continue
                    try:
                        with self._temporary_files():
                            verdicts.take(property, _Trimming(self, plan, property, figures).lasso())
                    except TooLarge as error:
                        verdicts.leave_open(property, str(error))
        except (TooLarge, MemoryError) as error:
            result.unjudged = str(error) if isinstance(error, TooLarge) else "out of memory"
            verdicts.report_violations()
        else:
            verdicts.report()
        result.peak_memory = max(result.peak_memory, peak_memory())

    # -- jobs and files -----------------------------------------------------------------------------------------------

    def job(self, name: str, doing: Sequence[str], job_stages: stages.JobStages) -> list[trim.Report]:
        """Run stages as one job. Returns the reports of its tasks. ``doing``: the name of each stage.

        Raises :class:`TooLarge` after the time limit.
        """
        timeout = self.search.options.timeout
        if self.search.stepper.deadline.expired(timeout):
            raise TooLarge(f"the time limit of {timeout:g} seconds was reached")

        def report_stage(stage: str) -> None:
            self.search.report_doing(", ".join(filter(None, ["judging liveness", name, stage])))

        report_stage("")
        payloads = self.cluster.run(job_stages, doing, f"{self.name}, liveness: {name}", report_stage)
        reports = [trim.report_decoder.decode(payload) for payload in payloads]
        self.written |= {file for report in reports for file in files_of(report)}
        return reports

    @contextmanager
    def _temporary_files(self) -> Iterator[None]:
        """Remove the files of all jobs run in the body."""
        before = set(self.written)
        try:
            yield
        finally:
            self.remove(self.written - before)

    def remove(self, files: Iterable[str]) -> None:
        """Remove files of jobs that are no longer needed."""
        for file in list(files):
            if file in self.written:
                self.written.remove(file)
                self.storage.remove(file)

    def _graph_in_files(self) -> GraphPlan:
        """Write the graph to files for the tasks that trim it."""
        recording = self.recording
        if recording.states > graph.MOST_STATES // 2:
            raise TooLarge(f"the graph has {recording.states:,} states, and {graph.MOST_STATES // 2:,} can be trimmed")
        partitions = max(
            PARTITIONS_PER_CORE * self.cluster.cores,
            recording.states // PARTITION_STATES,
            recording.steps // PARTITION_STEPS,
        )
        records = tuple((level, record) for level, some in enumerate(recording.levels) for record in some)
        plan = GraphPlan(self.storage.place, self.terms.measures, records, (Partition("", 0, 0),) * partitions)
        many = f"{recording.states:,} states"
        reports = self.job(f"collecting {many}", ("reading", "sorting"), graph.stages_of_states(plan))
        written, first = [], 0
        for report in _of(graph.StatesWritten, reports):
            written.append(Partition(report.file, report.states, first))
            first += -(-report.states // 64) * 64
        plan = msgspec.structs.replace(plan, partitions=tuple(written))
        doing = ("reading", "numbering", "sorting", "reversing")
        reports = self.job(f"laying out the steps between {many}", doing, graph.stages_of_steps(plan))
        steps = _of(graph.StepsWritten, reports)
        out, into = (tuple(report.steps for report in steps if report.out == is_out) for is_out in (True, False))
        return msgspec.structs.replace(plan, records=(), out=out, into=into)


def _of(kind: type[T], reports: Sequence[trim.Report]) -> list[T]:
    """The reports of one type, sorted by partition."""
    return sorted((report for report in reports if isinstance(report, kind)), key=lambda report: report.partition)


def files_of(report: trim.Report) -> set[str]:
    """The files named by a report of a task."""
    values = [getattr(report, name) for name in report.__struct_fields__]
    names = [value.file if isinstance(value, StepFile) else value for value in values]
    return {name for name in names if isinstance(name, str)}


class _Trimming:
    """The trimming for one property. ``awaited``: for leads-to, sets of states by the number of steps after which it is
    awaited there. ``stutter``: the distance of the nearest state in which a behaviour can stay and violate the
    property, or ``NOWHERE``.
    """

    def __init__(self, judge: Judge, plan: GraphPlan, property: Property, figures: dict[str, Any]) -> None:
        self.judge, self.plan, self.property, self.figures = judge, plan, property, figures
        self.storage = judge.storage
        self.terms = judge.terms
        self.awaited: dict[int, Bits] | None = None
        self.stutter = NOWHERE
        self.tasks = len(plan.partitions)
        figures["rounds"] = 0

    def _round(self, kind: type[T], task: Callable[[int], T], name: str) -> list[T]:
        self.figures["rounds"] += 1
        stage = stages.OneStage(task), self.tasks
        return _of(kind, self.judge.job(f"{self.property.title}: {name}", ("trimming",), [stage]))

    def lasso(self) -> Lasso | None:
        """A fair behaviour that violates the property, or None. It is the one that the embedded judge finds in the
        whole graph.

        Raises :class:`TooLarge` if the rest of the graph does not fit. If a behaviour can violate the property by
        staying in a state, returns that behaviour instead.
        """
        from fencepost.checker.liveness.judge import CANDIDATES, FairCycles, Lasso  # SciPy takes its time to import

        region = self._region()
        if region is None:
            return None
        plan = self.plan
        alive: Bits | None = region
        try:
            alive, plan = self._trimmed(region)
        except TooLarge:
            if self.stutter == NOWHERE:
                raise
            alive = None
        if alive is None and self.stutter == NOWHERE:
            return None
        frontier = self.awaited[self.stutter] if self.awaited is not None and self.stutter != NOWHERE else None
        task = partial(trim.gather, plan, self.property, alive, self.stutter, frontier, CANDIDATES)
        numbers, left = self._graph(self._round(trim.Gathered, task, "gathering what is left"))
        first = self.property.predicates[0]
        must = ~left.true(first) if self.property.kind == "eventually_always" else None
        distances = self._distances(numbers) if self.awaited is not None else None
        found = FairCycles(left, np.ones(len(left), bool), must, distances).found()
        if found is None:
            return None
        end, loop = found
        stem = self._stem(int(numbers[end]), int(distances[end]) if distances is not None else None)
        states = (*stem, *(int(left.fingerprints[n]) for n in loop))
        return Lasso(self.property, states, len(stem) - 1)

    # -- the region ---------------------------------------------------------------------------------------------------

    def _region(self) -> Bits | None:
        """The states in which the property can be violated forever, or None."""
        task = partial(trim.find_region, self.plan, self.property)
        reports = self._round(trim.RegionFound, task, "where it can be violated")
        region = tuple(report.bits for report in reports)
        states = sum(report.states for report in reports)
        self.figures["region"] = states
        if self.property.kind != "leads_to":
            self.stutter = min(report.stutter for report in reports)
            return region if states else None
        awaited = self._find_awaited({level for report in reports for level in report.pending})
        self.judge.remove(region)
        return awaited

    def _find_awaited(self, pending: set[int]) -> Bits | None:
        """The states in which leads-to is awaited, found step by step. ``pending``: levels with states in which the
        wait begins.
        """
        self.awaited = {}
        frontier: Bits | None = None
        reached: Bits | None = None
        distance, states = 0, 0
        while frontier is not None or any(level >= distance for level in pending):
            if frontier is None:
                distance = min(level for level in pending if level >= distance)
            task = partial(trim.find_awaited, self.plan, self.property, distance, frontier, reached)
            reports = self._round(trim.AwaitedFound, task, f"{states:,} states in which it is awaited")
            self.judge.remove(reached or ())
            reached = tuple(report.reached for report in reports)
            new = sum(report.found for report in reports)
            states += new
            frontier = tuple(report.frontier for report in reports) if new else None
            if frontier is not None:
                self.awaited[distance] = frontier
            if self.stutter == NOWHERE and any(report.stutters for report in reports):
                self.stutter = distance
            distance += 1
        self.figures["region"] = states
        return reached

    # -- trimming -----------------------------------------------------------------------------------------------------

    def _trimmed(self, alive: Bits) -> tuple[Bits | None, GraphPlan]:
        """Trim a set until the rest fits. Returns the rest, None if it has no fair cycle, and a plan with the steps in
        it. Raises :class:`TooLarge`.
        """
        terms, figures, plan = self.terms, self.figures, self.plan
        cut = Cut(0, NOWHERE, np.zeros_like(terms.strong))
        before: Any = None
        left = figures["region"]
        obligations: list[tuple[Obligation, bool]] = []
        untried = True
        while True:
            task = partial(trim.trim, plan, self.property, alive, cut)
            reports = self._round(trim.Trimmed, task, f"{left:,} states left")
            self.judge.remove((*alive, *(cut.keep or ())))
            alive, plan = tuple(report.bits for report in reports), self._with_smaller_files(plan, reports)
            left, steps = sum(report.states for report in reports), sum(report.steps for report in reports)
            figures["left"], figures["steps"] = left, steps
            stepped, missing, somewhere = (
                np.bitwise_or.reduce(np.array([getattr(report, name) for report in reports], np.uint64), axis=0)
                for name in ("stepped", "missing", "somewhere")
            )
            if not any(report.must for report in reports) or (terms.weak & ~missing & ~stepped).any():
                figures["left"] = figures["steps"] = 0
                return None, plan
            if fits(terms, left, steps, self.judge.limit):
                return alive, plan
            low, high = min(report.low for report in reports), max(report.high for report in reports)
            cut = Cut(low, high, terms.strong & somewhere & ~stepped)
            now = (left, low, high, cut.starved.tolist())
            if now != before:
                untried = untried or (before is not None and now[0] != before[0])
                before = now
                continue
            while cut.keep is None:
                if not obligations and untried:
                    obligations, untried = self._obligations(), False
                if not obligations:
                    raise TooLarge(self._too_large(left, steps))
                obligation = obligations.pop(0)
                kind, condition = obligation[0]
                keep = self._reaching(plan, alive, obligation, left, steps)
                cut = cut._replace(keep=keep, spared=condition if kind == "strong" else None)

    def _too_large(self, left: int, steps: int) -> str:
        return (
            f"the memory limit of {size(self.judge.limit)} has no room for the {left:,} states and {steps:,} steps"
            f" that trimming has left for {self.property.title}"
        )

    def _with_smaller_files(self, plan: GraphPlan, reports: Sequence[trim.Trimmed]) -> GraphPlan:
        """The plan with the smaller files of steps that tasks have written."""
        out = tuple(report.out or file for report, file in zip(reports, plan.out, strict=True))
        into = tuple(report.into or file for report, file in zip(reports, plan.into, strict=True))
        kept = {file.file for file in (*out, *into, *self.plan.out, *self.plan.into)}
        self.judge.remove({file.file for file in (*plan.out, *plan.into)} - kept)
        return msgspec.structs.replace(plan, out=out, into=into)

    def _obligations(self) -> list[tuple[Obligation, bool]]:
        """The obligations of a fair cycle, each with a direction: True follows steps onward from it, False back."""
        found: list[tuple[Obligation, bool]] = []
        if self.property.kind == "eventually_always":
            found += [(("must", 0), False), (("must", 0), True)]
        for number, condition in enumerate(self.terms.conditions):
            if condition.strong:
                # A cycle may avoid the states of a strong condition, so states that do not enable it are spared.
                found.append((("strong", number), False))
            else:
                found += [(("weak", number), False), (("weak", number), True)]
        return found

    def _reaching(
        self, plan: GraphPlan, alive: Bits, obligation: tuple[Obligation, bool], left: int, steps: int
    ) -> Bits | None:
        """The states of a set from which steps within the set lead to an obligation of a fair cycle (or, onward, that
        they lead to from it). None if these are all of them.
        """
        seed = partial(trim.seed, plan, self.property, alive, obligation[0])
        reports = self._round(trim.Grown, seed, f"{left:,} states left, what a fair cycle needs")
        grown, many = tuple(report.bits for report in reports), sum(report.more for report in reports)
        more = many
        while more and many < left:
            if self.figures["rounds"] >= MOST_ROUNDS:
                raise TooLarge(self._too_large(left, steps))
            task = partial(trim.grow, plan, alive, grown, obligation[1])
            reports = self._round(trim.Grown, task, f"{left:,} states left, which come by what is needed")
            self.judge.remove(grown)
            grown, more = tuple(report.bits for report in reports), sum(report.more for report in reports)
            many += more
        return grown if many < left else None

    # -- judging the rest ---------------------------------------------------------------------------------------------

    def _graph(self, reports: Sequence[trim.Gathered]) -> tuple[Array, Graph]:
        """The rest of the graph, with states sorted by level and fingerprint, and their numbers in the files."""
        terms, read = self.terms, []
        for report in reports:
            n, m = report.states, report.steps
            layout = (
                (np.int64, n), (np.uint64, n), (np.int64, n), (np.uint64, n * terms.words),
                (np.uint64, n * terms.truth_words), (np.int64, m), (np.int64, m), (np.uint16, m),
            )  # fmt: skip
            read.append(read_columns(self.storage, report.file, layout))
        numbers, fingerprints, levels, enabled, truths, sources, targets, kinds = (
            np.concatenate([columns[k] for columns in read]) for k in range(8)
        )
        enabled, truths = enabled.reshape(-1, terms.words), truths.reshape(-1, terms.truth_words)
        order = np.lexsort((fingerprints, levels))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        # Reports are sorted by partition, and numbers ascend within each.
        inside = np.searchsorted(numbers, targets)
        inside[inside == len(numbers)] = 0
        both = numbers[inside] == targets if len(numbers) else np.zeros(0, bool)
        sources, targets, kinds, inside = sources[both], targets[both], kinds[both], inside[both]
        sources = place[np.searchsorted(numbers, sources)]
        # Numbers ascend with fingerprints, so this sorts the steps of a state by fingerprint.
        by_source = np.lexsort((kinds, targets, sources))
        depth = len(self.judge.recording.levels)
        return numbers[order], Graph(
            terms.measures,
            fingerprints[order],
            np.searchsorted(levels[order], np.arange(depth + 1)),
            np.searchsorted(sources[by_source], np.arange(len(order) + 1)),
            place[inside[by_source]].astype(np.int32),
            kinds[by_source],
            enabled[order],
            truths[order],
        )

    def _distances(self, numbers: Array) -> Array:
        """For each of these states, the number of steps after which leads-to is awaited there, or -1."""
        assert self.awaited is not None
        found = np.full(len(numbers), -1, np.int32)
        for distance, bits in self.awaited.items():
            found[graph.members(graph.read_set(self.storage, self.plan.partitions, bits), numbers)] = distance
        return found

    def _stem(self, number: int, distance: int | None) -> list[int]:
        """The fingerprints of a shortest path from an initial state to a state. Of several predecessors on a shortest
        path, the first one is chosen.
        """
        level, path = self._level(number), [self._fingerprint(number)]
        if distance is not None:
            assert self.awaited is not None
            while distance != level or not self._pending(number):
                distance -= 1
                words = graph.read_set(self.storage, self.plan.partitions, self.awaited[distance])
                sources = self._sources(number)
                number = min(sources[graph.members(words, sources)].tolist(), key=lambda n: (self._level(n), n))
                level = self._level(number)
                path.insert(0, self._fingerprint(number))
        while level > 0:
            level -= 1
            number = min(n for n in self._sources(number).tolist() if self._level(n) == level)
            path.insert(0, self._fingerprint(number))
        return path

    def _partition(self, number: int) -> int:
        return int(np.searchsorted([each.first for each in self.plan.partitions], number, side="right")) - 1

    def _state(self, number: int) -> graph.States:
        partition = self.plan.partitions[self._partition(number)]
        return graph.read_states(self.storage, partition, self.plan.terms, number - partition.first, 1)

    def _level(self, number: int) -> int:
        return int(self._state(number).levels[0])

    def _fingerprint(self, number: int) -> int:
        return int(self._state(number).fingerprints[0])

    def _pending(self, number: int) -> bool:
        return bool(trim.sets_of(self._state(number), self.property, self.plan.terms).pending[0])

    def _sources(self, number: int) -> Array:
        plan, k = self.plan, self._partition(number)
        return graph.sources_of(self.storage, plan.partitions[k], plan.into[k], number).astype(np.int64)
