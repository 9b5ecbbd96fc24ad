"""The file interface of a bookie: one flat folder of append-only files, and syncs of both.

All persistent data of a bookie passes through it, so a test can substitute a failing folder, and the simulator one in
memory. All failures are ``OSError``. No caller retries a failed write or sync, since its effect on the disk is unknown.
Allocations are the exception: if the disk is full, ``create`` and ``preallocate`` allocate nothing (:class:`NoRoom`),
and the caller may retry.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fencepost.files import locks

SECTOR = 512
"""The bytes that a disk writes atomically."""

Part = bytes | memoryview
"""Bytes to write, without copying them. A view must be read-only."""


class ShortWrite(OSError):
    """The operating system wrote only a part of the data."""

    def __init__(self, name: str, written: int, wanted: int) -> None:
        super().__init__(errno.EIO, f"{name} took {written:,} of {wanted:,} bytes")


class NoRoom(OSError):
    """The disk is full. Nothing was allocated, so the caller may retry."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.ENOSPC, f"there is no room for {name}")


@dataclass(frozen=True)
class Room:
    """The size of the disk that holds a folder, and its free space, in bytes."""

    total: int
    free: int

    @property
    def usage(self) -> float:
        """The fraction of the disk in use, from 0 to 1."""
        return 1 - self.free / self.total


class File(Protocol):
    """An open file. Several threads may read it, and one may write. It is closed when it is no longer referenced."""

    name: str
    end: int
    """The offset of the next write."""

    def append(self, data: bytes | Sequence[Part], cached: bool = True) -> None:
        """Write the parts at ``end``, one after another, and advance it.

        ``cached``: through the page cache. Otherwise past it, where the system can do that and where ``end`` and the
        parts, in size and in memory, are multiples of ``SECTOR``. Both are equally durable: after
        :meth:`sync`.
        """

    def read(self, offset: int, size: int) -> bytes:
        """Read ``size`` bytes at an offset; fewer only at the end of the file."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer with the bytes at an offset. Returns their number, which is smaller than the buffer only at the
        end of the file.
        """

    def read_now(self, offset: int, buffer: memoryview) -> int:
        """As :meth:`read_into`, without waiting for the disk. Returns fewer bytes, or 0, if the rest is not in the page
        cache.
        """

    def sync(self) -> None:
        """Make all writes durable. The file's name becomes durable only when the folder is synced too."""

    def preallocate(self, end: int) -> None:
        """Allocate disk space from ``end`` up to an offset. Unwritten bytes there read as zeros. Raises
        :class:`NoRoom`, and then allocates nothing.
        """

    def truncate(self, length: int) -> None:
        """Cut the file to a length, or extend it with zeros. The next write goes there."""


class Files(Protocol):
    """A folder of files."""

    def names(self) -> list[str]:
        """The names of all files, sorted."""

    def size(self, name: str) -> int:
        """The size of a file in bytes."""

    def create(self, name: str) -> File:
        """Create a file, which must not exist. Raises :class:`NoRoom`."""

    def open(self, name: str, writable: bool = False) -> File:
        """Open an existing file."""

    def rename(self, name: str, new: str) -> None:
        """Rename a file atomically. Replaces a file of the new name."""

    def remove(self, name: str) -> None:
        """Remove a file. It can still be read where it is open."""

    def sync(self) -> None:
        """Make the names of the files durable."""

    def room(self) -> Room:
        """The space on the folder's disk."""


TEMPORARY = ".new"
"""The suffix of an incomplete file. Such files are removed when a folder is opened."""


def replace(files: Files, name: str, data: bytes) -> None:
    """Write a file atomically and durably. Replaces an existing one."""
    if name + TEMPORARY in files.names():
        files.remove(name + TEMPORARY)
    file = files.create(name + TEMPORARY)
    file.append(data)
    file.sync()
    files.rename(name + TEMPORARY, name)
    files.sync()


def remove_temporary(files: Files) -> None:
    """Remove incomplete files that a crash left."""
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
        self._direct: int | None = None
        """A descriptor for writes past the page cache: -1 if there can be none."""

    def append(self, data: bytes | Sequence[Part], cached: bool = True) -> None:
        parts = [data] if isinstance(data, bytes) else data
        for first in range(0, len(parts), _PARTS):
            some = parts[first : first + _PARTS]
            wanted = sum(map(len, some))
            written = -1 if cached else self._write_past_cache(some)
            if written < 0:
                written = os.pwritev(self._descriptor, some, self.end)
            if written != wanted:
                raise ShortWrite(self.name, written, wanted)
            self.end += wanted

    def _write_past_cache(self, parts: Sequence[Part]) -> int:
        """Write parts past the page cache, and return how many bytes that were, -1 if the system refuses: then nothing
        was written.
        """
        if self._direct is None:
            self._direct = _direct(self._descriptor)
        if self._direct < 0:
            return -1
        try:
            return os.pwritev(self._direct, parts, self.end)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return -1

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]  # one call returns at most 2 GiB, and less after a signal
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
        except OSError as error:  # the blocking read reports the error
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
            os.ftruncate(self._descriptor, before)  # a part may have been allocated
            raise NoRoom(self.name) from None

    def truncate(self, length: int) -> None:
        os.ftruncate(self._descriptor, length)
        self.end = length

    def __del__(self) -> None:
        os.close(self._descriptor)
        if self._direct is not None and self._direct >= 0:
            os.close(self._direct)


def _direct(descriptor: int) -> int:
    """Another descriptor of an open file, for writes past the page cache; -1 if the system or the file system has
    none.
    """
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT)
    except (OSError, AttributeError):
        return -1


_PARTS = 1024  # Linux takes no more in one call
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def make_folder(path: str | Path) -> None:
    """Create a folder and its parents, with access for their owner and read access for the group. Existing folders are
    not changed."""
    for folder in reversed((Path(path), *Path(path).parents)):
        if not folder.is_dir():
            folder.mkdir(0o750, exist_ok=True)


def private(path: str, flags: int) -> int:
    """An opener for :func:`open`: a new file is writable for its owner, and readable for the group. Opening a pipe
    raises ``OSError`` instead of waiting for its reader.
    """
    return os.open(path, flags | os.O_NONBLOCK, 0o640)


class OsFiles:
    """A folder of the operating system. It is created if it is missing, unless ``create`` is False."""

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
    """Locks a folder for one process, until the lock is released or the process ends. Raises ``BlockingIOError`` if
    another process holds the lock.
    """

    def __init__(self, path: str) -> None:
        self._file = open(os.path.join(path, "LOCK"), "ab", opener=private)
        try:
            locks.lock(self._file.fileno(), wait=False)
        except BlockingIOError:
            self._file.close()
            raise

    def release(self) -> None:
        """Release the lock."""
        self._file.close()


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
