"""Orders the steps of several nodes by causality.

A step comes after the previous step of its node, and after the send of the message that it receives. Reads and writes
follow the order of versions. No clock is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from fencepost.traces.validation.steps import Step


class PartialOrder:
    """The causal order of steps. A step is identified by its number.

    ``lines``: for each node the numbers of its steps, in order.
    """

    def __init__(self, steps: Sequence[Step], lines: Sequence[Sequence[int]]) -> None:
        self.after: list[list[int]] = [[] for _ in steps]
        """For each step, its direct successors."""
        self.waits: list[int] = [0] * len(steps)
        """For each step, the number of its direct predecessors."""
        for line in lines:
            for one, other in pairwise(line):
                self._add(one, other)
        self.unsent: set[int] = set()
        """Steps that receive a message that was never sent, or not as often as it was received."""
        self._order_messages(steps, lines)
        self._order_versions(steps)

    def _add(self, one: int, other: int) -> None:
        self.after[one].append(other)
        self.waits[other] += 1

    def _order_messages(self, steps: Sequence[Step], lines: Sequence[Sequence[int]]) -> None:
        """The n-th receipt of a message comes after its n-th send."""
        sent: dict[Any, list[int]] = defaultdict(list)
        for line in lines:
            for number in line:
                for message in steps[number].sends:
                    sent[message].append(number)
        received: dict[Any, int] = defaultdict(int)
        for line in lines:
            for number in line:
                message = steps[number].receives
                if message is None:
                    continue
                senders = sent.get(message, ())
                if received[message] < len(senders):
                    self._add(senders[received[message]], number)
                else:
                    self.unsent.add(number)
                received[message] += 1

    def _order_versions(self, steps: Sequence[Step]) -> None:
        writers: dict[Any, int] = {}
        for number, step in enumerate(steps):
            if step.writes is not None:
                writers[step.writes] = number
        for number, step in enumerate(steps):
            if step.writes is not None:
                name, version = step.writes
                before = writers.get((name, version - 1))
                if before is not None:
                    self._add(before, number)
            if step.reads is not None:
                name, version = step.reads
                written, replaced = writers.get((name, version)), writers.get((name, version + 1))
                if written is not None and written != number:
                    self._add(written, number)
                if replaced is not None and replaced != number:
                    self._add(number, replaced)

    def first(self) -> list[int]:
        """The steps without predecessors."""
        return [number for number, count in enumerate(self.waits) if not count]

    def cycle(self) -> list[int]:
        """A cycle of steps, in order; empty if there is none."""
        waits, ready = list(self.waits), self.first()
        while ready:
            for other in self.after[ready.pop()]:
                waits[other] -= 1
                if not waits[other]:
                    ready.append(other)
        left = {number for number, count in enumerate(waits) if count}
        before: dict[int, int] = {}
        for number in left:
            for other in self.after[number]:
                if other in left:
                    before.setdefault(other, number)
        if not left:
            return []
        number, seen = min(left), list[int]()
        while number not in seen:
            seen.append(number)
            number = before[number]
        return list(reversed(seen[seen.index(number) :]))


def lines_of(nodes: Sequence[str]) -> Iterator[list[int]]:
    """For each node the numbers of its steps; ``nodes`` has the node of each step."""
    lines: dict[str, list[int]] = defaultdict(list)
    for number, node in enumerate(nodes):
        lines[node].append(number)
    yield from lines.values()
