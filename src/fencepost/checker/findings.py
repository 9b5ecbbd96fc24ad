"""The result of a check as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost import errors
from fencepost.behaviours import Trace
from fencepost.behaviours.lasso import Met
from fencepost.checker.engines.interface import Table, Walks
from fencepost.language.declarations import TEMPORAL
from fencepost.language.seam import Model, language_of
from fencepost.language.values import Value
from fencepost.semantics import Unfinished

EXIT_CODES = {
    "assumption": errors.ASSUMPTION_VIOLATED,
    "postcondition": errors.ASSUMPTION_VIOLATED,
    "deadlock": errors.DEADLOCK,
    **dict.fromkeys(TEMPORAL, errors.LIVENESS_VIOLATED),
}
"""The exit code for each kind of violation. Violated invariants have SAFETY_VIOLATED instead. A language may
have others.
"""


@dataclass(frozen=True)
class Violation:
    """A property that does not hold, with the shortest behaviour that shows it. In a simulation it is the behaviour of
    the walk that met it.

    ``kind`` is ``invariant``, ``step_invariant``, ``refinement``, ``deadlock``, a temporal kind
    (``always_eventually``, ``eventually_always``, ``leads_to``), ``assumption``, ``postcondition`` or ``sometimes``.
    The trace of a temporal kind is a lasso, and ``fairness`` says how its loop meets each fairness condition. The last
    three kinds have no trace; for ``sometimes``, ``never`` lists the parameters for which the property is true in no
    state. In a simulation, ``walk`` is the number of the walk, ``walked`` the states it had visited, and the trace is
    the shortened walk.
    """

    kind: str
    name: str
    trace: Trace | None
    fairness: tuple[Met, ...] = ()
    walk: int | None = None
    walked: int = 0
    never: tuple[str, ...] = ()


@dataclass(frozen=True)
class Witness:
    """The shortest behaviour to a requested state in which ``name`` is true. In a simulation it is the behaviour of the
    walk that met it.

    ``name`` is a ``sometimes`` property with its parameters, or a condition. ``walk`` and ``walked``: as in
    :class:`Violation`.
    """

    name: str
    trace: Trace
    walk: int | None = None
    walked: int = 0


@dataclass(frozen=True)
class ActionCount:
    """How often an action was taken, and how many distinct states it discovered (0 in a simulation, which does not
    know). Every report flags an action that was never taken.
    """

    name: str
    taken: int
    new_states: int


@dataclass(frozen=True)
class Findings:
    """The findings of a check: the values of a :class:`fencepost.Result`.

    ``complete``: every reachable state was explored. ``distinct_states``, ``generated_states``, ``depth`` and ``queue``
    count as TLC does, up to ``symmetry`` of the constants it names. Unless ``exact``, the counts are upper bounds:
    some states of a large symmetry group were counted more than once.

    ``limit`` names the limit that ended the search early. ``within_level``: the limit or the user stopped it in the
    middle of a level, so the counts depend on timing and on the workers. ``unfinished`` is the evaluation that was
    still running when the search stopped, ``error`` the exception of the protocol, ``failure`` a resource that the
    machine lacked. ``seconds`` is how long the caller of :func:`fencepost.check` waited. It includes every engine
    tried, tables, initial states, liveness and the replay of counterexamples, and in a resumed search the earlier runs.
    ``compiling`` is the part of it spent compiling loops, which rates leave out.

    ``judged`` names the temporal properties that were judged; ``unjudged`` is why none was although everything was
    explored. ``violations`` are in order of discovery. ``witnesses`` are the behaviours found for ``sometimes``
    properties and conditions, ``unreached`` names those without one so far, and ``reached`` says that the search looked
    for nothing else and found them all, so it may have ended early. ``collision_probability`` is the chance that two
    states shared a fingerprint and one was missed.

    A simulation has ``walks``, how it was done, and ``walk``, the single walk if only one was requested. It is never
    complete, ``distinct_states`` is an estimate, and ``depth`` is the length of the longest walk in states.

    ``reduced``: a partial order reduction left out states that are not needed, and the counts are without them.
    ``table``: the state space, if it was written. ``engine``: the one that explored. ``on_spark``: whether Spark did a
    part of it; None unless Spark was requested.
    """

    protocol: Model
    engine: str
    complete: bool
    distinct_states: int
    generated_states: int
    depth: int
    queue: int
    seconds: float
    peak_memory_bytes: int
    actions: list[ActionCount]
    violations: list[Violation] = field(default_factory=list)
    witnesses: list[Witness] = field(default_factory=list)
    unreached: tuple[str, ...] = ()
    reached: bool = False
    limit: str | None = None
    within_level: bool = False
    interrupted: bool = False
    unfinished: Unfinished | None = None
    error: errors.ProtocolRaised | None = None
    error_trace: Trace | None = None
    failure: errors.SystemFailure | None = None
    judged: tuple[str, ...] = ()
    unjudged: str | None = None
    evaluations: int = 0
    collision_probability: float = 0.0
    profile: Mapping[str, Any] = field(default_factory=dict)
    symmetry: tuple[str, ...] = ()
    exact: bool = True
    reduced: bool = False
    table: Table | None = None
    walks: Walks | None = None
    walk: Trace | None = None
    on_spark: bool | None = None
    compiling: float = 0.0

    @property
    def constants(self) -> Mapping[str, Value]:
        """The constants that were checked."""
        return self.protocol.constants

    @property
    def states_per_second(self) -> float:
        """Distinct states a second over the whole exploration, without the time spent compiling."""
        return self._rate(self.distinct_states)

    @property
    def steps_per_second(self) -> float:
        """Steps a second of a simulation, on all workers together."""
        return self._rate(self.walks.steps) if self.walks is not None else 0.0

    def _rate(self, count: int) -> float:
        seconds = self.seconds - self.compiling
        return count / seconds if seconds > 0 else 0.0

    @property
    def violation(self) -> Violation | None:
        """The first violation, if any."""
        return self.violations[0] if self.violations else None

    @property
    def holds(self) -> bool:
        """Every state was explored and nothing is violated. A search that reached a limit never holds, unless it looked
        only for witnesses and found them all.
        """
        wrong = self.violations or self.error or self.failure or self.unjudged or self.interrupted
        return (self.complete or self.reached) and not wrong

    @property
    def verdict(self) -> str:
        """``holds``, ``reached`` (every witness was found before every state was explored), the name of the violated
        property, ``raised``, ``failed``, ``interrupted`` or ``not complete``.
        """
        if self.violations:
            return self.violations[0].name
        if self.error is not None:
            return "raised"
        if self.failure is not None:
            return "failed"
        if self.interrupted:
            return "interrupted"
        if not self.holds:
            return "not complete"
        return "holds" if self.complete else "reached"

    @property
    def exit_code(self) -> int:
        """The exit code of the command line; the same as TLC's where TLC has one."""
        if self.violations:
            codes = {**EXIT_CODES, **language_of(self.protocol).exit_codes}
            return codes.get(self.violations[0].kind, errors.SAFETY_VIOLATED)
        if self.error is not None:
            return self.error.exit_code
        if self.failure is not None:
            return self.failure.exit_code
        if self.interrupted:
            return errors.INTERRUPTED
        return errors.HOLDS if self.holds else errors.NOT_COMPLETE

    def __bool__(self) -> bool:
        return self.holds

    def __repr__(self) -> str:
        counts = f"{self.distinct_states:,} distinct states, depth {self.depth}"
        return f"<{type(self).__name__} of {self.protocol!r}: {self.verdict}, {counts}>"
