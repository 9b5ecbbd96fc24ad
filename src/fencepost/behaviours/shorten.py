"""Shortens a counterexample: removes the steps that the violation does not need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost.behaviours.lasso import Choice, Row, fair_violation
from fencepost.language.values import Value
from fencepost.semantics import FairnessCondition, Outcome, Promise, Root, Stepper

Wanted = tuple[Root, tuple[Value, ...]]
"""A step to take: its root, and the options that it chooses."""
Path = Sequence[Choice]

MOST_CALLS = 20_000
"""The most calls of the author's Python in one shortening: a second or two."""


class _Walker:
    """Takes steps in the author's Python, and caches the outcomes."""

    def __init__(self, stepper: Stepper, initial: Row) -> None:
        self.stepper = stepper
        self.initial = initial
        self.actions = stepper.of_kind("action")
        self.constraints = stepper.of_kind("constraint")
        self.step_constraints = stepper.of_kind("step_constraint")
        self.most = stepper.evaluations + MOST_CALLS
        self.known: dict[tuple[int, Row, Row | None], list[Outcome]] = {}

    def wanted(self, path: Path) -> list[Wanted]:
        """The steps of a path with their options by value, so that they can be taken in other states too."""
        steps: list[Wanted] = []
        row = self.initial
        for number, choices in path:
            outcome = next(o for o in self.outcomes(self.stepper.roots[number], row) if o.choices == tuple(choices))
            steps.append((self.stepper.roots[number], outcome.labels))
            row = self.stepper.apply(row, outcome)
        return steps

    def outcomes(self, root: Root, row: Row, after: Row | None = None) -> list[Outcome]:
        key = (root.index, row, after)
        if key not in self.known:
            self.known[key] = self.stepper.outcomes(root, row, after)
        return self.known[key]

    def is_outside(self, row: Row) -> bool:
        """Whether a constraint stops the search at this state."""
        return any(self.outcomes(c, row) for c in self.constraints)

    def step(self, root: Root, labels: tuple[Value, ...], row: Row) -> tuple[Outcome, Row] | None:
        """A step with these choices, and the row after it. None if it cannot be taken here."""
        outcome = next((o for o in self.outcomes(root, row) if o.labels == labels), None)
        if outcome is None or not outcome.writes:
            return None
        after = self.stepper.apply(row, outcome)
        return None if any(self.outcomes(c, row, after) for c in self.step_constraints) else (outcome, after)


class Shortening(_Walker):
    """Shortens a behaviour from ``initial`` to one that violates the same property.

    ``kind`` is ``invariant``, ``step_invariant``, ``refinement`` or ``deadlock``, or ``sometimes`` to keep a witness.
    It removes ever shorter runs of steps, together with the steps that cannot be taken without them, and keeps a result
    that still violates. In the end no single step can be removed (unless :data:`MOST_CALLS` was reached), but a shorter
    behaviour of other steps may exist.
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
            # From the end: a receive is removed before its send.
            for at in range(len(wanted) - size, -1, -max(1, size // 2)):
                kept = self.replay(wanted[:at] + wanted[at + size :]) if at + size <= len(wanted) else None
                if kept is not None and len(kept) < len(best):
                    wanted, best = [step for step, _ in kept], [link for _, link in kept]
            if size > 1 or len(best) == before:
                size //= 2
        return best

    def replay(self, wanted: Sequence[Wanted]) -> list[tuple[Wanted, Choice]] | None:
        """Take the steps that can be taken, up to a violation. None if there is no violation."""
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
    """Shortens a lasso from ``initial`` to one that violates the same temporal property and is still fair.

    ``promise`` is the property, ``fairness`` the fairness conditions. The steps that close a loop may
    be spread over it, so runs of the steps of one action are removed too. As for :class:`Shortening`, a shorter lasso
    may exist.
    """

    def __init__(self, stepper: Stepper, promise: Promise, fairness: Sequence[FairnessCondition], initial: Row) -> None:
        super().__init__(stepper, initial)
        self.promise = promise
        self.fairness = fairness

    def run(self, path: Path, loop: int) -> tuple[Path, int]:
        """The shorter path, and the number of the state that it returns to. ``loop`` is that number in ``path``."""
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
        """Runs of ``size`` steps, from the end: in all steps, then in those of each action, with others in between."""
        of_root: dict[int, list[int]] = {}
        for place, (root, _) in enumerate(wanted):
            of_root.setdefault(root.index, []).append(place)
        for places in (list(range(len(wanted))), *of_root.values()):
            for at in range(len(places) - size, -1, -max(1, size // 2)):
                yield set(places[at : at + size])

    def turned(self, wanted: list[Wanted], loop: int, at: int) -> tuple[list[Wanted], list[Choice], int] | None:
        """The lasso that enters the loop earlier, at its state number ``at``, and goes round from there."""
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
        """Take the steps that can be taken. Returns them, their path, and the start of the loop. None if they do not
        violate the property.
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
        is_one = fair_violation(self.stepper, self.promise, self.fairness, rows, begins) is not None
        return (taken, links, begins) if is_one else None
