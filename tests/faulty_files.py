"""A file layer that injects faults into another. Tests of bookies and of their parts use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencepost.files.folders import File, Files, Part, Room, ShortWrite

Fault = Callable[[str, str], BaseException | None]
"""From the names of an operation and a file, the error to raise, or None. The operations are
``append``, ``sync``, ``read``, ``truncate`` and ``preallocate`` of files, ``create``, ``open``, ``rename`` and
``remove``, and ``sync`` of the folder, whose name is empty.
"""


def failing(operation: str, suffix: str, error: BaseException, times: int = 1, after: int = 0) -> Fault:
    """Fail ``times`` calls of an operation on files whose names end with ``suffix``, after ``after`` calls that
    succeed.
    """
    seen = 0

    def fault(done: str, name: str) -> BaseException | None:
        nonlocal seen
        if done != operation or not name.endswith(suffix):
            return None
        seen += 1
        return error if after < seen <= after + times else None

    return fault


class FaultyFile:
    """A file whose operations fail when ``fault`` gives an error. An append that fails writes its first half."""

    def __init__(self, file: File, fault: Fault) -> None:
        self.name = file.name
        self._file = file
        self._fault = fault

    @property
    def end(self) -> int:
        """The offset of the next write."""
        return self._file.end

    @end.setter
    def end(self, end: int) -> None:
        self._file.end = end

    def append(self, data: bytes | Sequence[Part], cached: bool = True) -> None:
        """Write at ``end``."""
        error = self._fault("append", self.name)
        if error is not None:
            whole = data if isinstance(data, bytes) else b"".join(data)
            self._file.append(whole[: len(whole) // 2])
            raise ShortWrite(self.name, len(whole) // 2, len(whole)) if isinstance(error, ShortWrite) else error
        self._file.append(data, cached)

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes from an offset."""
        _raise(self._fault("read", self.name))
        return self._file.read(offset, size)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer with bytes from an offset."""
        _raise(self._fault("read", self.name))
        return self._file.read_into(offset, buffer)

    def read_now(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer with bytes from an offset, unless that needs the disk."""
        return 0 if self._fault("read", self.name) is not None else self._file.read_now(offset, buffer)

    def sync(self) -> None:
        """Return when everything written is durable."""
        _raise(self._fault("sync", self.name))
        self._file.sync()

    def preallocate(self, end: int) -> None:
        """Allocate space up to an offset."""
        _raise(self._fault("preallocate", self.name))
        self._file.preallocate(end)

    def truncate(self, length: int) -> None:
        """Truncate the file."""
        _raise(self._fault("truncate", self.name))
        self._file.truncate(length)


class FaultyFiles:
    """A folder whose operations fail when ``fault`` gives an error."""

    def __init__(self, files: Files, fault: Fault) -> None:
        self._files = files
        self._fault = fault

    def names(self) -> list[str]:
        """The names of the files."""
        return self._files.names()

    def size(self, name: str) -> int:
        """The contents of a file."""
        return self._files.size(name)

    def create(self, name: str) -> FaultyFile:
        """Create a file."""
        _raise(self._fault("create", name))
        return FaultyFile(self._files.create(name), self._fault)

    def open(self, name: str, writable: bool = False) -> FaultyFile:
        """Open a file."""
        _raise(self._fault("open", name))
        return FaultyFile(self._files.open(name, writable), self._fault)

    def rename(self, name: str, new: str) -> None:
        """Rename a file."""
        _raise(self._fault("rename", name))
        self._files.rename(name, new)

    def remove(self, name: str) -> None:
        """Remove a file."""
        _raise(self._fault("remove", name))
        self._files.remove(name)

    def sync(self) -> None:
        """Return when the names of the files are durable."""
        _raise(self._fault("sync", ""))
        self._files.sync()

    def room(self) -> Room:
        """The free space."""
        return self._files.room()


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error
