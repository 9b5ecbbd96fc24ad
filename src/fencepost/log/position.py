"""A position in a log: a ledger and an entry of it. Before the first entry and after the last one a log has names of
its own.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from fencepost.errors import OptionError

_TEXT = re.compile(r"(0|[1-9][0-9]{0,18}):(0|[1-9][0-9]{0,18})", re.ASCII)
LARGEST = (1 << 63) - 1
"""The largest id of a ledger, and of an entry."""


@dataclass(frozen=True, slots=True)
class Position:
    """An entry of a ledger of a log. Its text is ``LEDGER:ENTRY``.

    Positions have no order of their own: a ledger with a smaller id may come later in a log. See :meth:`.Chain.place`.
    """

    ledger: int
    entry: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


class End(enum.Enum):
    """The ends of a log."""

    EARLIEST = "earliest"
    """The first entry that is not trimmed."""
    LATEST = "latest"
    """After the last entry: the entries that are appended from now on."""

    def __str__(self) -> str:
        return self.value


EARLIEST = End.EARLIEST
LATEST = End.LATEST


def position_of(text: str) -> Position | End:
    """The position that ``LEDGER:ENTRY``, ``earliest`` or ``latest`` names. Raises :class:`fencepost.OptionError` for
    other text.
    """
    found = _TEXT.fullmatch(text)
    if found is not None:
        ledger, entry = map(int, found.groups())
        if max(ledger, entry) <= LARGEST:
            return Position(ledger, entry)
    for end in End:
        if text == end.value:
            return end
    raise OptionError(f"position {text[:60]!r}: give LEDGER:ENTRY, as in 17:3, or earliest or latest")
