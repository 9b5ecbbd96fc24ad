"""Finding a state: a separate process searches for the nearest one in which an expression is true."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from fencepost.api.check import check
from fencepost.api.result import Result
from fencepost.behaviours import Expression
from fencepost.behaviours.path import Move
from fencepost.checker.engines.interface import Progress, Report
from fencepost.checker.engines.options import SearchOptions
from fencepost.errors import FencepostError, Misbehaved, OptionError, ProtocolRaised
from fencepost.explorer import sandbox
from fencepost.explorer.forkserver import Copy, ForkServer, Job, Worker, why_ended
from fencepost.explorer.session import Node, Session
from fencepost.language.context import Disabled, current
from fencepost.language.protocol import cursor_of
from fencepost.language.seam import Model, language_of
from fencepost.language.truths import truth
from fencepost.language.values import Foreign
from fencepost.semantics import State
from fencepost.text.numbers import plural

TARGET = "the_sought_state"
"""The name of the invariant that is false in the state that is searched for."""

GRACE = 1.0
"""Seconds for a stopped search to end before it is killed. While it compiles, it does not check."""

SPARE = 60.0
"""Seconds by which a search may exceed its time limit, which it checks itself, before it is killed."""

TICK = 0.1
"""Seconds between two checks of a search."""

STOPPED = "Stopped before it began."
DIED = "The search failed: {}."


def with_target(protocol: Model, expression: Expression, start: State | None) -> Model:
    """``protocol`` with one more invariant, which is false where ``expression`` is true. It begins at ``start``, if
    given.

    The expression counts as false where it cannot be evaluated. The search ends where its value is no truth value.
    """

    def not_here(bound: Any) -> bool:
        try:
            found = expression.of(bound)
        except Disabled:
            cursor = current.get()
            if cursor is not None:
                cursor.disabled = False  # a requirement within the expression failed: only the expression ends here
            return True
        except Exception:
            return True
        return not truth(found.python() if isinstance(found, Foreign) else found, "the expression is")

    def begin(bound: Any) -> None:
        assert start is not None
        for slot, value in start.slots():
            if slot.path[0] in protocol.shapes:
                cursor_of(bound).write(slot, value)

    return language_of(protocol).extended(protocol, TARGET, not_here, None if start is None else begin)


@dataclass(frozen=True)
class Finding:
    """The progress of a search. ``said``: while it runs, what it does other than searching; afterwards, the result in
    words.

    ``path``: the shortest path to the state that was found, as the number of the node where it begins, and the steps.
    """

    running: bool
    said: str
    distinct: int = 0
    depth: int = 0
    seconds: float = 0.0
    path: tuple[int, list[Move]] | None = None


def find_state(
    session: Session, expression: str, start: Node | None, options: SearchOptions, report: Report
) -> Finding:
    """Find the nearest state, from ``start`` or from the initial states, in which an expression is true. Returns when
    the search is over.

    A search ends early if ``report`` raises :class:`KeyboardInterrupt`. Raises :class:`fencepost.OptionError` if the
    expression cannot be parsed. Any other error is in the result.
    """
    sought = with_target(
        session.protocol, Expression(expression, session.protocol), None if start is None else start.state
    )
    try:
        result = check(sought, invariants=[TARGET], options=options, report=report)
        path = None
        if result.violation is not None and result.violation.trace is not None:
            trace = result.violation.trace
            end = session.graft(trace) if start is None else session.along(start, trace.steps)
            first = end.line[0] if start is None else start
            path = (first.number, [node.move for node in end.line[first.depth + 1 :]])
        said = _summary(result, "from the start" if start is None else "from here")
        return Finding(False, said, result.distinct_states, result.depth, result.seconds, path)
    except KeyboardInterrupt:
        return Finding(False, STOPPED)
    except (FencepostError, MemoryError) as error:
        return Finding(False, f"The search failed: {error or 'out of memory'}")
    except Exception as error:
        return Finding(False, f"The search failed, which is a fault of Fencepost: {type(error).__name__}: {error}")


def _summary(result: Result, origin: str) -> str:
    looked = plural(result.distinct_states, "state")
    if result.violation is not None:
        if result.violation.trace is None:
            return f"Nothing was searched: the assumption {result.violation.name} is false for these constants."
        steps = len(result.violation.trace.steps)
        if not steps:
            return "It is true here already." if origin == "from here" else "It is true in the initial state."
        return f"Found {steps} step{'s' * (steps != 1)} {origin}: no way is shorter."
    if isinstance(result.error, ProtocolRaised):
        if result.error.where == TARGET and isinstance(result.error.__cause__, Misbehaved):
            return f"Nothing can be found: {result.error.__cause__}."
        return f"The protocol raised before it was found: {result.error}"
    if result.failure is not None:
        return f"The search failed: {result.failure}"
    if result.interrupted:
        return f"Stopped. It is true in none of the {looked} that were looked at."
    if result.complete:
        return f"It is never true {origin}: all {looked} were looked at."
    return f"Not found within the limits ({result.limit}): it is true in none of the {looked} that were looked at."


# -- in another process -----------------------------------------------------------------------------------------------


def searching(session: Session) -> Job:
    """The job of a worker: to find one state after another. Any message that arrives meanwhile ends the search."""

    def job(line: Connection) -> None:
        copy, own = Copy(session), os.getpid()
        sandbox.without_programs()

        def report(progress: Progress) -> None:
            sandbox.exit_if_forked(own)
            if line.poll():
                raise KeyboardInterrupt
            line.send(Finding(True, progress.doing, progress.distinct, progress.depth, progress.seconds))

        with contextlib.suppress(EOFError, OSError):
            while True:
                asked = line.recv()
                if asked is None:  # a request to stop a search that is over
                    continue
                expression, start, links, options = asked
                copy.add(links)
                try:
                    found = find_state(session, expression, None if start is None else copy[start], options, report)
                except OptionError as error:
                    found = Finding(False, str(error))
                sandbox.exit_if_forked(own)
                line.send(found)

    return job


class Searcher:
    """Finds states of a session, one at a time. The worker is kept for the next search. ``job``: the number of
    :func:`searching` in ``forkserver``.
    """

    def __init__(self, session: Session, forkserver: ForkServer, job: int) -> None:
        self._forkserver, self._job = forkserver, job
        self._copied = len(session.nodes)
        self._worker: Worker | None = None

    def search(self, expression: str, start: Node | None, options: SearchOptions) -> Search:
        """Start a search for a state; see :func:`find_state`. ``options`` limit its time and memory."""
        if self._worker is not None and self._worker.ended:
            self._worker = None
        worker = self._worker = self._worker or self._forkserver.start(self._job)
        links = [] if start is None else worker.missing_links([start], self._copied)
        return Search(worker, (expression, None if start is None else start.number, links, options), options)


class Search:
    """One search. It begins at once."""

    def __init__(self, worker: Worker, asked: tuple[Any, ...], options: SearchOptions) -> None:
        self._worker = worker
        self._options = options
        self._stopped: float | None = None
        self._finding = Finding(True, "Starting the engine")
        with contextlib.suppress(OSError):
            worker.line.send(asked)
        self._thread = threading.Thread(target=self._listen, name="find", daemon=True)
        self._thread.start()

    @property
    def finding(self) -> Finding:
        """The current progress of the search."""
        found = self._finding
        return replace(found, said="Stopping") if found.running and self._stopped is not None else found

    def stop(self) -> None:
        """Ask the search to end. It ends at its next report, or is killed a moment later."""
        if self._stopped is None:
            self._stopped = time.monotonic()
            with contextlib.suppress(OSError):
                self._worker.line.send(None)

    def wait(self, seconds: float | None = None) -> Finding:
        """Wait for the end of the search, or at most this number of seconds. Returns its progress."""
        self._thread.join(seconds)
        return self.finding

    def _listen(self) -> None:
        began = time.monotonic()
        line, memory = self._worker.line, self._options.max_memory
        late = None if self._options.timeout is None else began + 1.2 * self._options.timeout + SPARE
        why = None
        with contextlib.suppress(EOFError, OSError):
            while True:
                if line.poll(TICK):
                    self._finding = line.recv()
                    if not self._finding.running:
                        return
                now = time.monotonic()
                if self._stopped is not None and now - self._stopped > GRACE:
                    why = (
                        f"Stopped after {plural(self._finding.distinct, 'state')}."
                        if self._finding.distinct
                        else STOPPED
                    )
                    break
                if late is not None and now > late:
                    why = "Not found within the limits: the search did not end in time."
                    break
                if memory is not None and self._worker.memory > memory * 1.2 + (1 << 30):
                    why = "Not found within the limits: the search took more memory than it may."
                    break
        ended = self._worker.end()
        self._finding = replace(self._finding, running=False, said=why or DIED.format(why_ended(ended)))
