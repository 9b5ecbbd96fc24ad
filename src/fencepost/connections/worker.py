"""A thread for blocking work. It runs one job after another and reports each result to the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

Done = Callable[[BaseException | None], None]


class Worker:
    """The thread. Only the event loop's thread may create and use it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Callable[[], None], Done] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], None], done: Done) -> None:
        """Queue a job. ``done`` is called on the loop with the error, or None."""
        self._jobs.put((work, done))

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
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(done, error)
