"""The search behind every engine: breadth first, level by level, with limits, counts, violations and progress.

:class:`Search` owns all that the answer consists of. An :class:`Executor` expands levels, in whatever way it is fast,
and reports each as a :class:`Level`. The answer is the same from every executor, whatever the number of workers:

- the level of the first violation is finished;
- the parent of a state is its least (parent fingerprint, action, choices), which is also the step that counts as having
  discovered the state; with a view, or with symmetry, the state found by that step stands for all that look like it;
- of several violations of one property in a level the one with the least (fingerprint, action, choices) is reported,
  and so it is with witnesses;
- a search that looks for witnesses alone ends with the level in which the last of them is found.
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
from fencepost.language.declarations import TEMPORAL
from fencepost.semantics import LimitReached, Root, State, Stepper, Symmetry
from fencepost.text import numbers

if TYPE_CHECKING:
    from fencepost.checker.liveness.graph import Recording

SAMPLE = 8
"""States of each level that checking mode looks at again: spread evenly over the level, in the order of fingerprints.
"""
TICK = 0.1
"""Seconds between two looks at the limits, and between two reports."""

Step = tuple[int, tuple[int, ...]]
"""A step of a path: the number of the action and the numbers of its choices."""
StatePath = tuple[State, list[Step]]
"""A way to a state: an initial state, and the steps from there."""


class Evidence(NamedTuple):
    """A violation or a witness that was met in a level: in the state ``at``, or by the ``step`` out of that state.

    ``root`` is the property; a deadlock has none. Of several pieces of evidence for one name the one with the least
    ``rank`` is reported. ``at`` is the executor's own name of a state, as :meth:`Executor.path` takes it.
    """

    root: Root | None
    rank: tuple[Any, ...]
    at: Any
    step: Step | None = None


class Raised(NamedTuple):
    """An error of the author's Python, and the executor's name of the state it was raised in."""

    error: ProtocolRaised
    at: Any


class Level(NamedTuple):
    """A level that was built.

    ``frontier``: states that are to be expanded; ``failed``: states besides, which are found but could not be judged as
    the author's Python ``raised``.
    """

    frontier: int
    failed: int = 0
    raised: Raised | None = None


class Tally(NamedTuple):
    """How often each action was taken, and how many distinct states it discovered, by the number of its root."""

    taken: Mapping[int, int]
    new: Mapping[int, int]


@dataclass
class Kept:
    """All that a search knows at the end of a level but its states: what a checkpoint keeps of it.

    ``seconds`` is how long the search has taken, ``queue`` how many states wait to be expanded. ``seeks``: whether it
    ends with the last witness; ``exact``: whether states were counted once up to symmetry.
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
    """Expands the levels of a search, one after the other, and passes each to :meth:`Search.take`. All violations and
    witnesses that it comes upon it passes to :meth:`Search.meet`, before that.

    ``divisible``: whether a limit can end a level before it is complete.
    """

    divisible = True

    def begin(self) -> None:
        """Build the first level: the initial states, or the level that a checkpoint or another executor ended with."""
        raise NotImplementedError

    def expand(self) -> bool:
        """Expand the frontier into the next level; whether the level is complete, and was taken."""
        raise NotImplementedError

    def path(self, at: Any) -> StatePath:
        """The way to a state."""
        raise NotImplementedError

    def tally(self) -> Tally:
        """The actions of all levels since :meth:`begin`."""
        raise NotImplementedError

    def relief(self) -> Executor | None:
        """Another executor that takes over before the next level, if one has to."""
        return None

    def finish(self) -> None:
        """Do what is left to be done when no further level is expanded."""

    def partial(self) -> tuple[int, int]:
        """How many states were found of a level that is not complete, and how many of the frontier are expanded."""
        return 0, 0

    def locate(self, error: ProtocolRaised) -> Any:
        """The name of the state in which the author's Python raised an error that ends the search; None if there is
        none, or if the state is part of a level.
        """
        return None

    def save(self) -> None:
        """Save the last complete level, if there is to be a checkpoint and it is not in there."""

    def progress(self) -> dict[str, Any]:
        """Fields of :class:`Progress` that only this executor knows."""
        return {}

    def profile(self) -> dict[str, object]:
        """The figures that the profile of the result shows."""
        return {}


class Search:
    """One exploration: what is looked for, what was found, and when it ends.

    ``queue``: states of the frontier. ``result`` is complete when :meth:`run` comes back. ``recording`` is the graph
    that temporal properties are judged on, if there are any; ``table`` writes the state space down, if it is to be.
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
        self.earlier = Kept()
        self.started = time.monotonic()
        self._reported_at = self._looked_at = 0.0
        self._most_reported = 0

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self, executor: Executor) -> Exploration:
        """Explore. Limits, violations and errors of the protocol end it early and are part of what was found."""
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
        """Expand level after level; whether another executor takes over."""
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
        """How long the search has taken, those runs included that it goes on from."""
        return self.earlier.seconds + time.monotonic() - self.started

    # -- levels -------------------------------------------------------------------------------------------------------

    def initial_states(self) -> Iterator[State]:
        """The initial states, each of which is counted as generated."""
        for state in self.stepper.initial_states():
            self.earlier.generated += 1
            yield state

    def take(self, level: Level) -> None:
        """Make a level that is complete the frontier."""
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
        """A violation or a witness: it is reported with its level if there is none of its name that comes before it."""
        name = "deadlock" if evidence.root is None else self.names[evidence.root.index]
        least = self._met.get(name)
        if name not in self.reported and (least is None or evidence.rank < least.rank):
            self._met[name] = evidence

    def judge(self) -> None:
        """Report the violations and witnesses that were met, in the order of properties."""
        for name in sorted(self._met, key=self._place):
            root, _, at, step = self._met[name]
            kind, title = ("deadlock", name) if root is None else (root.kind, root.reported)
            self.result.add(self.found(kind, title, at, step))
            self.reported.add(name)
        self._met.clear()

    def _place(self, name: str) -> int:
        return self.names.index(name) if name in self.names else len(self.names)

    def found(self, kind: str, name: str, at: Any, step: Step | None = None) -> Found:
        """A violation or a witness, with the way to the state ``at`` and the ``step`` out of it, if there is one."""
        initial, path = self.executor.path(at)
        return Found(kind, name, initial, path if step is None else [*path, step])

    @property
    def expands_next(self) -> bool:
        """Whether the states of the level being built will be expanded: not in the last level of a depth limit."""
        return self.options.max_depth is None or self.result.depth + 1 < self.options.max_depth

    # -- limits and counts --------------------------------------------------------------------------------------------

    def is_finished(self) -> bool:
        """Whether no further level is expanded: for a violation, an error or a limit, or as all that was sought is
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
        """Look at the limits, and report how far the search is; whether a limit is reached."""
        options, result = self.options, self.result
        # A state that was found may turn out to be outside a constraint: no report takes anything back.
        distinct = self._most_reported = max(distinct, self._most_reported)
        if result.limit is None:
            if options.max_states is not None and distinct >= options.max_states:
                result.limit = f"the limit of {numbers.plural(options.max_states, 'state')}"
            else:
                result.limit = self.limit_reached()
        self.report_progress(distinct, queue)
        return result.limit is not None

    def report_progress(self, distinct: int, queue: int, at_once: bool = False) -> None:
        """Report how far the search is, unless that was done a moment ago."""
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
        """Report what is done after exploring."""
        if self.report is not None:
            result = self.result
            self.report(Progress(distinct=result.distinct, depth=result.depth, seconds=self.seconds, doing=doing))

    def limit_reached(self) -> str | None:
        """The limit on time or memory that is reached."""
        now = time.monotonic()
        looks = now - self._looked_at >= TICK  # at the memory: that takes as long as an answer of Python
        if looks:
            self._looked_at = now
        return limit_reached(self.stepper.deadline, self.options.timeout, self.memory_limit if looks else None)

    def count(self) -> None:
        """Add up what was counted, by action."""
        result, earlier, tally = self.result, self.earlier, self.executor.tally()
        roots = range(len(self.stepper.roots))
        result.taken = {root: tally.taken.get(root, 0) + earlier.taken.get(root, 0) for root in roots}
        result.new = {root: tally.new.get(root, 0) + earlier.new.get(root, 0) for root in roots}
        result.generated = earlier.generated + sum(tally.taken.values())

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def kept(self) -> Kept:
        """The part of the search that a checkpoint keeps besides its states."""
        self.count()
        result = self.result
        return Kept(
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

    def restore(self, kept: Kept) -> None:
        """Go back to before the last level of what a checkpoint has kept. The executor builds that level from the
        checkpoint, and passes it to :meth:`take` like any other: what is asked of its states is what a search asks that
        comes to it without a break.
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
    """Run what is explored, and record in the result if a limit, an interrupt or a failure ends it."""
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
    """The graph, if there are temporal properties; a check without any needs no libraries."""
    if not stepper.of_kind(*TEMPORAL):
        return None
    from fencepost.checker.liveness.graph import Recording

    return Recording(stepper)
