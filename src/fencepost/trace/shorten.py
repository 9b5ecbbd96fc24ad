"""Shortens a counterexample: leaves out of a behaviour what is not needed for it to go wrong."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.spec.values import Value
from fencepost.step import Outcome, Root, Stepper

Row = tuple[int, ...]
Wanted = tuple[Root, tuple[Value, ...]]
"""A step to be taken: its root, and what it chooses."""
Path = Sequence[tuple[int, tuple[int, ...]]]

MOST_CALLS = 20_000
"""Calls of the author's Python that shortening may take: a second or two."""


def shortened(stepper: Stepper, kind: str, name: str, initial: Row, path: Path) -> Path:
    """A behaviour from ``initial`` that violates the same property, of no more steps than ``path``, which does.

    ``kind`` is ``invariant``, ``step_invariant`` or ``deadlock``. Runs of steps, ever shorter ones, are left out, together with
    what can not be taken without them; what still goes wrong is kept. No single step of the result can be left out (unless
    :data:`MOST_CALLS` ended it), but a shorter behaviour of other steps may exist.
    """
    return _Shortening(stepper, kind, name, initial).run(path)


class _Shortening:
    def __init__(self, stepper: Stepper, kind: str, name: str, initial: Row) -> None:
        self.stepper = stepper
        self.initial = initial
        self.stepwise = kind == "step_invariant"
        self.deadlock = kind == "deadlock"
        self.actions = stepper.of_kind("action")
        self.broken = [r for r in stepper.of_kind(kind) if r.name == name]
        self.constraints = stepper.of_kind("constraint")
        self.step_constraints = stepper.of_kind("step_constraint")
        self.most = stepper.evaluations + MOST_CALLS
        self.known: dict[tuple[int, Row, Row | None], list[Outcome]] = {}

    def run(self, path: Path) -> Path:
        wanted: list[Wanted] = []
        row = self.initial
        for number, choices in path:
            outcome = next(o for o in self.outcomes(self.stepper.roots[number], row) if o.choices == tuple(choices))
            wanted.append((self.stepper.roots[number], outcome.labels))
            row = self.stepper.apply(row, outcome)
        best = list(path)
        size = len(wanted)
        while size and self.stepper.evaluations < self.most:
            before = len(best)
            # From the end on: who receives is left out before who sends.
            for at in range(len(wanted) - size, -1, -max(1, size // 2)):
                kept = self.replay(wanted[:at] + wanted[at + size :]) if at + size <= len(wanted) else None
                if kept is not None and len(kept) < len(best):
                    wanted, best = [step for step, _ in kept], [link for _, link in kept]
            if size > 1 or len(best) == before:
                size //= 2
        return best

    def replay(self, wanted: Sequence[Wanted]) -> list[tuple[Wanted, tuple[int, tuple[int, ...]]]] | None:
        """Take those of the steps that can be taken, until something is wrong; None if nothing is."""
        row = self.initial
        taken: list[tuple[Wanted, tuple[int, tuple[int, ...]]]] = []
        for root, labels in wanted:
            outcome = next((o for o in self.outcomes(root, row) if o.labels == labels), None)
            if outcome is None or not outcome.writes:
                continue
            after = self.stepper.apply(row, outcome)
            if any(self.outcomes(c, row) for c in self.constraints):
                return None
            if any(self.outcomes(c, row, after) for c in self.step_constraints):
                continue
            taken.append(((root, labels), (root.index, outcome.choices)))
            if self.is_broken(row, after):
                return taken
            row = after
        return None

    def is_broken(self, row: Row, after: Row) -> bool:
        if self.deadlock:
            return not any(self.outcomes(r, after) for r in self.actions)
        if self.stepwise:
            return any(self.outcomes(r, row, after) for r in self.broken)
        return any(self.outcomes(r, after) for r in self.broken)

    def outcomes(self, root: Root, row: Row, after: Row | None = None) -> list[Outcome]:
        key = (root.index, row, after)
        if key not in self.known:
            self.known[key] = self.stepper.outcomes(root, row, after)
        return self.known[key]
