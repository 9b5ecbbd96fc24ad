"""A byte-level disk: writes are safe only after a sync, and never safe from damage.

A write is visible to reads at once, but survives a power loss only after a sync has ended. Until then, each written
sector of 512 bytes survives or not, independently of the others, and may be torn. The same goes for file names: each
name created or removed since the last sync of the folder may or may not exist after a power loss. Power may fail
between any two uses of a disk, and syncs may fail.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random

from fencepost.files.folders import SECTOR, NoRoom, Part, Room


class PowerLoss(BaseException):
    """The process is gone. Raised in the middle of its work, to stop it."""


class DiskFull(OSError):
    """Not enough space for a write; part of it may have been written."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.ENOSPC, f"no room for {name}")


class SimFile:
    """A file: its visible contents, the part that would survive a power loss now, and the written, unsynced sectors."""

    __slots__ = ("content", "dirty", "durable")

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.content = bytearray(data)
        self.durable = bytearray(data)
        self.dirty: set[int] = set()

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes at an offset."""
        end = offset + len(data)
        if offset > len(self.content):
            self.content.extend(bytes(offset - len(self.content)))
        self.content[offset:end] = data
        self.dirty.update(range(offset // SECTOR, -(-end // SECTOR)))

    def begin_sync(self) -> frozenset[int]:
        """The sectors that a sync beginning now makes durable."""
        return frozenset(self.dirty)

    def end_sync(self, sectors: frozenset[int]) -> None:
        """Make these sectors durable."""
        ordered = sorted(sectors)
        if ordered and ordered[-1] - ordered[0] < len(ordered):  # consecutive, the usual case
            self._keep(ordered[0], len(ordered) * SECTOR)
        else:
            for sector in ordered:
                self._keep(sector, SECTOR)
        self.dirty -= sectors

    def fail_sync(self, sectors: frozenset[int], random: Random) -> None:
        """Fail a sync. Each of its sectors may be durable or not, but the disk considers all of them clean."""
        self.end_sync(frozenset(s for s in sorted(sectors) if random.random() < 0.5))
        self.dirty -= sectors

    def lose_power(self, random: Random) -> None:
        """Lose power: of the unsynced sectors, all, none or some survive, and some are torn."""
        surviving = (0.0, 1.0, 0.5, 0.9)[int(random.random() * 4)]
        for sector in sorted(self.dirty):
            if random.random() < surviving:
                torn = random.random() < 0.2
                self._keep(sector, int(random.random() * SECTOR) if torn else SECTOR)
        self.dirty.clear()
        self.content[:] = self.durable

    def truncate(self, length: int) -> None:
        """Cut the file off, or extend it by zeros, durably."""
        for data in (self.content, self.durable):
            del data[length:]
            data.extend(bytes(length - len(data)))
        self.dirty = {s for s in self.dirty if s * SECTOR < length}

    def flip(self, bit: int) -> None:
        """Damage one bit, both visible and durable."""
        offset, mask = bit // 8, 1 << bit % 8
        self.content[offset] ^= mask
        if offset < len(self.durable):
            self.durable[offset] ^= mask

    def _keep(self, sector: int, size: int) -> None:
        """Make bytes from the start of a sector on durable."""
        start = sector * SECTOR
        kept = self.content[start : start + size]
        if start > len(self.durable):
            self.durable.extend(bytes(start - len(self.durable)))
        self.durable[start : start + len(kept)] = kept


class SimHandle:
    """An open file."""

    def __init__(self, disk: SimDisk, name: str, file: SimFile) -> None:
        self.name = name
        self.end = len(file.content)
        self._disk = disk
        self._file = file

    def append(self, data: bytes | Sequence[Part], cached: bool = True) -> None:
        """Write at the end. Raises :class:`DiskFull` after writing what fits."""
        whole = data if isinstance(data, bytes) else b"".join(data)
        there = len(self._file.content)
        fits = whole[: max(0, self._disk.free) + max(0, there - self.end)]
        self._file.write(self.end, fits)
        self._disk.free -= len(self._file.content) - there
        self.end += len(fits)
        self._disk.use()
        if len(fits) < len(whole):
            raise DiskFull(self.name)

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes at an offset."""
        return bytes(self._file.content[offset : offset + size])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer with bytes at an offset."""
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_now(self, offset: int, buffer: memoryview) -> int:
        return self.read_into(offset, buffer)

    def sync(self) -> None:
        """Make everything written durable. Raises ``OSError`` if that fails."""
        self._disk.use()
        if self._disk.fails is not None:
            self._file.fail_sync(self._file.begin_sync(), self._disk.fails)
            self._disk.fails = None
            raise OSError(errno.EIO, f"{self.name} cannot be synced")
        self._file.end_sync(self._file.begin_sync())
        self._file.durable.extend(bytes(len(self._file.content) - len(self._file.durable)))  # if a sync had failed
        self._disk.use()

    def preallocate(self, end: int) -> None:
        """Allocate space up to an offset. Raises :class:`NoRoom`, and then allocates nothing."""
        there = len(self._file.content)
        if end - there > self._disk.free:
            raise NoRoom(self.name)
        if end > there:
            self._file.write(there, bytes(end - there))
            self._disk.free -= end - there

    def truncate(self, length: int) -> None:
        """Cut the file off, or extend it by zeros, durably."""
        self._disk.free += len(self._file.content) - length
        self._file.truncate(length)
        self.end = length


CAPACITY = 1 << 40
"""The size of a disk, in bytes."""

NEVER = 1 << 60
"""More uses of a disk than any run makes."""


class SimDisk:
    """A folder of files by name, with limited space."""

    def __init__(self) -> None:
        self.files: dict[str, SimFile] = {}
        self.free = CAPACITY
        """Free bytes."""
        self.left = NEVER
        """The number of uses before the process that uses it dies."""
        self.fails: Random | None = None
        """If set, the next sync fails, and this decides what is durable."""
        self._synced: dict[str, SimFile | None] = {}
        """For each name changed since the last sync of the folder, its file at that sync."""

    # -- the interface of every layer of files ------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The names of all files, sorted."""
        return sorted(self.files)

    def size(self, name: str) -> int:
        """The bytes of a file."""
        return len(self.files[name].content)

    def create(self, name: str) -> SimHandle:
        """Create a file, which must not exist."""
        if name in self.files:
            raise FileExistsError(errno.EEXIST, name)
        self._name(name, SimFile())
        self.use()
        return self.open(name)

    def open(self, name: str, writable: bool = False) -> SimHandle:
        """Open an existing file."""
        return SimHandle(self, name, self.files[name])

    def rename(self, name: str, new: str) -> None:
        """Rename a file."""
        file = self.files[name]
        self._name(name, None)
        self._name(new, file)
        self.use()

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.free += len(self.files[name].content)
        self._name(name, None)
        self.use()

    def sync(self) -> None:
        """Make the names of files durable."""
        self.use()
        self._synced.clear()
        self.use()

    def room(self) -> Room:
        """The total and the free space."""
        return Room(CAPACITY, self.free)

    def _name(self, name: str, file: SimFile | None) -> None:
        self._synced.setdefault(name, self.files.get(name))
        self._put(name, file)

    def _put(self, name: str, file: SimFile | None) -> None:
        if file is None:
            self.files.pop(name, None)
        else:
            self.files[name] = file

    # -- simulation ---------------------------------------------------------------------------------------------------

    def append(self, name: str, data: bytes) -> int:
        """Append to a file, created if necessary; returns the offset. Raises :class:`DiskFull` after writing what
        fits.
        """
        handle = self.open(name) if name in self.files else self.create(name)
        offset = handle.end
        handle.append(data)
        return offset

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Read bytes of a file."""
        return self.open(name).read(offset, size)

    def use(self) -> None:
        """Count a use of the disk. Raises :class:`PowerLoss` when none are left."""
        self.left -= 1
        if self.left < 0:
            raise PowerLoss

    def kept(self) -> SimDisk:
        """The contents that certainly survive a power loss now."""
        kept = SimDisk()
        for name, file in {**self.files, **self._synced}.items():
            if file is not None:
                kept.files[name] = SimFile(file.durable)
        return kept

    def lose_power(self, random: Random) -> None:
        """Lose power: unsynced bytes and names survive in part."""
        for name in sorted(self._synced):
            if random.random() < 0.5:
                self._put(name, self._synced[name])
        self._synced.clear()
        for name in sorted(self.files):
            self.files[name].lose_power(random)

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self.files.clear()
        self._synced.clear()
        self.heal()

    def heal(self) -> None:
        """End all faults of this disk."""
        self.free, self.left, self.fails = CAPACITY, NEVER, None
