"""Reads a saved state space, and compares it with the plain explorer's states."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fencepost
from fencepost.checker.engines import reference
from fencepost.checker.engines.options import SearchOptions
from fencepost.checker.engines.search import Search
from fencepost.language.seam import Model
from fencepost.semantics import State, Stepper
from fencepost.semantics.state import LOW
from fencepost.states.manifest import StateSpace

Rows = list[dict[str, Any]]


def written(protocol: Model, directory: Path, **options: Any) -> StateSpace:
    """Save the state space of a protocol, with its steps."""
    options = {"workers": 1, "engine": "embedded", "keep_going": True, **options}
    result = fencepost.check(protocol, states=directory, edges=True, **options)
    assert result.failure is None and result.table is not None, result.failure
    return StateSpace(directory)


def rows(space: StateSpace, table: str) -> Rows:
    """All rows of a table, sorted."""
    found = space.dataset(table).to_table().to_pylist()
    return sorted(found, key=lambda row: [str(value) for value in row.values()])


class Kept(reference.Reference):
    """The plain explorer, which keeps every state."""

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self.every: dict[int, tuple[int, tuple[int, ...]]] = {}

    def expand(self) -> bool:
        self.every |= {found: (self.search.result.depth, self.rows[found]) for found in self.frontier}
        return super().expand()


def states(protocol: Model, **options: Any) -> Iterator[tuple[int, int, State, Any]]:
    """Every state with its fingerprint, its depth, and how it was discovered: the parent and the action's title."""
    stepper = Stepper(protocol)
    search = Search(stepper, SearchOptions(keep_going=True, **options))
    kept = Kept(search)
    search.run(kept)
    for found, (depth, row) in kept.every.items():
        link = kept.links[found]
        yield found, depth, State(stepper.store, row), link and (link[0], stepper.roots[link[1]])


def steps(protocol: Model) -> set[tuple[int, int, str, str]]:
    """Every step that changes the state, by fingerprints, action and title. The search's own records are not used."""
    found = set()
    stepper = None
    for source, _, state, _ in states(protocol):
        stepper = stepper or Stepper(protocol)
        row = tuple(stepper.store.intern(stepper.store.slot(slot), value) for slot, value in state.slots())
        for root in stepper.of_kind("action"):
            for outcome in stepper.outcomes(root, row):
                after = stepper.apply(row, outcome)
                cut = any(stepper.outcomes(c, row, after) for c in stepper.of_kind("step_constraint"))
                if outcome.writes and not cut:
                    found.add((source, stepper.store.fingerprint(after) & LOW, root.name, root.title))
    return found
