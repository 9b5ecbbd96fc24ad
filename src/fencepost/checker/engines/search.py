"""The search behind every engine: breadth first, level by level, with limits, counts, violations and progress.

:class:`Search` owns everything that the result consists of. An :class:`Executor` expands levels in its own way, and
reports each as a :class:`Level`. The result is the same for every executor and any number of workers:

- The level of the first violation is finished.
- The parent of a state is the least (parent fingerprint, action, choices). That step counts as the one that discovered
  the state. With a view or symmetry, the state found by that step stands for all equivalent ones.
- Of several violations of one property in a level, the one with the least (fingerprint, action, choices) is reported.
  The same rule applies to witnesses.
- A search that looks only for witnesses ends with the level in which the last one is found.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.checker.engines.interface import Exploration, Found, Progress, Report, TableWriter
from fencepost.checker.engines.options import SearchOptions
from fencepost.checker.engines.resources import limit_reached, peak_memory, resident_memory
from fencepost.checker.engines.witnesses import reported_as, sought
from fencepost.errors import ProtocolRaised, SystemFailure
from fencepost.language.seam import language_of
from fencepost.semantics import LimitReached, Root, State, Stepper, Symmetry
from fencepost.text import numbers

if TYPE_CHECKING:
    from fencepost.checker.liveness.graph import Recording

SAMPLE = 8
"""States of each level that checking mode evaluates again, spread evenly over the level by fingerprint."""
TICK = 0.1
"""Seconds between two checks of the limits, and between two reports."""

Step = tuple[int, tuple[int, ...]]
"""A step of a path: the number of the action and the numbers of its choices."""
StatePath = tuple[State, list[Step]]
"""A path to a state: an initial state, and the steps from it."""


class Evidence(NamedTuple):
    """A violation or a witness met in a level: in the state ``at``, or in the ``step`` out of that state.

    ``root``: the property, None for a deadlock. For each name, the evidence with the least ``rank`` is reported.
    ``at``: the executor's identifier of a state, as :meth:`Executor.path` takes it.
    """

    root: Root | None
    rank: tuple[Any, ...]
    at: Any
    step: Step | None = None


class Raised(NamedTuple):
    """An error of the author's Python, and the executor's identifier of the state in which it was raised."""

    error: ProtocolRaised
    at: Any


class Level(NamedTuple):
    """A level that was built.

    ``frontier``: the number of states to be expanded. ``failed``: the number of further states, found but not judged
    because the author's Python ``raised``.
    """

    frontier: int
    failed: int = 0
    raised: Raised | None = None


class Tally(NamedTuple):
    """How often each action was taken, and how many distinct states it discovered, by root number. ``cut``: the steps
    that step constraints cut.
    """

    taken: Mapping[int, int]
    new: Mapping[int, int]
    cut: int = 0


@dataclass
class SavedSearch:
    """Everything that a search knows at the end of a level except its states. A checkpoint keeps it.

    ``seconds``: how long the search has taken. ``queue``: the number of states to be expanded. ``seeks``: whether the
    search ends with the last witness. ``exact``: whether states were counted exactly once up to symmetry.
    """

    depth: int = 0
    distinct: int = 0
    generated: int = 0
    queue: int = 0
    seconds: float = 0.0
    taken: dict[int, int] = field(default_factory=dict)
    new: dict[int, int] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    seeks: bool = True
    exact: bool = True


class Executor:
    """Expands the levels of a search one after the other, and passes each to :meth:`Search.take`. Before that, it
    passes all violations and witnesses that it meets to :meth:`Search.meet`.

    ``divisible``: whether a limit can end a level before it is complete.
    """

    divisible = True

    def begin(self) -> None:
        """Build the first level: the initial states, or the last level of a checkpoint or another executor."""
        raise NotImplementedError

    def expand(self) -> bool:
        """Expand the frontier into the next level. Returns whether that level is complete and was taken."""
        raise NotImplementedError

    def path(self, at: Any) -> StatePath:
        """The path to a state."""
        raise NotImplementedError

    def tally(self) -> Tally:
        """The counts of all actions since :meth:`begin`."""
        raise NotImplementedError

    def relief(self) -> Executor | None:
        """Another executor to take over before the next level, or None."""
        return None

    def finish(self) -> None:
        """Finish the work after the last level."""

    def partial(self) -> tuple[int, int]:
        """The number of states found of an incomplete level, and the number of frontier states expanded."""
        return 0, 0

    def locate(self, error: ProtocolRaised) -> Any:
        """The identifier of the state in which the author's Python raised an error that ends the search. None if it was
        not in a state, or if the state is part of a level.
        """
        return None

    def save(self) -> None:
        """Save the last complete level, if checkpoints are on and it is not saved yet."""

    def progress(self) -> dict[str, Any]:
        """Fields of :class:`Progress` that only this executor knows."""
        return {}

    def profile(self) -> dict[str, object]:
        """The figures that the profile of the result shows."""
        return {}


class Search:
    """One exploration: what it looks for, what it has found, and when it ends.

    ``queue``: the number of frontier states. ``result``: complete when :meth:`run` returns. ``recording``: the graph on
    which temporal properties are judged, if there are any. ``table``: writes the state space, if requested.
    """

    def __init__(
        self, stepper: Stepper, options: SearchOptions, report: Report | None = None, table: TableWriter | None = None
    ) -> None:
        self.stepper = stepper
        self.options = options
        self.report = report
        self.table = table
        self.symmetry = Symmetry(stepper, options.symmetry) if options.symmetry else None
        self.result = Exploration(symmetry=self.symmetry)
        self.names = reported_as(stepper, self.symmetry)
        self.sought = sought(stepper, options, self.names)
        self.reported: set[str] = set()
        self.recording: Recording | None = _recording(stepper)
        self.memory_limit = options.max_memory
        self.queue = 0
        self.has_raised = False
        self._met: dict[str, Evidence] = {}
        self.earlier = SavedSearch()
        self.started = time.monotonic()
        self._reported_at = self._looked_at = 0.0
        self._most_reported = 0

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self, executor: Executor) -> Exploration:
        """Explore. Limits, violations and errors of the protocol end it early, and are in the result."""
        result = self.result
        self.executor = executor
        with end_recorded(result, self.stepper):
            try:
                while self._run_until_relieved():
                    pass
                result.complete = not self.queue and result.limit is None and not self.has_raised
                self.executor.finish()
            except ProtocolRaised as error:
                result.raised = error
                at = self.executor.locate(error)
                if at is not None:
                    result.raised_at = self.found("raised", error.where, at)
        try:
            self.executor.save()
        except SystemFailure as error:
            result.failure = result.failure or error
        self._conclude()
        return result

    def _run_until_relieved(self) -> bool:
        """Expand level after level. Returns whether another executor takes over."""
        executor = self.executor
        is_limited = self.options.timeout is not None or self.memory_limit is not None
        with self.stepper.deadline.limits(self.limit_reached if is_limited else None, executor.divisible):
            executor.begin()
            while self.queue and not self.is_finished():
                relief = executor.relief()
                if relief is not None:
                    self.executor = relief
                    return True
                if not executor.expand():
                    break
        return False

    def note_level(self, found: int) -> None:
        """The level that is being expanded has led to ``found`` new states."""
        model = self.stepper.protocol
        language_of(model).note_level(model, self.result.depth, found)

    def _conclude(self) -> None:
        result = self.result
        discovered, expanded = self.executor.partial()
        self.judge()
        result.within_level = bool(discovered or expanded)
        result.distinct += discovered
        result.queue = self.queue + discovered - expanded
        self.count()
        result.seconds_before = self.earlier.seconds
        result.seconds = self.seconds
        result.evaluations = self.stepper.evaluations
        result.peak_memory = peak_memory()
        result.profile = self.executor.profile()

    @property
    def symmetric(self) -> list[str]:
        """The constants up to whose symmetry states are counted."""
        return [] if self.symmetry is None else list(self.symmetry.names)

    @property
    def seconds(self) -> float:
        """How long the search has taken, including the earlier runs that it resumes."""
        return self.earlier.seconds + time.monotonic() - self.started

    # -- levels -------------------------------------------------------------------------------------------------------

    def initial_states(self) -> Iterator[State]:
        """The initial states. Counts each as generated."""
        states = self.stepper.initial_states()
        self.count_starts(self.stepper.starts, len(states))
        yield from states

    def count_starts(self, ways: int, states: int) -> None:
        """Count the ways to begin, or the initial states."""
        self.earlier.generated += ways if language_of(self.stepper.protocol).counts_as_tlc else states

    def take(self, level: Level) -> None:
        """Make a complete level the frontier."""
        result = self.result
        self.judge()
        self.queue = level.frontier
        result.distinct += level.frontier + level.failed
        if level.frontier or (not result.depth and self.earlier.generated):
            result.depth += 1
        if level.raised is not None:
            self.has_raised = True
            if not result.found or self.options.keep_going:
                result.raised = level.raised.error
                result.raised_at = self.found("raised", level.raised.error.where, level.raised.at)

    def meet(self, evidence: Evidence) -> None:
        """Add a violation or a witness. It is reported with its level if it is the least one of its name."""
        name = "deadlock" if evidence.root is None else self.names[evidence.root.index]
        least = self._met.get(name)
        if name not in self.reported and (least is None or evidence.rank < least.rank):
            self._met[name] = evidence

    def judge(self) -> None:
        """Add the violations and witnesses met to the result, in the order of properties."""
        for name in sorted(self._met, key=self._place):
            root, _, at, step = self._met[name]
            kind, title = ("deadlock", name) if root is None else (root.kind, root.reported)
            self.result.add(self.found(kind, title, at, step))
            self.reported.add(name)
        self._met.clear()

    def _place(self, name: str) -> int:
        return self.names.index(name) if name in self.names else len(self.names)

    def found(self, kind: str, name: str, at: Any, step: Step | None = None) -> Found:
        """A violation or a witness, with the path to the state ``at`` and the ``step`` out of it, if any."""
        initial, path = self.executor.path(at)
        return Found(kind, name, initial, path if step is None else [*path, step])

    @property
    def expands_next(self) -> bool:
        """Whether the states of the level being built will be expanded: not in the last level of a depth limit."""
        return self.options.max_depth is None or self.result.depth + 1 < self.options.max_depth

    # -- limits and counts --------------------------------------------------------------------------------------------

    def is_finished(self) -> bool:
        """Whether to expand no further level: because of a violation, an error or a limit, or because all witnesses are
        found.
        """
        options, result = self.options, self.result
        if result.limit is not None or result.raised is not None:
            return True
        if (result.found and not options.keep_going) or (self.sought and self.sought <= self.reported):
            return True
        if options.max_depth is not None and result.depth >= options.max_depth:
            result.limit = f"the depth limit of {options.max_depth:,}"
            return True
        return self.watch(result.distinct, self.queue)

    def watch(self, distinct: int, queue: int) -> bool:
        """Check the limits, and report progress. Returns whether a limit is reached."""
        options, result = self.options, self.result
        # A state may turn out to be outside a constraint after it was reported. Reported counts never decrease.
        distinct = self._most_reported = max(distinct, self._most_reported)
        if result.limit is None:
            if options.max_states is not None and distinct >= options.max_states:
                result.limit = f"the limit of {numbers.plural(options.max_states, 'state')}"
            else:
                result.limit = self.limit_reached()
        self.report_progress(distinct, queue)
        return result.limit is not None

    def report_progress(self, distinct: int, queue: int, at_once: bool = False) -> None:
        """Report progress, unless there was a report a moment ago."""
        now = time.monotonic()
        if self.report is None or (now - self._reported_at < TICK and not at_once):
            return
        self._reported_at = now
        self.count()
        self.report(
            Progress(
                generated=self.result.generated,
                distinct=distinct,
                depth=self.result.depth,
                queue=queue,
                seconds=now - self.started,
                memory=resident_memory(),
                evaluations=self.stepper.evaluations,
                **self.executor.progress(),
            )
        )

    def report_doing(self, doing: str) -> None:
        """Report work that follows the exploration."""
        if self.report is not None:
            result = self.result
            self.report(Progress(distinct=result.distinct, depth=result.depth, seconds=self.seconds, doing=doing))

    def limit_reached(self) -> str | None:
        """The limit on time or memory that is reached, or None."""
        now = time.monotonic()
        looks = now - self._looked_at >= TICK  # reading the memory use takes as long as an evaluation in Python
        if looks:
            self._looked_at = now
        return limit_reached(self.stepper.deadline, self.options.timeout, self.memory_limit if looks else None)

    def count(self) -> None:
        """Update the counts of the result, by action."""
        result, earlier, tally = self.result, self.earlier, self.executor.tally()
        roots = range(len(self.stepper.roots))
        result.taken = {root: tally.taken.get(root, 0) + earlier.taken.get(root, 0) for root in roots}
        result.new = {root: tally.new.get(root, 0) + earlier.new.get(root, 0) for root in roots}
        result.generated = earlier.generated + sum(tally.taken.values())
        if language_of(self.stepper.protocol).counts_as_tlc:
            result.generated += tally.cut

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def kept(self) -> SavedSearch:
        """What a checkpoint keeps of the search besides its states."""
        self.count()
        result = self.result
        return SavedSearch(
            depth=result.depth,
            distinct=result.distinct,
            generated=result.generated,
            queue=self.queue,
            seconds=self.seconds,
            taken=dict(result.taken),
            new=dict(result.new),
            found=[*result.found, *result.witnesses],
            reported=sorted(self.reported),
            seeks=bool(self.sought),
            exact=self.symmetry is None or self.symmetry.exact,
        )

    def restore(self, kept: SavedSearch) -> None:
        """Restore the state before the last level of a checkpoint. The executor builds that level from the checkpoint
        and passes it to :meth:`take` like any other, so its states are judged as in a search without interruption.
        """
        result = self.result
        result.distinct, result.generated = kept.distinct - kept.queue, kept.generated
        result.depth = kept.depth - bool(kept.queue)
        self.earlier, self.reported = kept, set(kept.reported)
        if not kept.seeks:
            self.sought = frozenset()
        if self.symmetry is not None and not kept.exact:
            self.symmetry.exact = False
        for found in kept.found:
            result.add(found)


@contextmanager
def end_recorded(result: Exploration, stepper: Stepper) -> Iterator[None]:
    """Run an exploration, and record in the result if a limit, an interrupt or a failure ends it."""
    try:
        yield
    except LimitReached:
        result.limit = stepper.deadline.reached
    except KeyboardInterrupt:
        result.interrupted = True
    except SystemFailure as error:
        result.failure = error
    except MemoryError:
        result.failure = SystemFailure(
            "out of memory: set {max_memory} below what the machine has, to stop in time", "max_memory"
        )


def _recording(stepper: Stepper) -> Recording | None:
    """An empty recording if there are temporal properties. A check without any does not import the libraries."""
    if not stepper.promises:
        return None
    from fencepost.checker.liveness.graph import Recording

    return Recording(stepper)
