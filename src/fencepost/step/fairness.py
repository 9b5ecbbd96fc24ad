"""Fairness requirements: what a protocol declares to be fair, for each binding of parameters that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.errors import NotAProtocol
from fencepost.spec.protocol import Protocol
from fencepost.spec.values import Value, show
from fencepost.step.roots import Root


@dataclass(frozen=True)
class FairnessRequirement:
    """Weak or ``strong`` fairness of the actions in ``roots`` (numbers), taken together."""

    strong: bool
    title: str
    roots: frozenset[int]


def fairness_requirements(protocol: Protocol, actions: Sequence[Root]) -> list[FairnessRequirement]:
    """The requirements of a protocol on its actions.

    Raises :class:`fencepost.NotAProtocol` for a parameter that the actions do not have.
    """
    found: list[FairnessRequirement] = []
    for fairness in protocol.fairness:
        roots = [r for r in actions if not fairness.actions or r.name in fairness.actions]
        if fairness.per is None:
            found += [FairnessRequirement(fairness.strong, r.title, frozenset([r.index])) for r in roots]
            continue
        groups: dict[tuple[Value, ...], list[Root]] = {}
        for root in roots:
            for name in fairness.per:
                if name not in root.parameters:
                    raise NotAProtocol(f"fairness per {name}: action {root.name} has no parameter {name}")
            groups.setdefault(tuple(root.parameters[n] for n in fairness.per), []).append(root)
        what = ", ".join(dict.fromkeys(r.name for r in roots)) if fairness.actions else "any action"
        for values, group in groups.items():
            bound = ", ".join(f"{n}={show(v)}" for n, v in zip(fairness.per, values, strict=True))
            title = f"{what} with {bound}" if bound else what
            found.append(FairnessRequirement(fairness.strong, title, frozenset(r.index for r in group)))
    return found
