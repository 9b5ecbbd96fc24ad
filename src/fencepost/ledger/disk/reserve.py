"""Reserved disk space, for the writes that a bookie still makes when its disk is full.

A bookie with a full disk rejects adds and still writes. It flushes entries from memory to an entry log, so that the
journal can be trimmed. It journals fences and limbo. It removes garbage only after an entry log says so. The reserve is
a dummy file that exists while the disk is low on space. It is shortened when space is needed, and extended again when
there is space.

Another program may take the freed space first. Then more of the reserve is released.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from fencepost.files.folders import File, Files, NoRoom

T = TypeVar("T")

LEAST = 64 * 1024
"""The fewest bytes to release at once. Even a directory entry takes space."""


PLENTY = 64
"""A disk whose free space is this many times the reserve needs none. An existing reserve is dropped at twice that."""


class Reserve:
    """The reserve of a folder. Thread-safe. ``used()`` is called whenever part of it is released."""

    def __init__(self, used: Callable[[], None] = lambda: None) -> None:
        self.wanted = 0
        self.size = 0
        """The bytes it holds now."""
        self.is_needed = False
        self._name = ""
        self._used = used
        self._lock = threading.Lock()
        self._held = 0
        """The number of holders; while there are any, free space is theirs."""
        self._file: File | None = None

    def open(self, files: Files, name: str, wanted: int) -> None:
        """Open the reserve file ``name``, and fill it to ``wanted`` bytes if there is space. Raises ``OSError``."""
        self.wanted, self._name = wanted, name
        if name in files.names():
            self._file = files.open(name, writable=True)
            self._file.truncate(min(self._file.end, wanted))
            self._take(files, self._file.end)  # a copied file may be sparse
        self._fill(files)

    @property
    def is_whole(self) -> bool:
        """Whether the reserve is complete or not needed."""
        return not self.is_needed or self.size >= self.wanted

    def fill(self, files: Files) -> None:
        """Check the disk, and extend the reserve as far as there is space, or drop it if it is not needed. Raises
        ``OSError``.
        """
        with self._lock:
            if not self._held:
                self._fill(files)

    def run(self, work: Callable[[], T], size: int) -> T:
        """Run ``work``, which takes ``size`` bytes of disk; if the disk is full, release them from the reserve and
        retry. Raises :class:`NoRoom` if the reserve is used up too.
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
        """Within this context, the reserve takes no free space."""
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
        size = min(self.wanted, self.size + free - LEAST)  # a bookie that starts has small records to write
        if self.is_needed and size > self.size:
            self._take(files, size)

    def _take(self, files: Files, size: int) -> None:
        """Extend the reserve to ``size`` bytes, if there is space."""
        with suppress(NoRoom):
            if self._file is None:
                self._file = files.create(self._name)
            self._file.end = 0
            self._file.preallocate(size)
            self.size = size

    def give(self, size: int) -> bool:
        """Release ``size`` bytes, or whatever is left. Returns whether anything was released."""
        with self._lock:
            if self._file is None or not self.size:
                return False
            self.size = max(0, self.size - max(size, LEAST))
            self._file.truncate(self.size)
        self._used()
        return True


NO_RESERVE = Reserve()
"""A reserve of nothing."""
