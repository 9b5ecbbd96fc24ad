"""The plain explorer: one state at a time, calling the author's Python at every step. Other engines are compared to it.

It is kept simple, so that it can be read and trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fencepost.checker.engines import conclusion
from fencepost.checker.engines.interface import Exploration, Report, TableWriter
from fencepost.checker.engines.options import SearchOptions
from fencepost.checker.engines.search import SAMPLE, Evidence, Executor, Level, Search, StatePath, Tally
from fencepost.errors import ProtocolRaised
from fencepost.semantics import START_PROPERTIES, STEP_PREDICATE, Outcome, Root, State, Stepper
from fencepost.semantics.state import LOW

Row = tuple[int, ...]
Link = tuple[int, int, tuple[int, ...]]
"""How a state was discovered: the fingerprint of its parent, the number of the action, the numbers of its choices."""


def explore(
    stepper: Stepper, options: SearchOptions, report: Report | None = None, table: TableWriter | None = None
) -> Exploration:
    """Explore every reachable state. Limits, violations and errors of the protocol end it early, and are in the
    result.
    """
    search = Search(stepper, options, report, table)
    search.run(Reference(search))
    return conclusion.conclude(search)


@dataclass
class Expanded:
    """An expanded state: its row, its steps as (fingerprint, root), and the roots that change it. ``marks``: the step
    predicates that are true of the steps to a fingerprint.
    """

    row: Row
    steps: set[tuple[int, int]] = field(default_factory=set)
    enabled: set[int] = field(default_factory=set)
    marks: dict[int, list[bool]] = field(default_factory=dict)


class Reference(Executor):
    """Expands levels by evaluating everything in every state. A state is identified by its fingerprint."""

    def __init__(self, search: Search) -> None:
        stepper = search.stepper
        self.search = search
        self.stepper = stepper
        self.symmetry = search.symmetry
        self.narrow = search.options.bits == 64
        self.constraints = stepper.of_kind("constraint")
        self.judged = stepper.of_kind("invariant", "sometimes")
        self.step_constraints = stepper.of_kind("step_constraint")
        self.step_invariants = stepper.of_kind("step_invariant", "refinement")
        self.step_predicates = stepper.of_kind(STEP_PREDICATE)
        self.start_properties = stepper.of_kind(*START_PROPERTIES)
        self.actions = stepper.of_kind("action")
        self.links: dict[int, Link | None] = {}
        self.rows: dict[int, Row] = {}
        """The states to be expanded."""
        self.starts: dict[int, Row] = {}
        self.taken = {root.index: 0 for root in stepper.roots}
        self.new = {root.index: 0 for root in stepper.roots}
        self.cut = 0
        self.frontier: list[int] = []
        self.discovered: list[int] = []
        self.expanded: list[Expanded] = []

    # -- levels -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Build the level of the initial states."""
        for state in self.search.initial_states():
            found = self._fingerprint(state.ids)
            if found not in self.links and self._admit(found, state.ids, None):
                self.discovered.append(found)
        self._end_level()

    def expand(self) -> bool:
        """Expand a level in the order of fingerprints, so that the first step to reach a state is the least one."""
        search, frontier = self.search, self.frontier
        if self.symmetry is not None:
            verify = self.symmetry.verify if search.options.checking else self.symmetry.verify_mappings
            for parent in frontier[:: max(1, len(frontier) // SAMPLE)]:
                verify(self._row(parent))
        for parent in frontier:
            found = len(self.discovered)
            search.report_progress(search.result.distinct + found, len(frontier) - len(self.expanded) + found)
            self._expand(parent)
        search.note_level(len(self.discovered))
        self._record()
        self._write_steps()
        self._end_level()
        return True

    def _end_level(self) -> None:
        self.frontier = sorted(self.discovered)
        self.discovered, self.expanded = [], []
        self.search.take(Level(len(self.frontier)))
        self._write_states()

    def partial(self) -> tuple[int, int]:
        """The number of states found of an incomplete level, and the number of frontier states expanded."""
        return len(self.discovered), len(self.expanded)

    def _fingerprint(self, row: Sequence[int]) -> int:
        # The low half is the more significant one, so the high half only breaks ties of the 64-bit fingerprint.
        found = self.stepper.store.fingerprint(row) if self.symmetry is None else self.symmetry.key(row)
        return found & LOW if self.narrow else (found & LOW) << 64 | found >> 64

    def _row(self, found: int) -> Sequence[int]:
        """The row of a state of the frontier."""
        return self.rows[found]

    def _expand(self, parent: int) -> None:
        row = self.rows.pop(parent)
        expanded = Expanded(row)
        self.expanded.append(expanded)
        alive = False
        for root in self.actions:
            for outcome in sorted(self._outcomes(root, row), key=lambda o: o.choices):
                alive = True
                if outcome.writes:
                    expanded.enabled.add(root.index)
                after = self.stepper.apply(row, outcome)
                if any(self._outcomes(c, row, after) for c in self.step_constraints):
                    self.cut += 1
                    continue
                self.taken[root.index] += 1
                link = (parent, root.index, outcome.choices)
                for broken in self.step_invariants:
                    if self._outcomes(broken, row, after):
                        self._meet(broken, parent, link)
                found = self._fingerprint(after)
                if outcome.writes:
                    expanded.steps.add((self._low(found), root.index))
                    self._mark(expanded, self._low(found), after)
                if found not in self.links and self._admit(found, after, link):
                    self.new[root.index] += 1
                    self.discovered.append(found)
        if not alive and self.search.options.deadlock:
            self._meet(None, parent)

    def _mark(self, expanded: Expanded, found: int, after: Sequence[int]) -> None:
        if self.step_predicates and found not in expanded.marks:
            marks = [bool(self._outcomes(predicate, expanded.row, after)) for predicate in self.step_predicates]
            expanded.marks[found] = marks

    def _outcomes(self, root: Root, row: Sequence[int], after: Sequence[int] | None = None) -> list[Outcome]:
        return self.stepper.outcomes(root, row, after)

    def _admit(self, found: int, row: Row, link: Link | None) -> bool:
        """Record and judge a state seen for the first time. Returns whether it counts and is to be expanded."""
        self.links[found] = link
        if link is None:
            self.starts[found] = row
        inside = all(not self._outcomes(c, row) for c in self.constraints)
        for root in (*self.judged, *(self.start_properties if link is None else ())):
            if self._outcomes(root, row):
                self._meet(root, found)
        if inside:
            self.rows[found] = row
        return inside

    def _meet(self, root: Root | None, at: int, link: Link | None = None) -> None:
        """Report a violation or a witness: the state ``at``, or the step ``link`` out of it."""
        self.search.meet(Evidence(root, link or (at, -1, ()), at, None if link is None else link[1:]))

    def path(self, at: int) -> StatePath:
        """The path to a state."""
        path: list[tuple[int, tuple[int, ...]]] = []
        link = self.links[at]
        while link is not None:
            at, action, choices = link
            path.append((action, choices))
            link = self.links[at]
        return State(self.stepper.store, self.starts[at]), path[::-1]

    def locate(self, error: ProtocolRaised) -> int | None:
        """The state in which an error was raised; None if it is not among the states found."""
        if not isinstance(error.state, State):
            return None
        at = self._fingerprint(error.state.ids)
        return at if at in self.links else None

    # -- for liveness -------------------------------------------------------------------------------------------------

    def _record(self) -> None:
        """Record the level just expanded, if there are temporal properties to judge."""
        level, recording = self.expanded, self.search.recording
        if recording is None:
            return
        import numpy as np

        from fencepost.checker.liveness.graph import mask

        terms = recording.terms
        of_state = [sorted({(found, int(terms.kind_of[root])) for found, root in n.steps}) for n in level]
        steps = np.array([step for steps in of_state for step in steps], np.uint64).reshape(-1, 2)
        possible = [terms.kind_of[np.fromiter(n.enabled, np.intp)] for n in level]
        truths = [[p for p, root in enumerate(terms.predicates) if self._outcomes(root, n.row)] for n in level]
        recording.add(
            np.array([self._low(found) for found in self.frontier], np.uint64),
            np.array([len(steps) for steps in of_state], np.int32),
            steps[:, 0],
            steps[:, 1].astype(np.uint16),
            np.array([np.bitwise_or.reduce(terms.masks[kinds], axis=0) for kinds in possible], np.uint64),
            np.array([mask(bits, terms.truth_words) for bits in truths]),
            np.array(
                [n.marks.get(found) for n, steps in zip(level, of_state, strict=True) for found, _ in steps], bool
            ),
        )

    def _low(self, fingerprint: int) -> int:
        return fingerprint if self.narrow else fingerprint >> 64

    # -- the state space as a table -----------------------------------------------------------------------------------

    def _write_states(self) -> None:
        """Write the level just built to the table, if there is one."""
        level, table = self.frontier, self.search.table
        if table is None or not level:
            return
        import numpy as np

        rows = np.zeros((len(level), len(self.stepper.store.slots)), np.uint32)
        for place, found in enumerate(level):
            rows[place, : len(self.rows[found])] = self.rows[found]
        links = [link for link in map(self.links.__getitem__, level) if link is not None]
        parents = np.array([parent for parent, _, _ in links], np.uint64) if links else None
        roots = np.array([root for _, root, _ in links], np.int64) if links else None
        table.add_level(iter([(np.array(level, np.uint64), parents, roots, rows)]))

    def _write_steps(self) -> None:
        """Write the steps out of the level just expanded to the table, if they are requested."""
        table = self.search.table
        if table is None or table.edges is None:
            return
        import numpy as np

        edges = [
            (source, target, root)
            for source, n in zip(self.frontier, self.expanded, strict=True)
            for target, root in sorted(n.steps)
        ]
        sources, targets, roots = np.array(edges, np.uint64).reshape(-1, 3).T
        table.add_edges(sources.copy(), targets.copy(), roots.astype(np.int64))

    # -- figures ------------------------------------------------------------------------------------------------------

    def tally(self) -> Tally:
        """How often each action was taken, and how many states it discovered."""
        return Tally(self.taken, self.new, self.cut)
