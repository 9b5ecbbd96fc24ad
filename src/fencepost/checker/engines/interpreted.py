"""The interpreted explorer: `reference`, with every evaluation of the author's Python cached.

It relates to the compiled loops as an interpreter does to a compiler. It is slower per state, but it finishes a space
of some thousand states before NumPy and Numba would have been imported. It needs neither.

Evaluations are cached in a **trie** for each root. Its path is the part of the state that was read first, the value of
that part, the part read next, and so on to the result, an :class:`Evaluation`. A new state inherits the evaluations of
its parent. Only roots that read something changed by the step are looked up again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fencepost.checker.engines import conclusion
from fencepost.checker.engines.interface import Exploration, Report
from fencepost.checker.engines.options import SearchOptions
from fencepost.checker.engines.reference import Expanded, Link, Reference, Row
from fencepost.checker.engines.search import Search
from fencepost.errors import READ_OTHERWISE, SystemFailure
from fencepost.semantics import Branch, Fork, Leaf, Outcome, Read, Root, Stepper
from fencepost.semantics.roots import MAPPING
from fencepost.semantics.slots import CHANGE, reads_after, reads_of, slot_of_step
from fencepost.semantics.state import LOW


@dataclass(frozen=True)
class Limits:
    """Limits checked between levels: calls of the author's Python, states, states in one level, and states whose orbits
    are searched. A search with more calls and states goes on while its levels are narrow: at most ``calls_a_level`` and
    ``states_a_level``, on average.
    """

    calls: int
    queued: int
    orbits: int
    states: int = 1 << 63
    calls_a_level: int = 0
    states_a_level: int = 0


Beyond = Callable[[Exploration], bool]
"""Whether a search goes on with another level although it has reached its limits."""


def explore(
    stepper: Stepper,
    options: SearchOptions,
    limits: Limits | None = None,
    report: Report | None = None,
    beyond: Beyond | None = None,
) -> Exploration:
    """As :func:`fencepost.checker.engines.reference.explore`, with the same result, within the limits ``limits``.

    ``beyond`` is asked before each level for which there are limits, but not about too many initial states.
    """
    search = Search(stepper, options, report)
    stepper.keeps = limits is not None
    search.run(Interpreted(search, limits, beyond))
    return conclusion.conclude(search)


@dataclass(frozen=True, slots=True)
class _Step:
    """An outcome, what it XORs into a fingerprint (128 bits), and the slots it changes, as a bit mask."""

    outcome: Outcome
    delta: int
    changed: int


@dataclass(slots=True)
class Evaluation:
    """The result of evaluating a root: its steps sorted by their choices, and, as bit masks, the slots that it depends
    on and those that its steps change. A property has one step if it is violated (a ``sometimes`` property: if it is
    true).
    """

    steps: tuple[_Step, ...]
    read: int
    written: int = 0


_Trie = tuple[int, dict[int, "_Trie | Evaluation"]]
"""The slot to read, and where each of its values leads. For step properties, 2i is slot i before the step and 2i+1 the
slot after it. A refinement first reads the number of the step's change.
"""


@dataclass(slots=True)
class Reached:
    """A state to be expanded: its row, its fingerprint (128 bits), and the evaluations of its properties.
    ``inherited``: the evaluations of its parent's actions, empty for an initial state. ``changed``: the slots in which
    it differs from its parent.
    """

    row: list[int]
    fingerprint: int
    properties: list[Evaluation]
    inherited: Sequence[Evaluation]
    changed: int


class Interpreted(Reference):
    """Expands levels with cached evaluations."""

    def __init__(self, search: Search, limits: Limits | None, beyond: Beyond | None = None) -> None:
        super().__init__(search)
        self.limits = limits
        self.beyond = beyond
        self.tries: dict[int, _Trie | Evaluation] = {}
        self.relying: dict[int, list[Evaluation]] = {}
        """The evaluations of each root that has relied on a universe."""
        self.grown = 0
        self.mapped = search.stepper.of_kind(MAPPING)
        self.properties = [*self.constraints, *self.judged, *self.mapped]
        self.stepwise = bool(self.step_constraints or self.step_invariants)
        self.reached: dict[int, Reached] = {}
        self.changed: tuple[Sequence[int] | None, int] = None, 0
        """The state after the last step that was judged, and the number of its change."""

    # -- the cache ----------------------------------------------------------------------------------------------------

    def _evaluation(self, root: Root, row: list[int]) -> Evaluation:
        """The evaluation of a root that reads one state."""
        try:
            at = self.tries[root.index]
            while not isinstance(at, Evaluation):
                at = at[1][row[at[0]]]
            return at
        except (KeyError, IndexError):
            # Slots that are newer than the row hold their default in it.
            row.extend([0] * (len(self.stepper.store.slots) - len(row)))
            return self._remembered(root, row) or self._evaluated(root, row)

    def _outcomes(
        self, root: Root, row: Sequence[int], after: Sequence[int] | None = None, change: int | None = None
    ) -> list[Outcome]:
        if after is not None and change is None and self.stepper.knows_changes(root):
            change = self._change(row, after)
        evaluation = self._remembered(root, row, after, change) or self._evaluated(root, row, after, change)
        return [step.outcome for step in evaluation.steps]

    def _change(self, row: Sequence[int], after: Sequence[int]) -> int:
        """The number of a step's change, where it does not matter which action it is of."""
        if self.changed[0] is not after:
            before = [*row, *[0] * (len(after) - len(row))]
            slots = frozenset(slot for slot, held in enumerate(after) if held != before[slot])
            self.changed = after, self.stepper.changes.number(-1, slots)
        return self.changed[1]

    def _remembered(
        self, root: Root, row: Sequence[int], after: Sequence[int] | None = None, change: int | None = None
    ) -> Evaluation | None:
        at = self.tries.get(root.index)
        while isinstance(at, tuple):
            at = at[1].get(change if at[0] == CHANGE and change is not None else _held(at[0], row, after))
        return at

    def _evaluated(
        self, root: Root, row: Sequence[int], after: Sequence[int] | None = None, change: int | None = None
    ) -> Evaluation:
        """Evaluate a root, and cache the result."""
        reads: dict[int, int] = {}
        outcomes: list[Outcome] = []
        _flatten(self.stepper.evaluate(root, row, after, change), reads, outcomes)
        if self.grown != self.stepper.store.grown:
            self._grow()
        if root.kind == MAPPING:
            self.stepper.changes.read.setdefault(root.index, set()).update(reads)
        hashes = self.stepper.store.hashes
        steps, written = [], 0
        for outcome in sorted(outcomes, key=lambda o: o.choices):
            delta = changed = 0
            for slot, (old, new) in outcome.writes.items():
                delta ^= hashes[slot][old] ^ hashes[slot][new]
                changed |= 1 << slot
            steps.append(_Step(outcome, delta, changed))
            written |= changed
        found = Evaluation(tuple(steps), sum(1 << slot for slot in reads if slot != CHANGE), written)
        if root.index in self.stepper.relied:
            self.relying.setdefault(root.index, []).append(found)
        self._remember(root, reads, found, lambda slot: _held(slot, row, after))
        return found

    def _remember(self, root: Root, reads: dict[int, int], evaluation: Evaluation, held: Callable[[int], int]) -> None:
        """Cache an evaluation. The trie may test slots of universes that this evaluation did not read, or later."""
        at, put = self.tries.get(root.index), partial(self.tries.__setitem__, root.index)
        while isinstance(at, tuple):
            slot, branches = at
            value = reads.pop(slot, None)
            if value is None:
                if not self.stepper.store.is_about_universe(slot_of_step(slot) if root.reads_step else slot):
                    raise SystemFailure(f"{root.title} {READ_OTHERWISE}", "checking")
                value = held(slot)
            at, put = branches.get(value), partial(branches.__setitem__, value)
        if at is not None and reads:
            raise SystemFailure(f"{root.title} {READ_OTHERWISE}", "checking")
        found: _Trie | Evaluation = evaluation
        for slot, value in reversed(reads.items()):
            found = (slot, {value: found})
        put(found)

    def _grow(self) -> None:
        """What was evaluated before a universe grew is right about states without its new slots, and no others."""
        self.grown = self.stepper.store.grown
        for root, relied in self.stepper.relied.items():
            for each in relied.values():
                for slot in each.grown():
                    self._rely(self.stepper.roots[root], slot)

    def _rely(self, root: Root, slot: int) -> None:
        for evaluation in self.relying.get(root.index, []):
            evaluation.read |= 1 << slot
        for test in reads_of(slot, root.reads_step):
            if root.index in self.tries:
                self.tries[root.index] = (test, {0: self.tries[root.index]})

    # -- exploring ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Build the level of the initial states, unless they are too many."""
        most = None if self.limits is None else self.limits.queued
        if most is not None and (self.stepper.combines or len(self.stepper.initial_states(most)) >= most):
            self.search.result.limit = _too_many(most)
        else:
            super().begin()

    def expand(self) -> bool:
        """Expand a level, unless a limit is reached."""
        reached = self._limit_reached()
        if reached is None or self.beyond is None or not self.beyond(self.search.result):
            self.search.result.limit = reached
        return self.search.result.limit is None and super().expand()

    def _admit(self, found: int, row: Row, link: Link | None) -> bool:
        return self._enter(found, list(row), self.stepper.store.fingerprint(row), link)

    def _enter(
        self,
        found: int,
        row: list[int],
        fingerprint: int,
        link: Link | None,
        parent: Reached | None = None,
        actions: Sequence[Evaluation] = (),
        changed: int = 0,
    ) -> bool:
        """Record and judge a state seen for the first time. Returns whether it counts and is to be expanded.
        ``actions``: the evaluations of its parent's actions. ``changed``: the slots in which it differs from its
        parent.
        """
        self.links[found] = link
        if parent is None:
            self.starts[found] = tuple(row)
            for root in self.start_properties:
                if self.stepper.outcomes(root, row):
                    self._meet(root, found)
            properties = [self._evaluation(root, row) for root in self.properties]
        else:
            properties = [
                self._evaluation(root, row) if evaluation.read & changed else evaluation
                for root, evaluation in zip(self.properties, parent.properties, strict=True)
            ]
        inside = True
        for root, evaluation in zip(self.properties, properties, strict=True):
            if not evaluation.steps:
                continue
            if root.kind == "constraint":
                inside = False
            else:
                self._meet(root, found)
        if inside:
            self.reached[found] = Reached(row, fingerprint, properties, actions, changed)
        return inside

    def _row(self, found: int) -> Sequence[int]:
        return self.reached[found].row

    def _expand(self, parent: int) -> None:
        reached = self.reached.pop(parent)
        row, fingerprint, inherited, different = reached.row, reached.fingerprint, reached.inherited, reached.changed
        expanded = Expanded(tuple(row))
        self.expanded.append(expanded)
        alive, narrow, discovered = False, self.narrow, self.discovered
        links, symmetric, stepwise = self.links, self.symmetry is not None, self.stepwise
        marking = bool(self.step_predicates)
        # The children share this list. It is complete before any of them is expanded.
        actions: list[Evaluation] = []
        for place, action in enumerate(self.actions):
            if inherited and not inherited[place].read & different:
                evaluation = inherited[place]
            else:
                evaluation = self._evaluation(action, row)
            actions.append(evaluation)
            if not evaluation.steps:
                continue
            alive = True
            root = action.index
            for step in evaluation.steps:
                outcome, changed = step.outcome, step.changed
                if changed:
                    expanded.enabled.add(root)
                after: list[int] = []
                link = (parent, root, outcome.choices)
                if stepwise:
                    after = successor(row, outcome, len(self.stepper.store.slots))
                    if not self._allowed(row, after, link, outcome):
                        continue
                self.taken[root] += 1
                whole = fingerprint ^ step.delta
                if symmetric:
                    after = after or successor(row, outcome, len(self.stepper.store.slots))
                    found = self._fingerprint(after)
                else:
                    found = whole & LOW if narrow else (whole & LOW) << 64 | whole >> 64
                if changed:
                    expanded.steps.add((found if narrow else found >> 64, root))
                    if marking:
                        after = after or successor(row, outcome, len(self.stepper.store.slots))
                        self._mark(expanded, found if narrow else found >> 64, after)
                if found not in links:
                    after = after or successor(row, outcome, len(self.stepper.store.slots))
                    if self._enter(found, after, whole, link, reached, actions, changed):
                        self.new[root] += 1
                        discovered.append(found)
        if not alive and self.search.options.deadlock:
            self._meet(None, parent)

    def _allowed(self, row: list[int], after: list[int], link: Link, outcome: Outcome) -> bool:
        """Whether no step constraint cuts a step. If so, also judges the step by the step invariants."""
        if any(self._outcomes(c, row, after) for c in self.step_constraints):
            self.cut += 1
            return False
        for broken in self.step_invariants:
            refined = broken.kind == "refinement"
            change = self.stepper.changes.number(link[1], frozenset(outcome.writes)) if refined else None
            if self._outcomes(broken, row, after, change):
                self._meet(broken, link[0], link)
        return True

    def _limit_reached(self) -> str | None:
        """The limit of :class:`Limits` that was reached, or None."""
        limits, calls = self.limits, self.stepper.evaluations
        if limits is None:
            return None
        if calls >= max(limits.calls, limits.calls_a_level * self.search.result.depth):
            return f"the limit of {limits.calls:,} calls of Python"
        if self.search.result.distinct >= max(limits.states, limits.states_a_level * self.search.result.depth):
            return f"the limit of {limits.states:,} states"
        if self.search.queue >= limits.queued:
            return _too_many(limits.queued)
        if self.symmetry is not None and self.symmetry.searched >= limits.orbits:
            return f"the limit of {limits.orbits:,} states whose orbits were looked for"
        return None


def _too_many(queued: int) -> str:
    return f"the limit of {queued:,} states in one level"


def _held(slot: int, row: Sequence[int], after: Sequence[int] | None) -> int:
    """The value of a trie's slot in a state, or in one of the two states of a step."""
    if after is not None:
        row, slot = (after if reads_after(slot) else row), slot_of_step(slot)
    return row[slot] if slot < len(row) else 0


def successor(row: list[int], outcome: Outcome, width: int) -> list[int]:
    """The row after an outcome, with a number for each of ``width`` slots."""
    after = row + [0] * (width - len(row))
    for slot, (_, new) in outcome.writes.items():
        after[slot] = new
    return after


def _flatten(branch: Branch, reads: dict[int, int], outcomes: list[Outcome]) -> None:
    """Append one path through a decision tree to ``reads`` and ``outcomes``: every read, all branches of a fork one
    after the other, and all outcomes.

    In this order too, the values read so far determine the next slot to read.
    """
    while isinstance(branch, Read):
        reads[branch.slot] = branch.value
        branch = branch.then
    if isinstance(branch, Fork):
        for part in branch.branches:
            _flatten(part, reads, outcomes)
    elif isinstance(branch, Leaf):
        outcomes.extend(branch.outcomes)
