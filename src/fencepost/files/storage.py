"""Storage for files: a local folder, or a folder of any file system that PyArrow reaches by URL.

Every file is written once, under a name that no other process writes. Files of a search on Spark are arrays without a
header; their types and sizes are in the manifest. Files of a state space are Parquet, which PyArrow writes.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fencepost.errors import SystemFailure
from fencepost.files import locks
from fencepost.files.digest import running

Array = np.ndarray[Any, Any]

CHUNK = 1 << 22
"""Bytes per read when a whole file is read."""

URL = re.compile(r"[a-z][a-z0-9+.-]+://")


def _bytes(array: Array | bytes) -> memoryview | bytes:
    """The memory of an array, without a copy."""
    if isinstance(array, bytes):
        return array
    return memoryview(array.data).cast("B") if array.size else b""


def reason(error: Exception) -> str:
    """The reason of an I/O error, in a few words."""
    number = getattr(error, "errno", None) or 0
    if number in errno.errorcode:
        return os.strerror(number)
    return getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]


def open_storage(place: Path | str) -> Storage:
    """The storage at a path or a URL. Raises :class:`fencepost.SystemFailure` if the URL cannot be reached."""
    text = str(place)
    return Remote(text) if URL.match(text) else Storage(os.path.abspath(text))


def is_within(place: Path | str, folder: Path | str) -> bool:
    """Whether a path or URL is ``folder`` or lies within it."""
    inner, outer = _real(place), _real(folder)
    return inner == outer or inner.startswith(f"{outer}/")


def folder_of(place: Path | str) -> Path | None:
    """The local folder at a path or URL; None if it is remote."""
    real = _real(place)
    return None if URL.match(real) else Path(real)


def sync_folder(folder: Path | str) -> None:
    """Make the names of a folder's files durable, where a folder can be opened: not on Windows. Raises ``OSError``."""
    if sys.platform == "win32":
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class Lock:
    """Locks a folder for one search, until the lock is released or the process ends, even by a crash. Without
    ``create``, a folder that was never locked is not locked.

    Raises ``BlockingIOError`` if another search holds the lock, another ``OSError`` if locking fails.
    """

    def __init__(self, folder: Path, create: bool) -> None:
        self._file = None
        if not create and not (folder / "LOCK").exists():
            return
        self._file = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            locks.lock(self._file, wait=False)
        except OSError:
            os.close(self._file)
            raise

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            os.close(self._file)


def _real(place: Path | str) -> str:
    text = str(place).removeprefix("file://")
    return text.rstrip("/") if URL.match(text) else os.path.realpath(text)


class Storage:
    """A local folder. Raises :class:`fencepost.SystemFailure` for every I/O error."""

    is_remote = False
    refusals: type[Exception] = OSError
    """The exceptions of failed I/O."""

    def __init__(self, place: str) -> None:
        self.place = place

    @contextmanager
    def _failing_as(self, verb: str, name: str = "", unless: type[Exception] | tuple[()] = ()) -> Iterator[None]:
        """Turn I/O errors on a file or the folder into :class:`fencepost.SystemFailure`: "... cannot be ``verb``".
        Exceptions of the class ``unless`` pass.
        """
        try:
            yield
        except unless:
            raise
        except self.refusals as error:
            raise SystemFailure(f"{self.where(name)} cannot be {verb}: {reason(error)}") from None

    def below(self, name: str) -> Storage:
        """The storage of a folder in this one."""
        return open_storage(f"{self.place}/{name}")

    def where(self, name: str = "") -> str:
        """The folder, or a file in it, as messages name it."""
        return f"{self.place}/{name}".rstrip("/")

    def arrow(self) -> tuple[Any, str]:
        """PyArrow's file system, and the path of the folder in it."""
        from pyarrow import fs

        return fs.LocalFileSystem(), self.place

    def exists(self) -> bool:
        """Whether the folder exists."""
        return os.path.isdir(self.place)

    def create(self) -> None:
        """Create the folder if it is missing."""
        with self._failing_as("made"):
            os.makedirs(self.place, exist_ok=True)

    def write(self, name: str, *arrays: Array | bytes) -> int:
        """Write a file. Returns its size in bytes."""
        with self._failing_as("written", name), self._created(name) as file:
            for array in arrays:
                file.write(_bytes(array))
            return int(file.tell())

    def _created(self, name: str) -> Any:
        """Open a new file for writing."""
        return open(os.path.join(self.place, name), "wb")

    def replace(self, name: str, content: bytes) -> None:
        """Write a file atomically: a reader sees the whole old file or the whole new one."""
        fresh = os.path.join(self.place, f"{name}.new")
        with self._failing_as("written", name):
            try:
                with open(fresh, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(fresh, os.path.join(self.place, name))
                sync_folder(self.place)
            except OSError:
                with suppress(OSError):
                    os.remove(fresh)
                raise

    def read(self, name: str, dtype: Any, offset: int, count: int) -> Array:
        """Read ``count`` numbers at byte ``offset``."""
        with self._failing_as("read", name):
            held = np.fromfile(os.path.join(self.place, name), dtype, count, offset=offset)
        if len(held) < count:
            raise SystemFailure(f"{self.where(name)} is truncated")
        return held

    def load(self, name: str) -> bytes | None:
        """The content of a file, None if it does not exist."""
        with suppress(FileNotFoundError), self._failing_as("read", name, FileNotFoundError), self._opened(name) as file:
            return bytes(file.read())
        return None

    def digest(self, name: str) -> str | None:
        """The digest of a file, None if it does not exist."""
        whole = running()
        with suppress(FileNotFoundError), self._failing_as("read", name, FileNotFoundError), self._opened(name) as file:
            while chunk := file.read(CHUNK):
                whole.update(chunk)
            return str(whole.hexdigest())
        return None

    def _opened(self, name: str) -> Any:
        """Open a file for reading."""
        return open(os.path.join(self.place, name), "rb")

    def names(self) -> list[str]:
        """The names of all files."""
        with suppress(FileNotFoundError), self._failing_as("listed", "", FileNotFoundError):
            return os.listdir(self.place)
        return []

    def sizes(self) -> dict[str, int]:
        """The sizes of all files in bytes, by name."""
        with suppress(FileNotFoundError), self._failing_as("listed", "", FileNotFoundError):
            with os.scandir(self.place) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        return {}

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with suppress(FileNotFoundError), self._failing_as("removed", name, FileNotFoundError):
            os.remove(os.path.join(self.place, name))

    def rename(self, name: str, new: str) -> None:
        """Rename a file atomically. Replaces a file of the new name."""
        with self._failing_as("renamed", name):
            os.replace(os.path.join(self.place, name), os.path.join(self.place, new))

    def delete(self) -> None:
        """Remove the folder with its contents if it exists."""
        with suppress(FileNotFoundError), self._failing_as("removed", "", FileNotFoundError):
            shutil.rmtree(self.place)

    def blocks(self, name: str, dtype: Any, offset: int, count: int, size: int = 1 << 20) -> Iterator[Array]:
        """Read ``count`` numbers at byte ``offset``, at most ``size`` at a time."""
        width = np.dtype(dtype).itemsize
        for begin in range(0, count, size):
            yield self.read(name, dtype, offset + begin * width, min(size, count - begin))


class Remote(Storage):
    """A folder behind a URL: ``hdfs://``, ``s3://``, ``gs://``, ``file://``."""

    is_remote = True
    refusals = Exception

    def __init__(self, place: str, files: Any = None) -> None:
        """``files``: a file system of PyArrow, in which ``place`` is a path; None: that of the URL ``place``."""
        super().__init__(place.rstrip("/"))
        from pyarrow import fs

        if files is not None:
            self.files, self.root = files, self.place
            return
        try:
            self.files, self.root = fs.FileSystem.from_uri(self.place)
        except Exception as error:
            raise SystemFailure(f"{place} cannot be reached: {str(error).splitlines()[0]}") from None

    def below(self, name: str) -> Storage:
        place, mark, options = self.place.partition("?")
        return open_storage(f"{place.rstrip('/')}/{name}{mark}{options}")

    def where(self, name: str = "") -> str:
        """Without the options of the URL."""
        return f"{self.place.partition('?')[0].rstrip('/')}/{name}".rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def arrow(self) -> tuple[Any, str]:
        return self.files, self.root

    def exists(self) -> bool:
        from pyarrow import fs

        with self._failing_as("read"):
            return bool(self.files.get_file_info(self.root).type == fs.FileType.Directory)

    def create(self) -> None:
        with self._failing_as("made"):
            self.files.create_dir(self.root, recursive=True)

    def _created(self, name: str) -> Any:
        return self.files.open_output_stream(self._path(name))

    def replace(self, name: str, content: bytes) -> None:
        fresh = f"{name}.new"
        self.write(fresh, content)
        self.rename(fresh, name)

    def read(self, name: str, dtype: Any, offset: int, count: int) -> Array:
        size = count * np.dtype(dtype).itemsize
        with self._failing_as("read", name), self.files.open_input_file(self._path(name)) as file:
            held = file.read_at(size, offset)
        if len(held) < size:
            raise SystemFailure(f"{self.where(name)} is truncated")
        # Compiled loops require writable arrays.
        return np.frombuffer(bytearray(held), dtype)

    def _opened(self, name: str) -> Any:
        return self.files.open_input_stream(self._path(name))

    def names(self) -> list[str]:
        return [found.base_name for found in self._entries()]

    def sizes(self) -> dict[str, int]:
        return {found.base_name: found.size for found in self._entries() if found.is_file}

    def _entries(self) -> list[Any]:
        from pyarrow import fs

        with self._failing_as("listed"):
            return list(self.files.get_file_info(fs.FileSelector(self.root, allow_not_found=True)))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), self._failing_as("removed", name, FileNotFoundError):
            self.files.delete_file(self._path(name))

    def rename(self, name: str, new: str) -> None:
        with self._failing_as("renamed", name):
            self.files.move(self._path(name), self._path(new))

    def delete(self) -> None:
        with suppress(FileNotFoundError), self._failing_as("removed", "", FileNotFoundError):
            self.files.delete_dir(self.root)
