"""A thread for blocking work. It runs one job after another and reports each result to the event loop.

A job that takes 0.1 ms, such as a sync of a good disk, takes twice as long in another thread: the loop's thread has to
wake it, and is woken by it. So short jobs run on the loop's thread, as long as they are short.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

Done = Callable[[BaseException | None], None]

SHORT = 0.0005
"""Seconds that a job takes at the most, in the mean, to be short."""
_WEIGHT = 1 / 16
"""The weight of the last job in that mean. A job of 0.1 s sends the next 80 to the thread."""


class Worker:
    """The thread. Only the event loop's thread may create and use it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Callable[[], None], Done] | None] = SimpleQueue()
        self._waiting = 0
        """Jobs in the thread."""
        self._mean = 10 * SHORT
        """The mean of the seconds that a job of :meth:`submit_short` takes."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], None], done: Done) -> None:
        """Queue a job. ``done`` is called on the loop with the error, or None."""
        self._waiting += 1
        self._jobs.put((work, done))

    def submit_short(self, work: Callable[[], None], done: Done) -> None:
        """As :meth:`submit`, for a job that may be short. It runs at once, on this thread, if those before it were
        short, and the thread has nothing to do.
        """

        def measured() -> None:
            began = time.perf_counter()
            work()
            self._mean += _WEIGHT * (time.perf_counter() - began - self._mean)

        if self._waiting or self._mean > SHORT:
            self.submit(measured, done)
        else:
            self._loop.call_soon(done, _error_of(measured))

    async def finish(self, work: Callable[[], None]) -> None:
        """Run a last job and end the thread. Raises what the job raises."""
        finished: asyncio.Future[BaseException | None] = self._loop.create_future()
        self.submit(work, finished.set_result)
        self._jobs.put(None)
        error = await finished
        self._thread.join()
        if error is not None:
            raise error

    def pause(self, seconds: float) -> None:
        """Called by a job, to let other threads run."""
        time.sleep(seconds)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            error = _error_of(work)
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._over, done, error)

    def _over(self, done: Done, error: BaseException | None) -> None:
        self._waiting -= 1
        done(error)


def _error_of(work: Callable[[], None]) -> BaseException | None:
    try:
        work()
    except BaseException as raised:
        return raised
    return None
