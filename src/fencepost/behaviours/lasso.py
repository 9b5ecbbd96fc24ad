"""Verifies a lasso in the author's Python: whether it is fair and violates a property.

Every state of the lasso is evaluated in Python. No result of an engine or of the graph is used. Only a lasso that
passes is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.semantics import FairnessCondition, Root, Stepper

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
    stepper: Stepper, parts: Sequence[Root], conditions: Sequence[FairnessCondition], rows: Sequence[Row], loop: int
) -> tuple[Met, ...] | None:
    """How a behaviour that violates a temporal property meets each fairness condition. None if it misses one, does not
    violate the property, or does not return to its state number ``loop``.
    """
    if rows[loop] != rows[-1] or not is_violated(stepper, parts, rows, loop):
        return None
    how = met(stepper, conditions, rows[loop:])
    fairness = tuple(one for one in how if one is not None)
    return fairness if len(fairness) == len(how) else None


def met(stepper: Stepper, conditions: Sequence[FairnessCondition], loop: Sequence[Row]) -> list[Met | None]:
    """How a loop that repeats forever meets each fairness condition, or None for one that it misses. ``loop``: its
    states in order, with the first one again at the end. A single state means that the behaviour stays there.
    """
    enabled: list[set[int]] = []
    stepped: list[set[int]] = []
    for place, row in enumerate(loop[:-1] or loop):
        outcomes = [(r.index, o) for r in stepper.of_kind("action") for o in stepper.outcomes(r, row) if o.writes]
        enabled.append({root for root, _ in outcomes})
        stepped.append({root for root, o in outcomes if len(loop) > 1 and stepper.apply(row, o) == loop[place + 1]})
    return [_met(condition, enabled, stepped) for condition in conditions]


def _met(condition: FairnessCondition, enabled: list[set[int]], stepped: list[set[int]]) -> Met | None:
    for place, roots in enumerate(stepped):
        if roots & condition.roots:
            return Met(condition, TAKEN, place + 1)
    without = [place for place, roots in enumerate(enabled) if not roots & condition.roots]
    if len(without) == len(enabled):
        return Met(condition, NEVER_ENABLED)
    return Met(condition, DISABLED, without[0]) if without and not condition.strong else None


def is_violated(stepper: Stepper, parts: Sequence[Root], rows: Sequence[Row], loop: int) -> bool:
    """Whether a temporal property, given by its one or two predicates, is false for the behaviour that repeats
    ``rows[loop:]``.
    """
    truths = [[bool(stepper.outcomes(part, row)) for row in rows] for part in parts]
    if parts[0].kind == "always_eventually":
        return not any(truths[0][loop:])
    if parts[0].kind == "eventually_always":
        return not all(truths[0][loop:])
    first, second = truths
    return any(leads and not any(second[place:]) and not any(second[loop:]) for place, leads in enumerate(first))
