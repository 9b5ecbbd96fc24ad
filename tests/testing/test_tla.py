"""A system is driven along a specification in TLA+."""

from __future__ import annotations

from typing import Any

from docs.documents import EXAMPLES

from fencepost.testing import drive

SPECIFICATION = str(EXAMPLES / "LostUpdate.tla")


class Counter:
    """Clients add one to a counter."""

    def __init__(self) -> None:
        self.counter = 0
        self.seen = {"ann": -1, "bob": -1}
        self.done: set[str] = set()

    def Reads(self, c: Any) -> None:
        self.seen[str(c)] = self.counter

    def Writes(self, c: Any) -> None:
        self.counter = self.seen[str(c)] + 1
        self.done.add(str(c))

    def observe(self) -> dict[str, Any]:
        return {"counter": self.counter, "seen": self.seen, "done": self.done}


class Atomic(Counter):
    """The defect of the specification is not in this one."""

    def Writes(self, c: Any) -> None:
        super().Writes(c)
        self.counter = len(self.done)


def test_a_system_follows_a_specification() -> None:
    driven = drive(SPECIFICATION, Counter).must_follow()
    assert len(driven.covered) == len(driven.graph.transitions) == 14


def test_a_difference_is_told_with_the_lines_of_the_specification() -> None:
    driven = drive(SPECIFICATION, Atomic)
    assert driven.shown is not None and len(driven.shown.trace.steps) == 4
    assert (driven.shown.difference.expected, driven.shown.difference.actual) == ("1", "2")
    assert "LostUpdate.tla:15" in str(driven)
