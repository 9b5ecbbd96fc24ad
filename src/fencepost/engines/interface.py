"""What every engine takes and gives.

The answer is the same from each of them, whatever the number of workers: the level of the first violation is finished; the
parent of a state is its least (parent fingerprint, action, choices), which is also the step that counts as having discovered it; with a view
the state found by that step stands for all that look like it; of several violations of one property in a level the one
with the least (fingerprint, action, choices) is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fencepost.errors import ProtocolRaised, SystemFailure
from fencepost.step import State


@dataclass(frozen=True)
class Options:
    """How to explore. Sizes are bytes, times are seconds; None means no limit.

    ``deadlock``: look for states without successors. ``keep_going``: go on after a violation, one shortest counterexample per
    property. ``bits``: of a fingerprint, 64 or 128. ``checking``: run the author's Python again on a sample and compare.
    ``checkpoint``: a directory to save to, between levels, at most every ``checkpoint_every`` seconds and for at most a tenth of
    the time; ``resume``: one to go on from.
    """

    workers: int = 2
    max_states: int | None = None
    max_depth: int | None = None
    max_memory: int | None = None
    timeout: float | None = None
    deadlock: bool = False
    keep_going: bool = False
    bits: int = 64
    checking: bool = False
    checkpoint: Path | None = None
    checkpoint_every: float = 2.0
    resume: Path | None = None


@dataclass
class Progress:
    """How far an exploration is. ``depth`` counts levels, the initial states being level 1; ``queue`` is states found but not
    yet expanded; ``evaluations`` is calls of the author's Python; ``memory`` is resident bytes of the process.
    ``exploding`` names slots whose number of values is out of hand, with that number; ``doing`` is what takes time other than
    exploring, if anything does.
    """

    generated: int = 0
    distinct: int = 0
    depth: int = 0
    queue: int = 0
    seconds: float = 0.0
    memory: int = 0
    evaluations: int = 0
    exploding: list[tuple[str, int]] = field(default_factory=list)
    doing: str = ""


Report = Callable[[Progress], None]
"""Called by an engine a few times a second, from the thread that called the engine. May raise KeyboardInterrupt."""


@dataclass(frozen=True)
class Found:
    """A violation: ``kind`` is ``invariant``, ``step_invariant`` or ``deadlock``; ``path`` leads to it from ``initial`` by the
    numbers of roots and of choices. For a step invariant the last step is the one that breaks it.
    """

    kind: str
    name: str
    initial: State
    path: Sequence[tuple[int, tuple[int, ...]]]


@dataclass
class Exploration:
    """What an engine found.

    ``taken`` and ``new`` count, per root number, how often an action was taken (steps back to the same state included, steps cut
    by constraints not) and how many distinct states it discovered. ``generated`` counts initial states and every step taken,
    to states outside a constraint too; ``distinct`` leaves those out. ``limit`` says which limit was reached, None if the
    space was exhausted or a violation ended the search; ``raised`` is an error of the author's Python with the path to the
    state it was raised in; ``failure`` is what the machine did not give (disk, memory), with all that was known until then.
    """

    distinct: int = 0
    generated: int = 0
    depth: int = 0
    queue: int = 0
    seconds: float = 0.0
    peak_memory: int = 0
    complete: bool = False
    limit: str | None = None
    interrupted: bool = False
    taken: dict[int, int] = field(default_factory=dict)
    new: dict[int, int] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)
    raised: ProtocolRaised | None = None
    raised_at: Found | None = None
    failure: SystemFailure | None = None
    evaluations: int = 0
    profile: dict[str, object] = field(default_factory=dict)
