"""The judging of temporal properties after a search on Spark.

A graph that fits into the driver's memory goes to the embedded judge as it is. Of a larger one, for each property,
tasks take out the states that are on no fair cycle that violates it, until the rest fits; the judge then finds what it
would have found in all of it, the same cycle. Where trimming comes to an end before that, no verdict is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from fencepost.compiler.arrays import Array
from fencepost.engines.conclusion import Verdicts
from fencepost.engines.resources import memory_limit, peak_memory, resident_memory
from fencepost.engines.search import Search
from fencepost.liveness.graph import Graph, Property, Terms, needs
from fencepost.spark import graph, stages, trim
from fencepost.spark.cluster import Cluster
from fencepost.spark.graph import NOWHERE, Ask, Bits, Part, Steps
from fencepost.spark.notes import Notes
from fencepost.spark.trim import Need
from fencepost.storage import Storage

if TYPE_CHECKING:
    from fencepost.liveness.judge import Lasso

STATES_OF_A_PART = 1 << 22
STEPS_OF_A_PART = 1 << 23
"""States and steps that a task works on, about, at most."""
PARTS_PER_CORE = 2
MOST_ROUNDS = 1000
"""Rounds that are spent on finding which states can come by what a fair cycle needs, for each property."""

T = TypeVar("T", bound=trim.Told)


class TooLarge(Exception):
    """What is left after trimming does not fit; the message says how much that is."""


def fits(terms: Terms, states: int, steps: int, limit: int) -> bool:
    """Whether the embedded judge has room for a graph, in this process."""
    return resident_memory() + needs(terms, states, steps) <= limit


class Judge:
    """The judging of a search that is complete. Adds what is violated to its result, names what was judged, or says why
    it was not.
    """

    def __init__(self, notes: Notes, storage: Storage, cluster: Cluster, search: Search) -> None:
        self.notes, self.storage, self.cluster, self.search = notes, storage, cluster, search
        self.terms = notes.terms
        self.limit = memory_limit(search.options.max_memory)
        self.name = search.stepper.protocol.name
        self.figures: list[dict[str, Any]] = []
        self.made: set[str] = set()

    def run(self) -> None:
        """Judge, unless the graph fits into this process: then it is left to the search to be judged.

        Raises :class:`fencepost.SystemFailure` if Spark or the disk fails.
        """
        notes, result = self.notes, self.search.result
        # Recorded in memory a state takes 12 bytes and a step 10, besides what is to be made of them.
        loaded = notes.states * (12 + 8 * (self.terms.words + self.terms.truth_words)) + notes.steps * 10
        if fits(self.terms, notes.states, notes.steps, self.limit - loaded):
            self.search.recording = notes.whole(self.storage)
            return
        verdicts = Verdicts(self.search, self.terms)
        try:
            with self._kept():
                ask = self._laid_out()
                for property in self.terms.properties:
                    figures: dict[str, Any] = {"property": property.title}
                    self.figures.append(figures)
                    try:
                        with self._kept():
                            verdicts.take(property, _Trimming(self, ask, property, figures).lasso())
                    except TooLarge as error:
                        verdicts.leave_open(property, str(error))
        except (TooLarge, MemoryError) as error:
            result.unjudged = str(error) if isinstance(error, TooLarge) else "out of memory"
            verdicts.report_violations()
        else:
            verdicts.report()
        result.peak_memory = max(result.peak_memory, peak_memory())

    # -- jobs and files -----------------------------------------------------------------------------------------------

    def job(self, what: str, doing: Sequence[str], steps: Sequence[tuple[stages.Stage, int]]) -> list[trim.Told]:
        """Run stages as one job, called ``what``: what its tasks tell."""
        timeout = self.search.options.timeout
        if self.search.stepper.deadline.expired(timeout):
            raise TooLarge(f"the time limit of {timeout:g} seconds was reached")

        def tell(stage: str) -> None:
            self.search.report_doing(", ".join(filter(None, ["judging liveness", what, stage])))

        tell("")
        told = [
            trim.reports.decode(one) for one in self.cluster.chain(steps, doing, f"{self.name}, liveness: {what}", tell)
        ]
        self.made |= {value for one in told for value in files_of(one)}
        return told

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Removes the files of jobs that are run within."""
        before = set(self.made)
        try:
            yield
        finally:
            self.drop(self.made - before)

    def drop(self, files: Iterable[str]) -> None:
        """Remove files that nobody needs any more."""
        for file in list(files):
            if file in self.made:
                self.made.remove(file)
                self.storage.remove(file)

    def _laid_out(self) -> Ask:
        """The graph in files as tasks need it."""
        notes = self.notes
        if notes.states > graph.MOST_STATES // 2:
            raise TooLarge(f"the graph has {notes.states:,} states, and {graph.MOST_STATES // 2:,} can be trimmed")
        parts = max(
            PARTS_PER_CORE * self.cluster.cores, notes.states // STATES_OF_A_PART, notes.steps // STEPS_OF_A_PART
        )
        all_notes = tuple((level, note) for level, some in enumerate(notes.levels) for note in some)
        ask = Ask(self.storage.place, self.terms.measures, all_notes, (Part("", 0, 0),) * parts)
        many = f"{notes.states:,} states"
        told = self.job(
            f"collecting {many}",
            ("reading", "sorting"),
            [(graph.TellStates(ask), len(all_notes)), (graph.PlaceStates(ask), parts)],
        )
        placed, first = [], 0
        for one in _of(graph.Placed, told):
            placed.append(Part(one.file, one.states, first))
            first += -(-one.states // 64) * 64
        ask = msgspec.structs.replace(ask, parts=tuple(placed))
        laid = _of(graph.Laid, self.job(
            f"laying out the steps between {many}", ("reading", "numbering", "sorting", "turning round"),
            [(graph.TellSteps(ask), len(all_notes)),
            *((stage(ask), parts) for stage in (graph.FindTargets, graph.LayOut, graph.LayInto))],
        ))  # fmt: skip
        out, into = (tuple(one.steps for one in laid if one.out == way) for way in (True, False))
        return msgspec.structs.replace(ask, notes=(), out=out, into=into)


def _of(kind: type[T], told: Sequence[trim.Told]) -> list[T]:
    """What tasks have told, by part."""
    return sorted((one for one in told if isinstance(one, kind)), key=lambda one: one.part)


def files_of(told: trim.Told) -> set[str]:
    """The files that a task says it has written."""
    values = [getattr(told, name) for name in told.__struct_fields__]
    names = [value.file if isinstance(value, Steps) else value for value in values]
    return {name for name in names if isinstance(name, str)}


class _Trimming:
    """One property. ``far``: for leads-to, the set of states in which it is awaited since so many steps after the
    start; ``stay``: how far it is to the nearest state in which a behaviour can stay and violate the property,
    ``NOWHERE`` if there is none.
    """

    def __init__(self, judge: Judge, ask: Ask, property: Property, figures: dict[str, Any]) -> None:
        self.judge, self.ask, self.property, self.figures = judge, ask, property, figures
        self.storage = judge.storage
        self.terms = judge.terms
        self.far: dict[int, Bits] | None = None
        self.stay = NOWHERE
        self.tasks = len(ask.parts)
        figures["rounds"] = 0

    def _round(self, kind: type[T], stage: stages.Stage, what: str) -> list[T]:
        self.figures["rounds"] += 1
        return _of(kind, self.judge.job(f"{self.property.title}: {what}", ("trimming",), [(stage, self.tasks)]))

    def lasso(self) -> Lasso | None:
        """A fair behaviour that violates the property, the one that the embedded judge finds in the whole graph; None
        if there is none.

        Raises :class:`TooLarge` if what is left does not fit. If a behaviour can violate the property by staying
        somewhere, that decides, and it is told.
        """
        from fencepost.liveness.judge import CANDIDATES, FairCycles, Lasso  # SciPy takes its time to import

        region = self._region()
        if region is None:
            return None
        ask = self.ask
        alive: Bits | None = region
        try:
            alive, ask = self._trimmed(region)
        except TooLarge:
            if self.stay == NOWHERE:
                raise
            alive = None
        if alive is None and self.stay == NOWHERE:
            return None
        frontier = self.far[self.stay] if self.far is not None and self.stay != NOWHERE else None
        stage = trim.Gather(ask, self.property, alive, self.stay, frontier, CANDIDATES)
        numbers, left = self._graph(self._round(trim.Gathered, stage, "gathering what is left"))
        first = self.property.predicates[0]
        must = ~left.true(first) if self.property.kind == "eventually_always" else None
        far = self._distances(numbers) if self.far is not None else None
        found = FairCycles(left, np.ones(len(left), bool), must, far).found()
        if found is None:
            return None
        end, loop = found
        stem = self._stem(int(numbers[end]), int(far[end]) if far is not None else None)
        states = (*stem, *(int(left.fingerprints[n]) for n in loop))
        return Lasso(self.property, states, len(stem) - 1)

    # -- where it can be violated
    # ---------------------------------------------------------------------------------------

    def _region(self) -> Bits | None:
        """The states in which the property can be violated for ever; None if there are none."""
        begun = self._round(trim.Begun, trim.Begin(self.ask, self.property), "where it can be violated")
        region = tuple(one.bits for one in begun)
        states = sum(one.states for one in begun)
        self.figures["region"] = states
        if self.property.kind != "leads_to":
            self.stay = min(one.stay for one in begun)
            return region if states else None
        awaited = self._awaited({level for one in begun for level in one.pending})
        self.judge.drop(region)
        return awaited

    def _awaited(self, pending: set[int]) -> Bits | None:
        """Follow what is awaited step by step through all states in which it is. ``pending``: levels at which it begins
        to be.
        """
        self.far = {}
        frontier: Bits | None = None
        reached: Bits | None = None
        distance, states = 0, 0
        while frontier is not None or any(level >= distance for level in pending):
            if frontier is None:
                distance = min(level for level in pending if level >= distance)
            stage = trim.SpreadOn(self.ask, self.property, distance, frontier, reached)
            told = self._round(trim.Spread, stage, f"{states:,} states in which it is awaited")
            self.judge.drop(reached or ())
            reached = tuple(one.reached for one in told)
            new = sum(one.found for one in told)
            states += new
            frontier = tuple(one.frontier for one in told) if new else None
            if frontier is not None:
                self.far[distance] = frontier
            if self.stay == NOWHERE and any(one.stays for one in told):
                self.stay = distance
            distance += 1
        self.figures["region"] = states
        return reached

    # -- trimming -----------------------------------------------------------------------------------------------------

    def _trimmed(self, alive: Bits) -> tuple[Bits | None, Ask]:
        """What is left of a set when it fits, with the steps in it; None if there is no fair cycle. Raises
        :class:`TooLarge`.
        """
        terms, figures, ask = self.terms, self.figures, self.ask
        low, high, starved = 0, NOWHERE, np.zeros_like(terms.strong)
        keep: Bits | None = None
        spared: int | None = None
        before: Any = None
        left = figures["region"]
        needs_left: list[tuple[Need, bool]] = []
        untried = True
        while True:
            stage = trim.Trim(ask, self.property, alive, low, high, starved, keep, spared)
            told = self._round(trim.Trimmed, stage, f"{left:,} states left")
            self.judge.drop((*alive, *(keep or ())))
            alive, ask = tuple(one.bits for one in told), self._smaller(ask, told)
            left, steps = sum(one.states for one in told), sum(one.steps for one in told)
            figures["left"], figures["steps"] = left, steps
            stepped, missing, somewhere = (
                np.bitwise_or.reduce(np.array([getattr(one, name) for one in told], np.uint64), axis=0)
                for name in ("stepped", "missing", "somewhere")
            )
            if not any(one.must for one in told) or (terms.weak & ~missing & ~stepped).any():
                figures["left"] = figures["steps"] = 0
                return None, ask
            if fits(terms, left, steps, self.judge.limit):
                return alive, ask
            low, high = min(one.low for one in told), max(one.high for one in told)
            starved = terms.strong & somewhere & ~stepped
            now = (left, low, high, starved.tolist())
            keep, spared = None, None
            if now != before:
                untried = untried or (before is not None and now[0] != before[0])
                before = now
                continue
            while keep is None:
                if not needs_left and untried:
                    needs_left, untried = self._needs(), False
                if not needs_left:
                    raise TooLarge(self._too_large(left, steps))
                need, onward = needs_left.pop(0)
                keep = self._reaching(ask, alive, need, onward, left, steps)
            spared = need[1] if need[0] == "strong" else None

    def _too_large(self, left: int, steps: int) -> str:
        return (
            f"the memory limit of {self.judge.limit:,} bytes has no room for the {left:,} states and {steps:,} steps"
            f" that trimming has left for {self.property.title}"
        )

    def _smaller(self, ask: Ask, told: Sequence[trim.Trimmed]) -> Ask:
        """The steps as they are now, where tasks have written fewer."""
        out = tuple(one.out or held for one, held in zip(told, ask.out, strict=True))
        into = tuple(one.into or held for one, held in zip(told, ask.into, strict=True))
        kept = {steps.file for steps in (*out, *into, *self.ask.out, *self.ask.into)}
        self.judge.drop({steps.file for steps in (*ask.out, *ask.into)} - kept)
        return msgspec.structs.replace(ask, out=out, into=into)

    def _needs(self) -> list[tuple[Need, bool]]:
        """What a fair cycle comes by, each with whether it is to be looked onward from there, or back."""
        found: list[tuple[Need, bool]] = []
        if self.property.kind == "eventually_always":
            found += [(("must", 0), False), (("must", 0), True)]
        for number, demand in enumerate(self.terms.requirements):
            # Of a cycle that keeps away from a strong demand's states, none is looked for; those are spared.
            found += (
                [(("strong", number), False)]
                if demand.strong
                else [(("weak", number), False), (("weak", number), True)]
            )
        return found

    def _reaching(self, ask: Ask, alive: Bits, need: Need, onward: bool, left: int, steps: int) -> Bits | None:
        """The states of a set from which (or, ``onward``, to which) steps within it lead to (from) what a fair cycle
        needs; None if it is all of them.
        """
        told = self._round(
            trim.Grown, trim.Seed(ask, self.property, alive, need), f"{left:,} states left, what a fair cycle needs"
        )
        grown, many = tuple(one.bits for one in told), sum(one.more for one in told)
        more = many
        while more and many < left:
            if self.figures["rounds"] >= MOST_ROUNDS:
                raise TooLarge(self._too_large(left, steps))
            told = self._round(
                trim.Grown, trim.Grow(ask, alive, grown, onward), f"{left:,} states left, which come by what is needed"
            )
            self.judge.drop(grown)
            grown, more = tuple(one.bits for one in told), sum(one.more for one in told)
            many += more
        return grown if many < left else None

    # -- judging what is left -----------------------------------------------------------------------------------------

    def _graph(self, told: Sequence[trim.Gathered]) -> tuple[Array, Graph]:
        """What is left as a graph, its states by level and fingerprint, and their numbers on Spark."""
        terms, read = self.terms, []
        for one in told:
            columns, offset = [], 0
            layout = (
                (np.int64, 1),
                (np.uint64, 1),
                (np.int64, 1),
                (np.uint64, terms.words),
                (np.uint64, terms.truth_words),
            )
            of_steps = (np.int64, 1), (np.int64, 1), (np.uint16, 1)
            for of, count in ((layout, one.states), (of_steps, one.steps)):
                for dtype, width in of:
                    columns.append(self.storage.read(one.file, dtype, offset, count * width).reshape(-1, width))
                    offset += count * width * np.dtype(dtype).itemsize
            read.append(columns)
        numbers, fingerprints, levels, enabled, truths, sources, targets, kinds = (
            np.concatenate([columns[k] for columns in read]) for k in range(8)
        )
        numbers, fingerprints, levels, sources, targets, kinds = (
            column[:, 0] for column in (numbers, fingerprints, levels, sources, targets, kinds)
        )
        order = np.lexsort((fingerprints, levels))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        # Parts are told in order, and numbers ascend in each.
        inside = np.searchsorted(numbers, targets)
        inside[inside == len(numbers)] = 0
        both = numbers[inside] == targets if len(numbers) else np.zeros(0, bool)
        sources, targets, kinds, inside = sources[both], targets[both], kinds[both], inside[both]
        sources = place[np.searchsorted(numbers, sources)]
        # Numbers ascend with fingerprints, by which the steps of a state are in order.
        by_source = np.lexsort((kinds, targets, sources))
        depth = len(self.judge.notes.levels)
        return numbers[order], Graph(
            terms,
            fingerprints[order],
            np.searchsorted(levels[order], np.arange(depth + 1)),
            np.searchsorted(sources[by_source], np.arange(len(order) + 1)),
            place[inside[by_source]].astype(np.int32),
            kinds[by_source],
            enabled[order],
            truths[order],
        )

    def _distances(self, numbers: Array) -> Array:
        """How many steps after the start leads-to is awaited in these states."""
        assert self.far is not None
        found = np.full(len(numbers), -1, np.int32)
        for distance, bits in self.far.items():
            found[graph.members(graph.read_bits(self.storage, self.ask.parts, bits), numbers)] = distance
        return found

    def _stem(self, number: int, distance: int | None) -> list[int]:
        """The fingerprints of a shortest way from an initial state to a state, by the first of all states that are on
        one.
        """
        level, path = self._level(number), [self._fingerprint(number)]
        if distance is not None:
            assert self.far is not None
            while distance != level or not self._pending(number):
                distance -= 1
                words = graph.read_bits(self.storage, self.ask.parts, self.far[distance])
                sources = self._sources(number)
                number = min(sources[graph.members(words, sources)].tolist(), key=lambda n: (self._level(n), n))
                level = self._level(number)
                path.insert(0, self._fingerprint(number))
        while level > 0:
            level -= 1
            number = min(n for n in self._sources(number).tolist() if self._level(n) == level)
            path.insert(0, self._fingerprint(number))
        return path

    def _part(self, number: int) -> int:
        return int(np.searchsorted([part.first for part in self.ask.parts], number, side="right")) - 1

    def _state(self, number: int) -> graph.States:
        part = self.ask.parts[self._part(number)]
        return graph.read_states(self.storage, part, self.ask.terms, number - part.first, 1)

    def _level(self, number: int) -> int:
        return int(self._state(number).levels[0])

    def _fingerprint(self, number: int) -> int:
        return int(self._state(number).fingerprints[0])

    def _pending(self, number: int) -> bool:
        return bool(trim.where(self._state(number), self.property, self.ask).pending[0])

    def _sources(self, number: int) -> Array:
        part = self._part(number)
        return graph.sources_of(self.storage, self.ask.parts[part], self.ask.into[part], number).astype(np.int64)
