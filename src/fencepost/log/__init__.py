"""Logs: one sequence of entries over many ledgers. ``store.log(name)`` returns the handle, :class:`.log.Log`."""

from fencepost.log.chain import EARLIEST, LATEST, Position

__all__ = ["EARLIEST", "LATEST", "Position"]
