"""Receive buffers. All connections share one large buffer. Each keeps only the start of an incomplete message."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fencepost.ledger.wire.frames import LENGTH_SIZE

ROOM = 1 << 20
"""The most bytes read at once from a connection."""

LARGE = ROOM // 4
"""From this size in bytes a message gets its own buffer, which grows as it arrives. The parts of a smaller one are
copied on each read.
"""


class Memory:
    """Bytes, as an array for the loops and as a view for everything else."""

    __slots__ = ("array", "view")

    def __init__(self, size: int) -> None:
        self.array: NDArray[np.uint8] = np.empty(size, np.uint8)
        self.view = memoryview(self.array)  # type: ignore[arg-type]


class Inbox:
    """The bytes of an incomplete message of one connection. ``held``: their number.

    :meth:`buffer` gives the memory for the next bytes, :meth:`arrived` the bytes that are there then. :meth:`keep`
    stores the unused rest. ``shared`` is used by all connections in turn, so nothing may refer to it later. ``skips``:
    the number of bytes still to be discarded.
    """

    __slots__ = ("_kept", "_needed", "_own", "_shared", "held", "skips")

    def __init__(self, shared: Memory) -> None:
        self.held = 0
        self.skips = 0
        self._shared = shared
        self._kept = b""
        self._own: Memory | None = None
        self._needed = 0

    def buffer(self) -> memoryview:
        """The memory for the next bytes."""
        held, own = self.held, self._own
        if own is not None:
            if held == len(own.view):
                self._own = Memory(min(self._needed, 2 * held))
                self._own.array[:held] = own.array
            return self._own.view[held:]  # type: ignore[union-attr]
        view = self._shared.view
        if not held:
            return view
        view[:held] = self._kept
        return view[held:]

    def arrived(self, count: int) -> tuple[Memory, int]:
        """``count`` bytes were put into the buffer. Gives the memory that holds all bytes so far, from its start, and
        their number.
        """
        memory, stop = self._own or self._shared, self.held + count
        if self.skips:  # nothing is held
            skipped = min(self.skips, stop)
            self.skips -= skipped
            memory.array[: stop - skipped] = memory.array[skipped:stop]
            stop -= skipped
        return memory, stop

    def keep(self, memory: Memory, start: int, stop: int, needed: int) -> None:
        """Keep the first bytes of a message. ``needed``: the message's size with its length field, as far as known."""
        self.held = stop - start
        self._needed = max(needed, LENGTH_SIZE)
        if memory is self._own and not start and self.held < needed:
            return
        self._kept, self._own = b"", None
        if self.held and needed >= LARGE:
            self._own = Memory(min(needed, max(LARGE, 2 * self.held)))
            self._own.array[: self.held] = memory.array[start:stop]
        elif self.held:
            self._kept = bytes(memory.view[start:stop])


def address_of(transport: Any) -> str:
    """The address of a connection's other end, for the log."""
    address = transport.get_extra_info("peername") or ("?", 0)
    return f"{address[0]}:{address[1]}"
