"""Work that waits, written once for threads and for a simulator on virtual time.

Work is a generator. Before it waits, it yields what it waits for: a time, the disk, or a lock. A simulator runs
everything between two yields at once, and simulates crashes only at yields. Work that yields holds no lock except one
that it acquired by yielding it.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fencepost.files.folders import Lock
from fencepost.ledger.disk.journal_files import draw_mark

T = TypeVar("T")

WOKEN = float("inf")
"""The time to yield to wait until woken."""


class Disk(enum.Enum):
    """The next use of the disk."""

    WRITE = "write"
    SYNC = "sync"


class Turn(Protocol):
    """A lock. Work that yields it holds it when it resumes."""

    def acquire(self, blocking: bool = True) -> bool: ...

    def release(self) -> None: ...


Pause = float | Disk | Turn
"""What work waits for: a time in seconds, cut short by a wake-up; the disk; or a lock."""

Work = Generator[Pause, None, T]


class Worker(Protocol):
    """Work in progress."""

    def wake(self) -> None:
        """End its wait for a time. If it is not waiting, its next such wait ends at once."""

    def join(self) -> None:
        """Block until it has ended."""


class Held(Protocol):
    """A folder locked by this process."""

    def release(self) -> None:
        """Unlock it."""


class Process(Protocol):
    """The process of a storage: its clock, its randomness, and its threads."""

    def now(self) -> float:
        """The time, in seconds."""

    def draw(self) -> int:
        """A mark for a file of the journal."""

    def hold(self, path: str) -> Held:
        """Lock a folder against other processes. Raises ``BlockingIOError`` if another one holds the lock."""

    def begin(self, name: str, work: Work[Any], failed: Callable[[str], None]) -> Worker:
        """Start some work. If it raises, ``failed`` is called with one line about the error."""


class Threads:
    """A process that runs work in threads, on the machine's clock."""

    def now(self) -> float:
        """See :class:`.Process`."""
        return time.monotonic()

    def draw(self) -> int:
        """See :class:`.Process`."""
        return draw_mark()

    def hold(self, path: str) -> Held:
        """See :class:`.Process`."""
        return Lock(path)

    def begin(self, name: str, work: Work[Any], failed: Callable[[str], None]) -> Worker:
        """See :class:`.Process`."""
        return _Thread(name, work, failed)


class _Thread:
    """Work that runs in its own thread."""

    def __init__(self, name: str, work: Work[Any], failed: Callable[[str], None]) -> None:
        self._name = name
        self._work = work
        self._failed = failed
        self._bell = threading.Lock()
        """Free once it was rung. Waiting for a lock takes a tenth of the time of waiting for an event."""
        self._bell.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """See :class:`.Worker`."""
        with contextlib.suppress(RuntimeError):  # it was rung before
            self._bell.release()

    def join(self) -> None:
        """See :class:`.Worker`."""
        self._thread.join()

    def _run(self) -> None:
        bell = self._bell
        with contextlib.suppress(OSError):  # its name in what the system shows, where it has a place for it
            Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(self._name)
        try:
            for pause in self._work:
                if isinstance(pause, float):
                    bell.acquire(timeout=-1 if pause == WOKEN else max(0.0, pause - time.monotonic()))
                elif not isinstance(pause, Disk):
                    pause.acquire()
        except Exception as error:
            self._failed(f"{self._name} cannot go on: {type(error).__name__}: {error}")


def run_work(work: Work[T]) -> T:
    """Run work on this thread, and return its result. Nothing wakes it."""
    while True:
        try:
            pause = next(work)
        except StopIteration as ended:
            result: T = ended.value
            return result
        if isinstance(pause, float):
            time.sleep(max(0.0, pause - time.monotonic()))
        elif not isinstance(pause, Disk):
            pause.acquire()
