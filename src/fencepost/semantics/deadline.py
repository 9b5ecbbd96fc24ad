"""Ends the author's Python when a limit on time or memory is reached, since it may never return.

An engine checks its limits between evaluations, but cannot interrupt one that does not return. A thread does: when a
limit is reached, it raises :class:`LimitReached` in the thread that runs the evaluation. Python delivers such an
exception between bytecode instructions, so it cannot end a single call into C that never returns.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fencepost.semantics.state import State, ValueTable

LOOK = 0.05
"""Seconds between two checks of the limits."""
SHORT = 0.2
"""Seconds that an evaluation may take to return after a limit is reached, and again after each interruption."""
LONG = 1.0
"""An evaluation that has run for this many seconds when the user interrupts it is reported as unfinished."""


class LimitReached(BaseException):
    """A limit was reached while the author's Python ran. It is a BaseException, so that ``except Exception`` does not
    catch it.
    """


@dataclass(frozen=True)
class Unfinished:
    """An evaluation that had not returned when the search ended.

    ``what``: its name, such as ``action spin(n=1)``. ``state``: the state that it ran in, or None if no state existed
    yet. ``seconds``: its running time so far.
    """

    what: str
    state: State | None
    seconds: float


class Deadline:
    """Applies the limits of one check to its evaluations. ``began``: the start of the check, by the monotonic clock.

    Every evaluation is between :meth:`begin` and :meth:`end`. ``reached`` names the limit that ended the check.
    ``unfinished`` is the evaluation that was running then, if it did not return.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.reached: str | None = None
        self.unfinished: Unfinished | None = None
        self._running: tuple[Any, ValueTable | None, Any, float, int] | None = (
            None  # name, value table, state, start, thread
        )
        self._refuses = False  # refuses new evaluations
        self._reached_at = 0.0
        self._interrupted_at = 0.0  # when the running evaluation was last interrupted; 0.0 for never
        self._lock = threading.Lock()

    def restart(self) -> None:
        """Restart the clock."""
        self.began = time.monotonic()

    def expired(self, timeout: float | None) -> bool:
        """Whether ``timeout`` seconds have passed since the check began."""
        return timeout is not None and time.monotonic() - self.began >= timeout

    @contextmanager
    def limits(self, look: Callable[[], str | None] | None, refuse: bool = True) -> Iterator[None]:
        """Ends evaluations in the body with :class:`LimitReached` when ``look``, called from another thread, names a
        limit.

        A running evaluation gets :data:`SHORT` seconds to return. With ``refuse``, no other one begins.
        """
        if look is None:
            yield
            return
        self.reached = None
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over, look, refuse), name="fencepost deadline", daemon=True)
        watch.start()
        try:
            yield
        finally:
            while True:
                # A pending LimitReached may be raised here.
                with contextlib.suppress(LimitReached):
                    over.set()
                    watch.join()
                    if self._interrupted_at:
                        _take()
                    self._refuses, self._interrupted_at, self._running = False, 0.0, None
                    break

    def begin(self, what: Any, store: ValueTable | None = None, ids: Any = ()) -> None:
        """An evaluation of ``what`` begins in the state ``ids``. Raises :class:`LimitReached` if a limit has been
        reached.
        """
        self.check()
        self._running = (what, store, ids, time.monotonic(), threading.get_ident())

    def check(self) -> None:
        """Raises :class:`LimitReached` if a limit has been reached, so that no long work begins."""
        if self._refuses:
            raise LimitReached(self.reached)

    def end(self) -> None:
        """The evaluation ended. Raises :class:`LimitReached` if it was interrupted, even if the author's code caught
        the exception.
        """
        while True:
            # A pending LimitReached may be raised here.
            with contextlib.suppress(LimitReached):
                self._running = None
                if not self._interrupted_at:
                    return
                with self._lock:
                    _take()
                    self._interrupted_at = 0.0
                break
        raise LimitReached(self.reached)

    @contextmanager
    def evaluating(self, what: str) -> Iterator[None]:
        """Runs the body as an evaluation without a state."""
        self.begin(what)
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted()
            raise
        finally:
            self.end()

    def interrupted(self) -> None:
        """The user interrupted the running evaluation. It is kept as unfinished if it ran for at least :data:`LONG`
        seconds.
        """
        if self._running is not None and time.monotonic() - self._running[3] >= LONG:
            self.unfinished = self._unfinished(*self._running)

    def _watch(self, over: threading.Event, look: Callable[[], str | None], refuse: bool) -> None:
        while not over.wait(LOOK):
            if self.reached is None:
                self.reached, self._reached_at = look(), time.monotonic()
            if self.reached is not None:
                self._refuses = refuse
                self._interrupt()

    def _interrupt(self) -> None:
        """Interrupt the running evaluation, and again after :data:`SHORT` seconds if it did not end."""
        now = time.monotonic()
        with self._lock:
            running = self._running
            if running is None or now - max(running[3], self._reached_at, self._interrupted_at) < SHORT:
                return
            unfinished = self._unfinished(*running)
            # Set the mark first. Either the thread's end() sees it, waits for the exception and discards it, or the
            # evaluation ended before the mark.
            self._interrupted_at = now
            if self._running is not running:
                self._interrupted_at = 0.0
                return
            self.unfinished = unfinished
            _send(running[4])

    @staticmethod
    def _unfinished(what: Any, store: ValueTable | None, ids: Any, since: float, _: int) -> Unfinished:
        return Unfinished(str(what), None if store is None else State(store, ids), time.monotonic() - since)


def _send(thread: int) -> None:
    """Raise :class:`LimitReached` in a thread. At most one is pending at a time."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(LimitReached))


def _take() -> None:
    """Raise and discard an exception that is pending in this thread, so that none is left.

    Cancelling it by sending NULL would not do: Python would check for it before every later instruction and, while
    tracing, never execute one.
    """
    with contextlib.suppress(LimitReached):
        _send(threading.get_ident())
        while True:
            pass
