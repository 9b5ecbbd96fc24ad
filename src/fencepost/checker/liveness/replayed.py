"""Replays a lasso of the search in the author's Python. Only a lasso that passes is reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fencepost.behaviours.lasso import Choice, Met, Row, fair_violation
from fencepost.checker.liveness.graph import Terms
from fencepost.checker.liveness.judge import Lasso
from fencepost.errors import NOT_REPLAYED, SystemFailure
from fencepost.semantics import State, Stepper
from fencepost.semantics.state import LOW


@dataclass(frozen=True)
class Replayed:
    """A lasso as replayed by the author's Python: the initial state, the steps, and how its loop meets each fairness
    condition.
    """

    initial: State
    path: list[Choice]
    fairness: tuple[Met, ...]


def replayed(stepper: Stepper, terms: Terms, lasso: Lasso) -> Replayed:
    """The steps of a lasso. Of several steps to the same state, the first one is chosen.

    Raises :class:`fencepost.SystemFailure` if Python does not take these steps, the loop is not fair, or the property
    is not violated.
    """
    wanted = lasso.states
    initial = next((s for s in stepper.initial_states() if s.fingerprint & LOW == wanted[0]), None)
    rows: list[Row] = [initial.ids] if initial is not None else []
    path: list[Choice] = []
    for fingerprint in wanted[1:]:
        step = next(_steps_to(stepper, rows[-1], fingerprint), None) if rows else None
        if step is None:
            break
        rows.append(step[1])
        path.append(step[0])
    property, loop = lasso.of, lasso.loop
    if initial is not None and len(rows) == len(wanted):
        fairness = fair_violation(stepper, property.promise, terms.conditions, rows, loop)
        if fairness is not None:
            return Replayed(initial, path, fairness)
    raise SystemFailure(f"the behaviour that violates {property.title} {NOT_REPLAYED}", "checking")


def _steps_to(stepper: Stepper, row: Row, fingerprint: int) -> Iterator[tuple[Choice, Row]]:
    for root in stepper.of_kind("action"):
        for outcome in sorted(stepper.outcomes(root, row), key=lambda o: o.choices):
            after = stepper.apply(row, outcome)
            if stepper.store.fingerprint(after) & LOW == fingerprint:
                yield (root.index, outcome.choices), after
