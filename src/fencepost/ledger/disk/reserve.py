"""Room on a disk that a bookie keeps for itself: what is left to write where a disk is full is written there.

A bookie whose disk is full takes no more adds, and still writes: what it has in memory goes to an entry log, so that
nothing depends on its journal; fences and limbo go to its journal; and garbage is only removed once an entry log says
so. The reserve is a file of nothing, that is there while its disk has little room. It is made shorter by what is
needed, when it is needed, and longer again when there is room once more.

That other programs take what was given, in the moment between, cannot be ruled out: then more of it is given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from fencepost.files.folders import File, Files, NoRoom

T = TypeVar("T")

LEAST = 64 * 1024
"""Bytes that are given at the least: a name in a folder takes room, too."""


PLENTY = 64
"""A disk with room for so many times a reserve needs none yet; with twice as much, none any more."""


class Reserve:
    """The reserve of a folder; any thread may call it. ``used()`` is called whenever some of it is given."""

    def __init__(self, used: Callable[[], None] = lambda: None) -> None:
        self.wanted = 0
        self.size = 0
        """The bytes that it has now."""
        self.is_needed = False
        self._name = ""
        self._used = used
        self._lock = threading.Lock()
        self._held = 0
        """How many look for room, which is theirs."""
        self._file: File | None = None

    def open(self, files: Files, name: str, wanted: int) -> None:
        """Take up a reserve, which is a file of this name, and have so many bytes of it if there is room. Raises
        ``OSError``.
        """
        self.wanted, self._name = wanted, name
        if name in files.names():
            self._file = files.open(name, writable=True)
            self._file.truncate(min(self._file.end, wanted))
            self._take(files, self._file.end)  # in a file that was copied there may be holes
        self._fill(files)

    @property
    def is_whole(self) -> bool:
        """Whether it has all that is wanted of it, if it is needed."""
        return not self.is_needed or self.size >= self.wanted

    def fill(self, files: Files) -> None:
        """Look at the disk: take what is missing, or what there is room for, or give back what is not needed. Raises
        ``OSError``.
        """
        with self._lock:
            if not self._held:
                self._fill(files)

    def or_of_it(self, work: Callable[[], T], size: int) -> T:
        """Do what takes ``size`` bytes of the disk: where there is no room, of the reserve. Raises :class:`NoRoom` if
        that has not enough either.
        """
        if not self.wanted:
            return work()
        with self.held():
            while True:
                try:
                    return work()
                except NoRoom:
                    self.is_needed = True
                    if not self.give(size):
                        raise

    @contextmanager
    def held(self) -> Iterator[None]:
        """What room there is is for others meanwhile, and not for the reserve."""
        with self._lock:
            self._held += 1
        try:
            yield
        finally:
            with self._lock:
                self._held -= 1

    def _fill(self, files: Files) -> None:
        free = files.room().free
        plenty = PLENTY * self.wanted
        self.is_needed = free < (2 * plenty if self.size else plenty)
        if not self.is_needed and self._file is not None:
            self.size = 0
            self._file.truncate(0)
        size = min(self.wanted, self.size + free)
        if self.is_needed and size > self.size:
            self._take(files, size)

    def _take(self, files: Files, size: int) -> None:
        """Have so many bytes, if there is room for them."""
        with suppress(NoRoom):
            if self._file is None:
                self._file = files.create(self._name)
            self._file.end = 0
            self._file.preallocate(size)
            self.size = size

    def give(self, size: int) -> bool:
        """Let others have so many bytes, or all that there are; whether there were any."""
        with self._lock:
            if self._file is None or not self.size:
                return False
            self.size = max(0, self.size - max(size, LEAST))
            self._file.truncate(self.size)
        self._used()
        return True


NO_RESERVE = Reserve()
"""The reserve of those that have none."""
