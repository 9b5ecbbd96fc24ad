"""Compiled tables as plain data, for the checkpoints of the Spark engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from fencepost.checker.compiler.tables import Tables
from fencepost.semantics.roots import MAPPING


def snapshot(tables: Tables) -> dict[str, Any]:
    """The tables as plain data, from which :func:`restore` rebuilds them. All numbers stay the same."""
    tables.spread()
    arrays = {name: getattr(tables, name)[:size] for name, size in tables.used().items() if hasattr(tables, name)}
    return {
        "arrays": {name: (a.dtype.str, list(a.shape), a.tobytes()) for name, a in arrays.items()},
        "slot words": tables.slot_words,
        "counts": [int(tables.top[0]), int(tables.tries[0]), int(tables.entries[0]), tables.outcomes, tables.leaves],
        "leaf weights": tables.leaf_weight,
        "outcome weights": tables.outcome_weight,
        "most leaves": tables.most_leaves,
        "most outcomes": tables.most_outcomes,
        "below": [[cell, *most] for cell, most in tables.below.items()],
        "branches": [[fork, *branch_of] for fork, branch_of in tables.branch_of.items()],
        "evaluations": tables.evaluations_by_root,
        "read": [sorted(slots) for slots in tables.slots_read],
        "forks": sorted(tables.forks),
        "changes": [
            [change.action, sorted(change.slots), sorted(change.parts)] for change in tables.stepper.changes.known
        ],
        "decided": {name: refinement.decided for name, refinement in tables.stepper.refinements.items()},
        "twins": [([list(e) for e in effect], same) for effect, same in tables.same_effect.items()],
    }


def restore(tables: Tables, kept: dict[str, Any]) -> None:
    """Fill new tables from a snapshot. The store must number slots and values as the one of the snapshot did."""
    if kept["slot words"] > tables.slot_words:
        tables.widen_masks(kept["slot words"])
    for name, (kind, shape, content) in kept["arrays"].items():
        held = np.frombuffer(content, kind).reshape(shape)
        if name in ("residual_keys", "residual_tries"):
            setattr(tables, name, held.copy())
        else:
            getattr(tables, name)[: len(held)] = held
    tables.top[0], tables.tries[0], tables.entries[0], tables.outcomes, tables.leaves = kept["counts"]
    tables.spread_outcomes = tables.outcomes
    tables.leaf_weight, tables.outcome_weight = list(kept["leaf weights"]), list(kept["outcome weights"])
    tables.most_leaves, tables.most_outcomes = list(kept["most leaves"]), list(kept["most outcomes"])
    tables.below = {cell: (leaves, outcomes) for cell, leaves, outcomes in kept["below"]}
    tables.branch_of = {fork: tuple(branch_of) for fork, *branch_of in kept["branches"]}
    tables.evaluations_by_root = list(kept["evaluations"])
    choices, starts = tables.choice, tables.choice_start
    tables.outcome_choices = [tuple(choices[starts[o] : starts[o + 1]].tolist()) for o in range(tables.outcomes)]
    tables.slots_read = [set(slots) for slots in kept["read"]]
    tables.forks = set(kept["forks"])
    for name, decided in kept["decided"].items():
        tables.stepper.refinements[name].decided = decided
    read = {root.index: set(tables.slots_read[root.index]) for root in tables.stepper.of_kind(MAPPING)}
    tables.stepper.changes.restore(kept["changes"], read)
    tables.same_effect = {tuple((e[0], e[1], e[2]) for e in effect): list(same) for effect, same in kept["twins"]}
