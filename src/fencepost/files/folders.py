"""The files of a bookie, as little of them as it needs: one flat folder, files that grow at their end, and syncs of
both.

Everything that a bookie keeps passes through here, so that a test can put a folder that fails in its place, and the
simulator one that is made of bytes. All failures are ``OSError``. A write or a sync that failed is never tried again by
anybody: what it left on the disk is not known. What takes room is apart from that: ``create`` and ``preallocate`` take
none if there is not enough (:class:`NoRoom`), and may be tried again.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

SECTOR = 512
"""Bytes that a disk writes at once."""

Part = bytes | memoryview
"""Bytes to be written, as they lie in memory; a view is one that cannot be written to."""


class ShortWrite(OSError):
    """The operating system took a part of what was to be written."""

    def __init__(self, name: str, written: int, wanted: int) -> None:
        super().__init__(errno.EIO, f"{name} took {written:,} of {wanted:,} bytes")


class NoRoom(OSError):
    """There is not enough room on a disk. Nothing was taken of it: the same may be tried again."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.ENOSPC, f"there is no room for {name}")


@dataclass(frozen=True)
class Room:
    """The bytes of the disk that a folder is on, and how many of them can still be written."""

    total: int
    free: int

    @property
    def usage(self) -> float:
        """The share of the disk that is in use, from 0 to 1."""
        return 1 - self.free / self.total


class File(Protocol):
    """An open file. It may be read by several threads, and written by one. It is closed when nobody refers to it any
    more.
    """

    name: str
    end: int
    """Where the next write goes."""

    def append(self, data: bytes | Sequence[Part]) -> None:
        """Write at ``end``, one part after another, and move that."""

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from an offset on, fewer than ``size`` of them only at the end of the file."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer with the bytes from an offset on; how many there are, fewer than it has room for only at the
        end of the file.
        """

    def read_now(self, offset: int, buffer: memoryview) -> int:
        """As :meth:`read_into`, without waiting for a disk: fewer bytes, or none, where others are not in the operating
        system's memory.
        """

    def sync(self) -> None:
        """Come back when all that was written is durable. Its name is so only when the folder is synced too."""

    def preallocate(self, end: int) -> None:
        """Take room from ``end`` up to an offset; what was never written there reads as zeros. Raises :class:`NoRoom`,
        and takes none then.
        """

    def truncate(self, length: int) -> None:
        """Cut the file off, or make it longer by zeros; the next write goes there."""


class Files(Protocol):
    """A folder of files."""

    def names(self) -> list[str]:
        """The files there are, in the order of their names."""

    def size(self, name: str) -> int:
        """The bytes of a file."""

    def create(self, name: str) -> File:
        """Make a file, which must not be there yet. Raises :class:`NoRoom`."""

    def open(self, name: str, writable: bool = False) -> File:
        """Open a file that is there."""

    def rename(self, name: str, new: str) -> None:
        """Give a file another name, in one step; a file that has that name is replaced."""

    def remove(self, name: str) -> None:
        """Remove a file. Whoever has it open can go on to read it."""

    def sync(self) -> None:
        """Come back when the names of the files are durable."""

    def room(self) -> Room:
        """How much room there is."""


TEMPORARY = ".new"
"""The suffix of a file that is not whole yet. Such files are removed when a folder is opened."""


def replace(files: Files, name: str, data: bytes) -> None:
    """Have a file with these contents, in one step and durably, whether or not there was one with that name."""
    if name + TEMPORARY in files.names():
        files.remove(name + TEMPORARY)
    file = files.create(name + TEMPORARY)
    file.append(data)
    file.sync()
    files.rename(name + TEMPORARY, name)
    files.sync()


def remove_temporary(files: Files) -> None:
    """Remove what a crash left of files that were not whole."""
    for name in files.names():
        if name.endswith(TEMPORARY):
            files.remove(name)


class OsFile:
    """A file of the operating system."""

    def __init__(self, name: str, descriptor: int, end: int) -> None:
        self.name = name
        self.end = end
        self._descriptor = descriptor
        self._can_read_now = hasattr(os, "RWF_NOWAIT")

    def append(self, data: bytes | Sequence[Part]) -> None:
        parts = [data] if isinstance(data, bytes) else data
        for first in range(0, len(parts), _PARTS):
            some = parts[first : first + _PARTS]
            wanted = sum(map(len, some))
            written = os.pwritev(self._descriptor, some, self.end)
            if written != wanted:
                raise ShortWrite(self.name, written, wanted)
            self.end += wanted

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]  # one call returns at most 2 GiB, and fewer if a signal comes
        while data and size > sum(map(len, parts)):
            done = sum(map(len, parts))
            data = os.pread(self._descriptor, size - done, offset + done)
            parts.append(data)
        return b"".join(parts)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        done = os.preadv(self._descriptor, [buffer], offset)
        while 0 < done < len(buffer):
            more = os.preadv(self._descriptor, [buffer[done:]], offset + done)
            if not more:
                break
            done += more
        return done

    def read_now(self, offset: int, buffer: memoryview) -> int:
        if not self._can_read_now:
            return 0
        try:
            return os.preadv(self._descriptor, [buffer], offset, os.RWF_NOWAIT)
        except OSError as error:  # the read that waits for the disk reports the error
            self._can_read_now = error.errno not in (errno.EOPNOTSUPP, errno.EINVAL)
            return 0

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def preallocate(self, end: int) -> None:
        if end <= self.end:
            return
        before = os.fstat(self._descriptor).st_size
        try:
            os.posix_fallocate(self._descriptor, self.end, end - self.end)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            os.ftruncate(self._descriptor, before)  # a part of it may have been taken
            raise NoRoom(self.name) from None

    def truncate(self, length: int) -> None:
        os.ftruncate(self._descriptor, length)
        self.end = length

    def __del__(self) -> None:
        os.close(self._descriptor)


_PARTS = os.sysconf("SC_IOV_MAX")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def make_folder(path: str | Path) -> None:
    """Make a folder, and those that it is in, for their owner, and readable by the group; nothing happens to those that
    are there."""
    for folder in reversed((Path(path), *Path(path).parents)):
        if not folder.is_dir():
            folder.mkdir(0o750, exist_ok=True)


def private(path: str, flags: int) -> int:
    """An opener for :func:`open`: a new file is for its owner, and readable by the group."""
    return os.open(path, flags, 0o640)


class OsFiles:
    """A folder of the operating system. It is made if it is missing, unless ``create`` is false."""

    def __init__(self, path: str, create: bool = True) -> None:
        self.path = path
        if create and not os.path.isdir(path):
            make_folder(path)
            _sync_folder(os.path.dirname(os.path.abspath(path)))

    def names(self) -> list[str]:
        with os.scandir(self.path) as found:
            return sorted(each.name for each in found if each.is_file())

    def size(self, name: str) -> int:
        return os.stat(os.path.join(self.path, name)).st_size

    def create(self, name: str) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return OsFile(name, private(os.path.join(self.path, name), flags), 0)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise NoRoom(name) from None
            raise

    def open(self, name: str, writable: bool = False) -> File:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        descriptor = os.open(os.path.join(self.path, name), flags)
        return OsFile(name, descriptor, os.fstat(descriptor).st_size)

    def rename(self, name: str, new: str) -> None:
        os.replace(os.path.join(self.path, name), os.path.join(self.path, new))

    def remove(self, name: str) -> None:
        os.remove(os.path.join(self.path, name))

    def sync(self) -> None:
        _sync_folder(self.path)

    def room(self) -> Room:
        found = os.statvfs(self.path)
        return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


class Lock:
    """Keeps a folder for one process, until it is released or the process ends. Raises ``BlockingIOError`` if another
    has it.
    """

    def __init__(self, path: str) -> None:
        self._file = open(os.path.join(path, "LOCK"), "ab", opener=private)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise

    def release(self) -> None:
        """Let others have the folder."""
        self._file.close()


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
