"""How each state was discovered: 8 bytes a state, in memory while there are few, else on disk."""

from __future__ import annotations

import tempfile
from typing import IO

import numpy as np

from fencepost.checker.compiler.arrays import Array
from fencepost.checker.compiler.encoding import INITIAL, link_outcome, link_parent
from fencepost.errors import SystemFailure

IN_MEMORY = 8 << 20
"""The most bytes of links kept in memory."""


class Links:
    """A log for every level: the link of each state (int64, see `encoding`). Raises :class:`fencepost.SystemFailure`
    when the disk is full.
    """

    def __init__(self) -> None:
        self._levels: list[Array | int] = []
        self._file: IO[bytes] | None = None
        self.resident = 0

    def __len__(self) -> int:
        return len(self._levels)

    def add(self, log: Array) -> None:
        """Append the log of the next level, which is copied."""
        if self.resident + log.nbytes <= IN_MEMORY:
            self.resident += log.nbytes
            self._levels.append(log.copy())
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="fencepost-links-")
            begin = self._file.seek(0, 2)
            log.tofile(self._file)
            self._file.flush()
        except OSError as error:
            raise SystemFailure(
                f"no room for the links between states in {tempfile.gettempdir()}: {error.strerror or error}; "
                "set TMPDIR to a larger disk"
            ) from error
        self._levels.append(begin)

    def level(self, level: int) -> Array:
        """The whole log of a level."""
        held = self._levels[level]
        if not isinstance(held, int):
            return held
        assert self._file is not None
        later = next((n for n in self._levels[level + 1 :] if isinstance(n, int)), None)
        self._file.seek(held)
        return np.frombuffer(self._file.read(-1 if later is None else later - held), np.int64)

    def path(self, level: int, number: int) -> tuple[int, list[int]]:
        """The number of the initial state, and the outcomes from it to state ``number`` of ``level`` (from 0)."""
        outcomes: list[int] = []
        while True:
            link = self._get(level, number)
            outcome, number = link_outcome(link), link_parent(link)
            if outcome == INITIAL:
                return number, outcomes[::-1]
            outcomes.append(outcome)
            level -= 1

    def _get(self, level: int, number: int) -> int:
        held = self._levels[level]
        if isinstance(held, int):
            assert self._file is not None
            self._file.seek(held + 8 * number)
            return int(np.frombuffer(self._file.read(8), np.int64)[0])
        return int(held[number])

    def close(self) -> None:
        """Free the disk space."""
        if self._file is not None:
            self._file.close()
