"""The fairness conditions of a protocol: one for each binding of the parameters that a declaration names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.errors import NotAProtocol
from fencepost.language.seam import Model
from fencepost.language.values import Value, show_parameters
from fencepost.semantics.roots import Root


@dataclass(frozen=True)
class FairnessCondition:
    """Weak or ``strong`` fairness of the actions in ``roots`` (their numbers), as one condition."""

    strong: bool
    title: str
    roots: frozenset[int]


def fairness_conditions(protocol: Model, actions: Sequence[Root]) -> list[FairnessCondition]:
    """The fairness conditions of a protocol on its actions.

    Raises :class:`fencepost.NotAProtocol` for a parameter that the actions do not have.
    """
    conditions: list[FairnessCondition] = []
    for fairness in protocol.fairness:
        roots = [r for r in actions if not fairness.actions or r.name in fairness.actions]
        if fairness.per is None:
            conditions += [FairnessCondition(fairness.strong, r.title, frozenset([r.index])) for r in roots]
            continue
        groups: dict[tuple[Value, ...], list[Root]] = {}
        for root in roots:
            for name in fairness.per:
                if name not in root.parameters:
                    raise NotAProtocol(f"fairness per {name}: action {root.name} has no parameter {name}")
            groups.setdefault(tuple(root.parameters[n] for n in fairness.per), []).append(root)
        what = ", ".join(dict.fromkeys(r.name for r in roots)) if fairness.actions else "any action"
        for values, group in groups.items():
            bound = show_parameters(dict(zip(fairness.per, values, strict=True)))
            title = f"{what} with {bound}" if bound else what
            conditions.append(FairnessCondition(fairness.strong, title, frozenset(r.index for r in group)))
    return conditions
