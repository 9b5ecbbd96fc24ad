"""A readable profile of the compiler: how often it called Python, and which slots have too many values."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fencepost.checker.compiler.tables import Tables

EXPLODING = 4096
"""A slot with more values than this is reported as exploding."""


def exploding(tables: Tables) -> list[tuple[str, int]]:
    """Slots with too many values, the worst first."""
    counts = [(slot.name, len(values)) for slot, values in zip(tables.store.slots, tables.store.values, strict=True)]
    return sorted((c for c in counts if c[1] > EXPLODING), key=lambda c: -c[1])


def profile(tables: Tables) -> dict[str, Any]:
    """The profile that ``--profile`` prints: calls of Python per root, values per slot, sizes of the tables."""
    evaluations = Counter[str]()  # the parts of an invariant have one title
    for root, number in zip(tables.stepper.roots, tables.evaluations_by_root, strict=True):
        evaluations[root.title] += number
    return {
        "evaluations": dict(evaluations),
        "values": {
            slot.name: len(values)
            for index, (slot, values) in enumerate(zip(tables.store.slots, tables.store.values, strict=True))
            if index not in tables.store.markers
        },
        "tables": {
            "outcomes": tables.outcomes,
            "leaves": tables.leaves,
            "residual tries": int(tables.tries[0]) - len(tables.stepper.roots),
            "trie words": int(tables.top[0]),
        },
    }
