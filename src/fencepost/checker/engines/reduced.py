"""Partial order reduction: the interpreted explorer, which takes in each state the steps of a stubborn set.

Independent steps lead to the same state in every order. So one order is enough, for what is asked of states alone:
invariants, ``sometimes`` properties, deadlocks and exceptions.

An **instance** is an action or a property with its parameters bound. It reads slots in every state, whether it is
enabled or not; a slot that it writes counts as read too. A property writes nothing, and is enabled where it is to be
reported. A set of instances is **closed** in a state if, for each of its members,

- it has every instance that may write what the member reads in this state, and,
- if the member is enabled, every instance that may read what the member writes in this state.

The steps of the members of a closed set with an enabled action are taken, and no others, unless none of them leads to
a state that this level has discovered. Then all steps are taken, so that no action is put off forever (the proviso).
Since a property is an instance, an action that changes what it reads brings those that could violate it: nothing else
is needed for visibility.

What an instance **may** read and write is what it did in the states explored, so it is not known before. A pass that
meets something new is therefore followed by another one that begins with what is known. The last pass meets nothing
new. Then what was recorded is all that the instances read and write in any reachable state, explored or not. For, of
states that differ by a step that was left out, the evaluations agree up to the first slot in which these states
differ, and both read it: a dependency that the reduced search could miss shows in a state that it explores. The proof
is in ``docs/check/engine.md``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fencepost.checker.engines import conclusion
from fencepost.checker.engines.interface import Exploration, Report
from fencepost.checker.engines.interpreted import Evaluation, Interpreted, Reached, successor
from fencepost.checker.engines.options import SearchOptions
from fencepost.checker.engines.reference import Expanded
from fencepost.checker.engines.search import Search
from fencepost.semantics import Stepper
from fencepost.semantics.state import LOW


def explore(stepper: Stepper, options: SearchOptions, report: Report | None = None) -> Exploration:
    """Explore enough of the reachable states. Limits, violations and errors of the protocol end it early, and are in
    the result, whose counts are those of the last pass.
    """
    accesses = Accesses()
    before: Reduced | None = None
    while True:
        search = Search(stepper, options, report)
        before = Reduced(search, accesses, before)
        accesses.grown = False
        explored = search.run(before)
        ended = not explored.complete or (explored.found and not options.keep_going)
        if ended or not accesses.grown:
            explored.reduced = True
            return conclusion.conclude(search)


class Accesses:
    """What each instance may read and write, as bit masks of slots, by its index among the instances; and, the other
    way round, which instances may read and write each slot. ``grown``: whether something was added.
    """

    def __init__(self) -> None:
        self.grown = False
        self.reads: defaultdict[int, int] = defaultdict(int)
        self.writes: defaultdict[int, int] = defaultdict(int)
        self._readers: defaultdict[int, int] = defaultdict(int)
        self._writers: defaultdict[int, int] = defaultdict(int)
        self._dependent: dict[tuple[int, int], int] = {}

    def add(self, instance: int, read: int, written: int) -> None:
        """Record an evaluation."""
        new_reads, new_writes = read & ~self.reads[instance], written & ~self.writes[instance]
        if not (new_reads or new_writes):
            return
        self.grown = True
        self._dependent.clear()
        self.reads[instance] |= read
        self.writes[instance] |= written
        for slot in _slots(new_reads):
            self._readers[slot] |= 1 << instance
        for slot in _slots(new_writes):
            self._writers[slot] |= 1 << instance

    def dependent(self, read: int, written: int) -> int:
        """The instances, as a bit mask, that may write what is read, or may read what is written."""
        found = self._dependent.get((read, written))
        if found is None:
            found = 0
            for slot in _slots(read):
                found |= self._writers[slot]
            for slot in _slots(written):
                found |= self._readers[slot]
            self._dependent[read, written] = found
        return found


class Reduced(Interpreted):
    """Expands levels by stubborn sets. ``before``: the pass before this one, whose evaluations stay valid."""

    def __init__(self, search: Search, accesses: Accesses, before: Reduced | None) -> None:
        super().__init__(search, None)
        self.accesses = accesses
        if before is not None:
            self.tries, self.relying, self.grown = before.tries, before.relying, before.grown
        self.next_level: set[int] = set()
        """The states discovered in this level."""

    def expand(self) -> bool:
        """Expand a level."""
        self.next_level.clear()
        return super().expand()

    def _expand(self, parent: int) -> None:
        reached = self.reached.pop(parent)
        self.expanded.append(Expanded(tuple(reached.row)))
        actions = [
            reached.inherited[place]
            if reached.inherited and not reached.inherited[place].read & reached.changed
            else self._evaluation(action, reached.row)
            for place, action in enumerate(self.actions)
        ]
        instances = [*actions, *reached.properties]
        for instance, evaluation in enumerate(instances):
            self.accesses.add(instance, evaluation.read, evaluation.written)
        if not any(evaluation.steps for evaluation in actions) and self.search.options.deadlock:
            self._meet(None, parent)
        chosen = self._chosen(instances)
        if not self._take(parent, reached, actions, chosen):
            self._take(parent, reached, actions, ~chosen)

    def _chosen(self, instances: Sequence[Evaluation]) -> int:
        """The closed set with the fewest steps of those that begin with one enabled action, as a bit mask. An action
        that changes nothing enables nothing; it is taken besides, to be counted.
        """
        idle = sum(1 << place for place, each in enumerate(instances[: len(self.actions)]) if not each.written)
        steps = [sum(1 for step in each.steps if step.changed) for each in instances[: len(self.actions)]]
        best, fewest = -1, sum(steps) + 1
        for first, count in enumerate(steps):
            if count and fewest > 1:
                closed = self._closed(first, instances)
                taken = sum(count for instance, count in enumerate(steps) if closed >> instance & 1)
                if taken < fewest:
                    best, fewest = closed, taken
        return best | idle

    def _closed(self, first: int, instances: Sequence[Evaluation]) -> int:
        """The least closed set with an instance, as a bit mask."""
        closed, waiting = 0, 1 << first
        while waiting:
            instance = waiting.bit_length() - 1
            closed |= 1 << instance
            waiting = (waiting | self._needs(instances[instance])) & ~closed
        return closed

    def _needs(self, evaluation: Evaluation) -> int:
        """What a closed set with an instance must have besides, given how it evaluates in the state."""
        return self.accesses.dependent(evaluation.read, evaluation.written)

    def _take(self, parent: int, reached: Reached, actions: list[Evaluation], chosen: int) -> bool:
        """Take the steps of the chosen actions. Returns whether one leads to a state that this level discovered."""
        ascends = False
        for place, action in enumerate(self.actions):
            if not chosen >> place & 1:
                continue
            for step in actions[place].steps:
                self.taken[action.index] += 1
                whole = reached.fingerprint ^ step.delta
                found = whole & LOW if self.narrow else (whole & LOW) << 64 | whole >> 64
                if found not in self.links:
                    after = successor(reached.row, step.outcome, len(self.stepper.store.slots))
                    link = (parent, action.index, step.outcome.choices)
                    if self._enter(found, after, whole, link, reached, actions, step.changed):
                        self.new[action.index] += 1
                        self.discovered.append(found)
                        self.next_level.add(found)
                ascends = ascends or found in self.next_level
        return ascends


def _slots(mask: int) -> list[int]:
    """The numbers of the bits that are set."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found
