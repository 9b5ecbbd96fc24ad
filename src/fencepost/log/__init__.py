"""One log of many ledgers: ``store.log(name)`` gives its handle, see :class:`fencepost.log.log.Log`."""

from fencepost.log.chain import EARLIEST, LATEST, Position

__all__ = ["EARLIEST", "LATEST", "Position"]
