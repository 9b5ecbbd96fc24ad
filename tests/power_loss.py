"""A disk that loses power after so many uses, for tests of what a crash leaves."""

from __future__ import annotations

from typing import Any

from fencepost.simulation.disk import SimDisk, SimHandle


class PowerLoss(Exception):
    """Nothing that follows was done."""


class Handle:
    """An open file whose every use may be the last thing before power is lost."""

    def __init__(self, disk: FailingDisk, handle: SimHandle) -> None:
        self.disk = disk
        self.handle = handle

    def append(self, data: Any) -> None:
        self.handle.append(data)
        self.disk.use()

    def sync(self) -> None:
        self.disk.use()
        self.handle.sync()
        self.disk.use()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handle, name)


class FailingDisk(SimDisk):
    """A disk that loses power after so many uses. ``left``: how many are left."""

    left = 1 << 60

    def use(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise PowerLoss

    def create(self, name: str) -> Any:
        handle = Handle(self, super().create(name))
        self.use()
        return handle

    def rename(self, name: str, new: str) -> None:
        super().rename(name, new)
        self.use()

    def remove(self, name: str) -> None:
        super().remove(name)
        self.use()

    def sync(self) -> None:
        self.use()
        super().sync()
        self.use()
