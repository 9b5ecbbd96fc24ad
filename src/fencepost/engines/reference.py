"""The plain explorer: breadth first, one state at a time, the author's Python at every step. The yardstick for the
others.

Nothing here is clever, so that it can be read and believed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fencepost.engines.interface import SAMPLE, Exploration, Found, Options, Progress, Report, table
from fencepost.engines.resources import limit_reached, peak_memory
from fencepost.engines.witnesses import reported_as, sought
from fencepost.errors import ProtocolRaised, SystemFailure
from fencepost.spec.declarations import TEMPORAL
from fencepost.step import LimitReached, Outcome, Root, State, Stepper, Symmetry
from fencepost.step.state import LOW

if TYPE_CHECKING:
    from fencepost.liveness.graph import Recording

Row = tuple[int, ...]
Link = tuple[int, int, tuple[int, ...]]
"""How a state was discovered: the fingerprint of its parent, the number of the action, the numbers of its choices."""


def explore(stepper: Stepper, options: Options, report: Report | None = None) -> Exploration:
    """Explore every reachable state. Limits, violations and errors of the protocol end it early and are reported."""
    return Search(stepper, options, report).run()


@dataclass
class Noted:
    """What was noted down of one state: its steps, as (fingerprint, root), and the roots that change it."""

    row: Row
    steps: set[tuple[int, int]] = field(default_factory=set)
    enabled: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Met:
    """A violation or a witness in the level that is being built: at the state ``at``, or by the step ``last`` from
    there. Of several the one that comes first by ``order`` is told. No ``root``: a deadlock.
    """

    order: Link
    root: Root | None
    at: int
    last: tuple[int, tuple[int, ...]] | None = None


def _recording(stepper: Stepper) -> Recording | None:
    """What the graph is noted down in, if there are temporal properties; a check without any needs no libraries."""
    if not stepper.of_kind(*TEMPORAL):
        return None
    from fencepost.liveness.graph import Recording

    return Recording(stepper)


class Search:
    """One exploration."""

    def __init__(self, stepper: Stepper, options: Options, report: Report | None) -> None:
        self.stepper = stepper
        self.options = options
        self.report = report
        self.symmetry = Symmetry(stepper, options.symmetry) if options.symmetry else None
        self.result = Exploration(taken={r.index: 0 for r in stepper.roots}, new={r.index: 0 for r in stepper.roots})
        self.result.symmetry = self.symmetry
        self.constraints = stepper.of_kind("constraint")
        self.judged = stepper.of_kind("invariant", "sometimes")
        self.step_constraints = stepper.of_kind("step_constraint")
        self.step_invariants = stepper.of_kind("step_invariant", "refinement")
        self.refinements = stepper.of_kind("refinement")
        self.actions = stepper.of_kind("action")
        self.links: dict[int, Link | None] = {}
        self.rows: dict[int, Row] = {}
        self.starts: dict[int, Row] = {}
        self.met: dict[str, Met] = {}
        self.reported: set[str] = set()
        self.names = reported_as(stepper, self.symmetry)
        self.sought = sought(stepper, options, self.names)
        self.recording = _recording(stepper)
        self.result.table = table(stepper, options)
        self.noted: list[Noted] = []
        self.started = time.monotonic()
        self.told = 0.0

    def run(self) -> Exploration:
        result, deadline = self.result, self.stepper.deadline
        level: list[int] = []
        try:
            with deadline.limits(self._limit_reached if self._is_limited else None):
                level = self._initial()
                while level and not self._finished(len(level)):
                    level = self._next(level)
            result.complete = not level and result.limit is None
            result.recording = self.recording
        except LimitReached:
            result.limit, level = deadline.reached, self._waiting()
        except ProtocolRaised as error:
            result.raised = error
            if isinstance(error.state, State):
                at = self._fingerprint(error.state.ids)
                if at in self.links:
                    result.raised_at = self._found("raised", error.where, at)
        except KeyboardInterrupt:
            result.interrupted = True
        except SystemFailure as error:
            result.failure = error
        self._end_level()
        result.queue = len(level)
        result.seconds = time.monotonic() - self.started
        result.evaluations = self.stepper.evaluations
        result.peak_memory = peak_memory()
        return result

    def _fingerprint(self, row: Sequence[int]) -> int:
        # The low half is the more significant one, so that 128 bits only break the ties of 64.
        found = self.stepper.store.fingerprint(row) if self.symmetry is None else self.symmetry.key(row)
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
        self._write_states(sorted(level))
        return sorted(level)

    def _next(self, level: list[int]) -> list[int]:
        """Expand a level, states in the order of their fingerprints: the first step to reach a state is then the
        least.
        """
        discovered: list[int] = []
        if self.symmetry is not None and self.options.checking:
            for parent in level[:: max(1, len(level) // SAMPLE)]:
                self.symmetry.verify(self.rows[parent])
        for done, parent in enumerate(level):
            self._tell(len(level) - done + len(discovered))
            for successor in self._expand(parent):
                discovered.append(successor)
        if discovered:
            self.result.depth += 1
        self._record(level)
        self._write_steps(level)
        self.noted = []
        self._end_level()
        self._write_states(sorted(discovered))
        return sorted(discovered)

    def _expand(self, parent: int) -> list[int]:
        discovered = []
        row = self.rows.pop(parent)
        noted = Noted(row)
        self.noted.append(noted)
        alive = False
        for root in self.actions:
            for outcome in sorted(self._outcomes(root, row), key=lambda o: o.choices):
                alive = True
                if outcome.writes:
                    noted.enabled.add(root.index)
                after = self.stepper.apply(row, outcome)
                if any(self._outcomes(c, row, after) for c in self.step_constraints):
                    continue
                self.result.generated += 1
                self.result.taken[root.index] += 1
                link = (parent, root.index, outcome.choices)
                for broken in self.step_invariants:
                    if self._outcomes(broken, row, after):
                        self._meet(Met(link, broken, parent, link[1:]))
                found = self._fingerprint(after)
                if outcome.writes:
                    noted.steps.add((self._low(found), root.index))
                if found not in self.links and self._admit(found, after, link):
                    self.result.new[root.index] += 1
                    discovered.append(found)
        if not alive and self.options.deadlock:
            self._meet(Met((parent, -1, ()), None, parent))
        return discovered

    def _outcomes(self, root: Root, row: Sequence[int], after: Sequence[int] | None = None) -> list[Outcome]:
        return self.stepper.outcomes(root, row, after)

    def _admit(self, found: int, row: Row, link: Link | None) -> bool:
        """Record a state seen for the first time and check it; whether it counts and is to be expanded."""
        self.links[found] = link
        if link is None:
            self.starts[found] = row
        inside = all(not self._outcomes(c, row) for c in self.constraints)
        for root in (*self.judged, *(self.refinements if link is None else ())):
            if self._outcomes(root, row):
                self._meet(Met((found, -1, ()), root, found))
        if inside:
            self.rows[found] = row
            self.result.distinct += 1
        return inside

    # -- for liveness -------------------------------------------------------------------------------------------------

    def _record(self, level: list[int]) -> None:
        """Note down a level that was expanded, if temporal properties are to be judged."""
        noted = self.noted
        if self.recording is None:
            return
        import numpy as np

        from fencepost.liveness.graph import mask

        terms = self.recording.terms
        of_state = [sorted({(found, int(terms.kind_of[root])) for found, root in n.steps}) for n in noted]
        steps = np.array([step for steps in of_state for step in steps], np.uint64).reshape(-1, 2)
        enabled = [[d for d, demand in enumerate(terms.requirements) if demand.roots & n.enabled] for n in noted]
        truths = [[p for p, root in enumerate(terms.predicates) if self._outcomes(root, n.row)] for n in noted]
        self.recording.add(
            np.array([self._low(found) for found in level], np.uint64),
            np.array([len(steps) for steps in of_state], np.int32),
            steps[:, 0],
            steps[:, 1].astype(np.uint16),
            np.array([mask(bits, terms.words) for bits in enabled]),
            np.array([mask(bits, terms.truth_words) for bits in truths]),
        )

    def _low(self, fingerprint: int) -> int:
        return fingerprint if self.options.bits == 64 else fingerprint >> 64

    # -- the state space as a table -----------------------------------------------------------------------------------

    def _write_states(self, level: list[int]) -> None:
        """Write down a level, if that was asked for."""
        if self.result.table is None or not level:
            return
        import numpy as np

        rows = np.zeros((len(level), len(self.stepper.store.slots)), np.uint32)
        for place, found in enumerate(level):
            rows[place, : len(self.rows[found])] = self.rows[found]
        links = [link for link in map(self.links.__getitem__, level) if link is not None]
        parents = np.array([parent for parent, _, _ in links], np.uint64) if links else None
        roots = np.array([root for _, root, _ in links], np.int64) if links else None
        self.result.table.add_level(iter([(np.array(level, np.uint64), parents, roots, rows)]))

    def _write_steps(self, level: list[int]) -> None:
        """Write down the steps out of a level, if that was asked for."""
        if self.result.table is None or self.result.table.edges is None:
            return
        import numpy as np

        edges = [
            (source, target, root)
            for source, n in zip(level, self.noted, strict=True)
            for target, root in sorted(n.steps)
        ]
        sources, targets, roots = np.array(edges, np.uint64).reshape(-1, 3).T
        self.result.table.add_edges(sources.copy(), targets.copy(), roots.astype(np.int64))

    # -- violations and witnesses -------------------------------------------------------------------------------------

    def _meet(self, met: Met) -> None:
        """Note a violation or a witness, if it is the first of its name in this level and none is known of an earlier
        one.
        """
        name = self.names[met.root.index] if met.root is not None else "deadlock"
        best = self.met.get(name)
        if name not in self.reported and (best is None or met.order < best.order):
            self.met[name] = met

    def _end_level(self) -> None:
        for name, met in sorted(self.met.items(), key=lambda item: self._rank(item[0])):
            kind, title = ("deadlock", name) if met.root is None else (met.root.kind, met.root.reported)
            found = self._found(kind, title, met.at)
            self.result.add(found if met.last is None else replace(found, path=[*found.path, met.last]))
            self.reported.add(name)
        self.met = {}

    def _rank(self, name: str) -> int:
        return self.names.index(name) if name in self.names else len(self.names)

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
        if (result.found and not options.keep_going) or (self.sought and self.sought <= self.reported):
            return True
        if options.max_depth is not None and result.depth >= options.max_depth:
            result.limit = f"the depth limit of {options.max_depth:,}"
        elif options.max_states is not None and result.distinct >= options.max_states:
            result.limit = f"the limit of {options.max_states:,} states"
        else:
            result.limit = self._limit_reached()
        return result.limit is not None

    def _waiting(self) -> list[int]:
        """The states that are still to be expanded, in the middle of a level too."""
        return list(self.rows)

    @property
    def _is_limited(self) -> bool:
        return self.options.timeout is not None or self.options.max_memory is not None

    def _limit_reached(self) -> str | None:
        """The limit on time or memory that is reached."""
        return limit_reached(self.stepper.deadline, self.options.timeout, self.options.max_memory)

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
                memory=peak_memory(),
                evaluations=self.stepper.evaluations,
            )
        )
