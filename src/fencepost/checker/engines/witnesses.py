"""``sometimes`` properties: the names under which they are reported, whether a search has found all of them, and those
that were never reached.
"""

from __future__ import annotations

from fencepost.checker.engines.interface import Exploration
from fencepost.checker.engines.options import Options, SearchOptions
from fencepost.language.declarations import INITIALLY
from fencepost.semantics import Stepper, Symmetry


def reported_as(stepper: Stepper, symmetry: Symmetry | None) -> list[str]:
    """The name under which each root is reported, once. All bindings of an invariant share one name.

    A ``sometimes`` property must be true for every binding, so each binding has its own name. Bindings that a symmetry
    maps to each other share one: a state where one is true stands for states where the others are.
    """
    names = [root.name for root in stepper.roots]
    roots = stepper.of_kind("sometimes")
    alike = symmetry.alike(roots) if symmetry is not None else roots
    for root, first in zip(roots, alike, strict=True):
        names[root.index] = first.title
    return names


def sought(stepper: Stepper, options: Options, names: list[str]) -> frozenset[str]:
    """The names of the witnesses with which a search may end: all, if it looks for nothing else and need not go on;
    otherwise none.
    """
    judged = stepper.of_kind("invariant", INITIALLY, "step_invariant", "refinement") or stepper.promises
    writes = isinstance(options, SearchOptions) and options.states is not None
    if judged or options.deadlock or options.keep_going or writes:
        return frozenset()
    return frozenset(names[root.index] for root in stepper.of_kind("sometimes"))


def never_reached(stepper: Stepper, explored: Exploration) -> dict[str, tuple[str, ...]]:
    """The properties without a witness so far, by name, with the titles of the bindings that have none."""
    names = reported_as(stepper, explored.symmetry)
    roots = stepper.of_kind("sometimes")
    found = {witness.name for witness in explored.witnesses}
    reached = {names[root.index] for root in roots if root.title in found}
    missing: dict[str, tuple[str, ...]] = {}
    for root in roots:
        if names[root.index] not in reached:
            missing[root.name] = (*missing.get(root.name, ()), root.title)
    return missing
