"""Initial states in large numbers: all combinations of some values, and the states by number."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.semantics import State, Stepper, ValueTable

BLOCK_ROWS = 1 << 16
"""The combinations that are made at once."""


def combinations(stepper: Stepper) -> Iterator[Array]:
    """The combinations of values for initial states, in the order of their choices, as value numbers (one row a state,
    one column a slot), some rows at a time. Raises :class:`fencepost.semantics.LimitReached` at a limit.
    """
    groups = stepper.factors()
    factors = [_columns(group) for group in groups]
    total, width = prod(map(len, groups)), len(stepper.store.slots)
    for begin in range(0, total, BLOCK_ROWS):
        stepper.deadline.check()
        left = np.arange(begin, min(begin + BLOCK_ROWS, total))
        rows = np.zeros((len(left), width), np.int64)
        for slots, numbers in reversed(factors):
            left, which = np.divmod(left, len(numbers))
            rows[:, slots] = numbers[which]
        yield rows


def _columns(group: Sequence[dict[int, int]]) -> tuple[list[int], Array]:
    """The slots that any of these writes, and what they write to them."""
    slots = list(dict.fromkeys(slot for writes in group for slot in writes))
    numbers = np.array([[writes.get(slot, 0) for slot in slots] for writes in group], np.int64)
    return slots, numbers.reshape(len(group), len(slots))


class Starts:
    """Initial states, by number."""

    def __init__(self, store: ValueTable) -> None:
        self._store = store
        self._blocks: list[Array] = []
        self._begins: list[int] = []
        self._count = 0
        self._made: dict[int, State] = {}
        """Those that were asked for, so that one has one identity."""

    def add(self, rows: Array) -> None:
        """Number more of them, as value numbers: one row a state, one column a slot."""
        self._begins.append(self._count)
        self._blocks.append(rows.astype(np.uint32))
        self._count += len(rows)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[State]:
        return map(self.__getitem__, range(self._count))

    def __getitem__(self, number: int) -> State:
        found = self._made.get(number)
        if found is None:
            block = bisect_right(self._begins, number) - 1
            row = self._blocks[block][number - self._begins[block]].tolist()
            found = self._made[number] = State(self._store, self._store.normal(row))
        return found

    def number(self, state: State) -> int:
        """The number of one that was asked for."""
        return next(number for number, each in self._made.items() if each is state)
