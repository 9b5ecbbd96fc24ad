"""A thread for what would hold the loop up: it does one thing after another, and tells the loop what came of each."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

Done = Callable[[BaseException | None], None]


class Worker:
    """The thread. It is made and used by the loop's thread alone."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Callable[[], None], Done] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], None], done: Done) -> None:
        """Do something after all that was asked for before; ``done`` is called on the loop, with the error if it
        failed.
        """
        self._jobs.put((work, done))

    async def finish(self, work: Callable[[], None]) -> None:
        """Do a last thing, and end; raises what that raises."""
        finished: asyncio.Future[BaseException | None] = self._loop.create_future()
        self.submit(work, finished.set_result)
        self._jobs.put(None)
        error = await finished
        self._thread.join()
        if error is not None:
            raise error

    def pause(self, seconds: float) -> None:
        """Let others go on: called by what it does."""
        time.sleep(seconds)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(done, error)
