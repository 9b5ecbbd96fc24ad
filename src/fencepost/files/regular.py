"""Files that end. A device never does, and a pipe may wait forever for a writer."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_instead: dict[str, bytes] = {}


def use_instead(path: str | Path, content: bytes) -> None:
    """Let :func:`content` give this for a file, in this process: an editor has it, and has not saved it."""
    _instead[os.path.abspath(path)] = content


def content(path: str | Path) -> bytes:
    """The content of a regular file. Raises :class:`OSError` if it cannot be read or is not a regular file."""
    if _instead and (given := _instead.get(os.path.abspath(path))) is not None:
        return given
    with open(path, "rb", opener=_opened) as file:
        return file.read()


def at_most(path: str | Path, most: int) -> bytes:
    """The content of a file or a pipe, which is at most ``most`` bytes. Raises :class:`OSError`."""
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return data


def require(path: str | Path) -> None:
    """Raises :class:`OSError` unless the path is a regular file."""
    _check(os.stat(path), path)


def stamp(path: str | Path) -> tuple[int, ...]:
    """Numbers that change when a file is replaced or written, the last is its mode; empty if the file is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode


def _opened(path: str, flags: int) -> int:
    # Opening a pipe must not block; no effect on regular files. Windows has neither the flag nor such pipes.
    file = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        _check(os.fstat(file), path)
    except OSError:
        os.close(file)
        raise
    return file


def _check(status: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a device or a pipe, and no file", str(path))
