"""Finding a state: the engine looks for the nearest one in which an expression is true, in a thread of its own."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

from fencepost.check import check
from fencepost.engines.interface import Options, Progress
from fencepost.errors import FencepostError, ProtocolRaised
from fencepost.result import Result
from fencepost.spec.protocol import Protocol, initial, invariant
from fencepost.step import State
from fencepost.trace import Expression, Trace

SOUGHT = "the_sought_state"
"""The name of the invariant that says: it is not here."""


def hunted(protocol: Protocol, expression: Expression, start: State | None) -> Protocol:
    """``protocol`` with one more invariant, which is false where ``expression`` is true, and which begins at ``start`` if given.

    Where the expression can not be evaluated it is not true.
    """

    def not_here(bound: Any) -> bool:
        try:
            return not expression.of(bound)
        except Exception:
            return True

    def begin(bound: Any) -> None:
        assert start is not None
        for slot, value in start.slots():
            if slot.path[0] in protocol.shapes:
                bound.__dict__["_cursor"].write(slot, value)

    declared: dict[str, Any] = {
        "__module__": type(protocol).__module__,
        "name": protocol.name,
        SOUGHT: invariant(not_here),
    }
    if start is not None:
        setups = protocol.declared("initial")
        declared[setups[0].name if setups else "begin_here"] = initial(begin)
    made: Protocol = object.__new__(type(type(protocol).__name__, (type(protocol),), declared))
    made.__dict__.update(protocol.__dict__)
    return made


@dataclass(frozen=True)
class Finding:
    """How far a search is. ``said`` is what to tell when it is over, and what it does while it runs, if not just looking. ``trace`` is
    the shortest way to the state, once found."""

    running: bool
    said: str
    distinct: int = 0
    depth: int = 0
    seconds: float = 0.0
    trace: Trace | None = None


class Search:
    """One search, which begins at once. ``options`` limit its time and its memory."""

    def __init__(self, protocol: Protocol, expression: str, start: State | None, options: Options) -> None:
        """Raises :class:`fencepost.OptionError` if the expression can not be read."""
        self._hunted = hunted(protocol, Expression(expression, protocol), start)
        self._from = "from the start" if start is None else "from here"
        self._options = options
        self._stop = threading.Event()
        self._finding = Finding(True, "Starting the engine")
        self._thread = threading.Thread(target=self._run, name="find", daemon=True)
        self._thread.start()

    @property
    def finding(self) -> Finding:
        """How far it is."""
        found = self._finding
        return replace(found, said="Stopping") if found.running and self._stop.is_set() else found

    def stop(self) -> None:
        """Ask it to end; it does so at its next report."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> Finding:
        """Wait for its end, or so many seconds; how far it is."""
        self._thread.join(seconds)
        return self.finding

    def _run(self) -> None:
        try:
            result = check(self._hunted, invariants=[SOUGHT], options=self._options, report=self._report)
            trace = result.violation.trace if result.violation is not None else None
            said = self._told(result)
            self._finding = Finding(False, said, result.distinct_states, result.depth, result.seconds, trace)
        except KeyboardInterrupt:
            self._finding = Finding(False, "Stopped before it began.")
        except (FencepostError, MemoryError) as error:
            self._finding = Finding(False, f"The search failed: {error or 'out of memory'}")
        except Exception as error:
            self._finding = Finding(False, f"The search failed, which is a fault of Fencepost: {type(error).__name__}: {error}")

    def _report(self, progress: Progress) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._finding = Finding(True, progress.doing, progress.distinct, progress.depth, progress.seconds)

    def _told(self, result: Result) -> str:
        looked = f"{result.distinct_states:,} states"
        if result.violation is not None:
            if result.violation.trace is None:
                return f"Nothing was searched: the assumption {result.violation.name} is false for these constants."
            steps = len(result.violation.trace.steps)
            if not steps:
                return "It is true here already." if self._from == "from here" else "It is true in the initial state."
            return f"Found {steps} step{'s' * (steps != 1)} {self._from}: no way is shorter."
        if isinstance(result.error, ProtocolRaised):
            return f"The protocol raised before it was found: {result.error}"
        if result.failure is not None:
            return f"The search failed: {result.failure}"
        if result.interrupted:
            return f"Stopped. It is true in none of the {looked} that were looked at."
        if result.complete:
            return f"It is never true {self._from}: all {looked} were looked at."
        return f"Not found within the limits ({result.limit}): it is true in none of the {looked} that were looked at."
