"""The memory for bytes that arrive over connections: all connections share it, and only the beginning of a message is
kept for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fencepost.ledger.wire.frames import LENGTH_SIZE

ROOM = 1 << 20
"""Bytes that are read at once from a connection at most."""

LARGE = ROOM // 4
"""The bytes from which on a message is put in memory of its own, which grows as it arrives: the parts of a smaller one
are copied every time.
"""


class Memory:
    """Bytes as an array for loops, and as a view for everything else."""

    __slots__ = ("array", "view")

    def __init__(self, size: int) -> None:
        self.array: NDArray[np.uint8] = np.empty(size, np.uint8)
        self.view = memoryview(self.array)  # type: ignore[arg-type]


class Inbox:
    """The bytes that have arrived over one connection and are no whole message yet. ``held``: the bytes of it.

    :meth:`buffer` gives the room for what comes next, and :meth:`arrived` what is there then; :meth:`keep` puts aside
    what is left of that. ``shared`` is used by all connections, one after another: nothing of it may be looked at
    later. ``skips``: the bytes to come that are let go by.
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
        """So many bytes were put into the buffer: the memory where all of them are, from its beginning on, and how many
        they are.
        """
        memory, stop = self._own or self._shared, self.held + count
        if self.skips:  # nothing is held
            skipped = min(self.skips, stop)
            self.skips -= skipped
            memory.array[: stop - skipped] = memory.array[skipped:stop]
            stop -= skipped
        return memory, stop

    def keep(self, memory: Memory, start: int, stop: int, needed: int) -> None:
        """Put aside the first bytes of a message, which has ``needed`` bytes with its length as far as that is
        known.
        """
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
    """Whom a connection is with, for the log."""
    address = transport.get_extra_info("peername") or ("?", 0)
    return f"{address[0]}:{address[1]}"
