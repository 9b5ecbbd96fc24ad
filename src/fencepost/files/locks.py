"""Locks of open files, which end with the file or its process, even by a crash."""

from __future__ import annotations

import errno
import sys


def lock(file: int, wait: bool) -> None:
    """Lock an open file by its descriptor. ``wait`` until nobody else has it locked.

    Raises ``BlockingIOError`` if it is locked and ``wait`` is false, and another ``OSError`` if locking fails: always
    on Windows, where a locked file cannot be read by others.
    """
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "this needs locks of files as Linux and macOS have them")
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
