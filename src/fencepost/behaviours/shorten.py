"""Shortens a counterexample: leaves out of a behaviour what is not needed for it to go wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost.behaviours.lasso import Choice, Row, fair_violation
from fencepost.language.values import Value
from fencepost.semantics import FairnessCondition, Outcome, Root, Stepper

Wanted = tuple[Root, tuple[Value, ...]]
"""A step to be taken: its root, and what it chooses."""
Path = Sequence[Choice]

MOST_CALLS = 20_000
"""Calls of the author's Python that shortening may take: a second or two."""


class _Walker:
    """Takes steps in the author's Python, and remembers the outcomes."""

    def __init__(self, stepper: Stepper, initial: Row) -> None:
        self.stepper = stepper
        self.initial = initial
        self.actions = stepper.of_kind("action")
        self.constraints = stepper.of_kind("constraint")
        self.step_constraints = stepper.of_kind("step_constraint")
        self.most = stepper.evaluations + MOST_CALLS
        self.known: dict[tuple[int, Row, Row | None], list[Outcome]] = {}

    def wanted(self, path: Path) -> list[Wanted]:
        """The steps of a path by what they choose, which they can choose elsewhere too."""
        found: list[Wanted] = []
        row = self.initial
        for number, choices in path:
            outcome = next(o for o in self.outcomes(self.stepper.roots[number], row) if o.choices == tuple(choices))
            found.append((self.stepper.roots[number], outcome.labels))
            row = self.stepper.apply(row, outcome)
        return found

    def outcomes(self, root: Root, row: Row, after: Row | None = None) -> list[Outcome]:
        key = (root.index, row, after)
        if key not in self.known:
            self.known[key] = self.stepper.outcomes(root, row, after)
        return self.known[key]

    def is_outside(self, row: Row) -> bool:
        """Whether a constraint keeps a search from going on from here."""
        return any(self.outcomes(c, row) for c in self.constraints)

    def step(self, root: Root, labels: tuple[Value, ...], row: Row) -> tuple[Outcome, Row] | None:
        """A step with these choices, and the row that it leads to; None if it cannot be taken here."""
        outcome = next((o for o in self.outcomes(root, row) if o.labels == labels), None)
        if outcome is None or not outcome.writes:
            return None
        after = self.stepper.apply(row, outcome)
        return None if any(self.outcomes(c, row, after) for c in self.step_constraints) else (outcome, after)


class Shortening(_Walker):
    """Makes of a behaviour from ``initial`` that goes wrong one of no more steps that violates the same property.

    ``kind`` is ``invariant``, ``step_invariant``, ``refinement`` or ``deadlock``, or ``sometimes``: then it stays a
    witness. Runs of steps, ever shorter ones, are left out, together with what cannot be taken without them; what
    still goes wrong is kept. No single step of the result can be left out (unless :data:`MOST_CALLS` ended it), but a
    shorter behaviour of other steps may exist.
    """

    def __init__(self, stepper: Stepper, kind: str, name: str, initial: Row) -> None:
        super().__init__(stepper, initial)
        self.stepwise = kind in ("step_invariant", "refinement")
        self.deadlock = kind == "deadlock"
        self.broken = [r for r in stepper.of_kind(kind) if r.reported == name]

    def run(self, path: Path) -> Path:
        """The shorter path."""
        wanted = self.wanted(path)
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

    def replay(self, wanted: Sequence[Wanted]) -> list[tuple[Wanted, Choice]] | None:
        """Take those of the steps that can be taken, until something is wrong; None if nothing is."""
        row = self.initial
        taken: list[tuple[Wanted, Choice]] = []
        for root, labels in wanted:
            step = self.step(root, labels, row)
            if step is None:
                continue
            if self.is_outside(row):
                return None
            outcome, after = step
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


class LassoShortening(_Walker):
    """Makes of a lasso from ``initial`` one of no more steps that violates the same temporal property and is as fair.

    ``parts`` are the predicates of the property, ``fairness``: its fairness conditions. The steps that close a loop may
    be spread over it, so runs of the steps of one action are left out too. As for :class:`Shortening`, a shorter lasso
    may exist.
    """

    def __init__(
        self, stepper: Stepper, parts: Sequence[Root], fairness: Sequence[FairnessCondition], initial: Row
    ) -> None:
        super().__init__(stepper, initial)
        self.parts = parts
        self.fairness = fairness

    def run(self, path: Path, loop: int) -> tuple[Path, int]:
        """The shorter path, and the number of the state from which on it repeats: ``loop`` on the given one."""
        wanted, best = self.wanted(path), (list(path), loop)
        size = len(wanted)
        while size and self.stepper.evaluations < self.most:
            before = len(wanted)
            for left_out in self.runs(wanted, size):
                if self.stepper.evaluations >= self.most:
                    break
                rest = [step for place, step in enumerate(wanted) if place not in left_out]
                kept = self.replay(rest, best[1] - sum(place < best[1] for place in left_out))
                kept = kept or self.turned(wanted, best[1], min(left_out))
                if kept is not None and len(kept[0]) < len(wanted):
                    wanted, best = kept[0], (kept[1], kept[2])
                    break
            if len(wanted) == before:
                size //= 2
        return best

    def runs(self, wanted: Sequence[Wanted], size: int) -> Iterator[set[int]]:
        """Runs of so many steps, the last ones first: of all steps, and of those of one action, which others may come
        between.
        """
        of_root: dict[int, list[int]] = {}
        for place, (root, _) in enumerate(wanted):
            of_root.setdefault(root.index, []).append(place)
        for places in (list(range(len(wanted))), *of_root.values()):
            for at in range(len(places) - size, -1, -max(1, size // 2)):
                yield set(places[at : at + size])

    def turned(self, wanted: list[Wanted], loop: int, at: int) -> tuple[list[Wanted], list[Choice], int] | None:
        """The lasso that comes into the loop at its state number ``at`` already, and goes round it from there."""
        rows = self.rows(wanted)
        if at >= loop or rows[at] not in rows[loop:]:
            return None
        place = rows.index(rows[at], loop)
        return self.replay(wanted[:at] + wanted[place:] + wanted[loop:place], at)

    def rows(self, wanted: Sequence[Wanted]) -> list[Row]:
        rows = [self.initial]
        for root, labels in wanted:
            step = self.step(root, labels, rows[-1])
            assert step is not None
            rows.append(step[1])
        return rows

    def replay(self, wanted: Sequence[Wanted], loop: int) -> tuple[list[Wanted], list[Choice], int] | None:
        """Take those of the steps that can be taken: as they are wanted, as a path, and where the loop begins; None
        unless they violate the property.
        """
        rows, begins = [self.initial], 0
        taken: list[Wanted] = []
        links: list[Choice] = []
        for place, (root, labels) in enumerate(wanted):
            begins = len(taken) if place <= loop else begins
            step = self.step(root, labels, rows[-1])
            if step is not None:
                if self.is_outside(rows[-1]):
                    return None
                taken.append((root, labels))
                links.append((root.index, step[0].choices))
                rows.append(step[1])
        begins = len(taken) if loop >= len(wanted) else begins
        if rows[begins] != rows[-1] or self.is_outside(rows[-1]):
            return None
        is_one = fair_violation(self.stepper, self.parts, self.fairness, rows, begins) is not None
        return (taken, links, begins) if is_one else None
