"""The result of driving a system as plain values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fencepost.testing.graph import Graph
from fencepost.testing.shrink import Shown
from fencepost.testing.system import Adapter
from fencepost.testing.walk import Edge


@dataclass
class Findings:
    """What was driven, and the difference that was found.

    ``covered``: the transitions that the system took. ``graph`` has all of them. ``shown``: the difference, with the
    shortest behaviour that shows it. ``repeats``: whether it came again when the behaviour was run again.
    ``is_shortest``: whether every shorter behaviour was tried. ``refusals``: the calls that were to be refused, and
    were. ``wanted`` and ``left``: how many transitions or pairs were to be driven, and were not. ``given_up``: those
    that the system avoids. ``limits``: what ended it early, in words. ``seconds``: the time that it took, without
    shortening.
    """

    graph: Graph
    adapter: Adapter
    cover: str
    seed: int
    covered: set[Edge] = field(default_factory=set)
    shown: Shown | None = None
    repeats: bool = True
    is_shortest: bool = True
    behaviours: int = 0
    steps: int = 0
    refusals: int = 0
    ambiguous: int = 0
    wanted: int = 0
    left: int = 0
    given_up: list[Edge] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def follows(self) -> bool:
        """Whether the system was driven, and did what the protocol does."""
        return self.shown is None and bool(self.covered)

    @property
    def actions(self) -> dict[str, tuple[int, int]]:
        """For each action, how many of its transitions were driven, and how many there are."""
        every = Counter(edge.action for edge in self.graph.transitions)
        driven = Counter(edge.action for edge in self.covered)
        return {name: (driven[name], every[name]) for name in dict.fromkeys(root.name for root in self.graph.roots)}

    @property
    def never(self) -> list[str]:
        """The actions that were never driven."""
        return [name for name, (driven, _) in self.actions.items() if not driven]
