"""Puts the steps of several nodes into one order that their causes allow.

A step comes after the one before it in its node, after the send of what it receives, and in the order of the versions
that it reads and writes. No clock is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from fencepost.traces.validation.conformance import Step


class PartialOrder:
    """The order of steps that their causes ask for. A step is known by its number.

    ``lines``: the numbers of the steps of each node, in their order.
    """

    def __init__(self, steps: Sequence[Step], lines: Sequence[Sequence[int]]) -> None:
        self.after: list[list[int]] = [[] for _ in steps]
        """For each step those that come after it."""
        self.waits: list[int] = [0] * len(steps)
        """For each step how many come before it."""
        for line in lines:
            for one, other in pairwise(line):
                self._add(one, other)
        self.unsent: set[int] = set()
        """The steps that receive what nobody has sent, or not so often."""
        self._order_messages(steps, lines)
        self._order_versions(steps)

    def _add(self, one: int, other: int) -> None:
        self.after[one].append(other)
        self.waits[other] += 1

    def _order_messages(self, steps: Sequence[Step], lines: Sequence[Sequence[int]]) -> None:
        """The n-th receipt of a message comes after it was sent for the n-th time."""
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
        """The steps that nothing comes before."""
        return [number for number, count in enumerate(self.waits) if not count]

    def cycle(self) -> list[int]:
        """Steps that come before themselves, in a circle; empty if there are none."""
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
    """The numbers of the steps of each node, given the node of each step."""
    lines: dict[str, list[int]] = defaultdict(list)
    for number, node in enumerate(nodes):
        lines[node].append(number)
    yield from lines.values()
