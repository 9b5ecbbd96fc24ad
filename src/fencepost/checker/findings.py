"""The findings of a check, as pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost import errors
from fencepost.behaviours import Trace
from fencepost.behaviours.lasso import Met
from fencepost.checker.engines.interface import Table, Walks
from fencepost.language.declarations import TEMPORAL
from fencepost.language.protocol import Protocol
from fencepost.language.values import Value
from fencepost.semantics import Unfinished

EXIT_CODES = {
    "assumption": errors.ASSUMPTION_VIOLATED,
    "deadlock": errors.DEADLOCK,
    **dict.fromkeys(TEMPORAL, errors.LIVENESS_VIOLATED),
}
"""The exit code for each kind of violation other than of an invariant."""


@dataclass(frozen=True)
class Violation:
    """Something that does not hold, with the shortest behaviour that shows it (of a simulation, with the one that it
    met).

    ``kind`` is ``invariant``, ``step_invariant``, ``refinement``, ``always_eventually``, ``eventually_always``,
    ``leads_to`` (whose trace is a lasso, and ``fairness`` says how its loop meets each fairness condition),
    ``deadlock``, or one of two that have no trace: ``assumption``, and ``sometimes``, whose ``never`` says with which
    parameters it is true in no state. In a simulation ``walk`` is the number of the walk that met it, after ``walked``
    states, and the trace is what was left of it.
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
    """The shortest behaviour (of a simulation, the one that it met) to a state that was asked for, in which ``name`` is
    true.

    ``name`` is that of a ``sometimes`` property, with its parameters, or a condition. ``walk`` and ``walked`` as in a
    violation.
    """

    name: str
    trace: Trace
    walk: int | None = None
    walked: int = 0


@dataclass(frozen=True)
class ActionCount:
    """How often an action was taken and how many distinct states it discovered (0 in a simulation, which does not
    know). Never taken: flagged in every report.
    """

    name: str
    taken: int
    new_states: int


@dataclass(frozen=True)
class Findings:
    """The findings of a check: the values of a :class:`fencepost.Result`.

    ``complete``: every reachable state was explored. ``distinct_states``, ``generated_states``, ``depth`` and ``queue``
    count as TLC does, up to ``symmetry`` of the constants it names; unless ``exact``, some states of a large group were
    counted more than once up to it, and the counts are upper bounds. ``limit`` names the limit that ended the search
    early, and ``within_level`` says that it, or the user, did so in the middle of a level, how far into which depends
    on the moment and on the workers; ``unfinished`` is the evaluation that had not returned by then or when it was
    interrupted, ``error`` is what the protocol raised, ``failure`` what the machine did not give. ``seconds`` is how
    long the caller of :func:`fencepost.check` waited: for every engine that was tried, tables, initial states, the
    judgement of liveness and the replay of counterexamples, and in a resumed search for the runs before it. ``judged``
    names the temporal properties that were judged, and ``unjudged`` is why they were not although everything was
    explored. ``violations`` are in order of discovery; ``witnesses`` are the ways to what is to be sometimes true,
    ``unreached`` names what has none so far, and ``reached`` says that nothing else was looked for and all of it was
    found: the search may have ended with that; ``collision_probability`` is the chance that two states shared a
    fingerprint and one was missed.

    Of a simulation, ``walks`` says how it was done and ``walk`` is the one that was asked for, if only one was. It is
    never complete, ``distinct_states`` is an estimate, and ``depth`` the number of states of the longest walk.
    ``table``: the state space, if it was written down. ``engine`` is the one that explored; ``on_spark``: whether Spark
    did a part of it, None if that was not asked for. ``compiling``: of the seconds, those in which loops were compiled,
    which no rate counts.
    """

    protocol: Protocol
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
        """Distinct states a second over the whole exploration, but for compiling."""
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
        for witnesses alone and found them all.
        """
        wrong = self.violations or self.error or self.failure or self.unjudged or self.interrupted
        return (self.complete or self.reached) and not wrong

    @property
    def verdict(self) -> str:
        """``holds``, ``reached`` (all that was looked for, before every state was explored), the name of what is
        violated, ``raised``, ``failed``, ``interrupted`` or ``not complete``.
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
        """The exit code of the command line, TLC's where TLC has one."""
        if self.violations:
            return EXIT_CODES.get(self.violations[0].kind, errors.SAFETY_VIOLATED)
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
