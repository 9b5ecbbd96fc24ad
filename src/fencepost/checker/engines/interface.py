"""The reports and results of every engine: progress, and the states and violations found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from fencepost.behaviours.lasso import Met
from fencepost.errors import ProtocolRaised, SystemFailure
from fencepost.language.values import Value
from fencepost.semantics import State, Symmetry, Unfinished

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass
class Progress:
    """How far an exploration is. ``depth`` counts levels, the initial states being level 1; ``queue`` is states found
    but not yet expanded; ``evaluations`` is calls of the author's Python; ``memory`` is resident bytes of the process.
    ``exploding`` names slots whose number of values is out of hand, with that number; ``doing`` is what takes time
    other than exploring, if anything does. ``walks`` is how many walks of a simulation were begun, None if it is a
    search; ``depth`` is then the states of the longest. On Spark, ``shuffled`` is bytes that went from task to task,
    ``stage`` what a job is at.
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
    walks: int | None = None
    shuffled: int = 0
    stage: str = ""


MORE = "compiling more loops"
"""The text of ``doing`` while loops are compiled that no search has needed before, and others were."""

COMPILING = "compiling the loops, once on this machine"
"""The text of ``doing`` while it is not yet exploring, the first time on a machine."""

Report = Callable[[Progress], None]
"""Called by an engine a few times a second, from the thread that called the engine. May raise KeyboardInterrupt."""


@dataclass(frozen=True)
class Found:
    """A violation: ``kind`` is ``invariant``, ``step_invariant``, ``refinement``, ``deadlock`` or a temporal kind; or a
    witness: ``kind`` is ``sometimes``, and ``name`` has the parameters too. ``path`` leads to it from ``initial`` by
    the numbers of roots and of choices. For a step invariant, and for a refinement unless the path is empty, the last
    step is the one that breaks it; for a temporal property the states from number ``loop`` on (the initial one is 0)
    repeat for ever, and ``fairness`` says how that is fair.

    In a simulation ``walk`` is the number of the walk that found it, and ``walked`` how many states it had by then.
    """

    kind: str
    name: str
    initial: State
    path: Sequence[tuple[int, tuple[int, ...]]]
    loop: int | None = None
    fairness: tuple[Met, ...] = ()
    walk: int | None = None
    walked: int = 0


@dataclass(frozen=True)
class Walks:
    """The work of a simulation besides exploring: ``walks`` of at most ``depth`` states, and their ``steps``.

    ``seed`` repeats it. ``unseen``: parts of the state that hold one of a few values (truth values, members of an
    enum), each with those that it never held.
    """

    seed: int
    depth: int
    walks: int
    steps: int
    unseen: dict[str, tuple[Value, ...]]


@dataclass(frozen=True)
class Table:
    """The state space as a table: where it is, how many states and (if they were asked for) steps it has, and to which
    depth.

    Unless ``complete``, it holds the levels that were found before the search ended.
    """

    directory: str
    states: int
    edges: int | None
    depth: int
    complete: bool


class TableWriter(Protocol):
    """Writes the state space down, level by level, while a search goes on; see :class:`fencepost.states.writer.Writer`.

    Fingerprints are 64 bits (uint64), roots are numbers of actions, rows the numbers of the values of a state.
    """

    edges: Any
    """None if steps are not written."""

    def add_level(self, blocks: Iterator[tuple[Array, Array | None, Array | None, Array]]) -> None:
        """The next level, in the order of fingerprints: fingerprints, those of parents, roots, rows."""

    def add_edges(self, sources: Array, targets: Array, roots: Array) -> None:
        """Steps, by the fingerprints they go from and to and the numbers of their roots."""

    def finish(self, complete: bool, ended: str | None, tell: Callable[[int, int], None]) -> Table:
        """Complete the table; ``tell`` is called with the states that are encoded, and of how many."""

    def discard(self) -> None:
        """Remove what was written, but for what a search can go on with."""


@dataclass
class Exploration:
    """The findings of an engine.

    ``taken`` and ``new`` count, per root number, how often an action was taken (steps back to the same state included,
    steps cut by constraints not) and how many distinct states it discovered. ``generated`` counts initial states and
    every step taken, to states outside a constraint too; ``distinct`` leaves those out. ``limit`` says which limit was
    reached, None if the space was exhausted or what was ``found`` (violations), or the ``witnesses``, ended the search;
    ``within_level``: the search ended before its last level was complete;
    ``unfinished`` is the evaluation that had not returned when a limit or the user ended it; ``raised`` is an error of
    the author's Python with the path to the state it was raised in; ``failure`` is what the machine did not give (disk,
    memory), with all that was known until then. ``judged``: the temporal properties that were judged; ``unjudged``: why
    they were not. ``seconds`` are those of the engine;
    ``seconds_before``, of them, those of earlier runs that a resumed search goes on from; ``compiling``, those in which
    loops were compiled. With a ``symmetry`` states
    are counted up to it. ``table``: the state space as it was written down. ``engine``: the one that
    explored, if it is not the one that was asked to; ``on_spark``: whether Spark did a part of it, None if that was not
    asked for.

    In a simulation ``distinct`` is an estimate, ``depth`` the states of the longest walk, ``walks`` tells the rest, and
    ``walk`` is the only walk, if only one was asked for.
    """

    distinct: int = 0
    generated: int = 0
    depth: int = 0
    queue: int = 0
    seconds: float = 0.0
    seconds_before: float = 0.0
    compiling: float = 0.0
    peak_memory: int = 0
    complete: bool = False
    limit: str | None = None
    within_level: bool = False
    interrupted: bool = False
    unfinished: Unfinished | None = None
    taken: dict[int, int] = field(default_factory=dict)
    new: dict[int, int] = field(default_factory=dict)
    found: list[Found] = field(default_factory=list)
    witnesses: list[Found] = field(default_factory=list)
    raised: ProtocolRaised | None = None
    raised_at: Found | None = None
    failure: SystemFailure | None = None
    judged: tuple[str, ...] = ()
    unjudged: str | None = None
    evaluations: int = 0
    profile: dict[str, object] = field(default_factory=dict)
    symmetry: Symmetry | None = None
    table: Table | None = None
    walks: Walks | None = None
    walk: Found | None = None
    engine: str = ""
    on_spark: bool | None = None

    def add(self, found: Found) -> None:
        """Take a violation, or a witness."""
        (self.witnesses if found.kind == "sometimes" else self.found).append(found)
