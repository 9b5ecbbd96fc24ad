"""Orders the steps of several nodes by causality.

A step comes after the previous step of its node, and after the send of the message that it receives. Reads and writes
follow the order of versions. No clock is used.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fencepost.traces.validation.steps import Message, Step, Version


class _After(Sequence[list[int]]):
    """For each step, its direct successors: ``ends`` from ``begins[number]`` to ``begins[number + 1]``. A list of lists
    would take ten times the memory.
    """

    def __init__(self, begins: array[int], ends: array[int]) -> None:
        self._begins = begins
        self._ends = ends

    def __getitem__(self, number: Any) -> Any:
        return self._ends[self._begins[number] : self._begins[number + 1]].tolist()

    def __len__(self) -> int:
        return len(self._begins) - 1


class PartialOrder:
    """The causal order of steps. A step is identified by its number.

    ``steps``: each with its node, those of a node in order. ``in_lines``: all steps of a node come before the first of
    the next. Then a message is forgotten once it is received, and nothing is kept of a step.
    """

    def __init__(self, steps: Iterable[tuple[str, Step]], in_lines: bool = False) -> None:
        self.waits = array("i")
        """For each step, the number of its direct predecessors."""
        self._causes, self._effects = array("i"), array("i")
        self._unmatched: dict[Message, int | deque[int]] = {}
        """Of each message, the sends that nobody has received, or the receipts that nobody has sent, as ``~number``."""
        writes, reads = list[tuple[int, Version]](), list[tuple[int, Version]]()
        lines: dict[str, list[tuple[int, tuple[Message, ...], Message | None]]] = {}
        last: dict[str, int] = {}
        for number, (node, step) in enumerate(steps):
            self.waits.append(0)
            before = last.get(node)
            last[node] = number
            if before is not None:
                self._add(before, number)
            if step.sends or step.receives is not None:
                if in_lines:
                    self._match(number, step.sends, step.receives)
                else:
                    lines.setdefault(node, []).append((number, step.sends, step.receives))
            if step.writes is not None:
                writes.append((number, step.writes))
            if step.reads is not None:
                reads.append((number, step.reads))
        for node in last:
            for each in lines.pop(node, ()):
                self._match(*each)
        waiting = ((each,) if isinstance(each, int) else each for each in self._unmatched.values())
        self.unsent = {~number for some in waiting for number in some if number < 0}
        """Steps that receive a message that was never sent, or not as often as it was received."""
        self._unmatched.clear()
        self._order_versions(writes, reads)
        self.after = self._successors()

    def _add(self, one: int, other: int) -> None:
        self._causes.append(one)
        self._effects.append(other)
        self.waits[other] += 1

    def _match(self, number: int, sends: Sequence[Message], receives: Message | None) -> None:
        """The n-th receipt of a message comes after its n-th send."""
        for message in sends:
            self._meet(message, number)
        if receives is not None:
            self._meet(receives, ~number)

    def _meet(self, message: Message, mine: int) -> None:
        """Order a send, or a receipt as ``~number``, and the first of the other kind that waits; or wait."""
        waiting = self._unmatched.get(message)
        if waiting is None:
            self._unmatched[message] = mine
            return
        first = waiting if isinstance(waiting, int) else waiting[0]
        if (first < 0) == (mine < 0):
            if isinstance(waiting, int):
                self._unmatched[message] = deque((waiting, mine))
            else:
                waiting.append(mine)
            return
        if isinstance(waiting, int) or len(waiting) == 1:
            del self._unmatched[message]
        else:
            waiting.popleft()
        self._add(*((mine, ~first) if first < 0 else (first, ~mine)))

    def _order_versions(self, writes: Sequence[tuple[int, Version]], reads: Sequence[tuple[int, Version]]) -> None:
        writers = {version: number for number, version in writes}
        for number, (name, version) in writes:
            before = writers.get((name, version - 1))
            if before is not None:
                self._add(before, number)
        for number, (name, version) in reads:
            written, replaced = writers.get((name, version)), writers.get((name, version + 1))
            if written is not None and written != number:
                self._add(written, number)
            if replaced is not None and replaced != number:
                self._add(number, replaced)

    def _successors(self) -> _After:
        causes, effects = np.array(self._causes, np.int32), np.array(self._effects, np.int32)
        del self._causes, self._effects
        begins = np.zeros(len(self.waits) + 1, np.int64)
        np.cumsum(np.bincount(causes, minlength=len(self.waits)), out=begins[1:])
        ends = effects[np.argsort(causes, kind="stable")]
        return _After(array("q", begins.tobytes()), array("i", ends.tobytes()))

    def first(self) -> list[int]:
        """The steps without predecessors."""
        return [number for number, count in enumerate(self.waits) if not count]

    def cycle(self) -> list[int]:
        """A cycle of steps, in order; empty if there is none."""
        waits, ready = self.waits[:], self.first()
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


def are_in_lines(nodes: Iterable[str]) -> bool:
    """Whether nodes come one after another: none comes again after another one."""
    seen: dict[str, None] = {}
    last = None
    for node in nodes:
        if node != last and node in seen:
            return False
        seen[node], last = None, node
    return True
