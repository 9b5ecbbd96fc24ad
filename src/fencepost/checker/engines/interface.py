"""What every engine reports and returns: its progress, and the states and violations it found."""

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
    """How far an exploration is. ``depth`` counts levels; the initial states are level 1. ``queue``: states found but
    not yet expanded. ``evaluations``: calls of the author's Python. ``memory``: resident bytes of the process.
    ``exploding``: slots that have too many values, with their number. ``doing``: what takes time other than exploring,
    or empty. ``walks``: the walks that a simulation has begun, None for a search; ``depth`` is then the length of the
    longest walk in states. On Spark, ``shuffled`` is the bytes moved between tasks, and ``stage`` the stage of the job.
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
"""The text of ``doing`` while compiling loops that no search on this machine has needed before, though some ran."""

COMPILING = "compiling the loops, once on this machine"
"""The text of ``doing`` while compiling the loops for the first time on a machine."""

Report = Callable[[Progress], None]
"""An engine calls it a few times a second, in the thread that called the engine. It may raise KeyboardInterrupt."""


@dataclass(frozen=True)
class Found:
    """A violation or a witness. The ``kind`` of a violation is ``invariant``, ``step_invariant``, ``refinement``,
    ``deadlock`` or a temporal kind. The ``kind`` of a witness is ``sometimes``, and its ``name`` includes the
    parameters. ``path`` leads to it from ``initial``, as the numbers of roots and of choices. The last step is the one
    that violates a step invariant or a refinement (unless the path is empty). For a temporal property, the states from
    number ``loop`` (the initial one is 0) repeat forever, and ``fairness`` says why that is fair.

    In a simulation, ``walk`` is the number of the walk that found it, and ``walked`` its number of states by then.
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
    """The work of a simulation: ``walks`` of at most ``depth`` states, with ``steps`` in all.

    ``seed`` repeats it. ``unseen``: parts of the state that hold one of a few values (truth values, members of an
    enum), each with the values that it never held.
    """

    seed: int
    depth: int
    walks: int
    steps: int
    unseen: dict[str, tuple[Value, ...]]


@dataclass(frozen=True)
class Table:
    """The state space as a table: its directory, its numbers of states and (if requested) steps, and its depth.

    Unless ``complete``, it holds the levels found before the search ended.
    """

    directory: str
    states: int
    edges: int | None
    depth: int
    complete: bool


class TableWriter(Protocol):
    """Writes the state space level by level during a search; see :class:`fencepost.states.writer.Writer`.

    Fingerprints have 64 bits (uint64). Roots are numbers of actions. Rows are the value numbers of states.
    """

    edges: Any
    """None if steps are not written."""

    def add_level(self, blocks: Iterator[tuple[Array, Array | None, Array | None, Array]]) -> None:
        """Add the next level, sorted by fingerprint: blocks of fingerprints, those of the parents, roots, rows."""

    def add_edges(self, sources: Array, targets: Array, roots: Array) -> None:
        """Add steps: the fingerprints they lead from and to, and the numbers of their roots."""

    def finish(self, complete: bool, ended: str | None, report: Callable[[int, int], None]) -> Table:
        """Complete the table. Calls ``report`` with the number of states encoded so far, and the total."""

    def discard(self) -> None:
        """Remove what was written, except for what a search can go on with."""


@dataclass
class Exploration:
    """The findings of an engine.

    ``taken`` and ``new`` count, by root number, how often an action was taken, and how many distinct states it
    discovered. Steps back to the same state count as taken; steps that a constraint cuts do not. ``generated`` counts
    initial states and every step taken, including steps to states outside a constraint; ``distinct`` leaves those
    states out.

    ``limit`` is the limit that was reached. It is None if the space was exhausted, or if violations (``found``) or
    ``witnesses`` ended the search. ``within_level``: the search ended before its last level was complete.
    ``unfinished``: the evaluation that was running when a limit or the user ended the search. ``raised``: an error of
    the author's Python; ``raised_at``: the path to the state in which it was raised. ``failure``: a resource that the
    machine lacked (disk, memory); the other fields hold what was known by then. ``judged``: the temporal properties
    that were judged; ``unjudged``: why the others were not.

    ``seconds``: of the engine. They include ``seconds_before``, of the earlier runs of a resumed search, and
    ``compiling``, spent compiling loops. With a ``symmetry``, states are counted up to it. ``table``: the state space
    as it was written. ``reduced``: whether a partial order reduction left out states, which the counts do not include.
    ``engine``: the one that explored, if it is not the requested one. ``on_spark``: whether Spark did a part of it;
    None unless Spark was requested.

    In a simulation ``distinct`` is an estimate, ``depth`` is the length of the longest walk in states, ``walks``
    describes the rest, and ``walk`` is the single walk if only one was requested.
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
    reduced: bool = False
    table: Table | None = None
    walks: Walks | None = None
    walk: Found | None = None
    engine: str = ""
    on_spark: bool | None = None

    def add(self, found: Found) -> None:
        """Add a violation or a witness."""
        (self.witnesses if found.kind == "sometimes" else self.found).append(found)
