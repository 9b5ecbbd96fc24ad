"""Work that waits, written once: threads do it, or a simulator does on virtual time.

Work is a generator. Before it waits it yields what for: a time, the disk, or its turn. All that it does between two
such points is done at once by a simulator, and a crash comes at one of them. It holds no lock at any of them but the
one that it has waited for.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

from fencepost.files.folders import Lock
from fencepost.ledger.disk.journal_files import draw_mark

T = TypeVar("T")

WOKEN = float("inf")
"""The time of those who wait until they are woken."""


class Disk(enum.Enum):
    """How the disk is used next."""

    WRITE = "write"
    SYNC = "sync"


class Turn(Protocol):
    """A lock, of which the work that has waited for it is the holder."""

    def acquire(self, blocking: bool = True) -> bool: ...

    def release(self) -> None: ...


Pause = float | Disk | Turn
"""What work waits for: until a time, in seconds, or until it is woken before; for the disk; or for a lock."""

Work = Generator[Pause, None, T]


class Worker(Protocol):
    """Some work that is under way."""

    def wake(self) -> None:
        """Let it go on, if it waits for a time, or else not wait the next time."""

    def join(self) -> None:
        """Come back when it has ended."""


class Held(Protocol):
    """A folder that one process has for itself."""

    def release(self) -> None:
        """Let others have it."""


class Process(Protocol):
    """The process that a storage is in: its clock, its chances, and those that do the storage's work."""

    def now(self) -> float:
        """The time, in seconds."""

    def draw(self) -> int:
        """A mark for a file of the journal."""

    def hold(self, path: str) -> Held:
        """Keep other processes away from a folder. Raises ``BlockingIOError`` if another one has it."""

    def begin(self, name: str, work: Work[Any], failed: Callable[[str], None]) -> Worker:
        """Begin some work. ``failed`` is told, in one line, of what it raises."""


class Threads:
    """A process that does work in threads, by the clock of the machine."""

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
    """Work that is done by a thread of its own."""

    def __init__(self, name: str, work: Work[Any], failed: Callable[[str], None]) -> None:
        self._name = name
        self._work = work
        self._failed = failed
        self._bell = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """See :class:`.Worker`."""
        self._bell.set()

    def join(self) -> None:
        """See :class:`.Worker`."""
        self._thread.join()

    def _run(self) -> None:
        bell = self._bell
        try:
            for pause in self._work:
                if isinstance(pause, float):
                    bell.wait(None if pause == WOKEN else max(0.0, pause - time.monotonic()))
                    bell.clear()
                elif not isinstance(pause, Disk):
                    pause.acquire()
        except Exception as error:
            self._failed(f"{self._name} cannot go on: {type(error).__name__}: {error}")


def carried_out(work: Work[T]) -> T:
    """Do some work that nobody wakes, and give what it comes to."""
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
