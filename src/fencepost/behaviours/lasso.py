"""Verifies a lasso in the author's Python: whether it is fair and violates a property.

Every state of the lasso is evaluated in Python. No result of an engine or of the graph is used. Only a lasso that
passes is reported.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from fencepost.language.temporal import Always, And, Enabled, Formula, Leaf, Not, Or, Truth
from fencepost.semantics import STEP_PREDICATE, FairnessCondition, Outcome, Promise, Root, Stepper
from fencepost.semantics.promises import Leaves

Row = tuple[int, ...]
Choice = tuple[int, tuple[int, ...]]
"""A step: the number of its root, and the numbers of its choices."""

TAKEN, DISABLED, NEVER_ENABLED = "taken", "not enabled", "never enabled"


@dataclass(frozen=True)
class Met:
    """How a loop meets a fairness condition: by a step of its actions (``taken``), by a state in which they are not
    enabled (``not enabled``, enough for weak fairness), or because they are enabled in no state (``never enabled``).
    ``at``: the index in the loop of that state, or of the state after that step.
    """

    condition: FairnessCondition
    how: str
    at: int = 0


def fair_violation(
    stepper: Stepper, promise: Promise, conditions: Sequence[FairnessCondition], rows: Sequence[Row], loop: int
) -> tuple[Met, ...] | None:
    """How a behaviour that violates a temporal property meets each fairness condition. None if it misses one, does not
    violate the property, or does not return to its state number ``loop``.
    """
    if rows[loop] != rows[-1] or not is_violated(stepper, promise, rows, loop):
        return None
    how = met(stepper, conditions, rows[loop:])
    fairness = tuple(one for one in how if one is not None)
    return fairness if len(fairness) == len(how) else None


def met(stepper: Stepper, conditions: Sequence[FairnessCondition], loop: Sequence[Row]) -> list[Met | None]:
    """How a loop that repeats forever meets each fairness condition, or None for one that it misses. ``loop``: its
    states in order, with the first one again at the end. A single state means that the behaviour stays there.
    """
    taken = [_Moment(stepper, row, after) for row, after in _steps(loop, 0)]
    return [_met(condition, taken) for condition in conditions]


def _steps(rows: Sequence[Row], loop: int) -> list[tuple[Row, Row | None]]:
    """The states of a lasso, each once, with the states after them. None: the behaviour stays."""
    if loop == len(rows) - 1:
        return [*itertools.pairwise(rows), (rows[-1], None)]
    return list(itertools.pairwise(rows))


class _Moment:
    """A state of a lasso and the step from it to ``after``: the actions ``enabled`` in it, and those that the step is
    one of (``stepped``), by the numbers of their roots.
    """

    def __init__(self, stepper: Stepper, row: Row, after: Row | None) -> None:
        self.stepper, self.row, self.after = stepper, row, after

    @cached_property
    def _outcomes(self) -> list[tuple[int, Outcome]]:
        stepper, row = self.stepper, self.row
        return [(r.index, o) for r in stepper.of_kind("action") for o in stepper.outcomes(r, row) if o.writes]

    @cached_property
    def enabled(self) -> frozenset[int]:
        return frozenset(root for root, _ in self._outcomes)

    @cached_property
    def stepped(self) -> frozenset[int]:
        if self.after is None:
            return frozenset()
        return frozenset(root for root, o in self._outcomes if self.stepper.apply(self.row, o) == self.after)

    def enables(self, condition: FairnessCondition) -> bool:
        return self.holds(condition.enabled) if condition.enabled is not None else bool(self.enabled & condition.roots)

    def meets(self, condition: FairnessCondition) -> bool:
        return self.holds(condition.step) if condition.step is not None else bool(self.stepped & condition.roots)

    def holds(self, root: Root) -> bool:
        """Whether a predicate is true here. A step in which the behaviour stays is no step of any kind."""
        if root.kind != STEP_PREDICATE:
            return bool(self.stepper.outcomes(root, self.row))
        return self.after is not None and bool(self.stepper.outcomes(root, self.row, self.after))

    def truth(self, leaf: Leaf, leaves: Leaves) -> bool:
        """Whether a leaf of a formula is true here."""
        of = leaves[leaf]
        if isinstance(of, Root):
            return self.holds(of)
        return bool(of & (self.enabled if isinstance(leaf, Enabled) else self.stepped))


def _met(condition: FairnessCondition, taken: Sequence[_Moment]) -> Met | None:
    for place, one in enumerate(taken):
        if one.meets(condition):
            return Met(condition, TAKEN, place + 1)
    without = [place for place, one in enumerate(taken) if not one.enables(condition)]
    if len(without) == len(taken):
        return Met(condition, NEVER_ENABLED)
    return Met(condition, DISABLED, without[0]) if without and not condition.strong else None


def is_violated(stepper: Stepper, promise: Promise, rows: Sequence[Row], loop: int) -> bool:
    """Whether a temporal property is false for the behaviour that repeats ``rows[loop:]``."""
    if promise.formula is not None:
        taken = [_Moment(stepper, row, after) for row, after in _steps(rows, loop)]
        leaves = promise.leaves or {}
        return not truths(promise.formula, lambda leaf: [one.truth(leaf, leaves) for one in taken], len(taken), loop)[0]
    parts = promise.parts
    found = [[bool(stepper.outcomes(part, row)) for row in rows] for part in parts]
    if promise.kind == "always_eventually":
        return not any(found[0][loop:])
    if promise.kind == "eventually_always":
        return not all(found[0][loop:])
    first, second = found
    return any(leads and not any(second[place:]) and not any(second[loop:]) for place, leads in enumerate(first))


def truths(formula: Formula, of: Callable[[Leaf], list[bool]], size: int, loop: int) -> list[bool]:
    """Where a formula is true, for each of the ``size`` states of a lasso. ``of``: where a leaf is. After the last
    state, the state number ``loop`` comes again.
    """
    if isinstance(formula, Leaf):
        return of(formula)
    if isinstance(formula, Truth):
        return [formula.value] * size
    parts = [truths(part, of, size, loop) for part in formula.parts]
    if isinstance(formula, Not):
        return [not one for one in parts[0]]
    if isinstance(formula, And):
        return [all(here) for here in zip(*parts, strict=True)]
    if isinstance(formula, Or):
        return [any(here) for here in zip(*parts, strict=True)]
    quantifier = all if isinstance(formula, Always) else any
    return [quantifier(parts[0][min(place, loop) :]) for place in range(size)]
