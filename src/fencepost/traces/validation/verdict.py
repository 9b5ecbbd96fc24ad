"""What becomes of a trace: the verdict, the path that was taken, and where no way went on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from fencepost.traces.validation.conformance import Event, Objection
from fencepost.traces.validation.replay import Refused, Replayer, Taken
from fencepost.traces.validation.steps import Step

Entry: TypeAlias = "tuple[Event | None, Step, Taken]"
"""A step of a path, and the event that reports it; None if it is hidden. Steps are without their messages and versions,
and events of long traces without their parameters.
"""


@dataclass(frozen=True)
class Refusal:
    """A step that could not be taken where a way ended: the event that reports it, and the reason."""

    event: Event
    step: Step
    why: Refused


@dataclass
class Front:
    """A place where no way goes on, after as many steps of the trace as possible: the path to it from the initial state
    ``start``, the state there, and each step of the trace that could have come next, with the reason why it cannot.
    """

    start: list[int]
    path: list[Entry]
    row: list[int]
    refusals: list[Refusal]


@dataclass
class Verdict:
    """The verdict on one trace.

    ``accepted``: whether all steps were taken or skipped. Otherwise ``taken`` of ``steps`` steps show how far the
    replay got. ``skipped``: the steps that the system may have ignored, and that were left out. ``hidden``: the
    steps that no event reports. ``refusals``: the steps that could have come next, and why each was refused.
    ``problem``: why the trace could not be replayed, or not to an end; if it is not ``covered`` by the conformance,
    that says nothing about the system, and if it is ``undecided``, a limit was reached. ``objections``: of the
    conformance's monitor, wherever the replay got; with any, the trace is not accepted. ``last``: the last steps taken,
    from the state ``base``: all of them, unless there is ``retake``, which takes those before again, from the initial
    state. ``row``: the state after them. ``fronts``: where no way goes on, each way to
    get so far; the first is the above. ``more_fronts``: how many there are besides. ``replayer``: the replayer
    used. ``refused``: how often each action was refused at each line, temporarily or permanently. ``names``: the
    names that model values stand for, as far as the replay got.
    """

    subject: str
    accepted: bool
    events: int
    steps: int
    taken: int = 0
    skipped: int = 0
    refusals: list[Refusal] = field(default_factory=list)
    problem: str = ""
    last: list[Entry] = field(default_factory=list)
    base: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    retake: Callable[[], tuple[list[int], list[Entry]]] | None = None
    hidden: int = 0
    fronts: list[Front] = field(default_factory=list)
    more_fronts: int = 0
    undecided: bool = False
    covered: bool = True
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    replayer: Replayer | None = None
    objections: list[Objection] = field(default_factory=list)
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def start(self) -> list[int]:
        """The initial state of the :attr:`path`."""
        self._complete()
        return self.base

    @property
    def path(self) -> list[Entry]:
        """The steps taken from the initial state. Of a long trace, that takes the time and the memory to take them
        again.
        """
        self._complete()
        return self.last

    def _complete(self) -> None:
        if self.retake is not None:
            self.base, before = self.retake()
            self.last, self.retake = [*before, *self.last], None
