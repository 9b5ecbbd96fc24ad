"""A disk, byte by byte: what is written is safe only once it is synced, and not even then from damage.

A write changes what is read at once, and what survives a loss of power only when a sync has ended. Until then each sector of 512
bytes that was written survives or does not, whatever became of those before it, and one may be torn.
"""

from __future__ import annotations

from random import Random

from fencepost.store.disk.journal import SECTOR


class DiskFull(Exception):
    """There is no room for all that was to be written; a part of it may have been."""


class SimFile:
    """A file: what is read from it, what of it would survive now, and the sectors that are written and not synced."""

    __slots__ = ("content", "dirty", "durable")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
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
        for sector in sorted(sectors):
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
        """Cut the file off, durably."""
        del self.content[length:]
        del self.durable[length:]
        self.dirty = {s for s in self.dirty if s * SECTOR < length}

    def flip(self, bit: int) -> None:
        """Damage one bit, as it is read and as it would survive."""
        offset, mask = bit // 8, 1 << bit % 8
        self.content[offset] ^= mask
        if offset < len(self.durable):
            self.durable[offset] ^= mask

    def _keep(self, sector: int, size: int) -> None:
        """The first bytes of a sector become durable as they are read now."""
        start = sector * SECTOR
        kept = self.content[start : start + size]
        if start > len(self.durable):
            self.durable.extend(bytes(start - len(self.durable)))
        self.durable[start : start + len(kept)] = kept


class SimDisk:
    """Files by name, and how much room there is."""

    def __init__(self) -> None:
        self.files: dict[str, SimFile] = {}
        self.room = 1 << 40

    def append(self, name: str, data: bytes) -> int:
        """Write at the end of a file, which is made if there is none; the offset. Raises :class:`DiskFull`, after a part of it."""
        file = self.files.setdefault(name, SimFile())
        offset = len(file.content)
        fits = data[: max(0, self.room)]
        file.write(offset, fits)
        self.room -= len(fits)
        if len(fits) < len(data):
            raise DiskFull(name)
        return offset

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Bytes of a file."""
        return bytes(self.files[name].content[offset : offset + size])

    def lose_power(self, random: Random) -> None:
        """What was not synced survives in part, in every file."""
        for name in sorted(self.files):
            self.files[name].lose_power(random)

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self.files.clear()
        self.room = 1 << 40
