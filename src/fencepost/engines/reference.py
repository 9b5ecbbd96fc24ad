"""The plain explorer: breadth first, one state at a time, the author's Python at every step. The yardstick for the others.

Nothing here is clever, so that it can be read and believed. It answers small protocols before a compiler would have started.
"""

from __future__ import annotations

import resource
import time

from fencepost.engines.interface import Exploration, Found, Options, Progress, Report
from fencepost.errors import ProtocolRaised
from fencepost.step import State, Stepper
from fencepost.step.state import LOW

Row = tuple[int, ...]
Link = tuple[int, int, tuple[int, ...]]
"""How a state was discovered: the fingerprint of its parent, the number of the action, the numbers of its choices."""


def explore(stepper: Stepper, options: Options, report: Report | None = None) -> Exploration:
    """Explore every reachable state. Limits, violations and errors of the protocol end it early and are reported."""
    return _Search(stepper, options, report).run()


class _Search:
    def __init__(self, stepper: Stepper, options: Options, report: Report | None) -> None:
        self.stepper = stepper
        self.options = options
        self.report = report
        self.result = Exploration(taken={r.index: 0 for r in stepper.roots}, new={r.index: 0 for r in stepper.roots})
        self.constraints = stepper.of_kind("constraint")
        self.invariants = stepper.of_kind("invariant")
        self.step_constraints = stepper.of_kind("step_constraint")
        self.step_invariants = stepper.of_kind("step_invariant")
        self.actions = stepper.of_kind("action")
        self.links: dict[int, Link | None] = {}
        self.rows: dict[int, Row] = {}
        self.starts: dict[int, Row] = {}
        self.broken: dict[str, tuple[tuple[int, int, tuple[int, ...]], Found]] = {}
        self.reported: set[str] = set()
        self.started = time.monotonic()
        self.told = 0.0

    def run(self) -> Exploration:
        result = self.result
        level: list[int] = []
        try:
            level = self._initial()
            while level and not self._finished(len(level)):
                level = self._next(level)
            result.complete = not level and result.limit is None
        except ProtocolRaised as error:
            result.raised = error
            if isinstance(error.state, State):
                at = self._fingerprint(error.state.ids)
                if at in self.links:
                    result.raised_at = self._found("raised", error.where, at)
        except KeyboardInterrupt:
            result.interrupted = True
        self._end_level()
        result.queue = len(level)
        result.seconds = time.monotonic() - self.started
        result.evaluations = self.stepper.evaluations
        result.peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return result

    def _fingerprint(self, row: Row) -> int:
        # The low half is the more significant one, so that 128 bits only break the ties of 64.
        found = self.stepper.store.fingerprint(row)
        return found & LOW if self.options.bits == 64 else (found & LOW) << 64 | found >> 64

    def _initial(self) -> list[int]:
        level = []
        for state in self.stepper.initial_states():
            self.result.generated += 1
            found = self._fingerprint(state.ids)
            if found not in self.links and self._admit(found, state.ids, None):
                level.append(found)
        if level or self.links:
            self.result.depth = 1
        self._end_level()
        return sorted(level)

    def _next(self, level: list[int]) -> list[int]:
        """Expand a level, states in the order of their fingerprints: the first step to reach a state is then the least."""
        discovered: list[int] = []
        for done, parent in enumerate(level):
            self._tell(len(level) - done + len(discovered))
            for successor in self._expand(parent):
                discovered.append(successor)
        if discovered:
            self.result.depth += 1
        self._end_level()
        return sorted(discovered)

    def _expand(self, parent: int) -> list[int]:
        discovered = []
        row = self.rows.pop(parent)
        alive = False
        for root in self.actions:
            for outcome in sorted(self.stepper.outcomes(root, row), key=lambda o: o.choices):
                alive = True
                after = self.stepper.apply(row, outcome)
                if any(self.stepper.outcomes(c, row, after) for c in self.step_constraints):
                    continue
                self.result.generated += 1
                self.result.taken[root.index] += 1
                link = (parent, root.index, outcome.choices)
                for broken in self.step_invariants:
                    if self.stepper.outcomes(broken, row, after):
                        self._violated("step_invariant", broken.name, link, self._found("", "", parent), link[1:])
                found = self._fingerprint(after)
                if found not in self.links and self._admit(found, after, link):
                    self.result.new[root.index] += 1
                    discovered.append(found)
        if not alive and self.options.deadlock:
            self._violated("deadlock", "deadlock", (parent, -1, ()), self._found("", "", parent))
        return discovered

    def _admit(self, found: int, row: Row, link: Link | None) -> bool:
        """Record a state seen for the first time and check it; whether it counts and is to be expanded."""
        self.links[found] = link
        if link is None:
            self.starts[found] = row
        inside = all(not self.stepper.outcomes(c, row) for c in self.constraints)
        for root in self.invariants:
            if self.stepper.outcomes(root, row):
                self._violated("invariant", root.name, (found, -1, ()), self._found("", "", found))
        if inside:
            self.rows[found] = row
            self.result.distinct += 1
        return inside

    # -- violations ---------------------------------------------------------------------------------------------------

    def _violated(
        self, kind: str, name: str, order: Link, at: Found, last: tuple[int, tuple[int, ...]] | None = None
    ) -> None:
        if name in self.reported:
            return
        best = self.broken.get(name)
        if best is None or order < best[0]:
            path = [*at.path, last] if last is not None else at.path
            self.broken[name] = (order, Found(kind, name, at.initial, path))

    def _end_level(self) -> None:
        for name, (_, found) in sorted(self.broken.items(), key=lambda item: self._rank(item[0])):
            self.result.found.append(found)
            self.reported.add(name)
        self.broken = {}

    def _rank(self, name: str) -> int:
        return next((r.index for r in self.stepper.roots if r.name == name), len(self.stepper.roots))

    def _found(self, kind: str, name: str, at: int) -> Found:
        path: list[tuple[int, tuple[int, ...]]] = []
        link = self.links[at]
        while link is not None:
            at, action, choices = link
            path.append((action, choices))
            link = self.links[at]
        return Found(kind, name, State(self.stepper.store, self.starts[at]), path[::-1])

    # -- limits -------------------------------------------------------------------------------------------------------

    def _finished(self, queue: int) -> bool:
        """Between levels: whether to stop, and if because of a limit, which."""
        options, result = self.options, self.result
        if result.found and not options.keep_going:
            return True
        if options.max_depth is not None and result.depth >= options.max_depth:
            result.limit = f"the depth limit of {options.max_depth:,}"
        elif options.max_states is not None and result.distinct >= options.max_states:
            result.limit = f"the limit of {options.max_states:,} states"
        elif options.timeout is not None and time.monotonic() - self.started >= options.timeout:
            result.limit = f"the time limit of {options.timeout:g} seconds"
        elif options.max_memory is not None and self._memory() >= options.max_memory:
            result.limit = f"the memory limit of {options.max_memory:,} bytes"
        return result.limit is not None

    def _memory(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def _tell(self, queue: int) -> None:
        now = time.monotonic()
        if self.report is None or now - self.told < 0.2:
            return
        self.told = now
        self.report(
            Progress(
                generated=self.result.generated,
                distinct=self.result.distinct,
                depth=self.result.depth,
                queue=queue,
                seconds=now - self.started,
                memory=self._memory(),
                evaluations=self.stepper.evaluations,
            )
        )

