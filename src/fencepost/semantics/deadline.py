"""Ends the author's Python when a limit on time or memory is reached, for it may never come back by itself.

An engine looks at its limits between evaluations. It cannot see one evaluation that does not return: for that a thread
looks on and, once a limit is reached, raises :class:`LimitReached` in the thread that runs it. Python delivers
such an exception before one of its next instructions, so a single call into C that never returns is not ended by it.
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
"""Seconds between two looks at the limits."""
SHORT = 0.2
"""Seconds that an evaluation has to come to its end after a limit was reached, and to end after it was interrupted."""
LONG = 1.0
"""Seconds from which on an evaluation that the user interrupts is one that did not return."""


class LimitReached(BaseException):
    """A limit was reached while the author's Python ran. A BaseException, so that ``except Exception`` cannot swallow
    it.
    """


@dataclass(frozen=True)
class Unfinished:
    """An evaluation that had not returned when the search ended.

    ``what``: such as ``action spin(n=1)``; ``state``: the state it was evaluated in, None before there is one;
    ``seconds``: how long it had been running.
    """

    what: str
    state: State | None
    seconds: float


class Deadline:
    """Stands between the evaluations of one check and its limits. ``began``: when the check did, by the monotonic
    clock.

    :meth:`begin` and :meth:`end` go around every evaluation. ``reached`` names the limit that ended the check, and
    ``unfinished`` is the evaluation that was running then, if it did not return.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.reached: str | None = None
        self.unfinished: Unfinished | None = None
        self._running: tuple[Any, ValueTable | None, Any, float, int] | None = (
            None  # what, in which state, since when, in which thread
        )
        self._refuses = False  # evaluations that have not begun yet
        self._reached_at = 0.0
        self._interrupted_at = 0.0  # when the running evaluation was last interrupted; 0.0 for never
        self._lock = threading.Lock()

    def restart(self) -> None:
        """Time counts from now on."""
        self.began = time.monotonic()

    def expired(self, timeout: float | None) -> bool:
        """Whether so many seconds have passed since the check began."""
        return timeout is not None and time.monotonic() - self.began >= timeout

    @contextmanager
    def limits(self, look: Callable[[], str | None] | None, refuse: bool = True) -> Iterator[None]:
        """Ends evaluations in the body by :class:`LimitReached` once ``look``, called from another thread, names a
        limit.

        An evaluation that runs then is given a moment to return; with ``refuse``, no other one begins.
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
                # A signal that was sent may arrive here just as well.
                with contextlib.suppress(LimitReached):
                    over.set()
                    watch.join()
                    if self._interrupted_at:
                        _take()
                    self._refuses, self._interrupted_at, self._running = False, 0.0, None
                    break

    def begin(self, what: Any, store: ValueTable | None = None, ids: Any = ()) -> None:
        """An evaluation of ``what`` begins, in the state ``ids``. Raises :class:`LimitReached` if it is too late for
        that.
        """
        self.check()
        self._running = (what, store, ids, time.monotonic(), threading.get_ident())

    def check(self) -> None:
        """Raises :class:`LimitReached` if it is too late for anything that takes long."""
        if self._refuses:
            raise LimitReached(self.reached)

    def end(self) -> None:
        """The evaluation ended. Raises :class:`LimitReached` if it was interrupted, whatever the author's code made of
        that.
        """
        while True:
            # A signal that was sent may arrive here just as well.
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
        """The body is an evaluation, in no state."""
        self.begin(what)
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted()
            raise
        finally:
            self.end()

    def interrupted(self) -> None:
        """The user interrupted the running evaluation: it is kept as unfinished if it had been running for long."""
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
        """Interrupt the running evaluation, and again if it did not end."""
        now = time.monotonic()
        with self._lock:
            running = self._running
            if running is None or now - max(running[3], self._reached_at, self._interrupted_at) < SHORT:
                return
            unfinished = self._unfinished(*running)
            # Either the thread sees that it was interrupted, and waits until it is sent what it then takes back, or it
            # has ended before.
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
    """Have :class:`LimitReached` raised in a thread. Of several that were not raised yet there is one."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(LimitReached))


def _take() -> None:
    """Take what was sent to this thread, if it was not raised yet: none is left afterwards.

    Not by sending nothing in its place: Python would look for it before every instruction from then on, and where it
    traces them never come to the instruction.
    """
    with contextlib.suppress(LimitReached):
        _send(threading.get_ident())
        while True:
            pass
