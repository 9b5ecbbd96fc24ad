"""The answer to a check, for programs and for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost import errors
from fencepost.spec.protocol import Protocol
from fencepost.spec.values import Value
from fencepost.trace import Trace


@dataclass(frozen=True)
class Violation:
    """Something that does not hold, with the shortest behaviour that shows it.

    ``kind`` is ``invariant``, ``step_invariant``, ``deadlock`` or ``assumption`` (which has no trace).
    """

    kind: str
    name: str
    trace: Trace | None


@dataclass(frozen=True)
class ActionCount:
    """How often an action was taken and how many distinct states it discovered. Never taken: flagged in every report."""

    name: str
    taken: int
    new_states: int


@dataclass
class Result:
    """What a check found out.

    ``complete``: every reachable state was explored. ``distinct_states``, ``generated_states``, ``depth`` and ``queue`` count as TLC
    does. ``limit`` names the limit that ended the search early, ``error`` is what the protocol raised, ``failure`` what the machine did not give. ``violations`` are in order
    of discovery; ``collision_probability`` is the chance that two states shared a fingerprint and one was missed.
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
    limit: str | None = None
    interrupted: bool = False
    error: errors.ProtocolRaised | None = None
    error_trace: Trace | None = None
    failure: errors.SystemFailure | None = None
    evaluations: int = 0
    collision_probability: float = 0.0
    profile: Mapping[str, Any] = field(default_factory=dict)

    @property
    def constants(self) -> Mapping[str, Value]:
        """The constants that were checked."""
        return self.protocol.constants

    @property
    def states_per_second(self) -> float:
        """Distinct states a second over the whole exploration."""
        return self.distinct_states / self.seconds if self.seconds > 0 else 0.0

    @property
    def violation(self) -> Violation | None:
        """The first violation, if any."""
        return self.violations[0] if self.violations else None

    @property
    def holds(self) -> bool:
        """Every state was explored and nothing is violated. A search that reached a limit never holds."""
        return self.complete and not self.violations and self.error is None and self.failure is None

    @property
    def verdict(self) -> str:
        """``holds``, the name of what is violated, ``raised``, ``failed``, ``interrupted`` or ``not complete``."""
        if self.violations:
            return self.violations[0].name
        if self.error is not None:
            return "raised"
        if self.failure is not None:
            return "failed"
        if self.interrupted:
            return "interrupted"
        return "holds" if self.complete else "not complete"

    @property
    def exit_code(self) -> int:
        """The exit code of the command line, TLC's where TLC has one."""
        if self.violations:
            return {"assumption": errors.ASSUMPTION_VIOLATED, "deadlock": errors.DEADLOCK}.get(
                self.violations[0].kind, errors.SAFETY_VIOLATED
            )
        if self.error is not None:
            return self.error.exit_code
        if self.failure is not None:
            return self.failure.exit_code
        if self.interrupted:
            return errors.INTERRUPTED
        return errors.HOLDS if self.complete else errors.NOT_COMPLETE

    def must_hold(self) -> Result:
        """For tests: returns the result if everything holds, else raises AssertionError whose message is the whole story."""
        if not self.holds:
            raise AssertionError(f"\n{self}")
        return self

    def must_violate(self, name: str) -> Trace:
        """For tests: the counterexample to ``name``, or AssertionError with what was found instead."""
        for violation in self.violations:
            if violation.name == name and violation.trace is not None:
                return violation.trace
        raise AssertionError(f"{name} is not violated\n{self}")

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        from fencepost.report.text import story

        return story(self)

    def __repr__(self) -> str:
        return f"<Result of {self.protocol!r}: {self.verdict}, {self.distinct_states:,} distinct states, depth {self.depth}>"
