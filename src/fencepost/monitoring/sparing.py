"""Fewer lines in the log of what strangers do: anybody who reaches a port could fill the disk with them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

FEW = 10
"""Lines of one kind that are written in a :data:`MINUTE`."""

MINUTE = 60.0
"""Seconds from the first line of a kind to the count of those that were left out."""

OF_STRANGERS = (
    "asyncio",
    "fencepost.connections",
    "fencepost.ledger.bookie.server",
    "fencepost.ledger.recording",
    "fencepost.metadata",
    "fencepost.quorum",
)
"""The loggers whose lines strangers can cause, with those below them."""


@dataclass
class _Kind:
    """Lines from one place of the code, since a time. ``last``: the latest that was left out."""

    since: float
    written: int = 0
    left_out: int = 0
    last: logging.LogRecord | None = None


class Sparing(logging.Filter):
    """Lets the first :data:`FEW` lines from each place of the code pass in a minute, and then says how many it left
    out, and what the last of them was. Lines of other loggers than :data:`OF_STRANGERS` pass.
    """

    def __init__(self, minute: float = MINUTE, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._minute = minute
        self._now = now
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, int], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See :class:`logging.Filter`."""
        if not any(record.name == each or record.name.startswith(f"{each}.") for each in OF_STRANGERS):
            return True
        if hasattr(record, "left_out"):
            return True
        place, now = (record.pathname, record.lineno), self._now()
        with self._lock:
            kind = self._kinds.get(place)
            if kind is None or (now - kind.since >= self._minute and not kind.left_out):
                kind = self._kinds[place] = _Kind(now)
            if kind.written < FEW:
                kind.written += 1
                return True
            if not kind.left_out:  # a thread, since the loop may be stuck, and nothing else may be logged any more
                timer = threading.Timer(max(0.0, kind.since + self._minute - now), self._tell, (place,))
                timer.daemon = True
                timer.start()
            kind.left_out, kind.last = kind.left_out + 1, record
        return False

    def _tell(self, place: tuple[str, int]) -> None:
        """Log how many lines of a kind were left out. Then it begins anew."""
        with self._lock:
            kind = self._kinds.pop(place)
        last = kind.last
        assert last is not None
        logging.getLogger(last.name).log(
            last.levelno,
            "%d more such lines were left out; the last of them: %s",
            kind.left_out,
            last.getMessage(),
            extra={"left_out": kind.left_out},
        )
