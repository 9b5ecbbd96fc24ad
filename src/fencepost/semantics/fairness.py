"""The fairness conditions of a protocol: one for each binding of the parameters that a declaration names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.errors import NotAProtocol
from fencepost.language.declarations import Fairness, FairSteps
from fencepost.language.seam import Model
from fencepost.language.values import Value, show_parameters
from fencepost.semantics.roots import Root


@dataclass(frozen=True)
class FairnessCondition:
    """Weak or ``strong`` fairness of some steps, as one condition.

    They are the steps of the actions in ``roots`` (their numbers). Or the root ``step`` is true of them, and the root
    ``enabled`` in the states where one is possible.
    """

    strong: bool
    title: str
    roots: frozenset[int]
    step: Root | None = None
    enabled: Root | None = None


def fairness_conditions(
    protocol: Model, actions: Sequence[Root], predicates: Sequence[Root] = ()
) -> list[FairnessCondition]:
    """The fairness conditions of a protocol on its actions. ``predicates``: the roots of those that are given by
    functions, two for each. Without them these are left out.

    Raises :class:`fencepost.NotAProtocol` for a parameter that the actions do not have.
    """
    conditions: list[FairnessCondition] = []
    functions = iter(predicates)
    for fairness in protocol.fairness:
        if not isinstance(fairness, FairSteps):
            conditions += _of_actions(fairness, actions)
        elif fairness.selects is not None:
            roots = frozenset(r.index for r in actions if fairness.selects(r.name, r.parameters))
            conditions.append(FairnessCondition(fairness.strong, fairness.title, roots))
        elif predicates:
            step, enabled = next(functions), next(functions)
            conditions.append(FairnessCondition(fairness.strong, fairness.title, frozenset(), step, enabled))
    return conditions


def _of_actions(fairness: Fairness, actions: Sequence[Root]) -> list[FairnessCondition]:
    roots = [r for r in actions if not fairness.actions or r.name in fairness.actions]
    if fairness.per is None:
        return [FairnessCondition(fairness.strong, r.title, frozenset([r.index])) for r in roots]
    groups: dict[tuple[Value, ...], list[Root]] = {}
    for root in roots:
        for name in fairness.per:
            if name not in root.parameters:
                raise NotAProtocol(f"fairness per {name}: action {root.name} has no parameter {name}")
        groups.setdefault(tuple(root.parameters[n] for n in fairness.per), []).append(root)
    what = ", ".join(dict.fromkeys(r.name for r in roots)) if fairness.actions else "any action"
    conditions = []
    for values, group in groups.items():
        bound = show_parameters(dict(zip(fairness.per, values, strict=True)))
        title = f"{what} with {bound}" if bound else what
        conditions.append(FairnessCondition(fairness.strong, title, frozenset(r.index for r in group)))
    return conditions
