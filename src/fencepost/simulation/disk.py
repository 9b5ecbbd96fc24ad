"""A disk, byte by byte: what is written is safe only once it is synced, and not even then from damage.

A write changes what is read at once, and what survives a loss of power only when a sync has ended. Until then each
sector of 512 bytes that was written survives or does not, whatever became of those before it, and one may be torn. So
it is with the names of files: each that was made or removed since the folder was synced is there after a loss of power
or not. Power may be lost between any two uses of a disk, and syncs fail.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random

from fencepost.files.folders import SECTOR, NoRoom, Part, Room


class PowerLoss(BaseException):
    """A process is gone: it does nothing more, whatever it had been about to do."""


class DiskFull(OSError):
    """There is no room for all that was to be written; a part of it may have been."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.ENOSPC, f"no room for {name}")


class SimFile:
    """A file: what is read from it, what of it would survive now, and the sectors that are written and not synced."""

    __slots__ = ("content", "dirty", "durable")

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.content = bytearray(data)
        self.durable = bytearray(data)
        self.dirty: set[int] = set()

    def write(self, offset: int, data: bytes) -> None:
        """Change the bytes from an offset on."""
        end = offset + len(data)
        if offset > len(self.content):
            self.content.extend(bytes(offset - len(self.content)))
        self.content[offset:end] = data
        self.dirty.update(range(offset // SECTOR, -(-end // SECTOR)))

    def begin_sync(self) -> frozenset[int]:
        """The sectors that a sync which begins now makes durable."""
        return frozenset(self.dirty)

    def end_sync(self, sectors: frozenset[int]) -> None:
        """These sectors are durable."""
        ordered = sorted(sectors)
        if ordered and ordered[-1] - ordered[0] < len(ordered):  # each follows the one before: most often they do
            self._keep(ordered[0], len(ordered) * SECTOR)
        else:
            for sector in ordered:
                self._keep(sector, SECTOR)
        self.dirty -= sectors

    def fail_sync(self, sectors: frozenset[int], random: Random) -> None:
        """A sync failed. Each of its sectors may be durable or not, and the disk takes them all for clean."""
        self.end_sync(frozenset(s for s in sorted(sectors) if random.random() < 0.5))
        self.dirty -= sectors

    def lose_power(self, random: Random) -> None:
        """Of what is not synced any part survives: all, nothing, or some sectors, whole or torn."""
        surviving = (0.0, 1.0, 0.5, 0.9)[int(random.random() * 4)]
        for sector in sorted(self.dirty):
            if random.random() < surviving:
                torn = random.random() < 0.2
                self._keep(sector, int(random.random() * SECTOR) if torn else SECTOR)
        self.dirty.clear()
        self.content[:] = self.durable

    def truncate(self, length: int) -> None:
        """Cut the file off, or make it longer by zeros, durably."""
        for data in (self.content, self.durable):
            del data[length:]
            data.extend(bytes(length - len(data)))
        self.dirty = {s for s in self.dirty if s * SECTOR < length}

    def flip(self, bit: int) -> None:
        """Damage one bit, as it is read and as it would survive."""
        offset, mask = bit // 8, 1 << bit % 8
        self.content[offset] ^= mask
        if offset < len(self.durable):
            self.durable[offset] ^= mask

    def _keep(self, sector: int, size: int) -> None:
        """The first bytes from a sector on become durable as they are read now."""
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

    def append(self, data: bytes | Sequence[Part]) -> None:
        """Write at the end. Raises :class:`DiskFull`, after a part of it."""
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
        """Bytes from an offset on."""
        return bytes(self._file.content[offset : offset + size])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer with bytes from an offset on."""
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_now(self, offset: int, buffer: memoryview) -> int:
        return self.read_into(offset, buffer)

    def sync(self) -> None:
        """All that was written is durable. Raises ``OSError`` if it is not."""
        self._disk.use()
        if self._disk.fails is not None:
            self._file.fail_sync(self._file.begin_sync(), self._disk.fails)
            self._disk.fails = None
            raise OSError(errno.EIO, f"{self.name} cannot be synced")
        self._file.end_sync(self._file.begin_sync())
        self._file.durable.extend(bytes(len(self._file.content) - len(self._file.durable)))  # if a sync had failed
        self._disk.use()

    def preallocate(self, end: int) -> None:
        """Take room up to an offset. Raises :class:`NoRoom`, and takes none then."""
        there = len(self._file.content)
        if end - there > self._disk.free:
            raise NoRoom(self.name)
        if end > there:
            self._file.write(there, bytes(end - there))
            self._disk.free -= end - there

    def truncate(self, length: int) -> None:
        """Cut the file off, or make it longer by zeros, durably."""
        self._disk.free += len(self._file.content) - length
        self._file.truncate(length)
        self.end = length


CAPACITY = 1 << 40
"""Bytes that a disk has room for."""

NEVER = 1 << 60
"""More uses of a disk than there are."""


class SimDisk:
    """A folder of files by name, and how much room is free."""

    def __init__(self) -> None:
        self.files: dict[str, SimFile] = {}
        self.free = CAPACITY
        """Bytes that there is room for."""
        self.left = NEVER
        """How often it is used before the process that uses it is gone."""
        self.fails: Random | None = None
        """By what chance something of the next sync is durable, which fails; None if it does not."""
        self._synced: dict[str, SimFile | None] = {}
        """The files by those names that have changed since the folder was synced, as they were then."""

    # -- what every layer of files has --------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The files there are, in the order of their names."""
        return sorted(self.files)

    def size(self, name: str) -> int:
        """The bytes of a file."""
        return len(self.files[name].content)

    def create(self, name: str) -> SimHandle:
        """Make a file, which must not be there yet."""
        if name in self.files:
            raise FileExistsError(errno.EEXIST, name)
        self._name(name, SimFile())
        self.use()
        return self.open(name)

    def open(self, name: str, writable: bool = False) -> SimHandle:
        """Open a file that is there."""
        return SimHandle(self, name, self.files[name])

    def rename(self, name: str, new: str) -> None:
        """Give a file another name."""
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
        """The names of files are durable."""
        self.use()
        self._synced.clear()
        self.use()

    def room(self) -> Room:
        """How much room there is."""
        return Room(CAPACITY, self.free)

    def _name(self, name: str, file: SimFile | None) -> None:
        self._synced.setdefault(name, self.files.get(name))
        self._put(name, file)

    def _put(self, name: str, file: SimFile | None) -> None:
        if file is None:
            self.files.pop(name, None)
        else:
            self.files[name] = file

    # -- what happens to a disk ---------------------------------------------------------------------------------------

    def append(self, name: str, data: bytes) -> int:
        """Write at the end of a file, which is made if there is none; the offset. Raises :class:`DiskFull`, after a
        part of it.
        """
        handle = self.open(name) if name in self.files else self.create(name)
        offset = handle.end
        handle.append(data)
        return offset

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Bytes of a file."""
        return self.open(name).read(offset, size)

    def use(self) -> None:
        """The disk is used. Raises :class:`PowerLoss` when nothing is left."""
        self.left -= 1
        if self.left < 0:
            raise PowerLoss

    def kept(self) -> SimDisk:
        """What is left of it in any case if power is lost now."""
        kept = SimDisk()
        for name, file in {**self.files, **self._synced}.items():
            if file is not None:
                kept.files[name] = SimFile(file.durable)
        return kept

    def lose_power(self, random: Random) -> None:
        """Lose power: unsynced bytes survive in part, in every file, and so do names."""
        for name in sorted(self._synced):
            if random.random() < 0.5:
                self._put(name, self._synced[name])
        self._synced.clear()
        for name in sorted(self.files):
            self.files[name].lose_power(random)

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self.files.clear()
        self._synced.clear()
        self.heal()

    def heal(self) -> None:
        """Nothing goes wrong with it from now on."""
        self.free, self.left, self.fails = CAPACITY, NEVER, None
